use crate::leaf;
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
/// Entries of a leaf of the format of before.
const OLD_LEAF_ENTRIES: usize = IU_SIZE_BYTES / 4;

/// How a map is cut into leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LeafKind {
    /// 1024 positions.
    #[default]
    Old,
    /// 504 entries, and whose they are.
    New,
}

impl LeafKind {
    /// Entries of a leaf: it fills one IU.
    #[inline]
    pub const fn entries(self) -> usize {
        match self {
            LeafKind::Old => OLD_LEAF_ENTRIES,
            LeafKind::New => leaf::LEAF_ENTRIES,
        }
    }

    /// The leaf of an IU. Each division is by a constant.
    #[inline]
    pub fn leaf_of(self, iu: usize) -> usize {
        match self {
            LeafKind::Old => iu / OLD_LEAF_ENTRIES,
            LeafKind::New => iu / leaf::LEAF_ENTRIES,
        }
    }

    /// Leaves of so many IUs.
    pub fn leaves_of(self, ius: usize) -> usize {
        ius.div_ceil(self.entries())
    }

    /// IUs of a leaf, the last ones of which may lie behind the end of the volume.
    pub fn ius_of(self, leaf: usize) -> Range<usize> {
        leaf * self.entries()..(leaf + 1) * self.entries()
    }

    /// Leaves in which some of these IUs are.
    pub fn leaves_with(self, ius: Range<usize>) -> Range<usize> {
        self.leaf_of(ius.start)..self.leaves_of(ius.end)
    }
}

/// Leaves of a group: the bits of a word. A group is what the writer of leaves goes through in one step.
pub(crate) const GROUP_LEAVES: usize = 64;
/// Stands in tags where data has its volume.
pub(crate) const LEAF_VOLUME: u16 = u16::MAX;
/// As that one, of a leaf of 504 entries.
const NEW_LEAF_VOLUME: u16 = u16::MAX - 1;
/// Stands for the level of a leaf of the format of before in tags of version 3: no leaf has it.
const OLD_LEVEL: u64 = 15;
/// Where the level stands in a number.
const LEVEL_SHIFT: u32 = 36;

pub(crate) fn tag(volume: u16, iu: u64) -> u64 {
    u64::from(volume) << 48 | iu
}
/// Which leaf it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeafId {
    pub kind: LeafKind,
    pub volume: u16,
    pub leaf: usize,
}

impl LeafId {
    /// Its tag. Heads of version 2 know leaves of one kind.
    pub fn tag(self) -> u64 {
        let kind = match self.kind {
            LeafKind::Old => LEAF_VOLUME,
            LeafKind::New => NEW_LEAF_VOLUME,
        };
        u64::from(kind) << 48 | u64::from(self.volume) << 32 | self.leaf as u64
    }

    /// The leaf of a tag, if it is a leaf's.
    pub fn of(tag: u64) -> Option<LeafId> {
        let kind = match (tag >> 48) as u16 {
            LEAF_VOLUME => LeafKind::Old,
            NEW_LEAF_VOLUME => LeafKind::New,
            _ => return None,
        };
        Some(LeafId { kind, volume: (tag >> 32) as u16, leaf: (tag & 0xffff_ffff) as usize })
    }
}

/// Whether no volume can have this number: it stands in tags of leaves.
pub(crate) fn is_of_leaves(volume: u16) -> bool {
    volume >= NEW_LEAF_VOLUME
}
/// Tags in heads of version 3: number of the volume (4), IU within it, or a leaf: 4 bits of level above 36 of its number (5), and the newest
/// snapshot of the volume (3): there is none. A leaf of 1024 positions, which the cleaner moved, has level 15.
pub(crate) const TAGS: TagForm = TagForm { long: long_tag, short: short_tag };

