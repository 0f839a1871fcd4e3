//! One device, several pools: each owns whole channels and what lies on them, and no two touch the same memory.
//!
//! One pool, the first, keeps account of all channels ([`Pool::choose_places`], [`Pool::reserve`], [`Pool::release`]); the
//! others are told what to place ([`Pool::admit`]). Channels change hands as [`PoolPart`]s while nothing is under way on
//! them, with their vSSDs, their blocks and what the block states in protected memory say of them.

use crate::blocks::DiePart;
use crate::dies::{DieQueue, Sharer};
use crate::owners::resources::{DieUse, UnitPlace};
use crate::owners::{Unit, VSSD_NUMBERS_MAX, Vssd};
use crate::pool::Pool;
use crate::states::cells::ChannelCells;
use crate::states::division::{StateChanges, StatesDurable};
use crate::states::{BlockStates, StateTable};
use crate::wear::exchange::Exchange;
use crate::wear::migration::WearNews;
use crate::{AllocError, PoolConfig, VssdId};
use diecut_media::Media;
use diecut_spec::Isolation;
use diecut_units::{Geometry, ProtectedRegion, Time, mark, mutant};
use std::collections::BTreeSet;

/// Where a vSSD lies, or will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    pub(crate) units: Vec<UnitPlace>,
    /// Dies that some of it is on its way to.
    pub(crate) destinations: Vec<u32>,
}

impl Places {
    /// What became of them by an exchange.
    pub fn heard_of(&mut self, news: WearNews) {
        let of = |dies: [u32; 2], die: u32| dies.iter().position(|&one| one == die).map(|at| dies[1 - at]);
        match news {
            WearNews::Begun(dies) => {
                self.destinations.extend(self.units.iter().filter_map(|place| of(dies, place.die)));
            }
            WearNews::Finished(dies) => {
                self.destinations.retain(|&die| of(dies, die).is_none());
                for place in &mut self.units {
                    place.die = of(dies, place.die).unwrap_or(place.die);
                }
            }
            WearNews::Due | WearNews::Dropped(_) => {}
        }
    }

    /// Dies that it lies on.
    pub fn dies(&self) -> impl Iterator<Item = u32> + '_ {
        self.units.iter().map(|place| place.die)
    }

    /// Channels, each once, in order.
    pub fn channels(&self, geometry: &Geometry) -> BTreeSet<u16> {
        let dies = self.units.iter().map(|place| place.die).chain(self.destinations.iter().copied());
        dies.map(|die| geometry.die_at(die).channel.0).collect()
    }
}

struct ChannelPart {
    channel: u16,
    uses: Vec<DieUse>,
    dies: Vec<(DiePart, DieQueue)>,
    cells: Option<ChannelCells>,
}

/// Channels on their way from one pool to another, with what lies on them.
pub struct PoolPart {
    channels: Vec<ChannelPart>,
    vssds: Vec<(Vssd, Sharer)>,
    /// Entries of vSSDs among the block states, by place.
    slots: Vec<(usize, ProtectedRegion)>,
    exchanges: Vec<Exchange>,
    sequence: u64,
    /// When the present window of its averages ends.
    window_end: Time,
}

/// What is written down of channels, and of vSSDs by place.
pub(crate) type PartCells = (Vec<(u16, ChannelCells)>, Vec<(usize, ProtectedRegion)>);

impl PoolPart {
    /// What is written down of it; what was known in memory is forgotten.
    pub(crate) fn into_cells(self) -> PartCells {
        let cells = self.channels.into_iter().filter_map(|part| Some((part.channel, part.cells?)));
        (cells.collect(), self.slots)
    }
}

impl Pool {
    /// A pool that owns no channel yet. `media` is any part of the device.
    pub fn empty_part<M: Media + ?Sized>(media: &M, config: PoolConfig) -> Pool {
        let mut pool = Pool::create(media, config);
        pool.core.blocks.exclude_all();
        let table = StateTable::nothing(&pool.core.geometry, &pool.core.sizes());
        if media.protected_memory().is_some() {
            pool.core.states = BlockStates::Protected(table);
        } else if pool.core.header_pages > 0 {
            pool.opened_from_flash();
            pool.core.states = BlockStates::Sent { table, sending: Box::default() };
        }
        pool
    }

