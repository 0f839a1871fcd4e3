//! Goal: what a target holds stays within its budget, others get their part, and all is given back. Method: hosts that take what they can:
//! that read nothing, send halves, open connections, beside hosts at work; the budget is counted after each step.

use crate::world;
use diecut_namespace::contract::{NamespaceCommand, NamespaceOperation};
use diecut_nvme::opcode::io as opcode;
use diecut_nvme::tcp::{Digests, ReadyToTransfer};
use diecut_nvme::{DISCOVERY_SUBSYSTEM_NQN, SglDescriptor, Status};
use diecut_nvmf::*;
use diecut_units::{Span, Time};
use world::greedy::*;
use world::*;
use zerocopy::FromBytes;

const NONE: Digests = Digests::NONE;
const OTHER: &str = "nqn.2026-11.example:tenant-b";
const LIMIT_BYTES: usize = 16 << 20;

/// A target with little memory and two subsystems that any host may use.
fn memory(limit_bytes: usize) -> MemoryLimits {
    MemoryLimits { limit_bytes, ..MemoryLimits::default() }
}

/// Of a target that asks for data in large parts.
fn large_parts() -> TargetConfig {
    let queue = QueueLimits { h2c_data_bytes_max: 1 << 20, ..QueueLimits::default() };
    TargetConfig { queue, ..TargetConfig::default() }
}

fn small_world(seed: u64, config: TargetConfig) -> World {
    let mut world = World::with(seed, TargetConfig { memory: memory(LIMIT_BYTES), ..config });
    let open = SubsystemConfig { allow_any_host: true, ..subsystem() };
    let mut actions = Vec::new();
    world.target.set_subsystem(open.clone(), world.now, &mut actions);
    world.target.set_subsystem(SubsystemConfig { nqn: name(OTHER), ..open }, world.now, &mut actions);
    world
}

fn hang_up_all(world: &mut World) {
    let ids: Vec<ConnectionId> = world.links.keys().copied().collect();
    ids.into_iter().for_each(|id| world.handle(Event::Closed(id)));
}

/// Goal: hosts that read nothing hold no more than the budget, a host of another subsystem is served as if they were not there, and
/// what they held is given back: when others wait for it, the target hangs up on them by itself. Method: see the names.
#[test]
fn hosts_that_read_nothing_hold_a_part_only() {
    let mut world = small_world(1, TargetConfig::default());
    let greedy = greedy(&mut world, SUBSYSTEM, LIMIT_BYTES);
    assert!(greedy.len() > 10, "{} hosts", greedy.len());
    world.target.check_budget();
    let figures = world.target.memory();
    assert!(figures.waiting > 0 && figures.used_bytes <= LIMIT_BYTES, "{figures:?}");

    let good = host(&mut world, OTHER, 100).expect("a part of the memory is kept for each subsystem");
    for round in 0..20 {
        let data = vec![round; 64 * LBA];
        assert_eq!(world.write(good, 0, &data, false).status, Status::SUCCESS);
        assert_eq!(world.read(good, 0, 64).data, data);
        assert_eq!(world.write(good, 70, &data[..LBA], true).status, Status::SUCCESS);
    }

    for _ in 0..3 {
        world.now += Span::from_secs(31);
        world.handle(Event::Tick);
    }
    assert!(greedy.iter().any(|id| world.links[id].closed), "somebody waits for what they hold");
    assert!(!world.links[&good].closed);
    // An operator is told of both: that memory is short, once a minute, and who was hung up on.
    let short = world.notices.iter().filter(|notice| **notice == HostNotice::WaitsForMemory).count();
    assert!((1..=2).contains(&short), "told {short} times");
    assert!(
        world.notices.iter().any(|notice| matches!(notice, HostNotice::Stalled(at) if at.host.is_some()))
    );

    hang_up_all(&mut world);
    let figures = world.target.memory();
    assert_eq!((figures.held_bytes, figures.waiting), (0, 0), "{figures:?}");
    for _ in 0..30 {
        world.target.shrink(1000);
    }
    assert_eq!(world.target.memory().used_bytes, 0, "{:?}", world.target.memory());
}

