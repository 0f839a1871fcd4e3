//! Drives that hide their flash (files, block devices, remote namespaces) as media of the flash contract.
//!
//! Place in the flow: beside `emulator`, at the bottom. A [`DriveMedium`] turns commands into [`diecut_media::Intent`]s, bytes at an offset;
//! who drives it carries them out: the reactor on the operating system, the simulator on a model of a drive. A [`DriveShape`] says
//! how a drive is cut into lanes and erase blocks, and a [`Label`] on the drive says whose it is.
//!
//! Invariants (numbered in `docs/invariants/drives.md`)
//! - What is read was answered before, or is refused: nothing overtakes a program to its erase block.
//! - A flush covers what was answered before it, and one that failed is not asked again.
//! - The first and the last MiB of a drive belong to no erase block.
//!
//! Not known here: who holds an erase block, what lies in it, files, the operating system, the clock.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod asked;
mod block;
mod discards;
mod flushes;
mod label;
mod lane;
mod medium;
mod pool;
mod shape;
mod zones;
mod zoning;

pub use label::{DEVICES_MAX, Label, LabelCopy, LabelDevice, LabelError, Membership};
pub use medium::DriveMedium;
pub use pool::{PoolError, PoolOpening, View, list_with, list_without, open_pool};
pub use shape::{DieCut, DriveShape, ShapeError, WantedCut};
pub use zoning::{LabelZones, PLACES_MIN, ZoneCut, Zoning};
