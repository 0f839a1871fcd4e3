//! Reads of what was programmed, and whether it is what was written.

use super::Segments;
use crate::mark::{self, Mark};
use crate::{Check, Layout, LogAddress};
use diecut_units::{BufferMut, BufferPool, checksum, mutant};
use diecut_vssd::space::{BlockRun, EraseBlockSpace, IoClass, LogicalBlock, SpaceToken};

/// IUs that lie one behind the other in a strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub first: LogAddress,
    pub count: u32,
}

/// Whether a mark is taken for the one of a page: it equals what is expected.
#[inline]
fn passes(is_expected: bool, is_a_mark: impl FnOnce() -> bool) -> bool {
    is_expected || mutant!("log: identity of a page not compared") && is_a_mark()
}

impl Segments {
    /// Checks IUs of one strip, read from `first` on, against the OOB of their pages, and against `checks` as far as there are
    /// some. `Err` is the number of the first IU, counted from `first`, that is not what was written there.
    #[inline]
    pub fn verify(
        &self,
        first: LogAddress,
        iu_bytes: usize,
        data: &[u8],
        oob: Option<&[u8]>,
        checks: &[Check],
    ) -> Result<(), u32> {
        let Some(oob) = oob else { return self.verify_by_checks(iu_bytes, data, checks) };
        if data.len() == iu_bytes {
            // Most reads are of one IU: of one page.
            let check = checks.first().copied().unwrap_or_default();
            return if self.is_as_written(first, data, oob, check) { Ok(()) } else { Err(0) };
        }
        self.verify_pages(first, iu_bytes, data, oob, checks)
    }

    /// Whether one IU is what was written at a place, and for it: see [`PageCheck::is_as_written`].
    #[inline]
    fn is_as_written(&self, place: LogAddress, data: &[u8], oob: &[u8], check: Check) -> bool {
        let (index, offset) = (self.index_of(place), self.layout.offset_of(place));
        let Layout { shape, .. } = &self.layout;
        let segment = &self[index];
        let (member, iu) = self.layout.place(offset);
        let expected = Mark {
            segment: index,
            generation: segment.generation,
            member: member as u16,
            stream: segment.stream.number(),
            place: mark::place_of(self.layout.page(iu).0),
        };
        let Some(mark) = oob.get(shape.holder_oob_offset as usize..) else { return false };
        let page_ius = shape.ius_per_page();
        let is_ours =
            passes(mark::is_of(mark, &expected, page_ius), || mark::decode(mark, page_ius).is_some());
        let sum = checksum(data);
        is_ours && mark::checksum_of(mark, self.layout.page(offset).1) == sum && check.fits(sum)
    }

    /// Where pages have no OOB areas, what the owner knows is all there is.
    fn verify_by_checks(&self, iu_bytes: usize, data: &[u8], checks: &[Check]) -> Result<(), u32> {
        if self.layout.shape.has_oob() {
            return Err(0);
        }
        let ius = (0..).zip(data.chunks_exact(iu_bytes));
        let wrong = ius.zip(checks).find(|((_, iu), check)| !check.fits(checksum(iu)));
        wrong.map_or(Ok(()), |((index, _), _)| Err(index))
    }

    fn verify_pages(
        &self,
        first: LogAddress,
        iu_bytes: usize,
        data: &[u8],
        oob: &[u8],
        checks: &[Check],
    ) -> Result<(), u32> {
        let mut pages = self.page_check(first, oob);
        let offset = self.layout.offset_of(first);
        for (index, iu) in data.chunks_exact(iu_bytes).enumerate() {
            let (sum, check) = (checksum(iu), checks.get(index).copied().unwrap_or_default());
            if !pages.is_as_written(offset + index as u32, sum) || !check.fits(sum) {
                return Err(index as u32);
            }
        }
        Ok(())
    }

    /// Compares IUs of one strip, read from `first` on, with the OOB of their pages.
    pub fn page_check<'a>(&'a self, first: LogAddress, oob: &'a [u8]) -> PageCheck<'a> {
        let (index, offset) = (self.index_of(first), self.layout.offset_of(first));
        let segment = &self[index];
        let (member, iu) = self.layout.place(offset);
        let expected = Mark {
            segment: index,
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

    /// Reads IUs with the OOB of their pages.
    #[inline(always)]
    pub fn read<S: EraseBlockSpace + ?Sized>(
        &mut self,
        token: SpaceToken,
        run: Run,
        destination: BufferMut,
        class: IoClass,
        pool: &mut BufferPool,
        space: &mut S,
    ) {
        let (block, iu) = self.block_of(run.first);
        let page_ius = self.layout.shape.ius_per_page();
        let pages = if run.count == 1 { 1 } else { (iu + run.count - 1) / page_ius - iu / page_ius + 1 };
        let oob = self.layout.shape.has_oob().then(|| self.page_areas.take(pages, pool));
        let run = BlockRun { block, first_iu: iu, iu_count: run.count };
        space.read(token, run, destination, oob, class);
    }

    /// Nobody reads an OOB area any more that a read was given.
    #[inline]
    pub fn give_back(&mut self, oob: BufferMut) {
        self.page_areas.give_back(oob);
    }

    /// The erase block and IU of a place.
    #[inline]
    pub fn block_of(&self, address: LogAddress) -> (LogicalBlock, u32) {
        let (member, iu) = self.layout.place(self.layout.offset_of(address));
        (self[self.index_of(address)].blocks[member], iu)
    }

    /// A read of a host is under way: the segment stays.
    #[inline]
    pub fn pin(&mut self, address: LogAddress) {
        let index = self.index_of(address);
        self[index].reads += 1;
    }

    /// It ended.
    #[inline]
    pub fn unpin(&mut self, address: LogAddress) {
        let index = self.index_of(address);
        assert!(self[index].reads > 0, "I-L9: a read ends once");
        self[index].reads -= 1;
    }
}

/// What the pages of a read say about its IUs.
pub(crate) struct PageCheck<'a> {
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
    pub fn is_as_written(&mut self, offset: u32, iu_checksum: u32) -> bool {
        let (page, iu) = self.layout.page(offset);
        if page != self.page {
            self.enter(page);
        }
        self.mark.is_some_and(|mark| mark::checksum_of(mark, iu) == iu_checksum)
    }

    #[inline]
    fn enter(&mut self, page: u32) {
        assert!(page >= self.first_page, "I-L28: pages are looked at in their order");
        let shape = &self.layout.shape;
        let start = ((page - self.first_page) * shape.oob_size_bytes + shape.holder_oob_offset) as usize;
        let mark = &self.oob[start..];
        self.page = page;
        let found = mark::decode(mark, shape.ius_per_page());
        let expected =
            Mark { place: mark::place_of(self.first_of_block + page - self.first_page), ..self.expected };
        // Pages of a version that did not say where they lie say nothing.
        let is_ours = passes(found.is_some_and(|found| found == expected || found == self.expected), || {
            found.is_some()
        });
        self.mark = is_ours.then_some(mark);
    }
}
