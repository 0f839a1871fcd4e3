//! Who has what: which shard owns each lane, where vSSDs lie, and which shard is the home of each tenant. Kept by the
//! first shard; nothing of it is stored, because it follows from where vSSDs lie.

use crate::away::Away;
use crate::devices::DeviceIndex;
use crate::lanes::{Lane, LaneOwners};
use diecut_catalog::State;
use diecut_units::{Geometry, mutant};
use diecut_vssd::{Places, VssdId, WearNews};
use std::collections::{BTreeMap, BTreeSet};

/// A vSSD and its home.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub shard: u16,
    /// One on each device that it lies on.
    pub parts: Vec<HeldPart>,
}

/// What a vSSD has of a device.
#[derive(Clone, Debug)]
pub(crate) struct HeldPart {
    pub device: DeviceIndex,
    pub places: Places,
    /// Erase blocks it may hold there: its part of a shard's load.
    pub blocks: u64,
}

impl Held {
    fn blocks(&self) -> u64 {
        self.parts.iter().map(|part| part.blocks).sum()
    }

    /// Dies of a device that it lies on.
    pub fn dies(&self, device: DeviceIndex) -> impl Iterator<Item = u32> + '_ {
        let there = self.parts.iter().filter(move |part| part.device == device);
        there.flat_map(|part| part.places.dies())
    }
}

/// Lanes that parts of a vSSD lie on.
pub(crate) fn lanes_of(parts: &[HeldPart], geometries: &[Geometry]) -> BTreeSet<Lane> {
    let lanes = parts.iter().flat_map(|HeldPart { device, places, .. }| {
        let channels = places.channels(&geometries[usize::from(device.0)]);
        channels.into_iter().map(|channel| Lane::of(*device, channel))
    });
    lanes.collect()
}

/// See the module.
pub(crate) struct Ledger {
    shards: u16,
    /// Of the devices, by their index.
    geometries: Vec<Geometry>,
    pub owners: LaneOwners,
    /// Lanes that stay with the first shard: it keeps logs of block states there, or a part of a vSSD lies there whose other parts are away.
    pub kept: BTreeSet<Lane>,
    /// By number.
    pub vssds: BTreeMap<u32, Held>,
    /// By name. A tenant keeps its last home when it loses its last vSSD.
    pub homes: BTreeMap<String, u16>,
}

/// What lives on one shard together.
#[derive(Debug, Default)]
pub(crate) struct Tied {
    pub tenants: BTreeSet<String>,
    pub vssds: BTreeSet<u32>,
    pub lanes: BTreeSet<Lane>,
}

/// Tenants that move together, and all that is theirs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub tenants: Vec<String>,
    /// By number.
    pub vssds: Vec<u32>,
    pub lanes: Vec<Lane>,
    pub from: u16,
    pub to: u16,
}

impl Group {
    /// What is tied together, on its way.
    pub fn of(tied: Tied, from: u16, to: u16) -> Group {
        Group {
            tenants: tied.tenants.into_iter().collect(),
            vssds: tied.vssds.into_iter().collect(),
            lanes: tied.lanes.into_iter().collect(),
            from,
            to,
        }
    }
}

/// A vSSD that is there when a pool is opened, or a part of it.
pub(crate) struct Found {
    pub id: VssdId,
    /// None for what a crash left over.
    pub tenant: Option<String>,
    pub part: HeldPart,
}

/// What was found of one vSSD.
struct Whole {
    id: VssdId,
    tenant: Option<String>,
    parts: Vec<HeldPart>,
}

impl Whole {
    /// Parts of one vSSD are put together.
    fn of(found: Vec<Found>) -> Vec<Whole> {
        let mut all: Vec<Whole> = Vec::new();
        for Found { id, tenant, part } in found {
            match all.iter_mut().find(|one| one.id == id) {
                Some(one) => {
                    let is_new = one.parts.iter().all(|other| other.device != part.device);
                    assert!(is_new, "I-S20: {id:?} lies in one place of a device");
                    one.parts.push(part);
                }
                None => all.push(Whole { id, tenant, parts: vec![part] }),
            }
        }
        all
    }

    fn blocks(&self) -> u64 {
        self.parts.iter().map(|part| part.blocks).sum()
    }
}

