//! Goal: a die copies program units from one block of a holder to another one: content and the holder's OOB as asked, counted as programs, in less
//! time than it takes to carry them over the channel; nothing of it is lost or mixed up when the source is freed, moves or cannot be read, or
//! when the copy fails. Method: one vSSD on an emulated device in virtual time.

use diecut_emulator::{Device, Fault, FaultyDie, OperationKind, Options, Profile};
use diecut_media::Media;
use diecut_spec::{Isolation, Sharing};
use diecut_testing::pool::PoolWorld;
use diecut_units::*;
use diecut_vssd::*;

/// What a holder writes into its part of each OOB.
const HOLDERS: u8 = 0x5a;

fn world() -> PoolWorld {
    let mut profile = Profile::named("tiny-one-shot").unwrap();
    profile.bad_blocks.factory_percent = 0.0;
    let device = Device::create(&profile, Options { seed: 5, ..Options::default() }).unwrap();
    let wear = WearConfig { channel_threshold_erases: 0, die_threshold_erases: 0, ..WearConfig::default() };
    let config = PoolConfig { wear, ..PoolConfig::suited_to(device.geometry()) };
    let mut world = PoolWorld::open(device, config, Time::ZERO);
    world.pool.begin_migration();
    world
}

/// A world with a vSSD that has a full block: its units hold 10, 11, ...
fn with_a_source() -> (PoolWorld, VssdId, LogicalBlock) {
    let mut world = world();
    let id = world.pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
    let source = fill(&mut world, id, 10);
    (world, id, source)
}

/// A full block.
fn fill(world: &mut PoolWorld, id: VssdId, first: u8) -> LogicalBlock {
    let block = world.allocate(id, 0);
    for unit in 0..world.pool.shape().program_units() {
        world.append(id, SpaceToken(0), block, first + unit as u8, IoClass::HostWrite);
    }
    world.run();
    assert!(world.answers.drain(..).all(|(_, answer)| answer.result.is_ok()));
    block
}

/// Asks for a copy of one program unit. Says whether it was taken.
fn copy(world: &mut PoolWorld, id: VssdId, source: LogicalBlock, unit: u32, goal: LogicalBlock) -> bool {
    let shape = *world.pool.shape();
    let mut oob = BufferMut::copy_from(&vec![0; shape.program_unit_oob_size_bytes() as usize]);
    for page in oob.chunks_exact_mut(shape.oob_size_bytes as usize) {
        page[shape.holder_oob_offset as usize] = HOLDERS;
    }
    let source = BlockPages { block: source, first_page: unit * shape.program_unit_pages };
    world.space(id).append_copy(SpaceToken(7), source, goal, oob, IoClass::HostWrite).is_ok()
}

fn ends(world: &mut PoolWorld) -> Vec<Result<(), SpaceError>> {
    world.run();
    world.pool.check_invariants();
    world.answers.drain(..).map(|(_, answer)| answer.result).collect()
}

fn holds(world: &mut PoolWorld, id: VssdId, block: LogicalBlock, bytes: &[u8]) {
    let unit_ius = world.pool.shape().program_unit_ius();
    for (unit, byte) in (0..).zip(bytes) {
        for iu in unit * unit_ius..(unit + 1) * unit_ius {
            assert_eq!(world.read(id, block, iu), Ok(*byte), "IU {iu} of {block:?}");
        }
    }
}

fn die_of(world: &PoolWorld) -> u32 {
    (0..4).find(|&die| world.pool.die_heat(die).content_erases > 0).expect("it lies somewhere")
}

