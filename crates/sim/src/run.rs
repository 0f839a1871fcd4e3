//! One run: a plan against a system, in virtual time, with every checker watching.
//!
//! The clock jumps to the next deadline. The *storm* issues the plan's steps and faults; after each crash
//! everything is read back. The *calm* then asks for liveness: every command answered, the system at rest
//! within bounded time; at last the power is cut once more and everything is read again.

mod administrator;
mod aftermath;
mod applications;
mod erasing;
mod losses;
mod placing;
mod presence;
mod purpose;
mod room;
mod saturation;
mod shaped;
mod siege;

use crate::administration::Change;
use crate::oracle::{Certain, Crash, Finding, Oracle, Violation};
use crate::plan::{Action, ContentKind, FaultKind, Lane, Plan, PlannedFault, Range, VolumePlan, When};
use crate::system::{Accounting, HostAnswer, HostCommand, HostError, HostToken, System, Wear};
use crate::tag::{Tag, VolumeNumber};
use administrator::{Administrator, Sight};
use applications::Applications;
use diecut_namespace::WRITE_PIECE_LBAS;
use diecut_units::{ContentMode, Span, Time, checksum, mark};
use erasing::Erasing;
pub use placing::PlacementLooks;
use placing::Placing;
use presence::Presence;
use purpose::Purpose;
pub use shaped::QosLooks;
use shaped::Shaped;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Longest virtual time a command may stay unanswered (slow hosts and reconnects included).
const ANSWER_TIME_MAX: Span = Span::from_secs(120);
/// Longest virtual time until the system is at rest after the last command.
const REST_TIME_MAX: Span = Span::from_secs(120);
/// Turns of the loop without time passing: more is a system that goes round in circles.
const TURNS_MAX: u32 = 100_000;
/// Turns without anything asked or answered: far more than any wait that ends.
const IDLE_TURNS_MAX: u32 = 500_000;
/// Restarts in a row that a cut may spoil.
const FAILED_RESTARTS_MAX: u32 = 3;
/// Rounds of small writes at most, writes of each lane in one, and the pause between two.
const OVERWRITE_ROUNDS_MAX: u32 = 100;
const OVERWRITES_PER_ROUND: u32 = 300;
const OVERWRITE_PAUSE: Span = Span::from_millis(20);
/// Violations after which a run stops: the first ones tell the story.
const VIOLATIONS_MAX: usize = 20;

/// What a run showed.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Outcome {
    /// What the checkers found, in order; empty for a good run.
    pub violations: Vec<Violation>,
    /// Hash over every answer and its time.
    pub trace_hash: u64,
    /// Hash over the medium at the end.
    pub image_hash: u64,
    /// Commands answered.
    pub commands: u64,
    /// Operations of applications at erase blocks answered.
    pub block_operations: u64,
    /// Power cuts that struck, the final one included.
    pub power_cuts: u64,
    /// Process deaths, those of failed checks included.
    pub process_deaths: u64,
    /// Failed checks after which all shards began anew, and those after which one went on alone.
    pub panics: [u64; 2],
    /// Connections lost.
    pub connections_lost: u64,
    /// Requests of administrators answered as they must be.
    pub changes: u64,
    /// Operations of the medium.
    pub media_operations: u64,
    /// Virtual time at the end, in nanoseconds.
    pub virtual_time_ns: u64,
    /// Slowest answer of each lane in nanoseconds.
    pub slowest_answer_ns: Vec<u64>,
    /// Where programs came from.
    pub accounting: Option<Accounting>,
    /// What the least served got of what the best served got, where shares were compared.
    pub least_share_permille: Option<u64>,
    /// What the medium went through.
    pub wear: Option<Wear>,
    /// What was looked at of reclaim unit handles.
    pub placement: PlacementLooks,
    /// What was looked at of QoS sets.
    pub qos: QosLooks,
    /// What the run lacks of what a run of a set must have shown; filled by the set.
    pub lacks: Vec<&'static str>,
    /// How often the planted bug was passed.
    pub mutant_reached: u64,
    /// Rare branches that were hit, with counts.
    pub marks: BTreeMap<&'static str, u64>,
}

struct Pending {
    lane: Lane,
    purpose: Purpose,
    issued: Time,
    /// The volume it is about, and whether its host sees that.
    volume: Option<VolumeNumber>,
    sight: Sight,
}

/// A command that was answered, for people.
#[derive(Clone, Copy)]
struct Asked {
    token: HostToken,
    lane: Lane,
    what: &'static str,
    range: Option<Range>,
}

struct LaneState {
    /// Reads of everything after a crash; they come before the steps.
    read_back: VecDeque<Action>,
    steps: VecDeque<Action>,
    in_flight: u32,
    depth: u32,
    resume_at: Time,
    /// It asked for commands to be aborted.
    may_be_aborted: bool,
    /// Its connection broke; what was under way ends when the next connection stands.
    settling: bool,
    /// What is under way is to be alone.
    is_alone: bool,
    slowest: Span,
}

