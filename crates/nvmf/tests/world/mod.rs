//! A tiny host and a RAM namespace around a target: what a test sends is cut into random pieces from a seed.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod greedy;

use diecut_namespace::contract::*;
use diecut_nvme::fabrics::{ConnectCommand, ConnectData, PropertyCommand};
use diecut_nvme::property::{Configuration, offset};
use diecut_nvme::tcp::*;
use diecut_nvme::*;
use diecut_nvmf::*;
use diecut_testing::Random;
pub use diecut_testing::target::{name, namespace};
use diecut_units::{Buffer, Time};
use std::collections::BTreeMap;
use zerocopy::{FromBytes, IntoBytes};

/// Zones of 16 logical blocks, of which 12 can be written; two may be active.
pub const ZONES: ZoneProperties = ZoneProperties {
    size_lbas_log2: 4,
    capacity_lbas: 12,
    active_max: 2,
    open_max: 2,
    random_lbas: 0,
    commit_lbas: 1,
    write_lbas_min: 1,
    extension_size_bytes: 0,
};

pub const SUBSYSTEM: &str = "nqn.2026-11.example:tenant-a";
pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:host-1";
pub const LBA: usize = diecut_testing::target::LBA_SIZE_BYTES;
pub const LBAS: u64 = 256;

/// A PDU as the host got it.
#[derive(Debug)]
pub struct Pdu {
    pub kind: u8,
    pub header: Vec<u8>,
    pub data: Vec<u8>,
}
impl Pdu {
    pub fn response(&self) -> CompletionEntry {
        assert_eq!(self.kind, pdu_type::CAPSULE_RESPONSE, "{self:?}");
        CapsuleResponse::read_from_bytes(&self.header).unwrap().entry
    }
    pub fn termination(&self) -> TerminateRequest {
        assert_eq!(self.kind, pdu_type::C2H_TERMINATE, "{self:?}");
        TerminateRequest::read_from_bytes(&self.header).unwrap()
    }
}

/// What came back for one command.
#[derive(Debug)]
pub struct Reply {
    pub status: Status,
    pub result: u64,
    pub data: Vec<u8>,
}

pub struct Link {
    pub digests: Digests,
    /// Of data to this host, in bytes.
    pub alignment: usize,
    pub received: Vec<u8>,
    pub pdus: Vec<Pdu>,
    pub next_id: u16,
    pub closed: bool,
    pub paused: bool,
}

pub struct World {
    pub target: Target,
    pub now: Time,
    pub memory: Vec<u8>,
    pub links: BTreeMap<ConnectionId, Link>,
    pub next_link: u64,
    pub random: Random,
    /// Bytes per delivery at most; 0 = everything at once.
    pub cut: u64,
    /// Commands are kept instead of executed.
    pub hold: bool,
    pub held: Vec<NamespaceCommand>,
    pub moved: Vec<(ConnectionId, u16, Box<MovedConnection>)>,
    /// What an operator was told.
    pub notices: Vec<diecut_nvmf::HostNotice>,
    /// What the target gave up: source, and the token if it was one command.
    pub given_up: Vec<(SourceId, Option<CommandToken>)>,
    /// Output is not taken.
    pub deaf: bool,
    pub flow_control: bool,
    pub keep_alive_ms: u32,
    pub host: String,
    pub host_id: [u8; 16],
    /// Connects carry no host NQN.
    pub nameless: bool,
    /// Where connections come to.
    pub local: Option<std::net::SocketAddr>,
    pub use_window: bool,
    /// What is told of media.
    pub media: diecut_nvmf::MediaFigures,
    /// What is told of placement.
    pub placement: diecut_nvmf::PlacementFigures,
    /// Handles that were to get a fresh reclaim unit.
    pub updated: Vec<PlacementTarget>,
    /// Questions about media are kept instead of answered.
    pub keep_questions: bool,
    pub questions: Vec<diecut_nvmf::Question>,
    /// What was kept of reservations.
    pub records: BTreeMap<NamespaceId, Option<diecut_nvmf::ReservationRecord>>,
    /// Reservations are not kept yet.
    pub hold_records: bool,
    pub records_held: Vec<diecut_nvmf::Keep>,
    /// What was kept of sanitize operations.
    pub sanitizes: BTreeMap<String, diecut_nvmf::SanitizeRecord>,
    /// What was kept of events of placement, in order.
    pub events: Vec<diecut_nvmf::PlacementRecord>,
}

