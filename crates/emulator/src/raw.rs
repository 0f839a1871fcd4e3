//! What lies on a device whoever may read it, for tests: all that was programmed and not erased since, also where reads fail.

use crate::Device;
use crate::store::places::NO_PLACE;
use diecut_units::{ContentMode, EraseBlockAddress, IU_SIZE_BYTES, TAG_SIZE_BYTES};

/// A read that was hard, or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardRead {
    /// First IU in its erase block.
    pub first_iu: u32,
    /// How many.
    pub iu_count: u32,
    /// How often cells were read again.
    pub retries: u8,
    /// It gave nothing.
    pub is_lost: bool,
}

impl Device {
    /// From now on reads that are hard or fail are kept for [`Device::take_hard_reads`].
    pub fn keep_hard_reads(&mut self) {
        self.engine.nand.failures.hard_reads.get_or_insert_default();
    }

    /// Hard reads that began since this was called last, with the erase block and the OOB area of the first page of each:
    /// zeros if that is not there any more.
    pub fn take_hard_reads(&mut self) -> Vec<(EraseBlockAddress, HardRead, Vec<u8>)> {
        let nand = &mut self.engine.nand;
        let reads = nand.failures.hard_reads.as_mut().map(std::mem::take).unwrap_or_default();
        let with_oob = |(number, read): (u64, HardRead)| {
            let mut oob = vec![0; nand.geometry.oob_size_bytes as usize];
            let page = read.first_iu / nand.geometry.ius_per_page();
            let block = &nand.blocks[number as usize];
            // It may have been erased since: then it is nobody's.
            let is_there = block.place != NO_PLACE && page < block.programmed_page;
            if !is_there || nand.store.read_oob(block.place.into(), page, &mut oob).is_err() {
                oob.fill(0);
            }
            (nand.address(number), read, oob)
        };
        reads.into_iter().map(with_oob).collect()
    }

    /// The next read of a die cannot be corrected. Dies are counted over the device.
    pub fn lose_next_read(&mut self, die: u32) {
        let nand = &mut self.engine.nand;
        nand.failures.lose_next_read(die as usize, nand.geometry.die_at(die));
    }

    /// From now on what may be forgotten is kept: [`diecut_media::Media::discard`] is only advice, and a drive need not take it.
    pub fn keep_discarded(&mut self) {
        self.keeps_discarded = true;
    }

    /// Shows each IU that was programmed and not erased since, with its erase block: its bytes, or its tag. What tests look for may lie
    /// where no host and no room of the server would read it.
    pub fn look_through(&self, mut look: impl FnMut(EraseBlockAddress, &[u8])) {
        let nand = &self.engine.nand;
        let tags = self.capabilities.content_mode == ContentMode::Tags;
        let mut bytes = vec![0; IU_SIZE_BYTES];
        for (number, block) in (0..).zip(&nand.blocks) {
            if block.place == NO_PLACE {
                continue;
            }
            let ius = block.programmed_page * nand.geometry.ius_per_page();
            for iu in 0..ius {
                let place = block.place.into();
                let tag = &mut bytes[..TAG_SIZE_BYTES];
                let len = match tags && nand.store.read(place, iu, 1, tag).is_ok() {
                    true => TAG_SIZE_BYTES,
                    false if nand.store.read(place, iu, 1, &mut bytes).is_ok() => IU_SIZE_BYTES,
                    false => continue,
                };
                look(nand.address(number), &bytes[..len]);
            }
        }
    }
}
