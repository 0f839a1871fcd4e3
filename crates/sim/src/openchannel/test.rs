use super::run;

/// Goal: a host of chunks gets what chunks promise through the whole shard. Method: seeds with deaths of the process, power cuts, programs
/// and erases that fail; write pointers and content are compared after each. Another host is told of chunks that are hard to read, and
/// sanitizes.
#[test]
fn chunks_keep_what_they_promise() {
    let mut all = super::Figures::default();
    for seed in 0..30 {
        all += run(seed, 5).unwrap_or_else(|error| panic!("{error}"));
    }
    let is_much = all.commands > 1000 && all.resets > 50 && all.early_closes > 0;
    assert!(all.partly_written > 0 && all.listed.iter().all(|count| *count > 200), "{all:?}");
    assert!(all.strained > 50, "{all:?}");
    let is_told = all.entries > 200 && all.told.iter().all(|count| *count > 4);
    assert!(is_told && all.sanitizes[0] > 30 && all.sanitizes[2] > 15, "{all:?}");
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
        "openchannel: a chunk is told of with each read",
        "openchannel: an error rate outlives a reset",
        "nvmf: a chunk notification is not told",
        "nvmf: entries go unread",
        "nvmf: high ECC is told to all",
        "shard: sanitize operations are not restored",
        "vssd: a purge erases nothing",
    ] {
        assert!(plant_mutant(Some(name)));
        let noticed =
            (0..100).any(|seed| std::panic::catch_unwind(|| run(seed, 5)).is_ok_and(|ran| ran.is_err()));
        let reached = mutant_reached_count();
        plant_mutant(None);
        assert!(reached > 0 && noticed, "{name}");
    }
}
