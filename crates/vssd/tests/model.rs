//! Random work on several vSSDs of a small medium that enforces the flash rules, against an oracle that knows what
//! every page must hold. Planting a bug (no erase at allocation, reads passed to unwritten pages) fails it.

use diecut_media::*;
use diecut_spec::Isolation;
use diecut_testing::Random;
use diecut_units::*;
use diecut_vssd::*;
use std::collections::{BTreeMap, VecDeque};

/// NAND in memory: rules are asserted, commands complete in order when time is given.
struct Medium {
    geometry: Geometry,
    capabilities: Capabilities,
    pages: BTreeMap<(EraseBlockAddress, u32), (Vec<u8>, Vec<u8>)>,
    next_page: BTreeMap<EraseBlockAddress, u32>,
    queue: VecDeque<Command>,
    programs: u64,
    fail_program: u64,
    bad: Vec<EraseBlockAddress>,
}

impl Medium {
    fn new() -> Medium {
        let geometry = Geometry {
            channels: 2,
            dies_per_channel: 2,
            planes_per_die: 1,
            blocks_per_plane: 24,
            pages_per_block: 4,
            page_size_bytes: 4096,
            oob_size_bytes: 64,
        };
        let capabilities = Capabilities {
            program_unit_pages: 1,
            unsafe_units: 0,
            volatile_cache: false,
            independent_units: true,
            copy_within_die: true,
            suspends: false,
            slc_blocks_per_die: 0,
            content_mode: ContentMode::Bytes,
            endurance_cycles: 0,
            die_times: None,
        };
        Medium {
            geometry,
            capabilities,
            pages: BTreeMap::new(),
            next_page: BTreeMap::new(),
            queue: VecDeque::new(),
            programs: 0,
            fail_program: u64::MAX,
            bad: vec![EraseBlockAddress::new(1, 1, 5)],
        }
    }
    fn execute(&mut self, command: Command) -> Completion {
        let (mut result, mut kept, mut kept_oob) = (Ok(()), None, None);
        match command.operation {
            Operation::Erase { block } => {
                self.next_page.insert(block, 0);
                self.pages.retain(|(of, _), _| *of != block);
            }
            Operation::Program { block, first_page, parts, oob } => {
                let next = self.next_page.get_mut(&block).expect("programmed without an erase");
                assert_eq!(*next, first_page, "out of order");
                *next += 1;
                self.programs += 1;
                if self.programs == self.fail_program {
                    result = Err(MediaError::ProgramFailed { block, page: first_page });
                } else {
                    self.pages.insert((block, first_page), (parts[0].bytes().to_vec(), oob.to_vec()));
                }
            }
            Operation::Read { block, first_iu, mut destination, oob, .. } => {
                match self.pages.get(&(block, first_iu)) {
                    Some((bytes, _)) => destination.copy_from_slice(bytes),
                    None => result = Err(MediaError::Erased { block, page: first_iu }),
                }
                (kept, kept_oob) = (Some(destination), oob);
            }
            Operation::Copy { source, source_page, destination, destination_page, page_count, oob } => {
                assert_eq!(page_count, 1, "one program unit was asked for");
                let content =
                    self.pages.get(&(source, source_page)).expect("what is copied was programmed").0.clone();
                let next = self.next_page.get_mut(&destination).expect("programmed without an erase");
                assert_eq!((*next, source.die_address()), (destination_page, destination.die_address()));
                *next += 1;
                self.programs += 1;
                if self.programs == self.fail_program {
                    result = Err(MediaError::ProgramFailed { block: destination, page: destination_page });
                } else {
                    let oob = oob.expect("a copy for a holder has OOB of its own").to_vec();
                    self.pages.insert((destination, destination_page), (content, oob));
                }
            }
            other => panic!("unexpected {other:?}"),
        }
        Completion { token: command.token, result, destination: kept, oob: kept_oob, retries: 0 }
    }
}

impl Media for Medium {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn is_factory_bad(&self, block: EraseBlockAddress) -> bool {
        self.bad.contains(&block)
    }
    fn protected_memory(&self) -> Option<ProtectedMemory> {
        None
    }
    fn submit(&mut self, command: Command, _now: Time) {
        assert!(!self.bad.contains(&command.operation.block()), "a bad block was touched");
        self.queue.push_back(command);
    }
    fn advance(&mut self, _now: Time, completions: &mut Vec<Completion>) {
        if let Some(command) = self.queue.pop_front() {
            let completion = self.execute(command);
            completions.push(completion);
        }
    }
    fn next_event(&self) -> Time {
        if self.queue.is_empty() { Time::NEVER } else { Time::ZERO }
    }
}

type Answers = Vec<(VssdId, SpaceCompletion)>;

