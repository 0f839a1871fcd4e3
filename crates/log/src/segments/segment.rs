//! One segment, and the states it goes through.

use crate::{Format, Stream};
use diecut_units::mutant;
use diecut_vssd::space::{LogicalBlock, UnitIndex};
use smallvec::SmallVec;

/// Stands for a member of a segment found after a restart on which nothing was programmed.
pub const NO_BLOCK: LogicalBlock = LogicalBlock { unit: UnitIndex(u16::MAX), index: u32::MAX };

/// Blocks of a segment, by member.
pub(crate) type Blocks = SmallVec<[LogicalBlock; 16]>;

/// Where a segment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentState {
    /// The number is free.
    Absent,
    /// A stream places chunks in it.
    Open,
    /// It takes no more.
    Sealed,
    /// A victim: what lives in it is copied.
    Cleaning,
    /// Nothing in it is needed once what was copied from it is durable.
    Freeing,
}

impl SegmentState {
    /// Whether a segment may go from this state to that one.
    fn leads_to(self, next: SegmentState) -> bool {
        use SegmentState::{Absent, Cleaning, Freeing, Open, Sealed};
        matches!(
            (self, next),
            (Absent, Open | Sealed)
                | (Open, Sealed)
                // The last chunks were taken back; or recovery gives the segment up, or it is dead.
                | (Sealed, Open | Absent | Cleaning | Freeing)
                // Something in it cannot be read.
                | (Cleaning, Sealed | Freeing)
                | (Freeing, Absent)
        )
    }
}

/// What the log knows of a segment beside its live IUs.
#[derive(Debug)]
pub(crate) struct Segment {
    state: SegmentState,
    pub blocks: Blocks,
    pub generation: u32,
    /// Version of its heads, the lower one where there are both; `None` as long as nobody knows.
    format: Option<Format>,
    /// An opening found it, and walked it to its end.
    pub is_found: bool,
    pub stream: Stream,
    /// Program units that chunks were placed in.
    pub next_unit: u32,
    /// Those of them that a flush note says are durable, or that one says that is still to be written.
    pub noted_units: u32,
    /// Program units that each member has programmed.
    pub completed_units: SmallVec<[u32; 16]>,
    pub last_note: u64,
    /// Notes in it, those that an anchor covers included.
    pub notes: u32,
    pub last_sequence: u64,
    /// Nothing that was appended before it lies in it.
    pub first_sequence: u64,
    /// Reads of hosts that are under way in it.
    pub reads: u32,
    /// Chunks in staging that are placed in it.
    pub chunks: u32,
    /// What was appended before is durable when it is freed.
    pub free_after: u64,
    /// Something in it cannot be read: it stays, so that reads of it say so.
    pub is_unreclaimable: bool,
}

impl Segment {
    pub fn absent() -> Segment {
        Segment {
            state: SegmentState::Absent,
            blocks: SmallVec::new(),
            generation: 0,
            format: None,
            is_found: false,
            stream: Stream::USER,
            next_unit: 0,
            noted_units: 0,
            completed_units: SmallVec::new(),
            last_note: 0,
            notes: 0,
            last_sequence: 0,
            first_sequence: u64::MAX,
            reads: 0,
            chunks: 0,
            free_after: 0,
            is_unreclaimable: false,
        }
    }

    pub fn state(&self) -> SegmentState {
        self.state
    }

    /// Goes to another state.
    pub fn enter(&mut self, next: SegmentState) {
        assert!(self.state.leads_to(next), "I-L1: a segment does not go from {:?} to {next:?}", self.state);
        self.state = next;
    }

    pub fn exists(&self) -> bool {
        self.state != SegmentState::Absent
    }

    /// Version of its heads, the lower one where there are both.
    pub fn format(&self) -> Option<Format> {
        self.format
    }

    /// It has a head of this version, or an anchor says so.
    pub fn take_format(&mut self, format: Format) {
        let is_first = self.format.is_none() || mutant!("log: segments of both formats taken for new ones");
        self.format = if is_first { Some(format) } else { self.format.min(Some(format)) };
    }

    /// Whether an anchor from `sequence` on may close it: nothing of its records is needed any more. One that the cleaner is at,
    /// too, or whose heads cannot all be read.
    pub fn is_closed_before(&self, sequence: u64) -> bool {
        !matches!(self.state, SegmentState::Absent | SegmentState::Open)
            && (self.chunks == 0 || mutant!("log: anchor closes segments that are not safe"))
            && self.last_sequence < sequence
    }

    /// An entry was appended to one of its chunks.
    #[inline]
    pub fn take_entry(&mut self, sequence: u64) {
        debug_assert!(sequence >= self.last_sequence, "I-L36: sequences rise within a segment");
        self.last_sequence = sequence;
    }

    /// A note was appended to one of its chunks.
    pub fn take_note(&mut self, sequence: u64) {
        self.last_note = self.last_note.max(sequence);
        self.notes += 1;
        self.last_sequence = self.last_sequence.max(sequence);
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: what a segment never does is refused. Method: all pairs of states against the drawing in docs/invariants/log.md.
    #[test]
    fn a_segment_goes_only_where_it_may() {
        use SegmentState::{Absent, Cleaning, Freeing, Open, Sealed};
        let states = [Absent, Open, Sealed, Cleaning, Freeing];
        let allowed: Vec<_> = states
            .iter()
            .flat_map(|from| states.iter().map(move |to| (*from, *to)))
            .filter(|(from, to)| from.leads_to(*to))
            .collect();
        assert_eq!(
            allowed,
            [
                (Absent, Open),
                (Absent, Sealed),
                (Open, Sealed),
                (Sealed, Absent),
                (Sealed, Open),
                (Sealed, Cleaning),
                (Sealed, Freeing),
                (Cleaning, Sealed),
                (Cleaning, Freeing),
                (Freeing, Absent),
            ]
        );
    }
}
