//! Goal: subsystems change their shard while hosts are connected: nothing of a connection is lost, and nothing is answered twice. Method:
//! two targets over one namespace in memory, connections handed over in the midst of PDUs and commands.

use crate::world;
use diecut_nvme::property::offset;
use diecut_nvme::tcp::Digests;
use diecut_nvme::*;
use diecut_nvmf::*;
use diecut_units::{Span, Time};
use world::greedy::{greedy, send_write};
use world::*;

fn elsewhere() -> SubsystemConfig {
    SubsystemConfig { home: Home::Elsewhere(1), namespaces: Default::default(), ..subsystem() }
}

/// Gives the subsystem of one world to another; what is on its way then, in order.
fn leave(from: &mut World, to: &mut World) -> Vec<(ConnectionId, Box<MovedConnection>)> {
    let nqn = name(SUBSYSTEM);
    assert!(from.target.is_drained(&nqn));
    let mut actions = Vec::new();
    to.target.place(subsystem(), Some(from.target.figures(&nqn)), to.now, &mut actions);
    to.memory.clone_from(&from.memory);
    from.target.release(elsewhere(), 1, from.now, &mut actions);
    from.act(actions);
    assert!(from.target.associations().is_empty(), "nothing stays behind");
    let on_the_way = std::mem::take(&mut from.moved).into_iter().map(|(id, shard, state)| {
        assert_eq!(shard, 1);
        let link = from.links.remove(&id).expect("it was here");
        to.links.insert(id, link);
        (id, state)
    });
    on_the_way.collect()
}

/// The last one has come.
fn arrived(to: &mut World) {
    let mut actions = Vec::new();
    to.target.arrived(&name(SUBSYSTEM), to.now, &mut actions);
    to.act(actions);
}

/// Gives the subsystem of one world to another, with all connections that arrive; those of `lost` do not.
fn relocate(from: &mut World, to: &mut World, lost: &[ConnectionId]) {
    for (id, state) in leave(from, to) {
        if lost.contains(&id) {
            to.links.remove(&id);
        } else {
            to.handle(Event::Adopted(id, state));
        }
    }
    arrived(to);
}

/// Two worlds, the second of which does not have the subsystem; time went on alike.
fn worlds(seed: u64, keep_alive_ms: u32) -> (World, World) {
    let (mut here, mut there) = (World::new(seed), World::new(seed + 1));
    let mut actions = Vec::new();
    there.target.set_subsystem(elsewhere(), there.now, &mut actions);
    there.next_link = 1000;
    (here.keep_alive_ms, there.keep_alive_ms) = (keep_alive_ms, keep_alive_ms);
    (here, there)
}

/// Goal: what a stream keeps back for want of memory is done at the new home. Method: other hosts of the subsystem hold the memory of the
/// old home, and the stream of a writer waits; it moves to where there is room, and where those hosts may not come.
#[test]
fn a_stream_that_waits_for_memory_goes_on_at_the_new_home() {
    const LIMIT_BYTES: usize = 16 << 20;
    let memory = MemoryLimits { limit_bytes: LIMIT_BYTES, ..MemoryLimits::default() };
    let (_, mut there) = worlds(28, 0);
    let mut here = World::with(28, TargetConfig { memory, ..TargetConfig::default() });
    let open = SubsystemConfig { allow_any_host: true, ..subsystem() };
    let mut actions = Vec::new();
    here.target.set_subsystem(open, here.now, &mut actions);
    let (_, controller) = here.admin(SUBSYSTEM, Digests::NONE);
    let writer = here.io(controller, 1, Digests::NONE);
    let kept = (here.host.clone(), here.host_id);
    greedy(&mut here, SUBSYSTEM, LIMIT_BYTES);
    (here.host, here.host_id) = kept;
    here.hold = true;
    let ids: Vec<u16> = (0..24).map(|number| send_write(&mut here, writer, number, 2)).collect();
    assert!(here.links[&writer].paused, "{:?}", here.target.memory());
    let begun = here.held.len();
    assert!((1..24).contains(&begun), "{begun} writes are under way");
    here.target.freeze(&name(SUBSYSTEM));
    here.release_held();
    relocate(&mut here, &mut there, &[]);
    for (number, id) in (0..24u8).zip(ids) {
        let status = there.reply(writer, id).map(|reply| reply.status);
        assert_eq!(status, Some(Status::SUCCESS), "write {number} of {begun}");
        assert_eq!(there.memory[usize::from(number) * 2 * LBA], number + 1);
    }
}

