//! A drive that hides its flash, as a model: what a file, a block device or a remote namespace does to who trusts it.
//!
//! It carries out [`Intent`]s in virtual time. Writes lie in a volatile cache until a flush that began after them is complete; a cut takes any
//! subset of their sectors of 512 bytes. A drive may have zones ([`ZoneProfile`]): it refuses what is not written at a write pointer, and a cut sets the pointer
//! back to anywhere from where it was at the last flush on. What was never written, or was discarded, reads as anything. [`DriveFaults`] says what else
//! goes wrong: refused commands, stalls, a drive that is gone, and the lies of real drives.

mod cache;
mod faults;
mod image;
mod zones;

pub use faults::{DriveFaults, DriveLies, Stretch};
pub use zones::{ZoneProfile, ZoneStatistics};

use cache::{Cache, Fate};
use diecut_media::{Intent, IntentDone, IntentError, IntentToken, IntentWork, Zone, ZoneCondition};
use diecut_units::{Span, Time};
use image::Image;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use zones::Zones;

/// Smallest piece of a write that a cut leaves whole.
pub const SECTOR_SIZE_BYTES: u64 = 512;

/// Shape and speed of a drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriveProfile {
    /// Bytes that it has.
    pub size_bytes: u64,
    /// Commands that it works on at once; others wait.
    pub depth: u32,
    /// A read, without its bytes.
    pub read: Span,
    /// A write into the cache, without its bytes.
    pub write: Span,
    /// A flush.
    pub flush: Span,
    /// A discard.
    pub discard: Span,
    /// Each KiB of a read or a write, of the command alone.
    pub kib: Span,
    /// Each time is up to so many percent longer, as the seed says.
    pub jitter_percent: u32,
    /// Whether a write is durable when it is answered: the drive has a battery, or no cache.
    pub is_durable_at_once: bool,
    /// Its zones, if it is written in zones.
    pub zones: Option<ZoneProfile>,
}

impl DriveProfile {
    /// A drive of the data centre, roughly: 70 us for a read, 15 us into the cache, 2 GiB/s for one command.
    pub fn nvme(size_bytes: u64) -> DriveProfile {
        DriveProfile {
            size_bytes,
            depth: 64,
            read: Span::from_micros(70),
            write: Span::from_micros(15),
            flush: Span::from_micros(400),
            discard: Span::from_micros(800),
            kib: Span::from_nanos(490),
            jitter_percent: 40,
            is_durable_at_once: false,
            zones: None,
        }
    }
}

/// What a drive did since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveStatistics {
    /// Reads that were answered.
    pub reads: u64,
    /// Writes that were answered.
    pub writes: u64,
    /// Bytes of these writes.
    pub written_bytes: u64,
    /// Flushes that were answered.
    pub flushes: u64,
    /// Discards that were answered.
    pub discards: u64,
}

/// See the module.
pub struct Drive {
    profile: DriveProfile,
    faults: DriveFaults,
    random: Xoshiro256PlusPlus,
    /// What lies there without power.
    image: Image,
    cache: Cache,
    zones: Option<Zones>,
    /// When each of the places at work is free again.
    places: BinaryHeap<Reverse<Time>>,
    /// Commands under way, by their end and the order in which they came.
    under_way: BTreeMap<(Time, u64), UnderWay>,
    commands: u64,
    statistics: DriveStatistics,
}

struct UnderWay {
    token: IntentToken,
    work: IntentWork,
    /// Of a flush: the last write that was answered when it came.
    covers: u64,
}

impl Drive {
    /// A drive that nobody has written to.
    ///
    /// # Panics
    /// If it has no place to work at.
    pub fn new(profile: DriveProfile, seed: u64) -> Drive {
        assert!(profile.depth > 0, "a drive works on one command at least");
        Drive {
            profile,
            faults: DriveFaults::default(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6472_6976),
            image: Image::default(),
            cache: Cache::default(),
            zones: profile.zones.map(|zones| Zones::new(zones, profile.size_bytes)),
            places: (0..profile.depth).map(|_| Reverse(Time::ZERO)).collect(),
            under_way: BTreeMap::new(),
            commands: 0,
            statistics: DriveStatistics::default(),
        }
    }

