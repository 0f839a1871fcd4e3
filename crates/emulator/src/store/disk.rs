//! Where a synced device's bytes lie: a file, or a model of one that keeps apart what no sync covers.
//!
//! What both promise is what a disk behind a file system does: bytes that a sync covers are durable; of what was written since,
//! the death of the machine leaves any subset, in any order. A sector of 512 bytes is written as a whole or not at all.

use super::room::{Allocator, Room};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

const PAGE_SIZE_BYTES: u64 = 4096;
const SECTOR_SIZE_BYTES: usize = 512;
const SECTORS_PER_PAGE: usize = PAGE_SIZE_BYTES as usize / SECTOR_SIZE_BYTES;

/// One change of a device's file, for tests that replay a part of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// Bytes were written.
    Write {
        /// Where.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// A part of the file became a hole.
    Hole {
        /// Which part.
        range: Range<u64>,
    },
    /// A sync ended well: it covers the changes in front of this number.
    Synced {
        /// Changes that are durable.
        covered: usize,
    },
}

impl FileChange {
    /// Brings a file, as it was before the first of these changes, to what the death of the machine right after the last of them leaves: what
    /// a sync covers, and of the rest the sectors that `is_kept` says.
    ///
    /// # Errors
    /// Of writing to the file.
    pub fn leave(changes: &[FileChange], file: &File, mut is_kept: impl FnMut() -> bool) -> io::Result<()> {
        let ended = changes.iter().filter_map(|change| match change {
            FileChange::Synced { covered } => Some(*covered),
            _ => None,
        });
        let covered = ended.max().unwrap_or(0);
        for (at, change) in changes.iter().enumerate() {
            let (offset, bytes) = match change {
                FileChange::Write { offset, bytes } => (*offset, bytes.clone()),
                FileChange::Hole { range } => (range.start, vec![0; (range.end - range.start) as usize]),
                FileChange::Synced { .. } => continue,
            };
            let mut done = 0;
            while done < bytes.len() {
                let start = offset + done as u64;
                let in_sector = (start % SECTOR_SIZE_BYTES as u64) as usize;
                let len = (bytes.len() - done).min(SECTOR_SIZE_BYTES - in_sector);
                if at < covered || is_kept() {
                    file.write_all_at(&bytes[done..done + len], start)?;
                }
                done += len;
            }
        }
        Ok(())
    }
}

/// What was done to a device's file, in order: for tests of what a cut at any moment leaves.
#[derive(Clone, Debug, Default)]
pub struct FileChanges(Arc<Mutex<Vec<FileChange>>>);

impl FileChanges {
    fn add(&self, change: FileChange) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(change);
    }

    /// How many there are by now.
    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// All of them.
    pub fn all(&self) -> Vec<FileChange> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A device's file for whoever syncs it, on a thread of its own.
#[derive(Clone, Debug)]
pub struct SyncFile {
    file: Arc<File>,
    changes: Option<FileChanges>,
}

impl SyncFile {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn notes_changes(&self) -> bool {
        self.changes.is_some()
    }

    pub(crate) fn shared_file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Makes everything durable that was written before the call, and waits for it (`fdatasync`).
    ///
    /// # Errors
    /// Whatever the file system says. The kernel may have dropped what was written then: a later success proves nothing.
    pub fn sync(&self) -> io::Result<()> {
        let covered = self.changes.as_ref().map(FileChanges::count);
        self.file.sync_data()?;
        if let (Some(changes), Some(covered)) = (&self.changes, covered) {
            changes.add(FileChange::Synced { covered });
        }
        Ok(())
    }
}

/// See the module.
pub(crate) enum Disk {
    File(FileDisk),
    Model(Box<ModelDisk>),
}

pub(crate) struct FileDisk {
    pub(crate) sync_file: SyncFile,
    pub(crate) allocator: Allocator,
}

impl Disk {
    pub(crate) fn over(file: File, allocator: Allocator, changes: Option<FileChanges>) -> Disk {
        Disk::File(FileDisk { sync_file: SyncFile { file: Arc::new(file), changes }, allocator })
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            Disk::File(disk) => {
                if let Some(changes) = &disk.sync_file.changes {
                    changes.add(FileChange::Write { offset, bytes: bytes.to_vec() });
                }
                disk.sync_file.file.write_all_at(bytes, offset)
            }
            Disk::Model(disk) => {
                disk.write(offset, bytes);
                Ok(())
            }
        }
    }

    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        match self {
            Disk::File(disk) => disk.sync_file.file.read_exact_at(bytes, offset),
            Disk::Model(disk) => {
                disk.read(offset, bytes);
                Ok(())
            }
        }
    }

    /// Syncs and waits; while nothing else is under way.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        match self {
            Disk::File(disk) => disk.sync_file.sync(),
            Disk::Model(disk) => {
                disk.begin_sync();
                disk.end_sync();
                Ok(())
            }
        }
    }

    /// A part becomes a hole; advice.
    pub(crate) fn give_back(&mut self, range: Range<u64>) {
        match self {
            Disk::File(disk) => {
                if let Some(changes) = &disk.sync_file.changes {
                    changes.add(FileChange::Hole { range: range.clone() });
                }
                disk.allocator.give_back(&disk.sync_file.file, range);
            }
            Disk::Model(disk) => disk.write(range.start, &vec![0; (range.end - range.start) as usize]),
        }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        match self {
            Disk::File(disk) => Room::of_file(&disk.sync_file.file).map_or(0, |room| room.free_bytes),
            Disk::Model(_) => u64::MAX,
        }
    }
}

