//! Goal: a copy writes what its sources hold at the write pointer of a zone, or nothing; any number of copies is answered. Method: sources that
//! are staged, on flash, never written and lost, in several zones; destinations that cannot be.

use crate::world;
use diecut_units::{BufferMut, ContentMode, Payload};
use diecut_zoned::contract::*;
use diecut_zoned::states::{ZoneAction, ZoneRefusal};
use world::{SET, UNIT_IUS, WIDTH, World, content};

fn copy(world: &mut World, sources: &[(u64, u32)], first_iu: u64) -> Result<ZoneAnswer, ZoneError> {
    let sources = sources.iter().map(|&(first_iu, iu_count)| ZoneRange { first_iu, iu_count }).collect();
    world.ask(ZoneOperation::Copy { sources, first_iu })
}

fn read(world: &mut World, first_iu: u64, count: u32) -> Vec<[u8; 8]> {
    let destination = BufferMut::copy_from(&vec![0xee; count as usize * 8]);
    match world.ask(ZoneOperation::Read { first_iu, iu_count: count, destination }) {
        Ok(ZoneAnswer::Content(found)) => {
            found.chunks_exact(8).map(|iu| iu.try_into().expect("8 bytes")).collect()
        }
        other => panic!("IU {first_iu}: {other:?}"),
    }
}

fn refusal(answer: Result<ZoneAnswer, ZoneError>) -> ZoneRefusal {
    match answer {
        Err(ZoneError::Refused { refusal, .. }) => refusal,
        other => panic!("it cannot be: {other:?}"),
    }
}

/// A world whose first zone is written a little over half, and the first IU of the second zone.
fn written() -> (World, u64) {
    let mut world = World::new();
    world.open();
    world.write(0..15 * UNIT_IUS);
    let second = world.ius().next_power_of_two();
    (world, second)
}

#[test]
fn a_copy_writes_what_its_sources_hold() {
    let (mut world, second) = written();
    let end = 15 * UNIT_IUS;
    // On flash across borders of pages and blocks, at the end of what is written and beyond, and twice the same.
    let sources = [(3, 30), (end - 4, 8), (0, 1), (0, 1), (second + 100, 2)];
    let answer = copy(&mut world, &sources, second);
    assert!(matches!(answer, Ok(ZoneAnswer::Written(at)) if at == second), "{answer:?}");
    let mut expected: Vec<[u8; 8]> = (3..33).chain(end - 4..end).map(content).collect();
    expected.extend([[0; 8]; 4]);
    expected.extend([content(0), content(0), [0; 8], [0; 8]]);
    assert_eq!(read(&mut world, second, 42), expected);
    // What it has just written, some of which is staged.
    copy(&mut world, &[(second + 20, 22)], second + 42).expect("at the write pointer");
    assert_eq!(read(&mut world, second + 42, 22), expected[20..]);
    world.store = None;
    world.space.power_cut(&mut world.random);
    world.open();
    assert_eq!(read(&mut world, second, 42), expected, "it is durable");
}

#[test]
fn a_copy_that_cannot_be_writes_nothing() {
    let (mut world, second) = written();
    let all = world.ius();
    assert_eq!(refusal(copy(&mut world, &[(0, 1)], second + 1)), ZoneRefusal::InvalidWrite);
    let rest = (all - 15 * UNIT_IUS) as u32;
    assert_eq!(refusal(copy(&mut world, &[(0, rest + 1)], 15 * UNIT_IUS)), ZoneRefusal::Boundary);
    let (block, unit) = world.space.written_units()[1];
    world.space.lose((block, unit));
    let lost = (0..15 * UNIT_IUS).find(|iu| world.refused(*iu..*iu + 1) == 1).expect("a unit is lost");
    let answer = copy(&mut world, &[(0, 1), (lost - 1, 3)], second);
    assert!(matches!(answer, Err(ZoneError::Unrecovered { iu }) if iu == lost), "{answer:?}");
    let view = world.store.as_ref().and_then(|store| store.zone(SET, 1)).expect("it exists");
    assert_eq!(view.written_ius, 0);
    world.ask(ZoneOperation::Act { first_iu: Some(second), action: ZoneAction::Finish }).expect("it can be");
    assert_eq!(refusal(copy(&mut world, &[(0, 1)], second)), ZoneRefusal::Full);
}

