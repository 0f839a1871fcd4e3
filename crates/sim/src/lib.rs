//! The simulator: the whole system in virtual time, with everything that can go wrong, and checkers outside it
//! that know what a host may see.
//!
//! Place in the flow: above everything but `reactor`; nothing depends on it. It drives what ships.
//!
//! One run: a seed becomes a [`plan`] (tenants, their steps, faults: data from here on); [`run`] plays it against
//! a [`system`] on a clock that jumps to the next deadline; the [`oracle`] keeps the set of allowed values of
//! every IU, and [`tag`]s in the payloads tell stale, foreign, torn and misdirected data apart. [`guard`] turns
//! asserts into findings, runs twice, cuts the power at every operation; [`shrink`] makes a failing plan small.
//!
//! Invariants
//! - One plan replays one run, bit for bit: nothing random happens after the plan but what its seed decides.
//! - A run is single-threaded; a set of runs may use threads, each run on one.
//! - The oracle never asks the system what is right.
//!
//! Not known here: sockets, the real clock.

pub mod bank;
pub mod cli;
pub mod generate;
pub mod guard;
pub mod link;
pub mod model;
pub mod mutants;
pub mod network;
pub mod oracle;
pub mod plan;
pub mod run;
pub mod set;
pub mod shrink;
pub mod system;
pub mod systems;
pub mod tag;
pub mod transport;
