//! Goal: what was acknowledged is there after a restart, what was deallocated stays away, nothing is foreign.
//! Method: random commands on a tiny store with many overwrites and cleaner cycles; power cuts and process deaths at
//! random operations; for each IU the oracle keeps the versions it may have.

use crate::common;
use common::{FakeSpace, Random, plain_shape, shape};
use diecut_log::chunk::nonce_of;
use diecut_log::head::Head;
use diecut_log::{FlushNote, RecoveredChunk, TagForm};
use diecut_testing::depth::depth;
use diecut_units::{BufferMut, ContentMode, Payload, ProtectedMemory, Span, Time};
use diecut_volume::contract::*;
use diecut_volume::{AnchorPace, Placement, PlacementIsolation, Store, StoreConfig};
use diecut_vssd::space::{BlockShape, EraseBlockSpace};
use std::collections::{BTreeMap, BTreeSet};

const VOLUMES: u16 = 2;
/// Marks versions that read as zeros; each deallocation is one of its own, or the end of one would count for another.
const DEALLOCATED: u64 = 1 << 63;
/// Marks versions that cannot be read, because a host wanted so.
const UNCORRECTABLE: u64 = 1 << 62;
/// IUs of a volume where nothing else is said.
const SIZE_IUS: u64 = 500;

/// Versions an IU may have: the last acknowledged one and those since. 0 stands for zeros.
type Allowed = Vec<Vec<u64>>;
/// Volume, first IU, number of IUs, version.
type Change = (u16, u64, u64, u64);
/// Volume, first IU, number of IUs, allowed versions.
type Read = (u16, u64, u64, Allowed);

struct World {
    seed: u64,
    random: Random,
    space: FakeSpace,
    placement: Placement,
    store: Option<Store>,
    protected: Option<ProtectedMemory>,
    allowed: Vec<Allowed>,
    /// Writes and deallocations under way: volume, first, count, version.
    changes: BTreeMap<u64, Change>,
    reads: BTreeMap<u64, Read>,
    others: Vec<u64>,
    next: u64,
    openings: u64,
    now: Time,
    out: Vec<VolumeCompletion>,
    size_ius: u64,
    full: bool,
    volatile: bool,
    /// Completed but not flushed: volume, first, count, version.
    cached: Vec<Change>,
    /// For each flush under way: how much of `cached` it covers.
    flushes: BTreeMap<u64, Vec<Change>>,
    /// Changes that are durable when they are answered.
    forced: BTreeSet<u64>,
    /// The medium does not keep its word: reads may say that something is lost.
    forgives_loss: bool,
    has_told_of_loss: bool,
}

impl World {
    fn new(seed: u64, protected: bool, unsafe_units: u32, volatile: bool) -> World {
        let space = FakeSpace::new(shape(ContentMode::Tags, unsafe_units), 3, 18);
        World::on(space, seed, protected, volatile, SIZE_IUS)
    }

    fn on(space: FakeSpace, seed: u64, protected: bool, volatile: bool, size_ius: u64) -> World {
        World::with(Placement::default(), space, seed, protected, volatile, size_ius)
    }

    /// On a drive: no OOB areas, no protected memory, and what no flush covered is gone in any subset.
    fn on_a_drive(seed: u64, volatile: bool) -> World {
        let space = FakeSpace::new(plain_shape(ContentMode::Tags), 3, 18);
        if seed % 4 < 2 {
            return World::on(space, seed, false, volatile, SIZE_IUS);
        }
        // Of a store that was here before everything still lies there: the same segments, with other data.
        let mut before = World::on(space, seed + 1_000_000, false, volatile, SIZE_IUS);
        for _ in 0..300 {
            before.command();
            (0..4).for_each(|_| before.step());
        }
        before.settle();
        before.space.process_death(&mut before.random);
        before.space.forget_all();
        World::on(before.space, seed, false, volatile, SIZE_IUS)
    }

    /// On a drive that shows its dies: the same, with program units of several pages.
    fn on_dies(seed: u64, volatile: bool) -> World {
        let shape = BlockShape { program_unit_pages: 4, ..plain_shape(ContentMode::Tags) };
        World::on(FakeSpace::new(shape, 3, 18), seed, false, volatile, SIZE_IUS)
    }

    /// With several reclaim unit handles.
    fn with_handles(
        placement: Placement,
        seed: u64,
        protected: bool,
        unsafe_units: u32,
        volatile: bool,
    ) -> World {
        let shape = shape(ContentMode::Tags, unsafe_units);
        // Each group has a reserve of its own, and what hosts choose at random is not spread evenly.
        let space =
            if placement.groups == 1 { FakeSpace::new(shape, 3, 26) } else { FakeSpace::new(shape, 4, 44) };
        World::with(placement, space, seed, protected, volatile, SIZE_IUS)
    }

    fn with(
        placement: Placement,
        space: FakeSpace,
        seed: u64,
        protected: bool,
        volatile: bool,
        size_ius: u64,
    ) -> World {
        let mut world = World {
            seed,
            random: Random::of(seed),
            space,
            size_ius,
            placement,
            store: None,
            protected: protected.then(|| ProtectedMemory::in_memory(6 * 5248)),
            allowed: vec![vec![vec![0]; size_ius as usize]; usize::from(VOLUMES)],
            changes: BTreeMap::new(),
            reads: BTreeMap::new(),
            others: Vec::new(),
            next: 1,
            openings: 0,
            now: Time::ZERO,
            out: Vec::new(),
            full: false,
            volatile,
            cached: Vec::new(),
            flushes: BTreeMap::new(),
            forced: BTreeSet::new(),
            forgives_loss: false,
            has_told_of_loss: false,
        };
        world.open();
        for volume in 0..VOLUMES {
            let token = world.token();
            world.others.push(token);
            world.store.as_mut().unwrap().create_volume(VolumeToken(token), VolumeIndex(volume), size_ius);
        }
        world.settle();
        world
    }

