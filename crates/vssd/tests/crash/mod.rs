//! Power cuts and deaths of the process over an emulated device: at every operation of a short trace, at random ones of
//! long traces. After each the pool is opened anew and compared with an oracle: no block is held twice, nothing held is
//! lost, erase counts never go back, a block is erased only after its free is durable, and nobody touches a
//! neighbour's blocks. Bugs planted on purpose must be caught.

mod oracle;
mod watched;

use diecut_emulator::*;
use diecut_media::Media;
use diecut_spec::Isolation;
use diecut_testing::Random;
use diecut_testing::tapped::Tapped;
use diecut_units::marks::plant_mutant;
use diecut_units::*;
use diecut_vssd::*;
use oracle::{Allocation, Fate, Oracle};
use std::collections::BTreeMap;
use watched::Watched;

/// So few erase blocks that a freed one is used again soon.
const BLOCKS_PER_PLANE: u32 = 12;
const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
enum Step {
    Allocate,
    Append,
    Free,
    Sync,
    Run(u32),
    /// Exchanges what two dies hold, if they can be.
    Exchange,
    /// Removes a vSSD and makes another in its place.
    Replace,
}

/// When something goes, counted in operations of the device since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    Power(u64),
    Death(u64),
}

enum Waits {
    Append(u64),
    /// What was held and freed when it was asked for.
    Sync(Vec<(u64, Fate)>),
    /// Allocation, unit, and whether it failed before: reads are made to fail now and then, once.
    Read(u64, u32, bool),
}

struct World {
    media: Tapped<Watched>,
    pool: Option<Pool>,
    config: PoolConfig,
    now: Time,
    oracle: Oracle,
    waits: BTreeMap<u64, Waits>,
    next_token: u64,
    random: Random,
    die_at: u64,
    crashes: u32,
    replaced: u32,
    exchanges: bool,
    finished: u64,
    moved: u64,
    /// vSSDs that were made or removed just now.
    unsure: Vec<VssdId>,
}

