//! I/O commands of the NVM command set decoded from a submission entry (NVM 1.0 section 3.2).

use crate::submission::SubmissionEntry;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The fields that Read, Write, Compare, Verify and Write Zeroes share (NVM 1.0 figures 45 to 79: command dwords 10
/// to 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaRange {
    /// First LBA.
    pub start: u64,
    /// Number of LBAs: NLB converted from 0's based, so 1 to 65536.
    pub count: u32,
    /// FUA, bit 30 of dword 12.
    pub force_unit_access: bool,
    /// PRINFO, bits 29:26 of dword 12 (PRACT in the highest of them).
    pub protection: u8,
    /// Limited retry, bit 31.
    pub limited_retry: bool,
    /// DEAC of Write Zeroes, bit 25: deallocate if that reads as zeros.
    pub deallocate: bool,
    /// STC, bit 24: storage tag check.
    pub storage_tag_check: bool,
    /// DTYPE of Write, bits 23:20: directive type.
    pub directive_type: u8,
    /// DSPEC of Write, bits 31:16 of dword 13: what the directive needs to know.
    pub directive_specific: u16,
}

impl LbaRange {
    /// LBAs without a wish about them: all flags are off.
    ///
    /// `count`: 1 to 65536.
    #[inline]
    pub fn plain(start: u64, count: u32) -> LbaRange {
        LbaRange {
            start,
            count,
            force_unit_access: false,
            protection: 0,
            limited_retry: false,
            deallocate: false,
            storage_tag_check: false,
            directive_type: 0,
            directive_specific: 0,
        }
    }

    /// From command dwords 10 to 13.
    #[inline]
    pub fn decode(entry: &SubmissionEntry) -> LbaRange {
        let cdw12 = entry.cdw12.get();
        LbaRange {
            start: entry.starting_lba(),
            count: (cdw12 & 0xFFFF) + 1,
            force_unit_access: cdw12 & (1 << 30) != 0,
            protection: (cdw12 >> 26) as u8 & 0xF,
            limited_retry: cdw12 & (1 << 31) != 0,
            deallocate: cdw12 & (1 << 25) != 0,
            storage_tag_check: cdw12 & (1 << 24) != 0,
            directive_type: (cdw12 >> 20) as u8 & 0xF,
            directive_specific: (entry.cdw13.get() >> 16) as u16,
        }
    }

    /// Puts range and flags into a submission entry; the lower half of dword 13 stays.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        entry.cdw10 = (self.start as u32).into();
        entry.cdw11 = ((self.start >> 32) as u32).into();
        let cdw12 = (self.count - 1) & 0xFFFF
            | u32::from(self.force_unit_access) << 30
            | u32::from(self.protection & 0xF) << 26
            | u32::from(self.limited_retry) << 31
            | u32::from(self.deallocate) << 25
            | u32::from(self.storage_tag_check) << 24
            | u32::from(self.directive_type & 0xF) << 20;
        entry.cdw12 = cdw12.into();
        entry.cdw13 = (entry.cdw13.get() & 0xFFFF | u32::from(self.directive_specific) << 16).into();
    }
}

/// Dataset Management (NVM 1.0 section 3.2.3, figures 41 and 42).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetManagement {
    /// Number of ranges: NR converted from 0's based, so 1 to 256.
    pub range_count: u32,
    /// AD, bit 2 of dword 11: deallocate.
    pub deallocate: bool,
}

impl DatasetManagement {
    /// From command dwords 10 and 11.
    pub fn decode(entry: &SubmissionEntry) -> DatasetManagement {
        DatasetManagement {
            range_count: (entry.cdw10.get() & 0xFF) + 1,
            deallocate: entry.cdw11.get() & (1 << 2) != 0,
        }
    }
    /// Puts both into a submission entry.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        entry.cdw10 = ((self.range_count - 1) & 0xFF).into();
        entry.cdw11 = (u32::from(self.deallocate) << 2).into();
    }
}

