use crate::asked::Asked;
use crate::block::{Position, Program, refusal};
use crate::discards::Discards;
use crate::flushes::Flushes;
use crate::lane::Lane;
use crate::shape::DriveShape;
use crate::zones::{Admission, Closed, Zones, written_pages};
use crate::zoning::Zoning;
use diecut_media::{
    Capabilities, Command, Completion, Divide, Intent, IntentDone, IntentError, IntentToken, IntentWork,
    Media, MediaError, MediaToken, Operation, PayloadParts, StreamId,
};
use diecut_units::{
    BufferMut, ContentMode, EraseBlockAddress, Geometry, IU_SIZE_BYTES, ProtectedMemory, StampedSlab, Time,
    mutant,
};
use std::ops::Range;

/// A drive, or a part of one with some of its lanes.
///
/// Reads and programs go out at once, as many as there are; only a read of what is not answered yet waits, and an erase. Programs to an
/// erase block are answered in the order of their pages. A drive that is gone, or whose flush failed, takes no programs any more.
///
/// On a drive that is written in zones an erase is the reset of a zone, and a zone has one write under way: programs that wait for it go
/// together as the next one.
pub struct DriveMedium {
    shape: DriveShape,
    geometry: Geometry,
    capabilities: Capabilities,
    can_discard: bool,
    /// Placement handles that the drive has.
    handles: u16,
    /// Lanes of this part.
    lanes: Vec<Option<Lane>>,
    /// What was asked for, by its token.
    asked: StampedSlab<Asked>,
    intents: Vec<Intent>,
    flushes: Flushes,
    discards: Discards,
    is_gone: bool,
    done: Vec<Completion>,
}

/// Most IUs of programs that go to a zone as one write.
const TOGETHER_MAX_IUS: u32 = 256;

impl DriveMedium {
    /// A whole drive, as it was left. `volatile_cache` says that only a flush makes programs durable, `can_discard` that
    /// [`Media::discard`] is worth telling it.
    pub fn new(shape: DriveShape, volatile_cache: bool, can_discard: bool) -> DriveMedium {
        let capabilities = Capabilities {
            program_unit_pages: shape.program_unit_pages(),
            unsafe_units: 0,
            volatile_cache,
            independent_units: shape.dies.is_some(),
            copy_within_die: false,
            suspends: false,
            slc_blocks_per_die: 0,
            content_mode: ContentMode::Bytes,
            endurance_cycles: 0,
            die_times: None,
        };
        DriveMedium {
            shape,
            geometry: shape.geometry(),
            capabilities,
            can_discard,
            handles: 1,
            lanes: (0..shape.lanes).map(|_| Some(Lane::new(shape.blocks_per_lane))).collect(),
            asked: StampedSlab::new(),
            intents: Vec::new(),
            flushes: Flushes::default(),
            discards: Discards::default(),
            is_gone: false,
            done: Vec::new(),
        }
    }

    /// A drive that is written in zones, as it reports them. The first erase blocks of each lane, so many, never give way to others: catalog and
    /// block states are written seldom, and have no others.
    ///
    /// # Panics
    /// If the shape is not one of such a drive, or needs zones that are not there.
    pub fn zoned(
        shape: DriveShape,
        volatile_cache: bool,
        zoning: &Zoning,
        system_blocks: u32,
    ) -> DriveMedium {
        let cut = shape.zones.expect("the shape of a zoned drive");
        let mut medium = DriveMedium::new(shape, volatile_cache, true);
        // Each lane has its share, so that lanes may go to other parts of the drive.
        let places = zoning.places().map_or(Zones::UNLIMITED, |places| places / u32::from(shape.lanes));
        let of = |lane: u16| {
            (0..shape.blocks_per_lane).map(move |block| &zoning.zones[shape.zone(cut, lane, block) as usize])
        };
        for (number, lane) in (0..).zip(&mut medium.lanes) {
            let Some(lane) = lane else { continue };
            for (block, zone) in (0..).zip(of(number)) {
                lane.block_mut(block).answered_pages = written_pages(zone);
            }
            lane.zones = Some(Zones::new(of(number).map(|zone| zone.condition), places, system_blocks));
        }
        medium.capabilities.die_times = zoning.dies.and_then(|dies| dies.times);
        medium
    }

