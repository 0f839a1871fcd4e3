//! Goal: what is written to a reclaim group lies there and nowhere else, a group that is full says so and holds nobody else up, and what names no group
//! finds room as long as there is some. Method: a store on a space in memory with groups of two units each. That nothing is lost over cuts is for
//! `model.rs`.

use crate::{common, placed};
use common::{FakeSpace, shape};
use diecut_testing::planted;
use diecut_units::ContentMode;
use diecut_volume::contract::*;
use diecut_volume::{Placement, PlacementError, PlacementIsolation};
use placed::{SLOT_SIZE_BYTES, World};

fn placement(handles: u16, groups: u16) -> Placement {
    Placement { handles, isolation: PlacementIsolation::Initially, groups }
}

fn target(group: u16, handle: u16) -> PlacementTarget {
    PlacementTarget { handle: PlacementHandle(handle), group: Some(ReclaimGroup(group)) }
}

/// A store with one volume that may hold all there is room for.
fn world(placement: Placement, blocks: u32, slots: usize) -> World {
    let mut world = World::empty(placement, blocks, 0, slots);
    let size_ius = world.store.statistics().exported_ius;
    world.create(0, size_ius);
    world
}

/// Programmed units of each group.
fn programmed(world: &World, groups: u16) -> Vec<u64> {
    let mut programmed = vec![0; groups.into()];
    for (block, _) in world.space.written_units() {
        programmed[usize::from(block.unit.0 / 2)] += 1;
    }
    programmed
}

#[test]
fn what_is_written_to_a_group_lies_on_its_units() {
    let mut world = world(placement(2, 4), 40, 16);
    world.rest();
    let before = programmed(&world, 4);
    for round in 0..400 {
        world.write_to(0, round, 1, target(2, (round % 2) as u16));
    }
    world.rest();
    let after = programmed(&world, 4);
    // Leaves and anchors may lie elsewhere, but no data do.
    assert!(after[2] - before[2] >= 30, "{before:?} {after:?}");
    for iu in 0..400 {
        assert_eq!(world.store.reclaim_unit_of(VolumeIndex(0), iu).unwrap().group, ReclaimGroup(2));
    }
    assert_eq!((after[1] - before[1], after[3] - before[3]), (0, 0), "{before:?} {after:?}");
}

/// One IU after the other to a group until it refuses; the next IU.
fn fill(world: &mut World, group: u16, first_iu: u64) -> u64 {
    for iu in first_iu.. {
        world.refused = 0;
        world.write_to(0, iu, 1, target(group, 0));
        world.settle();
        if world.refused > 0 {
            world.forget_written(0, iu, None);
            return iu;
        }
    }
    unreachable!("the volume ends before")
}

#[test]
fn a_full_group_refuses_what_is_new_and_nothing_else() {
    let groups = 2;
    let mut world = world(placement(2, groups), 40, 16);
    let group_ius = world.store.group_ius();
    let full = fill(&mut world, 1, 0);
    assert_eq!(full, group_ius, "a group takes what it is said to take");
    // What lies there is overwritten there, again and again, in any order.
    world.refused = 0;
    for _ in 0..8 * group_ius {
        let iu = world.random.below(group_ius);
        world.write_to(0, iu, 1, target(1, (iu % 2) as u16));
    }
    world.settle();
    assert_eq!(world.refused, 0);
    // Another group has room, and what names none goes there.
    let last = fill(&mut world, 0, full);
    assert!(
        last + 16 >= 2 * group_ius,
        "{last} IUs of two times {group_ius}: leaves take a little of the first group"
    );
    // What goes from one group to another one needs room there.
    let before = world.written(0, 0);
    world.refused = 0;
    world.write_to(0, 0, 1, target(0, 0));
    world.settle();
    assert_eq!(world.refused, 1);
    world.forget_written(0, 0, before);
    world.deallocate(0, full, 30);
    world.settle();
    world.write_to(0, 0, 1, target(0, 0));
    world.settle();
    assert_eq!(world.refused, 1, "there is room again");
    assert_eq!(world.store.reclaim_unit_of(VolumeIndex(0), 0).unwrap().group, ReclaimGroup(0));
    world.check();
}

#[test]
fn a_group_that_takes_too_much_is_noticed() {
    planted::is_noticed("volume: a reclaim group takes more than it has room for", || {
        a_full_group_refuses_what_is_new_and_nothing_else();
    });
}

