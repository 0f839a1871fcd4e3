//! Goal: what was deleted is gone from flash and from protected memory when a purge is answered, and what lives is not. Method: a shard over a
//! device that keeps what may be forgotten; each write has a tag of its own, and all tags that lie anywhere are compared with those that
//! may.

use crate::herd::{Herd, device, vssd};
use diecut_emulator::{Backing, Device, Fault, FaultyDie, OperationKind, Options, Pacing, Profile};
use diecut_media::Media;
use diecut_namespace::contract::*;
use diecut_shard::DOOR_SOURCE_BIT;
use diecut_shard::control::{ControlRequest, ControlResponse, TenantSpec, VolumeSpec, VssdSpec};
use diecut_spec::{Isolation, Serves, Size, ZoneSpec};
use diecut_units::{Buffer, BufferMut, Time};
use diecut_vssd::VssdId;
use std::collections::{BTreeMap, BTreeSet};

/// Every tag that was ever written begins with this.
const MARK: u64 = 0x9ec7_0000_0000_0000;
const MARK_BITS: u64 = 0xffff_0000_0000_0000;
/// IUs of a zone on one erase block of the device.
const ZONE_IUS: u64 = 64;

struct World {
    herd: Herd,
    next_tag: u64,
    next_token: u64,
    /// By namespace and logical block.
    live: BTreeMap<(u32, u64), u64>,
    answered: Vec<NamespaceCompletion>,
}

fn new_device(seed: u64) -> Device {
    let mut device = device(seed);
    device.keep_discarded();
    device
}

/// Tags that lie anywhere on a device.
fn tags_on(device: &Device) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let mut take = |bytes: &[u8]| {
        let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        found.extend(words.filter(|word| word & MARK_BITS == MARK));
    };
    device.look_through(|_, iu| take(iu));
    if let Some(memory) = device.protected_memory() {
        take(&memory.snapshot());
    }
    found
}

impl World {
    fn over(device: Device, now: Time, seed: u64) -> World {
        let herd = Herd::new(device, 1, seed, now);
        World { herd, next_tag: MARK, next_token: 1, live: BTreeMap::new(), answered: Vec::new() }
    }

    /// One vSSD with volumes of so many blocks.
    fn with_volumes(seed: u64, sizes: &[u64]) -> World {
        World::with_volumes_on(new_device(seed), seed, sizes)
    }

    fn with_volumes_on(device: Device, seed: u64, sizes: &[u64]) -> World {
        let mut world = World::over(device, Time::ZERO, seed);
        world.herd.done(ControlRequest::CreateTenant(TenantSpec::new("a")));
        world.herd.done(ControlRequest::CreateVssd(vssd("a", "a", Isolation::Channel, 0)));
        for (at, blocks) in sizes.iter().enumerate() {
            let volume = VolumeSpec::new(&format!("volume-{at}"), "vssd-a", Size(blocks * 4096));
            world.herd.done(ControlRequest::CreateVolume(volume));
        }
        world
    }

    fn namespace(&self, volume: usize) -> u32 {
        self.herd.shards[0].state().volumes[&format!("volume-{volume}")].namespace
    }

    fn begin(&mut self, namespace: u32, operation: NamespaceOperation) -> CommandToken {
        self.next_token += 1;
        let token = CommandToken(self.next_token);
        let source = SourceId(DOOR_SOURCE_BIT | namespace);
        let (namespace, arrived) = (NamespaceId(namespace), self.herd.now);
        self.herd.shards[0].submit(NamespaceCommand { token, namespace, source, arrived, operation });
        token
    }

    fn end(&mut self, token: CommandToken) -> NamespaceCompletion {
        for _ in 0..2_000_000 {
            if let Some(at) = self.answered.iter().position(|one| one.token == token) {
                return self.answered.remove(at);
            }
            self.herd.step();
            self.herd.shards[0].take_completions(&mut self.answered);
        }
        panic!("a command was never answered: {}", self.herd.shards[0].describe());
    }

    fn run(&mut self, namespace: u32, operation: NamespaceOperation) -> NamespaceCompletion {
        let token = self.begin(namespace, operation);
        self.end(token)
    }

