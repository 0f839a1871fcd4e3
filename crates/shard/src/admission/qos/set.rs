//! One QoS set: its bucket, its two states, and who waits.

use super::bucket::{Bucket, BucketSize};
use diecut_units::{Span, Time, mutant};
use std::collections::VecDeque;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenUnit {
    /// The permission for one command.
    Command,
    /// The permission for so many bytes; each command takes at least one token.
    Bytes(u32),
}

impl TokenUnit {
    /// What a command that moves so many bytes takes, in commands or bytes: whole tokens.
    #[inline]
    pub(crate) fn units_of(self, bytes: u64) -> u64 {
        match self {
            TokenUnit::Command => 1,
            TokenUnit::Bytes(token) => bytes.div_ceil(u64::from(token)).max(1) * u64::from(token),
        }
    }
}

/// What a set is given below its threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecondRate {
    /// Nothing: it waits.
    Nothing,
    /// So many units per second at most.
    Limited(u64),
    /// All that is idle.
    Idle,
}

/// What a set is, in units of its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetDefinition {
    pub unit: TokenUnit,
    pub bucket: BucketSize,
    /// From this level on it is in the committed state.
    pub threshold: u64,
    pub second_rate: SecondRate,
}

/// The state in which something was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetState {
    Committed,
    Second,
}

/// What became of a set since it is there, or since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetFigures {
    /// Requests granted in the committed state, and their units.
    pub committed: Granted,
    /// The same of the second state.
    pub second: Granted,
    /// Time in each state.
    pub committed_time: Span,
    pub second_time: Span,
    /// Requests that waited before they were granted, each as the next one of its volume, and for how long together.
    pub waits: u64,
    pub waited: Span,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Granted {
    pub commands: u64,
    pub units: u64,
}

/// A volume whose next request waits for tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub volume: u32,
    pub bytes: u64,
    pub since: Time,
}

pub(super) struct QosSet {
    pub definition: SetDefinition,
    pub bucket: Bucket,
    /// What was granted below the threshold, where that has a rate.
    second: Option<Bucket>,
    /// In the order they came: nobody passes another one of its set.
    pub waiting: VecDeque<Waiter>,
    pub figures: SetFigures,
    /// Volumes and applications that are in it here.
    pub members: u32,
}

fn second_bucket(definition: &SetDefinition, now: Time) -> Option<Bucket> {
    match definition.second_rate {
        SecondRate::Limited(rate_per_second) if rate_per_second > 0 => {
            Some(Bucket::new(BucketSize { rate_per_second, ..definition.bucket }, now))
        }
        _ => None,
    }
}

impl QosSet {
    pub fn new(definition: SetDefinition, now: Time) -> QosSet {
        QosSet {
            definition,
            bucket: Bucket::new(definition.bucket, now),
            second: second_bucket(&definition, now),
            waiting: VecDeque::new(),
            figures: SetFigures::default(),
            members: 0,
        }
    }

    /// Gives it another definition; what is in its buckets stays, unless another unit is counted.
    pub fn redefine(&mut self, definition: SetDefinition, now: Time) {
        if definition == self.definition {
            return;
        }
        self.refill(now);
        let is_like = definition.unit == self.definition.unit;
        if is_like && !mutant!("shard: a QoS set that was changed has a full bucket") {
            self.bucket.reshape(definition.bucket, now);
        } else {
            self.bucket = Bucket::new(definition.bucket, now);
        }
        let second = second_bucket(&definition, now);
        self.second = match (second, self.second.take()) {
            (Some(next), Some(mut before)) if is_like => {
                before.reshape(next.shape, now);
                Some(before)
            }
            (next, _) => next,
        };
        self.definition = definition;
    }

    /// Time passes.
    pub fn refill(&mut self, now: Time) {
        self.figures = self.figures_at(now);
        self.bucket.refill(now);
        if let Some(second) = &mut self.second {
            second.refill(now);
        }
    }

    /// From when on it is in the committed state, if nothing is taken; the time of its bucket or before, if it is. Without a threshold there is
    /// one state, also while something is paid back that was larger than the bucket.
    fn committed_from(&self) -> Time {
        match self.definition.threshold {
            0 => self.bucket.at,
            threshold => self.bucket.holds_at(threshold),
        }
    }

    /// Figures with the time until then, if nothing is taken.
    pub fn figures_at(&self, now: Time) -> SetFigures {
        let (from, mut figures) = (self.bucket.at, self.figures);
        let crossing = self.committed_from().min(now).max(from);
        figures.second_time += crossing.since(from);
        figures.committed_time += now.since(crossing);
        figures
    }

    pub fn state(&self) -> SetState {
        self.state_at(self.bucket.at)
    }

    /// The state at that time, if nothing is taken.
    pub fn state_at(&self, now: Time) -> SetState {
        if self.committed_from() <= now { SetState::Committed } else { SetState::Second }
    }

    /// When a request of so many units is granted in the committed state.
    pub fn committed_at(&self, units: u64) -> Time {
        self.bucket.holds_at(self.definition.threshold.max(self.bucket.needed(units)))
    }

    /// When it may be granted in the second one.
    pub fn second_at(&self, units: u64) -> Time {
        if self.state() == SetState::Committed {
            return Time::NEVER;
        }
        let at = match (&self.second, self.definition.second_rate) {
            (_, SecondRate::Idle) => self.bucket.at,
            (Some(second), _) => second.holds_at(second.needed(units)),
            (None, _) => return Time::NEVER,
        };
        // From there on it is in the committed state.
        if at < self.bucket.holds_at(self.definition.threshold) { at } else { Time::NEVER }
    }

    /// Takes what was granted.
    pub fn take(&mut self, state: SetState, units: u64) {
        let figures = match state {
            SetState::Committed => &mut self.figures.committed,
            SetState::Second => &mut self.figures.second,
        };
        figures.commands += 1;
        figures.units += units;
        self.charge(state, units);
    }

    /// Takes what was not known when it was granted.
    pub fn charge(&mut self, state: SetState, units: u64) {
        match state {
            SetState::Committed if mutant!("shard: a grant takes no tokens of its QoS set") => {}
            SetState::Committed => self.bucket.take(units),
            // What is served below the threshold costs the bucket nothing: it would have been idle.
            SetState::Second if mutant!("shard: the second state of a QoS set uses its tokens") => {
                self.bucket.take(units);
            }
            SetState::Second if mutant!("shard: the second rate of a QoS set has no end") => {}
            SetState::Second => self.second.iter_mut().for_each(|second| second.take(units)),
        }
    }

    /// Gives back what was granted to something that did not begin.
    pub fn give_back(&mut self, state: SetState, units: u64) {
        let figures = match state {
            SetState::Committed => &mut self.figures.committed,
            SetState::Second => &mut self.figures.second,
        };
        figures.commands -= 1;
        figures.units -= units;
        match state {
            SetState::Committed => self.bucket.give_back(units),
            SetState::Second => self.second.iter_mut().for_each(|second| second.give_back(units)),
        }
    }
}
