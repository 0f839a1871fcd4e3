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
//! # The system
//!
//! [`stack`] is the whole: hosts with the shipped initiator (`hosts`) over [`network`] pipes that cut, delay and lose,
//! one to four shipped shards with queues between them ([`plan::SystemPlan::shards`]; target, admission, namespaces, volumes,
//! logs, pool, catalog), and the emulated device with faults of the medium and power cuts at any of its operations (with
//! several shards: after any round of one that began it). A plan can let commands in through a `door` below the target
//! instead, where bugs that need no network are found faster. [`model`] is a model of the whole: it checks the checkers.
//!
//! With [`plan::SystemPlan::drives`] there is one shard over models of drives that hide their flash (`drives`): hosts are told of their volatile
//! caches, and a cut takes any subset of the sectors that no flush covers, of each drive for itself. vSSDs lie on one of them or on several; drives
//! go while they are served, do not answer for a while, change places, and are missing at a start.
//!
//! In every fourth seed one or two vSSDs are used by applications at erase blocks ([`plan::ApplicationPlan`]): `attachments` hands their
//! entries to the shards as the reactor does, [`holdings`] knows what they must find.
//!
//! # Experiments
//!
//! [`isolation`] is a reader beside a noisy neighbour; [`repro`] runs published experiments again, beside what was published.
//!
//! # Coverage: what the simulator does not exercise
//!
//! - Hosts behave: malformed PDUs, data out of order and corrupted segments are the target's own tests.
//! - Administrators change what exists during traffic ([`administration`], checked by [`existing`]), one at a time.
//! - No discovery; one volume belongs to one host.
//! - The reactor, real sockets, threads, and rings in shared memory.
//!
//! Not known here: sockets, the real clock.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)]

pub mod administration;
mod attachments;
pub mod bank;
mod carrier;
pub mod cli;
pub mod complete;
mod direct_door;
mod door;
mod drives;
pub mod erasure;
pub mod existing;
mod failures;
pub mod generate;
pub mod guard;
pub mod holdings;
mod hosts;
pub mod isolation;
mod memory_file;
pub mod model;
pub mod monitored;
pub mod mutants;
pub mod network;
pub mod openchannel;
pub mod oracle;
pub mod output;
pub mod placed;
pub mod plan;
pub mod relocation;
pub mod replay;
mod replay_cli;
pub mod repro;
pub mod rerun;
pub mod run;
mod scene;
pub mod set;
pub mod shards;
pub mod shrink;
pub mod stack;
pub mod system;
pub mod systems;
pub mod tag;
mod watch;
pub mod wear_model;
pub mod zones;
