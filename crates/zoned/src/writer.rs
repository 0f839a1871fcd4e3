//! The way of writes: into staging, and from there to flash, a program unit at a time.

use crate::contract::{ZoneAnswer, ZoneCompletion, ZoneData, ZoneError, ZoneToken};
use crate::lent::{Lent, Program};
use crate::mark::{self, Place};
use crate::shape::UnitNumber;
use crate::slot::SlotName;
use crate::states::ZoneRefusal;
use crate::token::Kind;
use crate::zone::{Origin, Stage, StagedUnit, Task, Zone};
use diecut_units::{mark, mutant};
use diecut_vssd::space::{BlockPages, IoClass, LogicalBlock, Purpose, SpaceError};

/// `Purpose` of the erase blocks of zones.
pub(crate) const PURPOSE_ZONE: Purpose = Purpose(1);

/// Rows of a block that are handed over at once: one is programmed while the next one is on its way.
const ROWS_AHEAD: u32 = 2;

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Done,
    /// No slot, or no erase block, is to be had now.
    Starved,
    /// The file system below is full: nobody says when it is not.
    NoRoom,
}

impl Zone {
    /// Takes over what waits, as far as there are slots for it.
    pub fn take_in(&mut self, lent: &mut Lent<'_>, completions: &mut Vec<ZoneCompletion>) -> Step {
        while let Some(mut task) = self.tasks.pop_front() {
            let step = self.do_task(&mut task, lent, completions);
            if step != Step::Done {
                self.tasks.push_front(task);
                return step;
            }
        }
        Step::Done
    }

    fn do_task(
        &mut self,
        task: &mut Task,
        lent: &mut Lent<'_>,
        completions: &mut Vec<ZoneCompletion>,
    ) -> Step {
        match task {
            Task::Write { token, lba, first_iu, done_ius, data, origins, commits_to } => {
                let count = data.iu_count();
                while *done_ius < count || commits_to.is_some() {
                    let iu = *first_iu + *done_ius;
                    // What lies before the end of what is committed belongs to it.
                    if let Some(to_iu) = commits_to.take_if(|to_iu| *done_ius == count || iu >= *to_iu) {
                        if self.commit(to_iu, lent) != Step::Done {
                            *commits_to = Some(to_iu);
                            return Step::Starved;
                        }
                        continue;
                    }
                    let Some(taken) = self.put(iu, *done_ius, data, origins, lent) else {
                        return Step::Starved;
                    };
                    *done_ius += taken;
                }
                let end_iu = *first_iu + count;
                self.written(*token, *lba, end_iu, lent, completions);
            }
            Task::Commit { token, to_iu } => {
                if self.commit(*to_iu, lent) != Step::Done {
                    return Step::Starved;
                }
                completions.push(ZoneCompletion { token: *token, result: Ok(ZoneAnswer::Done) });
            }
        }
        Step::Done
    }

    /// All of a write is staged.
    fn written(
        &mut self,
        token: ZoneToken,
        lba: u64,
        end_iu: u32,
        lent: &Lent<'_>,
        completions: &mut Vec<ZoneCompletion>,
    ) {
        if lent.staging.is_protected() || mutant!("zoned: write answered before it is durable") {
            completions.push(ZoneCompletion { token, result: Ok(ZoneAnswer::Written(lba)) });
        } else {
            self.unanswered.push_back((end_iu, token, lba));
        }
        if end_iu == lent.shape.capacity_ius() && self.taken_ius == end_iu {
            self.is_complete = true;
        }
    }

