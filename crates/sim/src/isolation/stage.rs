//! The set-up of one run: a device, a shard, two tenants with a volume each, and the hosts that load them.

use super::latency_parts::LatencyParts;
use super::storm::Storm;
use super::{Neighbour, Outcome, Setting};
use diecut_devices::{Backing, Device, Options, Profile};
use diecut_media::Media;
use diecut_namespace::contract::*;
use diecut_shard::control::*;
use diecut_shard::drive::{Action, Drive, Event};
use diecut_shard::{CostModel, DOOR_SOURCE_BIT, PoolConfig, Shard, ShardConfig, TracePoint};
use diecut_spec::{Isolation, Size};
use diecut_units::{Buffer, BufferPool, Span, Time};
use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub(super) const READER: u32 = 1;
pub(super) const WRITER: u32 = 2;
const NAMES: [&str; 2] = ["reader", "writer"];
const SUBSYSTEM: &str = "nqn.2026-11.org.diecut:writer";
/// Holds the channels that neither tenant lies on, and does nothing.
const IDLE: &str = "idle";
/// Channels that the two tenants share, or have one of each.
const TENANT_CHANNELS: u32 = 2;
/// Protected memory of each store. It holds tags here; this is room for as many chunks (15 of 128 IUs, a slot's header and a
/// chunk's head each) as the server's 8 MiB have for content. More would be a queue that no server has.
const STAGING_BYTES: usize = 15 * (64 + 4096 + 128 * 8);
/// One part in so many of a volume is written before anything is measured: more than the cleaner frees at rest.
const WARM_UP_SHARE: u64 = 8;
/// One part in so many of those are written as the neighbour writes, the others in extents.
const WARM_UP_AS_MEASURED: u64 = 8;
/// Blocks of the extents that bring a cleaner into its steady state: at random places like single blocks, and with the
/// same spread of what is still valid in a segment, at a fraction of the commands.
const EXTENT_BLOCKS: u32 = 16;
/// A cleaner is steady when its write amplification changed by less than this between parts of an overwrite.
const STEADY_CHANGE: f64 = 0.04;
/// Parts of a volume's size that its write amplification is compared over.
const STEADY_PARTS: u64 = 4;
/// Overwrites after which a cleaner is taken for steady in any case.
const OVERWRITES_MAX: u64 = 3;
const OVER_PROVISIONING_PERMILLE: u32 = 280;

pub(super) struct Stage {
    shard: Shard<Device>,
    now: Time,
    pool: BufferPool,
    random: Xoshiro256PlusPlus,
    completions: Vec<NamespaceCompletion>,
    actions: Vec<Action>,
    /// Blocks of each volume.
    pub(super) lbas: u64,
    storm: Storm,
    /// The round of the shard's core in which the storm had its turn last.
    storm_round: u64,
    trace: Vec<(CommandToken, TracePoint, Time)>,
    /// By token: when it was due, and whose it is.
    due: std::collections::BTreeMap<u64, (Time, u32, u32)>,
    next_token: u64,
    cursor: u64,
    turn: u64,
}

fn profile(setting: &Setting) -> Profile {
    let mut profile = Profile::named("cnex-1tb").expect("built in");
    profile.geometry.blocks_per_plane = setting.blocks_per_plane;
    profile.geometry.pages_per_block = setting.pages_per_block;
    profile.protected_memory_bytes = 64 << 20;
    // A PCIe Gen3 x8 host interface and its latency; `westlake` shows where the latency comes from.
    profile.host.link_mb_per_s = 6_400.0;
    profile.host.latency_us = 5.0;
    profile
}

