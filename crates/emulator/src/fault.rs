//! What goes wrong, as data: a simulator generates, stores and shrinks these.

use diecut_units::DieAddress;
use serde::{Deserialize, Serialize};

/// Everything that will go wrong: chance and appointments. Empty by default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultPlan {
    /// Random failures.
    pub rates: FaultRates,
    /// Failures by appointment.
    pub faults: Vec<Fault>,
}

/// Chances per command, rising with wear and retention.
///
/// The chance on a block is `rate * (1 + wear_growth * w*w + retention_growth_per_day * days)`, where `w` is the
/// block's erase count over its own endurance and `days` the time since its first program after the last
/// erase (retention counts for reads only).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultRates {
    /// A program command fails.
    pub program_fail: f64,
    /// An erase fails.
    pub erase_fail: f64,
    /// A read command finds an uncorrectable page.
    pub uncorrectable_read: f64,
    /// A read command returns wrong data as if it were right: a bit flip that the code did not detect.
    pub silent_flip: f64,
    /// A read needs a retry, which costs the array read again; may repeat up to [`FaultRates::retry_limit`] times.
    pub read_retry: f64,
    /// Most retries of one read.
    pub retry_limit: u32,
    /// How much chances grow until the block's endurance is reached.
    pub wear_growth: f64,
    /// How much chances of reads grow per day without an erase.
    pub retention_growth_per_day: f64,
    /// Whether an erase beyond the block's own endurance fails.
    pub wear_out: bool,
}

/// A die in a fault plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultyDie {
    /// Channel of the device.
    pub channel: u16,
    /// Die within the channel.
    pub die: u16,
}

impl From<FaultyDie> for DieAddress {
    fn from(die: FaultyDie) -> DieAddress {
        DieAddress::new(die.channel, die.die)
    }
}

/// Kinds of operations, as counted for appointments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationKind {
    /// Reads of IUs and of OOB areas.
    Read,
    /// Programs.
    Program,
    /// Erases.
    Erase,
    /// Copies within a die.
    Copy,
}

/// One failure by appointment. Operations are counted from 0, when a die begins with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fault {
    /// The n-th operation of a kind on a die fails: reads are uncorrectable, programs, erases and copies fail.
    Fail {
        /// Which die.
        die: FaultyDie,
        /// Which kind of operation.
        kind: OperationKind,
        /// Which of them, from 0.
        nth: u64,
    },
    /// The n-th read on a die returns data with one bit wrong.
    SilentFlip {
        /// Which die.
        die: FaultyDie,
        /// Which read, from 0.
        nth: u64,
        /// Which bit of the destination (modulo its size).
        bit: u32,
    },
    /// The power goes while the n-th operation of the device is under way.
    PowerCutAtOperation {
        /// Which operation, from 0, of all kinds and dies.
        nth: u64,
    },
    /// The power goes at this time.
    PowerCutAtTime {
        /// When, in nanoseconds.
        time_ns: u64,
    },
    /// A die does not answer any more.
    DieOffline {
        /// Which die.
        die: FaultyDie,
        /// From when, in nanoseconds.
        from_ns: u64,
    },
    /// A whole channel does not answer any more.
    ChannelOffline {
        /// Which channel.
        channel: u16,
        /// From when, in nanoseconds.
        from_ns: u64,
    },
    /// Where content lies there is no room for a while for erase blocks that have none yet: as on a file system that somebody else
    /// filled. Blocks that got room before keep it.
    NoRoom {
        /// From when, in nanoseconds.
        from_ns: u64,
        /// Until when, in nanoseconds.
        until_ns: u64,
    },
    /// Array operations of a die take longer for a while.
    SlowDie {
        /// Which die.
        die: FaultyDie,
        /// From when, in nanoseconds.
        from_ns: u64,
        /// Until when, in nanoseconds.
        until_ns: u64,
        /// How much longer, in percent of the normal time (100 = normal).
        percent: u32,
    },
}
