//! Reclaim unit handles in a plan: which vSSDs have some, which of them a volume has, and which one a write names.
//!
//! What a volume has and what a write names follow from their numbers, so that whoever looks at an IU later knows by its content alone where
//! it must lie.

use super::Plan;
use crate::tag::VolumeNumber;
use serde::{Deserialize, Serialize};

/// Reclaim unit handles of a vSSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementPlan {
    /// How many there are.
    pub handles: u16,
    /// Whether they are isolated for good.
    pub persistent: bool,
    /// Whether each die is a reclaim group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub groups: bool,
}

/// What a host does with the handles of a volume, besides writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementStep {
    /// Asks how full their reclaim units are.
    Status {
        /// Of which volume.
        volume: VolumeNumber,
    },
    /// Asks for fresh reclaim units.
    Update {
        /// Of which volume.
        volume: VolumeNumber,
        /// For the first so many of its handles, at least 1, or for all if there are fewer.
        handles: u16,
    },
}

impl PlacementStep {
    /// The volume that it is about.
    pub fn volume(self) -> VolumeNumber {
        match self {
            PlacementStep::Status { volume } | PlacementStep::Update { volume, .. } => volume,
        }
    }
}

impl Plan {
    /// Handles that an administrator chooses for a volume, the one of placement handle 0 first; none: one is given to it. Nothing if its vSSD
    /// has no handles.
    pub fn placement_of(&self, volume: VolumeNumber) -> Option<Vec<u16>> {
        let PlacementPlan { handles, .. } = self.tenants[usize::from(self.owner(volume).0)].placement?;
        let number = u16::from(volume.0);
        // Every fourth has none of its choice.
        let count = if number.is_multiple_of(4) { 0 } else { 1 + number % handles };
        Some((0..count).map(|at| (number + at) % handles).collect())
    }
    /// Whether the vSSD of a volume has reclaim groups.
    pub fn has_groups(&self, volume: VolumeNumber) -> bool {
        self.tenants[usize::from(self.owner(volume).0)].placement.is_some_and(|placement| placement.groups)
    }
    /// Placement handles of a volume; nothing if its vSSD has no handles.
    pub fn placement_handles_of(&self, volume: VolumeNumber) -> Option<u16> {
        self.placement_of(volume).map(|chosen| chosen.len().max(1) as u16)
    }
}

/// The placement identifier that a host sends with the write that makes this version of a volume with so many placement handles; `None`: no
/// directive. Now and then it is one that there is not.
pub fn pid_of(version: u32, handles: u16) -> Option<u16> {
    let wanted = (version / 3 % (u32::from(handles) + 1)) as u16;
    (!version.is_multiple_of(4)).then_some(wanted)
}

/// The reclaim group among so many that the write names with its handle.
pub fn group_of(version: u32, groups: u16) -> u16 {
    (version / 7 % u32::from(groups)) as u16
}

/// The placement handle that the write goes to: the first one where it names none, or one that there is not.
pub fn placed_by(version: u32, handles: u16) -> u16 {
    pid_of(version, handles).filter(|pid| *pid < handles).unwrap_or(0)
}
