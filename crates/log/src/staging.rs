//! Staging slots: where chunks gather before they are programmed, straight from here.
//!
//! Slot in protected memory (only the user stream's), little endian:
//!
//! | offset | size | field      | meaning                                                                |
//! |-------:|-----:|------------|------------------------------------------------------------------------|
//! |      0 |    8 | word       | published last: D5C8h, data count (9 bits), note count (7), check (32) |
//! |      8 |    8 | sequence   | first sequence of the chunk                                            |
//! |     16 |    4 | segment    | where the chunk is to be programmed                                    |
//! |     20 |    4 | generation | generation of that segment                                             |
//! |     24 |    4 | offset     | IU of the head within it                                               |
//! |     28 |    4 | version    | 2                                                                      |
//! |     64 | 4096 | head       | records and notes as in a chunk head; the fixed fields are not valid   |
//! |   4160 |  ... | data       | IUs                                                                    |
//!
//! The word makes all entries up to its counts true at once; 0 says that the slot is empty. Its check is the CRC-32C of
//! the sequence and three CRC-32C: of the tags, of the CRC-32C of the IUs, and of the notes, up to the counts. A slot whose
//! word is anything else is damaged: what it held is lost, and the store takes no more writes. The place is not covered:
//! it changes while the word stands, and only tells a chunk that was programmed from one that was not.

use crate::Stream;
use crate::head::{self, Origin};
use diecut_units::{Buffer, BufferLoan, BufferMut, IU_SIZE_BYTES, checksum, checksum_append};
use std::sync::atomic::{Ordering, compiler_fence};

/// Bytes before a slot's head.
pub const SLOT_HEADER_SIZE_BYTES: usize = 64;
const MAGIC: u64 = 0xd5c8;
const VERSION: u32 = 2;

pub(crate) enum Body {
    Open(BufferMut),
    Shared(BufferLoan, Buffer),
    /// Given back by the log, but someone below still holds a part.
    Returning(BufferLoan),
    Moving,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkState {
    Open,
    /// Sealed, not yet handed to the space.
    Sealed,
    Programming,
    /// Programmed, but a power cut could still take it.
    Unsafe,
    /// Its place failed; a new one is needed.
    Displaced,
}

pub(crate) struct Chunk {
    pub state: ChunkState,
    pub stream: Stream,
    pub segment: u32,
    pub first_unit: u32,
    pub units: u32,
    pub room_units: u32,
    pub sequence: u64,
    pub expected: u64,
    pub last_sequence: u64,
    pub data_count: u32,
    pub note_count: u32,
    /// What the cleaner copied all of it from.
    pub origin: Option<Origin>,
    pub pending: u32,
    /// Filler that ends its segment.
    pub fills_room: bool,
    pub checksums: Vec<u32>,
}

/// What the word of a slot covers, checked as far as it was published.
#[derive(Default)]
pub(crate) struct Published {
    data_count: u32,
    note_count: u32,
    tags_check: u32,
    sums_check: u32,
    notes_check: u32,
}

impl Published {
    /// Takes in the entries up to `data_count` and `note_count`.
    fn extend(&mut self, head: &[u8], sums: &[u32], data_count: u32, note_count: u32) {
        let tags = |count: u32| head::RECORDS_OFFSET + 8 * count as usize;
        self.tags_check = checksum_append(self.tags_check, &head[tags(self.data_count)..tags(data_count)]);
        for sum in &sums[self.data_count as usize..data_count as usize] {
            self.sums_check = checksum_append(self.sums_check, &sum.to_le_bytes());
        }
        for note in self.note_count as usize..note_count as usize {
            let at = IU_SIZE_BYTES - head::NOTE_SIZE_BYTES * (note + 1);
            self.notes_check = checksum_append(self.notes_check, &head[at..at + head::NOTE_SIZE_BYTES]);
        }
        (self.data_count, self.note_count) = (data_count, note_count);
    }
    fn word(&self, sequence: u64) -> u64 {
        let mut all = [0; 20];
        all[..8].copy_from_slice(&sequence.to_le_bytes());
        all[8..12].copy_from_slice(&self.tags_check.to_le_bytes());
        all[12..16].copy_from_slice(&self.sums_check.to_le_bytes());
        all[16..].copy_from_slice(&self.notes_check.to_le_bytes());
        MAGIC << 48
            | u64::from(self.data_count) << 39
            | u64::from(self.note_count) << 32
            | u64::from(checksum(&all))
    }
}

/// What a slot holds after a restart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundSlot {
    Empty,
    Damaged,
    Chunk { sequence: u64, segment: u32, generation: u32, offset: u32, data_count: u32, note_count: u32 },
}

