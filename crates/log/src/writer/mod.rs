//! The writer: entries become chunks, and chunks get places on segments.
//!
//! It has what appending needs: segments, staging, the supply of erase blocks, anchors, the pace. Who appends (hosts, the map, the
//! cleaner) is a stream to it.

mod moves;
mod pace;
mod placing;
mod program;

use crate::anchors::Anchors;
use crate::condition::{COUNTERS_USED_UP, Condition, FLUSH_FAILED, NO_GOOD_BLOCKS};
use crate::flushes::{Entries, Floors, Flushes};
use crate::format::{Description, FlushNote, is_known};
use crate::head::Origin;
use crate::placement::PerGroup;
use crate::reserve::{self, BURST_SEGMENTS, DISPLACED_LEAVE, FOUND_LEAVE};
use crate::segments::Segments;
use crate::staging::{Place, Staging};
use crate::supply::Supply;
use crate::token::TOKEN_FLUSH;
use crate::{LogAddress, LogStatistics, ReclaimGroup, Stream, StreamKind, walk};
use diecut_units::{BufferPool, Time, checksum};
use diecut_vssd::space::{EraseBlockSpace, SpaceError, SpaceToken};
pub(crate) use pace::Pace;
use placing::Placing;

/// An IU that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Where it lies.
    pub address: LogAddress,
    /// CRC-32C of its content.
    pub checksum: u32,
}

/// What appends.
pub(crate) struct Writer {
    pub segments: Segments,
    pub staging: Staging,
    /// Of each reclaim group, as the pace.
    pub supplies: PerGroup<Supply>,
    pub anchors: Anchors,
    pub paces: PerGroup<Pace>,
    pub placing: Placing,
    pub condition: Condition,
    pub flushes: Flushes,
    pub pool: BufferPool,
    pub statistics: LogStatistics,
    /// Sequence that the next entry gets.
    pub next_sequence: u64,
    /// Entries before this are to be durable without waiting for chunks to fill.
    wanted: u64,
    /// The cleaner appends what it copies from there.
    pub copying: Option<Origin>,
    /// See [`crate::Log::quiesce`].
    pub is_quiescing: bool,
    /// The latest life of the store that something was found of; then the one that is.
    pub life: u64,
    /// Bytes that another opening does not have: the newest allocation that it found.
    pub opening: [u8; 8],
}

impl Writer {
    pub fn new(segments: Segments, staging: Staging) -> Writer {
        let layout = &segments.layout;
        let groups = layout.streams.placement().groups;
        Writer {
            supplies: PerGroup::new(groups, |group| Supply::new(group, layout)),
            anchors: Anchors::new(layout, segments.flash_count()),
            paces: PerGroup::new(groups, |_| {
                Pace::new(layout.chunk_ius().into(), u64::from(BURST_SEGMENTS * layout.segment_ius))
            }),
            placing: Placing::new(layout.streams.placement().handles),
            condition: Condition::default(),
            flushes: Flushes::new(layout.shape.volatile_cache),
            pool: BufferPool::new(),
            statistics: LogStatistics::default(),
            next_sequence: 1,
            wanted: 0,
            copying: None,
            is_quiescing: false,
            life: 0,
            opening: [0; 8],
            segments,
            staging,
        }
    }

    /// All entries before this one are durable against a power cut.
    pub fn durable_before(&self) -> u64 {
        self.durable(Entries::All)
    }

    /// Such entries before this one are durable against a power cut.
    pub fn durable(&self, of: Entries) -> u64 {
        self.flushes.durable(of, || self.staging.floor(of, self.next_sequence))
    }

    /// A program ended: of so many IUs.
    pub fn count_programmed(&mut self, ius: u32) {
        let Writer { flushes, staging, next_sequence, .. } = self;
        flushes.programmed(ius, || Floors::of(|of| staging.floor(of, *next_sequence)));
    }

