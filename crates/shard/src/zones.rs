//! Zones of volumes: what was asked for, in the words of the room that keeps them.

use diecut_catalog::{State, VolumeRecord, VssdRecord, ZoneRoomRecord};
use diecut_namespace::contract::ZoneProperties;
use diecut_spec::{Size, VolumeSpec, ZoneSpec};
use diecut_units::IU_SIZE_BYTES;
use diecut_zoned::contract::ZoneSetIndex;
use diecut_zoned::{ZoneRoom, ZoneSetDefinition};

/// Zones that may be active at once where nothing is said, if staging suffices: as many as the drive of "ZNS: Avoiding the Block Interface Tax" has
/// (USENIX ATC'21, table 1).
const ACTIVE_DEFAULT: u32 = 14;

/// A room as its record has it.
pub(crate) fn room_of(record: &ZoneRoomRecord) -> ZoneRoom {
    let ZoneRoomRecord { units, unit_ius, rows, unsafe_units, blocks, slots } = *record;
    ZoneRoom { units, unit_ius, rows, unsafe_units, blocks, slots }
}

/// A room, to be kept with its vSSD.
pub(crate) fn record_of(room: &ZoneRoom) -> ZoneRoomRecord {
    let ZoneRoom { units, unit_ius, rows, unsafe_units, blocks, slots } = *room;
    ZoneRoomRecord { units, unit_ius, rows, unsafe_units, blocks, slots }
}

/// The zones of a volume that exists.
pub(crate) fn definition_of(volume: &VolumeRecord, room: &ZoneRoom) -> ZoneSetDefinition {
    let ZoneSpec { units, active, open, random_area, extension } = volume.spec.zones;
    let width = units.unwrap_or(room.units);
    let zone_bytes = capacity_bytes(room, width);
    let unit_bytes = u64::from(room.unit_ius) * IU_SIZE_BYTES as u64;
    let active_max = active.unwrap_or(1);
    ZoneSetDefinition {
        id: volume.namespace,
        zones: (volume.size.bytes() / zone_bytes) as u32,
        width,
        active_max,
        open_max: open.unwrap_or(active_max),
        random_units: (random_area.map_or(0, Size::bytes) / unit_bytes) as u32,
        extension_size_bytes: extension.unwrap_or(0),
    }
}

fn capacity_bytes(room: &ZoneRoom, width: u16) -> u64 {
    u64::from(width) * u64::from(room.rows) * u64::from(room.unit_ius) * IU_SIZE_BYTES as u64
}

/// All zones of a vSSD's volumes.
pub(crate) fn sets_of(state: &State, vssd: &str, room: &ZoneRoom) -> Vec<(ZoneSetIndex, ZoneSetDefinition)> {
    let volumes = state.volumes.values().filter(|volume| volume.vssd == *vssd);
    volumes.map(|volume| (ZoneSetIndex(volume.index), definition_of(volume, room))).collect()
}

/// What hosts are told of the zones of a volume.
///
/// # Panics
/// If zones cannot be like this: they were checked before they were made.
pub(crate) fn properties_of(definition: &ZoneSetDefinition, room: &ZoneRoom) -> ZoneProperties {
    let shape = room.shape(definition.width).expect("I-S33: zones were checked before they are made");
    ZoneProperties {
        size_lbas_log2: shape.size_ius_log2(),
        capacity_lbas: shape.capacity_ius(),
        active_max: definition.active_max,
        open_max: definition.open_max,
        random_lbas: definition.random_units * room.unit_ius,
        commit_lbas: room.unit_ius,
        write_lbas_min: if room.slots.is_some() { 1 } else { room.unit_ius },
        extension_size_bytes: definition.extension_size_bytes,
    }
}

