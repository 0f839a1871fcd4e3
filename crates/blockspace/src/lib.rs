//! The erase-block space of a vSSD for other processes: FlashBlox's API (table 3 of the paper) over shared memory.
//!
//! An application attaches to a vSSD that serves blocks (`diecut vssd create --use blocks`) over a Unix socket, gets a
//! piece of shared memory with two rings and a data area, says which erase blocks it still needs, and then allocates,
//! appends to, reads and frees erase blocks by itself: its own log, its own cleaner, no map in between.
//!
//! Place in the flow: an application's thread writes an entry into the submission ring ([`client`]); the thread of a
//! shard takes it out ([`ring::ServerEnd`]) and gives it to the shard, where a [`session::Session`] checks it and calls
//! the vSSD; the answer goes back through the completion ring. [`wire`] has the bytes of all of it, docs/format/erase-block-rings.md
//! the tables.
//!
//! Who may attach: the kernel says which user the process at the other end of the socket runs as (SO_PEERCRED). Root,
//! the server's own user and the user the vSSD was made for (`--uid`) may; there are no keys to keep. One
//! application at a time holds a vSSD.
//!
//! Invariants:
//! - The server trusts nothing in shared memory. Indices are compared with what can be; an entry is copied once and the
//!   copy is checked; data are copied into the server's buffers before they are used. Shared memory is only touched by
//!   atomic operations, so that a hostile writer on the other side is no data race. The memory is sealed: it cannot
//!   shrink below the server.
//! - No more operations are under way than the ring has entries, with no more bytes than the data area: a client costs
//!   the server a fixed amount of memory.
//! - A client that breaks a rule gets an answer that says so; one that breaks the rings is hung up on. Neither is felt
//!   by others.
//! - When a client goes, its operations are waited for and their answers dropped before another may attach.
//!
//! What it does not know: where erase blocks lie, other vSSDs, names of tenants, threads of the server.

#![deny(clippy::unwrap_used)]

pub mod client;
#[cfg(feature = "embedded")]
pub mod embedded;
mod layout;
pub mod ring;
pub mod session;
pub mod system;
pub mod wire;

pub use client::{Attach, AttachError, BlockError, Client, SharedTicket, Ticket};
pub use diecut_vssd::{LogicalBlock, Purpose, UnitIndex};
