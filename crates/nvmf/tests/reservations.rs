//! Goal: hosts keep each other out of a namespace as the specification says, are told of what others did, and are told apart by their
//! identifiers. Method: two hosts with a namespace in memory.

use crate::world;
use diecut_nvme::admin::{AsynchronousEvent, GetLogPage};
use diecut_nvme::feature::fid;
use diecut_nvme::log_page::lid;
use diecut_nvme::reservation::*;
use diecut_nvme::tcp::Digests;
use diecut_nvme::*;
use diecut_nvmf::{ConnectionId, Home, Keep, KeepReservation, Kept};
use diecut_units::Buffer;
use world::*;
use zerocopy::{FromBytes, IntoBytes};

const KEY_A: u64 = 0xA1;
const KEY_B: u64 = 0xB2;

/// A host with an admin queue and an I/O queue.
#[derive(Clone, Copy)]
struct Host {
    admin: ConnectionId,
    io: ConnectionId,
    controller: u16,
    id: [u8; 16],
}

fn host(world: &mut World, id: u8) -> Host {
    world.host_id = [id; 16];
    let (admin, controller) = world.admin(SUBSYSTEM, Digests::NONE);
    let io = world.io(controller, 1, Digests::NONE);
    Host { admin, io, controller, id: [id; 16] }
}

fn entry(opcode: u8, command: ReservationCommand, bytes: usize) -> SubmissionEntry {
    let sgl = SglDescriptor::in_capsule(bytes as u32);
    let mut entry = SubmissionEntry { opcode, nsid: 1.into(), sgl, ..SubmissionEntry::default() };
    command.encode(&mut entry);
    entry
}

const NOTHING: ReservationCommand =
    ReservationCommand { action: 0, ignores_key: false, kind: 0, persistence: 0 };

fn keys(current: u64, other: u64) -> Vec<u8> {
    ReservationKeys { current: current.into(), other: other.into() }.as_bytes().to_vec()
}

fn register(world: &mut World, host: Host, key: u64) -> Status {
    let entry = entry(opcode::io::RESERVATION_REGISTER, NOTHING, 16);
    world.command(host.io, entry, &keys(0, key)).status
}

fn acquire_entry(action: u8, kind: ReservationKind) -> SubmissionEntry {
    let command = ReservationCommand { action, kind: kind as u8, ..NOTHING };
    entry(opcode::io::RESERVATION_ACQUIRE, command, 16)
}

fn acquire(world: &mut World, host: Host, key: u64, kind: ReservationKind) -> Status {
    world.command(host.io, acquire_entry(ACQUIRE, kind), &keys(key, 0)).status
}

fn release(world: &mut World, host: Host, key: u64, action: u8, kind: ReservationKind) -> Status {
    let command = ReservationCommand { action, kind: kind as u8, ..NOTHING };
    let entry = entry(opcode::io::RESERVATION_RELEASE, command, 8);
    world.command(host.io, entry, &key.to_le_bytes()).status
}

fn report(world: &mut World, host: Host) -> (ReservationStatus, Vec<RegisteredController>) {
    let mut entry = SubmissionEntry {
        opcode: opcode::io::RESERVATION_REPORT,
        nsid: 1.into(),
        sgl: SglDescriptor::transport(4096),
        ..SubmissionEntry::default()
    };
    ReservationReport { length_bytes: 4096, extended: true }.encode(&mut entry);
    let page = world.command(host.io, entry, &[]).data;
    let (status, rest) = ReservationStatus::read_from_prefix(&page).unwrap();
    let controllers = rest.chunks_exact(64).map(|one| RegisteredController::read_from_bytes(one).unwrap());
    (status, controllers.take(usize::from(status.regctl.get())).collect())
}

/// The next reservation that is to be durable.
fn next_record(world: &mut World) -> KeepReservation {
    match world.records_held.remove(0) {
        Keep::Reservation(keep) => keep,
        other => panic!("{other:?}"),
    }
}

fn log(world: &mut World, admin: ConnectionId) -> ReservationNotification {
    let mut entry = SubmissionEntry {
        opcode: opcode::admin::GET_LOG_PAGE,
        sgl: SglDescriptor::transport(64),
        ..SubmissionEntry::default()
    };
    let ask = GetLogPage::of(lid::RESERVATION, 64);
    ask.encode(&mut entry);
    ReservationNotification::read_from_bytes(&world.command(admin, entry, &[]).data).unwrap()
}

