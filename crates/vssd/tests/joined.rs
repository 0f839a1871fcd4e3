//! A vSSD with parts on two drives is one space.
//!
//! Goal: what a holder sees are units that take turns over the drives, with names that stay whatever the order in which drives are found; sequences
//! rise over all of them, and what is asked of all is answered when all have. Method: two pools with a part each, of two units and of one; what
//! was done through the joined space is looked for after the death of the process, with the drives the other way round.

use diecut_drives::{DriveMedium, DriveShape};
use diecut_emulator::drive::{Drive, DriveProfile};
use diecut_media::Media;
use diecut_spec::Isolation;
use diecut_testing::driven::Driven;
use diecut_testing::planted::is_noticed;
use diecut_testing::pool::PoolWorld;
use diecut_units::*;
use diecut_vssd::*;

const SIZE_BYTES: u64 = 66 << 20;
const UNITS: [u32; 2] = [2, 1];
/// The number of the vSSD in each pool.
const ID: VssdId = VssdId(1);

type World = PoolWorld<Driven<DriveMedium, Drive>>;

fn opened(drive: Drive) -> Driven<DriveMedium, Drive> {
    let shape = DriveShape::plan(SIZE_BYTES, 4, Some(1 << 20)).unwrap();
    Driven::new(DriveMedium::new(shape, true, true), drive)
}

fn made(drive: u8) -> World {
    let media = opened(Drive::new(DriveProfile::nvme(SIZE_BYTES), drive.into()));
    let nonces = Some(Nonces::new([0x5e; 16], [drive; 16]));
    let config = PoolConfig { nonces, ..PoolConfig::suited_to(media.geometry()) };
    World::make(media, config, Time::ZERO)
}

fn found(world: World) -> World {
    let mut drive = world.media.io;
    drive.process_death();
    World::open(opened(drive), world.config, Time::ZERO)
}

/// Drives, and the parts that they have of the vSSD.
struct Both {
    worlds: Vec<World>,
    parts: VssdParts,
}

impl Both {
    /// `order`: the drives in the order in which their units take turns.
    fn over(worlds: Vec<World>, order: [usize; 2]) -> Both {
        let units: Vec<u16> = worlds.iter().map(|world| world.pool.size_of(ID).0 as u16).collect();
        Both { parts: VssdParts::new(&units, &order), worlds }
    }

    fn made() -> Both {
        let mut worlds: Vec<World> = [1, 2].map(made).into();
        for (world, units) in worlds.iter_mut().zip(UNITS) {
            let id = world.pool.alloc_vssd(Isolation::Channel, units, 4 << 20).unwrap();
            assert_eq!((id, world.pool.size_of(id).0), (ID, units));
        }
        Both::over(worlds, [0, 1])
    }

    fn space(&mut self) -> JoinedSpace<'_, Space<'_, Driven<DriveMedium, Drive>>> {
        self.parts.space(self.worlds.iter_mut().map(|world| world.space(ID)))
    }

    /// What the holder is answered by these drives until they rest.
    fn run(&mut self, drives: &[usize]) -> Vec<SpaceCompletion> {
        let mut all = Vec::new();
        for &drive in drives {
            self.worlds[drive].run();
            for (_, answer) in std::mem::take(&mut self.worlds[drive].answers) {
                all.extend(self.parts.answered(drive, answer));
            }
        }
        all
    }

    fn append(&mut self, token: u64, block: LogicalBlock, byte: u8) {
        let bytes = vec![byte; self.space().shape().program_unit_ius() as usize * IU_SIZE_BYTES];
        let payload = Payload::new(ContentMode::Bytes, Buffer::copy_from(&bytes));
        let parts = [payload].into_iter().collect();
        self.space().append(SpaceToken(token), block, parts, BufferMut::copy_from(&[]), IoClass::HostWrite);
    }

