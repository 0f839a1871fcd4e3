//! Goal: what hosts write to reclaim unit handles lies where it was written to, what they are told of it is so, and a store with handles comes to
//! rest, whatever goes wrong. Method: generated plans of the whole stack in which each vSSD has handles, with faults, cuts and restarts.

use diecut_sim::generate::{Shape, generate};
use diecut_sim::guard::run_guarded;
use diecut_sim::plan::FaultKind;
use diecut_sim::run::{Outcome, PlacementLooks};
use diecut_sim::systems;

fn run(seed: u64) -> Outcome {
    let shape = Shape { placement: true, ..systems::shape("stack") };
    let mut plan = generate(seed, &shape);
    if seed.is_multiple_of(2) {
        // What follows a failed program never reaches the chip, and what is written to media is not compared with it then.
        let fails = |what| matches!(what, FaultKind::ProgramFailure { .. } | FaultKind::EraseFailure { .. });
        plan.faults.retain(|fault| !fails(fault.what));
    }
    run_guarded(&plan, &*systems::factory("stack").expect("a known system"))
}

#[test]
fn hosts_with_handles_are_told_what_is_so() {
    let mut all = PlacementLooks::default();
    for seed in 0..12 {
        let Outcome { violations, placement, .. } = run(seed);
        assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
        all.placed_ius += placement.placed_ius;
        all.grouped_ius += placement.grouped_ius;
        all.isolated_copies_ius += placement.isolated_copies_ius;
        all.counted += placement.counted;
        all.measured += placement.measured;
    }
    assert!(all.placed_ius > 10_000 && all.isolated_copies_ius > 100, "{all:?}");
    assert!(all.grouped_ius > 1_000, "{all:?}");
    assert!(all.counted > 8 && all.measured > 2, "{all:?}");
}

/// Goal: what once looked like a bug of handles and was one of the plan or of its checker does not come back. 72 and 147: shares of
/// cores are compared where a store was the narrow place. 150 and 207: writes of a comparison that name no handle. 152 and 195: vSSDs too small for
/// three handles that are isolated for good. Method: these seeds.
#[test]
fn seeds_that_failed_stay_whole() {
    let shape = Shape { placement: true, ..systems::shape("stack") };
    for seed in [72, 147, 150, 152, 195, 207] {
        let outcome =
            run_guarded(&generate(seed, &shape), &*systems::factory("stack").expect("a known system"));
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        assert!(outcome.placement.placed_ius > 0, "seed {seed} looked at nothing");
    }
}

/// Goal: seeds see what goes wrong with handles. Method: one bug at a time, over seeds until it is seen.
#[test]
#[cfg(feature = "mutants")]
fn planted_bugs_of_handles_are_noticed() {
    use diecut_units::marks::{mutant_reached_count, plant_mutant};
    for name in [
        "log: cleaning without an end",
        "log: copies leave their reclaim group",
        "log: copies of isolated handles mix",
        "log: staged chunks lose their handle",
        "log: staged data take nothing of their reclaim unit",
        "nvmf: directives are not looked at",
        "volume: the first block of a write is not counted",
    ] {
        assert!(plant_mutant(Some(name)));
        let noticed = (0..12).any(|seed| !run(seed).violations.is_empty());
        let reached = mutant_reached_count();
        plant_mutant(None);
        assert!(reached > 0 && noticed, "{name}");
    }
}
