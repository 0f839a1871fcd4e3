//! Segments that a restart found.

use super::{Blocks, NO_BLOCK, Segment, SegmentState, Segments};
use crate::anchor::Anchor;
use crate::head::{Head, Origin};
use crate::{Format, LogAddress, MapEntry, SegmentIndex, Stream};
use diecut_vssd::space::{EraseBlockSpace, LogicalBlock};
use smallvec::SmallVec;
use std::ops::Range;

/// Entries of a map that are looked at together for whether they lie in one segment, as neighbours often do.
const TOGETHER_ENTRIES: usize = 64;

impl Segments {
    /// Takes over what an anchor says.
    pub fn adopt_anchor(&mut self, anchor: &Anchor) {
        self.next_generation = self.next_generation.max(anchor.next_generation);
    }

    /// Generations from here on are later than this one.
    pub fn pass_generation(&mut self, generation: u32) {
        self.next_generation = self.next_generation.max(generation.saturating_add(1));
    }

    /// Takes a segment found after a restart.
    pub fn adopt(&mut self, index: u32, generation: u32, stream: Stream, blocks: &[LogicalBlock]) {
        assert!(index < self.flash_count, "I-L10: what lies on flash has a number of those");
        let units = self.layout.member_units;
        assert_eq!(blocks.len(), self.layout.width as usize, "I-L3: a segment has a place for each block");
        let segment = &mut self[index];
        segment.enter(SegmentState::Sealed);
        segment.blocks = Blocks::from_slice(blocks);
        (segment.generation, segment.stream) = (generation, stream);
        segment.first_sequence = 0;
        segment.is_found = true;
        segment.completed_units = SmallVec::from_elem(units, blocks.len());
        self.pass_generation(generation);
        self.settle_in_group(index);
    }

    /// Generation of a segment that is held.
    pub fn generation(&self, index: u32) -> Option<u32> {
        self.list.get(index as usize).filter(|segment| segment.exists()).map(|segment| segment.generation)
    }

    /// Notes what a chunk of an adopted segment holds.
    pub fn adopt_chunk(&mut self, head: &Head, last_sequence: u64, last_note: u64) {
        // What lies behind the last whole chunk was torn: the cleaner looks for nothing there.
        let end = head.offset / self.layout.unit_ius + u32::from(head.unit_count);
        let segment = &mut self[head.segment];
        segment.take_format(head.format);
        segment.last_sequence = segment.last_sequence.max(last_sequence);
        segment.last_note = segment.last_note.max(last_note);
        segment.notes += head.note_count;
        segment.next_unit = segment.next_unit.max(end);
    }

    /// A segment found after a restart holds nothing that the anchor from `anchored` on does not cover.
    pub fn adopt_closed(&mut self, index: u32, units: u32, anchored: u64) {
        let units = units.min(self.layout.segment_units);
        let segment = &mut self[index];
        segment.next_unit = units;
        segment.last_sequence = anchored - 1;
    }

    /// A chunk was found in staging: until it gets a place it lies in a segment that does not exist on flash. Its number.
    ///
    /// # Panics
    /// If there is no unused number.
    pub fn adopt_staged(&mut self) -> u32 {
        let index = self.list.iter().rposition(|segment| !segment.exists());
        let index = index.expect("I-L10: there is a number for each slot") as u32;
        let units = self.layout.segment_units;
        let segment = &mut self[index];
        segment.enter(SegmentState::Sealed);
        segment.is_unreclaimable = false;
        segment.first_sequence = 0;
        segment.chunks = 1;
        segment.next_unit = units;
        index
    }

    /// Whether all of an adopted segment is there that copies were made of; `units` were found to hold chunks.
    pub fn holds_origin(&self, origin: &Origin, units: u32) -> bool {
        let members = origin.units.div_ceil(self.layout.strip_units).min(self.layout.width) as usize;
        self.generation(origin.segment) == Some(origin.generation)
            && units >= origin.units
            && self[origin.segment].blocks.get(..members).is_some_and(|blocks| !blocks.contains(&NO_BLOCK))
    }

