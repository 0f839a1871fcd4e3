//! The device through the flash contract: content, rules, time, faults, power cuts, files.

use crate::rig;
use diecut_emulator::*;
use diecut_media::*;
use diecut_units::*;
use rig::*;

fn backings() -> Vec<(&'static str, Options, Option<tempfile::TempDir>)> {
    let folder = tempfile::tempdir().unwrap();
    let file = Backing::File(folder.path().join("device"));
    vec![
        ("memory", Options::default(), None),
        ("unpaced", Options { pacing: Pacing::Unpaced, ..Options::default() }, None),
        ("tags", Options { backing: Backing::Tags, ..Options::default() }, None),
        ("file", Options { backing: file, ..Options::default() }, Some(folder)),
    ]
}

#[test]
fn content_and_oob_come_back_until_erased() {
    for (name, options, _folder) in backings() {
        let mut rig = Rig::new(options);
        let block = rig.good_block((1, 0), 3);
        rig.run(program(block, 0, 2, 7)).unwrap();
        let found = rig.run(read(block, 3, 9)).unwrap().unwrap();
        assert_eq!(found[..], content(7, 16)[3 * IU_SIZE_BYTES..12 * IU_SIZE_BYTES], "{name}");
        let oob = BufferMut::copy_from(&[0; 128]);
        let found = rig.run(Operation::ReadOob { block, first_page: 1, oob }).unwrap().unwrap();
        assert_eq!(found[..], [7; 128], "{name}");
        assert_eq!(rig.run(read(block, 16, 1)).unwrap_err(), MediaError::Erased { block, page: 4 }, "{name}");
        rig.run(Operation::Erase { block }).unwrap();
        assert_eq!(rig.run(read(block, 0, 1)).unwrap_err(), MediaError::Erased { block, page: 0 }, "{name}");
        assert_eq!(rig.device.erase_count(block), 1);
    }
}

#[test]
fn a_copy_carries_content_and_takes_new_oob() {
    for (name, options, _folder) in backings() {
        let mut rig = Rig::new(options);
        let (source, destination) = (rig.good_block((0, 1), 0), rig.good_block((0, 1), 1));
        rig.run(program(source, 0, 2, 9)).unwrap();
        let oob = Some(Buffer::copy_from(&[3; 256]));
        let copy =
            Operation::Copy { source, source_page: 0, destination, destination_page: 0, page_count: 4, oob };
        rig.run(copy).unwrap();
        assert_eq!(rig.run(read(destination, 0, 16)).unwrap().unwrap()[..], content(9, 16)[..], "{name}");
        let oob = BufferMut::copy_from(&[0; 64]);
        let found = rig.run(Operation::ReadOob { block: destination, first_page: 2, oob }).unwrap().unwrap();
        assert_eq!(found[..], [3; 64], "{name}");
    }
}

#[test]
#[should_panic(expected = "in order, once")]
fn programming_twice_panics() {
    let mut rig = Rig::new(Options::default());
    let block = rig.good_block((0, 0), 0);
    rig.run(program(block, 0, 1, 1)).unwrap();
    rig.submit(2, program(block, 0, 1, 2));
}

#[test]
#[should_panic(expected = "in order, once")]
fn programming_out_of_order_panics() {
    let mut rig = Rig::new(Options::default());
    let block = rig.good_block((0, 0), 0);
    rig.submit(2, program(block, TINY_UNIT_PAGES, 1, 2));
}

/// One read, one program, one erase take what the profile's sheet says.
#[test]
fn single_commands_take_the_time_of_the_sheet() {
    let mut rig = Rig::new(Options::default());
    let block = rig.good_block((0, 0), 0);
    let bus_us = |bytes: f64| bytes / 280.0;
    let took = |rig: &mut Rig, operation| {
        let start = rig.now;
        rig.run(operation).unwrap();
        rig.now.since(start).as_micros_f64()
    };
    let near =
        |found: f64, expected: f64| assert!((found - expected).abs() < 0.1, "{found} us, not {expected}");
    let unit_bytes = 2.0 * (16384.0 + 64.0);
    near(took(&mut rig, program(block, 0, 1, 1)), 0.2 + bus_us(unit_bytes) + 850.0);
    // Rows of two-bit cells: L0, L1, U0, ..
    near(took(&mut rig, program(block, 2, 1, 1)), 0.2 + bus_us(unit_bytes) + 850.0);
    near(took(&mut rig, program(block, 4, 1, 1)), 0.2 + bus_us(unit_bytes) + 2300.0);
    near(took(&mut rig, read(block, 0, 1)), 48.0 + 0.2 + bus_us(4096.0));
    near(took(&mut rig, read(block, 16, 1)), 64.0 + 0.2 + bus_us(4096.0));
    near(took(&mut rig, Operation::Erase { block }), 3000.2);
}

