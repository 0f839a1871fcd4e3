//! Words of the OCP Datacenter NVMe SSD specification 2.5: log pages and features of its own, behind its UUID.

mod latency_configuration;
mod latency_monitor;
mod other;
mod smart;
mod telemetry;

pub use latency_configuration::{
    BUCKETS, Bucket, COUNTER_INCREMENT_MS, CommandKind, LatencyConfiguration, LatencyStamp,
    TIMER_INCREMENT_S, TriggerBits, WINDOW_INCREMENT_MS,
};
pub use latency_monitor::{
    LatencyLog, LatencySide, MEASURED_MAX_MS, STATUS_ENABLED, STATUS_MEASURED, STATUS_MODE_1,
};
pub use other::{
    DeviceCapabilities, ErrorRecovery, FirmwareActivationHistory, UNSUPPORTED_MAX, UnsupportedRequirements,
};
pub use smart::{NOT_SUPPORTED, SmartExtended, U48};
pub use telemetry::{
    DATA_BLOCK_BYTES, DwordRange, EventDescriptor, StatisticDescriptor, TelemetryDataArea, TelemetryHeader,
    TelemetryStrings, statistic,
};

/// The UUID under which these log pages and features are found (Identify, UUID list).
pub const UUID: [u8; 16] =
    [0xC1, 0x94, 0xD5, 0x5B, 0xE0, 0x94, 0x47, 0x94, 0xA2, 0x1D, 0x29, 0x99, 0x8F, 0x56, 0xBE, 0x6F];

/// Log page identifiers.
pub mod lid {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const SMART_EXTENDED: u8 = 0xC0;
    pub const ERROR_RECOVERY: u8 = 0xC1;
    pub const FIRMWARE_ACTIVATION_HISTORY: u8 = 0xC2;
    pub const LATENCY_MONITOR: u8 = 0xC3;
    pub const DEVICE_CAPABILITIES: u8 = 0xC4;
    pub const UNSUPPORTED_REQUIREMENTS: u8 = 0xC5;
    pub const TELEMETRY_STRINGS: u8 = 0xC9;
    pub const LATENCY_DEBUG: u8 = 0xCA;
}

/// Feature identifiers.
pub mod fid {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const LATENCY_MONITOR: u8 = 0xC5;
}

/// A GUID as it is stored: the bytes of its number, the lowest first.
const fn guid(number: u128) -> [u8; 16] {
    number.to_le_bytes()
}

#[cfg(test)]
mod test {
    use super::*;

    /// As nvme-cli compares them.
    #[test]
    fn guids_are_stored_from_their_end() {
        assert_eq!(
            SmartExtended::GUID,
            [0xC5, 0xAF, 0x10, 0x28, 0xEA, 0xBF, 0xF2, 0xA4, 0x9C, 0x4F, 0x6F, 0x7C, 0xC9, 0x14, 0xD5, 0xAF]
        );
        assert_eq!(
            LatencyLog::GUID,
            [0x92, 0x7A, 0xC0, 0x8C, 0xD0, 0x84, 0x6C, 0x9C, 0x70, 0x43, 0xE6, 0xD4, 0x58, 0x5E, 0xD4, 0x85]
        );
        assert_eq!(
            ErrorRecovery::GUID,
            [0x44, 0xD9, 0x31, 0x21, 0xFE, 0x30, 0x34, 0xAE, 0xAB, 0x4D, 0xFD, 0x3D, 0xBA, 0x83, 0x19, 0x5A]
        );
        assert_eq!(
            DeviceCapabilities::GUID,
            [0x97, 0x42, 0x05, 0x0D, 0xD1, 0xE1, 0xC9, 0x98, 0x5D, 0x49, 0x58, 0x4B, 0x91, 0x3C, 0x05, 0xB7]
        );
        assert_eq!(
            FirmwareActivationHistory::GUID,
            [0x6D, 0x79, 0x9A, 0x76, 0xB4, 0xDA, 0xF6, 0xA3, 0xE2, 0x4D, 0xB2, 0x8A, 0xAC, 0xF3, 0x1C, 0xD1]
        );
        assert_eq!(
            UnsupportedRequirements::GUID,
            [0x2F, 0x72, 0x9C, 0x0E, 0x99, 0x23, 0x2C, 0xBB, 0x63, 0x48, 0x32, 0xD0, 0xB7, 0x98, 0xBB, 0xC7]
        );
    }
}
