//! Volumes: the page maps from a tenant's LBA to a log address; thin, with durable deallocation.
//!
//! Place in the flow: under `namespace`, above `log`. What a namespace asks is [`contract`]; [`Store`] is one vSSD's
//! log with all volumes on it, a state machine without I/O: commands and completions in, completions out.
//!
//! Invariants
//! - The map changes when a record is appended to the log, so append order is map order, also at recovery.
//! - New data is refused with `Full` before anything of it is written; overwrites always go on.
//! - A read gives what its IU's checksum confirms, or an error.
//!
//! Recovery begins at the newest anchor: it reads the leaves of the map that the anchor leads to, walks the chunk heads of what was
//! written since, replays their records in the order of their sequences, and takes over what is left in protected staging.
//!
//! Not known here: hosts, NVMe, other vSSDs, the clock.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod anchoring;
mod changes;
mod config;
pub mod contract;
mod copies;
mod copying;
mod endurance;
pub mod leaf;
mod lent;
mod loss;
mod map;
mod opening;
mod owner_bytes;
mod placing;
mod positions;
mod purging;
mod reads;
mod rest;
mod store;
mod waiting;

pub use anchoring::AnchorPace;
pub use config::{StoreConfig, StoreStatistics};
pub use diecut_log::{
    Format, HandleStatistics, Placement, PlacementError, PlacementHandle, PlacementIsolation,
    PlacementTarget, ReclaimGroup,
};
pub use endurance::EnduranceFigures;
pub use loss::{AcceptedLoss, Findings, LostRange, Missing, Recovery};
pub use store::{HandleFigures, ReclaimUnit, ReclaimUnitUpdate, Store};
