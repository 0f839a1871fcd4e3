use super::run;

/// Goal: hosts of zones get what zones promise through the whole shard, and their neighbour notices nothing. Method: seeds with deaths of the
/// process, power cuts, programs that fail and pages that are lost; write pointers and content are compared after each.
#[test]
fn zones_keep_what_they_promise() {
    let mut all = super::Figures::default();
    for seed in 0..30 {
        let figures = run(seed, 5).unwrap_or_else(|error| panic!("{error}"));
        all += figures;
    }
    assert!(
        all.commands > 1000
            && all.resets > 50
            && all.restarts.iter().all(|count| *count > 20)
            && all.lost_pages > 5
            && all.commits.iter().all(|count| *count > 100),
        "{all:?}"
    );
}

/// Goal: the host of random write areas sees what it is there for. Method: one bug at a time, over seeds until it is seen.
#[test]
#[cfg(feature = "mutants")]
fn planted_bugs_of_random_write_areas_are_noticed() {
    use diecut_units::marks::{mutant_reached_count, plant_mutant};
    for name in [
        "zoned: a restart forgets random write areas",
        "zoned: a commit is not written down",
        "zoned: a write beyond its area commits nothing",
        "zoned: what lies in a random write area counts as written",
    ] {
        assert!(plant_mutant(Some(name)));
        let noticed = (0..40).any(|seed| run(seed, 5).is_err());
        let reached = mutant_reached_count();
        plant_mutant(None);
        assert!(reached > 0 && noticed, "{name}");
    }
}
