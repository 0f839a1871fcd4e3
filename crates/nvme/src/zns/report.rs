//! Reports of zones.

use std::mem::offset_of;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// ZA bit 0 of a descriptor: the controller finished the zone.
pub const ZA_FINISHED_BY_CONTROLLER: u8 = 1 << 0;
/// ZA bit 3: the zone has a random write area.
pub const ZA_RANDOM_AREA: u8 = 1 << 3;
/// ZA bit 7: the zone has a descriptor extension.
pub const ZA_EXTENSION: u8 = 1 << 7;
/// ZT: the zone takes sequential writes only.
pub const ZONE_TYPE_SEQUENTIAL: u8 = 2;

/// Head of a report of zones (ZNS 1.1 figure 29).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ReportHeader {
    /// Number of zones.
    pub zones: U64,
    reserved: [u8; 56],
}

impl ReportHeader {
    /// Bytes of it.
    pub const SIZE_BYTES: usize = size_of::<ReportHeader>();

    /// Of so many zones.
    pub fn new(zones: u64) -> ReportHeader {
        ReportHeader { zones: zones.into(), reserved: [0; 56] }
    }
}

/// Zone descriptor (ZNS 1.1 figure 30).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ZoneDescriptor {
    /// ZT, bits 3:0.
    pub zone_type: u8,
    /// ZS, bits 7:4.
    pub state: u8,
    /// ZA.
    pub attributes: u8,
    /// ZAI.
    pub attributes_information: u8,
    reserved: [u8; 4],
    /// ZCAP, in logical blocks.
    pub capacity: U64,
    /// ZSLBA.
    pub start: U64,
    /// WP.
    pub write_pointer: U64,
    reserved_32: [u8; 32],
}

impl ZoneDescriptor {
    /// Bytes of it.
    pub const SIZE_BYTES: usize = size_of::<ZoneDescriptor>();

    /// Of a zone of sequential writes. `state` is its value in bits 3:0.
    pub fn new(state: u8, attributes: u8, capacity: u64, start: u64, write_pointer: u64) -> ZoneDescriptor {
        ZoneDescriptor {
            zone_type: ZONE_TYPE_SEQUENTIAL,
            state: state << 4,
            attributes,
            capacity: capacity.into(),
            start: start.into(),
            write_pointer: write_pointer.into(),
            ..ZoneDescriptor::new_zeroed()
        }
    }
}

const _: () = {
    assert!(ReportHeader::SIZE_BYTES == 64 && ZoneDescriptor::SIZE_BYTES == 64);
    assert!(offset_of!(ZoneDescriptor, capacity) == 8 && offset_of!(ZoneDescriptor, write_pointer) == 24);
};
