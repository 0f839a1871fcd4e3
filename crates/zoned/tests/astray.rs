//! Goal: a page that lies where another should is not taken for it, though it is whole, also not after its block was copied. Method: zones
//! on a space in memory in which program units change places, and reads of everything.

use crate::world;
use world::{UNIT_IUS, World};

/// Units of one block, and of two, in each other's place. How many reads said so.
fn swap_and_read(in_one_block: bool) -> usize {
    let mut world = World::new();
    world.open();
    let all = world.ius();
    world.write(0..all);
    let units = world.space.written_units();
    let mut refused = 0;
    for (at, one) in units.iter().enumerate() {
        let is_other = |other: &&(_, u32)| (other.0 == one.0) == in_one_block && *other != one;
        let Some(other) = units[at..].iter().find(is_other) else { continue };
        world.space.swap(*one, *other);
        refused += world.refused(0..all);
        world.space.swap(*one, *other);
    }
    refused
}

/// A process that begins again copies the open blocks of a zone that is written on: with units that lie in each other's place.
fn swap_and_copy() -> usize {
    let mut world = World::new();
    world.open();
    let (half, all) = (world.ius() / 2, world.ius());
    world.write(0..half);
    // The first unit of a block, and the last ones, are looked at when the process begins.
    let of_second_row: Vec<_> = world.space.written_units().into_iter().filter(|unit| unit.1 == 1).collect();
    let [one, other, ..] = of_second_row[..] else { panic!("a zone has several blocks") };
    world.space.swap(one, other);
    world.store = None;
    world.space.process_death(&mut world.random);
    world.open();
    world.write(half..all);
    world.refused(0..all)
}

#[test]
fn a_page_is_not_taken_for_another() {
    for in_one_block in [false, true] {
        let refused = swap_and_read(in_one_block);
        assert!(
            refused > 100,
            "in one block: {in_one_block}: {refused} reads found that a page is not theirs"
        );
    }
    assert_eq!(swap_and_copy(), 2 * UNIT_IUS as usize);
}

#[test]
fn planted_bugs_are_noticed() {
    diecut_testing::planted::all_are_noticed(&[
        ("zoned: identity of a page not compared", || _ = swap_and_read(false)),
        ("zoned: copies make wrong content right", || _ = swap_and_copy()),
    ]);
}
