//! Events of placement, and which of them are kept, outlive a power loss.
//!
//! Feature 1Eh cannot be saved, and what is set of it persists (Base 2.1 figure 385): a host that sets it is answered when that is durable.
//! Nobody waits for events to be so. A host can provoke as many as it writes, and each time they are made durable wears flash that all
//! tenants' definitions lie on: so they are gathered for a while, and one writing follows another one after minutes where there were many.

use super::admin::of_namespace;
use super::of_subsystem;
use super::record::{KeepPlacement, KeptPlacement, PlacementRecord};
use crate::connection::Connection;
use crate::event::Action;
use crate::keeping::{Change, Keep, Whose};
use crate::reserving;
use crate::session::Session;
use crate::shared::Shared;
use crate::subsystems::{Passage, Subsystem};
use crate::target::Target;
use diecut_nvme::fdp::PlacementEventsFeature;
use diecut_nvme::feature::SetFeatures;
use diecut_nvme::{QualifiedName, Status, SubmissionEntry};
use diecut_units::{Span, Time, mark, mutant};

const INVALID: Status = Status::INVALID_FIELD.do_not_retry();
/// How long events are gathered.
pub(crate) const PATIENCE: Span = Span::from_secs(1);
/// Writings of the events of a shard that may follow each other after [`PATIENCE`], and how often one may in the long run.
const BURST: u64 = 16;
/// See [`BURST`].
const PERIOD: Span = Span::from_secs(600);

/// How often events are made durable.
#[derive(Debug, Default)]
pub(crate) struct EventPace {
    /// When all writings until now would be over if they came one by one in their period.
    paid_until: Time,
}

impl EventPace {
    fn free_at(&self) -> Time {
        Time(self.paid_until.0.saturating_sub(BURST * PERIOD.0))
    }

    fn pay(&mut self, now: Time) {
        self.paid_until = self.paid_until.max(now) + PERIOD;
    }
}

/// Since when events of a subsystem wait to be made durable.
fn waits_since(subsystem: &Subsystem) -> Option<Time> {
    subsystem.placement.waits_since().filter(|_| subsystem.passage() == Passage::None)
}

fn due_at(subsystem: &Subsystem, pace: &EventPace) -> Time {
    waits_since(subsystem).map_or(Time::NEVER, |since| (since + PATIENCE).max(pace.free_at()))
}

/// When events of some subsystem are to be made durable.
pub(crate) fn deadline(shared: &Shared) -> Time {
    let due = shared.subsystems.iter().map(|(_, one)| due_at(one, &shared.event_pace));
    due.min().unwrap_or(Time::NEVER)
}

fn action(keep: KeepPlacement) -> Action {
    Action::Keep(Box::new(Keep::Placement(keep)))
}

/// Asks for events to be made durable, if that is due: those of all subsystems that were gathered, for the price of one.
pub(crate) fn keep_due(shared: &mut Shared, actions: &mut Vec<Action>) {
    let now = shared.now;
    if shared.event_pace.free_at() > now {
        return;
    }
    let before = actions.len();
    for subsystem in shared.subsystems.iter_mut() {
        if waits_since(subsystem).is_some_and(|since| since + PATIENCE <= now) {
            mark!("nvmf: events of placement to be kept");
            actions.push(action(subsystem.placement.write(&subsystem.config.nqn)));
        }
    }
    if actions.len() > before && !mutant!("nvmf: events are kept as they come") {
        shared.event_pace.pay(now);
    }
}

/// Set Features of feature 1Eh: what it waits for.
pub(crate) fn set_events(
    session: &mut Session<'_>,
    connection: &Connection,
    entry: &SubmissionEntry,
    data: Option<&[u8]>,
) -> Result<Vec<Change>, Status> {
    let subsystem = session.shared.subsystems.get_mut(connection.subsystem.ok_or(INVALID)?);
    of_subsystem(&subsystem.config).ok_or(INVALID)?;
    if SetFeatures::decode(entry).save {
        return Err(Status::FEATURE_NOT_SAVEABLE.do_not_retry());
    }
    let placement = of_namespace(subsystem, entry.nsid.get())?;
    let feature = PlacementEventsFeature::decode(entry);
    let handle = placement.handles.get(feature.handle).ok_or(INVALID)?;
    let data = data.expect("I-T7: data that were planned are there");
    let kinds = data.get(..usize::from(feature.count)).filter(|kinds| !kinds.is_empty()).ok_or(INVALID)?;
    let version = subsystem.placement.want(handle, kinds, feature.enable).map_err(|()| INVALID)?;
    let nqn = &subsystem.config.nqn;
    if subsystem.placement.is_wanting() {
        session.actions.push(action(subsystem.placement.write(nqn)));
    }
    Ok(version.map(|version| (Whose::Placement(nqn.clone()), version)).into_iter().collect())
}

/// A change is durable, or could not be made so: commands that waited for it are answered.
pub(crate) fn kept(target: &mut Target, answer: &KeptPlacement, actions: &mut Vec<Action>) {
    // Its subsystem may have gone, or changed its shard.
    let Some(index) = target.shared.subsystems.find(&answer.subsystem) else { return };
    let subsystem = target.shared.subsystems.get_mut(index);
    let Some(outcome) = subsystem.placement.kept(answer) else { return };
    assert!(outcome.version >= answer.version, "I-T24: who waited for a change that is over is answered");
    if subsystem.placement.is_wanting() {
        actions.push(action(subsystem.placement.write(&answer.subsystem)));
    }
    let due_at = due_at(subsystem, &target.shared.event_pace);
    target.shared.tick_by(due_at);
    let whose = Whose::Placement(answer.subsystem.clone());
    let over = target.shared.awaiting.kept(&whose, outcome.version, outcome.is_kept);
    reserving::answer(&mut target.connections, over, actions);
}

/// A subsystem has come here as a whole: what was on its way is asked for again.
pub(crate) fn arrived(target: &mut Target, index: u32, actions: &mut Vec<Action>) {
    let subsystem = target.shared.subsystems.get_mut(index);
    actions.extend(subsystem.placement.write_again(&subsystem.config.nqn).map(action));
    let due_at = due_at(subsystem, &target.shared.event_pace);
    target.shared.tick_by(due_at);
}

/// A subsystem is taken away, as at a stop of the server: what of its events nobody was asked to keep is not waited with.
pub(crate) fn give_up(target: &mut Target, index: u32, actions: &mut Vec<Action>) {
    let subsystem = target.shared.subsystems.get_mut(index);
    let last = subsystem.placement.last_words(&subsystem.config.nqn);
    actions.extend(last.filter(|_| !mutant!("nvmf: events that wait are lost with a stop")).map(action));
}

/// See [`crate::restore_placement`].
pub(crate) fn restore(target: &mut Target, nqn: &QualifiedName, record: &PlacementRecord) {
    let subsystems = &mut target.shared.subsystems;
    let Some(index) = subsystems.find(nqn) else { return };
    let subsystem = subsystems.get_mut(index);
    if of_subsystem(&subsystem.config).is_some() && subsystem.placement.restore(record) {
        mark!("nvmf: events of placement restored");
    }
}

/// A subsystem was defined anew: without a namespace that has handles placement is off.
pub(crate) fn defined(shared: &mut Shared, index: u32) {
    let subsystem = shared.subsystems.get_mut(index);
    if of_subsystem(&subsystem.config).is_none() {
        subsystem.placement.forget(shared.now);
    }
}
