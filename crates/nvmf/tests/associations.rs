//! Goal: the life of associations: who may connect, what ends them, and that nothing of one that is gone lands behind what its host
//! sends afterwards. Method: a target with a namespace in memory, whose commands are held back, and hosts that come, go and come again.

use crate::world;
use diecut_namespace::contract::{NamespaceCompletion, NamespaceError};
use diecut_nvme::admin::AsynchronousEvent;
use diecut_nvme::property::offset;
use diecut_nvme::tcp::{Digests, pdu_type};
use diecut_nvme::*;
use diecut_nvmf::*;
use diecut_units::{Span, Time};
use world::*;
use zerocopy::{FromBytes, IntoBytes};

const NONE: Digests = Digests::NONE;

#[test]
fn connect_is_refused_with_the_offset_of_what_is_wrong() {
    let mut world = World::new(1);
    let (_, controller) = world.admin(SUBSYSTEM, NONE);
    let invalid = Status::CONNECT_INVALID_PARAMETERS;
    // (subsystem, queue, controller, status, dword 0)
    let cases = [
        ("nqn.2026-11.example:nobody", 0, 0xFFFF, invalid, 0x1_0100),
        (SUBSYSTEM, 0, 5, invalid, 0x1_0010),
        (SUBSYSTEM, 1, controller + 1, invalid, 0x1_0010),
        (SUBSYSTEM, 65, controller, invalid, 42),
        (DISCOVERY_SUBSYSTEM_NQN, 1, controller, invalid, 42),
    ];
    for (nqn, queue, controller, status, dword) in cases {
        let id = world.open();
        world.initialize(id, NONE);
        let reply = world.connect(id, nqn, queue, controller).unwrap();
        assert!(reply.status.same_code(status), "{nqn} {queue}: {}", reply.status);
        assert_eq!(reply.result, dword, "{nqn} {queue}");
        // The connection may try again.
        let reply = world.connect(id, SUBSYSTEM, 3, controller);
        drop(reply);
    }
    // The same queue twice.
    let _first = world.io(controller, 1, NONE);
    let id = world.open();
    world.initialize(id, NONE);
    assert_eq!(world.connect(id, SUBSYSTEM, 1, controller).unwrap().result, 42);
    // A host without permission.
    let mut config = subsystem();
    config.allowed_hosts.clear();
    let mut actions = Vec::new();
    world.target.set_subsystem(config, world.now, &mut actions);
    world.act(actions);
    assert!(world.links[&_first].closed, "hosts that lost their permission are disconnected");
    let id = world.open();
    world.initialize(id, NONE);
    let reply = world.connect(id, SUBSYSTEM, 0, 0xFFFF).unwrap();
    assert!(reply.status.same_code(Status::CONNECT_INVALID_HOST));
    // A command before Connect.
    let reply = world.command(id, world.rw(2, 0, 1, SglDescriptor::transport(4096)), &[]);
    assert!(reply.status.same_code(Status::COMMAND_SEQUENCE_ERROR));
    // All of it was said.
    let at = HostAt { subsystem: Some(name(SUBSYSTEM)), host: Some(name(HOST)), controller_id: controller };
    assert_eq!(world.notices.first(), Some(&HostNotice::Came(at.clone())));
    assert!(world.notices.contains(&HostNotice::Went(at)));
    let is_refusal = |notice: &&HostNotice| {
        matches!(notice, HostNotice::Refused { host: Some(host), status, queue_id: 0, .. }
            if *host == name(HOST) && status.same_code(Status::CONNECT_INVALID_HOST))
    };
    assert_eq!(world.notices.iter().filter(is_refusal).count(), 1);
}

/// Goal: no write of an association that is gone lands after the same host's next Connect was answered.
/// Method: the old connection's write sits in the namespace (and another one's bytes are still on their way) when the streams
/// end; the host connects again. The answer must wait for the first, and the second must never be submitted.
#[test]
fn a_connect_waits_until_what_is_gone_is_quiet() {
    late_write(false);
    late_write(true);
}

