use diecut_log::{Log, LogAddress, MapEntry, Move, Owner, TagForm};
use diecut_units::IU_SIZE_BYTES;
use diecut_units::mutant;
use std::collections::VecDeque;
use std::ops::Range;
use zerocopy::FromZeros;

/// Notes of a store: kind in the low byte of the first word, volume above it; first IU; number of IUs.
pub(crate) const NOTE_DEALLOCATE: u64 = 1;
pub(crate) const NOTE_CREATE: u64 = 2;
pub(crate) const NOTE_DELETE: u64 = 3;
pub(crate) const NOTE_UNCORRECTABLE: u64 = 4;
/// Figures of the store, in the words behind the first one (`endurance`).
pub(crate) const NOTE_FIGURES: u64 = 5;
/// Stands in such a note where others have their volume: none has this number, and versions that do not know the note leave it alone.
const FIGURES_VOLUME: u16 = 1024;
/// Entries of a leaf: it fills one IU.
pub(crate) const LEAF_ENTRIES: usize = IU_SIZE_BYTES / 4;
/// Leaves of a group: the bits of a word. A group is what the writer of leaves goes through in one step.
pub(crate) const GROUP_LEAVES: usize = 64;
/// Stands in tags where data has its volume.
pub(crate) const LEAF_VOLUME: u16 = u16::MAX;

pub(crate) fn tag(volume: u16, iu: u64) -> u64 {
    u64::from(volume) << 48 | iu
}
pub(crate) fn leaf_tag(volume: u16, leaf: usize) -> u64 {
    u64::from(LEAF_VOLUME) << 48 | u64::from(volume) << 32 | leaf as u64
}
/// Volume and leaf of a tag, if it is a leaf's.
pub(crate) fn leaf_of(tag: u64) -> Option<(u16, usize)> {
    ((tag >> 48) as u16 == LEAF_VOLUME).then_some(((tag >> 32) as u16, (tag & 0xffff_ffff) as usize))
}
/// Tags in heads of version 3: number of the volume (4), IU within it, or a leaf: 4 bits of level above 36 of its number (5), and the newest
/// snapshot of the volume (3): there is none.
pub(crate) const TAGS: TagForm = TagForm { long: long_tag, short: short_tag };

fn long_tag(tag: u64) -> [u8; 12] {
    let (volume, number) = match leaf_of(tag) {
        Some((volume, leaf)) => (volume, leaf as u64),
        None => ((tag >> 48) as u16, tag & ((1 << 48) - 1)),
    };
    let mut long = [0; 12];
    long[..4].copy_from_slice(&u32::from(volume).to_le_bytes());
    long[4..9].copy_from_slice(&number.to_le_bytes()[..5]);
    long
}
fn short_tag(long: [u8; 12], is_leaf: bool) -> u64 {
    let number = |bytes: std::ops::Range<usize>| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(&long[bytes]);
        u64::from_le_bytes(word)
    };
    let (volume, number, birth) = (number(0..4), number(4..9), number(9..12));
    match u16::try_from(volume) {
        Ok(volume) if birth == 0 && volume != LEAF_VOLUME => match is_leaf {
            false => tag(volume, number),
            true if number <= u32::MAX.into() => leaf_tag(volume, number as usize),
            true => UNKNOWN_TAG,
        },
        _ => UNKNOWN_TAG,
    }
}
/// A leaf of a volume that cannot be.
const UNKNOWN_TAG: u64 = u64::MAX;

pub(crate) fn note(kind: u64, volume: u16, first: u64, count: u64) -> [u64; 3] {
    [kind | u64::from(volume) << 8, first, count]
}
pub(crate) fn figures_note(words: [u64; 2]) -> [u64; 3] {
    note(NOTE_FIGURES, FIGURES_VOLUME, words[0], words[1])
}
/// Volume of a note, if it can be one's.
pub(crate) fn volume_of_note(words: [u64; 3]) -> Option<u16> {
    u16::try_from(words[0] >> 8).ok().filter(|volume| *volume != LEAF_VOLUME)
}

