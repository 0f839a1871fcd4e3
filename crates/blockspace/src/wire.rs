//! The bytes that the two sides exchange. Little endian, reserved bytes are zero.
//!
//! | hello | type | meaning |
//! |---|---|---|
//! | 0 | 4 bytes | `DCBH` |
//! | 4 | u16 | version |
//! | 6 | u16 | length of the name, at most 64 |
//! | 8 | 64 bytes | name of the vSSD, UTF-8 |
//!
//! | welcome | type | meaning |
//! |---|---|---|
//! | 0 | 4 bytes | `DCBW` |
//! | 4 | u16 | version |
//! | 6 | u16 | status |
//! | 8 | u32 | pages of an erase block |
//! | 12 | u32 | bytes of a page |
//! | 16 | u32 | pages of a program unit |
//! | 20 | u32 | trailing program units of an open block that a power cut can destroy |
//! | 24 | u16 | independent units |
//! | 28 | u32 | entries of each ring, a power of two |
//! | 32 | u32 | slots of the data area, as many as entries or more |
//! | 36 | u32 | bytes of a slot, a multiple of 4096 |
//! | 40 | u16 | length of the message |
//! | 64 | 448 bytes | message for people, UTF-8 |
//!
//! | submission | type | meaning |
//! |---|---|---|
//! | 0 | u8 | 1 held, 2 keep, 3 allocate, 4 append, 5 read, 6 free, 7 sync, 8 unit |
//! | 1 | u8 | purpose (allocate); 1 with the last names (keep) |
//! | 2 | u16 | unit |
//! | 4 | u32 | erase block of the unit |
//! | 8 | u64 | token |
//! | 16 | u32 | first IU (read), first record (held) |
//! | 20 | u32 | IUs (append, read), records (held), names (keep) |
//! | 24 | u32 | place in the data area, a multiple of 8; no transfer is longer than a slot |
//!
//! | completion | type | meaning |
//! |---|---|---|
//! | 0 | u64 | token |
//! | 8 | u16 | status, see [`Status`] |
//! | 10 | u16 | unit |
//! | 12 | u32 | erase block: the new one (allocate), the first that cannot be kept (keep) |
//! | 16 | u32 | first IU (append), records (held), freed blocks (keep), free blocks (unit) |
//! | 20 | u32 | records in all (held), erase blocks in all (unit) |
//!
//! A held record has 24 bytes: u16 unit, u8 purpose, u8 reserved, u32 erase block, u32 pages written, u32 reserved, u64 sequence of
//! its allocation. A name has 8: u16 unit, u16 reserved, u32 erase block.
//!
//! A version is the whole protocol's: a server answers a version it does not speak with [`Status::Version`].

mod messages;

use diecut_vssd::{LogicalBlock, SpaceError, UnitIndex};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

pub use messages::{HELLO_SIZE_BYTES, Hello, Shape, WELCOME_SIZE_BYTES, Welcome};

