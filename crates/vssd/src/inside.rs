//! Even wear inside a die. Free blocks are taken least worn first, which evens out blocks that are written again and again; one
//! whose content nobody writes again stays young while the others wear out. So the content of the least worn full block moves
//! to the most worn free one when that is far ahead, and the young block is written next (static wear leveling: Gal and Toledo, ACM
//! Computing Surveys 37(2), 2005, section 3.1).
//!
//! One block of the pool at a time, by the machine that exchanges dies (`moving.rs`), with its rate; exchanges of dies go first.
//! A die is looked at whole, one die for each call: a look at all would hold up a shard for milliseconds.

use crate::block::State;
use crate::exchange::Exchange;
use crate::pool::Pool;
use diecut_units::mark;
use std::cmp::Reverse;

/// The least difference that is worth a copy, whatever the thresholds are. A choice.
const LEAST_GAP_ERASES: u64 = 2;

impl Pool {
    /// How far a free block of a die may be ahead of one that is full; `None`: nothing is moved inside dies. Half of what the
    /// thresholds of swaps allow a block of one place to be ahead of those of another.
    pub(crate) fn inside_gap_erases(&self) -> Option<u64> {
        let per_die = u64::from(self.geometry.erase_blocks_per_die());
        let per_channel = per_die * u64::from(self.geometry.dies_per_channel);
        let [channel, die] = self.thresholds;
        let per_block = if die > 0 { die / per_die } else { channel / per_channel };
        (channel > 0 || die > 0).then_some((per_block / 2).max(LEAST_GAP_ERASES))
    }

    /// Looks at the next die of those that are to be looked at, and begins to move a block there if one is due.
    pub(crate) fn look_inside(&mut self) {
        let die = self.geometry.dies() - self.migration.dies_to_look_into;
        // A die that went would be tried for ever: each try counts an erase, which has wear looked at again.
        let busy = !self.owns_die(die)
            || self.dies[die as usize].is_offline
            || self.migration.exchanges.iter().any(|one| one.dies.contains(&die));
        let found =
            if busy { None } else { self.inside_gap_erases().and_then(|gap| self.cold_block(die, gap)) };
        let Some((source, copy)) = found else {
            self.migration.dies_to_look_into -= 1;
            return;
        };
        mark!("vssd: cold block moves inside its die");
        self.dies[die as usize].free.retain(|Reverse((_, number))| *number != copy);
        let copy = self.taken_for_copy(copy);
        self.migration.exchanges.push(Exchange::inside(die));
        let at = self.migration.exchanges.len() - 1;
        self.begin_copy_to(at, 1, source, copy);
    }

    /// The least worn full block of a die, and the most worn free one, if that is so far ahead.
    fn cold_block(&self, die: u32, gap_erases: u64) -> Option<(u32, u32)> {
        let free = &self.dies[die as usize].free;
        if free.len() <= self.config.spare_blocks_per_die.max(2) as usize {
            return None;
        }
        let &Reverse((most, copy)) = free.iter().min()?;
        let per_die = self.geometry.erase_blocks_per_die();
        let moves = |number: &u32| {
            let block = &self.blocks[*number as usize];
            let is_full = block.sealed || block.done_pages == self.shape.pages;
            block.state == State::Held
                && is_full
                && block.erased
                && !(block.freed || block.moving || block.failed || block.quarantined)
        };
        let held = (die * per_die..(die + 1) * per_die).filter(moves);
        let source = held.min_by_key(|number| self.blocks[*number as usize].erase_count)?;
        let least = self.blocks[source as usize].erase_count;
        (u64::from(most) >= u64::from(least) + gap_erases).then_some((source, copy))
    }
}
