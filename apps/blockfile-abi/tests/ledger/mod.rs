//! A database on erase blocks that tests kill: its plug-in and its load (`ledger.hpp`), built as `make` builds them, and the check
//! after each kill. Shared by tests of several crates, which have `block_server` beside it.
#![allow(dead_code, reason = "each test program uses a part")]

use crate::block_server::{Server, ZONES_NQN};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

/// What a program printed; it must succeed.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; make setup"));
    let (said, problems) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {said}{problems}");
    format!("{said}{problems}")
}

/// A program for two minutes at most.
pub fn limited(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "120"]).arg(program.as_ref());
    command
}

/// The vSSD of the tests, as plug-ins name it.
pub fn uri(server: &Server) -> String {
    format!("diecut://blocks-a@{}", server.socket().display())
}

/// The zones of the tests, as plug-ins name them.
pub fn zones_uri(server: &Server) -> String {
    format!("diecut://{ZONES_NQN}@{}", server.address)
}

/// The folder with a database's plug-in and load, built once: a test program is about one database.
fn built(database: &str) -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let library = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        assert!(library.join("libdiecut_files.a").exists(), "{} has no libdiecut_files.a", library.display());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(database);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/plugin.sh");
        run(Command::new(script).arg(database).arg(&folder).arg(library));
        folder
    })
}

/// The plug-in of a database, for `LD_PRELOAD`.
pub fn plug_in(database: &str) -> PathBuf {
    built(database).join(format!("libdiecut_{database}.so"))
}

/// The load of a database, which ends by itself after two minutes.
pub fn ledger(database: &str) -> Command {
    Command::new(built(database).join(format!("{database}-ledger")))
}

/// A load under way, killed when it is dropped.
pub struct Load {
    /// The database's process.
    pub child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    acked: u64,
    ended: Option<String>,
}

impl Load {
    pub fn start(command: &mut Command) -> Load {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Load { child, lines, acked: 0, ended: None }
    }

    /// Reads until so many acknowledgements more, or the end.
    pub fn follow(&mut self, count: usize) {
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

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills the database and its server in turn, six times. `ledger` makes the load's command for `run` and `check`, `ends` says how a
/// database may end that lost its server, and `found` sees what each check printed. Says how many writes were acknowledged in all.
pub fn kill_in_turn(
    folder: &Path,
    what: &str,
    ledger: impl Fn(&Server, &str) -> Command,
    ends: impl Fn(ExitStatus) -> bool,
    found: impl Fn(&str),
) -> u64 {
    let mut server = Server::start(folder, 1);
    let mut acked = 0;
    for round in 0..6 {
        let what = format!("{what}, round {round}");
        let mut load = Load::start(&mut ledger(&server, "run"));
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
        assert_eq!(ends(status), round % 2 == 1, "{what}: {status}, {:?}", load.ended);
        acked = acked.max(load.acked);
        if round % 2 == 1 {
            server = Server::start(folder, 1);
        }
        let said = run(&mut ledger(&server, "check"));
        let number = said.lines().find_map(|line| line.strip_prefix("found ")).expect("what it found");
        let number: u64 = number.parse().unwrap();
        assert!(number >= acked, "{what}: {acked} writes were acknowledged, {number} are there");
        found(&said);
    }
    acked
}