/// Every command of a host that does not hold a reservation, against every kind.
#[test]
fn commands_meet_reservations() {
    for kind in ReservationKind::ALL {
        for is_registered in [false, true] {
            let mut world = World::new(31);
            let (a, b) = (host(&mut world, 1), host(&mut world, 2));
            assert_eq!(register(&mut world, a, KEY_A), Status::SUCCESS);
            if is_registered {
                assert_eq!(register(&mut world, b, KEY_B), Status::SUCCESS);
            }
            assert_eq!(acquire(&mut world, a, KEY_A, kind), Status::SUCCESS);
            let has_rights = is_registered && kind.is_shared();
            let may_read = has_rights || !kind.excludes_readers();
            let page = vec![0; LBA];
            let sgl = SglDescriptor::in_capsule(LBA as u32);
            let cases = [
                (world.rw(opcode::io::READ, 0, 1, SglDescriptor::transport(LBA as u32)), may_read),
                (world.rw(opcode::io::COMPARE, 0, 1, sgl), may_read),
                (world.rw(opcode::io::VERIFY, 0, 1, SglDescriptor::default()), may_read),
                (world.rw(opcode::io::WRITE, 0, 1, sgl), has_rights),
                (world.rw(opcode::io::WRITE_ZEROES, 0, 1, SglDescriptor::default()), has_rights),
                (world.rw(opcode::io::FLUSH, 0, 1, SglDescriptor::default()), has_rights),
            ];
            for (entry, may) in cases {
                for host in [a, b] {
                    let status = world.command(host.io, entry, &page).status;
                    let expected = host.id == a.id || may;
                    assert_eq!(
                        !status.same_code(Status::RESERVATION_CONFLICT),
                        expected,
                        "{kind:?} {entry:?}"
                    );
                }
            }
            // Reports and registrations are always let through.
            assert_eq!(report(&mut world, b).0.rtype, kind as u8);
            assert_eq!(register(&mut world, b, KEY_B), Status::SUCCESS);
            assert_eq!(release(&mut world, a, KEY_A, RELEASE, kind), Status::SUCCESS);
            assert_eq!(world.write(b.io, 0, &page, true).status, Status::SUCCESS, "{kind:?}: released");
        }
    }
}

/// Both controllers of a host have its rights; a host without a controller stays registered.
#[test]
fn hosts_are_told_apart_by_their_identifiers() {
    let mut world = World::new(32);
    let (a, b) = (host(&mut world, 1), host(&mut world, 2));
    let again = host(&mut world, 1);
    register(&mut world, a, KEY_A);
    register(&mut world, b, KEY_B);
    let kind = ReservationKind::ExclusiveAccess;
    assert_eq!(acquire(&mut world, again, KEY_A, kind), Status::SUCCESS);
    let page = vec![7; LBA];
    assert_eq!(world.write(a.io, 0, &page, true).status, Status::SUCCESS);
    assert_eq!(world.write(again.io, 0, &page, true).status, Status::SUCCESS);
    assert!(world.write(b.io, 0, &page, true).status.same_code(Status::RESERVATION_CONFLICT));
    let (status, controllers) = report(&mut world, b);
    assert_eq!((status.rtype, status.generation.get(), status.ptpls), (kind as u8, 2, 0));
    let found: Vec<_> =
        controllers.iter().map(|one| (one.cntlid.get(), one.rcsts, one.rkey.get(), one.hostid)).collect();
    let expected =
        [(a.controller, 1, KEY_A, a.id), (again.controller, 1, KEY_A, a.id), (b.controller, 0, KEY_B, b.id)];
    assert_eq!(found, expected);
    for gone in [a.io, a.admin, again.io, again.admin] {
        world.handle(diecut_nvmf::Event::Closed(gone));
    }
    let (_, controllers) = report(&mut world, b);
    assert_eq!(controllers[0].cntlid.get(), 0xFFFF);
    assert!(world.write(b.io, 0, &page, true).status.same_code(Status::RESERVATION_CONFLICT));
    let back = host(&mut world, 1);
    assert_eq!(world.write(back.io, 0, &page, true).status, Status::SUCCESS);
}

