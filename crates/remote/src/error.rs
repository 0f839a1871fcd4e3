use diecut_initiator::HostError;
use diecut_nvme::Status;

/// Why a namespace is no drive, or is one no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// The target was never reached, or not for so long.
    #[error(
        "the target did not answer for {0} s; see whether it runs, and whether its address can be reached"
    )]
    Silent(u64),
    /// The target, or what it said, cannot be used.
    #[error(transparent)]
    Host(#[from] HostError),
    /// It has no such namespace.
    #[error("the subsystem has no namespace {0}; `nvme list-ns` shows those it has")]
    NoNamespace(u32),
    /// It has another namespace there than before.
    #[error(
        "namespace {0} is another one than it was when it was first connected to; the drive is not used any more"
    )]
    OtherNamespace(u32),
    /// LBAs of another size than a drive can be cut into.
    #[error("namespace {nsid} has LBAs of {lba_bytes} bytes; 512 or 4096 are usable")]
    LbaSize {
        /// NSID.
        nsid: u32,
        /// What it has.
        lba_bytes: u32,
    },
    /// Without reservations nobody could keep an earlier server from writing.
    #[error(
        "namespace {0} takes no reservations, and without one an earlier server could still write to it; use a target that has them"
    )]
    NoReservations(u32),
    /// The namespace could not be claimed.
    #[error("namespace {nsid} cannot be claimed: {what} failed with {status}")]
    Claim {
        /// NSID.
        nsid: u32,
        /// Which command.
        what: &'static str,
        /// Its status.
        status: Status,
    },
    /// Another server claimed it.
    #[error("another server claimed namespace {0}; stop that one first, if this one is to have it")]
    Claimed(u32),
}
