//! What the store of files stands on: the erase blocks of a vSSD over shared memory, or the zones of a namespace over NVMe/TCP.
//!
//! Both are written from their start to their end and given back as a whole, so one store of files serves both. A zone is named as an erase
//! block of unit 0 whose number is that of the zone.

mod connection;
mod copies;
mod erase_blocks;
mod error;
mod fence;
mod finding;
mod table;
mod zones;

pub use erase_blocks::attach_held;
pub use error::ZonesError;
pub use zones::Zones;

use diecut_blockspace::wire::{HeldRecord, Shape};
use diecut_blockspace::{AttachError, BlockError, LogicalBlock, Purpose, UnitIndex};
use std::path::Path;
use std::sync::Arc;

/// Erase blocks, or zones, that this process holds. All calls may be made from any number of threads at once.
pub trait Medium: Send + Sync {
    /// Shape of each, and how many independent units there are.
    fn shape(&self) -> Shape;

    /// Most bytes of one append: whole program units.
    fn append_max_bytes(&self) -> usize;

    /// Most appends of one [`Medium::append_all`].
    fn side_by_side(&self) -> usize;

    /// How many may be written side by side: those that were appended to and neither filled nor closed nor freed.
    fn open_max(&self) -> usize;

    /// All that are held, with the purpose they were allocated for.
    ///
    /// # Errors
    /// The server is gone.
    fn held_blocks(&self) -> Result<Vec<HeldRecord>, BlockError>;

    /// Says, once after attaching, which are still needed. All others are freed, durably.
    ///
    /// # Errors
    /// One of them is not held (nothing is freed then), or the server is gone.
    fn keep(&self, blocks: &[LogicalBlock]) -> Result<(), BlockError>;

    /// Takes one of a unit.
    ///
    /// # Errors
    /// [`diecut_blockspace::wire::Status::NoFreeBlock`] and others, or the server is gone.
    fn allocate(&self, unit: UnitIndex, purpose: Purpose) -> Result<LogicalBlock, BlockError>;

    /// Appends whole program units; those to one block in their order. Gives the first byte's place in its block for each, or why it
    /// failed. What succeeded is durable.
    ///
    /// # Errors
    /// The server is gone.
    fn append_all(&self, appends: &[Append<'_>]) -> Result<Vec<Result<u64, BlockError>>, BlockError>;

    /// Whether [`Medium::copy`] is of use.
    fn can_copy(&self) -> bool;

    /// Appends what lies elsewhere on the medium, one span behind the other and whole program units in all, without bringing it here. Gives how
    /// many bytes were appended, counted from the first one on; they are durable. If these are not all, a copy failed, and the block
    /// takes no more appends.
    ///
    /// # Errors
    /// The server is gone, or another application holds the medium.
    fn copy(&self, block: LogicalBlock, sources: &[Span]) -> Result<u64, BlockError>;

    /// Reads whole IUs (4096 bytes) from `offset_bytes` on.
    ///
    /// # Errors
    /// [`diecut_blockspace::wire::Status::Uncorrectable`], [`diecut_blockspace::wire::Status::Erased`] behind the last append, and others.
    fn read(&self, block: LogicalBlock, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), BlockError>;

    /// Nothing is appended to it any more. Where its last append ended may be forgotten.
    ///
    /// # Errors
    /// The server is gone.
    fn close(&self, block: LogicalBlock) -> Result<(), BlockError>;

    /// Gives one back. Until the next [`Medium::sync`], a power cut may bring it back with all it held.
    ///
    /// # Errors
    /// It is not held, or the server is gone.
    fn free(&self, block: LogicalBlock) -> Result<(), BlockError>;

    /// Waits until all allocations and frees before it are durable.
    ///
    /// # Errors
    /// The server is gone.
    fn sync(&self) -> Result<(), BlockError>;

    /// How many of a unit are free, and how many it has.
    ///
    /// # Errors
    /// There is no such unit, or the server is gone.
    fn blocks_of_unit(&self, unit: UnitIndex) -> Result<(u32, u32), BlockError>;
}

/// Bytes to append to a block: whole program units.
#[derive(Clone, Copy, Debug)]
pub struct Append<'a> {
    /// Where.
    pub block: LogicalBlock,
    /// What.
    pub bytes: &'a [u8],
}

/// Whole IUs (4096 bytes) that are together on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where.
    pub block: LogicalBlock,
    /// The first byte, within the block.
    pub offset_bytes: u64,
    /// How many bytes.
    pub length_bytes: u64,
}

/// Why there is nothing to stand on.
#[derive(Debug, thiserror::Error)]
pub enum MediumError {
    /// Erase blocks.
    #[error(transparent)]
    Blocks(#[from] AttachError),
    /// Zones.
    #[error(transparent)]
    Zones(#[from] ZonesError),
}

/// Attaches to what two words name: a vSSD at the socket of a server (`blocks.sock`), or a subsystem's NQN at an address
/// (`127.0.0.1:4420`). `NQN/2` means namespace 2 of the subsystem, which is needed where it has more than one that is zoned. An address has a
/// colon and no slash.
///
/// Waits up to two seconds for an application before that just died. The host NQN is that of the environment variable `DIECUT_HOST_NQN`.
///
/// # Errors
/// See [`MediumError`].
pub fn attach(name: &str, place: &str) -> Result<Arc<dyn Medium>, MediumError> {
    if place.contains(':') && !place.contains('/') {
        Ok(Arc::new(Zones::attach(place, name)?))
    } else {
        Ok(Arc::new(attach_held(Path::new(place), name)?))
    }
}
