//! Invariants, and state for people who debug.

use super::*;

impl Log {
    /// Counts that must agree with each other.
    ///
    /// # Panics
    /// If they do not.
    pub fn check_invariants(&self) {
        let occupied = (0..self.slots.len()).filter(|slot| self.slots[*slot].chunk.is_some());
        assert!(occupied.eq(self.occupied.iter().copied()), "occupied slots {:?}", self.occupied);
        for (index, segment) in self.segments.iter().enumerate() {
            let listed = self.freeing.iter().filter(|freeing| **freeing as usize == index).count();
            assert_eq!(
                listed,
                usize::from(segment.state == SegmentState::Freeing),
                "freeing segment {index}"
            );
        }
        for (index, segment) in self.segments.iter().enumerate() {
            let chunks =
                self.slots.iter().filter_map(|s| s.chunk.as_ref()).filter(|c| c.segment as usize == index);
            assert_eq!(chunks.count(), segment.chunks as usize, "staged chunks of segment {index}");
            assert!(self.valid[index] <= self.layout.segment_ius, "segment {index}");
            assert!(
                segment.state != SegmentState::Absent || self.valid[index] == 0,
                "segment {index} does not exist"
            );
        }
    }

    /// Live IUs of each segment.
    pub fn valid_counts(&self) -> Vec<u32> {
        self.valid.clone()
    }

    /// State in one line per slot and segment, for debugging.
    pub fn describe(&self) -> String {
        let mut text = format!(
            "free {} wanted {} floor {} next {} freeing {:?} victims {:?} pace {:?} ready {} renewed {} sealed {:?} open {:?} open_segment {:?}\n",
            self.free_segments,
            self.wanted,
            self.floor(false),
            self.next_sequence,
            self.freeing.iter().map(|index| self.segments[*index as usize].free_after).collect::<Vec<_>>(),
            self.victims
                .iter()
                .map(|v| (v.segment, v.offset, v.walked, v.heads.len(), v.reads))
                .collect::<Vec<_>>(),
            self.pace,
            self.ready.len(),
            self.renewed.len(),
            self.sealed,
            self.open.0,
            self.open_segment.0.map(|s| s.map(|s| (s, self.group_of(s))))
        );
        for (i, slot) in self.slots.iter().enumerate() {
            if let Some(c) = &slot.chunk {
                text += &format!(
                    "slot {i}: {:?} stream {:?} segment {} first {} units {} seq {} data {} notes {} pending {}\n",
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
                    "segment {i}: {:?} stream {:?} next {} valid {} chunks {} reads {} is_unreclaimable {} rows {:?}\n",
                    s.state,
                    s.stream,
                    s.next_unit,
                    self.valid[i],
                    s.chunks,
                    s.reads,
                    s.is_unreclaimable,
                    s.completed_rows
                );
            }
        }
        text
    }
}
