//! What flushes make durable, where the medium has a volatile cache: when one is to begin, and what is durable when it is complete.
//!
//! A chunk leaves staging when it is programmed, so that its slot is free; that it is durable is said by a complete flush that began after
//! that. One flush is under way at a time: what is programmed meanwhile is gathered for the next one, for all who wait.

use crate::format::FlushNote;
use diecut_units::{Span, Time, mutant};

/// At the latest so long after a program a flush begins: an opening looks at all data since the last one (R10 of `docs/design/one-format.md`).
const LATEST: Span = Span::from_secs(1);
/// As are so many IUs.
const MOST_IUS: u64 = 16 * 1024;

/// Entries that somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entries {
    /// All.
    All,
    /// All but those of streams that wait for the others themselves.
    Ungated,
    /// Of hosts and of the cleaner.
    Data,
    /// Of hosts.
    Host,
}

/// For each kind of entries: those before this sequence are programmed, or durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Floors([u64; 4]);

impl Floors {
    const KINDS: [Entries; 4] = [Entries::All, Entries::Ungated, Entries::Data, Entries::Host];

    /// As they are said one by one.
    pub fn of(floor: impl Fn(Entries) -> u64) -> Floors {
        Floors(Floors::KINDS.map(floor))
    }

    fn get(self, of: Entries) -> u64 {
        self.0[of as usize]
    }
}

/// See the module. Without a cache nothing is counted, and what is programmed is durable.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    has_cache: bool,
    /// Programs that ended, and their IUs.
    programs: u64,
    ius: u64,
    /// As many of them are covered by a complete flush.
    covered_programs: u64,
    covered_ius: u64,
    /// What is durable by that while others are not covered.
    covered: Floors,
    /// What the flush that is under way covers.
    under_way: Option<(u64, u64, Floors)>,
    /// The next one begins then: [`Time::NEVER`] while nobody saw that something is to be covered.
    due_at: Option<Time>,
    has_failed: bool,
    /// Segments that were programmed to since a flush began.
    grown: Vec<u32>,
    /// What the flush that is under way makes durable of them, and what the last complete one did and no note says yet.
    covers: Vec<FlushNote>,
    unsaid: Vec<FlushNote>,
}

impl Flushes {
    pub fn new(has_cache: bool) -> Flushes {
        Flushes { has_cache, ..Flushes::default() }
    }

    /// Whether everything that was programmed is durable.
    pub fn is_clean(&self) -> bool {
        self.programs == self.covered_programs
    }

    /// Such entries before this are durable; `programmed` says which ones are programmed.
    #[inline]
    pub fn durable(&self, of: Entries, programmed: impl FnOnce() -> u64) -> u64 {
        if self.is_clean() || mutant!("log: what is programmed counts as durable") {
            programmed()
        } else {
            self.covered.get(of)
        }
    }

    /// A program of so many IUs ended; `floors` are those before that.
    pub fn programmed(&mut self, ius: u32, floors: impl FnOnce() -> Floors) {
        if !self.has_cache {
            return;
        }
        if self.is_clean() {
            self.covered = floors();
        }
        self.programs += 1;
        self.ius += u64::from(ius);
    }

    /// Something of a segment was programmed.
    pub fn grew(&mut self, segment: u32) {
        if self.has_cache && !self.grown.contains(&segment) {
            self.grown.push(segment);
        }
    }

