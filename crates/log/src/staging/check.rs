//! What must hold of all chunks together.

use super::Staging;
use super::chunk::ChunkState;
use crate::segments::Segments;

impl Staging {
    /// Counts that must agree with each other.
    ///
    /// # Panics
    /// If they do not.
    pub fn check_invariants(&self, segments: &Segments) {
        for (index, segment) in segments.iter() {
            let chunks = self.chunks().filter(|(_, chunk)| chunk.segment == index).count();
            assert_eq!(chunks, segment.chunks as usize, "I-L8: staged chunks of segment {index}");
        }
        for (slot, chunk) in self.chunks().filter(|_| !self.may_release) {
            let is_over = chunk.state() == ChunkState::Programming && chunk.pending == 0;
            let is_late = is_over || chunk.state() == ChunkState::Unsafe && self.is_safe(slot, segments);
            assert!(!is_late, "I-L33: slot {slot} could be emptied, and nobody looks");
        }
        let occupied = (0..self.slots.len()).filter(|slot| self.slots[*slot].held().is_some());
        assert!(occupied.eq(self.occupied.iter().copied()), "I-L13: occupied slots {:?}", self.occupied);
        for (stream, slot) in self.streams.all().filter_map(|stream| Some((stream, self.open[stream]?))) {
            let chunk = self.slots[slot].chunk();
            assert_eq!((chunk.state(), chunk.stream), (ChunkState::Open, stream), "I-L16: slot {slot}");
        }
        for slot in &self.sealed {
            assert_eq!(self.slots[*slot].chunk().state(), ChunkState::Sealed, "I-L16: slot {slot}");
        }
    }
}