pub fn subsystem() -> SubsystemConfig {
    diecut_testing::target::subsystem(SUBSYSTEM, &[HOST], [(1, namespace(7, LBAS))])
}

impl World {
    pub fn new(seed: u64) -> World {
        World::with(
            seed,
            TargetConfig {
                advertised: vec!["192.0.2.1:4420".parse().unwrap()],
                queue: QueueLimits { h2c_data_bytes_max: 8192, ..QueueLimits::default() },
                ..TargetConfig::default()
            },
        )
    }
    pub fn with(seed: u64, config: TargetConfig) -> World {
        let mut world = World {
            target: Target::new(config),
            now: Time(1_000_000_000),
            memory: vec![0; LBA * LBAS as usize],
            links: BTreeMap::new(),
            next_link: 1,
            random: Random::of(seed),
            cut: 0,
            hold: false,
            held: Vec::new(),
            moved: Vec::new(),
            notices: Vec::new(),
            given_up: Vec::new(),
            deaf: false,
            flow_control: true,
            keep_alive_ms: 0,
            host: HOST.to_owned(),
            host_id: [9; 16],
            nameless: false,
            local: None,
            use_window: false,
            media: diecut_nvmf::MediaFigures::default(),
            placement: diecut_nvmf::PlacementFigures::default(),
            updated: Vec::new(),
            keep_questions: false,
            questions: Vec::new(),
            records: BTreeMap::new(),
            hold_records: false,
            records_held: Vec::new(),
            sanitizes: BTreeMap::new(),
            events: Vec::new(),
        };
        let mut actions = Vec::new();
        world.target.set_subsystem(subsystem(), world.now, &mut actions);
        assert!(actions.is_empty());
        world
    }

    pub fn handle(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.target.handle(event, self.now, &mut actions);
        self.act(actions);
        let mut rounds = 0;
        while self.target.has_work() {
            let mut actions = Vec::new();
            self.target.handle(Event::Round, self.now, &mut actions);
            self.act(actions);
            rounds += 1;
            assert!(rounds < 10_000, "rounds end: {:?}", self.target.memory());
        }
    }

