use super::digest::Digests;
use super::frame::{CommonHeader, pdu_type};
use crate::completion::CompletionEntry;
use crate::submission::SubmissionEntry;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Header of CapsuleCmd, 72 bytes (TCP 1.0 section 3.6.2.5): common header and submission entry; data may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CapsuleCommand {
    /// Common header.
    pub common: CommonHeader,
    /// CCSQE.
    pub entry: SubmissionEntry,
}

/// CapsuleResp, 24 bytes (TCP 1.0 section 3.6.2.6): common header and completion entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CapsuleResponse {
    /// Common header.
    pub common: CommonHeader,
    /// RCCQE.
    pub entry: CompletionEntry,
}

const _: () = {
    assert!(size_of::<CapsuleCommand>() == CapsuleCommand::SIZE_BYTES);
    assert!(size_of::<CapsuleResponse>() == CapsuleResponse::SIZE_BYTES);
};

impl CapsuleCommand {
    /// Size of the header.
    pub const SIZE_BYTES: usize = 72;

    /// A command with `data_length` bytes of data in the capsule.
    #[inline]
    pub fn new(entry: SubmissionEntry, data_length: u32, digests: Digests) -> CapsuleCommand {
        let common =
            CommonHeader::build(pdu_type::CAPSULE_COMMAND, 0, Self::SIZE_BYTES, data_length, digests);
        CapsuleCommand { common, entry }
    }
}

impl CapsuleResponse {
    /// Size of the header.
    pub const SIZE_BYTES: usize = 24;

    /// An answer.
    #[inline]
    pub fn new(entry: CompletionEntry, digests: Digests) -> CapsuleResponse {
        let common = CommonHeader::build(pdu_type::CAPSULE_RESPONSE, 0, Self::SIZE_BYTES, 0, digests);
        CapsuleResponse { common, entry }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::status::Status;

    #[test]
    fn capsules_have_their_fields_where_the_figures_put_them() {
        // A flush (CID 7, NSID 1) without digests.
        let mut wire = [0u8; 72];
        wire[..8].copy_from_slice(&[0x04, 0x00, 0x48, 0x00, 0x48, 0x00, 0x00, 0x00]);
        wire[8..16].copy_from_slice(&[0x00, 0x40, 0x07, 0x00, 0x01, 0x00, 0x00, 0x00]);
        wire[47] = 0x5A;
        let flush = SubmissionEntry {
            flags: 0x40,
            command_id: 7.into(),
            nsid: 1.into(),
            sgl: crate::SglDescriptor::transport(0),
            ..SubmissionEntry::default()
        };
        assert_eq!(CapsuleCommand::new(flush, 0, Digests::NONE).as_bytes(), wire);
        assert_eq!(CapsuleCommand::read_from_bytes(&wire).unwrap().entry, flush);

        // Its answer with a header digest: PLEN 28.
        let mut wire = [0u8; 24];
        wire[..8].copy_from_slice(&[0x05, 0x01, 0x18, 0x00, 0x1C, 0x00, 0x00, 0x00]);
        wire[16..18].copy_from_slice(&[0x05, 0x00]);
        wire[20..22].copy_from_slice(&[0x07, 0x00]);
        let answer = CompletionEntry::new(7, 5, Status::SUCCESS);
        let digests = Digests { header: true, data: true };
        assert_eq!(CapsuleResponse::new(answer, digests).as_bytes(), wire);
    }
}
