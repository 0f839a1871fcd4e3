//! A catalog with one of everything.

use diecut_catalog::{
    PlacementEventRecord, PlacementRecord, PoolRecord, RegistrantRecord, ReservationRecord, State,
    VolumeRecord, VssdRecord,
};
use diecut_spec::{
    Isolation, NamespaceSpec, Nguid, Size, SubsystemSpec, TenantSpec, VolumeSpec, VssdSpec, WearSettings,
};

/// A state in which every kind of object exists.
pub fn catalog_state() -> State {
    let mut state = State {
        pool: PoolRecord {
            uuid: [7; 16],
            starts: 3,
            unclean_starts: 1,
            closed: false,
            namespaces_given: 1,
            wear: WearSettings {
                follow_age: Some(true),
                endurance_cycles: Some(1000),
                ..WearSettings::default()
            },
        },
        ..State::default()
    };
    state.tenants.insert("alpha".to_owned(), TenantSpec::new("alpha"));
    let vssd = VssdRecord {
        spec: VssdSpec {
            capacity: Size(64 << 20),
            ..VssdSpec::new("alpha-flash", "alpha", Isolation::Channel, 280)
        },
        number: 1,
        staging_slot: Some(0),
        staging_slot_count: 1,
        exported_ius: 1000,
        parts: Vec::new(),
        zone_room: None,
    };
    state.vssds.insert("alpha-flash".to_owned(), vssd);
    let spec = VolumeSpec {
        uuid: "01010101-0101-0101-0101-010101010101".parse().ok(),
        nguid: Some(Nguid([2; 16])),
        ..VolumeSpec::new("alpha-disk", "alpha-flash", Size(1 << 20))
    };
    state.volumes.insert("alpha-disk".to_owned(), VolumeRecord { spec, index: 0, namespace: 1 });
    let subsystem = SubsystemSpec {
        nqn: "nqn.2026-11.example:alpha".to_owned(),
        tenant: "alpha".to_owned(),
        serial: Some("A1".to_owned()),
        model: Some("diecut".to_owned()),
        allow_any_host: false,
        allowed_hosts: vec!["nqn.2014-08.org.nvmexpress:uuid:host-1".to_owned()],
        namespaces: vec![NamespaceSpec::new(1, "alpha-disk")],
        paths: vec!["192.0.2.1:4420=inaccessible".parse().expect("a path")],
    };
    state.subsystems.insert(subsystem.nqn.clone(), subsystem);
    let reservation = ReservationRecord {
        generation: 2,
        registrants: vec![RegistrantRecord([3; 16], 4)],
        kind: Some(1),
        holder: Some([3; 16]),
    };
    state.reservations.insert(1, reservation);
    let events = vec![PlacementEventRecord(3, 7, 9, 4000, 1, 0, 2)];
    let placement = PlacementRecord { enabled: [(2, vec![0, 3])].into(), events };
    state.placements.insert("nqn.2026-11.example:alpha".to_owned(), placement);
    state
}
