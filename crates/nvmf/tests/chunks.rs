//! Goal: a host reaches chunks by the commands of Open-Channel 2.0, and their log page does not take the place of OCP's. Method: a host over a
//! namespace whose commands the test answers itself; addresses and bytes by hand.

use crate::world;
use diecut_namespace::contract::*;
use diecut_nvme::admin::GetLogPage;
use diecut_nvme::openchannel::{ChunkDescriptor, Geometry, VectorCommand, fid, lid, opcode as oc};
use diecut_nvme::tcp::Digests;
use diecut_nvme::*;
use diecut_nvmf::{ConnectionId, Event};
use world::*;
use zerocopy::FromBytes;

/// Two groups of two parallel units with three chunks of 2 x 4 logical blocks: an address has 1 + 1 + 2 + 3 bits.
const SHAPE: ChunkShape =
    ChunkShape { groups: 2, units: 2, chunks: 3, unit_ius: 4, rows: 2, unsafe_units: 1 };

fn world() -> (World, ConnectionId, ConnectionId) {
    world_with(Digests::default())
}

fn world_with(digests: Digests) -> (World, ConnectionId, ConnectionId) {
    let mut world = World::new(9);
    let mut config = subsystem();
    let namespace = config.namespaces.get_mut(&1).unwrap();
    namespace.properties.size_lbas = SHAPE.size_lbas();
    namespace.properties.chunks =
        Some(ChunkProperties { shape: SHAPE, read_ns: 1, write_ns: 2, reset_ns: 3 });
    config.namespaces.insert(2, namespace_of_memory());
    let mut actions = Vec::new();
    let now = world.now;
    world.target.set_subsystem(config, now, &mut actions);
    world.act(actions);
    let (admin, controller) = world.admin(SUBSYSTEM, Digests::default());
    let io = world.io(controller, 1, digests);
    world.hold = true;
    (world, admin, io)
}

fn namespace_of_memory() -> diecut_nvmf::NamespaceConfig {
    let mut other = namespace(8, LBAS);
    other.uuid = [9; 16];
    other.nguid = [8; 16];
    other
}

/// Sends a command, answers what its namespace is asked with `answer`, and gives what was asked and replied.
fn ask(
    world: &mut World,
    id: ConnectionId,
    mut entry: SubmissionEntry,
    data: &[u8],
    answer: impl FnOnce(NamespaceCommand) -> NamespaceCompletion,
) -> Reply {
    let cid = world.next_id(id);
    entry.command_id = cid.into();
    entry.flags |= 0x40;
    let in_capsule = data.len() <= 8192;
    entry.sgl = match (data.is_empty(), in_capsule) {
        // The list of a read is besides what its descriptor is for.
        _ if entry.opcode == oc::VECTOR_READ => entry.sgl,
        (true, _) => entry.sgl,
        (_, true) => SglDescriptor::in_capsule(data.len() as u32),
        _ => SglDescriptor::transport(data.len() as u32),
    };
    let capsule = world.capsule(id, entry, if in_capsule { data } else { &[] });
    world.send(id, &capsule);
    if !in_capsule {
        world.serve_transfers(id, data);
    }
    if let Some(command) = world.held.pop() {
        world.handle(Event::Completed(answer(command)));
    }
    world.reply(id, cid).expect("answered")
}

fn vector(code: u8, lba: u64, count: u32, destination: u64) -> SubmissionEntry {
    let mut entry = SubmissionEntry { opcode: code, nsid: 1.into(), ..SubmissionEntry::default() };
    VectorCommand { lba, count, destination }.encode(&mut entry);
    entry
}

fn done(command: &NamespaceCommand) -> NamespaceCompletion {
    NamespaceCompletion::without_data(command.token, Ok(()))
}

fn addresses(lbas: &[u64]) -> Vec<u8> {
    lbas.iter().flat_map(|lba| lba.to_le_bytes()).collect()
}