/// `expired`: its host is silent for longer than it promised. Otherwise its streams end.
fn late_write(expired: bool) {
    let mut world = World::new(5);
    world.keep_alive_ms = if expired { 1000 } else { 0 };
    let (admin, controller) = world.admin(SUBSYSTEM, NONE);
    let io = world.io(controller, 1, NONE);
    world.hold = true;
    let first = write_of(&mut world, io, 50, 4, 0xAA);
    world.send(io, &first);
    assert_eq!(world.held.len(), 1);
    let late = write_of(&mut world, io, 51, 4, 0xBB);
    world.send(io, &late[..1000]);
    if expired {
        // The tick may come later than the Connect.
        world.now += Span::from_millis(1000);
    } else {
        world.handle(Event::Closed(io));
        world.handle(Event::Closed(admin));
    }
    let again = world.open();
    world.initialize(again, NONE);
    let (cid, bytes) = world.connect_bytes(again, SUBSYSTEM, 0, 0xFFFF);
    world.send(again, &bytes);
    assert!(world.reply(again, cid).is_none(), "the old write is still in the namespace");
    assert_eq!(world.links[&admin].closed, expired, "what expired is ended");
    // The rest of the late write comes now: it must not be taken.
    world.handle(Event::Received(io, diecut_units::Buffer::copy_from(&late[1000..])));
    assert_eq!(world.held.len(), 1, "nothing new of the old association");
    world.release_held();
    let reply = world.reply(again, cid).expect("quiet now");
    assert_eq!(reply.status, Status::SUCCESS);
    assert_ne!(reply.result, u64::from(controller), "controller ids go round");
    assert_eq!(world.memory[4 * LBA], 0xAA);
    world.enable(again);
    let io = world.io(reply.result as u16, 1, NONE);
    assert_eq!(world.write(io, 4, &vec![0xCC; LBA], true).status, Status::SUCCESS);
    assert_eq!(world.read(io, 4, 1).data, vec![0xCC; LBA]);
    assert_eq!(world.target.associations().len(), 1);
}

/// A write of one block in its capsule, as bytes.
fn write_of(world: &mut World, io: ConnectionId, command_id: u16, lba: u64, byte: u8) -> Vec<u8> {
    let mut write = world.rw(opcode::io::WRITE, lba, 1, SglDescriptor::in_capsule(LBA as u32));
    (write.flags, write.command_id) = (0x40, command_id.into());
    world.capsule(io, write, &vec![byte; LBA])
}

/// Goal: a host may have several live associations with a subsystem, as native multipath and `nvme connect -D` have.
/// Method: one host connects three times, with commands under way on the first. Each gets a controller of its own, and all
/// of them go on; the end of one does not end another.
#[test]
fn live_associations_of_one_host_stay() {
    let mut world = World::new(17);
    let (first, one) = world.admin(SUBSYSTEM, NONE);
    let first_io = world.io(one, 1, NONE);
    world.hold = true;
    let bytes = write_of(&mut world, first_io, 50, 4, 0xAA);
    world.send(first_io, &bytes);
    let (second, two) = world.admin(SUBSYSTEM, NONE);
    let (_, three) = world.admin(SUBSYSTEM, NONE);
    assert!(one != two && two != three && one != three, "ids {one}, {two}, {three}");
    assert_eq!(world.target.associations().len(), 3);
    assert!(!world.links[&first].closed && !world.links[&first_io].closed);
    let second_io = world.io(two, 1, NONE);
    assert!(world.reply(first_io, 50).is_none());
    world.release_held();
    assert_eq!(world.reply(first_io, 50).expect("a live association is answered").status, Status::SUCCESS);
    assert_eq!(world.read(second_io, 4, 1).data, vec![0xAA; LBA], "one path sees what another wrote");
    let list = admin_command(&mut world, second, 0x06, 0x13, 0, 4096).data;
    assert_eq!(u16::from_le_bytes([list[0], list[1]]), 3, "Identify CNS 13h names all controllers");
    world.handle(Event::Closed(second_io));
    world.handle(Event::Closed(second));
    assert_eq!(world.target.associations().len(), 2);
    assert_eq!(world.read(first_io, 4, 1).status, Status::SUCCESS);
}

/// Goal: what a lost path had begun does not land behind what its host sends over another one.
/// Method: a write over the first path sits in the namespace when that path ends. Meanwhile the host's other path takes nothing
/// for the namespace, neither on an old queue nor on a new one, and none into a window; its admin queue answers. Another host is
/// not concerned.
#[test]
fn other_paths_wait_for_a_lost_one() {
    let mut world = World::new(18);
    let (_, two) = world.admin(SUBSYSTEM, NONE);
    let other_path = world.io(two, 1, NONE);
    let host = std::mem::replace(&mut world.host_id, [8; 16]);
    let (_, stranger) = world.admin(SUBSYSTEM, NONE);
    let stranger = world.io(stranger, 1, NONE);
    world.host_id = host;
    let (admin, one) = world.admin(SUBSYSTEM, NONE);
    let lost = world.io(one, 1, NONE);
    world.hold = true;
    let bytes = write_of(&mut world, lost, 50, 4, 0xAA);
    world.send(lost, &bytes);
    world.handle(Event::Closed(lost));
    world.handle(Event::Closed(admin));
    assert_eq!(world.held.len(), 1);
    let again = write_of(&mut world, other_path, 60, 4, 0xBB);
    world.send(other_path, &again);
    let new_queue = world.io(two, 2, NONE);
    let further = write_of(&mut world, new_queue, 61, 4, 0xCC);
    world.send(new_queue, &further);
    assert_eq!(world.held.len(), 1, "the other path overtakes what the lost one had begun");
    assert!(world.target.receive_window(other_path).is_none());
    let of_stranger = write_of(&mut world, stranger, 62, 9, 0xDD);
    world.send(stranger, &of_stranger);
    assert_eq!(world.held.len(), 2, "another host does not wait");
    world.release_held();
    for (io, cid) in [(other_path, 60), (new_queue, 61), (stranger, 62)] {
        assert_eq!(world.reply(io, cid).expect("all go on").status, Status::SUCCESS);
    }
    assert_ne!(world.memory[4 * LBA], 0xAA, "what the lost path had begun landed last");
    assert_eq!(world.target.associations().len(), 2);
}

