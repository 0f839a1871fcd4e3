//! Where the time of slow commands went: the latest of them, what each cause took, and who waited for whom.
//!
//! Each command has its stamps anyway (arrived, data here, admitted, and of its last operation on flash: queued at the die, begun, alone
//! there, done). Only when it is answered later than the threshold they are put together, and the die is asked what it did meanwhile. How
//! many are looked into is bounded by time, so that a server that is slow for everybody is not made slower by saying so.
//!
//! Not known here: names. They are looked up when somebody asks (`latency_report`).

use crate::stalls::Stalls;
use diecut_namespace::contract::NamespaceId;
use diecut_namespace::{Finished, Stamps};
use diecut_nvme::opcode::io as opcode;
use diecut_nvmf::CommandFacts;
use diecut_spec::latency::{Cause, HISTOGRAM_BUCKETS, HISTOGRAM_MS};
use diecut_units::{Span, Time, mark};
use diecut_vssd::{
    BusyShare, DieDelay, DieStretch, DieTimesView, DieWork, IoClass, SlowOperation, VssdId, Where, WorkKind,
};
use std::collections::{BTreeMap, VecDeque};

/// Commands that are kept.
const COMMANDS_MAX: usize = 128;
/// Stretches of its die that are kept of each.
const NEIGHBOURS_MAX: usize = 6;
/// Pairs of vSSDs in the matrix.
const PAIRS_MAX: usize = 4096;
/// Commands that may be looked into at once, and after how long another one may.
const BUDGET_MAX: u32 = 64;
const BUDGET_EACH: Span = Span::from_micros(500);

/// A command over the threshold, in numbers.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    pub namespace: NamespaceId,
    /// What its host asked; nothing of commands of other doors.
    pub facts: Option<CommandFacts>,
    pub stamps: Stamps,
    pub done: Time,
    /// Its last operation on flash, as it was.
    pub operation: Option<SlowOperation>,
    /// Of the device that it was on.
    pub dies_per_channel: u32,
    pub parts: Parts,
    /// For whose work it waited.
    pub delay: Option<DieDelay>,
    pub neighbours: [Option<DieStretch>; NEIGHBOURS_MAX],
}

impl Record {
    /// From its arrival to its answer.
    pub fn took(&self) -> Span {
        self.done.since(self.stamps.arrived)
    }
}

/// Time by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts([Span; Cause::ALL.len()]);

impl Parts {
    fn add(&mut self, cause: Cause, time: Span) {
        self.0[cause.index()] += time;
    }

    pub fn of(&self, cause: Cause) -> Span {
        self.0[cause.index()]
    }

    /// The cause that took most.
    pub fn dominant(&self) -> Cause {
        let longest = Cause::ALL.into_iter().rev().max_by_key(|cause| self.of(*cause));
        longest.expect("there are causes")
    }

    fn sum(&self) -> Span {
        self.0.iter().fold(Span::ZERO, |sum, one| sum + *one)
    }
}

/// What a share of a delay counts as, for a command of a vSSD.
pub(crate) fn cause_of(share: &BusyShare, own: VssdId) -> Cause {
    match (share.place, share.work.class) {
        (Where::Bus, _) => Cause::Bus,
        (Where::Die, IoClass::Migration) => Cause::DieMigration,
        (Where::Die, _) if share.work.owner != own => Cause::DieNeighbour,
        (Where::Die, IoClass::Cleaner | IoClass::Metadata) => Cause::DieCleaner,
        (Where::Die, IoClass::HostRead | IoClass::HostWrite) => Cause::DieOwn,
    }
}