impl Stage {
    /// The device with one vSSD for each tenant.
    pub(super) fn new(isolation: Isolation, seed: u64, setting: &Setting) -> Result<Stage, String> {
        let options = Options { backing: Backing::Tags, seed, ..Options::default() };
        let device = Device::create(&profile(setting), options).map_err(|error| error.to_string())?;
        let idle_channels = u32::from(device.geometry().channels) - TENANT_CHANNELS;
        let mut pool = PoolConfig::suited_to(device.geometry());
        // Dies of one tenant on both channels: what tells die isolation from channel isolation is the shared bus.
        pool.die_placement = diecut_shard::DiePlacement::Spread;
        let config = ShardConfig {
            pool,
            cost_model: Some(CostModel::default()),
            staging_bytes_per_vssd: STAGING_BYTES,
            ..ShardConfig::default()
        };
        let mut stage = Stage {
            shard: Shard::new(device, config, Time::ZERO),
            now: Time::ZERO,
            pool: BufferPool::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            completions: Vec::new(),
            actions: Vec::new(),
            lbas: 0,
            storm: Storm::new(setting.reconnect_hosts, SUBSYSTEM),
            storm_round: 0,
            trace: Vec::new(),
            due: Default::default(),
            next_token: 0,
            cursor: 0,
            turn: 0,
        };
        // The channels that nobody is measured on are held first, so that both tenants lie on the same two.
        for (name, isolation, throughput_level) in
            [(IDLE, Isolation::Channel, idle_channels), (NAMES[0], isolation, 1), (NAMES[1], isolation, 1)]
        {
            stage.ask(ControlRequest::CreateTenant(TenantSpec::new(name)))?;
            stage.ask(ControlRequest::CreateVssd(VssdSpec {
                throughput_level,
                ..VssdSpec::new(name, name, isolation, OVER_PROVISIONING_PERMILLE)
            }))?;
        }
        Ok(stage)
    }

    /// Logical blocks that each vSSD can export.
    pub(super) fn exported_lbas(&self) -> u64 {
        NAMES.iter().map(|name| self.vssd(name).space.exported_bytes).min().unwrap_or(0) / 4096
    }

    /// A volume of this size for each tenant, and a subsystem that shows the writer's.
    pub(super) fn create_volumes(&mut self, lbas: u64) -> Result<(), String> {
        self.lbas = lbas;
        for name in NAMES {
            self.ask(ControlRequest::CreateVolume(VolumeSpec {
                name: name.to_owned(),
                vssd: name.to_owned(),
                size: Size(lbas * 4096),
                uuid: None,
                nguid: None,
                zones: Default::default(),
                placement: Vec::new(),
            }))?;
        }
        self.ask(ControlRequest::CreateSubsystem(SubsystemSpec {
            nqn: SUBSYSTEM.to_owned(),
            tenant: "writer".to_owned(),
            serial: None,
            model: None,
            allow_any_host: true,
            allowed_hosts: Vec::new(),
            paths: Vec::new(),
            namespaces: vec![NamespaceSpec::new(1, "writer")],
        }))
    }

    fn ask(&mut self, request: ControlRequest) -> Result<(), String> {
        let (token, request) = (ControlToken(1), Box::new(request));
        self.shard.handle(Event::Control { token, request }, self.now, &mut self.actions);
        loop {
            for action in self.actions.drain(..) {
                if let Action::Answer { response, .. } = action {
                    return match *response {
                        ControlResponse::Done | ControlResponse::Unchanged => Ok(()),
                        other => Err(format!("{other:?}")),
                    };
                }
            }
            self.step(Time::NEVER);
        }
    }

    /// Lets time pass to the shard's next deadline, or `until`.
    fn step(&mut self, until: Time) {
        let storm = self.storm.deadline().max(self.shard.core_free_at());
        self.now = self.now.max(self.shard.deadline().min(storm).min(until));
        // At the end of each round the core looks at what hosts that come up want.
        if self.shard.core_rounds() != self.storm_round && self.shard.is_between_rounds(self.now) {
            self.storm_round = self.shard.core_rounds();
            self.storm.work(&mut self.shard, self.now, &mut self.actions);
        }
        self.shard.work(self.now, &mut self.actions);
        self.storm.take_actions(&mut self.actions, &mut self.shard, self.now);
        self.shard.take_completions(&mut self.completions);
        self.shard.take_trace(&mut self.trace);
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
        let operation = NamespaceOperation::Write {
            range,
            data,
            force_unit_access: false,
            placement: PlacementTarget::default(),
        };
        self.submit(who, self.now, operation, lba_count);
    }

