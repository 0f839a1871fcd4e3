//! Bodies of requests that are no specifications (those are in `spec`).

use serde::{Deserialize, Serialize};

/// Where a tenant is to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Home {
    /// The shard of the server, from 0.
    pub shard: u16,
}

/// What is due to a tenant beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weight {
    /// Its weight, 1 to 1000; 100 is usual.
    pub weight: u32,
}

/// What a repair of a vSSD may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Repair {
    /// The vSSD is to take writes also where something was lost: reads of that fail until it is written or deallocated, and where
    /// records were lost, older data may show.
    pub accept_loss: bool,
}
