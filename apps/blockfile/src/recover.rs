//! Attaching: the newest whole checkpoint, the batches after it up to the first gap, and which blocks are still needed.

use crate::FileError;
use crate::blocks::{PURPOSE_CHECKPOINT, PURPOSE_LOG};
use crate::format::{Header, Kind, Reader, Record, VERSION};
use crate::inode::InodeKind;
use crate::map::Place;
use crate::medium::Medium;
use crate::state::State;
use diecut_blockspace::wire::Status;
use diecut_blockspace::{BlockError, LogicalBlock};
use diecut_units::IU_SIZE_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A batch that was found whole.
struct Found {
    header: Header,
    records: Vec<u8>,
    data: Place,
}

/// Bytes of a checkpoint, and the blocks they are in.
type Checkpoint = (Vec<u8>, Vec<LogicalBlock>);

impl State {
    /// An empty store; frees every erase block that the vSSD holds.
    pub fn format(medium: Arc<dyn Medium>) -> Result<State, FileError> {
        medium.keep(&[])?;
        let mut state = State::empty(medium)?;
        if state.capacity_ius() == 0 {
            return Err(FileError::NoSpace);
        }
        state.write_checkpoint()?;
        Ok(state)
    }

    /// What is there.
    pub fn open(medium: Arc<dyn Medium>) -> Result<State, FileError> {
        let mut state = State::empty(Arc::clone(&medium))?;
        let held = medium.held_blocks()?;
        let of =
            |purpose| held.iter().filter(move |record| record.purpose == purpose).map(|record| record.block);
        if held.iter().any(|record| ![PURPOSE_LOG, PURPOSE_CHECKPOINT].contains(&record.purpose)) {
            return Err(FileError::Damaged(
                "it holds erase blocks or zones of another application; if nobody needs them, make the vSSD again, or reset all zones (nvme zns reset-zone -a)",
            ));
        }
        let Some((checkpoint, checkpoint_blocks)) = state.newest_checkpoint(of(PURPOSE_CHECKPOINT))? else {
            // A format that did not come to its end has written nothing else.
            let has_log = held.iter().any(|record| record.purpose == PURPOSE_LOG && record.written_pages > 0);
            let error = FileError::Damaged("no checkpoint can be read");
            return Err(if has_log { error } else { FileError::NotFormatted });
        };
        let known = state.load(&checkpoint).ok_or(FileError::Damaged("the checkpoint"))?;
        let needed = state.replay(of(PURPOSE_LOG).filter(|block| !known.contains(block)))?;
        // Held by who is gone, or made and not named before the end.
        state.tree.end_unnamed(&mut state.content);
        let live =
            state.content.blocks.uses.iter().filter(|(_, known)| known.live > 0).map(|(block, _)| *block);
        // A batch with nothing live must stay until a checkpoint covers it: the next replay would end there.
        let mut keep: BTreeSet<LogicalBlock> = live.chain(needed).collect();
        state.content.blocks.uses.retain(|block, _| keep.contains(block));
        keep.extend(&checkpoint_blocks);
        if keep.iter().any(|block| held.iter().all(|record| record.block != *block)) {
            return Err(FileError::Damaged("the server does not hold a block that is needed"));
        }
        medium.keep(&keep.into_iter().collect::<Vec<_>>())?;
        state.content.blocks.count_free()?;
        state.content.blocks.checkpoint_blocks = checkpoint_blocks;
        // Nothing is appended to what was open before; its last batch is covered by what is written now.
        let kept: Vec<_> = state.content.blocks.uses.keys().copied().collect();
        state.content.blocks.close_later(kept);
        state.write_checkpoint()?;
        Ok(state)
    }

