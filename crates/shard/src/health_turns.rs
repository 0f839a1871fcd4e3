//! Whose health hosts are told next.

use diecut_units::Time;

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct HealthTurns {
    pub due: Time,
    /// The one that was looked at last.
    pub last: String,
}