#[test]
fn a_copy_holds_what_its_source_held_and_counts_as_programmed() {
    let (mut world, id, source) = with_a_source();
    assert!(world.space(id).copies_within_dies());
    let goal = world.allocate(id, 0);
    let (work, programs) = (world.space(id).work(), world.media.die_statistics(0).program_units);
    let wanted = [2, 0, 3, 1];
    // Also before the block is erased, and behind a program.
    for unit in wanted {
        assert!(copy(&mut world, id, source, unit, goal));
    }
    assert_eq!(ends(&mut world), [Ok(()); 4]);
    let shape = *world.pool.shape();
    let copied = u64::from(4 * shape.program_unit_ius());
    assert_eq!(world.space(id).work().appended_ius - work.appended_ius, copied);
    assert_eq!(world.media.die_statistics(0).program_units - programs, 4);
    holds(&mut world, id, goal, &wanted.map(|unit| 10 + unit as u8));
    holds(&mut world, id, source, &[10, 11, 12, 13]);
    let oob = BufferMut::copy_from(&vec![0; (shape.pages * shape.oob_size_bytes) as usize]);
    world.space(id).read_oob(SpaceToken(9), goal, 0, oob, IoClass::HostRead);
    world.run();
    let oob = world.answers.remove(0).1.oob.expect("it was asked for");
    for (page, oob) in (0..).zip(oob.chunks_exact(shape.oob_size_bytes as usize)) {
        let record = OobRecord::decode(oob).expect("a record");
        assert_eq!((record.block, record.page_or_length, record.kind), (goal, page, OobKind::Data));
        assert_eq!(oob[shape.holder_oob_offset as usize], HOLDERS);
    }
    // A restart finds it as what was appended.
    let PoolWorld { media, config, pool, now, .. } = world;
    drop(pool);
    let mut world = PoolWorld::open(media, config, now);
    let held = world.space(id).held_blocks();
    assert!(held.iter().any(|held| held.block == goal && held.written_pages == shape.pages), "{held:?}");
    holds(&mut world, id, goal, &wanted.map(|unit| 10 + unit as u8));
}

/// Two dies of one channel write: what they copy crosses it no more.
#[test]
fn what_dies_copy_takes_no_time_on_the_channel() {
    let mut times = [Span::ZERO; 2];
    for (copies, time) in [false, true].into_iter().zip(&mut times) {
        let mut profile = Profile::named("tiny-one-shot").unwrap();
        profile.bad_blocks.factory_percent = 0.0;
        // A unit is longer on the bus than in the array.
        profile.bus.channel_mb_per_s = 20.0;
        let device = Device::create(&profile, Options { seed: 5, ..Options::default() }).unwrap();
        let config = PoolConfig::suited_to(device.geometry());
        let mut world = PoolWorld::open(device, config, Time::ZERO);
        let id = world.pool.alloc_vssd(Isolation::Channel, 0, 1).unwrap();
        let blocks = [0, 1].map(|unit| {
            let source = world.allocate(id, unit);
            for byte in 0..4 {
                world.append(id, SpaceToken(0), source, byte, IoClass::HostWrite);
            }
            (source, world.allocate(id, unit))
        });
        world.run();
        world.answers.clear();
        let begun = world.now;
        for unit in 0..4 {
            for (source, goal) in blocks {
                if copies {
                    assert!(copy(&mut world, id, source, unit, goal));
                } else {
                    world.append(id, SpaceToken(0), goal, unit as u8, IoClass::HostWrite);
                }
            }
        }
        while world.answers.len() < 8 {
            assert!(world.step());
        }
        *time = world.now.since(begun);
        for (_, goal) in blocks {
            holds(&mut world, id, goal, &[0, 1, 2, 3]);
        }
    }
    assert!(times[1].0 * 3 < times[0].0, "{times:?}");
}

/// The source goes while the copy waits: its silicon is not erased before it was read.
fn freed_meanwhile() {
    let (mut world, id, source) = with_a_source();
    let goal = world.allocate(id, 0);
    for unit in 0..4 {
        assert!(copy(&mut world, id, source, unit, goal));
    }
    world.space(id).free(source).unwrap();
    assert!(!copy(&mut world, id, source, 0, goal), "it is gone for whoever asks later");
    // All others of the die are taken, so that it would be the next one.
    while let Ok(block) = world.space(id).allocate(UnitIndex(0), Purpose(1)) {
        world.append(id, SpaceToken(0), block, 99, IoClass::HostWrite);
    }
    assert!(ends(&mut world).iter().all(Result::is_ok));
    holds(&mut world, id, goal, &[10, 11, 12, 13]);
    assert_eq!(world.space(id).free_blocks(UnitIndex(0)), 1, "it is free in the end");
}

#[test]
fn a_source_that_is_freed_meanwhile_is_copied() {
    freed_meanwhile();
}