/// Version of messages, rings and entries.
pub const VERSION: u16 = 1;
/// Length of [`Submission`].
pub const SUBMISSION_SIZE_BYTES: usize = size_of::<StoredSubmission>();
/// Length of [`Completion`].
pub const COMPLETION_SIZE_BYTES: usize = size_of::<StoredCompletion>();
/// Length of a [`HeldRecord`].
pub const HELD_SIZE_BYTES: usize = size_of::<StoredHeld>();
/// Length of a block's name in a list of blocks to keep.
pub const NAME_SIZE_BYTES: usize = size_of::<StoredName>();
const _: () = {
    assert!(SUBMISSION_SIZE_BYTES == 64 && COMPLETION_SIZE_BYTES == 32);
    assert!(HELD_SIZE_BYTES == 24 && NAME_SIZE_BYTES == 8);
};

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredSubmission {
    opcode: u8,
    flag: u8,
    unit: U16,
    index: U32,
    token: U64,
    first: U32,
    count: U32,
    data_offset: U32,
    reserved: [u8; 36],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredCompletion {
    token: U64,
    status: U16,
    unit: U16,
    index: U32,
    value: U32,
    total: U32,
    reserved: [u8; 8],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredHeld {
    unit: U16,
    purpose: u8,
    reserved: u8,
    index: U32,
    written_pages: U32,
    reserved_too: U32,
    allocation_sequence: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredName {
    unit: U16,
    reserved: U16,
    index: U32,
}

fn block_of(unit: U16, index: U32) -> LogicalBlock {
    LogicalBlock { unit: UnitIndex(unit.get()), index: index.get() }
}

/// How an operation or an attach ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Status {
    /// Done.
    Done = 0,
    /// No free erase block on this unit.
    NoFreeBlock = 1,
    /// The block is not held.
    NotAllocated = 2,
    /// The data cannot be read back.
    Uncorrectable = 3,
    /// Nothing was appended there.
    Erased = 4,
    /// The append failed; what the block held before still reads. It takes no more appends.
    AppendFailed = 5,
    /// The die under the unit does not answer.
    UnitOffline = 6,
    /// The vSSD takes no more writes.
    ReadOnly = 7,
    /// The device has no power.
    PowerLost = 8,
    /// An argument is out of range, or a reserved byte is not zero.
    Invalid = 9,
    /// The append does not fit into the rest of the block.
    BlockFull = 10,
    /// Blocks to keep must be named before anything is changed.
    NotNamed = 11,
    /// The block has appends under way.
    BlockBusy = 12,
    /// Attach: no vSSD of this name, or not one for this user.
    Refused = 13,
    /// Attach: another application holds the vSSD, or its last operations are under way.
    Held = 14,
    /// Attach: the server speaks another version.
    Version = 15,
    /// The device has no room for the block at present: the file system it lies on is full.
    NoRoom = 16,
}

impl Status {
    /// The status of a code, if there is one.
    pub fn from_code(code: u16) -> Option<Status> {
        use Status::*;
        let all = [
            Done,
            NoFreeBlock,
            NotAllocated,
            Uncorrectable,
            Erased,
            AppendFailed,
            UnitOffline,
            ReadOnly,
            PowerLost,
            Invalid,
            BlockFull,
            NotNamed,
            BlockBusy,
            Refused,
            Held,
            Version,
            NoRoom,
        ];
        all.get(usize::from(code)).copied()
    }

    /// What it means, for people.
    pub fn text(self) -> &'static str {
        match self {
            Status::Done => "done",
            Status::NoFreeBlock => "no free erase block on this unit",
            Status::NotAllocated => "the erase block is not allocated",
            Status::Uncorrectable => "the data cannot be read back",
            Status::Erased => "nothing was appended there",
            Status::AppendFailed => "the program failed: append to another erase block and free this one",
            Status::UnitOffline => "the die under this unit does not answer",
            Status::ReadOnly => "the vSSD is read-only: its reserve of good erase blocks is used up",
            Status::PowerLost => "the device has no power",
            Status::Invalid => "an argument is out of range",
            Status::BlockFull => "the append does not fit into the rest of the erase block",
            Status::NotNamed => "say first which erase blocks to keep",
            Status::BlockBusy => "the erase block has appends under way",
            Status::Refused => "there is no such vSSD for this user",
            Status::Held => "another application holds the vSSD",
            Status::NoRoom => "the device has no room at present: the file system it lies on is full",
            Status::Version => "the server speaks another version",
        }
    }
}

impl From<&SpaceError> for Status {
    fn from(error: &SpaceError) -> Status {
        match error {
            SpaceError::NoFreeBlock { .. } => Status::NoFreeBlock,
            SpaceError::NotAllocated { .. } => Status::NotAllocated,
            SpaceError::Uncorrectable { .. } | SpaceError::WrongContentMode { .. } => Status::Uncorrectable,
            SpaceError::Erased { .. } => Status::Erased,
            SpaceError::AppendFailed { .. } => Status::AppendFailed,
            SpaceError::UnitOffline { .. } => Status::UnitOffline,
            SpaceError::ReadOnly => Status::ReadOnly,
            SpaceError::NoRoom => Status::NoRoom,
            SpaceError::PowerLost => Status::PowerLost,
            SpaceError::NotErased { .. } | SpaceError::FlushFailed => {
                unreachable!("no entry asks for a flush, or for an erase of what was freed")
            }
        }
    }
}

/// What an entry asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// Lists held blocks from number `first` on into the data area, at most `count`.
    Held = 1,
    /// Names `count` blocks to keep, in the data area; `flag` 1: these were the last, all others are freed.
    Keep = 2,
    /// Takes an erase block of `block.unit` for the purpose in `flag`.
    Allocate = 3,
    /// Appends `count` IUs from the data area to `block`.
    Append = 4,
    /// Reads `count` IUs of `block` from `first` on into the data area.
    Read = 5,
    /// Gives `block` back.
    Free = 6,
    /// Waits until allocations and frees are durable.
    Sync = 7,
    /// Asks for figures of `block.unit`.
    Unit = 8,
}

impl Opcode {
    fn from_code(code: u8) -> Option<Opcode> {
        use Opcode::*;
        let all = [Held, Keep, Allocate, Append, Read, Free, Sync, Unit];
        code.checked_sub(1).and_then(|at| all.get(usize::from(at))).copied()
    }
}