#[test]
fn commands_that_cannot_be_are_refused() {
    let mut world = World::new(33);
    let a = host(&mut world, 1);
    register(&mut world, a, KEY_A);
    let kind = ReservationKind::WriteExclusive as u8;
    let cases = [
        (opcode::io::RESERVATION_REGISTER, ReservationCommand { action: 3, ..NOTHING }),
        (opcode::io::RESERVATION_REGISTER, ReservationCommand { persistence: 1, ..NOTHING }),
        (opcode::io::RESERVATION_ACQUIRE, ReservationCommand { action: 3, kind, ..NOTHING }),
        (opcode::io::RESERVATION_ACQUIRE, ReservationCommand { kind: 0, ..NOTHING }),
        (opcode::io::RESERVATION_ACQUIRE, ReservationCommand { kind: 7, ..NOTHING }),
        (opcode::io::RESERVATION_ACQUIRE, ReservationCommand { ignores_key: true, kind, ..NOTHING }),
        (opcode::io::RESERVATION_RELEASE, ReservationCommand { action: 2, kind, ..NOTHING }),
        (opcode::io::RESERVATION_RELEASE, ReservationCommand { ignores_key: true, kind, ..NOTHING }),
    ];
    for (opcode, command) in cases {
        let bytes = if opcode == opcode::io::RESERVATION_RELEASE { 8 } else { 16 };
        let data = &keys(KEY_A, KEY_A)[..bytes];
        let status = world.command(a.io, entry(opcode, command, bytes), data).status;
        assert!(status.same_code(Status::INVALID_FIELD), "{opcode:#x} {command:?}: {status}");
    }
    let short = SubmissionEntry {
        opcode: opcode::io::RESERVATION_REPORT,
        nsid: 1.into(),
        cdw10: 15.into(),
        sgl: SglDescriptor::transport(64),
        ..SubmissionEntry::default()
    };
    let status = world.command(a.io, short, &[]).status;
    assert!(status.same_code(Status::HOST_IDENTIFIER_INCONSISTENT), "{status}");
    let nowhere = SubmissionEntry { nsid: 2.into(), ..entry(opcode::io::RESERVATION_REGISTER, NOTHING, 16) };
    let status = world.command(a.io, nowhere, &keys(0, 1)).status;
    assert!(status.same_code(Status::INVALID_NAMESPACE_OR_FORMAT), "{status}");
    let (status, controllers) = report(&mut world, a);
    assert_eq!((status.rtype, controllers.len()), (0, 1), "nothing changed");
}

/// The reservation requests of Linux send sixteen bytes with a release, of which eight are the key.
#[test]
fn a_release_may_bring_more_than_a_key() {
    let mut world = World::new(35);
    let a = host(&mut world, 1);
    register(&mut world, a, KEY_A);
    assert_eq!(acquire(&mut world, a, KEY_A, ReservationKind::WriteExclusive), Status::SUCCESS);
    let command =
        ReservationCommand { action: RELEASE, kind: ReservationKind::WriteExclusive as u8, ..NOTHING };
    let long = entry(opcode::io::RESERVATION_RELEASE, command, 16);
    let other_key = world.command(a.io, long, &keys(KEY_B, KEY_A)).status;
    assert!(other_key.same_code(Status::RESERVATION_CONFLICT), "the first eight are the key: {other_key}");
    assert_eq!(world.command(a.io, long, &keys(KEY_A, 0)).status, Status::SUCCESS);
    let (status, controllers) = report(&mut world, a);
    assert_eq!((status.rtype, controllers.len()), (0, 1));
    let odd = entry(opcode::io::RESERVATION_RELEASE, command, 12);
    let status = world.command(a.io, odd, &[0; 12]).status;
    assert!(status.same_code(Status::DATA_SGL_LENGTH_INVALID), "{status}");
}