impl LaneState {
    fn next(&self) -> Option<&Action> {
        self.read_back.front().or(self.steps.front())
    }
    fn take(&mut self) {
        if self.read_back.pop_front().is_none() {
            self.steps.pop_front();
        }
    }
}

struct Runner<'a> {
    plan: &'a Plan,
    system: &'a mut dyn System,
    mode: ContentMode,
    oracle: Oracle,
    now: Time,
    lanes: Vec<LaneState>,
    pending: BTreeMap<HostToken, Pending>,
    faults: Vec<PlannedFault>,
    administrator: Option<Administrator>,
    applications: Applications,
    placing: Placing,
    shaped: Shaped,
    /// The medium had no room until then.
    no_room_until: Time,
    steps_issued: u64,
    flushes_answered: u64,
    /// Something was written since the server started.
    has_written: bool,
    /// Playing goes on until then, though everything is answered.
    until: Option<Time>,
    token_next: u64,
    failed_restarts: u32,
    /// What is to be done must be done by then.
    must_end: Option<Time>,
    /// Lanes whose vSSDs lose their stores with the next crash.
    to_lose: Vec<Lane>,
    erasing: Erasing,
    /// Lanes whose vSSDs take no writes, because their stores were lost and nobody has accepted that.
    kept: BTreeSet<Lane>,
    trace: u64,
    outcome: Outcome,
    presence: Presence,
    stop: bool,
}

/// Runs a plan. Panics of the system pass through.
pub fn run(plan: &Plan, system: &mut dyn System) -> Outcome {
    let mode = system.content_mode();
    assert_eq!(
        mode == ContentMode::Tags,
        plan.system.content == ContentKind::Tags,
        "the plan names the mode"
    );
    let lanes = plan
        .tenants
        .iter()
        .enumerate()
        .map(|(index, tenant)| LaneState {
            read_back: VecDeque::new(),
            steps: plan.steps.iter().filter(|s| s.lane.0 as usize == index).map(|s| s.action).collect(),
            in_flight: 0,
            depth: tenant.depth,
            resume_at: Time::ZERO,
            may_be_aborted: false,
            settling: false,
            is_alone: false,
            slowest: Span::ZERO,
        })
        .collect();
    let base = system.media_operations();
    let mut faults = plan.faults.clone();
    // Cuts at an operation of the medium strike inside the system; the nearest one is armed.
    faults.retain(|fault| match (fault.when, fault.what) {
        (When::MediaOperation(nth), FaultKind::PowerCut) => {
            system.cut_power_at(base + nth);
            false
        }
        // Faults of the medium by appointment were given to it when it was made.
        (_, what) => !matches!(
            what,
            FaultKind::ProgramFailure { .. }
                | FaultKind::EraseFailure { .. }
                | FaultKind::ReadFailure { .. }
                | FaultKind::SilentFlip { .. }
                | FaultKind::DieOffline { .. }
        ),
    });
    let administrator = Administrator::of(plan, system.existing());
    let of_oracle = |v: VolumePlan| (v.number, v.iu_count, plan.has_volatile_cache(plan.owner(v.number)));
    let oracle = Oracle::new(plan.volumes().map(of_oracle));
    let mut runner = Runner {
        plan,
        system,
        mode,
        oracle,
        now: Time::ZERO,
        lanes,
        pending: BTreeMap::new(),
        faults,
        administrator,
        applications: Applications::of(plan),
        placing: Placing::default(),
        shaped: Shaped::of(plan),
        no_room_until: Time::ZERO,
        steps_issued: 0,
        flushes_answered: 0,
        has_written: true,
        until: None,
        token_next: 1,
        failed_restarts: 0,
        must_end: None,
        to_lose: Vec::new(),
        erasing: Erasing::default(),
        kept: BTreeSet::new(),
        trace: 0xcbf2_9ce4_8422_2325,
        outcome: Outcome::default(),
        presence: Presence::of(plan),
        stop: false,
    };
    runner.go();
    runner.shaped.look(&mut runner.outcome.qos);
    let mut outcome = runner.outcome;
    outcome.trace_hash = runner.trace;
    (outcome.virtual_time_ns, outcome.panics[1]) = (runner.now.0, runner.system.failed_alone());
    outcome.slowest_answer_ns = runner.lanes.iter().map(|lane| lane.slowest.0).collect();
    outcome.media_operations = system.media_operations() - base;
    outcome.image_hash = system.image_hash();
    outcome.accounting = system.accounting();
    outcome.wear = system.wear();
    outcome
}

