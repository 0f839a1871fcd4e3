//! The model of a drive: what a flush promises, what a cut takes, and that its lies are lies.

use diecut_emulator::drive::{Drive, DriveProfile, DriveStatistics, Stretch, ZoneProfile};
use diecut_media::{Intent, IntentDone, IntentError, IntentToken, IntentWork, ZoneCondition};
use diecut_units::{Buffer, BufferMut, Time};
use std::collections::BTreeSet;

const SECTOR: usize = 512;

struct Host {
    drive: Drive,
    now: Time,
    tokens: u64,
}

impl Host {
    fn new(seed: u64) -> Host {
        Host { drive: Drive::new(DriveProfile::nvme(1 << 20), seed), now: Time::ZERO, tokens: 0 }
    }

    fn ask(&mut self, work: IntentWork) -> u64 {
        self.tokens += 1;
        self.drive.submit(Intent { token: IntentToken(self.tokens), work }, self.now);
        self.tokens
    }

    /// Waits for all that is under way.
    fn finish(&mut self) -> Vec<IntentDone> {
        let mut done = Vec::new();
        while self.drive.next_event() < Time::NEVER {
            self.now = self.now.max(self.drive.next_event());
            self.drive.advance(self.now, &mut done);
        }
        done
    }

    fn write(&mut self, offset: u64, byte: u8, sectors: usize) -> Result<(), IntentError> {
        self.ask(write_of(offset, byte, sectors));
        self.finish().remove(0).result
    }

    fn read(&mut self, offset: u64, sectors: usize) -> Result<Vec<u8>, IntentError> {
        self.ask(IntentWork::Read { offset, buffer: BufferMut::copy_from(&vec![0xee; sectors * SECTOR]) });
        let done = self.finish().remove(0);
        done.result.map(|()| done.buffer.expect("the buffer comes back").to_vec())
    }

    /// The first byte of each sector.
    fn sectors(&mut self, offset: u64, sectors: usize) -> Vec<u8> {
        self.read(offset, sectors).unwrap().chunks(SECTOR).map(|sector| sector[0]).collect()
    }

    fn flush(&mut self) -> Result<(), IntentError> {
        self.ask(IntentWork::Sync);
        self.finish().remove(0).result
    }
}

fn write_of(offset: u64, byte: u8, sectors: usize) -> IntentWork {
    let parts =
        [Buffer::copy_from(&vec![byte; SECTOR]), Buffer::copy_from(&vec![byte; (sectors - 1) * SECTOR])];
    IntentWork::Write {
        offset,
        parts: parts.into_iter().filter(|part| !part.is_empty()).collect(),
        handle: 0,
    }
}

/// Goal: what is flushed stays; of what is not, any subset of sectors does, in old and new versions, in part or as a whole.
#[test]
fn a_cut_takes_any_subset_of_what_was_not_flushed() {
    let (mut seen, mut torn) = (BTreeSet::new(), 0);
    for seed in 0..200 {
        let mut host = Host::new(seed);
        host.write(0, 1, 8).unwrap();
        host.write(8192, 9, 4).unwrap();
        host.flush().unwrap();
        host.write(0, 2, 8).unwrap();
        host.write(0, 3, 8).unwrap();
        // This one is never answered.
        host.ask(write_of(4096, 4, 2));
        assert_eq!(host.drive.durable(0, 4096), [1; 4096], "the cache is no medium");
        host.drive.cut();
        assert_eq!(host.drive.next_event(), Time::NEVER, "nothing is answered after a cut");
        let left = host.sectors(0, 8);
        assert!(left.iter().all(|byte| (1..=3).contains(byte)), "{left:?}");
        assert_eq!(host.sectors(8192, 4), [9; 4], "what was flushed stays");
        torn += u32::from(left.windows(2).any(|pair| pair[0] != pair[1]));
        seen.extend(left);
        assert_eq!(host.drive.durable(0, 8192), host.drive.durable(0, 8192));
    }
    assert_eq!(seen.into_iter().collect::<Vec<u8>>(), [1, 2, 3], "old, newer and newest versions are left");
    assert!((40..160).contains(&torn), "{torn} of 200 were torn");
}

/// Goal: a flush covers what was answered when it came, and promises nothing of what was under way.
#[test]
fn a_flush_covers_what_was_answered_before_it() {
    let mut lost = 0;
    for seed in 0..40 {
        let mut host = Host::new(seed);
        host.ask(write_of(0, 5, 1));
        host.ask(IntentWork::Sync);
        assert_eq!(host.finish().len(), 2);
        host.drive.cut();
        lost += u32::from(host.drive.durable(0, 1) == [0]);
    }
    assert!(lost > 10, "a write beside a flush was lost {lost} times of 40");
}

