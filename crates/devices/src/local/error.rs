use std::io;
use std::path::PathBuf;

/// Why a file or a block device cannot be had. The message names it, and says what to do where that is known.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// It is not there, or may not be opened.
    #[error("{} {what}: {error}{}", path.display(), advice(error))]
    Open {
        /// Its path.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
    /// Neither a file nor a block device.
    #[error("{} is {what}; name a file or a block device{hint}", path.display())]
    Kind {
        /// Its path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
        /// What may be meant.
        hint: String,
    },
    /// Somebody else uses it.
    #[error("{} is in use: {}; nothing was written. End that first", path.display(), by.join(", "))]
    InUse {
        /// Its path.
        path: PathBuf,
        /// Who, in words.
        by: Vec<String>,
    },
    /// The kernel takes no writes to it.
    #[error("{} is read-only; `blockdev --setrw` changes that, unless the drive itself is write-protected", path.display())]
    ReadOnly {
        /// Its path.
        path: PathBuf,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; see whether the drive is there, and has that name",
        io::ErrorKind::PermissionDenied => "; who is root, or in the group that it belongs to, may",
        io::ErrorKind::ReadOnlyFilesystem => "; its file system, or the drive, takes no writes",
        _ => "",
    }
}
