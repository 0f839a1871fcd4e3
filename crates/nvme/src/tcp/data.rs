use super::digest::Digests;
use super::flag;
use super::frame::{CommonHeader, pdu_type};
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Header of H2CData, 24 bytes (TCP 1.0 section 3.6.2.7); data follow.
///
/// | offset | size | field                                              |
/// |-------:|-----:|----------------------------------------------------|
/// |      0 |    8 | common header                                      |
/// |      8 |    2 | CCCID: the command                                 |
/// |     10 |    2 | TTAG: from the R2T                                 |
/// |     12 |    4 | DATAO: offset in the data of the command           |
/// |     16 |    4 | DATAL: bytes in this PDU                           |
/// |     20 |    4 | reserved                                           |
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DataToController {
    /// Common header.
    pub common: CommonHeader,
    /// CCCID.
    pub command_id: U16,
    /// TTAG.
    pub transfer_tag: U16,
    /// DATAO.
    pub offset: U32,
    /// DATAL.
    pub length: U32,
    reserved_20: [u8; 4],
}

/// Header of C2HData, 24 bytes (TCP 1.0 section 3.6.2.8); data follow. As H2CData without a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DataToHost {
    /// Common header.
    pub common: CommonHeader,
    /// CCCID.
    pub command_id: U16,
    reserved_10: [u8; 2],
    /// DATAO.
    pub offset: U32,
    /// DATAL.
    pub length: U32,
    reserved_20: [u8; 4],
}

/// R2T, 24 bytes (TCP 1.0 section 3.6.2.9).
///
/// | offset | size | field                                              |
/// |-------:|-----:|----------------------------------------------------|
/// |      0 |    8 | common header                                      |
/// |      8 |    2 | CCCID: the command                                 |
/// |     10 |    2 | TTAG: comes back with the data                     |
/// |     12 |    4 | R2TO: offset in the data of the command            |
/// |     16 |    4 | R2TL: bytes asked for                              |
/// |     20 |    4 | reserved                                           |
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ReadyToTransfer {
    /// Common header.
    pub common: CommonHeader,
    /// CCCID.
    pub command_id: U16,
    /// TTAG.
    pub transfer_tag: U16,
    /// R2TO.
    pub offset: U32,
    /// R2TL.
    pub length: U32,
    reserved_20: [u8; 4],
}

const _: () = {
    assert!(size_of::<DataToController>() == DataToController::SIZE_BYTES);
    assert!(size_of::<DataToHost>() == DataToHost::SIZE_BYTES);
    assert!(size_of::<ReadyToTransfer>() == ReadyToTransfer::SIZE_BYTES);
    assert!(offset_of!(DataToController, offset) == 12);
    assert!(offset_of!(DataToHost, length) == 16);
    assert!(offset_of!(ReadyToTransfer, length) == 16);
};

impl DataToController {
    /// Size of the header.
    pub const SIZE_BYTES: usize = 24;

    /// A part of a command's data; `last` marks the last part of what the R2T asked for.
    pub fn new(
        command_id: u16,
        transfer_tag: u16,
        offset: u32,
        length: u32,
        last: bool,
        digests: Digests,
    ) -> DataToController {
        let flags = if last { flag::LAST } else { 0 };
        DataToController {
            common: CommonHeader::build(pdu_type::H2C_DATA, flags, Self::SIZE_BYTES, length, digests),
            command_id: command_id.into(),
            transfer_tag: transfer_tag.into(),
            offset: offset.into(),
            length: length.into(),
            reserved_20: [0; 4],
        }
    }
    /// LAST_PDU.
    #[inline]
    pub fn is_last(&self) -> bool {
        self.common.flags & flag::LAST != 0
    }
}

impl DataToHost {
    /// Size of the header.
    pub const SIZE_BYTES: usize = 24;

