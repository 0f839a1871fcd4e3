//! The zones of a drive that is written in zones: it refuses what a real one refuses, and forgets what a real one may.

use super::cache::Cache;
use super::image::Image;
use diecut_media::{IntentError, Zone, ZoneCondition};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// How a drive is cut into zones. The last ones are as large as the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneProfile {
    /// From the start of a zone to that of the next one.
    pub size_bytes: u64,
    /// Bytes of a sequential zone that can be written.
    pub capacity_bytes: u64,
    /// The first zones, so many, are conventional.
    pub conventional: u32,
    /// Zones that are partly written at once, at most; 0: as many as there are.
    pub active_max: u32,
    /// A write is a multiple of it, and so is what a cut leaves: a sector, or a program unit of a drive that shows its dies.
    pub unit_bytes: u64,
}

/// What a drive did in its zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneStatistics {
    /// Zones that were reset.
    pub resets: u64,
    /// Zones that were finished.
    pub finishes: u64,
    /// Writes elsewhere than at the write pointer, or of no whole units, which are refused.
    pub out_of_order: u64,
    /// Writes that would have made one more zone active than there may be, which are refused.
    pub too_many: u64,
    /// The most zones that were active at once.
    pub active_most: u32,
}

pub(super) struct Zones {
    profile: ZoneProfile,
    zones: Vec<One>,
    /// Resets and finishes that no flush has covered: a cut may undo them.
    changes: Vec<Change>,
    statistics: ZoneStatistics,
}

#[derive(Clone, Copy)]
struct One {
    /// Bytes from its start to where the next write goes.
    written: u64,
    condition: ZoneCondition,
}

struct Change {
    /// Flushes that cover this number cover it.
    number: u64,
    zone: usize,
    /// How the zone was.
    before: One,
    /// Of a reset: what lay there.
    content: Option<Image>,
}

impl Zones {
    pub(super) fn new(profile: ZoneProfile, drive_bytes: u64) -> Zones {
        assert!(
            drive_bytes.is_multiple_of(profile.size_bytes)
                && profile.capacity_bytes <= profile.size_bytes
                && profile.capacity_bytes.is_multiple_of(profile.unit_bytes),
            "a drive is whole zones"
        );
        let condition = |index| match index < u64::from(profile.conventional) {
            true => ZoneCondition::Conventional,
            false => ZoneCondition::Empty,
        };
        let zones = (0..drive_bytes / profile.size_bytes)
            .map(|index| One { written: 0, condition: condition(index) })
            .collect();
        Zones { profile, zones, changes: Vec::new(), statistics: ZoneStatistics::default() }
    }

    pub(super) fn unit_bytes(&self) -> u64 {
        self.profile.unit_bytes
    }

    pub(super) fn statistics(&self) -> ZoneStatistics {
        self.statistics
    }

    /// What the drive answers who asks for its zones.
    pub(super) fn report(&self) -> Vec<Zone> {
        let zone = |(index, one): (usize, &One)| {
            let offset = index as u64 * self.profile.size_bytes;
            let is_conventional = one.condition == ZoneCondition::Conventional;
            Zone {
                offset,
                capacity_bytes: if is_conventional {
                    self.profile.size_bytes
                } else {
                    self.profile.capacity_bytes
                },
                write_pointer: offset + one.written,
                condition: one.condition,
            }
        };
        self.zones.iter().enumerate().map(zone).collect()
    }

    /// A sequential zone breaks from now on.
    pub(super) fn break_zone(&mut self, zone: u32, condition: ZoneCondition) {
        self.zones[zone as usize].condition = condition;
    }

    pub(super) fn is_sequential(&self, offset: u64) -> bool {
        self.zones[self.at(offset)].condition != ZoneCondition::Conventional
    }

    fn at(&self, offset: u64) -> usize {
        (offset / self.profile.size_bytes) as usize
    }

    fn active(&self) -> u32 {
        self.zones.iter().filter(|one| one.condition == ZoneCondition::Active).count() as u32
    }

    /// A write comes; the pointer has moved if it is allowed.
    pub(super) fn write(&mut self, offset: u64, len: u64) -> Result<(), IntentError> {
        let at = self.at(offset);
        let (active, active_max) = (self.active(), self.profile.active_max);
        let one = &mut self.zones[at];
        let within = offset - at as u64 * self.profile.size_bytes;
        match one.condition {
            ZoneCondition::Conventional => {
                let fits = within + len <= self.profile.size_bytes;
                return if fits { Ok(()) } else { Err(IntentError::Failed) };
            }
            ZoneCondition::Empty | ZoneCondition::Active => {}
            _ => {
                self.statistics.out_of_order += 1;
                return Err(IntentError::Failed);
            }
        }
        let is_whole = len.is_multiple_of(self.profile.unit_bytes);
        if within != one.written || within + len > self.profile.capacity_bytes || !is_whole {
            self.statistics.out_of_order += 1;
            return Err(IntentError::Failed);
        }
        if one.condition == ZoneCondition::Empty && active_max > 0 && active >= active_max {
            self.statistics.too_many += 1;
            return Err(IntentError::Failed);
        }
        one.written += len;
        one.condition = condition_at(one.written, self.profile.capacity_bytes);
        self.statistics.active_most = self.statistics.active_most.max(self.active());
        Ok(())
    }

