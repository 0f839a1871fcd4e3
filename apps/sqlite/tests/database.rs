//! Goal: SQLite on erase blocks is whole, and has every transaction that was acknowledged, after `kill -9` of the application and of the
//! server. Method: the load like TPC-C in this program, started again as an application that says each commit; SQLite's
//! integrity check and rules of consistency after each kill. Both journal modes; in memory, also power cuts.
#![allow(clippy::disallowed_methods, reason = "drives real processes")]

#[path = "../../../crates/daemon/tests/block_server/mod.rs"]
mod block_server;

use block_server::{Server, write_setup};
use diecut_blockfile::Files;
use diecut_blockspace::embedded::{Embedded, Ending};
use diecut_sqlite::{Database, Vfs, attach, tpcc};
use rusqlite::Connection;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

fn database(files: &Arc<Files>, wal: bool) -> rusqlite::Result<Database> {
    Vfs::new(Arc::clone(files)).open("tpcc.db", wal)
}

/// Not a test by itself: the application that is killed, or whose server is.
#[test]
fn application_to_be_killed() {
    let Ok(socket) = std::env::var("DIECUT_TEST_APPLICATION") else { return };
    let wal = std::env::var("DIECUT_TEST_WAL").unwrap() == "true";
    let files = attach(&socket, "blocks-a").unwrap();
    let mut connection = database(&files, wal).unwrap();
    tpcc::prepare(&mut connection, 1).unwrap();
    let seed = std::env::var("DIECUT_TEST_SEED").unwrap().parse().unwrap();
    let mut terminal = tpcc::Terminal::new(&connection, seed).unwrap();
    loop {
        match terminal.step(&mut connection) {
            Ok(_) => println!("\ncommitted {}", terminal.committed),
            Err(error) => return println!("\nended {error}"),
        }
    }
}

fn start(server: &Server, wal: bool, seed: u64) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "application_to_be_killed", "--nocapture"])
        .env("DIECUT_TEST_APPLICATION", server.socket())
        .env("DIECUT_TEST_WAL", wal.to_string())
        .env("DIECUT_TEST_SEED", seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

/// Reads until so many commits more were said, or the application ended; the last one.
fn commits(lines: &mut Lines<BufReader<ChildStdout>>, count: usize) -> (i64, bool) {
    let (mut last, mut seen) = (0, 0);
    for line in lines {
        let line = line.unwrap();
        if let Some(number) = line.strip_prefix("committed ") {
            (last, seen) = (number.parse().unwrap(), seen + 1);
            if seen == count {
                return (last, false);
            }
        }
        if line.starts_with("ended ") {
            return (last, true);
        }
    }
    (last, true)
}

fn check(files: &Arc<Files>, wal: bool, acked: i64, what: &str) {
    let connection = database(files, wal).unwrap();
    assert_eq!(tpcc::problems(&connection).unwrap(), Vec::<String>::new(), "{what}");
    let found = tpcc::committed(&connection).unwrap();
    assert!(found >= acked, "{what}: {acked} commits were acknowledged, {found} are there");
}

#[test]
fn commits_survive_kills_of_the_application_and_of_the_server() {
    for wal in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        write_setup(folder.path());
        let mut server = Server::start(folder.path(), 1);
        for round in 0..4 {
            let what = format!("wal {wal}, round {round}");
            let (mut child, mut lines) = start(&server, wal, round);
            let (mut acked, ended) = commits(&mut lines, 60);
            assert!(!ended && acked > 0, "{what}: the application works");
            if round % 2 == 0 {
                child.kill().unwrap();
            } else {
                server.child.kill().unwrap();
                server.child.wait().unwrap();
            }
            // What it said before it died counts, too.
            acked = acked.max(commits(&mut lines, usize::MAX).0);
            child.wait().unwrap();
            if round % 2 == 1 {
                server = Server::start(folder.path(), 1);
            }
            let files = attach(&server.socket().display().to_string(), "blocks-a").unwrap();
            check(&files, wal, acked, &what);
        }
    }
}

#[test]
fn commits_survive_power_cuts_and_deaths_of_the_server() {
    for wal in [true, false] {
        let device = Embedded::with_seed("tiny", 5).unwrap();
        let mut acked = 0;
        for round in 0..10u64 {
            let nth = 40 + 200 * round;
            let ending = if round % 2 == 0 { Ending::PowerCut(nth) } else { Ending::ServerDeath(nth) };
            let what = format!("wal {wal}, {ending:?}");
            if let Ok(files) = Files::open_or_format(Arc::new(device.attach_until(ending).unwrap())) {
                acked = load(&Arc::new(files), wal, round, acked);
            }
            let files = Arc::new(Files::open_or_format(Arc::new(device.attach().unwrap())).unwrap());
            if acked > 0 {
                check(&files, wal, acked, &what);
            }
        }
        assert!(acked > 50, "wal {wal}: {acked} commits");
    }
}

/// Works until the device goes; how many commits were acknowledged.
fn load(files: &Arc<Files>, wal: bool, seed: u64, before: i64) -> i64 {
    let Ok(mut connection) = database(files, wal) else { return before };
    if tpcc::prepare(&mut connection, 1).is_err() {
        return before;
    }
    let Ok(mut terminal) = tpcc::Terminal::new(&connection, seed) else { return before };
    while terminal.step(&mut connection).is_ok() {}
    terminal.committed
}

#[test]
fn connections_of_one_process_lock_each_other_out() {
    let device = Embedded::new("tiny").unwrap();
    let files = Arc::new(Files::open_or_format(Arc::new(device.attach().unwrap())).unwrap());
    let vfs = Vfs::new(Arc::clone(&files));
    let first = vfs.open("a.db", false).unwrap();
    let second = vfs.open("a.db", false).unwrap();
    first.busy_timeout(std::time::Duration::ZERO).unwrap();
    second.busy_timeout(std::time::Duration::ZERO).unwrap();
    first
        .execute_batch(
            "CREATE TABLE t (x); INSERT INTO t VALUES (1); BEGIN IMMEDIATE; INSERT INTO t VALUES (2);",
        )
        .unwrap();
    let count = |connection: &Connection| -> rusqlite::Result<i64> {
        connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0))
    };
    assert_eq!(count(&second).unwrap(), 1, "readers beside a writer see what was committed");
    assert!(second.execute_batch("BEGIN IMMEDIATE").is_err(), "one writer at a time");
    second.execute_batch("BEGIN; SELECT * FROM t").unwrap();
    assert!(first.execute_batch("COMMIT").is_err(), "not while somebody reads");
    second.execute_batch("COMMIT").unwrap();
    first.execute_batch("COMMIT").unwrap();
    assert_eq!(count(&second).unwrap(), 2);
    first.execute_batch("BEGIN; DELETE FROM t; ROLLBACK").unwrap();
    assert_eq!(count(&second).unwrap(), 2);
    assert_eq!(files.list().unwrap().len(), 1, "journals are gone");
}
