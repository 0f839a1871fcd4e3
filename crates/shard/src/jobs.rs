//! What administrators ask, and what is carried out of it.
//!
//! Requests that change different objects are carried out side by side ([`crate::claims`]); what waits for a vSSD holds up
//! nothing else. A request that is not done in time is answered with what it waits for, and goes on.

use crate::away;
use crate::catalog;
use crate::claims::Claims;
use crate::control::*;
use crate::drive;
use crate::inquiry::Inquiry;
use crate::job::{Asked, Job, Progress, Reply};
use crate::lead;
use crate::ledger::Group;
use crate::leveling;
use crate::limits::Limits;
use crate::notice::Notice;
use crate::owners::Owners;
use crate::plan::{Plan, plan};
use crate::rejoin;
use crate::relocation;
use crate::reservations;
use crate::returns;
use crate::status;
use crate::step::Step;
use crate::steps;
use crate::steps::moving;
use crate::waits::waits_for;
use diecut_catalog::State;
use diecut_media::Divide;
use diecut_units::{Span, Time, mark, mutant};
use std::collections::VecDeque;

/// A request that was not begun.
struct Waiting {
    token: ControlToken,
    request: ControlRequest,
    since: Time,
    deadline: Time,
}

/// Requests waiting, and jobs that are carried out.
#[derive(Default)]
pub(crate) struct Jobs {
    /// In the order they came.
    waiting: VecDeque<Waiting>,
    /// In the order they began.
    running: Vec<Job>,
    /// Numbers of namespaces that were given to requests, carried out or not.
    namespaces_given: u32,
    limits: Limits,
}

fn answer(actions: &mut Vec<drive::Action>, token: ControlToken, response: ControlResponse) {
    actions.push(drive::Action::Answer { token, response: Box::new(response) });
}

/// Answers a request that is not taken.
pub(crate) fn refuse(
    actions: &mut Vec<drive::Action>,
    token: ControlToken,
    kind: ControlErrorKind,
    message: String,
) {
    answer(actions, token, ControlResponse::Refused(ControlError { kind, message }));
}

impl Jobs {
    /// Whether there is nothing to carry out.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Whether something is carried out.
    pub fn is_carrying_out(&self) -> bool {
        !self.running.is_empty()
    }

    fn is_moving(&self) -> bool {
        self.running.iter().any(Job::is_moving)
    }

    /// Whether a group of tenants left its home and has not arrived as a whole, if it came from this shard or goes there.
    pub fn is_moving_with(&self, shard: u16) -> bool {
        let meets = |group: &Group| [group.from, group.to].contains(&shard);
        self.running.iter().any(|job| match job.steps.front() {
            Some(Step::Arrive(group) | Step::Release(group, _)) => meets(group),
            _ => false,
        })
    }

    /// When somebody is to be told that his request is not done.
    pub fn deadline(&self) -> Time {
        let waiting = self.waiting.iter().map(|waiting| waiting.deadline);
        let running = self.running.iter().map(|job| job.asked.deadline);
        waiting.chain(running).fold(Time::NEVER, Time::min)
    }

    /// See [`crate::Shard::check_shares`].
    pub fn check_shares<M: Divide>(&self, here: &Owners<M>) {
        self.limits.check(here);
        relocation::check(here);
        for tenant in here.registry.state.tenants.values() {
            let found = here.plane.admission.weight_of(&tenant.name);
            assert!(
                found.is_none_or(|weight| weight == tenant.weight),
                "I-S28: weight {found:?} of tenant \"{}\" on shard {}",
                tenant.name,
                here.placement.index.0
            );
        }
        if here.placement.index.0 == 0 && self.is_idle() {
            here.placement.ledger.check(&here.registry.state, &here.registry.away);
        }
    }

    /// Takes a request of an administrator at the first shard, which serves. Says whether it waits: [`Jobs::work`] follows.
    pub fn take<M: Divide>(
        &mut self,
        here: &mut Owners<M>,
        token: ControlToken,
        request: ControlRequest,
        now: Time,
        actions: &mut Vec<drive::Action>,
    ) -> bool {
        if let Some(inquiry) = Inquiry::of(&request).filter(|_| !self.is_moving()) {
            if here.placement.ledger.is_single() {
                answer(actions, token, status::find(here, inquiry).into_response());
            } else {
                lead::inquire(here, token, inquiry);
            }
            return false;
        }
        assert!(!here.placement.is_member(), "I-S5: the first shard takes what administrators ask");
        let (patience, request) = match request {
            ControlRequest::Within { patience_ms, request } => (Span::from_millis(patience_ms), *request),
            request => (here.config.control_patience, request),
        };
        here.is_stopping |= request == ControlRequest::Shutdown;
        let deadline = if patience == Span(0) { Time::NEVER } else { now + patience };
        self.waiting.push_back(Waiting { token, request, since: now, deadline });
        true
    }

    /// Begins to carry out steps; nothing else is carried out meanwhile but orders.
    pub fn begin(&mut self, reply: Reply, base: State, next: State, steps: Vec<Step>) {
        self.running.push(Job::new(reply, base, next, steps));
    }

