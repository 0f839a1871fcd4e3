//! Directives (Base 2.0 section 5.8, 5.9 and 8.7): which there are, and the one of data placement.

use crate::submission::SubmissionEntry;
use std::mem::offset_of;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// DTYPE: the directive that tells of directives.
pub const DIRECTIVE_IDENTIFY: u8 = 0x00;
/// DTYPE: data placement; DSPEC of a write is a placement identifier then.
pub const DIRECTIVE_DATA_PLACEMENT: u8 = 0x02;
/// DOPER of Directive Receive of the identify directive: which directives there are.
pub const RETURN_PARAMETERS: u8 = 0x01;
/// DOPER of Directive Send of the identify directive: switches a directive.
pub const ENABLE_DIRECTIVE: u8 = 0x01;

/// Directive Send and Directive Receive, admin opcodes 19h and 1Ah.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectiveCommand {
    /// Bytes of data: NUMD of dword 10, 0's based dwords, converted.
    pub length_bytes: u64,
    /// DOPER, bits 7:0 of dword 11.
    pub operation: u8,
    /// DTYPE, bits 15:8 of dword 11.
    pub kind: u8,
    /// DSPEC, bits 31:16 of dword 11.
    pub specific: u16,
}

impl DirectiveCommand {
    /// From command dwords 10 and 11.
    pub fn decode(entry: &SubmissionEntry) -> DirectiveCommand {
        let cdw11 = entry.cdw11.get();
        DirectiveCommand {
            length_bytes: (u64::from(entry.cdw10.get()) + 1) * 4,
            operation: cdw11 as u8,
            kind: (cdw11 >> 8) as u8,
            specific: (cdw11 >> 16) as u16,
        }
    }

    /// Puts the fields into a submission entry.
    ///
    /// # Panics
    /// If the length is none in dwords.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        let dwords = u32::try_from(self.length_bytes / 4 - 1).expect("NUMD has 32 bits");
        entry.cdw10 = dwords.into();
        let cdw11 = u32::from(self.operation) | u32::from(self.kind) << 8 | u32::from(self.specific) << 16;
        entry.cdw11 = cdw11.into();
    }
}

/// What Directive Send of [`ENABLE_DIRECTIVE`] has in dword 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnableDirective {
    /// ENDIR, bit 0: it is to be enabled.
    pub enable: bool,
    /// TDTYPE, bits 15:8: which directive.
    pub kind: u8,
}

impl EnableDirective {
    /// From command dword 12.
    pub fn decode(entry: &SubmissionEntry) -> EnableDirective {
        let cdw12 = entry.cdw12.get();
        EnableDirective { enable: cdw12 & 1 != 0, kind: (cdw12 >> 8) as u8 }
    }

    /// Puts the fields into a submission entry.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        entry.cdw12 = (u32::from(self.enable) | u32::from(self.kind) << 8).into();
    }
}

/// What the identify directive returns, 4096 bytes: a bit for each directive type.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DirectiveParameters {
    /// Which are supported.
    pub supported: [u8; 32],
    /// Which are enabled.
    pub enabled: [u8; 32],
    /// Which keep their state when the controller is reset.
    pub persistent: [u8; 32],
    #[doc(hidden)]
    pub reserved_96: [u8; 4000],
}

const _: () = {
    assert!(size_of::<DirectiveParameters>() == DirectiveParameters::SIZE_BYTES);
    assert!(offset_of!(DirectiveParameters, enabled) == 32);
    assert!(offset_of!(DirectiveParameters, persistent) == 64);
};

impl Default for DirectiveParameters {
    fn default() -> DirectiveParameters {
        DirectiveParameters::new_zeroed()
    }
}

impl DirectiveParameters {
    /// Size on the wire.
    pub const SIZE_BYTES: usize = 4096;

    /// Adds a directive that is enabled and stays so.
    pub fn add_permanent(&mut self, kind: u8) {
        let (byte, bit) = (usize::from(kind / 8), 1 << (kind % 8));
        for bits in [&mut self.supported, &mut self.enabled, &mut self.persistent] {
            bits[byte] |= bit;
        }
    }
}