/// Two dies of one channel overlap their arrays and share the bus; two channels share nothing.
#[test]
fn arrays_overlap_and_the_bus_is_shared() {
    let total = |dies: [(u16, u16); 2]| {
        let mut rig = Rig::new(Options::default());
        let blocks = [rig.good_block(dies[0], 5), rig.good_block(dies[1], 6)];
        for block in blocks {
            rig.run(program(block, 0, 1, 1)).unwrap();
        }
        let start = rig.now;
        for (token, block) in blocks.into_iter().enumerate() {
            rig.submit(token as u64, read(block, 0, 8));
        }
        assert_eq!(rig.drain().len(), 2);
        rig.now.since(start).as_micros_f64()
    };
    let (array, bus) = (48.0, 0.2 + 32768.0 / 280.0);
    assert!((total([(0, 0), (1, 0)]) - (array + bus)).abs() < 0.2, "channels share nothing");
    assert!((total([(0, 0), (0, 1)]) - (array + 2.0 * bus)).abs() < 0.2, "dies share the bus");
    assert!((total([(0, 0), (0, 0)]) - (array + 2.0 * bus)).abs() < 50.0, "cache read overlaps on one die");
}

/// Goal: a die is busy as long as it has a command, also one whose row waits for the bus, and not longer. Method: one read on each of
/// two dies of one channel, with a second without commands before.
#[test]
fn a_die_is_busy_while_it_has_a_command() {
    let mut rig = Rig::new(Options::default());
    let blocks = [rig.good_block((0, 0), 5), rig.good_block((0, 1), 6)];
    for block in blocks {
        rig.run(program(block, 0, 1, 1)).unwrap();
    }
    rig.now += Span::from_secs(1);
    let before = [0, 1].map(|die| *rig.device.die_statistics(die));
    for (token, block) in blocks.into_iter().enumerate() {
        rig.submit(token as u64, read(block, 0, 8));
    }
    assert_eq!(rig.drain().len(), 2);
    let (array, bus) = (48.0, 0.2 + 32768.0 / 280.0);
    // Bursts of half a row take turns on the bus: the first die has its row after three of them.
    for (die, transfers) in [(0, 1.5), (1, 2.0)] {
        let (after, before) = (rig.device.die_statistics(die), before[die as usize]);
        let busy_us = (after.busy_ns - before.busy_ns) as f64 / 1000.0;
        assert!((busy_us - (array + transfers * bus)).abs() < 0.2, "die {die}: {busy_us} us");
        assert!((after.array_busy_ns - before.array_busy_ns) as f64 / 1000.0 < array + 0.2, "die {die}");
    }
}

/// With suspension a read waits microseconds, without for the whole program.
#[test]
fn a_read_suspends_a_program() {
    let latency = |suspend: bool| {
        let mut profile = Profile::named("tiny").unwrap();
        (profile.die.suspend, profile.die.suspend_us, profile.die.resume_us) = (suspend, 20.0, 10.0);
        profile.die.suspend_limit = 2;
        let mut rig = Rig::over(Device::create(&profile, Options::default()).unwrap());
        let (one, other) = (rig.good_block((0, 0), 0), rig.good_block((0, 0), 1));
        rig.run(program(one, 0, 1, 1)).unwrap();
        let start = rig.now;
        rig.submit(1, program(other, 0, 1, 2));
        rig.now = start + Span::from_micros(400);
        rig.submit(2, read(one, 0, 1));
        let asked = rig.now;
        let mut read_took = Span::ZERO;
        while rig.completions.len() < 2 {
            rig.now = rig.device.next_event();
            rig.device.advance(rig.now, &mut rig.completions);
            if rig.completions.last().is_some_and(|done| done.token == MediaToken(2))
                && read_took == Span::ZERO
            {
                read_took = rig.now.since(asked);
            }
        }
        (read_took.as_micros_f64(), rig.now.since(start).as_micros_f64())
    };
    let (read_with, program_with) = latency(true);
    let (read_without, program_without) = latency(false);
    assert!(read_with < 100.0, "{read_with}");
    assert!(read_without > 500.0, "{read_without}");
    assert!(program_with > 1000.0 && program_without < 1100.0, "{program_with} {program_without}");
}

