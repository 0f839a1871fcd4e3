//! Goal: a store of the new format knows after a restart what it knew before, and one of the format of before becomes a new one without losing
//! anything, whenever it is cut. Method: stores on a space in memory, an oracle of each IU, and looks at the bytes of the medium.

use crate::common;
use common::{FakeSpace, Random, seal_unit, shape};
use diecut_units::{BufferMut, ContentMode, Payload, ProtectedMemory, Span, Time};
use diecut_volume::contract::*;
use diecut_volume::{AnchorPace, Format, Missing, Store, StoreConfig};
use diecut_vssd::space::LogicalBlock;

/// Several leaves of either kind, the last ones of which end elsewhere.
const SIZE_IUS: u64 = 4000;
/// IUs of the beginning of each 500 that are written: the store is smaller than its volume.
const WRITTEN_IUS: u64 = 60;
/// 64 bytes, a head, and data of a chunk in tags.
const SLOT_SIZE_BYTES: usize = 64 + 4096 + 128 * 8;
const VOLUME: VolumeIndex = VolumeIndex(1);

struct World {
    seed: u64,
    space: FakeSpace,
    memory: Option<ProtectedMemory>,
    store: Option<Store>,
    random: Random,
    now: Time,
    pace: AnchorPace,
    /// Version of each IU; 0 reads as zeros.
    versions: Vec<u64>,
    next: u64,
}

impl World {
    fn new(seed: u64, format: Format) -> World {
        let memory = seed.is_multiple_of(2).then(|| ProtectedMemory::in_memory(6 * SLOT_SIZE_BYTES));
        let mut world = World {
            seed,
            space: FakeSpace::new(shape(ContentMode::Tags, (seed % 3) as u32), 3, 24),
            memory,
            store: None,
            random: Random::of(seed),
            now: Time::ZERO,
            pace: AnchorPace { ius_per_leaf: 4, ius_per_anchor_iu: 2 },
            versions: vec![0; SIZE_IUS as usize],
            next: 1,
        };
        world.open(format);
        world.store.as_mut().unwrap().create_volume(VolumeToken(1), VOLUME, SIZE_IUS);
        world.until("a creation", |_, out| out.pop().is_some());
        world
    }

    fn begin_open(&mut self, format: Format) {
        let config = StoreConfig {
            group_commit: Span::from_micros(5),
            user_slots: 6,
            anchor_pace: self.pace,
            format,
            ..StoreConfig::default()
        };
        let region = self.memory.as_ref().map(|memory| memory.region(0..memory.size_bytes()));
        self.store = Some(Store::open(config, &mut self.space, region));
    }

    fn open(&mut self, format: Format) {
        self.begin_open(format);
        self.until("an opening", |store, _| store.is_ready());
        let store = self.store();
        assert_eq!(store.read_only_reason(), None, "seed {}: {:?}", self.seed, store.findings());
        store.check_invariants();
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }

