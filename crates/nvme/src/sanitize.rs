//! Sanitize: the command, and the page that tells how far it is (Base 2.0 sections 5.24, 5.16.1 and 8.20).

use crate::submission::SubmissionEntry;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// SANICAP bit 1: Block Erase is supported.
pub const SANICAP_BLOCK_ERASE: u32 = 1 << 1;
/// SANICAP bit 29 (NDI): No-Deallocate After Sanitize is not supported.
pub const SANICAP_NO_DEALLOCATE_INHIBITED: u32 = 1 << 29;
/// SANICAP bits 31:30 (NODMMAS) = 01b: media are not modified once more when a sanitize operation is over.
pub const SANICAP_NOT_MODIFIED_AFTERWARDS: u32 = 1 << 30;

/// Values of SANACT.
pub mod action {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const EXIT_FAILURE_MODE: u8 = 1;
    pub const BLOCK_ERASE: u8 = 2;
    pub const OVERWRITE: u8 = 3;
    pub const CRYPTO_ERASE: u8 = 4;
}

/// Sanitize (Base 2.0 section 5.24), from command dwords 10 and 11.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sanitize {
    /// SANACT, bits 2:0 of dword 10; see [`action`].
    pub action: u8,
    /// AUSE, bit 3: after a failure the host may go back to what was before (unrestricted completion).
    pub unrestricted: bool,
    /// OWPASS, bits 7:4: passes of an overwrite; 0 means 16.
    pub overwrite_passes: u8,
    /// OIPBP, bit 8: the pattern of an overwrite is inverted between passes.
    pub inverts_pattern: bool,
    /// NDAS, bit 9: what is erased stays allocated.
    pub no_deallocate: bool,
    /// OVRPAT, dword 11: the pattern of an overwrite.
    pub pattern: u32,
}

impl Sanitize {
    /// From command dwords 10 and 11.
    pub fn decode(entry: &SubmissionEntry) -> Sanitize {
        Sanitize { pattern: entry.cdw11.get(), ..Sanitize::of_dword(entry.cdw10.get()) }
    }

    /// From dword 10 alone.
    pub fn of_dword(cdw10: u32) -> Sanitize {
        Sanitize {
            action: cdw10 as u8 & 7,
            unrestricted: cdw10 & (1 << 3) != 0,
            overwrite_passes: (cdw10 >> 4) as u8 & 0xF,
            inverts_pattern: cdw10 & (1 << 8) != 0,
            no_deallocate: cdw10 & (1 << 9) != 0,
            pattern: 0,
        }
    }

    /// Puts the fields into a submission entry.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        let cdw10 = u32::from(self.action & 7)
            | u32::from(self.unrestricted) << 3
            | u32::from(self.overwrite_passes & 0xF) << 4
            | u32::from(self.inverts_pattern) << 8
            | u32::from(self.no_deallocate) << 9;
        entry.cdw10 = cdw10.into();
        entry.cdw11 = self.pattern.into();
    }
}

/// What became of the most recent sanitize operation: SSTAT bits 2:0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SanitizeOutcome {
    /// There was none.
    Never = 0,
    /// It was completed.
    Completed = 1,
    /// It goes on.
    InProgress = 2,
    /// It failed.
    Failed = 3,
}

/// No time is told.
pub const TIME_UNKNOWN: u32 = u32::MAX;
/// SPROG of a sanitize operation that does not go on.
pub const PROGRESS_NONE: u16 = u16::MAX;
/// SSTAT bit 8 (Global Data Erased): nothing was written since the most recent sanitize operation was completed.
pub const STATUS_GLOBAL_DATA_ERASED: u16 = 1 << 8;

/// The sanitize status log page, LID 81h, 512 bytes (Base 2.0 section 5.16.1). Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are the specification's; offsets are checked below")]
pub struct SanitizeLog {
    /// How much is done, in 65,536ths; [`PROGRESS_NONE`] where nothing goes on.
    pub sprog: U16,
    /// [`SanitizeOutcome`] and [`STATUS_GLOBAL_DATA_ERASED`].
    pub sstat: U16,
    /// Dword 10 of the command that began it.
    pub scdw10: U32,
    /// Estimated time for an overwrite.
    pub eto: U32,
    /// Estimated time for a block erase.
    pub etbe: U32,
    /// Estimated time for a crypto erase.
    pub etce: U32,
    /// The same of those that do not deallocate.
    pub etond: U32,
    pub etbend: U32,
    pub etcend: U32,
    #[doc(hidden)]
    pub reserved_32: [u8; 480],
}

const _: () = {
    assert!(size_of::<SanitizeLog>() == 512);
    assert!(offset_of!(SanitizeLog, sstat) == 2);
    assert!(offset_of!(SanitizeLog, scdw10) == 4);
    assert!(offset_of!(SanitizeLog, etbe) == 12);
    assert!(offset_of!(SanitizeLog, etcend) == 28);
};

impl SanitizeLog {
    /// A page that tells no times. `progress` is there while the operation goes on.
    ///
    /// # Panics
    /// If an operation goes on without progress, or the other way round.
    pub fn new(outcome: SanitizeOutcome, progress: Option<u16>, is_erased: bool, cdw10: u32) -> SanitizeLog {
        assert_eq!(progress.is_some(), outcome == SanitizeOutcome::InProgress, "progress is of what goes on");
        let erased = if is_erased { STATUS_GLOBAL_DATA_ERASED } else { 0 };
        let unknown: U32 = TIME_UNKNOWN.into();
        SanitizeLog {
            sprog: progress.unwrap_or(PROGRESS_NONE).into(),
            sstat: (u16::from(outcome as u8) | erased).into(),
            scdw10: cdw10.into(),
            eto: unknown,
            etbe: unknown,
            etce: unknown,
            etond: unknown,
            etbend: unknown,
            etcend: unknown,
            reserved_32: [0; 480],
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_command_has_its_fields_where_the_figure_puts_them() {
        let entry = SubmissionEntry {
            cdw10: 0x0000_035A.into(),
            cdw11: 0xA5A5_1234.into(),
            ..SubmissionEntry::default()
        };
        let expected = Sanitize {
            action: action::BLOCK_ERASE,
            unrestricted: true,
            overwrite_passes: 5,
            inverts_pattern: true,
            no_deallocate: true,
            pattern: 0xA5A5_1234,
        };
        assert_eq!(Sanitize::decode(&entry), expected);
        let mut encoded = SubmissionEntry::default();
        expected.encode(&mut encoded);
        assert_eq!(encoded, entry);
        // Reserved bits say nothing.
        assert_eq!(Sanitize::of_dword(0xFFFF_FC01), Sanitize { action: 1, ..Sanitize::default() });
    }

    #[test]
    fn the_page_has_its_fields_where_the_figure_puts_them() {
        let page = SanitizeLog::new(SanitizeOutcome::InProgress, Some(0x1234), false, 0x0A);
        let mut bytes = [0; 512];
        bytes[..8].copy_from_slice(&[0x34, 0x12, 0x02, 0x00, 0x0A, 0, 0, 0]);
        bytes[8..32].fill(0xFF);
        assert_eq!(page.as_bytes(), bytes);
        let page = SanitizeLog::new(SanitizeOutcome::Completed, None, true, 0x02);
        assert_eq!(page.as_bytes()[..8], [0xFF, 0xFF, 0x01, 0x01, 0x02, 0, 0, 0]);
    }
}
