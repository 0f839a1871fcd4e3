//! An Open-Channel namespace on the whole shard, in virtual time: a host that writes, reads, copies and resets chunks of a vSSD with channels or
//! dies of its own, on a device that fails programs and erases and loses its power; and an oracle that knows of each chunk what was written
//! in its present life, and what a cut may leave of it. The host keeps account of its chunks, and has no translation layer.

mod host;

use crate::scene::{Scene, Server};
use diecut_devices::{Backing, Device, FaultPlan, FaultRates, Options, Profile};
use diecut_media::Media;
use diecut_namespace::contract::{
    ChunkShape, CommandToken, NamespaceCommand, NamespaceCompletion, NamespaceId, NamespaceOperation,
    SourceId,
};
use diecut_shard::control::{ControlRequest, TenantSpec, VolumeSpec, VssdSpec};
use diecut_shard::{DOOR_SOURCE_BIT, ShardConfig};
use diecut_spec::{Isolation, Serves, Size};
use diecut_vssd::PoolConfig;
use host::ChunkHost;
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
        (0..2).for_each(|kind| self.listed[kind] += other.listed[kind]);
        (0..2).for_each(|kind| self.restarts[kind] += other.restarts[kind]);
    }
}

const NAME: &str = "chunks";
const STAGING_BYTES: usize = 512 << 10;

struct Chunks {
    server: Server,
    random: Xoshiro256PlusPlus,
    host: ChunkHost,
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
    Ok(Figures { commands, resets, early_closes, partly_written, listed, strained, ..scene.figures })
}

/// A device, and whether its reads need retries.
fn device(seed: u64, random: &mut Xoshiro256PlusPlus) -> Result<(Device, bool), String> {
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
    let faults = FaultPlan { rates, ..FaultPlan::default() };
    let options = Options { backing: Backing::Tags, seed, faults, ..Options::default() };
    let device = Device::create(&profile, options).map_err(|error| error.to_string())?;
    Ok((device, is_worn))
}

impl Chunks {
    fn new(seed: u64) -> Result<Chunks, String> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6f70_656e_6368);
        let device = device(seed, &mut random)?;
        let (device, is_worn) = device;
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
        Ok(scene)
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
        if let Some((number, operation)) = self.host.ask(&mut self.random) {
            self.submit(number, operation);
        }
        self.some_turns()
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
        let is_cut = self.random.random_ratio(2, 3);
        self.figures.restarts[usize::from(is_cut)] += 1;
        self.host.crashed(is_cut);
        self.server.restart(is_cut, |_| {})?;
        let (number, operation) = self.host.look();
        self.submit(number, operation);
        self.settle()
    }
}

#[cfg(test)]
mod test;
