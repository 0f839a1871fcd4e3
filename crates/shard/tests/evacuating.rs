//! Goal: a vSSD moves to other devices while its hosts work, and nothing that was flushed is lost or comes back, whenever the power goes. Method: lives on three
//! drives, in each of which what lies on one of them moves away while hosts write, deallocate and flush; each ends with a cut at some event.

use crate::drives::{Known, Labelled, SIZE_BYTES, World, find, requests, work};
use diecut_namespace::contract::*;
use diecut_shard::DeviceIndex;
use diecut_shard::control::*;
use diecut_testing::Random;
use diecut_testing::depth::depth;
use diecut_testing::planted::is_noticed;
use diecut_units::{Buffer, BufferMut, IU_SIZE_BYTES};
use std::collections::BTreeSet;
use uuid::Uuid;

const DRIVES: u8 = 3;
const VSSDS: [(&str, &[&str]); 3] =
    [("one", &["drive-1"]), ("two", &["drive-2"]), ("wide", &["drive-3", "drive-1"])];

fn forever() -> u64 {
    u64::MAX
}

fn done(answer: Option<ControlResponse>) {
    assert!(matches!(answer, Some(ControlResponse::Done | ControlResponse::Unchanged)), "{answer:?}");
}

fn uuid(device: u8) -> Uuid {
    Uuid::from_bytes([device; 16])
}

/// Three drives with a pool, and tenants on them.
fn settled(seed: u64) -> (Vec<Labelled>, Vec<Known>) {
    let made =
        (1..=DRIVES).map(|device| Labelled::new(device, SIZE_BYTES + (2 << 24), seed + u64::from(device)));
    let mut world = World::new(made.collect(), 0, true);
    assert!(world.open(&mut forever()), "{:?}", world.shard.failure());
    let mut world = World::new(world.end(true), 0, false);
    assert!(world.open(&mut forever()), "{:?}", world.shard.failure());
    for (name, on) in VSSDS {
        for request in requests(name, on.iter().map(|&drive| drive.to_owned()).collect()) {
            done(world.ask(request, &mut forever()));
        }
    }
    (world.end(true), (1..=VSSDS.len() as u32).map(Known::new).collect())
}

/// vSSDs that lie on a device, by name.
fn lying(world: &World, device: u8) -> Vec<String> {
    let vssds = world.shard.state().vssds.values();
    let is_on =
        |record: &&diecut_catalog::VssdRecord| record.parts.iter().any(|part| part.device == uuid(device));
    vssds.filter(is_on).map(|record| record.name.clone()).collect()
}

/// What pools hold is what exists.
fn check_pools(world: &World, place: &str) {
    let known: BTreeSet<u32> = world.shard.state().vssds.values().map(|record| record.number).collect();
    for device in 0..DRIVES {
        let ids = world.shard.pool_of(DeviceIndex(device.into())).vssd_ids();
        let strangers: Vec<u32> = ids.map(|id| id.0).filter(|number| !known.contains(number)).collect();
        assert!(strangers.is_empty(), "{place}: {strangers:?} on device {device}");
    }
}

/// A device is emptied; says how many vSSDs moved. Ends early when no events are left.
fn empty(world: &mut World, device: u8, volumes: &mut [Known], random: &mut Random, events: &mut u64) -> u32 {
    let drains = ControlRequest::Device { device: uuid(device), turn: DeviceTurn::Drains };
    let Some(answer) = world.ask(drains, events) else { return 0 };
    done(Some(answer));
    let mut moved = 0;
    for vssd in lying(world, device) {
        world.begin(ControlRequest::MoveVssd(vssd.clone()));
        let answer = loop {
            if *events == 0 {
                return moved;
            }
            let known = &mut volumes[random.below(VSSDS.len() as u64) as usize];
            let mut part = (*events).min(1 + random.below(150));
            *events -= part;
            work(world, known, random, &mut part);
            if let Some(answer) = world.take_answer() {
                break answer;
            }
        };
        done(Some(answer));
        assert!(!lying(world, device).contains(&vssd), "{vssd} moved");
        moved += 1;
    }
    check_pools(world, "moved");
    done(world.ask(ControlRequest::Device { device: uuid(device), turn: DeviceTurn::Stays }, &mut forever()));
    moved
}

fn lives(seed: u64) -> u32 {
    let mut random = Random::of(seed);
    let (mut drives, mut volumes) = settled(seed);
    let mut moved = 0;
    for life in 0..8u64 {
        let place = format!("seed {seed}, life {life}");
        let mut world = World::new(drives, 0, false);
        assert!(world.open(&mut forever()), "{place}: {:?}", world.shard.failure());
        check_pools(&world, &place);
        for known in &mut volumes {
            find(&mut world, known, &place);
        }
        let mut events = 300 + random.below(6000);
        while events > 0 {
            let device = 1 + random.below(DRIVES.into()) as u8;
            moved += empty(&mut world, device, &mut volumes, &mut random, &mut events);
            let known = &mut volumes[random.below(VSSDS.len() as u64) as usize];
            let mut part = events.min(random.below(300));
            events -= part;
            work(&mut world, known, &mut random, &mut part);
        }
        drives = world.end(random.below(4) > 0);
    }
    moved
}

fn all_lives() {
    let moved: u32 = (0..depth(8, 1000)).map(lives).sum();
    assert!(moved > 8, "vSSDs move: {moved}");
}

#[test]
fn vssds_move_to_other_devices_while_their_hosts_work() {
    all_lives();
}

