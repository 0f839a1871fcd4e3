//! Drives that come to the pool of a server that runs, and leave it.
#![allow(clippy::disallowed_methods, reason = "a host works while drives come")]

use crate::host::known::{Known, run};
use crate::{host, served};
use diecut_initiator::{Command, LbaSpan};
use diecut_testing::Random;
use diecut_units::Buffer;
use host::Host;
use served::{Server, assert_says, diecut, done, refused};
use std::path::Path;
use std::sync::atomic::Ordering;

const LBAS: u64 = 2048;
const SIZE_BYTES: usize = 200 << 20;
/// Where the labels of such a drive lie.
const LABELS: [usize; 2] = [64 << 10, SIZE_BYTES - (1 << 20)];

/// How drives of a server with so many shards are cut: the first shard keeps four lanes.
fn cut(shards: u16) -> [&'static str; 6] {
    match shards {
        1 => ["--erase-block", "1M", "--lanes", "4", "--size", "200M"],
        _ => ["--erase-block", "1M", "--lanes", "8", "--size", "400M"],
    }
}

fn device(name: &str) -> String {
    format!("[[device]]\nkind = \"file\"\npath = \"drive-{name}\"\nname = \"{name}\"\n")
}

/// The set-up of a server on drives, with a tenant whose volume lies on the first of them.
fn write_setup(folder: &Path, drives: &[&str], shards: u16) {
    let tenant = "[[tenant]]\nname = \"a\"\n[[vssd]]\nname = \"vssd-a\"\ntenant = \"a\"\nisolation = \"channel\"\ncapacity = \"32 MiB\"\n\
         [[volume]]\nname = \"data\"\nvssd = \"vssd-a\"\nsize = \"8 MiB\"\n[[subsystem]]\nnqn = \"nqn.2026-11.org.diecut:a\"\n\
         tenant = \"a\"\nallow_any_host = true\n[[subsystem.namespaces]]\nnsid = 1\nvolume = \"data\"\n";
    let devices: String = drives.iter().map(|name| device(name)).collect();
    let text = format!("[server]\nshards = {shards}\n{devices}{tenant}");
    std::fs::write(folder.join("setup.toml"), text).unwrap();
}