/// What others did is told with an event and a page each, unless a host does not want to hear of it.
#[test]
fn hosts_are_told_of_what_others_did() {
    let mut world = World::new(34);
    let (a, b) = (host(&mut world, 1), host(&mut world, 2));
    register(&mut world, a, KEY_A);
    register(&mut world, b, KEY_B);
    assert_eq!(log(&mut world, b.admin), ReservationNotification::default(), "an empty page");
    let request = world.ask_for_event(b.admin);
    let kind = ReservationKind::WriteExclusiveRegistrantsOnly;
    acquire(&mut world, a, KEY_A, kind);
    assert!(world.reply(b.admin, request).is_none());
    assert_eq!(release(&mut world, a, KEY_A, RELEASE, kind), Status::SUCCESS);
    assert_eq!(release(&mut world, a, KEY_A, CLEAR, kind), Status::SUCCESS);
    let event = world.reply(b.admin, request).expect("told").result as u32;
    assert_eq!(AsynchronousEvent::decode(event), AsynchronousEvent::RESERVATION_LOG);
    let request = world.ask_for_event(b.admin);
    let pages: Vec<_> = (0..3)
        .map(|_| {
            let page = log(&mut world, b.admin);
            (page.count.get(), page.kind, page.available, page.nsid.get())
        })
        .collect();
    let expected = [
        (1, notification::RESERVATION_RELEASED, 1, 1),
        (2, notification::RESERVATION_PREEMPTED, 0, 1),
        (0, 0, 0, 0),
    ];
    assert_eq!(pages, expected);
    assert!(world.reply(b.admin, request).is_some(), "the second page had an event of its own");
    assert_eq!(log(&mut world, a.admin).kind, 0, "nobody is told of what it did itself");
    // Masked.
    let mask = SubmissionEntry {
        opcode: opcode::admin::SET_FEATURES,
        nsid: 1.into(),
        cdw10: u32::from(fid::RESERVATION_NOTIFICATION_MASK).into(),
        cdw11: (1u32 << notification::REGISTRATION_PREEMPTED).into(),
        sgl: SglDescriptor::transport(0),
        ..SubmissionEntry::default()
    };
    assert_eq!(world.command(b.admin, mask, &[]).status, Status::SUCCESS);
    register(&mut world, a, KEY_A);
    register(&mut world, b, KEY_B);
    let preempt = acquire_entry(PREEMPT, kind);
    assert_eq!(world.command(a.io, preempt, &keys(KEY_A, KEY_B)).status, Status::SUCCESS);
    assert_eq!(log(&mut world, b.admin).kind, 0, "masked");
    let (_, controllers) = report(&mut world, a);
    assert_eq!(controllers.len(), 1, "and preempted all the same");
}

/// Preempt and Abort is answered when nothing of the preempted host is under way any more.
#[test]
fn preempted_commands_are_waited_for() {
    wait_for_preempted();
}

/// The tests above fail where nobody waits, and where everyone is let in.
#[test]
fn planted_bugs_are_noticed() {
    diecut_testing::planted::is_noticed("nvmf: preempted commands are not waited for", wait_for_preempted);
    diecut_testing::planted::is_noticed("nvmf: reservations let everyone in", commands_meet_reservations);
    let bug = "nvmf: reservations are answered before they are durable";
    diecut_testing::planted::is_noticed(bug, answer_when_durable);
}

fn wait_for_preempted() {
    let mut world = World::new(35);
    let (a, b) = (host(&mut world, 1), host(&mut world, 2));
    register(&mut world, a, KEY_A);
    register(&mut world, b, KEY_B);
    let kind = ReservationKind::WriteExclusive;
    acquire(&mut world, b, KEY_B, kind);
    world.hold = true;
    let mut write = world.rw(opcode::io::WRITE, 3, 1, SglDescriptor::in_capsule(LBA as u32));
    let late = world.next_id(b.io);
    (write.command_id, write.flags) = (late.into(), 0x40);
    let bytes = world.capsule(b.io, write, &[5; LBA]);
    world.handle(diecut_nvmf::Event::Received(b.io, Buffer::copy_from(&bytes)));
    assert_eq!(world.held.len(), 1);
    let mut preempt = acquire_entry(PREEMPT_AND_ABORT, kind);
    let waits = world.next_id(a.io);
    (preempt.command_id, preempt.flags) = (waits.into(), 0x40);
    let bytes = world.capsule(a.io, preempt, &keys(KEY_A, KEY_B));
    world.send(a.io, &bytes);
    assert!(world.reply(a.io, waits).is_none(), "a write of the other one is under way");
    assert_eq!(world.given_up.len(), 1, "which was asked to be given up");
    // Meanwhile its host is kept out.
    let refused = world.write(b.io, 4, &[6; LBA], true).status;
    assert!(refused.same_code(Status::RESERVATION_CONFLICT), "{refused}");
    world.release_held();
    assert_eq!(world.reply(a.io, waits).expect("answered").status, Status::SUCCESS);
    assert!(world.reply(b.io, late).is_some());
    assert_eq!(world.write(a.io, 3, &[8; LBA], true).status, Status::SUCCESS);
    assert_eq!(world.memory[3 * LBA], 8);
}

