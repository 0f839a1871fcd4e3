//! Commands that wait for programs, reads or a sync.

use crate::chunk::Chunk;
use crate::contract::{ChunkAnswer, ChunkCompletion, ChunkError, ChunkToken, LbaList, ListBits};
use diecut_units::{BufferLoan, Slab, mutant};

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
    /// Logical blocks of its list.
    count: u32,
    pending: u32,
    error: Option<ChunkError>,
    failed: ListBits,
    strained: ListBits,
    /// What it reads into holds zeroes where it could not be read.
    is_blank: bool,
    then: Then,
}

/// A part of a command that ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The place of its command.
    pub operation: u32,
    /// Its logical blocks that failed, if it did.
    pub failed: ListBits,
    /// Its logical blocks that were hard to read.
    pub strained: ListBits,
    pub result: Result<(), ChunkError>,
    /// What it reads into holds zeroes where it could not be read.
    pub is_blank: bool,
}

impl Ended {
    /// One that reads nothing, with `count` logical blocks from the place `first` of the list on.
    pub fn of(operation: u32, result: Result<(), ChunkError>, first: u32, count: u32) -> Ended {
        let mut failed = ListBits::default();
        if result.is_err() && !mutant!("openchannel: what failed has no bit") {
            failed.add(first, count);
        }
        Ended { operation, failed, strained: ListBits::default(), result, is_blank: true }
    }
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
    /// A command with so many logical blocks begins, with `pending` parts.
    pub fn begin(&mut self, token: ChunkToken, count: u32, pending: u32, then: Then) -> u32 {
        let (failed, strained) = Default::default();
        self.all.insert(Operation {
            token,
            count,
            pending,
            error: None,
            failed,
            strained,
            is_blank: true,
            then,
        })
    }

    /// These logical blocks of a command have no part, because of this.
    pub fn leave_out(&mut self, index: u32, failed: ListBits, error: Option<ChunkError>) {
        let operation = self.all.get_mut(index).expect("I-K4: a command that begins is there");
        operation.failed.0 |= failed.0;
        operation.error = error;
    }

    /// The place that the next one to begin gets.
    pub fn next_index(&self) -> u32 {
        self.all.next_index()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A part of a command ended. The first error counts; of reads that with the lowest address. Gives what follows when it was the last.
    pub fn part_ended(&mut self, ended: Ended, chunks: &mut [Chunk]) -> Option<Over> {
        let Ended { operation: index, failed, strained, result, is_blank } = ended;
        let operation = self.all.get_mut(index).expect("I-K4: a command that is waited for is there");
        assert!(operation.pending > 0, "I-K4: each part of a command ends once");
        operation.pending -= 1;
        operation.failed.0 |= failed.0;
        operation.strained.0 |= strained.0;
        operation.is_blank &= is_blank;
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
        let Operation { token, count, error, failed, strained, is_blank, then, .. } = self.all.remove(index);
        let all = ListBits::all(count);
        // What is not known to be blank is not shown, so nothing of it was read.
        let failed = if is_blank { ListBits(failed.0 & all.0) } else { all };
        let answer = match (error, then) {
            (None, Then::Write(loan, to)) => return Some(Over::Write(token, loan, to)),
            // Of a copy nothing is written before all is read.
            (Some(error), Then::Write(..)) => ChunkCompletion::whole(token, Err(error), count),
            (None, Then::Content(loan)) => {
                let read = Ok(ChunkAnswer::Content(loan.reclaim()));
                ChunkCompletion { strained, ..ChunkCompletion::whole(token, read, count) }
            }
            (Some(error), Then::Content(loan)) => {
                let partial = (failed != all).then(|| loan.reclaim());
                ChunkCompletion { token, result: Err(error), failed, strained, partial }
            }
            (error, then) => {
                if let Then::Free(freed) = then {
                    freed.into_iter().for_each(|chunk| chunks[chunk as usize].is_resetting = false);
                }
                let result = error.map_or(Ok(ChunkAnswer::Done), Err);
                ChunkCompletion { token, result, failed, strained, partial: None }
            }
        };
        Some(Over::Answer(answer))
    }
}
