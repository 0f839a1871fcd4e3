//! Anchor: where recovery begins. It names the sequence from which records are replayed, the segments that hold nothing
//! newer, and what the owner needs to find its map. It lies in erase blocks of its own, as consecutive pieces of one
//! program unit each. Little endian. Each piece:
//!
//! | offset | size | field   | meaning                                                                    |
//! |-------:|-----:|---------|----------------------------------------------------------------------------|
//! |      0 |    4 | magic   | "danc"                                                                     |
//! |      4 |    4 | check   | CRC-32C of bytes 8 to the end of the unit                                  |
//! |      8 |    2 | version | 1; a reader takes no other                                                 |
//! |     10 |    2 | reserved| zero                                                                       |
//! |     12 |    4 | index   | number of this piece                                                       |
//! |     16 |    4 | count   | pieces of the anchor                                                       |
//! |     20 |    4 | length  | bytes of content in this piece                                             |
//! |     24 |    8 | number  | rises with every anchor; the newest of which all pieces are readable holds |
//! |     32 |   32 | reserved| zero                                                                       |
//! |     64 |    n | content | see below; zeros to the end of the unit                                    |
//!
//! The contents of all pieces, joined:
//!
//! | offset | size | field           | meaning                                                          |
//! |-------:|-----:|-----------------|------------------------------------------------------------------|
//! |      0 |    8 | sequence        | records before it are in the owner's leaves: they are not replayed |
//! |      8 |    8 | taken_at        | sequence at which the anchor was taken                           |
//! |     16 |    4 | next_generation | greater than that of any segment                                 |
//! |     20 |    4 | segment_count   | segments that follow                                             |
//! |     24 | 12*s | segments        | index, generation, program units written: closed, all before `sequence` |
//! |    ... |    m | owner           | the owner's bytes                                                |
//!
//! A torn piece fails its check, and so does an anchor without it: the one before holds. Its blocks are freed only when the
//! next one is whole and cannot be taken by a cut: units that a cut could destroy are followed by filler, units of zeros.

use crate::SegmentIndex;
use diecut_units::checksum;
use diecut_vssd::space::{LogicalBlock, Purpose};
use std::collections::BTreeMap;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `Purpose` of the erase blocks of anchors.
pub const PURPOSE_ANCHOR: Purpose = Purpose(2);
const MAGIC: [u8; 4] = *b"danc";
const VERSION: u16 = 1;
pub(crate) const HEADER_SIZE_BYTES: usize = size_of::<PieceHeader>();

/// What stands in front of the content of a piece.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct PieceHeader {
    magic: [u8; 4],
    check: U32,
    version: U16,
    reserved: U16,
    index: U32,
    count: U32,
    length: U32,
    number: U64,
    reserved_too: [u8; 32],
}

/// What stands in front of the segments of an anchor.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ContentHeader {
    sequence: U64,
    taken_at: U64,
    next_generation: U32,
    segment_count: U32,
}

/// A segment of an anchor.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredSegment {
    index: U32,
    generation: U32,
    units: U32,
}

const _: () = {
    assert!(HEADER_SIZE_BYTES == 64 && offset_of!(PieceHeader, reserved_too) == 32);
    assert!(size_of::<ContentHeader>() == 24 && size_of::<StoredSegment>() == 12);
};

/// What an anchor says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Anchor {
    /// Records before this sequence are not replayed.
    pub sequence: u64,
    /// Sequence at which it was taken.
    pub taken_at: u64,
    /// Greater than the generation of any segment.
    pub next_generation: u32,
    /// Generation and program units written of segments that need not be walked.
    pub segments: BTreeMap<SegmentIndex, (u32, u32)>,
    /// The owner's bytes.
    pub owner: Vec<u8>,
}

impl Anchor {
    /// Bytes of the joined content of one that names so many segments, with so many bytes of the owner.
    pub fn size_bytes(segments: usize, owner_bytes: usize) -> usize {
        size_of::<ContentHeader>() + size_of::<StoredSegment>() * segments + owner_bytes
    }

