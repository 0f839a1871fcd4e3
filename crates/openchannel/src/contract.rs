//! What `namespace` asks of chunks. Counts are IUs (4096 bytes), which are the logical blocks; payloads are in the content mode of the medium.
//! Addresses are those of [`crate::ChunkShape`].

use diecut_units::{BufferMut, Payload};
use smallvec::SmallVec;

/// Chosen by the submitter, returned with the completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkToken(pub u64);

/// Logical blocks whose addresses follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LbaRun {
    /// The first one.
    pub lba: u64,
    /// How many, at least 1.
    pub count: u32,
}

/// Logical blocks in the order of their data. One run lies in place, so that commands of other namespaces stay small; more are allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LbaList(pub SmallVec<[LbaRun; 1]>);

impl LbaList {
    /// Logical blocks that follow each other.
    pub fn run(lba: u64, count: u32) -> LbaList {
        LbaList(SmallVec::from_iter([LbaRun { lba, count }]))
    }

    /// Adds a logical block.
    #[inline]
    pub fn push(&mut self, lba: u64) {
        match self.0.last_mut() {
            Some(run) if run.lba.checked_add(run.count.into()) == Some(lba) => run.count += 1,
            _ => self.0.push(LbaRun { lba, count: 1 }),
        }
    }

    /// Number of logical blocks.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|run| run.count).sum()
    }

    /// The logical blocks, one by one.
    pub fn each(&self) -> impl Iterator<Item = u64> {
        self.0.iter().flat_map(|run| (0..u64::from(run.count)).map(|at| run.lba + at))
    }
}

/// Some logical blocks of a command's list: bit `i` is that of the one with this place in the list. Those behind the first 64 have no bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListBits(pub u64);

impl ListBits {
    /// All of a list of so many.
    pub fn all(count: u32) -> ListBits {
        let mut failed = ListBits::default();
        failed.add(0, count);
        failed
    }

    /// Adds `count` of them from the place `first` on.
    pub fn add(&mut self, first: u32, count: u32) {
        let below = |place: u32| 1_u64.checked_shl(place).map_or(u64::MAX, |bit| bit - 1);
        self.0 |= below(first.saturating_add(count)) & !below(first);
    }

    /// Whether the one at this place is among them.
    pub fn has(&self, place: u32) -> bool {
        self.0.checked_shr(place).is_some_and(|bits| bits & 1 == 1)
    }
}

/// One command to chunks.
#[derive(Debug)]
pub struct ChunkCommand {
    /// Comes back with the completion.
    pub token: ChunkToken,
    /// What to do.
    pub operation: ChunkOperation,
}

/// What chunks can do.
#[derive(Debug)]
pub enum ChunkOperation {
    /// Reads logical blocks into `destination`. What of them cannot be read keeps the others from nothing: see [`ChunkCompletion::partial`].
    Read {
        /// What is read.
        lbas: LbaList,
        /// Receives the content, as long as it is.
        destination: BufferMut,
    },
    /// Writes whole program units at write pointers. Completes when they are on flash.
    Write {
        /// Where.
        lbas: LbaList,
        /// What.
        data: Payload,
    },
    /// Makes chunks free. Completes when that survives a power cut.
    Reset {
        /// A logical block of each chunk.
        lbas: LbaList,
    },
    /// Makes chunks free, whatever they are: one that is being written when that is over, and nothing is written to it meanwhile. One that is
    /// offline stays so, and what it held is given back. Completes when that survives a power cut.
    Clear {
        /// The first one.
        first: u32,
        /// How many.
        count: u32,
    },
    /// Writes what is read elsewhere.
    Copy {
        /// What is read.
        from: LbaList,
        /// Where it is written, as many logical blocks.
        to: LbaList,
    },
    /// Completes when everything that completed before it survives a power cut: at once.
    Flush,
    /// Completes when nothing of chunks that were reset before can be found on flash any more.
    Purge,
    /// Says how chunks are.
    Report {
        /// The first one.
        first: u32,
        /// The most chunks to report.
        count_max: u32,
    },
}

impl ChunkOperation {
    /// Logical blocks of its list; of a copy those of the longer one.
    pub fn lba_count(&self) -> u32 {
        match self {
            ChunkOperation::Read { lbas, .. }
            | ChunkOperation::Write { lbas, .. }
            | ChunkOperation::Reset { lbas } => lbas.count(),
            ChunkOperation::Copy { from, to } => from.count().max(to.count()),
            ChunkOperation::Clear { .. }
            | ChunkOperation::Flush
            | ChunkOperation::Purge
            | ChunkOperation::Report { .. } => 0,
        }
    }
}

/// State of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChunkState {
    /// Nothing is written.
    #[default]
    Free,
    /// It can be written on at its write pointer.
    Open,
    /// It takes no writes before a reset. It is full, or it was closed before its end.
    Closed,
    /// It cannot be used any more.
    Offline,
}

