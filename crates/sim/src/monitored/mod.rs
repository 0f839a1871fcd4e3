//! One tenant's host that reads the telemetry of its drive over NVMe/TCP, beside a tenant that disturbs it: the shipped shard over an
//! emulated device in virtual time, streams that lose no time, and [`model`], which knows what the latency monitor must say.

pub mod model;

use diecut_devices::{Backing, Device, Fault, FaultyDie, Options, Profile};
use diecut_initiator::{Admin, Collect, Command, LbaSpan, QueuePair, QueueParameters, Token};
use diecut_media::Media;
use diecut_nvme::admin::GetLogPage;
use diecut_nvme::ocp::{self, CommandKind, LatencyConfiguration, LatencyLog, SmartExtended};
use diecut_nvme::{NSID_ALL, QualifiedName, SubmissionEntry, opcode};
use diecut_shard::control::*;
use diecut_shard::drive::{Action, ConnectionId, Drive, Event};
use diecut_shard::{PoolConfig, Shard, ShardConfig};
use diecut_spec::{Isolation, Size};
use diecut_units::{Buffer, Span, Time};
use model::MonitorModel;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use zerocopy::FromBytes;

/// Commands of each host under way.
const DEPTH: u16 = 16;
/// Logical blocks of each volume.
const LBAS: u64 = 2048;
/// Protected memory of each store: room for six chunks of tags, a fraction of the volume, so that reads come from flash.
const STAGING_BYTES: usize = 6 * (64 + 4096 + 128 * 8);

/// Who a host is, and what it has under way.
struct Host {
    admin: (ConnectionId, Admin),
    io: Option<(ConnectionId, QueuePair)>,
    /// The target knows of its connections.
    is_accepted: bool,
    /// By token: what it is, and when it was sent.
    under_way: BTreeMap<u64, (CommandKind, Time)>,
    received: Collect,
    next_token: u64,
}

/// See the module.
pub struct Monitored {
    shard: Shard<Device>,
    /// Virtual time.
    pub now: Time,
    actions: Vec<Action>,
    /// The one that reads its telemetry, and the one beside it.
    hosts: [Host; 2],
    random: Xoshiro256PlusPlus,
    /// What the first host saw since it set its monitor.
    model: Option<MonitorModel>,
}

fn name_of(host: usize) -> &'static str {
    ["watched", "beside"][host]
}

fn nqn(name: &str) -> QualifiedName {
    QualifiedName::new(&format!("nqn.2026-11.org.diecut:{name}")).expect("a short name")
}

impl Host {
    fn new(host: usize) -> Host {
        let own = QualifiedName::new(&format!("nqn.2014-08.org.nvmexpress:uuid:{}", name_of(host)));
        let parameters =
            QueueParameters::admin(own.expect("a short name"), [host as u8 + 1; 16], nqn(name_of(host)));
        Host {
            admin: (ConnectionId(host as u64 * 2), Admin::new(parameters, 1)),
            io: None,
            is_accepted: false,
            under_way: BTreeMap::new(),
            received: Collect::default(),
            next_token: 0,
        }
    }

    /// Bytes for a connection, if it has some.
    fn output(&mut self) -> Option<(ConnectionId, Vec<u8>)> {
        if !self.is_accepted {
            return None;
        }
        let (id, admin) = &mut self.admin;
        let bytes = admin.output().to_vec();
        if !bytes.is_empty() {
            admin.sent(bytes.len());
            return Some((*id, bytes));
        }
        let (id, io) = self.io.as_mut()?;
        let bytes = io.output().to_vec();
        io.sent(bytes.len());
        (!bytes.is_empty()).then_some((*id, bytes))
    }
}

