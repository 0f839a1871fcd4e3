//! The catalog: what exists on a pool, and its log on the media.
//!
//! Place in the flow: beside the data path. `shard` reads it first when it starts, recreates what it names, and appends
//! each change of an administrator. [`State`] is plain data, [`Changes`] are the records in which two states differ; [`Catalog`]
//! keeps them on flash.
//!
//! Invariants (docs/invariants/catalog.md)
//! - Two live copies on different channels (different dies, else different blocks, where there is one channel). Copy B
//!   is written when copy A is complete, so a power cut can hurt one of them only.
//! - A block begins with a whole state; changes follow, each naming the state that it changes. A change is there as a whole or not
//!   at all, and the newest state that is there wins.
//! - After opening, each copy goes on in its other erase block: nothing is appended behind a torn frame.
//! - A change writes its own records, not the state; the state is written when a block begins.
//!
//! Not known here: how vSSDs, volumes or subsystems work; sockets; the clock.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod copy;
mod document;
mod error;
mod frame;
mod numbers;
mod older;
mod opening;
mod placement;
mod record;
mod replay;
mod reservation;
mod sanitize;
mod state;
mod store;
mod vssd_record;

pub use copy::CATALOG_TOKEN_BIT;
pub use error::CatalogError;
pub use placement::{PlacementEventRecord, PlacementRecord};
pub use record::Changes;
pub use reservation::{RegistrantRecord, ReservationRecord};
pub use sanitize::SanitizeRecord;
pub use state::{PoolRecord, State, VolumeRecord};
pub use store::Catalog;
pub use vssd_record::{PartRecord, VssdRecord, ZoneRoomRecord};

/// Encoders and decoders for the fuzz targets.
#[doc(hidden)]
pub mod fuzz {
    pub use crate::frame::{
        FRAME_HEADER_SIZE_BYTES, Frame, FrameError, Part, Place, decode_frame, decode_oob, encode_frame,
        encode_oob,
    };
    use crate::{Changes, State};

    /// The records of changes, as they lie in frames.
    pub fn encode_records(changes: &Changes) -> Vec<u8> {
        changes.encode()
    }

    /// The records of a whole state.
    pub fn encode_state(state: &State) -> Vec<u8> {
        state.content().encode()
    }

    /// What records make of a state.
    ///
    /// # Errors
    /// Names the record that cannot be used.
    pub fn apply_records(state: &mut State, records: &[u8]) -> Result<(), String> {
        state.apply_all(records).map_err(|error| error.to_string())
    }

    /// The state that a document of format version 1 describes.
    ///
    /// # Errors
    /// Says what cannot be read.
    pub fn read_document(text: &[u8]) -> Result<State, String> {
        crate::document::read_document(text).map_err(|error| error.to_string())
    }
}
