use super::digest::Digests;
use super::frame::{CommonHeader, pdu_type};
use super::terminate::{FatalError, PduError};
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// PFV: the one version of the PDU format there is (TCP 1.0 section 3.6.2.1).
pub const PDU_FORMAT_VERSION: u16 = 0;
/// Least MAXH2CDATA that a controller may report (TCP 1.0 section 3.6.2.2); Linux refuses less.
pub const MAXH2CDATA_MIN_BYTES: u32 = 4096;

/// ICReq, 128 bytes (TCP 1.0 section 3.6.2.1).
///
/// | offset | size | field                                                     |
/// |-------:|-----:|-----------------------------------------------------------|
/// |      0 |    8 | common header                                             |
/// |      8 |    2 | PFV                                                       |
/// |     10 |    1 | HPDA: alignment of data to the host, 0's based dwords     |
/// |     11 |    1 | DGST                                                      |
/// |     12 |    4 | MAXR2T: R2Ts the host takes per command, 0's based        |
/// |     16 |  112 | reserved                                                  |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InitializeRequest {
    /// Common header.
    pub common: CommonHeader,
    /// PFV.
    pub format_version: U16,
    /// HPDA, 0's based dwords, 0 to 31.
    pub host_alignment: u8,
    /// DGST.
    pub digests: u8,
    /// MAXR2T, 0's based.
    pub max_r2t: U32,
    reserved_16: [u8; 112],
}

/// ICResp, 128 bytes (TCP 1.0 section 3.6.2.2).
///
/// | offset | size | field                                                     |
/// |-------:|-----:|-----------------------------------------------------------|
/// |      0 |    8 | common header                                             |
/// |      8 |    2 | PFV                                                       |
/// |     10 |    1 | CPDA: alignment of data to the controller, 0's based      |
/// |     11 |    1 | DGST: what is used                                        |
/// |     12 |    4 | MAXH2CDATA: data per H2CData PDU, multiple of 4           |
/// |     16 |  112 | reserved                                                  |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InitializeResponse {
    /// Common header.
    pub common: CommonHeader,
    /// PFV.
    pub format_version: U16,
    /// CPDA, 0's based dwords, 0 to 31.
    pub controller_alignment: u8,
    /// DGST.
    pub digests: u8,
    /// MAXH2CDATA in bytes.
    pub max_h2c_data_bytes: U32,
    reserved_16: [u8; 112],
}

const _: () = {
    assert!(size_of::<InitializeRequest>() == 128);
    assert!(size_of::<InitializeResponse>() == 128);
    assert!(offset_of!(InitializeRequest, max_r2t) == 12);
    assert!(offset_of!(InitializeResponse, max_h2c_data_bytes) == 12);
};

impl InitializeRequest {
    /// Size on the wire.
    pub const SIZE_BYTES: usize = 128;

    /// What a host sends: one R2T at a time, no alignment, these digests.
    pub fn new(digests: Digests) -> InitializeRequest {
        let mut request = InitializeRequest::new_zeroed();
        request.common = CommonHeader::build(pdu_type::IC_REQUEST, 0, Self::SIZE_BYTES, 0, Digests::NONE);
        request.digests = digests.encode();
        request
    }
    /// Checks what a controller cannot work with.
    ///
    /// # Errors
    /// Unsupported parameter with its offset: another format version, or an alignment beyond 128 bytes.
    pub fn validate(&self) -> Result<(), PduError> {
        let unsupported = |field, information, value| {
            Err(PduError { fatal: FatalError::UnsupportedParameter, information, field, value })
        };
        if self.format_version.get() != PDU_FORMAT_VERSION {
            return unsupported("PFV", 8, u64::from(self.format_version.get()));
        }
        if self.host_alignment > 31 {
            return unsupported("HPDA", 10, u64::from(self.host_alignment));
        }
        Ok(())
    }
    /// HPDA in bytes: 4 to 128.
    pub fn host_alignment_bytes(&self) -> usize {
        (usize::from(self.host_alignment) + 1) * 4
    }
}