    /// Lets all go on as far as they can; `begins`: requests that wait may begin.
    pub fn work<M: Divide>(
        &mut self,
        here: &mut Owners<M>,
        begins: bool,
        now: Time,
        actions: &mut Vec<drive::Action>,
    ) {
        loop {
            let has_begun = begins && self.begin_requests(here, now, actions);
            if !self.go_on_all(here, now, actions) && !has_begun {
                break;
            }
        }
        self.after_work(here, now, actions);
    }

    /// Says what is late, and lets limits be what they must.
    pub fn after_work<M: Divide>(
        &mut self,
        here: &mut Owners<M>,
        now: Time,
        actions: &mut Vec<drive::Action>,
    ) {
        self.answer_late(here, now, actions);
        let is_stopping = self.waiting.iter().any(|waiting| waiting.request == ControlRequest::Shutdown);
        self.limits.lift(here, &self.running, is_stopping, now);
    }

    /// Lets each job go on once. Says whether one came further.
    pub fn go_on_all<M: Divide>(
        &mut self,
        here: &mut Owners<M>,
        now: Time,
        actions: &mut Vec<drive::Action>,
    ) -> bool {
        let mut goes_on = false;
        let mut at = 0;
        while at < self.running.len() {
            let job = self.running.remove(at);
            let done = job.steps_done;
            let is_single = here.placement.ledger.is_single();
            here.registry.is_taken = self.running.iter().any(Job::is_persisting)
                || !is_single && self.running.iter().any(Job::is_giving_channels);
            match go_on(here, job, now, actions) {
                Some(job) => {
                    // Others may wait for just this step.
                    goes_on |= job.steps_done > done;
                    self.running.insert(at, job);
                    at += 1;
                }
                None => goes_on = true,
            }
        }
        let writers = self.running.iter().filter(|job| job.is_persisting()).count();
        assert!(writers <= 1, "I-S23: the catalog is written for one job at a time");
        goes_on
    }

    /// Begins what meets nothing that is carried out, and nothing that came before it. Says whether it did.
    fn begin_requests<M: Divide>(
        &mut self,
        here: &mut Owners<M>,
        now: Time,
        actions: &mut Vec<drive::Action>,
    ) -> bool {
        if here.placement.attendance.lacks_any() {
            return self.begin_return(here);
        }
        let mut has_begun = false;
        let mut before: Vec<Claims> = Vec::new();
        let mut at = 0;
        while at < self.waiting.len() {
            let request = &self.waiting[at].request;
            let claims = Claims::of(&here.registry.state, request);
            let inquiry = Inquiry::of(request);
            let mut others = self.running.iter().map(|job| &job.claims).chain(&before);
            let meets =
                others.any(|other| claims.meet(other) || mutant!("shard: one request after the other"));
            if if inquiry.is_some() { self.is_moving() } else { meets } {
                before.push(claims);
                at += 1;
                continue;
            }
            let waiting = self.waiting.remove(at).expect("I-S22: it waits");
            has_begun = true;
            if let Some(inquiry) = inquiry {
                lead::inquire(here, waiting.token, inquiry);
                continue;
            }
            if !self.running.is_empty() {
                mark!("shard: requests of administrators carried out side by side");
            }
            self.begin_request(here, waiting, claims, actions);
        }
        has_begun |= self.begin_reservations(here, now);
        has_begun || self.is_idle() && self.begin_leveling(here)
    }

    /// Takes a shard back that failed, when what was begun is over. Says whether there is something to do.
    fn begin_return<M: Divide>(&mut self, here: &mut Owners<M>) -> bool {
        if !self.running.is_empty() {
            return false;
        }
        let Some(steps) = rejoin::due_steps(here).filter(|steps| !steps.is_empty()) else { return false };
        let state = here.registry.state.clone();
        self.begin(Reply::Nobody, state.clone(), state, steps);
        true
    }

    fn begin_request<M: Divide>(
        &mut self,
        here: &Owners<M>,
        waiting: Waiting,
        claims: Claims,
        actions: &mut Vec<drive::Action>,
    ) {
        assert!(
            self.running.iter().all(|job| !job.claims.meet(&claims)),
            "I-S22: what is carried out side by side changes different objects"
        );
        let Waiting { token, request, since, deadline } = waiting;
        let mut base = here.registry.state.clone();
        base.pool.namespaces_given = base.pool.namespaces_given.max(self.namespaces_given);
        let device = here.device_shaper();
        let planned = away::check(&here.registry, &here.plane.flash.devices, &request)
            .and_then(|()| plan(&base, &request, here.config.rate_limit_min_bytes_per_second, device));
        let has_room = |plan: &Plan| catalog::has_room(&here.registry.catalog, &base, &plan.next);
        match planned.and_then(|plan| has_room(&plan).map(|()| plan)) {
            Ok(Plan { next, steps }) => {
                assert!(
                    next.pool.namespaces_given >= self.namespaces_given,
                    "I-S12: the number of a namespace is given once"
                );
                self.namespaces_given = next.pool.namespaces_given;
                let reply = Reply::Administrator(token);
                let mut job = Job::new(reply, base, next, steps);
                job.asked = Asked { reply, title: request.title(), since, deadline };
                job.claims = claims;
                self.running.push(job);
            }
            Err(error) => answer(actions, token, ControlResponse::Refused(error)),
        }
    }

