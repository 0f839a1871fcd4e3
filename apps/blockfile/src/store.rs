//! Files: sizes, writes that gather in memory, batches that go out.

use crate::FileError;
use crate::blocks::{Batch, Blocks, COLD};
use crate::format::{Header, Kind, RECORDS_MAX_BYTES, Record};
use crate::inode::{Inode, InodeKind};
use crate::map::{Extent, Place};
use crate::read::{View, Views};
use diecut_blockspace::{Client, LogicalBlock};
use diecut_units::IU_SIZE_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of an inode, for as long as it exists; numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// How many hints there are: 0 up to one less.
pub const HINTS: u8 = COLD as u8;
pub(crate) const IU: u64 = IU_SIZE_BYTES as u64;
/// Bytes that gather in memory before they go out.
pub(crate) const DIRTY_MAX_BYTES: u64 = 1 << 20;
/// Bytes of a write that are taken at once.
const PIECE_BYTES: usize = 64 << 10;
/// What a batch of records and extents takes of its header besides names, for one extent.
const EXTENT_SIZE_BYTES: usize = 21;

pub(crate) type Page = Box<[u8; IU_SIZE_BYTES]>;

/// What a store has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes that the application wrote.
    pub written_bytes: u64,
    /// Bytes that went to erase blocks, with headers, filling, copies and checkpoints.
    pub appended_bytes: u64,
    /// Of those, copies of the cleaner.
    pub cleaned_bytes: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Live bytes, and the most there may be.
    pub live_bytes: u64,
    /// See `live_bytes`.
    pub capacity_bytes: u64,
    /// Erase blocks that were freed.
    pub freed_blocks: u64,
}

pub(crate) struct State {
    pub blocks: Blocks,
    pub views: Arc<Views>,
    pub inodes: BTreeMap<u64, Inode>,
    /// Of all inodes together.
    pub extents: usize,
    /// What inodes take in a checkpoint, with names and paths of symlinks, without extents.
    pub named_bytes: usize,
    pub next_file: u64,
    pub next_sequence: u64,
    pub checkpoint_number: u64,
    pub pending: Vec<Record>,
    /// Inodes with times that flash does not know.
    pub touched: BTreeSet<u64>,
    pub dirty_files: BTreeSet<u64>,
    pub dirty_ius: u64,
    /// Of those, IUs that are not on flash yet.
    pub fresh_ius: u64,
    pub live_ius: u64,
    pub has_failed: bool,
    pub statistics: Statistics,
}

/// Files on the erase blocks of a vSSD.
pub struct Files {
    state: Mutex<State>,
    pub(crate) views: Arc<Views>,
    pub(crate) client: Arc<Client>,
}

