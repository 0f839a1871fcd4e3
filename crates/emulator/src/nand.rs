//! What the cells hold and how they fail: effects of commands without their time.

use crate::block::{Block, ERASE_CUT, ERASE_FAILED, FACTORY_BAD, HAS_MARKS, Marks, PageMark};
use crate::cells::CellLayout;
use crate::fault::{Fault, FaultPlan, FaultRates, OperationKind};
use crate::slot::{Freight, Kind, Slot};
use crate::store::places::NO_PLACE;
use crate::store::room_queue::{RoomQueue, RoomUser, RoomWorker};
use crate::store::{PageAt, ReadFault, Store, room};
use crate::{DeviceError, Profile};
use diecut_media::MediaError;
use diecut_units::{BlockIndex, EraseBlockAddress, Geometry, Time};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;
use std::sync::Arc;

/// [`Block::submitted_page`] of a block that must be erased before it is programmed.
pub(crate) const MUST_ERASE: u32 = u32::MAX;

/// Everything that stays when the power goes.
pub(crate) struct Nand {
    pub(crate) geometry: Geometry,
    pub(crate) cells: CellLayout,
    pub(crate) blocks: Vec<Block>,
    endurance: Vec<u32>,
    marks: Marks,
    pub(crate) store: Store,
    rates: FaultRates,
    has_rates: bool,
    faults: Vec<Fault>,
    /// Operations begun, by die and [`OperationKind`].
    begun: Vec<[u64; 4]>,
    /// Operations begun on the whole device.
    pub(crate) operations: u64,
    pub(crate) random: Xoshiro256PlusPlus,
    page_oob: Vec<u8>,
    /// Where places are fixed: discarded blocks whose room is kept for those that are opened next, oldest first. To give room back and to
    /// ask for it again costs the file system twice, and the processor a page fault for each page.
    kept: VecDeque<u64>,
    /// Places whose room is on its way back, a piece at a time, and how many bytes of the first one are.
    leaving: VecDeque<u64>,
    left_bytes: u64,
    /// Where a thread of its own takes room and gives it back.
    rooms: Option<RoomUser>,
    /// Blocks that were promised room, which is being taken.
    awaited: Vec<u64>,
    /// [`RoomQueue::ended`] at the last look.
    seen_ended: u64,
}

