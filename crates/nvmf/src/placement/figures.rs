use diecut_namespace::contract::PlacementHandle;

/// What was written to the vSSD of a subsystem's endurance group since it was made, and how full its reclaim units are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementFigures {
    /// Bytes that hosts wrote (HBMW).
    pub host_written_bytes: u64,
    /// Bytes programmed: of hosts, the cleaner, maps, filler (MBMW).
    pub media_written_bytes: u64,
    /// Bytes erased (MBE).
    pub erased_bytes: u64,
    /// Logical blocks that the reclaim unit of each handle of the vSSD still takes (RUAMW).
    pub available_lbas: Vec<u64>,
    /// Handles of the question that were to get a fresh reclaim unit, and whose old one was written in part.
    pub partly_written: Vec<PlacementHandle>,
}

impl PlacementFigures {
    /// Logical blocks that the reclaim unit of a handle still takes.
    pub(super) fn available_lbas(&self, handle: PlacementHandle) -> u64 {
        self.available_lbas.get(usize::from(handle.0)).copied().unwrap_or(0)
    }
}
