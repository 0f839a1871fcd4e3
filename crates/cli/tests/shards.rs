//! Goal: what a server with several shards acknowledged is there after `kill -9`, whatever number of shards the next one has;
//! and idle shards sleep, also with connected hosts. Method: the real binary on a device in a file, a host per tenant over real
//! sockets, each with its own content in every block. Not timed: the processor's time is read, not the clock's.
#![allow(clippy::disallowed_methods, reason = "drives real sockets and processes")]

use crate::{host, served};
use diecut_initiator::{Collect, Command, LbaSpan, Token};
use diecut_nvme::Status;
use diecut_testing::wait;
use diecut_units::Buffer;
use host::Host;
use served::{Server, command, refused, write_profile};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const TENANTS: [&str; 3] = ["a", "b", "c"];
const LBAS: u64 = 256;

fn serve(folder: &Path, shards: u16) -> Server {
    Server::in_folder(folder, &["--shards", &shards.to_string()])
}

/// Processor time of a server so far, in clock ticks: fields 14 and 15 of `/proc/PID/stat`.
fn ticks(server: &Server) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

/// Four channels, room for a cleaner, protected memory for three tenants.
fn write_setup(folder: &Path) {
    write_profile(folder);
    let mut setup = "[device]\nprofile = \"small.toml\"\nprotected_memory = \"64 MiB\"\n".to_owned();
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
}

fn content(tenant: &str, lba: u64, version: u64) -> Vec<u8> {
    let words = [u64::from(tenant.as_bytes()[0]), lba, version];
    words.iter().flat_map(|word| word.to_le_bytes()).cycle().take(4096).collect()
}

/// Writes all blocks again and again until the server is gone; gives the version of each that was acknowledged last.
fn write_until_gone(address: SocketAddr, tenant: &str, from: u64, done: &AtomicU64) -> (Vec<u64>, u64) {
    let mut acknowledged = vec![0; LBAS as usize];
    let mut host = Host::connect(address, tenant).unwrap();
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
            let version = completion.token.0;
            acknowledged[(version % LBAS) as usize] = version;
            done.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn check(address: SocketAddr, tenant: &str, acknowledged: &[u64], next: u64) {
    let mut host = Host::connect(address, tenant).unwrap();
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
        if found_version > 0 {
            assert_eq!(*found, content(tenant, lba as u64, found_version), "{tenant}: LBA {lba} is whole");
        }
    }
}

#[test]
fn what_was_acknowledged_survives_kill_9_with_other_numbers_of_shards() {
    let folder = tempfile::tempdir().unwrap();
    write_setup(folder.path());
    let mut next = [LBAS; TENANTS.len()];
    for shards in [2, 3, 1, 4, 2] {
        let server = serve(folder.path(), shards);
        let done = AtomicU64::new(0);
        let (address, written) = (server.socket_address(), &done);
        let lives: Vec<(Vec<u64>, u64)> = std::thread::scope(|scope| {
            let writers: Vec<_> = TENANTS
                .iter()
                .zip(next)
                .map(|(tenant, from)| scope.spawn(move || write_until_gone(address, tenant, from, written)))
                .collect();
            let written = wait::comes(|| (done.load(Ordering::Relaxed) >= 6000).then_some(()));
            server.kill();
            assert!(written.is_some(), "{done:?} LBAs were written");
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let server = serve(folder.path(), 5 - shards.min(4));
        for ((tenant, (acknowledged, end)), next) in TENANTS.iter().zip(&lives).zip(&mut next) {
            check(server.socket_address(), tenant, acknowledged, *end);
            *next = *end;
        }
        server.kill();
    }
}

/// Tenants change their shard while hosts write: no connection ends, no command fails, and nothing acknowledged is missing
/// after `kill -9`, whether the server dies between two moves or on the way of one.
#[test]
fn tenants_move_under_load() {
    let folder = tempfile::tempdir().unwrap();
    write_setup(folder.path());
    let mut next = [LBAS; TENANTS.len()];
    for life in 0..3 {
        let server = serve(folder.path(), 3);
        let done = TENANTS.map(|_| AtomicU64::new(0));
        let (address, written) = (server.socket_address(), &done);
        let move_to = |tenant: &str, shard: usize| {
            let shard = shard.to_string();
            let mut command = command(folder.path());
            command.args(["--socket", "control.sock", "tenant", "move", tenant, "--shard", &shard]);
            command.stderr(Stdio::piped()).spawn().unwrap()
        };
        let lives: Vec<(Vec<u64>, u64)> = std::thread::scope(|scope| {
            let writers: Vec<_> = TENANTS
                .iter()
                .zip(next)
                .zip(written)
                .map(|((tenant, from), done)| {
                    scope.spawn(move || write_until_gone(address, tenant, from, done))
                })
                .collect();
            for turn in 0..12 {
                let before: Vec<u64> = written.iter().map(|one| one.load(Ordering::Relaxed)).collect();
                let moved =
                    move_to(TENANTS[turn % 3], (turn + turn / 3 + life) % 3).wait_with_output().unwrap();
                assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
                // All go on; one whose host was forgotten would never.
                let go_on = || {
                    let mut both = written.iter().zip(&before);
                    both.all(|(one, before)| one.load(Ordering::Relaxed) >= before + 100)
                };
                let ended = || writers.iter().any(|writer| writer.is_finished());
                assert!(
                    wait::comes(|| (go_on() || ended()).then(go_on)) == Some(true),
                    "turn {turn}: hosts stay connected and go on"
                );
            }
            // The death of the server meets this one somewhere on its way.
            let before = written[1].load(Ordering::Relaxed);
            let mut last = move_to("a", (life + 1) % 3);
            wait::comes(|| (written[1].load(Ordering::Relaxed) >= before + 20 * life as u64).then_some(()));
            server.kill();
            last.wait().unwrap();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let server = serve(folder.path(), 1 + life as u16);
        for ((tenant, (acknowledged, end)), next) in TENANTS.iter().zip(&lives).zip(&mut next) {
            check(server.socket_address(), tenant, acknowledged, *end);
            *next = *end;
        }
        server.kill();
    }
}

#[test]
fn idle_shards_sleep_with_connected_hosts() {
    let folder = tempfile::tempdir().unwrap();
    write_setup(folder.path());
    let server = serve(folder.path(), 2);
    let hosts: Vec<Host> =
        TENANTS.iter().map(|tenant| Host::connect(server.socket_address(), tenant).unwrap()).collect();
    let took_in_two_seconds = || {
        let before = ticks(&server);
        wait::let_time_pass(Duration::from_secs(2));
        ticks(&server) - before
    };
    // What the hosts asked for is done soon. One thread that never sleeps takes 200 ticks of a hundredth of a second.
    wait::wait_until(|| "the shards never sleep for two seconds", || took_in_two_seconds() <= 4);
    drop(hosts);
}

#[test]
fn what_cannot_be_is_said() {
    let folder = tempfile::tempdir().unwrap();
    write_setup(folder.path());
    for (arguments, word) in [
        (vec!["--shards", "5"], "whole channels"),
        (vec!["--shards", "0"], "use 1 to"),
        (vec!["--shards", "2", "--record", "x"], "a recording holds one shard"),
    ] {
        let serve = ["serve", "--setup", "setup.toml", "--listen", "127.0.0.1:0", "--data", "data"];
        let said = refused(folder.path(), &[&serve, &arguments[..]].concat());
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}
