//! Goal: the catalog holds what was put, on a drive that hides its flash and has a volatile cache. Method: lives of changes on the model of a
//! drive, each ended by a cut or by the death of the process at some event; the state that is found is the last that was durable, or one that was asked
//! for after it. Faults of the drive, a copy that rots, and planted bugs.

use diecut_catalog::*;
use diecut_drives::{DriveMedium, DriveShape};
use diecut_emulator::drive::{Drive, DriveProfile, Stretch};
use diecut_media::Media;
use diecut_testing::Random;
use diecut_testing::depth::depth;
use diecut_testing::driven::Driven;
use diecut_testing::planted::is_noticed;
use diecut_units::{BlockIndex, EraseBlockAddress, Time};

const SIZE_BYTES: u64 = 34 << 20;
const DEVICE: [u8; 16] = [0xd1; 16];

type OnDrive = Driven<DriveMedium, Drive>;

fn opened(drive: Drive) -> OnDrive {
    let shape = DriveShape::plan(drive.profile().size_bytes, 4, Some(1 << 20)).unwrap();
    Driven::new(DriveMedium::new(shape, !drive.profile().is_durable_at_once, true), drive)
}

fn blocks(media: &OnDrive) -> [[EraseBlockAddress; 2]; 2] {
    let dies: Vec<Vec<EraseBlockAddress>> = media
        .geometry()
        .all_dies()
        .map(|die| (0..2).map(|index| die.erase_block(BlockIndex(index))).collect())
        .collect();
    Catalog::choose_blocks(&dies).unwrap()
}

/// A state that is large enough for several frames, and differs from step to step.
fn state(step: u64) -> State {
    let mut state = State::default();
    state.pool.starts = step;
    for tenant in 0..60 {
        let name = format!("tenant-{tenant}-{}", "x".repeat(120));
        let mut spec = diecut_spec::TenantSpec::new(&name);
        spec.weight = 1 + ((step + tenant) % 50) as u32;
        state.tenants.insert(name, spec);
    }
    state
}

/// Goes on until `until` holds, nothing is under way, or so many events happened.
fn run(
    media: &mut OnDrive,
    catalog: &mut Catalog,
    now: &mut Time,
    events: &mut u64,
    until: impl Fn(&Catalog) -> bool,
) {
    let mut completions = Vec::new();
    while !until(catalog) && *events > 0 {
        let next = media.next_event();
        if next == Time::NEVER {
            return;
        }
        *events -= 1;
        *now = (*now).max(next);
        media.advance(*now, &mut completions);
        completions.drain(..).for_each(|done| catalog.complete(done, media, *now));
    }
}

fn open(media: &mut OnDrive, now: &mut Time) -> (Catalog, Option<State>) {
    let blocks = blocks(media);
    let mut catalog = Catalog::open(media, DEVICE, blocks, *now);
    run(media, &mut catalog, now, &mut u64::MAX.clone(), Catalog::is_open);
    assert!(catalog.is_open());
    let found = catalog.take_state();
    (catalog, found)
}

/// A drive with a catalog that holds the first state.
fn made(seed: u64) -> OnDrive {
    let mut media = opened(Drive::new(DriveProfile::nvme(SIZE_BYTES), seed));
    let mut catalog = Catalog::create(&media, DEVICE, blocks(&media));
    let mut now = Time::ZERO;
    put(&mut media, &mut catalog, &mut now, &mut u64::MAX.clone(), 0, 1).unwrap();
    media
}

/// Puts a state over another; says whether it is durable.
fn put(
    media: &mut OnDrive,
    catalog: &mut Catalog,
    now: &mut Time,
    events: &mut u64,
    base: u64,
    next: u64,
) -> Result<(), ()> {
    let base = if base == 0 { State::default() } else { state(base) };
    let number = catalog.put(base.changes_to(&state(next)), media, *now).unwrap();
    run(media, catalog, now, events, |catalog| catalog.durable() >= number || catalog.error().is_some());
    if catalog.durable() >= number { Ok(()) } else { Err(()) }
}

