//! Openings after damage and after deaths of the process between two stores. Each test names the bug it was seen to
//! catch, or the planted one that it must catch.

use super::*;
use crate::*;
use diecut_emulator::{Device, Fault, FaultyDie, OperationKind, Options, Pacing, Profile};
use diecut_media::Media;
use diecut_units::marks::plant_mutant;
use diecut_units::{Buffer, BufferMut, ContentMode, Payload, ProtectedMemory, Time};

fn device() -> Device {
    let profile = Profile::named("tiny").unwrap();
    Device::create(&profile, Options { pacing: Pacing::Unpaced, seed: 3, ..Options::default() }).unwrap()
}

/// Two soft-planes to a die: neighbours share dies.
fn config(device: &Device) -> PoolConfig {
    let levels = PoolConfig::levels_of(device.geometry(), 2);
    PoolConfig { soft_planes_per_die: 2, levels, ..PoolConfig::default() }
}

struct Rig {
    device: Device,
    memory: ProtectedMemory,
    config: PoolConfig,
}

impl Rig {
    fn new() -> Rig {
        let device = device();
        let config = config(&device);
        let memory = ProtectedMemory::in_memory(Pool::block_states_size_bytes(device.geometry(), &config));
        Rig { device, memory, config }
    }
    fn open(&self) -> Result<Pool, OpenError> {
        Pool::open(&self.device, self.config.clone(), self.memory.region(0..self.memory.size_bytes()))
    }
    fn settle(&mut self, pool: &mut Pool) -> Vec<(VssdId, SpaceCompletion)> {
        let (mut completions, mut answers) = (Vec::new(), Vec::new());
        while self.device.next_event() != Time::NEVER {
            self.device.advance(Time::ZERO, &mut completions);
            for completion in completions.drain(..) {
                pool.complete(completion, Time::ZERO, &mut self.device, &mut answers);
            }
        }
        pool.take_ready(&mut answers);
        pool.check_invariants();
        answers
    }
    fn allocate(&mut self, pool: &mut Pool, id: VssdId, unit: u16) -> Result<LogicalBlock, SpaceError> {
        pool.space(id, &mut self.device, Time::ZERO).allocate(UnitIndex(unit), Purpose(1))
    }
    fn append(&mut self, pool: &mut Pool, id: VssdId, block: LogicalBlock) -> Result<(), SpaceError> {
        let mut space = pool.space(id, &mut self.device, Time::ZERO);
        let shape = *space.shape();
        let bytes = vec![7; shape.program_unit_ius() as usize * 4096];
        let parts = [Payload::new(ContentMode::Bytes, Buffer::copy_from(&bytes))].into_iter().collect();
        let oob = BufferMut::copy_from(&vec![0; shape.program_unit_oob_size_bytes() as usize]);
        space.append(SpaceToken(1), block, parts, oob, IoClass::HostWrite);
        self.settle(pool).pop().expect("answered").1.result
    }
    fn read(&mut self, pool: &mut Pool, id: VssdId, block: LogicalBlock) -> Result<(), SpaceError> {
        let mut space = pool.space(id, &mut self.device, Time::ZERO);
        space.read(
            SpaceToken(2),
            BlockRun { block, first_iu: 0, iu_count: 1 },
            BufferMut::copy_from(&[0; 4096]),
            None,
            IoClass::HostRead,
        );
        self.settle(pool).pop().expect("answered").1.result
    }
    fn flip(&self, at: usize) {
        self.memory.region(at..at + 1)[0] ^= 0x10;
    }
}

/// Place of a block's two slots in the region.
fn slots_of(number: u32) -> std::ops::Range<usize> {
    64 + number as usize * 64..64 + (number as usize + 1) * 64
}
fn pages_of(pool: &Pool, number: u32) -> usize {
    64 + pool.core.blocks.count() as usize * 64 + number as usize * 8
}
fn number_of(pool: &Pool, id: VssdId, block: LogicalBlock) -> u32 {
    let vssd = pool.core.vssds.iter().find(|vssd| vssd.id == id).unwrap();
    vssd.units[usize::from(block.unit.0)].map[block.index as usize]
}

