//! What a zone is lent for a step.

use crate::shape::{UnitNumber, ZoneShape};
use crate::staging::Staging;
use crate::zone::ZoneName;
use diecut_units::{BufferPool, ContentMode, Slab};
use diecut_vssd::space::{BlockShape, EraseBlockSpace, LogicalBlock};

/// A program of a zone that is under way.
#[derive(Clone, Copy)]
pub(crate) struct Program {
    pub name: ZoneName,
    pub unit: UnitNumber,
}

/// A copy of a row to another block that is under way.
pub(crate) struct CopyStep {
    pub name: ZoneName,
    pub column: usize,
    pub row: u32,
    /// The row could not be read as a whole: pages that were read or are lost, content and checksums so far.
    pub pieces: Option<Pieces>,
}

/// See [`CopyStep`].
#[derive(Default)]
pub(crate) struct Pieces {
    pub page: u32,
    pub content: Vec<u8>,
    pub sums: Vec<u32>,
}

/// What is under way at the space for zones.
#[derive(Default)]
pub(crate) struct UnderWay {
    pub programs: Slab<Program>,
    pub copies: Slab<CopyStep>,
    /// Program units that dies copied.
    pub copied_units: u64,
    /// Blocks were given back since the last sync began: they cannot be had again before one ends.
    pub frees: bool,
    /// Syncs that were begun for that, and that ended.
    pub sweeps_begun: u64,
    pub sweeps_ended: u64,
}

/// Facts of the space that do not change.
#[derive(Clone, Copy)]
pub(crate) struct Facts {
    pub block: BlockShape,
    pub mode: ContentMode,
    pub units: u16,
    /// Dies copy what stays on them.
    pub copies_within_dies: bool,
}

impl Facts {
    /// Of a space.
    pub fn of(space: &dyn EraseBlockSpace) -> Facts {
        let block = *space.shape();
        let copies_within_dies = space.copies_within_dies();
        Facts { block, mode: block.content_mode, units: space.unit_count(), copies_within_dies }
    }
}

/// See the module.
pub(crate) struct Lent<'a> {
    pub shape: ZoneShape,
    pub facts: Facts,
    pub staging: &'a mut Staging,
    pub under_way: &'a mut UnderWay,
    pub pool: &'a mut BufferPool,
    /// Erase blocks are on their way back: one that is lacking comes.
    pub blocks_return: bool,
    pub space: &'a mut dyn EraseBlockSpace,
}

impl Lent<'_> {
    /// Gives a block of a zone back.
    pub fn free(&mut self, block: LogicalBlock) {
        self.space.free(block).expect("I-Z8: a zone holds its blocks");
        self.under_way.frees = true;
    }
}
