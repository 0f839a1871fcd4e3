use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// CSUPP, bit 0: the command is supported.
pub const EFFECT_SUPPORTED: u32 = 1 << 0;
/// LBCC, bit 1: it may change logical block content.
pub const EFFECT_LOGICAL_BLOCK_CONTENT: u32 = 1 << 1;
/// NCC, bit 2: it may change namespace capabilities.
pub const EFFECT_NAMESPACE_CAPABILITY: u32 = 1 << 2;
/// NIC, bit 3: it may change the number of namespaces.
pub const EFFECT_NAMESPACE_INVENTORY: u32 = 1 << 3;
/// CCC, bit 4: it may change controller capabilities.
pub const EFFECT_CONTROLLER_CAPABILITY: u32 = 1 << 4;
/// CSP, bits 31:20: the command works on a namespace (bit 20).
pub const EFFECT_SCOPE_NAMESPACE: u32 = 1 << 20;
/// CSP: it works on a controller (bit 21).
pub const EFFECT_SCOPE_CONTROLLER: u32 = 1 << 21;
/// CSP: it works on the NVM subsystem (bit 25).
pub const EFFECT_SCOPE_SUBSYSTEM: u32 = 1 << 25;

/// Commands supported and effects, LID 05h, 4096 bytes (Base 2.0 section 5.16.1.6, figure 210): one dword per
/// admin opcode, then one per I/O opcode.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CommandEffects {
    /// Per admin opcode.
    pub admin: [U32; 256],
    /// Per I/O opcode.
    pub io: [U32; 256],
    reserved: [u8; 2048],
}

const _: () = {
    assert!(size_of::<CommandEffects>() == 4096);
    assert!(std::mem::offset_of!(CommandEffects, io) == 1024);
};

impl Default for CommandEffects {
    fn default() -> CommandEffects {
        CommandEffects::new_zeroed()
    }
}