/// Goal: hosts that let themselves be asked for data and never send them hold a part only, and others' writes go on. Method: as
/// above, with writes.
#[test]
fn hosts_that_never_send_their_data_hold_a_part_only() {
    let mut world = small_world(2, large_parts());
    let silent: Vec<ConnectionId> = (1..9).filter_map(|number| host(&mut world, SUBSYSTEM, number)).collect();
    for &id in &silent {
        for _ in 0..30 {
            let mut entry = world.rw(opcode::WRITE, 0, 128, SglDescriptor::transport(128 * LBA as u32));
            entry.flags |= 0x40;
            entry.command_id = world.next_id(id).into();
            let bytes = world.capsule(id, entry, &[]);
            world.send(id, &bytes);
        }
        assert!(world.target.memory().used_bytes <= LIMIT_BYTES, "{:?}", world.target.memory());
    }
    let good = host(&mut world, OTHER, 100).expect("a part of the memory is kept for each subsystem");
    let data = vec![7; 128 * LBA];
    assert_eq!(world.write(good, 0, &data, false).status, Status::SUCCESS);
    hang_up_all(&mut world);
    assert_eq!(world.target.memory().held_bytes, 0);
}

/// Goal: a write whose data are in its capsule waits in its stream when there is no room for them, and nothing is lost. Method: the
/// budget is full, and the namespace keeps what it has: the reserve carries a few writes, the rest waits; then all are done.
#[test]
fn a_stream_waits_when_there_is_no_room_for_its_data() {
    let mut world = small_world(3, TargetConfig::default());
    let writer = host(&mut world, SUBSYSTEM, 200).unwrap();
    greedy(&mut world, SUBSYSTEM, LIMIT_BYTES);
    world.hold = true;
    let ids: Vec<u16> = (0..24).map(|number| send_write(&mut world, writer, number, 2)).collect();
    world.target.check_budget();
    assert!(world.links[&writer].paused, "{:?}", world.target.memory());
    assert!((8..24).contains(&world.held.len()), "{} writes are under way", world.held.len());
    world.release_held();
    for (number, id) in (0..24u8).zip(ids) {
        assert_eq!(
            world.reply(writer, id).map(|reply| reply.status),
            Some(Status::SUCCESS),
            "write {number}"
        );
        assert_eq!(world.memory[usize::from(number) * 2 * LBA], number + 1);
    }
    assert!(!world.links[&writer].paused);
    hang_up_all(&mut world);
    assert_eq!(world.target.memory().held_bytes, 0);
}

/// Goal: data that the target has asked for, and has memory for, are read while their queue waits for more memory: what they hold is
/// given back only when they are there. Method: the budget is full, a queue has one write that was asked for its data and more that
/// wait; the data come.
#[test]
fn data_that_were_asked_for_are_read_while_their_queue_waits() {
    let mut world = small_world(6, large_parts());
    let writer = host(&mut world, SUBSYSTEM, 200).unwrap();
    greedy(&mut world, SUBSYSTEM, LIMIT_BYTES);
    let ids: Vec<u16> = (0..6)
        .map(|number| {
            let sgl = SglDescriptor::transport(12 * LBA as u32);
            let mut entry = world.rw(opcode::WRITE, number * 12, 12, sgl);
            entry.flags |= 0x40;
            let id = world.next_id(writer);
            entry.command_id = id.into();
            let bytes = world.capsule(writer, entry, &[]);
            world.send(writer, &bytes);
            id
        })
        .collect();
    let asked = world.links[&writer].pdus.len();
    assert!((1..6).contains(&asked), "{asked} writes were asked for their data");
    world.target.check_budget();
    world.serve_transfers(writer, &vec![9; 12 * LBA]);
    for (number, id) in (0..).zip(ids) {
        let status = world.reply(writer, id).map(|reply| reply.status);
        assert_eq!(status, Some(Status::SUCCESS), "write {number}, {:?}", world.target.memory());
    }
    assert!(world.memory[..6 * 12 * LBA].iter().all(|byte| *byte == 9));
    hang_up_all(&mut world);
    assert_eq!(world.target.memory().held_bytes, 0);
}

