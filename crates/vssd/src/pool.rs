//! The pool: wiring of one device's block states, blocks, queues, vSSDs and wear, and what others may ask of them.

use crate::blocks::{Blocks, Quarantined};
use crate::check::Check;
use crate::config::UNKNOWN_DIE_TIMES;
use crate::core::{Core, is_flushed};
use crate::dies::share::Share;
use crate::dies::{DieQueues, QueueSettings};
use crate::erases::{DieWear, Heat};
use crate::owners::by_id::ById;
use crate::owners::resources::{AllocError, DeallocError, DieUse, Resources, UnitPlace};
use crate::owners::{UnitLocation, Vssd};
use crate::recovery::take_over;
use crate::states::log::StateLog;
use crate::states::replay::Replay;
use crate::states::{BlockStates, StateTable, VssdEntry};
use crate::token::{POOL_TOKEN_BIT, is_of_check, is_of_flush, is_of_log};
use crate::wear::Wear;
use crate::wear::exchange::ExchangeError;
use crate::wear::migration::{CopyWork, WearNews};
use crate::wear::policy::{DieLayout, PlaceView};
use crate::{
    BlockShape, LogicalBlock, MigrationStatus, OpenError, PoolConfig, SpaceCompletion, SystemArea, VssdId,
    WearConfig,
};
use diecut_media::{Completion, Media, MediaToken};
use diecut_spec::Isolation;
use diecut_units::{BlockIndex, Geometry, ProtectedRegion, Slab, Time};
use std::collections::BTreeMap;

/// Resource manager, block map and die arbiter of one device.
pub struct Pool {
    /// What holders use.
    pub(crate) core: Core,
    pub(crate) wear: Wear,
    system: SystemArea,
    check: Check,
    /// While it is opened from flash.
    pub(crate) replay: Option<Box<Replay>>,
    /// Other pools are to have channels of the device.
    divides: bool,
}

impl Pool {
    /// Makes a pool over a device whose content does not matter.
    ///
    /// # Panics
    /// If pages have no OOB areas, and [`PoolConfig::nonces`] are missing.
    pub fn create<M: Media + ?Sized>(media: &M, config: PoolConfig) -> Pool {
        let geometry = *media.geometry();
        let capabilities = media.capabilities();
        let per_die = geometry.erase_blocks_per_die();
        let system = SystemArea::probe(media, config.catalog_blocks_per_die, config.state_log_blocks_per_die);
        let system_blocks = config.catalog_blocks_per_die + config.state_log_blocks_per_die;
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
        let header_pages = if geometry.has_oob() { 0 } else { capabilities.program_unit_pages };
        let nonces = config.nonces.filter(|_| header_pages > 0);
        assert_eq!(nonces.is_some(), header_pages > 0, "blocks without OOB areas have headers with nonces");
        let pages = geometry.pages_per_erase_block() - header_pages;
        let shape = BlockShape {
            pages,
            page_size_bytes: geometry.page_size_bytes,
            program_unit_pages: capabilities.program_unit_pages,
            unsafe_units: if header_pages > 0 { pages } else { capabilities.unsafe_units },
            pipelined_units: 0,
            oob_size_bytes: geometry.oob_size_bytes,
            holder_oob_offset: if header_pages == 0 { crate::OOB_RECORD_SIZE_BYTES as u32 } else { 0 },
            content_mode: capabilities.content_mode,
            volatile_cache: is_flushed(header_pages, capabilities),
        };
        let hides_dies = header_pages > 0 && !capabilities.independent_units;
        let wear = Wear::new(&config.wear, &DieLayout::of(&geometry), hides_dies);
        let costs = config.costs.or(capabilities.die_times).unwrap_or(UNKNOWN_DIE_TIMES);
        let queues = DieQueues::new(QueueSettings::new(&config, costs, media), geometry.dies());
        let core = Core {
            geometry,
            shape,
            config,
            resources,
            blocks,
            queues,
            vssds: ById::default(),
            next_vssd: 1,
            former_work: (0, 0),
            states: BlockStates::Nowhere,
            ready: Vec::new(),
            window_end: Time::ZERO,
            unlooked_erases: 0,
            has_purges: false,
            purges_are_due: false,
            header_pages,
            nonces,
            headers: BTreeMap::new(),
            flushes: Slab::new(),
        };
        Pool { core, wear, system, check: Check::default(), replay: None, divides: false }
    }