/// Where the time of a command went: its stamps, and what is known of its last operation on flash. The parts add up. Times in which the
/// shard was late are `Server`; `clock` stands still in them, and by it everything else is told.
fn split(
    record: &mut Record,
    clock: &dyn Fn(Time) -> Time,
    explain: impl FnOnce(&SlowOperation) -> DieDelay,
) {
    let mut parts = Parts::default();
    let true_stamps = record.stamps;
    let submitted = record.facts.map_or(true_stamps.arrived, |facts| facts.submitted);
    let (arrived, admitted) = (clock(true_stamps.arrived), clock(true_stamps.admitted));
    let (submitted, done) = (clock(submitted).max(arrived).min(admitted), clock(record.done));
    parts.add(Cause::Server, Span(record.took().0 - done.since(arrived).0));
    parts.add(Cause::Network, submitted.since(arrived));
    parts.add(Cause::Admission, admitted.since(submitted));
    let is_flush = record.facts.is_some_and(|facts| facts.opcode == opcode::FLUSH);
    let store = if is_flush { Cause::Flush } else { Cause::Store };
    let is_of_command = |one: &SlowOperation| one.done > true_stamps.admitted && one.done <= record.done;
    let Some(operation) = record.operation.filter(is_of_command) else {
        parts.add(store, done.since(admitted));
        record.parts = parts;
        return;
    };
    // What was done at the die before the command came to it is not its time.
    let of_command = SlowOperation {
        queued: clock(operation.queued).max(admitted),
        begun: clock(operation.begun).max(admitted),
        alone: clock(operation.alone).max(admitted),
        done: clock(operation.done),
        ..operation
    };
    let delay = explain(&of_command);
    parts.add(store, of_command.queued.since(admitted));
    for share in delay.shares() {
        parts.add(cause_of(share, operation.work.owner), share.time);
    }
    parts.add(Cause::Held, delay.held);
    parts.add(Cause::Medium, delay.own);
    parts.add(Cause::SlowMedium, delay.slow);
    parts.add(Cause::Unknown, delay.unknown);
    parts.add(Cause::Answer, done.since(of_command.done));
    record.delay = Some(delay);
    record.parts = parts;
}

/// What one cause took.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figures {
    pub commands: u64,
    pub dominant: u64,
    pub total: Span,
    pub histogram: [u64; HISTOGRAM_BUCKETS],
}

/// How one vSSD waited for another one, by what that did.
#[derive(Clone, Copy, Default)]
pub(crate) struct Waited {
    pub reads: Span,
    pub programs: Span,
    pub erases: Span,
    pub cleaner: Span,
    pub migration: Span,
    pub bus: Span,
}

impl Waited {
    fn add(&mut self, share: &BusyShare) {
        let DieWork { class, kind, .. } = share.work;
        let part = match (share.place, class, kind) {
            (Where::Bus, ..) => &mut self.bus,
            (_, IoClass::Migration, _) => &mut self.migration,
            (_, _, WorkKind::Erase) => &mut self.erases,
            (_, IoClass::Cleaner | IoClass::Metadata, _) => &mut self.cleaner,
            (_, _, WorkKind::Read) => &mut self.reads,
            (_, _, WorkKind::Program) => &mut self.programs,
        };
        *part += share.time;
    }
}

/// See the module.
pub(crate) struct Delays {
    /// From how long on a command is slow.
    pub threshold: Span,
    /// The latest, the oldest first.
    pub commands: VecDeque<Record>,
    pub slow: u64,
    pub explained: u64,
    pub causes: [Figures; Cause::ALL.len()],
    /// Who waited for whom.
    pub matrix: BTreeMap<(VssdId, VssdId), Waited>,
    /// What is left of the bound, and since when.
    budget: u32,
    budget_at: Time,
    /// When the shard was late.
    pub stalls: Stalls,
    /// When it was last asked for anything.
    pub now: Time,
}

impl Delays {
    pub fn new(threshold: Span) -> Delays {
        Delays {
            threshold,
            commands: VecDeque::with_capacity(COMMANDS_MAX),
            slow: 0,
            explained: 0,
            causes: [Figures::default(); Cause::ALL.len()],
            matrix: BTreeMap::new(),
            budget: BUDGET_MAX,
            budget_at: Time::ZERO,
            stalls: Stalls::new(),
            now: Time::ZERO,
        }
    }

