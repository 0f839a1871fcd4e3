//! Where the time of slow commands went, as administrators are told.

mod cause;
mod command;

pub use cause::Cause;
pub use command::{Neighbour, SlowCommand, TimePart, WhatWasAsked, WhereItWas, WorkFor};
use serde::{Deserialize, Serialize};

/// Upper ends of the histogram's buckets, in milliseconds; a last bucket has the rest.
pub const HISTOGRAM_MS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// Buckets of a histogram.
pub const HISTOGRAM_BUCKETS: usize = HISTOGRAM_MS.len() + 1;

/// What one cause took of the slow commands that were explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseFigures {
    /// Which.
    pub cause: Cause,
    /// Commands that it took time of.
    pub commands: u64,
    /// Commands of which it took most.
    pub dominant: u64,
    /// All that it took.
    pub total_us: u64,
    /// Commands by the time it took of each, see [`HISTOGRAM_MS`].
    pub histogram: [u64; HISTOGRAM_BUCKETS],
}

/// How long slow commands of one vSSD waited for the work of another one, or for its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitedFor {
    /// Tenant that waited.
    pub tenant: String,
    /// Its vSSD.
    pub vssd: String,
    /// Tenant it waited for.
    pub for_tenant: String,
    /// That one's vSSD.
    pub for_vssd: String,
    /// Its reads for hosts.
    pub reads_us: u64,
    /// Its programs for hosts.
    pub programs_us: u64,
    /// Its erases.
    pub erases_us: u64,
    /// What its cleaner and its maps read and programmed.
    pub cleaner_us: u64,
    /// Exchanges of its content for even wear.
    pub migration_us: u64,
    /// The bus of the channel while it had that.
    pub bus_us: u64,
}

impl WaitedFor {
    /// All of it.
    pub fn total_us(&self) -> u64 {
        self.reads_us + self.programs_us + self.erases_us + self.cleaner_us + self.migration_us + self.bus_us
    }
}

/// Where the time of slow commands went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyReport {
    /// Commands that take so long are slow.
    pub threshold_us: u64,
    /// Now, on the server's clock.
    pub now_us: u64,
    /// Commands of hosts over the threshold since the server started.
    pub slow: u64,
    /// Those of them that were looked into: a bounded number a second.
    pub explained: u64,
    /// By cause; causes that took nothing are left out.
    pub causes: Vec<CauseFigures>,
    /// Which vSSD waited for which.
    pub matrix: Vec<WaitedFor>,
    /// The latest that were explained, the slowest first.
    pub commands: Vec<SlowCommand>,
}

impl LatencyReport {
    /// Adds another shard's part.
    pub fn merge(&mut self, other: LatencyReport) {
        self.now_us = self.now_us.max(other.now_us);
        self.slow += other.slow;
        self.explained += other.explained;
        for one in other.causes {
            match self.causes.iter_mut().find(|own| own.cause == one.cause) {
                None => self.causes.push(one),
                Some(own) => {
                    own.commands += one.commands;
                    own.dominant += one.dominant;
                    own.total_us += one.total_us;
                    own.histogram.iter_mut().zip(one.histogram).for_each(|(own, one)| *own += one);
                }
            }
        }
        self.matrix.extend(other.matrix);
        self.commands.extend(other.commands);
        self.sort();
    }

    /// Puts everything in its order.
    pub fn sort(&mut self) {
        self.causes.sort_by_key(|one| one.cause);
        self.matrix.sort_by_key(|one| std::cmp::Reverse(one.total_us()));
        self.commands.sort_by_key(|one| (std::cmp::Reverse(one.took_us), one.at_us));
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn reports_of_shards_add_up() {
        let figures = |cause, total_us| CauseFigures {
            cause,
            commands: 1,
            dominant: 1,
            total_us,
            histogram: [1; HISTOGRAM_BUCKETS],
        };
        let one = LatencyReport {
            slow: 3,
            explained: 1,
            causes: vec![figures(Cause::Bus, 5)],
            ..LatencyReport::default()
        };
        let mut sum = LatencyReport {
            slow: 2,
            explained: 2,
            causes: vec![figures(Cause::Bus, 7), figures(Cause::Network, 1)],
            ..LatencyReport::default()
        };
        sum.merge(one);
        assert_eq!((sum.slow, sum.explained), (5, 3));
        let totals: Vec<(Cause, u64, u64)> =
            sum.causes.iter().map(|one| (one.cause, one.total_us, one.histogram[0])).collect();
        assert_eq!(totals, [(Cause::Network, 1, 1), (Cause::Bus, 12, 2)]);
    }
}