    /// Bytes of protected memory that the table of block states takes.
    pub fn block_states_size_bytes(geometry: &Geometry, config: &PoolConfig) -> usize {
        StateTable::size_bytes(geometry, config.soft_planes_per_die)
    }

    /// Opens a pool whose block states are in `memory`, the same part of protected memory at each opening; an empty one
    /// (zeros) is made new. Blocks that were open are given back to their holders as they are, for reading only.
    ///
    /// # Errors
    /// Says what is wrong with the block states; nothing is changed then.
    pub fn open<M: Media + ?Sized>(
        media: &M,
        config: PoolConfig,
        memory: ProtectedRegion,
    ) -> Result<Pool, OpenError> {
        let mut pool = Pool::create(media, config);
        let (table, is_new) = StateTable::open(memory, &pool.core.geometry, &pool.core.sizes())?;
        pool.go_on_with(table, None, is_new)?;
        Ok(pool)
    }

    /// Opens a pool on a medium without protected memory. It is to be used when [`Pool::is_open`]; completions of the medium
    /// lead there. An empty medium is made new, if that can be told: where pages have no OOB areas it cannot ([`Pool::make_on_flash`]).
    pub fn open_from_flash<M: Media + ?Sized>(media: &mut M, config: PoolConfig, now: Time) -> Pool {
        let mut pool = Pool::create(media, config);
        pool.opened_from_flash();
        let mut replay = Replay::new(pool.system_area(), pool.core.sizes(), pool.core.nonces, media);
        if replay.error.is_none() {
            replay.read(media, now);
        }
        pool.replay = Some(Box::new(replay));
        pool
    }

    /// How much was programmed is found by looking: what followed a failed program is found, too. With protected memory only what completed is
    /// counted.
    pub(crate) fn opened_from_flash(&mut self) {
        self.core.shape.pipelined_units = u32::from(self.core.config.program_window).saturating_sub(1);
    }

    /// Makes a pool on a medium whose pages have no OOB areas, whatever lies there. Its nonces are those of a device UUID that nothing was
    /// written under: what an earlier pool of the same UUID left would count. It is one when [`Pool::is_durable`] after
    /// [`Pool::make_durable`]: the label that says so is written then.
    ///
    /// # Errors
    /// The medium has no room for a log of block states.
    pub fn make_on_flash<M: Media + ?Sized>(media: &M, config: PoolConfig) -> Result<Pool, OpenError> {
        let mut pool = Pool::create(media, config);
        pool.opened_from_flash();
        let replay = Replay::new(pool.system_area(), pool.core.sizes(), pool.core.nonces, media);
        let (table, log) = replay.anew()?;
        pool.go_on_with(table, Some(log), true)?;
        Ok(pool)
    }

    /// Other pools are to have channels of the device: a log of block states keeps to few channels, which stay here ([`Pool::log_channels`]). Before
    /// anything is written.
    pub fn will_divide(&mut self) {
        self.divides = true;
        self.core.states.keep_log_to_few_channels();
    }

    /// Whether opening is through.
    pub fn is_open(&self) -> bool {
        self.replay.is_none()
    }

    /// Why it cannot be opened, if so.
    pub fn open_error(&self) -> Option<&OpenError> {
        self.replay.as_ref().and_then(|replay| replay.error.as_ref())
    }

    /// A read of block states on flash came back.
    pub(crate) fn replayed<M: Media + ?Sized>(&mut self, completion: Completion, now: Time, media: &mut M) {
        let replay = self.replay.as_mut().expect("I-V5: a pool is opened once");
        if !replay.completed(completion, media, now) {
            return;
        }
        let (table, log, is_new) = replay.finish();
        match self.go_on_with(table, Some(log), is_new) {
            Ok(()) => self.replay = None,
            Err(error) => {
                let replay = self.replay.as_mut().expect("I-V5: a pool is opened once");
                replay.error = Some(error);
            }
        }
    }

