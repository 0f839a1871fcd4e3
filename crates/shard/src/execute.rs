//! Carrying out what administrators ask, and opening what a pool holds.
//!
//! Requests that change different objects are carried out side by side ([`crate::claims`]); what waits for a vSSD holds up
//! nothing else. While a request waits for what a vSSD has under way, that vSSD's rate limit is lifted: an end is never as slow as
//! the limit. A request that is not done in time is answered with what it waits for, and goes on.

use crate::catalog;
use crate::claims::{Claims, merged};
use crate::control::*;
use crate::drive;
use crate::notice::Notice;
use crate::plan::{Plan, Step, plan};
use crate::reach::Reach;
use crate::repair::Repair;
use crate::shard::{Phase, Shard};
use diecut_blockspace::session::Session;
use diecut_catalog::{State, VssdRecord};
use diecut_media::Divide;
use diecut_namespace::contract::NamespaceId;
use diecut_namespace::{Backing, NamespaceDefinition, StoreIndex};
use diecut_nvme::QualifiedName;
use diecut_nvmf::{Home, NamespaceConfig, SubsystemConfig};
use diecut_spec::{Isolation, Serves};
use diecut_units::{IU_SIZE_BYTES, Span, Time, mark, mutant};
use diecut_volume::contract::{VolumeCommand, VolumeCompletion, VolumeIndex, VolumeOperation, VolumeToken};
use diecut_volume::{Recovery, StoreConfig};
use diecut_vssd::{DeallocError, Places, Share, VssdId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Channels that one slot of protected memory suffices for.
const CHANNELS_PER_STAGING_SLOT: u32 = 2;

/// Set in tokens of volume commands that administration gives; namespaces number theirs from 0.
pub(crate) const CONTROL_TOKEN_BIT: u64 = diecut_units::token::volume::CONTROL;

/// Requests waiting, and those that are carried out.
#[derive(Default)]
pub(crate) struct Control {
    /// In the order they came.
    waiting: VecDeque<Waiting>,
    /// In the order they began.
    running: Vec<Running>,
    /// Answers of stores to administration: whether it worked, by token.
    answers: BTreeMap<u64, bool>,
    next_token: u64,
    /// Numbers of namespaces that were given to requests, carried out or not.
    namespaces_given: u32,
    /// vSSDs of this shard whose rate limits do not count now, because something waits for their end.
    lifted: BTreeSet<u32>,
}

/// A request that was not begun.
struct Waiting {
    token: ControlToken,
    request: ControlRequest,
    since: Time,
    deadline: Time,
}

/// Whom the end of an execution is told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Nobody,
    Administrator(ControlToken),
    /// The first shard, whose order this is.
    Order(u64),
    /// What the first shard does for even wear.
    Evenness,
}

pub(crate) struct Running {
    reply: Reply,
    /// For people.
    title: String,
    claims: Claims,
    since: Time,
    /// When whoever asked is told what it waits for.
    deadline: Time,
    /// What existed when it was planned.
    base: State,
    pub next: State,
    pub steps: VecDeque<Step>,
    /// The step that was done last, and how many were.
    last: Option<Step>,
    steps_done: u32,
    /// What the first step waits for.
    waits: Waits,
    /// Other shards were told of the first step; answers that are still awaited, what they refused, and whether this shard
    /// did its part.
    pub is_ordered: bool,
    pub awaited: Vec<u64>,
    pub refusal: Option<ControlError>,
    pub is_done_here: bool,
    /// Of a repair: how far it is, why the vSSD took no writes, and what came of it.
    pub repair: Repair,
    pub reason_before: Option<&'static str>,
    pub report: Option<Box<RepairReport>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Waits {
    No,
    /// The catalog's state of this number.
    Catalog(u64, Box<State>),
    /// Answers of stores.
    Stores(Vec<u64>),
    /// Exchanges that begin.
    Exchanges,
}

impl Running {
    /// One that runs alone and has all the time there is.
    fn new(reply: Reply, base: State, next: State, steps: Vec<Step>) -> Running {
        Running {
            reply,
            title: "a change of the server's own".to_owned(),
            claims: Claims::everything(),
            since: Time::ZERO,
            deadline: Time::NEVER,
            base,
            next,
            steps: steps.into(),
            last: None,
            steps_done: 0,
            waits: Waits::No,
            is_ordered: false,
            awaited: Vec::new(),
            refusal: None,
            is_done_here: false,
            repair: Repair::NotBegun,
            reason_before: None,
            report: None,
        }
    }
}

pub(crate) enum Progress {
    Done,
    Waits,
    Refused(ControlError),
}

impl Control {
    /// Whether there is nothing to carry out.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Whether a group of tenants is between two shards: neither would tell of it.
    fn is_moving(&self) -> bool {
        let mut steps = self.running.iter().filter_map(|running| running.steps.front());
        steps.any(|step| matches!(step, Step::Leave(_) | Step::Arrive(_) | Step::Release(..)))
    }

