//! What a restart found becomes segments and chunks again.

use super::*;
use crate::RecoveredChunk;

impl Log {
    /// Takes a segment found after a restart.
    pub fn adopt_segment(&mut self, index: u32, generation: u32, stream: Stream, blocks: &[LogicalBlock]) {
        self.segments[index as usize] = Segment {
            state: SegmentState::Sealed,
            blocks: SmallVec::from_slice(blocks),
            generation,
            stream,
            completed_rows: SmallVec::from_elem(
                self.layout.shape.program_units(),
                self.layout.width as usize,
            ),
            ..absent()
        };
        self.next_generation = self.next_generation.max(generation.saturating_add(1));
    }

    /// Generation of a segment that is held.
    pub fn generation(&self, index: u32) -> Option<u32> {
        let segment = self.segments.get(index as usize)?;
        (segment.state != SegmentState::Absent).then_some(segment.generation)
    }

    /// The erase block and IU of a place.
    pub fn block_of(&self, address: LogAddress) -> (LogicalBlock, u32) {
        let (member, iu) = self.layout.place(self.layout.offset_of(address));
        (self.segments[self.layout.segment_of(address).0 as usize].blocks[member], iu)
    }

    /// Notes what a chunk of an adopted segment holds.
    pub fn adopt_chunk(&mut self, head: &Head, last_sequence: u64, last_note: u64) {
        let segment = &mut self.segments[head.segment as usize];
        segment.last_sequence = segment.last_sequence.max(last_sequence);
        segment.last_note = segment.last_note.max(last_note);
        segment.notes += head.note_count;
        // What lies behind the last whole chunk was torn: the cleaner looks for nothing there.
        let end = head.offset / self.layout.unit_ius + u32::from(head.unit_count);
        segment.next_unit = segment.next_unit.max(end);
        self.next_sequence = self.next_sequence.max(last_sequence.saturating_add(1));
    }

    /// Whether all of an adopted segment is there that copies were made of; `units` were found to hold chunks.
    pub fn holds_origin(&self, origin: &Origin, units: u32) -> bool {
        let members = origin.units.min(self.layout.width) as usize;
        self.generation(origin.segment) == Some(origin.generation)
            && units >= origin.units
            && self.segments[origin.segment as usize]
                .blocks
                .get(..members)
                .is_some_and(|blocks| !blocks.contains(&NO_BLOCK))
    }

    /// Gives up an adopted segment: all that lives in it has an original elsewhere. What comes gets later sequences than
    /// `last_sequence`, because the segment may be found again.
    pub fn undo_segment(&mut self, index: u32, last_sequence: u64, space: &mut dyn EraseBlockSpace) {
        self.next_sequence = self.next_sequence.max(last_sequence.saturating_add(1));
        let segment = std::mem::replace(&mut self.segments[index as usize], absent());
        for block in segment.blocks.into_iter().filter(|block| *block != NO_BLOCK) {
            space.free(block).expect("held by this segment");
        }
    }

    /// What recovery freed is free from now on, and not only after something else is freed: there may be nothing else.
    pub fn sync_frees(&self, space: &mut dyn EraseBlockSpace) {
        space.sync(SpaceToken(TOKEN_NOBODY));
    }

    /// Chunks found in protected staging: slot, head fields, head bytes. The number of slots that are damaged besides;
    /// they stay as they are.
    pub fn found_in_staging(&self) -> (Vec<(usize, RecoveredChunk)>, u32) {
        let (mut found, mut damaged) = (Vec::new(), 0);
        for (index, slot) in self.slots[..self.user_slots].iter().enumerate() {
            match slot.found() {
                FoundSlot::Empty => {}
                FoundSlot::Damaged => damaged += 1,
                FoundSlot::Chunk { sequence, segment, generation, offset, data_count, note_count } => {
                    let head = Head {
                        segment,
                        generation,
                        offset,
                        data_count: data_count as u16,
                        unit_count: (data_count + 1).div_ceil(self.layout.unit_ius) as u16,
                        note_count,
                        sequence,
                        ..Head::default()
                    };
                    found.push((index, RecoveredChunk::new(head, slot.bytes())));
                }
            }
        }
        (found, damaged)
    }

    /// Empties a slot whose chunk is whole on flash.
    pub fn drop_staged(&mut self, slot: usize) {
        self.slots[slot].clear();
    }

    /// Empties the slots that are damaged: that what they held is lost was accepted.
    pub fn drop_damaged_staging(&mut self) {
        for slot in &mut self.slots[..self.user_slots] {
            if slot.chunk.is_none() && slot.found() == FoundSlot::Damaged {
                slot.clear();
            }
        }
    }

    /// Keeps a chunk found in staging: it gets a new place. Until then it lies in a segment that does not exist on
    /// flash, which is returned; its addresses are those of offset 0 there.
    ///
    /// # Panics
    /// If there is no unused segment number.
    pub fn adopt_staged(&mut self, slot: usize, found: &RecoveredChunk, last_sequence: u64) -> SegmentIndex {
        let index = self
            .segments
            .iter()
            .rposition(|s| s.state == SegmentState::Absent)
            .expect("the reserve leaves segment numbers");
        self.segments[index].state = SegmentState::Sealed;
        self.segments[index].is_unreclaimable = false;
        self.segments[index].chunks = 1;
        self.segments[index].next_unit = self.layout.segment_units;
        let mut checksums = Vec::with_capacity(self.layout.chunk_ius() as usize);
        for data in 0..u32::from(found.head.data_count) {
            checksums.push(checksum(self.slots[slot].iu(data)));
        }
        let chunk = Chunk {
            state: ChunkState::Displaced,
            stream: Stream::User,
            segment: index as u32,
            first_unit: 0,
            units: found.head.unit_count.into(),
            room_units: found.head.unit_count.into(),
            sequence: found.head.sequence,
            expected: 0,
            last_sequence,
            data_count: found.head.data_count.into(),
            note_count: found.head.note_count,
            origin: None,
            pending: 0,
            fills_room: false,
            checksums,
        };
        self.occupy(slot, chunk);
        self.next_sequence = self.next_sequence.max(last_sequence.saturating_add(1));
        SegmentIndex(index as u32)
    }
}
