//! What changes cost, what there is room for, and what of later programs is refused.

use crate::bench;
use bench::{device, open, put, write_frames};
use diecut_catalog::fuzz::{Part, encode_frame, encode_records, encode_state};
use diecut_catalog::*;
use diecut_media::Media;
use diecut_spec::{Isolation, Nguid, Size, TenantSpec, VolumeSpec, VssdSpec};
use diecut_units::{IU_SIZE_BYTES, Time};

fn volume(number: u32) -> VolumeRecord {
    let uuid = std::array::from_fn(|at| (number as u8).wrapping_mul(31).wrapping_add(100 + at as u8));
    let nguid = std::array::from_fn(|at| (number as u8).wrapping_mul(17).wrapping_add(120 + at as u8));
    let spec = VolumeSpec {
        name: format!("volume-{number:05}"),
        vssd: "flash".to_owned(),
        size: Size(64 << 30),
        uuid: Some(uuid::Uuid::from_bytes(uuid)),
        nguid: Some(Nguid(nguid)),
        zones: Default::default(),
        placement: Vec::new(),
    };
    VolumeRecord { spec, index: (number % 1024) as u16, namespace: number }
}

fn add_tenant(state: &mut State, name: &str) {
    state.tenants.insert(name.to_owned(), TenantSpec::new(name));
}

fn with_volumes(count: u32) -> State {
    let mut state = State::default();
    add_tenant(&mut state, "alpha");
    let spec = VssdSpec::new("flash", "alpha", Isolation::Channel, 280);
    let flash = VssdRecord {
        spec,
        number: 1,
        staging_slot: Some(0),
        staging_slot_count: 1,
        exported_ius: 1000,
        parts: Vec::new(),
        zone_room: None,
    };
    state.vssds.insert("flash".to_owned(), flash);
    for number in 0..count {
        state.volumes.insert(format!("volume-{number:05}"), volume(number));
    }
    state
}

/// Goal: beside 10,000 volumes a change writes its own records: one program unit of each copy, and on average, with the whole state
/// that each new block begins with, a few. Method: count what 600 changes program.
#[test]
fn a_change_beside_ten_thousand_volumes_writes_a_few_pages() {
    let (mut device, mut now) = (device("cnex-1tb"), Time::ZERO);
    let unit_bytes = u64::from(device.capabilities().program_unit_pages * device.geometry().page_size_bytes);
    let (mut catalog, _) = open(&mut device, &mut now);
    let mut state = with_volumes(10_000);
    put(&mut device, &mut catalog, &mut now, &State::default(), &state);
    let written_bytes = |catalog: &Catalog| catalog.work().0 * IU_SIZE_BYTES as u64;
    let whole_bytes = written_bytes(&catalog);
    assert!(whole_bytes > 2 << 20, "a state of this size would show: {whole_bytes} bytes");
    let (mut blocks_begun, mut changes) = (0, 0);
    for number in 10_000..10_600 {
        let mut next = state.clone();
        next.volumes.insert(format!("volume-{number:05}"), volume(number));
        next.pool.namespaces_given = number;
        let before_bytes = written_bytes(&catalog);
        put(&mut device, &mut catalog, &mut now, &state, &next);
        let change_bytes = written_bytes(&catalog) - before_bytes;
        if change_bytes > 2 * unit_bytes {
            blocks_begun += 1;
        }
        (state, changes) = (next, changes + 1);
    }
    assert!(blocks_begun <= 4, "{blocks_begun} of {changes} changes began a block");
    let average_bytes = (written_bytes(&catalog) - whole_bytes) / changes;
    assert!(average_bytes < 3 * unit_bytes, "{average_bytes} bytes for each change");
    let (_, found) = open(&mut device, &mut now);
    assert!(found == Some(state), "all of it is found again");
}