/// Nobody is told that hosts wait for memory because a subsystem moved: its connections look for room at the new home, and there is.
#[test]
fn a_move_is_no_lack_of_memory() {
    let (mut here, mut there) = worlds(20, 0);
    let (_, controller) = here.admin(SUBSYSTEM, Digests::NONE);
    let io = here.io(controller, 1, Digests::NONE);
    assert_eq!(here.write(io, 0, &[5; LBA], true).status, Status::SUCCESS);
    here.target.freeze(&name(SUBSYSTEM));
    let figures = here.target.figures(&name(SUBSYSTEM));
    relocate(&mut here, &mut there, &[]);
    assert_ne!(figures, World::new(21).target.figures(&name(SUBSYSTEM)), "a write was counted");
    assert_eq!(there.target.figures(&name(SUBSYSTEM)), figures, "and still is");
    assert_eq!(there.read(io, 0, 1).data, [5; LBA]);
    for world in [&here, &there] {
        assert!(!world.notices.contains(&HostNotice::WaitsForMemory), "{:?}", world.notices);
    }
}

/// A command in a namespace is waited for; what comes meanwhile waits: a write whose data are half here, a command, a new
/// connection. All of it is done at the new home, once.
#[test]
fn what_is_under_way_goes_with_its_connection() {
    for cut in [0, 7] {
        let (mut here, mut there) = worlds(21, 0);
        let digests = Digests { header: true, data: true };
        let (admin, controller) = here.admin(SUBSYSTEM, digests);
        let io = here.io(controller, 1, digests);
        let event = here.ask_for_event(admin);
        // In the namespace.
        here.hold = true;
        let mut first = here.rw(opcode::io::WRITE, 1, 1, SglDescriptor::in_capsule(LBA as u32));
        (first.flags, first.command_id) = (0x40, 500.into());
        let bytes = here.capsule(io, first, &vec![0x11; LBA]);
        here.send(io, &bytes);
        // Its data half received.
        let mut second = here.rw(opcode::io::WRITE, 2, 1, SglDescriptor::in_capsule(LBA as u32));
        (second.flags, second.command_id) = (0x40, 501.into());
        let second = here.capsule(io, second, &vec![0x22; LBA]);
        let (begun, rest) = second.split_at(1000);
        here.send(io, begun);

        here.target.freeze(&name(SUBSYSTEM));
        assert!(!here.target.is_drained(&name(SUBSYSTEM)), "a write is in the namespace");
        here.cut = cut;
        here.send(io, rest);
        let mut third = here.rw(opcode::io::WRITE, 3, 1, SglDescriptor::in_capsule(LBA as u32));
        (third.flags, third.command_id) = (0x40, 502.into());
        let bytes = here.capsule(io, third, &vec![0x33; LBA]);
        here.send(io, &bytes);
        let late = here.open();
        here.initialize(late, digests);
        assert!(here.connect(late, SUBSYSTEM, 2, controller).is_none(), "it waits for the new home");
        assert_eq!(here.held.len(), 1, "nothing more is begun");
        here.release_held();
        assert_eq!(here.reply(io, 500).expect("answered at the old home").status, Status::SUCCESS);

        relocate(&mut here, &mut there, &[]);
        assert_eq!(there.reply(io, 501).expect("done at the new home").status, Status::SUCCESS);
        assert_eq!(there.reply(io, 502).expect("done at the new home").status, Status::SUCCESS);
        let read = there.read(io, 1, 3).data;
        assert!(
            read.chunks(LBA)
                .zip([0x11, 0x22, 0x33])
                .all(|(block, byte)| block.iter().all(|one| *one == byte))
        );
        let status = there.target.associations();
        assert_eq!(status.len(), 1);
        assert_eq!((status[0].controller_id, status[0].io_queues), (controller, 2), "and the late one");
        assert_eq!(there.get_property(admin, offset::CSTS) & 1, 1);
        // The event request waits at the new home.
        assert!(there.reply(admin, event).is_none());
        let mut entry = SubmissionEntry { opcode: opcode::admin::ABORT, ..SubmissionEntry::default() };
        entry.cdw10 = (u32::from(event) << 16).into();
        assert_eq!(there.command(admin, entry, &[]).result, 0, "it can be aborted there");
    }
}