    /// Puts IUs of a write into the unit that they belong to, from `iu` of the zone on, which is `at` of the data. Gives how many; `None`
    /// if there is no slot for them.
    fn put(
        &mut self,
        iu: u32,
        at: u32,
        data: &ZoneData,
        origins: &[(UnitNumber, Origin)],
        lent: &mut Lent<'_>,
    ) -> Option<u32> {
        let unit_ius = lent.shape.unit_ius;
        let (unit, in_unit) = (iu / unit_ius, iu % unit_ius);
        let count = (data.iu_count() - at).min(unit_ius - in_unit);
        if self.is_random && self.taken_ius == 0 && !mutant!("zoned: a zone begins behind its first unit") {
            // A zone is there as long as its first unit is.
            self.unit_to_fill(0, lent)?;
        }
        let staged = self.unit_to_fill(unit, lent)?;
        let slot = lent.staging.slot_mut(staged.slot);
        match data {
            ZoneData::Payload(payload) => {
                for step in 0..count {
                    slot.put(in_unit + step, payload.iu(at + step));
                }
            }
            ZoneData::Zeros(_) => {
                let zeros = [0; diecut_units::IU_SIZE_BYTES];
                let zeros = &zeros[..lent.facts.mode.bytes_per_iu()];
                (0..count).for_each(|step| slot.put(in_unit + step, zeros));
            }
        }
        // Nothing else is in the unit, and nothing else comes into it, or it has no origin any more.
        let origin =
            origins.iter().find(|(of, _)| *of == unit && count == unit_ius).map(|(_, origin)| *origin);
        let staged = self.staged_mut(unit).expect("just filled");
        if origin.is_some() || !mutant!("zoned: what is written over a copy has its origin") {
            staged.origin = origin;
        }
        if !self.is_random {
            assert_eq!(self.taken_ius, iu, "I-Z8: writes are taken over in order");
            self.taken_ius = iu + count;
            if in_unit + count == unit_ius {
                self.staged_mut(unit).expect("just filled").stage = Stage::Ready;
            }
        }
        Some(count)
    }

    /// The unit of a number, which takes content.
    fn unit_to_fill(&mut self, unit: UnitNumber, lent: &mut Lent<'_>) -> Option<StagedUnit> {
        if let Some(staged) = self.staged(unit) {
            assert_eq!(staged.stage, Stage::Filling, "I-Z8: what is written lies behind what is committed");
            return Some(*staged);
        }
        let name = SlotName {
            set: self.name.set_id,
            zone: self.name.zone,
            generation: self.name.generation,
            unit,
            is_random: self.is_random,
        };
        let slot = lent.staging.take(&mut self.claim, name)?;
        let staged = StagedUnit { unit, slot, stage: Stage::Filling, origin: None };
        self.stage(staged);
        Some(staged)
    }

    /// Commits what the random write area holds before an IU, which is at the end of a unit. What was not written reads as zeros.
    fn commit(&mut self, to_iu: u32, lent: &mut Lent<'_>) -> Step {
        let unit_ius = lent.shape.unit_ius;
        while self.taken_ius < to_iu {
            let unit = self.taken_ius / unit_ius;
            let Some(staged) = self.unit_to_fill(unit, lent) else { return Step::Starved };
            self.fill_up(staged, lent);
            if !mutant!("zoned: a commit is not written down") {
                lent.staging.slot_mut(staged.slot).commit();
            }
            self.staged_mut(unit).expect("just filled").stage = Stage::Ready;
            self.taken_ius = (unit + 1) * unit_ius;
        }
        if self.taken_ius == lent.shape.capacity_ius() {
            self.is_complete = true;
        }
        Step::Done
    }

    fn fill_up(&mut self, staged: StagedUnit, lent: &mut Lent<'_>) {
        let zeros = [0; diecut_units::IU_SIZE_BYTES];
        let slot = lent.staging.slot_mut(staged.slot);
        for iu in 0..lent.shape.unit_ius {
            if !slot.has(iu) {
                slot.put(iu, &zeros[..lent.facts.mode.bytes_per_iu()]);
            }
        }
    }

    /// Nothing more is written: what is staged goes to flash, filled up with zeros.
    pub fn finish(&mut self, lent: &mut Lent<'_>) -> Step {
        let filling = self.staged.iter().filter(|staged| staged.stage == Stage::Filling);
        if let Some(last) = filling.map(|staged| staged.unit).max() {
            if self.is_random {
                let step = self.commit((last + 1) * lent.shape.unit_ius, lent);
                if step != Step::Done {
                    return step;
                }
            } else {
                let staged = *self.staged(last).expect("just found");
                self.fill_up(staged, lent);
                self.staged_mut(last).expect("just found").stage = Stage::Ready;
            }
        }
        self.is_complete = true;
        self.finishes = None;
        Step::Done
    }

