//! Which rows there are, and the order in which they are measured.

use super::children;
use super::residence::{Samples, samples};
use super::row::{Row, Suite, Target, median};
use super::servers::{STACK_BYTES, Server};
use crate::affinity::pin_this_thread;
use crate::counted;
use crate::raw::{self, FarReads, RawSettings, RawShape};
use diecut_load::drive::{DriveSettings, Endpoint, run as run_load};
use diecut_load::{LoadSpec, Pattern, Report};
use std::path::PathBuf;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How the suite is run.
#[derive(Clone, Debug)]
pub struct SuiteSettings {
    /// Of each row.
    pub repetitions: usize,
    /// Measured time of one side of one repetition, in milliseconds.
    pub duration_ms: u64,
    /// Core of the server.
    pub server_core: usize,
    /// Core of the load.
    pub load_core: usize,
    /// Only rows whose item begins with one of these; all if empty.
    pub only: Vec<String>,
    /// Why instructions are not to be counted, if they are not.
    pub uncounted: Option<String>,
    /// fio: a name that is in the PATH, or a path.
    pub fio: PathBuf,
    /// On whose file system drives that are files lie.
    pub drive_folder: PathBuf,
}

/// Commands that a deep load gathers before it sends them: the raw loop's client sends several requests with one call
/// too, because it is no faster than its server.
const LOAD_BATCH: u16 = 16;

/// A row against the raw loop.
struct Case {
    id: &'static str,
    what: &'static str,
    shape: RawShape,
    connections: u16,
    depth: u16,
    stack: bool,
    /// Bytes of the namespace that are used; 0 for all.
    size_bytes: u64,
    target: Option<Target>,
}

const CASES: [Case; 7] = [
    Case {
        id: "a",
        what: "random read, 1 connection, QD128, null namespace",
        shape: RawShape::Read,
        connections: 1,
        depth: 128,
        stack: false,
        size_bytes: 0,
        target: Some(Target::AtLeast(0.55)),
    },
    Case {
        id: "null write",
        what: "random write, 1 connection, QD128, null namespace",
        shape: RawShape::Write,
        connections: 1,
        depth: 128,
        stack: false,
        size_bytes: 0,
        target: None,
    },
    Case {
        id: "b read",
        what: "random read, 1 connection, QD128, whole stack, 1 GiB volume in memory",
        shape: RawShape::Read,
        connections: 1,
        depth: 128,
        stack: true,
        size_bytes: 0,
        target: Some(Target::AtLeast(0.35)),
    },
    Case {
        id: "b near",
        what: "the same over 1 MiB, which stays in caches",
        shape: RawShape::Read,
        connections: 1,
        depth: 128,
        stack: true,
        size_bytes: 1 << 20,
        target: None,
    },
    Case {
        id: "b write",
        what: "random write, 1 connection, QD128, whole stack, 1 GiB volume in memory",
        shape: RawShape::Write,
        connections: 1,
        depth: 128,
        stack: true,
        size_bytes: 0,
        target: Some(Target::AtLeast(0.30)),
    },
    Case {
        id: "c",
        what: "random read, 16 connections, QD8 each, null namespace",
        shape: RawShape::Read,
        connections: 16,
        depth: 8,
        stack: false,
        size_bytes: 0,
        target: Some(Target::AtLeast(0.6)),
    },
    Case {
        id: "null QD1",
        what: "random read, 1 connection, QD1, null namespace",
        shape: RawShape::Read,
        connections: 1,
        depth: 1,
        stack: false,
        size_bytes: 0,
        target: None,
    },
];

/// One side of one repetition of ours.
struct Measured {
    report: Report,
    server_calls: f64,
    instructions: Option<f64>,
}

/// The raw loop alone, against itself when it reads its content from as much memory as the whole stack: what the memory of
/// the machine takes from any server that keeps data there.
const FAR: &str = "raw far";

/// What a case gathered.
#[derive(Default)]
struct Gathered {
    rates: Vec<(f64, f64)>,
    calls: Vec<[f64; 4]>,
    instructions: Vec<f64>,
    latency: Vec<(f64, f64)>,
}

