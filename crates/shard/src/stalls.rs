//! When the shard was late: its thread did not run, or did one thing for long.
//!
//! What waits at a die meanwhile is found done only afterwards, and looks as if the flash had been slow. A clock that stands still in
//! such times tells what the flash and the neighbours took, and the rest is the server's.

use diecut_units::{Span, Time, mark, mutant};

/// From how late on. Sleeping ends this exactly, or the thread was kept away.
const LATE_MIN: Span = Span::from_millis(1);
/// Stalls that are remembered.
const STALLS: usize = 16;

/// See the module.
pub(crate) struct Stalls {
    /// From when until when, in the order of time from `next` on.
    ring: [(Time, Time); STALLS],
    next: usize,
    /// When the shard is to work again at the latest, by what it knew when it worked last.
    due: Time,
}

impl Stalls {
    pub fn new() -> Stalls {
        Stalls { ring: [(Time::ZERO, Time::ZERO); STALLS], next: 0, due: Time::NEVER }
    }

    /// The shard works.
    #[inline]
    pub fn begin_work(&mut self, now: Time) {
        if now.since(self.due) >= LATE_MIN {
            self.note(self.due, now);
        }
    }

    /// It has worked, and has something to do at `due`, or already has.
    #[inline]
    pub fn end_work(&mut self, due: Time, now: Time) {
        self.due = due.max(now);
    }

    #[cold]
    fn note(&mut self, from: Time, until: Time) {
        mark!("shard: it was late");
        self.ring[self.next] = (from, until);
        self.next = (self.next + 1) % STALLS;
    }

    /// How much of the time until then the shard was not late. What follows stays behind what it follows.
    pub fn without(&self, time: Time) -> Time {
        if mutant!("shard: flash is blamed for a late server") {
            return time;
        }
        let before = |(from, until): &(Time, Time)| (*until).min(time).since(*from).0;
        let late: u64 = self.ring.iter().map(before).sum();
        Time(time.0 - late)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const fn ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    /// Goal: a clock without the times in which the shard was late goes on with the others, and order stays. Method: late from 10 to 15
    /// and from 20 to 27; early, and late by less than counts, in between.
    #[test]
    fn the_clock_stands_while_the_shard_is_late() {
        let mut stalls = Stalls::new();
        for (due, worked) in [(5, 5), (10, 15), (18, 17), (20, 27)] {
            stalls.end_work(ms(due), Time::ZERO);
            stalls.begin_work(ms(worked));
        }
        stalls.end_work(ms(30), ms(27));
        stalls.begin_work(Time(ms(30).0 + LATE_MIN.0 - 1));
        let expected = [(4, 4), (10, 10), (12, 10), (15, 10), (18, 13), (22, 15), (27, 15), (40, 28)];
        for (time, without) in expected {
            assert_eq!(stalls.without(ms(time)), ms(without), "at {time} ms");
        }
    }

    /// Goal: a shard that has nothing to do is not late, however long it sleeps; one that is always busy is, after a long step.
    #[test]
    fn sleep_is_no_stall_and_a_long_step_is() {
        let mut stalls = Stalls::new();
        stalls.begin_work(ms(1000));
        stalls.end_work(Time::NEVER, ms(1000));
        stalls.begin_work(ms(9000));
        assert_eq!(stalls.without(ms(9000)), ms(9000));
        stalls.end_work(Time::ZERO, ms(9000));
        stalls.begin_work(ms(9040));
        assert_eq!(stalls.without(ms(9040)), ms(9000));
    }

    /// Goal: only the latest are remembered, and what is before them is told as it was.
    #[test]
    fn old_stalls_are_forgotten() {
        let mut stalls = Stalls::new();
        for round in 0..40 {
            stalls.end_work(ms(round * 10), Time::ZERO);
            stalls.begin_work(ms(round * 10 + 2));
        }
        assert_eq!(stalls.without(ms(400)), ms(400 - 2 * STALLS as u64));
    }
}
