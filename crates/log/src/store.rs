use crate::head::{self, Head};
use crate::mark::{self, Mark};
use crate::staging::{Body, Chunk, ChunkState, Slot};
use crate::{Layout, LogAddress, Owner, SLOT_HEADER_SIZE_BYTES, SegmentIndex};
use diecut_units::{
    BufferMut, BufferPool, ContentMode, IU_SIZE_BYTES, Payload, ProtectedRegion, checksum, mutant,
};
use diecut_vssd::space::{
    EraseBlockSpace, IoClass, LogicalBlock, PayloadParts, Purpose, SpaceCompletion, SpaceError, SpaceToken,
};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Host data.
pub const STREAM_USER: usize = 0;
/// Copies of the cleaner.
pub const STREAM_CLEANER: usize = 1;
/// Map leaves.
pub const STREAM_MAP: usize = 2;
const STREAMS: usize = 3;
/// `Purpose` of the erase blocks of segments.
pub const PURPOSE_SEGMENT: Purpose = Purpose(1);

/// Stands for a member of a segment found after a restart on which nothing was programmed.
pub const NO_BLOCK: LogicalBlock =
    LogicalBlock { unit: diecut_vssd::space::UnitIndex(u16::MAX), index: u32::MAX };

const TOKEN_APPEND: u64 = 1 << 56;
const TOKEN_HEAD: u64 = 2 << 56;
const TOKEN_COPY: u64 = 3 << 56;
const TOKEN_IGNORE: u64 = 4 << 56;
/// Tokens from here on belong to the log's user.
pub const TOKEN_USER: u64 = 16 << 56;

/// Segments that only the cleaner and the map may open.
const RESERVE_SEGMENTS: u32 = 5;
/// The cleaner works while fewer segments are free.
const CLEAN_BELOW_SEGMENTS: u32 = 8;

/// What is chosen when a log is made.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Staging slots of the user stream where there is no protected memory.
    pub user_slots: usize,
}

/// IUs programmed by cause, and what the cleaner did. WAF = all programmed / user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Host data IUs. All counts are of what was handed to flash, also when it fails and is written again.
    pub user_ius: u64,
    /// Cleaner copies.
    pub cleaner_ius: u64,
    /// Map leaves.
    pub map_ius: u64,
    /// Chunk heads.
    pub summary_ius: u64,
    /// Filler.
    pub padding_ius: u64,
    /// Segments freed.
    pub segments_freed: u64,
    /// Copies that could not be read.
    pub lost_ius: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SegmentState {
    Absent,
    Open,
    Sealed,
    Cleaning,
    Freeing,
}

struct Segment {
    state: SegmentState,
    blocks: SmallVec<[LogicalBlock; 16]>,
    generation: u32,
    stream: usize,
    next_unit: u32,
    valid: u32,
    completed_rows: SmallVec<[u32; 16]>,
    last_note: u64,
    last_sequence: u64,
    reads: u32,
    chunks: u32,
    free_after: u64,
    poisoned: bool,
}

/// A chunk found at recovery.
#[derive(Clone, Debug)]
pub struct RecoveredChunk {
    /// Its head.
    pub head: Head,
    /// The head's bytes.
    pub bytes: Vec<u8>,
}

struct Victim {
    segment: u32,
    offset: u32,
    walked: bool,
    head_reading: bool,
    /// The present head was read once and was none.
    head_again: bool,
    reads: u32,
}

struct CopyRead {
    first: LogAddress,
    tags: SmallVec<[u64; 16]>,
}

/// The log of one vSSD. Lower rooms are lent at each call.
pub struct Log {
    layout: Layout,
    segments: Vec<Segment>,
    slots: Vec<Slot>,
    user_slots: usize,
    map_slots: usize,
    protected: bool,
    open: [Option<usize>; STREAMS],
    open_segment: [Option<u32>; STREAMS],
    next_sequence: u64,
    next_generation: u32,
    next_group: u32,
    wanted: u64,
    sealed: VecDeque<usize>,
    victim: Option<Victim>,
    copies: Vec<Option<CopyRead>>,
    free_copies: Vec<usize>,
    unread: VecDeque<usize>,
    ready: VecDeque<(CopyRead, BufferMut)>,
    renewed: Vec<[u64; 3]>,
    still: Vec<[u64; 3]>,
    live: Vec<bool>,
    entries: Vec<(u64, LogAddress)>,
    pool: BufferPool,
    statistics: LogStatistics,
    read_only: Option<&'static str>,
    gone: bool,
    filling: bool,
    unfinished: bool,
    free_segments: u32,
    real_segments: u32,
}

impl Log {
    /// A log over an empty or recovered space; `staging` is its part of protected memory, if the medium has some.
    pub fn new(config: &LogConfig, space: &dyn EraseBlockSpace, staging: Option<ProtectedRegion>) -> Log {
        let mut layout = Layout::new(*space.shape(), space.unit_count());
        let user_iu = layout.content_mode().bytes_per_iu();
        let slot_size = |layout: &Layout| {
            (SLOT_HEADER_SIZE_BYTES + IU_SIZE_BYTES + layout.chunk_ius() as usize * user_iu)
                .next_multiple_of(64)
        };
        if let Some(region) = &staging {
            // At least four slots, or programs and appends would wait for each other.
            while layout.chunk_units > 1
                && layout.chunk_units * layout.unit_ius > 2
                && region.len() / slot_size(&layout) < 4
            {
                layout.chunk_units = (layout.chunk_units / 2).max(if layout.unit_ius == 1 { 2 } else { 1 });
            }
        }
        let size = slot_size(&layout);
        let staging = staging.filter(|region| region.len() / size >= 2);
        let protected = staging.is_some();
        let pads = (layout.shape.unsafe_units * layout.width).div_ceil(layout.chunk_units) as usize;
        let mut slots = Vec::new();
        if let Some(region) = staging {
            let count = (region.len() / size).min(256);
            let mut rest = region;
            for _ in 0..count {
                let mut body = rest.split_to(size);
                let header = Some(body.split_to(SLOT_HEADER_SIZE_BYTES).into_buffer());
                let body = body.into_buffer();
                slots.push(Slot {
                    header,
                    body: Body::Open(body),
                    chunk: None,
                    iu_bytes: user_iu,
                    spare_checksums: Vec::new(),
                });
            }
        } else {
            for _ in 0..config.user_slots.max(4) + pads {
                slots.push(plain_slot(&layout, user_iu));
            }
        }
        let user_slots = slots.len();
        for _ in 0..8 + pads {
            slots.push(plain_slot(&layout, user_iu));
        }
        for _ in 0..4 + pads {
            slots.push(plain_slot(&layout, IU_SIZE_BYTES));
        }
        let count = (0..space.unit_count())
            .map(|unit| space.blocks_of_unit(diecut_vssd::space::UnitIndex(unit)))
            .min()
            .unwrap_or(0)
            * layout.groups;
        // Numbers beyond the real ones stand for chunks that recovery found in staging.
        let count = count.min((u32::MAX >> layout.segment_shift) - 1 - user_slots as u32);
        let segments = (0..count + user_slots as u32).map(|_| absent()).collect();
        let mut log = Log {
            segments,
            slots,
            user_slots,
            map_slots: user_slots + 8 + pads,
            protected,
            open: [None; STREAMS],
            open_segment: [None; STREAMS],
            next_sequence: 1,
            next_generation: 1,
            next_group: 0,
            wanted: 0,
            sealed: VecDeque::new(),
            victim: None,
            copies: Vec::new(),
            free_copies: Vec::new(),
            unread: VecDeque::new(),
            ready: VecDeque::new(),
            renewed: Vec::new(),
            still: Vec::new(),
            live: Vec::new(),
            entries: Vec::new(),
            pool: BufferPool::new(),
            statistics: LogStatistics::default(),
            read_only: None,
            gone: false,
            filling: false,
            unfinished: false,
            free_segments: 0,
            real_segments: count,
            layout,
        };
        log.count_free(space);
        log
    }