    /// Chooses where a vSSD can lie, on channels that are `allowed`, without taking it. Channels whose content is on its way
    /// elsewhere take nothing new before it is there.
    ///
    /// # Errors
    /// Says what cannot be had; never is a weaker isolation given.
    pub fn choose_places(
        &self,
        isolation: Isolation,
        level: u32,
        capacity_bytes: u64,
        allowed: impl Fn(u16) -> bool,
    ) -> Result<Places, AllocError> {
        let wear = |die: u32| self.core.blocks.die(die).erases;
        let exchanged = |channel: u32| {
            let waiting = self.wear.migration.waiting.iter();
            let begun =
                self.wear.migration.exchanges.iter().filter(|one| !one.is_inside()).map(|one| &one.dies);
            begun
                .chain(waiting)
                .chain(&self.wear.elsewhere)
                .flatten()
                .any(|&die| u32::from(self.core.geometry.die_at(die).channel.0) == channel)
        };
        let choose = |allowed: &dyn Fn(u32) -> bool| {
            self.core.resources.choose(
                &self.core.config.levels,
                isolation,
                level,
                capacity_bytes,
                wear,
                allowed,
            )
        };
        let chosen = choose(&|channel| allowed(channel as u16) && !exchanged(channel));
        let units = chosen.map_err(|error| match error {
            AllocError::NotFree { needed, free, kind }
                if choose(&|channel| allowed(channel as u16)).is_ok() =>
            {
                mark!("vssd: no room before an exchange ends");
                AllocError::BeingExchanged { needed, free, kind }
            }
            other => other,
        })?;
        Ok(Places { units, destinations: Vec::new() })
    }

    /// A number that no vSSD of this device ever had.
    ///
    /// # Errors
    /// All were given.
    pub fn new_vssd_id(&mut self) -> Result<VssdId, AllocError> {
        if self.core.next_vssd >= VSSD_NUMBERS_MAX {
            return Err(AllocError::NoNumber);
        }
        self.core.next_vssd += 1;
        Ok(VssdId(self.core.next_vssd - 1))
    }

    /// A number was given to a vSSD of another device: it is not given here.
    pub fn gave_id(&mut self, id: VssdId) {
        self.core.next_vssd = self.core.next_vssd.max(id.0 + 1);
    }

    /// Makes a vSSD where it was chosen to lie; its channels are this pool's.
    ///
    /// # Panics
    /// If the places are not free, or the number was given to another one.
    pub fn admit(&mut self, id: VssdId, isolation: Isolation, places: &Places) {
        self.core.next_vssd = self.core.next_vssd.max(id.0 + 1);
        self.core.resources.take(id, &places.units).expect("chosen places are free (I-V21)");
        self.core.place(id, isolation, &places.units);
        self.core.record_vssd(self.core.at_of(id).expect("I-V5: an id leads to one vSSD"));
    }

    /// Keeps account of a vSSD that another pool makes.
    ///
    /// # Panics
    /// If the places are not free.
    pub fn reserve(&mut self, id: VssdId, places: &Places) {
        self.core.resources.take(id, &places.units).expect("chosen places are free (I-V21)");
    }

    /// Whether a vSSD can be made there now; places were chosen by a pool that may not have heard of the last exchange.
    pub fn are_free(&self, places: &Places) -> bool {
        let exchanged = |die: u32| self.wear.migration.exchanges.iter().any(|one| one.dies.contains(&die));
        self.core.resources.are_free(&places.units)
            && !places
                .channels(&self.core.geometry)
                .iter()
                .any(|&channel| self.dies_of(channel).any(exchanged))
    }

    fn dies_of(&self, channel: u16) -> std::ops::Range<u32> {
        let per_channel = u32::from(self.core.geometry.dies_per_channel);
        u32::from(channel) * per_channel..(u32::from(channel) + 1) * per_channel
    }

