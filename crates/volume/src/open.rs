//! Recovery: page marks tell which erase block belongs to which segment, chunk heads what each holds; records are
//! replayed in the order of their sequences, staging included.

use crate::Store;
use crate::map::{NOTE_CREATE, NOTE_DEALLOCATE, NOTE_DELETE};
use diecut_log::head::{self, Head};
use diecut_log::walk::{self, Run};
use diecut_log::{LogAddress, NO_BLOCK, PURPOSE_SEGMENT, RecoveredChunk, SegmentIndex, TOKEN_USER, mark};
use diecut_units::{IU_SIZE_BYTES, mutant};
use diecut_vssd::space::{
    EraseBlockSpace, HeldBlock, IoClass, LogicalBlock, SpaceCompletion, SpaceError, SpaceToken,
};
use std::collections::BTreeMap;

const DATA: u64 = 1 << 48;
/// Set in the token of a head that is read again.
const AGAIN: u64 = 1 << 49;
/// Pages of an erase block whose OOB is looked at for its mark.
const MARK_PAGES_TRIED: u32 = 32;

#[derive(Default)]
pub(crate) struct Opening {
    blocks: Vec<HeldBlock>,
    marks: Vec<Option<mark::Mark>>,
    outstanding: usize,
    walking: bool,
    written: BTreeMap<(u16, u32), u32>,
    /// A chunk whose data is being checked, by segment: reads under way and whether all was right.
    checking: BTreeMap<u32, (RecoveredChunk, u32, bool)>,
    chunks: Vec<RecoveredChunk>,
    /// Segments in which a head was lost: the next one is looked for.
    searching: Vec<u32>,
    /// A head was lost in the middle of what was written.
    records_lost: bool,
}