    fn token(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn open(&mut self) {
        let region = self.protected.as_ref().map(|m| m.region(0..m.size_bytes()));
        let config = StoreConfig {
            group_commit: Span::from_micros(5),
            user_slots: 6,
            volatile_cache: self.volatile,
            placement: self.placement,
            anchor_pace: AnchorPace {
                ius_per_leaf: 4 + self.seed % 40,
                ius_per_anchor_iu: 3 + self.seed % 9,
            },
            format: common::format_at(self.seed, self.openings),
            ..common::config()
        };
        self.openings += 1;
        self.store = Some(Store::open(config, &mut self.space, region));
        assert_eq!(self.store.as_ref().unwrap().placement(), self.placement);
        for _ in 0..1_000_000 {
            if self.store.as_ref().unwrap().is_ready() {
                self.store.as_ref().unwrap().check_invariants();
                return;
            }
            self.step();
        }
        panic!("seed {}: recovery does not end", self.seed);
    }

    /// One completion of the space, one round of work.
    fn step(&mut self) {
        self.now += Span::from_micros(1);
        let mut out = std::mem::take(&mut self.out);
        let store = self.store.as_mut().unwrap();
        if let Some(completion) = self.space.step(&mut self.random) {
            store.complete(completion, &mut self.space, &mut out);
        }
        store.work(self.now, &mut self.space, &mut out);
        for completion in out.drain(..) {
            self.completed(completion);
        }
        self.out = out;
    }

    fn completed(&mut self, completion: VolumeCompletion) {
        let token = completion.token.0;
        if let Some(changes) = self.flushes.remove(&token) {
            changes.into_iter().for_each(|change| self.durable(change));
        }
        if let Some(change) = self.changes.remove(&token) {
            assert_eq!(completion.result, Ok(()), "seed {}", self.seed);
            let is_forced = self.forced.remove(&token);
            if self.volatile && !is_forced {
                self.cached.push(change);
            } else {
                self.durable(change);
            }
        } else if let Some((volume, first, count, allowed)) = self.reads.remove(&token) {
            if let Err(VolumeError::Unrecovered { iu }) = completion.result {
                let allowed = &allowed[(iu - first) as usize];
                let is_allowed = allowed.iter().any(|version| *version & UNCORRECTABLE != 0);
                self.has_told_of_loss |= !is_allowed;
                let is_allowed = is_allowed || self.forgives_loss;
                assert!(is_allowed, "seed {}: volume {volume} IU {iu} is lost: {allowed:?}", self.seed);
                return;
            }
            assert_eq!(completion.result, Ok(()), "seed {}", self.seed);
            let data = completion.destination.expect("read");
            for iu in 0..count as usize {
                let tag = u64::from_le_bytes(data[iu * 8..iu * 8 + 8].try_into().unwrap());
                let version = if tag == 0 {
                    0
                } else {
                    assert_eq!(
                        tag >> 40,
                        place(volume, first + iu as u64),
                        "seed {}: foreign data",
                        self.seed
                    );
                    tag & ((1 << 40) - 1)
                };
                assert!(
                    allowed[iu]
                        .iter()
                        .any(|allowed| *allowed == version || version == 0 && *allowed & DEALLOCATED != 0),
                    "seed {}: volume {volume} IU {} is version {version}, allowed {:?}",
                    self.seed,
                    first + iu as u64,
                    allowed[iu]
                );
            }
        } else {
            assert!(self.others.contains(&token), "seed {}: token {token}", self.seed);
            assert_eq!(completion.result, Ok(()), "seed {}", self.seed);
            self.others.retain(|t| *t != token);
        }
    }

    fn durable(&mut self, (volume, first, count, version): Change) {
        for iu in first..first + count {
            let allowed = &mut self.allowed[usize::from(volume)][iu as usize];
            if let Some(at) = allowed.iter().rposition(|v| *v == version) {
                allowed.drain(..at);
            }
        }
    }

    fn submit(&mut self, volume: u16, operation: VolumeOperation, token: u64) {
        let mut out = std::mem::take(&mut self.out);
        let command = VolumeCommand { token: VolumeToken(token), volume: VolumeIndex(volume), operation };
        self.store.as_mut().unwrap().submit(command, &mut self.space, &mut out);
        for completion in out.drain(..) {
            self.completed(completion);
        }
        self.out = out;
    }

    /// Where a version is written: the handle, and in two of three cases the group, if there are several.
    fn target_of(&self, version: u64) -> PlacementTarget {
        let (handles, groups) = (u64::from(self.placement.handles), u64::from(self.placement.groups));
        let group = version / handles % (groups + 1);
        PlacementTarget {
            handle: PlacementHandle((version % handles) as u16),
            group: (groups > 1 && group < groups).then_some(ReclaimGroup(group as u16)),
        }
    }

    /// Nothing lies in another group than its host chose, nor in a reclaim unit of another handle, unless the cleaner may have brought it there.
    fn check_placement(&self) {
        for (volume, ius) in self.allowed.iter().enumerate() {
            for (iu, versions) in ius.iter().enumerate() {
                let &[version] = &versions[..] else { continue };
                let store = self.store.as_ref().unwrap();
                let unit = store.reclaim_unit_of(VolumeIndex(volume as u16), iu as u64);
                let Some(unit) = unit else { continue };
                let is_mixed =
                    unit.is_of_cleaner && self.placement.isolation == PlacementIsolation::Initially;
                let target = self.target_of(version);
                let expected = if is_mixed { PlacementHandle(0) } else { target.handle };
                assert_eq!(unit.handle, expected, "seed {}: volume {volume} IU {iu}: {unit:?}", self.seed);
                let group = target.group.unwrap_or(unit.group);
                assert_eq!(unit.group, group, "seed {}: volume {volume} IU {iu}: {unit:?}", self.seed);
            }
        }
    }

    fn command(&mut self) {
        let volume = self.random.below(VOLUMES.into()) as u16;
        let span = if self.full || self.random.below(4) > 0 { self.size_ius } else { 40 };
        let first = self.random.below(span);
        let count = 1 + self.random.below((self.size_ius - first).min(12));
        let token = self.token();
        let kind = if self.full { 5 } else { self.random.below(13) };
        match kind {
            12 => {
                self.change(volume, first, count, UNCORRECTABLE | token, token);
                let lost = VolumeOperation::WriteUncorrectable { first_iu: first, iu_count: count };
                self.submit(volume, lost, token);
            }
            0..=1 => self.read(volume, first, count),
            2 => {
                self.change(volume, first, count, DEALLOCATED | token, token);
                self.submit(volume, VolumeOperation::Deallocate { first_iu: first, iu_count: count }, token);
            }
            4 => {
                self.change(volume, first, count, DEALLOCATED | token, token);
                let force_unit_access = self.force(token);
                let zeroes =
                    VolumeOperation::WriteZeroes { first_iu: first, iu_count: count, force_unit_access };
                self.submit(volume, zeroes, token);
            }
            3 => {
                self.others.push(token);
                self.flushes.insert(token, std::mem::take(&mut self.cached));
                self.submit(volume, VolumeOperation::Flush, token);
            }
            _ => {
                let mut bytes = Vec::new();
                for iu in first..first + count {
                    bytes.extend((place(volume, iu) << 40 | token).to_le_bytes());
                }
                self.change(volume, first, count, token, token);
                let payload = Payload::new(ContentMode::Tags, BufferMut::copy_from(&bytes).freeze());
                let force_unit_access = self.force(token);
                self.submit(
                    volume,
                    VolumeOperation::Write {
                        first_iu: first,
                        payload,
                        force_unit_access,
                        placement: self.target_of(token),
                    },
                    token,
                );
            }
        }
    }

    /// Whether a change is durable when it is answered, whatever cache there is.
    fn force(&mut self, token: u64) -> bool {
        let is_forced = self.random.below(8) == 0;
        if is_forced {
            self.forced.insert(token);
        }
        is_forced
    }

    fn change(&mut self, volume: u16, first: u64, count: u64, version: u64, token: u64) {
        for iu in first..first + count {
            self.allowed[usize::from(volume)][iu as usize].push(version);
        }
        self.changes.insert(token, (volume, first, count, version));
    }

    fn read(&mut self, volume: u16, first: u64, count: u64) {
        let token = self.token();
        let allowed = self.allowed[usize::from(volume)][first as usize..(first + count) as usize].to_vec();
        self.reads.insert(token, (volume, first, count, allowed));
        let destination = BufferMut::copy_from(&vec![0xee; count as usize * 8]);
        self.submit(
            volume,
            VolumeOperation::Read { first_iu: first, iu_count: count as u32, destination },
            token,
        );
    }

    /// Lets everything under way end.
    fn settle(&mut self) {
        for _ in 0..100_000 {
            if self.changes.is_empty() && self.reads.is_empty() && self.others.is_empty() {
                self.store.as_ref().unwrap().check_invariants();
                return;
            }
            self.step();
        }
        panic!(
            "seed {}: {} changes do not end {}",
            self.seed,
            self.changes.len(),
            self.store.as_ref().unwrap().describe()
        );
    }

    /// Lets the store go on, and the space as little as possible, until `is_done`.
    fn wait(&mut self, is_done: impl Fn(&World) -> bool) {
        for round in 0..100_000 {
            if is_done(self) {
                return;
            }
            if round % 8 == 7 {
                self.step();
                continue;
            }
            self.now += Span::from_micros(1);
            let mut out = std::mem::take(&mut self.out);
            self.store.as_mut().unwrap().work(self.now, &mut self.space, &mut out);
            out.drain(..).for_each(|completion| self.completed(completion));
            self.out = out;
        }
        panic!("seed {}: nothing goes on; {}", self.seed, self.store.as_ref().unwrap().describe());
    }

    /// Deletes a volume while much is staged, perhaps cut right after, and makes an empty one of its number.
    fn delete(&mut self, volume: u16) {
        self.wait(|world| {
            world.changes.values().all(|change| change.0 != volume)
                && world.reads.values().all(|read| read.0 != volume)
        });
        let token = self.token();
        self.others.push(token);
        self.store.as_mut().unwrap().delete_volume(VolumeToken(token), VolumeIndex(volume));
        self.wait(|world| !world.others.contains(&token));
        let is_cut = self.random.below(3) == 0;
        if is_cut {
            let power = self.volatile || self.random.below(2) == 0;
            self.restart_unchecked(power);
            let found = self.store.as_ref().unwrap().volume_size_ius(VolumeIndex(volume));
            assert_eq!(found, None, "seed {}: volume {volume} was deleted", self.seed);
        }
        let (token, size_ius) = (self.token(), self.size_ius);
        self.others.push(token);
        self.store.as_mut().unwrap().create_volume(VolumeToken(token), VolumeIndex(volume), size_ius);
        self.allowed[usize::from(volume)] = vec![vec![0]; size_ius as usize];
        self.wait(|world| !world.others.contains(&token));
        self.store.as_ref().unwrap().check_invariants();
    }

    fn restart(&mut self, power: bool) {
        self.restart_unchecked(power);
        self.check_all();
    }

    fn restart_unchecked(&mut self, power: bool) {
        self.store = None;
        if power {
            self.space.power_cut(&mut self.random);
        } else {
            self.space.process_death(&mut self.random);
        }
        self.changes.clear();
        self.reads.clear();
        self.others.clear();
        self.cached.clear();
        self.flushes.clear();
        self.open();
    }

    fn check_all(&mut self) {
        for volume in 0..VOLUMES {
            assert_eq!(
                self.store.as_ref().unwrap().volume_size_ius(VolumeIndex(volume)),
                Some(self.size_ius),
                "seed {}: volume {volume}",
                self.seed
            );
            for first in (0..self.size_ius).step_by(50) {
                self.read(volume, first, 50.min(self.size_ius - first));
            }
        }
        self.settle();
        // What recovery chose stays: pin it down.
        for volume in 0..usize::from(VOLUMES) {
            for iu in 0..self.size_ius as usize {
                let value = self.value(volume as u16, iu as u64);
                self.allowed[volume][iu] = vec![value];
            }
        }
        self.check_placement();
    }

    fn value(&mut self, volume: u16, iu: u64) -> u64 {
        let token = self.token();
        let destination = BufferMut::copy_from(&[0; 8]);
        let operation = VolumeOperation::Read { first_iu: iu, iu_count: 1, destination };
        let command = VolumeCommand { token: VolumeToken(token), volume: VolumeIndex(volume), operation };
        let mut out = Vec::new();
        let store = self.store.as_mut().unwrap();
        store.submit(command, &mut self.space, &mut out);
        while out.is_empty() {
            let completion = self.space.step(&mut self.random).expect("the read is under way");
            store.complete(completion, &mut self.space, &mut out);
        }
        assert_eq!(out.len(), 1);
        if out[0].result == Err(VolumeError::Unrecovered { iu }) {
            return UNCORRECTABLE;
        }
        let data = out.pop().unwrap().destination.expect("read");
        u64::from_le_bytes(data[..].try_into().unwrap()) & ((1 << 40) - 1)
    }
}

/// Which IU of which volume, for the upper part of a tag; never 0.
fn place(volume: u16, iu: u64) -> u64 {
    (u64::from(volume) + 1) << 20 | iu
}

fn run(seed: u64, protected: bool, unsafe_units: u32, commands: u64) {
    run_with(seed, protected, unsafe_units, false, commands);
}

fn run_with(seed: u64, protected: bool, unsafe_units: u32, volatile: bool, commands: u64) {
    go(World::new(seed, protected, unsafe_units, volatile), commands);
}

fn go(mut world: World, commands: u64) {
    let volatile = world.volatile;
    for _ in 0..commands {
        if world.changes.len() < 20 {
            world.command();
        }
        for _ in 0..world.random.below(6) {
            world.step();
        }
        if world.random.below(150) == 0 {
            let power = volatile || world.random.below(2) == 0;
            world.restart(power);
        }
        if world.random.below(400) == 0 {
            world.space.fail_next_append = true;
        }
        if world.placement.references() > 1 && world.random.below(60) == 0 {
            let handle = PlacementHandle(world.random.below(world.placement.handles.into()) as u16);
            let group = if world.placement.groups == 1 {
                0
            } else {
                world.random.below(world.placement.groups.into())
            };
            let store = world.store.as_mut().unwrap();
            store.update_reclaim_unit(ReclaimGroup(group as u16), handle, &mut world.space);
            // Without protected memory, and with units that a cut destroys, it ends when what it holds is safe.
        }
    }
    world.settle();
    world.check_all();
}

fn seeds(first: u64, count: u64) -> impl Iterator<Item = u64> {
    let only: Option<u64> = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    (first..first + count).filter(move |seed| only.is_none_or(|only| only == *seed))
}

#[test]
fn acknowledged_survives_with_protected_memory() {
    seeds(1, 12).for_each(|seed| run(seed, true, 0, 1500));
    seeds(50, 6).for_each(|seed| run(seed, true, 2, 1500));
}

#[test]
fn acknowledged_survives_without_protected_memory() {
    seeds(100, 12).for_each(|seed| run(seed, false, 0, 1500));
    seeds(150, 6).for_each(|seed| run(seed, false, 2, 1500));
}

#[test]
fn flushed_survives_with_a_volatile_cache() {
    seeds(200, 8).for_each(|seed| run_with(seed, false, 0, true, 1500));
    seeds(250, 4).for_each(|seed| run_with(seed, false, 1, true, 1500));
}

/// Goal: on a drive that hides its flash what was acknowledged, or flushed where hosts are told of a cache, is there after any cut. Method: as the
/// others, on blocks with headers whose content is what it likes where nothing was flushed.
#[test]
fn flushed_survives_on_a_drive() {
    // 527: of a segment that was given back a cut brought a part; 575: a chunk moved away from before another one.
    seeds(500, depth(10, 2000))
        .chain([527, 575])
        .for_each(|seed| go(World::on_a_drive(seed, seed.is_multiple_of(2)), 1500));
}

/// Goal: the same on one that shows its dies, where a head lies in one program unit with data.
#[test]
fn flushed_survives_on_dies_with_a_cache() {
    seeds(700, depth(10, 2000)).for_each(|seed| go(World::on_dies(seed, seed.is_multiple_of(2)), 1500));
    let name = "volume: the first unit that no flush covered is not looked at";
    diecut_testing::planted::is_noticed(name, || {
        (700..740).for_each(|seed| go(World::on_dies(seed, true), 1500))
    });
}

/// Goal: no moment of a short trace on a drive is a bad one for a cut.
#[test]
fn a_power_cut_at_every_operation_on_a_drive_loses_nothing() {
    for volatile in [false, true] {
        for steps in 0..220 {
            let mut world = World::on_a_drive(7, volatile);
            for _ in 0..steps {
                if world.changes.len() < 6 {
                    world.command();
                }
                world.step();
            }
            world.restart(true);
            // And a second one, before much was done.
            (0..steps % 7).for_each(|_| world.step());
            world.restart(steps % 2 == 0 || volatile);
        }
    }
}

/// The erase blocks of anchors grow by one; then no flush ends for a while. Whether what older anchors lie on stays.
fn older_anchors_stay_until_a_flush(seed: u64) {
    let mut world = World::on_a_drive(seed, true);
    let anchors = |world: &World| {
        world.space.held_blocks().iter().filter(|held| held.purpose != diecut_log::PURPOSE_SEGMENT).count()
    };
    let mut most = 0;
    for _ in 0..200_000 {
        if world.changes.len() < 20 {
            world.command();
        }
        world.step();
        let now = anchors(&world);
        if now > most && most > 0 {
            world.space.holds_flushes = true;
            (0..200).for_each(|_| world.step());
            assert_eq!(anchors(&world), now, "seed {seed}: the new one is not durable yet");
            world.space.holds_flushes = false;
            world.settle();
            return;
        }
        most = now.max(most);
    }
    panic!("seed {seed}: anchors never took another block");
}

/// Goal: an anchor replaces the one before when a flush has made it durable. Method: flushes are held when one is programmed to a new block.
#[test]
fn an_anchor_on_a_drive_holds_by_a_flush() {
    (1..4).for_each(older_anchors_stay_until_a_flush);
    diecut_testing::planted::is_noticed("log: an anchor holds before its flush", || {
        older_anchors_stay_until_a_flush(1)
    });
}

/// Anchors take another erase block, again and again, and each time the power goes soon after that.
fn cuts_of_anchors_on_two_blocks(seed: u64) {
    // So much data that what an anchor says of its segments takes several program units.
    let space = FakeSpace::new(plain_shape(ContentMode::Tags), 3, 160);
    let mut world = World::on(space, seed, false, true, 10_000);
    world.full = true;
    for _ in 0..30_000 {
        if world.changes.len() < 20 {
            world.command();
        }
        world.step();
    }
    assert!(world.space.held_blocks().len() > 3 * 80, "seed {seed}: segments are full");
    let anchors = |world: &World| {
        world.space.held_blocks().iter().filter(|held| held.purpose != diecut_log::PURPOSE_SEGMENT).count()
    };
    for _ in 0..16 {
        let mut before = usize::MAX;
        let takes_another = (0..200_000).any(|_| {
            // One after the other, or there is another anchor before this one holds.
            if world.changes.is_empty() {
                world.command();
            }
            world.step();
            anchors(&world) > std::mem::replace(&mut before, anchors(&world))
        });
        assert!(takes_another, "seed {seed}: anchors never took another block");
        (0..world.random.below(60)).for_each(|_| world.step());
        world.restart_unchecked(true);
        let size_ius = world.store.as_ref().unwrap().volume_size_ius(VolumeIndex(0));
        assert_eq!(size_ius, Some(world.size_ius), "seed {seed}: no anchor is left");
    }
    world.check_all();
}

/// Goal: an anchor on two erase blocks keeps both. Method: cuts before there is another one.
#[test]
fn an_anchor_on_two_blocks_keeps_both() {
    if common::format() == diecut_log::Format::Two {
        // Such an anchor says little of a segment.
        return;
    }
    // Few seeds have more between two anchors.
    cuts_of_anchors_on_two_blocks(17);
    let name = "log: the block that an anchor begins in goes when it ends in another one";
    diecut_testing::planted::is_noticed(name, || cuts_of_anchors_on_two_blocks(17));
}

/// Heads that lie on the medium, each with the number of the allocation that it lies in.
fn heads_of(space: &mut FakeSpace) -> Vec<(u64, RecoveredChunk)> {
    let held: BTreeMap<_, _> =
        space.held_blocks().iter().map(|held| (held.block, held.allocation_sequence)).collect();
    let mut heads = Vec::new();
    for (nth, (block, _)) in space.written_units().into_iter().enumerate() {
        let nonce = nonce_of(block, space);
        space.bend(nth, |ius, _| {
            let head = Head::decode(nonce, &ius[0]);
            let chunk = head.map(|head| RecoveredChunk::new(head, &ius[0], TagForm::default()));
            heads.extend(chunk.map(|chunk| (held[&block], chunk)));
        });
    }
    heads.sort_by_key(|(_, chunk)| (chunk.head.segment, chunk.head.generation, chunk.head.offset));
    heads
}

/// The newest generation that is named by a head that a restart comes to, going from head to head.
fn newest_named(heads: &[(u64, RecoveredChunk)], unit_ius: u32) -> u32 {
    let (mut newest, mut next) = (0, (0, 0, 0));
    for (_, chunk) in heads {
        let head = &chunk.head;
        let at = (head.segment, head.generation, head.offset);
        if at != next && head.offset != 0 {
            continue;
        }
        next = (head.segment, head.generation, head.offset + u32::from(head.unit_count) * unit_ius);
        newest = newest.max(head.origin.map_or(0, |origin| origin.generation));
        let take = |_, _, words| {
            newest = newest.max(FlushNote::of(words).map_or(0, |note| note.generation));
        };
        let _ = chunk.runs(take, |_| {});
    }
    newest
}

/// Short lives of a store with handles, whose reclaim units end early: what lay in the newest segments soon lies elsewhere.
fn generations_rise(mut world: World) {
    let seed = world.seed;
    let (mut named, mut last_allocation) = (0, u64::MAX);
    for _ in 0..40 {
        for _ in 0..world.random.below(80) {
            if world.changes.len() < 10 {
                world.command();
            }
            let most = [6, 6, 6, 200][world.random.below(4) as usize];
            let steps = world.random.below(most);
            (0..steps).for_each(|_| world.step());
            if world.random.below(20) == 0 {
                let handle = PlacementHandle(world.random.below(3) as u16);
                let store = world.store.as_mut().unwrap();
                store.update_reclaim_unit(ReclaimGroup(0), handle, &mut world.space);
            }
        }
        world.store = None;
        world.space.power_cut(&mut world.random);
        let heads = heads_of(&mut world.space);
        for (_, chunk) in heads.iter().filter(|(allocation, _)| *allocation > last_allocation) {
            let (segment, generation) = (chunk.head.segment, chunk.head.generation);
            assert!(generation > named, "seed {seed}: segment {segment} is of generation {generation} again");
        }
        named = newest_named(&heads, world.space.shape.program_unit_ius());
        let held = world.space.held_blocks();
        last_allocation = held.iter().map(|held| held.allocation_sequence).max().unwrap_or(0);
        world.restart_unchecked(false);
    }
}

/// Goal: a segment is never taken for one that is gone and that heads name still, as what they were copied from or for what a flush made durable of it.
/// Method: generations that heads on the medium name, at each cut, and those of the segments that follow.
#[test]
fn generations_that_heads_name_are_not_given_again() {
    let worlds: [fn(u64) -> World; 2] = [on_a_drive_with_handles, on_flash_with_handles];
    for seed in 0..depth(6, 2000) {
        worlds.iter().for_each(|world| generations_rise(world(seed)));
    }
    if common::format() == diecut_log::Format::Two {
        return;
    }
    let name = "volume: a generation that heads name is given again";
    for (world, seed) in [(worlds[0], 78), (worlds[1], 87)] {
        // A seed that has one, and others for the day when it has none any more.
        let seeds = std::iter::once(seed).chain(100..500);
        diecut_testing::planted::is_noticed(name, || seeds.for_each(|seed| generations_rise(world(seed))));
    }
}

fn on_a_drive_with_handles(seed: u64) -> World {
    let space = FakeSpace::new(plain_shape(ContentMode::Tags), 3, 28);
    let placement = Placement::of_handles(3, PlacementIsolation::Initially);
    World::with(placement, space, seed, false, true, SIZE_IUS)
}

fn on_flash_with_handles(seed: u64) -> World {
    World::with_handles(placements()[1], seed, seed.is_multiple_of(2), 0, false)
}

/// What a medium that did not keep its word leads to.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Nothing of what was promised is missing.
    Whole,
    /// Something is missing, and the store says so.
    Told,
    /// Something is missing, and nobody says so.
    Silent,
}

