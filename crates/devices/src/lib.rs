//! Devices of every kind behind one type.
//!
//! Place in the flow: above the media. Whoever opens a device (the server, a recording, a benchmark, an application with a
//! device in its process) makes a [`Device`] here and hands it to `shard` or `vssd` as a [`diecut_media::Media`]. There are
//! two kinds: emulated NAND, in memory or in a file, and drives that hide their flash. [`local`] opens files and block devices of this
//! machine, says what they are and what lies on them, and writes their labels; who drives a shard carries out what a drive asks for. With the
//! feature `file-medium`, tests have another medium that asks its driver for all I/O; it is no [`Device`].
//!
//! Invariants
//! - A command goes to its medium by a `match`, not by a table of functions: another kind costs no command an indirection.
//! - Defaults are those of the kind; this room has none of its own.
//!
//! Not known here: pools, shards, the clock.

#![deny(clippy::unwrap_used)]
#![deny(unsafe_code)]

mod device;
mod error;
#[cfg(feature = "file-medium")]
mod file_medium;
pub mod local;

pub use device::Device;
pub use diecut_drives::{
    DEVICES_MAX, DieCut, DriveMedium, DriveShape, Label, LabelDevice, LabelError, Membership, PoolError,
    PoolOpening, ShapeError, WantedCut, ZoneCut, Zoning, list_with, list_without, open_pool,
};
pub use diecut_emulator::{
    Backing, DieStatistics, Fault, FaultPlan, FaultRates, FaultyDie, FileChange, FileChanges, HardRead,
    OperationKind, Options, Pacing, Profile, ProfileError, Room, RoomSupport, RoomWorker, SyncFile,
    tell_of_bus_errors,
};
pub use error::DeviceError;
#[cfg(feature = "file-medium")]
pub use file_medium::FileMedium;