/// Entries that a step of the end of a volume lets go, at most: less than a millisecond, also where none is in a cache.
const END_ENTRIES: usize = 16 * LEAF_ENTRIES;
/// Leaves without entries that such a step passes over, at most.
const END_LEAVES: usize = 16 * 1024;
/// IUs that one note of a deallocation tells of, at most: the cleaner looks at all of them when the note is to be kept.
pub(crate) const NOTE_IUS_MAX: usize = 4 * LEAF_ENTRIES;
/// Leaves without entries that a piece of a deallocation passes over, at most: some ten microseconds.
const PIECE_LEAVES: usize = 8 * 1024;
/// Memory of a map that ends is given back in pieces of so many entries: a huge page.
const END_PIECE_ENTRIES: usize = (2 << 20) / size_of::<MapEntry>();

/// The page map of one volume. A volume that was deleted keeps its map until all of it has ended: till then the log counts its
/// places as live, and the cleaner may ask for them.
#[derive(Default)]
pub(crate) struct VolumeMap {
    pub exists: bool,
    pub size_ius: u64,
    pub used_ius: u64,
    pub entries: Vec<MapEntry>,
    /// Where each leaf was last written; `NONE` if it has no entries, or never was.
    pub leaves: Vec<LogAddress>,
    /// One bit for each leaf that changed since it was written, one word for each group.
    pub dirty: Vec<u64>,
    /// One bit for each leaf that was seen to have no entries since it changed last, one word for each group.
    empty: Vec<u64>,
    /// For each group: every change before this sequence is in its leaves.
    pub visited: Vec<u64>,
}

