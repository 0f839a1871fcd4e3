//! Why a server does not start, and what people are told though it does.

use diecut_devices::DeviceError;
use diecut_devices::local::LocalError;
use diecut_reactor::ReactorError;
use diecut_recording::StartError;
use std::path::{Path, PathBuf};

/// Why the server cannot start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The set-up asks for what cannot be; the message says what and what to do.
    #[error("{0}")]
    Setup(String),
    /// A file or folder.
    #[error("{path}: {what}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A file or a block device that is to be a device, or was.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The recording.
    #[error(transparent)]
    Recording(#[from] StartError),
    /// The threads or the port.
    #[error(transparent)]
    Reactor(#[from] ReactorError),
    /// The operating system.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

/// What is wrong with a file or folder.
pub(crate) fn file_error(path: &Path, what: &'static str) -> impl FnOnce(std::io::Error) -> ServeError {
    let path = path.to_owned();
    move |source| ServeError::File { path, what, source }
}

/// Tells people what is no reason not to start.
pub(crate) fn warn(text: &str) {
    tracing::warn!("{text}");
}
