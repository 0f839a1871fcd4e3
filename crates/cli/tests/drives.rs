//! A server on several drives that are one pool: what lies where, and what is served when one of them is not there.

use crate::{host, served};
use diecut_initiator::{Collect, Command, LbaSpan, Token};
use diecut_testing::wait::wait_until;
use diecut_units::Buffer;
use host::Host;
use served::{Server, assert_says, done, refused};
use std::path::Path;

const LBA_BYTES: usize = 4096;
const DRIVES: [&str; 3] = ["a", "b", "c"];

/// The set-up's table of a drive.
fn device(path: &str) -> String {
    format!("[[device]]\nkind = \"file\"\npath = \"drive-{path}\"\nname = \"{path}\"\n")
}

/// A tenant with a volume on a drive of its own.
fn tenant(name: &str) -> String {
    format!(
        "[[tenant]]\nname = \"{name}\"\n[[vssd]]\nname = \"fast-{name}\"\ntenant = \"{name}\"\ndevice = \"{name}\"\n\
         isolation = \"channel\"\ncapacity = \"32 MiB\"\n[[volume]]\nname = \"data-{name}\"\nvssd = \"fast-{name}\"\nsize = \"8 MiB\"\n\
         [[subsystem]]\nnqn = \"nqn.2026-11.org.diecut:{name}\"\ntenant = \"{name}\"\nallow_any_host = true\n\
         [[subsystem.namespaces]]\nnsid = 1\nvolume = \"data-{name}\"\n"
    )
}

fn write_setup(folder: &Path, drives: &[&str]) {
    let devices: String = drives.iter().map(|path| device(path)).collect();
    let tenants: String = DRIVES.iter().map(|name| tenant(name)).collect();
    std::fs::write(folder.join("setup.toml"), devices + &tenants).unwrap();
}

/// A folder with three drives that are one pool, and a set-up.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    write_setup(folder.path(), &DRIVES);
    format(folder.path(), &["drive-a", "drive-b", "drive-c"]);
    folder
}

fn format(folder: &Path, paths: &[&str]) -> serde_json::Value {
    let arguments = ["--json", "device", "format", "--erase-block", "1M", "--lanes", "4", "--size", "200M"];
    serde_json::from_str(&done(folder, &[&arguments, paths].concat())).unwrap()
}

fn ask(folder: &Path, arguments: &[&str]) -> serde_json::Value {
    let arguments = [&["--json", "--socket", "control.sock"], arguments].concat();
    serde_json::from_str(&done(folder, &arguments)).unwrap()
}

fn run(host: &mut Host, command: Command) -> Collect {
    host.queue.submit(Token(1), command);
    let mut sink = Collect::default();
    while sink.completions.is_empty() {
        host.exchange(&mut sink).unwrap();
    }
    assert!(sink.completions[0].status.is_success(), "{:?}", sink.completions);
    sink
}

const SPAN: LbaSpan = LbaSpan { nsid: 1, first: 100, count: 16 };

fn write(server: &Server, tenant: &str, byte: u8) {
    let mut host = Host::connect(server.socket_address(), tenant).unwrap();
    let data = Buffer::copy_from(&[byte; 16 * LBA_BYTES]);
    run(&mut host, Command::Write { span: SPAN, data, force_unit_access: true });
}

fn holds(server: &Server, tenant: &str, byte: u8) {
    let mut host = Host::connect(server.socket_address(), tenant).unwrap();
    let sink = run(&mut host, Command::Read { span: SPAN, length_bytes: 16 * LBA_BYTES as u32 });
    assert!(sink.data[&Token(1)].iter().all(|found| *found == byte), "what {tenant} wrote");
}

fn names(list: &serde_json::Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

/// The UUID of a drive.
fn uuid(folder: &Path, path: &str) -> String {
    let known: serde_json::Value =
        serde_json::from_str(&done(folder, &["--json", "device", "identify", path])).unwrap();
    known[0]["label"]["device"].as_str().unwrap_or_else(|| panic!("{known}")).to_owned()
}

/// A command that takes drives out of a pool.
fn remove<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["device", "remove"], more].concat()
}