    /// The arithmetic.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
    /// IUs programmed by cause.
    pub fn statistics(&self) -> &LogStatistics {
        &self.statistics
    }
    /// Why no more is written.
    pub fn read_only(&self) -> Option<&'static str> {
        self.read_only
    }
    /// Whether the power is gone.
    pub fn is_gone(&self) -> bool {
        self.gone
    }
    /// Whether user data is durable once published.
    pub fn is_protected(&self) -> bool {
        self.protected
    }
    /// Sequence that the next entry gets.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }
    /// Segments that could be opened now.
    pub fn free_segments(&self) -> u32 {
        self.free_segments
    }
    /// Segments of the log when none is bad.
    pub fn segment_count(&self) -> u32 {
        self.segments.len() as u32
    }
    /// Buffers of this log.
    pub fn pool(&mut self) -> &mut BufferPool {
        &mut self.pool
    }
    /// All entries before this one are durable against a power cut.
    pub fn durable_before(&self) -> u64 {
        self.floor(false)
    }
    fn floor(&self, without_map: bool) -> u64 {
        let mut floor = self.next_sequence;
        for (index, slot) in self.slots.iter().enumerate() {
            if let Some(chunk) = &slot.chunk
                && !(self.protected && index < self.user_slots)
                && !(without_map && chunk.stream as usize == STREAM_MAP)
                && chunk.data_count + chunk.note_count > 0
            {
                floor = floor.min(chunk.sequence);
            }
        }
        floor
    }
    /// Asks that all entries before `sequence` become durable without waiting for chunks to fill.
    pub fn want_durable(&mut self, sequence: u64) {
        self.wanted = self.wanted.max(sequence);
    }
    /// Counts a place as live.
    #[inline]
    pub fn validate(&mut self, address: LogAddress) {
        self.segments[(address.0 >> self.layout.segment_shift) as usize].valid += 1;
    }
    /// Counts a place as dead.
    #[inline]
    pub fn invalidate(&mut self, address: LogAddress) {
        let segment = &mut self.segments[(address.0 >> self.layout.segment_shift) as usize];
        assert!(segment.valid > 0, "a place dies once");
        segment.valid -= 1;
    }

    fn count_free(&mut self, space: &dyn EraseBlockSpace) {
        let mut free = 0;
        for group in 0..self.layout.groups {
            let members = 0..self.layout.width;
            free += members.map(|m| space.free_blocks(self.layout.unit(group, m))).min().unwrap_or(0);
        }
        self.free_segments = free;
    }

    fn open_new_segment(&mut self, stream: usize, space: &mut dyn EraseBlockSpace) -> Option<u32> {
        self.count_free(space);
        let keep = if stream == STREAM_USER { RESERVE_SEGMENTS } else { 0 };
        if self.free_segments <= keep {
            return None;
        }
        let index = self.segments.iter().position(|s| s.state == SegmentState::Absent)?;
        for step in 0..self.layout.groups {
            let group = (self.next_group + step) % self.layout.groups;
            let mut blocks = SmallVec::new();
            for member in 0..self.layout.width {
                match space.allocate(self.layout.unit(group, member), PURPOSE_SEGMENT) {
                    Ok(block) => blocks.push(block),
                    Err(SpaceError::ReadOnly) => {
                        self.read_only = Some("the vSSD has no good erase blocks left");
                        break;
                    }
                    Err(_) => break,
                }
            }
            if blocks.len() < self.layout.width as usize {
                for block in blocks {
                    space.free(block).expect("just allocated");
                }
                continue;
            }
            self.next_group = group + 1;
            let width = self.layout.width as usize;
            self.segments[index] = Segment {
                state: SegmentState::Open,
                blocks,
                generation: self.next_generation,
                stream,
                completed_rows: SmallVec::from_elem(0, width),
                ..absent()
            };
            self.next_generation += 1;
            self.open_segment[stream] = Some(index as u32);
            self.count_free(space);
            return Some(index as u32);
        }
        None
    }

    /// A place for a chunk of at most `units_max` units.
    fn place(
        &mut self,
        stream: usize,
        units_min: u32,
        space: &mut dyn EraseBlockSpace,
    ) -> Option<(u32, u32, u32)> {
        if let Some(segment) = self.open_segment[stream] {
            let left = self.layout.segment_units - self.segments[segment as usize].next_unit;
            if left >= units_min && left * self.layout.unit_ius >= 2 {
                let first = self.segments[segment as usize].next_unit;
                return Some((segment, first, left.min(self.layout.chunk_units)));
            }
            // Only the rest of a failed segment, or one too short for a chunk that moves, is left unwritten.
            self.segments[segment as usize].state = SegmentState::Sealed;
            self.open_segment[stream] = None;
        }
        let segment = self.open_new_segment(stream, space)?;
        Some((segment, 0, self.layout.chunk_units))
    }

    fn open_chunk(&mut self, stream: usize, space: &mut dyn EraseBlockSpace) -> Option<usize> {
        if let Some(slot) = self.open[stream] {
            return Some(slot);
        }
        if self.gone || self.read_only.is_some() {
            return None;
        }
        let range = self.slots_of(stream);
        let mut free = range.into_iter().filter(|slot| self.slots[*slot].is_free());
        let slot = free.next()?;
        if !self.filling && (stream != STREAM_USER || self.protected) {
            // The last slot is for filler: without it chunks that only wait to become safe would wait for ever.
            free.next()?;
        }
        let (segment, first_unit, room_units) = self.place(stream, 1, space)?;
        let offset = first_unit * self.layout.unit_ius;
        let generation = self.segments[segment as usize].generation;
        let sequence = self.next_sequence;
        self.segments[segment as usize].chunks += 1;
        let slot_ref = &mut self.slots[slot];
        slot_ref.clear();
        slot_ref.name(sequence, segment, generation, offset);
        slot_ref.open_bytes()[..IU_SIZE_BYTES].fill(0);
        slot_ref.chunk = Some(Chunk {
            state: ChunkState::Open,
            stream: stream as u16,
            segment,
            first_unit,
            units: 0,
            room_units,
            sequence,
            expected: sequence,
            last_sequence: 0,
            data_count: 0,
            note_count: 0,
            pending: 0,
            checksums: std::mem::take(&mut slot_ref.spare_checksums),
        });
        self.open[stream] = Some(slot);
        Some(slot)
    }

    /// Whether `count` more IUs can be appended to the user stream without waiting.
    pub fn has_room(&mut self, stream: usize, space: &mut dyn EraseBlockSpace) -> bool {
        self.open_chunk(stream, space).is_some()
    }

    /// Appends an IU. Gives its place, or `None` if staging or space must be waited for. In staging it is at once
    /// readable; [`Log::publish`] makes it survive the process.
    pub fn append(
        &mut self,
        stream: usize,
        tag: u64,
        content: &[u8],
        space: &mut dyn EraseBlockSpace,
    ) -> Option<LogAddress> {
        let slot_index = self.open_chunk(stream, space)?;
        let sequence = self.next_sequence;
        let unit_ius = self.layout.unit_ius;
        let slot = &mut self.slots[slot_index];
        let chunk = slot.chunk.as_mut().expect("open");
        if chunk.data_count == 0 && chunk.note_count == 0 {
            // An empty chunk takes its sequence with its first entry.
            (chunk.sequence, chunk.expected) = (sequence, sequence);
            if let Some(header) = &mut slot.header {
                header[8..16].copy_from_slice(&sequence.to_le_bytes());
            }
        }
        let skip = chunk.expected != sequence;
        if !head::fits(chunk.data_count as usize + 1, chunk.note_count as usize + usize::from(skip), 0) {
            self.seal(stream);
            return self.append(stream, tag, content, space);
        }
        let (data, notes) = (chunk.data_count, chunk.note_count);
        chunk.checksums.push(checksum(content));
        chunk.data_count += 1;
        chunk.note_count += u32::from(skip);
        chunk.expected = sequence + 1;
        chunk.last_sequence = sequence;
        let (segment, offset) = (chunk.segment, chunk.first_unit * unit_ius + 1 + data);
        let full = chunk.data_count + 1 == chunk.room_units * unit_ius;
        let at = IU_SIZE_BYTES + data as usize * slot.iu_bytes;
        let iu_bytes = slot.iu_bytes;
        let bytes = slot.open_bytes();
        if skip {
            head::put_note(bytes, notes as usize, sequence, [head::SKIP, data.into(), 0]);
        }
        head::put_record(bytes, data as usize, tag);
        bytes[at..at + iu_bytes].copy_from_slice(content);
        self.next_sequence += 1;
        let segment_ref = &mut self.segments[segment as usize];
        segment_ref.valid += 1;
        segment_ref.last_sequence = sequence;
        if full {
            self.seal(stream);
        }
        Some(self.layout.address(SegmentIndex(segment), offset))
    }

    /// Appends a note to the user stream; durable like a write. `None` as for [`Log::append`].
    pub fn note(&mut self, words: [u64; 3], space: &mut dyn EraseBlockSpace) -> Option<u64> {
        self.note_to(STREAM_USER, words, space)
    }

    fn note_to(&mut self, stream: usize, words: [u64; 3], space: &mut dyn EraseBlockSpace) -> Option<u64> {
        assert_ne!(words[0], head::SKIP, "that word is taken");
        let slot_index = self.open_chunk(stream, space)?;
        let sequence = self.next_sequence;
        let slot = &mut self.slots[slot_index];
        let chunk = slot.chunk.as_mut().expect("open");
        if chunk.data_count == 0 && chunk.note_count == 0 {
            (chunk.sequence, chunk.expected) = (sequence, sequence);
            if let Some(header) = &mut slot.header {
                header[8..16].copy_from_slice(&sequence.to_le_bytes());
            }
        }
        if !head::fits(chunk.data_count as usize, chunk.note_count as usize + 1, 0) {
            self.seal(stream);
            return self.note_to(stream, words, space);
        }
        let notes = chunk.note_count;
        chunk.note_count += 1;
        chunk.last_sequence = sequence;
        let segment = chunk.segment;
        if !mutant!("log: deallocate record lost") {
            head::put_note(slot.open_bytes(), notes as usize, sequence, words);
        }
        self.segments[segment as usize].last_note = sequence;
        self.segments[segment as usize].last_sequence = sequence;
        self.next_sequence += 1;
        Some(sequence)
    }

    /// Whether [`Log::work`] has more to do without an event.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished && !self.gone
    }

    /// Takes no more appends.
    pub fn set_read_only(&mut self, reason: &'static str) {
        self.read_only.get_or_insert(reason);
    }

    /// Makes what was appended to the user stream survive the death of the process, and a power cut where staging
    /// is protected.
    pub fn publish(&mut self) {
        if let Some(slot) = self.open[STREAM_USER]
            && !mutant!("log: staging not published")
        {
            self.slots[slot].publish();
        }
    }

    /// Ends the open chunk of a stream.
    fn seal(&mut self, stream: usize) {
        let Some(index) = self.open[stream].take() else { return };
        let unit_ius = self.layout.unit_ius;
        let slot = &mut self.slots[index];
        if stream == STREAM_USER {
            slot.publish();
        }
        let chunk = slot.chunk.as_mut().expect("open");
        chunk.units = (chunk.data_count + 1).div_ceil(unit_ius);
        if chunk.data_count + chunk.note_count == 0 {
            // Filler, which makes earlier units safe.
            let wanted = self.layout.shape.unsafe_units * self.layout.width;
            chunk.units = wanted.clamp(1, chunk.room_units);
        }
        chunk.state = ChunkState::Sealed;
        let segment = chunk.segment;
        let units = chunk.units;
        self.segments[segment as usize].next_unit += units;
        if self.segments[segment as usize].next_unit == self.layout.segment_units {
            self.segments[segment as usize].state = SegmentState::Sealed;
            self.open_segment[stream] = None;
        }
        self.sealed.push_back(index);
    }

    fn program(&mut self, index: usize, space: &mut dyn EraseBlockSpace) {
        let layout = &self.layout;
        let slot = &mut self.slots[index];
        let chunk = slot.chunk.as_mut().expect("sealed");
        let stream = chunk.stream as usize;
        let segment = &self.segments[chunk.segment as usize];
        let mut data_check = 0;
        for sum in &chunk.checksums {
            data_check = diecut_units::checksum_append(data_check, &sum.to_le_bytes());
        }
        let head = Head {
            stream: chunk.stream,
            segment: chunk.segment,
            generation: segment.generation,
            offset: chunk.first_unit * layout.unit_ius,
            data_count: chunk.data_count as u16,
            unit_count: chunk.units as u16,
            note_count: chunk.note_count,
            sequence: chunk.sequence,
            data_check,
        };
        chunk.state = ChunkState::Programming;
        chunk.pending = chunk.units;
        let (units, first_unit) = (chunk.units, chunk.first_unit);
        let data = chunk.data_count;
        match stream {
            STREAM_USER => self.statistics.user_ius += u64::from(data),
            STREAM_CLEANER => self.statistics.cleaner_ius += u64::from(data),
            _ => self.statistics.map_ius += u64::from(data),
        }
        self.statistics.summary_ius += 1;
        self.statistics.padding_ius += u64::from(units * layout.unit_ius - 1 - data);
        let head_sum = if let Body::Open(body) = &mut slot.body {
            head.encode(&mut body[..IU_SIZE_BYTES]);
            checksum(&body[..IU_SIZE_BYTES])
        } else {
            panic!("a chunk is programmed once from its slot");
        };
        slot.share();
        let Body::Shared(_, shared) = &slot.body else { unreachable!() };
        let chunk = slot.chunk.as_ref().expect("sealed");
        let mode = if slot.iu_bytes == IU_SIZE_BYTES { ContentMode::Bytes } else { ContentMode::Tags };
        let class = match stream {
            STREAM_USER => IoClass::HostWrite,
            STREAM_CLEANER => IoClass::Cleaner,
            _ => IoClass::Metadata,
        };
        let (pages, oob_size) = (layout.shape.program_unit_pages, layout.shape.oob_size_bytes as usize);
        let page_ius = layout.shape.ius_per_page();
        let mut sums: SmallVec<[u32; 32]> = SmallVec::new();
        for unit in 0..units {
            let (first, end) = (unit * layout.unit_ius, (unit + 1) * layout.unit_ius);
            let mut parts = PayloadParts::new();
            let at = |iu: u32| IU_SIZE_BYTES + (iu as usize - 1) * slot.iu_bytes;
            if mode == ContentMode::Bytes {
                let start = if first == 0 { 0 } else { at(first) };
                parts.push(Payload::new(mode, shared.slice(start..at(end))));
            } else {
                if first == 0 {
                    parts.push(Payload::new(ContentMode::Bytes, shared.slice(0..IU_SIZE_BYTES)));
                }
                if first.max(1) < end {
                    parts.push(Payload::new(mode, shared.slice(at(first.max(1))..at(end))));
                }
            }
            let place = first_unit + unit;
            let member = (place % layout.width) as usize;
            let mark = Mark {
                segment: head.segment,
                generation: segment.generation,
                member: member as u16,
                stream: chunk.stream,
            };
            let mut oob = self.pool.take_zeroed(layout.shape.program_unit_oob_size_bytes() as usize);
            for page in 0..pages {
                sums.clear();
                for iu in first + page * page_ius..first + (page + 1) * page_ius {
                    sums.push(match iu {
                        0 => head_sum,
                        iu => chunk.checksums.get(iu as usize - 1).copied().unwrap_or(0),
                    });
                }
                let start = page as usize * oob_size + layout.shape.holder_oob_offset as usize;
                let end = (page as usize + 1) * oob_size;
                mark::encode(&mark, &sums, &mut oob[start..end]);
            }
            let token = SpaceToken(TOKEN_APPEND | (member as u64) << 32 | index as u64);
            space.append(token, segment.blocks[member], parts, oob, class);
        }
        if mutant!("log: slot released before programmed") {
            self.slots[index].clear();
        }
    }

    /// Whether the log waits for this completion itself. If not, it belongs to the log's user.
    pub fn complete(
        &mut self,
        completion: SpaceCompletion,
        owner: &mut impl Owner,
    ) -> Option<SpaceCompletion> {
        if completion.result == Err(SpaceError::PowerLost) {
            self.gone = true;
        }
        let token = completion.token.0;
        match token & (0xff << 56) {
            TOKEN_APPEND => {
                let slot = (token & 0xffff_ffff) as usize;
                let member = (token >> 32 & 0xff_ffff) as usize;
                let chunk = self.slots[slot].chunk.as_mut().expect("a chunk waits for its programs");
                chunk.pending -= 1;
                let segment = chunk.segment as usize;
                if completion.result.is_ok() {
                    self.segments[segment].completed_rows[member] += 1;
                } else if !self.gone {
                    if completion.result == Err(SpaceError::ReadOnly) {
                        self.read_only = Some("the vSSD has no good erase blocks left");
                    }
                    self.fail_segment(segment as u32);
                }
                None
            }
            TOKEN_HEAD => {
                self.head_arrived(completion, owner);
                None
            }
            TOKEN_COPY => {
                let index = (token & 0xffff_ffff) as usize;
                let read = self.copies[index].take().expect("a copy waits for its read");
                self.free_copies.push(index);
                match completion.destination {
                    Some(buffer)
                        if completion.result.is_ok() && self.checked(&read, &buffer, &completion.oob) =>
                    {
                        self.ready.push_back((read, buffer));
                    }
                    _ => {
                        self.statistics.lost_ius += read.tags.len() as u64;
                        self.segments[self.layout.segment_of(read.first).0 as usize].poisoned = true;
                    }
                }
                self.victim.as_mut().expect("copies belong to a victim").reads -= 1;
                None
            }
            TOKEN_IGNORE => None,
            _ => Some(completion),
        }
    }

    fn checked(&self, read: &CopyRead, data: &[u8], oob: &Option<BufferMut>) -> bool {
        let Some(oob) = oob else { return false };
        let size = data.len() / read.tags.len();
        let (_, first) = self.layout.place(self.layout.offset_of(read.first));
        self.verify(first, size, data, oob).is_ok()
    }

    /// Checks IUs read from IU `first` of an erase block on, against the OOB of their pages.
    ///
    /// # Errors
    /// The number of the first IU, counted from `first`, that is not what was written.
    pub fn verify(&self, first: u32, iu_bytes: usize, data: &[u8], oob: &[u8]) -> Result<(), u32> {
        let page_ius = self.layout.shape.ius_per_page();
        for (index, iu) in data.chunks_exact(iu_bytes).enumerate() {
            let at = first + index as u32;
            let page = at / page_ius - first / page_ius;
            let start = page as usize * self.layout.shape.oob_size_bytes as usize
                + self.layout.shape.holder_oob_offset as usize;
            if mark::checksum_of(&oob[start..], at % page_ius) != checksum(iu) {
                return Err(index as u32);
            }
        }
        Ok(())
    }

    fn fail_segment(&mut self, index: u32) {
        diecut_units::mark!("log: program failed, chunks move");
        let segment = &mut self.segments[index as usize];
        if segment.state == SegmentState::Open {
            segment.state = SegmentState::Sealed;
        }
        let stream = segment.stream;
        if self.open_segment[stream] == Some(index) {
            self.open_segment[stream] = None;
            self.seal(stream);
        }
        for slot in &mut self.slots {
            if let Some(chunk) = &mut slot.chunk
                && chunk.segment == index
            {
                chunk.state = ChunkState::Homeless;
            }
        }
        let slots = &self.slots;
        self.sealed.retain(|s| slots[*s].chunk.as_ref().is_some_and(|c| c.state == ChunkState::Sealed));
    }

    fn find_homes(&mut self, space: &mut dyn EraseBlockSpace, owner: &mut impl Owner) {
        for index in 0..self.slots.len() {
            let Some(chunk) = &self.slots[index].chunk else { continue };
            if chunk.state != ChunkState::Homeless || chunk.pending > 0 {
                continue;
            }
            let (stream, old, units) = (chunk.stream as usize, chunk.segment, chunk.units);
            let (data, old_first, sequence, notes) =
                (chunk.data_count, chunk.first_unit, chunk.sequence, chunk.note_count);
            let last = chunk.last_sequence;
            self.seal(stream);
            // A chunk that moves may use the reserve: its data was accepted.
            let Some((segment, first_unit, _)) = self.place(stream, units, space).or_else(|| {
                // The last one is the cleaner's, unless frees wait for just these chunks to be durable.
                let freeing = self.segments.iter().any(|s| s.state == SegmentState::Freeing);
                if self.free_segments < 2 && !freeing {
                    return None;
                }
                let kept = self.open_segment[STREAM_CLEANER];
                let segment = self.open_new_segment(STREAM_CLEANER, space);
                self.open_segment[STREAM_CLEANER] = kept;
                let segment = segment?;
                self.open_segment[stream] = Some(segment);
                self.segments[segment as usize].stream = stream;
                Some((segment, 0, 0))
            }) else {
                return;
            };
            self.segments[old as usize].chunks -= 1;
            let target = &mut self.segments[segment as usize];
            target.chunks += 1;
            target.next_unit += units;
            target.last_sequence = target.last_sequence.max(last);
            if notes > 0 {
                target.last_note = target.last_note.max(last);
            }
            if target.next_unit == self.layout.segment_units {
                target.state = SegmentState::Sealed;
                self.open_segment[stream] = None;
            }
            let generation = target.generation;
            let offset = first_unit * self.layout.unit_ius;
            for record in 0..data {
                let tag = head::record(self.slots[index].bytes(), record as usize);
                let from =
                    self.layout.address(SegmentIndex(old), old_first * self.layout.unit_ius + 1 + record);
                let to = self.layout.address(SegmentIndex(segment), offset + 1 + record);
                if owner.moved(tag, from, to) {
                    self.invalidate(from);
                    self.validate(to);
                }
            }
            let slot = &mut self.slots[index];
            slot.name(sequence, segment, generation, offset);
            slot.body = match std::mem::replace(&mut slot.body, Body::Moving) {
                Body::Shared(loan, buffer) => {
                    drop(buffer);
                    Body::Open(loan.reclaim())
                }
                body => body,
            };
            let chunk = slot.chunk.as_mut().expect("homeless");
            (chunk.segment, chunk.first_unit, chunk.state) = (segment, first_unit, ChunkState::Sealed);
            self.sealed.push_back(index);
        }
    }

    /// Lets the log go on: programs, releases, frees, cleans. Call after appends and completions.
    pub fn work(&mut self, space: &mut dyn EraseBlockSpace, owner: &mut impl Owner) {
        if self.gone {
            return;
        }
        self.find_homes(space, owner);
        self.release(space);
        self.clean(space, owner);
        self.push(space);
    }

    /// Programs sealed chunks, and pads where durability is waited for.
    fn push(&mut self, space: &mut dyn EraseBlockSpace) {
        let floor = self.floor(true);
        for _ in 0..self.sealed.len() {
            let index = self.sealed.pop_front().expect("counted");
            let chunk = self.slots[index].chunk.as_ref().expect("sealed");
            // A later chunk of the same segment waits behind a gated one: programs are in order.
            let gated = chunk.stream as usize == STREAM_MAP && floor <= chunk.last_sequence;
            let blocked = self.sealed.iter().any(|other| {
                let other = self.slots[*other].chunk.as_ref().expect("sealed");
                other.segment == chunk.segment && other.first_unit < chunk.first_unit
            });
            if gated || blocked {
                let last = self.slots[index].chunk.as_ref().expect("sealed").last_sequence;
                if gated {
                    self.wanted = self.wanted.max(last);
                }
                self.sealed.push_back(index);
                continue;
            }
            self.program(index, space);
        }
        self.fill_when_starved(space);
        if self.wanted <= self.floor(false) {
            return;
        }
        for stream in 0..STREAMS {
            if stream == STREAM_USER && self.protected {
                continue;
            }
            // What waits in this stream: the open chunk, or programmed units that are not yet safe.
            let mut waits = false;
            let mut busy = false;
            for slot in &self.slots {
                if let Some(chunk) = &slot.chunk
                    && chunk.stream as usize == stream
                {
                    let old = chunk.sequence < self.wanted;
                    match chunk.state {
                        ChunkState::Open => waits |= old && chunk.data_count + chunk.note_count > 0,
                        ChunkState::Unsafe => waits |= old,
                        _ => busy = true,
                    }
                }
            }
            if waits && !busy && self.open_chunk(stream, space).is_some() {
                self.seal(stream);
                let index = self.sealed.pop_back().expect("just sealed");
                let chunk = self.slots[index].chunk.as_ref().expect("sealed");
                if stream == STREAM_MAP && chunk.data_count > 0 && self.floor(true) <= chunk.last_sequence {
                    self.sealed.push_back(index);
                } else {
                    self.program(index, space);
                }
            }
        }
    }

    /// All slots of a stream may hold chunks that are programmed but not yet safe from a power cut, and nothing can come
    /// any more that would make them so: filler does, from the slot that is kept for it.
    fn fill_when_starved(&mut self, space: &mut dyn EraseBlockSpace) {
        if mutant!("log: starved staging waits") {
            return;
        }
        for stream in 0..STREAMS {
            if self.open[stream].is_some() || stream == STREAM_USER && !self.protected {
                continue;
            }
            let range = self.slots_of(stream);
            let slots = &mut self.slots[range];
            let settled = |slot: &Slot| slot.chunk.as_ref().is_none_or(|c| c.state == ChunkState::Unsafe);
            let free = slots.iter_mut().filter_map(|slot| slot.is_free().then_some(())).count();
            if free != 1 || !slots.iter().all(settled) {
                continue;
            }
            diecut_units::mark!("log: filler for starved staging");
            self.filling = true;
            if self.open_chunk(stream, space).is_some() {
                self.seal(stream);
                let index = self.sealed.pop_back().expect("just sealed");
                self.program(index, space);
            }
            self.filling = false;
        }
    }

    fn slots_of(&self, stream: usize) -> std::ops::Range<usize> {
        match stream {
            STREAM_USER => 0..self.user_slots,
            STREAM_CLEANER => self.user_slots..self.map_slots,
            _ => self.map_slots..self.slots.len(),
        }
    }

    fn release(&mut self, space: &mut dyn EraseBlockSpace) {
        let rows = self.layout.shape.program_units();
        let unsafe_units = self.layout.shape.unsafe_units;
        // A chunk may wait for one in a later slot: again until nothing changes.
        let mut again = true;
        while std::mem::take(&mut again) {
            for index in 0..self.slots.len() {
                let Some(chunk) = &mut self.slots[index].chunk else { continue };
                if chunk.state == ChunkState::Programming && chunk.pending == 0 {
                    chunk.state = ChunkState::Unsafe;
                }
                if chunk.state != ChunkState::Unsafe {
                    continue;
                }
                let (number, first_unit) = (chunk.segment, chunk.first_unit);
                // Recovery walks a segment from its start: what lies behind a torn chunk is not found.
                let behind = self.slots.iter().any(|slot| {
                    slot.chunk.as_ref().is_some_and(|c| c.segment == number && c.first_unit < first_unit)
                });
                let empty = |c: &Chunk| c.data_count + c.note_count == 0;
                let chunk = self.slots[index].chunk.as_ref().filter(|c| !behind || empty(c));
                let Some(chunk) = chunk else { continue };
                let segment = &self.segments[number as usize];
                // Filler holds nothing that could be lost.
                let safe = chunk.data_count + chunk.note_count == 0
                    || (chunk.first_unit..chunk.first_unit + chunk.units).all(|unit| {
                        let done = segment.completed_rows[(unit % self.layout.width) as usize];
                        done == rows || done >= unit / self.layout.width + 1 + unsafe_units
                    });
                if safe {
                    let segment = chunk.segment as usize;
                    self.slots[index].release();
                    self.segments[segment].chunks -= 1;
                    again = true;
                }
            }
        }
        let floor = self.floor(false);
        let mut freed = false;
        for index in 0..self.segments.len() {
            let segment = &mut self.segments[index];
            if segment.state == SegmentState::Freeing
                && segment.reads == 0
                && segment.chunks == 0
                && (floor >= segment.free_after || mutant!("log: segment freed before copies durable"))
            {
                assert_eq!(segment.valid, 0, "only dead segments are freed");
                for block in std::mem::take(&mut segment.blocks) {
                    if block == NO_BLOCK {
                        continue;
                    }
                    space.free(block).expect("held by this segment");
                }
                *segment = absent();
                self.statistics.segments_freed += 1;
                freed = true;
            }
        }
        if freed {
            space.sync(SpaceToken(TOKEN_IGNORE));
            self.count_free(space);
        }
    }

    fn pick_victim(&mut self) -> Option<u32> {
        let mut best: Option<(u32, u32)> = None;
        for (index, segment) in self.segments.iter().enumerate() {
            if segment.state != SegmentState::Sealed || segment.chunks > 0 || segment.poisoned {
                continue;
            }
            if best.is_none_or(|(valid, _)| segment.valid < valid) {
                best = Some((segment.valid, index as u32));
            }
        }
        let full = self.layout.segment_ius - self.layout.chunks_per_segment() * 2;
        let best = best.filter(|(valid, _)| *valid < full);
        best.map(|(_, index)| index)
    }

    /// Segments in which nothing is left need no cleaning.
    fn free_dead_segments(&mut self) {
        for segment in &mut self.segments {
            if segment.state == SegmentState::Sealed
                && segment.valid == 0
                && segment.last_note == 0
                && segment.chunks == 0
                && !segment.poisoned
            {
                segment.state = SegmentState::Freeing;
                segment.free_after = self.next_sequence;
            }
        }
    }

    fn clean(&mut self, space: &mut dyn EraseBlockSpace, owner: &mut impl Owner) {
        self.unfinished = false;
        self.free_dead_segments();
        self.count_free(space);
        for _ in 0..4 {
            self.flush_copy_reads(space);
            self.place_copies(space, owner);
            if self.victim.is_none() {
                let freeing =
                    self.segments.iter().filter(|s| s.state == SegmentState::Freeing).count() as u32;
                if self.free_segments + freeing >= CLEAN_BELOW_SEGMENTS {
                    if freeing > 0 && self.free_segments < CLEAN_BELOW_SEGMENTS {
                        self.urge();
                    }
                    return;
                }
                let Some(segment) = self.pick_victim() else {
                    self.urge();
                    return;
                };
                self.segments[segment as usize].state = SegmentState::Cleaning;
                let walked = self.segments[segment as usize].valid == 0
                    && self.segments[segment as usize].last_note == 0;
                self.victim = Some(Victim {
                    segment,
                    offset: 0,
                    walked,
                    head_reading: false,
                    head_again: false,
                    reads: 0,
                });
            }
            let limit = if self.free_segments <= RESERVE_SEGMENTS + 1 { 64 } else { 16 };
            let victim = self.victim.as_mut().expect("chosen");
            if victim.walked {
                if victim.reads == 0 && self.ready.is_empty() && self.renewed.is_empty() {
                    let segment = &mut self.segments[victim.segment as usize];
                    segment.free_after = self.next_sequence;
                    if segment.valid > 0 || segment.poisoned {
                        // Something in it cannot be read: it stays, so that reads of it say so.
                        segment.poisoned = true;
                        segment.state = SegmentState::Sealed;
                    } else {
                        segment.state = SegmentState::Freeing;
                    }
                    self.unfinished = true;
                    self.victim = None;
                    continue;
                }
                return;
            }
            if !victim.head_reading && victim.reads < limit && self.ready.len() < 64 {
                let (member, iu) = self.layout.place(victim.offset);
                let block = self.segments[victim.segment as usize].blocks[member];
                if block == NO_BLOCK {
                    // Nothing was programmed on this member before a cut: no chunk reaches here.
                    victim.walked = true;
                    continue;
                }
                victim.head_reading = true;
                let buffer = self.pool.take(IU_SIZE_BYTES);
                space.read(SpaceToken(TOKEN_HEAD), block, iu, 1, buffer, None, IoClass::Cleaner);
            }
            self.flush_copy_reads(space);
            return;
        }
        // The next step needs no event: whoever drives the log must come again.
        self.unfinished = true;
    }

    /// Frees wait for durability of what was copied.
    fn urge(&mut self) {
        let after =
            self.segments.iter().filter(|s| s.state == SegmentState::Freeing).map(|s| s.free_after).max();
        if let Some(after) = after {
            self.wanted = self.wanted.max(after);
        }
    }

    fn head_arrived(&mut self, completion: SpaceCompletion, owner: &mut impl Owner) {
        let Some(victim) = self.victim.as_mut() else { return };
        victim.head_reading = false;
        let index = victim.segment;
        let head = completion
            .destination
            .as_ref()
            .filter(|_| completion.result.is_ok())
            .and_then(|b| Head::decode(b));
        let segment = &mut self.segments[index as usize];
        let Some(head) = head.filter(|h| {
            h.segment == index && h.generation == segment.generation && h.offset == victim.offset
        }) else {
            if !victim.head_again {
                // A read that fails once must not cost what the rest of the segment records.
                victim.head_again = true;
                return;
            }
            victim.walked = true;
            // Notes behind a head that is lost cannot be renewed: their segment stays.
            segment.poisoned |= segment.last_note > 0;
            return;
        };
        victim.head_again = false;
        let bytes = completion.destination.expect("read");
        self.entries.clear();
        for record in 0..u32::from(head.data_count) {
            let place = self.layout.address(SegmentIndex(index), head.offset + 1 + record);
            self.entries.push((head::record(&bytes, record as usize), place));
        }
        owner.live(&self.entries, &mut self.live);
        let entries = std::mem::take(&mut self.entries);
        let mut run: Option<CopyRead> = None;
        let mut runs: SmallVec<[CopyRead; 16]> = SmallVec::new();
        for ((tag, place), live) in entries.iter().zip(&self.live) {
            let live = *live || mutant!("log: cleaner copy without liveness check");
            let joins = run.as_ref().is_some_and(|r| {
                r.first.0 + r.tags.len() as u32 == place.0
                    && self.layout.offset_of(r.first) / self.layout.unit_ius
                        == self.layout.offset_of(*place) / self.layout.unit_ius
            });
            if !live || !joins {
                runs.extend(run.take());
            }
            if live {
                run.get_or_insert_with(|| CopyRead { first: *place, tags: SmallVec::new() }).tags.push(*tag);
            }
        }
        runs.extend(run);
        self.entries = entries;
        let victim = self.victim.as_mut().expect("cleaning");
        for run in runs {
            victim.reads += 1;
            let slot = self.free_copies.pop().unwrap_or_else(|| {
                self.copies.push(None);
                self.copies.len() - 1
            });
            self.copies[slot] = Some(run);
            self.unread.push_back(slot);
        }
        for note in 0..head.note_count as usize {
            let (_, words) = head::note(&bytes, note);
            if words[0] != head::SKIP {
                self.renewed.push(words);
            }
        }
        victim.offset += u32::from(head.unit_count) * self.layout.unit_ius;
        let end = self.segments[index as usize].next_unit * self.layout.unit_ius;
        victim.walked |= victim.offset >= end;
    }
}

