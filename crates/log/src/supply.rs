//! Supply: erase blocks for the segments of a reclaim group that are opened next, and how many there are.

use crate::anchors::Anchors;
use crate::condition::{Condition, NO_GOOD_BLOCKS};
use crate::format::Description;
use crate::segments::{Blocks, NO_BLOCK, Segments};
use crate::{Layout, PerKind, PlacementHandle, ReclaimGroup, Stream, StreamKind};
use diecut_units::mutant;
use diecut_vssd::space::{EraseBlockSpace, Purpose, SpaceError, UnitIndex};
use smallvec::SmallVec;
use std::ops::Range;

/// `Purpose` of the erase blocks of segments.
pub const PURPOSE_SEGMENT: Purpose = Purpose(1);

/// Segments by which one group may be ahead of another: a stream opens its segments where no other one programs, and
/// the cleaner more of them than writers.
const GROUPS_APART: u64 = 2;

/// Erase blocks taken for the segment that is opened next, one member after the other. A block is erased when it is taken:
/// if all members erased at once, nothing could be programmed meanwhile.
struct Prepared {
    group: u32,
    blocks: Blocks,
}

/// Erase blocks that segments of a reclaim group can get.
pub(crate) struct Supply {
    reclaim_group: ReclaimGroup,
    /// The groups of units that are its own.
    groups: Range<u32>,
    /// Streams of a kind share what is taken ahead: it is for the one that needs it first.
    prepared: PerKind<Option<Prepared>>,
    /// Segments opened in each of these groups.
    opened: Vec<u64>,
    free_segments: u32,
    /// As many as would be free if anchors took no blocks: one that is written takes some, and soon gives as many back.
    free_without_anchors: u32,
    /// The next sequence when they were counted.
    counted_at: u64,
    /// What [`EraseBlockSpace::free_changes`] said then. Blocks of anchors and prepared ones come and go with allocations and frees.
    counted_changes: Option<u64>,
    /// The medium had no room for a segment when one was last to be opened.
    has_no_room: bool,
}

impl Supply {
    pub fn new(reclaim_group: ReclaimGroup, layout: &Layout) -> Supply {
        let count = layout.groups_per_reclaim_group();
        let first = u32::from(reclaim_group.0) * count;
        Supply {
            reclaim_group,
            groups: first..first + count,
            prepared: PerKind::default(),
            opened: vec![0; count as usize],
            free_segments: 0,
            free_without_anchors: 0,
            counted_at: 0,
            counted_changes: None,
            has_no_room: false,
        }
    }

    /// Segments that could be opened when they were last counted.
    pub fn free_segments(&self) -> u32 {
        self.free_segments
    }

    /// Those, and what anchors hold.
    pub fn free_without_anchors(&self) -> u32 {
        self.free_without_anchors
    }

    /// Whether nothing was appended since free segments were counted.
    pub fn is_counted_at(&self, sequence: u64) -> bool {
        self.counted_at == sequence
    }

    /// Counts free segments again, if something that is counted has changed.
    pub fn recount(
        &mut self,
        sequence: u64,
        layout: &Layout,
        anchors: &Anchors,
        space: &dyn EraseBlockSpace,
    ) {
        let changes = space.free_changes();
        if changes.is_none() || changes != self.counted_changes {
            return self.count(sequence, layout, anchors, space);
        }
        self.counted_at = sequence;
        debug_assert_eq!(
            self.counted(layout, anchors, space),
            (self.free_segments, self.free_without_anchors),
            "I-L17: whatever changes what is counted is an allocation or a free"
        );
    }

    /// What was counted says nothing any more.
    pub fn forget_count(&mut self) {
        self.counted_changes = None;
    }

    /// Counts free segments.
    pub fn count(&mut self, sequence: u64, layout: &Layout, anchors: &Anchors, space: &dyn EraseBlockSpace) {
        (self.counted_at, self.counted_changes) = (sequence, space.free_changes());
        (self.free_segments, self.free_without_anchors) = self.counted(layout, anchors, space);
        assert!(self.free_segments <= self.free_without_anchors, "I-L17: what anchors hold is not free");
    }

