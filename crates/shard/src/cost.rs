//! What a command costs the core, in virtual time: isolation must not hide behind a processor that is free.

use crate::admission::{Admission, DOOR_SOURCE_BIT};
use crate::drive;
use diecut_namespace::contract::{CommandToken, NamespaceCommand, NamespaceCompletion, SourceId};
use diecut_openchannel::contract::ChunkOperation;
use diecut_units::{Span, Time};
use diecut_volume::contract::VolumeOperation;
use diecut_zoned::contract::ZoneOperation;

/// Costs of commands on the shard's core. On the real clock commands cost what they cost and there is no model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostModel {
    /// Each command: parse, admit, complete.
    pub command_ns: u64,
    /// Each time that commands of a source are taken up, however many arrived since the last time: receive, and send the answers.
    pub batch_ns: u64,
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
    /// Each 16 logical blocks deallocated, where any of the map's leaf may be mapped.
    pub deallocate_16_blocks_ns: u64,
}

impl Default for CostModel {
    /// What `diecut-bench costs` measures of the shipped server (the least of two runs on a shared 2-core virtual machine of
    /// the Sapphire Rapids class, Linux 6.18, loopback), rounded: 9.3 us for a command in a message of its own, 0.93 us for one of
    /// 41 that share a message (0.048 system calls each, two per message), which gives `batch_ns` and `command_ns`.
    fn default() -> CostModel {
        CostModel {
            command_ns: 730,
            batch_ns: 8_600,
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
    fn cost(&self, operation: &VolumeOperation, looked_at_ius: Option<u64>) -> Span {
        Span(match operation {
            VolumeOperation::Read { iu_count, .. } | VolumeOperation::Verify { iu_count, .. } => {
                u64::from(*iu_count) * self.read_block_ns
            }
            VolumeOperation::Write { payload, .. } => u64::from(payload.iu_count()) * self.write_block_ns,
            VolumeOperation::Flush | VolumeOperation::Purge => 0,
            VolumeOperation::Copy(copy) => {
                u64::from(copy.iu_count()) * (self.read_block_ns + self.write_block_ns)
            }
            VolumeOperation::WriteUncorrectable { iu_count, .. } => {
                iu_count.div_ceil(16) * self.deallocate_16_blocks_ns
            }
            VolumeOperation::Deallocate { iu_count, .. } | VolumeOperation::WriteZeroes { iu_count, .. } => {
                looked_at_ius.unwrap_or(*iu_count).div_ceil(16) * self.deallocate_16_blocks_ns
            }
        })
    }
}

/// What happens to a command of a door on its way, in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePoint {
    /// The core begins with it.
    Admitted,
    /// It is done; the answer waits for the end of the core's round.
    Done,
}

/// When the modelled core is free again, and what waits for it. It works in rounds, as the reactor does: it takes up what arrived,
/// source by source, then admits what a round may cost; what arrives meanwhile waits for the next one.
pub(crate) struct ModelledCore {
    model: Option<CostModel>,
    free_at: Time,
    /// See [`crate::Shard::take_trace`].
    pub trace: Vec<(CommandToken, TracePoint, Time)>,
    /// Answers of the round that is at work: they are sent when it is over.
    pub answers: Vec<NamespaceCompletion>,
    /// Commands of doors that the core has not looked at.
    arrived: Vec<NamespaceCommand>,
    /// Their sources.
    sources: Vec<SourceId>,
    /// What the round may still cost.
    round_left: u32,
    rounds: u64,
}

impl ModelledCore {
    pub fn new(model: Option<CostModel>) -> ModelledCore {
        ModelledCore {
            model,
            free_at: Time::ZERO,
            trace: Vec::new(),
            answers: Vec::new(),
            arrived: Vec::new(),
            sources: Vec::new(),
            round_left: 0,
            rounds: 0,
        }
    }
    /// Keeps a command of a door until the next round. Gives it back on the real clock.
    pub fn arrive(&mut self, command: NamespaceCommand) -> Option<NamespaceCommand> {
        if self.model.is_none() {
            return Some(command);
        }
        if !self.sources.contains(&command.source) {
            self.sources.push(command.source);
        }
        self.arrived.push(command);
        None
    }
    /// Notes a point in the life of a door's command.
    pub fn note(&mut self, point: TracePoint, token: CommandToken, source: SourceId, now: Time) {
        if self.model.is_some() && source.0 & DOOR_SOURCE_BIT != 0 {
            self.trace.push((token, point, now));
        }
    }
    /// Whether something arrived that no round has taken up.
    pub fn has_arrivals(&self) -> bool {
        !self.arrived.is_empty()
    }
    /// Begins a round if the core is free and the last one is over, because nothing is left of it or it has cost what a round may.
    /// Sources that have commands in `admission` are not heard before these are begun (see [`drive::Drive::goes_on`]); the
    /// others' commands go there.
    pub fn begin_round(&mut self, now: Time, admission: &mut Admission) {
        let Some(model) = &self.model else { return };
        if !self.is_between_rounds(now, admission.has_work()) {
            return;
        }
        let arrived = self.sources.len();
        self.sources.retain(|source| admission.goes_on(*source));
        let unheard = &self.sources;
        self.free_at = self.free_at.max(now) + Span(model.batch_ns * (arrived - unheard.len()) as u64);
        for command in self.arrived.extract_if(.., |command| !unheard.contains(&command.source)) {
            admission.push(command);
        }
        (self.round_left, self.rounds) = (admission.round_cost(now), self.rounds + 1);
    }
    /// Whether the core is free between two rounds: of the last one nothing `is_left`, or its budget is used up.
    pub fn is_between_rounds(&self, now: Time, is_left: bool) -> bool {
        !self.is_busy(now) && (!is_left || self.round_left == 0)
    }
    /// Something of the round's budget was used. Whether the core has time for more now; there always is some on the real clock.
    #[inline]
    pub fn goes_on(&mut self, cost: u32, now: Time) -> bool {
        if self.model.is_none() {
            return true;
        }
        self.round_left = self.round_left.saturating_sub(cost);
        !self.is_busy(now)
    }
    /// Rounds so far.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }
    /// The core begins with a command, and spends time on it, besides its pieces.
    pub fn begin_command(&mut self, token: CommandToken, source: SourceId, now: Time) {
        if let Some(model) = &self.model {
            if source.0 & DOOR_SOURCE_BIT != 0 {
                self.trace.push((token, TracePoint::Admitted, now));
            }
            self.free_at = self.free_at.max(now) + Span(model.command_ns);
        }
    }
    /// The core spends time on an entry of an application, whose data it copies.
    pub fn charge_entry(&mut self, ius: u32, now: Time) {
        if let Some(model) = &self.model {
            let copies = u64::from(ius) * model.read_block_ns;
            self.free_at = self.free_at.max(now) + Span(model.command_ns + copies);
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
                drive::Event::Control { .. }
                | drive::Event::Told { .. }
                | drive::Event::Blocks(_)
                | drive::Event::IoDone(..)
                | drive::Event::DeviceAway(..)
                | drive::Event::DeviceCame(_)
                | drive::Event::DeviceWent(_) => 0,
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
    /// The core spends time on a piece of a command; see [`crate::admission::cost_of`].
    pub fn charge(&mut self, operation: &VolumeOperation, looked_at_ius: Option<u64>, now: Time) {
        if let Some(model) = &self.model {
            self.free_at = self.free_at.max(now) + model.cost(operation, looked_at_ius);
        }
    }
    /// As [`ModelledCore::charge`], of a command to zones.
    pub fn charge_zones(&mut self, operation: &ZoneOperation, now: Time) {
        if let Some(model) = &self.model {
            let ns = match operation {
                ZoneOperation::Read { iu_count, .. } | ZoneOperation::Verify { iu_count, .. } => {
                    u64::from(*iu_count) * model.read_block_ns
                }
                ZoneOperation::Write { data, .. } | ZoneOperation::Append { data, .. } => {
                    u64::from(data.iu_count()) * model.write_block_ns
                }
                ZoneOperation::Copy { sources, .. } => {
                    let ius: u64 = sources.iter().map(|source| u64::from(source.iu_count)).sum();
                    ius * (model.read_block_ns + model.write_block_ns)
                }
                _ => 0,
            };
            self.free_at = self.free_at.max(now) + Span(ns);
        }
    }
    /// As [`ModelledCore::charge`], of a command to chunks.
    pub fn charge_chunks(&mut self, operation: &ChunkOperation, now: Time) {
        if let Some(model) = &self.model {
            let ns = match operation {
                ChunkOperation::Read { lbas, .. } => u64::from(lbas.count()) * model.read_block_ns,
                ChunkOperation::Write { lbas, .. } => u64::from(lbas.count()) * model.write_block_ns,
                ChunkOperation::Copy { to, .. } => {
                    u64::from(to.count()) * (model.read_block_ns + model.write_block_ns)
                }
                ChunkOperation::Reset { .. }
                | ChunkOperation::Clear { .. }
                | ChunkOperation::Flush
                | ChunkOperation::Purge
                | ChunkOperation::Report { .. } => 0,
            };
            self.free_at = self.free_at.max(now) + Span(ns);
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
