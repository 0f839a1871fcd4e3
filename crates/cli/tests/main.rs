//! All tests of the room in one program: each program is compiled and linked by itself, with all that it instantiates of the room.

mod bench;
mod control_socket;
mod crowded;
mod cuts;
mod device;
mod drive;
mod drive_volumes;
mod drives;
mod durable;
mod file_device;
mod formats;
mod full_disk;
mod growing;
mod host;
mod latency;
mod limits;
mod log;
mod open_channel;
mod operator;
mod panics;
mod paths;
mod remote;
mod remote_chunks;
mod remote_handles;
mod remote_pool;
mod remote_zones;
mod repair;
mod repro;
mod reservations;
mod sanitize;
mod served;
mod shards;
mod slips;
mod targets;

/// Goal: no file of tests is forgotten here, for then nothing runs it.
#[test]
fn each_file_of_tests_is_a_module() {
    diecut_testing::modules::all_named(
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests"),
        include_str!("main.rs"),
        &[],
    );
}
