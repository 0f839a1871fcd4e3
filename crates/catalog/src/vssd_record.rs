//! A vSSD as the catalog keeps it.

use diecut_spec::VssdSpec;
use serde::{Deserialize, Serialize};
use std::ops::Deref;
use uuid::Uuid;

/// A vSSD: what was asked for, and what the server adds. It reads as its specification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VssdRecord {
    /// What was asked for.
    pub spec: VssdSpec,
    /// Its number in the pool, never used again: the owner generation of its blocks.
    pub number: u32,
    /// The first of its slots of protected memory, if it stages there.
    pub staging_slot: Option<u32>,
    /// How many slots it has, one behind the other.
    pub staging_slot_count: u32,
    /// IUs its volumes can store.
    pub exported_ius: u64,
    /// Its parts in the order in which their units take turns, where a server has several devices; absent where it has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartRecord>,
    /// What room it has for zones, if it is for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone_room: Option<ZoneRoomRecord>,
}

impl VssdRecord {
    /// The same, as it is asked for where the server chooses anew where it lies.
    pub fn elsewhere(&self) -> VssdRecord {
        let parts = self.spec.part_count();
        let parts = (parts > 1).then(|| u16::try_from(parts).expect("parts are few"));
        VssdRecord {
            spec: VssdSpec { device: Vec::new(), parts, ..self.spec.clone() },
            number: 0,
            staging_slot: None,
            parts: Vec::new(),
            ..self.clone()
        }
    }
}

impl Deref for VssdRecord {
    type Target = VssdSpec;
    fn deref(&self) -> &VssdSpec {
        &self.spec
    }
}

/// A part of a vSSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartRecord {
    /// The UUID of the device, which stays when the device is called otherwise, or is found elsewhere.
    pub device: Uuid,
}

/// What room a vSSD has for zones: fixed when it is made, so that zones can be planned without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneRoomRecord {
    /// Independent units.
    pub units: u16,
    /// IUs of a program unit.
    pub unit_ius: u32,
    /// Program units of an erase block.
    pub rows: u32,
    /// Program units that a power cut can destroy behind the one that is programmed.
    pub unsafe_units: u32,
    /// Erase blocks that zones can have on each unit.
    pub blocks: u32,
    /// Slots of staging in protected memory, if the device has that.
    pub slots: Option<u32>,
}
