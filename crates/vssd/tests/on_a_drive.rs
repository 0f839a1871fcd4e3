//! A pool on a drive that hides its flash: no OOB areas, no protected memory, and a cache that only a flush makes durable.
//!
//! Goal: what the space promises holds over any cut. Method: random work of two vSSDs against an oracle on the model of a drive; at
//! some moment the power goes, or the process dies, and everything is opened again. What a complete flush covered is there, what a complete sync says is
//! allocated or free is so, nobody reads what was never his, and descriptions are those that were given.

use diecut_drives::{DriveMedium, DriveShape, Zoning};
use diecut_emulator::drive::{Drive, DriveProfile, Stretch, ZoneProfile};
use diecut_media::{Media, ZoneDies};
use diecut_spec::Isolation;
use diecut_testing::Random;
use diecut_testing::depth::depth;
use diecut_testing::driven::Driven;
use diecut_testing::planted::is_noticed;
use diecut_testing::pool::PoolWorld;
use diecut_units::*;
use diecut_vssd::*;
use std::collections::{BTreeMap, BTreeSet};

const SIZE_BYTES: u64 = 66 << 20;
const LANES: u16 = 4;
const VSSDS: usize = 2;

type World = PoolWorld<Driven<DriveMedium, Drive>>;

/// A drive that is written in zones.
fn zoned(size_bytes: u64) -> DriveProfile {
    let zones = ZoneProfile {
        size_bytes: 1 << 20,
        capacity_bytes: (1 << 20) - 4096,
        conventional: 0,
        active_max: 64,
        unit_bytes: 512,
    };
    DriveProfile { zones: Some(zones), ..DriveProfile::nvme(size_bytes) }
}

/// Pages of a program unit of a drive that shows its dies.
const UNIT_PAGES: u32 = 4;

/// A drive that shows its dies: two channels of two, with 16 chunks each.
fn on_dies(has_cache: bool) -> DriveProfile {
    let zones = ZoneProfile {
        size_bytes: 1 << 20,
        capacity_bytes: 1 << 20,
        conventional: 0,
        active_max: 0,
        unit_bytes: u64::from(UNIT_PAGES) * IU_SIZE_BYTES as u64,
    };
    DriveProfile { zones: Some(zones), is_durable_at_once: !has_cache, ..DriveProfile::nvme(64 << 20) }
}

fn dies_of(zones: &ZoneProfile) -> Option<ZoneDies> {
    let dies = ZoneDies {
        channels: 2,
        dies_per_channel: 2,
        die_zones: 16,
        program_unit_pages: UNIT_PAGES,
        cached_pages: 0,
        times: None,
    };
    (zones.unit_bytes > 512).then_some(dies)
}

fn opened(drive: Drive) -> Driven<DriveMedium, Drive> {
    if let Some(zones) = drive.profile().zones {
        let statistics = drive.zone_statistics();
        assert_eq!((statistics.out_of_order, statistics.too_many), (0, 0), "the drive refused writes");
        let (zone_size_bytes, active_max) = (zones.size_bytes, zones.active_max);
        let dies = dies_of(&zones);
        let zoning = Zoning { zone_size_bytes, active_max, open_max: 0, zones: drive.zones(), dies };
        let shape = zoning.shape(dies.is_none().then_some(LANES)).unwrap();
        let medium = DriveMedium::zoned(shape, !drive.profile().is_durable_at_once, &zoning, 8);
        return Driven::new(medium, drive);
    }
    let shape = DriveShape::plan(drive.profile().size_bytes, LANES, Some(1 << 20)).unwrap();
    let medium = DriveMedium::new(shape, !drive.profile().is_durable_at_once, true);
    Driven::new(medium, drive)
}

fn config(geometry: &Geometry) -> PoolConfig {
    let nonces = Some(Nonces::new([0x5e; 16], [0xd1; 16]));
    // Blocks of a lane are few here: two of them for each copy of the log.
    PoolConfig { nonces, ..PoolConfig::suited_to(geometry) }
}

fn make(seed: u64, profile: DriveProfile) -> World {
    let media = opened(Drive::new(profile, seed));
    let config = config(media.geometry());
    World::make(media, config, Time::ZERO)
}

fn small_drive() -> DriveProfile {
    DriveProfile::nvme(SIZE_BYTES)
}

/// Everything but the drive is forgotten. A cut takes what it likes of what was not flushed.
fn open_again(world: World, cut: bool) -> World {
    let mut drive = world.media.io;
    if cut {
        drive.cut()
    } else {
        drive.process_death()
    }
    World::open(opened(drive), world.config, Time::ZERO)
}

