//! Files on erase blocks or zones: what applications share that want to read and write anywhere.
//!
//! A small log-structured store in the process of the application. Writes gather in memory and go out in batches: whole
//! program units with a header that says which parts of which files follow ([`mod@format`]). A batch has the next number of one
//! sequence, whichever erase block it goes to, and a checkpoint holds the whole map up to one of them. What is not used
//! any more is found by the cleaner, block by block, fewest live parts first. Where the medium copies by itself, what the cleaner moves does not come
//! here.
//!
//! Place in the flow: below an application's own layer of files (the VFS of SQLite), above a [`medium::Medium`]: the erase blocks of a vSSD
//! over shared memory, or the zones of a namespace over NVMe/TCP. All that touches it is `blocks.rs`; `recover.rs` names the live
//! blocks when it attaches.
//!
//! A name is an entry of a folder and stands for an inode; an inode may have several names. What has no name any more stays for
//! those who hold it ([`Files::hold`]), in this process only: at the next attach it is gone. Paths ([`Files::create`],
//! [`Files::find`], ...) are a layer above for applications that need no inodes.
//!
//! What it promises: what was written before [`Files::sync`] returned is there after the death of the application or of the
//! server, and after a power cut. Of what came after, a prefix of batches is there; names, sizes and attributes that were
//! set change in order, a rename as one. Times of writes may be older than what was written. A file that is cut and grows again has
//! zeros in between.
//!
//! Invariants (numbered in `docs/invariants/blockfile.md`):
//! - An erase block is freed only when no file needs it and the checkpoint on flash covers every batch in it: a gap in the
//!   sequence would end a replay too early.
//! - After an attach nothing is appended to blocks of before, and a checkpoint is written first, with a number above all batches
//!   that were seen: what was cut off does not come back.
//! - Where a power cut can destroy the last units of an open block, a sync fills so many units behind what it made durable.
//! - What the medium copied is named by checkpoints only, once all of it is known to be there.
//! - After an error of the server or the medium nothing is written any more; the store is opened again.
//!
//! - What is read stays: a block that no file needs is not freed while somebody reads it.
//!
//! What it does not know: SQLite, isolation, what the server does. One process. One lock for all that changes something, held while it
//! appends; who asks for names and attributes waits for it, reads of bytes nowhere.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod batch;
mod blocks;
mod clean;
mod content;
mod files;
pub mod format;
mod gathering;
mod inode;
mod map;
pub mod medium;
mod moving;
mod paths;
mod read;
mod recover;
mod state;
mod tree;
mod types;
mod view;

pub use files::{Entry, Files};
pub use inode::{Attributes, InodeKind, Metadata, Name, ROOT, Time};
pub use paths::Child;
pub use state::{Made, Replace, Statistics};
pub use tree::TARGET_MAX_BYTES;
pub use types::{FileId, HINTS};

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
    /// A part of the path is no folder.
    #[error("not a folder")]
    NotFolder,
    /// What it was taken for it is not: it is a folder.
    #[error("it is a folder")]
    IsFolder,
    /// Only files have bytes to read and to write.
    #[error("not a file")]
    NotFile,
    /// A folder cannot become a part of itself.
    #[error("a folder cannot be moved into itself")]
    Inside,
    /// More names than a number of them counts.
    #[error("too many names of one file")]
    TooManyLinks,
    /// See [`Name`].
    #[error("the name is empty, longer than 255 bytes, a dot, two dots, or has a slash or a zero in it")]
    Name,
    /// The vSSD holds no files.
    #[error("the vSSD holds no files yet")]
    NotFormatted,
    /// Written by another version of this store.
    #[error(
        "the files are of version {found}, and this program reads version {} only: copy them with the program that wrote them",
        format::VERSION
    )]
    Version {
        /// Of the first batch that was seen.
        found: u16,
    },
    /// What is there makes no sense.
    #[error("damaged: {0}")]
    Damaged(&'static str),
}