    /// Asks the medium to make durable what is programmed, if somebody waits for it or it is time.
    pub fn flush(&mut self, now: Time, space: &mut dyn EraseBlockSpace) {
        let Writer { flushes, staging, segments, next_sequence, anchors, .. } = self;
        let floors = || Floors::of(|of| staging.floor(of, *next_sequence));
        if flushes.begin(now, self.wanted, anchors.wait_for_flush(), floors) {
            anchors.flush_begins();
            for index in flushes.take_grown() {
                let units = staging.programmed_units(index, segments);
                let segment = &mut segments[index];
                if segment.exists() && units > segment.noted_units {
                    segment.noted_units = units;
                    flushes.covers(FlushNote { segment: index, generation: segment.generation, units });
                }
            }
            space.flush(SpaceToken(TOKEN_FLUSH));
        }
    }

    /// A flush ended. Whether an anchor holds by that.
    pub fn flushed(&mut self, result: Result<(), SpaceError>) -> bool {
        match result {
            Ok(()) => {
                self.flushes.complete();
                self.anchors.flushed()
            }
            Err(error) => {
                self.flushes.fail();
                if error != SpaceError::PowerLost {
                    self.condition.end_writes(FLUSH_FAILED);
                }
                false
            }
        }
    }

    /// Asks that all entries before `sequence` become durable without waiting for chunks to fill.
    pub fn want_durable(&mut self, sequence: u64) {
        self.wanted = self.wanted.max(sequence);
    }

    /// Frees wait for durability of what was copied.
    pub fn urge(&mut self) {
        if let Some(after) = self.segments.freed_after() {
            self.want_durable(after);
        }
    }

    /// Sequences from here on are later than this one.
    pub fn pass_sequence(&mut self, last: u64) {
        self.next_sequence = self.next_sequence.max(last.saturating_add(1));
    }

    /// Counts free segments of a reclaim group again where they may have changed. What others do to blocks (one that failed, a die that went)
    /// matters to whoever opens a segment, and that counts for itself; while writers may, and nothing is written, nothing here depends on the
    /// exact number.
    pub fn recount_free(&mut self, group: ReclaimGroup, space: &dyn EraseBlockSpace) {
        let supply = &mut self.supplies[group];
        let is_settled = supply.is_counted_at(self.next_sequence)
            && supply.free_segments() > reserve::reserve_segments(&self.segments.layout) + 1;
        if space.is_read_only() {
            self.count_free_in(group, space);
        } else if !is_settled {
            supply.recount(self.next_sequence, &self.segments.layout, &self.anchors, space);
        }
    }

    /// Counts free segments.
    pub fn count_free(&mut self, space: &dyn EraseBlockSpace) {
        for group in self.segments.layout.streams.groups() {
            self.count_free_in(group, space);
        }
    }

    /// Counts those of a reclaim group.
    fn count_free_in(&mut self, group: ReclaimGroup, space: &dyn EraseBlockSpace) {
        if space.is_read_only() {
            self.condition.end_writes(NO_GOOD_BLOCKS);
        }
        self.supplies[group].count(self.next_sequence, &self.segments.layout, &self.anchors, space);
    }

    /// The supply of a stream's reclaim group.
    pub fn supply_of(&self, stream: Stream) -> &Supply {
        &self.supplies[self.group_of(stream)]
    }

    #[inline]
    fn group_of(&self, stream: Stream) -> ReclaimGroup {
        self.segments.layout.streams.group_of(stream)
    }

    /// Whether the medium had no room for a segment of some reclaim group.
    pub fn has_no_room(&self) -> bool {
        self.supplies.iter().any(Supply::has_no_room)
    }

    /// Free segments of the reclaim group that has the fewest.
    pub fn least_free_segments(&self) -> u32 {
        self.supplies.iter().map(Supply::free_segments).min().unwrap_or(0)
    }

