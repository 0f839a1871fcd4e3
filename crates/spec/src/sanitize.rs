//! Sanitize operations of subsystems, which hosts begin (NVMe Base 2.0 section 8.20).

use serde::{Deserialize, Serialize};

/// How far the most recent one of a subsystem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SanitizeState {
    /// It goes on.
    InProgress,
    /// It was completed.
    Completed,
    /// It failed, and the subsystem does not serve.
    Failed,
    /// It failed, and a host left the failure mode: the subsystem serves.
    FailureLeft,
}

/// What administrators are told of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SanitizeStatus {
    /// How far it is.
    pub state: SanitizeState,
    /// How much is done, percent; absent where it does not go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_percent: Option<u8>,
}

impl SanitizeStatus {
    /// For people.
    pub fn describe(&self) -> String {
        let state = match self.state {
            SanitizeState::InProgress => "in progress, hosts are not served",
            SanitizeState::Completed => "completed",
            SanitizeState::Failed => {
                "failed; hosts are not served until one sanitizes again or leaves the failure mode"
            }
            SanitizeState::FailureLeft => "failed, and a host left the failure mode",
        };
        match self.progress_percent {
            Some(percent) => format!("{state}, {percent} % are done"),
            None => state.to_owned(),
        }
    }
}
