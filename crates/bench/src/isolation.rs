//! The noisy neighbour on the real clock: the shipped reactor, target and stack over an emulated device that takes its time,
//! and hosts over NVMe/TCP. A reader in an open loop at 30 % of what it reaches alone, beside each neighbour, under each
//! isolation level.
//!
//! The device has the shape of two channels of `cnex-1tb` with few and short erase blocks, so that it fits into memory and its
//! cleaners are steady within seconds, and its flash is slower by a factor: a core that other programs use, too, wakes
//! threads late by milliseconds at times, which must not be taken for flash.

use crate::flood::{self, Host, come_and_go};
use crate::suite::servers::Server;
use comfy_table::Table;
use diecut_devices::{Backing, Device, Options, Pacing, Profile};
use diecut_initiator::Command;
use diecut_load::drive::{DriveSettings, Endpoint, run as run_load};
use diecut_load::{Arrival, LoadSpec, Pattern, Report};
use diecut_shard::control::*;
use diecut_shard::{DiePlacement, PoolConfig, Shard, ShardConfig};
use diecut_spec::{Isolation, Size};
use diecut_units::Buffer;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const NAMES: [&str; 2] = ["reader", "writer"];
const READER: usize = 0;
const WRITER: usize = 1;
const LEVELS: [(&str, Isolation); 4] = [
    ("channel", Isolation::Channel),
    ("die", Isolation::Die),
    ("software", Isolation::Software),
    ("none", Isolation::None),
];
/// Alone first.
const NEIGHBOURS: [&str; 5] =
    ["alone", "random writes", "1 MiB sequential writes", "deallocates", "reconnects"];
const OVER_PROVISIONING_PERMILLE: u32 = 280;
/// What the reader is offered of what it reaches alone.
const SHARE_OF_SATURATION: f64 = 0.3;
const MIB_LBAS: u64 = 256;

type Outcome<T> = Result<T, String>;

/// What is run.
#[derive(Clone, Debug)]
pub struct IsolationSettings {
    /// Time measured beside each neighbour, in milliseconds.
    pub duration_ms: u64,
    /// How much slower the flash is than that of `cnex-1tb`.
    pub slower: f64,
    /// Hosts that reconnect all the time, as the last neighbour.
    pub reconnect_hosts: u16,
    /// Core of the server, if it is pinned.
    pub server_core: Option<usize>,
    /// Levels that are measured, by name; all if empty.
    pub levels: Vec<String>,
}

/// One level beside one neighbour. Latencies in microseconds.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct IsolationRow {
    pub isolation: String,
    pub neighbour: String,
    pub offered_reads_per_s: f64,
    pub reads_per_s: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p99_9_us: f64,
    pub p99_99_us: f64,
    pub p99_x_alone: f64,
    pub neighbour_mb_per_s: f64,
    pub neighbour_connects_per_s: f64,
    /// Processor time of the server's thread over the measured time; waiting awake counts.
    pub server_core_share: f64,
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct IsolationReport {
    /// How much slower the flash is than that of `cnex-1tb`.
    pub slower: f64,
    /// Size of both volumes.
    pub volume_bytes: u64,
    /// Whatever else the machine did.
    pub load_average: Option<f64>,
    /// What a host took from this machine's cores meanwhile, of their time, if it is a virtual one and says so. Whoever waits
    /// for a core then waits for milliseconds.
    pub stolen_share: Option<f64>,
    /// By level, and within a level by neighbour; alone first.
    pub rows: Vec<IsolationRow>,
}

fn profile(slower: f64) -> Outcome<Profile> {
    let mut profile = Profile::named("cnex-1tb").map_err(|error| error.to_string())?;
    profile.geometry.channels = 2;
    profile.geometry.blocks_per_plane = 256;
    profile.geometry.pages_per_block = 8;
    profile.protected_memory_bytes = 64 << 20;
    profile.host.link_mb_per_s = 6_400.0;
    profile.host.latency_us = 5.0;
    for time_us in profile.timing.read_us.iter_mut().chain(&mut profile.timing.program_us) {
        *time_us *= slower;
    }
    profile.timing.erase_us *= slower;
    profile.bus.channel_mb_per_s /= slower;
    Ok(profile)
}

fn subsystem(name: &str) -> String {
    format!("nqn.2026-11.org.diecut:{name}")
}

