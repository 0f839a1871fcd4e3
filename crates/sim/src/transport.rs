//! The shipped NVMe/TCP target behind [`System`], over a simulated network, with hosts that connect, lose their
//! connection and connect again, and namespaces that are a plain store with delays.
//!
//! What it shows: PDUs cut anywhere, digests, R2T flow, association handling, late writes. What it does not: media,
//! vSSDs, logs and volumes (the store keeps every promise by construction; a crash loses only what is under way).

use crate::link::{Link, Pdu};
use crate::oracle::Crash;
use crate::plan::{ContentKind, Lane, Plan, Range};
use crate::system::{Accounting, HostAnswer, HostCommand, HostError, HostToken, System};
use crate::tag::VolumeNumber;
use diecut_namespace::contract::*;
use diecut_nvme::fabrics::{ConnectCommand, ConnectData, PropertyCommand};
use diecut_nvme::property::{Configuration, offset};
use diecut_nvme::tcp::*;
use diecut_nvme::{
    QualifiedName, SglDescriptor, Status, SubmissionEntry, io::DatasetManagement, io::DatasetRange, opcode,
};
use diecut_target::*;
use diecut_units::{Buffer, ContentMode, Span, Time, checksum_append, mark};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use zerocopy::{FromBytes, IntoBytes};

const QUEUE_ENTRIES: u16 = 64;
const IN_CAPSULE_BYTES_MAX: usize = 8192;

/// How far a host's connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Tries again then.
    Down(Time),
    AdminInitialize,
    AdminConnect,
    Enable,
    AwaitReady,
    IoInitialize,
    IoConnect,
    Ready,
}

struct UnderWay {
    token: HostToken,
    /// What R2Ts are served from.
    outgoing: Vec<u8>,
    /// What C2HData brought.
    incoming: Vec<u8>,
}

struct Host {
    stage: Stage,
    admin: Option<Link>,
    io: Option<Link>,
    controller: u16,
    next_command_id: u16,
    under_way: BTreeMap<u16, UnderWay>,
    /// Neither reads nor writes until then.
    stalled_until: Time,
    digests: Digests,
    volumes: Vec<VolumeNumber>,
}

/// The target and its hosts.
pub struct Transport {
    mode: ContentMode,
    smooth: bool,
    random: Xoshiro256PlusPlus,
    target: Option<Target>,
    subsystems: Vec<SubsystemConfig>,
    hosts: Vec<Host>,
    /// Streams that their host has given up; what was sent still arrives before the target hears of it.
    orphans: Vec<Link>,
    store: BTreeMap<(u32, u64), Vec<u8>>,
    executing: BTreeMap<(Time, u64), NamespaceCommand>,
    executed: u64,
    answers: Vec<HostAnswer>,
    next_link: u64,
    next_execution: u64,
    cut_at: u64,
    powered: bool,
    now: Time,
}

fn name(text: &str) -> QualifiedName {
    QualifiedName::new(text).expect("a fixed form")
}

fn host_name(lane: usize) -> QualifiedName {
    name(&format!("nqn.2014-08.org.nvmexpress:uuid:host-{lane}"))
}

