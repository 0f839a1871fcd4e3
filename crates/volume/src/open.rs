//! Recovery. The newest whole anchor says from which sequence on records are replayed, and where the leaves of the map
//! lay. Page marks tell which erase block belongs to which segment; segments that the anchor does not cover are walked
//! head by head. Then the leaves are read, and the records, those in staging included, are replayed over them in the order
//! of their sequences. Without an anchor everything is walked.

use crate::Store;
use crate::checkpoint::{AnchoredVolumes, decode_volumes};
use crate::contract::VolumeIndex;
use crate::loss::{Findings, Missing, Recovery};
use crate::map::{self, LEAF_ENTRIES, LEAF_VOLUME, NOTE_CREATE, NOTE_DEALLOCATE, NOTE_DELETE};
use diecut_log::anchor::{Anchor, FoundAnchor, FoundPieces, PURPOSE_ANCHOR};
use diecut_log::head::Head;
use diecut_log::walk::SEQUENCE_MAX;
use diecut_log::{
    BlockRun, LogAddress, NO_BLOCK, PURPOSE_SEGMENT, RecoveredChunk, SegmentIndex, StoredAddress, Stream,
    TOKEN_USER, mark,
};
use diecut_log::{HeldMemberBlock, Member, MemberBlock, Members};
use diecut_units::{IU_SIZE_BYTES, mutant};
use diecut_vssd::space::{IoClass, SpaceCompletion, SpaceError, SpaceToken};
use std::collections::{BTreeMap, BTreeSet};

const DATA: u64 = diecut_units::token::space::OPENING_DATA;
/// Set in the token of a head that is read again.
const AGAIN: u64 = diecut_units::token::space::OPENING_AGAIN;
/// Pages of an erase block whose OOB is looked at for its mark.
const MARK_PAGES_TRIED: u32 = 32;
/// Reads of leaves under way at once.
const LEAF_READS: usize = 64;

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Anchors,
    Marks,
    Heads,
    Leaves,
}

/// Leaves that lie one behind the other in a program unit.
#[derive(Clone, Copy)]
struct LeafRun {
    volume: u16,
    leaf: usize,
    count: u32,
    place: LogAddress,
    again: bool,
}

/// What a chunk records; there may be many, and all are in memory at once.
#[derive(Clone, Copy)]
enum Entry {
    /// Data records.
    Run { first: u32, count: u32 },
    /// The note of this number.
    Note(u32),
}

/// A record to be replayed: sequence, chunk, what.
type Replayed = (u64, u32, Entry);

const _: () = assert!(size_of::<Replayed>() == 24);

#[derive(Default)]
pub(crate) struct Opening {
    phase: Phase,
    anchor_blocks: Vec<HeldMemberBlock>,
    found: FoundPieces,
    pub(crate) anchor: Anchor,
    /// Records to be replayed.
    order: Vec<Replayed>,
    /// Where the head of each chunk lies now.
    places: Vec<LogAddress>,
    leaf_runs: Vec<LeafRun>,
    next_leaf_run: usize,
    /// For each volume whose deletion is replayed: its sequence. What came before concerns nobody any more.
    deleted_at: BTreeMap<u16, u64>,
    blocks: Vec<HeldMemberBlock>,
    marks: Vec<Option<mark::Mark>>,
    outstanding: usize,
    /// Pages of each erase block, by unit and number: looked up for every program unit of every chunk.
    written: Vec<Vec<u32>>,
    /// A chunk whose data is being checked, by segment: reads under way and whether all was right.
    checking: BTreeMap<u32, (RecoveredChunk, u32, bool)>,
    pub(crate) chunks: Vec<RecoveredChunk>,
    /// Segments in which a head was lost: the next one is looked for.
    searching: Vec<u32>,
    /// Program units of anchors that cannot be read.
    unread_anchors: Vec<(HeldMemberBlock, u32)>,
    /// What is missing.
    pub(crate) findings: Findings,
    /// Erase blocks whose marks are lost.
    unmarked: Vec<MemberBlock>,
    /// Leaves that are lost.
    lost_leaves: Vec<(u16, usize)>,
    /// Those of them whose segments were given back, in a store of a version that gave them back without a record.
    perhaps_emptied: BTreeSet<(u16, usize)>,
    /// The anchor is of a version that records leaves also when they become empty.
    records_empty_leaves: bool,
}

impl Opening {
    /// Something is missing that told which data is the newest.
    pub(crate) fn has_lost_records(&self) -> bool {
        self.findings.records > 0
    }
}

impl Store {
    pub(crate) fn start_opening(&mut self, space: &mut dyn Members) {
        let opening = self.opening.as_mut().expect("opening");
        let held = space.held_blocks();
        opening.anchor_blocks = held.iter().filter(|held| held.purpose == PURPOSE_ANCHOR).copied().collect();
        opening.blocks = held;
        opening.blocks.retain(|held| held.purpose == PURPOSE_SEGMENT);
        opening.blocks.sort_by_key(|held| held.allocation_sequence);
        for index in 0..opening.anchor_blocks.len() {
            let opening = self.opening.as_ref().expect("opening");
            let units = opening.anchor_blocks[index].written_pages / space.shape().program_unit_pages;
            for unit in 0..units {
                self.read_anchor_unit(index, unit, 0, space);
            }
        }
        if self.opening.as_ref().is_some_and(|o| o.outstanding == 0) {
            self.anchors_done(space);
        }
    }