fn stamp(sequence: u64, unit: u32, iu: u32) -> u64 {
    (sequence << 32 | u64::from(unit) << 16 | u64::from(iu)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

type Found = Result<(), String>;

impl World {
    fn new(seed: u64, protected: bool) -> World {
        World::made(seed, protected, None).unwrap()
    }

    /// A new pool with three vSSDs; the power may go meanwhile.
    fn made(seed: u64, protected: bool, cut: Option<u64>) -> Result<World, String> {
        let mut profile = Profile::named("tiny").unwrap();
        profile.geometry.blocks_per_plane = BLOCKS_PER_PLANE;
        profile.bad_blocks.factory_percent = 0.0;
        if !protected {
            profile.protected_memory_bytes = 0;
            // The journal takes two blocks of each die.
            profile.geometry.blocks_per_plane += 2;
        }
        let device = Device::create(&profile, Options { seed, ..Options::default() }).unwrap();
        let levels = PoolConfig::levels_of(device.geometry(), 2);
        // Nothing waits for a rate: time passes with the device.
        let wear = WearConfig { rate_bytes_per_second: 0, ..WearConfig::default() };
        let config = PoolConfig { soft_planes_per_die: 2, levels, wear, ..PoolConfig::default() };
        let mut world = World {
            media: Tapped::new(device, Watched::default()),
            pool: None,
            config,
            now: Time::ZERO,
            oracle: Oracle::default(),
            waits: BTreeMap::new(),
            next_token: 0,
            random: Random::of(seed),
            die_at: NEVER,
            crashes: 0,
            replaced: 0,
            exchanges: false,
            finished: 0,
            moved: 0,
            unsure: Vec::new(),
        };
        if let Some(nth) = cut {
            world.crash_at(Crash::Power(nth));
        }
        world.open()?;
        world.oracle.pages_per_unit = world.shape().program_unit_pages;
        let system = world.pool().system_area().clone();
        world.media.tap.journal = (0..4).map(|die| system.state_log_blocks(die).to_vec()).collect();
        // A die of its own, and two neighbours on one die.
        for isolation in [Isolation::Die, Isolation::Software, Isolation::None] {
            let id = world.pool().alloc_vssd(isolation, 0, 1).unwrap();
            world.oracle.vssds.push(id);
            world.unsure.push(id);
        }
        world.make_durable()?;
        if world.crashes == 0 {
            world.unsure.clear();
        }
        Ok(world)
    }

    /// Waits until everything so far survives. A crash in between is seen to as any other.
    fn make_durable(&mut self) -> Found {
        while !self.pool().is_durable() {
            let World { pool, media, now, .. } = self;
            pool.as_mut().expect("open").make_durable(media, *now);
            self.run(1)?;
        }
        Ok(())
    }

    fn pool(&mut self) -> &mut Pool {
        self.pool.as_mut().expect("open")
    }
    fn random(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }
    fn space(&mut self, id: VssdId) -> Space<'_, Tapped<Watched>> {
        self.pool.as_mut().expect("open").space(id, &mut self.media, self.now)
    }
    fn shape(&self) -> BlockShape {
        *self.pool.as_ref().expect("open").shape()
    }

    fn open(&mut self) -> Found {
        let pool = match self.media.protected_memory() {
            Some(memory) => {
                let size = Pool::block_states_size_bytes(self.media.geometry(), &self.config);
                let pool = Pool::open(&self.media, self.config.clone(), memory.region(0..size));
                pool.map_err(|error| format!("refused: {error}"))?
            }
            None => self.open_from_flash()?,
        };
        self.pool = Some(pool);
        self.pool().check_invariants();
        if self.exchanges {
            self.pool().begin_migration();
        }
        Ok(())
    }

    fn open_from_flash(&mut self) -> Result<Pool, String> {
        let mut completions = Vec::new();
        'again: loop {
            let mut pool = Pool::open_from_flash(&mut self.media, self.config.clone(), self.now);
            while !pool.is_open() {
                if let Some(error) = pool.open_error() {
                    return Err(format!("refused: {error}"));
                }
                self.now = self.now.max(self.media.next_event());
                self.media.advance(self.now, &mut completions);
                if !self.media.device.is_powered() {
                    self.media.device.power_on();
                    completions.clear();
                    continue 'again;
                }
                for completion in completions.drain(..) {
                    pool.complete(completion, self.now, &mut self.media, &mut Vec::new());
                }
            }
            return Ok(pool);
        }
    }

    fn watch(&mut self) -> Found {
        self.media.tap.events.drain(..).try_for_each(|event| self.oracle.watch(event))
    }

    /// Lets the device do up to `turns` things; opens anew if something went.
    fn run(&mut self, turns: u32) -> Found {
        let (mut completions, mut answers) = (Vec::new(), Vec::new());
        for _ in 0..turns {
            if self.media.device.operations() >= self.die_at {
                self.die_at = NEVER;
                self.media.device.process_death(self.now);
                return self.restart(false);
            }
            let next = self.media.next_event().min(self.pool().deadline());
            if next != Time::NEVER {
                self.now = self.now.max(next);
                self.media.advance(self.now, &mut completions);
            }
            if !self.media.device.is_powered() {
                self.media.device.power_on();
                return self.restart(true);
            }
            for completion in completions.drain(..) {
                let pool = self.pool.as_mut().expect("open");
                pool.complete(completion, self.now, &mut self.media, &mut answers);
            }
            let World { pool, media, now, .. } = self;
            pool.as_mut().expect("open").work(*now, media);
            self.pool().take_ready(&mut answers);
            for (_, answer) in answers.drain(..) {
                self.answered(answer)?;
            }
            self.watch()?;
            if self.media.next_event().min(self.pool().deadline()) == Time::NEVER {
                break;
            }
        }
        Ok(())
    }

    fn answered(&mut self, answer: SpaceCompletion) -> Found {
        match self.waits.remove(&answer.token.0).ok_or("answered twice")? {
            Waits::Append(sequence) => {
                let one = self.oracle.allocations.get_mut(&sequence).ok_or("an append of nobody")?;
                match answer.result {
                    Ok(()) => (one.units_acked, one.durable) = (one.units_acked + 1, true),
                    Err(_) => one.failed = true,
                }
            }
            Waits::Sync(covers) => {
                answer.result.map_err(|error| error.to_string())?;
                self.oracle.synced(covers);
            }
            Waits::Read(sequence, unit, again) => {
                let one = &self.oracle.allocations[&sequence];
                let whole = unit + one.units_unsafe < one.units_acked || one.units_unsafe == 0;
                let must_hold = unit < one.units_acked && whole;
                match answer.result {
                    Ok(()) => {
                        let bytes = answer.destination.expect("reads give content");
                        let right = bytes
                            .chunks_exact(4096)
                            .enumerate()
                            .all(|(iu, bytes)| bytes[..8] == stamp(sequence, unit, iu as u32).to_le_bytes());
                        if !right {
                            return Err(format!("unit {unit} of {one:?} reads what it never held"));
                        }
                    }
                    Err(_) if must_hold && !again && self.exchanges => {
                        let (id, block) = (one.vssd, one.block);
                        let held = one.fate == Fate::Held && self.pool().vssd_ids().any(|other| other == id);
                        if held {
                            self.read(id, block, sequence, unit, true);
                        }
                    }
                    Err(error) if must_hold => {
                        return Err(format!("unit {unit} of {one:?} is lost: {error}"));
                    }
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }

    fn restart(&mut self, power: bool) -> Found {
        self.crashes += 1;
        let shape = self.shape();
        self.watch()?;
        self.waits.clear();
        self.oracle.crashed(power, shape.unsafe_units, shape.program_units());
        let before: Vec<(u64, DieWear)> =
            (0..4).map(|die| (self.pool().die_erases(die), self.pool().die_wear(die))).collect();
        let status = self.pool().migration_status();
        (self.finished, self.moved) = (self.finished + status.finished, self.moved + status.moved_blocks);
        self.pool = None;
        self.open()?;
        let World { pool, media, now, .. } = self;
        pool.as_mut().expect("open").begin_check(media, *now);
        let crashes = self.crashes;
        self.run(u32::MAX)?;
        if self.crashes > crashes {
            // The power went again while it was checked: another restart saw to everything.
            return Ok(());
        }
        assert!(self.pool().is_checked());
        for (die, (erases, wear)) in before.into_iter().enumerate() {
            if self.pool().die_erases(die as u32) < erases {
                return Err(format!("die {die} forgot erases"));
            }
            self.compare_wear(die as u32, wear)?;
        }
        let found: Vec<VssdId> = self.pool().vssd_ids().collect();
        let mut expected = self.oracle.vssds.clone();
        // A removal, or an addition, that nobody was told to be durable may not have taken place.
        expected.retain(|id| found.contains(id) || !self.unsure.contains(id));
        expected.extend(found.iter().filter(|id| self.unsure.contains(id)));
        expected.sort();
        expected.dedup();
        if found != expected || !self.pool().quarantined().is_empty() {
            return Err(format!("vSSDs {found:?}, not {expected:?}"));
        }
        for id in found {
            let held = self.space(id).held_blocks();
            let counted = self.media.protected_memory().is_none();
            self.oracle.compare(id, &held, shape.program_unit_pages, counted)?;
            for one in held {
                for unit in 0..shape.program_units() {
                    self.read(id, one.block, one.allocation_sequence, unit, false);
                }
            }
        }
        // A cut that comes while this reads begins it again.
        self.run(u32::MAX)
    }

    /// Erases by cause: what was counted before, and no less than what the device saw.
    fn compare_wear(&mut self, die: u32, before: DieWear) -> Found {
        let wear = self.pool().die_wear(die);
        let geometry = *self.media.geometry();
        let system = self.pool().system_area().clone();
        let of_pool = |block: &EraseBlockAddress| {
            !system.catalog_blocks(die).contains(block) && !system.state_log_blocks(die).contains(block)
        };
        let blocks =
            (0..geometry.erase_blocks_per_die()).map(|at| geometry.die_at(die).erase_block(BlockIndex(at)));
        let seen: u64 =
            blocks.filter(of_pool).map(|block| u64::from(self.media.device.erase_count(block))).sum();
        let counted = wear.host + wear.migration + wear.inside;
        if counted < seen {
            return Err(format!("die {die} saw {seen} erases, {wear:?} are counted"));
        }
        // What went on since it was opened comes on top.
        let kept = wear.migration >= before.migration && wear.host >= before.host;
        if self.media.protected_memory().is_some() && !kept {
            return Err(format!("die {die}: {before:?} became {wear:?}"));
        }
        Ok(())
    }

    fn token(&mut self, waits: Waits) -> SpaceToken {
        self.next_token += 1;
        self.waits.insert(self.next_token, waits);
        SpaceToken(self.next_token)
    }

    fn read(&mut self, id: VssdId, block: LogicalBlock, sequence: u64, unit: u32, again: bool) {
        let ius = self.shape().program_unit_ius();
        let token = self.token(Waits::Read(sequence, unit, again));
        let destination = BufferMut::copy_from(&vec![0; ius as usize * 4096]);
        self.space(id).read(
            token,
            BlockRun { block, first_iu: unit * ius, iu_count: ius },
            destination,
            None,
            IoClass::HostRead,
        );
    }

    /// Appends the next unit of an allocation.
    fn append_to(&mut self, sequence: u64) {
        let one = self.oracle.allocations.get_mut(&sequence).expect("held");
        let (unit, block) = (one.units_submitted, one.block);
        one.units_submitted += 1;
        let shape = self.shape();
        let words =
            (0..shape.program_unit_ius()).flat_map(|iu| stamp(sequence, unit, iu).to_le_bytes().repeat(512));
        let data = Buffer::copy_from(&words.collect::<Vec<u8>>());
        let parts = [Payload::new(ContentMode::Bytes, data)].into_iter().collect();
        let oob = BufferMut::copy_from(&vec![0; shape.program_unit_oob_size_bytes() as usize]);
        let token = self.token(Waits::Append(sequence));
        let id = self.oracle.allocations[&sequence].vssd;
        self.space(id).append(token, block, parts, oob, IoClass::HostWrite);
    }

    fn step(&mut self, step: Step) -> Found {
        let at = self.random(self.oracle.vssds.len() as u64) as usize;
        let id = self.oracle.vssds[at];
        let units_per_block = self.shape().program_units();
        let held = self.oracle.held(id);
        let pick = (!held.is_empty()).then(|| held[self.random(held.len() as u64) as usize]);
        match step {
            Step::Allocate => {
                let count = self.space(id).unit_count();
                let unit = UnitIndex(self.random(count.into()) as u16);
                let read_only = self.oracle.read_only.contains(&id);
                match self.space(id).allocate(unit, Purpose(1)) {
                    Ok(_) if read_only => return Err("a read-only vSSD takes writes again".to_owned()),
                    Ok(block) => {
                        let all = self.space(id).held_blocks();
                        let one = all.iter().find(|one| one.block == block).ok_or("not held")?;
                        let fresh = Allocation {
                            vssd: id,
                            block,
                            fate: Fate::Held,
                            durable: false,
                            sealed: false,
                            failed: false,
                            units_submitted: 0,
                            units_acked: 0,
                            units_unsafe: 0,
                        };
                        if self.oracle.allocations.insert(one.allocation_sequence, fresh).is_some() {
                            return Err(format!("{one:?} was allocated before"));
                        }
                    }
                    Err(SpaceError::ReadOnly) => {
                        if !read_only && self.pool().is_durable() {
                            self.oracle.read_only.push(id);
                        }
                    }
                    Err(SpaceError::NoFreeBlock { .. }) => {}
                    Err(error) => return Err(error.to_string()),
                }
            }
            Step::Append => {
                let open = |sequence: &u64| {
                    let one = &self.oracle.allocations[sequence];
                    !one.sealed && !one.failed && one.units_submitted < units_per_block
                };
                let Some(sequence) = held.into_iter().find(open) else { return Ok(()) };
                self.append_to(sequence);
            }
            Step::Free => {
                let Some(sequence) = pick else { return Ok(()) };
                // The flash commands so far were given while it was held.
                self.watch()?;
                let one = self.oracle.allocations.get_mut(&sequence).expect("held");
                one.fate = Fate::Freed(false);
                let block = one.block;
                self.space(id).free(block).map_err(|error| error.to_string())?;
            }
            Step::Sync => {
                let own = self.oracle.allocations.iter().filter(|(_, one)| one.vssd == id);
                let covers = own.map(|(sequence, one)| (*sequence, one.fate)).collect();
                let token = self.token(Waits::Sync(covers));
                self.space(id).sync(token);
            }
            Step::Run(turns) => self.run(turns)?,
            Step::Exchange => {
                let (one, other) = (self.random(4) as u32, self.random(4) as u32);
                // Some cannot be: they are busy, or one vSSD lies on both.
                let _ = self.pool().exchange_dies(one, other);
            }
            Step::Replace => {
                self.run(u32::MAX)?;
                self.watch()?;
                match self.pool().dealloc_vssd(id) {
                    Ok(()) => {}
                    Err(error) => return Err(error.to_string()),
                }
                for one in self.oracle.allocations.values_mut().filter(|one| one.vssd == id) {
                    one.fate = Fate::Freed(false);
                }
                self.unsure.push(id);
                self.make_durable()?;
                if self.pool().vssd_ids().any(|other| other == id) {
                    // A crash undid the removal.
                    self.unsure.clear();
                    return Ok(());
                }
                self.oracle.allocations.retain(|_, one| one.vssd != id);
                let fresh = self.pool().alloc_vssd(Isolation::Software, 0, 1);
                let fresh = fresh.map_err(|error| error.to_string())?;
                self.oracle.vssds[at] = fresh;
                self.unsure = vec![fresh];
                self.make_durable()?;
                if !self.pool().vssd_ids().any(|other| other == fresh) {
                    let fresh = self.pool().alloc_vssd(Isolation::Software, 0, 1);
                    self.oracle.vssds[at] = fresh.map_err(|error| error.to_string())?;
                    self.unsure = vec![self.oracle.vssds[at]];
                    // One crash was planned; a second one here is not worth another case.
                    self.make_durable()?;
                }
                self.unsure.clear();
                self.replaced += 1;
            }
        }
        self.watch()?;
        self.pool().check_invariants();
        Ok(())
    }

    fn random_step(&mut self) -> Step {
        if self.exchanges {
            match self.random(40) {
                0 => return Step::Exchange,
                // More is held, so more has to move.
                1..8 => return Step::Allocate,
                8..24 => return Step::Append,
                _ => {}
            }
        }
        match self.random(100) {
            0..15 => Step::Allocate,
            15..50 => Step::Append,
            50..62 => Step::Free,
            62..68 => Step::Sync,
            68..70 => Step::Replace,
            _ => Step::Run(self.random(6) as u32 + 1),
        }
    }

    fn crash_at(&mut self, crash: Crash) {
        match crash {
            Crash::Power(nth) => self.media.device.add_fault(Fault::PowerCutAtOperation { nth }),
            Crash::Death(nth) => self.die_at = nth,
        }
    }
}

/// Runs a trace that is the same for each crash until the crash comes; gives the operations it took.
fn short_trace(
    seed: u64,
    protected: bool,
    exchanges: bool,
    crash: Option<Crash>,
) -> Result<(u64, u64), String> {
    let mut world = World::new(seed, protected);
    if exchanges {
        world.exchanges = true;
        world.pool().begin_migration();
    }
    // What it took to make the pool is not part of the trace.
    let first = world.media.device.operations();
    if let Some(crash) = crash {
        world.crash_at(match crash {
            Crash::Power(nth) => Crash::Power(first + nth),
            Crash::Death(nth) => Crash::Death(first + nth),
        });
    }
    let mut steps = 0;
    while steps < 120 || world.media.device.operations() - first <= 30 {
        let step = world.random_step();
        world.step(step)?;
        steps += 1;
    }
    world.run(u32::MAX)?;
    let operations = world.media.device.operations() - first;
    assert_eq!(world.crashes, u32::from(crash.is_some()), "seed {seed}: {crash:?}");
    // Whatever was found is also there at the next opening.
    world.restart(false)?;
    Ok((operations, world.moved))
}

fn enumerate(seeds: std::ops::Range<u64>, protected: bool, exchanges: bool) -> Found {
    for seed in seeds {
        let (operations, _) =
            short_trace(seed, protected, exchanges, None).map_err(|found| format!("seed {seed}: {found}"))?;
        assert!(operations > 30, "seed {seed}: {operations} operations are no trace");
        for nth in 0..operations {
            for crash in [Crash::Power(nth), Crash::Death(nth)] {
                short_trace(seed, protected, exchanges, Some(crash))
                    .map_err(|found| format!("seed {seed} {crash:?}: {found}"))?;
            }
        }
    }
    Ok(())
}

#[test]
fn a_cut_at_every_operation_of_short_traces_loses_and_mixes_nothing() {
    enumerate(0..4, true, false).unwrap();
}

#[test]
fn without_protected_memory_the_journal_on_flash_does_the_same() {
    enumerate(0..3, false, false).unwrap();
    for seed in 0..8 {
        long_trace(seed, false, false).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
    }
}

#[test]
fn the_first_write_of_a_journal_can_be_cut_anywhere() {
    let mut cuts = 0;
    for nth in 0..60 {
        let mut world =
            World::made(7, false, Some(nth)).unwrap_or_else(|found| panic!("cut at {nth}: {found}"));
        cuts += world.crashes;
        world.restart(false).unwrap_or_else(|found| panic!("after a cut at {nth}: {found}"));
        // All of them or none: they were written together.
        let vssds = world.pool().vssd_ids().count();
        assert!(vssds == 0 || vssds == 3, "cut at {nth}: {vssds} vSSDs");
    }
    assert!(cuts > 2);
}

fn long_trace(seed: u64, protected: bool, exchanges: bool) -> Result<World, String> {
    let fail = |channel, die, kind, nth| Fault::Fail { die: FaultyDie { channel, die }, kind, nth };
    let mut world = World::new(seed, protected);
    if exchanges {
        world.exchanges = true;
        world.pool().begin_migration();
        // Reads fail, too. Not those of a journal: both copies of a unit may be read at such a moment.
        for nth in 0..if protected { 40 } else { 0 } {
            world.media.device.add_fault(fail(nth as u16 % 2, 0, OperationKind::Read, 37 * nth));
        }
    }
    for (channel, die) in [(0, 0), (0, 1), (1, 0)] {
        for _ in 0..4 {
            let nth = world.random(300);
            world.media.device.add_fault(fail(channel, die, OperationKind::Program, nth));
        }
        let nth = world.random(60);
        world.media.device.add_fault(fail(channel, die, OperationKind::Erase, nth));
    }
    for _ in 0..2500 {
        if world.random(80) == 0 {
            let nth = world.media.device.operations() + world.random(20);
            let crash = if world.random(3) == 0 { Crash::Death(nth) } else { Crash::Power(nth) };
            world.crash_at(crash);
        }
        let step = world.random_step();
        world.step(step)?;
    }
    world.run(u32::MAX)?;
    world.restart(false)?;
    Ok(world)
}

#[test]
fn random_cuts_in_long_traces_lose_and_mix_nothing() {
    let (mut crashes, mut replaced, mut read_only) = (0, 0, 0);
    for seed in 0..12 {
        let world = long_trace(seed, true, false).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        crashes += world.crashes;
        replaced += world.replaced;
        read_only += world.oracle.read_only.len();
    }
    assert!(crashes > 150 && replaced > 100, "{crashes} crashes, {replaced} vSSDs replaced");
    assert!(read_only > 0, "some vSSD wears its dies out");
}

/// The oracle sees bugs: each planted one is found by a short trace or a long one.
#[test]
fn planted_bugs_are_caught() {
    for name in [
        "vssd: erase before free durable",
        "vssd: allocation not recorded",
        "vssd: free forgotten",
        "vssd: incomplete block wins",
        "vssd: read-only forgotten",
    ] {
        assert_caught(name, true, false);
    }
    for name in ["vssd: erase before journal", "vssd: sync answered at once"] {
        assert_caught(name, false, false);
    }
}

/// An open block moves while it is appended to: a cut at every operation, and what was acknowledged is there.
fn open_block_trace(protected: bool, crash: Option<Crash>) -> Result<u64, String> {
    let mut world = World::new(5, protected);
    world.exchanges = true;
    world.pool().begin_migration();
    let first = world.media.device.operations();
    match crash {
        Some(Crash::Power(nth)) => world.crash_at(Crash::Power(first + nth)),
        Some(Crash::Death(nth)) => world.crash_at(Crash::Death(first + nth)),
        None => {}
    }
    while world.oracle.allocations.is_empty() {
        world.step(Step::Allocate)?;
    }
    let sequence = *world.oracle.allocations.keys().next().expect("allocated just now");
    world.append_to(sequence);
    world.run(u32::MAX)?;
    // The cut came before it was there for good.
    let Some(one) = world.oracle.allocations.get(&sequence) else { return Ok(0) };
    let id = one.vssd;
    let places = world.pool().placement(id);
    let die = if places.iter().any(|place| place.channel == 1) { 2 } else { 0 }
        + u32::from(places.iter().any(|place| place.die == 1));
    let taken = (0..4).find(|&other| world.pool().exchange_dies(die, other).is_ok());
    taken.ok_or("two dies can be exchanged")?;
    for _ in 0..40 {
        world.run(1)?;
        let one = world.oracle.allocations.get(&sequence);
        if one.is_some_and(|one| !one.sealed && !one.failed && one.units_submitted < 8) {
            world.append_to(sequence);
        }
    }
    world.run(u32::MAX)?;
    let operations = world.media.device.operations() - first;
    world.restart(false)?;
    assert!(crash.is_some() || world.moved > 0, "the block moved");
    Ok(operations)
}

fn open_blocks_move(protected: bool) -> Found {
    for nth in 0..open_block_trace(protected, None)? {
        open_block_trace(protected, Some(Crash::Power(nth)))
            .map_err(|found| format!("cut at {nth}: {found}"))?;
    }
    Ok(())
}

#[test]
fn open_blocks_move_and_keep_what_was_acknowledged() {
    open_blocks_move(true).unwrap();
    open_blocks_move(false).unwrap();
}

/// The same with exchanges: blocks that move are where they are said to be, at every step.
#[test]
fn a_cut_at_every_operation_of_an_exchange_loses_and_mixes_nothing() {
    let moved: u64 = (0..2).map(|seed| short_trace(seed, true, true, None).unwrap().1).sum();
    assert!(moved > 4, "{moved} blocks moved are no trace");
    enumerate(0..2, true, true).unwrap();
}

#[test]
fn exchanges_without_protected_memory_can_be_cut_anywhere() {
    enumerate(0..1, false, true).unwrap();
    for seed in 0..6 {
        long_trace(seed, false, true).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
    }
}

#[test]
fn random_cuts_in_long_traces_of_exchanges_lose_and_mix_nothing() {
    let (mut crashes, mut finished, mut moved) = (0, 0, 0);
    for seed in 0..10 {
        let world = long_trace(seed, true, true).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        crashes += world.crashes;
        finished += world.finished;
        moved += world.moved;
    }
    assert!(
        crashes > 100 && finished > 80 && moved > 150,
        "{crashes} crashes, {finished} exchanges, {moved} blocks"
    );
}

#[test]
fn planted_bugs_of_exchanges_are_caught() {
    for name in [
        "vssd: copy committed half done",
        "vssd: moving block freed before its copy holds",
        "vssd: exchange finished in part",
        "vssd: erases of a migration not counted",
        "vssd: lost pages read as good",
        "vssd: lost page copied as good",
    ] {
        assert_caught(name, true, true);
    }
}

fn assert_caught(name: &str, protected: bool, exchanges: bool) {
    assert!(plant_mutant(Some(name)));
    let survived = std::panic::catch_unwind(|| {
        let short = |seed| enumerate(seed..seed + 1, protected, exchanges).is_ok();
        let long = |seed| long_trace(seed, protected, exchanges).is_ok();
        short(0) && short(1) && (0..12).all(long)
    });
    plant_mutant(None);
    assert!(!survived.unwrap_or(false), "{name} is not caught");
}