impl Log {
    fn flush_copy_reads(&mut self, space: &mut dyn EraseBlockSpace) {
        while let Some(slot) = self.unread.pop_front() {
            let read = self.copies[slot].as_ref().expect("wanted");
            let segment = &self.segments[self.layout.segment_of(read.first).0 as usize];
            let (first, count) = (read.first, read.tags.len() as u32);
            let bytes = if segment.stream == STREAM_MAP {
                IU_SIZE_BYTES
            } else {
                self.layout.content_mode().bytes_per_iu()
            };
            self.read_run(
                SpaceToken(TOKEN_COPY | slot as u64),
                first,
                count,
                bytes,
                None,
                IoClass::Cleaner,
                space,
            );
        }
    }

    /// Reads IUs of one program unit, with the OOB of their pages; `destination` is taken from the pool if `None`.
    #[allow(clippy::too_many_arguments, reason = "one place that knows where IUs lie")]
    fn read_run(
        &mut self,
        token: SpaceToken,
        first: LogAddress,
        count: u32,
        iu_bytes: usize,
        destination: Option<BufferMut>,
        class: IoClass,
        space: &mut dyn EraseBlockSpace,
    ) {
        let segment = &self.segments[self.layout.segment_of(first).0 as usize];
        let (member, iu) = self.layout.place(self.layout.offset_of(first));
        let block = segment.blocks[member];
        let page_ius = self.layout.shape.ius_per_page();
        let pages = (iu + count - 1) / page_ius - iu / page_ius + 1;
        let oob = self.pool.take(pages as usize * self.layout.shape.oob_size_bytes as usize);
        let destination = destination.unwrap_or_else(|| self.pool.take(count as usize * iu_bytes));
        space.read(token, block, iu, count, destination, Some(oob), class);
    }

