//! The OOB record: the first 32 bytes of every page's OOB, little endian.
//!
//! ```text
//! 0  u32 CRC-32C of bytes 4..32
//! 4  u8  version, 1; a reader refuses others
//! 5  u8  kind: 1 data, 2 copy (migration), 3 log of block states
//! 6  u8  purpose, as the holder said
//! 7  u8  bit 0: the page could not be read when its block was moved here; what it holds means nothing
//! 8  u32 owner generation: the vSSD's id; for kind 3 the log's rotation
//! 12 u16 unit
//! 14 u24 logical block index within the unit
//! 17 u24 kind 1, 3: page within the block; kind 2: pages the copy has when it is complete
//! 20 u64 allocation sequence of the block
//! 28 u32 erase count of the physical block
//! ```
//!
//! Torn or rotten records fail the CRC and are treated as absent. The record is the
//! cross-check of the block states at opening (`check.rs`); the sequence goes on over restarts with the states.

use crate::{LogicalBlock, Purpose, UnitIndex, VssdId};
use diecut_units::checksum;

/// Bytes of the record; the holder's part of the OOB starts behind it.
pub const OOB_RECORD_SIZE_BYTES: usize = 32;

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
        assert!(
            self.block.index < 1 << 24 && self.page_or_length < 1 << 24,
            "24-bit fields of the OOB record"
        );
        bytes[4] = 1;
        bytes[5] = match self.kind {
            OobKind::Data => 1,
            OobKind::Copy => 2,
            OobKind::StateLog => 3,
        };
        bytes[6] = self.purpose.0;
        bytes[7] = u8::from(self.is_lost);
        bytes[8..12].copy_from_slice(&self.owner.0.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.block.unit.0.to_le_bytes());
        bytes[14..17].copy_from_slice(&self.block.index.to_le_bytes()[..3]);
        bytes[17..20].copy_from_slice(&self.page_or_length.to_le_bytes()[..3]);
        bytes[20..28].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.erase_count.to_le_bytes());
        let crc = checksum(&bytes[4..32]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads a record; `None` if there is none that holds.
    pub fn decode(bytes: &[u8]) -> Option<OobRecord> {
        let bytes: &[u8; 32] = bytes.get(..32)?.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if word(0) != checksum(&bytes[4..]) || bytes[4] != 1 {
            return None;
        }
        let kind = match bytes[5] {
            1 => OobKind::Data,
            2 => OobKind::Copy,
            3 => OobKind::StateLog,
            _ => return None,
        };
        Some(OobRecord {
            kind,
            purpose: Purpose(bytes[6]),
            owner: VssdId(word(8)),
            block: LogicalBlock {
                unit: UnitIndex(u16::from_le_bytes([bytes[12], bytes[13]])),
                index: u32::from_le_bytes([bytes[14], bytes[15], bytes[16], 0]),
            },
            page_or_length: u32::from_le_bytes([bytes[17], bytes[18], bytes[19], 0]),
            sequence: u64::from_le_bytes(bytes[20..28].try_into().expect("eight bytes")),
            erase_count: word(28),
            is_lost: bytes[7] & 1 == 1,
        })
    }
}

#[cfg(test)]
mod test {
    use super::*;

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
