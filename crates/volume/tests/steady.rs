//! Goal: a store under steady random overwrites cleans as well as an ideal cleaner of the same size, and lets its writers on
//! at an even pace. Method: a closed loop in virtual time on an emulated device with its exact timing, one vSSD over all of it,
//! tags for content; the ideal cleaner is a model of its own.

use crate::common;
use diecut_emulator::{Backing, Device, Options, Profile};
use diecut_media::Media;
use diecut_spec::Isolation;
use diecut_units::{BufferMut, ContentMode, IU_SIZE_BYTES, Payload, ProtectedMemory, Span, Time};
use diecut_volume::contract::*;
use diecut_volume::{Placement, Store, StoreConfig};
use diecut_vssd::{LevelTable, Pool, PoolConfig, VssdId};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

struct Random(u64);

impl Random {
    /// xorshift64*.
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * u128::from(end)) >> 64) as u64
    }
}

/// A device with a store over all of it.
struct World {
    device: Device,
    pool: Pool,
    id: VssdId,
    store: Store,
    now: Time,
    random: Random,
    written_ius: u64,
    size_ius: u64,
    /// When each write under way was given, by token.
    since: BTreeMap<u64, Time>,
    next: u64,
    /// Of writes answered since they were last cleared, in nanoseconds.
    latencies: Vec<u64>,
    answered_at: Time,
    gap_longest: Span,
}

struct Shape<'a> {
    profile: &'a str,
    channels: u16,
    blocks_per_plane: u32,
    pages_per_block: u32,
    over_provisioning_permille: u32,
    /// Of protected memory, as many bytes of content.
    staging_bytes: usize,
    seed: u64,
}

/// What was met while the volume was overwritten once.
#[derive(Debug)]
struct Met {
    p50_us: u64,
    p99_us: u64,
    p999_us: u64,
    gap_longest_us: u64,
    /// Mean latency by Little's law.
    little_us: u64,
    waf_cleaner: f64,
    waf_total: f64,
    /// Part of the time of all dies in which they have a command.
    busy: f64,
}

impl World {
    fn new(shape: &Shape) -> World {
        let mut profile = Profile::named(shape.profile).unwrap();
        profile.geometry.channels = shape.channels;
        profile.geometry.blocks_per_plane = shape.blocks_per_plane;
        profile.geometry.pages_per_block = shape.pages_per_block;
        profile.bad_blocks.factory_percent = 0.0;
        profile.protected_memory_bytes = 64 << 20;
        let options = Options { backing: Backing::Tags, seed: 1, ..Options::default() };
        let mut device = Device::create(&profile, options).unwrap();
        let mut config = PoolConfig::suited_to(device.geometry());
        config.levels = LevelTable { channels: vec![shape.channels.into()], ..config.levels };
        let mut pool = Pool::create(&device, config);
        let id = pool.alloc_vssd(Isolation::Channel, 0, 1).unwrap();
        // As many chunks as content would have.
        let staging = (shape.staging_bytes > 0).then(|| shape.staging_bytes / (129 * IU_SIZE_BYTES) * 5248);
        let memory = staging.map(ProtectedMemory::in_memory);
        let region = memory.map(|memory| memory.region(0..memory.size_bytes()));
        let mut space = pool.space(id, &mut device, Time::ZERO);
        let exported =
            Store::exportable_ius(&space, staging, shape.over_provisioning_permille, Placement::default());
        let config = StoreConfig { exported_ius: exported, ..common::config() };
        let store = Store::open(config, &mut space, region);
        let mut world = World {
            device,
            pool,
            id,
            store,
            now: Time::ZERO,
            random: Random(0x9e37_79b9_7f4a_7c15 ^ shape.seed),
            written_ius: 0,
            size_ius: exported,
            since: BTreeMap::new(),
            next: 0,
            latencies: Vec::new(),
            answered_at: Time::ZERO,
            gap_longest: Span(0),
        };
        while !world.store.is_ready() {
            world.step();
        }
        world.store.create_volume(VolumeToken(u64::MAX), VolumeIndex(0), exported);
        world.step();
        world
    }

