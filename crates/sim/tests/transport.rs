//! Goal: the shipped target keeps every promise to hosts whose streams are cut, delayed and lost.
//! Method: seeds against the target in virtual time; a store with delays behind it.

use diecut_sim::generate::{Shape, generate};
use diecut_sim::guard::run_twice;
use diecut_sim::systems::factory;

#[test]
fn forty_seeds_are_clean_and_run_the_same_twice() {
    let factory = factory("transport").expect("known");
    let shape = Shape { volume_ius: 512, ..Shape::default() };
    let (mut lost, mut crashes) = (0, 0);
    for seed in 0..40 {
        let outcome = run_twice(&generate(seed, &shape), &*factory);
        assert_eq!(outcome.violations, [], "seed {seed}");
        lost += outcome.connections_lost;
        crashes += outcome.power_cuts + outcome.process_deaths;
    }
    assert!(lost > 40 && crashes > 80, "{lost} connections lost, {crashes} crashes");
}