impl Ledger {
    /// Nothing lies on these devices.
    pub fn new(shards: u16, geometries: Vec<Geometry>) -> Ledger {
        Ledger {
            shards,
            owners: LaneOwners::new(&geometries),
            geometries,
            kept: BTreeSet::new(),
            vssds: BTreeMap::new(),
            homes: BTreeMap::new(),
        }
    }

    /// One more device, on which nothing lies. `kept`: lanes that stay with the first shard.
    pub fn add_device(&mut self, device: DeviceIndex, geometry: &Geometry, kept: &[u16]) {
        self.owners.add(device, geometry);
        self.geometries.resize(usize::from(device.0), *geometry);
        self.geometries.push(*geometry);
        self.kept.extend(kept.iter().map(|channel| Lane::of(device, *channel)));
    }

    /// A device is gone.
    pub fn forget_device(&mut self, device: DeviceIndex) {
        self.owners.forget(device);
        self.kept.retain(|lane| lane.device != device);
    }

    /// Whether there is one shard only.
    pub fn is_single(&self) -> bool {
        self.shards == 1
    }

    /// All shards but the first.
    pub fn members(&self) -> impl Iterator<Item = u16> + use<> {
        1..self.shards
    }

    /// Dies of a device began to change places, or did.
    pub fn heard_of(&mut self, device: DeviceIndex, news: WearNews) {
        let parts = self.vssds.values_mut().flat_map(|held| &mut held.parts);
        parts.filter(|part| part.device == device).for_each(|part| part.places.heard_of(news));
    }

    /// Erase blocks that vSSDs of a device may hold.
    pub fn blocks_on(&self, device: DeviceIndex) -> u64 {
        let parts = self.vssds.values().flat_map(|held| &held.parts);
        parts.filter(|part| part.device == device).map(|part| part.blocks).sum()
    }

    fn load(&self, shard: u16) -> u64 {
        self.vssds.values().filter(|held| held.shard == shard).map(Held::blocks).sum()
    }

    /// Shards, the least loaded first.
    pub fn by_load(&self) -> Vec<u16> {
        let mut shards: Vec<u16> = (0..self.shards).collect();
        shards.sort_by_key(|&shard| (self.load(shard), shard));
        shards
    }

    /// The home of a vSSD; the first shard's if there is no such vSSD.
    pub fn shard_of(&self, vssd: u32) -> u16 {
        self.vssds.get(&vssd).map_or(0, |held| held.shard)
    }

    /// The home of a tenant.
    pub fn home_of(&self, tenant: &str) -> u16 {
        self.homes.get(tenant).copied().unwrap_or(0)
    }

    /// Checks, while nothing is carried out, that it holds just the vSSDs that exist, each where its tenant is at home. Those that are `away` lie
    /// nowhere.
    ///
    /// # Panics
    /// If not.
    pub fn check(&self, state: &State, away: &BTreeMap<u32, Away>) {
        let mut listed: BTreeSet<u32> = self.vssds.keys().copied().collect();
        for (name, record) in state.vssds.iter().filter(|(_, record)| !away.contains_key(&record.number)) {
            assert!(listed.remove(&record.number), "I-S29: vSSD \"{name}\" lives somewhere");
            assert_eq!(
                self.homes.get(&record.tenant),
                Some(&self.shard_of(record.number)),
                "I-S29: home of tenant \"{}\", whose vSSD \"{name}\" is",
                record.tenant
            );
        }
        assert!(listed.is_empty(), "I-S29: nothing is kept of vSSDs that were deleted: {listed:?}");
    }

    /// Lanes that a vSSD lies on.
    pub fn lanes_of(&self, held: &Held) -> BTreeSet<Lane> {
        lanes_of(&held.parts, &self.geometries)
    }

    /// Writes down a vSSD and its lanes.
    pub fn add(&mut self, id: VssdId, held: Held) {
        assert!(held.shard < self.shards, "I-S20: {id:?} lives on a shard that there is");
        let lanes = if self.is_single() { BTreeSet::new() } else { self.lanes_of(&held) };
        for lane in lanes {
            let before = self.owners.give(lane, held.shard);
            assert!(before == 0 || before == held.shard, "I-S20: {lane:?} has one owner");
        }
        let before = self.vssds.insert(id.0, held);
        assert!(before.is_none(), "I-S20: {id:?} lies in one place");
    }

