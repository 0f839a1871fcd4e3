//! Goal: nothing that was given back before a purge is on flash after it, and what is held stays. Method: bytes on a device that keeps what
//! may be forgotten, looked for in all that was programmed and not erased since.

use diecut_emulator::{Device, Fault, FaultyDie, OperationKind, Options, Profile};
use diecut_media::Media;
use diecut_spec::Isolation;
use diecut_testing::pool::PoolWorld;
use diecut_units::*;
use diecut_vssd::*;

const PURGE: SpaceToken = SpaceToken(77);
const GONE: u8 = 0xd1;
const HELD: u8 = 0x33;

fn world(isolation: Isolation) -> (PoolWorld, VssdId, VssdId) {
    let profile = Profile::named("tiny").unwrap();
    let mut device = Device::create(&profile, Options { seed: 5, ..Options::default() }).unwrap();
    device.keep_discarded();
    let levels = PoolConfig::levels_of(device.geometry(), 2);
    let config = PoolConfig { soft_planes_per_die: 2, levels, ..PoolConfig::default() };
    let mut world = PoolWorld::open(device, config, Time::ZERO);
    let one = world.pool.alloc_vssd(isolation, 0, 1).unwrap();
    let other = world.pool.alloc_vssd(isolation, 0, 1).unwrap();
    (world, one, other)
}

/// Erase blocks of the device that hold an IU of this byte.
fn blocks_with(device: &Device, byte: u8) -> Vec<EraseBlockAddress> {
    let mut found = Vec::new();
    device.look_through(|block, iu| {
        if iu.iter().all(|one| *one == byte) && found.last() != Some(&block) {
            found.push(block);
        }
    });
    found
}

fn fill(world: &mut PoolWorld, id: VssdId, byte: u8) -> LogicalBlock {
    let block = world.allocate(id, 0);
    world.append(id, SpaceToken(1), block, byte, IoClass::HostWrite);
    world.run();
    block
}

fn free(world: &mut PoolWorld, id: VssdId, block: LogicalBlock) {
    world.space(id).free(block).unwrap();
    world.run();
}

fn purge(world: &mut PoolWorld, id: VssdId) -> Result<(), SpaceError> {
    world.answers.clear();
    world.space(id).erase_freed(PURGE);
    world.run();
    world.pool.check_invariants();
    let mut answers = world.answers.iter().filter(|(of, answer)| (*of, answer.token) == (id, PURGE));
    let (_, answer) = answers.next().expect("a purge is answered");
    assert!(answers.next().is_none(), "once");
    answer.result
}

fn erases(world: &PoolWorld) -> (u64, u64) {
    let dies = 0..world.media.geometry().dies();
    let counted = dies.clone().map(|die| world.pool.die_wear(die).total()).sum();
    (counted, world.media.statistics().erases)
}

#[test]
fn what_was_given_back_is_erased_and_what_is_held_stays() {
    freed_blocks();
}

#[test]
fn planted_bugs_are_noticed() {
    diecut_testing::planted::all_are_noticed(&[
        ("vssd: a purge erases nothing", freed_blocks),
        ("vssd: erases of a purge not counted", freed_blocks),
    ]);
}

fn freed_blocks() {
    for isolation in [Isolation::Die, Isolation::Software] {
        let (mut world, one, other) = world(isolation);
        let held = fill(&mut world, one, HELD);
        let neighbour = fill(&mut world, other, HELD + 1);
        let gone: Vec<_> = (0..3).map(|_| fill(&mut world, one, GONE)).collect();
        let neighbours_gone = fill(&mut world, other, GONE + 1);
        gone.iter().for_each(|block| free(&mut world, one, *block));
        free(&mut world, other, neighbours_gone);
        assert_eq!(blocks_with(&world.media, GONE).len(), 3, "it stays until somebody erases it");
        let before = erases(&world);
        assert_eq!(purge(&mut world, one), Ok(()));
        assert_eq!(blocks_with(&world.media, GONE), []);
        assert_eq!(blocks_with(&world.media, GONE + 1).len(), 1, "what another vSSD gave back is its affair");
        assert_eq!(erases(&world), (before.0 + 3, before.1 + 3), "each once, and counted");
        assert_eq!(world.read(one, held, 0), Ok(HELD));
        assert_eq!(world.read(other, neighbour, 0), Ok(HELD + 1));
        assert_eq!(purge(&mut world, one), Ok(()));
        assert_eq!(erases(&world).0, before.0 + 3, "what is erased is not erased again");
        // They are as good as others.
        let again = fill(&mut world, one, HELD);
        assert_eq!(world.read(one, again, 0), Ok(HELD));
    }
}