    /// Shape and speed.
    pub fn profile(&self) -> &DriveProfile {
        &self.profile
    }

    /// What goes wrong from now on.
    pub fn faults_mut(&mut self) -> &mut DriveFaults {
        &mut self.faults
    }

    /// What it did.
    pub fn statistics(&self) -> DriveStatistics {
        self.statistics
    }

    /// Its zones, as it would report them; none of a drive that is not written in zones.
    pub fn zones(&self) -> Vec<Zone> {
        self.zones.as_ref().map(Zones::report).unwrap_or_default()
    }

    /// What it did in its zones.
    pub fn zone_statistics(&self) -> ZoneStatistics {
        self.zones.as_ref().map(Zones::statistics).unwrap_or_default()
    }

    /// A zone becomes read-only, or is lost.
    ///
    /// # Panics
    /// If the drive has no zones.
    pub fn break_zone(&mut self, zone: u32, condition: ZoneCondition) {
        self.zones.as_mut().expect("a drive with zones").break_zone(zone, condition);
    }

    /// Takes an intent.
    ///
    /// # Panics
    /// If it is outside of the drive, or not whole sectors: a bug of who asks.
    pub fn submit(&mut self, intent: Intent, now: Time) {
        self.check(&intent.work);
        let time = self.time_of(&intent.work);
        let Reverse(free) = self.places.pop().expect("as many as the drive has");
        let end = free.max(now) + time;
        self.places.push(Reverse(end));
        self.commands += 1;
        let covers = self.cache.answered();
        self.under_way
            .insert((end, self.commands), UnderWay { token: intent.token, work: intent.work, covers });
    }

    fn check(&self, work: &IntentWork) {
        let (offset, len) = match work {
            IntentWork::Read { offset, buffer } => (*offset, buffer.len() as u64),
            IntentWork::Write { offset, parts, .. } => {
                (*offset, parts.iter().map(|part| part.len() as u64).sum())
            }
            IntentWork::Discard { offset, len_bytes }
            | IntentWork::ResetZone { offset, len_bytes }
            | IntentWork::FinishZone { offset, len_bytes } => (*offset, *len_bytes),
            IntentWork::Sync => return,
        };
        assert!(len > 0 && offset + len <= self.profile.size_bytes, "{offset} and {len} bytes are outside");
        assert!(
            offset.is_multiple_of(SECTOR_SIZE_BYTES) && len.is_multiple_of(SECTOR_SIZE_BYTES),
            "{offset} and {len} bytes are not whole sectors"
        );
    }

    fn time_of(&mut self, work: &IntentWork) -> Span {
        let profile = &self.profile;
        let (base, bytes) = match work {
            IntentWork::Read { buffer, .. } => (profile.read, buffer.len()),
            IntentWork::Write { parts, .. } => (profile.write, parts.iter().map(|part| part.len()).sum()),
            IntentWork::Discard { .. } | IntentWork::ResetZone { .. } | IntentWork::FinishZone { .. } => {
                (profile.discard, 0)
            }
            IntentWork::Sync => (profile.flush, 0),
        };
        let nanos = base.0 + profile.kib.0 * bytes as u64 / 1024;
        Span(nanos + nanos * u64::from(self.random.random_range(0..=profile.jitter_percent)) / 100)
    }

    /// When something will be answered next; [`Time::NEVER`] if nothing is under way.
    pub fn next_event(&self) -> Time {
        match self.under_way.first_key_value() {
            Some(((end, _), _)) => self.faults.stalls_until(*end),
            None => Time::NEVER,
        }
    }

