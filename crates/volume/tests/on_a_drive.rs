//! A store on a vSSD of a pool on a drive that hides its flash.
//!
//! Goal: what was flushed is there after any cut, through all rooms: volume, log, pool, medium. Method: random writes, deallocations and flushes on the
//! model of a drive; at some moment the power goes or the process dies, all is opened again, and each IU has its last flushed content or a later one.

use diecut_drives::{DriveMedium, DriveShape, Zoning};
use diecut_emulator::drive::{Drive, DriveProfile, ZoneProfile};
use diecut_media::Media;
use diecut_spec::Isolation;
use diecut_testing::Random;
use diecut_testing::depth::depth;
use diecut_testing::driven::Driven;
use diecut_testing::planted::is_noticed;
use diecut_testing::pool::PoolWorld;
use diecut_testing::versions::Versions;
use diecut_units::*;
use diecut_volume::contract::*;
use diecut_volume::{AnchorPace, Store, StoreConfig};
use diecut_vssd::{Nonces, PoolConfig, VssdId};
use std::collections::BTreeMap;

type World = PoolWorld<Driven<DriveMedium, Drive>>;

const SIZE_BYTES: u64 = 98 << 20;
const LANES: u16 = 4;
const SIZE_IUS: u64 = 1000;
const VOLUME: VolumeIndex = VolumeIndex(0);

/// A drive that is written in zones, of which each lane has 14 places for partly written ones.
fn zoned(lanes: u16) -> DriveProfile {
    let (size_bytes, active_max) = (1 << 20, 14 * u32::from(lanes));
    let zones = ZoneProfile {
        size_bytes,
        capacity_bytes: size_bytes - 4096,
        conventional: 0,
        active_max,
        unit_bytes: 512,
    };
    DriveProfile { zones: Some(zones), ..DriveProfile::nvme(SIZE_BYTES) }
}

fn opened(drive: Drive, lanes: u16) -> Driven<DriveMedium, Drive> {
    if let Some(zones) = drive.profile().zones {
        let statistics = drive.zone_statistics();
        assert_eq!((statistics.out_of_order, statistics.too_many), (0, 0), "the drive refused writes");
        let (zone_size_bytes, active_max) = (zones.size_bytes, zones.active_max);
        let zoning = Zoning { zone_size_bytes, active_max, open_max: 0, zones: drive.zones(), dies: None };
        let shape = zoning.shape(Some(lanes)).unwrap();
        let medium = DriveMedium::zoned(shape, !drive.profile().is_durable_at_once, &zoning, 8);
        return Driven::new(medium, drive);
    }
    let shape = DriveShape::plan(drive.profile().size_bytes, lanes, Some(1 << 20)).unwrap();
    let medium = DriveMedium::new(shape, !drive.profile().is_durable_at_once, true);
    Driven::new(medium, drive)
}

/// Marks versions that read as zeros: each deallocation is one of its own.
const DEALLOCATED: u64 = 1 << 63;

fn content(iu: u64, version: u64) -> Vec<u8> {
    if version == 0 || version & DEALLOCATED != 0 {
        return vec![0; IU_SIZE_BYTES];
    }
    [iu, version].map(u64::to_le_bytes).concat().repeat(IU_SIZE_BYTES / 16)
}

/// What was asked and not answered.
enum Asked {
    Change { first: u64, count: u64, version: u64 },
    Flush { covered: Vec<(u64, u64, u64)> },
    Read { first: u64, allowed: Vec<Vec<u64>> },
    Other,
}

struct Story {
    seed: u64,
    random: Random,
    world: World,
    id: VssdId,
    lanes: u16,
    store: Option<Store>,
    versions: Versions,
    asked: BTreeMap<u64, Asked>,
    /// Answered and not flushed: first, count, version.
    cached: Vec<(u64, u64, u64)>,
    next: u64,
    volatile_cache: bool,
}

impl Story {
    fn new(seed: u64) -> Story {
        Story::on(DriveProfile::nvme(SIZE_BYTES), seed, LANES)
    }

    fn on(profile: DriveProfile, seed: u64, lanes: u16) -> Story {
        let media = opened(Drive::new(profile, seed), lanes);
        let nonces = Some(Nonces::new([0x5e; 16], [0xd1; 16]));
        let config = PoolConfig { nonces, ..PoolConfig::suited_to(media.geometry()) };
        let mut world = World::make(media, config, Time::ZERO);
        let id = world.pool.alloc_vssd(Isolation::Channel, 0, SIZE_BYTES / 2).unwrap();
        world.make_durable();
        let mut story = Story {
            seed,
            random: Random::of(seed),
            world,
            id,
            lanes,
            store: None,
            versions: Versions::new(SIZE_IUS),
            asked: BTreeMap::new(),
            cached: Vec::new(),
            next: 0,
            volatile_cache: seed.is_multiple_of(2),
        };
        story.open();
        let token = story.token(Asked::Other);
        story.store.as_mut().unwrap().create_volume(token, VOLUME, SIZE_IUS);
        story.settle();
        story
    }