/// Whose it was is not written down: after a restart all that may be dirty is erased. So is what the power went under.
#[test]
fn a_restart_forgets_nothing() {
    let (mut world, one, _) = world(Isolation::Die);
    let gone: Vec<_> = (0..3).map(|_| fill(&mut world, one, GONE)).collect();
    gone.iter().for_each(|block| free(&mut world, one, *block));
    world.space(one).erase_freed(PURGE);
    world.media.power_cut(world.now);
    world.media.power_on();
    let PoolWorld { media, config, now, pool, .. } = world;
    drop(pool);
    let mut world = PoolWorld::open(media, config, now);
    world.run();
    assert!(world.answers.is_empty(), "a purge that was cut is not answered");
    assert_eq!(purge(&mut world, one), Ok(()));
    assert_eq!(blocks_with(&world.media, GONE), []);
    let (counted, done) = erases(&world);
    assert!(counted >= done, "no cut makes a count smaller: {counted} of {done}");
}

/// A block that another vSSD took, and that was not erased by then when the power went, holds what it held: a purge reaches it when that vSSD
/// has given it back, and does not wait for that.
#[test]
fn what_another_took_before_a_cut_is_erased_when_it_is_free() {
    let (mut world, one, other) = world(Isolation::Software);
    let gone = fill(&mut world, one, GONE);
    free(&mut world, one, gone);
    let [place] = blocks_with(&world.media, GONE)[..] else { panic!("one block holds it") };
    // The least worn block is given out: others are worn until it is this one, and the power goes before it is erased.
    let units = world.space(other).unit_count();
    let takes_it = |unit: u16| {
        let block = world.space(other).allocate(UnitIndex(unit % units), Purpose(1)).unwrap();
        if held_blocks(&world.pool, other).iter().any(|(_, at)| *at == place) {
            return true;
        }
        world.run();
        free(&mut world, other, block);
        false
    };
    assert!((0..2000).any(takes_it), "another vSSD never gets it");
    world.media.power_cut(world.now);
    world.media.power_on();
    let PoolWorld { media, config, now, pool, .. } = world;
    drop(pool);
    let mut world = PoolWorld::open(media, config, now);
    let taken = held_blocks(&world.pool, other);
    let is_taken = |place: &EraseBlockAddress| taken.iter().any(|(_, at)| at == place);
    assert!(blocks_with(&world.media, GONE).iter().all(is_taken), "another vSSD has it");
    assert_eq!(blocks_with(&world.media, GONE).len(), 1);
    assert_eq!(purge(&mut world, one), Ok(()));
    taken.iter().for_each(|(block, _)| free(&mut world, other, block.block));
    assert_eq!(purge(&mut world, one), Ok(()));
    assert_eq!(blocks_with(&world.media, GONE), []);
}

/// A block that its holder took again is waited for; it is not erased twice.
#[test]
fn what_is_taken_again_is_erased_by_its_holder() {
    let (mut world, one, _) = world(Isolation::Die);
    let block = fill(&mut world, one, GONE);
    free(&mut world, one, block);
    let before = erases(&world).1;
    // All free blocks of the die: the dirty one is among them, and none of them is erased yet.
    let mut taken = Vec::new();
    while let Ok(block) = world.space(one).allocate(UnitIndex(0), Purpose(1)) {
        taken.push(block);
    }
    world.space(one).erase_freed(PURGE);
    world.run();
    assert!(world.answers.iter().any(|(_, answer)| answer.token == PURGE && answer.result.is_ok()));
    assert_eq!(blocks_with(&world.media, GONE), []);
    let done = erases(&world).1 - before;
    assert!(done <= taken.len() as u64 + 1, "{done} erases for {} blocks", taken.len());
    world.pool.check_invariants();
}

