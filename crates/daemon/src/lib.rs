//! The server process around the data path: reads a set-up, opens devices, starts the reactor, and answers
//! the control interface on a Unix socket from a thread of its own.
//!
//! Place in the flow: beside the data path; it talks to shards only through [`control_port::ControlPort`], so
//! that a slow administrator is never felt by a host.
//!
//! Not known here: NVMe, flash, maps.

#![deny(clippy::unwrap_used)]

pub mod add;
pub mod addresses;
mod announcement;
pub mod apply;
mod beside;
mod carrier;
mod clients;
pub mod control_port;
mod convert;
mod device;
mod drive;
mod drives;
mod emulated;
pub mod error;
mod extract;
pub mod folder;
pub mod format;
pub mod health;
mod held;
pub mod http;
mod local;
pub mod log;
pub mod null;
mod opened;
pub mod panics;
mod places;
mod profile;
mod random;
mod recording;
pub mod remote;
mod remote_drive;
pub mod remote_host;
pub mod remove;
mod resources;
pub mod roster;
pub mod serve;
mod shards;
mod signals;
pub mod socket;
mod whole;