/// Goal: a drive that is gone for good, or on which nothing lies, is taken out of its pool; what lay on it can be deleted, the others are served as
/// before, and nothing is given up unasked.
#[test]
fn a_drive_is_taken_out_of_a_pool() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::in_folder(folder, &[]);
    for (at, tenant) in (1..).zip(DRIVES) {
        write(&server, tenant, at);
    }
    let wide = ["--socket", "control.sock", "vssd", "create", "wide", "--tenant", "a"];
    done(
        folder,
        &[&wide[..], &["--isolation", "channel", "--capacity", "16 MiB", "--device", "a,b"]].concat(),
    );
    server.stop();
    let (gone, third) = (uuid(folder, "drive-b"), uuid(folder, "drive-c"));

    // Of those that are there nothing is lost unasked, and those that stay are all named.
    let from = ["--from", "drive-a", "--from", "drive-c"];
    let said = refused(folder, &remove(&[&["drive-b"], &from[..]].concat()));
    assert_says(&said, &["vSSD \"fast-b\", \"wide\" would be lost", "--force"]);
    let said = refused(folder, &remove(&["drive-b", "--from", "drive-a"]));
    assert_says(&said, &["the pool has more devices than were named"]);
    let stranger = "0e0e0e0e-0e0e-0e0e-0e0e-0e0e0e0e0e0e";
    assert_says(&refused(folder, &remove(&[&[stranger], &from[..]].concat())), &["the pool has no device"]);
    let said = refused(folder, &remove(&["drive-a", "--from", "drive-a", "--from", "drive-b"]));
    assert_says(&said, &["drive-a: it is named as one that stays"]);

    // It is gone for good.
    std::fs::rename(folder.join("drive-b"), folder.join("away")).unwrap();
    let said = refused(folder, &remove(&[&[&*gone], &from[..]].concat()));
    assert_says(&said, &["vSSD \"fast-b\", \"wide\" would be lost"]);
    let arguments = [&["--json"], &*remove(&[&[&*gone], &from[..], &["--force"]].concat())].concat();
    let said: serde_json::Value = serde_json::from_str(&done(folder, &arguments)).unwrap();
    assert_eq!(said, serde_json::json!({ "removed": [gone], "lost_vssds": ["fast-b", "wide"] }));
    done(folder, &remove(&[&[&*gone], &from[..]].concat()));

    // One that comes back is none of the pool.
    std::fs::rename(folder.join("away"), folder.join("drive-b")).unwrap();
    let server = Server::in_folder(folder, &[]);
    assert_says(&server.announced, &["missing", "b: it was taken out of the pool"]);
    server.stop();
    // Nor is it when it is added: it is another device then.
    std::fs::copy(folder.join("drive-b"), folder.join("copy")).unwrap();
    let cut = ["--erase-block", "1M", "--lanes", "4", "--to", "drive-a", "--to", "drive-c"];
    done(folder, &[&["device", "add", "copy"], &cut[..]].concat());
    let another = uuid(folder, "copy");
    assert_ne!(another, gone);
    done(folder, &remove(&[&["copy"], &from[..]].concat()));
    assert_says(&refused(folder, &remove(&[&["copy"], &from[..]].concat())), &["not formatted"]);
    let tenants: String = DRIVES.iter().map(|name| tenant(name)).collect();
    std::fs::write(folder.join("setup.toml"), device("c") + &device("a") + &tenants).unwrap();
    let server = Server::in_folder(folder, &[]);
    assert!(!server.announced.contains("missing"), "{}", server.announced);
    holds(&server, "a", 1);
    holds(&server, "c", 3);
    let reason = |name: &str| ask(folder, &["vssd", "show", name])["read_only_reason"].clone();
    assert_eq!(reason("fast-b"), "its device \"b\" is taken out of the pool");
    assert_eq!(reason("wide"), "its device \"b\" is taken out of the pool");
    let administer = |arguments: &[&str]| done(folder, &[&["--socket", "control.sock"], arguments].concat());
    let said = refused(folder, &["--socket", "control.sock", "vssd", "repair", "fast-b"]);
    assert_says(&said, &["what it held is lost; it can be deleted"]);
    administer(&["subsystem", "delete", "nqn.2026-11.org.diecut:b", "--yes"]);
    administer(&["volume", "delete", "data-b", "--yes"]);
    administer(&["vssd", "delete", "fast-b", "--yes"]);
    administer(&["vssd", "delete", "wide", "--yes"]);
    administer(&[
        "vssd",
        "create",
        "again",
        "--tenant",
        "a",
        "--isolation",
        "channel",
        "--capacity",
        "16MiB",
    ]);
    let free = ask(folder, &["device", "list"])[1]["free_channels"].clone();
    server.kill();
    let server = Server::in_folder(folder, &[]);
    holds(&server, "a", 1);
    assert_eq!(ask(folder, &["device", "list"])[1]["free_channels"], free);
    server.stop();

    // One of two on which nothing lies that is there; then the only one that is left of two.
    let from_a = ["--from", "drive-a"];
    let said = refused(folder, &remove(&[&["drive-c"], &from_a[..]].concat()));
    assert_says(&said, &["would be lost"]);
    std::fs::remove_file(folder.join("drive-c")).unwrap();
    let said = refused(folder, &remove(&[&[&*third], &from_a[..]].concat()));
    assert_says(&said, &["more than half"]);
    done(folder, &remove(&[&[&*third], &from_a[..], &["--force"]].concat()));
    std::fs::write(folder.join("setup.toml"), device("a") + &tenants).unwrap();
    let server = Server::in_folder(folder, &[]);
    holds(&server, "a", 1);
    server.stop();
}

