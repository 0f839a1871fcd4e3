//! Open-Channel namespaces: the erase blocks of a vSSD as chunks, which a host writes, reads and resets by their address.
//!
//! Place in the flow: under `namespace`, above `vssd`. What a namespace asks is [`contract`]; [`ChunkStore`] is one vSSD with its chunks, a
//! state machine without I/O: commands and completions in, completions out. A chunk is one erase block. There is no map, no log, no cleaner and
//! no staging: a write is a program, and it is answered when that is on flash.
//!
//! Invariants
//! - A write pointer after a cut is that of the last write before it that was answered, or of one that was on its way; on a medium where a
//!   program puts those before it at risk, not more than so many program units before it.
//! - A chunk that was reset is free, or has all that it had.
//! - A read gives what its IU's checksum confirms, or an error.
//!
//! The invariants that asserts name are in `docs/invariants/openchannel.md`.
//!
//! Not known here: hosts, NVMe, other vSSDs, the clock.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod chunk;
mod clearing;
pub mod contract;
mod feedback;
mod mark;
mod opening;
mod operations;
mod reads;
mod room;
mod shape;
mod store;
mod token;
mod writer;

pub use room::ChunkRoom;
pub use shape::{ChunkIndex, ChunkShape};
pub use store::{ChunkDefinition, ChunkStatistics, ChunkStore};
