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
    assert!(is_much && all.restarts.iter().all(|count| *count > 20), "{all:?}");
}