/// What the oracle knows of a block.
#[derive(Clone, Debug, Default)]
struct Known {
    sequence: u64,
    description: Vec<u8>,
    /// IUs handed over, answered, and covered by a complete flush.
    submitted: u32,
    answered: u32,
    flushed: u32,
    /// Whether a sync says that it is held.
    is_sure: bool,
    /// It was opened before the last opening: it takes nothing more.
    is_old: bool,
}

/// A block that was given back.
#[derive(Clone)]
struct Freed {
    /// What it held then: a cut may bring it back, with all that.
    known: Known,
    /// Whether a sync says that it is free.
    is_sure: bool,
}

/// What is under way.
enum Asked {
    Append { block: LogicalBlock, end: u32 },
    Read { block: LogicalBlock, iu: u32, submitted: u32 },
    Description { block: LogicalBlock, is_empty: bool },
    Flush { answered: BTreeMap<LogicalBlock, (u64, u32)> },
    Sync { held: BTreeMap<LogicalBlock, u64>, frees: u64 },
}

#[derive(Default)]
struct Tenant {
    id: VssdId,
    held: BTreeMap<LogicalBlock, Known>,
    freed: Vec<Freed>,
    /// Allocations that an opening did not find, or found freed, though nothing durable says so: a sector that a cut took reads as anything, so the
    /// change that it is a part of may be there at one opening and not at the next. Nothing is done about either before a new generation is durable.
    perhaps: Vec<u64>,
    asked: BTreeMap<u64, Asked>,
}

struct Story {
    world: World,
    random: Random,
    tenants: Vec<Tenant>,
    tokens: u64,
    seed: u64,
}

/// Bytes of an IU: whose, of which allocation, where.
fn content(id: VssdId, sequence: u64, iu: u32) -> Vec<u8> {
    let word = u64::from(id.0) << 56 ^ sequence << 24 ^ u64::from(iu) ^ 0x00a5_0000_0000_0000;
    word.to_le_bytes().repeat(IU_SIZE_BYTES / 8)
}

impl Story {
    fn new(seed: u64, size_bytes: u64) -> Story {
        Story::on(DriveProfile::nvme(size_bytes), seed)
    }

    fn on(profile: DriveProfile, seed: u64) -> Story {
        let (mut world, size_bytes) = (make(seed, profile), profile.size_bytes);
        let ids: Vec<VssdId> = (0..VSSDS)
            .map(|_| world.pool.alloc_vssd(Isolation::Channel, 0, size_bytes / 4).unwrap())
            .collect();
        world.make_durable();
        world.pool.begin_migration();
        let tenants = ids.into_iter().map(|id| Tenant { id, ..Tenant::default() }).collect();
        Story { world, random: Random::of(seed), tenants, tokens: 0, seed }
    }

    fn token(&mut self) -> SpaceToken {
        self.tokens += 1;
        SpaceToken(self.tokens)
    }

    /// A block of a tenant, if it holds any.
    fn any_block(&mut self, tenant: usize) -> Option<LogicalBlock> {
        let count = self.tenants[tenant].held.len() as u64;
        (count > 0).then(|| *self.tenants[tenant].held.keys().nth(self.random.below(count) as usize).unwrap())
    }