/// Who has staging memory of a vSSD, and what to do about it; nothing where nobody has any.
fn staging_holders(state: &State, vssd: &str) -> String {
    let volumes = state.volumes.iter().filter(|(_, volume)| volume.vssd == *vssd);
    let held: Vec<String> = volumes
        .map(|(name, volume)| format!("\"{name}\" ({} active zones)", volume.zones.active.unwrap_or(1)))
        .collect();
    if held.is_empty() {
        return String::new();
    }
    format!(
        "; the rest is held by {}: make one of them anew with fewer, or use another vSSD",
        held.join(", ")
    )
}

/// The specification of a volume with all that the server chooses, if it fits beside the others on its vSSD.
///
/// # Errors
/// Names the volume, what is asked, and what there is.
pub(crate) fn choose(
    state: &State,
    spec: &VolumeSpec,
    vssd: &VssdRecord,
    namespace: u32,
) -> Result<ZoneSpec, String> {
    let name = &spec.name;
    let Some(room) = vssd.zone_room.as_ref().map(room_of) else {
        return Err(format!("volume \"{name}\": vSSD \"{}\" has no room for zones", spec.vssd));
    };
    let failed = |error: String| format!("volume \"{name}\": {error}");
    let width = spec.zones.units.unwrap_or(room.units);
    room.shape(width).map_err(failed)?;
    let zone_bytes = capacity_bytes(&room, width);
    let size = spec.size.bytes();
    if size == 0 || !size.is_multiple_of(zone_bytes) || size / zone_bytes > u64::from(u32::MAX) {
        let below = size / zone_bytes * zone_bytes;
        let near = |bytes: u64| format!("{bytes} bytes ({})", Size(bytes).exact());
        let nearest = [below, below.saturating_add(zone_bytes)].into_iter().filter(|bytes| *bytes > 0);
        let nearest: Vec<String> = nearest.map(near).collect();
        return Err(format!(
            "volume \"{name}\": {size} bytes are no whole number of zones of {zone_bytes} bytes ({width} erase blocks); the nearest \
             are {}",
            nearest.join(" or ")
        ));
    }
    let unit_bytes = u64::from(room.unit_ius) * IU_SIZE_BYTES as u64;
    let area = spec.zones.random_area.map_or(0, Size::bytes);
    // ZRWASZ counts logical blocks in 16 bits.
    let is_long = area / IU_SIZE_BYTES as u64 > u64::from(u16::MAX);
    if !area.is_multiple_of(unit_bytes) || area > zone_bytes / 2 || is_long {
        return Err(format!(
            "volume \"{name}\": a random write area of {area} bytes; use a multiple of {unit_bytes} bytes (a program unit) up to {} (half a \
             zone)",
            (zone_bytes / 2).min(u64::from(u16::MAX) * IU_SIZE_BYTES as u64) / unit_bytes * unit_bytes
        ));
    }
    let others: Vec<ZoneSetDefinition> =
        sets_of(state, &spec.vssd, &room).into_iter().map(|(_, definition)| definition).collect();
    let zones = (size / zone_bytes) as u32;
    let mut wanted = ZoneSetDefinition {
        id: namespace,
        zones,
        width,
        active_max: spec.zones.active.unwrap_or(1),
        open_max: 1,
        random_units: (area / unit_bytes) as u32,
        extension_size_bytes: spec.zones.extension.unwrap_or(0),
    };
    if spec.zones.active.is_none() {
        let most = room.active_max(&wanted, &others).min(zones).min(ACTIVE_DEFAULT);
        wanted.active_max = most.max(spec.zones.open.unwrap_or(1));
    }
    wanted.open_max = spec.zones.open.unwrap_or(wanted.active_max);
    let is_short = wanted.active_max > room.active_max(&wanted, &others);
    room.check(&wanted, &others).map_err(|error| {
        let holders = if is_short { staging_holders(state, &spec.vssd) } else { String::new() };
        failed(error + &holders)
    })?;
    Ok(ZoneSpec {
        units: Some(width),
        active: Some(wanted.active_max),
        open: Some(wanted.open_max),
        random_area: spec.zones.random_area,
        extension: spec.zones.extension,
    })
}
