//! The life of an erase block between its holder, the block states and the medium: opened, freed, settled, given out again.

use crate::blocks::Use;
use crate::dies::{Kind, Op};
use crate::pool::Pool;
use crate::states::BlockState;
use crate::wear::EraseCause;
use crate::{IoClass, LogicalBlock, Purpose, VssdId};
use diecut_media::{Media, Operation};
use diecut_units::{Time, mutant};

impl Pool {
    /// The holder gives a block back: durable at once, erased when it is given out again.
    pub(crate) fn free_block(&mut self, number: u32) {
        self.blocks[number].give_back();
        if self.blocks[number].is_moving() {
            self.void_copy(number);
        }
        if self.blocks[number].in_flight > 0 && !mutant!("vssd: free forgotten") {
            let bad = self.blocks[number].is_bad();
            self.record(number, if bad { BlockState::Retired } else { BlockState::Free });
        }
        self.settle(number);
    }

    /// Whether the medium has room for the next block that is opened on a die; `true` if none is free.
    pub(crate) fn make_room<M: Media + ?Sized>(&mut self, die: u32, media: &mut M, now: Time) -> bool {
        self.blocks.next_free(die).is_none_or(|number| media.make_room(self.address(number), now))
    }

    /// Lets the medium forget what free blocks held, as soon as that they are free is durable.
    #[inline]
    pub(crate) fn discard_freed<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        if !self.blocks.has_discards() {
            return;
        }
        while let Some(number) = self.blocks.take_discard(|change| self.states.is_durable_at(change)) {
            media.discard(self.address(number), now);
        }
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
        let number = self.blocks.open(die, id, logical, purpose)?;
        self.count_erase(number, EraseCause::Host, now);
        // Known as held before it is erased: after a crash it is its owner's, or free and erased before anything else.
        if !mutant!("vssd: allocation not recorded") && !mutant!("vssd: erase before free durable") {
            self.record(number, BlockState::Held);
        }
        let operation = Operation::Erase { block: self.address(number) };
        self.start(Op::new(Kind::Erase, id, IoClass::Cleaner, number), operation, media, now);
        Some(number)
    }

    /// A block that its holder does not have any more, and whose last operation is gone, leaves its unit.
    pub(crate) fn settle(&mut self, number: u32) {
        let block = &self.blocks[number];
        match block.use_of() {
            Use::Departed => {
                let early = mutant!("vssd: old place free under its reads");
                if block.in_flight == 0 || early {
                    self.blocks.departed(number);
                    self.recycle(number);
                }
            }
            Use::Returned if block.in_flight == 0 => {
                self.leave_unit(number);
                self.recycle(number);
            }
            _ => {}
        }
    }

    fn leave_unit(&mut self, number: u32) {
        let block = &self.blocks[number];
        let (logical, owner) = (block.logical, block.owner);
        // Beyond the reserve the unit that wore the block shrinks, and its vSSD takes no more writes.
        let die = self.blocks.die(self.blocks.die_of(number));
        let lost = block.is_bad() && die.retired >= self.blocks.reserve();
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
    }

    /// Nobody has a block any more: it is free, or retired, and written down as such.
    pub(crate) fn recycle(&mut self, number: u32) {
        let block = &mut self.blocks[number];
        block.owner = VssdId(0);
        let bad = block.is_bad();
        if !mutant!("vssd: free forgotten") && (bad || !mutant!("vssd: erase before free durable")) {
            self.record(number, if bad { BlockState::Retired } else { BlockState::Free });
        }
        self.blocks.release(number, bad, self.states.change());
    }
}