    /// From how long on operations on flash are to be noted: the last one of a slow command may have been faster than all of it.
    pub fn operation_threshold(&self) -> Span {
        Span(self.threshold.0 / 4)
    }

    /// Whether a command that took so long is slow.
    #[inline]
    pub fn is_slow(&self, stamps: &Stamps, now: Time) -> bool {
        now.since(stamps.arrived) >= self.threshold
    }

    /// Whether another command may be looked into.
    fn has_budget(&mut self, now: Time) -> bool {
        let earned = now.since(self.budget_at).0 / BUDGET_EACH.0;
        if earned > 0 {
            self.budget = BUDGET_MAX.min(self.budget + earned.min(BUDGET_MAX.into()) as u32);
            self.budget_at = now;
        }
        let has_some = self.budget > 0;
        self.budget -= u32::from(has_some);
        has_some
    }

    /// A slow command is answered. Says what was found, if it was looked into.
    #[cold]
    pub fn note(
        &mut self,
        finished: &Finished,
        facts: Option<CommandFacts>,
        operation: Option<SlowOperation>,
        dies: &DieTimesView<'_>,
        now: Time,
    ) -> Option<&Record> {
        self.slow += 1;
        if !self.has_budget(now) {
            mark!("shard: slow command not looked into");
            return None;
        }
        self.explained += 1;
        assert!(self.explained <= self.slow, "I-S30: a command is explained once");
        let mut record = Record {
            namespace: finished.namespace,
            facts,
            stamps: finished.stamps,
            done: now,
            operation,
            dies_per_channel: dies.dies_per_channel(),
            parts: Parts::default(),
            delay: None,
            neighbours: [None; NEIGHBOURS_MAX],
        };
        let clock = |time| self.stalls.without(time);
        split(&mut record, &clock, |operation| dies.explain(operation, &clock));
        assert_eq!(record.parts.sum(), record.took(), "I-S30: the parts of a command's time add up");
        if let Some(operation) = &record.operation {
            let around = dies.stretches(operation.die);
            record.neighbours.iter_mut().zip(around).for_each(|(place, one)| *place = Some(*one));
        }
        mark!("shard: slow command explained");
        assert!(
            record.stamps.arrived <= record.stamps.admitted,
            "I-S30: a command is admitted after it came"
        );
        self.count(&record);
        if self.commands.len() == COMMANDS_MAX {
            self.make_place();
        }
        assert!(self.commands.len() < COMMANDS_MAX, "I-S30: the ring is bounded");
        self.commands.push_back(record);
        self.commands.back()
    }