    /// Free segments that are not for this stream. Whoever makes room comes before those who use it up.
    fn keep_of(&self, stream: Stream) -> u32 {
        match stream.policy().keep_free {
            Some(keep) if self.copying.is_none() => {
                let keep = if self.anchors.are_needed() { keep.while_anchor_is_needed } else { keep.usually };
                keep + reserve::more_reserve(&self.segments.layout)
            }
            // Copies of one victim fit into one segment, and free the victim. The last one is for chunks whose place
            // fails, unless nothing else can make room.
            _ if self.segments.freeing_count_in(self.group_of(stream)) == 0
                && !self.staging.has_displaced() =>
            {
                0
            }
            _ => DISPLACED_LEAVE,
        }
    }

    /// Opens a segment for a stream, if more than `keep` are free.
    fn open_segment(&mut self, stream: Stream, keep: u32, space: &mut dyn EraseBlockSpace) -> Option<u32> {
        let group = self.group_of(stream);
        self.count_free_in(group, space);
        if self.segments.next_generation() == u32::MAX {
            self.condition.end_writes(COUNTERS_USED_UP);
            return None;
        }
        let supply = &mut self.supplies[group];
        if supply.free_segments() <= keep || supply.is_blind_to_room() {
            return None;
        }
        assert!(self.segments.open_of(stream).is_none(), "I-L4: a stream has one segment open");
        let index = self.segments.free_number()?;
        let name = Description::new(stream, index, self.segments.next_generation(), &self.segments.layout);
        let blocks = supply.take(name, &self.segments, &mut self.condition, space)?;
        self.segments.open(index, stream, blocks);
        if stream.kind() == StreamKind::User {
            self.anchors.writers_go_on();
        }
        self.count_free_in(group, space);
        Some(index)
    }

    /// A place for a chunk of at least `units_min` units.
    fn place(&mut self, stream: Stream, units_min: u32, space: &mut dyn EraseBlockSpace) -> Option<Place> {
        if let Some(segment) = self.segments.open_of(stream) {
            let (unit_ius, chunk_units) = (self.segments.layout.unit_ius, self.segments.layout.chunk_units);
            let left = self.segments.units_left(segment);
            if left >= units_min && left * unit_ius >= 2 {
                let first_unit = self.segments[segment].next_unit;
                return Some(Place { segment, first_unit, room_units: left.min(chunk_units) });
            }
            // Too short for a chunk that moves: filler ends the segment, or what it holds would never be safe.
            diecut_units::mark!("log: segment ended with filler");
            self.fill_rest(stream, segment)?;
        }
        let segment = self.open_segment(stream, self.keep_of(stream), space)?;
        Some(Place { segment, first_unit: 0, room_units: self.segments.layout.chunk_units })
    }

    /// The slot of the stream's open chunk; opens one if there is none.
    #[inline]
    fn open_chunk(&mut self, stream: Stream, space: &mut dyn EraseBlockSpace) -> Option<usize> {
        self.staging.open_of(stream).or_else(|| self.open_new_chunk(stream, false, space))
    }

    /// Opens a chunk; one for filler may take the last slot.
    #[inline(never)]
    fn open_new_chunk(
        &mut self,
        stream: Stream,
        is_filler: bool,
        space: &mut dyn EraseBlockSpace,
    ) -> Option<usize> {
        if self.condition.is_gone() || self.condition.read_only().is_some() {
            return None;
        }
        if self.placing.ends(stream) && !is_filler {
            return None;
        }
        if self.next_sequence >= walk::SEQUENCE_MAX - u64::from(u32::MAX) {
            self.condition.end_writes(COUNTERS_USED_UP);
            return None;
        }
        // The last slot is for filler: without it chunks that only wait to become safe would wait for ever.
        let keeps_one = !is_filler && (stream.kind() != StreamKind::User || self.staging.is_protected());
        self.staging.free_slot(stream, keeps_one.into())?;
        let place = self.place(stream, 1, space)?;
        // Chosen now: filler that ended a segment may have taken the first one.
        let slot = self.staging.free_slot(stream, 0)?;
        self.start_chunk(slot, stream, place);
        Some(slot)
    }