    /// Segments that could be opened now, without what anchors hold and with it.
    fn counted(&self, layout: &Layout, anchors: &Anchors, space: &dyn EraseBlockSpace) -> (u32, u32) {
        let (mut free, mut free_without_anchors) = (0, 0);
        for group in self.groups.clone() {
            // Members that were prepared have more.
            let prepared = self.prepared.0.iter().flatten().filter(|prepared| prepared.group == group);
            let prepared: SmallVec<[u32; StreamKind::COUNT]> =
                prepared.map(|prepared| prepared.blocks.len() as u32).collect();
            let more = |m: u32| prepared.iter().filter(|members| m < **members).count() as u32;
            let (mut least, mut least_without_anchors) = (u32::MAX, u32::MAX);
            for m in 0..layout.width {
                let unit = layout.member(group, m);
                let members = space.free_blocks(unit) + more(m);
                least = least.min(members);
                least_without_anchors = least_without_anchors.min(members + anchors.blocks_on(unit));
            }
            free += least;
            free_without_anchors += least_without_anchors;
        }
        (free, free_without_anchors)
    }

    /// Whether the medium had no room.
    pub fn has_no_room(&self) -> bool {
        self.has_no_room
    }

    /// Only with a planted bug.
    pub fn is_blind_to_room(&self) -> bool {
        self.has_no_room && mutant!("log: room that came back is not seen")
    }

    /// Looks whether the medium has room again, if it had none.
    pub fn look_for_room(&mut self, segments: &Segments, space: &mut dyn EraseBlockSpace) {
        if self.has_no_room && !self.is_blind_to_room() {
            let (layout, group) =
                (&segments.layout, self.calm_group(self.stream_of_hosts(segments), segments));
            self.has_no_room = !(0..layout.width).all(|member| space.make_room(layout.member(group, member)));
        }
    }

    /// Takes the blocks of the segment that a stream opens next, with what describes it where blocks have headers. `None` if there are none, or the medium has no room for them.
    pub fn take(
        &mut self,
        name: Description,
        segments: &Segments,
        condition: &mut Condition,
        space: &mut dyn EraseBlockSpace,
    ) -> Option<Blocks> {
        let (layout, stream) = (&segments.layout, name.stream);
        let count = self.groups.len() as u32;
        let first_step = self.group_to_open(stream, segments) - self.groups.start;
        for step in 0..count {
            let group = self.groups.start + (first_step + step) % count;
            let prepared =
                self.best_prepared(stream, group, layout, space).and_then(|set| self.prepared[set].take());
            let mut blocks = prepared.map_or_else(SmallVec::new, |prepared| prepared.blocks);
            let members = blocks.len() as u32..layout.width;
            // Asked before any is allocated: each allocation costs an erase.
            if !members.clone().all(|member| space.make_room(layout.member(group, member))) {
                diecut_units::mark!("log: no room for a segment");
                self.has_no_room = true;
                if !blocks.is_empty() {
                    let place = self.prepared.0.iter_mut().find(|prepared| prepared.is_none());
                    *place.expect("it was taken from one") = Some(Prepared { group, blocks });
                }
                return None;
            }
            self.allocate(&mut blocks, group, &name, layout, condition, space);
            let mut members = blocks.iter().zip(0..).map(|(block, m)| (block.unit, layout.member(group, m)));
            assert!(members.all(|(found, own)| found == own), "I-L3: a segment has a block on each member");
            if blocks.len() == layout.width as usize {
                self.has_no_room = false;
                self.opened[(group - self.groups.start) as usize] += 1;
                return Some(blocks);
            }
            for block in blocks {
                space.free(block).expect("just allocated");
            }
        }
        None
    }

