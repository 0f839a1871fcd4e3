//! The command line of the simulator: `diecut sim`, and the program `diecut-sim` with the same arguments.
//!
//! Results go to standard output, progress to standard error. A failing seed is printed first and last, with
//! the command that replays it.

mod openchannel_cli;
mod zones_cli;

use crate::bank::Entry;
use crate::generate::{Shape, generate};
use crate::guard::{Factory, cut_at_every_operation, run_guarded, run_twice};
use crate::mutants::{MUTANTS, Mutant, Verdict, hunt, model_mutants};
use crate::plan::Plan;
use crate::run::Outcome;
use crate::say;
use crate::set::{SetOptions, SetReport, run_set};
use crate::shrink::shrink;
use crate::systems;
use comfy_table::Table;
use diecut_units::{Span, marks};
use indicatif::{ProgressBar, ProgressStyle};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Arguments of `diecut sim`.
#[derive(Clone, Debug, clap::Args)]
pub struct SimArgs {
    /// Runs this seed.
    #[arg(long, conflicts_with_all = ["seeds", "mutants"])]
    pub seed: Option<u64>,
    /// Runs the seeds A..B (B not included); 0..50 if nothing says what to run, and 0..100 for --mutants.
    #[arg(long, value_name = "A..B", value_parser = parse_seeds)]
    pub seeds: Option<(u64, u64)>,
    /// System to run: `stack` (hosts, network, shard and an emulated device), `zones` (hosts of zoned namespaces on a shard), `open-channel` (a host of chunks on a shard), or `model` (a
    /// small one that keeps its promises).
    #[arg(long, default_value = "stack")]
    pub system: String,
    /// Uses at most this many steps of the plan; 0 for all of them.
    #[arg(long, default_value_t = 0)]
    pub ops: usize,
    /// Lets hosts' commands in through a door below the target, without a network.
    #[arg(long)]
    pub door: bool,
    /// Makes every server level wear, on one shard: blocks change places in almost every seed.
    #[arg(long)]
    pub exchanges: bool,
    /// Gives vSSDs reclaim unit handles: hosts choose one with each write, and look at what they are told of them.
    #[arg(long)]
    pub placement: bool,
    /// Puts vSSDs or volumes into QoS sets, often behind a shaper of the device, and changes sets.
    #[arg(long)]
    pub qos_sets: bool,
    /// Puts the shard over a drive that hides its flash (a file, a block device) instead of NAND: what is acknowledged and not flushed may
    /// be lost with a cut, any sector of it.
    #[arg(long, conflicts_with_all = ["exchanges", "placement", "no_protected_memory"])]
    pub drive: bool,
    /// Leaves out what makes seeds wide: restarts in a row, stores that become empty, thin volumes, weights, media without protected
    /// memory. Planted bugs that wide seeds do not meet are hunted with plain ones.
    #[arg(long)]
    pub plain: bool,
    /// Gives the medium no memory that survives a power cut.
    #[arg(long)]
    pub no_protected_memory: bool,
    /// Runs everything twice and compares trace and medium.
    #[arg(long)]
    pub twice: bool,
    /// Makes the failing plan of --seed small and prints it as JSON.
    #[arg(long, requires = "seed")]
    pub shrink: bool,
    /// Prints the plan of --seed as JSON and does not run it.
    #[arg(long, requires = "seed")]
    pub print_plan: bool,
    /// Cuts the power at every operation of the medium, each time in a run of its own (of the first --ops steps of --seed, or of each of
    /// --seeds).
    #[arg(long, conflicts_with_all = ["mutants", "twice", "shrink", "plan", "complete", "minutes", "json"])]
    pub every_cut: bool,
    /// Plants this bug (needs a build with the feature `mutants`).
    #[arg(long, value_name = "NAME")]
    pub mutant: Option<String>,
    /// Hunts every planted bug and prints which seed caught it.
    #[arg(long)]
    pub mutants: bool,
    /// Plays a plan (JSON) or a seed bank entry (TOML) from a file.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["seed", "seeds", "mutants", "door", "exchanges", "placement", "qos_sets", "drive", "plain", "no_protected_memory"]
    )]
    pub plan: Option<PathBuf>,
    /// Plays a run that `diecut serve --record` recorded and compares what it did: erase counts of all blocks, write
    /// amplification, operations and latencies must be the same.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "seed", "seeds", "mutants", "plan", "system", "ops", "door", "exchanges", "placement", "qos_sets", "drive", "plain", "no_protected_memory", "twice",
            "mutant", "threads"
        ]
    )]
    pub replay: Option<PathBuf>,
    /// Also runs the recorded commands freely, at their times; erases and write amplification must be within 1 %.
    #[arg(long, requires = "replay")]
    pub free: bool,
    /// Fails unless every seed had an overwrite of the device, a cleaner cycle, a cut and two tenants, and all listed
    /// coverage marks were hit (needs a build with the feature `marks`).
    #[arg(long, requires = "seeds")]
    pub complete: bool,
    /// Begins no further seed of --seeds after so many minutes of the real clock (0.5: half a minute), once --floor of them were begun.
    #[arg(long, requires = "seeds", conflicts_with = "mutants", value_parser = minutes)]
    pub minutes: Option<f64>,
    /// So many of --seeds run however long they take: a slow machine needs more minutes, and finds the same.
    #[arg(long, requires = "minutes", default_value_t = 1)]
    pub floor: u64,
    /// Threads for --seeds and for --mutants.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

