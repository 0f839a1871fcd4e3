//! What a pool's holders use: vSSDs, their blocks, the queues of the dies, and what is written down. It knows nothing of wear leveling,
//! which works on it.

mod flush;
pub(crate) use flush::is_flushed;
mod header;
mod life;
mod operation;
mod purge;

use crate::blocks::Blocks;
use crate::dies::{DieQueues, Kind, Sharer};
use crate::erases::Heat;
use crate::owners::by_id::ById;
use crate::owners::resources::{DieUse, Resources, UnitPlace};
use crate::owners::{Unit, Vssd};
use crate::states::{BlockEntry, BlockState, BlockStates, LogEvent, Sizes, UnitEntry, VssdEntry};
use crate::{BlockShape, HeldBlock, Nonces, PoolConfig, SpaceCompletion, SpaceError, SpaceToken, VssdId};
use diecut_media::{Media, MediaError};
use diecut_spec::Isolation;
use diecut_units::{BlockIndex, Buffer, EraseBlockAddress, Geometry, Slab, Time};
use std::collections::BTreeMap;

/// See the module.
pub(crate) struct Core {
    pub geometry: Geometry,
    pub shape: BlockShape,
    pub config: PoolConfig,
    pub resources: Resources,
    pub blocks: Blocks,
    pub queues: DieQueues,
    /// In order of creation.
    pub vssds: ById<Vssd>,
    pub next_vssd: u32,
    /// IUs appended and erases for vSSDs that were deallocated here since the pool was opened.
    pub former_work: (u64, u64),
    /// What survives.
    pub states: BlockStates,
    /// Answers that holders were not given yet.
    pub ready: Vec<(VssdId, SpaceCompletion)>,
    /// When the present window of the averages ends.
    pub window_end: Time,
    /// Erases for holders that were counted since somebody looked at wear.
    pub unlooked_erases: u64,
    /// Whether some vSSD is being purged.
    pub has_purges: bool,
    /// Purges can go on, and no completion will tell.
    pub purges_are_due: bool,
    /// Pages at the start of each block that hold its header, before the first page of its holder; 0 where pages have OOB areas.
    pub header_pages: u32,
    /// Of the medium, where blocks have headers.
    pub nonces: Option<Nonces>,
    /// Headers of blocks that are being erased.
    pub headers: BTreeMap<u32, Buffer>,
    /// Flushes that holders wait for.
    pub flushes: Slab<(VssdId, SpaceToken)>,
}

impl Core {
    /// Where a vSSD stands among the others, if there is such a vSSD.
    #[inline]
    pub fn at_of(&self, id: VssdId) -> Option<usize> {
        self.vssds.at(id)
    }

    /// Blocks that the holder of a vSSD holds, and where they lie.
    pub fn held_blocks(&self, at: usize) -> impl Iterator<Item = (HeldBlock, EraseBlockAddress)> {
        let numbers = self.vssds[at].units.iter().flat_map(|unit| unit.map.iter().copied());
        let held = numbers.filter(|number| *number != u32::MAX && self.blocks[*number].is_held());
        held.map(|number| {
            let block = &self.blocks[number];
            let held = HeldBlock {
                block: block.logical,
                purpose: block.purpose,
                written_pages: block.next_page,
                allocation_sequence: block.sequence,
            };
            (held, self.address(number))
        })
    }

    /// The die that a block lies on.
    pub fn die_of(&self, block: u32) -> usize {
        (block / self.geometry.erase_blocks_per_die()) as usize
    }

    /// Where a block lies.
    pub fn address(&self, block: u32) -> EraseBlockAddress {
        let die = self.geometry.die_at(self.die_of(block) as u32);
        die.erase_block(BlockIndex(block % self.geometry.erase_blocks_per_die()))
    }

