//! The store: changes of files and folders become records and pages that wait, and go out in numbered batches.

use crate::FileError;
use crate::blocks::{Batch, Blocks};
use crate::content::Content;
use crate::format::{Header, Kind, Record};
use crate::gathering::Gathering;
use crate::inode::{Attributes, InodeKind, Name, ROOT, Time};
use crate::map::Place;
use crate::medium::Medium;
use crate::tree::{TARGET_MAX_BYTES, Tree};
use crate::types::{HINTS, IU};
use diecut_units::IU_SIZE_BYTES;
use std::sync::Arc;

/// Bytes that gather in memory before they go out.
pub(crate) const DIRTY_MAX_BYTES: u64 = 1 << 20;
/// Bytes of a write that are taken at once.
const PIECE_BYTES: usize = 64 << 10;
/// Most records of names that gather in memory before they go out.
const PENDING_MAX: usize = 2000;
/// Bytes of a path of a symlink in one record; a batch has room for it.
const TARGET_PART_BYTES: usize = 2000;

/// Something new.
#[derive(Clone, Copy, Debug)]
pub struct Made<'a> {
    /// What it is.
    pub kind: InodeKind,
    /// See [`crate::Files::create`].
    pub hint: u8,
    /// Whose, and who may do what.
    pub attributes: Attributes,
    /// The path of a symlink; empty for others.
    pub target: &'a [u8],
}

/// What a rename does with one that has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// It loses it.
    Yes,
    /// The rename fails.
    No,
    /// It gets the old name.
    Exchange,
}

/// What a store has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes that the application wrote.
    pub written_bytes: u64,
    /// Bytes that went to erase blocks, with headers, filling, copies and checkpoints.
    pub appended_bytes: u64,
    /// Of those, copies of the cleaner.
    pub cleaned_bytes: u64,
    /// Of those, what the device copied by itself: it did not come into this process.
    pub cleaned_inside_bytes: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Live bytes, and the most there may be.
    pub live_bytes: u64,
    /// See `live_bytes`.
    pub capacity_bytes: u64,
    /// Erase blocks that were freed.
    pub freed_blocks: u64,
}

/// Numbers of what was written, and records that wait for a batch.
pub(crate) struct Log {
    pub pending: Vec<Record>,
    /// Of the next batch.
    pub next_sequence: u64,
    /// Of the last checkpoint.
    pub checkpoint_number: u64,
}

/// See the module.
pub(crate) struct State {
    pub tree: Tree,
    pub content: Content,
    pub log: Log,
    /// Nothing is written any more.
    pub has_failed: bool,
    pub statistics: Statistics,
}

impl State {
    /// With the folder of all, and nothing in it.
    pub fn empty(medium: Arc<dyn Medium>) -> Result<State, FileError> {
        let mut state = State {
            tree: Tree::default(),
            content: Content::new(Blocks::new(medium)?),
            log: Log { pending: Vec::new(), next_sequence: 1, checkpoint_number: 0 },
            has_failed: false,
            statistics: Statistics::default(),
        };
        state.tree.create(ROOT.0, InodeKind::Folder, 0, Attributes::new(0o755, 0, 0));
        Ok(state)
    }

