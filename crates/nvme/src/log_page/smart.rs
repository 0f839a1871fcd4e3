use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Critical warning bit 0: the spare is below its threshold.
pub const WARNING_SPARE: u8 = 1 << 0;
/// Critical warning bit 1: a temperature is beyond a threshold.
pub const WARNING_TEMPERATURE: u8 = 1 << 1;
/// Critical warning bit 2: reliability is degraded by errors of the media.
pub const WARNING_RELIABILITY: u8 = 1 << 2;
/// Critical warning bit 3: the media are read-only.
pub const WARNING_READ_ONLY: u8 = 1 << 3;

/// SMART / health information, LID 02h, 512 bytes (Base 2.0 section 5.16.1.3, figure 207).
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SmartLog {
    /// Bit 0: spare below threshold; 2: reliability degraded; 3: read only.
    pub critical_warning: u8,
    /// Composite temperature in kelvins.
    pub temperature_kelvin: U16,
    /// Spare left, percent.
    pub available_spare_percent: u8,
    /// Threshold of the above.
    pub spare_threshold_percent: u8,
    /// Life used, percent; may exceed 100.
    pub percentage_used: u8,
    /// Endurance group warnings.
    pub endurance_group_warning: u8,
    #[doc(hidden)]
    pub reserved_7: [u8; 25],
    /// Data read by hosts, in thousands of 512 bytes, rounded up.
    pub data_units_read: U128,
    /// Data written by hosts, same unit.
    pub data_units_written: U128,
    /// Read and Compare commands.
    pub host_read_commands: U128,
    /// Write commands.
    pub host_write_commands: U128,
    /// Minutes with commands outstanding.
    pub controller_busy_minutes: U128,
    /// Power cycles.
    pub power_cycles: U128,
    /// Hours powered on.
    pub power_on_hours: U128,
    /// Power lost without shutdown notice.
    pub unsafe_shutdowns: U128,
    /// Unrecovered data integrity errors.
    pub media_errors: U128,
    /// Entries ever made in the error information log.
    pub error_log_entries: U128,
    /// Minutes above the warning temperature.
    pub warning_temperature_minutes: U32,
    /// Minutes above the critical temperature.
    pub critical_temperature_minutes: U32,
    /// Sensors, kelvins; 0 = not there.
    pub temperature_sensor_kelvin: [U16; 8],
    #[doc(hidden)]
    pub reserved_216: [u8; 296],
}

const _: () = {
    assert!(size_of::<SmartLog>() == 512);
    assert!(offset_of!(SmartLog, temperature_kelvin) == 1);
    assert!(offset_of!(SmartLog, data_units_read) == 32);
    assert!(offset_of!(SmartLog, error_log_entries) == 176);
    assert!(offset_of!(SmartLog, temperature_sensor_kelvin) == 200);
};

impl Default for SmartLog {
    fn default() -> SmartLog {
        SmartLog::new_zeroed()
    }
}

/// Firmware slot information, LID 03h, 512 bytes (Base 2.0 section 5.16.1.4, figure 208).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FirmwareSlots {
    /// AFI: active slot in bits 2:0, slot after the next reset in 6:4.
    pub active: u8,
    #[doc(hidden)]
    pub reserved_1: [u8; 7],
    /// Revision per slot, ASCII; zeros = empty.
    pub revisions: [[u8; 8]; 7],
    #[doc(hidden)]
    pub reserved_64: [u8; 448],
}

const _: () = assert!(size_of::<FirmwareSlots>() == 512);

impl FirmwareSlots {
    /// One slot, active, with this revision.
    pub fn single(revision: [u8; 8]) -> FirmwareSlots {
        let mut slots = FirmwareSlots::new_zeroed();
        slots.active = 1;
        slots.revisions[0] = revision;
        slots
    }
}
