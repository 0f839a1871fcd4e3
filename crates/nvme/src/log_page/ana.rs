use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// ANA state of a group: all paths are as good as they can be.
pub const ANA_OPTIMIZED: u8 = 1;
/// LSP bit 0 of the page: groups only, without their namespaces.
pub const ANA_GROUPS_ONLY: u8 = 1 << 0;

/// Head of the asymmetric namespace access page, LID 0Ch, 16 bytes (Base 2.0 section 5.16.1.13, figure 217). Groups follow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AnaHeader {
    /// Rises with each change of the page.
    pub change_count: U64,
    /// How many groups follow.
    pub groups: U16,
    #[doc(hidden)]
    pub reserved_10: [u8; 6],
}

/// A group, 32 bytes (Base 2.0 figure 218). NSIDs of its namespaces follow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AnaGroup {
    /// ANAGRPID.
    pub id: U32,
    /// How many NSIDs follow.
    pub namespaces: U32,
    /// Of the last change of this group.
    pub change_count: U64,
    /// State in bits 3:0.
    pub state: u8,
    #[doc(hidden)]
    pub reserved_17: [u8; 15],
}

const _: () = {
    assert!(size_of::<AnaHeader>() == 16);
    assert!(offset_of!(AnaHeader, groups) == 8);
    assert!(size_of::<AnaGroup>() == 32);
    assert!(offset_of!(AnaGroup, change_count) == 8);
    assert!(offset_of!(AnaGroup, state) == 16);
};