/// Goal: a vSSD has parts on several drives; what a host wrote is found again in whichever order these are named, and without one of them the vSSD
/// is away as a whole, by name.
#[test]
fn a_vssd_has_parts_on_several_drives() {
    let folder = folder();
    let folder = folder.path();
    let wide = tenant("wide").replace("device = \"wide\"", "device = [\"c\", \"a\"]");
    let both = device("a") + &device("b") + &device("c") + &wide;
    std::fs::write(folder.join("setup.toml"), both).unwrap();
    let server = Server::in_folder(folder, &[]);
    assert_says(&server.announced, &["vSSD", "fast-wide: channel/die c:0/0 a:0/0"]);
    let vssd = ask(folder, &["vssd", "show", "fast-wide"]);
    assert_eq!(vssd["device"], serde_json::json!(["c", "a"]));
    assert_eq!(vssd["placement"]["unit_devices"], serde_json::json!(["c", "a"]));
    assert_says(&done(folder, &["--socket", "control.sock", "vssd", "list"]), &["fast-wide", "c:0/0"]);
    write(&server, "wide", 7);
    let shown = ask(folder, &["device", "show", "c"]);
    assert_eq!(
        (&shown["name"], &shown["vssds"]),
        (&"c".into(), &serde_json::json!(["fast-wide"])),
        "{shown}"
    );
    assert!(shown["drive"]["properties"]["logical_block_bytes"].is_u64(), "{shown}");
    let said = done(folder, &["--socket", "control.sock", "device", "show", "c"]);
    assert_says(&said, &["block", "bytes"]);
    assert_says(&said, &["fast-wide", "wide", "0/0"]);
    assert_says(
        &done(folder, &["--socket", "control.sock", "device", "show", "b"]),
        &["No vSSD lies on it."],
    );
    let said = refused(folder, &["--socket", "control.sock", "device", "show", "d"]);
    assert_says(&said, &["there is no device \"d\"", "diecut device list"]);
    // What was not said was chosen, and stays; what cannot be is refused by name.
    let create = |name: &str, more: &[&str]| -> Vec<String> {
        let usual = ["--socket", "control.sock", "vssd", "create", name, "--tenant", "wide"];
        let what = ["--isolation", "channel", "--capacity", "16 MiB"];
        [&usual[..], &what[..], more].concat().into_iter().map(str::to_owned).collect()
    };
    let made = create("chosen", &["--parts", "3"]);
    let made: Vec<&str> = made.iter().map(String::as_str).collect();
    done(folder, &made);
    done(folder, &made);
    let vssd = ask(folder, &["vssd", "show", "chosen"]);
    assert_eq!(vssd["device"].as_array().unwrap().len(), 3, "{vssd}");
    for (more, said) in [
        (&["--parts", "4"][..], "4 parts lie on 4 devices, and there are 3: \"a\", \"b\", \"c\""),
        (&["--device", "a,d"], "there is no device \"d\""),
        (&["--device", "a,a"], "device names \"a\" twice"),
        (&["--device", "a,b", "--parts", "3"], "parts is 3, and device names 2"),
        (&["--parts", "0"], "parts is 0"),
        (&["--parts", "2", "--use", "zones"], "can serve volumes"),
    ] {
        let wrong = create("wrong", more);
        let wrong: Vec<&str> = wrong.iter().map(String::as_str).collect();
        assert_says(&refused(folder, &wrong), &[said]);
    }
    server.kill();

    // Another order of the drives.
    std::fs::write(folder.join("setup.toml"), device("c") + &device("b") + &device("a") + &wide).unwrap();
    let server = Server::in_folder(folder, &[]);
    holds(&server, "wide", 7);
    write(&server, "wide", 8);
    server.kill();

    // Without one of its drives it is away, whatever the other one has of it.
    std::fs::rename(folder.join("drive-a"), folder.join("away")).unwrap();
    let server = Server::in_folder(folder, &[]);
    let reason = |name: &str| ask(folder, &["vssd", "show", name])["read_only_reason"].clone();
    assert_eq!(reason("fast-wide"), "its device \"a\" is not there");
    assert_eq!(reason("chosen"), "its device \"a\" is not there");
    let said = refused(folder, &["--socket", "control.sock", "vssd", "delete", "chosen", "--yes"]);
    assert_says(&said, &["its device \"a\" is not there"]);
    server.stop();

    std::fs::rename(folder.join("away"), folder.join("drive-a")).unwrap();
    let server = Server::in_folder(folder, &[]);
    holds(&server, "wide", 8);
    done(folder, &["--socket", "control.sock", "vssd", "delete", "chosen", "--yes"]);
    server.stop();
}

