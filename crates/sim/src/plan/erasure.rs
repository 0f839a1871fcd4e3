//! What a host has erased in the calm.

use super::Lane;
use crate::oracle::Crash;
use crate::tag::VolumeNumber;
use serde::{Deserialize, Serialize};

/// A host has erased what it wrote, with an erase of the medium.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErasurePlan {
    /// Whose host.
    pub lane: Lane,
    /// The volume that is formatted; absent: the subsystem is sanitized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeNumber>,
    /// How the server goes meanwhile, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash: Option<Crash>,
    /// After so many operations of the medium if the power goes, so many microseconds if the process dies.
    #[serde(default)]
    pub after: u64,
}