fn run(pool: &mut Pool, medium: &mut Medium, steps: u32, answers: &mut Answers) {
    let mut completions = Vec::new();
    for _ in 0..steps {
        medium.advance(Time::ZERO, &mut completions);
        for completion in completions.drain(..) {
            pool.complete(completion, Time::ZERO, medium, answers);
        }
    }
    pool.take_ready(answers);
}

fn append(pool: &mut Pool, medium: &mut Medium, id: VssdId, token: u64, block: LogicalBlock, stamp: u64) {
    let payload = Payload::new(ContentMode::Bytes, Buffer::copy_from(&stamp.to_le_bytes().repeat(512)));
    let oob = BufferMut::copy_from(&[0; 64]);
    let mut space = pool.space(id, medium, Time::ZERO);
    space.append(SpaceToken(token), block, [payload].into_iter().collect(), oob, IoClass::HostWrite);
}

/// Says whether the die copies a page.
fn copy(
    pool: &mut Pool,
    medium: &mut Medium,
    id: VssdId,
    token: u64,
    source: (LogicalBlock, u32),
    block: LogicalBlock,
) -> bool {
    let oob = BufferMut::copy_from(&[0; 64]);
    let source = BlockPages { block: source.0, first_page: source.1 };
    let mut space = pool.space(id, medium, Time::ZERO);
    space.append_copy(SpaceToken(token), source, block, oob, IoClass::HostWrite).is_ok()
}

fn read(pool: &mut Pool, medium: &mut Medium, id: VssdId, token: u64, block: LogicalBlock, page: u32) {
    let destination = BufferMut::copy_from(&[0; 4096]);
    let mut space = pool.space(id, medium, Time::ZERO);
    space.read(
        SpaceToken(token),
        BlockRun { block, first_iu: page, iu_count: 1 },
        destination,
        None,
        IoClass::HostRead,
    );
}

#[test]
fn every_page_holds_what_its_tenant_wrote_and_nothing_else() {
    for seed in 0..20 {
        let mut random = Random::of(seed);
        let mut medium = Medium::new();
        medium.fail_program = 500 + seed;
        let mut pool = Pool::create(&medium, PoolConfig::default());
        let mut answers = Vec::new();
        let mut vssds: Vec<VssdId> = Vec::new();
        let mut oracle: BTreeMap<(VssdId, LogicalBlock), Vec<u64>> = BTreeMap::new();
        // What a read must give: a stamp, or nothing because the page was never written.
        let mut expected: BTreeMap<u64, Option<u64>> = BTreeMap::new();
        let mut appended: BTreeMap<u64, (VssdId, LogicalBlock)> = BTreeMap::new();
        let (mut token, mut failures, mut checked, mut copies) = (0, 0, 0, 0);
        for _ in 0..4000 {
            token += 1;
            let choice = random.below(100);
            if vssds.len() < 2 || (choice == 0 && vssds.len() < 4) {
                let isolation = [Isolation::Channel, Isolation::Die, Isolation::Software, Isolation::None];
                let isolation = isolation[random.below(4) as usize];
                vssds.extend(pool.alloc_vssd(isolation, 0, 1));
            } else if choice == 1 {
                run(&mut pool, &mut medium, 10_000, &mut answers);
                let id = vssds.swap_remove(random.below(vssds.len() as u64) as usize);
                pool.dealloc_vssd(id).unwrap();
                assert_eq!(pool.dealloc_vssd(id), Err(DeallocError::AlreadyFree(id.0)));
                oracle.retain(|(owner, _), _| *owner != id);
            } else {
                let id = vssds[random.below(vssds.len() as u64) as usize];
                let held: Vec<LogicalBlock> =
                    oracle.keys().filter(|(owner, _)| *owner == id).map(|(_, block)| *block).collect();
                if held.is_empty() || choice < 15 {
                    let mut space = pool.space(id, &mut medium, Time::ZERO);
                    let unit = UnitIndex(random.below(space.unit_count().into()) as u16);
                    let free = space.free_blocks(unit);
                    match space.allocate(unit, Purpose(1)) {
                        Ok(block) => assert!(oracle.insert((id, block), Vec::new()).is_none()),
                        Err(SpaceError::ReadOnly | SpaceError::NoFreeBlock { .. }) => assert_eq!(free, 0),
                        Err(error) => panic!("seed {seed}: {error}"),
                    }
                    continue;
                }
                let block = held[random.below(held.len() as u64) as usize];
                let other = held[random.below(held.len() as u64) as usize];
                let page = random.below(4) as usize;
                let of_other = oracle[&(id, other)].get(page).copied().filter(|_| other.unit == block.unit);
                let pages = oracle.get_mut(&(id, block)).unwrap();
                if choice < 40
                    && pages.len() < 4
                    && let Some(stamp) = of_other
                    && copy(&mut pool, &mut medium, id, token, (other, page as u32), block)
                {
                    pages.push(stamp);
                    appended.insert(token, (id, block));
                    copies += 1;
                } else if choice < 50 && pages.len() < 4 {
                    let stamp = random.next();
                    pages.push(stamp);
                    appended.insert(token, (id, block));
                    append(&mut pool, &mut medium, id, token, block, stamp);
                } else if choice < 60 {
                    oracle.remove(&(id, block));
                    let mut space = pool.space(id, &mut medium, Time::ZERO);
                    space.free(block).unwrap();
                    assert!(matches!(space.free(block), Err(SpaceError::NotAllocated { .. })));
                } else {
                    let page = random.below(4) as u32;
                    expected.insert(token, pages.get(page as usize).copied());
                    read(&mut pool, &mut medium, id, token, block, page);
                }
            }
            run(&mut pool, &mut medium, random.below(4) as u32, &mut answers);
            for (owner, answer) in answers.drain(..) {
                if let Some((id, block)) = appended.remove(&answer.token.0) {
                    assert_eq!(id, owner);
                    if answer.result.is_err() {
                        failures += 1;
                        if oracle.remove(&(id, block)).is_some() {
                            pool.space(id, &mut medium, Time::ZERO).free(block).unwrap();
                        }
                    }
                } else {
                    let stamp = expected.remove(&answer.token.0).expect("a read, answered once");
                    match (stamp, answer.result) {
                        (Some(stamp), Ok(())) => {
                            let bytes = answer.destination.expect("reads give content");
                            assert_eq!(bytes[..], stamp.to_le_bytes().repeat(512)[..], "seed {seed}");
                            checked += 1;
                        }
                        (None, Err(SpaceError::Erased { .. }))
                        | (_, Err(SpaceError::Uncorrectable { .. })) => {}
                        (stamp, result) => panic!("seed {seed}: {stamp:?} answered {result:?}"),
                    }
                }
            }
            pool.check_invariants();
        }
        run(&mut pool, &mut medium, 10_000, &mut answers);
        assert!(checked > 300, "seed {seed}: {checked} reads checked");
        assert!(copies > 100, "seed {seed}: {copies} pages were copied by dies");
        assert!(failures > 0, "seed {seed}: the planned program failure was met");
        assert!(medium.queue.is_empty());
    }
}

