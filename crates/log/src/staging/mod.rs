//! Staging: the slots in which chunks gather, wait, are programmed and become safe.

mod check;
mod chunk;
mod describe;
mod recover;
mod slot;

pub(crate) use chunk::{Chunk, ChunkState, Place};
pub use slot::SLOT_HEADER_SIZE_BYTES;
pub(crate) use slot::{HeadForm, Slot};

use crate::chunk::nonce_of;
use crate::flushes::Entries;
use crate::mark::Mark;
use crate::placement::Placement;
use crate::segments::{NO_BLOCK, STAGED_MAX, Segments};
use crate::stream::PerStream;
use crate::token::TOKEN_APPEND;
use crate::{Layout, LogAddress, Move, Owner, PerKind, Stream, StreamKind, Streams};
use diecut_units::{BufferPool, IU_SIZE_BYTES, ProtectedRegion, mutant};
use diecut_vssd::space::{EraseBlockSpace, SpaceToken};
use std::collections::VecDeque;
use std::ops::Range;

/// What a program of a chunk was: its token says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Programmed {
    /// Member of its segment.
    member: u32,
    /// Program units.
    pub units: u32,
}

impl Programmed {
    const MEMBER_BITS: u32 = 8;

    /// What a token of [`TOKEN_APPEND`] says.
    pub fn of(token: u64) -> Programmed {
        let both = (token >> 32) as u32;
        Programmed {
            member: both & ((1 << Programmed::MEMBER_BITS) - 1),
            units: both >> Programmed::MEMBER_BITS & 0xffff,
        }
    }

    fn token(self, slot: usize) -> SpaceToken {
        let both = self.units << Programmed::MEMBER_BITS | self.member;
        SpaceToken(TOKEN_APPEND | u64::from(both) << 32 | slot as u64)
    }
}

/// Slots of protected memory without which it is not used.
const SLOTS_MIN: usize = 2;

/// All slots of a log.
pub(crate) struct Staging {
    slots: Vec<Slot>,
    /// Slots that hold a chunk, in order. Most are empty most of the time, and every step goes through the others.
    occupied: Vec<usize>,
    /// Where the slots of streams of each kind end; those of the next one begin there.
    ends: PerKind<usize>,
    streams: Streams,
    /// Of new chunks, and tags of all.
    pub form: HeadForm,
    /// User data is durable once published.
    is_protected: bool,
    open: PerStream<Option<usize>>,
    /// Chunks that are to be programmed, in this order.
    sealed: VecDeque<usize>,
    /// A program ended, or chunks changed their places, since [`Staging::release_safe`]: nothing else makes chunks safe.
    may_release: bool,
}

/// Segments' addresses and staging of a log with so much protected memory: segments lie as `placement` says, and what is told apart is
/// `fitting`.
pub(crate) fn layout_for(
    space: &dyn EraseBlockSpace,
    staging_size_bytes: Option<usize>,
    placement: Placement,
    fitting: Placement,
) -> Layout {
    let mut layout = Layout::new(*space.shape(), space.unit_count(), placement.groups);
    layout.streams = Streams::new(fitting);
    if let Some(staging_size_bytes) = staging_size_bytes {
        // At least these, or programs and appends would wait for each other.
        while layout.chunk_units > 1
            && layout.chunk_units * layout.unit_ius > 2
            && staging_size_bytes / Slot::size_bytes(&layout) < slots_needed(&layout)
        {
            layout.chunk_units = (layout.chunk_units / 2).max(if layout.unit_ius == 1 { 2 } else { 1 });
        }
    }
    layout
}

/// Slots of protected memory without which writers wait for each other: each handle may have a chunk open, and others are programmed.
pub(crate) fn slots_needed(layout: &Layout) -> usize {
    3 + layout.streams.count(StreamKind::User) as usize
}

