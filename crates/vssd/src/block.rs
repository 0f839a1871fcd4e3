//! One erase block in the hands of a pool: opened, freed, settled, given out again.

use crate::dies::{Kind, Op};
use crate::pool::Pool;
use crate::states::BlockState;
use crate::wear::{DieWear, EraseCause};
use crate::{IoClass, LogicalBlock, Purpose, VssdId};
use diecut_media::{Media, Operation};
use diecut_units::{Time, mutant};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Bad, or of the system area.
    Excluded,
    Free,
    Held,
    /// Taken for the copy of a block that changes dies; free, as far as its state on the medium goes.
    Copy,
}

#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub state: State,
    pub erased: bool,
    pub failed: bool,
    pub freed: bool,
    /// Was open when the process or the power went: what a torn program left cannot be programmed over.
    pub sealed: bool,
    /// What it holds is not certain: not read, not programmed, and retired when its holder frees it.
    pub quarantined: bool,
    /// Its copy on another die is being made, or is not durable yet: appends wait.
    pub moving: bool,
    /// It moved to another die; reads that were under way come back here.
    pub moved: bool,
    /// Some pages could not be read when it was moved here; their OOB records say which.
    pub lost_pages: bool,
    /// Appends that wait because it moves.
    pub held_appends: u32,
    pub owner: VssdId,
    pub logical: LogicalBlock,
    pub purpose: Purpose,
    pub erase_count: u32,
    pub next_page: u32,
    pub done_pages: u32,
    pub in_flight: u32,
    pub sequence: u64,
    /// Class of the appends under way: they share one queue, so that they stay in order.
    pub appends: u32,
    pub append_class: IoClass,
    /// Operations that wait for the erase, or for a program they read.
    pub waiting: VecDeque<u32>,
}

impl Block {
    pub fn new(state: State) -> Block {
        Block {
            state,
            erased: false,
            failed: false,
            freed: false,
            sealed: false,
            quarantined: false,
            moving: false,
            moved: false,
            lost_pages: false,
            held_appends: 0,
            owner: VssdId(0),
            logical: LogicalBlock::default(),
            purpose: Purpose(0),
            erase_count: 0,
            next_page: 0,
            done_pages: 0,
            in_flight: 0,
            sequence: 0,
            appends: 0,
            append_class: IoClass::HostWrite,
            waiting: VecDeque::new(),
        }
    }
}

/// The erase blocks of one die.
#[derive(Default)]
pub(crate) struct DieBlocks {
    /// By erases, the least first.
    pub free: BinaryHeap<Reverse<(u32, u32)>>,
    /// Erases that were done.
    pub erases: u64,
    pub retired: u32,
    /// Old places of blocks that moved away which reads still use.
    pub departing: u32,
    /// It went while a copy was made on it; it does not come back before the pool is opened again.
    pub is_offline: bool,
    /// By cause; counted when they are intended.
    pub wear: DieWear,
}

/// A block that was given back, whose content the medium may forget.
pub(crate) struct Discard {
    /// Change of the journal that says it is free.
    change: u64,
    number: u32,
    erase_count: u32,
}

impl Pool {
    /// The holder gives a block back: durable at once, erased when it is given out again.
    pub(crate) fn free_block(&mut self, number: u32) {
        self.blocks[number as usize].freed = true;
        if self.blocks[number as usize].moving {
            self.void_copy(number);
        }
        if self.blocks[number as usize].in_flight > 0 && !mutant!("vssd: free forgotten") {
            let block = &self.blocks[number as usize];
            let failed = block.failed || block.quarantined;
            self.record(number, if failed { BlockState::Retired } else { BlockState::Free });
        }
        self.settle(number);
    }

    /// Whether the medium has room for the next block that is opened on a die; `true` if none is free.
    pub(crate) fn make_room<M: Media + ?Sized>(&mut self, die: u32, media: &mut M, now: Time) -> bool {
        match self.dies[die as usize].free.peek() {
            Some(&Reverse((_, number))) => media.make_room(self.address(number), now),
            None => true,
        }
    }

