//! What the first shard does about another one that failed and began again ([`crate::remains`]), while the rest of the server goes on.
//!
//! 1. It is absent from the moment in which the first shard hears of it. Orders that it did not answer are lost: what can be refused is
//!    refused, the rest its next life finds in the catalog. Questions wait for it.
//! 2. Requests that were begun go on to their end; no new one begins meanwhile.
//! 3. Then the account is made to say what the shard found in its block states, and the shard opens as at any start: its stores, what
//!    is left over in them, and what hosts see.
//!
//! Where that cannot be, all shards begin anew ([`crate::drive::Action::BeginAnew`]): while the server opens, while a group of tenants is between the
//! shard and another one, when it fails again on its way, and when something was lost on its way to it or from it.

use crate::attendance::{Absence, Sent, answer_for, is_lost};
use crate::devices::DeviceIndex;
use crate::job::{Job, Progress};
use crate::ledger::{Held, HeldPart};
use crate::owners::Owners;
use crate::panics::PanicRecord;
use crate::panics_told;
use crate::peer::{Answer, Back, Message, Moved, Order, ShardMessage};
use crate::placement::Placement;
use crate::seat::ShardIndex;
use crate::step::Step;
use diecut_media::Divide;
use diecut_units::{mark, mutant};
use diecut_vssd::account_for_exchanges;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A shard began again. `goes_on`: the server is open, and no group is between the shard and another one.
pub(crate) fn fell<M: Divide>(
    here: &mut Owners<M>,
    shard: ShardIndex,
    goes_on: bool,
    panics: Arc<[PanicRecord]>,
) {
    panics_told::hear(here, panics);
    let attendance = &mut here.placement.attendance;
    if !goes_on || attendance.lacks(shard.0) {
        mark!("shard: all begin anew with one that failed");
        attendance.is_over = true;
        return;
    }
    mark!("shard: one that failed begins again alone");
    let lost: Vec<(u64, Sent)> = attendance
        .sent
        .extract_if(.., |_, (to, _)| *to == shard.0)
        .map(|(number, (_, sent))| (number, sent))
        .collect();
    let owners = &here.placement.ledger.owners;
    let of_shard = attendance.media.iter().filter(|(_, lane)| owners.of(**lane) == shard.0);
    let media = of_shard.map(|(token, _)| *token).collect();
    attendance.absent.insert(shard.0, Absence { media, ..Absence::default() });
    for (number, sent) in lost {
        match sent {
            Sent::Step { .. } | Sent::Wear => {
                if !mutant!("shard: steps that a shard lost are answered by nobody") {
                    answer_for(number, shard.0, sent, &mut here.placement.orders)
                }
            }
            Sent::Find(inquiry) => {
                let absence = here.placement.attendance.absent.get_mut(&shard.0).expect("just put there");
                absence.questions.push((number, inquiry));
            }
            Sent::Alloc(vssd) => {
                mark!("shard: vSSD lost with a shard that failed");
                let returned = Moved(Vec::new());
                let answer = Answer::NotMade { number: vssd, error: is_lost(shard.0), returned };
                here.placement.orders.answers.insert(number, answer);
            }
            Sent::Other => here.placement.attendance.is_over = true,
        }
    }
    // What its hosts wanted to be kept: they are gone, and its next life counts anew.
    here.placement.reservations.waiting.retain(|(from, _)| *from != shard);
    let again = here.placement.order(shard.0, Order::Again);
    let absence = here.placement.attendance.absent.get_mut(&shard.0).expect("just put there");
    absence.again = again;
}

/// What takes a shard back that has said what it has. Nothing, as long as none has.
pub(crate) fn due_steps<M: Divide>(here: &mut Owners<M>) -> Option<Vec<Step>> {
    let Placement { attendance, orders, .. } = &mut here.placement;
    let mut absent = attendance.absent.iter().filter(|(_, absence)| !absence.is_back);
    let shard = absent.find_map(|(shard, one)| orders.answers.contains_key(&one.again).then_some(*shard))?;
    let absence = attendance.absent.get_mut(&shard).expect("just found");
    absence.is_back = true;
    let Some(Answer::Back(back)) = orders.answers.remove(&absence.again) else {
        unreachable!("I-S14: who begins again says what it has")
    };
    let back = back.ok().filter(|back| is_known(here, shard, back));
    let Some(back) = back else {
        mark!("shard: something was lost with one that failed");
        here.placement.attendance.is_over = true;
        return Some(Vec::new());
    };
    let orphans = account_for(here, shard, *back);
    let orphans = orphans.into_iter().map(|number| Step::DeallocVssd { number });
    Some([Step::Reopen(shard)].into_iter().chain(orphans).chain([Step::Readmit(shard)]).collect())
}

