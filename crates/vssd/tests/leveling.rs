//! Goal: even wear without being asked: a vSSD that wears one channel moves before the channel is far ahead, its data with it. Method: one
//! or two vSSDs on a small emulated device, writes to one of them, and a look at erases, at places, and at each byte that was held;
//! dies that go and reads that are wrong meanwhile.

use diecut_emulator::*;
use diecut_media::Media;
use diecut_spec::Isolation;
use diecut_testing::pool::PoolWorld;
use diecut_units::*;
use diecut_vssd::*;

fn world(wear: WearConfig) -> PoolWorld {
    let mut profile = Profile::named("tiny").unwrap();
    profile.bad_blocks.factory_percent = 0.0;
    let device = Device::create(&profile, Options::default()).unwrap();
    let config = PoolConfig { wear, ..PoolConfig::suited_to(device.geometry()) };
    let mut world = PoolWorld::open(device, config, Time::ZERO);
    world.pool.begin_migration();
    world
}

/// Hands a whole block over.
fn write(world: &mut PoolWorld, id: VssdId, unit: u16, mark: u8) -> LogicalBlock {
    let block = world.allocate(id, unit);
    for _ in 0..world.pool.shape().program_units() {
        world.append(id, SpaceToken(0), block, mark, IoClass::HostWrite);
    }
    block
}

fn holds(world: &mut PoolWorld, id: VssdId, block: LogicalBlock, mark: u8) {
    for iu in 0..world.pool.shape().ius() {
        assert_eq!(world.read(id, block, iu), Ok(mark), "IU {iu} of {block:?}");
    }
}

#[test]
fn the_writer_moves_and_what_is_held_moves_along() {
    let threshold = 40;
    let wear = WearConfig {
        channel_threshold_erases: threshold,
        follow_age: false,
        rate_bytes_per_second: 0,
        ..WearConfig::default()
    };
    let mut world = world(wear);
    let hot = world.pool.alloc_vssd(Isolation::Channel, 0, 1).unwrap();
    let cold = world.pool.alloc_vssd(Isolation::Channel, 0, 1).unwrap();
    let kept = [write(&mut world, hot, 0, 7), write(&mut world, cold, 1, 9)];
    for round in 0..1200u32 {
        let block = write(&mut world, hot, (round % 2) as u16, round as u8);
        world.run();
        assert!(world.answers.iter().all(|(_, answer)| answer.result.is_ok()), "round {round}");
        world.pool.space(hot, &mut world.media, world.now).free(block).unwrap();
        world.pool.check_invariants();
    }
    let wear = [0, 1].map(|channel| world.pool.channel_wear(channel));
    let status = world.pool.migration_status();
    assert!(status.finished >= 20 && status.moved_blocks >= status.finished, "{status:?}");
    let totals = wear.map(|wear| wear.total());
    assert!(totals[0].abs_diff(totals[1]) <= threshold * 2, "{wear:?}");
    let copied: u64 = wear.iter().map(|wear| wear.migration + wear.inside).sum();
    assert_eq!(copied, status.moved_blocks, "one erase for each block that moved");
    let heat: u64 = (0..4).map(|die| world.pool.die_heat(die).content_erases).sum();
    // From a threshold below the other channel to one above it.
    assert!(heat <= 2 * threshold + 10, "volumes begin anew with each move: {heat}");
    holds(&mut world, hot, kept[0], 7);
    holds(&mut world, cold, kept[1], 9);
}

#[test]
fn a_pause_stops_after_the_pair_and_the_rate_holds() {
    let wear = WearConfig { rate_bytes_per_second: 1_000_000, ..WearConfig::default() };
    let mut world = world(wear);
    let id = world.pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
    let blocks: Vec<LogicalBlock> = (0..6).map(|mark| write(&mut world, id, 0, mark)).collect();
    world.run();
    let die = (0..4).find(|&die| world.pool.die_heat(die).content_erases > 0).expect("it lies somewhere");
    let begun = world.now;
    world.pool.exchange_dies(die, (die + 1) % 4).unwrap();
    assert!(world.pool.exchange_dies(die, (die + 2) % 4).is_err(), "it takes part in one");
    world.pool.work(world.now, &mut world.media);
    world.pool.pause_migration(true);
    world.run();
    let status = world.pool.migration_status();
    assert_eq!((status.moved_blocks, status.exchanges[0].1, status.is_paused), (1, 5, true));
    // The unit lies on two dies now; what it is given comes from the new one.
    let fresh = write(&mut world, id, 0, 99);
    world.pool.pause_migration(false);
    world.run();
    let status = world.pool.migration_status();
    assert_eq!((status.finished, status.moved_blocks), (1, 6), "{status:?}");
    let bytes = 6 * u64::from(world.pool.shape().ius()) * 4096;
    let unit = u64::from(world.pool.shape().program_unit_ius()) * 4096;
    assert!(world.now.since(begun).0 >= (bytes - unit) * 1000, "at most a megabyte a second");
    for (mark, block) in blocks.into_iter().enumerate() {
        holds(&mut world, id, block, mark as u8);
    }
    holds(&mut world, id, fresh, 99);
    world.pool.check_invariants();
}