/// Slots of so much protected memory; 0 if it is not used.
pub(crate) fn protected_slots(layout: &Layout, staging_size_bytes: Option<usize>) -> usize {
    let slots = staging_size_bytes.unwrap_or(0) / Slot::size_bytes(layout);
    if slots < SLOTS_MIN { 0 } else { slots.min(STAGED_MAX as usize) }
}

impl Staging {
    /// Empty, or with what protected memory holds. Without it writers have `user_slots`, and more of them with several handles.
    pub fn new(
        layout: &Layout,
        user_slots: usize,
        region: Option<ProtectedRegion>,
        form: HeadForm,
    ) -> Staging {
        let size = Slot::size_bytes(layout);
        let user_iu = layout.content_mode().bytes_per_iu();
        let unsafe_chunks = layout.unsafe_tail_chunks() as usize;
        let mut slots = Vec::new();
        // Each stream can hold an open chunk, and chunks that are not safe yet, for as long as nothing is written to it.
        let more = |kind: StreamKind| (layout.streams.count(kind) as usize - 1) * (1 + unsafe_chunks);
        let protected_slots = protected_slots(layout, region.as_ref().map(|region| region.len()));
        let is_protected = protected_slots > 0;
        let has_cache = layout.shape.volatile_cache;
        assert!(!is_protected || !has_cache, "I-L44: slots of protected memory are emptied before a flush");
        if let Some(mut rest) = region.filter(|_| is_protected) {
            for _ in 0..protected_slots {
                slots.push(Slot::protected(rest.split_to(size), user_iu, form));
            }
        } else {
            let count = user_slots.max(4) + unsafe_chunks + more(StreamKind::User);
            slots.extend((0..count).map(|_| Slot::plain(layout, user_iu, form)));
        }
        let user_end = slots.len();
        // Four program units for each member of a segment at least.
        let of_cleaner = (8 * layout.width).div_ceil(layout.chunk_units).max(8) as usize + unsafe_chunks;
        let of_cleaner = of_cleaner + more(StreamKind::Cleaner);
        slots.extend((0..of_cleaner).map(|_| Slot::plain(layout, user_iu, form)));
        let cleaner_end = slots.len();
        slots.extend((0..4 + unsafe_chunks).map(|_| Slot::plain(layout, IU_SIZE_BYTES, form)));
        Staging {
            ends: PerKind([user_end, cleaner_end, slots.len()]),
            streams: layout.streams,
            form,
            slots,
            occupied: Vec::new(),
            is_protected,
            open: PerStream::default(),
            sealed: VecDeque::new(),
            may_release: true,
        }
    }

    /// What is opened from now on has this form.
    pub fn write_as(&mut self, form: HeadForm) {
        self.form = form;
        self.slots.iter_mut().for_each(|slot| slot.write_as(form));
    }

    /// Slots of writers.
    pub fn user_slot_count(&self) -> usize {
        self.ends[StreamKind::User]
    }

    /// Whether user data is durable once published.
    pub fn is_protected(&self) -> bool {
        self.is_protected
    }

    /// Whether what is published of a stream is durable before it is programmed.
    pub fn protects(&self, stream: Stream) -> bool {
        stream.kind() == StreamKind::User && self.is_protected
    }

    fn slots_of(&self, kind: StreamKind) -> Range<usize> {
        match kind {
            StreamKind::User => 0..self.ends[StreamKind::User],
            StreamKind::Cleaner => self.ends[StreamKind::User]..self.ends[StreamKind::Cleaner],
            StreamKind::Map => self.ends[StreamKind::Cleaner]..self.ends[StreamKind::Map],
        }
    }

    /// A slot.
    #[inline]
    pub fn slot(&self, slot: usize) -> &Slot {
        &self.slots[slot]
    }

    /// A slot.
    #[inline]
    pub fn slot_mut(&mut self, slot: usize) -> &mut Slot {
        &mut self.slots[slot]
    }

    /// Chunks in staging, by slot.
    pub fn chunks(&self) -> impl Iterator<Item = (usize, &Chunk)> {
        self.occupied.iter().map(|slot| (*slot, self.slots[*slot].chunk()))
    }

