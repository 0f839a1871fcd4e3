use super::guid;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Error recovery, LID C1h, 512 bytes (OCP 2.5 section 4.8.6).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ErrorRecovery {
    /// Milliseconds from a reset until a panic is over.
    pub reset_wait_ms: U16,
    /// What resets end a panic: a bit for each.
    pub reset_action: u8,
    /// What recovers a device: a bit for each.
    pub recovery_action: u8,
    /// What the panic was; 0 for none.
    pub panic_id: U64,
    /// What the device can do: a bit for each.
    pub capabilities: U32,
    #[doc(hidden)]
    pub vendor: [u8; 15],
    /// Panics since it was made.
    pub panic_count: u8,
    /// The panics before, the latest first.
    pub previous_panics: [U64; 4],
    #[doc(hidden)]
    pub reserved_64: [u8; 0x1AE],
    #[doc(hidden)]
    pub log_version: U16,
    #[doc(hidden)]
    pub guid: [u8; 16],
}

const _: () = {
    assert!(size_of::<ErrorRecovery>() == 512);
    assert!(offset_of!(ErrorRecovery, panic_id) == 4);
    assert!(offset_of!(ErrorRecovery, panic_count) == 0x1F);
    assert!(offset_of!(ErrorRecovery, previous_panics) == 0x20);
    assert!(offset_of!(ErrorRecovery, log_version) == 0x1EE);
};

impl ErrorRecovery {
    /// What the page is known by.
    pub const GUID: [u8; 16] = guid(0x5A19_83BA_3DFD_4DAB_AE34_30FE_2131_D944);
}

impl Default for ErrorRecovery {
    fn default() -> ErrorRecovery {
        ErrorRecovery { log_version: 3.into(), guid: ErrorRecovery::GUID, ..ErrorRecovery::new_zeroed() }
    }
}

/// Firmware activation history, LID C2h, 4096 bytes (OCP 2.5 section 4.8.7). Up to 20 entries of 64 bytes follow its head; firmware that no
/// command replaces has none.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FirmwareActivationHistory {
    log_id: u8,
    reserved_1: [u8; 3],
    entry_count: U32,
    entries: [[u8; 64]; 20],
    reserved_1288: [u8; 2790],
    log_version: U16,
    guid: [u8; 16],
}

const _: () = {
    assert!(size_of::<FirmwareActivationHistory>() == 4096);
    assert!(offset_of!(FirmwareActivationHistory, entries) == 8);
    assert!(offset_of!(FirmwareActivationHistory, log_version) == 4078);
};

impl FirmwareActivationHistory {
    /// What the page is known by.
    pub const GUID: [u8; 16] = guid(0xD11C_F3AC_8AB2_4DE2_A3F6_DAB4_769A_796D);
}

impl Default for FirmwareActivationHistory {
    fn default() -> FirmwareActivationHistory {
        FirmwareActivationHistory {
            log_id: super::lid::FIRMWARE_ACTIVATION_HISTORY,
            log_version: 1.into(),
            guid: FirmwareActivationHistory::GUID,
            ..FirmwareActivationHistory::new_zeroed()
        }
    }
}

/// Device capabilities, LID C4h, 4096 bytes (OCP 2.5 section 4.8.9).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DeviceCapabilities {
    /// PCI Express ports.
    pub pcie_ports: U16,
    /// Management out of band.
    pub out_of_band: U16,
    /// Write Zeroes: bit 0 there, bit 1 takes the bit that deallocates.
    pub write_zeroes: U16,
    /// Sanitize: bit 0 there, bit 1 Crypto Erase, bit 2 Block Erase, bit 3 Overwrite, bit 4 deallocates.
    pub sanitize: U16,
    /// Dataset Management: bit 0 there, bit 1 Deallocate.
    pub dataset_management: U16,
    /// Write Uncorrectable: bit 0 there.
    pub write_uncorrectable: U16,
    /// Fused commands.
    pub fused: U16,
    /// The least power state.
    pub power_state_min: U16,
    #[doc(hidden)]
    pub power_states: [u8; 128],
    #[doc(hidden)]
    pub reserved_144: [u8; 3934],
    #[doc(hidden)]
    pub log_version: U16,
    #[doc(hidden)]
    pub guid: [u8; 16],
}

const _: () = {
    assert!(size_of::<DeviceCapabilities>() == 4096);
    assert!(offset_of!(DeviceCapabilities, dataset_management) == 8);
    assert!(offset_of!(DeviceCapabilities, log_version) == 4078);
};

impl DeviceCapabilities {
    /// What the page is known by.
    pub const GUID: [u8; 16] = guid(0xB705_3C91_4B58_495D_98C9_E1D1_0D05_4297);
}

impl Default for DeviceCapabilities {
    fn default() -> DeviceCapabilities {
        DeviceCapabilities {
            log_version: 1.into(),
            guid: DeviceCapabilities::GUID,
            ..DeviceCapabilities::new_zeroed()
        }
    }
}

/// Requirements that a page of them has room for.
pub const UNSUPPORTED_MAX: usize = 253;

/// Unsupported requirements, LID C5h, 4096 bytes (OCP 2.5 section 4.8.10).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct UnsupportedRequirements {
    count: U16,
    reserved_2: [u8; 14],
    list: [[u8; 16]; UNSUPPORTED_MAX],
    reserved_4064: [u8; 14],
    log_version: U16,
    guid: [u8; 16],
}

const _: () = {
    assert!(size_of::<UnsupportedRequirements>() == 4096);
    assert!(offset_of!(UnsupportedRequirements, log_version) == 4078);
};

impl UnsupportedRequirements {
    /// What the page is known by.
    pub const GUID: [u8; 16] = guid(0xC7BB_98B7_D032_4863_BB2C_2399_0E9C_722F);

    /// A page of these; what there is no room for is left out, and so is what of a name is longer than 16 bytes.
    pub fn of(names: &[&str]) -> UnsupportedRequirements {
        let mut page = UnsupportedRequirements::new_zeroed();
        for (place, name) in page.list.iter_mut().zip(names) {
            let len = name.len().min(place.len());
            place[..len].copy_from_slice(&name.as_bytes()[..len]);
        }
        page.count = (names.len().min(UNSUPPORTED_MAX) as u16).into();
        page.log_version = 1.into();
        page.guid = UnsupportedRequirements::GUID;
        page
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_bytes_of_an_empty_history() {
        let page = FirmwareActivationHistory::default();
        let bytes = page.as_bytes();
        assert_eq!(bytes[..8], [0xC2, 0, 0, 0, 0, 0, 0, 0]);
        assert!(bytes[8..4078].iter().all(|byte| *byte == 0));
        assert_eq!(bytes[4078..4082], [1, 0, 0x6D, 0x79]);
    }

    #[test]
    fn the_bytes_of_unsupported_requirements() {
        let page = UnsupportedRequirements::of(&["GETF-2", "A-NAME-THAT-IS-TOO-LONG"]);
        let bytes = page.as_bytes();
        assert_eq!(bytes[..2], [2, 0]);
        assert_eq!(bytes[16..24], *b"GETF-2\0\0");
        assert_eq!(bytes[32..48], *b"A-NAME-THAT-IS-T");
        assert_eq!((bytes[4078], bytes[4080], bytes[4095]), (1, 0x2F, 0xC7));
        let many = vec!["X"; 300];
        assert_eq!(UnsupportedRequirements::of(&many).as_bytes()[..2], [253, 0]);
    }
}
