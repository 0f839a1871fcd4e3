//! Goal: commands do what they say in every way that data can travel, with and without digests. Method: a target with a namespace in memory
//! behind a byte stream that a seed cuts anywhere.

use crate::world;
use diecut_namespace::contract::NamespaceError;
use diecut_nvme::admin::GetLogPage;
use diecut_nvme::identify::{IdentifyController, IdentifyNamespace, IndependentNamespace, cns};
use diecut_nvme::tcp::{Digests, pdu_type};
use diecut_nvme::*;
use diecut_nvmf::{Event, QueueLimits, TargetConfig};
use diecut_units::Buffer;
use world::*;
use zerocopy::{FromBytes, IntoBytes};

fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed).wrapping_add((at >> 8) as u8))
        .collect()
}

/// Goal: what is written is read back, whatever the cuts, digests, flow control and way of the data.
/// Method: a RAM namespace; in-capsule and R2T writes (larger than MAXH2CDATA, so several R2Ts), reads, compare,
/// deallocate, write zeroes, flush, verify.
#[test]
fn data_survives_any_cut_of_the_stream() {
    let all = [(false, false), (true, false), (false, true), (true, true)];
    for seed in 1..=24u64 {
        let (header, data) = all[seed as usize % 4];
        let digests = Digests { header, data };
        let mut world = World::new(seed);
        world.cut = [1, 7, 100, 3000, 0][seed as usize % 5];
        world.flow_control = seed % 2 == 0;
        world.use_window = seed % 3 == 0;
        let (_, controller) = world.admin(SUBSYSTEM, digests);
        let io = world.io(controller, 1, digests);
        for (round, (start, lbas, in_capsule)) in
            [(0, 1, true), (3, 2, true), (5, 1, false), (9, 8, false), (0, 3, false)].into_iter().enumerate()
        {
            let bytes = pattern(seed as u8 + round as u8, lbas * LBA);
            assert_eq!(world.write(io, start, &bytes, in_capsule).status, Status::SUCCESS, "seed {seed}");
            let read = world.read(io, start, lbas as u32);
            assert_eq!(read.status, Status::SUCCESS, "seed {seed}");
            assert!(read.data == bytes, "seed {seed} round {round}");
            let compare = |world: &mut World, bytes: &[u8]| {
                let sgl = SglDescriptor::transport(bytes.len() as u32);
                let entry = world.rw(opcode::io::COMPARE, start, lbas as u32, sgl);
                world.command(io, entry, bytes).status
            };
            assert_eq!(compare(&mut world, &bytes), Status::SUCCESS);
            let mut other = bytes.clone();
            other[77] ^= 1;
            assert!(compare(&mut world, &other).same_code(Status::COMPARE_FAILURE));
        }
        // Deallocate LBA 9 and 11, zero 12 and 13. Linux sends 4096 bytes for any number of ranges; what follows the
        // ranges counted means nothing.
        let mut ranges: Vec<u8> = [9u64, 11]
            .iter()
            .flat_map(|&start| {
                let range = diecut_nvme::io::DatasetRange {
                    lba_count: 1.into(),
                    start: start.into(),
                    ..Default::default()
                };
                range.as_bytes().to_vec()
            })
            .collect();
        let length = if seed % 2 == 0 { 4096 } else { 32 };
        ranges.resize(length, 0xFF);
        let sgl = SglDescriptor::in_capsule(length as u32);
        let mut entry = world.rw(opcode::io::DATASET_MANAGEMENT, 0, 1, sgl);
        diecut_nvme::io::DatasetManagement { range_count: 2, deallocate: true }.encode(&mut entry);
        entry.cdw12 = 0.into();
        assert_eq!(world.command(io, entry, &ranges).status, Status::SUCCESS);
        let zeroes = world.rw(opcode::io::WRITE_ZEROES, 12, 2, SglDescriptor::default());
        assert_eq!(world.command(io, zeroes, &[]).status, Status::SUCCESS);
        let read = world.read(io, 9, 8).data;
        for lba in 0..8 {
            let zero = read[lba * LBA..(lba + 1) * LBA].iter().all(|&byte| byte == 0);
            assert_eq!(zero, matches!(lba, 0 | 2 | 3 | 4), "seed {seed} lba {lba}");
        }
        for code in [opcode::io::FLUSH, opcode::io::VERIFY] {
            let entry = world.rw(code, 0, 1, SglDescriptor::default());
            assert_eq!(world.command(io, entry, &[]).status, Status::SUCCESS);
        }
    }
}

