//! Goal: PDUs that no right host sends are answered by a termination request with its fatal error status, and the connection ends; nobody
//! else notices. Method: a table of wrong PDUs with the status of each; then right ones with random bytes bent, beside a neighbour at work.

use crate::world;
use diecut_nvme::fabrics::{ConnectCommand, ConnectData};
use diecut_nvme::tcp::*;
use diecut_nvme::*;
use diecut_nvmf::{ConnectionId, Event};
use diecut_units::Buffer;
use world::*;
use zerocopy::IntoBytes;

/// How far the connection is when the wrong bytes come.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    Accepted,
    Initialized,
    Live,
    /// A write of 8192 bytes has its R2T (tag 0, command 7).
    Transferring,
}

fn reach(world: &mut World, when: When, digests: Digests) -> ConnectionId {
    if when == When::Accepted {
        return world.open();
    }
    if when == When::Initialized {
        let id = world.open();
        world.initialize(id, digests);
        return id;
    }
    let (_, controller) = world.admin(SUBSYSTEM, digests);
    let id = world.io(controller, 1, digests);
    if when == When::Transferring {
        let mut entry = world.rw(opcode::io::WRITE, 0, 4, SglDescriptor::transport(4 * LBA as u32));
        entry.command_id = 7.into();
        entry.flags = 0x40;
        let bytes = world.capsule(id, entry, &[]);
        world.send(id, &bytes);
        let request = world.links.get_mut(&id).unwrap().pdus.pop().unwrap();
        assert_eq!(request.kind, pdu_type::READY_TO_TRANSFER);
        assert_eq!(request.header[8..20], [7, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0], "tag 0, bytes 0..8192");
    }
    id
}

fn data(cid: u16, tag: u16, start: u32, length: u32, flags: u8, said: u32) -> Vec<u8> {
    let mut bytes = DataToController::new(cid, tag, start, length, false, Digests::NONE).as_bytes().to_vec();
    bytes[1] |= flags;
    bytes[16..20].copy_from_slice(&said.to_le_bytes());
    bytes.extend(vec![0; length as usize]);
    bytes
}

