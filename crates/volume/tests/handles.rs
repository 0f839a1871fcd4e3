//! Goal: reclaim unit handles do what they are for, and hosts are told the truth about them. Method: a store on a space in memory, without
//! cuts; figures are compared with what was written. That nothing is lost, and that handles stay apart, is for `model.rs`.

use crate::{common, placed};
use common::{FakeSpace, shape};
use diecut_units::ContentMode;
use diecut_volume::contract::*;
use diecut_volume::{Placement, PlacementError, PlacementIsolation};
use placed::{SIZE_IUS, SLOT_SIZE_BYTES, World};

fn persistently(handles: u16) -> Placement {
    Placement::of_handles(handles, PlacementIsolation::Persistently)
}

/// Media IUs by host IUs: of the handle of what is overwritten in its order, and of the store; and copies of that handle's data. One
/// volume is overwritten in its order, the other one at random.
fn amplification(placement: Placement) -> (f64, f64, u64) {
    const SIZE_IUS: u64 = 4500;
    let mut world = World::with(placement, SIZE_IUS, 92, 0, 16);
    let figures = |world: &World| {
        let statistics = world.store.statistics();
        let of_handle = world.store.handle_figures().next().unwrap();
        [
            of_handle.log.media_ius,
            of_handle.host_written_ius,
            statistics.log.user_ius()
                + statistics.log.cleaner_ius()
                + statistics.log.summary_ius
                + statistics.log.padding_ius,
            statistics.host_written_ius,
            of_handle.log.moved_ius,
        ]
    };
    let mut before = [0; 5];
    for round in 0..12_000u64 {
        world.write(0, round * 4 % SIZE_IUS, 4, 0);
        let iu = world.random.below(SIZE_IUS / 4) * 4;
        world.write(1, iu, 4, placement.handles - 1);
        if round == 4_000 {
            before = figures(&world);
        }
    }
    world.settle();
    let after = figures(&world);
    let part = |at: usize| (after[at] - before[at]) as f64;
    (part(0) / part(1), part(2) / part(3), after[4] - before[4])
}

#[test]
fn what_is_overwritten_in_its_order_is_not_copied_for_a_neighbour_at_random() {
    let (_, together, moved_together) = amplification(Placement::default());
    assert!(together > 1.12, "{together} without handles");
    for isolation in [PlacementIsolation::Initially, PlacementIsolation::Persistently] {
        let (in_order, apart, moved) = amplification(Placement::of_handles(2, isolation));
        assert!(
            // Leaves of the new format take more of the little room that there is.
            moved * 8 < moved_together,
            "{isolation:?}: {moved} copies, {moved_together} without handles"
        );
        let in_order_max = if common::leaf_ius() == 504 { 1.06 } else { 1.04 };
        assert!(in_order < in_order_max, "{isolation:?}: {in_order}, and {moved} copies");
        assert!(apart < together - 0.02, "{isolation:?}: {apart} with handles, {together} without");
    }
}

/// Media IUs by host IUs of a store whose room is all taken by volumes that are overwritten in their order, each at a pace of its own, with
/// a handle each where there are so many.
fn amplification_of_rings(placement: Placement, size_ius: u64, blocks: u32, unsafe_units: u32) -> f64 {
    const IUS: [u64; 8] = [1, 1, 2, 2, 4, 4, 8, 8];
    let mut world = World::empty(placement, blocks, unsafe_units, 32);
    let figures = |world: &World| {
        let statistics = world.store.statistics();
        let log = &statistics.log;
        let media = log.user_ius() + log.cleaner_ius() + log.summary_ius + log.padding_ius;
        [media as f64, statistics.host_written_ius as f64]
    };
    let mut next = [0; IUS.len()];
    let mut write = |world: &mut World, volume: usize, ius: u64| {
        let first = next[volume] % size_ius;
        let count = ius.min(size_ius - first);
        next[volume] += count;
        world.write(volume as u16, first, count, volume as u16 % placement.handles);
    };
    for volume in 0..IUS.len() {
        world.create(volume as u16, size_ius);
        (0..size_ius.div_ceil(8)).for_each(|_| write(&mut world, volume, 8));
    }
    let round_ius: u64 = IUS.iter().sum();
    let mut turn = |world: &mut World, ius: u64| {
        for _ in 0..ius / round_ius {
            (0..IUS.len()).for_each(|volume| write(world, volume, IUS[volume]));
        }
    };
    turn(&mut world, 2 * 8 * size_ius);
    let before = figures(&world);
    turn(&mut world, 2 * 8 * size_ius);
    let after = figures(&world);
    (after[0] - before[0]) / (after[1] - before[1])
}