/// Restarts after a cut, and looks whether what was promised is there.
fn look_after_a_cut(mut world: World) -> Outcome {
    world.restart_unchecked(true);
    if world.store.as_ref().unwrap().read_only_reason().is_some() {
        return Outcome::Told;
    }
    world.forgives_loss = true;
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.check_all()));
    match (checked, world.has_told_of_loss) {
        (Err(_), _) => Outcome::Silent,
        (Ok(()), true) => Outcome::Told,
        (Ok(()), false) => Outcome::Whole,
    }
}

/// A store on a drive that answers flushes and does nothing, from a moment on.
fn on_a_drive_that_lies(seed: u64) -> Outcome {
    let mut world = World::on_a_drive(seed, true);
    for step in 0..600 {
        world.space.lies_about_flushes = step > 300;
        if world.changes.len() < 20 {
            world.command();
        }
        (0..3).for_each(|_| world.step());
    }
    world.settle();
    look_after_a_cut(world)
}

/// A store on a drive of which one durable IU of what is walked becomes something else.
fn on_a_drive_that_rots(seed: u64) -> Outcome {
    let mut world = World::on_a_drive(seed, true);
    for _ in 0..200 {
        if world.changes.len() < 20 {
            world.command();
        }
        (0..3).for_each(|_| world.step());
    }
    world.settle();
    let written = world.space.written_units();
    let at = world.random.below(written.len() as u64) as usize;
    world.space.rot(written[at]);
    look_after_a_cut(world)
}

