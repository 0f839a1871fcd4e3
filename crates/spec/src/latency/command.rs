//! A slow command, and what its die did around it.

use super::Cause;
use serde::{Deserialize, Serialize};

/// What a die did, and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkFor {
    /// Tenant.
    pub tenant: String,
    /// vSSD.
    pub vssd: String,
    /// What for: `host_read`, `host_write`, `cleaner`, `metadata`, `migration`.
    pub class: String,
    /// What: `read`, `program`, `erase`.
    pub kind: String,
    /// Operations.
    pub operations: u32,
}

/// A part of a command's time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimePart {
    /// Where it went.
    pub cause: Cause,
    /// How long.
    pub us: u64,
    /// For whose work, where it waited for some.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub work: Option<WorkFor>,
}

/// What the die of a command did around it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// What it did, and for whom.
    pub work: WorkFor,
    /// From when on, counted from the command's arrival; before it where negative.
    pub from_us: i64,
    /// Until when.
    pub until_us: i64,
}

/// Where a command was served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhereItWas {
    /// Its tenant.
    pub tenant: String,
    /// Its vSSD.
    pub vssd: String,
    /// Its volume.
    pub volume: String,
    /// QoS set that its volume is in: for its tokens it may have waited in front of admission.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub qos_set: Option<String>,
    /// Shard that served it.
    pub shard: u16,
    /// Channel and die within it that answered last, where one did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub die: Option<(u16, u16)>,
}

/// A command as its host sent it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatWasAsked {
    /// NQN of its subsystem; empty where it did not come over NVMe.
    pub subsystem: String,
    /// Its namespace there.
    pub nsid: u32,
    /// What was asked: `read`, `write`, `flush`, ...
    pub operation: String,
    /// First logical block.
    pub first_lba: u64,
    /// Logical blocks.
    pub lba_count: u32,
    /// Its controller.
    pub controller_id: u16,
    /// Its queue.
    pub queue_id: u16,
    /// Its command identifier.
    pub command_id: u16,
}

/// A command over the threshold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowCommand {
    /// When it was answered, on the server's clock.
    pub at_us: u64,
    /// From its arrival to its answer.
    pub took_us: u64,
    /// Whose it was, and where.
    pub place: WhereItWas,
    /// What its host asked.
    pub asked: WhatWasAsked,
    /// Where its time went, the longest part first.
    pub parts: Vec<TimePart>,
    /// What that die did around it, the earliest first.
    pub neighbours: Vec<Neighbour>,
}
