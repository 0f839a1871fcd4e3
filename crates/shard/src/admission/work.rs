//! What goes on, and what it costs the core.

use diecut_namespace::contract::{ChunkRequest, NamespaceCommand, NamespaceOperation, ZoneRequest};
use diecut_openchannel::contract::ChunkOperation;
use diecut_units::{IU_SIZE_BYTES, mutant};
use diecut_volume::contract::{VolumeOperation, VolumeToken};
use diecut_vssd::VssdId;
use diecut_zoned::contract::ZoneOperation;

/// What each command costs the shard's core, besides its pieces.
pub(crate) const COMMAND_COST: u32 = 1;

/// What a piece of a command costs the shard's core: one for each logical block that is copied (two per block for a
/// write, which is staged and cleaned).
///
/// Of a deallocation or of zeroes `looked_at_ius` entries of the map have to be looked at, or one for each of its IUs.
#[inline]
pub(crate) fn cost_of(operation: &VolumeOperation, looked_at_ius: Option<u64>) -> u32 {
    match operation {
        VolumeOperation::Read { iu_count, .. } | VolumeOperation::Verify { iu_count, .. } => *iu_count,
        VolumeOperation::Write { .. } if mutant!("shard: writes cost the same whatever their size") => 2,
        VolumeOperation::Write { payload, .. } => 2 * payload.iu_count(),
        VolumeOperation::Flush | VolumeOperation::Purge => 0,
        // Read, and written.
        VolumeOperation::Copy(copy) => 3 * copy.iu_count(),
        VolumeOperation::WriteUncorrectable { iu_count, .. } => {
            u32::try_from(iu_count / 16).unwrap_or(u32::MAX)
        }
        // Cost lies in the map: no byte is touched.
        VolumeOperation::Deallocate { iu_count, .. } | VolumeOperation::WriteZeroes { iu_count, .. } => {
            u32::try_from(looked_at_ius.unwrap_or(*iu_count) / 16).unwrap_or(u32::MAX)
        }
    }
}

/// As [`cost_of`], of a command to zones. A write is staged once, and nothing is cleaned.
pub(crate) fn cost_of_zones(operation: &ZoneOperation) -> u32 {
    match operation {
        ZoneOperation::Read { iu_count, .. } | ZoneOperation::Verify { iu_count, .. } => *iu_count,
        ZoneOperation::Write { data, .. } | ZoneOperation::Append { data, .. } => data.iu_count(),
        ZoneOperation::Copy { sources, .. } => sources.iter().map(|source| 2 * source.iu_count).sum(),
        ZoneOperation::Flush
        | ZoneOperation::Purge
        | ZoneOperation::Extend { .. }
        | ZoneOperation::Commit { .. } => 0,
        // All zones may be looked at.
        ZoneOperation::Act { first_iu: None, .. } | ZoneOperation::Report(_) => 16,
        ZoneOperation::Act { .. } => 1,
    }
}

/// As [`cost_of`], of a command to chunks: nothing is staged or cleaned.
pub(crate) fn cost_of_chunks(operation: &ChunkOperation) -> u32 {
    match operation {
        ChunkOperation::Read { lbas, .. } | ChunkOperation::Write { lbas, .. } => lbas.count(),
        // Read, and written.
        ChunkOperation::Copy { to, .. } => 2 * to.count(),
        ChunkOperation::Reset { lbas } => lbas.count(),
        ChunkOperation::Clear { count, .. } => *count,
        ChunkOperation::Flush | ChunkOperation::Purge => 0,
        ChunkOperation::Report { count_max, .. } => count_max / 16,
    }
}

/// Bytes that a command moves, as QoS sets count them: what it reads, writes or compares; what it copies twice. Commands that move
/// nothing count none.
pub(crate) fn bytes_of(operation: &NamespaceOperation) -> u64 {
    let lbas = match operation {
        NamespaceOperation::Read { range, .. }
        | NamespaceOperation::Write { range, .. }
        | NamespaceOperation::Compare { range, .. }
        | NamespaceOperation::Verify { range } => range.lba_count,
        NamespaceOperation::Copy(copy) => copy.destination().lba_count.saturating_mul(2),
        NamespaceOperation::Zone(ZoneRequest::Append { lba_count, .. }) => *lba_count,
        NamespaceOperation::Chunk(ChunkRequest::Read { lbas, .. } | ChunkRequest::Write { lbas, .. }) => {
            lbas.count()
        }
        NamespaceOperation::Chunk(ChunkRequest::Copy { to, .. }) => 2 * to.count(),
        NamespaceOperation::Flush
        | NamespaceOperation::Purge
        | NamespaceOperation::Chunk(_)
        | NamespaceOperation::Deallocate { .. }
        | NamespaceOperation::WriteZeroes { .. }
        | NamespaceOperation::WriteUncorrectable { .. }
        | NamespaceOperation::Zone(_) => 0,
    };
    u64::from(lbas) * IU_SIZE_BYTES as u64
}

/// What may go on now.
#[derive(Debug)]
pub(crate) enum Work {
    /// A command, from the start.
    Command(NamespaceCommand),
    /// The next piece of a command that is under way.
    Rest(VolumeToken),
    /// The next entry of the application at a vSSD.
    Entry(VssdId),
}

/// What became of work that was taken up.
pub(crate) struct Begun {
    /// What it has cost.
    pub cost: u32,
    /// What is left of its command.
    pub rest: Option<VolumeToken>,
    /// Whether its vSSD came to have no room: it is held.
    pub holds: bool,
    /// Whether there is time for more.
    pub goes_on: bool,
}
