mod anchored;
mod append;
mod clean;
mod describe;
mod pace;
mod program;
mod read;
mod recover;
mod release;
mod withdraw;

use crate::anchor::{Anchor, AnchorWriter};
use crate::head::{self, Head, Origin};
use crate::mark::{self, Mark};
use crate::reserve::{
    BURST_SEGMENTS, DISPLACED_LEAVE, FOUND_LEAVE, RESERVE_SEGMENTS, SMALL_SEGMENTS, paced_segments,
    usable_ius, walks,
};
use crate::staging::{Body, Chunk, ChunkState, FoundSlot, Published, Slot};
use crate::{Layout, LogAddress, Owner, PerStream, SLOT_HEADER_SIZE_BYTES, SegmentIndex, Stream};
use diecut_units::{
    BufferMut, BufferPool, ContentMode, IU_SIZE_BYTES, Payload, ProtectedRegion, Span, Time, checksum, mutant,
};
use diecut_vssd::space::{
    EraseBlockSpace, IoClass, LogicalBlock, PayloadParts, Purpose, SpaceCompletion, SpaceError, SpaceToken,
    UnitIndex,
};
use pace::Pace;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// How long after it was last called a log that found no room on the medium wants to look again.
const LOOK_AGAIN: Span = Span::from_secs(1);
/// `Purpose` of the erase blocks of segments.
pub const PURPOSE_SEGMENT: Purpose = Purpose(1);

/// Stands for a member of a segment found after a restart on which nothing was programmed.
pub const NO_BLOCK: LogicalBlock =
    LogicalBlock { unit: diecut_vssd::space::UnitIndex(u16::MAX), index: u32::MAX };

const TOKEN_APPEND: u64 = diecut_units::token::space::APPEND;
const TOKEN_HEAD: u64 = diecut_units::token::space::HEAD;
const TOKEN_COPY: u64 = diecut_units::token::space::COPY;
/// Of what nobody waits for.
pub const TOKEN_NOBODY: u64 = diecut_units::token::space::NOBODY;
pub(crate) const TOKEN_ANCHOR: u64 = diecut_units::token::space::ANCHOR;
/// Tokens from here on belong to the log's user.
pub const TOKEN_USER: u64 = diecut_units::token::space::USER;

/// Segments by which one group may be ahead of another: a stream opens its segments where no other one programs, and
/// the cleaner more of them than writers.
const GROUPS_APART: u64 = 2;
/// Heads of a victim that are read at a time.
const HEADS_AHEAD: u32 = 32;
/// Reads of copies on each member of a segment that are under way before the next head is looked at.
const COPY_READS_PER_MEMBER: u32 = 24;
/// Most of them in all.
const COPY_READS_MAX: u32 = 256;

/// Slots of protected memory without which it is not used, and most of them that are.
const SLOTS_MIN: usize = 2;
const SLOTS_MAX: usize = 256;

/// Why nothing more is written when the vSSD says so.
const NO_GOOD_BLOCKS: &str = "the vSSD has used up its reserve of good erase blocks";

/// Why nothing is written while the medium has no room.
const NO_ROOM: &str = "the file system under the device is full";

/// Why nothing more is written when a counter came to its end, or the medium says so.
const COUNTERS_USED_UP: &str = "the store's sequence numbers are used up: copy its data to a new vSSD";

/// What is chosen when a log is made.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Staging slots of the user stream where there is no protected memory.
    pub user_slots: usize,
}

/// IUs programmed by cause, and what the cleaner did. WAF = all programmed / user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// IUs of each stream, heads and filler left out. All counts are of what was handed to flash, also when it fails and is written
    /// again.
    pub stream_ius: PerStream<u64>,
    /// Anchors, their filler included.
    pub anchor_ius: u64,
    /// Chunk heads.
    pub summary_ius: u64,
    /// Filler.
    pub padding_ius: u64,
    /// Segments freed.
    pub segments_freed: u64,
    /// Copies that could not be read.
    pub lost_ius: u64,
}