#[test]
fn lists_of_addresses_come_before_the_data() {
    let (mut world, _, io) = world();
    // The end of one chunk and the start of another one, which are no neighbours.
    let lbas: Vec<u64> = (4..8).chain(0x20..0x24).collect();
    let content: Vec<u8> = (0..8).flat_map(|block| vec![block; LBA]).collect();
    let data = [addresses(&lbas), content.clone()].concat();
    let reply = ask(&mut world, io, vector(oc::VECTOR_WRITE, 0xdead, 8, 0), &data, |command| {
        let NamespaceOperation::Chunk(ChunkRequest::Write { lbas, data }) = &command.operation else {
            panic!("{command:?}")
        };
        assert_eq!(lbas.0[..], [LbaRun { lba: 4, count: 4 }, LbaRun { lba: 0x20, count: 4 }]);
        assert_eq!(data[..], content);
        done(&command)
    });
    assert_eq!(reply.status, Status::SUCCESS);
    let data = addresses(&[0, 0x20, 0x28]);
    let reply = ask(&mut world, io, vector(oc::VECTOR_RESET, 0, 3, 0), &data, |command| {
        let NamespaceOperation::Chunk(ChunkRequest::Reset { lbas }) = &command.operation else {
            panic!("{command:?}")
        };
        assert_eq!(lbas.each().collect::<Vec<u64>>(), [0, 0x20, 0x28]);
        done(&command)
    });
    assert_eq!(reply.status, Status::SUCCESS);
    let data = [addresses(&[0, 1]), addresses(&[8, 9])].concat();
    let reply = ask(&mut world, io, vector(oc::VECTOR_COPY, 0, 2, 0), &data, |command| {
        let NamespaceOperation::Chunk(ChunkRequest::Copy { from, to }) = &command.operation else {
            panic!("{command:?}")
        };
        assert_eq!((from, to), (&LbaList::run(0, 2), &LbaList::run(8, 2)));
        done(&command)
    });
    assert_eq!(reply.status, Status::SUCCESS);
    // Single addresses are in the dwords.
    let reply = ask(&mut world, io, vector(oc::VECTOR_RESET, 0x21, 1, 0), &[], |command| {
        let NamespaceOperation::Chunk(ChunkRequest::Reset { lbas }) = &command.operation else {
            panic!("{command:?}")
        };
        assert_eq!(*lbas, LbaList::run(0x21, 1));
        NamespaceCompletion::without_data(command.token, Err(NamespaceError::Chunk(ChunkRefusal::Offline)))
    });
    assert!(reply.status.same_code(Status::OFFLINE_CHUNK));
    // Data that are not as long as their list says.
    let reply = ask(&mut world, io, vector(oc::VECTOR_WRITE, 0, 2, 0), &[0; 16], |command| done(&command));
    assert!(reply.status.same_code(Status::DATA_SGL_LENGTH_INVALID));
}

#[test]
fn a_vector_read_is_a_run_and_gives_data() {
    let (mut world, _, io) = world();
    let mut entry = vector(oc::VECTOR_READ, 0x10, 3, 0);
    entry.sgl = SglDescriptor::transport(3 * LBA as u32);
    let reply = ask(&mut world, io, entry, &[], |command| {
        let token = command.token;
        let NamespaceOperation::Chunk(ChunkRequest::Read { lbas, mut destination }) = command.operation
        else {
            panic!("a vector read reads")
        };
        assert_eq!(lbas, LbaList::run(0x10, 3));
        destination.fill(7);
        NamespaceCompletion { token, result: Ok(()), data: Some(destination.freeze()), zones: None }
    });
    assert_eq!((reply.status, reply.data), (Status::SUCCESS, vec![7; 3 * LBA]));
    let refusals = [
        (ChunkRefusal::NoSuchBlock, 0x080),
        (ChunkRefusal::ListLength, 0x1C1),
        (ChunkRefusal::Unwritten, 0x287),
        (ChunkRefusal::OutOfOrder, 0x2F2),
        (ChunkRefusal::Offline, 0x2C0),
        (ChunkRefusal::InvalidReset, 0x2C1),
        (ChunkRefusal::EarlyClose, 0x2F1),
    ];
    for (refusal, code) in refusals {
        let reply = ask(&mut world, io, entry, &[], |command| {
            NamespaceCompletion::without_data(command.token, Err(NamespaceError::Chunk(refusal)))
        });
        assert_eq!(reply.status.code_and_type(), code, "{refusal:?}");
    }
}

