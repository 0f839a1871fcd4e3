//! A server on a drive: a file that is formatted, served, and found again after any end; and drives that are refused, by name and with what to do.

use crate::served;
use diecut_testing::wait::wait_until;
use served::{Server, assert_says, diecut, done, refused};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

const SETUP: &str = r#"
[[device]]
kind = "file"
path = "drive"
name = "fast"
[[tenant]]
name = "acme"
"#;

/// A folder where the file system has a way past the page cache, with a set-up.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(folder.path().join("setup.toml"), SETUP).unwrap();
    folder
}

fn format(folder: &Path, more: &[&str]) -> serde_json::Value {
    let arguments = [&["--json", "device", "format", "drive", "--erase-block", "1M"], more].concat();
    let made: serde_json::Value = serde_json::from_str(&done(folder, &arguments)).unwrap();
    made[0].clone()
}

/// A command that the server of the folder carries out.
fn ask(folder: &Path, arguments: &[&str]) -> String {
    done(folder, &[&["--socket", "control.sock"], arguments].concat())
}

fn tenants(folder: &Path) -> BTreeSet<String> {
    let status: serde_json::Value = serde_json::from_str(&ask(folder, &["--json", "status"])).unwrap();
    let tenants = status["tenants"].as_array().unwrap().iter();
    tenants.map(|tenant| tenant["name"].as_str().unwrap().to_owned()).collect()
}

/// Goal: what cannot hold a pool is refused before anything is written, also by force: what lay there is there still.
#[test]
fn a_format_that_cannot_be_leaves_a_drive_as_it_is() {
    let folder = folder();
    let folder = folder.path();
    File::create(folder.join("drive")).unwrap().set_len(1 << 40).unwrap();
    done(folder, &["device", "format", "drive"]);
    let many = ["device", "format", "drive", "--lanes", "1024", "--erase-block", "1M", "--force"];
    assert_says(&refused(folder, &many), &["no pool fits", "--erase-block", "Nothing was written"]);
    assert_says(&done(folder, &["device", "identify", "drive"]), &["a label of diecut"]);
}

/// Goal: a drive is cut by a map of its parts, and says so; a map of another drive, or of parts that are no lanes, is refused by name. Method: maps as `diecut probe
/// --map` writes them.
#[test]
fn a_drive_is_cut_by_its_map() {
    let folder = folder();
    let folder = folder.path();
    File::create(folder.join("drive")).unwrap().set_len(300 << 20).unwrap();
    let map = |size_bytes: u64, parts: &str| {
        let text =
            format!("{{\"size_bytes\": {size_bytes}, \"serial\": null, \"regions\": 4, \"parts\": {parts}}}");
        std::fs::write(folder.join("map"), text).unwrap();
    };
    let by_map = ["device", "format", "drive", "--erase-block", "1M", "--map", "map"];
    assert_says(&refused(folder, &by_map), &["map", "cannot be read"]);
    std::fs::write(folder.join("map"), "{}").unwrap();
    assert_says(&refused(folder, &by_map), &["map", "no map of", "diecut probe --map"]);
    map(200 << 20, "[[0, 1], [2, 3]]");
    assert_says(&refused(folder, &by_map), &["another one", "209715200 bytes"]);
    map(300 << 20, "[[0, 2], [1, 3]]");
    assert_says(&refused(folder, &by_map), &["[0, 2], [1, 3]", "runs of regions"]);
    map(300 << 20, "[[0], [1, 2, 3]]");
    assert_says(&refused(folder, &by_map), &["lanes are of one size"]);
    map(300 << 20, "[[0, 1], [2, 3]]");
    assert_says(&refused(folder, &[&by_map[..], &["--lanes", "4"]].concat()), &["--lanes"]);
    let made = format(folder, &["--map", "map"]);
    let shape = &made["shape"];
    assert_eq!((&shape["lanes"], &shape["blocks_per_lane"]), (&2.into(), &148.into()), "{made}");
    assert_eq!(shape["lanes_apart"], true, "{made}");
    assert_says(&done(folder, &["device", "identify", "drive"]), &["measured not to disturb each other"]);
    let server = Server::in_folder(folder, &[]);
    for name in ["one", "two"] {
        let create =
            ["vssd", "create", name, "--tenant", "acme", "--isolation", "channel", "--capacity", "40M"];
        ask(folder, &create);
    }
    server.stop();
    let server = Server::in_folder(folder, &[]);
    let status: serde_json::Value = serde_json::from_str(&ask(folder, &["--json", "status"])).unwrap();
    let channels = [0, 1].map(|at| status["vssds"][at]["placement"]["channels"][0].as_u64().unwrap());
    assert_ne!(channels[0], channels[1], "{status}");
    server.stop();
}