/// Data of a write that was asked for with R2T go on where they were, also in the midst of a PDU.
#[test]
fn a_transfer_goes_on_at_the_new_home() {
    let (mut here, mut there) = worlds(23, 0);
    let (_, controller) = here.admin(SUBSYSTEM, Digests::NONE);
    let io = here.io(controller, 1, Digests::NONE);
    let data: Vec<u8> = (0..3 * LBA).map(|at| (at / 16) as u8).collect();
    let mut write = here.rw(opcode::io::WRITE, 8, 3, SglDescriptor::transport(data.len() as u32));
    (write.flags, write.command_id) = (0x40, 600.into());
    let bytes = here.capsule(io, write, &[]);
    here.send(io, &bytes);
    here.target.freeze(&name(SUBSYSTEM));
    relocate(&mut here, &mut there, &[]);
    there.serve_transfers(io, &data);
    assert_eq!(there.reply(io, 600).expect("done").status, Status::SUCCESS);
    assert_eq!(there.read(io, 8, 3).data, data);
}

/// Who is not listened to is not silent.
#[test]
fn nobody_expires_on_the_way() {
    let (mut here, mut there) = worlds(25, 1000);
    let (admin, _) = here.admin(SUBSYSTEM, Digests::NONE);
    here.target.freeze(&name(SUBSYSTEM));
    here.now += Span::from_secs(5);
    here.handle(Event::Tick);
    assert!(here.target.deadline() > here.now, "and nothing is due");
    there.now = here.now;
    relocate(&mut here, &mut there, &[]);
    assert_eq!(there.get_property(admin, offset::CSTS) & 1, 1);
    assert!(there.target.deadline() < Time::NEVER);
    there.now += Span::from_secs(2);
    there.handle(Event::Tick);
    assert!(there.links[&admin].closed, "at the new home silence counts");
}

/// A stream that ends on the way takes with it what depends on it, and nothing else.
#[test]
fn a_controller_ends_with_its_admin_queue() {
    let (mut here, mut there) = worlds(27, 0);
    let (admin, controller) = here.admin(SUBSYSTEM, Digests::NONE);
    let io = here.io(controller, 1, Digests::NONE);
    here.target.freeze(&name(SUBSYSTEM));
    relocate(&mut here, &mut there, &[admin]);
    assert!(there.links[&io].closed, "its controller never came");
    assert!(there.target.associations().is_empty());

    let (mut here, mut there) = worlds(29, 0);
    let (admin, controller) = here.admin(SUBSYSTEM, Digests::NONE);
    let (one, two) = (here.io(controller, 1, Digests::NONE), here.io(controller, 2, Digests::NONE));
    here.target.freeze(&name(SUBSYSTEM));
    relocate(&mut here, &mut there, &[one]);
    assert!(!there.links[&admin].closed && !there.links[&two].closed);
    let again = there.io(controller, 1, Digests::NONE);
    assert_eq!(there.read(again, 0, 1).status, Status::SUCCESS);
}