    fn act(&mut self) {
        let tenant = self.random.below(VSSDS as u64) as usize;
        let id = self.tenants[tenant].id;
        match self.random.below(20) {
            0..=2 => self.allocate(tenant),
            3..=8 => {
                let Some(block) = self.any_block(tenant) else { return };
                let count = (1 + self.random.below(6) as u32) * self.world.pool.shape().program_unit_pages;
                let token = self.token();
                let own = &mut self.tenants[tenant];
                let known = own.held.get_mut(&block).unwrap();
                if known.submitted + count > self.world.pool.shape().pages || known.is_old {
                    return;
                }
                let mut bytes = Vec::new();
                (0..count).for_each(|at| bytes.extend(content(id, known.sequence, known.submitted + at)));
                known.submitted += count;
                own.asked.insert(token.0, Asked::Append { block, end: known.submitted });
                let parts =
                    [Payload::new(ContentMode::Bytes, Buffer::copy_from(&bytes))].into_iter().collect();
                let oob = BufferMut::copy_from(&[]);
                self.world.space(id).append(token, block, parts, oob, IoClass::HostWrite);
            }
            9..=12 => {
                let Some(block) = self.any_block(tenant) else { return };
                let iu = self.random.below(self.world.pool.shape().pages.min(24).into()) as u32;
                self.read(tenant, block, iu);
            }
            13 => self.read_description(tenant),
            14 => {
                let Some(block) = self.any_block(tenant) else { return };
                // What is under way of it would be answered for another block.
                let is_used = self.tenants[tenant].asked.values().any(|asked| match asked {
                    Asked::Append { block: other, .. }
                    | Asked::Read { block: other, .. }
                    | Asked::Description { block: other, .. } => *other == block,
                    _ => false,
                });
                if is_used {
                    return;
                }
                self.world.space(id).free(block).unwrap();
                let known = self.tenants[tenant].held.remove(&block).unwrap();
                self.tenants[tenant].freed.push(Freed { known, is_sure: false });
            }
            15..=17 => {
                let token = self.token();
                let own = &mut self.tenants[tenant];
                let answered =
                    own.held.iter().map(|(block, known)| (*block, (known.sequence, known.answered)));
                let asked = Asked::Flush { answered: answered.collect() };
                own.asked.insert(token.0, asked);
                self.world.space(id).flush(token);
            }
            18 => {
                let token = self.token();
                let own = &mut self.tenants[tenant];
                let held = own.held.iter().map(|(block, known)| (*block, known.sequence)).collect();
                let asked = Asked::Sync { held, frees: own.freed.len() as u64 };
                own.asked.insert(token.0, asked);
                self.world.space(id).sync(token);
            }
            _ if self.world.media.capabilities().independent_units => {
                // Some cannot be: one of them takes part in another, or they are one vSSD's.
                let dies = [0; 2].map(|_| self.random.below(4) as u32);
                let _ = self.world.pool.exchange_dies(dies[0], dies[1]);
            }
            _ => {}
        }
    }

    fn allocate(&mut self, tenant: usize) {
        let id = self.tenants[tenant].id;
        let description: Vec<u8> = (0..self.random.below(40)).map(|_| self.random.next() as u8).collect();
        let units = u64::from(self.world.space(id).unit_count());
        let unit = UnitIndex(self.random.below(units) as u16);
        let allocated = self.world.space(id).allocate_described(unit, Purpose(7), &description);
        let Ok(block) = allocated else { return };
        let held = self.world.space(id).held_blocks();
        let sequence = held.iter().find(|held| held.block == block).unwrap().allocation_sequence;
        let known = Known { sequence, description, ..Known::default() };
        let before = self.tenants[tenant].held.insert(block, known);
        assert!(before.is_none(), "seed {}: {block:?} was held", self.seed);
    }

    fn read(&mut self, tenant: usize, block: LogicalBlock, iu: u32) {
        let token = self.token();
        let own = &mut self.tenants[tenant];
        let submitted = own.held[&block].submitted;
        own.asked.insert(token.0, Asked::Read { block, iu, submitted });
        let id = own.id;
        let destination = BufferMut::copy_from(&[0xee; IU_SIZE_BYTES]);
        let run = BlockRun { block, first_iu: iu, iu_count: 1 };
        self.world.space(id).read(token, run, destination, None, IoClass::HostRead);
    }

    fn read_description(&mut self, tenant: usize) {
        let Some(block) = self.any_block(tenant) else { return };
        let token = self.token();
        let own = &mut self.tenants[tenant];
        let is_empty = own.held[&block].answered == 0;
        own.asked.insert(token.0, Asked::Description { block, is_empty });
        let id = own.id;
        self.world.space(id).read_description(token, block, BufferMut::copy_from(&[0; IU_SIZE_BYTES]));
    }

    fn step(&mut self) -> bool {
        let goes_on = self.world.step();
        for (id, answer) in std::mem::take(&mut self.world.answers) {
            self.take(id, answer);
        }
        goes_on
    }

