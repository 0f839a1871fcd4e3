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
        "namespace {nsid} is another one than it was ({what}); it is not used any more. Name the one that holds the device, and start the server again"
    )]
    OtherNamespace {
        /// NSID.
        nsid: u32,
        /// What differs.
        what: String,
    },
    /// LBAs of another size than a drive can be cut into.
    #[error(
        "namespace {nsid} has blocks of {lba_bytes} bytes; 512 or 4096 are usable. Format it so, or name another one"
    )]
    LbaSize {
        /// NSID.
        nsid: u32,
        /// What it has.
        lba_bytes: u32,
    },
    /// It has another command set than that of plain blocks or that of zones, or tells nothing of its zones.
    #[error(
        "namespace {nsid} is one of command set {command_set:02x}h, and one of plain blocks or of zones is served as a drive; name another one"
    )]
    CommandSet {
        /// NSID.
        nsid: u32,
        /// CSI.
        command_set: u8,
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
    /// It does not tell how its zones are.
    #[error("namespace {nsid} does not say how its zones are: {what}")]
    Zones {
        /// NSID.
        nsid: u32,
        /// What is wrong.
        what: String,
    },
    /// Another server has it.
    #[error(
        "namespace {nsid} is in use: another server holds its reservation, under the key {key:#x}; stop that one first. If it is gone for good, `diecut \
         device release` takes the namespace from it"
    )]
    Held {
        /// NSID.
        nsid: u32,
        /// Key of its reservation; 0 if that was not seen.
        key: u64,
    },
    /// Another server took it over.
    #[error(
        "another server took namespace {0} over; it is not used any more. Stop that one, then start this one again, if this one is to have it"
    )]
    TakenOver(u32),
    /// Blocks with bytes beside the data.
    #[error("blocks of namespace {nsid} carry {metadata_bytes} bytes of metadata{}; format it without them (`nvme format`), or name another one", if *.has_protection { " and protection information" } else { "" })]
    Metadata {
        /// NSID.
        nsid: u32,
        /// Bytes of each LBA.
        metadata_bytes: u16,
        /// Whether blocks are protected end to end.
        has_protection: bool,
    },
    /// It takes no writes.
    #[error("namespace {0} is write-protected; lift that at the target, or name another one")]
    WriteProtected(u32),
}
