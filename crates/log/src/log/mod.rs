//! The log of one vSSD: wiring of the writer and the cleaner, and what its owner calls.

mod recover;

use crate::anchor::Anchor;
use crate::anchor2::{self, AnchorPart};
use crate::anchors::Anchors;
use crate::any_anchor::AnyAnchor;
use crate::cleaner::Cleaner;
use crate::condition::{COUNTERS_USED_UP, NO_GOOD_BLOCKS, NO_ROOM};
use crate::flushes::Entries;
use crate::placement::{PerGroup, Placement, PlacementHandle, ReclaimGroup};
use crate::purge::{Purge, PurgeError};
use crate::reserve::DISPLACED_LEAVE;
use crate::segments::{self, Run, Segments};
use crate::staging::{HeadForm, Programmed, Staging};
use crate::supply::Supply;
use crate::token::{
    TOKEN_ANCHOR, TOKEN_APPEND, TOKEN_COPY, TOKEN_FLUSH, TOKEN_HEAD, TOKEN_NOBODY, TOKEN_PURGE, group_in,
};
use crate::writer::{Appended, Pace, Writer};
use crate::{
    Check, Format, HandleStatistics, Layout, LogAddress, LogStatistics, Owner, SegmentIndex, Stream,
    StreamKind, TagForm,
};
use diecut_units::token::space::KIND_MASK;
use diecut_units::{BufferMut, BufferPool, ProtectedRegion, Span, Time, mutant};
use diecut_vssd::space::{EraseBlockSpace, IoClass, SpaceCompletion, SpaceError, SpaceToken};

/// How long after it was last called a log that found no room on the medium wants to look again.
const LOOK_AGAIN: Span = Span::from_secs(1);

/// How long a purge waits for somebody below who still reads a slot, or for an anchor to go on.
const LOOK_AT_PURGE: Span = Span::from_millis(1);

/// What is chosen when a log is made.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Staging slots of host data where there is no protected memory.
    pub user_slots: usize,
    /// Reclaim unit handles and reclaim groups; always the same ones.
    pub placement: Placement,
    /// What is written, once recovery is done. Both are read, and a store that has the later one goes on with it.
    pub format: Format,
    /// How the owner's tags stand in those of version 3.
    pub tags: TagForm,
}

/// The log of one vSSD. Lower rooms are lent at each call.
pub struct Log {
    writer: Writer,
    /// One in each reclaim group.
    cleaners: PerGroup<Cleaner>,
    purge: Purge,
    /// When [`Log::work`] was last called.
    worked_at: Time,
}

impl Log {
    /// A log over an empty or recovered space; `staging` is its part of protected memory, if the medium has some.
    pub fn new(config: &LogConfig, space: &dyn EraseBlockSpace, staging: Option<ProtectedRegion>) -> Log {
        let staging_size_bytes = staging.as_ref().map(|region| region.len());
        let layout = config.placement.layout(space, staging_size_bytes);
        // Without OOB areas nothing but the head says what a chunk holds.
        let format = if layout.shape.has_oob() { config.format } else { Format::Three };
        let form = HeadForm { format, tags: config.tags, life: 1 };
        let staging = Staging::new(&layout, config.user_slots, staging, form);
        let segments = Segments::new(layout, space, staging.user_slot_count());
        let mut writer = Writer::new(segments, staging);
        writer.count_free(space);
        let cleaners = PerGroup::new(writer.segments.layout.streams.placement().groups, Cleaner::new);
        Log { writer, cleaners, purge: Purge::default(), worked_at: Time::ZERO }
    }

    /// The arithmetic.
    pub fn layout(&self) -> &Layout {
        &self.writer.segments.layout
    }

    /// IUs programmed by cause.
    pub fn statistics(&self) -> &LogStatistics {
        &self.writer.statistics
    }

    /// What was programmed for each reclaim unit handle.
    pub fn handle_statistics(&self) -> &[HandleStatistics] {
        &self.writer.placing.figures
    }

