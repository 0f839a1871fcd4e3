use super::guid;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a field of 16 bits says that a device does not have.
pub const NOT_SUPPORTED: u16 = 0xFFFF;

/// A number of 48 bits.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct U48([u8; 6]);

impl U48 {
    /// The number.
    pub fn get(self) -> u64 {
        let mut bytes = [0; 8];
        bytes[..6].copy_from_slice(&self.0);
        u64::from_le_bytes(bytes)
    }
}

impl From<u64> for U48 {
    /// A larger number becomes the largest one.
    fn from(number: u64) -> U48 {
        let bytes = number.min((1 << 48) - 1).to_le_bytes();
        U48([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5]])
    }
}

/// SMART / health information extended, LID C0h, 512 bytes (OCP 2.5 section 4.8.5).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SmartExtended {
    /// Bytes written to the media.
    pub physical_media_bytes_written: U128,
    /// Bytes read from the media.
    pub physical_media_bytes_read: U128,
    /// Blocks for users that were retired.
    pub bad_user_blocks: U48,
    /// Percent of the spare blocks that are left; FFFFh: not supported.
    pub bad_user_blocks_normalized: U16,
    /// Blocks of the system that were retired.
    pub bad_system_blocks: U48,
    /// As for users.
    pub bad_system_blocks_normalized: U16,
    /// Recoveries by parity across dies.
    pub xor_recoveries: U64,
    /// Reads that could not be corrected.
    pub uncorrectable_reads: U64,
    /// Errors beyond the first step of correction.
    pub soft_ecc_errors: U64,
    /// Errors found end to end.
    pub end_to_end_detected: U32,
    /// Errors corrected end to end.
    pub end_to_end_corrected: U32,
    /// Life used of what the system's data lie on, percent.
    pub system_data_used_percent: u8,
    /// Blocks that were refreshed, 56 bits.
    pub refreshes: [u8; 7],
    /// Erases of the block for users that was erased most.
    pub erases_max: U32,
    /// Erases of the block for users that was erased least.
    pub erases_min: U32,
    /// How often it was throttled for heat.
    pub throttle_events: u8,
    /// Whether it is now.
    pub throttle_status: u8,
    /// Version of the specification: errata, point, minor, major.
    pub version_errata: u8,
    #[doc(hidden)]
    pub version_point: U16,
    #[doc(hidden)]
    pub version_minor: U16,
    #[doc(hidden)]
    pub version_major: u8,
    /// Errors of the PCIe link that were corrected.
    pub pcie_correctable_errors: U64,
    /// Shutdowns that were not.
    pub incomplete_shutdowns: U32,
    #[doc(hidden)]
    pub reserved_116: [u8; 4],
    /// Free blocks, percent.
    pub free_blocks_percent: u8,
    #[doc(hidden)]
    pub reserved_121: [u8; 7],
    /// Percent of the least capacity that is needed; FFFFh: no capacitor.
    pub capacitor_health: U16,
    /// Errata of the base specification, of the command set, of PCIe, of the management interface.
    pub errata: [u8; 4],
    #[doc(hidden)]
    pub reserved_134: [u8; 2],
    /// Writes that are not aligned to the indirection unit.
    pub unaligned_writes: U64,
    /// Security version.
    pub security_version: U64,
    /// Logical blocks in use over all namespaces.
    pub total_nuse: U64,
    /// How often the capacitors were needed.
    pub power_loss_protections: U128,
    /// Bytes that can be written to the media over its life; 0 if unknown.
    pub endurance_estimate: U128,
    /// Link retrains.
    pub pcie_link_retrains: U64,
    /// Changes of the power state.
    pub power_state_changes: U64,
    /// Lowest firmware that can be activated.
    pub lowest_firmware: U64,
    /// Dies.
    pub total_dies: U16,
    /// Dies that may fail without loss.
    pub die_failure_tolerance: U16,
    /// Dies that do not answer.
    pub dies_offline: U16,
    /// Highest temperature ever, degrees Celsius.
    pub temperature_max_celsius: u8,
    /// Form factor; 0 if it has none.
    pub form_factor: u8,
    /// Average erases of blocks for users.
    pub erases_average: U64,
    /// Commands that took longer than they may.
    pub command_timeouts: U32,
    /// Programs of the system's blocks that failed: raw, and what is left in percent.
    pub system_program_failures: U32,
    #[doc(hidden)]
    pub system_program_failures_normalized: u8,
    #[doc(hidden)]
    pub reserved_241: [u8; 3],
    /// Reads of the system's blocks that failed.
    pub system_read_failures: U32,
    #[doc(hidden)]
    pub system_read_failures_normalized: u8,
    #[doc(hidden)]
    pub reserved_249: [u8; 3],
    /// Erases of the system's blocks that failed.
    pub system_erase_failures: U32,
    #[doc(hidden)]
    pub system_erase_failures_normalized: u8,
    #[doc(hidden)]
    pub reserved_257: [u8; 3],
    /// Power: peak and average limits, and what was used; 0 where it is not measured.
    pub peak_power: U16,
    #[doc(hidden)]
    pub average_power: U16,
    #[doc(hidden)]
    pub lifetime_power: U48,
    /// Firmware, ASCII.
    pub firmware_revision: [u8; 8],
    /// Its build.
    pub firmware_build_uuid: [u8; 16],
    /// Its build, ASCII.
    pub firmware_build_label: [u8; 64],
    /// Retired blocks of dies that are in use.
    pub die_in_use_bad_blocks: U48,
    /// As for users.
    pub die_in_use_bad_blocks_normalized: U16,
    #[doc(hidden)]
    pub reserved_366: [u8; 128],
    #[doc(hidden)]
    pub log_version: U16,
    #[doc(hidden)]
    pub guid: [u8; 16],
}

