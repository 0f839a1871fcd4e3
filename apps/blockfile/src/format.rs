//! The bytes on erase blocks; docs/format.md has the same tables. Little endian, reserved bytes are zero.
//!
//! A batch is one append of whole program units: a header of one IU, the data, filling. A reader that finds a header it cannot
//! make sense of, or data that cannot be read, takes the block to end there.

use crate::map::Place;
use diecut_blockspace::{LogicalBlock, UnitIndex};
use diecut_units::{IU_SIZE_BYTES, checksum};

/// Version of batches and checkpoints.
pub const VERSION: u16 = 1;
/// Most bytes of a name.
pub const NAME_MAX_BYTES: usize = 255;
const MAGIC: [u8; 4] = *b"DCFB";
const HEADER_SIZE_BYTES: usize = 40;
/// Bytes of a header that records may take.
pub const RECORDS_MAX_BYTES: usize = IU_SIZE_BYTES - HEADER_SIZE_BYTES;

/// What a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Records and data.
    Log = 1,
    /// Nothing; it keeps a power cut away from what is before it.
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
}

impl Header {
    /// The first IU of a batch, with records.
    pub fn encode(&self, records: &[u8]) -> [u8; IU_SIZE_BYTES] {
        assert!(records.len() <= RECORDS_MAX_BYTES, "counted by whoever gathered them");
        let mut bytes = [0; IU_SIZE_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6] = self.kind as u8;
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.ius.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.data_ius.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.length_bytes.to_le_bytes());
        bytes[28..30].copy_from_slice(&self.part.to_le_bytes());
        bytes[30..32].copy_from_slice(&self.parts.to_le_bytes());
        bytes[HEADER_SIZE_BYTES..HEADER_SIZE_BYTES + records.len()].copy_from_slice(records);
        let sum = checksum(&bytes);
        bytes[32..36].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Header and records of an IU; `None` for what is none.
    pub fn decode(bytes: &[u8; IU_SIZE_BYTES]) -> Option<(Header, &[u8])> {
        let mut reader = Reader(&bytes[4..HEADER_SIZE_BYTES]);
        let version = reader.u16()?;
        let kind = match reader.u16()? {
            1 => Kind::Log,
            2 => Kind::Filling,
            3 => Kind::Checkpoint,
            _ => return None,
        };
        let (sequence, ius, data_ius) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let (length_bytes, part, parts) = (reader.u32()?, reader.u16()?, reader.u16()?);
        let sum = reader.u32()?;
        let mut unsummed = *bytes;
        unsummed[32..36].fill(0);
        let is_sound = bytes[..4] == MAGIC
            && version == VERSION
            && sum == checksum(&unsummed)
            && u64::from(data_ius) < u64::from(ius)
            && (kind == Kind::Checkpoint || length_bytes as usize <= RECORDS_MAX_BYTES);
        let records = match kind {
            Kind::Log => &bytes[HEADER_SIZE_BYTES..][..(length_bytes as usize).min(RECORDS_MAX_BYTES)],
            _ => &[],
        };
        let header = Header { kind, sequence, ius, data_ius, length_bytes, part, parts };
        is_sound.then_some((header, records))
    }
}

/// One change, in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant says what its fields are")]
pub enum Record {
    /// The next `count` IUs of data are these of a file.
    Extent { file: u64, first: u64, count: u32 },
    /// A new file.
    Create { file: u64, hint: u8, name: String },
    /// A file is no more.
    Remove { file: u64 },
    /// A file gets a name; whoever had it is no more.
    Rename { file: u64, name: String },
    /// A file has this many bytes; what was beyond is no more.
    Size { file: u64, bytes: u64 },
}

