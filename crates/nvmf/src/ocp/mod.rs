//! What the OCP specification for datacenter SSDs adds to a subsystem: extended health, the latency monitor, telemetry that holds its debug
//! log. Each subsystem is a tenant's drive.
//!
//! What media did is not known here. Where a page needs it the target asks ([`Question`]), and goes on with the command when it is told
//! ([`Tidings`]).

mod monitor;
mod panics;
mod telemetry;

use crate::placement::PlacementFigures;
use diecut_namespace::contract::{CommandToken, NamespaceId, PlacementTarget};
use diecut_nvme::QualifiedName;
pub(crate) use monitor::{LatencyMonitor, Set};
pub use panics::PanicsTold;
pub(crate) use telemetry::{Capture, DEBUG_BLOCK, Telemetry, strings};

/// What media did for a subsystem, and how they are. Bytes and reads are counted since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaFigures {
    /// Bytes programmed: of hosts, the cleaner, maps, filler.
    pub written_bytes: u64,
    /// Bytes read, for whatever.
    pub read_bytes: u64,
    /// Blocks that were retired, on all its dies.
    pub bad_blocks: u64,
    /// What is left of the blocks that may be retired, in percent.
    pub spare_percent: u8,
    /// Erases of its blocks.
    pub erases_max: u32,
    /// Erases of its blocks.
    pub erases_min: u32,
    /// Erases of its blocks.
    pub erases_average: u32,
    /// Free blocks, in percent of its own.
    pub free_percent: u8,
    /// Dies that it lies on.
    pub dies: u16,
    /// Reads that could not be corrected.
    pub uncorrectable_reads: u64,
    /// Starts without a shutdown before.
    pub incomplete_shutdowns: u32,
}

/// What the target asks of whoever knows media.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// About which subsystem.
    pub subsystem: QualifiedName,
    /// A command that waits for the answer; none if a command was so slow that it triggered the debug log.
    pub waits: Option<CommandToken>,
    /// Reclaim unit handles that are to get a fresh reclaim unit first: those of the vSSD that the subsystem's namespaces with handles
    /// lie on.
    pub updates: Vec<PlacementTarget>,
    /// The namespace whose host asks for that, where one does.
    pub namespace: Option<NamespaceId>,
}

impl Question {
    /// The answer of whoever knows no media: a driver of namespaces in memory.
    pub fn unknown(self) -> Tidings {
        let Question { subsystem, waits, .. } = self;
        let (figures, placement) = (MediaFigures::default(), PlacementFigures::default());
        Tidings { subsystem, waits, figures, placement, debug_log: Vec::new() }
    }
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tidings {
    /// About which subsystem.
    pub subsystem: QualifiedName,
    /// The command that waits for it.
    pub waits: Option<CommandToken>,
    /// What media did.
    pub figures: MediaFigures,
    /// What was written where, if its namespaces have reclaim unit handles.
    pub placement: PlacementFigures,
    /// What is known of slow commands, the one that triggered the debug log last, for people.
    pub debug_log: Vec<u8>,
}

/// What a subsystem has of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ocp {
    pub monitor: LatencyMonitor,
    pub telemetry: Telemetry,
    pub figures: MediaFigures,
    /// Latency of the command that triggered the debug log, in microseconds.
    pub outlier_us: u32,
    /// Panics of the server.
    pub panics: PanicsTold,
}
