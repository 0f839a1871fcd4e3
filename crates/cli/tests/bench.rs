//! Goal: `diecut bench` measures a live server and says what to do when it cannot. Method: the real binary as server
//! (`serve --null`) and as load. Not timed: runs are short.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

const NQN: &str = "nqn.2026-11.org.diecut:null";

struct Server(Child, String);

impl Server {
    fn start() -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_diecut"))
            .args(["serve", "--listen", "127.0.0.1:0", "--null", NQN])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split_whitespace().nth(1).unwrap().trim_end_matches(',').to_owned();
        Server(child, address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn bench(arguments: &[&str]) -> Output {
    // Nobody serves at the socket, wherever the test runs.
    let mut command = Command::new(env!("CARGO_BIN_EXE_diecut"));
    command.env("DIECUT_SOCKET", "/nonexistent/control.sock").arg("bench").args(arguments).output().unwrap()
}

#[test]
fn a_live_server_is_measured() {
    let server = Server::start();
    let short = ["--runtime", "0.05", "--ramp-time", "0.01", "--nqn", NQN, &server.1];
    let output = bench(
        &[&short[..], &["--json", "--overwrite", "--rw", "randrw", "--bs", "8k", "--numjobs", "2"]].concat(),
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["load"]["block_bytes"], &json["load"]["jobs"]), (&Value::from(8192), &Value::from(2)));
    assert_both_directions(&json);
    let output = bench(&[&short[..], &["--rw", "read", "--iodepth", "4", "--rate-iops", "2000"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    for word in ["kIOPS", "MB/s", "p50", "p90", "p99", "p99.9", "p99.99", "max"] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
}

fn assert_both_directions(json: &Value) {
    for direction in ["read", "write"] {
        assert!(json[direction]["operations"].as_u64().unwrap() > 0, "{json}");
        assert_eq!(json[direction]["errors"], 0);
    }
}

#[test]
fn mistakes_say_what_to_do() {
    let server = Server::start();
    let address = server.1.clone();
    let says = |arguments: &[&str], expected: &str| {
        let output = bench(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(expected), "{arguments:?} says {text}");
    };
    says(&["--nqn", "nqn.2026-11.org.diecut:other", &address], "no subsystem of this NQN");
    says(&["--nqn", "a name", &address], "cannot be used: an NQN is printable ASCII");
    says(&["--nqn", NQN, "--iodepth", "4000", &address], "use less");
    says(&["--nqn", NQN, "--bs", "5000", &address], "choose one that is");
    says(&["--nqn", NQN, "--random-distribution", "pareto", &address], "write random, or zipf:1.2");
    says(&["--nqn", NQN, "nowhere"], "write HOST:PORT");
    says(&["--nqn", NQN, "--rw", "randwrite", &address], "add --overwrite");
    says(&["--nqn", NQN], "name the server's HOST:PORT");
    drop(server);
    says(&["--nqn", NQN, &address], "is the server running there?");
}