/// What must be refused, and how.
#[test]
fn wrong_commands_are_refused_by_name() {
    let mut world = World::new(1);
    let (_, controller) = world.admin(SUBSYSTEM, Digests::NONE);
    let io = world.io(controller, 1, Digests::NONE);
    let page = vec![1u8; LBA];
    let transport = SglDescriptor::transport(LBA as u32);
    let cases: Vec<(SubmissionEntry, Status)> = vec![
        (world.rw(opcode::io::READ, LBAS, 1, transport), Status::LBA_OUT_OF_RANGE),
        (world.rw(opcode::io::READ, u64::MAX, 1, transport), Status::LBA_OUT_OF_RANGE),
        (
            SubmissionEntry { nsid: 2.into(), ..world.rw(opcode::io::READ, 0, 1, transport) },
            Status::INVALID_NAMESPACE_OR_FORMAT,
        ),
        (
            SubmissionEntry { cdw12: (1u32 << 29).into(), ..world.rw(opcode::io::READ, 0, 1, transport) },
            Status::INVALID_PROTECTION_INFORMATION,
        ),
        (SubmissionEntry { flags: 1, ..world.rw(opcode::io::READ, 0, 1, transport) }, Status::INVALID_FIELD),
        (world.rw(opcode::io::READ, 0, 2, transport), Status::DATA_SGL_LENGTH_INVALID),
        (world.rw(opcode::io::WRITE, 0, 2, transport), Status::DATA_SGL_LENGTH_INVALID),
        (
            SubmissionEntry {
                sgl: SglDescriptor { identifier: 0, ..transport },
                ..world.rw(opcode::io::READ, 0, 1, transport)
            },
            Status::SGL_DESCRIPTOR_TYPE_INVALID,
        ),
        (world.rw(0x21, 0, 1, transport), Status::INVALID_OPCODE),
        (world.rw(0x7D, 0, 1, transport), Status::INVALID_OPCODE),
    ];
    for (entry, expected) in cases {
        let reply = world.command(io, entry, &page);
        assert!(reply.status.same_code(expected), "{entry:?}: {}", reply.status);
    }
    // In-capsule data of a refused write are skipped, and the stream goes on.
    let entry = world.rw(opcode::io::WRITE, LBAS, 1, SglDescriptor::in_capsule(LBA as u32));
    assert!(world.command(io, entry, &page).status.same_code(Status::LBA_OUT_OF_RANGE));
    let mut offset = SglDescriptor::in_capsule(LBA as u32);
    offset.address = 16.into();
    let entry = world.rw(opcode::io::WRITE, 0, 1, offset);
    assert!(world.command(io, entry, &page).status.same_code(Status::SGL_OFFSET_INVALID));
    assert_eq!(world.write(io, 0, &page, true).status, Status::SUCCESS);
    assert!(world.memory[LBA..].iter().all(|&byte| byte == 0));
}

/// An id in use is refused without harm to the command that has it; an error of the namespace is told and logged.
#[test]
fn conflicts_and_errors_are_told() {
    let mut world = World::new(3);
    let (admin, controller) = world.admin(SUBSYSTEM, Digests::NONE);
    let io = world.io(controller, 1, Digests::NONE);
    world.hold = true;
    let mut entry = world.rw(opcode::io::READ, 0, 1, SglDescriptor::transport(LBA as u32));
    entry.command_id = 77.into();
    entry.flags = 0x40;
    let bytes = world.capsule(io, entry, &[]);
    world.send(io, &bytes);
    world.send(io, &bytes);
    assert!(world.reply(io, 77).unwrap().status.same_code(Status::COMMAND_ID_CONFLICT));
    let token = world.held.pop().unwrap().token;
    let result = Err(NamespaceError::Unrecovered { lba: 0 });
    let completion = diecut_namespace::contract::NamespaceCompletion::without_data(token, result);
    world.handle(Event::Completed(completion));
    assert!(world.reply(io, 77).unwrap().status.same_code(Status::UNRECOVERED_READ_ERROR));
    // Two entries of the error log, the newest first.
    let log = log_page(&mut world, admin, 0x01, 64, false);
    let error = diecut_nvme::log_page::ErrorEntry::read_from_bytes(&log).unwrap();
    assert!(error.status().same_code(Status::UNRECOVERED_READ_ERROR));
    assert_eq!((error.queue_id.get(), error.command_id.get()), (1, 77));
}

