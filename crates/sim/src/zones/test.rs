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
            && all.lost_pages > 5,
        "{all:?}"
    );
}
