//! A drive on the model of one: the suite of the flash contract, cuts, refusals, lies, and parts that change owners.

use diecut_drives::{DriveMedium, DriveShape, WantedCut};
use diecut_emulator::drive::{Drive, DriveProfile, Stretch};
use diecut_media::*;
use diecut_testing::driven::Driven;
use diecut_testing::planted::is_noticed;
use diecut_units::*;

const SIZE_BYTES: u64 = 40 << 20;

type OnDrive = Driven<DriveMedium, Drive>;

fn on_drive(seed: u64) -> OnDrive {
    opened(Drive::new(DriveProfile::nvme(SIZE_BYTES), seed))
}

/// The drive, opened: nothing is known of what lies there.
fn opened(drive: Drive) -> OnDrive {
    let shape = DriveShape::plan(drive.profile().size_bytes, 4, Some(1 << 20)).unwrap();
    let medium = DriveMedium::new(shape, !drive.profile().is_durable_at_once, true);
    Driven::new(medium, drive)
}

fn cut(mut medium: OnDrive) -> OnDrive {
    medium.io.cut();
    opened(medium.io)
}

fn block(lane: u16, index: u32) -> EraseBlockAddress {
    DieAddress::new(lane, 0).erase_block(BlockIndex(index))
}

fn erase(medium: &mut OnDrive, now: &mut Time, block: EraseBlockAddress) {
    assert_eq!(conformance::execute(medium, now, Operation::Erase { block }).result, Ok(()));
}

fn program(
    medium: &mut OnDrive,
    now: &mut Time,
    block: EraseBlockAddress,
    page: u32,
) -> Result<(), MediaError> {
    let operation = conformance::program_of(medium, block, page, 1, 1);
    conformance::execute(medium, now, operation).result
}

fn read(medium: &mut OnDrive, now: &mut Time, block: EraseBlockAddress, iu: u32) -> Result<(), MediaError> {
    let operation = conformance::read_of(medium, block, iu, 1);
    conformance::execute(medium, now, operation).result
}

/// The first IU of an erase block.
fn content(medium: &mut OnDrive, now: &mut Time, block: EraseBlockAddress) -> Vec<u8> {
    let operation = conformance::read_of(medium, block, 0, 1);
    conformance::execute(medium, now, operation).destination.unwrap().to_vec()
}

fn flush(medium: &mut OnDrive, now: &mut Time) -> Result<(), MediaError> {
    medium.flush(MediaToken(9), *now);
    conformance::finish(medium, now, 1).remove(0).result
}

/// Goal: a drive keeps the flash contract. Method: the suite.
#[test]
fn the_contract_holds() {
    let mut seed = 0;
    conformance::all(&mut || {
        seed += 1;
        on_drive(seed)
    });
}

fn cuts(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        conformance::flushed_content_survives_cuts(on_drive(seed), seed, &mut cut);
    }
}

/// Goal: what a flush covered is there, whatever a cut takes. Method: random work, cut at random, four lives each.
#[test]
fn what_is_flushed_stays() {
    cuts(0..60);
}

/// Goal: the check above finds what it is for. Method: a drive that lies, and planted bugs.
#[test]
fn a_flush_that_does_nothing_is_noticed() {
    let lies = || {
        for seed in 0..5 {
            let mut medium = on_drive(seed);
            medium.io.faults_mut().lies.about_flushes = true;
            conformance::flushed_content_survives_cuts(medium, seed, &mut cut);
        }
    };
    assert!(std::panic::catch_unwind(lies).is_err(), "a drive that lies about flushes passes");
    is_noticed("drives: a flush does nothing", || cuts(0..5));
    is_noticed("drives: a flush that comes late joins the one under way", || cuts(0..60));
    is_noticed("drives: a read overtakes a program", || {
        conformance::random_work(&mut on_drive(1), 1);
    });
    is_noticed("drives: a flush that failed is asked again", after_a_failed_flush);
}

/// Goal: a drive whose flush failed takes nothing any more, although its next flush would succeed; what is there can be read.
#[test]
fn a_flush_that_fails_is_the_last() {
    after_a_failed_flush();
}

