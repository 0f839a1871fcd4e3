//! A server on a pool of which some drives are namespaces of targets, and one is a file: what is felt when a target goes, what is served without it, and
//! how such drives join and leave.

use crate::{host, served, targets};
use diecut_initiator::{Command, LbaSpan};
use diecut_testing::Random;
use diecut_testing::wait::wait_for;
use diecut_units::Buffer;
use host::Host;
use host::known::{Known, LBA_BYTES, run};
use served::{Server, assert_says, done, refused};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use targets::{POOL, Target};
use tempfile::TempDir;

const LBAS: u64 = 1024;
const CUT: [&str; 4] = ["--erase-block", "1M", "--lanes", "6"];
const SERVE: [&str; 7] = ["serve", "--listen", "127.0.0.1:0", "--setup", "setup.toml", "--data", "."];

/// Two targets, and a server whose pool is a file (`near`) and a namespace of each (`one`, `two`).
struct Bench {
    _folder: TempDir,
    targets: [Target; 2],
    own: PathBuf,
}

/// A tenant whose volume lies on these devices.
fn tenant(name: &str, device: &str) -> String {
    format!(
        "[[tenant]]\nname = \"{name}\"\n[[vssd]]\nname = \"fast-{name}\"\ntenant = \"{name}\"\ndevice = {device}\nisolation = \"channel\"\n\
         capacity = \"24 MiB\"\n[[volume]]\nname = \"data-{name}\"\nvssd = \"fast-{name}\"\nsize = \"4 MiB\"\n[[subsystem]]\n\
         nqn = \"nqn.2026-11.org.diecut:{name}\"\ntenant = \"{name}\"\nallow_any_host = true\n\
         namespaces = [{{ nsid = 1, volume = \"data-{name}\" }}]\n"
    )
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let targets = ["a", "b"].map(|name| Target::new(folder.path().join(name)));
        let own = folder.path().join("own");
        std::fs::create_dir(&own).unwrap();
        Bench { _folder: folder, targets, own }
    }

    /// The table of a device in a set-up.
    fn device(&self, name: &str) -> String {
        let at = match name {
            "near" => return "[[device]]\nkind = \"file\"\npath = \"drive\"\nname = \"near\"\n".to_owned(),
            "one" => 0,
            _ => 1,
        };
        let address = self.targets[at].address();
        format!(
            "[[device]]\nkind = \"remote\"\naddress = \"{address}\"\nsubsystem = \"{POOL}\"\nnsid = 1\npatience_ms = 3000\nname = \"{name}\"\n"
        )
    }

    fn set_up(&self, devices: &[&str], tenants: &[String]) {
        let devices: String = devices.iter().map(|name| self.device(name)).collect();
        std::fs::write(self.own.join("setup.toml"), devices + &tenants.concat()).unwrap();
    }

    /// Makes all three one pool.
    fn format(&self) {
        let [one, two] = self.targets.each_ref().map(Target::address);
        let namespace = |address| ["--address", address, "--subsystem", POOL, "--nsid", "1"];
        let words = [
            &["device", "format", "drive", "--size", "240M"],
            &namespace(&*one)[..],
            &namespace(&*two),
            &CUT,
        ];
        let said = done(&self.own, &words.concat());
        assert_says(&said, &["drive is the device"]);
        assert_says(&said, &[&self.targets[1].place(), "is the device"]);
        assert_eq!(said.matches("kind = \"remote\"").count(), 2, "{said}");
    }

    /// Who uses a namespace, and its label, as `device identify` says.
    fn identify(&self, place: &str) -> serde_json::Value {
        let said = done(&self.own, &["--json", "device", "identify", place]);
        serde_json::from_str::<serde_json::Value>(&said).unwrap()[0].take()
    }

    /// No server has the namespace of a target.
    fn is_free(&self, at: usize) {
        let known = self.identify(&self.targets[at].place());
        assert_eq!(known["users"], serde_json::json!([]), "{known}");
    }
}

fn ask(folder: &Path, arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&done(folder, &[&["--json", "--socket", "control.sock"], arguments].concat()))
        .unwrap()
}

fn is_away(folder: &Path, name: &str) -> bool {
    let status = ask(folder, &["status"]);
    let device = status["devices"].as_array().unwrap().iter().find(|device| device["name"] == name);
    device.unwrap()["is_away"].as_bool().unwrap()
}

/// A tenant's host, and what it knows.
struct Tenant {
    name: &'static str,
    known: Known,
    random: Random,
}

