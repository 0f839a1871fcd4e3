//! All tests of the room in one program: each program is compiled and linked by itself, with all that it instantiates of the room.

mod classes;
mod crash;
mod crosscheck;
mod divided_log;
mod failed_program;
mod joined;
mod leveling;
mod lost_log;
mod model;
mod on_a_drive;
mod parts;
mod purge;
mod sharing;
mod stripe;
mod two_copies;
mod withdrawn;
mod within_dies;

/// Goal: no file of tests is forgotten here, for then nothing runs it.
#[test]
fn each_file_of_tests_is_a_module() {
    diecut_testing::modules::all_named(
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests"),
        include_str!("main.rs"),
        &[],
    );
}
