//! Goal: applications at erase blocks of a real server keep what was acknowledged when they or the server are killed
//! (`kill -9`), and whoever misuses the socket or the rings is not felt by others. Method: a server process (this
//! program, started again) on a device in a file; content follows from the block's place in the order of allocations, so a checker needs no copy.
#![allow(clippy::disallowed_methods, reason = "drives real sockets and processes")]

mod block_server;

use block_server::{Server, write_setup};
use diecut_api::route;
use diecut_blockspace::ring::{Layout, private_words};
use diecut_blockspace::system;
use diecut_blockspace::wire::{HELLO_SIZE_BYTES, Hello, Status, VERSION, WELCOME_SIZE_BYTES, Welcome};
use diecut_blockspace::{Attach, AttachError, BlockError, Client, LogicalBlock, Purpose, UnitIndex};
use diecut_testing::wait::{comes, wait_for, wait_until};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

fn content(block: LogicalBlock, purpose: u8, page: u64, len: usize) -> Vec<u8> {
    let seed = u64::from(block.index) << 32 | u64::from(block.unit.0) << 16 | u64::from(purpose) | page << 48;
    let word = |at: usize| (seed ^ (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
    (0..len / 8).flat_map(word).collect()
}

/// Appends acknowledged, by block: purpose and program units.
type Acked = BTreeMap<LogicalBlock, (u8, u64)>;

/// Everything acknowledged is there, and reads as it was written.
fn check(client: &Client, acked: &Acked) {
    let held: BTreeMap<_, _> =
        client.held_blocks().unwrap().into_iter().map(|record| (record.block, record)).collect();
    let len = client.shape().unit_of_append_bytes() as usize;
    for (block, &(purpose, units)) in acked {
        let record = held.get(block).unwrap_or_else(|| panic!("{block:?} is lost"));
        assert_eq!(record.purpose, purpose);
        assert!(u64::from(record.written_pages) >= units * u64::from(client.shape().program_unit_pages));
        for unit in 0..units {
            let mut bytes = vec![0; len];
            client.read(*block, unit * len as u64, &mut bytes).unwrap();
            assert!(bytes == content(*block, purpose, unit, len), "{block:?} unit {unit}");
        }
    }
}

/// Fills blocks until `steps` appends are acknowledged or the server is gone; frees the oldest when a unit is full.
fn work(client: &Client, acked: &mut Acked, steps: u32, mut tell: impl FnMut(LogicalBlock, u8, u64)) {
    let len = client.shape().unit_of_append_bytes() as usize;
    let units_of_block = u64::from(client.shape().pages / client.shape().program_unit_pages);
    let mut open: Vec<Option<(LogicalBlock, u8, u64)>> = vec![None; client.shape().units.into()];
    for step in 0..steps {
        let unit = step as usize % open.len();
        let (block, purpose, written) = match open[unit].filter(|(.., written)| *written < units_of_block) {
            Some(open) => open,
            None => match client.allocate(UnitIndex(unit as u16), Purpose(step as u8)) {
                Ok(block) => (block, step as u8, 0),
                Err(BlockError::Status(Status::NoFreeBlock)) => {
                    let oldest = *acked.keys().find(|block| usize::from(block.unit.0) == unit).unwrap();
                    // Not acknowledged any more from before it is asked for.
                    acked.remove(&oldest);
                    open[unit] = None;
                    match client.free(oldest) {
                        Ok(()) => continue,
                        Err(error) => return assert_eq!(error, BlockError::ServerGone),
                    }
                }
                Err(error) => return assert_eq!(error, BlockError::ServerGone),
            },
        };
        match client.append(block, &content(block, purpose, written, len)) {
            Ok(place) => assert_eq!(place, written * len as u64),
            Err(error) => return assert_eq!(error, BlockError::ServerGone),
        }
        acked.insert(block, (purpose, written + 1));
        open[unit] = Some((block, purpose, written + 1));
        tell(block, purpose, written + 1);
    }
}

#[test]
fn blocks_survive_kills_of_the_server_with_any_number_of_shards() {
    let folder = tempfile::tempdir().unwrap();
    write_setup(folder.path());
    let mut acked = [Acked::new(), Acked::new()];
    for (round, shards) in [1, 2, 1, 2].into_iter().enumerate() {
        let mut server = Server::start(folder.path(), shards);
        let clients = ["blocks-a", "blocks-b"].map(|name| server.attach(name));
        for (client, acked) in clients.iter().zip(&acked) {
            check(client, acked);
            let kept: Vec<_> = acked.keys().copied().collect();
            client.keep(&kept).unwrap();
            assert_eq!(client.held_blocks().unwrap().len(), kept.len(), "the others are freed");
        }
        let done = [AtomicU64::new(0), AtomicU64::new(0)];
        let worked = std::thread::scope(|scope| {
            for ((client, acked), done) in clients.iter().zip(&mut acked).zip(&done) {
                let count = move |_, _, _| _ = done.fetch_add(1, Ordering::Relaxed);
                scope.spawn(move || work(client, acked, u32::MAX, count));
            }
            // Some units of each are full, and blocks are freed.
            let enough = 300 + 100 * round as u64;
            let worked = comes(|| done.iter().all(|one| one.load(Ordering::Relaxed) >= enough).then_some(()));
            server.child.kill().unwrap();
            worked
        });
        assert!(worked.is_some(), "both applications go on: {done:?}");
        assert_eq!(clients[0].sync(), Err(BlockError::ServerGone));
    }
}

/// Tenants go from shard to shard while their applications work: nothing fails, all go on, and after `kill -9` in the midst of
/// it what was acknowledged is there.
#[test]
fn applications_stay_attached_while_their_tenants_move() {
    let folder = tempfile::tempdir().unwrap();
    write_setup(folder.path());
    let mut acked = [Acked::new(), Acked::new()];
    let mut server = Server::start(folder.path(), 3);
    let clients = ["blocks-a", "blocks-b"].map(|name| server.attach(name));
    clients.iter().for_each(|client| client.keep(&[]).map(|_| ()).unwrap());
    let done = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        let workers: Vec<_> = clients
            .iter()
            .zip(&mut acked)
            .zip(&done)
            .map(|((client, acked), done)| {
                let count = move |_, _, _| {
                    done.fetch_add(1, Ordering::Relaxed);
                };
                scope.spawn(move || work(client, acked, u32::MAX, count))
            })
            .collect();
        let mut turns = (0..24).map(|turn| {
            let before = done.each_ref().map(|one| one.load(Ordering::Relaxed));
            let (tenant, shard) = (["a", "b"][turn % 2], (turn / 2 + turn % 2) % 3);
            let path = format!("/v1/tenants/{tenant}/home");
            let answer = server.ask("POST", &path, &format!("{{\"shard\":{shard}}}"));
            if !answer.starts_with("HTTP/1.1 204") {
                return Err(format!("turn {turn}: {answer}"));
            }
            // One whose rings were forgotten would never go on.
            let outcome = comes(|| {
                if workers.iter().any(|worker| worker.is_finished()) {
                    return Some(Err(format!("turn {turn}: an application was hung up on")));
                }
                let go_on =
                    done.iter().zip(before).all(|(one, before)| one.load(Ordering::Relaxed) >= before + 10);
                go_on.then_some(Ok(()))
            });
            outcome.unwrap_or_else(|| Err(format!("turn {turn}: an application is not answered any more")))
        });
        let outcome = turns.try_for_each(|turn| turn);
        // First of all: applications work until the server is gone.
        server.child.kill().unwrap();
        assert_eq!(outcome, Ok(()));
    });
    server.child.wait().unwrap();
    let server = Server::start(folder.path(), 2);
    for (name, acked) in ["blocks-a", "blocks-b"].into_iter().zip(&acked) {
        check(&server.attach(name), acked);
    }
}