    /// Whether the catalog is being written for a request.
    fn is_persisting(&self) -> bool {
        self.running.iter().any(|running| matches!(running.waits, Waits::Catalog(..)))
    }

    /// Whether channels may be on their way between shards for a request.
    fn is_giving_channels(&self) -> bool {
        let under_way = |running: &Running| {
            let step = running.steps.front();
            step.is_some_and(Step::gives_channels) && (running.is_ordered || !running.awaited.is_empty())
        };
        self.running.iter().any(under_way)
    }

    /// When somebody is to be told that his request is not done.
    pub fn deadline(&self) -> Time {
        let waiting = self.waiting.iter().map(|waiting| waiting.deadline);
        let running = self.running.iter().map(|running| running.deadline);
        waiting.chain(running).fold(Time::NEVER, Time::min)
    }

    fn token(&mut self) -> VolumeToken {
        self.next_token += 1;
        VolumeToken(CONTROL_TOKEN_BIT | self.next_token)
    }
}

impl<M: Divide> Shard<M> {
    /// Takes a request of an administrator.
    pub(crate) fn control(
        &mut self,
        token: ControlToken,
        request: ControlRequest,
        now: Time,
        actions: &mut Vec<drive::Action>,
    ) {
        if let Some(failure) = self.failure() {
            let error = ControlError { kind: ControlErrorKind::Media, message: failure.to_owned() };
            return answer(actions, token, ControlResponse::Refused(error));
        }
        if self.is_member() {
            let message = "this shard takes orders of the first one only; ask that".to_owned();
            let error = ControlError { kind: ControlErrorKind::Invalid, message };
            return answer(actions, token, ControlResponse::Refused(error));
        }
        if request == ControlRequest::Status && !self.control.is_moving() {
            if !self.ledger.is_single() {
                return self.gather_status(token);
            }
            let response = Box::new(ControlResponse::Status(Box::new(self.status())));
            return actions.push(drive::Action::Answer { token, response });
        }
        let (patience, request) = match request {
            ControlRequest::Within { patience_ms, request } => (Span::from_millis(patience_ms), *request),
            request => (self.config.control_patience, request),
        };
        let deadline = if patience == Span(0) { Time::NEVER } else { now + patience };
        self.control.waiting.push_back(Waiting { token, request, since: now, deadline });
        self.work_control(now, actions);
    }

    /// Lets administration go on as far as it can.
    pub(crate) fn work_control(&mut self, now: Time, actions: &mut Vec<drive::Action>) {
        if self.phase != Phase::Ready && self.control.running.is_empty() && !self.is_member() {
            return;
        }
        loop {
            let mut goes_on = if self.is_member() {
                self.begin_orders(now, actions)
            } else if self.phase == Phase::Ready {
                self.begin_requests(actions)
            } else {
                false
            };
            let mut at = 0;
            while at < self.control.running.len() {
                let running = self.control.running.remove(at);
                let done = running.steps_done;
                match self.go_on(running, now, actions) {
                    Some(running) => {
                        // Others may wait for just this step.
                        goes_on |= running.steps_done > done;
                        self.control.running.insert(at, running);
                        at += 1;
                    }
                    None => goes_on = true,
                }
            }
            if !goes_on {
                break;
            }
        }
        self.answer_late(now, actions);
        self.lift_limits(now);
    }

    /// Begins what meets nothing that is carried out, and nothing that came before it. Says whether it did.
    fn begin_requests(&mut self, actions: &mut Vec<drive::Action>) -> bool {
        let mut has_begun = false;
        let mut before: Vec<Claims> = Vec::new();
        let mut at = 0;
        while at < self.control.waiting.len() {
            let request = &self.control.waiting[at].request;
            let claims = Claims::of(&self.state, request);
            let is_status = *request == ControlRequest::Status;
            let mut others = self.control.running.iter().map(|running| &running.claims).chain(&before);
            let meets =
                others.any(|other| claims.meet(other) || mutant!("shard: one request after the other"));
            if if is_status { self.control.is_moving() } else { meets } {
                before.push(claims);
                at += 1;
                continue;
            }
            let waiting = self.control.waiting.remove(at).expect("looked at");
            has_begun = true;
            if is_status {
                self.gather_status(waiting.token);
                continue;
            }
            if !self.control.running.is_empty() {
                mark!("shard: requests of administrators carried out side by side");
            }
            let mut base = self.state.clone();
            base.pool.namespaces_given = base.pool.namespaces_given.max(self.control.namespaces_given);
            let planned = plan(&base, &waiting.request, self.config.rate_limit_min_bytes_per_second);
            let has_room = |plan: &Plan| catalog::has_room(&self.catalog, &base, &plan.next);
            match planned.and_then(|plan| has_room(&plan).map(|()| plan)) {
                Ok(Plan { next, steps }) => {
                    self.control.namespaces_given = next.pool.namespaces_given;
                    self.control.running.push(Running {
                        title: waiting.request.title(),
                        claims,
                        since: waiting.since,
                        deadline: waiting.deadline,
                        ..Running::new(Reply::Administrator(waiting.token), base, next, steps)
                    });
                }
                Err(error) => answer(actions, waiting.token, ControlResponse::Refused(error)),
            }
        }
        let is_idle = self.control.running.is_empty() && self.control.waiting.is_empty();
        has_begun || is_idle && self.begin_evenness()
    }