impl Store {
    pub(crate) fn start_opening(&mut self, space: &mut dyn EraseBlockSpace) {
        let opening = self.opening.as_mut().expect("opening");
        opening.blocks = space.held_blocks();
        opening.blocks.retain(|held| held.purpose == PURPOSE_SEGMENT);
        opening.blocks.sort_by_key(|held| held.allocation_sequence);
        opening.marks = vec![None; opening.blocks.len()];
        let size = space.shape().oob_size_bytes as usize;
        for (index, held) in opening.blocks.iter().enumerate() {
            opening.written.insert((held.block.unit.0, held.block.index), held.written_pages);
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

    pub(crate) fn opening_step(&mut self, completion: SpaceCompletion, space: &mut dyn EraseBlockSpace) {
        let opening = self.opening.as_mut().expect("opening");
        opening.outstanding -= 1;
        let index = (completion.token.0 & 0xffff_ffff) as usize;
        if self.log.is_gone() {
            return;
        }
        if !opening.walking {
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
                Some(head) => self.check_chunk(RecoveredChunk { head, bytes: bytes.to_vec() }, space),
                // Behind a head that was lost, every unit may begin a chunk.
                None if self.opening.as_ref().is_some_and(|o| o.searching.contains(&segment)) => {
                    let next = (offset + 1) * self.log.layout().unit_ius;
                    self.walk_on(segment, next, space);
                }
                None => self.head_lost(segment, offset, completion.token.0 & AGAIN != 0, space),
            }
        }
        if self.opening.as_ref().is_some_and(|o| o.outstanding == 0) {
            self.replay(space);
        }
    }

    fn marks_done(&mut self, space: &mut dyn EraseBlockSpace) {
        let width = self.log.layout().width as usize;
        let opening = self.opening.as_mut().expect("opening");
        opening.walking = true;
        let mut found: BTreeMap<u32, (u32, u16, Vec<LogicalBlock>)> = BTreeMap::new();
        let mut unused = Vec::new();
        for (held, mark) in opening.blocks.iter().zip(&opening.marks) {
            let Some(mark) = mark.filter(|m| {
                m.segment < self.log.segment_count() && usize::from(m.member) < width && m.stream < 3
            }) else {
                unused.push(held.block);
                continue;
            };
            let entry = found
                .entry(mark.segment)
                .or_insert_with(|| (mark.generation, mark.stream, vec![NO_BLOCK; width]));
            if mark.generation > entry.0 {
                // A free that was not durable: the older segment of this number is dead.
                unused.extend(entry.2.iter().filter(|b| **b != NO_BLOCK));
                *entry = (mark.generation, mark.stream, vec![NO_BLOCK; width]);
            }
            if mark.generation < entry.0 {
                unused.push(held.block);
            } else {
                entry.2[usize::from(mark.member)] = held.block;
            }
        }
        for block in unused {
            space.free(block).expect("held");
        }
        for (segment, (generation, stream, blocks)) in &found {
            self.log.adopt_segment(*segment, *generation, usize::from(*stream), blocks);
        }
        for segment in found.keys() {
            self.walk_on(*segment, 0, space);
        }
        if self.opening.as_ref().is_some_and(|o| o.outstanding == 0) {
            self.replay(space);
        }
    }

    /// The head at a unit cannot be read, or is none: it is looked at once more. Then, at the end of what was written, a
    /// cut tore it, and nothing of it was acknowledged that is not staged; anywhere else the medium lost it, the walk
    /// goes on behind it, and what it recorded is not known any more.
    fn head_lost(&mut self, segment: u32, unit: u32, again: bool, space: &mut dyn EraseBlockSpace) {
        let layout = self.log.layout();
        let (unit_ius, width) = (layout.unit_ius, layout.width);
        let shape = layout.shape;
        if !again {
            diecut_units::mark!("volume: head read again");
            return self.walk_to(segment, unit * unit_ius, AGAIN, space);
        }
        let (block, _) = self.log.block_of(layout.address(SegmentIndex(segment), unit * unit_ius));
        let opening = self.opening.as_mut().expect("opening");
        let written = opening.written.get(&(block.unit.0, block.index)).copied().unwrap_or(0)
            / shape.program_unit_pages;
        if unit / width + 2 + shape.unsafe_units > written {
            return;
        }
        diecut_units::mark!("volume: head lost");
        opening.searching.push(segment);
        opening.records_lost = true;
        self.walk_on(segment, (unit + 1) * unit_ius, space);
    }

    fn walk_on(&mut self, segment: u32, offset: u32, space: &mut dyn EraseBlockSpace) {
        self.walk_to(segment, offset, 0, space);
    }

    fn walk_to(&mut self, segment: u32, offset: u32, flags: u64, space: &mut dyn EraseBlockSpace) {
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
        space.read(token, block, iu, 1, buffer, None, IoClass::Metadata);
    }

    /// Only the last program units of an erase block can be torn; chunks that touch them are read whole.
    fn check_chunk(&mut self, chunk: RecoveredChunk, space: &mut dyn EraseBlockSpace) {
        let layout = self.log.layout().clone();
        let head = chunk.head;
        let segment = SegmentIndex(head.segment);
        if head.offset + u32::from(head.unit_count) * layout.unit_ius > layout.segment_ius
            || u32::from(head.data_count) >= u32::from(head.unit_count) * layout.unit_ius
        {
            return;
        }
        let opening = self.opening.as_mut().expect("opening");
        let mut proven = true;
        let first_unit = head.offset / layout.unit_ius;
        for unit in first_unit..first_unit + u32::from(head.unit_count) {
            let (block, _) = self.log.block_of(layout.address(segment, unit * layout.unit_ius));
            if block == NO_BLOCK {
                return;
            }
            let written = opening.written.get(&(block.unit.0, block.index)).copied().unwrap_or(0)
                / layout.shape.program_unit_pages;
            proven &= unit / layout.width + 2 + layout.shape.unsafe_units <= written;
        }
        if proven || head.data_count == 0 {
            self.accept(chunk, space);
            return;
        }
        let end = 1 + u32::from(head.data_count);
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let mut first = 1;
        while first < end {
            let count = (layout.unit_ius - first % layout.unit_ius).min(end - first);
            runs.push((first, count));
            first += count;
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
        space: &mut dyn EraseBlockSpace,
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
        space.read(token, block, iu, count, destination, Some(oob), IoClass::Metadata);
    }

    fn accept(&mut self, chunk: RecoveredChunk, space: &mut dyn EraseBlockSpace) {
        let next = chunk.head.offset + u32::from(chunk.head.unit_count) * self.log.layout().unit_ius;
        let segment = chunk.head.segment;
        let opening = self.opening.as_mut().expect("opening");
        opening.searching.retain(|searched| *searched != segment);
        opening.chunks.push(chunk);
        self.walk_on(segment, next, space);
    }

    fn replay(&mut self, space: &mut dyn EraseBlockSpace) {
        let Opening { mut chunks, records_lost, .. } = *self.opening.take().expect("opening");
        if records_lost {
            // What the lost records said cannot be known: older data may show. No write may build on that.
            self.log
                .set_read_only("the medium lost records of writes: some data may be older than acknowledged");
        }
        // Where each chunk's head lies now.
        let mut places: Vec<LogAddress> = Vec::new();
        let on_flash = chunks.len();
        for chunk in &chunks {
            places.push(self.log.layout().address(SegmentIndex(chunk.head.segment), chunk.head.offset));
        }
        for (slot, found) in self.log.found_in_staging() {
            let whole = chunks.iter().any(|c| {
                let (a, b) = (c.head, found.head);
                (a.segment, a.generation, a.offset, a.sequence)
                    == (b.segment, b.generation, b.offset, b.sequence)
            });
            if whole {
                self.log.drop_staged(slot);
                continue;
            }
            if found.head.data_count == 0 && found.head.note_count == 0 {
                self.log.drop_staged(slot);
                continue;
            }
            let last = entries(&found).1;
            let segment = self.log.adopt_staged(slot, &found, last);
            places.push(self.log.layout().address(segment, 0));
            chunks.push(found);
        }
        enum Entry {
            Run(Run),
            Note([u64; 3]),
        }
        let mut order: Vec<(u64, usize, Entry)> = Vec::new();
        for (index, chunk) in chunks.iter().enumerate() {
            let (mut last, mut last_note) = (0, 0);
            let mut notes = Vec::new();
            walk::runs(
                &chunk.head,
                &chunk.bytes,
                |sequence, words| notes.push((sequence, words)),
                |run| {
                    last = last.max(run.sequence + u64::from(run.count) - 1);
                    order.push((run.sequence, index, Entry::Run(run)));
                },
            );
            for (sequence, words) in notes {
                last_note = last_note.max(sequence);
                order.push((sequence, index, Entry::Note(words)));
            }
            if index < on_flash {
                self.log.adopt_chunk(&chunk.head, last.max(last_note), last_note);
            }
        }
        order.sort_by_key(|(sequence, index, _)| (*sequence, *index));
        for (_, index, entry) in order {
            match entry {
                Entry::Run(run) => {
                    for record in run.first..run.first + run.count {
                        let tag = head::record(&chunks[index].bytes, record as usize);
                        let (volume, iu) = ((tag >> 48) as u16, tag & ((1 << 48) - 1));
                        let map = &mut self.maps.volume(volume).entries;
                        if map.len() as u64 <= iu {
                            map.resize(iu as usize + 1, LogAddress::NONE.0);
                        }
                        map[iu as usize] = places[index].0 + 1 + record;
                    }
                }
                Entry::Note(words) => {
                    let volume = self.maps.volume((words[0] >> 8) as u16);
                    match words[0] & 0xff {
                        NOTE_DEALLOCATE => {
                            let len = volume.entries.len() as u64;
                            let end = words[1].saturating_add(words[2]).min(len) as usize;
                            volume.entries[(words[1].min(len) as usize)..end].fill(LogAddress::NONE.0);
                        }
                        NOTE_CREATE => (volume.exists, volume.size_ius) = (true, words[2]),
                        NOTE_DELETE => *volume = Default::default(),
                        _ => {}
                    }
                }
            }
        }
        for volume in &mut self.maps.volumes {
            if !volume.exists {
                *volume = Default::default();
                continue;
            }
            volume.entries.resize(volume.size_ius as usize, LogAddress::NONE.0);
            volume.used_ius = 0;
            for entry in volume.entries.iter().filter(|e| **e != LogAddress::NONE.0) {
                self.log.validate(LogAddress(*entry));
                volume.used_ius += 1;
            }
        }
        let _ = space;
    }
}

fn stream_bytes(head: &Head, user_bytes: usize) -> usize {
    if usize::from(head.stream) == diecut_log::STREAM_MAP { IU_SIZE_BYTES } else { user_bytes }
}

/// First and last sequence of a chunk.
fn entries(chunk: &RecoveredChunk) -> (u64, u64) {
    let mut last = chunk.head.sequence;
    let mut note_last = 0;
    walk::runs(
        &chunk.head,
        &chunk.bytes,
        |sequence, _| note_last = note_last.max(sequence),
        |run| last = last.max(run.sequence + u64::from(run.count) - 1),
    );
    (chunk.head.sequence, last.max(note_last))
}
