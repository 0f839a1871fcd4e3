use crate::status::Status;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One entry of the error information log, LID 01h, 64 bytes (Base 2.0 section 5.16.1.2, figure 206). The newest
/// entry comes first; an entry with error count 0 is unused.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ErrorEntry {
    /// Rises with each error of the controller's life.
    pub error_count: U64,
    /// Queue of the command.
    pub queue_id: U16,
    /// The command.
    pub command_id: U16,
    #[doc(hidden)]
    pub status_field: U16,
    /// Byte and bit of the command that was wrong; FFFFh = no particular one.
    pub parameter_location: U16,
    /// First LBA that failed.
    pub lba: U64,
    /// Namespace.
    pub nsid: U32,
    /// Vendor specific log page with more; 0 = none.
    pub vendor_page: u8,
    /// Transport type (3 = TCP).
    pub transport_type: u8,
    #[doc(hidden)]
    pub reserved_30: [u8; 2],
    /// Command specific.
    pub command_specific: U64,
    /// Transport specific.
    pub transport_specific: U16,
    #[doc(hidden)]
    pub reserved_42: [u8; 22],
}

const _: () = {
    assert!(size_of::<ErrorEntry>() == ErrorEntry::SIZE_BYTES);
    assert!(offset_of!(ErrorEntry, lba) == 16);
    assert!(offset_of!(ErrorEntry, command_specific) == 32);
};

impl ErrorEntry {
    /// Size on the wire.
    pub const SIZE_BYTES: usize = 64;

    /// The status, without the phase tag.
    pub fn status(&self) -> Status {
        Status::from_bits(self.status_field.get() >> 1)
    }
    /// Sets the status.
    pub fn set_status(&mut self, status: Status) {
        self.status_field = (status.bits() << 1).into();
    }
}