    /// IUs that can be read with one request from `address` on.
    pub fn run_limit(&self, address: LogAddress) -> u32 {
        self.layout.unit_ius - self.layout.offset_of(address) % self.layout.unit_ius
    }

    /// The content of a place that is still staged.
    #[inline]
    pub fn staged(&self, address: LogAddress) -> Option<&[u8]> {
        let index = self.layout.segment_of(address).0;
        let offset = self.layout.offset_of(address);
        if self.segments[index as usize].chunks == 0 {
            return None;
        }
        self.slots.iter().find_map(|slot| {
            let chunk = slot.chunk.as_ref().filter(|chunk| chunk.segment == index)?;
            let data = offset.checked_sub(chunk.first_unit * self.layout.unit_ius + 1)?;
            (data < chunk.data_count).then(|| slot.iu(data))
        })
    }

    /// Reads programmed IUs for a host, at most [`Log::run_limit`]. The segment stays until [`Log::unpin`].
    /// Returns IU number within the erase block, for [`Log::verify`].
    pub fn read(
        &mut self,
        token: SpaceToken,
        first: LogAddress,
        count: u32,
        destination: BufferMut,
        class: IoClass,
        space: &mut dyn EraseBlockSpace,
    ) -> u32 {
        self.segments[self.layout.segment_of(first).0 as usize].reads += 1;
        self.read_run(token, first, count, 0, Some(destination), class, space);
        self.layout.place(self.layout.offset_of(first)).1
    }