#[test]
fn little_is_copied_of_what_each_handle_overwrites_in_its_order() {
    for blocks in [96, 192] {
        for isolation in [PlacementIsolation::Initially, PlacementIsolation::Persistently] {
            let placement = Placement::of_handles(8, isolation);
            let size_ius = World::empty(placement, blocks, 0, 32).store.statistics().exported_ius / 8;
            let together = amplification_of_rings(Placement::default(), size_ius, blocks, 0);
            let apart = amplification_of_rings(placement, size_ius, blocks, 0);
            // Heads and filler are in both. Persistently isolated handles have a segment of the cleaner open each.
            let most = if isolation == PlacementIsolation::Initially { 1.1 } else { 1.2 };
            assert!(apart < most, "{blocks} blocks, {isolation:?}: {apart} with handles, {together} without");
            assert!(together > apart + 0.1, "{blocks} blocks, {isolation:?}: {together} without handles");
        }
    }
}

/// Where a power cut takes units that were programmed before, what a handle wrote last is safe only behind more of its data. Filler that came
/// for it too early took twice the room of the data.
#[test]
fn little_is_copied_where_data_wait_to_be_safe() {
    let placement = Placement::of_handles(8, PlacementIsolation::Initially);
    let size_ius = World::empty(placement, 192, 2, 32).store.statistics().exported_ius / 8;
    let apart = amplification_of_rings(placement, size_ius, 192, 2);
    assert!(apart < 1.2, "{apart} with handles");
}

/// Goal: what is told to be enough is enough, and less is not. Method: the figure that is told, and a byte less.
#[test]
fn handles_say_how_much_protected_memory_they_want() {
    let placement = Placement::of_handles(8, PlacementIsolation::Initially);
    let wants = |unsafe_units, bytes| {
        let space = FakeSpace::new(shape(ContentMode::Tags, unsafe_units), 3, 192);
        placement.wants_staging_bytes(&space, Some(bytes))
    };
    let held = 32 * SLOT_SIZE_BYTES;
    assert_eq!(wants(0, held), None, "what is programmed is safe");
    let most = wants(2, 12 * SLOT_SIZE_BYTES).expect("each handle keeps two units on each of three members");
    assert!(most > 12 * SLOT_SIZE_BYTES);
    assert_eq!((wants(2, most), wants(2, most - 1)), (None, Some(most)));
}

#[test]
fn a_reclaim_unit_says_how_much_it_takes() {
    for unsafe_units in [0, 2] {
        let mut world = World::new(persistently(3), 30, unsafe_units, 16);
        let whole = world.store.reclaim_unit_ius();
        let remaining =
            |world: &World, handle| world.store.remaining_ius(ReclaimGroup(0), PlacementHandle(handle));
        for handle in [1, 2] {
            assert_eq!(remaining(&world, handle), whole);
        }
        let mut left = whole;
        // One behind the other until it is full, and on in the next one.
        for nth in 0..whole + 3 {
            world.write(1, nth % SIZE_IUS, 1, 1);
            world.settle();
            left = if left == 1 { whole } else { left - 1 };
            assert_eq!(remaining(&world, 1), left, "IU {nth} of {whole}, {unsafe_units} unsafe units");
            assert_eq!(remaining(&world, 2), whole);
        }
        let figures: Vec<u64> =
            world.store.handle_figures().map(|figures| figures.host_written_ius).collect();
        assert_eq!(figures, [0, whole + 3, 0]);
    }
}

