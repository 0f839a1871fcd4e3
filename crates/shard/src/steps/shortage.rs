//! QoS sets that are promised more than the shaper of the device gives out.

use crate::owners::Owners;
use crate::plan;
use diecut_media::Divide;

/// An operator is told of them, by the first shard.
pub(crate) fn tell<M: Divide>(here: &mut Owners<M>) {
    let device = here.device_shaper().filter(|_| !here.placement.is_member());
    let shortage = device.and_then(|device| plan::shortage(&here.registry.state, device));
    here.notices.extend(shortage);
}
