//! The first IU of a batch (`format` draws it).

use diecut_units::{IU_SIZE_BYTES, checksum, mutant};
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_ref};

/// What the first IU of a batch begins with.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredHeader {
    magic: [u8; 4],
    version: U16,
    kind: U16,
    sequence: U64,
    ius: U32,
    data_ius: U32,
    length_bytes: U32,
    part: U16,
    parts: U16,
    check: U32,
    data_check: U32,
}

/// The first IU of a batch.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredIu {
    header: StoredHeader,
    records: [u8; RECORDS_MAX_BYTES],
}

/// Version of batches and checkpoints.
pub const VERSION: u16 = 2;
const MAGIC: [u8; 4] = *b"DCFB";
const HEADER_SIZE_BYTES: usize = size_of::<StoredHeader>();
const CHECK_AT: usize = offset_of!(StoredHeader, check);
const _: () = {
    assert!(HEADER_SIZE_BYTES == 40 && CHECK_AT == 32 && size_of::<StoredIu>() == IU_SIZE_BYTES);
};
/// Bytes of a header that records may take.
pub const RECORDS_MAX_BYTES: usize = IU_SIZE_BYTES - HEADER_SIZE_BYTES;

/// What a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Records and data.
    Log = 1,
    /// Nothing: it keeps a power cut away from what is before it. Or what the device copied, from the second program unit on.
    Filling = 2,
    /// A part of a checkpoint.
    Checkpoint = 3,
}

/// First IU of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// Number of the batch, or of the checkpoint.
    pub sequence: u64,
    /// Length of the batch with header and filling.
    pub ius: u32,
    /// IUs of data behind the header.
    pub data_ius: u32,
    /// Bytes of records; of a checkpoint, bytes of this part.
    pub length_bytes: u32,
    /// Of a checkpoint: which part of how many.
    pub part: u16,
    /// Of a checkpoint.
    pub parts: u16,
    /// Tells whether the data are all there, see [`Header::with_data`]; 0 where nobody said so.
    pub data_check: u32,
}

/// The check of data, which is never 0.
fn data_check(data: &[u8]) -> u32 {
    checksum(data).max(1)
}

impl Header {
    /// A whole batch: records, `data` and zeros up to its length.
    ///
    /// Its header says what the data are. A zone whose append failed half-way may be read-only then, and nobody can say any more how far it
    /// was written: what is missing reads as zeros, and would be taken for data.
    ///
    /// # Panics
    /// If it has no room for them.
    pub fn with_data(self, records: &[u8], data: &[u8]) -> Vec<u8> {
        let of_data = self.data_ius as usize * IU_SIZE_BYTES;
        assert!(data.len() <= of_data && self.data_ius < self.ius, "counted by whoever gathered them");
        let mut bytes = vec![0; self.ius as usize * IU_SIZE_BYTES];
        let (first, rest) = bytes.split_at_mut(IU_SIZE_BYTES);
        rest[..data.len()].copy_from_slice(data);
        first.copy_from_slice(&Header { data_check: data_check(&rest[..of_data]), ..self }.encode(records));
        bytes
    }

    /// Whether these, from the first IU of data on, are what was written; unknown of batches of before, which count.
    pub fn is_whole(&self, data: &[u8]) -> bool {
        if mutant!("blockfile: data of a batch are not checked") {
            return true;
        }
        let data = data.get(..self.data_ius as usize * IU_SIZE_BYTES);
        self.data_check == 0 || data.is_some_and(|data| data_check(data) == self.data_check)
    }

    /// The first IU of a batch, with records.
    pub fn encode(&self, records: &[u8]) -> [u8; IU_SIZE_BYTES] {
        assert!(records.len() <= RECORDS_MAX_BYTES, "counted by whoever gathered them");
        let header = StoredHeader {
            magic: MAGIC,
            version: VERSION.into(),
            kind: (self.kind as u16).into(),
            sequence: self.sequence.into(),
            ius: self.ius.into(),
            data_ius: self.data_ius.into(),
            length_bytes: self.length_bytes.into(),
            part: self.part.into(),
            parts: self.parts.into(),
            check: 0.into(),
            data_check: self.data_check.into(),
        };
        let mut bytes = [0; IU_SIZE_BYTES];
        bytes[..HEADER_SIZE_BYTES].copy_from_slice(header.as_bytes());
        bytes[HEADER_SIZE_BYTES..HEADER_SIZE_BYTES + records.len()].copy_from_slice(records);
        let sum = checksum(&bytes);
        bytes[CHECK_AT..CHECK_AT + 4].copy_from_slice(U32::from(sum).as_bytes());
        bytes
    }

    /// The version of a batch, of this program or another one; `None` for what is none.
    pub fn version_of(bytes: &[u8; IU_SIZE_BYTES]) -> Option<u16> {
        let stored: &StoredIu = transmute_ref!(bytes);
        let mut unsummed = *bytes;
        unsummed[CHECK_AT..CHECK_AT + 4].fill(0);
        let is_batch = stored.header.magic == MAGIC && stored.header.check == checksum(&unsummed);
        is_batch.then(|| stored.header.version.get())
    }

    /// Header and records of an IU; `None` for what is none.
    pub fn decode(bytes: &[u8; IU_SIZE_BYTES]) -> Option<(Header, &[u8])> {
        let StoredIu { header: stored, records } = transmute_ref!(bytes);
        let kind = match stored.kind.get() {
            1 => Kind::Log,
            2 => Kind::Filling,
            3 => Kind::Checkpoint,
            _ => return None,
        };
        let header = Header {
            kind,
            sequence: stored.sequence.get(),
            ius: stored.ius.get(),
            data_ius: stored.data_ius.get(),
            length_bytes: stored.length_bytes.get(),
            part: stored.part.get(),
            parts: stored.parts.get(),
            data_check: stored.data_check.get(),
        };
        let length_bytes = header.length_bytes as usize;
        let is_sound = Header::version_of(bytes) == Some(VERSION)
            && u64::from(header.data_ius) < u64::from(header.ius)
            && (kind == Kind::Checkpoint || length_bytes <= RECORDS_MAX_BYTES);
        let records = match kind {
            Kind::Log => &records[..length_bytes.min(RECORDS_MAX_BYTES)],
            _ => &[],
        };
        is_sound.then_some((header, records))
    }
}