fn outcomes(run: fn(u64) -> Outcome) -> [usize; 3] {
    let found: Vec<Outcome> = (0..300).map(run).collect();
    [Outcome::Whole, Outcome::Told, Outcome::Silent].map(|one| found.iter().filter(|f| **f == one).count())
}

/// Goal: what a complete flush covered and is not there is told, and not taken for the end of a segment. Method: flushes that do nothing, and IUs that
/// rot; what was promised is there, or the store says that it is not.
#[test]
fn a_drive_that_does_not_keep_its_word_is_found_out() {
    let (lies, rots) = (outcomes(on_a_drive_that_lies), outcomes(on_a_drive_that_rots));
    println!("whole, told, silent: {lies:?} and {rots:?}");
    // A segment whose first header is gone looks as if it had been given back: in 22 and 3 of 600.
    assert!(lies[1] > 270 && lies[2] < 20, "{lies:?}");
    assert!(rots[2] < 6, "{rots:?}");
    // The canary: what is told of otherwise is not.
    let told: Vec<u64> = (0..60).filter(|seed| on_a_drive_that_lies(*seed) == Outcome::Told).collect();
    assert!(diecut_units::marks::plant_mutant(Some("volume: a hole before the durable units is an end")));
    let silent = told.iter().filter(|seed| on_a_drive_that_lies(**seed) == Outcome::Silent).count();
    diecut_units::marks::plant_mutant(None);
    assert!(silent > 0, "of {} seeds", told.len());
}