    /// Whether some chunk's place failed.
    pub fn has_displaced(&self) -> bool {
        self.chunks().any(|(_, chunk)| chunk.state() == ChunkState::Displaced)
    }

    /// The slot of the chunk that a stream has open.
    #[inline]
    pub fn open_of(&self, stream: Stream) -> Option<usize> {
        self.open[stream]
    }

    /// IUs of the chunk that a stream has open, its head included.
    pub fn open_ius(&self, stream: Stream) -> u32 {
        self.open[stream].map_or(0, |slot| self.slots[slot].chunk().data_count + 1)
    }

    /// A slot in which a stream may open a chunk, with `spare` more that stay free.
    pub fn free_slot(&mut self, stream: Stream, spare: usize) -> Option<usize> {
        let range = self.slots_of(stream.kind());
        let mut free = range.filter(|slot| self.slots[*slot].is_free());
        let first = free.next()?;
        if spare > 0 {
            free.nth(spare - 1)?;
        }
        Some(first)
    }

    /// Opens a chunk of a stream.
    pub fn open(
        &mut self,
        slot: usize,
        stream: Stream,
        place: Place,
        sequence: u64,
        segments: &mut Segments,
    ) {
        assert!(self.open[stream].is_none(), "I-L16: a stream has one chunk open");
        assert!(
            self.slots_of(stream.kind()).contains(&slot),
            "I-L13: streams of a kind have slots of their own"
        );
        let segment = &mut segments[place.segment];
        assert_eq!(segment.stream, stream, "I-L4: a chunk lies in a segment of its stream");
        assert_eq!(segment.next_unit, place.first_unit, "I-L5: chunks lie one behind the other");
        segment.chunks += 1;
        segment.first_sequence = segment.first_sequence.min(sequence);
        let generation = segment.generation;
        let offset = place.first_unit * segments.layout.unit_ius;
        let checksums = self.slots[slot].take_checksums();
        self.slots[slot].start(Chunk::new(stream, place, sequence, checksums), generation, offset);
        segments[place.segment].take_format(self.slots[slot].format());
        self.occupy(slot);
        self.open[stream] = Some(slot);
    }

    fn occupy(&mut self, slot: usize) {
        let place = self.occupied.binary_search(&slot).expect_err("I-L13: slots hold one chunk");
        self.occupied.insert(place, slot);
    }

    /// Slots of protected memory are cleared when what they hold now is gone.
    pub fn wipe_when_free(&mut self) {
        let slots = if self.is_protected { self.slots_of(StreamKind::User) } else { 0..0 };
        self.slots[slots].iter_mut().for_each(Slot::wipe_when_free);
    }

    /// Clears those that are free. Whether none is left.
    pub fn wipe_free(&mut self) -> bool {
        let slots = self.slots_of(StreamKind::User);
        self.slots[slots].iter_mut().all(Slot::wipe_if_free)
    }

    /// Makes what writers have open survive the process, in protected memory. Notes come first: what was written to a volume that a
    /// note makes says nothing without it.
    #[inline]
    pub fn publish(&mut self) {
        for stream in self.streams.of(StreamKind::User) {
            if let Some(slot) = self.open[stream] {
                self.slots[slot].publish();
            }
        }
    }

    /// Ends the open chunk of a stream.
    pub fn seal(&mut self, stream: Stream, segments: &mut Segments) {
        let Some(index) = self.open[stream].take() else { return };
        let layout = &segments.layout;
        let slot = &mut self.slots[index];
        if stream.kind() == StreamKind::User {
            slot.publish();
        }
        let chunk = slot.chunk_mut();
        assert_eq!(chunk.stream, stream, "I-L16: what a stream has open is its own");
        chunk.units = (chunk.data_count + 1).div_ceil(layout.unit_ius);
        if chunk.is_empty() {
            // Filler, which makes earlier units safe.
            let wanted = layout.unsafe_tail_units();
            chunk.units = if chunk.fills_room { chunk.room_units } else { wanted.clamp(1, chunk.room_units) };
        }
        assert!(chunk.units <= chunk.room_units, "I-L5: a chunk lies within its room");
        chunk.enter(ChunkState::Sealed);
        segments.place_units(chunk.segment, chunk.units);
        self.sealed.push_back(index);
    }

