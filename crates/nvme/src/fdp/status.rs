//! Reclaim Unit Handle Status: what I/O Management Receive gives.

use super::{first, u16_at};
use crate::error::DecodeError;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of what comes before the descriptors; their number is in its last two bytes.
pub const STATUS_HEADER_SIZE_BYTES: usize = 16;

/// What lies one behind the other goes to reclaim groups in turns, by so much: each has its part of the room, to within that.
const GROUP_STRIDE_BYTES: u64 = 1 << 20;

/// How a reclaim unit handle is in one reclaim group, 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct HandleStatus {
    /// Placement identifier of the namespace.
    pub pid: U16,
    /// Reclaim unit handle behind it.
    pub handle: U16,
    /// EARUTR: seconds until its reclaim unit is changed for another one; 0: not told.
    pub seconds_remaining: U32,
    /// RUAMW: logical blocks that can still be written to its reclaim unit.
    pub available_lbas: U64,
    #[doc(hidden)]
    pub reserved_16: [u8; 16],
}

const _: () = {
    assert!(size_of::<HandleStatus>() == HandleStatus::SIZE_BYTES);
    assert!(offset_of!(HandleStatus, seconds_remaining) == 4);
    assert!(offset_of!(HandleStatus, available_lbas) == 8);
};

impl HandleStatus {
    /// Size on the wire.
    pub const SIZE_BYTES: usize = 32;

    /// Of a reclaim unit that is not changed for its age.
    pub fn new(pid: u16, handle: u16, available_lbas: u64) -> HandleStatus {
        HandleStatus {
            pid: pid.into(),
            handle: handle.into(),
            available_lbas: available_lbas.into(),
            ..HandleStatus::new_zeroed()
        }
    }
}

/// The whole structure, in order of placement handles and then of reclaim groups. At most 65535 descriptors are there.
pub fn status_page(descriptors: &[HandleStatus]) -> Vec<u8> {
    let descriptors = &descriptors[..descriptors.len().min(usize::from(u16::MAX))];
    let mut page = vec![0; STATUS_HEADER_SIZE_BYTES];
    page[14..].copy_from_slice(&(descriptors.len() as u16).to_le_bytes());
    page.extend_from_slice(descriptors.as_bytes());
    page
}

/// The descriptors of a structure.
///
/// # Errors
/// If it is cut off.
pub fn parse_status(page: &[u8]) -> Result<Vec<HandleStatus>, DecodeError> {
    const NAME: &str = "Reclaim Unit Handle Status";
    let count = usize::from(u16_at(first(page, NAME, STATUS_HEADER_SIZE_BYTES)?, 14));
    let needed = STATUS_HEADER_SIZE_BYTES + count * HandleStatus::SIZE_BYTES;
    let descriptors = &first(page, NAME, needed)?[STATUS_HEADER_SIZE_BYTES..];
    let read = |bytes: &[u8]| HandleStatus::read_from_bytes(bytes).expect("32 bytes");
    Ok(descriptors.chunks_exact(HandleStatus::SIZE_BYTES).map(read).collect())
}

/// Placement identifiers of a namespace by its placement handles, which are numbered from 0. None where it keeps nothing apart: it has no handles, or one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementIds(Vec<Vec<u16>>);

impl PlacementIds {
    /// Descriptors come in the order of placement handles, and for each of them in that of reclaim groups.
    pub fn of(told: &[HandleStatus]) -> PlacementIds {
        let same = |one: &HandleStatus, next: &HandleStatus| one.handle == next.handle;
        let pids = |of: &[HandleStatus]| of.iter().map(|status| status.pid.get()).collect();
        let handles: Vec<Vec<u16>> = told.chunk_by(same).map(pids).collect();
        PlacementIds(if handles.len() > 1 { handles } else { Vec::new() })
    }

    /// How many handles there are, 2 or more, or 0.
    pub fn handles(&self) -> u16 {
        self.0.len() as u16
    }

    /// The identifier that a write to a byte offset is for: that of its handle, in a reclaim group by its place. Handles beyond the last one begin anew.
    pub fn pid(&self, handle: u16, offset: u64) -> Option<u16> {
        let groups = self.0.get(usize::from(handle) % self.0.len().max(1))?;
        groups.get((offset / GROUP_STRIDE_BYTES) as usize % groups.len()).copied()
    }
}