    /// Segments that grew, when a flush begins: what it covers of them is to be said by [`Flushes::covers`].
    pub fn take_grown(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.grown)
    }

    /// The flush that begins makes this durable.
    pub fn covers(&mut self, note: FlushNote) {
        if mutant!("log: a flush is noted before it is complete") {
            self.unsaid.push(note);
        }
        self.covers.push(note);
    }

    /// The next thing that a note is to say.
    pub fn next_unsaid(&self) -> Option<FlushNote> {
        self.unsaid.last().copied()
    }

    /// A note says it.
    pub fn said(&mut self) {
        self.unsaid.pop();
    }

    /// Begins a flush if it is time for one: somebody waits for entries before `wanted`, of which some are programmed and not covered, or
    /// for anything (`is_urgent`); or it is late. Whether the medium is to be asked for it.
    pub fn begin(
        &mut self,
        now: Time,
        wanted: u64,
        is_urgent: bool,
        floors: impl FnOnce() -> Floors,
    ) -> bool {
        if self.is_clean() || self.has_failed {
            return false;
        }
        let due_at = *self.due_at.get_or_insert(now + LATEST);
        if self.under_way.is_some() {
            return false;
        }
        let floors = floors();
        let helps = |of: &Entries| self.covered.get(*of) < wanted.min(floors.get(*of));
        let is_late = now >= due_at || self.ius - self.covered_ius >= MOST_IUS;
        if !is_urgent && !is_late && !Floors::KINDS.iter().any(helps) {
            return false;
        }
        self.due_at = None;
        self.under_way = Some((self.programs, self.ius, floors));
        true
    }

    /// The flush that was under way is complete.
    ///
    /// # Panics
    /// If there is none.
    pub fn complete(&mut self) {
        let (programs, ius, floors) = self.under_way.take().expect("I-L45: a flush was asked for");
        (self.covered_programs, self.covered_ius) = (programs, ius);
        if mutant!("log: a flush covers what came after it") {
            self.covered_programs = self.programs;
        }
        self.covered = floors;
        // Whoever looked while it was under way saw that something was to be covered, and that is.
        if self.is_clean() && !mutant!("log: a flush that is over stays due") {
            self.due_at = None;
        }
        for note in self.covers.drain(..) {
            self.unsaid.retain(|older| older.segment != note.segment);
            self.unsaid.push(note);
        }
    }

    /// The flush that was under way failed. None is asked for again: it would succeed without what was lost.
    pub fn fail(&mut self) {
        if mutant!("log: a flush that failed counts") {
            return self.complete();
        }
        self.under_way = None;
        self.has_failed = true;
    }

    /// When one begins at the latest.
    pub fn deadline(&self) -> Time {
        match self.due_at {
            Some(due_at) if !self.has_failed && self.under_way.is_none() => due_at,
            // Nobody looked yet.
            None if !self.is_clean() && !self.has_failed && self.under_way.is_none() => Time::ZERO,
            _ => Time::NEVER,
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn all(at: u64) -> Floors {
        Floors::of(|_| at)
    }

    fn host(flushes: &Flushes, programmed: u64) -> u64 {
        flushes.durable(Entries::Host, || programmed)
    }

    /// Goal: what is programmed is durable when a flush is complete that began after that, and not before. Method: programs before and while a
    /// flush is under way, by hand.
    #[test]
    fn a_flush_covers_what_was_programmed_before_it() {
        let mut flushes = Flushes::new(true);
        assert_eq!((host(&flushes, 7), flushes.deadline()), (7, Time::NEVER));
        flushes.programmed(4, || all(7));
        assert_eq!((host(&flushes, 9), flushes.deadline()), (7, Time::ZERO));
        assert!(!flushes.begin(Time::ZERO, 7, false, || all(9)), "nobody waits for more than is durable");
        assert_eq!(flushes.deadline(), Time::ZERO + LATEST);
        assert!(flushes.begin(Time::ZERO, 8, false, || all(9)));
        flushes.programmed(4, || unreachable!("something is not covered"));
        assert!(!flushes.begin(Time::ZERO, 20, true, || all(12)), "one at a time");
        assert_eq!(host(&flushes, 12), 7);
        flushes.complete();
        assert_eq!(host(&flushes, 12), 9, "what ended since then is not covered");
        assert!(flushes.begin(Time::ZERO, 20, false, || all(12)));
        flushes.complete();
        assert!(flushes.is_clean());
        assert_eq!(host(&flushes, 15), 15);
    }

    /// Goal: a store that nobody flushes does so itself, and one whose flush failed never again. Method: the clock and counts by hand.
    #[test]
    fn a_flush_comes_by_itself_and_a_failed_one_is_the_last() {
        let mut flushes = Flushes::new(true);
        flushes.programmed(1, || all(1));
        assert!(!flushes.begin(Time(5), 0, false, || all(2)));
        let late = Time(5) + LATEST;
        assert_eq!(flushes.deadline(), late);
        assert!(!flushes.begin(Time(late.0 - 1), 0, false, || all(2)));
        assert!(flushes.begin(late, 0, false, || all(2)));
        flushes.complete();
        flushes.programmed(MOST_IUS as u32, || all(2));
        assert!(flushes.begin(Time(9), 0, false, || all(3)), "or when there is much");
        flushes.fail();
        assert!(!flushes.begin(late + LATEST + LATEST, 10, true, || all(3)));
        assert_eq!((host(&flushes, 3), flushes.deadline()), (2, Time::NEVER));
    }

    /// Goal: a flush after which all is durable leaves nothing to do. Method: somebody looks while it is under way. `diecut sim --drive --seed 2` found a
    /// store that was called again and again, a second later, until somebody wrote.
    #[test]
    fn nothing_is_due_when_all_is_durable() {
        let mut flushes = Flushes::new(true);
        flushes.programmed(1, || all(1));
        assert!(flushes.begin(Time(5), 9, false, || all(2)));
        assert!(!flushes.begin(Time(6), 9, false, || all(2)), "one is under way");
        flushes.complete();
        assert_eq!((flushes.is_clean(), flushes.deadline()), (true, Time::NEVER));
        flushes.programmed(1, || all(2));
        assert!(!flushes.begin(Time(7), 0, false, || all(3)));
        assert_eq!(flushes.deadline(), Time(7) + LATEST);
    }

    /// Goal: where nothing is lost nothing is asked for.
    #[test]
    fn without_a_cache_nothing_is_flushed() {
        let mut flushes = Flushes::new(false);
        flushes.programmed(1, || unreachable!());
        assert!(!flushes.begin(Time(5), 10, true, || unreachable!()));
        assert_eq!((host(&flushes, 4), flushes.deadline()), (4, Time::NEVER));
    }
}