/// One range of Dataset Management, 16 bytes (NVM 1.0 figure 43).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DatasetRange {
    /// Hints; ours to ignore.
    pub context_attributes: U32,
    /// LBAs, not 0's based; may be zero.
    pub lba_count: U32,
    /// First LBA.
    pub start: U64,
}

const _: () = assert!(size_of::<DatasetRange>() == DatasetRange::SIZE_BYTES);

impl DatasetRange {
    /// Size on the wire.
    pub const SIZE_BYTES: usize = 16;
}

/// Copy (NVM 1.0 section 3.2.2, figures 31 to 34).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    /// SDLBA, dwords 10 and 11: first LBA that is written.
    pub start: u64,
    /// Number of source ranges: NR, bits 7:0 of dword 12, converted from 0's based, so 1 to 256.
    pub range_count: u32,
    /// DESFMT, bits 11:8 of dword 12: which form source ranges have.
    pub format: u8,
    /// PRINFOR and PRINFOW, bits 15:12 and 29:26 of dword 12, the second one above the first.
    pub protection: u8,
    /// DTYPE, bits 23:20 of dword 12: directive type.
    pub directive_type: u8,
    /// DSPEC, bits 31:16 of dword 13: what the directive needs to know.
    pub directive_specific: u16,
    /// STCW and STCR, bits 24 and 25 of dword 12: storage tag checks.
    pub storage_tag_check: bool,
    /// FUA, bit 30 of dword 12.
    pub force_unit_access: bool,
}

impl Copy {
    /// From command dwords 10 to 13.
    pub fn decode(entry: &SubmissionEntry) -> Copy {
        let cdw12 = entry.cdw12.get();
        Copy {
            start: entry.starting_lba(),
            range_count: (cdw12 & 0xFF) + 1,
            format: (cdw12 >> 8) as u8 & 0xF,
            protection: (cdw12 >> 12) as u8 & 0xF | ((cdw12 >> 26) as u8 & 0xF) << 4,
            directive_type: (cdw12 >> 20) as u8 & 0xF,
            directive_specific: (entry.cdw13.get() >> 16) as u16,
            storage_tag_check: cdw12 & (3 << 24) != 0,
            force_unit_access: cdw12 & (1 << 30) != 0,
        }
    }

    /// Puts a copy without protection and storage tags into a submission entry.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        entry.cdw10 = (self.start as u32).into();
        entry.cdw11 = ((self.start >> 32) as u32).into();
        let cdw12 = (self.range_count - 1) & 0xFF
            | u32::from(self.format & 0xF) << 8
            | u32::from(self.directive_type & 0xF) << 20
            | u32::from(self.force_unit_access) << 30;
        entry.cdw12 = cdw12.into();
        entry.cdw13 = (entry.cdw13.get() & 0xFFFF | u32::from(self.directive_specific) << 16).into();
    }
}

/// One source range of Copy in format 0h, 32 bytes (NVM 1.0 figure 35).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CopyRange {
    #[doc(hidden)]
    pub reserved_0: [u8; 8],
    /// SLBA.
    pub start: U64,
    /// NLB, 0's based.
    pub lba_count_less_one: U16,
    #[doc(hidden)]
    pub reserved_18: [u8; 6],
    /// EILBRT, ELBAT and ELBATM: for formats with protection information.
    pub protection: [u8; 8],
}

const _: () = {
    assert!(size_of::<CopyRange>() == CopyRange::SIZE_BYTES);
    assert!(offset_of!(CopyRange, lba_count_less_one) == 16);
    assert!(offset_of!(CopyRange, protection) == 24);
};

impl CopyRange {
    /// Size on the wire.
    pub const SIZE_BYTES: usize = 32;