    fn write(&mut self, namespace: u32, lba: u64, count: u64) {
        let tags: Vec<u64> = (self.next_tag..self.next_tag + count).collect();
        self.next_tag += count;
        let bytes: Vec<u8> = tags.iter().flat_map(|tag| tag.to_le_bytes()).collect();
        let operation = NamespaceOperation::Write {
            range: LbaRange { first_lba: lba, lba_count: count as u32 },
            data: Buffer::copy_from(&bytes),
            force_unit_access: false,
            placement: PlacementTarget::default(),
        };
        self.run(namespace, operation).result.unwrap();
        self.live.extend((lba..).zip(tags).map(|(lba, tag)| ((namespace, lba), tag)));
    }

    fn zero(&mut self, namespace: u32, lba: u64, count: u64) {
        let range = LbaRange { first_lba: lba, lba_count: count as u32 };
        let zeroes = NamespaceOperation::WriteZeroes { range, may_deallocate: true, force_unit_access: true };
        self.run(namespace, zeroes).result.unwrap();
        self.live.retain(|(of, at), _| *of != namespace || !(lba..lba + count).contains(at));
    }

    fn purge(&mut self, namespace: u32) -> Result<(), NamespaceError> {
        self.run(namespace, NamespaceOperation::Purge).result
    }

    /// Some of the tags that should be nowhere.
    fn dead_in_short(&self) -> Vec<u64> {
        self.dead().into_iter().take(4).collect()
    }

    fn dead(&self) -> Vec<u64> {
        let live: BTreeSet<u64> = self.live.values().copied().collect();
        tags_on(self.herd.shards[0].media()).difference(&live).copied().collect()
    }

    fn check_content(&mut self) {
        for ((namespace, lba), tag) in self.live.clone() {
            let range = LbaRange { first_lba: lba, lba_count: 1 };
            let destination = BufferMut::copy_from(&[0; 8]);
            let done = self.run(namespace, NamespaceOperation::Read { range, destination });
            assert_eq!(done.result, Ok(()), "namespace {namespace}, block {lba}");
            assert_eq!(done.data.unwrap()[..], tag.to_le_bytes(), "namespace {namespace}, block {lba}");
        }
    }
}

/// Two volumes share a log: one is zeroed, the other one goes on to be written.
#[test]
fn what_one_volume_held_is_gone_and_the_other_one_lives() {
    two_volumes();
}

fn two_volumes() {
    for seed in 0..3 {
        let mut world = World::with_volumes(seed, &[200, 200]);
        let (one, other) = (world.namespace(0), world.namespace(1));
        for round in 0..6 {
            for at in 0..20 {
                world.write(one, (at * 7 + round) % 190, 1 + at % 9);
                world.write(other, (at * 11 + round) % 190, 1 + at % 5);
            }
        }
        world.zero(one, 0, 200);
        assert!(
            world.dead().len() > 500,
            "seed {seed}: what was overwritten and zeroed stays until it is purged"
        );
        assert_eq!(world.purge(one), Ok(()), "seed {seed}");
        assert_eq!(world.dead_in_short(), Vec::<u64>::new(), "seed {seed}");
        world.check_content();
        world.write(one, 3, 4);
        world.write(other, 5, 4);
        world.check_content();
        assert_eq!(world.purge(other), Ok(()), "seed {seed}: again");
        assert_eq!(world.dead_in_short(), Vec::<u64>::new(), "seed {seed}");
    }
}

/// Slots of the cleaner hold what the first purge moved: nothing of that goes to flash again behind what the second one moves.
#[test]
fn what_was_moved_once_does_not_come_back() {
    purged_twice();
}

fn purged_twice() {
    for seed in 0..3 {
        let mut world = World::with_volumes(seed, &[200, 200]);
        let (one, other) = (world.namespace(0), world.namespace(1));
        for lba in 0..180 {
            world.write(one, lba, 1);
            world.write(other, lba, 1);
        }
        assert_eq!(world.purge(one), Ok(()), "seed {seed}");
        world.zero(one, 0, 200);
        world.zero(other, 0, 170);
        assert_eq!(world.purge(one), Ok(()), "seed {seed}");
        assert_eq!(world.dead_in_short(), Vec::<u64>::new(), "seed {seed}");
        world.check_content();
    }
}