    /// A part of a command's data. `flags` is [`flag::LAST`] and [`flag::SUCCESS`] as needed; `data_start` is where
    /// data begin in the PDU when the host asked for an alignment beyond 4 bytes.
    #[inline]
    pub fn new(
        command_id: u16,
        offset: u32,
        length: u32,
        flags: u8,
        digests: Digests,
        alignment: usize,
    ) -> DataToHost {
        let mut common = CommonHeader::build(pdu_type::C2H_DATA, flags, Self::SIZE_BYTES, length, digests);
        if alignment > 4 {
            let padding = Self::padding_bytes(digests, alignment);
            common.data_offset += padding as u8;
            common.length = (common.length.get() + padding as u32).into();
        }
        DataToHost {
            common,
            command_id: command_id.into(),
            reserved_10: [0; 2],
            offset: offset.into(),
            length: length.into(),
            reserved_20: [0; 4],
        }
    }
    /// Zeros between header (with its digest) and data, for an alignment asked for in HPDA.
    pub fn padding_bytes(digests: Digests, alignment: usize) -> usize {
        let header_end = Self::SIZE_BYTES + digests.header_bytes();
        header_end.next_multiple_of(alignment) - header_end
    }
    /// LAST_PDU.
    #[inline]
    pub fn is_last(&self) -> bool {
        self.common.flags & flag::LAST != 0
    }
    /// SUCCESS.
    #[inline]
    pub fn is_success(&self) -> bool {
        self.common.flags & flag::SUCCESS != 0
    }
}

impl ReadyToTransfer {
    /// Size of the header.
    pub const SIZE_BYTES: usize = 24;

    /// Asks for a part of a command's data.
    pub fn new(
        command_id: u16,
        transfer_tag: u16,
        offset: u32,
        length: u32,
        digests: Digests,
    ) -> ReadyToTransfer {
        ReadyToTransfer {
            common: CommonHeader::build(pdu_type::READY_TO_TRANSFER, 0, Self::SIZE_BYTES, 0, digests),
            command_id: command_id.into(),
            transfer_tag: transfer_tag.into(),
            offset: offset.into(),
            length: length.into(),
            reserved_20: [0; 4],
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn data_pdus_have_their_fields_where_the_figures_put_them() {
        // H2CData: CID 0x0102, TTAG 3, bytes 4096..8192, last, no digests; PLEN 24 + 4096 = 1018h.
        let wire = [
            0x06, 0x04, 0x18, 0x18, 0x18, 0x10, 0, 0, 0x02, 0x01, 0x03, 0x00, 0x00, 0x10, 0, 0, 0x00, 0x10,
            0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(DataToController::new(0x0102, 3, 4096, 4096, true, Digests::NONE).as_bytes(), wire);
        // C2HData: whole read of 512 bytes with SUCCESS, both digests; PDO 28, PLEN 28 + 512 + 4 = 220h.
        let wire = [
            0x07, 0x0F, 0x18, 0x1C, 0x20, 0x02, 0, 0, 0x09, 0x00, 0, 0, 0, 0, 0, 0, 0x00, 0x02, 0, 0, 0, 0,
            0, 0,
        ];
        let both = Digests { header: true, data: true };
        let data = DataToHost::new(9, 0, 512, flag::LAST | flag::SUCCESS, both, 4);
        assert_eq!(data.as_bytes(), wire);
        assert!(data.is_last() && data.is_success());
        // R2T for bytes 0..131072 of command 9, tag 1.
        let wire = [
            0x09, 0x00, 0x18, 0x00, 0x18, 0, 0, 0, 0x09, 0x00, 0x01, 0x00, 0, 0, 0, 0, 0x00, 0x00, 0x02,
            0x00, 0, 0, 0, 0,
        ];
        assert_eq!(ReadyToTransfer::new(9, 1, 0, 131072, Digests::NONE).as_bytes(), wire);
    }

    #[test]
    fn data_are_padded_to_what_the_host_asked_for() {
        // HPDA 15 = 64 bytes: header 24 (or 28 with digest), data at 64.
        let header_only = Digests { header: true, data: false };
        let data = DataToHost::new(1, 0, 512, flag::LAST, header_only, 64);
        assert_eq!(DataToHost::padding_bytes(header_only, 64), 36);
        assert_eq!((data.common.data_offset, data.common.length.get()), (64, 576));
    }
}
