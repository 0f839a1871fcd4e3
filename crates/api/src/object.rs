//! Bodies of requests that are no specifications (those are in `spec`).

use diecut_spec::Size;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

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

/// A drive of the server's machine that is to be one of its pool. What it holds is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewDevice {
    /// Path of a file or a block device, from the root on.
    pub path: String,
    /// What it is called: 1 to 64 letters, digits, `-`, `_` or `.`; its path, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Also where something else was recognized on it.
    #[serde(default)]
    pub force: bool,
    /// Lanes that it is cut into; what suits its size, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<u16>,
    /// Bytes of an erase block; those of the others, if absent and it can have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erase_block: Option<Size>,
    /// A new file of so many bytes is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
}

/// A device that came to the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedDevice {
    /// Where it is.
    pub path: String,
    /// What it is called.
    pub name: String,
    /// Its UUID.
    pub device: Uuid,
    /// The UUID of the pool.
    pub pool: Uuid,
    /// Lanes that it is cut into.
    pub lanes: u16,
    /// Erase blocks of a lane.
    pub blocks_per_lane: u32,
    /// Bytes of an erase block.
    pub erase_block: Size,
}

/// A device that left the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedDevice {
    /// What it was called.
    pub name: String,
    /// Its UUID.
    pub device: Uuid,
}
