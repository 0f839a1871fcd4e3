//! vSSDs: how they are made on channels of this shard, and given back.

use crate::control::{ControlError, ControlErrorKind};
use crate::flash::{ChunksView, ZonesView};
use crate::job::Progress;
use crate::ledger::HeldPart;
use crate::notice::Notice;
use crate::owners::Owners;
use crate::registry::share_of;
use crate::steps::stores;
use crate::{chunks, zones};
use diecut_blockspace::session::Session;
use diecut_catalog::VssdRecord;
use diecut_media::Divide;
use diecut_spec::Serves;
use diecut_units::Time;
use diecut_vssd::VssdId;
use diecut_zoned::ZoneSetDefinition;

/// Makes a vSSD on channels of this shard and opens its store.
pub(crate) fn make_vssd<M: Divide>(
    here: &mut Owners<M>,
    name: &str,
    id: VssdId,
    parts: &[HeldPart],
    record: VssdRecord,
    now: Time,
) -> Result<VssdRecord, ControlError> {
    let devices = &mut here.plane.flash.devices;
    for HeldPart { device, places, .. } in parts {
        devices.get_mut(*device).pool.admit(id, record.isolation, places);
    }
    if parts.len() > 1 {
        devices.join(id, &parts.iter().map(|part| part.device).collect::<Vec<_>>());
    }
    devices.set_share(id, share_of(&record), now);
    let own = devices.first_of(id);
    if !own.media.geometry().has_oob()
        && let Some(served) = needs_oob(record.serves)
    {
        take_back(here, id);
        let message = format!(
            "vSSD \"{name}\": {served} cannot lie on this device yet, which keeps nothing beside its pages; a vSSD there can serve volumes"
        );
        return Err(ControlError { kind: ControlErrorKind::Invalid, message });
    }
    if record.serves == Serves::Blocks {
        if !Session::can_serve(own.pool.shape()) {
            take_back(here, id);
            let message = format!(
                "vSSD \"{name}\": the device keeps no content, so it cannot serve erase blocks; use one with memory or a file"
            );
            return Err(ControlError { kind: ControlErrorKind::Invalid, message });
        }
        let record = VssdRecord { number: id.0, ..record };
        here.seat_blocks(&record);
        return Ok(record);
    }
    let staging_size_bytes = here.plane.flash.devices.first_of(id).staging.size_bytes(&record);
    if record.serves == Serves::Zones {
        return make_room_for_zones(here, name, id, record, now);
    }
    if record.serves == Serves::OpenChannel {
        return make_room_for_chunks(here, name, id, record, now);
    }
    let over_provisioning = record.over_provisioning_permille;
    let placement = here.plane.flash.placement_of(id, &record);
    let placed = here.plane.flash.can_place(id, staging_size_bytes, placement, now);
    let wanted_bytes = match placed {
        Ok(wanted_bytes) => wanted_bytes,
        Err(error) => {
            take_back(here, id);
            let message = match (placement.handles, placement.groups) {
                // Every store has one; nobody asked for it.
                (1, 1) => too_small(name),
                (_, 1) => format!("vSSD \"{name}\": placement_handles: {error}"),
                _ => format!("vSSD \"{name}\": placement_handles and reclaim_groups: {error}"),
            };
            return Err(ControlError { kind: ControlErrorKind::Invalid, message });
        }
    };
    let exported_ius =
        here.plane.flash.exportable_ius(id, staging_size_bytes, over_provisioning, placement, now);
    if exported_ius == 0 {
        take_back(here, id);
        return Err(ControlError { kind: ControlErrorKind::Invalid, message: too_small(name) });
    }
    let record = VssdRecord { number: id.0, exported_ius, ..record };
    if let Some(mut region) = here.plane.flash.devices.first_of(id).staging.region(&record) {
        // What a vSSD that was deleted left there is nobody's.
        region.fill(0);
    }
    if let (Some(wanted_bytes), Some(held_bytes)) = (wanted_bytes, staging_size_bytes) {
        let (wanted_bytes, held_bytes) = (wanted_bytes as u64, held_bytes as u64);
        here.notices.push(Notice::StagingShort { vssd: name.to_owned(), wanted_bytes, held_bytes });
    }
    stores::open_store(here, &record, now);
    Ok(record)
}

