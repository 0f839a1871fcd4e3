//! An Open-Channel namespace on the whole shard, in virtual time: a host that writes, reads, copies and resets chunks of a vSSD with channels or
//! dies of its own, on a device that fails programs and erases and loses its power; and an oracle that knows of each chunk what was written
//! in its present life, and what a cut may leave of it. The host keeps account of its chunks, and has no translation layer.

mod feedback;
mod host;
mod monitor;

use crate::scene::{Scene, Server};
use diecut_devices::{Backing, Device, FaultPlan, FaultRates, HardRead, Options, Profile};
use diecut_media::Media;
use diecut_namespace::contract::{
    ChunkShape, CommandToken, NamespaceCommand, NamespaceCompletion, NamespaceId, NamespaceOperation,
    SourceId,
};
use diecut_nvme::Status;
use diecut_nvme::openchannel::LOG_ENTRIES_MAX;
use diecut_shard::control::{ControlRequest, NamespaceSpec, SubsystemSpec, TenantSpec, VolumeSpec, VssdSpec};
use diecut_shard::{DOOR_SOURCE_BIT, ShardConfig};
use diecut_spec::{Isolation, Serves, Size};
use diecut_units::Span;
use diecut_vssd::PoolConfig;
use feedback::Feedback;
use host::ChunkHost;
use monitor::{Monitor, Sanitized};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Commands that were answered.
    pub commands: u64,
    /// Chunks that were reset.
    pub resets: u64,
    /// Writes that ended with their chunk closed.
    pub early_closes: u64,
    /// Writes that failed behind a part that was written.
    pub partly_written: u64,
    /// Blocks of lists that were read, and that were not.
    pub listed: [u64; 2],
    /// Blocks that were hard to read.
    pub strained: u64,
    /// Entries of the chunk notification log that were read.
    pub entries: u64,
    /// Vector reads that were told to be of data that is hard to read, and that failed.
    pub told: [u64; 2],
    /// Sanitizes that were completed, that failed, and that the server went amid.
    pub sanitizes: [u64; 3],
    /// Restarts after the death of the process, and after power cuts.
    pub restarts: [u64; 2],
}

impl std::ops::AddAssign for Figures {
    fn add_assign(&mut self, other: Figures) {
        self.commands += other.commands;
        self.resets += other.resets;
        self.early_closes += other.early_closes;
        self.partly_written += other.partly_written;
        self.strained += other.strained;
        self.entries += other.entries;
        (0..2).for_each(|kind| self.told[kind] += other.told[kind]);
        (0..3).for_each(|kind| self.sanitizes[kind] += other.sanitizes[kind]);
        (0..2).for_each(|kind| self.listed[kind] += other.listed[kind]);
        (0..2).for_each(|kind| self.restarts[kind] += other.restarts[kind]);
    }
}

const NAME: &str = "chunks";
const STAGING_BYTES: usize = 512 << 10;
/// Where the OOB area of a page says which chunk it is of, and which life of it (docs/format/open-channel.md).
const CHUNK_OFFSET: usize = diecut_vssd::OOB_RECORD_SIZE_BYTES + 8;
const GENERATION_OFFSET: usize = CHUNK_OFFSET + 4;
/// The server looks for what became known of chunks once a second, while somebody asks for something.
const LOOKS: Span = Span::from_millis(1_100);
/// How often the log of a sanitize is looked at, at most.
const LOOKS_MAX: u32 = 100_000;

struct Chunks {
    server: Server,
    random: Xoshiro256PlusPlus,
    host: ChunkHost,
    /// None while the server is gone.
    monitor: Option<Monitor>,
    feedback: Feedback,
    /// Programs and erases of the device fail.
    wears: bool,
    figures: Figures,
}

/// Plays a seed for so many lives of the server.
///
/// # Errors
/// What was found, with the seed.
pub fn run(seed: u64, lives: u32) -> Result<Figures, String> {
    play(seed, lives).map_err(|error| format!("seed {seed}: {error}"))
}

fn play(seed: u64, lives: u32) -> Result<Figures, String> {
    let mut scene = Chunks::new(seed)?;
    scene.live(lives)?;
    let ChunkHost { commands, resets, early_closes, partly_written, listed, strained, .. } = scene.host;
    let entries = scene.feedback.entries;
    Ok(Figures { entries, commands, resets, early_closes, partly_written, listed, strained, ..scene.figures })
}

