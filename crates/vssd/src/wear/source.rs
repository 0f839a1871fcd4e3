//! Which blocks of a die are still to move.

use crate::blocks::Fill;
use crate::core::Core;
use crate::wear::migration::NO_BLOCK;

/// How many blocks of units that leave a die are still there, and the one to move next.
pub(crate) fn next_source(core: &Core, die: u32) -> (u32, u32) {
    let (mut left, mut full, mut open) = (0, NO_BLOCK, NO_BLOCK);
    for unit in core.vssds.iter().flat_map(|vssd| &vssd.units) {
        if unit.place.die != die || unit.destination.is_none() {
            continue;
        }
        for &number in unit.map.iter().filter(|number| **number != u32::MAX) {
            let block = &core.blocks[number];
            if core.die_of(number) as u32 != die || block.is_suspect() {
                continue;
            }
            left += 1;
            if !block.is_held() || block.is_moving() || matches!(block.fill(), Fill::Opening | Fill::Bare) {
                continue;
            }
            let takes_more = block.takes_appends() && block.done_pages < core.shape.pages;
            let choice = if takes_more { &mut open } else { &mut full };
            if *choice == NO_BLOCK {
                *choice = number;
            }
        }
    }
    (left, if full != NO_BLOCK { full } else { open })
}

/// Blocks of units that leave a die which are still there.
pub(crate) fn blocks_to_move(core: &Core, die: u32) -> u64 {
    next_source(core, die).0.into()
}
