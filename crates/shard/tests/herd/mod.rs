//! Several shards over one device in virtual time: messages between them, connections that are handed over, hosts with
//! queue pairs of their own, all in an order that a seed chooses. Every host knows what it was promised.

use diecut_emulator::{Backing, Device, Options, Pacing, Profile};
use diecut_initiator::*;
use diecut_nvme::{QualifiedName, Status as NvmeStatus, SubmissionEntry, opcode};
use diecut_shard::control::*;
use diecut_shard::drive::*;
use diecut_shard::panics::PanicRecord;
use diecut_shard::{PoolConfig, Seat, Shard, ShardConfig, divide, gather};
use diecut_spec::{Isolation, Size};
use diecut_testing::Random;
use diecut_units::{Buffer, Span, Time};
use std::collections::{BTreeMap, VecDeque};

/// LBAs that a host writes.
const LBAS: u64 = 96;
const DEPTH: u16 = 6;

/// A stream between a host and whichever shard has it.
struct Stream {
    /// None while it is handed over.
    shard: Option<usize>,
    to_server: VecDeque<u8>,
    to_host: VecDeque<u8>,
    wants_write: bool,
    paused: bool,
    gone: bool,
}

enum Carried {
    Told(usize, ShardMessage),
    Adopted(ConnectionId, Box<MovedConnection>),
    Application(BlockSession, Box<MovedEntries>),
}

pub struct Herd {
    pub shards: Vec<Shard<Device>>,
    config: ShardConfig,
    /// What is under way between two shards, in order.
    links: BTreeMap<(usize, usize), VecDeque<(Time, Carried)>>,
    streams: BTreeMap<u64, Stream>,
    next_stream: u64,
    pub now: Time,
    pub random: Random,
    answers: BTreeMap<u64, ControlResponse>,
    next_token: u64,
    /// Connections that changed their shard.
    pub handed_over: u32,
    actions: Vec<Action>,
    /// What shards said to applications at erase blocks.
    pub told_applications: Vec<BlockAction>,
    /// Where applications are attached; nowhere while they move.
    pub applications: BTreeMap<BlockSession, Option<usize>>,
    /// Of everything that happened.
    pub trace: u64,
}

pub fn device(seed: u64) -> Device {
    device_with(seed, Backing::Tags)
}

pub fn device_with(seed: u64, backing: Backing) -> Device {
    let options = Options { backing, pacing: Pacing::Modelled, seed, ..Options::default() };
    let mut profile = Profile::named("tiny").unwrap();
    profile.protected_memory_bytes = 8 << 20;
    profile.geometry.channels = 4;
    profile.geometry.blocks_per_plane = 100;
    Device::create(&profile, options).unwrap()
}

impl Herd {
    pub fn new(device: Device, shards: u16, seed: u64, now: Time) -> Herd {
        let pool = PoolConfig::suited_to(diecut_media::Media::geometry(&device));
        let config = ShardConfig { pool, staging_bytes_per_vssd: 256 << 10, ..ShardConfig::default() };
        let open = |(seat, part): (Seat, Device)| Shard::seated(part, config.clone(), seat, now);
        let mut herd = Herd {
            shards: divide(device, shards).into_iter().map(open).collect(),
            config: config.clone(),
            links: BTreeMap::new(),
            streams: BTreeMap::new(),
            next_stream: 0,
            now,
            random: Random::of(seed),
            answers: BTreeMap::new(),
            next_token: 0,
            handed_over: 0,
            actions: Vec::new(),
            told_applications: Vec::new(),
            applications: BTreeMap::new(),
            trace: 0,
        };
        for _ in 0..200_000 {
            if herd.shards.iter().all(Shard::is_ready) {
                return herd;
            }
            assert_eq!(herd.shards[0].failure(), None, "seed {seed}");
            herd.step();
        }
        panic!("seed {seed}: the shards never opened");
    }

    /// The process dies, or the power goes; what is left is the device.
    pub fn end(self, power_cut: bool) -> (Device, Time) {
        let now = self.now;
        let mut shards = self.shards;
        for shard in &mut shards {
            if power_cut { shard.media_mut().power_cut(now) } else { shard.media_mut().process_death(now) }
        }
        let told = self.links.into_values().flatten().filter_map(|(_, carried)| match carried {
            Carried::Told(_, message) => Some(message),
            Carried::Adopted(..) | Carried::Application(..) => None,
        });
        let mut device = gather(shards, told);
        if power_cut {
            device.power_on();
        }
        (device, now)
    }