/// Goal: reads see the newest answered write, through discards and beyond what the cache keeps.
#[test]
fn what_is_read_is_the_newest() {
    let mut host = Host::new(1);
    host.write(0, 1, 8).unwrap();
    host.write(1024, 2, 2).unwrap();
    assert_eq!(host.sectors(0, 8), [1, 1, 2, 2, 1, 1, 1, 1]);
    host.ask(IntentWork::Discard { offset: 512, len_bytes: 1024 });
    host.finish();
    let after = host.sectors(0, 8);
    assert_eq!((after[0], &after[3..]), (1, &[2, 1, 1, 1, 1][..]));
    for at in 0..600 {
        host.write(at % 16 * 4096, at as u8, 1).unwrap();
    }
    for at in 584..600 {
        assert_eq!(host.sectors(at % 16 * 4096, 1), [at as u8]);
    }
    assert_ne!(host.drive.statistics(), DriveStatistics::default());
}

/// Goal: what nobody wrote reads as anything, and not twice the same.
#[test]
fn what_was_never_written_is_no_promise() {
    let mut host = Host::new(2);
    let reads: BTreeSet<Vec<u8>> = (0..8).map(|_| host.read(4096, 8).unwrap()).collect();
    assert!(reads.len() > 6);
}

/// Goal: after a flush that failed the next one succeeds, and what the first one should have covered may be gone.
#[test]
fn a_failed_flush_is_forgotten_by_the_drive() {
    let mut gone = 0;
    for seed in 0..40 {
        let mut host = Host::new(seed);
        host.drive.faults_mut().flush_failures = 1;
        host.write(0, 5, 1).unwrap();
        assert_eq!(host.flush(), Err(IntentError::Failed));
        assert_eq!(host.flush(), Ok(()));
        gone += u32::from(host.drive.durable(0, 1) == [0]);
    }
    assert!((5..35).contains(&gone), "{gone} of 40");
}

/// Goal: each lie is one: the command is answered well, and something else is true.
#[test]
fn lies_are_told() {
    let mut host = Host::new(3);
    host.write(0, 1, 1).unwrap();
    host.flush().unwrap();
    host.drive.faults_mut().lies.loses_writes = 1.0;
    host.write(0, 2, 1).unwrap();
    assert_eq!(host.sectors(0, 1), [1], "a lost write");
    host.drive.faults_mut().lies = Default::default();
    host.drive.faults_mut().lies.misdirects_writes = 1.0;
    host.write(0, 3, 1).unwrap();
    assert_eq!(host.sectors(0, 1), [1], "a write that went elsewhere");
    host.drive.faults_mut().lies = Default::default();
    host.write(0, 4, 1).unwrap();
    host.drive.faults_mut().lies.stale_reads = 1.0;
    assert_eq!(host.sectors(0, 1), [1], "a stale read");
    host.drive.faults_mut().lies = Default::default();
    host.drive.faults_mut().lies.misdirects_reads = 1.0;
    let misread = (0..20).filter(|_| host.sectors(0, 1) != [4]).count();
    assert!(misread > 15, "reads that come from elsewhere");
    host.drive.faults_mut().lies = Default::default();
    host.drive.faults_mut().rotten = vec![Stretch { offset: 3, len_bytes: 1 }];
    let read = host.read(0, 1).unwrap();
    assert_eq!(read[..5], [4, 4, 4, 0x14, 4], "rot");
    host.drive.faults_mut().rotten.clear();
    host.drive.faults_mut().lies.about_flushes = true;
    host.flush().unwrap();
    assert_eq!(host.drive.durable(0, 1), [1], "a flush that did nothing");
}

/// Goal: refusals and stalls are as they were asked for.
#[test]
fn refusals_and_stalls() {
    let mut host = Host::new(4);
    host.write(0, 1, 2).unwrap();
    host.drive.faults_mut().unreadable = vec![Stretch { offset: 600, len_bytes: 1 }];
    assert_eq!(host.read(0, 2), Err(IntentError::Failed));
    assert_eq!(host.sectors(0, 1), [1]);
    host.drive.faults_mut().unwritable = vec![Stretch { offset: 4096, len_bytes: 512 }];
    assert_eq!(host.write(3584, 2, 2), Err(IntentError::Failed));
    assert_eq!(host.write(3584, 2, 1), Ok(()));
    host.drive.faults_mut().is_full = true;
    assert_eq!(host.write(3584, 2, 1), Err(IntentError::Full));
    let until = Time(host.now.0 + 5_000_000_000);
    *host.drive.faults_mut() = Default::default();
    host.drive.faults_mut().stalled_until = until;
    host.write(0, 1, 1).unwrap();
    assert_eq!(host.now, until, "a stall ends when it was said to");
    host.drive.faults_mut().is_gone = true;
    assert_eq!(host.write(0, 1, 1), Err(IntentError::Gone));
    assert_eq!(host.read(0, 1), Err(IntentError::Gone));
    assert_eq!(host.flush(), Err(IntentError::Gone));
}

