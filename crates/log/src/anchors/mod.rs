//! Anchors: recovery begins there, and notes before them are not needed any more. When one is wanted, and what it covers.

mod writer;

use crate::anchor::Anchor;
use crate::anchor2::{self, AnchorSegment, SegmentProgress};
use crate::format::any_anchor::AnyAnchor;
use crate::{Format, Layout, reserve};
use diecut_units::BufferPool;
use diecut_vssd::space::{EraseBlockSpace, LogicalBlock, SpaceError, UnitIndex};
use std::collections::VecDeque;
use writer::AnchorWriter;

/// Notes from one count to the next.
const NOTES_PER_COUNT: u64 = 256;
/// Counts that there is room for from the start.
const NOTE_COUNTS_ROOM: usize = 512;

/// The anchors of a log.
pub(crate) struct Anchors {
    writer: AnchorWriter,
    /// Sequence of the newest anchor that holds: notes before it are in the owner's leaves.
    held: u64,
    /// Notes that recovery could meet, since the log was opened; every so many with the sequence of the next one.
    notes: u64,
    note_counts: VecDeque<(u64, u64)>,
    /// Notes that the newest anchor covers, about.
    notes_covered: u64,
    /// One is asked for whatever it costs.
    is_wanted: bool,
    /// Entries that the cleaner appended since the user stream last got a segment, or an anchor held.
    cleaned_entries: u64,
    /// With more of them than these the cleaner goes round.
    cleaned_entries_max: u64,
    /// Chunks of leaves whose place failed.
    leaf_moves: u64,
    /// The newest one that holds is of version 2.
    pub holds_two: bool,
    /// Version of the one that is being written.
    writes_two: bool,
    /// What the anchor that a restart found says of segments.
    listed: Vec<AnchorSegment>,
}

impl Anchors {
    pub fn new(layout: &Layout, segments: u32) -> Anchors {
        Anchors {
            writer: AnchorWriter::new(layout.shape.volatile_cache),
            held: 1,
            notes: 0,
            note_counts: VecDeque::with_capacity(NOTE_COUNTS_ROOM),
            notes_covered: 0,
            is_wanted: false,
            cleaned_entries: 0,
            cleaned_entries_max: u64::from((segments / 4).clamp(4, 32)) * u64::from(layout.segment_ius),
            leaf_moves: 0,
            holds_two: false,
            writes_two: false,
            listed: Vec::new(),
        }
    }

    /// Sequence of the newest anchor that holds; 1 without one.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Whether an anchor covers what has this sequence, or a later one.
    pub fn covers(&self, sequence: u64) -> bool {
        sequence < self.held
    }

    /// Notes from `sequence` on are appended, or were found after a restart.
    pub fn count_notes(&mut self, sequence: u64, notes: u64) {
        if self.notes % NOTES_PER_COUNT + notes >= NOTES_PER_COUNT {
            self.note_counts.push_back((sequence, self.notes));
        }
        self.notes += notes;
    }

    /// Notes before a sequence, at most 256 too few.
    fn notes_before(&self, sequence: u64) -> u64 {
        let counted = self.note_counts.iter().take_while(|(counted_at, _)| *counted_at <= sequence).last();
        counted.map_or(self.notes_covered, |(_, notes)| *notes)
    }

    /// Notes that no anchor covers, and up to 256 more.
    pub fn replayed_notes(&self) -> u64 {
        assert!(self.notes_covered <= self.notes, "I-L26: an anchor covers no more notes than there are");
        self.notes - self.notes_covered
    }

    /// Notes of these that an anchor from `sequence` on would cover.
    pub fn coverable_notes(&self, sequence: u64) -> u64 {
        let before = self.notes_before(sequence);
        assert!(before >= self.notes_covered, "I-L26: what is covered stays so");
        before - self.notes_covered
    }

    /// Recovery found so many notes that the newest anchor does not cover; what comes has sequences from `next_sequence` on.
    pub fn adopt_notes(&mut self, notes: u64, next_sequence: u64) {
        self.notes += notes;
        self.note_counts.push_back((next_sequence, self.notes));
    }

    /// Whether the cleaner goes round without making room, or one is asked for.
    pub fn are_needed(&self) -> bool {
        self.is_wanted || self.cleaned_entries > self.cleaned_entries_max
    }

    /// Asks for an anchor whatever it costs, until it is asked for no more.
    pub fn want(&mut self, is_wanted: bool) {
        self.is_wanted = is_wanted;
    }

    /// The cleaner appended entries.
    pub fn count_cleaned(&mut self, entries: u64) {
        self.cleaned_entries += entries;
    }

