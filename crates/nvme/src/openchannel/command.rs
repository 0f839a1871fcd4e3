//! Vector commands, decoded from a submission entry.

use crate::submission::SubmissionEntry;

/// Logical blocks that one vector command can name: its count has 6 bits.
pub const LBAS_MAX: u32 = 64;

/// The dwords that vector commands share (OC figures 21 to 30).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorCommand {
    /// The logical block, if it is a single one; of a read without a list the first one.
    pub lba: u64,
    /// Number of logical blocks, 1 to [`LBAS_MAX`]: bits 5:0 of dword 12, converted from 0's based.
    pub count: u32,
    /// Of a copy: where its single logical block goes.
    pub destination: u64,
}

impl VectorCommand {
    /// From command dwords 10 to 15.
    #[inline]
    pub fn decode(entry: &SubmissionEntry) -> VectorCommand {
        VectorCommand {
            lba: entry.starting_lba(),
            count: (entry.cdw12.get() & (LBAS_MAX - 1)) + 1,
            destination: u64::from(entry.cdw14.get()) | u64::from(entry.cdw15.get()) << 32,
        }
    }

    /// Puts the fields into a submission entry.
    ///
    /// # Panics
    /// If the count is none of 1 to [`LBAS_MAX`].
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        assert!((1..=LBAS_MAX).contains(&self.count), "a vector command has 1 to {LBAS_MAX} logical blocks");
        entry.cdw10 = (self.lba as u32).into();
        entry.cdw11 = ((self.lba >> 32) as u32).into();
        entry.cdw12 = (self.count - 1).into();
        entry.cdw14 = (self.destination as u32).into();
        entry.cdw15 = ((self.destination >> 32) as u32).into();
    }

    /// Bytes of a list of so many addresses, which goes before the data of a command: none of a single one.
    #[inline]
    pub const fn list_bytes(&self) -> u32 {
        if self.count > 1 { self.count * 8 } else { 0 }
    }
}
