//! Whose turn it is among equals: start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996). Of those in the round the one goes
//! next that used least so far, and what it uses counts by its weight. One that was idle starts where the one served last stood:
//! it has saved nothing up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What one unit of cost counts for a weight of 1. Sums of it fit: 64 bits last for three years of all that a core can do for a weight of
/// 1, and for centuries with the usual one. The weights of a thousand volumes together still count.
const ONE: u64 = 1 << 18;

/// How much of what is shared somebody gets, relative to its neighbours: 100 is usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight {
    pub value: u32,
    /// What a unit of cost counts, so that a command needs no division.
    per_cost: u64,
}

impl Weight {
    /// # Panics
    /// If it is 0: it would starve.
    pub fn new(value: u32) -> Weight {
        assert!(value > 0, "I-S2: who has a turn has a weight");
        Weight { value, per_cost: ONE / u64::from(value) }
    }
}

impl Default for Weight {
    fn default() -> Weight {
        Weight::new(100)
    }
}

/// Where a member of a round stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// What it used, by weight.
    used: u64,
    in_round: bool,
}

impl Place {
    /// Whether it is in the round.
    #[inline]
    pub fn is_in(&self) -> bool {
        self.in_round
    }
}

/// What somebody has used in a turn: in one go, but as if in parts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    all: u64,
    /// The last part of it.
    last: u64,
}

impl Used {
    /// One part more.
    #[inline]
    pub fn add(&mut self, cost: u32) {
        self.last = u64::from(cost);
        self.all += self.last;
    }
}

/// A member that may go on: what it used, whether it went before, and who it is. Least used first; of equals those first that only just
/// came.
type Turn = (u64, bool, u32);

/// One round of members that take turns. Each has its [`Place`] with itself; the round knows the order.
#[derive(Default)]
pub(crate) struct Turns {
    /// Whose turn it is. Where nobody competes there is no more than this.
    front: Option<Turn>,
    /// All others.
    behind: BinaryHeap<Reverse<Turn>>,
    /// Where the one served last stood.
    now: u64,
}

impl Turns {
    /// Whether nobody is in the round.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.front.is_none()
    }

    /// Whether more than one is in the round.
    #[inline]
    pub fn has_rival(&self) -> bool {
        !self.behind.is_empty()
    }

    /// How many are in the round.
    pub fn len(&self) -> usize {
        usize::from(self.front.is_some()) + self.behind.len()
    }

    /// Takes a member into the round, if it is not there.
    #[inline]
    pub fn enter(&mut self, member: u32, place: &mut Place) {
        if place.in_round {
            return;
        }
        place.in_round = true;
        place.used = place.used.max(self.now);
        let turn = (place.used, false, member);
        match self.front {
            None => self.front = Some(turn),
            Some(front) if turn < front => {
                self.behind.push(Reverse(front));
                self.front = Some(turn);
            }
            Some(_) => self.behind.push(Reverse(turn)),
        }
    }

    /// Takes a member out of the round, wherever it stands: takes as long as the round. [`Turns::served`] is for the one in front.
    pub fn leave(&mut self, member: u32, place: &mut Place) {
        if !std::mem::take(&mut place.in_round) {
            return;
        }
        debug_assert!(
            self.front
                .into_iter()
                .chain(self.behind.iter().map(|one| one.0))
                .filter(|one| one.2 == member)
                .count()
                == 1,
            "I-S2: who is in the round has one turn"
        );
        if self.first() == Some(member) {
            self.front = self.behind.pop().map(|Reverse(turn)| turn);
        } else {
            self.behind.retain(|Reverse((.., other))| *other != member);
        }
    }

    /// Whose turn it is.
    #[inline]
    pub fn first(&self) -> Option<u32> {
        self.front.map(|(.., member)| member)
    }

    /// The one in front has used something, in one part if others are in the round; it stays in the round or leaves it.
    ///
    /// # Panics
    /// If nobody is in the round.
    #[inline]
    pub fn served(&mut self, place: &mut Place, used: Used, weight: Weight, stays: bool) {
        let (start, _, member) = self.front.expect("I-S2: who is served is in the round");
        debug_assert!(place.in_round, "I-S2: who is served is in the round");
        debug_assert!(start >= self.now, "I-S26: the round does not go back");
        // Where it stood before the last part.
        self.now = start + (used.all - used.last) * weight.per_cost;
        place.used = start + used.all * weight.per_cost;
        if !stays {
            place.in_round = false;
            self.front = self.behind.pop().map(|Reverse(turn)| turn);
            return;
        }
        let turn = (place.used, true, member);
        self.front = Some(turn);
        if let Some(mut next) = self.behind.peek_mut()
            && next.0 < turn
        {
            self.front = Some(std::mem::replace(&mut next.0, turn));
        }
    }
}
