use diecut_log::{LogAddress, Owner};

/// Notes of a store: kind in the low byte of the first word, volume above it; first IU; number of IUs.
pub(crate) const NOTE_DEALLOCATE: u64 = 1;
pub(crate) const NOTE_CREATE: u64 = 2;
pub(crate) const NOTE_DELETE: u64 = 3;
const NONE: u32 = u32::MAX;

pub(crate) fn tag(volume: u16, iu: u64) -> u64 {
    u64::from(volume) << 48 | iu
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
}

/// All maps of a store.
#[derive(Default)]
pub(crate) struct Maps {
    pub volumes: Vec<VolumeMap>,
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
        volume.used_ius += u64::from(old == NONE);
        volume.used_ius -= u64::from(address.0 == NONE);
        LogAddress(old)
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
}

impl Owner for Maps {
    fn live(&mut self, entries: &[(u64, LogAddress)], live: &mut Vec<bool>) {
        live.clear();
        // Independent loads: the processor overlaps their misses.
        live.extend(entries.iter().map(|(tag, place)| {
            let volume = self.volumes.get((tag >> 48) as usize);
            volume.and_then(|v| v.entries.get((tag & ((1 << 48) - 1)) as usize)) == Some(&place.0)
        }));
    }

    fn is_live(&mut self, tag: u64, place: LogAddress) -> bool {
        let volume = self.volumes.get((tag >> 48) as usize);
        volume.and_then(|v| v.entries.get((tag & ((1 << 48) - 1)) as usize)) == Some(&place.0)
    }

    fn moved(&mut self, tag: u64, old: LogAddress, new: LogAddress) -> bool {
        let volume = self.volumes.get_mut((tag >> 48) as usize);
        match volume.and_then(|v| v.entries.get_mut((tag & ((1 << 48) - 1)) as usize)) {
            Some(entry) if *entry == old.0 => {
                *entry = new.0;
                true
            }
            _ => false,
        }
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