/// Goal: one seed is one run.
#[test]
fn a_seed_is_a_run() {
    let run = |seed| {
        let mut host = Host::new(seed);
        (0..50u64).for_each(|at| _ = host.ask(write_of(at % 7 * 4096, at as u8, 8)));
        let order: Vec<u64> = host.finish().iter().map(|done| done.token.0).collect();
        (0..20u64).for_each(|at| _ = host.ask(write_of(at % 7 * 4096, 100 + at as u8, 8)));
        host.drive.cut();
        (order, host.now, host.drive.durable(0, 28 << 10))
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).2, run(6).2);
}

#[test]
fn a_cut_keeps_some_of_what_was_under_way() {
    let left: BTreeSet<u8> = (0..40)
        .map(|seed| {
            let mut host = Host::new(seed);
            host.ask(write_of(0, 7, 1));
            host.drive.cut();
            host.drive.durable(0, 1)[0]
        })
        .collect();
    assert_eq!(left, BTreeSet::from([0, 7]), "a write without an answer is there or not");
}

const ZONE: u64 = 64 << 10;

/// Goal: of a drive that keeps all it answers, what was under way when the process died lies below what is written later. Method: a write on its way,
/// and one of the next process to the same place. `diecut sim --system stack --drive --seed 12` read the older one.
#[test]
fn what_was_under_way_at_a_death_is_older_than_what_comes_after() {
    let profile = DriveProfile { is_durable_at_once: true, ..DriveProfile::nvme(1 << 20) };
    let mut host = Host { drive: Drive::new(profile, 1), now: Time::ZERO, tokens: 0 };
    host.ask(write_of(0, 1, 8));
    host.drive.process_death();
    assert_eq!(host.sectors(0, 8), [1; 8]);
    host.write(0, 2, 8).unwrap();
    assert_eq!(host.sectors(0, 8), [2; 8]);
    host.drive.cut();
    assert_eq!(host.sectors(0, 8), [2; 8]);
}

/// A drive of 16 zones, the first one conventional; 48 KiB of the others can be written, and 3 may be partly written.
fn zoned(seed: u64) -> Host {
    let zones = ZoneProfile {
        size_bytes: ZONE,
        capacity_bytes: ZONE * 3 / 4,
        conventional: 1,
        active_max: 3,
        unit_bytes: 512,
    };
    let profile = DriveProfile { zones: Some(zones), ..DriveProfile::nvme(16 * ZONE) };
    Host { drive: Drive::new(profile, seed), now: Time::ZERO, tokens: 0 }
}

impl Host {
    fn zone(&mut self, zone: u64, is_reset: bool) -> Result<(), IntentError> {
        let (offset, len_bytes) = (zone * ZONE, ZONE);
        self.ask(match is_reset {
            true => IntentWork::ResetZone { offset, len_bytes },
            false => IntentWork::FinishZone { offset, len_bytes },
        });
        self.finish().remove(0).result
    }

    fn condition(&self, zone: usize) -> (u64, ZoneCondition) {
        let zone = self.drive.zones()[zone];
        (zone.write_pointer - zone.offset, zone.condition)
    }
}

