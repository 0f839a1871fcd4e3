//! The whole target: byte streams of several hosts, cut anywhere, with right and wrong PDUs, commands that come back late,
//! lost connections and administrators; afterwards a right host is served as if nothing had been.
#![no_main]

#[path = "../../../crates/nvmf/tests/world/mod.rs"]
mod world;

use diecut_fuzz::{Input, bounded};
use diecut_nvme::fabrics::PropertyCommand;
use diecut_nvme::property::Configuration;
use diecut_nvme::tcp::*;
use diecut_nvme::{DISCOVERY_SUBSYSTEM_NQN, SglDescriptor, Status, SubmissionEntry, opcode};
use diecut_nvmf::{ConnectionId, ControllerLimits, Event, QueueLimits, TargetConfig};
use diecut_units::{Buffer, Span};
use std::collections::BTreeMap;
use world::*;
use zerocopy::{FromBytes, IntoBytes};

diecut_fuzz::target!(seeds, check);

/// Connections at once, and over a whole input.
const CONNECTIONS_MAX: usize = 6;
const STEPS_MAX: usize = 200;
/// What the target and the world may hold: all connections' limits, and the RAM namespace twice.
const MEMORY_MAX_BYTES: usize = 32 << 20;

const OPEN: u8 = 0;
const INITIALIZE: u8 = 1;
const CONNECT: u8 = 2;
const ENABLE: u8 = 3;
const COMMAND: u8 = 4;
const DATA: u8 = 5;
const RAW: u8 = 6;
const HOLD: u8 = 7;
const RELEASE: u8 = 8;
const CLOSE: u8 = 9;
const TICK: u8 = 10;
const DEAF: u8 = 11;
const CUT: u8 = 12;
const ADMINISTRATE: u8 = 13;
const PROPERTY: u8 = 14;
const READ_WRITE: u8 = 15;
const STEP_KINDS: u8 = 16;

fn seeds() -> Vec<Vec<u8>> {
    let connect = |queue: u8, controller: u8| [CONNECT, 0, queue, controller, 0];
    let entry = |code: u8| {
        let mut entry = SubmissionEntry { opcode: code, nsid: 1.into(), ..SubmissionEntry::default() };
        (entry.sgl, entry.flags) = (SglDescriptor::transport(4096), 0x40);
        entry.command_id = u16::from(code).into();
        [&[COMMAND, 0][..], entry.as_bytes(), &[0, 0]].concat()
    };
    let admin = |digests: u8| [&[OPEN, INITIALIZE, 0, digests][..], &connect(0, 0), &[ENABLE, 0]].concat();
    let io =
        |digests: u8| [&admin(digests)[..], &[OPEN, INITIALIZE, 1, digests, CONNECT, 1, 1, 1, 0]].concat();
    let admin_commands: Vec<u8> =
        [opcode::admin::IDENTIFY, opcode::admin::GET_LOG_PAGE, opcode::admin::GET_FEATURES, 0x0C, 0x09, 0x18]
            .into_iter()
            .flat_map(entry)
            .collect();
    // One block and 16 blocks, written and read back, in the capsule and by R2T.
    let traffic = [
        READ_WRITE, 1, 1, 0, 0, READ_WRITE, 1, 0, 0, 0, READ_WRITE, 1, 3, 4, 15, DATA, 1, 0, READ_WRITE, 1,
        2, 4, 15,
    ];
    let mut seeds = Vec::new();
    for digests in 0..4 {
        seeds.push([&admin(digests)[..], &admin_commands].concat());
        seeds.push([&io(digests)[..], &traffic].concat());
    }
    seeds.push([&[CUT, 7][..], &io(3), &traffic, &[CLOSE, 1, CLOSE, 0]].concat());
    seeds.push([&io(0)[..], &[HOLD], &traffic, &[CLOSE, 0], &admin(0), &[RELEASE, TICK, 255, 255]].concat());
    seeds.push([&io(0)[..], &[DEAF], &traffic, &[DEAF, ADMINISTRATE, 0, ADMINISTRATE, 1]].concat());
    seeds.push([&[OPEN, INITIALIZE, 0, 0, CONNECT, 0, 0, 0, 1, ENABLE, 0][..], &admin_commands].concat());
    seeds.push([&[OPEN, RAW, 0, 12, 4, 0, 72, 0, 72, 0, 0, 0, 1, 2, 3, 4][..]].concat());
    seeds
}

fn check(bytes: &[u8]) {
    bounded(MEMORY_MAX_BYTES, || {
        let config = TargetConfig {
            advertised: vec!["192.0.2.1:4420".parse().expect("an address")],
            queue: QueueLimits {
                h2c_data_bytes_max: 8192,
                transfer_bytes_max: 128 << 10,
                output_bytes_max: 1 << 20,
                gather_bytes_max: 1 << 20,
                queue_entries_max: 32,
                ..QueueLimits::default()
            },
            controllers: ControllerLimits { associations_max: 4, ..ControllerLimits::default() },
            ..TargetConfig::default()
        };
        let mut storm = Storm {
            world: World::with(7, config),
            links: Vec::new(),
            beginnings: BTreeMap::new(),
            controller: 0,
        };
        let mut input = Input::new(bytes);
        for _ in 0..STEPS_MAX {
            if input.is_empty() {
                break;
            }
            storm.step(&mut input);
        }
        storm.calm();
    });
}

