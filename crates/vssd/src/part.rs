//! One device, several pools: each owns whole channels and what lies on them, and no two touch the same memory.
//!
//! One pool, the first, keeps account of all channels ([`Pool::choose_places`], [`Pool::reserve`], [`Pool::release`]); the
//! others are told what to place ([`Pool::admit`]). Channels change hands as [`PoolPart`]s while nothing is under way on
//! them, with their vSSDs, their blocks and what the block states in protected memory say of them.

use crate::blocks::DiePart;
use crate::dies::{DieQueue, Sharer};
use crate::exchange::Exchange;
use crate::moving::WearNews;
use crate::pool::Pool;
use crate::recovery::VSSD_NUMBERS_MAX;
use crate::resources::{DieUse, UnitPlace};
use crate::states::cells::ChannelCells;
use crate::states::{BlockStates, StateTable};
use crate::tenancy::{Unit, Vssd};
use crate::{AllocError, PoolConfig, VssdId};
use diecut_media::Media;
use diecut_spec::Isolation;
use diecut_units::{Geometry, ProtectedRegion, Time, mark};
use std::collections::BTreeSet;

/// Where a vSSD lies, or will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    pub(crate) units: Vec<UnitPlace>,
    /// Dies that some of it is on its way to.
    pub(crate) targets: Vec<u32>,
}