impl SuiteSettings {
    pub(super) fn wants(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| id.starts_with(only.as_str()))
    }

    fn spec(&self, case: &Case) -> LoadSpec {
        LoadSpec {
            depth: case.depth,
            batch: if case.depth > LOAD_BATCH { LOAD_BATCH } else { 1 },
            jobs: case.connections,
            read_percent: if case.shape == RawShape::Read { 100 } else { 0 },
            size_bytes: case.size_bytes,
            ramp_ns: self.duration_ms * 100_000,
            runtime_ns: self.duration_ms * 1_000_000,
            ..LoadSpec::default()
        }
    }

    fn load(
        &self,
        server: &Server,
        endpoint: &Endpoint,
        spec: &LoadSpec,
        busy_poll: bool,
    ) -> Outcome<Measured> {
        let pin = |_: usize| pin_this_thread(self.load_core);
        let settings = DriveSettings { threads: 1, busy_poll, on_thread: &pin, ..DriveSettings::default() };
        let instructions = || server.instructions.as_ref().as_ref().ok().and_then(|one| one.count().ok());
        let (calls, retired) = (server.reactor.system_calls(), instructions());
        let report = run_load(endpoint, spec, settings)?;
        let operations = report.operations.max(1) as f64;
        if report.errors() > 0 {
            let first = report.first_error().unwrap_or("unknown");
            return Err(format!("{} commands failed, the first with {first}", report.errors()).into());
        }
        Ok(Measured {
            server_calls: (server.reactor.system_calls() - calls) as f64 / operations,
            instructions: retired.zip(instructions()).map(|(from, to)| (to - from) as f64 / operations),
            report,
        })
    }

    fn raw(&self, case: &Case, far_bytes: usize) -> Outcome<raw::RawResult> {
        let settings = RawSettings {
            shape: case.shape,
            connections: usize::from(case.connections),
            depth: usize::from(case.depth),
            far_bytes,
            far_reads: FarReads::default(),
            duration_ms: self.duration_ms,
            server_core: Some(self.server_core),
            load_core: Some(self.load_core),
        };
        raw::run(&settings).map_err(|error| error.to_string().into())
    }

    fn repeat(&self, case: &Case, server: &Server, gathered: &mut Gathered) -> Outcome<()> {
        let raw = self.raw(case, 0)?;
        let endpoint = if case.stack { server.stack_endpoint() } else { server.null_endpoint(0) };
        let ours = self.load(server, &endpoint, &self.spec(case), true)?;
        gathered.rates.push((raw.operations_per_second, ours.report.operations_per_second()));
        gathered.calls.push([
            raw.server_system_calls_per_operation.unwrap_or(f64::NAN),
            raw.client_system_calls_per_operation,
            ours.server_calls,
            ours.report.system_calls_per_operation,
        ]);
        gathered.instructions.extend(ours.instructions);
        if let Some(one) = ours.report.read.as_ref().or(ours.report.write.as_ref()) {
            gathered.latency.push((one.p50_us, one.p99_us));
        }
        Ok(())
    }
}

/// A depth-1 reader alone and beside a depth-128 neighbour on the same shard.
#[derive(Default)]
struct Residence {
    /// (alone, beside) in microseconds: mean, median and 99th percentile of what the server holds a command.
    mean: Vec<(f64, f64)>,
    p50: Vec<(f64, f64)>,
    p99: Vec<(f64, f64)>,
    /// What the reader saw, median.
    host_p50: Vec<(f64, f64)>,
    neighbour: Vec<f64>,
}

impl Residence {
    fn repeat(&mut self, settings: &SuiteSettings) -> Outcome<()> {
        let mut sides = Vec::new();
        for beside in [false, true] {
            let held: Samples = samples();
            let server = Server::timed(settings.server_core, held.clone())?;
            let reader = LoadSpec {
                depth: 1,
                ramp_ns: 300_000_000,
                runtime_ns: settings.duration_ms * 1_000_000,
                ..LoadSpec::default()
            };
            let flood = LoadSpec {
                depth: 128,
                ramp_ns: 0,
                runtime_ns: settings.duration_ms * 1_000_000 + 400_000_000,
                ..LoadSpec::default()
            };
            // Both loads sleep when they wait: two that poll would take turns of milliseconds on their core.
            let outcome = std::thread::scope(|scope| {
                let reading =
                    scope.spawn(|| settings.load(&server, &server.null_endpoint(0), &reader, false));
                // The reader's connections are the server's first two; its ramp lasts until the neighbour is there.
                std::thread::sleep(Duration::from_millis(100));
                let flooding = beside
                    .then(|| scope.spawn(|| settings.load(&server, &server.null_endpoint(1), &flood, false)));
                std::thread::sleep(Duration::from_millis(150));
                held.lock().expect("nobody panics with it").reset();
                let reading = reading.join().expect("loads do not panic");
                let held = held.lock().expect("nobody panics with it").clone();
                let flooding = flooding.map(|one| one.join().expect("loads do not panic")).transpose()?;
                Outcome::Ok((reading?, held, flooding))
            })?;
            let (reading, held, flooding) = outcome;
            let seen = reading.report.read.ok_or("the reader read nothing")?;
            let us = |nanos: u64| nanos as f64 / 1e3;
            sides.push([
                held.mean() / 1e3,
                us(held.value_at_quantile(0.5)),
                us(held.value_at_quantile(0.99)),
                seen.p50_us,
            ]);
            self.neighbour.extend(flooding.map(|one| one.report.operations_per_second()));
            server.reactor.stop();
        }
        let (alone, beside) = (sides[0], sides[1]);
        for (at, list) in
            [&mut self.mean, &mut self.p50, &mut self.p99, &mut self.host_p50].into_iter().enumerate()
        {
            list.push((alone[at], beside[at]));
        }
        Ok(())
    }

