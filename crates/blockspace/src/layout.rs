//! Sizes of the rings and of the data area, and where each part of the shared memory begins.

use crate::wire::{COMPLETION_SIZE_BYTES, SUBMISSION_SIZE_BYTES};

/// In front of the rings: the counters.
const PAGE_SIZE_BYTES: usize = 4096;

/// Most entries of a ring.
pub const ENTRIES_MAX: u32 = 1024;
/// Most bytes of a data area.
const DATA_MAX_BYTES: u64 = 1 << 30;

/// Sizes of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Entries of each ring, a power of two.
    pub entries: u32,
    /// Slots of the data area.
    pub slots: u32,
    /// Bytes of each, a multiple of 4096: the largest transfer of one entry.
    pub slot_size_bytes: u32,
}

impl Layout {
    /// Whether both sides can work with it.
    pub fn is_sound(&self) -> bool {
        self.entries.is_power_of_two()
            && self.entries <= ENTRIES_MAX
            && self.slots > 0
            && self.slot_size_bytes > 0
            && self.slot_size_bytes.is_multiple_of(PAGE_SIZE_BYTES as u32)
            && self.data_size_bytes() <= DATA_MAX_BYTES
    }
    /// Bytes of the data area.
    pub fn data_size_bytes(&self) -> u64 {
        u64::from(self.slots) * u64::from(self.slot_size_bytes)
    }
    pub(crate) fn submission(&self, number: u64) -> usize {
        PAGE_SIZE_BYTES + self.place(number) * SUBMISSION_SIZE_BYTES
    }
    pub(crate) fn completion(&self, number: u64) -> usize {
        PAGE_SIZE_BYTES
            + self.entries as usize * SUBMISSION_SIZE_BYTES
            + self.place(number) * COMPLETION_SIZE_BYTES
    }
    fn place(&self, number: u64) -> usize {
        (number % u64::from(self.entries)) as usize
    }
    pub(crate) fn data(&self) -> usize {
        let rings = self.entries as usize * (SUBMISSION_SIZE_BYTES + COMPLETION_SIZE_BYTES);
        (PAGE_SIZE_BYTES + rings).next_multiple_of(PAGE_SIZE_BYTES)
    }
    /// Bytes of all.
    pub fn size_bytes(&self) -> usize {
        self.data() + self.data_size_bytes() as usize
    }
}