    /// Whether just these vSSDs lie on these channels, and nothing of them is on its way to others.
    pub fn holds_just(&self, channels: &[u16], vssds: &[u32]) -> bool {
        let lies = |die: u32| channels.contains(&self.core.geometry.die_at(die).channel.0);
        self.core.vssds.iter().all(|vssd| {
            let own = vssds.contains(&vssd.id.0);
            vssd.units.iter().all(|unit| {
                lies(unit.place.die) == own
                    && unit.destination.as_ref().is_none_or(|destination| lies(destination.die) == own)
            })
        })
    }

    /// Keeps account of an exchange in another pool.
    pub fn heard_of(&mut self, news: WearNews) {
        match news {
            WearNews::Begun(dies) if !self.wear.elsewhere.contains(&dies) => self.wear.elsewhere.push(dies),
            WearNews::Finished(dies) => {
                assert_ne!(dies[0], dies[1], "two dies change what they hold (I-V15)");
                self.wear.elsewhere.retain(|other| *other != dies);
                self.core.resources.dies.swap(dies[0] as usize, dies[1] as usize);
            }
            WearNews::Dropped(dies) => self.wear.elsewhere.retain(|other| *other != dies),
            WearNews::Begun(_) | WearNews::Due => {}
        }
    }

    /// Exchanges under way of dies on these channels.
    pub fn exchanges_on(&self, channels: &[u16]) -> Vec<[u32; 2]> {
        let lies = |die: u32| channels.contains(&self.core.geometry.die_at(die).channel.0);
        let exchanges = self.wear.migration.exchanges.iter().filter(|one| !one.is_inside());
        exchanges.map(|one| one.dies).filter(|dies| dies.iter().any(|&die| lies(die))).collect()
    }

    /// Gives back places of a vSSD that another pool held.
    ///
    /// # Panics
    /// If they were not taken.
    pub fn release(&mut self, places: &Places) {
        self.core.resources.release(&places.units);
    }

    /// Where a vSSD of this pool lies.
    ///
    /// # Panics
    /// If there is no such vSSD.
    pub fn places_of(&self, id: VssdId) -> Places {
        let at = self.core.at_of(id).expect("I-V5: an id leads to one vSSD");
        let units = &self.core.vssds[at].units;
        Places {
            units: units.iter().map(|unit| unit.place).collect(),
            destinations: units
                .iter()
                .filter_map(|unit| unit.destination.as_ref().map(|destination| destination.die))
                .collect(),
        }
    }

    /// Erase blocks that these places hold: the measure of a load.
    pub fn blocks_of(&self, places: &Places) -> u64 {
        places.units.iter().map(|&place| u64::from(self.core.resources.unit_blocks(place))).sum()
    }

    /// Whether no vSSD lies on a channel, as far as this pool knows.
    pub fn is_free_channel(&self, channel: u16) -> bool {
        let per_channel = usize::from(self.core.geometry.dies_per_channel);
        let dies = usize::from(channel) * per_channel..(usize::from(channel) + 1) * per_channel;
        let exchanged =
            |die: usize| self.wear.migration.exchanges.iter().any(|one| one.dies.contains(&(die as u32)));
        !dies.clone().any(exchanged)
            && self.core.resources.dies[dies].iter().all(|use_of| match use_of {
                DieUse::Free | DieUse::Dead => true,
                DieUse::Whole(_) | DieUse::Cut(_) => false,
            })
    }

    /// Whether nothing is under way on channels, of their vSSDs or of the pool itself, and nothing waits at their dies: only
    /// then they can be taken out.
    pub fn is_quiet(&self, channels: &[u16]) -> bool {
        let lies = |die: u32| channels.contains(&self.core.geometry.die_at(die).channel.0);
        let mut of_vssds =
            self.core.vssds.iter().filter(|vssd| vssd.units.iter().any(|unit| lies(unit.place.die)));
        let waits_for_none = of_vssds.all(|vssd| vssd.operations == 0 && self.core.queues.has_room(vssd.id));
        let is_quiet = |die: u32| self.core.queues.is_quiet(die) && self.core.blocks.is_quiet(die);
        waits_for_none && channels.iter().all(|&channel| self.dies_of(channel).all(is_quiet))
    }