impl SimArgs {
    /// How long further seeds are begun.
    fn time_limit(&self) -> Option<Duration> {
        self.minutes.map(|minutes| Duration::from_secs_f64(60.0 * minutes))
    }
}

/// From a hundredth of a minute to a month.
fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().ok().filter(|minutes| (0.01..=43_200.0).contains(minutes));
    minutes.ok_or_else(|| "a number of minutes, from 0.01 to 43200".to_owned())
}

fn parse_seeds(text: &str) -> Result<(u64, u64), String> {
    let (first, end) = text.split_once("..").ok_or("write A..B, as in 0..1000")?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is not a number"));
    let (first, end) = (number(first)?, number(end)?);
    if first < end { Ok((first, end)) } else { Err(format!("{first}..{end} is empty")) }
}

/// Runs the command; the exit code is a failure if anything was found (or a mutant escaped).
pub fn main(arguments: &SimArgs) -> ExitCode {
    match execute(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("diecut sim: {message}");
            ExitCode::from(2)
        }
    }
}

fn execute(arguments: &SimArgs) -> Result<bool, String> {
    if let Some(path) = &arguments.replay {
        return crate::replay_cli::run(path, arguments.free, arguments.json);
    }
    if arguments.system == "zones" {
        return Ok(zones_cli::run(arguments));
    }
    if arguments.system == "open-channel" {
        return Ok(openchannel_cli::run(arguments));
    }
    let known = || {
        format!(
            "no system {:?}; there are: {}, zones, open-channel",
            arguments.system,
            systems::NAMES.join(", ")
        )
    };
    let factory = systems::factory(&arguments.system).ok_or_else(known)?;
    if (arguments.mutants || arguments.mutant.is_some()) && !marks::plant_mutant(None) {
        return Err("this build carries no planted bugs; build with --features mutants".to_owned());
    }
    let mut shape = Shape { steps_max: arguments.ops, ..systems::shape(&arguments.system) };
    if arguments.plain {
        shape = plain(shape);
    }
    if arguments.no_protected_memory {
        shape.protected_memory = Some(false);
    }
    shape.hosts &= !arguments.door;
    shape.exchanges = arguments.exchanges;
    shape.placement = arguments.placement;
    shape.qos_sets = arguments.qos_sets;
    shape.drive = arguments.drive;
    shape.drives_max = if arguments.drive { DRIVES_MAX } else { shape.drives_max };
    if arguments.mutants {
        return Ok(hunt_all(arguments, &shape, &*factory));
    }
    if let (Some(seed), true) = (arguments.seed, arguments.print_plan) {
        say!("{}", serde_json::to_string(&generate(seed, &shape)).expect("plans are plain data"));
        return Ok(true);
    }
    if let Some(path) = &arguments.plan {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let plan = if path.extension().is_some_and(|extension| extension == "toml") {
            Entry::parse(&text).and_then(|entry| entry.plan()).map_err(|error| error.to_string())?
        } else {
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?
        };
        let mut plan: Plan = plan;
        if arguments.ops > 0 {
            plan.steps.truncate(arguments.ops);
        }
        return one(arguments, &plan, &*factory);
    }
    if arguments.every_cut {
        let seeds = arguments.seed.map(|seed| (seed, seed + 1)).or(arguments.seeds);
        let (first, end) = seeds.ok_or("--every-cut needs --seed N or --seeds A..B")?;
        return Ok(every_cut(arguments, first..end, &shape, &*factory));
    }
    match (arguments.seed, arguments.seeds) {
        (Some(seed), _) => one(arguments, &generate(seed, &shape), &*factory),
        (None, seeds) => {
            let (first, end) = seeds.unwrap_or(SEEDS_UNASKED);
            let hint = if seeds.is_none() { " (--seed N or --seeds A..B says which)" } else { "" };
            eprintln!("running seeds {first}..{end} on system {}{hint}", arguments.system);
            Ok(many(arguments, (first, end), &shape, &*factory))
        }
    }
}