/// Zones lie on erase blocks directly: what was reset is erased, what was not is not.
#[test]
fn zones_that_were_reset_are_gone() {
    reset_zones();
}

fn reset_zones() {
    for seed in 0..3 {
        let mut world = World::over(new_device(seed), Time::ZERO, seed);
        world.herd.done(ControlRequest::CreateTenant(TenantSpec::new("a")));
        let flash = VssdSpec { serves: Serves::Zones, ..vssd("a", "a", Isolation::Channel, 0) };
        world.herd.done(ControlRequest::CreateVssd(flash));
        let zones = ZoneSpec { units: Some(1), active: Some(5), open: Some(5), ..ZoneSpec::default() };
        let volume = VolumeSpec::new("volume-0", "vssd-a", Size(1 << 20));
        world.herd.done(ControlRequest::CreateVolume(VolumeSpec { zones, ..volume }));
        let one = world.namespace(0);
        for zone in 0..4 {
            world.write(one, zone * ZONE_IUS, 20);
            world.write(one, zone * ZONE_IUS + 20, 7);
        }
        for zone in [1, 3] {
            let zone_lba = Some(zone * ZONE_IUS);
            let reset = ZoneRequest::Act { zone_lba, action: ZoneAction::Reset };
            world.run(one, NamespaceOperation::Zone(reset)).result.unwrap();
            world.live.retain(|(_, lba), _| lba / ZONE_IUS != zone);
        }
        assert_eq!(world.dead().len(), 54, "seed {seed}: a reset erases nothing");
        assert_eq!(world.purge(one), Ok(()), "seed {seed}");
        assert_eq!(world.dead_in_short(), Vec::<u64>::new(), "seed {seed}");
        world.check_content();
        world.write(one, ZONE_IUS, 9);
        world.check_content();
    }
}

/// So are chunks of an Open-Channel namespace.
#[test]
fn chunks_that_were_reset_are_gone() {
    let mut world = World::over(new_device(5), Time::ZERO, 5);
    world.herd.done(ControlRequest::CreateTenant(TenantSpec::new("a")));
    let flash = VssdSpec { serves: Serves::OpenChannel, ..vssd("a", "a", Isolation::Channel, 0) };
    world.herd.done(ControlRequest::CreateVssd(flash));
    world.herd.done(ControlRequest::CreateVolume(VolumeSpec::new("volume-0", "vssd-a", Size(2 << 20))));
    let one = world.namespace(0);
    for chunk in 0..3 {
        world.write(one, chunk * ZONE_IUS, ZONE_IUS);
    }
    let reset = ChunkRequest::Reset { lbas: LbaList::run(ZONE_IUS, 1) };
    world.run(one, NamespaceOperation::Chunk(reset)).result.unwrap();
    world.live.retain(|(_, lba), _| lba / ZONE_IUS != 1);
    assert_eq!(world.dead().len() as u64, ZONE_IUS, "a reset erases nothing");
    let tokens = [0, 1].map(|_| world.begin(one, NamespaceOperation::Purge));
    for token in tokens {
        assert_eq!(world.end(token).result, Ok(()));
    }
    assert_eq!(world.dead_in_short(), Vec::<u64>::new());
    world.check_content();
}

/// Two hosts ask at once, and both are answered; what was deleted before the second one asked is gone for it, too.
#[test]
fn purges_at_once_are_each_answered() {
    let mut world = World::with_volumes(4, &[200, 200]);
    let (one, other) = (world.namespace(0), world.namespace(1));
    for at in 0..40 {
        world.write(one, at * 4, 4);
        world.write(other, at * 4, 4);
    }
    world.zero(one, 0, 200);
    let first = world.begin(one, NamespaceOperation::Purge);
    world.zero(other, 0, 80);
    let second = world.begin(other, NamespaceOperation::Purge);
    let third = world.begin(one, NamespaceOperation::Purge);
    for token in [first, second, third] {
        assert_eq!(world.end(token).result, Ok(()));
    }
    assert_eq!(world.dead_in_short(), Vec::<u64>::new());
    world.check_content();
}

