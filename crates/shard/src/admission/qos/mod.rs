//! QoS sets: token buckets of two states in two stages, after Silicon Motion's PerformaShape. A set holds volumes, zoned volumes or
//! applications at erase blocks. Its shaper (the first stage) lets a request go that needs `n` tokens when it has them. At its
//! threshold or above it is in the committed state. Below it is in the second one: served at a rate of its own, and only when nobody
//! else has anything to do. The shaper of the device (the second stage) gives out what the device can do, so that the sum of all
//! sets is no more than that; of what is in no set it serves what is left.
//!
//! Published is no more than this. Ours is: a bucket fills at the committed rate in both states, and what is granted in the second
//! state takes nothing of it, so that a set gets its committed rate however busy it is. Of those in the committed state that wait for
//! the device the one goes next whose bucket is full soonest, as it would lose what is committed to it; those in the second state take
//! turns.
//!
//! A volume waits here with its next request, whichever of its connections that is of, and has no turn in the rounds of admission
//! meanwhile. When that request is granted it gets a [`Ticket`] and takes its turn like any other.

mod bucket;
mod set;

pub use bucket::BucketSize;
pub use set::TokenUnit;
pub(crate) use set::{SecondRate, SetDefinition, SetFigures, SetState};

use bucket::Bucket;
use diecut_units::{Slab, Time, mutant};
use set::{QosSet, Waiter};
use std::collections::{BTreeMap, VecDeque};

/// The set of what is in none; it is there from the start, and counts only beside a shaper of the device.
pub(super) const OTHERS: u32 = 0;
/// How long a set waits at most for what [`Shaper::charge_unused`] took: hosts wait 30 s for a command and more.
const OWED_SECONDS_MAX: u64 = 10;

/// Tokens that a volume has for its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub bytes: u64,
    pub state: SetState,
}

/// The shaper of the device: what QoS sets, and what is in none, have together of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceShaper {
    /// What its tokens are. QoS sets count in the same unit.
    pub unit: TokenUnit,
    /// How it is filled.
    pub bucket: BucketSize,
}

struct Device {
    unit: TokenUnit,
    bucket: Bucket,
}

impl Device {
    fn needed(&self, bytes: u64) -> u64 {
        self.bucket.needed(self.unit.units_of(bytes))
    }
}

/// How a set stands, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetStanding {
    pub level: i64,
    pub state: SetState,
    pub waiting: u32,
    pub figures: SetFigures,
}

/// See the module.
pub(crate) struct Shaper {
    sets: Slab<QosSet>,
    names: BTreeMap<String, u32>,
    device: Option<Device>,
    /// Sets in which somebody waits, in the order of their turns.
    turns: VecDeque<u32>,
    /// Before this nothing that waits is granted, unless what is idle changes.
    next_at: Time,
    /// Somebody who waits may go as soon as nobody else has anything to do.
    waits_for_idle: bool,
    /// Somebody in the committed state waits for the device.
    is_short: bool,
}

impl Shaper {
    pub fn new(device: Option<DeviceShaper>) -> Shaper {
        // Always below its threshold: it is served with what is idle.
        let others = SetDefinition {
            unit: TokenUnit::Command,
            bucket: BucketSize { rate_per_second: 0, size: 0 },
            threshold: 1,
            second_rate: SecondRate::Idle,
        };
        let device =
            device.map(|device| Device { unit: device.unit, bucket: Bucket::new(device.bucket, Time::ZERO) });
        let mut sets = Slab::default();
        let index = sets.insert(QosSet::new(others, Time::ZERO));
        assert_eq!(index, OTHERS, "I-S36: what is in no set has the first place");
        Shaper {
            sets,
            names: BTreeMap::new(),
            device,
            turns: VecDeque::new(),
            next_at: Time::NEVER,
            waits_for_idle: false,
            is_short: false,
        }
    }