/// The canary of tests above and below: planted bugs must be noticed.
#[test]
fn planted_bugs_are_noticed() {
    diecut_testing::planted::all_are_noticed(&[
        ("nvmf: shutdown flushes no cache", a_shutdown_makes_caches_durable),
        ("nvmf: late write of an old association", || late_write(false)),
        ("nvmf: other paths overtake a lost one", other_paths_wait_for_a_lost_one),
        ("nvmf: ready falls too early", a_reset_waits_for_commands_in_namespaces),
    ]);
}

/// Hosts that differ in their host id do not disturb each other.
#[test]
fn other_hosts_stay() {
    let mut world = World::new(6);
    let (first, _) = world.admin(SUBSYSTEM, NONE);
    world.host_id = [8; 16];
    let (_second, _) = world.admin(SUBSYSTEM, NONE);
    assert!(!world.links[&first].closed);
    assert_eq!(world.target.associations().len(), 2);
}

/// After CC.EN 1 -> 0 the I/O queues are gone; RDY falls only when the last command came back; then all goes again.
#[test]
fn a_reset_waits_for_commands_in_namespaces() {
    let mut world = World::new(7);
    let (admin, controller) = world.admin(SUBSYSTEM, NONE);
    let io = world.io(controller, 1, NONE);
    world.hold = true;
    let mut write = world.rw(opcode::io::WRITE, 4, 1, SglDescriptor::in_capsule(LBA as u32));
    write.flags = 0x40;
    let bytes = world.capsule(io, write, &vec![0xAA; LBA]);
    world.send(io, &bytes);
    world.set_cc(admin, 0x0046_0060);
    assert!(world.links[&io].closed);
    assert_eq!(world.get_property(admin, offset::CSTS) & 1, 1, "a write is still in the namespace");
    world.release_held();
    assert_eq!(world.get_property(admin, offset::CSTS) & 1, 0);
    world.enable(admin);
    let io = world.io(controller, 1, NONE);
    assert_eq!(world.read(io, 4, 1).data[0], 0xAA);
    // Shutdown: SHST tells processing until the same holds.
    world.set_cc(admin, 0x0046_4061);
    assert!(world.links[&io].closed);
    assert_eq!(world.get_property(admin, offset::CSTS) >> 2 & 3, 2, "complete");
}

/// A target whose namespace has a volatile cache.
fn world_with_a_cache(seed: u64) -> World {
    let mut world = World::new(seed);
    let mut config = subsystem();
    config.namespaces.get_mut(&1).unwrap().properties.volatile_cache = true;
    let mut actions = Vec::new();
    world.target.set_subsystem(config, world.now, &mut actions);
    world.act(actions);
    world
}

/// What completed before a shutdown is durable when it is complete: namespaces with a volatile cache are flushed first, and a
/// flush that fails is a fatal status, not a success. Without such a cache nothing is asked.
#[test]
fn a_shutdown_makes_caches_durable() {
    for fails in [false, true] {
        let mut world = world_with_a_cache(11);
        let (admin, controller) = world.admin(SUBSYSTEM, NONE);
        let io = world.io(controller, 1, NONE);
        assert_eq!(world.write(io, 4, &vec![0xAA; LBA], true).status, Status::SUCCESS);
        world.hold = true;
        world.set_cc(admin, 0x0046_4060);
        let operations: Vec<_> = world.held.iter().map(|one| format!("{:?}", one.operation)).collect();
        assert_eq!(operations, ["Flush"]);
        assert_eq!(world.get_property(admin, offset::CSTS) >> 2 & 3, 1, "shutdown occurs");
        if fails {
            let token = world.held.pop().unwrap().token;
            let result = Err(NamespaceError::CapacityExceeded);
            world.handle(Event::Completed(NamespaceCompletion::without_data(token, result)));
        }
        world.release_held();
        let status = world.get_property(admin, offset::CSTS);
        assert_eq!((status >> 2 & 3, status >> 1 & 1 == 1), (2, fails), "complete, fatal if it failed");
    }
    // The host goes before the flush is back: its connection and association wait for that, and then are gone.
    let mut world = world_with_a_cache(12);
    let (admin, _) = world.admin(SUBSYSTEM, NONE);
    world.hold = true;
    world.set_cc(admin, 0x0046_4060);
    world.handle(Event::Closed(admin));
    assert_eq!(world.target.associations().len(), 1);
    world.release_held();
    assert_eq!(world.target.associations().len(), 0);
}

