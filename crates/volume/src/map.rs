use diecut_log::{LogAddress, Owner};
use diecut_units::IU_SIZE_BYTES;

/// Notes of a store: kind in the low byte of the first word, volume above it; first IU; number of IUs.
pub(crate) const NOTE_DEALLOCATE: u64 = 1;
pub(crate) const NOTE_CREATE: u64 = 2;
pub(crate) const NOTE_DELETE: u64 = 3;
const NONE: u32 = u32::MAX;
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
pub(crate) fn note(kind: u64, volume: u16, first: u64, count: u64) -> [u64; 3] {
    [kind | u64::from(volume) << 8, first, count]
}

/// The page map of one volume.
#[derive(Default)]
pub(crate) struct VolumeMap {
    pub exists: bool,
    pub size_ius: u64,
    pub used_ius: u64,
    pub entries: Vec<u32>,
    /// Where each leaf was last written; `NONE` if it has no entries, or never was.
    pub leaves: Vec<u32>,
    /// One bit for each leaf that changed since it was written, one word for each group.
    pub dirty: Vec<u64>,
    /// For each group: every change before this sequence is in its leaves.
    pub visited: Vec<u64>,
}

impl VolumeMap {
    /// Gives the volume its size; what is new is empty, and was so at `sequence`.
    pub fn resize(&mut self, size_ius: u64, sequence: u64) {
        self.size_ius = size_ius;
        self.entries.reserve_exact((size_ius as usize).saturating_sub(self.entries.len()));
        diecut_units::prefer_huge_pages(&mut self.entries);
        self.entries.resize(size_ius as usize, NONE);
        let leaves = self.entries.len().div_ceil(LEAF_ENTRIES);
        self.leaves.resize(leaves, NONE);
        self.dirty.resize(leaves.div_ceil(GROUP_LEAVES), 0);
        self.visited.resize(leaves.div_ceil(GROUP_LEAVES), sequence);
    }
    #[inline]
    pub fn mark_dirty(&mut self, iu: usize) {
        let leaf = iu / LEAF_ENTRIES;
        self.dirty[leaf / GROUP_LEAVES] |= 1 << (leaf % GROUP_LEAVES);
    }
    /// Entries of a leaf.
    pub fn leaf(&self, leaf: usize) -> &[u32] {
        let end = self.entries.len().min((leaf + 1) * LEAF_ENTRIES);
        &self.entries[leaf * LEAF_ENTRIES..end]
    }
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
        LogAddress(self.volumes[usize::from(volume)].entries[iu as usize])
    }
    #[inline]
    pub fn set(&mut self, volume: u16, iu: u64, address: LogAddress) -> LogAddress {
        let volume = &mut self.volumes[usize::from(volume)];
        let old = std::mem::replace(&mut volume.entries[iu as usize], address.0);
        volume.mark_dirty(iu as usize);
        volume.used_ius += u64::from(old == NONE);
        volume.used_ius -= u64::from(address.0 == NONE);
        LogAddress(old)
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
    /// Every change before this sequence is in the leaves; `otherwise` if there are none.
    pub fn visited_before(&self, otherwise: u64) -> u64 {
        let visited = self.volumes.iter().filter(|v| v.exists).flat_map(|v| &v.visited);
        visited.copied().min().unwrap_or(otherwise)
    }
    /// Of the range, what reads as zeros, as runs.
    fn holes(&self, volume: u16, first: u64, count: u64, found: &mut Vec<[u64; 3]>) {
        let entries = &self.volumes[usize::from(volume)].entries;
        let end = first.saturating_add(count).min(entries.len() as u64);
        let mut start = None;
        for iu in first..end {
            if entries[iu as usize] == NONE {
                start.get_or_insert(iu);
            } else if let Some(start) = start.take() {
                found.push(note(NOTE_DEALLOCATE, volume, start, iu - start));
            }
        }
        if let Some(start) = start {
            found.push(note(NOTE_DEALLOCATE, volume, start, end - start));
        }
    }
    fn entry(&mut self, tag: u64) -> Option<&mut u32> {
        match leaf_of(tag) {
            Some((volume, leaf)) => self.volumes.get_mut(usize::from(volume))?.leaves.get_mut(leaf),
            None => {
                let iu = (tag & ((1 << 48) - 1)) as usize;
                self.volumes.get_mut((tag >> 48) as usize)?.entries.get_mut(iu)
            }
        }
    }
}

impl Owner for Maps {
    fn live(&mut self, entries: &[(u64, LogAddress)], live: &mut Vec<bool>) {
        live.clear();
        if entries.first().is_some_and(|(tag, _)| leaf_of(*tag).is_some()) {
            live.extend(entries.iter().map(|(tag, place)| self.entry(*tag).is_some_and(|e| *e == place.0)));
            return;
        }
        // Independent loads: the processor overlaps their misses.
        live.extend(entries.iter().map(|(tag, place)| {
            let volume = self.volumes.get((tag >> 48) as usize);
            volume.and_then(|v| v.entries.get((tag & ((1 << 48) - 1)) as usize)) == Some(&place.0)
        }));
    }

    fn is_live(&mut self, tag: u64, place: LogAddress) -> bool {
        self.entry(tag).is_some_and(|entry| *entry == place.0)
    }

    fn moved(&mut self, tag: u64, old: LogAddress, new: LogAddress, sequence: u64) -> bool {
        match self.entry(tag) {
            Some(entry) if *entry == old.0 => *entry = new.0,
            _ => return false,
        }
        if leaf_of(tag).is_none() {
            let (volume, iu) = ((tag >> 48) as u16, (tag & ((1 << 48) - 1)) as usize);
            let map = &mut self.volumes[usize::from(volume)];
            map.mark_dirty(iu);
            // A chunk that found another place keeps its sequence: leaves written since it was appended name the old place.
            let group = iu / LEAF_ENTRIES / GROUP_LEAVES;
            map.visited[group] = map.visited[group].min(sequence);
            if let Some(open) = &mut self.open_group
                && (open.volume, open.group) == (volume, group)
            {
                open.entered = open.entered.min(sequence);
            }
        }
        true
    }

    fn renew(&mut self, words: [u64; 3], renewed: &mut Vec<[u64; 3]>) {
        let (kind, volume) = (words[0] & 0xff, (words[0] >> 8) as u16);
        let exists = self.volume(volume).exists;
        match kind {
            NOTE_CREATE if exists => renewed.push(note(NOTE_CREATE, volume, 0, self.volume(volume).size_ius)),
            NOTE_CREATE => {}
            // A deleted volume keeps its deletion only; one that came again keeps what is empty.
            NOTE_DELETE if !exists => renewed.push(words),
            NOTE_DELETE => self.holes(volume, 0, u64::MAX, renewed),
            _ if exists => self.holes(volume, words[1], words[2], renewed),
            _ => {}
        }
    }
}
