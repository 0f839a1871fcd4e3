//! The pool: one device, its blocks, its vSSDs and the arbiter of its dies.

use crate::blocks::Blocks;
use crate::by_id::ById;
use crate::check::Check;
use crate::config::UNKNOWN_DIE_TIMES;
use crate::dies::share::Share;
use crate::dies::{DieQueues, QueueSettings};
use crate::moving::Migration;
use crate::resources::{DieUse, Resources};
use crate::states::replay::Replay;
use crate::states::{BlockEntry, BlockState, BlockStates, LogEvent, UnitEntry, VssdEntry};
use crate::tenancy::{Unit, Vssd};
use crate::token::POOL_TOKEN_BIT;
use crate::{
    BlockShape, DeviceAge, DieLayout, LogicalBlock, PoolConfig, SpaceCompletion, SpaceError, SystemArea,
    VssdId,
};
use diecut_media::{Media, MediaError, MediaToken};
use diecut_units::{BlockIndex, EraseBlockAddress, Geometry, Time};

/// Resource manager, block map and die arbiter of one device.
pub struct Pool {
    pub(crate) geometry: Geometry,
    pub(crate) shape: BlockShape,
    pub(crate) config: PoolConfig,
    system: SystemArea,
    pub(crate) resources: Resources,
    pub(crate) blocks: Blocks,
    pub(crate) queues: DieQueues,
    /// In order of creation.
    pub(crate) vssds: ById<Vssd>,
    pub(crate) next_vssd: u32,
    /// See [`Pool::former_work`].
    pub(crate) former_work: (u64, u64),
    pub(crate) ready: Vec<(VssdId, SpaceCompletion)>,
    /// What survives.
    pub(crate) states: BlockStates,
    pub(crate) check: Check,
    /// While it is opened from flash.
    pub(crate) replay: Option<Box<Replay>>,
    pub(crate) migration: Migration,
    /// When the present window of the averages ends.
    pub(crate) window_end: Time,
    /// Erases were counted since wear was looked at.
    pub(crate) wear_changed: bool,
    /// Somebody else chooses what is exchanged.
    pub(crate) follows: bool,
    /// Exchanges in other pools, by their dies, of whoever keeps account of all channels.
    pub(crate) elsewhere: Vec<[u32; 2]>,
    /// How many erases were counted since wear was looked at.
    pub(crate) unlooked_erases: u64,
    /// Erases that make a swap of channels, or of dies, due now.
    pub(crate) thresholds: [u64; 2],
}

