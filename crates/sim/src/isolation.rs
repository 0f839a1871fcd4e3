//! The noisy neighbour: a reader at 30 % of what it reaches alone, beside a neighbour, under each isolation level.
//!
//! Both tenants share one shard. Latency is counted at the door, from the time a command was due (open loop) to its
//! answer; the host link, the controller and the time commands take on the shard's core are modelled. Per tenant: one
//! channel, or 4 dies, or 16 soft-planes, as in FlashBlox (ATC/FAST'17 evaluation): equal raw quantity each.
//!
//! The device is `cnex-1tb` in timing and width per channel, with two channels and fewer, shorter erase blocks, so that a
//! writer comes into steady cleaning within seconds of virtual time.

use diecut_emulator::{Backing, Device, Options, Profile};
use diecut_media::Media;
use diecut_namespace::contract::*;
use diecut_shard::control::*;
use diecut_shard::drive::{Action, Drive, Event};
use diecut_shard::{CostModel, DOOR_SOURCE_BIT, PoolConfig, Shard, ShardConfig};
use diecut_units::{Buffer, BufferPool, Span, Time};
use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

/// What the neighbour does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Neighbour {
    /// Nothing: the reader is alone.
    None,
    /// 4 KiB random writes over data that fills its vSSD, depth 32: the cleaner never rests.
    RandomWrites,
    /// 1 MiB sequential writes, depth 8.
    SequentialWrites,
    /// Deallocates of 1 MiB and writes over them, depth 32.
    Deallocates,
}

/// Isolation levels, strongest first.
pub const LEVELS: [Isolation; 4] = [Isolation::Channel, Isolation::Die, Isolation::Software, Isolation::None];

/// What one run showed.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Isolation level: `channel`, `die`, `software` or `none`.
    pub isolation: String,
    /// The neighbour.
    pub neighbour: Neighbour,
    /// Reads per second that were due.
    pub offered_reads_per_s: f64,
    /// Reads per second that were answered.
    pub reads_per_s: f64,
    /// Latency of reads in microseconds: p50, p99, p99.9, p99.99.
    pub latency_us: [f64; 4],
    /// What the neighbour wrote, in MB/s (10^6).
    pub neighbour_mb_per_s: f64,
    /// Write amplification of the neighbour's cleaner while it was measured: (user + cleaner) / user.
    pub neighbour_waf_cleaner: f64,
}

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// Time measured.
    pub measured: Span,
    /// How often the writer overwrites its volume before that.
    pub overwrites: f64,
}

impl Default for Lengths {
    fn default() -> Lengths {
        Lengths { measured: Span::from_millis(1_500), overwrites: 1.0 }
    }
}

const READER: u32 = 1;
const WRITER: u32 = 2;
const OVER_PROVISIONING_PERMILLE: u32 = 280;

struct Stage {
    shard: Shard<Device>,
    now: Time,
    pool: BufferPool,
    random: Xoshiro256PlusPlus,
    completions: Vec<NamespaceCompletion>,
    actions: Vec<Action>,
    /// Blocks of each volume.
    lbas: u64,
    /// By token: when it was due, and whose it is.
    due: std::collections::BTreeMap<u64, (Time, u32, u32)>,
    next_token: u64,
    cursor: u64,
    turn: u64,
}

fn profile() -> Profile {
    let mut profile = Profile::named("cnex-1tb").expect("built in");
    profile.geometry.channels = 2;
    profile.geometry.blocks_per_plane = 128;
    profile.geometry.pages_per_block = 64;
    profile.protected_memory_bytes = 64 << 20;
    // A PCIe Gen3 x8 host interface and its latency; `westlake` shows where the latency comes from.
    profile.host.link_mb_per_s = 6_400.0;
    profile.host.latency_us = 5.0;
    profile
}

impl Stage {
    fn new(isolation: Isolation, seed: u64) -> Result<Stage, String> {
        let options = Options { backing: Backing::Tags, seed, ..Options::default() };
        let device = Device::create(&profile(), options).map_err(|error| error.to_string())?;
        let mut pool = PoolConfig::suited_to(device.geometry());
        // Dies of one tenant on both channels: what tells die isolation from channel isolation is the shared bus.
        pool.die_placement = diecut_shard::DiePlacement::Spread;
        let config = ShardConfig { pool, cost_model: Some(CostModel::default()), ..ShardConfig::default() };
        let mut stage = Stage {
            shard: Shard::new(device, config, Time::ZERO),
            now: Time::ZERO,
            pool: BufferPool::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            completions: Vec::new(),
            actions: Vec::new(),
            lbas: 0,
            due: Default::default(),
            next_token: 0,
            cursor: 0,
            turn: 0,
        };
        for name in ["reader", "writer"] {
            stage.ask(ControlRequest::CreateTenant(TenantSpec { name: name.to_owned() }))?;
            stage.ask(ControlRequest::CreateVssd(VssdSpec {
                name: name.to_owned(),
                tenant: name.to_owned(),
                isolation,
                throughput_level: 1,
                capacity_bytes: 1 << 20,
                over_provisioning_permille: OVER_PROVISIONING_PERMILLE,
                weight: 100,
                rate_limit_bytes_per_second: 0,
                sharing: Sharing::WorkConserving,
            }))?;
        }
        let exported = stage.shard.status().vssds.iter().map(|vssd| vssd.exported_bytes).min().unwrap_or(0);
        stage.lbas = exported / 4096;
        for name in ["reader", "writer"] {
            stage.ask(ControlRequest::CreateVolume(VolumeSpec {
                name: name.to_owned(),
                vssd: name.to_owned(),
                size_bytes: stage.lbas * 4096,
                uuid: None,
                nguid: None,
            }))?;
        }
        Ok(stage)
    }

