//! Who has what: which shard owns each channel, where vSSDs lie, and which shard is the home of each tenant. Kept by the
//! first shard; nothing of it is stored, because it follows from where vSSDs lie.

use crate::away::Away;
use crate::devices::DeviceIndex;
use diecut_catalog::State;
use diecut_units::Geometry;
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

    /// Dies that it lies on, of the device that shards divide.
    pub fn dies(&self) -> impl Iterator<Item = u32> + '_ {
        self.parts.iter().flat_map(|part| part.places.dies())
    }

    /// Channels that it lies on, of the device that shards divide.
    pub fn channels(&self, geometry: &Geometry) -> BTreeSet<u16> {
        self.parts.iter().flat_map(|part| part.places.channels(geometry)).collect()
    }
}

/// See the module.
pub(crate) struct Ledger {
    shards: u16,
    /// By channel of the device that shards divide. The first shard has those that nobody uses.
    pub owners: Vec<u16>,
    /// Channels that stay with the first shard: it keeps the log of block states there.
    pub kept: BTreeSet<u16>,
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
    pub channels: BTreeSet<u16>,
}

/// Tenants that move together, and all that is theirs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub tenants: Vec<String>,
    /// By number.
    pub vssds: Vec<u32>,
    pub channels: Vec<u16>,
    pub from: u16,
    pub to: u16,
}

impl Group {
    /// What is tied together, on its way.
    pub fn of(tied: Tied, from: u16, to: u16) -> Group {
        Group {
            tenants: tied.tenants.into_iter().collect(),
            vssds: tied.vssds.into_iter().collect(),
            channels: tied.channels.into_iter().collect(),
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

impl Ledger {
    pub fn new(shards: u16, channels: u16) -> Ledger {
        Ledger {
            shards,
            owners: vec![0; channels.into()],
            kept: BTreeSet::new(),
            vssds: BTreeMap::new(),
            homes: BTreeMap::new(),
        }
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

    /// Writes down a vSSD and its channels.
    pub fn add(&mut self, id: VssdId, held: Held, geometry: &Geometry) {
        assert!(held.shard < self.shards, "I-S20: {id:?} lives on a shard that there is");
        let channels = if self.is_single() { BTreeSet::new() } else { held.channels(geometry) };
        for channel in channels {
            let owner = &mut self.owners[usize::from(channel)];
            assert!(*owner == 0 || *owner == held.shard, "I-S20: channel {channel} has one owner");
            *owner = held.shard;
        }
        let before = self.vssds.insert(id.0, held);
        assert!(before.is_none(), "I-S20: {id:?} lies in one place");
    }

    /// All that was found lives on the only shard.
    pub fn give_all(&mut self, found: Vec<Found>) {
        assert!(self.is_single(), "I-S20: one shard has all that there is");
        for Found { id, tenant, part } in found {
            self.homes.extend(tenant.map(|tenant| (tenant, 0)));
            let held = self.vssds.entry(id.0).or_insert(Held { shard: 0, parts: Vec::new() });
            let is_new = held.parts.iter().all(|other| other.device != part.device);
            assert!(is_new, "I-S20: {id:?} lies in one place of a device");
            held.parts.push(part);
        }
    }

    /// Gives all that was found a home. What shares a channel, or belongs to one tenant, stays together; the largest groups
    /// are given out first, each to the shard with the least; what lies on a channel that the first shard keeps is its. The same state comes out
    /// the same at each start.
    pub fn give_out(&mut self, found: Vec<Found>, geometry: &Geometry) {
        // Group of each vSSD: the lowest index among those it is tied to.
        let mut group: Vec<usize> = (0..found.len()).collect();
        let channels: Vec<_> = found.iter().map(|one| one.part.places.channels(geometry)).collect();
        for at in 0..found.len() {
            for other in 0..at {
                let tied = found[at].tenant.is_some() && found[at].tenant == found[other].tenant
                    || !channels[at].is_disjoint(&channels[other]);
                if tied && group[at] != group[other] {
                    let (from, to) = (group[at].max(group[other]), group[at].min(group[other]));
                    group.iter_mut().filter(|of| **of == from).for_each(|of| *of = to);
                }
            }
        }
        let mut groups: BTreeMap<usize, u64> = BTreeMap::new();
        for (one, group) in found.iter().zip(&group) {
            *groups.entry(*group).or_default() += one.part.blocks;
        }
        let mut order: Vec<usize> = groups.keys().copied().collect();
        order.sort_by_key(|group| (std::cmp::Reverse(groups[group]), *group));
        let mut loads = vec![0; self.shards.into()];
        let mut homes = BTreeMap::new();
        let is_kept = |of: &usize| {
            let of_group = channels.iter().zip(&group).filter(|(_, group)| *group == of);
            of_group.into_iter().any(|(channels, _)| !channels.is_disjoint(&self.kept))
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
        for (one, group) in found.into_iter().zip(group) {
            let shard = homes[&group];
            if let Some(tenant) = one.tenant {
                self.homes.insert(tenant, shard);
            }
            self.add(one.id, Held { shard, parts: vec![one.part] }, geometry);
        }
    }

    /// What shares a shard with a tenant, or with what lies on a channel: all tenants and vSSDs that are tied to it by
    /// channels, or by one another. `tenants` says whose each vSSD is.
    pub fn tied_to(&self, start: Tied, tenants: &BTreeMap<u32, String>, geometry: &Geometry) -> Tied {
        let mut tied = start;
        loop {
            let before = tied.vssds.len();
            for (number, held) in &self.vssds {
                let (owner, channels) = (tenants.get(number), held.channels(geometry));
                let is_tied = owner.is_some_and(|owner| tied.tenants.contains(owner))
                    || !tied.channels.is_disjoint(&channels);
                if is_tied {
                    tied.vssds.insert(*number);
                    tied.channels.extend(channels);
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
        for &channel in &group.channels {
            let owner = &mut self.owners[usize::from(channel)];
            assert_eq!(*owner, group.from, "I-S15: channel {channel} leaves the group's home");
            *owner = group.to;
        }
        for number in &group.vssds {
            let held = self.vssds.get_mut(number).expect("I-S15: a vSSD that moves is known");
            assert_eq!(held.shard, group.from, "I-S15: vSSD {number} leaves the group's home");
            held.shard = group.to;
        }
        self.homes.extend(group.tenants.iter().map(|tenant| (tenant.clone(), group.to)));
    }

    /// Channels that a shard owns.
    pub fn channels_of(&self, shard: u16) -> Vec<u16> {
        let channels = 0..self.owners.len() as u16;
        channels.filter(|&channel| self.owners[usize::from(channel)] == shard).collect()
    }
}
