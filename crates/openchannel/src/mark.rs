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

use diecut_units::{checksum, checksum_append};
use diecut_vssd::space::{BlockShape, UnitIndex};

const FIELDS_SIZE_BYTES: usize = 16;

/// Bytes of a mark for pages of `ius` IUs.
pub(crate) const fn size_bytes(ius: u32) -> usize {
    FIELDS_SIZE_BYTES + 4 * ius as usize
}

/// What a mark says apart from checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Mark {
    pub set: u32,
    pub chunk: u32,
    pub generation: u32,
}

/// Where a page lies: a page that is found elsewhere is not taken for it.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub unit: UnitIndex,
    /// Its number in the block.
    pub page: u32,
}

fn check_of(place: Place, behind_check: &[u8]) -> u32 {
    let of_unit = checksum_append(checksum(&place.page.to_le_bytes()), &place.unit.0.to_le_bytes());
    checksum_append(of_unit, behind_check)
}

/// Writes the mark of a page into `oob` (the holder's part), with the checksums of its IUs.
pub(crate) fn encode(mark: Mark, at: Place, checksums: impl ExactSizeIterator<Item = u32>, oob: &mut [u8]) {
    let (oob, _) = oob.split_at_mut(size_bytes(checksums.len() as u32));
    let words = [mark.set, mark.chunk, mark.generation].into_iter().chain(checksums);
    for (place, word) in oob[4..].chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let check = check_of(at, &oob[4..]);
    oob[..4].copy_from_slice(&check.to_le_bytes());
}

fn word(oob: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(oob[at..at + 4].try_into().expect("4 bytes"))
}

/// Reads the mark of a page of `ius` IUs; `None` if it does not check out.
#[inline]
pub(crate) fn decode(oob: &[u8], at: Place, ius: u32) -> Option<Mark> {
    let oob = oob.get(..size_bytes(ius))?;
    let mark = Mark { set: word(oob, 4), chunk: word(oob, 8), generation: word(oob, 12) };
    (word(oob, 0) == check_of(at, &oob[4..])).then_some(mark)
}

/// The checksum of an IU, of a mark that checks out.
#[inline]
pub(crate) fn checksum_of(oob: &[u8], iu: u32) -> u32 {
    word(oob, FIELDS_SIZE_BYTES + 4 * iu as usize)
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

    /// Goal: the layout is pinned, and a mark tells its place. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_a_mark() {
        let mark = Mark { set: 0x0403_0201, chunk: 0x0807_0605, generation: 0x0c0b_0a09 };
        let mut oob = [0xff; 26];
        let at = Place { unit: UnitIndex(0x0201), page: 3 };
        encode(mark, at, [0x1413_1211, 0x1817_1615].into_iter(), &mut oob);
        let behind = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 17, 18, 19, 20, 21, 22, 23, 24];
        let check = checksum(&[&[3, 0, 0, 0, 1, 2], &behind[..]].concat());
        assert_eq!(oob[..4], check.to_le_bytes());
        assert_eq!(oob[4..24], behind);
        assert_eq!(oob[24..], [0xff; 2], "nothing behind it is touched");
        assert_eq!(decode(&oob, at, 2), Some(mark));
        assert_eq!(checksum_of(&oob, 1), 0x1817_1615);
        for other in [Place { page: 4, ..at }, Place { unit: UnitIndex(0x0202), ..at }] {
            assert_eq!(decode(&oob, other, 2), None, "a page of another place");
        }
        for bit in 0..24 * 8 {
            let mut rotten = oob;
            rotten[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&rotten, at, 2), None, "bit {bit}");
        }
        assert_eq!(decode(&oob[..23], at, 2), None);
    }
}
