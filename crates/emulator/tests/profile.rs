//! What a profile and a fault plan say is what the device does: times with every switch on and off, wear, retention, bad
//! parts, backings.

use crate::rig;
use diecut_emulator::*;
use diecut_media::*;
use diecut_units::*;
use rig::*;

fn tiny(change: impl FnOnce(&mut Profile)) -> Profile {
    let mut profile = Profile::named("tiny").unwrap();
    change(&mut profile);
    profile
}

fn rig_of(profile: &Profile, options: Options) -> Rig {
    Rig::over(Device::create(profile, options).unwrap())
}

/// Microseconds that some commands, submitted together, take.
fn took_us(rig: &mut Rig, operations: Vec<Operation>) -> f64 {
    let (start, count) = (rig.now, operations.len());
    for (token, operation) in operations.into_iter().enumerate() {
        rig.submit(token as u64, operation);
    }
    let done = rig.drain();
    assert_eq!(done.len(), count, "one completion for each command");
    assert!(done.iter().all(|done| done.result.is_ok()), "{done:?}");
    rig.now.since(start).as_micros_f64()
}

fn near(what: &str, found: f64, expected: f64) {
    assert!((found - expected).abs() < 0.3, "{what}: {found} us, not {expected}");
}

/// Of the profile `tiny`: a program unit with its OOB areas, command cycles included.
const UNIT_BUS_US: f64 = 0.2 + 2.0 * (16384.0 + 64.0) / 280.0;

#[test]
fn a_cache_register_takes_the_next_unit_while_one_is_programmed() {
    let total = |cache_program: bool| {
        let mut rig = rig_of(&tiny(|profile| profile.die.cache_program = cache_program), Options::default());
        let block = rig.good_block((0, 0), 0);
        // L0 and L1 of the published order, both lower pages.
        took_us(&mut rig, vec![program(block, 0, 1, 1), program(block, 2, 1, 2)])
    };
    near("with a cache register", total(true), UNIT_BUS_US + 2.0 * 850.0);
    near("without", total(false), 2.0 * (UNIT_BUS_US + 850.0));
}

#[test]
fn a_cache_register_lets_the_array_read_while_a_row_leaves() {
    let total = |cache_read: bool| {
        let mut rig = rig_of(
            &tiny(|profile| {
                profile.die.cache_read = cache_read;
                profile.die.page_register_reuse = false;
            }),
            Options::default(),
        );
        let block = rig.good_block((0, 0), 0);
        rig.run(program(block, 0, 2, 1)).unwrap();
        took_us(&mut rig, vec![read(block, 0, 8), read(block, 8, 8)])
    };
    let row_us = 0.2 + 32768.0 / 280.0;
    near("with a cache register", total(true), 48.0 + 2.0 * row_us);
    near("without", total(false), 2.0 * (48.0 + row_us));
}

#[test]
fn planes_work_at_once_or_one_after_the_other() {
    let times = |multi_plane: bool| {
        let mut rig = rig_of(
            &tiny(|profile| {
                profile.die.multi_plane = multi_plane;
                profile.die.page_register_reuse = false;
            }),
            Options::default(),
        );
        let block = rig.good_block((0, 0), 0);
        let programmed = took_us(&mut rig, vec![program(block, 0, 1, 1)]);
        (programmed - UNIT_BUS_US, took_us(&mut rig, vec![read(block, 0, 8)]) - 0.2 - 32768.0 / 280.0)
    };
    let (together, apart) = (times(true), times(false));
    near("program of two planes at once", together.0, 850.0);
    near("read of two planes at once", together.1, 48.0);
    near("program of two planes in turn", apart.0, 1700.0);
    near("read of two planes in turn", apart.1, 96.0);
}

/// All pages of a word line go in with one program; reads still differ by page type.
#[test]
fn one_shot_cells_program_a_word_line_at_once() {
    let profile = Profile::named("tiny-one-shot").unwrap();
    let mut rig = rig_of(&profile, Options::default());
    let block = rig.good_block((0, 0), 0);
    // Three rows of two planes: six pages.
    let bus_us = 0.2 + 6.0 * (16384.0 + 64.0) / 280.0;
    near("word line", took_us(&mut rig, vec![program(block, 0, 3, 1)]), bus_us + 1170.0);
    for (row, array_us) in [56.5, 77.5, 106.0].into_iter().enumerate() {
        let time = took_us(&mut rig, vec![read(block, row as u32 * 8, 1)]);
        near("page of a word line", time, array_us + 0.2 + 4096.0 / 280.0);
    }
}

