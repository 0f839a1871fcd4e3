//! The NVMe/TCP target: subsystems, controllers, queue pairs, fabrics commands and discovery.
//!
//! Purpose: turns the byte streams of hosts into namespace commands and their completions into bytes again, as
//! NVMe 2.0 and Linux hosts expect.
//!
//! Place in the flow: above `namespace` (whose contract it speaks) and beside `nvme` (whose words it uses); `shard`
//! drives it. Start with [`Target::handle`]. A stream goes through `session`, `tcp` (PDUs), `connect` (who may), `command`, `transfer`
//! (data), `admin` and `controller` (admin queues) and `io` (I/O commands). What connections share has owners: `subsystems`,
//! `associations`, `connections`, `memory`. How things end is in `ending`; subsystems change their shard in `relocation`.
//!
//! Invariants
//! - Sans-IO: [`Event`]s in, [`Action`]s out. No socket, clock, thread or randomness.
//! - A command that was given to the namespace is answered or its connection is closed; its slot stays taken until the
//!   namespace has completed it, also after the connection is gone.
//! - A Connect is answered only when older associations of the same host with the same subsystem have no command left
//!   in a namespace: late writes cannot land behind a new association's back.
//! - What one connection may hold is bounded: commands by its queue size, bytes by [`QueueLimits`]. Beyond that its
//!   stream is paused; nobody else waits.
//! - What all connections hold together is bounded, too, and asked for before it is allocated (`budget`): a read or a transfer
//!   for which there is no room waits, and each subsystem has a part that is kept for it.
//! - Bytes from outside never panic; a broken promise of the driver does.
//!
//! It does not know: media, vSSDs, volumes, tenants' names, time of day.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod admin;
mod asking;
mod associations;
mod awaiting;
mod budget;
mod chunk_log;
mod command;
mod config;
mod connect;
mod connection;
mod connections;
mod controller;
mod discovery;
mod ending;
mod event;
mod facts;
mod format;
mod inbound;
mod io;
mod keeping;
mod later;
mod memory;
mod moved;
mod notice;
mod ocp;
mod pages;
mod persistence;
mod persisting;
mod placement;
mod queue;
mod relocation;
mod reservation;
mod reserving;
mod restoring;
mod sanitize;
mod session;
mod shared;
mod status;
mod subsystems;
mod target;
mod tcp;
mod token;
mod told;
mod transfer;
mod watch;

pub use associations::AssociationStatus;
pub use config::{
    ControllerLimits, DiscoveryLimits, Health, Home, MemoryLimits, NamespaceConfig, QueueLimits,
    SubsystemConfig, TargetConfig,
};
pub use event::{Action, ConnectionId, Event};
pub use facts::CommandFacts;
pub use keeping::{Keep, Kept};
pub use memory::MemoryFigures;
pub use moved::{MovedConnection, SubsystemFigures};
pub use notice::{HostAt, HostNotice};
pub use ocp::{MediaFigures, PanicsTold, Question, Tidings};
pub use placement::{KeepPlacement, KeptPlacement, PlacementFigures, PlacementRecord};
pub use reservation::{KeepReservation, KeptReservation, ReservationRecord};
pub use restoring::{restore_placement, restore_reservation, restore_sanitize};
pub use sanitize::{KeepSanitize, KeptSanitize, SanitizeRecord, SanitizeState, sanitize_status};
pub use target::Target;
pub use tcp::Outbox;
pub use watch::{CommandOutline, OperationOutline};
