//! A token bucket in exact arithmetic: what it holds is counted in units times nanoseconds, so that no refill is rounded.

use diecut_units::Time;

const NS_PER_SECOND: i128 = 1_000_000_000;

/// How a token bucket is filled, and how much it holds, in commands or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketSize {
    /// Units that come in a second.
    pub rate_per_second: u64,
    /// Units that it holds at most.
    pub size: u64,
}

/// A bucket that is filled as time passes. Both numbers of [`BucketSize`] have 64 bits, so all sums fit into 128.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    pub shape: BucketSize,
    /// Units times [`NS_PER_SECOND`]; below 0 where something was larger than the bucket.
    level: i128,
    /// Until when it was filled.
    pub at: Time,
}

impl Bucket {
    /// A full one.
    pub fn new(shape: BucketSize, now: Time) -> Bucket {
        Bucket { shape, level: i128::from(shape.size) * NS_PER_SECOND, at: now }
    }

    /// Another rate and size; what is in it stays, as far as there is room.
    pub fn reshape(&mut self, shape: BucketSize, now: Time) {
        self.refill(now);
        self.shape = shape;
        self.level = self.level.min(i128::from(shape.size) * NS_PER_SECOND);
    }

    pub fn refill(&mut self, now: Time) {
        let come = i128::from(now.since(self.at).0) * i128::from(self.shape.rate_per_second);
        self.level = (self.level + come).min(i128::from(self.shape.size) * NS_PER_SECOND);
        self.at = self.at.max(now);
    }

    /// What a request waits for. A request that is larger than the bucket goes when that is full, and what it takes beyond is
    /// paid back before the next one.
    pub fn needed(&self, units: u64) -> u64 {
        units.min(self.shape.size)
    }

    /// Whether it holds so much.
    pub fn holds(&self, units: u64) -> bool {
        self.level >= i128::from(units) * NS_PER_SECOND
    }

    /// When it holds so much, if nothing is taken; now or before, if it does.
    pub fn holds_at(&self, units: u64) -> Time {
        let lacks = i128::from(units) * NS_PER_SECOND - self.level;
        if lacks <= 0 {
            return self.at;
        }
        if self.shape.rate_per_second == 0 || units > self.shape.size {
            return Time::NEVER;
        }
        let rate = i128::from(self.shape.rate_per_second);
        let ns = u64::try_from((lacks + rate - 1) / rate).unwrap_or(u64::MAX);
        Time(self.at.0.saturating_add(ns))
    }

    /// When it is full: from then on what comes is lost.
    pub fn full_at(&self) -> Time {
        self.holds_at(self.shape.size)
    }

    pub fn take(&mut self, units: u64) {
        self.level -= i128::from(units) * NS_PER_SECOND;
    }

    /// Takes so much that nobody asked for, as far as that is paid back in so many seconds.
    pub fn owe(&mut self, units: u64, seconds_max: u64) {
        let least = -i128::from(self.shape.rate_per_second) * i128::from(seconds_max) * NS_PER_SECOND;
        self.level = (self.level - i128::from(units) * NS_PER_SECOND).max(least.min(self.level));
    }

    /// Gives back what was taken for something that did not begin.
    pub fn give_back(&mut self, units: u64) {
        let full = i128::from(self.shape.size) * NS_PER_SECOND;
        self.level = (self.level + i128::from(units) * NS_PER_SECOND).min(full);
    }

    /// Whole units in it; below 0 while a request that was larger than the bucket is paid back.
    pub fn level(&self) -> i64 {
        i64::try_from(self.level.div_euclid(NS_PER_SECOND)).unwrap_or(i64::MIN)
    }
}
