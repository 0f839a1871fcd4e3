//! Records of chunks in the order of their sequences, and what they do to the map.

use super::Found;
use super::tally::Tally;
use crate::endurance::EnduranceFigures;
use crate::lent::Lent;
use crate::loss::Missing;
use crate::map::{self, LeafId, NOTE_CREATE, NOTE_DEALLOCATE, NOTE_DELETE, NOTE_UNCORRECTABLE};
use diecut_log::head::Head;
use diecut_log::walk::SEQUENCE_MAX;
use diecut_log::{FlushNote, LogAddress, MapEntry, RecoveredChunk, SegmentIndex, Stream, StreamKind};
use diecut_units::mutant;
use std::collections::{BTreeMap, BTreeSet};

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

/// All records that the anchor does not cover.
pub(super) struct Replay {
    chunks: Vec<RecoveredChunk>,
    /// Where the head of each chunk lies now.
    places: Vec<LogAddress>,
    order: Vec<Replayed>,
    /// For each volume whose deletion is replayed: its sequence. What came before concerns nobody any more.
    deleted_at: BTreeMap<u16, u64>,
}

impl Replay {
    /// Of chunks found on flash, and in staging.
    pub fn new(chunks: Vec<RecoveredChunk>, found: &mut Found, lent: &mut Lent) -> Replay {
        let on_flash = chunks.len();
        let layout = lent.log.layout();
        let place =
            |chunk: &RecoveredChunk| layout.address(SegmentIndex(chunk.head.segment), chunk.head.offset);
        let places = chunks.iter().map(place).collect();
        let mut replay = Replay { chunks, places, order: Vec::new(), deleted_at: BTreeMap::new() };
        replay.add_staged(found, lent);
        replay.put_in_order(on_flash, found, lent);
        found.choose_format(&replay.chunks, lent);
        replay.find_volumes(found, lent);
        found.figures = replay.figures(on_flash, found, lent);
        replay
    }

    /// Chunks in staging that are not on flash.
    fn add_staged(&mut self, found: &mut Found, lent: &mut Lent) {
        let whole: BTreeSet<_> = self.chunks.iter().map(|chunk| name_of(&chunk.head)).collect();
        let (staged, damaged) = lent.log.found_in_staging();
        if damaged > 0 {
            diecut_units::mark!("volume: staging damaged");
            found.findings.miss(Missing::Staging { slots: damaged });
        }
        for (slot, chunk) in staged {
            let is_empty = chunk.head.data_count == 0 && chunk.head.note_count == 0;
            if is_empty || whole.contains(&name_of(&chunk.head)) {
                lent.log.drop_staged(slot);
                continue;
            }
            let segment = lent.log.adopt_staged(slot, &chunk, sequences(&chunk).1);
            self.places.push(lent.log.layout().address(segment, 0));
            self.chunks.push(chunk);
        }
    }