/// Goal: what was answered on a drive is there after a stop and after a kill, and a set-up is brought onto a new one only. Method: lives of a server
/// with tenants that come and go; the last one is killed amid requests.
#[test]
fn a_drive_is_served_and_found_again() {
    let folder = folder();
    let folder = folder.path();
    let made = format(folder, &["--size", "300M", "--lanes", "4"]);
    assert_eq!(
        (&made["shape"]["lanes"], &made["shape"]["blocks_per_lane"]),
        (&4.into(), &74.into()),
        "{made}"
    );
    let server = Server::in_folder(folder, &[]);
    assert_says(&server.announced, &["fast", "drive", "a file"]);
    assert_says(&server.announced, &["durability", "machine", "death of the machine"]);
    let status: serde_json::Value = serde_json::from_str(&ask(folder, &["--json", "status"])).unwrap();
    assert_eq!(
        (&status["devices"][0]["name"], &status["devices"][0]["channels"]),
        (&"fast".into(), &4.into())
    );
    assert_eq!(tenants(folder), BTreeSet::from(["acme".to_owned()]), "the set-up is on the new device");
    ask(folder, &["tenant", "create", "beta"]);
    ask(folder, &["tenant", "delete", "acme", "--yes"]);
    server.stop();
    let mut there = BTreeSet::from(["beta".to_owned()]);
    for life in 0..4 {
        let server = Server::in_folder(folder, &[]);
        assert_eq!(tenants(folder), there, "life {life}");
        let answered = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            // Until one is not answered, because the server is gone.
            scope.spawn(|| {
                let create = |name: &String| {
                    let create = ["--socket", "control.sock", "tenant", "create", name];
                    diecut(folder, &create).status.success()
                };
                let names = (0..).map(|number| format!("tenant-{life}-{number}"));
                names.take_while(create).for_each(|name| answered.lock().unwrap().push(name));
            });
            wait_until(|| "nothing is answered", || answered.lock().unwrap().len() > life);
            server.kill();
        });
        there.extend(answered.into_inner().unwrap());
        let server = Server::in_folder(folder, &[]);
        let found = tenants(folder);
        assert!(found.is_superset(&there), "life {life}: what was answered holds: {found:?}, {there:?}");
        assert!(found.len() <= there.len() + 1, "life {life}: {found:?}, {there:?}");
        there = found;
        server.kill();
    }
}

/// Goal: a set-up whose first start on a drive was cut short goes on where it was. Method: a drive with one of two tenants, and the file that a start leaves
/// until it is through.
#[test]
fn a_set_up_that_was_cut_short_goes_on() {
    let folder = folder();
    let folder = folder.path();
    format(folder, &["--size", "300M"]);
    Server::in_folder(folder, &[]).kill();
    std::fs::remove_file(folder.join("drives.made")).unwrap();
    std::fs::write(folder.join("setup.toml"), format!("{SETUP}[[tenant]]\nname = \"beta\"\n")).unwrap();
    // From elsewhere: what exists wins.
    let server = Server::in_folder(folder, &[]);
    assert_eq!(tenants(folder), BTreeSet::from(["acme".to_owned()]));
    server.kill();
    std::fs::remove_file(folder.join("drives.made")).unwrap();
    std::fs::write(folder.join("setup.pending"), "").unwrap();
    let server = Server::in_folder(folder, &[]);
    assert_eq!(tenants(folder), BTreeSet::from(["acme".to_owned(), "beta".to_owned()]));
    assert!(!folder.join("setup.pending").exists());
    drop(server);
}

