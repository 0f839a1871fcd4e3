//! Goal: RocksDB on erase blocks has every write that was synced, and is whole, after `kill -9` of the application and of the server;
//! a distribution's db_bench runs on it. Method: the plug-in and a load (`ledger.cc`) are built as `make rocksdb` does it; after
//! each kill the load's check compares all content with what so many writes leave, under RocksDB's checksums. Where RocksDB
//! cannot be had, these tests fail.
#![allow(clippy::disallowed_methods, reason = "drives real processes")]

#[path = "../../../crates/daemon/tests/block_server/mod.rs"]
mod block_server;

use block_server::{Server, write_setup_of};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

const SIGABRT: i32 = 6;

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; make setup"));
    let (said, problems) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {said}{problems}");
    format!("{said}{problems}")
}

/// The folder with the plug-in and the load, built once.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let library = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        assert!(library.join("libdiecut_files.a").exists(), "{} has no libdiecut_files.a", library.display());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rocksdb");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/rocksdb.sh");
        run(Command::new(script).arg(&folder).arg(library));
        folder
    })
}

fn uri(server: &Server) -> String {
    format!("--fs_uri=diecut://blocks-a@{}", server.socket().display())
}

/// A program with the plug-in, for two minutes at most.
fn with_plug_in(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "120"]).arg(program);
    command.env("LD_PRELOAD", built().join("libdiecut_rocksdb.so"));
    command
}

fn ledger(server: &Server, what: &str, direct: bool) -> Command {
    let mut command = with_plug_in(&built().join("ledger"));
    command.arg(uri(server).trim_start_matches("--fs_uri=")).arg(what);
    if direct {
        command.env("LEDGER_DIRECT", "1");
    }
    command
}

/// A load under way.
struct Load {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    acked: u64,
    ended: Option<String>,
}

impl Load {
    fn start(server: &Server, direct: bool) -> Load {
        // Without `timeout` between: the child is what is killed.
        let mut command = Command::new(built().join("ledger"));
        command.arg(uri(server).trim_start_matches("--fs_uri=")).arg("run");
        command.env("LD_PRELOAD", built().join("libdiecut_rocksdb.so"));
        if direct {
            command.env("LEDGER_DIRECT", "1");
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Load { child, lines, acked: 0, ended: None }
    }

    /// Reads until so many acknowledgements more, or the end.
    fn follow(&mut self, count: usize) {
        let mut seen = 0;
        for line in &mut self.lines {
            let line = line.unwrap();
            if let Some(number) = line.strip_prefix("acked ") {
                (self.acked, seen) = (number.parse().unwrap(), seen + 1);
                if seen == count {
                    return;
                }
            } else if line.starts_with("ended ") {
                self.ended = Some(line);
            }
        }
    }
}

#[test]
fn synced_writes_survive_kills_of_the_application_and_of_the_server() {
    for direct in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        write_setup_of(folder.path(), 200);
        let mut server = Server::start(folder.path(), 1);
        let mut acked = 0;
        for round in 0..6 {
            let what = format!("direct {direct}, round {round}");
            let mut load = Load::start(&server, direct);
            load.follow(150);
            assert_eq!(load.ended, None, "{what}: the application works");
            if round % 2 == 0 {
                load.child.kill().unwrap();
            } else {
                server.child.kill().unwrap();
                server.child.wait().unwrap();
            }
            // What it said before it died counts, too.
            load.follow(usize::MAX);
            let status = load.child.wait().unwrap();
            // Without a server it says the error, or an assertion ends it: Debian's RocksDB checks that nobody writes to a log
            // that had an error, and a second thread may be about to.
            let by_itself = status.code() == Some(3) || status.signal() == Some(SIGABRT);
            assert_eq!(by_itself, round % 2 == 1, "{what}: {status}, {:?}", load.ended);
            acked = acked.max(load.acked);
            if round % 2 == 1 {
                server = Server::start(folder.path(), 1);
            }
            let said = run(&mut ledger(&server, "check", direct));
            let found = said.lines().find_map(|line| line.strip_prefix("found ")).expect("what it found");
            let found: u64 = found.parse().unwrap();
            assert!(found >= acked, "{what}: {acked} writes were acknowledged, {found} are there");
        }
        assert!(acked > 10_000, "direct {direct}: {acked} writes");
    }
}

/// A checkpoint links files and renames the folder that it made them in; a backup copies them and asks for their times.
#[test]
fn checkpoints_and_backups_into_the_same_vssd_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    write_setup_of(folder.path(), 400);
    let server = Server::start(folder.path(), 1);
    let mut load = Load::start(&server, false);
    load.follow(150);
    load.child.kill().unwrap();
    load.child.wait().unwrap();
    let said = run(&mut ledger(&server, "copy", false));
    let found: Vec<_> = said.lines().filter(|line| line.starts_with("found ")).collect();
    assert!(found.len() == 3 && found.iter().all(|line| *line == found[0]), "{said}");
}

#[test]
fn db_bench_of_the_distribution_runs() {
    let folder = tempfile::tempdir().unwrap();
    write_setup_of(folder.path(), 400);
    let server = Server::start(folder.path(), 1);
    let bench = |benchmarks: &str, existing: bool| {
        let mut command = with_plug_in(Path::new("db_bench"));
        command.arg(uri(&server)).args([
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
