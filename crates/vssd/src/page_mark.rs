//! Mark of a page: what a holder that has no map keeps in its part of each page's OOB, little endian. Zones and chunks have it.
//!
//! | offset | size | field     | meaning                                                                |
//! |-------:|-----:|-----------|------------------------------------------------------------------------|
//! |      0 |    4 | check     | CRC-32C of the page's number in its erase block (4 bytes), the block's unit (2 bytes) and bytes 4 to the end of the mark |
//! |      4 |   12 | words     | three numbers that the holder chooses                                  |
//! |     16 |  4*n | checksums | CRC-32C of each IU of the page (8 bytes of it in tag mode), as the holder says |
//!
//! A mark that does not check out means: not written, torn, of another place, or not the holder's.

use crate::UnitIndex;
use diecut_units::{checksum, checksum_append};

/// Numbers of a mark.
pub type PageWords = [u32; 3];

const FIELDS_SIZE_BYTES: usize = 16;

/// Where a page lies: a page that is found elsewhere is not taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePlace {
    /// Unit of its erase block.
    pub unit: UnitIndex,
    /// Its number in the block.
    pub page: u32,
}

impl PagePlace {
    fn check(self, behind_check: &[u8]) -> u32 {
        let of_unit = checksum_append(checksum(&self.page.to_le_bytes()), &self.unit.0.to_le_bytes());
        checksum_append(of_unit, behind_check)
    }
}

/// Bytes of a mark for pages of `ius` IUs.
const fn size_bytes(ius: u32) -> usize {
    FIELDS_SIZE_BYTES + 4 * ius as usize
}

/// Writes the mark of a page into `oob` (the holder's part), with the checksums of its IUs.
///
/// # Panics
/// If `oob` is shorter than the mark.
pub fn encode(
    words: PageWords,
    at: PagePlace,
    checksums: impl ExactSizeIterator<Item = u32>,
    oob: &mut [u8],
) {
    let size = size_bytes(checksums.len() as u32);
    assert!(oob.len() >= size, "a mark fits into its holder's part of the OOB");
    let oob = &mut oob[..size];
    for (place, word) in oob[4..].chunks_exact_mut(4).zip(words.into_iter().chain(checksums)) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let check = at.check(&oob[4..]);
    oob[..4].copy_from_slice(&check.to_le_bytes());
}

#[inline]
fn word(oob: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(oob[at..at + 4].try_into().expect("4 bytes"))
}

/// Reads the mark of a page of `ius` IUs; `None` if it does not check out.
#[inline]
pub fn decode(oob: &[u8], at: PagePlace, ius: u32) -> Option<PageWords> {
    let oob = oob.get(..size_bytes(ius))?;
    (word(oob, 0) == at.check(&oob[4..])).then(|| [4, 8, 12].map(|at| word(oob, at)))
}

/// The checksum of an IU, of a mark that checks out.
///
/// # Panics
/// If the page has no such IU.
#[inline]
pub fn checksum_of(oob: &[u8], iu: u32) -> u32 {
    word(oob, FIELDS_SIZE_BYTES + 4 * iu as usize)
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: the layout is pinned, and a mark tells its place. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_a_mark() {
        let words = [0x0403_0201, 0x0807_0605, 0x0c0b_0a09];
        let mut oob = [0xff; 26];
        let at = PagePlace { unit: UnitIndex(0x0201), page: 3 };
        encode(words, at, [0x1413_1211, 0x1817_1615].into_iter(), &mut oob);
        let behind = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 17, 18, 19, 20, 21, 22, 23, 24];
        let check = checksum(&[&[3, 0, 0, 0, 1, 2], &behind[..]].concat());
        assert_eq!(oob[..4], check.to_le_bytes());
        assert_eq!(oob[4..24], behind);
        assert_eq!(oob[24..], [0xff; 2], "nothing behind it is touched");
        assert_eq!(decode(&oob, at, 2), Some(words));
        assert_eq!(checksum_of(&oob, 1), 0x1817_1615);
        for other in [PagePlace { page: 4, ..at }, PagePlace { unit: UnitIndex(0x0202), ..at }] {
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
