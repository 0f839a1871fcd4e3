//! A catalog with one of everything.

use diecut_catalog::{
    PoolRecord, State, SubsystemRecord, TenantRecord, VolumeRecord, VssdRecord, WearRecord,
};
use diecut_spec::Isolation;

/// A state in which every kind of object exists.
pub fn catalog_state() -> State {
    let mut state = State {
        pool: PoolRecord {
            uuid: [7; 16],
            starts: 3,
            unclean_starts: 1,
            closed: false,
            namespaces_given: 1,
            wear: WearRecord {
                follow_age: Some(true),
                endurance_cycles: Some(1000),
                ..WearRecord::default()
            },
        },
        ..State::default()
    };
    state.tenants.insert("alpha".to_owned(), TenantRecord {});
    let vssd = VssdRecord {
        tenant: "alpha".to_owned(),
        isolation: Isolation::Channel,
        throughput_level: 1,
        capacity_bytes: 64 << 20,
        over_provisioning_permille: 280,
        weight: 1,
        rate_limit_bytes_per_second: 0,
        sharing: Default::default(),
        serves: Default::default(),
        number: 1,
        staging_slot: Some(0),
        staging_slot_count: 1,
        exported_ius: 1000,
    };
    state.vssds.insert("alpha-flash".to_owned(), vssd);
    let volume = VolumeRecord {
        vssd: "alpha-flash".to_owned(),
        index: 0,
        size_bytes: 1 << 20,
        uuid: [1; 16],
        nguid: [2; 16],
        namespace: 1,
    };
    state.volumes.insert("alpha-disk".to_owned(), volume);
    let subsystem = SubsystemRecord {
        tenant: "alpha".to_owned(),
        serial: "A1".to_owned(),
        model: "diecut".to_owned(),
        allow_any_host: false,
        allowed_hosts: vec!["nqn.2014-08.org.nvmexpress:uuid:host-1".to_owned()],
        namespaces: [(1, "alpha-disk".to_owned())].into(),
    };
    state.subsystems.insert("nqn.2026-11.example:alpha".to_owned(), subsystem);
    state
}
