//! Goal: every write is answered, however many zones a host fills before the first of them is programmed. Method: more zones than staging serves
//! are written from their start to their end at once, while two may be active.

use crate::world;
use diecut_units::{BufferMut, ContentMode, Payload};
use diecut_zoned::contract::*;
use world::{SET, UNIT_IUS, World, content};

const ZONES: u64 = 12;

/// Writes all zones, `together` of their units taking turns; says how many IUs cannot be read then.
fn fill_at_once(unsafe_units: u32, together: u64) -> usize {
    let mut world = World::with_cells_at_risk(unsafe_units, ZONES as u32);
    world.open();
    let (zone_ius, stride) = (world.ius(), world.ius().next_power_of_two());
    let mut out = Vec::new();
    let mut count = 0;
    for zones in (0..ZONES).collect::<Vec<_>>().chunks(together as usize) {
        for in_zone in (0..zone_ius).step_by(UNIT_IUS as usize) {
            for zone in zones {
                let first_iu = zone * stride + in_zone;
                let bytes: Vec<u8> = (first_iu..first_iu + UNIT_IUS).flat_map(content).collect();
                let payload = Payload::new(ContentMode::Tags, BufferMut::copy_from(&bytes).freeze());
                let operation = ZoneOperation::Write { first_iu, data: ZoneData::Payload(payload) };
                let command = ZoneCommand { token: ZoneToken(count), set: SET, operation };
                world.store.as_mut().expect("open").submit(command, &mut world.space, &mut out);
                count += 1;
            }
        }
    }
    let before = out.len() as u64;
    out.extend(world.until(|_, out| before + out.len() as u64 == count));
    assert!(out.iter().all(|completion| completion.result.is_ok()), "{out:?}");
    world.until(|world, _| world.space.is_idle());
    (0..ZONES).map(|zone| world.refused(zone * stride..zone * stride + zone_ius)).sum()
}

#[test]
fn every_write_is_answered() {
    for unsafe_units in [0, 1, 3] {
        for together in [1, 2] {
            assert_eq!(fill_at_once(unsafe_units, together), 0, "{unsafe_units} units at risk");
        }
    }
}

#[test]
fn planted_bugs_are_noticed() {
    diecut_testing::planted::all_are_noticed(&[(
        "zoned: slots are promised to more zones than they serve",
        || _ = fill_at_once(3, 2),
    )]);
}