/// A die's reserve is used up by failed programs: its vSSD takes no more writes, also after a restart.
fn read_only_survives() -> bool {
    let mut rig = Rig::new();
    let mut pool = rig.open().unwrap();
    let id = pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
    let die = pool.core.vssds[0].units[0].place.die;
    let die = rig.device.geometry().die_at(die);
    let faulty = FaultyDie { channel: die.channel.0, die: die.die.0 };
    let mut failures = 0;
    while pool.space(id, &mut rig.device, Time::ZERO).free_blocks(UnitIndex(0)) > 0 {
        let nth = failures;
        rig.device.add_fault(Fault::Fail { die: faulty, kind: OperationKind::Program, nth });
        let block = rig.allocate(&mut pool, id, 0).unwrap();
        assert!(matches!(rig.append(&mut pool, id, block), Err(SpaceError::AppendFailed { .. })));
        pool.space(id, &mut rig.device, Time::ZERO).free(block).unwrap();
        failures += 1;
    }
    assert!((2..5).contains(&failures), "1 % of 80 blocks in reserve");
    let lost = pool.core.vssds[0].units[0].lost_blocks;
    drop(pool);
    let mut pool = rig.open().unwrap();
    let (now_lost, first) = (pool.core.vssds[0].units[0].lost_blocks, rig.allocate(&mut pool, id, 0));
    now_lost == lost && first == Err(SpaceError::ReadOnly)
}

#[test]
fn a_vssd_that_became_read_only_stays_so() {
    assert!(read_only_survives());
    plant_mutant(Some("vssd: read-only forgotten"));
    assert!(!read_only_survives(), "the planted bug is seen");
    plant_mutant(None);
}

/// Seen to fail while damaged entries counted as never written: the block was handed out and erased.
#[test]
fn a_block_whose_state_is_damaged_is_set_aside() {
    let mut rig = Rig::new();
    let mut pool = rig.open().unwrap();
    let id = pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
    let block = rig.allocate(&mut pool, id, 0).unwrap();
    let other = rig.allocate(&mut pool, id, 0).unwrap();
    rig.append(&mut pool, id, block).unwrap();
    rig.append(&mut pool, id, other).unwrap();
    let (number, other_number) = (number_of(&pool, id, block), number_of(&pool, id, other));
    let other_pages = pages_of(&pool, other_number);
    let address = pool.core.address(number);
    drop(pool);
    for slot in slots_of(number).step_by(32) {
        rig.flip(slot + 9);
    }
    rig.flip(other_pages);
    // Its first page still says whose it was.
    let mut pool = rig.open().unwrap();
    pool.begin_check(&mut rig.device, Time::ZERO);
    rig.settle(&mut pool);
    assert!(pool.is_checked());
    assert_eq!(pool.quarantined()[0].holder, Some((id, block)));
    drop(pool);
    for _ in 0..2 {
        let mut pool = rig.open().unwrap();
        pool.check_invariants();
        let [first, second] = pool.quarantined() else { panic!("{:?}", pool.quarantined()) };
        assert_eq!((first.block, first.reason), (address, QuarantineReason::StateDamaged));
        assert_eq!((second.holder, second.reason), (Some((id, other)), QuarantineReason::PagesDamaged));
        assert!(second.to_string().contains("vSSD 1"), "{second}");
        assert!(matches!(rig.read(&mut pool, id, other), Err(SpaceError::Uncorrectable { .. })));
        assert!(matches!(rig.append(&mut pool, id, other), Err(SpaceError::AppendFailed { .. })));
        // Whatever is allocated, the damaged block is not erased.
        let erases = rig.device.erase_count(address);
        while rig.allocate(&mut pool, id, 0).is_ok() {}
        rig.settle(&mut pool);
        assert_eq!(rig.device.erase_count(address), erases);
        let held = pool.space(id, &mut rig.device, Time::ZERO).held_blocks();
        for block in held.iter().map(|held| held.block).filter(|held| *held != other) {
            pool.space(id, &mut rig.device, Time::ZERO).free(block).unwrap();
        }
    }
    // Freed by its holder, the block with unknown content is retired, not handed out.
    let mut pool = rig.open().unwrap();
    pool.space(id, &mut rig.device, Time::ZERO).free(other).unwrap();
    drop(pool);
    assert_eq!(rig.open().unwrap().core.blocks[other_number].use_of(), Use::Excluded);
}