    fn start_chunk(&mut self, slot: usize, stream: Stream, place: Place) {
        if stream.policy().is_paced {
            let group = self.group_of(stream);
            self.paces[group].take_head();
        }
        self.staging.open(slot, stream, place, self.next_sequence, &mut self.segments);
    }

    /// Ends an open segment with filler. `None` if staging must be waited for.
    fn fill_rest(&mut self, stream: Stream, segment: u32) -> Option<()> {
        while self.segments.open_of(stream) == Some(segment) {
            let first_unit = self.segments[segment].next_unit;
            let room_units = self.segments.units_left(segment).min(self.segments.layout.chunk_units);
            let slot = self.staging.free_slot(stream, 0)?;
            self.start_chunk(slot, stream, Place { segment, first_unit, room_units });
            self.staging.slot_mut(slot).chunk_mut().fills_room = true;
            self.seal(stream);
        }
        Some(())
    }

    /// Whether one more IU can be appended to the stream without waiting.
    pub fn has_room(&mut self, stream: Stream, space: &mut dyn EraseBlockSpace) -> bool {
        let group = self.group_of(stream);
        (!stream.policy().is_paced || self.paces[group].allows()) && self.open_chunk(stream, space).is_some()
    }

    /// Appends an IU. Gives where it is, or `None` if staging, space or the cleaner must be waited for.
    #[inline]
    pub fn append(
        &mut self,
        stream: Stream,
        tag: u64,
        content: &[u8],
        space: &mut dyn EraseBlockSpace,
    ) -> Option<Appended> {
        let group = stream.policy().is_paced.then(|| self.group_of(stream));
        if group.is_some_and(|group| !self.paces[group].allows()) {
            return None;
        }
        let checksum = checksum(content);
        let address = self.append_checked(stream, tag, content, checksum, space)?;
        if let Some(group) = group {
            self.paces[group].take();
        }
        Some(Appended { address, checksum })
    }

    /// As [`Writer::append`], with the content's checksum: that of a copy is the one it was read with. Gives its place.
    pub fn append_checked(
        &mut self,
        stream: Stream,
        tag: u64,
        content: &[u8],
        content_checksum: u32,
        space: &mut dyn EraseBlockSpace,
    ) -> Option<LogAddress> {
        loop {
            let index = self.open_chunk(stream, space)?;
            let sequence = self.next_sequence;
            if !stream.policy().names_origin || self.joins(stream, index) {
                let slot = self.staging.slot_mut(index);
                if let Some(data) = slot.put_data(sequence, tag, content, content_checksum) {
                    let (chunk, layout) = (slot.chunk(), &self.segments.layout);
                    let segment = chunk.segment;
                    let address = chunk.address(data, layout);
                    let is_full = chunk.data_count + 1 == chunk.room_units * layout.unit_ius;
                    self.next_sequence += 1;
                    self.segments.take_data(segment, sequence);
                    if is_full {
                        self.seal(stream);
                    }
                    return Some(address);
                }
            }
            self.seal(stream);
        }
    }

    /// Whether the next entry may join a chunk. While segments are scarce copies of one victim stay among themselves:
    /// after a restart they can be undone as long as their originals are there, and cost no segment.
    fn joins(&mut self, stream: Stream, slot: usize) -> bool {
        let are_scarce = self.supply_of(stream).free_segments() <= FOUND_LEAVE;
        let chunk = self.staging.slot_mut(slot).chunk_mut();
        if chunk.origin == self.copying {
            return true;
        }
        if chunk.is_empty() {
            chunk.origin = self.copying;
            return true;
        }
        if !are_scarce {
            chunk.origin = None;
        }
        !are_scarce
    }