impl VolumeMap {
    /// Gives the volume its size; what is new is empty, and was so at `sequence`. A map that had no entries takes memory only
    /// as it is written: a volume of any size is made in one step.
    pub fn resize(&mut self, size_ius: u64, sequence: u64) {
        self.size_ius = size_ius;
        let leaves = (size_ius as usize).div_ceil(LEAF_ENTRIES);
        grow(&mut self.entries, size_ius as usize);
        grow(&mut self.leaves, leaves);
        self.dirty.resize(leaves.div_ceil(GROUP_LEAVES), 0);
        // The last leaf may have become longer; it is as empty as it was.
        self.empty.resize(leaves.div_ceil(GROUP_LEAVES), 0);
        self.visited.resize(leaves.div_ceil(GROUP_LEAVES), sequence);
    }
    /// Whether a leaf may have entries: it does on flash, or it changed since, and nobody has seen that it has none. Others are all
    /// `NONE`, and nobody needs to look.
    fn may_have_entries(&self, leaf: usize) -> bool {
        let has = |bits: &[u64]| bits[leaf / GROUP_LEAVES] >> (leaf % GROUP_LEAVES) & 1 != 0;
        (self.leaves[leaf] != LogAddress::NONE || has(&self.dirty)) && !has(&self.empty)
    }
    /// The first leaf from `leaf` on, before `end`, that may have entries.
    fn next_with_entries(&self, leaf: usize, end: usize) -> Option<usize> {
        (leaf..end).find(|leaf| self.may_have_entries(*leaf))
    }
    /// Of a range, the first part that has entries: it begins and ends with one and is as long as one note may tell. The end of
    /// the range is the caller's to see to.
    fn next_part(&mut self, range: Range<usize>) -> Option<Range<usize>> {
        let leaves = range.end.div_ceil(LEAF_ENTRIES);
        let mut from = range.start;
        let first = loop {
            let leaf = self.next_with_entries(from / LEAF_ENTRIES, leaves)?;
            let (start, leaf_end) = (leaf * LEAF_ENTRIES, self.entries.len().min((leaf + 1) * LEAF_ENTRIES));
            from = from.max(start);
            let end = range.end.min(leaf_end);
            let found = self.entries[from..end].iter().position(|entry| *entry != MapEntry::NONE);
            if let Some(at) = found {
                break from + at;
            }
            let is_none = |entry: &MapEntry| *entry == MapEntry::NONE;
            if end == leaf_end && self.entries[start..from].iter().all(is_none) {
                self.empty[leaf / GROUP_LEAVES] |= 1 << (leaf % GROUP_LEAVES);
            }
            if end == range.end {
                return None;
            }
            from = end;
        };
        // As far as leaves have entries.
        let last_leaf = range.end.min(first + NOTE_IUS_MAX).div_ceil(LEAF_ENTRIES);
        let gap = (first / LEAF_ENTRIES..last_leaf).find(|leaf| !self.may_have_entries(*leaf));
        let end = range.end.min(first + NOTE_IUS_MAX).min(gap.map_or(usize::MAX, |leaf| leaf * LEAF_ENTRIES));
        let last = self.entries[first..end].iter().rposition(|entry| *entry != MapEntry::NONE);
        Some(first..first + last.expect("the first one is there") + 1)
    }
    /// Where entries may be, as ranges of entries.
    pub fn written_parts(&self) -> Vec<Range<usize>> {
        let mut parts: Vec<Range<usize>> = Vec::new();
        for leaf in (0..self.leaves.len()).filter(|leaf| self.may_have_entries(*leaf)) {
            let (from, end) = (leaf * LEAF_ENTRIES, self.entries.len().min((leaf + 1) * LEAF_ENTRIES));
            match parts.last_mut() {
                Some(last) if last.end == from => last.end = end,
                _ => parts.push(from..end),
            }
        }
        parts
    }
    /// Lets a step's worth of entries go, the last ones first, and hands their places to `invalidate`. Returns whether all
    /// are gone.
    fn end_step(&mut self, mut invalidate: impl FnMut(LogAddress)) -> bool {
        let (mut entries, mut leaves) = (END_ENTRIES, END_LEAVES);
        while !self.entries.is_empty() && entries > 0 && leaves > 0 {
            let leaf = (self.entries.len() - 1) / LEAF_ENTRIES;
            let from = leaf * LEAF_ENTRIES;
            if self.may_have_entries(leaf) {
                let places = self.entries[from..].iter().map(|entry| entry.get());
                places.filter(|place| place.is_place()).for_each(&mut invalidate);
                entries -= LEAF_ENTRIES;
            }
            let place = std::mem::replace(&mut self.leaves[leaf], LogAddress::NONE);
            if place.is_place() {
                invalidate(place);
            }
            leaves -= 1;
            self.entries.truncate(from);
            if from.is_multiple_of(END_PIECE_ENTRIES) {
                self.entries.shrink_to_fit();
            }
        }
        self.entries.is_empty()
    }
    #[inline]
    pub fn mark_dirty(&mut self, iu: usize) {
        let leaf = iu / LEAF_ENTRIES;
        self.dirty[leaf / GROUP_LEAVES] |= 1 << (leaf % GROUP_LEAVES);
        self.empty[leaf / GROUP_LEAVES] &= !(1 << (leaf % GROUP_LEAVES));
    }
    /// Makes reads of a range fail.
    pub fn lose(&mut self, range: Range<usize>) {
        self.entries[range.clone()].fill(LogAddress::LOST.into());
        for leaf in range.start / LEAF_ENTRIES..range.end.div_ceil(LEAF_ENTRIES) {
            self.mark_dirty((leaf * LEAF_ENTRIES).max(range.start));
        }
    }
    /// Empties a range, as far as it has entries.
    pub fn clear(&mut self, range: Range<usize>) {
        for leaf in range.start / LEAF_ENTRIES..range.end.div_ceil(LEAF_ENTRIES) {
            if self.may_have_entries(leaf) {
                let (from, end) = (leaf * LEAF_ENTRIES, (leaf + 1) * LEAF_ENTRIES);
                self.entries[from.max(range.start)..end.min(range.end)].fill(MapEntry::NONE);
                self.mark_dirty(from);
            }
        }
    }
    /// Entries of a leaf.
    pub fn leaf(&self, leaf: usize) -> &[MapEntry] {
        let end = self.entries.len().min((leaf + 1) * LEAF_ENTRIES);
        &self.entries[leaf * LEAF_ENTRIES..end]
    }
}

