//! Staging slots: where chunks gather before they are programmed, straight from here.
//!
//! Slot in protected memory (only the user stream's), little endian:
//!
//! | offset | size | field      | meaning                                                                |
//! |-------:|-----:|------------|------------------------------------------------------------------------|
//! |      0 |    8 | word       | published last: D5C7h, data count (16 bits), note count (16), 1 = valid |
//! |      8 |    8 | sequence   | first sequence of the chunk                                            |
//! |     16 |    4 | segment    | where the chunk is to be programmed                                    |
//! |     20 |    4 | generation | generation of that segment                                             |
//! |     24 |    4 | offset     | IU of the head within it                                               |
//! |     28 |    4 | version    | 1                                                                      |
//! |     64 | 4096 | head       | records and notes as in a chunk head; the fixed fields are not valid   |
//! |   4160 |  ... | data       | IUs                                                                    |
//!
//! The word makes all entries up to its counts true at once. A slot with another word is empty.

use crate::head;
use diecut_units::{Buffer, BufferLoan, BufferMut, IU_SIZE_BYTES};
use std::sync::atomic::{Ordering, compiler_fence};

/// Bytes before a slot's head.
pub const SLOT_HEADER_SIZE_BYTES: usize = 64;
const MAGIC: u64 = 0xd5c7;

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
    Homeless,
}

pub(crate) struct Chunk {
    pub state: ChunkState,
    pub stream: u16,
    pub segment: u32,
    pub first_unit: u32,
    pub units: u32,
    pub room_units: u32,
    pub sequence: u64,
    pub expected: u64,
    pub last_sequence: u64,
    pub data_count: u32,
    pub note_count: u32,
    pub pending: u32,
    /// Filler that ends its segment.
    pub fills_room: bool,
    pub checksums: Vec<u32>,
}

pub(crate) struct Slot {
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
            header[28..32].copy_from_slice(&1u32.to_le_bytes());
        }
    }
    pub fn publish(&mut self) {
        let chunk = self.chunk.as_ref().expect("a chunk is open");
        let word =
            (MAGIC << 48) | (u64::from(chunk.data_count) << 32) | (u64::from(chunk.note_count) << 16) | 1;
        self.word(word);
    }
    pub fn clear(&mut self) {
        self.word(0);
    }
    /// What a protected slot holds after a restart: sequence, segment, generation, offset, counts.
    pub fn found(&self) -> Option<(u64, u32, u32, u32, u32, u32)> {
        let header = self.header.as_ref()?;
        let long = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let publish = long(0);
        if publish >> 48 != MAGIC || publish & 0xffff != 1 || word(28) != 1 {
            return None;
        }
        let (data, notes) = ((publish >> 32) as u32 & 0xffff, (publish >> 16) as u32 & 0xffff);
        let room = (self.bytes().len() - IU_SIZE_BYTES) / self.iu_bytes;
        (data as usize <= room && head::fits(data as usize, notes as usize, 0))
            .then(|| (long(8), word(16), word(20), word(24), data, notes))
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
