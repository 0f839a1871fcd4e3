mod figures;
mod placement;
mod recovered;

pub use placement::{HandleFigures, ReclaimUnit, ReclaimUnitUpdate};

use crate::anchoring::{Anchoring, Asked};
use crate::changes::{Change, Changes, Queued};
use crate::config::{StoreConfig, StoreStatistics};
use crate::contract::{
    VolumeCommand, VolumeCompletion, VolumeError, VolumeIndex, VolumeOperation, VolumeToken,
};
use crate::copies::CopyRequest;
use crate::copying;
use crate::endurance::Endurance;
use crate::lent::{Lent, LentOver};
use crate::loss::{AcceptedLoss, Findings};
use crate::map::{self, Maps};
use crate::opening::Opening;
use crate::purging::Purging;
use crate::reads::{ReadRequest, Reads};
use crate::rest::{Rest, Seen};
use crate::waiting::Waiting;
use diecut_log::{Log, LogConfig, Placement};
use diecut_units::{ProtectedRegion, Time, mutant};
use diecut_vssd::space::{EraseBlockSpace, SpaceCompletion};

/// One vSSD's log and all volumes on it.
pub struct Store {
    config: StoreConfig,
    log: Log,
    maps: Maps,
    opening: Option<Box<Opening>>,
    early: Early,
    changes: Changes,
    waiting: Waiting,
    reads: Reads,
    anchoring: Anchoring,
    endurance: Endurance,
    purging: Purging,
    findings: Findings,
    accepted: AcceptedLoss,
    rest: Rest,
}

/// Commands that came while a store opened, or winds down.
#[derive(Default)]
struct Early {
    commands: Vec<VolumeCommand>,
    /// See [`Store::wind_down`].
    is_winding_down: bool,
}

impl Store {
    /// Gives up free buffers that were not needed since the last call; see [`diecut_units::BufferPool::shrink`].
    pub fn shrink(&mut self, slabs_max: u32) -> usize {
        self.log.pool().shrink(slabs_max)
    }

    /// Opens a store: empty on an empty space, else it recovers what is there. Commands are accepted at once and
    /// served when recovery is done.
    ///
    /// `staging` is the store's part of protected memory, the same at each opening.
    pub fn open(
        config: StoreConfig,
        space: &mut dyn EraseBlockSpace,
        staging: Option<ProtectedRegion>,
    ) -> Store {
        let log_config = LogConfig {
            user_slots: config.user_slots,
            placement: config.placement,
            format: config.format,
            tags: map::TAGS,
        };
        let endurance = Endurance::new(space);
        let log = Log::new(&log_config, space, staging);
        let mut store = Store {
            config,
            log,
            maps: Maps::default(),
            opening: None,
            early: Early::default(),
            changes: Changes::default(),
            waiting: Waiting::new(),
            reads: Reads::default(),
            anchoring: Anchoring::default(),
            endurance,
            purging: Purging::default(),
            findings: Findings::default(),
            accepted: AcceptedLoss::default(),
            rest: Rest::default(),
        };
        store.config.exported_ius = store.config.exported_ius.min(store.log.usable_ius());
        let (recovery, format) = (store.config.recovery, store.config.format);
        let mut lent = Lent { log: &mut store.log, maps: &mut store.maps, space };
        let opening = Opening::start(recovery, format, &mut lent);
        store.opening = Some(Box::new(opening));
        store.end_opening(space);
        store
    }

    /// Whether recovery is done.
    pub fn is_ready(&self) -> bool {
        self.opening.is_none()
    }

    /// From now on little is programmed at once, and the rest waits in staging, or not any more: what is under way on flash ends
    /// soon, while the store goes on to serve. [`Store::work`] follows.
    pub fn quiesce(&mut self, is_quiescing: bool) {
        self.rest.end();
        self.log.quiesce(is_quiescing);
    }

    /// Whether that little is all that is programmed now; `None` if it is not limited to that.
    pub fn quiesced(&self) -> Option<bool> {
        self.log.quiesced()
    }