    /// Programs that may begin: how many chunks are sealed.
    pub fn sealed_count(&self) -> usize {
        self.sealed.len()
    }

    /// The sealed chunk that comes next.
    pub fn next_sealed(&mut self) -> Option<usize> {
        self.sealed.pop_front()
    }

    /// The chunk that was sealed last.
    pub fn last_sealed(&mut self) -> Option<usize> {
        self.sealed.pop_back()
    }

    /// A sealed chunk waits on.
    pub fn wait(&mut self, slot: usize) {
        self.sealed.push_back(slot);
    }

    /// Whether another sealed chunk comes before this one in its segment: programs are in order.
    pub fn is_blocked(&self, slot: usize) -> bool {
        let chunk = self.slots[slot].chunk();
        self.sealed.iter().any(|other| {
            let other = self.slots[*other].chunk();
            other.segment == chunk.segment && other.first_unit < chunk.first_unit
        })
    }

    /// Hands a sealed chunk to the space.
    pub fn program(
        &mut self,
        index: usize,
        segments: &Segments,
        pool: &mut BufferPool,
        space: &mut dyn EraseBlockSpace,
    ) {
        let layout = &segments.layout;
        let slot = &mut self.slots[index];
        let chunk = slot.chunk_mut();
        let segment = &segments[chunk.segment];
        let head = chunk.head(segment.generation, layout);
        assert_eq!(chunk.stream, segment.stream, "I-L4: a chunk lies in a segment of its stream");
        assert!(chunk.end_unit() <= layout.segment_units, "I-L5: a chunk lies within its segment");
        chunk.enter(ChunkState::Programming);
        let (stream, first_unit, units) = (chunk.stream, chunk.first_unit, chunk.units);
        let (member, _) = layout.unit_place(first_unit);
        let nonce = nonce_of(segment.blocks[member as usize], space);
        let head_sum = slot.write_head(nonce, &head, layout.unit_ius);
        let (mut unit, mut programs) = (0, 0);
        while unit < units {
            let (member, _) = layout.unit_place(first_unit + unit);
            let count = layout.units_to_strip_end(first_unit + unit).min(units - unit);
            let mark = Mark {
                segment: head.segment,
                generation: head.generation,
                member: member as u16,
                stream: stream.number(),
                place: 0,
            };
            let oob_bytes = count * layout.shape.program_unit_oob_size_bytes();
            let mut oob = pool.take_zeroed(oob_bytes as usize);
            slot.put_marks(unit..unit + count, mark, head_sum, layout, &mut oob);
            let token = Programmed { member, units: count }.token(index);
            let parts = slot.payload(unit..unit + count, layout);
            debug_assert_ne!(
                segment.blocks[member as usize], NO_BLOCK,
                "I-L3: it has a block on each member"
            );
            space.append(token, segment.blocks[member as usize], parts, oob, stream.policy().class);
            unit += count;
            programs += 1;
        }
        let chunk = slot.chunk_mut();
        (chunk.programs, chunk.pending) = (programs, programs);
        if mutant!("log: slot released before programmed") {
            self.slots[index].clear();
        }
    }

    /// A program of a chunk ended. The segment if it failed.
    pub fn programmed(
        &mut self,
        slot: usize,
        program: Programmed,
        worked: bool,
        segments: &mut Segments,
    ) -> Option<u32> {
        self.may_release = true;
        let chunk = self.slots[slot].chunk_mut();
        assert!(chunk.pending > 0, "I-L15: each program of a chunk ends once");
        let is_begun = matches!(chunk.state(), ChunkState::Programming | ChunkState::Displaced);
        assert!(is_begun, "I-L12: programs end of a chunk that was handed over");
        chunk.pending -= 1;
        let segment = chunk.segment;
        if !worked {
            return Some(segment);
        }
        let completed = &mut segments[segment].completed_units[program.member as usize];
        *completed += program.units;
        let completed = *completed;
        assert!(completed <= segments.layout.member_units, "I-L15: a block has no more program units");
        None
    }

