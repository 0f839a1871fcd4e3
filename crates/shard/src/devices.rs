//! What a shard has of each device of the server: its part of the medium, and the pool over that.
//!
//! Each device keeps for itself who holds its erase blocks, how they wear and who is next at its dies, so devices may differ, come, go and fail
//! alone. A vSSD lies on one of them, or has parts on several, under the same number in each pool; all of it is one shard's. Several shards divide
//! each device: each has some of its channels.

use crate::config::DeviceConfig;
pub use crate::lanes::DeviceIndex;
use crate::staging::Staging;
use diecut_catalog::VssdRecord;
use diecut_media::Media;
use diecut_units::Time;
use diecut_vssd::{
    Condition, DieTimesView, EraseBlockSpace, JoinedSpace, MediaUse, Pool, Share, SlowOperation, Space,
    SpaceCompletion, SpaceToken, UnitLocation, VssdId, VssdParts,
};
use std::collections::BTreeMap;
use uuid::Uuid;

/// What a shard has of one device.
pub(crate) struct OwnDevice<M: Media> {
    pub media: M,
    pub pool: Pool,
    pub config: DeviceConfig,
    pub staging: Staging,
    /// Blocks retired, by die, as far as that was told.
    pub retired_told: Vec<u32>,
    /// What it lies on cannot be reached.
    pub is_away: bool,
    pub standing: Standing,
}

/// How a device belongs to the pool of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It was brought while the server runs, and has no voice yet: nothing lies on it.
    Joins,
    There,
    /// What lies on it moves to others, and nothing more is given away on it.
    Drains,
    /// It is to go: nothing more is given away on it.
    Leaves,
}

impl<M: Media> OwnDevice<M> {
    pub fn new(media: M, pool: Pool, config: DeviceConfig, staging: Staging) -> OwnDevice<M> {
        let dies = media.geometry().dies() as usize;
        OwnDevice {
            media,
            pool,
            config,
            staging,
            retired_told: vec![0; dies],
            is_away: false,
            standing: Standing::There,
        }
    }

    /// The UUID by which its label names it; zeros of what has no label.
    pub fn uuid(&self) -> Uuid {
        self.config.uuid()
    }

    /// The erase blocks of a vSSD that lies here, for the length of a call.
    #[inline]
    pub fn space(&mut self, vssd: VssdId, now: Time) -> Space<'_, M> {
        self.pool.space(vssd, &mut self.media, now)
    }

    /// Whether something new may lie on it.
    pub fn takes_vssds(&self) -> bool {
        !self.is_away && self.standing == Standing::There
    }
}

/// An operation that took long, and where it was.
#[derive(Clone, Copy)]
pub(crate) struct SlowOn {
    pub device: DeviceIndex,
    pub operation: SlowOperation,
}

/// The part of a share that one of so many parts has.
fn part_of(share: Share, parts: u64) -> Share {
    Share { rate_bytes_per_second: share.rate_bytes_per_second.div_ceil(parts.max(1)), ..share }
}

/// What a vSSD lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LiesOn {
    /// One device.
    Device(DeviceIndex),
    /// It has parts on several.
    Several,
}

/// A vSSD with parts on several devices.
struct Joined {
    /// In the order of their numbers, as `parts` has them.
    devices: Vec<DeviceIndex>,
    parts: VssdParts,
}

/// The erase blocks of a vSSD, lent for a call.
pub(crate) enum LentSpace<'a, M: Media> {
    OfOne(Space<'a, M>),
    Joined(JoinedSpace<'a, Space<'a, M>>),
}

impl<M: Media> LentSpace<'_, M> {
    #[inline]
    pub fn as_ref(&self) -> &dyn EraseBlockSpace {
        match self {
            LentSpace::OfOne(space) => space,
            LentSpace::Joined(space) => space,
        }
    }

    #[inline]
    pub fn as_mut(&mut self) -> &mut dyn EraseBlockSpace {
        match self {
            LentSpace::OfOne(space) => space,
            LentSpace::Joined(space) => space,
        }
    }
}

/// All of them; there is one at least.
pub(crate) struct Devices<M: Media> {
    /// By index. Those that left the pool, and those that were brought and did not join, have left their places empty: an index is given once.
    own: Vec<Option<OwnDevice<M>>>,
    joined: BTreeMap<VssdId, Joined>,
}

impl<M: Media> Devices<M> {
    /// # Panics
    /// If there is none, or more than can be counted.
    pub fn new(own: Vec<OwnDevice<M>>) -> Devices<M> {
        assert!(!own.is_empty(), "I-S37: a server has a device");
        assert!(u16::try_from(own.len()).is_ok(), "I-S37: devices are numbered");
        Devices { own: own.into_iter().map(Some).collect(), joined: BTreeMap::new() }
    }

    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// The first one that is there.
    pub fn first(&self) -> DeviceIndex {
        self.numbered().next().expect("I-S37: a server has a device").0
    }