/// A die that goes leaves its exchange where it was: the holder of the other die loses what moved there, no more.
#[test]
fn a_die_that_goes_stops_its_exchange() {
    let wear = WearConfig { rate_bytes_per_second: 0, ..WearConfig::default() };
    let mut world = world(wear);
    let id = world.pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
    let blocks: Vec<LogicalBlock> = (0..6).map(|mark| write(&mut world, id, 0, mark)).collect();
    world.run();
    let die = (0..4).find(|&die| world.pool.die_heat(die).content_erases > 0).expect("it lies somewhere");
    let other = (die + 1) % 4;
    let from_ns = world.now.0 + 10_000_000;
    let faulty = FaultyDie { channel: (other / 2) as u16, die: (other % 2) as u16 };
    world.media.add_fault(Fault::DieOffline { die: faulty, from_ns });
    world.pool.exchange_dies(die, other).unwrap();
    world.run();
    let status = world.pool.migration_status();
    assert!(status.exchanges[0].2.is_some() && status.finished == 0, "{status:?}");
    world.pool.check_invariants();
    let left = status.exchanges[0].1 as usize;
    assert!(left > 0, "{status:?}");
    for (mark, &block) in blocks.iter().enumerate().skip(6 - left) {
        holds(&mut world, id, block, mark as u8);
    }
    // New blocks are opened where they can be written.
    let fresh = write(&mut world, id, 0, 99);
    world.run();
    assert!(world.answers.iter().all(|(_, answer)| answer.result.is_ok()));
    holds(&mut world, id, fresh, 99);
}

/// Six blocks move to another die while reads of them are wrong without saying so: those that `flips` names, counted from
/// the first read of the exchange, each in a bit of its own. Gives the world and the blocks with their marks.
fn moved_under_flips(flips: impl Iterator<Item = u64>) -> (PoolWorld, VssdId, Vec<LogicalBlock>) {
    let wear = WearConfig { rate_bytes_per_second: 0, ..WearConfig::default() };
    let mut world = world(wear);
    let id = world.pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
    let blocks: Vec<LogicalBlock> = (0..6).map(|mark| write(&mut world, id, 0, mark)).collect();
    world.run();
    let at = (0..4).find(|&die| world.pool.die_heat(die).content_erases > 0).expect("it lies somewhere");
    let die = FaultyDie { channel: at as u16 / 2, die: at as u16 % 2 };
    let first = world.media.die_statistics(at).reads;
    for flip in flips {
        world.media.add_fault(Fault::SilentFlip { die, nth: first + flip, bit: 8 * flip as u32 + 1 });
    }
    world.pool.exchange_dies(at, (at + 1) % 4).unwrap();
    world.run();
    let status = world.pool.migration_status();
    assert_eq!((status.finished, status.moved_blocks), (1, 6), "{status:?}");
    world.pool.check_invariants();
    (world, id, blocks)
}

#[test]
fn a_read_that_is_wrong_without_saying_so_is_not_made_permanent() {
    let flips = || (0..60).step_by(5);
    let (mut world, id, blocks) = moved_under_flips(flips());
    for (mark, block) in blocks.into_iter().enumerate() {
        holds(&mut world, id, block, mark as u8);
    }
    // With copies that look once it is.
    marks::plant_mutant(Some("vssd: copies look once"));
    let (mut world, id, blocks) = moved_under_flips(flips());
    marks::plant_mutant(None);
    let wrong =
        blocks.iter().enumerate().filter(|&(mark, block)| reads(&mut world, id, *block, mark as u8)[1] > 0);
    assert!(wrong.count() > 0);
}

#[test]
fn a_place_that_reads_otherwise_each_time_is_lost_and_says_so() {
    let (mut world, id, blocks) = moved_under_flips(0..60);
    let mut seen = [0; 3];
    for (mark, block) in blocks.into_iter().enumerate() {
        let of_block = reads(&mut world, id, block, mark as u8);
        (0..3).for_each(|at| seen[at] += of_block[at]);
    }
    let [right, wrong, refused] = seen;
    assert_eq!(wrong, 0);
    assert!(refused > 0 && right > refused, "{seen:?}");
}

