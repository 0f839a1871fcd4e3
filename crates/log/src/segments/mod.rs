//! Segments: their states, what lives in them, and which one each stream has open.

mod adopt;
mod areas;
mod read;
mod segment;

pub(crate) use read::Run;
pub use segment::NO_BLOCK;
pub(crate) use segment::{Blocks, Segment, SegmentState};

use crate::anchor2::{AnchorSegment, SegmentProgress};
use crate::reserve;
use crate::stream::PerStream;
use crate::{Format, Layout, LogAddress, ReclaimGroup, SegmentIndex, Stream, StreamKind};
use areas::PageAreas;
use diecut_units::mutant;
use diecut_vssd::space::{EraseBlockSpace, UnitIndex};

/// Notes that cost as much as a copy when a victim is chosen. Beside data they go along for nothing, alone they take a
/// program unit, and a deallocation can come apart into many.
const NOTES_PER_IU: u32 = 8;

/// Most chunks that can be found in staging: so many numbers of segments stand for them.
pub(crate) const STAGED_MAX: u32 = 256;

/// All segments of a log.
pub(crate) struct Segments {
    pub layout: Layout,
    list: Vec<Segment>,
    /// Live IUs of each segment; apart from the rest because every write touches one at random.
    valid: Vec<u32>,
    /// Reclaim group of each segment, and live IUs of each group; both are empty where there is one.
    homes: Vec<ReclaimGroup>,
    live: Vec<u64>,
    /// Some segment may have lost its last live IU since dead ones were looked for.
    some_died: bool,
    /// Segments that are being freed.
    freeing: Vec<u32>,
    open: PerStream<Option<u32>>,
    next_generation: u32,
    /// What reads of one page put its OOB area in.
    page_areas: PageAreas,
    /// Numbers that lie on flash. Those behind them stand for chunks that recovery found in staging.
    flash_count: u32,
}

