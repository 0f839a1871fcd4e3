//! Words that every part of the store has in common.

use diecut_units::IU_SIZE_BYTES;

/// Number of an inode, for as long as it exists; numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// Most bytes of a name within its folder.
pub const NAME_MAX_BYTES: usize = 255;

/// Bytes of an indirection unit, as offsets and lengths of files count them.
pub(crate) const IU: u64 = IU_SIZE_BYTES as u64;

/// Content of one IU in memory.
pub(crate) type Page = Box<[u8; IU_SIZE_BYTES]>;

/// Streams: blocks that are open side by side, by how long what is in them is thought to live.
pub(crate) const STREAMS: usize = COLD + 1;
/// The cleaner's stream; those before it are those of the hints.
pub(crate) const COLD: usize = 5;

/// How many hints there are: 0 up to one less.
pub const HINTS: u8 = COLD as u8;
