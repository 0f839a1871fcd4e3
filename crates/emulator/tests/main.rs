//! All tests of the room in one program: each program is compiled and linked by itself, with all that it instantiates of the room.

mod conformance;
mod device;
mod divide;
mod drive;
mod memory;
mod pinned_times;
mod places;
mod profile;
mod rig;
mod room;
mod synced;

/// Goal: no file of tests is forgotten here, for then nothing runs it.
#[test]
fn each_file_of_tests_is_a_module() {
    diecut_testing::modules::all_named(
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests"),
        include_str!("main.rs"),
        &["allocation"],
    );
}