fn after_a_failed_flush() {
    let (mut medium, mut now) = (on_drive(3), Time::ZERO);
    let block = block(2, 5);
    erase(&mut medium, &mut now, block);
    assert_eq!(program(&mut medium, &mut now, block, 0), Ok(()));
    assert_eq!(flush(&mut medium, &mut now), Ok(()));
    medium.io.faults_mut().flush_failures = 1;
    assert_eq!(program(&mut medium, &mut now, block, 1), Ok(()));
    // Two that wait for each other, and a program under way.
    medium.flush(MediaToken(1), now);
    let operation = conformance::program_of(&medium, block, 2, 1, 1);
    medium.submit(Command { token: MediaToken(3), operation }, now);
    medium.advance(now, &mut Vec::new());
    medium.flush(MediaToken(2), now);
    for done in conformance::finish(&mut medium, &mut now, 3) {
        let program_is_early = done.token == MediaToken(3) && done.result == Ok(());
        let expected = match done.token {
            MediaToken(3) => MediaError::DieOffline { block },
            _ => MediaError::FlushFailed,
        };
        assert!(program_is_early || done.result == Err(expected), "{:?}", done);
    }
    let offline = Err(MediaError::DieOffline { block });
    assert_eq!(flush(&mut medium, &mut now), Err(MediaError::FlushFailed));
    assert_eq!(program(&mut medium, &mut now, block, 3), offline);
    assert_eq!(conformance::execute(&mut medium, &mut now, Operation::Erase { block }).result, offline);
    let other = self::block(1, 1);
    assert_eq!(
        conformance::execute(&mut medium, &mut now, Operation::Erase { block: other }).result,
        Err(MediaError::DieOffline { block: other })
    );
    assert_eq!(medium.io.statistics().flushes, 2, "the drive is not asked again");
}

/// Goal: refused commands are the answers of the contract, and leave their neighbours alone. Method: a stretch of each kind.
#[test]
fn what_a_drive_refuses_is_told() {
    let (mut medium, mut now) = (on_drive(4), Time::ZERO);
    let block = block(0, 3);
    let at = (1 << 20) + 3 * (1 << 20) + 4096;
    erase(&mut medium, &mut now, block);
    assert_eq!(program(&mut medium, &mut now, block, 0), Ok(()));
    medium.io.faults_mut().unwritable = vec![Stretch { offset: at, len_bytes: 512 }];
    assert_eq!(program(&mut medium, &mut now, block, 1), Err(MediaError::ProgramFailed { block, page: 1 }));
    assert_eq!(program(&mut medium, &mut now, block, 2), Ok(()));
    assert_eq!(read(&mut medium, &mut now, block, 0), Ok(()));
    assert_eq!(read(&mut medium, &mut now, block, 1), Err(MediaError::Uncorrectable { block, page: 1 }));
    assert_eq!(read(&mut medium, &mut now, block, 2), Ok(()));
    medium.io.faults_mut().is_full = true;
    assert_eq!(program(&mut medium, &mut now, block, 3), Err(MediaError::NoRoom { block, page: 3 }));
    *medium.io.faults_mut() = Default::default();
    erase(&mut medium, &mut now, block);
    assert_eq!(program(&mut medium, &mut now, block, 0), Ok(()));
    assert_eq!(program(&mut medium, &mut now, block, 1), Ok(()));
    medium.io.faults_mut().unreadable = vec![Stretch { offset: at - 4096, len_bytes: 4096 }];
    assert_eq!(read(&mut medium, &mut now, block, 0), Err(MediaError::Uncorrectable { block, page: 0 }));
    assert_eq!(read(&mut medium, &mut now, block, 1), Ok(()));
}

/// Goal: a drive that is gone is asked once, then everything is answered at once.
#[test]
fn a_drive_that_is_gone_says_so() {
    let (mut medium, mut now) = (on_drive(5), Time::ZERO);
    let block = block(3, 0);
    erase(&mut medium, &mut now, block);
    assert_eq!(program(&mut medium, &mut now, block, 0), Ok(()));
    medium.io.faults_mut().is_gone = true;
    let offline = Err(MediaError::DieOffline { block });
    assert_eq!(read(&mut medium, &mut now, block, 0), offline);
    assert!(medium.medium.is_gone());
    let before = medium.io.next_event();
    assert_eq!(read(&mut medium, &mut now, block, 0), offline);
    assert_eq!(program(&mut medium, &mut now, block, 1), offline);
    assert_eq!(flush(&mut medium, &mut now), Err(MediaError::FlushFailed));
    assert_eq!((before, medium.next_event()), (Time::NEVER, Time::NEVER), "nothing is asked of it");
}