/// A purge that the power ended is not answered, nothing is lost, and the next one does it all.
#[test]
fn a_cut_during_a_purge_loses_nothing() {
    for seed in 0..16 {
        let mut world = World::with_volumes(seed, &[200, 200]);
        let (one, other) = (world.namespace(0), world.namespace(1));
        for at in 0..60 {
            world.write(one, (at * 7) % 190, 1 + at % 9);
            world.write(other, (at * 11) % 190, 1 + at % 5);
        }
        world.zero(one, 0, 200);
        let token = world.begin(one, NamespaceOperation::Purge);
        for _ in 0..seed * 60 {
            world.herd.step();
        }
        world.herd.shards[0].take_completions(&mut world.answered);
        let was_answered = world.answered.iter().any(|answer| answer.token == token);
        let World { herd, next_tag, live, .. } = world;
        let (device, now) = herd.end(true);
        let mut world = World { next_tag, live, ..World::over(device, now, seed) };
        if was_answered {
            assert_eq!(world.dead_in_short(), Vec::<u64>::new(), "seed {seed}: it was answered");
        }
        world.check_content();
        assert_eq!(world.purge(other), Ok(()), "seed {seed}");
        assert_eq!(world.dead_in_short(), Vec::<u64>::new(), "seed {seed}");
        world.check_content();
    }
}

/// All that the vSSD stores is written, again and again: there is hardly a segment that is free.
#[test]
fn a_full_vssd_is_purged() {
    for seed in 0..2 {
        let mut world = World::with_volumes(seed, &[8, 8]);
        let mut blocks = 0;
        // As large as it can be.
        for size in [2048u64, 1024, 512, 256, 128, 64] {
            let name = format!("volume-big-{size}");
            let volume = VolumeSpec::new(&name, "vssd-a", Size(size * 4096));
            let made = world.herd.ask(ControlRequest::CreateVolume(volume));
            if matches!(made, ControlResponse::Done) {
                let namespace = world.herd.shards[0].state().volumes[&name].namespace;
                for round in 0..3 {
                    for lba in (0..size).step_by(8) {
                        let lba = if round == 0 { lba } else { ((lba * 13 + 8 * round) % size) & !7 };
                        world.write(namespace, lba, 8);
                    }
                }
                blocks += size;
            }
        }
        assert!(blocks > 64, "seed {seed}: {blocks}");
        let one = world.namespace(0);
        assert_eq!(world.purge(one), Ok(()), "seed {seed}");
        assert_eq!(world.dead_in_short(), Vec::<u64>::new(), "seed {seed}");
        world.check_content();
    }
}

/// While a purge goes on other blocks are written, a volume is deleted, and programs and erases fail now and then. What was dead when it
/// began is gone.
#[test]
fn a_purge_goes_on_beside_writers_and_failures() {
    for seed in 0..16 {
        let mut world = World::with_volumes(seed, &[200, 200, 100]);
        let namespaces = [0, 1, 2].map(|volume| world.namespace(volume));
        let mut random = diecut_testing::Random::of(seed);
        for round in 0..3 {
            for _ in 0..60 {
                let namespace = namespaces[random.below(2) as usize];
                world.write(namespace, random.below(190), 1 + random.below(9));
            }
            if round == 0 {
                for lba in 0..90 {
                    world.write(namespaces[2], lba, 1);
                }
            }
            if round == 1 {
                world.herd.done(ControlRequest::DeleteVolume("volume-2".to_owned()));
                world.live.retain(|(of, _), _| *of != namespaces[2]);
            }
            world.zero(namespaces[0], random.below(100), 100);
            let die = FaultyDie { channel: ((seed + round) % 4) as u16, die: 0 };
            let kind = if round == 0 { OperationKind::Program } else { OperationKind::Erase };
            let media = world.herd.shards[0].media_mut();
            let done =
                media.die_statistics(u32::from(die.channel) * media.geometry().dies_per_channel as u32);
            let begun = if round == 0 { done.program_units } else { done.erases };
            media.add_fault(Fault::Fail { die, kind, nth: begun + random.below(3) });
            let dead = world.dead();
            let token = world.begin(namespaces[round as usize % 2], NamespaceOperation::Purge);
            for _ in 0..30 {
                world.write(namespaces[1], random.below(190), 1 + random.below(9));
            }
            let result = world.end(token).result;
            assert_eq!(result, Ok(()), "seed {seed}, round {round}");
            let still = tags_on(world.herd.shards[0].media());
            let found: Vec<_> = dead.iter().filter(|tag| still.contains(tag)).collect();
            assert!(found.is_empty(), "seed {seed}, round {round}: {found:x?}");
            world.check_content();
        }
    }
}