    /// Carries out steps as far as that goes; `None`: it is over.
    fn go_on(
        &mut self,
        mut running: Running,
        now: Time,
        actions: &mut Vec<drive::Action>,
    ) -> Option<Running> {
        loop {
            let Some(step) = running.steps.front().cloned() else {
                match running.reply {
                    Reply::Nobody => {}
                    Reply::Administrator(token) => {
                        let response = match running.report {
                            Some(report) => ControlResponse::Repaired(report),
                            None if running.steps_done == 0 => ControlResponse::Unchanged,
                            None => ControlResponse::Done,
                        };
                        answer(actions, token, response);
                    }
                    Reply::Order(number) => {
                        self.order_done(number, running.last.as_ref(), None, running.report);
                    }
                    Reply::Evenness => self.evenness_done(false),
                }
                return None;
            };
            let progress = if self.is_member() {
                self.step_here(&step, &mut running, now)
            } else {
                self.step(&step, &mut running, now)
            };
            match progress {
                Progress::Done => {
                    running.last = running.steps.pop_front();
                    running.steps_done += 1;
                    running.waits = Waits::No;
                    (running.is_ordered, running.is_done_here) = (false, false);
                }
                Progress::Waits => return Some(running),
                Progress::Refused(error) => {
                    match running.reply {
                        Reply::Nobody => {}
                        Reply::Administrator(token) => {
                            answer(actions, token, ControlResponse::Refused(error))
                        }
                        Reply::Order(number) => self.order_done(number, None, Some(error), None),
                        Reply::Evenness => self.evenness_done(true),
                    }
                    return None;
                }
            }
        }
    }

    /// Tells those whose requests are not done in time what these wait for. What was begun goes on.
    fn answer_late(&mut self, now: Time, actions: &mut Vec<drive::Action>) {
        if self.control.deadline() > now {
            return;
        }
        let late = |message: String| {
            ControlResponse::Refused(ControlError { kind: ControlErrorKind::Unfinished, message })
        };
        for at in 0..self.control.running.len() {
            let running = &self.control.running[at];
            if running.deadline > now {
                continue;
            }
            mark!("shard: request not done in time");
            // After a stop there is nobody left to go on.
            let goes_on = if running.next.pool.closed { "" } else { "; it goes on" };
            let message = format!(
                "{}: not done after {} s, it waits for {}{goes_on}",
                running.title,
                now.since(running.since).0 / 1_000_000_000,
                self.waits_for(running)
            );
            self.notices.push(Notice::RequestLate { title: self.control.running[at].title.clone() });
            let running = &mut self.control.running[at];
            running.deadline = Time::NEVER;
            if let Reply::Administrator(token) = std::mem::replace(&mut running.reply, Reply::Nobody) {
                answer(actions, token, late(message));
            }
        }
        let mut at = 0;
        while at < self.control.waiting.len() {
            if self.control.waiting[at].deadline > now {
                at += 1;
                continue;
            }
            let waiting = self.control.waiting.remove(at).expect("looked at");
            let claims = Claims::of(&self.state, &waiting.request);
            let is_in_front = |running: &&Running| running.claims.meet(&claims);
            let in_front = match self.control.running.iter().find(is_in_front) {
                Some(running) => format!("{}, which waits for {}", running.title, self.waits_for(running)),
                None => "requests that came before it".to_owned(),
            };
            let message = format!(
                "{}: not begun after {} s, nothing was changed; in front of it is {in_front}",
                waiting.request.title(),
                now.since(waiting.since).0 / 1_000_000_000
            );
            answer(actions, waiting.token, late(message));
        }
    }

