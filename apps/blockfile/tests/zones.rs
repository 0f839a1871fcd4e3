//! Goal: files in the zones of a real server last, and whoever attaches last holds them. Method: a server process with a small zoned
//! namespace; two stores in this process take the zones from one another.
#![allow(clippy::disallowed_methods, reason = "drives real processes")]

#[path = "../../../crates/daemon/tests/block_server/mod.rs"]
mod block_server;

use block_server::{Server, ZONES_NQN, write_zones_setup};
use diecut_blockfile::{FileId, Files, medium};

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