impl Transport {
    /// A fresh target for a plan, its hosts about to connect.
    pub fn new(plan: &Plan) -> Transport {
        let mode = match plan.system.content {
            ContentKind::Bytes => ContentMode::Bytes,
            ContentKind::Tags => ContentMode::Tags,
        };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x7463_7020);
        let mut subsystems = Vec::new();
        let mut hosts = Vec::new();
        for (lane, tenant) in plan.tenants.iter().enumerate() {
            let namespaces = tenant.volumes.iter().enumerate().map(|(index, volume)| {
                let properties = NamespaceProperties {
                    size_lbas: volume.iu_count,
                    capacity_lbas: volume.iu_count,
                    used_lbas: 0,
                    lba_size_log2: 12,
                    transfer_max_lbas: 256,
                    volatile_cache: false,
                    preferred_write_lbas: 4,
                    read_only: false,
                };
                let namespace = NamespaceId(u32::from(volume.number.0));
                let identity = [volume.number.0; 16];
                (
                    index as u32 + 1,
                    NamespaceConfig { namespace, uuid: identity, nguid: identity, properties, content: mode },
                )
            });
            subsystems.push(SubsystemConfig {
                nqn: name(&format!("nqn.2026-11.example:tenant-{lane}")),
                serial: format!("S{lane}"),
                model: "diecut".to_owned(),
                allow_any_host: false,
                allowed_hosts: [host_name(lane)].into(),
                namespaces: namespaces.collect(),
                home: Home::Here,
            });
            let digests = Digests { header: random.random_ratio(1, 2), data: random.random_ratio(1, 2) };
            hosts.push(Host {
                stage: Stage::Down(Time::ZERO),
                admin: None,
                io: None,
                controller: 0,
                next_command_id: 0,
                under_way: BTreeMap::new(),
                stalled_until: Time::ZERO,
                digests,
                volumes: tenant.volumes.iter().map(|volume| volume.number).collect(),
            });
        }
        let mut transport = Transport {
            mode,
            smooth: plan.system.smooth_network,
            random,
            target: None,
            subsystems,
            hosts,
            orphans: Vec::new(),
            store: BTreeMap::new(),
            executing: BTreeMap::new(),
            executed: 0,
            answers: Vec::new(),
            next_link: 1,
            next_execution: 0,
            cut_at: u64::MAX,
            powered: true,
            now: Time::ZERO,
        };
        transport.start();
        transport
    }

    fn start(&mut self) {
        let config = TargetConfig {
            advertised: vec!["192.0.2.1:4420".parse().expect("an address")],
            h2c_data_bytes_max: 16384,
            ..TargetConfig::default()
        };
        let mut target = Target::new(config);
        let mut actions = Vec::new();
        for subsystem in &self.subsystems {
            target.set_subsystem(subsystem.clone(), self.now, &mut actions);
        }
        assert!(actions.is_empty(), "nobody is connected");
        self.target = Some(target);
        self.powered = true;
    }

    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        let target = self.target.as_mut().expect("events come while it runs");
        target.handle(event, self.now, &mut actions);
        let mut rounds = 0;
        while target.has_work() {
            target.handle(Event::Round, self.now, &mut actions);
            rounds += 1;
            assert!(rounds < 100_000, "the target's rounds do not end");
        }
        for action in actions {
            self.act(action);
        }
    }

    fn link(&mut self, id: ConnectionId) -> Option<&mut Link> {
        let of_hosts = self.hosts.iter_mut().flat_map(|host| host.admin.iter_mut().chain(host.io.iter_mut()));
        of_hosts.chain(self.orphans.iter_mut()).find(|link| link.id == id)
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Submit(command) => {
                let delay = match self.random.random_range(0..50) {
                    0 => self.random.random_range(1_000..60_000),
                    _ => self.random.random_range(5..500),
                };
                self.next_execution += 1;
                self.executing.insert((self.now + Span::from_micros(delay), self.next_execution), command);
            }
            Action::Transmit(id) => self.transmit(id),
            Action::Close(id) => {
                self.transmit(id);
                if let Some(link) = self.link(id) {
                    link.closing = true;
                }
            }
            Action::Pause(id) => {
                mark!("transport: target pauses a stream");
                if let Some(link) = self.link(id) {
                    link.paused = true;
                }
            }
            Action::Resume(id) => {
                if let Some(link) = self.link(id) {
                    link.paused = false;
                }
            }
            Action::HandOver(..) => panic!("one shard has nobody to hand over to"),
        }
    }

    fn transmit(&mut self, id: ConnectionId) {
        let mut actions = Vec::new();
        loop {
            let target = self.target.as_mut().expect("it acts while it runs");
            let Some(outbox) = target.outbox(id).filter(|outbox| !outbox.is_empty()) else { break };
            let mut bytes = vec![0; outbox.len_bytes().min(1 << 20)];
            let copied = outbox.copy_to(&mut bytes);
            target.sent(id, copied, &mut actions);
            let (now, smooth) = (self.now, self.smooth);
            let mut random = self.random.clone();
            if let Some(link) = self.link(id) {
                link.to_host.send(&bytes[..copied], now, smooth, &mut random);
            }
            self.random = random;
        }
        for action in actions {
            self.act(action);
        }
    }

    /// Executes a namespace command on the store and tells the target.
    fn execute(&mut self, command: NamespaceCommand) {
        self.executed += 1;
        if self.executed > self.cut_at {
            self.powered = false;
            return;
        }
        let size = self.mode.bytes_per_iu();
        let namespace = command.namespace.0;
        let lbas = |range: LbaRange| range.first_lba..range.first_lba + u64::from(range.lba_count);
        let mut data = None;
        let mut result = Ok(());
        match command.operation {
            NamespaceOperation::Read { range, mut destination } => {
                for (lba, bytes) in lbas(range).zip(destination.chunks_exact_mut(size)) {
                    match self.store.get(&(namespace, lba)) {
                        Some(content) => bytes.copy_from_slice(content),
                        None => bytes.fill(0),
                    }
                }
                data = Some(destination.freeze());
            }
            NamespaceOperation::Write { range, data, .. } => {
                for (lba, bytes) in lbas(range).zip(data.chunks_exact(size)) {
                    self.store.insert((namespace, lba), bytes.to_vec());
                }
            }
            NamespaceOperation::WriteZeroes { range, .. } => {
                lbas(range).for_each(|lba| drop(self.store.remove(&(namespace, lba))));
            }
            NamespaceOperation::Deallocate { ranges } => {
                for range in ranges {
                    lbas(range).for_each(|lba| drop(self.store.remove(&(namespace, lba))));
                }
            }
            NamespaceOperation::Compare { range, data } => {
                let zeros = vec![0; size];
                let differs = lbas(range)
                    .zip(data.chunks_exact(size))
                    .any(|(lba, bytes)| self.store.get(&(namespace, lba)).unwrap_or(&zeros) != bytes);
                if differs {
                    result = Err(NamespaceError::CompareFailure);
                }
            }
            NamespaceOperation::Flush | NamespaceOperation::Verify { .. } => {}
        }
        self.tell(Event::Completed(NamespaceCompletion { token: command.token, result, data }));
    }

    /// The host gives up both streams and will try again.
    fn drop_connection(&mut self, lane: usize, retry_at: Time) {
        let host = &mut self.hosts[lane];
        if !host.under_way.is_empty() {
            mark!("transport: connection lost with commands under way");
        }
        for (_, under_way) in std::mem::take(&mut host.under_way) {
            let result = Err(HostError::ConnectionLost);
            self.answers.push(HostAnswer { lane: Lane(lane as u8), token: under_way.token, result });
        }
        self.orphans.extend(host.admin.take().into_iter().chain(host.io.take()));
        host.stage = Stage::Down(retry_at);
    }

    fn open(&mut self) -> Link {
        let link = Link::new(ConnectionId(self.next_link));
        self.next_link += 1;
        self.tell(Event::Accepted(link.id));
        link
    }

    fn send(&mut self, lane: usize, admin: bool, bytes: &[u8]) {
        let host = &mut self.hosts[lane];
        let link = if admin { &mut host.admin } else { &mut host.io };
        let link = link.as_mut().expect("the stage has this stream");
        link.to_target.send(bytes, self.now, self.smooth, &mut self.random);
    }

    fn send_connect(&mut self, lane: usize, admin: bool) {
        let (queue, controller) = if admin { (0, 0xFFFF) } else { (1, self.hosts[lane].controller) };
        let entries = if admin { 32 } else { QUEUE_ENTRIES };
        let connect = ConnectCommand::new(0, queue, entries - 1, 0);
        let nqn = self.subsystems[lane].nqn.clone();
        let data = ConnectData::new([lane as u8 + 1; 16], controller, &nqn, &host_name(lane));
        let host = &self.hosts[lane];
        let link = if admin { &host.admin } else { &host.io };
        let bytes = link.as_ref().expect("open").capsule(connect.entry(), data.as_bytes());
        self.send(lane, admin, &bytes);
    }

    fn send_admin(&mut self, lane: usize, entry: SubmissionEntry) {
        let bytes = self.hosts[lane].admin.as_ref().expect("open").capsule(entry, &[]);
        self.send(lane, true, &bytes);
    }

    fn take_pdu(&mut self, lane: usize, pdu: Pdu) {
        let stage = self.hosts[lane].stage;
        let response = (pdu.kind == pdu_type::CAPSULE_RESPONSE)
            .then(|| CapsuleResponse::read_from_bytes(&pdu.header).expect("whole").entry);
        let refused = response.is_some_and(|entry| !entry.status().is_success());
        match stage {
            Stage::AdminInitialize | Stage::IoInitialize => {
                let answer = InitializeResponse::read_from_bytes(&pdu.header).expect("an ICResp");
                let host = &mut self.hosts[lane];
                answer.validate(host.digests).expect("it agrees");
                let admin = stage == Stage::AdminInitialize;
                let link = if admin { &mut host.admin } else { &mut host.io };
                link.as_mut().expect("open").digests = host.digests;
                host.stage = if admin { Stage::AdminConnect } else { Stage::IoConnect };
                self.send_connect(lane, admin);
            }
            Stage::AdminConnect | Stage::IoConnect if refused => {
                // Busy with the old association, say: try again.
                mark!("transport: Connect refused");
                let retry_at = self.now + Span::from_millis(20);
                self.drop_connection(lane, retry_at);
            }
            Stage::AdminConnect => {
                self.hosts[lane].controller = response.expect("a response").result() as u16;
                self.hosts[lane].stage = Stage::Enable;
                let enable = Configuration::enable(6).0;
                self.send_admin(lane, PropertyCommand::set(0, offset::CC, enable).entry());
            }
            Stage::Enable => {
                assert!(!refused, "CC.EN is accepted");
                self.hosts[lane].stage = Stage::AwaitReady;
                self.send_admin(lane, PropertyCommand::get(0, offset::CSTS, false).entry());
            }
            Stage::AwaitReady => {
                let ready = response.expect("a response").result() & 1 == 1;
                if ready {
                    self.hosts[lane].stage = Stage::IoInitialize;
                    let link = self.open();
                    self.hosts[lane].io = Some(link);
                    let request = InitializeRequest::new(self.hosts[lane].digests);
                    self.send(lane, false, request.as_bytes());
                } else {
                    self.send_admin(lane, PropertyCommand::get(0, offset::CSTS, false).entry());
                }
            }
            Stage::IoConnect => self.hosts[lane].stage = Stage::Ready,
            Stage::Ready => self.take_io_pdu(lane, pdu),
            Stage::Down(_) => {}
        }
    }

    fn take_io_pdu(&mut self, lane: usize, pdu: Pdu) {
        match pdu.kind {
            pdu_type::READY_TO_TRANSFER => {
                mark!("transport: R2T");
                let request = ReadyToTransfer::read_from_bytes(&pdu.header).expect("whole");
                let host = &self.hosts[lane];
                let (start, length) = (request.offset.get() as usize, request.length.get() as usize);
                let data = &host.under_way[&request.command_id.get()].outgoing[start..start + length];
                let link = host.io.as_ref().expect("open");
                let mut bytes = Vec::new();
                let mut at = 0;
                while at < length {
                    let part = 16384.min(length - at);
                    let last = at + part == length;
                    bytes.extend(link.data(
                        request.command_id.get(),
                        request.transfer_tag.get(),
                        (start + at) as u32,
                        &data[at..at + part],
                        last,
                    ));
                    at += part;
                }
                self.send(lane, false, &bytes);
            }
            pdu_type::C2H_DATA => {
                let header = DataToHost::read_from_bytes(&pdu.header).expect("whole");
                let id = header.command_id.get();
                let under_way =
                    self.hosts[lane].under_way.get_mut(&id).expect("data for a command under way");
                under_way.incoming.extend_from_slice(&pdu.data);
                if header.is_success() {
                    self.answer(lane, id, Status::SUCCESS);
                }
            }
            pdu_type::CAPSULE_RESPONSE => {
                let entry = CapsuleResponse::read_from_bytes(&pdu.header).expect("whole").entry;
                self.answer(lane, entry.command_id.get(), entry.status());
            }
            _ => {
                mark!("transport: target ends a connection");
                let retry_at = self.now + Span::from_millis(1);
                self.drop_connection(lane, retry_at);
            }
        }
    }

    fn answer(&mut self, lane: usize, command_id: u16, status: Status) {
        let under_way =
            self.hosts[lane].under_way.remove(&command_id).expect("an answer to a command under way");
        let result = if status.is_success() {
            Ok(under_way.incoming)
        } else if status.same_code(Status::COMPARE_FAILURE) {
            Err(HostError::CompareFailure)
        } else {
            Err(HostError::Other(status.to_string()))
        };
        self.answers.push(HostAnswer { lane: Lane(lane as u8), token: under_way.token, result });
    }

    /// Delivers what is due; returns whether anything was.
    fn deliver(&mut self) -> bool {
        let mut moved = false;
        let now = self.now;
        for lane in 0..self.hosts.len() {
            if self.hosts[lane].stalled_until > now {
                continue;
            }
            if let Stage::Down(at) = self.hosts[lane].stage
                && at <= now
            {
                moved = true;
                self.hosts[lane].stage = Stage::AdminInitialize;
                let link = self.open();
                self.hosts[lane].admin = Some(link);
                let request = InitializeRequest::new(self.hosts[lane].digests);
                self.send(lane, true, request.as_bytes());
            }
            for admin in [true, false] {
                let host = &mut self.hosts[lane];
                let slot = if admin { &mut host.admin } else { &mut host.io };
                let Some(link) = slot else { continue };
                let id = link.id;
                if !link.paused
                    && let Some(bytes) = link.to_target.receive(now)
                {
                    moved = true;
                    self.tell(Event::Received(id, Buffer::copy_from(&bytes)));
                }
                let host = &mut self.hosts[lane];
                let slot = if admin { &mut host.admin } else { &mut host.io };
                let Some(link) = slot else { continue };
                let mut pdus = Vec::new();
                if let Some(bytes) = link.to_host.receive(now) {
                    moved = true;
                    link.parse(&bytes, &mut pdus);
                }
                let closed = link.closing && link.to_host.is_empty();
                for pdu in pdus {
                    self.take_pdu(lane, pdu);
                }
                if closed && !matches!(self.hosts[lane].stage, Stage::Down(_)) {
                    moved = true;
                    self.drop_connection(lane, now + Span::from_millis(1));
                }
            }
        }
        // Abandoned streams: what was sent still arrives, then the target hears of the end.
        let mut index = 0;
        while index < self.orphans.len() {
            let orphan = &mut self.orphans[index];
            let id = orphan.id;
            if orphan.to_target.is_empty() || orphan.paused {
                self.orphans.remove(index);
                self.tell(Event::Closed(id));
                moved = true;
                continue;
            }
            if let Some(bytes) = orphan.to_target.receive(now) {
                moved = true;
                self.tell(Event::Received(id, Buffer::copy_from(&bytes)));
            }
            index += 1;
        }
        moved
    }
}

