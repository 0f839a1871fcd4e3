//! A restart undoes what the cleaner had copied from segments that are still there.
//!
//! Each restart ends the segments that were open. Without this a few of them, while the cleaner works on its last free
//! segment, would leave it with none: what it had copied would live twice, each half in a segment of its own.
//!
//! Copies are left out as if they had never been made. That is right if everything they were made of is there, and nobody
//! else names them: no leaf was written since, and no anchor taken. Records that are replayed then lead to the originals.

use super::Found;
use super::replay::sequences;
use crate::lent::Lent;
use diecut_log::{Log, RecoveredChunk, SegmentIndex, Stream};
use diecut_units::mutant;
use std::collections::BTreeMap;

/// Frees segments that hold nothing but such copies, and forgets their chunks.
pub(super) fn undo_copies(chunks: &mut Vec<RecoveredChunk>, found: &Found, lent: &mut Lent) {
    if found.has_lost_records() {
        return;
    }
    let mut undone = only_copies(chunks, found, lent.log);
    loop {
        let leaves = chunks
            .iter()
            .filter(|chunk| chunk.head.stream == Stream::Map && !undone.contains_key(&chunk.head.segment));
        let newest_leaf = leaves.map(|chunk| sequences(chunk).1).max().unwrap_or(0);
        let before = undone.len();
        undone.retain(|_, first| *first > newest_leaf);
        if undone.len() == before {
            break;
        }
    }
    if undone.is_empty() {
        return;
    }
    diecut_units::mark!("volume: copies undone");
    let mut last = 0;
    chunks.retain(|chunk| {
        let keep = !undone.contains_key(&chunk.head.segment);
        if !keep {
            last = last.max(sequences(chunk).1);
        }
        keep
    });
    for segment in undone.into_keys() {
        lent.log.undo_segment(segment, last, lent.space);
    }
}

/// Program units that hold chunks, of all segments.
fn units_found(chunks: &[RecoveredChunk], found: &Found, log: &Log) -> BTreeMap<u32, u32> {
    let mut units: BTreeMap<u32, u32> = BTreeMap::new();
    for (SegmentIndex(index), (generation, count)) in &found.anchor.segments {
        if log.generation(*index) == Some(*generation) {
            units.insert(*index, *count);
        }
    }
    for chunk in chunks {
        let end = chunk.head.offset / log.layout().unit_ius + u32::from(chunk.head.unit_count);
        let so_far = units.entry(chunk.head.segment).or_default();
        *so_far = (*so_far).max(end);
    }
    units
}

/// Segments of which all entries are copies whose originals are there, with their first sequences.
fn only_copies(chunks: &[RecoveredChunk], found: &Found, log: &Log) -> BTreeMap<u32, u64> {
    let units = units_found(chunks, found, log);
    // First sequence of segments that can be undone; `None` if they cannot.
    let mut firsts: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    for head in chunks.iter().map(|chunk| &chunk.head) {
        if head.data_count == 0 && head.note_count == 0 {
            continue;
        }
        let has_original = head.origin.is_some_and(|origin| {
            let found = units.get(&origin.segment).copied().unwrap_or(0);
            log.holds_origin(&origin, found) || mutant!("volume: copies without originals undone")
        });
        let first = (has_original && head.sequence >= found.anchor.taken_at).then_some(head.sequence);
        let so_far = firsts.entry(head.segment).or_insert(first);
        *so_far = so_far.zip(first).map(|(one, other)| one.min(other));
    }
    firsts.into_iter().filter_map(|(segment, first)| Some((segment, first?))).collect()
}
