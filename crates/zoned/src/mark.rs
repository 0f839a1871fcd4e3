//! Mark of a page: the holder's part of each page's OOB, little endian.
//!
//! | offset | size | field      | meaning                                                               |
//! |-------:|-----:|------------|-----------------------------------------------------------------------|
//! |      0 |    4 | check      | CRC-32C of the page's number in its erase block (4 bytes), the block's unit (2 bytes) and bytes 4 to the end of the mark |
//! |      4 |    4 | set        | lower 24 bits: whose zone it is, number of the namespace, FFFFFFh: journal; above: edition of the block |
//! |      8 |    4 | zone       | lower 20 bits: the zone, of the journal part of the snapshot; above: rows that were copied to the block |
//! |     12 |    4 | generation | rises with each zone that is begun; of the journal: lower 32 bits of the snapshot's sequence |
//! |     16 |  4*n | checksums  | CRC-32C of each IU of the page (8 bytes of it in tag mode); one that is lost has the complement |
//!
//! The edition rises, modulo 256, each time the content of a block goes to another one. Of two blocks of a zone's column the newer edition
//! counts as soon as it has all rows that were to be copied. The older one may have rows that no longer count.
//!
//! A mark that does not check out means: not written, torn, of another place, or not ours.

use diecut_vssd::page_mark;

pub(crate) use diecut_vssd::page_mark::{PagePlace as Place, checksum_of};

/// The set of the journal.
pub(crate) const JOURNAL: u32 = (1 << SET_BITS) - 1;
/// Bits of a namespace's number, of a zone's, and of a number of rows.
const SET_BITS: u32 = 24;
const ZONE_BITS: u32 = 20;
/// The largest number of a namespace, number of zones, and number of rows that marks can tell.
pub(crate) const SET_MAX: u32 = JOURNAL - 1;
pub(crate) const ZONES_MAX: u32 = 1 << ZONE_BITS;
pub(crate) const ROWS_MAX: u32 = (1 << (32 - ZONE_BITS)) - 1;

/// What a mark says apart from checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Mark {
    pub set: u32,
    pub zone: u32,
    pub generation: u32,
    pub edition: u8,
    pub copied_rows: u16,
}

impl Mark {
    fn words(&self) -> page_mark::PageWords {
        assert!(self.set <= JOURNAL && self.zone < ZONES_MAX, "I-Z14: a mark has room for what it says");
        assert!(u32::from(self.copied_rows) <= ROWS_MAX, "I-Z14: a mark has room for what it says");
        let edition = u32::from(self.edition) << SET_BITS;
        [self.set | edition, self.zone | u32::from(self.copied_rows) << ZONE_BITS, self.generation]
    }
}

/// Writes the mark of a page into `oob` (the holder's part), with the checksums of its IUs.
pub(crate) fn encode(mark: Mark, at: Place, checksums: impl ExactSizeIterator<Item = u32>, oob: &mut [u8]) {
    page_mark::encode(mark.words(), at, checksums, oob);
}

/// Reads the mark of a page of `ius` IUs; `None` if it does not check out.
#[inline]
pub(crate) fn decode(oob: &[u8], at: Place, ius: u32) -> Option<Mark> {
    let [set, zone, generation] = page_mark::decode(oob, at, ius)?;
    Some(Mark {
        set: set & JOURNAL,
        zone: zone & (ZONES_MAX - 1),
        generation,
        edition: (set >> SET_BITS) as u8,
        copied_rows: (zone >> ZONE_BITS) as u16,
    })
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_units::checksum;
    use diecut_vssd::space::UnitIndex;

    /// Goal: the layout is pinned, and a mark tells its place. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_a_mark() {
        let mark =
            Mark { set: 0x03_0201, zone: 0x7_0605, generation: 0x0c0b_0a09, edition: 4, copied_rows: 0x080 };
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