    /// Indexes that were given: those of devices that are gone, too.
    pub fn indexes(&self) -> u16 {
        self.own.len() as u16
    }

    pub fn iter(&self) -> impl Iterator<Item = &OwnDevice<M>> + Clone {
        self.own.iter().flatten()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut OwnDevice<M>> {
        self.own.iter_mut().flatten()
    }

    pub fn into_vec(self) -> Vec<OwnDevice<M>> {
        self.own.into_iter().flatten().collect()
    }

    /// With their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (DeviceIndex, &OwnDevice<M>)> + Clone {
        (0..).map(DeviceIndex).zip(&self.own).filter_map(|(device, own)| Some((device, own.as_ref()?)))
    }

    /// See [`Devices::numbered`].
    pub fn numbered_mut(&mut self) -> impl Iterator<Item = (DeviceIndex, &mut OwnDevice<M>)> {
        (0..).map(DeviceIndex).zip(&mut self.own).filter_map(|(device, own)| Some((device, own.as_mut()?)))
    }

    /// Whether it is here, or was never brought or is gone.
    pub fn has(&self, device: DeviceIndex) -> bool {
        self.own.get(usize::from(device.0)).is_some_and(Option::is_some)
    }

    /// One more, at an index that no other one had.
    ///
    /// # Panics
    /// If another one had it.
    pub fn put(&mut self, device: DeviceIndex, own: OwnDevice<M>) {
        let at = usize::from(device.0);
        assert!(at >= self.own.len(), "I-S37: the index of a device is given once");
        self.own.resize_with(at, || None);
        self.own.push(Some(own));
    }

    /// One is gone.
    ///
    /// # Panics
    /// If something lies on it, or it is the last one.
    pub fn take(&mut self, device: DeviceIndex) -> Option<OwnDevice<M>> {
        let gone = self.own.get_mut(usize::from(device.0))?.take()?;
        assert!(gone.pool.vssd_ids().next().is_none(), "I-S37: nothing lies on a device that goes");
        assert!(self.iter().next().is_some(), "I-S37: a server has a device");
        Some(gone)
    }

    #[inline]
    #[track_caller]
    pub fn get(&self, device: DeviceIndex) -> &OwnDevice<M> {
        self.own[usize::from(device.0)].as_ref().expect("I-S37: a device that is used is there")
    }

    #[inline]
    #[track_caller]
    pub fn get_mut(&mut self, device: DeviceIndex) -> &mut OwnDevice<M> {
        self.own[usize::from(device.0)].as_mut().expect("I-S37: a device that is used is there")
    }

    /// Parts of a vSSD, each of which its pool has, are one from now on. `devices` are in the order in which their units take turns.
    ///
    /// # Panics
    /// If a device does not have its part, or they are joined already.
    pub fn join(&mut self, vssd: VssdId, devices: &[DeviceIndex]) {
        let mut sorted = devices.to_vec();
        sorted.sort_unstable();
        let units: Vec<u16> =
            sorted.iter().map(|device| self.get(*device).pool.size_of(vssd).0 as u16).collect();
        assert!(!units.contains(&0), "I-S37: each device has its part of {vssd:?}");
        let place = |device: &DeviceIndex| sorted.binary_search(device).expect("just sorted");
        let order: Vec<usize> = devices.iter().map(place).collect();
        let joined = Joined { parts: VssdParts::new(&units, &order), devices: sorted };
        let before = self.joined.insert(vssd, joined);
        assert!(before.is_none(), "I-S37: parts of {vssd:?} are joined once");
    }

    /// Joins a vSSD of the catalog, if all its parts are here and are not joined.
    pub fn join_record(&mut self, record: &VssdRecord) {
        let id = VssdId(record.number);
        let devices = record.parts.iter().map(|part| self.find_uuid(part.device));
        let Some(devices) = devices.collect::<Option<Vec<DeviceIndex>>>() else { return };
        let are_here = devices.iter().all(|device| self.get(*device).pool.holds(id));
        if are_here && !self.joined.contains_key(&id) {
            self.join(id, &devices);
        }
    }