impl Tenant {
    fn new(name: &'static str) -> Tenant {
        Tenant { name, known: Known::new(LBAS), random: Random::of(7) }
    }

    fn check(&mut self, server: &Server, what: &str) {
        self.known.check(&mut Host::connect(server.socket_address(), self.name).unwrap(), what);
    }

    fn try_work(&mut self, server: &Server, rounds: u32) -> Result<(), String> {
        let mut host =
            Host::connect(server.socket_address(), self.name).map_err(|error| error.to_string())?;
        self.known.work(&mut host, &mut self.random, rounds)
    }

    /// Works, and is answered within a time that no host of a target that is away is.
    #[expect(clippy::disallowed_methods, reason = "a test of how long hosts wait")]
    fn work(&mut self, server: &Server, rounds: u32) {
        let begun = Instant::now();
        self.try_work(server, rounds)
            .unwrap_or_else(|said| panic!("{}: {said}\n{}", self.name, server.log()));
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(60), "{}: {rounds} rounds took {took:?}", self.name);
    }
}

/// Goal: a pool of a file and namespaces of two targets is served like any other. A target that goes is felt by those who lie on it, hosts and
/// administrators of everything else go on, and it comes back by itself; without one of the targets at the start the rest is served. What was flushed is there
/// after all of it. Method: blocks have versions; a vSSD lies on all three devices, one on each of two.
#[test]
fn a_pool_of_a_file_and_two_targets() {
    let bench = Bench::new();
    let mut targets = bench.targets.each_ref().map(|target| Some(target.start()));
    bench.format();
    let tenants = [
        tenant("wide", "[\"near\", \"one\", \"two\"]"),
        tenant("near", "\"near\""),
        tenant("one", "\"one\""),
    ];
    bench.set_up(&["near", "one", "two"], &tenants);
    let server = Server::in_folder(&bench.own, &["--shards", "3"]);
    assert_says(&server.announced, &["two", &bench.targets[1].place(), "a namespace of a target"]);
    let [mut wide, mut near, mut one] = ["wide", "near", "one"].map(Tenant::new);
    for tenant in [&mut wide, &mut near, &mut one] {
        tenant.work(&server, 20);
    }
    let shown = ask(&bench.own, &["device", "show", "two"]);
    assert_eq!(shown["vssds"], serde_json::json!(["fast-wide"]), "{shown}");
    assert_eq!(shown["drive"]["size_bytes"], 240 << 20, "{shown}");

    // A target dies under load. Whoever does not lie there notices nothing, neither while others wait nor afterwards.
    let flushes = wide.known.flush_count();
    let begun = flushes.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let loaded = scope.spawn(|| wide.try_work(&server, u32::MAX));
        wait_for(|| "hosts do not flush", || (flushes.load(Ordering::Relaxed) >= begun + 5).then_some(()));
        targets[1].take().unwrap().kill();
        let mut late = 0;
        loop {
            near.work(&server, 5);
            one.work(&server, 5);
            late += 1;
            ask(&bench.own, &["tenant", "create", &format!("late-{late}")]);
            if loaded.is_finished() {
                break;
            }
        }
        let said = loaded.join().unwrap().unwrap_err();
        assert!(said.contains("NAMESPACE_NOT_READY"), "{said}");
    });
    assert!(is_away(&bench.own, "two") && !is_away(&bench.own, "one"));
    let listed = done(&bench.own, &["--socket", "control.sock", "device", "list"]);
    assert_says(&listed, &["two", "does not answer"]);
    near.work(&server, 20);
    one.work(&server, 20);
    ask(&bench.own, &["tenant", "create", "late"]);
    targets[1] = Some(bench.targets[1].start());
    let log = || format!("it does not come back: {}", server.log());
    wait_for(log, || (!is_away(&bench.own, "two")).then_some(()));
    for tenant in [&mut wide, &mut near, &mut one] {
        tenant.check(&server, "back");
        tenant.work(&server, 10);
    }
    server.kill();

    // One is away at the start: what lies on it is not served, all else is.
    targets[0].take().unwrap().kill();
    let server = Server::in_folder(&bench.own, &["--shards", "2"]);
    assert_says(
        &server.announced,
        &["missing", "one: ", &bench.targets[0].place(), "see whether the target runs"],
    );
    assert_eq!(
        ask(&bench.own, &["vssd", "show", "fast-wide"])["read_only_reason"],
        "its device \"one\" is not there"
    );
    near.check(&server, "one is missing");
    near.work(&server, 10);
    ask(&bench.own, &["tenant", "create", "later"]);
    server.stop();
    // It is back, and missed a change.
    targets[0] = Some(bench.targets[0].start());
    let server = Server::in_folder(&bench.own, &["--shards", "3"]);
    for tenant in [&mut wide, &mut near, &mut one] {
        tenant.check(&server, "all are there");
        tenant.work(&server, 5);
    }
    let names = ask(&bench.own, &["status"])["tenants"].to_string();
    assert!(names.contains("\"late\"") && names.contains("\"later\""), "{names}");
    server.stop();
    bench.is_free(0);
    bench.is_free(1);
}

