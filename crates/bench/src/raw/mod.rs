//! The raw socket loop: what TCP over loopback gives when nothing is done with the bytes.
//!
//! A client keeps `depth` requests of fixed size under way on each connection; the server answers each with a
//! response of fixed size. Nothing is parsed: both ends count bytes. Both ends batch: one receive takes all
//! that has arrived (up to [`RECEIVE_BYTES`]), one send answers all of it from a prepared buffer. Both ends
//! busy-poll. The sizes are those of 4 KiB NVMe/TCP commands:
//!
//! | shape | request | response |
//! |---|---|---|
//! | read | 72 (command capsule) | 4120 (C2HData header 24 + 4096, success flag instead of a response capsule) |
//! | write | 4168 (capsule 72 + 4096 in-capsule) | 24 (response capsule) |
//!
//! With [`RawSettings::far_bytes`] the server copies the content of each response from a random place of so much memory
//! ([`FarMemory`]): what any server pays that keeps its data in memory which caches cannot hold. With [`FarReads`] it sends
//! them from where they are, or looks at them for a checksum: what a server without any other work would reach.

mod end;
mod far;
mod run;

pub use end::{End, EndCounters};
pub use far::{FarMemory, FarReads};
pub use run::{RawError, RawResult, RawSettings, RawShape, load, run, serve};

/// Most bytes taken by one receive. 256 KiB was the best of 64 KiB to 1 MiB at depth 128.
pub const RECEIVE_BYTES: usize = 256 << 10;
