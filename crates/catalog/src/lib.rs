//! The catalog: what exists on a pool, and its log on the media.
//!
//! Place in the flow: beside the data path. `shard` reads it first when it starts, recreates what it names, and appends
//! the new state after each change of an administrator. [`State`] is plain data; [`Catalog`] keeps it on flash.
//!
//! Invariants
//! - Two live copies on different channels (different dies, else different blocks, where there is one channel). Copy B
//!   is written when copy A is complete, so a power cut can hurt one of them only.
//! - Every frame holds the whole state; the newest complete frame wins. A change is there as a whole or not at all.
//! - After opening, each copy goes on in its other erase block: nothing is appended behind a torn frame.
//!
//! Not known here: how vSSDs, volumes or subsystems work; sockets; the clock.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod copy;
mod frame;
mod state;
mod store;

pub use frame::{FRAME_HEADER_SIZE_BYTES, FrameError, decode_frame};
pub use state::{PoolRecord, State, SubsystemRecord, TenantRecord, VolumeRecord, VssdRecord, WearRecord};
pub use store::{CATALOG_TOKEN_BIT, Catalog, CatalogError};

/// Encoders and decoders for the fuzz targets.
#[doc(hidden)]
pub mod fuzz {
    pub use crate::frame::{decode_oob, encode_frame, encode_oob};
}