/// A page that was written since the last sync, as the page cache of a kernel has it.
struct Dirty {
    bytes: Box<[u8; PAGE_SIZE_BYTES as usize]>,
    /// Its sectors that were written.
    sectors: u8,
    /// Written before the sync under way began.
    is_covered: bool,
}

/// A disk in memory. See [`Disk`].
pub(crate) struct ModelDisk {
    durable: BTreeMap<u64, Box<[u8; PAGE_SIZE_BYTES as usize]>>,
    dirty: BTreeMap<u64, Dirty>,
    /// Pages as they were when the sync under way began, where they were written again since.
    covered: Vec<(u64, Dirty)>,
    syncing: bool,
    random: Xoshiro256PlusPlus,
}

impl ModelDisk {
    pub(crate) fn new(seed: u64) -> ModelDisk {
        ModelDisk {
            durable: BTreeMap::new(),
            dirty: BTreeMap::new(),
            covered: Vec::new(),
            syncing: false,
            random: Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6469_736b),
        }
    }

    fn store(durable: &mut BTreeMap<u64, Box<[u8; 4096]>>, page: u64, from: &Dirty, sectors: u8) {
        let place = durable.entry(page).or_insert_with(|| Box::new([0; PAGE_SIZE_BYTES as usize]));
        for sector in 0..SECTORS_PER_PAGE {
            if from.sectors & sectors & 1 << sector != 0 {
                let range = sector * SECTOR_SIZE_BYTES..(sector + 1) * SECTOR_SIZE_BYTES;
                place[range.clone()].copy_from_slice(&from.bytes[range]);
            }
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (page, within) = (at / PAGE_SIZE_BYTES, (at % PAGE_SIZE_BYTES) as usize);
            let len = (bytes.len() - done).min(PAGE_SIZE_BYTES as usize - within);
            if self.syncing && self.dirty.get(&page).is_some_and(|dirty| dirty.is_covered) {
                let old = self.dirty.remove(&page).expect("just seen");
                let fresh = Dirty { bytes: old.bytes.clone(), sectors: old.sectors, is_covered: false };
                self.covered.push((page, old));
                self.dirty.insert(page, fresh);
            } else if !self.syncing
                && self.random.random_ratio(1, 8)
                && let Some(dirty) = self.dirty.get(&page)
            {
                // The kernel wrote the page back by itself, or some of it.
                let sectors = self.random.random();
                ModelDisk::store(&mut self.durable, page, dirty, sectors);
            }
            let durable = &self.durable;
            let dirty = self.dirty.entry(page).or_insert_with(|| Dirty {
                bytes: durable.get(&page).cloned().unwrap_or_else(|| Box::new([0; 4096])),
                sectors: 0,
                is_covered: false,
            });
            dirty.bytes[within..within + len].copy_from_slice(&bytes[done..done + len]);
            for sector in within / SECTOR_SIZE_BYTES..(within + len).div_ceil(SECTOR_SIZE_BYTES) {
                dirty.sectors |= 1 << sector;
            }
            done += len;
        }
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (page, within) = (at / PAGE_SIZE_BYTES, (at % PAGE_SIZE_BYTES) as usize);
            let len = (bytes.len() - done).min(PAGE_SIZE_BYTES as usize - within);
            let place = &mut bytes[done..done + len];
            match self.dirty.get(&page).map(|dirty| &dirty.bytes).or_else(|| self.durable.get(&page)) {
                Some(found) => place.copy_from_slice(&found[within..within + len]),
                None => place.fill(0),
            }
            done += len;
        }
    }

    pub(crate) fn begin_sync(&mut self) {
        self.syncing = true;
        self.dirty.values_mut().for_each(|dirty| dirty.is_covered = true);
    }

    pub(crate) fn end_sync(&mut self) {
        for (page, dirty) in std::mem::take(&mut self.covered) {
            ModelDisk::store(&mut self.durable, page, &dirty, u8::MAX);
        }
        let (covered, later): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.dirty).into_iter().partition(|(_, dirty)| dirty.is_covered);
        for (page, dirty) in covered {
            ModelDisk::store(&mut self.durable, page, &dirty, u8::MAX);
        }
        (self.dirty, self.syncing) = (later, false);
    }

    /// The machine dies: of what no sync covers, any subset of sectors is on the disk.
    pub(crate) fn cut(&mut self) {
        let kept_of_8 = match self.random.random_range(0..4) {
            0 => 0,
            1 => 8,
            _ => self.random.random_range(1..8),
        };
        let chosen = |random: &mut Xoshiro256PlusPlus| {
            (0..SECTORS_PER_PAGE)
                .fold(0u8, |mask, sector| mask | u8::from(random.random_range(0..8) < kept_of_8) << sector)
        };
        for (page, dirty) in std::mem::take(&mut self.covered) {
            let sectors = chosen(&mut self.random);
            ModelDisk::store(&mut self.durable, page, &dirty, sectors);
        }
        for (page, dirty) in std::mem::take(&mut self.dirty) {
            let sectors = chosen(&mut self.random);
            ModelDisk::store(&mut self.durable, page, &dirty, sectors);
        }
        self.syncing = false;
    }
}