/// Entries that hold for themselves but contradict each other; seen to panic in `Resources::take` before.
#[test]
fn entries_that_contradict_are_refused() {
    let unit =
        |die, soft_plane| UnitEntry { place: UnitPlace { die, soft_plane }, moves: false, lost_blocks: 0 };
    let entry = |id, isolation, units: &[UnitEntry]| {
        let units = units.to_vec();
        VssdEntry { id: VssdId(id), placed: true, isolation, read_only: false, units }
    };
    let cases: [(&str, Vec<VssdEntry>); 8] = [
        (
            "belongs to another",
            vec![entry(1, Isolation::Die, &[unit(0, None)]), entry(2, Isolation::Die, &[unit(0, None)])],
        ),
        (
            "belongs to another",
            vec![
                entry(1, Isolation::Software, &[unit(0, Some(1))]),
                entry(2, Isolation::None, &[unit(0, Some(1))]),
            ],
        ),
        (
            "belongs to another",
            vec![
                entry(1, Isolation::Software, &[unit(0, Some(1))]),
                entry(2, Isolation::Channel, &[unit(0, None)]),
            ],
        ),
        ("belongs to another", vec![entry(1, Isolation::Die, &[unit(0, None), unit(0, None)])]),
        ("does not exist", vec![entry(1, Isolation::Die, &[unit(4, None)])]),
        ("does not exist", vec![entry(1, Isolation::Software, &[unit(0, Some(2))])]),
        ("as its isolation says", vec![entry(1, Isolation::Die, &[unit(0, Some(0))])]),
        ("never given", vec![entry(u32::MAX, Isolation::Die, &[unit(0, None)])]),
    ];
    for (words, entries) in cases {
        let rig = Rig::new();
        let mut pool = rig.open().unwrap();
        for entry in &entries {
            pool.core.states.table_of_test().set_vssd(entry);
        }
        drop(pool);
        match rig.open() {
            Err(OpenError::Entry(text)) => assert!(text.contains(words), "{text}"),
            Err(error) => panic!("{words}: {error}"),
            Ok(_) => panic!("{words}: opened"),
        }
    }
}

#[test]
fn held_blocks_that_contradict_the_rest_are_refused() {
    let held = BlockEntry {
        lost_pages: false,
        state: BlockState::Held,
        owner: VssdId(1),
        logical: LogicalBlock { unit: UnitIndex(0), index: 3 },
        purpose: Purpose(0),
        erase_count: 1,
        sequence: 9,
    };
    let far = |unit, index| LogicalBlock { unit: UnitIndex(unit), index };
    let cases: [(&str, &[(u32, BlockEntry)]); 6] = [
        ("claims to be block 3", &[(20, held), (21, held)]),
        ("claims to be block 3 of unit 7", &[(20, BlockEntry { logical: far(7, 3), ..held })]),
        ("claims to be block 5000", &[(20, BlockEntry { logical: far(0, 5000), ..held })]),
        ("claims to be block 3", &[(100, held)]),
        ("count that cannot be", &[(20, BlockEntry { sequence: u64::MAX, ..held })]),
        ("system area", &[(0, held)]),
    ];
    for (words, entries) in cases {
        let rig = Rig::new();
        let mut pool = rig.open().unwrap();
        pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
        assert_eq!(pool.core.vssds[0].units[0].place.die, 0);
        let good = (0..4).find(|number| pool.core.blocks[*number].use_of() == Use::Excluded).unwrap();
        for (number, entry) in entries {
            let number = if *number == 0 { good } else { *number };
            pool.core.states.table_of_test().set_block(number, entry);
        }
        drop(pool);
        match rig.open() {
            Err(OpenError::Entry(text)) => assert!(text.contains(words), "{text}"),
            Err(error) => panic!("{words}: {error}"),
            Ok(_) => panic!("{words}: opened"),
        }
    }
}