/// The segments that one IU lies in after it was written, with an update between.
fn updates_begin_a_reclaim_unit(slots: usize, unsafe_units: u32) {
    let mut world = World::new(persistently(2), 30, unsafe_units, slots);
    let whole = world.store.reclaim_unit_ius();
    let segment = |world: &World, iu| world.store.reclaim_unit_of(VolumeIndex(0), iu).unwrap().segment;
    let update = |world: &mut World| {
        world.store.update_reclaim_unit(ReclaimGroup(0), PlacementHandle(1), &mut world.space)
    };
    let fresh = update(&mut world);
    assert_eq!((fresh.was_partial, fresh.remaining_ius), (false, whole), "nothing was written");
    for nth in 0..10 {
        world.write(0, 2 * nth, 1, 1);
        world.write(0, 2 * nth + 1, 1, 1);
        world.settle();
        assert_eq!(segment(&world, 2 * nth), segment(&world, 2 * nth + 1));
        let ended = update(&mut world);
        assert!(ended.was_partial && ended.remaining_ius < whole, "{ended:?}");
        world.rest();
        assert_eq!(world.store.remaining_ius(ReclaimGroup(0), PlacementHandle(1)), whole);
        assert!(!update(&mut world).was_partial, "it was just ended");
        if nth > 0 {
            assert_ne!(segment(&world, 2 * nth - 1), segment(&world, 2 * nth));
        }
    }
    // A full one is not ended. Without protected memory chunks are filled up when writes are answered, so it is full at another moment.
    if slots > 0 {
        (0..whole).for_each(|iu| world.write(0, iu, 1, 1));
        world.settle();
        assert!(!update(&mut world).was_partial);
    }
}

fn updates_in_all_modes() {
    for (slots, unsafe_units) in [(16, 0), (16, 2), (0, 0), (0, 2)] {
        updates_begin_a_reclaim_unit(slots, unsafe_units);
    }
}

#[test]
fn an_update_ends_a_reclaim_unit() {
    updates_in_all_modes();
}

#[test]
fn an_update_that_ends_nothing_is_noticed() {
    diecut_testing::planted::is_noticed("log: ended reclaim unit goes on", updates_in_all_modes);
}

/// A handle is written to once, and another one again and again: anchors go on. How many IUs of them were written.
fn anchors_beside_an_idle_handle(slots: usize, unsafe_units: u32) {
    let mut world = World::new(persistently(2), 30, unsafe_units, slots);
    world.write(0, 0, 1, 1);
    world.settle();
    for round in 0..20_000 {
        world.write(1, round * 7 % SIZE_IUS, 1, 0);
    }
    let before = world.store.statistics().log.anchor_ius;
    for round in 0..20_000 {
        world.write(1, round * 7 % SIZE_IUS, 1, 0);
    }
    let anchors = world.store.statistics().log.anchor_ius - before;
    assert!(anchors > 0, "no anchor beside an idle handle: {}", world.store.describe());
}

#[test]
fn a_handle_that_nobody_writes_to_holds_up_no_anchor() {
    for unsafe_units in [0, 2] {
        anchors_beside_an_idle_handle(16, unsafe_units);
    }
}

#[test]
fn an_idle_handle_that_holds_up_anchors_is_noticed() {
    diecut_testing::planted::is_noticed("log: chunks of idle handles wait for ever", || {
        anchors_beside_an_idle_handle(16, 0);
    });
}

/// Goal: a store opens with other handles than it was written with, fewer or more, and goes on. Method: cuts between openings with one to
/// four handles of either isolation; what is staged is of handles that there are not any more.
#[test]
fn a_store_opens_with_other_handles_than_before() {
    for (slots, unsafe_units) in [(9, 0), (9, 2), (0, 1)] {
        let mut world = World::new(persistently(4), 40, unsafe_units, slots);
        let one = Placement::default();
        let initially = |handles| Placement::of_handles(handles, PlacementIsolation::Initially);
        for placement in [one, persistently(4), initially(2), persistently(3), initially(4), one] {
            let handles = world.store.placement().handles;
            for round in 0..3_000 {
                let iu = world.random.below(SIZE_IUS);
                world.write((round % 2) as u16, iu, 1, (round % u64::from(handles)) as u16);
            }
            // Handles that there are not stand for the first one.
            world.write(0, 0, 1, handles);
            world.settle();
            let unit = world.store.reclaim_unit_of(VolumeIndex(0), 0).unwrap();
            assert_eq!(unit.handle, PlacementHandle(0));
            world.cut(placement);
            assert_eq!(world.store.placement(), placement);
            world.check();
        }
    }
}