    /// Lets time pass until `now`, and appends the answers in the order of their time.
    pub fn advance(&mut self, now: Time, done: &mut Vec<IntentDone>) {
        while let Some(entry) = self.under_way.first_entry()
            && self.faults.stalls_until(entry.key().0) <= now
        {
            let command = entry.remove();
            done.push(self.carry_out(command));
        }
    }

    fn carry_out(&mut self, command: UnderWay) -> IntentDone {
        let UnderWay { token, work, covers } = command;
        let mut answer = IntentDone { token, buffer: None, result: Ok(()) };
        if self.faults.is_gone {
            answer.result = Err(IntentError::Gone);
            if let IntentWork::Read { buffer, .. } = work {
                answer.buffer = Some(buffer);
            }
            return answer;
        }
        match work {
            IntentWork::Read { offset, mut buffer } => {
                self.statistics.reads += 1;
                if self.faults.refuses_read(offset, buffer.len() as u64) {
                    answer.result = Err(IntentError::Failed);
                } else {
                    self.read(offset, &mut buffer);
                }
                answer.buffer = Some(buffer);
            }
            IntentWork::Write { offset, parts, .. } => {
                let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
                self.statistics.writes += 1;
                self.statistics.written_bytes += bytes.len() as u64;
                let refused = self.faults.refuses_write(offset, bytes.len() as u64);
                let is_sequential = self.zones.as_ref().is_some_and(|zones| zones.is_sequential(offset));
                match (refused, &mut self.zones) {
                    (Some(error), _) if is_sequential => answer.result = Err(error),
                    (Some(error), _) => {
                        // What a refused write leaves is as open as after a cut.
                        let fate = Fate::choose(&mut self.random);
                        self.image.write_some(offset, &bytes, &fate);
                        answer.result = Err(error);
                    }
                    (None, Some(zones)) => {
                        answer.result = zones.write(offset, bytes.len() as u64);
                        if answer.result.is_ok() {
                            self.write(offset, bytes);
                        }
                    }
                    (None, None) => self.write(offset, bytes),
                }
            }
            IntentWork::Discard { offset, len_bytes } => {
                self.statistics.discards += 1;
                self.cache.forget(offset..offset + len_bytes);
                self.image.forget(offset..offset + len_bytes);
            }
            IntentWork::ResetZone { offset, .. } => {
                let zones = self.zones.as_mut().expect("a drive with zones");
                answer.result = zones.reset(offset, &mut self.cache, &mut self.image);
            }
            IntentWork::FinishZone { offset, .. } => {
                let zones = self.zones.as_mut().expect("a drive with zones");
                answer.result = zones.finish(offset, &mut self.cache);
            }
            IntentWork::Sync => {
                self.statistics.flushes += 1;
                answer.result = self.flush(covers);
            }
        }
        if self.profile.is_durable_at_once {
            self.zones.iter_mut().for_each(|zones| zones.flushed(u64::MAX));
        }
        answer
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        let lies = self.faults.lies;
        let from = match lies.misdirects_reads > 0.0 && self.random.random_bool(lies.misdirects_reads) {
            true => self.elsewhere(offset, buffer.len() as u64),
            false => offset,
        };
        self.image.read(from, buffer, &mut self.random);
        let is_stale = lies.stale_reads > 0.0 && self.random.random_bool(lies.stale_reads);
        if !is_stale {
            self.cache.read(from, buffer);
        }
        self.faults.rot(offset, buffer);
    }

    fn write(&mut self, offset: u64, bytes: Vec<u8>) {
        let lies = self.faults.lies;
        let to = match lies.misdirects_writes > 0.0 && self.random.random_bool(lies.misdirects_writes) {
            true => self.elsewhere(offset, bytes.len() as u64),
            false => offset,
        };
        if lies.loses_writes > 0.0 && self.random.random_bool(lies.loses_writes) {
            return;
        }
        match self.profile.is_durable_at_once {
            true => self.image.write(to, &bytes),
            false => self.cache.write(to, bytes, &mut self.image),
        }
    }