impl Monitored {
    /// Two tenants on a device of four channels, which share all dies.
    ///
    /// # Errors
    /// What could not be set up.
    pub fn new(seed: u64) -> Result<Monitored, String> {
        let mut profile = Profile::named("tiny").expect("built in");
        profile.protected_memory_bytes = 8 << 20;
        profile.geometry.channels = 4;
        profile.geometry.blocks_per_plane = 100;
        let options = Options { backing: Backing::Tags, seed, ..Options::default() };
        let device = Device::create(&profile, options).map_err(|error| error.to_string())?;
        let pool = PoolConfig::suited_to(device.geometry());
        let config = ShardConfig { pool, staging_bytes_per_vssd: STAGING_BYTES, ..ShardConfig::default() };
        let mut all = Monitored {
            shard: Shard::new(device, config, Time::ZERO),
            now: Time::ZERO,
            actions: Vec::new(),
            hosts: [Host::new(0), Host::new(1)],
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            model: None,
        };
        for host in 0..2 {
            let name = name_of(host);
            all.ask(ControlRequest::CreateTenant(TenantSpec::new(name)))?;
            all.ask(ControlRequest::CreateVssd(VssdSpec::new(name, name, Isolation::Software, 280)))?;
            all.ask(ControlRequest::CreateVolume(VolumeSpec {
                name: name.to_owned(),
                vssd: name.to_owned(),
                size: Size(LBAS * 4096),
                uuid: None,
                nguid: None,
                zones: diecut_spec::ZoneSpec::default(),
                placement: Vec::new(),
            }))?;
            all.ask(ControlRequest::CreateSubsystem(SubsystemSpec {
                nqn: nqn(name).as_str().to_owned(),
                tenant: name.to_owned(),
                serial: None,
                model: None,
                allow_any_host: true,
                allowed_hosts: Vec::new(),
                paths: Vec::new(),
                namespaces: vec![NamespaceSpec::new(1, name)],
            }))?;
            all.connect(host);
        }
        Ok(all)
    }

    fn ask(&mut self, request: ControlRequest) -> Result<(), String> {
        let event = Event::Control { token: ControlToken(1), request: Box::new(request) };
        self.shard.handle(event, self.now, &mut self.actions);
        loop {
            for action in self.actions.drain(..) {
                if let Action::Answer { response, .. } = action {
                    return match *response {
                        ControlResponse::Done | ControlResponse::Unchanged => Ok(()),
                        other => Err(format!("{other:?}")),
                    };
                }
            }
            self.now = self.now.max(self.shard.deadline().min(self.now + Span::from_millis(10)));
            self.shard.work(self.now, &mut self.actions);
        }
    }

    fn connect(&mut self, host: usize) {
        let id = self.hosts[host].admin.0;
        self.shard.handle(Event::Accepted { connection: id, local: None }, self.now, &mut self.actions);
        self.hosts[host].is_accepted = true;
        while self.hosts[host].admin.1.facts().is_none() {
            self.step(Time::NEVER);
        }
        let queue = self.hosts[host].admin.1.io_queue(1, DEPTH + 1);
        let id = ConnectionId(id.0 + 1);
        self.shard.handle(Event::Accepted { connection: id, local: None }, self.now, &mut self.actions);
        self.hosts[host].io = Some((id, QueuePair::new(queue)));
        while !self.hosts[host].io.as_ref().is_some_and(|(_, io)| io.is_ready()) {
            self.step(Time::NEVER);
        }
    }

    /// Carries what hosts and shard have for each other, and lets time pass to the shard's next deadline, or `until`.
    fn step(&mut self, until: Time) {
        for host in &mut self.hosts {
            while let Some((connection, bytes)) = host.output() {
                let bytes = Buffer::copy_from(&bytes);
                self.shard.handle(Event::Received { connection, bytes }, self.now, &mut self.actions);
            }
        }
        self.now = self.now.max(self.shard.deadline().min(until).min(self.now + Span::from_millis(10)));
        self.shard.work(self.now, &mut self.actions);
        self.actions.clear();
        for at in 0..2 {
            let connections = [Some(self.hosts[at].admin.0), self.hosts[at].io.as_ref().map(|(id, _)| *id)];
            for connection in connections.into_iter().flatten() {
                self.carry(at, connection);
            }
        }
    }