/// Lengthens a table of places by ones that name nothing.
fn grow<T: FromZeros + Clone>(table: &mut Vec<T>, len: usize) {
    if table.is_empty() {
        // Memory as it comes from the operating system: no page of it is touched.
        *table = T::new_vec_zeroed(len).expect("a map finds room");
        diecut_units::prefer_huge_pages(table);
        return;
    }
    table.reserve_exact(len.saturating_sub(table.len()));
    diecut_units::prefer_huge_pages(table);
    table.resize(len, T::new_zeroed());
}

/// A group whose leaves are being written.
#[derive(Clone, Copy)]
pub(crate) struct OpenGroup {
    pub volume: u16,
    pub group: usize,
    /// Leaves that were dirty at the beginning and are not yet written.
    pub left: u64,
    /// Every change before this sequence is in what is written.
    pub entered: u64,
}

/// All maps of a store.
#[derive(Default)]
pub(crate) struct Maps {
    pub volumes: Vec<VolumeMap>,
    pub open_group: Option<OpenGroup>,
    /// Volumes that were deleted and whose maps have not ended.
    ending: VecDeque<u16>,
}

impl Maps {
    pub fn volume(&mut self, volume: u16) -> &mut VolumeMap {
        if self.volumes.len() <= usize::from(volume) {
            self.volumes.resize_with(usize::from(volume) + 1, VolumeMap::default);
        }
        &mut self.volumes[usize::from(volume)]
    }
    /// Announces look-ups of a range.
    #[inline]
    pub fn prefetch(&self, volume: u16, first: u64) {
        if let Some(volume) = self.volumes.get(usize::from(volume)) {
            diecut_units::prefetch(&volume.entries, first as usize);
        }
    }
    #[inline]
    pub fn get(&self, volume: u16, iu: u64) -> LogAddress {
        self.volumes[usize::from(volume)].entries[iu as usize].get()
    }
    /// Entries of a range.
    #[inline]
    pub fn entries(&self, volume: u16, first: u64, count: u32) -> &[MapEntry] {
        &self.volumes[usize::from(volume)].entries[first as usize..][..count as usize]
    }
    /// Changes an entry. The place that it named.
    #[inline]
    pub fn set(&mut self, volume: u16, iu: u64, entry: MapEntry) -> LogAddress {
        let volume = &mut self.volumes[usize::from(volume)];
        let old = std::mem::replace(&mut volume.entries[iu as usize], entry).get();
        volume.mark_dirty(iu as usize);
        // What was lost takes no room.
        volume.used_ius += u64::from(!old.is_place());
        debug_assert!(volume.used_ius > 0, "I-M13: a volume knows how many of its IUs hold data");
        volume.used_ius -= u64::from(!entry.get().is_place());
        old
    }
    /// Of a range of a volume, the first part that has entries; see [`VolumeMap::next_part`].
    pub fn next_part(&mut self, volume: u16, first: u64, count: u64) -> Option<(u64, u64)> {
        let map = &mut self.volumes[usize::from(volume)];
        let part = map.next_part(first as usize..(first + count) as usize)?;
        Some((part.start as u64, part.len() as u64))
    }
    /// A range of a volume: how much of it, from its beginning and at least `piece`, takes no more work than `piece` entries that all
    /// have to be looked at, and those of them that need to be.
    pub fn piece(&self, volume: u16, first: u64, count: u64, piece: u64) -> (u64, u64) {
        let piece = piece.min(count);
        let Some(map) = self.volumes.get(usize::from(volume)).filter(|map| map.exists) else {
            return (piece, piece);
        };
        let (first, range_end) = (first as usize, (first + count) as usize);
        if map.entries.len() < range_end {
            return (piece, piece);
        }
        let mut end = first + piece as usize;
        let mut looked_at = 0;
        let mut from = first;
        while from < end {
            let next = end.min((from / LEAF_ENTRIES + 1) * LEAF_ENTRIES);
            if map.may_have_entries(from / LEAF_ENTRIES) {
                looked_at += (next - from) as u64;
            }
            from = next;
        }
        // What lies in the leaf at the end belongs to the next piece, if there is anything.
        if !map.may_have_entries((end - 1) / LEAF_ENTRIES) || end.is_multiple_of(LEAF_ENTRIES) {
            let leaf = end.div_ceil(LEAF_ENTRIES);
            let leaves = range_end.div_ceil(LEAF_ENTRIES).min(leaf + PIECE_LEAVES);
            let with_entries = map.next_with_entries(leaf, leaves).unwrap_or(leaves.max(leaf));
            end = range_end.min(with_entries * LEAF_ENTRIES).max(end);
        }
        ((end - first) as u64, looked_at)
    }
    /// Deletes a volume: from now on it does not exist, and its map ends step by step.
    pub fn delete(&mut self, volume: u16) {
        let map = self.volume(volume);
        assert!(map.exists, "I-M15: only what exists is deleted");
        (map.exists, map.used_ius) = (false, 0);
        self.open_group = None;
        assert!(!self.ending.contains(&volume), "I-M15: a volume ends once");
        self.ending.push_back(volume);
    }
    /// Lets one place of a deleted volume go before its map ends. Whether it was there.
    pub fn forget(&mut self, volume: u16, tag: u64, place: LogAddress) -> bool {
        if (tag >> 48) as u16 != volume {
            return false;
        }
        let entry = self.entry_mut(tag).filter(|entry| entry.get() == place);
        entry.map(|entry| *entry = MapEntry::NONE).is_some()
    }
    /// Whether a deleted volume of this number still has a map.
    pub fn is_ending(&self, volume: u16) -> bool {
        self.ending.contains(&volume)
    }
    /// Whether there is something for [`Maps::end_step`].
    pub fn has_ending(&self) -> bool {
        !self.ending.is_empty()
    }
    /// Lets a bounded part of the map of a deleted volume go; its places are handed to `invalidate`.
    pub fn end_step(&mut self, invalidate: impl FnMut(LogAddress)) {
        let Some(volume) = self.ending.front().copied() else { return };
        let map = &mut self.volumes[usize::from(volume)];
        assert!(!map.exists, "I-M15: only a deleted volume ends");
        if map.end_step(invalidate) {
            *map = VolumeMap::default();
            self.ending.pop_front();
        } else {
            diecut_units::mark!("volume: the end of a map took several steps");
        }
    }
    /// The group at `cursor`, or the next one of a volume that exists, round and round; the cursor moves behind it.
    pub fn next_group(&self, cursor: &mut (usize, usize)) -> Option<(u16, usize)> {
        // Every volume, the end, and the first one again.
        for _ in 0..self.volumes.len() + 2 {
            let (volume, group) = *cursor;
            match self.volumes.get(volume) {
                Some(map) if map.exists && group < map.visited.len() => {
                    *cursor = (volume, group + 1);
                    return Some((volume as u16, group));
                }
                Some(_) => *cursor = (volume + 1, 0),
                None => *cursor = (0, 0),
            }
        }
        None
    }
    /// Goes through all maps: how many live IUs each segment has.
    ///
    /// # Panics
    /// If a volume has another number of IUs that hold data than it says.
    pub fn count(&self, log: &Log) -> Vec<u32> {
        let mut counts = vec![0u32; log.segment_count() as usize];
        let mut count = |place: LogAddress| counts[log.layout().segment_of(place).0 as usize] += 1;
        for volume in &self.volumes {
            let parts = volume.written_parts().into_iter();
            let entries = parts.flat_map(|part| &volume.entries[part]).map(|entry| entry.get());
            let mut used = 0;
            for place in entries.filter(|entry| entry.is_place()) {
                used += 1;
                count(place);
            }
            volume.leaves.iter().copied().filter(|leaf| leaf.is_place()).for_each(&mut count);
            assert_eq!(if volume.exists { used } else { 0 }, volume.used_ius, "I-M13: used IUs");
        }
        counts
    }
    /// IUs that hold data.
    pub fn used_ius(&self) -> u64 {
        self.volumes.iter().map(|volume| volume.used_ius).sum()
    }
    /// Every change before this sequence is in the leaves; `otherwise` if there are none.
    pub fn visited_before(&self, otherwise: u64) -> u64 {
        let visited = self.volumes.iter().filter(|v| v.exists).flat_map(|v| &v.visited);
        visited.copied().min().unwrap_or(otherwise)
    }
    /// Of the range, what reads as zeros, as runs.
    fn holes(&self, volume: u16, first: u64, count: u64, found: &mut Vec<[u64; 3]>) {
        let map = &self.volumes[usize::from(volume)];
        let end = first.saturating_add(count).min(map.entries.len() as u64);
        let mut start = None;
        let mut iu = first;
        while iu < end {
            let leaf = iu as usize / LEAF_ENTRIES;
            if !map.may_have_entries(leaf) {
                // Memory that nobody touched stays so.
                start.get_or_insert(iu);
                iu = ((leaf + 1) * LEAF_ENTRIES) as u64;
                continue;
            }
            if map.entries[iu as usize] == MapEntry::NONE {
                start.get_or_insert(iu);
            } else if let Some(start) = start.take() {
                found.push(note(NOTE_DEALLOCATE, volume, start, iu - start));
            }
            iu += 1;
        }
        if let Some(start) = start {
            found.push(note(NOTE_DEALLOCATE, volume, start, end - start));
        }
    }
    /// Of the range, what cannot be read because a host wanted so, as runs.
    fn lost(&self, volume: u16, first: u64, count: u64, found: &mut Vec<[u64; 3]>) {
        let entries = &self.volumes[usize::from(volume)].entries;
        let end = first.saturating_add(count).min(entries.len() as u64);
        let first = first.min(end);
        let mut iu = first;
        for run in entries[first as usize..end as usize].chunk_by(|one, next| one == next) {
            if run[0].get() == LogAddress::LOST
                && !mutant!("volume: uncorrectable blocks not kept by the cleaner")
            {
                found.push(note(NOTE_UNCORRECTABLE, volume, iu, run.len() as u64));
            }
            iu += run.len() as u64;
        }
    }
    /// What the tag of an IU names.
    fn entry_mut(&mut self, tag: u64) -> Option<&mut MapEntry> {
        let iu = (tag & ((1 << 48) - 1)) as usize;
        self.volumes.get_mut((tag >> 48) as usize)?.entries.get_mut(iu)
    }
    /// Where what a tag names lies.
    fn place_of(&self, tag: u64) -> Option<LogAddress> {
        match leaf_of(tag) {
            Some((volume, leaf)) => self.volumes.get(usize::from(volume))?.leaves.get(leaf).copied(),
            None => {
                let entries = &self.volumes.get((tag >> 48) as usize)?.entries;
                entries.get((tag & ((1 << 48) - 1)) as usize).map(|entry| entry.get())
            }
        }
    }
    fn leaf_moved(&mut self, volume: u16, leaf: usize, moved: &Move) -> bool {
        let leaves = self.volumes.get_mut(usize::from(volume)).map(|map| &mut map.leaves);
        let place = leaves.and_then(|leaves| leaves.get_mut(leaf)).filter(|place| **place == moved.from);
        place.map(|place| *place = moved.to).is_some()
    }
}