/// Small writes one after the other to erase blocks that hold many of them.
fn small_writes_go_on(seed: u64) {
    let shape = BlockShape { pages: 2048, unsafe_units: 2048, ..plain_shape(ContentMode::Tags) };
    let mut world = World::on(FakeSpace::new(shape, 1, 18), seed, false, seed.is_multiple_of(2), SIZE_IUS);
    for _ in 0..200 {
        let token = world.token();
        let bytes = BufferMut::copy_from(&(place(0, 7) << 40 | token).to_le_bytes());
        let write = VolumeOperation::Write {
            first_iu: 7,
            payload: Payload::new(ContentMode::Tags, bytes.freeze()),
            force_unit_access: false,
            placement: PlacementTarget::default(),
        };
        world.change(0, 7, 1, token, token);
        world.submit(0, write, token);
        world.settle();
        let written = world.store.as_ref().unwrap().statistics().log.media_ius();
        assert!(written < 200 * 4, "seed {seed}: {written} IUs for so few");
    }
}

/// Goal: on a drive nothing that is programmed waits for what comes behind it, nor is written for its sake. Method: single writes to long erase blocks.
#[test]
fn small_writes_on_a_drive_wait_for_nobody() {
    (0..2).for_each(small_writes_go_on);
    let name = "log: units on a drive wait for those behind them";
    diecut_testing::planted::is_noticed(name, || (0..2).for_each(small_writes_go_on));
}