/// Silence beyond KATO ends the association; any command, also on an I/O queue, keeps it.
#[test]
fn silence_ends_an_association() {
    let mut world = World::new(8);
    world.keep_alive_ms = 5000;
    let (admin, controller) = world.admin(SUBSYSTEM, NONE);
    let io = world.io(controller, 1, NONE);
    for _ in 0..4 {
        world.now += Span::from_millis(4900);
        world.handle(Event::Tick);
        assert!(world.target.deadline() > world.now, "ticks do not spin");
        assert_eq!(world.read(io, 0, 1).status, Status::SUCCESS);
    }
    assert_eq!(world.target.associations().len(), 1);
    let last = world.now;
    for _ in 0..3 {
        if world.target.associations().is_empty() {
            break;
        }
        world.now = world.target.deadline();
        world.handle(Event::Tick);
    }
    assert_eq!(world.now, last + Span::from_millis(5000));
    assert!(world.links[&admin].closed && world.links[&io].closed);
    assert!(world.target.associations().is_empty());
    world.now += Span::from_secs(20);
    world.handle(Event::Tick);
    assert_eq!(world.target.deadline(), Time::NEVER, "nothing is left");
}

/// Goal: a host that sends the data of a large write slowly is not silent. Method: bytes that are received right into their place
/// come one part at a time, over several times the keep-alive, and nothing else does; then the host is silent.
#[test]
fn data_of_a_slow_write_are_traffic() {
    let queue = QueueLimits { h2c_data_bytes_max: 1 << 20, ..QueueLimits::default() };
    let mut world = World::with(9, TargetConfig { queue, ..TargetConfig::default() });
    world.keep_alive_ms = 1000;
    let (_, controller) = world.admin(SUBSYSTEM, NONE);
    let io = world.io(controller, 1, NONE);
    let data: Vec<u8> = (0..64 * LBA).map(|at| (at / 64) as u8).collect();
    let mut write = world.rw(opcode::io::WRITE, 8, 64, SglDescriptor::transport(data.len() as u32));
    (write.flags, write.command_id) = (0x40, 70.into());
    let bytes = world.capsule(io, write, &[]);
    world.send(io, &bytes);
    let request = world.links.get_mut(&io).unwrap().pdus.pop().expect("the data are asked for");
    let tag = u16::from_le_bytes([request.header[10], request.header[11]]);
    let header = tcp::DataToController::new(70, tag, 0, data.len() as u32, true, NONE);
    world.send(io, header.as_bytes());
    for part in data.chunks(data.len() / 8) {
        world.now += Span::from_millis(900);
        world.handle(Event::Tick);
        let window = world.target.receive_window(io).expect("the host is there, and its data are awaited");
        window[..part.len()].copy_from_slice(part);
        world.handle(Event::ReceivedInWindow(io, part.len()));
    }
    assert_eq!(world.reply(io, 70).expect("done").status, Status::SUCCESS);
    assert_eq!(world.memory[8 * LBA..72 * LBA], data);
    world.now += Span::from_millis(1100);
    world.handle(Event::Tick);
    assert!(world.links[&io].closed, "now it is silent");
}

/// A connection that never connects is hung up on.
#[test]
fn hosts_that_never_connect_are_hung_up_on() {
    let mut world = World::new(9);
    let (silent, half) = (world.open(), world.open());
    world.initialize(half, NONE);
    world.now = world.target.deadline();
    world.handle(Event::Tick);
    assert!(world.links[&silent].closed && world.links[&half].closed);
    world.now += Span::from_secs(20);
    world.handle(Event::Tick);
    assert_eq!(world.target.deadline(), Time::NEVER);
}

fn admin_command(
    world: &mut World,
    id: ConnectionId,
    code: u8,
    cdw10: u32,
    cdw11: u32,
    length: u32,
) -> Reply {
    let entry = SubmissionEntry {
        opcode: code,
        cdw10: cdw10.into(),
        cdw11: cdw11.into(),
        sgl: SglDescriptor::transport(length),
        ..SubmissionEntry::default()
    };
    world.command(id, entry, &[])
}

