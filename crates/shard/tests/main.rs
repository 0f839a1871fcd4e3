//! All tests of the room in one program. A shard is generic over its medium, and each program that has one compiles all of it again: twelve
//! programs took seven times as long as this one.

mod chunks;
mod composition;
mod delays;
mod drives;
mod evacuating;
mod fallen;
mod growing;
mod herd;
mod on_a_drive;
mod placement;
mod purge;
mod reservations;
mod reserving;
mod reserving_seeds;
mod sanitize;
mod several;
mod shards;
mod smart;
mod zones;

/// Goal: no file of tests is forgotten here, for then nothing runs it.
#[test]
fn each_file_of_tests_is_a_module() {
    diecut_testing::modules::all_named(
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests"),
        include_str!("main.rs"),
        &[],
    );
}