/// Goal: a flush that fails ends writing for good, with an error that says so, and nothing is answered that is not durable. Method: one fails while
/// writes and flushes are under way.
#[test]
fn a_flush_that_fails_is_the_last() {
    let mut world = World::on_a_drive(1, true);
    (0..200).for_each(|_| {
        world.command();
        world.step();
    });
    world.settle();
    world.space.fail_next_flush = true;
    let token = world.token();
    let bytes = BufferMut::copy_from(&(place(0, 0) << 40 | token).to_le_bytes());
    let write = VolumeOperation::Write {
        first_iu: 0,
        payload: Payload::new(ContentMode::Tags, bytes.freeze()),
        force_unit_access: false,
        placement: PlacementTarget::default(),
    };
    world.change(0, 0, 1, token, token);
    world.submit(0, write, token);
    world.settle();
    let mut out = Vec::new();
    let flush =
        VolumeCommand { token: VolumeToken(1), volume: VolumeIndex(0), operation: VolumeOperation::Flush };
    world.store.as_mut().unwrap().submit(flush, &mut world.space, &mut out);
    for _ in 0..100 {
        world.now += Span::from_micros(1);
        let store = world.store.as_mut().unwrap();
        if let Some(completion) = world.space.step(&mut world.random) {
            store.complete(completion, &mut world.space, &mut out);
        }
        store.work(world.now, &mut world.space, &mut out);
    }
    assert_eq!(out.len(), 1);
    assert!(matches!(out[0].result, Err(VolumeError::ReadOnly { .. })), "{:?}", out[0].result);
    assert!(world.store.as_ref().unwrap().read_only_reason().is_some());
    let flushes = world.space.flushes;
    (0..100).for_each(|_| world.step());
    assert_eq!(world.space.flushes, flushes, "none is asked for again");
    world.restart(true);
}

/// Goal: the model notices what goes wrong on drives alone.
#[test]
fn planted_bugs_of_drives_are_caught() {
    let fails = |seed: &u64| {
        std::panic::catch_unwind(|| go(World::on_a_drive(*seed, seed.is_multiple_of(2)), 1500)).is_err()
    };
    for name in [
        "log: what is programmed counts as durable",
        "log: a flush covers what came after it",
        "log: torn chunk accepted",
        "log: segment freed before copies durable",
        "volume: what no flush covered is not looked at",
        "log: heads of earlier owners count",
        "volume: flush answered early",
    ] {
        assert!(diecut_units::marks::plant_mutant(Some(name)), "{name}");
        let caught = (500..560).find(fails);
        diecut_units::marks::plant_mutant(None);
        println!("{name}: {caught:?}");
        assert!(caught.is_some(), "{name}");
    }
}