/// A namespace that is another one than before is nobody's; a change that leaves it alone leaves its reservation.
#[test]
fn a_reservation_is_the_namespaces() {
    let mut world = World::new(36);
    let a = host(&mut world, 1);
    register(&mut world, a, KEY_A);
    let mut actions = Vec::new();
    let mut same = subsystem();
    same.home = Home::Here;
    same.allow_any_host = true;
    world.target.set_subsystem(same.clone(), world.now, &mut actions);
    world.act(std::mem::take(&mut actions));
    assert_eq!(report(&mut world, a).1.len(), 1);
    let namespace = same.namespaces.remove(&1).unwrap();
    world.target.set_subsystem(same.clone(), world.now, &mut actions);
    same.namespaces.insert(1, namespace);
    world.target.set_subsystem(same, world.now, &mut actions);
    world.act(actions);
    assert!(report(&mut world, a).1.is_empty());
}

fn persistence(world: &mut World, host: Host, nsid: u32, select: u32) -> (Status, u64) {
    let entry = SubmissionEntry {
        opcode: opcode::admin::GET_FEATURES,
        nsid: nsid.into(),
        cdw10: (u32::from(fid::RESERVATION_PERSISTENCE) | select << 8).into(),
        sgl: SglDescriptor::transport(0),
        ..SubmissionEntry::default()
    };
    let reply = world.command(host.admin, entry, &[]);
    (reply.status, reply.result)
}

fn persistence_entry(nsid: u32, cdw10: u32, value: u32) -> SubmissionEntry {
    SubmissionEntry {
        opcode: opcode::admin::SET_FEATURES,
        nsid: nsid.into(),
        cdw10: (u32::from(fid::RESERVATION_PERSISTENCE) | cdw10).into(),
        cdw11: value.into(),
        sgl: SglDescriptor::transport(0),
        ..SubmissionEntry::default()
    }
}

fn set_persistence(world: &mut World, host: Host, nsid: u32, value: u32) -> Status {
    world.command(host.admin, persistence_entry(nsid, 0, value), &[]).status
}

fn record(world: &World) -> Option<diecut_nvmf::ReservationRecord> {
    world.records.get(&diecut_namespace::contract::NamespaceId(7))?.clone()
}