/// Not a test by itself: the application that the next test starts and kills.
#[test]
fn application_to_be_killed() {
    let Ok(socket) = std::env::var("DIECUT_TEST_APPLICATION") else { return };
    let client = Client::attach(Attach { socket: Path::new(&socket), vssd: "blocks-a" }).unwrap();
    client.keep(&[]).unwrap();
    work(&client, &mut Acked::new(), u32::MAX, |block, purpose, units| {
        println!("\nacked {} {} {purpose} {units}", block.unit.0, block.index);
    });
}

#[test]
fn blocks_of_a_killed_application_are_there_for_the_next() {
    let folder = tempfile::tempdir().unwrap();
    write_setup(folder.path());
    let server = Server::start(folder.path(), 1);
    let neighbour = server.attach("blocks-b");
    neighbour.keep(&[]).unwrap();
    let mut others = Acked::new();
    for _ in 0..3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "application_to_be_killed", "--nocapture"])
            .env("DIECUT_TEST_APPLICATION", server.socket())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acked = Acked::new();
        let mut take = |line: String| {
            let Some(rest) = line.strip_prefix("acked ") else { return };
            let fields: Vec<u64> = rest.split(' ').filter_map(|field| field.parse().ok()).collect();
            let [unit, index, purpose, units] = fields[..] else { return };
            let block = LogicalBlock { unit: UnitIndex(unit as u16), index: index as u32 };
            acked.insert(block, (purpose as u8, units));
        };
        // Few enough that no unit is full, so that nothing was freed.
        for _ in 0..60 {
            take(lines.next().expect("the application works").unwrap());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        work(&neighbour, &mut others, 50, |_, _, _| {});
        let client = server.attach("blocks-a");
        check(&client, &acked);
        assert!(!acked.is_empty());
    }
    check(&neighbour, &others);
}