impl System for Transport {
    fn content_mode(&self) -> ContentMode {
        self.mode
    }
    fn transfer_max_ius(&self) -> u32 {
        256
    }
    fn is_connected(&self, lane: Lane) -> bool {
        let host = &self.hosts[lane.0 as usize];
        self.powered && host.stage == Stage::Ready && host.under_way.len() + 1 < QUEUE_ENTRIES as usize
    }
    fn submit(&mut self, lane: Lane, token: HostToken, command: HostCommand, now: Time) {
        self.now = now;
        let host = &mut self.hosts[lane.0 as usize];
        let mut id = host.next_command_id;
        while host.under_way.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        host.next_command_id = id.wrapping_add(1);
        let nsid =
            |volume| host.volumes.iter().position(|v| *v == volume).expect("its own volume") as u32 + 1;
        let size = self.mode.bytes_per_iu() as u32;
        let mut entry =
            SubmissionEntry { flags: 1 << 6, command_id: id.into(), ..SubmissionEntry::default() };
        let mut outgoing = Vec::new();
        let lbas = |entry: &mut SubmissionEntry, code: u8, range: Range, fua: bool| {
            entry.opcode = code;
            entry.nsid = nsid(range.volume).into();
            diecut_nvme::io::LbaRange {
                start: range.first,
                count: range.count,
                force_unit_access: fua,
                protection: 0,
                limited_retry: false,
                deallocate: false,
                storage_tag_check: false,
                directive_type: 0,
            }
            .encode(entry);
        };
        match command {
            HostCommand::Read(range) => {
                lbas(&mut entry, opcode::io::READ, range, false);
                entry.sgl = SglDescriptor::transport(range.count * size);
            }
            HostCommand::Write(range, data, fua) => {
                lbas(&mut entry, opcode::io::WRITE, range, fua);
                outgoing = data;
            }
            HostCommand::Compare(range, data) => {
                lbas(&mut entry, opcode::io::COMPARE, range, false);
                outgoing = data;
            }
            HostCommand::WriteZeroes(range, fua) => lbas(&mut entry, opcode::io::WRITE_ZEROES, range, fua),
            HostCommand::Verify(range) => lbas(&mut entry, opcode::io::VERIFY, range, false),
            HostCommand::Flush(volume) => {
                entry.opcode = opcode::io::FLUSH;
                entry.nsid = nsid(volume).into();
            }
            HostCommand::Deallocate(range) => {
                entry.opcode = opcode::io::DATASET_MANAGEMENT;
                entry.nsid = nsid(range.volume).into();
                DatasetManagement { range_count: 1, deallocate: true }.encode(&mut entry);
                let range = DatasetRange {
                    context_attributes: 0.into(),
                    lba_count: range.count.into(),
                    start: range.first.into(),
                };
                outgoing = range.as_bytes().to_vec();
            }
        }
        let in_capsule = !outgoing.is_empty() && outgoing.len() <= IN_CAPSULE_BYTES_MAX;
        if in_capsule {
            entry.sgl = SglDescriptor::in_capsule(outgoing.len() as u32);
        } else if !outgoing.is_empty() {
            entry.sgl = SglDescriptor::transport(outgoing.len() as u32);
        }
        let link = host.io.as_ref().expect("connected");
        let bytes = link.capsule(entry, if in_capsule { &outgoing } else { &[] });
        host.under_way.insert(id, UnderWay { token, outgoing, incoming: Vec::new() });
        self.send(lane.0 as usize, false, &bytes);
    }
    fn advance(&mut self, now: Time, answers: &mut Vec<HostAnswer>) {
        self.now = now;
        while self.powered {
            let mut moved = self.deliver();
            while self.powered
                && let Some(entry) = self.executing.first_entry()
                && entry.key().0 <= now
            {
                let command = entry.remove();
                self.execute(command);
                moved = true;
            }
            if self.powered && self.target.as_ref().is_some_and(|target| target.deadline() <= now) {
                self.tell(Event::Tick);
            }
            if !moved {
                break;
            }
        }
        answers.append(&mut self.answers);
    }
    fn next_event(&self) -> Time {
        if !self.powered {
            return self.now;
        }
        let mut next = self.executing.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at);
        for host in &self.hosts {
            let mut own = if let Stage::Down(at) = host.stage { at } else { Time::NEVER };
            for link in host.admin.iter().chain(&host.io) {
                own = own.min(link.to_host.next_arrival());
                if !link.paused {
                    own = own.min(link.to_target.next_arrival());
                }
            }
            next = next.min(own.max(host.stalled_until));
        }
        for orphan in &self.orphans {
            next = next.min(orphan.to_target.next_arrival());
        }
        next.min(self.target.as_ref().map_or(Time::NEVER, Target::deadline)).max(self.now)
    }
    fn disconnect(&mut self, lane: Lane, now: Time) {
        self.now = now;
        let retry_at = now + Span::from_micros(self.random.random_range(1..3000));
        self.drop_connection(lane.0 as usize, retry_at);
    }
    fn stall(&mut self, lane: Lane, until: Time) {
        self.hosts[lane.0 as usize].stalled_until = until;
    }
    fn crash(&mut self, _crash: Crash, now: Time) {
        self.now = now;
        self.target = None;
        self.executing.clear();
        self.answers.clear();
        self.orphans.clear();
        for host in &mut self.hosts {
            host.admin = None;
            host.io = None;
            host.under_way.clear();
            host.stalled_until = Time::ZERO;
            host.stage = Stage::Down(Time::NEVER);
        }
        self.powered = false;
        self.cut_at = u64::MAX;
    }
    fn power_is_lost(&self) -> bool {
        !self.powered
    }
    fn media_operations(&self) -> u64 {
        self.executed
    }
    fn cut_power_at(&mut self, media_operation: u64) {
        self.cut_at = media_operation;
    }
    fn restart(&mut self, now: Time) -> Result<(), String> {
        self.now = now;
        self.start();
        for host in &mut self.hosts {
            host.stage = Stage::Down(now + Span::from_millis(1));
        }
        Ok(())
    }
    fn is_at_rest(&self) -> bool {
        self.executing.is_empty()
            && self.orphans.is_empty()
            && self.hosts.iter().all(|host| host.under_way.is_empty())
    }
    fn accounting(&self) -> Option<Accounting> {
        None
    }
    fn image_hash(&self) -> u64 {
        let hash = self.store.iter().fold(0, |hash, ((namespace, lba), content)| {
            let hash = checksum_append(checksum_append(hash, &namespace.to_le_bytes()), &lba.to_le_bytes());
            checksum_append(hash, content)
        });
        u64::from(hash)
    }
    fn check_invariants(&self) {
        let target = self.target.as_ref().expect("checked while it runs");
        let associations = target.associations().len();
        assert!(
            associations <= self.hosts.len(),
            "{associations} associations of {} hosts",
            self.hosts.len()
        );
    }
}
