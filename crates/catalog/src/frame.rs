//! A frame: a piece of a state, or of a change, as it lies in a program unit of a catalog block.
//!
//! Little endian, from the start of a program unit; what follows the records up to the end of the unit is zeros:
//!
//! | offset | size | field    | meaning                                            |
//! |-------:|-----:|----------|----------------------------------------------------|
//! |      0 |    8 | magic    | `DIECUTCT`                                         |
//! |      8 |    4 | version  | 2; 3 where pages have no OOB areas                 |
//! |     12 |    4 | checksum | CRC-32C of all bytes of the frame after this field; of version 3 of its place (below), too |
//! |     16 |    8 | sequence | number of the state that is there with this batch  |
//! |     24 |    8 | length   | bytes of records in this frame                     |
//! |     32 |    8 | follows  | number of the state that the records change; 0: they are all there is |
//! |     40 |    4 | part     | which part of the batch, from 0                    |
//! |     44 |    4 | parts    | how many frames the batch has                      |
//! |     48 |  ... | records  | see `record.rs`; one may go on in the next frame   |
//!
//! Version 1 has no field from 32 on: a JSON document of the whole state begins there, and a frame is as many program units as that
//! takes. It is read, never written.
//!
//! A frame of version 3 has a place: the UUID of its device (16 bytes) and the checksum of the frame before it in its block (4 bytes, 0 of the first one).
//! They stand nowhere, but its checksum begins with them. So what another device, an earlier use of the block, or a write that a cut left a part of put
//! there is no frame of this block.
//!
//! The OOB area of each of its pages begins with `DCAT` (4 bytes), the sequence (8), the page within the frame (4),
//! pages of the frame (4) and a CRC-32C of those 20 bytes (4): a reader finds frames without reading content.

use diecut_units::{checksum, checksum_append, mutant};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: &[u8; 8] = b"DIECUTCT";
const OOB_MAGIC: &[u8; 4] = b"DCAT";
const VERSION: u32 = 2;
/// Of frames that are known by their place.
const VERSION_OF_PLACES: u32 = 3;
const VERSION_OF_DOCUMENTS: u32 = 1;
/// What the checksum begins with.
const CHECKED_FROM: usize = 16;

/// Bytes before the records.
pub const FRAME_HEADER_SIZE_BYTES: usize = 48;
/// Bytes before the document of a frame of version 1.
const DOCUMENT_HEADER_SIZE_BYTES: usize = 32;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: U32,
    checksum: U32,
    sequence: U64,
    length: U64,
    follows: U64,
    part: U32,
    parts: U32,
}

const _: () = assert!(size_of::<Header>() == FRAME_HEADER_SIZE_BYTES);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Oob {
    magic: [u8; 4],
    sequence: U64,
    page: U32,
    pages: U32,
    checksum: U32,
}

pub(crate) const OOB_SIZE_BYTES: usize = size_of::<Oob>();
const _: () = assert!(OOB_SIZE_BYTES == 24);

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Cut off, another magic, or a wrong checksum: torn or never written.
    #[error("no complete catalog frame")]
    Incomplete,
    /// Written by another version.
    #[error("the catalog has format version {0}; this program knows versions 1 and 2, and 3 on drives")]
    Version(u32),
}

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Version 1: a state, as a JSON document.
    Document {
        /// Number of the state.
        sequence: u64,
        /// The document.
        text: &'a [u8],
    },
    /// A part of a batch of records.
    Part(Part<'a>),
}

/// A part of a batch: the records of all its parts, one behind the other, make one state of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Number of the state that is there with the batch.
    pub sequence: u64,
    /// Number of the state that the records change; 0: they are all there is.
    pub follows: u64,
    /// Which part, from 0.
    pub part: u32,
    /// How many there are.
    pub parts: u32,
    /// Bytes of records.
    pub records: &'a [u8],
}

/// Where a frame of version 3 lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// UUID of the device.
    pub device: [u8; 16],
    /// Checksum of the frame before it in its block; 0 of the first one.
    pub previous: u32,
}