fn start(settings: &IsolationSettings, isolation: Isolation) -> Outcome<Server> {
    let profile = profile(settings.slower)?;
    let options =
        Options { backing: Backing::Memory, pacing: Pacing::Modelled, seed: 1, ..Options::default() };
    let device = Device::create(&profile, options).map_err(|error| error.to_string())?;
    let mut pool = PoolConfig::suited_to(&profile.geometry);
    pool.die_placement = DiePlacement::Spread;
    let config = ShardConfig { pool, ..ShardConfig::default() };
    let server = Server::start(settings.server_core, move |(_, now)| Shard::new(device, config, now));
    let server = server.map_err(|error| error.to_string())?;
    for name in NAMES.map(str::to_owned) {
        server.ask(ControlRequest::CreateTenant(TenantSpec::new(&name)))?;
        let vssd = VssdSpec::new(&name, &name, isolation, OVER_PROVISIONING_PERMILLE);
        server.ask(ControlRequest::CreateVssd(vssd))?;
    }
    Ok(server)
}

fn exported_lbas(server: &Server) -> Outcome<u64> {
    Ok(server.status()?.vssds.iter().map(|vssd| vssd.space.exported_bytes).min().unwrap_or(0) / 4096)
}

fn create_volumes(server: &Server, lbas: u64) -> Outcome<()> {
    for name in NAMES.map(str::to_owned) {
        server.ask(ControlRequest::CreateVolume(VolumeSpec {
            name: name.clone(),
            vssd: name.clone(),
            size: Size(lbas * 4096),
            uuid: None,
            nguid: None,
            zones: Default::default(),
            placement: Vec::new(),
        }))?;
        server.ask(ControlRequest::CreateSubsystem(SubsystemSpec {
            nqn: subsystem(&name),
            tenant: name.clone(),
            serial: None,
            model: None,
            allow_any_host: true,
            allowed_hosts: Vec::new(),
            paths: Vec::new(),
            namespaces: vec![NamespaceSpec::new(1, &name)],
        }))?;
    }
    Ok(())
}

fn endpoint(server: &Server, tenant: usize, host: u8) -> Endpoint {
    server.endpoint(&subsystem(NAMES[tenant]), host)
}

fn load(server: &Server, tenant: usize, spec: &LoadSpec) -> Outcome<Report> {
    let report = run_load(&endpoint(server, tenant, 1), spec, DriveSettings::default());
    let report = report.map_err(|error| error.to_string())?;
    if report.errors() > 0 {
        return Err(format!("commands failed, the first with {}", report.first_error().unwrap_or("?")));
    }
    Ok(report)
}

/// Writes both volumes from end to end, and the writer's once more at random.
fn fill(server: &Server, lbas: u64) -> Outcome<()> {
    let in_order = LoadSpec {
        block_bytes: 256 << 10,
        depth: 8,
        read_percent: 0,
        pattern: Pattern::Sequential,
        ramp_ns: 0,
        runtime_ns: 600_000_000_000,
        operations_max: lbas.div_ceil(64),
        ..LoadSpec::default()
    };
    let overwrite = LoadSpec {
        block_bytes: 64 << 10,
        pattern: Pattern::Random,
        depth: 16,
        operations_max: lbas / 16,
        ..in_order.clone()
    };
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| load(server, READER, &in_order));
        load(server, WRITER, &in_order)?;
        reader.join().expect("loads do not panic")?;
        load(server, WRITER, &overwrite).map(drop)
    })
}

/// What a neighbour did.
#[derive(Default)]
struct Done {
    bytes: AtomicU64,
    connects: AtomicU64,
}