    /// The same of a drive that has so many placement handles: streams are kept apart as far as these go. Catalog and block states have the first one.
    ///
    /// # Panics
    /// If there is none.
    pub fn with_handles(self, handles: u16) -> DriveMedium {
        assert!(handles > 0, "a drive that is written has a handle");
        DriveMedium { handles, ..self }
    }

    /// How it is cut.
    pub fn shape(&self) -> &DriveShape {
        &self.shape
    }

    /// Whether the drive said that it is gone.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    fn lane(&mut self, lane: u16) -> &mut Lane {
        self.lanes[usize::from(lane)].as_mut().expect("commands go to the part that owns the lane")
    }

    /// Checks the flash rules, and counts the pages of a program.
    fn check(&mut self, operation: &Operation) {
        let address = operation.block();
        assert!(self.geometry.contains(address), "{address} is outside of the drive");
        let (pages, ius) = (self.geometry.pages_per_erase_block(), self.geometry.ius_per_erase_block());
        let block = {
            let (lane, block) = self.shape.place(address);
            self.lane(lane).block_mut(block)
        };
        match operation {
            Operation::Read { first_iu, iu_count, destination, oob, .. } => {
                let end = first_iu.checked_add(*iu_count).expect("IUs of one erase block");
                assert!(*iu_count > 0 && end <= ius, "{address}: read beyond its end");
                assert_eq!(destination.len(), *iu_count as usize * IU_SIZE_BYTES, "{address}: whole IUs");
                assert!(oob.is_none(), "{address}: a drive has no OOB areas");
            }
            Operation::Program { first_page, parts, oob, .. } => {
                let count: u32 = parts.iter().map(|part| part.iu_count()).sum();
                assert!(count > 0 && oob.is_empty(), "{address}: whole IUs, and no OOB areas");
                assert_eq!(
                    block.position,
                    Position::Next(*first_page),
                    "{address} is programmed in order, once, after an erase"
                );
                assert!(count <= pages - first_page, "{address}: program beyond its end");
                block.position = Position::Next(first_page + count);
            }
            Operation::Erase { .. } => block.position = Position::Next(0),
            Operation::ReadOob { .. } => panic!("{address}: a drive has no OOB areas"),
            Operation::Copy { .. } => panic!("{address}: a drive does not copy"),
        }
    }

    fn ask(&mut self, asked: Asked, work: IntentWork) {
        let token = IntentToken(self.asked.insert(asked));
        self.intents.push(Intent { token, work });
    }

    /// Begins what waits at an erase block, in its order, as far as it can begin.
    fn go_on(&mut self, lane: u16, block: u32) {
        while let Some(command) = self.take_next(lane, block) {
            self.begin(lane, block, command);
        }
        self.lane(lane).settle(block);
    }

    /// Zones of a lane that wait for a place begin if there is one, or another zone gives way to the first of them.
    fn make_places(&mut self, lane: u16) {
        if self.lane(lane).zones.is_none() {
            return;
        }
        while let Some(block) = self.lane(lane).zones.as_mut().and_then(Zones::take_waiting) {
            self.go_on(lane, block);
        }
        let of = self.lane(lane);
        let mut zones = of.zones.take().expect("looked at");
        let is_nobodys = |block: u32| of.block(block).position == Position::Discarded;
        let closes = zones.close_one(|block| of.busy(block).is_none(), is_nobodys);
        of.zones = Some(zones);
        if let Some(block) = closes {
            self.give_way_if_still(lane, block);
        }
    }

    /// A zone that gives way does so when nothing is under way at it.
    fn give_way_if_still(&mut self, lane: u16, block: u32) {
        if self.lane(lane).busy(block).is_none_or(|busy| busy.programs.is_empty() && !busy.is_held) {
            self.lane(lane).busy_mut(block).hold();
            let (offset, len_bytes) = (self.shape.offset(lane, block), self.shape.stride_bytes());
            // One that is to be discarded is reset now, instead of finished now and reset later.
            let is_reset = !mutant!("drives: a zone is discarded while it gives way")
                && self.discards.forget(lane, block);
            let work = match is_reset {
                true => IntentWork::ResetZone { offset, len_bytes },
                false => IntentWork::FinishZone { offset, len_bytes },
            };
            self.ask(Asked::GiveWay { lane, block, is_reset }, work);
        }
    }

    /// The next command, if what it needs is over.
    fn take_next(&mut self, lane: u16, block: u32) -> Option<Command> {
        let is_refused = self.is_gone || self.flushes.has_failed();
        let of = self.lane(lane);
        let answered = of.block(block).answered_pages;
        let busy = of.busy(block)?;
        let can_write = !busy.is_held
            && (busy.programs.is_empty() || mutant!("drives: a zone has several writes under way"));
        let can_begin = match &busy.waiting.front()?.operation {
            Operation::Read { first_iu, iu_count, .. } => {
                busy.programs.is_empty()
                    || first_iu + iu_count <= answered
                    || mutant!("drives: a read overtakes a program")
            }
            // I-D6.
            Operation::Program { .. } => {
                let zones = of.zones.as_mut();
                zones.is_none_or(|zones| can_write && (is_refused || zones.admit(block) != Admission::Later))
            }
            // I-D4.
            _ => busy.is_still(),
        };
        can_begin.then(|| of.busy_mut(block).waiting.pop_front().expect("looked at"))
    }

    fn begin(&mut self, lane: u16, block: u32, command: Command) {
        let token = command.token;
        let address = self.shape.address(lane, block);
        let offline = Err(MediaError::DieOffline { block: address });
        // I-D3.
        let takes_no_programs = self.is_gone || self.flushes.has_failed();
        let offset = self.shape.offset(lane, block);
        match command.operation {
            Operation::Read { first_iu, iu_count, destination, .. } => {
                let of = self.lane(lane);
                let error =
                    refusal(address, of.block(block), of.failed(block), first_iu..first_iu + iu_count);
                let result = if self.is_gone { offline } else { error.map_or(Ok(()), Err) };
                if result.is_err() {
                    return self.answer(token, result, Some(destination));
                }
                self.lane(lane).busy_mut(block).reads += 1;
                let offset = offset + u64::from(first_iu) * IU_SIZE_BYTES as u64;
                let asked = Asked::Read { token, lane, block, first_page: first_iu };
                self.ask(asked, IntentWork::Read { offset, buffer: destination });
            }
            Operation::Program { first_page, mut parts, .. } => {
                let count: u32 = parts.iter().map(|part| part.iu_count()).sum();
                let pages = first_page..first_page + count;
                let mut program = Program { token, pages, result: None };
                let refused =
                    if takes_no_programs { Some(offline) } else { self.closed(lane, block, first_page) };
                if refused.is_some() {
                    program.result = refused;
                    self.lane(lane).busy_mut(block).programs.push_back(program);
                    return self.answer_programs(lane, block);
                }
                self.lane(lane).busy_mut(block).programs.push_back(program);
                if self.lane(lane).zones.is_some() {
                    self.gather(lane, block, &mut parts);
                }
                let parts = parts.into_iter().map(|part| part.into_buffer()).collect();
                let offset = offset + u64::from(first_page) * IU_SIZE_BYTES as u64;
                let handle = self.lane(lane).block(block).handle;
                let write = IntentWork::Write { offset, parts, handle };
                self.ask(Asked::Program { lane, block, first_page }, write);
            }
            Operation::Erase { .. } => {
                self.lane(lane).erased(block);
                if takes_no_programs {
                    return self.answer(token, offline, None);
                }
                if self.lane(lane).zones.as_ref().is_none_or(|zones| zones.is_empty(block)) {
                    return self.answer(token, Ok(()), None);
                }
                // I-D7.
                let is_early = mutant!("drives: a zone is programmed before its reset ends");
                if !is_early {
                    self.lane(lane).busy_mut(block).hold();
                }
                if is_early && let Some(zones) = &mut self.lane(lane).zones {
                    zones.reset(block);
                }
                let work = IntentWork::ResetZone { offset, len_bytes: self.shape.stride_bytes() };
                self.ask(Asked::Reset { token, lane, block }, work);
            }
            Operation::ReadOob { .. } | Operation::Copy { .. } => {
                unreachable!("refused when it was submitted")
            }
        }
    }

    /// Why a program to a zone cannot begin, if its zone takes none.
    fn closed(&mut self, lane: u16, block: u32, first_page: u32) -> Option<Result<(), MediaError>> {
        let address = self.shape.address(lane, block);
        let of = self.lane(lane);
        match of.zones.as_ref()?.closed(block)? {
            Closed::Failed => Some(Err(MediaError::ProgramFailed { block: address, page: first_page })),
            Closed::GaveWay => Some(Err(MediaError::NoRoom { block: address, page: first_page })),
        }
    }

    /// Programs that wait for the zone go along with the one that begins.
    fn gather(&mut self, lane: u16, block: u32, parts: &mut PayloadParts) {
        let mut ius: u32 = parts.iter().map(|part| part.iu_count()).sum();
        let busy = self.lane(lane).busy_mut(block);
        let mut is_next = |command: &mut Command| match &command.operation {
            Operation::Program { parts, .. } => {
                ius += parts.iter().map(|part| part.iu_count()).sum::<u32>();
                ius <= TOGETHER_MAX_IUS
            }
            _ => false,
        };
        while let Some(command) = busy.waiting.pop_front_if(&mut is_next) {
            let Operation::Program { first_page, parts: more, .. } = command.operation else { continue };
            let count: u32 = more.iter().map(|part| part.iu_count()).sum();
            let pages = first_page..first_page + count;
            busy.programs.push_back(Program { token: command.token, pages, result: None });
            parts.extend(more);
        }
    }

    fn answer(&mut self, token: MediaToken, result: Result<(), MediaError>, destination: Option<BufferMut>) {
        self.done.push(Completion { token, result, destination, oob: None, retries: 0 });
    }

    /// Answers programs of an erase block as far as the drive answered all before them.
    fn answer_programs(&mut self, lane: u16, block: u32) {
        while let Some((program, result)) = self.lane(lane).busy_mut(block).take_programmed() {
            let Range { start, end } = program.pages;
            let of = self.lane(lane);
            of.block_mut(block).answered_pages = end;
            if result.is_err() {
                of.note_failed(block, start..end);
            }
            self.answer(program.token, result, None);
        }
    }

    /// What another part of the drive knows to be over is over here, too.
    fn share_fate(&mut self, other: &DriveMedium) {
        self.is_gone |= other.is_gone;
    }

    fn begin_flush(&mut self) {
        if self.is_gone || self.flushes.has_failed() {
            return self.end_flush(false);
        }
        if self.flushes.begin() {
            let trusts_pointers =
                self.shape.zones.is_some() && mutant!("drives: a write pointer counts as flushed");
            if trusts_pointers || mutant!("drives: a flush does nothing") {
                return self.end_flush(true);
            }
            self.ask(Asked::Flush, IntentWork::Sync);
        }
    }

    fn end_flush(&mut self, worked: bool) {
        // One of another part that failed meanwhile may have lost what this one was to cover.
        let worked = worked
            && (!self.flushes.has_failed() || mutant!("drives: a flush counts beside one that failed"));
        let result = if worked { Ok(()) } else { Err(MediaError::FlushFailed) };
        self.done.extend(self.flushes.end(worked).map(|token| Completion::plain(token, result)));
    }

    /// A write to a zone was answered.
    fn zone_written(&mut self, lane: u16, block: u32, result: Result<(), IntentError>) {
        let (pages, shows_dies) = (self.geometry.pages_per_erase_block(), self.shape.dies.is_some());
        let of = self.lane(lane);
        let is_full = of.block(block).answered_pages == pages;
        let zones = of.zones.as_mut().expect("a drive with zones");
        match (result, is_full) {
            // A drive that shows its dies closes chunks by itself, as after a restart. They are as good as before when they are reset.
            (Err(IntentError::Full), _) if shows_dies => zones.finished(block),
            (Err(_), _) => zones.failed(block),
            (Ok(()), true) => zones.filled(block),
            (Ok(()), false) if zones.programmed(block) => self.give_way_if_still(lane, block),
            (Ok(()), false) => {}
        }
    }

    /// The drive does not work at an erase block as a whole any more.
    fn held_no_more(&mut self, lane: u16, block: u32, then: impl FnOnce(&mut Zones)) {
        let of = self.lane(lane);
        of.busy_mut(block).is_held = false;
        if let Some(zones) = &mut of.zones {
            then(zones);
        }
        self.go_on(lane, block);
        self.make_places(lane);
    }

    fn begin_discard(&mut self, now: Time) {
        if self.is_gone {
            return;
        }
        if let Some((lane, block)) = self.discards.begin(now) {
            self.lane(lane).busy_mut(block).hold();
            let (offset, len_bytes) = (self.shape.offset(lane, block), self.shape.stride_bytes());
            let work = match self.shape.zones {
                Some(_) => IntentWork::ResetZone { offset, len_bytes },
                None => IntentWork::Discard { offset, len_bytes },
            };
            self.ask(Asked::Discard { lane, block }, work);
        }
    }
}

