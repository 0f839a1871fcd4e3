//! What dies did lately, so that an operation that took long can be told for whom it waited.
//!
//! A die does one thing at a time, as far as this goes: what it did is kept in the order in which it was answered, and a stretch begins
//! where the one before ended. What follows one another and is of the same kind, class and owner is one stretch, so that few of them reach
//! far back. Kept for each operation: two stamps and one stretch.

use crate::dies::{Kind, Op};
use crate::{IoClass, SpaceToken, VssdId};
use diecut_media::DieTimes;
use diecut_units::{Span, Time, mutant};
use std::collections::VecDeque;

/// Stretches that a die remembers.
const STRETCHES: usize = 16;

/// Operations that took long and were not taken yet; more are not noted.
const SLOW_MAX: usize = 64;

/// What a die is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkKind {
    /// Pages are read.
    Read,
    /// Pages are programmed.
    Program,
    /// A block is erased.
    Erase,
}

/// Whose work a die does, and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DieWork {
    /// Whose content it is about.
    pub owner: VssdId,
    /// What it is for.
    pub class: IoClass,
    /// What is done.
    pub kind: WorkKind,
}

impl DieWork {
    #[inline]
    fn of(op: &Op) -> DieWork {
        let kind = match op.kind {
            Kind::Read | Kind::CopyRead | Kind::HeaderRead => WorkKind::Read,
            Kind::Append | Kind::AppendCopy | Kind::CopyProgram | Kind::Header => WorkKind::Program,
            Kind::Erase | Kind::CopyErase | Kind::PurgeErase => WorkKind::Erase,
        };
        DieWork { owner: op.owner, class: op.class, kind }
    }

    const NOTHING: DieWork =
        DieWork { owner: VssdId(u32::MAX), class: IoClass::HostRead, kind: WorkKind::Read };
}

/// Time in which a die did work of one kind for one vSSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DieStretch {
    /// What it did.
    pub work: DieWork,
    /// From when.
    pub from: Time,
    /// Until when.
    pub until: Time,
    /// Operations that were answered.
    pub operations: u32,
    /// IUs that crossed the bus.
    pub ius: u32,
}

/// See the module.
pub(crate) struct History {
    ring: [DieStretch; STRETCHES],
    last: usize,
}

impl Default for History {
    fn default() -> History {
        let never =
            DieStretch { work: DieWork::NOTHING, from: Time::ZERO, until: Time::ZERO, operations: 0, ius: 0 };
        History { ring: [never; STRETCHES], last: 0 }
    }
}

impl DieStretch {
    /// The same by another clock.
    fn by(&self, clock: &dyn Fn(Time) -> Time) -> DieStretch {
        DieStretch { from: clock(self.from), until: clock(self.until), ..*self }
    }
}

impl History {
    /// The die answered an operation that the medium had since `begun`. Says since when the die did nothing else.
    #[inline(always)]
    fn add(&mut self, work: DieWork, ius: u32, begun: Time, now: Time) -> Time {
        let last = &mut self.ring[self.last];
        let from = begun.max(last.until);
        if last.work == work && last.until == from {
            last.until = now;
            last.operations += 1;
            last.ius = last.ius.saturating_add(ius);
            return from;
        }
        self.last = (self.last + 1) % STRETCHES;
        self.ring[self.last] = DieStretch { work, from, until: now, operations: 1, ius };
        from
    }

    /// What the die did, the latest first.
    fn latest_first(&self) -> impl Iterator<Item = &DieStretch> {
        let places = (0..STRETCHES).map(|back| (self.last + STRETCHES - back) % STRETCHES);
        places.map(|at| &self.ring[at]).take_while(|stretch| stretch.operations > 0)
    }
}

/// How much of an operation the array and the bus have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkSize {
    /// Pages of the array.
    pub pages: u32,
    /// IUs that cross the bus.
    pub ius: u32,
}

/// An operation of a holder that took long, from its arrival at its die to its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowOperation {
    /// Its token; the owner is in `work`.
    pub token: SpaceToken,
    /// Where.
    pub die: u32,
    /// What it was.
    pub work: DieWork,
    /// How much of it there is.
    pub size: WorkSize,
    /// When it came to the die's queue.
    pub queued: Time,
    /// When the medium got it.
    pub begun: Time,
    /// Since when the die did nothing else.
    pub alone: Time,
    /// When it was answered.
    pub done: Time,
}

