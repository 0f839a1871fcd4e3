//! The process dies between any two stores of an exchange: what was held is where it is said to be, with its content, and the
//! exchange goes on to its end.

use crate::states::table::DIED;
use crate::*;
use diecut_emulator::{Device, Fault, FaultyDie, OperationKind, Options, Pacing, Profile};
use diecut_media::{Capabilities, Command, Completion, Media};
use diecut_spec::Isolation;
use diecut_units::marks::{plant_mutant, take_hits};
use diecut_units::*;

/// A device that a dead process asks nothing more of.
struct Mortal(Device);

impl Media for Mortal {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }
    fn is_factory_bad(&self, block: EraseBlockAddress) -> bool {
        self.0.is_factory_bad(block)
    }
    fn protected_memory(&self) -> Option<ProtectedMemory> {
        self.0.protected_memory()
    }
    fn submit(&mut self, command: Command, now: Time) {
        if !DIED.get() {
            self.0.submit(command, now);
        }
    }
    fn advance(&mut self, now: Time, completions: &mut Vec<Completion>) {
        self.0.advance(now, completions);
    }
    fn next_event(&self) -> Time {
        self.0.next_event()
    }
}

struct Rig {
    device: Mortal,
    memory: ProtectedMemory,
    config: PoolConfig,
    now: Time,
    answers: Vec<(VssdId, SpaceCompletion)>,
}

impl Rig {
    fn new() -> Rig {
        let profile = Profile::named("tiny").unwrap();
        let options = Options { pacing: Pacing::Unpaced, seed: 3, ..Options::default() };
        let device = Mortal(Device::create(&profile, options).unwrap());
        let wear = WearConfig { rate_bytes_per_second: 0, ..WearConfig::default() };
        let config = PoolConfig { wear, ..PoolConfig::suited_to(device.geometry()) };
        let memory = ProtectedMemory::in_memory(Pool::block_states_size_bytes(device.geometry(), &config));
        Rig { device, memory, config, now: Time::ZERO, answers: Vec::new() }
    }
    fn open(&self) -> Result<Pool, OpenError> {
        Pool::open(&self.device, self.config.clone(), self.memory.region(0..self.memory.size_bytes()))
    }
    /// Until nothing goes on, or the process died.
    fn run(&mut self, pool: &mut Pool) {
        let mut completions = Vec::new();
        for _ in 0..10_000 {
            pool.work(self.now, &mut self.device);
            self.device.advance(self.now, &mut completions);
            for completion in completions.drain(..) {
                if !DIED.get() {
                    pool.complete(completion, self.now, &mut self.device, &mut self.answers);
                }
            }
            pool.take_ready(&mut self.answers);
            let idle = self.device.next_event() == Time::NEVER;
            let moves = pool.is_migrating() && pool.wear.migration.is_started || pool.deadline() <= self.now;
            if DIED.get() || idle && !moves {
                return;
            }
            self.now += Span::from_millis(1);
        }
        panic!("it comes to no end: {:?}", pool.migration_status());
    }
    fn write(
        &mut self,
        pool: &mut Pool,
        id: VssdId,
        unit: UnitIndex,
        content: u8,
        units: u32,
    ) -> LogicalBlock {
        let mut space = pool.space(id, &mut self.device, self.now);
        let block = space.allocate(unit, Purpose(1)).unwrap();
        (0..units).for_each(|_| self.append(pool, id, block, content));
        self.run(pool);
        assert!(self.answers.drain(..).all(|(_, answer)| answer.result.is_ok()));
        block
    }
    /// Hands over one program unit.
    fn append(&mut self, pool: &mut Pool, id: VssdId, block: LogicalBlock, content: u8) {
        let mut space = pool.space(id, &mut self.device, self.now);
        let shape = *space.shape();
        let bytes = vec![content; shape.program_unit_ius() as usize * 4096];
        let parts = [Payload::new(ContentMode::Bytes, Buffer::copy_from(&bytes))].into_iter().collect();
        let oob = BufferMut::copy_from(&vec![0; shape.program_unit_oob_size_bytes() as usize]);
        space.append(SpaceToken(1), block, parts, oob, IoClass::HostWrite);
    }
    fn reads(&mut self, pool: &mut Pool, id: VssdId, block: LogicalBlock, iu: u32) -> Result<u8, SpaceError> {
        let mut space = pool.space(id, &mut self.device, self.now);
        space.read(
            SpaceToken(2),
            BlockRun { block, first_iu: iu, iu_count: 1 },
            BufferMut::copy_from(&[0; 4096]),
            None,
            IoClass::HostRead,
        );
        self.run(pool);
        let (_, answer) = self.answers.pop().expect("one read, one answer");
        answer.result.map(|()| answer.destination.expect("reads give content")[9])
    }

