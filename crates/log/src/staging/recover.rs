//! What protected staging holds after a restart.

use super::slot::FoundSlot;
use super::{Chunk, Staging};
use crate::head::Head;
use crate::{RecoveredChunk, Stream, StreamKind};
use diecut_units::{checksum, mutant};

impl Staging {
    /// Chunks found: slot, head fields, head bytes. The number of slots that are damaged besides; they stay as they are.
    pub fn found(&self, unit_ius: u32) -> (Vec<(usize, RecoveredChunk)>, u32) {
        let (mut found, mut damaged) = (Vec::new(), 0);
        for index in self.slots_of(StreamKind::User) {
            let slot = &self.slots[index];
            match slot.found() {
                FoundSlot::Empty => {}
                FoundSlot::Damaged => damaged += 1,
                FoundSlot::Chunk { reference, sequence, segment, generation, offset, shape, life } => {
                    let head = Head {
                        stream: Stream::User(reference),
                        segment,
                        generation,
                        offset,
                        data_count: shape.data_count as u16,
                        unit_count: (shape.data_count + 1).div_ceil(unit_ius) as u16,
                        note_count: shape.note_count,
                        sequence,
                        format: shape.format,
                        note_bytes: shape.note_bytes,
                        life,
                        ..Head::default()
                    };
                    found.push((index, RecoveredChunk::new(head, slot.bytes(), self.form.tags)));
                }
            }
        }
        (found, damaged)
    }

    /// Empties a slot whose chunk is whole on flash.
    pub fn drop_found(&mut self, slot: usize) {
        assert!(self.slots[slot].held().is_none(), "I-L13: what was found is not yet a chunk");
        self.slots[slot].clear();
    }

    /// Empties the slots that are damaged: that what they held is lost was accepted.
    pub fn drop_damaged(&mut self) {
        for index in self.slots_of(StreamKind::User) {
            let slot = &mut self.slots[index];
            if slot.held().is_none() && slot.found() == FoundSlot::Damaged {
                slot.clear();
            }
        }
    }

    /// Keeps a chunk that was found. It waits for a place.
    pub fn adopt(&mut self, slot: usize, found: &RecoveredChunk, segment: u32, last_sequence: u64) {
        let head = &found.head;
        let checksums = (0..u32::from(head.data_count)).map(|data| checksum(self.slots[slot].iu(data)));
        // Of a handle that there is not any more: it goes to the first one.
        let reference = head.stream.reference();
        let reference =
            if mutant!("log: staged chunks lose their handle") { Default::default() } else { reference };
        let stream = Stream::User(self.streams.reference(reference));
        let chunk = Chunk::found(stream, head, segment, last_sequence, checksums.collect());
        self.slots[slot].hold_found(chunk, head.format);
        self.occupy(slot);
    }
}
