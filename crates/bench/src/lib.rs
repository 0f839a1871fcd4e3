//! Fixed programs that every published ratio is measured against, and the runner behind `make bench`.
//!
//! Place in the flow: outside it. [`raw`] is the floor: sockets and nothing else; [`suite`] measures the server against it.
//! [`costs`] says what commands, messages and connections take of the server's core; [`isolation`] repeats the noisy neighbour on
//! the real clock.
//!
//! Invariants
//! - A baseline is part of the tree and reviewed like the rest; it gets every trick the server gets.
//! - A ratio is taken in one run, both sides alternating; absolute figures of two runs are never compared.
//! - What cannot be measured on a machine is reported as not available, never guessed.
//!
//! It does not know the rooms of the server beyond their public entry points.
#![deny(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "measures real time on real threads")]

pub mod affinity;
pub mod costs;
pub mod counted;
mod flood;
pub mod instructions;
pub mod isolation;
pub mod raw;
pub mod suite;