    /// Gives all that was found a home. What shares a lane, or belongs to one tenant, stays together; the largest groups
    /// are given out first, each to the shard with the least; what lies on a lane that the first shard keeps is its. The same state comes out
    /// the same at each start.
    pub fn give_out(&mut self, found: Vec<Found>) {
        let found = Whole::of(found);
        // Group of each vSSD: the lowest index among those it is tied to.
        let mut group: Vec<usize> = (0..found.len()).collect();
        let lanes_of =
            |one: &Whole| match mutant!("shard: what a vSSD shares is looked for on one device only") {
                true => lanes_of(&one.parts[..1], &self.geometries),
                false => lanes_of(&one.parts, &self.geometries),
            };
        let lanes: Vec<_> = found.iter().map(lanes_of).collect();
        for at in 0..found.len() {
            for other in 0..at {
                let tied = found[at].tenant.is_some() && found[at].tenant == found[other].tenant
                    || !lanes[at].is_disjoint(&lanes[other]);
                if tied && group[at] != group[other] {
                    let (from, to) = (group[at].max(group[other]), group[at].min(group[other]));
                    group.iter_mut().filter(|of| **of == from).for_each(|of| *of = to);
                }
            }
        }
        let homes = self.homes_of(&found, &lanes, &group);
        for (Whole { id, tenant, parts }, group) in found.into_iter().zip(group) {
            let shard = homes[&group];
            if let Some(tenant) = tenant {
                self.homes.insert(tenant, shard);
            }
            self.add(id, Held { shard, parts });
        }
    }

    /// The shard that each group is given to.
    fn homes_of(&self, found: &[Whole], lanes: &[BTreeSet<Lane>], group: &[usize]) -> BTreeMap<usize, u16> {
        let mut groups: BTreeMap<usize, u64> = BTreeMap::new();
        for (one, group) in found.iter().zip(group) {
            *groups.entry(*group).or_default() += one.blocks();
        }
        let mut order: Vec<usize> = groups.keys().copied().collect();
        order.sort_by_key(|group| (std::cmp::Reverse(groups[group]), *group));
        let mut loads = vec![0; self.shards.into()];
        let mut homes = BTreeMap::new();
        let is_kept = |of: &usize| {
            let of_group = lanes.iter().zip(group).filter(|(_, group)| *group == of);
            of_group.into_iter().any(|(lanes, _)| !lanes.is_disjoint(&self.kept))
        };
        let (kept, free): (Vec<usize>, Vec<usize>) = order.into_iter().partition(is_kept);
        for of in kept {
            loads[0] += groups[&of];
            homes.insert(of, 0);
        }
        for of in free {
            let (shard, load) = loads
                .iter_mut()
                .enumerate()
                .min_by_key(|(_, load)| **load)
                .expect("I-S5: there is a first shard");
            *load += groups[&of];
            homes.insert(of, shard as u16);
        }
        homes
    }

    /// What shares a shard with a tenant, or with what lies on a lane: all tenants and vSSDs that are tied to it by
    /// lanes, or by one another. `tenants` says whose each vSSD is.
    pub fn tied_to(&self, start: Tied, tenants: &BTreeMap<u32, String>) -> Tied {
        let mut tied = start;
        loop {
            let before = tied.vssds.len();
            for (number, held) in &self.vssds {
                let (owner, lanes) = (tenants.get(number), self.lanes_of(held));
                let is_tied = owner.is_some_and(|owner| tied.tenants.contains(owner))
                    || !tied.lanes.is_disjoint(&lanes);
                if is_tied {
                    tied.vssds.insert(*number);
                    tied.lanes.extend(lanes);
                    tied.tenants.extend(owner.cloned());
                }
            }
            if tied.vssds.len() == before {
                return tied;
            }
        }
    }