/// What runs where nothing says what.
const SEEDS_UNASKED: (u64, u64) = (0, 50);

/// Drives of a server with `--drive`, at most.
pub const DRIVES_MAX: u16 = 4;

/// The shape without what makes its seeds wide.
fn plain(shape: Shape) -> Shape {
    Shape { wide: false, protected_memory: Shape::default().protected_memory, ..shape }
}

fn replay_command(arguments: &SimArgs, seed: u64) -> String {
    let mut command = format!("diecut sim --system {}", arguments.system);
    match &arguments.plan {
        Some(path) => command += &format!(" --plan {}", path.display()),
        None => command += &format!(" --seed {seed}"),
    }
    if arguments.ops > 0 {
        command += &format!(" --ops {}", arguments.ops);
    }
    if arguments.door {
        command += " --door";
    }
    if arguments.exchanges {
        command += " --exchanges";
    }
    if arguments.placement {
        command += " --placement";
    }
    if arguments.qos_sets {
        command += " --qos-sets";
    }
    if arguments.drive {
        command += " --drive";
    }
    if arguments.plain {
        command += " --plain";
    }
    if arguments.no_protected_memory {
        command += " --no-protected-memory";
    }
    if let Some(mutant) = &arguments.mutant {
        command += &format!(" --mutant {mutant:?}");
    }
    command
}

fn one(arguments: &SimArgs, plan: &Plan, factory: &dyn Factory) -> Result<bool, String> {
    let drives = match plan.system.drives.len() {
        0 => String::new(),
        1 => ", 1 drive".to_owned(),
        count => format!(", {count} drives"),
    };
    eprintln!("seed {}: {} steps, {} faults{drives}", plan.seed, plan.steps.len(), plan.faults.len());
    marks::plant_mutant(arguments.mutant.as_deref());
    let outcome = if arguments.twice { run_twice(plan, factory) } else { run_guarded(plan, factory) };
    let good = outcome.violations.is_empty();
    if arguments.json {
        say!("{}", serde_json::to_string_pretty(&outcome).expect("outcomes are plain data"));
    } else {
        say!(
            "seed {}: {} commands, {} cuts, {} deaths, {} connections lost, {} media operations in {} of \
             virtual time; trace {:016x}, image {:016x}",
            plan.seed,
            outcome.commands,
            outcome.power_cuts,
            outcome.process_deaths,
            outcome.connections_lost,
            outcome.media_operations,
            Span(outcome.virtual_time_ns),
            outcome.trace_hash,
            outcome.image_hash
        );
        print_violations(&outcome);
    }
    if arguments.shrink && !good {
        const RUNS_MAX: u32 = 3000;
        let bar = progress_bar(RUNS_MAX.into());
        let small = shrink(plan, factory, RUNS_MAX, |runs, best| {
            bar.set_position(runs.into());
            bar.set_message(format!("{} steps, {} faults", best.steps.len(), best.faults.len()));
        });
        bar.finish_and_clear();
        let small = small.ok_or("the failure did not repeat: not deterministic")?;
        eprintln!(
            "shrunk to {} steps and {} faults in {} runs:",
            small.plan.steps.len(),
            small.plan.faults.len(),
            small.runs
        );
        print_violations(&small.outcome);
        say!("{}", serde_json::to_string(&small.plan).expect("plans are plain data"));
    }
    marks::plant_mutant(None);
    if !good {
        say!("failed; replay: {}", replay_command(arguments, plan.seed));
    }
    Ok(good)
}