    /// Takes a block on each member that has none, as far as there are some.
    fn allocate(
        &mut self,
        blocks: &mut Blocks,
        group: u32,
        name: &Description,
        layout: &Layout,
        condition: &mut Condition,
        space: &mut dyn EraseBlockSpace,
    ) {
        for member in blocks.len() as u32..layout.width {
            let unit = layout.member(group, member);
            let description = name.of_member(member).encode();
            match space.allocate_described(unit, PURPOSE_SEGMENT, &description) {
                Ok(block) => {
                    assert_eq!(block.unit, unit, "I-L3: a block lies on its member's unit");
                    blocks.push(block);
                }
                Err(error) => {
                    match error {
                        SpaceError::ReadOnly => condition.end_writes(NO_GOOD_BLOCKS),
                        SpaceError::NoRoom => self.has_no_room = true,
                        _ => {}
                    }
                    return;
                }
            }
        }
    }

    /// The group in which a stream is to open its next segment: one in which no other stream programs, so that all dies have
    /// something to do, as long as all groups are worn alike.
    fn calm_group(&self, stream: Stream, segments: &Segments) -> u32 {
        let groups = self.groups.clone();
        groups.min_by_key(|group| self.calmness(stream, *group, segments)).expect("there is a group")
    }

    /// Host data of the first handle.
    fn stream_of_hosts(&self, segments: &Segments) -> Stream {
        segments.layout.streams.of_host(self.reclaim_group, PlacementHandle(0))
    }

    /// Segments opened in a group, and those that will be because they are prepared.
    fn opened_or_prepared(&self, group: u32) -> u64 {
        let sets = StreamKind::DATA.iter().filter_map(|set| self.prepared[*set].as_ref());
        let opened = self.opened[(group - self.groups.start) as usize];
        opened + sets.filter(|set| set.group == group).count() as u64
    }

    /// The less, the better for this stream's next segment.
    fn calmness(&self, stream: Stream, group: u32, segments: &Segments) -> (bool, usize, u64) {
        let streams = segments.layout.streams;
        let own = StreamKind::DATA.into_iter().flat_map(|kind| streams.in_group(kind, self.reclaim_group));
        let others = own.filter(|other| *other != stream);
        let opened_least =
            self.groups.clone().map(|group| self.opened_or_prepared(group)).min().expect("there is a group");
        let opened = self.opened_or_prepared(group);
        let is_ahead = opened - opened_least > GROUPS_APART;
        let is_of = |other: Stream| segments.open_of(other).is_some_and(|s| segments.group_of(s) == group);
        (is_ahead, others.filter(|other| is_of(*other)).count(), opened)
    }

    /// Whether a set has a block on each member.
    fn is_whole(&self, set: StreamKind, layout: &Layout) -> bool {
        self.prepared[set].as_ref().is_some_and(|set| set.blocks.len() as u32 == layout.width)
    }

    /// The group in which a stream opens a segment now: whoever erases all members at once waits for them.
    fn group_to_open(&self, stream: Stream, segments: &Segments) -> u32 {
        let is_whole = |group: u32| {
            let is_of = |set: &StreamKind| self.prepared[*set].as_ref().is_some_and(|set| set.group == group);
            let mut sets = stream.policy().shares_blocks_with.iter();
            sets.any(|set| is_of(set) && self.is_whole(*set, &segments.layout))
        };
        let key = |group: &u32| (!is_whole(*group), self.calmness(stream, *group, segments));
        self.groups.clone().min_by_key(key).expect("there is a group")
    }

    /// What was prepared in a group and can be made whole: meant for this stream, the longest first, or for another one, because
    /// there may be nothing else.
    fn best_prepared(
        &self,
        stream: Stream,
        group: u32,
        layout: &Layout,
        space: &dyn EraseBlockSpace,
    ) -> Option<StreamKind> {
        let can_be_whole = |set: &Prepared| {
            let missing = set.blocks.len() as u32..layout.width;
            set.group == group && missing.into_iter().all(|m| space.free_blocks(layout.member(group, m)) > 0)
        };
        let sets =
            StreamKind::ALL.into_iter().filter(|set| self.prepared[*set].as_ref().is_some_and(can_be_whole));
        sets.max_by_key(|set| {
            let blocks = self.prepared[*set].as_ref().map_or(0, |set| set.blocks.len());
            (stream.policy().shares_blocks_with.contains(set), blocks)
        })
    }

