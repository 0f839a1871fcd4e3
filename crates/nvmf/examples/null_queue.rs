//! Commands per second through parse, submit, complete and outbox, without sockets: what the target itself costs.
//!
//! `cargo run --release -p diecut-nvmf --example null_queue` prints, for each shape, nanoseconds per command on one
//! core. The namespace is null: it completes at once and moves no data.

use diecut_namespace::contract::*;
use diecut_nvme::fabrics::{ConnectCommand, ConnectData, PropertyCommand};
use diecut_nvme::property::{Configuration, offset};
use diecut_nvme::tcp::{CapsuleCommand, Digests, InitializeRequest, digest_of};
use diecut_nvme::*;
use diecut_nvmf::*;
use diecut_units::{Buffer, BufferPool, ContentMode, Time};
use std::io::IoSlice;
use zerocopy::IntoBytes;

const DEPTH: u16 = 128;
const BATCHES: u32 = 20_000;

fn capsule(entry: SubmissionEntry, data: &[u8], digests: Digests) -> Vec<u8> {
    let header = CapsuleCommand::new(entry, data.len() as u32, digests);
    let mut bytes = header.as_bytes().to_vec();
    if digests.header {
        bytes.extend(digest_of(header.as_bytes()));
    }
    bytes.extend(data);
    if digests.data && !data.is_empty() {
        bytes.extend(digest_of(data));
    }
    bytes
}

fn drain(target: &mut Target, id: ConnectionId) -> usize {
    let mut slices: Vec<IoSlice> = Vec::with_capacity(1024);
    let Some(outbox) = target.outbox(id) else { return 0 };
    outbox.fill_io_slices(&mut slices, 1024);
    let sent = slices.iter().map(|slice| slice.len()).sum();
    std::hint::black_box(&slices);
    drop(slices);
    target.sent(id, sent);
    sent
}

fn run(title: &str, write: bool, digests: Digests, depth: u16) {
    let subsystem = name("nqn.2026-11.example:null");
    let host = name("nqn.2014-08.org.nvmexpress:uuid:bench");
    let mut target = Target::new(TargetConfig::default());
    let mut actions = Vec::new();
    let properties = NamespaceProperties {
        size_lbas: 1 << 30,
        capacity_lbas: 1 << 30,
        used_lbas: 0,
        lba_size_log2: 12,
        transfer_max_lbas: 256,
        volatile_cache: false,
        preferred_write_lbas: 1,
        read_only: false,
        zones: None,
        placement: None,
        chunks: None,
        purges: false,
    };
    let namespace = NamespaceConfig {
        namespace: NamespaceId(1),
        uuid: [1; 16],
        nguid: [2; 16],
        properties,
        content: ContentMode::Bytes,
    };
    let config = SubsystemConfig {
        nqn: subsystem.clone(),
        serial: "1".into(),
        model: "null".into(),
        allow_any_host: true,
        allowed_hosts: Default::default(),
        namespaces: [(1, namespace)].into(),
        paths: Default::default(),
        home: Home::Here,
    };
    let now = Time(1);
    target.set_subsystem(config, now, &mut actions);
    for (id, queue, controller) in [(1, 0, 0xFFFF), (2, 1, 1)] {
        let id = ConnectionId(id);
        target.handle(Event::Accepted(id, None), now, &mut actions);
        let mut connect = ConnectCommand::new(1, queue, depth - 1, 0);
        connect.attributes = 4; // no SQ flow control: reads are answered by C2HData alone
        let data = ConnectData::new([3; 16], controller, &subsystem, &host);
        let mut bytes = InitializeRequest::new(digests).as_bytes().to_vec();
        bytes.extend(capsule(connect.entry(), data.as_bytes(), digests));
        if queue == 0 {
            let set = PropertyCommand::set(2, offset::CC, Configuration::enable(6).0);
            bytes.extend(capsule(set.entry(), &[], digests));
        }
        target.handle(Event::Received(id, Buffer::copy_from(&bytes)), now, &mut actions);
        drain(&mut target, id);
    }
    let id = ConnectionId(2);
    let page = vec![7u8; 4096];
    let mut batch = Vec::new();
    for command_id in 0..depth {
        let sgl = if write { SglDescriptor::in_capsule(4096) } else { SglDescriptor::transport(4096) };
        let entry = SubmissionEntry {
            opcode: if write { opcode::io::WRITE } else { opcode::io::READ },
            flags: 0x40,
            command_id: command_id.into(),
            nsid: 1.into(),
            sgl,
            cdw10: (u32::from(command_id) * 97).into(),
            ..SubmissionEntry::default()
        };
        batch.extend(capsule(entry, if write { &page } else { &[] }, digests));
    }
    let batch = Buffer::copy_from(&batch);
    let mut pool = BufferPool::new();
    let mut completions = Vec::new();
    let mut bytes_out = 0usize;
    let mut best = f64::MAX;
    let _ = &mut pool;
    for _ in 0..3 {
        #[allow(clippy::disallowed_methods, reason = "a benchmark measures time")]
        let start = std::time::Instant::now();
        for _ in 0..BATCHES * 128 / u32::from(depth) {
            target.handle(Event::Received(id, batch.clone()), now, &mut actions);
            for action in actions.drain(..) {
                if let Action::Submit(command) = action {
                    let data = match command.operation {
                        NamespaceOperation::Read { destination, .. } => Some(destination.freeze()),
                        _ => None,
                    };
                    completions.push(NamespaceCompletion {
                        token: command.token,
                        result: Ok(()),
                        data,
                        zones: None,
                    });
                }
            }
            for completion in completions.drain(..) {
                target.handle(Event::Completed(completion), now, &mut actions);
            }
            actions.clear();
            while target.outbox(id).is_some_and(|outbox| !outbox.is_empty()) {
                bytes_out += drain(&mut target, id);
            }
        }
        let nanos = start.elapsed().as_nanos() as f64 / f64::from(BATCHES * 128);
        best = best.min(nanos);
    }
    let commands = f64::from(BATCHES) * 128.0 * 3.0;
    let out = bytes_out as f64 / commands;
    println!("{title:32} {best:7.1} ns/command {:7.2} M/s  {out:.0} bytes out each", 1e3 / best);
}

fn name(text: &str) -> QualifiedName {
    QualifiedName::new(text).expect("a name")
}

fn main() {
    let both = Digests { header: true, data: true };
    // One shape by its number, for profilers.
    let only = std::env::args().nth(1);
    let run = |shape: u8, title: &str, write, digests, depth| {
        if only.as_ref().is_none_or(|only| *only == shape.to_string()) {
            run(title, write, digests, depth);
        }
    };
    run(1, "read 4 KiB, depth 128", false, Digests::NONE, DEPTH);
    run(2, "write 4 KiB in capsule, 128", true, Digests::NONE, DEPTH);
    run(3, "read 4 KiB, depth 8", false, Digests::NONE, 8);
    run(4, "read 4 KiB, depth 1", false, Digests::NONE, 2);
    run(5, "read 4 KiB, digests, 128", false, both, DEPTH);
    run(6, "write 4 KiB, digests, 128", true, both, DEPTH);
}