impl LogStatistics {
    /// Host data.
    pub fn user_ius(&self) -> u64 {
        self.stream_ius[Stream::User]
    }

    /// Cleaner copies.
    pub fn cleaner_ius(&self) -> u64 {
        self.stream_ius[Stream::Cleaner]
    }

    /// Map leaves.
    pub fn map_ius(&self) -> u64 {
        self.stream_ius[Stream::Map]
    }
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
    stream: Stream,
    next_unit: u32,
    completed_rows: SmallVec<[u32; 16]>,
    last_note: u64,
    /// Notes in it, those that an anchor covers included.
    notes: u32,
    last_sequence: u64,
    reads: u32,
    chunks: u32,
    free_after: u64,
    is_unreclaimable: bool,
}

struct Victim {
    segment: u32,
    /// Where the next chunk begins whose head is to be looked at.
    offset: u32,
    walked: bool,
    /// Heads that were asked for: those ahead of `offset` lie where they do if chunks are full.
    heads: Vec<HeadRead>,
    /// The present head was read once and was none.
    head_again: bool,
    /// The chunk before was full: the next ones are expected to be.
    is_regular: bool,
    reads: u32,
    /// What was read of it and is yet to be placed, or noted again: in [`Log::ready`] and [`Log::renewed`].
    waiting: u32,
    /// Live IUs when it was chosen.
    live_at_start: u32,
    /// Tells the heads of two victims apart.
    number: u8,
}

/// A head that the cleaner asked for.
struct HeadRead {
    offset: u32,
    is_under_way: bool,
    /// `None` when it could not be read, too.
    bytes: Option<BufferMut>,
}

/// Erase blocks taken for the segment that is opened next, one member after the other. A block is erased when it is taken:
/// if all members erased at once, nothing could be programmed meanwhile.
struct Prepared {
    group: u32,
    blocks: SmallVec<[LogicalBlock; 16]>,
}

/// An IU that the cleaner copies.
struct CopyEntry {
    tag: u64,
    place: LogAddress,
    checksum: u32,
}

/// IUs of one program unit that the cleaner reads at once. Between those it wants are dead ones: a page is sensed as a
/// whole, and what is not wanted costs only its transfer.
struct CopyRead {
    first: LogAddress,
    count: u32,
    entries: Vec<CopyEntry>,
    /// Entries in front that were placed, or are dead.
    placed: u32,
    again: bool,
}

/// Notes from one count of [`Log::note_counts`] to the next.
const NOTES_PER_COUNT: u64 = 256;
/// Counts that there is room for from the start.
const NOTE_COUNTS_ROOM: usize = 512;