    /// Chunks of a segment need another place: it takes no more programs.
    pub fn displace(&mut self, index: u32, segments: &mut Segments) {
        self.may_release = true;
        for slot in &mut self.slots {
            if slot.held().is_some_and(|chunk| chunk.segment == index) {
                let chunk = slot.chunk_mut();
                chunk.enter(ChunkState::Displaced);
                // The cleaner must not look for heads that were never programmed.
                let segment = &mut segments[index];
                segment.next_unit = segment.next_unit.min(chunk.first_unit);
            }
        }
        let slots = &self.slots;
        self.sealed
            .retain(|slot| slots[*slot].held().is_some_and(|chunk| chunk.state() == ChunkState::Sealed));
    }

    /// The first displaced chunk from a slot on that can get a place.
    pub fn displaced_from(&self, slot: usize) -> Option<usize> {
        let first = self.occupied.partition_point(|occupied| *occupied < slot);
        self.occupied[first..].iter().copied().find(|slot| self.slots[*slot].chunk().is_displaced())
    }

    /// Gives a displaced chunk the place that is next in a segment.
    pub fn settle(&mut self, index: usize, place: Place, segments: &mut Segments, owner: &mut impl Owner) {
        self.may_release = true;
        let slot = &mut self.slots[index];
        let old = slot.chunk();
        let (from, data, sequence) = (old.address(0, &segments.layout), old.data_count, old.sequence);
        let stream = old.stream;
        assert!(old.is_displaced(), "I-L12: only a displaced chunk gets another place");
        let source = &mut segments[old.segment];
        assert!(source.chunks > 0, "I-L8: a segment counts its staged chunks");
        source.chunks -= 1;
        let target = &mut segments[place.segment];
        assert_eq!(target.next_unit, place.first_unit, "I-L5: chunks lie one behind the other");
        assert_eq!(target.stream, old.stream, "I-L4: a chunk stays in its stream");
        target.chunks += 1;
        target.take_format(slot.format());
        target.last_sequence = target.last_sequence.max(old.last_sequence);
        target.first_sequence = target.first_sequence.min(old.sequence);
        if old.note_count > 0 {
            target.last_note = target.last_note.max(old.last_sequence);
            target.notes += old.note_count;
        }
        let generation = target.generation;
        segments.place_units(place.segment, old.units);
        slot.reclaim();
        let chunk = slot.chunk_mut();
        (chunk.segment, chunk.first_unit) = (place.segment, place.first_unit);
        chunk.enter(ChunkState::Sealed);
        let to = chunk.address(0, &segments.layout);
        slot.name(
            stream.reference(),
            sequence,
            place.segment,
            generation,
            place.first_unit * segments.layout.unit_ius,
        );
        for record in 0..data {
            let (from, to) = (from.plus(record), to.plus(record));
            let checksum = slot.chunk().checksums[record as usize];
            if owner.moved(Move { tag: slot.record(record), from, to, checksum, sequence }) {
                segments.invalidate(from);
                segments.validate(to);
            }
        }
        self.sealed.push_back(index);
    }

    /// Empties slots whose chunks are programmed and safe from a power cut.
    pub fn release_safe(&mut self, segments: &mut Segments) {
        if !std::mem::take(&mut self.may_release) {
            return;
        }
        // A chunk may wait for one in a later slot: again until nothing changes.
        let mut again = true;
        while std::mem::take(&mut again) {
            let mut next = 0;
            while let Some(index) = self.occupied.get(next).copied() {
                next += 1;
                let chunk = self.slots[index].chunk_mut();
                if chunk.state() == ChunkState::Programming && chunk.pending == 0 {
                    chunk.enter(ChunkState::Unsafe);
                }
                if chunk.state() == ChunkState::Unsafe && self.is_safe(index, segments) {
                    next -= 1;
                    self.occupied.remove(next);
                    self.empty(index, segments);
                    again = true;
                }
            }
        }
    }