impl Files {
    pub(crate) fn new(state: State) -> Files {
        let (views, client) = (Arc::clone(&state.views), Arc::clone(&state.blocks.client));
        Files { state: Mutex::new(state), views, client }
    }

    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, State>, FileError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread that panicked may have left it half changed.
        state.has_failed |= self.state.is_poisoned();
        self.views.has_failed.store(state.has_failed, Ordering::Release);
        if state.has_failed { Err(FileError::Failed) } else { Ok(state) }
    }

    /// Runs something that talks to the server: after an error nothing goes on.
    pub(crate) fn try_with<T>(
        &self,
        body: impl FnOnce(&mut State) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let mut state = self.lock()?;
        let outcome = body(&mut state);
        if matches!(outcome, Err(FileError::Block(_) | FileError::Failed | FileError::Damaged(_))) {
            state.has_failed = true;
            self.views.has_failed.store(true, Ordering::Release);
        }
        outcome
    }

    /// Another hint, for what is written from now on. A hint that is changed after the name of the file became durable is kept by
    /// the next checkpoint.
    ///
    /// # Errors
    /// [`FileError::NotFound`].
    pub fn set_hint(&self, file: FileId, hint: u8) -> Result<(), FileError> {
        let (mut state, hint) = (self.lock()?, hint.min(HINTS - 1));
        state.inode_mut(file.0)?.hint = hint;
        let waits = state.pending.iter_mut().rev();
        for record in waits {
            if let Record::Create { file: created, hint: before, .. } = record
                && *created == file.0
            {
                *before = hint;
                break;
            }
        }
        Ok(())
    }

    /// Writes; the file grows where it must. In memory until [`Files::sync`], or until much has gathered.
    ///
    /// # Errors
    /// [`FileError::NoSpace`] (nothing is written then), [`FileError::NotFound`], [`FileError::NotFile`], the server.
    pub fn write(&self, file: FileId, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.try_with(|state| {
            if state.inode(file.0)?.kind != InodeKind::File {
                return Err(FileError::NotFile);
            }
            let end = offset.checked_add(bytes.len() as u64).ok_or(FileError::NoSpace)?;
            let more = state.missing(file.0, offset / IU, end.div_ceil(IU));
            if more > 0 && state.live_ius + state.fresh_ius + more > state.capacity_ius() {
                return Err(FileError::NoSpace);
            }
            for (at, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
                if state.dirty_ius >= state.dirty_max_ius() {
                    state.flush()?;
                }
                state.write(file.0, offset + (at * PIECE_BYTES) as u64, piece)?;
            }
            state.touch(file.0, true);
            Ok(())
        })
    }

    /// Cuts a file, or lets it grow with zeros.
    ///
    /// # Errors
    /// [`FileError::NotFound`], [`FileError::NotFile`], the medium.
    pub fn set_size(&self, file: FileId, bytes: u64) -> Result<(), FileError> {
        self.try_with(|state| {
            if state.inode(file.0)?.kind != InodeKind::File {
                return Err(FileError::NotFile);
            }
            state.set_size(file.0, bytes)?;
            state.touch(file.0, true);
            Ok(())
        })
    }

    /// Hands everything written so far, to all files, to the server: from then on it survives the end of this process and of the
    /// server's. A power cut may still take the last of it; see [`Files::sync`]. Nothing is done if nothing was written.
    ///
    /// # Errors
    /// As [`Files::sync`].
    pub fn hand_over(&self) -> Result<(), FileError> {
        self.try_with(State::flush)
    }

    /// Waits until everything written so far, to all files, is durable.
    ///
    /// # Errors
    /// Of the server; the store is to be opened again then.
    pub fn sync(&self) -> Result<(), FileError> {
        self.try_with(|state| {
            state.flush()?;
            state.blocks.make_all_safe()
        })
    }

    /// Writes a checkpoint, so that the next attach is short, and frees what can be freed.
    ///
    /// # Errors
    /// As [`Files::sync`].
    pub fn checkpoint(&self) -> Result<(), FileError> {
        self.try_with(State::checkpoint)
    }

    /// Counters.
    ///
    /// # Errors
    /// After a failure.
    pub fn statistics(&self) -> Result<Statistics, FileError> {
        let state = self.lock()?;
        Ok(Statistics {
            appended_bytes: state.blocks.appended_ius * IU,
            live_bytes: state.live_ius * IU,
            capacity_bytes: state.capacity_ius() * IU,
            ..state.statistics
        })
    }
}

impl State {
    /// How many of the IUs of a file are nowhere yet.
    fn missing(&self, file: u64, first: u64, end: u64) -> u64 {
        let Some(known) = self.inodes.get(&file) else { return 0 };
        let known = known.view.look();
        let (mut iu, mut missing) = (first, 0);
        while iu < end {
            match known.map.find(iu) {
                Ok(extent) => iu += u64::from(extent.count),
                Err(gap) => {
                    let gap_end = end.min(iu.saturating_add(gap));
                    missing += gap_end - iu - known.dirty.range(iu..gap_end).count() as u64;
                    iu = gap_end;
                }
            }
        }
        missing
    }

    /// Forgets what is from an IU on.
    pub fn cut(&mut self, file: u64, first: u64) {
        let Some(known) = self.inodes.get(&file) else { return };
        let mut known = known.view.change();
        let dirty = known.dirty.split_off(&first);
        self.dirty_ius -= dirty.len() as u64;
        self.fresh_ius -= dirty.keys().filter(|iu| known.map.find(**iu).is_err()).count() as u64;
        let (blocks, live) = (&mut self.blocks, &mut self.live_ius);
        self.extents -= known.map.len();
        let View { map, mapped_ius, .. } = &mut *known;
        map.cut(first, u64::MAX, &mut |block, ius| {
            blocks.lose(block, ius);
            *live -= u64::from(ius);
            *mapped_ius -= u64::from(ius);
        });
        self.extents += known.map.len();
    }

    /// As on flash: sizes in records, and what a file has beyond is no more.
    pub fn resize(&mut self, file: u64, bytes: u64) {
        self.cut(file, bytes.div_ceil(IU));
        if let Some(known) = self.inodes.get_mut(&file) {
            known.logged_bytes = bytes;
            known.view.change().bytes = bytes;
        }
    }

