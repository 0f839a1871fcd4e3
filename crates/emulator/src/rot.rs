//! Pages that are lost, for tests: as after years, or by a fault that no program or read of theirs told.

use crate::Device;
use crate::block::PageMark;
use diecut_units::EraseBlockAddress;

impl Device {
    /// Pages of an erase block that were programmed, from the first on.
    pub fn programmed_pages(&self, block: EraseBlockAddress) -> u32 {
        let nand = &self.engine.nand;
        nand.blocks[nand.geometry.erase_block_number(block) as usize].programmed_page
    }

    /// What a page holds, content and OOB, cannot be read any more before its block is erased.
    ///
    /// # Panics
    /// If it was not programmed.
    pub fn lose_page(&mut self, block: EraseBlockAddress, page: u32) {
        assert!(page < self.programmed_pages(block), "{block} page {page} holds nothing that can be lost");
        let nand = &mut self.engine.nand;
        nand.mark(nand.geometry.erase_block_number(block), page, PageMark::Garbage);
    }
}
