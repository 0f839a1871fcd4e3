//! Which dies and soft-planes belong to whom, and how large a unit is (FlashBlox table 3).

use crate::VssdId;
use diecut_spec::Isolation;
use diecut_units::Geometry;

/// Where dies of die-isolated vSSDs are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiePlacement {
    /// From channels that are broken up already: keeps whole channels whole.
    Pack,
    /// Over as many channels as there are: more bus bandwidth, more neighbours.
    Spread,
}

/// The administrator's level functions: how many channels, dies or soft-planes a throughput level means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelTable {
    /// `tputToChannel`, indexed by level.
    pub channels: Vec<u32>,
    /// `tputToDie`.
    pub dies: Vec<u32>,
    /// `tputToSoftPlane`.
    pub soft_planes: Vec<u32>,
}

impl LevelTable {
    /// Level 0 asks for the least there is; level `n` for `n` channels, or as many dies or soft-planes as those
    /// channels have.
    pub fn proportional(highest: u32, dies_per_channel: u32, soft_planes_per_die: u32) -> LevelTable {
        let table = |factor: u32| (0..=highest).map(|level| (level * factor).max(1)).collect();
        LevelTable {
            channels: table(1),
            dies: table(dies_per_channel),
            soft_planes: table(dies_per_channel * soft_planes_per_die),
        }
    }
    fn of(&self, isolation: Isolation) -> &[u32] {
        match isolation {
            Isolation::Channel => &self.channels,
            Isolation::Die => &self.dies,
            Isolation::Software | Isolation::None => &self.soft_planes,
        }
    }
}

/// Why a vSSD cannot be made; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// The level is not in the administrator's table.
    #[error("throughput level {level} is unknown; levels 0 to {highest} are defined for this isolation")]
    UnknownLevel {
        /// Asked for.
        level: u32,
        /// Highest that is defined.
        highest: u32,
    },
    /// No capacity was asked for.
    #[error("capacity is 0 bytes; ask for at least one erase block")]
    NoCapacity,
    /// More than the device could ever give at this isolation.
    #[error(
        "{capacity_bytes} bytes need {needed} {kind} but the device has {total}; ask for less, at most \
         {largest_bytes} bytes"
    )]
    DoesNotFit {
        /// Asked for.
        capacity_bytes: u64,
        /// Channels, dies or soft-planes needed.
        needed: u64,
        /// The device's.
        total: u64,
        /// "channels", "dies" or "soft-planes".
        kind: &'static str,
        /// What all of them hold.
        largest_bytes: u64,
    },
    /// Numbers of vSSDs are never used again, and all were given.
    #[error("16 million vSSDs were made on this device, and their numbers are used up; make the device anew")]
    NoNumber,
    /// Not free at this isolation now. Never downgraded silently.
    #[error(
        "needs {needed} free {kind} but only {free} are free; delete a vSSD, or ask for less or weaker isolation"
    )]
    NotFree {
        /// Needed.
        needed: u64,
        /// Free.
        free: u64,
        /// "channels", "dies" or "soft-planes".
        kind: &'static str,
    },
    /// There is room, but on channels that take nothing new before what they hold is where it goes.
    #[error(
        "needs {needed} free {kind}, and only {free} are free beside those on channels whose content is being exchanged for \
         even wear; ask again when that is done: `diecut wear` shows what is left, and whether it is paused"
    )]
    BeingExchanged {
        /// Needed.
        needed: u64,
        /// Free on channels that nothing moves on.
        free: u64,
        /// "channels", "dies" or "soft-planes".
        kind: &'static str,
    },
}

/// Why a vSSD cannot be deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeallocError {
    /// It was deleted before.
    #[error("vSSD {0} was deleted before (double free)")]
    AlreadyFree(u32),
    /// There never was one.
    #[error("vSSD {0} does not exist; list the vSSDs to find its number")]
    Unknown(u32),
    /// Commands are under way.
    #[error("vSSD {vssd} has {operations} operations under way; wait for them and delete it then")]
    Busy {
        /// The vSSD.
        vssd: u32,
        /// Operations under way.
        operations: u32,
    },
}

/// Use of one die. A die is whole or cut, never both; free dies of one channel are a free channel again, so
/// merging needs no step of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DieUse {
    /// Too few good blocks.
    Dead,
    Free,
    Whole(VssdId),
    Cut(Vec<Option<VssdId>>),
}

/// A place for a unit: a die, and the soft-plane if the die is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitPlace {
    pub die: u32,
    pub soft_plane: Option<u16>,
}