/// More copies than may be under way at once, to a write pointer that each of them moves.
#[test]
fn any_number_of_copies_is_answered() {
    let (mut world, second) = written();
    let mut out = Vec::new();
    for number in 0..40 {
        let sources = vec![ZoneRange { first_iu: number, iu_count: 1 }];
        let operation = ZoneOperation::Copy { sources, first_iu: second + number };
        let command = ZoneCommand { token: ZoneToken(number), set: SET, operation };
        world.store.as_mut().expect("open").submit(command, &mut world.space, &mut out);
    }
    let answered = out.len();
    let out = world.until(|_, out| out.len() + answered == 40);
    // Reads end in any order, so some find the write pointer elsewhere; those that do not have written what they read.
    let view = world.store.as_ref().and_then(|store| store.zone(SET, 1)).expect("it exists");
    let worked = out.iter().filter(|completion| completion.result.is_ok()).count();
    assert!(worked > 0 && worked as u32 == view.written_ius, "{worked} copies, {view:?}");
    let found = read(&mut world, second, view.written_ius);
    assert!(found.iter().zip(0..).all(|(found, iu)| *found == content(iu)));
    assert!(world.store.as_ref().is_some_and(|store| store.is_still()), "nothing is left of them");
}

/// The power goes while copies are under way and wait: each is answered.
#[test]
fn copies_end_with_their_store() {
    let (mut world, second) = written();
    let mut out = Vec::new();
    for number in 0..20 {
        let sources = vec![ZoneRange { first_iu: number, iu_count: 9 }];
        let command = ZoneCommand {
            token: ZoneToken(number),
            set: SET,
            operation: ZoneOperation::Copy { sources, first_iu: second },
        };
        world.store.as_mut().expect("open").submit(command, &mut world.space, &mut out);
    }
    world.store.as_mut().expect("open").delete_set(ZoneToken(99), SET);
    let before = out.len();
    let out = world.until(|_, out| out.len() + before == 21);
    let gone = out.iter().filter(|completion| matches!(completion.result, Err(ZoneError::Gone))).count();
    assert_eq!(gone, 20, "{out:?}");
}

/// A reset overtakes copies that wait to be written. More of them follow than may be under way at once.
#[test]
fn copies_that_a_reset_overtakes_leave_nothing() {
    let mut world = World::new();
    world.open();
    let second = world.ius().next_power_of_two();
    // Part of a program unit stays staged: it is read at once.
    let bytes: Vec<u8> = (0..4).flat_map(content).collect();
    let payload = Payload::new(ContentMode::Tags, BufferMut::copy_from(&bytes).freeze());
    world.ask(ZoneOperation::Write { first_iu: 0, data: ZoneData::Payload(payload) }).expect("at the start");
    for round in 0..3 {
        let mut out = Vec::new();
        let mut submit = |token, operation| {
            let command = ZoneCommand { token: ZoneToken(token), set: SET, operation };
            world.store.as_mut().expect("open").submit(command, &mut world.space, &mut out);
        };
        for number in 0..6 {
            let sources = vec![ZoneRange { first_iu: number % 4, iu_count: 1 }];
            submit(number, ZoneOperation::Copy { sources, first_iu: second + number });
        }
        submit(99, ZoneOperation::Act { first_iu: Some(second), action: ZoneAction::Reset });
        let before = out.len();
        let answers = world.until(|_, out| out.len() + before == 7);
        assert!(answers.iter().all(|completion| completion.result.is_ok()), "round {round}: {answers:?}");
        let view = world.store.as_ref().and_then(|store| store.zone(SET, 1)).expect("it exists");
        assert_eq!(view.written_ius, 0, "round {round}");
    }
    copy(&mut world, &[(0, 4)], second).expect("nothing is in its way");
    assert_eq!(read(&mut world, second, 4), (0..4).map(content).collect::<Vec<_>>());
}

