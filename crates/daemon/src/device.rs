//! The devices that a set-up names, of whichever kind.

use crate::error::ServeError;
use crate::opened::AllOpened;
use crate::{drive, drives, emulated};
use diecut_api::setup::{DeviceChoice, Setup};
use std::path::Path;

/// The devices of a set-up.
pub fn wanted(setup: &Setup) -> Result<DeviceChoice<'_>, ServeError> {
    setup.devices.choice().map_err(ServeError::Setup)
}

/// Whether the data folder may be that of the devices: nobody gets another one in place of what was served from there.
pub fn check_folder(wanted: &DeviceChoice<'_>, setup: &Setup) -> Result<(), ServeError> {
    match wanted {
        DeviceChoice::Emulated(device) => emulated::check_folder(device, setup),
        DeviceChoice::Drives(drives) => {
            drives.iter().try_for_each(|wanted| drive::check_folder(&wanted.place().to_string(), setup))
        }
    }
}

/// Opens them. `file` is the set-up's, if it has one; `is_profile_named`: a profile was named beside it.
pub fn open(
    wanted: &DeviceChoice<'_>,
    setup: &Setup,
    file: Option<&Path>,
    is_profile_named: bool,
) -> Result<AllOpened, ServeError> {
    match wanted {
        DeviceChoice::Emulated(device) => emulated::open(device, setup, file, is_profile_named),
        DeviceChoice::Drives(wanted) => drives::open(wanted, setup),
    }
}