/// Goal: feature 83h and CPTPL are one setting, which is told where hosts look for it.
#[test]
fn hosts_choose_what_outlives_a_power_loss() {
    let mut world = World::new(37);
    let (a, b) = (host(&mut world, 1), host(&mut world, 2));
    assert_eq!(persistence(&mut world, a, 1, 0), (Status::SUCCESS, 0));
    assert_eq!(persistence(&mut world, a, 1, 3), (Status::SUCCESS, 0b110), "changeable, of a namespace");
    register(&mut world, a, KEY_A);
    assert_eq!(record(&world), None, "volatile");
    let persists = ReservationCommand { persistence: PERSISTS, ..NOTHING };
    let entry = entry(opcode::io::RESERVATION_REGISTER, persists, 16);
    assert_eq!(world.command(b.io, entry, &keys(0, KEY_B)).status, Status::SUCCESS);
    assert_eq!(persistence(&mut world, a, 1, 0), (Status::SUCCESS, 1));
    assert_eq!(report(&mut world, a).0.ptpls, 1);
    let kind = ReservationKind::WriteExclusive;
    acquire(&mut world, a, KEY_A, kind);
    let kept = record(&world).unwrap();
    assert_eq!(kept.registrants, [(a.id, KEY_A), (b.id, KEY_B)], "also who registered before");
    assert_eq!((kept.generation, kept.held), (2, Some((kind, a.id))));
    // A command that is refused changes nothing.
    let no_persistence = ReservationCommand { persistence: DOES_NOT_PERSIST, ..NOTHING };
    let mut refused = entry;
    no_persistence.encode(&mut refused);
    assert!(world.command(b.io, refused, &keys(0, 0)).status.same_code(Status::INVALID_FIELD));
    assert_eq!(report(&mut world, a).0.ptpls, 1);
    assert_eq!(set_persistence(&mut world, b, 1, 0), Status::SUCCESS);
    assert_eq!((record(&world), report(&mut world, a).0.ptpls), (None, 0));
    assert_eq!(report(&mut world, a).0.rtype, kind as u8, "the reservation stands");
    assert_eq!(set_persistence(&mut world, b, NSID_ALL, 1), Status::SUCCESS);
    assert_eq!(record(&world).unwrap().held, Some((kind, a.id)));
    assert_eq!(release(&mut world, a, KEY_A, CLEAR, kind), Status::SUCCESS);
    let kept = record(&world).unwrap();
    assert_eq!((kept.registrants.len(), kept.held, kept.generation), (0, None, 3));
    for (status, entry) in [
        (Status::INVALID_FIELD, persistence_entry(1, 0, 2)),
        (Status::FEATURE_NOT_SAVEABLE, persistence_entry(1, 1 << 31, 1)),
        (Status::INVALID_NAMESPACE_OR_FORMAT, persistence_entry(2, 0, 1)),
        (Status::INVALID_NAMESPACE_OR_FORMAT, persistence_entry(0, 0, 1)),
    ] {
        let found = world.command(a.admin, entry, &[]).status;
        assert!(found.same_code(status), "{found} {status} {entry:?}");
    }
    assert!(persistence(&mut world, a, NSID_ALL, 0).0.same_code(Status::INVALID_NAMESPACE_OR_FORMAT));
}

/// Goal: a command that changes what persists is answered when that is durable, and a change that cannot be kept is undone.
#[test]
fn what_persists_is_answered_when_it_is_durable() {
    answer_when_durable();
}

fn send(world: &mut World, id: ConnectionId, mut entry: SubmissionEntry, data: &[u8]) -> u16 {
    let command_id = world.next_id(id);
    (entry.command_id, entry.flags) = (command_id.into(), 0x40);
    let bytes = world.capsule(id, entry, data);
    world.send(id, &bytes);
    command_id
}