struct Storm {
    world: World,
    links: Vec<ConnectionId>,
    /// The first bytes of each stream: they say what the host asked for, whoever sent them.
    beginnings: BTreeMap<ConnectionId, Vec<u8>>,
    controller: u16,
}

impl Storm {
    /// A connection that the input names, if it can still be used.
    fn link(&self, number: u8) -> Option<ConnectionId> {
        let id = *self.links.get(usize::from(number) % self.links.len().max(1))?;
        let link = &self.world.links[&id];
        (!link.closed && !link.paused).then_some(id)
    }

    fn send(&mut self, id: ConnectionId, bytes: &[u8]) {
        let link = self.world.links.get_mut(&id).expect("listed");
        if link.closed {
            return;
        }
        let beginning = self.beginnings.entry(id).or_default();
        if beginning.len() < InitializeRequest::SIZE_BYTES {
            beginning.extend(bytes.iter().take(InitializeRequest::SIZE_BYTES - beginning.len()));
            if let Ok(request) = InitializeRequest::read_from_bytes(beginning) {
                // Neither the response to it nor a termination has a digest or padding.
                link.digests = Digests::decode(request.digests);
                link.alignment = request.host_alignment_bytes();
            }
        }
        self.world.send(id, bytes);
    }

    fn capsule(&mut self, id: ConnectionId, entry: SubmissionEntry, data: &[u8]) {
        let bytes = self.world.capsule(id, entry, data);
        self.send(id, &bytes);
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % STEP_KINDS {
            OPEN => {
                let open = self.links.iter().filter(|id| !self.world.links[*id].closed).count();
                if open < CONNECTIONS_MAX {
                    self.links.push(self.world.open());
                }
            }
            INITIALIZE => {
                let (link, dgst) = (input.byte(), input.byte());
                let Some(id) = self.link(link) else { return };
                let digests = Digests::decode(dgst);
                let mut request = InitializeRequest::new(digests);
                request.host_alignment = dgst >> 2;
                self.send(id, request.as_bytes());
            }
            CONNECT => {
                let (link, queue, controller, which) =
                    (input.byte(), input.byte(), input.byte(), input.byte());
                let Some(id) = self.link(link) else { return };
                let nqn = if which & 1 == 0 { SUBSYSTEM } else { DISCOVERY_SUBSYSTEM_NQN };
                self.world.flow_control = which & 2 == 0;
                self.world.keep_alive_ms = u32::from(which >> 4) * 1000;
                self.world.host_id = [which >> 2 & 3; 16];
                let controller =
                    if controller == 0 { 0xFFFF } else { self.controller + u16::from(controller) - 1 };
                let (cid, bytes) = self.world.connect_bytes(id, nqn, queue.into(), controller);
                self.send(id, &bytes);
                if let Some(reply) = self.world.reply(id, cid)
                    && reply.status == Status::SUCCESS
                    && queue == 0
                {
                    self.controller = reply.result as u16;
                }
            }
            ENABLE => {
                let link = input.byte();
                let Some(id) = self.link(link) else { return };
                let value = Configuration::enable(6).0;
                let entry = PropertyCommand::set(self.world.next_id(id), 0x14, value).entry();
                self.capsule(id, entry, &[]);
            }
            PROPERTY => {
                let (link, offset, value) = (input.byte(), input.byte(), input.u32());
                let Some(id) = self.link(link) else { return };
                let cid = self.world.next_id(id);
                let entry = if offset & 1 == 0 {
                    PropertyCommand::get(cid, offset.into(), offset & 2 != 0).entry()
                } else {
                    PropertyCommand::set(cid, (offset & !1).into(), value).entry()
                };
                self.capsule(id, entry, &[]);
            }
            COMMAND => {
                let link = input.byte();
                let wire: [u8; SubmissionEntry::SIZE_BYTES] = input.array();
                let data = vec![0xA5; usize::from(input.u16())];
                let Some(id) = self.link(link) else { return };
                let entry = SubmissionEntry::read_from_bytes(&wire).expect("64 bytes");
                self.capsule(id, entry, &data);
            }
            READ_WRITE => {
                let (link, kind, lba, count) = (input.byte(), input.byte(), input.byte(), input.byte());
                let Some(id) = self.link(link) else { return };
                let code =
                    [opcode::io::READ, opcode::io::WRITE, opcode::io::COMPARE, opcode::io::WRITE_ZEROES]
                        [usize::from(kind >> 2 & 3) ^ usize::from(kind & 1)];
                let length = LBA as u32 * (u32::from(count) + 1);
                let in_capsule = kind & 2 == 0 && kind & 1 != 0 && length <= 8192;
                let sgl = if in_capsule {
                    SglDescriptor::in_capsule(length)
                } else {
                    SglDescriptor::transport(length)
                };
                let mut entry = self.world.rw(code, lba.into(), u32::from(count) + 1, sgl);
                entry.command_id = self.world.next_id(id).into();
                entry.flags = 0x40;
                let data = vec![lba; if in_capsule { length as usize } else { 0 }];
                self.capsule(id, entry, &data);
            }
            DATA => {
                let (link, bend) = (input.byte(), input.byte());
                let Some(id) = self.link(link) else { return };
                let pdus = &mut self.world.links.get_mut(&id).expect("listed").pdus;
                let found = pdus.iter().position(|pdu| pdu.kind == pdu_type::READY_TO_TRANSFER);
                let Some(at) = found else { return };
                let request =
                    ReadyToTransfer::read_from_bytes(&pdus.remove(at).header).expect("a whole header");
                let (mut at, mut length) = (request.offset.get(), request.length.get());
                match bend & 7 {
                    1 => at ^= 4,
                    2 => length = length.saturating_sub(4),
                    3 => length += 4,
                    _ => {}
                }
                let data = vec![bend; length as usize];
                let tag = request.transfer_tag.get() ^ u16::from(bend & 7 == 4);
                let (cid, last) = (request.command_id.get(), bend & 7 != 5);
                self.world.send_data(id, cid, tag, at as usize, &data, last);
            }
            RAW => {
                let (link, length) = (input.byte(), input.byte());
                let bytes = input.bytes(length.into());
                let Some(id) = self.link(link) else { return };
                self.send(id, bytes);
            }
            HOLD => self.world.hold = true,
            RELEASE => self.world.release_held(),
            CLOSE => {
                let link = input.byte();
                let Some(id) = self.link(link) else { return };
                self.world.links.get_mut(&id).expect("listed").closed = true;
                self.world.handle(Event::Closed(id));
            }
            TICK => {
                self.world.now += Span::from_millis(input.u16().into());
                self.world.handle(Event::Tick);
            }
            DEAF => {
                self.world.deaf = !self.world.deaf;
                self.drain();
            }
            CUT => {
                let cut = input.byte();
                self.world.cut = u64::from(cut >> 1);
                self.world.use_window = cut & 1 != 0;
            }
            ADMINISTRATE => {
                let mut actions = Vec::new();
                let mut config = subsystem();
                match input.byte() % 4 {
                    0 => {
                        let nqn = name(SUBSYSTEM);
                        self.world.target.remove_subsystem(&nqn, self.world.now, &mut actions);
                        self.world.act(actions);
                        return;
                    }
                    1 => config.namespaces.clear(),
                    2 => config.allowed_hosts.clear(),
                    _ => {}
                }
                self.world.target.set_subsystem(config, self.world.now, &mut actions);
                self.world.act(actions);
            }
            _ => unreachable!("all kinds are named"),
        }
    }

