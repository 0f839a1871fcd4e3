//! Goal: a shard makes a pool on a drive that hides its flash, and finds it again after any cut. Method: the model of a drive carries out what the
//! shard asks its driver for; lives of requests, each ended by a cut or by the death of the process at some event. Whatever was answered is
//! there; what was asked for may be.

use diecut_drives::{DriveMedium, DriveShape};
use diecut_emulator::drive::{Drive as Model, DriveProfile};
use diecut_media::{IntentDone, Media};
use diecut_namespace::contract::*;
use diecut_shard::control::*;
use diecut_shard::drive::*;
use diecut_shard::{DOOR_SOURCE_BIT, Nonces, PoolConfig, Shard, ShardConfig};
use diecut_spec::{Isolation, Serves, Size, TenantSpec, VssdSpec};
use diecut_testing::Random;
use diecut_testing::depth::depth;
use diecut_testing::planted::is_noticed;
use diecut_testing::versions::Versions;
use diecut_units::{Buffer, BufferMut, IU_SIZE_BYTES, Time};
use std::collections::BTreeSet;

const SIZE_BYTES: u64 = 66 << 20;

struct World {
    shard: Shard<DriveMedium>,
    model: Model,
    now: Time,
    tokens: u64,
    answer: Option<ControlResponse>,
    done: Vec<IntentDone>,
    actions: Vec<Action>,
}

impl World {
    /// A shard over the device, which is what its label would say, or over another one on the same drive.
    fn new(model: Model, makes_pool: bool) -> World {
        World::of_device(model, [0xd1; 16], makes_pool)
    }

    fn of_device(model: Model, device: [u8; 16], makes_pool: bool) -> World {
        let shape = DriveShape::plan(model.profile().size_bytes, 4, Some(1 << 20)).unwrap();
        let medium = DriveMedium::new(shape, true, true);
        let nonces = Some(Nonces::new([0x5e; 16], device));
        let pool = PoolConfig { nonces, ..PoolConfig::suited_to(medium.geometry()) };
        let config = ShardConfig {
            pool,
            makes_pool,
            new_pool_uuid: [0x77; 16],
            volatile_cache: true,
            ..ShardConfig::default()
        };
        let shard = Shard::new(medium, config, Time::ZERO);
        let (done, actions) = (Vec::new(), Vec::new());
        World { shard, model, now: Time::ZERO, tokens: 0, answer: None, done, actions }
    }

    /// What happens next; says whether anything does.
    fn step(&mut self) -> bool {
        self.shard.work(self.now, &mut self.actions);
        for action in self.actions.drain(..) {
            match action {
                Action::Io(intent) => self.model.submit(intent, self.now),
                Action::Answer { response, .. } => self.answer = Some(*response),
                Action::Notice(_) => {}
                other => panic!("nobody is connected: {other:?}"),
            }
        }
        let next = self.shard.deadline().min(self.model.next_event());
        if next == Time::NEVER {
            return false;
        }
        self.now = self.now.max(next);
        self.model.advance(self.now, &mut self.done);
        for done in self.done.drain(..) {
            self.shard.handle(Event::IoDone(done), self.now, &mut self.actions);
        }
        true
    }

    /// Goes on until it is open, or cannot be, or so many events happened. Says whether it is.
    fn open(&mut self, events: &mut u64) -> bool {
        while !self.shard.is_ready() && self.shard.failure().is_none() && *events > 0 {
            *events -= 1;
            let goes_on = self.step();
            let is_over = self.shard.is_ready() || self.shard.failure().is_some();
            assert!(goes_on || is_over, "opening goes on");
        }
        self.shard.is_ready()
    }

    /// Asks for something; the answer, unless so many events happened before.
    fn ask(&mut self, request: ControlRequest, events: &mut u64) -> Option<ControlResponse> {
        self.tokens += 1;
        let request = Box::new(request);
        let event = Event::Control { token: ControlToken(self.tokens), request };
        self.shard.handle(event, self.now, &mut self.actions);
        while self.answer.is_none() && *events > 0 {
            *events -= 1;
            let goes_on = self.step();
            assert!(goes_on || self.answer.is_some(), "a request is answered");
        }
        self.answer.take()
    }