    /// The joined content.
    pub fn encode(&self) -> Vec<u8> {
        let header = ContentHeader {
            sequence: self.sequence.into(),
            taken_at: self.taken_at.into(),
            next_generation: self.next_generation.into(),
            segment_count: (self.segments.len() as u32).into(),
        };
        let mut bytes = Vec::with_capacity(Anchor::size_bytes(self.segments.len(), self.owner.len()));
        bytes.extend(header.as_bytes());
        for (index, (generation, units)) in &self.segments {
            let (index, generation, units) = (index.0.into(), (*generation).into(), (*units).into());
            bytes.extend(StoredSegment { index, generation, units }.as_bytes());
        }
        bytes.extend(&self.owner);
        bytes
    }

    /// Reads the joined content; `None` if it is cut short.
    pub fn decode(bytes: &[u8]) -> Option<Anchor> {
        let (header, rest) = ContentHeader::ref_from_prefix(bytes).ok()?;
        let count = header.segment_count.get() as usize;
        let (segments, owner) = <[StoredSegment]>::ref_from_prefix_with_elems(rest, count).ok()?;
        let segments = segments.iter().map(|segment| {
            (SegmentIndex(segment.index.get()), (segment.generation.get(), segment.units.get()))
        });
        Some(Anchor {
            sequence: header.sequence.get(),
            taken_at: header.taken_at.get(),
            next_generation: header.next_generation.get(),
            segments: segments.collect(),
            owner: owner.to_vec(),
        })
    }
}

impl Anchor {
    /// Whether its counters can be those of a store.
    pub fn is_possible(&self) -> bool {
        self.sequence <= self.taken_at && self.taken_at < crate::walk::SEQUENCE_MAX
    }
}

/// One piece of an anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Number of the anchor.
    pub number: u64,
    /// Number of the piece.
    pub index: u32,
    /// Pieces of the anchor.
    pub count: u32,
    /// Its content.
    pub content: &'a [u8],
}

impl<'a> Piece<'a> {
    /// Fills a program unit.
    ///
    /// # Panics
    /// If the content does not fit.
    pub fn encode(&self, unit: &mut [u8]) {
        assert!(self.index < self.count, "I-L32: a piece is one of its anchor");
        let header = PieceHeader {
            magic: MAGIC,
            check: 0.into(),
            version: VERSION.into(),
            reserved: 0.into(),
            index: self.index.into(),
            count: self.count.into(),
            length: (self.content.len() as u32).into(),
            number: self.number.into(),
            reserved_too: [0; 32],
        };
        let end = HEADER_SIZE_BYTES + self.content.len();
        unit[..HEADER_SIZE_BYTES].copy_from_slice(header.as_bytes());
        unit[HEADER_SIZE_BYTES..end].copy_from_slice(self.content);
        unit[end..].fill(0);
        let check = checksum(&unit[8..]);
        unit[4..8].copy_from_slice(U32::from(check).as_bytes());
    }

    /// Reads a program unit; `None` if it is no piece or does not check out.
    pub fn decode(unit: &'a [u8]) -> Option<Piece<'a>> {
        let (header, content) = PieceHeader::ref_from_prefix(unit).ok()?;
        let is_whole = header.magic == MAGIC && header.version == VERSION;
        if !is_whole || header.check != checksum(&unit[8..]) {
            return None;
        }
        let content = content.get(..header.length.get() as usize)?;
        let (number, index, count) = (header.number.get(), header.index.get(), header.count.get());
        (index < count).then_some(Piece { number, index, count, content })
    }
}

/// Pieces of their anchor, the block and program unit where each lay, and its content.
type PiecesByIndex = BTreeMap<u32, (u32, (LogicalBlock, u32), Vec<u8>)>;

/// The newest anchor of which all pieces were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundAnchor {
    /// What it says.
    pub anchor: Anchor,
    /// Its blocks.
    pub blocks: Vec<LogicalBlock>,
    /// Program unit of its first piece, in the first of its blocks.
    pub first_unit: u32,
}

/// Pieces found after a restart.
#[derive(Debug, Default)]
pub struct FoundPieces {
    /// By number of the anchor.
    anchors: BTreeMap<u64, PiecesByIndex>,
}

