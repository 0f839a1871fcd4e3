//! A zoned drive on the model of one: the suite of the flash contract, cuts at every operation, and zones that give way to others.
//!
//! The model refuses writes that are not at a write pointer, and zones beyond those that may be partly written; it loses any end of what was not
//! flushed.

use diecut_drives::{DriveMedium, LabelZones, Zoning};
use diecut_emulator::drive::{Drive, DriveProfile, Stretch, ZoneProfile};
use diecut_media::*;
use diecut_testing::driven::Driven;
use diecut_testing::planted::is_noticed;
use diecut_units::*;

const ZONE_BYTES: u64 = 1 << 20;
const ZONES: u64 = 48;
const PLACES: u32 = 32;
const LANES: u16 = 2;

type OnZones = Driven<DriveMedium, Drive>;

fn profile(conventional: u32, active_max: u32) -> DriveProfile {
    let zones = ZoneProfile {
        size_bytes: ZONE_BYTES,
        capacity_bytes: ZONE_BYTES * 3 / 4,
        conventional,
        active_max,
        unit_bytes: 512,
    };
    DriveProfile { zones: Some(zones), ..DriveProfile::nvme(ZONES * ZONE_BYTES) }
}

fn on_zones(seed: u64) -> OnZones {
    opened(Drive::new(profile(0, PLACES), seed))
}

fn zoning(drive: &Drive) -> Zoning {
    let profile = drive.profile().zones.unwrap();
    let (zone_size_bytes, active_max) = (profile.size_bytes, profile.active_max);
    Zoning { zone_size_bytes, active_max, open_max: 0, zones: drive.zones(), dies: None }
}

/// The drive, opened: its zones are known, and nothing else.
fn opened(drive: Drive) -> OnZones {
    opened_in(drive, LANES)
}

fn opened_in(drive: Drive, lanes: u16) -> OnZones {
    let zoning = zoning(&drive);
    let shape = zoning.shape(Some(lanes)).unwrap();
    Driven::new(DriveMedium::zoned(shape, !drive.profile().is_durable_at_once, &zoning, 0), drive)
}

fn cut(mut medium: OnZones) -> OnZones {
    assert_all_in_order(&medium);
    medium.io.cut();
    opened(medium.io)
}

fn assert_all_in_order(medium: &OnZones) {
    let statistics = medium.io.zone_statistics();
    assert_eq!((statistics.out_of_order, statistics.too_many), (0, 0), "the drive refused writes");
}

fn block(lane: u16, index: u32) -> EraseBlockAddress {
    DieAddress::new(lane, 0).erase_block(BlockIndex(index))
}

fn erase(medium: &mut OnZones, now: &mut Time, block: EraseBlockAddress) -> Result<(), MediaError> {
    conformance::execute(medium, now, Operation::Erase { block }).result
}

fn program(
    medium: &mut OnZones,
    now: &mut Time,
    block: EraseBlockAddress,
    page: u32,
    pages: u32,
) -> Result<(), MediaError> {
    let operation = conformance::program_of(medium, block, page, pages, 1);
    conformance::execute(medium, now, operation).result
}

fn read(medium: &mut OnZones, now: &mut Time, block: EraseBlockAddress, iu: u32) -> Result<(), MediaError> {
    let operation = conformance::read_of(medium, block, iu, 1);
    conformance::execute(medium, now, operation).result
}

fn flush(medium: &mut OnZones, now: &mut Time) -> Result<(), MediaError> {
    medium.flush(MediaToken(9), *now);
    conformance::finish(medium, now, 1).remove(0).result
}

fn settle(medium: &mut OnZones, now: &mut Time) {
    while medium.next_event() < Time::NEVER {
        *now = (*now).max(medium.next_event());
        medium.advance(*now, &mut Vec::new());
    }
}

fn the_suite() {
    let mut seed = 0;
    conformance::all(&mut || {
        seed += 1;
        on_zones(seed)
    });
    for seed in 0..20 {
        let mut medium = on_zones(seed);
        conformance::random_work(&mut medium, seed);
        assert_all_in_order(&medium);
    }
}

/// Goal: a zoned drive keeps the flash contract. Method: the suite, and what the drive refused.
#[test]
fn the_contract_holds() {
    the_suite();
}

fn cuts(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        conformance::flushed_content_survives_cuts(on_zones(seed), seed, &mut cut);
    }
}

/// Goal: what a flush covered is there, wherever a cut sets write pointers back to. Method: random work, cut at random, four lives each.
#[test]
fn what_is_flushed_stays() {
    cuts(0..60);
}

