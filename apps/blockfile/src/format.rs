//! The bytes on erase blocks; docs/format/files.md has the same tables. Little endian, reserved bytes are zero.
//!
//! A batch is one append of whole program units: a header of one IU, the data, filling. A reader that finds a header it cannot
//! make sense of, or data that cannot be read, takes the block to end there.

use crate::inode::{Attributes, InodeKind, Name, Time};
use crate::map::Place;
pub use crate::types::NAME_MAX_BYTES;
use diecut_blockspace::{LogicalBlock, UnitIndex};
use diecut_units::{IU_SIZE_BYTES, checksum};

/// Version of batches and checkpoints.
pub const VERSION: u16 = 2;
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

    /// The version of a batch, of this program or another one; `None` for what is none.
    pub fn version_of(bytes: &[u8; IU_SIZE_BYTES]) -> Option<u16> {
        let sum = u32::from_le_bytes(bytes[32..36].try_into().expect("4 bytes"));
        let mut unsummed = *bytes;
        unsummed[32..36].fill(0);
        let is_batch = bytes[..4] == MAGIC && sum == checksum(&unsummed);
        is_batch.then(|| u16::from_le_bytes([bytes[4], bytes[5]]))
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
        let is_sound = version == VERSION
            && Header::version_of(bytes).is_some()
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
    /// A new inode without a name.
    Create { file: u64, kind: InodeKind, hint: u8, attributes: Attributes },
    /// More of the path of a symlink.
    Target { file: u64, bytes: Vec<u8> },
    /// An inode gets a name more, that nobody has.
    Link { folder: u64, name: Name, file: u64 },
    /// A name is no more; nor is what it stood for, if that was its last one.
    Unlink { folder: u64, name: Name },
    /// A name becomes another one; whoever had that loses it, or has the first one now.
    Rename { folder: u64, name: Name, to_folder: u64, to_name: Name, is_exchange: bool },
    /// A file has this many bytes; what was beyond is no more.
    Size { file: u64, bytes: u64 },
    /// An inode has these from now on.
    Attributes { file: u64, attributes: Attributes },
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
            Record::Create { file, kind, hint, attributes } => {
                put(2, file);
                bytes.extend([*kind as u8, *hint]);
                put_attributes(bytes, attributes);
            }
            Record::Target { file, bytes: part } => {
                put(3, file);
                put_bytes(bytes, part);
            }
            Record::Link { folder, name, file } => {
                put(4, folder);
                put_name(bytes, name);
                bytes.extend(file.to_le_bytes());
            }
            Record::Unlink { folder, name } => {
                put(5, folder);
                put_name(bytes, name);
            }
            Record::Rename { folder, name, to_folder, to_name, is_exchange } => {
                put(6, folder);
                put_name(bytes, name);
                bytes.extend(to_folder.to_le_bytes());
                put_name(bytes, to_name);
                bytes.push(u8::from(*is_exchange));
            }
            Record::Size { file, bytes: size } => {
                put(7, file);
                bytes.extend(size.to_le_bytes());
            }
            Record::Attributes { file, attributes } => {
                put(8, file);
                put_attributes(bytes, attributes);
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
                2 => Record::Create {
                    file,
                    kind: InodeKind::decode(reader.u8()?)?,
                    hint: reader.u8()?,
                    attributes: reader.attributes()?,
                },
                3 => Record::Target { file, bytes: reader.bytes()? },
                4 => Record::Link { folder: file, name: reader.name()?, file: reader.u64()? },
                5 => Record::Unlink { folder: file, name: reader.name()? },
                6 => Record::Rename {
                    folder: file,
                    name: reader.name()?,
                    to_folder: reader.u64()?,
                    to_name: reader.name()?,
                    is_exchange: match reader.u8()? {
                        0 => false,
                        1 => true,
                        _ => return None,
                    },
                },
                7 => Record::Size { file, bytes: reader.u64()? },
                8 => Record::Attributes { file, attributes: reader.attributes()? },
                _ => return None,
            });
        }
        Some(records)
    }
}