/// Without protected memory staging is in ordinary memory, and block states lie in a log on flash.
#[test]
fn a_device_without_protected_memory_is_purged() {
    for seed in 0..3 {
        let options =
            Options { backing: Backing::Tags, pacing: Pacing::Modelled, seed, ..Options::default() };
        let mut profile = Profile::named("tiny").unwrap();
        profile.protected_memory_bytes = 0;
        profile.geometry.channels = 4;
        profile.geometry.blocks_per_plane = 100;
        let mut device = Device::create(&profile, options).unwrap();
        device.keep_discarded();
        let mut world = World::with_volumes_on(device, seed, &[200, 200]);
        let (one, other) = (world.namespace(0), world.namespace(1));
        for at in 0..60 {
            world.write(one, (at * 7) % 190, 1 + at % 9);
            world.write(other, (at * 11) % 190, 1 + at % 5);
        }
        world.zero(one, 0, 200);
        assert!(!world.dead().is_empty());
        assert_eq!(world.purge(other), Ok(()), "seed {seed}");
        assert_eq!(world.dead_in_short(), Vec::<u64>::new(), "seed {seed}");
        world.check_content();
    }
}

/// A die that does not answer keeps what it holds: the purge comes to an end, and says so.
#[test]
fn a_purge_that_cannot_be_done_is_told() {
    let mut world = World::with_volumes(3, &[200, 200]);
    let (one, other) = (world.namespace(0), world.namespace(1));
    for at in 0..60 {
        world.write(one, (at * 7) % 190, 1 + at % 9);
        world.write(other, (at * 11) % 190, 1 + at % 5);
    }
    world.zero(one, 0, 200);
    let number = world.herd.shards[0].state().vssds["vssd-a"].number;
    let held = diecut_vssd::held_blocks(world.herd.shards[0].pool(), VssdId(number));
    let place = held[0].1;
    let die = FaultyDie { channel: place.channel.0, die: place.die.0 };
    let from_ns = world.herd.now.0;
    world.herd.shards[0].media_mut().add_fault(Fault::DieOffline { die, from_ns });
    let result = world.purge(one);
    assert!(matches!(result, Err(NamespaceError::ReadOnly { .. })), "{result:?}");
    assert!(!world.dead().is_empty(), "it was right");
}

/// What lives and cannot be read any more stays, and keeps what lies beside it: the purge says so.
#[test]
fn what_cannot_be_read_is_told() {
    let mut world = World::with_volumes(3, &[200, 200]);
    let (one, other) = (world.namespace(0), world.namespace(1));
    for at in 0..60 {
        world.write(one, (at * 7) % 190, 1 + at % 9);
        world.write(other, (at * 11) % 190, 1 + at % 5);
    }
    let number = world.herd.shards[0].state().vssds["vssd-a"].number;
    let held = diecut_vssd::held_blocks(world.herd.shards[0].pool(), VssdId(number));
    for _ in 0..2000 {
        world.herd.step();
    }
    let mut lost = 0;
    for (_, place) in held {
        let media = world.herd.shards[0].media_mut();
        for page in 1..media.programmed_pages(place) {
            media.lose_page(place, page);
            lost += 1;
        }
    }
    assert!(lost > 0, "all that was written is on flash by then");
    let result = world.purge(one);
    assert!(matches!(result, Err(NamespaceError::NotErased { .. })), "{result:?}");
}

#[test]
fn planted_bugs_are_noticed() {
    diecut_testing::planted::all_are_noticed(&[
        ("log: a purge leaves staging as it is", two_volumes),
        ("log: slots are not cleared", two_volumes),
        ("log: filler is what a slot held before", purged_twice),
        ("zoned: slots are not cleared", reset_zones),
    ]);
}
