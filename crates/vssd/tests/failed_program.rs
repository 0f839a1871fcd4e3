//! A program that fails while others of its block wait behind it, without protected memory, and then the death of the process
//! before anybody wrote down that the block failed: what lies on flash behind the failed page is what the die had already.

use diecut_emulator::{Device, Fault, FaultyDie, OperationKind, Options, Profile};
use diecut_media::Media;
use diecut_spec::Isolation;
use diecut_testing::pool::PoolWorld;
use diecut_units::marks::plant_mutant;
use diecut_units::*;
use diecut_vssd::*;

const APPENDS: u64 = 8;

/// More appends than this at a die are parked.
const SHORT_QUEUE: u16 = 2;

fn rig(die_queue_depth: u16) -> PoolWorld {
    let mut profile = Profile::named("tiny").unwrap();
    profile.protected_memory_bytes = 0;
    let device = Device::create(&profile, Options { seed: 5, ..Options::default() }).unwrap();
    let levels = PoolConfig::levels_of(device.geometry(), 2);
    let config = PoolConfig { soft_planes_per_die: 2, levels, die_queue_depth, ..PoolConfig::default() };
    PoolWorld::open(device, config, Time::ZERO)
}

/// What came of appends whose program `failing` fails, counted from the first one: units acknowledged, units that the
/// next opening finds, and the shape. The process dies when the last append was answered.
fn run(failing: Option<u64>, die_queue_depth: u16) -> (u32, u32, BlockShape) {
    let mut rig = rig(die_queue_depth);
    let (id, block) = hold_block(&mut rig);
    let shape = *rig.pool.shape();
    if let Some(nth) = failing {
        let nth = rig.media.die_statistics(0).program_units + nth;
        let die = FaultyDie { channel: 0, die: 0 };
        rig.media.add_fault(Fault::Fail { die, kind: OperationKind::Program, nth });
    }
    for at in 0..APPENDS {
        rig.append(id, SpaceToken(at), block, at as u8, IoClass::HostWrite);
    }
    assert_eq!(rig.pool.has_room(id), die_queue_depth > SHORT_QUEUE, "what is parked keeps others waiting");
    while rig.answers.len() < APPENDS as usize {
        assert!(rig.step(), "every append is answered");
    }
    let answers = std::mem::take(&mut rig.answers);
    let acknowledged = answers.iter().take_while(|(_, answer)| answer.result.is_ok()).count() as u32;
    assert!(answers.iter().skip(acknowledged as usize).all(|(_, answer)| answer.result.is_err()), "in order");
    let mut tokens: Vec<u64> = answers.iter().map(|(_, answer)| answer.token.0).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..APPENDS).collect::<Vec<_>>(), "each is answered once");
    assert!(rig.pool.has_room(id), "nothing is parked any more");
    rig.pool.check_invariants();
    rig.media.process_death(rig.now);
    let mut rig = rig.open_again();
    let held = rig.space(id).held_blocks();
    let found = held.iter().find(|held| held.block == block).expect("its allocation was durable");
    let units = found.written_pages / shape.program_unit_pages;
    (acknowledged, units, shape)
}

/// A vSSD on the first die with one block that is erased and written down.
fn hold_block(rig: &mut PoolWorld) -> (VssdId, LogicalBlock) {
    let id = rig.pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
    let block = rig.allocate(id, 0);
    rig.pool.make_durable(&mut rig.media, rig.now);
    rig.run();
    assert!(rig.pool.is_durable());
    (id, block)
}

#[test]
fn little_lies_behind_a_failed_program() {
    let depths = [PoolConfig::default().die_queue_depth, SHORT_QUEUE];
    for (failing, depth) in (0..APPENDS).flat_map(|failing| depths.map(|depth| (failing, depth))) {
        let (acknowledged, found, shape) = run(Some(failing), depth);
        assert_eq!(u64::from(acknowledged), failing);
        assert_eq!(shape.pipelined_units, 1, "two programs are with the die at a time");
        assert!(
            found <= acknowledged + 1 + shape.pipelined_units,
            "{found} units behind {acknowledged} good ones"
        );
        let settled = (0..found).filter(|unit| shape.is_settled(*unit, found)).count() as u32;
        assert!(settled <= acknowledged, "the failed unit counts as one that was acknowledged");
    }
    let (acknowledged, found, _) = run(None, SHORT_QUEUE);
    assert_eq!((u64::from(acknowledged), u64::from(found)), (APPENDS, APPENDS));
}

#[test]
fn programs_that_wait_behind_a_failed_one_stay_away_from_flash() {
    plant_mutant(Some("vssd: queued behind a failed program"));
    let (acknowledged, found, shape) = run(Some(2), PoolConfig::default().die_queue_depth);
    plant_mutant(None);
    assert!(found > acknowledged + 1 + shape.pipelined_units, "without it they are programmed");
}