    /// Takes the next block of the segments that are opened next, when it is time for it: all of them, one after the other, while the
    /// ones before are filled. One die erases one of them at a time: programs behind several erases would wait longer than
    /// staging lasts. Whether none was due.
    pub fn prepare(&mut self, segments: &Segments, space: &mut dyn EraseBlockSpace) -> bool {
        if !segments.layout.shape.has_oob() {
            // Their headers say of which segment they are, and an erase keeps nobody waiting.
            return true;
        }
        let has_leaves = self.reclaim_group == ReclaimGroup::FIRST;
        let mut none_due = !(has_leaves && self.prepare_next(Stream::Map, StreamKind::Map, segments, space));
        let layout = &segments.layout;
        // Of each kind the stream whose segment is the fullest.
        let filled_of = |stream: Stream| segments.open_of(stream).map_or(0, |at| segments[at].next_unit);
        let fullest = |kind: StreamKind| {
            let streams = layout.streams.in_group(kind, self.reclaim_group);
            let streams = streams.map(|stream| (filled_of(stream), stream));
            streams.reduce(|one, other| if other.0 > one.0 { other } else { one }).expect("there is one")
        };
        let [of_writers, of_cleaner] = StreamKind::DATA.map(fullest);
        if of_writers.0.max(of_cleaner.0) < due(0, layout)
            || StreamKind::DATA.into_iter().all(|set| self.is_whole(set, layout))
        {
            return none_due;
        }
        // Whoever needs one first gets what is ready, so the set that has most, where that one would open, is made for it.
        let mut streams = [of_writers.1, of_cleaner.1];
        if of_cleaner.0 > of_writers.0 {
            streams.reverse();
        }
        let group = self.calm_group(streams[0], segments);
        let mut sets = StreamKind::DATA;
        sets.sort_by_key(|set| {
            std::cmp::Reverse(self.prepared[*set].as_ref().map(|set| (set.group == group, set.blocks.len())))
        });
        for (stream, set) in streams.into_iter().zip(sets) {
            none_due &= !self.prepare_next(stream, set, segments, space);
        }
        none_due
    }

    /// Takes the next block of a set, if it is time for a stream that fills its segment. Whether it is.
    fn prepare_next(
        &mut self,
        stream: Stream,
        set: StreamKind,
        segments: &Segments,
        space: &mut dyn EraseBlockSpace,
    ) -> bool {
        let layout = &segments.layout;
        let Some(open) = segments.open_of(stream) else { return false };
        let member = self.prepared[set].as_ref().map_or(0, |prepared| prepared.blocks.len() as u32);
        if member == layout.width || segments[open].next_unit < due(member, layout) {
            return false;
        }
        let group = self.prepared[set].as_ref().map(|prepared| prepared.group);
        let group = group.unwrap_or_else(|| self.calm_group(stream, segments));
        let unit = layout.member(group, member);
        if !self.is_erasing(unit, segments, space)
            && space.make_room(unit)
            && let Ok(block) = space.allocate(unit, PURPOSE_SEGMENT)
        {
            let blocks = SmallVec::new();
            assert_eq!(block.unit, unit, "I-L3: a block lies on its member's unit");
            let prepared = self.prepared[set].get_or_insert_with(|| Prepared { group, blocks });
            prepared.blocks.push(block);
            let is_right = prepared.blocks.len() as u32 <= layout.width && prepared.group == group;
            assert!(is_right, "I-L3: a set has one block on each member of its group");
        }
        true
    }

    /// Whether a block on this unit that some stream has, or will program next, is still to be erased.
    fn is_erasing(&self, unit: UnitIndex, segments: &Segments, space: &dyn EraseBlockSpace) -> bool {
        let open = segments.open_ones().map(|segment| &segment.blocks);
        let blocks = self.prepared.0.iter().flatten().map(|prepared| &prepared.blocks).chain(open).flatten();
        blocks.into_iter().any(|block| *block != NO_BLOCK && block.unit == unit && !space.is_erased(*block))
    }
}

/// Units of a segment that are programmed when this member of the next one is taken: all are a little before it is full.
fn due(member: u32, layout: &Layout) -> u32 {
    (member + 2) * (layout.segment_units / (layout.width + 2)).max(1)
}
