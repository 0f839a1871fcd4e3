//! Channels and vSSDs that come back to the first shard.

use crate::journal;
use crate::ledger::Held;
use crate::owners::Owners;
use crate::peer::Moved;
use diecut_media::Divide;
use diecut_vssd::PoolPart;

/// Takes channels out, with what lies on them; what is written down of them goes ahead.
pub(crate) fn take_out<M: Divide>(here: &mut Owners<M>, channels: &[u16]) -> PoolPart {
    journal::send_all(here);
    here.plane.flash.devices.divided_mut().pool.detach(channels)
}

/// A member made an end of a vSSD.
pub(crate) fn forget_vssd<M: Divide>(here: &mut Owners<M>, number: u32) {
    if let Some(held) = here.placement.ledger.vssds.remove(&number) {
        for part in &held.parts {
            here.plane.flash.devices.get_mut(part.device).pool.release(&part.places);
        }
    }
}

/// Takes channels back that nothing lies on any more.
pub(crate) fn take_back<M: Divide>(here: &mut Owners<M>, moved: Moved) {
    for &channel in &moved.channels {
        let owner = &mut here.placement.ledger.owners[usize::from(channel)];
        assert_ne!(*owner, 0, "I-S20: channel {channel} comes back from another shard");
        *owner = 0;
    }
    let geometry = here.plane.flash.devices.divided().media.geometry();
    let lies_there = |held: &Held| moved.channels.iter().any(|c| held.channels(geometry).contains(c));
    debug_assert!(
        !here.placement.ledger.vssds.values().any(lies_there),
        "I-S20: nothing lies on channels that come back"
    );
    let part = moved.unpack(&mut here.plane.flash.devices.divided_mut().media);
    here.plane.flash.devices.divided_mut().pool.attach(part);
}
