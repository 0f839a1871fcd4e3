//! All tests of the room in one program: each program is compiled and linked by itself, with all that it instantiates of the room.

mod astray;
mod common;
mod copies;
mod deallocations;
mod endurance;
mod formats;
mod groups;
mod handles;
mod model;
mod notes;
mod on_a_drive;
#[path = "common/placed.rs"]
mod placed;
mod promise;
mod repair;
mod restarts;
mod steady;

/// Goal: no file of tests is forgotten here, for then nothing runs it.
#[test]
fn each_file_of_tests_is_a_module() {
    diecut_testing::modules::all_named(
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests"),
        include_str!("main.rs"),
        &["three"],
    );
}
