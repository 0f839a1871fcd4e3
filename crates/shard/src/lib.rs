//! The composition: one core's share of the system. A shard owns channels, dies, vSSDs, logs, volumes,
//! namespaces, the target's state, the admission scheduler and the catalog, and wires them together.
//!
//! Sans-IO: `reactor` drives it with sockets and the monotonic clock, `sim` with virtual time. What they
//! exchange with it is [`drive`]; what an administrator asks is [`control`].
//!
//! The way of a command: bytes -> target -> admission (`admission`) -> namespaces -> stores, pool and device (`flash`),
//! and back. One call of [`drive::Drive::work`] goes that way a bounded number of times.
//!
//! Who owns what: `data_plane` the way of commands, `registry` what exists, `placement` what lives on which shard, `jobs` what is carried out
//! for administrators, `opening` how far the start is. `owners` holds the first three; steps (`steps`), orders (`lead`, `member`), moves
//! (`relocation`) and even wear (`leveling`) work on them, and [`Shard`] wires all of it.
//!
//! Several shards of one server share a device and nothing else: each owns whole channels, with what lies on them, and runs on a
//! core of its own. Choices, and why:
//! - Tenants live on one shard, with all that shares a channel with them (`ledger`). Which shard follows from where vSSDs lie and
//!   is chosen anew at each start, so a device opens with any number of shards. While they are served they can be moved, as a
//!   whole (`relocation`).
//! - Channels that nobody uses are the first shard's. It gives them away with a new vSSD and gets them back when the last one on
//!   them is deleted: ownership moves as one message, while nothing is under way on them. So no vSSD is refused because free
//!   channels were dealt out elsewhere.
//! - The first shard (`lead`) plans what administrators ask and has each step carried out where it belongs; the others
//!   (`member`) run the same steps. The catalog is the first shard's; its commands to other shards' channels go there
//!   and back as messages (`reach`). The path of hosts' commands sends no message at all.
//! - Every shard knows all subsystems, so discovery is the same everywhere and any shard can take a connection.
//!
//! Invariants
//! - A command passes admission exactly once and is counted there until it is answered. One that is larger than a piece
//!   takes a turn for each piece.
//! - A channel has one owner: the medium's part, the pool's part, and the block states of it go together.
//! - Orders to a shard are carried out in the order they were sent, one at a time.
//! - Nothing here waits: what must wait is a queue with an owner and a deadline.
//!
//! Not known here: sockets, threads, the clock.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod admission;
mod again;
mod allocation;
mod answers;
mod at_work;
mod attach;
mod attendance;
mod away;
pub mod blocks;
mod catalog;
mod chunks;
mod claims;
mod config;
pub mod control;
mod cost;
mod custody;
mod data_plane;
mod delays;
mod devices;
mod division;
mod door;
pub mod drive;
mod evenness;
mod flash;
mod health;
mod health_turns;
mod inquiry;
mod job;
mod jobs;
mod journal;
mod kept;
mod lanes;
mod latency_report;
mod lead;
mod ledger;
mod leveling;
mod limits;
mod media_figures;
mod member;
mod newcomer;
pub mod notice;
pub mod null;
mod nvme_door;
mod open_device;
mod opening;
mod orders;
mod owners;
pub mod panics;
mod panics_told;
mod peer;
mod placement;
mod placement_events;
mod plan;
mod planted;
mod qos;
mod reach;
mod reclaim;
mod registry;
mod rejoin;
mod relocation;
mod remains;
mod reservation_queue;
mod reservations;
mod returns;
mod ruins;
mod sanitize;
mod seat;
mod session;
mod shard;
mod staging;
mod stalls;
mod status;
mod step;
mod steps;
mod waits;
mod zone_changes;
mod zones;

pub use admission::{AdmissionConfig, BucketSize, DOOR_SOURCE_BIT, DeviceShaper, TokenUnit};
pub use again::Remains;
pub use config::{DeviceConfig, ShardConfig};
pub use cost::{CostModel, TracePoint};
pub use devices::DeviceIndex;
pub use diecut_volume::{AnchorPace, ReclaimUnit};
pub use diecut_vssd::{DiePlacement, DieWear, Nonces, PoolConfig, SwapRule, WearConfig};
pub use division::{divide, divide_all, gather, gather_media};
pub use planted::PlantedPanic;
pub use seat::Seat;
pub use shard::Shard;
