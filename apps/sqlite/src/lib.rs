//! SQLite on erase blocks: a VFS over [`diecut_blockfile`], and a load that is like TPC-C.
//!
//! Place in the flow: SQLite calls the VFS ([`vfs`]) for its database, journal and WAL; the VFS calls [`Files`], which appends to
//! erase blocks of a vSSD or zones of a namespace. Journals live short and databases long, so they go to different erase
//! blocks.
//!
//! Invariants: what SQLite synced is durable; a commit that was acknowledged is there after a kill of this process or of the
//! server. After an error of the server every call fails until the vSSD is attached to again.
//!
//! What it does not know: where erase blocks lie, and what a file is made of. One process holds a vSSD, so locks are
//! kept in its memory, and WAL mode wants `PRAGMA locking_mode = exclusive`.

#![deny(clippy::unwrap_used)]

pub mod tpcc;
pub mod vfs;

pub use vfs::{Database, Vfs};

use diecut_blockfile::medium::{self, MediumError};
use diecut_blockfile::{FileError, Files};
use std::sync::Arc;

/// Why there is no database.
#[derive(Debug)]
pub enum OpenError {
    /// The server says no.
    Attach(MediumError),
    /// The files.
    Files(FileError),
    /// SQLite.
    Database(rusqlite::Error),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OpenError::Attach(error) => error.fmt(formatter),
            OpenError::Files(error) => error.fmt(formatter),
            OpenError::Database(error) => error.fmt(formatter),
        }
    }
}
impl std::error::Error for OpenError {}
impl From<MediumError> for OpenError {
    fn from(error: MediumError) -> OpenError {
        OpenError::Attach(error)
    }
}
impl From<FileError> for OpenError {
    fn from(error: FileError) -> OpenError {
        OpenError::Files(error)
    }
}
impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> OpenError {
        OpenError::Database(error)
    }
}

/// Attaches to a vSSD at a socket, or to the zones of a subsystem at an address (see [`medium::attach`]), and opens its files. Waits a while
/// for an application before that just died.
///
/// # Errors
/// Of the server, or of what it holds.
pub fn attach(place: &str, name: &str) -> Result<Arc<Files>, OpenError> {
    Ok(Arc::new(Files::open_or_format(medium::attach(name, place)?)?))
}