    fn token(&mut self, asked: Asked) -> VolumeToken {
        self.next += 1;
        self.asked.insert(self.next, asked);
        VolumeToken(self.next)
    }

    fn open(&mut self) {
        let config = StoreConfig {
            volatile_cache: self.volatile_cache,
            anchor_pace: AnchorPace {
                ius_per_leaf: 4 + self.seed % 40,
                ius_per_anchor_iu: 3 + self.seed % 9,
            },
            ..StoreConfig::default()
        };
        self.store = Some(Store::open(config, &mut self.world.space(self.id), None));
        for _ in 0..100_000 {
            if self.store.as_ref().unwrap().is_ready() {
                let found = self.store.as_ref().unwrap().read_only_reason();
                assert_eq!(found, None, "seed {}: nothing is missing", self.seed);
                return;
            }
            self.step();
        }
        panic!("seed {}: recovery does not end", self.seed);
    }

    /// Goes on to what happens next.
    fn step(&mut self) {
        self.world.step();
        let mut done = Vec::new();
        let store = self.store.as_mut().unwrap();
        for (_, completion) in std::mem::take(&mut self.world.answers) {
            store.complete(completion, &mut self.world.space(self.id), &mut done);
        }
        let now = self.world.now;
        store.work(now, &mut self.world.space(self.id), &mut done);
        if self.world.media.next_event() == Time::NEVER && store.deadline() != Time::NEVER {
            self.world.now = now.max(store.deadline());
        }
        done.into_iter().for_each(|completion| self.done(completion));
    }

    fn done(&mut self, completion: VolumeCompletion) {
        let asked = self.asked.remove(&completion.token.0).expect("answered once");
        assert_eq!(completion.result, Ok(()), "seed {}", self.seed);
        match asked {
            Asked::Change { first, count, version } if self.volatile_cache => {
                self.cached.push((first, count, version));
            }
            Asked::Change { first, count, version } => self.durable(first, count, version),
            Asked::Flush { covered } => {
                covered.into_iter().for_each(|(first, count, version)| self.durable(first, count, version));
            }
            Asked::Read { first, allowed } => {
                let data = completion.destination.expect("read");
                for ((iu, found), allowed) in (first..).zip(data.chunks(IU_SIZE_BYTES)).zip(allowed) {
                    let is_right = allowed.iter().any(|version| found == &content(iu, *version)[..]);
                    assert!(
                        is_right,
                        "seed {}: IU {iu} has none of {allowed:?}: {:?}",
                        self.seed,
                        &found[..16]
                    );
                }
            }
            Asked::Other => {}
        }
    }

    fn durable(&mut self, first: u64, count: u64, version: u64) {
        self.versions.make_durable(first..first + count, version);
    }

    fn submit(&mut self, token: VolumeToken, operation: VolumeOperation) {
        let mut done = Vec::new();
        let command = VolumeCommand { token, volume: VOLUME, operation };
        self.store.as_mut().unwrap().submit(command, &mut self.world.space(self.id), &mut done);
        done.into_iter().for_each(|completion| self.done(completion));
    }

    fn command(&mut self) {
        let first = self.random.below(SIZE_IUS);
        let count = 1 + self.random.below((SIZE_IUS - first).min(40));
        match self.random.below(12) {
            0 => {
                let covered = std::mem::take(&mut self.cached);
                let token = self.token(Asked::Flush { covered });
                self.submit(token, VolumeOperation::Flush);
            }
            1 => self.read(first, count),
            kind => {
                let version = (self.next + 1) | if kind == 2 { DEALLOCATED } else { 0 };
                let token = self.token(Asked::Change { first, count, version });
                self.versions.write(first..first + count, version);
                if version == 0 {
                    return self
                        .submit(token, VolumeOperation::Deallocate { first_iu: first, iu_count: count });
                }
                let bytes: Vec<u8> = (first..first + count).flat_map(|iu| content(iu, version)).collect();
                let payload = Payload::new(ContentMode::Bytes, Buffer::copy_from(&bytes));
                let placement = PlacementTarget::default();
                let write =
                    VolumeOperation::Write { first_iu: first, payload, force_unit_access: false, placement };
                self.submit(token, write);
            }
        }
    }

