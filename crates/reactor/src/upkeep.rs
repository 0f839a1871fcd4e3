//! When a thread gives up memory that it does not need.

use diecut_units::{Span, Time};

/// How often memory that is not needed is given up, and how often while there is more of it.
const SHRINK_EVERY: Span = Span::from_secs(1);
const SHRINK_AGAIN_AFTER: Span = Span::from_millis(2);
/// Looks after the last work: the first one only sees what the next one may give up.
const SHRINK_LOOKS: u32 = 3;
/// So much given up at once means that there is more.
const MUCH_BYTES: usize = 1 << 20;

/// See the module.
#[derive(Default)]
pub(crate) struct Upkeep {
    /// When memory is looked at next, and how many looks there are until there is work again, or one of them gives something up.
    shrink_at: Time,
    looks_left: u32,
    /// What connections may hold, as the shard was told last; 0 before.
    memory_bytes: usize,
}

impl Upkeep {
    /// There was work in this round: memory may be free afterwards.
    #[inline]
    pub fn worked(&mut self) {
        self.looks_left = SHRINK_LOOKS;
    }

    /// When memory is looked at next.
    #[inline]
    pub fn deadline(&self) -> Time {
        if self.looks_left > 0 { self.shrink_at } else { Time::NEVER }
    }

    /// What connections may hold, if that is new. 0 says nothing.
    pub fn new_limit(&mut self, wanted_bytes: usize) -> Option<usize> {
        let is_new = wanted_bytes != 0 && wanted_bytes != self.memory_bytes;
        is_new.then(|| {
            self.memory_bytes = wanted_bytes;
            wanted_bytes
        })
    }

    /// Memory was looked at, and so much given up.
    pub fn looked(&mut self, given_up_bytes: usize, now: Time) {
        self.looks_left = if given_up_bytes > 0 { SHRINK_LOOKS } else { self.looks_left.saturating_sub(1) };
        let is_much = given_up_bytes > MUCH_BYTES;
        self.shrink_at = now + if is_much { SHRINK_AGAIN_AFTER } else { SHRINK_EVERY };
    }
}