    /// Whether no cut can take a chunk that is programmed.
    fn is_safe(&self, index: usize, segments: &Segments) -> bool {
        let chunk = self.slots[index].chunk();
        // Filler holds nothing that could be lost, and is released at once. But what lies behind it is found only
        // through its head: the newest unit on every member up to a chunk's end must be safe.
        if chunk.is_empty() {
            return true;
        }
        // Recovery walks a segment from its start: what lies behind a torn chunk is not found.
        let is_behind = |other: &Chunk| other.segment == chunk.segment && other.first_unit < chunk.first_unit;
        if self.chunks().any(|(_, other)| is_behind(other)) {
            return false;
        }
        let layout = &segments.layout;
        let completed = &segments[chunk.segment].completed_units;
        (0..layout.width).zip(completed).all(|(member, done)| {
            let needed = layout.units_before(chunk.end_unit(), member);
            needed == 0 || *done == layout.member_units || *done >= needed + layout.unsafe_units
        })
    }

    fn empty(&mut self, index: usize, segments: &mut Segments) {
        let segment = &mut segments[self.slots[index].chunk().segment];
        assert!(segment.chunks > 0, "I-L8: a segment counts its staged chunks");
        segment.chunks -= 1;
        let chunk = self.slots[index].chunk();
        assert_eq!(chunk.pending, 0, "I-L15: nothing of a chunk is under way when its slot is emptied");
        let is_known = segment.last_sequence >= chunk.last_sequence || chunk.is_displaced();
        assert!(is_known, "I-L37: a segment knows the newest entry of each chunk that lies in it");
        let may_go = matches!(chunk.state(), ChunkState::Unsafe | ChunkState::Displaced);
        assert!(may_go, "I-L12: what is emptied is programmed, or has no place any more");
        self.slots[index].release();
    }

    /// Empties a slot of which nothing is needed.
    pub fn drop_chunk(&mut self, index: usize, segments: &mut Segments) {
        self.may_release = true;
        self.occupied.retain(|occupied| *occupied != index);
        self.empty(index, segments);
    }

    /// A chunk that no program has begun for is taken back: it has no place any more. Whether it was handed to the space.
    pub fn take_back(&mut self, index: usize, segments: &mut Segments) -> bool {
        self.may_release = true;
        self.sealed.retain(|sealed| *sealed != index);
        let chunk = self.slots[index].chunk_mut();
        let of_segment = &mut segments[chunk.segment].notes;
        *of_segment = of_segment.saturating_sub(chunk.note_count);
        assert!(
            chunk.pending == 0 || chunk.pending == chunk.programs,
            "I-L15: no program of what is taken back has ended"
        );
        let was_handed_over = chunk.state() == ChunkState::Programming;
        chunk.enter(ChunkState::Displaced);
        chunk.pending = 0;
        was_handed_over
    }

    /// Chunks whose programs are under way.
    pub fn programming_count(&self) -> u32 {
        self.chunks().filter(|(_, chunk)| chunk.pending > 0).count() as u32
    }

    /// Whether no chunk is under way to flash, or to another place there.
    pub fn is_at_rest(&self) -> bool {
        let is_still = |chunk: &Chunk| chunk.pending == 0 && !chunk.is_displaced();
        self.sealed.is_empty() && !self.may_release && self.chunks().all(|(_, chunk)| is_still(chunk))
    }

    /// Whether chunks of a stream wait: entries before `wanted` are in the open chunk, or in programmed units that are not yet safe, and
    /// nothing of it is under way.
    pub fn waits_for_filler(&self, stream: Stream, wanted: u64) -> bool {
        let mut waits = false;
        for (_, chunk) in self.chunks().filter(|(_, chunk)| chunk.stream == stream) {
            let is_old = chunk.sequence < wanted;
            match chunk.state() {
                ChunkState::Open => waits |= is_old && !chunk.is_empty(),
                ChunkState::Unsafe => waits |= is_old,
                _ => return false,
            }
        }
        waits
    }