/// Goal: a host that knows nothing of groups fills all of them and goes on for ever.
#[test]
fn what_names_no_group_fills_all_of_them() {
    for groups in [2, 4] {
        let mut world = world(placement(1, groups), 40, 16);
        let size_ius = world.store.statistics().exported_ius;
        for first in (0..size_ius).step_by(4) {
            world.write(0, first, 4.min(size_ius - first), 0);
        }
        for _ in 0..3 * size_ius {
            let iu = world.random.below(size_ius);
            world.write(0, iu, 1, 0);
        }
        world.settle();
        assert_eq!(world.refused, 0);
        let mut by_group = vec![0u64; groups.into()];
        for iu in 0..size_ius {
            let unit = world.store.reclaim_unit_of(VolumeIndex(0), iu).unwrap();
            by_group[usize::from(unit.group.0)] += 1;
        }
        let (least, most) = (by_group.iter().min().unwrap(), by_group.iter().max().unwrap());
        assert!(most - least <= size_ius / 20, "{by_group:?}");
        world.check();
    }
}

/// Goal: all groups full and overwritten at random, each by its host, go on for ever, and data stay where they were put.
#[test]
fn full_groups_are_cleaned_apart() {
    let groups = 3;
    let mut world = world(placement(2, groups), 48, 24);
    let mut ends = vec![0];
    for group in (0..groups).rev() {
        let end = fill(&mut world, group, *ends.last().unwrap());
        ends.push(end);
    }
    world.refused = 0;
    for _ in 0..30_000 {
        let part = world.random.below(groups.into()) as usize;
        let iu = ends[part] + world.random.below(ends[part + 1] - ends[part]);
        world.write_to(0, iu, 1, target(groups - 1 - part as u16, (iu % 2) as u16));
    }
    world.rest();
    assert_eq!(world.refused, 0);
    for (part, group) in (0..groups).rev().enumerate() {
        for iu in ends[part]..ends[part + 1] {
            let unit = world.store.reclaim_unit_of(VolumeIndex(0), iu).unwrap();
            assert_eq!(unit.group, ReclaimGroup(group), "IU {iu}");
        }
    }
    assert!(world.store.statistics().log.segments_freed > 100, "it is cleaned");
    world.check();
}

#[test]
fn copies_that_leave_their_group_are_noticed() {
    planted::is_noticed("log: copies leave their reclaim group", full_groups_are_cleaned_apart);
}

#[test]
fn an_update_is_of_one_group() {
    let mut world = world(placement(2, 2), 40, 16);
    let whole = world.store.reclaim_unit_ius();
    for group in 0..2 {
        world.write_to(0, group.into(), 1, target(group, 1));
    }
    world.settle();
    let remaining = |world: &World| {
        [0, 1].map(|group| world.store.remaining_ius(ReclaimGroup(group), PlacementHandle(1)))
    };
    assert_eq!(remaining(&world), [whole - 1; 2]);
    let ended = world.store.update_reclaim_unit(ReclaimGroup(1), PlacementHandle(1), &mut world.space);
    assert!(ended.was_partial);
    world.rest();
    assert_eq!(remaining(&world), [whole - 1, whole]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let check = |handles, groups, units, blocks, slots: usize| {
        let space = FakeSpace::new(shape(ContentMode::Tags, 0), units, blocks);
        placement(handles, groups).check(&space, Some(slots * SLOT_SIZE_BYTES))
    };
    assert_eq!(check(2, 4, 8, 40, 16), Ok(()));
    assert_eq!(check(2, 3, 8, 40, 16), Err(PlacementError::Groups { groups: 3, units: 8 }));
    assert_eq!(check(2, 0, 8, 40, 16), Err(PlacementError::Groups { groups: 0, units: 8 }));
    assert_eq!(check(9, 8, 8, 90, 90), Err(PlacementError::References { handles: 9, groups: 8 }));
    assert_eq!(check(8, 8, 8, 90, 90), Ok(()));
    let small = check(2, 4, 8, 12, 16);
    assert!(matches!(small, Err(PlacementError::ReclaimUnits { available: 12, .. })), "{small:?}");
    let slots = check(8, 8, 8, 90, 4);
    assert!(matches!(slots, Err(PlacementError::Slots { needed: 67, .. })), "{slots:?}");
}