impl Pool {
    /// Makes a pool over a device whose content does not matter.
    pub fn create<M: Media + ?Sized>(media: &M, config: PoolConfig) -> Pool {
        let geometry = *media.geometry();
        let capabilities = media.capabilities();
        let per_die = geometry.erase_blocks_per_die();
        let system = SystemArea::probe(media, config.catalog_blocks_per_die, config.journal_blocks_per_die);
        let system_blocks = config.catalog_blocks_per_die + config.journal_blocks_per_die;
        let reserve_blocks = (per_die * config.bad_block_reserve_permille).div_ceil(1000);
        let (mut blocks, mut uses) = (Blocks::new(per_die, reserve_blocks), Vec::new());
        let mut worst = per_die;
        for (number, die) in geometry.all_dies().enumerate() {
            let mut good = 0;
            blocks.add_die((0..per_die).map(|index| {
                let address = die.erase_block(BlockIndex(index));
                let is_good = !media.is_factory_bad(address);
                good += u32::from(is_good);
                is_good && !system.contains(number as u32, address)
            }));
            let usable = good * 100 >= per_die * config.usable_die_percent;
            if usable {
                worst = worst.min(good);
            }
            uses.push(if usable { DieUse::Free } else { DieUse::Dead });
        }
        let set_aside = system_blocks + reserve_blocks + config.spare_blocks_per_die.max(2);
        let resources = Resources {
            geometry,
            dies: uses,
            soft_planes_per_die: config.soft_planes_per_die,
            die_blocks: worst.saturating_sub(set_aside),
            placement: config.die_placement,
        };
        let shape = BlockShape {
            pages: geometry.pages_per_erase_block(),
            page_size_bytes: geometry.page_size_bytes,
            program_unit_pages: capabilities.program_unit_pages,
            unsafe_units: capabilities.unsafe_units,
            pipelined_units: 0,
            oob_size_bytes: geometry.oob_size_bytes,
            holder_oob_offset: crate::OOB_RECORD_SIZE_BYTES as u32,
            content_mode: capabilities.content_mode,
        };
        let migration = Migration::new(config.wear.rate_bytes_per_second);
        let thresholds = config.wear.thresholds(&DieLayout::of(&geometry), DeviceAge::default());
        let costs = config.costs.or(capabilities.die_times).unwrap_or(UNKNOWN_DIE_TIMES);
        let queues = DieQueues::new(QueueSettings::new(&config, costs, media), geometry.dies());
        Pool {
            geometry,
            shape,
            config,
            system,
            resources,
            blocks,
            queues,
            vssds: ById::default(),
            next_vssd: 1,
            former_work: (0, 0),
            ready: Vec::new(),
            states: BlockStates::Nowhere,
            check: Check::default(),
            replay: None,
            migration,
            window_end: Time::ZERO,
            wear_changed: false,
            follows: false,
            elsewhere: Vec::new(),
            unlooked_erases: 0,
            thresholds,
        }
    }

