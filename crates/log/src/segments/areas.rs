//! OOB areas of one page, for reads of one: what came back is used for the next read at once, without the way over the pool.

use diecut_units::{BufferMut, BufferPool};

/// More than this are not kept: a round of reads seldom has more, and so many take little memory.
const KEPT_MAX: usize = 64;

/// See the module.
pub(crate) struct PageAreas {
    size_bytes: usize,
    free: Vec<BufferMut>,
}

impl PageAreas {
    /// None yet; each has so many bytes.
    pub fn new(size_bytes: u32) -> PageAreas {
        PageAreas { size_bytes: size_bytes as usize, free: Vec::new() }
    }

    /// OOB areas of so many pages, with unspecified content.
    #[inline]
    pub fn take(&mut self, pages: u32, pool: &mut BufferPool) -> BufferMut {
        if pages == 1
            && let Some(area) = self.free.pop()
        {
            return area;
        }
        pool.take(pages as usize * self.size_bytes)
    }

    /// An area of one page that nobody reads any more is kept; anything else goes back to the pool.
    #[inline]
    pub fn give_back(&mut self, area: BufferMut) {
        if area.len() == self.size_bytes && self.free.len() < KEPT_MAX {
            self.free.push(area);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: an area of one page is used again, and no other buffer is taken for one; no more are kept than a few. Method: areas of one and two
    /// pages come back, and are asked for again.
    #[test]
    fn areas_of_one_page_are_used_again() {
        let (mut areas, mut pool) = (PageAreas::new(256), BufferPool::new());
        let [one, two] = [1, 2].map(|pages| areas.take(pages, &mut pool));
        let place = one.as_ptr();
        areas.give_back(one);
        areas.give_back(two);
        assert_eq!(areas.take(2, &mut pool).len(), 512);
        let one = areas.take(1, &mut pool);
        assert_eq!((one.as_ptr(), one.len()), (place, 256));
        for _ in 0..2 * KEPT_MAX {
            areas.give_back(pool.take(256));
        }
        assert_eq!(areas.free.len(), KEPT_MAX);
    }
}
