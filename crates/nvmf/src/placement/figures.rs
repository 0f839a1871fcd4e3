use diecut_namespace::contract::{PlacementHandle, PlacementProperties, PlacementTarget, ReclaimGroup};

/// What was written to the vSSD of a subsystem's endurance group since it was made, and how full its reclaim units are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementFigures {
    /// Bytes that hosts wrote (HBMW).
    pub host_written_bytes: u64,
    /// Bytes programmed: of hosts, the cleaner, maps, filler (MBMW).
    pub media_written_bytes: u64,
    /// Bytes erased (MBE).
    pub erased_bytes: u64,
    /// Logical blocks that the reclaim unit of each handle of the vSSD still takes (RUAMW): those of all handles in the first reclaim group
    /// come first.
    pub available_lbas: Vec<u64>,
    /// What of the question was to get a fresh reclaim unit, and whose old one was written in part.
    pub partly_written: Vec<PlacementTarget>,
}

impl PlacementFigures {
    /// Logical blocks that the reclaim unit of a handle in a group still takes.
    pub(super) fn available_lbas(
        &self,
        placement: &PlacementProperties,
        group: ReclaimGroup,
        handle: PlacementHandle,
    ) -> u64 {
        let at = usize::from(group.0) * usize::from(placement.vssd_handles) + usize::from(handle.0);
        self.available_lbas.get(at).copied().unwrap_or(0)
    }
}