/// Goal: the model refuses what a drive refuses that is written in zones, and says so in its figures.
#[test]
fn zones_are_written_at_their_pointers() {
    let mut host = zoned(1);
    let failed = Err(IntentError::Failed);
    assert_eq!(host.write(8192, 1, 2), Ok(()), "a conventional zone takes writes anywhere");
    assert_eq!(host.write(ZONE + 512, 1, 1), failed);
    assert_eq!(
        (host.write(ZONE, 1, 2), host.write(ZONE, 1, 2), host.write(ZONE + 1024, 2, 1)),
        (Ok(()), failed, Ok(()))
    );
    assert_eq!(host.condition(1), (1536, ZoneCondition::Active));
    assert_eq!(host.write(2 * ZONE, 1, 96), Ok(()), "to its end");
    assert_eq!(host.condition(2), (49152, ZoneCondition::Full));
    assert_eq!(host.write(2 * ZONE + 49152, 1, 1), failed, "beyond what can be written");
    assert_eq!((host.write(3 * ZONE, 1, 1), host.write(4 * ZONE, 1, 1)), (Ok(()), Ok(())));
    assert_eq!(host.write(5 * ZONE, 1, 1), failed, "a fourth zone");
    assert_eq!(host.zone(3, false), Ok(()));
    assert_eq!((host.condition(3).1, host.write(5 * ZONE, 1, 1)), (ZoneCondition::Full, Ok(())));
    assert_eq!((host.zone(1, true), host.condition(1)), (Ok(()), (0, ZoneCondition::Empty)));
    assert_eq!((host.zone(0, true), host.zone(0, false)), (failed, failed), "a conventional zone");
    let did = host.drive.zone_statistics();
    assert_eq!((did.out_of_order, did.too_many, did.resets, did.finishes, did.active_most), (3, 1, 1, 1, 3));
    host.drive.break_zone(7, ZoneCondition::ReadOnly);
    assert_eq!((host.write(7 * ZONE, 1, 1), host.zone(7, true)), (failed, failed));
}

/// Goal: a cut sets a write pointer back to anywhere from where it was at the last flush, with what lies before it; resets and finishes that were not flushed
/// may not have been, those that were flushed have.
#[test]
fn a_cut_sets_write_pointers_back() {
    let (mut pointers, mut undone, mut unfinished) = (BTreeSet::new(), 0, 0);
    for seed in 0..200 {
        let mut host = zoned(seed);
        host.write(ZONE, 1, 8).unwrap();
        host.write(2 * ZONE, 5, 8).unwrap();
        host.write(3 * ZONE, 5, 8).unwrap();
        host.zone(3, true).unwrap();
        host.flush().unwrap();
        host.write(ZONE + 4096, 2, 8).unwrap();
        host.write(ZONE + 8192, 3, 8).unwrap();
        host.zone(2, true).unwrap();
        host.write(2 * ZONE, 6, 4).unwrap();
        host.write(3 * ZONE, 7, 2).unwrap();
        host.zone(3, false).unwrap();
        host.drive.cut();
        let (pointer, _) = host.condition(1);
        assert!((4096..=12288).contains(&pointer) && pointer % 512 == 0, "{pointer}");
        pointers.insert(pointer);
        let written = [[1; 8], [2; 8], [3; 8]].concat();
        let sectors = (pointer / 512) as usize;
        assert_eq!(host.sectors(ZONE, sectors), written[..sectors], "what lies before the pointer is there");
        // Of the second zone the old content, or a beginning of the new one.
        match host.condition(2) {
            (4096, _) => {
                undone += 1;
                assert_eq!(host.sectors(2 * ZONE, 8), [5; 8]);
            }
            (pointer, _) => assert!(pointer <= 2048, "{pointer}"),
        }
        match host.condition(3) {
            (49152, condition) => assert_eq!(condition, ZoneCondition::Full),
            (pointer, _) => {
                unfinished += 1;
                assert!(pointer <= 1024, "a reset that was flushed has been: {pointer}");
            }
        }
        assert_eq!(host.zone(1, true), Ok(()));
        assert_eq!(host.write(ZONE, 9, 1), Ok(()), "each zone can be used again");
    }
    assert!(pointers.len() > 10, "{pointers:?}");
    assert!((50..150).contains(&undone) && (50..150).contains(&unfinished), "{undone}, {unfinished}");
}

/// Goal: a cut that takes finishes back leaves no more zones partly written than there may be. Method: zones that gave their places to others, without
/// a flush. `diecut sim --system stack --drive --seed 157` met one too many, and a lane that kept to its own was refused.
#[test]
fn a_cut_leaves_no_more_active_zones_than_there_may_be() {
    let mut most_there = 0;
    for seed in 0..100 {
        let mut host = zoned(seed);
        (1..=3).for_each(|zone| host.write(zone * ZONE, 1, 8).unwrap());
        host.flush().unwrap();
        for zone in 4..=6 {
            host.zone(zone - 3, false).unwrap();
            host.write(zone * ZONE, 2, 8).unwrap();
        }
        host.drive.cut();
        let zones = host.drive.zones();
        let active = zones.iter().filter(|zone| zone.condition == ZoneCondition::Active).count();
        assert!(active <= 3, "seed {seed}: {active} zones are partly written");
        (1..=3)
            .for_each(|zone| assert_eq!(host.sectors(zone * ZONE, 8), [1; 8], "what was flushed is there"));
        most_there += usize::from(active == 3);
    }
    assert!(most_there > 10, "{most_there}");
}