    /// The first and the last IU of each block that is held: whose, which, its content and its program units.
    fn read_all(&mut self, pool: &mut Pool, held: &[(VssdId, LogicalBlock, u8, u32)]) -> Result<(), String> {
        for &(id, block, content, units) in held {
            for iu in [0, units * pool.shape().program_unit_ius() - 1] {
                match self.reads(pool, id, block, iu) {
                    Ok(found) if found == content => {}
                    other => return Err(format!("{content} reads {other:?}")),
                }
            }
        }
        Ok(())
    }
}

/// Dies after each store in turn while two dies, or those of two channels, are exchanged; says how many stores there are.
fn exchange_is_whole(isolation: Isolation) -> Result<u32, String> {
    for stores in 0..10_000 {
        DIED.set(false);
        let mut rig = Rig::new();
        let mut pool = rig.open().unwrap();
        pool.begin_migration();
        let ids = [0, 1].map(|_| pool.alloc_vssd(isolation, 0, 1).unwrap());
        let per_vssd = pool.core.vssds[0].units.len();
        let units = pool.shape().program_units();
        let mut held = Vec::new();
        // Full blocks, open ones, and more on one side than on the other.
        for (id, content, units) in
            [(0, 1, units), (0, 2, 1), (0, 3, units), (1, 4, units), (1, 5, 2), (0, 6, units)]
        {
            let unit = UnitIndex((content as usize % per_vssd) as u16);
            held.push((ids[id], rig.write(&mut pool, ids[id], unit, content, units), content, units));
        }
        let dies_of = |pool: &Pool, at: usize| -> Vec<u32> {
            pool.core.vssds[at].units.iter().map(|unit| unit.place.die).collect()
        };
        let dies = [0, 1].map(|at| dies_of(&pool, at));
        for (&one, &other) in dies[0].iter().zip(&dies[1]) {
            pool.exchange_dies(one, other).unwrap();
        }
        pool.core.states.table_of_test().stores_left = Some(stores);
        rig.run(&mut pool);
        let finished = !DIED.get();
        drop(pool);
        // What it asked for is done, and nobody hears of it.
        rig.device.0.process_death(rig.now);
        DIED.set(false);
        let fails = |what: String| Err(format!("after {stores} stores: {what}"));
        for opening in 0..2 {
            let mut pool = match rig.open() {
                Ok(pool) => pool,
                Err(error) => return fails(error.to_string()),
            };
            pool.check_invariants();
            for goes_on in [false, true] {
                if goes_on {
                    pool.begin_migration();
                    assert!(!pool.is_migrating() || pool.deadline() <= rig.now, "it goes on by itself");
                    rig.run(&mut pool);
                    pool.check_invariants();
                }
                if let Err(what) = rig.read_all(&mut pool, &held) {
                    return fails(format!("opening {opening}: {what}"));
                }
            }
            let count: usize =
                (ids.iter()).map(|&id| pool.space(id, &mut rig.device, rig.now).held_blocks().len()).sum();
            let now = [0, 1].map(|at| dies_of(&pool, at));
            // Of a channel whose first die was begun the rest follows.
            let begun = if stores == 0 { &dies } else { &[dies[1].clone(), dies[0].clone()] };
            if count != held.len() || now != *begun {
                return fails(format!("{count} blocks are held, on dies {now:?}"));
            }
        }
        if finished {
            return Ok(stores);
        }
    }
    unreachable!("an exchange has fewer stores")
}

#[test]
fn a_death_between_two_stores_of_an_exchange_loses_nothing() {
    for (isolation, least) in [(Isolation::Die, 40), (Isolation::Channel, 50)] {
        let stores = exchange_is_whole(isolation).unwrap();
        assert!(stores > least, "{stores} stores are no exchange of six blocks");
        let hits = take_hits();
        for mark in ["vssd: pair of an exchange repeated", "vssd: end of an exchange repeated"] {
            assert!(hits.contains_key(mark), "{isolation:?}, {mark}: {hits:?}");
        }
        for bug in ["vssd: pair changed without a record", "vssd: exchange finished in part"] {
            plant_mutant(Some(bug));
            let found = std::panic::catch_unwind(|| exchange_is_whole(isolation));
            plant_mutant(None);
            assert!(!matches!(found, Ok(Ok(_))), "{bug} is not seen");
        }
    }
}

