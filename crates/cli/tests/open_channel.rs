//! Goal: the chunks of a vSSD whose use is open-channel are what a host wrote, over the sockets of the real binary, also after it was killed; and a
//! set-up that cannot be says what is wrong. Method: a server in a folder, the library for hosts of Open-Channel, and a host that keeps no more
//! than what it is told.
#![allow(clippy::disallowed_methods, reason = "drives real sockets and processes")]

use crate::{host, served};
use diecut_initiator::openchannel::{OpenChannel, Request, failed_blocks};
use diecut_initiator::{Collect, Token};
use diecut_nvme::Status;
use diecut_nvme::openchannel::chunk_state;
use host::Host;
use served::{SETUP, Server, assert_says, folder, refused};
use std::path::Path;

const LBA_BYTES: u32 = 4096;
/// Chunks of a die, and dies, of the set-up.
const CHUNKS: u32 = 4;
const DIES: u32 = 2;

/// The set-up of others, with chunks: `size` is that of the volume, `more` goes to the vSSD.
fn write_setup(folder: &Path, isolation: &str, size: &str, more: &str) {
    let changes = [
        ("isolation = \"channel\"", format!("isolation = \"{isolation}\"\nuse = \"open-channel\"\n{more}")),
        ("size = \"1M\"", format!("size = \"{size}\"")),
        ("allowed_hosts = [\"nqn.2026-11.org.diecut:bench\"]", "allow_any_host = true".to_owned()),
    ];
    let setup = changes.iter().fold(SETUP.to_owned(), |setup, (old, new)| {
        assert!(setup.contains(old), "{old}");
        setup.replace(old, new)
    });
    std::fs::write(folder.join("setup.toml"), setup).unwrap();
}

fn content(chunk: u32, first: u32, count: u32) -> Vec<u8> {
    let block = |at: u32| (u64::from(chunk) << 32) | (u64::from(at) + 1);
    let word = |at: u32| block(at).to_le_bytes().repeat(LBA_BYTES as usize / 8);
    (first..first + count).flat_map(word).collect()
}

/// A host, and what it knows of its chunks.
struct Client {
    host: Host,
    open: OpenChannel,
    next: u64,
}

impl Client {
    fn connect(server: &Server) -> Client {
        let mut host = Host::connect(server.socket_address(), "a").unwrap();
        let Request { entry, expected_bytes, .. } = OpenChannel::ask_geometry(1);
        let (status, geometry) = host.ask(entry, expected_bytes).unwrap();
        assert_eq!(status, Status::SUCCESS);
        let mut client = Client { host, open: OpenChannel::new(1, &geometry).unwrap(), next: 0 };
        client.look();
        client
    }

    /// Reads how all chunks are.
    fn look(&mut self) {
        let Request { entry, expected_bytes, .. } = self.open.ask_chunks(0, CHUNKS * DIES);
        let (status, page) = self.host.ask(entry, expected_bytes).unwrap();
        assert_eq!(status, Status::SUCCESS);
        self.open.take_chunks(0, &page);
    }

    fn run(&mut self, request: Request) -> (Status, Vec<u8>) {
        let (status, _, data) = self.run_for_result(request);
        (status, data)
    }

    /// As [`Client::run`], with dwords 0 and 1 of the completion.
    fn run_for_result(&mut self, request: Request) -> (Status, u64, Vec<u8>) {
        let Request { entry, data, expected_bytes, effect } = request;
        self.next += 1;
        let token = Token(self.next);
        self.host.queue.submit_entry(token, entry, data, expected_bytes);
        let mut sink = Collect::default();
        while sink.completions.is_empty() {
            self.host.exchange(&mut sink).unwrap();
        }
        let (status, result) = (sink.completions[0].status, sink.completions[0].result);
        self.open.ended(&effect, status);
        (status, result, sink.data.remove(&token).unwrap_or_default())
    }

    /// Writes chunks to their end, all of them side by side.
    fn fill(&mut self, chunks: &[u32], unit: u32, size: u32) {
        for first in (0..size).step_by(unit as usize) {
            let parts: Vec<(u32, u32)> = chunks.iter().map(|chunk| (*chunk, unit)).collect();
            let data: Vec<u8> = chunks.iter().flat_map(|chunk| content(*chunk, first, unit)).collect();
            let request = self.open.write(&parts, &data).unwrap();
            assert_eq!(self.run(request).0, Status::SUCCESS);
        }
    }

