//! Even wear inside a die. Free blocks are taken least worn first, which evens out blocks that are written again and again; one
//! whose content nobody writes again stays young while the others wear out. So the content of the least worn full block moves
//! to the most worn free one when that is far ahead, and the young block is written next (static wear leveling: Gal and Toledo, ACM
//! Computing Surveys 37(2), 2005, section 3.1).
//!
//! One block of the pool at a time, by the machine that exchanges dies (`moving.rs`), with its rate; exchanges of dies go first.
//! A die is looked at whole, one die for each call: a look at all would hold up a shard for milliseconds.

use crate::blocks::Fill;
use crate::core::Core;
use crate::wear::policy::DieLayout;

/// The least difference that is worth a copy, whatever the thresholds are. A choice.
const LEAST_GAP_ERASES: u64 = 2;

/// How far a free block of a die may be ahead of one that is full, by the thresholds in force of a channel and of a die; `None`:
/// nothing is moved inside dies. Half of what the thresholds allow a block of one place to be ahead of those of another.
pub fn inside_gap_erases(thresholds_erases: [u64; 2], layout: &DieLayout) -> Option<u64> {
    let [channel, die] = thresholds_erases;
    let per_channel = layout.blocks_per_die * layout.dies_per_channel as u64;
    let per_block = if die > 0 { die / layout.blocks_per_die } else { channel / per_channel };
    (channel > 0 || die > 0).then_some((per_block / 2).max(LEAST_GAP_ERASES))
}

/// What moves inside a die, if anything does: the least worn of the full blocks, to the most worn of the free ones, if that is
/// `gap_erases` or more ahead. Blocks are erases and a number. Nothing moves if no more than `spare_blocks` are free.
pub fn choose_inside(
    free: impl ExactSizeIterator<Item = (u32, u32)>,
    full: impl Iterator<Item = (u32, u32)>,
    spare_blocks: u32,
    gap_erases: u64,
) -> Option<(u32, u32)> {
    if free.len() <= spare_blocks.max(2) as usize {
        return None;
    }
    let (most, copy) = free.max()?;
    let (least, source) = full.min_by_key(|(erases, _)| *erases)?;
    (u64::from(most) >= u64::from(least) + gap_erases).then_some((source, copy))
}

/// What moves inside a die; see [`choose_inside`].
pub(crate) fn cold_block(core: &Core, die: u32, gap_erases: u64) -> Option<(u32, u32)> {
    let moves = |number: &u32| {
        let block = &core.blocks[*number];
        let is_full = match block.fill() {
            Fill::Sealed => true,
            Fill::Open => block.done_pages == core.shape.pages,
            Fill::Opening | Fill::Bare | Fill::Failed | Fill::Suspect => false,
        };
        block.is_held() && is_full && !block.is_moving()
    };
    let full = core.blocks.of_die(die).filter(moves);
    let full = full.map(|number| (core.blocks[number].erase_count, number));
    choose_inside(core.blocks.free_of(die), full, core.config.spare_blocks_per_die, gap_erases)
}
