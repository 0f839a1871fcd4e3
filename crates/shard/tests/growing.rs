//! Goal: while devices come to the pool of a server that runs and leave it, whatever was acknowledged stays, and each start finds the pool of before
//! or that of afterwards. Method: lives, each ended by a cut at some event or between two labels; some drives flush slowly, so that changes are not
//! everywhere when they are acknowledged; each start is given any drives that make a pool by their labels.

use crate::drives::{Known, Labelled, SIZE_BYTES, World, find, requests, work};
use diecut_drives::{
    DriveShape, Label, LabelDevice, Membership, PoolOpening, list_with, list_without, open_pool,
};
use diecut_emulator::drive::{Drive as Model, DriveProfile};
use diecut_shard::control::*;
use diecut_spec::TenantSpec;
use diecut_testing::Random;
use diecut_testing::depth::depth;
use diecut_testing::planted::is_noticed;
use diecut_units::Span;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

const DEVICES_MAX: usize = 4;

fn forever() -> u64 {
    u64::MAX
}

fn done(answer: Option<ControlResponse>) {
    assert!(matches!(answer, Some(ControlResponse::Done | ControlResponse::Unchanged)), "{answer:?}");
}

/// A drive that nobody wrote to; some take their time for a flush.
fn drive(device: u8, random: &mut Random) -> Labelled {
    let flush = if random.below(3) == 0 { Span::from_millis(20) } else { Span::from_micros(50) };
    let profile = DriveProfile { flush, ..DriveProfile::nvme(SIZE_BYTES + (1 << 24)) };
    Labelled { device, model: Model::new(profile, random.below(u64::MAX)) }
}

fn listed(device: u8, membership: Membership) -> LabelDevice {
    LabelDevice { device: [device; 16], membership, since: 1 }
}

/// What labels say, by drive. A label is there or is not: a cut comes between two of them.
#[derive(Default)]
struct Labels(BTreeMap<u8, Vec<LabelDevice>>);

impl Labels {
    fn label(&self, device: u8) -> Label {
        Label {
            number: 1,
            server: [9; 16],
            device: [device; 16],
            epoch: 1,
            view: [1; 8],
            secret: [0x5e; 16],
            shape: DriveShape {
                lanes: 4,
                block_size_bytes: 1 << 20,
                blocks_per_lane: 16,
                zones: None,
                dies: None,
                lane_stride_bytes: None,
            },
            system: (0, 1),
            devices: self.0[&device].clone(),
        }
    }

    /// The pool of these drives, if they make one.
    fn open(&self, drives: &[u8]) -> Option<PoolOpening> {
        let labels: Vec<Label> = drives.iter().map(|device| self.label(*device)).collect();
        open_pool(&labels, false).ok()
    }

    /// What all others say of the pool, with a device as this.
    fn with(&self, others: &[u8], device: u8, membership: Membership) -> Vec<LabelDevice> {
        list_with(&self.0[&others[0]], listed(device, membership))
    }
}

/// A volume, and the devices that it lies on.
struct Volume {
    known: Known,
    on: Vec<u8>,
}

struct Scene {
    random: Random,
    labels: Labels,
    /// Those of the pool, by device, while no server has them.
    drives: BTreeMap<u8, Labelled>,
    volumes: Vec<Volume>,
    tenants: BTreeSet<String>,
    asked: Option<String>,
    next_device: u8,
    turns: u32,
}

/// A life of the server.
struct Life<'a> {
    scene: &'a mut Scene,
    world: World,
    /// Devices of the pool that are there.
    there: Vec<u8>,
    is_whole: bool,
    events: u64,
}

fn uuid(device: u8) -> Uuid {
    Uuid::from_bytes([device; 16])
}

