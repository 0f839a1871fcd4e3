//! A namespace behind a network as the drive of a medium: carries out [`diecut_media::Intent`]s over NVMe/TCP.
//!
//! Place in the flow: under `drives`, beside the reactor's ring, which does the same on files and block devices. [`RemoteDrive`] is the host of
//! `initiator` with what a drive needs besides: it claims the namespace, connects again, and keeps what was not flushed.
//!
//! Invariants (numbered in `docs/invariants/remote.md`)
//! - The namespace is written under a reservation of this server, one connection or one for each of its parts. Who else has one is respected; who takes it
//!   over ends this drive, and what this one still sends is refused.
//! - What was answered is there when the connection was lost and came back, whatever the target lost with its cache: writes that no complete
//!   flush covers are kept, and written again before anything else.
//! - Zones are asked for after each claim. What a zone has is not sent again, and what was flushed before a zone is finished.
//! - Nothing of a connection that was lost lands behind what comes over the next one of the same part: each is a host of its own to the target, and the next
//!   one preempts it, with its commands, before it sends any.
//! - Each intent is answered once. A target that is not there is waited for, for ever or for so long; then the drive is gone, and stays so.
//!
//! Not known here: sockets, the clock, erase blocks, labels.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod claim;
mod drive;
mod error;
mod facts;
mod kept;
mod look;
mod stream;
mod work;

pub use claim::{ClaimKind, PART_MAX};
pub use diecut_initiator::HostError;
pub use drive::RemoteDrive;
pub use error::RemoteError;
pub use facts::{RemoteFacts, RemoteParameters, RemoteZones};
pub use stream::Stream;
