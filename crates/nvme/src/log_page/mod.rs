//! Log pages (Base 2.0 section 5.16.1).

mod ana;
mod effects;
mod error_information;
mod feature_effects;
mod smart;

pub use ana::{ANA_GROUPS_ONLY, AnaGroup, AnaHeader, AnaState};
pub use effects::{
    CommandEffects, EFFECT_CONTROLLER_CAPABILITY, EFFECT_LOGICAL_BLOCK_CONTENT, EFFECT_NAMESPACE_CAPABILITY,
    EFFECT_NAMESPACE_INVENTORY, EFFECT_SCOPE_CONTROLLER, EFFECT_SCOPE_NAMESPACE, EFFECT_SCOPE_SUBSYSTEM,
    EFFECT_SUPPORTED,
};
pub use error_information::ErrorEntry;
pub use feature_effects::{
    FEATURE_CONTROLLER_CAPABILITY, FEATURE_SCOPE_CONTROLLER, FEATURE_SCOPE_ENDURANCE_GROUP,
    FEATURE_SCOPE_NAMESPACE, FEATURE_SCOPE_SUBSYSTEM, FEATURE_SUPPORTED, FEATURE_USER_DATA, FeatureEffects,
};
pub use smart::{
    FirmwareSlots, SmartLog, WARNING_READ_ONLY, WARNING_RELIABILITY, WARNING_SPARE, WARNING_TEMPERATURE,
};

/// Log page ids (Base 2.0 figure 202).
pub mod lid {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const SUPPORTED_PAGES: u8 = 0x00;
    pub const ERROR_INFORMATION: u8 = 0x01;
    pub const SMART: u8 = 0x02;
    pub const FIRMWARE_SLOT: u8 = 0x03;
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    pub const COMMAND_EFFECTS: u8 = 0x05;
    pub const TELEMETRY_HOST: u8 = 0x07;
    pub const TELEMETRY_CONTROLLER: u8 = 0x08;
    pub const ENDURANCE_GROUP: u8 = 0x09;
    pub const ASYMMETRIC_NAMESPACE_ACCESS: u8 = 0x0C;
    pub const FEATURE_EFFECTS: u8 = 0x12;
    pub const MANAGEMENT_EFFECTS: u8 = 0x13;
    pub const FDP_CONFIGURATIONS: u8 = 0x20;
    pub const RECLAIM_UNIT_HANDLE_USAGE: u8 = 0x21;
    pub const FDP_STATISTICS: u8 = 0x22;
    pub const FDP_EVENTS: u8 = 0x23;
    pub const DISCOVERY: u8 = 0x70;
    pub const RESERVATION: u8 = 0x80;
    pub const SANITIZE_STATUS: u8 = 0x81;
}

/// Entries of the changed namespace list (Base 2.0 section 5.16.1.5): 1024 ids; more than fit are told as one
/// entry FFFFFFFFh.
pub const CHANGED_NAMESPACES_LENGTH: usize = 1024;