    /// Lets a host's command be carried out; its answer, unless so many events happened before.
    fn command(&mut self, operation: NamespaceOperation, events: &mut u64) -> Option<NamespaceCompletion> {
        self.tokens += 1;
        let (namespace, arrived) = (NamespaceId(1), self.now);
        let (token, source) = (CommandToken(self.tokens), SourceId(DOOR_SOURCE_BIT | 1));
        self.shard.submit(NamespaceCommand { token, namespace, source, arrived, operation });
        let mut completions = Vec::new();
        while *events > 0 {
            *events -= 1;
            let goes_on = self.step();
            self.shard.take_completions(&mut completions);
            if let Some(completion) = completions.pop() {
                assert_eq!((completion.token, &completion.result), (token, &Ok(())));
                return Some(completion);
            }
            assert!(goes_on, "a command is answered");
        }
        None
    }

    /// The power goes, or the process dies.
    fn end(self, cut: bool) -> Model {
        let mut model = self.model;
        if cut {
            model.cut()
        } else {
            model.process_death()
        }
        model
    }
}

/// A drive with a pool, as its label would say.
fn made(seed: u64) -> Model {
    let mut world = World::new(Model::new(DriveProfile::nvme(SIZE_BYTES), seed), true);
    assert!(world.open(&mut u64::MAX.clone()), "{:?}", world.shard.failure());
    world.end(true)
}

fn tenants(world: &World) -> BTreeSet<String> {
    world.shard.state().tenants.keys().cloned().collect()
}

fn lives(seed: u64) {
    let mut random = Random::of(seed);
    let mut model = made(seed);
    let (mut there, mut asked) = (BTreeSet::<String>::new(), None::<(String, bool)>);
    let mut starts = 1;
    for life in 0..8u64 {
        let mut world = World::new(model, false);
        let mut events = if random.below(3) == 0 { random.below(120) } else { 400 + random.below(1500) };
        if world.open(&mut events) {
            let state = world.shard.state();
            assert_eq!(state.pool.uuid, [0x77; 16], "seed {seed}, life {life}");
            assert!(state.pool.starts > starts, "seed {seed}, life {life}: {} starts", state.pool.starts);
            starts = state.pool.starts;
            let found = tenants(&world);
            let mut with = there.clone();
            if let Some((name, is_made)) = asked.take() {
                _ = if is_made { with.insert(name) } else { with.remove(&name) };
            }
            assert!(
                found == there || found == with,
                "seed {seed}, life {life}: {found:?}, {there:?} or {with:?}"
            );
            there = found;
            while events > 0 {
                let oldest = there.first().cloned().filter(|_| random.below(3) == 0);
                let (name, is_made) = match oldest {
                    Some(name) => (name, false),
                    None => (format!("tenant-{life}-{}", world.tokens), true),
                };
                let request = match is_made {
                    true => ControlRequest::CreateTenant(TenantSpec::new(&name)),
                    false => ControlRequest::DeleteTenant(name.clone()),
                };
                match world.ask(request, &mut events) {
                    Some(ControlResponse::Done) if is_made => _ = there.insert(name),
                    Some(ControlResponse::Done) => _ = there.remove(&name),
                    Some(other) => panic!("seed {seed}, life {life}: {other:?}"),
                    None => asked = Some((name, is_made)),
                }
            }
        } else {
            assert_eq!(world.shard.failure(), None, "seed {seed}, life {life}");
        }
        model = world.end(random.below(3) > 0);
    }
}

fn all_lives() {
    (0..depth(40, 2_000)).for_each(lives);
}

#[test]
fn a_pool_on_a_drive_is_found_again() {
    all_lives();
}

#[test]
fn planted_bugs_on_drives_are_noticed() {
    is_noticed("catalog: a copy is not flushed", all_lives);
    is_noticed("drives: a flush does nothing", all_lives);
}