/// Cuts the power at every operation of each seed's plan.
fn every_cut(arguments: &SimArgs, seeds: Range<u64>, shape: &Shape, factory: &dyn Factory) -> bool {
    let bar = progress_bar(0);
    let (next, all_good, all_runs) = (AtomicU64::new(seeds.start), AtomicBool::new(true), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| {
                // Each thread plants its own.
                marks::plant_mutant(arguments.mutant.as_deref());
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let plan = generate(seed, shape);
                    let mut begun = false;
                    let (runs, failures) = cut_at_every_operation(&plan, factory, 1, |_, all| {
                        if !std::mem::replace(&mut begun, true) {
                            bar.inc_length(all);
                        }
                        bar.inc(1);
                    });
                    all_runs.fetch_add(runs, Ordering::Relaxed);
                    if failures.is_empty() {
                        continue;
                    }
                    all_good.store(false, Ordering::Relaxed);
                    bar.suspend(|| {
                        say!("seed {seed}: {runs} runs, {} failed", failures.len());
                        for (nth, outcome) in &failures {
                            match nth {
                                Some(nth) => say!("cut at operation {nth}:"),
                                None => say!("without a cut:"),
                            }
                            print_violations(outcome);
                        }
                        say!("replay: {} --every-cut", replay_command(arguments, seed));
                    });
                }
            });
        }
    });
    bar.finish_and_clear();
    let verdict = if all_good.load(Ordering::Relaxed) { "all good" } else { "some failed" };
    say!("{} runs, one power cut each: {verdict}", all_runs.load(Ordering::Relaxed));
    all_good.into_inner()
}

fn print_violations(outcome: &Outcome) {
    for violation in outcome.violations.iter().take(10) {
        say!("  {violation}");
    }
}

fn progress_bar(length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg} {eta}").expect("a fixed template");
    ProgressBar::new(length).with_style(style)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a budget of the real clock says how many seeds run, not what they do"
)]
fn many(arguments: &SimArgs, seeds: (u64, u64), shape: &Shape, factory: &dyn Factory) -> bool {
    let options = SetOptions {
        threads: arguments.threads,
        twice: arguments.twice,
        mutant: arguments.mutant.clone(),
        deadline: arguments.time_limit().map(|limit| Instant::now() + limit),
        floor: arguments.floor,
        ..SetOptions::default()
    };
    let bar = progress_bar(seeds.1 - seeds.0);
    let report = run_set(seeds.0..seeds.1, shape, factory, &options, |seed, outcome| {
        bar.inc(1);
        if let Some(violation) = outcome.violations.first() {
            bar.suspend(|| {
                eprintln!("seed {seed} failed: {violation}\nreplay: {}", replay_command(arguments, seed));
            });
        }
    });
    bar.finish_and_clear();
    if arguments.json {
        say!("{}", serde_json::to_string_pretty(&report).expect("reports are plain data"));
    } else {
        print_report(arguments, &report);
    }
    if let Some(minutes) = arguments.minutes {
        let floor = arguments.floor;
        say!(
            "{} seeds ran: the first {floor} in any case, further ones within {minutes} minutes",
            report.seeds
        );
    }
    if !arguments.complete {
        return report.failures.is_empty();
    }
    let shortcomings = crate::complete::shortcomings(&report);
    for line in &shortcomings {
        say!("{line}");
    }
    say!(
        "{} of {} seeds have an overwrite of the device, a cleaner cycle, a cut and two tenants",
        report.seeds - report.lacking.len() as u64,
        report.seeds
    );
    report.failures.is_empty() && shortcomings.is_empty()
}

