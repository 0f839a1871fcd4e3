//! Panics of the server, as hosts of a subsystem are told of them: error recovery (C1h) has their IDs, and telemetry (08h) the last one
//! that happened at work for the subsystem.

use diecut_nvme::ocp::ErrorRecovery;

/// What hosts of a subsystem are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PanicsTold {
    /// Panics so far.
    pub count: u64,
    /// Their IDs, the latest first; 0 where there were fewer.
    pub ids: [u64; 4],
    /// The last one that concerns the subsystem, for people; empty if there was none.
    pub record: Vec<u8>,
}

impl PanicsTold {
    /// Error recovery, LID C1h (OCP 2.5 section 4.8.6). A server that answers is in no panic, so the current ID is 0.
    pub(crate) fn error_recovery(&self) -> ErrorRecovery {
        ErrorRecovery {
            panic_count: u8::try_from(self.count).unwrap_or(u8::MAX),
            previous_panics: self.ids.map(Into::into),
            ..ErrorRecovery::default()
        }
    }
}