/// Name, state of the connection, digests, the bytes, and the expected fatal error with its information.
type Case = (&'static str, When, Digests, Vec<u8>, FatalError, u32);

#[test]
fn malformed_pdus_end_the_connection_with_the_right_status() {
    let mut wrong_version = InitializeRequest::new(Digests::NONE).as_bytes().to_vec();
    wrong_version[8] = 1;
    let mut wrong_alignment = InitializeRequest::new(Digests::NONE).as_bytes().to_vec();
    wrong_alignment[10] = 32;
    let command = |bytes: [u8; 8]| [&bytes[..], &[0; 64]].concat();
    let request = InitializeRequest::new(Digests::NONE).as_bytes().to_vec();
    let both = Digests { header: true, data: true };
    let none = Digests::NONE;
    let mut wrong_digest = command([4, 1, 72, 0, 76, 0, 0, 0]);
    wrong_digest.extend([0x11, 0x22, 0x33, 0x44]);
    #[rustfmt::skip]
    let cases: Vec<Case> = vec![
        ("no such type", When::Accepted, none, vec![0x0A, 0, 8, 0, 8, 0, 0, 0], FatalError::InvalidHeaderField, 0),
        ("a response", When::Live, none, vec![5, 0, 24, 0, 24, 0, 0, 0], FatalError::InvalidHeaderField, 0),
        ("command first", When::Accepted, none, command([4, 0, 72, 0, 72, 0, 0, 0]), FatalError::SequenceError, 0),
        ("data before connect", When::Initialized, none, data(1, 0, 0, 4, 4, 4), FatalError::SequenceError, 0),
        ("initialized twice", When::Initialized, none, request.clone(), FatalError::SequenceError, 0),
        ("initialized when live", When::Live, none, request, FatalError::SequenceError, 0),
        ("format version 1", When::Accepted, none, wrong_version, FatalError::UnsupportedParameter, 8),
        ("alignment 132", When::Accepted, none, wrong_alignment, FatalError::UnsupportedParameter, 10),
        ("ICReq with wrong HLEN", When::Accepted, none, vec![0, 0, 120, 0, 128, 0, 0, 0], FatalError::InvalidHeaderField, 2),
        ("ICReq with wrong PLEN", When::Accepted, none, vec![0, 0, 128, 0, 129, 0, 0, 0], FatalError::InvalidHeaderField, 4),
        ("command with wrong HLEN", When::Live, none, vec![4, 0, 71, 0, 72, 0, 0, 0], FatalError::InvalidHeaderField, 2),
        ("digest not agreed on", When::Live, none, vec![4, 1, 72, 0, 76, 0, 0, 0], FatalError::InvalidHeaderField, 1),
        ("digest missing", When::Live, both, vec![4, 0, 72, 0, 72, 0, 0, 0], FatalError::InvalidHeaderField, 1),
        ("header digest wrong", When::Live, both, wrong_digest, FatalError::HeaderDigest, 0x4433_2211),
        ("PDO inside the header", When::Live, none, vec![4, 0, 72, 68, 80, 0, 0, 0], FatalError::InvalidHeaderField, 3),
        ("PLEN 0", When::Live, none, vec![4, 0, 72, 0, 0, 0, 0, 0], FatalError::InvalidHeaderField, 4),
        ("PLEN of 4 GiB", When::Live, none, vec![4, 0, 72, 72, 255, 255, 255, 255], FatalError::InvalidHeaderField, 4),
        ("more in capsule than IOCCSZ", When::Live, none, command([4, 0, 72, 72, 0x4C, 0x20, 0, 0]), FatalError::InvalidHeaderField, 4),
        ("data nobody asked for", When::Live, none, data(7, 0, 0, 4096, 0, 4096), FatalError::InvalidHeaderField, 10),
        ("unknown tag", When::Transferring, none, data(7, 999, 0, 4096, 0, 4096), FatalError::InvalidHeaderField, 10),
        ("tag of another command", When::Transferring, none, data(8, 0, 0, 4096, 0, 4096), FatalError::InvalidHeaderField, 8),
        ("DATAL is not the length", When::Transferring, none, data(7, 0, 0, 4096, 0, 4092), FatalError::InvalidHeaderField, 16),
        ("data out of order", When::Transferring, none, data(7, 0, 4096, 4096, 4, 4096), FatalError::DataOutOfRange, 0),
        ("more than asked for", When::Transferring, none, data(7, 0, 0, 8196, 4, 8196), FatalError::InvalidHeaderField, 4),
        ("last too early", When::Transferring, none, data(7, 0, 0, 4096, 4, 4096), FatalError::InvalidHeaderField, 1),
        ("last is missing", When::Transferring, none, data(7, 0, 0, 8192, 0, 8192), FatalError::InvalidHeaderField, 1),
    ];
    for (title, when, digests, bytes, fatal, information) in cases {
        for cut in [0, 1, 5] {
            let mut world = World::new(7);
            let id = reach(&mut world, when, digests);
            world.cut = cut;
            world.send(id, &bytes);
            let link = &world.links[&id];
            let last = link.pdus.last().unwrap_or_else(|| panic!("{title}: nothing came back"));
            let told = last.termination();
            assert_eq!((told.fatal_error(), told.information()), (fatal, information), "{title}, cut {cut}");
            assert!(!last.data.is_empty() && bytes.starts_with(&last.data), "{title}: the header comes back");
            assert!(link.closed, "{title}: closed");
            assert!(world.target.outbox(id).is_none(), "{title}: forgotten");
            assert!(world.memory.iter().all(|&byte| byte == 0), "{title}: nothing landed");
        }
    }
}

/// More commands than the queue has entries end the connection; so do bytes after a host's termination request.
#[test]
fn overruns_and_terminations_end_the_connection() {
    let mut world = World::new(11);
    let id = reach(&mut world, When::Live, Digests::NONE);
    world.hold = true;
    for command_id in 1..=33u16 {
        let mut entry = world.rw(opcode::io::READ, 0, 1, SglDescriptor::transport(LBA as u32));
        entry.command_id = (command_id * 7).into();
        entry.flags = 0x40;
        let bytes = world.capsule(id, entry, &[]);
        world.send(id, &bytes);
        assert_eq!(world.links[&id].closed, command_id == 33, "32 entries");
    }
    assert_eq!(world.links[&id].pdus[0].termination().fatal_error(), FatalError::SequenceError);
    world.release_held();

    let mut world = World::new(12);
    let id = reach(&mut world, When::Live, Digests::NONE);
    let error = PduError::header("PDU-Type", 0, 0);
    let (request, sent) = TerminateRequest::to_controller(&error, &[0; 24]);
    let bytes = [request.as_bytes(), &[0; 24][..sent]].concat();
    world.send(id, &bytes);
    assert!(world.links[&id].closed && world.links[&id].pdus.is_empty());
}

/// Whatever bytes come after whatever beginning: no panic, no foreign write, and the target serves others afterwards.
#[test]
fn noise_hurts_nobody() {
    for seed in 1..300u64 {
        let mut world = World::new(seed);
        let mut random = diecut_testing::Random::of(seed);
        let when = [When::Accepted, When::Initialized, When::Live, When::Transferring][seed as usize % 4];
        let id = reach(&mut world, when, Digests::NONE);
        world.cut = 1 + random.below(200);
        let connect = ConnectCommand::new(9, 0, 31, 0).entry();
        let payload = ConnectData::new([1; 16], 0xFFFF, &name(SUBSYSTEM), &name(HOST));
        let right: Vec<Vec<u8>> = vec![
            InitializeRequest::new(Digests::NONE).as_bytes().to_vec(),
            world.capsule(id, connect, payload.as_bytes()),
            world.capsule(id, world.rw(2, 0, 1, SglDescriptor::transport(4096)), &[]),
            data(7, 0, 0, 4096, 0, 4096),
        ];
        for _ in 0..6 {
            let mut bytes = right[random.below(4) as usize].clone();
            for _ in 0..random.below(4) {
                let at = random.below(bytes.len().min(80) as u64) as usize;
                bytes[at] = random.below(256) as u8;
            }
            world.send(id, &bytes);
        }
        if !world.links[&id].closed {
            world.handle(Event::Received(id, Buffer::copy_from(&[0xFF; 64])));
            world.handle(Event::Closed(id));
        }
        world.cut = 0;
        world.host_id = [seed as u8; 16];
        let (_, controller) = world.admin(SUBSYSTEM, Digests::NONE);
        let io = world.io(controller, 1, Digests::NONE);
        assert_eq!(world.write(io, 200, &vec![5; LBA], true).status, Status::SUCCESS, "seed {seed}");
    }
}

/// The canary of the table: without the check of DATAO, data out of order pass.
#[test]
fn unchecked_order_is_noticed() {
    diecut_testing::planted::is_noticed(
        "nvmf: data out of order",
        malformed_pdus_end_the_connection_with_the_right_status,
    );
}