const _: () = {
    assert!(size_of::<SmartExtended>() == 512);
    assert!(offset_of!(SmartExtended, bad_user_blocks) == 32);
    assert!(offset_of!(SmartExtended, erases_max) == 88);
    assert!(offset_of!(SmartExtended, incomplete_shutdowns) == 112);
    assert!(offset_of!(SmartExtended, free_blocks_percent) == 120);
    assert!(offset_of!(SmartExtended, total_nuse) == 152);
    assert!(offset_of!(SmartExtended, total_dies) == 216);
    assert!(offset_of!(SmartExtended, erases_average) == 224);
    assert!(offset_of!(SmartExtended, system_read_failures) == 244);
    assert!(offset_of!(SmartExtended, firmware_revision) == 270);
    assert!(offset_of!(SmartExtended, die_in_use_bad_blocks) == 358);
    assert!(offset_of!(SmartExtended, log_version) == 494);
    assert!(offset_of!(SmartExtended, guid) == 496);
};

impl SmartExtended {
    /// What the page is known by.
    pub const GUID: [u8; 16] = guid(0xAFD5_14C9_7C6F_4F9C_A4F2_BFEA_2810_AFC5);
    /// Version of the page.
    pub const LOG_VERSION: u16 = 3;
}

impl Default for SmartExtended {
    /// All zeros but what says what it is, and what is not there.
    fn default() -> SmartExtended {
        SmartExtended {
            capacitor_health: NOT_SUPPORTED.into(),
            version_major: 2,
            version_minor: 5.into(),
            log_version: SmartExtended::LOG_VERSION.into(),
            guid: SmartExtended::GUID,
            ..SmartExtended::new_zeroed()
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// By hand from the table of the specification.
    #[test]
    fn the_bytes_of_a_page() {
        let page = SmartExtended {
            physical_media_bytes_written: 0x0102_0304_0506_0708.into(),
            bad_user_blocks: 0x0A0B_0C0D_0E0F.into(),
            bad_user_blocks_normalized: 99.into(),
            uncorrectable_reads: 7.into(),
            erases_max: 0x1122_3344.into(),
            incomplete_shutdowns: 2.into(),
            free_blocks_percent: 81,
            total_dies: 64.into(),
            erases_average: 0x55.into(),
            ..SmartExtended::default()
        };
        let bytes = page.as_bytes();
        assert_eq!(bytes[..16], [8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[32..40], [0x0F, 0x0E, 0x0D, 0x0C, 0x0B, 0x0A, 99, 0]);
        assert_eq!(bytes[56..64], [7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[88..92], [0x44, 0x33, 0x22, 0x11]);
        assert_eq!(bytes[98..104], [0, 0, 0, 5, 0, 2]);
        assert_eq!((bytes[112], bytes[120], bytes[216], bytes[224]), (2, 81, 64, 0x55));
        assert_eq!(bytes[128..130], [0xFF, 0xFF]);
        assert_eq!((bytes[494], bytes[496], bytes[511]), (3, 0xC5, 0xAF));
        assert_eq!(U48::from(u64::MAX).get(), (1 << 48) - 1);
        assert_eq!(U48::from(0x0A0B_0C0D_0E0F).get(), 0x0A0B_0C0D_0E0F);
    }
}