    /// Blocks that were set aside, for people: each may mean data that is lost.
    pub fn quarantined(&self) -> &[Quarantined] {
        &self.core.blocks.quarantined
    }

    /// Takes over what is written down, unless nothing ever was, and writes there from now on.
    pub(crate) fn go_on_with(
        &mut self,
        table: StateTable,
        log: Option<StateLog>,
        is_new: bool,
    ) -> Result<(), OpenError> {
        let divides = self.divides;
        let states = |table| match log {
            Some(mut log) => {
                if divides {
                    log.keep_to_few_channels();
                }
                BlockStates::Logged { table, log: Box::new(log), division: Box::default() }
            }
            None => BlockStates::Protected(table),
        };
        if is_new {
            self.core.states = states(table);
            return Ok(());
        }
        take_over(&mut self.core, &mut self.wear, table, states)
    }

    /// Makes a vSSD (FlashBlox `AllocVirtualSSD`).
    ///
    /// # Errors
    /// Says what cannot be had; nothing is changed then, and never is a weaker isolation given.
    pub fn alloc_vssd(
        &mut self,
        isolation: Isolation,
        level: u32,
        capacity_bytes: u64,
    ) -> Result<VssdId, AllocError> {
        let places = self.choose_places(isolation, level, capacity_bytes, |_| true)?;
        let id = self.new_vssd_id()?;
        self.admit(id, isolation, &places);
        Ok(id)
    }

    /// Deletes a vSSD; its blocks are erased before anyone else can read or write them.
    ///
    /// # Errors
    /// Unknown or deleted before, or operations are under way.
    pub fn dealloc_vssd(&mut self, id: VssdId) -> Result<(), DeallocError> {
        let Some(at) = self.core.at_of(id) else {
            let known = id.0 > 0 && id.0 < self.core.next_vssd;
            return Err(if known { DeallocError::AlreadyFree(id.0) } else { DeallocError::Unknown(id.0) });
        };
        // An erase under way has no holder that waits for it, but its block is not free yet.
        let erasing =
            self.core.blocks.iter().filter(|block| block.owner == id && block.in_flight > 0).count();
        let operations = self.core.vssds[at].operations.max(erasing as u32);
        if operations > 0 {
            return Err(DeallocError::Busy { vssd: id.0, operations });
        }
        let vssd = self.core.vssds.remove(id);
        self.core.queues.dismiss(id);
        self.core.former_work.0 += vssd.appended_ius + vssd.header_ius;
        self.core.former_work.1 += vssd.erases;
        let (isolation, units) = (vssd.isolation, Vec::new());
        self.core.states.set_vssd(&VssdEntry { id, placed: false, isolation, read_only: false, units });
        for unit in &vssd.units {
            for &block in unit.map.iter().filter(|&&block| block != u32::MAX) {
                if self.core.blocks[block].is_moving() {
                    self.wear.void_copy(block);
                }
                self.core.recycle(block);
            }
            self.core.queues.leave(unit.place.die, unit.flow, id);
            if let Some(destination) = &unit.destination {
                self.core.queues.leave(destination.die, destination.flow, id);
            }
        }
        let places: Vec<UnitPlace> = vssd.units.iter().map(|unit| unit.place).collect();
        self.core.resources.release(&places);
        self.wear.end_empty_exchanges(&mut self.core);
        Ok(())
    }

    /// Takes a completion of the medium (see [`Pool::owns`]) and appends what it means to holders.
    ///
    /// # Panics
    /// If the token is not of an operation under way.
    #[inline(always)]
    pub fn complete<M: Media + ?Sized>(
        &mut self,
        completion: Completion,
        now: Time,
        media: &mut M,
        completions: &mut Vec<(VssdId, SpaceCompletion)>,
    ) {
        if self.replay.is_none()
            && let Some(at) = self.core.plain_read_of(&completion)
        {
            return self.core.complete_plain_read(at, completion, now, media, completions);
        }
        complete_other(self, completion, now, media, completions);
    }

