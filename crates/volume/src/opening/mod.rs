//! Recovery. The newest whole anchor says from which sequence on records are replayed, and where the leaves of the map
//! lay. Page marks tell which erase block belongs to which segment; segments that the anchor does not cover are walked
//! head by head. Then the leaves are read, and the records, those in staging included, are replayed over them in the order
//! of their sequences. Without an anchor everything is walked.
//!
//! Each of these is a phase with what only it needs. A phase ends when none of its reads is under way; what it found goes on to the
//! next one as a value.

mod anchors;
mod heads;
mod leaves;
mod marks;
mod replay;
mod tally;
mod undo;
mod written;

use crate::endurance::EnduranceFigures;
use crate::lent::Lent;
use crate::loss::{AcceptedLoss, Findings, Recovery};
use crate::map::LeafKind;
use anchors::AnchorSearch;
use diecut_log::anchor::Anchor;
use diecut_log::{Format, RecoveredChunk, TOKEN_USER};
use diecut_units::token::space;
use diecut_vssd::space::{LogicalBlock, SpaceCompletion, SpaceToken};
use heads::HeadWalk;
use leaves::LeafReads;
use marks::MarkSearch;

/// What all phases add to.
pub(crate) struct Found {
    /// What is done about what is missing.
    recovery: Recovery,
    /// Reads that are under way.
    outstanding: usize,
    anchor: Anchor,
    /// What is asked for; then what the store is of.
    pub format: Format,
    /// It was of the format of before until now.
    pub is_renewed: bool,
    /// There is an anchor of version 1.
    has_anchor_of_one: bool,
    /// The anchor is of a version that records leaves also when they become empty.
    records_empty_leaves: bool,
    /// Erase blocks whose marks are lost.
    pub unmarked: Vec<LogicalBlock>,
    pub accepted: AcceptedLoss,
    /// What was written and erased since the store was made; until all records are known, what the anchor says.
    pub figures: EnduranceFigures,
    pub findings: Findings,
}

impl Found {
    /// Something is missing that told which data is the newest.
    fn has_lost_records(&self) -> bool {
        self.findings.records > 0
    }

    /// All chunks are known: which format the store is of. Nothing goes back to the one of before.
    fn choose_format(&mut self, chunks: &[RecoveredChunk], lent: &mut Lent) {
        let has = |format| chunks.iter().any(|chunk| chunk.head.format == format);
        let has_anchor_of_two = lent.maps.kind == LeafKind::New;
        if has_anchor_of_two || has(Format::Three) {
            self.format = Format::Three;
        }
        if self.format == Format::Three && !has_anchor_of_two {
            lent.maps.recut(self.anchor.sequence);
            self.is_renewed = self.has_anchor_of_one || has(Format::Two);
        }
    }
}

/// Where recovery is. Each phase leads to the next one.
enum Phase {
    /// Pieces of anchors are read.
    Anchors(AnchorSearch),
    /// Pages are read that say which segment a block belongs to.
    Marks(MarkSearch),
    /// Segments are walked from head to head.
    Heads(HeadWalk),
    /// Leaves of the map are read, to replay records over them.
    Leaves(LeafReads),
    /// The map is what it was.
    Done,
}

impl Phase {
    fn number(&self) -> u8 {
        match self {
            Phase::Anchors(_) => 0,
            Phase::Marks(_) => 1,
            Phase::Heads(_) => 2,
            Phase::Leaves(_) => 3,
            Phase::Done => 4,
        }
    }
}

/// A store that recovers.
pub(crate) struct Opening {
    phase: Phase,
    found: Found,
}

impl Opening {
    /// Begins.
    pub fn start(recovery: Recovery, format: Format, lent: &mut Lent) -> Opening {
        let mut found = Found {
            recovery,
            outstanding: 0,
            anchor: Anchor::default(),
            // Without OOB areas nothing but heads and leaves of the new format says whose they are.
            format: if lent.space.shape().has_oob() { format } else { Format::Three },
            is_renewed: false,
            has_anchor_of_one: false,
            records_empty_leaves: false,
            unmarked: Vec::new(),
            accepted: AcceptedLoss::default(),
            figures: EnduranceFigures::default(),
            findings: Findings::default(),
        };
        let phase = Phase::Anchors(AnchorSearch::start(&mut found, lent));
        let mut opening = Opening { phase, found };
        opening.go_on(lent);
        opening
    }

    /// A read ended.
    pub fn step(&mut self, completion: SpaceCompletion, lent: &mut Lent) {
        let found = &mut self.found;
        assert!(found.outstanding > 0, "I-M1: each read of recovery ends once");
        found.outstanding -= 1;
        if lent.log.is_gone() {
            return;
        }
        match &mut self.phase {
            Phase::Anchors(search) => search.arrived(&completion, found, lent),
            Phase::Marks(search) => search.arrived(completion, found, lent),
            Phase::Heads(walk) => walk.arrived(completion, found, lent),
            Phase::Leaves(leaves) => leaves.arrived(completion, found, lent),
            Phase::Done => panic!("I-M1: nothing is read when recovery is done"),
        }
        self.go_on(lent);
    }

    /// Goes through phases until one has reads under way.
    fn go_on(&mut self, lent: &mut Lent) {
        while self.found.outstanding == 0 && !self.is_done() {
            let before = self.phase.number();
            let found = &mut self.found;
            self.phase = match std::mem::replace(&mut self.phase, Phase::Done) {
                Phase::Anchors(search) => Phase::Marks(search.end(found, lent)),
                Phase::Marks(search) => Phase::Heads(search.end(found, lent)),
                Phase::Heads(mut walk) => {
                    if walk.goes_on(found, lent) {
                        self.phase = Phase::Heads(walk);
                        return;
                    }
                    Phase::Leaves(walk.end(found, lent))
                }
                Phase::Leaves(leaves) => {
                    leaves.end(found, lent);
                    Phase::Done
                }
                Phase::Done => Phase::Done,
            };
            assert_eq!(self.phase.number(), before + 1, "I-M2: a phase leads to the next one");
        }
    }

    /// Whether the map is what it was.
    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// What was found, at the end.
    pub fn into_found(self) -> Found {
        assert!(self.is_done(), "I-M2: recovery tells what there is when it is done");
        self.found
    }
}

/// Set in the token of data that is checked.
const DATA: u64 = space::OPENING_DATA;
/// Set in the token of what is read again.
const AGAIN: u64 = space::OPENING_AGAIN;

/// Bits of a page, a unit or an IU in a token: on media without OOB areas a segment has as many units as IUs.
const PLACE_MASK: u32 = (1 << 22) - 1;

/// A token of recovery: flags, a number of 22 bits (a page, a unit, an IU) and one of 32.
fn token(flags: u64, place: u32, index: u32) -> SpaceToken {
    SpaceToken(TOKEN_USER | flags | u64::from(place & PLACE_MASK) << 32 | u64::from(index))
}

/// The numbers of a token.
fn numbers(token: SpaceToken) -> (u32, u32) {
    ((token.0 >> 32) as u32 & PLACE_MASK, (token.0 & 0xffff_ffff) as u32)
}

/// Whether a read was one more try.
fn is_again(token: SpaceToken) -> bool {
    token.0 & AGAIN != 0
}
