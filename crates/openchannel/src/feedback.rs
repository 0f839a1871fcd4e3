//! Media feedback: what reads say of their chunks.

use crate::chunk::Chunk;
use crate::contract::{ChunkNotice, ErrorRate, NOTICES_MAX};
use crate::mark::Mark;
use diecut_units::mutant;
use std::collections::VecDeque;

/// Notices that nobody has taken.
#[derive(Default)]
pub(crate) struct Feedback {
    notices: VecDeque<ChunkNotice>,
}

impl Feedback {
    /// A read of a life of a chunk that begins at `start` says this of it. `lost` is what of it cannot be read: first logical block, and how many.
    #[cold]
    pub fn read(
        &mut self,
        chunk: &mut Chunk,
        life: &Mark,
        start: u64,
        lost: (u64, u32),
        error_rate: ErrorRate,
    ) {
        // It was reset meanwhile.
        if chunk.generation != life.generation {
            return;
        }
        // A chunk is told of once for each rate, so that a host that reads it again and again hears no more of it.
        if error_rate <= chunk.error_rate && !mutant!("openchannel: a chunk is told of with each read") {
            return;
        }
        chunk.error_rate = error_rate;
        let (lba, count) = if error_rate == ErrorRate::Unrecoverable { lost } else { (start, 0) };
        if self.notices.len() == NOTICES_MAX {
            self.notices.pop_front();
        }
        self.notices.push_back(ChunkNotice { lba, count, error_rate });
        assert!(self.notices.len() <= NOTICES_MAX, "I-K8: notices that nobody takes have a bound");
    }

    /// Takes the notices, the oldest first.
    pub fn take(&mut self) -> Vec<ChunkNotice> {
        self.notices.drain(..).collect()
    }
}