/// IUs of a block that read right, wrong, and not at all.
fn reads(world: &mut PoolWorld, id: VssdId, block: LogicalBlock, mark: u8) -> [u32; 3] {
    let mut seen = [0; 3];
    for iu in 0..world.pool.shape().ius() {
        let destination = BufferMut::copy_from(&[0; 4096]);
        let mut space = world.pool.space(id, &mut world.media, world.now);
        let run = BlockRun { block, first_iu: iu, iu_count: 1 };
        space.read(SpaceToken(1), run, destination, None, IoClass::HostRead);
        world.run();
        let (_, answer) = world.answers.pop().expect("one read, one answer");
        let is_right = answer.destination.is_some_and(|bytes| bytes.iter().all(|&byte| byte == mark));
        seen[if answer.result.is_err() { 2 } else { usize::from(!is_right) }] += 1;
    }
    seen
}

/// Room on channels that are being exchanged is room, only not yet: who asks is told so, and gets it when the exchange is
/// done.
#[test]
fn room_that_is_being_exchanged_is_there_when_it_is_done() {
    let wear = WearConfig { rate_bytes_per_second: 1_000_000, ..WearConfig::default() };
    let mut world = world(wear);
    let holder = world.pool.alloc_vssd(Isolation::Channel, 1, 1).unwrap();
    write(&mut world, holder, 0, 7);
    world.run();
    let die = (0..4).find(|&die| world.pool.die_heat(die).content_erases > 0).expect("it lies somewhere");
    world.pool.exchange_dies(die, (die + 2) % 4).unwrap();
    let ask = |pool: &mut Pool, level| pool.alloc_vssd(Isolation::Software, level, 1);
    let refused = AllocError::BeingExchanged { needed: 8, free: 0, kind: "soft-planes" };
    assert_eq!(ask(&mut world.pool, 1), Err(refused.clone()), "it waits");
    world.pool.work(world.now, &mut world.media);
    assert_eq!(ask(&mut world.pool, 1), Err(refused), "it is under way");
    let never = ask(&mut world.pool, 2);
    assert!(matches!(never, Err(AllocError::NotFree { needed: 16, free: 0, .. })), "{never:?}");
    world.run();
    assert_eq!(world.pool.migration_status().finished, 1);
    // Half a channel moved: its vSSD lies on parts of two, whose other dies are free.
    ask(&mut world.pool, 1).unwrap();
}

/// A threshold that follows the age of a young device is small, whatever the fixed one says; one of 0 stays.
#[test]
fn a_young_device_swaps_early_where_the_threshold_follows_its_age() {
    for follow_age in [false, true] {
        let wear = WearConfig {
            channel_threshold_erases: 1_000_000,
            rate_bytes_per_second: 0,
            follow_age,
            endurance_cycles: 40,
            ..WearConfig::default()
        };
        let mut world = world(wear);
        let hot = world.pool.alloc_vssd(Isolation::Channel, 0, 1).unwrap();
        for round in 0..4000u32 {
            let block = write(&mut world, hot, (round % 2) as u16, round as u8);
            world.run();
            world.pool.space(hot, &mut world.media, world.now).free(block).unwrap();
        }
        let blocks_of_channel = u64::from(world.media.geometry().erase_blocks_per_die()) * 2;
        let (finished, thresholds) = (world.pool.migration_status().finished, world.pool.wear_thresholds());
        if follow_age {
            assert_eq!(thresholds, [16 * blocks_of_channel, 0], "16 cycles of each block are the least");
            assert!(finished >= 4, "two dies of each swap, {finished} in all");
        } else {
            assert_eq!((finished, thresholds), (0, [1_000_000, 0]));
        }
    }
    // It grows with the device's age, and shrinks towards the end.
    let wear = WearConfig { follow_age: true, die_threshold_erases: 1, ..WearConfig::default() };
    let mut geometry = *world(wear).media.geometry();
    geometry.blocks_per_plane = 1000;
    let of_a_block = |average_cycles| {
        let age = DeviceAge { average_cycles, ..DeviceAge::default() };
        wear.thresholds(&DieLayout::of(&geometry), age)[1] / u64::from(geometry.erase_blocks_per_die())
    };
    assert_eq!([0, 750, 1500, 2999].map(of_a_block), [71, 71, 142, 54]);
}

