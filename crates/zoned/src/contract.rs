//! What `namespace` asks of zones. Counts are IUs (4096 bytes); payloads are in the content mode of the medium. An IU of a namespace has
//! the number of its zone above [`crate::ZoneShape::size_ius_log2`], and its place in the zone below.

use crate::states::{ZoneAction, ZoneRefusal, ZoneState};
use diecut_units::{BufferMut, Payload};

/// The zones of one namespace in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneSetIndex(pub u16);

/// Chosen by the submitter, returned with the completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneToken(pub u64);

/// One command to zones.
#[derive(Debug)]
pub struct ZoneCommand {
    /// Comes back with the completion.
    pub token: ZoneToken,
    /// Whose zones.
    pub set: ZoneSetIndex,
    /// What to do.
    pub operation: ZoneOperation,
}

/// What is written.
#[derive(Clone, Debug)]
pub enum ZoneData {
    /// Content.
    Payload(Payload),
    /// So many IUs of zeros.
    Zeros(u32),
}

impl ZoneData {
    /// Number of IUs.
    pub fn iu_count(&self) -> u32 {
        match self {
            ZoneData::Payload(payload) => payload.iu_count(),
            ZoneData::Zeros(count) => *count,
        }
    }
}

/// IUs of a namespace, in one zone or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneRange {
    /// First IU.
    pub first_iu: u64,
    /// Number of IUs, at least 1.
    pub iu_count: u32,
}

/// Which zones a report has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportRequest {
    /// The first zone that is looked at.
    pub first_zone: u32,
    /// Only zones in this state; `None`: in any.
    pub state: Option<ZoneState>,
    /// The most zones to report.
    pub count_max: u32,
    /// With descriptor extensions.
    pub is_extended: bool,
}

/// What zones can do. Ranges lie within the namespace: whoever asks has checked it.
#[derive(Debug)]
pub enum ZoneOperation {
    /// Reads IUs into `destination`. What was never written reads as zeros.
    Read {
        /// First IU.
        first_iu: u64,
        /// Number of IUs, at least 1.
        iu_count: u32,
        /// Receives the content.
        destination: BufferMut,
    },
    /// Reads and checks checksums without giving the content.
    Verify {
        /// First IU.
        first_iu: u64,
        /// Number of IUs, at least 1.
        iu_count: u32,
    },
    /// Writes at the write pointer of a zone, or into its random write area. Completes when the data survives a power cut.
    Write {
        /// First IU.
        first_iu: u64,
        /// What is written, within one zone.
        data: ZoneData,
    },
    /// Writes at the write pointer, wherever that is; the completion says where.
    Append {
        /// First IU of the zone.
        first_iu: u64,
        /// What is written.
        data: ZoneData,
    },
    /// Writes what the sources hold when they are read, one behind the other, as [`ZoneOperation::Write`] would.
    Copy {
        /// What is read, in this order.
        sources: Vec<ZoneRange>,
        /// First IU that is written, at the write pointer of a zone or in its random write area.
        first_iu: u64,
    },
    /// Completes when everything that completed before it survives a power cut: at once.
    Flush,
    /// Completes when nothing of zones that were reset before, or that was written over in random write areas, in any namespace of the
    /// store, can be found on flash or in protected memory any more.
    Purge,
    /// Changes the state of one zone, or of all that it concerns. Completes when that survives a power cut as far as the state does.
    Act {
        /// First IU of the zone; `None`: all.
        first_iu: Option<u64>,
        /// What is asked.
        action: ZoneAction,
    },
    /// Gives an empty zone a descriptor extension.
    Extend {
        /// First IU of the zone.
        first_iu: u64,
        /// The extension, as long as the namespace says.
        extension: Vec<u8>,
    },
    /// Commits a random write area up to an IU, with that IU.
    Commit {
        /// The last IU.
        last_iu: u64,
    },
    /// Says how zones are.
    Report(ReportRequest),
}

/// Why zones could not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// A zone refuses.
    #[error("zone {zone}: {refusal}")]
    Refused {
        /// Which one; the first one of several.
        zone: u32,
        /// Why.
        refusal: ZoneRefusal,
    },
    /// Without protected memory whole program units are written.
    #[error("a write is a multiple of {unit_ius} logical blocks here: the device has no protected memory")]
    NotWholeUnits {
        /// IUs of a program unit.
        unit_ius: u32,
    },
    /// The data was lost on the medium.
    #[error("IU {iu}: unrecovered read error")]
    Unrecovered {
        /// First IU that is lost.
        iu: u64,
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

/// A zone in a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneDescriptor {
    /// Its number.
    pub zone: u32,
    /// Its state.
    pub state: ZoneState,
    /// IUs before the write pointer.
    pub written_ius: u32,
    /// It has a random write area.
    pub is_random: bool,
    /// Its descriptor extension, if it has one and the report is extended; else only that it has one.
    pub extension: Option<Vec<u8>>,
}

/// What a report says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneReport {
    /// Zones, by number.
    pub zones: Vec<ZoneDescriptor>,
    /// Zones that match, those left out included.
    pub matching: u64,
}

/// What comes with an answer.
#[derive(Debug)]
pub enum ZoneAnswer {
    /// Nothing.
    Done,
    /// The content of a read.
    Content(BufferMut),
    /// The IU that a write or append begins at.
    Written(u64),
    /// How zones are.
    Report(Box<ZoneReport>),
}

/// The answer to one command.
#[derive(Debug)]
pub struct ZoneCompletion {
    /// The command's token.
    pub token: ZoneToken,
    /// Whether it worked.
    pub result: Result<ZoneAnswer, ZoneError>,
}
