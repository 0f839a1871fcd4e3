use crate::Status;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// ANA state of a group on a path (Base 2.0 section 8.1.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum AnaState {
    /// As good as it can be.
    #[default]
    Optimized = 1,
    /// It serves, less well than an optimized one.
    NonOptimized = 2,
    /// It serves no I/O at present.
    Inaccessible = 3,
    /// It never serves I/O again.
    PersistentLoss = 4,
    /// It goes from one state to another.
    Change = 0xF,
}

impl AnaState {
    /// What commands are refused with that go to a namespace (Base 2.0 sections 8.1.3.3 to 8.1.3.5): path related, so that a host
    /// tries them on another path.
    ///
    /// # Errors
    /// If it serves none.
    pub const fn serves(self) -> Result<(), Status> {
        match self {
            AnaState::Optimized | AnaState::NonOptimized => Ok(()),
            AnaState::Inaccessible => Err(Status::ASYMMETRIC_ACCESS_INACCESSIBLE),
            AnaState::PersistentLoss => Err(Status::ASYMMETRIC_ACCESS_PERSISTENT_LOSS),
            AnaState::Change => Err(Status::ASYMMETRIC_ACCESS_TRANSITION),
        }
    }
}

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

#[cfg(test)]
mod test {
    use super::*;
    use zerocopy::IntoBytes;

    /// Bytes by hand from figures 217 and 218, statuses from figure 98.
    #[test]
    fn a_group_has_its_state_where_the_figure_puts_it() {
        let head = AnaHeader { change_count: 0x0102.into(), groups: 1.into(), ..AnaHeader::default() };
        assert_eq!(head.as_bytes(), [2, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        let group = AnaGroup {
            id: 1.into(),
            namespaces: 2.into(),
            change_count: 3.into(),
            state: AnaState::Change as u8,
            ..AnaGroup::default()
        };
        let mut bytes = [0; 32];
        (bytes[0], bytes[4], bytes[8], bytes[16]) = (1, 2, 3, 0xF);
        assert_eq!(group.as_bytes(), bytes);
        let refused = [AnaState::PersistentLoss, AnaState::Inaccessible, AnaState::Change]
            .map(|state| state.serves().expect_err("it serves nothing").bits());
        assert_eq!(refused, [0x301, 0x302, 0x303]);
        assert!(AnaState::Optimized.serves().is_ok() && AnaState::NonOptimized.serves().is_ok());
    }
}
