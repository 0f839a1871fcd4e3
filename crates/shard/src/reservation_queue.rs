//! What targets want to persist of reservations, on its way into the catalog: see [`crate::reservations`].

use crate::seat::ShardIndex;
use diecut_nvmf::{KeepReservation, KeptReservation};

/// What the first shard is asked.
#[derive(Default)]
pub(crate) struct ReservationQueue {
    /// With the shards that ask, in the order they asked.
    pub waiting: Vec<(ShardIndex, KeepReservation)>,
    /// A job writes these.
    pub written: Vec<(ShardIndex, KeptReservation)>,
}

impl ReservationQueue {
    /// Whether something is to be written, and nothing is at present.
    pub fn has_work(&self) -> bool {
        !self.waiting.is_empty() && self.written.is_empty()
    }

    /// Somebody asks.
    pub fn ask(&mut self, from: ShardIndex, keep: KeepReservation) {
        self.waiting.push((from, keep));
    }
}
