//! The bytes that the two sides exchange; docs/format/erase-block-rings.md has the same tables. Little endian, reserved bytes are zero.
//!
//! A version is the whole protocol's: a server answers a version it does not speak with [`Status::Version`].

use diecut_vssd::{LogicalBlock, SpaceError, UnitIndex};

/// Version of messages, rings and entries.
pub const VERSION: u16 = 1;
/// Length of [`Hello`].
pub const HELLO_SIZE_BYTES: usize = 128;
/// Length of [`Welcome`].
pub const WELCOME_SIZE_BYTES: usize = 512;
/// Length of [`Submission`].
pub const SUBMISSION_SIZE_BYTES: usize = 64;
/// Length of [`Completion`].
pub const COMPLETION_SIZE_BYTES: usize = 32;
/// Length of a [`HeldRecord`].
pub const HELD_SIZE_BYTES: usize = 24;
/// Length of a block's name in a list of blocks to keep.
pub const NAME_SIZE_BYTES: usize = 8;

const HELLO_MAGIC: [u8; 4] = *b"DCBH";
const WELCOME_MAGIC: [u8; 4] = *b"DCBW";
const VSSD_NAME_MAX_BYTES: usize = 64;
const MESSAGE_OFFSET: usize = 64;
const MESSAGE_MAX_BYTES: usize = WELCOME_SIZE_BYTES - MESSAGE_OFFSET;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
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
        let mut bytes = [0; SUBMISSION_SIZE_BYTES];
        bytes[0] = self.opcode as u8;
        bytes[1] = self.flag;
        put(&mut bytes, 2, &self.block.unit.0.to_le_bytes());
        put(&mut bytes, 4, &self.block.index.to_le_bytes());
        put(&mut bytes, 8, &self.token.to_le_bytes());
        put(&mut bytes, 16, &self.first.to_le_bytes());
        put(&mut bytes, 20, &self.count.to_le_bytes());
        put(&mut bytes, 24, &self.data_offset.to_le_bytes());
        bytes
    }

    /// From bytes.
    ///
    /// # Errors
    /// The token of an entry with an unknown operation or reserved bytes that are not zero.
    pub fn decode(bytes: &[u8; SUBMISSION_SIZE_BYTES]) -> Result<Submission, u64> {
        let token = u64_at(bytes, 8);
        let opcode = Opcode::from_code(bytes[0]).ok_or(token)?;
        if bytes[28..].iter().any(|byte| *byte != 0) {
            return Err(token);
        }
        let block = LogicalBlock { unit: UnitIndex(u16_at(bytes, 2)), index: u32_at(bytes, 4) };
        let (first, count) = (u32_at(bytes, 16), u32_at(bytes, 20));
        Ok(Submission { opcode, flag: bytes[1], block, token, first, count, data_offset: u32_at(bytes, 24) })
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
        let mut bytes = [0; COMPLETION_SIZE_BYTES];
        put(&mut bytes, 0, &self.token.to_le_bytes());
        put(&mut bytes, 8, &(self.status as u16).to_le_bytes());
        put(&mut bytes, 10, &self.block.unit.0.to_le_bytes());
        put(&mut bytes, 12, &self.block.index.to_le_bytes());
        put(&mut bytes, 16, &self.value.to_le_bytes());
        put(&mut bytes, 20, &self.total.to_le_bytes());
        bytes
    }

    /// From bytes; `None` with an unknown status.
    pub fn decode(bytes: &[u8; COMPLETION_SIZE_BYTES]) -> Option<Completion> {
        Some(Completion {
            token: u64_at(bytes, 0),
            status: Status::from_code(u16_at(bytes, 8))?,
            block: LogicalBlock { unit: UnitIndex(u16_at(bytes, 10)), index: u32_at(bytes, 12) },
            value: u32_at(bytes, 16),
            total: u32_at(bytes, 20),
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
        let mut bytes = [0; HELD_SIZE_BYTES];
        put(&mut bytes, 0, &self.block.unit.0.to_le_bytes());
        bytes[2] = self.purpose;
        put(&mut bytes, 4, &self.block.index.to_le_bytes());
        put(&mut bytes, 8, &self.written_pages.to_le_bytes());
        put(&mut bytes, 16, &self.allocation_sequence.to_le_bytes());
        bytes
    }

    /// From bytes.
    pub fn decode(bytes: &[u8; HELD_SIZE_BYTES]) -> HeldRecord {
        HeldRecord {
            block: LogicalBlock { unit: UnitIndex(u16_at(bytes, 0)), index: u32_at(bytes, 4) },
            purpose: bytes[2],
            written_pages: u32_at(bytes, 8),
            allocation_sequence: u64_at(bytes, 16),
        }
    }
}

/// A block's name in a list of blocks to keep.
pub fn encode_name(block: LogicalBlock) -> [u8; NAME_SIZE_BYTES] {
    let mut bytes = [0; NAME_SIZE_BYTES];
    put(&mut bytes, 0, &block.unit.0.to_le_bytes());
    put(&mut bytes, 4, &block.index.to_le_bytes());
    bytes
}

/// From bytes; `None` if reserved bytes are not zero.
pub fn decode_name(bytes: &[u8; NAME_SIZE_BYTES]) -> Option<LogicalBlock> {
    (u16_at(bytes, 2) == 0)
        .then(|| LogicalBlock { unit: UnitIndex(u16_at(bytes, 0)), index: u32_at(bytes, 4) })
}

/// First message on the socket, of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Version the application speaks.
    pub version: u16,
    /// Name of the vSSD.
    pub vssd: String,
}