    fn carry(&mut self, at: usize, connection: ConnectionId) {
        while let Some(outbox) = self.shard.outbox(connection).filter(|outbox| !outbox.is_empty()) {
            let mut bytes = vec![0; outbox.len_bytes()];
            let copied = outbox.copy_to(&mut bytes);
            self.shard.sent(connection, copied, &mut self.actions);
            let host = &mut self.hosts[at];
            let outcome = match &mut host.io {
                Some((id, io)) if *id == connection => io.receive(&bytes, &mut host.received),
                _ => host.admin.1.receive(&bytes, self.now, &mut host.received),
            };
            outcome.unwrap_or_else(|error| panic!("{}: {error}", name_of(at)));
        }
        let host = &mut self.hosts[at];
        host.received.completions.retain(|completion| {
            let Some((kind, sent)) = host.under_way.remove(&completion.token.0) else { return true };
            assert!(completion.status.is_success(), "{kind:?}: {}", completion.status);
            host.received.data.remove(&completion.token);
            if let Some(model) = self.model.as_mut().filter(|_| at == 0) {
                model.saw(kind, self.now.since(sent), self.now);
            }
            false
        });
    }

    fn submit(&mut self, host: usize, kind: CommandKind, lba: u64) {
        let one = &mut self.hosts[host];
        one.next_token += 1;
        one.under_way.insert(one.next_token, (kind, self.now));
        let span = LbaSpan { nsid: 1, first: lba, count: 1 };
        let command = match kind {
            CommandKind::Read => Command::Read { span, length_bytes: 8 },
            CommandKind::Write => {
                Command::Write { span, data: Buffer::copy_from(&lba.to_le_bytes()), force_unit_access: false }
            }
            CommandKind::Deallocate => Command::Deallocate { span },
        };
        let (_, io) = one.io.as_mut().expect("it is connected");
        io.submit(Token(one.next_token), command);
    }

    /// Writes both volumes once, and waits for it.
    pub fn fill(&mut self) {
        for lba in 0..LBAS {
            for host in 0..2 {
                while self.hosts[host].under_way.len() >= usize::from(DEPTH) {
                    self.step(Time::NEVER);
                }
                self.submit(host, CommandKind::Write, lba);
            }
        }
        self.settle();
    }

    /// Waits for everything under way.
    pub fn settle(&mut self) {
        while self.hosts.iter().any(|host| !host.under_way.is_empty()) {
            self.step(Time::NEVER);
        }
    }

    /// A host asks for something on its admin queue; what it gets.
    fn admin(&mut self, entry: SubmissionEntry, data: Option<Buffer>, expected_bytes: u32) -> Vec<u8> {
        const TOKEN: Token = Token(1 << 60);
        self.hosts[0].admin.1.submit_entry(TOKEN, entry, data, expected_bytes);
        loop {
            self.step(self.now);
            let received = &mut self.hosts[0].received;
            if let Some(at) = received.completions.iter().position(|one| one.token == TOKEN) {
                let completion = received.completions.remove(at);
                assert!(completion.status.is_success(), "{entry:?}: {}", completion.status);
                return received.data.remove(&TOKEN).unwrap_or_default();
            }
        }
    }

    /// Reads a page.
    pub fn page(&mut self, page: u8, length_bytes: u64) -> Vec<u8> {
        let mut entry = SubmissionEntry {
            opcode: opcode::admin::GET_LOG_PAGE,
            nsid: NSID_ALL.into(),
            ..SubmissionEntry::default()
        };
        GetLogPage::of(page, length_bytes).encode(&mut entry);
        self.admin(entry, None, length_bytes as u32)
    }