pub(crate) struct Slot {
    pub published: Published,
    pub header: Option<BufferMut>,
    pub body: Body,
    pub chunk: Option<Chunk>,
    pub iu_bytes: usize,
    pub spare_checksums: Vec<u32>,
}

impl Slot {
    pub fn bytes(&self) -> &[u8] {
        match &self.body {
            Body::Open(buffer) => buffer,
            Body::Shared(_, buffer) => buffer,
            _ => panic!("an empty slot has no content"),
        }
    }
    pub fn open_bytes(&mut self) -> &mut [u8] {
        match &mut self.body {
            Body::Open(buffer) => buffer,
            _ => panic!("a sealed chunk does not change"),
        }
    }
    pub fn iu(&self, data: u32) -> &[u8] {
        let at = IU_SIZE_BYTES + data as usize * self.iu_bytes;
        &self.bytes()[at..at + self.iu_bytes]
    }
    fn word(&mut self, word: u64) {
        if let Some(header) = &mut self.header {
            compiler_fence(Ordering::SeqCst);
            header[0..8].copy_from_slice(&word.to_le_bytes());
            compiler_fence(Ordering::SeqCst);
        }
    }
    /// Names the chunk of a protected slot; it is empty until published.
    pub fn name(&mut self, sequence: u64, segment: u32, generation: u32, offset: u32) {
        if let Some(header) = &mut self.header {
            header[8..16].copy_from_slice(&sequence.to_le_bytes());
            header[16..20].copy_from_slice(&segment.to_le_bytes());
            header[20..24].copy_from_slice(&generation.to_le_bytes());
            header[24..28].copy_from_slice(&offset.to_le_bytes());
            header[28..32].copy_from_slice(&VERSION.to_le_bytes());
        }
    }
    pub fn publish(&mut self) {
        if self.header.is_none() {
            return;
        }
        let chunk = self.chunk.as_ref().expect("a chunk is open");
        let (data_count, note_count) = (chunk.data_count, chunk.note_count);
        if data_count + note_count == 0 {
            return;
        }
        let mut published = std::mem::take(&mut self.published);
        published.extend(self.bytes(), &chunk.checksums, data_count, note_count);
        let word = published.word(chunk.sequence);
        self.published = published;
        self.word(word);
    }
    pub fn clear(&mut self) {
        self.published = Published::default();
        self.word(0);
    }
    /// What a slot holds after a restart.
    pub fn found(&self) -> FoundSlot {
        let Some(header) = self.header.as_ref() else { return FoundSlot::Empty };
        let long = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let publish = long(0);
        if publish == 0 {
            return FoundSlot::Empty;
        }
        let (data_count, note_count) = ((publish >> 39) as u32 & 0x1ff, (publish >> 32) as u32 & 0x7f);
        let room = (self.bytes().len() - IU_SIZE_BYTES) / self.iu_bytes;
        let sequence = long(8);
        if publish >> 48 != MAGIC
            || word(28) != VERSION
            || data_count as usize > room
            || !head::fits(data_count as usize, note_count as usize, 0)
        {
            return FoundSlot::Damaged;
        }
        let sums: Vec<u32> = (0..data_count).map(|data| checksum(self.iu(data))).collect();
        let mut published = Published::default();
        published.extend(self.bytes(), &sums, data_count, note_count);
        if published.word(sequence) != publish {
            return FoundSlot::Damaged;
        }
        FoundSlot::Chunk {
            sequence,
            segment: word(16),
            generation: word(20),
            offset: word(24),
            data_count,
            note_count,
        }
    }
    pub fn share(&mut self) {
        self.body = match std::mem::replace(&mut self.body, Body::Moving) {
            Body::Open(buffer) => {
                let (loan, whole) = buffer.lend();
                Body::Shared(loan, whole.freeze())
            }
            other => other,
        };
    }
    /// Makes the slot empty.
    pub fn release(&mut self) {
        self.clear();
        if let Some(chunk) = self.chunk.take() {
            self.spare_checksums = chunk.checksums;
            self.spare_checksums.clear();
        }
        self.body = match std::mem::replace(&mut self.body, Body::Moving) {
            Body::Shared(loan, buffer) => {
                drop(buffer);
                Body::Returning(loan)
            }
            other => other,
        };
    }
    /// Whether a chunk can be opened here.
    pub fn is_free(&mut self) -> bool {
        if self.chunk.is_some() {
            return false;
        }
        if matches!(self.body, Body::Returning(_)) {
            let Body::Returning(loan) = std::mem::replace(&mut self.body, Body::Moving) else {
                unreachable!()
            };
            self.body = match loan.try_reclaim() {
                Ok(buffer) => Body::Open(buffer),
                Err(loan) => Body::Returning(loan),
            };
        }
        matches!(self.body, Body::Open(_))
    }
}
