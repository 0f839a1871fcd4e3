//! Reads of what was programmed, and of what is still staged.

use super::*;

impl Log {
    /// Checks IUs read from IU `first` of an erase block on, against the OOB of their pages.
    ///
    /// # Errors
    /// The number of the first IU, counted from `first`, that is not what was written.
    pub fn verify(&self, first: u32, iu_bytes: usize, data: &[u8], oob: &[u8]) -> Result<(), u32> {
        let page_ius = self.layout.shape.ius_per_page();
        for (index, iu) in data.chunks_exact(iu_bytes).enumerate() {
            let at = first + index as u32;
            let page = at / page_ius - first / page_ius;
            let start = page as usize * self.layout.shape.oob_size_bytes as usize
                + self.layout.shape.holder_oob_offset as usize;
            if mark::checksum_of(&oob[start..], at % page_ius) != checksum(iu) {
                return Err(index as u32);
            }
        }
        Ok(())
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
        self.slots.iter().find_map(|slot| {
            let chunk = slot.chunk.as_ref().filter(|chunk| chunk.segment == index)?;
            let data = offset.checked_sub(chunk.first_unit * self.layout.unit_ius + 1)?;
            (data < chunk.data_count).then(|| slot.iu(data))
        })
    }

    /// Reads programmed IUs for a host, at most [`Log::run_limit`]. The segment stays until [`Log::unpin`].
    /// Returns IU number within the erase block, for [`Log::verify`].
    pub fn read(
        &mut self,
        token: SpaceToken,
        first: LogAddress,
        count: u32,
        destination: BufferMut,
        class: IoClass,
        space: &mut dyn EraseBlockSpace,
    ) -> u32 {
        self.segments[self.layout.segment_of(first).0 as usize].reads += 1;
        self.read_run(token, first, count, 0, Some(destination), class, space);
        self.layout.place(self.layout.offset_of(first)).1
    }

    /// A read is done.
    pub fn unpin(&mut self, address: LogAddress) {
        self.segments[self.layout.segment_of(address).0 as usize].reads -= 1;
    }
}