    fn ask(&mut self, request: ControlRequest) -> Result<(), String> {
        let (token, request) = (ControlToken(1), Box::new(request));
        self.shard.handle(Event::Control { token, request }, self.now, &mut self.actions);
        loop {
            for action in self.actions.drain(..) {
                if let Action::Answer { response, .. } = action {
                    return match *response {
                        ControlResponse::Done => Ok(()),
                        other => Err(format!("{other:?}")),
                    };
                }
            }
            self.step(Time::NEVER);
        }
    }

    /// Lets time pass to the shard's next deadline, or `until`.
    fn step(&mut self, until: Time) {
        self.now = self.now.max(self.shard.deadline().min(until));
        self.shard.work(self.now, &mut self.actions);
        self.shard.take_completions(&mut self.completions);
    }

    fn submit(&mut self, who: u32, due: Time, operation: NamespaceOperation, blocks: u32) {
        self.next_token += 1;
        self.due.insert(self.next_token, (due, who, blocks));
        self.shard.submit(NamespaceCommand {
            token: CommandToken(self.next_token),
            namespace: NamespaceId(who),
            source: SourceId(DOOR_SOURCE_BIT | who),
            arrived: due,
            operation,
        });
    }

    fn tags(&mut self, count: u32) -> Buffer {
        let mut buffer = self.pool.take(count as usize * 8);
        buffer.fill(7);
        buffer.freeze()
    }

    fn write(&mut self, who: u32, first_lba: u64, lba_count: u32) {
        let data = self.tags(lba_count);
        let range = LbaRange { first_lba, lba_count };
        let operation = NamespaceOperation::Write { range, data, force_unit_access: false };
        self.submit(who, self.now, operation, lba_count);
    }

    fn read(&mut self, due: Time) {
        let range = LbaRange { first_lba: self.random.random_range(0..self.lbas), lba_count: 1 };
        let destination = self.pool.take(8);
        self.submit(READER, due, NamespaceOperation::Read { range, destination }, 1);
    }

    fn neighbour(&mut self, neighbour: Neighbour) {
        match neighbour {
            Neighbour::None => {}
            Neighbour::RandomWrites => {
                let lba = self.random.random_range(0..self.lbas);
                self.write(WRITER, lba, 1);
            }
            Neighbour::SequentialWrites => {
                let lba = self.cursor % (self.lbas - 256);
                self.cursor += 256;
                self.write(WRITER, lba, 256);
            }
            Neighbour::Deallocates => {
                self.turn += 1;
                let first_lba = self.random.random_range(0..self.lbas - 256);
                if self.turn.is_multiple_of(4) {
                    let ranges = [LbaRange { first_lba, lba_count: 256 }].into_iter().collect();
                    self.submit(WRITER, self.now, NamespaceOperation::Deallocate { ranges }, 0);
                } else {
                    self.write(WRITER, first_lba, 16);
                }
            }
        }
    }

    fn depth(neighbour: Neighbour) -> u32 {
        match neighbour {
            Neighbour::None => 0,
            Neighbour::SequentialWrites => 8,
            Neighbour::RandomWrites | Neighbour::Deallocates => 32,
        }
    }

    /// Keeps `depth` commands of `give` under way until `blocks` blocks were written.
    fn closed_loop(&mut self, depth: u32, blocks: u64, mut give: impl FnMut(&mut Stage)) {
        let (mut done, mut under_way) = (0, 0);
        while done < blocks {
            while under_way < depth {
                give(self);
                under_way += 1;
            }
            self.step(Time::NEVER);
            for completion in std::mem::take(&mut self.completions) {
                let (_, _, count) = self.due.remove(&completion.token.0).expect("it was given");
                done += u64::from(count);
                under_way -= 1;
            }
        }
        while under_way > 0 {
            self.step(Time::NEVER);
            for completion in std::mem::take(&mut self.completions) {
                self.due.remove(&completion.token.0);
                under_way -= 1;
            }
        }
    }

