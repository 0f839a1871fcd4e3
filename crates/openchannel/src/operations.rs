//! Commands that wait for programs, reads or a sync.

use crate::chunk::Chunk;
use crate::contract::{ChunkAnswer, ChunkCompletion, ChunkError, ChunkToken, LbaList};
use diecut_units::{BufferLoan, Slab};

/// What a command does when nothing of it is under way any more.
pub(crate) enum Then {
    /// It is answered.
    Answer,
    /// It is answered with what was read.
    Content(BufferLoan),
    /// What was read is written.
    Write(BufferLoan, LbaList),
    /// These chunks are free.
    Free(Vec<u32>),
}

struct Operation {
    token: ChunkToken,
    pending: u32,
    error: Option<ChunkError>,
    then: Then,
}

/// What is left to do of a command of which nothing is under way.
pub(crate) enum Over {
    Answer(ChunkCompletion),
    /// A copy has read: it writes this there.
    Write(ChunkToken, BufferLoan, LbaList),
}

/// See the module.
#[derive(Default)]
pub(crate) struct Operations {
    all: Slab<Operation>,
}

impl Operations {
    /// A command begins, with so many parts.
    pub fn begin(&mut self, token: ChunkToken, pending: u32, then: Then) -> u32 {
        self.all.insert(Operation { token, pending, error: None, then })
    }

    /// The place that the next one to begin gets.
    pub fn next_index(&self) -> u32 {
        self.all.next_index()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A part of a command ended. The first error counts; of reads that with the lowest address. Gives what follows when it was the last.
    pub fn part_ended(
        &mut self,
        index: u32,
        result: Result<(), ChunkError>,
        chunks: &mut [Chunk],
    ) -> Option<Over> {
        let operation = self.all.get_mut(index).expect("I-K4: a command that is waited for is there");
        assert!(operation.pending > 0, "I-K4: each part of a command ends once");
        operation.pending -= 1;
        if let Err(error) = result {
            match (&mut operation.error, error) {
                (Some(ChunkError::Unrecovered { lba }), ChunkError::Unrecovered { lba: other }) => {
                    *lba = other.min(*lba);
                }
                (Some(_), _) => {}
                (none, error) => *none = Some(error),
            }
        }
        if operation.pending > 0 {
            return None;
        }
        let Operation { token, error, then, .. } = self.all.remove(index);
        let result = match (error, then) {
            (None, Then::Write(loan, to)) => return Some(Over::Write(token, loan, to)),
            (None, Then::Content(loan)) => Ok(ChunkAnswer::Content(loan.reclaim())),
            (error, then) => {
                if let Then::Free(freed) = then {
                    freed.into_iter().for_each(|chunk| chunks[chunk as usize].is_resetting = false);
                }
                error.map_or(Ok(ChunkAnswer::Done), Err)
            }
        };
        Some(Over::Answer(ChunkCompletion { token, result }))
    }
}