    fn read_anchor_unit(&mut self, index: usize, unit: u32, flags: u64, space: &mut dyn Members) {
        let unit_ius = space.shape().program_unit_ius();
        let opening = self.opening.as_mut().expect("opening");
        opening.outstanding += 1;
        let block = opening.anchor_blocks[index].block;
        let buffer = self.log.pool().take(unit_ius as usize * IU_SIZE_BYTES);
        let token = SpaceToken(TOKEN_USER | flags | u64::from(unit & 0xffff) << 32 | index as u64);
        let run = BlockRun { block, first_iu: unit * unit_ius, iu_count: unit_ius };
        space.read(token, run, buffer, None, IoClass::Metadata);
    }

    fn anchor_unit_arrived(&mut self, completion: &SpaceCompletion, space: &mut dyn Members) {
        let index = (completion.token.0 & 0xffff_ffff) as usize;
        let unit = (completion.token.0 >> 32 & 0xffff) as u32;
        let opening = self.opening.as_mut().expect("opening");
        let held = opening.anchor_blocks[index];
        match (&completion.result, &completion.destination) {
            (Ok(()), Some(bytes)) => opening.found.add(held.block, unit, bytes),
            (Err(SpaceError::Erased { .. }), _) => {}
            _ if completion.token.0 & AGAIN == 0 => self.read_anchor_unit(index, unit, AGAIN, space),
            _ => {
                let shape = space.shape();
                let written = held.written_pages / shape.program_unit_pages;
                // A cut can tear the last units, and an anchor that ends there never counted.
                if shape.is_settled(unit, written) {
                    diecut_units::mark!("volume: anchor lost");
                    opening.unread_anchors.push((held, unit));
                }
            }
        }
    }

    fn anchors_done(&mut self, space: &mut dyn Members) {
        let opening = self.opening.as_mut().expect("opening");
        opening.phase = Phase::Marks;
        let (newest, next_number) = opening.found.newest();
        // What was written before the newest one is needed no more. Without one, anything may have been it.
        let sequence_of = |block: MemberBlock| {
            let held = opening.anchor_blocks.iter().find(|held| held.block == block);
            held.map_or(0, |held| held.allocation_sequence)
        };
        let newest_at = newest.as_ref().map(|found| (sequence_of(found.blocks[0]), found.first_unit));
        for (held, unit) in std::mem::take(&mut opening.unread_anchors) {
            if newest_at.is_none_or(|newest_at| (held.allocation_sequence, unit) > newest_at) {
                opening.findings.miss(Missing::Anchor { block: held.block, unit });
            }
        }
        // An anchor that cannot be read may have had the next numbers.
        let next_number = next_number.saturating_add(opening.findings.records);
        let mut kept = Vec::new();
        if let Some(FoundAnchor { anchor, blocks, .. }) = newest {
            diecut_units::mark!("volume: anchor found");
            let mut anchor = anchor;
            if !anchor.is_possible() {
                opening.findings.miss(Missing::AnchorContent);
                anchor.taken_at = anchor.taken_at.min(SEQUENCE_MAX - 1);
                anchor.sequence = anchor.sequence.min(anchor.taken_at);
            }
            let room = self.log.map_ius_max();
            let fits = |(volumes, _): &(AnchoredVolumes, _)| {
                volumes.iter().fold(0u64, |sum, (_, size, _)| sum.saturating_add(*size)) <= room
            };
            match decode_volumes(&anchor.owner).filter(fits) {
                Some((volumes, habits)) => {
                    opening.records_empty_leaves = habits.is_some();
                    self.accepted = habits.unwrap_or_default();
                    for (number, size_ius, leaves) in volumes {
                        let volume = self.maps.volume(number);
                        volume.exists = true;
                        volume.resize(size_ius, anchor.sequence);
                        volume.leaves = leaves.into_iter().map(|leaf| LogAddress(leaf).into()).collect();
                    }
                }
                None => opening.findings.miss(Missing::AnchorContent),
            }
            opening.anchor = anchor;
            kept = blocks;
        }
        if opening.has_lost_records() {
            // Of an anchor that cannot be read today nothing is given back before there is another one.
            kept = opening.anchor_blocks.iter().map(|held| held.block).collect();
        }
        self.log.adopt_anchor(&opening.anchor, &kept, next_number);
        for held in &opening.anchor_blocks {
            if !kept.contains(&held.block) {
                space.free(held.block).expect("held");
            }
        }
        opening.found = FoundPieces::default();
        opening.marks = vec![None; opening.blocks.len()];
        let blocks_of = |unit| vec![0; space.blocks_of(Member(unit)) as usize];
        opening.written = (0..space.member_count()).map(blocks_of).collect();
        let size = space.shape().oob_size_bytes as usize;
        for (index, held) in opening.blocks.iter().enumerate() {
            opening.written[usize::from(held.block.member.0)][held.block.index as usize] = held.written_pages;
            if held.written_pages > 0 {
                opening.outstanding += 1;
                let oob = self.log.pool().take_zeroed(size);
                space.read_oob(SpaceToken(TOKEN_USER | index as u64), held.block, 0, oob, IoClass::Metadata);
            }
        }
        if opening.outstanding == 0 {
            self.marks_done(space);
        }
    }