    /// Hands over to flash what is ready, as far as its blocks take it.
    /// `others` are the zones of the namespace beside this one.
    pub fn program_ready(&mut self, others: &[Option<Box<Zone>>], lent: &mut Lent<'_>) -> Step {
        let is_asked = self.staged.iter().any(|staged| staged.stage == Stage::Ready) && !self.is_worn;
        if is_asked && self.columns.iter().any(|column| column.is_stale) {
            let step = self.renew_stale(lent);
            if step != Step::Done {
                return step;
            }
        }
        if is_asked && self.waits_for_sweep > lent.under_way.sweeps_ended {
            return Step::Starved;
        }
        let mut result = if self.copy_further(lent) { Step::Starved } else { Step::Done };
        for at in 0..self.staged.len() {
            let staged = self.staged[at];
            if staged.stage != Stage::Ready || self.is_worn {
                continue;
            }
            let (column, row) = lent.shape.place(staged.unit);
            let place = &self.columns[column];
            if place.relocation.is_some()
                || row != place.begun_rows
                || place.begun_rows - place.done_rows >= ROWS_AHEAD
            {
                continue;
            }
            if !place.is_open {
                if place.begun_rows == place.done_rows {
                    match self.renew(column, lent) {
                        Step::Done => {}
                        step => result = step,
                    }
                }
                if !self.columns[column].is_open {
                    continue;
                }
            }
            self.program(at, column, row, others, lent);
        }
        result
    }

    fn program(
        &mut self,
        at: usize,
        column: usize,
        row: u32,
        others: &[Option<Box<Zone>>],
        lent: &mut Lent<'_>,
    ) {
        let StagedUnit { unit, slot, origin, .. } = self.staged[at];
        let block = self.columns[column].block.expect("I-Z8: what is open has a block");
        let shape = &lent.facts.block;
        let mut oob = lent.pool.take_zeroed(shape.program_unit_oob_size_bytes() as usize);
        let slot = lent.staging.slot_mut(slot);
        let (pages, page_ius) = (shape.program_unit_pages, shape.ius_per_page());
        let mark = self.mark_of(column);
        let mark_row = match origin {
            Some(origin) if mutant!("zoned: marks of a die's copy have the place of its source") => {
                origin.row
            }
            _ => row,
        };
        let has_sums = origin.is_none() || !mutant!("zoned: marks of a die's copy have no checksums");
        for (page, oob) in (0..pages).zip(oob.chunks_exact_mut(shape.oob_size_bytes as usize)) {
            let sums: smallvec::SmallVec<[u32; 16]> = (0..page_ius)
                .map(|iu| if has_sums { slot.checksum_of(page * page_ius + iu) } else { 0 })
                .collect();
            mark::encode(
                mark,
                Place { unit: block.unit, page: mark_row * pages + page },
                sums.into_iter(),
                &mut oob[shape.holder_oob_offset as usize..],
            );
        }
        let token = Kind::Program.token(lent.under_way.programs.insert(Program { name: self.name, unit }));
        let origin = origin.and_then(|origin| Some((origin.row * pages, self.block_of(&origin, others)?)));
        let rest = match origin {
            // What was staged was read there and checked. That of the die's copy goes to flash with the same checksums: what differs is seen.
            Some((first_page, source)) => {
                assert_eq!(source.unit, block.unit, "I-Z16: what a die copies stays on its unit");
                let is_astray = mutant!("zoned: a die copies from the place that it copies to");
                let first_page = if is_astray { row * pages } else { first_page };
                let source = BlockPages { block: source, first_page };
                lent.space.append_copy(token, source, block, oob, IoClass::HostWrite).err()
            }
            None => Some(oob),
        };
        match rest {
            None => {
                mark!("zoned: a die copies a program unit");
                lent.under_way.copied_units += 1;
            }
            Some(oob) => {
                let parts = lent.staging.slot_mut(self.staged[at].slot).payload(lent.facts.mode);
                lent.space.append(token, block, parts, oob, IoClass::HostWrite);
            }
        }
        self.columns[column].begun_rows += 1;
        self.staged[at].stage = Stage::Programming;
        self.under_way += 1;
    }

    /// A program came back.
    pub fn programmed(
        &mut self,
        unit: UnitNumber,
        result: Result<(), SpaceError>,
        lent: &mut Lent<'_>,
        completions: &mut Vec<ZoneCompletion>,
    ) {
        self.under_way -= 1;
        let (column, row) = lent.shape.place(unit);
        let place = &mut self.columns[column];
        let staged = self.staged.iter_mut().find(|staged| staged.unit == unit);
        let staged = staged.expect("I-Z8: what is programmed is staged");
        match result {
            Ok(()) => {
                assert_eq!(place.done_rows, row, "I-Z8: rows are programmed in order");
                place.done_rows += 1;
                staged.stage = Stage::Programmed;
                let unsafe_rows =
                    match mutant!("zoned: slots given back while a power cut can destroy the unit") {
                        true => 0,
                        false => lent.facts.block.unsafe_units,
                    };
                self.release_safe(&lent.shape, unsafe_rows, lent.staging);
                self.answer_durable(lent, completions);
            }
            Err(error) => {
                mark!("zoned: program failed");
                // The next try is of what is staged: it may have been the source that could not be read.
                (staged.stage, staged.origin) = (Stage::Ready, None);
                place.begun_rows -= 1;
                place.is_open = false;
                self.is_worn |=
                    error == SpaceError::UnitOffline { unit: lent.shape.unit_of(self.name.zone, column).0 };
            }
        }
    }