/// Goal: three drives are one pool, in whichever order they are named and by whichever path; without one of them the rest is served and said, and
/// with all of them all is there again.
#[test]
fn three_drives_are_served_and_two_of_them() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::in_folder(folder, &[]);
    for name in DRIVES {
        assert_says(&server.announced, &["device", &format!("{name} in drive-{name}")]);
        assert_says(&server.announced, &["vSSD", &format!("fast-{name}: on {name}, channel/die")]);
    }
    assert_says(&server.announced, &["durability", "machine"]);
    for (at, tenant) in (1..).zip(DRIVES) {
        write(&server, tenant, at);
    }
    let status = ask(folder, &["status"]);
    assert_eq!(names(&status["devices"]), DRIVES);
    for (device, tenant) in status["devices"].as_array().unwrap().iter().zip(DRIVES) {
        assert!(device["free_channels"].as_u64() < device["channels"].as_u64(), "each has a vSSD: {device}");
        let vssd = ask(folder, &["vssd", "show", &format!("fast-{tenant}")]);
        assert_eq!(vssd["device"], tenant);
    }
    assert_eq!(names(&ask(folder, &["device", "list"])), DRIVES);
    server.kill();

    // Another order, and the path of one has changed.
    std::fs::rename(folder.join("drive-b"), folder.join("drive-x")).unwrap();
    let moved = device("b").replace("drive-b", "drive-x");
    let tenants: String = DRIVES.iter().map(|name| tenant(name)).collect();
    std::fs::write(folder.join("setup.toml"), device("c") + &moved + &device("a") + &tenants).unwrap();
    let server = Server::in_folder(folder, &[]);
    for (at, tenant) in (1..).zip(DRIVES) {
        holds(&server, tenant, at);
    }
    server.stop();

    // One is away.
    std::fs::rename(folder.join("drive-x"), folder.join("away")).unwrap();
    let server = Server::in_folder(folder, &[]);
    assert_says(&server.announced, &["missing", "b: ", "drive-x", "see whether the drive is there"]);
    holds(&server, "a", 1);
    write(&server, "c", 33);
    let status = ask(folder, &["status"]);
    assert_eq!(status["missing_devices"][0]["name"], "b");
    assert_says(&done(folder, &["--socket", "control.sock", "device", "show", "b"]), &["state", "not there"]);
    let vssd = ask(folder, &["vssd", "show", "fast-b"]);
    assert_eq!(vssd["read_only_reason"], "its device \"b\" is not there");
    let said = refused(folder, &["--socket", "control.sock", "vssd", "delete", "fast-b", "--yes"]);
    assert_says(&said, &["its device \"b\" is not there"]);
    ask(folder, &["tenant", "create", "late"]);
    assert_eq!(names(&ask(folder, &["device", "list"])), ["c", "a", "b"]);
    assert_says(&done(folder, &["--socket", "control.sock", "device", "list"]), &["not there"]);
    server.kill();

    // It is back, and missed a change.
    std::fs::rename(folder.join("away"), folder.join("drive-b")).unwrap();
    write_setup(folder, &["b", "a", "c"]);
    let server = Server::in_folder(folder, &[]);
    holds(&server, "b", 2);
    holds(&server, "c", 33);
    assert!(names(&ask(folder, &["status"])["tenants"]).contains(&"late".to_owned()));
    server.stop();
}