/// A copy takes the array for a read and a program, and leaves the bus to the other die of the channel.
#[test]
fn a_copy_does_not_cross_the_bus() {
    let mut rig = rig_of(&tiny(|_| ()), Options::default());
    let (source, destination) = (rig.good_block((0, 0), 0), rig.good_block((0, 0), 1));
    rig.run(program(source, 0, 1, 1)).unwrap();
    let busy = rig.device.bus_busy_ns(0);
    let copy = Operation::Copy {
        source,
        source_page: 0,
        destination,
        destination_page: 0,
        page_count: TINY_UNIT_PAGES,
        oob: None,
    };
    near("copy", took_us(&mut rig, vec![copy]), 48.0 + 850.0 + 0.2);
    assert_eq!(rig.device.bus_busy_ns(0), busy, "nothing crossed the bus");
}

/// An erase that reads may interrupt ends later by their time and the costs of stopping and going on; without suspension
/// the read waits for its end.
#[test]
fn an_erase_stands_still_for_a_read_where_it_may() {
    let times = |suspend: bool| {
        let profile = tiny(|profile| {
            (profile.die.suspend, profile.die.suspend_us, profile.die.resume_us) = (suspend, 20.0, 10.0);
            profile.die.suspend_limit = 1;
        });
        let mut rig = rig_of(&profile, Options::default());
        let (one, other) = (rig.good_block((0, 0), 0), rig.good_block((0, 0), 1));
        rig.run(program(one, 0, 1, 1)).unwrap();
        let start = rig.now;
        rig.submit(1, Operation::Erase { block: other });
        rig.now += Span::from_micros(1000);
        rig.submit(2, read(one, 0, 1));
        let mut ends = [0.0; 2];
        while rig.device.next_event() < Time::NEVER {
            rig.now = rig.now.max(rig.device.next_event());
            rig.device.advance(rig.now, &mut rig.completions);
            for done in rig.completions.drain(..) {
                ends[done.token.0 as usize - 1] = rig.now.since(start).as_micros_f64();
            }
        }
        ends
    };
    let read_us = 48.0 + 0.2 + 4096.0 / 280.0;
    let [erase, read] = times(true);
    near("read that interrupts", read, 1000.0 + 20.0 + read_us);
    // The array is free again when the row has left it.
    near("interrupted erase", erase, 3000.2 + 20.0 + 48.0 + 10.0);
    let [erase, read] = times(false);
    near("erase", erase, 3000.2);
    near("read that waits", read, 3000.2 + read_us);
}

#[test]
fn controller_link_and_latency_cost_what_they_say() {
    let mut rig = rig_of(
        &tiny(|profile| {
            (profile.host.controller_us, profile.host.link_mb_per_s, profile.host.latency_us) =
                (3.0, 1000.0, 7.0);
        }),
        Options::default(),
    );
    let block = rig.good_block((0, 0), 0);
    let unit_us = took_us(&mut rig, vec![program(block, 0, 1, 1)]);
    near("program", unit_us, 3.0 + 32768.0 / 1000.0 + UNIT_BUS_US + 850.0 + 7.0);
    let read_us = took_us(&mut rig, vec![read(block, 0, 1)]);
    near("read", read_us, 3.0 + 48.0 + 0.2 + 4096.0 / 280.0 + 4096.0 / 1000.0 + 7.0);
}

