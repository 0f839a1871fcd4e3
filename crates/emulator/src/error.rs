//! Why a device cannot be made or opened.

use crate::ProfileError;
use std::path::PathBuf;

/// Why a device cannot be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The profile is wrong.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Memory for the content cannot be had.
    #[error("{size_bytes} bytes of memory for an emulated device cannot be had: {source}")]
    Memory {
        /// How much.
        size_bytes: u64,
        /// Why.
        source: std::io::Error,
    },
    /// The operating system refuses.
    #[error("emulated device {path}: {what}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The file is no device, or a damaged one.
    #[error("emulated device {path}: {what}")]
    Image {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Its file system has no room for what must not be without.
    #[error(
        "emulated device {path}: its block states and protected memory take {wanted_bytes} bytes, and its file system is full \
         ({free_bytes} bytes free): make room there"
    )]
    NoRoom {
        /// The file.
        path: PathBuf,
        /// Bytes that are to be allocated.
        wanted_bytes: u64,
        /// Bytes that the file system has.
        free_bytes: u64,
    },
    /// Another process has it open.
    #[error("emulated device {path} is open in another process; stop that one first")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The profile's text does not fit into the file's header.
    #[error("the profile has {len_bytes} bytes as text; a device file has room for 12160")]
    ProfileTooLong {
        /// Its bytes.
        len_bytes: usize,
    },
}
