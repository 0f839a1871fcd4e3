//! Load for an NVMe/TCP target, in fio's vocabulary, and what it measured.
//!
//! Purpose: `diecut bench` and the fixed benchmark programs ask the same questions with the same code.
//!
//! Place in the flow: above `initiator`, outside of the server. Start with [`LoadSpec`] (what is asked) and [`Job`]
//! (when which command is issued); [`Report`] is what came of it.
//!
//! Invariants
//! - A [`Job`] is pure state: time and seed come as values, so one seed gives one run of commands. Only [`drive`] touches
//!   sockets, threads and the clock, as the reactor does for the server.
//! - An open loop counts latency from the moment a command was due, whether or not it could be issued then: a server
//!   that stands still is not asked less.
//! - Nothing is counted before the ramp is over or after the end.
//! - A warm job allocates nothing per command.
//!
//! It does not know what is behind the subsystem it loads.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod counts;
pub mod drive;
mod job;
mod report;
mod spec;
mod zipf;

pub use job::{Job, Operation};
pub use report::{DirectionReport, Report};
pub use spec::{Arrival, LoadSpec, Pattern, SpecError};
pub use zipf::Zipf;
