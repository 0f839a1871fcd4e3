//! Goal: a shard makes a pool on a drive that hides its flash, and finds it again after any cut. Method: the model of a drive carries out what the
//! shard asks its driver for; lives of requests, each ended by a cut or by the death of the process at some event. Whatever was answered is
//! there; what was asked for may be.

use crate::drives::{Known, Labelled, SIZE_BYTES, World, find, requests, work};
use diecut_shard::control::*;
use diecut_spec::{Isolation, Serves, TenantSpec, VssdSpec};
use diecut_testing::Random;
use diecut_testing::depth::depth;
use diecut_testing::planted::is_noticed;
use std::collections::BTreeSet;

/// The drive of these tests, and another device on it.
const DEVICE: u8 = 0xd1;
const ANOTHER: u8 = 0xd2;

fn world(drive: Labelled, makes_pool: bool) -> World {
    World::new(vec![drive], 0, makes_pool)
}

fn end(world: World, cut: bool) -> Labelled {
    world.end(cut).remove(0)
}

/// A drive with a pool, as its label would say.
fn made(seed: u64) -> Labelled {
    let mut world = world(Labelled::new(DEVICE, SIZE_BYTES, seed), true);
    assert!(world.open(&mut u64::MAX.clone()), "{:?}", world.shard.failure());
    end(world, true)
}

fn tenants(world: &World) -> BTreeSet<String> {
    world.shard.state().tenants.keys().cloned().collect()
}

fn lives(seed: u64) {
    let mut random = Random::of(seed);
    let mut drive = made(seed);
    let (mut there, mut asked) = (BTreeSet::<String>::new(), None::<(String, bool)>);
    let mut starts = 1;
    for life in 0..8u64 {
        let mut world = world(drive, false);
        let mut events = if random.below(3) == 0 { random.below(120) } else { 400 + random.below(1500) };
        if world.open(&mut events) {
            let state = world.shard.state();
            assert_eq!(state.pool.uuid, [0x77; 16], "seed {seed}, life {life}");
            assert!(state.pool.starts > starts, "seed {seed}, life {life}: {} starts", state.pool.starts);
            starts = state.pool.starts;
            let found = tenants(&world);
            let mut with = there.clone();
            if let Some((name, is_made)) = asked.take() {
                _ = if is_made { with.insert(name) } else { with.remove(&name) };
            }
            assert!(
                found == there || found == with,
                "seed {seed}, life {life}: {found:?}, {there:?} or {with:?}"
            );
            there = found;
            while events > 0 {
                let oldest = there.first().cloned().filter(|_| random.below(3) == 0);
                let (name, is_made) = match oldest {
                    Some(name) => (name, false),
                    None => (format!("tenant-{life}-{}", world.tokens), true),
                };
                let request = match is_made {
                    true => ControlRequest::CreateTenant(TenantSpec::new(&name)),
                    false => ControlRequest::DeleteTenant(name.clone()),
                };
                match world.ask(request, &mut events) {
                    Some(ControlResponse::Done) if is_made => _ = there.insert(name),
                    Some(ControlResponse::Done) => _ = there.remove(&name),
                    Some(other) => panic!("seed {seed}, life {life}: {other:?}"),
                    None => asked = Some((name, is_made)),
                }
            }
        } else {
            assert_eq!(world.shard.failure(), None, "seed {seed}, life {life}");
        }
        drive = end(world, random.below(3) > 0);
    }
}

fn all_lives() {
    (0..depth(20, 2_000)).for_each(lives);
}

#[test]
fn a_pool_on_a_drive_is_found_again() {
    all_lives();
}

#[test]
fn planted_bugs_on_drives_are_noticed() {
    is_noticed("catalog: a copy is not flushed", all_lives);
    is_noticed("drives: a flush does nothing", all_lives);
}

/// Goal: a pool is made on whatever lies there, and only where that was asked for. Method: a drive that held another pool; one that nobody wrote to.
#[test]
fn a_pool_is_made_where_that_is_asked_for() {
    let events = &mut u64::MAX.clone();
    let mut first = world(made(1), false);
    assert!(first.open(events));
    let tenant = ControlRequest::CreateTenant(TenantSpec::new("acme"));
    assert!(matches!(first.ask(tenant, events), Some(ControlResponse::Done)));
    // A drive that is labelled anew is another device.
    let drive = Labelled { device: ANOTHER, ..end(first, true) };
    let mut again = world(drive, true);
    assert!(again.open(events) && tenants(&again).is_empty(), "what was there does not count");
    let mut again = world(end(again, true), false);
    assert!(again.open(events) && tenants(&again).is_empty());
    let mut nobodys = world(Labelled::new(DEVICE, SIZE_BYTES, 2), false);
    assert!(!nobodys.open(events) && nobodys.shard.failure().is_some(), "nobody made a pool there");
    let mut drive = Labelled::new(DEVICE, SIZE_BYTES, 3);
    drive.model.faults_mut().flush_failures = 1;
    let mut failing = world(drive, true);
    assert!(!failing.open(events));
    assert!(failing.shard.failure().unwrap().contains("cannot be written"), "{:?}", failing.shard.failure());
}

