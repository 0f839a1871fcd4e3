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

/// Takes out the channels that nothing lies on any more.
pub(crate) fn unused_channels<M: Divide>(here: &mut Owners<M>) -> Moved {
    let channels = 0..here.plane.flash.devices.divided().media.geometry().channels;
    let unused = channels.filter(|&channel| {
        let OwnDevice { media, pool, .. } = here.plane.flash.devices.divided();
        // What a life before left over is being erased; such a channel goes back another time.
        let is_quiet = || pool.is_quiet(&[channel]) && media.is_quiet(channel);
        media.owns(channel) && pool.is_free_channel(channel) && is_quiet()
    });
    let unused: Vec<u16> = unused.collect();
    let mut part = custody::take_out(here, &unused);
    here.plane.flash.devices.divided_mut().pool.return_slots(&mut part);
    Moved::new(unused, part, &mut here.plane.flash.devices.divided_mut().media)
}

/// Nothing is given back.
pub(crate) fn no_channels<M: Divide>(here: &mut Owners<M>) -> Moved {
    let part = custody::take_out(here, &[]);
    Moved::new(Vec::new(), part, &mut here.plane.flash.devices.divided_mut().media)
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