    fn step(&mut self, out: &mut Vec<VolumeCompletion>) {
        self.now += Span::from_micros(1);
        let store = self.store.as_mut().expect("it is open");
        if let Some(completion) = self.space.step(&mut self.random) {
            store.complete(completion, &mut self.space, out);
        }
        store.work(self.now, &mut self.space, out);
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Store, &mut Vec<VolumeCompletion>) -> bool) {
        let mut out = Vec::new();
        for _ in 0..200_000 {
            if is_so(self.store.as_ref().expect("it is open"), &mut out) {
                return;
            }
            self.step(&mut out);
        }
        panic!("seed {}: {what} does not end: {}", self.seed, self.store().describe());
    }

    fn ask(&mut self, operation: VolumeOperation) -> VolumeCompletion {
        let mut out = Vec::new();
        let command = VolumeCommand { token: VolumeToken(2), volume: VOLUME, operation };
        self.store.as_mut().expect("it is open").submit(command, &mut self.space, &mut out);
        for _ in 0..200_000 {
            if let Some(completion) = out.pop() {
                return completion;
            }
            self.step(&mut out);
        }
        panic!("seed {}: no answer: {}", self.seed, self.store().describe());
    }

    fn write(&mut self, first_iu: u64, count: u64) {
        self.next += 1;
        let version = self.next;
        let bytes: Vec<u8> =
            (first_iu..first_iu + count).flat_map(|iu| (iu << 40 | version).to_le_bytes()).collect();
        let payload = Payload::new(ContentMode::Tags, BufferMut::copy_from(&bytes).freeze());
        let write = VolumeOperation::Write {
            first_iu,
            payload,
            force_unit_access: false,
            placement: PlacementTarget::default(),
        };
        assert_eq!(self.ask(write).result, Ok(()), "seed {}", self.seed);
        self.versions[first_iu as usize..(first_iu + count) as usize].fill(version);
    }

    /// A write somewhere, and now and then a deallocation.
    fn change(&mut self) {
        let first = self.random.below(SIZE_IUS / 500) * 500 + self.random.below(WRITTEN_IUS);
        let count = 1 + self.random.below(8);
        if self.random.below(8) > 0 {
            return self.write(first, count);
        }
        let deallocate = VolumeOperation::Deallocate { first_iu: first, iu_count: count };
        assert_eq!(self.ask(deallocate).result, Ok(()), "seed {}", self.seed);
        self.versions[first as usize..(first + count) as usize].fill(0);
    }

    /// IUs that cannot be read; what can be is what was written.
    fn unread(&mut self) -> usize {
        let mut unread = 0;
        for iu in (0..SIZE_IUS).filter(|iu| iu % 500 < WRITTEN_IUS + 8) {
            let destination = BufferMut::copy_from(&[0xee; 8]);
            let answer = self.ask(VolumeOperation::Read { first_iu: iu, iu_count: 1, destination });
            let version = self.versions[iu as usize];
            let expected = if version == 0 { 0 } else { iu << 40 | version };
            match answer.result {
                Ok(()) => {
                    let found = u64::from_le_bytes(answer.destination.expect("read")[..].try_into().unwrap());
                    assert_eq!(found, expected, "seed {}: IU {iu} is {found:x}", self.seed);
                }
                Err(VolumeError::Unrecovered { .. }) => unread += 1,
                Err(other) => panic!("seed {}: IU {iu}: {other}", self.seed),
            }
        }
        unread
    }

    fn check(&mut self) {
        let unread = self.unread();
        assert_eq!(unread, 0, "seed {}: nothing is lost", self.seed);
        self.store().check_invariants();
    }

    /// The process dies, or the power goes.
    fn die(&mut self) {
        self.store = None;
        if self.random.below(2) == 0 {
            self.space.process_death(&mut self.random);
        } else {
            self.space.power_cut(&mut self.random);
        }
    }

    /// What stands at the beginning of each program unit, and where that is.
    fn units(&mut self) -> Vec<((LogicalBlock, u32), Vec<u8>)> {
        let mut units = Vec::new();
        for (nth, unit) in self.space.written_units().into_iter().enumerate() {
            self.space.bend(nth, |ius, _| units.push((unit, ius[0].clone())));
        }
        units
    }

    /// Versions of chunk heads, and of anchors, that lie on the medium.
    fn versions_found(&mut self) -> (Vec<u8>, Vec<u8>) {
        let units = self.units();
        let of = |magic: &[u8]| {
            let found = units.iter().filter(|(_, first)| first.starts_with(magic));
            found.map(|(_, first)| first[8]).collect::<Vec<u8>>()
        };
        (of(b"dchk"), of(b"danc"))
    }
}

/// A number that stands on the medium.
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn with_planted<T>(
    bug: &'static str,
    run: impl FnOnce() -> T + std::panic::UnwindSafe,
) -> std::thread::Result<T> {
    assert!(diecut_units::marks::plant_mutant(Some(bug)));
    let result = std::panic::catch_unwind(run);
    diecut_units::marks::plant_mutant(None);
    result
}

