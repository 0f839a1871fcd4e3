//! A namespace behind a network as the drive of a medium: carries out [`diecut_media::Intent`]s over NVMe/TCP.
//!
//! Place in the flow: under `drives`, beside the reactor's ring, which does the same on files and block devices. [`RemoteDrive`] is the host of
//! `initiator` with what a drive needs besides: it claims the namespace, connects again, and keeps what was not flushed.
//!
//! Invariants (numbered in `docs/invariants/remote.md`)
//! - The namespace is written under a reservation of this server. A server that comes later takes it over, and what an earlier one still
//!   sends is refused.
//! - What was answered is there when the connection was lost and came back, whatever the target lost with its cache: writes that no complete
//!   flush covers are kept, and written again before anything else.
//! - Each intent is answered once. After so long without a connection the drive is gone, and stays so.
//!
//! A command of a connection that was lost may reach the namespace late, when what came after it is there already. After a silence the next try waits as
//! long as the target takes to give up its side. When the stream was closed, its side is closed, too; what it had begun by then ends before an erase block
//! is used again, which takes several round trips.
//!
//! Not known here: sockets, the clock, erase blocks, labels.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod claim;
mod drive;
mod error;
mod kept;
mod work;

pub use drive::{RemoteDrive, RemoteFacts, RemoteParameters, Stream};
pub use error::RemoteError;
