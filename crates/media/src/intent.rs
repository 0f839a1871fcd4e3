use diecut_units::{Buffer, BufferMut};
use smallvec::SmallVec;

/// Chosen by the medium, returned with [`IntentDone`]. The driver does not look at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IntentToken(pub u64);

/// What a medium asks its driver to do on the file or drive that it stands for. Intents are done in any order; who needs an order
/// gives the next one out when the one before was answered.
#[derive(Debug)]
pub struct Intent {
    /// Comes back with the answer.
    pub token: IntentToken,
    /// What to do.
    pub work: IntentWork,
}

/// See [`Intent`]. Offsets are bytes from the start of the file or drive.
#[derive(Debug)]
pub enum IntentWork {
    /// Read as many bytes as the buffer has.
    Read {
        /// Where from.
        offset: u64,
        /// Comes back filled.
        buffer: BufferMut,
    },
    /// Write buffers one behind the other.
    Write {
        /// Where the first one goes.
        offset: u64,
        /// What to write.
        parts: SmallVec<[Buffer; 2]>,
        /// Which of the drive's placement handles it is for, counted from 0. A drive without any does not look at it.
        handle: u16,
    },
    /// Forget bytes, and give back the room they take; whoever reads them finds anything. Advice: where it cannot be done, it is done.
    Discard {
        /// First byte.
        offset: u64,
        /// How many.
        len_bytes: u64,
    },
    /// Forget a whole zone, which is written from its start again then.
    ResetZone {
        /// Where the zone begins.
        offset: u64,
        /// Its size.
        len_bytes: u64,
    },
    /// Have a zone count as full, although it is not: the drive needs no place for it among its active ones any more.
    FinishZone {
        /// Where the zone begins.
        offset: u64,
        /// Its size.
        len_bytes: u64,
    },
    /// Have everything survive the death of the machine that was written when this intent was given out: by the medium itself, or
    /// by intents that were answered before.
    Sync,
}

/// Why an intent was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IntentError {
    /// There is no room for what was to be written; nothing else is wrong.
    #[error("no room")]
    Full,
    /// The operating system or the drive refuses. After a sync: what was written since the last one that worked may be lost for
    /// good, whatever a later one says.
    #[error("refused by the operating system or the drive")]
    Failed,
    /// The drive is gone; nothing on it answers any more.
    #[error("the drive is gone")]
    Gone,
}

/// The answer to an intent. Each one is answered once, unless the medium is gone.
#[derive(Debug)]
pub struct IntentDone {
    /// The intent's token.
    pub token: IntentToken,
    /// The buffer of a read, filled if it worked.
    pub buffer: Option<BufferMut>,
    /// Whether it worked.
    pub result: Result<(), IntentError>,
}
