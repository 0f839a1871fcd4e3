//! Goal: whatever hostile hosts do, a server with `memory_limit` keeps its anonymous memory below it, gives it back, and serves the
//! other tenant. Method: a server (this program, started again) on a small device with a limit; every attack of
//! `tests/strangers/hostile` in its short form, while a load runs on the other tenant's subsystem.
#![allow(clippy::disallowed_methods, reason = "drives real sockets and processes")]

use diecut_api::setup::Setup;
use diecut_daemon::serve::{ServeOptions, serve};
use diecut_hostile::{Attack, Plan, run};
use diecut_nvme::QualifiedName;
use diecut_testing::depth::depth;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const LIMIT_BYTES: u64 = 192 << 20;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tenant(name: &str) -> String {
    format!(
        "[[tenant]]\nname = \"{name}\"\n[[vssd]]\nname = \"{name}\"\ntenant = \"{name}\"\nisolation = \"channel\"\n\
         capacity = \"8 MiB\"\n[[volume]]\nname = \"{name}\"\nvssd = \"{name}\"\nsize = \"2 MiB\"\n[[subsystem]]\n\
         nqn = \"nqn.2026-11.example:{name}\"\ntenant = \"{name}\"\nallow_any_host = true\n\
         namespaces = [{{ nsid = 1, volume = \"{name}\" }}]\n"
    )
}

/// The server's process: this program, started again. Nothing happens in an ordinary run of the tests.
#[test]
fn server_under_attack() {
    let Ok(folder) = std::env::var("DIECUT_TEST_ATTACKED") else { return };
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndata = \"{folder}\"\nmemory_limit = \"{LIMIT_BYTES}\"\n[device]\n\
         profile = \"tiny\"\nprotected_memory = \"64 MiB\"\n{}{}",
        tenant("good"),
        tenant("attacked")
    );
    let setup = Setup::from_toml(&text).unwrap();
    let options = ServeOptions::default();
    serve(&setup, options, |text| println!("\n{text}")).unwrap();
}

/// Starts a server under a memory limit; says where it listens.
fn start(folder: &Path) -> (Server, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "server_under_attack", "--nocapture"])
        .env("DIECUT_TEST_ATTACKED", folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let listening = lines.find_map(|line| Some(line.strip_prefix("listening")?.trim().to_owned()));
    // The rest fits into the pipe.
    std::mem::forget(lines);
    let listening = listening.expect("the server says where it listens");
    (Server(child), listening.split(',').next().unwrap().to_owned())
}

#[test]
fn a_server_under_attack_keeps_to_its_memory_and_serves_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = start(folder.path());
    let name = |text: &str| QualifiedName::new(&format!("nqn.2026-11.example:{text}")).unwrap();
    let plan = Plan {
        address: address.parse().unwrap(),
        pid: server.0.id(),
        good: name("good"),
        attacked: name("attacked"),
        attacks: Attack::ALL.to_vec(),
        connections: 256,
        window: Duration::from_millis(depth(350, 700)),
        windows: 3,
        patience: Duration::from_secs(60),
    };
    let outcome = run(&plan).expect("the server lives");
    let alone = outcome.measurements[0].clone();
    for one in &outcome.measurements {
        println!("{one:?}");
        assert_eq!(one.errors, 0, "{one:?}");
        assert!(one.attack.is_none() || one.connections > 0, "{one:?}");
        // Machines of tests are noisy and shared: this is for hosts that are not served. `tests/strangers` has the figures.
        let bound = (20.0 * alone.p99_us).max(1_000_000.0);
        assert!(one.p99_us <= bound, "p99 {} us alone, now {one:?}", alone.p99_us);
    }
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "anonymous memory: {} MiB before, {} MiB at most, {} MiB after",
        mib(outcome.memory_before_bytes),
        mib(outcome.memory_most_bytes),
        mib(outcome.memory_after_bytes)
    );
    assert!(outcome.memory_most_bytes <= LIMIT_BYTES, "{} MiB", mib(outcome.memory_most_bytes));
    let back = outcome.memory_before_bytes + (24 << 20);
    assert!(outcome.memory_after_bytes <= back, "{} MiB did not go back", mib(outcome.memory_after_bytes));
}
