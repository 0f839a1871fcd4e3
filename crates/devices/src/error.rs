use diecut_emulator::ProfileError;

/// Why a device cannot be made or opened. The message names the device and says what is wrong.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// An emulated device.
    #[error(transparent)]
    Emulated(#[from] diecut_emulator::DeviceError),
}

impl From<ProfileError> for DeviceError {
    fn from(error: ProfileError) -> DeviceError {
        DeviceError::Emulated(error.into())
    }
}