    fn read(&mut self, first: u64, count: u64) {
        let allowed = (first..first + count).map(|iu| self.versions.allowed(iu).to_vec()).collect();
        let token = self.token(Asked::Read { first, allowed });
        let destination = BufferMut::copy_from(&vec![0xee; count as usize * IU_SIZE_BYTES]);
        self.submit(token, VolumeOperation::Read { first_iu: first, iu_count: count as u32, destination });
    }

    fn settle(&mut self) {
        for _ in 0..200_000 {
            if self.asked.is_empty() {
                return self.store.as_ref().unwrap().check_invariants();
            }
            self.step();
        }
        panic!(
            "seed {}: {} do not end: {}",
            self.seed,
            self.asked.len(),
            self.store.as_ref().unwrap().describe()
        );
    }

    /// Everything but the drive is forgotten. A cut takes what it likes of what was not flushed.
    fn restart(mut self) -> Story {
        let cut = self.volatile_cache || self.random.below(3) > 0;
        let mut drive = self.world.media.io;
        if cut {
            drive.cut();
        } else {
            drive.process_death();
        }
        let world = World::open(opened(drive, self.lanes), self.world.config, Time::ZERO);
        let mut story = Story { world, store: None, asked: BTreeMap::new(), cached: Vec::new(), ..self };
        story.open();
        assert_eq!(
            story.store.as_ref().unwrap().volume_size_ius(VOLUME),
            Some(SIZE_IUS),
            "seed {}",
            story.seed
        );
        for first in (0..SIZE_IUS).step_by(50) {
            story.read(first, 50);
        }
        story.settle();
        story
    }
}

fn run(seed: u64) {
    lives(Story::new(seed));
}

fn run_on_zones(seed: u64) {
    let lanes = if seed.is_multiple_of(3) { 1 } else { LANES };
    let story = lives(Story::on(zoned(lanes), seed, lanes));
    // Is the drive good for what this is for?
    assert!(story.world.media.io.zone_statistics().resets > 0);
}

fn lives(mut story: Story) -> Story {
    for _ in 0..4 {
        for _ in 0..60 + story.random.below(200) {
            if story.asked.len() < 16 {
                story.command();
            }
            (0..story.random.below(4)).for_each(|_| story.step());
        }
        story = story.restart();
    }
    story.settle();
    story
}

/// Goal: a drive is overwritten for ever, also one of a single lane. Method: many times what the vSSD holds, in large and small pieces, without a cut.
#[test]
fn a_drive_is_overwritten_for_ever() {
    let drives = [1, LANES].map(|lanes| [(DriveProfile::nvme(SIZE_BYTES), lanes), (zoned(lanes), lanes)]);
    for (profile, lanes) in drives.into_iter().flatten() {
        let mut story = Story::on(profile, 7, lanes);
        let mut written = 0;
        while written < depth(4, 6) * SIZE_BYTES / IU_SIZE_BYTES as u64 {
            if story.asked.len() < 32 {
                let before = story.next;
                story.command();
                written += (story.next - before) * 20;
            }
            story.step();
        }
        story.settle();
        let statistics = story.store.as_ref().unwrap().statistics();
        assert!(statistics.log.segments_freed > 20, "{lanes} lanes: {statistics:?}");
        let zones = story.world.media.io.zone_statistics();
        let is_zoned = profile.zones.is_some();
        assert!(
            (zones.resets > 100) == is_zoned && (zones.active_most > 14) == (is_zoned && lanes > 1),
            "{zones:?}"
        );
    }
}

#[test]
fn what_was_flushed_is_there_after_any_cut() {
    (0..depth(6, 500)).for_each(run);
}

/// Goal: the same on a drive that is written in zones, where a cut sets write pointers back.
#[test]
fn what_was_flushed_is_there_on_zones() {
    (0..depth(6, 500)).for_each(run_on_zones);
}

/// Goal: the same test notices what goes wrong between the rooms.
#[test]
fn planted_bugs_are_noticed() {
    for name in [
        "log: what is programmed counts as durable",
        "vssd: a flush is answered at once",
        "drives: a flush does nothing",
    ] {
        is_noticed(name, || (0..20).for_each(run));
    }
    for name in [
        "log: what is programmed counts as durable",
        "drives: a write pointer counts as flushed",
        "drives: a zone is discarded while it gives way",
    ] {
        is_noticed(name, || (0..20).for_each(run_on_zones));
    }
}
