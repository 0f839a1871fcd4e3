//! Volumes: how they are made and deleted in their stores, and their namespaces opened and closed.

use crate::job::{Job, Own, Progress};
use crate::owners::Owners;
use crate::panics::FENCED;
use crate::reclaim;
use crate::steps::stores;
use crate::{chunks, zones};
use diecut_catalog::VolumeRecord;
use diecut_media::Divide;
use diecut_namespace::contract::NamespaceId;
use diecut_namespace::{Backing, NamespaceDefinition, StoreIndex};
use diecut_openchannel::contract::ChunkToken;
use diecut_units::IU_SIZE_BYTES;
use diecut_volume::contract::VolumeIndex;
use diecut_vssd::VssdId;
use diecut_zoned::contract::{ZoneSetIndex, ZoneToken};

/// Makes a volume in its store and waits until it is durable.
pub(crate) fn create<M: Divide>(here: &mut Owners<M>, name: &str, job: &mut Job) -> Progress {
    let volume = &job.next.volumes[name];
    let Some(store) = here.plane.store_of(job.next.vssds[&volume.vssd].number) else {
        return Progress::Waits;
    };
    let flash = &mut here.plane.flash;
    if !flash.kept(store).is_ready() {
        return Progress::Waits;
    }
    if flash.kept(store).zones().is_some() {
        return create_zones(here, name, store, job);
    }
    if flash.kept(store).chunks().is_some() {
        return create_chunks(here, name, store, job);
    }
    if *job.own() == Own::Begins {
        let (index, size_ius) = (VolumeIndex(volume.index), volume.size.bytes() / IU_SIZE_BYTES as u64);
        let mut tokens = Vec::new();
        // Of a volume whose deletion, or whose creation, did not come to its end.
        if flash.kept(store).expect_volumes().volume_size_ius(index).is_some() {
            let token = here.answers.token();
            flash.kept_mut(store).volumes_mut().delete_volume(token, index);
            tokens.push(token.0);
        }
        let token = here.answers.token();
        flash.kept_mut(store).volumes_mut().create_volume(token, index, size_ius);
        tokens.push(token.0);
        job.own_goes(Own::Stores(tokens));
        return Progress::Waits;
    }
    let reason = flash.kept(store).expect_volumes().read_only_reason();
    let reason = reason.map_or(String::new(), |reason| format!(": its vSSD takes no writes: {reason}"));
    stores::stores_answered(here, job, || format!("volume \"{name}\" cannot be made{reason}"))
}

/// Makes the zones of a volume. They are empty, so nothing has to be durable.
fn create_zones<M: Divide>(here: &mut Owners<M>, name: &str, store: StoreIndex, job: &mut Job) -> Progress {
    let volume = &job.next.volumes[name];
    let index = ZoneSetIndex(volume.index);
    let room = job.next.vssds[&volume.vssd].zone_room.as_ref();
    let room = zones::room_of(room.expect("I-S33: a vSSD for zones says what room it has"));
    let definition = zones::definition_of(volume, &room);
    if *job.own() == Own::Begins && here.plane.flash.kept_mut(store).zones_mut().has_set(index) {
        // Of a volume whose creation did not come to its end.
        let token = here.answers.token();
        here.plane.flash.kept_mut(store).zones_mut().delete_set(ZoneToken(token.0), index);
        job.own_goes(Own::Stores(vec![token.0]));
        return Progress::Waits;
    }
    let progress = stores::stores_answered(here, job, || {
        format!("volume \"{name}\" cannot be made: its vSSD takes no writes")
    });
    if matches!(progress, Progress::Done) {
        here.plane.flash.kept_mut(store).zones_mut().create_set(index, definition);
    }
    progress
}

/// Makes the chunks of a volume. They are free, so nothing has to be durable.
fn create_chunks<M: Divide>(here: &mut Owners<M>, name: &str, store: StoreIndex, job: &mut Job) -> Progress {
    let volume = &job.next.volumes[name];
    let definition = chunks::definition_of(here, volume, &job.next.vssds[&volume.vssd]);
    if *job.own() == Own::Begins && here.plane.flash.kept(store).chunks().is_some_and(|one| one.has_chunks())
    {
        // Of a volume whose creation did not come to its end.
        let token = here.answers.token();
        here.plane.flash.kept_mut(store).chunks_mut().delete(ChunkToken(token.0));
        job.own_goes(Own::Stores(vec![token.0]));
        return Progress::Waits;
    }
    let progress = stores::stores_answered(here, job, || {
        format!("volume \"{name}\" cannot be made: its vSSD takes no writes")
    });
    if matches!(progress, Progress::Done) {
        here.plane.flash.kept_mut(store).chunks_mut().create(definition);
    }
    progress
}

/// Deletes a volume from its store and waits until that is durable.
pub(crate) fn delete<M: Divide>(
    here: &mut Owners<M>,
    vssd: u32,
    index: VolumeIndex,
    job: &mut Job,
) -> Progress {
    let Some(store) = here.plane.store_of(vssd) else { return Progress::Done };
    if *job.own() == Own::Begins {
        if !here.plane.flash.kept(store).is_ready() {
            return Progress::Waits;
        }
        let token = here.answers.token();
        if here.plane.flash.kept(store).zones().is_some() {
            let zones = here.plane.flash.kept_mut(store).zones_mut();
            zones.delete_set(ZoneToken(token.0), ZoneSetIndex(index.0));
        } else if here.plane.flash.kept(store).chunks().is_some() {
            here.plane.flash.kept_mut(store).chunks_mut().delete(ChunkToken(token.0));
        } else {
            here.plane.flash.kept_mut(store).volumes_mut().delete_volume(token, index);
        }
        job.own_goes(Own::Stores(vec![token.0]));
        return Progress::Waits;
    }
    let progress = stores::stores_answered(here, job, || {
        "the volume is no longer listed, but its vSSD takes no writes: what it holds is freed at a start when it takes them \
         again"
            .to_owned()
    });
    if matches!(progress, Progress::Done) {
        choose_whole_writes(here, vssd);
    }
    progress
}

