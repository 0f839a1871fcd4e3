//! A shard that is not the first one, and failed: what is left of it, and how its next life comes to where it can be told to open.
//!
//! Of what it had in memory nothing is looked at but values that go between shards as a whole: its part of the device, the regions of
//! protected memory that have its block states, and messages. The next life
//!
//! 1. tells the first shard that it began ([`Message::Fell`]), after all that the one before had to tell;
//! 2. lets the device end what it was told, and answers what of it is the catalog's. Orders that come are of a time that is over: only the channels
//!    in them count;
//! 3. reads block states when the first shard knows ([`Order::Again`]: orders after it are for this life), compares them with flash, and says
//!    what it has ([`Back`]). It opens as at any start then.

use crate::devices::DeviceIndex;
use crate::opening::Opening;
use crate::owners::Owners;
use crate::panics_told;
use crate::peer::{Answer, Back, Message, Order, ShardMessage};
use diecut_media::Divide;
use diecut_units::{Time, mark};
use diecut_vssd::{DieTimesView, Pool};

/// Takes a message of another shard before this one opens again.
pub(crate) fn told<M: Divide>(here: &mut Owners<M>, message: ShardMessage, now: Time) {
    if let Message::Panicked(panics) = message.0 {
        return panics_told::hear(here, panics);
    }
    let Owners { plane, placement, .. } = here;
    let media = &mut plane.flash.devices.only_mut().media;
    let ruins = placement.duties.ruins.as_mut().expect("I-S35: a shard that failed has ruins");
    match message.0 {
        Message::Order(number, Order::Again) => ruins.again = Some(number),
        Message::Order(_, order) => {
            if let Some(moved) = order.into_moved() {
                ruins.take(moved, media);
            }
        }
        Message::Media(_, command) => media.submit(command, now),
        // Of hosts that are gone, or of a move that ends everything.
        Message::Kept(_) | Message::Passed(_) | Message::StatesAre(..) => {}
        Message::Panicked(_)
        | Message::Answer(..)
        | Message::MediaDone(..)
        | Message::MediaMissed(..)
        | Message::States(..)
        | Message::Wear(..)
        | Message::Keep(_)
        | Message::Fell(_) => {
            unreachable!("I-S5: these are for the first shard")
        }
    }
}

fn own_channels<M: Divide>(media: &M) -> Vec<u16> {
    (0..media.geometry().channels).filter(|channel| media.owns(*channel)).collect()
}

fn is_quiet<M: Divide>(media: &M) -> bool {
    let mut channels = 0..media.geometry().channels;
    channels.all(|channel| !media.owns(channel) || media.is_quiet(channel))
}

/// When [`go_on`] has something to do.
pub(crate) fn deadline<M: Divide>(here: &Owners<M>) -> Time {
    let media = &here.plane.flash.devices.only().media;
    let is_ordered = here.placement.duties.ruins.as_ref().is_some_and(|ruins| ruins.again.is_some());
    let is_due = !here.placement.outgoing.is_empty() || is_ordered && is_quiet(media);
    if is_due { Time::ZERO } else { media.next_event() }
}

/// Lets the device end what it was told before, and reads block states when it has.
pub(crate) fn go_on<M: Divide>(here: &mut Owners<M>, opening: &mut Opening, now: Time) {
    let flash = &mut here.plane.flash;
    let own = flash.devices.only_mut();
    if own.media.next_event() <= now {
        let mut ended = Vec::new();
        own.media.advance(now, &mut ended);
        let foreign = ended.into_iter().filter(|completion| !Pool::owns(completion.token));
        flash.foreign.extend(foreign.map(|completion| (DeviceIndex::default(), completion)));
    }
    here.take_foreign(now);
    let duties = &mut here.placement.duties;
    let Some(number) = duties.ruins.as_ref().and_then(|ruins| ruins.again) else { return };
    if !is_quiet(&here.plane.flash.devices.only().media) {
        mark!("shard: commands of a life before are waited for");
        return;
    }
    let pool = duties.ruins.take().map(|ruins| ruins.pool).unwrap_or_default();
    let is_whole = pool.channels() == own_channels(&here.plane.flash.devices.only().media);
    let own = here.plane.flash.devices.only_mut();
    let opened = match is_whole {
        true => pool.open(&own.media, own.config.pool.clone()).map_err(|error| error.to_string()),
        false => Err("a part of its block states was lost on its way".to_owned()),
    };
    match opened {
        Ok(pool) => {
            own.pool = pool;
            own.pool.follow();
            DieTimesView::of(&mut own.pool).note_from(here.plane.delays.operation_threshold());
            own.pool.begin_check(&mut own.media, now);
            duties.checks = Some(number);
            opening.checks();
        }
        Err(error) => {
            here.placement.answer_order(number, Answer::Back(Err(error.clone())));
            opening.fails(error);
        }
    }
}

/// Says what the shard has, when that was compared with flash.
pub(crate) fn checked<M: Divide>(here: &mut Owners<M>, opening: &mut Opening) {
    let checks = &mut here.placement.duties.checks;
    let devices = &here.plane.flash.devices;
    let Some(number) = checks.take_if(|_| devices.only().pool.is_checked()) else { return };
    let pool = &devices.only().pool;
    let channels = own_channels(&here.plane.flash.devices.only().media);
    let vssds = pool.vssd_ids().map(|id| {
        let places = pool.places_of(id);
        let blocks = pool.blocks_of(&places);
        (id, places, blocks)
    });
    let back = Back { vssds: vssds.collect(), exchanges: pool.exchanges_on(&channels), channels };
    here.placement.answer_order(number, Answer::Back(Ok(Box::new(back))));
    opening.waits_for_orders();
}
