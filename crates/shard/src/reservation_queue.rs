//! What targets want to persist of reservations, sanitize operations and events of placement, on its way into the catalog: see
//! [`crate::reservations`].

use crate::seat::ShardIndex;
use diecut_nvmf::{Keep, Kept};
use diecut_units::{Span, Time};

/// Writes of the catalog that may follow each other at once, and how often one may in the long run. Hosts change reservations as often as
/// they like, and each write wears the flash that all tenants' definitions lie on.
const BURST: u64 = 64;
/// See [`BURST`].
const PERIOD: Span = Span::from_millis(500);

/// What the first shard is asked.
#[derive(Default)]
pub(crate) struct ReservationQueue {
    /// With the shards that ask, in the order they asked.
    pub waiting: Vec<(ShardIndex, Keep)>,
    /// A job writes these.
    pub written: Vec<(ShardIndex, Kept)>,
    /// When all writes until now would be over if they came one by one in their period.
    paid_until: Time,
    /// What waits is written at once: the server stops.
    pub hurries: bool,
}

impl ReservationQueue {
    /// Whether something is to be written, and nothing is at present.
    pub fn has_work(&self) -> bool {
        !self.waiting.is_empty() && self.written.is_empty()
    }

    /// Whether nothing waits, and nothing is being written.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.written.is_empty()
    }

    /// When what waits may be written: all of it together.
    pub fn due_at(&self) -> Time {
        if !self.has_work() {
            return Time::NEVER;
        }
        if self.hurries {
            return Time::ZERO;
        }
        Time(self.paid_until.0.saturating_sub(BURST * PERIOD.0))
    }

    /// A write begins.
    pub fn writes(&mut self, now: Time) {
        self.paid_until = self.paid_until.max(now) + PERIOD;
    }

    /// Somebody asks.
    pub fn ask(&mut self, from: ShardIndex, keep: Keep) {
        self.waiting.push((from, keep));
    }
}