impl Owner for Maps {
    fn live(&mut self, entries: &[(u64, LogAddress)], live: &mut Vec<bool>) {
        live.clear();
        if entries.first().is_some_and(|(tag, _)| leaf_of(*tag).is_some()) {
            live.extend(entries.iter().map(|(tag, place)| self.place_of(*tag) == Some(*place)));
            return;
        }
        // Independent loads: the processor overlaps their misses.
        live.extend(entries.iter().map(|(tag, place)| {
            let volume = self.volumes.get((tag >> 48) as usize);
            let entry = volume.and_then(|v| v.entries.get((tag & ((1 << 48) - 1)) as usize));
            entry.is_some_and(|entry| entry.get() == *place)
        }));
    }

    fn is_live(&mut self, tag: u64, place: LogAddress) -> bool {
        self.place_of(tag) == Some(place)
    }

    fn moved(&mut self, moved: Move) -> bool {
        let Move { tag, from, to, checksum, sequence } = moved;
        if let Some((volume, leaf)) = leaf_of(tag) {
            return self.leaf_moved(volume, leaf, &moved);
        }
        match self.entry_mut(tag) {
            Some(entry) if entry.get() == from => *entry = entry.moved_to(to, checksum),
            _ => return false,
        }
        let (volume, iu) = ((tag >> 48) as u16, (tag & ((1 << 48) - 1)) as usize);
        let map = &mut self.volumes[usize::from(volume)];
        map.mark_dirty(iu);
        // A chunk that found another place keeps its sequence: leaves written since it was appended name the old place.
        let group = iu / LEAF_ENTRIES / GROUP_LEAVES;
        map.visited[group] = map.visited[group].min(sequence);
        if let Some(open) = &mut self.open_group
            && (open.volume, open.group) == (volume, group)
            && !mutant!("volume: moved chunk forgotten in an open group")
        {
            open.entered = open.entered.min(sequence);
        }
        true
    }

