//! A namespace of an NVMe/TCP target as a file, for programs of the operating system where the kernel has no host side of its own.
//!
//! Place in the flow: none; it stands outside. Programs open the file, or a loop device over it; what they do goes through `initiator` to a target.
//!
//! Invariants
//! - Nothing is cached: a write is answered when the target answered it, and an fsync when a Flush that came after it was answered.
//! - Bytes in the same logical block that are written at a time do not undo each other.
//! - Nobody waits for a target that is gone: when a connection ends, all is answered with EIO, what was under way, too.
//!
//! What it does not do: connect again. Who opened the file before would not know what was lost between.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod mount;
mod namespace;
mod queue;

pub use mount::{FILE_NAME, Mounted};
pub use namespace::{Namespace, Place};
