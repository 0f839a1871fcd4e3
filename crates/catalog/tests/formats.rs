//! Catalogs that earlier versions wrote open for ever.

use diecut_catalog::*;
use diecut_spec::{Isolation, Serves, Sharing};

/// What the fixtures hold: every kind of object, with and without what may be absent.
fn everything() -> State {
    let mut state = State {
        pool: PoolRecord {
            uuid: std::array::from_fn(|at| at as u8 * 17),
            starts: 3,
            unclean_starts: 1,
            closed: true,
            namespaces_given: 9,
            wear: WearRecord {
                paused: Some(true),
                rate_bytes_per_second: Some(64 << 20),
                channel_threshold_erases: Some(100),
                die_threshold_erases: Some(0),
                follow_age: Some(false),
                endurance_cycles: Some(3000),
                delta_permille: Some(100),
                literal_rule: Some(false),
            },
        },
        ..State::default()
    };
    for name in ["alpha", "beta", "idle"] {
        state.tenants.insert(name.to_owned(), TenantRecord {});
    }
    let flash = VssdRecord {
        tenant: "alpha".to_owned(),
        isolation: Isolation::Channel,
        throughput_level: 1,
        capacity_bytes: 64 << 20,
        over_provisioning_permille: 280,
        weight: 100,
        rate_limit_bytes_per_second: 0,
        sharing: Sharing::WorkConserving,
        serves: Serves::Volumes,
        number: 1,
        staging_slot: Some(0),
        staging_slot_count: 4,
        exported_ius: 1000,
    };
    let shared = VssdRecord {
        tenant: "beta".to_owned(),
        isolation: Isolation::Software,
        throughput_level: 2,
        over_provisioning_permille: 70,
        weight: 7,
        rate_limit_bytes_per_second: 200 << 20,
        sharing: Sharing::Strict,
        number: 2,
        staging_slot: None,
        staging_slot_count: 1,
        ..flash.clone()
    };
    let raw = VssdRecord {
        isolation: Isolation::Die,
        serves: Serves::Blocks { uid: Some(1000) },
        number: 3,
        ..flash.clone()
    };
    let open = VssdRecord {
        isolation: Isolation::None,
        serves: Serves::Blocks { uid: None },
        number: 4,
        ..flash.clone()
    };
    for (name, vssd) in [("flash", flash), ("shared", shared), ("raw", raw), ("open", open)] {
        state.vssds.insert(name.to_owned(), vssd);
    }
    for index in 0..3 {
        let volume = VolumeRecord {
            vssd: if index == 2 { "shared" } else { "flash" }.to_owned(),
            index: index % 2,
            size_bytes: 1 << (20 + index),
            uuid: std::array::from_fn(|at| (at as u8).wrapping_mul(31).wrapping_add(index as u8)),
            nguid: std::array::from_fn(|at| 255 - at as u8 - index as u8),
            namespace: 5 + u32::from(index),
        };
        state.volumes.insert(format!("disk-{index}"), volume);
    }
    let subsystem = SubsystemRecord {
        tenant: "alpha".to_owned(),
        serial: "A1".to_owned(),
        model: "diecut vSSD".to_owned(),
        allow_any_host: false,
        allowed_hosts: vec![
            "nqn.2014-08.org.nvmexpress:uuid:z".to_owned(),
            "nqn.2026-11.example:a".to_owned(),
        ],
        namespaces: [(1, "disk-0".to_owned()), (1024, "disk-1".to_owned())].into(),
    };
    let other = SubsystemRecord {
        tenant: "beta".to_owned(),
        serial: "0123456789ABCDEF".to_owned(),
        model: "other".to_owned(),
        allow_any_host: true,
        allowed_hosts: Vec::new(),
        namespaces: Default::default(),
    };
    state.subsystems.insert("nqn.2026-11.example:alpha".to_owned(), subsystem);
    state.subsystems.insert("nqn.2026-11.example:beta".to_owned(), other);
    state
}

/// Goal: a catalog of format version 1 opens, whatever comes later. Method: a frame that the code of 24 November 2026 wrote.
#[test]
fn a_frame_of_version_1_is_read() {
    let frame = include_bytes!("fixtures/frame-v1.bin");
    assert_eq!(decode_frame(frame), Ok((77, everything())));
}