    /// For people: what a request waits for.
    fn waits_for(&self, running: &Running) -> String {
        let Some(step) = running.steps.front() else { return "nothing".to_owned() };
        let elsewhere = match running.awaited.len() {
            0 => String::new(),
            shards => format!(" (answers of other shards: {shards})"),
        };
        let vssd = |number: u32| {
            let name = self.state.vssds.iter();
            let mut named = name.filter(|(_, record)| record.number == number);
            named.next().map_or(format!("vSSD number {number}"), |(name, _)| format!("vSSD \"{name}\""))
        };
        let what = match step {
            Step::AllocVssd { name } => format!("room for vSSD \"{name}\""),
            Step::SyncPool => "the block states to be durable".to_owned(),
            Step::CreateVolume { name } => format!("volume \"{name}\" to be durable in its vSSD"),
            Step::Persist => "the catalog to be written".to_owned(),
            Step::OpenNamespace { name } => format!("the namespace of volume \"{name}\""),
            Step::ApplySubsystem { nqn } => format!("subsystem {nqn} to be shown"),
            Step::RemoveSubsystem { nqn, .. } => format!("commands of hosts of subsystem {nqn}"),
            Step::CloseNamespace { vssd: number, .. } => {
                format!("commands under way in the volume, on {}", vssd(*number))
            }
            Step::CanDelete { vssd: number } => format!("{} to be read", vssd(*number)),
            Step::DeleteVolume { vssd: number, .. } => {
                format!("the deletion to be durable in {}", vssd(*number))
            }
            Step::DeallocVssd { .. } => "flash operations under way on its dies".to_owned(),
            Step::RepairVssd { name, .. } => format!("vSSD \"{name}\" to be read again"),
            Step::FlushStores => match &running.waits {
                Waits::Stores(tokens) => format!("{} vSSDs to write down what they staged", tokens.len()),
                _ => "applications at erase blocks to let go".to_owned(),
            },
            Step::ApplyWear | Step::LevelWear => "what shards say of wear".to_owned(),
            Step::Exchange(_) => "an exchange for even wear to begin".to_owned(),
            Step::ReturnChannels => "channels to come back".to_owned(),
            Step::MoveTenant { tenant, .. } => format!("tenant \"{tenant}\" to be looked at"),
            Step::Leave(group) | Step::Arrive(group) | Step::Release(group, _) => {
                format!("the move of tenant \"{}\"", group.tenants.join("\", \""))
            }
        };
        what + &elsewhere
    }

    /// Lifts the rate limits of vSSDs that something waits for, and puts them back where nothing does any more.
    fn lift_limits(&mut self, now: Time) {
        let mut wanted = BTreeSet::new();
        let is_stopping =
            self.control.waiting.iter().any(|waiting| waiting.request == ControlRequest::Shutdown);
        for step in self.control.running.iter().filter_map(|running| running.steps.front()) {
            match step {
                Step::CreateVolume { .. } | Step::AllocVssd { .. } | Step::RepairVssd { .. } => {}
                Step::RemoveSubsystem { vssds, .. } => wanted.extend(vssds),
                Step::CloseNamespace { vssd, .. } | Step::DeleteVolume { vssd, .. } => {
                    wanted.insert(*vssd);
                }
                Step::DeallocVssd { number } => {
                    wanted.insert(*number);
                }
                Step::Leave(group) => wanted.extend(&group.vssds),
                _ => {}
            }
        }
        for running in &self.control.running {
            match running.steps.front() {
                Some(Step::CreateVolume { name }) => {
                    wanted.insert(running.next.vssds[&running.next.volumes[name].vssd].number);
                }
                Some(Step::RepairVssd { name, .. }) => {
                    wanted.insert(running.next.vssds[name].number);
                }
                Some(Step::FlushStores) => wanted.extend(self.flash.pool.vssd_ids().map(|id| id.0)),
                _ => {}
            }
        }
        if is_stopping {
            wanted.extend(self.flash.pool.vssd_ids().map(|id| id.0));
        }
        if wanted == self.control.lifted {
            return;
        }
        if mutant!("shard: an end waits for the rate limit") {
            return;
        }
        let changed: Vec<u32> = wanted.symmetric_difference(&self.control.lifted).copied().collect();
        for number in changed {
            if !wanted.contains(&number) && mutant!("shard: a limit stays lifted") {
                continue;
            }
            // Of vSSDs that were deleted nothing is left to be limited, nor here of those that moved away.
            let Some(share) = self.share_of_vssd(number, wanted.contains(&number)) else { continue };
            self.flash.pool.set_share(VssdId(number), share, now);
        }
        self.control.lifted = wanted;
    }

    /// The share that a vSSD of this shard has, with or without its limit.
    fn share_of_vssd(&self, number: u32, is_lifted: bool) -> Option<Share> {
        if !self.flash.pool.vssd_ids().any(|id| id.0 == number) {
            return None;
        }
        let record = self.state.vssds.values().find(|record| record.number == number);
        match record {
            Some(record) if is_lifted => Some(Share { weight: record.weight, ..Share::default() }),
            Some(record) => Some(share_of(record)),
            // It is being deleted.
            None => is_lifted.then(Share::default),
        }
    }