    /// Gives up an adopted segment: all that lives in it has an original elsewhere.
    pub fn undo(&mut self, index: u32, space: &mut dyn EraseBlockSpace) {
        assert_eq!(self.valid(index), 0, "I-L6: nothing of it is counted yet");
        self[index].enter(SegmentState::Absent);
        let segment = std::mem::replace(&mut self[index], Segment::absent());
        for block in segment.blocks.into_iter().filter(|block| *block != NO_BLOCK) {
            space.free(block).expect("held by this segment");
        }
    }

    /// Counts the places in `parts` of a map as live; the rest of the map has none. One without a block behind it becomes
    /// [`LogAddress::LOST`]. Gives the number of entries that are places, and of those that were lost just now: what was lost before
    /// says so already.
    ///
    /// # Panics
    /// If a part goes beyond the map.
    pub fn adopt_places(
        &mut self,
        entries: &mut [MapEntry],
        parts: &[Range<usize>],
        is_staged: impl Fn(LogAddress, &Segments) -> bool,
    ) -> (u64, u64) {
        // A map is large: what holds for all places of a segment is looked up once, and the rest goes through them again.
        // Chunks found in staging were told by their records only: see [`Segments::places_end`].
        let is_whole = |segment: &Segment| segment.exists() && !segment.blocks.contains(&NO_BLOCK);
        let mut counts = vec![0u32; self.list.len()];
        let (mut used, mut odd) = (0, false);
        for some in parts.iter().flat_map(|part| entries[part.clone()].chunks(TOGETHER_ENTRIES)) {
            let one = self.layout.segment_of_all(some);
            if let Some(count) = one.and_then(|SegmentIndex(one)| counts.get_mut(one as usize)) {
                *count += some.len() as u32;
                used += some.len() as u64;
            } else {
                odd |= self.layout.count_each(some, &mut counts, &mut used);
            }
        }
        odd |= counts.iter().zip(&self.list).any(|(count, segment)| *count > 0 && !is_whole(segment));
        if !odd {
            self.valid.iter_mut().zip(&counts).for_each(|(valid, count)| *valid += count);
            for (home, count) in self.homes.iter().zip(&counts) {
                self.live[usize::from(home.0)] += u64::from(*count);
            }
            return (used, 0);
        }
        let mut lost = 0;
        used = 0;
        for part in parts {
            for entry in entries[part.clone()].iter_mut().filter(|entry| **entry != MapEntry::NONE) {
                let place = entry.get();
                if place == LogAddress::LOST {
                    continue;
                }
                if place.is_place() && (self.is_present(place) || is_staged(place, self)) {
                    self.validate(place);
                    used += 1;
                } else {
                    *entry = LogAddress::LOST.into();
                    lost += 1;
                }
            }
        }
        (used, lost)
    }

    /// See [`Segments::has_checks`], of all segments that there are.
    pub fn all_have_checks(&self) -> bool {
        let mut there = self.list.iter().filter(|segment| segment.exists());
        there.all(|segment| segment.format() == Some(Format::Three))
    }

    /// Whether what a leaf says of the check of a place means something.
    pub fn has_checks(&self, address: LogAddress) -> bool {
        let segment = self.list.get(self.layout.segment_of(address).0 as usize);
        segment.is_some_and(|segment| segment.format() == Some(Format::Three))
    }

    /// Addresses from here on do not lie on flash: no leaf can name them.
    pub fn places_end(&self) -> LogAddress {
        self.layout.address(SegmentIndex(self.flash_count), 0)
    }

    /// Whether there is a block behind a place that the owner's leaves name.
    pub fn is_present(&self, address: LogAddress) -> bool {
        let offset = self.layout.offset_of(address);
        let segment = self.list.get(self.layout.segment_of(address).0 as usize);
        segment.is_some_and(|segment| {
            segment.exists()
                && offset < self.layout.segment_ius
                // What recovery found in staging lies in a segment without blocks.
                && segment.blocks.get(self.layout.place(offset).0).is_some_and(|block| *block != NO_BLOCK)
        })
    }
}