/// Goal: the tests above find what they are for. Method: planted bugs.
#[test]
fn planted_bugs_are_noticed() {
    is_noticed("drives: a zone has several writes under way", || {
        conformance::random_work(&mut on_zones(1), 1);
    });
    is_noticed("drives: a write pointer counts as flushed", || cuts(0..5));
    is_noticed("drives: a zone is programmed before its reset ends", resets_and_programs_at_once);
}

/// What a short story leaves on the drive: how many pages of each erase block a flush covers.
fn story(medium: &mut OnZones, events: u32) -> Vec<(EraseBlockAddress, u32)> {
    let blocks = [block(0, 0), block(1, 3), block(0, 1)];
    let (mut now, mut covered) = (Time::ZERO, vec![0; blocks.len()]);
    let mut events = (0..events).map(drop);
    // Each erase block twice, so that resets are of zones that hold something.
    for round in 0..2 {
        for (at, block) in blocks.iter().enumerate() {
            let steps = [
                Some(Operation::Erase { block: *block }),
                Some(conformance::program_of(medium, *block, 0, 3, round)),
                Some(conformance::program_of(medium, *block, 3, 2 + at as u32, round)),
                None,
            ];
            for (step, operation) in steps.into_iter().enumerate() {
                if step == 0 {
                    covered[at] = 0;
                }
                match operation {
                    Some(operation) => medium.submit(Command { token: MediaToken(1), operation }, now),
                    None => medium.flush(MediaToken(2), now),
                }
                let mut completions = Vec::new();
                while completions.is_empty() {
                    if events.next().is_none() {
                        return blocks.into_iter().zip(covered).collect();
                    }
                    medium.advance(now, &mut completions);
                    now = now.max(medium.next_event());
                }
                assert_eq!(completions[0].result, Ok(()));
                if step == 3 {
                    covered[at] = 5 + at as u32;
                }
            }
        }
    }
    blocks.into_iter().zip(covered).collect()
}

/// Goal: after a cut at any operation what was flushed is there, and each zone can be used again at once. Method: every operation of a story, with
/// several ends that the drive may choose.
#[test]
fn a_cut_at_every_operation() {
    for events in 0.. {
        let mut is_whole = false;
        for seed in 0..6 {
            let mut medium = on_zones(seed);
            let covered = story(&mut medium, events);
            is_whole = covered.iter().all(|(_, pages)| *pages > 0) && events > 60;
            let (mut medium, mut now) = (cut(medium), Time::ZERO);
            for (block, pages) in covered {
                for page in 0..pages {
                    assert_eq!(read(&mut medium, &mut now, block, page), Ok(()), "{events}: {block} {page}");
                }
                assert_eq!(erase(&mut medium, &mut now, block), Ok(()));
                assert_eq!(program(&mut medium, &mut now, block, 0, 2), Ok(()));
                assert_eq!(read(&mut medium, &mut now, block, 2), Err(MediaError::Erased { block, page: 2 }));
            }
            assert_all_in_order(&medium);
        }
        if is_whole {
            return;
        }
    }
}

/// Goal: programs that wait for a zone go together, in order; what a zone holds beyond its write pointer is nobody's, also after an opening.
#[test]
fn a_zone_has_one_write_under_way() {
    let (mut medium, mut now) = (on_zones(1), Time::ZERO);
    let block = block(1, 2);
    assert_eq!(erase(&mut medium, &mut now, block), Ok(()));
    assert_eq!(medium.io.zone_statistics().resets, 0, "a zone that is empty is not reset");
    for page in 0..20 {
        let operation = conformance::program_of(&medium, block, page, 1, 1);
        medium.submit(Command { token: MediaToken(page.into()), operation }, now);
    }
    let done = conformance::finish(&mut medium, &mut now, 20);
    assert!(done.iter().enumerate().all(|(at, done)| done.token.0 == at as u64 && done.result.is_ok()));
    assert_eq!(medium.io.statistics().writes, 2, "the first one, and all that waited for it");
    assert_eq!(flush(&mut medium, &mut now), Ok(()));
    let (mut medium, mut now) = (cut(medium), Time::ZERO);
    assert_eq!(read(&mut medium, &mut now, block, 19), Ok(()));
    assert_eq!(read(&mut medium, &mut now, block, 20), Err(MediaError::Erased { block, page: 20 }));
    let program_without_erase = std::panic::AssertUnwindSafe(|| program(&mut medium, &mut now, block, 20, 1));
    assert!(std::panic::catch_unwind(program_without_erase).is_err(), "a zone of an earlier life goes on");
}