/// Blocks that fail say that the device is older than its cycles: the threshold comes down to that of the end, and is there again
/// after a restart.
#[test]
fn blocks_that_fail_bring_the_threshold_down() {
    let mut world = world(WearConfig { die_threshold_erases: 1, ..WearConfig::default() });
    let per_die = u64::from(world.media.geometry().erase_blocks_per_die());
    let of_a_block = |pool: &Pool| pool.wear_thresholds()[1] / per_die;
    assert_eq!(of_a_block(&world.pool), 71);
    let id = world.pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
    for die in 0..world.media.geometry().dies() as u16 {
        let die = FaultyDie { channel: die / 2, die: die % 2 };
        world.media.add_fault(Fault::Fail { die, kind: OperationKind::Erase, nth: 3 });
    }
    for round in 0..per_die * 2 {
        let block = write(&mut world, id, 0, round as u8);
        world.run();
        world.pool.space(id, &mut world.media, world.now).free(block).unwrap();
        world.run();
    }
    world.pool.set_wear(*world.pool.wear_config());
    assert_eq!(of_a_block(&world.pool), 54);
    let PoolWorld { media: device, pool, .. } = world;
    drop(pool);
    let config = PoolConfig::suited_to(device.geometry());
    let size = Pool::block_states_size_bytes(device.geometry(), &config);
    let again = Pool::open(&device, config, device.protected_memory().unwrap().region(0..size)).unwrap();
    assert_eq!(of_a_block(&again), 54);
}

/// Data that nobody writes again lies on young blocks until it moves; then all blocks of a die wear alike.
#[test]
fn data_that_is_never_rewritten_pins_no_young_blocks() {
    let gap_erases = 8;
    let spread = |threshold_of_a_block: u64| {
        let mut world = world(WearConfig::default());
        let blocks = u64::from(world.media.geometry().erase_blocks_per_die());
        let wear = WearConfig {
            channel_threshold_erases: 0,
            die_threshold_erases: threshold_of_a_block * blocks,
            follow_age: false,
            rate_bytes_per_second: 0,
            ..WearConfig::default()
        };
        world.pool.set_wear(wear);
        let id = world.pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
        let all = world.pool.space(id, &mut world.media, world.now).blocks_of_unit(UnitIndex(0));
        let cold: Vec<LogicalBlock> = (0..all / 2).map(|at| write(&mut world, id, 0, at as u8)).collect();
        world.run();
        for _ in 0..u64::from(all) * 20 {
            let block = write(&mut world, id, 0, 0xff);
            world.run();
            world.pool.space(id, &mut world.media, world.now).free(block).unwrap();
            world.run();
        }
        for (at, block) in cold.into_iter().enumerate() {
            holds(&mut world, id, block, at as u8);
        }
        world.pool.check_invariants();
        let die = (0..world.media.geometry().dies()).max_by_key(|&die| world.pool.die_erases(die)).unwrap();
        let first = world.media.geometry().die_at(die);
        let all = (0..blocks as u32).map(|at| first.erase_block(BlockIndex(at)));
        let system = world.pool.system_area();
        let counts = all.filter(|&block| !system.contains(die, block));
        let counts: Vec<u32> = counts.map(|block| world.media.erase_count(block)).collect();
        let inside = world.pool.die_wear(die).inside;
        (counts.iter().max().unwrap() - counts.iter().min().unwrap(), inside, world.pool.die_erases(die))
    };
    let (without, inside, _) = spread(0);
    assert!(without > 30 && inside == 0, "{without}, {inside}");
    let (with, inside, erases) = spread(2 * gap_erases);
    // One block moves at a time: a hot one goes on meanwhile.
    assert!(u64::from(with) <= gap_erases + 3, "{with} erases between blocks");
    assert!(inside > 20 && inside < erases / 5, "{inside} of {erases} erases");
}

/// A die that goes while a cold block of it is to move: that is tried once for each look, not for ever.
#[test]
fn a_die_that_goes_keeps_its_cold_blocks() {
    let mut world = world(WearConfig::default());
    world.pool.pause_migration(true);
    let blocks = u64::from(world.media.geometry().erase_blocks_per_die());
    let wear = WearConfig {
        channel_threshold_erases: 0,
        die_threshold_erases: 5 * blocks,
        follow_age: false,
        rate_bytes_per_second: 0,
        ..WearConfig::default()
    };
    world.pool.set_wear(wear);
    let id = world.pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
    write(&mut world, id, 0, 7);
    world.run();
    for _ in 0..3 * blocks {
        let block = write(&mut world, id, 0, 0xff);
        world.run();
        world.pool.space(id, &mut world.media, world.now).free(block).unwrap();
    }
    world.run();
    let die = (0..4).find(|&die| world.pool.die_heat(die).content_erases > 0).expect("it lies somewhere");
    let faulty = FaultyDie { channel: (die / 2) as u16, die: (die % 2) as u16 };
    world.media.add_fault(Fault::DieOffline { die: faulty, from_ns: world.now.0 });
    world.pool.pause_migration(false);
    world.run();
    assert!((1..=2).contains(&world.pool.copy_work().intended_inside_erases), "{:?}", world.pool.copy_work());
    assert_eq!(world.pool.deadline(), Time::NEVER, "nothing goes on");
    world.pool.check_invariants();
}