/// A neighbour at work until it is told to stop.
fn flood(
    server: &Server,
    neighbour: &str,
    lbas: u64,
    host: u8,
    done: &Done,
    stop: &AtomicBool,
) -> Outcome<()> {
    let endpoint = endpoint(server, WRITER, 10 + host);
    let goes_on = || !stop.load(Ordering::Relaxed);
    if neighbour == "reconnects" {
        while goes_on() {
            come_and_go(&endpoint)?;
            done.connects.fetch_add(1, Ordering::Relaxed);
        }
        return Ok(());
    }
    let [small, middle, large] =
        [1, 16, MIB_LBAS].map(|blocks| Buffer::copy_from(&vec![0xa5; blocks as usize * 4096]));
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut number = 0u64;
    let mut next = || {
        number += 1;
        match neighbour {
            "random writes" => flood::write(random(lbas), &small),
            "deallocates" if number.is_multiple_of(4) => {
                (Command::Deallocate { span: flood::span(random(lbas - MIB_LBAS), MIB_LBAS as u32) }, 0)
            }
            "deallocates" => flood::write(random(lbas - MIB_LBAS), &middle),
            _ => flood::write(number * MIB_LBAS % (lbas - MIB_LBAS), &large),
        }
    };
    let depth = if neighbour == "1 MiB sequential writes" { 8 } else { 32 };
    let ended = |bytes| {
        done.bytes.fetch_add(bytes, Ordering::Relaxed);
    };
    Host::connect(&endpoint, depth as u16)?.run(depth, &mut next, &goes_on, &ended).map(drop)
}

fn measure(
    server: &Server,
    settings: &IsolationSettings,
    neighbour: &str,
    lbas: u64,
    rate: f64,
) -> Outcome<IsolationRow> {
    let (stop, done) = (AtomicBool::new(false), Done::default());
    let hosts = match neighbour {
        "alone" => 0,
        "reconnects" => settings.reconnect_hosts,
        _ => 1,
    };
    // A writer first uses up what its cleaner freed while nothing else was to do.
    let ramp_ns = if hosts == 0 { 500_000_000 } else { 3_000_000_000 };
    let spec = LoadSpec {
        depth: 120,
        arrival: Arrival::Open(rate),
        ramp_ns,
        runtime_ns: settings.duration_ms * 1_000_000,
        ..LoadSpec::default()
    };
    let (report, seconds, busy_ns) = std::thread::scope(|scope| {
        let (stop, done) = (&stop, &done);
        let floods: Vec<_> = (0..hosts)
            .map(|host| scope.spawn(move || flood(server, neighbour, lbas, host as u8, done, stop)))
            .collect();
        let reading = scope.spawn(|| load(server, READER, &spec));
        std::thread::sleep(Duration::from_nanos(ramp_ns));
        // What was done before is not counted.
        done.bytes.store(0, Ordering::Relaxed);
        done.connects.store(0, Ordering::Relaxed);
        let (clock, processor) = (std::time::Instant::now(), server.processor_ns()?);
        let report = reading.join().expect("loads do not panic");
        let (seconds, busy_ns) = (clock.elapsed().as_secs_f64(), server.processor_ns()? - processor);
        let totals = (done.bytes.load(Ordering::Relaxed), done.connects.load(Ordering::Relaxed));
        stop.store(true, Ordering::Relaxed);
        for flood in floods {
            flood.join().expect("floods do not panic")?;
        }
        done.bytes.store(totals.0, Ordering::Relaxed);
        done.connects.store(totals.1, Ordering::Relaxed);
        Outcome::Ok((report?, seconds, busy_ns))
    })?;
    let read = report.read.ok_or("the reader read nothing")?;
    Ok(IsolationRow {
        isolation: String::new(),
        neighbour: neighbour.to_owned(),
        offered_reads_per_s: rate,
        reads_per_s: read.operations_per_second,
        p50_us: read.p50_us,
        p99_us: read.p99_us,
        p99_9_us: read.p99_9_us,
        p99_99_us: read.p99_99_us,
        p99_x_alone: 1.0,
        neighbour_mb_per_s: done.bytes.into_inner() as f64 / seconds / 1e6,
        neighbour_connects_per_s: done.connects.into_inner() as f64 / seconds,
        server_core_share: busy_ns as f64 / 1e9 / seconds,
    })
}

