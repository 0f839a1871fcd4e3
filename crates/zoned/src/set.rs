//! The zones of one namespace.

use crate::changed::ChangedZones;
use crate::contract::ZoneRange;
use crate::shape::ZoneShape;
use crate::states::{ZoneLimits, ZoneState, ZoneStates};
use crate::zone::Zone;
use diecut_vssd::space::BlockShape;

/// What the zones of a namespace are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSetDefinition {
    /// Number of the namespace: never used again.
    pub id: u32,
    /// Number of zones.
    pub zones: u32,
    /// Erase blocks of a zone, each on another unit of the vSSD; 0: all units.
    pub width: u16,
    /// Zones that may be active at once.
    pub active_max: u32,
    /// Zones that may be open at once.
    pub open_max: u32,
    /// Program units of a random write area; 0: zones have none.
    pub random_units: u32,
    /// Bytes of a descriptor extension, a multiple of 64; 0: zones have none.
    pub extension_size_bytes: u32,
}

impl ZoneSetDefinition {
    /// Slots of staging that an active zone is owed: what a power cut can destroy in each of its blocks, the unit that is being filled,
    /// and its random write area.
    pub(crate) fn slots_owed(&self, width: u16, unsafe_units: u32) -> u32 {
        u32::from(width) * unsafe_units + 1 + self.random_units
    }

    pub(crate) fn limits(&self, shape: &ZoneShape) -> ZoneLimits {
        ZoneLimits {
            capacity_ius: shape.capacity_ius(),
            active_max: self.active_max,
            open_max: self.open_max,
            random_ius: self.random_units * shape.unit_ius,
            commit_ius: shape.unit_ius,
        }
    }
}

/// See the module.
pub(crate) struct Set {
    pub definition: ZoneSetDefinition,
    pub shape: ZoneShape,
    pub states: ZoneStates,
    /// Zones that have something in staging or on flash.
    pub zones: Vec<Option<Box<Zone>>>,
    pub slots_owed: u32,
    pub changed: ChangedZones,
}

impl Set {
    /// A zone that ranges reach and that takes nothing any more.
    #[inline]
    pub fn offline_zone(&self, ranges: &[ZoneRange]) -> Option<u32> {
        let size_log2 = self.shape.size_ius_log2();
        ranges.iter().find_map(|range| {
            let last_iu = range.first_iu + u64::from(range.iu_count) - 1;
            let mut zones = (range.first_iu >> size_log2) as u32..=(last_iu >> size_log2) as u32;
            zones.find(|zone| self.states.zone(*zone).state == ZoneState::Offline)
        })
    }

    pub fn new(definition: ZoneSetDefinition, shape: ZoneShape, block: &BlockShape) -> Set {
        Set {
            definition,
            shape,
            states: ZoneStates::new(definition.zones, definition.limits(&shape)),
            zones: (0..definition.zones).map(|_| None).collect(),
            slots_owed: definition.slots_owed(shape.width, block.unsafe_units),
            changed: ChangedZones::default(),
        }
    }
}