/// Namespaces that come, go or change are told once, until the host reads the list.
#[test]
fn changed_namespaces_are_told() {
    let mut world = World::new(10);
    let (admin, _) = world.admin(SUBSYSTEM, NONE);
    let change = |world: &mut World, size: u64| {
        let mut config = subsystem();
        config.namespaces.get_mut(&1).unwrap().properties.size_lbas = size;
        let two = config.namespaces[&1].clone();
        config.namespaces.insert(2, two);
        let mut actions = Vec::new();
        world.target.set_subsystem(config, world.now, &mut actions);
        world.act(actions);
    };
    let first = world.ask_for_event(admin);
    assert_eq!(admin_command(&mut world, admin, 0x09, 0x0B, 1 << 8, 0).status, Status::SUCCESS);
    assert!(world.reply(admin, first).is_none());
    change(&mut world, 100);
    let told = AsynchronousEvent::NAMESPACE_ATTRIBUTE_CHANGED.encode();
    assert_eq!(world.reply(admin, first).expect("told").result, u64::from(told));
    let second = world.ask_for_event(admin);
    change(&mut world, 120);
    assert!(world.reply(admin, second).is_none(), "masked until the list is read");
    let list = admin_command(&mut world, admin, 0x02, 0x03FF_0004, 0, 4096).data;
    assert_eq!(list[..12], [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    change(&mut world, 130);
    assert_eq!(world.reply(admin, second).expect("told again").result, u64::from(told));
    // Abort takes an event request back.
    let third = world.ask_for_event(admin);
    let abort = admin_command(&mut world, admin, 0x08, u32::from(third) << 16, 0, 0);
    assert_eq!((abort.status, abort.result), (Status::SUCCESS, 0));
    assert!(world.reply(admin, third).unwrap().status.same_code(Status::ABORT_REQUESTED));
    let abort = admin_command(&mut world, admin, 0x08, u32::from(third) << 16, 0, 0);
    assert_eq!(abort.result, 1, "nothing to abort");
    for _ in 0..4 {
        world.ask_for_event(admin);
    }
    let fifth = world.ask_for_event(admin);
    let reply = world.reply(admin, fifth).unwrap();
    assert!(reply.status.same_code(Status::ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED));
}

/// Goal: a host may use the command id of an event request that it took back in silence, as SPDK's hosts do before they shut a
/// controller down.
/// Method: with two requests parked, Property Get and the shutdown come with the id of the first. Both are served, the first is
/// never answered, the second one gets the next event; the id of a command that a namespace has stays refused.
#[test]
fn a_command_takes_over_the_id_of_an_event_request() {
    let mut world = World::new(19);
    let (admin, controller) = world.admin(SUBSYSTEM, NONE);
    assert_eq!(admin_command(&mut world, admin, 0x09, 0x0B, 1 << 8, 0).status, Status::SUCCESS);
    let dropped = world.ask_for_event(admin);
    let kept = world.ask_for_event(admin);
    let with_id = |world: &mut World, entry: SubmissionEntry| {
        let mut entry = entry;
        entry.command_id = dropped.into();
        let bytes = world.capsule(admin, entry, &[]);
        world.send(admin, &bytes);
        world.reply(admin, dropped).expect("answered")
    };
    let status = with_id(&mut world, fabrics::PropertyCommand::get(0, offset::CSTS, false).entry());
    assert_eq!((status.status, status.result & 1), (Status::SUCCESS, 1));
    let mut config = subsystem();
    config.namespaces.get_mut(&1).unwrap().properties.size_lbas = 100;
    let mut actions = Vec::new();
    world.target.set_subsystem(config, world.now, &mut actions);
    world.act(actions);
    assert_eq!(world.reply(admin, kept).expect("the other request is told").status, Status::SUCCESS);
    assert!(world.reply(admin, dropped).is_none());
    // Four can wait again.
    let parked: Vec<u16> = (0..4).map(|_| world.ask_for_event(admin)).collect();
    assert!(parked.iter().all(|&cid| world.reply(admin, cid).is_none()));
    let io = world.io(controller, 1, NONE);
    world.hold = true;
    let write = write_of(&mut world, io, 50, 4, 0xAA);
    world.send(io, &write);
    let again = write_of(&mut world, io, 50, 5, 0xBB);
    world.send(io, &again);
    assert!(world.reply(io, 50).expect("refused").status.same_code(Status::COMMAND_ID_CONFLICT));
    world.release_held();
    let shut_down = fabrics::PropertyCommand::set(0, offset::CC, 0x0046_4061).entry();
    assert_eq!(with_id(&mut world, shut_down).status, Status::SUCCESS);
    assert_eq!(world.get_property(admin, offset::CSTS) >> 2 & 3, 2, "shutdown complete");
}

/// Goal: a host without a name reaches what every host may use, and nothing else.
/// Method: Connects with an empty HOSTNQN to discovery, to a subsystem that allows any host, and to one that does not; the last
/// is refused by the name of the field.
#[test]
fn a_host_without_a_name_is_any_host() {
    let mut world = World::new(20);
    world.nameless = true;
    let id = world.open();
    world.initialize(id, NONE);
    let reply = world.connect(id, SUBSYSTEM, 0, 0xFFFF).expect("answered");
    assert!(reply.status.same_code(Status::CONNECT_INVALID_HOST), "{}", reply.status);
    assert_eq!(reply.result, 1 << 16 | 512, "HOSTNQN");
    let open = SubsystemConfig { allow_any_host: true, allowed_hosts: Default::default(), ..subsystem() };
    let mut actions = Vec::new();
    world.target.set_subsystem(open, world.now, &mut actions);
    world.act(actions);
    let (_, controller) = world.admin(SUBSYSTEM, NONE);
    let io = world.io(controller, 1, NONE);
    assert_eq!(world.write(io, 4, &vec![0xCC; LBA], true).status, Status::SUCCESS);
    assert_eq!(world.target.associations()[0].host, "");
    let (discovery, _) = world.admin(DISCOVERY_SUBSYSTEM_NQN, NONE);
    let page = admin_command(&mut world, discovery, 0x02, (1024 / 4 - 1) << 16 | 0x70, 0, 1024).data;
    let (header, _) = DiscoveryHeader::read_from_prefix(&page).unwrap();
    assert_eq!(header.record_count.get(), 2, "discovery itself, and what any host may use");
    // A queue of another name is not this host's.
    world.nameless = false;
    let id = world.open();
    world.initialize(id, NONE);
    let reply = world.connect(id, SUBSYSTEM, 2, controller).expect("answered");
    assert!(reply.status.same_code(Status::CONNECT_INVALID_PARAMETERS));
}

/// Goal: a host can dial what discovery tells. Method: a target on all addresses of the machine is asked over a connection that
/// came to one of them; every entry names that one, with a port of its own for each address that is listened on.
#[test]
fn discovery_tells_the_address_that_the_connection_came_to() {
    let advertised = vec!["0.0.0.0:4420".parse().unwrap(), "[::]:4421".parse().unwrap()];
    let mut world = World::with(21, TargetConfig { advertised, ..TargetConfig::default() });
    world.local = Some("198.51.100.7:4421".parse().unwrap());
    let (admin, _) = world.admin(DISCOVERY_SUBSYSTEM_NQN, NONE);
    let page = admin_command(&mut world, admin, 0x02, (5120 / 4 - 1) << 16 | 0x70, 0, 5120).data;
    let (header, rest) = DiscoveryHeader::read_from_prefix(&page).unwrap();
    let text =
        |field: &[u8]| String::from_utf8(field.to_vec()).unwrap().trim_end_matches([' ', '\0']).to_owned();
    let entries = rest.chunks_exact(DISCOVERY_ENTRY_SIZE_BYTES).take(header.record_count.get() as usize);
    let told: Vec<String> = entries
        .map(|bytes| {
            let entry = DiscoveryEntry::read_from_bytes(bytes).unwrap();
            let name = QualifiedName::decode(&entry.subnqn).unwrap();
            format!("{name} {} {}", text(&entry.transport_address), text(&entry.transport_service))
        })
        .collect();
    let expected = [4420, 4421]
        .map(|port| [DISCOVERY_SUBSYSTEM_NQN, SUBSYSTEM].map(|name| format!("{name} 198.51.100.7 {port}")));
    assert_eq!(told, expected.concat());
}

/// Discovery shows each host what it may use, and tells persistent controllers of changes.
#[test]
fn discovery_shows_what_a_host_may_use() {
    let mut world = World::new(11);
    let (admin, _) = world.admin(DISCOVERY_SUBSYSTEM_NQN, NONE);
    let read = |world: &mut World| {
        let page = admin_command(world, admin, 0x02, (3072 / 4 - 1) << 16 | 0x70, 0, 3072).data;
        let (header, rest) = DiscoveryHeader::read_from_prefix(&page).unwrap();
        let count = header.record_count.get() as usize;
        let names: Vec<String> = rest
            .chunks_exact(DISCOVERY_ENTRY_SIZE_BYTES)
            .take(count)
            .map(|bytes| {
                let entry = DiscoveryEntry::read_from_bytes(bytes).unwrap();
                assert_eq!(&entry.transport_address[..10], b"192.0.2.1 ");
                QualifiedName::decode(&entry.subnqn).unwrap().to_string()
            })
            .collect();
        (header.generation.get(), names)
    };
    let (generation, names) = read(&mut world);
    assert_eq!(names, [DISCOVERY_SUBSYSTEM_NQN, SUBSYSTEM]);
    assert_eq!(admin_command(&mut world, admin, 0x09, 0x0B, 1 << 31, 0).status, Status::SUCCESS);
    let event = world.ask_for_event(admin);
    let mut actions = Vec::new();
    world.target.remove_subsystem(&name(SUBSYSTEM), world.now, &mut actions);
    world.act(actions);
    let told = AsynchronousEvent::DISCOVERY_LOG_CHANGED.encode();
    assert_eq!(world.reply(admin, event).expect("told").result, u64::from(told));
    let (later, names) = read(&mut world);
    assert!(later > generation);
    assert_eq!(names, [DISCOVERY_SUBSYSTEM_NQN]);
    // I/O commands have no place here.
    assert!(admin_command(&mut world, admin, 0x06, 0, 0, 4096).status.same_code(Status::INVALID_FIELD));
}

/// A connection that belongs elsewhere goes there with every byte, and is served as if it had always been there.
#[test]
fn connections_are_handed_over() {
    for cut in [0, 1] {
        let mut world = World::new(12);
        let mut config = subsystem();
        config.home = Home::Elsewhere(3);
        let mut actions = Vec::new();
        world.target.set_subsystem(config, world.now, &mut actions);
        let id = world.open();
        let digests = Digests { header: true, data: true };
        world.initialize(id, digests);
        world.cut = cut;
        let (cid, mut bytes) = world.connect_bytes(id, SUBSYSTEM, 0, 0xFFFF);
        let get = fabrics::PropertyCommand::get(900, offset::VS, false);
        let more = world.capsule(id, get.entry(), &[]);
        if cut == 0 {
            bytes.extend(&more); // unread when the connection goes
        }
        world.send(id, &bytes);
        let (moved_id, shard, moved) = world.moved.pop().expect("moved");
        assert_eq!((moved_id, shard), (id, 3));
        assert!(world.target.outbox(id).is_none(), "nothing stays behind");
        let mut home = World::new(13);
        let link = world.links.remove(&id).unwrap();
        home.links.insert(id, link);
        home.handle(Event::Adopted(id, moved));
        if cut != 0 {
            home.send(id, &more);
        }
        assert_eq!(home.reply(id, cid).unwrap().status, Status::SUCCESS);
        assert_eq!(home.reply(id, 900).unwrap().result, 0x0002_0000);
    }
}

/// A removed subsystem is quiet only when its last command came back.
#[test]
fn a_removed_subsystem_becomes_quiet() {
    let mut world = World::new(14);
    let (admin, controller) = world.admin(SUBSYSTEM, NONE);
    let io = world.io(controller, 1, NONE);
    world.hold = true;
    let mut read = world.rw(opcode::io::READ, 4, 1, SglDescriptor::transport(LBA as u32));
    read.flags = 0x40;
    let bytes = world.capsule(io, read, &[]);
    world.send(io, &bytes);
    let mut actions = Vec::new();
    world.target.remove_subsystem(&name(SUBSYSTEM), world.now, &mut actions);
    world.act(actions);
    assert!(world.links[&admin].closed && world.links[&io].closed);
    assert!(!world.target.is_quiet(&name(SUBSYSTEM)));
    world.release_held();
    assert!(world.target.is_quiet(&name(SUBSYSTEM)));
    assert!(world.links[&io].pdus.iter().all(|pdu| pdu.kind != pdu_type::C2H_DATA));
}

/// Features that hosts set and read, with data in the capsule.
#[test]
fn features_are_kept() {
    let mut world = World::new(15);
    let (admin, _) = world.admin(SUBSYSTEM, NONE);
    let set = |world: &mut World, feature: u32, data: &[u8]| {
        let entry = SubmissionEntry {
            opcode: opcode::admin::SET_FEATURES,
            cdw10: feature.into(),
            cdw11: 1.into(),
            sgl: SglDescriptor::in_capsule(data.len() as u32),
            ..SubmissionEntry::default()
        };
        world.command(admin, entry, data).status
    };
    assert_eq!(set(&mut world, 0x0E, &[0x10, 0x27, 0, 0, 0, 0, 0, 0]), Status::SUCCESS);
    world.now += Span::from_millis(7);
    let timestamp = admin_command(&mut world, admin, 0x0A, 0x0E, 0, 8).data;
    assert_eq!(timestamp, [0x17, 0x27, 0, 0, 0, 0, 2, 0], "10000 ms when set, 7 ms ago, by a host");
    assert_eq!(set(&mut world, 0x81, &[9; 16]), Status::SUCCESS, "the id of Connect");
    assert!(set(&mut world, 0x81, &[1; 16]).same_code(Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(admin_command(&mut world, admin, 0x0A, 0x81, 1, 16).data, [9; 16]);
    assert_eq!(admin_command(&mut world, admin, 0x09, 0x0F, 7000, 0).status, Status::SUCCESS);
    assert_eq!(admin_command(&mut world, admin, 0x0A, 0x0F, 0, 0).result, 7000);
    assert!(world.target.deadline() <= world.now + Span::from_millis(7000));
    // A write cache that is not there is not a feature.
    assert!(admin_command(&mut world, admin, 0x09, 0x06, 1, 0).status.same_code(Status::INVALID_FIELD));
    assert!(
        admin_command(&mut world, admin, 0x09, 1 << 31 | 7, 0, 0)
            .status
            .same_code(Status::FEATURE_NOT_SAVEABLE)
    );
    assert!(admin_command(&mut world, admin, 0x09, 0x77, 0, 0).status.same_code(Status::INVALID_FIELD));
    assert_eq!(admin_command(&mut world, admin, 0x18, 0, 0, 0).status, Status::SUCCESS);
}

/// A host that closes its I/O queues first and its admin queue last (a Linux reset does) leaves nothing behind, so its
/// next Connect is answered at once.
#[test]
fn a_host_that_left_in_order_comes_back() {
    for reset in [false, true] {
        let mut world = World::new(16);
        let (admin, controller) = world.admin(SUBSYSTEM, NONE);
        let io = world.io(controller, 1, NONE);
        world.handle(Event::Closed(io));
        if reset {
            world.set_cc(admin, 0x0046_0060);
        }
        world.handle(Event::Closed(admin));
        assert!(world.target.associations().is_empty(), "reset {reset}");
        world.admin(SUBSYSTEM, NONE);
        let mut actions = Vec::new();
        world.target.remove_subsystem(&name(SUBSYSTEM), world.now, &mut actions);
        world.act(actions);
        assert!(world.target.is_quiet(&name(SUBSYSTEM)));
    }
}

/// Goal: nobody works for a command that no host waits for. Method: commands are held back; one is aborted, then the controller is
/// reset, or its connection goes.
#[test]
fn what_no_host_waits_for_is_given_up() {
    for reset in [true, false] {
        let mut world = World::new(11);
        let (admin, controller) = world.admin(SUBSYSTEM, NONE);
        let io = world.io(controller, 1, NONE);
        world.hold = true;
        let ids = [50, 51, 52];
        for id in ids {
            let bytes = write_of(&mut world, io, id, 4, 0xAA);
            world.send(io, &bytes);
        }
        assert_eq!(world.held.len(), 3);
        let (source, tokens) = (world.held[0].source, world.held.iter().map(|held| held.token));
        let second = tokens.collect::<Vec<_>>()[1];
        let abort = admin_command(&mut world, admin, 0x08, u32::from(ids[1]) << 16 | 1, 0, 0);
        assert_eq!(abort.result, 1, "it is not aborted yet");
        assert_eq!(world.given_up, [(source, Some(second))]);
        let aborted = world.held.remove(1);
        let result = Err(NamespaceError::Aborted);
        world.handle(Event::Completed(NamespaceCompletion::without_data(aborted.token, result)));
        assert!(world.reply(io, ids[1]).unwrap().status.same_code(Status::ABORT_REQUESTED));
        if reset {
            world.set_cc(admin, 0);
        } else {
            world.handle(Event::Closed(io));
        }
        assert_eq!(world.given_up[1..], [(source, None)]);
    }
}

/// Goal: a size of a property that is reserved is an invalid field, and what a host changes of CC while its controller is enabled, but
/// may not, stays as it was.
#[test]
fn reserved_sizes_are_refused_and_an_enabled_controller_keeps_its_configuration() {
    let mut world = World::new(17);
    let (admin, controller) = world.admin(SUBSYSTEM, NONE);
    for size in 2..8 {
        for mut property in [
            fabrics::PropertyCommand::get(0, offset::CSTS, false),
            fabrics::PropertyCommand::set(0, offset::CC, 0x0046_0061),
        ] {
            property.size = size;
            let reply = world.command(admin, property.entry(), &[]);
            assert_eq!(reply.status, Status::INVALID_FIELD.do_not_retry(), "size {size}");
        }
    }
    let before = world.get_property(admin, offset::CC);
    assert_eq!(before & 1, 1);
    // CSS, MPS, AMS, IOSQES, IOCQES.
    for field in [0x70, 0x780, 0x3800, 0xf_0000, 0xf0_0000] {
        world.set_cc(admin, before as u32 ^ field);
        assert_eq!(world.get_property(admin, offset::CC), before, "{field:#x}");
        assert_eq!(world.get_property(admin, offset::CSTS), 1, "ready, not fatal");
    }
    world.io(controller, 1, NONE);
    // With EN at 0 they may change, and are refused where they cannot be.
    world.set_cc(admin, before as u32 & !1);
    let entry = fabrics::PropertyCommand::set(0, offset::CC, before as u32 ^ 0x780).entry();
    assert_eq!(world.command(admin, entry, &[]).status, Status::INVALID_FIELD.do_not_retry());
}