    /// A shard that is not the first one fails between two turns, and begins again by itself. Its streams are gone, and its applications.
    pub fn fail(&mut self, at: usize) {
        self.applications.retain(|_, home| *home != Some(at));
        for stream in self.streams.values_mut().filter(|stream| stream.shard == Some(at)) {
            (stream.shard, stream.gone) = (None, true);
        }
        let failed = self.shards.remove(at);
        let next = Shard::again(failed.into_remains(Vec::new()), self.config.clone(), self.now);
        self.shards.insert(at, next);
    }

    /// As [`Herd::fail`]; the next life knows of these failures.
    pub fn fail_with(&mut self, at: usize, panics: &[PanicRecord]) {
        self.config.panics = panics.into();
        self.fail(at);
    }

    fn note(&mut self, what: u64) {
        self.trace = (self.trace ^ what ^ self.now.0).wrapping_mul(0x100_0000_01b3);
    }

    fn act(&mut self, at: usize) {
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Transmit { connection } => {
                    self.streams.get_mut(&connection.0).unwrap().wants_write = true;
                }
                Action::Close { connection } => self.streams.get_mut(&connection.0).unwrap().gone = true,
                Action::Pause { connection } => self.streams.get_mut(&connection.0).unwrap().paused = true,
                Action::Resume { connection } => self.streams.get_mut(&connection.0).unwrap().paused = false,
                Action::HandOver { connection, to, state } => {
                    let stream = self.streams.get_mut(&connection.0).unwrap();
                    assert_eq!(stream.shard, Some(at), "only its shard gives a connection away");
                    stream.shard = None;
                    stream.wants_write = false;
                    self.handed_over += 1;
                    self.carry(at, to.0.into(), Carried::Adopted(connection, state));
                }
                Action::Blocks(BlockAction::HandOver { session, to, state }) => {
                    // One that hung up has no rings to give away.
                    if let Some(home) = self.applications.get_mut(&session) {
                        assert_eq!(home.take(), Some(at), "only its shard gives an application away");
                        self.carry(at, to.0.into(), Carried::Application(session, state));
                    }
                }
                Action::Blocks(action) => {
                    if let BlockAction::Attached { session, .. } = &action {
                        self.applications.insert(*session, Some(at));
                    }
                    self.told_applications.push(action);
                }
                Action::Tell { to, message } => self.carry(at, to.0.into(), Carried::Told(at, message)),
                Action::Notice(_) => {}
                Action::BeginAnew => unreachable!("no shard fails"),
                Action::Io(..) => unreachable!("the device is in memory"),
                Action::Answer { token, response } => {
                    assert!(self.answers.insert(token.0, *response).is_none(), "answered once");
                }
            }
        }
    }

    fn carry(&mut self, from: usize, to: usize, what: Carried) {
        let after = self.now + Span(self.random.below(40_000));
        let link = self.links.entry((from, to)).or_default();
        let due = link.back().map_or(after, |(due, _)| after.max(*due));
        link.push_back((due, what));
    }

    /// One round of everything that can happen now; else time goes on to what happens next.
    pub fn step(&mut self) {
        let mut worked = self.deliver();
        worked |= self.move_bytes();
        let first = self.random.below(self.shards.len() as u64) as usize;
        for turn in 0..self.shards.len() {
            let at = (first + turn) % self.shards.len();
            if self.shards[at].deadline() <= self.now {
                let mut actions = std::mem::take(&mut self.actions);
                self.shards[at].work(self.now, &mut actions);
                self.actions = actions;
                self.act(at);
                self.note(at as u64 + 1);
                worked = true;
            }
        }
        if !worked {
            let shards = self.shards.iter().map(|shard| shard.deadline()).min().unwrap();
            let links = self.links.values().filter_map(|link| link.front().map(|(due, _)| *due)).min();
            let next = shards.min(links.unwrap_or(Time::NEVER)).min(self.now + Span::from_millis(1));
            self.now = next.max(self.now + Span(1));
        }
    }

    fn deliver(&mut self) -> bool {
        let mut worked = false;
        let keys: Vec<(usize, usize)> = self.links.keys().copied().collect();
        for (from, to) in keys {
            let link = self.links.get_mut(&(from, to)).unwrap();
            if link.front().is_none_or(|(due, _)| *due > self.now) {
                continue;
            }
            let (_, carried) = link.pop_front().unwrap();
            worked = true;
            let event = match carried {
                Carried::Told(from, message) => Event::Told { from: ShardIndex(from as u16), message },
                Carried::Adopted(connection, state) => {
                    self.streams.get_mut(&connection.0).unwrap().shard = Some(to);
                    Event::Adopted { connection, state }
                }
                Carried::Application(session, state) => {
                    self.applications.insert(session, Some(to));
                    Event::Blocks(BlockEvent::Adopted { session, state })
                }
            };
            self.tell(to, event);
        }
        worked
    }

    pub fn tell(&mut self, at: usize, event: Event) {
        let mut actions = std::mem::take(&mut self.actions);
        self.shards[at].handle(event, self.now, &mut actions);
        self.actions = actions;
        self.act(at);
    }

    /// Pieces of streams, both ways.
    fn move_bytes(&mut self) -> bool {
        let mut worked = false;
        let ids: Vec<u64> = self.streams.keys().copied().collect();
        for id in ids {
            let stream = self.streams.get_mut(&id).unwrap();
            let Some(at) = stream.shard else { continue };
            let connection = ConnectionId(id);
            if !stream.to_server.is_empty() && !stream.paused && !stream.gone {
                let len = (1 + self.random.below(700)).min(stream.to_server.len() as u64) as usize;
                let bytes: Vec<u8> = stream.to_server.drain(..len).collect();
                let event = match self.shards[at].receive_window(connection) {
                    Some(window) => {
                        let len_bytes = len.min(window.len());
                        window[..len_bytes].copy_from_slice(&bytes[..len_bytes]);
                        for byte in bytes[len_bytes..].iter().rev() {
                            stream.to_server.push_front(*byte);
                        }
                        Event::ReceivedInWindow { connection, len_bytes }
                    }
                    None => Event::Received { connection, bytes: Buffer::copy_from(&bytes) },
                };
                self.tell(at, event);
                self.note(id << 8);
                worked = true;
            }
            let stream = self.streams.get_mut(&id).unwrap();
            if !stream.wants_write || stream.shard != Some(at) {
                continue;
            }
            let Some(outbox) = self.shards[at].outbox(connection).filter(|outbox| !outbox.is_empty()) else {
                stream.wants_write = false;
                continue;
            };
            let mut bytes = vec![0; outbox.len_bytes()];
            outbox.copy_to(&mut bytes);
            let len = (1 + self.random.below(900)).min(bytes.len() as u64) as usize;
            stream.to_host.extend(&bytes[..len]);
            let mut actions = std::mem::take(&mut self.actions);
            self.shards[at].sent(connection, len, &mut actions);
            self.actions = actions;
            self.act(at);
            worked = true;
        }
        worked
    }

    /// A host dials; any shard takes the connection.
    fn dial(&mut self) -> u64 {
        self.next_stream += 1;
        let id = self.next_stream;
        let at = self.random.below(self.shards.len() as u64) as usize;
        let stream = Stream {
            shard: Some(at),
            to_server: VecDeque::new(),
            to_host: VecDeque::new(),
            wants_write: false,
            paused: false,
            gone: false,
        };
        self.streams.insert(id, stream);
        self.tell(at, Event::Accepted { connection: ConnectionId(id), local: None });
        id
    }

    /// The host hangs up; not before a hand-over is through.
    fn hang_up(&mut self, id: u64) {
        for _ in 0..100_000 {
            if let Some(at) = self.streams[&id].shard {
                self.tell(at, Event::Closed { connection: ConnectionId(id) });
                self.streams.get_mut(&id).unwrap().gone = true;
                return;
            }
            self.step();
        }
        panic!("a hand-over never ends");
    }

    pub fn begin(&mut self, request: ControlRequest) -> u64 {
        self.next_token += 1;
        let token = ControlToken(self.next_token);
        self.tell(0, Event::Control { token, request: Box::new(request) });
        token.0
    }

    pub fn answer(&mut self, token: u64) -> Option<ControlResponse> {
        self.answers.remove(&token)
    }

    pub fn ask(&mut self, request: ControlRequest) -> ControlResponse {
        let token = self.begin(request.clone());
        for _ in 0..200_000 {
            if let Some(response) = self.answer(token) {
                return response;
            }
            self.step();
        }
        panic!("{request:?} was never answered");
    }

    pub fn done(&mut self, request: ControlRequest) {
        let answer = self.ask(request.clone());
        let is_so = matches!(answer, ControlResponse::Done | ControlResponse::Unchanged);
        assert!(is_so, "{request:?}: {answer:?}");
    }

    pub fn status(&mut self) -> Status {
        match self.ask(ControlRequest::Status) {
            ControlResponse::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// Whether nothing is under way between shards.
    pub fn is_silent(&self) -> bool {
        self.links.values().all(VecDeque::is_empty)
    }

    /// Connections that hosts opened so far.
    pub fn streams_opened(&self) -> u64 {
        self.next_stream
    }

    /// The shard that a vSSD lives on, as administrators are told.
    pub fn home(&mut self, vssd: &str) -> usize {
        let status = self.status();
        let vssd = status.vssds.iter().find(|one| one.spec.name == vssd).unwrap();
        usize::from(vssd.shard.unwrap_or(0))
    }

    /// A tenant with one vSSD, one volume and one subsystem.
    pub fn add_tenant(&mut self, name: &str, isolation: Isolation, level: u32) {
        self.done(ControlRequest::CreateTenant(TenantSpec::new(name)));
        self.done(ControlRequest::CreateVssd(vssd(name, name, isolation, level)));
        self.done(ControlRequest::CreateVolume(volume(name)));
        self.done(ControlRequest::CreateSubsystem(subsystem(name)));
    }
}

pub fn vssd(name: &str, tenant: &str, isolation: Isolation, throughput_level: u32) -> VssdSpec {
    VssdSpec {
        throughput_level,
        capacity: Size(4 << 20),
        ..VssdSpec::new(&format!("vssd-{name}"), tenant, isolation, 280)
    }
}

pub fn volume(name: &str) -> VolumeSpec {
    let vssd = format!("vssd-{name}");
    VolumeSpec::new(&format!("volume-{name}"), &vssd, Size(1 << 20))
}

pub fn subsystem(name: &str) -> SubsystemSpec {
    SubsystemSpec {
        nqn: format!("nqn.2026-11.org.diecut:{name}"),
        tenant: name.to_owned(),
        serial: None,
        model: None,
        allow_any_host: true,
        allowed_hosts: Vec::new(),
        paths: Vec::new(),
        namespaces: vec![NamespaceSpec::new(1, &format!("volume-{name}"))],
    }
}

#[derive(Clone, Copy)]
enum Asked {
    Read(u64),
    Write(u64, u64),
}

/// Status and content of an answer.
pub type Answered = (NvmeStatus, Vec<u8>);

/// A host of one tenant: the only one that writes its volume.
pub struct Host {
    name: String,
    id: [u8; 16],
    admin: Option<(u64, Admin)>,
    io: Option<(u64, QueuePair)>,
    asked: BTreeMap<u64, Asked>,
    received: Collect,
    /// What its admin queue was answered.
    told: Collect,
    next: u64,
    /// Tags that an LBA may hold: one, or more after the death of the server while writes were under way.
    promised: BTreeMap<u64, Vec<u64>>,
    /// A command that a test sends by itself, and its answer.
    apart: Option<(Token, Option<Answered>)>,
    pub done: u64,
}

impl Host {
    pub fn new(name: &str, number: u64) -> Host {
        Host::with_id(name, number, [name.as_bytes()[0]; 16])
    }

    /// One of this host identifier: tenants may have several hosts.
    pub fn with_id(name: &str, number: u64, id: [u8; 16]) -> Host {
        let (admin, io) = (None, None);
        let (asked, promised) = (BTreeMap::new(), BTreeMap::new());
        Host {
            name: name.to_owned(),
            id,
            admin,
            io,
            asked,
            received: Collect::default(),
            told: Collect::default(),
            next: number << 32,
            promised,
            apart: None,
            done: 0,
        }
    }

    fn parameters(&self) -> QueueParameters {
        let host = QualifiedName::new(&format!("nqn.2014-08.org.nvmexpress:uuid:{}", self.name)).unwrap();
        let subsystem = QualifiedName::new(&format!("nqn.2026-11.org.diecut:{}", self.name)).unwrap();
        QueueParameters::admin(host, self.id, subsystem)
    }

    /// Its I/O queue's connection.
    pub fn connection(&self) -> Option<ConnectionId> {
        self.io.as_ref().map(|(id, _)| ConnectionId(*id))
    }

    /// Its streams are gone with the server; what was under way may have happened.
    pub fn server_died(&mut self) {
        (self.admin, self.io) = (None, None);
        self.received = Collect::default();
        for (_, asked) in std::mem::take(&mut self.asked) {
            if let Asked::Write(lba, tag) = asked {
                self.promised.entry(lba).or_insert_with(|| vec![0]).push(tag);
            }
        }
    }

    /// Hangs up in the midst of its work.
    pub fn hang_up(&mut self, herd: &mut Herd) {
        for id in [self.admin.take().map(|one| one.0), self.io.take().map(|one| one.0)].into_iter().flatten()
        {
            herd.hang_up(id);
        }
        self.server_died();
    }

    /// Asks its controller for a log page of `bytes` bytes; it is connected.
    pub fn log_page(&mut self, herd: &mut Herd, page: u8, bytes: u32) -> Vec<u8> {
        self.log_page_of(herd, diecut_nvme::NSID_ALL, page, bytes)
    }

    /// As [`Host::log_page`], of one namespace.
    pub fn log_page_of(&mut self, herd: &mut Herd, nsid: u32, page: u8, bytes: u32) -> Vec<u8> {
        self.ask_log_page(herd, nsid, diecut_nvme::admin::GetLogPage::of(page, bytes.into()))
    }

    /// As [`Host::log_page`], with all that can be asked.
    pub fn log_page_with(&mut self, herd: &mut Herd, log: diecut_nvme::admin::GetLogPage) -> Vec<u8> {
        self.ask_log_page(herd, diecut_nvme::NSID_ALL, log)
    }

    fn ask_log_page(&mut self, herd: &mut Herd, nsid: u32, log: diecut_nvme::admin::GetLogPage) -> Vec<u8> {
        let (page, bytes) = (log.page, log.length_bytes as u32);
        let opcode = opcode::admin::GET_LOG_PAGE;
        let mut entry = SubmissionEntry { opcode, nsid: nsid.into(), ..SubmissionEntry::default() };
        log.encode(&mut entry);
        let (status, page_bytes) = self.admin_command(herd, entry, None, bytes);
        assert!(status.is_success(), "page {page:#x}: {status:?}");
        page_bytes
    }

    /// Sends a command over its admin queue, and waits for the answer.
    pub fn admin_command(
        &mut self,
        herd: &mut Herd,
        entry: SubmissionEntry,
        data: Option<Buffer>,
        to_host_bytes: u32,
    ) -> (NvmeStatus, Vec<u8>) {
        self.next += 1;
        let token = Token(self.next);
        self.admin.as_mut().expect("connected").1.submit_entry(token, entry, data, to_host_bytes);
        for _ in 0..100_000 {
            if let Some(at) = self.told.completions.iter().position(|one| one.token == token) {
                let status = self.told.completions.remove(at).status;
                return (status, self.told.data.remove(&token).unwrap_or_default());
            }
            self.work(herd, false);
            herd.step();
        }
        panic!("{entry:?} is never answered");
    }

    /// Sends a command without data over its admin queue; nobody waits for the answer.
    pub fn begin_admin(&mut self, entry: SubmissionEntry) {
        self.next += 1;
        self.admin.as_mut().expect("connected").1.submit_entry(Token(self.next), entry, None, 0);
    }

    /// Sends a command over its I/O queue, and waits for the answer.
    pub fn io_command(
        &mut self,
        herd: &mut Herd,
        entry: SubmissionEntry,
        data: Option<Buffer>,
        to_host_bytes: u32,
    ) -> (NvmeStatus, Vec<u8>) {
        let token = self.begin_io(entry, data, to_host_bytes);
        for _ in 0..100_000 {
            if let Some(answer) = self.take_answer(token) {
                return answer;
            }
            self.work(herd, false);
            herd.step();
        }
        panic!("{entry:?} is never answered");
    }

    /// Sends a command over its I/O queue; one at a time.
    pub fn begin_io(&mut self, entry: SubmissionEntry, data: Option<Buffer>, to_host_bytes: u32) -> Token {
        self.next += 1;
        let token = Token(self.next);
        self.apart = Some((token, None));
        self.io.as_mut().expect("connected").1.submit_entry(token, entry, data, to_host_bytes);
        token
    }

    /// The answer to [`Host::begin_io`], if it came.
    pub fn take_answer(&mut self, token: Token) -> Option<Answered> {
        let (_, answer) = self.apart.take_if(|(of, answer)| *of == token && answer.is_some())?;
        answer
    }

    /// Whether its queues are connected.
    pub fn is_ready(&self) -> bool {
        self.io.as_ref().is_some_and(|(_, io)| io.is_ready())
    }

    /// Goes on as far as it can: connects, asks, checks.
    pub fn work(&mut self, herd: &mut Herd, may_ask: bool) {
        let Some((id, admin)) = &mut self.admin else {
            self.admin = Some((herd.dial(), Admin::new(self.parameters(), 1)));
            return;
        };
        let stream = herd.streams.get_mut(id).unwrap();
        let bytes = admin.output().to_vec();
        admin.sent(bytes.len());
        stream.to_server.extend(bytes);
        let bytes: Vec<u8> = stream.to_host.drain(..).collect();
        admin.receive(&bytes, herd.now, &mut self.told).unwrap_or_else(|error| {
            panic!("{}: {error}", self.name);
        });
        if admin.facts().is_none() {
            return;
        }
        let Some((id, io)) = &mut self.io else {
            self.io = Some((herd.dial(), QueuePair::new(admin.io_queue(1, DEPTH))));
            return;
        };
        while may_ask && io.is_ready() && io.room() > 0 && herd.random.below(3) > 0 {
            let lba = herd.random.below(LBAS);
            let busy = |asked: &Asked| match *asked {
                Asked::Read(of) | Asked::Write(of, _) => of == lba,
            };
            if self.asked.values().any(busy) {
                break;
            }
            self.next += 1;
            let span = LbaSpan { nsid: 1, first: lba, count: 1 };
            let (asked, command) = if herd.random.below(3) == 0 {
                (Asked::Read(lba), Command::Read { span, length_bytes: 8 })
            } else {
                let data = Buffer::copy_from(&self.next.to_le_bytes());
                let write = Command::Write { span, data, force_unit_access: herd.random.below(4) == 0 };
                (Asked::Write(lba, self.next), write)
            };
            self.asked.insert(self.next, asked);
            io.submit(Token(self.next), command);
        }
        let stream = herd.streams.get_mut(id).unwrap();
        let bytes = io.output().to_vec();
        io.sent(bytes.len());
        stream.to_server.extend(bytes);
        let bytes: Vec<u8> = stream.to_host.drain(..).collect();
        io.receive(&bytes, &mut self.received).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        for completion in std::mem::take(&mut self.received.completions) {
            if let Some((_, answer)) = self.apart.as_mut().filter(|(token, _)| *token == completion.token) {
                let data = self.received.data.remove(&completion.token).unwrap_or_default();
                *answer = Some((completion.status, data));
                continue;
            }
            assert_eq!(completion.status, NvmeStatus::SUCCESS, "{}", self.name);
            self.done += 1;
            match self.asked.remove(&completion.token.0).expect("asked once") {
                Asked::Write(lba, tag) => drop(self.promised.insert(lba, vec![tag])),
                Asked::Read(lba) => {
                    let data = self.received.data.remove(&completion.token).unwrap();
                    let found = u64::from_le_bytes(data[..].try_into().unwrap());
                    let promised = self.promised.entry(lba).or_insert_with(|| vec![0]);
                    assert!(
                        promised.contains(&found),
                        "{}: LBA {lba} holds {found:x}, not {promised:x?}",
                        self.name
                    );
                    *promised = vec![found];
                }
            }
        }
    }

    pub fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }
}