    fn take(&mut self, id: VssdId, answer: SpaceCompletion) {
        let seed = self.seed;
        let own = self.tenants.iter_mut().find(|tenant| tenant.id == id).unwrap();
        let asked = own.asked.remove(&answer.token.0).expect("answered once");
        match asked {
            Asked::Append { block, end } => {
                assert_eq!(answer.result, Ok(()), "seed {seed}");
                let known = own.held.get_mut(&block).unwrap();
                assert!(known.answered < end, "seed {seed}: appends are answered in order");
                known.answered = end;
            }
            Asked::Read { block, iu, submitted } => {
                let known = &own.held[&block];
                if iu < known.flushed || (iu < submitted && !known.is_old) {
                    assert_eq!(answer.result, Ok(()), "seed {seed}: {block:?} IU {iu} of {known:?}");
                    let found = answer.destination.unwrap();
                    let word = u64::from_le_bytes(found[..8].try_into().unwrap());
                    assert!(
                        found[..] == content(id, known.sequence, iu),
                        "seed {seed}: {block:?} IU {iu} of {id:?}, {known:?}: {word:x}"
                    );
                } else if !known.is_old {
                    let (unit, index) = (block.unit.0, block.index);
                    assert_eq!(answer.result, Err(SpaceError::Erased { unit, index, iu }), "seed {seed}");
                }
            }
            Asked::Description { block, is_empty } => {
                let known = &own.held[&block];
                match answer.result {
                    Ok(()) => {
                        let iu = answer.destination.unwrap();
                        let found = &iu[HEADER_HOLDER_AT_BYTES..][..known.description.len()];
                        assert!(found == known.description, "seed {seed}: {block:?}");
                    }
                    Err(error) => {
                        let may_be_missing = if known.is_old { known.flushed == 0 } else { is_empty };
                        assert!(may_be_missing, "seed {seed}: {block:?}: {error}, {known:?}");
                        assert!(matches!(error, SpaceError::Erased { .. }), "seed {seed}: {error}");
                    }
                }
            }
            Asked::Flush { answered } => {
                assert_eq!(answer.result, Ok(()), "seed {seed}");
                for (block, (sequence, answered)) in answered {
                    if let Some(known) = own.held.get_mut(&block)
                        && known.sequence == sequence
                    {
                        known.flushed = known.flushed.max(answered);
                        // Of one that came back only a sync says that it does not go again.
                        known.is_sure |= answered > 0 && !known.is_old;
                    }
                }
            }
            Asked::Sync { held, frees } => {
                assert_eq!(answer.result, Ok(()), "seed {seed}");
                for (block, sequence) in held {
                    if let Some(known) = own.held.get_mut(&block)
                        && known.sequence == sequence
                    {
                        known.is_sure = true;
                    }
                }
                own.freed[..frees as usize].iter_mut().for_each(|freed| freed.is_sure = true);
            }
        }
    }

    /// The power goes, or the process dies, and everything is opened again.
    fn reopen(mut self, cut: bool) -> Story {
        self.world = open_again(self.world, cut);
        self.world.pool.begin_migration();
        self.world.pool.check_invariants();
        let mut nonces = BTreeSet::new();
        for at in 0..VSSDS {
            let id = self.tenants[at].id;
            assert!(self.world.pool.vssd_ids().any(|other| other == id), "seed {}: a vSSD", self.seed);
            let held = self.world.space(id).held_blocks();
            let own = &mut self.tenants[at];
            own.asked.clear();
            // The number of an allocation that never became durable is given again.
            let freed = own.freed.clone();
            own.freed.retain(|freed| freed.is_sure);
            own.perhaps.extend(freed.iter().map(|freed| freed.known.sequence));
            own.perhaps.extend(own.held.values().filter(|known| !known.is_sure).map(|known| known.sequence));
            for (block, known) in &own.held {
                let is_there = held
                    .iter()
                    .any(|held| held.block == *block && held.allocation_sequence == known.sequence);
                assert!(is_there || !known.is_sure, "seed {}: {block:?} {known:?} is gone", self.seed);
            }
            let mut found = BTreeMap::new();
            for one in held {
                let sequence = one.allocation_sequence;
                assert_eq!(one.purpose, Purpose(7), "seed {}", self.seed);
                let freed = freed.iter().find(|freed| freed.known.sequence == sequence);
                assert!(freed.is_none_or(|freed| !freed.is_sure), "seed {}: a free was undone", self.seed);
                let nonce = self.world.space(id).nonce(one.block).unwrap();
                assert!(nonces.insert(nonce), "seed {}: two allocations of one nonce", self.seed);
                let known = own.held.get(&one.block).filter(|known| known.sequence == sequence);
                if let Some(known) = known {
                    assert!(one.written_pages >= known.flushed, "seed {}: {one:?} {known:?}", self.seed);
                    // The opening flushed what the process that died had written.
                    let answered = if cut { known.flushed } else { known.answered };
                    let flushed = answered;
                    let kept = Known { is_old: true, is_sure: true, answered, flushed, ..known.clone() };
                    found.insert(one.block, kept);
                } else if let Some(Freed { known, .. }) = freed {
                    // It came back, as what is free without a sync may.
                    assert!(one.written_pages >= known.flushed, "seed {}: {one:?} {known:?}", self.seed);
                    let answered = known.flushed;
                    let back = Known { is_old: true, is_sure: false, answered, ..known.clone() };
                    found.insert(one.block, back);
                } else {
                    let may_be = own.perhaps.contains(&sequence);
                    assert!(may_be, "seed {}: {one:?} was never there", self.seed);
                    self.world.space(id).free(one.block).unwrap();
                    let known = Known { sequence, ..Known::default() };
                    own.freed.push(Freed { known, is_sure: false });
                }
            }
            own.held = found;
        }
        self
    }