    pub(crate) fn opening_step(&mut self, completion: SpaceCompletion, space: &mut dyn Members) {
        let opening = self.opening.as_mut().expect("opening");
        opening.outstanding -= 1;
        let index = (completion.token.0 & 0xffff_ffff) as usize;
        if self.log.is_gone() {
            return;
        }
        if opening.phase == Phase::Anchors {
            self.anchor_unit_arrived(&completion, space);
            if self.opening.as_ref().is_some_and(|o| o.outstanding == 0) {
                self.anchors_done(space);
            }
            return;
        }
        if opening.phase == Phase::Leaves {
            return self.leaves_arrived(completion, space);
        }
        if opening.phase == Phase::Marks {
            let shape = *space.shape();
            let found = completion
                .oob
                .filter(|_| completion.result.is_ok())
                .and_then(|oob| mark::decode(&oob[shape.holder_oob_offset as usize..], shape.ius_per_page()));
            opening.marks[index] = found;
            // Every page carries the mark: one that cannot be read costs a second look, not the block.
            let held = opening.blocks[index];
            let page = (completion.token.0 >> 32 & 0xffff) as u32 + 1;
            if found.is_none() && page < held.written_pages.min(MARK_PAGES_TRIED) {
                opening.outstanding += 1;
                let oob = self.log.pool().take_zeroed(shape.oob_size_bytes as usize);
                let token = SpaceToken(TOKEN_USER | u64::from(page) << 32 | index as u64);
                space.read_oob(token, held.block, page, oob, IoClass::Metadata);
                return;
            }
            let opening = self.opening.as_mut().expect("opening");
            if opening.outstanding == 0 {
                self.marks_done(space);
            }
            return;
        }
        let segment = index as u32;
        if completion.token.0 & DATA != 0 {
            let first = (completion.token.0 >> 32 & 0xffff) as u32;
            let (chunk, pending, right) = opening.checking.get_mut(&segment).expect("being checked");
            let place = self.log.layout().address(SegmentIndex(segment), chunk.head.offset + first);
            let bytes = stream_bytes(&chunk.head, self.log.layout().content_mode().bytes_per_iu());
            let is_right = match (&completion.result, &completion.destination, &completion.oob) {
                (Ok(()), Some(data), Some(oob)) => self.log.verify(place, bytes, data, oob).is_ok(),
                _ => false,
            };
            if !is_right && completion.token.0 & AGAIN == 0 {
                // Torn, or a read that fails once: the second look tells.
                let offset = chunk.head.offset + first;
                let unit_ius = self.log.layout().unit_ius;
                let end = 1 + u32::from(chunk.head.data_count);
                let count = (unit_ius - first % unit_ius).min(end - first);
                opening.outstanding += 1;
                return self.read_data(SegmentIndex(segment), offset, first, count, AGAIN, space);
            }
            *pending -= 1;
            *right &= is_right;
            if *pending == 0 {
                let (chunk, _, right) = opening.checking.remove(&segment).expect("checked");
                if right || mutant!("log: torn chunk accepted") {
                    self.accept(chunk, space);
                }
            }
        } else if let Err(error) = &completion.result {
            let unit = (completion.token.0 >> 32 & 0xffff) as u32;
            if !matches!(error, SpaceError::Erased { .. }) {
                self.head_lost(segment, unit, completion.token.0 & AGAIN != 0, space);
            }
        } else {
            let bytes = completion.destination.expect("read");
            let generation = self.log.generation(segment);
            let offset = (completion.token.0 >> 32 & 0xffff) as u32;
            let head = Head::decode(&bytes)
                .filter(|h| h.segment == segment && Some(h.generation) == generation)
                .filter(|h| h.offset / self.log.layout().unit_ius == offset);
            match head {
                Some(head) => self.check_chunk(RecoveredChunk::new(head, &bytes), space),
                // Behind a head that was lost, every unit may begin a chunk.
                None if self.opening.as_ref().is_some_and(|o| o.searching.contains(&segment)) => {
                    let next = (offset + 1) * self.log.layout().unit_ius;
                    self.walk_on(segment, next, space);
                }
                None if Head::is_other_version(&bytes) => {
                    self.opening.as_mut().expect("opening").findings.miss(Missing::OtherVersion { segment });
                }
                None => self.head_lost(segment, offset, completion.token.0 & AGAIN != 0, space),
            }
        }
        if self.opening.as_ref().is_some_and(|o| o.outstanding == 0) {
            self.replay(space);
        }
    }