impl std::ops::Index<u32> for Segments {
    type Output = Segment;
    #[inline]
    fn index(&self, index: u32) -> &Segment {
        &self.list[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Segments {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Segment {
        &mut self.list[index as usize]
    }
}

/// Segments that blocks and addresses suffice for.
pub(crate) fn count_for(layout: &Layout, space: &dyn EraseBlockSpace) -> u32 {
    let blocks = (0..space.unit_count()).map(|unit| space.blocks_of_unit(UnitIndex(unit)));
    // Leaves and anchors name places by 4 bytes. The last numbers are those of staged chunks, and of what is no place there.
    let numbers = (u32::MAX >> layout.segment_shift) - 1 - STAGED_MAX;
    (blocks.min().unwrap_or(0) * layout.groups).min(numbers)
}

/// IUs of data that all of so many segments but the reserve of each reclaim group hold when chunks are full.
pub(crate) fn usable_ius(layout: &Layout, segments: u32) -> u64 {
    let groups = u32::from(layout.streams.placement().groups);
    u64::from(groups) * reserve::usable_ius(layout, segments / groups)
}

impl Segments {
    /// None yet; `staged_count` chunks can be found in staging.
    pub fn new(layout: Layout, space: &dyn EraseBlockSpace, staged_count: usize) -> Segments {
        let flash_count = count_for(&layout, space);
        let count = flash_count as usize + staged_count;
        let groups = layout.streams.placement().groups;
        let (homes, live) = if groups == 1 { (0, 0) } else { (count, groups.into()) };
        Segments {
            homes: vec![ReclaimGroup::FIRST; homes],
            live: vec![0; live],
            list: (0..count).map(|_| Segment::absent()).collect(),
            valid: vec![0; count],
            some_died: true,
            freeing: Vec::new(),
            open: PerStream::default(),
            next_generation: 1,
            page_areas: PageAreas::new(layout.shape.oob_size_bytes),
            flash_count,
            layout,
        }
    }

    /// Numbers of segments.
    pub fn count(&self) -> u32 {
        self.list.len() as u32
    }

    /// Those of them that lie on flash.
    pub fn flash_count(&self) -> u32 {
        self.flash_count
    }

    /// All of them with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Segment)> {
        (0..).zip(&self.list)
    }

    /// What an anchor of version 2 from `sequence` on says of each of them. Of those that it does not close, ones that an opening found were
    /// walked by it.
    pub fn listed_in_anchor(&self, sequence: u64) -> Vec<AnchorSegment> {
        let on_flash = self.iter().take(self.flash_count as usize);
        let listed = on_flash.filter(|(_, segment)| segment.exists()).map(|(index, segment)| {
            let progress = if segment.is_closed_before(sequence) {
                SegmentProgress::Closed
            } else if segment.is_found {
                SegmentProgress::Ended
            } else {
                SegmentProgress::Open
            };
            let end = if progress == SegmentProgress::Open { 0 } else { segment.next_unit };
            AnchorSegment {
                index,
                generation: segment.generation,
                progress,
                format: if segment.format() == Some(Format::Three) { 3 } else { 2 },
                members: segment.blocks.len() as u8,
                parity: 0,
                strip: 0,
                head_ius: 1,
                end,
                durable_units: end,
                live_ius: self.valid(index),
                first_member: 0,
            }
        });
        listed.collect()
    }

    /// Greater than the generation of any segment.
    pub fn next_generation(&self) -> u32 {
        self.next_generation
    }

    /// Counts a place as live.
    #[inline]
    pub fn validate(&mut self, address: LogAddress) {
        let index = self.layout.segment_of(address).0 as usize;
        let valid = &mut self.valid[index];
        *valid += 1;
        if let Some(home) = self.homes.get(index) {
            self.live[usize::from(home.0)] += 1;
        }
        debug_assert!(*valid <= self.layout.segment_ius, "I-L2: no more lives in a segment than it holds");
    }

    /// Counts a place as dead.
    #[inline]
    pub fn invalidate(&mut self, address: LogAddress) {
        let index = self.layout.segment_of(address).0 as usize;
        let valid = &mut self.valid[index];
        assert!(*valid > 0, "I-L2: a place dies once");
        *valid -= 1;
        if let Some(home) = self.homes.get(index) {
            self.live[usize::from(home.0)] -= 1;
        }
        self.some_died |= *valid == 0;
    }

    /// An IU was appended to a segment, and lives.
    #[inline]
    pub fn take_data(&mut self, index: u32, sequence: u64) {
        self.valid[index as usize] += 1;
        if let Some(home) = self.homes.get(index as usize) {
            self.live[usize::from(home.0)] += 1;
        }
        debug_assert!(
            self.valid[index as usize] <= self.layout.segment_ius,
            "I-L2: no more lives in a segment than it holds"
        );
        self.list[index as usize].take_entry(sequence);
    }

    /// Live IUs of a segment.
    pub fn valid(&self, index: u32) -> u32 {
        self.valid[index as usize]
    }

    /// Live IUs of a reclaim group, if there are several.
    pub fn live_in(&self, group: ReclaimGroup) -> Option<u64> {
        self.live.get(usize::from(group.0)).copied()
    }

    /// Live IUs of each segment.
    pub fn valid_counts(&self) -> &[u32] {
        &self.valid
    }

    /// The stream of a segment, if it is one on flash.
    pub fn stream_of(&self, index: u32) -> Option<Stream> {
        let segment = self.list.get(index as usize).filter(|segment| segment.exists())?;
        (index < self.flash_count).then_some(segment.stream)
    }

    /// The segment that a stream has open.
    pub fn open_of(&self, stream: Stream) -> Option<u32> {
        self.open[stream]
    }

    /// Segments that streams have open.
    pub fn open_ones(&self) -> impl Iterator<Item = &Segment> {
        self.layout
            .streams
            .all()
            .filter_map(|stream| self.open[stream])
            .map(|index| &self.list[index as usize])
    }

    /// Program units of a segment that no chunk is placed in.
    pub fn units_left(&self, index: u32) -> u32 {
        self.layout.segment_units - self[index].next_unit
    }

    /// A number for a segment on flash. Blocks of a segment can be free before its number is: greater numbers are not known at
    /// recovery.
    pub fn free_number(&self) -> Option<u32> {
        let real = &self.list[..self.flash_count as usize];
        real.iter().position(|segment| !segment.exists()).map(|index| index as u32)
    }

    /// Opens a segment on these blocks for a stream.
    pub fn open(&mut self, index: u32, stream: Stream, blocks: Blocks) {
        assert_eq!(blocks.len(), self.layout.width as usize, "I-L3: a segment has a block on each member");
        assert!(self.next_generation < u32::MAX, "I-L27: generations rise");
        assert!(index < self.flash_count, "I-L10: a segment on flash has a number of those");
        assert!(self.open[stream].is_none(), "I-L4: a stream has one segment open");
        let segment = &mut self.list[index as usize];
        segment.enter(SegmentState::Open);
        (segment.stream, segment.generation) = (stream, self.next_generation);
        segment.completed_units = smallvec::SmallVec::from_elem(0, blocks.len());
        segment.blocks = blocks;
        self.settle_in_group(index);
        self.next_generation += 1;
        self.open[stream] = Some(index);
    }

    /// So many more units of a segment hold a chunk; one that is full takes no more.
    pub fn place_units(&mut self, index: u32, units: u32) {
        let segment = &mut self.list[index as usize];
        segment.next_unit += units;
        assert!(segment.next_unit <= self.layout.segment_units, "I-L5: chunks lie within their segment");
        if segment.next_unit == self.layout.segment_units {
            self.seal(index);
        }
    }

    /// A segment takes no more chunks. Whether a stream had it open.
    pub fn seal(&mut self, index: u32) -> bool {
        let segment = &mut self.list[index as usize];
        if segment.state() == SegmentState::Open {
            segment.enter(SegmentState::Sealed);
        }
        self.open[segment.stream].take_if(|open| *open == index).is_some()
    }

    /// Units from `next_unit` on are free again: the stream goes on there.
    pub fn reopen(&mut self, index: u32, next_unit: u32) {
        let segment = &mut self.list[index as usize];
        assert!(next_unit <= segment.next_unit, "I-L5: only what was placed is taken back");
        let open = self.open[segment.stream];
        assert!(open.is_none_or(|open| open == index), "I-L4: a stream has one segment open");
        if segment.state() != SegmentState::Open {
            segment.enter(SegmentState::Open);
        }
        segment.next_unit = next_unit;
        self.open[segment.stream] = Some(index);
    }

    /// A segment without live IUs got blocks.
    fn settle_in_group(&mut self, index: u32) {
        if !self.homes.is_empty() {
            assert_eq!(self.valid(index), 0, "I-L6: nothing of it is counted yet");
            let block = self[index].blocks.iter().find(|block| **block != NO_BLOCK);
            self.homes[index as usize] =
                block.map_or(ReclaimGroup::FIRST, |block| self.layout.reclaim_group_of(*block));
        }
    }

    /// The reclaim group of a segment.
    #[inline]
    pub fn reclaim_group_of(&self, index: u32) -> ReclaimGroup {
        self.homes.get(index as usize).copied().unwrap_or_default()
    }

    /// The group of a segment that has blocks.
    pub fn group_of(&self, index: u32) -> u32 {
        let block = self[index].blocks.iter().find(|block| **block != NO_BLOCK);
        block.map_or(0, |block| self.layout.column_of(*block).0)
    }

    /// The segment of a reclaim group with the least to copy, outside of some groups of units. Leaves of the map die in the order in which they were written, and soon:
    /// what is copied of a segment of theirs is mostly wasted, unless there is little of it, or the cleaner cannot be patient.
    pub fn pick_victim(
        &self,
        reclaim_group: ReclaimGroup,
        walked: &[u32],
        is_patient: bool,
        anchored: u64,
    ) -> Option<u32> {
        let full = self.layout.segment_ius - self.layout.chunks_per_segment() * 2;
        let mut best: Option<(u32, u32)> = None;
        for (index, (segment, valid)) in self.list.iter().zip(&self.valid).enumerate() {
            // Notes that no anchor covers are moved too: cleaning what only they fill would gain nothing, again and again.
            let notes = if segment.last_note >= anchored { segment.notes } else { 0 };
            let moved = *valid + notes.div_ceil(NOTES_PER_IU);
            let cost = if is_patient { moved * segment.stream.policy().copy_cost } else { moved };
            if moved >= full
                || best.is_some_and(|(least, _)| cost >= least)
                || segment.state() != SegmentState::Sealed
                || segment.chunks > 0
                || segment.is_unreclaimable
                || self.reclaim_group_of(index as u32) != reclaim_group
                || !walked.is_empty() && walked.contains(&self.group_of(index as u32))
            {
                continue;
            }
            best = Some((cost, index as u32));
        }
        best.map(|(_, index)| index)
    }

    /// Some segment may be dead that was not: segments that only notes kept, too.
    pub fn look_for_dead(&mut self) {
        self.some_died = true;
    }

    /// Segments in which nothing is left need no cleaning: they are to be freed.
    pub fn retire_dead(&mut self, anchored: u64, next_sequence: u64) {
        if !std::mem::take(&mut self.some_died) {
            return;
        }
        for index in 0..self.list.len() {
            let segment = &self.list[index];
            if self.valid[index] > 0
                || segment.state() != SegmentState::Sealed
                || segment.last_note >= anchored
                    && !mutant!("log: a segment goes before an anchor has its notes")
            {
                continue;
            }
            if segment.chunks > 0 {
                self.some_died = true;
                continue;
            }
            self.retire(index as u32, next_sequence);
        }
    }

    /// A segment is to be freed when everything before a sequence is durable.
    fn retire(&mut self, index: u32, free_after: u64) {
        let segment = &mut self.list[index as usize];
        segment.enter(SegmentState::Freeing);
        assert_eq!(self.valid[index as usize], 0, "I-L6: only what is dead is freed");
        debug_assert_eq!(segment.chunks, 0, "I-L8: what is staged is not freed");
        segment.free_after = free_after;
        self.freeing.push(index);
    }

    /// A segment becomes a victim. Its live IUs.
    pub fn begin_cleaning(&mut self, index: u32) -> u32 {
        let segment = &mut self.list[index as usize];
        assert_eq!(segment.chunks, 0, "I-L25: what is staged is not cleaned");
        segment.enter(SegmentState::Cleaning);
        self.valid(index)
    }

    /// All that lives in a victim was copied, with sequences before this one; or it cannot be.
    pub fn end_cleaning(&mut self, index: u32, next_sequence: u64) {
        if self.valid(index) > 0 || self[index].is_unreclaimable {
            let segment = &mut self.list[index as usize];
            segment.free_after = next_sequence;
            segment.is_unreclaimable = true;
            segment.enter(SegmentState::Sealed);
        } else {
            self.retire(index, next_sequence);
        }
    }

    /// How many are being freed.
    pub fn freeing_count(&self) -> usize {
        self.freeing.len()
    }

    /// How many of a reclaim group.
    pub fn freeing_count_in(&self, group: ReclaimGroup) -> usize {
        if self.homes.is_empty() {
            return self.freeing.len();
        }
        self.freeing.iter().filter(|index| self.reclaim_group_of(**index) == group).count()
    }

    /// When everything before this is durable, all that are being freed can go.
    pub fn freed_after(&self) -> Option<u64> {
        self.freeing.iter().map(|index| self[*index].free_after).max()
    }

    /// Frees what nothing needs: everything before `data_floor` is durable, or, for segments of leaves, before `map_floor`. What a
    /// segment of data held is dead by entries of writers and cleaner; leaves are dead by leaves. How many went.
    pub fn free(&mut self, data_floor: u64, map_floor: u64, space: &mut dyn EraseBlockSpace) -> u64 {
        let mut freeing = std::mem::take(&mut self.freeing);
        let before = freeing.len();
        freeing.retain(|index| {
            let segment = &mut self.list[*index as usize];
            let floor = if segment.stream == Stream::Map { map_floor } else { data_floor };
            if segment.reads > 0
                || segment.chunks > 0
                || floor < segment.free_after && !mutant!("log: segment freed before copies durable")
            {
                return true;
            }
            assert_eq!(self.valid[*index as usize], 0, "I-L6: only dead segments are freed");
            for block in std::mem::take(&mut segment.blocks) {
                if block != NO_BLOCK {
                    space.free(block).expect("held by this segment");
                }
            }
            segment.enter(SegmentState::Absent);
            *segment = Segment::absent();
            false
        });
        self.freeing = freeing;
        (before - self.freeing.len()) as u64
    }

    /// Whether the end of a read lets no segment go: nothing reads of those that are to be freed, and they are dead.
    pub fn waits_for_no_read(&self) -> bool {
        self.freeing.iter().all(|index| self.list[*index as usize].reads == 0)
    }

    /// Segments of a reclaim group that lie on flash.
    pub fn group_count(&self) -> u32 {
        self.flash_count / u32::from(self.layout.streams.placement().groups)
    }

    /// Room that the cleaner keeps up in a reclaim group, in segments.
    pub fn paced_segments(&self) -> u32 {
        reserve::paced_segments(&self.layout, self.group_count())
    }

    /// Groups of units that are cleaned at a time in a reclaim group.
    pub fn walks(&self) -> u32 {
        reserve::walks(&self.layout, self.group_count())
    }

    /// IUs of data that all segments but the reserve hold when chunks are full.
    pub fn usable_ius(&self) -> u64 {
        usable_ius(&self.layout, self.flash_count)
    }

    /// IUs of so many segments.
    pub fn ius(&self, segments: u32) -> u64 {
        u64::from(segments) * u64::from(self.layout.segment_ius)
    }

    /// Counts that must agree with each other.
    ///
    /// # Panics
    /// If they do not.
    pub fn check_invariants(&self) {
        for (index, segment) in self.iter() {
            let listed = self.freeing.iter().filter(|freeing| **freeing == index).count();
            let is_freeing = segment.state() == SegmentState::Freeing;
            assert_eq!(listed, usize::from(is_freeing), "I-L7: freeing segment {index}");
            let valid = self.valid(index);
            assert!(valid <= self.layout.segment_ius, "I-L2: live IUs of segment {index}");
            let is_of_stream = segment.stream.kind() == StreamKind::Map
                || segment.blocks.is_empty()
                || self.reclaim_group_of(index) == self.layout.streams.group_of(segment.stream);
            assert!(
                is_of_stream || segment.state() != SegmentState::Open,
                "I-L41: segment {index} lies in its group"
            );
            assert!(
                segment.exists() || valid == 0,
                "I-L2: segment {index} does not exist, and something lives"
            );
        }
        for (group, live) in (0..).map(ReclaimGroup).zip(&self.live) {
            let own = (0..self.count()).filter(|index| self.reclaim_group_of(*index) == group);
            let counted: u64 = own.map(|index| u64::from(self.valid(index))).sum();
            assert_eq!(*live, counted, "I-L41: live IUs of {group:?}");
        }
        for (stream, open) in
            self.layout.streams.all().filter_map(|stream| Some((stream, self.open[stream]?)))
        {
            let segment = &self[open];
            assert_eq!(
                (segment.state(), segment.stream),
                (SegmentState::Open, stream),
                "I-L4: segment {open} is open for {stream:?}"
            );
        }
    }

    /// The number of the segment of an address.
    #[inline]
    pub fn index_of(&self, address: LogAddress) -> u32 {
        self.layout.segment_of(address).0
    }

    /// The address of an IU.
    pub fn address(&self, index: u32, offset: u32) -> LogAddress {
        self.layout.address(SegmentIndex(index), offset)
    }
}

impl std::fmt::Display for Segments {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let after = |index: &u32| self[*index].free_after;
        let freeing: Vec<_> = self.freeing.iter().map(after).collect();
        let open = self.layout.streams.all().filter_map(|stream| Some((stream, self.open[stream]?)));
        let open: Vec<_> = open.map(|(stream, index)| (stream, index, self.group_of(index))).collect();
        writeln!(f, "freeing after {freeing:?} open {open:?}")?;
        for (i, s) in self.iter().filter(|(_, segment)| segment.exists()) {
            writeln!(
                f,
                "segment {i}: {:?} stream {:?} next {} valid {} chunks {} reads {} unreclaimable {} units {:?}",
                s.state(),
                s.stream,
                s.next_unit,
                self.valid(i),
                s.chunks,
                s.reads,
                s.is_unreclaimable,
                s.completed_units
            )?;
        }
        Ok(())
    }
}
