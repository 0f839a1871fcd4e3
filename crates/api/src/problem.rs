//! Refusals: what was asked, what is wrong, what to do.

use serde::{Deserialize, Serialize};

/// Kinds of refusals, for programs; each has one HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// No object of this name (404).
    NotFound,
    /// An object of this name exists with another definition (409).
    Exists,
    /// The object is used by another one (409).
    InUse,
    /// A field has an impossible value (422).
    Invalid,
    /// Capacity or isolation that cannot be had (507).
    Exhausted,
    /// Not now: something else must come to its end before; the same may be asked again (409).
    Busy,
    /// Not done in the time that was given (504); what was begun goes on.
    Unfinished,
    /// The medium failed (500).
    Media,
    /// The server is not ready or going away (503).
    Unavailable,
}

impl ProblemKind {
    /// The HTTP status that carries this kind.
    pub const fn http_status(self) -> u16 {
        match self {
            ProblemKind::NotFound => 404,
            ProblemKind::Exists | ProblemKind::InUse | ProblemKind::Busy => 409,
            ProblemKind::Invalid => 422,
            ProblemKind::Exhausted => 507,
            ProblemKind::Unfinished => 504,
            ProblemKind::Media => 500,
            ProblemKind::Unavailable => 503,
        }
    }
}

/// A refusal. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// What kind.
    pub kind: ProblemKind,
    /// A sentence that names the object and says what to do.
    pub message: String,
}

impl Problem {
    /// A refusal of this kind.
    pub fn new(kind: ProblemKind, message: impl Into<String>) -> Problem {
        Problem { kind, message: message.into() }
    }
}