/// Goal: a start that fails because of something else leaves namespaces to others: too few devices, and a set-up that cannot be brought onto them.
#[test]
fn a_start_that_fails_keeps_no_namespace() {
    let bench = Bench::new();
    let mut targets = bench.targets.each_ref().map(|target| Some(target.start()));
    bench.format();
    bench.set_up(&["near", "one", "two"], &[tenant("wide", "\"nowhere\"")]);
    let said = refused(&bench.own, &SERVE);
    assert_says(&said, &["there is no device \"nowhere\""]);
    bench.is_free(0);
    bench.is_free(1);
    let said = refused(&bench.own, &[&SERVE[..], &["--shards", "20"]].concat());
    assert_says(&said, &["server.shards = 20", "keeps 12 of them"]);
    bench.is_free(0);
    targets[1].take().unwrap().kill();
    std::fs::rename(bench.own.join("drive"), bench.own.join("away")).unwrap();
    bench.set_up(&["near", "one", "two"], &[tenant("wide", "\"one\"")]);
    let said = refused(&bench.own, &SERVE);
    assert_says(&said, &["1 of 3 devices", "more than half"]);
    assert_says(&said, &["two: ", "see whether the target runs"]);
    bench.is_free(0);
    // Nothing of that is in the way.
    std::fs::rename(bench.own.join("away"), bench.own.join("drive")).unwrap();
    let server = Server::in_folder(&bench.own, &[]);
    assert_says(&server.announced, &["missing", "two: "]);
    let known = bench.identify(&bench.targets[0].place());
    assert!(known["users"][0].as_str().unwrap().contains("a server holds its reservation"), "{known}");
    server.stop();
    bench.is_free(0);
}

/// Goal: drives come to a server and leave it while namespaces of targets are in its pool, and so does an empty namespace, which others can have then; hosts
/// go on. A target that is away keeps the change from happening, by name, and the same command goes on when it is back.
#[test]
fn drives_come_and_leave_beside_namespaces() {
    let bench = Bench::new();
    let mut targets = bench.targets.each_ref().map(|target| Some(target.start()));
    bench.format();
    let tenants = [tenant("near", "\"near\""), tenant("one", "\"one\"")];
    bench.set_up(&["near", "one", "two"], &tenants);
    let server = Server::in_folder(&bench.own, &["--shards", "2"]);
    let [mut near, mut one] = ["near", "one"].map(Tenant::new);
    let mut work =
        |server: &Server| [&mut near, &mut one].into_iter().for_each(|tenant| tenant.work(server, 10));
    work(&server);
    fn asked<'a>(words: &[&'a str]) -> Vec<&'a str> {
        [&["--socket", "control.sock", "device"], words].concat()
    }
    let later = asked(&[&["add", "later", "--size", "240M", "--name", "later"], &CUT[..]].concat());
    targets[1].take().unwrap().kill();
    let said = refused(&bench.own, &later);
    assert_says(&said, &[&bench.targets[1].place(), "the same command goes on where it was"]);
    targets[1] = Some(bench.targets[1].start());
    assert_says(&done(&bench.own, &later), &["later"]);
    work(&server);
    assert_says(&refused(&bench.own, &asked(&["remove", "one"])), &["fast-one"]);
    done(&bench.own, &asked(&["remove", "two"]));
    bench.is_free(1);
    assert_eq!(bench.identify(&bench.targets[1].place())["label"], serde_json::Value::Null);
    work(&server);
    let listed = done(&bench.own, &asked(&["list"]));
    assert!(listed.contains("later") && !listed.contains("two"), "{listed}");
    server.kill();
    let later = "[[device]]\nkind = \"file\"\npath = \"later\"\nname = \"later\"\n".to_owned();
    bench.set_up(&["near", "one"], &[&[later][..], &tenants].concat());
    let server = Server::in_folder(&bench.own, &[]);
    assert!(!server.announced.contains("missing"), "{}", server.announced);
    [&mut near, &mut one].into_iter().for_each(|tenant| tenant.check(&server, "two drives left"));
    server.stop();
    bench.is_free(0);
}