/// Other numbers of catalog or state log blocks would give tenants' blocks to the catalog, or the other way round.
#[test]
fn another_division_of_dies_is_refused() {
    let mut rig = Rig::new();
    rig.open().unwrap().alloc_vssd(Isolation::Die, 0, 1).unwrap();
    let was = rig.config.clone();
    for config in [
        PoolConfig { catalog_blocks_per_die: 3, ..was.clone() },
        PoolConfig { state_log_blocks_per_die: 1, ..was.clone() },
        PoolConfig { spare_blocks_per_die: 4, ..was.clone() },
        PoolConfig { bad_block_reserve_permille: 50, ..was.clone() },
    ] {
        rig.config = config;
        assert!(matches!(rig.open(), Err(OpenError::Sizes { .. })));
    }
    rig.config = was;
    rig.open().unwrap();
}

/// The process dies after each store of a removal. What is left is either wholly the vSSD's or wholly nobody's, a
/// neighbour on the same die sees nothing of it, and the worn block is never handed out again.
fn removal_is_whole() -> Result<(), String> {
    for stores in 0.. {
        let mut rig = Rig::new();
        let mut pool = rig.open().unwrap();
        let ids: Vec<VssdId> = (0..2).map(|_| pool.alloc_vssd(Isolation::Software, 0, 1).unwrap()).collect();
        // The second vSSD of a die is placed on another die first; ask until both share one.
        let share = |pool: &Pool, id: VssdId| {
            pool.core.vssds.iter().find(|vssd| vssd.id == id).unwrap().units[0].place.die
        };
        let (mut neighbour, mut all) = (ids[1], ids.clone());
        while share(&pool, neighbour) != share(&pool, ids[0]) {
            neighbour = pool.alloc_vssd(Isolation::Software, 0, 1).unwrap();
            all.push(neighbour);
        }
        let mut blocks = Vec::new();
        for _ in 0..3 {
            blocks.push(rig.allocate(&mut pool, ids[0], 0).unwrap());
            rig.append(&mut pool, ids[0], *blocks.last().unwrap()).unwrap();
        }
        let worn = number_of(&pool, ids[0], blocks[1]);
        let die = rig.device.geometry().die_at(share(&pool, ids[0]));
        let faulty = FaultyDie { channel: die.channel.0, die: die.die.0 };
        rig.device.add_fault(Fault::Fail { die: faulty, kind: OperationKind::Program, nth: 3 });
        assert!(rig.append(&mut pool, ids[0], blocks[1]).is_err());
        pool.core.states.table_of_test().stores_left = Some(stores);
        pool.dealloc_vssd(ids[0]).unwrap();
        let finished = pool.core.states.table_of_test().stores_left != Some(0);
        drop(pool);
        for _ in 0..2 {
            let mut pool = rig.open().map_err(|error| format!("after {stores} stores: {error}"))?;
            pool.check_invariants();
            let exists = pool.vssd_ids().any(|id| id == ids[0]);
            assert_eq!(exists, stores == 0);
            for id in pool.vssd_ids().collect::<Vec<_>>() {
                let held = pool.space(id, &mut rig.device, Time::ZERO).held_blocks().len();
                if held != if id == ids[0] { 3 } else { 0 } {
                    return Err(format!("after {stores} stores vSSD {} holds {held} blocks", id.0));
                }
            }
            let expected = if exists { Use::Held } else { Use::Excluded };
            if pool.core.blocks[worn].use_of() != expected {
                return Err(format!("after {stores} stores the worn block is not kept away"));
            }
        }
        if finished {
            return Ok(());
        }
    }
    unreachable!()
}

#[test]
fn a_removal_cut_short_leaves_nothing_to_others() {
    removal_is_whole().unwrap();
    plant_mutant(Some("vssd: owner not checked"));
    let found = removal_is_whole();
    plant_mutant(None);
    assert!(found.is_err(), "the planted bug is seen");
}