/// Goal: when all places are taken, zones of an earlier life are finished first, then the one that was written least recently, whose programs fail
/// for want of room from then on and that can be read.
#[test]
fn zones_give_way() {
    let (mut medium, mut now) = (opened_in(Drive::new(profile(0, 14), 1), 1), Time::ZERO);
    for index in 0..3 {
        assert_eq!(erase(&mut medium, &mut now, block(0, index)), Ok(()));
        assert_eq!(program(&mut medium, &mut now, block(0, index), 0, 1), Ok(()));
    }
    assert_eq!(flush(&mut medium, &mut now), Ok(()));
    medium.io.cut();
    let (mut medium, mut now) = (opened_in(medium.io, 1), Time::ZERO);
    for index in 10..24 {
        assert_eq!(erase(&mut medium, &mut now, block(0, index)), Ok(()));
        assert_eq!(program(&mut medium, &mut now, block(0, index), 0, 1), Ok(()), "{index}");
    }
    assert_eq!(medium.io.zone_statistics().finishes, 3, "those of the earlier life");
    assert_eq!(program(&mut medium, &mut now, block(0, 10), 1, 1), Ok(()));
    assert_eq!(erase(&mut medium, &mut now, block(0, 30)), Ok(()));
    assert_eq!(program(&mut medium, &mut now, block(0, 30), 0, 192), Ok(()), "to its end");
    let gone = block(0, 11);
    assert_eq!(
        program(&mut medium, &mut now, gone, 1, 1),
        Err(MediaError::NoRoom { block: gone, page: 1 }),
        "the least recent one gave way"
    );
    assert_eq!(read(&mut medium, &mut now, gone, 0), Ok(()));
    assert_eq!(erase(&mut medium, &mut now, gone), Ok(()));
    assert_eq!(program(&mut medium, &mut now, gone, 0, 1), Ok(()), "there was a place: a zone was filled");
    assert_eq!(medium.io.zone_statistics().finishes, 4);
    assert_all_in_order(&medium);
}

/// Goal: more erase blocks than there are places, all written at once, end: nobody waits for ever. Method: random programs until each one was
/// answered.
#[test]
fn many_zones_with_few_places_go_on() {
    for seed in 0..30 {
        let (mut medium, mut now) = (opened_in(Drive::new(profile(0, 14), seed), 1), Time::ZERO);
        let mut random = diecut_testing::Random::of(seed);
        let mut pages = [0u32; 24];
        let mut under_way = 0;
        for index in 0..24 {
            medium.submit(
                Command { token: MediaToken(0), operation: Operation::Erase { block: block(0, index) } },
                now,
            );
            under_way += 1;
        }
        for _ in 0..400 {
            let at = random.below(24) as usize;
            let operation = conformance::program_of(&medium, block(0, at as u32), pages[at], 1, 1);
            medium.submit(Command { token: MediaToken(1), operation }, now);
            pages[at] += 1;
            under_way += 1;
            if random.below(3) == 0 {
                let mut completions = Vec::new();
                now = now.max(medium.next_event());
                medium.advance(now, &mut completions);
                under_way -= completions.len();
            }
        }
        for done in conformance::finish(&mut medium, &mut now, under_way) {
            assert!(matches!(done.result, Ok(()) | Err(MediaError::NoRoom { .. })), "{done:?}");
        }
        assert_all_in_order(&medium);
        assert!(medium.io.zone_statistics().active_most <= 14);
    }
}

/// Goal: a program that comes with the erase before it goes to the drive when that has reset the zone.
#[test]
fn an_erase_ends_before_programs_begin() {
    resets_and_programs_at_once();
}

fn resets_and_programs_at_once() {
    let (mut medium, mut now) = (on_zones(7), Time::ZERO);
    let block = block(0, 9);
    for version in 0..3 {
        medium.submit(Command { token: MediaToken(0), operation: Operation::Erase { block } }, now);
        for page in 0..3 {
            let operation = conformance::program_of(&medium, block, page, 1, version);
            medium.submit(Command { token: MediaToken(1), operation }, now);
        }
        medium.submit(
            Command { token: MediaToken(2), operation: conformance::read_of(&medium, block, 0, 3) },
            now,
        );
        let done = conformance::finish(&mut medium, &mut now, 5);
        assert!(done.iter().all(|done| done.result.is_ok()), "{done:?}");
    }
    assert_eq!(medium.io.zone_statistics().resets, 2);
    assert_all_in_order(&medium);
}

