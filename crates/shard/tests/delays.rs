//! Goal: a command over the threshold says where its time went, and for whom it waited. Method: tenants beside each other on an emulated
//! device in virtual time; who disturbs whom is known, and what a command took is measured outside.

use diecut_emulator::{Backing, Device, Options, Pacing, Profile};
use diecut_namespace::contract::*;
use diecut_shard::control::*;
use diecut_shard::drive::{Action, Drive, Event};
use diecut_shard::{DOOR_SOURCE_BIT, Shard, ShardConfig};
use diecut_spec::latency::{Cause, LatencyReport};
use diecut_spec::{Isolation, Serves, Size};
use diecut_units::{Buffer, BufferMut, Span, Time};
use diecut_vssd::PoolConfig;
use std::collections::BTreeMap;

fn volume(name: &str, size_bytes: u64) -> VolumeSpec {
    VolumeSpec {
        name: format!("volume-{name}"),
        vssd: format!("vssd-{name}"),
        size: Size(size_bytes),
        uuid: None,
        nguid: None,
        zones: Default::default(),
        placement: Vec::new(),
    }
}

struct Rig {
    shard: Shard<Device>,
    now: Time,
    actions: Vec<Action>,
    next_token: u64,
    /// Arrival of what is under way.
    under_way: BTreeMap<u64, Time>,
    /// What took how long.
    took: BTreeMap<u64, Span>,
}

impl Rig {
    fn new(slow_after: Span) -> Rig {
        let mut rig = Rig::empty(slow_after);
        for name in ["calm", "loud"] {
            rig.done(ControlRequest::CreateTenant(TenantSpec::new(name)));
            let spec = VssdSpec::new(&format!("vssd-{name}"), name, Isolation::Software, 280);
            rig.done(ControlRequest::CreateVssd(VssdSpec { throughput_level: 0, ..spec }));
            rig.done(ControlRequest::CreateVolume(volume(name, 2 << 20)));
        }
        rig
    }

    /// A shard that nothing lies on.
    fn empty(slow_after: Span) -> Rig {
        let options =
            Options { backing: Backing::Tags, pacing: Pacing::Modelled, seed: 3, ..Options::default() };
        let mut profile = Profile::named("tiny").unwrap();
        profile.protected_memory_bytes = 8 << 20;
        profile.geometry.blocks_per_plane = 140;
        let device = Device::create(&profile, options).unwrap();
        let pool = PoolConfig::suited_to(diecut_media::Media::geometry(&device));
        let config =
            ShardConfig { pool, staging_bytes_per_vssd: 256 << 10, slow_after, ..ShardConfig::default() };
        let mut rig = Rig {
            shard: Shard::new(device, config, Time::ZERO),
            now: Time::ZERO,
            actions: Vec::new(),
            next_token: 0,
            under_way: BTreeMap::new(),
            took: BTreeMap::new(),
        };
        while !rig.shard.is_ready() {
            rig.step();
        }
        rig
    }

    fn step(&mut self) {
        self.now = self.now.max(self.shard.deadline().min(Time(self.now.0 + 1_000_000)));
        self.shard.work(self.now, &mut self.actions);
        let mut completions = Vec::new();
        self.shard.take_completions(&mut completions);
        for completion in completions {
            completion.result.unwrap();
            let arrived = self.under_way.remove(&completion.token.0).expect("it is answered once");
            self.took.insert(completion.token.0, self.now.since(arrived));
        }
    }

    fn ask(&mut self, request: ControlRequest) -> ControlResponse {
        self.next_token += 1;
        let token = ControlToken(self.next_token);
        self.shard.handle(Event::Control { token, request: Box::new(request) }, self.now, &mut self.actions);
        loop {
            for action in std::mem::take(&mut self.actions) {
                if let Action::Answer { token: of, response } = action
                    && of == token
                {
                    return *response;
                }
            }
            self.step();
        }
    }

    fn done(&mut self, request: ControlRequest) {
        assert_eq!(self.ask(request), ControlResponse::Done);
    }

    fn latency(&mut self) -> LatencyReport {
        match self.ask(ControlRequest::Latency) {
            ControlResponse::Latency(report) => *report,
            other => panic!("{other:?}"),
        }
    }

    fn begin(&mut self, namespace: u32, operation: NamespaceOperation) -> u64 {
        self.next_token += 1;
        let (token, source) = (CommandToken(self.next_token), SourceId(DOOR_SOURCE_BIT | namespace));
        let (namespace, arrived) = (NamespaceId(namespace), self.now);
        self.shard.submit(NamespaceCommand { token, namespace, source, arrived, operation });
        self.under_way.insert(token.0, self.now);
        token.0
    }

