//! Waist 3: the namespace contract. A door (NVMe/TCP target, and later vhost-user, FUSE, ...) sends
//! [`NamespaceCommand`]s and receives [`NamespaceCompletion`]s.

use diecut_units::{Buffer, BufferMut, Time};
use smallvec::SmallVec;

pub use crate::placement::{PLACEMENT_HANDLES_MAX, PlacementHandles, PlacementProperties};
pub use diecut_openchannel::contract::{
    ChunkNotice, ChunkRefusal, ChunkState, ChunkView, ErrorRate, LbaList, LbaRun, ListBits,
};
pub use diecut_openchannel::{ChunkIndex, ChunkShape};
pub use diecut_volume::contract::{PlacementHandle, PlacementTarget, ReclaimGroup};
pub use diecut_zoned::contract::{ReportRequest, ZoneDescriptor, ZoneReport};
pub use diecut_zoned::states::{ZoneAction, ZoneRefusal, ZoneState};
pub use diecut_zoned::{CHANGED_ZONES_MAX, ChangedZones};

/// A namespace of the whole server, whatever subsystem shows it and under whatever NSID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceId(pub u32);

/// Chosen by the door, returned with the completion. Unique among the door's commands under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandToken(pub u64);

/// Where admission keeps fairness: one value per source of commands (a connection, another door's queue).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

/// A range of logical blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LbaRange {
    /// First logical block.
    pub first_lba: u64,
    /// Number of logical blocks; 0 means an empty range.
    pub lba_count: u32,
}

/// One command to a namespace.
#[derive(Debug)]
pub struct NamespaceCommand {
    /// Comes back with the completion.
    pub token: CommandToken,
    /// Which namespace.
    pub namespace: NamespaceId,
    /// Who asks, for fairness and statistics.
    pub source: SourceId,
    /// When the command was complete in the door (received), for latency statistics.
    pub arrived: Time,
    /// What to do.
    pub operation: NamespaceOperation,
}

/// What a host can ask. Buffers hold logical blocks as they travel: `lba_count * lba_size_bytes` bytes in
/// content mode `Bytes`, 8 bytes per 4096 in content mode `Tags`.
#[derive(Debug)]
pub enum NamespaceOperation {
    /// Reads logical blocks. The completion carries them in `data`.
    Read {
        /// Range to read, at least one block.
        range: LbaRange,
        /// Receives the content; taken from the door's pool, exactly as long as the range.
        destination: BufferMut,
    },
    /// Writes logical blocks.
    Write {
        /// Range to write, at least one block.
        range: LbaRange,
        /// The content, exactly as long as the range.
        data: Buffer,
        /// Durable against power cuts before completion.
        force_unit_access: bool,
        /// Where it goes on the vSSD; of a namespace without handles to the first one.
        placement: PlacementTarget,
    },
    /// Makes everything that completed before durable against power cuts.
    Flush,
    /// Deallocates ranges (Dataset Management, attribute deallocate).
    Deallocate {
        /// Ranges in any order; they may overlap, and empty ones do nothing.
        ranges: SmallVec<[LbaRange; 2]>,
    },
    /// Makes a range read as zeros.
    WriteZeroes {
        /// Range, at least one block.
        range: LbaRange,
        /// The host allows the blocks to be deallocated (DEAC).
        may_deallocate: bool,
        /// Durable against power cuts before completion.
        force_unit_access: bool,
    },
    /// Compares logical blocks with `data`.
    Compare {
        /// Range to compare, at least one block.
        range: LbaRange,
        /// Expected content, exactly as long as the range.
        data: Buffer,
    },
    /// Copies logical blocks within the namespace.
    Copy(Box<NamespaceCopy>),
    /// Makes reads of a range fail, until it is written, deallocated or zeroed.
    WriteUncorrectable {
        /// Range, at least one block.
        range: LbaRange,
    },
    /// Checks that a range can be read, without giving its content.
    Verify {
        /// Range, at least one block.
        range: LbaRange,
    },
    /// Erases what is no longer there for hosts: nothing of the vSSD below that was deallocated, overwritten or zeroed, in this namespace
    /// or in others on the same vSSD, before this began can be found on flash or in protected memory any more when it is answered. What
    /// is there for hosts stays as it is. May take long; several at once are each answered. A kind that cannot do it answers
    /// [`NamespaceError::InvalidField`]; a medium that cannot go on [`NamespaceError::ReadOnly`], [`NamespaceError::NoRoom`] or
    /// [`NamespaceError::NotReady`]; one on which something stays that cannot be erased [`NamespaceError::NotErased`].
    Purge,
    /// What only namespaces with zones can do.
    Zone(ZoneRequest),
    /// What only namespaces of chunks can do.
    Chunk(ChunkRequest),
}

