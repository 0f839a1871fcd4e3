use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// NSFEAT bit 0: thin provisioning, NUSE may be below NCAP.
pub const NSFEAT_THIN: u8 = 1 << 0;
/// NSFEAT bit 2: reading deallocated LBAs can be asked to fail.
pub const NSFEAT_DEALLOCATED_ERROR: u8 = 1 << 2;
/// NSFEAT bit 4: NPWG, NPWA, NPDG, NPDA and NOWS are valid.
pub const NSFEAT_IO_OPTIMIZATION: u8 = 1 << 4;
/// NSTAT bit 0: the namespace is ready.
pub const NSTAT_READY: u8 = 1;

/// One LBA format (NVM 1.0 figure 98).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LbaFormat {
    /// Metadata bytes per LBA.
    pub metadata_size_bytes: U16,
    /// LBA data size as a power of two, at least 9.
    pub lba_size_log2: u8,
    /// Relative performance in bits 1:0; 0 = best.
    pub relative_performance: u8,
}

/// Identify Namespace data structure of the NVM command set, CNS 00h (NVM 1.0 section 4.1.5.1, figure 97).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are the specification's; offsets are checked below")]
pub struct IdentifyNamespace {
    /// Size in LBAs.
    pub nsze: U64,
    /// Capacity in LBAs.
    pub ncap: U64,
    /// LBAs in use.
    pub nuse: U64,
    pub nsfeat: u8,
    /// Number of LBA formats, 0's based.
    pub nlbaf: u8,
    /// Format in use in bits 3:0.
    pub flbas: u8,
    pub mc: u8,
    pub dpc: u8,
    pub dps: u8,
    /// Bit 0: several controllers may attach.
    pub nmic: u8,
    pub rescap: u8,
    pub fpi: u8,
    /// Bits 2:0: what deallocated LBAs read (1 = zeros); bit 3: Write Zeroes may deallocate.
    pub dlfeat: u8,
    pub nawun: U16,
    pub nawupf: U16,
    pub nacwu: U16,
    pub nabsn: U16,
    pub nabo: U16,
    pub nabspf: U16,
    /// Optimal I/O boundary in LBAs.
    pub noiob: U16,
    pub nvmcap: U128,
    /// Preferred write granularity in LBAs, 0's based.
    pub npwg: U16,
    /// Preferred write alignment, 0's based.
    pub npwa: U16,
    /// Preferred deallocate granularity, 0's based.
    pub npdg: U16,
    /// Preferred deallocate alignment, 0's based.
    pub npda: U16,
    /// Optimal write size, 0's based.
    pub nows: U16,
    /// Most LBAs of a source range of Copy.
    pub mssrl: U16,
    /// Most LBAs of a Copy.
    pub mcl: U32,
    /// Most source ranges of a Copy, 0's based.
    pub msrc: u8,
    #[doc(hidden)]
    pub reserved_81: [u8; 11],
    pub anagrpid: U32,
    #[doc(hidden)]
    pub reserved_96: [u8; 3],
    /// Bit 0: write protected.
    pub nsattr: u8,
    pub nvmsetid: U16,
    pub endgid: U16,
    pub nguid: [u8; 16],
    pub eui64: [u8; 8],
    pub lbaf: [LbaFormat; 64],
    #[doc(hidden)]
    pub vendor_specific: [u8; 3712],
}

const _: () = {
    assert!(size_of::<IdentifyNamespace>() == super::IDENTIFY_SIZE_BYTES);
    assert!(offset_of!(IdentifyNamespace, flbas) == 26);
    assert!(offset_of!(IdentifyNamespace, dlfeat) == 33);
    assert!(offset_of!(IdentifyNamespace, noiob) == 46);
    assert!(offset_of!(IdentifyNamespace, npwg) == 64);
    assert!(offset_of!(IdentifyNamespace, nows) == 72);
    assert!(offset_of!(IdentifyNamespace, mssrl) == 74);
    assert!(offset_of!(IdentifyNamespace, mcl) == 76);
    assert!(offset_of!(IdentifyNamespace, msrc) == 80);
    assert!(offset_of!(IdentifyNamespace, anagrpid) == 92);
    assert!(offset_of!(IdentifyNamespace, nsattr) == 99);
    assert!(offset_of!(IdentifyNamespace, endgid) == 102);
    assert!(offset_of!(IdentifyNamespace, nguid) == 104);
    assert!(offset_of!(IdentifyNamespace, eui64) == 120);
    assert!(offset_of!(IdentifyNamespace, lbaf) == 128);
};

impl Default for IdentifyNamespace {
    fn default() -> IdentifyNamespace {
        IdentifyNamespace::new_zeroed()
    }
}

/// I/O command set independent Identify Namespace data structure, CNS 08h (Base 2.0 section 5.17.2.8, figure 280). Its NSFEAT has
/// bits of its own: bit 3 says that identifiers may be used again, bit 4 that the media rotate.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are the specification's; offsets are checked below")]
pub struct IndependentNamespace {
    pub nsfeat: u8,
    pub nmic: u8,
    pub rescap: u8,
    pub fpi: u8,
    pub anagrpid: U32,
    pub nsattr: u8,
    #[doc(hidden)]
    pub reserved_9: u8,
    pub nvmsetid: U16,
    pub endgid: U16,
    pub nstat: u8,
    #[doc(hidden)]
    pub reserved_15: [u8; 4081],
}

const _: () = {
    assert!(size_of::<IndependentNamespace>() == super::IDENTIFY_SIZE_BYTES);
    assert!(offset_of!(IndependentNamespace, anagrpid) == 4);
    assert!(offset_of!(IndependentNamespace, endgid) == 12);
    assert!(offset_of!(IndependentNamespace, nstat) == 14);
};

impl Default for IndependentNamespace {
    fn default() -> IndependentNamespace {
        IndependentNamespace::new_zeroed()
    }
}

/// I/O command set specific Identify Controller data structure of the NVM command set, CNS 06h (NVM 1.0 section
/// 4.1.5.2, figure 102).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are the specification's")]
pub struct NvmCommandSetController {
    /// Verify size limit: 2^VSL pages of CAP.MPSMIN; 0 = none.
    pub vsl: u8,
    /// Write zeroes size limit, same unit.
    pub wzsl: u8,
    /// Write uncorrectable size limit, same unit.
    pub wusl: u8,
    /// Ranges per Dataset Management; 0 = none.
    pub dmrl: u8,
    /// LBAs per range.
    pub dmrsl: U32,
    /// LBAs per command.
    pub dmsl: U64,
    #[doc(hidden)]
    pub reserved_16: [u8; 4080],
}

const _: () = assert!(size_of::<NvmCommandSetController>() == super::IDENTIFY_SIZE_BYTES);

impl Default for NvmCommandSetController {
    fn default() -> NvmCommandSetController {
        NvmCommandSetController::new_zeroed()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_namespace_has_its_fields_where_the_figure_puts_them() {
        let mut namespace = IdentifyNamespace {
            nsze: 0x0102_0304_0506.into(),
            dlfeat: 0x09,
            nguid: [0xA5; 16],
            ..IdentifyNamespace::default()
        };
        namespace.lbaf[0].lba_size_log2 = 12;
        let wire = namespace.as_bytes();
        assert_eq!(wire[..8], [0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0, 0]);
        assert_eq!(wire[33], 0x09);
        assert_eq!(wire[104..120], [0xA5; 16]);
        assert_eq!(wire[128..132], [0, 0, 12, 0]);
    }
}