fn print_report(arguments: &SimArgs, report: &SetReport) {
    if let Some((seed, _)) = report.failures.first() {
        say!("first failing seed: {seed}; replay: {}", replay_command(arguments, *seed));
    }
    say!(
        "{} seeds on system {}: {} failed; {} commands, {} power cuts, {} process deaths, {} connections lost, \
         {} administrators' requests, {} media operations, {} of virtual time; shares compared {} times, the worst {} \
         per mille",
        report.seeds,
        arguments.system,
        report.failures.len(),
        report.commands,
        report.power_cuts,
        report.process_deaths,
        report.connections_lost,
        report.changes,
        report.media_operations,
        Span(report.virtual_time_ns),
        report.shares.0,
        report.shares.1
    );
    let exchanges = report.exchanges;
    say!(
        "even wear: in {} seeds blocks changed places, {} of them with cuts or deaths in between; {} blocks, {} exchanges of dies",
        exchanges.seeds,
        exchanges.seeds_with_faults,
        exchanges.moved_blocks,
        exchanges.finished
    );
    if !report.marks.is_empty() {
        let mut table = Table::new();
        table.set_header(["coverage mark", "seeds", "hits"]);
        for (name, (seeds, hits)) in &report.marks {
            table.add_row([(*name).to_owned(), seeds.to_string(), hits.to_string()]);
        }
        say!("{table}");
    }
    for (seed, outcome) in &report.failures {
        say!("seed {seed}:");
        print_violations(outcome);
    }
    if let Some((seed, _)) = report.failures.first() {
        say!("first failing seed: {seed}; replay: {}", replay_command(arguments, *seed));
    }
}

fn hunt_all(arguments: &SimArgs, shape: &Shape, factory: &dyn Factory) -> bool {
    let (first, end) = arguments.seeds.unwrap_or((0, 100));
    let mutants: Vec<Mutant> = if arguments.system == "model" {
        model_mutants()
    } else {
        let system = if shape.drive { "drive" } else { arguments.system.as_str() };
        MUTANTS.iter().filter(|mutant| mutant.system == system).copied().collect()
    };
    let bar = progress_bar(mutants.len() as u64);
    // Each thread plants its own; which of them hunts what does not matter.
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    bar.set_message(mutant.name);
                    let mut verdict = hunt(mutant, first..end, shape, factory);
                    if verdict.caught.is_none() && shape.wide {
                        let again = hunt(mutant, first..end, &plain(shape.clone()), factory);
                        let (seeds, reached) =
                            (verdict.seeds + again.seeds, verdict.reached || again.reached);
                        verdict = Verdict { seeds, reached, is_plain: true, ..again };
                    }
                    found.lock().expect("no thread panics with it").push(verdict);
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut verdicts: Vec<Verdict> = found.into_inner().expect("no thread panicked");
    verdicts.sort_by_key(|verdict| mutants.iter().position(|mutant| mutant.name == verdict.name));
    if arguments.json {
        say!("{}", serde_json::to_string_pretty(&verdicts).expect("verdicts are plain data"));
    } else {
        let mut table = Table::new();
        table.set_header(["mutant", "caught by seed", "as", "seeds tried", "reached"]);
        for verdict in &verdicts {
            let (seed, finding) = match verdict.caught {
                Some((seed, finding)) => {
                    let plain = if verdict.is_plain { " --plain" } else { "" };
                    (format!("{seed}{plain}"), format!("{finding:?}"))
                }
                None => ("NOT CAUGHT".to_owned(), String::new()),
            };
            let reached = if verdict.reached { "yes" } else { "no" };
            table.add_row([
                verdict.name.to_owned(),
                seed,
                finding,
                verdict.seeds.to_string(),
                reached.to_owned(),
            ]);
        }
        say!("{table}");
    }
    verdicts.iter().all(|verdict| verdict.caught.is_some())
}
