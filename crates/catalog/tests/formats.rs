//! Catalogs that earlier versions wrote open for ever.

use crate::bench;
use bench::{device, open, put, write_frames};
use diecut_catalog::*;
use diecut_emulator::{Backing, Device, Fault, FaultPlan, Options, Profile};
use diecut_spec::{
    Isolation, NamespaceSpec, Nguid, Serves, Sharing, Size, SubsystemSpec, TenantSpec, VolumeSpec, VssdSpec,
    WearSettings,
};
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
            wear: WearSettings {
                paused: Some(true),
                rate: Some(Size(64 << 20)),
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
        state.tenants.insert(name.to_owned(), TenantSpec::new(name));
    }
    let flash =
        VssdSpec { capacity: Size(64 << 20), ..VssdSpec::new("flash", "alpha", Isolation::Channel, 280) };
    let shared = VssdSpec {
        name: "shared".to_owned(),
        tenant: "beta".to_owned(),
        isolation: Isolation::Software,
        throughput_level: 2,
        over_provisioning_permille: 70,
        weight: 7,
        rate_limit: Size(200 << 20),
        sharing: Sharing::Strict,
        ..flash.clone()
    };
    let raw = VssdSpec {
        name: "raw".to_owned(),
        isolation: Isolation::Die,
        serves: Serves::Blocks,
        uid: Some(1000),
        ..flash.clone()
    };
    let open = VssdSpec {
        name: "open".to_owned(),
        isolation: Isolation::None,
        serves: Serves::Blocks,
        ..flash.clone()
    };
    for (number, spec) in (1..).zip([flash, shared, raw, open]) {
        let is_shared = spec.name == "shared";
        let record = VssdRecord {
            number,
            staging_slot: (!is_shared).then_some(0),
            staging_slot_count: if is_shared { 1 } else { 4 },
            exported_ius: 1000,
            parts: Vec::new(),
            zone_room: None,
            spec,
        };
        state.vssds.insert(record.name.clone(), record);
    }
    for index in 0..3 {
        let uuid = std::array::from_fn(|at| (at as u8).wrapping_mul(31).wrapping_add(index as u8));
        let spec = VolumeSpec {
            name: format!("disk-{index}"),
            vssd: if index == 2 { "shared" } else { "flash" }.to_owned(),
            size: Size(1 << (20 + index)),
            uuid: Some(uuid::Uuid::from_bytes(uuid)),
            nguid: Some(Nguid(std::array::from_fn(|at| 255 - at as u8 - index as u8))),
            zones: Default::default(),
            placement: Vec::new(),
        };
        let record = VolumeRecord { spec, index: index % 2, namespace: 5 + u32::from(index) };
        state.volumes.insert(record.name.clone(), record);
    }
    let subsystem = SubsystemSpec {
        nqn: "nqn.2026-11.example:alpha".to_owned(),
        tenant: "alpha".to_owned(),
        serial: Some("A1".to_owned()),
        model: Some("diecut vSSD".to_owned()),
        allow_any_host: false,
        allowed_hosts: vec![
            "nqn.2014-08.org.nvmexpress:uuid:z".to_owned(),
            "nqn.2026-11.example:a".to_owned(),
        ],
        namespaces: [(1, "disk-0"), (1024, "disk-1")]
            .map(|(nsid, volume)| NamespaceSpec { nsid, volume: volume.to_owned() })
            .to_vec(),
        paths: Vec::new(),
    };
    let other = SubsystemSpec {
        nqn: "nqn.2026-11.example:beta".to_owned(),
        tenant: "beta".to_owned(),
        serial: Some("0123456789ABCDEF".to_owned()),
        model: Some("other".to_owned()),
        allow_any_host: true,
        allowed_hosts: Vec::new(),
        paths: Vec::new(),
        namespaces: Vec::new(),
    };
    for subsystem in [subsystem, other] {
        state.subsystems.insert(subsystem.nqn.clone(), subsystem);
    }
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

const FRAME_TENANTS_V2: &[u8] = include_bytes!("fixtures/tenants-v2.bin");

/// Goal: a catalog whose tenants have no weight opens, and each has the usual one. Method: a frame of records that the code of 24 November
/// 2026 wrote, with tenants of version 2; then one gets a weight, which stays.
#[test]
fn a_catalog_with_tenants_of_version_2_opens() {
    let (mut device, mut now) = (device("tiny"), Time::ZERO);
    write_frames(&mut device, &mut now, &[(SEQUENCE_V1, FRAME_TENANTS_V2.to_vec())]);
    let (mut catalog, found) = open(&mut device, &mut now);
    assert_eq!((found, catalog.error()), (Some(everything()), None));
    let mut changed = everything();
    changed.tenants.get_mut("beta").unwrap().weight = 7;
    put(&mut device, &mut catalog, &mut now, &everything(), &changed);
    assert_eq!(open(&mut device, &mut now).1, Some(changed));
}

/// Goal: the first change of such a catalog, which writes today's format, is there as a whole or not at all. Method: the power goes
/// at each operation.
#[test]
fn a_catalog_of_version_1_becomes_one_of_today() {
    let mut changed = everything();
    changed.pool.starts += 1;
    changed.subsystems.get_mut("nqn.2026-11.example:alpha").unwrap().namespaces.pop();
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
