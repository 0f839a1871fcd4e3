//! The OOB record: the first 32 bytes of every page's OOB, little endian.
//!
//! | byte | type | meaning |
//! |---|---|---|
//! | 0 | u32 | CRC-32C of bytes 4..32 |
//! | 4 | u8 | version, 1; a reader refuses others |
//! | 5 | u8 | kind: 1 data, 2 copy (migration), 3 log of block states |
//! | 6 | u8 | purpose, as the holder said |
//! | 7 | u8 | bit 0: the page could not be read when its block was moved here; what it holds means nothing |
//! | 8 | u32 | owner generation: the vSSD's id; for kind 3 the log's rotation |
//! | 12 | u16 | unit |
//! | 14 | u24 | logical block index within the unit |
//! | 17 | u24 | kinds 1, 3: page within the block; kind 2: pages the copy has when it is complete |
//! | 20 | u64 | allocation sequence of the block |
//! | 28 | u32 | erase count of the physical block |
//!
//! Torn or rotten records fail the CRC and are treated as absent. The record is the
//! cross-check of the block states at opening (`check.rs`); the sequence goes on over restarts with the states.

use crate::u24::U24;
use crate::{LogicalBlock, Purpose, UnitIndex, VssdId};
use diecut_units::checksum;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A record as it is stored.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Stored {
    check: U32,
    version: u8,
    kind: u8,
    purpose: u8,
    flags: u8,
    owner: U32,
    unit: U16,
    index: U24,
    page_or_length: U24,
    sequence: U64,
    erase_count: U32,
}

const VERSION: u8 = 1;
const IS_LOST: u8 = 1;
/// Bytes of the record; the holder's part of the OOB starts behind it.
pub const OOB_RECORD_SIZE_BYTES: usize = size_of::<Stored>();
const _: () = assert!(OOB_RECORD_SIZE_BYTES == 32 && offset_of!(Stored, sequence) == 20);

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OobKind {
    /// Appended by a holder.
    Data,
    /// Copied by an exchange of blocks; only complete copies count.
    Copy,
    /// The log of block states.
    StateLog,
}

/// One page's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OobRecord {
    /// What the page is.
    pub kind: OobKind,
    /// As the holder said.
    pub purpose: Purpose,
    /// Owner generation.
    pub owner: VssdId,
    /// Logical address.
    pub block: LogicalBlock,
    /// Page within the block, or length of the complete copy.
    pub page_or_length: u32,
    /// Allocation sequence.
    pub sequence: u64,
    /// Erases of the physical block.
    pub erase_count: u32,
    /// The page could not be read when its block was moved here: it holds nothing.
    pub is_lost: bool,
}

impl OobRecord {
    /// Writes the record to the first 32 bytes.
    ///
    /// # Panics
    /// If there are fewer, or a number does not fit its field.
    pub fn encode(&self, bytes: &mut [u8]) {
        let stored = Stored {
            check: 0.into(),
            version: VERSION,
            kind: match self.kind {
                OobKind::Data => 1,
                OobKind::Copy => 2,
                OobKind::StateLog => 3,
            },
            purpose: self.purpose.0,
            flags: if self.is_lost { IS_LOST } else { 0 },
            owner: self.owner.0.into(),
            unit: self.block.unit.0.into(),
            index: U24::new(self.block.index),
            page_or_length: U24::new(self.page_or_length),
            sequence: self.sequence.into(),
            erase_count: self.erase_count.into(),
        };
        let bytes = &mut bytes[..OOB_RECORD_SIZE_BYTES];
        bytes.copy_from_slice(stored.as_bytes());
        let check = checksum(&bytes[4..]);
        bytes[..4].copy_from_slice(U32::from(check).as_bytes());
    }

    /// Reads a record; `None` if there is none that holds.
    pub fn decode(bytes: &[u8]) -> Option<OobRecord> {
        let (stored, _) = Stored::ref_from_prefix(bytes).ok()?;
        if stored.check != checksum(&stored.as_bytes()[4..]) || stored.version != VERSION {
            return None;
        }
        let kind = match stored.kind {
            1 => OobKind::Data,
            2 => OobKind::Copy,
            3 => OobKind::StateLog,
            _ => return None,
        };
        Some(OobRecord {
            kind,
            purpose: Purpose(stored.purpose),
            owner: VssdId(stored.owner.get()),
            block: LogicalBlock { unit: UnitIndex(stored.unit.get()), index: stored.index.get() },
            page_or_length: stored.page_or_length.get(),
            sequence: stored.sequence.get(),
            erase_count: stored.erase_count.get(),
            is_lost: stored.flags & IS_LOST != 0,
        })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: the layout is pinned. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_a_record() {
        let record = OobRecord {
            kind: OobKind::StateLog,
            purpose: Purpose(0x21),
            owner: VssdId(0x0403_0201),
            block: LogicalBlock { unit: UnitIndex(0x0605), index: 0x09_0807 },
            page_or_length: 0x0c_0b0a,
            sequence: 0x1817_1615_1413_1211,
            erase_count: 0x2423_2221,
            is_lost: true,
        };
        let mut golden = [
            0, 0, 0, 0, 1, 3, 0x21, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x11, 0x12, 0x13, 0x14, 0x15,
            0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24,
        ];
        let check = checksum(&golden[4..]).to_le_bytes();
        golden[..4].copy_from_slice(&check);
        let mut bytes = [0xee; 40];
        record.encode(&mut bytes);
        assert_eq!((&bytes[..32], &bytes[32..]), (&golden[..], &[0xee; 8][..]));
    }

    #[test]
    fn a_record_comes_back_and_any_flipped_bit_is_seen() {
        let record = OobRecord {
            kind: OobKind::Copy,
            purpose: Purpose(7),
            owner: VssdId(0x1234_5678),
            block: LogicalBlock { unit: UnitIndex(513), index: 70_000 },
            page_or_length: 1024,
            sequence: 3 << 40 | 17,
            erase_count: 90_000,
            is_lost: true,
        };
        let mut bytes = [0; 32];
        record.encode(&mut bytes);
        assert_eq!(OobRecord::decode(&bytes), Some(record));
        for bit in 0..256 {
            let mut bent = bytes;
            bent[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(OobRecord::decode(&bent), None, "bit {bit}");
        }
        assert_eq!(OobRecord::decode(&[0; 32]), None);
        assert_eq!(OobRecord::decode(&bytes[..31]), None);
    }
}