/// A vSSD for zones says what room it has, and has none yet.
fn make_room_for_zones<M: Divide>(
    here: &mut Owners<M>,
    name: &str,
    id: VssdId,
    record: VssdRecord,
    now: Time,
) -> Result<VssdRecord, ControlError> {
    let staging_size_bytes = here.plane.flash.devices.first_of(id).staging.size_bytes(&record);
    let room = ZonesView::of(&mut here.plane.flash).room(id, staging_size_bytes, now);
    let least = ZoneSetDefinition {
        id: 0,
        zones: 1,
        width: 1,
        active_max: 1,
        open_max: 1,
        random_units: 0,
        extension_size_bytes: 0,
    };
    if let Err(error) = room.check(&least, &[]) {
        take_back(here, id);
        let message = format!("vSSD \"{name}\" cannot hold a single zone: {error}");
        return Err(ControlError { kind: ControlErrorKind::Invalid, message });
    }
    let zone_room = Some(zones::record_of(&room));
    let record = VssdRecord { number: id.0, exported_ius: room.ius(), zone_room, ..record };
    if let Some(mut region) = here.plane.flash.devices.first_of(id).staging.region(&record) {
        // What a vSSD that was deleted left there is nobody's.
        region.fill(0);
    }
    stores::open_store(here, &record, now);
    Ok(record)
}

/// A vSSD for chunks says what room it has.
fn make_room_for_chunks<M: Divide>(
    here: &mut Owners<M>,
    name: &str,
    id: VssdId,
    record: VssdRecord,
    now: Time,
) -> Result<VssdRecord, ControlError> {
    let room = ChunksView::of(&mut here.plane.flash).room(id, now);
    if room.blocks == 0 {
        take_back(here, id);
        let message = format!("vSSD \"{name}\" cannot hold a single chunk: ask for more capacity");
        return Err(ControlError { kind: ControlErrorKind::Invalid, message });
    }
    let zone_room = Some(chunks::record_of(&room));
    let record = VssdRecord { number: id.0, exported_ius: room.ius(), zone_room, ..record };
    stores::open_store(here, &record, now);
    Ok(record)
}

/// Closes the store of a vSSD, hangs up on its application, and gives its erase blocks back.
pub(crate) fn dealloc<M: Divide>(here: &mut Owners<M>, id: VssdId) -> Progress {
    if let Some(store) = here.plane.store_of(id.0) {
        here.plane.flash.close_store(store);
    }
    if !here.plane.blocks.evict(Some(id)) {
        return Progress::Waits;
    }
    here.plane.admission.close_blocks(id);
    if here.plane.flash.devices.give_back(id) { Progress::Done } else { Progress::Waits }
}

/// Gives the erase blocks of a vSSD back that cannot be made after all.
fn take_back<M: Divide>(here: &mut Owners<M>, id: VssdId) {
    let is_done = here.plane.flash.devices.give_back(id);
    assert!(is_done, "I-S8: nothing is under way on a new vSSD");
}

/// What a vSSD serves, if that says nothing of itself and cannot be without OOB areas.
fn needs_oob(serves: Serves) -> Option<&'static str> {
    match serves {
        Serves::Volumes => None,
        Serves::Blocks => Some("erase blocks"),
        Serves::Zones => Some("zones"),
        Serves::OpenChannel => Some("chunks"),
    }
}

/// Why a vSSD cannot hold anything.
fn too_small(name: &str) -> String {
    format!(
        "vSSD \"{name}\" is too small to hold a volume at this over-provisioning; ask for more capacity or less \
         over-provisioning"
    )
}
