//! Zoned namespaces on erase blocks: a zone is one erase block on each unit of its width, written from its start to its end.
//!
//! Place in the flow: under `namespace`, above `vssd`. What a namespace asks is [`contract`]; [`ZoneStore`] is one vSSD with all zoned
//! namespaces on it, a state machine without I/O: commands and completions in, completions out. There is no map and no cleaner: where an
//! IU lies follows from its number, and what hosts write is programmed once.
//!
//! Invariants
//! - A write is answered when it survives a power cut: in staging, in protected memory, or on flash.
//! - The write pointer after a cut is that of the last write before it that was answered, or of one that was on its way.
//! - A zone that was reset is gone as a whole, or not at all.
//! - What a power cut can destroy on flash, because its word line is programmed again, is in staging until it cannot any more.
//! - A read gives what its IU's checksum confirms, or an error.
//!
//! What the two parts are: [`states`] knows states, limits and write pointers as values; the others carry out what it decides.
//! The invariants that asserts name are in `docs/invariants/zoned.md`.
//!
//! Not known here: hosts, NVMe, other vSSDs, the clock.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod changed;
pub mod contract;
mod copies;
mod journal;
mod lent;
mod mark;
mod opening;
mod operations;
mod purging;
mod reads;
mod relocation;
mod retiring;
mod room;
mod set;
mod shape;
mod slot;
mod staging;
pub mod states;
mod store;
mod token;
mod writer;
mod zone;

pub use changed::{CHANGED_ZONES_MAX, ChangedZones};
pub use room::ZoneRoom;
pub use set::ZoneSetDefinition;
pub use shape::ZoneShape;
pub use store::{ZoneStatistics, ZoneStore};
