//! The calendar queue: when which part of the device acts next.
//!
//! Every part that can act (a die's array, a channel bus, a stage) has one timer, scheduled at most once. Timers
//! hang in a wheel of buckets, a lap of 4.2 ms; a timer farther away waits in its bucket until its lap comes. A
//! bucket is sorted, so that many timers of one instant (channels in step) cost no more than few.
//! Order is exact: by time, then by timer number, so that one run is like the other.

use diecut_units::Time;

/// 512 ns per bucket: a few timers each when all dies of a large device read.
const BUCKET_SHIFT: u32 = 9;
const BUCKETS: usize = 8192;
const NONE: u32 = u32::MAX;

struct Timer {
    time: u64,
    next: u32,
    previous: u32,
}

#[derive(Clone, Copy)]
struct Bucket {
    first: u32,
    last: u32,
}

pub(crate) struct Calendar {
    timers: Vec<Timer>,
    buckets: Vec<Bucket>,
    /// One bit per bucket that is not empty.
    occupied: [u64; BUCKETS / 64],
    /// Earliest scheduled timer; `(u64::MAX, NONE)` if there is none.
    earliest: (u64, u32),
    scheduled: u32,
}

impl Calendar {
    pub(crate) fn new(timers: usize) -> Calendar {
        Calendar {
            timers: (0..timers).map(|_| Timer { time: u64::MAX, next: NONE, previous: NONE }).collect(),
            buckets: vec![Bucket { first: NONE, last: NONE }; BUCKETS],
            occupied: [0; BUCKETS / 64],
            earliest: (u64::MAX, NONE),
            scheduled: 0,
        }
    }

    /// Time of the earliest timer.
    #[inline]
    pub(crate) fn next_time(&self) -> Time {
        Time(self.earliest.0)
    }

    /// When this timer will act, if it is scheduled.
    pub(crate) fn time_of(&self, timer: u32) -> Option<Time> {
        let time = self.timers[timer as usize].time;
        (time != u64::MAX).then_some(Time(time))
    }

    /// Schedules a timer.
    ///
    /// # Panics
    /// If it is scheduled already.
    #[inline]
    pub(crate) fn schedule(&mut self, timer: u32, at: Time) {
        assert!(at < Time::NEVER, "a timer acts at some time");
        let bucket = (at.0 >> BUCKET_SHIFT) as usize % BUCKETS;
        assert!(self.timers[timer as usize].time == u64::MAX, "timer {timer} is scheduled already");
        // Mostly it comes last: timers are scheduled as time goes on.
        let mut previous = self.buckets[bucket].last;
        while previous != NONE && (self.timers[previous as usize].time, previous) > (at.0, timer) {
            previous = self.timers[previous as usize].previous;
        }
        let next = if previous == NONE {
            std::mem::replace(&mut self.buckets[bucket].first, timer)
        } else {
            std::mem::replace(&mut self.timers[previous as usize].next, timer)
        };
        if next == NONE {
            self.buckets[bucket].last = timer;
        } else {
            self.timers[next as usize].previous = timer;
        }
        self.timers[timer as usize] = Timer { time: at.0, next, previous };
        self.occupied[bucket / 64] |= 1 << (bucket % 64);
        self.scheduled += 1;
        if (at.0, timer) < self.earliest {
            self.earliest = (at.0, timer);
        }
    }

    /// Takes a timer out; does nothing if it is not scheduled.
    pub(crate) fn cancel(&mut self, timer: u32) {
        let time = self.timers[timer as usize].time;
        if time != u64::MAX {
            self.unlink(timer);
            if self.earliest.1 == timer {
                self.find_earliest(time);
            }
        }
    }

    /// Takes out the earliest timer that acts at `now` or before.
    #[inline]
    pub(crate) fn pop(&mut self, now: Time) -> Option<(Time, u32)> {
        let (time, timer) = self.earliest;
        if timer == NONE || time > now.0 {
            return None;
        }
        self.unlink(timer);
        self.find_earliest(time);
        Some((Time(time), timer))
    }

    #[inline]
    fn unlink(&mut self, timer: u32) {
        let entry = &mut self.timers[timer as usize];
        let bucket = (entry.time >> BUCKET_SHIFT) as usize % BUCKETS;
        let (next, previous) = (entry.next, entry.previous);
        entry.time = u64::MAX;
        if next != NONE {
            self.timers[next as usize].previous = previous;
        } else {
            self.buckets[bucket].last = previous;
        }
        if previous != NONE {
            self.timers[previous as usize].next = next;
        } else {
            self.buckets[bucket].first = next;
            if next == NONE {
                self.occupied[bucket / 64] &= !(1 << (bucket % 64));
            }
        }
        self.scheduled -= 1;
    }

    /// Finds the earliest timer when none is scheduled before `from`.
    #[inline]
    fn find_earliest(&mut self, from: u64) {
        self.earliest = (u64::MAX, NONE);
        if self.scheduled == 0 {
            return;
        }
        let start = from >> BUCKET_SHIFT;
        let mut ahead = 0;
        while ahead < BUCKETS as u64 {
            let bucket = (start + ahead) as usize % BUCKETS;
            let word = self.occupied[bucket / 64] >> (bucket % 64);
            if word == 0 {
                ahead += 64 - (bucket % 64) as u64;
                continue;
            }
            ahead += u64::from(word.trailing_zeros());
            let slot = start + ahead;
            let first = self.buckets[slot as usize % BUCKETS].first;
            let time = self.timers[first as usize].time;
            // Timers of a later lap stay where they are.
            if time >> BUCKET_SHIFT == slot {
                self.earliest = (time, first);
                return;
            }
            ahead += 1;
        }
        // Everything is at least a lap away; rare.
        for (number, entry) in self.timers.iter().enumerate() {
            if (entry.time, number as u32) < self.earliest {
                self.earliest = (entry.time, number as u32);
            }
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use std::collections::BTreeSet;

    /// Against a sorted set: times within a bucket, within a lap, and many laps away.
    #[test]
    fn order_is_that_of_a_sorted_set() {
        for seed in 0..20 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut calendar = Calendar::new(100);
            let mut oracle: BTreeSet<(u64, u32)> = BTreeSet::new();
            let mut now = 0;
            for step in 0..20_000 {
                let timer = random.random_range(0..100u32);
                match random.random_range(0..4) {
                    0 | 1 => {
                        if calendar.time_of(timer).is_none() {
                            let reach = [300, 60_000, 3_000_000, 100_000_000][random.random_range(0..4)];
                            let time = now + random.random_range(0..reach);
                            calendar.schedule(timer, Time(time));
                            oracle.insert((time, timer));
                        }
                    }
                    2 => {
                        if let Some(time) = calendar.time_of(timer).filter(|_| step % 3 == 0) {
                            calendar.cancel(timer);
                            oracle.remove(&(time.0, timer));
                        }
                    }
                    _ => {
                        now += random.random_range(0..200_000);
                        loop {
                            let expected = oracle.first().copied().filter(|first| first.0 <= now);
                            let found = calendar.pop(Time(now)).map(|(time, timer)| (time.0, timer));
                            assert_eq!(found, expected, "seed {seed} step {step}");
                            if expected.is_none() {
                                break;
                            }
                            oracle.pop_first();
                        }
                    }
                }
                let expected = oracle.first().map_or(u64::MAX, |first| first.0);
                assert_eq!(calendar.next_time().0, expected, "seed {seed} step {step}");
            }
        }
    }
}
