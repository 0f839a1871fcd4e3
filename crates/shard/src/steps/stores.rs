//! Stores of vSSDs: how they are opened, what is left over in them from a crash, and what they answer.

use crate::control::{ControlError, ControlErrorKind};
use crate::flash::{ChunksView, ZonesView};
use crate::job::{Job, Own, Progress};
use crate::owners::Owners;
use crate::step::Step;
use crate::{chunks, zones};
use diecut_catalog::VssdRecord;
use diecut_media::Divide;
use diecut_namespace::StoreIndex;
use diecut_spec::Serves;
use diecut_units::{IU_SIZE_BYTES, Time, mark, mutant};
use diecut_volume::contract::{VolumeCommand, VolumeIndex, VolumeOperation};
use diecut_volume::{Recovery, StoreConfig};
use diecut_vssd::VssdId;

/// Looks whether the store of a vSSD takes changes.
pub(crate) fn can_delete<M: Divide>(here: &mut Owners<M>, vssd: u32, now: Time) -> Progress {
    let Some(store) = here.plane.store_of(vssd) else { return Progress::Done };
    let flash = &mut here.plane.flash;
    if !flash.kept(store).is_ready() {
        return Progress::Waits;
    }
    flash.look_for_room(store, now);
    let Some(reason) = flash.kept(store).read_only_reason() else { return Progress::Done };
    let message = format!("nothing was deleted: its vSSD takes no writes: {reason}");
    Progress::Refused(ControlError { kind: ControlErrorKind::Media, message })
}

/// Lets applications at erase blocks go, and waits until every store has its figures written down and is flushed.
pub(crate) fn flush<M: Divide>(here: &mut Owners<M>, job: &mut Job, now: Time) -> Progress {
    if !here.plane.blocks.evict(None) {
        return Progress::Waits;
    }
    if *job.own() == Own::Begins {
        // What zones and chunks answer is durable.
        let stores = here.plane.flash.stores().filter(|(.., kept)| kept.volumes().is_some());
        let stores: Vec<StoreIndex> = stores.map(|(index, ..)| index).collect();
        let mut tokens = Vec::new();
        for store in stores {
            let (note, token) = (here.answers.token(), here.answers.token());
            tokens.extend([note.0, token.0]);
            here.plane.flash.kept_mut(store).volumes_mut().note_figures(note);
            let operation = VolumeOperation::Flush;
            let command = VolumeCommand { token, volume: VolumeIndex(0), operation };
            here.plane.flash.submit(&mut vec![(store, command)], now);
        }
        job.own_goes(Own::Stores(tokens));
    }
    stores_answered(here, job, || "a vSSD cannot be flushed: its medium failed".to_owned())
}

/// Opens the store of a vSSD that the pool holds.
pub(crate) fn open_store<M: Divide>(here: &mut Owners<M>, record: &VssdRecord, now: Time) {
    match record.serves {
        // Opened by the application.
        Serves::Blocks => return,
        Serves::Zones => return open_zones(here, record, now),
        Serves::OpenChannel => {
            let definition = chunks::definition_on(here, record);
            ChunksView::of(&mut here.plane.flash).open(VssdId(record.number), definition, now);
            return;
        }
        Serves::Volumes => {}
    }
    let config = store_config(here, record, Recovery::Strict);
    let staging = here.plane.flash.devices.first_of(VssdId(record.number)).staging.region(record);
    here.plane.flash.open_store(VssdId(record.number), config, staging, now);
}

fn open_zones<M: Divide>(here: &mut Owners<M>, record: &VssdRecord, now: Time) {
    let room = record.zone_room.as_ref().expect("I-S33: a vSSD for zones says what room it has");
    let sets = zones::sets_of(&here.registry.state, &record.name, &zones::room_of(room));
    let staging = here.plane.flash.devices.first_of(VssdId(record.number)).staging.region(record);
    ZonesView::of(&mut here.plane.flash).open(VssdId(record.number), &sets, staging, now);
}