    fn write(&mut self, namespace: u32, lba: u64) -> u64 {
        let range = LbaRange { first_lba: lba, lba_count: 1 };
        let data = Buffer::copy_from(&lba.to_le_bytes());
        self.begin(
            namespace,
            NamespaceOperation::Write {
                range,
                data,
                force_unit_access: false,
                placement: PlacementTarget::default(),
            },
        )
    }

    fn read(&mut self, namespace: u32, lba: u64) -> u64 {
        let range = LbaRange { first_lba: lba, lba_count: 1 };
        self.begin(namespace, NamespaceOperation::Read { range, destination: BufferMut::copy_from(&[0; 8]) })
    }

    fn settle(&mut self) {
        while !self.under_way.is_empty() {
            self.step();
        }
    }
}

/// Goal: reads of a calm tenant beside one that writes without end say that they waited for the dies, which the neighbour had; the neighbour's
/// own writes do not say so of the calm one to that extent. The parts of each command add up to what was measured outside.
fn beside_a_writer() {
    let mut rig = Rig::new(Span::from_micros(400));
    for lba in 0..512 {
        for namespace in [1, 2] {
            rig.write(namespace, lba);
        }
        rig.settle();
    }
    let mut slow_outside = 0;
    for round in 0..600u64 {
        for lba in 0..16 {
            rig.write(2, (round * 16 + lba) * 7 % 512);
        }
        let read = rig.read(1, round * 13 % 512);
        rig.settle();
        slow_outside += u64::from(rig.took[&read] >= Span::from_micros(400));
    }
    let report = rig.latency();
    assert!(slow_outside > 20, "the writer disturbs the reads: {slow_outside}");
    assert!(report.slow >= slow_outside && report.explained > 0);
    let waited = |own: &str, other: &str| -> u64 {
        let of = |one: &&diecut_spec::latency::WaitedFor| one.tenant == own && one.for_tenant == other;
        report.matrix.iter().filter(of).map(|one| one.total_us()).sum()
    };
    let (by_neighbour, of_neighbour) = (waited("calm", "loud"), waited("loud", "calm"));
    assert!(by_neighbour > 1000, "{:#?}", report.matrix);
    assert!(by_neighbour > 4 * of_neighbour, "{by_neighbour} {of_neighbour}");
    let reads: Vec<_> = report.commands.iter().filter(|one| one.place.tenant == "calm").collect();
    assert!(!reads.is_empty());
    for read in &reads {
        let sum: u64 = read.parts.iter().map(|part| part.us).sum();
        assert!(sum <= read.took_us && sum + 20 > read.took_us, "{read:#?}");
        assert_eq!(read.place.volume, "volume-calm");
        assert!(read.place.die.is_some() && !read.neighbours.is_empty(), "{read:#?}");
    }
    let names_neighbour = |one: &&&diecut_spec::latency::SlowCommand| {
        let is_his = |part: &diecut_spec::latency::TimePart| {
            part.cause == Cause::DieNeighbour && part.work.as_ref().is_some_and(|work| work.tenant == "loud")
        };
        one.parts.iter().any(is_his)
    };
    let named = reads.iter().filter(names_neighbour).count();
    assert!(named * 2 > reads.len(), "{named} of {} name the neighbour: {:#?}", reads.len(), reads[0]);
    let causes: Vec<Cause> = report.causes.iter().map(|one| one.cause).collect();
    assert!(causes.contains(&Cause::DieNeighbour), "{causes:?}");
}

