//! Content in anonymous memory, touched page by page as it is programmed.

use crate::mapping::Mapping;
use diecut_units::{Geometry, IU_SIZE_BYTES};

/// Cache lines of an IU that are asked for ahead of a read.
const PREFETCHED_LINES: usize = 8;

/// All bytes of a device. Erased blocks keep their bytes (nobody can read them), so that programming them again
/// costs no page faults.
pub(crate) struct MemoryStore {
    data: Mapping,
    oob: Mapping,
    block_size_bytes: usize,
    page_size_bytes: usize,
    oob_size_bytes: usize,
    pages_per_erase_block: usize,
}

impl MemoryStore {
    pub(crate) fn new(geometry: &Geometry) -> std::io::Result<MemoryStore> {
        let pages = geometry.erase_blocks() as usize * geometry.pages_per_erase_block() as usize;
        let data = Mapping::anonymous(geometry.raw_capacity_bytes() as usize)?;
        let oob = Mapping::anonymous(pages * geometry.oob_size_bytes as usize)?;
        Ok(MemoryStore::over(geometry, data, oob))
    }

    /// A store over mappings that are large enough for the geometry's pages and OOB areas.
    pub(crate) fn over(geometry: &Geometry, data: Mapping, oob: Mapping) -> MemoryStore {
        MemoryStore {
            data,
            oob,
            block_size_bytes: geometry.erase_block_size_bytes() as usize,
            page_size_bytes: geometry.page_size_bytes as usize,
            oob_size_bytes: geometry.oob_size_bytes as usize,
            pages_per_erase_block: geometry.pages_per_erase_block() as usize,
        }
    }

    /// The same store for another part of the device.
    ///
    /// # Safety
    /// Parts touch different erase blocks.
    pub(crate) unsafe fn share(&self) -> MemoryStore {
        // SAFETY: bytes and OOB areas of different erase blocks lie apart.
        let (data, oob) = unsafe { (self.data.share(), self.oob.share()) };
        MemoryStore { data, oob, ..*self }
    }

    /// Another handle of the mapping of all pages.
    ///
    /// # Safety
    /// See [`Mapping::share`].
    pub(crate) unsafe fn share_pages(&self) -> Mapping {
        // SAFETY: by the contract.
        unsafe { self.data.share() }
    }

    /// Where OOB areas and pages of some blocks lie in their mappings.
    pub(crate) fn ranges(&self, blocks: &std::ops::Range<u64>) -> [std::ops::Range<usize>; 2] {
        [
            self.oob_place(blocks.start, 0)..self.oob_place(blocks.end, 0),
            self.place(blocks.start, 0)..self.place(blocks.end, 0),
        ]
    }

    pub(crate) fn block_size_bytes(&self) -> usize {
        self.block_size_bytes
    }

    #[inline]
    fn place(&self, block: u64, iu: u32) -> usize {
        block as usize * self.block_size_bytes + iu as usize * IU_SIZE_BYTES
    }

    #[inline]
    fn oob_place(&self, block: u64, page: u32) -> usize {
        (block as usize * self.pages_per_erase_block + page as usize) * self.oob_size_bytes
    }

    #[inline]
    pub(crate) fn program(&mut self, block: u64, first_iu: u32, bytes: &[u8]) {
        let place = self.place(block, first_iu);
        self.data.store(place, bytes);
    }

    pub(crate) fn program_oob(&mut self, block: u64, first_page: u32, oob: &[u8]) {
        let place = self.oob_place(block, first_page);
        self.oob.bytes_mut(place, oob.len()).copy_from_slice(oob);
    }

    #[inline]
    pub(crate) fn read(&self, block: u64, first_iu: u32, destination: &mut [u8]) {
        let place = self.place(block, first_iu);
        destination.copy_from_slice(self.data.bytes(place, destination.len()));
    }

    /// The first lines of each IU: the processor sees a stream in them and goes on by itself.
    #[inline]
    pub(crate) fn prefetch(&self, block: u64, first_iu: u32, iu_count: u32, first_page: u32) {
        self.oob.prefetch(self.oob_place(block, first_page), 1);
        for iu in first_iu..first_iu + iu_count {
            self.data.prefetch(self.place(block, iu), PREFETCHED_LINES);
        }
    }

    pub(crate) fn read_oob(&self, block: u64, page: u32, oob: &mut [u8]) {
        let place = self.oob_place(block, page);
        oob.copy_from_slice(self.oob.bytes(place, oob.len()));
    }

    pub(crate) fn copy_page(
        &mut self,
        source: u64,
        source_page: u32,
        destination: u64,
        destination_page: u32,
    ) {
        let size = self.page_size_bytes;
        let from = source as usize * self.block_size_bytes + source_page as usize * size;
        let to = destination as usize * self.block_size_bytes + destination_page as usize * size;
        self.data.copy(from, to, size);
    }
}