    /// The `count` IUs from `first` on are at `place`.
    pub fn place(&mut self, file: u64, first: u64, count: u32, place: Place) {
        let Some(known) = self.inodes.get(&file) else { return };
        let mut known = known.view.change();
        let (blocks, live) = (&mut self.blocks, &mut self.live_ius);
        blocks.gain(place.block, count);
        *live += u64::from(count);
        self.extents -= known.map.len();
        known.mapped_ius += u64::from(count);
        let View { map, mapped_ius, .. } = &mut *known;
        map.insert(first, Extent { count, place }, &mut |block: LogicalBlock, ius| {
            blocks.lose(block, ius);
            *live -= u64::from(ius);
            *mapped_ius -= u64::from(ius);
        });
        self.extents += known.map.len();
    }

    fn set_size(&mut self, file: u64, bytes: u64) -> Result<(), FileError> {
        let before = self.inode_mut(file)?.view.look().bytes;
        if bytes < before {
            // What the last IU has beyond the end must read as zeros if the file grows again.
            let within = (bytes % IU) as usize;
            if within != 0 {
                let mut page = self.page(file, bytes / IU)?;
                page[within..].fill(0);
                self.put_page(file, bytes / IU, page);
            }
            self.resize(file, bytes);
        } else if bytes > before {
            let known = self.inode_mut(file)?;
            known.logged_bytes = bytes;
            known.view.change().bytes = bytes;
        } else {
            // Nor is what was written meanwhile logged by this.
            return Ok(());
        }
        self.pending.push(Record::Size { file, bytes });
        Ok(())
    }

    /// Content of an IU.
    fn page(&mut self, file: u64, iu: u64) -> Result<Page, FileError> {
        let known = self.inodes.get(&file).ok_or(FileError::NotFound)?.view.look();
        if let Some(page) = known.dirty.get(&iu) {
            return Ok(page.clone());
        }
        let mut page = Box::new([0; IU_SIZE_BYTES]);
        if let Ok(extent) = known.map.find(iu) {
            self.blocks.read(extent.place, &mut page[..])?;
        }
        Ok(page)
    }

    fn put_page(&mut self, file: u64, iu: u64, page: Page) {
        let mut known = self.inodes[&file].view.change();
        if known.dirty.insert(iu, page).is_none() {
            self.dirty_ius += 1;
            self.fresh_ius += u64::from(known.map.find(iu).is_err());
        }
        self.dirty_files.insert(file);
    }

    fn write(&mut self, file: u64, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let end = offset + bytes.len() as u64;
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (iu, within) = (at / IU, (at % IU) as usize);
            let part = (bytes.len() - done).min(IU_SIZE_BYTES - within);
            let piece = &bytes[done..done + part];
            done += part;
            if let Some(page) = self.inode_mut(file)?.view.change().dirty.get_mut(&iu) {
                page[within..within + part].copy_from_slice(piece);
                continue;
            }
            let mut page =
                if part == IU_SIZE_BYTES { Box::new([0; IU_SIZE_BYTES]) } else { self.page(file, iu)? };
            page[within..within + part].copy_from_slice(piece);
            self.put_page(file, iu, page);
        }
        let known = self.inode_mut(file)?;
        let mut view = known.view.change();
        view.bytes = view.bytes.max(end);
        let is_longer = view.bytes != known.logged_bytes;
        drop(view);
        if is_longer {
            self.dirty_files.insert(file);
        }
        self.statistics.written_bytes += bytes.len() as u64;
        Ok(())
    }

    /// All that waits goes out, names and sizes first; what is appended is durable but for what `make_all_safe` does.
    pub fn flush(&mut self) -> Result<(), FileError> {
        if self.pending.is_empty() && self.dirty_files.is_empty() && self.touched.is_empty() {
            return Ok(());
        }
        self.make_room()?;
        let mut gathering = Gathering::new(self.blocks.batch_ius(), self.blocks.unit_ius());
        for record in std::mem::take(&mut self.pending) {
            gathering.add_record(0, record);
        }
        let mut leaving = Vec::new();
        for file in std::mem::take(&mut self.dirty_files) {
            let Some(known) = self.inodes.get_mut(&file) else { continue };
            let stream = usize::from(known.hint);
            let mut view = known.view.change();
            for (iu, page) in &view.dirty {
                gathering.add_page(stream, file, *iu, &page[..]);
            }
            // Who reads finds them there until the map says where they are.
            view.leaving = std::mem::take(&mut view.dirty);
            // Behind the data: what is cut off after them is a file that did not grow yet.
            if view.bytes != known.logged_bytes {
                known.logged_bytes = view.bytes;
                gathering.add_record(stream, Record::Size { file, bytes: view.bytes });
            }
            drop(view);
            leaving.push(known.view.clone());
        }
        for file in std::mem::take(&mut self.touched) {
            let Some(known) = self.inodes.get(&file) else { continue };
            gathering.add_record_to_last(Record::Attributes { file, attributes: known.attributes });
        }
        (self.dirty_ius, self.fresh_ius) = (0, 0);
        self.write_out(gathering)?;
        leaving.iter().for_each(|view| view.change().leaving.clear());
        Ok(())
    }

    /// Numbers, appends and maps batches.
    pub fn write_out(&mut self, gathering: Gathering) -> Result<(), FileError> {
        let mut plans = gathering.done();
        let unit_ius = self.blocks.unit_ius();
        let mut batches: Vec<Batch> = Vec::with_capacity(plans.len());
        for plan in &mut plans {
            let mut records = Vec::new();
            plan.records.iter().for_each(|record| record.encode(&mut records));
            let data_ius = (plan.data.len() / IU_SIZE_BYTES) as u32;
            let header = Header {
                kind: Kind::Log,
                sequence: self.next_sequence,
                ius: (data_ius + 1).next_multiple_of(unit_ius),
                data_ius,
                length_bytes: records.len() as u32,
                part: 0,
                parts: 0,
            };
            self.next_sequence += 1;
            let mut bytes = header.encode(&records).to_vec();
            bytes.append(&mut plan.data);
            bytes.resize(header.ius as usize * IU_SIZE_BYTES, 0);
            batches.push(Batch { stream: plan.stream, bytes, place: None });
        }
        match self.blocks.append_all(&mut batches) {
            // Counted before: what gathered is gone, so nothing may go on.
            Err(FileError::NoSpace) => {
                return Err(FileError::Damaged("the reserve of erase blocks is used up"));
            }
            other => other?,
        }
        for (plan, batch) in plans.iter().zip(&batches) {
            let mut place = batch.place.expect("appended");
            place.iu += 1;
            for record in &plan.records {
                if let Record::Extent { file, first, count } = *record {
                    self.place(file, first, count, place);
                    place.iu += count;
                }
            }
        }
        Ok(())
    }
}

