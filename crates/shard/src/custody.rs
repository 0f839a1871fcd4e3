//! Channels and vSSDs that come back to the first shard.

use crate::owners::Owners;
use crate::peer::Moved;
use diecut_media::Divide;

/// A member made an end of a vSSD.
pub(crate) fn forget_vssd<M: Divide>(here: &mut Owners<M>, number: u32) {
    if let Some(held) = here.placement.ledger.vssds.remove(&number) {
        here.plane.flash.pool.release(&held.places);
    }
}

/// Takes channels back that nothing lies on any more.
pub(crate) fn take_back<M: Divide>(here: &mut Owners<M>, moved: Moved) {
    for &channel in &moved.channels {
        here.placement.ledger.owners[usize::from(channel)] = 0;
    }
    let part = moved.unpack(&mut here.plane.flash.media);
    here.plane.flash.pool.attach(part);
}
