//! Room: checkpoints, which let blocks go that nobody needs, and the cleaner, which makes such blocks.

use crate::FileError;
use crate::format::{Header, Kind, put_attributes, put_block, put_bytes, put_name, put_place};
use crate::gathering::Gathering;
use crate::moving::{self, Move, Moves};
use crate::state::{DIRTY_MAX_BYTES, State};
use crate::types::{COLD, IU, STREAMS};
use diecut_blockspace::LogicalBlock;
use diecut_units::IU_SIZE_BYTES;
use std::collections::BTreeSet;

/// Most blocks that are cleaned before a checkpoint.
const VICTIMS_MAX: usize = 16;
/// Most blocks that copies fill before a checkpoint.
const COPIED_BLOCKS_MAX: u32 = 4;
/// Copies gather in memory up to this.
const GATHERED_MAX_IUS: u64 = 2048;
/// With so many blocks that nobody needs, and enough with them, a checkpoint alone makes room: nothing is copied.
const UNUSED_MIN: u32 = 4;
/// Rounds of the cleaner that may pass without a free block more: a checkpoint may just have begun a block.
const ROUNDS_IN_VAIN_MAX: u32 = 4;

impl State {
    /// Bytes that gather at most: fewer where there are few blocks.
    pub fn dirty_max_ius(&self) -> u64 {
        let all = u64::from(self.content.blocks.total) * u64::from(self.content.blocks.block_ius());
        (DIRTY_MAX_BYTES / IU).min(all / 32).max(1)
    }

    fn checkpoint_blocks(&self) -> u32 {
        let bytes =
            64 + self.content.extents * 22 + self.tree.named_bytes + self.content.blocks.uses.len() * 6;
        let ius = (bytes / IU_SIZE_BYTES + 1) as u32 * 2;
        ius.div_ceil(self.content.blocks.block_ius()) + 1
    }

    /// Free erase blocks that a flush, a round of the cleaner and a checkpoint may need together.
    fn low_water(&self) -> u32 {
        let block_ius = u64::from(self.content.blocks.block_ius());
        // Headers and filling: never more than as much again where batches have two IUs at least.
        let flush = (self.dirty_max_ius() + 64) * 2;
        let streams = STREAMS as u32;
        (flush.div_ceil(block_ius) as u32) + streams + COPIED_BLOCKS_MAX + 2 + 2 * self.checkpoint_blocks()
    }

    /// Most IUs that may be live: what the cleaner can keep in order.
    pub fn capacity_ius(&self) -> u64 {
        let batch = u64::from(self.content.blocks.batch_ius());
        let blocks = u64::from(self.content.blocks.total.saturating_sub(self.low_water() + 2));
        blocks * u64::from(self.content.blocks.block_ius()) * (batch - 1) / batch * 2 / 3
    }

    /// Makes sure that there are free blocks for a flush.
    pub fn make_room(&mut self) -> Result<(), FileError> {
        let (mut most, mut in_vain) = (self.content.blocks.free, 0);
        while self.content.blocks.free < self.low_water() {
            let unused = self.content.blocks.unused().count() as u32;
            if unused < UNUSED_MIN || self.content.blocks.free + unused < self.low_water() {
                self.clean()?;
            }
            self.write_checkpoint()?;
            in_vain = if self.content.blocks.free > most { 0 } else { in_vain + 1 };
            most = most.max(self.content.blocks.free);
            if in_vain > ROUNDS_IN_VAIN_MAX {
                return Err(FileError::NoSpace);
            }
        }
        Ok(())
    }

    /// Copies what is live in the blocks with the least of it.
    fn clean(&mut self) -> Result<(), FileError> {
        let closed = self.content.blocks.uses.iter().filter(|(_, known)| !known.is_open);
        let mut victims: Vec<(u32, LogicalBlock)> =
            closed.map(|(block, known)| (known.live, *block)).collect();
        victims.sort_unstable();
        let mut sum = 0;
        victims.truncate(VICTIMS_MAX);
        victims.retain(|(live, _)| {
            sum += live;
            sum <= COPIED_BLOCKS_MAX * self.content.blocks.block_ius() * 3 / 4
        });
        let chosen: BTreeSet<_> =
            victims.iter().filter(|(live, _)| *live > 0).map(|(_, block)| *block).collect();
        if chosen.is_empty() {
            return Ok(());
        }
        let mut moves = Moves::default();
        for (file, known) in &self.tree.inodes {
            let view = known.view.look();
            let inside = view.map.extents().filter(|(_, extent)| chosen.contains(&extent.place.block));
            inside.for_each(|(first, extent)| moves.add(Move { file: *file, first, extent }));
        }
        self.move_inside(&mut moves)?;
        self.move_through_memory(moves)
    }

