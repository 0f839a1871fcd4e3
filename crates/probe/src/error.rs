use diecut_devices::local::LocalError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a drive cannot be measured.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// A number that makes no sense.
    #[error("{0}")]
    Spec(String),
    /// It cannot be opened.
    #[error("{} cannot be opened: {error}", path.display())]
    Open {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file system knows no direct I/O.
    #[error(
        "{} lies on a file system without direct I/O (O_DIRECT): only the memory in front of it could be measured; name a block device or a \
         file on another file system",
        path.display()
    )]
    Buffered {
        /// Its path.
        path: PathBuf,
    },
    /// It cannot be had at all.
    #[error(transparent)]
    Device(#[from] LocalError),
    /// There is no room to measure in.
    #[error("{} has {size_bytes} bytes, too few for {regions} regions of 16 blocks of {block_bytes} bytes each", path.display())]
    TooSmall {
        /// Its path.
        path: PathBuf,
        /// Its size.
        size_bytes: u64,
        /// Asked for.
        regions: u16,
        /// Asked for.
        block_bytes: u32,
    },
    /// Blocks are smaller than those of the drive.
    #[error(
        "blocks of {block_bytes} bytes are smaller than the drive's of {logical_block_bytes} bytes; use --bs {logical_block_bytes}"
    )]
    Block {
        /// Asked for.
        block_bytes: u32,
        /// Of the drive.
        logical_block_bytes: u32,
    },
    /// Zones are written from their start only.
    #[error("{} is zoned: only reads of it can be measured; leave --overwrite away", path.display())]
    Zoned {
        /// Its path.
        path: PathBuf,
    },
    /// Writes would destroy something.
    #[error(
        "{} holds {}, and writes would destroy it; nothing was written. --force measures all the same",
        path.display(),
        found.join(" and ")
    )]
    Holds {
        /// Its path.
        path: PathBuf,
        /// What was recognized.
        found: Vec<String>,
    },
    /// The kernel has none, or it is switched off.
    #[error(
        "io_uring cannot be used here ({error}); it needs Linux 5.6 or later, /proc/sys/kernel/io_uring_disabled must be 0, and a container \
         must allow it"
    )]
    Ring {
        /// Why.
        error: io::Error,
    },
    /// A command failed.
    #[error("a {what} of {length_bytes} bytes at byte {offset_bytes} failed: {error}")]
    Command {
        /// Read or write.
        what: &'static str,
        /// Where.
        offset_bytes: u64,
        /// How much.
        length_bytes: u32,
        /// Why.
        error: io::Error,
    },
}
