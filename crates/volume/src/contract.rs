//! What `namespace` asks of a volume. Counts are IUs (4096 bytes); payloads are in the content mode of the
//! medium.

pub use diecut_log::{PlacementHandle, PlacementTarget, ReclaimGroup};
use diecut_units::{BufferMut, Payload};

/// A volume of one store; small and used again after a deletion was made durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeIndex(pub u16);

/// Chosen by the submitter, returned with the completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeToken(pub u64);

/// One command to a volume.
#[derive(Debug)]
pub struct VolumeCommand {
    /// Comes back with the completion.
    pub token: VolumeToken,
    /// Which volume.
    pub volume: VolumeIndex,
    /// What to do.
    pub operation: VolumeOperation,
}

/// What a volume can do. The range lies within the volume: `namespace` has checked it.
#[derive(Debug)]
pub enum VolumeOperation {
    /// Reads IUs into `destination` (as many bytes as the content mode needs for them). What was never
    /// written, or deallocated, reads as zeros.
    Read {
        /// First IU.
        first_iu: u64,
        /// Number of IUs, at least 1.
        iu_count: u32,
        /// Receives the content.
        destination: BufferMut,
    },
    /// Writes IUs. Completes when the data survives the death of the process, and a power cut too unless the
    /// store was given a volatile cache and `force_unit_access` is not set.
    Write {
        /// First IU.
        first_iu: u64,
        /// Content.
        payload: Payload,
        /// Durable against power cuts before completion, whatever the cache policy.
        force_unit_access: bool,
        /// Where it goes.
        placement: PlacementTarget,
    },
    /// Completes when every write, deallocation and write zeroes that completed before it was submitted
    /// survives a power cut.
    Flush,
    /// Completes when nothing that was deleted, deallocated or overwritten before it was submitted, in any volume of the store, can be
    /// found on flash or in protected memory any more. What lives stays as it is.
    Purge,
    /// The range reads as zeros from now on and needs no space. Ordered like a write, durable like a write.
    Deallocate {
        /// First IU.
        first_iu: u64,
        /// Number of IUs, at least 1.
        iu_count: u64,
    },
    /// Reads of the range fail from now on, until it is written, deallocated or zeroed. Ordered like a write, durable like a write.
    WriteUncorrectable {
        /// First IU.
        first_iu: u64,
        /// Number of IUs, at least 1.
        iu_count: u64,
    },
    /// The range reads as zeros from now on.
    WriteZeroes {
        /// First IU.
        first_iu: u64,
        /// Number of IUs, at least 1.
        iu_count: u64,
        /// As for a write.
        force_unit_access: bool,
    },
    /// Copies IUs within the volume.
    Copy(Box<VolumeCopy>),
    /// Reads and checks checksums without giving the content.
    Verify {
        /// First IU.
        first_iu: u64,
        /// Number of IUs, at least 1.
        iu_count: u32,
    },
}

/// What the sources hold when the copy is carried out is written, one behind the other. Nothing is written before all of it was read, and
/// nothing at all if a part of it is lost; it is durable as a write is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeCopy {
    /// What is read, in this order: at least one IU, and each range at least one.
    pub sources: Vec<IuRange>,
    /// First IU that is written.
    pub first_iu: u64,
    /// As for a write.
    pub force_unit_access: bool,
    /// As for a write.
    pub placement: PlacementTarget,
}

/// A range of IUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IuRange {
    /// First IU.
    pub first_iu: u64,
    /// Number of IUs.
    pub iu_count: u32,
}

impl VolumeCopy {
    /// IUs of all sources.
    pub fn iu_count(&self) -> u32 {
        self.sources.iter().map(|source| source.iu_count).sum()
    }
}

/// Why a volume could not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    /// The data was lost on the medium.
    #[error("IU {iu}: unrecovered read error")]
    Unrecovered {
        /// First IU that is lost.
        iu: u64,
    },
    /// No space left in the store for new data; nothing of this command was written.
    #[error("the pool is full; delete or deallocate data, or add capacity")]
    Full,
    /// No space left in the reclaim group that the write chose; nothing of it was written.
    #[error("the reclaim group is full; write to another one, or deallocate what lies in it")]
    GroupFull,
    /// The store takes no more writes.
    #[error("read-only: {reason}")]
    ReadOnly {
        /// Why.
        reason: &'static str,
    },
    /// The medium has no room at present; what of the command was written is not said. It may go well later.
    #[error("no room: {reason}")]
    NoRoom {
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

/// The answer to one command.
#[derive(Debug)]
pub struct VolumeCompletion {
    /// The command's token.
    pub token: VolumeToken,
    /// Whether it worked.
    pub result: Result<(), VolumeError>,
    /// The destination of a read, filled on success.
    pub destination: Option<BufferMut>,
}
