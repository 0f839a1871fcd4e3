//! All tests of the room in one program: each program is compiled and linked by itself, with all that it instantiates of the room.

mod alone;
mod bank;
mod every_cut;
mod fences;
mod marks;
mod model_system;
mod on_drives;
mod panics;
mod placement;
mod qos_sets;
mod replay;

/// Goal: no file of tests is forgotten here, for then nothing runs it.
#[test]
fn each_file_of_tests_is_a_module() {
    diecut_testing::modules::all_named(
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests"),
        include_str!("main.rs"),
        &[],
    );
}
