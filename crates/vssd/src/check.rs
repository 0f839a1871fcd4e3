//! The cross-check of block states with what flash says of itself: at opening, OOB records of some held blocks are compared
//! with the states, and of all blocks of a unit where one contradicts. A program that went astray shows here: its page
//! carries another's record, or the page that it was meant for is empty.
//!
//! Cheap on purpose: two pages of a few blocks of each unit, all dies at a time. Which ones changes from opening to opening.
//! Pages that cannot be read say nothing; holders find them by their checksums.

use crate::blocks::QuarantineReason;
use crate::core::Core;
use crate::states::BlockState;
use crate::token::{CHECK_TOKEN_BIT, POOL_TOKEN_BIT};
use crate::{OobKind, OobRecord, VssdId};
use diecut_media::{Command, Completion, Media, MediaError, MediaToken, Operation};
use diecut_units::{BufferMut, Time, mark, mutant};
use std::collections::VecDeque;

/// Reads under way at a time, over all dies: enough to keep the dies of a large device at work.
const READS_MAX: u32 = 128;

/// One page to compare.
#[derive(Clone, Copy)]
struct Page {
    block: u32,
    page: u32,
}

/// Pages to compare, and what is under way.
#[derive(Default)]
pub(crate) struct Check {
    waiting: VecDeque<Page>,
    under_way: u32,
    /// Units all of whose blocks are looked at: vSSD and unit.
    whole: Vec<(VssdId, u16)>,
}

impl Check {
    /// Begins to compare block states with OOB records; before holders are given their blocks. Goes on with completions
    /// until [`Check::is_over`]; what contradicts is set aside then (see [`crate::Pool::quarantined`]).
    pub fn begin<M: Media + ?Sized>(&mut self, core: &mut Core, media: &mut M, now: Time) {
        if core.header_pages > 0 {
            // Each block said by its header whose it is when the states were read.
            return;
        }
        let samples = core.config.checked_blocks_per_unit as usize;
        let mut chosen: Vec<u32> = Vec::new();
        let mut held: Vec<u32> = Vec::new();
        for unit in core.vssds.iter().flat_map(|vssd| &vssd.units) {
            held.clear();
            let numbers = unit.map.iter().filter(|number| **number != u32::MAX);
            held.extend(numbers.filter(|&&number| core.blocks[number].done_pages > 0));
            held.sort_by_key(|&number| std::cmp::Reverse(core.blocks[number].sequence));
            // The latest, and as many older ones in turn.
            let older = held.split_off(samples.min(held.len()));
            chosen.append(&mut held);
            let step = (older.len() / samples.max(1)).max(1);
            let first = core.blocks.sequence() as usize % step;
            chosen.extend(older.iter().skip(first).step_by(step).take(samples));
        }
        for number in chosen {
            self.look_at(core, number, false);
        }
        // Whose a block with a damaged state was can be said, if its first page still does.
        for at in 0..core.blocks.quarantined.len() {
            let found = core.blocks.quarantined[at];
            if found.reason == QuarantineReason::StateDamaged {
                let block = core.geometry.erase_block_number(found.block) as u32;
                self.waiting.push_back(Page { block, page: 0 });
            }
        }
        self.read_on(core, media, now);
    }

    /// Whether the check is through.
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.under_way == 0
    }

    fn look_at(&mut self, core: &Core, number: u32, whole: bool) {
        let block = &core.blocks[number];
        if block.is_suspect() || block.done_pages == 0 {
            return;
        }
        let last = block.done_pages - 1;
        let pages = (0..=last).filter(|&page| whole || page == 0 || page == last);
        self.waiting.extend(pages.map(|page| Page { block: number, page }));
    }

    fn read_on<M: Media + ?Sized>(&mut self, core: &Core, media: &mut M, now: Time) {
        while self.under_way < READS_MAX {
            let Some(Page { block, page }) = self.waiting.pop_front() else { return };
            self.under_way += 1;
            let oob = BufferMut::copy_from(&vec![0; core.shape.oob_size_bytes as usize]);
            let operation = Operation::ReadOob { block: core.address(block), first_page: page, oob };
            let token = POOL_TOKEN_BIT | CHECK_TOKEN_BIT | u64::from(page) << 32 | u64::from(block);
            media.submit(Command { token: MediaToken(token), operation }, now);
        }
    }

    pub(crate) fn completed<M: Media + ?Sized>(
        &mut self,
        core: &mut Core,
        completion: Completion,
        now: Time,
        media: &mut M,
    ) {
        self.under_way -= 1;
        let number = completion.token.0 as u32;
        let page = (completion.token.0 >> 32) as u32 & 0xff_ffff;
        let record = match completion.result {
            Ok(()) => completion.oob.as_deref().and_then(OobRecord::decode),
            Err(MediaError::Erased { .. }) => {
                self.contradicts(core, number, QuarantineReason::NotProgrammed);
                None
            }
            Err(_) => None,
        };
        if let Some(record) = record {
            self.compare(core, number, page, &record);
        }
        self.read_on(core, media, now);
    }

    fn compare(&mut self, core: &mut Core, number: u32, page: u32, record: &OobRecord) {
        let block = &core.blocks[number];
        if !block.is_mapped() {
            // Set aside with a damaged state. The record is the fallback for people, not for holders: the block may have
            // been freed since.
            let address = core.address(number);
            if let Some(found) = core.blocks.quarantined.iter_mut().find(|found| found.block == address) {
                found.holder = Some((record.owner, record.block));
            }
            return;
        }
        let page_is_right = match record.kind {
            // A copy says how many pages it has in all.
            OobKind::Copy => page < record.page_or_length,
            _ => record.page_or_length == page,
        };
        let right = record.owner == block.owner
            && record.block == block.logical
            && record.sequence == block.sequence
            && page_is_right;
        if !right && !mutant!("vssd: misdirected page trusted") {
            self.contradicts(core, number, QuarantineReason::Misdirected);
        }
    }

    fn contradicts(&mut self, core: &mut Core, number: u32, reason: QuarantineReason) {
        let block = &mut core.blocks[number];
        if !block.is_mapped() || block.is_suspect() {
            return;
        }
        mark!("vssd: block state contradicted by OOB");
        block.suspect();
        let (owner, logical) = (block.owner, block.logical);
        core.set_aside(number, Some((owner, logical)), reason);
        core.record(number, BlockState::HeldSuspect);
        let unit = (owner, logical.unit.0);
        if !self.whole.contains(&unit) {
            self.whole.push(unit);
            let at = core.at_of(owner).expect("I-V8: the user of a block is there");
            let numbers = core.vssds[at].units[usize::from(unit.1)].map.clone();
            for number in numbers.into_iter().filter(|number| *number != u32::MAX) {
                self.look_at(core, number, true);
            }
        }
    }
}