    fn submit(&mut self, first_iu: u64, count: usize) {
        self.next += 1;
        self.since.insert(self.next, self.now);
        let payload = Payload::new(ContentMode::Tags, BufferMut::copy_from(&vec![7; 8 * count]).freeze());
        let operation = VolumeOperation::Write {
            first_iu,
            payload,
            force_unit_access: false,
            placement: PlacementTarget::default(),
        };
        let command = VolumeCommand { token: VolumeToken(self.next), volume: VolumeIndex(0), operation };
        let mut space = self.pool.space(self.id, &mut self.device, self.now);
        self.written_ius += count as u64;
        self.store.submit(command, &mut space, &mut Vec::new());
    }

    /// Lets the store work, and time pass to what comes next if it has nothing to do.
    fn step(&mut self) {
        let (mut media, mut answers, mut out) = (Vec::new(), Vec::new(), Vec::new());
        let mut space = self.pool.space(self.id, &mut self.device, self.now);
        self.store.work(self.now, &mut space, &mut out);
        self.pool.take_ready(&mut answers);
        if answers.is_empty() && out.is_empty() {
            let next = self.device.next_event().min(self.pool.deadline()).min(self.store.deadline());
            self.now = self.now.max(next);
            self.device.advance(self.now, &mut media);
            for completion in media.drain(..) {
                self.pool.complete(completion, self.now, &mut self.device, &mut answers);
            }
            self.pool.work(self.now, &mut self.device);
            self.pool.take_ready(&mut answers);
        }
        for (_, answer) in answers.drain(..) {
            let mut space = self.pool.space(self.id, &mut self.device, self.now);
            self.store.complete(answer, &mut space, &mut out);
        }
        for answer in out.drain(..) {
            assert_eq!(answer.result, Ok(()));
            if let Some(since) = self.since.remove(&answer.token.0) {
                self.latencies.push(self.now.since(since).0);
                self.gap_longest = self.gap_longest.max(self.now.since(self.answered_at));
                self.answered_at = self.now;
            }
        }
    }

    fn fill(&mut self) {
        let mut at = 0;
        while at < self.size_ius {
            let count = 64.min(self.size_ius - at);
            self.submit(at, count as usize);
            at += count;
            while self.since.len() >= 16 {
                self.step();
            }
        }
    }

    /// Writes single IUs at random, `depth` under way.
    fn overwrite(&mut self, depth: usize, count: u64) {
        for _ in 0..count {
            while self.since.len() >= depth {
                self.step();
            }
            let at = self.random.below(self.size_ius);
            self.submit(at, 1);
        }
    }

    fn measure(&mut self, depth: usize, count: u64) -> Met {
        while self.since.len() >= depth {
            self.step();
        }
        let (start, before) = (self.now, self.store.statistics());
        let busy_before = self.device.statistics().busy_ns;
        self.latencies.clear();
        (self.gap_longest, self.answered_at) = (Span(0), self.now);
        self.overwrite(depth, count);
        let (after, ns) = (self.store.statistics(), self.now.since(start).0);
        let mut sorted = std::mem::take(&mut self.latencies);
        sorted.sort_unstable();
        let at = |permille: usize| sorted[(sorted.len() * permille / 1000).min(sorted.len() - 1)] / 1000;
        let user = (after.log.user_ius() - before.log.user_ius()) as f64;
        let all = |log: &diecut_log::LogStatistics| {
            log.user_ius()
                + log.cleaner_ius()
                + log.map_ius()
                + log.anchor_ius
                + log.summary_ius
                + log.padding_ius
        };
        Met {
            p50_us: at(500),
            p99_us: at(990),
            p999_us: at(999),
            gap_longest_us: self.gap_longest.0 / 1000,
            little_us: (depth as u64 * ns) / sorted.len() as u64 / 1000,
            waf_cleaner: 1.0 + (after.log.cleaner_ius() - before.log.cleaner_ius()) as f64 / user,
            waf_total: (all(&after.log) - all(&before.log)) as f64 / user,
            busy: (self.device.statistics().busy_ns - busy_before) as f64
                / (ns * u64::from(self.device.geometry().dies())) as f64,
        }
    }
}

