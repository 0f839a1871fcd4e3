//! Writes anchors to erase blocks of their own, and gives back those of older ones.

use crate::anchor::PURPOSE_ANCHOR;
use crate::chunk::nonce_of;
use crate::format::any_anchor::{AnyAnchor, PIECE_HEADER_SIZE_BYTES};
use crate::layout::unsafe_units;
use crate::token::TOKEN_ANCHOR;
use diecut_units::{Buffer, BufferPool, ContentMode, IU_SIZE_BYTES, Payload, mutant};
use diecut_vssd::space::{
    BlockShape, EraseBlockSpace, IoClass, LogicalBlock, PayloadParts, SpaceError, SpaceToken, UnitIndex,
};

/// Writes anchors, one at a time.
#[derive(Debug)]
pub(super) struct AnchorWriter {
    next_number: u64,
    /// Blocks held, each with the number of the newest anchor that has something in it.
    blocks: Vec<(LogicalBlock, u64)>,
    /// The block that is appended to, and units appended.
    open: Option<(LogicalBlock, u32)>,
    next_unit: u16,
    writing: Option<Writing>,
    /// What is programmed is durable only when a flush that began after that is complete.
    has_cache: bool,
    /// Blocks of older anchors may go.
    superseded_before: u64,
    pub programmed_ius: u64,
}

#[derive(Debug)]
struct Writing {
    number: u64,
    sequence: u64,
    pending: u32,
    failed: bool,
    flush: Flush,
}

/// What an anchor whose programs have ended waits for, where the medium has a volatile cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    /// The end of its programs.
    Programs,
    /// A flush that begins from now on.
    Next,
    /// The flush that is under way.
    UnderWay,
}

impl AnchorWriter {
    pub fn new(has_cache: bool) -> AnchorWriter {
        AnchorWriter {
            has_cache,
            next_number: 1,
            blocks: Vec::new(),
            open: None,
            next_unit: 0,
            writing: None,
            superseded_before: 0,
            programmed_ius: 0,
        }
    }

    /// Goes on after a restart.
    pub fn adopt(&mut self, blocks: &[LogicalBlock], next_number: u64) {
        self.blocks = blocks.iter().map(|block| (*block, next_number - 1)).collect();
        self.next_number = next_number;
    }

    pub fn is_idle(&self) -> bool {
        self.writing.is_none()
    }

    /// Blocks held on a unit.
    pub fn blocks_on(&self, unit: UnitIndex) -> u32 {
        self.blocks.iter().filter(|(block, _)| block.unit == unit).count() as u32
    }

    /// Whether no number is left for another anchor.
    pub fn is_used_up(&self) -> bool {
        self.next_number == u64::MAX
    }

    /// IUs that an anchor of `len` bytes takes, filler included.
    pub fn size_ius(shape: &BlockShape, len: usize) -> u64 {
        let unit_ius = shape.program_unit_ius() as usize;
        let pieces = len.div_ceil(unit_ius * IU_SIZE_BYTES - PIECE_HEADER_SIZE_BYTES).max(1);
        ((pieces + unsafe_units(shape) as usize) * unit_ius) as u64
    }

    /// Starts to write an anchor. Without a block for it nothing of it will count, and the next one tries again.
    /// `keep` blocks of each unit are not taken: the cleaner could else never make room again.
    pub fn write(
        &mut self,
        anchor: &AnyAnchor,
        keep: u32,
        pool: &mut BufferPool,
        space: &mut dyn EraseBlockSpace,
    ) {
        assert!(self.is_idle(), "I-L32: one anchor at a time");
        assert!(!self.is_used_up(), "I-L32: an anchor has a number of its own");
        let shape = *space.shape();
        let bytes = anchor.encode();
        let unit_bytes = shape.program_unit_ius() as usize * IU_SIZE_BYTES;
        let number = self.next_number;
        self.next_number += 1;
        self.writing = Some(Writing {
            number,
            sequence: anchor.sequence(),
            pending: 0,
            failed: false,
            flush: Flush::Programs,
        });
        let mut pieces = anchor.pieces(number, &bytes, unit_bytes);
        while !pieces.are_written() {
            let Some(block) = self.next_block(keep, space) else {
                self.writing.as_mut().expect("just begun").failed = true;
                break;
            };
            let mut unit = pool.take(unit_bytes);
            pieces.encode_next(nonce_of(block, space), &mut unit);
            self.append(unit.freeze(), pool, space);
        }
        for _ in 0..unsafe_units(&shape) {
            if self.open.is_some_and(|(_, units)| units < shape.program_units()) {
                let filler = pool.take_zeroed(unit_bytes).freeze();
                self.append(filler, pool, space);
            }
        }
        if self.writing.as_ref().is_some_and(|writing| writing.pending == 0) {
            self.writing = None;
        }
    }

