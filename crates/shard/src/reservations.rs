//! Reservations that persist through power loss, sanitize operations, and events of placement: targets ask for a change to be durable, and the
//! first shard writes it into the catalog.
//!
//! What targets ask goes to the first shard, in order. A job of its own writes it, which claims no object of administrators. What is asked while
//! one is written goes together.

use crate::catalog::has_room_for_hosts;
use crate::job::Progress;
use crate::owners::Owners;
use crate::peer::{Message, ShardMessage};
use crate::placement_events;
use crate::registry::qualified;
use crate::sanitize;
use crate::seat::ShardIndex;
use diecut_catalog::{PlacementRecord, RegistrantRecord, ReservationRecord, SanitizeRecord, State};
use diecut_media::Divide;
use diecut_nvme::reservation::ReservationKind;
use diecut_nvmf::{self as target, Keep, Kept};
use diecut_units::{Time, mark, mutant};

fn record_of(record: &target::ReservationRecord) -> ReservationRecord {
    let registrants = record.registrants.iter().map(|(host, key)| RegistrantRecord(*host, *key));
    ReservationRecord {
        generation: record.generation,
        registrants: registrants.collect(),
        kind: record.held.map(|(kind, _)| kind as u8),
        holder: record.held.map(|(_, holder)| holder),
    }
}

fn of_record(record: &ReservationRecord) -> target::ReservationRecord {
    let kind = record.kind.and_then(ReservationKind::decode);
    target::ReservationRecord {
        generation: record.generation,
        registrants: record.registrants.iter().map(|one| (one.0, one.1)).collect(),
        held: kind.zip(record.holder),
    }
}

/// What stood in a state before something was put there.
enum Before {
    Reservation(u32, Option<ReservationRecord>),
    Sanitize(String, Option<SanitizeRecord>),
    Placement(String, Option<PlacementRecord>),
}

impl Before {
    fn put_back(self, state: &mut State) {
        match self {
            Before::Reservation(namespace, Some(record)) => _ = state.reservations.insert(namespace, record),
            Before::Reservation(namespace, None) => _ = state.reservations.remove(&namespace),
            Before::Sanitize(nqn, Some(record)) => _ = state.sanitizes.insert(nqn, record),
            Before::Sanitize(nqn, None) => _ = state.sanitizes.remove(&nqn),
            Before::Placement(nqn, Some(record)) => _ = state.placements.insert(nqn, record),
            Before::Placement(nqn, None) => _ = state.placements.remove(&nqn),
        }
    }
}

/// Puts what is to be durable into a state. What stood there before; nothing if it is of a subsystem that is gone.
fn put(state: &mut State, keep: &Keep) -> Option<Before> {
    match keep {
        Keep::Reservation(keep) => {
            let namespace = keep.namespace.0;
            let before = match &keep.record {
                Some(record) => state.reservations.insert(namespace, record_of(record)),
                None => state.reservations.remove(&namespace),
            };
            Some(Before::Reservation(namespace, before))
        }
        Keep::Sanitize(keep) => {
            let nqn = keep.subsystem.as_str().to_owned();
            state.subsystems.get(&nqn)?;
            let before = state.sanitizes.insert(nqn.clone(), sanitize::record_of(keep.record));
            Some(Before::Sanitize(nqn, before))
        }
        Keep::Placement(keep) => {
            let nqn = keep.subsystem.as_str().to_owned();
            if !placement_events::is_placed(state, &nqn) {
                return None;
            }
            let before = match keep.record.is_empty() {
                false => state.placements.insert(nqn.clone(), placement_events::record_of(&keep.record)),
                true => state.placements.remove(&nqn),
            };
            Some(Before::Placement(nqn, before))
        }
    }
}

/// The state with all that is asked, for the job that writes it. What the catalog has no room for is refused. Nothing, if nothing is to be
/// written, or something was a short while ago ([`crate::reservation_queue`]).
pub(crate) fn next_state<M: Divide>(here: &mut Owners<M>, now: Time) -> Option<State> {
    if here.placement.reservations.due_at() > now {
        return None;
    }
    let base = &here.registry.state;
    let mut next = base.clone();
    let mut refused = Vec::new();
    for (from, keep) in std::mem::take(&mut here.placement.reservations.waiting) {
        let undo = put(&mut next, &keep);
        let is_known = undo.is_some();
        if is_known && has_room_for_hosts(&here.registry.catalog, base, &next) {
            here.placement.reservations.written.push((from, keep.kept()));
            continue;
        }
        undo.into_iter().for_each(|before| before.put_back(&mut next));
        refused.push((from, keep.kept().with(false)));
    }
    answer(here, refused, now);
    if here.registry.state == next {
        let kept = std::mem::take(&mut here.placement.reservations.written);
        answer(here, kept, now);
        return None;
    }
    here.placement.reservations.writes(now);
    Some(next)
}

/// Waits until all that targets asked for is written, without a pause: the server stops.
pub(crate) fn hurry<M: Divide>(here: &mut Owners<M>) -> Progress {
    // While a shard is missing nothing begins to be written.
    let is_idle = here.placement.reservations.is_idle() || here.placement.attendance.lacks_any();
    here.placement.reservations.hurries = !is_idle;
    if is_idle { Progress::Done } else { Progress::Waits }
}

/// The job that wrote what was asked is over.
pub(crate) fn written<M: Divide>(here: &mut Owners<M>, is_kept: bool, now: Time) {
    mark!("shard: reservations written into the catalog");
    let written = std::mem::take(&mut here.placement.reservations.written);
    let answers = written.into_iter().map(|(from, kept)| (from, kept.with(is_kept)));
    answer(here, answers.collect(), now);
}

fn answer<M: Divide>(here: &mut Owners<M>, answers: Vec<(ShardIndex, Kept)>, now: Time) {
    for (to, kept) in answers {
        if to == here.placement.index {
            here.plane.nvme.handle(target::Event::Kept(kept), now);
        } else if !here.placement.attendance.lacks(to.0) {
            here.placement.outgoing.push((to, ShardMessage(Message::Kept(kept))));
        }
    }
}

/// Tells the target what outlived a power loss, or a fence, of the reservations of a subsystem.
pub(crate) fn restore<M: Divide>(here: &mut Owners<M>, nqn: &str) {
    let state = &here.registry.state;
    let Some(record) = state.subsystems.get(nqn).filter(|_| !state.reservations.is_empty()) else { return };
    for shown in &record.namespaces {
        let namespace = state.volumes[&shown.volume].namespace;
        let kept = state.reservations.get(&namespace);
        if let Some(kept) = kept.filter(|_| !mutant!("shard: reservations are not restored")) {
            let target = &mut here.plane.nvme.target;
            target::restore_reservation(target, &qualified(nqn), shown.nsid, &of_record(kept));
        }
    }
}
