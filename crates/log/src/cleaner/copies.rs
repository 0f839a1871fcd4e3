//! Copies on their way: wanted, being read, read and waiting for a place.

use crate::segments::{Run, Segments};
use crate::{Check, LogAddress};
use diecut_units::{BufferMut, Slab, checksum};
use std::collections::VecDeque;

/// An IU that the cleaner copies.
pub(super) struct CopyEntry {
    pub tag: u64,
    pub place: LogAddress,
    /// What the head says of its content.
    pub told: Check,
    pub checksum: u32,
}

/// IUs of one strip that the cleaner reads at once. Between those it wants are dead ones: a page is sensed as a
/// whole, and a drive does many small reads no faster than a large one, so what is not wanted costs only its transfer.
pub(super) struct CopyRead {
    pub run: Run,
    pub entries: Vec<CopyEntry>,
    /// Entries in front that were placed, or are dead.
    pub placed: u32,
    /// It was read before in vain.
    pub is_second_try: bool,
}

impl CopyRead {
    /// Of one IU.
    pub fn single(entry: CopyEntry, is_second_try: bool) -> CopyRead {
        let run = Run { first: entry.place, count: 1 };
        CopyRead { run, entries: vec![entry], placed: 0, is_second_try }
    }

    /// The content of an entry, in what was read.
    pub fn content<'a>(&self, entry: &CopyEntry, data: &'a [u8]) -> &'a [u8] {
        let size = data.len() / self.run.count as usize;
        let at = entry.place.distance_from(self.run.first) as usize * size;
        &data[at..at + size]
    }

    /// Checks what was read, and keeps the checksums for the copies.
    pub fn check(&mut self, data: &[u8], oob: Option<&[u8]>, segments: &Segments) -> bool {
        let end = self.run.first.plus(self.run.count);
        let within = |entry: &CopyEntry| (self.run.first..end).contains(&entry.place);
        debug_assert!(self.entries.iter().all(within), "I-L34: what is copied was read");
        if oob.is_some() != segments.layout.shape.has_oob() {
            return false;
        }
        let mut pages = oob.map(|oob| segments.page_check(self.run.first, oob));
        for index in 0..self.entries.len() {
            let entry = &self.entries[index];
            let sum = checksum(self.content(entry, data));
            let offset = segments.layout.offset_of(entry.place);
            let is_written = pages.as_mut().is_none_or(|pages| pages.is_as_written(offset, sum));
            if !is_written || !entry.told.fits(sum) {
                return false;
            }
            self.entries[index].checksum = sum;
        }
        true
    }
}

/// Pages without anything that is wanted between two of one read, on media whose pages are small and have no OOB areas: 12 KiB take a drive no longer than one
/// more command, and the processor less. More cost bandwidth (docs/performance.md).
const PLAIN_GAP_PAGES: u32 = 3;

/// Collects entries of one chunk to reads.
pub(super) struct Collector {
    run: Option<CopyRead>,
    /// Strip and page of the run's last IU.
    last: (u32, u32),
}

/// Copies of all victims.
#[derive(Default)]
pub(super) struct Copies {
    /// Wanted or being read, by number.
    reads: Slab<CopyRead>,
    /// Those of them that are not yet asked for.
    unread: VecDeque<u32>,
    /// Read, and to be placed in this order.
    pub ready: VecDeque<(CopyRead, BufferMut)>,
    spare_entries: Vec<Vec<CopyEntry>>,
}

impl Copies {
    /// Whether nothing is wanted, or waits for a place.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.ready.is_empty()
    }

    /// Wants a read.
    pub fn want(&mut self, read: CopyRead) {
        self.unread.push_back(self.reads.insert(read));
    }

    /// The next one that is not yet asked for, with its number.
    pub fn next_unread(&mut self) -> Option<(u32, Run)> {
        let slot = self.unread.pop_front()?;
        Some((slot, self.reads.get(slot).expect("I-L22: what is unread was wanted").run))
    }

    /// A read ended.
    pub fn take(&mut self, slot: u32) -> CopyRead {
        self.reads.remove(slot)
    }

    /// What was read is placed.
    pub fn recycle(&mut self, mut read: CopyRead) {
        read.entries.clear();
        self.spare_entries.push(read.entries);
    }

    /// Begins to collect the entries of a chunk.
    pub fn collect(&self) -> Collector {
        Collector { run: None, last: (0, 0) }
    }

    /// The next entry of a chunk; gives the read before, if it begins another one.
    pub fn add(
        &mut self,
        collector: &mut Collector,
        entry: CopyEntry,
        segments: &Segments,
    ) -> Option<CopyRead> {
        let place = entry.place;
        let offset = segments.layout.offset_of(place);
        let here = (segments.layout.strip(offset), segments.layout.page(offset).0);
        // In one strip, and where pages are those of NAND without one of only dead IUs between them: each read costs work of the processor.
        let gap = if segments.layout.shape.has_oob() { 0 } else { PLAIN_GAP_PAGES };
        let joins = here.0 == collector.last.0 && here.1 - collector.last.1 <= 1 + gap;
        collector.last = here;
        match &mut collector.run {
            Some(read) if joins => {
                read.run.count = place.distance_from(read.run.first) + 1;
                read.entries.push(entry);
                None
            }
            _ => {
                let mut entries = self.spare_entries.pop().unwrap_or_default();
                entries.push(entry);
                let run = Run { first: place, count: 1 };
                collector.run.replace(CopyRead { run, entries, placed: 0, is_second_try: false })
            }
        }
    }
}

impl Collector {
    /// The last read.
    pub fn end(self) -> Option<CopyRead> {
        self.run
    }
}