/// Both copies of the label of a drive, changed and with a right check.
fn bend_label(drive: &Path, change: impl Fn(&mut [u8])) {
    let file = File::options().read(true).write(true).open(drive).unwrap();
    let second = (file.metadata().unwrap().len() >> 20 << 20) - (1 << 20);
    for offset in [64 << 10, second] {
        let mut bytes = vec![0; 4096];
        file.read_exact_at(&mut bytes, offset).unwrap();
        change(&mut bytes);
        let check = [&bytes[..12], &bytes[16..]].concat();
        bytes[12..16].copy_from_slice(&diecut_units::checksum(&check).to_le_bytes());
        file.write_all_at(&bytes, offset).unwrap();
    }
}

/// Goal: a drive that cannot be served is named, with what is wrong and what to do, and nothing is written to it.
#[test]
fn wrong_drives_are_refused_by_name() {
    let folder = folder();
    let folder = folder.path();
    let drive = folder.join("drive");
    let is_refused_in = |data: &str, more: &[&str], words: &[&str]| {
        let before = std::fs::read(&drive).ok();
        let serve = ["serve", "--setup", "setup.toml", "--data", data, "--listen", "127.0.0.1:0"];
        let said = refused(folder, &[&serve[..], more].concat());
        assert_says(&said, words);
        assert!(std::fs::read(&drive).ok() == before, "it was written to");
    };
    let is_refused = |more: &[&str], words: &[&str]| is_refused_in(".", more, words);
    is_refused(&[], &["drive", "cannot be examined", "see whether the drive is there"]);
    File::create(&drive).unwrap().set_len(64 << 20).unwrap();
    is_refused(&[], &["drive", "is not formatted", "`diecut device format drive`"]);
    std::fs::write(&drive, [b"XFSB".as_slice(), &[0; 1 << 20]].concat()).unwrap();
    is_refused(&[], &["drive", "it holds an XFS file system", "device format --force"]);
    std::fs::remove_file(&drive).unwrap();
    let made = format(folder, &["--size", "64M"]);
    for (more, words) in [
        (&["--shards", "2"][..], &["server.shards = 2", "has 1", "use 1 or fewer"][..]),
        (&["--profile", "tiny"], &["--profile", "drive", "leave it out"]),
        (&["--record", "rec"], &["drive", "--record"]),
    ] {
        is_refused(more, words);
    }
    let write = |text: &str| std::fs::write(folder.join("setup.toml"), text).unwrap();
    write(&SETUP.replace("\"file\"", "\"block\""));
    is_refused(&[], &["drive", "another kind", "kind = \"file\""]);
    write(&format!("{SETUP}[[device]]\nprofile = \"tiny\""));
    is_refused(&[], &["names 2 devices", "emulated", "a server of its own"]);
    write(SETUP);

    let label = std::fs::read(&drive).unwrap();
    for (at, value, words) in [
        (8, 2, &["drive", "its label has version 2", "a later version"][..]),
        (16, 0x80, &["drive", "features 0x80", "a later version"]),
        (98, 2, &["1 of 2 devices of the pool", "more than half", "Name them in the set-up"]),
        (112, 1, &["drive", "do not lie where this version has them"]),
    ] {
        bend_label(&drive, |bytes| {
            bytes[at] = value;
            // The second device of the pool.
            bytes[160] = u8::from(at == 98);
        });
        is_refused(&[], words);
        std::fs::write(&drive, &label).unwrap();
    }
    File::options().write(true).open(&drive).unwrap().set_len(40 << 20).unwrap();
    is_refused(&[], &["drive", "bytes", "are needed", "give it its size back"]);
    std::fs::write(&drive, &label).unwrap();

    let server = Server::in_folder(folder, &[]);
    is_refused_in("other", &[], &["drive is in use", "has it open for writing"]);
    let said = refused(folder, &["device", "format", "drive", "--force"]);
    assert_says(&said, &["drive is in use", "nothing was written"]);
    server.stop();

    // Another drive in its place.
    let again = format(folder, &["--force"]);
    assert_ne!(again["device"], made["device"]);
    let (new, old) = (again["device"].as_str().unwrap(), made["device"].as_str().unwrap());
    is_refused(&[], &["drive", new, old, "drives.made"]);
    write("[device]\nprofile = \"tiny\"");
    is_refused(&[], &["emulated device", "that of a drive", "drives.made"]);
    let emulated = folder.join("emulated");
    std::fs::create_dir(&emulated).unwrap();
    std::fs::write(emulated.join("device.made"), "").unwrap();
    write(SETUP);
    is_refused_in("emulated", &[], &["drive", "that of the emulated device in emulated/device.img"]);
    // A folder that knows of no other one takes it.
    let other = Server::start(folder, &["--setup", "setup.toml", "--data", "other"]);
    assert!(folder.join("other/drives.made").exists());
    drop(other);
}

