//! Goal: a power cut at any operation of the medium is survived, also during administrators' requests, and when nobody asks for
//! anything any more and the system comes to rest. Method: the first steps of generated plans with administrators, once for each
//! operation that the medium carries out, with a cut there.

use diecut_sim::administration::Change;
use diecut_sim::generate::{Shape, generate};
use diecut_sim::guard::cut_at_every_operation;
use diecut_sim::plan::Action;
use diecut_sim::systems;
use diecut_testing::depth::depth;

#[test]
fn a_power_cut_at_every_operation_is_survived() {
    let factory = systems::factory("stack").expect("a known system");
    let shape = Shape { steps_max: 3, ..systems::shape("stack") };
    // The simulator does this with more seeds (`diecut-sim --every-cut`).
    for seed in 1..depth(2, 4) {
        let plan = generate(seed, &shape);
        let is_change = |change: &Change| !matches!(change, Change::Repair { .. });
        let changes =
            plan.steps.iter().filter(|s| matches!(&s.action, Action::Change(change) if is_change(change)));
        assert!(changes.count() >= 2, "seed {seed} has an administrator");
        let (runs, failures) = cut_at_every_operation(&plan, &*factory, 1, |_, _| {});
        let found: Vec<_> = failures.iter().map(|(nth, outcome)| (nth, &outcome.violations)).collect();
        assert!(found.is_empty(), "seed {seed}, cuts at operations of the medium: {found:#?}");
        assert!(runs > 30, "seed {seed}: {runs} runs");
    }
}
