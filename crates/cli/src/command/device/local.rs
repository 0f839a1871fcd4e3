//! What a file or a block device of this machine says of itself.

use super::{health, yes};
use diecut_api::status::DriveHealth;
use diecut_devices::local::{DriveKind, LocalDevice, Properties};
use diecut_spec::Size;
use serde::Serialize;

/// What a file or a block device says of itself.
#[derive(Serialize)]
pub struct Local {
    pub properties: Properties,
    /// What its zones are, if it is written in zones.
    zones: Option<Zones>,
    /// What it says of its health, if it says anything.
    pub health: Option<DriveHealth>,
}

#[derive(Serialize)]
struct Zones {
    conventional: u32,
    /// Bytes of a sequential zone that can be written.
    capacity_bytes: u64,
}

impl Local {
    /// Of one that is open.
    pub fn of(device: &LocalDevice) -> Local {
        let zones = device.zoning().ok().flatten().map(|zoning| Zones {
            conventional: zoning.conventional(),
            capacity_bytes: zoning
                .zones
                .get(zoning.conventional() as usize)
                .map_or(0, |zone| zone.capacity_bytes),
        });
        let health = diecut_daemon::health::of_file(device.file());
        Local { properties: device.properties().clone(), zones, health }
    }
}

/// What a drive says of its zones, in words.
fn zones(kind: &str, own: &Local) -> String {
    let facts = &own.properties;
    let mut words = kind.to_owned();
    if let (Some(count), Some(bytes)) = (facts.zones, facts.zone_bytes) {
        words += &format!(": {count} zones of {}", Size(bytes));
    }
    if let Some(zones) = &own.zones {
        words += &format!(", {} of them conventional", zones.conventional);
        words += &format!("; {} of a sequential one can be written", Size(zones.capacity_bytes));
    }
    let limit = |max: Option<u64>, what: &str| {
        max.filter(|max| *max > 0).map(|max| format!("; {max} {what} at once")).unwrap_or_default()
    };
    words += &limit(facts.active_zones_max, "partly written");
    words + &limit(facts.open_zones_max, "open")
}

impl Local {
    /// What no other kind of drive says of itself.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let (own, facts) = (self, &self.properties);
        let mut rows = vec![(
            "is a",
            match (facts.kind, &facts.file_system) {
                (DriveKind::File, Some(on)) => format!("file on {on}"),
                (DriveKind::File, None) => "file".to_owned(),
                (DriveKind::Block, _) => "block device".to_owned(),
                (DriveKind::Partition, _) => "partition".to_owned(),
            },
        )];
        let names = [
            ("model", &facts.identity.model),
            ("serial", &facts.identity.serial),
            ("firmware", &facts.identity.firmware),
            ("wwid", &facts.identity.wwid),
        ];
        rows.extend(names.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
        rows.push(("size", format!("{} ({} bytes)", Size(facts.size_bytes), facts.size_bytes)));
        rows.extend(facts.allocated_bytes.map(|bytes| ("has a place for", Size(bytes).to_string())));
        let physical =
            facts.physical_block_bytes.map(|bytes| format!(", physical {bytes}")).unwrap_or_default();
        rows.push(("block", format!("{} bytes{physical}", facts.logical_block_bytes)));
        rows.extend(
            facts
                .optimal_io_bytes
                .filter(|bytes| *bytes > 0)
                .map(|bytes| ("likes commands of", Size(bytes).to_string())),
        );
        rows.push(("past the page cache", yes(facts.takes_direct)));
        rows.extend(facts.has_volatile_cache.map(|is| ("volatile cache", yes(is))));
        rows.extend(facts.takes_fua.map(|is| ("writes past it (FUA)", yes(is))));
        let unit = facts
            .discard_granularity_bytes
            .filter(|bytes| *bytes > 0)
            .map(|bytes| format!(", in units of {}", Size(bytes)));
        let what = if facts.kind == DriveKind::File { "punches holes" } else { "discards" };
        rows.extend(
            facts
                .takes_discard
                .map(|is| (what, if is { format!("yes{}", unit.unwrap_or_default()) } else { yes(is) })),
        );
        rows.extend(facts.is_rotational.map(|is| ("rotates", yes(is))));
        rows.extend(facts.kind_of_zones().map(|kind| ("zoned", zones(kind, own))));
        rows.extend(facts.handles.count.map(|handles| ("placement handles", handles.to_string())));
        rows.extend(facts.handles.unused.iter().map(|why| ("placement handles", format!("not used: {why}"))));
        rows.extend(own.health.iter().flat_map(health::rows));
        rows
    }
}