    /// Whatever a flush covered is there, with its description.
    fn look_at_all(&mut self) {
        for tenant in 0..VSSDS {
            let blocks: Vec<(LogicalBlock, u32)> =
                self.tenants[tenant].held.iter().map(|(block, known)| (*block, known.flushed)).collect();
            for (block, flushed) in blocks {
                (0..flushed).for_each(|iu| self.read(tenant, block, iu));
            }
            for _ in 0..4 {
                self.read_description(tenant);
            }
        }
        while self.step() {}
        assert!(self.tenants.iter().all(|tenant| tenant.asked.is_empty()), "seed {}", self.seed);
    }
}

/// One story: several lives with a cut, or the death of the process, between them.
fn story(seed: u64) {
    let _ = lives(Story::new(seed, SIZE_BYTES), seed);
}

fn story_on_zones(seed: u64) {
    let _ = lives(Story::on(zoned(SIZE_BYTES), seed), seed);
}

/// How many blocks moved.
fn story_on_dies(seed: u64) -> u64 {
    lives(Story::on(on_dies(seed.is_multiple_of(2)), seed), seed)
}

/// How many blocks moved.
fn lives(mut story: Story, seed: u64) -> u64 {
    let mut moved = 0;
    for life in 0..4 {
        for _ in 0..20 + story.random.below(250) {
            story.act();
            for _ in 0..story.random.below(4) {
                story.step();
            }
        }
        let cut = !(seed + life).is_multiple_of(3);
        if !cut {
            // The process dies: the drive goes on with what it has.
            while story.world.media.next_event() < Time::NEVER && story.random.below(3) > 0 {
                story.step();
            }
        }
        moved += story.world.pool.migration_status().moved_blocks;
        story = story.reopen(cut);
        if story.random.below(2) == 0 {
            // Nothing was written since it was opened: what was read must stay.
            story = story.reopen(true);
        }
        story.look_at_all();
    }
    moved
}

/// Goal: a table of which a cut left a part is not completed by the next one of the same number. Method: many lives, each of which ends while its first
/// generation of block states is written.
fn short_lives(seed: u64) {
    let mut story = Story::new(seed, 258 << 20);
    for _ in 0..12 {
        for _ in 0..story.random.below(12) {
            story.act();
        }
        let id = story.tenants[0].id;
        let token = story.token();
        story.tenants[0].asked.insert(token.0, Asked::Sync { held: BTreeMap::new(), frees: 0 });
        story.world.space(id).sync(token);
        for _ in 0..story.random.below(30) {
            story.step();
        }
        story = story.reopen(true);
    }
    story.look_at_all();
}

fn stories(seeds: std::ops::Range<u64>) {
    seeds.for_each(story);
}

#[test]
fn what_was_promised_is_there_after_cuts() {
    stories(0..depth(60, 5_000));
}

/// Goal: the same on a drive that is written in zones, where a cut sets write pointers back and an erase destroys at once.
#[test]
fn what_was_promised_is_there_on_zones() {
    (0..depth(60, 5_000)).for_each(story_on_zones);
}

/// Goal: the same on a drive that shows its dies, whose content changes places meanwhile. Method: pairs of dies at random, with and without a cache.
#[test]
fn what_was_promised_is_there_on_dies() {
    let moved: u64 = (0..depth(30, 5_000)).map(story_on_dies).sum();
    assert!(moved > 250, "{moved} blocks moved");
}

/// Goal: the stories on dies find what they are for. Method: planted bugs.
#[test]
fn planted_bugs_of_moves_are_noticed() {
    is_noticed("vssd: moving block freed before its copy holds", || {
        (0..20).for_each(|seed| _ = story_on_dies(seed));
    });
    for name in
        ["vssd: copies are not flushed", "vssd: a flush of one pair of copies counts for the next one"]
    {
        is_noticed(name, || (0..240).for_each(exchange_with_a_cut));
    }
}

/// Blocks of each die that change places with those of the other one.
const PAIRS: u8 = 4;

