//! Content in anonymous memory, touched page by page as it is programmed.

use super::PageAt;
use super::places::FreePlaces;
use crate::mapping::Mapping;
use diecut_units::{Geometry, IU_SIZE_BYTES};
use std::sync::Arc;

/// Cache lines of an IU that are asked for ahead of a read.
const PREFETCHED_LINES: usize = 8;

/// All bytes of a device. What a block left keeps its memory for the next block: no page faults, and the process takes no more than what
/// lives, however large the device is.
pub(crate) struct MemoryStore {
    data: Mapping,
    oob: Mapping,
    block_size_bytes: usize,
    page_size_bytes: usize,
    oob_size_bytes: usize,
    pages_per_erase_block: usize,
    /// `None` if somebody else gives out places.
    free_places: Option<Arc<FreePlaces>>,
}

impl MemoryStore {
    pub(crate) fn new(geometry: &Geometry) -> std::io::Result<MemoryStore> {
        let pages = geometry.erase_blocks() as usize * geometry.pages_per_erase_block() as usize;
        let data = Mapping::anonymous(geometry.raw_capacity_bytes() as usize)?;
        let oob = Mapping::anonymous(pages * geometry.oob_size_bytes as usize)?;
        let free_places = Some(Arc::new(FreePlaces::new(geometry.erase_blocks(), std::iter::empty())));
        Ok(MemoryStore { free_places, ..MemoryStore::over(geometry, data, oob) })
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
            free_places: None,
        }
    }

    /// The same store for another part of the device.
    ///
    /// # Safety
    /// Parts touch different erase blocks.
    pub(crate) unsafe fn share(&self) -> MemoryStore {
        // SAFETY: bytes and OOB areas of different erase blocks lie apart.
        let (data, oob) = unsafe { (self.data.share(), self.oob.share()) };
        MemoryStore { data, oob, free_places: self.free_places.clone(), ..*self }
    }

    pub(crate) fn free_places(&self) -> Option<&FreePlaces> {
        self.free_places.as_deref()
    }

    /// Other handles of the mappings of all OOB areas and pages.
    ///
    /// # Safety
    /// See [`Mapping::share`].
    pub(crate) unsafe fn share_mappings(&self) -> [Mapping; 2] {
        // SAFETY: by the contract.
        unsafe { [self.oob.share(), self.data.share()] }
    }

    /// Where OOB areas and pages of the blocks at some places lie in their mappings.
    pub(crate) fn ranges(&self, places: &std::ops::Range<u64>) -> [std::ops::Range<usize>; 2] {
        [
            self.oob_offset(places.start, 0)..self.oob_offset(places.end, 0),
            self.offset(places.start, 0)..self.offset(places.end, 0),
        ]
    }

    pub(crate) fn block_size_bytes(&self) -> usize {
        self.block_size_bytes
    }

    #[inline]
    fn offset(&self, place: u64, iu: u32) -> usize {
        place as usize * self.block_size_bytes + iu as usize * IU_SIZE_BYTES
    }

    #[inline]
    fn oob_offset(&self, place: u64, page: u32) -> usize {
        (place as usize * self.pages_per_erase_block + page as usize) * self.oob_size_bytes
    }

    #[inline]
    pub(crate) fn program(&mut self, place: u64, first_iu: u32, bytes: &[u8]) {
        let offset = self.offset(place, first_iu);
        self.data.store(offset, bytes);
    }

    pub(crate) fn program_oob(&mut self, place: u64, first_page: u32, oob: &[u8]) {
        let offset = self.oob_offset(place, first_page);
        self.oob.bytes_mut(offset, oob.len()).copy_from_slice(oob);
    }

    #[inline]
    pub(crate) fn read(&self, place: u64, first_iu: u32, destination: &mut [u8]) {
        let offset = self.offset(place, first_iu);
        destination.copy_from_slice(self.data.bytes(offset, destination.len()));
    }

    /// The first lines of each IU: the processor sees a stream in them and goes on by itself.
    #[inline]
    pub(crate) fn prefetch(&self, place: u64, first_iu: u32, iu_count: u32, first_page: u32) {
        self.oob.prefetch(self.oob_offset(place, first_page), 1);
        for iu in first_iu..first_iu + iu_count {
            self.data.prefetch(self.offset(place, iu), PREFETCHED_LINES);
        }
    }

    pub(crate) fn read_oob(&self, place: u64, page: u32, oob: &mut [u8]) {
        let offset = self.oob_offset(place, page);
        oob.copy_from_slice(self.oob.bytes(offset, oob.len()));
    }

    pub(crate) fn copy_page(&mut self, source: PageAt, destination: PageAt) {
        let size = self.page_size_bytes;
        let offset = |at: PageAt| at.block as usize * self.block_size_bytes + at.page as usize * size;
        let (from, to) = (offset(source), offset(destination));
        self.data.copy(from, to, size);
    }
}