pub(crate) struct Resources {
    pub geometry: Geometry,
    pub dies: Vec<DieUse>,
    pub soft_planes_per_die: u16,
    /// Erase blocks of a unit that is a whole die.
    pub die_blocks: u32,
    pub placement: DiePlacement,
}

impl Resources {
    pub fn soft_plane_blocks(&self) -> u32 {
        self.die_blocks / u32::from(self.soft_planes_per_die)
    }
    pub fn unit_blocks(&self, place: UnitPlace) -> u32 {
        if place.soft_plane.is_some() { self.soft_plane_blocks() } else { self.die_blocks }
    }
    fn dies_of_channel(&self, channel: u32) -> std::ops::Range<usize> {
        let per = usize::from(self.geometry.dies_per_channel);
        channel as usize * per..(channel as usize + 1) * per
    }
    pub fn is_free_channel(&self, channel: u32) -> bool {
        self.dies[self.dies_of_channel(channel)].iter().all(|die| *die == DieUse::Free)
    }
    pub fn free_channels(&self) -> u32 {
        (0..u32::from(self.geometry.channels)).filter(|&channel| self.is_free_channel(channel)).count() as u32
    }
    pub fn free_dies(&self) -> u32 {
        self.dies.iter().filter(|die| **die == DieUse::Free).count() as u32
    }

    /// Chooses places without taking them, on channels that are `allowed`. `wear` gives a die's erases: the least worn is
    /// taken first.
    pub fn choose(
        &self,
        levels: &LevelTable,
        isolation: Isolation,
        level: u32,
        capacity_bytes: u64,
        wear: impl Fn(u32) -> u64,
        allowed: impl Fn(u32) -> bool,
    ) -> Result<Vec<UnitPlace>, AllocError> {
        let table = levels.of(isolation);
        let Some(&by_level) = table.get(level as usize) else {
            return Err(AllocError::UnknownLevel { level, highest: (table.len() as u32).saturating_sub(1) });
        };
        if capacity_bytes == 0 {
            return Err(AllocError::NoCapacity);
        }
        let per_channel = u64::from(self.geometry.dies_per_channel);
        let planes = u64::from(self.soft_planes_per_die);
        let usable = self.dies.iter().filter(|die| **die != DieUse::Dead).count() as u64;
        let die_bytes = u64::from(self.die_blocks) * self.geometry.erase_block_size_bytes();
        let plane_bytes = u64::from(self.soft_plane_blocks()) * self.geometry.erase_block_size_bytes();
        let whole_channels = (0..u32::from(self.geometry.channels))
            .filter(|&channel| !self.dies[self.dies_of_channel(channel)].contains(&DieUse::Dead))
            .count() as u64;
        let (kind, unit_bytes, total) = match isolation {
            Isolation::Channel => ("channels", die_bytes * per_channel, whole_channels),
            Isolation::Die => ("dies", die_bytes, usable),
            Isolation::Software | Isolation::None => ("soft-planes", plane_bytes, usable * planes),
        };
        let needed =
            if unit_bytes == 0 { u64::MAX } else { capacity_bytes.div_ceil(unit_bytes).max(by_level.into()) };
        if needed > total {
            let largest_bytes = total * unit_bytes;
            return Err(AllocError::DoesNotFit { capacity_bytes, needed, total, kind, largest_bytes });
        }
        let mut order = match isolation {
            Isolation::Channel => self.free_channel_places(&wear),
            Isolation::Die => self.free_die_places(&wear),
            Isolation::Software | Isolation::None => self.free_plane_places(&wear, &allowed, needed as usize),
        };
        order.retain(|place| allowed(place.die / u32::from(self.geometry.dies_per_channel)));
        let group = if isolation == Isolation::Channel { per_channel as usize } else { 1 };
        let free = (order.len() / group) as u64;
        if free < needed {
            return Err(AllocError::NotFree { needed, free, kind });
        }
        Ok(order.into_iter().take(needed as usize * group).collect())
    }

    fn free_channel_places(&self, wear: &impl Fn(u32) -> u64) -> Vec<UnitPlace> {
        let mut channels: Vec<u32> =
            (0..u32::from(self.geometry.channels)).filter(|&channel| self.is_free_channel(channel)).collect();
        channels.sort_by_key(|&channel| {
            (self.dies_of_channel(channel).map(|die| wear(die as u32)).sum::<u64>(), channel)
        });
        let places = channels.into_iter().flat_map(|channel| self.dies_of_channel(channel));
        places.map(|die| UnitPlace { die: die as u32, soft_plane: None }).collect()
    }

