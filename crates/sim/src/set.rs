//! Many seeds, on some threads; each run stays on one. Results arrive in the order of seeds, whatever thread was
//! faster.

use crate::complete::lacks;
use crate::generate::{Shape, generate};
use crate::guard::{Factory, run_guarded, run_twice};
use crate::run::Outcome;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

/// What a set of seeds showed.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct SetReport {
    /// Seeds that were run.
    pub seeds: u64,
    /// Seeds that found something, with their outcomes, lowest first.
    pub failures: Vec<(u64, Outcome)>,
    /// Sums over all runs.
    pub commands: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// Process deaths.
    pub process_deaths: u64,
    /// Connections lost.
    pub connections_lost: u64,
    /// Operations of the medium.
    pub media_operations: u64,
    /// Virtual nanoseconds.
    pub virtual_time_ns: u64,
    /// Administrators' requests.
    pub changes: u64,
    /// Seeds that do not count, and what they lack ([`crate::complete`]).
    pub lacking: Vec<(u64, Vec<&'static str>)>,
    /// Even wear.
    pub exchanges: Exchanges,
    /// Comparisons of shares, and the worst of them in parts per thousand.
    pub shares: (u64, u64),
    /// Coverage marks: name -> (runs that hit it, hits).
    pub marks: BTreeMap<&'static str, (u64, u64)>,
}

/// What was exchanged for even wear over a set.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Exchanges {
    /// Seeds in which blocks changed places.
    pub seeds: u64,
    /// Those of them in which power or process went while hosts were at work.
    pub seeds_with_faults: u64,
    /// Blocks that changed places.
    pub moved_blocks: u64,
    /// Exchanges of dies that came to their end.
    pub finished: u64,
}

/// How a set is run.
#[derive(Clone, Debug)]
pub struct SetOptions {
    /// Threads, at least 1.
    pub threads: usize,
    /// Runs every seed twice and compares.
    pub twice: bool,
    /// Stops after this many failing seeds.
    pub failures_max: usize,
    /// A planted bug for every run, by name.
    pub mutant: Option<String>,
    /// No further seed is begun then, if `floor` of them were.
    pub deadline: Option<Instant>,
    /// So many seeds are begun whatever the clock says: what a set finds must not depend on how busy the machine is.
    pub floor: u64,
}

impl Default for SetOptions {
    fn default() -> SetOptions {
        SetOptions { threads: 1, twice: false, failures_max: 5, mutant: None, deadline: None, floor: 0 }
    }
}

impl SetOptions {
    #[expect(
        clippy::disallowed_methods,
        reason = "how many seeds run may depend on the real clock; what they do does not"
    )]
    fn is_over(&self, begun: u64) -> bool {
        begun >= self.floor && self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Runs one seed with the options of a set.
pub fn run_seed(seed: u64, shape: &Shape, factory: &dyn Factory, options: &SetOptions) -> Outcome {
    diecut_units::marks::plant_mutant(options.mutant.as_deref());
    let plan = generate(seed, shape);
    let mut outcome = if options.twice { run_twice(&plan, factory) } else { run_guarded(&plan, factory) };
    outcome.lacks = lacks(&plan, &outcome);
    diecut_units::marks::plant_mutant(None);
    outcome
}

/// Runs seeds; `progress` hears of each in their order.
pub fn run_set(
    seeds: Range<u64>,
    shape: &Shape,
    factory: &dyn Factory,
    options: &SetOptions,
    mut progress: impl FnMut(u64, &Outcome),
) -> SetReport {
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let mut report = SetReport::default();
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..options.threads.max(1) {
            let sender = sender.clone();
            let (next, stop, start, end) = (&next, &stop, seeds.start, seeds.end);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) && !options.is_over(next.load(Ordering::Relaxed) - start)
                {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || sender.send((seed, run_seed(seed, shape, factory, options))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut waiting = BTreeMap::new();
        let mut due = seeds.start;
        for (seed, outcome) in receiver {
            waiting.insert(seed, outcome);
            while let Some(outcome) = waiting.remove(&due) {
                if !stop.load(Ordering::Relaxed) {
                    progress(due, &outcome);
                    report.add(due, outcome);
                }
                due += 1;
                if report.failures.len() >= options.failures_max {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        }
    });
    report
}

impl SetReport {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.seeds += 1;
        self.commands += outcome.commands;
        self.power_cuts += outcome.power_cuts;
        self.process_deaths += outcome.process_deaths;
        self.connections_lost += outcome.connections_lost;
        self.media_operations += outcome.media_operations;
        self.virtual_time_ns += outcome.virtual_time_ns;
        self.changes += outcome.changes;
        if let Some(wear) = outcome.wear.filter(|wear| wear.moved_blocks > 0) {
            self.exchanges.seeds += 1;
            self.exchanges.seeds_with_faults += u64::from(outcome.power_cuts + outcome.process_deaths > 1);
            self.exchanges.moved_blocks += wear.moved_blocks;
            self.exchanges.finished += wear.exchanges;
        }
        if let Some(share) = outcome.least_share_permille {
            let worst = if self.shares.0 == 0 { share } else { self.shares.1.min(share) };
            self.shares = (self.shares.0 + 1, worst);
        }
        if !outcome.lacks.is_empty() {
            self.lacking.push((seed, outcome.lacks.clone()));
        }
        for (name, hits) in &outcome.marks {
            let entry = self.marks.entry(name).or_default();
            entry.0 += 1;
            entry.1 += hits;
        }
        if !outcome.violations.is_empty() {
            self.failures.push((seed, outcome));
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::model::{Model, ModelBug};
    use crate::plan::Plan;
    use crate::system::System;

    #[test]
    fn threads_change_nothing_but_the_time() {
        let factory =
            |plan: &Plan| Ok(Box::new(Model::new(plan, ModelBug::LosesTailAtDeath)) as Box<dyn System>);
        let shape = Shape { volume_ius: 128, ..Shape::default() };
        let run = |threads| {
            let options = SetOptions { threads, ..SetOptions::default() };
            let mut order = Vec::new();
            let report = run_set(0..40, &shape, &factory, &options, |seed, _| order.push(seed));
            assert!(order.is_sorted());
            let failed: Vec<u64> = report.failures.iter().map(|(seed, _)| *seed).collect();
            (report.seeds, report.commands, failed)
        };
        assert_eq!(run(1), run(2));
        assert!(!run(1).2.is_empty());
    }

    /// Goal: a busy machine finds what a calm one does. Method: the time is over before the first seed.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the deadline is one of the real clock")]
    fn seeds_of_the_floor_run_after_the_deadline() {
        let factory = |plan: &Plan| Ok(Box::new(Model::new(plan, ModelBug::None)) as Box<dyn System>);
        let shape = Shape { volume_ius: 128, ..Shape::default() };
        for (floor, expected) in [(0, 0), (5, 5), (40, 20)] {
            let options = SetOptions { deadline: Some(Instant::now()), floor, ..SetOptions::default() };
            assert_eq!(run_set(100..120, &shape, &factory, &options, |_, _| ()).seeds, expected);
        }
    }
}