    fn drain(&mut self) {
        for id in self.world.links.keys().copied().collect::<Vec<_>>() {
            self.world.take_output(id);
        }
        // Room for output lets commands go on that waited for it.
        while self.world.target.has_work() {
            self.world.handle(Event::Round);
        }
    }

    /// The weather clears: what was held comes back, every stream ends, and a right host finds everything in order.
    fn calm(mut self) {
        self.world.deaf = false;
        self.drain();
        while !self.world.held.is_empty() {
            self.world.release_held();
        }
        self.world.hold = false;
        for id in self.links.clone() {
            if !self.world.links[&id].closed {
                self.world.handle(Event::Received(id, Buffer::copy_from(&[0xFF; 64])));
                self.world.links.get_mut(&id).expect("listed").closed = true;
                self.world.handle(Event::Closed(id));
            }
        }
        assert!(self.world.held.is_empty() && !self.world.target.has_work());
        assert!(self.world.target.associations().is_empty(), "nobody is connected any more");
        let mut actions = Vec::new();
        self.world.target.set_subsystem(subsystem(), self.world.now, &mut actions);
        self.world.act(actions);
        (self.world.cut, self.world.use_window, self.world.keep_alive_ms) = (0, false, 0);
        self.world.flow_control = true;
        let (_, controller) = self.world.admin(SUBSYSTEM, Digests::NONE);
        let io = self.world.io(controller, 1, Digests::NONE);
        let block = vec![5; LBA];
        assert_eq!(self.world.write(io, 200, &block, true).status, Status::SUCCESS);
        let entry = self.world.rw(opcode::io::READ, 200, 1, SglDescriptor::transport(LBA as u32));
        let reply = self.world.command(io, entry, &[]);
        assert_eq!((reply.status, reply.data), (Status::SUCCESS, block));
    }
}