/// A full store of few segments is cut again and again with little done between; then it must go on.
/// Volumes are deleted while what was written to them is staged, beside others whose data shares chunks with theirs: what is
/// dropped takes nothing along, and nothing of it comes back.
#[test]
fn deleting_drops_what_is_staged_and_nothing_else() {
    for seed in seeds(1, 60) {
        let (protected, volatile) = (seed % 3 > 0, seed % 3 == 0 && seed % 2 == 0);
        let mut world = World::new(seed, protected, (seed % 2) as u32, volatile);
        for _ in 0..700 {
            if world.changes.len() < 20 {
                world.command();
            }
            for _ in 0..world.random.below(3) {
                world.step();
            }
            match world.random.below(120) {
                0..6 => {
                    let volume = world.random.below(VOLUMES.into()) as u16;
                    world.delete(volume);
                }
                6 => {
                    let power = volatile || world.random.below(2) == 0;
                    world.restart(power);
                }
                7 => world.space.fail_next_append = true,
                _ => {}
            }
        }
        world.settle();
        world.check_all();
    }
}

fn cut_often(placement: Placement, seed: u64, protected: bool, unsafe_units: u32, cuts: u32) {
    // Long erase blocks in half of them: what lives in a victim is then more than a chunk.
    let (pages, size_ius) = if seed % 4 < 2 { (16, SIZE_IUS) } else { (64, 4 * SIZE_IUS) };
    let shape = BlockShape { pages, ..shape(ContentMode::Tags, unsafe_units) };
    // What handles take: each an open segment, and each stream of the cleaner another one beside its reserve.
    let more = match placement.isolation {
        PlacementIsolation::Initially => u32::from(placement.handles) - 1,
        PlacementIsolation::Persistently => 3 * (u32::from(placement.handles) - 1),
    };
    let units = if placement.groups == 1 { 3 } else { 4 };
    let space = FakeSpace::new(shape, units, 18 + more + (seed % 3) as u32);
    let mut world = World::with(placement, space, seed, protected, false, size_ius);
    world.full = true;
    let busy = |world: &mut World, steps: u64, each: u64| {
        for _ in 0..steps {
            if world.changes.len() < 20 && world.random.below(each) == 0 {
                world.command();
            }
            world.step();
        }
    };
    busy(&mut world, (400 + seed % 600 * 3) * u64::from(pages) / 16, 3);
    for _ in 0..2 {
        let longest = [20, 60, 150, 400][world.random.below(4) as usize];
        for _ in 0..cuts {
            let steps = world.random.below(longest);
            if seed.is_multiple_of(2) {
                busy(&mut world, steps, 3);
            } else {
                // At the worst moment: copies are on flash, and nothing was freed for them.
                for _ in 0..400 {
                    busy(&mut world, 1, 3);
                    let log = world.store.as_ref().unwrap().statistics().log;
                    if log.cleaner_ius() + log.map_ius() > 0 || log.segments_freed > 0 {
                        break;
                    }
                }
                busy(&mut world, steps / 8, 3);
            }
            if world.random.below(40) == 0 {
                world.space.fail_next_append = true;
            }
            let power = world.random.below(5) > 0;
            world.restart_unchecked(power);
            // What recovery freed is free when that is durable.
            (0..3).for_each(|_| world.step());
            let free = world.store.as_ref().unwrap().free_segments();
            assert!(free > 0, "seed {seed}: no segment is left for the cleaner");
        }
        busy(&mut world, 300, 1);
        world.settle();
        world.check_all();
    }
}

/// Seen to fail while each restart could cost the segments that were just begun, while what recovery freed became free only
/// when something else was, and while the cleaner's copies were not undone.
#[test]
fn a_store_of_few_segments_outlives_any_number_of_cuts() {
    for seed in seeds(1, 12) {
        for protected in [false, true] {
            cut_often(Placement::default(), seed, protected, (seed % 3) as u32, 40);
        }
    }
}

/// Goal: chunks whose program fails find another place, and the map on flash learns of it, also when its leaves are being written.
/// Method: volumes of several leaves, written bit by bit, many failed programs, and cuts; without other work between.
fn chunks_move_while_leaves_are_written(seed: u64) {
    let space = FakeSpace::new(shape(ContentMode::Tags, (seed % 3) as u32), 3, 60);
    let mut world = World::on(space, seed, seed.is_multiple_of(2), false, 2600);
    for _ in 0..4000 {
        if world.changes.len() < 20 {
            world.command();
        }
        for _ in 0..world.random.below(4) {
            world.step();
        }
        if world.random.below(60) == 0 {
            world.space.fail_next_append = true;
        }
        if world.random.below(400) == 0 {
            world.restart(true);
        }
    }
    world.settle();
    world.check_all();
}

#[test]
fn chunks_that_move_while_leaves_are_written_are_found_again() {
    seeds(20, 14).for_each(chunks_move_while_leaves_are_written);
}

#[test]
fn a_moved_chunk_that_the_writer_of_leaves_forgets_is_noticed() {
    assert!(diecut_units::marks::plant_mutant(Some("volume: moved chunk forgotten in an open group")));
    let is_caught = |seed| std::panic::catch_unwind(|| chunks_move_while_leaves_are_written(seed)).is_err();
    let caught = (20..40).any(is_caught);
    diecut_units::marks::plant_mutant(None);
    assert!(caught, "no seed catches it");
}

fn placements() -> [Placement; 2] {
    [PlacementIsolation::Initially, PlacementIsolation::Persistently]
        .map(|isolation| Placement::of_handles(3, isolation))
}

/// Handles in two reclaim groups of two units.
fn grouped() -> [Placement; 2] {
    [PlacementIsolation::Initially, PlacementIsolation::Persistently].map(|isolation| Placement {
        handles: 2,
        isolation,
        groups: 2,
    })
}

/// Goal: what holds of one stream of host data holds of several, and data of handles stays apart, also when reclaim units are ended, and
/// over cuts. Method: as the others, with writes to three handles in turns.
#[test]
fn handles_keep_what_they_are_given_and_stay_apart() {
    for placement in placements() {
        for seed in seeds(300, 8) {
            let (protected, volatile) = (seed % 3 > 0, seed % 3 == 0 && seed % 2 == 0);
            let world = World::with_handles(placement, seed, protected, (seed % 3) as u32, volatile);
            go(world, 1500);
        }
    }
}