    fn rows(&self) -> Vec<Row> {
        let what = "QD1 reader beside a QD128 neighbour: server residence";
        let mut rows = Vec::new();
        for (id, kind, list) in [
            ("d", "mean", &self.mean),
            ("d p50", "median", &self.p50),
            ("d p99", "99th percentile", &self.p99),
        ] {
            let mut row = Row::of(id, &format!("{what}, {kind}"), "us", list);
            row.target = (id != "d p99").then_some(Target::AtMost(3.0));
            rows.push(row);
        }
        let mut seen = Row::of("d host", "the same, seen by the reader, median", "us", &self.host_p50);
        seen.note = format!("neighbour {:.0} k/s; both loads share a core", median(&self.neighbour) / 1e3);
        rows.push(seen);
        rows
    }
}

/// Random overwrites of the whole volume before anything is measured: with the fill they touch all of the device's
/// memory, so that no page of it is new to the operating system any more.
const CONDITIONING_PASSES: u64 = 4;

/// Fills the volume once, in order, so that every read finds data, and overwrites it at random until all erase blocks
/// were in use and the cleaner works.
fn fill(settings: &SuiteSettings, server: &Server) -> Outcome<()> {
    let in_order = LoadSpec {
        block_bytes: 128 << 10,
        depth: 16,
        read_percent: 0,
        pattern: Pattern::Sequential,
        ramp_ns: 0,
        runtime_ns: 120_000_000_000,
        operations_max: STACK_BYTES / (128 << 10),
        ..LoadSpec::default()
    };
    let overwrite = LoadSpec {
        block_bytes: 4096,
        depth: 128,
        pattern: Pattern::Random,
        operations_max: CONDITIONING_PASSES * STACK_BYTES / 4096,
        ..in_order.clone()
    };
    for spec in [in_order, overwrite] {
        let filled = settings.load(server, &server.stack_endpoint(), &spec, false)?;
        let written = filled.report.write.map_or(0, |one| one.operations);
        if written != spec.operations_max {
            return Err("the volume was not filled in two minutes".into());
        }
    }
    Ok(())
}

