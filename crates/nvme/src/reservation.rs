//! Reservations (Base 2.0 sections 7.5 to 7.8 and 8.19): which hosts may use a namespace that several of them reach.

use crate::submission::SubmissionEntry;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// RESCAP bit 0: reservations persist through power loss, where a host asks for it.
pub const RESCAP_PERSIST: u8 = 1 << 0;
/// RESCAP bits 6:1: all six types.
pub const RESCAP_ALL_TYPES: u8 = 0x3F << 1;
/// RESCAP bit 7: IEKEY is defined as of revision 1.3 and later.
pub const RESCAP_IEKEY_1_3: u8 = 1 << 7;

/// Types of reservations (Base 2.0 figure 424 of section 7.5: RTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ReservationKind {
    /// The holder writes, all read.
    WriteExclusive = 1,
    /// The holder alone.
    ExclusiveAccess = 2,
    /// Registrants write, all read.
    WriteExclusiveRegistrantsOnly = 3,
    /// Registrants alone.
    ExclusiveAccessRegistrantsOnly = 4,
    /// Registrants write and hold it together, all read.
    WriteExclusiveAllRegistrants = 5,
    /// Registrants alone, and they hold it together.
    ExclusiveAccessAllRegistrants = 6,
}

impl ReservationKind {
    /// All of them, in their order.
    pub const ALL: [ReservationKind; 6] = [
        ReservationKind::WriteExclusive,
        ReservationKind::ExclusiveAccess,
        ReservationKind::WriteExclusiveRegistrantsOnly,
        ReservationKind::ExclusiveAccessRegistrantsOnly,
        ReservationKind::WriteExclusiveAllRegistrants,
        ReservationKind::ExclusiveAccessAllRegistrants,
    ];

    /// From RTYPE.
    pub fn decode(rtype: u8) -> Option<ReservationKind> {
        ReservationKind::ALL.into_iter().find(|kind| *kind as u8 == rtype)
    }
    /// Whether others may not even read.
    pub fn excludes_readers(self) -> bool {
        (self as u8).is_multiple_of(2)
    }
    /// Whether registrants have the rights of the holder.
    pub fn is_shared(self) -> bool {
        self as u8 >= 3
    }
    /// Whether every registrant is a holder.
    pub fn is_of_all(self) -> bool {
        self as u8 >= 5
    }
}

/// The fields of dword 10 that Reservation Register, Acquire and Release share (Base 2.0 sections 7.5 to 7.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationCommand {
    /// RREGA, RACQA or RRELA, bits 2:0: what to do.
    pub action: u8,
    /// IEKEY, bit 3: the key of now is not compared.
    pub ignores_key: bool,
    /// RTYPE, bits 15:8, of Acquire and Release.
    pub kind: u8,
    /// CPTPL, bits 31:30, of Register: 0 no change, 2 does not persist through power loss, 3 does.
    pub persistence: u8,
}

/// CPTPL: whether it persists stays as it is.
pub const PERSISTENCE_STAYS: u8 = 0b00;
/// CPTPL: reservation and registrations do not persist through power loss.
pub const DOES_NOT_PERSIST: u8 = 0b10;
/// CPTPL: they do.
pub const PERSISTS: u8 = 0b11;
/// RREGA: registers a key.
pub const REGISTER: u8 = 0;
/// RREGA: takes the registration back.
pub const UNREGISTER: u8 = 1;
/// RREGA: replaces the key.
pub const REPLACE: u8 = 2;
/// RACQA: acquires.
pub const ACQUIRE: u8 = 0;
/// RACQA: preempts.
pub const PREEMPT: u8 = 1;
/// RACQA: preempts, and aborts commands of whom it preempted.
pub const PREEMPT_AND_ABORT: u8 = 2;
/// RRELA: releases.
pub const RELEASE: u8 = 0;
/// RRELA: ends the reservation and all registrations.
pub const CLEAR: u8 = 1;

impl ReservationCommand {
    /// From command dword 10.
    pub fn decode(entry: &SubmissionEntry) -> ReservationCommand {
        let cdw10 = entry.cdw10.get();
        ReservationCommand {
            action: cdw10 as u8 & 7,
            ignores_key: cdw10 & (1 << 3) != 0,
            kind: (cdw10 >> 8) as u8,
            persistence: (cdw10 >> 30) as u8,
        }
    }

    /// Puts the fields into a submission entry.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        let cdw10 = u32::from(self.action & 7)
            | u32::from(self.ignores_key) << 3
            | u32::from(self.kind) << 8
            | u32::from(self.persistence & 3) << 30;
        entry.cdw10 = cdw10.into();
    }
}

/// The two keys of Register (CRKEY, NRKEY) and Acquire (CRKEY, PRKEY); Release has the first one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReservationKeys {
    /// CRKEY.
    pub current: U64,
    /// NRKEY or PRKEY.
    pub other: U64,
}

impl ReservationKeys {
    /// Size on the wire.
    pub const SIZE_BYTES: usize = 16;
}

/// Reservation Report (Base 2.0 section 7.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationReport {
    /// NUMD of dword 10, 0's based dwords, converted.
    pub length_bytes: u64,
    /// EDS, bit 0 of dword 11: the extended form, with host identifiers of 128 bits.
    pub extended: bool,
}

impl ReservationReport {
    /// From command dwords 10 and 11.
    pub fn decode(entry: &SubmissionEntry) -> ReservationReport {
        ReservationReport {
            length_bytes: (u64::from(entry.cdw10.get()) + 1) * 4,
            extended: entry.cdw11.get() & 1 != 0,
        }
    }

    /// Puts the fields into a submission entry.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        entry.cdw10 = ((self.length_bytes / 4 - 1) as u32).into();
        entry.cdw11 = u32::from(self.extended).into();
    }
}

