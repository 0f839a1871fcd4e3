//! Lanes and vSSDs on their way between shards, and back at the first one.

use crate::devices::{DeviceIndex, OwnDevice};
use crate::journal;
use crate::lanes::{Lane, by_device};
use crate::ledger::Held;
use crate::owners::Owners;
use crate::peer::{Moved, MovedPart};
use diecut_media::Divide;
use diecut_vssd::{Pool, PoolPart};
use std::collections::BTreeMap;

/// Takes lanes out, with what lies on them; what is written down of them goes ahead.
pub(crate) fn take_out<M: Divide>(here: &mut Owners<M>, lanes: &[Lane]) -> Moved {
    take_out_with(here, by_device(lanes), |_, _| {})
}

/// Takes channels of devices out, as [`take_out`] does, and of the pools what else is to go along: `add` is asked of each of these devices.
pub(crate) fn take_out_with<M: Divide>(
    here: &mut Owners<M>,
    channels: BTreeMap<DeviceIndex, Vec<u16>>,
    add: impl Fn(&mut Pool, &mut PoolPart),
) -> Moved {
    journal::send_all(here);
    let devices = &mut here.plane.flash.devices;
    let take = |(device, channels): (DeviceIndex, Vec<u16>)| {
        let OwnDevice { pool, media, .. } = devices.get_mut(device);
        let mut part = pool.detach(&channels);
        add(pool, &mut part);
        MovedPart::new(device, channels, part, media)
    };
    let moved = Moved(channels.into_iter().map(take).collect());
    devices.part();
    moved
}

/// Puts lanes in that arrived, with what lies on them.
pub(crate) fn put_in<M: Divide>(here: &mut Owners<M>, moved: Moved) {
    for part in moved.0 {
        let OwnDevice { pool, media, .. } = here.plane.flash.devices.get_mut(part.device);
        pool.attach(part.unpack(media));
    }
}

/// vSSDs of which all parts are here are one again, as the catalog has it.
pub(crate) fn join<M: Divide>(here: &mut Owners<M>) {
    let devices = &mut here.plane.flash.devices;
    for record in here.registry.state.vssds.values().filter(|record| record.parts.len() > 1) {
        devices.join_record(record);
    }
}

/// A member made an end of a vSSD.
pub(crate) fn forget_vssd<M: Divide>(here: &mut Owners<M>, number: u32) {
    if let Some(held) = here.placement.ledger.vssds.remove(&number) {
        for part in &held.parts {
            here.plane.flash.devices.get_mut(part.device).pool.release(&part.places);
        }
    }
}

/// Takes lanes back that nothing lies on any more.
pub(crate) fn take_back<M: Divide>(here: &mut Owners<M>, moved: Moved) {
    let ledger = &mut here.placement.ledger;
    let lanes = moved.lanes();
    for &lane in &lanes {
        assert_ne!(ledger.owners.give(lane, 0), 0, "I-S20: {lane:?} comes back from another shard");
    }
    let lies_there = |held: &Held| lanes.iter().any(|lane| ledger.lanes_of(held).contains(lane));
    debug_assert!(!ledger.vssds.values().any(lies_there), "I-S20: nothing lies on lanes that come back");
    put_in(here, moved);
}