    pub fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Submit(command) if self.hold => self.held.push(command),
                Action::Submit(command) => self.execute(command),
                Action::GiveUp(source, token) => self.given_up.push((source, token)),
                Action::Transmit(id) => self.take_output(id),
                Action::Close(id) => {
                    self.take_output(id);
                    self.links.get_mut(&id).unwrap().closed = true;
                    let mut more = Vec::new();
                    self.target.handle(Event::Closed(id), self.now, &mut more);
                    self.act(more);
                }
                Action::Pause(id) => self.links.get_mut(&id).unwrap().paused = true,
                Action::Resume(id) => self.links.get_mut(&id).unwrap().paused = false,
                Action::HandOver(id, shard, moved) => self.moved.push((id, shard, moved)),
                Action::Notice(notice) => self.notices.push(*notice),
                Action::Keep(keep) if self.hold_records => self.records_held.push(*keep),
                Action::Keep(keep) => {
                    self.handle(Event::Kept(keep.kept()));
                    match *keep {
                        Keep::Reservation(keep) => drop(self.records.insert(keep.namespace, keep.record)),
                        Keep::Sanitize(keep) => {
                            _ = self.sanitizes.insert(keep.subsystem.as_str().to_owned(), keep.record);
                        }
                        Keep::Placement(keep) => self.events.push(keep.record),
                    }
                }
                Action::Ask(question) if self.keep_questions => self.questions.push(*question),
                Action::Ask(question) => {
                    self.updated.extend(&question.updates);
                    let tidings = diecut_nvmf::Tidings {
                        figures: self.media,
                        placement: self.placement.clone(),
                        debug_log: b"why it was slow".to_vec(),
                        ..question.unknown()
                    };
                    self.handle(Event::Told(Box::new(tidings)));
                }
            }
        }
    }

    pub fn execute(&mut self, command: NamespaceCommand) {
        assert_eq!(command.namespace, NamespaceId(7));
        let completion = diecut_testing::target::execute(&mut self.memory, command);
        self.handle(Event::Completed(completion));
    }

    pub fn release_held(&mut self) {
        self.hold = false;
        for command in std::mem::take(&mut self.held) {
            self.execute(command);
        }
    }

    pub fn take_output(&mut self, id: ConnectionId) {
        if self.deaf {
            return;
        }
        while let Some(outbox) = self.target.outbox(id).filter(|outbox| !outbox.is_empty()) {
            let mut bytes = vec![0; (1 + self.random.below(5000) as usize).min(outbox.len_bytes())];
            let copied = outbox.copy_to(&mut bytes);
            assert_eq!(copied, bytes.len());
            self.links.get_mut(&id).unwrap().received.extend_from_slice(&bytes);
            self.target.sent(id, copied);
        }
        self.parse(id);
    }

    fn parse(&mut self, id: ConnectionId) {
        let link = self.links.get_mut(&id).unwrap();
        loop {
            let Ok((common, _)) = CommonHeader::read_from_prefix(&link.received) else { return };
            let frame = Frame::check(&common, Receiver::Host, link.digests, link.alignment, 1 << 20);
            let frame = frame.expect("a right PDU");
            if link.received.len() < frame.length() {
                return;
            }
            let bytes: Vec<u8> = link.received.drain(..frame.length()).collect();
            let header = bytes[..frame.header_length()].to_vec();
            if frame.header_digest() {
                assert!(digest_matches(&header, &bytes[frame.header_length()..frame.header_end()]));
            }
            let data = bytes[frame.data_start()..frame.data_start() + frame.data_length()].to_vec();
            if frame.data_digest() {
                assert!(digest_matches(&data, &bytes[frame.data_start() + frame.data_length()..]));
            }
            link.pdus.push(Pdu { kind: frame.pdu_type(), header, data });
        }
    }

    pub fn open(&mut self) -> ConnectionId {
        let id = ConnectionId(self.next_link);
        self.next_link += 1;
        let link = Link {
            digests: Digests::NONE,
            alignment: 4,
            received: vec![],
            pdus: vec![],
            next_id: 1,
            closed: false,
            paused: false,
        };
        self.links.insert(id, link);
        self.handle(Event::Accepted(id, self.local));
        id
    }

    /// Sends bytes in pieces.
    pub fn send(&mut self, id: ConnectionId, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() && !self.links[&id].closed {
            let cut = if self.cut == 0 { rest.len() } else { 1 + self.random.below(self.cut) as usize };
            let mut part = cut.min(rest.len());
            if self.use_window
                && let Some(window) = self.target.receive_window(id)
            {
                part = part.min(window.len());
                window[..part].copy_from_slice(&rest[..part]);
                self.handle(Event::ReceivedInWindow(id, part));
            } else {
                self.handle(Event::Received(id, Buffer::copy_from(&rest[..part])));
            }
            rest = &rest[part..];
        }
    }

    pub fn initialize(&mut self, id: ConnectionId, digests: Digests) {
        self.send(id, InitializeRequest::new(digests).as_bytes());
        let response = self.links.get_mut(&id).unwrap().pdus.remove(0);
        let response = InitializeResponse::read_from_bytes(&response.header).unwrap();
        response.validate(digests).unwrap();
        assert_eq!(Digests::decode(response.digests), digests);
        self.links.get_mut(&id).unwrap().digests = digests;
    }

    /// A command capsule as bytes.
    pub fn capsule(&self, id: ConnectionId, entry: SubmissionEntry, data: &[u8]) -> Vec<u8> {
        let digests = self.links[&id].digests;
        let header = CapsuleCommand::new(entry, data.len() as u32, digests);
        let mut bytes = header.as_bytes().to_vec();
        if digests.header {
            bytes.extend(digest_of(header.as_bytes()));
        }
        if !data.is_empty() {
            bytes.extend(data);
            if digests.data {
                bytes.extend(digest_of(data));
            }
        }
        bytes
    }

    pub fn next_id(&mut self, id: ConnectionId) -> u16 {
        let link = self.links.get_mut(&id).unwrap();
        link.next_id = link.next_id.wrapping_add(1);
        link.next_id
    }

    /// Sends an Asynchronous Event Request, which waits for its event. Its command identifier.
    pub fn ask_for_event(&mut self, id: ConnectionId) -> u16 {
        let command_id = self.next_id(id);
        let entry = SubmissionEntry {
            opcode: opcode::admin::ASYNCHRONOUS_EVENT_REQUEST,
            flags: 0x40,
            command_id: command_id.into(),
            sgl: SglDescriptor::transport(0),
            ..SubmissionEntry::default()
        };
        let bytes = self.capsule(id, entry, &[]);
        self.send(id, &bytes);
        command_id
    }

    /// Sends a command; R2Ts are served from `data` if it is not in the capsule.
    pub fn command(&mut self, id: ConnectionId, mut entry: SubmissionEntry, data: &[u8]) -> Reply {
        entry.command_id = self.next_id(id).into();
        entry.flags |= 0x40;
        let in_capsule = matches!(entry.sgl.kind(), SglKind::InCapsule { .. });
        let bytes = self.capsule(id, entry, if in_capsule { data } else { &[] });
        self.send(id, &bytes);
        self.serve_transfers(id, data);
        self.reply(id, entry.command_id.get()).unwrap_or_else(|| panic!("no answer to {entry:?}"))
    }

    pub fn serve_transfers(&mut self, id: ConnectionId, data: &[u8]) {
        loop {
            let link = self.links.get_mut(&id).unwrap();
            let Some(at) = link.pdus.iter().position(|pdu| pdu.kind == pdu_type::READY_TO_TRANSFER) else {
                return;
            };
            let request = ReadyToTransfer::read_from_bytes(&link.pdus.remove(at).header).unwrap();
            let (start, length) = (request.offset.get() as usize, request.length.get() as usize);
            // Two PDUs, to see that parts are put together.
            let half = (length / 2).next_multiple_of(4).min(length);
            for (from, to) in [(start, start + half), (start + half, start + length)] {
                if from < to {
                    self.send_data(
                        id,
                        request.command_id.get(),
                        request.transfer_tag.get(),
                        from,
                        &data[from..to],
                        to == start + length,
                    );
                }
            }
        }
    }

    pub fn send_data(&mut self, id: ConnectionId, cid: u16, tag: u16, at: usize, data: &[u8], last: bool) {
        let digests = self.links[&id].digests;
        let header = DataToController::new(cid, tag, at as u32, data.len() as u32, last, digests);
        let mut bytes = header.as_bytes().to_vec();
        if digests.header {
            bytes.extend(digest_of(header.as_bytes()));
        }
        bytes.extend(data);
        if digests.data {
            bytes.extend(digest_of(data));
        }
        self.send(id, &bytes);
    }

    /// Takes the answer to a command out of what was received.
    pub fn reply(&mut self, id: ConnectionId, command_id: u16) -> Option<Reply> {
        let link = self.links.get_mut(&id).unwrap();
        let mut data = Vec::new();
        let mut at = 0;
        while at < link.pdus.len() {
            match link.pdus[at].kind {
                pdu_type::C2H_DATA => {
                    let header = DataToHost::read_from_bytes(&link.pdus[at].header).unwrap();
                    if header.command_id.get() == command_id {
                        data.extend(link.pdus.remove(at).data);
                        if header.is_success() {
                            return Some(Reply { status: Status::SUCCESS, result: 0, data });
                        }
                        continue;
                    }
                }
                pdu_type::CAPSULE_RESPONSE => {
                    let entry = link.pdus[at].response();
                    if entry.command_id.get() == command_id {
                        link.pdus.remove(at);
                        return Some(Reply { status: entry.status(), result: entry.result(), data });
                    }
                }
                _ => {}
            }
            at += 1;
        }
        None
    }

    pub fn connect_bytes(
        &mut self,
        id: ConnectionId,
        nqn: &str,
        queue: u16,
        controller: u16,
    ) -> (u16, Vec<u8>) {
        let cid = self.next_id(id);
        let mut connect = ConnectCommand::new(cid, queue, 31, self.keep_alive_ms);
        if !self.flow_control {
            connect.attributes = 4;
        }
        let data = ConnectData::new(self.host_id, controller, &name(nqn), &name(&self.host));
        let mut data = data.as_bytes().to_vec();
        if self.nameless {
            data[ConnectData::HOSTNQN_OFFSET..][..NQN_FIELD_SIZE_BYTES].fill(0);
        }
        let bytes = self.capsule(id, connect.entry(), &data);
        (cid, bytes)
    }

    pub fn connect(&mut self, id: ConnectionId, nqn: &str, queue: u16, controller: u16) -> Option<Reply> {
        let (cid, bytes) = self.connect_bytes(id, nqn, queue, controller);
        self.send(id, &bytes);
        self.reply(id, cid)
    }

    pub fn get_property(&mut self, id: ConnectionId, at: u32) -> u64 {
        let reply = self.command(id, PropertyCommand::get(0, at, at == offset::CAP).entry(), &[]);
        assert_eq!(reply.status, Status::SUCCESS);
        reply.result
    }
    pub fn set_cc(&mut self, id: ConnectionId, value: u32) {
        let reply = self.command(id, PropertyCommand::set(0, offset::CC, value).entry(), &[]);
        assert_eq!(reply.status, Status::SUCCESS);
    }

    /// Admin queue, enabled: (connection, controller id).
    pub fn admin(&mut self, nqn: &str, digests: Digests) -> (ConnectionId, u16) {
        let id = self.open();
        self.initialize(id, digests);
        let reply = self.connect(id, nqn, 0, 0xFFFF).expect("answered");
        assert_eq!(reply.status, Status::SUCCESS);
        self.enable(id);
        (id, reply.result as u16)
    }
    pub fn enable(&mut self, id: ConnectionId) {
        self.set_cc(id, Configuration::enable(6).0);
        assert_eq!(self.get_property(id, offset::CSTS) & 1, 1);
    }
    pub fn io(&mut self, controller: u16, queue: u16, digests: Digests) -> ConnectionId {
        let id = self.open();
        self.initialize(id, digests);
        let reply = self.connect(id, SUBSYSTEM, queue, controller).expect("answered");
        assert_eq!(reply.status, Status::SUCCESS);
        id
    }

    pub fn rw(&self, code: u8, start: u64, count: u32, sgl: SglDescriptor) -> SubmissionEntry {
        let mut entry = SubmissionEntry { opcode: code, nsid: 1.into(), sgl, ..SubmissionEntry::default() };
        diecut_nvme::io::LbaRange::plain(start, count).encode(&mut entry);
        entry
    }
    pub fn read(&mut self, id: ConnectionId, start: u64, count: u32) -> Reply {
        let entry = self.rw(opcode::io::READ, start, count, SglDescriptor::transport(count * LBA as u32));
        self.command(id, entry, &[])
    }
    pub fn write(&mut self, id: ConnectionId, start: u64, data: &[u8], in_capsule: bool) -> Reply {
        let length = data.len() as u32;
        let sgl =
            if in_capsule { SglDescriptor::in_capsule(length) } else { SglDescriptor::transport(length) };
        let entry = self.rw(opcode::io::WRITE, start, length / LBA as u32, sgl);
        self.command(id, entry, data)
    }
}