    /// What chunks record, in the order of sequences.
    fn put_in_order(&mut self, on_flash: usize, found: &mut Found, lent: &mut Lent) {
        let anchored = found.anchor.sequence;
        let first = if mutant!("volume: records before the anchor replayed") { 0 } else { anchored };
        // As many as there are at most: a vector that grows holds twice as much for a while.
        let (mut notes_found, mut runs_found) = (0, 0);
        for chunk in &self.chunks {
            let notes =
                |_, sequence, words| notes_found += u64::from(sequence >= first && !is_for_walk(words));
            let _consistent = chunk.runs(notes, |_| runs_found += 1);
        }
        let order = &mut self.order;
        order.reserve_exact(notes_found as usize + runs_found);
        let mut notes = Vec::new();
        for (index, chunk) in self.chunks.iter().enumerate() {
            let (mut last, mut last_note, mut last_for_walk) = (0, 0, 0);
            let number = index as u32;
            let consistent = chunk.runs(
                |note, sequence, words| {
                    if is_for_walk(words) {
                        last_for_walk = last_for_walk.max(sequence);
                        return;
                    }
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
                found.findings.miss(Missing::Records { segment: chunk.head.segment });
            }
            if index < on_flash {
                lent.log.adopt_chunk(&chunk.head, last.max(last_note).max(last_for_walk), last_note);
            }
        }
        lent.log.adopt_notes(notes_found);
        order.sort_unstable_by_key(|(sequence, index, _)| (*sequence, *index));
    }

    /// Which volumes there will be when all records are replayed, and how large they are. Of a volume that was deleted the
    /// cleaner may have freed anything, its leaves too, before the next anchor: nothing of it is looked for.
    fn find_volumes(&mut self, found: &mut Found, lent: &mut Lent) {
        // Sequence, size, and the chunk that says so.
        let mut sizes: BTreeMap<u16, (u64, u64, usize)> = BTreeMap::new();
        for (sequence, index, entry) in &self.order {
            let Entry::Note(note) = entry else { continue };
            let index = *index as usize;
            let words = self.chunks[index].note(*note);
            let Some(volume) = map::volume_of_note(words) else {
                found.findings.miss(Missing::Records { segment: self.chunks[index].head.segment });
                continue;
            };
            match words[0] & 0xff {
                NOTE_CREATE => drop(sizes.insert(volume, (*sequence, words[2], index))),
                NOTE_DELETE => drop(self.deleted_at.insert(volume, *sequence)),
                _ => {}
            }
        }
        if mutant!("volume: deletion not replayed") {
            self.deleted_at.clear();
        }
        for (volume, sequence) in &self.deleted_at {
            diecut_units::mark!("volume: deletion replayed");
            *lent.maps.volume(*volume) = Default::default();
            sizes.retain(|created, (at, ..)| created != volume || *at > *sequence);
        }
        let mut room = lent.log.map_ius_max();
        for volume in &lent.maps.volumes {
            room = room.saturating_sub(volume.entries.len() as u64);
        }
        for (volume, (_, size_ius, index)) in sizes {
            let map = lent.maps.volume(volume);
            let more = size_ius.saturating_sub(map.entries.len() as u64);
            if more > room {
                found.findings.miss(Missing::Records { segment: self.chunks[index].head.segment });
                continue;
            }
            room -= more;
            map.exists = true;
            map.resize(size_ius, found.anchor.sequence);
        }
    }

    /// What was written and erased since the store was made, as far as that is known: what an anchor or a note says of its moment, and what
    /// was found of later ones.
    fn figures(&self, on_flash: usize, found: &Found, lent: &Lent) -> EnduranceFigures {
        let mut tally = Tally::new(found.anchor.taken_at, found.figures);
        for (sequence, index, entry) in &self.order {
            let chunk = &self.chunks[*index as usize];
            match *entry {
                Entry::Note(note) => tally.note(*sequence, chunk.note(note)),
                Entry::Run { count, .. } if chunk.head.stream.kind() == StreamKind::User => {
                    tally.written(*sequence, count, *index as usize >= on_flash);
                }
                Entry::Run { .. } => {}
            }
        }
        let unit_ius = lent.log.layout().unit_ius;
        for chunk in &self.chunks[..on_flash] {
            let is_empty = chunk.head.data_count == 0 && chunk.head.note_count == 0;
            // Filler takes no sequence: it came before what has its own.
            let last = sequences(chunk).1.saturating_sub(u64::from(is_empty));
            tally.programmed(last, u32::from(chunk.head.unit_count) * unit_ius);
        }
        tally.figures()
    }

    /// Leaves of segments that the anchor does not cover, in the order of their places.
    pub fn leaves(&self) -> Vec<(LogAddress, u64)> {
        let mut leaves = Vec::new();
        for (chunk, place) in self.chunks.iter().zip(&self.places) {
            if chunk.head.stream == Stream::Map {
                let records = 0..u32::from(chunk.head.data_count);
                leaves.extend(records.map(|record| (place.plus(1 + record), chunk.record(record))));
            }
        }
        leaves.sort_unstable();
        leaves
    }

    /// Leaves that were written since the anchor was taken, or moved, are where their records say.
    pub fn place_leaves(&self, found: &Found, lent: &mut Lent) {
        for (sequence, index, entry) in &self.order {
            let index = *index as usize;
            let chunk = &self.chunks[index];
            let Entry::Run { first, count } = *entry else { continue };
            if chunk.head.stream != Stream::Map {
                continue;
            }
            for record in first..first + count {
                let written_at = sequence + u64::from(record - first);
                if written_at < found.anchor.taken_at {
                    continue;
                }
                let Some(LeafId { kind, volume, leaf }) = LeafId::of(chunk.record(record)) else {
                    continue;
                };
                if self.is_over(volume, written_at) {
                    continue;
                }
                if let Some(volume) = lent.maps.volumes.get_mut(usize::from(volume)) {
                    volume.place_leaf(
                        kind,
                        leaf,
                        MapEntry::data(self.place(index, record), chunk.check(record)),
                    );
                }
            }
        }
    }

    fn place(&self, chunk: usize, record: u32) -> LogAddress {
        self.places[chunk].plus(1 + record)
    }

    /// Whether a volume was deleted after a record.
    fn is_over(&self, volume: u16, sequence: u64) -> bool {
        self.deleted_at.get(&volume).is_some_and(|deleted_at| sequence < *deleted_at)
    }

    /// Replays records over the leaves of the volumes that there are. A segment of which a record cannot be one.
    pub fn apply(mut self, lent: &mut Lent) -> Option<u32> {
        let mut unsound = None;
        for (sequence, index, entry) in std::mem::take(&mut self.order) {
            let index = index as usize;
            match entry {
                Entry::Run { .. } if self.chunks[index].head.stream == Stream::Map => {}
                Entry::Run { first, count } => {
                    let is_sound = self.apply_run(sequence, index, first..first + count, lent);
                    if !is_sound {
                        unsound = Some(self.chunks[index].head.segment);
                    }
                }
                Entry::Note(note) => self.apply_note(sequence, self.chunks[index].note(note), lent),
            }
        }
        unsound
    }

    fn apply_run(&self, sequence: u64, index: usize, records: std::ops::Range<u32>, lent: &mut Lent) -> bool {
        let mut is_sound = true;
        let tag = |record: u32| self.chunks[index].record(record);
        for record in records.clone() {
            lent.maps.prefetch((tag(record) >> 48) as u16, tag(record) & ((1 << 48) - 1));
        }
        let first = records.start;
        for record in records {
            let (volume, iu) = ((tag(record) >> 48) as u16, tag(record) & ((1 << 48) - 1));
            if map::is_of_leaves(volume) {
                is_sound = false;
                continue;
            }
            if self.is_over(volume, sequence + u64::from(record - first)) {
                continue;
            }
            let Some(volume) = lent.maps.volumes.get_mut(usize::from(volume)) else { continue };
            // What lies beyond the end is of a volume that had the number before, and was larger.
            let Some(entry) = volume.entries.get_mut(iu as usize) else { continue };
            let check = self.chunks[index].check(record);
            *entry = MapEntry::data(self.place(index, record), check);
            volume.mark_dirty(iu as usize);
        }
        is_sound
    }

    fn apply_note(&self, sequence: u64, words: [u64; 3], lent: &mut Lent) {
        let Some(volume) = map::volume_of_note(words) else { return };
        let kind = words[0] & 0xff;
        if !matches!(kind, NOTE_DEALLOCATE | NOTE_UNCORRECTABLE) || self.is_over(volume, sequence) {
            return;
        }
        let Some(volume) = lent.maps.volumes.get_mut(usize::from(volume)) else { return };
        let len = volume.entries.len() as u64;
        let end = words[1].saturating_add(words[2]).min(len) as usize;
        let first = words[1].min(len) as usize;
        let range = first..end.max(first);
        if kind == NOTE_UNCORRECTABLE { volume.lose(range) } else { volume.clear(range) }
    }
}

/// Whether a note was for the walk alone: it changes no map.
fn is_for_walk(words: [u64; 3]) -> bool {
    FlushNote::of(words).is_some()
}

fn name_of(head: &Head) -> (u32, u32, u32, u64) {
    (head.segment, head.generation, head.offset, head.sequence)
}

/// First and last sequence of a chunk.
pub(super) fn sequences(chunk: &RecoveredChunk) -> (u64, u64) {
    let mut last = chunk.head.sequence;
    let mut note_last = 0;
    let _consistent = chunk.runs(
        |_, sequence, _| note_last = note_last.max(sequence),
        |run| last = last.max(run.sequence + u64::from(run.count) - 1),
    );
    (chunk.head.sequence, last.max(note_last).min(SEQUENCE_MAX))
}