    /// Without protected memory: answers writes all of which is on flash, with everything before them.
    fn answer_durable(&mut self, lent: &Lent<'_>, completions: &mut Vec<ZoneCompletion>) {
        if self.unanswered.is_empty() {
            return;
        }
        let durable_iu = self.programmed_units(&lent.shape) * lent.shape.unit_ius;
        while let Some((_, token, lba)) = self.unanswered.pop_front_if(|(end_iu, ..)| *end_iu <= durable_iu) {
            completions.push(ZoneCompletion { token, result: Ok(ZoneAnswer::Written(lba)) });
        }
    }

    /// Gives all columns a block that have none.
    ///
    /// # Errors
    /// What the space says; columns that got a block keep it.
    pub fn allocate(&mut self, lent: &mut Lent<'_>) -> Result<(), SpaceError> {
        for column in 0..self.columns.len() {
            if self.columns[column].block.is_none() {
                let block = allocate_on(self.name.zone, column, lent)?;
                (self.columns[column].block, self.columns[column].is_open) = (Some(block), true);
            }
        }
        Ok(())
    }

    /// The blocks of a zone that does not begin go back.
    pub fn give_back_blocks(&mut self, lent: &mut Lent<'_>) {
        for column in &mut self.columns {
            if let Some(block) = column.block.take() {
                lent.free(block);
            }
        }
        lent.staging.end(&mut self.claim);
    }

    /// Blocks with rows that do not count any more go. `Done` when all have gone.
    fn renew_stale(&mut self, lent: &mut Lent<'_>) -> Step {
        mark!("zoned: rows that no longer count go");
        for column in 0..self.columns.len() {
            let place = &mut self.columns[column];
            if !place.is_stale || place.relocation.is_some() {
                continue;
            }
            if place.done_rows > 0 {
                let step = self.renew(column, lent);
                if step != Step::Done {
                    return step;
                }
            } else if let Some(old) = place.block.take() {
                lent.free(old);
            }
            let place = &mut self.columns[column];
            if place.relocation.is_none() {
                place.is_stale = false;
                self.waits_for_sweep = lent.under_way.sweeps_begun + 1;
            }
        }
        let is_over = self.is_worn || self.columns.iter().all(|column| !column.is_stale);
        if is_over { Step::Done } else { Step::Starved }
    }

    /// A column gets a block that can be programmed: at once if it held nothing, else its content is copied first.
    fn renew(&mut self, column: usize, lent: &mut Lent<'_>) -> Step {
        let new = match allocate_on(self.name.zone, column, lent) {
            Ok(block) => block,
            Err(SpaceError::NoRoom) => return Step::NoRoom,
            Err(SpaceError::NoFreeBlock { .. }) if lent.blocks_return => return Step::Starved,
            Err(_) => {
                mark!("zoned: no erase block for a zone");
                self.is_worn = true;
                return Step::Done;
            }
        };
        let place = &mut self.columns[column];
        if place.done_rows == 0 {
            let old = place.block.replace(new);
            (place.is_open, place.copied_rows) = (true, 0);
            place.edition = place.edition.wrapping_add(u8::from(old.is_some()));
            if let Some(old) = old {
                lent.free(old);
                self.older_until = lent.under_way.sweeps_begun + 1;
            }
            return Step::Done;
        }
        self.begin_relocation(column, new, lent);
        Step::Done
    }

    /// The medium cannot write to it: what waits is refused.
    pub fn refuse_tasks(&mut self, completions: &mut Vec<ZoneCompletion>) {
        let refused = ZoneError::Refused { zone: self.name.zone, refusal: ZoneRefusal::ReadOnly };
        let refuse = |token| ZoneCompletion { token, result: Err(refused.clone()) };
        completions.extend(self.take_tokens().map(refuse));
    }
}

fn allocate_on(zone: u32, column: usize, lent: &mut Lent<'_>) -> Result<LogicalBlock, SpaceError> {
    let unit = lent.shape.unit_of(zone, column);
    if !lent.space.make_room(unit) {
        return Err(SpaceError::NoRoom);
    }
    lent.space.allocate(unit, PURPOSE_ZONE)
}