    /// The erase blocks of a vSSD, lent for a call.
    ///
    /// # Panics
    /// If there is no such vSSD.
    pub fn space<'a, M: Media + ?Sized>(
        &'a mut self,
        id: VssdId,
        media: &'a mut M,
        now: Time,
    ) -> crate::Space<'a, M> {
        let at = self.at_of(id).expect("the vSSD exists");
        crate::Space { pool: self, media, at, now }
    }
    /// Shape of every erase block.
    pub fn shape(&self) -> &BlockShape {
        &self.shape
    }
    /// Whether a media completion belongs to the pool.
    pub fn owns(token: MediaToken) -> bool {
        token.0 & POOL_TOKEN_BIT != 0
    }
    /// The reserved blocks.
    pub fn system_area(&self) -> &SystemArea {
        &self.system
    }
    /// vSSDs in order of creation.
    pub fn vssd_ids(&self) -> impl Iterator<Item = VssdId> + '_ {
        self.vssds.ids()
    }
    /// Erases of a die since the pool was made.
    pub fn die_erases(&self, die_number: u32) -> u64 {
        self.blocks.die(die_number).erases
    }
    /// Erases for a vSSD since it was made; 0 if there is none.
    pub fn vssd_erases(&self, id: VssdId) -> u64 {
        self.at_of(id).map_or(0, |at| self.vssds[at].erases)
    }
    /// IUs that the holder of a vSSD appended since the pool was opened; 0 if there is none.
    pub fn appended_ius(&self, id: VssdId) -> u64 {
        self.at_of(id).map_or(0, |at| self.vssds[at].appended_ius)
    }
    /// IUs appended and erases for vSSDs that were deallocated here since the pool was opened.
    pub fn former_work(&self) -> (u64, u64) {
        self.former_work
    }
    /// Which erase block of the device holds a block of a vSSD now, numbered over all dies: for tests, which look whether it
    /// moved. Nothing if it is not held.
    pub fn place_of_block(&self, id: VssdId, block: LogicalBlock) -> Option<u32> {
        let unit = self.vssds[self.at_of(id)?].units.get(usize::from(block.unit.0))?;
        unit.map.get(block.index as usize).copied().filter(|number| *number != u32::MAX)
    }
    /// Free channels and free dies.
    pub fn free_resources(&self) -> (u32, u32) {
        (self.resources.free_channels(), self.resources.free_dies())
    }
    /// Takes answers that were ready at once; call after every use of a space.
    pub fn take_ready(&mut self, completions: &mut Vec<(VssdId, SpaceCompletion)>) {
        completions.append(&mut self.ready);
    }
    /// Whether [`Pool::take_ready`] has something.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
    /// Where a vSSD stands among the others, if there is such a vSSD.
    #[inline]
    pub(crate) fn at_of(&self, id: VssdId) -> Option<usize> {
        self.vssds.at(id)
    }
    pub(crate) fn die_of(&self, block: u32) -> usize {
        (block / self.geometry.erase_blocks_per_die()) as usize
    }
    pub(crate) fn address(&self, block: u32) -> EraseBlockAddress {
        let die = self.geometry.die_at(self.die_of(block) as u32);
        die.erase_block(BlockIndex(block % self.geometry.erase_blocks_per_die()))
    }

    /// Sets a vSSD's share of the dies it lies on. Un-isolated vSSDs are served first come first served; theirs means
    /// nothing.
    ///
    /// # Panics
    /// If there is no such vSSD, or the weight is 0.
    pub fn set_share(&mut self, id: VssdId, share: Share, now: Time) {
        assert!(share.weight > 0, "a weight of 0 would starve vSSD {}", id.0);
        assert!(self.at_of(id).is_some(), "vSSD {} exists", id.0);
        self.queues.set_share(id, share, now);
        self.weigh(id);
    }
    /// The share that a vSSD has now, if there is such a vSSD.
    pub fn share_of(&self, id: VssdId) -> Option<Share> {
        self.queues.share_of(id)
    }
    /// Gives the flows of a vSSD its weight, also those on dies that its units move to.
    pub(crate) fn weigh(&mut self, id: VssdId) {
        for unit in &self.vssds.of(id).units {
            let target = unit.target.as_ref().map(|target| (target.die, target.flow));
            for (die, flow) in std::iter::once((unit.place.die, unit.flow)).chain(target) {
                self.queues.weigh(die, flow, id);
            }
        }
    }
    /// Whether the vSSD's queues have room; if not, what comes for it is parked, and whoever feeds it should wait.
    /// True if there is no such vSSD.
    pub fn has_room(&self, id: VssdId) -> bool {
        self.queues.has_room(id)
    }
    /// Operations that wait in a die's queue, and those parked because it is full.
    pub fn die_queue(&self, die_number: u32) -> (u32, u32) {
        self.queues.waiting_at(die_number)
    }
    /// Takes the vSSDs whose [`Pool::has_room`] may have changed since the last call; some may be there twice.
    pub fn take_room_changes(&mut self, changes: &mut Vec<VssdId>) {
        self.queues.take_room_changes(changes);
    }
    /// Takes the vSSDs that their rates came to keep waiting since the last call; each is told of once a minute.
    pub fn take_limits_met(&mut self) -> Vec<VssdId> {
        self.queues.take_limits_met()
    }
    /// When [`Pool::work`] has something to do.
    pub fn deadline(&self) -> Time {
        self.queues.deadline().min(self.wear_deadline())
    }
    /// Serves what waited for tokens until `now`, and lets exchanges for wear go on.
    pub fn work<M: Media + ?Sized>(&mut self, now: Time, media: &mut M) {
        self.level_wear(now, media);
        self.queues.serve_throttled(media, now);
    }

    /// Whether everything that was changed so far survives a power cut. It will, if [`Pool::make_durable`] was called.
    pub fn is_durable(&self) -> bool {
        self.states.is_durable()
    }
    /// Whether the journal has no place left that takes writes: nothing that is changed now survives a restart.
    pub fn is_journal_lost(&self) -> bool {
        self.states.is_lost()
    }
    /// IUs that the journal programmed and erases it asked for, since the pool was opened.
    pub fn journal_work(&self) -> (u64, u64) {
        self.states.log_work()
    }
    /// Begins to make everything durable that was changed so far; done when [`Pool::is_durable`].
    pub fn make_durable<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        self.states.want();
        self.kick_journal(media, now);
    }

    /// Writes a block's state down.
    pub(crate) fn record(&mut self, number: u32, state: BlockState) {
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
    pub(crate) fn record_vssd(&mut self, at: usize) {
        let vssd = &self.vssds[at];
        let unit = |unit: &Unit| UnitEntry {
            place: unit.place,
            moves: unit.target.is_some(),
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
    pub(crate) fn kick_journal<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        if self.states.kick(media, now) {
            self.count_journal_erases();
        }
    }

    /// A command of the log of block states came back: what waited for it goes on.
    pub(crate) fn journal_completed<M: Media + ?Sized>(
        &mut self,
        result: Result<(), MediaError>,
        now: Time,
        media: &mut M,
    ) {
        match self.states.completed(result, media, now) {
            LogEvent::Stopped => return,
            LogEvent::GoesOn => {}
            LogEvent::MoreDurable => {
                self.answer_syncs(Ok(()));
                while let Some(at) = self.states.take_erase() {
                    self.enqueue_stored(at, media, now);
                }
                self.discard_freed(media, now);
            }
            LogEvent::Lost => return self.journal_failed(now, media),
        }
        self.kick_journal(media, now);
    }

    fn answer_syncs(&mut self, result: Result<(), SpaceError>) {
        while let Some((id, token)) = self.states.take_sync() {
            self.ready.push((id, SpaceCompletion { token, result, destination: None, oob: None }));
        }
    }

    /// No block takes the log any more: what is on flash still reads, nothing new is promised.
    fn journal_failed<M: Media + ?Sized>(&mut self, now: Time, media: &mut M) {
        for vssd in self.vssds.iter_mut() {
            vssd.read_only = true;
        }
        self.answer_syncs(Err(SpaceError::ReadOnly));
        while let Some(at) = self.states.take_erase() {
            let op = self.queues.ops.remove(at);
            if op.kind.is_of_copy() {
                self.migration.erase_failed(op.token);
                continue;
            }
            let block = &mut self.blocks[op.block];
            block.in_flight -= 1;
            block.fail();
            self.release_waiting(op.block, media, now);
            self.settle(op.block);
        }
    }

    /// Checks everything against everything; slow.
    ///
    /// # Panics
    /// If anything does not add up.
    pub fn check_invariants(&self) {
        for vssd in self.vssds.iter() {
            let mapped = vssd.units.iter().flat_map(|unit| &unit.map).filter(|number| **number != u32::MAX);
            let mut sequences: Vec<u64> = mapped.map(|number| self.blocks[*number].sequence).collect();
            sequences.sort_unstable();
            assert!(
                sequences.is_sorted_by(|one, next| one < next),
                "vSSD {}: two allocations are one",
                vssd.id.0
            );
            for unit in &vssd.units {
                for (index, &number) in unit.map.iter().enumerate().filter(|(_, number)| **number != u32::MAX)
                {
                    let block = &self.blocks[number];
                    assert!(block.is_mapped() && block.owner == vssd.id, "block {number} is held (I-V13)");
                    assert!(block.logical.index as usize == index, "block {number} knows its place");
                    let die = self.die_of(number) as u32;
                    let target = unit.target.as_ref().is_some_and(|target| target.die == die);
                    assert!(die == unit.place.die || target || block.is_suspect(), "a unit stays on its die");
                }
            }
        }
        let mapped = |vssd: &Vssd| -> usize {
            vssd.units.iter().map(|unit| unit.map.iter().filter(|&&number| number != u32::MAX).count()).sum()
        };
        let held = self.blocks.check_invariants();
        assert_eq!(
            held,
            self.vssds.iter().map(mapped).sum::<usize>(),
            "held blocks are mapped, once (I-V13)"
        );
    }
}