    /// As much as the medium copies by itself.
    fn move_inside(&mut self, moves: &mut Moves) -> Result<(), FileError> {
        loop {
            let moved = moving::run(&mut self.content.blocks, moves)?;
            for (one, place) in moved.placed {
                let bytes = u64::from(one.extent.count) * IU;
                self.statistics.cleaned_bytes += bytes;
                self.statistics.cleaned_inside_bytes += bytes;
                self.place(one.file, one.first, one.extent.count, place);
            }
            if !moved.goes_on {
                return Ok(());
            }
        }
    }

    fn move_through_memory(&mut self, mut moves: Moves) -> Result<(), FileError> {
        let mut gathered = Gathering::new(self.content.blocks.batch_ius(), self.content.blocks.unit_ius());
        let mut gathered_ius = 0;
        while let Some(Move { file, first, extent }) = moves.next() {
            let mut bytes = vec![0; extent.count as usize * IU_SIZE_BYTES];
            self.content.blocks.read(extent.place, &mut bytes)?;
            for (at, page) in bytes.chunks_exact(IU_SIZE_BYTES).enumerate() {
                gathered.add_page(COLD, file, first + at as u64, page);
            }
            self.statistics.cleaned_bytes += u64::from(extent.count) * IU;
            gathered_ius += u64::from(extent.count);
            if gathered_ius >= GATHERED_MAX_IUS {
                let next = Gathering::new(self.content.blocks.batch_ius(), self.content.blocks.unit_ius());
                self.write_out(std::mem::replace(&mut gathered, next))?;
                gathered_ius = 0;
            }
        }
        self.write_out(gathered)
    }

    /// With everything that was written.
    pub fn checkpoint(&mut self) -> Result<(), FileError> {
        self.flush()?;
        self.write_checkpoint()
    }

    /// The map as the log has it: names and sizes that wait go out first, pages that wait stay.
    pub fn write_checkpoint(&mut self) -> Result<(), FileError> {
        if !self.log.pending.is_empty() {
            let mut gathering =
                Gathering::new(self.content.blocks.batch_ius(), self.content.blocks.unit_ius());
            std::mem::take(&mut self.log.pending)
                .into_iter()
                .for_each(|record| gathering.add_record(0, record));
            self.write_out(gathering)?;
        }
        self.content.blocks.make_all_safe()?;
        assert!(
            self.log.pending.is_empty(),
            "I-F1: the checkpoint covers every batch, and nothing waits that it has not"
        );
        self.log.checkpoint_number += 1;
        let parts = self.checkpoint_parts();
        let before = self.content.blocks.write_checkpoint(&parts)?;
        self.statistics.checkpoints += 1;
        self.statistics.freed_blocks +=
            u64::from(self.content.blocks.free_unused(&before, &self.tree.views)?);
        Ok(())
    }

    fn checkpoint_parts(&self) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.extend((self.log.next_sequence - 1).to_le_bytes());
        bytes.extend(self.tree.next_file.to_le_bytes());
        // With those that have no name any more, which the next attach ends.
        bytes.extend((self.tree.inodes.len() as u32).to_le_bytes());
        for (number, inode) in &self.tree.inodes {
            bytes.extend(number.to_le_bytes());
            bytes.extend([inode.kind as u8, inode.hint]);
            put_attributes(&mut bytes, &inode.attributes);
            bytes.extend(inode.logged_bytes.to_le_bytes());
            put_bytes(&mut bytes, &inode.target);
            let view = inode.view.look();
            bytes.extend((view.map.len() as u32).to_le_bytes());
            for (first, extent) in view.map.extents() {
                bytes.extend(first.to_le_bytes());
                bytes.extend(extent.count.to_le_bytes());
                put_place(&mut bytes, extent.place);
            }
            bytes.extend((inode.entries.len() as u32).to_le_bytes());
            for (name, file) in &inode.entries {
                put_name(&mut bytes, name);
                bytes.extend(file.to_le_bytes());
            }
        }
        // Blocks without batches that come after this; those that nobody needs are freed next.
        let closed = self.content.blocks.uses.iter().filter(|(_, known)| !known.is_open && known.live > 0);
        let closed: Vec<_> = closed.map(|(block, _)| *block).collect();
        bytes.extend((closed.len() as u32).to_le_bytes());
        closed.iter().for_each(|block| put_block(&mut bytes, *block));
        let unit = self.content.blocks.unit_ius();
        let most = (self.content.blocks.batch_ius() as usize - 1) * IU_SIZE_BYTES;
        let count = bytes.len().div_ceil(most);
        let part_of = |(part, piece): (usize, &[u8])| {
            let data_ius = piece.len().div_ceil(IU_SIZE_BYTES) as u32;
            let header = Header {
                kind: Kind::Checkpoint,
                sequence: self.log.checkpoint_number,
                ius: (data_ius + 1).next_multiple_of(unit),
                data_ius,
                length_bytes: piece.len() as u32,
                part: u16::try_from(part).expect("a map of less than gigabytes"),
                parts: u16::try_from(count).expect("a map of less than gigabytes"),
                data_check: 0,
            };
            header.with_data(&[], piece)
        };
        bytes.chunks(most).enumerate().map(part_of).collect()
    }
}
