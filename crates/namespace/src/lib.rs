//! Namespaces: what a host sees and its rules, in words that know no transport. All doors speak
//! [`contract`], so a feature is written once.
//!
//! Place in the flow: under `nvmf` and the other doors (entered through the admission scheduler of `shard`),
//! above `volume`, `zoned` and `openchannel`. A command is checked here, turned into commands of one volume, and answered when the last
//! of them is; statistics and latency histograms are aggregated on the way out.
//!
//! A large command goes to its volume in pieces (`piece.rs`), each when the caller asks for it, so that admission can
//! let others go between; it is answered when all are.
//!
//! What stands below a namespace is behind one trait (`backend.rs`): a volume, zones or chunks on erase blocks, or nothing for benchmarks.
//!
//! Start with [`Namespaces::submit`] (`namespaces.rs`), then `backend/volume.rs` and `pending.rs`.
//!
//! Invariants
//! - Every command is answered exactly once, with its token, whatever its volume says.
//! - A volume sees only ranges within it, buffers as long as their range, and no write to a read-only namespace.
//! - Nothing is allocated per command once the slab of pending commands has grown to the depth in use.
//! - Bytes of a reused buffer never reach a host: a read completes with what the volume filled, or with zeros.
//!
//! Logical blocks are 4096 bytes (one IU). Compare reads its range once and compares: with respect to concurrent
//! writes it is as atomic as a read of the same range, which is what NVMe asks of a Compare that is not fused. One
//! logical block is atomic (AWUN and AWUPF are 0); pieces are whole blocks. A write that fails, or that a power cut
//! stops, may have written some of its blocks, except that a volume's lack of room refuses all of it where writes are
//! kept whole ([`Namespaces::set_whole_writes`]).
//!
//! Not known here: queues, NSIDs, status codes, tenants, erase blocks, the clock (time arrives as a value).

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod backend;
mod chunks;
pub mod contract;
mod definition;
mod namespaces;
mod outputs;
mod pending;
mod piece;
mod placement;
mod statistics;
mod zones;

pub use definition::{Backing, NamespaceDefinition, NullReads, StoreIndex};
pub use namespaces::{MovedNamespace, Namespaces, complete_chunks, complete_zones};
pub use outputs::{Finished, Outputs};
pub use pending::Stamps;
pub use piece::{MAP_PIECE_LBAS, MapRange, READ_PIECE_LBAS, WRITE_PIECE_LBAS};
pub use statistics::{LatencySummary, NamespaceStatistics, OperationStatistics, OtherStatistics};