impl Media for DriveMedium {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn is_factory_bad(&self, _block: EraseBlockAddress) -> bool {
        false
    }

    fn protected_memory(&self) -> Option<ProtectedMemory> {
        None
    }

    fn submit(&mut self, command: Command, _now: Time) {
        self.check(&command.operation);
        let (lane, block) = self.shape.place(command.operation.block());
        if matches!(command.operation, Operation::Erase { .. }) {
            self.discards.forget(lane, block);
        }
        self.lane(lane).busy_mut(block).waiting.push_back(command);
        self.go_on(lane, block);
        self.make_places(lane);
    }

    fn flush(&mut self, token: MediaToken, _now: Time) {
        assert!(self.capabilities.volatile_cache, "a flush of a drive without a volatile cache");
        self.flushes.ask(token);
        self.begin_flush();
    }

    fn advance(&mut self, now: Time, completions: &mut Vec<Completion>) {
        self.begin_discard(now);
        completions.append(&mut self.done);
    }

    fn discard(&mut self, block: EraseBlockAddress, _now: Time) {
        let (lane, block) = self.shape.place(block);
        // Whoever still works at it needs it, whatever he says.
        if self.can_discard && self.lane(lane).busy(block).is_none() {
            self.lane(lane).erased(block);
            self.lane(lane).block_mut(block).position = Position::Discarded;
            self.discards.push(lane, block);
        }
    }