/// Where an operation waited for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// At the die: it was busy.
    Die,
    /// At the bus of the channel: another die of it had it.
    Bus,
}

/// Time that an operation waited for work of one kind, class and owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyShare {
    /// What it waited for.
    pub work: DieWork,
    /// Where.
    pub place: Where,
    /// How long.
    pub time: Span,
    /// Operations that were part of it.
    pub operations: u32,
}

/// Kinds of work told apart in one delay; what is beyond counts as unknown.
const SHARES: usize = 8;

/// Where the time of an operation went that took long, from its arrival at its die to its answer. The parts add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DieDelay {
    shares: [Option<BusyShare>; SHARES],
    /// It waited though the die had nothing else to do: for its vSSD's rate, or its order.
    pub held: Span,
    /// What such an operation takes by the medium's own word, its transfer included.
    pub own: Span,
    /// The medium took longer than that, and the bus does not explain it.
    pub slow: Span,
    /// It waited longer than the die remembers.
    pub unknown: Span,
}

impl DieDelay {
    const NONE: DieDelay = DieDelay {
        shares: [None; SHARES],
        held: Span::ZERO,
        own: Span::ZERO,
        slow: Span::ZERO,
        unknown: Span::ZERO,
    };

    /// For whose work it waited, and how long.
    pub fn shares(&self) -> impl Iterator<Item = &BusyShare> {
        self.shares.iter().flatten()
    }

    fn add(&mut self, share: BusyShare) {
        let same = |one: &BusyShare| (one.work, one.place) == (share.work, share.place);
        for place in &mut self.shares {
            match place {
                Some(one) if same(one) => {
                    one.time = Span(one.time.0 + share.time.0);
                    one.operations += share.operations;
                    return;
                }
                Some(_) => {}
                None => {
                    *place = Some(share);
                    return;
                }
            }
        }
        self.unknown = Span(self.unknown.0 + share.time.0);
    }
}

/// How much of a stretch lies in a time.
fn overlap(stretch: &DieStretch, from: Time, until: Time) -> Span {
    Span(stretch.until.min(until).0.saturating_sub(stretch.from.max(from).0))
}

/// What is needed to tell where time went.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    pub costs: DieTimes,
    pub program_unit_pages: u32,
}

impl Scale {
    /// What an operation takes where nothing is in its way: array, then bus.
    fn own_ns(&self, slow: &SlowOperation) -> (u64, u64) {
        let (pages, ius) = (u64::from(slow.size.pages), u64::from(slow.size.ius));
        match slow.work.kind {
            WorkKind::Read => (pages * self.costs.read_page_ns, ius * self.costs.iu_transfer_ns),
            WorkKind::Program => {
                let units = (pages / u64::from(self.program_unit_pages)).max(1);
                // What does not cross the bus is read in the die.
                let read_ns = if ius == 0 { pages * self.costs.read_page_ns } else { 0 };
                (units * self.costs.program_unit_ns + read_ns, ius * self.costs.iu_transfer_ns)
            }
            WorkKind::Erase => (self.costs.erase_ns, 0),
        }
    }