    /// The block that the next piece lies in, if there is one.
    fn next_block(&mut self, keep: u32, space: &mut dyn EraseBlockSpace) -> Option<LogicalBlock> {
        let shape = *space.shape();
        if self.open.is_none_or(|(_, units)| units == shape.program_units()) {
            let allocated = (0..space.unit_count()).find_map(|step| {
                let unit = UnitIndex((self.next_unit + step) % space.unit_count());
                (space.free_blocks(unit) > keep).then(|| space.allocate(unit, PURPOSE_ANCHOR).ok()).flatten()
            });
            let block = allocated?;
            self.next_unit = block.unit.0 + 1;
            self.blocks.push((block, 0));
            self.open = Some((block, 0));
        }
        self.open.map(|(block, _)| block)
    }

    /// Programs a unit of the open block.
    fn append(&mut self, unit: Buffer, pool: &mut BufferPool, space: &mut dyn EraseBlockSpace) {
        let shape = *space.shape();
        let (block, units) = self.open.as_mut().expect("just opened");
        *units += 1;
        assert!(*units <= shape.program_units(), "I-L15: a block has no more rows");
        let block = *block;
        let writing = self.writing.as_mut().expect("being written");
        writing.pending += 1;
        if let Some(held) = self.blocks.iter_mut().find(|held| held.0 == block) {
            held.1 = writing.number;
        }
        let mut parts = PayloadParts::new();
        parts.push(Payload::new(ContentMode::Bytes, unit));
        let oob = pool.take_zeroed(shape.program_unit_oob_size_bytes() as usize);
        self.programmed_ius += u64::from(shape.program_unit_ius());
        space.append(SpaceToken(TOKEN_ANCHOR), block, parts, oob, IoClass::Metadata);
    }

    /// A program ended. Gives the sequence of the anchor when that makes it hold.
    pub fn programmed(&mut self, result: Result<(), SpaceError>) -> Option<u64> {
        let writing = self.writing.as_mut().expect("I-L32: programs belong to an anchor");
        assert!(writing.pending > 0, "I-L32: each piece ends once");
        writing.pending -= 1;
        writing.failed |= result.is_err();
        if writing.pending > 0 {
            return None;
        }
        if writing.failed {
            diecut_units::mark!("log: anchor failed");
            self.writing = None;
            self.open = None;
            return None;
        }
        if self.has_cache && !mutant!("log: an anchor holds before its flush") {
            writing.flush = Flush::Next;
            return None;
        }
        self.hold()
    }

    /// Whether one waits for a flush to begin.
    pub fn waits_for_flush(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| writing.flush == Flush::Next)
    }

    /// A flush begins.
    pub fn flush_begins(&mut self) {
        if let Some(writing) = self.writing.as_mut().filter(|writing| writing.flush == Flush::Next) {
            writing.flush = Flush::UnderWay;
        }
    }

    /// A flush is complete. Gives the sequence of the anchor when that makes it hold.
    pub fn flushed(&mut self) -> Option<u64> {
        let holds = self.writing.as_ref().is_some_and(|writing| writing.flush == Flush::UnderWay);
        holds.then(|| self.hold()).flatten()
    }

    fn hold(&mut self) -> Option<u64> {
        let writing = self.writing.take()?;
        assert!(writing.number >= self.superseded_before, "I-L18: anchors do not go back");
        self.superseded_before = writing.number;
        Some(writing.sequence)
    }

    /// Frees the blocks that only older anchors have something in. Whether there are any.
    pub fn free_superseded(&mut self, space: &mut dyn EraseBlockSpace) -> u64 {
        let held = self.blocks.len();
        let is_early = mutant!("log: the block that an anchor begins in goes when it ends in another one");
        let before = std::mem::take(&mut self.superseded_before) + u64::from(is_early);
        let open = self.open.map(|(block, _)| block);
        self.blocks.retain(|(block, number)| {
            let keep = *number >= before || Some(*block) == open;
            if !keep {
                space.free(*block).expect("held by an anchor");
            }
            keep
        });
        (held - self.blocks.len()) as u64
    }
}
