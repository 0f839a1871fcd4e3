//! All that touches the medium while files are in use: open blocks, appends, frees, and what is live where.

mod appending;

pub(crate) use appending::Batch;

use crate::FileError;
use crate::format::{Header, Kind};
use crate::map::Place;
use crate::medium::{Append, Medium};
use crate::types::STREAMS;
use crate::view::Views;
use diecut_blockspace::wire::Status;
use diecut_blockspace::{BlockError, LogicalBlock, Purpose, UnitIndex};
use diecut_units::IU_SIZE_BYTES;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Purposes of erase blocks, kept by the server for the next attach.
pub(crate) const PURPOSE_LOG: u8 = 1;
/// See [`PURPOSE_LOG`].
pub(crate) const PURPOSE_CHECKPOINT: u8 = 2;

/// A block with batches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Use {
    /// IUs that files need.
    pub live: u32,
    pub is_open: bool,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    block: LogicalBlock,
    written_ius: u32,
    /// Whether something in it is not safe from a power cut yet.
    at_risk: bool,
}

pub(crate) struct Blocks {
    pub medium: Arc<dyn Medium>,
    open: [Option<Open>; STREAMS],
    checkpoint: Option<Open>,
    /// Blocks of the checkpoint that counts.
    pub checkpoint_blocks: Vec<LogicalBlock>,
    pub uses: BTreeMap<LogicalBlock, Use>,
    /// Blocks to close when a checkpoint covers them: until then a replay must see where their last batch ended.
    to_close: Vec<LogicalBlock>,
    next_unit: u16,
    /// Free erase blocks in all, as the server said last, less what was allocated since.
    pub free: u32,
    pub total: u32,
    pub appended_ius: u64,
}

impl Blocks {
    pub fn new(medium: Arc<dyn Medium>) -> Result<Blocks, FileError> {
        let mut blocks = Blocks {
            medium,
            open: [None; STREAMS],
            checkpoint: None,
            checkpoint_blocks: Vec::new(),
            uses: BTreeMap::new(),
            to_close: Vec::new(),
            next_unit: 0,
            free: 0,
            total: 0,
            appended_ius: 0,
        };
        blocks.count_free()?;
        Ok(blocks)
    }

    /// Asks the server.
    pub fn count_free(&mut self) -> Result<(), FileError> {
        (self.free, self.total) = (0, 0);
        for unit in 0..self.medium.shape().units {
            let (free, total) = self.medium.blocks_of_unit(UnitIndex(unit))?;
            self.free += free;
            self.total += total;
        }
        Ok(())
    }

    pub fn unit_ius(&self) -> u32 {
        self.medium.shape().unit_of_append_bytes() / IU_SIZE_BYTES as u32
    }
    pub fn block_ius(&self) -> u32 {
        (self.medium.shape().block_size_bytes() / IU_SIZE_BYTES as u64) as u32
    }
    /// Length of the largest batch.
    pub fn batch_ius(&self) -> u32 {
        let most = (self.medium.append_max_bytes() / IU_SIZE_BYTES) as u32;
        most.min(self.block_ius() / self.unit_ius() * self.unit_ius())
    }

    pub fn lose(&mut self, block: LogicalBlock, ius: u32) {
        let known = self.uses.get_mut(&block).expect("extents are in blocks that are known");
        known.live = known.live.checked_sub(ius).expect("no more is freed than was written");
    }

    pub fn gain(&mut self, block: LogicalBlock, ius: u32) {
        self.uses.get_mut(&block).expect("extents are in blocks that are known").live += ius;
    }