/// Fifo serves dies as they came, round robin the next die in turn.
#[test]
fn a_channel_is_arbitrated_as_the_profile_says() {
    let order = |arbitration: Arbitration| {
        let profile = tiny(|profile| {
            profile.geometry.dies_per_channel = 4;
            profile.bus.arbitration = arbitration;
            // Whole rows, so that what waits is seen to be chosen once each.
            profile.bus.burst_size_bytes = 0;
        });
        let mut rig = rig_of(&profile, Options::default());
        let blocks: Vec<_> = (0..4).map(|die| rig.good_block((0, die), 0)).collect();
        for block in &blocks {
            rig.run(program(*block, 0, 1, 1)).unwrap();
        }
        // The first takes the bus; the others are ready one after the other while it does, highest first.
        let mut done = Vec::new();
        for die in [1, 3, 2, 0] {
            rig.submit(die, read(blocks[die as usize], 0, 8));
            rig.now += Span::from_micros(2);
        }
        while rig.device.next_event() < Time::NEVER {
            rig.now = rig.now.max(rig.device.next_event());
            rig.device.advance(rig.now, &mut rig.completions);
            done.extend(rig.completions.drain(..).map(|one| one.token.0));
        }
        done
    };
    assert_eq!(order(Arbitration::Fifo), [1, 3, 2, 0]);
    assert_eq!(order(Arbitration::RoundRobin), [1, 2, 3, 0]);
}

#[test]
fn unpaced_commands_take_no_time() {
    let options = Options { pacing: Pacing::Unpaced, ..Options::default() };
    let mut rig = rig_of(&tiny(|_| ()), options);
    let block = rig.good_block((0, 0), 0);
    let operations = vec![Operation::Erase { block }, program(block, 0, 2, 1), read(block, 3, 5)];
    assert_eq!(took_us(&mut rig, operations), 0.0);
}

/// Of 4,000 reads, how many fail.
fn failed_reads(rates: FaultRates, erases: u32, days: u64) -> u32 {
    let mut profile = tiny(|profile| profile.cell.endurance_spread_percent = 0.0);
    profile.cell.endurance_cycles = 100;
    let faults = FaultPlan { rates, ..FaultPlan::default() };
    let options = Options { pacing: Pacing::Unpaced, seed: 3, faults, ..Options::default() };
    let mut rig = rig_of(&profile, options);
    let block = rig.good_block((0, 0), 0);
    for _ in 0..erases {
        rig.run(Operation::Erase { block }).unwrap();
    }
    rig.run(program(block, 0, 1, 1)).unwrap();
    rig.now += Span::from_secs(days * 86_400);
    (0..4000).map(|_| u32::from(rig.run(read(block, 0, 1)).is_err())).sum()
}

#[test]
fn failures_rise_with_wear_and_retention() {
    let rates = FaultRates { uncorrectable_read: 0.01, ..FaultRates::default() };
    let wearing = FaultRates { wear_growth: 8.0, ..rates.clone() };
    let leaking = FaultRates { retention_growth_per_day: 0.5, ..rates.clone() };
    let about = |what: &str, found: u32, expected: f64| {
        // Five standard deviations of a Poisson count.
        let apart = (f64::from(found) - expected).abs();
        assert!(
            apart < 5.0 * expected.sqrt(),
            "{what}: {found} of 4000 reads failed, about {expected} should"
        );
    };
    about("fresh", failed_reads(wearing.clone(), 0, 0), 40.0);
    about("half of its life", failed_reads(wearing.clone(), 50, 0), 40.0 * 3.0);
    about("end of its life", failed_reads(wearing, 100, 0), 40.0 * 9.0);
    about("ten days old", failed_reads(leaking.clone(), 0, 10), 40.0 * 6.0);
    about("fresh content", failed_reads(leaking, 100, 0), 40.0);
    about("without growth", failed_reads(rates, 100, 10), 40.0);
}

/// The lives of erase blocks scatter around the mean as the profile says.
#[test]
fn endurance_is_distributed_over_blocks() {
    let mut profile = tiny(|profile| profile.cell.endurance_cycles = 400);
    profile.bad_blocks.factory_percent = 0.0;
    let rates = FaultRates { wear_out: true, ..FaultRates::default() };
    let faults = FaultPlan { rates, ..FaultPlan::default() };
    let options = Options { pacing: Pacing::Unpaced, seed: 9, faults, ..Options::default() };
    let mut rig = rig_of(&profile, options);
    let geometry = *rig.device.geometry();
    let mut lives = Vec::new();
    for die in geometry.all_dies() {
        for index in 0..geometry.erase_blocks_per_die() {
            let block = die.erase_block(BlockIndex(index));
            lives.push((0..1000).position(|_| rig.run(Operation::Erase { block }).is_err()).unwrap() as f64);
        }
    }
    let count = lives.len() as f64;
    let mean = lives.iter().sum::<f64>() / count;
    let deviation = (lives.iter().map(|life| (life - mean).powi(2)).sum::<f64>() / count).sqrt();
    assert!((mean - 400.0).abs() < 15.0, "mean life {mean}");
    assert!((deviation - 40.0).abs() < 12.0, "standard deviation {deviation}, the profile says 10 %");
}