    /// Free dies in the order in which they are broken off: packed, or round robin over the channels.
    fn free_die_order(&self, wear: &impl Fn(u32) -> u64) -> Vec<u32> {
        let per = u32::from(self.geometry.dies_per_channel);
        let mut dies: Vec<u32> =
            (0..self.dies.len() as u32).filter(|&die| self.dies[die as usize] == DieUse::Free).collect();
        match self.placement {
            DiePlacement::Pack => {
                dies.sort_by_key(|&die| (self.is_free_channel(die / per), die / per, wear(die), die));
            }
            DiePlacement::Spread => {
                dies.sort_by_key(|&die| (die / per, wear(die), die));
                let mut rank = vec![0u32; usize::from(self.geometry.channels)];
                let mut ranked: Vec<(u32, u32)> = dies
                    .iter()
                    .map(|&die| {
                        let rank = &mut rank[(die / per) as usize];
                        *rank += 1;
                        (*rank, die)
                    })
                    .collect();
                ranked.sort();
                dies = ranked.into_iter().map(|(_, die)| die).collect();
            }
        }
        dies
    }

    fn free_die_places(&self, wear: &impl Fn(u32) -> u64) -> Vec<UnitPlace> {
        self.free_die_order(wear).into_iter().map(|die| UnitPlace { die, soft_plane: None }).collect()
    }

    /// Soft-planes, spread: one of each die that is cut already, then of fresh dies, then second planes.
    fn free_plane_places(
        &self,
        wear: &impl Fn(u32) -> u64,
        allowed: &impl Fn(u32) -> bool,
        needed: usize,
    ) -> Vec<UnitPlace> {
        let mut cut: Vec<(u64, u32, Vec<u16>)> = Vec::new();
        for (number, die) in self.dies.iter().enumerate() {
            if let DieUse::Cut(planes) = die {
                let free = (0..planes.len()).filter(|&plane| planes[plane].is_none());
                cut.push((wear(number as u32), number as u32, free.map(|plane| plane as u16).collect()));
            }
        }
        cut.retain(|(_, _, free)| !free.is_empty());
        cut.sort();
        let fresh = self.free_die_order(wear).into_iter();
        let all: Vec<u16> = (0..self.soft_planes_per_die).collect();
        let dies: Vec<(u32, Vec<u16>)> = cut
            .into_iter()
            .map(|(_, die, free)| (die, free))
            .chain(fresh.map(|die| (die, all.clone())))
            .collect();
        let per = u32::from(self.geometry.dies_per_channel);
        let dies: Vec<_> = dies.into_iter().filter(|(die, _)| allowed(die / per)).collect();
        let mut places = Vec::new();
        for round in 0..usize::from(self.soft_planes_per_die) {
            for (die, free) in &dies {
                if let Some(&plane) = free.get(round) {
                    places.push(UnitPlace { die: *die, soft_plane: Some(plane) });
                }
            }
            if places.len() >= needed {
                break;
            }
        }
        places
    }

    /// Whether places could be taken.
    pub fn are_free(&self, places: &[UnitPlace]) -> bool {
        places.iter().all(|place| match (place.soft_plane, &self.dies[place.die as usize]) {
            (_, DieUse::Free) => true,
            (Some(plane), DieUse::Cut(planes)) => planes[usize::from(plane)].is_none(),
            _ => false,
        })
    }

    /// Takes places for a vSSD.
    ///
    /// # Errors
    /// The first place that is not free; those before it are taken then.
    pub fn take(&mut self, vssd: VssdId, places: &[UnitPlace]) -> Result<(), UnitPlace> {
        for &place in places {
            let die = &mut self.dies[place.die as usize];
            match (place.soft_plane, &mut *die) {
                (None, DieUse::Free) => *die = DieUse::Whole(vssd),
                (Some(plane), DieUse::Free) => {
                    let mut planes = vec![None; usize::from(self.soft_planes_per_die)];
                    planes[usize::from(plane)] = Some(vssd);
                    *die = DieUse::Cut(planes);
                }
                (Some(plane), DieUse::Cut(planes)) if planes[usize::from(plane)].is_none() => {
                    planes[usize::from(plane)] = Some(vssd);
                }
                _ => return Err(place),
            }
        }
        Ok(())
    }