/// Goal: a pool is made on whatever lies there, and only where that was asked for. Method: a drive that held another pool; one that nobody wrote to.
#[test]
fn a_pool_is_made_where_that_is_asked_for() {
    let events = &mut u64::MAX.clone();
    let mut world = World::new(made(1), false);
    assert!(world.open(events));
    let tenant = ControlRequest::CreateTenant(TenantSpec::new("acme"));
    assert!(matches!(world.ask(tenant, events), Some(ControlResponse::Done)));
    // A drive that is labelled anew is another device.
    let again = [0xd2; 16];
    let mut world = World::of_device(world.end(true), again, true);
    assert!(world.open(events) && tenants(&world).is_empty(), "what was there does not count");
    let mut world = World::of_device(world.end(true), again, false);
    assert!(world.open(events) && tenants(&world).is_empty());
    let mut world = World::new(Model::new(DriveProfile::nvme(SIZE_BYTES), 2), false);
    assert!(!world.open(events) && world.shard.failure().is_some(), "nobody made a pool there");
    let mut model = Model::new(DriveProfile::nvme(SIZE_BYTES), 3);
    model.faults_mut().flush_failures = 1;
    let mut world = World::new(model, true);
    assert!(!world.open(events));
    assert!(world.shard.failure().unwrap().contains("cannot be written"), "{:?}", world.shard.failure());
}

/// Goal: what cannot lie on a drive yet is refused by name, and leaves nothing behind.
#[test]
fn what_cannot_lie_on_a_drive_is_refused() {
    let events = &mut u64::MAX.clone();
    let mut world = World::new(made(4), false);
    assert!(world.open(events));
    let tenant = ControlRequest::CreateTenant(TenantSpec::new("acme"));
    assert!(matches!(world.ask(tenant, events), Some(ControlResponse::Done)));
    for (serves, named) in
        [(Serves::Blocks, "erase blocks"), (Serves::Zones, "zones"), (Serves::OpenChannel, "chunks")]
    {
        for _ in 0..2 {
            let spec = VssdSpec { serves, ..VssdSpec::new("fast", "acme", Isolation::Channel, 70) };
            let refused = world.ask(ControlRequest::CreateVssd(spec), events);
            let Some(ControlResponse::Refused(error)) = refused else { panic!("{refused:?}") };
            let expected = format!("vSSD \"fast\": {named} cannot lie on this device yet");
            assert!(error.message.starts_with(&expected), "{}", error.message);
        }
    }
    assert!(world.shard.state().vssds.is_empty());
}

/// Blocks of a volume, as a host with a cache in front of it knows them.
struct Known {
    versions: Versions,
    version: u64,
}

const LBAS: u64 = 512;

/// Work of a host on a volume until so many events happened: writes and deallocations that count when a flush after them was answered.
fn work(world: &mut World, known: &mut Known, random: &mut Random, events: &mut u64) {
    let mut cached = Vec::new();
    loop {
        let first_lba = random.below(LBAS);
        let lba_count = 1 + random.below((LBAS - first_lba).min(32)) as u32;
        let range = LbaRange { first_lba, lba_count };
        let touched = first_lba..first_lba + u64::from(lba_count);
        match random.below(10) {
            0 | 1 => {
                if world.command(NamespaceOperation::Flush, events).is_none() {
                    return;
                }
                for (blocks, version) in cached.drain(..) {
                    known.versions.make_durable(blocks, version);
                }
            }
            2 => {
                let destination = BufferMut::copy_from(&vec![0xee; lba_count as usize * IU_SIZE_BYTES]);
                let Some(done) = world.command(NamespaceOperation::Read { range, destination }, events)
                else {
                    return;
                };
                let data = done.data.expect("a read gives data");
                for (found, lba) in data.chunks(IU_SIZE_BYTES).zip(touched) {
                    assert_eq!(version_in(found), known.versions.newest(lba), "the newest one");
                }
            }
            _ => {
                known.version += 1;
                let version = known.version;
                known.versions.write(touched.clone(), version);
                let bytes = version.to_le_bytes().repeat(lba_count as usize * IU_SIZE_BYTES / 8);
                let write = NamespaceOperation::Write {
                    range,
                    data: Buffer::copy_from(&bytes),
                    force_unit_access: false,
                    placement: PlacementTarget::default(),
                };
                if world.command(write, events).is_none() {
                    return;
                }
                cached.push((touched, version));
            }
        }
    }
}

