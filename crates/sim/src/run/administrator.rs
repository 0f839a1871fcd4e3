//! The administrator of a run: one request after the other beside the hosts' traffic, and the check that the system
//! has exactly what it said it has. A request that a crash cut off is there whole or not at all.

use super::presence::Touched;
use super::{ANSWER_TIME_MAX, Pending, Runner};
use crate::administration::{Change, host_name, subsystem_name, tenant_name, volume_name};
use crate::existing::Existing;
use crate::oracle::Finding;
use crate::plan::{Action, Lane, Plan, When};
use crate::tag::VolumeNumber;
use diecut_shard::control::{ControlErrorKind, ControlRequest, ControlResponse};
use diecut_units::{Span, Time, mark};
use std::collections::VecDeque;

/// Whether a host can see a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    Yes,
    No,
    /// It is being changed.
    Maybe,
}

pub(super) struct Administrator {
    steps: VecDeque<Action>,
    resume_at: Time,
    /// What exists for certain.
    existing: Existing,
    /// The request under way, since when, and what exists if it is carried out.
    under_way: Option<(ControlRequest, Time, Option<Existing>)>,
    /// The system started again and has not told yet what it has: one of these.
    unsettled: Option<[Existing; 2]>,
    issued: u64,
}

impl Administrator {
    /// The administrator of a plan, if it has one.
    pub(super) fn of(plan: &Plan, existing: Option<Existing>) -> Option<Administrator> {
        let steps: VecDeque<Action> = plan
            .steps
            .iter()
            .filter(|step| step.lane == Lane::ADMINISTRATOR)
            .map(|step| step.action)
            .collect();
        (!steps.is_empty()).then(|| Administrator {
            steps,
            resume_at: Time::ZERO,
            existing: existing.expect("a system with administrators tells what it has"),
            under_way: None,
            unsettled: None,
            issued: 0,
        })
    }

    /// Gives it something more to ask.
    pub(super) fn ask(&mut self, change: Change) {
        self.steps.push_back(Action::Change(change));
    }

    /// Lets it wait before the next.
    pub(super) fn wait(&mut self, span_ns: u64) {
        self.steps.push_back(Action::Wait { span_ns });
    }

    /// Whether the vSSD of a lane is there and has no volume.
    pub(super) fn has_no_volume(&self, lane: Lane) -> bool {
        let vssd = tenant_name(lane);
        self.is_done()
            && self.existing.vssds.contains_key(&vssd)
            && self.existing.volumes.values().all(|volume| volume.vssd != vssd)
    }

    /// Volumes of a plan on the vSSD of a lane.
    pub(super) fn volumes_of(&self, plan: &Plan, lane: Lane) -> Vec<VolumeNumber> {
        let vssd = tenant_name(lane);
        let exists = |number: VolumeNumber| {
            self.existing.volumes.get(&volume_name(number)).is_some_and(|volume| volume.vssd == vssd)
        };
        plan.volumes().map(|volume| volume.number).filter(|number| exists(*number)).collect()
    }

    pub(super) fn is_done(&self) -> bool {
        self.steps.is_empty() && self.under_way.is_none() && self.unsettled.is_none()
    }

    /// When it goes on by itself.
    pub(super) fn next_event(&self) -> Time {
        let waits = self.under_way.is_some() || self.unsettled.is_some() || self.steps.is_empty();
        if waits { Time::NEVER } else { self.resume_at }
    }

    /// All that may exist now.
    pub(super) fn possible(&self) -> impl Iterator<Item = &Existing> {
        let certain = self.unsettled.is_none().then_some(&self.existing);
        let next = self.under_way.as_ref().and_then(|(_, _, next)| next.as_ref());
        certain.into_iter().chain(next).chain(self.unsettled.iter().flatten())
    }

    /// What was asked and is not answered yet.
    pub(super) fn request_under_way(&self) -> Option<&ControlRequest> {
        self.under_way.as_ref().map(|(request, _, _)| request)
    }

    /// Whether the host of a lane sees a volume.
    pub(super) fn sight(&self, lane: Lane, volume: VolumeNumber) -> Sight {
        let (nqn, host) = (subsystem_name(lane), host_name(lane));
        let mut seen = self.possible().map(|one| one.shows(&nqn, &host, u32::from(volume.0)));
        let first = seen.next().expect("something exists");
        match (seen.all(|other| other == first), first) {
            (false, _) => Sight::Maybe,
            (true, true) => Sight::Yes,
            (true, false) => Sight::No,
        }
    }