#[test]
fn a_silent_flip_changes_one_bit_of_one_read() {
    let die = FaultyDie { channel: 0, die: 0 };
    let faults =
        FaultPlan { faults: vec![Fault::SilentFlip { die, nth: 1, bit: 77 }], ..FaultPlan::default() };
    let mut rig = Rig::new(Options { faults, ..Options::default() });
    let block = rig.good_block((0, 0), 0);
    rig.run(program(block, 0, 1, 5)).unwrap();
    let right = content(5, 1);
    for nth in 0..3 {
        let found = rig.run(read(block, 0, 1)).unwrap().unwrap();
        let wrong: u32 = found.iter().zip(&right[..]).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(wrong, u32::from(nth == 1), "read {nth}");
        assert_eq!(found[9] ^ right[9], if nth == 1 { 1 << 5 } else { 0 });
    }
}

#[test]
fn dead_parts_answer_and_slow_ones_take_their_time() {
    let die = FaultyDie { channel: 0, die: 1 };
    let plan = vec![
        Fault::DieOffline { die, from_ns: 0 },
        Fault::ChannelOffline { channel: 1, from_ns: 5_000_000 },
        Fault::SlowDie {
            die: FaultyDie { channel: 0, die: 0 },
            from_ns: 0,
            until_ns: 4_000_000,
            percent: 300,
        },
    ];
    let faults = FaultPlan { faults: plan, ..FaultPlan::default() };
    let mut rig = Rig::new(Options { faults, ..Options::default() });
    let [slow, dead, later] = [(0, 0), (0, 1), (1, 0)].map(|die| rig.good_block(die, 0));
    near("slow program", took_us(&mut rig, vec![program(slow, 0, 1, 1)]), UNIT_BUS_US + 3.0 * 850.0);
    let offline = |block| Err(MediaError::DieOffline { block });
    assert_eq!(rig.run(program(dead, 0, 1, 1)).map(drop), offline(dead));
    rig.run(program(later, 0, 1, 1)).unwrap();
    rig.now = rig.now.max(Time(5_000_000));
    assert_eq!(rig.run(read(later, 0, 1)).map(drop), offline(later));
    near("no longer slow", took_us(&mut rig, vec![program(slow, 2, 1, 1)]), UNIT_BUS_US + 850.0);
}

#[test]
fn factory_bad_blocks_follow_the_profile_and_the_seed() {
    let bad = |profile: &Profile, seed: u64| {
        let device = Device::create(profile, Options { seed, backing: Backing::Tags, ..Options::default() });
        let device = device.unwrap();
        let geometry = *device.geometry();
        let blocks = geometry.all_dies().flat_map(|die| {
            (0..geometry.erase_blocks_per_die()).map(move |index| die.erase_block(BlockIndex(index)))
        });
        blocks.filter(|block| device.is_factory_bad(*block)).collect::<Vec<_>>()
    };
    let large = tiny(|profile| profile.geometry.blocks_per_plane = 4000);
    let found = bad(&large, 1).len();
    // 2 % of 16,000.
    assert!((230..=410).contains(&found), "{found} of 16000");
    assert_eq!(bad(&large, 1), bad(&large, 1));
    assert_ne!(bad(&large, 1), bad(&large, 2));
    let channel = tiny(|profile| {
        profile.bad_blocks.factory_percent = 0.0;
        profile.bad_blocks.bad_channels = vec![1];
    });
    let found = bad(&channel, 1);
    assert_eq!(found.len(), 80, "a whole channel: two dies of forty blocks");
    assert!(found.iter().all(|block| block.channel.0 == 1));
}

#[test]
fn protected_memory_is_there_or_not_and_survives_a_cut() {
    let without = rig_of(&tiny(|profile| profile.protected_memory_bytes = 0), Options::default());
    assert!(without.device.protected_memory().is_none());
    let mut rig = rig_of(&tiny(|_| ()), Options::default());
    let memory = rig.device.protected_memory().unwrap();
    assert_eq!(memory.size_bytes(), 1 << 20);
    memory.region(0..64)[3] = 0x42;
    rig.device.power_cut(rig.now);
    rig.device.power_on();
    assert_eq!(rig.device.protected_memory().unwrap().region(0..64)[3], 0x42);
}