    fn marks_done(&mut self, space: &mut dyn Members) {
        let (width, shape) = (self.log.layout().width as usize, self.log.layout().shape);
        let opening = self.opening.as_mut().expect("opening");
        opening.phase = Phase::Heads;
        let mut found: BTreeMap<u32, (u32, Stream, Vec<MemberBlock>)> = BTreeMap::new();
        let mut unused = Vec::new();
        for (held, mark) in opening.blocks.iter().zip(&opening.marks) {
            let mark =
                mark.filter(|m| m.segment < self.log.flash_segment_count() && usize::from(m.member) < width);
            let Some((mark, stream)) = mark.and_then(|mark| Some((mark, Stream::from_number(mark.stream)?)))
            else {
                let written = held.written_pages / shape.program_unit_pages;
                if shape.is_settled(0, written) && !mutant!("volume: blocks without marks given back") {
                    // No cut takes marks that were safe: the medium lost them, and what the block holds is not given back.
                    diecut_units::mark!("volume: marks lost");
                    opening.findings.miss(Missing::Mark { block: held.block });
                    opening.unmarked.push(held.block);
                } else {
                    unused.push(held.block);
                }
                continue;
            };
            let entry =
                found.entry(mark.segment).or_insert_with(|| (mark.generation, stream, vec![NO_BLOCK; width]));
            if mark.generation > entry.0 {
                // A free that was not durable: the older segment of this number is dead.
                unused.extend(entry.2.iter().filter(|b| **b != NO_BLOCK));
                *entry = (mark.generation, stream, vec![NO_BLOCK; width]);
            }
            if mark.generation < entry.0 {
                unused.push(held.block);
            } else {
                // The one that was allocated last: a free that was not durable brings the other back.
                let older = std::mem::replace(&mut entry.2[usize::from(mark.member)], held.block);
                unused.extend(Some(older).filter(|older| *older != NO_BLOCK));
            }
        }
        for block in unused {
            space.free(block).expect("held");
        }
        for (segment, (generation, stream, blocks)) in &found {
            self.log.adopt_segment(*segment, *generation, *stream, blocks);
        }
        for (segment, (generation, ..)) in &found {
            let anchor = &self.opening.as_ref().expect("opening").anchor;
            match anchor.segments.get(&SegmentIndex(*segment)) {
                Some((covered, units)) if covered == generation => {
                    diecut_units::mark!("volume: segment not walked");
                    self.log.adopt_closed(*segment, *units);
                }
                _ => self.walk_on(*segment, 0, space),
            }
        }
        if self.opening.as_ref().is_some_and(|o| o.outstanding == 0) {
            self.replay(space);
        }
    }

    /// The head at a unit cannot be read, or is none: it is looked at once more. Then, at the end of what was written, a
    /// cut tore it, and nothing of it was acknowledged that is not staged; anywhere else the medium lost it, the walk
    /// goes on behind it, and what it recorded is not known any more.
    fn head_lost(&mut self, segment: u32, unit: u32, again: bool, space: &mut dyn Members) {
        let layout = self.log.layout();
        let (unit_ius, width) = (layout.unit_ius, layout.width);
        let shape = layout.shape;
        if !again {
            diecut_units::mark!("volume: head read again");
            return self.walk_to(segment, unit * unit_ius, AGAIN, space);
        }
        let (block, _) = self.log.block_of(layout.address(SegmentIndex(segment), unit * unit_ius));
        let opening = self.opening.as_mut().expect("opening");
        let written =
            opening.written[usize::from(block.member.0)][block.index as usize] / shape.program_unit_pages;
        if !shape.is_settled(unit / width, written) {
            return;
        }
        if !opening.searching.contains(&segment) {
            diecut_units::mark!("volume: head lost");
            opening.searching.push(segment);
            opening.findings.miss(Missing::Head { segment, unit });
        }
        self.walk_on(segment, (unit + 1) * unit_ius, space);
    }

    fn walk_on(&mut self, segment: u32, offset: u32, space: &mut dyn Members) {
        self.walk_to(segment, offset, 0, space);
    }

    fn walk_to(&mut self, segment: u32, offset: u32, flags: u64, space: &mut dyn Members) {
        let layout = self.log.layout();
        if offset >= layout.segment_ius {
            return;
        }
        let unit = offset / layout.unit_ius;
        let (block, iu) = self.log.block_of(layout.address(SegmentIndex(segment), offset));
        if block == NO_BLOCK {
            return;
        }
        let buffer = self.log.pool().take(IU_SIZE_BYTES);
        let token = SpaceToken(TOKEN_USER | flags | u64::from(unit & 0xffff) << 32 | u64::from(segment));
        self.opening.as_mut().expect("opening").outstanding += 1;
        space.read(token, BlockRun { block, first_iu: iu, iu_count: 1 }, buffer, None, IoClass::Metadata);
    }

    /// Only the last program units of an erase block can be torn: what a chunk has in them is read. What cannot be read elsewhere
    /// is lost, and tells nothing of the rest.
    fn check_chunk(&mut self, chunk: RecoveredChunk, space: &mut dyn Members) {
        let layout = self.log.layout().clone();
        let head = chunk.head;
        let segment = SegmentIndex(head.segment);
        if head.offset + u32::from(head.unit_count) * layout.unit_ius > layout.segment_ius
            || u32::from(head.data_count) >= u32::from(head.unit_count) * layout.unit_ius
        {
            return;
        }
        let opening = self.opening.as_mut().expect("opening");
        let mut torn_units = Vec::new();
        let first_unit = head.offset / layout.unit_ius;
        for unit in first_unit..first_unit + u32::from(head.unit_count) {
            let (block, _) = self.log.block_of(layout.address(segment, unit * layout.unit_ius));
            if block == NO_BLOCK {
                return;
            }
            let written = opening.written[usize::from(block.member.0)][block.index as usize]
                / layout.shape.program_unit_pages;
            if !layout.shape.is_settled(unit / layout.width, written)
                || mutant!("volume: settled data taken for torn")
            {
                torn_units.push(unit - first_unit);
            }
        }
        let end = 1 + u32::from(head.data_count);
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let mut first = 1;
        while first < end {
            let count = (layout.unit_ius - first % layout.unit_ius).min(end - first);
            if torn_units.contains(&(first / layout.unit_ius)) {
                runs.push((first, count));
            }
            first += count;
        }
        if runs.is_empty() {
            return self.accept(chunk, space);
        }
        let opening = self.opening.as_mut().expect("opening");
        opening.outstanding += runs.len();
        opening.checking.insert(head.segment, (chunk, runs.len() as u32, true));
        for (first, count) in runs {
            self.read_data(segment, head.offset + first, first, count, 0, space);
        }
    }

