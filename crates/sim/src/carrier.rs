//! Who carries out the I/O that a device asks its driver for: a file in memory whose answers come late, or the model of a drive, with its
//! power.

use crate::memory_file::MemoryFile;
use diecut_emulator::drive::{Drive, DriveFaults};
use diecut_media::{Intent, IntentDone, IntentToken, IntentWork};
use diecut_units::{Span, Time, checksum, checksum_append};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;

/// See the module.
pub enum Carrier {
    /// A file.
    File(Box<LateFile>),
    /// A drive, whose lanes shards have.
    Drive(Box<PoweredDrive>),
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
    pub fn begin(&mut self, shard: u16, intent: Intent, now: Time) {
        match self {
            Carrier::File(file) => file.begin(shard, intent, now),
            Carrier::Drive(drive) => drive.begin(shard, intent, now),
        }
    }

    /// What is answered by now to a shard.
    pub fn take_done(&mut self, shard: u16, now: Time) -> Vec<IntentDone> {
        match self {
            Carrier::File(file) => file.take_done(shard, now),
            Carrier::Drive(drive) => drive.take_done(shard, now),
        }
    }

    /// When something is answered next.
    pub fn next_event(&self) -> Time {
        match self {
            Carrier::File(file) => file.under_way.iter().map(|(due, ..)| *due).min().unwrap_or(Time::NEVER),
            Carrier::Drive(drive) => drive.next_event(),
        }
    }

    /// The drive, if it is one.
    pub fn drive(&self) -> Option<&PoweredDrive> {
        match self {
            Carrier::File(_) => None,
            Carrier::Drive(drive) => Some(drive),
        }
    }
    /// See [`Carrier::drive`].
    pub fn drive_mut(&mut self) -> Option<&mut PoweredDrive> {
        match self {
            Carrier::File(_) => None,
            Carrier::Drive(drive) => Some(drive),
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

/// The model of a drive, and its power: at an operation that was agreed on it goes, and nothing is carried out or answered any more.
pub struct PoweredDrive {
    model: Drive,
    is_powered: bool,
    cut_at: Option<u64>,
    /// Which shard asked, and how it calls its command, by the token that the drive knows.
    asked: BTreeMap<u64, (u16, IntentToken)>,
    next_token: u64,
    /// Answers that their shards have not taken.
    done: Vec<(u16, IntentDone)>,
    /// Commands that it was given, and IUs to write among them.
    operations: u64,
    written_ius: u64,
    /// It has no room until then.
    full_until: Time,
}

impl PoweredDrive {
    /// A drive with power.
    pub fn new(model: Drive) -> PoweredDrive {
        let (operations, written_ius, full_until) = (0, 0, Time::ZERO);
        PoweredDrive {
            model,
            is_powered: true,
            cut_at: None,
            asked: BTreeMap::new(),
            next_token: 0,
            done: Vec::new(),
            operations,
            written_ius,
            full_until,
        }
    }

    fn begin(&mut self, shard: u16, intent: Intent, now: Time) {
        if !self.is_powered {
            return;
        }
        if let IntentWork::Write { parts, .. } = &intent.work {
            self.written_ius += parts.iter().map(|part| part.len() as u64).sum::<u64>() / 4096;
        }
        self.asked.insert(self.next_token, (shard, intent.token));
        self.model.submit(Intent { token: IntentToken(self.next_token), work: intent.work }, now);
        self.next_token += 1;
        self.operations += 1;
        if self.cut_at.is_some_and(|nth| self.operations > nth) {
            self.is_powered = false;
        }
    }

    fn take_done(&mut self, shard: u16, now: Time) -> Vec<IntentDone> {
        let mut done = Vec::new();
        if self.is_powered {
            self.model.faults_mut().is_full = now < self.full_until;
            self.model.advance(now, &mut done);
        }
        self.done.extend(done.into_iter().map(|done| {
            let (shard, token) = self.asked.remove(&done.token.0).expect("a drive answers what it was asked");
            (shard, IntentDone { token, ..done })
        }));
        self.done.extract_if(.., |(of, _)| *of == shard).map(|(_, done)| done).collect()
    }

    fn next_event(&self) -> Time {
        match self.is_powered {
            true if self.done.is_empty() => self.model.next_event(),
            true => Time::ZERO,
            false => Time::NEVER,
        }
    }

    /// What was asked for and not answered is forgotten.
    fn forget(&mut self) {
        self.asked.clear();
        self.done.clear();
    }

    /// What goes wrong with it.
    pub fn faults_mut(&mut self) -> &mut DriveFaults {
        self.model.faults_mut()
    }
    /// Whether it has power.
    pub fn is_powered(&self) -> bool {
        self.is_powered
    }
    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.done.is_empty() && self.model.next_event() == Time::NEVER
    }
    /// Commands that it was given.
    pub fn operations(&self) -> u64 {
        self.operations
    }
    /// IUs that it was given to write.
    pub fn written_ius(&self) -> u64 {
        self.written_ius
    }
    /// It has no room until then.
    pub fn fill_until(&mut self, until: Time) {
        self.full_until = until;
    }
    /// The power goes while its n-th command is under way.
    pub fn cut_power_at(&mut self, operation: u64) {
        self.cut_at = Some(operation);
    }
    /// The power goes now, or went at the operation that was agreed on.
    pub fn power_cut(&mut self) {
        self.is_powered = false;
        self.forget();
        self.model.cut();
    }
    /// Who asked is gone, and the drive goes on, if it has power.
    pub fn process_death(&mut self) {
        self.forget();
        match self.is_powered {
            true => self.model.process_death(),
            false => self.model.cut(),
        }
    }
    /// There is power (again), for the next server. A flush that was to fail does not.
    pub fn power_on(&mut self) {
        (self.is_powered, self.cut_at) = (true, None);
        self.model.faults_mut().flush_failures = 0;
    }

    /// Over all that lies there and what it did.
    pub fn hash(&self) -> u32 {
        const PART_BYTES: u64 = 1 << 20;
        let did = format!("{:?}", self.model.statistics());
        let parts = (0..self.model.profile().size_bytes).step_by(PART_BYTES as usize);
        parts.fold(checksum(did.as_bytes()), |hash, at| {
            checksum_append(hash, &self.model.durable(at, PART_BYTES as usize))
        })
    }
}