/// Whether a shard has the channels that it has by the first one's account, and all vSSDs that the catalog knows there.
fn is_known<M: Divide>(here: &Owners<M>, shard: u16, back: &Back) -> bool {
    let ledger = &here.placement.ledger;
    let has = |number: u32| back.vssds.iter().any(|(id, ..)| id.0 == number);
    let mut known = here.registry.state.vssds.values().map(|vssd| vssd.number);
    ledger.owners.lanes_of(shard) == back.lanes()
        && known.all(|number| {
            ledger.vssds.contains_key(&number) && (ledger.shard_of(number) != shard || has(number))
        })
}

/// Writes down what a shard has. Gives the vSSDs that the catalog does not know.
fn account_for<M: Divide>(here: &mut Owners<M>, shard: u16, back: Back) -> Vec<u32> {
    let geometry = *here.plane.flash.devices.only().media.geometry();
    let Placement { ledger, evenness, .. } = &mut here.placement;
    let pool = &mut here.plane.flash.devices.only_mut().pool;
    let before: Vec<u32> =
        ledger.vssds.iter().filter(|(_, held)| held.shard == shard).map(|(number, _)| *number).collect();
    for number in before {
        let held = ledger.vssds.remove(&number).expect("just listed");
        held.parts.iter().for_each(|part| pool.release(&part.places));
    }
    for (id, places, blocks) in &back.vssds {
        pool.reserve(*id, places);
        let part = HeldPart { device: DeviceIndex::default(), places: places.clone(), blocks: *blocks };
        ledger.add(*id, Held { shard, parts: vec![part] });
    }
    account_for_exchanges(pool, &back.channels, &back.exchanges);
    let lies = |die: u32| back.channels.contains(&geometry.die_at(die).channel.0);
    if !mutant!("shard: exchanges that ended with a shard that failed are waited for") {
        evenness.under_way.retain(|dies| !dies.iter().any(|&die| lies(die)) || back.exchanges.contains(dies));
    }
    let known: BTreeSet<u32> = here.registry.state.vssds.values().map(|vssd| vssd.number).collect();
    let numbers = back.vssds.iter().map(|(id, ..)| id.0);
    numbers.filter(|number| !known.contains(number)).collect()
}

/// Has a shard open its stores, and put right what is left over in them.
pub(crate) fn reopen<M: Divide>(here: &mut Owners<M>, shard: u16, job: &mut Job) -> Progress {
    if !job.is_begun() {
        let world = here.world();
        let number = here.placement.order(shard, Order::Open(Arc::clone(&world)));
        job.begin(false, vec![number]);
    }
    wait(here, job)
}

/// Has a shard serve its hosts: it is absent no more.
pub(crate) fn readmit<M: Divide>(here: &mut Owners<M>, shard: u16, job: &mut Job) -> Progress {
    if !job.is_begun() {
        let world = here.world();
        let number = here.placement.order(shard, Order::Serve(Arc::clone(&world)));
        job.begin(false, vec![number]);
    }
    if let Progress::Waits = wait(here, job) {
        return Progress::Waits;
    }
    let absence =
        here.placement.attendance.absent.remove(&shard).expect("I-S35: who is taken back was absent");
    for (number, inquiry) in absence.questions {
        here.placement.attendance.sent.insert(number, (shard, Sent::Find(inquiry)));
        let message = ShardMessage(Message::Order(number, Order::Find(inquiry)));
        here.placement.outgoing.push((ShardIndex(shard), message));
    }
    // Channels may be there that nothing lies on, and what was to be exchanged was forgotten.
    here.placement.evenness.has_left_empty = true;
    here.placement.evenness.is_due = true;
    Progress::Done
}

fn wait<M: Divide>(here: &mut Owners<M>, job: &mut Job) -> Progress {
    let mut awaited = job.awaited().to_vec();
    let all_answered = here.placement.all_answered(&mut awaited);
    job.retain_awaited(|number| awaited.contains(number));
    if all_answered { Progress::Done } else { Progress::Waits }
}