struct Plan {
    stream: usize,
    records: Vec<Record>,
    record_bytes: usize,
    data: Vec<u8>,
}

/// Records and pages on their way into batches.
pub(crate) struct Gathering {
    plans: Vec<Plan>,
    data_ius_max: usize,
}

impl Gathering {
    pub fn new(batch_ius: u32, unit_ius: u32) -> Gathering {
        assert!(batch_ius > 1 && batch_ius.is_multiple_of(unit_ius), "a header and data");
        Gathering { plans: Vec::new(), data_ius_max: batch_ius as usize - 1 }
    }

    /// The batch that takes so much more. Only the last one does: the order of batches is that of what they say.
    fn plan(&mut self, stream: usize, record_bytes: usize, pages: usize) -> &mut Plan {
        let fits = self.plans.last().is_some_and(|plan| {
            (plan.stream == stream || plan.data.is_empty())
                && plan.record_bytes + record_bytes <= RECORDS_MAX_BYTES
                && plan.data.len() / IU_SIZE_BYTES + pages <= self.data_ius_max
        });
        if !fits {
            self.plans.push(Plan { stream, records: Vec::new(), record_bytes: 0, data: Vec::new() });
        }
        let plan = self.plans.last_mut().expect("pushed above");
        if pages > 0 {
            plan.stream = stream;
        }
        plan
    }

    pub fn add_record(&mut self, stream: usize, record: Record) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let plan = self.plan(stream, bytes.len(), 0);
        plan.record_bytes += bytes.len();
        plan.records.push(record);
    }

    /// Wherever the last one goes: for what says nothing about the life of something.
    fn add_record_to_last(&mut self, record: Record) {
        let stream = self.plans.last().map_or(0, |plan| plan.stream);
        self.add_record(stream, record);
    }

    pub fn add_page(&mut self, stream: usize, file: u64, iu: u64, page: &[u8]) {
        let plan = self.plan(stream, EXTENT_SIZE_BYTES, 1);
        plan.data.extend_from_slice(page);
        if let Some(Record::Extent { file: last, first, count }) = plan.records.last_mut()
            && *last == file
            && *first + u64::from(*count) == iu
        {
            *count += 1;
            return;
        }
        plan.record_bytes += EXTENT_SIZE_BYTES;
        plan.records.push(Record::Extent { file, first: iu, count: 1 });
    }

    fn done(self) -> Vec<Plan> {
        self.plans
    }
}
