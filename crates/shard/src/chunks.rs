//! Chunks of an Open-Channel volume: what was asked for, in the words of the room that keeps them. What room a vSSD has is kept in the record
//! that zones have, too: both stand on its erase blocks.

use crate::owners::Owners;
use diecut_catalog::{State, VolumeRecord, VssdRecord, ZoneRoomRecord};
use diecut_media::{Capabilities, Divide};
use diecut_namespace::contract::{ChunkProperties, ChunkShape};
use diecut_openchannel::{ChunkDefinition, ChunkRoom};
use diecut_spec::{Isolation, VolumeSpec};
use diecut_vssd::VssdId;

/// A room as its record has it.
fn room_of(record: &ZoneRoomRecord) -> ChunkRoom {
    let ZoneRoomRecord { units, unit_ius, rows, unsafe_units, blocks, slots: _ } = *record;
    ChunkRoom { units, unit_ius, rows, unsafe_units, blocks }
}

/// A room, to be kept with its vSSD. Chunks are not staged.
pub(crate) fn record_of(room: &ChunkRoom) -> ZoneRoomRecord {
    let ChunkRoom { units, unit_ius, rows, unsafe_units, blocks } = *room;
    ZoneRoomRecord { units, unit_ius, rows, unsafe_units, blocks, slots: None }
}

/// Groups: channels, where the vSSD has whole ones. Its units come channel by channel.
fn groups_of(isolation: Isolation, units: u16, dies_per_channel: u16) -> u16 {
    let has_channels = isolation == Isolation::Channel && units.is_multiple_of(dies_per_channel.max(1));
    if has_channels { units / dies_per_channel.max(1) } else { 1 }
}

fn shape_of(volume: &VolumeSpec, vssd: &VssdRecord, dies_per_channel: u16) -> Result<ChunkShape, String> {
    let Some(room) = vssd.zone_room.as_ref().map(room_of) else {
        return Err(format!("vSSD \"{}\" has no room for chunks", volume.vssd));
    };
    room.shape(volume.size.bytes(), groups_of(vssd.isolation, room.units, dies_per_channel))
}

/// The chunks of a volume that exists.
///
/// # Panics
/// If chunks cannot be like this: they were checked before they were made.
pub(crate) fn definition_of<M: Divide>(
    here: &Owners<M>,
    volume: &VolumeRecord,
    vssd: &VssdRecord,
) -> ChunkDefinition {
    let media = &here.plane.flash.devices.first_of(VssdId(vssd.number)).media;
    let shape = shape_of(&volume.spec, vssd, media.geometry().dies_per_channel);
    ChunkDefinition {
        id: volume.namespace,
        shape: shape.expect("I-S34: chunks were checked before they are made"),
        endurance_cycles: media.capabilities().endurance_cycles,
    }
}

/// The chunks of the volume of a vSSD, if it has one.
pub(crate) fn definition_on<M: Divide>(here: &Owners<M>, vssd: &VssdRecord) -> Option<ChunkDefinition> {
    let mut volumes = here.registry.state.volumes.values();
    let volume = volumes.find(|volume| volume.vssd == vssd.name)?;
    Some(definition_of(here, volume, vssd))
}

/// What hosts are told of the chunks of a volume.
pub(crate) fn properties_of(capabilities: &Capabilities, definition: &ChunkDefinition) -> ChunkProperties {
    let times = capabilities.die_times;
    let time = |ns: Option<u64>| ns.map_or(0, |ns| u32::try_from(ns).unwrap_or(u32::MAX));
    ChunkProperties {
        shape: definition.shape,
        read_ns: time(times.map(|times| times.read_page_ns)),
        write_ns: time(times.map(|times| times.program_unit_ns)),
        reset_ns: time(times.map(|times| times.erase_ns)),
    }
}

/// Whether the chunks of a volume can be: one volume has all chunks of its vSSD.
///
/// # Errors
/// Names the volume, what is asked, and what there is.
pub(crate) fn check(state: &State, spec: &VolumeSpec, vssd: &VssdRecord) -> Result<(), String> {
    let name = &spec.name;
    if let Some((other, _)) = state.volumes.iter().find(|(_, volume)| volume.vssd == spec.vssd) {
        return Err(format!(
            "volume \"{name}\": vSSD \"{}\" is for one Open-Channel volume, and that is \"{other}\"; make another vSSD, or delete that volume",
            spec.vssd
        ));
    }
    if !spec.zones.is_empty() {
        return Err(format!("volume \"{name}\": it has chunks, not zones; leave `zones` out"));
    }
    shape_of(spec, vssd, 1).map(drop).map_err(|error| format!("volume \"{name}\": {error}"))
}
