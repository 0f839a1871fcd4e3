//! What a command costs the core, in virtual time: isolation must not hide behind a processor that is free.

use diecut_namespace::contract::NamespaceOperation;
use diecut_units::{Span, Time};

/// Costs of commands on the shard's core. On the real clock commands cost what they cost and there is no model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostModel {
    /// Each command: parse, admit, complete.
    pub command_ns: u64,
    /// Each logical block read.
    pub read_block_ns: u64,
    /// Each logical block written: staging, map, its share of cleaning.
    pub write_block_ns: u64,
    /// Each 16 logical blocks deallocated.
    pub deallocate_16_blocks_ns: u64,
}

impl Default for CostModel {
    /// Round figures of the order that the benchmarks print for one core.
    fn default() -> CostModel {
        CostModel {
            command_ns: 1_500,
            read_block_ns: 500,
            write_block_ns: 1_000,
            deallocate_16_blocks_ns: 100,
        }
    }
}

impl CostModel {
    fn cost(&self, operation: &NamespaceOperation) -> Span {
        let deallocate = |blocks: u64| blocks.div_ceil(16) * self.deallocate_16_blocks_ns;
        let blocks_ns = match operation {
            NamespaceOperation::Read { range, .. }
            | NamespaceOperation::Compare { range, .. }
            | NamespaceOperation::Verify { range } => u64::from(range.lba_count) * self.read_block_ns,
            NamespaceOperation::Write { range, .. } => u64::from(range.lba_count) * self.write_block_ns,
            NamespaceOperation::Flush => 0,
            NamespaceOperation::WriteZeroes { range, .. } => deallocate(range.lba_count.into()),
            NamespaceOperation::Deallocate { ranges } => {
                deallocate(ranges.iter().map(|range| u64::from(range.lba_count)).sum())
            }
        };
        Span(self.command_ns + blocks_ns)
    }
}

/// When the modelled core is free again.
pub(crate) struct CpuClock {
    model: Option<CostModel>,
    free_at: Time,
}

impl CpuClock {
    pub fn new(model: Option<CostModel>) -> CpuClock {
        CpuClock { model, free_at: Time::ZERO }
    }
    /// The core spends time on a command.
    pub fn charge(&mut self, operation: &NamespaceOperation, now: Time) {
        if let Some(model) = &self.model {
            self.free_at = self.free_at.max(now) + model.cost(operation);
        }
    }
    /// Whether the core is still at work on what it admitted.
    pub fn is_busy(&self, now: Time) -> bool {
        self.free_at > now
    }
    /// When it is free.
    pub fn free_at(&self) -> Time {
        self.free_at
    }
}