impl Scene {
    /// One or two drives, each with a volume.
    fn new(seed: u64) -> Scene {
        let mut random = Random::of(seed);
        let count = 1 + random.below(2) as u8;
        let made: Vec<Labelled> = (1..=count).map(|device| drive(device, &mut random)).collect();
        let mut world = World::new(made, 0, true);
        assert!(world.open(&mut forever()), "{:?}", world.shard.failure());
        let drives = world.end(true).into_iter().map(|drive| (drive.device, drive)).collect();
        let all: Vec<LabelDevice> = (1..=count).map(|device| listed(device, Membership::There)).collect();
        let labels = Labels((1..=count).map(|device| (device, all.clone())).collect());
        let (volumes, tenants) = (Vec::new(), BTreeSet::new());
        Scene { random, labels, drives, volumes, tenants, asked: None, next_device: count + 1, turns: 0 }
    }

    /// Any drives that make a pool, in any order, and all others that are not there.
    fn choose(&mut self) -> (Vec<u8>, PoolOpening) {
        let all: Vec<u8> = self.labels.0.keys().copied().collect();
        for _ in 0..3 {
            let some: Vec<u8> = all.iter().copied().filter(|_| self.random.below(3) > 0).collect();
            if let Some(opening) = self.labels.open(&some) {
                return (some, opening);
            }
        }
        let opening = self.labels.open(&all).expect("all drives make a pool");
        (all, opening)
    }

    /// The next life of the server, which finds what was acknowledged.
    fn begin(&mut self, place: &str) -> Life<'_> {
        let (given, opening) = self.choose();
        let mut there = Vec::new();
        for at in &opening.current {
            if opening.membership([given[*at]; 16]).is_some_and(Membership::has_voice) {
                there.push(given[*at]);
            }
        }
        // What did not join, or left, is none of the pool, and is forgotten.
        let is_out = |device: &u8| {
            let is_known = opening.membership([*device; 16]).is_some_and(Membership::has_voice);
            given.contains(device) && !is_known
        };
        let out: Vec<u8> = self.labels.0.keys().copied().filter(is_out).collect();
        for device in out {
            self.labels.0.remove(&device);
            self.drives.remove(&device);
        }
        for device in &there {
            self.labels.0.insert(*device, opening.devices.clone());
        }
        for at in (1..there.len()).rev() {
            there.swap(at, self.random.below(at as u64 + 1) as usize);
        }
        let missing = opening.voices() - there.len();
        let drives =
            there.iter().map(|device| self.drives.remove(device).expect("it is somewhere")).collect();
        let mut world = World::new(drives, missing as u16, false);
        assert!(world.open(&mut forever()), "{place}, {there:?}: {:?}", world.shard.failure());
        let found: BTreeSet<String> = world.shard.state().tenants.keys().cloned().collect();
        let mut with = self.tenants.clone();
        with.extend(self.asked.take());
        assert!(
            found == self.tenants || found == with,
            "{place}, {there:?}: {found:?}, {:?} or {with:?}",
            self.tenants
        );
        self.tenants = found;
        for volume in self.volumes.iter_mut().filter(|volume| volume.on.iter().all(|on| there.contains(on))) {
            find(&mut world, &mut volume.known, place);
        }
        let events = 200 + self.random.below(3000);
        Life { scene: self, world, there, is_whole: missing == 0, events }
    }
}