impl Nand {
    pub(crate) fn new(
        profile: &Profile,
        store: Store,
        seed: u64,
        plan: FaultPlan,
    ) -> Result<Nand, DeviceError> {
        let geometry = profile.geometry;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let count = geometry.erase_blocks() as usize;
        let mut blocks = vec![Block::default(); count];
        let mut endurance = Vec::with_capacity(count);
        let mean = f64::from(profile.cell.endurance_cycles);
        let spread = mean * profile.cell.endurance_spread_percent / 100.0;
        for (number, block) in blocks.iter_mut().enumerate() {
            let die = (number / geometry.erase_blocks_per_die() as usize) as u32;
            let channel = geometry.die_at(die).channel.0;
            let bad = random.random_range(0.0..100.0) < profile.bad_blocks.factory_percent;
            if bad || profile.bad_blocks.bad_channels.contains(&channel) {
                block.flags |= FACTORY_BAD;
            }
            block.place = match store.free_places() {
                Some(_) => NO_PLACE,
                None => u32::try_from(number).expect("erase blocks are counted in 32 bits"),
            };
            // Sum of uniforms: near enough to a normal distribution, and bounded, so that no block lives for ever.
            let normal: f64 = (0..12).map(|_| random.random_range(0.0..1.0)).sum::<f64>() - 6.0;
            endurance.push((mean + spread * normal).max(1.0) as u32);
        }
        let rates = plan.rates.clone();
        let has_rates = rates != FaultRates::default();
        Ok(Nand {
            cells: CellLayout::new(profile),
            blocks,
            endurance,
            marks: Marks::default(),
            store,
            has_rates,
            rates,
            faults: plan.faults,
            begun: vec![[0; 4]; geometry.dies() as usize],
            operations: 0,
            random: Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x9e37_79b9_7f4a_7c15),
            page_oob: vec![0; geometry.oob_size_bytes as usize],
            kept: VecDeque::new(),
            leaving: VecDeque::new(),
            left_bytes: 0,
            rooms: None,
            awaited: Vec::new(),
            seen_ended: 0,
            geometry,
        })
    }

    /// A part of the device that holds no channel yet. It knows the shape and the maker's marks of all blocks.
    pub(crate) fn empty_part(&mut self) -> Nand {
        let per_device = |fault: &Fault| !matches!(fault, Fault::PowerCutAtOperation { .. });
        Nand {
            geometry: self.geometry,
            cells: self.cells.clone(),
            blocks: self.blocks.clone(),
            endurance: self.endurance.clone(),
            marks: Marks::default(),
            // SAFETY: a device touches blocks of channels that it owns only (`Device::accept`), a channel has one owner,
            // and changes it in `take_from` only.
            store: unsafe { self.store.share() },
            rates: self.rates.clone(),
            has_rates: self.has_rates,
            faults: self.faults.iter().copied().filter(per_device).collect(),
            begun: self.begun.clone(),
            operations: 0,
            random: Xoshiro256PlusPlus::seed_from_u64(self.random.random()),
            page_oob: self.page_oob.clone(),
            kept: VecDeque::new(),
            leaving: VecDeque::new(),
            left_bytes: 0,
            rooms: self.rooms.clone(),
            awaited: Vec::new(),
            seen_ended: 0,
        }
    }

    /// Takes over a channel of another part, as it is.
    pub(crate) fn take_from(&mut self, other: &mut Nand, channel: u16) {
        let dies_per_channel = usize::from(self.geometry.dies_per_channel);
        let dies = usize::from(channel) * dies_per_channel..(usize::from(channel) + 1) * dies_per_channel;
        let per_die = self.geometry.erase_blocks_per_die() as usize;
        let blocks = dies.start * per_die..dies.end * per_die;
        self.blocks[blocks.clone()].copy_from_slice(&other.blocks[blocks.clone()]);
        self.begun[dies.clone()].copy_from_slice(&other.begun[dies]);
        self.marks.take_from(&mut other.marks, blocks.clone());
        let numbers = blocks.start as u64..blocks.end as u64;
        let (own, theirs): (VecDeque<u64>, VecDeque<u64>) =
            other.kept.drain(..).partition(|block| numbers.contains(block));
        other.kept = theirs;
        self.kept.extend(own);
        let (own, theirs): (Vec<u64>, Vec<u64>) =
            other.awaited.drain(..).partition(|block| numbers.contains(block));
        other.awaited = theirs;
        // What ended may have been for a block that came now.
        (self.awaited, self.seen_ended) = ([std::mem::take(&mut self.awaited), own].concat(), u64::MAX);
        while other.gives_back() {
            other.give_back_piece();
        }
        self.store.take_from(&mut other.store, blocks);
    }

    pub(crate) fn address(&self, block: u64) -> EraseBlockAddress {
        let per_die = u64::from(self.geometry.erase_blocks_per_die());
        let die = self.geometry.die_at((block / per_die) as u32);
        die.erase_block(BlockIndex((block % per_die) as u32))
    }

    /// Adds something that goes wrong from now on.
    pub(crate) fn add_fault(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// When the power goes by appointment of time, if ever.
    pub(crate) fn cut_time(&self) -> Option<Time> {
        let times = self.faults.iter().filter_map(|fault| match fault {
            Fault::PowerCutAtTime { time_ns } => Some(Time(*time_ns)),
            _ => None,
        });
        times.min()
    }

    /// Forgets appointments of power cuts: they were kept.
    pub(crate) fn forget_cuts(&mut self, now: Time) {
        let operations = self.operations;
        self.faults.retain(|fault| match fault {
            Fault::PowerCutAtTime { time_ns } => *time_ns > now.0,
            Fault::PowerCutAtOperation { nth } => *nth >= operations,
            _ => true,
        });
    }

    /// How long array work takes on this die now.
    #[inline(always)]
    pub(crate) fn stretched(&self, time: u64, die: u32, now: Time) -> u64 {
        if self.faults.is_empty() {
            return time;
        }
        match self.percent_by_plan(die, now) {
            100 => time,
            percent => time * percent / 100,
        }
    }

    fn percent_by_plan(&self, die: u32, now: Time) -> u64 {
        let address = self.geometry.die_at(die);
        let slow = self.faults.iter().filter_map(|fault| match fault {
            Fault::SlowDie { die, from_ns, until_ns, percent }
                if diecut_units::DieAddress::from(*die) == address
                    && (*from_ns..*until_ns).contains(&now.0) =>
            {
                Some(u64::from(*percent))
            }
            _ => None,
        });
        slow.max().unwrap_or(100)
    }

    fn is_offline(&self, die: u32, now: Time) -> bool {
        let address = self.geometry.die_at(die);
        self.faults.iter().any(|fault| match fault {
            Fault::DieOffline { die, from_ns } => {
                diecut_units::DieAddress::from(*die) == address && *from_ns <= now.0
            }
            Fault::ChannelOffline { channel, from_ns } => *channel == address.channel.0 && *from_ns <= now.0,
            _ => false,
        })
    }

    /// A command begins at its die: what will go wrong with it is decided. Returns whether the power goes while it is
    /// under way.
    #[inline(always)]
    pub(crate) fn begin(&mut self, slot: &mut Slot, now: Time) -> bool {
        let nth_of_device = self.operations;
        self.operations += 1;
        let kind = match slot.kind {
            Kind::Read | Kind::ReadOob => OperationKind::Read,
            Kind::Program => OperationKind::Program,
            Kind::Erase => OperationKind::Erase,
            Kind::Copy => OperationKind::Copy,
        };
        let begun = &mut self.begun[slot.die as usize][kind as usize];
        let nth_of_die = *begun;
        *begun += 1;
        if self.has_rates {
            self.begin_by_chance(slot, kind, now);
        }
        !self.faults.is_empty() && self.begin_by_plan(slot, kind, nth_of_die, nth_of_device, now)
    }

    fn begin_by_plan(
        &mut self,
        slot: &mut Slot,
        kind: OperationKind,
        nth_of_die: u64,
        nth_of_device: u64,
        now: Time,
    ) -> bool {
        let mut cut = false;
        let address = self.geometry.die_at(slot.die);
        let failure = self.failure_of(slot);
        for fault in &self.faults {
            match fault {
                Fault::Fail { die, kind: of, nth }
                    if *of == kind
                        && *nth == nth_of_die
                        && diecut_units::DieAddress::from(*die) == address =>
                {
                    slot.error = Some(failure);
                }
                Fault::SilentFlip { die, nth, bit }
                    if kind == OperationKind::Read
                        && *nth == nth_of_die
                        && diecut_units::DieAddress::from(*die) == address =>
                {
                    slot.flip_bit = Some(*bit);
                }
                Fault::PowerCutAtOperation { nth } if *nth == nth_of_device => cut = true,
                _ => {}
            }
        }
        if self.is_offline(slot.die, now) {
            slot.error = Some(MediaError::DieOffline { block: self.address(slot.block) });
        }
        cut
    }

    fn failure_of(&self, slot: &Slot) -> MediaError {
        let block = self.address(slot.block);
        match slot.kind {
            Kind::Read => {
                MediaError::Uncorrectable { block, page: slot.first_iu / self.geometry.ius_per_page() }
            }
            Kind::ReadOob => MediaError::Uncorrectable { block, page: slot.first_page },
            Kind::Program | Kind::Copy => MediaError::ProgramFailed { block, page: slot.first_page },
            Kind::Erase => MediaError::EraseFailed { block },
        }
    }

    fn begin_by_chance(&mut self, slot: &mut Slot, kind: OperationKind, now: Time) {
        let block = self.blocks[slot.block as usize];
        let endurance = self.endurance[slot.block as usize].max(1);
        let wear = f64::from(block.erase_count) / f64::from(endurance);
        let mut growth = 1.0 + self.rates.wear_growth * wear * wear;
        if kind == OperationKind::Read && block.programmed_page > 0 {
            let seconds = (now.0 / 1_000_000_000).saturating_sub(u64::from(block.programmed_at_s));
            growth += self.rates.retention_growth_per_day * seconds as f64 / 86_400.0;
        }
        let mut happens = |rate: f64| rate > 0.0 && self.random.random_range(0.0..1.0) < rate * growth;
        let fails = match kind {
            OperationKind::Read => {
                if happens(self.rates.silent_flip) {
                    slot.flip_bit = Some(slot.block as u32 ^ slot.first_iu.wrapping_mul(0x9e37));
                }
                while slot.retries < self.rates.retry_limit && happens(self.rates.read_retry) {
                    slot.retries += 1;
                }
                happens(self.rates.uncorrectable_read)
            }
            OperationKind::Program | OperationKind::Copy => happens(self.rates.program_fail),
            OperationKind::Erase => {
                happens(self.rates.erase_fail) || (self.rates.wear_out && block.erase_count >= endurance)
            }
        };
        if fails {
            slot.error = Some(self.failure_of(slot));
        }
    }

    /// See [`diecut_media::Media::make_room`].
    pub(crate) fn make_room(&mut self, block: u64, now: Time) -> bool {
        if self.blocks[block as usize].has_room || self.awaited.contains(&block) {
            return true;
        }
        if self.lacks_room_by_plan(now) || !self.has_place_now(block) {
            return false;
        }
        let Block { place, has_room, .. } = self.blocks[block as usize];
        if has_room {
            return true;
        }
        if let Some(rooms) = &self.rooms {
            let taken_bytes = rooms.asked_places() * self.geometry.erase_block_size_bytes();
            if let Some(parts) = self.store.ample_room(place.into(), taken_bytes, now) {
                rooms.take(place.into(), parts);
                self.awaited.push(block);
                return true;
            }
        }
        self.take_room(block, now)
    }

    /// Has a block have a place, preferably one with room. `false` if there is none.
    fn has_place_now(&mut self, block: u64) -> bool {
        let Some(free) = self.store.free_places() else { return true };
        if self.blocks[block as usize].place != NO_PLACE {
            return true;
        }
        let mut taken = free.take();
        while taken.is_none() && self.give_back_block() {
            taken = self.store.free_places().and_then(|free| free.take());
        }
        let Some((place, has_room)) = taken else { return false };
        let block = &mut self.blocks[block as usize];
        (block.place, block.has_room) = (place, has_room);
        true
    }

    /// A block that holds nothing got no room for its place.
    fn leave_place(&mut self, block: u64) {
        let place = self.blocks[block as usize].place;
        if let Some(free) = self.store.free_places() {
            free.give_back(place);
            self.blocks[block as usize].place = NO_PLACE;
        }
    }

    #[inline(always)]
    fn place(&self, block: u64) -> u64 {
        self.blocks[block as usize].place.into()
    }

    /// Takes a block's room, and waits for that.
    fn take_room(&mut self, block: u64, now: Time) -> bool {
        if self.lacks_room_by_plan(now) || !self.has_place_now(block) {
            return false;
        }
        let Block { place, has_room, programmed_page, .. } = self.blocks[block as usize];
        if has_room {
            return true;
        }
        let place = u64::from(place);
        if let Some(rooms) = &self.rooms {
            rooms.keep(place);
        }
        let is_empty = programmed_page == 0;
        let mut has_room = self.store.make_room(place, is_empty, now);
        if !has_room {
            self.release_kept(0);
            while !has_room && self.give_back_block() {
                self.store.ask_again();
                has_room = self.store.make_room(place, is_empty, now);
            }
        }
        self.blocks[block as usize].has_room = has_room;
        if !has_room && is_empty {
            self.leave_place(block);
        } else if has_room && self.leaving.contains(&place) {
            // It stays after all. The next one begins from its start: no part of this one is touched any more.
            self.left_bytes = if self.leaving[0] == place { 0 } else { self.left_bytes };
            self.leaving.retain(|leaving| *leaving != place);
        }
        has_room
    }

    /// Gives back the room of one place of those that need none, and waits for that. `false` if there is none.
    fn give_back_block(&mut self) -> bool {
        let Some(&first) = self.leaving.front() else {
            return self.rooms.as_ref().is_some_and(|rooms| rooms.give_back_now());
        };
        while self.leaving.front() == Some(&first) {
            self.give_back_piece();
        }
        true
    }

    /// See [`crate::Device::room_worker`].
    pub(crate) fn room_worker(&mut self) -> Option<RoomWorker> {
        assert!(self.rooms.is_none(), "one thread takes the room of a device");
        let queue: Arc<RoomQueue> = Arc::new(self.store.room_queue()?);
        self.rooms = Some(RoomUser::new(Arc::clone(&queue)));
        Some(RoomWorker::new(queue))
    }

    /// Whether the room that a block was promised is still being taken.
    #[inline(always)]
    pub(crate) fn awaits_room(&mut self, block: u64, now: Time) -> bool {
        !self.awaited.is_empty() && self.still_awaits_room(block, now)
    }

    #[cold]
    fn still_awaits_room(&mut self, block: u64, now: Time) -> bool {
        let Some(rooms) = &self.rooms else { return false };
        let ended = rooms.ended();
        if std::mem::replace(&mut self.seen_ended, ended) != ended {
            let awaited = std::mem::take(&mut self.awaited);
            let ended: Vec<(u64, Option<bool>)> =
                awaited.into_iter().map(|block| (block, rooms.take_ended(self.place(block)))).collect();
            for (block, has_room) in ended {
                match has_room {
                    Some(has_room) => self.room_taken(block, has_room, now),
                    None => self.awaited.push(block),
                }
            }
        }
        self.awaited.contains(&block)
    }

    /// A block got the room that it was promised, or (others were faster) not.
    fn room_taken(&mut self, block: u64, has_room: bool, now: Time) {
        self.blocks[block as usize].has_room = has_room;
        if !has_room {
            self.store.had_no_room(now);
            let place = self.place(block);
            if let (0, Some(parts), Some(rooms)) =
                (self.blocks[block as usize].programmed_page, self.store.room_parts(place), &self.rooms)
            {
                // What it got is of no use.
                rooms.give_back(place, parts);
                self.leave_place(block);
            }
        }
    }

    /// A block is programmed: it has its room now, or there is none.
    #[cold]
    fn has_room_at_last(&mut self, block: u64, now: Time) -> bool {
        if let Some(at) = self.awaited.iter().position(|awaited| *awaited == block)
            && let Some(rooms) = &self.rooms
        {
            let has_room = rooms.wait(self.place(block));
            self.awaited.swap_remove(at);
            self.room_taken(block, has_room, now);
        }
        self.blocks[block as usize].has_room || self.take_room(block, now)
    }

    /// See [`diecut_media::Media::discard`].
    pub(crate) fn discard(&mut self, number: u64) {
        let block = &mut self.blocks[number as usize];
        if block.pending > 0 || block.has(FACTORY_BAD) || (block.programmed_page == 0 && !block.has_room) {
            return;
        }
        if block.has(HAS_MARKS) {
            self.marks.clear_block(number);
            self.store.clear_marks(number);
        }
        // As an erase that was cut: nothing reads, and it must be erased.
        block.flags = block.flags & !HAS_MARKS | ERASE_CUT;
        (block.programmed_page, block.programmed_at_s, block.submitted_page) = (0, 0, MUST_ERASE);
        self.store.erase(number);
        self.store.set_programmed(number, &self.blocks[number as usize]);
        if self.store.free_places().is_some() {
            return self.discard_place(number);
        }
        if !self.store.takes_room() {
            self.blocks[number as usize].has_room = false;
            return;
        }
        // A block of an older process has its room, too.
        self.blocks[number as usize].has_room = true;
        if let Store::Synced(store) = &mut self.store {
            // Until a sync covers that, a cut brings the content back.
            return store.discard(number);
        }
        self.kept.push_back(number);
        self.release_kept(self.store.kept_blocks());
    }

    /// Whether room of blocks waits for a sync.
    pub(crate) fn has_discarded(&self) -> bool {
        matches!(&self.store, Store::Synced(store) if store.has_discarded())
    }

    /// What is stored by now is what the next sync covers.
    pub(crate) fn begin_sync(&mut self) -> std::io::Result<()> {
        match &mut self.store {
            Store::Synced(store) => store.begin_sync(&self.blocks),
            _ => Ok(()),
        }
    }

    /// The sync under way ended well.
    pub(crate) fn end_sync(&mut self) {
        let Store::Synced(store) = &mut self.store else { return };
        let discarded = store.end_sync(&self.blocks);
        if !discarded.is_empty() {
            self.kept.extend(discarded);
            self.release_kept(self.store.kept_blocks());
        }
    }

    /// Takes the states of blocks from what a synced store holds.
    pub(crate) fn recover(&mut self) -> std::io::Result<()> {
        let Store::Synced(store) = &mut self.store else { return Ok(()) };
        (self.marks, self.left_bytes) = (Marks::default(), 0);
        self.kept.clear();
        self.leaving.clear();
        let marks = &mut self.marks;
        store.recover(&mut self.blocks, self.cells.unit_pages(), |block, page, mark| {
            marks.set(block, page, mark);
        })
    }

    /// A block's place is free: the table does not say any more that something is there.
    fn discard_place(&mut self, number: u64) {
        if let Some(at) = self.awaited.iter().position(|awaited| *awaited == number) {
            // One that an older version left, whose room is being taken where it lies.
            if let Some(rooms) = &self.rooms {
                rooms.wait(self.place(number));
            }
            self.awaited.swap_remove(at);
        }
        let block = &mut self.blocks[number as usize];
        let place = std::mem::replace(&mut block.place, NO_PLACE);
        let had_room = std::mem::take(&mut block.has_room);
        match self.store.free_places() {
            Some(free) if had_room => free.leave(place),
            // One that an older version may not have allocated as a whole.
            _ if place != NO_PLACE => self.let_go(place),
            // It held what could not be written for want of room.
            _ => {}
        }
        self.release_kept(self.store.kept_blocks());
    }

    /// The room of a place that nobody has is given back.
    fn let_go(&mut self, place: u32) {
        match (&self.rooms, self.store.room_parts(place.into())) {
            (Some(rooms), Some(parts)) => {
                // In this order: whoever takes the place has the thread leave it alone.
                rooms.give_back(place.into(), parts);
                self.store.free_places().expect("places are given out").give_back(place);
            }
            _ => self.leaving.push_back(place.into()),
        }
    }

    /// Lets go of the room of what was discarded first, until no more than so many blocks' is kept.
    fn release_kept(&mut self, most: usize) {
        while let Some(place) = self.store.free_places().and_then(|free| free.surplus(most)) {
            self.let_go(place);
        }
        while self.kept.len() > most {
            let number = self.kept.pop_front().expect("there are more");
            let block = &mut self.blocks[number as usize];
            // Erased since: it is in use again.
            if block.programmed_page == 0 && block.has(ERASE_CUT) && block.pending == 0 && block.has_room {
                block.has_room = false;
                match (&self.rooms, self.store.room_parts(number)) {
                    (Some(rooms), Some(parts)) => rooms.give_back(number, parts),
                    _ => self.leaving.push_back(number),
                }
            }
        }
    }

    /// Whether room is on its way back to the file system.
    #[inline(always)]
    pub(crate) fn gives_back(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Gives back the next piece: to punch a whole erase block would keep the shard for milliseconds.
    #[cold]
    pub(crate) fn give_back_piece(&mut self) {
        let number = self.leaving[0];
        self.left_bytes = self.store.give_back_piece(number, self.left_bytes);
        if self.left_bytes == 0 {
            self.leaving.pop_front();
            if let Some(free) = self.store.free_places() {
                free.give_back(number as u32);
            }
        }
    }

    /// Gives back what a process before this one left to blocks that hold nothing.
    pub(crate) fn give_back_empty(&mut self) {
        if let Store::Synced(store) = &mut self.store {
            return store.give_back(0..self.blocks.len() as u64);
        }
        let blocks = self.blocks.iter().filter(|block| block.programmed_page > 0 && block.place != NO_PLACE);
        let mut used: Vec<u32> = blocks.map(|block| block.place).collect();
        used.sort_unstable();
        let mut from = 0;
        for place in used {
            self.store.give_back(from..place.into());
            from = u64::from(place) + 1;
        }
        self.store.give_back(from..self.blocks.len() as u64);
    }

    fn lacks_room_by_plan(&self, now: Time) -> bool {
        let lacks = |fault: &Fault| matches!(fault, Fault::NoRoom { from_ns, until_ns } if (*from_ns..*until_ns).contains(&now.0));
        self.faults.iter().any(lacks)
    }

    /// The array programmed unit `step` of a program.
    pub(crate) fn program_unit(&mut self, slot: &mut Slot, freight: &Freight, step: u32, now: Time) {
        let unit_pages = self.cells.unit_pages();
        let first_page = slot.first_page + step * unit_pages;
        if !self.take_place(slot, first_page, now) {
            return;
        }
        let per_page = self.geometry.ius_per_page();
        let unit_ius = unit_pages * per_page;
        let first_iu = slot.first_page * per_page;
        let (start, end) = (first_iu + step * unit_ius, first_iu + (step + 1) * unit_ius);
        let place = self.place(slot.block);
        let mut at = first_iu;
        let mut written = Ok(());
        for part in &freight.parts {
            let part_end = at + part.iu_count();
            let (from, to) = (at.max(start), part_end.min(end));
            let stored = if from == at && to == part_end {
                self.store.program(place, from, part)
            } else if from < to {
                self.store.program(place, from, &part.slice(from - at, to - from))
            } else {
                Ok(())
            };
            written = written.and(stored);
            at = part_end;
        }
        let size = self.geometry.oob_size_bytes as usize * unit_pages as usize;
        let oob = freight.oob.as_ref().expect("programs carry OOB areas");
        let oob = &oob[step as usize * size..][..size];
        if let Err(error) = written.and_then(|()| self.store.program_oob(place, first_page, oob)) {
            return self.not_written(slot, first_page, &error);
        }
        self.store.set_programmed(slot.block, &self.blocks[slot.block as usize]);
    }

    /// The file system refused what a unit was to hold: its pages hold garbage.
    #[cold]
    fn not_written(&mut self, slot: &mut Slot, first_page: u32, error: &std::io::Error) {
        self.store.forget_unit();
        let (block, page) = (self.address(slot.block), slot.first_page);
        slot.error = Some(match room::is_full(error) {
            true => MediaError::NoRoom { block, page },
            false => MediaError::ProgramFailed { block, page },
        });
        for page in first_page..first_page + self.cells.unit_pages() {
            self.mark(slot.block, page, PageMark::Garbage);
        }
        self.store.set_programmed(slot.block, &self.blocks[slot.block as usize]);
    }

    /// Moves a block's write position over a unit. `false` if the unit holds garbage now.
    fn take_place(&mut self, slot: &mut Slot, first_page: u32, now: Time) -> bool {
        let end_page = first_page + self.cells.unit_pages();
        let address = self.address(slot.block);
        if slot.error.is_none()
            && !self.blocks[slot.block as usize].has_room
            && !self.has_room_at_last(slot.block, now)
        {
            slot.error = Some(MediaError::NoRoom { block: address, page: slot.first_page });
        }
        let block = &mut self.blocks[slot.block as usize];
        if matches!(slot.error, Some(MediaError::DieOffline { .. })) {
            return false;
        }
        if block.has(ERASE_FAILED) && slot.error.is_none() {
            slot.error = Some(MediaError::ProgramFailed { block: address, page: slot.first_page });
        }
        assert_eq!(block.programmed_page, first_page, "{address} is programmed in order");
        block.programmed_page = end_page;
        if first_page == 0 {
            block.programmed_at_s = (now.0 / 1_000_000_000) as u32;
        }
        if slot.error.is_some() {
            self.fill_with_nothing(slot.block, first_page, end_page);
            for page in first_page..end_page {
                self.mark(slot.block, page, PageMark::Garbage);
            }
            self.store.set_programmed(slot.block, &self.blocks[slot.block as usize]);
            return false;
        }
        true
    }

    /// The store of tags counts pages; what a failed program left must take its place.
    fn fill_with_nothing(&mut self, block: u64, first_page: u32, end_page: u32) {
        if let Store::Tags(store) = &mut self.store {
            self.page_oob.fill(0);
            store.program_nothing(block, first_page, end_page, &self.page_oob);
        }
    }

    fn mark(&mut self, block: u64, page: u32, mark: PageMark) {
        self.marks.set(block, page, mark);
        self.blocks[block as usize].flags |= HAS_MARKS;
        self.store.set_mark(block, page, mark);
    }

    /// Takes over a mark found in a file.
    pub(crate) fn restore_mark(&mut self, block: u64, page: u32, mark: PageMark) {
        self.marks.set(block, page, mark);
    }

    /// The array copied unit `step` of a copy.
    pub(crate) fn copy_unit(&mut self, slot: &mut Slot, freight: &Freight, step: u32, now: Time) {
        let unit_pages = self.cells.unit_pages();
        let source_page = freight.source_page + step * unit_pages;
        let first_page = slot.first_page + step * unit_pages;
        if slot.error.is_none() {
            let pages = source_page..source_page + unit_pages;
            slot.error = self.page_error(freight.source, pages).map(|error| match error {
                MediaError::Uncorrectable { .. } | MediaError::Erased { .. } => error,
                _ => MediaError::Uncorrectable { block: self.address(freight.source), page: source_page },
            });
        }
        if !self.take_place(slot, first_page, now) {
            return;
        }
        let (source, destination) = (self.place(freight.source), self.place(slot.block));
        let size = self.geometry.oob_size_bytes as usize;
        for page in 0..unit_pages {
            let at = (step * unit_pages + page) as usize * size;
            let oob = freight.oob.as_ref().map(|oob| &oob[at..at + size]);
            let copied = self.store.copy_page(
                &self.geometry,
                PageAt { block: source, page: source_page + page },
                PageAt { block: destination, page: first_page + page },
                oob,
                &mut self.page_oob,
            );
            if let Err(error) = copied {
                return self.not_written(slot, first_page, &error);
            }
        }
        self.store.set_programmed(slot.block, &self.blocks[slot.block as usize]);
    }

    /// The array erased a block.
    pub(crate) fn erase(&mut self, slot: &mut Slot) {
        if matches!(slot.error, Some(MediaError::DieOffline { .. })) {
            return;
        }
        let block = &mut self.blocks[slot.block as usize];
        block.erase_count = block.erase_count.saturating_add(1);
        block.programmed_page = 0;
        block.programmed_at_s = 0;
        if block.has(HAS_MARKS) {
            self.marks.clear_block(slot.block);
            self.store.clear_marks(slot.block);
        }
        block.flags &= !(ERASE_CUT | ERASE_FAILED | HAS_MARKS);
        if slot.error.is_some() {
            block.flags |= ERASE_FAILED;
        }
        self.store.erase(slot.block);
        self.store.set_erased(slot.block, &self.blocks[slot.block as usize]);
    }

    #[inline(always)]
    fn page_error(&self, block: u64, pages: std::ops::Range<u32>) -> Option<MediaError> {
        let state = &self.blocks[block as usize];
        if !state.has(HAS_MARKS) && pages.end <= state.programmed_page {
            return None;
        }
        self.first_page_error(block, pages)
    }

    fn first_page_error(&self, block: u64, pages: std::ops::Range<u32>) -> Option<MediaError> {
        let state = &self.blocks[block as usize];
        let address = self.address(block);
        pages.into_iter().find_map(|page| {
            let erased = MediaError::Erased { block: address, page };
            if page >= state.programmed_page {
                return Some(erased);
            }
            match self.marks.get(block, page)? {
                PageMark::Garbage => Some(MediaError::Uncorrectable { block: address, page }),
                PageMark::Erased => Some(erased),
            }
        })
    }

    /// Brings what a read will copy closer.
    pub(crate) fn prefetch(&self, slot: &Slot) {
        let place = self.blocks[slot.block as usize].place;
        if place != NO_PLACE {
            self.store.prefetch(place.into(), slot.first_iu, slot.iu_count, slot.first_page);
        }
    }

    /// The array read everything a read asked for: fills its destinations, or decides why not.
    #[inline(always)]
    pub(crate) fn read(&mut self, slot: &mut Slot) {
        if slot.error.is_some() {
            return;
        }
        slot.error = self.page_error(slot.block, slot.first_page..slot.first_page + slot.page_count);
        if slot.error.is_some() {
            return;
        }
        if let Some(destination) = &mut slot.destination {
            let read = self.store.read(self.place(slot.block), slot.first_iu, slot.iu_count, destination);
            if let Err(fault) = read {
                slot.error = Some(self.read_error(slot.block, fault));
                return;
            }
            if let Some(bit) = slot.flip_bit {
                let bit = bit as usize % (destination.len() * 8);
                destination[bit / 8] ^= 1 << (bit % 8);
            }
        }
        if let Some(oob) = &mut slot.oob {
            let size = self.geometry.oob_size_bytes as usize;
            let place = self.place(slot.block);
            for (index, area) in oob.chunks_exact_mut(size).enumerate() {
                if let Err(fault) = self.store.read_oob(place, slot.first_page + index as u32, area) {
                    slot.error = Some(self.read_error(slot.block, fault));
                    return;
                }
            }
        }
    }

    #[cold]
    fn read_error(&self, block: u64, fault: ReadFault) -> MediaError {
        let block = self.address(block);
        let page = |iu: u32| iu / self.geometry.ius_per_page();
        match fault {
            ReadFault::OtherMode { iu } => MediaError::WrongContentMode { block, page: page(iu) },
            ReadFault::Failed { iu } => MediaError::Uncorrectable { block, page: page(iu) },
        }
    }

    /// The power goes while the array programs the next unit: its pages are whole, garbage or erased, and earlier pages of
    /// the same word lines may be lost.
    pub(crate) fn tear_program(&mut self, slot: &mut Slot, freight: &Freight, now: Time) {
        let step = slot.steps_done;
        let unit_pages = self.cells.unit_pages();
        let first_page = slot.first_page + step * unit_pages;
        match slot.kind {
            Kind::Copy => self.copy_unit(slot, freight, step, now),
            _ => self.program_unit(slot, freight, step, now),
        }
        if slot.error.is_some() {
            return;
        }
        // One outcome for the unit most of the time: a program is interrupted before, at or after the point where
        // cells read right.
        let outcome = self.random.random_range(0..4u32);
        let mut left_erased = true;
        for page in first_page..first_page + unit_pages {
            let of_page = if outcome < 3 { outcome } else { self.random.random_range(0..3) };
            match of_page {
                0 => self.mark(slot.block, page, PageMark::Garbage),
                1 => self.mark(slot.block, page, PageMark::Erased),
                _ => {}
            }
            left_erased &= of_page == 1;
        }
        let planes = u32::from(self.geometry.planes_per_die);
        let risk: Vec<u32> = self.cells.rows_at_risk(first_page / planes).collect();
        for row in risk {
            if !left_erased && self.random.random_range(0..2) == 0 {
                for page in row * planes..(row + 1) * planes {
                    self.mark(slot.block, page, PageMark::Garbage);
                }
            }
        }
        // Cells that saw a program pulse cannot be programmed again before an erase.
        self.blocks[slot.block as usize].flags |= ERASE_CUT;
        self.store.set_programmed(slot.block, &self.blocks[slot.block as usize]);
    }

    /// The power goes while the array erases: pages are old, garbage or erased.
    pub(crate) fn tear_erase(&mut self, slot: &mut Slot) {
        let pages = self.blocks[slot.block as usize].programmed_page;
        let outcome = self.random.random_range(0..4u32);
        if outcome == 3 {
            self.erase(slot);
        } else {
            for page in 0..pages {
                let of_page = if outcome < 2 { outcome } else { self.random.random_range(0..3) };
                match of_page {
                    0 => self.mark(slot.block, page, PageMark::Garbage),
                    1 => self.mark(slot.block, page, PageMark::Erased),
                    _ => {}
                }
            }
        }
        self.blocks[slot.block as usize].flags |= ERASE_CUT;
        self.store.set_programmed(slot.block, &self.blocks[slot.block as usize]);
    }

    /// After a power cut or a restart: what was submitted and did not happen is forgotten.
    pub(crate) fn settle(&mut self) {
        for block in &mut self.blocks {
            block.pending = 0;
            block.submitted_page = if block.has(ERASE_CUT) { MUST_ERASE } else { block.programmed_page };
        }
    }
}