    /// Reads data of the chunk that is checked in a segment; `first` is its first IU within the chunk.
    fn read_data(
        &mut self,
        segment: SegmentIndex,
        offset: u32,
        first: u32,
        count: u32,
        flags: u64,
        space: &mut dyn Members,
    ) {
        let layout = self.log.layout();
        let (block, iu) = self.log.block_of(layout.address(segment, offset));
        let page_ius = layout.shape.ius_per_page();
        let pages = (iu + count - 1) / page_ius - iu / page_ius + 1;
        let oob_size = layout.shape.oob_size_bytes as usize;
        let mode_bytes = layout.content_mode().bytes_per_iu();
        let opening = self.opening.as_ref().expect("opening");
        let head = opening.checking.get(&segment.0).map(|(chunk, ..)| chunk.head);
        let bytes = head.map_or(mode_bytes, |head| stream_bytes(&head, mode_bytes));
        let destination = self.log.pool().take(count as usize * bytes);
        let oob = self.log.pool().take(pages as usize * oob_size);
        let token = SpaceToken(TOKEN_USER | DATA | flags | u64::from(first) << 32 | u64::from(segment.0));
        let run = BlockRun { block, first_iu: iu, iu_count: count };
        space.read(token, run, destination, Some(oob), IoClass::Metadata);
    }

    fn accept(&mut self, chunk: RecoveredChunk, space: &mut dyn Members) {
        let next = chunk.head.offset + u32::from(chunk.head.unit_count) * self.log.layout().unit_ius;
        let segment = chunk.head.segment;
        let opening = self.opening.as_mut().expect("opening");
        opening.searching.retain(|searched| *searched != segment);
        opening.chunks.push(chunk);
        self.walk_on(segment, next, space);
    }

    /// All heads are known: what they record is put in order.
    fn replay(&mut self, space: &mut dyn Members) {
        self.undo_copies(space);
        let opening = self.opening.as_mut().expect("opening");
        opening.phase = Phase::Leaves;
        // Where each chunk's head lies now.
        for chunk in &opening.chunks {
            let head = &chunk.head;
            opening.places.push(self.log.layout().address(SegmentIndex(head.segment), head.offset));
        }
        let on_flash = opening.chunks.len();
        let whole: BTreeSet<_> = opening.chunks.iter().map(|chunk| name_of(&chunk.head)).collect();
        let (staged, damaged) = self.log.found_in_staging();
        if damaged > 0 {
            diecut_units::mark!("volume: staging damaged");
            opening.findings.miss(Missing::Staging { slots: damaged });
        }
        for (slot, found) in staged {
            if whole.contains(&name_of(&found.head))
                || found.head.data_count == 0 && found.head.note_count == 0
            {
                self.log.drop_staged(slot);
                continue;
            }
            let last = entries(&found).1;
            let segment = self.log.adopt_staged(slot, &found, last);
            opening.places.push(self.log.layout().address(segment, 0));
            opening.chunks.push(found);
        }
        let first =
            if mutant!("volume: records before the anchor replayed") { 0 } else { opening.anchor.sequence };
        let order = &mut opening.order;
        // As many as there are at most: a vector that grows holds twice as much for a while.
        let (mut notes_found, mut runs_found) = (0, 0);
        for chunk in &opening.chunks {
            let notes = |_, sequence, _| notes_found += u64::from(sequence >= first);
            let _consistent = chunk.runs(notes, |_| runs_found += 1);
        }
        order.reserve_exact(notes_found as usize + runs_found);
        let mut notes = Vec::new();
        for (index, chunk) in opening.chunks.iter().enumerate() {
            let (mut last, mut last_note) = (0, 0);
            let number = index as u32;
            let consistent = chunk.runs(
                |note, sequence, _| {
                    last_note = last_note.max(sequence);
                    // The leaves have it, and newer ones that undo it may have been there too.
                    if sequence >= first {
                        notes.push((sequence, number, Entry::Note(note)));
                    }
                },
                |run| {
                    let end = run.sequence + u64::from(run.count);
                    last = last.max(end - 1);
                    let before = first.saturating_sub(run.sequence).min(run.count.into()) as u32;
                    if end > first && before < run.count {
                        let rest = Entry::Run { first: run.first + before, count: run.count - before };
                        order.push((run.sequence + u64::from(before), number, rest));
                    }
                },
            );
            order.append(&mut notes);
            if !consistent {
                opening.findings.miss(Missing::Records { segment: chunk.head.segment });
            }
            if index < on_flash {
                self.log.adopt_chunk(&chunk.head, last.max(last_note), last_note);
            }
        }
        self.log.adopt_notes(notes_found);
        order.sort_unstable_by_key(|(sequence, index, _)| (*sequence, *index));
        self.find_volumes();
        self.find_leaves();
        self.read_leaves(space);
    }

