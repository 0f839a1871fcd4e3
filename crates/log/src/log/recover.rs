//! What a restart found becomes segments, chunks and anchors again.

use super::Log;
use crate::anchor::Anchor;
use crate::anchor2::AnchorSegment;
use crate::head::{Head, Origin};
use crate::supply::Supply;
use crate::{Description, Format, LogAddress, MapEntry, RecoveredChunk, SegmentIndex, Stream, TOKEN_NOBODY};
use diecut_units::mutant;
use diecut_vssd::HEADER_HOLDER_AT_BYTES;
use diecut_vssd::space::{EraseBlockSpace, LogicalBlock, SpaceToken};
use std::ops::Range;

impl Log {
    /// Takes over the anchor found after a restart, and the number of the next one.
    pub fn adopt_anchor(&mut self, anchor: &Anchor, blocks: &[LogicalBlock], next_number: u64) {
        let writer = &mut self.writer;
        writer.anchors.adopt(anchor, blocks, next_number);
        writer.supplies.iter_mut().for_each(Supply::forget_count);
        writer.segments.adopt_anchor(anchor);
        writer.next_sequence = writer.next_sequence.max(anchor.taken_at);
    }

    /// That anchor is of version 2, and names these segments.
    pub fn adopt_listed(&mut self, listed: Vec<AnchorSegment>) {
        self.writer.anchors.adopt_listed(listed);
    }

    /// Something was found of this life of the store.
    pub fn pass_life(&mut self, life: u64) {
        self.writer.life = self.writer.life.max(life);
    }

    /// Recovery is done. Another life of the store begins: all that is written from now on is of it, and of this format.
    pub fn begin_life(&mut self, format: Format, space: &dyn EraseBlockSpace) {
        // Each opening that writes anything allocates.
        let allocations = space.held_blocks().into_iter().map(|held| held.allocation_sequence);
        self.writer.opening = allocations.max().unwrap_or(0).to_le_bytes();
        self.writer.anchors.end_opening();
        if !mutant!("log: lives do not rise") {
            self.writer.life = self.writer.life.saturating_add(1);
        }
        self.write_as(format);
    }

    /// The life that is, once recovery is done.
    pub fn life(&self) -> u64 {
        self.writer.life
    }

    /// Where a segment ended when an earlier opening had walked it, in program units: nothing behind that counts.
    pub fn end_of(&self, index: u32) -> Option<u32> {
        self.writer.anchors.end_of(index, self.generation(index)?)
    }

    /// Whether what a leaf says of checks means something whichever segment that there is it names.
    pub fn all_have_checks(&self) -> bool {
        self.writer.segments.all_have_checks()
    }

    /// Whether what a leaf says of the check of a place means something.
    pub fn has_checks(&self, address: LogAddress) -> bool {
        self.writer.segments.has_checks(address)
    }

    /// Recovery found so many notes that the newest anchor does not cover.
    pub fn adopt_notes(&mut self, notes: u64) {
        self.writer.anchors.adopt_notes(notes, self.writer.next_sequence);
    }

    /// Takes a segment found after a restart.
    ///
    /// # Panics
    /// If a segment of that number was taken already.
    pub fn adopt_segment(&mut self, index: u32, generation: u32, stream: Stream, blocks: &[LogicalBlock]) {
        self.writer.segments.adopt(index, generation, stream, blocks);
        if let Some(listed) = self.writer.anchors.listed(index, generation) {
            let format = if listed.format == 2 { Format::Two } else { Format::Three };
            self.writer.segments[index].take_format(format);
        }
    }

    /// A segment found after a restart holds nothing that the anchor does not cover.
    pub fn adopt_closed(&mut self, index: u32, units: u32) {
        self.writer.segments.adopt_closed(index, units, self.writer.anchors.held());
    }

    /// Notes what a chunk of an adopted segment holds.
    pub fn adopt_chunk(&mut self, head: &Head, last_sequence: u64, last_note: u64) {
        self.writer.segments.adopt_chunk(head, last_sequence, last_note);
        self.writer.pass_sequence(last_sequence);
    }

