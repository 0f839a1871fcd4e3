//! What goes back to the first shard when its order is carried out.

use crate::control::{ControlError, RepairReport};
use crate::custody;
use crate::devices::OwnDevice;
use crate::journal;
use crate::leveling;
use crate::owners::Owners;
use crate::peer::{Answer, Moved, StepAnswer};
use crate::step::Step;
use diecut_media::Divide;
use diecut_vssd::Pool;

/// Takes out the channels that nothing lies on any more, of all devices.
pub(crate) fn unused_channels<M: Divide>(here: &mut Owners<M>) -> Moved {
    let unused_of = |OwnDevice { media, pool, .. }: &OwnDevice<M>| -> Vec<u16> {
        // What a life before left over is being erased; such a channel goes back another time.
        let is_quiet = |channel: u16| pool.is_quiet(&[channel]) && media.is_quiet(channel);
        let unused =
            |channel: &u16| media.owns(*channel) && pool.is_free_channel(*channel) && is_quiet(*channel);
        (0..media.geometry().channels).filter(unused).collect()
    };
    let devices = here.plane.flash.devices.numbered();
    let unused = devices.map(|(device, own)| (device, unused_of(own))).collect();
    custody::take_out_with(here, unused, Pool::return_slots)
}

/// An order of steps is carried out, or refused.
pub(crate) fn order_done<M: Divide>(
    here: &mut Owners<M>,
    number: u64,
    last: Option<&Step>,
    refusal: Option<ControlError>,
    repair: Option<Box<RepairReport>>,
) {
    leveling::tell_wear(here);
    let frees = matches!(last, Some(Step::DeallocVssd { .. } | Step::ReturnChannels));
    // What steps changed is known there when they are answered.
    journal::send_all(here);
    let freed = refusal.is_none() && frees;
    let returned = freed.then(|| unused_channels(here));
    let group = here.placement.duties.left.take();
    let answer = StepAnswer { refusal, returned, group, repair };
    here.placement.answer_order(number, Answer::Step(Box::new(answer)));
}
