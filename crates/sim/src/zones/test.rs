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
            && all.copied_ius > 1000
            && all.commits.iter().all(|count| *count > 100),
        "{all:?}"
    );
    #[cfg(feature = "marks")]
    {
        let hits = diecut_units::marks::take_hits();
        let copied = hits.get("zoned: a die copies a program unit").copied().unwrap_or(0);
        assert!(copied > 50 && hits.get("vssd: a die copies for a holder") == Some(&copied), "{hits:?}");
    }
}

/// Goal: seeds see what goes wrong with what dies copy. Method: as the next one.
#[test]
#[cfg(feature = "mutants")]
fn planted_bugs_of_copies_within_dies_are_noticed() {
    for name in [
        "zoned: marks of a die's copy have the place of its source",
        "zoned: marks of a die's copy have no checksums",
        "zoned: a die copies from the place that it copies to",
    ] {
        is_noticed(name);
    }
}

#[cfg(feature = "mutants")]
fn is_noticed(name: &str) {
    use diecut_units::marks::{mutant_reached_count, plant_mutant};
    assert!(plant_mutant(Some(name)));
    let noticed = (0..40).any(|seed| run(seed, 5).is_err());
    let reached = mutant_reached_count();
    plant_mutant(None);
    assert!(reached > 0 && noticed, "{name}");
}

/// Goal: the host of random write areas sees what it is there for. Method: one bug at a time, over seeds until it is seen.
#[test]
#[cfg(feature = "mutants")]
fn planted_bugs_of_random_write_areas_are_noticed() {
    for name in [
        "zoned: a restart forgets random write areas",
        "zoned: a commit is not written down",
        "zoned: a write beyond its area commits nothing",
        "zoned: what lies in a random write area counts as written",
    ] {
        is_noticed(name);
    }
}