    /// Takes channels out, with the vSSDs on them.
    ///
    /// # Panics
    /// If something is under way there, a vSSD lies partly elsewhere, the device cannot be divided ([`Pool::can_divide`]), or its log is written to one
    /// of the channels ([`Pool::log_channels`]). Changes that are not sent ([`Pool::take_changes`]) are to be sent before the part.
    pub fn detach(&mut self, channels: &[u16]) -> PoolPart {
        assert!(
            (!self.core.states.is_late() || self.can_divide()) && self.replay.is_none(),
            "where block states are in a log, pages have no OOB areas, and it is open"
        );
        let keeps = self.log_channels();
        assert!(
            !channels.iter().any(|channel| keeps.contains(channel)),
            "the log stays with its pool (I-V27)"
        );
        assert!(self.core.states.is_all_sent(), "what is written down of a channel goes ahead of it (I-V27)");
        let lies = |unit: &Unit| channels.contains(&self.core.geometry.die_at(unit.place.die).channel.0);
        let leaving = self.core.vssds.iter().filter(|vssd| vssd.units.iter().any(lies));
        let leaving: Vec<VssdId> = leaving.map(|vssd| vssd.id).collect();
        for vssd in leaving.iter().filter_map(|id| self.core.vssds.get(*id)) {
            assert!(vssd.units.iter().all(lies), "vSSD {} leaves as a whole (I-V7)", vssd.id.0);
            assert_eq!(
                vssd.operations, 0,
                "nothing of vSSD {} is under way when it leaves (I-V7)",
                vssd.id.0
            );
        }
        let leave = leaving
            .into_iter()
            .map(|id| (self.core.vssds.remove(id), self.core.queues.dismiss(id)))
            .collect();
        let mut part = PoolPart {
            channels: Vec::new(),
            vssds: leave,
            slots: Vec::new(),
            exchanges: Vec::new(),
            sequence: match mutant!("vssd: a channel that leaves brings no allocation sequence") {
                true => 0,
                false => self.core.blocks.sequence(),
            },
            window_end: self.core.window_end,
        };
        let lies = |pool: &Pool, die: u32| channels.contains(&pool.core.geometry.die_at(die).channel.0);
        let moves = |one: &Exchange| one.is_moving() && one.dies.iter().any(|&die| lies(self, die));
        assert!(
            !self.wear.migration.exchanges.iter().any(moves),
            "nothing moves on channels that change hands (I-V7)"
        );
        let exchanges = std::mem::take(&mut self.wear.migration.exchanges);
        let (leave, stay): (Vec<_>, Vec<_>) =
            exchanges.into_iter().partition(|one| one.dies.iter().any(|&die| lies(self, die)));
        assert!(
            leave.iter().all(|one| one.dies.iter().all(|&die| lies(self, die))),
            "dies that are exchanged leave together (I-V7)"
        );
        (part.exchanges, self.wear.migration.exchanges) = (leave, stay);
        for &channel in channels {
            let dies = self.dies_of(channel);
            let uses = self.core.resources.dies[dies.start as usize..dies.end as usize].to_vec();
            let dies =
                dies.map(|die| (self.core.blocks.take_die(die), self.core.queues.take_die(die))).collect();
            part.channels.push(ChannelPart {
                channel,
                uses,
                dies,
                cells: self.core.states.take_channel(channel),
            });
        }
        part.slots =
            part.vssds.iter().filter_map(|(vssd, _)| self.core.states.take_slot_of(vssd.id)).collect();
        part
    }

    /// Whether other pools can have channels of a device without protected memory: if its pages have no OOB areas, and it has a channel beside those
    /// that the log of block states is written to.
    pub fn can_divide(&self) -> bool {
        self.core.header_pages > 0
    }

    /// Channels that stay with this pool, because the log of block states of the whole device is written there from now on. None, if there is none.
    pub fn log_channels(&self) -> Vec<u16> {
        self.core.states.log_channels()
    }

    /// Takes changes of block states that the pool that keeps the log is to have, now or, if `all`, at all: before a part leaves.
    pub fn take_changes(&mut self, all: bool) -> Option<StateChanges> {
        self.core.states.take_changes(all)
    }

