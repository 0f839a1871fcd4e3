//! The reserve: free segments that writers leave, so that the cleaner always finds one, and what follows from it for the room that
//! there is for data.

use crate::{Layout, StreamKind};

/// Segments that only the cleaner, the map and chunks that move may open.
///
/// With several streams of the cleaner there is one more for each ([`reserve_segments`]). However often the log is cut, the cleaner gets one: chunks found in staging leave [`FOUND_LEAVE`], leaves and anchors
/// are written only while two are free, and what the cleaner had copied from a segment that is still there is undone
/// ([`crate::Log::undo_segment`]), so that a cut gives back what it had taken.
pub(crate) const RESERVE_SEGMENTS: u32 = 5;
/// Free segments that chunks leave whose place failed: none without them could become durable, and no victim free.
pub(crate) const DISPLACED_LEAVE: u32 = 1;
/// Free segments that chunks leave which recovery found in staging, where they can wait for the cleaner.
pub(crate) const FOUND_LEAVE: u32 = 3;
/// A log with fewer segments than these is small: it cleans one group at a time, and the segment that the map has open does not
/// count as room, so that more is left for data. Writers wait less evenly.
pub(crate) const SMALL_SEGMENTS: u32 = 48;

const _: () = assert!(DISPLACED_LEAVE < FOUND_LEAVE, "I-L29: displaced chunks come before found ones");
const _: () = assert!(FOUND_LEAVE < RESERVE_SEGMENTS - 1, "I-L29: the cleaner comes before found chunks");

/// Segments that writers of a reclaim group leave: see [`RESERVE_SEGMENTS`].
pub(crate) fn reserve_segments(layout: &Layout) -> u32 {
    RESERVE_SEGMENTS + more_reserve(layout)
}

/// Those of them that there are because copies of handles do not mix: a stream of the cleaner may need a segment while another one has
/// room in its own.
pub(crate) fn more_reserve(layout: &Layout) -> u32 {
    layout.streams.count_in_group(StreamKind::Cleaner) - 1
}

/// Groups of units of a reclaim group of so many segments that are cleaned at a time.
pub(crate) fn walks(layout: &Layout, segments: u32) -> u32 {
    if segments < SMALL_SEGMENTS { 1 } else { layout.groups_per_reclaim_group().min(WALKS_MAX) }
}

/// Room that the cleaner keeps up in a reclaim group of so many segments: the reserve, what at most lies in the open segments of writers, cleaner and map, and
/// for each group that is cleaned at the same time two: a victim that is nearly copied, and one that waits for its copies to
/// be durable. With less, writers nearly stop; so the reserve, where they would stop, is not reached.
pub(crate) fn paced_segments(layout: &Layout, segments: u32) -> u32 {
    let open = if segments < SMALL_SEGMENTS { 2 } else { 3 };
    reserve_segments(layout) + open + layout.streams.more_in_group() + 2 * walks(layout, segments)
}
/// Room beyond that, in segments, that the cleaner makes for bursts.
pub(crate) const BURST_SEGMENTS: u32 = 1;

/// Victims that are walked through at a time, each in a group of its own.
pub(crate) const WALKS_MAX: u32 = 2;
/// Segments' worth of blocks that anchoring takes beside what lives: open leaves, two anchors.
pub(crate) const ANCHOR_SEGMENTS: u32 = 2;

/// Segments of a reclaim group of so many that hold no data of volumes, so that the log goes on.
pub(crate) fn kept_segments(layout: &Layout, segments: u32) -> u32 {
    paced_segments(layout, segments) + BURST_SEGMENTS + ANCHOR_SEGMENTS
}

/// At most this part of what is left for data is kept for segments that are dying.
const DYING_SHARE: u32 = 8;

/// IUs of data that all segments of a reclaim group but the reserve hold when chunks are full.
///
/// What a handle overwrites in its order has one segment that is dying while another one is filled. Without room for those of all handles the
/// cleaner would copy what is about to be dead, and leave it scattered over segments that die no more at once.
pub(crate) fn usable_ius(layout: &Layout, segments: u32) -> u64 {
    let left = segments.saturating_sub(kept_segments(layout, segments));
    let streams = layout.streams;
    let dying = if streams.more_in_group() == 0 { 0 } else { streams.count_in_group(StreamKind::User) };
    u64::from(left - dying.min(left / DYING_SHARE)) * layout.reclaim_unit_ius()
}
