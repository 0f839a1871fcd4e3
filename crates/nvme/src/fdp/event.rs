//! FDP Events, LID 23h.

use super::first;
use crate::error::DecodeError;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Types of events. Those below 80h are of hosts, the others of the controller.
pub mod event_kind {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const RECLAIM_UNIT_NOT_FULLY_WRITTEN: u8 = 0x00;
    pub const RECLAIM_UNIT_TIME_LIMIT_EXCEEDED: u8 = 0x01;
    pub const CONTROLLER_LEVEL_RESET: u8 = 0x02;
    pub const INVALID_PLACEMENT_IDENTIFIER: u8 = 0x03;
    pub const MEDIA_REALLOCATED: u8 = 0x80;
    pub const IMPLICITLY_MODIFIED_HANDLE: u8 = 0x81;
}

/// PIV, bit 0 of the flags: the placement identifier is valid.
pub const EVENT_HAS_PID: u8 = 1 << 0;
/// NSIDV, bit 1 of the flags: the namespace identifier is valid.
pub const EVENT_HAS_NSID: u8 = 1 << 1;
/// LV, bit 2 of the flags: reclaim group and reclaim unit handle are valid.
pub const EVENT_HAS_LOCATION: u8 = 1 << 2;
/// Events that the page holds.
pub const EVENTS_MAX: usize = 63;
/// Size of the page.
pub const EVENTS_LOG_SIZE_BYTES: usize = 4096;

/// An event, 64 bytes. Base 2.1 gives the handle two bytes; tools that read one of them show its low byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PlacementEvent {
    /// See [`event_kind`].
    pub kind: u8,
    /// Which of the fields below are valid.
    pub flags: u8,
    /// Placement identifier.
    pub pid: U16,
    /// When, in the form of the timestamp feature.
    pub timestamp: U64,
    /// Namespace.
    pub nsid: U32,
    /// What else belongs to this type.
    pub specific: [u8; 16],
    /// Reclaim group.
    pub group: U16,
    /// Reclaim unit handle.
    pub handle: U16,
    #[doc(hidden)]
    pub reserved_36: [u8; 28],
}

const _: () = {
    assert!(size_of::<PlacementEvent>() == PlacementEvent::SIZE_BYTES);
    assert!(offset_of!(PlacementEvent, timestamp) == 4);
    assert!(offset_of!(PlacementEvent, nsid) == 12);
    assert!(offset_of!(PlacementEvent, specific) == 16);
    assert!(offset_of!(PlacementEvent, group) == 32);
    assert!(offset_of!(PlacementEvent, handle) == 34);
    assert!(PlacementEvent::SIZE_BYTES * (EVENTS_MAX + 1) == EVENTS_LOG_SIZE_BYTES);
};

impl Default for PlacementEvent {
    fn default() -> PlacementEvent {
        PlacementEvent::new_zeroed()
    }
}

impl PlacementEvent {
    /// Size on the wire.
    pub const SIZE_BYTES: usize = 64;
}

/// The page with these events, oldest first; what comes behind [`EVENTS_MAX`] is left out.
pub fn events_page<'a>(events: impl IntoIterator<Item = &'a PlacementEvent>) -> Vec<u8> {
    let mut page = vec![0; EVENTS_LOG_SIZE_BYTES];
    let (head, places) = page.split_at_mut(PlacementEvent::SIZE_BYTES);
    let mut count = 0u32;
    for (place, event) in places.chunks_exact_mut(PlacementEvent::SIZE_BYTES).zip(events) {
        place.copy_from_slice(event.as_bytes());
        count += 1;
    }
    head[..4].copy_from_slice(&count.to_le_bytes());
    page
}

/// The events of a page.
///
/// # Errors
/// If it is cut off, or counts more events than it has room for.
pub fn parse_events(page: &[u8]) -> Result<Vec<PlacementEvent>, DecodeError> {
    let head = first(page, "FDP Events", PlacementEvent::SIZE_BYTES)?;
    let count = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    if count > EVENTS_MAX as u32 {
        return Err(DecodeError::Field { field: "NUMFDPE", value: count.into() });
    }
    let needed = PlacementEvent::SIZE_BYTES * (1 + count as usize);
    let events = &first(page, "FDP Events", needed)?[PlacementEvent::SIZE_BYTES..];
    let read = |bytes: &[u8]| PlacementEvent::read_from_bytes(bytes).expect("64 bytes");
    Ok(events.chunks_exact(PlacementEvent::SIZE_BYTES).map(read).collect())
}