    /// Checks that vSSDs that live here have the shares that their definitions say, but for limits that are lifted at present. For
    /// checkers.
    ///
    /// # Panics
    /// If not.
    pub fn check_shares(&self) {
        if self.phase != Phase::Ready {
            return;
        }
        for record in self.own_vssds() {
            let wanted = self.share_of_vssd(record.number, self.control.lifted.contains(&record.number));
            let found = self.flash.pool.share_of(VssdId(record.number));
            assert_eq!(found, wanted, "share of vSSD {} on shard {}", record.number, self.index.0);
        }
    }

    /// Begins to carry out steps; nothing else is carried out meanwhile but orders.
    pub(crate) fn begin(&mut self, reply: Reply, next: State, steps: Vec<Step>) {
        self.control.running.push(Running::new(reply, self.state.clone(), next, steps));
    }

    /// Carries out this shard's part of a step.
    pub(crate) fn step_here(&mut self, step: &Step, running: &mut Running, now: Time) -> Progress {
        match step {
            Step::AllocVssd { .. } | Step::MoveTenant { .. } | Step::Arrive(_) | Step::LevelWear => {
                unreachable!("the first shard chooses what lives where")
            }
            Step::Exchange(pairs) => {
                if running.waits == Waits::No {
                    running.waits = Waits::Exchanges;
                    self.exchange(pairs);
                }
                if self.flash.pool.has_waiting_exchanges() { Progress::Waits } else { Progress::Done }
            }
            // With the answer.
            Step::ReturnChannels => Progress::Done,
            Step::Leave(group) => self.leave(group),
            Step::Release(group, passed) => {
                self.release(group, *passed, now);
                Progress::Done
            }
            Step::SyncPool => {
                if self.flash.pool.is_journal_lost() {
                    let message =
                        "the journal of block states takes no writes: its erase blocks failed".to_owned();
                    return Progress::Refused(ControlError { kind: ControlErrorKind::Media, message });
                }
                self.flash.pool.make_durable(&mut self.flash.media, now);
                if self.flash.pool.is_durable() { Progress::Done } else { Progress::Waits }
            }
            Step::Persist => self.persist(running, now),
            Step::CreateVolume { name } => {
                let volume = &running.next.volumes[name];
                let Some(store) = self.store_of(running.next.vssds[&volume.vssd].number) else {
                    return Progress::Waits;
                };
                if !self.flash.store(store).is_ready() {
                    return Progress::Waits;
                }
                if running.waits == Waits::No {
                    let (index, size_ius) =
                        (VolumeIndex(volume.index), volume.size_bytes / IU_SIZE_BYTES as u64);
                    let mut tokens = Vec::new();
                    // Of a volume whose deletion, or whose creation, did not come to its end.
                    if self.flash.store(store).volume_size_ius(index).is_some() {
                        let token = self.control.token();
                        self.flash.store_mut(store).delete_volume(token, index);
                        tokens.push(token.0);
                    }
                    let token = self.control.token();
                    self.flash.store_mut(store).create_volume(token, index, size_ius);
                    tokens.push(token.0);
                    running.waits = Waits::Stores(tokens);
                    return Progress::Waits;
                }
                let reason = self.flash.store(store).read_only_reason();
                let reason =
                    reason.map_or(String::new(), |reason| format!(": its vSSD takes no writes: {reason}"));
                self.stores_answered(running, || format!("volume \"{name}\" cannot be made{reason}"))
            }
            Step::OpenNamespace { name } => {
                let volume = running.next.volumes[name].clone();
                self.open_volume(&volume, running.next.vssds[&volume.vssd].number);
                Progress::Done
            }
            Step::ApplySubsystem { nqn } => {
                self.apply_subsystem(nqn, now);
                Progress::Done
            }
            Step::RemoveSubsystem { nqn, .. } => {
                let nqn = QualifiedName::new(nqn).expect("checked when it was made");
                self.target.remove_subsystem(&nqn, now, &mut self.target_actions);
                if self.target.is_quiet(&nqn) { Progress::Done } else { Progress::Waits }
            }
            Step::CloseNamespace { namespace, .. } => {
                let id = NamespaceId(*namespace);
                if self.namespaces.is_open(id) {
                    self.namespaces.begin_close(id);
                }
                if !self.namespaces.is_idle(id) {
                    return Progress::Waits;
                }
                self.namespaces.close(id);
                self.admission.close(id);
                Progress::Done
            }
            Step::CanDelete { vssd } => {
                let Some(store) = self.store_of(*vssd) else { return Progress::Done };
                if !self.flash.store(store).is_ready() {
                    return Progress::Waits;
                }
                self.flash.look_for_room(store, now);
                let Some(reason) = self.flash.store(store).read_only_reason() else { return Progress::Done };
                let message = format!("nothing was deleted: its vSSD takes no writes: {reason}");
                Progress::Refused(ControlError { kind: ControlErrorKind::Media, message })
            }
            Step::DeleteVolume { vssd, index } => {
                let Some(store) = self.store_of(*vssd) else { return Progress::Done };
                if running.waits == Waits::No {
                    if !self.flash.store(store).is_ready() {
                        return Progress::Waits;
                    }
                    let token = self.control.token();
                    self.flash.store_mut(store).delete_volume(token, VolumeIndex(*index));
                    running.waits = Waits::Stores(vec![token.0]);
                    return Progress::Waits;
                }
                let progress = self.stores_answered(running, || {
                    "the volume is no longer listed, but its vSSD takes no writes: what it holds is freed at a start when it \
                     takes them again"
                        .to_owned()
                });
                if matches!(progress, Progress::Done) {
                    self.choose_whole_writes(*vssd);
                }
                progress
            }
            Step::DeallocVssd { number } => {
                if let Some(store) = self.store_of(*number) {
                    self.flash.close_store(store);
                }
                if !self.blocks.evict(Some(VssdId(*number))) {
                    return Progress::Waits;
                }
                match self.flash.pool.dealloc_vssd(VssdId(*number)) {
                    Ok(()) | Err(DeallocError::AlreadyFree(_) | DeallocError::Unknown(_)) => Progress::Done,
                    Err(DeallocError::Busy { .. }) => Progress::Waits,
                }
            }
            Step::RepairVssd { name, accepts_loss } => self.repair(name, *accepts_loss, running, now),
            Step::ApplyWear => {
                self.apply_wear();
                Progress::Done
            }
            Step::FlushStores => {
                if !self.blocks.evict(None) {
                    return Progress::Waits;
                }
                if running.waits == Waits::No {
                    let stores: Vec<StoreIndex> = self.flash.stores().map(|(index, ..)| index).collect();
                    let mut tokens = Vec::new();
                    for store in stores {
                        let token = self.control.token();
                        tokens.push(token.0);
                        let operation = VolumeOperation::Flush;
                        let command = VolumeCommand { token, volume: VolumeIndex(0), operation };
                        self.flash.submit(store, command, now);
                    }
                    running.waits = Waits::Stores(tokens);
                }
                self.stores_answered(running, || "a vSSD cannot be flushed: its medium failed".to_owned())
            }
        }
    }