/// Goal: when memory is short, a host is hung up on that does nothing with what it holds, not one that is only slow. Method: the budget
/// is full, and others wait. One queue was asked for the data of a write, and sends them a little at a time, over many of the
/// spans after which a silent one goes; another queue was asked, too, and sends nothing.
#[test]
fn a_slow_host_is_not_hung_up_on_for_want_of_memory() {
    let mut world = small_world(7, large_parts());
    let mut begin_write = |number| {
        let id = host(&mut world, SUBSYSTEM, number).unwrap();
        let mut entry = world.rw(opcode::WRITE, 0, 64, SglDescriptor::transport(64 * LBA as u32));
        entry.flags |= 0x40;
        let command_id = world.next_id(id);
        entry.command_id = command_id.into();
        let bytes = world.capsule(id, entry, &[]);
        world.send(id, &bytes);
        assert_eq!(world.links[&id].pdus.len(), 1, "it is asked for its data");
        (id, command_id)
    };
    let ((slow, command_id), (silent, _)) = (begin_write(200), begin_write(201));
    greedy(&mut world, SUBSYSTEM, LIMIT_BYTES);
    assert!(world.target.memory().waiting > 0, "{:?}", world.target.memory());
    let request = ReadyToTransfer::read_from_bytes(&world.links[&slow].pdus[0].header).unwrap();
    world.links.get_mut(&slow).unwrap().pdus.clear();
    for part in 0..8 {
        world.send_data(
            slow,
            command_id,
            request.transfer_tag.get(),
            part * 8 * LBA,
            &[7; 8 * LBA],
            part == 7,
        );
        world.now += Span::from_secs(31);
        world.handle(Event::Tick);
        assert!(!world.links[&slow].closed, "after {} of 8 parts", part + 1);
    }
    assert_eq!(world.reply(slow, command_id).map(|reply| reply.status), Some(Status::SUCCESS));
    assert!(world.links[&silent].closed, "{:?}", world.target.memory());
}

/// Goal: a host that is refused for want of memory leaves nothing behind. Method: while others hold what there is, hosts of many names
/// ask for a controller; whoever is kept in the budget is there.
#[test]
fn refused_hosts_leave_nothing_behind() {
    let mut world = small_world(6, TargetConfig::default());
    greedy(&mut world, SUBSYSTEM, LIMIT_BYTES);
    let mut refused = 0;
    for number in 100..140u8 {
        (world.host_id, world.host) = ([number; 16], format!("{HOST}-{number}"));
        refused += u32::from(queue(&mut world, SUBSYSTEM, 0, 0xFFFF).is_none());
        world.target.check_budget();
    }
    assert!(refused > 20, "{refused} are refused");
    hang_up_all(&mut world);
    world.target.check_budget();
    assert_eq!(world.target.memory().held_bytes, 0);
}

/// Goal: a connection that waits for memory keeps its turn while it has to wait for a lost path of its host, too. Method: a write whose
/// data are in its capsule finds no room. Then another path of its host goes with a command in the namespace, and all that others
/// held is given back while nothing of the host may go on. When what is lost is answered, everything is done, and what it gives back
/// may be nothing.
#[test]
fn a_turn_for_memory_is_kept_while_a_lost_path_is_waited_for() {
    for has_data in [true, false] {
        wait_for_a_lost_path(has_data);
    }
}

