//! Goal: the server says on standard error what an operator asks about: that it started and how long that took, where it
//! listens, that it stops. Method: the real binary on a small device, its standard error in a file, ended by a signal.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts a server whose log goes to a file, and waits until it listens.
    fn start(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Server {
        std::fs::write(
            folder.join("setup.toml"),
            "[device]\nprofile = \"tiny\"\nbacking = \"memory\"\nprotected_memory = \"64 MiB\"\n",
        )
        .unwrap();
        let log = folder.join("log");
        let mut child = Command::new(env!("CARGO_BIN_EXE_diecut"))
            .args(["serve", "--listen", "127.0.0.1:0", "--setup"])
            .arg(folder.join("setup.toml"))
            .arg("--data")
            .arg(folder)
            .args(arguments)
            .env_remove("RUST_LOG")
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while !lines.next().expect("the server says where it listens").unwrap().starts_with("listening") {}
        // The rest fits into the pipe.
        std::mem::forget(lines);
        Server { child, log }
    }

    /// Ends it as Ctrl-C does, and gives its log.
    fn interrupt(mut self) -> String {
        let kill = format!("kill -INT {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn start_and_end_are_logged() {
    let folder = tempfile::tempdir().unwrap();
    let text = Server::start(folder.path(), &[], &[]).interrupt();
    for word in [
        "opening the device",
        "opened_ms=",
        "NVMe over TCP",
        "127.0.0.1:",
        "control.sock",
        "stopping",
        "stopped_ms=",
    ] {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
}

#[test]
fn json_lines_are_objects_with_fields() {
    let folder = tempfile::tempdir().unwrap();
    let text = Server::start(folder.path(), &["--log-format", "json"], &[]).interrupt();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let serving = lines.iter().find(|line| line["fields"]["message"] == "serving").expect(&text);
    assert!(serving["fields"]["opened_ms"].is_u64(), "{serving}");
    assert_eq!(serving["level"], "INFO");
}

/// Goal: `--log` wins over `RUST_LOG`, which wins over the default.
#[test]
fn what_is_logged_can_be_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let text = Server::start(folder.path(), &[], &[("RUST_LOG", "error")]).interrupt();
    assert_eq!(text, "");
    let text = Server::start(folder.path(), &["--log", "info"], &[("RUST_LOG", "error")]).interrupt();
    assert!(text.contains("stopping"), "{text}");
}

/// Goal: who connects, goes or is refused is in the log, and a flood of refused hosts is a few lines. Method: the server of a null
/// namespace, and the load program under its right and under wrong names.
#[test]
fn hosts_are_logged_and_a_flood_is_a_few_lines() {
    const NQN: &str = "nqn.2026-11.org.diecut:null";
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut child = Command::new(env!("CARGO_BIN_EXE_diecut"))
        .args(["serve", "--listen", "127.0.0.1:0", "--null", NQN])
        .env_remove("RUST_LOG")
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split_whitespace().nth(1).unwrap().trim_end_matches(',').to_owned();
    let server = Server { child, log };
    let bench = |nqn: &str| {
        let short = ["bench", "--runtime", "0.05", "--ramp-time", "0.01", "--nqn", nqn, &address];
        Command::new(env!("CARGO_BIN_EXE_diecut")).args(short).output().unwrap().status.success()
    };
    assert!(bench(NQN));
    for _ in 0..30 {
        assert!(!bench("nqn.2026-11.org.diecut:other"));
    }
    let text = server.interrupt();
    for word in ["host connected", "host gone", "diecut:null"] {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
    let refused = text.lines().filter(|line| line.contains("host refused")).count();
    assert!((1..=20).contains(&refused), "{refused} lines\n{text}");
}

#[test]
fn a_filter_that_cannot_be_read_is_refused() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_diecut")).args(["serve", "--log", "diecut=loud"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("--log \"diecut=loud\""), "{text}");
}