/// Write amplification of the ideal: whole segments of `segment_ius`, `physical_ius` in all, nothing kept back but the one
/// that is written; the victim is the one with the least to copy, and copies cost no time.
fn ideal_greedy_waf(segment_ius: u64, physical_ius: u64, exported_ius: u64, seed: u64) -> f64 {
    let segments = (physical_ius / segment_ius) as usize;
    let mut random = Random(seed);
    let mut place = vec![u32::MAX; exported_ius as usize];
    let mut content: Vec<Vec<u32>> = vec![Vec::new(); segments];
    let mut valid = vec![0u32; segments];
    let mut free: Vec<usize> = (1..segments).collect();
    let (mut open, mut copied, mut counted) = (0, 0u64, 0u64);
    let overwrites = 5 * exported_ius;
    for step in 0..exported_ius + overwrites {
        let page = if step < exported_ius { step } else { random.below(exported_ius) } as usize;
        counted += u64::from(step >= exported_ius + overwrites / 2);
        let mut queue = vec![page as u32];
        while let Some(page) = queue.pop() {
            if content[open].len() as u64 == segment_ius {
                if free.is_empty() {
                    let victim = (0..segments).filter(|at| *at != open).min_by_key(|at| valid[*at]).unwrap();
                    let live: Vec<u32> = content[victim]
                        .drain(..)
                        .filter(|page| place[*page as usize] == victim as u32)
                        .collect();
                    // In place: it becomes the open one with its live pages at its start.
                    if step >= exported_ius + overwrites / 2 {
                        copied += live.len() as u64;
                    }
                    content[victim] = live;
                    open = victim;
                } else {
                    open = free.pop().unwrap();
                }
            }
            if place[page as usize] != u32::MAX {
                valid[place[page as usize] as usize] -= 1;
            }
            place[page as usize] = open as u32;
            valid[open] += 1;
            content[open].push(page);
        }
    }
    1.0 + copied as f64 / counted as f64
}

fn steady(shape: &Shape, overwrites_percent: u64) -> World {
    let mut world = World::new(shape);
    world.fill();
    world.overwrite(64, world.size_ius * overwrites_percent / 100);
    world
}

/// Goal: the cleaner wastes nothing. Method: 4 KiB writes at random until its work is steady, at over-provisionings from 7 to
/// 50 %, beside an ideal cleaner with segments of the same size and as much room as the over-provisioning says.
#[test]
fn write_amplification_is_that_of_an_ideal_cleaner() {
    for (over_provisioning_permille, blocks_per_plane, overwrites_percent) in
        [(70, 400, 300), (150, 200, 300), (280, 200, 250), (500, 200, 200)]
    {
        let shape = Shape {
            profile: "cnex-1tb",
            channels: 1,
            blocks_per_plane,
            pages_per_block: 8,
            over_provisioning_permille,
            staging_bytes: 8 << 20,
            seed: 0,
        };
        let mut world = steady(&shape, overwrites_percent);
        let met = world.measure(64, world.size_ius);
        let size_ius = world.size_ius;
        let physical_ius = size_ius * (1000 + u64::from(over_provisioning_permille)) / 1000;
        let ideal = ideal_greedy_waf(512, physical_ius, size_ius, 1);
        println!("{over_provisioning_permille}: {met:?}, ideal {ideal:.3}");
        assert!(met.waf_cleaner < 1.05 * ideal, "{over_provisioning_permille}: {met:?}, ideal {ideal:.3}");
        // Heads, leaves and filler come on top.
        assert!(met.waf_total < 1.15 * ideal, "{over_provisioning_permille}: {met:?}, ideal {ideal:.3}");
    }
}

