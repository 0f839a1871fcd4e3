use crate::checkpoint::{Checkpoint, CheckpointPace};
use crate::contract::{
    VolumeCommand, VolumeCompletion, VolumeError, VolumeIndex, VolumeOperation, VolumeToken,
};
use crate::loss::{AcceptedLoss, Findings, LostRange, Missing, Recovery};
use crate::map::{self, Maps, NOTE_CREATE, NOTE_DEALLOCATE, NOTE_DELETE};
use crate::open::Opening;
use diecut_log::Members;
use diecut_log::{Log, LogAddress, LogConfig, LogStatistics, Stream, TOKEN_USER};
use diecut_units::{BufferLoan, BufferMut, Payload, ProtectedRegion, Span, Time, mutant};
use diecut_vssd::space::{IoClass, SpaceCompletion, SpaceToken};
use std::collections::VecDeque;

/// What is chosen when a store is opened.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// IUs volumes can store, at most [`Store::exportable_ius`].
    pub exported_ius: u64,
    /// Completions of writes do not wait for durability; hosts must flush.
    pub volatile_cache: bool,
    /// Without protected memory: how long a write waits for others to fill its chunk before the chunk is padded.
    pub group_commit: Span,
    /// Staging slots of the user stream without protected memory.
    pub user_slots: usize,
    /// How much the checkpoint may write.
    pub checkpoint: CheckpointPace,
    /// What is done about what is missing.
    pub recovery: Recovery,
}

impl Default for StoreConfig {
    fn default() -> StoreConfig {
        StoreConfig {
            exported_ius: u64::MAX,
            volatile_cache: false,
            group_commit: Span::from_micros(200),
            user_slots: 32,
            checkpoint: CheckpointPace::default(),
            recovery: Recovery::Strict,
        }
    }
}

/// Figures since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStatistics {
    /// IUs programmed by cause.
    pub log: LogStatistics,
    /// IUs that hosts wrote.
    pub host_written_ius: u64,
    /// IUs that hold data.
    pub used_ius: u64,
    /// IUs volumes can store.
    pub exported_ius: u64,
}

enum Change {
    Write { first: u64, payload: Payload, done: u32, promised: u64 },
    Deallocate { first: u64, count: u64 },
    Create { size_ius: u64 },
    Delete,
}

/// A change that has not been made, or only in part: it waits for `work`, for staging, or for space.
struct Queued {
    token: VolumeToken,
    volume: u16,
    force: bool,
    change: Change,
}

/// What the parts of a read fill.
enum Target {
    /// The part has all of it, and brings it back.
    Whole,
    /// Each part has a piece that was lent.
    Pieces(BufferLoan),
    /// Nobody wants the content.
    Nothing,
}

struct ReadOperation {
    token: VolumeToken,
    target: Target,
    pending: u32,
    lost: Option<u64>,
    gone: bool,
}

#[derive(Clone, Copy)]
struct Part {
    operation: usize,
    address: LogAddress,
    first_iu: u64,
}

