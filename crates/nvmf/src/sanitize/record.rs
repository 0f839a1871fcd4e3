//! What outlives a power loss of a subsystem's sanitize operations, and who is asked to keep it.

use diecut_nvme::QualifiedName;

/// How far the most recent sanitize operation of a subsystem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SanitizeState {
    /// It goes on.
    InProgress,
    /// It was completed.
    Completed,
    /// It failed, and the subsystem serves no commands that it refuses while it goes on.
    Failed,
    /// It failed, and a host left the failure mode: the subsystem serves again.
    FailureLeft,
}

/// The most recent sanitize operation of a subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SanitizeRecord {
    /// How far it is.
    pub state: SanitizeState,
    /// Dword 10 of the command that began it.
    pub cdw10: u32,
    /// It was completed, and no host has written since.
    pub is_erased: bool,
}

/// What the target asks to be made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepSanitize {
    /// Whose sanitize operation it is.
    pub subsystem: QualifiedName,
    /// Which change of it; numbers of a subsystem rise.
    pub version: u64,
    /// What is to outlive a power loss.
    pub record: SanitizeRecord,
}

/// The answer to [`KeepSanitize`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSanitize {
    /// Whose sanitize operation it is.
    pub subsystem: QualifiedName,
    /// Which change of it.
    pub version: u64,
    /// It is durable. Else nothing of it will be found after a power loss.
    pub is_kept: bool,
}

impl KeepSanitize {
    /// The answer of whoever keeps it.
    pub fn kept(&self) -> KeptSanitize {
        KeptSanitize { subsystem: self.subsystem.clone(), version: self.version, is_kept: true }
    }
}