    /// The batches of a block, up to where it ends or makes no sense.
    fn batches(&self, block: LogicalBlock) -> Result<Vec<Found>, FileError> {
        let mut found = Vec::new();
        let mut iu = 0;
        while iu < self.content.blocks.block_ius() {
            let mut first = [0; IU_SIZE_BYTES];
            if !self.can_read(Place { block, iu }, &mut first)? {
                break;
            }
            let Some((header, records)) = Header::decode(&first) else {
                // Whatever else it says, it is not to be written over.
                match Header::version_of(&first) {
                    Some(found) if found != VERSION => return Err(FileError::Version { found }),
                    _ => break,
                }
            };
            let (ius, unit) = (header.ius, self.content.blocks.unit_ius());
            if ius == 0 || ius > self.content.blocks.block_ius() - iu || !ius.is_multiple_of(unit) {
                break;
            }
            let data = Place { block, iu: iu + 1 };
            found.push(Found { header, records: records.to_vec(), data });
            iu += ius;
        }
        Ok(found)
    }

    /// Whether an IU or more can be read; errors that say nothing about the medium are passed on.
    fn can_read(&self, place: Place, bytes: &mut [u8]) -> Result<bool, FileError> {
        match self.content.blocks.read(place, bytes) {
            Ok(()) => Ok(true),
            Err(FileError::Block(BlockError::Status(Status::Erased | Status::Uncorrectable))) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Bytes of the newest checkpoint of which every part is there, and its blocks. Counts on above all numbers seen.
    fn newest_checkpoint(
        &mut self,
        blocks: impl Iterator<Item = LogicalBlock>,
    ) -> Result<Option<Checkpoint>, FileError> {
        // A program that failed leaves its part behind, and the same one is elsewhere.
        let mut parts: BTreeMap<u64, BTreeMap<u16, Vec<Found>>> = BTreeMap::new();
        for block in blocks {
            for found in
                self.batches(block)?.into_iter().filter(|found| found.header.kind == Kind::Checkpoint)
            {
                let number = found.header.sequence;
                parts.entry(number).or_default().entry(found.header.part).or_default().push(found);
            }
        }
        self.log.checkpoint_number = parts.keys().next_back().copied().unwrap_or(0);
        'older: for parts in parts.values().rev() {
            let (mut bytes, mut blocks) = (Vec::new(), Vec::new());
            let Some(first) = parts.get(&0).and_then(|copies| copies.first()) else { continue };
            for number in 0..first.header.parts {
                let Some((part, mut piece)) = self.whole_of(parts.get(&number).into_iter().flatten())? else {
                    continue 'older;
                };
                piece.truncate(part.header.length_bytes as usize);
                bytes.append(&mut piece);
                if blocks.last() != Some(&part.data.block) {
                    blocks.push(part.data.block);
                }
            }
            return Ok(Some((bytes, blocks)));
        }
        Ok(None)
    }

    /// The first of several copies of a batch that can be read to its end and has the data that it says, and these.
    fn whole_of<'a>(
        &self,
        copies: impl Iterator<Item = &'a Found>,
    ) -> Result<Option<(&'a Found, Vec<u8>)>, FileError> {
        for found in copies {
            let mut data = vec![0; (found.header.ius - 1) as usize * IU_SIZE_BYTES];
            if self.can_read(found.data, &mut data)? && found.header.is_whole(&data) {
                return Ok(Some((found, data)));
            }
        }
        Ok(None)
    }