/// Goal: what is under way while the server does not run says so, and neither the flash nor a neighbour is blamed. Method: reads of one tenant
/// beside writes of the other, and the server stands still for 50 ms while they are at the dies.
fn under_a_late_server() {
    let mut rig = Rig::new(Span::from_millis(20));
    for lba in 0..512 {
        for namespace in [1, 2] {
            rig.write(namespace, lba);
        }
        rig.settle();
    }
    for round in 0..20u64 {
        (0..64).for_each(|lba| {
            rig.write(2, (round * 64 + lba) * 7 % 512);
        });
        let reads: Vec<u64> = (0..8).map(|at| rig.read(1, (round * 8 + at) * 13 % 512)).collect();
        rig.shard.work(rig.now, &mut rig.actions);
        rig.now += Span::from_millis(50);
        rig.settle();
        assert!(reads.iter().any(|read| rig.took[read] >= Span::from_millis(50)));
    }
    let report = rig.latency();
    assert!(report.explained > 20, "{report:#?}");
    let all: u64 = report.causes.iter().map(|one| one.total_us).sum();
    let of_server = report.causes.iter().filter(|one| one.cause == Cause::Server);
    let of_server: u64 = of_server.map(|one| one.total_us).sum();
    assert!(of_server * 4 > all * 3, "{of_server} of {all} us: {:#?}", report.causes);
    let blamed: u64 = report.matrix.iter().map(|one| one.total_us()).sum();
    assert!(blamed * 5 < all, "{blamed} of {all} us: {:#?}", report.matrix);
    for one in &report.commands {
        let server = one.parts.iter().find(|part| part.cause == Cause::Server);
        assert!(server.is_some_and(|part| (45_000..=50_000).contains(&part.us)), "{one:#?}");
    }
}

/// Goal: commands of zones and of chunks over the threshold are looked into like those of volumes, and say what they waited for on flash. Method: both
/// are written and read below a threshold that every read from flash is over.
fn of_zones_and_chunks() {
    let mut rig = Rig::empty(Span::from_micros(20));
    let count = 64;
    for (serves, name) in [(Serves::Zones, "zones"), (Serves::OpenChannel, "chunks")] {
        rig.done(ControlRequest::CreateTenant(TenantSpec::new(name)));
        let spec = VssdSpec::new(&format!("vssd-{name}"), name, Isolation::Channel, 1);
        rig.done(ControlRequest::CreateVssd(VssdSpec { serves, ..spec }));
        let size = if serves == Serves::Zones { 8 << 20 } else { 16 * 64 * 4096 };
        rig.done(ControlRequest::CreateVolume(volume(name, size)));
    }
    let data = || Buffer::copy_from(&vec![7; count * 8]);
    let destination = || BufferMut::copy_from(&vec![0; count * 8]);
    let range = LbaRange { first_lba: 0, lba_count: count as u32 };
    let lbas = || LbaList::run(0, count as u32);
    let append = ZoneRequest::Append { zone_lba: 0, lba_count: count as u32, data: data() };
    rig.begin(1, NamespaceOperation::Zone(append));
    rig.begin(2, NamespaceOperation::Chunk(ChunkRequest::Write { lbas: lbas(), data: data() }));
    rig.settle();
    let before = rig.latency();
    for _ in 0..10 {
        rig.begin(1, NamespaceOperation::Read { range, destination: destination() });
        let request = ChunkRequest::Read { lbas: lbas(), destination: destination() };
        rig.begin(2, NamespaceOperation::Chunk(request));
        rig.settle();
    }
    let report = rig.latency();
    assert_eq!(report.slow - before.slow, 20, "{report:#?}");
    for name in ["volume-zones", "volume-chunks"] {
        let own: Vec<_> = report.commands.iter().filter(|one| one.place.volume == name).collect();
        assert!(own.len() >= 10, "{name}: {report:#?}");
        let latest = own.iter().rev().take(10);
        assert!(latest.clone().all(|one| one.place.die.is_some()), "{name}: {own:#?}");
    }
}

#[test]
fn slow_commands_of_zones_and_chunks_are_explained() {
    of_zones_and_chunks();
}

#[test]
fn a_late_server_blames_nobody_else() {
    under_a_late_server();
}

/// Goal: a server whose commands are all fast enough says nothing, and asks no die. Method: the same load below a high threshold.
#[test]
fn nothing_is_said_of_fast_commands() {
    let mut rig = Rig::new(Span::from_secs(10));
    for lba in 0..256 {
        rig.write(1, lba);
        rig.read(1, lba / 2);
    }
    rig.settle();
    let report = rig.latency();
    assert_eq!((report.slow, report.explained), (0, 0));
    assert!(report.commands.is_empty() && report.matrix.is_empty() && report.causes.is_empty());
}

#[test]
fn a_read_beside_a_writer_names_the_neighbour() {
    beside_a_writer();
}

#[test]
fn planted_bugs_are_noticed() {
    diecut_testing::planted::all_are_noticed(&[
        ("vssd: a busy die is always one's own fault", beside_a_writer),
        ("shard: what a command waited for is not noted", beside_a_writer),
        ("shard: flash is blamed for a late server", under_a_late_server),
        ("shard: slow commands are those of volumes", of_zones_and_chunks),
        ("shard: what a command waited for is not noted", of_zones_and_chunks),
    ]);
}
