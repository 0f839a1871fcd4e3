//! Goal: the server says on standard error what an operator asks about: that it started and how long that took, where it
//! listens, who came and went and who was refused and why, that it stops. Method: the real binary on a small device, its standard error in a file, ended by a signal.
#![allow(clippy::disallowed_methods, reason = "drives real sockets and processes")]

use crate::served;
use diecut_initiator::{Admin, Collect, QueueParameters};
use diecut_nvme::QualifiedName;
use diecut_units::Time;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Subsystem of a null namespace.
const NQN: &str = "nqn.2026-11.org.diecut:null";

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

    /// A server of a null namespace that every host may use, and its address.
    fn null(folder: &Path) -> (Server, String) {
        let log = folder.join("log");
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
        (Server { child, log }, address)
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

/// Goal: a word that is no level is refused. Seen to fail: a filter took it for the name of a place, and nothing was logged.
#[test]
fn a_level_with_a_typo_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for word in ["warning", "blah", "", "info,debgu"] {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_diecut"));
        let output = serve.args(["serve", "--log", word, "--data"]).arg(folder.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains("is no level"), "{word}: {text}");
    }
}

/// Goal: who connects, goes or is refused is in the log, and a flood of refused hosts is a few lines. Method: the server of a null
/// namespace, and the load program under its right and under wrong names.
#[test]
fn hosts_are_logged_and_a_flood_is_a_few_lines() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = Server::null(folder.path());
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

/// A controller of its own for a host, as long as the stream lives; or what the host is told.
fn controller(address: &str, subsystem: &str) -> Result<TcpStream, String> {
    let name = |text: &str| QualifiedName::new(text).unwrap();
    let parameters = QueueParameters::admin(name("nqn.2026-11.example:greedy"), [7; 16], name(subsystem));
    let mut admin = Admin::new(parameters, 1);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    while admin.facts().is_none() {
        let bytes = admin.output().to_vec();
        admin.sent(bytes.len());
        stream.write_all(&bytes).unwrap();
        let mut bytes = vec![0; 64 << 10];
        let length = stream.read(&mut bytes).unwrap();
        admin
            .receive(&bytes[..length], Time::ZERO, &mut Collect::default())
            .map_err(|error| error.to_string())?;
    }
    Ok(stream)
}

/// Goal: an operator reads in the log why a host was refused, "controller busy" too, and a flood of hosts that are refused for one
/// reason hides no other reason. Method: a host asks again and again for a subsystem that is not there; then it takes
/// controllers until it may have no more.
#[test]
fn a_refused_host_and_its_reason_are_logged_whatever_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = Server::null(folder.path());
    for _ in 0..30 {
        controller(&address, "nqn.2026-11.org.diecut:other").unwrap_err();
    }
    let mut controllers = Vec::new();
    let refusal = loop {
        match controller(&address, NQN) {
            Ok(stream) => controllers.push(stream),
            Err(refusal) => break refusal,
        }
        assert!(controllers.len() < 2000, "a host has as many controllers as it likes");
    };
    assert!(refusal.contains("all controllers are taken"), "{refusal}");
    let text = server.interrupt();
    let told = |reason: &str| {
        text.lines().filter(|line| line.contains("host refused") && line.contains(reason)).count()
    };
    let (unknown, full) = (
        told("there is no such subsystem"),
        told("the host has as many controllers in this subsystem as it may have"),
    );
    assert!((1..=20).contains(&unknown), "{unknown} lines\n{text}");
    assert_eq!(full, 1, "{} controllers\n{text}", controllers.len());
}

/// Goal: that volumes promise more than their vSSD stores is in the log when it is met, once and not for each write. Method: a vSSD
/// with a volume that is larger than it, written until it is full.
#[test]
fn a_vssd_that_is_full_is_logged() {
    let folder = served::folder();
    let folder = folder.path();
    let setup = served::SETUP.replace("size = \"1M\"", "size = \"300M\"");
    std::fs::write(folder.join("setup.toml"), setup).unwrap();
    let server = served::Server::start(folder, &["--setup", "setup.toml"]);
    let said = served::diecut(
        folder,
        &["bench", "--nqn", served::NQN, "--rw", "write", "--bs", "128K", "--overwrite", "--runtime", "3"],
    );
    let said = String::from_utf8_lossy(&said.stderr).into_owned() + &String::from_utf8_lossy(&said.stdout);
    let text = server.stop();
    let told = text.lines().filter(|line| line.contains("the vSSD is full and refuses writes")).count();
    assert_eq!(told, 1, "{said}\n{text}");
    assert!(text.contains("flash"), "{text}");
}

#[test]
fn a_filter_that_cannot_be_read_is_refused() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_diecut")).args(["serve", "--log", "diecut=loud"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("--log \"diecut=loud\""), "{text}");
}