    /// Takes a checkpoint over. Returns the blocks without later batches.
    fn load(&mut self, bytes: &[u8]) -> Option<BTreeSet<LogicalBlock>> {
        let mut reader = Reader(bytes);
        self.log.next_sequence = reader.u64()?.checked_add(1)?;
        self.tree.next_file = reader.u64()?;
        let mut entries = Vec::new();
        for _ in 0..reader.u32()? {
            let (file, kind, hint) = (reader.u64()?, InodeKind::decode(reader.u8()?)?, reader.u8()?);
            self.tree.create(file, kind, hint, reader.attributes()?);
            let size = reader.u64()?;
            self.tree.add_target(file, &reader.bytes()?).ok()?;
            for _ in 0..reader.u32()? {
                let (first, count, place) = (reader.u64()?, reader.u32()?, reader.place()?);
                self.content.blocks.uses.entry(place.block).or_default();
                self.place(file, first, count, place);
            }
            let known = self.tree.inodes.get_mut(&file)?;
            known.logged_bytes = size;
            known.view.change().bytes = size;
            for _ in 0..reader.u32()? {
                entries.push((file, reader.name()?, reader.u64()?));
            }
        }
        for (folder, name, file) in entries {
            self.tree.link(folder, &name, file).ok()?;
        }
        let mut closed = BTreeSet::new();
        for _ in 0..reader.u32()? {
            let block = reader.block()?;
            self.content.blocks.uses.entry(block).or_default();
            closed.insert(block);
        }
        reader.0.is_empty().then_some(closed)
    }

    /// Batches after the checkpoint, in order, up to the first that is not whole. Returns blocks that have one of them.
    fn replay(
        &mut self,
        blocks: impl Iterator<Item = LogicalBlock>,
    ) -> Result<BTreeSet<LogicalBlock>, FileError> {
        let mut later: BTreeMap<u64, Vec<Found>> = BTreeMap::new();
        for block in blocks {
            self.content.blocks.uses.entry(block).or_default();
            for found in self.batches(block)?.into_iter().filter(|found| found.header.kind == Kind::Log) {
                if found.header.sequence >= self.log.next_sequence {
                    // A program that failed leaves its batch behind, and the same one is elsewhere.
                    later.entry(found.header.sequence).or_default().push(found);
                }
            }
        }
        let newest = later.keys().next_back().copied();
        let mut needed = BTreeSet::new();
        while let Some(copies) = later.remove(&self.log.next_sequence) {
            let Some((found, _)) = self.whole_of(copies.iter())? else { break };
            assert_eq!(
                found.header.sequence, self.log.next_sequence,
                "I-F3: batches are replayed without a gap"
            );
            let records = Record::decode_all(&found.records).ok_or(FileError::Damaged("a record"))?;
            needed.insert(found.data.block);
            self.apply(&records, found.data).map_err(|_| FileError::Damaged("a record of the log"))?;
            self.log.next_sequence += 1;
        }
        // What lies behind a gap must never be taken for something new.
        self.log.next_sequence =
            newest.map_or(self.log.next_sequence, |newest| self.log.next_sequence.max(newest + 1));
        Ok(needed)
    }

    /// Names are those of what is there; of something that lost its last name, more may follow.
    fn apply(&mut self, records: &[Record], mut data: Place) -> Result<(), FileError> {
        for record in records {
            match record {
                Record::Extent { file, first, count } => {
                    self.place(*file, *first, *count, data);
                    data.iu += count;
                }
                Record::Create { file, kind, hint, attributes } => {
                    if self.tree.inodes.contains_key(file) {
                        return Err(FileError::Exists);
                    }
                    self.tree.create(*file, *kind, *hint, *attributes);
                    self.tree.next_file = self.tree.next_file.max(file.saturating_add(1));
                }
                Record::Target { file, bytes } => self.tree.add_target(*file, bytes)?,
                Record::Link { folder, name, file } => self.tree.link(*folder, name, *file)?,
                Record::Unlink { folder, name } => {
                    self.tree.unlink(*folder, name, &mut self.content)?;
                }
                Record::Rename { folder, name, to_folder, to_name, is_exchange } => {
                    self.tree.rename(
                        (*folder, name),
                        (*to_folder, to_name),
                        *is_exchange,
                        &mut self.content,
                    )?;
                }
                Record::Size { file, bytes } => self.tree.resize(*file, *bytes, &mut self.content),
                Record::Attributes { file, attributes } => {
                    if let Some(inode) = self.tree.inodes.get_mut(file) {
                        inode.attributes = *attributes;
                    }
                }
            }
        }
        Ok(())
    }
}