    /// Why no more is written.
    pub fn read_only(&self) -> Option<&'static str> {
        self.writer.condition.read_only()
    }

    /// Why nothing is written at present, if the medium has no room. Unlike what [`Log::read_only`] says it can end.
    pub fn no_room(&self) -> Option<&'static str> {
        self.writer.has_no_room().then_some(NO_ROOM)
    }

    /// Looks whether the medium has room again, if it had none.
    pub fn look_for_room(&mut self, space: &mut dyn EraseBlockSpace) {
        for supply in self.writer.supplies.iter_mut() {
            supply.look_for_room(&self.writer.segments, space);
        }
    }

    /// Whether no stream of host data takes anything because the medium has no room, and not because something else is waited for.
    pub fn lacks_room(&self) -> bool {
        self.layout().streams.of(StreamKind::User).all(|stream| self.lacks_room_for(stream))
    }

    /// As [`Log::lacks_room`], of one stream.
    pub fn lacks_room_for(&self, stream: Stream) -> bool {
        self.writer.supply_of(stream).has_no_room()
            && self.writer.staging.open_of(stream).is_none()
            && self.writer.segments.open_of(stream).is_none()
    }

    /// What is written.
    pub fn format(&self) -> Format {
        self.writer.staging.form.format
    }

    /// What is opened from now on is written like this.
    pub fn write_as(&mut self, format: Format) {
        let form = HeadForm { format, life: self.writer.life, ..self.writer.staging.form };
        self.writer.staging.write_as(form);
    }

    /// Whether the newest anchor that holds is of version 2.
    pub fn holds_anchor_of_two(&self) -> bool {
        self.writer.anchors.holds_two
    }

    /// Whether the power is gone.
    pub fn is_gone(&self) -> bool {
        self.writer.condition.is_gone()
    }

    /// Whether user data is durable once published.
    pub fn is_protected(&self) -> bool {
        self.writer.staging.is_protected()
    }

    /// Sequence that the next entry gets.
    pub fn next_sequence(&self) -> u64 {
        self.writer.next_sequence
    }

    /// Segments that could be opened now, in all reclaim groups.
    pub fn free_segments(&self) -> u32 {
        self.writer.supplies.iter().map(Supply::free_segments).sum()
    }

    /// Live IUs of a reclaim group, leaves included, where there are several.
    pub fn live_ius(&self, group: ReclaimGroup) -> Option<u64> {
        self.writer.segments.live_in(group)
    }

    /// The reclaim group of a place.
    pub fn group_of(&self, address: LogAddress) -> ReclaimGroup {
        self.writer.segments.reclaim_group_of(self.writer.segments.index_of(address))
    }

    /// Segments that lie on flash when none is bad: greater numbers stand for chunks found in staging.
    pub fn flash_segment_count(&self) -> u32 {
        self.writer.segments.flash_count()
    }

    /// Numbers of segments.
    pub fn segment_count(&self) -> u32 {
        self.writer.segments.count()
    }

    /// Buffers of this log.
    pub fn pool(&mut self) -> &mut BufferPool {
        &mut self.writer.pool
    }

    /// All entries before this one are durable against a power cut.
    pub fn durable_before(&self) -> u64 {
        self.writer.durable_before()
    }

    /// All entries of host data before this one are durable: what hosts were told, or ask for. A copy that is not
    /// yet durable has its original.
    pub fn host_durable_before(&self) -> u64 {
        self.writer.durable(Entries::Host)
    }

    /// Asks that all entries before `sequence` become durable without waiting for chunks to fill.
    pub fn want_durable(&mut self, sequence: u64) {
        self.writer.want_durable(sequence);
    }

    /// Counts a place as live.
    #[inline]
    pub fn validate(&mut self, address: LogAddress) {
        self.writer.segments.validate(address);
    }

    /// Counts a place as dead.
    ///
    /// # Panics
    /// If nothing lives in its segment.
    #[inline]
    pub fn invalidate(&mut self, address: LogAddress) {
        self.writer.segments.invalidate(address);
    }

    /// Whether one more IU can be appended to the stream without waiting.
    pub fn has_room(&mut self, stream: Stream, space: &mut dyn EraseBlockSpace) -> bool {
        self.writer.has_room(stream, space)
    }

    /// Appends an IU. Gives where it is, or `None` if staging, space or the cleaner must be waited for. In staging it is at once
    /// readable; [`Log::publish`] makes it survive the process.
    #[inline]
    pub fn append(
        &mut self,
        stream: Stream,
        tag: u64,
        content: &[u8],
        space: &mut dyn EraseBlockSpace,
    ) -> Option<Appended> {
        self.writer.append(stream, tag, content, space)
    }

    /// Appends a note to the stream of the first handle; durable like a write. `None` as for [`Log::append`].
    pub fn note(&mut self, words: [u64; 3], space: &mut dyn EraseBlockSpace) -> Option<u64> {
        self.writer.note(Stream::USER, words, space)
    }

    /// Makes what was appended to streams of host data survive the death of the process, and a power cut where staging
    /// is protected.
    pub fn publish(&mut self) {
        if !mutant!("log: staging not published") {
            self.writer.staging.publish();
        }
    }

    /// Tags and places of all IUs of host data that are in staging.
    pub fn staged_ius(&self) -> Vec<(u64, LogAddress)> {
        self.writer.staged_ius()
    }

    /// Takes back chunks of the open segment in which nothing lives. Their slots are free at once, and what waits behind them moves up.
    /// A chunk stays if a program of it, or of one behind it, has begun.
    ///
    /// Only in protected memory: there the note that makes them dead, published before, is durable. Elsewhere a cut could bring back the
    /// time before it, when they were needed.
    pub fn withdraw_dead(&mut self, space: &mut dyn EraseBlockSpace, owner: &mut impl Owner) {
        self.writer.withdraw_dead(space, owner);
    }

    /// Whether [`Log::work`] has more to do without an event.
    pub fn is_unfinished(&self) -> bool {
        let condition = &self.writer.condition;
        let is_unfinished = self.cleaners.iter().any(Cleaner::is_unfinished) || self.purge.is_unfinished();
        is_unfinished && !condition.is_gone() && !condition.keeps_all()
    }

    /// Whether programs are under way.
    pub fn is_programming(&self) -> bool {
        self.writer.staging.programming_count() > 0
    }

    /// From now on only as many chunks are programmed at once as keep all units at work, or again as many as are sealed. Appends go
    /// on meanwhile: chunks wait in staging instead of in the queues of dies, so that what is under way ends soon.
    pub fn quiesce(&mut self, is_quiescing: bool) {
        self.writer.is_quiescing = is_quiescing;
    }

    /// Whether no more chunks are under way than [`Log::quiesce`] lets begin; `None` where it lets as many begin as are sealed.
    pub fn quiesced(&self) -> Option<bool> {
        let is_so = self.writer.staging.programming_count() <= self.writer.quiet_chunks();
        self.writer.is_quiescing.then_some(is_so)
    }

    /// Before writers are asked whether they go on: those that wait now count for [`Log::deadline`].
    pub fn begin_step(&mut self) {
        self.writer.paces.iter_mut().for_each(Pace::begin_step);
    }

    /// When writers that wait for the cleaner may go on, or the medium, which had no room, is to be asked again: [`Log::work`] is to be
    /// called then, and [`Log::look_for_room`] before.
    pub fn deadline(&self) -> Time {
        let purge = if self.purge.looks_again() { self.worked_at + LOOK_AT_PURGE } else { Time::NEVER };
        let paces = self.writer.paces.iter().map(Pace::deadline);
        let flush = if self.is_gone() { Time::NEVER } else { self.writer.flushes.deadline() };
        paces.fold(purge.min(self.looks_for_room_at()).min(flush), Time::min)
    }

    /// Nothing else tells that there is room again when nobody writes.
    fn looks_for_room_at(&self) -> Time {
        let looks = self.writer.has_no_room() && self.read_only().is_none() && !self.is_gone();
        if looks && !mutant!("log: nobody looks for room that came back") {
            self.worked_at + LOOK_AGAIN
        } else {
            Time::NEVER
        }
    }

    /// Begins to let what was appended so far and does not live leave flash and protected memory. [`Log::work`] goes on with it.
    ///
    /// # Panics
    /// If one is under way.
    pub fn begin_purge(&mut self) {
        self.purge.begin(&mut self.writer);
    }

    /// Whether a purge is under way, or was not asked what became of it.
    pub fn is_purging(&self) -> bool {
        self.purge.is_under_way()
    }

    /// Whether a purge was begun since [`Log::work`] was called last, or is over and was not asked what became of it.
    pub fn is_purge_due(&self) -> bool {
        self.purge.is_due()
    }

    /// What became of a purge, once, when it is over.
    pub fn take_purged(&mut self) -> Option<Result<(), PurgeError>> {
        self.purge.take_result()
    }

    /// Takes no more appends, and changes nothing on the medium: it lost something, so nobody knows what of the rest is still
    /// needed. What looks dead may be all there is of what is missing, and a read that fails today may work tomorrow.
    pub fn keep_all(&mut self, reason: &'static str) {
        self.writer.condition.keep_all(reason);
    }

    /// Whether [`Log::keep_all`] was called.
    pub fn is_kept(&self) -> bool {
        self.writer.condition.keeps_all()
    }

    /// Lets the log go on: programs, releases, frees, cleans. Call after appends and completions.
    ///
    /// Gives whether it would find nothing to do again, as long as nothing is appended or asked for, no completion comes but of reads, and
    /// the space neither gives nor takes blocks ([`EraseBlockSpace::free_changes`]).
    pub fn work(&mut self, now: Time, space: &mut dyn EraseBlockSpace, owner: &mut impl Owner) -> bool {
        self.worked_at = now;
        let writer = &mut self.writer;
        self.purge.end_if_stopped(writer);
        if writer.condition.is_gone()
            || writer.condition.keeps_all() && !mutant!("log: damaged store goes on cleaning")
        {
            return false;
        }
        writer.place_displaced(space, owner);
        writer.release(space);
        writer.segments.retire_dead(writer.anchors.held(), writer.next_sequence);
        for cleaner in self.cleaners.iter_mut() {
            cleaner.work(now, writer, &mut self.purge, space, owner);
        }
        self.purge.work(writer, space);
        let is_supplied = writer.prepare(space);
        writer.push(space);
        writer.flush(now, space);
        self.purge.end_step(writer);
        let rests = |cleaner: &Cleaner| cleaner.is_at_rest(writer);
        is_supplied && !self.purge.is_under_way() && writer.is_at_rest() && self.cleaners.iter().all(rests)
    }

    /// Whether the log waits for this completion itself. If not, it belongs to the log's user ([`crate::is_for_user`]).
    pub fn complete(&mut self, completion: SpaceCompletion) -> Option<SpaceCompletion> {
        let writer = &mut self.writer;
        if completion.result == Err(SpaceError::PowerLost) {
            writer.condition.lose_power();
        }
        let token = completion.token.0;
        let low = (token & 0xffff_ffff) as usize;
        match token & KIND_MASK {
            TOKEN_APPEND => {
                let (program, worked) = (Programmed::of(token), completion.result.is_ok());
                writer.count_programmed(program.units * writer.segments.layout.unit_ius);
                writer.flushes.grew(writer.staging.slot(low).chunk().segment);
                let failed = writer.staging.programmed(low, program, worked, &mut writer.segments);
                if let Some(segment) = failed.filter(|_| !writer.condition.is_gone()) {
                    if completion.result == Err(SpaceError::ReadOnly) {
                        writer.condition.end_writes(NO_GOOD_BLOCKS);
                    }
                    writer.fail_segment(segment);
                }
            }
            TOKEN_HEAD => self.cleaners[group_in(token)].head_arrived(completion),
            TOKEN_COPY => self.cleaners[group_in(token)].copy_arrived(low as u32, completion, writer),
            TOKEN_ANCHOR => {
                writer.count_programmed(writer.segments.layout.unit_ius);
                if writer.anchors.programmed(completion.result) {
                    // Segments that only notes kept can go.
                    writer.segments.look_for_dead();
                }
            }
            TOKEN_FLUSH => {
                if writer.flushed(completion.result) {
                    writer.segments.look_for_dead();
                }
            }
            TOKEN_PURGE => self.purge.erased(completion.result, writer),
            TOKEN_NOBODY => {}
            _ => return Some(completion),
        }
        None
    }

    /// IUs of data that all segments but the reserve hold when chunks are full.
    pub fn usable_ius(&self) -> u64 {
        self.writer.segments.usable_ius()
    }

    /// Most IUs that the maps of all volumes together may have, written or not: 64 times what is stored, and at least 4 GiB.
    /// Nothing read from the medium makes them larger.
    pub fn map_ius_max(&self) -> u64 {
        (self.usable_ius() * 64).max(1 << 20)
    }

    /// As [`Log::usable_ius`], of a log with so much protected memory that is yet to be made.
    pub fn usable_ius_of(
        space: &dyn EraseBlockSpace,
        staging_size_bytes: Option<usize>,
        placement: Placement,
    ) -> u64 {
        let layout = placement.layout(space, staging_size_bytes);
        segments::usable_ius(&layout, segments::count_for(&layout, space))
    }

    /// Checks IUs of one strip, read from `first` on, against the OOB of their pages, if they have some, and against what the owner knows of their
    /// content: `checks` from the first IU on, as far as there are some.
    ///
    /// # Errors
    /// The number of the first IU, counted from `first`, that is not what was written there.
    #[inline]
    pub fn verify(
        &self,
        first: LogAddress,
        iu_bytes: usize,
        data: &[u8],
        oob: Option<&[u8]>,
        checks: &[Check],
    ) -> Result<(), u32> {
        self.writer.segments.verify(first, iu_bytes, data, oob, checks)
    }

    /// The stream of a segment, if it lies on flash and holds something.
    pub fn stream_of(&self, segment: SegmentIndex) -> Option<Stream> {
        self.writer.segments.stream_of(segment.0)
    }

    /// IUs of data that a reclaim unit holds: a segment.
    pub fn reclaim_unit_ius(&self) -> u64 {
        self.layout().reclaim_unit_ius()
    }

    /// As [`Log::reclaim_unit_ius`], of a log that is yet to be made.
    pub fn reclaim_unit_ius_of(
        space: &dyn EraseBlockSpace,
        staging_size_bytes: Option<usize>,
        placement: Placement,
    ) -> u64 {
        placement.layout(space, staging_size_bytes).reclaim_unit_ius()
    }

    /// IUs of data that the open reclaim unit of a handle in a group that there is still takes; all of one where none is open. Less once
    /// chunks had to be filled up.
    pub fn remaining_ius(&self, group: ReclaimGroup, handle: PlacementHandle) -> u64 {
        self.writer.remaining_ius(self.layout().streams.of_host(group, handle))
    }

    /// Ends the open reclaim unit of a handle in a group that there is: what is written next goes to another one. Whether something was written to it, and more
    /// could have been.
    pub fn end_reclaim_unit(
        &mut self,
        group: ReclaimGroup,
        handle: PlacementHandle,
        space: &mut dyn EraseBlockSpace,
    ) -> bool {
        if self.writer.condition.is_gone() || self.writer.condition.read_only().is_some() {
            return false;
        }
        self.writer.end_unit(self.layout().streams.of_host(group, handle), space)
    }

    /// IUs that can be read with one request from `address` on.
    pub fn run_limit(&self, address: LogAddress) -> u32 {
        let layout = self.layout();
        layout.ius_to_strip_end(layout.offset_of(address))
    }

    /// The content of a place that is still staged.
    #[inline]
    pub fn staged(&self, address: LogAddress) -> Option<&[u8]> {
        self.writer.staging.content(address, &self.writer.segments)
    }

    /// Reads programmed IUs for a host, at most [`Log::run_limit`]. The segment stays until [`Log::unpin`].
    #[inline(always)]
    pub fn read<S: EraseBlockSpace + ?Sized>(
        &mut self,
        token: SpaceToken,
        first: LogAddress,
        count: u32,
        destination: BufferMut,
        class: IoClass,
        space: &mut S,
    ) {
        let writer = &mut self.writer;
        writer.segments.pin(first);
        writer.segments.read(token, Run { first, count }, destination, class, &mut writer.pool, space);
    }

    /// A read is done: the next one uses again what it brought of OOB areas.
    ///
    /// # Panics
    /// If none is under way.
    #[inline]
    pub fn unpin(&mut self, address: LogAddress, oob: Option<BufferMut>) {
        self.writer.segments.unpin(address);
        if let Some(oob) = oob {
            self.writer.segments.give_back(oob);
        }
    }

    /// Sequence of the newest anchor that holds; 1 without one.
    pub fn anchored(&self) -> u64 {
        self.writer.anchors.held()
    }

    /// No entry before this sequence can get another place without a new sequence: chunks that are not yet safe are
    /// written elsewhere when their place fails.
    pub fn settled_before(&self) -> u64 {
        self.writer.staging.settled_before(self.writer.next_sequence)
    }

    /// Notes that recovery would replay now: those that no anchor covers, and up to 256 more.
    pub fn replayed_notes(&self) -> u64 {
        self.writer.anchors.replayed_notes()
    }

    /// Notes of these that an anchor from `sequence` on would cover.
    pub fn coverable_notes(&self, sequence: u64) -> u64 {
        self.writer.anchors.coverable_notes(sequence)
    }

    /// Changes when a leaf got another place without a new sequence.
    pub fn map_moves(&self) -> u64 {
        self.writer.anchors.leaf_moves()
    }

    /// Leaves a sequence out, so that an anchor that begins here is newer than any before.
    pub fn skip_sequence(&mut self) {
        let writer = &mut self.writer;
        writer.next_sequence = writer.next_sequence.max(writer.anchors.held()) + 1;
    }

    /// Whether the cleaner goes round without making room: what it moves are notes that only an anchor makes superfluous.
    /// One is to be written whatever it costs.
    pub fn needs_anchor(&self) -> bool {
        self.writer.anchors.are_needed()
    }

    /// Asks for an anchor whatever it costs, until it is asked for no more.
    pub fn want_anchor(&mut self, is_wanted: bool) {
        self.writer.anchors.want(is_wanted);
    }

    /// An anchor of what is now: records from `sequence` on are to be replayed over what `owner` leads to.
    ///
    /// # Panics
    /// If it goes back, or is of the version before the one that there is.
    pub fn take_anchor(&self, format: Format, sequence: u64, owner: Vec<u8>) -> AnyAnchor {
        assert!(sequence <= self.next_sequence(), "I-L18: an anchor begins at what was given");
        // The first one of version 2 may begin where the one before did.
        let goes_on =
            sequence == self.anchored() && format == Format::Three && !self.writer.anchors.holds_two;
        assert!(sequence > self.anchored() || goes_on, "I-L18: anchors do not go back");
        match format {
            Format::Two => {
                assert!(!self.writer.anchors.holds_two, "I-L18: anchors do not go back");
                AnyAnchor::One(self.take_anchor_of_one(sequence, owner))
            }
            Format::Three => AnyAnchor::Two(self.take_anchor_of_two(sequence, owner), self.writer.opening),
        }
    }

    fn take_anchor_of_two(&self, sequence: u64, owner: Vec<u8>) -> anchor2::Anchor {
        let segments = &self.writer.segments;
        anchor2::Anchor {
            features: 0,
            amends: None,
            sequence,
            taken_at: self.writer.next_sequence,
            life: self.writer.life,
            next_generation: segments.next_generation(),
            // Marks tell which ones were given.
            generation_limit: u32::MAX,
            stride_ius: 1 << self.layout().segment_shift,
            parts: vec![AnchorPart { device: [0; 16], vssd: 0 }],
            segments: segments.listed_in_anchor(sequence),
            members: Vec::new(),
            owner,
        }
    }

    fn take_anchor_of_one(&self, sequence: u64, owner: Vec<u8>) -> Anchor {
        let segments = &self.writer.segments;
        let closed = segments.iter().filter(|(_, segment)| segment.is_closed_before(sequence));
        Anchor {
            sequence,
            taken_at: self.writer.next_sequence,
            next_generation: segments.next_generation(),
            segments: closed
                .map(|(index, segment)| (SegmentIndex(index), (segment.generation, segment.next_unit)))
                .collect(),
            owner,
        }
    }

    /// Bytes of an anchor besides the owner's, and IUs that one with `owner_bytes` takes.
    pub fn anchor_size_ius(&self, format: Format, owner_bytes: usize) -> u64 {
        Anchors::size_ius(self.layout(), format, self.flash_segment_count(), owner_bytes)
    }

    /// Whether leaves may be written and anchors taken. Not while the last segments are in use: what the cleaner has begun
    /// can be undone only as long as they do not name it.
    pub fn may_anchor(&self) -> bool {
        self.writer.least_free_segments() > DISPLACED_LEAVE
    }

    /// Whether an anchor can be written.
    pub fn is_anchor_idle(&self) -> bool {
        self.writer.anchors.are_idle()
    }

    /// Writes an anchor. Everything that was appended before it was taken must be durable.
    pub fn write_anchor(&mut self, anchor: &AnyAnchor, space: &mut dyn EraseBlockSpace) {
        let writer = &mut self.writer;
        if writer.anchors.are_used_up() {
            writer.condition.end_writes(COUNTERS_USED_UP);
            return;
        }
        writer.statistics.anchor_ius += writer.anchors.write(anchor, &mut writer.pool, space);
        writer.count_free(space);
    }

    /// Counts that must agree with each other.
    ///
    /// # Panics
    /// If they do not.
    pub fn check_invariants(&self) {
        self.writer.staging.check_invariants(&self.writer.segments);
        self.writer.segments.check_invariants();
        for (index, segment) in self.writer.segments.iter() {
            assert!(
                segment.last_sequence < self.writer.next_sequence,
                "I-L38: segment {index} holds nothing later than what comes"
            );
        }
    }

    /// Live IUs of each segment.
    pub fn valid_counts(&self) -> Vec<u32> {
        self.writer.segments.valid_counts().to_vec()
    }

    /// State in one line per slot, segment and victim, for debugging.
    pub fn describe(&self) -> String {
        let Log { writer, cleaners, purge, .. } = self;
        let cleaners: String = cleaners.iter().map(Cleaner::to_string).collect();
        format!("{writer}{}{}{cleaners}{purge}", writer.staging, writer.segments)
    }
}
