//! Page mark: the log's part of each page's OOB. Little endian.
//!
//! | offset | size | field      | meaning                                                        |
//! |-------:|-----:|------------|----------------------------------------------------------------|
//! |      0 |    4 | check      | CRC-32C of bytes 4 to the end of the mark                      |
//! |      4 |    4 | segment    | which segment the page belongs to                              |
//! |      8 |    4 | generation | rises with every segment that is opened                        |
//! |     12 |    2 | member     | lower 10 bits: place of the erase block in the stripe; bits 10 and 11: upper bits of the reference; above them its lower 4 bits |
//! |     14 |    2 | stream     | lower 2 bits: 0 user, 1 cleaner, 2 map; above them the place of the page in its erase block, modulo 16,383, plus 1; 0 there is of a version that did not say it |
//! |     16 |  4*n | checksums  | CRC-32C of each IU of the page (8 bytes of it in tag mode)     |
//!
//! A mark that does not check out means: not written, torn, or not ours. There is no version field: the
//! version is that of the chunk heads and the anchor, which are read first or together with it.

use diecut_units::checksum;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A mark as it is stored, in front of the checksums.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Fields {
    check: U32,
    segment: U32,
    generation: U32,
    member_and_reference: U16,
    stream_and_place: U16,
}

/// Bits that a member has; a stripe has no more than 16, and the reference has the others.
const MEMBER_BITS: u16 = 10;
const FIELDS_SIZE_BYTES: usize = size_of::<Fields>();
const _: () = assert!(FIELDS_SIZE_BYTES == 16);

/// Bytes of a mark for pages of `ius` IUs.
pub const fn size_bytes(ius: u32) -> usize {
    FIELDS_SIZE_BYTES + 4 * ius as usize
}

/// What a mark says apart from checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Segment.
    pub segment: u32,
    /// Generation.
    pub generation: u32,
    /// Member, below 1024.
    pub member: u16,
    /// Number of the stream ([`crate::Stream::number`]).
    pub stream: u16,
    /// Where in its erase block the page lies: see [`place_of`]. 0: nobody said so.
    pub place: u16,
}

/// Where the number of a reference stands: its lower 4 bits came first, when there were no groups.
#[inline]
const fn stored_reference(reference: u16) -> u16 {
    (reference & 0xf) << 12 | (reference >> 4) << MEMBER_BITS
}

/// What marks say of the place of a page of an erase block: the page modulo 16,383, plus 1.
#[inline]
pub const fn place_of(page: u32) -> u16 {
    (page % 0x3fff) as u16 + 1
}

/// Writes a mark into `oob` (the log's part), with `checksums` for the IUs.
///
/// # Panics
/// If the stream or the place is none.
pub fn encode(mark: &Mark, checksums: &[u32], oob: &mut [u8]) {
    let has_room = mark.stream & 0xff < 4 && mark.stream >> 8 < 64 && mark.member < 1 << MEMBER_BITS;
    assert!(has_room && mark.place < 1 << 14, "I-L31: a mark has room for what it says");
    let (oob, _) = oob.split_at_mut(size_bytes(checksums.len() as u32));
    let fields = Fields {
        check: 0.into(),
        segment: mark.segment.into(),
        generation: mark.generation.into(),
        member_and_reference: (mark.member | stored_reference(mark.stream >> 8)).into(),
        stream_and_place: (mark.stream & 0xff | mark.place << 2).into(),
    };
    let (place, rest) = oob.split_at_mut(FIELDS_SIZE_BYTES);
    place.copy_from_slice(fields.as_bytes());
    let places = <[U32]>::mut_from_bytes(rest).expect("4 bytes for each checksum");
    for (place, value) in places.iter_mut().zip(checksums) {
        *place = (*value).into();
    }
    let check = checksum(&oob[4..]);
    oob[..4].copy_from_slice(U32::from(check).as_bytes());
}

/// Reads a mark of a page of `ius` IUs; `None` if it does not check out.
pub fn decode(oob: &[u8], ius: u32) -> Option<Mark> {
    let oob = oob.get(..size_bytes(ius))?;
    let (fields, _) = Fields::ref_from_prefix(oob).ok()?;
    let stream_and_place = fields.stream_and_place.get();
    let member_and_reference = fields.member_and_reference.get();
    let reference = member_and_reference >> 12 | (member_and_reference >> MEMBER_BITS & 3) << 4;
    (fields.check == checksum(&oob[4..])).then(|| Mark {
        segment: fields.segment.get(),
        generation: fields.generation.get(),
        member: member_and_reference & ((1 << MEMBER_BITS) - 1),
        stream: stream_and_place & 3 | reference << 8,
        place: stream_and_place >> 2,
    })
}