/// What cannot be is refused, and nothing happened.
#[test]
fn what_cannot_be_copied_is_refused() {
    let (mut world, id, source) = with_a_source();
    let goal = world.allocate(id, 0);
    let open = world.allocate(id, 0);
    world.append(id, SpaceToken(0), open, 1, IoClass::HostWrite);
    assert!(!copy(&mut world, id, open, 0, goal), "it is not programmed yet");
    assert_eq!(ends(&mut world), [Ok(())]);
    assert!(copy(&mut world, id, open, 0, goal));
    assert!(!copy(&mut world, id, open, 1, goal), "nothing is there");
    assert!(copy(&mut world, id, source, 3, goal));
    assert_eq!(ends(&mut world), [Ok(()); 2]);
    holds(&mut world, id, goal, &[1, 13]);
}

/// A copy that fails is as a program that fails: what waits behind it fails, too, and the block is retired when it is freed. One whose source
/// cannot be read costs the block only its rest.
#[test]
fn a_copy_that_fails_stops_its_block() {
    for of_source in [false, true] {
        let (mut world, id, source) = with_a_source();
        let goal = world.allocate(id, 0);
        assert!(copy(&mut world, id, source, 0, goal));
        assert_eq!(ends(&mut world), [Ok(())]);
        let die = die_of(&world);
        if of_source {
            let shape = *world.pool.shape();
            let number = world.pool.place_of_block(id, source).expect("it is held");
            let geometry = *world.media.geometry();
            let index = BlockIndex(number % geometry.erase_blocks_per_die());
            world.media.lose_page(geometry.die_at(die).erase_block(index), 2 * shape.program_unit_pages);
        } else {
            let die = FaultyDie { channel: (die / 2) as u16, die: (die % 2) as u16 };
            world.media.add_fault(Fault::Fail { die, kind: OperationKind::Copy, nth: 1 });
        }
        for unit in [2, 3] {
            assert!(copy(&mut world, id, source, unit, goal));
        }
        let failed = SpaceError::AppendFailed { unit: 0, index: goal.index };
        assert_eq!(ends(&mut world), [Err(failed), Err(failed)], "of its source: {of_source}");
        assert!(!copy(&mut world, id, source, 3, goal), "it takes nothing more");
        holds(&mut world, id, goal, &[10]);
        let free = world.space(id).free_blocks(UnitIndex(0));
        let retired = world.pool.retired_of(die);
        world.space(id).free(goal).unwrap();
        world.run();
        assert_eq!(world.space(id).free_blocks(UnitIndex(0)), free + 1);
        assert_eq!(world.pool.retired_of(die) - retired, u32::from(!of_source));
    }
}

/// While the unit changes dies its blocks lie on two of them: copies between those are refused, others go on, and what is copied while its
/// source leaves is right.
fn copied_during_an_exchange() -> u32 {
    let (mut world, id, source) = with_a_source();
    let more: Vec<LogicalBlock> = (0..5).map(|at| fill(&mut world, id, 20 + 10 * at)).collect();
    let die = die_of(&world);
    world.pool.exchange_dies(die, (die + 1) % 4).unwrap();
    let all: Vec<LogicalBlock> = [source].into_iter().chain(more).collect();
    let mut refused = 0;
    let mut made: Vec<(LogicalBlock, Vec<u8>)> = Vec::new();
    for turn in 0..1_000_000 {
        if made.last().is_none_or(|(_, bytes)| bytes.len() == 4)
            && turn % 50 == 0
            && let Ok(block) = world.space(id).allocate(UnitIndex(0), Purpose(1))
        {
            made.push((block, Vec::new()));
        }
        if !world.step() {
            break;
        }
        let Some((block, bytes)) = made.last_mut().filter(|(_, bytes)| bytes.len() < 4) else { continue };
        if turn % 13 == 0 {
            let (of, unit) = (turn / 13 % all.len(), turn as u32 % 4);
            match copy(&mut world, id, all[of], unit, *block) {
                true => bytes.push(10 + 10 * of as u8 + unit as u8),
                false => refused += 1,
            }
        }
    }
    assert!(world.answers.drain(..).all(|(_, answer)| answer.result.is_ok()));
    assert_eq!(world.pool.migration_status().finished, 1);
    for (at, block) in (1..).zip(all) {
        let first = 10 * at;
        holds(&mut world, id, block, &[first, first + 1, first + 2, first + 3]);
    }
    let copied = made.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    assert!(copied > 3, "{copied} were copied");
    for (block, bytes) in made {
        holds(&mut world, id, block, &bytes);
    }
    world.pool.check_invariants();
    refused
}