    fn read(&mut self, block: LogicalBlock, first_iu: u32) -> Result<u8, SpaceError> {
        let destination = BufferMut::copy_from(&[0; IU_SIZE_BYTES]);
        let run = BlockRun { block, first_iu, iu_count: 1 };
        self.space().read(SpaceToken(99), run, destination, None, IoClass::HostRead);
        let answer = self.run(&[0, 1]).pop().expect("a read is answered");
        answer.result.map(|()| answer.destination.expect("a read gives data")[7])
    }
}

fn what_a_holder_sees() {
    let mut both = Both::made();
    let space = both.space();
    assert_eq!((space.unit_count(), space.is_read_only()), (3, false));
    let room: Vec<u32> = (0..3).map(|unit| space.free_blocks(UnitIndex(unit))).collect();
    drop(space);
    // The first drive has units 0 and 2, the second one has unit 1.
    let allocate = |both: &mut Both, unit: u16| both.space().allocate(UnitIndex(unit), Purpose(3)).unwrap();
    let turns = [2, 1, 1, 1, 0, 1];
    let blocks: Vec<LogicalBlock> = turns.map(|unit| allocate(&mut both, unit)).into();
    for (at, block) in (0..).zip(&blocks) {
        assert_eq!(block.unit, UnitIndex(turns[usize::from(at)]));
        both.append(at.into(), *block, 0x10 + at);
    }
    let answered = both.run(&[0, 1]);
    assert!(answered.len() == blocks.len() && answered.iter().all(|one| one.result.is_ok()));
    for (at, block) in (0..).zip(&blocks) {
        assert_eq!(both.read(*block, 0), Ok(0x10 + at));
        let erased = SpaceError::Erased { unit: block.unit.0, index: block.index, iu: 60 };
        assert_eq!(both.read(*block, 60), Err(erased));
    }
    let space = both.space();
    let left: Vec<u32> = (0..3).map(|unit| space.free_blocks(UnitIndex(unit))).collect();
    drop(space);
    assert_eq!(left, [room[0] - 1, room[1] - 4, room[2] - 1]);
    // Each answers for itself, and the holder hears once of all, when all have.
    for is_sync in [false, true] {
        let mut space = both.space();
        if is_sync {
            space.sync(SpaceToken(50))
        } else {
            space.flush(SpaceToken(50))
        }
        drop(space);
        assert!(both.run(&[1]).is_empty(), "one drive answers for itself");
        let answered = both.run(&[0]);
        assert!(answered.len() == 1 && answered[0].token == SpaceToken(50) && answered[0].result.is_ok());
    }
    both.space().free(blocks[3]).unwrap();
    let twice = SpaceError::NotAllocated { unit: 1, index: blocks[3].index };
    assert_eq!(both.space().free(blocks[3]), Err(twice));
    both.space().sync(SpaceToken(51));
    assert_eq!(both.run(&[0, 1]).len(), 1);
    // The drives the other way round: units are called as before.
    let worlds: Vec<World> = both.worlds.into_iter().rev().map(found).collect();
    let mut both = Both::over(worlds, [1, 0]);
    let mut held = both.space().held_blocks();
    held.sort_by_key(|held| held.allocation_sequence);
    let named: Vec<LogicalBlock> = held.iter().map(|held| held.block).collect();
    let kept = [0, 1, 2, 4, 5].map(|at| blocks[at]);
    assert_eq!(named, kept, "sequences rise in the order of allocations");
    for (at, block) in [0, 1, 2, 4, 5].into_iter().zip(kept) {
        assert_eq!(both.read(block, 0), Ok(0x10 + at));
    }
    let newest = allocate(&mut both, 0);
    let sequence = |held: &HeldBlock| held.allocation_sequence;
    let space = both.space();
    let last = space.held_blocks().iter().max_by_key(|held| sequence(held)).unwrap().block;
    assert_eq!(last, newest);
}

#[test]
fn parts_on_two_drives_are_one_space() {
    what_a_holder_sees();
}

#[test]
fn planted_bugs_of_joined_spaces_are_noticed() {
    is_noticed("vssd: each part counts its allocations by itself", what_a_holder_sees);
    is_noticed("vssd: one part answers for all", what_a_holder_sees);
}
