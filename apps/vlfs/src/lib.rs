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

use diecut_blockfile::{Attributes, FileError, Files, ROOT};
use diecut_blockspace::wire::Status;
use diecut_blockspace::{Attach, AttachError, Client};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Why there is no file system.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The server says no.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// What the vSSD holds.
    #[error(transparent)]
    Files(#[from] FileError),
}

/// Attaches to a vSSD. Waits up to two seconds for a process before that just died.
///
/// # Errors
/// Of the server.
pub fn attach(socket: &Path, vssd: &str) -> Result<Client, AttachError> {
    let mut left = 200;
    loop {
        match Client::attach(Attach { socket, vssd }) {
            Err(AttachError::Refused { status: Status::Held, .. }) if left > 0 => {
                left -= 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
}

/// Opens the files of a vSSD, or formats one that holds nothing: then the root folder belongs to this owner.
///
/// # Errors
/// Of the server, or of what the vSSD holds.
pub fn open_or_format(client: Client, uid: u32, gid: u32) -> Result<Files, FileError> {
    let client = Arc::new(client);
    match Files::open(Arc::clone(&client)) {
        Err(FileError::NotFormatted) => {
            let files = Files::format(client)?;
            files.set_attributes(ROOT, |attributes| *attributes = Attributes::new(0o755, uid, gid))?;
            files.sync()?;
            Ok(files)
        }
        other => other,
    }
}