    fn renew(&mut self, words: [u64; 3], renewed: &mut Vec<[u64; 3]>) {
        let (kind, volume) = (words[0] & 0xff, (words[0] >> 8) as u16);
        if kind == NOTE_FIGURES {
            return renewed.push(figures_note([words[1], words[2]]));
        }
        let exists = self.volume(volume).exists;
        match kind {
            NOTE_CREATE if exists => renewed.push(note(NOTE_CREATE, volume, 0, self.volume(volume).size_ius)),
            NOTE_CREATE => {}
            // A deleted volume keeps its deletion only; one that came again keeps what is empty.
            NOTE_DELETE if !exists => renewed.push(note(NOTE_DELETE, volume, words[1], words[2])),
            NOTE_DELETE => self.holes(volume, 0, u64::MAX, renewed),
            NOTE_UNCORRECTABLE if exists => self.lost(volume, words[1], words[2], renewed),
            _ if exists => self.holes(volume, words[1], words[2], renewed),
            _ => {}
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: a note that was read and says more than a note can is not written again as it is. Method: notes of a deletion and of figures with
    /// bits that none has.
    #[test]
    fn notes_are_renewed_as_notes_are() {
        let mut maps = Maps::default();
        let mut renewed = Vec::new();
        maps.renew([NOTE_FIGURES | 1 << 50, 7, 8], &mut renewed);
        maps.renew([NOTE_DELETE | 3 << 8 | 1 << 60, 0, 0], &mut renewed);
        assert_eq!(renewed, [figures_note([7, 8]), note(NOTE_DELETE, 3, 0, 0)]);
    }

    /// Goal: tags have the form of the format, and what no tag has for its form is not taken for one. Method: bytes written by hand.
    #[test]
    fn tags_have_a_long_form() {
        let long = [2, 1, 0, 0, 0x11, 0x12, 0x13, 0x14, 0x15, 0, 0, 0];
        assert_eq!(long_tag(tag(0x0102, 0x15_1413_1211)), long);
        assert_eq!(short_tag(long, false), tag(0x0102, 0x15_1413_1211));
        let leaf = [2, 1, 0, 0, 0x11, 0x12, 0x13, 0x14, 0, 0, 0, 0];
        assert_eq!(long_tag(leaf_tag(0x0102, 0x1413_1211)), leaf);
        assert_eq!(short_tag(leaf, true), leaf_tag(0x0102, 0x1413_1211));
        let nobody = |tag| leaf_of(tag).is_some_and(|(volume, _)| volume == LEAF_VOLUME);
        for (at, value) in [(2, 1), (3, 1), (8, 1), (9, 1), (11, 1)] {
            let mut other = leaf;
            other[at] = value;
            assert!(nobody(short_tag(other, true)), "byte {at}");
        }
        assert!(nobody(short_tag([0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], false)));
    }

    fn resident_bytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
        let pages: u64 = status.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number");
        pages * 4096
    }

    /// Goal: a volume is made in one short step, whatever its size. Method: the map of 4 TiB, which is 8 GiB of entries, is made
    /// and looked at in a few places; next to no memory becomes resident.
    #[test]
    fn a_map_takes_memory_as_it_is_written() {
        let before = resident_bytes();
        let mut maps = Maps::default();
        maps.volume(1).exists = true;
        maps.volume(1).resize(1 << 30, 1);
        for iu in [0, 1 << 29, (1 << 30) - 1] {
            assert_eq!(maps.get(1, iu), LogAddress::NONE);
            assert_eq!(maps.set(1, iu, LogAddress::at(7).into()), LogAddress::NONE);
            assert_eq!(maps.get(1, iu), LogAddress::at(7));
        }
        // Other tests of this process take some, too.
        let taken = resident_bytes().saturating_sub(before);
        assert!(taken < 256 << 20, "{taken} bytes are resident");
        assert_eq!(maps.volume(1).used_ius, 3);
    }

    /// Goal: what is written where a leaf was seen to be empty is found again, by deallocations and by the cleaner that keeps what is empty.
    /// Method: an IU is emptied, its leaf is looked at, and the IU is written once more.
    #[test]
    fn what_comes_back_into_an_empty_leaf_is_seen() {
        let mut maps = Maps::default();
        maps.volume(0).exists = true;
        maps.volume(0).resize(3 * LEAF_ENTRIES as u64, 1);
        let (iu, count) = (LEAF_ENTRIES as u64 + 7, 3 * LEAF_ENTRIES as u64);
        let holes = |maps: &Maps| {
            let mut found = Vec::new();
            maps.holes(0, 0, u64::MAX, &mut found);
            found
        };
        for round in 0..3 {
            maps.set(0, iu, LogAddress::at(round).into());
            assert_eq!(maps.next_part(0, 0, count), Some((iu, 1)), "round {round}");
            let around = [note(NOTE_DEALLOCATE, 0, 0, iu), note(NOTE_DEALLOCATE, 0, iu + 1, count - iu - 1)];
            assert_eq!(holes(&maps), around, "round {round}");
            assert_eq!(maps.piece(0, 0, count, 1), (LEAF_ENTRIES as u64, 0), "round {round}");
            maps.set(0, iu, MapEntry::NONE);
            assert_eq!(maps.next_part(0, 0, count), None, "round {round}: seen to be empty");
            assert_eq!(holes(&maps), [note(NOTE_DEALLOCATE, 0, 0, count)], "round {round}");
            assert_eq!(maps.volume(0).written_parts(), [], "round {round}");
        }
    }

    /// Goal: no step of a deletion goes through more than a bounded number of entries, and each place is given back once. Method:
    /// a map with written parts of several lengths ends, and every step is counted.
    #[test]
    fn a_map_ends_in_bounded_steps() {
        let leaves = 3 * END_LEAVES;
        let mut maps = Maps::default();
        maps.volume(3).exists = true;
        maps.volume(3).resize((leaves * LEAF_ENTRIES - 5) as u64, 1);
        let mut expected = std::collections::BTreeSet::new();
        let ranges = [0..1, 2 * LEAF_ENTRIES..9 * LEAF_ENTRIES, 5 << 20..(5 << 20) + 3 * END_ENTRIES];
        for (place, iu) in (0..).map(LogAddress::at).zip(ranges.into_iter().flatten()) {
            maps.set(3, iu as u64, place.into());
            expected.insert(place);
        }
        // One leaf is on flash and not dirty, one was lost.
        maps.volume(3).leaves[5] = LogAddress::at(1 << 39);
        expected.insert(LogAddress::at(1 << 39));
        maps.volume(3).dirty[0] &= !(1 << 5);
        maps.set(3, (leaves * LEAF_ENTRIES - 6) as u64, LogAddress::LOST.into());
        maps.delete(3);
        let mut steps = 0;
        while maps.has_ending() {
            let mut given_back = 0;
            maps.end_step(|place| {
                given_back += 1;
                assert!(expected.remove(&place), "{place:?} is given back twice, or was never there");
            });
            assert!(given_back <= END_ENTRIES + END_ENTRIES / LEAF_ENTRIES, "{given_back} in one step");
            steps += 1;
        }
        assert_eq!(expected.len(), 0, "all places are given back");
        assert!(steps >= 4, "{steps} steps");
        assert_eq!(maps.volume(3).entries.capacity(), 0);
    }
}