    /// Appends a note; durable like a write. `None` as for [`Writer::append`].
    pub fn note(&mut self, stream: Stream, words: [u64; 3], space: &mut dyn EraseBlockSpace) -> Option<u64> {
        assert!(is_known(words), "I-L19: notes are those of the format");
        loop {
            let index = self.open_chunk(stream, space)?;
            let sequence = self.next_sequence;
            if !stream.policy().names_origin || self.joins(stream, index) {
                let slot = self.staging.slot_mut(index);
                if slot.put_note(sequence, words) {
                    self.segments[slot.chunk().segment].take_note(sequence);
                    self.next_sequence += 1;
                    self.anchors.count_notes(sequence, 1);
                    return Some(sequence);
                }
            }
            self.seal(stream);
        }
    }

    /// Takes blocks for the segments that are opened next, as far as there are some to spare. Whether none was due.
    pub fn prepare(&mut self, space: &mut dyn EraseBlockSpace) -> bool {
        if self.condition.read_only().is_some() {
            return true;
        }
        let spare = reserve::reserve_segments(&self.segments.layout) + 1;
        let mut none_due = true;
        for supply in self.supplies.iter_mut().filter(|supply| supply.free_segments() > spare) {
            none_due &= supply.prepare(&self.segments, space);
        }
        none_due
    }

    /// Ends the open chunk of a stream.
    fn seal(&mut self, stream: Stream) {
        if stream.kind() == StreamKind::User {
            self.note_flushes(stream);
        }
        self.staging.seal(stream, &mut self.segments);
    }

    /// Notes in the open chunk what flushes made durable, as far as there is room. Such notes are for recovery alone: they keep no segment, and the
    /// cleaner does not renew them.
    fn note_flushes(&mut self, stream: Stream) {
        let Some(index) = self.staging.open_of(stream) else { return };
        if self.staging.slot(index).chunk().is_empty() {
            return;
        }
        while let Some(note) = self.flushes.next_unsaid() {
            let slot = self.staging.slot_mut(index);
            if !slot.put_note(self.next_sequence, note.words()) {
                return;
            }
            self.segments[slot.chunk().segment].take_entry(self.next_sequence);
            self.next_sequence += 1;
            self.flushes.said();
        }
    }

    /// A program of a segment failed: it takes no more, and its chunks need another place.
    pub fn fail_segment(&mut self, index: u32) {
        diecut_units::mark!("log: program failed, chunks move");
        if self.segments.seal(index) {
            self.seal(self.segments[index].stream);
        }
        self.staging.displace(index, &mut self.segments);
    }

    /// Whether nothing waits for the writer, and nothing is under way.
    pub fn is_at_rest(&self) -> bool {
        let condition = &self.condition;
        let writes = !condition.is_gone() && !condition.keeps_all() && condition.read_only().is_none();
        writes
            && !self.has_no_room()
            && self.staging.is_at_rest()
            && !self.placing.is_ending()
            && self.segments.waits_for_no_read()
            && !self.anchors.are_needed()
            && self.wanted <= self.durable_before()
            && self.flushes.is_clean()
    }

    /// Frees what nobody needs any more, once what replaced it is durable.
    pub fn release(&mut self, space: &mut dyn EraseBlockSpace) {
        self.staging.release_safe(&mut self.segments);
        let anchor_blocks = self.anchors.free_superseded(space);
        let mut freed = 0;
        if self.segments.freeing_count() > 0 {
            let floors = (self.durable(Entries::Data), self.durable_before());
            freed = self.segments.free(floors.0, floors.1, space);
            self.statistics.segments_freed += freed;
        }
        let width = u64::from(self.segments.layout.width);
        self.statistics.blocks_freed += freed * width + anchor_blocks;
        if freed > 0 || anchor_blocks > 0 {
            space.sync(SpaceToken(crate::TOKEN_NOBODY));
            self.count_free(space);
        }
    }
}

impl std::fmt::Display for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        writeln!(f, "wanted {} floor {} next {}", self.wanted, self.durable_before(), self.next_sequence)?;
        for (supply, pace) in self.supplies.iter().zip(self.paces.iter()) {
            writeln!(f, "free {} pace {pace:?}", supply.free_segments())?;
        }
        Ok(())
    }
}