impl Hello {
    /// To bytes; `None` if the name is too long for one of a vSSD.
    pub fn encode(&self) -> Option<[u8; HELLO_SIZE_BYTES]> {
        let name = self.vssd.as_bytes();
        if name.len() > VSSD_NAME_MAX_BYTES {
            return None;
        }
        let mut bytes = [0; HELLO_SIZE_BYTES];
        put(&mut bytes, 0, &HELLO_MAGIC);
        put(&mut bytes, 4, &self.version.to_le_bytes());
        put(&mut bytes, 6, &(name.len() as u16).to_le_bytes());
        put(&mut bytes, 8, name);
        Some(bytes)
    }

    /// From bytes; `None` for what is no hello.
    pub fn decode(bytes: &[u8; HELLO_SIZE_BYTES]) -> Option<Hello> {
        let len = usize::from(u16_at(bytes, 6));
        if bytes[..4] != HELLO_MAGIC || len > VSSD_NAME_MAX_BYTES {
            return None;
        }
        let vssd = std::str::from_utf8(&bytes[8..8 + len]).ok()?.to_owned();
        Some(Hello { version: u16_at(bytes, 4), vssd })
    }
}

/// Shape of a vSSD's erase blocks, as applications are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Pages of an erase block.
    pub pages: u32,
    /// Bytes of a page.
    pub page_size_bytes: u32,
    /// Pages of a program unit; appends are whole units.
    pub program_unit_pages: u32,
    /// How many trailing units of an open block a power cut can destroy.
    pub unsafe_units: u32,
    /// Independent units.
    pub units: u16,
}

impl Shape {
    /// Bytes of an erase block.
    pub fn block_size_bytes(&self) -> u64 {
        u64::from(self.pages) * u64::from(self.page_size_bytes)
    }
    /// Bytes of a program unit.
    pub fn unit_of_append_bytes(&self) -> u32 {
        self.program_unit_pages * self.page_size_bytes
    }
}

/// The server's answer on the socket; with [`Status::Done`] the shared memory and the doorbell (an eventfd) come along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Whether the application is attached.
    pub status: Status,
    /// Of the vSSD.
    pub shape: Shape,
    /// Entries of each ring.
    pub entries: u32,
    /// Slots of the data area.
    pub slots: u32,
    /// Bytes of each.
    pub slot_size_bytes: u32,
    /// Why not, and what to do.
    pub message: String,
}

impl Welcome {
    /// To bytes. A message that is too long is cut.
    pub fn encode(&self) -> [u8; WELCOME_SIZE_BYTES] {
        let mut bytes = [0; WELCOME_SIZE_BYTES];
        let mut len = self.message.len().min(MESSAGE_MAX_BYTES);
        while !self.message.is_char_boundary(len) {
            len -= 1;
        }
        put(&mut bytes, 0, &WELCOME_MAGIC);
        put(&mut bytes, 4, &VERSION.to_le_bytes());
        put(&mut bytes, 6, &(self.status as u16).to_le_bytes());
        put(&mut bytes, 8, &self.shape.pages.to_le_bytes());
        put(&mut bytes, 12, &self.shape.page_size_bytes.to_le_bytes());
        put(&mut bytes, 16, &self.shape.program_unit_pages.to_le_bytes());
        put(&mut bytes, 20, &self.shape.unsafe_units.to_le_bytes());
        put(&mut bytes, 24, &self.shape.units.to_le_bytes());
        put(&mut bytes, 28, &self.entries.to_le_bytes());
        put(&mut bytes, 32, &self.slots.to_le_bytes());
        put(&mut bytes, 36, &self.slot_size_bytes.to_le_bytes());
        put(&mut bytes, 40, &(len as u16).to_le_bytes());
        put(&mut bytes, MESSAGE_OFFSET, &self.message.as_bytes()[..len]);
        bytes
    }

    /// From bytes; `None` for what is no welcome of this version.
    pub fn decode(bytes: &[u8; WELCOME_SIZE_BYTES]) -> Option<Welcome> {
        let len = usize::from(u16_at(bytes, 40));
        if bytes[..4] != WELCOME_MAGIC || u16_at(bytes, 4) != VERSION || len > MESSAGE_MAX_BYTES {
            return None;
        }
        let message = std::str::from_utf8(&bytes[MESSAGE_OFFSET..MESSAGE_OFFSET + len]).ok()?;
        Some(Welcome {
            status: Status::from_code(u16_at(bytes, 6))?,
            shape: Shape {
                pages: u32_at(bytes, 8),
                page_size_bytes: u32_at(bytes, 12),
                program_unit_pages: u32_at(bytes, 16),
                unsafe_units: u32_at(bytes, 20),
                units: u16_at(bytes, 24),
            },
            entries: u32_at(bytes, 28),
            slots: u32_at(bytes, 32),
            slot_size_bytes: u32_at(bytes, 36),
            message: message.to_owned(),
        })
    }
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
