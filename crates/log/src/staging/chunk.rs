//! A chunk in a staging slot, and the states it goes through.

use crate::format::{Format, HeadShape};
use crate::head::{Head, Origin};
use crate::{Layout, LogAddress, SegmentIndex, Stream, StreamKind};

/// Where a chunk stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkState {
    /// Entries join it.
    Open,
    /// Sealed, not yet handed to the space.
    Sealed,
    /// Handed to the space.
    Programming,
    /// Programmed, but a power cut could still take it.
    Unsafe,
    /// Its place failed, or was taken back; a new one is needed.
    Displaced,
}

impl ChunkState {
    /// Whether a chunk may go from this state to that one.
    fn leads_to(self, next: ChunkState) -> bool {
        use ChunkState::{Displaced, Open, Programming, Sealed, Unsafe};
        matches!(
            (self, next),
            (Open, Sealed)
                | (Sealed, Programming)
                | (Programming, Unsafe)
                | (_, Displaced)
                | (Displaced, Sealed)
        )
    }
}

/// Entries that are programmed together.
#[derive(Debug)]
pub(crate) struct Chunk {
    state: ChunkState,
    pub stream: Stream,
    pub segment: u32,
    pub first_unit: u32,
    /// Program units that it takes; 0 while it is open.
    pub units: u32,
    /// Program units that it may take.
    pub room_units: u32,
    pub sequence: u64,
    /// Sequence that its next data IU has if no other stream gets one between.
    pub expected: u64,
    pub last_sequence: u64,
    pub data_count: u32,
    pub note_count: u32,
    /// Bytes of the notes.
    pub note_bytes: u32,
    /// What the cleaner copied all of it from.
    pub origin: Option<Origin>,
    /// Programs that it was handed over with, and those of them that are under way.
    pub programs: u32,
    pub pending: u32,
    /// Filler that ends its segment.
    pub fills_room: bool,
    /// Of its data IUs.
    pub checksums: Vec<u32>,
}

impl Chunk {
    /// An open one.
    pub fn new(stream: Stream, place: Place, sequence: u64, checksums: Vec<u32>) -> Chunk {
        assert!(checksums.is_empty(), "I-L11: a chunk begins empty");
        Chunk {
            state: ChunkState::Open,
            stream,
            segment: place.segment,
            first_unit: place.first_unit,
            units: 0,
            room_units: place.room_units,
            sequence,
            expected: sequence,
            last_sequence: 0,
            data_count: 0,
            note_count: 0,
            note_bytes: 0,
            origin: None,
            programs: 0,
            pending: 0,
            fills_room: false,
            checksums,
        }
    }

    /// One found after a restart. It needs a place.
    pub fn found(
        stream: Stream,
        head: &Head,
        segment: u32,
        last_sequence: u64,
        checksums: Vec<u32>,
    ) -> Chunk {
        let units = head.unit_count.into();
        let place = Place { segment, first_unit: 0, room_units: units };
        assert_eq!(checksums.len(), usize::from(head.data_count), "I-L11: each IU has a checksum");
        Chunk {
            state: ChunkState::Displaced,
            units,
            expected: 0,
            last_sequence,
            data_count: head.data_count.into(),
            note_count: head.note_count,
            note_bytes: head.shape().note_bytes,
            checksums,
            ..Chunk::new(stream, place, head.sequence, Vec::new())
        }
    }

    pub fn state(&self) -> ChunkState {
        self.state
    }

    /// Goes to another state.
    pub fn enter(&mut self, next: ChunkState) {
        assert!(self.state.leads_to(next), "I-L12: a chunk does not go from {:?} to {next:?}", self.state);
        self.state = next;
    }

    /// Whether it has no entries: it is filler, or was just opened.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.data_count + self.note_count == 0
    }

    /// Whether a new place can be given to it.
    pub fn is_displaced(&self) -> bool {
        self.state == ChunkState::Displaced && self.pending == 0
    }

    /// The unit behind it, when it is sealed.
    pub fn end_unit(&self) -> u32 {
        self.first_unit + self.units
    }

    /// Where a data IU of it lies.
    pub fn address(&self, data: u32, layout: &Layout) -> LogAddress {
        layout.address(SegmentIndex(self.segment), self.first_unit * layout.unit_ius + 1 + data)
    }

    /// Its head in a segment of this generation.
    pub fn head(&self, generation: u32, layout: &Layout) -> Head {
        Head {
            stream: self.stream,
            segment: self.segment,
            generation,
            offset: self.first_unit * layout.unit_ius,
            data_count: self.data_count as u16,
            unit_count: self.units as u16,
            note_count: self.note_count,
            sequence: self.sequence,
            origin: self.origin,
            ..Head::default()
        }
    }

    /// How much its head records, in a form.
    #[inline]
    pub fn shape(&self, format: Format) -> HeadShape {
        HeadShape {
            format,
            is_map: self.stream.kind() == StreamKind::Map,
            data_count: self.data_count,
            note_count: self.note_count,
            note_bytes: self.note_bytes,
        }
    }

    /// It records more.
    #[inline]
    pub fn take_shape(&mut self, shape: HeadShape) {
        self.data_count = shape.data_count;
        self.note_count = shape.note_count;
        self.note_bytes = shape.note_bytes;
    }
}

/// Where a chunk can lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub segment: u32,
    pub first_unit: u32,
    /// Program units there are.
    pub room_units: u32,
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: what a chunk never does is refused. Method: all pairs of states against the drawing in docs/invariants/log.md.
    #[test]
    fn a_chunk_goes_only_where_it_may() {
        use ChunkState::{Displaced, Open, Programming, Sealed, Unsafe};
        let states = [Open, Sealed, Programming, Unsafe, Displaced];
        for (at, from) in states.into_iter().enumerate() {
            let allowed: Vec<_> = states.into_iter().filter(|to| from.leads_to(*to)).collect();
            let expected: &[ChunkState] = match at {
                0 => &[Sealed, Displaced],
                1 => &[Programming, Displaced],
                2 => &[Unsafe, Displaced],
                3 => &[Displaced],
                _ => &[Sealed, Displaced],
            };
            assert_eq!(allowed, expected, "from {from:?}");
        }
    }
}