/// A folder with drives that are one pool, and a set-up.
fn folder(drives: &[&str], shards: u16) -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    write_setup(folder.path(), drives, shards);
    let paths: Vec<String> = drives.iter().map(|name| format!("drive-{name}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    done(folder.path(), &[&["device", "format"], &cut(shards)[..], &paths].concat());
    folder
}

const SOCKET: [&str; 2] = ["--socket", "control.sock"];

fn ask(folder: &Path, arguments: &[&str]) -> serde_json::Value {
    let said = done(folder, &[&["--json"], &SOCKET[..], arguments].concat());
    if said.is_empty() { serde_json::Value::Null } else { serde_json::from_str(&said).unwrap() }
}

/// The drive of that name is added to the server that runs.
fn add(folder: &Path, name: &str, shards: u16) -> serde_json::Value {
    let path = format!("drive-{name}");
    let cut = cut(shards);
    let cut = if folder.join(&path).exists() { &cut[..4] } else { &cut };
    ask(folder, &[&["device", "add", &*path, "--name", name], cut].concat())
}

/// Names of its devices, and how they are.
fn devices(folder: &Path) -> Vec<String> {
    let list = ask(folder, &["device", "list"]);
    list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

/// A vSSD on these drives, with a volume that hosts see.
fn create(folder: &Path, name: &str, drives: &str) {
    let parts = ["vssd", "create", name, "--tenant", "a", "--isolation", "channel", "--capacity", "32M"];
    ask(folder, &[&parts[..], &["--device", drives]].concat());
    let (volume, nqn) = (format!("data-{name}"), format!("nqn.2026-11.org.diecut:{name}"));
    ask(folder, &["volume", "create", &volume, "--vssd", name, "--size", "8M"]);
    ask(folder, &["subsystem", "create", &nqn, "--tenant", "a", "--allow-any-host"]);
    ask(folder, &["subsystem", "attach", &nqn, "--nsid", "1", "--volume", &volume]);
}

fn delete(folder: &Path, name: &str) {
    ask(folder, &["subsystem", "delete", &format!("nqn.2026-11.org.diecut:{name}"), "--yes"]);
    ask(folder, &["volume", "delete", &format!("data-{name}"), "--yes"]);
    ask(folder, &["vssd", "delete", name, "--yes"]);
}

const SPAN: LbaSpan = LbaSpan { nsid: 1, first: 100, count: 16 };

fn write(server: &Server, tenant: &str, byte: u8) {
    let mut host = Host::connect(server.socket_address(), tenant).unwrap();
    let data = Buffer::copy_from(&[byte; 16 * 4096]);
    run(&mut host, Command::Write { span: SPAN, data, force_unit_access: true }).unwrap();
}

fn holds(server: &Server, tenant: &str, byte: u8) {
    let mut host = Host::connect(server.socket_address(), tenant).unwrap();
    let sink = run(&mut host, Command::Read { span: SPAN, length_bytes: 16 * 4096 }).unwrap();
    assert!(sink.data.values().all(|data| data.iter().all(|found| *found == byte)), "what {tenant} wrote");
}

/// Goal: while a host works, a drive comes to the pool, takes vSSDs and parts of them, survives the death of the server, and leaves when nothing lies
/// on it; then nobody holds it any more. Of one shard, and of three.
#[test]
fn drives_come_to_a_server_that_runs_and_leave_it() {
    for shards in [1, 3] {
        let folder = folder(&["a"], shards);
        let folder = folder.path();
        let server = Server::in_folder(folder, &[]);
        let mut known = Known::new(LBAS);
        let (address, flushes) = (server.socket_address(), known.flush_count());
        let worker = std::thread::spawn(move || {
            let mut host = Host::connect(address, "a").unwrap();
            let said = known.work(&mut host, &mut Random::of(7), u32::MAX);
            (known, said)
        });
        let added = add(folder, "b", shards);
        assert_eq!(added["shape"]["block_size_bytes"], 1 << 20, "{added}");
        assert_eq!(devices(folder), ["a", "b"]);
        create(folder, "late", "b");
        create(folder, "wide", "b,a");
        write(&server, "late", 3);
        write(&server, "wide", 4);
        let seen = flushes.load(Ordering::Relaxed);
        let said = refused(folder, &[&SOCKET[..], &["device", "remove", "b"]].concat());
        assert_says(&said, &["vSSD \"late\", \"wide\" lies on device \"b\""]);
        diecut_testing::wait::wait_for(
            || "the host does not work",
            || (flushes.load(Ordering::Relaxed) > seen).then_some(()),
        );
        server.kill();
        let (mut known, said) = worker.join().unwrap();
        said.unwrap_err();

        // Without the drive in the set-up the pool is not whole: half of it decides nothing.
        let serve = ["serve", "--listen", "127.0.0.1:0", "--setup", "setup.toml", "--data", "."];
        assert_says(&refused(folder, &serve), &["1 of 2 devices of the pool are there", "drive-b"]);
        write_setup(folder, &["a", "b"], shards);
        let server = Server::in_folder(folder, &[]);
        holds(&server, "late", 3);
        holds(&server, "wide", 4);
        known.check(&mut Host::connect(server.socket_address(), "a").unwrap(), "after a kill");
        delete(folder, "late");
        delete(folder, "wide");
        assert_says(&refused(folder, &["device", "identify", "--json", "nowhere"]), &["nowhere"]);
        let removed = ask(folder, &["device", "remove", "b"]);
        assert_eq!(removed["removed"], serde_json::json!([added["device"]]));
        assert_eq!(devices(folder), ["a"]);
        // Nobody holds it, and no label is on it.
        let known_of: serde_json::Value =
            serde_json::from_str(&done(folder, &["--json", "device", "identify", "drive-b"])).unwrap();
        assert!(known_of[0]["label"].is_null(), "{known_of}");
        let said = refused(folder, &[&SOCKET[..], &["device", "remove", "a"]].concat());
        assert_says(&said, &["device \"a\" is the only one of the server"]);
        // It comes again, as another one, and one more beside it.
        let again = add(folder, "b", shards);
        assert_ne!(again["device"], added["device"]);
        add(folder, "c", shards);
        assert_eq!(devices(folder), ["a", "b", "c"]);
        create(folder, "last", "c");
        write(&server, "last", 5);
        ask(folder, &["device", "remove", "drive-b"]);
        server.stop();
        write_setup(folder, &["a", "c"], shards);
        let server = Server::in_folder(folder, &[]);
        assert_eq!(devices(folder), ["a", "c"]);
        holds(&server, "last", 5);
        known.check(&mut Host::connect(server.socket_address(), "a").unwrap(), "at the end");
        server.stop();
    }
}

/// Goal: what is no empty drive is refused by a server that runs, with nothing written to it, and what a stopped one is told is not taken.
#[test]
fn a_server_that_runs_takes_no_drive_that_holds_something() {
    let folder = folder(&["a"], 1);
    let folder = folder.path();
    done(folder, &[&["device", "format", "other"], &cut(1)[..]].concat());
    let said = refused(folder, &[&SOCKET[..], &["device", "add", "other"]].concat());
    assert_says(&said, &["no server answers", "name each of its drives with --to"]);
    let server = Server::in_folder(folder, &[]);
    let before = std::fs::read(folder.join("other")).unwrap();
    for (add, words) in [
        (
            &["other", "--erase-block", "1M", "--lanes", "4"][..],
            &["other", "it is the device", "--force"][..],
        ),
        (&["drive-a"], &["drive-a", "this server has that drive already", "\"a\""]),
        (&["nowhere"], &["nowhere"]),
        (
            &["new", "--size", "400M", "--erase-block", "1M", "--name", "a"],
            &["a device is called \"a\" already"],
        ),
        (&["storage:4420/nqn.2026-11.x:a/1"], &["while the server is stopped", "--to"]),
    ] {
        let said = refused(folder, &[&SOCKET[..], &["device", "add"], add].concat());
        assert_says(&said, words);
    }
    assert!(!folder.join("new").exists());
    assert_eq!(std::fs::read(folder.join("other")).unwrap(), before);
    assert_eq!(devices(folder), ["a"]);
    // It may be lost; the drives of the pool may be named as for a server that is stopped.
    ask(folder, &[&["device", "add", "other", "--force", "--to", "drive-a"], &cut(1)[..4]].concat());
    let said = refused(folder, &[&SOCKET[..], &["device", "remove", "nobody"]].concat());
    assert_says(&said, &["there is no device \"nobody\""]);
    let said = refused(folder, &[&SOCKET[..], &["device", "remove", "a", "--force"]].concat());
    assert_says(&said, &["--force is for a server that is stopped"]);
    let other = folder.join("other");
    ask(folder, &["device", "remove", other.to_str().unwrap(), "--from", "drive-a"]);
    assert_eq!(devices(folder), ["a"]);
    let output = diecut(folder, &[&["device", "format", "other"], &cut(1)[..4]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    server.stop();
}

/// How a cut leaves the label of a drive.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Before,
    Joins,
    There,
}

/// Goal: after a cut at any label the server starts with the pool of before or with that of afterwards, and the same command goes on. Method: the labels
/// of a whole addition, put back in part.
#[test]
fn an_addition_that_is_cut_short_goes_on() {
    let folder = folder(&["a", "b"], 1);
    let folder = folder.path();
    let server = Server::in_folder(folder, &[]);
    write(&server, "a", 9);
    let images = |names: &[&str]| -> Vec<Vec<u8>> {
        names.iter().map(|name| std::fs::read(folder.join(format!("drive-{name}"))).unwrap()).collect()
    };
    let before = images(&["a", "b"]);
    add(folder, "c", 1);
    server.stop();
    let all = ["a", "b", "c"];
    let after = images(&all);
    let leave = |at: usize, state: State| {
        let mut bytes = after[at].clone();
        for offset in LABELS {
            let label = &mut bytes[offset..offset + 4096];
            match state {
                State::Before => label.copy_from_slice(&before[at][offset..offset + 4096]),
                State::Joins => {
                    label[128 + 2 * 32 + 16] = 1;
                    let check = [&label[..12], &label[16..]].concat();
                    label[12..16].copy_from_slice(&diecut_units::checksum(&check).to_le_bytes());
                }
                State::There => {}
            }
        }
        std::fs::write(folder.join(format!("drive-{}", all[at])), bytes).unwrap();
    };
    write_setup(folder, &all, 1);
    for written in 0..=4 {
        for at in 0..2 {
            let state = match (written > at, written > at + 2) {
                (_, true) => State::There,
                (true, _) => State::Joins,
                _ => State::Before,
            };
            leave(at, state);
        }
        leave(2, State::Joins);
        let server = Server::in_folder(folder, &[]);
        if written <= 2 {
            assert_says(&server.announced, &["missing", "c: ", "was being added", "device add drive-c"]);
            add(folder, "c", 1);
        }
        holds(&server, "a", 9);
        let list = ask(folder, &["device", "list"]);
        let are_there = list.as_array().unwrap().iter().all(|one| one.get("reason").is_none());
        assert!(are_there && devices(folder) == all, "{written} labels were written: {list}");
        create(folder, "late", "c");
        write(&server, "late", 1);
        server.kill();
        let server = Server::in_folder(folder, &[]);
        holds(&server, "late", 1);
        server.stop();
    }
}

/// Goal: what lies on a drive moves to the others while its host works, the drive leaves, and all that was flushed is there after a kill; where there is
/// nowhere to go it is said at once.
#[test]
fn a_drive_is_evacuated_while_a_host_works() {
    let folder = folder(&["a", "b"], 1);
    let folder = folder.path();
    let server = Server::in_folder(folder, &[]);
    create(folder, "wide", "b,a");
    let said = refused(folder, &[&SOCKET[..], &["device", "evacuate", "a"]].concat());
    assert_says(&said, &["device \"a\" cannot be evacuated, the others lack room"]);
    add(folder, "c", 1);
    let on = |vssd: &str| ask(folder, &["vssd", "show", vssd])["device"].to_string();
    let from = if on("vssd-a").contains("\"a\"") { "a" } else { "b" };
    let mut known = Known::new(LBAS);
    let (address, flushes) = (server.socket_address(), known.flush_count());
    let worker = std::thread::spawn(move || {
        let mut host = Host::connect(address, "a").unwrap();
        let said = known.work(&mut host, &mut Random::of(9), u32::MAX);
        (known, said)
    });
    write(&server, "wide", 6);
    let report = ask(folder, &["device", "evacuate", from]);
    assert_eq!(report, serde_json::json!({ "device": from, "evacuated": true }));
    for vssd in ["vssd-a", "wide"] {
        assert!(!on(vssd).contains(&format!("\"{from}\"")), "{vssd} lies on {}", on(vssd));
    }
    holds(&server, "wide", 6);
    ask(folder, &["device", "remove", from]);
    let seen = flushes.load(Ordering::Relaxed);
    diecut_testing::wait::wait_for(
        || "the host does not work",
        || (flushes.load(Ordering::Relaxed) > seen).then_some(()),
    );
    server.kill();
    let (mut known, said) = worker.join().unwrap();
    said.unwrap_err();
    let rest: Vec<&str> = ["a", "b", "c"].into_iter().filter(|name| *name != from).collect();
    write_setup(folder, &rest, 1);
    let server = Server::in_folder(folder, &[]);
    known.check(&mut Host::connect(server.socket_address(), "a").unwrap(), "after a kill");
    holds(&server, "wide", 6);
    server.stop();
}

/// Goal: an evacuation that is called off ends while a vSSD is on its way: what was there stays and is whole, and the drive takes new vSSDs again. Method: even
/// wear, whose rate it has, is slow.
#[test]
fn an_evacuation_is_called_off() {
    let folder = folder(&["a", "b", "c"], 1);
    let folder = folder.path();
    let server = Server::in_folder(folder, &[]);
    write(&server, "a", 7);
    ask(folder, &["wear", "set", "--rate", "1M"]);
    let on = |vssd: &str| {
        let device = ask(folder, &["vssd", "show", vssd])["device"].clone();
        device.as_str().or(device[0].as_str()).unwrap().to_owned()
    };
    let from = on("vssd-a");
    ask(folder, &["device", "evacuate", &from, "--no-wait"]);
    let at = ["a", "b", "c"].iter().position(|name| *name == from).unwrap();
    diecut_testing::wait::wait_until(
        || "nothing moves",
        || ask(folder, &["device", "list"])[at]["moving"].is_object(),
    );
    assert_says(
        &done(folder, &[&SOCKET[..], &["device", "list"]].concat()),
        &[&from, "evacuating: vSSD vssd-a"],
    );
    let other = ["a", "b", "c"].into_iter().find(|name| *name != from).unwrap();
    let said = refused(folder, &[&SOCKET[..], &["device", "evacuate", other]].concat());
    assert_says(&said, &["a device is being evacuated", "--cancel"]);
    ask(folder, &["device", "evacuate", &from, "--cancel"]);
    let is_over = || ask(folder, &["device", "list"])[at].get("turning").is_none();
    diecut_testing::wait::wait_until(|| "it goes on", is_over);
    assert_eq!(on("vssd-a"), from);
    holds(&server, "a", 7);
    create(folder, "late", &from);
    write(&server, "late", 3);
    server.kill();
    let server = Server::in_folder(folder, &[]);
    holds(&server, "a", 7);
    assert_eq!(on("vssd-a"), from);
    // That of another device, which is none, ends nothing.
    ask(folder, &["device", "evacuate", &from, "--no-wait"]);
    ask(folder, &["device", "evacuate", other, "--cancel"]);
    ask(folder, &["wear", "set", "--rate", "100M"]);
    diecut_testing::wait::wait_until(
        || format!("not both went on: {}", server.log()),
        || on("vssd-a") != from && on("late") != from,
    );
    let said = refused(folder, &[&SOCKET[..], &["device", "remove", other]].concat());
    assert_says(&said, &[&format!("\"{from}\" is being evacuated"), "--cancel"]);
    server.stop();
}