impl Record {
    /// To bytes, behind others.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let mut put = |kind: u8, file: &u64| {
            bytes.push(kind);
            bytes.extend(file.to_le_bytes());
        };
        match self {
            Record::Extent { file, first, count } => {
                put(1, file);
                bytes.extend(first.to_le_bytes());
                bytes.extend(count.to_le_bytes());
            }
            Record::Create { file, hint, name } => {
                put(2, file);
                bytes.push(*hint);
                put_name(bytes, name);
            }
            Record::Remove { file } => put(3, file),
            Record::Rename { file, name } => {
                put(4, file);
                put_name(bytes, name);
            }
            Record::Size { file, bytes: size } => {
                put(5, file);
                bytes.extend(size.to_le_bytes());
            }
        }
    }

    /// All records of a batch; `None` if one makes no sense.
    pub fn decode_all(bytes: &[u8]) -> Option<Vec<Record>> {
        let mut reader = Reader(bytes);
        let mut records = Vec::new();
        while !reader.0.is_empty() {
            let (kind, file) = (reader.u8()?, reader.u64()?);
            records.push(match kind {
                1 => Record::Extent { file, first: reader.u64()?, count: reader.u32()? },
                2 => Record::Create { file, hint: reader.u8()?, name: reader.name()? },
                3 => Record::Remove { file },
                4 => Record::Rename { file, name: reader.name()? },
                5 => Record::Size { file, bytes: reader.u64()? },
                _ => return None,
            });
        }
        Some(records)
    }
}

/// A name with its length before it.
pub fn put_name(bytes: &mut Vec<u8>, name: &str) {
    bytes.push(u8::try_from(name.len()).expect("checked when it was given"));
    bytes.extend(name.as_bytes());
}

/// A place on flash.
pub fn put_place(bytes: &mut Vec<u8>, place: Place) {
    put_block(bytes, place.block);
    bytes.extend(place.iu.to_le_bytes());
}

/// An erase block.
pub fn put_block(bytes: &mut Vec<u8>, block: LogicalBlock) {
    bytes.extend(block.unit.0.to_le_bytes());
    bytes.extend(block.index.to_le_bytes());
}

/// Reads values one after another; `None` past the end.
#[derive(Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*front)
    }
    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }
    /// The next two.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    /// The next four.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    /// The next eight.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    /// See [`put_name`].
    pub fn name(&mut self) -> Option<String> {
        let len = usize::from(self.u8()?);
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        String::from_utf8(front.to_vec()).ok()
    }
    /// See [`put_block`].
    pub fn block(&mut self) -> Option<LogicalBlock> {
        Some(LogicalBlock { unit: UnitIndex(self.u16()?), index: self.u32()? })
    }
    /// See [`put_place`].
    pub fn place(&mut self) -> Option<Place> {
        Some(Place { block: self.block()?, iu: self.u32()? })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn batches_have_these_bytes() {
        let records = [
            Record::Create { file: 1, hint: 2, name: "a".to_owned() },
            Record::Extent { file: 1, first: 5, count: 3 },
            Record::Size { file: 1, bytes: 700 },
            Record::Rename { file: 1, name: "bc".to_owned() },
            Record::Remove { file: 1 },
        ];
        let mut bytes = Vec::new();
        records.iter().for_each(|record| record.encode(&mut bytes));
        let id = [1, 0, 0, 0, 0, 0, 0, 0];
        let golden = [
            &[2][..],
            &id,
            &[2, 1, b'a', 1],
            &id,
            &[5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 5],
            &id,
            &[188, 2, 0, 0, 0, 0, 0, 0, 4],
            &id,
            &[2, b'b', b'c', 3],
            &id,
        ];
        assert_eq!(bytes, golden.concat());
        assert_eq!(Record::decode_all(&bytes).unwrap(), records);
        for len in 1..bytes.len() {
            if let Some(found) = Record::decode_all(&bytes[..len]) {
                assert!(records.starts_with(&found), "cut at {len}");
            }
        }
        let header = Header {
            kind: Kind::Log,
            sequence: 0x0102,
            ius: 8,
            data_ius: 3,
            length_bytes: bytes.len() as u32,
            part: 0,
            parts: 0,
        };
        let first = header.encode(&bytes);
        assert_eq!(
            first[..24],
            [b'D', b'C', b'F', b'B', 1, 0, 1, 0, 2, 1, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0]
        );
        assert_eq!(Header::decode(&first).unwrap(), (header, &bytes[..]));
        for at in 0..IU_SIZE_BYTES {
            let mut wrong = first;
            wrong[at] ^= 4;
            assert_eq!(Header::decode(&wrong), None, "byte {at}");
        }
    }
}