    /// Another place for as many bytes.
    fn elsewhere(&mut self, offset: u64, len: u64) -> u64 {
        let sectors = (self.profile.size_bytes - len) / SECTOR_SIZE_BYTES;
        let other = self.random.random_range(0..=sectors) * SECTOR_SIZE_BYTES;
        if other == offset {
            (offset + SECTOR_SIZE_BYTES) % (sectors.max(1) * SECTOR_SIZE_BYTES)
        } else {
            other
        }
    }

    fn flush(&mut self, covers: u64) -> Result<(), IntentError> {
        if self.faults.flush_failures > 0 {
            self.faults.flush_failures -= 1;
            // The next one succeeds without what this one should have written.
            self.cache.lose(covers, &mut self.image, &mut self.random);
            return Err(IntentError::Failed);
        }
        if !self.faults.lies.about_flushes {
            self.cache.flush(covers, &mut self.image);
            self.zones.iter_mut().for_each(|zones| zones.flushed(covers));
        }
        Ok(())
    }

    /// The power goes and comes back: what is under way is never answered, and of what was written since the last flush any subset of
    /// sectors is left, as the seed says. Faults that are more than chance stay.
    pub fn cut(&mut self) {
        self.end_what_is_under_way();
        if let Some(zones) = &mut self.zones {
            zones.cut(&mut self.cache, &mut self.image, &mut self.random);
        }
        self.cache.cut(&mut self.image, &mut self.random);
        self.places = (0..self.profile.depth).map(|_| Reverse(Time::ZERO)).collect();
        self.faults.stalled_until = Time::ZERO;
    }

    /// The process that asked dies: what is under way is never answered. Of its writes any subset is carried out, and lies in the cache like others.
    pub fn process_death(&mut self) {
        self.end_what_is_under_way();
        if self.profile.is_durable_at_once {
            // Or what is written later would lie below it.
            self.cache.flush(u64::MAX, &mut self.image);
            self.zones.iter_mut().for_each(|zones| zones.flushed(u64::MAX));
        }
        self.places = (0..self.profile.depth).map(|_| Reverse(Time::ZERO)).collect();
        self.faults.stalled_until = Time::ZERO;
    }

    /// Each command that is under way is carried out, or is not; of a write to a zone the first sectors, or program units, may be all.
    fn end_what_is_under_way(&mut self) {
        for (_, command) in std::mem::take(&mut self.under_way) {
            if self.faults.is_gone {
                continue;
            }
            match (command.work, &mut self.zones) {
                (IntentWork::Write { offset, parts, .. }, zones) => {
                    let mut bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
                    let unit_bytes = zones.as_ref().map_or(SECTOR_SIZE_BYTES, Zones::unit_bytes);
                    let units = bytes.len() as u64 / unit_bytes;
                    let done = match self.random.random_range(0..4) {
                        0 if zones.is_some() => self.random.random_range(0..=units),
                        1 => 0,
                        _ => units,
                    };
                    bytes.truncate((done * unit_bytes) as usize);
                    let fits = |zones: &mut Zones| zones.write(offset, bytes.len() as u64).is_ok();
                    if done > 0 && zones.as_mut().is_none_or(fits) {
                        self.cache.write(offset, bytes, &mut self.image);
                    }
                }
                (IntentWork::ResetZone { offset, .. }, Some(zones)) if self.random.random_bool(0.75) => {
                    let _ = zones.reset(offset, &mut self.cache, &mut self.image);
                }
                (IntentWork::FinishZone { offset, .. }, Some(zones)) if self.random.random_bool(0.75) => {
                    let _ = zones.finish(offset, &mut self.cache);
                }
                _ => {}
            }
        }
    }

    /// Bytes as they lie there, without the cache: what a test looks at. Bytes that nobody wrote are zeros here.
    pub fn durable(&self, offset: u64, len_bytes: usize) -> Vec<u8> {
        self.image.bytes(offset, len_bytes)
    }
}
