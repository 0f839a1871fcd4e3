//! Goal: reservations that persist through power loss stand in the next process, after a stop, after `kill -9` and after a panic of a shard, of volumes
//! and of zones; volatile ones are gone. Method: the real binary with two shards over a file; two hosts over real sockets.
#![allow(clippy::disallowed_methods, reason = "drives real sockets and processes")]

use crate::{host, served};
use diecut_initiator::{Collect, Token};
use diecut_nvme::reservation::*;
use diecut_nvme::{Status, SubmissionEntry, opcode};
use diecut_testing::wait;
use diecut_units::Buffer;
use host::Host;
use served::{Server, command, write_profile};
use std::net::SocketAddr;
use std::path::Path;
use zerocopy::{FromBytes, IntoBytes};

/// Namespaces of the subsystem: volumes whose reservation persists and does not, zones.
const PERSISTENT: u32 = 1;
const VOLATILE: u32 = 2;
const ZONES: u32 = 3;
const A: [u8; 16] = [0xA1; 16];
const B: [u8; 16] = [0xB2; 16];
const KIND: ReservationKind = ReservationKind::WriteExclusiveRegistrantsOnly;
const FAILS_AT: u64 = 200;

fn serve(folder: &Path) -> Server {
    write_profile(folder);
    let setup = "[server]\nshards = 2\n[device]\nprofile = \"small.toml\"\nprotected_memory = \"64 MiB\"\n\
         [[tenant]]\nname = \"a\"\n\
         [[vssd]]\nname = \"flash\"\ntenant = \"a\"\nisolation = \"channel\"\ncapacity = \"24 MiB\"\n\
         [[vssd]]\nname = \"zoned\"\ntenant = \"a\"\nisolation = \"channel\"\ncapacity = \"24 MiB\"\nuse = \"zones\"\n\
         [[volume]]\nname = \"one\"\nvssd = \"flash\"\nsize = \"1 MiB\"\n\
         [[volume]]\nname = \"two\"\nvssd = \"flash\"\nsize = \"1 MiB\"\n\
         [[volume]]\nname = \"three\"\nvssd = \"zoned\"\nsize = \"8 MiB\"\nzones = { units = 1 }\n\
         [[subsystem]]\nnqn = \"nqn.2026-11.org.diecut:a\"\ntenant = \"a\"\nallow_any_host = true\n\
         namespaces = [{ nsid = 1, volume = \"one\" }, { nsid = 2, volume = \"two\" }, { nsid = 3, volume = \"three\" }]\n";
    std::fs::write(folder.join("setup.toml"), setup).unwrap();
    let mut serve = command(folder);
    serve.env("DIECUT_PLANTED_PANIC_LBA", FAILS_AT.to_string());
    serve.args(["serve", "--listen", "127.0.0.1:0", "--setup", "setup.toml", "--data", "."]);
    Server::start_as(folder, serve)
}

fn connect(address: SocketAddr, id: [u8; 16]) -> Host {
    wait::wait_for(|| "not let in".to_owned(), || Host::connect_as(address, "a", id).ok())
}

/// Status and data; nothing if the server hung up.
fn ask(host: &mut Host, entry: SubmissionEntry, data: Option<&[u8]>, room: u32) -> Option<(Status, Vec<u8>)> {
    host.queue.submit_entry(Token(1), entry, data.map(Buffer::copy_from), room);
    let mut sink = Collect::default();
    while sink.completions.is_empty() {
        host.exchange(&mut sink).ok()?;
    }
    Some((sink.completions[0].status, sink.data.remove(&Token(1)).unwrap_or_default()))
}

fn reserve(host: &mut Host, nsid: u32, code: u8, command: ReservationCommand, keys: [u64; 2]) {
    let mut entry = SubmissionEntry { opcode: code, nsid: nsid.into(), ..Default::default() };
    command.encode(&mut entry);
    assert_eq!(ask(host, entry, Some(keys.as_bytes()), 0).unwrap().0, Status::SUCCESS);
}