    /// Counters.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            appended_bytes: self.content.blocks.appended_ius * IU,
            live_bytes: self.content.live_ius * IU,
            capacity_bytes: self.capacity_ius() * IU,
            ..self.statistics
        }
    }

    /// See [`Files::set_hint`](crate::Files::set_hint).
    pub fn set_hint(&mut self, file: u64, hint: u8) -> Result<(), FileError> {
        self.tree.inode_mut(file)?.hint = hint;
        for record in self.log.pending.iter_mut().rev() {
            if let Record::Create { file: created, hint: before, .. } = record
                && *created == file
            {
                *before = hint;
                break;
            }
        }
        Ok(())
    }

    /// Writes into memory; what has gathered goes out where it is much.
    pub fn write(&mut self, file: u64, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let inode = self.tree.inode(file)?;
        if inode.kind != InodeKind::File {
            return Err(FileError::NotFile);
        }
        let end = offset.checked_add(bytes.len() as u64).ok_or(FileError::NoSpace)?;
        let more = Content::missing(&inode.view, offset / IU, end.div_ceil(IU));
        if more > 0 && self.content.live_ius + self.content.fresh_ius + more > self.capacity_ius() {
            return Err(FileError::NoSpace);
        }
        for (at, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            if self.content.dirty_ius >= self.dirty_max_ius() {
                self.flush()?;
            }
            let inode = self.tree.inode(file)?;
            let offset = offset + (at * PIECE_BYTES) as u64;
            self.content.write((file, &inode.view), inode.logged_bytes, offset, piece)?;
            self.statistics.written_bytes += piece.len() as u64;
        }
        self.tree.touch(file, true);
        Ok(())
    }

    /// Cuts a file, or lets it grow with zeros.
    pub fn set_size(&mut self, file: u64, bytes: u64) -> Result<(), FileError> {
        let inode = self.tree.inode_mut(file)?;
        if inode.kind != InodeKind::File {
            return Err(FileError::NotFile);
        }
        let before = inode.view.look().bytes;
        if bytes < before {
            self.content.clear_beyond(file, &inode.view, bytes)?;
            self.tree.resize(file, bytes, &mut self.content);
        } else if bytes > before {
            inode.logged_bytes = bytes;
            inode.view.change().bytes = bytes;
        }
        // Without a change, what was written meanwhile is not logged by this either.
        if bytes != before {
            self.log.pending.push(Record::Size { file, bytes });
        }
        self.tree.touch(file, true);
        Ok(())
    }

    /// After a change of names.
    pub fn settle(&mut self) -> Result<(), FileError> {
        if self.log.pending.len() >= PENDING_MAX { self.flush() } else { Ok(()) }
    }

    /// For what makes the map longer.
    fn need_room(&self) -> Result<(), FileError> {
        let is_room = self.content.live_ius + self.content.fresh_ius < self.capacity_ius();
        if is_room { Ok(()) } else { Err(FileError::NoSpace) }
    }

    /// Makes something and gives it a name, as the log will say.
    pub fn make(&mut self, folder: u64, name: &Name, made: Made<'_>) -> Result<u64, FileError> {
        if self.tree.entry(folder, name.bytes())?.is_some() {
            return Err(FileError::Exists);
        }
        if self.tree.is_removed(folder) {
            return Err(FileError::NotFound);
        }
        if made.target.len() > TARGET_MAX_BYTES {
            return Err(FileError::Name);
        }
        self.need_room()?;
        let (file, hint) = (self.tree.next_file, made.hint.min(HINTS - 1));
        self.tree.next_file += 1;
        self.tree.create(file, made.kind, hint, made.attributes);
        self.log.pending.push(Record::Create { file, kind: made.kind, hint, attributes: made.attributes });
        for part in made.target.chunks(TARGET_PART_BYTES) {
            self.tree.add_target(file, part)?;
            self.log.pending.push(Record::Target { file, bytes: part.to_vec() });
        }
        // Last: what is cut off before it has no name and goes.
        self.tree.link(folder, name, file)?;
        self.log.pending.push(Record::Link { folder, name: name.clone(), file });
        self.tree.touch(folder, true);
        Ok(file)
    }

    /// Gives something a name more.
    pub fn link_and_log(&mut self, file: u64, folder: u64, name: &Name) -> Result<(), FileError> {
        self.need_room()?;
        if self.tree.is_removed(folder) {
            return Err(FileError::NotFound);
        }
        self.tree.link(folder, name, file)?;
        self.log.pending.push(Record::Link { folder, name: name.clone(), file });
        self.tree.touch(folder, true);
        self.tree.touch(file, false);
        Ok(())
    }

    pub fn unlink_and_log(&mut self, folder: u64, name: &Name) -> Result<(), FileError> {
        let file = self.tree.unlink(folder, name, &mut self.content)?;
        self.log.pending.push(Record::Unlink { folder, name: name.clone() });
        self.tree.touch(folder, true);
        self.tree.touch(file, false);
        self.settle()
    }

    pub fn rename_and_log(
        &mut self,
        from: (u64, &Name),
        to: (u64, &Name),
        replace: Replace,
    ) -> Result<(), FileError> {
        let file = self.tree.entry(from.0, from.1.bytes())?.ok_or(FileError::NotFound)?;
        let other = self.tree.entry(to.0, to.1.bytes())?;
        if replace == Replace::No && other.is_some() {
            return Err(FileError::Exists);
        }
        if other == Some(file) {
            return Ok(());
        }
        let is_exchange = replace == Replace::Exchange;
        self.tree.rename(from, to, is_exchange, &mut self.content)?;
        self.log.pending.push(Record::Rename {
            folder: from.0,
            name: from.1.clone(),
            to_folder: to.0,
            to_name: to.1.clone(),
            is_exchange,
        });
        for folder in [from.0, to.0] {
            self.tree.touch(folder, true);
        }
        self.tree.touch(file, false);
        if let Some(other) = other {
            self.tree.touch(other, false);
        }
        self.settle()
    }

    /// Changes attributes; the time of the change is now, if `change` sets no other one.
    pub fn set_attributes(
        &mut self,
        file: u64,
        change: impl FnOnce(&mut Attributes),
    ) -> Result<(), FileError> {
        let inode = self.tree.inode_mut(file)?;
        inode.attributes.changed = Time::now();
        change(&mut inode.attributes);
        let attributes = inode.attributes;
        self.log.pending.push(Record::Attributes { file, attributes });
        self.settle()
    }

    /// So many holders less.
    pub fn release(&mut self, file: u64, count: u64) -> Result<(), FileError> {
        let inode = self.tree.inode_mut(file)?;
        inode.holders = inode.holders.saturating_sub(count);
        self.tree.end_if_unused(file, &mut self.content);
        Ok(())
    }

    /// The `count` IUs from `first` on are at `place`; of a file that is no more, they are nowhere.
    pub fn place(&mut self, file: u64, first: u64, count: u32, place: Place) {
        if let Some(inode) = self.tree.inodes.get(&file) {
            self.content.place(&inode.view, first, count, place);
        }
    }

    /// All that waits goes out, names and sizes first; what is appended is durable but for what `make_all_safe` does.
    pub fn flush(&mut self) -> Result<(), FileError> {
        if self.log.pending.is_empty() && self.content.dirty_files.is_empty() && self.tree.touched.is_empty()
        {
            return Ok(());
        }
        self.make_room()?;
        let mut gathering = Gathering::new(self.content.blocks.batch_ius(), self.content.blocks.unit_ius());
        for record in std::mem::take(&mut self.log.pending) {
            gathering.add_record(0, record);
        }
        let mut leaving = Vec::new();
        for file in std::mem::take(&mut self.content.dirty_files) {
            let Some(known) = self.tree.inodes.get_mut(&file) else { continue };
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
        for file in std::mem::take(&mut self.tree.touched) {
            let Some(known) = self.tree.inodes.get(&file) else { continue };
            gathering.add_record_to_last(Record::Attributes { file, attributes: known.attributes });
        }
        (self.content.dirty_ius, self.content.fresh_ius) = (0, 0);
        self.write_out(gathering)?;
        leaving.iter().for_each(|view| view.change().leaving.clear());
        Ok(())
    }

    /// Numbers, appends and maps batches.
    pub fn write_out(&mut self, gathering: Gathering) -> Result<(), FileError> {
        assert!(!self.has_failed, "I-F4: nothing is written after an error");
        let mut plans = gathering.done();
        let unit_ius = self.content.blocks.unit_ius();
        let mut batches: Vec<Batch> = Vec::with_capacity(plans.len());
        for plan in &mut plans {
            let mut records = Vec::new();
            plan.records.iter().for_each(|record| record.encode(&mut records));
            let data_ius = (plan.data.len() / IU_SIZE_BYTES) as u32;
            let header = Header {
                kind: Kind::Log,
                sequence: self.log.next_sequence,
                ius: (data_ius + 1).next_multiple_of(unit_ius),
                data_ius,
                length_bytes: records.len() as u32,
                part: 0,
                parts: 0,
                data_check: 0,
            };
            self.log.next_sequence += 1;
            let bytes = header.with_data(&records, &std::mem::take(&mut plan.data));
            batches.push(Batch::new(plan.stream, bytes));
        }
        match self.content.blocks.append_all(&mut batches) {
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