    /// Sizes that what is written down depends on.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            soft_planes_per_die: self.config.soft_planes_per_die,
            catalog_blocks_per_die: self.config.catalog_blocks_per_die,
            state_log_blocks_per_die: self.config.state_log_blocks_per_die,
            die_blocks: self.resources.die_blocks,
        }
    }

    /// Whether a die is this pool's: of a divided device, its channel is one pool's.
    pub fn owns_die(&self, die: u32) -> bool {
        let channel = self.geometry.die_at(die).channel.0;
        self.states.holds_channel(channel)
    }

    /// Whether a die cannot take what another one holds.
    pub fn is_worn(&self, die: u32) -> bool {
        self.resources.dies[die as usize] == DieUse::Dead
            || self.blocks.die(die).retired >= self.blocks.reserve().max(1)
    }

    /// Places a vSSD where its places were taken.
    pub fn place(&mut self, id: VssdId, isolation: Isolation, places: &[UnitPlace]) {
        let units = places.iter().map(|&place| {
            assert!(self.owns_die(place.die), "vSSD {} lies on dies of this pool (I-V3)", id.0);
            let count = self.resources.unit_blocks(place);
            let flow = self.queues.join(place.die, id, isolation);
            let map = vec![u32::MAX; count as usize];
            Unit {
                place,
                flow,
                destination: None,
                heat: Heat::default(),
                lost_blocks: 0,
                map,
                free_indices: (0..count).rev().collect(),
            }
        });
        let units: Vec<Unit> = units.collect();
        units.iter().for_each(|unit| self.states.set_heat(unit.place, [0, 0]));
        let vssd = Vssd {
            id,
            isolation,
            units,
            operations: 0,
            appended_ius: 0,
            header_ius: 0,
            read_bytes: 0,
            read_only: false,
            free_changes: 0,
            erases: 0,
            purge: None,
        };
        self.vssds.insert(id, vssd);
        self.queues.admit(id, Sharer::default());
    }

    /// Gives the flows of a vSSD its weight, also those on dies that its units move to.
    pub fn weigh(&mut self, id: VssdId) {
        for unit in &self.vssds.of(id).units {
            let destination =
                unit.destination.as_ref().map(|destination| (destination.die, destination.flow));
            for (die, flow) in std::iter::once((unit.place.die, unit.flow)).chain(destination) {
                self.queues.weigh(die, flow, id);
            }
        }
    }

    /// Writes a block's state down.
    pub fn record(&mut self, number: u32, state: BlockState) {
        let block = &self.blocks[number];
        let entry = BlockEntry {
            state,
            lost_pages: block.lost_pages,
            owner: block.owner,
            logical: block.logical,
            purpose: block.purpose,
            erase_count: block.erase_count,
            sequence: block.sequence,
        };
        self.states.set_block(number, &entry);
    }

    /// Writes a vSSD down as it is now.
    pub fn record_vssd(&mut self, at: usize) {
        let vssd = &self.vssds[at];
        let unit = |unit: &Unit| UnitEntry {
            place: unit.place,
            moves: unit.destination.is_some(),
            lost_blocks: unit.lost_blocks,
        };
        let entry = VssdEntry {
            id: vssd.id,
            placed: true,
            isolation: vssd.isolation,
            read_only: vssd.read_only,
            units: vssd.units.iter().map(unit).collect(),
        };
        self.states.set_vssd(&entry);
    }

    /// Lets the log of block states write if somebody waits for it, and counts what it erased.
    #[inline]
    pub fn kick_state_log<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        if self.states.kick(media, now) {
            self.count_state_log_erases();
        }
    }

    /// A command of the log of block states came back: what waited for it goes on. Gives the copies whose erases will not be done: the log
    /// took its last block.
    pub fn state_log_completed<M: Media + ?Sized>(
        &mut self,
        result: Result<(), MediaError>,
        now: Time,
        media: &mut M,
    ) -> Vec<SpaceToken> {
        let event = self.states.completed(result, media, now);
        self.states_became_durable(event, now, media)
    }

    /// More of the block states is durable, or nothing more will be. See [`Core::state_log_completed`].
    pub fn states_became_durable<M: Media + ?Sized>(
        &mut self,
        event: LogEvent,
        now: Time,
        media: &mut M,
    ) -> Vec<SpaceToken> {
        match event {
            LogEvent::Stopped => return Vec::new(),
            LogEvent::GoesOn => {}
            LogEvent::MoreDurable => {
                self.answer_syncs(Ok(()));
                while let Some(at) = self.states.take_erase() {
                    self.enqueue_stored(at, media, now);
                }
                self.discard_freed(media, now);
            }
            LogEvent::Lost => return self.state_log_failed(now, media),
        }
        self.kick_state_log(media, now);
        Vec::new()
    }

    fn answer_syncs(&mut self, result: Result<(), SpaceError>) {
        while let Some((id, token)) = self.states.take_sync() {
            self.ready
                .push((id, SpaceCompletion { token, result, destination: None, oob: None, retries: 0 }));
        }
    }

    /// No block takes the log any more: what is on flash still reads, nothing new is promised.
    fn state_log_failed<M: Media + ?Sized>(&mut self, now: Time, media: &mut M) -> Vec<SpaceToken> {
        for vssd in self.vssds.iter_mut() {
            vssd.read_only = true;
            vssd.free_changes += 1;
        }
        self.answer_syncs(Err(SpaceError::ReadOnly));
        let mut copies = Vec::new();
        while let Some(at) = self.states.take_erase() {
            let op = self.queues.ops.remove(at);
            if op.kind.is_of_copy() {
                copies.push(op.token);
                continue;
            }
            if op.kind == Kind::PurgeErase {
                self.purge_erase_given_up(&op);
                continue;
            }
            let block = &mut self.blocks[op.block];
            block.in_flight -= 1;
            block.fail();
            self.release_waiting(op.block, media, now);
            self.settle(op.block);
        }
        copies
    }
}