/// Goal: a read brings blocks that lie anywhere, and says which of them it cannot. Method: a list in the capsule of a read, cut anywhere on its
/// way and with digests; what its namespace answers, by hand; lists that do not fit their command.
#[test]
fn a_vector_read_takes_a_list_in_its_capsule() {
    for digests in [Digests::default(), Digests { header: true, data: true }] {
        let (mut world, _, io) = world_with(digests);
        world.cut = 7;
        let lbas = [0x77, 0x10, 0x11, 0x00];
        let mut entry = vector(oc::VECTOR_READ, 0xdead, 4, 0);
        entry.sgl = SglDescriptor::transport(4 * LBA as u32);
        let mut answer = |data: &[u8], result: Result<(), NamespaceError>, failed: u64| {
            ask(&mut world, io, entry, data, |command| {
                let token = command.token;
                let NamespaceOperation::Chunk(ChunkRequest::Read { lbas: asked, mut destination }) =
                    command.operation
                else {
                    panic!("a vector read reads")
                };
                assert_eq!(asked.each().collect::<Vec<u64>>(), lbas);
                for (place, block) in (1..).zip(destination.chunks_exact_mut(LBA)) {
                    block.fill(place);
                }
                let zones = (failed > 0).then_some(ZoneOutcome::Failed(ListBits(failed)));
                NamespaceCompletion { token, result, data: Some(destination.freeze()), zones }
            })
        };
        let content: Vec<u8> = (1..=4).flat_map(|place| vec![place; LBA]).collect();
        let reply = answer(&addresses(&lbas), Ok(()), 0);
        assert_eq!((reply.status, reply.result), (Status::SUCCESS, 0));
        assert!(reply.data == content, "blocks come in the order of their list");
        let unwritten = Err(NamespaceError::Chunk(ChunkRefusal::Unwritten));
        let reply = answer(&addresses(&lbas), unwritten, 0b1001);
        assert_eq!((reply.status.code_and_type(), reply.result), (0x287, 0b1001));
        assert!(reply.data == content, "what could be read comes with the failure");
        for length in [8, 24, 40] {
            let reply = ask(&mut world, io, entry, &vec![0; length], |command| panic!("{command:?}"));
            assert!(reply.status.same_code(Status::DATA_SGL_LENGTH_INVALID), "{length} bytes of a list of 4");
        }
        let read = SubmissionEntry { opcode: opcode::io::READ, cdw10: 0.into(), ..entry };
        let (cid, list) = (world.next_id(io), addresses(&lbas));
        let read = SubmissionEntry { command_id: cid.into(), flags: 0x40, ..read };
        let capsule = world.capsule(io, read, &list);
        world.send(io, &capsule);
        let reply = world.reply(io, cid).expect("answered");
        assert!(reply.status.same_code(Status::DATA_SGL_LENGTH_INVALID), "other reads have no list");
    }
}

/// Goal: a write, a copy and a reset say which of their blocks failed. Method: what their namespace answers, by hand.
#[test]
fn a_vector_command_says_which_blocks_failed() {
    let (mut world, _, io) = world();
    let data = addresses(&[0, 0x20, 0x28]);
    let reply = ask(&mut world, io, vector(oc::VECTOR_RESET, 0, 3, 0), &data, |command| {
        let result = Err(NamespaceError::Chunk(ChunkRefusal::Offline));
        let zones = Some(ZoneOutcome::Failed(ListBits(0b110)));
        NamespaceCompletion { zones, ..NamespaceCompletion::without_data(command.token, result) }
    });
    assert_eq!((reply.status.code_and_type(), reply.result, reply.data.len()), (0x2C0, 0b110, 0));
    // One of the NVM command set has no bits.
    let mut entry =
        SubmissionEntry { opcode: opcode::io::READ, nsid: 1.into(), ..SubmissionEntry::default() };
    entry.sgl = SglDescriptor::transport(LBA as u32);
    let reply = ask(&mut world, io, entry, &[], |command| {
        let result = Err(NamespaceError::Chunk(ChunkRefusal::Unwritten));
        let zones = Some(ZoneOutcome::Failed(ListBits(1)));
        NamespaceCompletion { zones, ..NamespaceCompletion::without_data(command.token, result) }
    });
    assert_eq!((reply.status.code_and_type(), reply.result), (0x287, 0));
}

