use crate::MediaError;
use diecut_units::{Buffer, BufferMut, EraseBlockAddress, Payload};
use smallvec::SmallVec;

/// Chosen by the submitter, returned with the completion. The medium does not look at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediaToken(pub u64);

/// The content of a program unit: consecutive payloads, in order. Several, because in tag mode one unit may
/// hold tags of user data and real bytes of metadata.
pub type PayloadParts = SmallVec<[Payload; 2]>;

/// Content of one writer that is given up at about the same time: what a vSSD writes for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// One command to a medium.
#[derive(Debug)]
pub struct Command {
    /// Comes back with the completion.
    pub token: MediaToken,
    /// What to do.
    pub operation: Operation,
}

/// What a medium is asked to do. IUs and pages are counted within the erase block, in program order.
#[derive(Debug)]
pub enum Operation {
    /// Reads consecutive IUs of one erase block into `destination`, and the OOB areas of all pages touched
    /// into `oob`.
    Read {
        /// Erase block to read.
        block: EraseBlockAddress,
        /// First IU within the block.
        first_iu: u32,
        /// Number of IUs, at least 1, within the block.
        iu_count: u32,
        /// Receives `iu_count` IUs: 4096 bytes each where bytes were programmed or the medium keeps bytes.
        /// On a medium in tag mode: 8 bytes each to read tags, 4096 bytes each to read IUs that were
        /// programmed as bytes. The length says which; a page of the other kind is
        /// [`MediaError::WrongContentMode`].
        destination: BufferMut,
        /// Receives `oob_size_bytes` of each page touched, if wanted; `None` where pages have none.
        oob: Option<BufferMut>,
    },
    /// Reads only the OOB areas of consecutive pages. Only where pages have some ([`diecut_units::Geometry::has_oob`]).
    ReadOob {
        /// Erase block to read.
        block: EraseBlockAddress,
        /// First page within the block.
        first_page: u32,
        /// Receives `oob_size_bytes` of each page; its length says how many.
        oob: BufferMut,
    },
    /// Programs the next units of an erase block.
    Program {
        /// Erase block to program.
        block: EraseBlockAddress,
        /// First page; it must be the block's next page.
        first_page: u32,
        /// Content: one or more whole program units.
        parts: PayloadParts,
        /// OOB areas of all pages programmed; empty where pages have none.
        oob: Buffer,
    },
    /// Erases a block.
    Erase {
        /// Erase block to erase.
        block: EraseBlockAddress,
    },
    /// Copies pages to the next pages of another erase block of the same die, content and OOB; `oob`
    /// replaces the OOB areas if given. Only where [`crate::Capabilities::copy_within_die`] holds.
    Copy {
        /// Erase block to read.
        source: EraseBlockAddress,
        /// First page to read.
        source_page: u32,
        /// Erase block to program, on the same die.
        destination: EraseBlockAddress,
        /// First page to program; it must be the block's next page.
        destination_page: u32,
        /// Whole program units, in pages.
        page_count: u32,
        /// New OOB areas of the copied pages.
        oob: Option<Buffer>,
    },
}

impl Operation {
    /// The erase block whose state decides whether the operation is allowed (the destination of a copy).
    pub fn block(&self) -> EraseBlockAddress {
        match self {
            Operation::Read { block, .. }
            | Operation::ReadOob { block, .. }
            | Operation::Program { block, .. }
            | Operation::Erase { block } => *block,
            Operation::Copy { destination, .. } => *destination,
        }
    }
}

/// The answer to one command.
#[derive(Debug)]
pub struct Completion {
    /// The command's token.
    pub token: MediaToken,
    /// Whether it worked.
    pub result: Result<(), MediaError>,
    /// The destination of a read, filled on success.
    pub destination: Option<BufferMut>,
    /// The OOB destination of a read, filled on success.
    pub oob: Option<BufferMut>,
    /// How often cells were read again before a read could be corrected. 0 of what is no read, and where a medium does not know.
    pub retries: u8,
}

impl Completion {
    /// The answer to a command that brings nothing.
    pub fn plain(token: MediaToken, result: Result<(), MediaError>) -> Completion {
        Completion { token, result, destination: None, oob: None, retries: 0 }
    }
}