/// A device, whether its reads need retries, and whether its erase blocks go bad.
fn device(seed: u64, random: &mut Xoshiro256PlusPlus) -> Result<(Device, bool, bool), String> {
    let name = ["tiny", "tiny-one-shot"][random.random_range(0..2)];
    let mut profile = Profile::named(name).map_err(|error| error.to_string())?;
    profile.geometry.blocks_per_plane = 40;
    // Chunks do not need it.
    profile.protected_memory_bytes = if random.random_ratio(2, 3) { 4 << 20 } else { 0 };
    let rates = FaultRates {
        program_fail: f64::from(random.random_range(0..3_u32)) * 2e-3,
        erase_fail: f64::from(random.random_range(0..3_u32)) * 1e-3,
        read_retry: f64::from(random.random_range(0..2_u32)) * 0.4,
        retry_limit: 4,
        ..FaultRates::default()
    };
    let is_worn = rates.read_retry > 0.0;
    let wears = rates.program_fail + rates.erase_fail > 0.0;
    let faults = FaultPlan { rates, ..FaultPlan::default() };
    let options = Options { backing: Backing::Tags, seed, faults, ..Options::default() };
    let mut device = Device::create(&profile, options).map_err(|error| error.to_string())?;
    device.emulated_mut().keep_hard_reads();
    device.emulated_mut().keep_discarded();
    Ok((device, is_worn, wears))
}