impl InitializeResponse {
    /// Size on the wire.
    pub const SIZE_BYTES: usize = 128;

    /// What a controller answers; Linux refuses a CPDA other than 0, so there is none to choose.
    pub fn new(digests: Digests, max_h2c_data_bytes: u32) -> InitializeResponse {
        let mut response = InitializeResponse::new_zeroed();
        response.common = CommonHeader::build(pdu_type::IC_RESPONSE, 0, Self::SIZE_BYTES, 0, Digests::NONE);
        response.digests = digests.encode();
        response.max_h2c_data_bytes = max_h2c_data_bytes.into();
        response
    }
    /// Checks what a host cannot work with, as Linux does.
    ///
    /// # Errors
    /// Unsupported parameter with its offset.
    pub fn validate(&self, asked: Digests) -> Result<(), PduError> {
        let unsupported = |field, information, value| {
            Err(PduError { fatal: FatalError::UnsupportedParameter, information, field, value })
        };
        if self.format_version.get() != PDU_FORMAT_VERSION {
            return unsupported("PFV", 8, u64::from(self.format_version.get()));
        }
        if self.controller_alignment > 31 {
            return unsupported("CPDA", 10, u64::from(self.controller_alignment));
        }
        let used = Digests::decode(self.digests);
        if used.and(asked) != used {
            return unsupported("DGST", 11, u64::from(self.digests));
        }
        let max = self.max_h2c_data_bytes.get();
        if max < MAXH2CDATA_MIN_BYTES || !max.is_multiple_of(4) {
            return unsupported("MAXH2CDATA", 12, u64::from(max));
        }
        Ok(())
    }
    /// CPDA in bytes: 4 to 128.
    pub fn controller_alignment_bytes(&self) -> usize {
        (usize::from(self.controller_alignment) + 1) * 4
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn initialization_is_what_linux_sends_and_expects() {
        // ICReq of a Linux host with both digests: HPDA 0, MAXR2T 0.
        let mut wire = [0u8; 128];
        wire[..8].copy_from_slice(&[0x00, 0x00, 0x80, 0x00, 0x80, 0x00, 0x00, 0x00]);
        wire[11] = 0x03;
        let request = InitializeRequest::new(Digests { header: true, data: true });
        assert_eq!(request.as_bytes(), wire);
        let read = InitializeRequest::read_from_bytes(&wire).unwrap();
        assert_eq!(read.validate(), Ok(()));
        assert_eq!(read.host_alignment_bytes(), 4);

        // ICResp: header digest only, MAXH2CDATA 128 KiB.
        let mut wire = [0u8; 128];
        wire[..8].copy_from_slice(&[0x01, 0x00, 0x80, 0x00, 0x80, 0x00, 0x00, 0x00]);
        wire[11] = 0x01;
        wire[12..16].copy_from_slice(&[0x00, 0x00, 0x02, 0x00]);
        let header_only = Digests { header: true, data: false };
        assert_eq!(InitializeResponse::new(header_only, 128 * 1024).as_bytes(), wire);
        let read = InitializeResponse::read_from_bytes(&wire).unwrap();
        assert_eq!(read.validate(Digests { header: true, data: true }), Ok(()));
        assert_eq!(read.validate(Digests::NONE).unwrap_err().information, 11);
    }

    #[test]
    fn unsupported_parameters_are_told_by_their_offset() {
        let mut request = InitializeRequest::new(Digests::NONE);
        request.host_alignment = 32;
        assert_eq!(request.validate().unwrap_err().information, 10);
        request.format_version = 1.into();
        let error = request.validate().unwrap_err();
        assert_eq!((error.fatal, error.information), (FatalError::UnsupportedParameter, 8));
        let response = InitializeResponse::new(Digests::NONE, 4094);
        assert_eq!(response.validate(Digests::NONE).unwrap_err().information, 12);
    }
}