    /// Forgets the oldest command of the namespace that has most: one that is flooded must not drive out what is known of the others.
    fn make_place(&mut self) {
        let mut counts: BTreeMap<NamespaceId, usize> = BTreeMap::new();
        self.commands.iter().for_each(|record| *counts.entry(record.namespace).or_default() += 1);
        let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(namespace, _)| namespace);
        if let Some(at) = self.commands.iter().position(|record| Some(record.namespace) == most) {
            self.commands.remove(at);
        }
    }

    fn count(&mut self, record: &Record) {
        let dominant = record.parts.dominant();
        for cause in Cause::ALL {
            let time = record.parts.of(cause);
            if time > Span::ZERO {
                let figures = &mut self.causes[cause.index()];
                figures.commands += 1;
                figures.dominant += u64::from(cause == dominant);
                figures.total += time;
                let ms = time.0 / 1_000_000;
                let bucket = HISTOGRAM_MS.iter().position(|end| ms < *end).unwrap_or(HISTOGRAM_MS.len());
                figures.histogram[bucket] += 1;
            }
        }
        let (Some(operation), Some(delay)) = (&record.operation, &record.delay) else { return };
        for share in delay.shares() {
            let pair = (operation.work.owner, share.work.owner);
            if self.matrix.len() < PAIRS_MAX || self.matrix.contains_key(&pair) {
                self.matrix.entry(pair).or_default().add(share);
                assert!(self.matrix.len() <= PAIRS_MAX, "I-S30: the matrix is bounded");
            }
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_namespace::contract::{CommandToken, NamespaceCompletion, SourceId};

    fn finished(arrived: u64, admitted: u64) -> Finished {
        Finished {
            source: SourceId(0),
            namespace: NamespaceId(1),
            stamps: Stamps { arrived: Time(arrived), admitted: Time(admitted) },
            completion: NamespaceCompletion {
                token: CommandToken(0),
                result: Ok(()),
                data: None,
                zones: None,
            },
        }
    }

    fn record(arrived: u64, admitted: u64, done: u64, facts: Option<CommandFacts>) -> Record {
        Record {
            namespace: NamespaceId(1),
            facts,
            stamps: finished(arrived, admitted).stamps,
            done: Time(done),
            operation: None,
            dies_per_channel: 1,
            parts: Parts::default(),
            delay: None,
            neighbours: [None; NEIGHBOURS_MAX],
        }
    }

    fn facts(opcode: u8, arrived: u64, submitted: u64) -> CommandFacts {
        CommandFacts {
            opcode,
            nsid: 1,
            first_lba: 0,
            lba_count: 1,
            controller_id: 1,
            queue_id: 1,
            command_id: 7,
            arrived: Time(arrived),
            submitted: Time(submitted),
        }
    }

    /// Goal: without an operation on flash the time is told by the stamps alone, and a flush is told as one.
    #[test]
    fn stamps_alone_tell_network_admission_and_the_rest() {
        for (opcode, rest) in [(opcode::WRITE, Cause::Store), (opcode::FLUSH, Cause::Flush)] {
            let mut record = record(100, 700, 1000, Some(facts(opcode, 100, 300)));
            split(&mut record, &|time| time, |_| unreachable!("there is no operation"));
            let parts = record.parts;
            assert_eq!(parts.of(Cause::Network), Span(200));
            assert_eq!(parts.of(Cause::Admission), Span(400));
            assert_eq!(parts.of(rest), Span(300));
            assert_eq!(parts.sum(), record.took());
            assert_eq!(parts.dominant(), Cause::Admission);
        }
    }

    /// Goal: a namespace that is flooded does not drive out what is known of a quiet one. Method: one slow command of the quiet one, then many.
    #[test]
    fn a_flooded_namespace_forgets_its_own() {
        let mut delays = Delays::new(Span(10));
        let of = |namespace, done| Record { namespace: NamespaceId(namespace), ..record(0, 0, done, None) };
        delays.commands.push_back(of(7, 1));
        for done in 2..1000 {
            if delays.commands.len() == COMMANDS_MAX {
                delays.make_place();
            }
            delays.commands.push_back(of(8, done));
        }
        assert_eq!(delays.commands.len(), COMMANDS_MAX);
        assert_eq!(delays.commands.front().map(|one| one.namespace), Some(NamespaceId(7)));
        assert_eq!(delays.commands.back().map(|one| one.done), Some(Time(999)), "the latest are kept");
        assert_eq!(delays.commands.get(1).map(|one| one.done), Some(Time(1001 - COMMANDS_MAX as u64)));
    }

    /// Goal: a flood of slow commands is counted, and only a bounded number looked into; time brings more.
    #[test]
    fn how_many_are_looked_into_is_bounded_by_time() {
        let mut delays = Delays::new(Span(10));
        let allowed = |delays: &mut Delays, now| (0..1000).filter(|_| delays.has_budget(now)).count();
        assert_eq!(allowed(&mut delays, Time(1_000_000_000)), 64);
        assert_eq!(allowed(&mut delays, Time(1_000_000_000)), 0);
        assert_eq!(allowed(&mut delays, Time(1_005_000_000)), 10);
        assert!(delays.is_slow(&finished(0, 0).stamps, Time(10)));
        assert!(!delays.is_slow(&finished(1, 1).stamps, Time(10)));
    }
}
