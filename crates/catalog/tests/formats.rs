//! Catalogs that earlier versions wrote open for ever.

mod bench;

use bench::{device, open, put, write_frames};
use diecut_catalog::*;
use diecut_emulator::{Backing, Device, Fault, FaultPlan, Options, Profile};
use diecut_spec::{Isolation, Serves, Sharing};
use diecut_units::Time;

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

const FRAME_V1: &[u8] = include_bytes!("fixtures/frame-v1.bin");
/// The number in the fixture.
const SEQUENCE_V1: u64 = 77;

/// Goal: a catalog of format version 1 opens, whatever comes later. Method: a frame that the code of 24 November 2026 wrote.
#[test]
fn a_catalog_of_version_1_opens() {
    let (mut device, mut now) = (device("tiny"), Time::ZERO);
    write_frames(&mut device, &mut now, &[(SEQUENCE_V1, FRAME_V1.to_vec())]);
    let (catalog, found) = open(&mut device, &mut now);
    assert_eq!((found, catalog.error()), (Some(everything()), None));
    assert_eq!(catalog.durable(), SEQUENCE_V1);
}

/// Goal: the first change of such a catalog, which writes today's format, is there as a whole or not at all. Method: the power goes
/// at each operation.
#[test]
fn a_catalog_of_version_1_becomes_one_of_today() {
    let mut changed = everything();
    changed.pool.starts += 1;
    changed.subsystems.get_mut("nqn.2026-11.example:alpha").unwrap().namespaces.remove(&1024);
    let (mut before, mut after) = (0, 0);
    // The first two operations write the fixture.
    for nth in 2..60 {
        let faults = FaultPlan { faults: vec![Fault::PowerCutAtOperation { nth }], ..FaultPlan::default() };
        let options = Options { backing: Backing::Tags, faults, ..Options::default() };
        let mut device = Device::create(&Profile::named("tiny").unwrap(), options).unwrap();
        let mut now = Time::ZERO;
        write_frames(&mut device, &mut now, &[(SEQUENCE_V1, FRAME_V1.to_vec())]);
        let (mut catalog, found) = open(&mut device, &mut now);
        if device.is_powered() {
            assert_eq!(found, Some(everything()));
            put(&mut device, &mut catalog, &mut now, &everything(), &changed);
        }
        if !device.is_powered() {
            device.power_on();
        }
        let (mut catalog, mut found) = open(&mut device, &mut now);
        if !device.is_powered() {
            device.power_on();
            (catalog, found) = open(&mut device, &mut now);
        }
        assert_eq!(catalog.error(), None, "cut {nth}");
        let found = found.unwrap_or_else(|| panic!("cut {nth}: nothing is found"));
        assert!(found == everything() || found == changed, "cut {nth}");
        if found == changed {
            after += 1;
        } else {
            before += 1;
        }
    }
    assert!(before > 0 && after > 0, "{before} before, {after} after");
}