/// Goal: too few drives, drives of two pools, copies, and drives that nobody formatted are refused by name, with what to do.
#[test]
fn pools_that_are_not_whole_are_refused_by_name() {
    let folder = folder();
    let folder = folder.path();
    let is_refused = |words: &[&str]| {
        let said =
            refused(folder, &["serve", "--setup", "setup.toml", "--data", ".", "--listen", "127.0.0.1:0"]);
        assert_says(&said, words);
    };
    Server::in_folder(folder, &[]).stop();
    write_setup(folder, &["a"]);
    is_refused(&["1 of 3 devices", "more than half", "drive-b", "drive-c", "Name them in the set-up"]);
    std::fs::copy(folder.join("drive-a"), folder.join("drive-d")).unwrap();
    write_setup(folder, &["a", "b", "c", "d"]);
    is_refused(&["drive-a and ", "drive-d", "one is a copy of the other"]);
    std::fs::remove_file(folder.join("drive-d")).unwrap();
    format(folder, &["drive-d"]);
    is_refused(&["drive-a", "drive-d", "belongs to the pool", "a server has one"]);
    let mixed = device("a") + &device("b") + "[[device]]\nprofile = \"tiny\"\n";
    std::fs::write(folder.join("setup.toml"), mixed).unwrap();
    is_refused(&["3 devices", "emulated", "start a server of its own"]);
    write_setup(folder, &["a", "b", "c"]);
    let said = refused(
        folder,
        &["serve", "--setup", "setup.toml", "--data", ".", "--listen", "127.0.0.1:0", "--shards", "2"],
    );
    assert_says(&said, &["server.shards = 2", "these have 12", "keeps 12", "use 1 or fewer", "--lanes"]);
    // A whole format, or none: the second one is not free, so the first one is not touched.
    let before = std::fs::read(folder.join("drive-d")).unwrap();
    std::fs::write(folder.join("drive-e"), [b"XFSB".as_slice(), &[0; 1 << 20]].concat()).unwrap();
    std::fs::File::options().write(true).open(folder.join("drive-e")).unwrap().set_len(200 << 20).unwrap();
    std::fs::remove_file(folder.join("drive-d")).unwrap();
    std::fs::File::create(folder.join("drive-d")).unwrap().set_len(200 << 20).unwrap();
    let said =
        refused(folder, &["device", "format", "drive-d", "drive-e", "--erase-block", "1M", "--lanes", "4"]);
    assert_says(&said, &["drive-e", "XFS"]);
    assert!(
        std::fs::read(folder.join("drive-d")).unwrap().iter().all(|byte| *byte == 0),
        "it was not touched"
    );
    assert_eq!(before.len(), 200 << 20);
    assert_says(&refused(folder, &["device", "format", "drive-d", "drive-d"]), &["drive-d", "named twice"]);
}

