//! Entries of the chunk notification log.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Entries that a log has at most.
pub const LOG_ENTRIES_MAX: usize = 64;

/// What an entry says of its chunk.
pub mod notification_state {
    /// The error rate became low.
    pub const ERROR_RATE_LOW: u16 = 1 << 0;
    /// The error rate became medium.
    pub const ERROR_RATE_MEDIUM: u16 = 1 << 1;
    /// The error rate became high: what lies there is to be written elsewhere.
    pub const ERROR_RATE_HIGH: u16 = 1 << 2;
    /// Something cannot be read any more.
    pub const UNRECOVERABLE: u16 = 1 << 3;
    /// The device wrote the chunk anew.
    pub const REFRESHED: u16 = 1 << 4;
    /// Its wear-level index is not within the threshold around the average one.
    pub const WEAR_BEYOND_THRESHOLD: u16 = 1 << 8;
}

/// What the address of an entry stands for.
pub mod notification_mask {
    /// Logical blocks from it on, as many as the entry says.
    pub const LOGICAL_BLOCKS: u8 = 1 << 0;
    /// Its chunk.
    pub const CHUNK: u8 = 1 << 1;
    /// All chunks of its parallel unit.
    pub const PARALLEL_UNIT: u8 = 1 << 2;
}

/// An entry of log page D0h.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ChunkNotification {
    /// NC: rises by 1 with each entry, from 1 on. 0: no entry.
    pub count: U64,
    /// Where.
    pub lba: U64,
    /// Of which namespace.
    pub nsid: U32,
    /// See [`notification_state`].
    pub state: U16,
    /// See [`notification_mask`].
    pub mask: u8,
    /// Reserved: 0.
    pub reserved_23: [u8; 9],
    /// Logical blocks, 0's based; only with [`notification_mask::LOGICAL_BLOCKS`].
    pub block_count: U16,
    /// Reserved: 0.
    pub reserved_34: [u8; 30],
}

impl ChunkNotification {
    /// Bytes of an entry.
    pub const SIZE_BYTES: usize = size_of::<ChunkNotification>();
}

const _: () = assert!(ChunkNotification::SIZE_BYTES == 64);

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: fields of an entry are where the specification has them. Method: bytes by hand.
    #[test]
    fn the_bytes_of_an_entry() {
        let entry = ChunkNotification {
            count: 0x0102_0304_0506_0708.into(),
            lba: 0x1112_1314_1516_1718.into(),
            nsid: 0x2122_2324.into(),
            state: (notification_state::ERROR_RATE_HIGH | notification_state::WEAR_BEYOND_THRESHOLD).into(),
            mask: notification_mask::LOGICAL_BLOCKS,
            block_count: 0x3132.into(),
            ..ChunkNotification::default()
        };
        let mut expected = [0; 64];
        expected[..16]
            .copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]);
        expected[16..23].copy_from_slice(&[0x24, 0x23, 0x22, 0x21, 4, 1, 1]);
        expected[32..34].copy_from_slice(&[0x32, 0x31]);
        assert_eq!(entry.as_bytes(), expected);
        assert_eq!(ChunkNotification::read_from_bytes(&expected).unwrap(), entry);
    }
}