/// Whether a page of `ius` IUs has this mark, or the same one of a version that did not say where pages lie.
#[inline]
pub(crate) fn is_of(oob: &[u8], expected: &Mark, ius: u32) -> bool {
    let Some((mark, _)) = oob.split_at_checked(size_bytes(ius)) else { return false };
    // Two numbers: one for each field takes more instructions than the rest of the check.
    let Some((first, rest)) = mark.split_first_chunk::<8>() else { return false };
    let Some((second, _)) = rest.split_first_chunk::<8>() else { return false };
    let (first, second) = (u64::from_le_bytes(*first), u64::from_le_bytes(*second));
    let unplaced = u64::from(expected.generation)
        | u64::from(expected.member) << 32
        | u64::from(stored_reference(expected.stream >> 8)) << 32
        | u64::from(expected.stream & 0xff) << 48;
    first >> 32 == u64::from(expected.segment)
        && (second == unplaced | u64::from(expected.place) << 50 || second == unplaced)
        && first as u32 == checksum(&mark[4..])
}

/// The checksum a mark holds for IU `iu` of its page.
pub fn checksum_of(oob: &[u8], iu: u32) -> u32 {
    let at = FIELDS_SIZE_BYTES + 4 * iu as usize;
    U32::ref_from_bytes(&oob[at..at + 4]).expect("4 bytes").get()
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: the layout is pinned. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_a_mark() {
        let mark = Mark {
            segment: 0x0403_0201,
            generation: 0x0807_0605,
            member: 0x0209,
            stream: 0x2602,
            place: 0x2001,
        };
        let mut oob = [0xee; 32];
        encode(&mark, &[0x1413_1211, 0x18], &mut oob);
        let mut golden = [0xee; 32];
        golden[4..24].copy_from_slice(&[
            1, 2, 3, 4, 5, 6, 7, 8, 9, 0x6a, 6, 0x80, 0x11, 0x12, 0x13, 0x14, 0x18, 0, 0, 0,
        ]);
        let check = checksum(&golden[4..24]).to_le_bytes();
        golden[..4].copy_from_slice(&check);
        assert_eq!(oob, golden);
    }

    #[test]
    fn a_mark_reads_back_and_a_damaged_one_does_not() {
        let mark = Mark { segment: 7, generation: 9, member: 3, stream: 1, place: place_of(16_382) };
        let mut oob = [0; 32];
        encode(&mark, &[1, 2, 3, 4], &mut oob);
        assert_eq!(decode(&oob, 4), Some(mark));
        assert_eq!(checksum_of(&oob, 2), 3);
        assert!(is_of(&oob, &mark, 4) && !is_of(&oob[..31], &mark, 4));
        oob[20] ^= 1;
        assert_eq!(decode(&oob, 4), None);
        assert!(!is_of(&oob, &mark, 4));
        assert_eq!(decode(&[0; 32], 4), None);
    }

    /// Goal: a mark is told from others as a whole, and one that says no place is of its page. Method: each field of what is expected is
    /// another one, against what decoding says.
    #[test]
    fn a_mark_is_of_one_page() {
        let mark = Mark { segment: 7, generation: 9, member: 3, stream: 1, place: place_of(100) };
        let others = [
            mark,
            Mark { segment: 8, ..mark },
            Mark { generation: 8, ..mark },
            Mark { member: 2, ..mark },
            Mark { stream: 2, ..mark },
            Mark { stream: 0x201, ..mark },
            Mark { stream: 0x2001, ..mark },
            Mark { place: place_of(101), ..mark },
            Mark { place: 0, ..mark },
        ];
        for written in others {
            let mut oob = [0; 32];
            encode(&written, &[1, 2, 3, 4], &mut oob);
            for expected in others {
                let found = decode(&oob, 4).expect("it was just written");
                let is_ours = found == expected || found == Mark { place: 0, ..expected };
                assert_eq!(is_of(&oob, &expected, 4), is_ours, "{written:?} for {expected:?}");
            }
        }
    }
}