/// Goal: writers wait evenly, as long as Little's law says, while the cleaner works. Method: 64 random writes under way on a
/// full volume, and one, on cells that are programmed page by page and in one shot, with erases that take as long as several
/// hundred writes, on dies of one group of segments and of two. A cleaner that writers wait for as a whole makes gaps of
/// 113 and 632 ms on the first two. On the last one p99.9 is up to 15 times the mean if writers are slowed down for the
/// blocks of an anchor, and nobody is answered for 13 ms if all members of a segment are erased at once.
#[test]
fn writers_go_on_evenly_while_the_cleaner_works() {
    for (profile, channels, pages_per_block, busy, gap_us) in [
        ("cnex-1tb", 1, 64, 0.98, 0),
        ("tlc", 1, 48, 0.9, 0),
        ("cnex-1tb", 8, 16, 0.9, 0),
        ("tlc", 8, 48, 0.9, 2000),
    ] {
        let mut shape = full(profile, channels, pages_per_block);
        if (profile, channels) == ("tlc", 8) {
            shape.blocks_per_plane = 48;
        }
        let mut world = steady(&shape, if channels > 1 { 100 } else { 200 });
        check_evenness(&mut world, profile, busy, gap_us);
        let one = world.measure(1, world.size_ius / 20);
        println!("{profile}, {channels} channels, one under way: {one:?}");
        assert!(one.p999_us <= 2 * one.little_us + 100, "{profile}: {one:?}");
    }
}

fn full(profile: &str, channels: u16, pages_per_block: u32) -> Shape<'_> {
    Shape {
        profile,
        channels,
        blocks_per_plane: 64,
        pages_per_block,
        over_provisioning_permille: 280,
        staging_bytes: if channels > 1 { 32 << 20 } else { 8 << 20 },
        seed: 0,
    }
}

/// `gap_us`: so long nobody may be answered, at least.
fn check_evenness(world: &mut World, profile: &str, busy: f64, gap_us: u64) {
    let met = world.measure(64, world.size_ius / 2);
    println!("{profile}: {met:?}");
    assert!(met.p999_us <= 2 * met.little_us, "{profile}: {met:?}");
    assert!(met.p99_us <= 2 * met.little_us, "{profile}: {met:?}");
    assert!(met.p50_us <= 3 * met.little_us / 2, "{profile}: {met:?}");
    assert!(met.gap_longest_us <= gap_us.max(met.little_us), "{profile}: {met:?}");
    assert!(met.busy > busy, "{profile}: {met:?}");
}

/// The canary of the test above: a pace that is wrong is noticed, one that is right is not. What anchors take from the room shows where
/// segments are small, as a gap.
#[test]
fn planted_bugs_of_the_pace_are_noticed() {
    let is_even = || {
        let mut world = steady(&full("tlc", 1, 48), 200);
        std::panic::catch_unwind(AssertUnwindSafe(|| check_evenness(&mut world, "tlc", 0.9, 0))).is_ok()
    };
    let is_without_gap = || {
        let mut world = steady(&Shape { blocks_per_plane: 48, ..full("tlc", 8, 24) }, 100);
        let met = world.measure(64, world.size_ius / 2);
        println!("{met:?}");
        met.gap_longest_us <= met.little_us
    };
    assert!(is_even() && is_without_gap());
    let bugs: [(&str, &dyn Fn() -> bool); 3] = [
        ("log: writers that wait are not woken", &is_even),
        ("log: rate of writers never rises", &is_even),
        ("log: room comes and goes with anchors", &is_without_gap),
    ];
    for (name, holds) in bugs {
        if !diecut_units::marks::plant_mutant(Some(name)) {
            eprintln!("skipped: this build carries no planted bugs");
            return;
        }
        let noticed = !holds();
        assert!(diecut_units::marks::mutant_reached_count() > 0, "{name} was reached");
        diecut_units::marks::plant_mutant(None);
        assert!(noticed, "{name}");
    }
}