#[test]
fn an_exchange_of_dies_keeps_copies_right() {
    assert!(copied_during_an_exchange() > 0);
}

#[test]
fn planted_bugs_are_noticed() {
    diecut_testing::planted::all_are_noticed(&[
        ("vssd: a copy within a die does not hold its source", freed_meanwhile),
        ("vssd: a copy within a die crosses to another", || _ = copied_during_an_exchange()),
    ]);
}

/// A purge begins while a die still copies from a block that was freed: it erases that, too.
#[test]
fn a_purge_waits_for_what_is_copied() {
    let (mut world, id, source) = with_a_source();
    let erases = world.media.die_statistics(0).erases;
    let goal = world.allocate(id, 0);
    assert!(copy(&mut world, id, source, 0, goal));
    world.space(id).free(source).unwrap();
    world.space(id).erase_freed(SpaceToken(3));
    assert_eq!(ends(&mut world), [Ok(()); 2]);
    assert_eq!(world.media.die_statistics(0).erases - erases, 2, "the goal, and what was freed");
}

/// A holder takes back a copy that has not begun: its source is as any other.
#[test]
fn a_copy_that_is_taken_back_lets_go_of_its_source() {
    let (mut world, id, source) = with_a_source();
    let erases = world.media.die_statistics(0).erases;
    let goal = world.allocate(id, 0);
    assert!(copy(&mut world, id, source, 0, goal));
    assert_eq!(world.space(id).begun_pages(goal), 0, "it waits for the erase of its block");
    world.space(id).withdraw(goal, 0);
    world.space(id).free(source).unwrap();
    world.space(id).erase_freed(SpaceToken(3));
    assert_eq!(ends(&mut world), [Ok(())]);
    assert_eq!(world.media.die_statistics(0).erases - erases, 2, "the goal, and what was freed");
}

/// What dies copy counts for the rate of their vSSD as what they program for it.
#[test]
fn copies_keep_to_the_rate() {
    let [copied, appended] = [true, false].map(|copies| {
        let (mut world, id, source) = with_a_source();
        // A program unit takes far longer by the rate than on the die.
        let share = Share { rate_bytes_per_second: 1_000_000, sharing: Sharing::Strict, ..Share::default() };
        world.pool.set_share(id, share, world.now);
        let begun = world.now;
        for _ in 0..4 {
            let goal = world.allocate(id, 0);
            for unit in 0..4 {
                if copies {
                    assert!(copy(&mut world, id, source, unit, goal));
                } else {
                    world.append(id, SpaceToken(7), goal, 1, IoClass::HostWrite);
                }
            }
        }
        while world.answers.len() < 16 {
            assert!(world.step(), "all are answered");
        }
        world.now.since(begun).0
    });
    assert!(copied.abs_diff(appended) * 20 < appended, "{copied} ns and {appended} ns");
}

/// A block that moves takes no copies, also while what they read still lies beside it: they would wait for its other place. Open blocks move
/// last, so both are open.
#[test]
fn a_block_that_moves_takes_no_copies() {
    let (mut world, id, source) = with_a_source();
    let open = [0, 1].map(|unit| {
        let block = world.allocate(id, 0);
        assert!(copy(&mut world, id, source, unit, block));
        block
    });
    assert_eq!(ends(&mut world), [Ok(()); 2]);
    let die = die_of(&world);
    world.pool.exchange_dies(die, (die + 1) % 4).unwrap();
    let blocks_per_die = world.media.geometry().erase_blocks_per_die();
    let die_of =
        |world: &PoolWorld, block| world.pool.place_of_block(id, block).map(|at| at / blocks_per_die);
    let mut near = 0;
    while world.step() {
        for [goal, beside] in [open, [open[1], open[0]]] {
            if world.space(id).begun_pages(goal) == u32::MAX {
                near += u32::from(die_of(&world, beside) == die_of(&world, goal));
                assert!(!copy(&mut world, id, beside, 0, goal), "it moves");
            }
        }
    }
    assert!(near > 0, "one lay beside the other when that moved");
    assert_eq!(world.pool.migration_status().finished, 1);
    assert!(copy(&mut world, id, source, 3, open[0]), "they are beside each other again");
    assert_eq!(ends(&mut world), [Ok(())]);
    holds(&mut world, id, open[0], &[10, 13]);
    holds(&mut world, id, open[1], &[11]);
}