/// Opens the namespace of a volume that was made.
pub(crate) fn open<M: Divide>(here: &mut Owners<M>, name: &str, job: &Job) -> Progress {
    let volume = &job.next.volumes[name];
    open_volume(here, volume, job.next.vssds[&volume.vssd].number);
    Progress::Done
}

/// Waits until no command is under way in a namespace, and closes it.
pub(crate) fn close<M: Divide>(here: &mut Owners<M>, id: NamespaceId) -> Progress {
    let namespaces = &mut here.plane.namespaces;
    if namespaces.statistics(id).is_none() {
        // Of a volume that is lost with its device none was opened.
        return Progress::Done;
    }
    if namespaces.is_open(id) {
        namespaces.begin_close(id);
    }
    if !namespaces.is_idle(id) {
        return Progress::Waits;
    }
    namespaces.close(id);
    here.plane.admission.close(id);
    Progress::Done
}

/// Opens the namespace of a volume whose store is open.
pub(crate) fn open_volume<M: Divide>(here: &mut Owners<M>, volume: &VolumeRecord, vssd: u32) {
    let store = here.plane.store_of(vssd).expect("I-S6: a volume's store is open");
    let own = here.plane.flash.devices.first_of(VssdId(vssd));
    let (capabilities, has_oob) = (*own.media.capabilities(), own.media.geometry().has_oob());
    let is_cached = here.plane.flash.devices.has_volatile_cache(VssdId(vssd));
    let kept_zones = here.plane.flash.kept(store).zones().is_some();
    let record = here.registry.state.vssds.get(&volume.vssd).filter(|_| kept_zones);
    let room = record.and_then(|record| record.zone_room.as_ref()).map(zones::room_of);
    let zones = room.map(|room| {
        let definition = zones::definition_of(volume, &room);
        (definition.zones, zones::properties_of(&definition, &room))
    });
    let record = here.registry.state.vssds.get(&volume.vssd).filter(|_| !kept_zones);
    let kept_volumes = here.plane.flash.kept(store).volumes();
    let placement = record.zip(kept_volumes).and_then(|(record, store)| {
        reclaim::properties_of(volume, record, store.placement().groups, store.reclaim_unit_ius())
    });
    let kept_chunks = here.plane.flash.kept(store).chunks().and_then(|chunks| chunks.definition().copied());
    let chunks = kept_chunks.map(|definition| chunks::properties_of(&capabilities, &definition));
    let definition = NamespaceDefinition {
        size_lbas: match (&zones, &chunks) {
            (Some((count, zones)), _) => u64::from(*count) << zones.size_lbas_log2,
            (_, Some(chunks)) => chunks.shape.size_lbas(),
            _ => volume.size.bytes() / IU_SIZE_BYTES as u64,
        },
        transfer_max_lbas: here.config.target.queue.transfer_bytes_max / IU_SIZE_BYTES as u32,
        content_mode: capabilities.content_mode,
        // What zones and chunks answer is durable, whatever volumes do.
        volatile_cache: is_cached && zones.is_none() && chunks.is_none(),
        preferred_write_lbas: match (&zones, &chunks) {
            (Some((_, zones)), _) => zones.write_lbas_min,
            (_, Some(chunks)) => chunks.shape.unit_ius,
            _ => 1,
        },
        read_only: false,
        zones: zones.map(|(_, zones)| zones),
        placement,
        chunks,
        erases: has_oob,
    };
    let id = NamespaceId(volume.namespace);
    here.seat_namespace(id, VssdId(vssd));
    let backing = match zones {
        _ if chunks.is_some() => Backing::Chunks { store },
        Some(_) => Backing::Zones { store, set: ZoneSetIndex(volume.index) },
        None => Backing::Volume { store, volume: VolumeIndex(volume.index) },
    };
    here.plane.namespaces.open(id, definition, backing);
    if here.config.fenced.contains(&vssd) {
        here.plane.namespaces.set_read_only(id, Some(FENCED));
    }
    choose_whole_writes(here, vssd);
}

/// Writes to volumes that together promise more than their vSSD can hold are not cut in pieces: if there is no room for
/// one, all of it is refused. Where volumes fit, room cannot run out.
pub(crate) fn choose_whole_writes<M: Divide>(here: &mut Owners<M>, vssd: u32) {
    let Some((name, record)) = here.registry.state.vssds.iter().find(|(_, record)| record.number == vssd)
    else {
        return;
    };
    let volumes = || here.registry.state.volumes.values().filter(|volume| volume.vssd == *name);
    let promised_bytes: u64 = volumes().map(|volume| volume.size.bytes()).sum();
    let thin = promised_bytes / IU_SIZE_BYTES as u64 > record.exported_ius;
    for volume in volumes() {
        here.plane.namespaces.set_whole_writes(NamespaceId(volume.namespace), thin);
    }
}