/// A block whose program failed keeps what it held. It is erased once more, and stays retired; if that fails the purge says so.
#[test]
fn bad_blocks_are_tried_and_told_of() {
    for fails_again in [false, true] {
        let (mut world, one, _) = world(Isolation::Die);
        let block = fill(&mut world, one, GONE);
        let place = world.pool.place_of_block(one, block).unwrap();
        let blocks_per_die = world.media.geometry().erase_blocks_per_die();
        let die = world.media.geometry().die_at(place / blocks_per_die);
        // Operations of a kind are counted from the first one of the die.
        let fault = |kind, nth| {
            let die = FaultyDie { channel: die.channel.0, die: die.die.0 };
            Fault::Fail { die, kind, nth }
        };
        world.media.add_fault(fault(OperationKind::Program, 1));
        world.append(one, SpaceToken(2), block, GONE, IoClass::HostWrite);
        world.run();
        free(&mut world, one, block);
        let retired = |world: &PoolWorld| world.pool.retired_of(place / blocks_per_die);
        assert_eq!(retired(&world), 1);
        if fails_again {
            world.media.add_fault(fault(OperationKind::Erase, 1));
            assert_eq!(purge(&mut world, one), Err(SpaceError::NotErased { blocks: 1 }));
        }
        let before = erases(&world);
        assert_eq!(purge(&mut world, one), Ok(()), "it is tried each time");
        assert_eq!(
            erases(&world),
            (before.0 + 1, before.1 + 1),
            "what could not be erased may still be there"
        );
        let before = erases(&world);
        assert_eq!((purge(&mut world, one), erases(&world)), (Ok(()), before), "until it was erased");
        assert_eq!(blocks_with(&world.media, GONE), []);
        assert_eq!(retired(&world), 1, "an erase makes it no better");
        world.pool.check_invariants();
    }
}

/// All blocks that the vSSDs may hold are held: what is free besides is erased one at a time, and the rest can be had as before.
#[test]
fn a_purge_leaves_a_block_to_holders() {
    let (mut world, one, other) = world(Isolation::Software);
    let mut held: Vec<_> = (0..4).map(|_| fill(&mut world, one, GONE)).collect();
    for id in [one, other] {
        while let Ok(block) = world.space(id).allocate(UnitIndex(0), Purpose(1)) {
            world.append(id, SpaceToken(1), block, GONE, IoClass::HostWrite);
            held.extend((id == one).then_some(block));
            world.run();
        }
    }
    // Others take their places, so that these lie among the few that nobody may hold.
    for block in held.drain(..4) {
        free(&mut world, one, block);
        fill(&mut world, one, HELD);
    }
    let free: u32 =
        (0..world.space(one).unit_count()).map(|unit| world.space(one).free_blocks(UnitIndex(unit))).sum();
    let before = blocks_with(&world.media, GONE).len();
    assert_eq!(purge(&mut world, one), Ok(()), "{free} blocks are free");
    assert!(blocks_with(&world.media, GONE).len() < before);
}

/// A block moves away while it is read, and its holder gives it back: its old place is erased, too.
#[test]
fn what_moved_away_under_reads_is_erased() {
    let (mut world, one, _) = world(Isolation::Die);
    world.pool.begin_migration();
    let block = fill(&mut world, one, GONE);
    let geometry = *world.media.geometry();
    let die = world.pool.place_of_block(one, block).unwrap() / geometry.erase_blocks_per_die();
    world.pool.exchange_dies(die, (die + 1) % geometry.dies()).unwrap();
    world.answers.clear();
    let mut asked = 0;
    while world.pool.migration_status().moved_blocks == 0 {
        while asked - world.answers.len() < 8 {
            let destination =
                BufferMut::copy_from(&vec![0; world.media.capabilities().content_mode.bytes_per_iu()]);
            let run = BlockRun { block, first_iu: 0, iu_count: 1 };
            world.space(one).read(SpaceToken(5), run, destination, None, IoClass::HostRead);
            asked += 1;
        }
        assert!(world.step(), "it moves");
    }
    assert!(world.answers.len() < asked, "its old place is still read");
    world.space(one).free(block).unwrap();
    assert_eq!(purge(&mut world, one), Ok(()));
    assert_eq!(blocks_with(&world.media, GONE), []);
}

/// A holder gives a block back while its appends wait for its erase: what they put there is erased, too.
#[test]
fn what_is_programmed_after_its_block_was_given_back_is_erased() {
    let (mut world, one, _) = world(Isolation::Die);
    let block = world.allocate(one, 0);
    world.append(one, SpaceToken(1), block, GONE, IoClass::HostWrite);
    world.space(one).free(block).unwrap();
    assert_eq!(purge(&mut world, one), Ok(()));
    assert_eq!(blocks_with(&world.media, GONE), []);
}