    /// A read is done.
    pub fn unpin(&mut self, address: LogAddress) {
        self.segments[self.layout.segment_of(address).0 as usize].reads -= 1;
    }

    fn place_copies(&mut self, space: &mut dyn EraseBlockSpace, owner: &mut impl Owner) {
        while let Some(words) = self.renewed.pop() {
            // What of it still holds is asked at the moment it gets its new sequence, as with copies.
            let mut still = std::mem::take(&mut self.still);
            still.clear();
            owner.renew(words, &mut still);
            let placed = still.iter().all(|words| self.note_to(STREAM_CLEANER, *words, space).is_some());
            self.still = still;
            if !placed {
                self.renewed.push(words);
                break;
            }
        }
        while let Some((read, buffer)) = self.ready.pop_front() {
            let stream = if self.segments[self.layout.segment_of(read.first).0 as usize].stream == STREAM_MAP
            {
                STREAM_MAP
            } else {
                STREAM_CLEANER
            };
            let size = buffer.len() / read.tags.len();
            self.entries.clear();
            self.entries.extend(
                read.tags.iter().enumerate().map(|(i, tag)| (*tag, LogAddress(read.first.0 + i as u32))),
            );
            let entries = std::mem::take(&mut self.entries);
            owner.live(&entries, &mut self.live);
            let mut stuck = false;
            for (index, (tag, old)) in entries.iter().enumerate() {
                let forced = mutant!("log: cleaner copy without liveness check");
                if !self.live[index] && !forced {
                    continue;
                }
                let content = &buffer[index * size..(index + 1) * size];
                let Some(new) = self.append(stream, *tag, content, space) else {
                    stuck = true;
                    break;
                };
                if owner.moved(*tag, *old, new) {
                    diecut_units::mark!("log: cleaner moved live data");
                    self.invalidate(*old);
                } else {
                    // Only a planted bug gets here.
                    self.invalidate(new);
                }
            }
            self.entries = entries;
            if stuck {
                diecut_units::mark!("log: cleaner waited for room");
                // What was moved is no longer live at its old place, so starting over skips it.
                self.ready.push_front((read, buffer));
                return;
            }
        }
    }

