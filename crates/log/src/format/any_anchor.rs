//! Anchors of both versions, as recovery needs them and as the log writes them.

use super::Format;
use super::anchor::{self, Anchor};
use super::anchor2::{self, AnchorName, AnchorRefusal, AnchorSegment, SegmentProgress};
use super::chunk::Nonce;
use crate::SegmentIndex;
use diecut_units::checksum;
use diecut_vssd::space::LogicalBlock;

/// Bytes in front of the content of a piece of either version.
pub(crate) const PIECE_HEADER_SIZE_BYTES: usize = anchor::HEADER_SIZE_BYTES;
const _: () = assert!(PIECE_HEADER_SIZE_BYTES == anchor2::PIECE_HEADER_SIZE_BYTES);

/// An anchor that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnyAnchor {
    /// Of version 1.
    One(Anchor),
    /// Of version 2, and random bytes of the opening.
    Two(anchor2::Anchor, [u8; 8]),
}

impl AnyAnchor {
    /// Records before it are in the owner's leaves.
    pub fn sequence(&self) -> u64 {
        match self {
            AnyAnchor::One(anchor) => anchor.sequence,
            AnyAnchor::Two(anchor, _) => anchor.sequence,
        }
    }

    /// Sequence at which it was taken.
    pub fn taken_at(&self) -> u64 {
        match self {
            AnyAnchor::One(anchor) => anchor.taken_at,
            AnyAnchor::Two(anchor, _) => anchor.taken_at,
        }
    }

    /// Its content.
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            AnyAnchor::One(anchor) => anchor.encode(),
            AnyAnchor::Two(anchor, _) => anchor.encode(),
        }
    }

    /// Fills program units with the pieces of its content.
    pub(crate) fn pieces<'a>(&self, number: u64, bytes: &'a [u8], unit_bytes: usize) -> Pieces<'a> {
        let contents = bytes.chunks(unit_bytes - PIECE_HEADER_SIZE_BYTES);
        let of = match self {
            AnyAnchor::One(_) => None,
            AnyAnchor::Two(anchor, opening) => Some((anchor.life, *opening, checksum(bytes))),
        };
        Pieces { number, count: contents.len() as u32, contents, of, index: 0 }
    }
}

/// Pieces of an anchor, one after the other.
pub(crate) struct Pieces<'a> {
    number: u64,
    count: u32,
    contents: std::slice::Chunks<'a, u8>,
    /// Of version 2: life, opening, check of the whole content.
    of: Option<(u64, [u8; 8], u32)>,
    index: u32,
}

impl Pieces<'_> {
    /// Fills a program unit with the next one, of a block with this nonce. Only version 2 knows nonces.
    ///
    /// # Panics
    /// If there is none.
    pub fn encode_next(&mut self, nonce: Nonce, unit: &mut [u8]) {
        let content = self.contents.next().expect("I-L32: an anchor has so many pieces");
        let (number, index, count) = (self.number, self.index, self.count);
        match self.of {
            None => anchor::Piece { number, index, count, content }.encode(unit),
            Some((life, opening, content_check)) => {
                let of = AnchorName { number, life, opening, content_check, count };
                anchor2::Piece { of, index, content }.encode(nonce, unit);
            }
        }
        self.index += 1;
    }

    /// Whether all of them were written.
    pub fn are_written(&self) -> bool {
        self.index == self.count
    }
}

/// The newest anchor of which all pieces were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundAnchor {
    /// What it says. Of one of version 2, segments that are closed.
    pub anchor: Anchor,
    /// Three of one of version 2.
    pub format: Format,
    /// All segments that one of version 2 names.
    pub listed: Vec<AnchorSegment>,
    /// Its blocks.
    pub blocks: Vec<LogicalBlock>,
    /// Program unit of its first piece, in the first of its blocks.
    pub first_unit: u32,
}

/// What pieces make, besides the newest anchor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoundNumbers {
    /// The number that the next anchor gets.
    pub next_number: u64,
    /// The latest life that some piece is of.
    pub life: u64,
}

/// Pieces of both versions, found after a restart.
#[derive(Debug, Default)]
pub struct FoundPieces {
    one: anchor::FoundPieces,
    two: anchor2::FoundPieces,
}

impl FoundPieces {
    /// Takes the content of a program unit of a block of anchors. Whether it is a piece.
    pub fn add(&mut self, nonce: Nonce, block: LogicalBlock, unit: u32, bytes: &[u8]) -> bool {
        self.one.add(block, unit, bytes) || self.two.add(nonce, block, unit, bytes)
    }

    /// What the next anchor needs to know.
    pub fn numbers(&self) -> FoundNumbers {
        let next_number = self.one.newest().1.max(self.two.next_number());
        FoundNumbers { next_number, life: self.two.life() }
    }

    /// The newest whole anchor. Once there is one of version 2 no other version is written.
    ///
    /// # Errors
    /// Says why it is not taken. An older one does not count instead.
    pub fn newest(&self) -> Result<Option<FoundAnchor>, AnchorRefusal> {
        let Some(anchor2::FoundAnchor { anchor, pieces }) = self.two.newest()? else {
            let newest = self.one.newest().0;
            return Ok(newest.map(|anchor::FoundAnchor { anchor, blocks, first_unit }| FoundAnchor {
                anchor,
                blocks,
                first_unit,
                ..FoundAnchor::default()
            }));
        };
        let mut blocks: Vec<LogicalBlock> = pieces.iter().map(|(block, _)| *block).collect();
        blocks.dedup();
        let closed = anchor.segments.iter().filter(|segment| segment.progress == SegmentProgress::Closed);
        let closed =
            closed.map(|segment| (SegmentIndex(segment.index), (segment.generation, segment.end))).collect();
        let (sequence, taken_at) = (anchor.sequence, anchor.taken_at);
        let (next_generation, owner) = (anchor.next_generation, anchor.owner);
        Ok(Some(FoundAnchor {
            anchor: Anchor { sequence, taken_at, next_generation, segments: closed, owner },
            format: Format::Three,
            listed: anchor.segments,
            blocks,
            first_unit: pieces[0].1,
        }))
    }
}
