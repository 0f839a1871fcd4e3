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
//! # Coverage: what the simulator does not exercise
//!
//! - Two systems are wired up. `transport` is the shipped NVMe/TCP target over a simulated network, with a plain
//!   store as its namespaces; `model` is a model of the whole and only checks the checkers. Media, vSSDs, logs,
//!   volumes, admission and the composition in `shard` are **not** behind [`system::System`] yet: isolation,
//!   software fairness, the cleaner, wear, torn programs and recovery are not simulated here.
//! - Faults of the medium in a plan (program, erase, read failures, silent flips, a die offline) are generated and
//!   stored, but neither system has a medium to give them to.
//! - The two systems cut power between commands, never inside one.
//! - Hosts behave: malformed PDUs, data out of order and corrupted segments are the target's own tests.
//! - One I/O queue per host; no discovery, asynchronous events, keep-alive, abort or controller reset; no
//!   control operations during a run; one volume belongs to one host.
//! - Several shards, the reactor, real sockets and threads.
//!
//! Not known here: sockets, the real clock.

pub mod bank;
pub mod cli;
pub mod generate;
pub mod guard;
pub mod isolation;
pub mod link;
pub mod model;
pub mod mutants;
pub mod network;
pub mod oracle;
pub mod plan;
pub mod replay;
mod replay_cli;
pub mod rerun;
pub mod run;
pub mod set;
pub mod shrink;
pub mod stack;
pub mod system;
pub mod systems;
pub mod tag;
pub mod transport;