/// Goal: what there is no room for is refused while nothing is changed; what makes room is not. Method: tenants until it is full.
#[test]
fn a_full_catalog_refuses_what_grows_and_takes_what_shrinks() {
    let (mut device, mut now) = (device("tiny"), Time::ZERO);
    let (mut catalog, _) = open(&mut device, &mut now);
    let mut state = State::default();
    let add = |state: &State, number: u32| {
        let mut next = state.clone();
        for of in 0..100 {
            add_tenant(&mut next, &format!("tenant-{number}-{of}-{:040}", 0));
        }
        next
    };
    for number in 0.. {
        let next = add(&state, number);
        if let Err(error) = catalog.fits(&state.changes_to(&next), 1000) {
            assert!(matches!(error, CatalogError::Full { .. }));
            assert!(error.to_string().contains("delete something first"), "{error}");
            break;
        }
        put(&mut device, &mut catalog, &mut now, &state, &next);
        state = next;
        assert!(number < 1000, "it is full at last");
    }
    assert!(state.tenants.len() > 1000, "{} tenants", state.tenants.len());
    // Without regard to the quarter that is left for changes, a block ends.
    let (mut too_large, mut number) = (state.clone(), 5000);
    while catalog.put(state.changes_to(&too_large), &mut device, now).is_ok() {
        bench::run(&mut device, &mut catalog, &mut now, Catalog::is_idle);
        state = too_large.clone();
        (too_large, number) = (add(&too_large, number), number + 1);
    }
    let mut smaller = state.clone();
    smaller.tenants.pop_first();
    catalog.fits(&state.changes_to(&smaller), 1000).unwrap();
    // Who gets a part of the room only has none here.
    let mut other = state.clone();
    add_tenant(&mut other, "one more");
    let error = catalog.fits(&state.changes_to(&other), 500).unwrap_err();
    assert!(matches!(error, CatalogError::Full { .. }), "{error}");
    catalog.fits(&state.changes_to(&smaller), 0).expect("it becomes smaller");
    put(&mut device, &mut catalog, &mut now, &state, &smaller);
    let (catalog, found) = open(&mut device, &mut now);
    assert_eq!(catalog.error(), None);
    assert!(found == Some(smaller));
}

/// Goal: what is put while something else is written is all written, and nothing of it replaces the rest. Method: four changes without a
/// pause, of which the first is being written.
#[test]
fn changes_that_come_meanwhile_are_written_together() {
    let (mut device, mut now) = (device("tiny"), Time::ZERO);
    let (mut catalog, _) = open(&mut device, &mut now);
    let mut state = State::default();
    let mut last = 0;
    for name in ["alpha", "beta", "gamma", "delta"] {
        let mut next = state.clone();
        add_tenant(&mut next, name);
        last = catalog.put(state.changes_to(&next), &mut device, now).unwrap();
        state = next;
    }
    bench::run(&mut device, &mut catalog, &mut now, |catalog| catalog.durable() >= last);
    let (_, found) = open(&mut device, &mut now);
    assert!(found == Some(state), "all four are found: {found:?}");
}

fn error_of(frames: &[(u64, Vec<u8>)]) -> String {
    let (mut device, mut now) = (device("tiny"), Time::ZERO);
    write_frames(&mut device, &mut now, frames);
    let (catalog, found) = open(&mut device, &mut now);
    assert_eq!(found, None);
    let error = catalog.error().unwrap();
    assert!(matches!(error, CatalogError::Version(_)), "{error}");
    error.to_string()
}

fn frame(sequence: u64, follows: u64, records: &[u8]) -> (u64, Vec<u8>) {
    (sequence, encode_frame(&Part { sequence, follows, part: 0, parts: 1, records }, None))
}

/// Goal: who starts an older program on a later one's pool is told what it does not know, and older states are not taken for what
/// exists. Method: a change of an unknown kind, of an unknown version, and a frame of an unknown version, behind a good state.
#[test]
fn what_a_later_program_wrote_is_refused_by_name() {
    let good = || frame(5, 0, &encode_state(&with_volumes(1)));
    let mut next = with_volumes(1);
    add_tenant(&mut next, "zeta");
    let change = encode_records(&with_volumes(1).changes_to(&next));
    let mut kind = change.clone();
    kind[0] = 99;
    let error = error_of(&[good(), frame(6, 5, &kind)]);
    assert!(error.contains("kind 99") && error.contains("\"zeta\""), "{error}");
    let mut version = change;
    version[2] = 7;
    let error = error_of(&[good(), frame(6, 5, &version)]);
    assert!(error.contains("a tenant (\"zeta\") in version 7"), "{error}");
    let (_, mut later) = frame(6, 5, &[]);
    later[8] = 3;
    let error = error_of(&[good(), (6, later)]);
    assert!(error.contains("format version 3"), "{error}");
}

/// Goal: a change whose state is not there changes nothing. Method: a block with a frame missing.
#[test]
fn a_change_of_a_state_that_is_missing_is_passed_over() {
    let (mut device, mut now) = (device("tiny"), Time::ZERO);
    let mut next = with_volumes(1);
    add_tenant(&mut next, "zeta");
    let change = encode_records(&with_volumes(1).changes_to(&next));
    write_frames(
        &mut device,
        &mut now,
        &[frame(5, 0, &encode_state(&with_volumes(1))), frame(7, 6, &change)],
    );
    let (mut catalog, found) = open(&mut device, &mut now);
    assert_eq!(found, Some(with_volumes(1)));
    let number = put(&mut device, &mut catalog, &mut now, &with_volumes(1), &next);
    assert_eq!(number, 8, "a number that was seen is not given again");
    assert_eq!(open(&mut device, &mut now).1, Some(next));
}
