//! The log: random writes become sequential ones on the erase blocks of a vSSD.
//!
//! Place in the flow: under `volume`, above `vssd`. IUs are appended to chunks in staging slots; a chunk is
//! programmed whole, its head first; segments (one erase block on every unit of the stripe) are cleaned and freed.
//!
//! [`Log`] wires owners: `writer` appends, with `segments` (states, live counts), `staging` (slots and their chunks), `supply` (erase
//! blocks opened ahead) and `anchors` (when one is needed, and what it covers); `cleaner` copies what lives in victims through the
//! writer. `format` is what stands on the medium.
//!
//! Invariants
//! - The order of appends (the *sequence*, global to a store) is the order in which the map changes. A cleaner copy
//!   is appended only if its tag is live at the old place at that moment, so a copy never overtakes newer data.
//! - A slot is emptied only when its chunk is programmed and safe from `unsafe_units`.
//! - A segment is freed only when everything appended before its last copy is durable, no read is under way in it,
//!   and no note in it is newer than the last anchor.
//! - A map chunk is programmed only when all entries before it are durable: a leaf never points to what a power
//!   cut could take.
//!
//! Not known here: volumes, LBAs, hosts, the clock. Owner tags and notes are opaque.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod address;
mod anchors;
mod cleaner;
mod condition;
mod divisor;
mod fitting;
mod flushes;
mod format;
mod layout;
mod log;
mod owner;
mod placement;
mod policy;
mod purge;
mod reserve;
mod segments;
mod staging;
mod statistics;
mod stream;
mod supply;
mod token;
mod writer;

pub use address::{Check, LogAddress, MapEntry};
pub use fitting::PlacementError;
pub use format::{
    Description, FlushNote, Format, RecoveredChunk, TagForm, anchor, anchor2, any_anchor, chunk, head, mark,
    walk,
};
pub use layout::{Layout, SegmentIndex};
pub use log::{Log, LogConfig};
pub use owner::{Move, Owner};
pub use placement::{
    Placement, PlacementHandle, PlacementIsolation, PlacementTarget, ReclaimGroup, UnitReference,
};
pub use purge::PurgeError;
pub use segments::NO_BLOCK;
pub use staging::SLOT_HEADER_SIZE_BYTES;
pub use statistics::{HandleStatistics, LogStatistics};
pub use stream::{PerKind, Stream, StreamKind, Streams};
pub use supply::PURPOSE_SEGMENT;
pub use token::{TOKEN_NOBODY, TOKEN_USER, is_for_user};
pub use writer::Appended;