    fn stores_answered(&mut self, running: &mut Running, message: impl Fn() -> String) -> Progress {
        let Waits::Stores(tokens) = &mut running.waits else { return Progress::Done };
        let mut failed = false;
        tokens.retain(|token| match self.control.answers.remove(token) {
            Some(worked) => {
                failed |= !worked;
                false
            }
            None => true,
        });
        if failed {
            return Progress::Refused(ControlError { kind: ControlErrorKind::Media, message: message() });
        }
        if tokens.is_empty() { Progress::Done } else { Progress::Waits }
    }

    fn persist(&mut self, running: &mut Running, now: Time) -> Progress {
        if let Some(error) = self.catalog.error() {
            return Progress::Refused(catalog::refusal(error));
        }
        if !matches!(running.waits, Waits::Catalog(..)) {
            // One state after the other; and a command of the catalog would meet channels that are on their way.
            let gives = !self.ledger.is_single() && self.control.is_giving_channels();
            if self.control.is_persisting() || gives {
                return Progress::Waits;
            }
            let state = if mutant!("shard: changes of others are forgotten") {
                running.next.clone()
            } else {
                merged(&self.state, &running.base, &running.next)
            };
            let changes = self.state.changes_to(&state);
            let mut reach = Reach {
                own: &mut self.flash.media,
                owners: &self.ledger.owners,
                outgoing: &mut self.outgoing,
            };
            let number = match self.catalog.put(changes, &mut reach, now) {
                Ok(number) => number,
                Err(error) => return Progress::Refused(catalog::refusal(&error)),
            };
            running.waits = Waits::Catalog(number, Box::new(state));
        }
        let Waits::Catalog(number, state) = &running.waits else { unreachable!("just set") };
        if self.catalog.durable() < *number {
            return Progress::Waits;
        }
        self.state = State::clone(state);
        running.base.clone_from(&running.next);
        Progress::Done
    }

