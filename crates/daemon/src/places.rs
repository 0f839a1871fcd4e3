//! Files of a data folder that say what is served from it.

use diecut_api::setup::Setup;
use std::path::PathBuf;

/// The image of an emulated device in a file.
pub fn image(setup: &Setup) -> PathBuf {
    setup.server.data.join("device.img")
}

/// An emulated device was served from the folder: the file is there from then on, so that an image that is gone is missed.
pub fn image_made(setup: &Setup) -> PathBuf {
    setup.server.data.join("device.made")
}

/// Drives were served from the folder: the file names them, a line each.
pub fn drives_made(setup: &Setup) -> PathBuf {
    setup.server.data.join("drives.made")
}

/// What this server is called as a host of targets: the file is made with the first of them, and stays.
pub fn remote_host(setup: &Setup) -> PathBuf {
    setup.server.data.join("remote.host")
}

/// A set-up is being brought onto a new device, and was not yet in whole: the file is there until it was.
pub fn pending(setup: &Setup) -> PathBuf {
    setup.server.data.join("setup.pending")
}
