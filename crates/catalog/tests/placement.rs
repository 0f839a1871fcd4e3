//! Goal: reclaim unit handles of a vSSD and those of a volume are what they were after a restart, and a change of them is a change. Method: a state
//! with all kinds of them is written, found again, changed, and found again.

use crate::bench;
use bench::{device, open, put};
use diecut_catalog::{State, VolumeRecord, VssdRecord};
use diecut_spec::{Isolation, Nguid, PlacementIsolation, Size, TenantSpec, VolumeSpec, VssdSpec};
use diecut_units::Time;

fn vssd(
    name: &str,
    number: u32,
    placement_handles: u16,
    placement_isolation: PlacementIsolation,
) -> VssdRecord {
    let spec = VssdSpec {
        placement_handles,
        placement_isolation,
        ..VssdSpec::new(name, "alpha", Isolation::Channel, 280)
    };
    VssdRecord {
        spec,
        number,
        staging_slot: Some(number - 1),
        staging_slot_count: 1,
        exported_ius: 1000,
        parts: Vec::new(),
        zone_room: None,
    }
}

fn volume(vssd: &str, index: u16, placement: &[u16]) -> VolumeRecord {
    let spec = VolumeSpec {
        name: format!("{vssd}-{index}"),
        vssd: vssd.to_owned(),
        size: Size(1 << 30),
        uuid: Some(uuid::Uuid::from_bytes([index as u8 + 1; 16])),
        nguid: Some(Nguid([index as u8 + 2; 16])),
        zones: Default::default(),
        placement: placement.to_vec(),
    };
    VolumeRecord { spec, index, namespace: index.into() }
}

#[test]
fn handles_are_found_again() {
    let (mut device, mut now) = (device("tiny"), Time::ZERO);
    let (mut catalog, _) = open(&mut device, &mut now);
    let mut state = State::default();
    state.tenants.insert("alpha".to_owned(), TenantSpec::new("alpha"));
    let vssds = [
        vssd("plain", 1, 0, PlacementIsolation::Initial),
        vssd("mixing", 2, 3, PlacementIsolation::Initial),
        vssd("apart", 3, 16, PlacementIsolation::Persistent),
    ];
    for record in vssds {
        state.vssds.insert(record.spec.name.clone(), record);
    }
    let all: Vec<u16> = (0..16).rev().collect();
    for (vssd, index, placement) in
        [("plain", 1, &[][..]), ("mixing", 2, &[]), ("mixing", 3, &[2, 0]), ("apart", 4, &all)]
    {
        let record = volume(vssd, index, placement);
        state.volumes.insert(record.spec.name.clone(), record);
    }
    put(&mut device, &mut catalog, &mut now, &State::default(), &state);
    let (mut catalog, found) = open(&mut device, &mut now);
    let found = found.expect("it was written");
    assert_eq!(found.volumes["mixing-3"].placement, [2, 0], "the first one is placement handle 0");
    assert_eq!(found.volumes["apart-4"].placement, all);
    assert_eq!(found.vssds["apart"].placement_handles, 16);
    assert!(found == state);

    let mut next = state.clone();
    next.volumes.insert("mixing-3".to_owned(), volume("mixing", 3, &[0, 2]));
    put(&mut device, &mut catalog, &mut now, &state, &next);
    let (_, found) = open(&mut device, &mut now);
    assert!(found == Some(next), "another order is another placement");
}