    /// Slots of protected memory in which no vSSD stages, one behind the other, for one on so many channels: the first, and how
    /// many. No slot on media without.
    ///
    /// A wide vSSD fills a slot in less time than a die needs for an erase, and what is behind that die stays staged: so it gets
    /// more of them, as far as its share of the device's channels goes.
    pub(crate) fn free_staging_slots(
        &self,
        name: &str,
        channels: u32,
    ) -> Result<(Option<u32>, u32), ControlError> {
        let slots = self.staging_slots();
        if slots == 0 {
            return Ok((None, 1));
        }
        let share = slots * channels / u32::from(self.flash.media.geometry().channels);
        let most = (channels / CHANNELS_PER_STAGING_SLOT).min(share).max(1);
        let of_records = self.state.vssds.values();
        let taken = of_records.filter_map(|vssd| Some((vssd.staging_slot?, vssd.staging_slot_count)));
        let taken: Vec<u32> = taken.flat_map(|(first, count)| first..first + count).collect();
        let is_free = |first: u32, count: u32| (first..first + count).all(|slot| !taken.contains(&slot));
        for count in (1..=most).rev() {
            if let Some(first) = (0..=slots - count).find(|first| is_free(*first, count)) {
                return Ok((Some(first), count));
            }
        }
        let message = format!(
            "vSSD \"{name}\": all {slots} parts of protected memory are taken, and each vSSD needs one; delete one, or give the \
             device more"
        );
        Err(ControlError { kind: ControlErrorKind::Exhausted, message })
    }

    /// Makes a vSSD on channels of this shard and opens its store.
    pub(crate) fn make_vssd(
        &mut self,
        name: &str,
        id: VssdId,
        isolation: Isolation,
        places: &Places,
        record: VssdRecord,
        now: Time,
    ) -> Result<VssdRecord, ControlError> {
        let pool = &mut self.flash.pool;
        pool.admit(id, isolation, places);
        pool.set_share(id, share_of(&record), now);
        if record.serves != Serves::Volumes {
            if !Session::can_serve(self.flash.pool.shape()) {
                self.flash.pool.dealloc_vssd(id).expect("nothing is under way on a new vSSD");
                let message = format!(
                    "vSSD \"{name}\": the device keeps no content, so it cannot serve erase blocks; use one with memory or a file"
                );
                return Err(ControlError { kind: ControlErrorKind::Invalid, message });
            }
            return Ok(VssdRecord { number: id.0, ..record });
        }
        let staging_size_bytes = self.staging_size_bytes(&record);
        let over_provisioning = record.over_provisioning_permille;
        let exported_ius = self.flash.exportable_ius(id, staging_size_bytes, over_provisioning, now);
        if exported_ius == 0 {
            self.flash.pool.dealloc_vssd(id).expect("nothing is under way on a new vSSD");
            let message = format!(
                "vSSD \"{name}\" is too small to hold a volume at this over-provisioning; ask for more capacity or less \
                 over-provisioning"
            );
            return Err(ControlError { kind: ControlErrorKind::Invalid, message });
        }
        let record = VssdRecord { number: id.0, exported_ius, ..record };
        if let Some(mut region) = self.staging_region(&record) {
            // What a vSSD that was deleted left there is nobody's.
            region.fill(0);
        }
        self.open_store(&record, now);
        Ok(record)
    }

    pub(crate) fn store_of(&self, vssd: u32) -> Option<StoreIndex> {
        self.flash.store_of(VssdId(vssd))
    }

    /// Opens the store of a vSSD that the pool holds.
    pub(crate) fn open_store(&mut self, record: &VssdRecord, now: Time) {
        if record.serves != Serves::Volumes {
            // Opened by the application.
            return;
        }
        let config = self.store_config(record, Recovery::Strict);
        let staging = self.staging_region(record);
        self.flash.open_store(VssdId(record.number), config, staging, now);
    }

    pub(crate) fn store_config(&self, record: &VssdRecord, recovery: Recovery) -> StoreConfig {
        StoreConfig {
            exported_ius: record.exported_ius,
            volatile_cache: self.config.volatile_cache,
            checkpoint: self.config.checkpoint,
            recovery,
            ..StoreConfig::default()
        }
    }

    /// Opens the namespace of a volume whose store is open.
    pub(crate) fn open_volume(&mut self, volume: &diecut_catalog::VolumeRecord, vssd: u32) {
        let store = self.store_of(vssd).expect("a volume's store is open");
        let capabilities = *self.flash.media.capabilities();
        let definition = NamespaceDefinition {
            backing: Backing::Volume { store, volume: VolumeIndex(volume.index) },
            size_lbas: volume.size_bytes / IU_SIZE_BYTES as u64,
            transfer_max_lbas: self.config.target.transfer_bytes_max / IU_SIZE_BYTES as u32,
            content_mode: capabilities.content_mode,
            volatile_cache: self.config.volatile_cache,
            preferred_write_lbas: 1,
            read_only: false,
        };
        let id = NamespaceId(volume.namespace);
        self.seat_namespace(id, VssdId(vssd));
        self.namespaces.open(id, definition);
        self.choose_whole_writes(vssd);
    }