/// Goal: what was written to a group stays there, whatever is cleaned and cut. Method: as with handles.
#[test]
fn groups_keep_what_they_are_given() {
    for placement in grouped() {
        for seed in seeds(400, 8) {
            let (protected, volatile) = (seed % 3 > 0, seed % 3 == 0 && seed % 2 == 0);
            let world = World::with_handles(placement, seed, protected, (seed % 3) as u32, volatile);
            go(world, 2500);
        }
    }
}

#[test]
fn a_power_cut_at_every_operation_leaves_handles_apart() {
    for placement in placements().into_iter().chain(grouped()) {
        for protected in [false, true] {
            for steps in (0..240).step_by(2) {
                let mut world = World::with_handles(placement, 9, protected, 1, false);
                for step in 0..steps {
                    if world.changes.len() < 6 {
                        world.command();
                    }
                    if step % 40 == 39 {
                        let store = world.store.as_mut().unwrap();
                        store.update_reclaim_unit(ReclaimGroup(0), PlacementHandle(1), &mut world.space);
                    }
                    world.step();
                }
                world.restart(true);
            }
        }
    }
}

#[test]
fn a_store_of_few_segments_with_handles_outlives_any_number_of_cuts() {
    for placement in placements() {
        for seed in seeds(1, 12) {
            cut_often(placement, seed, seed % 3 > 0, (seed % 3) as u32, 40);
        }
    }
}

/// Goal: the model notices each planted bug of handles.
#[test]
fn planted_bugs_of_handles_are_caught() {
    let [initially, persistently] = placements();
    for (name, placement) in [
        ("log: copies of isolated handles mix", persistently),
        ("log: staged chunks lose their handle", initially),
    ] {
        assert!(diecut_units::marks::plant_mutant(Some(name)));
        let run = |seed: u64| {
            let world = || World::with_handles(placement, seed, true, 0, false);
            std::panic::catch_unwind(|| go(world(), 1500)).is_err()
        };
        let caught = (300..312).any(run);
        diecut_units::marks::plant_mutant(None);
        assert!(caught, "{name}");
    }
}

#[test]
fn seeds_of_the_bank_hold() {
    // 17: found while planting bugs; 18: its neighbour, which takes the other modes.
    for seed in [17, 18] {
        run_with(seed, seed % 3 == 0, (seed % 2) as u32, seed % 3 == 1, 1500);
    }
}

/// Goal: the model notices each planted bug; one that it misses would be missed in the code too.
#[test]
fn every_planted_bug_is_caught() {
    use diecut_units::marks::{mutant_reached_count, plant_mutant};
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed: Vec<(&str, u64)> = Vec::new();
    plant_mutant(None);
    let run = |seed: u64| {
        let (protected, volatile) = (seed.is_multiple_of(3), seed % 3 == 1);
        std::panic::catch_unwind(|| run_with(seed, protected, (seed % 2) as u32, volatile, 1500)).is_err()
    };
    let broken: Vec<u64> = (1..40).filter(|seed| run(*seed)).collect();
    eprintln!("without a planted bug these fail: {broken:?}");
    assert!(broken.is_empty());
    for name in [
        "log: cleaner copy with a fresh sequence",
        "volume: deallocate record lost",
        "log: segment freed before copies durable",
        "log: torn chunk accepted",
        "log: slot released before programmed",
        "volume: flush answered early",
        "volume: copies without originals undone",
        "volume: record of uncorrectable blocks lost",
        "volume: uncorrectable blocks not kept by the cleaner",
    ] {
        assert!(plant_mutant(Some(name)));
        let caught = (1..40).any(run);
        if !caught {
            missed.push((name, mutant_reached_count()));
        }
    }
    plant_mutant(None);
    let _ = std::panic::take_hook();
    eprintln!("missed: {missed:?}");
    assert!(missed.is_empty(), "not caught (name, times reached): {missed:?}");
}

#[test]
fn a_power_cut_at_every_operation_of_a_short_trace_loses_nothing() {
    for protected in [false, true] {
        for steps in 0..220 {
            let mut world = World::new(7, protected, 1, false);
            for _ in 0..steps {
                if world.changes.len() < 6 {
                    world.command();
                }
                world.step();
            }
            world.restart(true);
        }
    }
}

#[test]
fn a_full_store_is_overwritten_forever() {
    for protected in [false, true] {
        let mut world = World::new(3, protected, 0, false);
        world.full = true;
        for _ in 0..6000 {
            if world.changes.len() < 20 {
                world.command();
            }
            world.step();
        }
        world.settle();
        let statistics = world.store.as_ref().unwrap().statistics();
        assert!(statistics.log.segments_freed > 20, "{statistics:?}");
    }
}

#[test]
fn new_data_is_refused_when_the_store_is_full_and_nothing_of_it_is_written() {
    let mut space = FakeSpace::new(shape(ContentMode::Tags, 0), 3, 20);
    let config = StoreConfig { exported_ius: 100, ..common::config() };
    let memory = ProtectedMemory::in_memory(6 * 5248);
    let mut store = Store::open(config, &mut space, Some(memory.region(0..memory.size_bytes())));
    let mut out = Vec::new();
    store.create_volume(VolumeToken(1), VolumeIndex(0), 200);
    store.work(Time::ZERO, &mut space, &mut out);
    let write = |first_iu, count: usize| VolumeCommand {
        token: VolumeToken(2),
        volume: VolumeIndex(0),
        operation: VolumeOperation::Write {
            first_iu,
            payload: Payload::new(ContentMode::Tags, BufferMut::copy_from(&vec![1; 8 * count]).freeze()),
            force_unit_access: false,
            placement: PlacementTarget::default(),
        },
    };
    for (first, count) in [(0, 90), (85, 20), (0, 90)] {
        store.submit(write(first, count), &mut space, &mut out);
    }
    store.work(Time::ZERO, &mut space, &mut out);
    let results: Vec<_> = out.iter().map(|completion| completion.result.clone()).collect();
    assert_eq!(results, [Ok(()), Ok(()), Err(VolumeError::Full), Ok(())]);
    assert_eq!(store.volume_used_ius(VolumeIndex(0)), 90);
    store.check_invariants();
}