    /// Writers got a segment: the cleaner does not go round.
    pub fn writers_go_on(&mut self) {
        self.cleaned_entries = 0;
    }

    /// Leaves got another place without a new sequence.
    pub fn leaves_moved(&mut self) {
        self.leaf_moves += 1;
    }

    /// Changes when leaves got another place without a new sequence.
    pub fn leaf_moves(&self) -> u64 {
        self.leaf_moves
    }

    /// Whether one can be written.
    pub fn are_idle(&self) -> bool {
        self.writer.is_idle()
    }

    /// Whether no number is left for another one.
    pub fn are_used_up(&self) -> bool {
        self.writer.is_used_up()
    }

    /// IUs that one with so many bytes of the owner takes in a log of so many segments.
    pub fn size_ius(layout: &Layout, format: Format, segments: u32, owner_bytes: usize) -> u64 {
        let segments = segments as usize;
        let bytes = match format {
            Format::Two => Anchor::size_bytes(segments, owner_bytes),
            Format::Three => anchor2::Anchor::size_bytes(1, segments, 0, owner_bytes),
        };
        AnchorWriter::size_ius(&layout.shape, bytes)
    }

    /// Writes one. Everything that was appended before it was taken must be durable. IUs that were programmed.
    pub fn write(
        &mut self,
        anchor: &AnyAnchor,
        pool: &mut BufferPool,
        space: &mut dyn EraseBlockSpace,
    ) -> u64 {
        let before = self.writer.programmed_ius;
        self.writes_two = matches!(anchor, AnyAnchor::Two(..));
        let keep = if self.are_needed() { 1 + reserve::DISPLACED_LEAVE } else { reserve::RESERVE_SEGMENTS };
        self.writer.write(anchor, keep, pool, space);
        self.writer.programmed_ius - before
    }

    /// A program of one ended. Whether that makes it hold.
    pub fn programmed(&mut self, result: Result<(), SpaceError>) -> bool {
        self.writer.programmed(result).is_some_and(|sequence| self.hold(sequence))
    }

    fn hold(&mut self, sequence: u64) -> bool {
        diecut_units::mark!("log: anchor holds");
        assert!(sequence >= self.held, "I-L18: anchors do not go back");
        self.held = sequence;
        self.holds_two |= self.writes_two;
        self.cleaned_entries = 0;
        let covered = self.notes_before(sequence);
        assert!(covered >= self.notes_covered, "I-L26: what is covered stays so");
        self.notes_covered = covered;
        self.note_counts.retain(|(counted_at, _)| *counted_at > sequence);
        true
    }

    /// Whether one is programmed and waits for a flush, by which it holds.
    pub fn wait_for_flush(&self) -> bool {
        self.writer.waits_for_flush()
    }

    /// A flush begins.
    pub fn flush_begins(&mut self) {
        self.writer.flush_begins();
    }

    /// A flush is complete. Whether that makes one hold.
    pub fn flushed(&mut self) -> bool {
        self.writer.flushed().is_some_and(|sequence| self.hold(sequence))
    }

    /// Takes over the anchor found after a restart, and the number of the next one.
    pub fn adopt(&mut self, anchor: &Anchor, blocks: &[LogicalBlock], next_number: u64) {
        self.writer.adopt(blocks, next_number);
        self.held = self.held.max(anchor.sequence);
    }

    /// That anchor is of version 2, and names these segments.
    pub fn adopt_listed(&mut self, listed: Vec<AnchorSegment>) {
        self.holds_two = true;
        self.listed = listed;
    }

    /// What the anchor that a restart found says of a segment of this generation.
    pub fn listed(&self, index: u32, generation: u32) -> Option<&AnchorSegment> {
        let at = self.listed.binary_search_by_key(&index, |segment| segment.index).ok()?;
        self.listed.get(at).filter(|segment| segment.generation == generation)
    }

    /// Where a segment of this generation ended when an earlier opening had walked it: nothing behind that counts.
    pub fn end_of(&self, index: u32, generation: u32) -> Option<u32> {
        let ended = |segment: &&AnchorSegment| segment.progress == SegmentProgress::Ended;
        self.listed(index, generation).filter(ended).map(|segment| segment.end)
    }

    /// Recovery is done: what was found is not needed any more.
    pub fn end_opening(&mut self) {
        self.listed = Vec::new();
    }

    /// Blocks that anchors hold on a unit.
    pub fn blocks_on(&self, unit: UnitIndex) -> u32 {
        self.writer.blocks_on(unit)
    }

    /// Frees the blocks that only older anchors have something in. How many there are.
    pub fn free_superseded(&mut self, space: &mut dyn EraseBlockSpace) -> u64 {
        self.writer.free_superseded(space)
    }
}
