//! Goal: a shard whose inner check fails does not end the server: the shard, or after a failure of the first one everything, begins anew
//! in the same process, hosts reconnect at the same address, and what was acknowledged is there; hosts of other shards than one that fails
//! alone are not interrupted; after two panics at work for one vSSD that vSSD is fenced, also for the next
//! process, until an administrator says otherwise. Method: the real binary with two shards and a check that fails on purpose, when a
//! host writes a certain block; hosts of all tenants write at the same time over real sockets. Builds without debug assertions carry
//! no such check, and there is nothing to see.
#![cfg(debug_assertions)]
#![allow(clippy::disallowed_methods, reason = "drives real sockets and processes")]

use crate::{host, served};
use diecut_initiator::{Collect, Command, LbaSpan, Token};
use diecut_nvme::Status;
use diecut_testing::wait;
use diecut_units::Buffer;
use host::Host;
use served::{Server, command, done, refused, write_profile};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TENANTS: [&str; 3] = ["a", "b", "c"];
/// Blocks that hosts write all the time; the one behind them fails.
const LBAS: u64 = 200;
const FAILS_AT: u64 = 255;

fn serve(folder: &Path, backing: &str) -> Server {
    write_profile(folder);
    let mut setup = format!(
        "[server]\nshards = 2\n[device]\nbacking = \"{backing}\"\nprofile = \"small.toml\"\nprotected_memory = \"64 MiB\"\n"
    );
    for (name, isolation) in TENANTS.into_iter().zip(["channel", "channel", "software"]) {
        setup += &format!(
            "[[tenant]]\nname = \"{name}\"\n\
             [[vssd]]\nname = \"vssd-{name}\"\ntenant = \"{name}\"\nisolation = \"{isolation}\"\ncapacity = \"24 MiB\"\n\
             [[volume]]\nname = \"volume-{name}\"\nvssd = \"vssd-{name}\"\nsize = \"1 MiB\"\n\
             [[subsystem]]\nnqn = \"nqn.2026-11.org.diecut:{name}\"\ntenant = \"{name}\"\nallow_any_host = true\n\
             namespaces = [{{ nsid = 1, volume = \"volume-{name}\" }}]\n"
        );
    }
    std::fs::write(folder.join("setup.toml"), setup).unwrap();
    let mut serve = command(folder);
    serve.env("DIECUT_PLANTED_PANIC_LBA", FAILS_AT.to_string());
    serve.args(["serve", "--listen", "127.0.0.1:0", "--setup", "setup.toml", "--data", "."]);
    Server::start_as(folder, serve)
}

fn content(tenant: &str, lba: u64, version: u64) -> Vec<u8> {
    let words = [u64::from(tenant.as_bytes()[0]), lba, version];
    words.iter().flat_map(|word| word.to_le_bytes()).cycle().take(4096).collect()
}

/// A host that comes as soon as it is let in.
fn connect(address: SocketAddr, tenant: &str) -> Host {
    wait::wait_for(|| format!("{tenant} is not let in"), || Host::connect(address, tenant).ok())
}

/// Writes one block; what came of it, or nothing if the server hung up.
fn write(address: SocketAddr, tenant: &str, lba: u64, version: u64) -> Option<Status> {
    let mut host = connect(address, tenant);
    let data = Buffer::copy_from(&content(tenant, lba, version));
    let span = LbaSpan { nsid: 1, first: lba, count: 1 };
    host.queue.submit(Token(1), Command::Write { span, data, force_unit_access: false });
    let mut sink = Collect::default();
    while sink.completions.is_empty() {
        host.exchange(&mut sink).ok()?;
    }
    Some(sink.completions[0].status)
}

