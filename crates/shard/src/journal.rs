//! Block states of devices that shards divide and whose block states are in a log on flash: the pool of the first shard keeps that log, and
//! those of the others send it their changes. What waits for a change there goes on when the first shard says that it is durable.

use crate::devices::{DeviceIndex, OwnDevice};
use crate::owners::Owners;
use crate::peer::{Message, ShardMessage};
use crate::seat::ShardIndex;
use diecut_media::Divide;
use diecut_units::{Time, mutant};
use diecut_vssd::{StateChanges, StatesDurable};

/// Sends what somebody waits for to the first shard; of the first shard, tells the others what is durable.
pub(crate) fn go_on<M: Divide>(here: &mut Owners<M>) {
    if here.placement.shards == 1 {
        return;
    }
    if here.placement.is_member() {
        return send(here, false);
    }
    let Owners { plane, placement, .. } = here;
    for (device, own) in plane.flash.devices.numbered_mut() {
        for (to, durable) in own.pool.take_durable() {
            let message = ShardMessage(Message::StatesAre(device, durable));
            placement.outgoing.push((ShardIndex(to), message));
        }
    }
}

/// Sends everything that was not sent, ahead of whatever is told to the first shard next: of a channel that leaves, or of a vSSD that was made, it knows
/// all then.
pub(crate) fn send_all<M: Divide>(here: &mut Owners<M>) {
    if here.placement.is_member() && !mutant!("shard: a channel leaves before its block states") {
        send(here, true);
    }
}

fn send<M: Divide>(here: &mut Owners<M>, all: bool) {
    let Owners { plane, placement, .. } = here;
    for (device, own) in plane.flash.devices.numbered_mut() {
        if device.0 > 0 && mutant!("shard: block states of the first device only are sent") {
            continue;
        }
        if let Some(changes) = own.pool.take_changes(all) {
            let message = ShardMessage(Message::States(device, changes));
            placement.outgoing.push((ShardIndex(0), message));
        }
    }
}

/// The first shard's: changes of another one.
pub(crate) fn take_in<M: Divide>(
    here: &mut Owners<M>,
    from: ShardIndex,
    device: DeviceIndex,
    changes: StateChanges,
    now: Time,
) {
    let OwnDevice { pool, media, .. } = here.plane.flash.devices.get_mut(device);
    pool.take_in(from.0, changes, media, now);
}

/// What became of changes of this shard.
pub(crate) fn told<M: Divide>(here: &mut Owners<M>, device: DeviceIndex, durable: StatesDurable, now: Time) {
    let OwnDevice { pool, media, .. } = here.plane.flash.devices.get_mut(device);
    pool.states_are(durable, media, now);
}