/// Goal: a vSSD on which nothing lies moves, too, though nothing is copied that would wake anybody.
#[test]
fn a_vssd_without_volumes_moves() {
    let made = (1..=2).map(|device| Labelled::new(device, SIZE_BYTES + (2 << 24), u64::from(device)));
    let mut world = World::new(made.collect(), 0, true);
    assert!(world.open(&mut forever()));
    let mut world = World::new(world.end(true), 0, false);
    assert!(world.open(&mut forever()));
    let [tenant, vssd, ..] = requests("bare", vec!["drive-2".to_owned()]);
    for request in [tenant, vssd] {
        done(world.ask(request, &mut forever()));
    }
    let drains = ControlRequest::Device { device: uuid(2), turn: DeviceTurn::Drains };
    done(world.ask(drains, &mut forever()));
    for vssd in lying(&world, 2) {
        done(world.ask(ControlRequest::MoveVssd(vssd), &mut forever()));
    }
    assert_eq!(lying(&world, 2), Vec::<String>::new());
}

/// Goal: where there is no room for all that lies on a device, it is said at once, and all stays as it is.
#[test]
fn a_device_is_not_evacuated_where_the_others_lack_room() {
    let (drives, mut volumes) = settled(5);
    let mut world = World::new(drives, 0, false);
    assert!(world.open(&mut forever()));
    for at in 0..9 {
        let name = format!("more-{at}");
        let [tenant, vssd, ..] = requests(&name, Vec::new());
        done(world.ask(tenant, &mut forever()));
        if let Some(ControlResponse::Refused(_)) = world.ask(vssd, &mut forever()) {
            break;
        }
    }
    let drains = ControlRequest::Device { device: uuid(1), turn: DeviceTurn::Drains };
    let Some(ControlResponse::Refused(error)) = world.ask(drains, &mut forever()) else {
        panic!("there is room")
    };
    assert!(error.message.contains("cannot be evacuated, the others lack room"), "{error}");
    let status = world.shard.status();
    assert!(status.devices.iter().all(|device| device.turning.is_none()), "all are as they were");
    find(&mut world, &mut volumes[0], "nothing moved");
}

/// Goal: a stop does not wait for a move: that ends, and the vSSD is where it was.
#[test]
fn a_server_that_stops_ends_a_move() {
    let (drives, mut volumes) = settled(7);
    let mut world = World::new(drives, 0, false);
    assert!(world.open(&mut forever()));
    work(&mut world, &mut volumes[0], &mut Random::of(7), &mut 500);
    done(world.ask(ControlRequest::Device { device: uuid(1), turn: DeviceTurn::Drains }, &mut forever()));
    world.begin(ControlRequest::MoveVssd("one-vssd".to_owned()));
    let answer = world.ask(ControlRequest::Shutdown, &mut forever());
    let Some(ControlResponse::Refused(error)) = answer else { panic!("{answer:?}") };
    assert!(error.message.contains("the server stops"), "{error}");
    let mut world = World::new(world.end(false), 0, false);
    assert!(world.open(&mut forever()));
    check_pools(&world, "after a stop");
    assert_eq!(world.shard.state().vssds["one-vssd"].device, ["drive-1"]);
    find(&mut world, &mut volumes[0], "after a stop");
}

/// Blocks are deallocated when they were copied, and before all were.
fn deallocates_what_was_copied() {
    let (drives, _) = settled(6);
    let mut world = World::new(drives, 0, false);
    assert!(world.open(&mut forever()));
    let range = LbaRange { first_lba: 0, lba_count: 32 };
    let write = NamespaceOperation::Write {
        range,
        data: Buffer::copy_from(&[7; 32 * IU_SIZE_BYTES]),
        force_unit_access: true,
        placement: PlacementTarget::default(),
    };
    world.command(1, write, &mut forever());
    done(world.ask(ControlRequest::Device { device: uuid(1), turn: DeviceTurn::Drains }, &mut forever()));
    world.begin(ControlRequest::MoveVssd("one-vssd".to_owned()));
    let copied = |world: &World| {
        let status = world.shard.status();
        let moving = status.devices.iter().find_map(|device| device.moving.clone());
        moving.is_some_and(|moving| moving.all_bytes > moving.left_bytes + (256 << 10))
    };
    while !copied(&world) {
        assert!(world.take_answer().is_none(), "it goes on");
        world.command(2, NamespaceOperation::Flush, &mut forever());
    }
    world.command(
        1,
        NamespaceOperation::Deallocate { ranges: [range].into_iter().collect() },
        &mut forever(),
    );
    let answer = loop {
        world.command(2, NamespaceOperation::Flush, &mut forever());
        if let Some(answer) = world.take_answer() {
            break answer;
        }
    };
    done(Some(answer));
    let read =
        NamespaceOperation::Read { range, destination: BufferMut::copy_from(&[1; 32 * IU_SIZE_BYTES]) };
    let found =
        world.command(1, read, &mut forever()).expect("nothing ends it").data.expect("a read gives data");
    assert!(found.iter().all(|byte| *byte == 0), "what was deallocated reads as zeros");
}

#[test]
fn what_is_deallocated_while_a_vssd_moves_is_gone() {
    deallocates_what_was_copied();
}

#[test]
fn planted_bugs_of_moves_are_noticed() {
    is_noticed("shard: what hosts write while a vSSD moves is not copied again", all_lives);
    is_noticed("shard: a vSSD moves while its hosts work", all_lives);
    is_noticed("shard: a vSSD moves before its copy is flushed", all_lives);
    is_noticed("shard: what is deallocated while a vSSD moves stays", deallocates_what_was_copied);
}