    /// Takes a segment found after a restart.
    pub fn adopt_segment(&mut self, index: u32, generation: u32, stream: usize, blocks: &[LogicalBlock]) {
        self.segments[index as usize] = Segment {
            state: SegmentState::Sealed,
            blocks: SmallVec::from_slice(blocks),
            generation,
            stream,
            completed_rows: SmallVec::from_elem(
                self.layout.shape.program_units(),
                self.layout.width as usize,
            ),
            ..absent()
        };
        self.next_generation = self.next_generation.max(generation + 1);
    }

    /// Generation of a segment that is held.
    pub fn generation(&self, index: u32) -> Option<u32> {
        let segment = self.segments.get(index as usize)?;
        (segment.state != SegmentState::Absent).then_some(segment.generation)
    }

    /// The erase block and IU of a place.
    pub fn block_of(&self, address: LogAddress) -> (LogicalBlock, u32) {
        let (member, iu) = self.layout.place(self.layout.offset_of(address));
        (self.segments[self.layout.segment_of(address).0 as usize].blocks[member], iu)
    }

    /// Notes what a chunk of an adopted segment holds.
    pub fn adopt_chunk(&mut self, head: &Head, last_sequence: u64, last_note: u64) {
        let segment = &mut self.segments[head.segment as usize];
        segment.last_sequence = segment.last_sequence.max(last_sequence);
        segment.last_note = segment.last_note.max(last_note);
        // What lies behind the last whole chunk was torn: the cleaner looks for nothing there.
        let end = head.offset / self.layout.unit_ius + u32::from(head.unit_count);
        segment.next_unit = segment.next_unit.max(end);
        self.next_sequence = self.next_sequence.max(last_sequence + 1);
    }