#[test]
fn commands_that_are_not_of_chunks_are_refused_there_and_the_other_way_round() {
    let (mut world, _, io) = world();
    for code in [opcode::io::WRITE_ZEROES, opcode::io::COMPARE, opcode::io::VERIFY, opcode::io::COPY] {
        let reply = ask(&mut world, io, vector(code, 0, 1, 0), &[], |command| panic!("{command:?}"));
        assert!(reply.status.same_code(Status::INVALID_OPCODE), "{code:#x}");
    }
    for code in [oc::VECTOR_RESET, oc::VECTOR_WRITE, oc::VECTOR_READ, oc::VECTOR_COPY] {
        let entry = SubmissionEntry { nsid: 2.into(), ..vector(code, 0, 1, 0) };
        let reply = ask(&mut world, io, entry, &[], |command| panic!("{command:?}"));
        assert!(reply.status.same_code(Status::INVALID_OPCODE), "{code:#x}");
    }
}

#[test]
fn the_geometry_is_told() {
    let (mut world, admin, _) = world();
    let ask_of = |world: &mut World, nsid: u32| {
        let mut entry =
            SubmissionEntry { opcode: oc::GEOMETRY, nsid: nsid.into(), ..SubmissionEntry::default() };
        entry.sgl = SglDescriptor::transport(4096);
        ask(world, admin, entry, &[], |command| panic!("{command:?}"))
    };
    let reply = ask_of(&mut world, 1);
    assert_eq!(reply.status, Status::SUCCESS);
    let geometry = Geometry::read_from_bytes(&reply.data).unwrap();
    assert_eq!(reply.data[..20], [2, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 0, 0, 0, 0, 7, 0, 0, 0]);
    let sizes = [geometry.chunks, geometry.chunk_blocks, geometry.write_min, geometry.write_optimal];
    assert_eq!(sizes.map(|size| size.get()), [3, 8, 4, 4]);
    assert_eq!((geometry.groups.get(), geometry.units.get(), geometry.cached_units.get()), (2, 2, 4));
    assert!(ask_of(&mut world, 2).status.same_code(Status::INVALID_FIELD));
    assert!(ask_of(&mut world, 3).status.same_code(Status::INVALID_NAMESPACE_OR_FORMAT));
}

/// The page CAh of a namespace, from `offset` on.
fn page(
    world: &mut World,
    admin: ConnectionId,
    nsid: u32,
    uuid_index: u32,
    (offset, length_bytes): (u64, u64),
    answer: impl FnOnce(NamespaceCommand) -> NamespaceCompletion,
) -> Reply {
    let mut entry = SubmissionEntry {
        opcode: opcode::admin::GET_LOG_PAGE,
        nsid: nsid.into(),
        sgl: SglDescriptor::transport(length_bytes as u32),
        ..SubmissionEntry::default()
    };
    GetLogPage { offset, ..GetLogPage::of(lid::CHUNK_INFORMATION, length_bytes) }.encode(&mut entry);
    entry.cdw14 = (entry.cdw14.get() | uuid_index).into();
    ask(world, admin, entry, &[], answer)
}

#[test]
fn chunks_are_told_and_ocp_keeps_its_page() {
    let (mut world, admin, _) = world();
    let view = |state, written, wear| ChunkView { state, written, wear };
    let all = [
        view(ChunkState::Free, 0, 0),
        view(ChunkState::Open, 4, 9),
        view(ChunkState::Closed, 8, 200),
        view(ChunkState::Offline, 0, 255),
    ];
    let report = |command: NamespaceCommand| {
        let NamespaceOperation::Chunk(ChunkRequest::Report { first, count_max }) = command.operation else {
            panic!("{command:?}")
        };
        let chunks = all[first as usize..].iter().take(count_max as usize).copied().collect();
        let zones = Some(ZoneOutcome::Chunks(chunks));
        NamespaceCompletion { token: command.token, result: Ok(()), data: None, zones }
    };
    let reply = page(&mut world, admin, 1, 0, (0, 128), report);
    assert_eq!((reply.status, reply.data.len()), (Status::SUCCESS, 128));
    let descriptor = |at: usize| ChunkDescriptor::read_from_bytes(&reply.data[at * 32..][..32]).unwrap();
    assert_eq!(descriptor(1), ChunkDescriptor::new(4, 9, 8, 8, 4));
    assert_eq!(descriptor(3), ChunkDescriptor::new(8, 255, 0x20, 8, 0), "the second parallel unit");
    let whole = reply.data.clone();
    let reply = page(&mut world, admin, 1, 0, (40, 48), report);
    assert_eq!(reply.data, whole[40..88], "a part of it, from within a descriptor on");
    let reply = page(&mut world, admin, 1, 0, (12 * 32 + 4, 4), report);
    assert!(reply.status.same_code(Status::INVALID_FIELD), "beyond the last one");
    // With the index of OCP's UUID, or of a namespace without chunks, the page is OCP's: its latency debug log, which is empty.
    for (nsid, uuid_index) in [(1, 1), (2, 0), (NSID_ALL, 0), (NSID_ALL, 1)] {
        let reply = page(&mut world, admin, nsid, uuid_index, (0, 4), |command| panic!("{command:?}"));
        assert_eq!((reply.status, reply.data), (Status::SUCCESS, vec![0; 4]), "{nsid:#x} {uuid_index}");
    }
}