    /// Parts of vSSDs left: what is not here any more is not one any more.
    ///
    /// # Panics
    /// If a vSSD left in part, or something of it is under way.
    pub fn part(&mut self) {
        let own = &self.own;
        self.joined.retain(|id, joined| {
            let mut held = joined
                .devices
                .iter()
                .map(|device| own[usize::from(device.0)].as_ref().is_some_and(|own| own.pool.holds(*id)));
            let is_here = held.next().unwrap_or_default();
            assert!(held.all(|held| held == is_here), "I-S37: {id:?} leaves with all its parts");
            assert!(
                is_here || joined.parts.is_idle(),
                "I-S37: nothing of {id:?} is under way when it leaves"
            );
            is_here
        });
    }

    /// The device with a UUID.
    pub fn find_uuid(&self, uuid: Uuid) -> Option<DeviceIndex> {
        self.numbered().find(|(_, own)| own.uuid() == uuid).map(|(device, _)| device)
    }

    /// What a vSSD lies on, as far as that is this shard's.
    #[inline]
    pub fn find(&self, vssd: VssdId) -> Option<LiesOn> {
        if self.joined.contains_key(&vssd) {
            return Some(LiesOn::Several);
        }
        let at = self.own.iter().position(|own| own.as_ref().is_some_and(|own| own.pool.holds(vssd)))?;
        Some(LiesOn::Device(DeviceIndex(at as u16)))
    }

    /// Devices that have a part of a vSSD, or all of it; none if it does not lie here.
    pub fn of(&self, vssd: VssdId) -> impl Iterator<Item = &OwnDevice<M>> {
        self.iter().filter(move |own| own.pool.holds(vssd))
    }

    /// See [`Devices::of`].
    pub fn of_mut(&mut self, vssd: VssdId) -> impl Iterator<Item = &mut OwnDevice<M>> {
        self.iter_mut().filter(move |own| own.pool.holds(vssd))
    }

    /// A device of a vSSD, for what is the same on all of them.
    ///
    /// # Panics
    /// If it does not lie here.
    #[inline]
    pub fn first_of(&self, vssd: VssdId) -> &OwnDevice<M> {
        self.of(vssd).next().expect("I-S37: a vSSD that is used lies on a device")
    }

    /// Whether something that a vSSD lies on keeps nothing but what was flushed.
    pub fn has_volatile_cache(&self, vssd: VssdId) -> bool {
        self.of(vssd).any(|own| own.config.volatile_cache)
    }