fn wait_for_a_lost_path(has_data: bool) {
    let mut world = small_world(5, TargetConfig::default());
    let writer = host(&mut world, SUBSYSTEM, 200).unwrap();
    let lost = host(&mut world, SUBSYSTEM, 200).unwrap();
    let others = greedy(&mut world, SUBSYSTEM, LIMIT_BYTES);
    world.hold = true;
    if has_data {
        send_write(&mut world, lost, 100, 1);
    } else {
        let mut entry = world.rw(opcode::FLUSH, 0, 1, SglDescriptor::transport(0));
        entry.flags |= 0x40;
        entry.command_id = world.next_id(lost).into();
        let bytes = world.capsule(lost, entry, &[]);
        world.send(lost, &bytes);
    }
    let ids: Vec<u16> = (0..24).map(|number| send_write(&mut world, writer, number, 2)).collect();
    assert!(world.links[&writer].paused, "{:?}", world.target.memory());
    // Some of what the others have is begun when the first of them go; they only read, and their reads are done.
    let writes = |world: &World| {
        let is_write =
            |command: &&NamespaceCommand| matches!(command.operation, NamespaceOperation::Write { .. });
        world.held.iter().filter(is_write).count()
    };
    let begun = writes(&world);
    assert!(begun < 24, "{begun} writes are begun");
    world.handle(Event::Closed(lost));
    others.into_iter().for_each(|id| world.handle(Event::Closed(id)));
    let is_read =
        |command: &mut NamespaceCommand| matches!(command.operation, NamespaceOperation::Read { .. });
    let reads: Vec<NamespaceCommand> = world.held.extract_if(.., is_read).collect();
    reads.into_iter().for_each(|command| world.execute(command));
    assert_eq!(writes(&world), begun, "nothing overtakes the lost path");
    assert_eq!(world.target.memory().waiting, 1, "its turn is still to come: {:?}", world.target.memory());
    world.release_held();
    for (number, id) in (0..24u8).zip(ids) {
        let status = world.reply(writer, id).map(|reply| reply.status);
        assert_eq!(status, Some(Status::SUCCESS), "write {number}: {:?}", world.target.memory());
    }
    world.target.check_budget();
    hang_up_all(&mut world);
    assert_eq!(world.target.memory().held_bytes, 0);
}

/// Goal: discovery controllers, which anybody may have, take nobody else's place, and go when their host is silent or never enables
/// them. Method: a flood with keep-alive off, of one host and of many.
#[test]
fn discovery_has_places_of_its_own() {
    let mut world = World::with(4, TargetConfig::default());
    let discover = |world: &mut World| {
        let id = world.open();
        world.initialize(id, NONE);
        (id, world.connect(id, DISCOVERY_SUBSYSTEM_NQN, 0, 0xFFFF).expect("answered").status)
    };
    let flood = |world: &mut World| (0..100).filter(|_| discover(world).1 == Status::SUCCESS).count();
    assert_eq!(flood(&mut world), 64, "of one host");
    for number in 0..11 {
        world.host = format!("{HOST}-{number}");
        flood(&mut world);
    }
    assert_eq!(world.target.associations().len(), 256, "of all hosts");
    // Whoever was silent for longest makes room for one more.
    world.now += Span::from_secs(1);
    world.host = format!("{HOST}-new");
    let open = world.links.values().filter(|link| !link.closed).count();
    let (id, status) = discover(&mut world);
    assert_eq!(status, Status::SUCCESS);
    assert!(!world.links[&id].closed);
    assert_eq!(world.target.associations().len(), 256, "of all hosts");
    assert_eq!(world.links.values().filter(|link| !link.closed).count(), open);
    world.host = HOST.to_owned();
    let (admin, _) = world.admin(SUBSYSTEM, NONE);
    world.keep_alive_ms = 0;

    // Those that were never enabled go first.
    world.now += Span::from_secs(31);
    world.handle(Event::Tick);
    assert_eq!(world.target.associations().len(), 1);
    assert!(!world.links[&admin].closed);
    let (id, status) = discover(&mut world);
    assert_eq!(status, Status::SUCCESS);
    world.enable(id);
    world.now += Span::from_secs(119);
    world.handle(Event::Tick);
    assert!(!world.links[&id].closed);
    world.now += Span::from_secs(2);
    world.handle(Event::Tick);
    assert!(world.links[&id].closed, "two minutes of silence end it");
}

