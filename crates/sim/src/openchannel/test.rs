use super::run;

/// Goal: a host of chunks gets what chunks promise through the whole shard. Method: seeds with deaths of the process, power cuts, programs
/// and erases that fail; write pointers and content are compared after each.
#[test]
fn chunks_keep_what_they_promise() {
    let mut all = super::Figures::default();
    for seed in 0..30 {
        all += run(seed, 5).unwrap_or_else(|error| panic!("{error}"));
    }
    let is_much = all.commands > 1000 && all.resets > 50 && all.early_closes > 0;
    assert!(all.partly_written > 0 && all.listed.iter().all(|count| *count > 200), "{all:?}");
    assert!(all.strained > 50, "{all:?}");
    assert!(is_much && all.restarts.iter().all(|count| *count > 20), "{all:?}");
}

/// Goal: the host of chunks sees what it is there for. Method: one bug at a time, over seeds until it is seen.
#[test]
#[cfg(feature = "mutants")]
fn planted_bugs_of_chunks_are_noticed() {
    use diecut_units::marks::{mutant_reached_count, plant_mutant};
    for name in [
        "openchannel: a chunk stays open after a failed program",
        "openchannel: a reset is answered before it is durable",
        "openchannel: a torn row counts",
        "openchannel: what failed has no bit",
    ] {
        assert!(plant_mutant(Some(name)));
        let noticed = (0..100).any(|seed| run(seed, 5).is_err());
        let reached = mutant_reached_count();
        plant_mutant(None);
        assert!(reached > 0 && noticed, "{name}");
    }
}
