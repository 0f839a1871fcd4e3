use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// CNTRLTYPE: an I/O controller.
pub const CONTROLLER_TYPE_IO: u8 = 1;
/// CNTRLTYPE: a discovery controller.
pub const CONTROLLER_TYPE_DISCOVERY: u8 = 2;
/// OAES bit 8: namespace attribute notices.
pub const OAES_NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
/// OAES bit 31: discovery log page change notices.
pub const OAES_DISCOVERY_CHANGE: u32 = 1 << 31;
/// CTRATT bit 0: 128-bit host identifiers.
pub const CTRATT_HOST_ID_128: u32 = 1 << 0;
/// CTRATT bit 4: endurance groups.
pub const CTRATT_ENDURANCE_GROUPS: u32 = 1 << 4;
/// CTRATT bit 19: Flexible Data Placement (Base 2.1).
pub const CTRATT_DATA_PLACEMENT: u32 = 1 << 19;
/// CTRATT bit 6: any command keeps the association alive.
pub const CTRATT_TRAFFIC_BASED_KEEP_ALIVE: u32 = 1 << 6;
/// LPA bit 1: commands supported and effects log page.
pub const LPA_EFFECTS: u8 = 1 << 1;
/// LPA bit 2: Get Log Page takes offsets and lengths above 12 bits.
pub const LPA_EXTENDED_DATA: u8 = 1 << 2;
/// LPA bit 5: log pages 00h, 12h and 13h, and the scope of commands in 05h.
pub const LPA_SUPPORTED_PAGES: u8 = 1 << 5;
/// LPA bit 3: telemetry.
pub const LPA_TELEMETRY: u8 = 1 << 3;
/// CTRATT bit 9: a list of UUIDs is there.
pub const CTRATT_UUID_LIST: u32 = 1 << 9;
/// CMIC bit 1: several controllers.
pub const CMIC_CONTROLLERS: u8 = 1 << 1;
/// CMIC bit 3: asymmetric namespace access is told.
pub const CMIC_ANA: u8 = 1 << 3;
/// ANACAP bits 4:0: all five states are told.
pub const ANACAP_ALL_STATES: u8 = 0x1F;
/// ANACAP bit 6: a namespace stays in its group.
pub const ANACAP_GROUPS_STAY: u8 = 1 << 6;
/// OACS bit 5: directives.
pub const OACS_DIRECTIVES: u16 = 1 << 5;
/// OACS bit 1: Format NVM.
pub const OACS_FORMAT_NVM: u16 = 1 << 1;
/// FNA bit 3: Format NVM does not take NSID FFFFFFFFh.
pub const FNA_NOT_ALL: u8 = 1 << 3;
/// ONCS bit 0: Compare.
pub const ONCS_COMPARE: u16 = 1 << 0;
/// ONCS bit 1: Write Uncorrectable.
pub const ONCS_WRITE_UNCORRECTABLE: u16 = 1 << 1;
/// ONCS bit 8: Copy.
pub const ONCS_COPY: u16 = 1 << 8;
/// OCFS bit 0: source ranges of format 0h.
pub const OCFS_FORMAT_0: u16 = 1 << 0;
/// ONCS bit 2: Dataset Management.
pub const ONCS_DATASET_MANAGEMENT: u16 = 1 << 2;
/// ONCS bit 3: Write Zeroes.
pub const ONCS_WRITE_ZEROES: u16 = 1 << 3;
/// ONCS bit 5: reservations.
pub const ONCS_RESERVATIONS: u16 = 1 << 5;
/// ONCS bit 6: timestamp feature.
pub const ONCS_TIMESTAMP: u16 = 1 << 6;
/// ONCS bit 7: Verify.
pub const ONCS_VERIFY: u16 = 1 << 7;
/// VWC bit 0: a volatile write cache is present.
pub const VWC_PRESENT: u8 = 1;
/// VWC bits 2:1 = 11b: Flush takes NSID FFFFFFFFh.
pub const VWC_FLUSH_ALL: u8 = 3 << 1;
/// SGLS bits 1:0 = 01b: SGLs without alignment rule.
pub const SGLS_SUPPORTED: u32 = 1;
/// SGLS bit 2: keyed data block descriptors (not on TCP).
pub const SGLS_KEYED: u32 = 1 << 2;
/// SGLS bit 20: the address of a data block may be an offset in the capsule.
pub const SGLS_IN_CAPSULE_OFFSET: u32 = 1 << 20;
/// SGLS bit 21: transport SGL data blocks.
pub const SGLS_TRANSPORT_DATA_BLOCK: u32 = 1 << 21;