/// A store that was written until anchors cover nearly all of it, opened again. Then program units of data change places. How many reads say
/// that they did not find what was meant.
fn swap_after_a_restart(seed: u64, format: Format) -> usize {
    let mut world = World::new(seed, format);
    world.pace = AnchorPace { ius_per_leaf: 1, ius_per_anchor_iu: 1 };
    for iu in (0..SIZE_IUS).filter(|iu| iu % 500 < WRITTEN_IUS).step_by(4) {
        world.write(iu, 4);
    }
    for _ in 0..1200 {
        world.write(3000 + world.next % 8, 2);
    }
    world.die();
    world.open(format);
    let units = world.units();
    // Of chunks of two units the second has no head; leaves and anchors are whole IUs.
    let data: Vec<_> = units.iter().filter(|(_, first)| first.len() == 8).map(|(unit, _)| *unit).collect();
    let mut refused = 0;
    for pair in data.chunks_exact(2) {
        world.space.swap(pair[0], pair[1]);
        refused += world.unread();
        world.space.swap(pair[0], pair[1]);
    }
    refused
}

/// Goal: entries have their checks again after a restart, also where no record is read again. Method: pages are not asked who they are (a planted
/// bug), so only the map can tell content from other.
#[test]
fn leaves_tell_content_from_other() {
    // Without protected memory each write has a chunk of its own here, and each unit a head.
    let noticed = [0, 2, 4].map(|seed| {
        let noticed = with_planted("log: identity of a page not compared", move || {
            swap_after_a_restart(seed, Format::Three)
        });
        noticed.expect("nothing else is read")
    });
    assert!(noticed.iter().all(|refused| *refused > 4), "{noticed:?} reads found other content");
    let noticed =
        with_planted("log: identity of a page not compared", || swap_after_a_restart(0, Format::Two));
    assert!(noticed.is_err(), "a store of before takes one for the other");
}

/// Lives of heads of version 3, in the order of their sequences, and those of anchors, in the order of their numbers.
fn lives(world: &mut World) -> (Vec<u64>, Vec<u64>) {
    let units = world.units();
    let of = |magic: &[u8], version: u8, order: usize, life: usize| {
        let found = units.iter().filter(|(_, first)| first.starts_with(magic) && first[8] == version);
        let mut found: Vec<_> = found.map(|(_, first)| (word(first, order), word(first, life))).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, life)| life).collect::<Vec<_>>()
    };
    (of(b"dchk", 3, 32, 40), of(b"danc", 2, 24, 32))
}

/// Lives of what is in staging, when no store is open.
fn lives_of_slots(world: &World) -> Vec<u64> {
    let Some(memory) = &world.memory else { return Vec::new() };
    let slots = (0..6).map(|slot| memory.region(slot * SLOT_SIZE_BYTES..(slot + 1) * SLOT_SIZE_BYTES));
    slots.filter(|slot| word(slot, 0) != 0).map(|slot| word(&slot, 32)).collect()
}

fn lives_of_a_store(seed: u64) {
    let (mut world, mut staged) = (World::new(seed, Format::Three), 0);
    for life in 1..8 {
        (0..120).for_each(|_| world.change());
        let (heads, anchors) = lives(&mut world);
        assert_eq!(heads.iter().max(), Some(&life), "seed {seed}");
        assert!(anchors.is_sorted() && anchors.last().is_none_or(|newest| *newest <= life), "{anchors:?}");
        world.die();
        let slots = lives_of_slots(&world);
        assert!(slots.iter().all(|slot| *slot == life), "seed {seed}: {slots:?} in life {life}");
        staged += slots.len();
        world.open(Format::Three);
        world.check();
    }
    assert!(staged > 0 || world.memory.is_none(), "seed {seed}: something was staged");
}

/// Goal: what an opening writes can be told from what an earlier one wrote: heads, slots and anchors. Method: many openings.
#[test]
fn lives_rise() {
    (0..6).for_each(lives_of_a_store);
    assert!(with_planted("log: lives do not rise", || lives_of_a_store(0)).is_err());
}