/// Dies after each store in turn while cold blocks move inside a die; says how many stores there are.
fn inside_is_whole() -> Result<u32, String> {
    for stores in 0..10_000 {
        DIED.set(false);
        let mut rig = Rig::new();
        rig.config.wear.follow_age = false;
        let mut pool = rig.open().unwrap();
        let id = pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
        let units = pool.shape().program_units();
        let held: Vec<_> = [(1, units), (2, 1), (3, units)]
            .into_iter()
            .map(|(content, units)| {
                (id, rig.write(&mut pool, id, UnitIndex(0), content, units), content, units)
            })
            .collect();
        // Everything else is erased three times.
        for _ in 0..3 * pool.core.geometry.erase_blocks_per_die() {
            let block = rig.write(&mut pool, id, UnitIndex(0), 9, 1);
            pool.space(id, &mut rig.device, rig.now).free(block).unwrap();
        }
        // Enough for a block inside the die, not for the die.
        let die_threshold_erases = 5 * u64::from(pool.core.geometry.erase_blocks_per_die());
        rig.config.wear.channel_threshold_erases = 0;
        rig.config.wear.die_threshold_erases = die_threshold_erases;
        pool.set_wear(rig.config.wear);
        pool.begin_migration();
        pool.core.states.table_of_test().stores_left = Some(stores);
        rig.run(&mut pool);
        let finished = !DIED.get();
        if finished && pool.wear.migration.moved_blocks != 2 {
            return Err(format!("{} full blocks moved", pool.wear.migration.moved_blocks));
        }
        drop(pool);
        rig.device.0.process_death(rig.now);
        DIED.set(false);
        let fails = |what: String| Err(format!("after {stores} stores: {what}"));
        for opening in 0..2 {
            let mut pool = match rig.open() {
                Ok(pool) => pool,
                Err(error) => return fails(error.to_string()),
            };
            pool.check_invariants();
            assert!(!pool.is_migrating(), "nothing is left of a block that moves inside a die");
            if let Err(what) = rig.read_all(&mut pool, &held) {
                return fails(format!("opening {opening}: {what}"));
            }
            if pool.space(id, &mut rig.device, rig.now).held_blocks().len() != held.len() {
                return fails("blocks are held that were not".to_owned());
            }
        }
        if finished {
            return Ok(stores);
        }
    }
    unreachable!("two blocks have fewer stores")
}

#[test]
fn a_death_between_two_stores_of_a_move_inside_a_die_loses_nothing() {
    let stores = inside_is_whole().unwrap();
    assert!(stores > 15, "{stores} stores are no move of two blocks");
    let hits = take_hits();
    for mark in ["vssd: pair of an exchange repeated", "vssd: cold block moves inside its die"] {
        assert!(hits.contains_key(mark), "{mark}: {hits:?}");
    }
    plant_mutant(Some("vssd: pair changed without a record"));
    let found = std::panic::catch_unwind(inside_is_whole);
    plant_mutant(None);
    assert!(!matches!(found, Ok(Ok(_))), "a move without a record is not seen");
}

/// Goal: what waits for a move is answered once, and nothing of it stays behind. Method: a program of a block fails while its move waits for
/// it and a later append waits for the move; the block moves, and moves back.
#[test]
fn appends_that_wait_for_a_move_fail_with_the_program_before_them() {
    let mut rig = Rig::new();
    // The place that it left is retired; its die still takes part.
    rig.config.bad_block_reserve_permille = 200;
    let mut pool = rig.open().unwrap();
    pool.begin_migration();
    let ids = [0, 1].map(|_| pool.alloc_vssd(Isolation::Die, 0, 1).unwrap());
    let dies = [0, 1].map(|at| pool.core.vssds[at].units[0].place.die);
    let block = rig.write(&mut pool, ids[0], UnitIndex(0), 7, 2);
    let (geometry, statistics) = (*rig.device.geometry(), rig.device.0.die_statistics(dies[0]));
    let (place, nth) = (geometry.die_at(dies[0]), statistics.program_units);
    let die = FaultyDie { channel: place.channel.0, die: place.die.0 };
    rig.device.0.add_fault(Fault::Fail { die, kind: OperationKind::Program, nth });
    rig.append(&mut pool, ids[0], block, 8);
    pool.exchange_dies(dies[0], dies[1]).unwrap();
    pool.work(rig.now, &mut rig.device);
    rig.append(&mut pool, ids[0], block, 9);
    assert!(rig.answers.is_empty() && pool.is_moving(), "one append is at the die, the other one waits");
    for home in [dies[1], dies[0]] {
        rig.run(&mut pool);
        assert!(!pool.is_migrating(), "the exchange came to its end");
        let number = pool.place_of_block(ids[0], block).unwrap();
        assert_eq!(pool.core.die_of(number) as u32, home);
        let found = &pool.core.blocks[number];
        assert_eq!((found.appends, found.held_appends(), found.in_flight), (0, 0, 0));
        let answers: Vec<bool> = rig.answers.drain(..).map(|(_, answer)| answer.result.is_ok()).collect();
        assert_eq!(answers, if home == dies[1] { vec![false; 2] } else { Vec::new() });
        assert_eq!(rig.reads(&mut pool, ids[0], block, 0), Ok(7), "what was programmed before stays");
        pool.check_invariants();
        if home == dies[1] {
            pool.exchange_dies(dies[0], dies[1]).unwrap();
        }
    }
}
