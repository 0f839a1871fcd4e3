//! What a command costs the core, in virtual time: isolation must not hide behind a processor that is free.

use crate::drive;
use diecut_units::{Span, Time};
use diecut_volume::contract::VolumeOperation;

/// Costs of commands on the shard's core. On the real clock commands cost what they cost and there is no model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostModel {
    /// Each command: receive, parse, admit, complete, send.
    pub command_ns: u64,
    /// Each piece of a command after the first: its turn, and what large commands cost beyond their blocks.
    pub piece_ns: u64,
    /// Each connection that is accepted or closed: what the operating system takes for it, mostly.
    pub connection_ns: u64,
    /// Each time bytes of a connection are received, with their answer, besides the I/O commands in them.
    pub message_ns: u64,
    /// Each logical block read.
    pub read_block_ns: u64,
    /// Each logical block written: staging, map, its share of cleaning.
    pub write_block_ns: u64,
    /// Each 16 logical blocks deallocated.
    pub deallocate_16_blocks_ns: u64,
}

impl Default for CostModel {
    /// What `diecut-bench costs` measures of the shipped server (the least of two runs on a shared 2-core virtual machine of
    /// the Sapphire Rapids class, Linux 6.18, loopback), rounded. A command is one that comes in a message of its own, as those
    /// of an open loop do; in batches of 128 it is a tenth of that.
    fn default() -> CostModel {
        CostModel {
            command_ns: 9_300,
            piece_ns: 8_500,
            connection_ns: 7_800,
            message_ns: 5_800,
            read_block_ns: 2_000,
            write_block_ns: 2_300,
            deallocate_16_blocks_ns: 90,
        }
    }
}

impl CostModel {
    fn cost(&self, operation: &VolumeOperation) -> Span {
        Span(match operation {
            VolumeOperation::Read { iu_count, .. } | VolumeOperation::Verify { iu_count, .. } => {
                u64::from(*iu_count) * self.read_block_ns
            }
            VolumeOperation::Write { payload, .. } => u64::from(payload.iu_count()) * self.write_block_ns,
            VolumeOperation::Flush => 0,
            VolumeOperation::Deallocate { iu_count, .. } | VolumeOperation::WriteZeroes { iu_count, .. } => {
                iu_count.div_ceil(16) * self.deallocate_16_blocks_ns
            }
        })
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
    /// The core spends time on a command, besides its pieces.
    pub fn charge_command(&mut self, now: Time) {
        if let Some(model) = &self.model {
            self.free_at = self.free_at.max(now) + Span(model.command_ns);
        }
    }
    /// The core spends time on an event of a connection.
    pub fn charge_event(&mut self, event: &drive::Event, now: Time) {
        if let Some(model) = &self.model {
            let ns = match event {
                drive::Event::Accepted { .. } | drive::Event::Closed { .. } => model.connection_ns,
                drive::Event::Adopted { .. }
                | drive::Event::Received { .. }
                | drive::Event::ReceivedInWindow { .. } => model.message_ns,
                drive::Event::Control { .. } | drive::Event::Told { .. } | drive::Event::Blocks(_) => 0,
            };
            self.free_at = self.free_at.max(now) + Span(ns);
        }
    }
    /// The core spends time on taking a command up again.
    pub fn charge_turn(&mut self, now: Time) {
        if let Some(model) = &self.model {
            self.free_at = self.free_at.max(now) + Span(model.piece_ns);
        }
    }
    /// The core spends time on a piece of a command.
    pub fn charge(&mut self, operation: &VolumeOperation, now: Time) {
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