    /// Where the time of an operation went, which is told by `clock`. `others` are the other dies of its channel.
    pub fn explain<'a>(
        &self,
        slow: &SlowOperation,
        own: &History,
        others: impl Iterator<Item = &'a History>,
        clock: &dyn Fn(Time) -> Time,
    ) -> DieDelay {
        let mut delay = DieDelay::NONE;
        self.explain_wait(slow, own, clock, &mut delay);
        let (array_ns, transfer_ns) = self.own_ns(slow);
        let service = slow.done.since(slow.alone).0;
        let own_ns = service.min(array_ns + transfer_ns);
        let mut left = service - own_ns;
        delay.own = Span(own_ns);
        for stretch in others.flat_map(History::latest_first).map(|stretch| stretch.by(clock)) {
            let length = stretch.until.since(stretch.from).0.max(1);
            let inside = overlap(&stretch, slow.alone, slow.done).0;
            let bus_ns = u128::from(stretch.ius) * u128::from(self.costs.iu_transfer_ns) * u128::from(inside)
                / u128::from(length);
            let bus_ns = left.min(inside).min(bus_ns as u64);
            if bus_ns > 0 {
                left -= bus_ns;
                let (work, operations) = (stretch.work, stretch.operations);
                delay.add(BusyShare { work, place: Where::Bus, time: Span(bus_ns), operations });
            }
        }
        delay.slow += Span(left);
        delay
    }

    /// What was done at the die while an operation waited there.
    fn explain_wait(
        &self,
        slow: &SlowOperation,
        own: &History,
        clock: &dyn Fn(Time) -> Time,
        delay: &mut DieDelay,
    ) {
        // Time before this is not told yet.
        let mut told = slow.alone;
        let add_gap = |delay: &mut DieDelay, from: Time, until: Time| {
            // The medium had it, and did it beside what else it did.
            let held = until.min(slow.begun).0.saturating_sub(from.0);
            delay.held = Span(delay.held.0 + held);
            delay.slow = Span(delay.slow.0 + until.since(from).0 - held);
        };
        for stretch in own.latest_first().map(|stretch| stretch.by(clock)) {
            if told <= slow.queued {
                break;
            }
            if stretch.from >= told {
                continue;
            }
            if stretch.until < told {
                add_gap(delay, stretch.until.max(slow.queued), told);
            }
            let all = overlap(&stretch, slow.queued, told);
            // An erase that takes longer than the medium says is nobody's fault: its block's room in a file had to be made, or the
            // die is slow.
            let time = match stretch.work.kind {
                WorkKind::Erase => all.min(Span(u64::from(stretch.operations) * self.costs.erase_ns)),
                WorkKind::Read | WorkKind::Program => all,
            };
            delay.slow += Span(all.0 - time.0);
            if time > Span::ZERO {
                let (mut work, operations) = (stretch.work, stretch.operations);
                if mutant!("vssd: a busy die is always one's own fault") {
                    work.owner = slow.work.owner;
                }
                delay.add(BusyShare { work, place: Where::Die, time, operations });
            }
            told = stretch.from.max(slow.queued).min(told);
        }
        if told > slow.queued {
            let left = Span(told.0 - slow.queued.0);
            // A die that remembers all it ever did was idle before.
            let is_all = own.latest_first().count() < STRETCHES;
            if is_all {
                add_gap(delay, slow.queued, told);
            } else {
                delay.unknown = Span(delay.unknown.0 + left.0);
            }
        }
    }
}

/// Notes operations of holders that take long.
pub(crate) struct Delays {
    /// From how long on.
    pub after: Span,
    slow: VecDeque<SlowOperation>,
}

impl Default for Delays {
    fn default() -> Delays {
        Delays { after: Span(u64::MAX), slow: VecDeque::with_capacity(SLOW_MAX) }
    }
}

impl Delays {
    /// An operation was answered.
    #[inline(always)]
    pub fn answered(&mut self, history: &mut History, op: &Op, die: u32, size: WorkSize, now: Time) {
        let work = DieWork::of(op);
        let alone = history.add(work, size.ius, op.begun, now);
        if now.since(op.queued) >= self.after {
            self.note(SlowOperation {
                token: op.token,
                die,
                work,
                size,
                queued: op.queued,
                begun: op.begun,
                alone,
                done: now,
            });
        }
    }

    #[cold]
    fn note(&mut self, slow: SlowOperation) {
        // Copies and erases have no holder that waits.
        let is_awaited = slow.work.class != IoClass::Migration && slow.work.kind != WorkKind::Erase;
        if is_awaited && self.slow.len() < SLOW_MAX {
            self.slow.push_back(slow);
        }
    }
}

/// What is known of the time that operations waited at the dies of a pool.
pub struct DieTimesView<'a> {
    pub(crate) delays: &'a mut Delays,
    pub(crate) dies: &'a [super::DieQueue],
    pub(crate) scale: Scale,
    pub(crate) dies_per_channel: u32,
}

