//! The catalog on an emulated device whose power goes at every operation.

use crate::bench;
use bench::{blocks, open, put, write_frames};
use diecut_catalog::fuzz::{Part, encode_frame, encode_state};
use diecut_catalog::*;
use diecut_emulator::{Backing, Device, Fault, FaultPlan, FaultyDie, OperationKind, Options, Profile};
use diecut_units::{EraseBlockAddress, Time};

fn state(step: u64) -> State {
    let mut state = State::default();
    state.pool.starts = step;
    for tenant in 0..step % 7 {
        let name = format!("tenant-{tenant}");
        state.tenants.insert(name.clone(), diecut_spec::TenantSpec::new(&name));
    }
    state
}

/// Three lives: a cut hits one of them; each begins with what the last one left, and makes so many changes. How often the power went.
fn three_lives(device: &mut Device, now: &mut Time, from: u64, changes: u32, what: &str) -> u32 {
    let (mut acknowledged, mut asked, mut cuts) = (from, from, 0);
    for _ in 0..3 {
        if !device.is_powered() {
            device.power_on();
            cuts += 1;
        }
        let (mut catalog, found) = open(device, now);
        if !device.is_powered() {
            continue;
        }
        assert_eq!(catalog.error(), None, "{what}");
        let step = found.as_ref().map_or(0, |found| found.pool.starts);
        assert!(step == acknowledged || step == asked, "{what}: {step} of {acknowledged}..{asked}");
        if let Some(found) = found {
            assert_eq!(found, state(step), "whole");
        }
        acknowledged = step;
        for _ in 0..changes {
            asked = acknowledged + 1;
            let base = if acknowledged == 0 { State::default() } else { state(acknowledged) };
            let number = put(device, &mut catalog, now, &base, &state(asked));
            if !device.is_powered() {
                break;
            }
            assert!(catalog.durable() >= number);
            acknowledged = asked;
        }
    }
    cuts
}

/// Goal: one copy alone is enough, whatever is cut: what it holds stays until it holds something newer. Method: the die of one of them goes
/// when there is a state, and then the power at each operation, in lives that begin with a change for which the copy turns to its
/// other block. Seen to fail with an opening that takes the first block for the one with the newest.
#[test]
fn a_cut_at_any_operation_leaves_one_copy_its_state() {
    let profile = Profile::named("tiny").unwrap();
    let mut cuts = 0;
    for lost in 0..2 {
        for nth in 0..60 {
            let faults =
                FaultPlan { faults: vec![Fault::PowerCutAtOperation { nth }], ..FaultPlan::default() };
            let options = Options { backing: Backing::Tags, faults, ..Options::default() };
            let mut device = Device::create(&profile, options).unwrap();
            let mut now = Time::ZERO;
            let (mut catalog, _) = open(&mut device, &mut now);
            if !catalog.is_open() {
                continue;
            }
            put(&mut device, &mut catalog, &mut now, &State::default(), &state(1));
            if !device.is_powered() {
                continue;
            }
            let EraseBlockAddress { channel, die, .. } = blocks(&device)[lost][0];
            let die = FaultyDie { channel: channel.0, die: die.0 };
            device.add_fault(Fault::DieOffline { die, from_ns: now.0 });
            cuts += three_lives(&mut device, &mut now, 1, 3, &format!("without copy {lost}, cut {nth}"));
        }
    }
    assert!(cuts > 40, "{cuts} cuts");
}

#[test]
fn a_cut_at_any_operation_leaves_the_state_before_or_after() {
    let profile = Profile::named("tiny").unwrap();
    let mut cuts = 0;
    for seed in 0..6 {
        for nth in 0..400 {
            let faults =
                FaultPlan { faults: vec![Fault::PowerCutAtOperation { nth }], ..FaultPlan::default() };
            let options = Options { backing: Backing::Tags, seed, faults, ..Options::default() };
            let mut device = Device::create(&profile, options).unwrap();
            let mut now = Time::ZERO;
            cuts += three_lives(&mut device, &mut now, 0, 12, &format!("seed {seed} cut {nth}"));
            if seed > 0 && nth > 60 {
                break;
            }
        }
    }
    assert!(cuts > 150, "{cuts} cuts");
}

#[test]
fn failing_blocks_are_left_behind() {
    let profile = Profile::named("tiny").unwrap();
    let die = FaultyDie { channel: 0, die: 0 };
    let faults = vec![
        Fault::Fail { die, kind: OperationKind::Program, nth: 3 },
        Fault::Fail { die, kind: OperationKind::Erase, nth: 1 },
        Fault::Fail { die: FaultyDie { channel: 1, die: 0 }, kind: OperationKind::Program, nth: 5 },
    ];
    let options = Options {
        backing: Backing::Tags,
        faults: FaultPlan { faults, ..FaultPlan::default() },
        ..Options::default()
    };
    let mut device = Device::create(&profile, options).unwrap();
    let mut now = Time::ZERO;
    let (mut catalog, found) = open(&mut device, &mut now);
    assert_eq!(found, None);
    for step in 1..30 {
        let number = put(&mut device, &mut catalog, &mut now, &state(step - 1), &state(step));
        assert!(catalog.durable() >= number, "step {step}: {:?}", catalog.error());
    }
    let (_, found) = open(&mut device, &mut now);
    assert_eq!(found, Some(state(29)));
}

#[test]
fn a_lost_copy_is_replaced_by_the_other_and_two_lost_copies_are_no_new_pool() {
    let profile = Profile::named("tiny").unwrap();
    for lost in [vec![0], vec![1], vec![0, 1]] {
        let mut device =
            Device::create(&profile, Options { backing: Backing::Tags, ..Options::default() }).unwrap();
        let mut now = Time::ZERO;
        let (mut catalog, found) = open(&mut device, &mut now);
        assert_eq!((found, catalog.error()), (None, None), "an empty device has no catalog");
        put(&mut device, &mut catalog, &mut now, &State::default(), &state(5));
        for &copy in &lost {
            let EraseBlockAddress { channel, die, .. } = blocks(&device)[copy][0];
            let die = FaultyDie { channel: channel.0, die: die.0 };
            device.add_fault(Fault::DieOffline { die, from_ns: 0 });
        }
        let (catalog, found) = open(&mut device, &mut now);
        if lost.len() == 1 {
            assert_eq!((found, catalog.error()), (Some(state(5)), None), "lost: {lost:?}");
        } else {
            assert_eq!(found, None);
            assert!(matches!(catalog.error(), Some(CatalogError::Damaged(_))), "{:?}", catalog.error());
        }
    }
}

/// Goal: a frame that checks out, with a number that leaves no next one, is refused by name. Seen to fail with an overflow.
#[test]
fn a_sequence_at_its_end_is_refused_clearly() {
    let profile = Profile::named("tiny").unwrap();
    let mut device =
        Device::create(&profile, Options { backing: Backing::Tags, ..Options::default() }).unwrap();
    let mut now = Time::ZERO;
    let records = encode_state(&state(3));
    let frame =
        encode_frame(&Part { sequence: u64::MAX, follows: 0, part: 0, parts: 1, records: &records }, None);
    write_frames(&mut device, &mut now, &[(u64::MAX, frame)]);
    let (mut catalog, found) = open(&mut device, &mut now);
    if catalog.error().is_none() {
        put(&mut device, &mut catalog, &mut now, &state(3), &state(4));
    }
    assert_eq!(found, None);
    assert!(catalog.error().is_some_and(|error| error.to_string().contains("sequence number")));
}