/// Goal: answers that a queue has not sent when it moves are accounted for also where its controller never comes. Method: a host
/// takes nothing while its read is answered, its admin queue ends on the way, and at the new home it takes what is left, or hangs up.
#[test]
fn unsent_answers_of_a_queue_without_its_controller_are_accounted_for() {
    for takes_it in [true, false] {
        let (mut here, mut there) = worlds(39, 0);
        let (admin, controller) = here.admin(SUBSYSTEM, Digests::NONE);
        let io = here.io(controller, 1, Digests::NONE);
        (here.deaf, there.deaf) = (true, true);
        let mut read = here.rw(opcode::io::READ, 0, 64, SglDescriptor::transport(64 * LBA as u32));
        (read.flags, read.command_id) = (0x40, 700.into());
        let bytes = here.capsule(io, read, &[]);
        here.send(io, &bytes);
        here.target.freeze(&name(SUBSYSTEM));
        for (id, state) in leave(&mut here, &mut there) {
            if id != admin {
                // The driver sends what is left before it closes the stream.
                let mut actions = Vec::new();
                there.target.handle(Event::Adopted(id, state), there.now, &mut actions);
                assert!(actions.iter().any(|action| matches!(action, Action::Close(_))), "{actions:?}");
            }
        }
        there.target.check_budget();
        if takes_it {
            there.deaf = false;
            there.take_output(io);
            assert_eq!(there.reply(io, 700).expect("answered before the move").data.len(), 64 * LBA);
        } else {
            there.handle(Event::Closed(io));
        }
        there.target.check_budget();
        arrived(&mut there);
        assert_eq!((here.target.memory().held_bytes, there.target.memory().held_bytes), (0, 0));
    }
}

/// A Connect that comes to the new home by itself waits for its controller, which is still on the way.
fn connect_waits_for_its_controller() {
    let (mut here, mut there) = worlds(31, 0);
    let (_, controller) = here.admin(SUBSYSTEM, Digests::NONE);
    here.target.freeze(&name(SUBSYSTEM));
    let on_the_way = leave(&mut here, &mut there);
    let late = there.open();
    there.initialize(late, Digests::NONE);
    let (cid, bytes) = there.connect_bytes(late, SUBSYSTEM, 1, controller);
    there.send(late, &bytes);
    assert!(there.reply(late, cid).is_none(), "it waits");
    on_the_way.into_iter().for_each(|(id, state)| there.handle(Event::Adopted(id, state)));
    assert!(there.reply(late, cid).is_none(), "one more may be on the way");
    arrived(&mut there);
    assert_eq!(there.reply(late, cid).expect("answered").status, Status::SUCCESS);
    assert_eq!(there.read(late, 0, 1).status, Status::SUCCESS);
}

#[test]
fn a_connect_does_not_overtake_its_controller() {
    connect_waits_for_its_controller();
}

#[test]
fn a_connect_that_overtakes_its_controller_is_noticed() {
    diecut_testing::planted::is_noticed(
        "nvmf: connect overtakes its controller",
        connect_waits_for_its_controller,
    );
}

/// A reset that was not read yet finds all queues that it ends, whichever came first. What they still had to say is not done
/// after it.
#[test]
fn a_reset_finds_queues_that_come_later() {
    let (mut here, mut there) = worlds(33, 0);
    let (admin, controller) = here.admin(SUBSYSTEM, Digests::NONE);
    let io = here.io(controller, 1, Digests::NONE);
    here.target.freeze(&name(SUBSYSTEM));
    let cid = here.next_id(admin);
    let mut entry = fabrics::PropertyCommand::set(0, offset::CC, 0).entry();
    entry.command_id = cid.into();
    let bytes = here.capsule(admin, entry, &[]);
    here.send(admin, &bytes);
    write_later(&mut here, io, 700, 0x44);
    for (id, state) in leave(&mut here, &mut there) {
        there.handle(Event::Adopted(id, state));
        there.handle(Event::Round);
    }
    arrived(&mut there);
    there.handle(Event::Round);
    assert_eq!(there.reply(admin, cid).expect("reset").status, Status::SUCCESS);
    assert_eq!(there.get_property(admin, offset::CSTS) & 1, 0);
    assert!(!there.links[&admin].closed);
    assert!(there.links[&io].closed && there.reply(io, 700).is_none());
    assert!(there.memory[4 * LBA..5 * LBA].iter().all(|byte| *byte != 0x44), "nothing lands after it");
}