    fn holds(&mut self, chunk: u32, count: u32) {
        for first in (0..count).step_by(32) {
            let some = (count - first).min(32);
            let request = self.open.read(chunk, first, some, LBA_BYTES).unwrap();
            let (status, data) = self.run(request);
            assert_eq!(status, Status::SUCCESS, "chunk {chunk} at {first}");
            assert!(data == content(chunk, first, some), "chunk {chunk} at {first}");
        }
    }

    fn states(&self) -> Vec<(u8, u32)> {
        self.open.chunks().iter().map(|chunk| (chunk.state, chunk.written)).collect()
    }
}

#[test]
fn chunks_outlive_a_server_that_was_killed() {
    let folder = folder();
    // 2 dies of 4 chunks of 64 logical blocks.
    write_setup(folder.path(), "channel", "2M", "");
    let server = Server::in_folder(folder.path(), &[]);
    let mut client = Client::connect(&server);
    let geometry = *client.open.geometry();
    let (unit, size) = (geometry.write_min.get(), geometry.chunk_blocks.get());
    assert_eq!((geometry.groups.get(), u32::from(geometry.units.get())), (1, DIES));
    client.fill(&[0, CHUNKS, CHUNKS + 1], unit, size);
    let request = client.open.write(&[(1, 2 * unit)], &content(1, 0, 2 * unit)).unwrap();
    assert_eq!(client.run(request).0, Status::SUCCESS);
    let request = client.open.reset(&[CHUNKS]).unwrap();
    assert_eq!(client.run(request).0, Status::SUCCESS);
    // Blocks that lie anywhere, in an order of the host's; one chunk of them was reset.
    let mut blocks = vec![(CHUNKS + 1, size - 1), (0, 5), (CHUNKS + 1, 0), (0, 4), (0, 5)];
    let whole =
        |blocks: &[(u32, u32)]| blocks.iter().flat_map(|at| content(at.0, at.1, 1)).collect::<Vec<u8>>();
    let request = client.open.read_list(&blocks, LBA_BYTES).unwrap();
    assert_eq!(client.run_for_result(request), (Status::SUCCESS, 0, whole(&blocks)));
    blocks[2] = (CHUNKS, 0);
    let request = client.open.read_list(&blocks, LBA_BYTES).unwrap();
    let (status, result, data) = client.run_for_result(request);
    assert!(status.same_code(Status::UNWRITTEN_BLOCK), "{status:?}");
    assert_eq!(failed_blocks(result).collect::<Vec<u32>>(), [2]);
    let lba = LBA_BYTES as usize;
    assert!(data[..2 * lba] == whole(&blocks[..2]) && data[3 * lba..] == whole(&blocks[3..]));
    assert!(data[2 * lba..3 * lba].iter().all(|byte| *byte == 0), "what was not read is zeroes");
    server.kill();

    let server = Server::in_folder(folder.path(), &[]);
    let mut client = Client::connect(&server);
    let (free, closed) = ((chunk_state::FREE, 0), |written| (chunk_state::CLOSED, written));
    let expected = [closed(size), closed(2 * unit), free, free, free, closed(size), free, free];
    assert_eq!(client.states(), expected);
    client.holds(0, size);
    client.holds(1, 2 * unit);
    client.holds(CHUNKS + 1, size);
    client.fill(&[CHUNKS], unit, size);
    client.holds(CHUNKS, size);
    server.stop();
}

#[test]
fn set_ups_that_cannot_be_say_what_is_wrong() {
    let folder = folder();
    let says = |isolation: &str, size: &str, more: &str, words: &[&str]| {
        write_setup(folder.path(), isolation, size, more);
        assert_says(&refused(folder.path(), &["serve", "--setup", "setup.toml", "--data", "."]), words);
    };
    says("software", "2M", "", &["vSSD \"flash\"", "use channel or die isolation"]);
    says("channel", "2M", "placement_handles = 2", &["vSSD \"flash\"", "placement_handles"]);
    says("channel", "2M", "uid = 5", &["vSSD \"flash\"", "uid 5", "open-channel"]);
    says("die", "1000K", "", &["volume \"disk\"", "524288", "one erase block on each of 2 units"]);
}