/// As [`written`], and dies copy what stays on them.
fn written_for_dies() -> (World, u64) {
    let (mut world, second) = written();
    world.store = None;
    world.space.copies_within_dies = true;
    world.open();
    (world, second)
}

fn submit(world: &mut World, token: u64, operation: ZoneOperation) {
    let command = ZoneCommand { token: ZoneToken(token), set: SET, operation };
    world.store.as_mut().expect("open").submit(command, &mut world.space, &mut Vec::new());
}

fn copy_of(first_iu: u64, iu_count: u32, goal: u64) -> ZoneOperation {
    ZoneOperation::Copy { sources: vec![ZoneRange { first_iu, iu_count }], first_iu: goal }
}

/// What lies on the same unit of the vSSD at the same place of a program unit crosses no channel on its way to flash, and only that.
#[test]
fn dies_copy_whole_units_that_stay_on_them() {
    let round = u64::from(WIDTH) * UNIT_IUS;
    // Source, length, place in the second zone, program units that dies copy: whole rounds; a column further on; behind half a unit; of
    // which the first is not whole; one that begins a round later; two units of two ranges.
    let cases: [(&[(u64, u32)], u64); 6] = [
        (&[(0, 4 * round as u32)], 12),
        (&[(UNIT_IUS, 4 * round as u32)], 0),
        (&[(4, 2 * round as u32)], 0),
        (&[(4, 4), (round - 4, 4), (UNIT_IUS, 2 * UNIT_IUS as u32)], 2),
        (&[(round, 2 * round as u32)], 6),
        (&[(2 * round, UNIT_IUS as u32), (UNIT_IUS, UNIT_IUS as u32)], 2),
    ];
    for (sources, expected) in cases {
        let (mut world, second) = written_for_dies();
        let before = world.space.work.appended_ius;
        copy(&mut world, sources, second).expect("at the write pointer");
        let all: Vec<[u8; 8]> =
            sources.iter().flat_map(|&(first, count)| first..first + u64::from(count)).map(content).collect();
        assert_eq!(read(&mut world, second, all.len() as u32), all, "{sources:?} while it is programmed");
        world.until(|world, _| world.space.is_idle());
        assert_eq!(world.space.copied_units, expected, "{sources:?}");
        let figures = world.store.as_ref().expect("open").statistics();
        assert_eq!(figures.copied_within_dies_ius, expected * UNIT_IUS);
        assert_eq!(figures.host_written_ius, all.len() as u64);
        let programmed = all.len() as u64 / UNIT_IUS * UNIT_IUS;
        assert_eq!(world.space.work.appended_ius - before, programmed, "what dies copy is programmed, too");
        world.store = None;
        world.space.power_cut(&mut world.random);
        world.open();
        assert_eq!(read(&mut world, second, all.len() as u32), all, "{sources:?}");
        assert_eq!(world.refused(0..15 * UNIT_IUS), 0);
    }
}

/// A space that does not copy is not asked to.
#[test]
fn dies_that_cannot_copy_are_not_asked_to() {
    let (mut world, second) = written();
    copy(&mut world, &[(0, 48)], second).expect("at the write pointer");
    world.until(|world, _| world.space.is_idle());
    assert_eq!(world.space.copied_units, 0);
    assert_eq!(read(&mut world, second, 48), (0..48).map(content).collect::<Vec<_>>());
}

/// A die copies what it finds, also what is not any more what was read there before: the checksums of that time say so.
fn bits_that_change_under_a_copy() -> usize {
    let (mut world, second) = written_for_dies();
    submit(&mut world, 7, copy_of(0, 24, second));
    for unit in 0..world.space.unit_sum() {
        world.space.bend(unit, |ius, _| ius[3][0] ^= 1);
    }
    world.until(|world, out| !out.is_empty() && world.space.is_idle());
    assert_eq!(world.space.copied_units, 3);
    let wrong = |iu: &u64| {
        let destination = BufferMut::copy_from(&[0xee; 8]);
        let asked = ZoneOperation::Read { first_iu: second + iu, iu_count: 1, destination };
        match world.ask(asked) {
            Ok(ZoneAnswer::Content(found)) => {
                assert_eq!(found[..], content(*iu), "IU {iu}");
                false
            }
            Err(ZoneError::Unrecovered { .. }) => true,
            other => panic!("IU {iu}: {other:?}"),
        }
    };
    (0..24).filter(wrong).count()
}