    pub fn release(&mut self, places: &[UnitPlace]) {
        for place in places {
            let die = &mut self.dies[place.die as usize];
            match (place.soft_plane, &mut *die) {
                (None, DieUse::Whole(_)) => *die = DieUse::Free,
                (Some(plane), DieUse::Cut(planes)) => {
                    let holder = planes[usize::from(plane)].take();
                    assert!(holder.is_some(), "soft-plane {plane} of die {} was taken (I-V21)", place.die);
                    if planes.iter().all(Option::is_none) {
                        *die = DieUse::Free;
                    }
                }
                _ => panic!("die {} is given back as it was taken (I-V21)", place.die),
            }
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn resources() -> Resources {
        let geometry = Geometry {
            channels: 4,
            dies_per_channel: 4,
            planes_per_die: 1,
            blocks_per_plane: 16,
            pages_per_block: 8,
            page_size_bytes: 16384,
            oob_size_bytes: 64,
        };
        Resources {
            geometry,
            dies: vec![DieUse::Free; 16],
            soft_planes_per_die: 4,
            die_blocks: 8,
            placement: DiePlacement::Pack,
        }
    }
    fn levels() -> LevelTable {
        LevelTable::proportional(4, 4, 4)
    }
    const BLOCK: u64 = 8 * 16384;

    #[test]
    fn sizes_follow_the_larger_of_level_and_capacity() {
        let resources = resources();
        let count = |isolation, level, blocks: u64| {
            resources.choose(&levels(), isolation, level, blocks * BLOCK, |_| 0, |_| true).unwrap().len()
        };
        assert_eq!(count(Isolation::Channel, 0, 1), 4);
        assert_eq!(count(Isolation::Channel, 1, 33), 8, "a channel holds 32 blocks");
        assert_eq!(count(Isolation::Channel, 3, 1), 12);
        assert_eq!(count(Isolation::Die, 0, 9), 2);
        assert_eq!(count(Isolation::Software, 0, 3), 2);
        assert_eq!(count(Isolation::None, 1, 1), 16);
    }

    #[test]
    fn what_cannot_be_had_is_named() {
        let mut resources = resources();
        let choose = |r: &Resources, i, level, blocks: u64| {
            r.choose(&levels(), i, level, blocks * BLOCK, |_| 0, |_| true)
        };
        assert!(matches!(
            choose(&resources, Isolation::Die, 5, 1),
            Err(AllocError::UnknownLevel { highest: 4, .. })
        ));
        assert_eq!(choose(&resources, Isolation::Die, 0, 0), Err(AllocError::NoCapacity));
        assert!(matches!(
            choose(&resources, Isolation::Channel, 0, 129),
            Err(AllocError::DoesNotFit { needed: 5, total: 4, .. })
        ));
        resources.take(VssdId(1), &[UnitPlace { die: 0, soft_plane: None }]).unwrap();
        assert_eq!(
            choose(&resources, Isolation::Channel, 4, 1),
            Err(AllocError::NotFree { needed: 4, free: 3, kind: "channels" })
        );
        resources.release(&[UnitPlace { die: 0, soft_plane: None }]);
        assert_eq!(resources.free_channels(), 4, "dies merge to a channel");
        choose(&resources, Isolation::Channel, 4, 1).unwrap();
    }

    #[test]
    fn dies_pack_into_broken_channels_and_planes_spread_over_dies() {
        let mut resources = resources();
        let dies = resources.choose(&levels(), Isolation::Die, 0, BLOCK, |_| 0, |_| true).unwrap();
        resources.take(VssdId(1), &dies).unwrap();
        assert_eq!(resources.take(VssdId(2), &dies), Err(dies[0]));
        let more = resources.choose(&levels(), Isolation::Die, 0, 20 * BLOCK, |_| 0, |_| true).unwrap();
        assert!(more.iter().all(|place| place.die < 4), "{more:?}");
        let planes = resources.choose(&levels(), Isolation::Software, 1, BLOCK, |_| 0, |_| true).unwrap();
        let distinct: std::collections::BTreeSet<u32> = planes.iter().map(|place| place.die).collect();
        assert_eq!(distinct.len(), 15, "15 free dies, 16 planes");
        resources.take(VssdId(2), &planes).unwrap();
        assert!(
            resources.choose(&levels(), Isolation::Die, 0, BLOCK, |_| 0, |_| true).is_err(),
            "a cut die is not whole"
        );
        resources.release(&planes);
        assert_eq!(resources.free_dies(), 15);
    }

    #[test]
    fn the_least_worn_channel_goes_first_and_a_dead_die_breaks_its_channel() {
        let mut resources = resources();
        resources.dies[5] = DieUse::Dead;
        let wear = |die: u32| if die < 4 { 10 } else { 0 };
        let places = resources.choose(&levels(), Isolation::Channel, 0, BLOCK, wear, |_| true).unwrap();
        assert_eq!(places[0].die, 8);
        assert_eq!(resources.free_channels(), 3);
    }
}
