//! NAND as it behaves, behind the flash contract of `media`, and drives that hide it.
//!
//! Place in the flow: at the bottom. A [`Device`] is made from a [`Profile`] (a TOML file that a user can
//! copy) and [`Options`]. It keeps the flash rules, takes the time that dies, channel buses, controller and host link
//! need on an exact event calendar (or, unpaced, none), and fails as its [`FaultPlan`] says. Content lies in memory, in
//! a sparse file (mapped, or written and synced), or is replaced by tags. A [`drive::Drive`] is the model of a drive with a volatile
//! cache: it carries out the intents of a medium in virtual time.
//!
//! Invariants (numbered in `docs/invariants/emulator.md`)
//! - A broken flash rule panics: it is the submitter's bug. Everything else is a value.
//! - An effect takes place when the array is done, in the order of submission for each erase block.
//! - One seed and one sequence of calls give one run, bit for bit.
//!
//! Not known here: LBAs, maps, tenants, hosts, the clock.

#![deny(clippy::unwrap_used)]

mod accept;
mod block;
mod bus;
mod calendar;
mod cells;
mod command;
mod device;
mod die;
mod divide;
pub mod drive;
mod engine;
mod error;
mod failures;
mod fault;
mod frontend;
mod mapping;
mod nand;
mod options;
mod profile;
mod raw;
mod rooms;
mod rot;
mod statistics;
mod store;
mod syncs;
mod timing;

pub use device::Device;
pub use error::DeviceError;
pub use fault::*;
pub use mapping::tell_of_bus_errors;
pub use options::*;
pub use profile::*;
pub use raw::HardRead;
pub use statistics::DieStatistics;
pub use store::disk::{FileChange, FileChanges, SyncFile};
pub use store::room::{Room, RoomSupport};
pub use store::room_queue::RoomWorker;