/// All bytes of a block are of one version.
fn version_in(block: &[u8]) -> u64 {
    let version = u64::from_le_bytes(block[..8].try_into().unwrap());
    assert!(block.chunks(8).all(|word| word == &block[..8]), "a block of one version");
    version
}

fn volumes(seed: u64) {
    let events = &mut u64::MAX.clone();
    let mut random = Random::of(seed);
    let mut world = World::new(Model::new(DriveProfile::nvme(2 * SIZE_BYTES), seed), true);
    assert!(world.open(events), "{:?}", world.shard.failure());
    let vssd = VssdSpec { throughput_level: 2, ..VssdSpec::new("fast", "acme", Isolation::Channel, 280) };
    let volume = VolumeSpec {
        name: "data".to_owned(),
        vssd: "fast".to_owned(),
        size: Size(LBAS * IU_SIZE_BYTES as u64),
        uuid: None,
        nguid: None,
        zones: Default::default(),
        placement: Vec::new(),
    };
    let subsystem = SubsystemSpec {
        nqn: "nqn.2026-11.org.diecut:acme".to_owned(),
        tenant: "acme".to_owned(),
        serial: None,
        model: None,
        allow_any_host: true,
        allowed_hosts: Vec::new(),
        paths: Vec::new(),
        namespaces: vec![NamespaceSpec::new(1, "data")],
    };
    for request in [
        ControlRequest::CreateTenant(TenantSpec::new("acme")),
        ControlRequest::CreateVssd(vssd),
        ControlRequest::CreateVolume(volume),
        ControlRequest::CreateSubsystem(subsystem),
    ] {
        let answer = world.ask(request, events);
        assert!(matches!(answer, Some(ControlResponse::Done)), "{answer:?}");
    }
    let mut model = world.end(true);
    let mut known = Known { versions: Versions::new(LBAS), version: 0 };
    for life in 0..6u64 {
        let mut world = World::new(model, false);
        assert!(world.open(&mut u64::MAX.clone()), "seed {seed}, life {life}: {:?}", world.shard.failure());
        // What a restart found stays.
        let mut data = Vec::new();
        for first_lba in (0..LBAS).step_by(32) {
            let range = LbaRange { first_lba, lba_count: 32 };
            let destination = BufferMut::copy_from(&vec![0xee; 32 * IU_SIZE_BYTES]);
            let read = NamespaceOperation::Read { range, destination };
            let done = world.command(read, &mut u64::MAX.clone()).expect("nothing ends it");
            data.extend_from_slice(&done.data.expect("a read gives data"));
        }
        for (lba, found) in (0..).zip(data.chunks(IU_SIZE_BYTES)) {
            known.versions.find(lba, version_in(found), &format!("seed {seed}, life {life}"));
        }
        work(&mut world, &mut known, &mut random, &mut (200 + random_events(seed, life)));
        model = world.end(true);
    }
}

fn random_events(seed: u64, life: u64) -> u64 {
    Random::of(seed << 8 | life).below(2500)
}

fn all_volumes() {
    (0..depth(8, 500)).for_each(volumes);
}

/// Goal: a host's volume on a drive keeps over any cut what was flushed, through the whole shard. Method: lives of one host, each ended by a cut at some
/// event; each block has its last flushed version or a later one, and keeps what a restart found.
#[test]
fn volumes_on_a_drive_keep_what_was_flushed() {
    all_volumes();
}

#[test]
fn planted_bugs_of_volumes_on_drives_are_noticed() {
    is_noticed("log: what is programmed counts as durable", all_volumes);
    is_noticed("vssd: a flush is answered at once", all_volumes);
}
