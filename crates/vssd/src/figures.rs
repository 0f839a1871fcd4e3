//! What the media did for one vSSD, and how its erase blocks are.

use crate::VssdId;
use crate::pool::Pool;
use crate::space::HeldBlock;
use diecut_units::{EraseBlockAddress, IU_SIZE_BYTES};
use std::collections::BTreeSet;

/// See the module. Counted since the pool was opened, but for erases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaUse {
    /// Bytes that its holder had programmed: all that it appended.
    pub programmed_bytes: u64,
    /// Bytes that were read for its holder.
    pub read_bytes: u64,
    /// Erase blocks of its own, and those of them that hold nothing.
    pub blocks: (u64, u64),
    /// Erases of blocks that it holds: the most, the least, all.
    pub erases: (u32, u32, u64),
    /// Blocks that it holds.
    pub held_blocks: u64,
    /// Dies that it lies on, each behind the number of its device.
    pub dies: BTreeSet<(u16, u32)>,
    /// Blocks that were retired on these, and that may be.
    pub retired: (u64, u64),
}

/// Blocks that the holder of a vSSD holds, and where they lie, for tests: none if there is no such vSSD.
pub fn held_blocks(pool: &Pool, id: VssdId) -> Vec<(HeldBlock, EraseBlockAddress)> {
    pool.core.at_of(id).map_or_else(Vec::new, |at| pool.core.held_blocks(at).collect())
}

impl MediaUse {
    /// That of a vSSD on a device, as the caller numbers devices; nothing if there is none of that number.
    pub fn of(pool: &Pool, id: VssdId, device: u16) -> MediaUse {
        let core = &pool.core;
        let Some(vssd) = core.at_of(id).map(|at| &core.vssds[at]) else { return MediaUse::default() };
        let dies: BTreeSet<u32> = vssd.units.iter().map(|unit| unit.place.die).collect();
        let held = vssd.units.iter().flat_map(|unit| &unit.map).filter(|number| **number != u32::MAX);
        let counts: Vec<u32> = held.map(|number| core.blocks[*number].erase_count).collect();
        let retired = dies.iter().map(|die| u64::from(core.blocks.die(*die).retired)).sum();
        MediaUse {
            programmed_bytes: vssd.appended_ius * IU_SIZE_BYTES as u64,
            read_bytes: vssd.read_bytes,
            blocks: pool.erase_blocks_of(id),
            erases: (
                counts.iter().copied().max().unwrap_or(0),
                counts.iter().copied().min().unwrap_or(0),
                counts.iter().map(|count| u64::from(*count)).sum(),
            ),
            held_blocks: counts.len() as u64,
            retired: (retired, u64::from(core.blocks.reserve()) * dies.len() as u64),
            dies: dies.into_iter().map(|die| (device, die)).collect(),
        }
    }

    /// Adds that of another vSSD, or of another part of the same.
    pub fn add(&mut self, other: MediaUse) {
        let is_first = self.held_blocks == 0;
        self.programmed_bytes += other.programmed_bytes;
        self.read_bytes += other.read_bytes;
        self.blocks = (self.blocks.0 + other.blocks.0, self.blocks.1 + other.blocks.1);
        if other.held_blocks > 0 {
            let least = if is_first { other.erases.1 } else { self.erases.1.min(other.erases.1) };
            self.erases = (self.erases.0.max(other.erases.0), least, self.erases.2 + other.erases.2);
        }
        self.held_blocks += other.held_blocks;
        let is_new = !other.dies.is_subset(&self.dies);
        self.dies.extend(other.dies);
        if is_new {
            self.retired = (self.retired.0 + other.retired.0, self.retired.1 + other.retired.1);
        }
    }
}
