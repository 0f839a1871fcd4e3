//! An Open-Channel namespace on the whole shard, in virtual time: a host that writes, reads, copies and resets chunks of a vSSD with channels or
//! dies of its own, on a device that fails programs and erases and loses its power; and an oracle that knows of each chunk what was written
//! in its present life, and what a cut may leave of it. The host keeps account of its chunks, and has no translation layer.

mod host;

use crate::shards::Shards;
use diecut_devices::{Backing, Device, FaultPlan, FaultRates, Options, Profile};
use diecut_media::Media;
use diecut_namespace::contract::{
    ChunkShape, CommandToken, NamespaceCommand, NamespaceCompletion, NamespaceId, NamespaceOperation,
    SourceId,
};
use diecut_shard::control::{
    ControlRequest, ControlResponse, ControlToken, TenantSpec, VolumeSpec, VssdSpec,
};
use diecut_shard::drive::{Action, Event};
use diecut_shard::{DOOR_SOURCE_BIT, ShardConfig};
use diecut_spec::{Isolation, Serves, Size};
use diecut_units::{Span, Time};
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
    /// Restarts after the death of the process, and after power cuts.
    pub restarts: [u64; 2],
}

impl std::ops::AddAssign for Figures {
    fn add_assign(&mut self, other: Figures) {
        self.commands += other.commands;
        self.resets += other.resets;
        self.early_closes += other.early_closes;
        (0..2).for_each(|kind| self.restarts[kind] += other.restarts[kind]);
    }
}

/// Steps of a life between two restarts, at most.
const STEPS_MAX: u64 = 500;
/// Turns of the scene in which commands are answered, at most: more is a command that hangs.
const TURNS_MAX: u32 = 400_000;
const NAME: &str = "chunks";
const STAGING_BYTES: usize = 512 << 10;

struct Scene {
    shards: Option<Shards>,
    config: ShardConfig,
    seed: u64,
    now: Time,
    random: Xoshiro256PlusPlus,
    answer: Option<ControlResponse>,
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
    let mut scene = Scene::new(seed)?;
    for life in 0..lives {
        for _ in 0..scene.random.random_range(0..STEPS_MAX) {
            scene.step()?;
        }
        if scene.random.random_ratio(1, 3) {
            scene.settle()?;
            scene.read_all()?;
        }
        scene.restart()?;
        if life + 1 == lives || scene.random.random_ratio(1, 2) {
            scene.read_all()?;
        }
    }
    let ChunkHost { commands, resets, early_closes, .. } = scene.host;
    Ok(Figures { commands, resets, early_closes, ..scene.figures })
}

fn device(seed: u64, random: &mut Xoshiro256PlusPlus) -> Result<Device, String> {
    let name = ["tiny", "tiny-one-shot"][random.random_range(0..2)];
    let mut profile = Profile::named(name).map_err(|error| error.to_string())?;
    profile.geometry.blocks_per_plane = 40;
    // Chunks do not need it.
    profile.protected_memory_bytes = if random.random_ratio(2, 3) { 4 << 20 } else { 0 };
    let rates = FaultRates {
        program_fail: f64::from(random.random_range(0..3_u32)) * 4e-4,
        erase_fail: f64::from(random.random_range(0..3_u32)) * 1e-3,
        ..FaultRates::default()
    };
    let faults = FaultPlan { rates, ..FaultPlan::default() };
    let options = Options { backing: Backing::Tags, seed, faults, ..Options::default() };
    Device::create(&profile, options).map_err(|error| error.to_string())
}