    /// The erase blocks of a vSSD, for the length of a call.
    ///
    /// # Panics
    /// If it does not lie here.
    #[inline]
    pub fn space(&mut self, vssd: VssdId, now: Time) -> LentSpace<'_, M> {
        let lies = self.find(vssd).expect("I-S37: a vSSD that is used lies on a device");
        self.space_on(lies, vssd, now)
    }

    /// As [`Devices::space`], of a vSSD of which is known what it lies on.
    #[inline]
    pub fn space_on(&mut self, lies: LiesOn, vssd: VssdId, now: Time) -> LentSpace<'_, M> {
        match lies {
            LiesOn::Device(device) => LentSpace::OfOne(self.get_mut(device).space(vssd, now)),
            LiesOn::Several => self.joined_space(vssd, now),
        }
    }

    fn joined_space(&mut self, vssd: VssdId, now: Time) -> LentSpace<'_, M> {
        let joined = self.joined.get_mut(&vssd).expect("I-S37: a vSSD with parts is joined");
        let Joined { devices, parts } = joined;
        let own = (0..).map(DeviceIndex).zip(&mut self.own);
        let own = own.filter(|(device, _)| devices.binary_search(device).is_ok());
        LentSpace::Joined(parts.space(own.filter_map(|(_, own)| Some(own.as_mut()?.space(vssd, now)))))
    }

    /// Answers of a device's pool from `first` on become those of the vSSDs that they are for: where other parts are to answer, too, with the last.
    pub fn join_answers(
        &mut self,
        device: DeviceIndex,
        first: usize,
        answers: &mut Vec<(VssdId, SpaceCompletion)>,
    ) {
        if self.joined.is_empty() || first == answers.len() {
            return;
        }
        for (vssd, completion) in answers.split_off(first) {
            let completion = match self.joined.get_mut(&vssd) {
                None => Some(completion),
                Some(Joined { devices, parts }) => {
                    let part = devices.binary_search(&device).expect("I-S37: who answers has a part");
                    parts.answered(part, completion)
                }
            };
            answers.extend(completion.map(|completion| (vssd, completion)));
        }
    }

    /// Gives the erase blocks of a vSSD back, wherever it has some. Says whether it is done; something may be under way yet.
    pub fn give_back(&mut self, vssd: VssdId) -> bool {
        let mut is_done = true;
        for own in self.of_mut(vssd) {
            is_done &= own.pool.dealloc_vssd(vssd).is_ok();
        }
        if is_done {
            self.joined.remove(&vssd);
        }
        is_done
    }

    /// vSSDs that lie here.
    pub fn vssd_ids(&self) -> impl Iterator<Item = VssdId> + '_ {
        let is_first =
            |at: usize, id: &VssdId| !self.own[..at].iter().flatten().any(|before| before.pool.holds(*id));
        let of_all = self.own.iter().enumerate().filter_map(|(at, own)| Some((at, own.as_ref()?)));
        of_all.flat_map(move |(at, own)| own.pool.vssd_ids().filter(move |id| is_first(at, id)))
    }

    /// Whether the queues of all dies that a vSSD lies on have room for more of it.
    #[inline]
    pub fn has_room(&self, vssd: VssdId) -> bool {
        self.of(vssd).all(|own| own.pool.has_room(vssd))
    }

    /// Its parts share what a vSSD may do.
    pub fn set_share(&mut self, vssd: VssdId, share: Share, now: Time) {
        let parts = self.of(vssd).count() as u64;
        for own in self.of_mut(vssd) {
            own.pool.set_share(vssd, part_of(share, parts), now);
        }
    }

    /// The rate of a vSSD pays for bytes that were not written.
    pub fn charge_unused(&mut self, vssd: VssdId, bytes: u64, now: Time) {
        let parts = self.of(vssd).count() as u64;
        self.of_mut(vssd).for_each(|own| own.pool.charge_unused(vssd, bytes.div_ceil(parts.max(1)), now));
    }

    /// Whether all parts have their part of a share.
    pub fn has_share(&self, vssd: VssdId, share: Option<Share>) -> bool {
        let parts = self.of(vssd).count() as u64;
        self.of(vssd).all(|own| own.pool.share_of(vssd) == share.map(|share| part_of(share, parts)))
    }

    /// The worst of its parts.
    pub fn condition_of(&self, vssd: VssdId) -> Condition {
        let parts = self.of(vssd).map(|own| Condition::of(&own.pool, vssd));
        parts.fold(Condition::NEW, Condition::worst)
    }

    /// What the media did for a vSSD, all parts together.
    pub fn media_use_of(&self, vssd: VssdId) -> MediaUse {
        let mut sum = MediaUse::default();
        for (number, own) in self.numbered().filter(|(_, own)| own.pool.holds(vssd)) {
            sum.add(MediaUse::of(&own.pool, vssd, number.0));
        }
        sum
    }

    /// Independent units of a vSSD, and bytes of the erase blocks it may hold; zeros if there is none.
    pub fn size_of(&self, vssd: VssdId) -> (u32, u64) {
        let sizes = self.of(vssd).map(|own| own.pool.size_of(vssd));
        sizes.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Where the independent units of a vSSD lie, in their order; nowhere if there is none of that number.
    pub fn placement_of(&self, vssd: VssdId) -> Vec<(DeviceIndex, UnitLocation)> {
        let of_part = |device: DeviceIndex| {
            let units = self.get(device).pool.placement(vssd).into_iter();
            units.map(|location| (device, location)).collect::<Vec<_>>()
        };
        let Some(Joined { devices, parts }) = self.joined.get(&vssd) else {
            let holds = |(_, own): &(DeviceIndex, &OwnDevice<M>)| own.pool.holds(vssd);
            return self.numbered().find(holds).map_or_else(Vec::new, |(device, _)| of_part(device));
        };
        let of_parts: Vec<Vec<_>> = devices.iter().map(|device| of_part(*device)).collect();
        parts.units().map(|(part, unit)| of_parts[part][usize::from(unit.0)]).collect()
    }

    /// An operation of a vSSD that took long and came back.
    pub fn take_slow(&mut self, vssd: VssdId, token: SpaceToken) -> Option<SlowOn> {
        self.numbered_mut().find_map(|(device, own)| {
            let operation = DieTimesView::of(&mut own.pool).take_slow(vssd, token)?;
            Some(SlowOn { device, operation })
        })
    }

    /// The device whose wear shards level together: the only one. Several are drives, which level by themselves.
    pub fn leveled(&self) -> Option<DeviceIndex> {
        (self.own.len() == 1).then_some(DeviceIndex(0))
    }

    /// The only device: what is done of one that levels wear, or has protected memory, which is alone.
    ///
    /// # Panics
    /// If there are several.
    pub fn only(&self) -> &OwnDevice<M> {
        let [Some(only)] = &*self.own else { panic!("I-S37: a device with dies of its own is alone") };
        only
    }

    /// See [`Devices::only`].
    ///
    /// # Panics
    /// If there are several.
    pub fn only_mut(&mut self) -> &mut OwnDevice<M> {
        let [Some(only)] = &mut *self.own else { panic!("I-S37: a device with dies of its own is alone") };
        only
    }
}