impl Life<'_> {
    /// Lets other things happen: a change of the catalog, the work of a host.
    fn pass_time(&mut self) {
        let Life { scene, world, there, events, .. } = self;
        if scene.random.below(2) == 0 && *events > 0 {
            let name = format!("tenant-{}", world.tokens);
            match world.ask(ControlRequest::CreateTenant(TenantSpec::new(&name)), events) {
                Some(answer) => {
                    done(Some(answer));
                    scene.tenants.insert(name);
                }
                None => scene.asked = Some(name),
            }
        }
        let at = scene.random.below(scene.volumes.len().max(1) as u64) as usize;
        let whole = scene.volumes.get_mut(at).filter(|volume| volume.on.iter().all(|on| there.contains(on)));
        if let Some(volume) = whole {
            let mut part = (*events).min(scene.random.below(200));
            *events -= part;
            work(world, &mut volume.known, &mut scene.random, &mut part);
        }
    }

    /// Asks for a turn of a device; `None` if a cut comes before its answer.
    fn turn(&mut self, device: u8, turn: DeviceTurn) -> Option<ControlResponse> {
        self.world.ask(ControlRequest::Device { device: uuid(device), turn }, &mut self.events)
    }

    /// Writes labels, one after the other, while other things happen. `None` if a cut comes between.
    fn write(&mut self, devices: &[u8], list: &[LabelDevice]) -> Option<()> {
        for device in devices {
            self.pass_time();
            if self.events == 0 || self.scene.random.below(8) == 0 {
                self.events = 0;
                return None;
            }
            self.scene.labels.0.insert(*device, list.to_vec());
        }
        Some(())
    }

    /// A device comes; `None` if a cut comes before it is there.
    fn grow(&mut self) -> Option<()> {
        let device = self.scene.next_device;
        self.scene.next_device += 1;
        let new = drive(device, &mut self.scene.random);
        self.world.bring(new);
        done(Some(self.turn(device, DeviceTurn::Comes)?));
        self.pass_time();
        let others = self.there.clone();
        let list = |life: &Self, membership| life.scene.labels.with(&others, device, membership);
        let (joins, there) = (list(self, Membership::Joining), list(self, Membership::There));
        self.write(&[device], &joins)?;
        self.write(&others, &joins)?;
        self.write(&others, &there)?;
        self.write(&[device], &there)?;
        done(Some(self.turn(device, DeviceTurn::Joined)?));
        self.there.push(device);
        self.scene.turns += 1;
        if self.scene.random.below(2) == 0 {
            self.make_volume(vec![device]);
        } else if self.scene.random.below(2) == 0 {
            self.make_volume(vec![device, others[0]]);
        }
        Some(())
    }

    fn make_volume(&mut self, on: Vec<u8>) {
        let name = format!("own-{}", self.world.tokens);
        for request in requests(&name, on.iter().map(|device| format!("drive-{device:x}")).collect()) {
            done(self.world.ask(request, &mut forever()));
        }
        let namespace = self.world.shard.state().volumes[&format!("{name}-data")].namespace;
        self.scene.tenants.insert(name);
        self.scene.volumes.push(Volume { known: Known::new(namespace), on });
    }

    /// A device leaves, if nothing lies on it; `None` if a cut comes before it is gone.
    fn shrink(&mut self) -> Option<()> {
        let device = self.there[self.scene.random.below(self.there.len() as u64) as usize];
        let is_used = self.scene.volumes.iter().any(|volume| volume.on.contains(&device));
        let answer = self.turn(device, DeviceTurn::Leaves)?;
        if is_used || self.there.len() == 1 {
            let ControlResponse::Refused(error) = answer else { panic!("{answer:?}") };
            assert_eq!(error.kind, ControlErrorKind::InUse, "{error:?}");
            return Some(());
        }
        done(Some(answer));
        let others: Vec<u8> = self.there.iter().copied().filter(|other| *other != device).collect();
        let list = list_without(&self.scene.labels.0[&device], [device; 16]);
        self.write(&others, &list)?;
        done(Some(self.turn(device, DeviceTurn::Went)?));
        self.scene.labels.0.remove(&device);
        self.there = others;
        self.scene.turns += 1;
        Some(())
    }

    /// Until a cut.
    fn go_on(mut self) {
        while self.events > 0 {
            self.pass_time();
            let can_turn = self.is_whole && self.events > 0;
            let _is_cut = match self.scene.random.below(3) {
                0 if can_turn && self.there.len() < DEVICES_MAX => self.grow(),
                1 if can_turn => self.shrink(),
                _ if self.scene.volumes.is_empty() => {
                    self.make_volume(vec![self.there[0]]);
                    Some(())
                }
                _ => Some(()),
            };
        }
        let is_cut = self.scene.random.below(4) > 0;
        let labels = &self.scene.labels.0;
        let drives = self.world.end(is_cut).into_iter().filter(|drive| labels.contains_key(&drive.device));
        let drives: Vec<Labelled> = drives.collect();
        self.scene.drives.extend(drives.into_iter().map(|drive| (drive.device, drive)));
    }
}