/// Goal: freed erase blocks are discarded one at a time, with pauses; one that is needed again is not.
#[test]
fn discards_are_paced() {
    let (mut medium, mut now) = (on_drive(6), Time::ZERO);
    for index in 0..4 {
        erase(&mut medium, &mut now, block(1, index));
        assert_eq!(program(&mut medium, &mut now, block(1, index), 0), Ok(()));
    }
    assert_eq!(flush(&mut medium, &mut now), Ok(()));
    let began = now;
    (0..4).for_each(|index| medium.discard(block(1, index), now));
    medium.advance(now, &mut Vec::new());
    let erased = |index| Err(MediaError::Erased { block: block(1, index), page: 0 });
    assert_eq!(read(&mut medium, &mut now, block(1, 3), 0), erased(3), "what was discarded is nobody's");
    // The last one is used again before its turn comes; the first one waits for its own.
    erase(&mut medium, &mut now, block(1, 3));
    erase(&mut medium, &mut now, block(1, 0));
    assert_eq!(medium.io.statistics().discards, 1, "an erase waits for a discard under way");
    assert_eq!(program(&mut medium, &mut now, block(1, 0), 0), Ok(()));
    assert_eq!(program(&mut medium, &mut now, block(1, 3), 0), Ok(()));
    while medium.next_event() < Time::NEVER {
        now = now.max(medium.next_event());
        medium.advance(now, &mut Vec::new());
    }
    assert_eq!(medium.io.statistics().discards, 3);
    // Three discards of 0.8 ms at least, and two pauses that are as long.
    assert!(now.since(began) >= Span::from_micros(5 * 800), "{:?}", now.since(began));
    for index in [0, 3] {
        assert_eq!(read(&mut medium, &mut now, block(1, index), 0), Ok(()));
    }
    let offset = |index: u64| (1 << 20) + (9 + index) * (1 << 20);
    assert!(medium.io.durable(offset(1), 4096).iter().all(|byte| *byte == 0), "the drive forgot it");
}

/// Goal: after an opening a block is read as it is, and is not programmed before an erase.
#[test]
fn an_opened_drive_knows_nothing() {
    let (mut medium, mut now) = (on_drive(7), Time::ZERO);
    let block = block(2, 2);
    erase(&mut medium, &mut now, block);
    assert_eq!(program(&mut medium, &mut now, block, 0), Ok(()));
    assert_eq!(flush(&mut medium, &mut now), Ok(()));
    let before = content(&mut medium, &mut now, block);
    let mut medium = cut(medium);
    let mut now = Time::ZERO;
    assert_eq!(content(&mut medium, &mut now, block), before, "content of the life before");
    assert_eq!(read(&mut medium, &mut now, block, 1), Ok(()), "what was never written reads as anything");
    let programs = std::panic::AssertUnwindSafe(|| program(&mut medium, &mut now, block, 1));
    assert!(std::panic::catch_unwind(programs).is_err(), "a program without an erase");
}

/// Goal: what one part of a drive knows to be lost the others learn with its lanes, and with it when they are made.
#[test]
fn a_flush_that_failed_goes_along_with_lanes() {
    let (mut medium, mut now) = (on_drive(9), Time::ZERO);
    let mut other = medium.medium.empty_part();
    other.take_channel(&mut medium.medium, 3);
    medium.io.faults_mut().flush_failures = 1;
    erase(&mut medium, &mut now, block(1, 0));
    assert_eq!(program(&mut medium, &mut now, block(1, 0), 0), Ok(()));
    assert_eq!(flush(&mut medium, &mut now), Err(MediaError::FlushFailed));
    let late = medium.medium.empty_part();
    other.take_channel(&mut medium.medium, 1);
    for part in [late, other] {
        medium.medium = part;
        assert_eq!(flush(&mut medium, &mut now), Err(MediaError::FlushFailed));
    }
    let block = block(3, 0);
    let erased = conformance::execute(&mut medium, &mut now, Operation::Erase { block });
    assert_eq!(erased.result, Err(MediaError::DieOffline { block }));
}

