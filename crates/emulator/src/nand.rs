//! What the cells hold and how they fail: effects of commands without their time.

use crate::block::{Block, ERASE_CUT, ERASE_FAILED, FACTORY_BAD, HAS_MARKS, Marks, PageMark, address_of};
use crate::cells::CellLayout;
use crate::command::{CommandPayload, CommandState, Kind};
use crate::failures::Failures;
use crate::fault::FaultPlan;
use crate::rooms::{Lent, Rooms};
use crate::store::places::NO_PLACE;
use crate::store::{PageAt, ReadFault, Store, room};
use crate::{DeviceError, Profile};
use diecut_media::MediaError;
use diecut_units::{EraseBlockAddress, Geometry, Time};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// [`Block::submitted_page`] of a block that must be erased before it is programmed.
pub(crate) const MUST_ERASE: u32 = u32::MAX;

/// Everything that stays when the power goes.
pub(crate) struct Nand {
    pub(crate) geometry: Geometry,
    pub(crate) cells: CellLayout,
    pub(crate) blocks: Vec<Block>,
    marks: Marks,
    pub(crate) store: Store,
    pub(crate) failures: Failures,
    pub(crate) rooms: Rooms,
    page_oob: Vec<u8>,
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
        Ok(Nand {
            cells: CellLayout::new(profile),
            blocks,
            marks: Marks::default(),
            store,
            failures: Failures::new(plan, endurance, geometry.dies(), seed),
            rooms: Rooms::default(),
            page_oob: vec![0; geometry.oob_size_bytes as usize],
            geometry,
        })
    }

    /// A part of the device that holds no channel yet. It knows the shape and the maker's marks of all blocks.
    pub(crate) fn empty_part(&mut self) -> Nand {
        Nand {
            geometry: self.geometry,
            cells: self.cells.clone(),
            blocks: self.blocks.clone(),
            marks: Marks::default(),
            // SAFETY: a device touches blocks of channels that it owns only (`Device::accept`), a channel has one owner,
            // and changes it in `take_from` only.
            store: unsafe { self.store.share() },
            failures: self.failures.empty_part(),
            rooms: self.rooms.empty_part(),
            page_oob: self.page_oob.clone(),
        }
    }

    /// Takes over a channel of another part, as it is.
    pub(crate) fn take_from(&mut self, other: &mut Nand, channel: u16) {
        let dies_per_channel = usize::from(self.geometry.dies_per_channel);
        let dies = usize::from(channel) * dies_per_channel..(usize::from(channel) + 1) * dies_per_channel;
        let per_die = self.geometry.erase_blocks_per_die() as usize;
        let blocks = dies.start * per_die..dies.end * per_die;
        self.blocks[blocks.clone()].copy_from_slice(&other.blocks[blocks.clone()]);
        self.failures.take_from(&other.failures, dies);
        self.marks.take_from(&mut other.marks, blocks.clone());
        let numbers = blocks.start as u64..blocks.end as u64;
        self.rooms.take_from(&mut other.rooms, numbers, &mut other.store);
        self.store.take_from(&mut other.store, blocks);
    }

    pub(crate) fn address(&self, block: u64) -> EraseBlockAddress {
        address_of(&self.geometry, block)
    }

    /// A command begins at its die; see [`Failures::begin`].
    #[inline(always)]
    pub(crate) fn begin(&mut self, command: &mut CommandState, now: Time) -> bool {
        self.failures.begin(command, &self.blocks, &self.geometry, now)
    }

    /// How long array work takes on this die now.
    #[inline(always)]
    pub(crate) fn stretched(&self, time: u64, die: u32, now: Time) -> u64 {
        self.failures.stretched(&self.geometry, time, die, now)
    }

    /// See [`diecut_media::Media::make_room`].
    pub(crate) fn make_room(&mut self, block: u64, now: Time) -> bool {
        let (rooms, lent) = self.lend();
        rooms.make_room(block, lent, now)
    }

    fn lend(&mut self) -> (&mut Rooms, Lent<'_>) {
        let block_bytes = self.geometry.erase_block_size_bytes();
        let Nand { blocks, store, failures, rooms, .. } = self;
        (rooms, Lent { blocks, store, failures, block_bytes })
    }

    /// Whether the room that a block was promised is still being taken.
    #[inline(always)]
    pub(crate) fn awaits_room(&mut self, block: u64, now: Time) -> bool {
        self.rooms.awaits(block, &mut self.blocks, &mut self.store, now)
    }

    #[inline(always)]
    fn place(&self, block: u64) -> u64 {
        self.blocks[block as usize].place.into()
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
            return self.rooms.discard_place(number, &mut self.blocks, &self.store);
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
        self.rooms.keep([number], &mut self.blocks, &self.store);
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
            self.rooms.keep(discarded, &mut self.blocks, &self.store);
        }
    }

    /// Takes the states of blocks from what a synced store holds.
    pub(crate) fn recover(&mut self) -> std::io::Result<()> {
        let Store::Synced(store) = &mut self.store else { return Ok(()) };
        self.marks = Marks::default();
        self.rooms.forget();
        let marks = &mut self.marks;
        store.recover(&mut self.blocks, self.cells.unit_pages(), |block, page, mark| {
            marks.set(block, page, mark);
        })
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

    /// The array programmed unit `step` of a program.
    pub(crate) fn program_unit(
        &mut self,
        command: &mut CommandState,
        payload: &CommandPayload,
        step: u32,
        now: Time,
    ) {
        let unit_pages = self.cells.unit_pages();
        let first_page = command.first_page + step * unit_pages;
        if !self.take_place(command, first_page, now) {
            return;
        }
        let per_page = self.geometry.ius_per_page();
        let unit_ius = unit_pages * per_page;
        let first_iu = command.first_page * per_page;
        let (start, end) = (first_iu + step * unit_ius, first_iu + (step + 1) * unit_ius);
        let place = self.place(command.block);
        let mut at = first_iu;
        let mut written = Ok(());
        for part in &payload.parts {
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
        let oob = payload.oob.as_ref().expect("programs carry OOB areas");
        let oob = &oob[step as usize * size..][..size];
        if let Err(error) = written.and_then(|()| self.store.program_oob(place, first_page, oob)) {
            return self.not_written(command, first_page, &error);
        }
        self.store.set_programmed(command.block, &self.blocks[command.block as usize]);
    }

    /// The file system refused what a unit was to hold: its pages hold garbage.
    #[cold]
    fn not_written(&mut self, command: &mut CommandState, first_page: u32, error: &std::io::Error) {
        self.store.forget_unit();
        let (block, page) = (self.address(command.block), command.first_page);
        command.outcome.error = Some(match room::is_full(error) {
            true => MediaError::NoRoom { block, page },
            false => MediaError::ProgramFailed { block, page },
        });
        for page in first_page..first_page + self.cells.unit_pages() {
            self.mark(command.block, page, PageMark::Garbage);
        }
        self.store.set_programmed(command.block, &self.blocks[command.block as usize]);
    }

    #[cold]
    fn has_room_at_last(&mut self, block: u64, now: Time) -> bool {
        let (rooms, lent) = self.lend();
        rooms.has_room_at_last(block, lent, now)
    }

    /// Moves a block's write position over a unit. `false` if the unit holds garbage now.
    fn take_place(&mut self, command: &mut CommandState, first_page: u32, now: Time) -> bool {
        let end_page = first_page + self.cells.unit_pages();
        let address = self.address(command.block);
        if command.outcome.error.is_none()
            && !self.blocks[command.block as usize].has_room
            && !self.has_room_at_last(command.block, now)
        {
            command.outcome.error = Some(MediaError::NoRoom { block: address, page: command.first_page });
        }
        let block = &mut self.blocks[command.block as usize];
        if matches!(command.outcome.error, Some(MediaError::DieOffline { .. })) {
            return false;
        }
        if block.has(ERASE_FAILED) && command.outcome.error.is_none() {
            command.outcome.error =
                Some(MediaError::ProgramFailed { block: address, page: command.first_page });
        }
        assert_eq!(block.programmed_page, first_page, "I-E2: {address} is programmed in order");
        block.programmed_page = end_page;
        if first_page == 0 {
            block.programmed_at_s = (now.0 / 1_000_000_000) as u32;
        }
        if command.outcome.error.is_some() {
            self.fill_with_nothing(command.block, first_page, end_page);
            for page in first_page..end_page {
                self.mark(command.block, page, PageMark::Garbage);
            }
            self.store.set_programmed(command.block, &self.blocks[command.block as usize]);
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

    pub(crate) fn mark(&mut self, block: u64, page: u32, mark: PageMark) {
        self.marks.set(block, page, mark);
        self.blocks[block as usize].flags |= HAS_MARKS;
        self.store.set_mark(block, page, mark);
    }

    /// Takes over a mark found in a file.
    pub(crate) fn restore_mark(&mut self, block: u64, page: u32, mark: PageMark) {
        self.marks.set(block, page, mark);
    }

    /// The array copied unit `step` of a copy.
    pub(crate) fn copy_unit(
        &mut self,
        command: &mut CommandState,
        payload: &CommandPayload,
        step: u32,
        now: Time,
    ) {
        let unit_pages = self.cells.unit_pages();
        let source_page = payload.source_page + step * unit_pages;
        let first_page = command.first_page + step * unit_pages;
        if command.outcome.error.is_none() {
            let pages = source_page..source_page + unit_pages;
            command.outcome.error = self.page_error(payload.source, pages).map(|error| match error {
                MediaError::Uncorrectable { .. } | MediaError::Erased { .. } => error,
                _ => MediaError::Uncorrectable { block: self.address(payload.source), page: source_page },
            });
        }
        if !self.take_place(command, first_page, now) {
            return;
        }
        let (source, destination) = (self.place(payload.source), self.place(command.block));
        let size = self.geometry.oob_size_bytes as usize;
        for page in 0..unit_pages {
            let at = (step * unit_pages + page) as usize * size;
            let oob = payload.oob.as_ref().map(|oob| &oob[at..at + size]);
            let copied = self.store.copy_page(
                &self.geometry,
                PageAt { block: source, page: source_page + page },
                PageAt { block: destination, page: first_page + page },
                oob,
                &mut self.page_oob,
            );
            if let Err(error) = copied {
                return self.not_written(command, first_page, &error);
            }
        }
        self.store.set_programmed(command.block, &self.blocks[command.block as usize]);
    }

    /// The array erased a block.
    pub(crate) fn erase(&mut self, command: &mut CommandState) {
        if matches!(command.outcome.error, Some(MediaError::DieOffline { .. })) {
            return;
        }
        let block = &mut self.blocks[command.block as usize];
        block.erase_count = block.erase_count.saturating_add(1);
        block.programmed_page = 0;
        block.programmed_at_s = 0;
        if block.has(HAS_MARKS) {
            self.marks.clear_block(command.block);
            self.store.clear_marks(command.block);
        }
        block.flags &= !(ERASE_CUT | ERASE_FAILED | HAS_MARKS);
        if command.outcome.error.is_some() {
            block.flags |= ERASE_FAILED;
        }
        self.store.erase(command.block);
        self.store.set_erased(command.block, &self.blocks[command.block as usize]);
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
    #[inline]
    pub(crate) fn prefetch(&self, command: &CommandState) {
        let place = self.blocks[command.block as usize].place;
        if place != NO_PLACE {
            self.store.prefetch(place.into(), command.first_iu, command.iu_count, command.first_page);
        }
    }

    /// The array read everything a read asked for: fills its destinations, or decides why not.
    #[inline(always)]
    pub(crate) fn read(&mut self, command: &mut CommandState) {
        if command.outcome.error.is_some() {
            return;
        }
        command.outcome.error =
            self.page_error(command.block, command.first_page..command.first_page + command.page_count);
        if command.outcome.error.is_some() {
            return;
        }
        if let Some(destination) = &mut command.destination {
            let read =
                self.store.read(self.place(command.block), command.first_iu, command.iu_count, destination);
            if let Err(fault) = read {
                command.outcome.error = Some(self.read_error(command.block, fault));
                return;
            }
            if let Some(bit) = command.outcome.flip_bit {
                let bit = bit as usize % (destination.len() * 8);
                destination[bit / 8] ^= 1 << (bit % 8);
            }
        }
        if let Some(oob) = &mut command.oob {
            let size = self.geometry.oob_size_bytes as usize;
            let place = self.place(command.block);
            for (index, area) in oob.chunks_exact_mut(size).enumerate() {
                if let Err(fault) = self.store.read_oob(place, command.first_page + index as u32, area) {
                    command.outcome.error = Some(self.read_error(command.block, fault));
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
    pub(crate) fn tear_program(&mut self, command: &mut CommandState, payload: &CommandPayload, now: Time) {
        let step = command.steps.done;
        let unit_pages = self.cells.unit_pages();
        let first_page = command.first_page + step * unit_pages;
        match command.kind {
            Kind::Copy => self.copy_unit(command, payload, step, now),
            _ => self.program_unit(command, payload, step, now),
        }
        if command.outcome.error.is_some() {
            return;
        }
        // One outcome for the unit most of the time: a program is interrupted before, at or after the point where
        // cells read right.
        let outcome = self.failures.random.random_range(0..4u32);
        let mut left_erased = true;
        for page in first_page..first_page + unit_pages {
            let of_page = if outcome < 3 { outcome } else { self.failures.random.random_range(0..3) };
            match of_page {
                0 => self.mark(command.block, page, PageMark::Garbage),
                1 => self.mark(command.block, page, PageMark::Erased),
                _ => {}
            }
            left_erased &= of_page == 1;
        }
        let planes = u32::from(self.geometry.planes_per_die);
        let risk: Vec<u32> = self.cells.rows_at_risk(first_page / planes).collect();
        for row in risk {
            if !left_erased && self.failures.random.random_range(0..2) == 0 {
                for page in row * planes..(row + 1) * planes {
                    self.mark(command.block, page, PageMark::Garbage);
                }
            }
        }
        // Cells that saw a program pulse cannot be programmed again before an erase.
        self.blocks[command.block as usize].flags |= ERASE_CUT;
        self.store.set_programmed(command.block, &self.blocks[command.block as usize]);
    }

    /// The power goes while the array erases: pages are old, garbage or erased.
    pub(crate) fn tear_erase(&mut self, command: &mut CommandState) {
        let pages = self.blocks[command.block as usize].programmed_page;
        let outcome = self.failures.random.random_range(0..4u32);
        if outcome == 3 {
            self.erase(command);
        } else {
            for page in 0..pages {
                let of_page = if outcome < 2 { outcome } else { self.failures.random.random_range(0..3) };
                match of_page {
                    0 => self.mark(command.block, page, PageMark::Garbage),
                    1 => self.mark(command.block, page, PageMark::Erased),
                    _ => {}
                }
            }
        }
        self.blocks[command.block as usize].flags |= ERASE_CUT;
        self.store.set_programmed(command.block, &self.blocks[command.block as usize]);
    }

    /// After a power cut or a restart: what was submitted and did not happen is forgotten.
    pub(crate) fn settle(&mut self) {
        for block in &mut self.blocks {
            block.pending = 0;
            block.submitted_page = if block.has(ERASE_CUT) { MUST_ERASE } else { block.programmed_page };
        }
    }
}
