//! The two copies of the block states on a drive with a volatile cache, where a table takes several program units.
//!
//! Goal: one whole copy is there at any time, and it knows what a complete sync covered. Method: a drive that keeps apart what no flush covered. After
//! each command that it carries out the power goes, once for each subset of these writes, and the pool is opened from what is left.

use diecut_drives::{DriveMedium, DriveShape};
use diecut_media::{Intent, IntentDone, IntentWork, Media};
use diecut_spec::Isolation;
use diecut_testing::driven::{CarryOut, Driven};
use diecut_testing::planted::is_noticed;
use diecut_testing::pool::PoolWorld;
use diecut_units::*;
use diecut_vssd::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Erase blocks enough for a table of block states of several program units.
const SIZE_BYTES: u64 = 258 << 20;
const LANES: u16 = 4;
/// More writes than are in the cache at once: their subsets are tried one by one.
const CACHED_MAX: usize = 10;

/// A drive that carries out one command at a time.
#[derive(Default)]
struct Keeper {
    durable: BTreeMap<u64, Vec<u8>>,
    /// Writes that no flush covered, in their order.
    cached: Vec<(u64, Vec<u8>)>,
    under_way: VecDeque<Intent>,
}

impl Keeper {
    /// What a cut leaves: of the writes that are in the cache or under way those of a subset.
    fn after_cut(&self, subset: u32) -> Keeper {
        let mut durable = self.durable.clone();
        let kept = self.in_cache().into_iter().enumerate().filter(|(at, _)| subset & (1 << at) != 0);
        kept.for_each(|(_, (offset, bytes))| put(&mut durable, offset, &bytes));
        Keeper { durable, ..Keeper::default() }
    }

    fn read_page(&self, offset: u64, page: &mut [u8]) {
        let has = |(at, bytes): &&(u64, Vec<u8>)| (*at..*at + bytes.len() as u64).contains(&offset);
        let cached = self.cached.iter().rev().find(has);
        let cached = cached.map(|(at, bytes)| &bytes[(offset - at) as usize..][..IU_SIZE_BYTES]);
        match cached.or_else(|| self.durable.get(&offset).map(|bytes| &bytes[..])) {
            Some(bytes) => page.copy_from_slice(bytes),
            // What was never written reads as anything.
            None => page.fill(0xee),
        }
    }

    fn in_cache(&self) -> Vec<(u64, Vec<u8>)> {
        let under_way = self.under_way.iter().filter_map(|intent| match &intent.work {
            IntentWork::Write { offset, parts, .. } => Some((*offset, joined(parts))),
            _ => None,
        });
        self.cached.iter().cloned().chain(under_way).collect()
    }
}

fn joined(parts: &[Buffer]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.to_vec()).collect()
}

fn put(image: &mut BTreeMap<u64, Vec<u8>>, offset: u64, bytes: &[u8]) {
    for (at, page) in (offset..).step_by(IU_SIZE_BYTES).zip(bytes.chunks(IU_SIZE_BYTES)) {
        image.insert(at, page.to_vec());
    }
}

impl CarryOut for Keeper {
    fn begin(&mut self, intents: &mut Vec<Intent>, _now: Time) {
        self.under_way.extend(intents.drain(..));
    }

    fn end(&mut self, _now: Time, done: &mut Vec<IntentDone>) {
        let Some(Intent { token, work }) = self.under_way.pop_front() else { return };
        let mut answer = IntentDone { token, buffer: None, result: Ok(()) };
        match work {
            IntentWork::Read { offset, mut buffer } => {
                for (at, page) in (offset..).step_by(IU_SIZE_BYTES).zip(buffer.chunks_mut(IU_SIZE_BYTES)) {
                    self.read_page(at, page);
                }
                answer.buffer = Some(buffer);
            }
            IntentWork::Write { offset, parts, .. } => self.cached.push((offset, joined(&parts))),
            IntentWork::Sync => {
                let cached = std::mem::take(&mut self.cached);
                cached.iter().for_each(|(offset, bytes)| put(&mut self.durable, *offset, bytes));
            }
            work => panic!("nothing is discarded, and there are no zones: {work:?}"),
        }
        done.push(answer);
    }

    fn next_event(&self) -> Time {
        if self.under_way.is_empty() { Time::NEVER } else { Time::ZERO }
    }
}

type World = PoolWorld<Driven<DriveMedium, Keeper>>;

fn opened(drive: Keeper) -> Driven<DriveMedium, Keeper> {
    let shape = DriveShape::plan(SIZE_BYTES, LANES, Some(1 << 20)).unwrap();
    Driven::new(DriveMedium::new(shape, true, false), drive)
}

/// Blocks that a sync says are held, and those that may be.
#[derive(Default)]
struct Held {
    sure: BTreeSet<LogicalBlock>,
    perhaps: BTreeSet<LogicalBlock>,
}

/// The power goes in each way that it can here. Says how many writes were in the cache.
fn cut_in_all_ways(world: &World, id: VssdId, held: &Held) -> usize {
    let cached = world.media.io.in_cache().len();
    assert!(cached <= CACHED_MAX, "{cached} writes are in the cache");
    for subset in 0..1 << cached {
        let after = world.media.io.after_cut(subset);
        let mut after = World::open(opened(after), world.config.clone(), Time::ZERO);
        let found: BTreeSet<LogicalBlock> =
            after.space(id).held_blocks().iter().map(|held| held.block).collect();
        assert!(found.is_superset(&held.sure), "subset {subset:b}: {found:?}, {:?}", held.sure);
        assert!(found.is_subset(&held.perhaps), "subset {subset:b}: {found:?}, {:?}", held.perhaps);
        after.pool.check_invariants();
    }
    cached
}

/// Blocks are allocated, with a sync after each. Says how many writes were in the cache at most.
fn allocates(world: &mut World, id: VssdId, held: &mut Held, count: u32) -> usize {
    let mut most = 0;
    for _ in 0..count {
        held.perhaps.insert(world.allocate(id, 0));
        world.space(id).sync(SpaceToken(1));
        while world.answers.is_empty() {
            assert!(world.step(), "a sync is answered");
            most = most.max(cut_in_all_ways(world, id, held));
        }
        assert_eq!(world.answers.pop().unwrap().1.result, Ok(()));
        held.sure.clone_from(&held.perhaps);
    }
    most
}

fn three_generations() {
    let media = opened(Keeper::default());
    let nonces = Some(Nonces::new([0x5e; 16], [0xd1; 16]));
    let config = PoolConfig { nonces, ..PoolConfig::suited_to(media.geometry()) };
    let mut world = World::make(media, config, Time::ZERO);
    let id = world.pool.alloc_vssd(Isolation::Channel, 0, 16 << 20).unwrap();
    world.make_durable();
    let mut held = Held::default();
    // Each opening begins a generation, in the blocks of the one before the last.
    for life in 0..3 {
        let World { media, config, .. } = world;
        world = World::open(opened(media.io.after_cut(0)), config, Time::ZERO);
        let most = allocates(&mut world, id, &mut held, 3);
        assert!(most > 1, "life {life}: a table takes several program units");
    }
}

#[test]
fn a_whole_copy_is_there_at_any_time() {
    three_generations();
}

/// Goal: the test above finds what it is for. Method: planted bugs.
#[test]
fn planted_bugs_are_noticed() {
    is_noticed("vssd: both copies of the block states share a flush", three_generations);
    is_noticed("vssd: the log of block states does not flush", three_generations);
}
