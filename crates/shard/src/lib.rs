//! The composition: one core's share of the system. A shard owns channels, dies, vSSDs, logs, volumes,
//! namespaces, the target's state, the admission scheduler and the catalog, and wires them together.
//!
//! Sans-IO: `reactor` drives it with sockets and the monotonic clock, `sim` with virtual time. What they
//! exchange with it is [`drive`]; what an administrator asks is [`control`].
//!
//! The way of a command: bytes -> target -> admission (`admission`) -> namespaces -> stores, pool and device (`flash`),
//! and back. One call of [`drive::Drive::work`] goes that way a bounded number of times.
//!
//! Invariants
//! - A command passes admission exactly once and is counted there until it is answered. One that is larger than a piece
//!   takes a turn for each piece.
//! - Nothing here waits: what must wait is a queue with an owner and a deadline.
//!
//! Not known here: sockets, threads, the clock.

mod admission;
pub mod control;
mod cost;
pub mod drive;
mod execute;
mod flash;
mod lead;
mod ledger;
mod member;
pub mod null;
mod peer;
mod plan;
mod reach;
mod shard;
mod status;

pub use admission::{AdmissionConfig, DOOR_SOURCE_BIT};
pub use cost::CostModel;
/// Emulated devices, for those who make the device that a shard runs on.
pub use diecut_emulator as emulator;
pub use diecut_volume::CheckpointPace;
pub use diecut_vssd::{DiePlacement, PoolConfig};
pub use shard::{Seat, Shard, ShardConfig, divide, gather};
