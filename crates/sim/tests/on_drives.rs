//! Goal: over drives that hide their flash the whole stack keeps what hosts were promised: what a flush or FUA covered is there after any cut,
//! what a start found stays, nothing is torn, old or another's, and a drive that goes, or is missing, is felt by those on it only. Method: generated
//! plans of the whole stack with hosts, administrators, faults, cuts at any command of any drive and restarts, over models of one to four drives, the
//! cache of each of which loses any subset of sectors.

use diecut_sim::cli::DRIVES_MAX;
use diecut_sim::generate::{Shape, generate};
use diecut_sim::guard::{cut_at_every_operation, run_guarded, run_twice};
use diecut_sim::plan::Plan;
use diecut_sim::run::Outcome;
use diecut_sim::systems;
use diecut_testing::depth::depth;

fn plan(seed: u64, steps_max: usize) -> Plan {
    let shape = Shape { drive: true, drives_max: DRIVES_MAX, steps_max, ..systems::shape("stack") };
    generate(seed, &shape)
}

fn run(seed: u64) -> Outcome {
    run_guarded(&plan(seed, 0), &*systems::factory("stack").expect("a known system"))
}

#[test]
fn what_hosts_were_promised_is_kept_on_a_drive() {
    let (mut commands, mut cuts, mut changes, mut cleaned_ius) = (0, 0, 0, 0);
    for seed in 0..depth(10, 1000) {
        let outcome = run(seed);
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        commands += outcome.commands;
        cuts += outcome.power_cuts;
        changes += outcome.changes;
        cleaned_ius += outcome.wear.expect("a drive tells").cleaned_ius;
    }
    assert!(commands > 20_000 && cuts > 50 && changes > 100 && cleaned_ius > 500);
}

/// Goal: the same of several shards that divide several drives: in each life another number of them, with moves in between.
#[test]
fn what_hosts_were_promised_is_kept_by_shards_that_divide_drives() {
    let is_divided = |seed: &u64| {
        let system = plan(*seed, 0).system;
        system.drives.len() > 1 && system.shards.iter().any(|shards| *shards > 1)
    };
    let (mut commands, mut cuts, mut changes) = (0, 0, 0);
    for seed in (100..).filter(is_divided).take(depth(6, 500) as usize) {
        let outcome = run(seed);
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        commands += outcome.commands;
        cuts += outcome.power_cuts;
        changes += outcome.changes;
    }
    assert!(
        commands > 20_000 && cuts > 20 && changes > 60,
        "{commands} commands, {cuts} cuts, {changes} changes"
    );
}

/// Goal: the same while drives are added to the pool, emptied and taken out of it, with cuts between any two labels.
#[test]
fn what_hosts_were_promised_is_kept_while_drives_come_and_leave() {
    let comes = |seed: &u64| !plan(*seed, 0).turns().is_empty();
    let (mut commands, mut cuts, mut turns) = (0, 0, 0);
    for seed in (300..).filter(comes).take(depth(6, 500) as usize) {
        let outcome = run(seed);
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        commands += outcome.commands;
        cuts += outcome.power_cuts;
        let ended = ["roster: a drive came", "roster: a drive left", "roster: a drive was emptied"];
        turns += ended.iter().filter_map(|mark| outcome.marks.get(mark)).sum::<u64>();
    }
    assert!(commands > 20_000 && cuts > 10, "{commands} commands, {cuts} cuts");
    assert!(turns > 6 || cfg!(not(feature = "marks")), "{turns} turns of drives came to their end");
}

#[test]
fn a_run_on_a_drive_is_the_same_twice() {
    for seed in 3..depth(5, 20) {
        let outcome = run_twice(&plan(seed, 0), &*systems::factory("stack").expect("a known system"));
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
    }
}

#[test]
fn a_cut_at_every_command_of_a_drive_is_survived() {
    let factory = systems::factory("stack").expect("a known system");
    for seed in 1..depth(2, 20) {
        let (runs, failures) = cut_at_every_operation(&plan(seed, 3), &*factory, 3, |_, _| {});
        let found: Vec<_> = failures.iter().map(|(nth, outcome)| (nth, &outcome.violations)).collect();
        assert!(found.is_empty(), "seed {seed}, cuts at commands of the drive: {found:#?}");
        assert!(runs > 30, "seed {seed}: {runs} runs");
    }
}