/// An old store becomes a new one, with cuts at any moment, while it is written to.
fn an_old_store(seed: u64) -> World {
    let mut world = World::new(seed, Format::Two);
    world.pace = AnchorPace { ius_per_leaf: 1 + seed % 5, ius_per_anchor_iu: 1 + seed % 3 };
    for _ in 0..300 + seed % 7 * 100 {
        world.change();
    }
    let (heads, anchors) = world.versions_found();
    assert!(heads.iter().all(|version| *version == 2) && anchors.iter().all(|version| *version == 1));
    world.die();
    world
}

/// No chunk of version 3 is there before an anchor that says so. (What was freed is still on this medium for a while.)
fn check_order(world: &mut World, had_anchors: &mut bool) {
    let (heads, anchors) = world.versions_found();
    *had_anchors |= anchors.contains(&2);
    assert!(*had_anchors || !heads.contains(&3), "seed {}: chunks before their anchor", world.seed);
}

fn becomes_new(seed: u64) -> (u32, u32) {
    let mut world = an_old_store(seed);
    let (mut had_anchors, mut cuts_before, mut cuts_within) = (false, 0, 0);
    for round in 0..14 {
        world.pace.ius_per_leaf = [1, 6, 30][(seed + round) as usize % 3];
        // Nobody goes back.
        let asked = if round > 8 && seed.is_multiple_of(2) { Format::Two } else { Format::Three };
        if round % 3 == 2 {
            world.begin_open(asked);
            let mut out = Vec::new();
            (0..world.random.below(80)).for_each(|_| world.step(&mut out));
            world.die();
        }
        world.open(asked);
        check_order(&mut world, &mut had_anchors);
        let changes = world.random.below(if round < 9 { 12 } else { 300 });
        for _ in 0..changes {
            world.change();
            check_order(&mut world, &mut had_anchors);
        }
        if round % 2 == 0 {
            world.check();
        }
        let is_new = world.versions_found().0.contains(&3);
        cuts_before += u32::from(!is_new);
        cuts_within += u32::from(is_new && world.versions_found().0.contains(&2));
        world.die();
    }
    world.open(Format::Three);
    for _ in 0..1500 {
        world.change();
    }
    world.check();
    let (heads, _) = world.versions_found();
    assert!(heads.ends_with(&[3]) || heads.contains(&3), "seed {seed}: new heads are written");
    world.die();
    world.open(Format::Two);
    world.check();
    (cuts_before, cuts_within)
}

#[test]
fn an_old_store_becomes_a_new_one() {
    let (mut before, mut within) = (0, 0);
    for seed in 0..40 {
        let (cuts_before, cuts_within) = becomes_new(seed);
        before += cuts_before;
        within += cuts_within;
    }
    assert!(before > 10 && within > 100, "{before} cuts before it was new, {within} before all of it was");
}

#[test]
fn planted_bugs_of_old_stores_are_noticed() {
    for bug in [
        "volume: new format before its anchor",
        "volume: checks of old segments believed",
        "log: segments of both formats taken for new ones",
    ] {
        let noticed = with_planted(bug, || (0..40).map(becomes_new).count());
        assert!(noticed.is_err(), "{bug}");
    }
}

/// The content of the first IU of a unit. What was there.
fn put_first(space: &mut FakeSpace, at: (LogicalBlock, u32), content: Vec<u8>) -> Vec<u8> {
    let nth = space.written_units().iter().position(|unit| *unit == at).expect("it is written");
    let mut content = content;
    space.bend(nth, |ius, _| std::mem::swap(&mut ius[0], &mut content));
    content
}