/// The head of the extended report, 64 bytes; a [`RegisteredController`] for each controller follows.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are the specification's; offsets are checked below")]
pub struct ReservationStatus {
    /// GEN: counts registrations, preemptions and clears.
    pub generation: U32,
    /// RTYPE; 0 = not reserved.
    pub rtype: u8,
    /// REGCTL: how many follow.
    pub regctl: U16,
    #[doc(hidden)]
    pub reserved_7: [u8; 2],
    /// PTPLS: it persists through power loss.
    pub ptpls: u8,
    #[doc(hidden)]
    pub reserved_10: [u8; 14],
    #[doc(hidden)]
    pub reserved_24: [u8; 32],
    #[doc(hidden)]
    pub reserved_56: [u8; 8],
}

/// A controller of a registrant in the extended report, 64 bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are the specification's; offsets are checked below")]
pub struct RegisteredController {
    /// CNTLID; FFFFh where the host has no controller now.
    pub cntlid: U16,
    /// RCSTS bit 0: its host holds the reservation.
    pub rcsts: u8,
    #[doc(hidden)]
    pub reserved_3: [u8; 5],
    /// RKEY.
    pub rkey: U64,
    /// HOSTID, 128 bits.
    pub hostid: [u8; 16],
    #[doc(hidden)]
    pub reserved_32: [u8; 32],
}

/// Reservation notification, LID 80h, 64 bytes (Base 2.0 section 5.16.1.22).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are the specification's; offsets are checked below")]
pub struct ReservationNotification {
    /// Counts them; 0 = an empty page.
    pub count: U64,
    /// What happened; see [`notification`].
    pub kind: u8,
    /// How many more there are.
    pub available: u8,
    #[doc(hidden)]
    pub reserved_10: [u8; 2],
    /// Namespace.
    pub nsid: U32,
    #[doc(hidden)]
    pub reserved_16: [u8; 32],
    #[doc(hidden)]
    pub reserved_48: [u8; 16],
}

/// Types of a [`ReservationNotification`]; bit `1 << type` of feature 82h masks one.
pub mod notification {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const REGISTRATION_PREEMPTED: u8 = 1;
    pub const RESERVATION_RELEASED: u8 = 2;
    pub const RESERVATION_PREEMPTED: u8 = 3;
}

const _: () = {
    assert!(size_of::<ReservationKeys>() == ReservationKeys::SIZE_BYTES);
    assert!(size_of::<ReservationStatus>() == 64);
    assert!(offset_of!(ReservationStatus, rtype) == 4);
    assert!(offset_of!(ReservationStatus, regctl) == 5);
    assert!(offset_of!(ReservationStatus, ptpls) == 9);
    assert!(size_of::<RegisteredController>() == 64);
    assert!(offset_of!(RegisteredController, rcsts) == 2);
    assert!(offset_of!(RegisteredController, rkey) == 8);
    assert!(offset_of!(RegisteredController, hostid) == 16);
    assert!(size_of::<ReservationNotification>() == 64);
    assert!(offset_of!(ReservationNotification, kind) == 8);
    assert!(offset_of!(ReservationNotification, nsid) == 12);
};

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn reservations_have_their_fields_where_the_figures_put_them() {
        // Preempt, IEKEY, Exclusive Access - All Registrants; CPTPL 11b of a Register.
        let entry = SubmissionEntry { cdw10: 0xC000_0609.into(), ..SubmissionEntry::default() };
        let command = ReservationCommand::decode(&entry);
        let expected = ReservationCommand { action: PREEMPT, ignores_key: true, kind: 6, persistence: 3 };
        assert_eq!(command, expected);
        let mut encoded = SubmissionEntry::default();
        command.encode(&mut encoded);
        assert_eq!(encoded, entry);
        let entry = SubmissionEntry { cdw10: 0x1F.into(), cdw11: 1.into(), ..SubmissionEntry::default() };
        let report = ReservationReport::decode(&entry);
        assert_eq!(report, ReservationReport { length_bytes: 128, extended: true });
        let mut encoded = SubmissionEntry::default();
        report.encode(&mut encoded);
        assert_eq!(encoded, entry);
        let status = ReservationStatus {
            generation: 0x0102.into(),
            rtype: 3,
            regctl: 2.into(),
            ptpls: 1,
            ..ReservationStatus::default()
        };
        assert_eq!(status.as_bytes()[..10], [2, 1, 0, 0, 3, 2, 0, 0, 0, 1]);
        let controller = RegisteredController {
            cntlid: 0xFFFF.into(),
            rcsts: 1,
            rkey: 0x1122.into(),
            hostid: [7; 16],
            ..RegisteredController::default()
        };
        assert_eq!(
            controller.as_bytes()[..18],
            [0xFF, 0xFF, 1, 0, 0, 0, 0, 0, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 7, 7]
        );
        let told = ReservationNotification {
            count: 5.into(),
            kind: notification::RESERVATION_RELEASED,
            available: 1,
            nsid: 9.into(),
            ..ReservationNotification::default()
        };
        assert_eq!(told.as_bytes()[..16], [5, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 9, 0, 0, 0]);
    }

    #[test]
    fn kinds_say_whom_they_let_in() {
        assert_eq!(ReservationKind::decode(0), None);
        assert_eq!(ReservationKind::decode(7), None);
        let rights = |kind: ReservationKind| (kind.excludes_readers(), kind.is_shared(), kind.is_of_all());
        let all: Vec<_> = ReservationKind::ALL.into_iter().map(rights).collect();
        let (f, t) = (false, true);
        assert_eq!(all, [(f, f, f), (t, f, f), (f, t, f), (t, t, f), (f, t, t), (t, t, t)]);
    }
}