    /// When [`Pool::work`] has something to do.
    pub fn deadline(&self) -> Time {
        if self.core.purges_are_due {
            return Time::ZERO;
        }
        self.core.queues.deadline().min(self.wear.wear_deadline(&self.core))
    }

    /// Serves what waited for tokens until `now`, and lets exchanges for wear go on.
    pub fn work<M: Media + ?Sized>(&mut self, now: Time, media: &mut M) {
        self.wear.level_wear(&mut self.core, now, media);
        if self.core.has_purges {
            self.core.go_on_with_purges(media, now);
        }
        self.core.queues.serve_throttled(media, now);
    }

    /// Begins to compare block states with OOB records; before holders are given their blocks. Goes on with completions
    /// until [`Pool::is_checked`]; what contradicts is set aside then (see [`Pool::quarantined`]).
    pub fn begin_check<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        self.check.begin(&mut self.core, media, now);
    }
    /// Whether the check is through.
    pub fn is_checked(&self) -> bool {
        self.check.is_over()
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
        let at = self.core.at_of(id).expect("I-V5: an id leads to one vSSD");
        crate::Space { pool: self, media, at, now }
    }

    /// Takes answers that were ready at once; call after every use of a space.
    pub fn take_ready(&mut self, completions: &mut Vec<(VssdId, SpaceCompletion)>) {
        completions.append(&mut self.core.ready);
    }

    /// Whether [`Pool::take_ready`] has something.
    pub fn has_ready(&self) -> bool {
        !self.core.ready.is_empty()
    }

    /// Whether everything that was changed so far survives a power cut. It will, if [`Pool::make_durable`] was called.
    pub fn is_durable(&self) -> bool {
        self.core.states.is_durable()
    }

    /// Whether the state log has no place left that takes writes: nothing that is changed now survives a restart.
    pub fn is_state_log_lost(&self) -> bool {
        self.core.states.is_lost()
    }

    /// IUs that the state log programmed and erases it asked for, since the pool was opened.
    pub fn state_log_work(&self) -> (u64, u64) {
        self.core.states.log_work()
    }

    /// Begins to make everything durable that was changed so far; done when [`Pool::is_durable`].
    pub fn make_durable<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        self.core.states.want();
        self.core.kick_state_log(media, now);
    }

    /// Sets a vSSD's share of the dies it lies on. Un-isolated vSSDs are served first come first served; theirs means
    /// nothing.
    ///
    /// # Panics
    /// If there is no such vSSD, or the weight is 0.
    pub fn set_share(&mut self, id: VssdId, share: Share, now: Time) {
        assert!(share.weight > 0, "a weight of 0 would starve vSSD {}", id.0);
        assert!(self.core.at_of(id).is_some(), "vSSD {} exists", id.0);
        self.core.queues.set_share(id, share, now);
        self.core.weigh(id);
    }

    /// A vSSD passed over room of erase blocks, which will be erased as if it had been written: its rate counts it, up to ten seconds of it.
    ///
    /// # Panics
    /// If there is no such vSSD.
    pub fn charge_unused(&mut self, id: VssdId, bytes: u64, now: Time) {
        assert!(self.core.at_of(id).is_some(), "vSSD {} exists", id.0);
        self.core.queues.charge_unused(id, bytes, now);
    }

    /// The share that a vSSD has now, if there is such a vSSD.
    pub fn share_of(&self, id: VssdId) -> Option<Share> {
        self.core.queues.share_of(id)
    }

    /// Whether the vSSD's queues have room; if not, what comes for it is parked, and whoever feeds it should wait.
    /// True if there is no such vSSD.
    pub fn has_room(&self, id: VssdId) -> bool {
        self.core.queues.has_room(id)
    }

    /// Operations that wait in a die's queue, and those parked because it is full.
    pub fn die_queue(&self, die_number: u32) -> (u32, u32) {
        self.core.queues.waiting_at(die_number)
    }

    /// Takes the vSSDs whose [`Pool::has_room`] may have changed since the last call; some may be there twice.
    pub fn take_room_changes(&mut self, changes: &mut Vec<VssdId>) {
        self.core.queues.take_room_changes(changes);
    }

    /// Takes the vSSDs that their rates came to keep waiting since the last call; each is told of once a minute.
    pub fn take_limits_met(&mut self) -> Vec<VssdId> {
        self.core.queues.take_limits_met()
    }

    /// Whether a media completion belongs to the pool.
    pub fn owns(token: MediaToken) -> bool {
        token.0 & POOL_TOKEN_BIT != 0
    }

    /// Shape of every erase block.
    pub fn shape(&self) -> &BlockShape {
        &self.core.shape
    }

    /// The reserved blocks.
    pub fn system_area(&self) -> &SystemArea {
        &self.system
    }

    /// Whether a vSSD lies here.
    #[inline]
    pub fn holds(&self, id: VssdId) -> bool {
        self.core.at_of(id).is_some()
    }

    /// vSSDs in order of creation.
    pub fn vssd_ids(&self) -> impl Iterator<Item = VssdId> + '_ {
        self.core.vssds.ids()
    }

    /// Erases of a die since the pool was made.
    pub fn die_erases(&self, die_number: u32) -> u64 {
        self.core.blocks.die(die_number).erases
    }

    /// Erases for a vSSD since the pool was opened; 0 if there is none.
    pub fn vssd_erases(&self, id: VssdId) -> u64 {
        self.core.at_of(id).map_or(0, |at| self.core.vssds[at].erases)
    }

    /// Whether a vSSD takes no more programs, because its reserve of good erase blocks is used up.
    pub fn is_read_only(&self, id: VssdId) -> bool {
        self.core.at_of(id).is_some_and(|at| self.core.vssds[at].read_only)
    }

    /// IUs that the holder of a vSSD appended since the pool was opened; 0 if there is none.
    pub fn appended_ius(&self, id: VssdId) -> u64 {
        self.core.at_of(id).map_or(0, |at| self.core.vssds[at].appended_ius)
    }

    /// IUs that headers of erase blocks of a vSSD took since the pool was opened: of a drive. 0 if there is none.
    pub fn header_ius(&self, id: VssdId) -> u64 {
        self.core.at_of(id).map_or(0, |at| self.core.vssds[at].header_ius)
    }

    /// IUs appended (headers included) and erases for vSSDs that were deallocated here since the pool was opened.
    pub fn former_work(&self) -> (u64, u64) {
        self.core.former_work
    }

    /// Which erase block of the device holds a block of a vSSD now, numbered over all dies: for tests, which look whether it moved.
    pub fn place_of_block(&self, id: VssdId, block: LogicalBlock) -> Option<u32> {
        let unit = self.core.vssds[self.core.at_of(id)?].units.get(usize::from(block.unit.0))?;
        unit.map.get(block.index as usize).copied().filter(|number| *number != u32::MAX)
    }

    /// Free channels and free dies.
    pub fn free_resources(&self) -> (u32, u32) {
        (self.core.resources.free_channels(), self.core.resources.free_dies())
    }

    /// Independent units of a vSSD, and bytes of the erase blocks it may hold; zeros if there is none.
    pub fn size_of(&self, id: VssdId) -> (u32, u64) {
        let Some(vssd) = self.core.at_of(id).map(|at| &self.core.vssds[at]) else { return (0, 0) };
        let blocks: u64 = vssd.units.iter().map(|unit| unit.map.len() as u64).sum();
        (vssd.units.len() as u32, blocks * self.core.geometry.erase_block_size_bytes())
    }

    /// Erase blocks a vSSD may hold, and those of them that it does not hold now; zeros if there is none.
    pub fn erase_blocks_of(&self, id: VssdId) -> (u64, u64) {
        let Some(vssd) = self.core.at_of(id).map(|at| &self.core.vssds[at]) else { return (0, 0) };
        let units = vssd.units.iter();
        units.fold((0, 0), |(all, free), unit| {
            (all + unit.map.len() as u64, free + unit.free_indices.len() as u64)
        })
    }

    /// Where the independent units of a vSSD lie, in their order; nowhere if there is none of that number.
    pub fn placement(&self, id: VssdId) -> Vec<UnitLocation> {
        let Some(vssd) = self.core.at_of(id).map(|at| &self.core.vssds[at]) else { return Vec::new() };
        let places = vssd.units.iter().map(|unit| {
            let die = self.core.geometry.die_at(unit.place.die);
            UnitLocation { channel: die.channel.0, die: die.die.0, soft_plane: unit.place.soft_plane }
        });
        places.collect()
    }

    /// Begins to exchange what is to be exchanged, when nothing else touches the pool's channels: a device is divided before.
    pub fn begin_migration(&mut self) {
        self.wear.begin_migration(&mut self.core)
    }

    /// Exchanges what two dies hold, after those that wait already.
    ///
    /// # Errors
    /// They cannot be exchanged; see [`ExchangeError`].
    pub fn exchange_dies(&mut self, one: u32, other: u32) -> Result<(), ExchangeError> {
        self.wear.exchange_dies(&mut self.core, one, other)
    }

    /// Whether two dies can be exchanged now.
    ///
    /// # Errors
    /// Says why not.
    pub fn can_exchange(&self, dies: [u32; 2]) -> Result<(), ExchangeError> {
        self.wear.can_exchange(&self.core, dies)
    }

    /// Begins no pair of blocks while channels are about to leave, or goes on. Other than a pause nobody sees it.
    pub fn hold_migration(&mut self, held: bool) {
        self.wear.migration.is_held = held;
    }

    /// Stops after the pair of blocks under way, or goes on.
    pub fn pause_migration(&mut self, paused: bool) {
        self.wear.pause_migration(paused)
    }

    /// Whether exchanges are under way or wait.
    pub fn is_migrating(&self) -> bool {
        self.wear.is_migrating()
    }

    /// Whether blocks are at work.
    pub fn is_moving(&self) -> bool {
        self.wear.is_moving()
    }

    /// What goes on.
    pub fn migration_status(&self) -> MigrationStatus {
        self.wear.migration_status(&self.core)
    }

    /// What copies did since the pool was opened.
    pub fn copy_work(&self) -> CopyWork {
        self.wear.copy_work()
    }

    /// What happened to even wear since the last call, in order.
    pub fn take_wear_news(&mut self) -> impl Iterator<Item = WearNews> + '_ {
        self.wear.take_wear_news()
    }

    /// From now on somebody who sees all dies of the device says what is exchanged: this pool has some of them only.
    pub fn follow(&mut self) {
        self.wear.follow()
    }

    /// What is known of each die now, in order, and whether exchanges of them wait or go on.
    pub fn wear_report(&mut self, now: Time) -> (Vec<PlaceView>, bool) {
        self.wear.wear_report(&mut self.core, now)
    }

    /// Puts exchanges in line that somebody else chose, those of dies that are this pool's.
    pub fn exchange_chosen(&mut self, pairs: &[[u32; 2]]) {
        self.wear.exchange_chosen(&mut self.core, pairs)
    }

    /// Whether exchanges wait for their begin.
    pub fn has_waiting_exchanges(&self) -> bool {
        self.wear.has_waiting_exchanges()
    }

    /// What is known of each die, in order.
    pub fn die_views(&self) -> Vec<PlaceView> {
        self.wear.die_views(&self.core)
    }

    /// Changes the settings of even wear; see [`WearConfig`].
    pub fn set_wear(&mut self, wear: WearConfig) {
        self.wear.set_wear(&mut self.core, wear)
    }

    /// The thresholds in force, of a channel and of a die; see [`WearConfig`].
    pub fn wear_thresholds(&self) -> [u64; 2] {
        self.wear.wear_thresholds()
    }

    /// Whether a block failed and was retired since the last call.
    pub fn take_retired(&mut self) -> bool {
        self.core.blocks.take_retired()
    }
    /// Erase blocks of a die, by number, that are retired.
    pub fn retired_of(&self, die: u32) -> u32 {
        self.core.blocks.die(die).retired
    }
    /// The settings of even wear.
    pub fn wear_config(&self) -> &WearConfig {
        &self.core.config.wear
    }
    /// Whether a die is this pool's: of a divided device, its channel is one pool's.
    pub fn owns_die(&self, die: u32) -> bool {
        self.core.owns_die(die)
    }
    /// Erases of a die since the pool was made, by cause.
    pub fn die_wear(&self, die_number: u32) -> DieWear {
        self.core.die_wear(die_number)
    }
    /// Erases of a channel since the pool was made, by cause.
    pub fn channel_wear(&self, channel: u16) -> DieWear {
        self.core.channel_wear(channel)
    }
    /// What is known of the content of a die: the sum over the units on it.
    pub fn die_heat(&self, die_number: u32) -> Heat {
        self.core.die_heat(die_number)
    }

    /// Checks everything against everything; slow.
    ///
    /// # Panics
    /// If anything does not add up.
    pub fn check_invariants(&self) {
        for vssd in self.core.vssds.iter() {
            let mapped = vssd.units.iter().flat_map(|unit| &unit.map).filter(|number| **number != u32::MAX);
            let mut sequences: Vec<u64> = mapped.map(|number| self.core.blocks[*number].sequence).collect();
            sequences.sort_unstable();
            assert!(
                sequences.is_sorted_by(|one, next| one < next),
                "vSSD {}: two allocations are one",
                vssd.id.0
            );
            for unit in &vssd.units {
                for (index, &number) in unit.map.iter().enumerate().filter(|(_, number)| **number != u32::MAX)
                {
                    let block = &self.core.blocks[number];
                    assert!(block.is_mapped() && block.owner == vssd.id, "block {number} is held (I-V13)");
                    assert!(block.logical.index as usize == index, "block {number} knows its place");
                    let die = self.core.die_of(number) as u32;
                    let destination =
                        unit.destination.as_ref().is_some_and(|destination| destination.die == die);
                    assert!(
                        die == unit.place.die || destination || block.is_suspect(),
                        "a unit stays on its die"
                    );
                }
            }
        }
        let mapped = |vssd: &Vssd| -> usize {
            vssd.units.iter().map(|unit| unit.map.iter().filter(|&&number| number != u32::MAX).count()).sum()
        };
        let held = self.core.blocks.check_invariants();
        assert_eq!(
            held,
            self.core.vssds.iter().map(mapped).sum::<usize>(),
            "held blocks are mapped, once (I-V13)"
        );
    }
}

/// As [`Pool::complete`], of anything but a plain read.
#[inline(never)]
fn complete_other<M: Media + ?Sized>(
    pool: &mut Pool,
    completion: Completion,
    now: Time,
    media: &mut M,
    completions: &mut Vec<(VssdId, SpaceCompletion)>,
) {
    if pool.replay.is_some() {
        return pool.replayed(completion, now, media);
    }
    if is_of_flush(completion.token) {
        let of_copies = pool.core.flushed(completion.token, completion.result);
        pool.wear.copies_flushed(&mut pool.core, of_copies, now, media);
    } else if is_of_log(completion.token) {
        let copies = pool.core.state_log_completed(completion.result, now, media);
        pool.wear.erases_failed(copies);
    } else if is_of_check(completion.token) {
        return pool.check.completed(&mut pool.core, completion, now, media);
    } else if let Some((op, completion)) = pool.core.complete(completion, now, media) {
        pool.wear.copy_completed(&mut pool.core, op.kind, op.token, completion);
        pool.core.queues.dispatch(pool.core.die_of(op.block), media, now);
        pool.wear.migrate(&mut pool.core, now, media);
    }
    completions.append(&mut pool.core.ready);
}
