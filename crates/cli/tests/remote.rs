//! A server whose pool lies on a namespace of another one, over real sockets: both are killed under load and come back, the target stays away, another
//! server wants the same namespace, and set-ups are wrong. What a host flushed is there after all of it.

use crate::{host, served, targets};
use diecut_initiator::{Command, LbaSpan};
use diecut_testing::Random;
use diecut_testing::wait::wait_for;
use diecut_units::Buffer;
use host::Host;
use host::known::{Known, LBA_BYTES, run};
use served::{Server, assert_says, diecut, done, refused};
use std::path::{Path, PathBuf};
use targets::{ALLOWED, Both, CLOSED, POOL, Target, ZONED};
use tempfile::TempDir;

const LBAS: u64 = 1024;

/// A target (`a`) with a namespace, and servers that want it.
struct Bench {
    folder: TempDir,
    target: Target,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let target = Target::new(folder.path().join("a"));
        Bench { folder, target }
    }

    fn folder_of(&self, name: &str) -> PathBuf {
        let folder = self.folder.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn address(&self) -> String {
        self.target.address()
    }

    /// The target.
    fn target(&self) -> Server {
        self.target.start()
    }

    /// The folder of a server on this namespace, with what `more` adds to its device.
    fn set_up(&self, name: &str, subsystem: &str, nsid: u32, more: &str) -> PathBuf {
        let folder = self.folder_of(name);
        let address = self.address();
        let setup = format!(
            r#"
[device]
kind = "remote"
address = "{address}"
subsystem = "{subsystem}"
nsid = {nsid}
patience_ms = 3000
{more}
[[tenant]]
name = "a"
[[vssd]]
name = "fast"
tenant = "a"
isolation = "channel"
capacity = "24 MiB"
[[volume]]
name = "data"
vssd = "fast"
size = "4 MiB"
[[subsystem]]
nqn = "nqn.2026-11.org.diecut:a"
tenant = "a"
allow_any_host = true
namespaces = [{{ nsid = 1, volume = "data" }}]
"#
        );
        std::fs::write(folder.join("setup.toml"), setup).unwrap();
        folder
    }

    /// Words that name a namespace on the command line.
    fn named(&self, command: &str, subsystem: &str, nsid: u32, more: &[&str]) -> Vec<String> {
        let nsid = nsid.to_string();
        let address = self.address();
        let words =
            ["device", command, "--address", &address, "--subsystem", subsystem, "--nsid", &nsid].into_iter();
        words.chain(more.iter().copied()).map(str::to_owned).collect()
    }

    fn format(&self, nsid: u32, more: &[&str]) -> Vec<String> {
        self.named("format", POOL, nsid, &[&["--erase-block", "1M", "--lanes", "6"], more].concat())
    }
}

fn words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

fn work(known: &mut Known, server: &Server, random: &mut Random, rounds: u32) -> Result<(), String> {
    let mut host = Host::connect(server.socket_address(), "a").map_err(|error| error.to_string())?;
    known.work(&mut host, random, rounds)
}