    /// IUs that volumes on a space can store at the given over-provisioning, parts per thousand of what is
    /// exported. It depends on nothing that changes while the vSSD lives: a store opened with the same staging always
    /// has them.
    pub fn exportable_ius(
        space: &dyn EraseBlockSpace,
        staging_size_bytes: Option<usize>,
        over_provisioning_permille: u32,
        placement: Placement,
    ) -> u64 {
        let usable = Log::usable_ius_of(space, staging_size_bytes, placement);
        usable * 1000 / (1000 + u64::from(over_provisioning_permille))
    }

    /// Makes a volume. The completion says that it is durable; one that exists with this size is left as it is.
    pub fn create_volume(&mut self, token: VolumeToken, volume: VolumeIndex, size_ius: u64) {
        self.rest.end();
        self.changes.push(Queued {
            token,
            volume: volume.0,
            force: true,
            change: Change::Create { size_ius },
        });
    }

    /// Deletes a volume and all its data. The completion says that it is durable.
    pub fn delete_volume(&mut self, token: VolumeToken, volume: VolumeIndex) {
        self.rest.end();
        self.changes.push(Queued { token, volume: volume.0, force: true, change: Change::Delete });
    }

    /// Size of a volume in IUs, if it exists.
    pub fn volume_size_ius(&self, volume: VolumeIndex) -> Option<u64> {
        self.maps.volumes.get(usize::from(volume.0)).filter(|v| v.exists).map(|v| v.size_ius)
    }

    /// From now on commands only wait: the store is to be opened again. Those that were begun end.
    pub fn wind_down(&mut self) {
        self.early.is_winding_down = true;
    }

    /// Commands go on after [`Store::wind_down`], which also a store that opens may have been told; gives those that waited.
    pub fn let_commands_in(&mut self) -> Vec<VolumeCommand> {
        self.early.is_winding_down = false;
        std::mem::take(&mut self.early.commands)
    }

    /// Whether nothing is under way any more after [`Store::wind_down`].
    pub fn has_wound_down(&self) -> bool {
        self.early.is_winding_down
            && self.reads.are_done()
            && self.changes.is_empty()
            && self.waiting.is_empty()
            && self.purging.is_empty()
            && !self.log.is_programming()
    }

    /// Ends a store; gives the commands that waited.
    ///
    /// # Panics
    /// If something is under way.
    pub fn into_commands(self) -> Vec<VolumeCommand> {
        assert!(self.has_wound_down(), "I-M12: what is under way belongs to this store");
        self.early.commands
    }

    /// IUs of a volume that hold data.
    pub fn volume_used_ius(&self, volume: VolumeIndex) -> u64 {
        self.maps.volumes.get(usize::from(volume.0)).map_or(0, |v| v.used_ius)
    }

    /// Figures.
    pub fn statistics(&self) -> StoreStatistics {
        StoreStatistics {
            log: *self.log.statistics(),
            host_written_ius: self.changes.host_written_ius,
            used_ius: self.maps.used_ius(),
            exported_ius: self.config.exported_ius,
        }
    }

    /// Notes that a restart would replay now, about. It keeps them in memory, so they are bounded: see `anchoring`.
    pub fn replayed_notes(&self) -> u64 {
        self.log.replayed_notes()
    }

    /// Segments that could be opened now. However often the store was cut, the cleaner finds one.
    pub fn free_segments(&self) -> u32 {
        self.log.free_segments()
    }