    /// Which volumes there will be when all records are replayed, and how large they are. Of a volume that was deleted the
    /// cleaner may have freed anything, its leaves too, before the next anchor: nothing of it is looked for.
    fn find_volumes(&mut self) {
        let opening = self.opening.as_mut().expect("opening");
        // Sequence, size, and the chunk that says so.
        let mut sizes: BTreeMap<u16, (u64, u64, usize)> = BTreeMap::new();
        for (sequence, index, entry) in &opening.order {
            let Entry::Note(note) = entry else { continue };
            let index = *index as usize;
            let words = opening.chunks[index].note(*note);
            let Some(volume) = map::volume_of_note(words) else {
                opening.findings.miss(Missing::Records { segment: opening.chunks[index].head.segment });
                continue;
            };
            match words[0] & 0xff {
                NOTE_CREATE => drop(sizes.insert(volume, (*sequence, words[2], index))),
                NOTE_DELETE => drop(opening.deleted_at.insert(volume, *sequence)),
                _ => {}
            }
        }
        if mutant!("volume: deletion not replayed") {
            opening.deleted_at.clear();
        }
        for (volume, sequence) in &opening.deleted_at {
            diecut_units::mark!("volume: deletion replayed");
            *self.maps.volume(*volume) = Default::default();
            sizes.retain(|created, (at, ..)| created != volume || *at > *sequence);
        }
        let mut room = self.log.map_ius_max();
        for volume in &self.maps.volumes {
            room = room.saturating_sub(volume.entries.len() as u64);
        }
        for (volume, (_, size_ius, index)) in sizes {
            let map = self.maps.volume(volume);
            let more = size_ius.saturating_sub(map.entries.len() as u64);
            if more > room {
                opening.findings.miss(Missing::Records { segment: opening.chunks[index].head.segment });
                continue;
            }
            room -= more;
            map.exists = true;
            map.resize(size_ius, opening.anchor.sequence);
        }
    }

    /// Whether what lies at a place is the leaf that the anchor or a record says: a place whose leaf is not needed any more
    /// can hold anything by now. `leaves` are the leaves of segments that the anchor does not cover, in order of their places.
    fn is_leaf(&self, place: LogAddress, tag: u64, leaves: &[(u32, u64)]) -> bool {
        let segment = self.log.layout().segment_of(place);
        let anchor = &self.opening.as_ref().expect("opening").anchor;
        let is_covered = anchor
            .segments
            .get(&segment)
            .is_some_and(|(generation, _)| self.log.generation(segment.0) == Some(*generation));
        is_covered || leaves.binary_search(&(place.0, tag)).is_ok()
    }

    /// Leaves that were written since the anchor was taken, or moved, are where their records say.
    fn find_leaves(&mut self) {
        let opening = self.opening.as_mut().expect("opening");
        let mut leaves = Vec::new();
        for (chunk, place) in opening.chunks.iter().zip(&opening.places) {
            if chunk.head.stream == Stream::Map {
                let records = 0..u32::from(chunk.head.data_count);
                leaves.extend(records.map(|record| (place.0 + 1 + record, chunk.record(record))));
            }
        }
        leaves.sort_unstable();
        for (sequence, index, entry) in &opening.order {
            let index = *index as usize;
            let chunk = &opening.chunks[index];
            let Entry::Run { first, count } = *entry else { continue };
            if chunk.head.stream != Stream::Map {
                continue;
            }
            for record in first..first + count {
                let written_at = sequence + u64::from(record - first);
                if written_at < opening.anchor.taken_at {
                    continue;
                }
                let Some((volume, leaf)) = map::leaf_of(chunk.record(record)) else {
                    continue;
                };
                if opening.deleted_at.get(&volume).is_some_and(|deleted_at| written_at < *deleted_at) {
                    continue;
                }
                let volume = self.maps.volumes.get_mut(usize::from(volume));
                if let Some(place) = volume.and_then(|volume| volume.leaves.get_mut(leaf)) {
                    *place = LogAddress(opening.places[index].0 + 1 + record).into();
                }
            }
        }
        let mut runs: Vec<LeafRun> = Vec::new();
        let mut lost = Vec::new();
        for (volume, map) in self.maps.volumes.iter().enumerate() {
            for (leaf, place) in map.leaves.iter().map(|place| place.get()).enumerate() {
                if !place.is_place() {
                    continue;
                }
                let volume = volume as u16;
                if !self.is_leaf(place, map::leaf_tag(volume, leaf), &leaves) {
                    lost.push(LeafRun { volume, leaf, count: 1, place, again: true });
                    continue;
                }
                match runs.last_mut() {
                    Some(run)
                        if run.volume == volume
                            && run.leaf + run.count as usize == leaf
                            && run.place.0 + run.count == place.0
                            && run.count < self.log.run_limit(run.place) =>
                    {
                        run.count += 1;
                    }
                    _ => runs.push(LeafRun { volume, leaf, count: 1, place, again: false }),
                }
            }
        }
        for run in &lost {
            let opening = self.opening.as_mut().expect("opening");
            if !opening.records_empty_leaves {
                opening.perhaps_emptied.insert((run.volume, run.leaf));
            }
            self.leaves_lost(run);
        }
        self.opening.as_mut().expect("opening").leaf_runs = runs;
    }