fn log_page(
    world: &mut World,
    id: diecut_nvmf::ConnectionId,
    page: u8,
    length: u64,
    retain: bool,
) -> Vec<u8> {
    let mut entry = SubmissionEntry {
        opcode: opcode::admin::GET_LOG_PAGE,
        sgl: SglDescriptor::transport(length as u32),
        ..SubmissionEntry::default()
    };
    GetLogPage { retain_event: retain, ..GetLogPage::of(page, length) }.encode(&mut entry);
    let reply = world.command(id, entry, &[]);
    assert_eq!(reply.status, Status::SUCCESS, "page {page:#x}");
    assert_eq!(reply.data.len() as u64, length);
    reply.data
}

fn identify(world: &mut World, id: diecut_nvmf::ConnectionId, cns: u8, nsid: u32) -> Reply {
    let entry = SubmissionEntry {
        opcode: opcode::admin::IDENTIFY,
        nsid: nsid.into(),
        cdw10: u32::from(cns).into(),
        sgl: SglDescriptor::transport(4096),
        ..SubmissionEntry::default()
    };
    world.command(id, entry, &[])
}

/// The checks of a Linux 6.1 and 6.12 host, one by one (docs/linux-host-fields.md).
#[test]
fn identify_passes_the_checks_of_linux() {
    let mut world = World::new(2);
    let (admin, controller) = world.admin(SUBSYSTEM, Digests::NONE);
    let reply = identify(&mut world, admin, cns::CONTROLLER, 0);
    let page = IdentifyController::read_from_bytes(&reply.data).unwrap();
    assert_eq!(page.cntlid.get(), controller, "Mismatching cntlid");
    assert!(page.kas.get() > 0, "keep-alive support is mandatory for fabrics");
    assert!(page.ioccsz.get() >= 4 && page.iorcsz.get() >= 1);
    assert_eq!(page.ioccsz.get() * 16, 64 + 8192);
    assert_eq!(page.icdoff.get(), 0, "icdoff is not supported");
    assert!(page.maxcmd.get() > 0, "Maximum outstanding commands is 0");
    assert!(page.sgls.get() & 3 != 0, "Mandatory sgls are not supported");
    assert!(page.sgls.get() & (1 << 20) != 0, "in-capsule data by offset");
    assert_eq!(page.cntrltype, 1);
    assert_eq!(&page.subnqn[..SUBSYSTEM.len() + 1], format!("{SUBSYSTEM}\0").as_bytes());
    assert_eq!(&page.sn, b"A1                  ");
    assert_eq!(page.mdts, 8);
    let reply = identify(&mut world, admin, cns::NAMESPACE, 1);
    let namespace = IdentifyNamespace::read_from_bytes(&reply.data).unwrap();
    assert_eq!((namespace.nsze.get(), namespace.lbaf[0].lba_size_log2), (LBAS, 12));
    assert_eq!(namespace.nguid, [0xCD; 16]);
    let list = identify(&mut world, admin, cns::ACTIVE_NAMESPACES, 0).data;
    assert_eq!(list[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    let list: [u8; 4096] =
        identify(&mut world, admin, cns::NAMESPACE_DESCRIPTORS, 1).data.try_into().unwrap();
    let descriptors = diecut_nvme::identify::parse_namespace_descriptors(&list).unwrap();
    assert_eq!(descriptors, [(2, vec![0xCD; 16]), (3, vec![0xAB; 16]), (4, vec![0])]);
    let independent = identify(&mut world, admin, cns::INDEPENDENT_NAMESPACE, 1).data;
    let independent = IndependentNamespace::read_from_bytes(&independent).unwrap();
    assert_eq!(independent.nstat & 1, 1, "ready");
    // Bit 4 is "preferred granularities are told" in the page of the NVM command set, and rotating media in this one, which Linux
    // 6.13 and later believe.
    assert_eq!(independent.nsfeat, 0, "not a rotating disk");
    for (cns, nsid) in [(0x06, 0), (0x05, 1), (0x1C, 0), (0x13, 0), (0x07, 0)] {
        assert_eq!(identify(&mut world, admin, cns, nsid).status, Status::SUCCESS, "CNS {cns:#x}");
    }
    assert!(identify(&mut world, admin, 0x7E, 0).status.same_code(Status::INVALID_FIELD));
    for (page, length) in [(2, 512), (3, 512), (4, 4096), (5, 4096), (0, 1024)] {
        log_page(&mut world, admin, page, length, false);
    }
    // Number of queues: 0's based, never more than asked means nothing to Linux, it takes the minimum.
    let entry = SubmissionEntry {
        opcode: opcode::admin::SET_FEATURES,
        cdw10: 7.into(),
        cdw11: 0x0001_0001.into(),
        sgl: SglDescriptor::transport(0),
        ..SubmissionEntry::default()
    };
    assert_eq!(world.command(admin, entry, &[]).result, 0x003F_003F);
}

/// The least an error log must say: what a host reads of LBA there is one, and nothing else.
#[test]
fn the_error_log_names_an_lba_where_a_command_has_one() {
    let mut world = World::new(6);
    let (admin, controller) = world.admin(SUBSYSTEM, Digests::NONE);
    let io = world.io(controller, 1, Digests::NONE);
    assert!(identify(&mut world, admin, 0x7E, 0).status.same_code(Status::INVALID_FIELD));
    assert!(world.read(io, LBAS, 1).status.same_code(Status::LBA_OUT_OF_RANGE));
    let ranges = SubmissionEntry {
        opcode: opcode::io::DATASET_MANAGEMENT,
        nsid: 1.into(),
        cdw10: 3.into(),
        cdw11: 4.into(),
        sgl: SglDescriptor::transport(16),
        ..SubmissionEntry::default()
    };
    assert!(world.command(io, ranges, &[0; 16]).status.same_code(Status::DATA_SGL_LENGTH_INVALID));
    let log = log_page(&mut world, admin, 1, 3 * 64, false);
    let lbas: Vec<u64> = log
        .chunks_exact(64)
        .map(|entry| u64::from_le_bytes(entry[16..24].try_into().expect("8 bytes")))
        .collect();
    assert_eq!(lbas, [0, LBAS, 0], "newest first: ranges, a read beyond the end, Identify");
}

/// What sensors of a Linux host read and set: thresholds of the composite temperature, over and under, and the warning of them.
#[test]
fn temperature_thresholds_are_kept_and_warned_of() {
    let mut world = World::new(7);
    let (admin, _) = world.admin(SUBSYSTEM, Digests::NONE);
    let (over, under, other_sensor, reserved) = (0, 1 << 20, 1 << 16, 1 << 21);
    let feature = |world: &mut World, opcode, select: u32, value: u32| {
        let entry = SubmissionEntry {
            opcode,
            cdw10: (4 | select << 8).into(),
            cdw11: value.into(),
            sgl: SglDescriptor::transport(0),
            ..SubmissionEntry::default()
        };
        world.command(admin, entry, &[])
    };
    let get =
        |world: &mut World, select, what| feature(world, opcode::admin::GET_FEATURES, select, what).result;
    let set = |world: &mut World, value| feature(world, opcode::admin::SET_FEATURES, 0, value).status;
    let warns = |world: &mut World| log_page(world, admin, 2, 512, false)[0] & 2 != 0;
    assert_eq!(
        (get(&mut world, 0, over), get(&mut world, 0, under)),
        (343, 0),
        "nothing is too cold at first"
    );
    assert!(!warns(&mut world));
    assert_eq!(set(&mut world, over | 280), Status::SUCCESS);
    assert_eq!((get(&mut world, 0, over), get(&mut world, 1, over)), (280, 343), "set, and the default");
    assert!(warns(&mut world), "300 K are over 280 K");
    assert_eq!(set(&mut world, over | 350), Status::SUCCESS);
    assert!(!warns(&mut world));
    assert_eq!(set(&mut world, under | 310), Status::SUCCESS);
    assert_eq!((get(&mut world, 0, over), get(&mut world, 0, under)), (350, 310));
    assert!(warns(&mut world), "300 K are under 310 K");
    for wrong in [other_sensor | 300, reserved | 300] {
        assert!(set(&mut world, wrong).same_code(Status::INVALID_FIELD), "{wrong:#x}");
    }
}

/// A discovery controller that sets its keep-alive to none has that of Connect without one: it does not stay for ever.
#[test]
fn a_discovery_controller_cannot_do_without_a_keep_alive() {
    let mut world = World::new(8);
    let (admin, _) = world.admin(DISCOVERY_SUBSYSTEM_NQN, Digests::NONE);
    let keep_alive = |world: &mut World, opcode, value: u32| {
        let entry = SubmissionEntry {
            opcode,
            cdw10: 0x0F.into(),
            cdw11: value.into(),
            sgl: SglDescriptor::transport(0),
            ..SubmissionEntry::default()
        };
        world.command(admin, entry, &[]).result
    };
    let default_ms = u64::from(TargetConfig::default().discovery.keep_alive_ms);
    for (value, expected) in [(0, default_ms), (5000, 5000), (0, default_ms)] {
        keep_alive(&mut world, opcode::admin::SET_FEATURES, value);
        assert_eq!(keep_alive(&mut world, opcode::admin::GET_FEATURES, 0), expected);
    }
}

/// A host that does not read its answers is paused and hurts nobody; when it reads again everything comes.
#[test]
fn a_host_that_does_not_listen_is_paused() {
    let mut world = World::with(
        5,
        TargetConfig {
            queue: QueueLimits {
                output_bytes_max: 1 << 20,
                transfer_bytes_max: 1 << 20,
                commands_per_round: 4,
                ..QueueLimits::default()
            },
            ..TargetConfig::default()
        },
    );
    let (_, controller) = world.admin(SUBSYSTEM, Digests::NONE);
    let (deaf, other) = (world.io(controller, 1, Digests::NONE), world.io(controller, 2, Digests::NONE));
    world.deaf = true;
    let mut bytes = Vec::new();
    for command_id in 100..130u16 {
        let mut entry = world.rw(opcode::io::READ, 0, 64, SglDescriptor::transport(64 * LBA as u32));
        entry.command_id = command_id.into();
        entry.flags = 0x40;
        bytes.extend(world.capsule(deaf, entry, &[]));
    }
    world.send(deaf, &bytes);
    assert!(world.links[&deaf].paused);
    let waiting = world.target.outbox(deaf).unwrap().len_bytes();
    assert!((1 << 20..(1 << 20) + 65 * LBA).contains(&waiting), "bounded output: {waiting}");
    world.deaf = false;
    assert_eq!(world.read(other, 0, 1).status, Status::SUCCESS, "the neighbour is served");
    for _ in 0..100 {
        world.take_output(deaf);
        if world.target.has_work() {
            world.handle(Event::Round);
        }
    }
    for command_id in 100..130 {
        assert_eq!(world.reply(deaf, command_id).unwrap().data.len(), 64 * LBA);
    }
    assert!(!world.links[&deaf].paused);
}

/// Commands of admin queues are served without admission. So many as come in a round share a bounded part of it, whoever sends them, and
/// a host that sends one is not behind all of those who send many.
#[test]
fn admin_commands_have_a_bounded_part_of_each_round() {
    const HOSTS: usize = 40;
    const EACH: u16 = 30;
    /// Commands of 4 KiB that are served in a round.
    const SERVED_MAX: usize = 16;
    let mut world = World::new(9);
    let greedy: Vec<_> = (0..HOSTS).map(|_| world.admin(SUBSYSTEM, Digests::NONE).0).collect();
    let (modest, _) = world.admin(SUBSYSTEM, Digests::NONE);
    let identify = SubmissionEntry {
        opcode: opcode::admin::IDENTIFY,
        flags: 0x40,
        cdw10: 1.into(),
        sgl: SglDescriptor::transport(4096),
        ..SubmissionEntry::default()
    };
    let received = |world: &mut World, id, commands: std::ops::Range<u16>| {
        let capsule = |command_id: u16| SubmissionEntry { command_id: command_id.into(), ..identify };
        let bytes: Vec<u8> = commands.flat_map(|id_| world.capsule(id, capsule(id_), &[])).collect();
        let mut actions = Vec::new();
        world.target.handle(Event::Received(id, Buffer::copy_from(&bytes)), world.now, &mut actions);
        world.act(actions);
    };
    let answers = |world: &World| -> usize {
        let all = world.links.values().flat_map(|link| &link.pdus);
        all.filter(|pdu| pdu.kind == pdu_type::CAPSULE_RESPONSE).count()
    };
    let before = answers(&world);
    for &id in &greedy {
        received(&mut world, id, 100..100 + EACH);
    }
    received(&mut world, modest, 100..101);
    assert!(answers(&world) - before <= SERVED_MAX, "what comes counts to the round before");
    let mut modest_waited = 0;
    let mut rounds = 0;
    while world.target.has_work() {
        let before = answers(&world);
        let mut actions = Vec::new();
        world.target.handle(Event::Round, world.now, &mut actions);
        world.act(actions);
        assert!(answers(&world) - before <= SERVED_MAX, "in round {rounds}");
        rounds += 1;
        if world.links[&modest].pdus.iter().all(|pdu| pdu.kind != pdu_type::CAPSULE_RESPONSE) {
            modest_waited = rounds;
        }
    }
    assert_eq!(answers(&world) - before, HOSTS * usize::from(EACH) + 1, "all are answered");
    assert!(
        modest_waited < HOSTS / 2,
        "others have one turn each before it: {modest_waited} of {rounds} rounds"
    );
}

/// A wrong data digest fails its command only, in a way that hosts try again; nothing lands.
fn wrong_digests() {
    let both = Digests { header: true, data: true };
    let mut world = World::new(4);
    let (_, controller) = world.admin(SUBSYSTEM, both);
    let io = world.io(controller, 1, both);
    let page = pattern(1, LBA);
    let mut entry = world.rw(opcode::io::WRITE, 0, 1, SglDescriptor::in_capsule(LBA as u32));
    entry.flags = 0x40;
    entry.command_id = 500.into();
    let mut bytes = world.capsule(io, entry, &page);
    *bytes.last_mut().unwrap() ^= 1;
    world.send(io, &bytes);
    assert!(world.reply(io, 500).unwrap().status.same_code(Status::TRANSIENT_TRANSPORT_ERROR));
    // By R2T, the first of two data PDUs with a wrong digest.
    entry = world.rw(opcode::io::WRITE, 0, 2, SglDescriptor::transport(2 * LBA as u32));
    entry.flags = 0x40;
    entry.command_id = 501.into();
    let bytes = world.capsule(io, entry, &[]);
    world.send(io, &bytes);
    let request = world.links.get_mut(&io).unwrap().pdus.pop().unwrap();
    let tag = u16::from_le_bytes([request.header[10], request.header[11]]);
    for (start, last) in [(0, false), (LBA, true)] {
        let header =
            tcp::DataToController::new(501, tag, start as u32, LBA as u32, last, both).as_bytes().to_vec();
        let mut digest = tcp::digest_of(&page);
        digest[0] ^= u8::from(!last);
        let bytes = [&header[..], &tcp::digest_of(&header), &page, &digest].concat();
        world.send(io, &bytes);
    }
    assert!(world.reply(io, 501).unwrap().status.same_code(Status::TRANSIENT_TRANSPORT_ERROR));
    assert!(world.memory.iter().all(|&byte| byte == 0));
    assert_eq!(world.write(io, 0, &page, true).status, Status::SUCCESS, "the connection goes on");
}

/// How a command gives back its place among those whose data are on the way, other than by its namespace's answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// A data digest is wrong.
    WrongDigest,
    /// It is a hint, with which there is nothing to do.
    Hint,
    /// What it names is out of range.
    OutOfRange,
    /// Its namespace went while its data came.
    NoNamespace,
}

/// Goal: a write that waits for buffer space is asked for its data when there is some again, whatever gave it back. Method: there is
/// room for the data of one command. One that comes to an end without its namespace holds some of it, and a write behind it wants
/// all. Nothing else of the connection is under way.
#[test]
fn space_for_data_that_is_given_back_is_given_on() {
    for end in [End::WrongDigest, End::Hint, End::OutOfRange, End::NoNamespace] {
        let both = Digests { header: true, data: true };
        let bytes_max = 64 * LBA;
        let mut world = World::with(
            6,
            TargetConfig {
                queue: QueueLimits {
                    transfer_bytes_max: bytes_max as u32,
                    gather_bytes_max: bytes_max,
                    ..QueueLimits::default()
                },
                ..TargetConfig::default()
            },
        );
        let mut two = subsystem();
        let first = two.namespaces[&1].clone();
        two.namespaces.insert(2, first);
        let mut actions = Vec::new();
        world.target.set_subsystem(two, world.now, &mut actions);
        let (_, controller) = world.admin(SUBSYSTEM, both);
        let io = world.io(controller, 1, both);
        let page = pattern(3, LBA);
        let mut entry = world.rw(opcode::io::WRITE, 0, 1, SglDescriptor::transport(LBA as u32));
        let mut data = page.clone();
        if matches!(end, End::Hint | End::OutOfRange) {
            entry.opcode = opcode::io::DATASET_MANAGEMENT;
            entry.cdw10 = 0.into();
            entry.cdw11 = if end == End::Hint { 1 } else { 4 }.into();
            entry.cdw12 = 0.into();
            data = vec![0; LBA];
            data[8..16].copy_from_slice(&LBAS.to_le_bytes());
            data[4..8].copy_from_slice(&1u32.to_le_bytes());
        }
        (entry.flags, entry.command_id, entry.nsid) = (0x40, 500.into(), 2.into());
        let capsule = world.capsule(io, entry, &[]);
        world.send(io, &capsule);
        let mut write = world.rw(opcode::io::WRITE, 64, 64, SglDescriptor::transport(bytes_max as u32));
        (write.flags, write.command_id) = (0x40, 501.into());
        let capsule = world.capsule(io, write, &[]);
        world.send(io, &capsule);
        let requests = std::mem::take(&mut world.links.get_mut(&io).unwrap().pdus);
        assert_eq!(requests.len(), 1, "{end:?}: the second write waits for buffer space");
        let tag = u16::from_le_bytes([requests[0].header[10], requests[0].header[11]]);
        match end {
            End::NoNamespace => {
                let mut actions = Vec::new();
                world.target.set_subsystem(subsystem(), world.now, &mut actions);
                world.act(actions);
                world.send_data(io, 500, tag, 0, &data, true);
            }
            End::WrongDigest => {
                let header = tcp::DataToController::new(500, tag, 0, LBA as u32, true, both);
                let header = header.as_bytes().to_vec();
                let mut digest = tcp::digest_of(&data);
                digest[0] ^= 1;
                let bytes = [&header[..], &tcp::digest_of(&header), &data, &digest].concat();
                world.send(io, &bytes);
            }
            End::Hint | End::OutOfRange => world.send_data(io, 500, tag, 0, &data, true),
        }
        let status = world.reply(io, 500).expect("it comes to an end").status;
        assert_eq!(status == Status::SUCCESS, end == End::Hint, "{end:?}: {status:?}");
        let all = pattern(5, bytes_max);
        world.serve_transfers(io, &all);
        let answer =
            world.reply(io, 501).unwrap_or_else(|| panic!("{end:?}: the write behind it waits for ever"));
        assert_eq!(answer.status, Status::SUCCESS);
        assert!(world.memory[64 * LBA..128 * LBA] == all[..]);
        world.target.check_budget();
    }
}

#[test]
fn a_wrong_data_digest_fails_one_command() {
    wrong_digests();
}

/// The canary of the test above.
#[test]
fn an_ignored_digest_is_noticed() {
    diecut_testing::planted::is_noticed("nvmf: data digest ignored", wrong_digests);
}
