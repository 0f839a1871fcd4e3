//! Goal: a shard that fails an inner check in the midst of load loses nothing that was acknowledged, however many shards there are and
//! whatever else goes wrong. Method: generated plans of the whole stack in virtual time, in each life of the server a check that fails
//! at a command of its own; all shards begin anew on the device as after the death of the process, and the oracle looks at every block.
#![cfg(debug_assertions)]

use diecut_sim::generate::generate;
use diecut_sim::guard::run_guarded;
use diecut_sim::systems;

#[test]
fn nothing_acknowledged_is_lost_when_shards_fail_under_load() {
    let factory = systems::factory("stack").expect("a known system");
    let shape = systems::shape("stack");
    let (mut failed, mut several) = (0, 0);
    for seed in 0..24 {
        let mut plan = generate(seed, &shape);
        plan.system.panics_at = vec![3 + seed * 7, 40 + seed, 11];
        let outcome = run_guarded(&plan, &*factory);
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        let times = outcome.panics;
        failed += times;
        several += u64::from(times > 0 && plan.system.shards.iter().any(|count| *count > 1));
    }
    assert!(failed >= 20 && several >= 3, "{failed} failures, {several} seeds with several shards");
}