fn long_tag(tag: u64) -> [u8; 12] {
    let (volume, number) = match LeafId::of(tag) {
        Some(LeafId { kind: LeafKind::Old, volume, leaf }) => {
            (volume, OLD_LEVEL << LEVEL_SHIFT | leaf as u64)
        }
        Some(LeafId { kind: LeafKind::New, volume, leaf }) => (volume, leaf as u64),
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
    let volume = u16::try_from(volume).ok().filter(|volume| birth == 0 && !is_of_leaves(*volume));
    let Some(volume) = volume else { return UNKNOWN_TAG };
    if !is_leaf {
        return tag(volume, number);
    }
    let kind = match number >> LEVEL_SHIFT {
        0 => LeafKind::New,
        OLD_LEVEL => LeafKind::Old,
        _ => return UNKNOWN_TAG,
    };
    let leaf = number & ((1 << LEVEL_SHIFT) - 1);
    u32::try_from(leaf).map_or(UNKNOWN_TAG, |leaf| LeafId { kind, volume, leaf: leaf as usize }.tag())
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
    u16::try_from(words[0] >> 8).ok().filter(|volume| !is_of_leaves(*volume))
}

/// Entries that a step of the end of a volume lets go, at most: less than a millisecond, also where none is in a cache.
const END_ENTRIES: usize = 16 * 1024;
/// Leaves without entries that such a step passes over, at most.
const END_LEAVES: usize = 16 * 1024;
/// IUs that one note of a deallocation tells of, at most: the cleaner looks at all of them when the note is to be kept.
pub(crate) const NOTE_IUS_MAX: usize = 4 * 1024;
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
    kind: LeafKind,
    /// Where each leaf was last written, and what is known of its content; `NONE` if it has no entries, or never was.
    pub leaves: Vec<MapEntry>,
    /// Where leaves of the format of before lie that leaves of this one do not replace yet, by their numbers; empty if there is none.
    pub old: Vec<LogAddress>,
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
        let leaves = self.kind.leaves_of(size_ius as usize);
        grow(&mut self.entries, size_ius as usize);
        grow(&mut self.leaves, leaves);
        self.dirty.resize(leaves.div_ceil(GROUP_LEAVES), 0);
        // The last leaf may have become longer; it is as empty as it was.
        self.empty.resize(leaves.div_ceil(GROUP_LEAVES), 0);
        self.visited.resize(leaves.div_ceil(GROUP_LEAVES), sequence);
        self.mark_unreplaced();
    }
    /// Whether a leaf may have entries: it does on flash, or it changed since, and nobody has seen that it has none. Others are all
    /// `NONE`, and nobody needs to look.
    fn may_have_entries(&self, leaf: usize) -> bool {
        let has = |bits: &[u64]| bits[leaf / GROUP_LEAVES] >> (leaf % GROUP_LEAVES) & 1 != 0;
        (self.leaves[leaf] != MapEntry::NONE || has(&self.dirty)) && !has(&self.empty)
    }
    /// The first leaf from `leaf` on, before `end`, that may have entries.
    fn next_with_entries(&self, leaf: usize, end: usize) -> Option<usize> {
        (leaf..end).find(|leaf| self.may_have_entries(*leaf))
    }
    /// Of a range, the first part that has entries: it begins and ends with one and is as long as one note may tell. The end of
    /// the range is the caller's to see to.
    fn next_part(&mut self, range: Range<usize>) -> Option<Range<usize>> {
        let kind = self.kind;
        let leaves = kind.leaves_of(range.end);
        let mut from = range.start;
        let first = loop {
            let leaf = self.next_with_entries(kind.leaf_of(from), leaves)?;
            let Range { start, end } = kind.ius_of(leaf);
            let leaf_end = self.entries.len().min(end);
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
        let last_leaf = kind.leaves_of(range.end.min(first + NOTE_IUS_MAX));
        let gap = (kind.leaf_of(first)..last_leaf).find(|leaf| !self.may_have_entries(*leaf));
        let end =
            range.end.min(first + NOTE_IUS_MAX).min(gap.map_or(usize::MAX, |leaf| kind.ius_of(leaf).start));
        let last = self.entries[first..end].iter().rposition(|entry| *entry != MapEntry::NONE);
        Some(first..first + last.expect("the first one is there") + 1)
    }
    /// Where entries may be, as ranges of entries.
    pub fn written_parts(&self) -> Vec<Range<usize>> {
        let mut parts: Vec<Range<usize>> = Vec::new();
        for leaf in (0..self.leaves.len()).filter(|leaf| self.may_have_entries(*leaf)) {
            let Range { start: from, end } = self.kind.ius_of(leaf);
            let end = self.entries.len().min(end);
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
        while leaves > 0
            && let Some(place) = self.old.pop()
        {
            leaves -= 1;
            if place.is_place() {
                invalidate(place);
            }
        }
        while !self.entries.is_empty() && entries > 0 && leaves > 0 {
            let before = self.entries.len();
            let leaf = self.kind.leaf_of(before - 1);
            let from = self.kind.ius_of(leaf).start;
            if self.may_have_entries(leaf) {
                let places = self.entries[from..].iter().map(|entry| entry.get());
                places.filter(|place| place.is_place()).for_each(&mut invalidate);
                entries = entries.saturating_sub(self.kind.entries());
            }
            let place = std::mem::replace(&mut self.leaves[leaf], MapEntry::NONE).get();
            if place.is_place() {
                invalidate(place);
            }
            leaves -= 1;
            self.entries.truncate(from);
            if from.div_ceil(END_PIECE_ENTRIES) < before.div_ceil(END_PIECE_ENTRIES) {
                self.entries.shrink_to_fit();
            }
        }
        self.entries.is_empty()
    }
    #[inline]
    pub fn mark_dirty(&mut self, iu: usize) {
        let leaf = self.kind.leaf_of(iu);
        self.dirty[leaf / GROUP_LEAVES] |= 1 << (leaf % GROUP_LEAVES);
        self.empty[leaf / GROUP_LEAVES] &= !(1 << (leaf % GROUP_LEAVES));
    }
    /// Makes reads of a range fail.
    pub fn lose(&mut self, range: Range<usize>) {
        self.entries[range.clone()].fill(LogAddress::LOST.into());
        for leaf in self.kind.leaves_with(range.clone()) {
            self.mark_dirty(self.kind.ius_of(leaf).start.max(range.start));
        }
    }
    /// Empties a range, as far as it has entries.
    pub fn clear(&mut self, range: Range<usize>) {
        for leaf in self.kind.leaves_with(range.clone()) {
            if self.may_have_entries(leaf) {
                let Range { start: from, end } = self.kind.ius_of(leaf);
                self.entries[from.max(range.start)..end.min(range.end)].fill(MapEntry::NONE);
                self.mark_dirty(from);
            }
        }
    }
    /// Entries of a leaf.
    pub fn leaf(&self, leaf: usize) -> &[MapEntry] {
        let Range { start, end } = self.kind.ius_of(leaf);
        &self.entries[start..self.entries.len().min(end)]
    }
    /// How it is cut into leaves.
    #[inline]
    pub fn kind(&self) -> LeafKind {
        self.kind
    }
    /// IUs of a leaf of a kind, as far as there are some.
    pub fn ius_of(&self, kind: LeafKind, leaf: usize) -> Range<usize> {
        let Range { start, end } = kind.ius_of(leaf);
        start.min(self.entries.len())..end.min(self.entries.len())
    }
    /// Whether a leaf of the format of before may be where some entry of this leaf is still to be read.
    pub fn has_old(&self, leaf: usize) -> bool {
        !self.old.is_empty()
            && LeafKind::Old
                .leaves_with(self.ius_of(self.kind, leaf))
                .any(|old| self.old.get(old).is_some_and(|place| place.is_place()))
    }
    /// Whether all that a leaf of the format of before says stands in leaves of this one.
    pub fn is_replaced(&self, old: usize) -> bool {
        let ius = self.ius_of(LeafKind::Old, old);
        ius.is_empty() || self.kind.leaves_with(ius).all(|leaf| self.leaves[leaf] != MapEntry::NONE)
    }
    /// All leaves have the places that a restart found for them. Of those of the format of before, ones that are not needed have none any more,
    /// and the others are to be written.
    pub fn forget_replaced(&mut self) {
        for old in 0..self.old.len() {
            if self.old[old].is_place() && self.is_replaced(old) {
                self.old[old] = LogAddress::NONE;
            }
        }
        if !self.old.iter().any(|place| place.is_place()) {
            self.old = Vec::new();
        }
        self.mark_unreplaced();
    }
    /// A leaf was written: leaves of the format of before that it makes superfluous are handed to `invalidate`.
    pub fn replace_old(&mut self, leaf: usize, mut invalidate: impl FnMut(LogAddress)) {
        if !self.has_old(leaf) {
            return;
        }
        for old in LeafKind::Old.leaves_with(self.ius_of(self.kind, leaf)) {
            if self.old[old].is_place() && self.is_replaced(old) {
                invalidate(std::mem::replace(&mut self.old[old], LogAddress::NONE));
            }
        }
        if !self.old.iter().any(|place| place.is_place()) {
            self.old = Vec::new();
        }
    }
    /// From now on the map is cut into leaves of the new format; those that there are stay until new ones replace them.
    fn recut(&mut self, sequence: u64) {
        assert!(self.old.is_empty(), "I-M22: a map is cut anew once");
        self.old = std::mem::take(&mut self.leaves).into_iter().map(MapEntry::get).collect();
        self.kind = LeafKind::New;
        (self.dirty, self.empty, self.visited) = Default::default();
        self.resize(self.size_ius, sequence);
    }
    /// What only leaves of the format of before say is to be written.
    fn mark_unreplaced(&mut self) {
        if self.old.is_empty() {
            return;
        }
        for leaf in 0..self.leaves.len() {
            if self.leaves[leaf] == MapEntry::NONE && self.has_old(leaf) {
                self.mark_dirty(self.kind.ius_of(leaf).start);
            }
        }
    }
    /// The place of a leaf of either kind.
    fn leaf_place(&self, kind: LeafKind, leaf: usize) -> Option<LogAddress> {
        match kind == self.kind {
            true => self.leaves.get(leaf).map(|entry| entry.get()),
            false => self.old.get(leaf).copied(),
        }
    }
    /// A leaf of either kind was found, or got another place.
    pub fn place_leaf(&mut self, kind: LeafKind, leaf: usize, entry: MapEntry) {
        if kind == self.kind {
            if let Some(place) = self.leaves.get_mut(leaf) {
                *place = entry;
            }
        } else if kind == LeafKind::Old && leaf < LeafKind::Old.leaves_of(self.entries.len()) {
            if self.old.len() <= leaf {
                self.old.resize(leaf + 1, LogAddress::NONE);
            }
            self.old[leaf] = entry.get();
        }
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
    /// How they are cut into leaves.
    pub kind: LeafKind,
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
        let map = &mut self.volumes[usize::from(volume)];
        if map.entries.is_empty() {
            map.kind = self.kind;
        }
        map
    }
    /// From now on all of them are cut into leaves of the new format, to be written before an anchor that begins behind `sequence`.
    pub fn recut(&mut self, sequence: u64) {
        self.kind = LeafKind::New;
        self.volumes.iter_mut().filter(|map| map.exists).for_each(|map| map.recut(sequence));
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
            let leaf = map.kind.leaf_of(from);
            let next = end.min(map.kind.ius_of(leaf).end);
            if map.may_have_entries(leaf) {
                looked_at += (next - from) as u64;
            }
            from = next;
        }
        // What lies in the leaf at the end belongs to the next piece, if there is anything.
        let last = map.kind.leaf_of(end - 1);
        if !map.may_have_entries(last) || end == map.kind.ius_of(last).end {
            let leaf = last + 1;
            let leaves = map.kind.leaves_of(range_end).min(leaf + PIECE_LEAVES);
            let with_entries = map.next_with_entries(leaf, leaves).unwrap_or(leaves.max(leaf));
            end = range_end.min(map.kind.ius_of(with_entries).start).max(end);
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
            let leaves = volume.leaves.iter().map(|leaf| leaf.get()).chain(volume.old.iter().copied());
            leaves.filter(|leaf| leaf.is_place()).for_each(&mut count);
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
            let leaf = map.kind.leaf_of(iu as usize);
            if !map.may_have_entries(leaf) {
                // Memory that nobody touched stays so.
                start.get_or_insert(iu);
                iu = map.kind.ius_of(leaf).end as u64;
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
        match LeafId::of(tag) {
            Some(LeafId { kind, volume, leaf }) => {
                self.volumes.get(usize::from(volume))?.leaf_place(kind, leaf)
            }
            None => {
                let entries = &self.volumes.get((tag >> 48) as usize)?.entries;
                entries.get((tag & ((1 << 48) - 1)) as usize).map(|entry| entry.get())
            }
        }
    }
    fn leaf_moved(&mut self, LeafId { kind, volume, leaf }: LeafId, moved: &Move) -> bool {
        let Some(map) = self.volumes.get_mut(usize::from(volume)) else { return false };
        if map.leaf_place(kind, leaf) != Some(moved.from) {
            return false;
        }
        let entry = if kind == map.kind { map.leaves[leaf] } else { moved.from.into() };
        map.place_leaf(kind, leaf, entry.moved_to(moved.to, moved.checksum));
        true
    }
}

impl Owner for Maps {
    fn live(&mut self, entries: &[(u64, LogAddress)], live: &mut Vec<bool>) {
        live.clear();
        if entries.first().is_some_and(|(tag, _)| LeafId::of(*tag).is_some()) {
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
        if let Some(leaf) = LeafId::of(tag) {
            return self.leaf_moved(leaf, &moved);
        }
        match self.entry_mut(tag) {
            Some(entry) if entry.get() == from => *entry = entry.moved_to(to, checksum),
            _ => return false,
        }
        let (volume, iu) = ((tag >> 48) as u16, (tag & ((1 << 48) - 1)) as usize);
        let map = &mut self.volumes[usize::from(volume)];
        map.mark_dirty(iu);
        // A chunk that found another place keeps its sequence: leaves written since it was appended name the old place.
        let group = map.kind.leaf_of(iu) / GROUP_LEAVES;
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

    const LEAF_ENTRIES: usize = LeafKind::Old.entries();

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
        let new = LeafId { kind: LeafKind::New, volume: 0x0102, leaf: 0x1413_1211 };
        let old = LeafId { kind: LeafKind::Old, ..new };
        for (id, level) in [(new, 0), (old, 0xf0)] {
            let mut leaf = leaf;
            leaf[8] = level;
            assert_eq!(long_tag(id.tag()), leaf, "{id:?}");
            assert_eq!(short_tag(leaf, true), id.tag(), "{id:?}");
            assert_eq!(LeafId::of(id.tag()), Some(id));
        }
        assert_eq!(old.tag(), 0xffff_0102_1413_1211, "as heads of version 2 have it");
        let nobody = |tag| LeafId::of(tag).is_some_and(|id| is_of_leaves(id.volume));
        for (at, value) in [(2, 1), (3, 1), (8, 1), (8, 0xe0), (9, 1), (11, 1)] {
            let mut other = leaf;
            other[at] = value;
            assert!(nobody(short_tag(other, true)), "byte {at}");
        }
        for volume in [0xff, 0xfe] {
            let tag = [volume, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            assert!(nobody(short_tag(tag, false)) && nobody(short_tag(tag, true)));
        }
    }

    /// Goal: a map of either kind is cut into leaves without a gap. Method: all IUs of some leaves.
    #[test]
    fn each_iu_has_its_leaf() {
        for kind in [LeafKind::Old, LeafKind::New] {
            for iu in 0..5 * kind.entries() {
                assert!(kind.ius_of(kind.leaf_of(iu)).contains(&iu), "{kind:?} {iu}");
            }
            let (two, three) = (2 * kind.entries(), 3 * kind.entries());
            assert_eq!([two - 1, two, two + 1].map(|ius| kind.leaves_of(ius)), [2, 2, 3]);
            assert_eq!(kind.leaves_with(two - 1..three), 1..3);
            assert_eq!(kind.leaves_with(two..three + 1), 2..4);
        }
    }

    /// Goal: a leaf of the format of before goes when leaves of the new one have all of it, and not sooner. Method: a map with two of them, the second
    /// one shorter, and new ones written in several orders.
    #[test]
    fn old_leaves_go_when_new_ones_have_all_of_them() {
        // IUs 0 to 1023 are in leaves 0 to 2, the others in leaves 2 and 3.
        for (order, gone) in [
            ([0, 1, 2, 3], [None, None, Some(0), Some(1)]),
            ([3, 2, 1, 0], [None, Some(1), None, Some(0)]),
            ([0, 3, 1, 2], [None, None, None, Some(2)]),
        ] {
            let mut maps = Maps::default();
            maps.volume(0).exists = true;
            maps.volume(0).resize(1530, 1);
            let places = [7, 9].map(LogAddress::at);
            maps.volume(0).leaves = places.map(MapEntry::from).to_vec();
            maps.recut(5);
            let map = maps.volume(0);
            assert_eq!((map.kind(), &map.old[..]), (LeafKind::New, &places[..]));
            assert_eq!((&map.dirty[..], &map.visited[..]), (&[0b1111][..], &[5][..]));
            for (leaf, gone) in order.into_iter().zip(gone) {
                map.leaves[leaf] = LogAddress::at(100).into();
                let mut invalidated = Vec::new();
                map.replace_old(leaf, |place| invalidated.push(place));
                match gone {
                    None => assert_eq!(invalidated, []),
                    Some(2) => assert_eq!(invalidated, places),
                    Some(which) => assert_eq!(invalidated, [places[which]], "{order:?}"),
                }
            }
            assert!(map.old.is_empty() && !map.has_old(0));
        }
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
        maps.volume(3).leaves[5] = LogAddress::at(1 << 39).into();
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