/// The log of one vSSD. Lower rooms are lent at each call.
pub struct Log {
    layout: Layout,
    segments: Vec<Segment>,
    /// Segments that are being freed.
    freeing: Vec<u32>,
    /// Live IUs of each segment; apart from the rest because every write touches one at random.
    valid: Vec<u32>,
    /// Some segment may have lost its last live IU since dead ones were looked for.
    some_died: bool,
    anchor: AnchorWriter,
    /// Sequence of the newest anchor that holds: notes before it are in the owner's leaves.
    anchored: u64,
    /// Notes that recovery could meet, since the log was opened; every so many with the sequence of the next one.
    notes: u64,
    note_counts: VecDeque<(u64, u64)>,
    /// Notes that the newest anchor covers, about.
    notes_covered: u64,
    /// Chunks of the map stream whose place failed.
    map_moves: u64,
    /// The cleaner appends what it copies from there.
    copying: Option<Origin>,
    /// Entries that the cleaner appended since the user stream last got a segment, or an anchor held.
    cleaned_entries: u64,
    slots: Vec<Slot>,
    /// Slots that hold a chunk, in order. Most are empty most of the time, and every step goes through the others.
    occupied: Vec<usize>,
    user_slots: usize,
    map_slots: usize,
    protected: bool,
    open: PerStream<Option<usize>>,
    open_segment: PerStream<Option<u32>>,
    next_sequence: u64,
    next_generation: u32,
    /// Segments opened in each group.
    opened: Vec<u64>,
    /// For each stream.
    prepared: PerStream<Option<Prepared>>,
    wanted: u64,
    sealed: VecDeque<usize>,
    /// What the cleaner works on, two for each group that it cleans at most: while the last copies of one are read it walks
    /// through the next one.
    victims: VecDeque<Victim>,
    copies: Vec<Option<CopyRead>>,
    free_copies: Vec<usize>,
    unread: VecDeque<usize>,
    ready: VecDeque<(CopyRead, BufferMut)>,
    /// Notes of victims that are to be written again, with the victim's segment.
    renewed: Vec<(u32, [u64; 3])>,
    still: Vec<[u64; 3]>,
    live: Vec<bool>,
    spare_entries: Vec<Vec<CopyEntry>>,
    entries: Vec<(u64, LogAddress)>,
    pool: BufferPool,
    statistics: LogStatistics,
    read_only: Option<&'static str>,
    /// The medium had no room for a segment when one was last to be opened.
    no_room: bool,
    /// When [`Log::work`] was last called.
    worked_at: Time,
    gone: bool,
    filling: bool,
    /// See [`Log::quiesce`].
    is_quiescing: bool,
    unfinished: bool,
    /// See [`Log::keep_all`].
    keeps_all: bool,
    /// See [`Log::want_anchor`].
    anchor_wanted: bool,
    free_segments: u32,
    /// As many as would be free if anchors took no blocks: one that is written takes some, and soon gives as many back.
    free_segments_without_anchors: u32,
    /// [`Log::next_sequence`] when they were counted.
    counted_at: u64,
    real_segments: u32,
    pace: Pace,
}

/// The layout of a log with so much protected memory, and bytes of a staging slot.
fn layout_for(space: &dyn EraseBlockSpace, staging_size_bytes: Option<usize>) -> (Layout, usize) {
    let mut layout = Layout::new(*space.shape(), space.unit_count());
    let user_iu = layout.content_mode().bytes_per_iu();
    let slot_size = |layout: &Layout| {
        (SLOT_HEADER_SIZE_BYTES + IU_SIZE_BYTES + layout.chunk_ius() as usize * user_iu).next_multiple_of(64)
    };
    if let Some(staging_size_bytes) = staging_size_bytes {
        // At least four slots, or programs and appends would wait for each other.
        while layout.chunk_units > 1
            && layout.chunk_units * layout.unit_ius > 2
            && staging_size_bytes / slot_size(&layout) < 4
        {
            layout.chunk_units = (layout.chunk_units / 2).max(if layout.unit_ius == 1 { 2 } else { 1 });
        }
    }
    let size = slot_size(&layout);
    (layout, size)
}

/// Segments that blocks and addresses suffice for.
fn segments_of(layout: &Layout, space: &dyn EraseBlockSpace) -> u32 {
    let blocks = (0..space.unit_count()).map(|unit| space.blocks_of_unit(UnitIndex(unit)));
    // The last numbers are those of staged chunks, and of the addresses that are no places.
    let numbers = (u32::MAX >> layout.segment_shift) - 1 - SLOTS_MAX as u32;
    (blocks.min().unwrap_or(0) * layout.groups).min(numbers)
}

/// Staging slots of the cleaner: four program units for each member of a segment at least, and chunks that are not yet safe.
fn cleaner_slots(layout: &Layout) -> usize {
    let unsafe_chunks = (layout.shape.unsafe_units * layout.width).div_ceil(layout.chunk_units);
    ((8 * layout.width).div_ceil(layout.chunk_units).max(8) + unsafe_chunks) as usize
}