    /// Whether the host of a lane may connect, for all that is known.
    pub(super) fn lets_in(&self, lane: Lane) -> bool {
        self.possible().any(|one| one.lets_in(&subsystem_name(lane), &host_name(lane)))
    }

    /// Whether the volume may come to be seen by what is still to be done.
    pub(super) fn will_show(&self, lane: Lane, volume: VolumeNumber) -> bool {
        self.under_way.is_some()
            || self.unsettled.is_some()
            || self.steps.iter().any(|step| {
                matches!(step, Action::Change(Change::Attach(other)) if *other == volume)
                    || matches!(step, Action::Change(Change::AllowHost(other)) if *other == lane)
            })
    }
}

impl Runner<'_> {
    /// How the host of a lane sees a volume now.
    pub(super) fn sight(&self, lane: Lane, volume: VolumeNumber) -> Sight {
        if !self.is_there(volume) {
            return Sight::No;
        }
        self.administrator.as_ref().map_or(Sight::Yes, |one| one.sight(lane, volume))
    }

    /// Asks the next request if it is time. Whether it did.
    pub(super) fn administrate(&mut self) -> bool {
        let Some(one) = &self.administrator else { return false };
        if one.next_event() > self.now {
            return false;
        }
        // Nobody wants something of a drive that went.
        let request = match one.steps.front() {
            Some(Action::Change(change)) => Some(change.request(self.plan)),
            _ => None,
        };
        let is_dropped = request.is_some_and(|request| self.touched(&request) == Touched::Gone);
        let one = self.administrator.as_mut().expect("just seen");
        if is_dropped {
            one.steps.pop_front();
            return true;
        }
        let step = one.steps.pop_front().expect("it goes on");
        self.steps_issued += 1;
        let change = match step {
            Action::Wait { span_ns } => {
                one.resume_at = self.now + Span(span_ns);
                return true;
            }
            Action::Change(change) => change,
            other => panic!("{other:?} is no step of an administrator"),
        };
        let request = change.request(self.plan);
        let next = one.existing.after(&request).ok();
        one.under_way = Some((request.clone(), self.now, next));
        one.issued += 1;
        let number = one.issued - 1;
        // What hosts have under way may see the change or not.
        for pending in self.pending.values_mut() {
            let Some(volume) = pending.volume else { continue };
            if one.sight(pending.lane, volume) != pending.sight {
                pending.sight = Sight::Maybe;
            }
        }
        for fault in &mut self.faults {
            match fault.when {
                When::Change { nth, operations } if nth == number => {
                    mark!("run: cut armed for an administrator's request");
                    self.system.cut_power_at(self.system.media_operations() + operations);
                }
                When::After { nth, span_ns } if nth == number => {
                    fault.when = When::Time(self.now.0 + span_ns);
                }
                _ => {}
            }
        }
        self.system.control(request, self.now);
        true
    }

    /// Takes the answer to the administrator, and what the system tells after a start. Whether there was anything.
    pub(super) fn hear_administration(&mut self) -> bool {
        let Some(one) = &mut self.administrator else { return false };
        if let Some(candidates) = one.unsettled.take() {
            let Some(told) = self.system.existing() else {
                one.unsettled = Some(candidates);
                return false;
            };
            let found = candidates.iter().find(|candidate| candidate.agrees_with(&told));
            if found.is_none() {
                let detail = format!("after the crash there is {told:?}\nbut there was {:?}", candidates[0]);
                one.existing = told;
                self.found(Finding::Administration, detail);
                return true;
            }
            one.existing = told;
            self.read_everything();
            return true;
        }
        let Some(response) = self.system.take_control_answer() else {
            if let Some((request, asked, _)) = &one.under_way
                && self.now.since(*asked) > ANSWER_TIME_MAX
            {
                let detail = format!("{request:?} is not answered\n{}", self.system.describe());
                self.found(Finding::Liveness, detail);
            }
            return false;
        };
        let (request, _, _) = one.under_way.take().expect("answers are to a request");
        let before = one.existing.clone();
        let must = before.after(&request);
        let touched = self.touched(&request);
        let was_silent = self.presence.was_any_away();
        let told = self.system.existing().unwrap_or_default();
        let one = self.administrator.as_mut().expect("just seen");
        let may_exhaust = matches!(request, ControlRequest::CreateVssd(_));
        // A plan does not know which of its lives a request comes in, and each has another number of shards.
        let may_miss = matches!(request, ControlRequest::MoveTenant { .. });
        let expected = match (&response, must) {
            (ControlResponse::Refused(error), _)
                if touched == Touched::Missing
                    && matches!(error.kind, ControlErrorKind::Media | ControlErrorKind::Invalid) =>
            {
                mark!("run: nothing is changed on a drive that is missing");
                Some(before)
            }
            (ControlResponse::Done, Ok(next)) if touched == Touched::Missing && next != before => None,
            (_, Ok(next)) if touched == Touched::Gone => {
                Some(if before.agrees_with(&told) { before } else { next })
            }
            (ControlResponse::Done | ControlResponse::Unchanged, Ok(next)) => Some(next),
            (ControlResponse::Repaired(_), Ok(next)) => Some(next),
            (ControlResponse::Refused(error), Err(kind)) if error.kind == kind => {
                mark!("run: administrator's request refused");
                Some(before)
            }
            (ControlResponse::Refused(error), Ok(_))
                if may_exhaust && error.kind == ControlErrorKind::Exhausted =>
            {
                mark!("run: no room for a vSSD");
                Some(before)
            }
            (ControlResponse::Refused(error), Ok(_))
                if may_exhaust && error.kind == ControlErrorKind::Busy =>
            {
                mark!("run: room for a vSSD is being exchanged");
                Some(before)
            }
            // Of drives that it was to lie on one left.
            (ControlResponse::Refused(error), Ok(_))
                if may_exhaust
                    && error.kind == ControlErrorKind::Invalid
                    && !self.plan.turns().is_empty() =>
            {
                mark!("run: drives for a vSSD are gone");
                Some(before)
            }
            // Also what would be refused for another reason.
            (ControlResponse::Refused(error), _)
                if was_silent
                    && error.kind == ControlErrorKind::Media
                    && error.message.contains("does not answer") =>
            {
                mark!("run: nothing is changed on a drive that does not answer");
                Some(before)
            }
            (ControlResponse::Refused(error), Ok(_))
                if may_miss && error.kind == ControlErrorKind::Invalid =>
            {
                mark!("run: no such shard to move to");
                Some(before)
            }
            // Whose home failed meanwhile is told to ask again, and nothing was changed.
            (ControlResponse::Refused(error), Ok(_))
                if self.system.failed_alone() > 0 && error.kind == ControlErrorKind::Busy =>
            {
                mark!("run: a shard failed while a request was carried out");
                Some(before)
            }
            _ => None,
        };
        one.existing = told.clone();
        for byte in format!("{response:?}").into_bytes() {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        match expected {
            None => self.found(Finding::Administration, format!("{request:?} is answered with {response:?}")),
            Some(expected) if !expected.agrees_with(&told) => {
                let detail = format!("after {request:?} ({response:?}) there is {told:?}\nnot {expected:?}");
                self.found(Finding::Administration, detail);
            }
            Some(_) => {
                self.outcome.changes += 1;
                mark!("run: administrator's request answered");
            }
        }
        if let ControlResponse::Repaired(report) = response {
            self.hear_repair(&request, &report);
        }
        true
    }

    /// The system went away: what was asked is there or not, the rest must be.
    pub(super) fn administration_crashed(&mut self) {
        let Some(one) = &mut self.administrator else { return };
        // A crash before the last one's outcome was told leaves it as open as it was.
        if one.unsettled.is_some() {
            return;
        }
        let cut = one.under_way.take();
        if cut.is_some() {
            mark!("run: crash during an administrator's request");
        }
        let after = cut.and_then(|(_, _, next)| next).unwrap_or_else(|| one.existing.clone());
        one.unsettled = Some([one.existing.clone(), after]);
    }

    /// What becomes of a lane's next step: `None` to wait, `false` to drop it.
    pub(super) fn may_issue(&self, lane: Lane, action: &Action) -> Option<bool> {
        let (Some(one), Some(volume)) = (&self.administrator, action.volume()) else { return Some(true) };
        match one.sight(lane, volume) {
            Sight::Yes | Sight::Maybe => Some(true),
            Sight::No if one.will_show(lane, volume) => None,
            Sight::No => Some(one.lets_in(lane)),
        }
    }
}

impl Pending {
    /// Whether a namespace that is not there is a right answer.
    pub(super) fn may_be_refused(&self) -> bool {
        self.sight != Sight::Yes
    }
}