    fn place(&mut self, block: EraseBlockAddress, stream: StreamId) {
        let others = u32::from(self.handles - 1);
        let handle = stream.0.checked_rem(others).map_or(0, |handle| 1 + handle as u16);
        let (lane, block) = self.shape.place(block);
        self.lane(lane).block_mut(block).handle = handle;
    }

    fn take_intents(&mut self, intents: &mut Vec<Intent>) {
        intents.append(&mut self.intents);
    }

    fn intent_done(&mut self, done: IntentDone, now: Time) {
        self.is_gone |= done.result == Err(IntentError::Gone);
        match self.asked.remove(done.token.0) {
            Asked::Read { token, lane, block, first_page } => {
                let address = self.shape.address(lane, block);
                let result = done.result.map_err(|error| match error {
                    IntentError::Gone => MediaError::DieOffline { block: address },
                    IntentError::Failed | IntentError::Full => {
                        MediaError::Uncorrectable { block: address, page: first_page }
                    }
                });
                self.lane(lane).busy_mut(block).reads -= 1;
                self.answer(token, result, done.buffer);
                self.go_on(lane, block);
            }
            Asked::Program { lane, block, first_page } => {
                let address = self.shape.address(lane, block);
                // Written too late: a flush that failed meanwhile may have taken it along.
                let is_late = self.flushes.has_failed();
                let result = |page: u32| match done.result {
                    Ok(()) if is_late => Err(MediaError::DieOffline { block: address }),
                    Ok(()) => Ok(()),
                    Err(IntentError::Gone) => Err(MediaError::DieOffline { block: address }),
                    Err(IntentError::Full) => Err(MediaError::NoRoom { block: address, page }),
                    Err(IntentError::Failed) => Err(MediaError::ProgramFailed { block: address, page }),
                };
                let is_zone = self.lane(lane).zones.is_some();
                match is_zone {
                    true => self.lane(lane).busy_mut(block).all_programmed(result),
                    false => self.lane(lane).busy_mut(block).programmed(first_page, result(first_page)),
                }
                self.answer_programs(lane, block);
                if is_zone {
                    self.zone_written(lane, block, done.result);
                }
                self.go_on(lane, block);
                self.make_places(lane);
            }
            Asked::Discard { lane, block } => {
                self.discards.end(now);
                self.held_no_more(lane, block, |zones| zones.reset_ended(block, done.result.is_ok()));
            }
            Asked::Reset { token, lane, block } => {
                let address = self.shape.address(lane, block);
                let result = done.result.map_err(|error| match error {
                    IntentError::Gone => MediaError::DieOffline { block: address },
                    IntentError::Failed | IntentError::Full => MediaError::EraseFailed { block: address },
                });
                self.answer(token, result, None);
                self.held_no_more(lane, block, |zones| zones.reset_ended(block, result.is_ok()));
            }
            // One that cannot be finished takes no programs either way.
            Asked::GiveWay { lane, block, is_reset } => {
                self.held_no_more(lane, block, |zones| match is_reset && done.result.is_ok() {
                    true => zones.reset(block),
                    false => zones.finished(block),
                });
            }
            Asked::Flush => {
                self.end_flush(done.result.is_ok());
                self.begin_flush();
            }
        }
    }