/// Goal: what cannot lie on a drive yet is refused by name, and leaves nothing behind.
#[test]
fn what_cannot_lie_on_a_drive_is_refused() {
    let events = &mut u64::MAX.clone();
    let mut world = world(made(4), false);
    assert!(world.open(events));
    let tenant = ControlRequest::CreateTenant(TenantSpec::new("acme"));
    assert!(matches!(world.ask(tenant, events), Some(ControlResponse::Done)));
    for (serves, named) in
        [(Serves::Blocks, "erase blocks"), (Serves::Zones, "zones"), (Serves::OpenChannel, "chunks")]
    {
        for _ in 0..2 {
            let spec = VssdSpec { serves, ..VssdSpec::new("fast", "acme", Isolation::Channel, 70) };
            let refused = world.ask(ControlRequest::CreateVssd(spec), events);
            let Some(ControlResponse::Refused(error)) = refused else { panic!("{refused:?}") };
            let expected = format!("vSSD \"fast\": {named} cannot lie on this device yet");
            assert!(error.message.starts_with(&expected), "{}", error.message);
        }
    }
    assert!(world.shard.state().vssds.is_empty());
}

fn volumes(seed: u64) {
    volumes_of(Labelled::new(DEVICE, 2 * SIZE_BYTES, seed), seed);
}

fn volumes_of(drive: Labelled, seed: u64) {
    let events = &mut u64::MAX.clone();
    let mut random = Random::of(seed);
    let mut first = world(drive, true);
    assert!(first.open(events), "{:?}", first.shard.failure());
    for request in requests("acme", Vec::new()) {
        let answer = first.ask(request, events);
        assert!(matches!(answer, Some(ControlResponse::Done)), "{answer:?}");
    }
    let mut drive = end(first, true);
    let mut known = Known::new(1);
    for life in 0..6u64 {
        let mut world = world(drive, false);
        let place = format!("seed {seed}, life {life}");
        assert!(world.open(&mut u64::MAX.clone()), "{place}: {:?}", world.shard.failure());
        find(&mut world, &mut known, &place);
        work(&mut world, &mut known, &mut random, &mut (200 + random_events(seed, life)));
        drive = end(world, true);
    }
}

fn random_events(seed: u64, life: u64) -> u64 {
    Random::of(seed << 8 | life).below(2500)
}

fn all_volumes() {
    (0..depth(5, 500)).for_each(volumes);
}

/// Goal: a host's volume on a drive keeps over any cut what was flushed, through the whole shard. Method: lives of one host, each ended by a cut at some
/// event; each block has its last flushed version or a later one, and keeps what a restart found.
#[test]
fn volumes_on_a_drive_keep_what_was_flushed() {
    all_volumes();
}

#[test]
fn planted_bugs_of_volumes_on_drives_are_noticed() {
    is_noticed("log: what is programmed counts as durable", all_volumes);
    is_noticed("vssd: a flush is answered at once", all_volumes);
}

/// Goal: the same on a drive that is written in zones. Method: the model refuses what such a drive refuses, and nothing is refused.
#[test]
fn volumes_on_zones_keep_what_was_flushed() {
    for seed in 0..depth(5, 500) {
        volumes_of(Labelled::zoned(DEVICE, 2 * SIZE_BYTES, 56, seed), seed);
    }
}

/// Goal: several vSSDs with fewer zones than all of them would like to write at once go on, over cuts, and neither the catalog nor the block states lose
/// a copy. Method: three volumes on a drive of one lane with the fewest places that are admitted; work on each in turn.
fn few_places(seed: u64) {
    let events = &mut u64::MAX.clone();
    let mut random = Random::of(seed);
    let mut first = world(Labelled::zoned(DEVICE, 300 << 20, 14, seed), true);
    assert!(first.open(events), "{:?}", first.shard.failure());
    let names = ["acme", "blue", "coal"];
    for name in names {
        for mut request in requests(name, Vec::new()) {
            if let ControlRequest::CreateVssd(spec) = &mut request {
                let soft = VssdSpec::new(&spec.name, name, Isolation::Software, 80);
                *spec = VssdSpec { throughput_level: 0, ..soft };
            }
            let answer = first.ask(request, events);
            assert!(matches!(answer, Some(ControlResponse::Done)), "{answer:?}");
        }
    }
    let mut drive = end(first, true);
    let mut known: Vec<Known> = (1..=3).map(Known::new).collect();
    let mut finishes = 0;
    for life in 0..2u64 {
        let mut world = world(drive, false);
        let place = format!("seed {seed}, life {life}");
        assert!(world.open(&mut u64::MAX.clone()), "{place}: {:?}", world.shard.failure());
        for known in &mut known {
            find(&mut world, known, &place);
        }
        for round in 0..4 {
            let tenant = ControlRequest::CreateTenant(TenantSpec::new(&format!("tenant-{life}-{round}")));
            assert!(matches!(world.ask(tenant, &mut u64::MAX.clone()), Some(ControlResponse::Done)));
            for known in &mut known {
                work(&mut world, known, &mut random, &mut 700);
            }
        }
        assert_eq!(world.lost_copies, 0, "{place}: the catalog was refused");
        drive = end(world, true);
        finishes = drive.model.zone_statistics().finishes;
    }
    assert!(finishes > 20, "{finishes}: places were too many to tell");
}

#[test]
fn vssds_share_few_places() {
    (0..depth(2, 200)).for_each(few_places);
    is_noticed("drives: a zone of the catalog gives way", || (0..4).for_each(few_places));
}