/// What a host can ask of chunks. Logical blocks are named by addresses of [`ChunkShape`].
#[derive(Debug)]
pub enum ChunkRequest {
    /// Reads logical blocks of any chunks. The completion carries them in `data`.
    Read {
        /// What is read.
        lbas: LbaList,
        /// Receives the content, exactly as long.
        destination: BufferMut,
    },
    /// Writes whole program units at write pointers. What is answered is on flash.
    Write {
        /// Where.
        lbas: LbaList,
        /// The content, exactly as long.
        data: Buffer,
    },
    /// Makes chunks free, each named by one of its logical blocks.
    Reset {
        /// Which.
        lbas: LbaList,
    },
    /// Makes chunks free, whatever they are: one that is being written when that is over. One that is offline stays so, and what it held is
    /// given back.
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
        /// Where it is written.
        to: LbaList,
    },
    /// Says how chunks are.
    Report {
        /// The first one.
        first: u32,
        /// The most chunks to report.
        count_max: u32,
    },
}

/// What a host can ask of zones. A zone is named by its first logical block.
#[derive(Debug)]
pub enum ZoneRequest {
    /// Writes at the write pointer of a zone. The completion says where.
    Append {
        /// First logical block of the zone.
        zone_lba: u64,
        /// Logical blocks to write, at least one.
        lba_count: u32,
        /// The content, exactly as long as the range.
        data: Buffer,
    },
    /// Changes the state of one zone, or of all that it concerns.
    Act {
        /// First logical block of the zone; `None`: all.
        zone_lba: Option<u64>,
        /// What is asked.
        action: ZoneAction,
    },
    /// Gives an empty zone a descriptor extension.
    Extend {
        /// First logical block of the zone.
        zone_lba: u64,
        /// The extension, as long as [`ZoneProperties::extension_size_bytes`] says.
        extension: Vec<u8>,
    },
    /// Commits a random write area up to a logical block, with that block.
    Commit {
        /// The last logical block.
        last_lba: u64,
    },
    /// Says how zones are.
    Report(ReportRequest),
}

/// What the completion of a command to zones or chunks has besides.
#[derive(Debug)]
pub enum ZoneOutcome {
    /// First logical block that an append wrote.
    Appended(u64),
    /// How zones are.
    Report(Box<ZoneReport>),
    /// How chunks are.
    Chunks(Vec<ChunkView>),
    /// Which logical blocks of its list a command to chunks failed for. The content of a read then has zeroes for them, if it is there.
    Failed(ListBits),
    /// Which logical blocks of its list a read of chunks found hard to read: they are to be written elsewhere.
    Strained(ListBits),
}

/// Ranges that one copy may have.
pub const COPY_RANGES_MAX: u32 = 128;
/// Logical blocks that one copy may have, in one range or several.
pub const COPY_LBAS_MAX: u32 = 256;

/// What the sources hold when the copy is carried out is written, one behind the other; durable as a write is. Where sources and
/// destination overlap, all of it is read before any of it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceCopy {
    /// What is read, in this order: 1 to [`COPY_RANGES_MAX`] ranges of at least one block, and [`COPY_LBAS_MAX`] blocks at most.
    pub sources: SmallVec<[LbaRange; 2]>,
    /// First logical block that is written.
    pub first_lba: u64,
    /// Durable against power cuts before completion.
    pub force_unit_access: bool,
    /// As for a write.
    pub placement: PlacementTarget,
}

impl NamespaceCopy {
    /// What is written.
    pub fn destination(&self) -> LbaRange {
        let lbas: u64 = self.sources.iter().map(|source| u64::from(source.lba_count)).sum();
        LbaRange { first_lba: self.first_lba, lba_count: u32::try_from(lbas).unwrap_or(u32::MAX) }
    }
}

