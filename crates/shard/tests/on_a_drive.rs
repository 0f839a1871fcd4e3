//! Goal: a shard makes a pool on a drive that hides its flash, and finds it again after any cut. Method: the model of a drive carries out what the
//! shard asks its driver for; lives of requests, each ended by a cut or by the death of the process at some event. Whatever was answered is
//! there; what was asked for may be.

use diecut_drives::{DriveMedium, DriveShape};
use diecut_emulator::drive::{Drive as Model, DriveProfile};
use diecut_media::{IntentDone, Media};
use diecut_shard::control::*;
use diecut_shard::drive::*;
use diecut_shard::{Nonces, PoolConfig, Shard, ShardConfig};
use diecut_spec::{Isolation, TenantSpec, VssdSpec};
use diecut_testing::Random;
use diecut_testing::depth::depth;
use diecut_testing::planted::is_noticed;
use diecut_units::Time;
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
        let config = ShardConfig { pool, makes_pool, new_pool_uuid: [0x77; 16], ..ShardConfig::default() };
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

/// Goal: what cannot lie on a drive yet is refused, and leaves nothing behind.
#[test]
fn vssds_on_a_drive_are_refused() {
    let events = &mut u64::MAX.clone();
    let mut world = World::new(made(4), false);
    assert!(world.open(events));
    let tenant = ControlRequest::CreateTenant(TenantSpec::new("acme"));
    assert!(matches!(world.ask(tenant, events), Some(ControlResponse::Done)));
    for _ in 0..2 {
        let spec = VssdSpec::new("fast", "acme", Isolation::Channel, 70);
        let refused = world.ask(ControlRequest::CreateVssd(spec), events);
        let Some(ControlResponse::Refused(error)) = refused else { panic!("{refused:?}") };
        assert!(
            error.message.contains("vSSD \"fast\": the device keeps nothing beside its pages"),
            "{}",
            error.message
        );
    }
    assert!(world.shard.state().vssds.is_empty());
}
