//! The words every room shares: addresses and geometry of flash, time, checksums, and the one
//! refcounted buffer handle that carries a payload from socket to media.
//!
//! Place in the flow: below everything. It knows nothing of media, hosts or tenants and does no I/O.
//!
//! Invariants
//! - An index is a newtype; a size names its unit last (`page_size_bytes`).
//! - Time is a value ([`Time`], nanoseconds); nothing here reads a clock.
//! - A byte range of a buffer has either one writer ([`BufferMut`]) or many readers ([`Buffer`]), never both.

#![deny(clippy::unwrap_used)]

mod address;
mod buffer;
mod checksum;
mod geometry;
mod huge_pages;
pub mod marks;
mod payload;
mod pool;
mod prefetch;
mod protected;
mod slab;
pub mod sync;
mod text;
mod time;
pub mod token;

pub use address::{BlockIndex, ChannelIndex, DieAddress, DieIndex, EraseBlockAddress};
pub use buffer::{Buffer, BufferLoan, BufferMut};
pub use checksum::{checksum, checksum_append};
pub use geometry::{Geometry, GeometryError};
pub use huge_pages::prefer_huge_pages;
pub use payload::{ContentMode, Payload};
pub use pool::BufferPool;
pub use prefetch::prefetch;
pub use protected::{ProtectedMemory, ProtectedRegion};
pub use slab::{Slab, StampedSlab};
pub use text::{Shown, changes_a_line};
pub use time::{Span, Time};

/// Size of an indirection unit (IU): what one map entry maps, in bytes.
pub const IU_SIZE_BYTES: usize = 4096;

/// Size of the self-describing tag that replaces one IU's content in tag mode, in bytes.
pub const TAG_SIZE_BYTES: usize = 8;
