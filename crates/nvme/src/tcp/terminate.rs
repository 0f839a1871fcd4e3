use super::frame::{CommonHeader, pdu_type};
use std::mem::offset_of;
use thiserror::Error;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// FES: why a connection is terminated (TCP 1.0 section 3.6.2.3 and 3.6.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FatalError {
    /// 01h: a header field is wrong; FEI = its offset.
    InvalidHeaderField,
    /// 02h: the PDU comes at a wrong time.
    SequenceError,
    /// 03h: the header digest does not match; FEI = the digest received.
    HeaderDigest,
    /// 04h: data outside of what was asked for.
    DataOutOfRange,
    /// 05h: more outstanding R2Ts than MAXR2T (told by a host), or data transfer limit exceeded.
    LimitExceeded,
    /// 06h: a parameter is not supported; FEI = its offset.
    UnsupportedParameter,
    /// A value the specification reserves.
    Reserved(u16),
}

impl FatalError {
    /// As FES.
    pub fn encode(self) -> u16 {
        match self {
            FatalError::InvalidHeaderField => 1,
            FatalError::SequenceError => 2,
            FatalError::HeaderDigest => 3,
            FatalError::DataOutOfRange => 4,
            FatalError::LimitExceeded => 5,
            FatalError::UnsupportedParameter => 6,
            FatalError::Reserved(value) => value,
        }
    }
    /// From FES.
    pub fn decode(value: u16) -> FatalError {
        match value {
            1 => FatalError::InvalidHeaderField,
            2 => FatalError::SequenceError,
            3 => FatalError::HeaderDigest,
            4 => FatalError::DataOutOfRange,
            5 => FatalError::LimitExceeded,
            6 => FatalError::UnsupportedParameter,
            other => FatalError::Reserved(other),
        }
    }
}

/// A PDU that ends the connection: what to tell the peer, and what to tell the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{fatal:?} in {field} (value {value:#x}, information {information:#x})")]
pub struct PduError {
    /// FES.
    pub fatal: FatalError,
    /// FEI.
    pub information: u32,
    /// Name of the field, as in the specification.
    pub field: &'static str,
    /// What it held.
    pub value: u64,
}

impl PduError {
    /// A wrong header field at `offset`.
    pub fn header(field: &'static str, offset: u32, value: u64) -> PduError {
        PduError { fatal: FatalError::InvalidHeaderField, information: offset, field, value }
    }
    /// A PDU at the wrong time.
    pub fn sequence(field: &'static str, value: u64) -> PduError {
        PduError { fatal: FatalError::SequenceError, information: 0, field, value }
    }
}

/// H2CTermReq and C2HTermReq (TCP 1.0 sections 3.6.2.3 and 3.6.2.4). The first bytes of the PDU that was wrong
/// follow as data.
///
/// | offset | size | field                  |
/// |-------:|-----:|------------------------|
/// |      0 |    8 | common header, HLEN 24 |
/// |      8 |    2 | FES                    |
/// |     10 |    4 | FEI                    |
/// |     14 |   10 | reserved               |
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TerminateRequest {
    /// Common header.
    pub common: CommonHeader,
    fatal: U16,
    information: U32,
    reserved_14: [u8; 10],
}

const _: () = {
    assert!(size_of::<TerminateRequest>() == TerminateRequest::SIZE_BYTES);
    assert!(offset_of!(TerminateRequest, information) == 10);
};

impl TerminateRequest {
    /// Size of the header.
    pub const SIZE_BYTES: usize = 24;
    /// Largest PLEN: the header and 128 bytes of the PDU that was wrong.
    pub const LENGTH_MAX_BYTES: usize = 152;

    /// To the host. `offending` is the header that was wrong (cut at 128 bytes), to be sent as data.
    pub fn to_host(error: &PduError, offending: &[u8]) -> (TerminateRequest, usize) {
        TerminateRequest::new(pdu_type::C2H_TERMINATE, error, offending)
    }
    /// To the controller.
    pub fn to_controller(error: &PduError, offending: &[u8]) -> (TerminateRequest, usize) {
        TerminateRequest::new(pdu_type::H2C_TERMINATE, error, offending)
    }

    fn new(pdu_type: u8, error: &PduError, offending: &[u8]) -> (TerminateRequest, usize) {
        let sent = offending.len().min(Self::LENGTH_MAX_BYTES - Self::SIZE_BYTES);
        let mut request = TerminateRequest::new_zeroed();
        request.common = CommonHeader {
            pdu_type,
            flags: 0,
            header_length: Self::SIZE_BYTES as u8,
            data_offset: 0,
            length: ((Self::SIZE_BYTES + sent) as u32).into(),
        };
        request.fatal = error.fatal.encode().into();
        request.information = error.information.into();
        (request, sent)
    }
    /// FES.
    pub fn fatal_error(&self) -> FatalError {
        FatalError::decode(self.fatal.get())
    }
    /// FEI.
    pub fn information(&self) -> u32 {
        self.information.get()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_termination_names_its_reason() {
        // Header digest 0x12345678 was wrong; a 72-byte header comes back.
        let wire = [
            0x03, 0x00, 0x18, 0x00, 0x60, 0x00, 0x00, 0x00, 0x03, 0x00, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0,
        ];
        let error = PduError {
            fatal: FatalError::HeaderDigest,
            information: 0x1234_5678,
            field: "HDGST",
            value: 0x1234_5678,
        };
        let (request, sent) = TerminateRequest::to_host(&error, &[0; 72]);
        assert_eq!((request.as_bytes(), sent), (&wire[..], 72));
        let read = TerminateRequest::read_from_bytes(&wire).unwrap();
        assert_eq!((read.fatal_error(), read.information()), (FatalError::HeaderDigest, 0x1234_5678));
        let (request, sent) = TerminateRequest::to_controller(&error, &[0; 500]);
        assert_eq!((request.common.pdu_type, request.common.length.get(), sent), (2, 152, 128));
    }
}
