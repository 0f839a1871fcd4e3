//! Goal: files in the zones of a real server last, and whoever attaches last holds them. Method: a server process with a small zoned
//! namespace; two stores in this process take the zones from one another. What the cleaner moves is counted by a relay in front of the
//! server.
#![allow(clippy::disallowed_methods, reason = "drives real processes")]

#[path = "../../../crates/daemon/tests/block_server/mod.rs"]
mod block_server;
#[path = "zones/relay.rs"]
mod relay;

use block_server::{Server, ZONES_NQN, write_zones_setup};
use diecut_blockfile::{FileId, Files, Statistics, medium};
use diecut_testing::Random;
use relay::Relay;
use std::sync::atomic::Ordering;

fn open(server: &Server) -> Files {
    Files::open_or_format(medium::attach(ZONES_NQN, &server.address).unwrap()).unwrap()
}

fn content(files: &Files, file: FileId) -> Vec<u8> {
    let mut bytes = vec![0; files.size(file).unwrap() as usize];
    files.read(file, 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn whoever_attaches_last_holds_the_zones() {
    let folder = tempfile::tempdir().unwrap();
    write_zones_setup(folder.path(), 60);
    let mut server = Server::start(folder.path(), 1);
    let first = open(&server);
    let file = first.create("/ledger", 1).unwrap();
    first.write(file, 0, b"of the first").unwrap();
    first.sync().unwrap();
    // What is not synced is not the second one's.
    first.write(file, 0, b"not synced  ").unwrap();
    let second = open(&server);
    let again = second.find("/ledger").unwrap().unwrap();
    assert_eq!(content(&second, again), b"of the first");
    let refused = first.sync().unwrap_err().to_string();
    assert!(refused.contains("another application holds"), "{refused}");
    second.write(again, 0, b"of the second").unwrap();
    second.sync().unwrap();
    drop((first, second));
    for round in 0..4 {
        if round % 2 == 1 {
            server = Server::start(folder.path(), 1);
        }
        let files = open(&server);
        let found = files.find("/ledger").unwrap().unwrap();
        assert_eq!(content(&files, found), b"of the second", "round {round}");
        drop(files);
        if round % 2 == 0 {
            server.child.kill().unwrap();
            server.child.wait().unwrap();
        }
    }
}

/// Goal: zones that are full of what nobody needs any more come back, whatever was attached to between. Method: more is written than the
/// namespace holds, with a new store now and then.
#[test]
fn zones_come_back_when_their_files_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    write_zones_setup(folder.path(), 60);
    let server = Server::start(folder.path(), 1);
    let bytes = vec![7; 1 << 20];
    let capacity = open(&server).statistics().unwrap().capacity_bytes;
    for round in 0..3 {
        let files = open(&server);
        let mut written = 0;
        let mut number = 0;
        while written < capacity * 2 / 3 {
            let name = format!("/{}", number % 4);
            if files.find(&name).unwrap().is_some() {
                files.remove(&name).unwrap();
            }
            let file = files.create(&name, (number % 5) as u8).unwrap();
            files.write(file, 0, &bytes).unwrap();
            files.sync().unwrap();
            (written, number) = (written + bytes.len() as u64, number + 1);
        }
        let freed = files.statistics().unwrap().freed_blocks;
        assert!(round == 0 || freed > 0, "round {round}: {freed} zones came back");
    }
}

fn page(iu: u64, version: u64) -> Vec<u8> {
    (0..512).flat_map(|at| [iu, version][at % 2].to_le_bytes()).collect()
}

/// Overwrites a file that fills most of the zones, through a relay; what is in it is checked there, and by who comes after. Gives what the
/// store counted, and the bytes to the server and to the host since the file was full.
fn overwrite_through_a_relay(server: &Server, copies_max: u64) -> (Statistics, u64, u64) {
    let relay = Relay::start(&server.address, copies_max);
    let attach = |address: &str| Files::open_or_format(medium::attach(ZONES_NQN, address).unwrap()).unwrap();
    let files = attach(&relay.address);
    let _ = files.remove("/file");
    let file = files.create("/file", 2).unwrap();
    let ius = files.statistics().unwrap().capacity_bytes / 4096 * 9 / 10;
    let mut versions = vec![0; ius as usize];
    for iu in 0..ius {
        files.write(file, iu * 4096, &page(iu, 0)).unwrap();
    }
    files.sync().unwrap();
    let passed = || {
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        (of(&relay.passed.to_server_bytes), of(&relay.passed.to_host_bytes))
    };
    let (before, begun) = (files.statistics().unwrap(), passed());
    let mut random = Random::of(4);
    for _ in 0..4 * ius {
        let iu = random.below(ius);
        versions[iu as usize] += 1;
        files.write(file, iu * 4096, &page(iu, versions[iu as usize])).unwrap();
    }
    files.sync().unwrap();
    let (after, ended) = (files.statistics().unwrap(), passed());
    let check = |files: &Files| {
        let bytes = content(files, files.find("/file").unwrap().unwrap());
        for ((iu, bytes), version) in (0..).zip(bytes.chunks(4096)).zip(&versions) {
            assert!(bytes == page(iu, *version), "IU {iu}");
        }
    };
    check(&files);
    drop(files);
    check(&attach(&server.address));
    let counted = Statistics {
        written_bytes: after.written_bytes - before.written_bytes,
        cleaned_bytes: after.cleaned_bytes - before.cleaned_bytes,
        cleaned_inside_bytes: after.cleaned_inside_bytes - before.cleaned_inside_bytes,
        ..after
    };
    (counted, ended.0 - begun.0, ended.1 - begun.1)
}

/// Goal: what the cleaner moves does not cross the network, and a server that takes no copies any more costs no more than that it does. Method:
/// the same overwrites with all copies, with none and with some; a relay counts bytes and makes unknown commands of copies.
#[test]
fn what_the_cleaner_moves_does_not_cross_the_network() {
    let folder = tempfile::tempdir().unwrap();
    write_zones_setup(folder.path(), 60);
    let server = Server::start(folder.path(), 1);
    let (counted, to_server, to_host) = overwrite_through_a_relay(&server, u64::MAX);
    println!("all copies pass: {counted:?}, {to_server} bytes to the server, {to_host} to the host");
    assert!(counted.cleaned_bytes > 10_000_000, "{counted:?}");
    assert_eq!(counted.cleaned_inside_bytes, counted.cleaned_bytes);
    assert!(to_host * 20 < counted.cleaned_bytes, "{to_host} of {counted:?}");
    let (without, all_to_server, all_to_host) = overwrite_through_a_relay(&server, 0);
    println!("none passes: {without:?}, {all_to_server} bytes to the server, {all_to_host} to the host");
    assert_eq!(without.cleaned_inside_bytes, 0);
    assert!(all_to_host > without.cleaned_bytes && all_to_server > to_server + without.cleaned_bytes / 2);
    let (some, ..) = overwrite_through_a_relay(&server, 10);
    assert!((1..some.cleaned_bytes).contains(&some.cleaned_inside_bytes), "{some:?}");
}

/// A device without protected memory, whose zones are written in whole program units. Its cells are those that zones can stand on then.
fn take_protected_memory_away(folder: &std::path::Path) {
    let edit = |name: &str, pairs: &[(&str, &str)]| {
        let mut text = std::fs::read_to_string(folder.join(name)).unwrap();
        for (before, after) in pairs {
            assert!(text.contains(before), "{name}: {before}");
            text = text.replace(before, after);
        }
        std::fs::write(folder.join(name), text).unwrap();
    };
    edit("setup.toml", &[("protected_memory = \"64 MiB\"\n", "")]);
    let cells = [
        ("bits_per_cell = 2", "bits_per_cell = 1"),
        ("one_shot = false", "one_shot = true"),
        ("read_us = [48.0, 64.0]", "read_us = [48.0]"),
        ("program_us = [850.0, 2300.0]", "program_us = [850.0]"),
        ("size_bytes = 1048576", "size_bytes = 0"),
    ];
    edit("small.toml", &cells);
}

/// Goal: copies write whole program units where the device wants that.
#[test]
fn copies_are_whole_program_units_where_a_device_wants_them() {
    let folder = tempfile::tempdir().unwrap();
    write_zones_setup(folder.path(), 60);
    take_protected_memory_away(folder.path());
    let server = Server::start(folder.path(), 1);
    let zones = medium::attach(ZONES_NQN, &server.address).unwrap();
    assert!(zones.shape().program_unit_pages > 1, "{:?}", zones.shape());
    drop(zones);
    let (counted, _, to_host) = overwrite_through_a_relay(&server, u64::MAX);
    assert!(counted.cleaned_bytes > 5_000_000, "{counted:?}");
    assert_eq!(counted.cleaned_inside_bytes, counted.cleaned_bytes);
    assert!(to_host * 20 < counted.cleaned_bytes, "{to_host} of {counted:?}");
}

/// Goal: files hold what was synced when the server dies while the cleaner copies. Method: `kill -9` at moments from a seed.
#[test]
fn what_was_synced_survives_deaths_of_the_server_beside_copies() {
    let folder = tempfile::tempdir().unwrap();
    write_zones_setup(folder.path(), 60);
    let mut server = Server::start(folder.path(), 1);
    let files = open(&server);
    let file = files.create("/file", 2).unwrap();
    let ius = files.statistics().unwrap().capacity_bytes / 4096 * 9 / 10;
    (0..ius).for_each(|iu| files.write(file, iu * 4096, &page(iu, 0)).unwrap());
    files.sync().unwrap();
    drop(files);
    let (mut synced, mut written) = (vec![0; ius as usize], vec![0; ius as usize]);
    let (mut random, mut moved) = (Random::of(8), 0);
    for round in 0..8 {
        let files = open(&server);
        let bytes = content(&files, file);
        for ((iu, bytes), at) in (0..).zip(bytes.chunks(4096)).zip(0..) {
            let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
            let allowed = synced[at]..=written[at];
            assert!(bytes == page(iu, version) && allowed.contains(&version), "round {round}: IU {iu}");
            (synced[at], written[at]) = (version, version);
        }
        let quiet = random.below(4000);
        for step in 0.. {
            if step == quiet {
                server.child.kill().unwrap();
            }
            let iu = random.below(ius);
            written[iu as usize] += 1;
            let outcome = files.write(file, iu * 4096, &page(iu, written[iu as usize]));
            if outcome.and_then(|()| if step % 100 == 0 { files.sync() } else { Ok(()) }).is_err() {
                break;
            }
            if step % 100 == 0 {
                synced.copy_from_slice(&written);
                moved = moved.max(files.statistics().unwrap().cleaned_inside_bytes);
            }
        }
        server.child.wait().unwrap();
        server = Server::start(folder.path(), 1);
    }
    assert!(moved > 1_000_000, "{moved} bytes were moved");
}

#[test]
fn what_cannot_be_attached_to_is_named() {
    let folder = tempfile::tempdir().unwrap();
    write_zones_setup(folder.path(), 60);
    let server = Server::start(folder.path(), 1);
    let said = |name: &str| match medium::attach(name, &server.address) {
        Ok(_) => panic!("{name} was attached to"),
        Err(error) => error.to_string(),
    };
    assert!(said("nqn.2026-11.org.diecut:none").contains("no subsystem of this NQN"));
    let seven = said(&format!("{ZONES_NQN}/7"));
    assert!(seven.contains("has no zoned namespace 7: it has 1"), "{seven}");
    let socket = server.socket();
    let error = medium::attach("flash", &socket.display().to_string()).err().unwrap().to_string();
    assert!(error.contains("there is no vSSD"), "{error}");
}