    /// Writes to volumes that together promise more than their vSSD can hold are not cut in pieces: if there is no room for
    /// one, all of it is refused. Where volumes fit, room cannot run out.
    fn choose_whole_writes(&mut self, vssd: u32) {
        let Some((name, record)) = self.state.vssds.iter().find(|(_, record)| record.number == vssd) else {
            return;
        };
        let volumes = || self.state.volumes.values().filter(|volume| volume.vssd == *name);
        let promised_bytes: u64 = volumes().map(|volume| volume.size_bytes).sum();
        let thin = promised_bytes / IU_SIZE_BYTES as u64 > record.exported_ius;
        for volume in volumes() {
            self.namespaces.set_whole_writes(NamespaceId(volume.namespace), thin);
        }
    }

    /// Tells the target what a subsystem looks like.
    pub(crate) fn apply_subsystem(&mut self, nqn: &str, now: Time) {
        if let Some(config) = self.subsystem_config(nqn) {
            self.target.set_subsystem(config, now, &mut self.target_actions);
        }
    }

    /// What a subsystem looks like here.
    pub(crate) fn subsystem_config(&self, nqn: &str) -> Option<SubsystemConfig> {
        let record = self.state.subsystems.get(nqn)?;
        let name = |text: &str| QualifiedName::new(text).expect("checked when it was made");
        let content = self.flash.media.capabilities().content_mode;
        let home = match self.ledger.home_of(&record.tenant) {
            home if home == self.index.0 => Home::Here,
            home => Home::Elsewhere(home),
        };
        let shown = record.namespaces.iter().filter(|_| home == Home::Here);
        let namespaces = shown.map(|(nsid, volume)| {
            let volume = &self.state.volumes[volume];
            let namespace = NamespaceId(volume.namespace);
            let properties = self.namespaces.properties(namespace).expect("its namespace is open");
            let (uuid, nguid) = (volume.uuid, volume.nguid);
            (*nsid, NamespaceConfig { namespace, uuid, nguid, properties, content })
        });
        Some(SubsystemConfig {
            nqn: name(nqn),
            serial: record.serial.clone(),
            model: record.model.clone(),
            allow_any_host: record.allow_any_host,
            allowed_hosts: record.allowed_hosts.iter().map(|host| name(host)).collect(),
            namespaces: namespaces.collect(),
            home,
        })
    }

    /// A store answered administration.
    pub(crate) fn store_answered(&mut self, completion: &VolumeCompletion) {
        self.control.answers.insert(completion.token.0, completion.result.is_ok());
    }

    pub(crate) fn is_carrying_out(&self) -> bool {
        !self.control.running.is_empty()
    }

    /// What opening has to put right: vSSDs of which the catalog knows nothing were never acknowledged, or were
    /// deleted; so were volumes.
    pub(crate) fn leftovers(&mut self) -> Vec<Step> {
        let known: Vec<u32> = self.state.vssds.values().map(|vssd| vssd.number).collect();
        let orphans = self.ledger.vssds.keys().filter(|number| !known.contains(number));
        let mut steps: Vec<Step> = orphans.map(|&number| Step::DeallocVssd { number }).collect();
        steps.extend(self.leftover_volumes());
        steps
    }

    /// Volumes in this shard's stores of which the catalog knows nothing. Those that it knows, and that are not there, are lost.
    pub(crate) fn leftover_volumes(&mut self) -> Vec<Step> {
        let names: Vec<(String, u32)> =
            self.state.vssds.iter().map(|(name, vssd)| (name.clone(), vssd.number)).collect();
        for (name, number) in names {
            if let Some(store) = self.store_of(number) {
                self.find_lost_volumes(&name, store);
            }
        }
        let mut steps = Vec::new();
        for (name, vssd) in &self.state.vssds {
            let Some(store) = self.store_of(vssd.number) else { continue };
            if self.flash.store(store).read_only_reason().is_some() {
                // It would refuse, and with it everything else that opening has to write down.
                continue;
            }
            for index in 0..1024 {
                let exists = self.flash.store(store).volume_size_ius(VolumeIndex(index)).is_some();
                let wanted =
                    self.state.volumes.values().any(|volume| volume.vssd == *name && volume.index == index);
                if exists && !wanted {
                    steps.push(Step::DeleteVolume { vssd: vssd.number, index });
                }
            }
        }
        steps
    }
}

fn answer(actions: &mut Vec<drive::Action>, token: ControlToken, response: ControlResponse) {
    actions.push(drive::Action::Answer { token, response: Box::new(response) });
}

pub(crate) fn share_of(record: &VssdRecord) -> Share {
    Share {
        weight: record.weight,
        rate_bytes_per_second: record.rate_limit_bytes_per_second,
        sharing: record.sharing,
    }
}
