//! Reads of what was programmed, and of what is still staged.

use super::*;

impl Log {
    /// Checks IUs of one program unit, read from `first` on, against the OOB of their pages.
    ///
    /// # Errors
    /// The number of the first IU, counted from `first`, that is not what was written there.
    pub fn verify(&self, first: LogAddress, iu_bytes: usize, data: &[u8], oob: &[u8]) -> Result<(), u32> {
        let mut pages = self.page_check(first, oob);
        let offset = self.layout.offset_of(first);
        for (index, iu) in data.chunks_exact(iu_bytes).enumerate() {
            if !pages.is_as_written(offset + index as u32, checksum(iu)) {
                return Err(index as u32);
            }
        }
        Ok(())
    }

    /// Compares IUs of one program unit, read from `first` on, with the OOB of their pages.
    pub(super) fn page_check<'a>(&'a self, first: LogAddress, oob: &'a [u8]) -> PageCheck<'a> {
        let (index, offset) = (self.layout.segment_of(first), self.layout.offset_of(first));
        let segment = &self.segments[index.0 as usize];
        let (member, iu) = self.layout.place(offset);
        let expected = Mark {
            segment: index.0,
            generation: segment.generation,
            member: member as u16,
            stream: segment.stream.number(),
            place: 0,
        };
        let (first_page, first_of_block) =
            (self.layout.page(offset).0, iu / self.layout.shape.ius_per_page());
        PageCheck {
            layout: &self.layout,
            oob,
            expected,
            first_page,
            first_of_block,
            page: u32::MAX,
            mark: None,
        }
    }

    /// Reads IUs of one program unit, with the OOB of their pages; `destination` is taken from the pool if `None`.
    #[allow(clippy::too_many_arguments, reason = "one place that knows where IUs lie")]
    pub(super) fn read_run(
        &mut self,
        token: SpaceToken,
        first: LogAddress,
        count: u32,
        iu_bytes: usize,
        destination: Option<BufferMut>,
        class: IoClass,
        space: &mut dyn EraseBlockSpace,
    ) {
        let segment = &self.segments[self.layout.segment_of(first).0 as usize];
        let (member, iu) = self.layout.place(self.layout.offset_of(first));
        let block = segment.blocks[member];
        let page_ius = self.layout.shape.ius_per_page();
        let pages = (iu + count - 1) / page_ius - iu / page_ius + 1;
        let oob = self.pool.take(pages as usize * self.layout.shape.oob_size_bytes as usize);
        let destination = destination.unwrap_or_else(|| self.pool.take(count as usize * iu_bytes));
        space.read(token, block, iu, count, destination, Some(oob), class);
    }

    /// IUs that can be read with one request from `address` on.
    pub fn run_limit(&self, address: LogAddress) -> u32 {
        self.layout.unit_ius - self.layout.offset_of(address) % self.layout.unit_ius
    }

    /// The content of a place that is still staged.
    #[inline]
    pub fn staged(&self, address: LogAddress) -> Option<&[u8]> {
        let index = self.layout.segment_of(address).0;
        let offset = self.layout.offset_of(address);
        if self.segments[index as usize].chunks == 0 {
            return None;
        }
        self.staged_chunks().filter(|(_, chunk)| chunk.segment == index).find_map(|(slot, chunk)| {
            let data = offset.checked_sub(chunk.first_unit * self.layout.unit_ius + 1)?;
            (data < chunk.data_count).then(|| self.slots[slot].iu(data))
        })
    }

    /// Reads programmed IUs for a host, at most [`Log::run_limit`]. The segment stays until [`Log::unpin`].
    pub fn read(
        &mut self,
        token: SpaceToken,
        first: LogAddress,
        count: u32,
        destination: BufferMut,
        class: IoClass,
        space: &mut dyn EraseBlockSpace,
    ) {
        self.segments[self.layout.segment_of(first).0 as usize].reads += 1;
        self.read_run(token, first, count, 0, Some(destination), class, space);
    }

    /// A read is done.
    pub fn unpin(&mut self, address: LogAddress) {
        self.segments[self.layout.segment_of(address).0 as usize].reads -= 1;
    }
}

/// What the pages of a read say about its IUs.
pub(super) struct PageCheck<'a> {
    layout: &'a Layout,
    oob: &'a [u8],
    expected: Mark,
    /// Counted through the segment, and in its erase block.
    first_page: u32,
    first_of_block: u32,
    page: u32,
    mark: Option<&'a [u8]>,
}

impl PageCheck<'_> {
    /// Whether the IU at an offset of the segment is what its page's mark says, and the mark says that the page was written
    /// for this place: a page that lies elsewhere than it should is as wrong as one whose bits turned. Offsets rise.
    #[inline]
    pub(super) fn is_as_written(&mut self, offset: u32, iu_checksum: u32) -> bool {
        let (page, iu) = self.layout.page(offset);
        if page != self.page {
            self.enter(page);
        }
        self.mark.is_some_and(|mark| mark::checksum_of(mark, iu) == iu_checksum)
    }

    #[inline]
    fn enter(&mut self, page: u32) {
        let shape = &self.layout.shape;
        let start = ((page - self.first_page) * shape.oob_size_bytes + shape.holder_oob_offset) as usize;
        let mark = &self.oob[start..];
        self.page = page;
        let found = mark::decode(mark, shape.ius_per_page());
        let expected =
            Mark { place: mark::place_of(self.first_of_block + page - self.first_page), ..self.expected };
        // Pages of a version that did not say where they lie say nothing.
        let is_ours = found.is_some_and(|found| found == expected || found == self.expected)
            || found.is_some() && mutant!("log: identity of a page not compared");
        self.mark = is_ours.then_some(mark);
    }
}
