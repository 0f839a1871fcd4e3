//! What lies on a drive without power.

use super::SECTOR_SIZE_BYTES;
use super::cache::{Fate, is_left, sectors};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::ops::Range;

/// Sectors that somebody wrote, by their number.
#[derive(Default)]
pub(super) struct Image {
    sectors: BTreeMap<u64, Box<[u8]>>,
}

impl Image {
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (at, sector) in sectors(bytes) {
            self.sectors.insert((offset + at) / SECTOR_SIZE_BYTES, sector.into());
        }
    }

    /// Writes the sectors that a fate leaves.
    pub(super) fn write_some(&mut self, offset: u64, bytes: &[u8], fate: &Fate) {
        let mut is_left = is_left(fate);
        for (at, sector) in sectors(bytes) {
            if is_left() {
                self.sectors.insert((offset + at) / SECTOR_SIZE_BYTES, sector.into());
            }
        }
    }

    /// What was never written, or was discarded, reads as anything, and not twice the same.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8], random: &mut Xoshiro256PlusPlus) {
        for (index, part) in buffer.chunks_mut(SECTOR_SIZE_BYTES as usize).enumerate() {
            match self.sectors.get(&(offset / SECTOR_SIZE_BYTES + index as u64)) {
                Some(sector) => part.copy_from_slice(sector),
                None => part.fill(random.random()),
            }
        }
    }

    pub(super) fn forget(&mut self, range: Range<u64>) {
        let numbers = range.start / SECTOR_SIZE_BYTES..range.end / SECTOR_SIZE_BYTES;
        let gone: Vec<u64> = self.sectors.range(numbers).map(|(number, _)| *number).collect();
        for number in gone {
            self.sectors.remove(&number);
        }
    }

    /// Takes out what lies in a range.
    pub(super) fn take(&mut self, range: Range<u64>) -> Image {
        let mut taken = self.sectors.split_off(&(range.start / SECTOR_SIZE_BYTES));
        self.sectors.append(&mut taken.split_off(&(range.end / SECTOR_SIZE_BYTES)));
        Image { sectors: taken }
    }

    /// Puts it back.
    pub(super) fn put(&mut self, mut taken: Image) {
        self.sectors.append(&mut taken.sectors);
    }

    pub(super) fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for (index, part) in bytes.chunks_mut(SECTOR_SIZE_BYTES as usize).enumerate() {
            if let Some(sector) = self.sectors.get(&(offset / SECTOR_SIZE_BYTES + index as u64)) {
                part.copy_from_slice(&sector[..part.len()]);
            }
        }
        bytes
    }
}