    /// Chunks found in protected staging: slot, head fields, head bytes.
    pub fn found_in_staging(&self) -> Vec<(usize, RecoveredChunk)> {
        let mut found = Vec::new();
        for (index, slot) in self.slots[..self.user_slots].iter().enumerate() {
            if let Some((sequence, segment, generation, offset, data, notes)) = slot.found() {
                let head = Head {
                    segment,
                    generation,
                    offset,
                    data_count: data as u16,
                    unit_count: (data + 1).div_ceil(self.layout.unit_ius) as u16,
                    note_count: notes,
                    sequence,
                    ..Head::default()
                };
                found.push((index, RecoveredChunk { head, bytes: slot.bytes()[..IU_SIZE_BYTES].to_vec() }));
            }
        }
        found
    }

    /// Empties a slot whose chunk is whole on flash.
    pub fn drop_staged(&mut self, slot: usize) {
        self.slots[slot].clear();
    }

    /// Keeps a chunk found in staging: it gets a new place. Until then it lies in a segment that does not exist on
    /// flash, which is returned; its addresses are those of offset 0 there.
    ///
    /// # Panics
    /// If there is no unused segment number.
    pub fn adopt_staged(&mut self, slot: usize, found: &RecoveredChunk, last_sequence: u64) -> SegmentIndex {
        let index = self
            .segments
            .iter()
            .rposition(|s| s.state == SegmentState::Absent)
            .expect("the reserve leaves segment numbers");
        self.segments[index].state = SegmentState::Sealed;
        self.segments[index].poisoned = false;
        self.segments[index].chunks = 1;
        self.segments[index].next_unit = self.layout.segment_units;
        let mut checksums = Vec::with_capacity(self.layout.chunk_ius() as usize);
        for data in 0..u32::from(found.head.data_count) {
            checksums.push(checksum(self.slots[slot].iu(data)));
        }
        self.slots[slot].chunk = Some(Chunk {
            state: ChunkState::Homeless,
            stream: STREAM_USER as u16,
            segment: index as u32,
            first_unit: 0,
            units: found.head.unit_count.into(),
            room_units: found.head.unit_count.into(),
            sequence: found.head.sequence,
            expected: 0,
            last_sequence,
            data_count: found.head.data_count.into(),
            note_count: found.head.note_count,
            pending: 0,
            checksums,
        });
        self.next_sequence = self.next_sequence.max(last_sequence + 1);
        SegmentIndex(index as u32)
    }

