//! The calendar queue: when which part of the device acts next.
//!
//! Every part that can act (a die's array, a channel bus, a server of the front end) has one timer, scheduled at most once. Timers
//! hang in a wheel of buckets, a lap of 4.2 ms; a timer farther away waits in its bucket until its lap comes. A
//! bucket is sorted, so that many timers of one instant (channels in step) cost no more than few. Two levels of
//! bits lead to the next bucket that is not empty.
//! Order is exact: by time, then by timer number, so that one run is like the other.

use diecut_units::Time;

/// 512 ns per bucket: a few timers each when all dies of a large device read.
const BUCKET_SHIFT: u32 = 9;
const BUCKETS: usize = 8192;
const WORDS: usize = BUCKETS / 64;
const NONE: u32 = u32::MAX;
// The upper level is one number.
const _: () = assert!(WORDS == u128::BITS as usize);

struct Timer {
    time: u64,
    next: u32,
}

/// `last` means something only while `first` is not [`NONE`].
#[derive(Clone, Copy)]
struct Bucket {
    first: u32,
    last: u32,
}

pub(crate) struct Calendar {
    timers: Box<[Timer]>,
    buckets: Box<[Bucket; BUCKETS]>,
    /// One bit per bucket that is not empty.
    occupied: Box<[u64; WORDS]>,
    /// One bit per word of `occupied` that is not zero.
    occupied_words: u128,
    /// Earliest scheduled timer; `(u64::MAX, NONE)` if there is none.
    earliest: (u64, u32),
}

#[inline]
fn bucket_of(time: u64) -> usize {
    (time >> BUCKET_SHIFT) as usize % BUCKETS
}

impl Calendar {
    pub(crate) fn new(timers: usize) -> Calendar {
        Calendar {
            timers: (0..timers).map(|_| Timer { time: u64::MAX, next: NONE }).collect(),
            buckets: Box::new([Bucket { first: NONE, last: NONE }; BUCKETS]),
            occupied: Box::new([0; WORDS]),
            occupied_words: 0,
            earliest: (u64::MAX, NONE),
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
    #[inline(always)]
    pub(crate) fn schedule(&mut self, timer: u32, at: Time) {
        let time = at.0;
        assert!(time < u64::MAX, "a timer acts at some time");
        let at_bucket = bucket_of(time);
        let bucket = &mut self.buckets[at_bucket];
        let mut next = NONE;
        if bucket.first == NONE {
            *bucket = Bucket { first: timer, last: timer };
            self.occupied[at_bucket / 64] |= 1 << (at_bucket % 64);
            self.occupied_words |= 1 << (at_bucket / 64);
        } else {
            // Mostly it comes last: timers are scheduled as time goes on.
            let last = &mut self.timers[bucket.last as usize];
            if (last.time, bucket.last) < (time, timer) {
                last.next = timer;
                bucket.last = timer;
            } else {
                next = self.insert(at_bucket, timer, time);
            }
        }
        let entry = &mut self.timers[timer as usize];
        assert!(entry.time == u64::MAX, "I-E3: timer {timer} is scheduled already");
        *entry = Timer { time, next };
        if (time, timer) < self.earliest {
            self.earliest = (time, timer);
        }
    }

    /// Links a timer into a bucket before the last one, and gives the one after it.
    #[inline(never)]
    fn insert(&mut self, bucket: usize, timer: u32, time: u64) -> u32 {
        let (mut previous, mut next) = (NONE, self.buckets[bucket].first);
        while (self.timers[next as usize].time, next) < (time, timer) {
            (previous, next) = (next, self.timers[next as usize].next);
        }
        if previous == NONE {
            self.buckets[bucket].first = timer;
        } else {
            self.timers[previous as usize].next = timer;
        }
        next
    }

    /// Takes a timer out; does nothing if it is not scheduled.
    pub(crate) fn cancel(&mut self, timer: u32) {
        let time = self.timers[timer as usize].time;
        if time == u64::MAX {
            return;
        }
        let bucket = bucket_of(time);
        let first = self.buckets[bucket].first;
        if first == timer {
            self.take_first(bucket, timer);
        } else {
            let mut previous = first;
            while self.timers[previous as usize].next != timer {
                previous = self.timers[previous as usize].next;
            }
            let next = self.timers[timer as usize].next;
            self.timers[previous as usize].next = next;
            if next == NONE {
                self.buckets[bucket].last = previous;
            }
            self.timers[timer as usize].time = u64::MAX;
        }
        if self.earliest.1 == timer {
            self.find_earliest(time);
        }
    }

    /// Takes out the earliest timer that acts at `now` or before.
    #[inline(always)]
    pub(crate) fn pop(&mut self, now: Time) -> Option<(Time, u32)> {
        let (time, timer) = self.earliest;
        if time > now.0 || timer == NONE {
            return None;
        }
        let next = self.take_first(bucket_of(time), timer);
        // Of the same bucket and lap: nothing is between.
        if next != NONE && self.timers[next as usize].time >> BUCKET_SHIFT == time >> BUCKET_SHIFT {
            self.earliest = (self.timers[next as usize].time, next);
        } else {
            self.find_earliest(time);
        }
        Some((Time(time), timer))
    }

    /// Takes the first timer out of its bucket, and gives the one after it.
    #[inline(always)]
    fn take_first(&mut self, bucket: usize, timer: u32) -> u32 {
        let entry = &mut self.timers[timer as usize];
        entry.time = u64::MAX;
        let next = entry.next;
        self.buckets[bucket].first = next;
        if next == NONE {
            let word = &mut self.occupied[bucket / 64];
            *word &= !(1 << (bucket % 64));
            if *word == 0 {
                self.occupied_words &= !(1 << (bucket / 64));
            }
        }
        next
    }

    /// The first bucket from `bucket` on, around the wheel, that is not empty.
    #[inline]
    fn next_occupied(&self, bucket: usize) -> Option<usize> {
        let word = bucket / 64;
        let here = self.occupied[word] >> (bucket % 64);
        if here != 0 {
            return Some(bucket + here.trailing_zeros() as usize);
        }
        // Words after this one, from the one with the least distance; this one, its lower bits, comes last.
        let ahead = self.occupied_words.rotate_right((word as u32 + 1) % u128::BITS);
        if ahead == 0 {
            return None;
        }
        let found = (word + 1 + ahead.trailing_zeros() as usize) % WORDS;
        Some(found * 64 + self.occupied[found].trailing_zeros() as usize)
    }

    /// Finds the earliest timer when none is scheduled before `from`.
    #[inline]
    fn find_earliest(&mut self, from: u64) {
        let start = from >> BUCKET_SHIFT;
        let mut ahead = 0;
        while ahead < BUCKETS as u64 {
            let bucket = (start + ahead) as usize % BUCKETS;
            let Some(found) = self.next_occupied(bucket) else { break };
            ahead += ((found + BUCKETS - bucket) % BUCKETS) as u64;
            let first = self.buckets[found % BUCKETS].first;
            let time = self.timers[first as usize].time;
            // Timers of a later lap stay where they are.
            if time >> BUCKET_SHIFT == start + ahead {
                self.earliest = (time, first);
                return;
            }
            ahead += 1;
        }
        self.search_all();
    }

    /// Everything is at least a lap away, or there is nothing; rare.
    #[inline(never)]
    fn search_all(&mut self) {
        self.earliest = (u64::MAX, NONE);
        if self.occupied_words == 0 {
            return;
        }
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
