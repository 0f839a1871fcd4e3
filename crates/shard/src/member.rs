//! What shards other than the first do: they carry out its orders.

use crate::control::{ControlError, ControlErrorKind};
use crate::custody;
use crate::drive;
use crate::job::Reply;
use crate::jobs::Jobs;
use crate::journal;
use crate::lead;
use crate::ledger::HeldPart;
use crate::leveling;
use crate::opening::{Opening, open_own_stores, serve};
use crate::owners::Owners;
use crate::panics_told;
use crate::peer::{Alloc, Answer, Message, Order, ShardMessage, World};
use crate::relocation;
use crate::returns;
use crate::seat::ShardIndex;
use crate::status;
use crate::steps::{stores, vssds};
use diecut_catalog::State;
use diecut_media::{Divide, Media};
use diecut_nvmf as target;
use diecut_units::{Time, mark};

/// A message of another shard.
pub(crate) fn told<M: Divide>(
    here: &mut Owners<M>,
    from: ShardIndex,
    message: ShardMessage,
    now: Time,
    actions: &mut Vec<drive::Action>,
) {
    let is_for_member = matches!(
        message.0,
        Message::Order(..)
            | Message::Media(..)
            | Message::StatesAre(..)
            | Message::Kept(_)
            | Message::Panicked(_)
    );
    let is_for_any = matches!(message.0, Message::Passed(_));
    assert!(
        is_for_any || is_for_member == here.placement.is_member(),
        "I-S5: {message:?} is not for shard {}",
        here.placement.index.0
    );
    if message.of_device().is_some_and(|device| !here.plane.flash.devices.has(device)) {
        return;
    }
    match message.0 {
        Message::Order(number, Order::Find(inquiry)) => {
            let answer = Answer::Found(status::find(here, inquiry));
            here.placement.answer_order(number, answer);
        }
        Message::Order(number, Order::Wear) => {
            let wear = leveling::wear_report(here, now);
            here.placement.answer_order(number, Answer::Wear(wear));
        }
        Message::Order(number, order) => here.placement.duties.waiting.push_back((number, order)),
        Message::Answer(number, answer) => lead::answered(here, number, *answer, actions),
        Message::Media(device, command) => {
            let media = &mut here.plane.flash.devices.get_mut(device).media;
            if media.owns(command.operation.block().channel.0) {
                return media.submit(command, now);
            }
            // The first shard did not wait for it: the device does not answer.
            let message = ShardMessage(Message::MediaMissed(device, command));
            here.placement.outgoing.push((ShardIndex(0), message));
        }
        Message::MediaMissed(device, command) => here.reaches().at(device).submit(command, now),
        Message::States(device, changes) => journal::take_in(here, from, device, changes, now),
        Message::StatesAre(device, durable) => journal::told(here, device, durable, now),
        Message::Wear(device, news) => leveling::heard_of(here, device, news),
        Message::Keep(keep) => here.placement.reservations.ask(from, *keep),
        Message::Kept(kept) => here.plane.nvme.handle(target::Event::Kept(kept), now),
        Message::MediaDone(device, completion) => {
            here.placement.attendance.media_done(device, completion.token.0);
            here.plane.flash.foreign.push((device, completion));
        }
        Message::Panicked(panics) => panics_told::hear(here, panics),
        Message::Fell(_) => unreachable!("I-S35: looked at before"),
        Message::Passed(number) => {
            relocation::all_arrived(here, now);
            if here.placement.is_member() {
                here.placement.answer_order(number, Answer::Done);
            } else {
                lead::answered(here, number, Answer::Done, actions);
            }
        }
    }
}

/// What came of the orders that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    Nothing,
    /// There is something new to carry out.
    Jobs,
    /// The shard serves: it takes what came meanwhile, then answers the order of this number.
    Serves(u64),
}

/// Begins orders in the order they came; those of steps are carried out side by side, as the first shard says.
pub(crate) fn begin_orders<M: Divide>(
    here: &mut Owners<M>,
    opening: &mut Opening,
    jobs: &mut Jobs,
    now: Time,
) -> Begun {
    let mut begun = Begun::Nothing;
    loop {
        if let Some(number) = here.placement.duties.opening {
            if !here.plane.flash.stores().all(|(_, _, store)| store.is_ready()) {
                return begun;
            }
            here.placement.duties.opening = None;
            let steps = stores::leftover_volumes(here);
            let state = here.registry.state.clone();
            jobs.begin(Reply::Order(number), state.clone(), state, steps);
            begun = Begun::Jobs;
        }
        let Some((number, order)) = here.placement.duties.waiting.pop_front() else { return begun };
        match order {
            Order::Channels(moved) => {
                assert!(here.placement.duties.left.is_none(), "I-S14: what left goes with its answer");
                custody::put_in(here, moved);
            }
            Order::World(world) => learn(here, &world),
            Order::Open(world) => {
                learn(here, &world);
                custody::join(here);
                assert!(here.placement.duties.opening.is_none(), "I-S4: a shard opens once");
                open_own_stores(here, now);
                here.placement.duties.opening = Some(number);
            }
            Order::Serve(world) => {
                learn(here, &world);
                serve(here, opening, now);
                return Begun::Serves(number);
            }
            Order::Alloc(alloc) => {
                assert!(opening.is_ready(), "I-S4: vSSDs are made on a shard that serves");
                make_vssd(here, number, *alloc, now);
            }
            Order::Arrive(moved, group) => {
                assert!(opening.is_ready(), "I-S4: a group arrives at a shard that serves");
                relocation::arrive(here, *moved, &group, now);
                here.placement.answer_order(number, Answer::Done);
            }
            Order::Step(step, next) => {
                let base = here.registry.state.clone();
                jobs.begin(Reply::Order(number), base, State::clone(&next), vec![step]);
                begun = Begun::Jobs;
            }
            Order::Find(_) | Order::Wear => unreachable!("I-S14: answered at once"),
            Order::Again => unreachable!("I-S35: for a shard that failed"),
        }
    }
}

/// Learns what exists, and where.
fn learn<M: Divide>(here: &mut Owners<M>, world: &World) {
    here.registry.state = world.state.clone();
    here.placement.ledger.homes = world.homes.clone();
    here.registry.away = world.away.clone();
}

/// Makes a vSSD where the first shard chose.
fn make_vssd<M: Divide>(here: &mut Owners<M>, number: u64, alloc: Alloc, now: Time) {
    let Alloc { name, id, parts, record, moved } = alloc;
    custody::put_in(here, moved);
    let devices = &here.plane.flash.devices;
    let is_free = |part: &HeldPart| devices.get(part.device).pool.are_free(&part.places);
    let made = if parts.iter().all(is_free) {
        vssds::make_vssd(here, &name, id, &parts, record, now)
    } else {
        mark!("shard: vSSD chosen where something moved meanwhile");
        let message = format!(
            "vSSD \"{name}\": its room is being exchanged for even wear; ask again when that is done"
        );
        Err(ControlError { kind: ControlErrorKind::Busy, message })
    };
    let answer = match made {
        Ok(record) => {
            journal::send_all(here);
            Answer::Made(Box::new(record))
        }
        Err(error) => {
            let returned = returns::unused_channels(here);
            Answer::NotMade { number: id.0, error, returned }
        }
    };
    here.placement.answer_order(number, answer);
}