impl Chunks {
    fn new(seed: u64) -> Result<Chunks, String> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6f70_656e_6368);
        let device = device(seed, &mut random)?;
        let (device, is_worn, wears) = device;
        let unsafe_units = device.capabilities().unsafe_units;
        let (channels, dies) = (device.geometry().channels, device.geometry().dies_per_channel);
        let config = ShardConfig {
            pool: PoolConfig::suited_to(device.geometry()),
            staging_bytes_per_vssd: STAGING_BYTES,
            ..ShardConfig::default()
        };
        let none = ChunkShape { groups: 1, units: 1, chunks: 1, unit_ius: 1, rows: 1, unsafe_units };
        let mut scene = Chunks {
            server: Server::new(device, config, seed)?,
            random,
            host: ChunkHost::new(NamespaceId(0), none, false),
            monitor: None,
            feedback: Feedback::new(0),
            wears,
            figures: Figures::default(),
        };
        scene.server.done(ControlRequest::CreateTenant(TenantSpec::new(NAME)))?;
        let isolation = [Isolation::Channel, Isolation::Die][scene.random.random_range(0..2)];
        let level = if channels > 1 { scene.random.random_range(1..=2) } else { 1 };
        let vssd = VssdSpec {
            serves: Serves::OpenChannel,
            throughput_level: level,
            ..VssdSpec::new(NAME, NAME, isolation, 280)
        };
        scene.server.done(ControlRequest::CreateVssd(vssd))?;
        let room = scene.server.lead().state().vssds[NAME].zone_room.ok_or("no room for chunks")?;
        let chunks = scene.random.random_range(2..=4_u32).min(room.blocks);
        let ius = u64::from(room.units) * u64::from(chunks) * u64::from(room.rows * room.unit_ius);
        scene.server.done(ControlRequest::CreateVolume(VolumeSpec::new(NAME, NAME, Size(ius * 4096))))?;
        let namespace = NamespaceId(scene.server.lead().state().volumes[NAME].namespace);
        // What a host would compute from the geometry, from what the seed chose alone.
        let groups = if isolation == Isolation::Channel { room.units / dies } else { 1 };
        let shape = ChunkShape {
            groups,
            units: room.units / groups,
            chunks,
            unit_ius: room.unit_ius,
            rows: room.rows,
            unsafe_units,
        };
        scene.host = ChunkHost::new(namespace, shape, is_worn);
        scene.feedback = Feedback::new(shape.all_chunks());
        scene.server.done(ControlRequest::CreateSubsystem(SubsystemSpec {
            nqn: monitor::subsystem().as_str().to_owned(),
            tenant: NAME.to_owned(),
            serial: None,
            model: None,
            allow_any_host: true,
            allowed_hosts: Vec::new(),
            paths: Vec::new(),
            namespaces: vec![NamespaceSpec::new(1, NAME)],
        }))?;
        scene.monitor = Some(Monitor::connect(&mut scene.server, None)?);
        Ok(scene)
    }

    /// Takes what the device read with effort. The mark of a page says whose it is.
    fn take_hard_reads(&mut self) -> Vec<(u32, HardRead)> {
        let media = self.server.lead_mut().media_mut().emulated_mut();
        let mut reads = Vec::new();
        for (_, read, oob) in media.take_hard_reads() {
            let field = |at: usize| u32::from_le_bytes(oob[at..][..4].try_into().expect("4 bytes"));
            // Pages of the server's own have no mark, whose generation is then 0.
            if field(GENERATION_OFFSET) > 0 {
                reads.push((field(CHUNK_OFFSET), read));
            }
        }
        reads.iter().for_each(|(chunk, read)| self.feedback.read(*chunk, read));
        reads
    }

    /// What the device did before chunks are reset is of their lives before.
    fn end_lives(&mut self) {
        self.take_hard_reads();
        std::mem::take(&mut self.host.ended).into_iter().for_each(|chunk| self.feedback.reset(chunk));
    }

    /// The other host does what it does, when nothing is under way.
    fn visit(&mut self) -> Result<(), String> {
        self.settle()?;
        self.end_lives();
        self.read_log(true)?;
        for _ in 0..self.random.random_range(0..4) {
            self.read_with_feedback()?;
        }
        if self.random.random_ratio(1, 4) {
            self.sanitize()?;
        }
        Ok(())
    }

    /// Reads the chunk notification log. `is_whole`: until it is empty, and compares it with what the device did.
    fn read_log(&mut self, is_whole: bool) -> Result<(), String> {
        let Chunks { monitor, server, random, feedback, .. } = self;
        let monitor = monitor.as_mut().expect("the server is there");
        if is_whole {
            for _ in 0..3 {
                monitor.wait(server, LOOKS)?;
            }
        }
        loop {
            let (told, have_gone) = monitor.read_log(server, random.random_range(1..=LOG_ENTRIES_MAX))?;
            let is_over = told.is_empty();
            feedback.told(told, have_gone);
            if is_over || !is_whole {
                break;
            }
        }
        self.take_hard_reads();
        self.feedback.check(is_whole)
    }

    /// A vector read says which blocks were hard to read where that is asked for, and which cannot be read.
    fn read_with_feedback(&mut self) -> Result<(), String> {
        let Some((run, words)) = self.host.run(&mut self.random) else { return Ok(()) };
        let is_on = self.random.random_ratio(1, 2);
        let loses = self.random.random_ratio(1, 4);
        let monitor = self.monitor.as_mut().expect("the server is there");
        monitor.set_feedback(&mut self.server, is_on)?;
        if loses {
            // Which die it is shows when it is read.
            let before = self.server.reads_of_dies();
            monitor.read(&mut self.server, run)?;
            let after = self.server.reads_of_dies();
            let mut read = (0..).zip(before.iter().zip(&after)).filter(|(_, (before, after))| before < after);
            let die = match (read.next(), read.next()) {
                (Some((die, _)), None) => die,
                _ => return Ok(()),
            };
            self.server.lead_mut().media_mut().emulated_mut().lose_next_read(die);
        }
        self.take_hard_reads();
        let monitor = self.monitor.as_mut().expect("the server is there");
        let (completion, data) = monitor.read(&mut self.server, run)?;
        let (mut strained, mut lost) = (0, 0);
        for (chunk, read) in self.take_hard_reads() {
            if chunk != run.0 {
                return Err(format!("chunk {chunk} is read with {run:?}"));
            }
            let bits = self.host.bits_of_rows(run, read.first_iu..read.first_iu + read.iu_count);
            strained |= if read.retries >= 3 { bits } else { 0 };
            lost |= if read.is_lost { bits } else { 0 };
        }
        let expected = match (lost, strained) {
            (0, strained) if is_on && strained > 0 => (Status::HIGH_ECC, strained),
            (0, _) => (Status::SUCCESS, 0),
            _ => (Status::UNRECOVERED_READ_ERROR, lost),
        };
        self.figures.told[0] += u64::from(expected.0 == Status::HIGH_ECC);
        self.figures.told[1] += u64::from(lost > 0);
        let read = format!("a vector read of {run:?}, with feedback {is_on}");
        if !completion.status.same_code(expected.0) || completion.result != expected.1 {
            return Err(format!("{read}, ends with {completion:?}, and not with {expected:?}"));
        }
        let has_none = data.is_empty() && lost.count_ones() == run.2;
        for (at, word) in (0..run.2).zip(words).filter(|_| !has_none) {
            let word = if lost >> at & 1 == 1 { 0 } else { word };
            if data.get(at as usize * 8..).is_none_or(|rest| !rest.starts_with(&word.to_le_bytes())) {
                return Err(format!("{read}, brings something else at {at}"));
            }
        }
        Ok(())
    }

    /// All is erased, in some cases with the server going meanwhile.
    fn sanitize(&mut self) -> Result<(), String> {
        self.monitor.as_mut().expect("the server is there").sanitize(&mut self.server, false)?;
        self.host.begin_erasing();
        if self.random.random_ratio(1, 2) {
            for _ in 0..self.random.random_range(0..40) {
                self.turn()?;
            }
            self.figures.sanitizes[2] += 1;
            self.go()?;
        }
        let Chunks { monitor, server, .. } = self;
        let monitor = monitor.as_mut().expect("the server is there");
        let mut looks = 0;
        let ended = loop {
            match monitor.sanitized(server)? {
                Sanitized::GoesOn if looks < LOOKS_MAX => {
                    looks += 1;
                    monitor.wait(server, Span::from_millis(1))?;
                }
                ended => break ended,
            }
        };
        match ended {
            Sanitized::GoesOn => return Err("a sanitize comes to no end".to_owned()),
            Sanitized::Done => self.figures.sanitizes[0] += 1,
            // What went bad cannot be erased.
            Sanitized::Failed if self.wears => {
                self.figures.sanitizes[1] += 1;
                monitor.sanitize(server, true)?;
            }
            Sanitized::Failed => return Err("a sanitize failed, and nothing is bad".to_owned()),
        }
        self.feedback.reset_all();
        if ended == Sanitized::Done {
            let mut found = 0;
            self.server.lead().media().emulated().look_through(|_, iu| {
                let word = u64::from_le_bytes(iu[..8].try_into().expect("8 bytes"));
                found += u32::from(self.host.wrote(word));
            });
            if found > 0 {
                return Err(format!("{found} blocks lie on the medium after a sanitize"));
            }
        }
        self.look()
    }

    fn look(&mut self) -> Result<(), String> {
        let (number, operation) = self.host.look();
        self.submit(number, operation);
        self.settle()
    }

    /// The process dies, or the power goes, and the server comes back.
    fn go(&mut self) -> Result<(), String> {
        let is_cut = self.random.random_ratio(2, 3);
        self.figures.restarts[usize::from(is_cut)] += 1;
        self.host.crashed(is_cut);
        let before = self.monitor.take();
        self.feedback.crashed();
        self.server.restart(is_cut, |device| drop(device.emulated_mut().take_hard_reads()))?;
        self.server.lead_mut().media_mut().emulated_mut().take_hard_reads();
        self.monitor = Some(Monitor::connect(&mut self.server, before)?);
        Ok(())
    }

    fn submit(&mut self, number: u64, operation: NamespaceOperation) {
        let command = NamespaceCommand {
            token: CommandToken(number),
            namespace: self.host.namespace,
            source: SourceId(DOOR_SOURCE_BIT),
            arrived: self.server.now,
            operation,
        };
        self.server.lead_mut().submit(command);
    }
}

