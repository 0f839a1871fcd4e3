//! The words of the control interface: figures, refusals, routes, and the TOML file that declares a
//! whole set-up. What is asked for is specified in `spec`. The server (`daemon`), the command line (`cli`) and programs of users share them.
//!
//! Place in the flow: beside the data path. It knows no shard, no socket and no clock; it only encodes and
//! decodes. Requests travel as HTTP with JSON bodies over a local Unix socket (routes in [`route`]).

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

pub mod difference;
pub mod lacking;
pub mod object;
pub mod panics;
pub mod place;
pub mod problem;
pub mod route;
pub mod setup;
mod setup_device;
mod setup_error;
pub mod socket;
pub mod status;
