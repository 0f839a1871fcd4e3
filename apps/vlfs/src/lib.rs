//! vLFS: a log-structured file system on erase blocks, mounted through FUSE.
//!
//! Place in the flow: the kernel asks [`FileSystem`] over `/dev/fuse`; it asks the store of inodes ([`Files`]), which appends to erase
//! blocks of a vSSD over rings in shared memory.
//!
//! Invariants: what `fsync` was called for is durable; of the rest a prefix is (see [`diecut_blockfile`]), and [`FLUSH_PERIOD`] later all
//! of it. [`HAND_OVER_PERIOD`] after it was written, it survives the end of this process. What the kernel knows is held: a file that is removed while it is open stays. Who may do what is checked by the kernel
//! (`default_permissions`).
//!
//! What it does not know: erase blocks, batches, the cleaner. One process mounts a vSSD. After an error of the server every call is
//! answered with `EIO` until it is mounted again.

#![deny(clippy::unwrap_used)]

mod attributes;
mod filesystem;
mod folders;

pub use filesystem::{FLUSH_PERIOD, FileSystem, HAND_OVER_PERIOD};

use diecut_blockfile::medium::Medium;
use diecut_blockfile::{Attributes, FileError, Files, ROOT};
use std::sync::Arc;

/// Opens the files of a vSSD, or formats one that holds nothing: then the root folder belongs to this owner.
///
/// # Errors
/// Of the server, or of what the vSSD holds.
pub fn open_or_format(medium: Arc<dyn Medium>, uid: u32, gid: u32) -> Result<Files, FileError> {
    match Files::open(Arc::clone(&medium)) {
        Err(FileError::NotFormatted) => {
            let files = Files::format(medium)?;
            files.set_attributes(ROOT, |attributes| *attributes = Attributes::new(0o755, uid, gid))?;
            files.sync()?;
            Ok(files)
        }
        other => other,
    }
}