    /// Begins to write what hosts want to persist. Says whether there is something.
    fn begin_reservations<M: Divide>(&mut self, here: &mut Owners<M>, now: Time) -> bool {
        let Some(next) = reservations::next_state(here, now) else { return false };
        let base = here.registry.state.clone();
        let mut job = Job::new(Reply::Reservations, base, next, vec![Step::Persist]);
        job.claims = Claims::default();
        self.running.push(job);
        true
    }

    /// Begins what is due for even wear over several shards. Says whether something was.
    fn begin_leveling<M: Divide>(&mut self, here: &mut Owners<M>) -> bool {
        let Some(steps) = leveling::due_steps(here) else { return false };
        let state = here.registry.state.clone();
        self.begin(Reply::Evenness, state.clone(), state, steps);
        true
    }

    /// Tells those whose requests are not done in time what these wait for. What was begun goes on.
    fn answer_late<M: Divide>(&mut self, here: &mut Owners<M>, now: Time, actions: &mut Vec<drive::Action>) {
        if self.deadline() > now {
            return;
        }
        let state = &here.registry.state;
        for job in self.running.iter_mut().filter(|job| job.asked.deadline <= now) {
            mark!("shard: request not done in time");
            // After a stop there is nobody left to go on.
            let goes_on = if job.next.pool.closed { "" } else { "; it goes on" };
            let message = format!(
                "{}: not done after {} s, it waits for {}{goes_on}",
                job.asked.title,
                now.since(job.asked.since).0 / 1_000_000_000,
                waits_for(state, job)
            );
            here.notices.push(Notice::RequestLate { title: job.asked.title.clone() });
            job.asked.deadline = Time::NEVER;
            if let Reply::Administrator(token) = std::mem::replace(&mut job.asked.reply, Reply::Nobody) {
                refuse(actions, token, ControlErrorKind::Unfinished, message);
            }
        }
        let mut at = 0;
        while at < self.waiting.len() {
            if self.waiting[at].deadline > now {
                at += 1;
                continue;
            }
            let waiting = self.waiting.remove(at).expect("I-S22: it waits");
            let claims = Claims::of(state, &waiting.request);
            let in_front = match self.running.iter().find(|job| job.claims.meet(&claims)) {
                Some(job) => format!("{}, which waits for {}", job.asked.title, waits_for(state, job)),
                None => "requests that came before it".to_owned(),
            };
            let message = format!(
                "{}: not begun after {} s, nothing was changed; in front of it is {in_front}",
                waiting.request.title(),
                now.since(waiting.since).0 / 1_000_000_000
            );
            refuse(actions, waiting.token, ControlErrorKind::Unfinished, message);
        }
    }
}

/// Carries out steps as far as that goes; `None`: it is over.
fn go_on<M: Divide>(
    here: &mut Owners<M>,
    mut job: Job,
    now: Time,
    actions: &mut Vec<drive::Action>,
) -> Option<Job> {
    while let Some(step) = job.steps.front().cloned() {
        let progress = if here.placement.is_member() {
            steps::step_of_order(here, &step, &mut job, now)
        } else {
            lead::step(here, &step, &mut job, now)
        };
        match progress {
            Progress::Done => job.step_done(),
            Progress::Waits => return Some(job),
            Progress::Refused(error) => {
                refused(here, &job, error, now, actions);
                return None;
            }
        }
    }
    done(here, job, now, actions);
    None
}

/// Tells that a job is over.
fn done<M: Divide>(here: &mut Owners<M>, job: Job, now: Time, actions: &mut Vec<drive::Action>) {
    match job.asked.reply {
        Reply::Nobody => {}
        Reply::Administrator(token) => {
            let response = match job.report {
                Some(report) => ControlResponse::Repaired(report),
                None if job.steps_done == 0 => ControlResponse::Unchanged,
                None => ControlResponse::Done,
            };
            answer(actions, token, response);
        }
        Reply::Order(number) => {
            returns::order_done(here, number, job.last.as_ref(), None, job.report);
        }
        Reply::Evenness => leveling::evenness_done(here, false),
        Reply::Reservations => reservations::written(here, true, now),
    }
}

/// Tells that a job was refused.
fn refused<M: Divide>(
    here: &mut Owners<M>,
    job: &Job,
    error: ControlError,
    now: Time,
    actions: &mut Vec<drive::Action>,
) {
    // What cannot be written down did not move.
    if job.steps.iter().any(|step| matches!(step, Step::SwitchVssd { .. })) {
        moving::abandon(here, job);
    }
    match job.asked.reply {
        Reply::Nobody => {}
        Reply::Administrator(token) => answer(actions, token, ControlResponse::Refused(error)),
        Reply::Order(number) => returns::order_done(here, number, None, Some(error), None),
        Reply::Evenness => leveling::evenness_done(here, true),
        Reply::Reservations => reservations::written(here, false, now),
    }
}