/// An entry of the submission ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submission {
    /// What is asked for.
    pub opcode: Opcode,
    /// See [`Opcode`].
    pub flag: u8,
    /// The block; its unit alone where only that is meant.
    pub block: LogicalBlock,
    /// Comes back with the completion.
    pub token: u64,
    /// First IU or record.
    pub first: u32,
    /// IUs or records.
    pub count: u32,
    /// Where the data are or go: bytes from the start of the data area, a multiple of 8.
    pub data_offset: u32,
}

impl Submission {
    /// An entry without data.
    pub fn new(opcode: Opcode, block: LogicalBlock) -> Submission {
        Submission { opcode, flag: 0, block, token: 0, first: 0, count: 0, data_offset: 0 }
    }

    /// To bytes.
    pub fn encode(&self) -> [u8; SUBMISSION_SIZE_BYTES] {
        transmute!(StoredSubmission {
            opcode: self.opcode as u8,
            flag: self.flag,
            unit: self.block.unit.0.into(),
            index: self.block.index.into(),
            token: self.token.into(),
            first: self.first.into(),
            count: self.count.into(),
            data_offset: self.data_offset.into(),
            reserved: [0; 36],
        })
    }

    /// From bytes.
    ///
    /// # Errors
    /// The token of an entry with an unknown operation or reserved bytes that are not zero.
    pub fn decode(bytes: &[u8; SUBMISSION_SIZE_BYTES]) -> Result<Submission, u64> {
        let stored: &StoredSubmission = transmute_ref!(bytes);
        let token = stored.token.get();
        let opcode = Opcode::from_code(stored.opcode).ok_or(token)?;
        if stored.reserved.iter().any(|byte| *byte != 0) {
            return Err(token);
        }
        Ok(Submission {
            opcode,
            flag: stored.flag,
            block: block_of(stored.unit, stored.index),
            token,
            first: stored.first.get(),
            count: stored.count.get(),
            data_offset: stored.data_offset.get(),
        })
    }
}

/// An entry of the completion ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Token of the submission.
    pub token: u64,
    /// How it ended.
    pub status: Status,
    /// The block: the new one of an allocation, a named one that is not held.
    pub block: LogicalBlock,
    /// First IU of an append; records of a list; blocks freed by keep; free blocks of a unit.
    pub value: u32,
    /// Records that there are in all; erase blocks of a unit.
    pub total: u32,
}

impl Completion {
    /// An answer without figures.
    pub fn new(token: u64, status: Status) -> Completion {
        Completion { token, status, block: LogicalBlock::default(), value: 0, total: 0 }
    }

    /// To bytes.
    pub fn encode(&self) -> [u8; COMPLETION_SIZE_BYTES] {
        transmute!(StoredCompletion {
            token: self.token.into(),
            status: (self.status as u16).into(),
            unit: self.block.unit.0.into(),
            index: self.block.index.into(),
            value: self.value.into(),
            total: self.total.into(),
            reserved: [0; 8],
        })
    }

    /// From bytes; `None` with an unknown status.
    pub fn decode(bytes: &[u8; COMPLETION_SIZE_BYTES]) -> Option<Completion> {
        let stored: &StoredCompletion = transmute_ref!(bytes);
        Some(Completion {
            token: stored.token.get(),
            status: Status::from_code(stored.status.get())?,
            block: block_of(stored.unit, stored.index),
            value: stored.value.get(),
            total: stored.total.get(),
        })
    }
}

/// A held block in the answer to [`Opcode::Held`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldRecord {
    /// The block.
    pub block: LogicalBlock,
    /// What the application said it is for.
    pub purpose: u8,
    /// Pages that were appended.
    pub written_pages: u32,
    /// Rises with every allocation of the vSSD.
    pub allocation_sequence: u64,
}

impl HeldRecord {
    /// To bytes.
    pub fn encode(&self) -> [u8; HELD_SIZE_BYTES] {
        transmute!(StoredHeld {
            unit: self.block.unit.0.into(),
            purpose: self.purpose,
            reserved: 0,
            index: self.block.index.into(),
            written_pages: self.written_pages.into(),
            reserved_too: 0.into(),
            allocation_sequence: self.allocation_sequence.into(),
        })
    }

    /// From bytes.
    pub fn decode(bytes: &[u8; HELD_SIZE_BYTES]) -> HeldRecord {
        let stored: &StoredHeld = transmute_ref!(bytes);
        HeldRecord {
            block: block_of(stored.unit, stored.index),
            purpose: stored.purpose,
            written_pages: stored.written_pages.get(),
            allocation_sequence: stored.allocation_sequence.get(),
        }
    }
}