impl FoundPieces {
    /// Takes the content of a program unit of a block of anchors. Whether it is a piece of one.
    pub fn add(&mut self, block: LogicalBlock, unit: u32, bytes: &[u8]) -> bool {
        let Some(piece) = Piece::decode(bytes) else { return false };
        let pieces = self.anchors.entry(piece.number).or_default();
        pieces.insert(piece.index, (piece.count, (block, unit), piece.content.to_vec()));
        true
    }

    /// The newest anchor of which all pieces were found, and the number that the next one gets.
    pub fn newest(&self) -> (Option<FoundAnchor>, u64) {
        let next = self.anchors.keys().next_back().map_or(1, |number| number.saturating_add(1));
        let whole = self.anchors.values().rev().find_map(|pieces| {
            let count = pieces.values().next()?.0 as usize;
            let joined: Vec<u8> = pieces.values().flat_map(|(_, _, content)| content).copied().collect();
            let anchor = (pieces.len() == count).then(|| Anchor::decode(&joined)).flatten()?;
            let first_unit = pieces.values().next()?.1.1;
            let mut blocks: Vec<LogicalBlock> = pieces.values().map(|(_, (block, _), _)| *block).collect();
            blocks.dedup();
            Some(FoundAnchor { anchor, blocks, first_unit })
        });
        (whole, next)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: the layout is pinned. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_an_anchor() {
        let anchor = Anchor {
            sequence: 0x0807_0605_0403_0201,
            taken_at: 0x0e0d_0c0b_0a09_0807,
            next_generation: 0x11,
            segments: [(SegmentIndex(0x0204), (0x31, 0x32)), (SegmentIndex(0x0203), (0x21, 0x22))].into(),
            owner: b"owner".to_vec(),
        };
        let golden = [
            &[1, 2, 3, 4, 5, 6, 7, 8, 7, 8, 9, 10, 11, 12, 13, 14, 0x11, 0, 0, 0, 2, 0, 0, 0][..],
            &[3, 2, 0, 0, 0x21, 0, 0, 0, 0x22, 0, 0, 0, 4, 2, 0, 0, 0x31, 0, 0, 0, 0x32, 0, 0, 0],
            b"owner",
        ];
        assert_eq!(anchor.encode(), golden.concat());
        let mut unit = [0xee; 128];
        Piece { number: 0x0102, index: 3, count: 5, content: b"part" }.encode(&mut unit);
        let mut golden = [0; 128];
        golden[..4].copy_from_slice(b"danc");
        golden[8..26].copy_from_slice(&[1, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0, 2, 1]);
        golden[64..68].copy_from_slice(b"part");
        let check = checksum(&golden[8..]).to_le_bytes();
        golden[4..8].copy_from_slice(&check);
        assert_eq!(unit, golden);
    }

    #[test]
    fn an_anchor_reads_back_from_its_pieces_and_not_without_one() {
        let anchor = Anchor {
            sequence: 7,
            taken_at: 9,
            next_generation: 3,
            segments: [(SegmentIndex(2), (1, 24))].into(),
            owner: (0..10_000u32).map(|n| n as u8).collect(),
        };
        let bytes = anchor.encode();
        assert_eq!(Anchor::decode(&bytes), Some(anchor.clone()));
        assert_eq!(Anchor::decode(&bytes[..30]), None);
        let mut found = FoundPieces::default();
        let mut older = FoundPieces::default();
        let block = LogicalBlock::default();
        let contents: Vec<&[u8]> = bytes.chunks(4096 - HEADER_SIZE_BYTES).collect();
        for (index, content) in contents.iter().enumerate() {
            let mut unit = vec![0xff; 4096];
            let count = contents.len() as u32;
            Piece { number: 5, index: index as u32, count, content }.encode(&mut unit);
            found.add(block, 3 + index as u32, &unit);
            if index > 0 {
                older.add(block, 3 + index as u32, &unit);
            }
            unit[100] ^= 1;
            assert_eq!(Piece::decode(&unit), None);
        }
        assert_eq!(found.newest(), (Some(FoundAnchor { anchor, blocks: vec![block], first_unit: 3 }), 6));
        assert_eq!(older.newest(), (None, 6));
    }
}
