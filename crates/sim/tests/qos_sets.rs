//! Goal: QoS sets give nobody more than they say, and hold nobody up who keeps to his rate, whatever goes wrong and whatever administrators change;
//! what they are survives restarts. Method: generated plans of the whole stack with sets, counted by what hosts asked and were answered alone.

use diecut_sim::generate::{Shape, generate};
use diecut_sim::guard::run_guarded;
use diecut_sim::run::{Outcome, QosLooks};
use diecut_sim::systems;

fn run(seed: u64) -> Outcome {
    let shape = Shape { qos_sets: true, ..systems::shape("stack") };
    run_guarded(&generate(seed, &shape), &*systems::factory("stack").expect("a known system"))
}

#[test]
fn sets_are_what_they_say() {
    let mut all = QosLooks::default();
    for seed in 0..8 {
        let Outcome { violations, qos, .. } = run(seed);
        assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
        all.counted += qos.counted;
        all.counted_of_device += qos.counted_of_device;
        all.modest += qos.modest;
        all.fullest_permille = all.fullest_permille.max(qos.fullest_permille);
    }
    assert!(all.counted > 10_000 && all.counted_of_device > 10_000, "{all:?}");
    assert!(all.modest > 60 && all.fullest_permille > 800, "{all:?}");
}

/// Goal: seeds see what goes wrong with sets. Method: one bug at a time, over seeds until it is seen, the one first that saw it when the list
/// was made.
#[test]
#[cfg(feature = "mutants")]
fn planted_bugs_of_sets_are_noticed() {
    use diecut_units::marks::{mutant_reached_count, plant_mutant};
    for (name, first) in [
        ("shard: a QoS set that was changed has a full bucket", 0),
        ("shard: a grant takes no tokens of its QoS set", 0),
        ("shard: a grant takes no tokens of the device", 2),
        ("shard: each shard has all of a QoS set", 5),
        ("shard: the second rate of a QoS set has no end", 1),
        ("shard: the second state of a QoS set uses its tokens", 1),
        ("shard: what opens at a start is in no QoS set", 0),
        ("shard: who is in the second state goes first", 17),
        ("shard: commands do not wait for what a repair finds", 57),
    ] {
        assert!(plant_mutant(Some(name)));
        let noticed = (first..60).chain(0..first).find(|seed| !run(*seed).violations.is_empty());
        let reached = mutant_reached_count();
        plant_mutant(None);
        assert!(reached > 0 && noticed.is_some(), "{name}");
        println!("{name}: seed {}", noticed.unwrap_or_default());
    }
}
