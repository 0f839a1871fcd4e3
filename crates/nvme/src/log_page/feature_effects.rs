use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// FSUPP, bit 0: the feature is supported.
pub const FEATURE_SUPPORTED: u32 = 1 << 0;
/// UDCC, bit 1: setting it may change user data.
pub const FEATURE_USER_DATA: u32 = 1 << 1;
/// CCC, bit 4: setting it may change controller capabilities.
pub const FEATURE_CONTROLLER_CAPABILITY: u32 = 1 << 4;
/// FSP, bits 31:20: its scope is a namespace (bit 20).
pub const FEATURE_SCOPE_NAMESPACE: u32 = 1 << 20;
/// FSP: its scope is a controller (bit 21).
pub const FEATURE_SCOPE_CONTROLLER: u32 = 1 << 21;
/// FSP: its scope is an endurance group (bit 23).
pub const FEATURE_SCOPE_ENDURANCE_GROUP: u32 = 1 << 23;
/// FSP: its scope is the NVM subsystem (bit 25).
pub const FEATURE_SCOPE_SUBSYSTEM: u32 = 1 << 25;

/// Feature identifiers supported and effects, LID 12h, 1024 bytes (Base 2.0 section 5.16.1.18, figures 255 and 256): one
/// dword for each feature. The page of commands of a management interface, LID 13h, has the same form.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FeatureEffects {
    /// By feature identifier.
    pub features: [U32; 256],
}

const _: () = {
    assert!(size_of::<FeatureEffects>() == 1024);
    assert!(
        FEATURE_SCOPE_NAMESPACE == super::EFFECT_SCOPE_NAMESPACE,
        "scopes of features and commands are told alike"
    );
    assert!(FEATURE_SCOPE_SUBSYSTEM == super::EFFECT_SCOPE_SUBSYSTEM);
};

impl Default for FeatureEffects {
    fn default() -> FeatureEffects {
        FeatureEffects::new_zeroed()
    }
}