    fn next_event(&self) -> Time {
        match self.done.is_empty() && self.intents.is_empty() {
            true if self.is_gone => Time::NEVER,
            true => self.discards.next_event(),
            false => Time::ZERO,
        }
    }
}

impl Divide for DriveMedium {
    fn empty_part(&mut self) -> DriveMedium {
        let mut part = DriveMedium::new(self.shape, self.capabilities.volatile_cache, self.can_discard);
        part.lanes.iter_mut().for_each(|lane| *lane = None);
        part.flushes = self.flushes.of_part();
        part.handles = self.handles;
        part.share_fate(self);
        part
    }

    fn owns(&self, channel: u16) -> bool {
        self.lanes.get(usize::from(channel)).is_some_and(Option::is_some)
    }

    fn is_quiet(&self, channel: u16) -> bool {
        self.lanes[usize::from(channel)].as_ref().is_none_or(Lane::is_quiet)
    }

    fn take_channel(&mut self, from: &mut DriveMedium, channel: u16) {
        assert!(from.is_quiet(channel), "I-D5: commands to lane {channel} are under way");
        let lane = from.lanes[usize::from(channel)].take().expect("the part that gives a lane owns it");
        self.lanes[usize::from(channel)] = Some(lane);
        self.discards.take_lane(&mut from.discards, channel);
        self.share_fate(from);
    }
}