/// Why chunks refuse; each is one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkRefusal {
    /// There is no such logical block.
    #[error("there is no such logical block")]
    NoSuchBlock,
    /// The number of logical blocks is no multiple of a program unit, or not as large as that of the destination.
    #[error("the number of logical blocks does not fit the command")]
    ListLength,
    /// Nothing is written there, or not enough behind it.
    #[error("nothing is written there, or not enough behind it")]
    Unwritten,
    /// A write does not begin at the write pointer, or its chunk takes none.
    #[error("the write does not begin at the chunk's write pointer")]
    OutOfOrder,
    /// The chunk is offline.
    #[error("the chunk is offline")]
    Offline,
    /// The chunk cannot be reset now: writes or a reset are under way.
    #[error("the chunk cannot be reset while it is written or reset")]
    InvalidReset,
    /// A program failed: the chunk is closed, and its write pointer says how far it is written.
    #[error("a program failed: the chunk is closed before its end")]
    EarlyClose,
}

/// Why chunks could not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// They refuse.
    #[error("{0}")]
    Refused(ChunkRefusal),
    /// The data was lost on the medium.
    #[error("logical block {lba:#x}: unrecovered read error")]
    Unrecovered {
        /// First logical block that is lost.
        lba: u64,
    },
    /// The medium has no room at present.
    #[error("no room: {reason}")]
    NoRoom {
        /// Why.
        reason: &'static str,
    },
    /// The medium takes no more changes.
    #[error("read-only: {reason}")]
    ReadOnly {
        /// Why.
        reason: &'static str,
    },
    /// Something that is not needed any more could not be erased, and can still be found.
    #[error("not all was erased: {reason}")]
    NotErased {
        /// Why.
        reason: &'static str,
    },
    /// The power is gone, or the store is being closed; the command may or may not have taken effect.
    #[error("the store went away")]
    Gone,
}

/// How hard what lies in a chunk is to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorRate {
    /// Cells never had to be read again.
    #[default]
    None,
    /// Once.
    Low,
    /// A few times.
    Medium,
    /// Often: what lies there is to be written elsewhere.
    High,
    /// Something cannot be read any more.
    Unrecoverable,
}

impl ErrorRate {
    /// That of a read that could be corrected when cells had been read again so often. The borders are a choice.
    pub fn of(retries: u8) -> ErrorRate {
        match retries {
            0 => ErrorRate::None,
            1 => ErrorRate::Low,
            2 => ErrorRate::Medium,
            _ => ErrorRate::High,
        }
    }
}

/// What became known of a chunk: its error rate rose, since it was reset last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkNotice {
    /// The chunk's first logical block; of what cannot be read the first one of that.
    pub lba: u64,
    /// Logical blocks that cannot be read; 0: the whole chunk is meant.
    pub count: u32,
    /// What it is now.
    pub error_rate: ErrorRate,
}

/// Notices that a store keeps until they are taken. The oldest go first.
pub const NOTICES_MAX: usize = 64;

/// A chunk in a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkView {
    /// Its state.
    pub state: ChunkState,
    /// Logical blocks before its write pointer.
    pub written: u32,
    /// Wear-level index: 255 is the life that its erase block is made for. 0 of a chunk without an erase block.
    pub wear: u8,
}

/// What comes with an answer.
#[derive(Debug)]
pub enum ChunkAnswer {
    /// Nothing.
    Done,
    /// The content of a read.
    Content(BufferMut),
    /// How chunks are, in the order of their index.
    Report(Vec<ChunkView>),
}

/// The answer to one command.
#[derive(Debug)]
pub struct ChunkCompletion {
    /// The command's token.
    pub token: ChunkToken,
    /// Whether it worked.
    pub result: Result<ChunkAnswer, ChunkError>,
    /// What was not read, written or reset.
    pub failed: ListBits,
    /// What was read, and was hard to read.
    pub strained: ListBits,
    /// Of a read that failed for some of its logical blocks: the content of the others, with zeroes for those.
    pub partial: Option<BufferMut>,
}

impl ChunkCompletion {
    /// The answer to a command that did all that it was asked for, or nothing of it.
    pub fn whole(
        token: ChunkToken,
        result: Result<ChunkAnswer, ChunkError>,
        lba_count: u32,
    ) -> ChunkCompletion {
        let failed = ListBits::all(if result.is_err() { lba_count } else { 0 });
        ChunkCompletion { token, result, failed, strained: ListBits::default(), partial: None }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: each place has its bit, and places behind 64 have none. Method: figures by hand.
    #[test]
    fn bits_of_logical_blocks() {
        let mut failed = ListBits::default();
        failed.add(1, 2);
        failed.add(63, 70);
        failed.add(200, 3);
        assert_eq!(failed, ListBits(1 << 63 | 0b110));
        assert_eq!(
            (failed.has(0), failed.has(2), failed.has(63), failed.has(64)),
            (false, true, true, false)
        );
        assert_eq!(ListBits::all(0), ListBits(0));
        assert_eq!((ListBits::all(3).0, ListBits::all(64).0, ListBits::all(65).0), (7, u64::MAX, u64::MAX));
    }
}
