//! Features 1Dh and 1Eh.

use crate::submission::SubmissionEntry;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Flexible Data Placement, feature 1Dh: whether it is enabled in an endurance group. Get Features gives all but the group as dword 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementFeature {
    /// ENDGID, bits 15:0 of dword 11.
    pub group: u16,
    /// FDPE, bit 0 of dword 12.
    pub enabled: bool,
    /// FDPCIDX, bits 15:8 of dword 12: which of the configurations of log page 20h.
    pub configuration: u8,
}

impl PlacementFeature {
    /// From command dwords 11 and 12.
    pub fn decode(entry: &SubmissionEntry) -> PlacementFeature {
        let cdw12 = entry.cdw12.get();
        PlacementFeature {
            group: entry.cdw11.get() as u16,
            enabled: cdw12 & 1 != 0,
            configuration: (cdw12 >> 8) as u8,
        }
    }

    /// Puts the fields into a submission entry.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        entry.cdw11 = u32::from(self.group).into();
        entry.cdw12 = self.value().into();
    }

    /// Dword 12 of Set Features, and dword 0 of the answer to Get Features.
    pub fn value(&self) -> u32 {
        u32::from(self.enabled) | u32::from(self.configuration) << 8
    }
}

/// Flexible Data Placement Events, feature 1Eh: which events of a placement handle are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementEventsFeature {
    /// PHNDL, bits 15:0 of dword 11: placement handle of the namespace.
    pub handle: u16,
    /// NOET, bits 23:16 of dword 11: number of event types; of Get Features as many as there is room for.
    pub count: u8,
    /// FDPEE, bit 0 of dword 12 of Set Features: whether they are kept from now on.
    pub enable: bool,
}

impl PlacementEventsFeature {
    /// From command dwords 11 and 12.
    pub fn decode(entry: &SubmissionEntry) -> PlacementEventsFeature {
        let cdw11 = entry.cdw11.get();
        PlacementEventsFeature {
            handle: cdw11 as u16,
            count: (cdw11 >> 16) as u8,
            enable: entry.cdw12.get() & 1 != 0,
        }
    }

    /// Puts the fields into a submission entry.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        entry.cdw11 = (u32::from(self.handle) | u32::from(self.count) << 16).into();
        entry.cdw12 = u32::from(self.enable).into();
    }
}

/// What Get Features of events gives for each type, 2 bytes; dword 0 of the answer is their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EventDescriptor {
    /// See [`super::event_kind`].
    pub kind: u8,
    /// Bit 0: it is kept.
    pub attributes: u8,
}

const _: () = assert!(size_of::<EventDescriptor>() == EventDescriptor::SIZE_BYTES);

impl EventDescriptor {
    /// Size on the wire.
    pub const SIZE_BYTES: usize = 2;

    /// Of a type that is kept or not.
    pub fn new(kind: u8, enabled: bool) -> EventDescriptor {
        EventDescriptor { kind, attributes: enabled.into() }
    }
}