/// Sends a write of one block at LBA 4.
fn write_later(world: &mut World, io: ConnectionId, command_id: u16, byte: u8) {
    let mut write = world.rw(opcode::io::WRITE, 4, 1, SglDescriptor::in_capsule(LBA as u32));
    (write.flags, write.command_id) = (0x40, command_id.into());
    let bytes = world.capsule(io, write, &vec![byte; LBA]);
    world.send(io, &bytes);
}

/// Goal: all associations of a host with a subsystem go with it to another shard, and stay apart there.
/// Method: a host has two, each with a write that is not read yet, and a third Connect comes to the new home by itself, before
/// or after them. All are served there; the third gets an id of its own. Then one path is lost on the way, and the other stays.
#[test]
fn several_associations_of_a_host_go_together() {
    for early in [true, false] {
        let (mut here, mut there) = worlds(35, 1000);
        let (_, one) = here.admin(SUBSYSTEM, Digests::NONE);
        let first = here.io(one, 1, Digests::NONE);
        let (lost, two) = here.admin(SUBSYSTEM, Digests::NONE);
        let second = here.io(two, 1, Digests::NONE);
        here.target.freeze(&name(SUBSYSTEM));
        write_later(&mut here, first, 700, 0x44);
        write_later(&mut here, second, 701, 0x55);
        // Longer than the keep-alive: who is not listened to is not gone.
        there.now += Span::from_secs(5);
        let on_the_way = leave(&mut here, &mut there);
        let connect = |there: &mut World| {
            let third = there.open();
            there.initialize(third, Digests::NONE);
            let (cid, bytes) = there.connect_bytes(third, SUBSYSTEM, 0, 0xFFFF);
            there.send(third, &bytes);
            assert!(there.reply(third, cid).is_none(), "ids that are taken may be on the way");
            (third, cid)
        };
        let waits = early.then(|| connect(&mut there));
        on_the_way.into_iter().for_each(|(id, state)| there.handle(Event::Adopted(id, state)));
        let (third, cid) = waits.unwrap_or_else(|| connect(&mut there));
        arrived(&mut there);
        there.handle(Event::Round);
        for (io, cid) in [(first, 700), (second, 701)] {
            assert_eq!(there.reply(io, cid).expect("done at the new home").status, Status::SUCCESS);
        }
        let three = there.reply(third, cid).expect("answered").result as u16;
        assert!(three != one && three != two, "ids {one}, {two}, {three}");
        assert_eq!(there.target.associations().len(), 3);
        let fourth = there.io(two, 2, Digests::NONE);
        assert_eq!(there.read(fourth, 4, 1).status, Status::SUCCESS, "queues find their controllers");

        // And back, without the admin queue of one.
        here.next_link = 2000;
        let mut actions = Vec::new();
        there.target.freeze(&name(SUBSYSTEM));
        let nqn = name(SUBSYSTEM);
        here.target.place(subsystem(), Some(there.target.figures(&nqn)), here.now, &mut actions);
        there.target.release(
            SubsystemConfig { home: Home::Elsewhere(0), ..elsewhere() },
            0,
            there.now,
            &mut actions,
        );
        there.act(actions);
        for (id, _, state) in std::mem::take(&mut there.moved) {
            let link = there.links.remove(&id).expect("it was there");
            if id != lost {
                here.links.insert(id, link);
                here.handle(Event::Adopted(id, state));
            }
        }
        arrived(&mut here);
        here.handle(Event::Round);
        assert!(here.links[&second].closed && here.links[&fourth].closed, "gone with their controller");
        assert_eq!(here.target.associations().len(), 2);
        assert_eq!(here.read(first, 4, 1).status, Status::SUCCESS);
    }
}