/// A name with its length before it.
pub fn put_name(bytes: &mut Vec<u8>, name: &Name) {
    bytes.push(u8::try_from(name.bytes().len()).expect("names are that short"));
    bytes.extend(name.bytes());
}

/// Bytes with their number before them.
///
/// # Panics
/// If they are 64 KiB or more: what is put here is shorter.
pub fn put_bytes(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend(u16::try_from(part.len()).expect("a path of less than 64 KiB").to_le_bytes());
    bytes.extend(part);
}

/// Attributes of an inode.
pub fn put_attributes(bytes: &mut Vec<u8>, attributes: &Attributes) {
    for word in [attributes.mode, attributes.uid, attributes.gid, attributes.device] {
        bytes.extend(word.to_le_bytes());
    }
    for time in [attributes.accessed, attributes.modified, attributes.changed] {
        bytes.extend(time.seconds.to_le_bytes());
        bytes.extend(time.nanoseconds.to_le_bytes());
    }
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
    fn some(&mut self, len: usize) -> Option<&[u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }
    /// See [`put_name`].
    pub fn name(&mut self) -> Option<Name> {
        let len = usize::from(self.u8()?);
        Name::new(self.some(len)?).ok()
    }
    /// See [`put_bytes`].
    pub fn bytes(&mut self) -> Option<Vec<u8>> {
        let len = usize::from(self.u16()?);
        Some(self.some(len)?.to_vec())
    }
    fn time(&mut self) -> Option<Time> {
        Some(Time { seconds: self.u64()?.cast_signed(), nanoseconds: self.u32()? })
    }
    /// See [`put_attributes`].
    pub fn attributes(&mut self) -> Option<Attributes> {
        Some(Attributes {
            mode: self.u32()?,
            uid: self.u32()?,
            gid: self.u32()?,
            device: self.u32()?,
            accessed: self.time()?,
            modified: self.time()?,
            changed: self.time()?,
        })
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
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        let time = |seconds| Time { seconds, nanoseconds: 9 };
        let attributes = Attributes {
            mode: 0o755,
            uid: 2,
            gid: 3,
            device: 4,
            accessed: time(5),
            modified: time(-1),
            changed: time(7),
        };
        let records = [
            Record::Create { file: 1, kind: InodeKind::Symlink, hint: 2, attributes },
            Record::Target { file: 1, bytes: b"/t".to_vec() },
            Record::Link { folder: 1, name: name("a"), file: 1 },
            Record::Extent { file: 1, first: 5, count: 3 },
            Record::Size { file: 1, bytes: 700 },
            Record::Rename {
                folder: 1,
                name: name("a"),
                to_folder: 1,
                to_name: name("bc"),
                is_exchange: true,
            },
            Record::Attributes { file: 1, attributes },
            Record::Unlink { folder: 1, name: name("bc") },
        ];
        let mut bytes = Vec::new();
        records.iter().for_each(|record| record.encode(&mut bytes));
        let id = [1, 0, 0, 0, 0, 0, 0, 0];
        let words = [0xed, 1, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0];
        let times = [
            [5, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0],
            [255, 255, 255, 255, 255, 255, 255, 255, 9, 0, 0, 0],
            [7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0],
        ]
        .concat();
        let golden = [
            &[2][..],
            &id,
            &[3, 2],
            &words,
            &times,
            &[3],
            &id,
            &[2, 0, b'/', b't', 4],
            &id,
            &[1, b'a'],
            &id,
            &[1],
            &id,
            &[5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 7],
            &id,
            &[188, 2, 0, 0, 0, 0, 0, 0, 6],
            &id,
            &[1, b'a'],
            &id,
            &[2, b'b', b'c', 1, 8],
            &id,
            &words,
            &times,
            &[5],
            &id,
            &[2, b'b', b'c'],
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
            [b'D', b'C', b'F', b'B', 2, 0, 1, 0, 2, 1, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0]
        );
        assert_eq!(Header::decode(&first).unwrap(), (header, &bytes[..]));
        for at in 0..IU_SIZE_BYTES {
            let mut wrong = first;
            wrong[at] ^= 4;
            assert_eq!(Header::decode(&wrong), None, "byte {at}");
        }
    }
}