/// A cut within an erase leaves pages old, unreadable or erased, and the block takes no program before the next erase.
#[test]
fn a_cut_erase_leaves_any_mixture() {
    let mut seen = [0; 3];
    for seed in 0..60 {
        let mut rig = Rig::new(Options { seed, ..Options::default() });
        let (block, other) = (rig.good_block((0, 0), 0), rig.good_block((0, 0), 1));
        for block in [block, other] {
            rig.run(program(block, 0, 3, 8)).unwrap();
        }
        rig.submit(1, Operation::Erase { block });
        rig.now += Span::from_micros(1500);
        rig.device.advance(rig.now, &mut rig.completions);
        rig.device.power_cut(rig.now);
        rig.device.power_on();
        for unit in 0..3 {
            let first = unit * 8;
            let outcome = match rig.run(read(block, first, 4)) {
                Ok(found) => {
                    assert_eq!(found.unwrap()[..], content(8, 24)[first as usize * 4096..][..16384]);
                    0
                }
                Err(MediaError::Uncorrectable { .. }) => 1,
                Err(MediaError::Erased { .. }) => 2,
                Err(error) => panic!("seed {seed}: {error}"),
            };
            seen[outcome] += 1;
        }
        assert_eq!(rig.run(read(other, 0, 24)).unwrap().unwrap()[..], content(8, 24)[..], "seed {seed}");
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            rig.submit(2, program(block, 0, 1, 1));
        }));
        assert!(refused.is_err(), "seed {seed}: programmed after a cut erase");
        let mut rig = Rig::over(rig.device);
        rig.run(Operation::Erase { block }).unwrap();
        rig.run(program(block, 0, 1, 1)).unwrap();
    }
    assert!(seen.iter().all(|count| *count > 0), "old, unreadable and erased pages: {seen:?}");
}

/// A file of a large device takes the room of what was written.
#[test]
fn a_device_file_is_sparse() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let profile = tiny(|profile| profile.geometry.blocks_per_plane = 4000);
    let options = Options { backing: Backing::File(path.clone()), ..Options::default() };
    let mut rig = rig_of(&profile, options);
    let block = rig.good_block((1, 1), 3000);
    rig.run(program(block, 0, 8, 1)).unwrap();
    rig.device.sync().unwrap();
    let file = std::fs::metadata(&path).unwrap();
    assert!(file.len() > profile.geometry.raw_capacity_bytes(), "all of it could be written");
    let taken = file.blocks() * 512;
    assert!(taken < file.len() / 50, "{taken} bytes are taken of {}", file.len());
}

/// Tags take 8 bytes per 4 KiB; what keeps the OOB areas of a block comes on top.
#[test]
fn tags_take_eight_bytes_per_block_of_content() {
    let profile = tiny(|profile| {
        profile.geometry.pages_per_block = 256;
        profile.bad_blocks.factory_percent = 0.0;
    });
    let options = Options { backing: Backing::Tags, pacing: Pacing::Unpaced, ..Options::default() };
    let mut rig = rig_of(&profile, options);
    let geometry = *rig.device.geometry();
    let before = rig.device.tag_memory_bytes();
    let unit = rig.device.capabilities().program_unit_pages;
    let block = rig.good_block((0, 1), 7);
    for page in (0..geometry.pages_per_erase_block()).step_by(unit as usize) {
        let tags = vec![7; (unit * geometry.ius_per_page()) as usize * 8];
        let parts = [Payload::new(ContentMode::Tags, Buffer::copy_from(&tags))].into_iter().collect();
        let oob = Buffer::copy_from(&vec![0; (unit * geometry.oob_size_bytes) as usize]);
        rig.run(Operation::Program { block, first_page: page, parts, oob }).unwrap();
    }
    let taken = rig.device.tag_memory_bytes() - before;
    let tags = u64::from(geometry.ius_per_erase_block()) * 8;
    assert!(taken >= tags && taken < tags + tags / 4, "{taken} bytes for {tags} bytes of tags");
}