#[test]
fn what_a_die_copied_wrong_is_not_taken_for_right() {
    assert_eq!(bits_that_change_under_a_copy(), 3);
}

/// A source that does not check out fails the copy, which has written nothing, whoever would copy it.
#[test]
fn a_source_that_is_not_what_was_written_is_not_copied() {
    let (mut world, second) = written_for_dies();
    world.space.bend(0, |ius, _| ius[3][0] ^= 1);
    let answer = copy(&mut world, &[(0, 24)], second);
    assert!(matches!(answer, Err(ZoneError::Unrecovered { iu: 3 })), "{answer:?}");
    assert_eq!(world.space.copied_units, 0);
    let view = world.store.as_ref().and_then(|store| store.zone(SET, 1)).expect("it exists");
    assert_eq!(view.written_ius, 0);
}

/// The source is reset, and its blocks hold something else, before the die gets to copy it: what was staged is programmed.
fn a_source_goes() {
    let (mut world, second) = written_for_dies();
    // The destination waits for nothing: what is read comes back later than what was asked behind it.
    submit(&mut world, 7, copy_of(0, 24, second));
    submit(&mut world, 8, ZoneOperation::Act { first_iu: Some(0), action: ZoneAction::Reset });
    let bytes: Vec<u8> = (1000..1024).flat_map(content).collect();
    let payload = Payload::new(ContentMode::Tags, BufferMut::copy_from(&bytes).freeze());
    submit(&mut world, 9, ZoneOperation::Write { first_iu: 0, data: ZoneData::Payload(payload) });
    let answers = world.until(|world, out| out.len() == 3 && world.space.is_idle());
    assert!(answers.iter().all(|answer| answer.result.is_ok()), "{answers:?}");
    assert_eq!(read(&mut world, second, 24), (0..24).map(content).collect::<Vec<_>>());
    assert_eq!(read(&mut world, 0, 24), (1000..1024).map(content).collect::<Vec<_>>());
}

#[test]
fn a_source_that_goes_meanwhile_is_not_needed() {
    a_source_goes();
}

/// The program of a copy fails: what was staged goes to another block, with what lay before it.
#[test]
fn a_copy_within_a_die_that_fails_is_programmed() {
    for after in [0, 24] {
        let (mut world, second) = written_for_dies();
        if after > 0 {
            copy(&mut world, &[(0, after)], second).expect("at the write pointer");
            world.until(|world, _| world.space.is_idle());
        }
        world.space.fail_next_append = true;
        copy(&mut world, &[(24, 48)], second + u64::from(after)).expect("at the write pointer");
        world.until(|world, _| world.space.is_idle());
        assert!(!world.space.fail_next_append);
        assert_eq!(
            world.space.copied_units,
            u64::from(after + 48) / UNIT_IUS,
            "the next try is of what was staged"
        );
        let all = (0..u64::from(after)).chain(24..72).map(content).collect::<Vec<_>>();
        assert_eq!(read(&mut world, second, after + 48), all);
        world.store = None;
        world.space.power_cut(&mut world.random);
        world.open();
        assert_eq!(read(&mut world, second, after + 48), all);
    }
}

/// As [`written_for_dies`], and the second zone has a random write area, which keeps what is copied there.
fn written_for_dies_beside_a_random_write_area() -> (World, u64) {
    let mut world = World::new();
    world.random_units = 4;
    world.space.copies_within_dies = true;
    world.open();
    world.write(0..15 * UNIT_IUS);
    let second = world.ius().next_power_of_two();
    let open = ZoneAction::Open { random: true };
    world.ask(ZoneOperation::Act { first_iu: Some(second), action: open }).expect("it is empty");
    (world, second)
}

fn write(world: &mut World, first_iu: u64, values: std::ops::Range<u64>) {
    let bytes: Vec<u8> = values.flat_map(content).collect();
    let payload = Payload::new(ContentMode::Tags, BufferMut::copy_from(&bytes).freeze());
    world.ask(ZoneOperation::Write { first_iu, data: ZoneData::Payload(payload) }).expect("it can be");
}