impl Places {
    /// What became of them by an exchange.
    pub fn heard_of(&mut self, news: WearNews) {
        let of = |dies: [u32; 2], die: u32| dies.iter().position(|&one| one == die).map(|at| dies[1 - at]);
        match news {
            WearNews::Begun(dies) => {
                self.targets.extend(self.units.iter().filter_map(|place| of(dies, place.die)));
            }
            WearNews::Finished(dies) => {
                self.targets.retain(|&die| of(dies, die).is_none());
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
        let dies = self.units.iter().map(|place| place.die).chain(self.targets.iter().copied());
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

impl Pool {
    /// A pool that owns no channel yet. `media` is any part of the device.
    pub fn empty_part<M: Media + ?Sized>(media: &M, config: PoolConfig) -> Pool {
        let mut pool = Pool::create(media, config);
        pool.blocks.exclude_all();
        if media.protected_memory().is_some() {
            let table = StateTable::nothing(&pool.geometry, &pool.sizes());
            pool.states = BlockStates::Protected(table);
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
        let wear = |die: u32| self.blocks.die(die).erases;
        let exchanged = |channel: u32| {
            let waiting = self.migration.waiting.iter();
            let begun = self.migration.exchanges.iter().filter(|one| !one.is_inside()).map(|one| &one.dies);
            begun
                .chain(waiting)
                .chain(&self.elsewhere)
                .flatten()
                .any(|&die| u32::from(self.geometry.die_at(die).channel.0) == channel)
        };
        let choose = |allowed: &dyn Fn(u32) -> bool| {
            self.resources.choose(&self.config.levels, isolation, level, capacity_bytes, wear, allowed)
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
        Ok(Places { units, targets: Vec::new() })
    }

    /// A number that no vSSD of this device ever had.
    ///
    /// # Errors
    /// All were given.
    pub fn new_vssd_id(&mut self) -> Result<VssdId, AllocError> {
        if self.next_vssd >= VSSD_NUMBERS_MAX {
            return Err(AllocError::NoNumber);
        }
        self.next_vssd += 1;
        Ok(VssdId(self.next_vssd - 1))
    }

    /// Makes a vSSD where it was chosen to lie; its channels are this pool's.
    ///
    /// # Panics
    /// If the places are not free, or the number was given to another one.
    pub fn admit(&mut self, id: VssdId, isolation: Isolation, places: &Places) {
        self.next_vssd = self.next_vssd.max(id.0 + 1);
        self.resources.take(id, &places.units).expect("chosen places are free");
        self.place(id, isolation, &places.units);
        self.record_vssd(self.at_of(id).expect("placed just now"));
    }

    /// Keeps account of a vSSD that another pool makes.
    ///
    /// # Panics
    /// If the places are not free.
    pub fn reserve(&mut self, id: VssdId, places: &Places) {
        self.resources.take(id, &places.units).expect("chosen places are free");
    }

    /// Whether a vSSD can be made there now; places were chosen by a pool that may not have heard of the last exchange.
    pub fn are_free(&self, places: &Places) -> bool {
        let exchanged = |die: u32| self.migration.exchanges.iter().any(|one| one.dies.contains(&die));
        self.resources.are_free(&places.units)
            && !places.channels(&self.geometry).iter().any(|&channel| self.dies_of(channel).any(exchanged))
    }

    fn dies_of(&self, channel: u16) -> std::ops::Range<u32> {
        let per_channel = u32::from(self.geometry.dies_per_channel);
        u32::from(channel) * per_channel..(u32::from(channel) + 1) * per_channel
    }

    /// Whether just these vSSDs lie on these channels, and nothing of them is on its way to others.
    pub fn holds_just(&self, channels: &[u16], vssds: &[u32]) -> bool {
        let lies = |die: u32| channels.contains(&self.geometry.die_at(die).channel.0);
        self.vssds.iter().all(|vssd| {
            let own = vssds.contains(&vssd.id.0);
            vssd.units.iter().all(|unit| {
                lies(unit.place.die) == own
                    && unit.target.as_ref().is_none_or(|target| lies(target.die) == own)
            })
        })
    }

    /// Keeps account of an exchange in another pool.
    pub fn heard_of(&mut self, news: WearNews) {
        match news {
            WearNews::Begun(dies) if !self.elsewhere.contains(&dies) => self.elsewhere.push(dies),
            WearNews::Finished(dies) => {
                self.elsewhere.retain(|other| *other != dies);
                self.resources.dies.swap(dies[0] as usize, dies[1] as usize);
            }
            WearNews::Dropped(dies) => self.elsewhere.retain(|other| *other != dies),
            WearNews::Begun(_) | WearNews::Due => {}
        }
    }

    /// Exchanges under way of dies on these channels.
    pub fn exchanges_on(&self, channels: &[u16]) -> Vec<[u32; 2]> {
        let lies = |die: u32| channels.contains(&self.geometry.die_at(die).channel.0);
        let exchanges = self.migration.exchanges.iter().filter(|one| !one.is_inside());
        exchanges.map(|one| one.dies).filter(|dies| dies.iter().any(|&die| lies(die))).collect()
    }

    /// Gives back places of a vSSD that another pool held.
    ///
    /// # Panics
    /// If they were not taken.
    pub fn release(&mut self, places: &Places) {
        self.resources.release(&places.units);
    }

    /// Where a vSSD of this pool lies.
    ///
    /// # Panics
    /// If there is no such vSSD.
    pub fn places_of(&self, id: VssdId) -> Places {
        let at = self.at_of(id).expect("the vSSD exists");
        let units = &self.vssds[at].units;
        Places {
            units: units.iter().map(|unit| unit.place).collect(),
            targets: units.iter().filter_map(|unit| unit.target.as_ref().map(|target| target.die)).collect(),
        }
    }

    /// Erase blocks that these places hold: the measure of a load.
    pub fn blocks_of(&self, places: &Places) -> u64 {
        places.units.iter().map(|&place| u64::from(self.resources.unit_blocks(place))).sum()
    }

    /// Whether no vSSD lies on a channel, as far as this pool knows.
    pub fn is_free_channel(&self, channel: u16) -> bool {
        let per_channel = usize::from(self.geometry.dies_per_channel);
        let dies = usize::from(channel) * per_channel..(usize::from(channel) + 1) * per_channel;
        let exchanged =
            |die: usize| self.migration.exchanges.iter().any(|one| one.dies.contains(&(die as u32)));
        !dies.clone().any(exchanged)
            && self.resources.dies[dies].iter().all(|use_of| match use_of {
                DieUse::Free | DieUse::Dead => true,
                DieUse::Whole(_) | DieUse::Cut(_) => false,
            })
    }

    /// Whether nothing is under way on channels, of their vSSDs or of the pool itself, and nothing waits at their dies: only
    /// then they can be taken out.
    pub fn is_quiet(&self, channels: &[u16]) -> bool {
        let lies = |die: u32| channels.contains(&self.geometry.die_at(die).channel.0);
        let mut of_vssds =
            self.vssds.iter().filter(|vssd| vssd.units.iter().any(|unit| lies(unit.place.die)));
        let waits_for_none = of_vssds.all(|vssd| vssd.operations == 0 && self.queues.has_room(vssd.id));
        let is_quiet = |die: u32| self.queues.is_quiet(die) && self.blocks.is_quiet(die);
        waits_for_none && channels.iter().all(|&channel| self.dies_of(channel).all(is_quiet))
    }

    /// Takes channels out, with the vSSDs on them.
    ///
    /// # Panics
    /// If something is under way there, a vSSD lies partly elsewhere, or block states are in a journal on flash: such a device
    /// has one pool.
    pub fn detach(&mut self, channels: &[u16]) -> PoolPart {
        assert!(!self.states.is_late() && self.replay.is_none(), "a journal on flash has one pool");
        let lies = |unit: &Unit| channels.contains(&self.geometry.die_at(unit.place.die).channel.0);
        let leaving = self.vssds.iter().filter(|vssd| vssd.units.iter().any(lies));
        let leaving: Vec<VssdId> = leaving.map(|vssd| vssd.id).collect();
        for vssd in leaving.iter().filter_map(|id| self.vssds.get(*id)) {
            assert!(vssd.units.iter().all(lies), "vSSD {} leaves as a whole (I-V7)", vssd.id.0);
            assert_eq!(vssd.operations, 0, "nothing of vSSD {} is under way", vssd.id.0);
        }
        let leave = leaving.into_iter().map(|id| (self.vssds.remove(id), self.queues.dismiss(id))).collect();
        let mut part = PoolPart {
            channels: Vec::new(),
            vssds: leave,
            slots: Vec::new(),
            exchanges: Vec::new(),
            sequence: self.blocks.sequence(),
            window_end: self.window_end,
        };
        let lies = |pool: &Pool, die: u32| channels.contains(&pool.geometry.die_at(die).channel.0);
        let moves = |one: &Exchange| one.is_moving() && one.dies.iter().any(|&die| lies(self, die));
        assert!(
            !self.migration.exchanges.iter().any(moves),
            "nothing moves on channels that change hands (I-V7)"
        );
        let exchanges = std::mem::take(&mut self.migration.exchanges);
        let (leave, stay): (Vec<_>, Vec<_>) =
            exchanges.into_iter().partition(|one| one.dies.iter().any(|&die| lies(self, die)));
        assert!(
            leave.iter().all(|one| one.dies.iter().all(|&die| lies(self, die))),
            "dies that are exchanged leave together (I-V7)"
        );
        (part.exchanges, self.migration.exchanges) = (leave, stay);
        for &channel in channels {
            let dies = self.dies_of(channel);
            let uses = self.resources.dies[dies.start as usize..dies.end as usize].to_vec();
            let dies = dies.map(|die| (self.blocks.take_die(die), self.queues.take_die(die))).collect();
            part.channels.push(ChannelPart { channel, uses, dies, cells: self.states.take_channel(channel) });
        }
        part.slots = part.vssds.iter().filter_map(|(vssd, _)| self.states.take_slot_of(vssd.id)).collect();
        part
    }

    /// Adds an entry for a vSSD that the other pool will make.
    pub fn lend_slot(&mut self, part: &mut PoolPart) {
        part.slots.extend(self.states.take_unused_slot());
    }

    /// Adds entries that no vSSD of this pool needs any more.
    pub fn return_slots(&mut self, part: &mut PoolPart) {
        part.slots.extend(self.states.take_idle_slots());
    }

    /// Ends the windows of averages that were over in the one pool and not in the other: a pool ends them when it has a reason
    /// to, and what arrives at one that had none for days is not days older for it.
    fn align_windows(&mut self, part: &mut PoolPart) {
        let window_ns = self.config.wear.window_ns.max(1);
        let end = self.window_end.max(part.window_end);
        let over = |since: Time| if since == Time::ZERO { 0 } else { (end.0 - since.0) / window_ns };
        let (own, others) = (over(self.window_end), over(part.window_end));
        let end_windows = |vssd: &mut Vssd, windows| {
            if windows > 0 {
                vssd.units.iter_mut().for_each(|unit| unit.heat.end_windows(windows));
            }
        };
        self.vssds.iter_mut().for_each(|vssd| end_windows(vssd, own));
        part.vssds.iter_mut().for_each(|(vssd, _)| end_windows(vssd, others));
        self.window_end = end;
    }

    /// Takes channels over, with the vSSDs on them.
    ///
    /// # Panics
    /// If this pool has them already.
    pub fn attach(&mut self, mut part: PoolPart) {
        self.align_windows(&mut part);
        self.blocks.skip_sequences(part.sequence);
        self.migration.exchanges.extend(part.exchanges);
        for ChannelPart { channel, uses, dies, cells } in part.channels {
            for (die, (use_of, (blocks, queue))) in self.dies_of(channel).zip(uses.into_iter().zip(dies)) {
                self.resources.dies[die as usize] = use_of;
                self.blocks.put_die(die, blocks);
                self.queues.put_die(die, queue);
            }
            if let Some(cells) = cells {
                self.states.put_channel(channel, cells);
            }
        }
        for (slot, region) in part.slots {
            self.states.put_slot(slot, region);
        }
        for (vssd, sharer) in part.vssds {
            self.next_vssd = self.next_vssd.max(vssd.id.0 + 1);
            self.queues.admit(vssd.id, sharer);
            self.vssds.insert(vssd.id, vssd);
        }
    }
}