/// What a label says of a drive that is added.
#[derive(Clone, Copy)]
enum State {
    Before,
    Joins,
    There,
}

/// Goal: a drive is added to a pool whose server is stopped, and what lies there stays; after a cut at any label the same command goes on, and the
/// server starts meanwhile. Method: the labels of a whole join, put back in part.
#[test]
fn a_drive_is_added_to_a_pool() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::in_folder(folder, &[]);
    write(&server, "a", 7);
    let add = ["device", "add", "drive-d", "--to", "drive-a", "--to", "drive-b", "--to", "drive-c"];
    let add = [&add[..], &["--erase-block", "1M", "--lanes", "4"]].concat();
    let sized = [&add[..], &["--size", "200M"]].concat();
    assert_says(&refused(folder, &sized), &["drive-a is in use"]);
    assert!(!folder.join("drive-d").exists());
    server.stop();
    assert_says(
        &refused(folder, &[&sized[..3], &["--to", "drive-a"], &sized[9..]].concat()),
        &["more than half"],
    );
    let labels = |names: &[&str]| -> Vec<Vec<u8>> {
        names.iter().map(|name| std::fs::read(folder.join(format!("drive-{name}"))).unwrap()).collect()
    };
    let before = labels(&DRIVES);
    assert_says(&done(folder, &sized), &["drive-d is the device"]);
    let all = ["a", "b", "c", "d"];
    let after = labels(&all);
    // How a cut leaves the label of a drive: as it was before, saying that the new one joins, or that it is there.
    let leave = |at: usize, state: State| {
        let mut bytes = after[at].clone();
        for offset in [64 << 10, (200 << 20) - (1 << 20)] {
            let label = &mut bytes[offset..offset + 4096];
            match state {
                State::Before => label.copy_from_slice(&before[at][offset..offset + 4096]),
                State::Joins => {
                    label[128 + 3 * 32 + 16] = 1;
                    let check = [&label[..12], &label[16..]].concat();
                    label[12..16].copy_from_slice(&diecut_units::checksum(&check).to_le_bytes());
                }
                State::There => {}
            }
        }
        std::fs::write(folder.join(format!("drive-{}", all[at])), bytes).unwrap();
    };
    write_setup(folder, &all);
    for written in 0..=6 {
        for at in 0..3 {
            let state = match (written > at, written > at + 3) {
                (_, true) => State::There,
                (true, _) => State::Joins,
                _ => State::Before,
            };
            leave(at, state);
        }
        leave(3, State::Joins);
        let has_joined = written > 3;
        for is_added in [false, true] {
            let server = Server::in_folder(folder, &[]);
            assert_eq!(names(&ask(folder, &["device", "list"])), all, "{written} labels were written");
            if !has_joined && !is_added {
                let words = ["missing", "d: ", "was being added", "device add drive-d"];
                assert_says(&server.announced, &words);
            }
            holds(&server, "a", 7);
            server.stop();
            if !is_added {
                assert_says(&done(folder, &add), &["drive-d is the device"]);
            }
        }
    }
    let server = Server::in_folder(folder, &[]);
    assert_eq!(names(&ask(folder, &["device", "list"])), all);
    ask(
        folder,
        &[
            "vssd",
            "create",
            "late",
            "--tenant",
            "a",
            "--isolation",
            "channel",
            "--capacity",
            "32M",
            "--device",
            "d",
        ],
    );
    holds(&server, "a", 7);
    server.kill();
    let server = Server::in_folder(folder, &[]);
    assert_eq!(ask(folder, &["vssd", "show", "late"])["device"], "d");
    server.stop();
    assert_says(
        &refused(folder, &["device", "format", "drive-d", "--erase-block", "1M", "--lanes", "4"]),
        &["drive-d", "--force"],
    );
}