fn feature(code: u8, nsid: u32, select_or_save: u32, value: u32) -> SubmissionEntry {
    SubmissionEntry {
        opcode: code,
        nsid: nsid.into(),
        cdw10: (u32::from(fid::MEDIA_FEEDBACK) | select_or_save).into(),
        cdw11: value.into(),
        ..SubmissionEntry::default()
    }
}

const SET: u8 = opcode::admin::SET_FEATURES;
const GET: u8 = opcode::admin::GET_FEATURES;

/// Goal: media feedback is a feature of one namespace, off until a host wants it. Method: values by hand.
#[test]
fn media_feedback_is_a_feature_of_a_namespace() {
    let (mut world, admin, _) = world();
    let mut is = |entry: SubmissionEntry| {
        let reply = ask(&mut world, admin, entry, &[], |command| panic!("{command:?}"));
        (reply.status.code_and_type(), reply.result)
    };
    assert_eq!(is(feature(GET, 1, 0, 0)), (0, 0));
    assert_eq!(is(feature(SET, 1, 0, 1)), (0, 0));
    assert_eq!(
        [is(feature(GET, 1, 0, 0)), is(feature(GET, 1, 1 << 8, 0))],
        [(0, 1), (0, 0)],
        "now, by default"
    );
    assert_eq!(is(feature(GET, 1, 3 << 8, 0)), (0, 0b110), "changeable, of a namespace");
    assert_eq!(is(feature(SET, 1, 0, 2)).0, 0x002, "very high ECC is not told apart");
    assert_eq!(is(feature(SET, 1, 1 << 31, 0)).0, 0x10d, "not saveable");
    assert_eq!(is(feature(SET, 1, 0, 0)), (0, 0));
    assert_eq!(is(feature(GET, 1, 0, 0)), (0, 0));
    assert_eq!(is(feature(SET, 2, 0, 0)).0, 0x002, "a namespace without chunks");
}

/// Goal: a vector read of data that is hard to read says so to a host that wants to know, and brings them in any case. Method: what its
/// namespace answers, by hand, with the feature off and on.
#[test]
fn a_vector_read_says_that_data_is_hard_to_read() {
    let (mut world, admin, io) = world();
    let mut entry = vector(oc::VECTOR_READ, 0x10, 3, 0);
    entry.sgl = SglDescriptor::transport(3 * LBA as u32);
    let read = SubmissionEntry { opcode: opcode::io::READ, cdw12: 2.into(), ..entry };
    for (is_on, entry, code, bits) in
        [(0, entry, 0, 0), (1, entry, 0x2D0, 0b101), (1, read, 0, 0), (0, entry, 0, 0)]
    {
        let set = feature(SET, 1, 0, is_on);
        assert_eq!(ask(&mut world, admin, set, &[], |command| panic!("{command:?}")).status, Status::SUCCESS);
        let reply = ask(&mut world, io, entry, &[], |command| {
            let token = command.token;
            let (NamespaceOperation::Chunk(ChunkRequest::Read { mut destination, .. })
            | NamespaceOperation::Read { mut destination, .. }) = command.operation
            else {
                panic!("a read reads")
            };
            destination.fill(6);
            let zones = Some(ZoneOutcome::Strained(ListBits(0b101)));
            NamespaceCompletion { token, result: Ok(()), data: Some(destination.freeze()), zones }
        });
        assert_eq!((reply.status.code_and_type(), reply.result), (code, bits));
        assert!(reply.data == vec![6; 3 * LBA], "the data come in any case");
    }
}