/// A block's name in a list of blocks to keep.
pub fn encode_name(block: LogicalBlock) -> [u8; NAME_SIZE_BYTES] {
    let (unit, index) = (block.unit.0.into(), block.index.into());
    transmute!(StoredName { unit, reserved: 0.into(), index })
}

/// From bytes; `None` if reserved bytes are not zero.
pub fn decode_name(bytes: &[u8; NAME_SIZE_BYTES]) -> Option<LogicalBlock> {
    let stored: &StoredName = transmute_ref!(bytes);
    (stored.reserved == 0).then(|| block_of(stored.unit, stored.index))
}

#[cfg(test)]
mod test {
    use super::*;

    const BLOCK: LogicalBlock = LogicalBlock { unit: UnitIndex(0x0201), index: 0x0403_0201 };

    #[test]
    fn entries_have_these_bytes() {
        let submission = Submission {
            opcode: Opcode::Append,
            flag: 9,
            block: BLOCK,
            token: 0x1122_3344_5566_7788,
            first: 5,
            count: 6,
            data_offset: 0x1000,
        };
        let mut golden = [0; 64];
        golden[..28].copy_from_slice(&[
            4, 9, 1, 2, 1, 2, 3, 4, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 5, 0, 0, 0, 6, 0, 0, 0,
            0, 0x10, 0, 0,
        ]);
        assert_eq!(submission.encode(), golden);
        assert_eq!(Submission::decode(&golden), Ok(submission));
        golden[63] = 1;
        assert_eq!(Submission::decode(&golden), Err(submission.token), "reserved bytes");
        golden[63] = 0;
        for opcode in [0, 9, 255] {
            golden[0] = opcode;
            assert_eq!(Submission::decode(&golden), Err(submission.token), "operation {opcode}");
        }
        let completion = Completion { token: 7, status: Status::BlockFull, block: BLOCK, value: 3, total: 4 };
        let mut golden = [0; 32];
        golden[..24]
            .copy_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0, 10, 0, 1, 2, 1, 2, 3, 4, 3, 0, 0, 0, 4, 0, 0, 0]);
        assert_eq!(completion.encode(), golden);
        assert_eq!(Completion::decode(&golden), Some(completion));
        golden[9] = 1;
        assert_eq!(Completion::decode(&golden), None, "unknown status");
    }

    #[test]
    fn messages_have_these_bytes() {
        let hello = Hello { version: 1, vssd: "db".to_owned() };
        let bytes = hello.encode().unwrap();
        assert_eq!(bytes[..12], [b'D', b'C', b'B', b'H', 1, 0, 2, 0, b'd', b'b', 0, 0]);
        assert_eq!(Hello::decode(&bytes), Some(hello));
        let mut wrong = bytes;
        wrong[6] = 65;
        assert_eq!(Hello::decode(&wrong), None, "name longer than its place");
        wrong = bytes;
        wrong[8] = 0xff;
        assert_eq!(Hello::decode(&wrong), None, "name is no text");
        assert_eq!(Hello { version: 1, vssd: "x".repeat(65) }.encode(), None);
        let shape =
            Shape { pages: 256, page_size_bytes: 16384, program_unit_pages: 4, unsafe_units: 1, units: 8 };
        let welcome = Welcome {
            status: Status::Held,
            shape,
            entries: 64,
            slots: 64,
            slot_size_bytes: 65536,
            message: "wait".to_owned(),
        };
        let bytes = welcome.encode();
        assert_eq!(bytes[..8], [b'D', b'C', b'B', b'W', 1, 0, 14, 0]);
        assert_eq!(bytes[24..42], [8, 0, 0, 0, 64, 0, 0, 0, 64, 0, 0, 0, 0, 0, 1, 0, 4, 0]);
        assert_eq!(Welcome::decode(&bytes), Some(welcome.clone()));
        let long = Welcome { message: "\u{e9}".repeat(400), ..welcome };
        assert_eq!(Welcome::decode(&long.encode()).unwrap().message.len(), 448);
        let record = HeldRecord { block: BLOCK, purpose: 3, written_pages: 12, allocation_sequence: 1 << 40 };
        assert_eq!(HeldRecord::decode(&record.encode()), record);
        assert_eq!(decode_name(&encode_name(BLOCK)), Some(BLOCK));
        assert_eq!(decode_name(&[0, 0, 1, 0, 0, 0, 0, 0]), None);
        for code in 0..=16 {
            assert_eq!(Status::from_code(code).unwrap() as u16, code);
        }
        assert_eq!(Status::from_code(17), None);
    }
}
