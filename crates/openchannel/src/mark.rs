//! Mark of a page: the holder's part of each page's OOB, little endian.
//!
//! | offset | size | field      | meaning                                                               |
//! |-------:|-----:|------------|-----------------------------------------------------------------------|
//! |      0 |    4 | check      | CRC-32C of the page's number in its erase block (4 bytes), the block's unit (2 bytes) and bytes 4 to the end of the mark |
//! |      4 |    4 | set        | whose chunk it is: number of the namespace                            |
//! |      8 |    4 | chunk      | the chunk, counted over all of the namespace                          |
//! |     12 |    4 | generation | rises with each chunk that is begun                                   |
//! |     16 |  4*n | checksums  | CRC-32C of each IU of the page (8 bytes of it in tag mode)            |
//!
//! A mark that does not check out means: not written, torn, of another place, or not ours.

use diecut_vssd::page_mark;
use diecut_vssd::space::{BlockShape, UnitIndex};

pub(crate) use diecut_vssd::page_mark::{PagePlace as Place, checksum_of};

/// What a mark says apart from checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Mark {
    pub set: u32,
    pub chunk: u32,
    pub generation: u32,
}

/// Writes the mark of a page into `oob` (the holder's part), with the checksums of its IUs.
pub(crate) fn encode(mark: Mark, at: Place, checksums: impl ExactSizeIterator<Item = u32>, oob: &mut [u8]) {
    page_mark::encode([mark.set, mark.chunk, mark.generation], at, checksums, oob);
}

/// Reads the mark of a page of `ius` IUs; `None` if it does not check out.
#[inline]
pub(crate) fn decode(oob: &[u8], at: Place, ius: u32) -> Option<Mark> {
    let [set, chunk, generation] = page_mark::decode(oob, at, ius)?;
    Some(Mark { set, chunk, generation })
}

/// The mark that all pages of a program unit have.
pub(crate) fn of_row(oob: &[u8], unit: UnitIndex, row: u32, shape: &BlockShape) -> Option<Mark> {
    let first = row * shape.program_unit_pages;
    let pages = (first..).zip(oob.chunks_exact(shape.oob_size_bytes as usize));
    let mut marks = pages.map(|(page, oob)| {
        decode(&oob[shape.holder_oob_offset as usize..], Place { unit, page }, shape.ius_per_page())
    });
    let first = marks.next()??;
    marks.all(|mark| mark == Some(first)).then_some(first)
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: each number is at its place. Method: bytes written by hand; `diecut_vssd::page_mark` has a test of the rest.
    #[test]
    fn the_bytes_of_a_mark() {
        let mark = Mark { set: 0x0403_0201, chunk: 0x0807_0605, generation: 0x0c0b_0a09 };
        let mut oob = [0xff; 20];
        let at = Place { unit: UnitIndex(0x0201), page: 3 };
        encode(mark, at, [0x1413_1211].into_iter(), &mut oob);
        assert_eq!(oob[4..], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 17, 18, 19, 20]);
        assert_eq!(decode(&oob, at, 1), Some(mark));
        assert_eq!(decode(&oob, Place { page: 4, ..at }, 1), None, "a page of another place");
    }
}
