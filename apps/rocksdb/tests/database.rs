//! Goal: RocksDB on erase blocks has every write that was synced, and is whole, after `kill -9` of the application and of the server;
//! a distribution's db_bench runs on it. Method: the plug-in and a load (`ledger.cc`) are built as `make rocksdb` does it; after
//! each kill the load's check compares all content with what so many writes leave, under RocksDB's checksums. Where RocksDB
//! cannot be had, they are left out.
#![allow(clippy::disallowed_methods, reason = "drives real processes")]

#[path = "../../../crates/daemon/tests/block_server/mod.rs"]
mod block_server;

#[path = "../../blockfile-abi/tests/ledger/mod.rs"]
mod ledger;

use block_server::{Server, write_setup_of, write_zones_setup};
use diecut_testing::needs::{self, Need};
use ledger::{Load, kill_in_turn, limited, plug_in, run, uri, zones_uri};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

const NEEDS: [Need; 2] = [Need::Header("rocksdb/version.h"), Need::Program("db_bench")];

const SIGABRT: i32 = 6;

fn ledger_of(server: &Server, what: &str, direct: bool) -> Command {
    ledger_at(&uri(server), what, direct)
}

fn ledger_at(uri: &str, what: &str, direct: bool) -> Command {
    let mut command = ledger::ledger("rocksdb");
    command.arg(uri).arg(what).env("LD_PRELOAD", plug_in("rocksdb"));
    if direct {
        command.env("LEDGER_DIRECT", "1");
    }
    command
}

#[test]
fn synced_writes_survive_kills_of_the_application_and_of_the_server() {
    if !needs::are_there(&NEEDS) {
        return;
    }
    for direct in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        write_setup_of(folder.path(), 200);
        let acked = kill_in_turn(
            folder.path(),
            &format!("direct {direct}"),
            |server, what| ledger_of(server, what, direct),
            // Without a server it says the error, or an assertion ends it: Debian's RocksDB checks that nobody writes to a log
            // that had an error, and a second thread may be about to.
            |status| status.code() == Some(3) || status.signal() == Some(SIGABRT),
            |_| {},
        );
        assert!(acked > 10_000, "direct {direct}: {acked} writes");
    }
}

/// Where a write ended is told by the zone's write pointer, not by a page that is erased.
#[test]
fn synced_writes_in_zones_survive_kills_of_the_application_and_of_the_server() {
    if !needs::are_there(&NEEDS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write_zones_setup(folder.path(), 200);
    let acked = kill_in_turn(
        folder.path(),
        "zones",
        |server, what| ledger_at(&zones_uri(server), what, false),
        |status| status.code() == Some(3) || status.signal() == Some(SIGABRT),
        |_| {},
    );
    assert!(acked > 5_000, "{acked} writes");
}

/// A checkpoint links files and renames the folder that it made them in; a backup copies them and asks for their times.
#[test]
fn checkpoints_and_backups_into_the_same_vssd_are_whole() {
    if !needs::are_there(&NEEDS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write_setup_of(folder.path(), 400);
    let server = Server::start(folder.path(), 1);
    let mut load = Load::start(&mut ledger_of(&server, "run", false));
    load.follow(150);
    load.child.kill().unwrap();
    load.child.wait().unwrap();
    let said = run(&mut ledger_of(&server, "copy", false));
    let found: Vec<_> = said.lines().filter(|line| line.starts_with("found ")).collect();
    assert!(found.len() == 3 && found.iter().all(|line| *line == found[0]), "{said}");
}

#[test]
fn db_bench_of_the_distribution_runs() {
    if !needs::are_there(&NEEDS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write_setup_of(folder.path(), 400);
    let server = Server::start(folder.path(), 1);
    run_db_bench(&uri(&server));
}

#[test]
fn db_bench_of_the_distribution_runs_in_zones() {
    if !needs::are_there(&NEEDS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write_zones_setup(folder.path(), 400);
    let server = Server::start(folder.path(), 1);
    run_db_bench(&zones_uri(&server));
}

fn run_db_bench(uri: &str) {
    let bench = |benchmarks: &str, existing: bool| {
        let mut command = limited("db_bench");
        command.env("LD_PRELOAD", plug_in("rocksdb")).arg(format!("--fs_uri={uri}")).args([
            "--db=/bench",
            "--num=20000",
            "--value_size=400",
            "--compression_type=none",
            "--threads=2",
            "--write_buffer_size=1048576",
            "--target_file_size_base=1048576",
            "--max_bytes_for_level_base=4194304",
            "--verify_checksum=1",
        ]);
        command.arg(format!("--benchmarks={benchmarks}")).arg(format!("--use_existing_db={existing}"));
        run(command.env("DIECUT_STATISTICS", "1"))
    };
    let said = bench("fillrandom,overwrite,readwhilewriting,verifychecksum", false);
    let again = bench("readrandom,verifychecksum", true);
    for (name, said) in
        [("fillrandom", &said), ("overwrite", &said), ("readwhilewriting", &said), ("readrandom", &again)]
    {
        let line = said.lines().find(|line| line.starts_with(name));
        assert!(line.is_some_and(|line| line.contains("ops/sec")), "{name}: {said}");
    }
    for said in [&said, &again] {
        println!("{said}");
        assert!(said.contains("write amplification") && !said.contains("error"), "{said}");
    }
}