/// The last chunk of a segment cannot be read while a store of the format of before is opened, and comes back when an anchor says where the segment
/// ended. Whether the segment still was there.
fn an_end_that_comes_back(seed: u64) -> bool {
    let mut world = World::new(seed, Format::Two);
    (0..200).for_each(|_| world.change());
    world.write(20, 4);
    let newest = |world: &mut World| {
        let of_hosts = |first: &[u8]| first.starts_with(b"dchk") && first[10] == 0 && first[24] > 0;
        let heads = world.units().into_iter().filter(|(_, first)| of_hosts(first));
        let newest = heads.max_by_key(|(_, first)| word(first, 32)).expect("there are heads");
        (newest.0, word(&newest.1, 32))
    };
    let (_, before) = newest(&mut world);
    // Not answered before units behind it are programmed, so either content is right, but not one and then the other.
    let bytes: Vec<u8> = (20..24u64).flat_map(|iu| (iu << 40 | 0xff_ffff).to_le_bytes()).collect();
    let payload = Payload::new(ContentMode::Tags, BufferMut::copy_from(&bytes).freeze());
    let placement = PlacementTarget::default();
    let operation = VolumeOperation::Write { first_iu: 20, payload, force_unit_access: false, placement };
    let command = VolumeCommand { token: VolumeToken(2), volume: VOLUME, operation };
    let mut out = Vec::new();
    world.store.as_mut().unwrap().submit(command, &mut world.space, &mut out);
    while newest(&mut world).1 == before {
        world.step(&mut out);
    }
    assert!(out.is_empty(), "seed {seed}: it is not safe");
    world.store = None;
    world.space.process_death(&mut world.random);
    let (last, _) = newest(&mut world);
    let content = put_first(&mut world.space, last, vec![0; 4096]);
    world.open(Format::Three);
    world.check();
    let mut out = Vec::new();
    while !world.versions_found().1.contains(&2) {
        world.step(&mut out);
    }
    (0..50).for_each(|_| world.step(&mut out));
    world.die();
    if !world.space.written_units().contains(&last) {
        return false;
    }
    put_first(&mut world.space, last, content);
    world.open(Format::Three);
    world.check();
    true
}

/// Goal: what lies behind the end that an opening found never counts, also when it can be read later.
#[test]
fn nothing_counts_behind_an_end() {
    // No protected memory, and a last row that a cut can take.
    let seeds = || (0..20).map(|at| 1 + 6 * at);
    let there = seeds().filter(|seed| an_end_that_comes_back(*seed)).count();
    assert!(there > 3, "{there} segments were still there");
    let bug = "volume: chunks behind the end count";
    let noticed = seeds().filter(|seed| {
        let seed = *seed;
        with_planted(bug, move || an_end_that_comes_back(seed)).is_err()
    });
    assert!(noticed.count() > 0);
}

/// Goal: a leaf that is whole and another one is not taken. Method: the number of a leaf is changed, with all checks made right.
fn another_leaf(seed: u64) {
    let mut world = World::new(seed, Format::Three);
    world.pace = AnchorPace { ius_per_leaf: 1, ius_per_anchor_iu: 1 << 20 };
    (0..400).for_each(|_| world.change());
    world.die();
    let mut bent = 0;
    for nth in 0..world.space.unit_sum() {
        world.space.bend(nth, |ius, oob| {
            let follow_head = ius[0].starts_with(b"dchk");
            for leaf in ius.iter_mut().filter(|iu| follow_head && iu.starts_with(b"dlef")) {
                leaf[16] ^= 1;
                bent += 1;
            }
            seal_unit(ius, oob);
        });
    }
    assert!(bent > 0, "seed {seed}: there are leaves");
    world.begin_open(Format::Three);
    world.until("an opening", |store, _| store.is_ready());
    let missing = &world.store().findings().missing;
    let is_leaf = |missing: &Missing| matches!(missing, Missing::Leaf { leaf_ius: 504, .. });
    assert!(!missing.is_empty() && missing.iter().all(is_leaf), "seed {seed}: {missing:?}");
}

#[test]
fn a_leaf_is_not_taken_for_another() {
    (0..6).for_each(another_leaf);
    let bug = "volume: leaf of another number taken";
    assert!(with_planted(bug, || (0..6).for_each(another_leaf)).is_err());
}