/// Identify Controller data structure, CNS 01h (Base 2.0 section 5.17.2.1, figure 275). Field names are the
/// specification's; what stays zero is kept as reserved bytes.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are the specification's; offsets are checked below")]
pub struct IdentifyController {
    pub vid: U16,
    pub ssvid: U16,
    /// Serial number, ASCII, space padded.
    pub sn: [u8; 20],
    /// Model number, ASCII, space padded.
    pub mn: [u8; 40],
    /// Firmware revision, ASCII, space padded.
    pub fr: [u8; 8],
    /// Recommended arbitration burst (log2).
    pub rab: u8,
    pub ieee: [u8; 3],
    /// Bit 0: several ports; bit 1: several controllers.
    pub cmic: u8,
    /// Largest transfer: 2^MDTS pages of CAP.MPSMIN; 0 = no limit.
    pub mdts: u8,
    pub cntlid: U16,
    pub ver: U32,
    pub rtd3r: U32,
    pub rtd3e: U32,
    pub oaes: U32,
    pub ctratt: U32,
    pub rrls: U16,
    #[doc(hidden)]
    pub reserved_102: [u8; 9],
    pub cntrltype: u8,
    pub fguid: [u8; 16],
    pub crdt: [U16; 3],
    #[doc(hidden)]
    pub reserved_134: [u8; 122],
    pub oacs: U16,
    /// Abort command limit, 0's based.
    pub acl: u8,
    /// Asynchronous event request limit, 0's based.
    pub aerl: u8,
    /// Bit 0: slot 1 is read only; bits 3:1: number of slots.
    pub frmw: u8,
    pub lpa: u8,
    /// Error log page entries, 0's based.
    pub elpe: u8,
    pub npss: u8,
    pub avscc: u8,
    pub apsta: u8,
    pub wctemp: U16,
    pub cctemp: U16,
    #[doc(hidden)]
    pub reserved_270: [u8; 10],
    pub tnvmcap: U128,
    pub unvmcap: U128,
    #[doc(hidden)]
    pub reserved_312: [u8; 8],
    /// Keep-alive granularity in 100 ms; 0 = not supported.
    pub kas: U16,
    #[doc(hidden)]
    pub reserved_322: [u8; 6],
    /// What Sanitize can do.
    pub sanicap: U32,
    #[doc(hidden)]
    pub reserved_332: [u8; 8],
    pub endgidmax: U16,
    pub anatt: u8,
    pub anacap: u8,
    pub anagrpmax: U32,
    pub nanagrpid: U32,
    #[doc(hidden)]
    pub reserved_352: [u8; 160],
    /// SQ entry size: required in 3:0, maximum in 7:4 (log2).
    pub sqes: u8,
    /// CQ entry size, same form.
    pub cqes: u8,
    /// Commands a queue may have outstanding.
    pub maxcmd: U16,
    /// Largest NSID in use.
    pub nn: U32,
    pub oncs: U16,
    pub fuses: U16,
    pub fna: u8,
    pub vwc: u8,
    /// Atomic write unit normal, in LBAs, 0's based.
    pub awun: U16,
    pub awupf: U16,
    pub icsvscc: u8,
    pub nwpc: u8,
    pub acwu: U16,
    /// Forms of source ranges of Copy.
    pub ocfs: U16,
    pub sgls: U32,
    /// Maximum number of allowed namespaces.
    pub mnan: U32,
    #[doc(hidden)]
    pub reserved_544: [u8; 224],
    /// Subsystem NQN, zero padded.
    pub subnqn: [u8; 256],
    #[doc(hidden)]
    pub reserved_1024: [u8; 768],
    /// I/O queue command capsule size in 16 bytes.
    pub ioccsz: U32,
    /// I/O queue response capsule size in 16 bytes.
    pub iorcsz: U32,
    /// In-capsule data offset in 16 bytes.
    pub icdoff: U16,
    /// Bit 0: 0 = dynamic controller model.
    pub fcatt: u8,
    /// Maximum SGL data block descriptors per command.
    pub msdbd: u8,
    /// Bit 0: Disconnect is supported.
    pub ofcs: U16,
    pub dctype: u8,
    #[doc(hidden)]
    pub reserved_1807: [u8; 241],
    /// Power state descriptors of 32 bytes.
    pub psd: [u8; 1024],
    #[doc(hidden)]
    pub vendor_specific: [u8; 1024],
}

const _: () = {
    assert!(size_of::<IdentifyController>() == super::IDENTIFY_SIZE_BYTES);
    assert!(offset_of!(IdentifyController, cntlid) == 78);
    assert!(offset_of!(IdentifyController, ctratt) == 96);
    assert!(offset_of!(IdentifyController, cntrltype) == 111);
    assert!(offset_of!(IdentifyController, oacs) == 256);
    assert!(offset_of!(IdentifyController, wctemp) == 266);
    assert!(offset_of!(IdentifyController, tnvmcap) == 280);
    assert!(offset_of!(IdentifyController, kas) == 320);
    assert!(offset_of!(IdentifyController, sanicap) == 328);
    assert!(offset_of!(IdentifyController, endgidmax) == 340);
    assert!(offset_of!(IdentifyController, nanagrpid) == 348);
    assert!(offset_of!(IdentifyController, sqes) == 512);
    assert!(offset_of!(IdentifyController, maxcmd) == 514);
    assert!(offset_of!(IdentifyController, oncs) == 520);
    assert!(offset_of!(IdentifyController, vwc) == 525);
    assert!(offset_of!(IdentifyController, acwu) == 532);
    assert!(offset_of!(IdentifyController, ocfs) == 534);
    assert!(offset_of!(IdentifyController, sgls) == 536);
    assert!(offset_of!(IdentifyController, subnqn) == 768);
    assert!(offset_of!(IdentifyController, ioccsz) == 1792);
    assert!(offset_of!(IdentifyController, ofcs) == 1804);
    assert!(offset_of!(IdentifyController, psd) == 2048);
};

impl Default for IdentifyController {
    fn default() -> IdentifyController {
        IdentifyController::new_zeroed()
    }
}