fn lives(seed: u64) {
    let mut random = Random::of(seed);
    let mut media = made(seed);
    let (mut durable, mut asked, mut last) = (1, 1, 1);
    for life in 0..if seed.is_multiple_of(2) { 40 } else { 10 } {
        let mut now = Time::ZERO;
        let (mut catalog, found) = open(&mut media, &mut now);
        assert_eq!(catalog.error(), None, "seed {seed}, life {life}");
        let found = found.unwrap();
        let step = found.pool.starts;
        assert!(step == durable || step == asked, "seed {seed}, life {life}: {step} of {durable}..{asked}");
        assert_eq!(found, state(step), "seed {seed}, life {life}: whole");
        (durable, asked) = (step, step);
        // Some end while the first state of a block is written, time and again; others go through both blocks.
        let is_short = seed.is_multiple_of(2) || random.below(2) == 0;
        let mut events = if is_short { random.below(24) } else { random.below(1500) };
        while events > 0 {
            // What was asked for and lost is not asked for again: it would be the same.
            last += 1;
            asked = last;
            if put(&mut media, &mut catalog, &mut now, &mut events, durable, asked).is_err() {
                break;
            }
            durable = asked;
        }
        let mut drive = media.io;
        if random.below(3) == 0 {
            drive.process_death()
        } else {
            drive.cut()
        }
        if random.below(3) == 0 {
            // What an opening found stays, also if the power goes when it is over.
            let mut again = opened(drive);
            let (_, found) = open(&mut again, &mut Time::ZERO.clone());
            durable = found.unwrap().pool.starts;
            drive = again.io;
            drive.cut();
        }
        media = opened(drive);
    }
}

fn all_lives() {
    (0..depth(60, 3_000)).for_each(lives);
}

#[test]
fn what_was_put_is_there_after_cuts() {
    all_lives();
}

#[test]
fn planted_bugs_are_noticed() {
    for name in [
        "catalog: a copy is not flushed",
        "catalog: frames are read without a flush",
        "catalog: a frame counts at any place",
        "catalog: oldest frame wins",
    ] {
        is_noticed(name, all_lives);
    }
}

/// Goal: a drive whose flush failed is not written to again, and what it held is there.
#[test]
fn after_a_failed_flush_nothing_is_put() {
    let mut media = made(1);
    let mut now = Time::ZERO;
    let (mut catalog, _) = open(&mut media, &mut now);
    media.io.faults_mut().flush_failures = 1;
    let events = &mut u64::MAX.clone();
    assert_eq!(put(&mut media, &mut catalog, &mut now, events, 1, 2), Err(()));
    assert_eq!(catalog.error(), Some(&CatalogError::FlushFailed));
    let mut drive = media.io;
    drive.cut();
    let mut media = opened(drive);
    let (_, found) = open(&mut media, &mut now);
    assert_eq!(found, Some(state(1)));
    let mut drive = media.io;
    drive.faults_mut().flush_failures = 1;
    let (catalog, found) = open(&mut opened(drive), &mut now);
    assert_eq!((found, catalog.error()), (None, Some(&CatalogError::FlushFailed)));
}

/// Goal: each copy is enough, and none is damage, not a new catalog; nor does that of another device count.
#[test]
fn one_copy_is_enough_and_none_is_damage() {
    for lost in [vec![0], vec![1], vec![0, 1]] {
        let mut drive = made(2).io;
        drive.cut();
        let len_bytes = 2 << 20;
        let lane = |lane: u64| Stretch { offset: (1 << 20) + lane * (8 << 20), len_bytes };
        drive.faults_mut().rotten = lost.iter().map(|copy| lane(*copy)).collect();
        let (catalog, found) = open(&mut opened(drive), &mut Time::ZERO.clone());
        if lost.len() == 1 {
            assert_eq!((found, catalog.error()), (Some(state(1)), None), "lost: {lost:?}");
        } else {
            assert!(matches!(catalog.error(), Some(CatalogError::Damaged(_))), "{:?}", catalog.error());
        }
    }
    let mut media = made(3);
    let blocks = blocks(&media);
    let mut catalog = Catalog::open(&mut media, [0xd2; 16], blocks, Time::ZERO);
    run(&mut media, &mut catalog, &mut Time::ZERO.clone(), &mut u64::MAX.clone(), Catalog::is_open);
    assert!(matches!(catalog.error(), Some(CatalogError::Damaged(_))), "{:?}", catalog.error());
    let mut media = opened(Drive::new(DriveProfile::nvme(SIZE_BYTES), 4));
    let (catalog, _) = open(&mut media, &mut Time::ZERO.clone());
    assert!(matches!(catalog.error(), Some(CatalogError::Damaged(_))), "nobody made one");
}

/// Goal: a device of one lane holds both copies.
#[test]
fn one_lane_is_enough() {
    let die = diecut_units::DieAddress::new(0, 0);
    let blocks: Vec<EraseBlockAddress> = (0..4).map(|index| die.erase_block(BlockIndex(index))).collect();
    let [[first, second], [third, fourth]] = Catalog::choose_blocks(std::slice::from_ref(&blocks)).unwrap();
    assert_eq!(vec![first, second, third, fourth], blocks);
    assert_eq!(Catalog::choose_blocks(&[blocks[..3].to_vec()]), None);
}
