//! What reclaim unit handles add to writing: how much their open reclaim units still take, their end before they are full, and that
//! chunks of handles that nobody writes to hold nothing up.

use super::Writer;
use crate::stream::PerStream;
use crate::{HandleStatistics, Stream, StreamKind};
use diecut_units::mutant;
use diecut_vssd::space::EraseBlockSpace;

/// Segments' worth of entries after which a chunk does not wait any more for its stream to fill it: an anchor covers nothing behind it.
const STALE_SEGMENTS: u64 = 2;
/// In segments of few chunks, or with many handles, so many chunks' worth for each handle: one that is written to at a fourth of the pace of the
/// others still fills its chunks, and filler takes no room of data.
const STALE_CHUNKS: u64 = 4;

/// This share of a log goes by before filler ends a chunk. A handle with a hundredth of the writes still fills its own, and a restart reads
/// hardly more.
const STALE_SHARE: u64 = 16;
/// A log of fewer segments waits less: what waits there holds the anchor back for a large part of it, and a restart replays that.
const STALE_SHARED_MIN: u32 = 128;

/// Reclaim unit handles of a writer.
#[derive(Default)]
pub(crate) struct Placing {
    /// Reclaim units that are to end before they are full, with what was written to them: nothing else goes there.
    ending: PerStream<Option<u32>>,
    is_ending: bool,
    /// By handle.
    pub figures: Vec<HandleStatistics>,
}

impl Placing {
    pub fn new(handles: u16) -> Placing {
        Placing { figures: vec![HandleStatistics::default(); handles.into()], ..Placing::default() }
    }

    /// Whether the open reclaim unit of a stream is to end.
    #[inline]
    pub fn ends(&self, stream: Stream) -> bool {
        self.is_ending && self.ending[stream].is_some()
    }

    /// Whether some is.
    pub fn is_ending(&self) -> bool {
        self.is_ending
    }
}

impl Writer {
    /// IUs of data that the open segment of a stream still takes; all of one where none is open.
    pub fn remaining_ius(&self, stream: Stream) -> u64 {
        let layout = &self.segments.layout;
        let Some(segment) = self.segments.open_of(stream) else {
            return layout.reclaim_unit_ius();
        };
        let mut left_units = self.segments.units_left(segment);
        let mut ius = 0;
        if let Some(slot) = self.staging.open_of(stream) {
            let chunk = self.staging.slot(slot).chunk();
            let taken = if mutant!("log: staged data take nothing of their reclaim unit") {
                0
            } else {
                chunk.data_count
            };
            ius += chunk.room_units * layout.unit_ius - 1 - taken;
            left_units -= chunk.room_units;
        }
        let heads = left_units.div_ceil(layout.chunk_units);
        u64::from(ius + left_units * layout.unit_ius - heads)
    }

    /// Whether nothing was written to the open segment of a stream.
    pub fn is_fresh(&self, stream: Stream, segment: u32) -> bool {
        self.segments[segment].next_unit == 0
            && self.staging.open_of(stream).is_none_or(|slot| self.staging.slot(slot).chunk().is_empty())
    }

    /// Ends the open segment of a stream of data: what is written next goes to another one. Whether something was written to it,
    /// and more could have been.
    pub fn end_unit(&mut self, stream: Stream, space: &mut dyn EraseBlockSpace) -> bool {
        let Some(segment) = self.segments.open_of(stream) else { return false };
        if self.is_fresh(stream, segment) || self.placing.ends(stream) {
            return false;
        }
        diecut_units::mark!("log: reclaim unit ended before it was full");
        let is_partial = self.remaining_ius(stream) > 0;
        self.seal(stream);
        if self.segments.open_of(stream) == Some(segment) && !mutant!("log: ended reclaim unit goes on") {
            self.placing.ending[stream] = Some(segment);
            self.placing.is_ending = true;
            self.end_units(space);
        }
        is_partial
    }

    /// Goes on with segments that are to end: units behind what was written make it safe first.
    pub(super) fn end_units(&mut self, space: &mut dyn EraseBlockSpace) {
        if !self.placing.is_ending {
            return;
        }
        let mut is_ending = false;
        for stream in self.segments.layout.streams.data() {
            let Some(segment) = self.placing.ending[stream] else { continue };
            if self.ends_now(stream, segment, space) {
                self.placing.ending[stream] = None;
            }
            is_ending |= self.placing.ending[stream].is_some();
        }
        self.placing.is_ending = is_ending;
    }

    /// Lets a segment go on to end. Whether it is over.
    fn ends_now(&mut self, stream: Stream, segment: u32, space: &mut dyn EraseBlockSpace) -> bool {
        if self.segments.open_of(stream) != Some(segment) {
            return true;
        }
        let waits = self.segments.layout.unsafe_units > 0 && self.segments[segment].chunks > 0;
        if !waits {
            self.segments.seal(segment);
            return true;
        }
        if self.staging.waits_for_filler(stream, self.next_sequence)
            && self.open_new_chunk(stream, true, space).is_some()
        {
            self.seal(stream);
            let index = self.staging.last_sealed().expect("just sealed");
            self.program(index, space);
        }
        self.segments.open_of(stream) != Some(segment)
    }

    /// Entries before this are to become durable, or a handle that nobody writes to any more would hold up anchors.
    pub(super) fn stale_before(&self) -> u64 {
        let layout = &self.segments.layout;
        if layout.streams.is_single() || mutant!("log: chunks of idle handles wait for ever") {
            return 0;
        }
        let handles = u64::from(layout.streams.count(StreamKind::User));
        let count = self.segments.flash_count();
        let (mut tail_ius, mut segments) = (u64::from(layout.chunk_ius()), STALE_SEGMENTS);
        if count >= STALE_SHARED_MIN {
            // What a stream has written stays until the units behind it are programmed, too.
            tail_ius += u64::from(layout.unsafe_tail_units() * layout.unit_ius);
            segments = segments.max(u64::from(count) / STALE_SHARE);
        }
        let apart = (STALE_CHUNKS * handles * tail_ius).max(segments * u64::from(layout.segment_ius));
        self.next_sequence.saturating_sub(apart)
    }

    /// A chunk of a stream was handed to flash with its filler; `is_taken_back`: it was not begun with.
    pub(super) fn count_media(&mut self, stream: Stream, ius: u32, is_taken_back: bool) {
        let streams = self.segments.layout.streams;
        let handle = streams.handle_of(stream);
        let is_of_handle = match stream.kind() {
            StreamKind::User => true,
            // Where handles share the cleaner's copies nobody says whose they are.
            StreamKind::Cleaner => streams.count(StreamKind::Cleaner) == streams.count(StreamKind::User),
            StreamKind::Map => false,
        };
        if is_of_handle && let Some(figures) = self.placing.figures.get_mut(usize::from(handle.0)) {
            if is_taken_back {
                figures.media_ius -= u64::from(ius);
            } else {
                figures.media_ius += u64::from(ius);
            }
        }
    }

    /// The cleaner copied an IU out of a segment.
    pub fn count_moved(&mut self, from: u32) {
        let stream = self.segments[from].stream;
        let handle = self.segments.layout.streams.handle_of(stream);
        if stream.kind() == StreamKind::User
            && let Some(figures) = self.placing.figures.get_mut(usize::from(handle.0))
        {
            figures.moved_ius += 1;
        }
    }
}