/// Goal: what a flush covered is there when the power goes right after any pair of an exchange changed places. Method: two dies, whose blocks are
/// all flushed, and a cut a few steps after the change of a pair, while the log of that is in the cache.
fn exchange_with_a_cut(seed: u64) {
    let mut world = make(seed, on_dies(true));
    let ids = [0; 2].map(|_| world.pool.alloc_vssd(Isolation::Die, 0, 1).unwrap());
    world.make_durable();
    let mut blocks = Vec::new();
    for byte in 0..PAIRS {
        for id in ids {
            let block = world.allocate(id, 0);
            world.append(id, SpaceToken(1), block, byte + 1, IoClass::HostWrite);
            assert_eq!(answer(&mut world), Ok(()), "seed {seed}");
            blocks.push((id, block, byte + 1));
        }
    }
    for id in ids {
        assert_eq!(flush(&mut world, id), Ok(()));
    }
    let dies =
        ids.map(|id| world.pool.placement(id)[0]).map(|place| u32::from(place.channel * 2 + place.die));
    world.pool.begin_migration();
    world.pool.exchange_dies(dies[0], dies[1]).unwrap();
    let pairs = 1 + seed % u64::from(PAIRS);
    while world.pool.migration_status().moved_blocks < 2 * pairs {
        assert!(world.step(), "seed {seed}: the exchange goes on");
    }
    for _ in 0..seed / u64::from(PAIRS) % 6 {
        world.step();
    }
    let mut world = open_again(world, true);
    for (id, block, byte) in blocks {
        assert_eq!(world.read(id, block, 0), Ok(byte), "seed {seed}: {id:?} {block:?} after {pairs} pairs");
    }
    world.pool.check_invariants();
}

#[test]
fn each_pair_of_an_exchange_is_flushed() {
    (0..depth(240, 5_000)).for_each(exchange_with_a_cut);
}

#[test]
fn tables_that_a_cut_left_in_part_are_never_completed() {
    (0..depth(60, 5_000)).for_each(short_lives);
}

/// Goal: the stories above find what they are for. Method: planted bugs.
#[test]
fn planted_bugs_are_noticed() {
    for name in [
        "vssd: a flush is answered at once",
        "vssd: a header is not programmed",
        "vssd: a header of another allocation counts",
        "vssd: the log of block states does not flush",
        "vssd: block states are read without a flush",
        "vssd: allocation not recorded",
        "vssd: erase before journal",
        "vssd: free forgotten",
        "vssd: a freed block is discarded before its free is durable",
    ] {
        is_noticed(name, || stories(0..600));
    }
    // On zones an erase destroys what lies there: before the free is durable it is somebody's.
    for name in ["vssd: erase before free durable", "drives: a write pointer counts as flushed"] {
        is_noticed(name, || (0..60).for_each(story_on_zones));
    }
    is_noticed("vssd: tables of two lives are one", || (0..6_000).for_each(short_lives));
}

/// A pool with one vSSD on a drive, and a block of it with one IU that a flush covered.
fn with_a_block(seed: u64) -> (World, VssdId, LogicalBlock) {
    let mut world = make(seed, small_drive());
    let id = world.pool.alloc_vssd(Isolation::Channel, 0, 1).unwrap();
    world.make_durable();
    let block = world.allocate(id, 0);
    assert_eq!(append(&mut world, id, block), Ok(()));
    assert_eq!(flush(&mut world, id), Ok(()));
    (world, id, block)
}

fn answer(world: &mut World) -> Result<(), SpaceError> {
    while world.answers.is_empty() {
        let goes_on = world.step();
        assert!(goes_on || !world.answers.is_empty(), "it is answered");
    }
    assert_eq!(world.answers.len(), 1);
    world.answers.pop().unwrap().1.result
}

fn append(world: &mut World, id: VssdId, block: LogicalBlock) -> Result<(), SpaceError> {
    world.append(id, SpaceToken(1), block, 0x77, IoClass::HostWrite);
    answer(world)
}

fn flush(world: &mut World, id: VssdId) -> Result<(), SpaceError> {
    world.space(id).flush(SpaceToken(2));
    world.pool.take_ready(&mut world.answers);
    answer(world)
}

fn sync(world: &mut World, id: VssdId) -> Result<(), SpaceError> {
    world.space(id).sync(SpaceToken(3));
    world.pool.take_ready(&mut world.answers);
    answer(world)
}

/// Where a block of a vSSD begins on the drive.
fn offset_of(world: &World, id: VssdId, block: LogicalBlock) -> u64 {
    (1 << 20) + (u64::from(world.pool.place_of_block(id, block).unwrap()) << 20)
}