/// Goal: a lane that goes to another part is there as it was, with what waits for it.
#[test]
fn lanes_go_from_part_to_part() {
    let (mut medium, mut now) = (on_drive(8), Time::ZERO);
    let block = block(1, 4);
    erase(&mut medium, &mut now, block);
    assert_eq!(program(&mut medium, &mut now, block, 0), Ok(()));
    medium.medium.discard(self::block(1, 6), now);
    medium.medium.discard(self::block(2, 6), now);
    let mut part = medium.medium.empty_part();
    assert!(!part.owns(1) && medium.medium.owns(1) && medium.medium.is_quiet(1));
    part.take_channel(&mut medium.medium, 1);
    assert!(part.owns(1) && !medium.medium.owns(1));
    let OnDrive { medium: rest, io, .. } = medium;
    let mut medium = Driven::new(part, io);
    assert_eq!(program(&mut medium, &mut now, block, 1), Ok(()));
    assert_eq!(read(&mut medium, &mut now, block, 0), Ok(()));
    while medium.next_event() < Time::NEVER {
        now = now.max(medium.next_event());
        medium.advance(now, &mut Vec::new());
    }
    assert_eq!(medium.io.statistics().discards, 1, "the discard went along");
    assert!(rest.next_event() < Time::NEVER, "the other one stayed");
}

/// Goal: a program that a drive carries out after a flush failed is not acknowledged: the failed flush may have taken it along. Method: the
/// drive answers the flush first.
#[test]
fn a_program_that_ends_after_a_failed_flush_fails() {
    let (mut medium, mut intents) = (on_drive(1).medium, Vec::new());
    let (block, mut completions) = (block(1, 2), Vec::new());
    medium.submit(Command { token: MediaToken(1), operation: Operation::Erase { block } }, Time::ZERO);
    let operation = conformance::program_of(&medium, block, 0, 1, 1);
    medium.submit(Command { token: MediaToken(2), operation }, Time::ZERO);
    medium.flush(MediaToken(3), Time::ZERO);
    medium.take_intents(&mut intents);
    assert_eq!(intents.len(), 2, "a write and a flush");
    for intent in intents.drain(..).rev() {
        let is_flush = matches!(intent.work, IntentWork::Sync);
        let result = if is_flush { Err(IntentError::Failed) } else { Ok(()) };
        medium.intent_done(IntentDone { token: intent.token, buffer: None, result }, Time::ZERO);
    }
    medium.advance(Time::ZERO, &mut completions);
    let results: Vec<_> =
        completions.iter().map(|completion| (completion.token.0, completion.result)).collect();
    let late = Err(MediaError::DieOffline { block });
    assert_eq!(results, [(1, Ok(())), (3, Err(MediaError::FlushFailed)), (2, late)]);
}

/// Carries out what a part asks for. A flush ends as it is told.
fn carried_out(part: &mut DriveMedium, intents: &mut Vec<Intent>, result: Result<(), IntentError>) {
    for intent in intents.drain(..) {
        let is_flush = matches!(intent.work, IntentWork::Sync);
        let result = if is_flush { result } else { Ok(()) };
        part.intent_done(IntentDone { token: intent.token, buffer: None, result }, Time::ZERO);
    }
}

fn two_parts_flush_at_once() {
    let mut parts = vec![on_drive(1).medium];
    let mut other = parts[0].empty_part();
    other.take_channel(&mut parts[0], 3);
    parts.push(other);
    let mut intents = [Vec::new(), Vec::new()];
    for ((part, asked), lane) in parts.iter_mut().zip(&mut intents).zip([1, 3]) {
        let block = block(lane, 2);
        part.submit(Command { token: MediaToken(1), operation: Operation::Erase { block } }, Time::ZERO);
        let operation = conformance::program_of(part, block, 0, 1, 1);
        part.submit(Command { token: MediaToken(2), operation }, Time::ZERO);
        part.take_intents(asked);
        carried_out(part, asked, Ok(()));
        part.flush(MediaToken(3), Time::ZERO);
        part.take_intents(asked);
        assert_eq!(asked.len(), 1, "both flushes are under way");
    }
    for (part, worked) in [(0, Err(IntentError::Failed)), (1, Ok(()))] {
        let mut completions = Vec::new();
        carried_out(&mut parts[part], &mut intents[part], worked);
        parts[part].advance(Time::ZERO, &mut completions);
        let flushed = completions.iter().find(|completion| completion.token == MediaToken(3));
        assert_eq!(flushed.unwrap().result, Err(MediaError::FlushFailed), "part {part}");
    }
}

/// Goal: of two parts of a drive that flush at once none is told that its flush worked when the other's failed: the drive has one cache, and may have
/// dropped what either wrote. Method: the first flush to end fails, the other one works.
#[test]
fn a_flush_that_another_one_failed_beside_fails() {
    two_parts_flush_at_once();
    is_noticed("drives: a flush counts beside one that failed", two_parts_flush_at_once);
}

