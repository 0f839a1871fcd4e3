//! Hosts that take all the memory that they get.

use super::*;

/// Connects a queue: an admin queue answers its controller's id. `None`: refused because the target is busy.
pub fn queue(world: &mut World, nqn: &str, number: u16, controller: u16) -> Option<(ConnectionId, u16)> {
    let id = world.open();
    world.initialize(id, Digests::NONE);
    let reply = world.connect(id, nqn, number, controller).expect("answered");
    if reply.status == Status::CONNECT_CONTROLLER_BUSY {
        return None;
    }
    assert_eq!(reply.status, Status::SUCCESS);
    if number == 0 {
        world.enable(id);
    }
    Some((id, reply.result as u16))
}

/// A host with an I/O queue on a subsystem.
pub fn host(world: &mut World, nqn: &str, number: u8) -> Option<ConnectionId> {
    (world.host_id, world.host) = ([number; 16], format!("{HOST}-{number}"));
    let (_, controller) = queue(world, nqn, 0, 0xFFFF)?;
    queue(world, nqn, 1, controller).map(|(id, _)| id)
}

pub fn send_read(world: &mut World, id: ConnectionId, blocks: u32) {
    let mut entry = world.rw(opcode::io::READ, 0, blocks, SglDescriptor::transport(blocks * LBA as u32));
    entry.flags |= 0x40;
    entry.command_id = world.next_id(id).into();
    let bytes = world.capsule(id, entry, &[]);
    world.send(id, &bytes);
}

/// Sends the write of a number, with its data in the capsule: so many blocks from twice the number on, of bytes one larger than it. Gives
/// the id of the command.
pub fn send_write(world: &mut World, id: ConnectionId, number: u8, blocks: u32) -> u16 {
    let sgl = SglDescriptor::in_capsule(blocks * LBA as u32);
    let mut entry = world.rw(opcode::io::WRITE, u64::from(number) * 2, blocks, sgl);
    let command_id = world.next_id(id);
    (entry.flags, entry.command_id) = (entry.flags | 0x40, command_id.into());
    let bytes = world.capsule(id, entry, &vec![number + 1; blocks as usize * LBA]);
    world.send(id, &bytes);
    command_id
}

/// Hosts of a subsystem, as many as it lets in, that ask for much and take nothing; the target holds so much at most.
pub fn greedy(world: &mut World, nqn: &str, limit_bytes: usize) -> Vec<ConnectionId> {
    let hosts: Vec<ConnectionId> = (1..60).map_while(|number| host(world, nqn, number)).collect();
    world.deaf = true;
    for &id in &hosts {
        (0..30).for_each(|_| send_read(world, id, 64));
        assert!(world.target.memory().held_bytes <= limit_bytes, "{:?}", world.target.memory());
    }
    world.deaf = false;
    hosts
}