    /// Lets the medium forget what free blocks held, as soon as that they are free is durable.
    #[inline]
    pub(crate) fn discard_freed<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        if !self.discards.is_empty() {
            self.discard_durable(media, now);
        }
    }

    fn discard_durable<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        while let Some(&Discard { change, number, erase_count }) = self.discards.front() {
            if !self.states.is_durable_at(change) {
                return;
            }
            self.discards.pop_front();
            let block = &self.blocks[number as usize];
            // Opened again meanwhile, and perhaps free again: that free is listed for itself.
            if block.state == State::Free && block.erase_count == erase_count {
                media.discard(self.address(number), now);
            }
        }
    }

    /// The block is free, and written down as such: its content may go.
    pub(crate) fn list_discard(&mut self, number: u32) {
        let change = self.states.change();
        let erase_count = self.blocks[number as usize].erase_count;
        self.discards.push_back(Discard { change, number, erase_count });
    }

    /// Takes the least worn free block of a die and starts its erase.
    pub(crate) fn open_block<M: Media + ?Sized>(
        &mut self,
        id: VssdId,
        logical: LogicalBlock,
        purpose: Purpose,
        die: u32,
        media: &mut M,
        now: Time,
    ) -> Option<u32> {
        let Reverse((_, number)) = self.dies[die as usize].free.pop()?;
        let sequence = self.sequence;
        self.sequence += 1;
        let block = &mut self.blocks[number as usize];
        assert!(block.state == State::Free && block.in_flight == 0, "block {number} is free");
        block.state = State::Held;
        (block.erased, block.failed, block.freed, block.sealed) = (false, false, false, false);
        (block.moving, block.moved, block.lost_pages, block.held_appends) = (false, false, false, 0);
        // Counted when it is intended: no crash makes the count smaller than what the silicon saw.
        block.erase_count += 1;
        (block.owner, block.logical, block.purpose) = (id, logical, purpose);
        (block.next_page, block.done_pages, block.sequence) = (0, 0, sequence);
        self.count_erase(number, EraseCause::Host, now);
        // Known as held before it is erased: after a crash it is its owner's, or free and erased before anything else.
        if !mutant!("vssd: allocation not recorded") && !mutant!("vssd: erase before free durable") {
            self.record(number, BlockState::Held);
        }
        let operation = Operation::Erase { block: self.address(number) };
        self.start(Op::new(Kind::Erase, id, IoClass::Cleaner, number), operation, media, now);
        Some(number)
    }

    /// A freed block whose last operation is gone leaves its unit.
    pub(crate) fn settle(&mut self, number: u32) {
        let block = &self.blocks[number as usize];
        let early = mutant!("vssd: old place free under its reads") && block.moved;
        if block.state != State::Held || !block.freed || block.in_flight > 0 && !early {
            return;
        }
        if block.moved {
            let die = self.die_of(number);
            self.dies[die].departing -= 1;
            return self.recycle(number);
        }
        let (logical, owner) = (block.logical, block.owner);
        let failed = block.failed || block.quarantined;
        let die = self.die_of(number);
        // Beyond the reserve the unit that wore the block shrinks, and its vSSD takes no more writes.
        let lost = failed && self.dies[die].retired >= self.reserve_blocks;
        let at = self.at_of(owner).expect("holds the block");
        let vssd = &mut self.vssds[at];
        let unit = &mut vssd.units[usize::from(logical.unit.0)];
        unit.map[logical.index as usize] = u32::MAX;
        if lost {
            unit.lost_blocks = unit.lost_blocks.saturating_add(1);
            vssd.read_only = true;
            // Before the block is written down as retired: a crash in between shrinks the unit once more, never less.
            if !mutant!("vssd: read-only forgotten") {
                self.record_vssd(at);
            }
        } else {
            unit.free_indices.push(logical.index);
        }
        self.recycle(number);
    }

    pub(crate) fn recycle(&mut self, number: u32) {
        let die = self.die_of(number);
        let block = &mut self.blocks[number as usize];
        // Whoever takes it next erases it: a read that is still under way would find nothing, or somebody else's bytes.
        assert_eq!(block.in_flight, 0, "nothing of block {number} is under way when it is given back");
        block.owner = VssdId(0);
        (block.moving, block.held_appends) = (false, 0);
        let failed = block.failed || block.quarantined;
        if !mutant!("vssd: free forgotten") && (failed || !mutant!("vssd: erase before free durable")) {
            self.record(number, if failed { BlockState::Retired } else { BlockState::Free });
        }
        let block = &mut self.blocks[number as usize];
        if failed {
            block.state = State::Excluded;
            self.dies[die].retired += 1;
            self.has_retired = true;
        } else {
            block.state = State::Free;
            self.dies[die].free.push(Reverse((block.erase_count, number)));
            self.list_discard(number);
        }
    }
}