#[test]
fn a_read_overtakes_the_writes_that_wait_only_where_isolated() {
    // Eight appends wait at a die; a read of a full block comes last. Isolated, its class is served first; without
    // isolation it waits its turn.
    let position = |isolation| {
        let mut medium = Medium::new();
        let mut pool = Pool::create(&medium, PoolConfig::default());
        let mut answers = Vec::new();
        let id = pool.alloc_vssd(isolation, 0, 1).unwrap();
        let mut blocks = Vec::new();
        for _ in 0..3 {
            let mut space = pool.space(id, &mut medium, Time::ZERO);
            blocks.push(space.allocate(UnitIndex(0), Purpose(0)).unwrap());
        }
        append(&mut pool, &mut medium, id, 1, blocks[0], 1);
        run(&mut pool, &mut medium, 1000, &mut answers);
        answers.clear();
        for at in 0..8 {
            append(&mut pool, &mut medium, id, 10 + at, blocks[1 + at as usize / 4], at);
        }
        read(&mut pool, &mut medium, id, 99, blocks[0], 0);
        run(&mut pool, &mut medium, 1000, &mut answers);
        assert_eq!(answers.len(), 9);
        answers.iter().position(|(_, answer)| answer.token.0 == 99).unwrap()
    };
    assert!(position(Isolation::Software) <= 2);
    assert!(position(Isolation::None) >= 6);
}

#[test]
fn erases_stay_even_inside_a_die() {
    let mut medium = Medium::new();
    let mut pool = Pool::create(&medium, PoolConfig::default());
    let mut answers = Vec::new();
    let id = pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
    for _ in 0..190 {
        let block = pool.space(id, &mut medium, Time::ZERO).allocate(UnitIndex(0), Purpose(0)).unwrap();
        run(&mut pool, &mut medium, 10, &mut answers);
        append(&mut pool, &mut medium, id, 0, block, 5);
        run(&mut pool, &mut medium, 10, &mut answers);
        pool.space(id, &mut medium, Time::ZERO).free(block).unwrap();
    }
    let mut counts = BTreeMap::new();
    for ((block, _), (_, oob)) in &medium.pages {
        counts.insert(*block, OobRecord::decode(oob).unwrap().erase_count);
    }
    // 24 blocks less 4 of the system area take turns.
    assert_eq!(counts.len(), 20);
    let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
    assert!(most - least <= 1, "{counts:?}");
}

