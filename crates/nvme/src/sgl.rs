use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// SGL descriptor, 16 bytes (Base 2.0 section 4.1.2, figure 104 and following).
///
/// | offset | size | field                                    |
/// |-------:|-----:|------------------------------------------|
/// |      0 |    8 | address, or offset in the capsule        |
/// |      8 |    4 | length in bytes                          |
/// |     12 |    3 | reserved                                 |
/// |     15 |    1 | identifier: type in 7:4, sub type in 3:0 |
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SglDescriptor {
    /// Address (host memory; nothing to us) or offset from the end of the SQE in the capsule.
    pub address: U64,
    /// Length of the data in bytes.
    pub length: U32,
    #[doc(hidden)]
    pub reserved: [u8; 3],
    /// Type and sub type.
    pub identifier: u8,
}

const _: () = assert!(size_of::<SglDescriptor>() == 16);

/// The descriptors that the TCP transport allows (TCP 1.0 section 3.3.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SglKind {
    /// Data block, offset form (type 0h, sub type 1h): data is in the capsule, at `offset` after the SQE.
    InCapsule {
        /// Bytes after the SQE (ICDOFF, zero for us, is counted by the host).
        offset: u64,
        /// Bytes of data.
        length_bytes: u32,
    },
    /// Transport data block (type 5h, sub type Ah): data travels in data PDUs.
    Transport {
        /// Bytes of data.
        length_bytes: u32,
    },
    /// Anything else, for example host addresses; the transport cannot reach them.
    Other(u8),
}

const IN_CAPSULE: u8 = 0x01;
const TRANSPORT: u8 = 0x5A;

impl SglDescriptor {
    /// Data of the capsule that follow the SQE at once.
    pub fn in_capsule(length_bytes: u32) -> SglDescriptor {
        SglDescriptor { length: length_bytes.into(), identifier: IN_CAPSULE, ..SglDescriptor::default() }
    }
    /// Data that travel in data PDUs (also the form for commands without data, with length 0).
    pub fn transport(length_bytes: u32) -> SglDescriptor {
        SglDescriptor { length: length_bytes.into(), identifier: TRANSPORT, ..SglDescriptor::default() }
    }
    /// What it says.
    #[inline]
    pub fn kind(&self) -> SglKind {
        match self.identifier {
            IN_CAPSULE => SglKind::InCapsule { offset: self.address.get(), length_bytes: self.length.get() },
            TRANSPORT => SglKind::Transport { length_bytes: self.length.get() },
            other => SglKind::Other(other),
        }
    }
}