impl Scene {
    fn new(seed: u64) -> Result<Scene, String> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6f70_656e_6368);
        let device = device(seed, &mut random)?;
        let unsafe_units = device.capabilities().unsafe_units;
        let (channels, dies) = (device.geometry().channels, device.geometry().dies_per_channel);
        let config = ShardConfig {
            pool: PoolConfig::suited_to(device.geometry()),
            staging_bytes_per_vssd: STAGING_BYTES,
            ..ShardConfig::default()
        };
        let shards = Shards::new(device, &config, 1, seed, Time::ZERO);
        let none = ChunkShape { groups: 1, units: 1, chunks: 1, unit_ius: 1, rows: 1, unsafe_units };
        let mut scene = Scene {
            shards: Some(shards),
            config,
            seed,
            now: Time::ZERO,
            random,
            answer: None,
            host: ChunkHost::new(NamespaceId(0), none),
            figures: Figures::default(),
        };
        scene.open()?;
        scene.done(ControlRequest::CreateTenant(TenantSpec::new(NAME)))?;
        let isolation = [Isolation::Channel, Isolation::Die][scene.random.random_range(0..2)];
        let level = if channels > 1 { scene.random.random_range(1..=2) } else { 1 };
        let vssd = VssdSpec {
            serves: Serves::OpenChannel,
            throughput_level: level,
            ..VssdSpec::new(NAME, NAME, isolation, 280)
        };
        scene.done(ControlRequest::CreateVssd(vssd))?;
        let room = scene.shards().lead().state().vssds[NAME].zone_room.ok_or("no room for chunks")?;
        let chunks = scene.random.random_range(2..=4_u32).min(room.blocks);
        let ius = u64::from(room.units) * u64::from(chunks) * u64::from(room.rows * room.unit_ius);
        scene.done(ControlRequest::CreateVolume(VolumeSpec::new(NAME, NAME, Size(ius * 4096))))?;
        let namespace = NamespaceId(scene.shards().lead().state().volumes[NAME].namespace);
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
        scene.host = ChunkHost::new(namespace, shape);
        Ok(scene)
    }

    fn shards(&self) -> &Shards {
        self.shards.as_ref().expect("shards stand")
    }

    fn shards_mut(&mut self) -> &mut Shards {
        self.shards.as_mut().expect("shards stand")
    }

    fn open(&mut self) -> Result<(), String> {
        self.turn_until(|scene| scene.shards().lead().is_ready())
    }

    fn done(&mut self, request: ControlRequest) -> Result<(), String> {
        let mut actions = Vec::new();
        let event = Event::Control { token: ControlToken(1), request: Box::new(request.clone()) };
        let now = self.now;
        self.shards_mut().handle(0, event, now, &mut actions);
        self.act(actions);
        self.turn_until(|scene| scene.answer.is_some())?;
        match self.answer.take() {
            Some(ControlResponse::Done | ControlResponse::Unchanged) => Ok(()),
            other => Err(format!("{request:?}: {other:?}")),
        }
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            if let Action::Answer { response, .. } = action {
                self.answer = Some(*response);
            }
        }
    }

    /// Goes on to what happens next. Says whether anything does.
    fn turn(&mut self) -> Result<bool, String> {
        let next = self.shards().deadline();
        if next == Time::NEVER {
            return Ok(false);
        }
        self.now = self.now.max(next);
        let now = self.now;
        let mut actions = Vec::new();
        self.shards_mut().work(0, now, &mut actions);
        self.act(actions);
        let mut completions: Vec<NamespaceCompletion> = Vec::new();
        self.shards_mut().lead_mut().take_completions(&mut completions);
        completions.into_iter().try_for_each(|completion| self.host.completed(completion))?;
        Ok(true)
    }

    fn turn_until(&mut self, is_over: impl Fn(&Scene) -> bool) -> Result<(), String> {
        for _ in 0..TURNS_MAX {
            if is_over(self) {
                return Ok(());
            }
            if !self.turn()? {
                self.now += Span::from_millis(1);
            }
        }
        Err(format!("it comes to no end: {}", self.shards().lead().describe()))
    }

    fn submit(&mut self, number: u64, operation: NamespaceOperation) {
        let command = NamespaceCommand {
            token: CommandToken(number),
            namespace: self.host.namespace,
            source: SourceId(DOOR_SOURCE_BIT),
            arrived: self.now,
            operation,
        };
        self.shards_mut().lead_mut().submit(command);
    }

    fn step(&mut self) -> Result<(), String> {
        if let Some((number, operation)) = self.host.ask(&mut self.random) {
            self.submit(number, operation);
        }
        for _ in 0..self.random.random_range(0..4) {
            self.turn()?;
        }
        Ok(())
    }

    /// Everything that is under way ends.
    fn settle(&mut self) -> Result<(), String> {
        self.turn_until(|scene| scene.host.is_quiet())
    }

    fn read_all(&mut self) -> Result<(), String> {
        for (number, operation) in self.host.read_all() {
            self.submit(number, operation);
        }
        self.settle()
    }

    /// The process dies, or the power goes; then what is there is compared with what may be.
    fn restart(&mut self) -> Result<(), String> {
        let is_cut = self.random.random_ratio(2, 3);
        let now = self.now;
        self.figures.restarts[usize::from(is_cut)] += 1;
        let media = self.shards_mut().lead_mut().media_mut().emulated_mut();
        if is_cut {
            media.power_cut(now)
        } else {
            media.process_death(now)
        }
        let mut device = self.shards.take().expect("shards stand").into_device();
        if !device.emulated().is_powered() {
            device.emulated_mut().power_on();
        }
        self.shards = Some(Shards::new(device, &self.config, 1, self.seed, now));
        self.host.crashed(is_cut);
        self.open()?;
        let (number, operation) = self.host.look();
        self.submit(number, operation);
        self.settle()
    }
}

#[cfg(test)]
mod test;