/// However many reads come, what was suspended as often as the profile allows runs to its end.
#[test]
fn an_erase_is_suspended_only_so_often() {
    let mut profile = Profile::named("tiny").unwrap();
    (profile.die.suspend, profile.die.suspend_us, profile.die.resume_us) = (true, 5.0, 5.0);
    profile.die.suspend_limit = 3;
    let mut rig = Rig::over(Device::create(&profile, Options::default()).unwrap());
    let (one, other) = (rig.good_block((0, 0), 0), rig.good_block((0, 0), 1));
    rig.run(program(one, 0, 1, 1)).unwrap();
    rig.submit(1000, Operation::Erase { block: other });
    let mut slow_reads = 0;
    for nth in 0..30 {
        rig.now += Span::from_micros(200);
        rig.device.advance(rig.now, &mut rig.completions);
        if rig.completions.drain(..).any(|done| done.token == MediaToken(1000)) {
            assert_eq!(slow_reads, 1, "the read after the last suspension waits for the erase");
            return;
        }
        rig.submit(nth, read(one, 0, 1));
        let asked = rig.now;
        while !rig.completions.iter().any(|done| done.token == MediaToken(nth)) {
            rig.now = rig.device.next_event();
            rig.device.advance(rig.now, &mut rig.completions);
        }
        slow_reads += u32::from(rig.now.since(asked) > Span::from_micros(500));
        if rig.completions.drain(..).any(|done| done.token == MediaToken(1000)) {
            assert_eq!((nth, slow_reads), (3, 1), "three reads interrupt, the fourth waits");
            return;
        }
    }
    panic!("the erase never ends");
}