    fn allocate(&mut self, purpose: u8) -> Result<Open, FileError> {
        let units = self.medium.shape().units;
        for _ in 0..units {
            let unit = UnitIndex(self.next_unit);
            self.next_unit = (self.next_unit + 1) % units;
            match self.medium.allocate(unit, Purpose(purpose)) {
                Ok(block) => {
                    self.free = self.free.saturating_sub(1);
                    return Ok(Open { block, written_ius: 0, at_risk: false });
                }
                Err(BlockError::Status(Status::NoFreeBlock | Status::UnitOffline)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(FileError::NoSpace)
    }

    /// The stream that stands in for one: where few blocks may be open, those of the longest lives share one.
    fn stream_of(&self, stream: usize) -> usize {
        // One is the checkpoint's.
        stream.min(self.medium.open_max().saturating_sub(2).min(STREAMS - 1))
    }

    fn has_room(&self, stream: usize, ius: u32) -> bool {
        self.open[stream].is_none_or(|open| open.written_ius + ius <= self.block_ius())
    }

    /// A block of the stream with room.
    fn open(&mut self, stream: usize, ius: u32) -> Result<Open, FileError> {
        if !self.has_room(stream, ius) {
            self.close(stream)?;
        }
        if let Some(open) = self.open[stream] {
            return Ok(open);
        }
        let open = self.allocate(PURPOSE_LOG)?;
        let before = self.uses.insert(open.block, Use { live: 0, is_open: true });
        assert!(
            before.is_none(),
            "I-F2: batches go to blocks that this attach allocated, and no batch of before is in them"
        );
        Ok(open)
    }

    /// Nothing is appended to it any more: what is in it is made safe before.
    fn close(&mut self, stream: usize) -> Result<(), FileError> {
        if let Some(open) = self.open[stream].take() {
            let mut closing = Some(open);
            self.make_safe(&mut closing)?;
            self.medium.close(open.block)?;
            self.uses.get_mut(&open.block).expect("open blocks are known").is_open = false;
        }
        Ok(())
    }

    /// Blocks of before, to which nothing is appended: they are closed after the next checkpoint.
    pub fn close_later(&mut self, blocks: impl IntoIterator<Item = LogicalBlock>) {
        self.to_close.extend(blocks);
    }

    /// A block of a stream with room for so many IUs: where its next one goes, and how many it takes.
    pub fn room(&mut self, stream: usize, ius: u32) -> Result<(Place, u32), FileError> {
        let stream = self.stream_of(stream);
        let open = self.open(stream, ius)?;
        self.open[stream] = Some(open);
        let place = Place { block: open.block, iu: open.written_ius };
        Ok((place, self.block_ius() - open.written_ius))
    }

    /// So many IUs more are in the block of a stream.
    pub fn wrote(&mut self, stream: usize, ius: u32) {
        let open = self.open[self.stream_of(stream)].as_mut().expect("it has room: somebody asked for it");
        open.written_ius += ius;
        open.at_risk = true;
        self.appended_ius += u64::from(ius);
    }

    /// After an append or a run that failed. Its header says how far it would have gone, and its check whether it is whole: nobody needs to see
    /// where the block ends, so it is closed at once and does not count as open any more.
    pub fn end(&mut self, stream: usize) -> Result<(), FileError> {
        if let Some(failed) = self.open[self.stream_of(stream)].take() {
            self.uses.get_mut(&failed.block).expect("open blocks are known").is_open = false;
            self.medium.close(failed.block)?;
        }
        Ok(())
    }

    pub fn append(&self, block: LogicalBlock, bytes: &[u8]) -> Result<(), BlockError> {
        let ended = self.medium.append_all(&[Append { block, bytes }])?;
        ended.into_iter().next().expect("one was given").map(drop)
    }

    fn make_safe(&mut self, open: &mut Option<Open>) -> Result<(), FileError> {
        let unsafe_units = self.medium.shape().unsafe_units;
        let Some(open) = open.as_mut().filter(|open| open.at_risk && unsafe_units > 0) else { return Ok(()) };
        let left = (self.block_ius() - open.written_ius) / self.unit_ius();
        let units = unsafe_units.min(left);
        let most = self.batch_ius() / self.unit_ius();
        let mut filled = 0;
        while filled < units {
            let now = most.min(units - filled);
            let ius = now * self.unit_ius();
            let header = Header {
                kind: Kind::Filling,
                sequence: 0,
                ius,
                data_ius: 0,
                length_bytes: 0,
                part: 0,
                parts: 0,
                data_check: 0,
            };
            let mut bytes = header.encode(&[]).to_vec();
            bytes.resize(ius as usize * IU_SIZE_BYTES, 0);
            match self.append(open.block, &bytes) {
                Ok(()) => {}
                // The block takes no more appends: there is nothing that could put what it holds at risk.
                Err(BlockError::Status(Status::AppendFailed)) => {
                    open.written_ius = self.block_ius();
                    break;
                }
                Err(error) => return Err(error.into()),
            }
            open.written_ius += ius;
            self.appended_ius += u64::from(ius);
            filled += now;
        }
        open.at_risk = false;
        Ok(())
    }

    /// After it, no power cut can destroy what was appended.
    pub fn make_all_safe(&mut self) -> Result<(), FileError> {
        for stream in 0..STREAMS {
            let mut open = self.open[stream];
            self.make_safe(&mut open)?;
            self.open[stream] = open;
        }
        Ok(())
    }

    /// Writes the parts of a checkpoint, durably; then its blocks are those that count. Returns those that do not any more.
    pub fn write_checkpoint(&mut self, parts: &[Vec<u8>]) -> Result<Vec<LogicalBlock>, FileError> {
        let mut blocks = Vec::new();
        'again: for _ in 0..16 {
            blocks.clear();
            for part in parts {
                let ius = (part.len() / IU_SIZE_BYTES) as u32;
                let mut open = match self.checkpoint.take() {
                    Some(open) if open.written_ius + ius <= self.block_ius() => open,
                    mut full => {
                        self.make_safe(&mut full)?;
                        if let Some(full) = full {
                            self.medium.close(full.block)?;
                        }
                        self.allocate(PURPOSE_CHECKPOINT)?
                    }
                };
                match self.append(open.block, part) {
                    Ok(()) => {}
                    Err(BlockError::Status(Status::AppendFailed | Status::UnitOffline)) => continue 'again,
                    Err(error) => return Err(error.into()),
                }
                open.written_ius += ius;
                open.at_risk = true;
                self.appended_ius += u64::from(ius);
                if blocks.last() != Some(&open.block) {
                    blocks.push(open.block);
                }
                self.checkpoint = Some(open);
            }
            let mut open = self.checkpoint;
            self.make_safe(&mut open)?;
            self.checkpoint = open;
            let before = std::mem::replace(&mut self.checkpoint_blocks, blocks.clone());
            for block in std::mem::take(&mut self.to_close) {
                self.medium.close(block)?;
            }
            return Ok(before.into_iter().filter(|block| !blocks.contains(block)).collect());
        }
        Err(FileError::Failed)
    }

    /// Log blocks that nobody needs.
    pub fn unused(&self) -> impl Iterator<Item = LogicalBlock> {
        let unused = self.uses.iter().filter(|(_, known)| known.live == 0 && !known.is_open);
        unused.map(|(block, _)| *block)
    }

    /// Frees log blocks that nobody needs, and the blocks given, durably. Only after a checkpoint that covers them.
    /// What is being read stays for the next time (I-F5).
    pub fn free_unused(&mut self, checkpoints: &[LogicalBlock], views: &Views) -> Result<u32, FileError> {
        let unused: Vec<_> = self.unused().filter(|block| !views.is_pinned(*block)).collect();
        for block in unused.iter().chain(checkpoints) {
            assert!(!self.checkpoint_blocks.contains(block), "I-F1: the checkpoint that counts stays");
            self.medium.free(*block)?;
            let known = self.uses.remove(block);
            assert!(
                known.is_none_or(|known| known.live == 0 && !known.is_open),
                "I-F1: no file needs a block that is freed"
            );
        }
        let freed = (unused.len() + checkpoints.len()) as u32;
        if freed > 0 {
            self.medium.sync()?;
            self.count_free()?;
        }
        Ok(freed)
    }

    pub fn read(&self, place: Place, bytes: &mut [u8]) -> Result<(), FileError> {
        read(&*self.medium, place, bytes)
    }
}

/// Reads whole IUs from a place on; needs no lock.
pub(crate) fn read(medium: &dyn Medium, place: Place, bytes: &mut [u8]) -> Result<(), FileError> {
    Ok(medium.read(place.block, u64::from(place.iu) * IU_SIZE_BYTES as u64, bytes)?)
}