    fn read(&mut self, due: Time) {
        let range = LbaRange { first_lba: self.random.random_range(0..self.lbas), lba_count: 1 };
        let destination = self.pool.take(8);
        self.submit(READER, due, NamespaceOperation::Read { range, destination }, 1);
    }

    fn neighbour(&mut self, neighbour: Neighbour) {
        match neighbour {
            Neighbour::None | Neighbour::Reconnects => {}
            Neighbour::RandomWrites => self.write_randomly(WRITER),
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
            Neighbour::None | Neighbour::Reconnects => 0,
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
            self.trace.clear();
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

    /// Writes both volumes from end to end.
    pub(super) fn fill(&mut self) {
        let lbas = self.lbas;
        for who in [READER, WRITER] {
            let mut next = 0;
            self.closed_loop(8, lbas, |stage| {
                let count = 256.min(lbas - next % lbas);
                stage.write(who, next % lbas, count as u32);
                next += count;
            });
        }
    }

    /// Overwrites volumes at random until their cleaners are steady. Gives the overwrites and write amplification of the
    /// last volume.
    pub(super) fn condition(&mut self, tenants: &[u32]) -> (f64, f64) {
        let part = self.lbas / STEADY_PARTS;
        let mut last = (0.0, 0.0);
        for &who in tenants {
            last = (0.0, f64::INFINITY);
            for number in 1..=OVERWRITES_MAX * STEADY_PARTS {
                let before = self.written_and_programmed(who);
                self.closed_loop(8, part, |stage| stage.write_extent(who));
                let after = self.written_and_programmed(who);
                let waf = (after.1 - before.1) as f64 / (after.0 - before.0) as f64;
                let change = (waf - last.1).abs() / waf;
                last = (number as f64 / STEADY_PARTS as f64, waf);
                if change < STEADY_CHANGE && number >= STEADY_PARTS {
                    break;
                }
            }
        }
        self.settle();
        last
    }

    fn write_extent(&mut self, who: u32) {
        let lba = self.random.random_range(0..=self.lbas - u64::from(EXTENT_BLOCKS));
        self.write(who, lba, EXTENT_BLOCKS);
    }

    /// Uses up what cleaners freed while nothing else was to do.
    fn warm_up(&mut self, tenants: &[u32], depth: u32, give: impl FnMut(&mut Stage)) {
        let blocks = self.lbas / WARM_UP_SHARE;
        for &who in tenants {
            self.closed_loop(8, blocks, |stage| stage.write_extent(who));
        }
        self.closed_loop(depth, tenants.len() as u64 * blocks / WARM_UP_AS_MEASURED, give);
    }

    fn write_randomly(&mut self, who: u32) {
        let lba = self.random.random_range(0..self.lbas);
        self.write(who, lba, 1);
    }

    /// Waits until nothing is under way any more, cleaning included.
    pub(super) fn settle(&mut self) {
        while self.shard.deadline() != Time::NEVER {
            self.step(Time::NEVER);
        }
        for completion in self.completions.drain(..) {
            self.due.remove(&completion.token.0);
        }
        self.trace.clear();
        assert!(self.due.is_empty(), "everything was answered");
    }

    /// Reads per second at depth 64, alone.
    pub(super) fn saturation(&mut self) -> f64 {
        let start = self.now;
        let reads = 8_000;
        self.closed_loop(64, reads, |stage| stage.read(stage.now));
        reads as f64 / self.now.since(start).as_secs_f64()
    }

    pub(super) fn measure(&mut self, rate: f64, neighbour: Neighbour, length: Span) -> Outcome {
        let mut latency: Histogram<u64> =
            Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("constants are within bounds");
        if Stage::depth(neighbour) > 0 {
            self.warm_up(&[WRITER], Stage::depth(neighbour), |stage| stage.neighbour(neighbour));
        }
        let mut parts = LatencyParts::default();
        self.trace.clear();
        let before = self.written_and_programmed(WRITER);
        let (start, connects) = (self.now, self.storm.connects);
        if neighbour == Neighbour::Reconnects {
            self.storm.start(start);
        }
        let end = start + length;
        let (mut reads, mut under_way) = (0u64, 0);
        let mut next_read = start;
        let mut outstanding = 0u64;
        while self.now < end || outstanding > 0 {
            while next_read <= self.now && next_read < end {
                self.read(next_read);
                outstanding += 1;
                // Exponential gaps: the host's programs know nothing of each other.
                let gap = -(1.0 - self.random.random_range(0.0..1.0f64)).ln() / rate * 1e9;
                next_read += Span(gap.max(1.0) as u64);
            }
            while self.now < end && under_way < Stage::depth(neighbour) {
                self.neighbour(neighbour);
                under_way += 1;
            }
            self.step(if next_read < end { next_read } else { end.max(self.now + Span::from_micros(10)) });
            parts.note(&mut self.trace);
            for completion in std::mem::take(&mut self.completions) {
                let (due, who, _) = self.due.remove(&completion.token.0).expect("it was given");
                let on_the_way = parts.end(completion.token);
                assert_eq!(completion.result, Ok(()), "nothing fails here");
                if who == READER {
                    outstanding -= 1;
                    reads += 1;
                    latency.saturating_record(self.now.since(due).0);
                    parts.keep(due, on_the_way, self.now);
                } else {
                    under_way -= 1;
                }
            }
        }
        self.storm.stop(&mut self.shard, self.now, &mut self.actions);
        assert_eq!(self.storm.refused, 0, "every host may come up");
        let (written, programmed) = self.written_and_programmed(WRITER);
        let seconds = self.now.since(start).as_secs_f64();
        let us = |quantile: f64| latency.value_at_quantile(quantile) as f64 / 1000.0;
        let user = (written - before.0) as f64;
        Outcome {
            isolation: String::new(),
            neighbour,
            offered_reads_per_s: rate,
            reads_per_s: reads as f64 / seconds,
            latency_us: [us(0.5), us(0.99), us(0.999), us(0.9999)],
            p99_parts_us: parts.parts_us(0.99),
            neighbour_mb_per_s: user / seconds / 1e6,
            neighbour_connects_per_s: (self.storm.connects - connects) as f64 / seconds,
            neighbour_waf_cleaner: if user > 0.0 { (programmed - before.1) as f64 / user } else { 1.0 },
        }
    }

    /// What each tenant writes, in MB/s, both at once: 4 KiB random, closed loop, depth 32 each.
    pub(super) fn measure_writers(&mut self, length: Span) -> [f64; 2] {
        let mut turn = 0;
        self.warm_up(&[READER, WRITER], 64, |stage| {
            turn += 1;
            stage.write_randomly(if turn % 2 == 0 { READER } else { WRITER });
        });
        let (start, end) = (self.now, self.now + length);
        let mut under_way = [0u32; 2];
        let mut blocks = [0u64; 2];
        while self.now < end {
            for who in [READER, WRITER] {
                while under_way[who as usize - 1] < 32 {
                    self.write_randomly(who);
                    under_way[who as usize - 1] += 1;
                }
            }
            self.step(end);
            self.trace.clear();
            for completion in std::mem::take(&mut self.completions) {
                let (_, who, count) = self.due.remove(&completion.token.0).expect("it was given");
                under_way[who as usize - 1] -= 1;
                blocks[who as usize - 1] += u64::from(count);
            }
        }
        let seconds = self.now.since(start).as_secs_f64();
        self.settle();
        blocks.map(|count| (count * 4096) as f64 / seconds / 1e6)
    }

    /// Bytes a tenant's host wrote, and bytes programmed for them by host and cleaner.
    fn written_and_programmed(&self, who: u32) -> (u64, u64) {
        let vssd = self.vssd(NAMES[who as usize - 1]);
        (
            vssd.traffic.host_written_bytes,
            vssd.traffic.programmed_user_bytes + vssd.traffic.programmed_cleaner_bytes,
        )
    }

    fn vssd(&self, name: &str) -> VssdStatus {
        let found = self.shard.status().vssds.into_iter().find(|vssd| vssd.spec.name == name);
        found.expect("it was made")
    }
}
