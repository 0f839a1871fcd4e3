use diecut_log::{HeldMemberBlock, Member, MemberBlock, Members};

/// Pages of each erase block, by member and number: looked up for every program unit of every chunk.
pub(super) struct Written(Vec<Vec<u32>>);

impl Written {
    /// Of the blocks that are held.
    pub fn new(blocks: &[HeldMemberBlock], space: &dyn Members) -> Written {
        let pages = |member| vec![0; space.blocks_of(Member(member)) as usize];
        let mut written: Vec<Vec<u32>> = (0..space.member_count()).map(pages).collect();
        for HeldMemberBlock { block, written_pages, .. } in blocks {
            written[usize::from(block.member.0)][block.index as usize] = *written_pages;
        }
        Written(written)
    }

    /// Pages of a block.
    pub fn pages(&self, block: MemberBlock) -> u32 {
        self.0[usize::from(block.member.0)][block.index as usize]
    }
}