    /// Writes down that a group has another home.
    pub fn rehome(&mut self, group: &Group) {
        assert!(group.to < self.shards, "I-S15: a group moves to a shard that there is");
        for &lane in &group.lanes {
            let before = self.owners.give(lane, group.to);
            assert_eq!(before, group.from, "I-S15: {lane:?} leaves the group's home");
        }
        for number in &group.vssds {
            let held = self.vssds.get_mut(number).expect("I-S15: a vSSD that moves is known");
            assert_eq!(held.shard, group.from, "I-S15: vSSD {number} leaves the group's home");
            held.shard = group.to;
        }
        self.homes.extend(group.tenants.iter().map(|tenant| (tenant.clone(), group.to)));
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_drives::{DriveMedium, DriveShape};
    use diecut_media::Media;
    use diecut_spec::Isolation;
    use diecut_vssd::{Nonces, Pool, PoolConfig};
    use std::collections::BTreeMap;

    /// Drives of six lanes, and the pool of each.
    fn drives(count: u8) -> Vec<(Geometry, Pool)> {
        let shape = DriveShape {
            lanes: 6,
            block_size_bytes: 256 << 10,
            blocks_per_lane: 64,
            zones: None,
            dies: None,
            lane_stride_bytes: None,
        };
        let drive = |number: u8| {
            let medium = DriveMedium::new(shape, true, false);
            let nonces = Some(Nonces::new([0x5e; 16], [number; 16]));
            let config = PoolConfig { nonces, ..PoolConfig::suited_to(medium.geometry()) };
            (*medium.geometry(), Pool::create(&medium, config))
        };
        (1..=count).map(drive).collect()
    }

    /// A vSSD with a part on each of these lanes.
    fn found(drives: &[(Geometry, Pool)], id: u32, tenant: &str, lanes: &[Lane]) -> Vec<Found> {
        let part = |lane: &Lane| {
            let pool = &drives[usize::from(lane.device.0)].1;
            let places =
                pool.choose_places(Isolation::Software, 1, 1 << 20, |channel| channel == lane.channel);
            let part = HeldPart { device: lane.device, places: places.unwrap(), blocks: 10 };
            Found { id: VssdId(id), tenant: Some(tenant.to_owned()), part }
        };
        lanes.iter().map(part).collect()
    }

    /// Homes of three tenants: the first two share a lane of the second drive only, the third one shares nothing.
    fn homes(kept: &[Lane]) -> (Ledger, BTreeMap<String, u16>) {
        let drives = drives(2);
        let lane = |device, channel| Lane::of(DeviceIndex(device), channel);
        let mut all = found(&drives, 1, "wide", &[lane(0, 4), lane(1, 5)]);
        all.extend(found(&drives, 2, "beside", &[lane(1, 5)]));
        all.extend(found(&drives, 3, "alone", &[lane(0, 5)]));
        let mut ledger = Ledger::new(2, drives.iter().map(|(geometry, _)| *geometry).collect());
        ledger.kept = kept.iter().copied().collect();
        ledger.give_out(all);
        let homes = ledger.homes.clone();
        (ledger, homes)
    }

    /// Goal: what shares a lane of any of its devices has one home, and each lane of a vSSD is its shard's; a lane that the first shard keeps
    /// ties all of it to that.
    #[test]
    fn what_shares_a_lane_of_any_device_has_one_home() {
        let lane = |device, channel| Lane::of(DeviceIndex(device), channel);
        let (ledger, homes) = homes(&[]);
        assert_eq!(
            (homes["wide"], homes["beside"], homes["alone"]),
            (0, 0, 1),
            "the larger group comes first"
        );
        assert_eq!(ledger.owners.lanes_of(1), [lane(0, 5)]);
        let tenants = [(1, "wide"), (2, "beside"), (3, "alone")];
        let tenants = tenants.into_iter().map(|(id, name)| (id, name.to_owned())).collect();
        let start = Tied { tenants: ["beside".to_owned()].into(), ..Tied::default() };
        let tied = ledger.tied_to(start, &tenants);
        assert_eq!(tied.lanes, [lane(0, 4), lane(1, 5)].into());
        assert_eq!(tied.vssds, [1, 2].into());
        let (ledger, homes) = self::homes(&[lane(0, 5)]);
        assert_eq!(
            (homes["wide"], homes["beside"], homes["alone"]),
            (1, 1, 0),
            "the first shard keeps a lane"
        );
        assert_eq!(ledger.owners.lanes_of(1), [lane(0, 4), lane(1, 5)]);
        let mut ledger = ledger;
        ledger.rehome(&Group::of(tied, 1, 0));
        assert_eq!(ledger.owners.lanes_of(1), []);
        assert_eq!(ledger.home_of("wide"), 0);
    }

    /// The canary: planted bugs must be noticed.
    #[test]
    fn planted_bugs_are_noticed() {
        let scenario: fn() = || assert!(homes(&[]).1["beside"] == 0, "two homes share a lane");
        diecut_testing::planted::all_are_noticed(&[(
            "shard: what a vSSD shares is looked for on one device only",
            scenario,
        )]);
    }
}