fn write(host: &mut Host, nsid: u32, lba: u64) -> Option<Status> {
    let mut entry = SubmissionEntry { opcode: opcode::io::WRITE, nsid: nsid.into(), ..Default::default() };
    diecut_nvme::io::LbaRange::plain(lba, 1).encode(&mut entry);
    Some(ask(host, entry, Some(&[7; 4096]), 0)?.0)
}

fn report(host: &mut Host, nsid: u32) -> (ReservationStatus, Vec<RegisteredController>) {
    let mut entry =
        SubmissionEntry { opcode: opcode::io::RESERVATION_REPORT, nsid: nsid.into(), ..Default::default() };
    ReservationReport { length_bytes: 4096, extended: true }.encode(&mut entry);
    let (status, page) = ask(host, entry, None, 4096).unwrap();
    assert_eq!(status, Status::SUCCESS);
    let (head, rest) = ReservationStatus::read_from_prefix(&page).unwrap();
    let all = rest.chunks_exact(64).map(|one| RegisteredController::read_from_bytes(one).unwrap());
    (head, all.take(head.regctl.get().into()).collect())
}

fn take(host: &mut Host, nsid: u32, persistence: u8) {
    let nothing = ReservationCommand { action: 0, ignores_key: false, kind: 0, persistence: 0 };
    let register = ReservationCommand { persistence, ..nothing };
    reserve(host, nsid, opcode::io::RESERVATION_REGISTER, register, [0, 77]);
    let acquire = ReservationCommand { kind: KIND as u8, ..nothing };
    reserve(host, nsid, opcode::io::RESERVATION_ACQUIRE, acquire, [77, 0]);
}

/// Host A has what persists, and host B is kept out; nobody has what does not.
fn stands(address: SocketAddr, what: &str) {
    let (mut a, mut b) = (connect(address, A), connect(address, B));
    for nsid in [PERSISTENT, ZONES] {
        let (head, all) = report(&mut b, nsid);
        assert_eq!((head.rtype, head.ptpls, head.generation.get()), (KIND as u8, 1, 1), "{what}, {nsid}");
        let facts: Vec<_> = all.iter().map(|one| (one.hostid, one.rkey.get(), one.rcsts)).collect();
        assert_eq!(facts, [(A, 77, 1)], "{what}, {nsid}");
        let status = write(&mut b, nsid, 0).unwrap();
        assert!(status.same_code(Status::RESERVATION_CONFLICT), "{what}, {nsid}: {status}");
    }
    assert_eq!(write(&mut a, PERSISTENT, 1), Some(Status::SUCCESS), "{what}");
    let (head, all) = report(&mut b, VOLATILE);
    assert_eq!((head.rtype, head.ptpls, head.generation.get(), all.len()), (0, 0, 0, 0), "{what}");
    assert_eq!(write(&mut b, VOLATILE, 0), Some(Status::SUCCESS), "{what}");
}

#[test]
fn what_persists_stands_in_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path());
    let mut a = connect(server.socket_address(), A);
    take(&mut a, PERSISTENT, PERSISTS);
    take(&mut a, ZONES, PERSISTS);
    take(&mut a, VOLATILE, PERSISTENCE_STAYS);
    let mut b = connect(server.socket_address(), B);
    assert!(write(&mut b, VOLATILE, 0).unwrap().same_code(Status::RESERVATION_CONFLICT));
    server.kill();
    let server = serve(folder.path());
    stands(server.socket_address(), "after kill -9");
    server.stop();
    let server = serve(folder.path());
    stands(server.socket_address(), "after a stop");
    // Builds without debug assertions carry no check that fails on purpose.
    if cfg!(debug_assertions) {
        let mut a = connect(server.socket_address(), A);
        assert_eq!(write(&mut a, PERSISTENT, FAILS_AT), None, "the shard fails");
        stands(server.socket_address(), "after a panic");
    }
    server.stop();
}