    /// Why it takes no writes.
    pub fn read_only_reason(&self) -> Option<&'static str> {
        self.log.read_only().or(self.log.no_room())
    }

    /// Whether it takes none because the medium has no room at present; that can end.
    pub fn lacks_room(&self) -> bool {
        self.log.read_only().is_none() && self.log.no_room().is_some()
    }

    /// How much of a deallocation, or of zeroes, the store should get at once: from its beginning, at least `piece_ius` if there is so
    /// much, and more where nothing is mapped. Also how many entries of the map have to be looked at for that.
    pub fn deallocation_piece(
        &self,
        volume: VolumeIndex,
        first_iu: u64,
        iu_count: u64,
        piece_ius: u64,
    ) -> (u64, u64) {
        if self.opening.is_some() || self.early.is_winding_down {
            let piece = piece_ius.min(iu_count);
            return (piece, piece);
        }
        self.maps.piece(volume.0, first_iu, iu_count, piece_ius)
    }

    /// A read will follow when the rest of its batch is sorted: by then its place in the map is near.
    #[inline]
    pub fn expect_read(&self, volume: VolumeIndex, first_iu: u64) {
        self.maps.prefetch(volume.0, first_iu);
    }

    /// Takes a command. Call [`Store::work`] after a batch.
    #[inline]
    pub fn submit<S: EraseBlockSpace + ?Sized>(
        &mut self,
        command: VolumeCommand,
        space: &mut S,
        completions: &mut Vec<VolumeCompletion>,
    ) {
        if self.log.is_gone() {
            completions.push(VolumeCompletion {
                token: command.token,
                result: Err(VolumeError::Gone),
                destination: None,
            });
            return;
        }
        if self.opening.is_some() || self.early.is_winding_down {
            self.early.commands.push(command);
            return;
        }
        let VolumeCommand { token, volume, operation } = command;
        let volume = volume.0;
        let (first_iu, iu_count, destination) = match operation {
            VolumeOperation::Read { first_iu, iu_count, destination } => {
                (first_iu, iu_count, Some(destination))
            }
            VolumeOperation::Verify { first_iu, iu_count } => (first_iu, iu_count, None),
            other => return self.submit_other(token, volume, other, completions),
        };
        let request = ReadRequest { token, volume, first_iu, iu_count, destination };
        let mut lent = LentOver { log: &mut self.log, maps: &mut self.maps, space };
        self.reads.read(request, &mut lent, completions);
    }

    /// Takes a command that is no read.
    fn submit_other(
        &mut self,
        token: VolumeToken,
        volume: u16,
        operation: VolumeOperation,
        completions: &mut Vec<VolumeCompletion>,
    ) {
        self.rest.end();
        let (force, change) = match operation {
            VolumeOperation::Read { .. } | VolumeOperation::Verify { .. } => {
                unreachable!("reads were taken before")
            }
            VolumeOperation::Flush => return self.flush(token, completions),
            VolumeOperation::Purge => return self.purging.push(token),
            VolumeOperation::Copy(copy) => {
                return self.reads.copies.push(CopyRequest { token, volume, copy });
            }
            VolumeOperation::Write { first_iu, payload, force_unit_access, placement } => {
                let mode = self.log.layout().content_mode();
                assert_eq!(payload.mode(), mode, "I-M5: payloads are in the medium's mode");
                // What changes the map waits for `work`: by then a batch's places in the map are near.
                self.maps.prefetch(volume, first_iu);
                (force_unit_access, Change::write(first_iu, payload, placement))
            }
            VolumeOperation::Deallocate { first_iu, iu_count } => {
                (false, Change::Deallocate { first: first_iu, count: iu_count })
            }
            VolumeOperation::WriteUncorrectable { first_iu, iu_count } => {
                (false, Change::Lose { first: first_iu, count: iu_count })
            }
            VolumeOperation::WriteZeroes { first_iu, iu_count, force_unit_access } => {
                (force_unit_access, Change::Deallocate { first: first_iu, count: iu_count })
            }
        };
        self.changes.push(Queued { token, volume, force, change });
    }

    /// Answers a flush, or lets it wait until everything before it is durable.
    fn flush(&mut self, token: VolumeToken, completions: &mut Vec<VolumeCompletion>) {
        let sequence = self.log.next_sequence();
        if mutant!("volume: flush answered early") || self.host_durable_before() >= sequence {
            completions.push(VolumeCompletion { token, result: Ok(()), destination: None });
        } else {
            self.log.want_durable(sequence);
            self.waiting.push(sequence, token);
        }
    }

    /// Takes a completion of the space.
    #[inline]
    pub fn complete(
        &mut self,
        completion: SpaceCompletion,
        space: &mut dyn EraseBlockSpace,
        completions: &mut Vec<VolumeCompletion>,
    ) {
        let is_plain = diecut_log::is_for_user(completion.token) && completion.result.is_ok();
        if is_plain && self.opening.is_none() {
            return self.reads.arrived(completion, &mut self.log, completions);
        }
        self.complete_other(completion, space, completions);
    }

    /// Takes a completion of anything but a read that worked.
    #[inline(never)]
    fn complete_other(
        &mut self,
        completion: SpaceCompletion,
        space: &mut dyn EraseBlockSpace,
        completions: &mut Vec<VolumeCompletion>,
    ) {
        self.rest.end();
        let Some(completion) = self.log.complete(completion) else { return };
        if self.opening.is_none() {
            return self.reads.failed(completion, &mut self.log, completions);
        }
        self.go_on_opening(completion, space, completions);
    }

    /// Recovery goes on.
    #[cold]
    fn go_on_opening(
        &mut self,
        completion: SpaceCompletion,
        space: &mut dyn EraseBlockSpace,
        completions: &mut Vec<VolumeCompletion>,
    ) {
        let opening = self.opening.as_mut().expect("asked by whoever opens");
        opening.step(completion, &mut Lent { log: &mut self.log, maps: &mut self.maps, space });
        if self.end_opening(space) {
            for command in std::mem::take(&mut self.early.commands) {
                self.submit(command, space, completions);
            }
        }
    }

    /// Lets the store go on: programs, cleans, answers. Call after batches of commands and completions, and at
    /// [`Store::deadline`].
    pub fn work(
        &mut self,
        now: Time,
        space: &mut dyn EraseBlockSpace,
        completions: &mut Vec<VolumeCompletion>,
    ) {
        if self.log.is_gone() {
            return self.fail_all(completions);
        }
        if self.opening.is_some() {
            return;
        }
        let rests =
            self.rest.holds(space.free_changes()) && !self.reads.copies.can_go_on(self.changes.copied_ius);
        if rests && !cfg!(debug_assertions) {
            return;
        }
        self.step(now, space, completions);
        debug_assert!(
            !rests || self.rest.holds(space.free_changes()),
            "I-M18: a store that rests has nothing to do"
        );
    }

    /// Does what there is to do.
    fn step(&mut self, now: Time, space: &mut dyn EraseBlockSpace, completions: &mut Vec<VolumeCompletion>) {
        self.log.begin_step();
        self.maps.end_step(|place| self.log.invalidate(place));
        self.log.look_for_room(space);
        self.make_changes(now, space, completions);
        if let Some(last) = self.waiting.take_due(now) {
            self.log.want_durable(last);
        }
        if (self.log.read_only().is_some() || self.log.lacks_room())
            && let Some(last) = self.waiting.last()
        {
            self.log.want_durable(last);
        }
        let asked = Asked {
            pace: self.config.anchor_pace,
            host_written_ius: self.changes.host_written_ius,
            accepted: self.accepted,
            endurance: &self.endurance,
            written_ius: &self.changes.handle_written_ius,
        };
        let anchoring_rests =
            self.anchoring.write_due(&asked, &mut Lent { log: &mut self.log, maps: &mut self.maps, space });
        if !self.purging.is_empty() {
            let is_mending = self.anchoring.is_mending(&self.log);
            self.purging.begin(is_mending, &mut Lent { log: &mut self.log, maps: &mut self.maps, space });
        }
        let mut log_rests = self.log.work(now, space, &mut self.maps);
        if !self.purging.is_empty() {
            self.answer_purges(space, completions);
        }
        // What the log released may be all that a queued change waits for, and nothing else may come to say so.
        while let Some(stream) = self.changes.next_stream(&self.log)
            && self.log.read_only().is_none()
            && self.log.has_room(stream, space)
        {
            let before = self.log.next_sequence();
            self.make_changes(now, space, completions);
            log_rests = self.log.work(now, space, &mut self.maps);
            if self.log.next_sequence() == before {
                break;
            }
        }
        if self.changes.next_stream(&self.log).is_some_and(|stream| self.log.lacks_room_for(stream)) {
            // Found by the cleaner, and no event will come that makes room.
            self.make_changes(now, space, completions);
        }
        if !self.waiting.is_empty() {
            self.answer_waiting(completions);
        }
        let rests = anchoring_rests
            && self.purging.is_empty()
            && self.changes.is_empty()
            && self.waiting.is_empty()
            && !self.maps.has_ending()
            && !self.reads.copies.can_go_on(self.changes.copied_ius)
            && log_rests;
        let next_sequence = self.log.next_sequence();
        let free_changes = space.free_changes().filter(|_| rests);
        self.rest.step(free_changes.map(|free_changes| Seen { next_sequence, free_changes }));
    }

    /// Answers whoever asked for a purge that is over, and begins the next one at once.
    #[cold]
    fn answer_purges(&mut self, space: &mut dyn EraseBlockSpace, completions: &mut Vec<VolumeCompletion>) {
        let lent = &mut Lent { log: &mut self.log, maps: &mut self.maps, space };
        self.purging.answer(lent, completions);
        self.purging.begin(self.anchoring.is_mending(lent.log), lent);
    }

    /// The power is gone: nothing is answered otherwise any more.
    #[cold]
    fn fail_all(&mut self, completions: &mut Vec<VolumeCompletion>) {
        let result = || Err(VolumeError::Gone);
        let copies = self.reads.copies.drain();
        let others = copies.into_iter().chain(self.purging.drain());
        completions.extend(self.changes.drain().chain(others).map(|token| VolumeCompletion {
            token,
            result: result(),
            destination: None,
        }));
        self.waiting.fail(&VolumeError::Gone, completions);
        let early = std::mem::take(&mut self.early.commands).into_iter().map(|command| command.token);
        completions.extend(early.map(|token| VolumeCompletion {
            token,
            result: result(),
            destination: None,
        }));
    }

    /// Answers what is durable, or never will be.
    fn answer_waiting(&mut self, completions: &mut Vec<VolumeCompletion>) {
        self.waiting.answer(self.host_durable_before(), completions);
        let error = match (self.log.read_only(), self.log.no_room()) {
            (Some(reason), _) => VolumeError::ReadOnly { reason },
            (None, Some(reason)) if self.log.lacks_room() => VolumeError::NoRoom { reason },
            _ => return,
        };
        if !self.log.is_programming() {
            // Nothing is under way that could make these durable, and nothing will be.
            self.waiting.fail(&error, completions);
        }
    }

    /// What hosts did before this sequence survives a power cut.
    fn host_durable_before(&self) -> u64 {
        self.log.host_durable_before() + u64::from(mutant!("volume: flush answered one sequence early"))
    }

    fn make_changes(
        &mut self,
        now: Time,
        space: &mut dyn EraseBlockSpace,
        completions: &mut Vec<VolumeCompletion>,
    ) {
        let mut lent = Lent { log: &mut self.log, maps: &mut self.maps, space };
        copying::go_on(&mut self.reads, &mut self.changes, &mut lent, completions);
        let endurance = &mut self.endurance;
        self.changes.make(now, &self.config, endurance, &mut lent, &mut self.waiting, completions);
    }

    /// When [`Store::work`] has something to do without an event.
    pub fn deadline(&self) -> Time {
        if self.opening.is_none()
            && (self.log.is_unfinished()
                || self.anchoring.is_mending_unfinished(&self.log, &self.maps) && !self.log.is_gone()
                || self.maps.has_ending() && !self.log.is_gone()
                || self.purging.is_due(&self.log) && !self.log.is_gone()
                || self.reads.copies.can_go_on(self.changes.copied_ius) && !self.log.is_gone())
        {
            return Time::ZERO;
        }
        self.waiting.deadline().min(self.log.deadline())
    }

    /// State in lines for people who debug.
    pub fn describe(&self) -> String {
        self.log.describe()
    }

    /// Counts that must agree with each other; O(map).
    ///
    /// # Panics
    /// If they do not.
    pub fn check_invariants(&self) {
        self.log.check_invariants();
        let counts = self.maps.count(&self.log);
        assert_eq!(counts, self.log.valid_counts(), "I-M14: live IUs of each segment");
    }
}
