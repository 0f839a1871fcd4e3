//! Goal: a shard that fails an inner check in the midst of load loses nothing that was acknowledged, however many shards there are and
//! whatever else goes wrong. One that is not the first begins again by itself, whatever administrators, moves and even wear do at that
//! time. Method: generated plans of the whole stack in virtual time, in each life of the server a check that fails at a command of its own on
//! each shard, and the oracle looks at every block.
#![cfg(debug_assertions)]

use diecut_sim::generate::generate;
use diecut_sim::guard::run_guarded;
use diecut_sim::systems;
use diecut_testing::depth::depth;

#[test]
fn nothing_acknowledged_is_lost_when_shards_fail_under_load() {
    let factory = systems::factory("stack").expect("a known system");
    let shape = systems::shape("stack");
    let (mut failed, mut alone) = (0, 0);
    for seed in 0..depth(12, 24) {
        let mut plan = generate(seed, &shape);
        plan.system.panics_at = vec![3 + seed * 7, 40 + seed, 11];
        let outcome = run_guarded(&plan, &*factory);
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        failed += outcome.panics[0];
        alone += outcome.panics[1];
    }
    assert!(
        failed >= depth(10, 20) && alone >= depth(1, 2),
        "{failed} failures, {alone} shards that went on alone"
    );
}

/// Goal: the same where each plan has several shards, and nothing but hosts, administrators and even wear.
#[test]
fn members_that_fail_under_load_go_on_alone() {
    let factory = systems::factory("stack").expect("a known system");
    let shape = systems::shape("stack");
    let (mut alone, mut plans) = (0, 0);
    for seed in 100..depth(190, 400) {
        let mut plan = generate(seed, &shape);
        if !plan.system.shards.iter().any(|count| *count > 1) || !plan.applications.is_empty() {
            continue;
        }
        plans += 1;
        plan.system.panics_at = vec![20 + seed % 90, 10 + seed % 40, 30];
        let outcome = run_guarded(&plan, &*factory);
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        alone += outcome.panics[1];
    }
    assert!(
        plans >= depth(5, 20) && alone >= depth(5, 20),
        "{plans} plans, {alone} shards that went on alone"
    );
}