    /// Number of LBAs, 1 to 65536.
    pub fn lba_count(&self) -> u32 {
        u32::from(self.lba_count_less_one.get()) + 1
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_copy_has_its_fields_where_the_figures_put_them() {
        let entry = |cdw12: u32| SubmissionEntry {
            cdw10: 0x9ABC_DEF0.into(),
            cdw11: 0x1234_5678.into(),
            cdw12: cdw12.into(),
            ..SubmissionEntry::default()
        };
        let copy = Copy::decode(&entry(0x4000_01FF));
        assert_eq!((copy.start, copy.range_count, copy.format), (0x1234_5678_9ABC_DEF0, 256, 1));
        assert!(copy.force_unit_access && copy.protection == 0 && !copy.storage_tag_check);
        assert_eq!(Copy::decode(&entry(0x2000_8000)).protection, 0x88, "PRACT, twice");
        assert_eq!(Copy::decode(&entry(0x0020_0000)).directive_type, 2);
        for bit in [24, 25] {
            assert!(Copy::decode(&entry(1 << bit)).storage_tag_check);
        }
        let mut encoded = SubmissionEntry::default();
        copy.encode(&mut encoded);
        assert_eq!(encoded, entry(0x4000_01FF));
        let placed = SubmissionEntry { cdw13: 0x0305_0000.into(), ..entry(0x0020_0000) };
        let mut encoded = SubmissionEntry::default();
        Copy::decode(&placed).encode(&mut encoded);
        assert_eq!((Copy::decode(&placed).directive_specific, encoded), (0x0305, placed));
        let mut wire = [0; 32];
        wire[8..18].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0x80, 0xFF, 0]);
        let range = CopyRange::read_from_bytes(&wire).unwrap();
        assert_eq!((range.start.get(), range.lba_count()), (0x8000_0000_0000_0100, 256));
    }

    #[test]
    fn flags_are_where_the_figures_put_them() {
        let entry = |cdw12: u32| SubmissionEntry {
            cdw10: 0x9ABC_DEF0.into(),
            cdw11: 0x1234_5678.into(),
            cdw12: cdw12.into(),
            ..SubmissionEntry::default()
        };
        let plain = LbaRange::decode(&entry(0x0000_FFFF));
        assert_eq!((plain.start, plain.count), (0x1234_5678_9ABC_DEF0, 65536));
        assert!(!plain.force_unit_access && plain.protection == 0 && !plain.deallocate);
        assert!(LbaRange::decode(&entry(0x4000_0000)).force_unit_access);
        assert_eq!(LbaRange::decode(&entry(0x2000_0000)).protection, 8, "PRACT is bit 29");
        assert!(LbaRange::decode(&entry(0x0200_0000)).deallocate);
        assert_eq!(LbaRange::decode(&entry(0x0020_0000)).directive_type, 2);
        for cdw12 in [0xFFF0_FFFF, 0x4200_0007] {
            let mut encoded = SubmissionEntry::default();
            LbaRange::decode(&entry(cdw12)).encode(&mut encoded);
            assert_eq!(encoded.cdw12.get(), cdw12);
        }
        let placed = SubmissionEntry { cdw13: 0x8003_0000.into(), ..entry(0x0020_0007) };
        let mut encoded = SubmissionEntry::default();
        LbaRange::decode(&placed).encode(&mut encoded);
        assert_eq!((LbaRange::decode(&placed).directive_specific, encoded), (0x8003, placed));
    }

    #[test]
    fn a_deallocate_has_its_fields_where_the_figures_put_them() {
        let entry = SubmissionEntry { cdw10: 0xFF.into(), cdw11: 4.into(), ..SubmissionEntry::default() };
        assert_eq!(
            DatasetManagement::decode(&entry),
            DatasetManagement { range_count: 256, deallocate: true }
        );
        let wire = [1, 0, 0, 0, 8, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let range = DatasetRange::read_from_bytes(&wire).unwrap();
        assert_eq!((range.context_attributes.get(), range.lba_count.get(), range.start.get()), (1, 8, 256));
    }
}