/// Goal: a drive whose flush failed is never trusted again. Method: the flush of a holder fails, then one of the log of block states.
#[test]
fn after_a_failed_flush_nothing_is_promised() {
    let (mut world, id, block) = with_a_block(1);
    assert_eq!(append(&mut world, id, block), Ok(()));
    world.media.io.faults_mut().flush_failures = 1;
    assert_eq!(flush(&mut world, id), Err(SpaceError::FlushFailed));
    assert_eq!(
        flush(&mut world, id),
        Err(SpaceError::FlushFailed),
        "the next one would succeed without the data"
    );
    assert_eq!(append(&mut world, id, block), Err(SpaceError::UnitOffline { unit: 0 }));
    let other = world.allocate(id, 0);
    assert!(append(&mut world, id, other).is_err());
    assert_eq!(sync(&mut world, id), Err(SpaceError::ReadOnly));
    assert_eq!(world.read(id, block, 0), Ok(0x77), "what was flushed before can be read");

    let (mut world, id, block) = with_a_block(2);
    world.media.io.faults_mut().flush_failures = 1;
    world.space(id).free(block).unwrap();
    assert_eq!(sync(&mut world, id), Err(SpaceError::ReadOnly));
    assert!(world.pool.is_state_log_lost() && world.pool.is_read_only(id));
    assert_eq!(world.space(id).allocate(UnitIndex(0), Purpose(1)), Err(SpaceError::ReadOnly));
}

/// Goal: a write that the drive refuses costs its block, and no other one. Method: the header is refused, then an append.
#[test]
fn refused_writes_cost_their_block() {
    let (mut world, id, block) = with_a_block(3);
    let next = world.allocate(id, 0);
    let at = offset_of(&world, id, next);
    world.media.io.faults_mut().unwritable = vec![Stretch { offset: at, len_bytes: 512 }];
    let failed = |block: LogicalBlock| Err(SpaceError::AppendFailed { unit: 0, index: block.index });
    assert_eq!(append(&mut world, id, next), failed(next), "its header was refused");
    let at = offset_of(&world, id, block) + 3 * 4096;
    world.media.io.faults_mut().unwritable = vec![Stretch { offset: at, len_bytes: 512 }];
    assert_eq!(append(&mut world, id, block), Ok(()));
    assert_eq!(append(&mut world, id, block), failed(block));
    assert_eq!(append(&mut world, id, block), failed(block), "nothing is programmed behind it");
    assert_eq!([0, 1].map(|iu| world.read(id, block, iu)), [Ok(0x77); 2]);
    assert!(world.read(id, block, 2).is_err());
    let retired = |world: &World| (0..u32::from(LANES)).map(|die| world.pool.retired_of(die)).sum::<u32>();
    assert_eq!(retired(&world), 0);
    for block in [block, next] {
        world.space(id).free(block).unwrap();
    }
    assert_eq!(sync(&mut world, id), Ok(()));
    assert_eq!(retired(&world), 2);
    world.pool.check_invariants();
    let world = open_again(world, true);
    assert_eq!(retired(&world), 2, "they are retired for good");
}

/// Goal: a file on a full file system costs no block. Method: the drive says that it has no room.
#[test]
fn a_full_drive_wears_no_block_out() {
    let (mut world, id, block) = with_a_block(4);
    world.media.io.faults_mut().is_full = true;
    let failed = Err(SpaceError::AppendFailed { unit: 0, index: block.index });
    assert_eq!(append(&mut world, id, block), failed);
    world.media.io.faults_mut().is_full = false;
    assert_eq!(append(&mut world, id, block), failed, "nobody knows what the refused write left");
    world.space(id).free(block).unwrap();
    assert_eq!(sync(&mut world, id), Ok(()));
    assert!((0..u32::from(LANES)).all(|die| world.pool.retired_of(die) == 0));
    let block = world.allocate(id, 0);
    assert_eq!(append(&mut world, id, block), Ok(()));
}

/// Goal: a drive that is gone is answered for.
#[test]
fn a_drive_that_is_gone_answers() {
    let (mut world, id, block) = with_a_block(5);
    world.media.io.faults_mut().is_gone = true;
    assert_eq!(append(&mut world, id, block), Err(SpaceError::UnitOffline { unit: 0 }));
    assert_eq!(flush(&mut world, id), Err(SpaceError::FlushFailed));
    assert_eq!(world.read(id, block, 0), Err(SpaceError::UnitOffline { unit: 0 }));
    assert_eq!(sync(&mut world, id), Ok(()), "nothing was changed");
}

/// Goal: what a drive cannot do is refused: exchanges of dies it hides, and erases that take away what it keeps.
#[test]
fn what_a_drive_cannot_do_is_refused() {
    let (mut world, id, block) = with_a_block(6);
    assert_eq!(world.pool.exchange_dies(0, 1), Err(ExchangeError::HiddenDies));
    assert_eq!(world.pool.wear_thresholds(), [0, 0]);
    let wear = *world.pool.wear_config();
    world.pool.set_wear(wear);
    assert_eq!(world.pool.wear_thresholds(), [0, 0]);
    world.space(id).free(block).unwrap();
    assert_eq!(sync(&mut world, id), Ok(()));
    world.space(id).erase_freed(SpaceToken(4));
    world.pool.take_ready(&mut world.answers);
    assert_eq!(answer(&mut world), Err(SpaceError::NotErased { blocks: 1 }));
}