fn checksum_at(place: Option<Place>, checked: &[u8]) -> u32 {
    let Some(Place { device, previous }) = place else { return checksum(checked) };
    let previous = if mutant!("catalog: a frame counts at any place") { 0 } else { previous };
    checksum_append(checksum_append(checksum(&device), &previous.to_le_bytes()), checked)
}

/// The checksum of a frame, as it stands in its bytes.
///
/// # Panics
/// If there are fewer bytes than a header has.
pub fn checksum_of(frame: &[u8]) -> u32 {
    let stored = frame[CHECKED_FROM - 4..CHECKED_FROM].try_into().expect("4 bytes");
    u32::from_le_bytes(stored)
}

/// The bytes of a frame: of version 3 if it has a place, else of version 2.
pub fn encode_frame(part: &Part<'_>, place: Option<Place>) -> Vec<u8> {
    let mut header = Header {
        magic: *MAGIC,
        version: place.map_or(VERSION, |_| VERSION_OF_PLACES).into(),
        checksum: 0.into(),
        sequence: part.sequence.into(),
        length: (part.records.len() as u64).into(),
        follows: part.follows.into(),
        part: part.part.into(),
        parts: part.parts.into(),
    };
    let mut frame = Vec::with_capacity(FRAME_HEADER_SIZE_BYTES + part.records.len());
    frame.extend_from_slice(header.as_bytes());
    frame.extend_from_slice(part.records);
    header.checksum = checksum_at(place, &frame[CHECKED_FROM..]).into();
    frame[..FRAME_HEADER_SIZE_BYTES].copy_from_slice(header.as_bytes());
    frame
}

/// Reads a frame; any bytes may come, also more than the frame. With a place only what was written there is one.
///
/// # Errors
/// Torn, of another place, or of another version.
pub fn decode_frame(bytes: &[u8], place: Option<Place>) -> Result<Frame<'_>, FrameError> {
    // A document may be shorter than the header of today.
    let mut start = [0; FRAME_HEADER_SIZE_BYTES];
    let len = bytes.len().min(start.len());
    start[..len].copy_from_slice(&bytes[..len]);
    let header = Header::read_from_bytes(&start).expect("as long as a header");
    if len < DOCUMENT_HEADER_SIZE_BYTES || header.magic != *MAGIC {
        return Err(FrameError::Incomplete);
    }
    let begins = match header.version.get() {
        VERSION_OF_DOCUMENTS => DOCUMENT_HEADER_SIZE_BYTES,
        VERSION => FRAME_HEADER_SIZE_BYTES,
        // Where pages have OOB areas nobody writes such frames yet.
        VERSION_OF_PLACES if place.is_some() => FRAME_HEADER_SIZE_BYTES,
        other => return Err(FrameError::Version(other)),
    };
    let length = usize::try_from(header.length.get()).ok();
    let end = length.and_then(|length| length.checked_add(begins)).filter(|end| *end <= bytes.len());
    let content = end.map(|end| &bytes[..end]).ok_or(FrameError::Incomplete)?;
    // Of another kind of medium, it is what lies around.
    let is_of_kind = place.is_some() == (header.version.get() == VERSION_OF_PLACES);
    let is_sound = checksum_at(place, &content[CHECKED_FROM..]) == header.checksum.get();
    if !is_of_kind || !is_sound {
        return Err(FrameError::Incomplete);
    }
    let (sequence, follows) = (header.sequence.get(), header.follows.get());
    if begins == DOCUMENT_HEADER_SIZE_BYTES {
        return Ok(Frame::Document { sequence, text: &content[begins..] });
    }
    let (part, parts) = (header.part.get(), header.parts.get());
    if part >= parts || follows >= sequence {
        return Err(FrameError::Incomplete);
    }
    Ok(Frame::Part(Part { sequence, follows, part, parts, records: &content[begins..] }))
}

/// What the OOB area of a frame's page begins with.
pub fn encode_oob(sequence: u64, page: u32, pages: u32, area: &mut [u8]) {
    let mut oob = Oob {
        magic: *OOB_MAGIC,
        sequence: sequence.into(),
        page: page.into(),
        pages: pages.into(),
        checksum: 0.into(),
    };
    oob.checksum = checksum(&oob.as_bytes()[..OOB_SIZE_BYTES - 4]).into();
    area.fill(0);
    area[..OOB_SIZE_BYTES].copy_from_slice(oob.as_bytes());
}