    /// Makes a set, or gives it another definition.
    pub fn define(&mut self, name: &str, definition: SetDefinition, now: Time) {
        match self.names.get(name) {
            Some(&known) => self.sets[known].redefine(definition, now),
            None => {
                let set = self.sets.insert(QosSet::new(definition, now));
                self.names.insert(name.to_owned(), set);
            }
        }
        self.next_at = Time::ZERO;
    }

    /// Forgets a set that has no members.
    pub fn forget(&mut self, name: &str) {
        if let Some(set) = self.names.remove(name) {
            let own = self.sets.remove(set);
            assert!(own.members == 0 && own.waiting.is_empty(), "I-S36: nobody is in a set that goes");
        }
    }

    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.names.keys()
    }

    /// The set of this name; that of what is in none if there is none.
    pub fn set_of(&self, name: Option<&str>) -> u32 {
        name.and_then(|name| self.names.get(name)).copied().unwrap_or(OTHERS)
    }

    /// A member comes to a set.
    pub fn join(&mut self, set: u32) {
        self.sets[set].members += 1;
    }

    /// A member that does not wait leaves its set.
    pub fn leave(&mut self, set: u32) {
        let own = &mut self.sets[set];
        assert!(own.members > 0, "I-S36: a set counts its members");
        own.members -= 1;
    }

    /// Whether members of a set are held up at all.
    pub fn shapes(&self, set: u32) -> bool {
        set != OTHERS || self.device.is_some()
    }

    /// Grants a request of a volume that moves so many bytes, or has it wait.
    pub fn ask(&mut self, volume: u32, set: u32, bytes: u64, now: Time) -> Option<Ticket> {
        let own = &mut self.sets[set];
        if own.waiting.is_empty() && !self.is_short {
            own.refill(now);
            let units = own.definition.unit.units_of(bytes);
            let device = self.device.as_mut();
            let has_room = device.is_none_or(|device| {
                device.bucket.refill(now);
                device.bucket.holds(device.needed(bytes))
            });
            if has_room && own.committed_at(units) <= now {
                return Some(self.grant(set, bytes, SetState::Committed));
            }
        }
        let own = &mut self.sets[set];
        if own.waiting.is_empty() {
            self.turns.push_back(set);
        }
        own.waiting.push_back(Waiter { volume, bytes, since: now });
        self.next_at = Time::ZERO;
        None
    }

    fn grant(&mut self, set: u32, bytes: u64, state: SetState) -> Ticket {
        let own = &mut self.sets[set];
        own.take(state, own.definition.unit.units_of(bytes));
        if let Some(device) = &mut self.device
            && !mutant!("shard: a grant takes no tokens of the device")
        {
            device.bucket.take(device.unit.units_of(bytes));
        }
        Ticket { bytes, state }
    }

    /// What a ticket was for did not begin.
    pub fn give_back(&mut self, set: u32, ticket: Ticket) {
        let own = &mut self.sets[set];
        own.give_back(ticket.state, own.definition.unit.units_of(ticket.bytes));
        if let Some(device) = &mut self.device {
            device.bucket.give_back(device.unit.units_of(ticket.bytes));
        }
        self.next_at = Time::ZERO;
    }

    /// What was granted as a request without bytes turned out to move some.
    pub fn charge(&mut self, set: u32, state: SetState, bytes: u64) {
        let more = |unit: TokenUnit| unit.units_of(bytes) - unit.units_of(0);
        let own = &mut self.sets[set];
        own.charge(state, more(own.definition.unit));
        if let Some(device) = &mut self.device {
            device.bucket.take(more(device.unit));
        }
    }

    /// Room on flash was passed over for a set, and wears as if it had been written. The device's bucket gives nothing for that: it has
    /// served nothing.
    pub fn charge_unused(&mut self, set: u32, bytes: u64, now: Time) {
        if set == OTHERS {
            return;
        }
        let own = &mut self.sets[set];
        own.refill(now);
        let unit = own.definition.unit;
        own.bucket.owe(unit.units_of(bytes) - unit.units_of(0), OWED_SECONDS_MAX);
    }

    /// A volume waits no more, though nothing was granted.
    pub fn withdraw(&mut self, volume: u32, set: u32) {
        let own = &mut self.sets[set];
        let at = own.waiting.iter().position(|waiter| waiter.volume == volume);
        at.and_then(|at| own.waiting.remove(at)).expect("I-S36: who waits is known");
        if own.waiting.is_empty() {
            self.turns.retain(|other| *other != set);
        }
        self.is_short = false;
        self.next_at = Time::ZERO;
    }

    /// Whether [`Shaper::release`] would find something.
    #[inline]
    pub fn is_due(&self, now: Time, is_idle: bool) -> bool {
        !self.turns.is_empty() && (self.next_at <= now || (is_idle && self.waits_for_idle))
    }

    /// When it is due though nothing happens.
    pub fn due_at(&self) -> Time {
        match self.turns.is_empty() {
            true => Time::NEVER,
            false if self.waits_for_idle => Time::ZERO,
            false => self.next_at,
        }
    }

    /// The next volume whose request is granted, if any is. Nobody else has anything to do where it `is_idle`.
    pub fn release(&mut self, now: Time, is_idle: bool) -> Option<(u32, Ticket)> {
        (self.next_at, self.waits_for_idle, self.is_short) = (Time::NEVER, false, false);
        if let Some(device) = &mut self.device {
            device.bucket.refill(now);
        }
        // Who goes next in the committed state, and in the second one.
        let (mut committed, mut second) = (None, None);
        for at in 0..self.turns.len() {
            let own = &mut self.sets[self.turns[at]];
            own.refill(now);
            let bytes = own.waiting.front().expect("I-S36: who has a turn waits").bytes;
            let units = own.definition.unit.units_of(bytes);
            let (committed_at, second_at) = (own.committed_at(units), own.second_at(units));
            if committed_at <= now {
                let full_at = own.bucket.full_at();
                if committed.is_none_or(|(soonest, _)| full_at < soonest) {
                    committed = Some((full_at, at));
                }
                continue;
            }
            self.next_at = self.next_at.min(committed_at);
            if second_at <= now {
                second = second.or(Some(at));
            } else {
                self.next_at = self.next_at.min(second_at);
            }
        }
        let goes_last = second.is_some() && mutant!("shard: who is in the second state goes first");
        if let Some((_, at)) = committed.filter(|_| !goes_last) {
            return self.pass(at, SetState::Committed, now);
        }
        if second.is_some()
            && !is_idle
            && !mutant!("shard: the second state does not wait for an idle moment")
        {
            self.waits_for_idle = true;
            return None;
        }
        second.and_then(|at| self.pass(at, SetState::Second, now))
    }

    /// The second stage: the set of this turn goes, if the device can take it.
    fn pass(&mut self, turn: usize, state: SetState, now: Time) -> Option<(u32, Ticket)> {
        let set = self.turns[turn];
        let waiter = *self.sets[set].waiting.front().expect("I-S36: who has a turn waits");
        if let Some(device) = &self.device {
            let needed = device.needed(waiter.bytes);
            if !device.bucket.holds(needed) {
                self.is_short = state == SetState::Committed;
                self.next_at = self.next_at.min(device.bucket.holds_at(needed));
                return None;
            }
        }
        let ticket = self.grant(set, waiter.bytes, state);
        let own = &mut self.sets[set];
        own.waiting.pop_front();
        own.figures.waits += 1;
        own.figures.waited += now.since(waiter.since);
        self.turns.remove(turn);
        if !own.waiting.is_empty() {
            self.turns.push_back(set);
        }
        self.next_at = Time::ZERO;
        Some((waiter.volume, ticket))
    }

    /// How a set stands.
    pub fn standing(&self, name: &str, now: Time) -> Option<SetStanding> {
        let own = &self.sets[*self.names.get(name)?];
        let (mut bucket, figures, state) = (own.bucket.clone(), own.figures_at(now), own.state_at(now));
        bucket.refill(now);
        Some(SetStanding { level: bucket.level(), state, waiting: own.waiting.len() as u32, figures })
    }
}

#[cfg(test)]
mod test;
