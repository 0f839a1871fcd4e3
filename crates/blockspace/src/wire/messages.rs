//! The two messages on the socket.

use super::{Status, VERSION};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

/// Length of [`Hello`].
pub const HELLO_SIZE_BYTES: usize = size_of::<StoredHello>();
/// Length of [`Welcome`].
pub const WELCOME_SIZE_BYTES: usize = size_of::<StoredWelcome>();
const _: () = assert!(HELLO_SIZE_BYTES == 128 && WELCOME_SIZE_BYTES == 512);

const HELLO_MAGIC: [u8; 4] = *b"DCBH";
const WELCOME_MAGIC: [u8; 4] = *b"DCBW";
const VSSD_NAME_MAX_BYTES: usize = 64;
const MESSAGE_MAX_BYTES: usize = 448;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredHello {
    magic: [u8; 4],
    version: U16,
    name_length: U16,
    name: [u8; VSSD_NAME_MAX_BYTES],
    reserved: [u8; 56],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredWelcome {
    magic: [u8; 4],
    version: U16,
    status: U16,
    shape: StoredShape,
    layout: StoredLayout,
    message_length: U16,
    reserved: [u8; 22],
    message: [u8; MESSAGE_MAX_BYTES],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredShape {
    pages: U32,
    page_size_bytes: U32,
    program_unit_pages: U32,
    unsafe_units: U32,
    units: U16,
    reserved: U16,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredLayout {
    entries: U32,
    slots: U32,
    slot_size_bytes: U32,
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
        let mut stored = StoredHello {
            magic: HELLO_MAGIC,
            version: self.version.into(),
            name_length: (name.len() as u16).into(),
            name: [0; VSSD_NAME_MAX_BYTES],
            reserved: [0; 56],
        };
        stored.name[..name.len()].copy_from_slice(name);
        Some(transmute!(stored))
    }

    /// From bytes; `None` for what is no hello.
    pub fn decode(bytes: &[u8; HELLO_SIZE_BYTES]) -> Option<Hello> {
        let stored: &StoredHello = transmute_ref!(bytes);
        if stored.magic != HELLO_MAGIC {
            return None;
        }
        let name = stored.name.get(..stored.name_length.get().into())?;
        let vssd = std::str::from_utf8(name).ok()?.to_owned();
        Some(Hello { version: stored.version.get(), vssd })
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
        let mut len = self.message.len().min(MESSAGE_MAX_BYTES);
        while !self.message.is_char_boundary(len) {
            len -= 1;
        }
        let mut stored = StoredWelcome {
            magic: WELCOME_MAGIC,
            version: VERSION.into(),
            status: (self.status as u16).into(),
            shape: StoredShape {
                pages: self.shape.pages.into(),
                page_size_bytes: self.shape.page_size_bytes.into(),
                program_unit_pages: self.shape.program_unit_pages.into(),
                unsafe_units: self.shape.unsafe_units.into(),
                units: self.shape.units.into(),
                reserved: 0.into(),
            },
            layout: StoredLayout {
                entries: self.entries.into(),
                slots: self.slots.into(),
                slot_size_bytes: self.slot_size_bytes.into(),
            },
            message_length: (len as u16).into(),
            reserved: [0; 22],
            message: [0; MESSAGE_MAX_BYTES],
        };
        stored.message[..len].copy_from_slice(&self.message.as_bytes()[..len]);
        transmute!(stored)
    }

    /// From bytes; `None` for what is no welcome of this version.
    pub fn decode(bytes: &[u8; WELCOME_SIZE_BYTES]) -> Option<Welcome> {
        let stored: &StoredWelcome = transmute_ref!(bytes);
        if stored.magic != WELCOME_MAGIC || stored.version != VERSION {
            return None;
        }
        let message = std::str::from_utf8(stored.message.get(..stored.message_length.get().into())?).ok()?;
        Some(Welcome {
            status: Status::from_code(stored.status.get())?,
            shape: Shape {
                pages: stored.shape.pages.get(),
                page_size_bytes: stored.shape.page_size_bytes.get(),
                program_unit_pages: stored.shape.program_unit_pages.get(),
                unsafe_units: stored.shape.unsafe_units.get(),
                units: stored.shape.units.get(),
            },
            entries: stored.layout.entries.get(),
            slots: stored.layout.slots.get(),
            slot_size_bytes: stored.layout.slot_size_bytes.get(),
            message: message.to_owned(),
        })
    }
}