/// Why a pool on a drive does not open.
fn refusal(mut media: Driven<DriveMedium, Drive>, config: PoolConfig) -> Option<OpenError> {
    let mut pool = Pool::open_from_flash(&mut media, config, Time::ZERO);
    let (mut now, mut completions, mut answers) = (Time::ZERO, Vec::new(), Vec::new());
    while !pool.is_open() && pool.open_error().is_none() {
        now = now.max(media.next_event());
        media.advance(now, &mut completions);
        for completion in completions.drain(..) {
            pool.complete(completion, now, &mut media, &mut answers);
        }
    }
    pool.open_error().cloned()
}

/// Goal: nothing is taken for a pool that is none. Method: a drive that nobody made one on; the one of another device, and of another pool; a
/// drive that cannot be flushed; a pool whose making a cut ended.
#[test]
fn only_its_own_pool_is_opened() {
    let media = opened(Drive::new(small_drive(), 1));
    let config = config(media.geometry());
    assert_eq!(refusal(media, config.clone()), Some(OpenError::Damaged));
    let drive = |world: World| {
        let mut drive = world.media.io;
        drive.cut();
        drive
    };
    let of_device = PoolConfig { nonces: Some(Nonces::new([0x5e; 16], [0xd2; 16])), ..config.clone() };
    let media = opened(drive(with_a_block(7).0));
    assert_eq!(refusal(media, of_device), Some(OpenError::Damaged));
    let mut media = opened(drive(with_a_block(7).0));
    media.io.faults_mut().flush_failures = 1;
    assert_eq!(refusal(media, config.clone()), Some(OpenError::FlushFailed));
    assert_eq!(refusal(opened(drive(with_a_block(7).0)), config.clone()), None);
    // Of another pool the states are read, and the blocks count as never begun.
    let of_pool = PoolConfig { nonces: Some(Nonces::new([0x5f; 16], [0xd1; 16])), ..config.clone() };
    let (world, id, block) = with_a_block(7);
    let mut world = World::open(opened(drive(world)), of_pool, Time::ZERO);
    assert_eq!(world.space(id).held_blocks()[0].written_pages, 0);
    assert!(world.read(id, block, 0).is_err());
    for seed in 0..40 {
        let mut media = opened(Drive::new(small_drive(), seed));
        let mut pool = Pool::make_on_flash(&media, config.clone()).unwrap();
        pool.make_durable(&mut media, Time::ZERO);
        let (mut now, mut completions) = (Time::ZERO, Vec::new());
        for _ in 0..seed {
            now = now.max(media.next_event().min(Time(u64::MAX / 2)));
            media.advance(now, &mut completions);
            completions.drain(..).for_each(|done| pool.complete(done, now, &mut media, &mut Vec::new()));
        }
        let is_made = pool.is_durable();
        let mut drive = media.io;
        drive.cut();
        let error = refusal(opened(drive), config.clone());
        assert!(error.is_none() || !is_made, "seed {seed}: {error:?}");
    }
}

/// Goal: each copy of the block states is enough. Method: what is written of one of them rots.
#[test]
fn one_copy_of_the_block_states_is_enough() {
    for lane in 0..u64::from(LANES) {
        let (world, id, block) = with_a_block(8 + lane);
        let mut drive = world.media.io;
        drive.cut();
        // What comes first of a lane is the system's.
        let len_bytes = 2 << 20;
        drive.faults_mut().rotten = vec![Stretch { offset: (1 << 20) + (lane << 24), len_bytes }];
        let mut world = World::open(opened(drive), world.config, Time::ZERO);
        assert_eq!(world.space(id).held_blocks().len(), 1, "lane {lane}");
        world.media.io.faults_mut().rotten.clear();
        assert_eq!(world.read(id, block, 0), Ok(0x77), "lane {lane}");
    }
}

fn flushes_without_a_cache() {
    let profile = DriveProfile { is_durable_at_once: true, ..small_drive() };
    let mut world = make(1, profile);
    let id = world.pool.alloc_vssd(Isolation::Channel, 0, 8 << 20).unwrap();
    assert!(!world.media.capabilities().volatile_cache);
    assert!(world.space(id).shape().volatile_cache, "holders flush what they append");
}

/// Goal: holders on a drive that keeps what it takes flush, too: their notes of that are all that tells a loss from the end of what was written.
#[test]
fn a_drive_without_a_cache_is_flushed() {
    flushes_without_a_cache();
    is_noticed("vssd: a drive without a cache is not flushed", flushes_without_a_cache);
}
