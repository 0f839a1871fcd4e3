//! Identify Namespace of zones.

use crate::identify::IDENTIFY_SIZE_BYTES;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An LBA format's extension (ZNS 1.1 figure 50).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LbaFormatExtension {
    /// ZSZE: logical blocks from the start of a zone to that of the next one.
    pub zone_size: U64,
    /// ZDES: bytes of a descriptor extension, in units of 64.
    pub extension_size_64: u8,
    reserved: [u8; 7],
}

impl LbaFormatExtension {
    /// From both fields.
    pub fn new(zone_size: u64, extension_size_64: u8) -> LbaFormatExtension {
        LbaFormatExtension { zone_size: zone_size.into(), extension_size_64, reserved: [0; 7] }
    }
}

/// OZCS bit 0: reads may cross borders of zones.
pub const OZCS_READ_ACROSS: u16 = 1 << 0;
/// OZCS bit 1: random write areas are supported.
pub const OZCS_RANDOM_AREA: u16 = 1 << 1;
/// ZRWACAP bit 0: a random write area can be flushed by a command.
pub const ZRWACAP_EXPLICIT_FLUSH: u8 = 1 << 0;
/// AEN configuration and OAES bit 27: zone descriptor changed notices.
pub const EVENT_ZONE_DESCRIPTOR_CHANGED: u32 = 1 << 27;

/// Identify Namespace of this command set, CNS 05h (ZNS 1.1 figure 49).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are the specification's; offsets are checked below")]
pub struct IdentifyZonedNamespace {
    pub zoc: U16,
    pub ozcs: U16,
    /// 0's based; FFFFFFFFh: no limit.
    pub mar: U32,
    /// 0's based; FFFFFFFFh: no limit.
    pub mor: U32,
    pub rrl: U32,
    pub frl: U32,
    #[doc(hidden)]
    pub rrl_frl_more: [U32; 6],
    /// Zones that may have a random write area at once.
    pub numzrwa: U32,
    /// In logical blocks.
    pub zrwafg: U16,
    /// In logical blocks.
    pub zrwasz: U16,
    pub zrwacap: u8,
    #[doc(hidden)]
    pub reserved_53: [u8; 2763],
    pub lbafe: [LbaFormatExtension; 64],
    #[doc(hidden)]
    pub vendor_specific: [u8; 256],
}

const _: () = {
    assert!(size_of::<IdentifyZonedNamespace>() == IDENTIFY_SIZE_BYTES);
    assert!(offset_of!(IdentifyZonedNamespace, numzrwa) == 44);
    assert!(offset_of!(IdentifyZonedNamespace, zrwacap) == 52);
    assert!(offset_of!(IdentifyZonedNamespace, lbafe) == 2816);
};

impl Default for IdentifyZonedNamespace {
    fn default() -> IdentifyZonedNamespace {
        IdentifyZonedNamespace::new_zeroed()
    }
}