/// Runs the suite; progress goes to `say`.
///
/// # Errors
/// What could not be measured, and why.
pub fn run(settings: &SuiteSettings, mut say: impl FnMut(&str)) -> Outcome<Suite> {
    if std::thread::available_parallelism()?.get() < 2 {
        return Err("server and load need a core each, and this machine has one".into());
    }
    let machine = machine();
    let mut disturbance = load_average().into_iter().collect::<Vec<_>>();
    let cases: Vec<&Case> = CASES.iter().filter(|case| settings.wants(case.id)).collect();
    let null = Server::null(settings.server_core)?;
    let instructions_missing = match null.instructions.as_ref() {
        Ok(_) => None,
        Err(error) => Some(format!("this machine gives no instruction counter ({error})")),
    };
    let stack = if cases.iter().any(|case| case.stack) {
        say("filling the volume of the whole stack");
        let server = Server::stack(settings.server_core).map_err(|error| error.to_string())?;
        fill(settings, &server)?;
        Some(server)
    } else {
        None
    };
    let read = CASES.iter().find(|case| case.id == "b read").expect("there is a row of reads");
    let mut far: Vec<(f64, f64)> = Vec::new();
    let mut gathered: Vec<Gathered> = cases.iter().map(|_| Gathered::default()).collect();
    let mut residence = settings.wants("d").then(Residence::default);
    for repetition in 0..settings.repetitions {
        say(&format!("repetition {} of {}", repetition + 1, settings.repetitions));
        for (case, gathered) in cases.iter().zip(&mut gathered) {
            let server = if case.stack { stack.as_ref().expect("started above") } else { &null };
            settings.repeat(case, server, gathered)?;
        }
        if settings.wants(FAR) || settings.wants(read.id) {
            let rate = |far_bytes| settings.raw(read, far_bytes).map(|raw| raw.operations_per_second);
            far.push((rate(0)?, rate(STACK_BYTES as usize)?));
        }
        if let Some(residence) = &mut residence {
            residence.repeat(settings)?;
        }
    }
    let mut rows = Vec::new();
    for (case, gathered) in cases.iter().zip(&gathered) {
        let mut row = Row::of(case.id, case.what, "k/s", &gathered.rates);
        row.target = case.target;
        row.system_calls = Some(std::array::from_fn(|at| {
            median(&gathered.calls.iter().map(|one| one[at]).collect::<Vec<_>>())
        }));
        row.instructions = (!gathered.instructions.is_empty()).then(|| median(&gathered.instructions));
        let (p50, p99): (Vec<f64>, Vec<f64>) = gathered.latency.iter().copied().unzip();
        row.note = format!("p50 {:.0} us, p99 {:.0} us", median(&p50), median(&p99));
        if case.id == "b write"
            && let Some(server) = &stack
        {
            row.note += &amplification(server)?;
        }
        if case.id == read.id {
            let ratios = gathered.rates.iter().zip(&far).map(|((_, ours), (_, far))| ours / far);
            row.note += &format!("; {:.2} of \"{FAR}\"", median(&ratios.collect::<Vec<_>>()));
        }
        rows.push(row);
    }
    if !far.is_empty() {
        let what = "the raw loop of reads itself, content copied from random places of 1 GiB, no checksum";
        rows.push(Row::of(FAR, what, "k/s", &far));
    }
    rows.extend(residence.iter().flat_map(Residence::rows));
    null.reactor.stop();
    if let Some(server) = stack {
        server.reactor.stop();
    }
    if settings.wants("h") {
        say("erase blocks for applications");
        rows.extend(super::blocks::rows(settings)?);
    }
    pin_this_thread(settings.server_core)?;
    if settings.wants("i") {
        say("i: what vSSDs cost above flash");
        rows.extend(super::maps::rows(settings)?);
    }
    if settings.wants("k") {
        say("k: writes through placement handles and to zones");
        rows.extend(super::contracts::rows(settings)?);
    }
    let drive_missing = match super::drive::rows(settings, &mut say) {
        Ok(more) => {
            rows.extend(more);
            None
        }
        // What was asked for by name must be there.
        Err(error) if settings.only.is_empty() => Some(error.to_string()),
        Err(error) => return Err(error),
    };
    let mut counting = Counting { missing: settings.uncounted.clone() };
    for row in &mut rows {
        counting.count(row, &mut say);
    }
    for child in children::CHILDREN.iter().filter(|child| settings.wants(child.id)) {
        if child.takes_long && settings.only.is_empty() {
            say(&format!("{}: takes many minutes and is left out; --only {} runs it", child.id, child.id));
            continue;
        }
        say(&format!("{}: {}", child.id, child.what));
        let mut row = child.run()?;
        counting.count_child(child, &mut row, &mut say);
        rows.push(row);
    }
    disturbance.dedup();
    Ok(Suite {
        machine,
        repetitions: settings.repetitions,
        instructions_missing,
        instructions_counted_missing: counting.missing,
        drive_missing,
        disturbance,
        rows,
    })
}

/// Counts instructions until that turns out not to work.
struct Counting {
    /// Why it does not.
    missing: Option<String>,
}

impl Counting {
    fn count(&mut self, row: &mut Row, say: &mut impl FnMut(&str)) {
        if self.missing.is_some() || !counted::COUNTED_ROWS.contains(&row.id) {
            return;
        }
        say(&format!("{}: counting instructions", row.id));
        match counted::rows::of_row(row.id) {
            Some(Ok(count)) => row.instructions_counted = Some(count),
            Some(Err(error)) => self.missing = Some(error.to_string()),
            None => {}
        }
    }

    fn count_child(&mut self, child: &children::Child, row: &mut Row, say: &mut impl FnMut(&str)) {
        if self.missing.is_none() {
            say(&format!("{}: counting instructions", child.id));
            self.missing = child.count(row).err().map(|error| error.to_string());
        }
    }
}

/// WAF of the whole stack so far, from its own counters.
fn amplification(server: &Server) -> Outcome<String> {
    let status = server.status()?;
    let vssd = status.vssds.first().ok_or("the vSSD is gone")?;
    let host = vssd.traffic.host_written_bytes.max(1) as f64;
    let [cleaner, metadata] = [vssd.traffic.programmed_cleaner_bytes, vssd.traffic.programmed_metadata_bytes]
        .map(|bytes| bytes as f64 / host);
    Ok(format!("; cleaner {cleaner:.2}, metadata {metadata:.2} of host writes since the start"))
}

fn read_line(path: &str, start: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(start))?;
    Some(line.rsplit_once(": ").map_or(line, |(_, value)| value).trim().to_owned())
}

fn machine() -> String {
    let processor =
        read_line("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let kernel = read_line("/proc/sys/kernel/osrelease", "").unwrap_or_else(|| "unknown".to_owned());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{processor}, {cores} cores, Linux {kernel}, loopback")
}

/// Others on the machine: ratios suffer when somebody takes one side's core.
fn load_average() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let minute: f64 = text.split_whitespace().next()?.parse().ok()?;
    (minute > 0.5).then(|| format!("the load average was {minute} at the start; run it on a machine at rest"))
}