    /// Counts the places in `parts` of a map as live; the rest of the map has none. One without a block behind it becomes
    /// [`LogAddress::LOST`]. Gives the number of entries that are places, and of those that were lost just now: what was lost before
    /// says so already.
    ///
    /// # Panics
    /// If a part goes beyond the map.
    pub fn adopt_places(&mut self, entries: &mut [MapEntry], parts: &[Range<usize>]) -> (u64, u64) {
        let staging = &self.writer.staging;
        self.writer
            .segments
            .adopt_places(entries, parts, |place, segments| staging.content(place, segments).is_some())
    }

    /// Addresses from here on do not lie on flash: no leaf can name them.
    pub fn places_end(&self) -> LogAddress {
        self.writer.segments.places_end()
    }

    /// Whether there is a block behind a place that the owner's leaves name.
    pub fn is_present(&self, address: LogAddress) -> bool {
        self.writer.segments.is_present(address)
    }

    /// What the header of an erase block says of its segment, if these are its bytes.
    pub fn described(&self, header: &[u8]) -> Option<Description> {
        Description::decode(header.get(HEADER_HOLDER_AT_BYTES..)?, &self.writer.segments.layout)
    }

    /// Segments that are opened have later generations than this one.
    pub fn pass_generation(&mut self, generation: u32) {
        self.writer.segments.pass_generation(generation);
    }

    /// Generation of a segment that is held.
    pub fn generation(&self, index: u32) -> Option<u32> {
        self.writer.segments.generation(index)
    }

    /// The erase block and IU of a place.
    pub fn block_of(&self, address: LogAddress) -> (LogicalBlock, u32) {
        self.writer.segments.block_of(address)
    }

    /// Whether all of an adopted segment is there that copies were made of; `units` were found to hold chunks.
    pub fn holds_origin(&self, origin: &Origin, units: u32) -> bool {
        self.writer.segments.holds_origin(origin, units)
    }

    /// Gives up an adopted segment: all that lives in it has an original elsewhere. What comes gets later sequences than
    /// `last_sequence`, because the segment may be found again.
    pub fn undo_segment(&mut self, index: u32, last_sequence: u64, space: &mut dyn EraseBlockSpace) {
        self.writer.pass_sequence(last_sequence);
        self.writer.segments.undo(index, space);
    }

    /// What recovery freed is free from now on, and not only after something else is freed: there may be nothing else.
    pub fn sync_frees(&self, space: &mut dyn EraseBlockSpace) {
        space.sync(SpaceToken(TOKEN_NOBODY));
    }

    /// A chunk with this head, of the bytes that it was read from.
    ///
    /// # Panics
    /// If they do not hold what it says.
    pub fn recovered(&mut self, head: Head, bytes: &[u8]) -> RecoveredChunk {
        self.pass_life(head.life);
        RecoveredChunk::new(head, bytes, self.writer.staging.form.tags)
    }

    /// Chunks found in protected staging: slot, head fields, head bytes. The number of slots that are damaged besides;
    /// they stay as they are.
    pub fn found_in_staging(&mut self) -> (Vec<(usize, RecoveredChunk)>, u32) {
        let (found, damaged) = self.writer.staging.found(self.layout().unit_ius);
        found.iter().for_each(|(_, chunk)| self.pass_life(chunk.head.life));
        (found, damaged)
    }

    /// Empties a slot whose chunk is whole on flash.
    pub fn drop_staged(&mut self, slot: usize) {
        self.writer.staging.drop_found(slot);
    }

    /// Empties the slots that are damaged: that what they held is lost was accepted.
    pub fn drop_damaged_staging(&mut self) {
        self.writer.staging.drop_damaged();
    }

    /// Keeps a chunk found in staging: it gets a new place. Until then it lies in a segment that does not exist on
    /// flash, which is returned; its addresses are those of offset 0 there.
    ///
    /// # Panics
    /// If there is no unused segment number.
    pub fn adopt_staged(&mut self, slot: usize, found: &RecoveredChunk, last_sequence: u64) -> SegmentIndex {
        let index = self.writer.segments.adopt_staged();
        self.writer.staging.adopt(slot, found, index, last_sequence);
        self.writer.pass_sequence(last_sequence);
        SegmentIndex(index)
    }
}