/// Runs all levels; progress goes to `say`.
///
/// # Errors
/// What could not be measured, and why.
pub fn run(settings: &IsolationSettings, mut say: impl FnMut(&str)) -> Outcome<IsolationReport> {
    let load_average = std::fs::read_to_string("/proc/loadavg").ok();
    let load_average = load_average.and_then(|text| text.split_whitespace().next()?.parse().ok());
    // Volumes of one size under all levels: what fits under the level that can export least.
    let mut lbas = u64::MAX;
    for (_, isolation) in LEVELS {
        let server = start(settings, isolation)?;
        lbas = lbas.min(exported_lbas(&server)?);
        server.reactor.stop();
    }
    let lbas = lbas / MIB_LBAS * MIB_LBAS;
    let mut rows = Vec::new();
    let before = processor_ticks();
    let wanted = |name: &str| settings.levels.is_empty() || settings.levels.iter().any(|level| level == name);
    for (name, isolation) in LEVELS.into_iter().filter(|(name, _)| wanted(name)) {
        let server = start(settings, isolation)?;
        create_volumes(&server, lbas)?;
        say(&format!("{name}: filling 2 x {} MiB and overwriting", lbas / MIB_LBAS));
        fill(&server, lbas)?;
        let alone =
            LoadSpec { depth: 64, ramp_ns: 500_000_000, runtime_ns: 2_000_000_000, ..LoadSpec::default() };
        let saturation = load(&server, READER, &alone)?.operations_per_second();
        let rate = SHARE_OF_SATURATION * saturation;
        say(&format!("{name}: the reader reaches {saturation:.0} reads/s alone, {rate:.0} are offered"));
        let mut alone_us = f64::NAN;
        for neighbour in NEIGHBOURS {
            let mut row = measure(&server, settings, neighbour, lbas, rate)?;
            if neighbour == "alone" {
                alone_us = row.p99_us;
            }
            row.isolation = name.to_owned();
            row.p99_x_alone = row.p99_us / alone_us;
            say(&format!("{name}, {neighbour}: p99 {:.0} us, {:.2} x alone", row.p99_us, row.p99_x_alone));
            rows.push(row);
            // What the cleaner still has to do is not the next neighbour's.
            std::thread::sleep(Duration::from_secs(1));
        }
        server.reactor.stop();
    }
    let stolen_share = before.zip(processor_ticks()).map(|((all_before, stolen_before), (all, stolen))| {
        (stolen - stolen_before) as f64 / (all - all_before).max(1) as f64
    });
    Ok(IsolationReport {
        slower: settings.slower,
        volume_bytes: lbas * 4096,
        load_average,
        stolen_share,
        rows,
    })
}

/// Ticks of all cores since the machine started, and those of them that its host took.
fn processor_ticks() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    stolen_of(text.lines().next()?)
}

/// From the line `cpu user nice system idle iowait irq softirq steal ..` (proc_stat(5)); what guests used is in `user` already.
fn stolen_of(line: &str) -> Option<(u64, u64)> {
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    Some((ticks.iter().sum(), *ticks.get(7)?))
}

impl IsolationReport {
    /// For people.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(comfy_table::presets::ASCII_MARKDOWN);
        table.set_header([
            "isolation",
            "neighbour",
            "reads/s",
            "p50",
            "p99",
            "p99.9",
            "p99.99",
            "p99 x alone",
            "neighbour MB/s",
            "connects/s",
            "server core",
        ]);
        for row in &self.rows {
            table.add_row([
                row.isolation.clone(),
                row.neighbour.clone(),
                format!("{:.0}", row.reads_per_s),
                format!("{:.0}", row.p50_us),
                format!("{:.0}", row.p99_us),
                format!("{:.0}", row.p99_9_us),
                format!("{:.0}", row.p99_99_us),
                format!("{:.2}", row.p99_x_alone),
                format!("{:.1}", row.neighbour_mb_per_s),
                format!("{:.0}", row.neighbour_connects_per_s),
                format!("{:.0} %", row.server_core_share * 100.0),
            ]);
        }
        let stolen = self.stolen_share.map_or(String::new(), |share| {
            format!("; its host took {:.0} % of its cores' time meanwhile", share * 100.0)
        });
        let load = self.load_average.map_or("unknown".to_owned(), |load| format!("{load:.1}"));
        format!(
            "{table}\nreal clock, flash {} times slower than that of cnex-1tb, volumes of {} MiB, latency of 4 KiB random reads in\n\
             microseconds at the host; load average of the machine at the start: {load}{stolen}\n",
            self.slower,
            self.volume_bytes >> 20
        )
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_the_host_took_is_read_from_the_line_of_all_cores() {
        let line = "cpu  1497426 877343 202966 665793 7962 0 10675 390635 0 0";
        assert_eq!(stolen_of(line), Some((3_652_800, 390_635)));
        // A kernel from before there was such a number.
        assert_eq!(stolen_of("cpu  1 2 3 4"), None);
    }
}