/// Sequence, page within the frame, pages of the frame.
pub fn decode_oob(area: &[u8]) -> Option<(u64, u32, u32)> {
    let (oob, _) = Oob::read_from_prefix(area).ok()?;
    if oob.magic != *OOB_MAGIC || checksum(&area[..OOB_SIZE_BYTES - 4]) != oob.checksum.get() {
        return None;
    }
    let (page, pages) = (oob.page.get(), oob.pages.get());
    (page < pages).then_some((oob.sequence.get(), page, pages))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_frame_comes_back_and_no_damage_goes_unseen() {
        let part = Part { sequence: 9, follows: 8, part: 1, parts: 3, records: b"some records" };
        let frame = encode_frame(&part, None);
        assert_eq!(decode_frame(&frame, None), Ok(Frame::Part(part)));
        for bit in 0..frame.len() * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_frame(&damaged, None).is_err(), "bit {bit}");
        }
        for len in 0..frame.len() {
            assert_eq!(decode_frame(&frame[..len], None), Err(FrameError::Incomplete));
        }
    }

    /// Goal: the layout is pinned. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_a_header() {
        let frame =
            encode_frame(&Part { sequence: 0x102, follows: 0x101, part: 2, parts: 5, records: b"ab" }, None);
        assert_eq!(frame[..12], *b"DIECUTCT\x02\0\0\0");
        assert_eq!(
            frame[16..],
            *b"\x02\x01\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\x01\0\0\0\0\0\0\x02\0\0\0\x05\0\0\0ab"
        );
        let mut area = [0xff; 32];
        encode_oob(0x102, 1, 2, &mut area);
        assert_eq!(area[..20], *b"DCAT\x02\x01\0\0\0\0\0\0\x01\0\0\0\x02\0\0\0");
        assert_eq!(area[24..], [0; 8]);
    }

    #[test]
    fn a_frame_without_sense_is_none() {
        for (sequence, follows, part, parts) in [(9, 9, 0, 1), (9, 10, 0, 1), (9, 8, 1, 1), (0, 0, 0, 1)] {
            let frame = encode_frame(&Part { sequence, follows, part, parts, records: &[] }, None);
            assert_eq!(decode_frame(&frame, None), Err(FrameError::Incomplete));
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut frame =
            encode_frame(&Part { sequence: 9, follows: 8, part: 0, parts: 1, records: &[] }, None);
        frame[8] = 4;
        assert!(decode_frame(&frame, None).unwrap_err().to_string().contains("format version 4"));
    }

    #[test]
    fn a_page_beyond_its_frame_is_none() {
        let mut area = [0; OOB_SIZE_BYTES];
        for (page, pages, found) in [(0, 1, true), (1, 2, true), (0, 0, false), (2, 2, false)] {
            encode_oob(7, page, pages, &mut area);
            assert_eq!(decode_oob(&area), found.then_some((7, page, pages)));
        }
    }

    /// Goal: a frame is one at its place alone. Method: bytes written by hand, and other places.
    #[test]
    fn a_frame_of_another_place_is_none() {
        let part = Part { sequence: 9, follows: 8, part: 1, parts: 3, records: b"some records" };
        let place = Place { device: [0xd1; 16], previous: 0x0403_0201 };
        let frame = encode_frame(&part, Some(place));
        assert_eq!(frame[8], 3);
        let mut behind = vec![0xd1; 16];
        behind.extend([1, 2, 3, 4]);
        behind.extend(&frame[16..]);
        assert_eq!(checksum_of(&frame), checksum(&behind));
        assert_eq!(decode_frame(&frame, Some(place)), Ok(Frame::Part(part)));
        for other in [Place { device: [0xd2; 16], ..place }, Place { previous: 0, ..place }] {
            assert_eq!(decode_frame(&frame, Some(other)), Err(FrameError::Incomplete));
        }
        assert_eq!(decode_frame(&frame, None), Err(FrameError::Version(3)));
        let plain = encode_frame(&part, None);
        assert_eq!(decode_frame(&plain, Some(place)), Err(FrameError::Incomplete));
    }
}
