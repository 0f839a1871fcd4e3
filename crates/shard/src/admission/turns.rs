//! Whose turn it is among equals: start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996). Of those in the round the one goes
//! next that used least so far, and what it uses counts by its weight. One that was idle starts where the one served last stood:
//! it has saved nothing up.

use std::cmp::Reverse;
use std::collections::binary_heap::{BinaryHeap, PeekMut};

/// What one unit of cost counts for a weight of 1. Sums of it fit: 64 bits last for centuries of a core's work.
const ONE: u64 = 1 << 16;

/// How much of what is shared somebody gets, relative to its neighbours: 100 is usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Weight(pub u32);

impl Default for Weight {
    fn default() -> Weight {
        Weight(100)
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
    pub fn is_in(&self) -> bool {
        self.in_round
    }
}

/// One round of members that take turns. Each has its [`Place`] with itself; the round knows the order.
#[derive(Default)]
pub(crate) struct Turns {
    /// Least used first; of equals those first that only just came.
    order: BinaryHeap<Reverse<(u64, bool, u32)>>,
    /// Where the one served last stood.
    now: u64,
}

impl Turns {
    /// Whether nobody is in the round.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// How many are in the round.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Takes a member into the round, if it is not there.
    pub fn enter(&mut self, member: u32, place: &mut Place) {
        if !place.in_round {
            place.in_round = true;
            place.used = place.used.max(self.now);
            self.order.push(Reverse((place.used, false, member)));
        }
    }

    /// Takes a member out of the round, wherever it stands. As long as the round; [`Turns::served`] is for the one in front.
    pub fn leave(&mut self, member: u32, place: &mut Place) {
        if std::mem::take(&mut place.in_round) {
            self.order.retain(|Reverse((.., other))| *other != member);
        }
    }

    /// Whose turn it is.
    pub fn first(&self) -> Option<u32> {
        self.order.peek().map(|Reverse((.., member))| *member)
    }

    /// The one in front has used `cost`; it stays in the round or leaves it.
    ///
    /// # Panics
    /// If nobody is in the round.
    pub fn served(&mut self, place: &mut Place, cost: u32, weight: Weight, stays: bool) {
        let mut front = self.order.peek_mut().expect("I-S2: who is served is in the round");
        let Reverse((start, _, member)) = *front;
        self.now = start;
        place.used = start + u64::from(cost) * ONE / u64::from(weight.0);
        if stays {
            *front = Reverse((place.used, true, member));
        } else {
            place.in_round = false;
            PeekMut::pop(front);
        }
    }
}