/// Goal: a pool whose drives came to another machine is found by its labels and served there, and what cannot be served is named. Method: the drives of a
/// server under other names in another folder, all, some and too few of them, beside one of another pool.
#[test]
fn a_pool_is_found_by_its_labels() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::in_folder(folder, &[]);
    for (at, tenant) in (1..).zip(DRIVES) {
        write(&server, tenant, at);
    }
    server.stop();
    let there = folder.join("there");
    std::fs::create_dir(&there).unwrap();
    for (name, to) in [("drive-a", "x"), ("drive-b", "y"), ("drive-c", "z")] {
        std::fs::rename(folder.join(name), there.join(to)).unwrap();
    }
    let third = uuid(&there, "z");
    format(&there, &["other"]);
    std::fs::write(there.join("plain"), [7; 100_000]).unwrap();

    assert_says(&refused(&there, &["device", "import", "x", "plain"]), &["plain", "no label of diecut"]);
    let said = done(&there, &["device", "import", "y", "x", "other"]);
    assert_says(&said, &[&third, "not found"]);
    assert_says(&said, &["path", there.join("x").to_str().unwrap()]);
    let said = refused(&there, &["device", "import", "y", "x", "other", "--setup", "setup.toml"]);
    assert_says(&said, &["2 pools were found", "--pool"]);
    let said = refused(&there, &["device", "import", "y", "--setup", "setup.toml"]);
    assert_says(&said, &["no set-up is made", "1 of 3 devices"]);
    assert!(!there.join("setup.toml").exists());

    let found: serde_json::Value =
        serde_json::from_str(&done(&there, &["--json", "device", "import", "y", "x"])).unwrap();
    assert_eq!(found[0]["missing"], serde_json::json!([third]));
    let pool = found[0]["pool"].as_str().unwrap();
    let import = ["device", "import", "y", "x", "z", "other", "--pool", pool, "--setup", "setup.toml"];
    assert_says(&done(&there, &import), &["setup.toml is its set-up", "diecut serve --setup setup.toml"]);
    assert_says(&refused(&there, &import), &["setup.toml is there already"]);
    let server = Server::in_folder(&there, &[]);
    for (at, tenant) in (1..).zip(DRIVES) {
        holds(&server, tenant, at);
    }
    assert!(ask(&there, &["status"])["missing_devices"].as_array().is_none_or(Vec::is_empty));
    drop(server);
}

/// Goal: a drive that is cut short or deleted under a server is told of in the log, once, and by the commands; and reads that fail are told of once, with the place.
#[test]
fn a_drive_that_is_cut_or_deleted_meanwhile_is_named() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::in_folder(folder, &[]);
    write(&server, "a", 1);
    let damage = |at: usize| ask(folder, &["device", "list"])[at]["damage"].as_str().map(str::to_owned);
    assert_eq!((damage(0), damage(1)), (None, None));
    std::fs::File::options().write(true).open(folder.join("drive-a")).unwrap().set_len(128 << 10).unwrap();
    std::fs::remove_file(folder.join("drive-b")).unwrap();
    wait_until(
        || format!("nothing is said: {}", server.log()),
        || damage(0).is_some() && damage(1).is_some(),
    );
    assert_says(&server.log(), &["WARN", "has 131072 bytes now, and had 209715200", "device=\"a\""]);
    assert_says(&server.log(), &["WARN", "was deleted", "`diecut device evacuate b`"]);
    let list = done(folder, &["--socket", "control.sock", "device", "list"]);
    assert_says(&list, &["a ", "damaged", "drive-a"]);
    assert_says(&list, &["b is damaged: the drive was deleted"]);
    assert_says(&done(folder, &["--socket", "control.sock", "device", "show", "a"]), &["damage", "131072"]);
    assert_says(
        &done(folder, &["--socket", "control.sock", "status"]),
        &["warning: the drive of device b was deleted"],
    );

    let mut host = Host::connect(server.socket_address(), "a").unwrap();
    for _ in 0..3 {
        host.queue.submit(Token(1), Command::Read { span: SPAN, length_bytes: 16 * LBA_BYTES as u32 });
        let mut sink = Collect::default();
        while sink.completions.is_empty() {
            host.exchange(&mut sink).unwrap();
        }
        assert!(!sink.completions[0].status.is_success());
    }
    let said = || server.log().matches("drive-a: a read of").count();
    wait_until(|| format!("no failed read is told: {}", server.log()), || said() > 0);
    assert_eq!(said(), 1, "{}", server.log());
    server.kill();
}

