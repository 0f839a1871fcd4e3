//! Disks that lose power, for programs of the operating system: files of a folder that is mounted through FUSE.
//!
//! Place in the flow: none; it stands outside and knows no room. What is under test opens a file of the folder, as it opens any file or drive,
//! and a test cuts the power.
//!
//! What was written since the last flush (fsync, fdatasync) of a disk lies apart. A cut leaves any subset of it, torn at sectors of 512 bytes, as a
//! seed says. Until the power is on again everything is answered with EIO, and who had a file open before the cut is answered so for ever: the
//! machine that he ran on is gone. [`Disks`] says what else goes wrong: flushes that do nothing or fail, and stalls.
//!
//! Invariants
//! - What a flush covered that succeeded, on a disk that does not lie, is read until it is written again, whatever is cut.
//! - What is read with power is what was written last, but for what a flush that failed took away.
//! - Nothing is older than the flush before: of each sector a cut leaves what the last flush covered, or a later write's.
//! - The same writes in the same order and the same seed leave the same bytes.
//!
//! What it does not model: rot, misdirected bytes, a sector that is half written. The model in `crates/emulator/src/drive` does.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod cache;
mod commands;
mod cut;
mod disk;
mod disks;
mod mount;

pub use commands::answer;
pub use cut::CutReport;
pub use disks::{Disks, FailedFlush, Options, Statistics};
pub use mount::Mounted;

/// Smallest piece of a write that a cut leaves whole.
pub const SECTOR_SIZE_BYTES: u64 = 512;
