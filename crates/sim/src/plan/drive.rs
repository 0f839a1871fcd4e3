//! A drive in place of NAND, as data of a plan.

use serde::{Deserialize, Serialize};

/// What goes wrong with a drive, from the time of the fault on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriveFault {
    /// Nothing is answered for a while.
    Stalls {
        /// How long.
        span_ns: u64,
    },
    /// The next flush fails, and what it should have covered may be gone, though the one after it would succeed. Until the server starts again.
    FlushFails,
    /// Writes to an erase block are refused.
    Unwritable {
        /// Lane.
        lane: u16,
        /// Erase block.
        block: u32,
    },
    /// Reads of an IU are refused.
    Unreadable {
        /// Lane.
        lane: u16,
        /// Erase block.
        block: u32,
        /// IU in it.
        iu: u32,
    },
    /// Bits of an IU are flipped.
    Rots {
        /// Lane.
        lane: u16,
        /// Erase block.
        block: u32,
        /// IU in it.
        iu: u32,
    },
    /// It lies.
    Lies(DriveLie),
}

/// What a drive does while it says that all is well; all but the first a few times in a thousand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriveLie {
    /// Flushes do nothing.
    AboutFlushes,
    /// A write goes nowhere.
    LosesWrites,
    /// A write goes elsewhere.
    MisdirectsWrites,
    /// A read comes from elsewhere.
    MisdirectsReads,
    /// A read returns what was there before the last writes.
    StaleReads,
}

impl DriveFault {
    /// Whether data may be lost to it.
    pub fn loses_data(self) -> bool {
        !matches!(self, DriveFault::Stalls { .. } | DriveFault::Unwritable { .. })
    }
}

/// How it is cut, and what it is like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrivePlan {
    /// Lanes.
    pub lanes: u16,
    /// KiB of an erase block, a power of two.
    pub block_kib: u32,
    /// Erase blocks of a lane.
    pub blocks_per_lane: u32,
    /// Whether it has a cache that a power cut empties; otherwise what it answered is durable.
    pub volatile_cache: bool,
    /// Whether it is told what may be forgotten.
    pub discards: bool,
    /// Commands that it works on at once.
    pub depth: u32,
    /// What a flush takes, in nanoseconds.
    pub flush_ns: u64,
}
