//! Log pages of an endurance group: 09h, and 21h and 22h of data placement. All are asked for with its identifier as LSI.

use super::{first, u16_at};
use crate::error::DecodeError;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// RUHA: no namespace has the handle.
pub const HANDLE_UNUSED: u8 = 0;
/// RUHA: a host said that a namespace has it.
pub const HANDLE_USED_BY_HOST: u8 = 1;
/// RUHA: the controller gave it to a namespace for which no host had a wish.
pub const HANDLE_USED_BY_CONTROLLER: u8 = 2;

const USAGE_SIZE_BYTES: usize = 8;

/// Reclaim Unit Handle Usage, LID 21h, with the attribute of each handle.
pub fn usage_page(attributes: &[u8]) -> Vec<u8> {
    let mut page = vec![0; USAGE_SIZE_BYTES * (1 + attributes.len())];
    let (head, places) = page.split_at_mut(USAGE_SIZE_BYTES);
    head[..2].copy_from_slice(&(attributes.len() as u16).to_le_bytes());
    for (place, attribute) in places.chunks_exact_mut(USAGE_SIZE_BYTES).zip(attributes) {
        place[0] = *attribute;
    }
    page
}

/// The attributes of log page 21h.
///
/// # Errors
/// If it is cut off.
pub fn parse_usage(page: &[u8]) -> Result<Vec<u8>, DecodeError> {
    const NAME: &str = "Reclaim Unit Handle Usage";
    let count = usize::from(u16_at(first(page, NAME, USAGE_SIZE_BYTES)?, 0));
    let places = &first(page, NAME, USAGE_SIZE_BYTES * (1 + count))?[USAGE_SIZE_BYTES..];
    Ok(places.chunks_exact(USAGE_SIZE_BYTES).map(|place| place[0]).collect())
}

/// FDP Statistics, LID 22h, 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct StatisticsLog {
    /// HBMW: bytes that hosts wrote.
    pub host_written_bytes: U128,
    /// MBMW: bytes that were written to media, for hosts and by the controller for itself.
    pub media_written_bytes: U128,
    /// MBE: bytes of media that were erased.
    pub media_erased_bytes: U128,
    #[doc(hidden)]
    pub reserved_48: [u8; 16],
}

const _: () = {
    assert!(size_of::<StatisticsLog>() == StatisticsLog::SIZE_BYTES);
    assert!(offset_of!(StatisticsLog, media_written_bytes) == 16);
    assert!(offset_of!(StatisticsLog, media_erased_bytes) == 32);
};

impl StatisticsLog {
    /// Size on the wire.
    pub const SIZE_BYTES: usize = 64;

    /// With these figures.
    pub fn new(host_written_bytes: u128, media_written_bytes: u128, media_erased_bytes: u128) -> Self {
        StatisticsLog {
            host_written_bytes: host_written_bytes.into(),
            media_written_bytes: media_written_bytes.into(),
            media_erased_bytes: media_erased_bytes.into(),
            reserved_48: [0; 16],
        }
    }
}

/// Endurance Group Information, LID 09h, 512 bytes (Base 2.0 section 5.16.1.10). Units of data are thousands of millions of bytes,
/// rounded up.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EnduranceGroupLog {
    /// Bit 0: spare below its threshold; 2: reliability degraded; 3: read only.
    pub critical_warning: u8,
    /// EGFEAT.
    pub features: u8,
    #[doc(hidden)]
    pub reserved_2: u8,
    /// Spare left, percent.
    pub available_spare_percent: u8,
    /// Threshold of the above.
    pub spare_threshold_percent: u8,
    /// Life used, percent.
    pub percentage_used: u8,
    /// Domain; 0: none.
    pub domain: U16,
    #[doc(hidden)]
    pub reserved_8: [u8; 24],
    /// Data that can be written in its life; 0: not told.
    pub endurance_estimate: U128,
    /// Data read by hosts.
    pub data_units_read: U128,
    /// Data written by hosts.
    pub data_units_written: U128,
    /// Data written to media, for hosts and by the controller for itself.
    pub media_units_written: U128,
    /// Read and Compare commands.
    pub host_read_commands: U128,
    /// Write commands.
    pub host_write_commands: U128,
    /// Unrecovered data integrity errors.
    pub media_errors: U128,
    /// Entries ever made in error information logs.
    pub error_log_entries: U128,
    /// Bytes that it has.
    pub total_bytes: U128,
    /// Bytes of it that no namespace has.
    pub unallocated_bytes: U128,
    #[doc(hidden)]
    pub reserved_192: [u8; 320],
}

const _: () = {
    assert!(size_of::<EnduranceGroupLog>() == EnduranceGroupLog::SIZE_BYTES);
    assert!(offset_of!(EnduranceGroupLog, domain) == 6);
    assert!(offset_of!(EnduranceGroupLog, endurance_estimate) == 32);
    assert!(offset_of!(EnduranceGroupLog, media_units_written) == 80);
    assert!(offset_of!(EnduranceGroupLog, error_log_entries) == 144);
    assert!(offset_of!(EnduranceGroupLog, total_bytes) == 160);
};

impl EnduranceGroupLog {
    /// Size on the wire.
    pub const SIZE_BYTES: usize = 512;
    /// Bytes of a unit of data.
    pub const UNIT_BYTES: u128 = 1_000_000_000;
}

impl Default for EnduranceGroupLog {
    fn default() -> EnduranceGroupLog {
        EnduranceGroupLog::new_zeroed()
    }
}