    /// Sets the latency monitor of the first host; the model begins with it.
    pub fn configure(&mut self, configuration: LatencyConfiguration) {
        let entry = SubmissionEntry {
            opcode: opcode::admin::SET_FEATURES,
            cdw10: (u32::from(ocp::fid::LATENCY_MONITOR) | 1 << 31).into(),
            ..SubmissionEntry::default()
        };
        self.admin(entry, Some(Buffer::copy_from(&configuration.encode())), 0);
        self.model = Some(MonitorModel::new(configuration, self.now));
    }

    /// Reads the latency monitor, and compares it with what the host saw.
    ///
    /// # Errors
    /// Where they differ.
    pub fn latency_log(&mut self) -> Result<LatencyLog, String> {
        let page = self.page(ocp::lid::LATENCY_MONITOR, 512);
        let page = LatencyLog::read_from_bytes(&page).map_err(|_| "a page of another length".to_owned())?;
        if let Some(model) = &self.model {
            model.check(&page, self.now)?;
        }
        Ok(page)
    }

    /// Reads the debug log; there may be another one then.
    pub fn debug_log(&mut self) -> String {
        let bytes = self.page(ocp::lid::LATENCY_DEBUG, 16 << 10);
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
    }

    /// Reads extended health.
    pub fn health(&mut self) -> SmartExtended {
        let page = self.page(ocp::lid::SMART_EXTENDED, 512);
        SmartExtended::read_from_bytes(&page).expect("a whole page")
    }

    /// Bytes programmed of the first tenant, and those that its host wrote, as the server counts them.
    pub fn own_counters(&self) -> (u64, u64) {
        let status = self.shard.status();
        let own = status.vssds.iter().find(|one| one.spec.name == name_of(0)).expect("it exists");
        let traffic = &own.traffic;
        let programmed = traffic.programmed_user_bytes
            + traffic.programmed_cleaner_bytes
            + traffic.programmed_metadata_bytes;
        (programmed, traffic.host_written_bytes)
    }

    /// From now on array operations of a die take so many times as long.
    pub fn slow_down(&mut self, channel: u16, die: u16, times: u32) {
        let fault = Fault::SlowDie {
            die: FaultyDie { channel, die },
            from_ns: self.now.0,
            until_ns: u64::MAX,
            percent: times * 100,
        };
        self.shard.media_mut().emulated_mut().add_fault(fault);
    }

    /// Channels, and dies of each.
    pub fn dies(&self) -> (u16, u16) {
        let geometry = self.shard.media().geometry();
        (geometry.channels, geometry.dies_per_channel)
    }

