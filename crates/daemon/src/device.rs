//! The device that a set-up names, of whichever kind.

use crate::error::ServeError;
use crate::opened::Opened;
use crate::{drive, emulated};
use diecut_api::setup::{Device as Wanted, Setup};
use std::path::Path;

/// The device of a set-up: a server has one.
pub fn wanted(setup: &Setup) -> Result<&Wanted, ServeError> {
    setup.devices.only().map_err(ServeError::Setup)
}

/// Whether the data folder may be that of the device: nobody gets another one in place of what was served from there.
pub fn check_folder(wanted: &Wanted, setup: &Setup) -> Result<(), ServeError> {
    match wanted {
        Wanted::Emulated(device) => emulated::check_folder(device, setup),
        Wanted::Drive(device) => drive::check_folder(device, setup),
    }
}

/// Opens it. `file` is the set-up's, if it has one; `is_profile_named`: its profile was named beside it.
pub fn open(
    wanted: &Wanted,
    setup: &Setup,
    file: Option<&Path>,
    is_profile_named: bool,
) -> Result<Opened, ServeError> {
    match wanted {
        Wanted::Emulated(device) => emulated::open(device, setup, file, is_profile_named),
        Wanted::Drive(device) => drive::open(device, setup),
    }
}