/// A cut at any operation: what completed stays, what was at work is old, new, garbage or erased, and nothing else
/// changes. Lower pages of a word line whose upper page was at work may be lost.
#[test]
fn a_power_cut_tears_only_what_was_at_work() {
    let mut outcomes = [0; 3];
    for seed in 0..200u64 {
        for nth in 0..12 {
            for pacing in [Pacing::Modelled, Pacing::Unpaced] {
                let faults =
                    FaultPlan { faults: vec![Fault::PowerCutAtOperation { nth }], ..FaultPlan::default() };
                let mut rig = Rig::new(Options { seed, faults, pacing, ..Options::default() });
                if seed > 20 && pacing == Pacing::Unpaced {
                    continue;
                }
                let block = rig.good_block((0, 0), 0);
                let other = rig.good_block((0, 0), 1);
                rig.submit(100, program(other, 0, 1, 99));
                for unit in 0..8u32 {
                    rig.submit(unit.into(), program(block, unit * TINY_UNIT_PAGES, 1, unit as u8));
                }
                let done = rig.drain();
                let kept = |done: &&Completion| done.result.is_ok();
                let completed = done.iter().filter(kept).filter(|done| done.token.0 < 8).count() as u32;
                let other_done = done.iter().filter(kept).any(|done| done.token.0 == 100);
                if rig.device.is_powered() {
                    assert_eq!(completed, 8);
                    continue;
                }
                rig.device.power_on();
                if other_done {
                    let found = rig.run(read(other, 0, 8)).unwrap().unwrap();
                    assert_eq!(found[..], content(99, 8)[..]);
                }
                let unsafe_units = rig.device.capabilities().unsafe_units;
                for unit in 0..8u32 {
                    match rig.run(read(block, unit * 8, 8)) {
                        Ok(Some(found)) => {
                            assert_eq!(found[..], content(unit as u8, 8)[..], "never other bytes")
                        }
                        Ok(None) => unreachable!("reads give bytes"),
                        Err(error) => {
                            assert!(
                                unit + unsafe_units >= completed,
                                "seed {seed} cut {nth}: unit {unit} of {completed} is lost: {error}"
                            );
                            if unit < completed {
                                outcomes[0] += 1;
                            } else if matches!(error, MediaError::Erased { .. }) {
                                outcomes[1] += 1;
                            } else {
                                outcomes[2] += 1;
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count > 0), "all kinds of damage happen: {outcomes:?}");
}

/// Everything that completed is in the file; a copy of the file is what the next process after a kill sees.
#[test]
fn a_file_survives_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let options = || Options { backing: Backing::File(path.clone()), seed: 5, ..Options::default() };
    let mut rig = Rig::new(options());
    let block = rig.good_block((1, 1), 2);
    rig.run(Operation::Erase { block }).unwrap();
    rig.run(program(block, 0, 3, 42)).unwrap();
    let mut region = rig.device.protected_memory().unwrap().region(0..4096);
    region.publish(8, 77);
    let refused = Device::open(&path, Options::default()).err().unwrap().to_string();
    assert!(refused.contains("another process"), "{refused}");
    let bad: Vec<bool> = (0..40)
        .map(|at| rig.device.is_factory_bad(DieAddress::new(0, 0).erase_block(BlockIndex(at))))
        .collect();
    drop(region);
    drop(rig);
    let exists = Device::create(&Profile::named("tiny").unwrap(), options()).err().unwrap().to_string();
    assert!(exists.contains("cannot be created"), "{exists}");
    let mut rig = Rig::over(Device::open(&path, Options::default()).unwrap());
    let found = rig.run(read(block, 0, 24)).unwrap().unwrap();
    assert_eq!(found[..], content(42, 24)[..]);
    assert_eq!(rig.device.erase_count(block), 1);
    assert_eq!(rig.device.protected_memory().unwrap().region(0..4096)[8], 77);
    let again: Vec<bool> = (0..40)
        .map(|at| rig.device.is_factory_bad(DieAddress::new(0, 0).erase_block(BlockIndex(at))))
        .collect();
    assert_eq!(bad, again);
    rig.run(program(block, 6, 1, 43)).unwrap();
    drop(rig);
    for (offset, what) in [(0, "another file"), (8, "version"), (20, "damaged"), (200, "damaged")] {
        let damaged = folder.path().join(format!("damaged-{offset}"));
        std::fs::copy(&path, &damaged).unwrap();
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options().write(true).open(&damaged).unwrap();
        file.write_all_at(&[0xff], offset).unwrap();
        let error = Device::open(&damaged, Options::default()).err().unwrap().to_string();
        assert!(error.contains(what) && error.contains("damaged-"), "{offset}: {error}");
    }
    let short = std::fs::File::options().write(true).open(&path).unwrap();
    short.set_len(1 << 20).unwrap();
    drop(short);
    let error = Device::open(&path, Options::default()).err().unwrap().to_string();
    assert!(error.contains("truncated"), "{error}");
}

/// Failures by appointment and by chance are facts of the medium, and wear brings more of them.
#[test]
fn failures_are_values() {
    let die = FaultyDie { channel: 0, die: 0 };
    let fail = |kind| Fault::Fail { die, kind, nth: 1 };
    let plan = FaultPlan {
        faults: vec![fail(OperationKind::Program), fail(OperationKind::Read), fail(OperationKind::Erase)],
        ..FaultPlan::default()
    };
    let mut rig = Rig::new(Options { faults: plan, ..Options::default() });
    let block = rig.good_block((0, 0), 0);
    rig.run(program(block, 0, 1, 1)).unwrap();
    assert_eq!(rig.run(program(block, 2, 1, 2)).unwrap_err(), MediaError::ProgramFailed { block, page: 2 });
    rig.run(read(block, 0, 8)).unwrap();
    assert!(matches!(rig.run(read(block, 0, 8)), Err(MediaError::Uncorrectable { .. })));
    assert!(
        matches!(rig.run(read(block, 8, 8)), Err(MediaError::Uncorrectable { .. })),
        "garbage after a failure"
    );
    rig.run(Operation::Erase { block }).unwrap();
    assert_eq!(rig.run(Operation::Erase { block }).unwrap_err(), MediaError::EraseFailed { block });
    assert!(matches!(rig.run(program(block, 0, 1, 1)), Err(MediaError::ProgramFailed { .. })));

    let rates = FaultRates { wear_out: true, ..FaultRates::default() };
    let mut profile = Profile::named("tiny").unwrap();
    profile.cell.endurance_cycles = 50;
    let plan = FaultPlan { rates, ..FaultPlan::default() };
    let mut lives = Vec::new();
    for seed in 0..8 {
        let options = Options { faults: plan.clone(), pacing: Pacing::Unpaced, seed, ..Options::default() };
        let mut rig = Rig::over(Device::create(&profile, options).unwrap());
        let block = rig.good_block((1, 1), 4);
        lives
            .push((0..200).position(|_| rig.run(Operation::Erase { block }).is_err()).expect("it wears out"));
    }
    assert!(lives.iter().all(|life| (25..80).contains(life)), "{lives:?}");
    assert!(lives.iter().any(|life| life != &lives[0]), "blocks differ: {lives:?}");
}

/// Published rows for one parallel unit of CNEX Westlake (docs/sources.md), within 10 %.
#[test]
fn westlake_reaches_its_published_rows() {
    let profile = Profile::named("westlake").unwrap();
    let device = || {
        Rig::over(Device::create(&profile, Options { backing: Backing::Tags, ..Options::default() }).unwrap())
    };
    let unit_pages = 4;
    let write = |rig: &mut Rig, block, units: u32| {
        let payload = || Payload::new(ContentMode::Tags, Buffer::copy_from(&[1; 16 * 8]));
        for unit in 0..units {
            let oob = Buffer::copy_from(&[0; 64 * 4]);
            let parts = [payload()].into_iter().collect();
            rig.submit(unit.into(), Operation::Program { block, first_page: unit * unit_pages, parts, oob });
        }
        rig.drain();
    };
    let mut rig = device();
    let block = rig.good_block((3, 2), 0);
    write(&mut rig, block, 256);
    let mb_per_s = |bytes: f64, rig: &Rig, start: Time| bytes / rig.now.since(start).as_micros_f64();
    let within = |name: &str, found: f64, published: f64| {
        println!("{name}: {found:.1} MB/s, published {published}");
        assert!((found / published - 1.0).abs() < 0.1, "{name}: {found:.1} MB/s, published {published}");
    };
    within("sequential write", mb_per_s(256.0 * 65536.0, &rig, Time::ZERO), 47.0);
    let mut reads = |ius: u32, random: bool, depth: u32| {
        let start = rig.now;
        let mut issued = 0u32;
        let count = 400u32;
        let mut state = 7u32;
        let mut finished = 0;
        while finished < count {
            while issued < count && issued - finished < depth {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let slots = 4096 / ius;
                let at = if random { (state >> 8) % slots } else { issued % slots };
                let destination = BufferMut::copy_from(&vec![0; ius as usize * 8]);
                let operation =
                    Operation::Read { block, first_iu: at * ius, iu_count: ius, destination, oob: None };
                rig.submit(issued.into(), operation);
                issued += 1;
            }
            rig.now = rig.device.next_event().max(rig.now);
            rig.device.advance(rig.now, &mut rig.completions);
            finished += rig.completions.drain(..).inspect(|done| assert!(done.result.is_ok())).count() as u32;
        }
        f64::from(count) * f64::from(ius) * 4096.0 / rig.now.since(start).as_micros_f64()
    };
    within("sequential read 4 KiB", reads(1, false, 1), 105.0);
    within("sequential read 64 KiB", reads(16, false, 4), 280.0);
    within("random read 4 KiB", reads(1, true, 1), 56.0);
    within("random read 64 KiB", reads(16, true, 4), 273.0);
}