/// One vSSD's log and all volumes on it.
pub struct Store {
    pub(crate) config: StoreConfig,
    pub(crate) log: Log,
    pub(crate) maps: Maps,
    pub(crate) opening: Option<Box<Opening>>,
    early: Vec<VolumeCommand>,
    queue: VecDeque<Queued>,
    /// Changes of the queue that were made, until all are: giving a payload back waits for the copies of it that were made just before.
    made: Vec<Queued>,
    promised_ius: u64,
    waiting: VecDeque<(u64, VolumeToken)>,
    pad_at: Time,
    reads: Vec<Option<ReadOperation>>,
    free_reads: Vec<usize>,
    parts: Vec<Option<Part>>,
    free_parts: Vec<usize>,
    pub(crate) host_written_ius: u64,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) findings: Findings,
    pub(crate) accepted: AcceptedLoss,
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
    pub fn open(config: StoreConfig, space: &mut dyn Members, staging: Option<ProtectedRegion>) -> Store {
        let log = Log::new(&LogConfig { user_slots: config.user_slots }, space, staging);
        let mut store = Store {
            config,
            log,
            maps: Maps::default(),
            opening: Some(Box::default()),
            early: Vec::new(),
            queue: VecDeque::new(),
            made: Vec::new(),
            promised_ius: 0,
            waiting: VecDeque::new(),
            pad_at: Time::NEVER,
            reads: Vec::new(),
            free_reads: Vec::new(),
            parts: Vec::new(),
            free_parts: Vec::new(),
            host_written_ius: 0,
            checkpoint: Checkpoint::default(),
            findings: Findings::default(),
            accepted: AcceptedLoss::default(),
            is_winding_down: false,
        };
        store.config.exported_ius = store.config.exported_ius.min(store.log.usable_ius());
        store.start_opening(space);
        store
    }

    /// Whether recovery is done.
    pub fn is_ready(&self) -> bool {
        self.opening.is_none()
    }

    /// From now on little is programmed at once, and the rest waits in staging, or not any more: what is under way on flash ends
    /// soon, while the store goes on to serve. [`Store::work`] follows.
    pub fn quiesce(&mut self, is_quiescing: bool) {
        self.log.quiesce(is_quiescing);
    }

    /// Whether that little is all that is programmed now.
    pub fn is_quiesced(&self) -> bool {
        self.log.is_quiesced()
    }

    /// IUs that volumes on a space can store at the given over-provisioning, parts per thousand of what is
    /// exported. It depends on nothing that changes while the vSSD lives: a store opened with the same staging always
    /// has them.
    pub fn exportable_ius(
        space: &dyn Members,
        staging_size_bytes: Option<usize>,
        over_provisioning_permille: u32,
    ) -> u64 {
        let usable = Log::usable_ius_of(space, staging_size_bytes);
        usable * 1000 / (1000 + u64::from(over_provisioning_permille))
    }

    /// Makes a volume. The completion says that it is durable; one that exists with this size is left as it is.
    pub fn create_volume(&mut self, token: VolumeToken, volume: VolumeIndex, size_ius: u64) {
        self.queue.push_back(Queued {
            token,
            volume: volume.0,
            force: true,
            change: Change::Create { size_ius },
        });
    }

    /// Deletes a volume and all its data. The completion says that it is durable.
    pub fn delete_volume(&mut self, token: VolumeToken, volume: VolumeIndex) {
        self.queue.push_back(Queued { token, volume: volume.0, force: true, change: Change::Delete });
    }

    /// Size of a volume in IUs, if it exists.
    pub fn volume_size_ius(&self, volume: VolumeIndex) -> Option<u64> {
        self.maps.volumes.get(usize::from(volume.0)).filter(|v| v.exists).map(|v| v.size_ius)
    }

    /// A volume that was made, and of which recovery found nothing: the medium lost it. Reads of it fail, and the store takes
    /// no writes unless loss is accepted.
    ///
    /// # Panics
    /// If recovery is not done, or the volume exists.
    pub fn volume_lost(&mut self, volume: VolumeIndex, size_ius: u64) {
        assert!(self.opening.is_none(), "recovery tells what there is");
        let missing = Missing::Volume { volume };
        self.findings.miss(missing);
        let map = self.maps.volume(volume.0);
        assert!(!map.exists, "what was found is not lost");
        map.exists = true;
        // No leaf says so yet: an anchor waits for all of them.
        map.resize(size_ius, 0);
        map.entries.fill(LogAddress::LOST.into());
        (0..map.leaves.len()).for_each(|leaf| map.mark_dirty(leaf * map::LEAF_ENTRIES));
        self.maps.open_group = None;
        if self.config.recovery == Recovery::Accept && !self.findings.is_of_other_version() {
            self.accepted.ius = self.lost_ranges(0).1;
            self.begin_mending(Vec::new());
        } else {
            self.log.keep_all(missing.reason());
        }
    }

    /// Whether it takes no writes because something is missing, and has changed nothing on the medium since: it can be opened again.
    pub fn is_kept(&self) -> bool {
        self.log.is_kept()
    }

    /// What recovery missed.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// What was accepted as lost since the store was made.
    pub fn accepted_loss(&self) -> AcceptedLoss {
        self.accepted
    }

    /// Ranges whose reads fail because what lay there is lost, the first `ranges_max` of them, and how many IUs there are in all.
    /// It looks at the whole map.
    pub fn lost_ranges(&self, ranges_max: usize) -> (Vec<LostRange>, u64) {
        let mut ranges: Vec<LostRange> = Vec::new();
        let mut lost_ius = 0;
        for (number, volume) in self.maps.volumes.iter().enumerate().filter(|(_, volume)| volume.exists) {
            let number = VolumeIndex(number as u16);
            let lost = volume.written_parts().into_iter().flatten();
            for iu in lost.filter(|iu| volume.entries[*iu].get() == LogAddress::LOST) {
                let iu = iu as u64;
                lost_ius += 1;
                let is_full = ranges.len() == ranges_max;
                match ranges.last_mut() {
                    Some(last) if last.volume == number && last.first_iu + last.iu_count == iu => {
                        last.iu_count += 1;
                    }
                    _ if is_full => {}
                    _ => ranges.push(LostRange { volume: number, first_iu: iu, iu_count: 1 }),
                }
            }
        }
        (ranges, lost_ius)
    }

    /// From now on commands only wait: the store is to be opened again. Those that were begun end.
    pub fn wind_down(&mut self) {
        self.is_winding_down = true;
    }

    /// Whether nothing is under way any more after [`Store::wind_down`].
    pub fn has_wound_down(&self) -> bool {
        self.is_winding_down
            && self.reads.iter().all(Option::is_none)
            && self.queue.is_empty()
            && self.waiting.is_empty()
            && !self.log.is_programming()
    }

    /// Ends a store; gives the commands that waited.
    ///
    /// # Panics
    /// If something is under way.
    pub fn into_commands(self) -> Vec<VolumeCommand> {
        assert!(self.has_wound_down(), "what is under way belongs to this store");
        self.early
    }

    /// IUs of a volume that hold data.
    pub fn volume_used_ius(&self, volume: VolumeIndex) -> u64 {
        self.maps.volumes.get(usize::from(volume.0)).map_or(0, |v| v.used_ius)
    }

    /// Figures.
    pub fn statistics(&self) -> StoreStatistics {
        StoreStatistics {
            log: *self.log.statistics(),
            host_written_ius: self.host_written_ius,
            used_ius: self.used_ius(),
            exported_ius: self.config.exported_ius,
        }
    }

    /// Notes that a restart would replay now, about. It keeps them in memory, so they are bounded: see `checkpoint`.
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

    fn used_ius(&self) -> u64 {
        self.maps.volumes.iter().map(|v| v.used_ius).sum()
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
        if self.opening.is_some() || self.is_winding_down {
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
    pub fn submit(
        &mut self,
        command: VolumeCommand,
        space: &mut dyn Members,
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
        if self.opening.is_some() || self.is_winding_down {
            self.early.push(command);
            return;
        }
        let VolumeCommand { token, volume, operation } = command;
        let volume = volume.0;
        match operation {
            VolumeOperation::Read { first_iu, iu_count, destination } => {
                self.read(token, volume, first_iu, iu_count, Some(destination), space, completions);
            }
            VolumeOperation::Verify { first_iu, iu_count } => {
                self.read(token, volume, first_iu, iu_count, None, space, completions);
            }
            VolumeOperation::Flush => {
                let sequence = self.log.next_sequence();
                if mutant!("volume: flush answered early") || self.host_durable_before() >= sequence {
                    completions.push(VolumeCompletion { token, result: Ok(()), destination: None });
                } else {
                    self.log.want_durable(sequence);
                    self.waiting.push_back((sequence, token));
                }
            }
            VolumeOperation::Write { first_iu, payload, force_unit_access } => {
                assert_eq!(
                    payload.mode(),
                    self.log.layout().content_mode(),
                    "payloads are in the medium's mode"
                );
                // What changes the map waits for `work`: by then a batch's places in the map are near.
                self.maps.prefetch(volume, first_iu);
                let change = Change::Write { first: first_iu, payload, done: 0, promised: u64::MAX };
                self.queue.push_back(Queued { token, volume, force: force_unit_access, change });
            }
            VolumeOperation::Deallocate { first_iu, iu_count } => {
                let change = Change::Deallocate { first: first_iu, count: iu_count };
                self.queue.push_back(Queued { token, volume, force: false, change });
            }
            VolumeOperation::WriteZeroes { first_iu, iu_count, force_unit_access } => {
                let change = Change::Deallocate { first: first_iu, count: iu_count };
                self.queue.push_back(Queued { token, volume, force: force_unit_access, change });
            }
        }
    }

    /// Returns `false` if it must wait.
    fn try_change(
        &mut self,
        queued: &mut Queued,
        now: Time,
        space: &mut dyn Members,
        completions: &mut Vec<VolumeCompletion>,
    ) -> bool {
        let volume = queued.volume;
        if let Some(reason) = self.log.read_only() {
            let result = Err(VolumeError::ReadOnly { reason });
            completions.push(VolumeCompletion { token: queued.token, result, destination: None });
            return true;
        }
        match &mut queued.change {
            Change::Write { first, payload, done, promised } => {
                let (first, count) = (*first, payload.iu_count());
                if *promised == u64::MAX {
                    let entries = &self.maps.volumes[usize::from(volume)].entries;
                    let range = &entries[first as usize..first as usize + count as usize];
                    let new = range.iter().filter(|e| !e.get().is_place()).count() as u64;
                    if new > 0 && self.used_ius() + self.promised_ius + new > self.config.exported_ius {
                        completions.push(VolumeCompletion {
                            token: queued.token,
                            result: Err(VolumeError::Full),
                            destination: None,
                        });
                        return true;
                    }
                    *promised = new;
                    self.promised_ius += new;
                }
                while *done < count {
                    let iu = first + u64::from(*done);
                    let content = payload.iu(*done);
                    let Some(address) = self.log.append(Stream::User, map::tag(volume, iu), content, space)
                    else {
                        if self.log.lacks_room() {
                            self.promised_ius -= *promised;
                            return self.answer_no_room(queued.token, completions);
                        }
                        return false;
                    };
                    let old = self.maps.set(volume, iu, address);
                    if old.is_place() {
                        self.log.invalidate(old);
                    }
                    *done += 1;
                }
                self.promised_ius -= *promised;
                self.host_written_ius += u64::from(count);
            }
            Change::Deallocate { first, count } => {
                // What has no entry reads as zeros already, and what made it so is durable before what follows.
                while let Some((from, part)) = self.maps.next_part(volume, *first, *count) {
                    let recorded = if mutant!("volume: deallocate record lost") { 0 } else { part };
                    if self.log.note(map::note(NOTE_DEALLOCATE, volume, from, recorded), space).is_none() {
                        return self.log.lacks_room() && self.answer_no_room(queued.token, completions);
                    }
                    let kept = u64::from(mutant!("volume: last IU of a deallocation kept"));
                    for iu in from..from + part - kept {
                        if self.maps.get(volume, iu) == LogAddress::NONE {
                            continue;
                        }
                        let old = self.maps.set(volume, iu, LogAddress::NONE);
                        if old.is_place() {
                            self.log.invalidate(old);
                        }
                    }
                    let done = from + part - *first;
                    (*first, *count) = (*first + done, *count - done);
                }
            }
            Change::Create { size_ius } => {
                let size_ius = *size_ius;
                let others =
                    self.maps.volumes.iter().enumerate().filter(|(at, _)| *at != usize::from(volume));
                let others: u64 = others.map(|(_, map)| map.entries.len() as u64).sum();
                let is_too_much = others + size_ius > self.log.map_ius_max();
                if self.maps.is_ending(volume) || is_too_much && self.maps.has_ending() {
                    // What was deleted gives its part of the maps back in a moment.
                    return false;
                }
                if is_too_much {
                    let result = Err(VolumeError::Full);
                    completions.push(VolumeCompletion { token: queued.token, result, destination: None });
                    return true;
                }
                let existing = self.maps.volume(volume);
                if !existing.exists || existing.size_ius != size_ius {
                    // While the map of a volume that had this number came to its end, the cleaner went on to copy what was in it:
                    // those records come after the deletion. A creation begins with another one.
                    if !existing.exists
                        && !mutant!("volume: copies of a deleted volume are left to the next one")
                        && self.log.note(map::note(NOTE_DELETE, volume, 0, 0), space).is_none()
                    {
                        return self.log.lacks_room() && self.answer_no_room(queued.token, completions);
                    }
                    let sequence = self.log.next_sequence();
                    if self.log.note(map::note(NOTE_CREATE, volume, 0, size_ius), space).is_none() {
                        return self.log.lacks_room() && self.answer_no_room(queued.token, completions);
                    }
                    let volume = self.maps.volume(volume);
                    assert!(!volume.exists || size_ius >= volume.size_ius, "volumes do not shrink");
                    volume.exists = true;
                    volume.resize(size_ius, sequence);
                    self.maps.open_group = None;
                }
            }
            Change::Delete => {
                if self.maps.volume(volume).exists {
                    if self.log.note(map::note(NOTE_DELETE, volume, 0, 0), space).is_none() {
                        return self.log.lacks_room() && self.answer_no_room(queued.token, completions);
                    }
                    self.maps.delete(volume);
                    self.drop_staged(volume, space);
                }
            }
        }
        let sequence = self.log.next_sequence();
        let cached = self.config.volatile_cache && !queued.force;
        if self.log.is_protected() || cached {
            completions.push(VolumeCompletion { token: queued.token, result: Ok(()), destination: None });
        } else {
            if queued.force {
                self.log.want_durable(sequence);
            } else if self.pad_at == Time::NEVER {
                self.pad_at = now + self.config.group_commit;
            }
            self.waiting.push_back((sequence, queued.token));
        }
        true
    }

    /// What is staged of a volume that was just deleted is not programmed any more, as far as it has not begun.
    #[cold]
    fn drop_staged(&mut self, volume: u16, space: &mut dyn Members) {
        // With the note: it is what says that nobody needs the rest.
        self.log.publish();
        for (tag, place) in self.log.staged_ius() {
            if self.maps.forget(volume, tag, place) {
                self.log.invalidate(place);
            }
        }
        self.log.withdraw_dead(space, &mut self.maps);
    }

    /// Answers a change for which the medium has no room; always `true`.
    #[cold]
    fn answer_no_room(&self, token: VolumeToken, completions: &mut Vec<VolumeCompletion>) -> bool {
        let reason = self.log.no_room().expect("it lacks room");
        let result = Err(VolumeError::NoRoom { reason });
        completions.push(VolumeCompletion { token, result, destination: None });
        true
    }

    #[allow(clippy::too_many_arguments, reason = "read and verify share it")]
    fn read(
        &mut self,
        token: VolumeToken,
        volume: u16,
        first_iu: u64,
        iu_count: u32,
        destination: Option<BufferMut>,
        space: &mut dyn Members,
        completions: &mut Vec<VolumeCompletion>,
    ) {
        let iu_bytes = self.log.layout().content_mode().bytes_per_iu();
        let verify = destination.is_none();
        let destination = destination.unwrap_or_else(|| self.log.pool().take(iu_count as usize * iu_bytes));
        assert_eq!(
            destination.len(),
            iu_count as usize * iu_bytes,
            "the destination is as long as the range"
        );
        let operation = take_slot(&mut self.reads, &mut self.free_reads);
        let first = self.maps.get(volume, first_iu);
        if first.is_place()
            && self.log.staged(first).is_none()
            && self.run_len(volume, first_iu, first, iu_count) == iu_count
        {
            let part = Part { operation, address: first, first_iu };
            self.read_part(part, iu_count, destination, space);
            let target = if verify { Target::Nothing } else { Target::Whole };
            self.reads[operation] =
                Some(ReadOperation { token, target, pending: 1, lost: None, gone: false });
            return;
        }
        let (loan, mut rest) = destination.lend();
        let mut pending = 0;
        let mut lost = None;
        let mut done = 0;
        while done < iu_count {
            let iu = first_iu + u64::from(done);
            let address = self.maps.get(volume, iu);
            if address == LogAddress::NONE {
                rest.split_to(iu_bytes).fill(0);
                done += 1;
                continue;
            }
            if address == LogAddress::LOST {
                lost.get_or_insert(iu);
                rest.split_to(iu_bytes).fill(0);
                done += 1;
                continue;
            }
            if let Some(content) = self.log.staged(address) {
                rest.split_to(iu_bytes).copy_from_slice(content);
                done += 1;
                continue;
            }
            let count = self.run_len(volume, iu, address, iu_count - done);
            let buffer = rest.split_to(count as usize * iu_bytes);
            self.read_part(Part { operation, address, first_iu: iu }, count, buffer, space);
            pending += 1;
            done += count;
        }
        drop(rest);
        if pending == 0 {
            self.free_reads.push(operation);
            let destination = (!verify && lost.is_none()).then(|| loan.reclaim());
            let result = lost.map_or(Ok(()), |iu| Err(VolumeError::Unrecovered { iu }));
            completions.push(VolumeCompletion { token, result, destination });
            return;
        }
        let target = if verify { Target::Nothing } else { Target::Pieces(loan) };
        self.reads[operation] = Some(ReadOperation { token, target, pending, lost, gone: false });
    }

    /// How many IUs from `iu` on, at most `limit`, lie on flash one behind the other from `address` on.
    fn run_len(&self, volume: u16, iu: u64, address: LogAddress, limit: u32) -> u32 {
        let limit = self.log.run_limit(address).min(limit);
        let follows = |count: &u32| {
            let next = LogAddress(address.0 + count);
            self.maps.get(volume, iu + u64::from(*count)) == next && self.log.staged(next).is_none()
        };
        (1..limit).find(|count| !follows(count)).unwrap_or(limit)
    }

    fn read_part(&mut self, part: Part, iu_count: u32, destination: BufferMut, space: &mut dyn Members) {
        let index = take_slot(&mut self.parts, &mut self.free_parts);
        let token = SpaceToken(TOKEN_USER | index as u64);
        self.log.read(token, part.address, iu_count, destination, IoClass::HostRead, space);
        self.parts[index] = Some(part);
    }

    /// Takes a completion of the space.
    pub fn complete(
        &mut self,
        completion: SpaceCompletion,
        space: &mut dyn Members,
        completions: &mut Vec<VolumeCompletion>,
    ) {
        let Some(mut completion) = self.log.complete(completion) else { return };
        if self.opening.is_some() {
            self.opening_step(completion, space);
            if self.opening.is_none() {
                for command in std::mem::take(&mut self.early) {
                    self.submit(command, space, completions);
                }
            }
            return;
        }
        let index = (completion.token.0 & 0xffff_ffff) as usize;
        let part = self.parts[index].take().expect("a part waits for this read");
        self.free_parts.push(index);
        self.log.unpin(part.address);
        let operation = self.reads[part.operation].as_mut().expect("parts belong to a read");
        operation.pending -= 1;
        let iu_bytes = self.log.layout().content_mode().bytes_per_iu();
        match (&completion.result, &completion.destination, &completion.oob) {
            (Ok(()), Some(data), Some(oob)) => {
                if let Err(iu) = self.log.verify(part.address, iu_bytes, data, oob) {
                    operation.lost =
                        Some(operation.lost.unwrap_or(u64::MAX).min(part.first_iu + u64::from(iu)));
                }
            }
            (Err(diecut_vssd::space::SpaceError::PowerLost), ..) => operation.gone = true,
            _ => operation.lost = Some(operation.lost.unwrap_or(u64::MAX).min(part.first_iu)),
        }
        let whole = completion.destination.take_if(|_| matches!(operation.target, Target::Whole));
        drop(completion);
        if operation.pending == 0 {
            let operation = self.reads[part.operation].take().expect("pending");
            self.free_reads.push(part.operation);
            let result = match (operation.gone, operation.lost) {
                (true, _) => Err(VolumeError::Gone),
                (_, Some(iu)) => Err(VolumeError::Unrecovered { iu }),
                _ => Ok(()),
            };
            let destination = match operation.target {
                Target::Whole => whole,
                Target::Pieces(loan) => loan.try_reclaim().ok(),
                Target::Nothing => None,
            };
            let destination = destination.filter(|_| result.is_ok());
            completions.push(VolumeCompletion { token: operation.token, result, destination });
        }
    }

    /// Lets the store go on: programs, cleans, answers. Call after batches of commands and completions, and at
    /// [`Store::deadline`].
    pub fn work(&mut self, now: Time, space: &mut dyn Members, completions: &mut Vec<VolumeCompletion>) {
        if self.log.is_gone() {
            let queue = std::mem::take(&mut self.queue).into_iter().map(|s| s.token);
            let waiting = std::mem::take(&mut self.waiting).into_iter().map(|(_, token)| token);
            let early = std::mem::take(&mut self.early).into_iter().map(|command| command.token);
            completions.extend(queue.chain(waiting).chain(early).map(|token| VolumeCompletion {
                token,
                result: Err(VolumeError::Gone),
                destination: None,
            }));
            return;
        }
        if self.opening.is_some() {
            return;
        }
        self.log.begin_step();
        self.maps.end_step(|place| self.log.invalidate(place));
        self.log.look_for_room(space);
        self.make_changes(now, space, completions);
        if let Some((last, _)) = self.waiting.back()
            && now >= self.pad_at
        {
            self.log.want_durable(*last);
            self.pad_at = Time::NEVER;
        }
        if (self.log.read_only().is_some() || self.log.lacks_room())
            && let Some((last, _)) = self.waiting.back()
        {
            self.log.want_durable(*last);
        }
        self.checkpoint(space);
        self.log.work(now, space, &mut self.maps);
        // What the log released may be all that a queued change waits for, and nothing else may come to say so.
        while !self.queue.is_empty()
            && self.log.read_only().is_none()
            && self.log.has_room(Stream::User, space)
        {
            let before = self.log.next_sequence();
            self.make_changes(now, space, completions);
            self.log.work(now, space, &mut self.maps);
            if self.log.next_sequence() == before {
                break;
            }
        }
        if self.log.lacks_room() && !self.queue.is_empty() {
            // Found by the cleaner, and no event will come that makes room.
            self.make_changes(now, space, completions);
        }
        if !self.waiting.is_empty() {
            let durable = self.host_durable_before();
            while let Some((sequence, token)) = self.waiting.front()
                && durable >= *sequence
            {
                completions.push(VolumeCompletion { token: *token, result: Ok(()), destination: None });
                self.waiting.pop_front();
            }
            let error = match (self.log.read_only(), self.log.no_room()) {
                (Some(reason), _) => Some(VolumeError::ReadOnly { reason }),
                (None, Some(reason)) if self.log.lacks_room() => Some(VolumeError::NoRoom { reason }),
                _ => None,
            };
            if let Some(error) = error
                && !self.log.is_programming()
            {
                // Nothing is under way that could make these durable, and nothing will be.
                let failed = self.waiting.drain(..).map(|(_, token)| token);
                let result = || Err(error.clone());
                completions.extend(failed.map(|token| VolumeCompletion {
                    token,
                    result: result(),
                    destination: None,
                }));
            }
            if self.waiting.is_empty() {
                self.pad_at = Time::NEVER;
            }
        }
    }

    /// What hosts did before this sequence survives a power cut.
    fn host_durable_before(&self) -> u64 {
        self.log.host_durable_before() + u64::from(mutant!("volume: flush answered one sequence early"))
    }

    fn make_changes(&mut self, now: Time, space: &mut dyn Members, completions: &mut Vec<VolumeCompletion>) {
        let mut queue = std::mem::take(&mut self.queue);
        while let Some(queued) = queue.front_mut()
            && self.try_change(queued, now, space, completions)
        {
            self.made.extend(queue.pop_front());
        }
        self.queue = queue;
        self.made.clear();
        // Before anyone sees the completions.
        self.log.publish();
    }

    /// When [`Store::work`] has something to do without an event.
    pub fn deadline(&self) -> Time {
        if self.opening.is_none()
            && (self.log.is_unfinished()
                || self.is_mending_unfinished() && !self.log.is_gone()
                || self.maps.has_ending() && !self.log.is_gone())
        {
            return Time::ZERO;
        }
        let padding = if self.waiting.is_empty() { Time::NEVER } else { self.pad_at };
        padding.min(self.log.deadline())
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
        let mut counts = vec![0u32; self.log.segment_count() as usize];
        for volume in &self.maps.volumes {
            let mut used = 0;
            for entry in volume.written_parts().into_iter().flat_map(|part| &volume.entries[part]) {
                used += u64::from(entry.get().is_place());
                if entry.get().is_place() {
                    counts[self.log.layout().segment_of(entry.get()).0 as usize] += 1;
                }
            }
            for leaf in volume.leaves.iter().map(|leaf| leaf.get()).filter(|leaf| leaf.is_place()) {
                counts[self.log.layout().segment_of(leaf).0 as usize] += 1;
            }
            assert_eq!(if volume.exists { used } else { 0 }, volume.used_ius, "used IUs");
        }
        assert_eq!(counts, self.log.valid_counts(), "live IUs of each segment");
    }
}

fn take_slot<T>(slots: &mut Vec<Option<T>>, free: &mut Vec<usize>) -> usize {
    free.pop().unwrap_or_else(|| {
        slots.push(None);
        slots.len() - 1
    })
}