/// Goal: a drive that two names lead to is told as that, by a format, a start and a server that has it, and nobody is said to use it.
#[test]
fn a_drive_under_two_names_is_one() {
    let folder = folder();
    let folder = folder.path();
    std::os::unix::fs::symlink("drive-a", folder.join("soft")).unwrap();
    std::fs::hard_link(folder.join("drive-a"), folder.join("hard")).unwrap();
    for link in ["soft", "hard"] {
        let said = refused(folder, &["device", "format", "drive-a", link, "--force"]);
        assert_says(&said, &[link, "is the same drive as drive-a", "name it once"]);
    }
    let server = Server::in_folder(folder, &[]);
    let said = refused(folder, &["--socket", "control.sock", "device", "add", "hard"]);
    assert_says(&said, &["hard", "this server has that drive already, as the device \"a\""]);
    for name in ["", "two words", "\u{1b}[31m", &"x".repeat(5000)] {
        let said = refused(
            folder,
            &["--socket", "control.sock", "device", "add", "new", "--size", "200M", "--name", name],
        );
        assert_says(&said, &["device name", "use 1 to 64 letters"]);
        assert!(!folder.join("new").exists() && said.len() < 2000, "{said}");
    }
    let shown = done(folder, &["--socket", "control.sock", "device", "show", "hard"]);
    assert_says(&shown, &["device", "a"]);
    server.stop();
    let twice = device("a") + "[[device]]\nkind = \"file\"\npath = \"soft\"\nname = \"s\"\n";
    std::fs::write(folder.join("setup.toml"), twice).unwrap();
    let serve = ["serve", "--setup", "setup.toml", "--data", ".", "--listen", "127.0.0.1:0"];
    assert_says(&refused(folder, &serve), &["soft", "is the same drive as", "drive-a"]);
}

/// Goal: another drive at the path of one is not told to be formatted alone: what was there is named.
#[test]
fn a_drive_that_was_replaced_is_named() {
    let folder = folder();
    let folder = folder.path();
    Server::in_folder(folder, &[]).stop();
    let device = uuid(folder, "drive-b");
    std::fs::remove_file(folder.join("drive-b")).unwrap();
    std::fs::File::create(folder.join("drive-b")).unwrap().set_len(200 << 20).unwrap();
    let server = Server::in_folder(folder, &[]);
    assert_says(
        &server.announced,
        &["drive-b", "is not formatted", &device, "another drive may be at that path now"],
    );
    server.stop();
}

/// Goal: the set-up that a format prints can be read, whatever the path, and from any folder.
#[test]
fn a_set_up_quotes_paths() {
    let folder = folder();
    let name = "a \"drive\" \\ of\nlines";
    let said = done(folder.path(), &["device", "format", name, "--size", "200M", "--erase-block", "1M"]);
    let table = &said[said.find("[device]").unwrap()..];
    let setup: diecut_api::setup::Setup = diecut_api::setup::Setup::from_toml(table).unwrap();
    let Some(diecut_api::setup::Device::Drive(drive)) = setup.devices.iter().next() else {
        panic!("{table}")
    };
    assert_eq!(drive.path, folder.path().canonicalize().unwrap().join(name));
}