fn is_away(folder: &Path) -> bool {
    let status = done(folder, &["--socket", "control.sock", "--json", "status"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["devices"][0]["is_away"].as_bool().unwrap()
}

/// Goal: what a host flushed is there after kills of the server and of its target under load, and nobody sees wrong data; a target that stays away is
/// told of by name, to hosts and to people, and the server goes on by itself when it is back. Method: blocks have versions; each start has another number of
/// shards.
#[test]
fn a_pool_on_a_target_outlives_both() {
    let bench = Bench::new();
    let target = bench.target();
    let folder = bench.set_up("b", POOL, 1, "name = \"far\"");
    done(&folder, &words(&bench.format(1, &[])));
    let mut both = Both::new(&bench.target, target, (&folder, 3), "a", LBAS);
    assert_says(&both.server().announced, &["far", POOL, "a namespace of a target"]);
    both.check("new");
    both.kill_in_turns(3);
    // It stays away.
    both.kill_target();
    let said = both.work(u32::MAX).unwrap_err();
    assert!(said.contains("NAMESPACE_NOT_READY"), "the namespace is not ready: {said}");
    assert!(is_away(&folder));
    let status = done(&folder, &["--socket", "control.sock", "status"]);
    assert_says(&status, &["device far is away", "goes on by itself"]);
    assert_says(&both.server().log(), &[POOL, "is away", "refused"]);
    // Others are answered at once now.
    both.work(1).unwrap_err();
    both.start_target();
    wait_for(
        || format!("it does not come back: {}", both.server().log()),
        || (!is_away(&folder)).then_some(()),
    );
    both.check("back");
    both.work(20).unwrap();
    assert_says(&both.server().log(), &["is back"]);
    both.restart();
}

/// Goal: one server has a namespace, another one is refused by name, and gets it when the first one has ended or is taken for gone.
#[test]
fn a_namespace_is_one_servers() {
    let bench = Bench::new();
    let _target = bench.target();
    let (b, c) = (bench.set_up("b", POOL, 1, ""), bench.set_up("c", POOL, 1, ""));
    let serve = ["serve", "--listen", "127.0.0.1:0", "--setup", "setup.toml", "--data", "."];
    let said = refused(&b, &serve);
    assert_says(&said, &["not formatted", POOL, "device format --address", "--nsid 1"]);
    done(&b, &words(&bench.format(1, &[])));
    let server = Server::in_folder(&b, &[]);
    let said = refused(&c, &serve);
    assert_says(&said, &[POOL, "is in use", "another server", "stop that one first", "device release"]);
    let said = refused(&c, &words(&bench.format(1, &["--force"])));
    assert_says(&said, &[POOL, "is in use"]);
    let looked = bench.named("identify", POOL, 1, &["--json"]);
    let looked: serde_json::Value = serde_json::from_str(&done(&c, &words(&looked))).unwrap();
    assert!(looked[0]["users"][0].as_str().unwrap().contains("a server holds its reservation"), "{looked}");
    assert!(looked[0]["label"]["lanes"] == 6 && looked[0]["fits"] == false, "{looked}");
    // It is still the first one's after a kill.
    server.kill();
    assert_says(&refused(&c, &serve), &["is in use"]);
    let server = Server::in_folder(&b, &[]);
    server.stop();
    let server = Server::in_folder(&c, &[]);
    assert_says(&refused(&b, &serve), &["is in use"]);
    server.kill();
    done(&b, &words(&bench.named("release", POOL, 1, &[])));
    // The folder of the first one knows its device.
    let mut server = Server::in_folder(&b, &[]);
    // Taken from one that lives: its hosts hear of it when another one has it, and it lives on.
    done(&c, &words(&bench.named("release", POOL, 1, &[])));
    let other = Server::in_folder(&c, &[]);
    let mut known = Known::new(LBAS);
    let (mut random, mut said) = (Random::of(1), String::new());
    wait_for(
        || "it does not hear that it was taken over",
        || {
            said = work(&mut known, &server, &mut random, 1).err()?;
            server.log().contains("another server took namespace 1 over").then_some(())
        },
    );
    assert_eq!(server.ended(), None);
    work(&mut Known::new(LBAS), &other, &mut random, 5).unwrap();
    drop(server);
}

/// Goal: each mistake is named, with what to do.
#[test]
fn mistakes_are_named() {
    let bench = Bench::new();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--setup", "setup.toml", "--data", "."];
    let b = bench.set_up("b", POOL, 1, "");
    let said = refused(&b, &serve);
    assert_says(&said, &[POOL, &bench.address(), "refused", "see whether the target runs"]);
    let _target = bench.target();
    let refused_of = |name: &str, subsystem: &str, nsid: u32, more: &str| {
        refused(&bench.set_up(name, subsystem, nsid, more), &serve)
    };
    let said = refused_of("nqn", "nqn.2026-11.org.diecut:nothing", 1, "");
    assert_says(&said, &["org.diecut:nothing", "no subsystem of this NQN"]);
    assert_says(&refused_of("nsid", POOL, 9, ""), &[POOL, "no namespace 9"]);
    assert_says(&refused_of("zoned", ZONED, 1, ""), &[ZONED, "not formatted"]);
    let said = refused_of("host", CLOSED, 1, "");
    assert_says(&said, &["may not use the subsystem", "host allow"]);
    let allowed = format!("host_nqn = \"{ALLOWED}\"");
    assert_says(&refused_of("allowed", CLOSED, 1, &allowed), &["not formatted"]);
    let said = refused(&b, &words(&bench.format(2, &[])));
    assert_says(&said, &[&format!("{POOL}/2"), "the drive has 1048576 bytes", "need 102760448"]);
    // A host's swap space lies there.
    let mut other = Host::connect(bench.address().parse().unwrap(), "pool").unwrap();
    let mut swap = vec![0; LBA_BYTES];
    swap[4086..].copy_from_slice(b"SWAPSPACE2");
    let span = LbaSpan { nsid: 1, first: 0, count: 1 };
    let write = Command::Write { span, data: Buffer::copy_from(&swap), force_unit_access: false };
    run(&mut other, write).unwrap();
    drop(other);
    let said = refused(&b, &words(&bench.format(1, &[])));
    assert_says(&said, &["it holds", "swap", "--force"]);
    assert_says(&refused(&b, &serve), &["no device of diecut", "swap", "device format --force --address"]);
    let made = done(&b, &words(&bench.format(1, &["--force"])));
    assert_says(&made, &["kind = \"remote\""]);
    assert!(!diecut(&b, &words(&bench.format(1, &[]))).status.success(), "it is a device now");
    Server::in_folder(&b, &[]).stop();
}
