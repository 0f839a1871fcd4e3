use diecut_vssd::space::{EraseBlockSpace, HeldBlock, LogicalBlock, UnitIndex};
/// Pages of each erase block, by member and number: looked up for every program unit of every chunk.
pub(super) struct Written(Vec<Vec<u32>>);

impl Written {
    /// Of the blocks that are held.
    pub fn new(blocks: &[HeldBlock], space: &dyn EraseBlockSpace) -> Written {
        let pages = |member| vec![0; space.blocks_of_unit(UnitIndex(member)) as usize];
        let mut written: Vec<Vec<u32>> = (0..space.unit_count()).map(pages).collect();
        for HeldBlock { block, written_pages, .. } in blocks {
            written[usize::from(block.unit.0)][block.index as usize] = *written_pages;
        }
        Written(written)
    }

    /// Pages of a block.
    pub fn pages(&self, block: LogicalBlock) -> u32 {
        self.0[usize::from(block.unit.0)][block.index as usize]
    }
}
