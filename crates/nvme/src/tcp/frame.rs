use super::digest::Digests;
use super::flag;
use super::terminate::PduError;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// PDU types (TCP 1.0 section 3.6.1, figure 24).
pub mod pdu_type {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const IC_REQUEST: u8 = 0x00;
    pub const IC_RESPONSE: u8 = 0x01;
    pub const H2C_TERMINATE: u8 = 0x02;
    pub const C2H_TERMINATE: u8 = 0x03;
    pub const CAPSULE_COMMAND: u8 = 0x04;
    pub const CAPSULE_RESPONSE: u8 = 0x05;
    pub const H2C_DATA: u8 = 0x06;
    pub const C2H_DATA: u8 = 0x07;
    pub const READY_TO_TRANSFER: u8 = 0x09;
}

/// Longest header with its digest: that of ICReq and ICResp, which never carry one, is 128.
pub const HEADER_SIZE_MAX_BYTES: usize = 128;

/// Common header, 8 bytes (TCP 1.0 section 3.6.1, figure 23).
///
/// | offset | size | field                                                |
/// |-------:|-----:|------------------------------------------------------|
/// |      0 |    1 | PDU type                                             |
/// |      1 |    1 | flags                                                |
/// |      2 |    1 | HLEN: header without digest                          |
/// |      3 |    1 | PDO: start of data from the start of the PDU         |
/// |      4 |    4 | PLEN: the whole PDU with digests and padding         |
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CommonHeader {
    /// See [`pdu_type`].
    pub pdu_type: u8,
    /// See [`flag`].
    pub flags: u8,
    /// HLEN.
    pub header_length: u8,
    /// PDO.
    pub data_offset: u8,
    /// PLEN.
    pub length: U32,
}

const _: () = assert!(size_of::<CommonHeader>() == CommonHeader::SIZE_BYTES);

/// Who reads the PDU: each side takes other types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// The controller (target).
    Controller,
    /// The host (initiator).
    Host,
}

/// The borders inside a PDU whose common header was found right. All counted in bytes from its start. Small: it is handed on for
/// each command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pdu_type: u8,
    header_length: u8,
    header_end: u8,
    /// Start of the data, if there are any.
    data_offset: u8,
    header_digest: bool,
    data_digest: bool,
    data_length: u32,
    length: u32,
}

impl Frame {
    /// See [`pdu_type`].
    #[inline]
    pub fn pdu_type(&self) -> u8 {
        self.pdu_type
    }
    /// HLEN: end of the header, start of the header digest if there is one.
    #[inline]
    pub fn header_length(&self) -> usize {
        self.header_length.into()
    }
    /// Bytes to have before the header can be read: header and its digest.
    #[inline]
    pub fn header_end(&self) -> usize {
        self.header_end.into()
    }
    /// Start of the data; equal to the length if there is none.
    #[inline]
    pub fn data_start(&self) -> usize {
        if self.data_length > 0 { self.data_offset.into() } else { self.length() }
    }
    /// Data without its digest.
    #[inline]
    pub fn data_length(&self) -> usize {
        self.data_length as usize
    }
    /// PLEN.
    #[inline]
    pub fn length(&self) -> usize {
        self.length as usize
    }
    /// Whether a header digest is there.
    #[inline]
    pub fn header_digest(&self) -> bool {
        self.header_digest
    }
    /// Whether a data digest is there.
    #[inline]
    pub fn data_digest(&self) -> bool {
        self.data_digest
    }
}

/// What a type allows: (HLEN, may have a header digest, may have data, must have data).
#[inline]
fn shape(pdu_type: u8, receiver: Receiver) -> Option<(u8, bool, bool, bool)> {
    use Receiver::{Controller, Host};
    Some(match (pdu_type, receiver) {
        (pdu_type::CAPSULE_COMMAND, Controller) => (72, true, true, false),
        (pdu_type::H2C_DATA, Controller) => (24, true, true, true),
        (pdu_type::IC_REQUEST, Controller) => (128, false, false, false),
        (pdu_type::H2C_TERMINATE, Controller) => (24, false, true, false),
        (pdu_type::C2H_DATA, Host) => (24, true, true, true),
        (pdu_type::CAPSULE_RESPONSE, Host) => (24, true, false, false),
        (pdu_type::READY_TO_TRANSFER, Host) => (24, true, false, false),
        (pdu_type::IC_RESPONSE, Host) => (128, false, false, false),
        (pdu_type::C2H_TERMINATE, Host) => (24, false, true, false),
        _ => return None,
    })
}