/// Goal: a copy of a label that a cut left behind is mended at the next start.
#[test]
fn half_a_label_is_mended() {
    let folder = folder();
    let folder = folder.path();
    let drive = folder.join("drive");
    format(folder, &["--size", "64M"]);
    let file = File::options().write(true).open(&drive).unwrap();
    file.write_all_at(&[0; 4096], 64 << 10).unwrap();
    drop(file);
    let said = Server::in_folder(folder, &[]).stop();
    assert_says(&said, &["drive", "one copy of its label"]);
    let file = File::open(&drive).unwrap();
    let (mut first, mut second) = ([0; 4096], [0; 4096]);
    file.read_exact_at(&mut first, 64 << 10).unwrap();
    file.read_exact_at(&mut second, 63 << 20).unwrap();
    assert!(first == second && first[..8] == *b"DIECUTLB" && first[24] == 2);
    let said = Server::in_folder(folder, &[]).stop();
    assert!(!said.contains("one copy"), "{said}");
}

/// Goal: a format destroys nothing unasked, says what it found, and leaves nothing behind where it cannot be.
#[test]
fn a_format_is_refused_by_name() {
    let folder = folder();
    let folder = folder.path();
    let drive = folder.join("drive");
    let is_refused = |more: &[&str], words: &[&str]| {
        assert_says(&refused(folder, &[&["device", "format", "drive"], more].concat()), words);
    };
    is_refused(&[], &["drive", "cannot be examined"]);
    is_refused(&["--size", "1M"], &["drive", "need"]);
    is_refused(
        &["--size", "150M"],
        &["drive", "9 erase blocks for each of 1 lanes are too few", "--erase-block"],
    );
    is_refused(&["--size", "64M", "--erase-block", "3M"], &["drive", "erase block of 3145728 bytes"]);
    is_refused(&["--size", "64M", "--erase-block", "1M", "--lanes", "9"], &["drive", "9 lanes"]);
    assert!(!drive.exists(), "a file that came to nothing is gone");
    let file = File::create(&drive).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(b"XFSB", 0).unwrap();
    drop(file);
    let before = std::fs::read(&drive).unwrap();
    is_refused(
        &["--erase-block", "1M"],
        &["drive", "holds an XFS file system", "nothing was written", "--force"],
    );
    is_refused(&["--size", "64M"], &["drive", "--size is for a new file"]);
    assert!(std::fs::read(&drive).unwrap() == before);
    let made = format(folder, &["--force"]);
    let is_ours = diecut(folder, &["device", "format", "drive", "--erase-block", "1M"]);
    let said = String::from_utf8_lossy(&is_ours.stderr).into_owned();
    assert_says(&said, &["it is the device", made["device"].as_str().unwrap(), "--force"]);
}

/// Goal: what is said to be too small by `format` is not taken by `identify` either, and a drive of the size that is said is.
#[test]
fn the_smallest_drive_is_said() {
    let folder = folder();
    let folder = folder.path();
    let identify = |size: u64| -> serde_json::Value {
        File::create(folder.join("small")).unwrap().set_len(size).unwrap();
        serde_json::from_str(&done(folder, &["--json", "device", "identify", "small"])).unwrap()
    };
    for size in [100 << 20, 150 << 20] {
        assert_eq!(identify(size)[0]["fits"], false);
        let said = refused(folder, &["device", "format", "small"]);
        assert_says(&said, &["270532608"]);
    }
    assert_eq!(identify(270_532_607)[0]["fits"], false);
    refused(folder, &["device", "format", "small"]);
    assert_eq!(identify(270_532_608)[0]["fits"], true);
    done(folder, &["device", "format", "small", "--erase-block", "1M", "--lanes", "2"]);
    let said = done(folder, &["device", "identify", "small"]);
    assert_says(&said, &["is cut into", "2 lanes of 128 erase blocks of 1 MiB"]);
}