    /// A zone is reset.
    pub(super) fn reset(
        &mut self,
        offset: u64,
        cache: &mut Cache,
        image: &mut Image,
    ) -> Result<(), IntentError> {
        let at = self.whole(offset)?;
        self.statistics.resets += 1;
        let range = offset..offset + self.profile.size_bytes;
        let mut before = self.zones[at];
        if let Some(unflushed) = cache.first_in(range.clone()) {
            before.written = unflushed - offset;
            before.condition = condition_at(before.written, self.profile.capacity_bytes);
        }
        cache.forget(range.clone());
        let content = Some(image.take(range));
        self.changes.push(Change { number: cache.count(), zone: at, before, content });
        self.zones[at] = One { written: 0, condition: ZoneCondition::Empty };
        Ok(())
    }

    /// A zone is finished.
    pub(super) fn finish(&mut self, offset: u64, cache: &mut Cache) -> Result<(), IntentError> {
        let at = self.whole(offset)?;
        self.statistics.finishes += 1;
        let before = self.zones[at];
        self.changes.push(Change { number: cache.count(), zone: at, before, content: None });
        self.zones[at] = One { written: self.profile.capacity_bytes, condition: ZoneCondition::Full };
        Ok(())
    }

    /// The number of a zone that can be reset and finished.
    fn whole(&self, offset: u64) -> Result<usize, IntentError> {
        assert!(offset.is_multiple_of(self.profile.size_bytes), "{offset} is not where a zone begins");
        let at = self.at(offset);
        match self.zones[at].condition {
            ZoneCondition::Empty | ZoneCondition::Active | ZoneCondition::Full => Ok(at),
            _ => Err(IntentError::Failed),
        }
    }

    /// A flush is complete.
    pub(super) fn flushed(&mut self, covers: u64) {
        self.changes.retain(|change| change.number > covers);
    }

    /// The power goes, and nothing is in the cache any more but what belongs to conventional zones: a write pointer is anywhere between
    /// what was flushed and what was written, and a reset or a finish that was not flushed may not have been.
    pub(super) fn cut(&mut self, cache: &mut Cache, image: &mut Image, random: &mut Xoshiro256PlusPlus) {
        let size = self.profile.size_bytes;
        let mut changes = std::mem::take(&mut self.changes);
        for at in 0..self.zones.len() {
            if self.zones[at].condition == ZoneCondition::Conventional {
                continue;
            }
            let range = at as u64 * size..(at as u64 + 1) * size;
            let of_zone = changes.iter().position(|change| change.zone == at);
            if let Some(first) = of_zone.filter(|_| random.random_bool(0.5)) {
                let change = changes.swap_remove(first);
                self.zones[at] = change.before;
                if let Some(content) = change.content {
                    cache.forget(range.clone());
                    image.forget(range.clone());
                    image.put(content);
                }
            }
            let Some(unflushed) = cache.first_in(range.clone()) else { continue };
            let written = range.start + self.zones[at].written;
            let last = cache.end_in(range.clone()).min(written);
            // What is written begins and ends at a unit.
            let unit_bytes = self.profile.unit_bytes;
            let units = last.saturating_sub(unflushed) / unit_bytes;
            let pointer = unflushed + random.random_range(0..=units) * unit_bytes;
            cache.write_out(range.clone(), pointer, image);
            let is_finished = self.zones[at].condition == ZoneCondition::Full
                && last - range.start < self.zones[at].written;
            if !is_finished {
                let written = pointer - range.start;
                self.zones[at] =
                    One { written, condition: condition_at(written, self.profile.capacity_bytes) };
            }
        }
        self.finish_excess();
    }

    /// What a cut took back may be what gave a place free: no drive comes back with more active zones than it has places, so it finishes some.
    fn finish_excess(&mut self) {
        let (most, capacity) = (self.profile.active_max as usize, self.profile.capacity_bytes);
        let active = self.zones.iter_mut().filter(|one| one.condition == ZoneCondition::Active);
        for one in active.skip(if most == 0 { usize::MAX } else { most }) {
            *one = One { written: capacity, condition: ZoneCondition::Full };
        }
    }
}

fn condition_at(written: u64, capacity_bytes: u64) -> ZoneCondition {
    match written {
        0 => ZoneCondition::Empty,
        _ if written == capacity_bytes => ZoneCondition::Full,
        _ => ZoneCondition::Active,
    }
}