    /// Takes changes of another pool of the device into the log.
    ///
    /// # Panics
    /// If this pool does not keep the log, or the other one is not of this device.
    pub fn take_in<M: Media + ?Sized>(&mut self, from: u16, changes: StateChanges, media: &mut M, now: Time) {
        let taken = self.core.states.take_in(from, changes);
        taken.expect("I-V27: the pools of a device send changes of its block states");
        self.core.kick_state_log(media, now);
    }

    /// What became of changes of other pools since the last call, and whose they were.
    pub fn take_durable(&mut self) -> Vec<(u16, StatesDurable)> {
        self.core.states.take_durable()
    }

    /// The pool that keeps the log says what became of changes.
    ///
    /// # Panics
    /// If this pool keeps a log itself.
    pub fn states_are<M: Media + ?Sized>(&mut self, durable: StatesDurable, media: &mut M, now: Time) {
        let event = self.core.states.told(durable);
        let copies = self.core.states_became_durable(event, now, media);
        self.wear.erases_failed(copies);
    }

    /// Adds an entry for a vSSD that the other pool will make.
    pub fn lend_slot(&mut self, part: &mut PoolPart) {
        part.slots.extend(self.core.states.take_unused_slot());
    }

    /// Adds entries that no vSSD of this pool needs any more.
    pub fn return_slots(&mut self, part: &mut PoolPart) {
        part.slots.extend(self.core.states.take_idle_slots());
    }

    /// Ends the windows of averages that were over in the one pool and not in the other: a pool ends them when it has a reason
    /// to, and what arrives at one that had none for days is not days older for it.
    fn align_windows(&mut self, part: &mut PoolPart) {
        let window_ns = self.core.config.wear.window_ns.max(1);
        let end = self.core.window_end.max(part.window_end);
        let over = |since: Time| if since == Time::ZERO { 0 } else { (end.0 - since.0) / window_ns };
        let (own, others) = (over(self.core.window_end), over(part.window_end));
        let end_windows = |vssd: &mut Vssd, windows| {
            if windows > 0 {
                vssd.units.iter_mut().for_each(|unit| unit.heat.end_windows(windows));
            }
        };
        self.core.vssds.iter_mut().for_each(|vssd| end_windows(vssd, own));
        part.vssds.iter_mut().for_each(|(vssd, _)| end_windows(vssd, others));
        self.core.window_end = end;
    }

    /// Takes channels over, with the vSSDs on them.
    ///
    /// # Panics
    /// If this pool has them already.
    pub fn attach(&mut self, mut part: PoolPart) {
        let lies = |die: u32| {
            let channel = self.core.geometry.die_at(die).channel.0;
            part.channels.iter().any(|part| part.channel == channel)
        };
        for (vssd, _) in &part.vssds {
            let is_whole = vssd.units.iter().all(|unit| lies(unit.place.die));
            assert!(is_whole, "vSSD {} arrives with its channels (I-V7)", vssd.id.0);
        }
        let mut exchanged = part.exchanges.iter().flat_map(|one| one.dies);
        assert!(exchanged.all(lies), "dies that are exchanged arrive together (I-V7)");
        self.align_windows(&mut part);
        self.core.blocks.skip_sequences(part.sequence);
        self.wear.migration.exchanges.extend(part.exchanges);
        for ChannelPart { channel, uses, dies, cells } in part.channels {
            for (die, (use_of, (blocks, queue))) in self.dies_of(channel).zip(uses.into_iter().zip(dies)) {
                self.core.resources.dies[die as usize] = use_of;
                self.core.blocks.put_die(die, blocks);
                self.core.queues.put_die(die, queue);
            }
            if let Some(cells) = cells {
                self.core.states.put_channel(channel, cells);
            }
        }
        for (slot, region) in part.slots {
            self.core.states.put_slot(slot, region);
        }
        for (vssd, sharer) in part.vssds {
            self.core.next_vssd = self.core.next_vssd.max(vssd.id.0 + 1);
            self.core.queues.admit(vssd.id, sharer);
            self.core.has_purges |= vssd.purge.is_some();
            self.core.purges_are_due |= vssd.purge.is_some();
            self.core.vssds.insert(vssd.id, vssd);
        }
    }
}