fn plain_slot(layout: &Layout, iu_bytes: usize) -> Slot {
    let body = BufferMut::copy_from(&vec![0; IU_SIZE_BYTES + layout.chunk_ius() as usize * iu_bytes]);
    Slot {
        published: Published::default(),
        header: None,
        body: Body::Open(body),
        chunk: None,
        iu_bytes,
        spare_checksums: Vec::new(),
    }
}

fn absent() -> Segment {
    Segment {
        state: SegmentState::Absent,
        blocks: SmallVec::new(),
        generation: 0,
        stream: Stream::User,
        next_unit: 0,
        completed_rows: SmallVec::new(),
        last_note: 0,
        notes: 0,
        last_sequence: 0,
        reads: 0,
        chunks: 0,
        free_after: 0,
        is_unreclaimable: false,
    }
}

impl Log {
    /// A log over an empty or recovered space; `staging` is its part of protected memory, if the medium has some.
    pub fn new(config: &LogConfig, space: &dyn EraseBlockSpace, staging: Option<ProtectedRegion>) -> Log {
        let staging_size_bytes = staging.as_ref().map(|region| region.len());
        let (layout, size) = layout_for(space, staging_size_bytes);
        let user_iu = layout.content_mode().bytes_per_iu();
        let staging = staging.filter(|region| region.len() / size >= SLOTS_MIN);
        let protected = staging.is_some();
        let pads = (layout.shape.unsafe_units * layout.width).div_ceil(layout.chunk_units) as usize;
        let mut slots = Vec::new();
        if let Some(region) = staging {
            let count = (region.len() / size).min(SLOTS_MAX);
            let mut rest = region;
            for _ in 0..count {
                let mut body = rest.split_to(size);
                let header = Some(body.split_to(SLOT_HEADER_SIZE_BYTES).into_buffer());
                let body = body.into_buffer();
                slots.push(Slot {
                    published: Published::default(),
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
        for _ in 0..cleaner_slots(&layout) {
            slots.push(plain_slot(&layout, user_iu));
        }
        for _ in 0..4 + pads {
            slots.push(plain_slot(&layout, IU_SIZE_BYTES));
        }
        let count = segments_of(&layout, space);
        // Numbers beyond the real ones stand for chunks that recovery found in staging.
        let segments: Vec<Segment> = (0..count + user_slots as u32).map(|_| absent()).collect();
        let valid = vec![0; segments.len()];
        let mut log = Log {
            segments,
            freeing: Vec::new(),
            valid,
            some_died: true,
            anchor: AnchorWriter::new(),
            anchored: 1,
            notes: 0,
            note_counts: VecDeque::with_capacity(NOTE_COUNTS_ROOM),
            notes_covered: 0,
            map_moves: 0,
            copying: None,
            cleaned_entries: 0,
            slots,
            occupied: Vec::new(),
            user_slots,
            map_slots: user_slots + cleaner_slots(&layout),
            protected,
            open: PerStream::default(),
            open_segment: PerStream::default(),
            next_sequence: 1,
            next_generation: 1,
            opened: vec![0; layout.groups as usize],
            prepared: PerStream::default(),
            wanted: 0,
            sealed: VecDeque::new(),
            victims: VecDeque::new(),
            copies: Vec::new(),
            free_copies: Vec::new(),
            unread: VecDeque::new(),
            ready: VecDeque::new(),
            renewed: Vec::new(),
            still: Vec::new(),
            live: Vec::new(),
            spare_entries: Vec::new(),
            entries: Vec::new(),
            pool: BufferPool::new(),
            statistics: LogStatistics::default(),
            read_only: None,
            no_room: false,
            worked_at: Time::ZERO,
            gone: false,
            filling: false,
            is_quiescing: false,
            unfinished: false,
            keeps_all: false,
            anchor_wanted: false,
            free_segments: 0,
            free_segments_without_anchors: 0,
            counted_at: 0,
            real_segments: count,
            pace: Pace::new(layout.chunk_ius().into(), u64::from(BURST_SEGMENTS * layout.segment_ius)),
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

    /// Why nothing is written at present, if the medium has no room. Unlike what [`Log::read_only`] says it can end.
    pub fn no_room(&self) -> Option<&'static str> {
        self.no_room.then_some(NO_ROOM)
    }

    /// Looks whether the medium has room again, if it had none.
    pub fn look_for_room(&mut self, space: &mut dyn EraseBlockSpace) {
        if self.no_room && !self.is_blind_to_room() {
            let (layout, group) = (&self.layout, self.calm_group(Stream::User));
            self.no_room = !(0..layout.width).all(|member| space.make_room(layout.unit(group, member)));
        }
    }

    /// Only with a planted bug.
    pub(super) fn is_blind_to_room(&self) -> bool {
        self.no_room && mutant!("log: room that came back is not seen")
    }

    /// Whether the user stream takes nothing because the medium has no room, and not because something else is waited for.
    pub fn lacks_room(&self) -> bool {
        self.no_room && self.open[Stream::User].is_none() && self.open_segment[Stream::User].is_none()
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

    /// Segments that lie on flash when none is bad: greater numbers stand for chunks found in staging.
    pub fn flash_segment_count(&self) -> u32 {
        self.real_segments
    }

    /// Numbers of segments.
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

    /// All entries of the user stream before this one are durable: what hosts were told, or ask for. A copy that is not
    /// yet durable has its original.
    pub fn host_durable_before(&self) -> u64 {
        self.floor_of(0..self.user_slots, false)
    }

    /// Chunks in staging, by slot.
    fn staged_chunks(&self) -> impl Iterator<Item = (usize, &Chunk)> {
        self.occupied.iter().map(|slot| (*slot, self.slots[*slot].chunk.as_ref().expect("it holds a chunk")))
    }

    /// A slot takes a chunk.
    fn occupy(&mut self, slot: usize, chunk: Chunk) {
        self.slots[slot].chunk = Some(chunk);
        let place = self.occupied.binary_search(&slot).expect_err("slots hold one chunk");
        self.occupied.insert(place, slot);
    }

    fn floor(&self, without_gated: bool) -> u64 {
        self.floor_of(0..self.slots.len(), without_gated)
    }

    fn floor_of(&self, slots: std::ops::Range<usize>, without_gated: bool) -> u64 {
        let mut floor = self.next_sequence;
        for (slot, chunk) in self.staged_chunks() {
            if slots.contains(&slot)
                && !(self.protected && slot < self.user_slots)
                && !(without_gated && chunk.stream.policy().is_gated)
                && chunk.data_count + chunk.note_count > 0
            {
                floor = floor.min(chunk.sequence);
            }
        }
        floor
    }

    /// Counts a place as live.
    #[inline]
    pub fn validate(&mut self, address: LogAddress) {
        self.valid[(address.0 >> self.layout.segment_shift) as usize] += 1;
    }

    /// Counts a place as dead.
    #[inline]
    pub fn invalidate(&mut self, address: LogAddress) {
        let valid = &mut self.valid[(address.0 >> self.layout.segment_shift) as usize];
        assert!(*valid > 0, "a place dies once");
        *valid -= 1;
        self.some_died |= *valid == 0;
    }

    /// Whether [`Log::work`] has more to do without an event.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished && !self.gone && !self.keeps_all
    }

    /// Whether the cleaner goes round without making room: what it moves are notes that only an anchor makes superfluous.
    /// One is to be written whatever it costs.
    pub fn needs_anchor(&self) -> bool {
        let segments = (self.real_segments / 4).clamp(4, 32);
        self.anchor_wanted || self.cleaned_entries > u64::from(segments) * u64::from(self.layout.segment_ius)
    }

    /// Asks for an anchor whatever it costs, until it is asked for no more.
    pub fn want_anchor(&mut self, is_wanted: bool) {
        self.anchor_wanted = is_wanted;
    }

    /// Whether programs are under way.
    pub fn is_programming(&self) -> bool {
        self.programming_chunks() > 0
    }

    fn programming_chunks(&self) -> u32 {
        let programming = |slot: &&Slot| slot.chunk.as_ref().is_some_and(|chunk| chunk.pending > 0);
        self.slots.iter().filter(programming).count() as u32
    }

    /// From now on only as many chunks are programmed at once as keep all units at work, or again as many as are sealed. Appends go
    /// on meanwhile: chunks wait in staging instead of in the queues of dies, so that what is under way ends soon.
    pub fn quiesce(&mut self, is_quiescing: bool) {
        self.is_quiescing = is_quiescing;
    }

    /// Whether no more chunks are under way than [`Log::quiesce`] lets begin.
    pub fn is_quiesced(&self) -> bool {
        self.programming_chunks() <= self.quiet_chunks()
    }

    fn quiet_chunks(&self) -> u32 {
        self.layout.width.div_ceil(self.layout.chunk_units)
    }

    /// Before writers are asked whether they go on: those that wait now count for [`Log::deadline`].
    pub fn begin_step(&mut self) {
        self.pace.begin_step();
    }

    /// When writers that wait for the cleaner may go on, or the medium, which had no room, is to be asked again: [`Log::work`] is to be
    /// called then, and [`Log::look_for_room`] before.
    pub fn deadline(&self) -> Time {
        self.pace.deadline().min(self.looks_for_room_at())
    }

    /// Nothing else tells that there is room again when nobody writes.
    fn looks_for_room_at(&self) -> Time {
        let looks = self.no_room && self.read_only.is_none() && !self.gone;
        if looks && !mutant!("log: nobody looks for room that came back") {
            self.worked_at + LOOK_AGAIN
        } else {
            Time::NEVER
        }
    }

    /// Takes no more appends.
    pub fn set_read_only(&mut self, reason: &'static str) {
        self.read_only.get_or_insert(reason);
    }

    /// Takes no more appends, and changes nothing on the medium: it lost something, so nobody knows what of the rest is still
    /// needed. What looks dead may be all there is of what is missing, and a read that fails today may work tomorrow.
    pub fn keep_all(&mut self, reason: &'static str) {
        self.set_read_only(reason);
        self.keeps_all = true;
    }

    /// Whether [`Log::keep_all`] was called.
    pub fn is_kept(&self) -> bool {
        self.keeps_all
    }

    /// Lets the log go on: programs, releases, frees, cleans. Call after appends and completions.
    pub fn work(&mut self, now: Time, space: &mut dyn EraseBlockSpace, owner: &mut impl Owner) {
        self.worked_at = now;
        if self.gone || self.keeps_all && !mutant!("log: damaged store goes on cleaning") {
            return;
        }
        self.place_displaced(space, owner);
        self.release(space);
        self.clean(now, space, owner);
        self.prepare(space);
        self.push(space);
    }

    /// IUs of data that all segments but the reserve hold when chunks are full.
    pub fn usable_ius(&self) -> u64 {
        usable_ius(&self.layout, self.real_segments)
    }

    /// Most IUs that the maps of all volumes together may have, written or not: 64 times what is stored, and at least 4 GiB.
    /// Nothing read from the medium makes them larger.
    pub fn map_ius_max(&self) -> u64 {
        (self.usable_ius() * 64).max(1 << 20)
    }

    /// As [`Log::usable_ius`], of a log with so much protected memory that is yet to be made.
    pub fn usable_ius_of(space: &dyn EraseBlockSpace, staging_size_bytes: Option<usize>) -> u64 {
        let (layout, _) = layout_for(space, staging_size_bytes);
        usable_ius(&layout, segments_of(&layout, space))
    }
}