/// Goal: a part that is made of a drive that is gone asks it for nothing more.
#[test]
fn a_part_of_a_drive_that_is_gone_is_gone() {
    let (mut medium, mut now) = (on_drive(1), Time::ZERO);
    erase(&mut medium, &mut now, block(0, 0));
    medium.io.faults_mut().is_gone = true;
    assert!(program(&mut medium, &mut now, block(0, 0), 0).is_err());
    assert!(medium.medium.is_gone() && medium.medium.empty_part().is_gone());
}

/// Goal: what a lane that was measured holds lies within its part of the drive, and is found there again. Method: pages at both ends of each lane.
#[test]
fn lanes_that_are_apart_hold_what_they_are_given() {
    let wanted = WantedCut { lanes: Some(2), block_size_bytes: Some(1 << 20), apart: true };
    let shape = DriveShape::wanted(SIZE_BYTES, None, wanted).unwrap();
    let opened = |drive| Driven::new(DriveMedium::new(shape, true, true), drive);
    let (mut medium, mut now) = (opened(Drive::new(DriveProfile::nvme(SIZE_BYTES), 5)), Time::ZERO);
    let ends = [0, 1].map(|lane| [block(lane, 0), block(lane, shape.blocks_per_lane - 1)]);
    for address in ends.into_iter().flatten() {
        erase(&mut medium, &mut now, address);
        assert_eq!(program(&mut medium, &mut now, address, 0), Ok(()));
    }
    assert_eq!(flush(&mut medium, &mut now), Ok(()));
    let part = SIZE_BYTES / 2;
    for (lane, ends) in (0..).zip(ends) {
        for address in ends {
            let offset = shape.offset(lane, address.block.0);
            assert!((part * u64::from(lane)..part * u64::from(lane + 1)).contains(&offset));
            assert!(medium.io.durable(offset, IU_SIZE_BYTES).iter().any(|byte| *byte != 0), "{address}");
        }
    }
}

/// Goal: streams are kept apart as far as the handles of a drive go, and what belongs to none has the first one. Method: what the medium asks for.
#[test]
fn streams_have_handles() {
    let shape = DriveShape::plan(SIZE_BYTES, 4, Some(1 << 20)).unwrap();
    let handles_of = |handles: u16, streams: [Option<u32>; 5]| {
        let mut medium = DriveMedium::new(shape, true, true).with_handles(handles);
        let mut intents = Vec::new();
        for (index, stream) in (0..).zip(streams) {
            let block = block(1, index);
            let erase = Operation::Erase { block };
            medium.submit(Command { token: MediaToken(1), operation: erase }, Time::ZERO);
            if let Some(stream) = stream {
                medium.place(block, StreamId(stream));
            }
            let operation = conformance::program_of(&medium, block, 0, 1, 1);
            medium.submit(Command { token: MediaToken(2), operation }, Time::ZERO);
            medium.take_intents(&mut intents);
        }
        let handles = intents.iter().map(|intent| match intent.work {
            IntentWork::Write { handle, .. } => handle,
            _ => panic!("{intent:?}"),
        });
        handles.collect::<Vec<u16>>()
    };
    let streams = [None, Some(3), Some(4), Some(5), Some(6)];
    assert_eq!(handles_of(8, streams), [0, 4, 5, 6, 7]);
    assert_eq!(handles_of(4, streams), [0, 1, 2, 3, 1]);
    assert_eq!(handles_of(2, streams), [0, 1, 1, 1, 1]);
    assert_eq!(handles_of(1, streams), [0; 5]);
    let mut whole = DriveMedium::new(shape, true, true).with_handles(8);
    let mut part = whole.empty_part();
    part.take_channel(&mut whole, 1);
    part.place(block(1, 0), StreamId(6));
    part.submit(
        Command { token: MediaToken(1), operation: Operation::Erase { block: block(1, 0) } },
        Time::ZERO,
    );
    let operation = conformance::program_of(&part, block(1, 0), 0, 1, 1);
    part.submit(Command { token: MediaToken(2), operation }, Time::ZERO);
    let mut intents = Vec::new();
    part.take_intents(&mut intents);
    assert!(
        matches!(intents[0].work, IntentWork::Write { handle: 7, .. }),
        "a part has the handles of the drive"
    );
}
