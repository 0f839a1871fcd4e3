//! Who carries out the I/O that devices ask their driver for: a file in memory whose answers come late, or models of drives.

use crate::drives::Drives;
use crate::memory_file::MemoryFile;
use diecut_media::{Intent, IntentDone};
use diecut_shard::DeviceIndex;
use diecut_units::{Span, Time};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// See the module.
pub enum Carrier {
    /// A file.
    File(Box<LateFile>),
    /// Drives, all of one shard, or one whose lanes shards have.
    Drives(Box<Drives>),
}

impl Carrier {
    /// A file without content.
    pub fn file(seed: u64) -> Carrier {
        Carrier::File(Box::new(LateFile {
            file: MemoryFile::default(),
            under_way: Vec::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x0073_796e_6373),
        }))
    }

    /// A shard's device asks for something.
    pub fn begin(&mut self, shard: u16, device: DeviceIndex, intent: Intent, now: Time) {
        match self {
            Carrier::File(file) => file.begin(shard, intent, now),
            Carrier::Drives(drives) => drives.begin(shard, device, intent, now),
        }
    }

    /// What is answered by now to a shard.
    pub fn take_done(&mut self, shard: u16, now: Time) -> Vec<(DeviceIndex, IntentDone)> {
        match self {
            Carrier::File(file) => {
                file.take_done(shard, now).into_iter().map(|done| (DeviceIndex(0), done)).collect()
            }
            Carrier::Drives(drives) => drives.take_done(shard, now),
        }
    }

    /// When something is answered next.
    pub fn next_event(&self) -> Time {
        match self {
            Carrier::File(file) => file.under_way.iter().map(|(due, ..)| *due).min().unwrap_or(Time::NEVER),
            Carrier::Drives(drives) => drives.next_event(),
        }
    }

    /// The drives, if it has some.
    pub fn drives(&self) -> Option<&Drives> {
        match self {
            Carrier::File(_) => None,
            Carrier::Drives(drives) => Some(drives),
        }
    }
    /// See [`Carrier::drives`].
    pub fn drives_mut(&mut self) -> Option<&mut Drives> {
        match self {
            Carrier::File(_) => None,
            Carrier::Drives(drives) => Some(drives),
        }
    }
}

/// A file in memory, and its answers, each of which comes when a drive would have it.
pub struct LateFile {
    file: MemoryFile,
    /// When each answer comes, of which shard, and what it says.
    under_way: Vec<(Time, u16, IntentDone)>,
    random: Xoshiro256PlusPlus,
}

impl LateFile {
    /// The answer comes mostly soon, at times as of a busy drive.
    fn begin(&mut self, shard: u16, intent: Intent, now: Time) {
        let done = self.file.execute(intent);
        let random = &mut self.random;
        let micros = match random.random_range(0..16) {
            0 => random.random_range(1_000..30_000),
            1..4 => random.random_range(1..20),
            _ => random.random_range(20..1_000),
        };
        self.under_way.push((now + Span::from_micros(micros), shard, done));
    }

    fn take_done(&mut self, shard: u16, now: Time) -> Vec<IntentDone> {
        let due = self.under_way.extract_if(.., |(due, of, _)| *due <= now && *of == shard);
        due.map(|(.., done)| done).collect()
    }
}