impl Scene for Chunks {
    fn server(&self) -> &Server {
        &self.server
    }

    fn server_mut(&mut self) -> &mut Server {
        &mut self.server
    }

    fn random(&mut self) -> &mut Xoshiro256PlusPlus {
        &mut self.random
    }

    fn completed(&mut self, completion: NamespaceCompletion) -> Result<(), String> {
        self.host.completed(completion)
    }

    fn step(&mut self) -> Result<(), String> {
        if self.random.random_ratio(1, 100) {
            self.visit()?;
        }
        if let Some((number, operation)) = self.host.ask(&mut self.random) {
            self.end_lives();
            self.submit(number, operation);
        }
        self.some_turns()
    }

    fn turn(&mut self) -> Result<bool, String> {
        let Some(completions) = self.server.turn() else { return Ok(false) };
        completions.into_iter().try_for_each(|completion| self.completed(completion))?;
        if let Some(monitor) = &mut self.monitor {
            monitor.carry(&mut self.server)?;
        }
        Ok(true)
    }

    fn settle(&mut self) -> Result<(), String> {
        self.turn_until(|scene| scene.host.is_quiet())
    }

    fn read_all(&mut self) -> Result<(), String> {
        for (number, operation) in self.host.read_all() {
            self.submit(number, operation);
        }
        self.settle()
    }

    fn restart(&mut self) -> Result<(), String> {
        if self.host.is_quiet() {
            // What was told by then is so.
            self.end_lives();
            self.read_log(false)?;
        }
        self.go()?;
        self.look()
    }
}

#[cfg(test)]
mod test;