/// Why a namespace refused or failed, in words of no transport. `nvmf` alone turns them into status codes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// The range ends beyond the namespace.
    #[error("the range ends beyond the namespace of {size_lbas} logical blocks")]
    LbaOutOfRange {
        /// Size of the namespace.
        size_lbas: u64,
    },
    /// A field of the command cannot be used here.
    #[error("{what}")]
    InvalidField {
        /// What is wrong.
        what: &'static str,
    },
    /// The content differs from what the host expected.
    #[error("compare failure")]
    CompareFailure,
    /// Data was lost on the medium.
    #[error("logical block {lba}: unrecovered read error")]
    Unrecovered {
        /// First logical block that is lost.
        lba: u64,
    },
    /// No space left for new data.
    #[error("capacity exceeded: the pool is full")]
    CapacityExceeded,
    /// The device has no room for new data at present, whatever the pool has; it may have some later.
    #[error("no room: {reason}")]
    NoRoom {
        /// Why.
        reason: &'static str,
    },
    /// The namespace takes no more writes.
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
    /// A zone refuses.
    #[error("{0}")]
    Zone(ZoneRefusal),
    /// A chunk refuses.
    #[error("{0}")]
    Chunk(ChunkRefusal),
    /// There is no such namespace (any more).
    #[error("no such namespace")]
    NoSuchNamespace,
    /// The command was given up, because whoever asked wants no answer any more: it was not done, or only some of its blocks.
    #[error("aborted")]
    Aborted,
    /// The namespace cannot serve now; the host may try again.
    #[error("not ready")]
    NotReady,
    /// Something inside failed.
    #[error("internal error: {reason}")]
    Internal {
        /// What.
        reason: &'static str,
    },
}

/// The answer to one command.
#[derive(Debug)]
pub struct NamespaceCompletion {
    /// The command's token.
    pub token: CommandToken,
    /// Whether it worked.
    pub result: Result<(), NamespaceError>,
    /// The content of a read; of one that failed, what [`ZoneOutcome::Failed`] leaves of it.
    pub data: Option<Buffer>,
    /// What an append, or a report of zones or chunks gives, and where a command to chunks failed.
    pub zones: Option<ZoneOutcome>,
}

impl NamespaceCompletion {
    /// The answer to a command that gives no content.
    pub fn without_data(token: CommandToken, result: Result<(), NamespaceError>) -> NamespaceCompletion {
        NamespaceCompletion { token, result, data: None, zones: None }
    }
}

/// What a namespace says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceProperties {
    /// Logical blocks a host may address.
    pub size_lbas: u64,
    /// Logical blocks that can be allocated at once.
    pub capacity_lbas: u64,
    /// Logical blocks that hold data now (thin volumes; NUSE).
    pub used_lbas: u64,
    /// log2 of the logical block size in bytes: 9 or 12.
    pub lba_size_log2: u8,
    /// Largest transfer of one command in logical blocks.
    pub transfer_max_lbas: u32,
    /// A host must flush to be safe from power cuts.
    pub volatile_cache: bool,
    /// Preferred write granularity and alignment in logical blocks (NPWG, NPWA).
    pub preferred_write_lbas: u32,
    /// Whether the namespace takes no writes.
    pub read_only: bool,
    /// What its zones are like, if it has zones.
    pub zones: Option<ZoneProperties>,
    /// Which reclaim unit handles it has, if its hosts can choose among them.
    pub placement: Option<PlacementProperties>,
    /// What its chunks are like, if it has chunks.
    pub chunks: Option<ChunkProperties>,
    /// Whether it can erase what is no longer there ([`NamespaceOperation::Purge`]). Only what all namespaces of a subsystem can is
    /// offered to hosts.
    pub purges: bool,
}

/// What the chunks of a namespace are like (Open-Channel 2.0, geometry). Times are those of one operation, in nanoseconds; 0: unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkProperties {
    /// Groups, parallel units, chunks, and how they are written.
    pub shape: ChunkShape,
    /// Reading a page.
    pub read_ns: u32,
    /// Programming a program unit.
    pub write_ns: u32,
    /// Erasing an erase block.
    pub reset_ns: u32,
}

/// What the zones of a namespace are like (NVMe Zoned Namespace Command Set 1.1, section 4.1.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneProperties {
    /// log2 of the logical blocks from the start of a zone to that of the next one.
    pub size_lbas_log2: u32,
    /// Logical blocks that a zone holds.
    pub capacity_lbas: u32,
    /// Zones that may be active at once.
    pub active_max: u32,
    /// Zones that may be open at once.
    pub open_max: u32,
    /// Logical blocks of a random write area; 0: zones have none.
    pub random_lbas: u32,
    /// A commit takes a multiple of so many logical blocks.
    pub commit_lbas: u32,
    /// A write is a multiple of so many logical blocks.
    pub write_lbas_min: u32,
    /// Bytes of a descriptor extension; 0: zones have none.
    pub extension_size_bytes: u32,
}

impl ZoneProperties {
    /// Logical blocks from the start of a zone to that of the next one.
    pub const fn size_lbas(&self) -> u64 {
        1 << self.size_lbas_log2
    }
}