    /// Whether all slots of a kind but one hold chunks that are programmed and not yet safe, or that other streams have open: nothing
    /// comes that would make them so. The stream whose turn it is to write something behind them.
    pub fn starved(&mut self, kind: StreamKind) -> Option<Stream> {
        let is_alone = self.streams.count(kind) == 1;
        let is_open = is_alone && self.streams.of(kind).any(|stream| self.open[stream].is_some());
        if is_open || kind == StreamKind::User && !self.is_protected {
            return None;
        }
        let range = self.slots_of(kind);
        let first = self.occupied.partition_point(|slot| *slot < range.start);
        if self.occupied.get(first).is_none_or(|slot| *slot >= range.end) {
            return None;
        }
        let slots = &mut self.slots[range];
        let free = slots.iter_mut().filter_map(|slot| slot.is_free().then_some(())).count();
        let chunks = || slots.iter().filter_map(Slot::held);
        let rests = |chunk: &Chunk| matches!(chunk.state(), ChunkState::Unsafe | ChunkState::Open);
        if free != 1 || !chunks().all(rests) {
            return None;
        }
        let waiting = chunks().filter(|chunk| chunk.state() == ChunkState::Unsafe);
        waiting.min_by_key(|chunk| chunk.sequence).map(|chunk| chunk.stream)
    }

    /// Such entries before this are no more in staging, or durable there; `otherwise` if nothing waits.
    pub fn floor(&self, of: Entries, otherwise: u64) -> u64 {
        let end = match of {
            Entries::All | Entries::Ungated => self.ends[StreamKind::Map],
            Entries::Data => self.ends[StreamKind::Cleaner],
            Entries::Host => self.ends[StreamKind::User],
        };
        let without_gated = of == Entries::Ungated;
        let mut floor = otherwise;
        for (slot, chunk) in self.chunks() {
            let is_durable = self.is_protected && slot < self.ends[StreamKind::User];
            let is_left_out = without_gated && chunk.stream.policy().is_gated;
            if slot < end && !is_durable && !is_left_out && !chunk.is_empty() {
                floor = floor.min(chunk.sequence);
            }
        }
        floor
    }

    /// Units of a segment from its start that are programmed, and that no chunk waits for.
    pub fn programmed_units(&self, index: u32, segments: &Segments) -> u32 {
        // Of a segment whose program failed the first chunk that moved away is the end.
        let waiting = self.chunks().filter(|(_, chunk)| chunk.segment == index);
        waiting.map(|(_, chunk)| chunk.first_unit).fold(segments[index].next_unit, u32::min)
    }

    /// First sequence of the chunks that are here; `otherwise` if there are none.
    pub fn settled_before(&self, otherwise: u64) -> u64 {
        let full = self.chunks().filter(|(_, chunk)| !chunk.is_empty());
        full.map(|(_, chunk)| chunk.sequence).min().unwrap_or(otherwise)
    }

    /// The content of a place that is still staged.
    #[inline]
    pub fn content(&self, address: LogAddress, segments: &Segments) -> Option<&[u8]> {
        let index = segments.index_of(address);
        if segments[index].chunks == 0 {
            return None;
        }
        self.content_of_chunk(index, address, segments)
    }

    /// The content of a place in a segment that has chunks in staging.
    #[inline(never)]
    fn content_of_chunk(&self, index: u32, address: LogAddress, segments: &Segments) -> Option<&[u8]> {
        let offset = segments.layout.offset_of(address);
        self.chunks().filter(|(_, chunk)| chunk.segment == index).find_map(|(slot, chunk)| {
            let data = offset.checked_sub(chunk.first_unit * segments.layout.unit_ius + 1)?;
            (data < chunk.data_count).then(|| self.slots[slot].iu(data))
        })
    }
}