/// Goal: hosts of one subsystem cannot take all controllers. Method: a table of eight, and hosts that come until they are refused.
#[test]
fn subsystems_have_places_that_are_kept_for_them() {
    let controllers =
        ControllerLimits { associations_max: 8, associations_per_host_max: 3, ..ControllerLimits::default() };
    let config = TargetConfig { controllers, ..TargetConfig::default() };
    let mut world = small_world(5, config);
    let admins = |world: &mut World, nqn: &str| {
        let mut count = 0;
        for number in 0..40u8 {
            world.host_id = [number; 16];
            count += usize::from(queue(world, nqn, 0, 0xFFFF).is_some());
        }
        count
    };
    assert_eq!(admins(&mut world, SUBSYSTEM), 3, "of one host");
    for number in 0..4 {
        world.host = format!("{HOST}-{number}");
        admins(&mut world, SUBSYSTEM);
    }
    assert_eq!(world.target.associations().len(), 6);
    assert_eq!(admins(&mut world, OTHER), 2);
    hang_up_all(&mut world);
    assert_eq!(world.target.memory().held_bytes, 0);
    world.now += Span::from_secs(100);
    world.handle(Event::Tick);
    assert_eq!(world.target.deadline(), Time::NEVER);
}

/// Goal: connections that say nothing keep nobody out, in a server with two subsystems whose hosts have Connected and stay; and their
/// time is short while they are many. Method: silent ones until some are closed, twice as many in all; then a host comes up, in the
/// memory that one of them gave up.
#[test]
fn silent_connections_make_room_for_new_ones() {
    let mut world = small_world(6, TargetConfig::default());
    let before = host(&mut world, SUBSYSTEM, 1).expect("there is room");
    let most = TargetConfig { memory: memory(LIMIT_BYTES), ..TargetConfig::default() }.newcomers_max();
    let silent: Vec<ConnectionId> = (0..4 * most).map(|_| world.open()).collect();
    let closed = silent.iter().filter(|id| world.links[id].closed).count();
    assert!(closed > 0 && closed < silent.len(), "{closed} of {}", silent.len());
    assert!(silent[..closed].iter().all(|id| world.links[id].closed), "the oldest go");
    assert!(world.notices.contains(&HostNotice::MadeRoom));
    world.target.check_budget();
    let after = host(&mut world, OTHER, 2).expect("a new host comes in");
    for id in [before, after] {
        let data = vec![7; 64 * LBA];
        assert_eq!(world.write(id, 0, &data, false).status, Status::SUCCESS);
    }
    // Most of them came while there were many.
    world.now += Span::from_secs(3);
    world.handle(Event::Tick);
    let left = silent.iter().filter(|id| !world.links[id].closed).count();
    assert!(left * 2 <= most + 2, "{left} of {most} are left after three seconds");
    assert!([before, after].iter().all(|id| !world.links[id].closed));
    world.target.check_budget();
}

/// The canary of the tests above: planted bugs must be noticed.
#[test]
fn planted_bugs_are_noticed() {
    diecut_testing::planted::all_are_noticed(&[
        (
            "nvmf: a queue that is held loses its turn for memory",
            a_turn_for_memory_is_kept_while_a_lost_path_is_waited_for,
        ),
        ("nvmf: silent connections keep all places", silent_connections_make_room_for_new_ones),
        ("nvmf: budget not given back", hosts_that_read_nothing_hold_a_part_only),
        ("nvmf: reserve of tenants not kept", hosts_that_read_nothing_hold_a_part_only),
        (
            "nvmf: no data are read while a queue waits for memory",
            data_that_were_asked_for_are_read_while_their_queue_waits,
        ),
        ("nvmf: places of subsystems not kept", subsystems_have_places_that_are_kept_for_them),
    ]);
}