    /// A number below another one.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.random.random_range(0..limit)
    }

    /// Both hosts work for a while: the first reads `depth` blocks at random at once, and writes now and then if it may; the other one writes as
    /// many as it is told to.
    pub fn run(&mut self, span: Span, depth: usize, writes: bool, beside: usize) {
        let until = self.now + span;
        while self.now < until {
            while self.hosts[0].under_way.len() < depth {
                let lba = self.below(LBAS);
                let kind = match self.below(8) {
                    0 if writes => CommandKind::Deallocate,
                    1 | 2 if writes => CommandKind::Write,
                    _ => CommandKind::Read,
                };
                self.submit(0, kind, lba);
            }
            while self.hosts[1].under_way.len() < beside {
                let lba = self.below(LBAS);
                self.submit(1, CommandKind::Write, lba);
            }
            let before = self.now;
            self.step(until);
            // What is staged is read in no time; a host takes some to ask again.
            if self.now == before {
                self.now += Span::from_micros(20);
            }
        }
        self.settle();
    }

    /// Lets time pass.
    pub fn wait(&mut self, span: Span) {
        let until = self.now + span;
        while self.now < until {
            // Nothing but timers is left to go on: hours pass in few steps.
            self.now = (self.now + Span::from_secs(60)).min(until).max(self.now);
            self.step(self.now);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_nvme::ocp::{Bucket, TriggerBits};

    fn configuration() -> LatencyConfiguration {
        LatencyConfiguration {
            thresholds: [0, 1, 3, 7], // 5, 10, 20, 40 ms
            minimum_window: 1,
            timer_threshold: 1.into(),
            ..LatencyConfiguration::default()
        }
    }

    /// Goal: what the latency monitor says is what its host saw, in each bucket, for each kind of command, in both modes, over timers that run
    /// out. Method: the model, after each of many stretches of a load beside a slow die and a neighbour.
    fn a_monitor_agrees_with_its_host(seed: u64) {
        let mut all = Monitored::new(seed).unwrap();
        all.fill();
        let (channel, die) = (all.below(4) as u16, all.below(2) as u16);
        all.slow_down(channel, die, 600);
        for modes in [TriggerBits::ALL.0, 0, 0b1010_1010_1010] {
            all.configure(LatencyConfiguration { modes: modes.into(), ..configuration() });
            let mut counted = 0;
            for stretch in 0..4 {
                all.run(Span::from_millis(400), 8, true, 4);
                let page = all.latency_log().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                let reads = |bucket: &Bucket| page.active.counter(*bucket, CommandKind::Read);
                counted += Bucket::ALL.iter().map(reads).sum::<u32>();
                if stretch % 2 == 1 {
                    all.wait(Span::from_secs(300));
                    all.latency_log().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                }
            }
            assert!(counted > 10, "seed {seed}: a slow die is noticed: {counted}");
        }
    }

    fn one_seed() {
        a_monitor_agrees_with_its_host(1);
    }

    #[test]
    fn latency_monitors_agree_with_their_hosts() {
        (1..5).for_each(a_monitor_agrees_with_its_host);
    }

    /// Goal: write amplification that a host works out from C0h is that of our own counters, and the device programmed it.
    #[test]
    fn write_amplification_from_extended_health_is_ours() {
        let mut all = Monitored::new(3).unwrap();
        all.fill();
        let before = (all.own_counters(), all.health().physical_media_bytes_written.get());
        for _ in 0..12 {
            for lba in 0..LBAS {
                while all.hosts[0].under_way.len() >= usize::from(DEPTH) {
                    all.step(Time::NEVER);
                }
                let lba = if lba % 2 == 0 { all.below(LBAS) } else { lba };
                all.submit(0, CommandKind::Write, lba);
            }
            all.settle();
        }
        all.wait(Span::from_secs(2));
        let extended = all.health();
        let (programmed, written) = all.own_counters();
        let media = (extended.physical_media_bytes_written.get() - before.1) as f64;
        // As the host counts them itself: tags are shorter than blocks, and data units count what crosses the wire.
        let hosts = (12 * LBAS * 4096) as f64;
        let ours = (programmed - before.0.0) as f64 / (written - before.0.1) as f64;
        let theirs = media / hosts;
        assert!(ours > 1.02, "the cleaner had work: {ours}");
        assert!((theirs / ours - 1.0).abs() < 0.02, "{theirs} from C0h, {ours} by our counters");
        assert!(extended.erases_max.get() >= extended.erases_min.get() && extended.erases_average.get() > 0);
        assert_eq!(extended.total_dies.get(), 8);
    }

    #[test]
    #[cfg(feature = "mutants")]
    fn planted_bugs_of_the_monitor_are_noticed() {
        use diecut_units::marks::{mutant_reached_count, plant_mutant};
        for name in ["nvmf: no minimum window of latencies", "nvmf: static latency buckets stay active"] {
            assert!(plant_mutant(Some(name)));
            let noticed = std::panic::catch_unwind(one_seed).is_err();
            let reached = mutant_reached_count();
            plant_mutant(None);
            assert!(reached > 0 && noticed, "{name}");
        }
    }

    #[test]
    fn one_seed_agrees() {
        one_seed();
    }
}
