//! Anchors: recovery begins there, and notes before them are not needed any more.

use super::*;
use crate::StoredAddress;
use std::ops::Range;

impl Log {
    /// Sequence of the newest anchor that holds; 1 without one.
    pub fn anchored(&self) -> u64 {
        self.anchored
    }

    /// No entry before this sequence can get another place without a new sequence: chunks that are not yet safe are
    /// written elsewhere when their place fails.
    pub fn settled_before(&self) -> u64 {
        let chunks = self.staged_chunks().map(|(_, chunk)| chunk);
        let full = chunks.filter(|chunk| chunk.data_count + chunk.note_count > 0);
        full.map(|chunk| chunk.sequence).min().unwrap_or(self.next_sequence)
    }

    /// Notes from `sequence` on are appended, or were found after a restart.
    pub(super) fn count_notes(&mut self, sequence: u64, notes: u64) {
        if self.notes % NOTES_PER_COUNT + notes >= NOTES_PER_COUNT {
            self.note_counts.push_back((sequence, self.notes));
        }
        self.notes += notes;
    }

    /// Notes before a sequence, at most 256 too few.
    fn notes_before(&self, sequence: u64) -> u64 {
        let counted = self.note_counts.iter().take_while(|(counted_at, _)| *counted_at <= sequence).last();
        counted.map_or(self.notes_covered, |(_, notes)| *notes)
    }

    /// Notes that recovery would replay now: those that no anchor covers, and up to 256 more.
    pub fn replayed_notes(&self) -> u64 {
        self.notes - self.notes_covered
    }

    /// Notes of these that an anchor from `sequence` on would cover.
    pub fn coverable_notes(&self, sequence: u64) -> u64 {
        self.notes_before(sequence) - self.notes_covered
    }

    /// Recovery found so many notes that the newest anchor does not cover.
    pub fn adopt_notes(&mut self, notes: u64) {
        self.notes += notes;
        self.note_counts.push_back((self.next_sequence, self.notes));
    }

    /// Changes when a leaf got another place without a new sequence.
    pub fn map_moves(&self) -> u64 {
        self.map_moves
    }

    /// Leaves a sequence out, so that an anchor that begins here is newer than any before.
    pub fn skip_sequence(&mut self) {
        self.next_sequence = self.next_sequence.max(self.anchored) + 1;
    }

    /// An anchor of what is now: records from `sequence` on are to be replayed over what `owner` leads to.
    pub fn take_anchor(&self, sequence: u64, owner: Vec<u8>) -> Anchor {
        let closed = |segment: &Segment| {
            // One that the cleaner is at, too, or whose heads cannot all be read: nothing of its records is needed any more.
            !matches!(segment.state, SegmentState::Absent | SegmentState::Open)
                && (segment.chunks == 0 || mutant!("log: anchor closes segments that are not safe"))
                && segment.last_sequence < sequence
        };
        let segments = self.segments.iter().enumerate().filter(|(_, segment)| closed(segment));
        Anchor {
            sequence,
            taken_at: self.next_sequence,
            next_generation: self.next_generation,
            segments: segments
                .map(|(index, segment)| (SegmentIndex(index as u32), (segment.generation, segment.next_unit)))
                .collect(),
            owner,
        }
    }

    /// Bytes of an anchor besides the owner's, and IUs that one with `owner_bytes` takes.
    pub fn anchor_size_ius(&self, owner_bytes: usize) -> u64 {
        AnchorWriter::size_ius(&self.layout.shape, 24 + 12 * self.real_segments as usize + owner_bytes)
    }

    /// Whether leaves may be written and anchors taken. Not while the last segments are in use: what the cleaner has begun
    /// can be undone only as long as they do not name it.
    pub fn may_checkpoint(&self) -> bool {
        self.free_segments > DISPLACED_LEAVE
    }

    /// Whether an anchor can be written.
    pub fn is_anchor_idle(&self) -> bool {
        self.anchor.is_idle()
    }

    /// Writes an anchor. Everything that was appended before it was taken must be durable.
    pub fn write_anchor(&mut self, anchor: &Anchor, space: &mut dyn EraseBlockSpace) {
        if self.anchor.is_used_up() {
            self.read_only.get_or_insert(COUNTERS_USED_UP);
            return;
        }
        let before = self.anchor.programmed_ius;
        let keep = if self.needs_anchor() { 1 + DISPLACED_LEAVE } else { RESERVE_SEGMENTS };
        self.anchor.write(anchor, keep, &mut self.pool, space);
        self.statistics.anchor_ius += self.anchor.programmed_ius - before;
        self.count_free(space);
    }