impl CommonHeader {
    /// Size on the wire.
    pub const SIZE_BYTES: usize = 8;

    /// For a PDU that is being built: sets HLEN, PDO, PLEN and the digest flags.
    ///
    /// `header_length` and `data_length` are those of the PDU; alignment of data is 4 bytes, as every header has.
    #[inline]
    pub fn build(
        pdu_type: u8,
        flags: u8,
        header_length: usize,
        data_length: u32,
        digests: Digests,
    ) -> CommonHeader {
        let header_end = header_length + digests.header_bytes();
        let with_data = data_length > 0;
        let mut flags = flags;
        if digests.header {
            flags |= flag::HEADER_DIGEST;
        }
        let mut length = header_end as u32;
        if with_data {
            length += data_length + digests.data_bytes() as u32;
            if digests.data {
                flags |= flag::DATA_DIGEST;
            }
        }
        CommonHeader {
            pdu_type,
            flags,
            header_length: header_length as u8,
            data_offset: if with_data { header_end as u8 } else { 0 },
            length: length.into(),
        }
    }
}

impl Frame {
    /// Checks a common header against the type's shape and the digests agreed on, and finds the borders.
    ///
    /// `alignment` is what data must be aligned to (from CPDA or HPDA, in bytes, a multiple of 4);
    /// `data_length_max` is the most data the receiver takes in one PDU of this type.
    ///
    /// # Errors
    /// What to tell the peer; offsets in FEI are those of the common header (TCP 1.0 figure 23).
    #[inline]
    pub fn check(
        header: &CommonHeader,
        receiver: Receiver,
        digests: Digests,
        alignment: usize,
        data_length_max: u32,
    ) -> Result<Frame, PduError> {
        let Some((header_length, may_digest, may_data, must_data)) = shape(header.pdu_type, receiver) else {
            return Err(PduError::header("PDU-Type", 0, u64::from(header.pdu_type)));
        };
        let header_digest = may_digest && digests.header;
        if may_digest && (header.flags & flag::HEADER_DIGEST != 0) != header_digest {
            return Err(PduError::header("HDGSTF", 1, u64::from(header.flags)));
        }
        if header.header_length != header_length {
            return Err(PduError::header("HLEN", 2, u64::from(header.header_length)));
        }
        let length = header.length.get();
        let header_end = header_length + if header_digest { super::DIGEST_SIZE_BYTES as u8 } else { 0 };
        if length < u32::from(header_end) || (length == u32::from(header_end) && must_data) {
            return Err(PduError::header("PLEN", 4, u64::from(length)));
        }
        let mut frame = Frame {
            pdu_type: header.pdu_type,
            header_length,
            header_end,
            data_offset: 0,
            data_length: 0,
            length,
            header_digest,
            data_digest: false,
        };
        if length == u32::from(header_end) {
            return Ok(frame);
        }
        if !may_data {
            return Err(PduError::header("PLEN", 4, u64::from(length)));
        }
        if !may_digest {
            // Termination requests: data follow the header, PDO is reserved.
            frame.data_offset = header_end;
            frame.data_length = length - u32::from(header_end);
            if frame.data_length > data_length_max {
                return Err(PduError::header("PLEN", 4, u64::from(length)));
            }
            return Ok(frame);
        }
        frame.data_digest = digests.data;
        if (header.flags & flag::DATA_DIGEST != 0) != digests.data {
            return Err(PduError::header("DDGSTF", 1, u64::from(header.flags)));
        }
        frame.data_offset = header.data_offset;
        // What stands before PDO is the header, its digest and padding to the next border of `alignment`.
        let (start, end) = (usize::from(header.data_offset), usize::from(header_end));
        if start < end || !start.is_multiple_of(alignment) || start >= end + alignment {
            return Err(PduError::header("PDO", 3, u64::from(header.data_offset)));
        }
        let trailer = u32::from(header.data_offset) + digests.data_bytes() as u32;
        if length <= trailer || length - trailer > data_length_max {
            return Err(PduError::header("PLEN", 4, u64::from(length)));
        }
        frame.data_length = length - trailer;
        Ok(frame)
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::tcp::FatalError;

    const BOTH: Digests = Digests { header: true, data: true };

    fn check(wire: [u8; 8], digests: Digests) -> Result<Frame, PduError> {
        let header = CommonHeader::read_from_bytes(&wire).unwrap();
        Frame::check(&header, Receiver::Controller, digests, 4, 8192)
    }

    #[test]
    fn borders_of_a_command_with_data_and_digests() {
        // CapsuleCmd, both digests, HLEN 72, PDO 76, PLEN 76 + 4096 + 4 = 4176 = 1050h.
        let frame = check([0x04, 0x03, 0x48, 0x4C, 0x50, 0x10, 0, 0], BOTH).unwrap();
        assert_eq!(
            (frame.header_length(), frame.header_end(), frame.data_start(), frame.data_length()),
            (72, 76, 76, 4096)
        );
        let built = CommonHeader::build(pdu_type::CAPSULE_COMMAND, 0, 72, 4096, BOTH);
        assert_eq!(built.as_bytes(), [0x04, 0x03, 0x48, 0x4C, 0x50, 0x10, 0, 0]);
        // The same without data: no data digest, PDO 0.
        let frame = check([0x04, 0x01, 0x48, 0x00, 0x4C, 0x00, 0, 0], BOTH).unwrap();
        assert_eq!((frame.data_start(), frame.data_length(), frame.data_digest()), (76, 0, false));
    }

    #[test]
    fn wrong_fields_are_told_by_their_offset() {
        let cases: [([u8; 8], Digests, u32); 13] = [
            ([0x05, 0, 0x18, 0, 0x18, 0, 0, 0], Digests::NONE, 0), // a response, to a controller
            ([0x0B, 0, 0x18, 0, 0x18, 0, 0, 0], Digests::NONE, 0), // no such type
            ([0x04, 1, 0x48, 0, 0x4C, 0, 0, 0], Digests::NONE, 1), // digest that was not agreed on
            ([0x04, 0, 0x48, 0, 0x48, 0, 0, 0], BOTH, 1),          // missing header digest
            ([0x06, 1, 0x18, 0x1C, 0x30, 0, 0, 0], BOTH, 1),       // missing data digest
            ([0x04, 0, 0x40, 0, 0x48, 0, 0, 0], Digests::NONE, 2), // HLEN 64
            ([0x04, 0, 0x48, 0x00, 0x50, 0, 0, 0], Digests::NONE, 3), // data, but no PDO
            ([0x04, 0, 0x48, 0x4A, 0x50, 0, 0, 0], Digests::NONE, 3), // not aligned
            ([0x04, 0, 0x48, 0x4C, 0x50, 0, 0, 0], Digests::NONE, 3), // padding nobody asked for
            ([0x04, 0, 0x48, 0, 0x47, 0, 0, 0], Digests::NONE, 4), // shorter than its header
            ([0x04, 0, 0x48, 0x48, 0x49, 0x20, 0, 0], Digests::NONE, 4), // 8193 bytes of data
            ([0x06, 0, 0x18, 0, 0x18, 0, 0, 0], Digests::NONE, 4), // data PDU without data
            ([0x00, 0, 0x80, 0, 0x84, 0, 0, 0], Digests::NONE, 4), // ICReq with data
        ];
        for (wire, digests, offset) in cases {
            let error = check(wire, digests).expect_err("wrong header");
            assert_eq!(
                (error.fatal, error.information),
                (FatalError::InvalidHeaderField, offset),
                "{wire:02x?}"
            );
        }
    }

    #[test]
    fn any_header_is_answered() {
        for pdu_type in 0..=0x10u8 {
            for fill in [0, 1, 0x18, 0x48, 0x7F, 0x80, 0xFF] {
                for digests in [Digests::NONE, BOTH] {
                    for receiver in [Receiver::Controller, Receiver::Host] {
                        let wire = [pdu_type, fill, fill, fill, fill, fill, fill, fill];
                        let header = CommonHeader::read_from_bytes(&wire).unwrap();
                        if let Ok(frame) = Frame::check(&header, receiver, digests, 4, 8192) {
                            assert!(frame.header_end() <= frame.data_start());
                            assert!(frame.data_start() + frame.data_length() <= frame.length());
                        }
                    }
                }
            }
        }
    }
}