/// Goal: namespaces join a pool and leave it with the same words as files, and nothing is written before all is looked at.
#[test]
fn namespaces_join_and_leave() {
    let bench = Bench::new();
    let mut targets = bench.targets.each_ref().map(|target| Some(target.start()));
    let own = &*bench.own;
    let [one, two] = bench.targets.each_ref().map(Target::place);
    let address = bench.targets[1].address();
    // Something lies on the last one of a format: the others are not touched.
    let mut other = Host::connect(address.parse().unwrap(), "pool").unwrap();
    let swap = |text: &[u8]| {
        let mut swap = vec![0; LBA_BYTES];
        swap[4086..].copy_from_slice(text);
        let span = LbaSpan { nsid: 1, first: 0, count: 1 };
        Command::Write { span, data: Buffer::copy_from(&swap), force_unit_access: true }
    };
    run(&mut other, swap(b"SWAPSPACE2")).unwrap();
    let format = [&["device", "format", "drive", "--size", "240M", &one, &two], &CUT[..]].concat();
    assert_says(&refused(own, &format), &[&two, "it holds", "swap", "--force"]);
    assert!(!own.join("drive").exists());
    assert_eq!(bench.identify(&one)["contents"]["found"], serde_json::json!([]));
    bench.is_free(0);
    run(&mut other, swap(&[0; 10])).unwrap();
    drop(other);
    let said = refused(own, &[&["device", "format", &one, "--size", "240M"], &CUT[..]].concat());
    assert_says(&said, &["--size is for new files"]);
    let said =
        refused(own, &["device", "format", "--address", &address, "--address", "a:1", "--subsystem", POOL]);
    assert_says(&said, &["2 namespaces are named with --address, and 1 times --subsystem"]);
    assert_says(&refused(own, &["device", "format", &one, &one]), &[&one, "named twice"]);

    // A file, and then both namespaces, one in a word and one by options.
    done(own, &[&["device", "format", "drive", "--size", "240M"], &CUT[..]].concat());
    let said = done(own, &[&["device", "add", &one, "--to", "drive"], &CUT[..]].concat());
    assert_says(&said, &["subsystem = ", POOL]);
    let said = refused(own, &["device", "add", "--address", &address, "--subsystem", POOL, "--to", "drive"]);
    assert_says(&said, &["1 of 2 devices", "more than half"]);
    bench.is_free(1);
    let to = ["--to", "drive", "--to", &one];
    let add = [&["device", "add", "--address", &address, "--subsystem", POOL], &to[..], &CUT].concat();
    done(own, &add);
    assert_eq!(bench.identify(&two)["label"]["devices_of_pool"], 3);
    bench.set_up(&["two", "near", "one"], &[tenant("near", "[\"near\", \"two\"]")]);
    let server = Server::in_folder(own, &[]);
    let mut near = Tenant::new("near");
    near.work(&server, 20);
    assert_says(&refused(own, &add), &["in use"]);
    server.stop();

    // One on which nothing lies leaves, and then one that is gone, with what lay there.
    let from = ["--from", "drive", "--from", &two];
    let said = refused(own, &["device", "remove", &two, "--from", "drive", "--from", &one]);
    assert_says(&said, &["vSSD \"fast-near\" would be lost"]);
    assert_says(
        &refused(own, &["device", "remove", &one, "--from", "drive"]),
        &["more devices than were named"],
    );
    done(own, &[&["device", "remove", &one], &from[..]].concat());
    assert_eq!(bench.identify(&one)["label"], serde_json::Value::Null);
    bench.set_up(&["two", "near"], &[tenant("near", "[\"near\", \"two\"]")]);
    let server = Server::in_folder(own, &[]);
    assert!(!server.announced.contains("missing"), "{}", server.announced);
    near.check(&server, "one of three left");
    server.stop();
    let gone = bench.identify(&two)["label"]["device"].as_str().unwrap().to_owned();
    targets[1].take().unwrap().kill();
    let said = refused(own, &["device", "remove", &gone, "--from", "drive"]);
    assert_says(&said, &["more than half"]);
    let said = done(own, &["device", "remove", &gone, "--from", "drive", "--force"]);
    assert_says(&said, &["fast-near"]);
    targets[1] = Some(bench.targets[1].start());
    bench.set_up(&["near", "two"], &[]);
    let server = Server::in_folder(own, &[]);
    assert_says(
        &server.announced,
        &["missing", "two: it was taken out of the pool", "device format --address"],
    );
    bench.is_free(1);
    server.stop();
}
