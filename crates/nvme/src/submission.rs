use crate::opcode;
use crate::sgl::SglDescriptor;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Submission queue entry, 64 bytes (Base 2.0 section 3.3.3.1, figure 87 and 88).
///
/// | offset | size | field                                                  |
/// |-------:|-----:|--------------------------------------------------------|
/// |      0 |    1 | opcode                                                 |
/// |      1 |    1 | FUSE in 1:0, PSDT in 7:6 (fabrics: always SGL)         |
/// |      2 |    2 | command id                                             |
/// |      4 |    4 | NSID (fabrics commands: FCTYPE in byte 4)              |
/// |      8 |    8 | command dwords 2 and 3                                 |
/// |     16 |    8 | metadata pointer                                       |
/// |     24 |   16 | SGL entry 1                                            |
/// |     40 |   24 | command dwords 10 to 15                                |
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SubmissionEntry {
    /// Opcode; see [`opcode`].
    pub opcode: u8,
    /// FUSE and PSDT.
    pub flags: u8,
    /// Command id: unique among the outstanding commands of a queue.
    pub command_id: U16,
    /// Namespace id. In fabrics commands byte 0 of it is FCTYPE.
    pub nsid: U32,
    /// Command dwords 2 and 3.
    pub cdw2: U64,
    /// Metadata pointer; no format of ours has metadata.
    pub metadata: U64,
    /// Where the data is.
    pub sgl: SglDescriptor,
    /// Command dword 10.
    pub cdw10: U32,
    /// Command dword 11.
    pub cdw11: U32,
    /// Command dword 12.
    pub cdw12: U32,
    /// Command dword 13.
    pub cdw13: U32,
    /// Command dword 14.
    pub cdw14: U32,
    /// Command dword 15.
    pub cdw15: U32,
}

const _: () = {
    assert!(size_of::<SubmissionEntry>() == SubmissionEntry::SIZE_BYTES);
    assert!(offset_of!(SubmissionEntry, nsid) == 4);
    assert!(offset_of!(SubmissionEntry, sgl) == 24);
    assert!(offset_of!(SubmissionEntry, cdw10) == 40);
};

impl SubmissionEntry {
    /// Size on the wire.
    pub const SIZE_BYTES: usize = 64;

    /// FCTYPE of a fabrics command (Base 2.0 figure 379), or `None` for other commands.
    pub fn fabrics_type(&self) -> Option<u8> {
        (self.opcode == opcode::FABRICS).then(|| self.nsid.get() as u8)
    }
    /// FUSE, bits 1:0 of the flags: 0 for a command that stands alone.
    #[inline]
    pub fn fuse(&self) -> u8 {
        self.flags & 3
    }
    /// PSDT, bits 7:6 of the flags: 0 = PRP, 1 = SGL, 2 = SGL with metadata segment.
    pub fn psdt(&self) -> u8 {
        self.flags >> 6
    }
    /// SLBA of commands that have one: command dwords 10 and 11 (NVM 1.0 section 3.2).
    #[inline]
    pub fn starting_lba(&self) -> u64 {
        u64::from(self.cdw10.get()) | u64::from(self.cdw11.get()) << 32
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::sgl::SglKind;

    /// A write of 8 LBAs at 0x1_0000_0100 with FUA, 4096 bytes in the capsule: laid out by hand from figures 87
    /// and 104 of Base 2.0 and figure 48 of NVM 1.0.
    const WRITE: [u8; 64] = [
        0x01, 0x40, 0x34, 0x12, // opcode, PSDT = SGL, CID 0x1234
        0x05, 0x00, 0x00, 0x00, // NSID 5
        0, 0, 0, 0, 0, 0, 0, 0, // CDW2, CDW3
        0, 0, 0, 0, 0, 0, 0, 0, // MPTR
        0, 0, 0, 0, 0, 0, 0, 0, // SGL1: offset 0
        0x00, 0x10, 0x00, 0x00, // length 4096
        0, 0, 0, 0x01, // reserved, data block with offset
        0x00, 0x01, 0x00, 0x00, // CDW10: SLBA low
        0x01, 0x00, 0x00, 0x00, // CDW11: SLBA high
        0x07, 0x00, 0x00, 0x40, // CDW12: NLB 7 (0's based), FUA (bit 30)
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // CDW13 to CDW15
    ];

    #[test]
    fn a_write_has_its_fields_where_the_figures_put_them() {
        let sqe = SubmissionEntry::read_from_bytes(&WRITE).unwrap();
        assert_eq!(sqe.opcode, opcode::io::WRITE);
        assert_eq!(sqe.psdt(), 1);
        assert_eq!(sqe.fuse(), 0);
        assert_eq!(sqe.command_id.get(), 0x1234);
        assert_eq!(sqe.nsid.get(), 5);
        assert_eq!(sqe.starting_lba(), 0x1_0000_0100);
        assert_eq!(sqe.sgl.kind(), SglKind::InCapsule { offset: 0, length_bytes: 4096 });
        assert_eq!(sqe.cdw12.get(), 0x4000_0007);
        assert_eq!(sqe.as_bytes(), WRITE);
        assert_eq!(SglDescriptor::in_capsule(4096).as_bytes(), &WRITE[24..40]);
    }

    #[test]
    fn a_transport_descriptor_is_5ah() {
        let wire = [0, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x02, 0, 0, 0, 0, 0, 0x5A];
        let sgl = SglDescriptor::read_from_bytes(&wire).unwrap();
        assert_eq!(sgl.kind(), SglKind::Transport { length_bytes: 512 });
        assert_eq!(SglDescriptor::transport(512).as_bytes(), wire);
    }
}
