//! The memory of a thread: buffers to receive in, and when what it does not need is given up.

use crate::common::Common;
use diecut_shard::drive::{Drive, ShardIndex};
use diecut_units::{BufferPool, Span, Time};
use std::sync::atomic::Ordering;

/// How often memory that is not needed is given up, and how often while there is more of it.
const SHRINK_EVERY: Span = Span::from_secs(1);
const SHRINK_AGAIN_AFTER: Span = Span::from_millis(2);
/// Looks after the last work: the first one only sees what the next one may give up.
const SHRINK_LOOKS: u32 = 3;
/// Buffers given up at once at most: a round must stay short.
const SHRINK_SLABS_MAX: u32 = 256;
/// So much given up at once means that there is more.
const MUCH_BYTES: usize = 1 << 20;

/// See the module.
#[derive(Default)]
pub(crate) struct Upkeep {
    /// Where bytes of streams are received to.
    pub pool: BufferPool,
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

    /// Gives up what was not needed of late, and follows the memory that connections may hold.
    pub fn keep(&mut self, shard: &mut impl Drive, index: ShardIndex, common: &Common, now: Time) {
        // 0 says nothing.
        let wanted = common.memory_bytes.load(Ordering::Relaxed);
        if wanted != 0 && wanted != self.memory_bytes {
            self.memory_bytes = wanted;
            shard.set_memory(wanted);
        }
        let given_up = shard.shrink(SHRINK_SLABS_MAX) + self.pool.shrink(SHRINK_SLABS_MAX);
        let used = shard.memory().used_bytes + self.pool.size_bytes();
        common.used_bytes[usize::from(index.0)].store(used, Ordering::Relaxed);
        common.given_up_bytes.fetch_add(given_up as u64, Ordering::Relaxed);
        self.looks_left = if given_up > 0 { SHRINK_LOOKS } else { self.looks_left.saturating_sub(1) };
        let is_much = given_up > MUCH_BYTES;
        self.shrink_at = now + if is_much { SHRINK_AGAIN_AFTER } else { SHRINK_EVERY };
    }
}