    fn read_leaves(&mut self, space: &mut dyn Members) {
        loop {
            let opening = self.opening.as_mut().expect("opening");
            if opening.outstanding >= LEAF_READS || opening.next_leaf_run == opening.leaf_runs.len() {
                break;
            }
            let index = opening.next_leaf_run;
            opening.next_leaf_run += 1;
            let LeafRun { place, count, .. } = opening.leaf_runs[index];
            if !self.log.is_present(place) {
                let run = opening.leaf_runs[index];
                self.leaves_lost(&run);
                continue;
            }
            opening.outstanding += 1;
            let buffer = self.log.pool().take(count as usize * IU_SIZE_BYTES);
            let token = SpaceToken(TOKEN_USER | index as u64);
            self.log.read(token, place, count, buffer, IoClass::Metadata, space);
        }
        if self.opening.as_ref().is_some_and(|o| o.outstanding == 0) {
            self.log.sync_frees(space);
            self.finish();
        }
    }

    fn leaves_arrived(&mut self, completion: SpaceCompletion, space: &mut dyn Members) {
        let index = (completion.token.0 & 0xffff_ffff) as usize;
        let opening = self.opening.as_mut().expect("opening");
        let run = &mut opening.leaf_runs[index];
        self.log.unpin(run.place);
        let right = match (&completion.result, &completion.destination, &completion.oob) {
            (Ok(()), Some(data), Some(oob)) => self.log.verify(run.place, IU_SIZE_BYTES, data, oob).is_ok(),
            _ => false,
        };
        let LeafRun { volume, leaf, count, place, again } = *run;
        if right {
            let entries = &mut self.maps.volume(volume).entries;
            let data = completion.destination.expect("read");
            let from = leaf * LEAF_ENTRIES;
            let end = self.log.places_end();
            let mut names_nothing = false;
            for (entry, word) in entries[from..].iter_mut().zip(data.as_chunks().0) {
                let place = LogAddress(u32::from_le_bytes(*word));
                let is_lost = place.0 >= end && place != LogAddress::NONE;
                // What is lost and was accepted as that says so, and nothing else does.
                names_nothing |= is_lost && place != LogAddress::LOST;
                *entry = if is_lost { LogAddress::LOST } else { place }.into();
            }
            if names_nothing {
                opening.lost_leaves.extend((leaf..leaf + count as usize).map(|leaf| (volume, leaf)));
            }
        } else if count > 1 || !again {
            // Each by itself, and that twice.
            for step in 0..count {
                let (leaf, place) = (leaf + step as usize, LogAddress(place.0 + step));
                opening.leaf_runs.push(LeafRun { volume, leaf, count: 1, place, again: count == 1 });
            }
        } else {
            let run = *run;
            self.leaves_lost(&run);
        }
        self.read_leaves(space);
    }

    /// Only records that are replayed tell where the data of these leaves is. Where none does nobody knows it any more.
    fn leaves_lost(&mut self, run: &LeafRun) {
        diecut_units::mark!("volume: leaf lost");
        let map = self.maps.volume(run.volume);
        let first = run.leaf * LEAF_ENTRIES;
        let end = map.entries.len().min(first + run.count as usize * LEAF_ENTRIES);
        map.entries[first..end].fill(LogAddress::LOST.into());
        for leaf in run.leaf..run.leaf + run.count as usize {
            map.leaves[leaf] = StoredAddress::NONE;
            map.mark_dirty(leaf * LEAF_ENTRIES);
        }
        let leaves = (run.leaf..run.leaf + run.count as usize).map(|leaf| (run.volume, leaf));
        self.opening.as_mut().expect("opening").lost_leaves.extend(leaves);
    }

    /// Records are replayed over the leaves, and what lives is counted.
    fn finish(&mut self) {
        let Opening {
            chunks,
            places,
            order,
            mut findings,
            anchor,
            deleted_at,
            lost_leaves,
            perhaps_emptied,
            unmarked,
            ..
        } = *self.opening.take().expect("opening");
        if findings.missing.iter().any(Missing::is_record) {
            self.forget_reused(anchor.next_generation);
        }
        if let Some(segment) = self.replay_records(&chunks, &places, order, &deleted_at) {
            findings.miss(Missing::Records { segment });
        }
        let is_sound = findings.is_empty();
        for (number, leaf) in lost_leaves {
            let Some(volume) = self.maps.volumes.get_mut(usize::from(number)).filter(|volume| volume.exists)
            else {
                continue;
            };
            let end = volume.entries.len().min((leaf + 1) * LEAF_ENTRIES);
            let Some(entries) = volume.entries.get_mut(leaf * LEAF_ENTRIES..end) else { continue };
            let lost = entries.iter_mut().filter(|entry| entry.get() == LogAddress::LOST);
            if is_sound
                && self.config.recovery != Recovery::Strict
                && perhaps_emptied.contains(&(number, leaf))
            {
                // Nothing was lost: the store gave the leaf's segment back because nothing in it was needed any more. What
                // was deallocated since the anchor has its records; the rest of the leaf was empty before.
                diecut_units::mark!("volume: leaf of an older version was empty");
                lost.for_each(|entry| *entry = StoredAddress::NONE);
                findings.emptied_leaves += 1;
            } else if lost.count() > 0 {
                findings.miss(Missing::Leaf { volume: VolumeIndex(number), leaf: leaf as u64 });
            }
        }
        for (number, volume) in self.maps.volumes.iter_mut().enumerate() {
            if !volume.exists {
                *volume = Default::default();
                continue;
            }
            volume.resize(volume.size_ius, anchor.sequence);
            let parts = volume.written_parts();
            let (used_ius, lost_ius) = self.log.adopt_places(&mut volume.entries, &parts);
            volume.used_ius = used_ius;
            if lost_ius > 0 {
                diecut_units::mark!("volume: places lost");
                findings.miss(Missing::Places { volume: VolumeIndex(number as u16), ius: lost_ius });
            }
            for leaf in volume.leaves.iter().filter(|leaf| **leaf != StoredAddress::NONE) {
                self.log.validate(leaf.get());
            }
        }
        self.findings = findings;
        // Most buffers that recovery read with are not needed to serve; each call gives up half of what is free.
        for _ in 0..2 {
            self.log.pool().shrink(u32::MAX);
        }
        self.conclude(unmarked);
    }