impl Runner<'_> {
    fn go(&mut self) {
        // Storm.
        self.drive();
        self.gather_drives();
        self.overwrite_until_cleaned();
        // Calm: no new faults; everything is readable, then at rest.
        self.faults.clear();
        room::write_again(self);
        self.read_everything();
        self.drive();
        self.come_to_rest();
        if self.stop {
            return;
        }
        // Erase blocks that were given back are free when nothing of them is under way any more.
        self.applications.look_around();
        self.drive();
        self.come_to_rest();
        if self.stop {
            return;
        }
        self.system.check_invariants();
        self.check_conservation_of_blocks();
        self.check_known_namespaces();
        self.check_placement();
        self.change_in_calm();
        self.check_conservation();
        self.saturate();
        shaped::compare_modest(self);
        erasing::erase(self);
        if !self.stop {
            self.empty_and_restart();
        }
        if self.stop {
            return;
        }
        self.crash(Crash::PowerCut);
        self.drive();
        self.come_to_rest();
        if !self.stop {
            self.system.check_invariants();
            self.check_placement();
            self.besiege();
        }
        if !self.stop {
            self.lose_stores();
        }
    }

    /// Goes on with small writes all over until the medium went through what a run is to show.
    fn overwrite_until_cleaned(&mut self) {
        let mut state = self.plan.seed | 1;
        for round in 0..OVERWRITE_ROUNDS_MAX {
            let wanting = |wear: Wear| wear.programmed_ius < wear.raw_ius || wear.cleaned_ius == 0;
            let goes_on = self.plan.system.until_cleaned && !self.stop && !self.system.power_is_lost();
            if !goes_on || !self.system.wear().is_some_and(wanting) {
                return;
            }
            for (index, tenant) in self.plan.tenants.iter().enumerate().filter(|(_, tenant)| !tenant.guest) {
                if round > 0 {
                    // A medium that has no room for a while refuses all writes of all rounds at once.
                    self.lanes[index].steps.push_back(Action::Wait { span_ns: OVERWRITE_PAUSE.0 });
                }
                for _ in 0..OVERWRITES_PER_ROUND {
                    // A linear congruence (Knuth's): its high bits are as good as needed here.
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let volume = tenant.volumes[0];
                    let first = (state >> 33) % volume.iu_count;
                    let range = Range { volume: volume.number, first, count: 1 };
                    self.lanes[index].steps.push_back(Action::Write { range, fua: false });
                }
            }
            self.drive();
        }
    }

    #[track_caller]
    fn found(&mut self, finding: Finding, detail: String) {
        self.report(Violation::seen(finding, detail));
    }

    fn report(&mut self, violation: Violation) {
        self.report_beside(violation, self.presence.is_any_in_doubt());
    }

    /// `is_in_doubt`: what it is about may be older than was promised.
    fn report_beside(&mut self, violation: Violation, is_in_doubt: bool) {
        let is_older = matches!(
            violation.finding,
            Finding::LostAfterProcessDeath
                | Finding::LostAfterPowerCut
                | Finding::Stale
                | Finding::Resurrected
                | Finding::WrongAnswer
        );
        if is_in_doubt && is_older {
            return mark!("run: a drive that lied lost what it had promised");
        }
        self.stop |= violation.finding == Finding::Liveness;
        self.outcome.violations.push(violation);
        self.stop |= self.outcome.violations.len() >= VIOLATIONS_MAX;
    }

    fn record(&mut self, word: u64) {
        for byte in word.to_le_bytes() {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Lets the lanes play until all their steps are answered.
    fn drive(&mut self) {
        let mut answers = Vec::new();
        let (mut turns, mut turn_time, mut idle_turns) = (0, self.now, 0);
        while !self.stop && self.until.is_none_or(|until| self.now < until) {
            self.strike_faults();
            if self.system.power_is_lost() {
                self.crash(Crash::PowerCut);
                continue;
            }
            self.system.advance(self.now, &mut answers);
            if self.system.told_loss().is_some() {
                mark!("run: a drive that lied opens no more, and that is said");
                self.stop = true;
                return;
            }
            if self.system.has_failed() {
                self.outcome.panics[0] += 1;
                for answer in answers.drain(..) {
                    self.take_answer(answer);
                }
                self.crash(Crash::ProcessDeath);
                continue;
            }
            let answered = !answers.is_empty();
            for answer in answers.drain(..) {
                self.take_answer(answer);
            }
            let heard = !self.system.power_is_lost() && self.hear_administration();
            let issued = !self.system.power_is_lost() && self.administrate() || heard;
            shaped::note_sets(self);
            let issued = !self.system.power_is_lost() && self.issue() || issued;
            let issued = self.work_applications() || issued;
            if self.now > turn_time {
                (turns, turn_time) = (0, self.now);
            }
            turns += 1;
            if turns > TURNS_MAX {
                return self.found(Finding::Liveness, format!("time stands still at {} ns", self.now.0));
            }
            if issued || answered || self.system.power_is_lost() {
                idle_turns = 0;
                continue;
            }
            idle_turns += 1;
            if idle_turns > IDLE_TURNS_MAX {
                // Hosts that ask again and again whether a reset is over would make the wait for an answer long.
                let detail = format!("{IDLE_TURNS_MAX} turns without an answer\n{}", self.system.describe());
                return self.found(Finding::Liveness, detail);
            }
            let administrated = self.administrator.as_ref().is_none_or(Administrator::is_done);
            let idle = administrated
                && self.applications.are_done()
                && self.pending.is_empty()
                && self.lanes.iter().all(|lane| lane.next().is_none());
            if idle && self.until.is_none() {
                return;
            }
            if self.must_end.is_some_and(|end| self.now >= end) {
                let detail = format!(
                    "honest hosts starve beside hostile ones at {} ns\n{}",
                    self.now.0,
                    self.system.describe()
                );
                return self.found(Finding::Liveness, detail);
            }
            let mut next = self.system.next_event().min(self.applications.next_event(self.now));
            next = next.min(self.until.unwrap_or(Time::NEVER));
            if let Some(administrator) = &self.administrator {
                next = next.min(administrator.next_event().max(self.now));
            }
            for lane in &self.lanes {
                if lane.next().is_some() && lane.resume_at > self.now {
                    next = next.min(lane.resume_at);
                }
            }
            for fault in &self.faults {
                if let When::Time(at) = fault.when {
                    next = next.min(Time(at).max(self.now));
                }
            }
            self.check_answer_times(next);
            self.check_application_times();
            self.now = self.now.max(next.min(self.now + ANSWER_TIME_MAX));
        }
    }

    fn check_answer_times(&mut self, next: Time) {
        let Some((token, oldest)) = self.pending.iter().min_by_key(|(_, p)| p.issued) else {
            if next == Time::NEVER {
                let lanes: Vec<usize> =
                    (0..self.lanes.len()).filter(|&l| self.lanes[l].next().is_some()).collect();
                self.found(
                    Finding::Liveness,
                    format!("lanes {lanes:?} cannot go on and nothing will happen"),
                );
            }
            return;
        };
        let waited = self.now.since(oldest.issued);
        if next == Time::NEVER || waited > ANSWER_TIME_MAX {
            let detail = format!(
                "command {} of lane {} ({}) unanswered after {waited}{}",
                token.0,
                oldest.lane.0,
                oldest.purpose.name(),
                if next == Time::NEVER { ", and nothing will happen" } else { "" },
            );
            let detail = format!("{detail}\n{}", self.system.describe());
            self.found(Finding::Liveness, detail);
        }
    }

    fn strike_faults(&mut self) {
        while let Some(position) = self.faults.iter().position(|fault| match fault.when {
            When::Step(step) => step <= self.steps_issued,
            When::Time(at) => at <= self.now.0,
            When::Flush { nth } => nth < self.flushes_answered,
            When::MediaOperation(_) | When::Change { .. } | When::After { .. } | When::Following { .. } => {
                false
            }
        }) {
            let fault = self.faults.remove(position);
            self.record(position as u64 + 1);
            if let Some(next) = self.faults.get_mut(position)
                && let When::Following { span_ns } = next.when
            {
                next.when = When::Time(self.now.0 + span_ns);
            }
            if matches!(fault.when, When::Flush { .. }) {
                mark!("run: cut right after a flush");
            }
            match fault.what {
                FaultKind::PowerCut => return self.crash(Crash::PowerCut),
                FaultKind::ProcessDeath => return self.crash(Crash::ProcessDeath),
                FaultKind::ConnectionLoss { lane } => self.lose_connection(lane),
                FaultKind::SlowHost { lane, span_ns } => self.system.stall(lane, self.now + Span(span_ns)),
                FaultKind::Silence { lane, span_ns } => self.system.silence(lane, self.now + Span(span_ns)),
                FaultKind::NoRoom { span_ns } => {
                    self.no_room_until = self.no_room_until.max(self.now + Span(span_ns));
                    self.system.lose_room(self.no_room_until);
                }
                FaultKind::Drive(harm) => self.harm_drive(harm),
                FaultKind::HalfOpen { lane } => {
                    self.outcome.connections_lost += 1;
                    self.system.vanish(lane, self.now);
                }
                _ => {}
            }
        }
    }

    fn lose_connection(&mut self, lane: Lane) {
        self.outcome.connections_lost += 1;
        self.lanes[lane.0 as usize].settling = true;
        self.system.disconnect(lane, self.now);
    }

    fn crash(&mut self, crash: Crash) {
        match crash {
            Crash::PowerCut => self.outcome.power_cuts += 1,
            Crash::ProcessDeath => self.outcome.process_deaths += 1,
        }
        if !std::mem::take(&mut self.has_written) {
            mark!("run: restarted without a write between");
        }
        self.erasing.crashes(self.system);
        self.system.crash(crash, self.now);
        self.oracle.crash(crash);
        self.lose_records();
        self.administration_crashed();
        self.shaped.crashed();
        self.applications_crashed(crash);
        self.pending.clear();
        for lane in &mut self.lanes {
            lane.in_flight = 0;
            lane.settling = false;
        }
        self.record(0xdead);
        self.now += Span::from_millis(1);
        let order = self.presence.begin_life(self.plan);
        self.system.give_drives(order);
        match self.system.restart(self.now) {
            Ok(()) => self.failed_restarts = 0,
            Err(error) => {
                // The power may go again while recovery runs: then the next round restarts once more.
                self.failed_restarts += 1;
                if self.plan.loses_system_data() && !self.system.power_is_lost() {
                    self.stop = true;
                    return;
                }
                if !self.system.power_is_lost() || self.failed_restarts > FAILED_RESTARTS_MAX {
                    self.report(Violation::said(Finding::RecoveryFailed, error));
                    self.stop = true;
                }
            }
        }
        // With administrators, what exists is to be told first.
        if self.administrator.is_none() {
            self.read_everything();
        }
    }

    /// Puts reads of everything before the remaining steps of each lane.
    fn read_everything(&mut self) {
        for (index, tenant) in self.plan.tenants.iter().enumerate() {
            let seen: Vec<_> = tenant
                .volumes
                .iter()
                .filter(|volume| self.sight(Lane(index as u8), volume.number) == Sight::Yes)
                .collect();
            let lane = &mut self.lanes[index];
            let transfer_max_ius = self.system.transfer_max_ius();
            // Reads that an earlier crash asked for and that were not issued yet are the same reads.
            lane.read_back.clear();
            for volume in seen {
                let chunk = if volume.is_thin() { transfer_max_ius } else { transfer_max_ius.min(32) };
                let mut first = 0;
                while first < volume.iu_count {
                    let count = u64::from(chunk).min(volume.iu_count - first) as u32;
                    lane.read_back
                        .push_back(Action::Read { range: Range { volume: volume.number, first, count } });
                    first += u64::from(count);
                }
            }
        }
    }

    fn issue(&mut self) -> bool {
        let mut issued = false;
        for index in 0..self.lanes.len() {
            let lane = Lane(index as u8);
            self.drop_steps_of_the_excluded(lane);
            while self.system.is_connected(lane) {
                let state = &mut self.lanes[index];
                if state.settling {
                    // Answers of the old connection come out before the new one stands.
                    if state.in_flight > 0 {
                        break;
                    }
                    state.settling = false;
                    self.oracle.settle_lane(lane);
                    continue;
                }
                if state.resume_at > self.now || state.in_flight >= state.depth {
                    break;
                }
                let Some(&action) = state.next() else { break };
                let is_alone = matches!(action, Action::Drain | Action::ShutDown | Action::Copy { .. });
                if state.in_flight > 0 && (is_alone || state.is_alone) {
                    break;
                }
                state.is_alone = is_alone;
                let may = self.may_issue(lane, &action);
                let state = &mut self.lanes[index];
                match may {
                    None => break,
                    Some(false) => {
                        state.take();
                        continue;
                    }
                    Some(true) => {}
                }
                state.take();
                issued = true;
                self.steps_issued += 1;
                self.take_step(lane, action);
            }
        }
        issued
    }

    /// A lane whose host may not connect, now and for the rest of the run, has nothing to do.
    fn drop_steps_of_the_excluded(&mut self, lane: Lane) {
        let Some(administrator) = &self.administrator else { return };
        if administrator.is_done() && !administrator.lets_in(lane) {
            let state = &mut self.lanes[usize::from(lane.0)];
            state.steps.clear();
            state.read_back.clear();
        }
    }

    fn take_step(&mut self, lane: Lane, action: Action) {
        let volume = action.volume();
        let sight = volume.map_or(Sight::Yes, |volume| self.sight(lane, volume));
        let (purpose, command) = match action {
            Action::Drain => return,
            Action::Change(change) => panic!("{change:?} is a step of administrators"),
            Action::Blocks(step) => panic!("{step:?} is a step of applications"),
            Action::Wait { span_ns } => {
                self.lanes[lane.0 as usize].resume_at = self.now + Span(span_ns);
                return;
            }
            Action::Reconnect => return self.lose_connection(lane),
            Action::Reset => return self.system.reset(lane, self.now),
            Action::Abort => {
                self.lanes[lane.0 as usize].may_be_aborted = true;
                return self.system.abort(lane);
            }
            Action::ShutDown => {
                let owned = &self.plan.tenants[usize::from(lane.0)].volumes;
                let volumes = owned.iter().map(|volume| volume.number).collect();
                let issued = self.oracle.begin_flush();
                let token = self.pend(lane, Purpose::ShutDown { volumes, issued }, None, sight);
                return self.system.shut_down(lane, token, self.now);
            }
            Action::Write { range, fua } => {
                let id = self.oracle.begin_write(lane, range, false);
                let data =
                    self.content(range, |lba| Some(Tag { volume: range.volume, lba, version: id.version }));
                (Purpose::Write { id, fua }, self.write_command(range, data, fua, id))
            }
            Action::WriteZeroes { range, fua } => {
                let id = self.oracle.begin_write(lane, range, true);
                (Purpose::Write { id, fua }, HostCommand::WriteZeroes(range, fua))
            }
            Action::Deallocate { range } => {
                let id = self.oracle.begin_write(lane, range, true);
                (Purpose::Write { id, fua: false }, HostCommand::Deallocate(range))
            }
            Action::Read { range } => self.read(range),
            Action::Flush { volume } => {
                let issued = self.oracle.begin_flush();
                (Purpose::Flush { volume, issued }, HostCommand::Flush(volume))
            }
            Action::Compare { range, wrong } => match self.certain(range) {
                Some(expected) => {
                    let mut data = self.content(range, |iu| expected[(iu - range.first) as usize].tag);
                    if wrong {
                        *data.last_mut().expect("not empty") ^= 0x40;
                    }
                    let id = self.oracle.begin_read(range.volume);
                    (Purpose::Compare { range, expected, wrong, id }, HostCommand::Compare(range, data))
                }
                None => self.read(range),
            },
            Action::Copy { range, to, fua } => match self.certain(range) {
                Some(content) => {
                    mark!("run: copied");
                    let to = Range { first: to, ..range };
                    let id = self.oracle.begin_copy(lane, to, &content);
                    self.placing.note_copy(id);
                    (Purpose::Write { id, fua }, HostCommand::Copy(range, to, fua))
                }
                None => self.read(range),
            },
            Action::Placement(step) => self.placement_command(step),
            Action::WriteUncorrectable { range } => {
                let id = self.oracle.begin_unreadable(lane, range);
                (Purpose::Write { id, fua: false }, HostCommand::WriteUncorrectable(range))
            }
            Action::Verify { range } => {
                let id = self.oracle.begin_read(range.volume);
                (Purpose::Verify { range, id }, HostCommand::Verify(range))
            }
        };
        self.has_written |= matches!(purpose, Purpose::Write { .. });
        let token = self.pend(lane, purpose, volume, sight);
        self.shaped.issued(self.plan, token, &command, self.now);
        self.system.submit(lane, token, command, self.now);
    }

    fn pend(
        &mut self,
        lane: Lane,
        purpose: Purpose,
        volume: Option<VolumeNumber>,
        sight: Sight,
    ) -> HostToken {
        let token = HostToken(self.token_next);
        self.token_next += 1;
        self.pending.insert(token, Pending { lane, purpose, issued: self.now, volume, sight });
        self.lanes[lane.0 as usize].in_flight += 1;
        token
    }

    fn read(&mut self, range: Range) -> (Purpose, HostCommand) {
        let id = self.oracle.begin_read(range.volume);
        (Purpose::Read { range, id }, HostCommand::Read(range))
    }

    fn certain(&self, range: Range) -> Option<Vec<Certain>> {
        range.ius().map(|iu| self.oracle.certain(range.volume, iu)).collect()
    }

    fn content(&self, range: Range, tag: impl Fn(u64) -> Option<Tag>) -> Vec<u8> {
        let size = self.mode.bytes_per_iu();
        let mut data = vec![0; range.count as usize * size];
        for (iu, bytes) in range.ius().zip(data.chunks_exact_mut(size)) {
            if let Some(tag) = tag(iu) {
                tag.fill(self.mode, bytes);
            }
        }
        data
    }

    fn take_answer(&mut self, answer: HostAnswer) {
        let Some(pending) = self.pending.remove(&answer.token) else {
            let detail =
                format!("lane {} answers command {} twice or unasked", answer.lane.0, answer.token.0);
            return self.found(Finding::WrongAnswer, detail);
        };
        let state = &mut self.lanes[pending.lane.0 as usize];
        state.in_flight -= 1;
        state.slowest = state.slowest.max(self.now.since(pending.issued));
        self.outcome.commands += 1;
        for wrong in self.shaped.answered(answer.token, answer.result.is_ok(), self.now) {
            self.found(Finding::Fairness, wrong);
        }
        self.record(self.now.0);
        self.record(answer.token.0);
        match &answer.result {
            Ok(data) => self.record(u64::from(checksum(data))),
            Err(error) => self.record(u64::from(checksum(format!("{error:?}").as_bytes())) | 1 << 40),
        }
        let error = answer.result.as_ref().err().cloned();
        let (lane, issued) = (pending.lane, pending.issued);
        let was_away = self.presence.was_away(self.plan, lane, issued);
        // Where there is no cache nothing is to be flushed.
        let flushes = matches!(pending.purpose, Purpose::Flush { .. } | Purpose::ShutDown { .. });
        let needs_its_drive = !flushes || self.plan.has_volatile_cache(lane);
        if answer.result.is_ok()
            && needs_its_drive
            && self.presence.is_away(self.plan, lane, issued, self.now)
        {
            let (token, what) = (answer.token.0, pending.purpose.name());
            let detail =
                format!("command {token} ({what}) of lane {} was carried out without its drive", lane.0);
            self.found(Finding::WrongAnswer, detail);
        }
        let unseen = error == Some(HostError::NoNamespace) && pending.may_be_refused();
        if answer.result.is_ok() && pending.sight == Sight::No {
            let detail =
                format!("lane {} reached volume {:?}, which it must not see", answer.lane.0, pending.volume);
            self.found(Finding::WrongAnswer, detail);
        }
        let reads = pending.purpose.reads();
        let (what, range) = (pending.purpose.name(), reads.map(|(range, _)| range));
        let asked = Asked { token: answer.token, lane, what, range };
        let may_fail = error == Some(HostError::Unrecovered)
            && reads.is_some_and(|(range, id)| self.oracle.may_fail(range, id));
        if let Some((range, id)) = reads
            && (answer.result.is_err() || !matches!(pending.purpose, Purpose::Read { .. }))
        {
            self.oracle.give_up_read(range.volume, id);
        }
        match (pending.purpose, answer.result) {
            (_, Err(HostError::Unrecovered)) if may_fail => {
                mark!("run: what a host made unreadable is not read")
            }
            (_, Err(HostError::ConnectionLost)) => {
                self.lanes[pending.lane.0 as usize].settling = true;
                // Writes end when the next connection of the lane stands.
            }
            (purpose, Err(HostError::Sanitizing)) if self.erasing.refuses(pending.lane) => {
                if let Purpose::Write { id, .. } = purpose {
                    self.oracle.refuse_write(id);
                }
            }
            (Purpose::Write { id, fua }, Ok(_)) => {
                self.oracle.acknowledge_write(id, fua);
                self.placing.count_answered(pending.lane);
                if self.kept.contains(&pending.lane) {
                    let detail =
                        format!("the vSSD of lane {} lost its store, and took a write", pending.lane.0);
                    self.found(Finding::WrongAnswer, detail);
                }
            }
            (Purpose::Write { id, .. }, Err(HostError::ReadOnly)) if self.kept.contains(&pending.lane) => {
                self.oracle.refuse_write(id);
            }
            (purpose, Err(HostError::Aborted)) if self.lanes[pending.lane.0 as usize].may_be_aborted => {
                mark!("run: command aborted");
                // What is aborted is not done at all, or ends between two pieces.
                if let Purpose::Write { id, .. } = purpose {
                    self.oracle.abort_write(id, WRITE_PIECE_LBAS);
                }
            }
            (Purpose::ShutDown { volumes, issued }, Ok(_)) => {
                for volume in volumes {
                    self.oracle.acknowledge_flush(volume, issued);
                }
            }
            (Purpose::Write { id, .. }, Err(HostError::NotReady)) if was_away => {
                mark!("run: a write is not ready");
                // It may be carried out when its drive is back.
                self.oracle.leave_write(id);
            }
            (_, Err(HostError::NotReady)) if was_away => {}
            (Purpose::ShutDown { .. }, Err(_)) => {
                self.unexpected(asked, error, self.may_lose_data(lane) || was_away);
            }
            (Purpose::Write { id, .. }, Err(HostError::NoNamespace)) if unseen => {
                self.oracle.refuse_write(id)
            }
            (_, Err(_)) if unseen => {}
            (Purpose::Write { id, .. }, Err(HostError::Full)) if pending.issued <= self.no_room_until => {
                mark!("run: a write finds no room");
                // Some of it may have been written.
                self.oracle.give_up_write(id);
            }
            (Purpose::Flush { .. }, Err(HostError::Full)) if pending.issued <= self.no_room_until => {}
            (Purpose::Write { id, .. }, Err(HostError::Full)) => {
                let is_gone = self.presence.is_gone(self.plan, lane);
                if is_gone {
                    self.oracle.give_up_write(id)
                } else {
                    self.oracle.refuse_write(id)
                }
                let may_be_full = self.system.may_be_full(answer.lane) || self.may_fill_a_group(answer.lane);
                self.unexpected(asked, error, may_be_full || is_gone);
            }
            (Purpose::Write { id, .. }, Err(_)) => {
                self.oracle.give_up_write(id);
                self.unexpected(asked, error, self.may_lose_data(lane));
            }
            (Purpose::Read { range, id }, Ok(data)) => {
                let is_gone = self.presence.is_gone(self.plan, lane);
                let violations = self.oracle.check_read(range, id, &data, self.mode.bytes_per_iu(), is_gone);
                let is_in_doubt = self.presence.is_in_doubt(self.plan, lane);
                violations.into_iter().for_each(|violation| self.report_beside(violation, is_in_doubt));
            }
            (Purpose::Read { range, .. }, Err(_)) => {
                let is_lost = error == Some(HostError::Unrecovered) && self.oracle.is_lost(range);
                self.unexpected(asked, error, self.may_lose_data(lane) || is_lost);
            }
            (Purpose::Flush { volume, issued }, Ok(_)) => {
                self.flushes_answered += 1;
                self.oracle.acknowledge_flush(volume, issued);
            }
            (Purpose::Compare { range, expected, wrong, .. }, result) => {
                let still = self.certain(range) == Some(expected);
                match result {
                    Err(HostError::CompareFailure) if wrong || !still => {}
                    Ok(_) if !wrong || !still => {}
                    Ok(_) => self.found(Finding::WrongAnswer, format!("{range:?} equals what it is not")),
                    Err(HostError::CompareFailure) => {
                        self.found(Finding::WrongAnswer, format!("{range:?} differs from what it must be"));
                    }
                    Err(_) => self.unexpected(asked, error, self.may_lose_data(lane)),
                }
            }
            (Purpose::HandleStatus { volume }, Ok(page)) => self.handles_told(volume, &page),
            (Purpose::HandleStatus { .. } | Purpose::HandleUpdate, Err(_)) => {
                self.unexpected(asked, error, false);
            }
            (Purpose::Verify { .. } | Purpose::HandleUpdate, Ok(_)) => {}
            (Purpose::Flush { .. } | Purpose::Verify { .. }, Err(_)) => {
                self.unexpected(asked, error, self.may_lose_data(lane));
            }
        }
    }

    fn unexpected(&mut self, asked: Asked, error: Option<HostError>, allowed: bool) {
        if !allowed {
            let Asked { token, lane, what, range } = asked;
            let detail = format!("command {}: {error:?} ({what} {range:?} of lane {})", token.0, lane.0);
            self.report(Violation::said(Finding::UnexpectedError, detail));
        }
    }

    /// Plays until nothing is under way. A cut armed at an operation of the medium may strike here, too: what the system does by
    /// itself reaches the medium.
    fn come_to_rest(&mut self) {
        let mut deadline = self.now + REST_TIME_MAX;
        let mut answers = Vec::new();
        let mut turns = 0;
        while !self.stop {
            if self.system.power_is_lost() {
                mark!("run: cut while the system comes to rest");
                self.crash(Crash::PowerCut);
                self.drive();
                (deadline, turns) = (self.now + REST_TIME_MAX, 0);
                continue;
            }
            if self.system.is_at_rest() {
                return;
            }
            turns += 1;
            self.system.advance(self.now, &mut answers);
            for answer in answers.drain(..) {
                self.take_answer(answer);
            }
            if self.system.told_loss().is_some() {
                self.stop = true;
                return;
            }
            if self.system.is_at_rest() || self.system.power_is_lost() {
                continue;
            }
            let next = self.system.next_event();
            if next > deadline || turns > 100 * TURNS_MAX {
                let detail = format!(
                    "the system is not at rest {REST_TIME_MAX} after the last command\n{}",
                    self.system.describe()
                );
                return self.found(Finding::Liveness, detail);
            }
            // A deadline that does not move is a system that turns in circles.
            self.now = next.max(self.now + Span::from_micros(1));
        }
    }

    /// Takes a namespace away and shows it again: hosts hear of both.
    fn change_in_calm(&mut self) {
        let volume = self.plan.tenants[0].volumes[0].number;
        let late_ns = self.plan.tenants[0].asks_for_events_after_ns;
        if late_ns > 0
            && self.sight(Lane(0), volume) == Sight::Yes
            && let Some(administrator) = &mut self.administrator
        {
            // The second change comes when the host has looked, and has not asked to be told again.
            administrator.ask(Change::Detach(volume));
            administrator.wait(late_ns / 2);
            administrator.ask(Change::Attach(volume));
            self.drive();
            self.come_to_rest();
            return self.check_known_namespaces();
        }
        for change in [Change::Detach(volume), Change::Attach(volume)] {
            let must = if matches!(change, Change::Detach(_)) { Sight::Yes } else { Sight::No };
            if self.stop || self.sight(Lane(0), volume) != must {
                return;
            }
            let Some(administrator) = &mut self.administrator else { return };
            administrator.ask(change);
            self.drive();
            self.come_to_rest();
            self.check_known_namespaces();
        }
    }

    /// Hosts that follow events know what their subsystem shows.
    fn check_known_namespaces(&mut self) {
        for (index, tenant) in self.plan.tenants.iter().enumerate() {
            let lane = Lane(index as u8);
            let known = self.system.known_namespaces(lane);
            let seen = tenant.volumes.iter().filter(|volume| self.sight(lane, volume.number) == Sight::Yes);
            let shown: BTreeSet<u32> = seen.map(|volume| u32::from(volume.number.0)).collect();
            for known in known {
                if known == shown {
                    mark!("run: a host knows its namespaces");
                } else {
                    let detail =
                        format!("the host of lane {index} was told of namespaces {known:?}, not {shown:?}");
                    self.found(Finding::WrongAnswer, detail);
                }
            }
        }
    }

    fn check_conservation(&mut self) {
        for detail in self.system.check_wear() {
            self.found(Finding::Conservation, detail);
        }
        let Some(a) = self.system.accounting() else { return };
        let programmed = a.programmed_user_ius
            + a.programmed_cleaner_ius
            + a.programmed_metadata_ius
            + a.programmed_migration_ius;
        // What comes to a zone that gave way, or waits for a place when the server ends, is never written.
        let is_zoned = self.plan.system.drives.iter().any(|drive| drive.zones.is_some());
        if programmed != a.chip_programmed_ius && !(is_zoned && programmed > a.chip_programmed_ius) {
            let detail = format!(
                "user {} + cleaner {} + metadata {} + migration {} IUs are {programmed}, but the chips programmed {}",
                a.programmed_user_ius,
                a.programmed_cleaner_ius,
                a.programmed_metadata_ius,
                a.programmed_migration_ius,
                a.chip_programmed_ius
            );
            self.found(Finding::Conservation, detail);
        }
        if a.erases != a.chip_erases {
            let detail = format!("{} erases counted, but the chips erased {} times", a.erases, a.chip_erases);
            self.found(Finding::Conservation, detail);
        }
    }
}
