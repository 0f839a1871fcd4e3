//! Files on erase blocks: what applications of the erase-block API share that want to read and write anywhere.
//!
//! A small log-structured store in the process of the application. Writes gather in memory and go out in batches: whole
//! program units with a header that says which parts of which files follow ([`mod@format`]). A batch has the next number of one
//! sequence, whichever erase block it goes to, and a checkpoint holds the whole map up to one of them. What is not used
//! any more is found by the cleaner, block by block, fewest live parts first.
//!
//! Place in the flow: below an application's own layer of files (the VFS of SQLite), above [`diecut_blockspace::Client`]. All that
//! touches the erase-block API is `blocks.rs`; `recover.rs` names the live blocks when it attaches.
//!
//! What it promises: what was written before [`Files::sync`] returned is there after the death of the application or of the
//! server, and after a power cut. Of what came after, a prefix of batches is there; names and sizes change in order. A file
//! that is cut and grows again has zeros in between.
//!
//! Invariants:
//! - An erase block is freed only when no file needs it and the checkpoint on flash covers every batch in it: a gap in the
//!   sequence would end a replay too early.
//! - After an attach nothing is appended to blocks of before, and a checkpoint is written first, with a number above all batches
//!   that were seen: what was cut off does not come back.
//! - Where a power cut can destroy the last units of an open block, a sync fills so many units behind what it made durable.
//! - After an error of the server or the medium nothing is written any more; the store is opened again.
//!
//! - What is read stays: a block that no file needs is not freed while somebody reads it.
//!
//! What it does not know: SQLite, isolation, what the server does. One process. One lock for all that changes something, held while it
//! appends; reads wait for it nowhere.

mod blocks;
mod clean;
mod folders;
pub mod format;
mod map;
mod read;
mod recover;
mod store;

pub use folders::Child;
pub use store::{FileId, Files, HINTS, Statistics};

use diecut_blockspace::BlockError;

/// Why something did not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The server or the medium.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// An error came before; open the store again.
    #[error("the files take no more writes since an error: attach again")]
    Failed,
    /// No room for so many live bytes.
    #[error("no space left")]
    NoSpace,
    /// There is no such file.
    #[error("no such file")]
    NotFound,
    /// There is one of that name.
    #[error("the file exists")]
    Exists,
    /// The folder has something in it.
    #[error("the folder is not empty")]
    NotEmpty,
    /// Longer than 255 bytes, or empty.
    #[error("the name is empty or longer than 255 bytes")]
    Name,
    /// The vSSD holds no files.
    #[error("the vSSD holds no files yet")]
    NotFormatted,
    /// What is there makes no sense.
    #[error("damaged: {0}")]
    Damaged(&'static str),
}