impl DieTimesView<'_> {
    /// From now on, operations of holders that take so long at their die are noted.
    pub fn note_from(&mut self, after: Span) {
        self.delays.after = after;
    }

    /// Dies of a channel.
    pub fn dies_per_channel(&self) -> u32 {
        self.dies_per_channel
    }

    /// Whether an operation is noted.
    #[inline]
    pub fn has_slow(&self) -> bool {
        !self.delays.slow.is_empty()
    }

    /// Takes the note of an operation, if there is one. They are in the order of their answers.
    pub fn take_slow(&mut self, owner: VssdId, token: SpaceToken) -> Option<SlowOperation> {
        let slow = &mut self.delays.slow;
        let at = slow.iter().position(|one| (one.work.owner, one.token) == (owner, token))?;
        slow.remove(at)
    }

    /// Forgets what nobody took.
    pub fn forget_slow(&mut self) {
        self.delays.slow.clear();
    }

    /// Where the time of an operation went; to be asked soon after its answer. `clock` tells the time by which that is counted: one that
    /// stands still while nobody looked at the dies lays it at no die's door. The times of `slow` are told by it, too.
    pub fn explain(&self, slow: &SlowOperation, clock: &dyn Fn(Time) -> Time) -> DieDelay {
        let first = slow.die - slow.die % self.dies_per_channel;
        let channel = first..first + self.dies_per_channel;
        let others = channel.filter(|die| *die != slow.die).map(|die| &self.dies[die as usize].history);
        self.scale.explain(slow, &self.dies[slow.die as usize].history, others, clock)
    }

    /// What a die did lately, the latest first.
    pub fn stretches(&self, die: u32) -> impl Iterator<Item = &DieStretch> {
        self.dies[die as usize].history.latest_first()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const COSTS: DieTimes =
        DieTimes { read_page_ns: 100, program_unit_ns: 1000, erase_ns: 3000, iu_transfer_ns: 50 };
    const TRUE: fn(Time) -> Time = |time| time;
    const SCALE: Scale = Scale { costs: COSTS, program_unit_pages: 4 };

    fn work(owner: u32, class: IoClass, kind: WorkKind) -> DieWork {
        DieWork { owner: VssdId(owner), class, kind }
    }

    fn read_of(owner: u32, queued: u64, begun: u64, alone: Time, done: u64) -> SlowOperation {
        SlowOperation {
            token: SpaceToken(1),
            die: 0,
            work: work(owner, IoClass::HostRead, WorkKind::Read),
            size: WorkSize { pages: 1, ius: 1 },
            queued: Time(queued),
            begun: Time(begun),
            alone,
            done: Time(done),
        }
    }

    fn parts_ns(delay: &DieDelay) -> u64 {
        let shares: u64 = delay.shares().map(|share| share.time.0).sum();
        shares + delay.held.0 + delay.own.0 + delay.slow.0 + delay.unknown.0
    }

    /// Goal: a read says for whose erase and program it waited, how long it had to wait for nothing, and what it took by itself. Method: a die
    /// whose every nanosecond is known.
    #[test]
    fn a_read_says_for_whose_work_it_waited() {
        let mut die = History::default();
        die.add(work(7, IoClass::Cleaner, WorkKind::Erase), 0, Time(1000), Time(4000));
        die.add(work(8, IoClass::HostWrite, WorkKind::Program), 4, Time(3500), Time(5000));
        // Idle from 5000 to 5200, then the read: 100 array, 50 bus, and 30 that nothing explains.
        let alone = die.add(work(9, IoClass::HostRead, WorkKind::Read), 1, Time(5200), Time(5380));
        assert_eq!(alone, Time(5200));
        let slow = read_of(9, 2000, 5200, alone, 5380);
        let delay = SCALE.explain(&slow, &die, std::iter::empty(), &TRUE);
        let shares: Vec<(u32, WorkKind, u64)> =
            delay.shares().map(|share| (share.work.owner.0, share.work.kind, share.time.0)).collect();
        assert_eq!(shares, [(8, WorkKind::Program, 1000), (7, WorkKind::Erase, 2000)]);
        assert_eq!((delay.held.0, delay.own.0, delay.slow.0, delay.unknown.0), (200, 150, 30, 0));
        assert_eq!(parts_ns(&delay), 5380 - 2000);
    }

    /// Goal: an erase that takes longer than the medium says is not its owner's fault beyond that. Method: two that take five times as long.
    #[test]
    fn a_slow_erase_is_a_slow_medium() {
        let mut die = History::default();
        for until in [15_000, 30_000] {
            die.add(work(7, IoClass::Cleaner, WorkKind::Erase), 0, Time(0), Time(until));
        }
        let alone = die.add(work(9, IoClass::HostRead, WorkKind::Read), 1, Time(30_000), Time(30_150));
        let delay = SCALE.explain(&read_of(9, 1000, 30_000, alone, 30_150), &die, std::iter::empty(), &TRUE);
        let shares: Vec<u64> = delay.shares().map(|share| share.time.0).collect();
        assert_eq!((shares, delay.slow.0, delay.own.0), (vec![6000], 23_000, 150));
        assert_eq!(parts_ns(&delay), 30_150 - 1000);
    }

    /// Goal: transfers of other dies of the channel explain what a read took longer, no more than there is to explain.
    #[test]
    fn the_bus_is_told_from_a_slow_medium() {
        let (mut die, mut other) = (History::default(), History::default());
        other.add(work(5, IoClass::HostRead, WorkKind::Read), 4, Time(0), Time(400));
        let alone = die.add(work(9, IoClass::HostRead, WorkKind::Read), 1, Time(0), Time(450));
        let delay = SCALE.explain(&read_of(9, 0, 0, alone, 450), &die, std::iter::once(&other), &TRUE);
        let bus: Vec<_> = delay.shares().copied().collect();
        assert_eq!(bus.len(), 1);
        assert_eq!((bus[0].place, bus[0].work.owner, bus[0].time), (Where::Bus, VssdId(5), Span(200)));
        assert_eq!((delay.own.0, delay.slow.0), (150, 100));
        assert_eq!(parts_ns(&delay), 450);
    }

    /// Goal: a program that the medium had while the die answered others, with nothing between them, is not said to have been held. Method: one
    /// that is suspended for a read.
    #[test]
    fn what_the_medium_has_is_not_held() {
        let mut die = History::default();
        die.add(work(4, IoClass::HostRead, WorkKind::Read), 1, Time(300), Time(450));
        let program = work(9, IoClass::HostWrite, WorkKind::Program);
        let alone = die.add(program, 4, Time(100), Time(1650));
        let slow = SlowOperation {
            work: program,
            size: WorkSize { pages: 4, ius: 4 },
            ..read_of(9, 50, 100, alone, 1650)
        };
        let delay = SCALE.explain(&slow, &die, std::iter::empty(), &TRUE);
        assert_eq!((delay.held.0, delay.own.0, delay.slow.0, delay.unknown.0), (50, 1200, 200, 0));
        assert_eq!(parts_ns(&delay), 1600);
    }

    /// Goal: what lies before all that the die remembers is unknown, not idle. Method: more kinds in turn than there is room for.
    #[test]
    fn a_die_that_forgot_says_so() {
        let mut die = History::default();
        for turn in 0..40 {
            die.add(
                work(turn % 2, IoClass::HostRead, WorkKind::Read),
                1,
                Time(0),
                Time(u64::from(turn + 1) * 100),
            );
        }
        let alone = die.add(work(9, IoClass::HostRead, WorkKind::Read), 1, Time(4000), Time(4150));
        let delay = SCALE.explain(&read_of(9, 0, 4000, alone, 4150), &die, std::iter::empty(), &TRUE);
        assert_eq!(delay.unknown.0, 4000 - 15 * 100);
        assert_eq!(parts_ns(&delay), 4150);
        // Of one kind in a row it remembers all.
        let mut die = History::default();
        for turn in 0..40 {
            die.add(work(3, IoClass::HostRead, WorkKind::Read), 1, Time(0), Time((turn + 1) * 100));
        }
        let alone = die.add(work(9, IoClass::HostRead, WorkKind::Read), 1, Time(4000), Time(4150));
        let delay = SCALE.explain(&read_of(9, 0, 4000, alone, 4150), &die, std::iter::empty(), &TRUE);
        assert_eq!((delay.unknown.0, parts_ns(&delay)), (0, 4150));
        let share = delay.shares().next().expect("it waited");
        assert_eq!((share.work.owner, share.operations, share.time.0), (VssdId(3), 40, 4000));
    }
}
