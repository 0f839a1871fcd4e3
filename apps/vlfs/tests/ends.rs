//! Goal: what was synced is there, and nothing that was never written, after `kill -9` of the file system and of the server, and after
//! power cuts; a file that is removed while it is open stays until it is closed. Method: a load whose every write is a function of
//! its number (`load`), on a mount; after each end it is mounted again and all of it is read. Bugs that were planted, each seen failing
//! here: an fsync that does nothing, a forget that ends what is open.
#![allow(clippy::disallowed_methods, reason = "drives real processes")]

#[path = "../../../crates/daemon/tests/block_server/mod.rs"]
mod block_server;
mod load;
mod mounted;

use block_server::{Server, write_setup_of};
use diecut_blockspace::embedded::{Embedded, Ending};
use diecut_testing::wait;
use diecut_vlfs::{FileSystem, open_or_format};
use fuser::{Config, MountOption, Session};
use load::Ledger;
use mounted::{Mount, is_mounted, run, unmount};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn what_was_synced_survives_kills_of_the_file_system_and_of_the_server() {
    if !mounted::is_possible(&[]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write_setup_of(folder.path(), 100);
    let mut server = Server::start(folder.path(), 1);
    let (at, volume) = (folder.path().join("mount"), format!("blocks-a@{}", server.socket().display()));
    let mut ledger = Ledger::default();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    for round in 0..10 {
        let what = format!("round {round}");
        let mut mount = Mount::start(&at, &[&volume]);
        ledger.check(&at, &what);
        let log_bytes = || std::fs::metadata(at.join("log")).map_or(0, |log| log.len());
        // A step of the load is 16 bytes of its log.
        let end_bytes = log_bytes() + 16 * random.random_range(10..60);
        let outcome = std::thread::scope(|scope| {
            let load = scope.spawn(|| ledger.run(&at, u64::MAX));
            let goes_on = wait::comes(|| (log_bytes() >= end_bytes).then_some(()));
            if round % 2 == 0 {
                mount.child.kill().unwrap()
            } else {
                server.child.kill().unwrap()
            }
            assert!(goes_on.is_some(), "{what}: the load goes on");
            load.join().unwrap()
        });
        let error = outcome.expect_err("the load ends with the file system");
        if round % 2 == 1 {
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{what}: {error}");
            // It stays, and says so, until it is mounted again.
            let problem = File::create(at.join("more")).and_then(|mut file| file.write_all(b"x"));
            assert_eq!(problem.unwrap_err().raw_os_error(), Some(libc::EIO));
            server = Server::start(folder.path(), 1);
        }
        mount.kill();
    }
    let mount = Mount::start(&at, &[&volume]);
    ledger.check(&at, "at the end");
    // Whoever unmounts it loses nothing, synced or not.
    std::fs::write(at.join("unsynced"), b"all of it").unwrap();
    mount.unmount();
    let mount = Mount::start(&at, &[&volume]);
    assert_eq!(std::fs::read(at.join("unsynced")).unwrap(), b"all of it");
    mount.unmount();
    println!("{} files replaced with fsync and rename, 5 kills of each side", ledger.acked);
    assert!(ledger.acked > 100, "{} steps", ledger.acked);
}

/// Goal: what was written and closed is there after a `kill -9` of the file system, though nobody synced: the kernel does not pass
/// `sync` and `syncfs` on. Method: small files are made one after the other; of those that were closed a second before the kill,
/// which is ten times what the file system allows itself, none is missing. Seen to fail with a period of 5 seconds.
#[test]
fn what_was_closed_survives_a_kill_without_a_sync() {
    if !mounted::is_possible(&[]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write_setup_of(folder.path(), 100);
    let server = Server::start(folder.path(), 1);
    let (at, volume) = (folder.path().join("mount"), format!("blocks-a@{}", server.socket().display()));
    let mount = Mount::start(&at, &[&volume]);
    let begin = Instant::now();
    let mut closed = Vec::new();
    while begin.elapsed() < Duration::from_secs(2) {
        let name = at.join(format!("file-{}", closed.len()));
        std::fs::write(&name, format!("content of {}", closed.len())).unwrap();
        closed.push(Instant::now());
        // Slow enough that less gathers than goes out by its size.
        wait::let_time_pass(Duration::from_millis(20));
    }
    let killed = Instant::now();
    mount.kill();
    let mount = Mount::start(&at, &[&volume]);
    let old = closed.iter().filter(|at| killed - **at > Duration::from_secs(1)).count();
    assert!(old > 10, "{old} of {} files are old enough", closed.len());
    for number in 0..old {
        let content = std::fs::read_to_string(at.join(format!("file-{number}")));
        assert_eq!(content.unwrap_or_else(|error| error.to_string()), format!("content of {number}"));
    }
    mount.unmount();
}

/// Not a test by itself: a file system over an embedded device, whose power is cut and which is mounted again, each time that it is
/// unmounted. Not in the process that uses it: that would wait for itself.
#[test]
fn file_system_to_be_cut() {
    let Ok(at) = std::env::var("DIECUT_TEST_MOUNT") else { return };
    let device = Embedded::with_seed("tiny", 9).unwrap();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
    loop {
        for ending in [Ending::PowerCut(random.random_range(100..1500)), Ending::Never] {
            let files = device
                .attach_until(ending)
                .ok()
                .and_then(|client| open_or_format(Arc::new(client), 0, 0).ok());
            let Some(files) = files else {
                assert_ne!(ending, Ending::Never);
                continue;
            };
            let mut config = Config::default();
            config.mount_options = vec![MountOption::DefaultPermissions];
            let session = Session::new(FileSystem::new(Arc::new(files)), &at, &config).unwrap();
            println!("\nmounted {}", if ending == Ending::Never { "whole" } else { "to be cut" });
            session.run().unwrap();
        }
    }
}

#[test]
fn what_was_synced_survives_power_cuts() {
    if !mounted::is_possible(&[]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "file_system_to_be_cut", "--nocapture"])
        .env("DIECUT_TEST_MOUNT", folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ledger = Ledger::default();
    let mut cuts = 0;
    while cuts < 30 {
        let line = lines.next().expect("it mounts again").unwrap();
        match line.as_str() {
            "mounted whole" => ledger.check(folder.path(), &format!("cut {cuts}")),
            "mounted to be cut" => {
                cuts += 1;
                assert!(ledger.run(folder.path(), u64::MAX).is_err());
            }
            _ => continue,
        }
        unmount(folder.path());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    if is_mounted(folder.path()) {
        unmount(folder.path());
    }
    println!("{} files replaced with fsync and rename, {cuts} power cuts", ledger.acked);
    assert!(ledger.acked > 300, "{} steps", ledger.acked);
}

#[test]
fn a_file_that_is_removed_while_it_is_open_stays_until_it_is_closed() {
    if !mounted::is_possible(&[]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mount = Mount::embedded(&folder.path().join("mount"));
    let path = mount.path.join("a");
    let free = || {
        let said = run(Command::new("stat").args(["-f", "-c", "%a"]).arg(&mount.path));
        said.trim().parse::<i64>().unwrap()
    };
    let before = free();
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    let bytes: Vec<u8> = (0..3_000_000u32).map(|at| at as u8).collect();
    file.write_all(&bytes).unwrap();
    file.sync_all().unwrap();
    assert!(before - free() > 700, "{before} and {} blocks free", free());
    // Not of the kernel's cache.
    run(Command::new("sh").args(["-c", "echo 1 > /proc/sys/vm/drop_caches"]));
    let mut found = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut found).unwrap();
    assert!(found == bytes);
    assert!(!path.exists());
    drop(file);
    // The kernel says later that it has forgotten it.
    let is_free = || {
        File::open(&mount.path).unwrap().sync_all().unwrap();
        free() == before
    };
    wait::wait_until(|| format!("{before} blocks are free again, {} are", free()), is_free);
    mount.unmount();
}

#[test]
fn a_folder_of_many_is_read_once_while_it_changes() {
    if !mounted::is_possible(&[]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mount = Mount::embedded(&folder.path().join("mount"));
    let names: Vec<String> = (0..3000).map(|number| format!("a-name-of-some-length-{number:05}")).collect();
    names.iter().for_each(|name| drop(File::create(mount.path.join(name)).unwrap()));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&mount.path).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().len(), 0);
        std::fs::remove_file(entry.path()).unwrap();
        found.push(entry.file_name().into_string().unwrap());
    }
    found.sort();
    assert!(found == names, "{} of {}", found.len(), names.len());
    assert_eq!(std::fs::read_dir(&mount.path).unwrap().count(), 0);
    mount.unmount();
}

#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("mount");
    std::fs::create_dir(&at).unwrap();
    let mistake = |arguments: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_diecut-vlfs")).arg("mount").args(arguments).output().unwrap();
        assert!(!output.status.success() && !is_mounted(&at), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let (here, nowhere) = (at.to_str().unwrap(), folder.path().join("nowhere"));
    assert!(mistake(&[here]).contains("<MOUNTPOINT>"));
    assert!(mistake(&["--embedded", "tiny", "a@b", here]).contains("--embedded"));
    // Options may stand anywhere.
    assert!(
        mistake(&["a", "--allow-other", here])
            .contains("a: VSSD@SOCKET or NQN@HOST:PORT is what is understood")
    );
    assert!(mistake(&["a", here]).contains("a: VSSD@SOCKET or NQN@HOST:PORT is what is understood"));
    assert!(mistake(&["a@/nowhere/blocks.sock", here]).contains("a@/nowhere/blocks.sock: "));
    let said = mistake(&["--embedded", "tiny", nowhere.to_str().unwrap()]);
    assert!(said.contains("is no folder to mount on"), "{said}");
    assert!(mistake(&["--embedded", "none", here]).contains("none"));
}