/// Goal: bytes of media are all that was programmed, and none counts twice. Method: before anything is cleaned, what the space holds.
#[test]
fn media_figures_are_what_was_programmed() {
    for (slots, unsafe_units) in [(16, 0), (16, 2)] {
        let mut world = World::new(persistently(3), 40, unsafe_units, slots);
        for round in 0..1_500u64 {
            world.write(0, round % SIZE_IUS, 1, (round % 3) as u16);
        }
        world.rest();
        let statistics = world.store.statistics();
        assert_eq!(statistics.log.segments_freed, 0);
        let endurance = world.store.endurance(&world.space);
        assert_eq!(endurance.host_written_ius, 1_500);
        assert_eq!(endurance.media_written_ius, statistics.log.media_ius());
        assert_eq!(endurance.erases, world.space.work.erases, "erased, whatever was given back");
        let unit_ius = 8;
        let handles: Vec<_> = world.store.handle_figures().collect();
        assert_eq!(handles.iter().map(|figures| figures.host_written_ius).sum::<u64>(), 1_500);
        assert_eq!(handles.iter().map(|figures| figures.log.moved_ius).sum::<u64>(), 0);
        // Map and anchors belong to no handle. Anchors give blocks back, and what they held is not there to be counted.
        let of_handles: u64 = handles.iter().map(|figures| figures.log.media_ius).sum();
        let held = world.space.unit_sum() as u64 * unit_ius;
        let anchors = statistics.log.anchor_ius;
        assert!(
            statistics.log.media_ius() >= held && statistics.log.media_ius() <= held + anchors,
            "{statistics:?}"
        );
        // What is staged is not programmed yet: a chunk of each handle at most.
        assert!(of_handles + 3 * 128 >= 1_500 && of_handles <= statistics.log.media_ius());
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_figure() {
    let space = |blocks| FakeSpace::new(shape(ContentMode::Tags, 0), 3, blocks);
    let check = |handles, isolation, blocks, slots: usize| {
        Placement::of_handles(handles, isolation).check(&space(blocks), Some(slots * SLOT_SIZE_BYTES))
    };
    let initially = PlacementIsolation::Initially;
    assert_eq!(check(0, initially, 30, 16), Err(PlacementError::Count { handles: 0 }));
    assert_eq!(check(17, initially, 90, 64), Err(PlacementError::Count { handles: 17 }));
    assert_eq!(check(16, initially, 90, 64), Ok(()));
    for handles in 2..=16u16 {
        for isolation in [initially, PlacementIsolation::Persistently] {
            let least = (1..200).find(|blocks| check(handles, isolation, *blocks, 64).is_ok()).unwrap();
            let Err(PlacementError::ReclaimUnits { needed, available, .. }) =
                check(handles, isolation, least - 1, 64)
            else {
                panic!("{handles} handles, {isolation:?}")
            };
            assert_eq!((needed, available), (least, least - 1), "{handles} handles, {isolation:?}");
        }
    }
    // The smallest chunk is a program unit: so many slots, however small, are there.
    let slots = check(16, initially, 90, 2);
    assert!(matches!(slots, Err(PlacementError::Slots { handles: 16, needed: 19, .. })), "{slots:?}");
    assert!(slots.unwrap_err().to_string().contains("need 19 slots"));
}

/// Goal: with the fewest reclaim units that a store with handles may have, writes go on for ever, whatever each handle does.
#[test]
fn the_smallest_store_with_handles_goes_on() {
    for isolation in [PlacementIsolation::Initially, PlacementIsolation::Persistently] {
        let placement = Placement::of_handles(4, isolation);
        for (slots, unsafe_units) in [(8, 0), (8, 2), (0, 0), (0, 1)] {
            let staging = (slots > 0).then_some(slots * SLOT_SIZE_BYTES);
            let fits = |blocks: &u32| {
                let space = FakeSpace::new(shape(ContentMode::Tags, unsafe_units), 3, *blocks);
                placement.check(&space, staging).is_ok()
            };
            let blocks = (1..100).find(fits).unwrap();
            let mut world = World::new(placement, blocks, unsafe_units, slots);
            let size_ius = world.store.statistics().exported_ius;
            assert!(size_ius > 100);
            for round in 0..3_000u64 {
                // Handles come and go: each is the only one for a while.
                let handle = if round % 3 == 0 { round / 500 % 4 } else { world.random.below(4) };
                let iu = world.random.below(size_ius);
                world.write(0, iu, 1, handle as u16);
            }
            world.settle();
        }
    }
}
