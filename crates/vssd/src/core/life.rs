//! The life of an erase block between its holder, the block states and the medium: opened, freed, settled, given out again.

use crate::blocks::{QuarantineReason, Quarantined, Use};
use crate::core::Core;
use crate::dies::{Kind, Op};
use crate::erases::{COUNT_MAX, DieWear, EraseCause, Heat};
use crate::states::BlockState;
use crate::{IoClass, LogicalBlock, Purpose, VssdId};
use diecut_media::{Media, Operation};
use diecut_units::{Time, mutant};

impl Core {
    /// The holder gives a block back: durable at once, erased when it is given out again. Says whether it moves: its copy is to be given up
    /// then.
    pub(crate) fn free_block(&mut self, number: u32) -> bool {
        self.blocks[number].give_back();
        let was_moving = self.blocks[number].is_moving();
        if self.blocks[number].in_flight > 0 {
            let bad = self.blocks[number].is_bad();
            self.record(number, if bad { BlockState::Retired } else { BlockState::Free });
        }
        self.settle(number);
        was_moving
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
        let is_early = mutant!("vssd: a freed block is discarded before its free is durable");
        let may_go = |change| is_early || self.states.is_durable_at(change);
        while let Some(number) = self.blocks.take_discard(may_go) {
            media.discard(self.address(number), now);
        }
    }

    /// Takes the least worn free block of a die and starts its erase. Its header is to be prepared before that can end.
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
        let at = self.at_of(owner).expect("I-V8: the user of a block is there");
        let vssd = &mut self.vssds[at];
        vssd.free_changes += 1;
        let unit = &mut vssd.units[usize::from(logical.unit.0)];
        let before = std::mem::replace(&mut unit.map[logical.index as usize], u32::MAX);
        assert_eq!(before, number, "a block that a holder has is named by its unit's map (I-V13)");
        assert!(unit.free_indices.len() < unit.map.len(), "an index is free once (I-V13)");
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
        block.leave_content();
        block.owner = VssdId(0);
        let bad = block.is_bad();
        if !mutant!("vssd: free forgotten") && (bad || !mutant!("vssd: erase before free durable")) {
            self.record(number, if bad { BlockState::Retired } else { BlockState::Free });
        }
        self.blocks.release(number, bad, self.states.change());
    }

    /// Counts an erase that is intended now.
    pub(crate) fn count_erase(&mut self, number: u32, cause: EraseCause, now: Time) {
        self.end_windows(now);
        let die = self.blocks.die_of(number);
        if !mutant!("vssd: erases of a migration not counted") || cause != EraseCause::Migration {
            *self.blocks.die_mut(die).wear.of(cause) += 1;
        }
        if cause != EraseCause::Host {
            return self.record_die_wear(die);
        }
        let block = &self.blocks[number];
        let (owner, unit) = (block.owner, block.logical.unit);
        let at = self.at_of(owner).expect("I-V8: an erase for a holder has one");
        let unit = &mut self.vssds[at].units[usize::from(unit.0)];
        unit.heat.count(1);
        let (place, words) = (unit.place, unit.heat.words());
        self.unlooked_erases += 1;
        self.states.set_heat(place, words);
    }

    fn record_die_wear(&mut self, die: u32) {
        self.states.set_die_wear(die, self.blocks.die(die).wear.words());
    }

    /// Counts what the state log erased.
    pub(crate) fn count_state_log_erases(&mut self) {
        for block in self.states.take_log_erases() {
            let die = self.geometry.die_number(block.die_address());
            self.blocks.die_mut(die).wear.state_log += 1;
            self.record_die_wear(die);
        }
    }

    /// Ends windows of the averages that passed.
    pub(crate) fn end_windows(&mut self, now: Time) {
        if now < self.window_end {
            return;
        }
        let window_ns = self.config.wear.window_ns.max(1);
        let windows =
            if self.window_end == Time::ZERO { 0 } else { (now.0 - self.window_end.0) / window_ns + 1 };
        self.window_end = Time(now.0.saturating_add(window_ns));
        if windows == 0 {
            return;
        }
        for unit in self.vssds.iter_mut().flat_map(|vssd| &mut vssd.units) {
            unit.heat.end_windows(windows);
            self.states.set_heat(unit.place, unit.heat.words());
        }
    }

    /// The content of these dies moved: its volume begins anew, and what is known of it lies elsewhere.
    pub(crate) fn heat_moved(&mut self, dies: [u32; 2]) {
        for unit in self.vssds.iter_mut().flat_map(|vssd| &mut vssd.units) {
            if dies.contains(&unit.place.die) {
                unit.heat.moved();
                self.states.set_heat(unit.place, unit.heat.words());
            }
        }
    }

    /// Takes over what the table says of wear; after the blocks.
    pub(crate) fn wear_again(&mut self) {
        for number in 0..self.geometry.dies() {
            if !self.owns_die(number) {
                continue;
            }
            let Some(words) = self.states.die_wear(number) else { return };
            let die = self.blocks.die_mut(number);
            let sound = |word: u64| if word < COUNT_MAX { word } else { 0 };
            let [migration, inside, state_log, _] = words.map(sound);
            // No part is more than the sum, whatever the table says.
            let migration = migration.min(die.erases);
            let inside = inside.min(die.erases - migration);
            let host = die.erases - migration - inside;
            die.wear = DieWear { host, migration, inside, state_log };
        }
        for unit in self.vssds.iter_mut().flat_map(|vssd| &mut vssd.units) {
            unit.heat = self.states.heat(unit.place).map_or(unit.heat, Heat::from_words);
        }
    }

    /// Erases of a die since the pool was made, by cause.
    pub(crate) fn die_wear(&self, die_number: u32) -> DieWear {
        self.blocks.die(die_number).wear
    }

    /// Erases of a channel since the pool was made, by cause.
    pub(crate) fn channel_wear(&self, channel: u16) -> DieWear {
        let per_channel = u32::from(self.geometry.dies_per_channel);
        let dies = u32::from(channel) * per_channel..(u32::from(channel) + 1) * per_channel;
        let mut wear = DieWear::default();
        dies.for_each(|die| wear += self.die_wear(die));
        wear
    }

    /// What is known of the content of a die: the sum over the units on it.
    pub(crate) fn die_heat(&self, die_number: u32) -> Heat {
        let units = self.vssds.iter().flat_map(|vssd| &vssd.units);
        let mut sum = Heat::default();
        for unit in units.filter(|unit| unit.place.die == die_number) {
            sum.content_erases += unit.heat.content_erases;
            sum.average += unit.heat.average;
            sum.window_erases += unit.heat.window_erases;
            sum.last_window_erases += unit.heat.last_window_erases;
        }
        sum
    }

    /// Sets a block aside: it is neither read nor given out. What a holder has stays the holder's.
    pub(crate) fn set_aside(
        &mut self,
        number: u32,
        holder: Option<(VssdId, LogicalBlock)>,
        reason: QuarantineReason,
    ) {
        let block = self.address(number);
        self.blocks.quarantined.push(Quarantined { block, holder, reason });
        if holder.is_none() {
            self.blocks.list_retired(number);
        }
    }
}