    fn fill(&mut self, who: u32) {
        let lbas = self.lbas;
        let mut next = 0;
        self.closed_loop(16, lbas, |stage| {
            let count = 64.min(lbas - next % lbas);
            stage.write(who, next % lbas, count as u32);
            next += count;
        });
    }

    /// Waits until nothing is under way any more, cleaning included.
    fn settle(&mut self) {
        while self.shard.deadline() != Time::NEVER {
            self.step(Time::NEVER);
        }
        for completion in self.completions.drain(..) {
            self.due.remove(&completion.token.0);
        }
        assert!(self.due.is_empty(), "everything was answered");
    }

    /// Reads per second at depth 64, alone.
    fn saturation(&mut self) -> f64 {
        let start = self.now;
        let reads = 8_000;
        self.closed_loop(64, reads, |stage| stage.read(stage.now));
        reads as f64 / self.now.since(start).as_secs_f64()
    }

    fn measure(&mut self, rate: f64, neighbour: Neighbour, length: Span) -> Outcome {
        let mut latency: Histogram<u64> =
            Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("constants are within bounds");
        let (start, before) = (self.now, self.writer());
        let end = start + length;
        let (mut reads, mut under_way) = (0u64, 0);
        let mut next_read = start;
        let mut outstanding = 0u64;
        while self.now < end || outstanding > 0 {
            while next_read <= self.now && next_read < end {
                self.read(next_read);
                outstanding += 1;
                // Exponential gaps: many hosts that know nothing of each other.
                let gap = -(1.0 - self.random.random_range(0.0..1.0f64)).ln() / rate * 1e9;
                next_read += Span(gap.max(1.0) as u64);
            }
            while self.now < end && under_way < Stage::depth(neighbour) {
                self.neighbour(neighbour);
                under_way += 1;
            }
            self.step(if next_read < end { next_read } else { end.max(self.now + Span::from_micros(10)) });
            for completion in std::mem::take(&mut self.completions) {
                let (due, who, _) = self.due.remove(&completion.token.0).expect("it was given");
                assert_eq!(completion.result, Ok(()), "nothing fails here");
                if who == READER {
                    outstanding -= 1;
                    reads += 1;
                    latency.saturating_record(self.now.since(due).0);
                } else {
                    under_way -= 1;
                }
            }
        }
        let (written, programmed) = self.writer();
        let seconds = self.now.since(start).as_secs_f64();
        let us = |quantile: f64| latency.value_at_quantile(quantile) as f64 / 1000.0;
        let user = (written - before.0) as f64;
        Outcome {
            isolation: String::new(),
            neighbour,
            offered_reads_per_s: rate,
            reads_per_s: reads as f64 / seconds,
            latency_us: [us(0.5), us(0.99), us(0.999), us(0.9999)],
            neighbour_mb_per_s: user / seconds / 1e6,
            neighbour_waf_cleaner: if user > 0.0 { (programmed - before.1) as f64 / user } else { 1.0 },
        }
    }

    /// Bytes the writer's host wrote, and bytes programmed for them by host and cleaner.
    fn writer(&self) -> (u64, u64) {
        let status = self.shard.status();
        let vssd = status.vssds.iter().find(|vssd| vssd.spec.name == "writer").expect("it was made");
        (vssd.host_written_bytes, vssd.programmed_user_bytes + vssd.programmed_cleaner_bytes)
    }
}

/// The name of a level, as users write it.
pub fn name_of(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::Channel => "channel",
        Isolation::Die => "die",
        Isolation::Software => "software",
        Isolation::None => "none",
    }
}

/// Runs the reader under one level, alone and then beside each neighbour. `progress` hears what is done.
///
/// # Errors
/// What could not be set up.
pub fn run_level(
    isolation: Isolation,
    neighbours: &[Neighbour],
    seed: u64,
    lengths: Lengths,
    mut progress: impl FnMut(&str),
) -> Result<Vec<Outcome>, String> {
    let name = name_of(isolation);
    progress(&format!("{name}: filling"));
    let mut stage = Stage::new(isolation, seed)?;
    stage.fill(READER);
    stage.fill(WRITER);
    let overwrites = (stage.lbas as f64 * lengths.overwrites) as u64;
    progress(&format!("{name}: overwriting until the cleaner is steady"));
    stage.closed_loop(32, overwrites, |stage| stage.neighbour(Neighbour::RandomWrites));
    stage.settle();
    let rate = 0.3 * stage.saturation();
    progress(&format!("{name}: {} MiB, {rate:.0} reads/s offered", stage.lbas >> 8));
    let mut outcomes = Vec::new();
    for &neighbour in std::iter::once(&Neighbour::None).chain(neighbours) {
        progress(&format!("{name}: measuring beside {neighbour:?}"));
        let outcome = stage.measure(rate, neighbour, lengths.measured);
        stage.settle();
        outcomes.push(Outcome { isolation: name.to_owned(), ..outcome });
    }
    Ok(outcomes)
}