    /// IUs of data that all segments but the reserve hold when chunks are full.
    pub fn usable_ius(&self) -> u64 {
        let per_segment = self.layout.segment_ius - self.layout.chunks_per_segment();
        u64::from(self.real_segments.saturating_sub(CLEAN_BELOW_SEGMENTS + 2)) * u64::from(per_segment)
    }

    /// Counts that must agree with each other.
    ///
    /// # Panics
    /// If they do not.
    pub fn check_invariants(&self) {
        for (index, segment) in self.segments.iter().enumerate() {
            let chunks =
                self.slots.iter().filter_map(|s| s.chunk.as_ref()).filter(|c| c.segment as usize == index);
            assert_eq!(chunks.count(), segment.chunks as usize, "staged chunks of segment {index}");
            assert!(segment.valid <= self.layout.segment_ius, "segment {index}");
            assert!(
                segment.state != SegmentState::Absent || segment.valid == 0,
                "segment {index} does not exist"
            );
        }
    }

    /// Live IUs of each segment.
    pub fn valid_counts(&self) -> Vec<u32> {
        self.segments.iter().map(|segment| segment.valid).collect()
    }
}

fn plain_slot(layout: &Layout, iu_bytes: usize) -> Slot {
    let body = BufferMut::copy_from(&vec![0; IU_SIZE_BYTES + layout.chunk_ius() as usize * iu_bytes]);
    Slot { header: None, body: Body::Open(body), chunk: None, iu_bytes, spare_checksums: Vec::new() }
}

fn absent() -> Segment {
    Segment {
        state: SegmentState::Absent,
        blocks: SmallVec::new(),
        generation: 0,
        stream: 0,
        next_unit: 0,
        valid: 0,
        completed_rows: SmallVec::new(),
        last_note: 0,
        last_sequence: 0,
        reads: 0,
        chunks: 0,
        free_after: 0,
        poisoned: false,
    }
}

impl Log {
    /// State in one line per slot and segment, for debugging.
    pub fn describe(&self) -> String {
        let mut text = format!(
            "free {} wanted {} floor {} next {} victim {:?} ready {} renewed {} sealed {:?} open {:?} open_segment {:?}\n",
            self.free_segments,
            self.wanted,
            self.floor(false),
            self.next_sequence,
            self.victim.as_ref().map(|v| (v.segment, v.offset, v.walked, v.head_reading, v.reads)),
            self.ready.len(),
            self.renewed.len(),
            self.sealed,
            self.open,
            self.open_segment
        );
        for (i, slot) in self.slots.iter().enumerate() {
            if let Some(c) = &slot.chunk {
                text += &format!(
                    "slot {i}: {:?} stream {} segment {} first {} units {} seq {} data {} notes {} pending {}\n",
                    c.state,
                    c.stream,
                    c.segment,
                    c.first_unit,
                    c.units,
                    c.sequence,
                    c.data_count,
                    c.note_count,
                    c.pending
                );
            }
        }
        for (i, s) in self.segments.iter().enumerate() {
            if s.state != SegmentState::Absent {
                text += &format!(
                    "segment {i}: {:?} stream {} next {} valid {} chunks {} reads {} poisoned {} rows {:?}\n",
                    s.state, s.stream, s.next_unit, s.valid, s.chunks, s.reads, s.poisoned, s.completed_rows
                );
            }
        }
        text
    }
}
