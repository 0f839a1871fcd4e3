//! One file per kind of object.

pub mod apply;
pub mod bench;
pub mod demo;
pub mod host;
mod live;
pub mod repro;
pub mod serve;
pub mod status;
pub mod subsystem;
pub mod tenant;
pub mod volume;
pub mod vssd;
pub mod wear;

use crate::client::ClientError;
use diecut_api::problem::{Problem, ProblemKind};

/// The refusal for a name that is not there.
fn not_found(kind: &str, name: &str) -> ClientError {
    let message = format!("{kind} `{name}` does not exist; `diecut {kind} list` shows what does");
    ClientError::Refused(Problem::new(ProblemKind::NotFound, message))
}
