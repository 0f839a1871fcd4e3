//! The bytes on erase blocks. Little endian, reserved bytes are zero.
//!
//! | batch | type | meaning |
//! |---|---|---|
//! | 0 | 4 bytes | `DCFB` |
//! | 4 | u16 | version, 2; a store with others is refused and kept |
//! | 6 | u16 | 1 log, 2 filling, 3 part of a checkpoint |
//! | 8 | u64 | number of the batch; of the checkpoint; of filling 0 |
//! | 16 | u32 | IUs of the batch in all |
//! | 20 | u32 | IUs of data |
//! | 24 | u32 | bytes of records; bytes of this part of the checkpoint |
//! | 28 | u16 | which part, of a checkpoint |
//! | 30 | u16 | of how many |
//! | 32 | u32 | CRC-32C |
//! | 36 | u32 | CRC-32C of the data, 1 where that is 0; 0 of filling, and of programs that did not say it |
//! | 40 | | records of the log |
//!
//! A record is a byte and a u64 number of an inode, then what is listed. A name is a byte with its length, 1 to 255, and its bytes.
//! Attributes have 52 bytes: u32 permissions, u32 uid, u32 gid, u32 device number, and the times of access, content and change, each
//! i64 seconds, u32 nanoseconds. Records with names have no fixed layout: they are read one value after the other.
//!
//! | record | of | then |
//! |---|---|---|
//! | 1 extent | file | u64 first IU in the file, u32 IUs: the next ones of the data |
//! | 2 create | new inode | u8 kind (1 file, 2 folder, 3 symlink, 4 FIFO, 5 socket, 6 character device, 7 block device), u8 hint, attributes |
//! | 3 target | symlink | u16 bytes, these: more of its path |
//! | 4 link | folder | name, u64 inode that it stands for |
//! | 5 unlink | folder | name; an inode that loses its last name is no more |
//! | 6 rename | folder | name, u64 folder, name in that one, u8: 1 if both exchange their names, 0 if a second one is replaced |
//! | 7 size | file | u64 bytes; what the file has beyond is no more |
//! | 8 attributes | inode | attributes |
//!
//! A batch is one append of whole program units: a header of one IU, the data, filling. A batch of kind filling may have data of another kind:
//! what the device copied for the cleaner, from its second program unit on, which only checkpoints name. A reader that finds a header it cannot
//! make sense of, or data that cannot be read, takes the block to end there.

pub use crate::batch::{Header, Kind, RECORDS_MAX_BYTES, VERSION};
use crate::inode::{Attributes, InodeKind, Name, Time};
use crate::map::Place;
pub use crate::types::NAME_MAX_BYTES;
use diecut_blockspace::{LogicalBlock, UnitIndex};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredAttributes {
    mode: U32,
    uid: U32,
    gid: U32,
    device: U32,
    accessed: StoredTime,
    modified: StoredTime,
    changed: StoredTime,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredTime {
    seconds: I64,
    nanoseconds: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredBlock {
    unit: U16,
    index: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredPlace {
    block: StoredBlock,
    iu: U32,
}

const _: () = assert!(size_of::<StoredAttributes>() == 52 && size_of::<StoredPlace>() == 10);

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
    let time = |time: Time| StoredTime { seconds: time.seconds.into(), nanoseconds: time.nanoseconds.into() };
    let stored = StoredAttributes {
        mode: attributes.mode.into(),
        uid: attributes.uid.into(),
        gid: attributes.gid.into(),
        device: attributes.device.into(),
        accessed: time(attributes.accessed),
        modified: time(attributes.modified),
        changed: time(attributes.changed),
    };
    bytes.extend(stored.as_bytes());
}

/// A place on flash.
pub fn put_place(bytes: &mut Vec<u8>, place: Place) {
    put_block(bytes, place.block);
    bytes.extend(U32::from(place.iu).as_bytes());
}

/// An erase block.
pub fn put_block(bytes: &mut Vec<u8>, block: LogicalBlock) {
    let (unit, index) = (block.unit.0.into(), block.index.into());
    bytes.extend(StoredBlock { unit, index }.as_bytes());
}

/// Reads values one after another; `None` past the end.
#[derive(Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl Reader<'_> {
    fn take<T: FromBytes>(&mut self) -> Option<T> {
        let (front, rest) = T::read_from_prefix(self.0).ok()?;
        self.0 = rest;
        Some(front)
    }
    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.take()
    }
    /// The next two.
    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(U16::get)
    }
    /// The next four.
    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(U32::get)
    }
    /// The next eight.
    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(U64::get)
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
    /// See [`put_attributes`].
    pub fn attributes(&mut self) -> Option<Attributes> {
        let stored: StoredAttributes = self.take()?;
        let time =
            |time: StoredTime| Time { seconds: time.seconds.get(), nanoseconds: time.nanoseconds.get() };
        Some(Attributes {
            mode: stored.mode.get(),
            uid: stored.uid.get(),
            gid: stored.gid.get(),
            device: stored.device.get(),
            accessed: time(stored.accessed),
            modified: time(stored.modified),
            changed: time(stored.changed),
        })
    }
    /// See [`put_block`].
    pub fn block(&mut self) -> Option<LogicalBlock> {
        self.take().map(block_of)
    }
    /// See [`put_place`].
    pub fn place(&mut self) -> Option<Place> {
        self.take().map(|place: StoredPlace| Place { block: block_of(place.block), iu: place.iu.get() })
    }
}

fn block_of(stored: StoredBlock) -> LogicalBlock {
    LogicalBlock { unit: UnitIndex(stored.unit.get()), index: stored.index.get() }
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_units::IU_SIZE_BYTES;

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
            data_check: 0,
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