/// Goal: a program that fails ends its zone; a reset that fails is a failed erase; both leave the neighbours alone.
#[test]
fn what_a_drive_refuses_is_told() {
    let (mut medium, mut now) = (on_zones(2), Time::ZERO);
    let (bad, good) = (block(0, 4), block(0, 5));
    for block in [bad, good] {
        assert_eq!(erase(&mut medium, &mut now, block), Ok(()));
        assert_eq!(program(&mut medium, &mut now, block, 0, 1), Ok(()));
    }
    let at = (2 + 4) * ZONE_BYTES + 4096;
    medium.io.faults_mut().unwritable = vec![Stretch { offset: at, len_bytes: 4096 }];
    assert_eq!(
        program(&mut medium, &mut now, bad, 1, 1),
        Err(MediaError::ProgramFailed { block: bad, page: 1 })
    );
    medium.io.faults_mut().unwritable.clear();
    assert_eq!(
        program(&mut medium, &mut now, bad, 2, 1),
        Err(MediaError::ProgramFailed { block: bad, page: 2 })
    );
    assert_eq!(read(&mut medium, &mut now, bad, 0), Ok(()));
    assert_eq!(read(&mut medium, &mut now, bad, 1), Err(MediaError::Uncorrectable { block: bad, page: 1 }));
    assert_eq!(program(&mut medium, &mut now, good, 1, 1), Ok(()));
    medium.io.break_zone(6, ZoneCondition::ReadOnly);
    assert_eq!(erase(&mut medium, &mut now, bad), Err(MediaError::EraseFailed { block: bad }));
    assert_eq!(erase(&mut medium, &mut now, good), Ok(()));
    assert_eq!(program(&mut medium, &mut now, good, 0, 1), Ok(()));
}

/// Goal: freed zones are reset one at a time, with pauses, and an erase has nothing to do then.
#[test]
fn resets_are_paced() {
    let (mut medium, mut now) = (on_zones(6), Time::ZERO);
    for index in 0..4 {
        assert_eq!(erase(&mut medium, &mut now, block(1, index)), Ok(()));
        assert_eq!(program(&mut medium, &mut now, block(1, index), 0, 1), Ok(()));
    }
    let began = now;
    (0..4).for_each(|index| medium.discard(block(1, index), now));
    medium.advance(now, &mut Vec::new());
    // Needed again before its turn comes: reset for that, and not once more.
    assert_eq!(erase(&mut medium, &mut now, block(1, 3)), Ok(()));
    assert_eq!(program(&mut medium, &mut now, block(1, 3), 0, 1), Ok(()));
    settle(&mut medium, &mut now);
    assert!(now.since(began) >= Span::from_micros(5 * 800), "{:?}", now.since(began));
    assert_eq!(medium.io.zone_statistics().resets, 4);
    for index in 0..3 {
        assert_eq!(erase(&mut medium, &mut now, block(1, index)), Ok(()));
    }
    assert_eq!(medium.io.zone_statistics().resets, 4);
    assert_eq!(read(&mut medium, &mut now, block(1, 3), 0), Ok(()));
}

/// Goal: labels lie in conventional zones where there are some, and those hold no erase block.
#[test]
fn conventional_zones_are_of_labels() {
    let drive = Drive::new(profile(3, 0), 1);
    let zoning = zoning(&drive);
    assert_eq!(zoning.label_zones(), Some(LabelZones::Conventional { size_bytes: 3 * ZONE_BYTES }));
    let (mut medium, mut now) = (opened(drive), Time::ZERO);
    assert_eq!(erase(&mut medium, &mut now, block(0, 0)), Ok(()));
    assert_eq!(program(&mut medium, &mut now, block(0, 0), 0, 1), Ok(()));
    assert_eq!(flush(&mut medium, &mut now), Ok(()));
    assert_eq!(medium.io.zones()[3].write_pointer, 3 * ZONE_BYTES + 4096);
}

fn torn_pages(seeds: std::ops::Range<u64>) {
    let mut torn_count = 0;
    for seed in seeds {
        let (mut medium, mut now) = (on_zones(seed), Time::ZERO);
        let block = block(0, 0);
        erase(&mut medium, &mut now, block).unwrap();
        (0..8).for_each(|page| program(&mut medium, &mut now, block, page, 1).unwrap());
        let mut medium = cut(medium);
        let offset = medium.medium.shape().offset(0, 0);
        let written = medium.io.zones()[(offset / ZONE_BYTES) as usize].write_pointer - offset;
        if written.is_multiple_of(IU_SIZE_BYTES as u64) {
            continue;
        }
        torn_count += 1;
        let torn = (written / IU_SIZE_BYTES as u64) as u32;
        let before = read(&mut medium, &mut now, block, torn);
        let work = IntentWork::FinishZone { offset, len_bytes: ZONE_BYTES };
        medium.io.submit(Intent { token: IntentToken(0), work }, now);
        medium.io.advance(medium.io.next_event(), &mut Vec::new());
        let mut medium = opened(medium.io);
        assert_eq!(before, read(&mut medium, &mut now, block, torn), "seed {seed}: page {torn}");
    }
    assert!(torn_count > 3, "{torn_count}");
}

/// Goal: what a cut left of a page is told alike at each opening, also when its zone was finished meanwhile. Method: cuts that tear a page.
#[test]
fn a_torn_page_is_told_alike() {
    torn_pages(0..40);
    is_noticed("drives: a torn page shows when its zone is full", || torn_pages(0..40));
}