/// Writes all blocks again and again until the server hangs up; gives the version of each that was acknowledged last.
fn write_until_gone(address: SocketAddr, tenant: &str, from: u64, done: &AtomicU64) -> (Vec<u64>, u64) {
    let mut acknowledged = vec![0; LBAS as usize];
    let mut host = connect(address, tenant);
    let mut next = from;
    let mut sink = Collect::default();
    loop {
        while host.queue.room() > 0 {
            let lba = next % LBAS;
            let data = Buffer::copy_from(&content(tenant, lba, next));
            let span = LbaSpan { nsid: 1, first: lba, count: 1 };
            host.queue.submit(Token(next), Command::Write { span, data, force_unit_access: false });
            next += 1;
        }
        if host.exchange(&mut sink).is_err() {
            return (acknowledged, next);
        }
        for completion in sink.completions.drain(..) {
            assert_eq!(completion.status, Status::SUCCESS);
            // A queue of 31 never holds two writes of one block.
            acknowledged[(completion.token.0 % LBAS) as usize] = completion.token.0;
            done.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn check(address: SocketAddr, tenant: &str, acknowledged: &[u64], next: u64) {
    let mut host = connect(address, tenant);
    for (lba, &version) in acknowledged.iter().enumerate() {
        let span = LbaSpan { nsid: 1, first: lba as u64, count: 1 };
        host.queue.submit(Token(1), Command::Read { span, length_bytes: 4096 });
        let mut sink = Collect::default();
        while sink.completions.is_empty() {
            host.exchange(&mut sink).unwrap();
        }
        assert_eq!(sink.completions[0].status, Status::SUCCESS);
        let found = &sink.data[&Token(1)];
        let found_version = u64::from_le_bytes(found[16..24].try_into().unwrap());
        assert!(
            (version..next).contains(&found_version),
            "{tenant}: LBA {lba}: {found_version}, not {version} or later"
        );
        assert_eq!(*found, content(tenant, lba as u64, found_version), "{tenant}: LBA {lba} is whole");
    }
}

/// All tenants write, then one host writes the block that fails. Nothing acknowledged is missing when hosts are let in again.
fn fail_under_load(server: &Server, from: u64) -> u64 {
    let (address, written) = (server.socket_address(), AtomicU64::new(0));
    let lives: Vec<(Vec<u64>, u64)> = std::thread::scope(|scope| {
        let writers: Vec<_> = TENANTS
            .iter()
            .map(|tenant| scope.spawn(|| write_until_gone(address, tenant, from, &written)))
            .collect();
        wait::wait_until(|| "hosts write", || written.load(Ordering::Relaxed) >= 3000);
        assert_eq!(write(address, "a", FAILS_AT, 1), None, "the shard fails");
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    for (tenant, (acknowledged, end)) in TENANTS.iter().zip(&lives) {
        check(address, tenant, acknowledged, *end);
    }
    lives.iter().map(|(_, end)| *end).max().unwrap()
}

fn ask(folder: &Path, arguments: &[&str]) -> String {
    done(folder, &[&["--socket", "control.sock"], arguments].concat())
}

#[test]
fn a_server_whose_shard_fails_begins_anew_and_fences_the_vssd_at_fault() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = serve(folder.path(), "file");
    let next = fail_under_load(&server, LBAS);
    let told = ask(folder.path(), &["panics"]);
    assert!(
        told.contains("1 panics") && told.contains("vSSD \"vssd-a\"") && told.contains("planted"),
        "{told}"
    );
    assert!(told.contains("planted.rs") && told.contains("write, namespace"), "{told}");
    assert!(!told.contains("fenced"), "{told}");
    let status = ask(folder.path(), &["status"]);
    assert!(status.contains("1 panics of the server so far"), "{status}");
    assert_eq!(
        write(server.socket_address(), "a", 0, next),
        Some(Status::SUCCESS),
        "one panic fences nobody"
    );

    fail_under_load(&server, next.next_multiple_of(LBAS));
    let address = server.socket_address();
    let protected = write(address, "a", 0, 1).unwrap();
    assert_eq!(protected, Status::NAMESPACE_WRITE_PROTECTED.do_not_retry());
    assert_eq!(write(address, "a", FAILS_AT, 1), Some(protected), "it does not fail again");
    for tenant in ["b", "c"] {
        assert_eq!(write(address, tenant, 0, 1), Some(Status::SUCCESS), "{tenant}");
    }
    let status = ask(folder.path(), &["status"]);
    assert!(status.contains("vSSD vssd-a takes no writes: fenced"), "{status}");
    assert_eq!(server.ended(), None, "it is the same process");
    let log = server.log();
    assert!(log.contains("two panics within ten minutes"), "{log}");
    server.kill();

    // The next process knows, until an administrator says otherwise.
    let server = serve(folder.path(), "file");
    let address = server.socket_address();
    assert_eq!(write(address, "a", 0, 1), Some(protected));
    let told = ask(folder.path(), &["panics"]);
    assert!(told.contains("2 panics") && told.contains("vSSD \"vssd-a\" is fenced since panic 2"), "{told}");
    let unknown = refused(folder.path(), &["--socket", "control.sock", "vssd", "unfence", "other"]);
    assert!(unknown.contains("there is no vSSD \"other\""), "{unknown}");
    ask(folder.path(), &["vssd", "unfence", "vssd-a"]);
    assert_eq!(write(address, "a", 0, 1), Some(Status::SUCCESS));
    let status = ask(folder.path(), &["status"]);
    assert!(!status.contains("takes no writes"), "{status}");
    fail_under_load(&server, LBAS);
    assert_eq!(write(server.socket_address(), "a", 0, 1), Some(Status::SUCCESS), "it had a new chance");
    server.stop();
}

/// Writes all blocks again and again over one connection until it is told to stop; gives what was acknowledged last, and the longest time
/// without an answer.
fn write_until_told(address: SocketAddr, tenant: &str, stop: &AtomicBool) -> (Vec<u64>, u64, Duration) {
    let mut acknowledged = vec![0; LBAS as usize];
    let mut host = connect(address, tenant);
    let (mut next, mut under_way) = (LBAS, 0);
    let mut sink = Collect::default();
    let (mut heard, mut longest) = (Instant::now(), Duration::ZERO);
    loop {
        while host.queue.room() > 0 && !stop.load(Ordering::Relaxed) {
            let lba = next % LBAS;
            let data = Buffer::copy_from(&content(tenant, lba, next));
            let span = LbaSpan { nsid: 1, first: lba, count: 1 };
            host.queue.submit(Token(next), Command::Write { span, data, force_unit_access: false });
            (next, under_way) = (next + 1, under_way + 1);
        }
        if under_way == 0 {
            return (acknowledged, next, longest);
        }
        host.exchange(&mut sink).unwrap_or_else(|error| panic!("{tenant} was interrupted: {error}"));
        longest = longest.max(heard.elapsed());
        heard = Instant::now();
        for completion in sink.completions.drain(..) {
            assert_eq!(completion.status, Status::SUCCESS);
            acknowledged[(completion.token.0 % LBAS) as usize] = completion.token.0;
            under_way -= 1;
        }
    }
}

/// The second shard fails twice under load: its tenant's hosts are hung up on and find all that was acknowledged, the second time its vSSD is
/// fenced; hosts of the first shard's tenants keep their connections, and administrators are answered.
fn fail_alone(backing: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut server = serve(folder.path(), backing);
    let address = server.socket_address();
    let stop = AtomicBool::new(false);
    let neighbours = ["a", "c"];
    std::thread::scope(|scope| {
        let going_on: Vec<_> = neighbours
            .iter()
            .map(|tenant| scope.spawn(|| write_until_told(address, tenant, &stop)))
            .collect();
        let mut from = LBAS;
        for time in 1..3 {
            let written = AtomicU64::new(0);
            let (acknowledged, end) = std::thread::scope(|scope| {
                let writer = scope.spawn(|| write_until_gone(address, "b", from, &written));
                wait::wait_until(|| "the host writes", || written.load(Ordering::Relaxed) >= 1000);
                assert_eq!(write(address, "b", FAILS_AT, 1), None, "the shard fails");
                writer.join().unwrap()
            });
            check(address, "b", &acknowledged, end);
            from = end.next_multiple_of(LBAS);
            let told = ask(folder.path(), &["panics"]);
            assert!(told.contains(&format!("{time} panics")) && told.contains("vSSD \"vssd-b\""), "{told}");
            let status = ask(folder.path(), &["status"]);
            for tenant in TENANTS {
                assert!(status.contains(&format!("vssd-{tenant}")), "{status}");
            }
            let tenant = format!("later-{time}");
            ask(folder.path(), &["tenant", "create", &tenant]);
        }
        let protected = write(address, "b", 0, 1).unwrap();
        assert_eq!(protected, Status::NAMESPACE_WRITE_PROTECTED.do_not_retry(), "two failures fence it");
        ask(folder.path(), &["vssd", "unfence", "vssd-b"]);
        assert_eq!(write(address, "b", 0, from), Some(Status::SUCCESS));
        stop.store(true, Ordering::Relaxed);
        for (tenant, one) in neighbours.iter().zip(going_on) {
            let (acknowledged, end, longest) = one.join().unwrap();
            println!("{backing}: {tenant} waited {longest:?} at most");
            check(address, tenant, &acknowledged, end);
        }
    });
    assert_eq!(server.ended(), None, "it is the same process");
    let log = server.log();
    assert!(!log.contains("all shards begin anew"), "{log}");
    server.stop();
}

#[test]
fn a_shard_of_a_device_in_a_file_fails_alone() {
    fail_alone("file");
}

#[test]
fn a_shard_of_a_device_in_memory_fails_alone() {
    fail_alone("memory");
}

#[test]
fn a_device_in_memory_outlives_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), "memory");
    fail_under_load(&server, LBAS);
    server.stop();
}