/// How many devices came and went.
fn lives(seed: u64) -> u32 {
    let mut scene = Scene::new(seed);
    for life in 0..10 {
        scene.begin(&format!("seed {seed}, life {life}")).go_on();
    }
    scene.begin(&format!("seed {seed}, at the end"));
    scene.turns
}

fn all_lives() {
    let turns: u32 = (0..depth(12, 1000)).map(lives).sum();
    assert!(turns > 12, "devices come and go: {turns}");
}

#[test]
fn devices_come_and_go_and_nothing_is_lost() {
    all_lives();
}

/// A pool that is open, of so many drives.
fn opened(count: u8) -> World {
    let plain = |device: u8| Labelled::new(device, SIZE_BYTES + (1 << 24), 7);
    let mut world = World::new((1..=count).map(plain).collect(), 0, true);
    assert!(world.open(&mut forever()));
    let mut world = World::new(world.end(false), 0, false);
    assert!(world.open(&mut forever()));
    world
}

fn stall(world: &mut World, drive: usize) {
    world.drives[drive].model.faults_mut().stalled_until = world.now + Span::from_secs(3600);
}

/// A drive comes that answers nothing.
fn a_slow_drive_comes() {
    let mut world = opened(1);
    let mut drive = Labelled::new(2, SIZE_BYTES + (1 << 24), 7);
    drive.model.faults_mut().stalled_until = world.now + Span::from_secs(3600);
    world.bring(drive);
    let answer = world.ask(ControlRequest::Device { device: uuid(2), turn: DeviceTurn::Comes }, &mut 10_000);
    assert!(!matches!(answer, Some(ControlResponse::Done)), "{answer:?}");
}

/// One leaves that alone has the last change.
fn the_newest_drive_leaves() {
    let mut world = opened(2);
    world.hang(Some(0));
    done(world.ask(ControlRequest::CreateTenant(TenantSpec::new("late")), &mut 10_000));
    let answer = world.ask(ControlRequest::Device { device: uuid(2), turn: DeviceTurn::Leaves }, &mut 10_000);
    assert!(!matches!(answer, Some(ControlResponse::Done)), "{answer:?}");
}

/// Goal: a device comes when it has what the others have, and leaves when they have what it has.
#[test]
fn all_that_stay_have_everything_before_labels_tell_of_it() {
    a_slow_drive_comes();
    the_newest_drive_leaves();
}

/// A pool of one drive to which a second one comes, or of two of which the second one leaves, while the first one answers nothing more.
fn a_change_while_one_turns(turn: DeviceTurn) {
    let mut world = opened(if turn == DeviceTurn::Leaves { 2 } else { 1 });
    if turn == DeviceTurn::Comes {
        world.bring(Labelled::new(2, SIZE_BYTES + (1 << 24), 7));
    }
    done(world.ask(ControlRequest::Device { device: uuid(2), turn }, &mut forever()));
    stall(&mut world, 0);
    let answer = world.ask(ControlRequest::CreateTenant(TenantSpec::new("late")), &mut 10_000);
    assert!(!matches!(answer, Some(ControlResponse::Done)), "{answer:?}");
}

fn changes_while_devices_turn() {
    [DeviceTurn::Comes, DeviceTurn::Leaves].into_iter().for_each(a_change_while_one_turns);
}

/// Goal: what only a device has that comes, or that leaves, is not made yet: a start may find the pool without it.
#[test]
fn a_change_holds_in_the_pool_of_before_and_in_that_of_afterwards() {
    changes_while_devices_turn();
}

#[test]
fn planted_bugs_of_devices_that_come_and_go_are_noticed() {
    is_noticed("shard: what a device that comes or leaves has counts at once", changes_while_devices_turn);
    is_noticed("shard: a device joins without what the others have", a_slow_drive_comes);
    is_noticed("shard: a device leaves before the others have what it has", the_newest_drive_leaves);
    is_noticed("shard: a device leaves with what lies on it", all_lives);
}
