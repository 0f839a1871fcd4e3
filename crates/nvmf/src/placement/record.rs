//! What outlives a power loss of a subsystem's placement events, and who is asked to keep it.

use diecut_nvme::QualifiedName;
use diecut_nvme::fdp::PlacementEvent;
use std::collections::BTreeMap;

/// Which events of an endurance group are kept, and the last of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementRecord {
    /// Types of events that are kept (feature 1Eh), by reclaim unit handle, in ascending order. Handles without any are left out.
    pub enabled: BTreeMap<u16, Vec<u8>>,
    /// The last ones, oldest first (log page 23h).
    pub events: Vec<PlacementEvent>,
}

impl PlacementRecord {
    /// Whether it says what nobody said anything about says.
    pub fn is_empty(&self) -> bool {
        self.enabled.is_empty() && self.events.is_empty()
    }
}

/// What the target asks to be made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepPlacement {
    /// Whose events they are.
    pub subsystem: QualifiedName,
    /// Which change of them; numbers of a subsystem rise.
    pub version: u64,
    /// What is to outlive a power loss.
    pub record: PlacementRecord,
}

/// The answer to [`KeepPlacement`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPlacement {
    /// Whose events they are.
    pub subsystem: QualifiedName,
    /// Which change of them.
    pub version: u64,
    /// It is durable. Else nothing of it will be found after a power loss.
    pub is_kept: bool,
}

impl KeepPlacement {
    /// The answer of whoever keeps it.
    pub fn kept(&self) -> KeptPlacement {
        KeptPlacement { subsystem: self.subsystem.clone(), version: self.version, is_kept: true }
    }
}