    /// Where records are missing, what the leaves name in segments that were opened after the anchor may be something else by
    /// now: only a record that is replayed says what is there.
    fn forget_reused(&mut self, next_generation: u32) {
        let layout = self.log.layout().clone();
        for volume in self.maps.volumes.iter_mut().filter(|volume| volume.exists) {
            for part in volume.written_parts() {
                for entry in &mut volume.entries[part] {
                    let place = entry.get();
                    let is_newer = |generation| generation >= next_generation;
                    if place.is_place()
                        && self.log.generation(layout.segment_of(place).0).is_some_and(is_newer)
                    {
                        *entry = LogAddress::LOST.into();
                    }
                }
            }
        }
    }

    /// What is missing is accepted, or ends all writing.
    fn conclude(&mut self, unmarked: Vec<MemberBlock>) {
        let Some(first) = self.findings.missing.first() else {
            if self.findings.emptied_leaves > 0 {
                self.begin_mending(Vec::new());
            }
            return;
        };
        if self.config.recovery == Recovery::Accept && !self.findings.is_of_other_version() {
            diecut_units::mark!("volume: loss accepted");
            self.log.drop_damaged_staging();
            self.accepted.records += self.findings.records;
            self.accepted.ius = self.lost_ranges(0).1;
            for volume in self.maps.volumes.iter_mut().filter(|volume| volume.exists) {
                for part in volume.written_parts() {
                    part.step_by(LEAF_ENTRIES).for_each(|iu| volume.mark_dirty(iu));
                }
            }
            return self.begin_mending(unmarked);
        }
        // The worst first: what the lost records said cannot be known, and no write may build on that.
        let records = self.findings.missing.iter().find(|missing| missing.is_record());
        let reason = records.unwrap_or(first).reason();
        self.log.keep_all(reason);
    }

    /// Replays records over the leaves of the volumes that there are. A segment of which a record cannot be one.
    fn replay_records(
        &mut self,
        chunks: &[RecoveredChunk],
        places: &[LogAddress],
        order: Vec<Replayed>,
        deleted_at: &BTreeMap<u16, u64>,
    ) -> Option<u32> {
        let mut unsound = None;
        let is_over = |volume: u16, sequence: u64| {
            deleted_at.get(&volume).is_some_and(|deleted_at| sequence < *deleted_at)
        };
        for (sequence, index, entry) in order {
            let index = index as usize;
            match entry {
                Entry::Run { first, count } => {
                    if chunks[index].head.stream == Stream::Map {
                        continue;
                    }
                    let records = first..first + count;
                    let tag = |record: u32| chunks[index].record(record);
                    for record in records.clone() {
                        self.maps.prefetch((tag(record) >> 48) as u16, tag(record) & ((1 << 48) - 1));
                    }
                    for record in records {
                        let (volume, iu) = ((tag(record) >> 48) as u16, tag(record) & ((1 << 48) - 1));
                        if volume == LEAF_VOLUME {
                            unsound = Some(chunks[index].head.segment);
                            continue;
                        }
                        if is_over(volume, sequence + u64::from(record - first)) {
                            continue;
                        }
                        let Some(volume) = self.maps.volumes.get_mut(usize::from(volume)) else { continue };
                        // What lies beyond the end is of a volume that had the number before, and was larger.
                        let Some(entry) = volume.entries.get_mut(iu as usize) else { continue };
                        *entry = LogAddress(places[index].0 + 1 + record).into();
                        volume.mark_dirty(iu as usize);
                    }
                }
                Entry::Note(note) => {
                    let words = chunks[index].note(note);
                    let Some(volume) = map::volume_of_note(words) else { continue };
                    if words[0] & 0xff != NOTE_DEALLOCATE || is_over(volume, sequence) {
                        continue;
                    }
                    let Some(volume) = self.maps.volumes.get_mut(usize::from(volume)) else { continue };
                    let len = volume.entries.len() as u64;
                    let end = words[1].saturating_add(words[2]).min(len) as usize;
                    let first = words[1].min(len) as usize;
                    volume.clear(first..end.max(first));
                }
            }
        }
        unsound
    }
}

fn name_of(head: &Head) -> (u32, u32, u32, u64) {
    (head.segment, head.generation, head.offset, head.sequence)
}

fn stream_bytes(head: &Head, user_bytes: usize) -> usize {
    if head.stream == Stream::Map { IU_SIZE_BYTES } else { user_bytes }
}

/// First and last sequence of a chunk.
pub(crate) fn entries(chunk: &RecoveredChunk) -> (u64, u64) {
    let mut last = chunk.head.sequence;
    let mut note_last = 0;
    let _consistent = chunk.runs(
        |_, sequence, _| note_last = note_last.max(sequence),
        |run| last = last.max(run.sequence + u64::from(run.count) - 1),
    );
    (chunk.head.sequence, last.max(note_last).min(SEQUENCE_MAX))
}
