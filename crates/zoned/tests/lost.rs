//! Goal: a page that cannot be read any more costs what it holds, and nothing else: whose its erase block is, and how far it is written, other
//! pages say. Method: each block of a zone loses its first page or its first row, then the store is opened again, the zone is written on, so that
//! the block is copied, and reset; everything is read each time.

use crate::world;
use diecut_zoned::contract::ZoneOperation;
use diecut_zoned::states::{ZoneAction, ZoneState};
use world::{SET, UNIT_IUS, WIDTH, World};

const PAGE_IUS: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Case {
    is_protected: bool,
    is_cut: bool,
    /// Program units that are written first.
    units: u64,
    /// Pages of each block that are lost.
    pages: u32,
}

fn play(case: Case) {
    let Case { is_protected, is_cut, units, pages } = case;
    for column in 0..u64::from(WIDTH).min(units) {
        let mut world = if is_protected { World::new() } else { World::without_protected_memory() };
        world.open();
        let written = units * UNIT_IUS;
        world.write(0..written);
        let blocks = world.space.written_units().into_iter().filter(|(_, unit)| *unit == 0);
        let (block, _) = blocks.clone().nth(column as usize).expect("each column has a block");
        (0..pages).for_each(|page| world.space.lose_page(block, page));
        let lost = pages as usize * PAGE_IUS;
        for is_again in [false, true] {
            world.store = None;
            match is_cut {
                true => world.space.power_cut(&mut world.random),
                false => world.space.process_death(&mut world.random),
            }
            world.open();
            let view = world.store.as_ref().and_then(|store| store.zone(SET, 0)).expect("it exists");
            let expected = written + if is_again { 3 * UNIT_IUS } else { 0 };
            assert_eq!(u64::from(view.written_ius), expected, "{case:?}, column {column}");
            assert_eq!(view.state, ZoneState::Closed, "{case:?}, column {column}");
            assert_eq!(world.refused(0..written), lost, "{case:?}, column {column}");
            if !is_again {
                world.write(written..written + 3 * UNIT_IUS);
                assert_eq!(world.refused(0..written + 3 * UNIT_IUS), lost, "{case:?}, column {column}");
            }
        }
        let reset = ZoneOperation::Act { first_iu: Some(0), action: ZoneAction::Reset };
        world.ask(reset).expect("a zone can be reset");
        world.write(0..written);
        assert_eq!(world.refused(0..written), 0, "{case:?}, column {column}");
    }
}

#[test]
fn a_lost_page_costs_what_it_holds() {
    for (units, pages) in [(9, 1), (9, 2), (12, 2), (15, 1)] {
        for (is_protected, is_cut) in [(false, false), (false, true), (true, false), (true, true)] {
            play(Case { is_protected, is_cut, units, pages });
        }
    }
}

/// With protected memory a row that is not staged was programmed to its end: it is lost, and not torn, wherever it is.
#[test]
fn a_lost_row_at_the_end_is_not_torn() {
    for (units, pages) in [(3, 1), (6, 1), (6, 2), (1, 1)] {
        play(Case { is_protected: true, is_cut: true, units, pages });
    }
}

#[test]
fn planted_bugs_are_noticed() {
    diecut_testing::planted::all_are_noticed(&[
        ("zoned: only the first row says whose a block is", a_lost_page_costs_what_it_holds),
        ("zoned: rows that are lost do not count", a_lost_page_costs_what_it_holds),
    ]);
}
