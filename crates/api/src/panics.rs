//! Panics of the server, and vSSDs that are fenced for them.

use serde::{Deserialize, Serialize};

/// Panics of a pool's servers since it was made, and what followed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PanicReport {
    /// Panics so far.
    pub count: u64,
    /// The last 64, the last one last.
    pub panics: Vec<Panic>,
    /// vSSDs that hosts cannot write until an administrator says otherwise.
    pub fenced: Vec<Fence>,
}

/// A shard failed an inner check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Panic {
    /// Rises with each.
    pub number: u64,
    /// What it is known by, in hexadecimal: the same for each of one place in the source. Log page C1h of OCP tells it to hosts.
    pub id: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The shard, from 0.
    pub shard: u16,
    /// The vSSD that the shard was at work for, if it was for a single one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vssd: Option<String>,
    /// What the check said.
    pub message: String,
    /// The check's place in the source.
    pub location: String,
    /// The last commands that the shard began, the last one last.
    pub commands: Vec<String>,
    /// What the shard told last, the last one last.
    pub notices: Vec<String>,
}

/// A vSSD that is fenced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fence {
    /// Its name.
    pub vssd: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// The panic that fenced it.
    pub panic: u64,
}