    pub(super) fn anchor_programmed(&mut self, result: Result<(), SpaceError>) {
        if let Some(sequence) = self.anchor.programmed(result) {
            diecut_units::mark!("log: anchor holds");
            self.anchored = sequence;
            self.cleaned_entries = 0;
            self.notes_covered = self.notes_before(sequence);
            self.note_counts.retain(|(counted_at, _)| *counted_at > sequence);
            // Segments that only notes kept can go.
            self.some_died = true;
        }
    }

    /// Takes over the anchor found after a restart, and the number of the next one.
    pub fn adopt_anchor(&mut self, anchor: &Anchor, blocks: &[LogicalBlock], next_number: u64) {
        self.anchor.adopt(blocks, next_number);
        self.anchored = self.anchored.max(anchor.sequence);
        self.next_sequence = self.next_sequence.max(anchor.taken_at);
        self.next_generation = self.next_generation.max(anchor.next_generation);
    }

    /// A segment found after a restart holds nothing that the anchor does not cover.
    pub fn adopt_closed(&mut self, index: u32, units: u32) {
        let segment = &mut self.segments[index as usize];
        segment.next_unit = units.min(self.layout.segment_units);
        segment.last_sequence = self.anchored - 1;
    }

    /// Counts the places in `parts` of a map as live; the rest of the map has none. One without a block behind it becomes
    /// [`LogAddress::LOST`]. Gives the number of entries that are places, and of those that were lost just now: what was lost before
    /// says so already.
    ///
    /// # Panics
    /// If a part goes beyond the map.
    pub fn adopt_places(&mut self, entries: &mut [StoredAddress], parts: &[Range<usize>]) -> (u64, u64) {
        // A map is large: what holds for all places of a segment is looked up once, and the rest goes through them again.
        // Chunks found in staging were told by their records only: see [`Log::places_end`].
        let is_whole =
            |segment: &Segment| segment.state != SegmentState::Absent && !segment.blocks.contains(&NO_BLOCK);
        let (shift, segment_ius) = (self.layout.segment_shift, self.layout.segment_ius);
        let mut counts = vec![0u32; self.segments.len()];
        let (mut used, mut odd) = (0, false);
        for entry in parts.iter().flat_map(|part| &entries[part.clone()]).map(|entry| entry.get().0) {
            used += u64::from(entry != LogAddress::NONE.0);
            match counts.get_mut((entry >> shift) as usize) {
                Some(count) => {
                    *count += 1;
                    odd |= entry & ((1 << shift) - 1) >= segment_ius;
                }
                None => odd |= entry != LogAddress::NONE.0,
            }
        }
        odd |= counts.iter().zip(&self.segments).any(|(count, segment)| *count > 0 && !is_whole(segment));
        if !odd {
            self.valid.iter_mut().zip(&counts).for_each(|(valid, count)| *valid += count);
            return (used, 0);
        }
        let mut lost = 0;
        used = 0;
        for part in parts {
            for entry in entries[part.clone()].iter_mut().filter(|entry| **entry != StoredAddress::NONE) {
                let place = entry.get();
                if place == LogAddress::LOST {
                    continue;
                }
                if place.is_place() && (self.is_present(place) || self.staged(place).is_some()) {
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

    /// Addresses from here on do not lie on flash: no leaf can name them.
    pub fn places_end(&self) -> u32 {
        // The numbers of segments are chosen so that all addresses fit.
        self.real_segments << self.layout.segment_shift
    }

    /// Whether there is a block behind a place that the owner's leaves name.
    pub fn is_present(&self, address: LogAddress) -> bool {
        let offset = self.layout.offset_of(address);
        let segment = self.segments.get(self.layout.segment_of(address).0 as usize);
        segment.is_some_and(|segment| {
            segment.state != SegmentState::Absent
                && offset < self.layout.segment_ius
                // What recovery found in staging lies in a segment without blocks.
                && segment.blocks.get(self.layout.place(offset).0).is_some_and(|block| *block != NO_BLOCK)
        })
    }
}
