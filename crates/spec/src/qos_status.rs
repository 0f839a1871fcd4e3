//! How QoS sets stand.

use crate::qos::QosSetSpec;
use serde::{Deserialize, Serialize};

/// A QoS set, and how it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QosSetStatus {
    /// Its definition.
    #[serde(flatten)]
    pub set: QosSetSpec,
    /// What its bucket holds, on all shards where it has members, in bytes or commands; below 0 while something is paid back that was
    /// larger than the bucket.
    pub level: i64,
    /// It is in the committed state, on each of these shards.
    pub is_committed: bool,
    /// Volumes and applications whose next request waits for tokens.
    pub waiting: u32,
    /// Requests granted in the committed state since the server started, or the set was made.
    pub committed_commands: u64,
    /// Their bytes or commands.
    pub committed_units: u64,
    /// Requests granted in the second state.
    pub second_commands: u64,
    /// Their bytes or commands.
    pub second_units: u64,
    /// Time in the committed state, in nanoseconds.
    pub committed_ns: u64,
    /// Time in the second state, in nanoseconds.
    pub second_ns: u64,
    /// Requests that waited for tokens before they were granted, each as the next one of its volume.
    pub waits: u64,
    /// For how long together, in nanoseconds.
    pub waited_ns: u64,
}

impl QosSetStatus {
    /// A set of which nothing is known yet.
    pub fn new(set: QosSetSpec) -> QosSetStatus {
        QosSetStatus {
            set,
            level: 0,
            is_committed: true,
            waiting: 0,
            committed_commands: 0,
            committed_units: 0,
            second_commands: 0,
            second_units: 0,
            committed_ns: 0,
            second_ns: 0,
            waits: 0,
            waited_ns: 0,
        }
    }

    /// Adds another shard's part.
    pub fn merge(&mut self, other: QosSetStatus) {
        self.level += other.level;
        self.is_committed &= other.is_committed;
        self.waiting += other.waiting;
        self.committed_commands += other.committed_commands;
        self.committed_units += other.committed_units;
        self.second_commands += other.second_commands;
        self.second_units += other.second_units;
        self.committed_ns += other.committed_ns;
        self.second_ns += other.second_ns;
        self.waits += other.waits;
        self.waited_ns += other.waited_ns;
    }
}