pub(crate) fn store_config<M: Divide>(
    here: &Owners<M>,
    record: &VssdRecord,
    recovery: Recovery,
) -> StoreConfig {
    StoreConfig {
        exported_ius: record.exported_ius,
        volatile_cache: here.plane.flash.devices.has_volatile_cache(VssdId(record.number)),
        anchor_pace: here.config.anchor_pace,
        recovery,
        placement: here.plane.flash.placement_of(VssdId(record.number), record),
        ..StoreConfig::default()
    }
}

pub(crate) fn stores_answered<M: Divide>(
    here: &mut Owners<M>,
    job: &mut Job,
    message: impl Fn() -> String,
) -> Progress {
    let Some(tokens) = job.stores() else { return Progress::Done };
    let mut failed = false;
    tokens.retain(|token| match here.answers.take(*token) {
        Some(worked) => {
            failed |= !worked;
            false
        }
        None => true,
    });
    if failed {
        return Progress::Refused(ControlError { kind: ControlErrorKind::Media, message: message() });
    }
    if tokens.is_empty() { Progress::Done } else { Progress::Waits }
}

/// Volumes of a vSSD that the catalog knows and its store does not were lost by the medium. Nothing else can be the reason:
/// a volume is durable in its store before the catalog names it, and leaves the catalog before its store.
pub(crate) fn find_lost_volumes<M: Divide>(here: &mut Owners<M>, vssd: &str, store: StoreIndex) {
    let volumes: Vec<(VolumeIndex, u64)> = here
        .registry
        .state
        .volumes
        .values()
        .filter(|volume| volume.vssd == vssd)
        .map(|volume| (VolumeIndex(volume.index), volume.size.bytes() / IU_SIZE_BYTES as u64))
        .collect();
    for (index, size_ius) in volumes {
        if here.plane.flash.kept(store).expect_volumes().volume_size_ius(index).is_none()
            && !mutant!("shard: a lost volume counts as new")
        {
            mark!("shard: volume lost");
            here.plane.flash.kept_mut(store).volumes_mut().volume_lost(index, size_ius);
        }
    }
}

/// What opening has to put right: vSSDs of which the catalog knows nothing were never acknowledged, or were
/// deleted; so were volumes.
pub(crate) fn leftovers<M: Divide>(here: &mut Owners<M>) -> Vec<Step> {
    let known: Vec<u32> = here.registry.state.vssds.values().map(|vssd| vssd.number).collect();
    let orphans = here.placement.ledger.vssds.keys().filter(|number| !known.contains(number));
    let mut steps: Vec<Step> = orphans.map(|&number| Step::DeallocVssd { number }).collect();
    steps.extend(leftover_volumes(here));
    steps
}

/// Volumes in this shard's stores of which the catalog knows nothing. Those that it knows, and that are not there, are lost.
pub(crate) fn leftover_volumes<M: Divide>(here: &mut Owners<M>) -> Vec<Step> {
    let names: Vec<(String, u32)> =
        here.registry.state.vssds.iter().map(|(name, vssd)| (name.clone(), vssd.number)).collect();
    for (name, number) in names {
        if let Some(store) = here.plane.store_of(number)
            && here.plane.flash.kept(store).volumes().is_some()
        {
            find_lost_volumes(here, &name, store);
        }
    }
    let mut steps = Vec::new();
    for (name, vssd) in &here.registry.state.vssds {
        let Some(store) = here.plane.store_of(vssd.number) else { continue };
        let Some(volumes) = here.plane.flash.kept(store).volumes() else {
            // Zones and chunks of which the catalog knows nothing were given back when the store was opened.
            continue;
        };
        if volumes.read_only_reason().is_some() {
            // It would refuse, and with it everything else that opening has to write down.
            continue;
        }
        for index in 0..1024 {
            let exists = volumes.volume_size_ius(VolumeIndex(index)).is_some();
            let wanted = here
                .registry
                .state
                .volumes
                .values()
                .any(|volume| volume.vssd == *name && volume.index == index);
            if exists && !wanted {
                steps.push(Step::DeleteVolume { vssd: vssd.number, index });
            }
        }
    }
    steps
}
