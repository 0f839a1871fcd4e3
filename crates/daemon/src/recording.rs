//! Where a run is recorded.

use crate::error::{ServeError, file_error};
use crate::{device, places};
use diecut_api::setup::{Backing, DeviceChoice, Setup};
use std::path::PathBuf;

/// Where a run is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The file; it must not exist yet.
    pub path: PathBuf,
    /// It ends before it is longer, in bytes.
    pub size_max_bytes: u64,
}

fn no_recording(drive: &str) -> ServeError {
    ServeError::Setup(format!(
        "a recording holds what happens on an emulated device, and {drive} is a drive; leave --record out"
    ))
}

impl Recording {
    /// Makes the file.
    ///
    /// # Errors
    /// If it is there already, or the device cannot be recorded.
    pub(crate) fn create(&self, setup: &Setup) -> Result<std::fs::File, ServeError> {
        let image = places::image(setup);
        match device::wanted(setup)? {
            DeviceChoice::Drives(drives) => return Err(no_recording(&drives[0].place().to_string())),
            DeviceChoice::Emulated(wanted) if wanted.backing == Backing::File && image.exists() => {
                return Err(ServeError::Setup(format!(
                    "a recording begins with a new device, but there is one already: {}; name another data folder (--data)",
                    image.display()
                )));
            }
            DeviceChoice::Emulated(_) => {}
        }
        use std::os::unix::fs::OpenOptionsExt;
        // It tells of names and addresses.
        let file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&self.path);
        file.map_err(file_error(&self.path, "a recording cannot be made there"))
    }
}