fn answer_when_durable() {
    let mut world = World::new(38);
    let (a, b) = (host(&mut world, 1), host(&mut world, 2));
    register(&mut world, a, KEY_A);
    register(&mut world, b, KEY_B);
    assert_eq!(set_persistence(&mut world, a, 1, 1), Status::SUCCESS);
    world.hold_records = true;
    let kind = ReservationKind::WriteExclusive;
    let first = send(&mut world, a.io, acquire_entry(ACQUIRE, kind), &keys(KEY_A, 0));
    assert!(world.reply(a.io, first).is_none(), "it is not durable yet");
    // It counts already, and what comes after it waits for it.
    let refused = world.write(b.io, 4, &[6; LBA], true).status;
    assert!(refused.same_code(Status::RESERVATION_CONFLICT), "{refused}");
    let again = send(&mut world, a.io, acquire_entry(ACQUIRE, kind), &keys(KEY_A, 0));
    let preempt = send(&mut world, b.io, acquire_entry(PREEMPT, kind), &keys(KEY_B, KEY_A));
    assert!(world.reply(a.io, again).is_none() && world.reply(b.io, preempt).is_none());
    assert_eq!(world.records_held.len(), 1, "one change of a namespace is on its way at a time");
    let keep = next_record(&mut world);
    assert_eq!(keep.record.as_ref().unwrap().held, Some((kind, a.id)));
    world.handle(diecut_nvmf::Event::Kept(Kept::Reservation(keep.kept())));
    for command_id in [first, again] {
        assert_eq!(world.reply(a.io, command_id).expect("answered").status, Status::SUCCESS);
    }
    assert!(world.reply(b.io, preempt).is_none());
    let keep = next_record(&mut world);
    assert_eq!(keep.record.as_ref().unwrap().held, Some((kind, b.id)));
    let lost = diecut_nvmf::KeptReservation { is_kept: false, ..keep.kept() };
    world.handle(diecut_nvmf::Event::Kept(Kept::Reservation(lost)));
    let status = world.reply(b.io, preempt).expect("answered").status;
    assert!(status.same_code(Status::INTERNAL_ERROR), "{status}");
    world.hold_records = false;
    let (status, controllers) = report(&mut world, b);
    assert_eq!((status.rtype, controllers.len(), controllers[0].rcsts), (kind as u8, 2, 1), "undone");
    // An event request that waits keeps its place while Set Features of its queue waits, and the other way round.
    let request = world.ask_for_event(b.admin);
    world.hold_records = true;
    let set = send(&mut world, b.admin, persistence_entry(1, 0, 0), &[]);
    assert!(world.reply(b.admin, set).is_none());
    let keep = next_record(&mut world);
    assert_eq!(keep.record, None);
    world.handle(diecut_nvmf::Event::Kept(Kept::Reservation(keep.kept())));
    assert_eq!(world.reply(b.admin, set).expect("answered").status, Status::SUCCESS);
    assert!(world.reply(b.admin, request).is_none());
    // Who waits may go.
    assert_eq!(world.records_held.len(), 0);
    let set = send(&mut world, b.admin, persistence_entry(1, 0, 1), &[]);
    world.handle(diecut_nvmf::Event::Closed(b.io));
    world.handle(diecut_nvmf::Event::Closed(b.admin));
    let keep = next_record(&mut world);
    world.handle(diecut_nvmf::Event::Kept(Kept::Reservation(keep.kept())));
    assert!(world.reply(b.admin, set).is_none());
    assert_eq!(persistence(&mut world, a, 1, 0), (Status::SUCCESS, 1));
}

/// Goal: what outlived a power loss keeps out whom it kept out before, and nothing that is known is overwritten by it.
#[test]
fn what_outlived_a_power_loss_is_restored() {
    let mut world = World::new(39);
    let (a, b) = (host(&mut world, 1), host(&mut world, 2));
    register(&mut world, a, KEY_A);
    register(&mut world, b, KEY_B);
    set_persistence(&mut world, a, 1, 1);
    let kind = ReservationKind::ExclusiveAccessRegistrantsOnly;
    acquire(&mut world, a, KEY_A, kind);
    let (before, kept) = (report(&mut world, b), record(&world).unwrap());
    let mut world = World::new(40);
    let name = diecut_testing::target::name(SUBSYSTEM);
    diecut_nvmf::restore_reservation(&mut world.target, &name, 1, &kept);
    diecut_nvmf::restore_reservation(&mut world.target, &name, 2, &kept);
    let (b, c) = (host(&mut world, 2), host(&mut world, 3));
    let after = report(&mut world, b);
    assert_eq!((after.0, after.0.ptpls), (before.0, 1));
    let facts = |one: &RegisteredController| (one.hostid, one.rkey, one.rcsts);
    assert_eq!(after.1.iter().map(facts).collect::<Vec<_>>(), before.1.iter().map(facts).collect::<Vec<_>>());
    assert_eq!(after.1[0].cntlid.get(), 0xFFFF, "its host is not here yet");
    let page = vec![3; LBA];
    assert!(world.write(c.io, 0, &page, true).status.same_code(Status::RESERVATION_CONFLICT));
    assert_eq!(world.write(b.io, 0, &page, true).status, Status::SUCCESS, "it is registered");
    let command = ReservationCommand { action: UNREGISTER, ..NOTHING };
    let entry = entry(opcode::io::RESERVATION_REGISTER, command, 16);
    assert_eq!(world.command(b.io, entry, &keys(KEY_B, 0)).status, Status::SUCCESS);
    diecut_nvmf::restore_reservation(&mut world.target, &name, 1, &kept);
    assert_eq!(report(&mut world, b).1.len(), 1, "what is known is newer");
}