/// Attaches by hand.
fn attach_raw(server: &Server, vssd: &str) -> (UnixStream, Welcome, Vec<std::os::fd::OwnedFd>) {
    let mut socket = UnixStream::connect(server.socket()).unwrap();
    socket.write_all(&Hello { version: VERSION, vssd: vssd.to_owned() }.encode().unwrap()).unwrap();
    let mut bytes = [0; WELCOME_SIZE_BYTES];
    let (len, descriptors) = system::receive_with(&socket, &mut bytes).unwrap();
    assert_eq!(len, bytes.len());
    (socket, Welcome::decode(&bytes).unwrap(), descriptors)
}

#[test]
fn who_misuses_socket_and_rings_is_hung_up_on_and_not_felt() {
    let folder = tempfile::tempdir().unwrap();
    write_setup(folder.path());
    let server = Server::start(folder.path(), 2);
    let neighbour = server.attach("blocks-b");
    neighbour.keep(&[]).unwrap();
    let mut acked = Acked::new();
    let silent: Vec<_> = (0..100).map(|_| UnixStream::connect(server.socket()).unwrap()).collect();
    work(&neighbour, &mut acked, 20, |_, _, _| {});
    drop(silent);
    for bytes in [&[0xff; HELLO_SIZE_BYTES][..], &[0; 1][..], b"GET / HTTP/1.1\r\n\r\n", &[b'D'; 100_000]] {
        let mut socket = UnixStream::connect(server.socket()).unwrap();
        let _ = socket.write_all(bytes);
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
    }
    let other_version = Hello { version: 99, vssd: "blocks-a".to_owned() };
    let mut socket = UnixStream::connect(server.socket()).unwrap();
    socket.write_all(&other_version.encode().unwrap()).unwrap();
    let mut bytes = [0; WELCOME_SIZE_BYTES];
    socket.read_exact(&mut bytes).unwrap();
    assert_eq!(Welcome::decode(&bytes).unwrap().status, Status::Version);
    // Counters and entries full of rubbish, of which a few make sense by chance.
    for seed in 0..40u64 {
        let (mut socket, welcome, descriptors) = wait_for(
            || "the one before holds it",
            || Some(attach_raw(&server, "blocks-a")).filter(|attached| attached.1.status != Status::Held),
        );
        assert_eq!((welcome.status, descriptors.len()), (Status::Done, 2));
        let (entries, slots, slot_size_bytes) = (welcome.entries, welcome.slots, welcome.slot_size_bytes);
        let layout = Layout { entries, slots, slot_size_bytes };
        let words = system::map_memory(&descriptors[0], layout.size_bytes()).unwrap();
        assert!(std::fs::File::from(descriptors[0].try_clone().unwrap()).set_len(0).is_err(), "sealed");
        let words = (*words).as_ref();
        for at in 0..64 * u64::from(entries) / 8 {
            let value = (seed << 32 ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            // Operations that exist, small numbers, zeros where they must be.
            let value = match at % 8 {
                0 => value & 0xffff_0003_0001_ff0f,
                2 => value & 0x0000_001f_0000_003f,
                3 => value & 0x000f_fff8,
                4.. => 0,
                _ => value,
            };
            words[512 + at as usize].store(value, Ordering::Relaxed);
        }
        let tail = if seed % 4 == 0 { u64::MAX - seed } else { u64::from(entries) };
        words[128 / 8].store(tail, Ordering::SeqCst);
        for _ in 0..=seed {
            system::ring(&descriptors[1]);
        }
        if tail > u64::from(entries) {
            assert_eq!(socket.read(&mut [0; 1]).unwrap_or(0), 0, "hung up on");
        } else {
            let answered = || words[320 / 8].load(Ordering::Acquire);
            let each = u64::from(entries);
            wait_until(|| format!("{} of {each} entries have an answer", answered()), || answered() == each);
            words[384 / 8].store(u64::MAX, Ordering::SeqCst);
            system::ring(&descriptors[1]);
            assert_eq!(socket.read(&mut [0; 1]).unwrap_or(0), 0, "hung up on");
        }
    }
    work(&neighbour, &mut acked, 20, |_, _, _| {});
    check(&neighbour, &acked);
    // Smaller memory than was said is not mapped: what `private_words` is for instead.
    assert_eq!((*private_words(4096)).as_ref().len(), 512);
}

#[test]
fn administration_says_what_cannot_be_had() {
    let folder = tempfile::tempdir().unwrap();
    write_setup(folder.path());
    let server = Server::start(folder.path(), 1);
    let client = server.attach("blocks-a");
    let refused = |vssd: &str| match server.try_attach(vssd) {
        Err(AttachError::Refused { status, message }) => (status, message),
        other => panic!("{:?}", other.map(|_| ())),
    };
    assert_eq!(refused("blocks-a").0, Status::Held);
    let (status, message) = refused("nothing");
    assert!(status == Status::Refused && message.contains("nothing"), "{message}");
    let volume = r#"{"name":"v","vssd":"blocks-a","size":"1 MiB"}"#;
    let answer = server.ask("POST", route::VOLUMES, volume);
    assert!(answer.contains("serves erase blocks"), "{answer}");
    let vssd = r#"{"name":"c","tenant":"a","isolation":"channel","capacity":"1 MiB"}"#;
    let answer = server.ask("POST", route::VSSDS, vssd);
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
    assert_eq!(refused("c").0, Status::Refused, "a vSSD for volumes");
    let status = server.ask("GET", route::STATUS, "");
    assert!(status.contains("\"use\":\"blocks\"") && status.contains("4242"), "{status}");
    let answer = server.ask("DELETE", &route::of(route::VSSDS, "blocks-a"), "");
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
    assert_eq!(client.sync(), Err(BlockError::ServerGone), "its application is hung up on");
    assert_eq!(refused("blocks-a").0, Status::Refused);
}
