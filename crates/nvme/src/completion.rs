use crate::status::Status;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Completion queue entry, 16 bytes (Base 2.0 section 3.3.3.2, figure 89 and 91).
///
/// | offset | size | field                                                |
/// |-------:|-----:|------------------------------------------------------|
/// |      0 |    4 | dword 0, command specific                            |
/// |      4 |    4 | dword 1, command specific                            |
/// |      8 |    2 | SQ head pointer (reserved without SQ flow control)   |
/// |     10 |    2 | SQ id (reserved on fabrics)                          |
/// |     12 |    2 | command id                                           |
/// |     14 |    2 | phase tag in bit 0 (zero on fabrics), status in 15:1 |
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CompletionEntry {
    /// Dword 0.
    pub dw0: U32,
    /// Dword 1.
    pub dw1: U32,
    /// SQHD.
    pub sq_head: U16,
    /// SQID; reserved on fabrics.
    pub sq_id: U16,
    /// Which command this answers.
    pub command_id: U16,
    status_field: U16,
}

const _: () = assert!(size_of::<CompletionEntry>() == CompletionEntry::SIZE_BYTES);

impl CompletionEntry {
    /// Size on the wire.
    pub const SIZE_BYTES: usize = 16;

    /// An answer without a result.
    #[inline]
    pub fn new(command_id: u16, sq_head: u16, status: Status) -> CompletionEntry {
        CompletionEntry::with_result(command_id, sq_head, status, 0)
    }
    /// An answer with a result in dwords 0 (low half) and 1 (high half).
    #[inline]
    pub fn with_result(command_id: u16, sq_head: u16, status: Status, result: u64) -> CompletionEntry {
        CompletionEntry {
            dw0: (result as u32).into(),
            dw1: ((result >> 32) as u32).into(),
            sq_head: sq_head.into(),
            sq_id: 0.into(),
            command_id: command_id.into(),
            status_field: (status.bits() << 1).into(),
        }
    }
    /// The status, without the phase tag.
    #[inline]
    pub fn status(&self) -> Status {
        Status::from_bits(self.status_field.get() >> 1)
    }
    /// Dwords 0 and 1 as one number.
    pub fn result(&self) -> u64 {
        u64::from(self.dw0.get()) | u64::from(self.dw1.get()) << 32
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn an_answer_has_its_fields_where_the_figure_puts_them() {
        // Invalid Field with DNR for command 0x0102, SQHD 9, dwords 0 and 1 filled. Status field by hand:
        // SC 02h << 1 = 0004h, DNR = bit 15.
        let wire =
            [0x78, 0x56, 0x34, 0x12, 0xF0, 0xDE, 0xBC, 0x9A, 0x09, 0x00, 0x00, 0x00, 0x02, 0x01, 0x04, 0x80];
        let cqe = CompletionEntry::with_result(
            0x0102,
            9,
            Status::INVALID_FIELD.do_not_retry(),
            0x9ABC_DEF0_1234_5678,
        );
        assert_eq!(cqe.as_bytes(), wire);
        let read = CompletionEntry::read_from_bytes(&wire).unwrap();
        assert_eq!(read.status(), Status::INVALID_FIELD.do_not_retry());
        assert_eq!(read.result(), 0x9ABC_DEF0_1234_5678);
        assert_eq!(read.command_id.get(), 0x0102);
    }
}