/// The second zone holds this on flash, from its start on, when it is finished, and so many of the program units are copied by dies.
fn finishes_with(world: &mut World, second: u64, expected: &[[u8; 8]], copied_units: u64) {
    let before = world.space.copied_units;
    world.ask(ZoneOperation::Act { first_iu: Some(second), action: ZoneAction::Finish }).expect("it can be");
    world.until(|world, _| world.space.is_idle());
    for restarts in [false, true] {
        if restarts {
            world.store = None;
            world.space.power_cut(&mut world.random);
            world.open();
        }
        assert_eq!(read(world, second, expected.len() as u32), expected, "after a restart: {restarts}");
    }
    assert_eq!(world.space.copied_units - before, copied_units);
}

/// What a copy put into a random write area is written over there, in part and as a whole: dies copy only the rest.
fn a_copy_is_written_over() {
    let (mut world, second) = written_for_dies_beside_a_random_write_area();
    copy(&mut world, &[(0, 24)], second).expect("it is in the area");
    write(&mut world, second + 2, 1000..1004);
    write(&mut world, second + UNIT_IUS, 1004..1004 + UNIT_IUS);
    let all = (0..2).chain(1000..1004).chain(6..8).chain(1004..1004 + UNIT_IUS).chain(16..24);
    finishes_with(&mut world, second, &all.map(content).collect::<Vec<_>>(), 1);
}

#[test]
fn what_is_written_over_a_copy_goes_to_flash() {
    a_copy_is_written_over();
}

/// The source is reset and written again while what was copied stays in a random write area: that is programmed.
#[test]
fn a_source_that_begins_anew_is_not_copied() {
    let (mut world, second) = written_for_dies_beside_a_random_write_area();
    copy(&mut world, &[(0, 24)], second).expect("it is in the area");
    world.ask(ZoneOperation::Act { first_iu: Some(0), action: ZoneAction::Reset }).expect("it can be");
    write(&mut world, 0, 1000..1024);
    world.until(|world, _| world.space.is_idle());
    finishes_with(&mut world, second, &(0..24).map(content).collect::<Vec<_>>(), 0);
    assert_eq!(read(&mut world, 0, 24), (1000..1024).map(content).collect::<Vec<_>>());
}

/// The source is lost, and its block is copied to another one without it, while what was copied stays in a random write area: that is
/// programmed.
fn a_source_is_lost_and_its_block_renewed() {
    let (mut world, second) = written_for_dies_beside_a_random_write_area();
    copy(&mut world, &[(0, 24)], second).expect("it is in the area");
    let lost = (0..world.space.unit_sum()).find(|at| {
        let mut is_first = false;
        world.space.bend(*at, |ius, _| is_first = ius[0] == content(0));
        is_first
    });
    world.space.bend(lost.expect("it is on flash"), |ius, _| ius[3][0] ^= 1);
    world.space.fail_next_append = true;
    // The first column's.
    write(&mut world, 15 * UNIT_IUS, 15 * UNIT_IUS..16 * UNIT_IUS);
    world.until(|world, _| world.space.is_idle());
    assert!(!world.space.fail_next_append);
    assert_eq!(world.refused(0..16 * UNIT_IUS), 1, "the copy of its block says so");
    finishes_with(&mut world, second, &(0..24).map(content).collect::<Vec<_>>(), 2);
}

#[test]
fn a_source_whose_block_was_renewed_is_not_copied() {
    a_source_is_lost_and_its_block_renewed();
}

#[test]
fn planted_bugs_are_noticed() {
    diecut_testing::planted::all_are_noticed(&[
        ("zoned: marks of a die's copy have no checksums", || {
            assert_eq!(bits_that_change_under_a_copy(), 3);
        }),
        ("zoned: a copy takes what lies at its source by now", a_source_goes),
        ("zoned: a copy takes another block of its source's column", a_source_is_lost_and_its_block_renewed),
        ("zoned: what is written over a copy has its origin", a_copy_is_written_over),
    ]);
}