#[test]
fn software_isolated_neighbours_get_shares_by_weight() {
    // Two vSSDs on one die, weights 300 and 100, both with many reads waiting: of any stretch served while both
    // compete, three quarters go to the first, although the second asked earlier.
    let mut medium = Medium::new();
    let mut config = PoolConfig { soft_planes_per_die: 2, ..PoolConfig::default() };
    config.levels = LevelTable::proportional(1, 2, 2);
    let mut pool = Pool::create(&medium, config);
    let mut answers = Vec::new();
    let all: Vec<VssdId> = (0..2).map(|_| pool.alloc_vssd(Isolation::Software, 0, 1).unwrap()).collect();
    pool.set_share(all[0], Share { weight: 300, ..Share::default() }, Time::ZERO);
    let mut blocks = Vec::new();
    for &id in &all {
        let block = pool.space(id, &mut medium, Time::ZERO).allocate(UnitIndex(0), Purpose(0)).unwrap();
        append(&mut pool, &mut medium, id, 1, block, 1);
        run(&mut pool, &mut medium, 100, &mut answers);
        blocks.push(block);
    }
    answers.clear();
    for at in [1, 0] {
        for _ in 0..200 {
            read(&mut pool, &mut medium, all[at], 2, blocks[at], 0);
        }
    }
    run(&mut pool, &mut medium, 160, &mut answers);
    let first = answers.iter().filter(|(id, _)| *id == all[0]).count();
    assert!((114..=122).contains(&first), "{first} of {}", answers.len());
    run(&mut pool, &mut medium, 1000, &mut answers);
    assert_eq!(answers.len(), 400, "nothing is dropped");
}

#[test]
fn a_full_queue_parks_what_comes_and_loses_nothing() {
    // Two neighbours on a die whose queue has 8 places, 4 for each. The first floods it with reads and appends.
    let mut medium = Medium::new();
    let mut config = PoolConfig { soft_planes_per_die: 2, die_queue_depth: 8, ..PoolConfig::default() };
    config.levels = LevelTable::proportional(1, 2, 2);
    let mut pool = Pool::create(&medium, config);
    let mut answers = Vec::new();
    let all: Vec<VssdId> = (0..2).map(|_| pool.alloc_vssd(Isolation::Software, 0, 1).unwrap()).collect();
    let mut blocks = Vec::new();
    for &id in &all {
        for _ in 0..3 {
            let block = pool.space(id, &mut medium, Time::ZERO).allocate(UnitIndex(0), Purpose(0)).unwrap();
            blocks.push(block);
        }
        append(&mut pool, &mut medium, id, 1, blocks[blocks.len() - 3], 1);
        run(&mut pool, &mut medium, 100, &mut answers);
    }
    answers.clear();
    let mut changes = Vec::new();
    for at in 0..50 {
        read(&mut pool, &mut medium, all[0], 100 + at, blocks[0], 0);
        if at < 8 {
            append(&mut pool, &mut medium, all[0], 200 + at, blocks[1 + at as usize / 4], at);
        }
        assert!(pool.die_queue(0).0 <= 4, "the flood has its own places and no more");
    }
    assert!(pool.die_queue(0).1 > 40 && !pool.has_room(all[0]) && pool.has_room(all[1]));
    pool.take_room_changes(&mut changes);
    assert_eq!(changes, [all[0]]);
    changes.clear();
    // The neighbour finds its places empty and is served among the first.
    read(&mut pool, &mut medium, all[1], 300, blocks[3], 0);
    assert!(pool.has_room(all[1]));
    let mut most = pool.die_queue(0).0;
    for _ in 0..200 {
        run(&mut pool, &mut medium, 1, &mut answers);
        most = most.max(pool.die_queue(0).0);
        pool.check_invariants();
    }
    assert_eq!(most, 5);
    let order: Vec<u64> = answers.iter().map(|(_, answer)| answer.token.0).collect();
    assert_eq!(order.len(), 59, "every operation is answered");
    assert!(order.iter().position(|token| *token == 300).unwrap() < 12, "{order:?}");
    assert!(answers.iter().all(|(_, answer)| answer.result.is_ok()));
    for kind in [100..200, 200..300] {
        let own: Vec<u64> = order.iter().copied().filter(|token| kind.contains(token)).collect();
        assert!(own.is_sorted(), "{own:?}");
    }
    pool.take_room_changes(&mut changes);
    assert!(changes == [all[0]] && pool.has_room(all[0]) && pool.die_queue(0) == (0, 0));
}
