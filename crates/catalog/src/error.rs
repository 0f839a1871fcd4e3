//! Why a catalog cannot be used, or not be changed.

/// Why a catalog cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// There are frames, but no state can be read on either copy.
    #[error("both copies of the catalog are damaged: {0}")]
    Damaged(String),
    /// A later version wrote it.
    #[error("{0}")]
    Version(String),
    /// The device could not make durable what was written, or what an opening found.
    #[error("the device cannot flush its cache; nothing can be changed any more")]
    FlushFailed,
    /// No copy can be written any more.
    #[error("all erase blocks of the catalog failed; nothing can be changed any more")]
    Failed,
    /// Definitions would take more room than there is.
    #[error(
        "the catalog is full: all definitions together would take {wanted_bytes} bytes, and {room_bytes} are the most this device \
         has room for; delete something first"
    )]
    Full {
        /// What they would take.
        wanted_bytes: u64,
        /// What there is.
        room_bytes: u64,
    },
}