fn tell_of_chunks() {
    let (mut world, admin, _) = world();
    let (other, _) = world.admin(SUBSYSTEM, Digests::default());
    let requests = [world.ask_for_event(admin), world.ask_for_event(other)];
    let notices = [
        ChunkNotice { lba: 0x20, count: 0, error_rate: ErrorRate::High },
        ChunkNotice { lba: 0x73, count: 2, error_rate: ErrorRate::Unrecoverable },
    ];
    let mut actions = Vec::new();
    world.target.chunks_noticed(&name(SUBSYSTEM), 1, &notices, &mut actions);
    world.act(actions);
    for (id, request) in [admin, other].into_iter().zip(requests) {
        let reply = world.reply(id, request).expect("told");
        assert_eq!(reply.result, 0x00D0_0007, "vendor specific, log page D0h");
    }
    let again = world.ask_for_event(admin);
    let read = |world: &mut World, id: ConnectionId, retain_event: bool| {
        let mut entry = SubmissionEntry {
            opcode: opcode::admin::GET_LOG_PAGE,
            sgl: SglDescriptor::transport(128),
            ..SubmissionEntry::default()
        };
        GetLogPage { retain_event, ..GetLogPage::of(lid::CHUNK_NOTIFICATION, 128) }.encode(&mut entry);
        let reply = world.command(id, entry, &[]);
        assert_eq!(reply.status, Status::SUCCESS);
        reply.data
    };
    let page = read(&mut world, admin, true);
    let mut expected = [0; 128];
    expected[..24]
        .copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4, 0, 2, 0]);
    expected[64..88]
        .copy_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 0x73, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 8, 0, 1, 0]);
    expected[96] = 1;
    assert_eq!(page, expected);
    assert_eq!(read(&mut world, admin, false), expected);
    assert_eq!(read(&mut world, admin, false), [0; 128], "what was read is gone");
    assert!(world.reply(admin, again).is_none(), "nothing new");
    assert_eq!(read(&mut world, other, true), expected, "each controller has a log");
    world.set_cc(other, 0);
    world.enable(other);
    assert_eq!(read(&mut world, other, true), [0; 128], "it ends with its controller");
    let mut actions = Vec::new();
    world.target.chunks_noticed(&name(SUBSYSTEM), 1, &notices[..1], &mut actions);
    world.act(actions);
    assert_eq!(world.reply(admin, again).expect("told again").result, 0x00D0_0007);
    assert_eq!(read(&mut world, admin, false)[..8], 3_u64.to_le_bytes(), "counts go on");
}

/// Goal: hosts are told that something became known of chunks, and read it once. Method: notices by hand, two controllers, and a reset of one.
#[test]
fn chunks_that_are_hard_to_read_are_told_of() {
    tell_of_chunks();
    diecut_testing::planted::is_noticed("nvmf: a chunk notification is not told", tell_of_chunks);
}

#[test]
fn commands_and_features_of_chunks_are_told() {
    let (mut world, admin, _) = world();
    let mut page = |page: u8, length_bytes: u64| {
        let mut entry = SubmissionEntry {
            opcode: opcode::admin::GET_LOG_PAGE,
            sgl: SglDescriptor::transport(length_bytes as u32),
            ..SubmissionEntry::default()
        };
        GetLogPage::of(page, length_bytes).encode(&mut entry);
        let reply = ask(&mut world, admin, entry, &[], |command| panic!("{command:?}"));
        assert_eq!(reply.status, Status::SUCCESS);
        reply.data
    };
    let effects = page(log_page::lid::COMMAND_EFFECTS, 4096);
    let of = |at: usize| u32::from_le_bytes(effects[at * 4..][..4].try_into().unwrap()) & 3;
    assert_eq!(of(usize::from(oc::GEOMETRY)), 1, "supported");
    let io = [oc::VECTOR_RESET, oc::VECTOR_WRITE, oc::VECTOR_READ, oc::VECTOR_COPY, 0x94];
    assert_eq!(io.map(|code| of(256 + usize::from(code))), [3, 3, 1, 3, 0], "and what changes content");
    let features = page(log_page::lid::FEATURE_EFFECTS, 1024);
    assert_eq!(features[usize::from(fid::MEDIA_FEEDBACK) * 4] & 1, 1);
}
