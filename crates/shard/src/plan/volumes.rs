//! Requests for volumes.

use super::qos_sets;
use super::{Plan, derived_id, differs, lacks, missing, refuse, sound};
use crate::control::{ControlError, ControlErrorKind, VolumeSpec};
use crate::step::Step;
use crate::{chunks, zones};
use diecut_catalog::{State, VolumeRecord, VssdRecord};
use diecut_spec::{Nguid, Serves};
use diecut_units::IU_SIZE_BYTES;
use uuid::Uuid;

/// How much larger than what a vSSD can store its volumes may be: their maps are in memory, and a store has no room for
/// more (`Log::map_ius_max`).
const THIN_FACTOR: u64 = 64;
const THIN_LEAST_BYTES: u64 = 4 << 30;

pub(super) fn create(state: &State, spec: &VolumeSpec, plan: &mut Plan) -> Result<(), ControlError> {
    sound(spec.check())?;
    if let Some(existing) = state.volumes.get(&spec.name) {
        // What was not chosen is as it exists.
        let spec = spec.or(existing);
        if spec == existing.spec {
            return Ok(());
        }
        return differs("volume", &spec.name, existing.fields(), spec.fields());
    }
    let Some(vssd) = state.vssds.get(&spec.vssd) else { return lacks("vSSD", &spec.vssd) };
    if !vssd.serves.has_volumes() {
        let message = format!(
            "volume \"{}\": vSSD \"{}\" serves erase blocks to applications and holds no volumes; make another vSSD for them",
            spec.name, spec.vssd
        );
        return refuse(ControlErrorKind::Invalid, message);
    }
    if vssd.serves == Serves::Volumes {
        if !spec.zones.is_empty() {
            let message = format!(
                "volume \"{}\": zones are for volumes on a vSSD whose use is zones, and the use of vSSD \"{}\" is volumes; leave them \
                 out, or make a vSSD with use = \"zones\"",
                spec.name, spec.vssd
            );
            return refuse(ControlErrorKind::Invalid, message);
        }
        fits(state, spec, vssd)?;
    }
    has_its_handles(spec, vssd)?;
    let index = free_index(state, spec)?;
    has_own_identities(state, spec)?;
    let Some(number) = plan.next.pool.namespaces_given.checked_add(1) else {
        let message = "no namespace can be given any more: all numbers were used".to_owned();
        return refuse(ControlErrorKind::Exhausted, message);
    };
    plan.next.pool.namespaces_given = number;
    let derived = |kind| derived_id(&state.pool.uuid, kind, &spec.name, number);
    let uuid = spec.uuid.unwrap_or_else(|| Uuid::from_bytes(derived("uuid")));
    let nguid = spec.nguid.unwrap_or_else(|| Nguid(derived("nguid")));
    let chosen = match vssd.serves {
        Serves::Zones => zones::choose(state, spec, vssd, number),
        Serves::OpenChannel => chunks::check(state, spec, vssd).map(|()| spec.zones),
        _ => Ok(spec.zones),
    };
    let zones = chosen.map_err(|message| ControlError { kind: ControlErrorKind::Invalid, message })?;
    let filled = VolumeSpec { uuid: Some(uuid), nguid: Some(nguid), zones, ..spec.clone() };
    let record = VolumeRecord { spec: filled, index, namespace: number };
    plan.next.volumes.insert(spec.name.clone(), record);
    let name = || spec.name.clone();
    plan.steps =
        vec![Step::CreateVolume { name: name() }, Step::Persist, Step::OpenNamespace { name: name() }];
    Ok(())
}

/// Volumes of the vSSD that a volume is to be on.
fn neighbours<'a>(state: &'a State, spec: &'a VolumeSpec) -> impl Iterator<Item = &'a VolumeRecord> {
    state.volumes.values().filter(|volume| volume.vssd == spec.vssd)
}

/// Whether a volume is not too large: what its vSSD has left says more than the most there is.
fn fits(state: &State, spec: &VolumeSpec, vssd: &VssdRecord) -> Result<(), ControlError> {
    let promised_bytes: u64 = neighbours(state, spec).map(|volume| volume.size.bytes()).sum();
    let largest_bytes = (vssd.exported_ius * THIN_FACTOR * IU_SIZE_BYTES as u64).max(THIN_LEAST_BYTES);
    if vssd.exported_ius > 0 && promised_bytes.saturating_add(spec.size.bytes()) > largest_bytes {
        let left_bytes = largest_bytes.saturating_sub(promised_bytes);
        let message = format!(
            "volume \"{}\": all volumes of vSSD \"{}\" together may have at most {largest_bytes} bytes, {THIN_FACTOR} times what it \
             can store; {left_bytes} are left",
            spec.name, spec.vssd
        );
        return refuse(ControlErrorKind::Invalid, message);
    }
    sound(spec.check_most())
}

/// Whether the placement handles of a volume are handles of its vSSD.
fn has_its_handles(spec: &VolumeSpec, vssd: &VssdRecord) -> Result<(), ControlError> {
    let count = vssd.placement_handles;
    let Some(handle) = spec.placement.iter().find(|handle| **handle >= count) else { return Ok(()) };
    let (name, vssd) = (&spec.name, &spec.vssd);
    let message = match count {
        0 => format!(
            "volume \"{name}\": placement is for a vSSD with placement handles, and vSSD \"{vssd}\" has none; leave it out, or make a \
             vSSD with placement_handles"
        ),
        _ => format!(
            "volume \"{name}\": placement names handle {handle}, and vSSD \"{vssd}\" has {count}, counted from 0; choose among them"
        ),
    };
    refuse(ControlErrorKind::Invalid, message)
}

/// A place in the vSSD's store.
fn free_index(state: &State, spec: &VolumeSpec) -> Result<u16, ControlError> {
    let taken: Vec<u16> = neighbours(state, spec).map(|volume| volume.index).collect();
    (0..1024).find(|index| !taken.contains(index)).ok_or_else(|| {
        let message = format!("vSSD \"{}\" has 1024 volumes; delete one first", spec.vssd);
        ControlError { kind: ControlErrorKind::Exhausted, message }
    })
}

/// Whether the identities that were chosen are nobody else's.
fn has_own_identities(state: &State, spec: &VolumeSpec) -> Result<(), ControlError> {
    let chosen = [spec.uuid.map(Uuid::into_bytes), spec.nguid.map(|nguid| nguid.0)];
    for (kind, id) in ["UUID", "NGUID"].into_iter().zip(chosen) {
        if id == Some([0; 16]) {
            let name = &spec.name;
            let message = format!(
                "volume \"{name}\": a {kind} of zeros says that there is none; choose another, or leave it out for one that is made up"
            );
            return refuse(ControlErrorKind::Invalid, message);
        }
        let same = |volume: &VolumeRecord| id.is_some_and(|id| volume.identities().contains(&id));
        if let Some((other, _)) = state.volumes.iter().find(|(_, volume)| same(volume)) {
            let message =
                format!("volume \"{}\": its {kind} is that of volume \"{other}\"; choose another", spec.name);
            return refuse(ControlErrorKind::Invalid, message);
        }
    }
    Ok(())
}

pub(super) fn delete(state: &State, name: &str, plan: &mut Plan) -> Result<(), ControlError> {
    let Some(volume) = plan.next.volumes.remove(name) else { return missing("volume", name) };
    let mut subsystems = state.subsystems.iter();
    if let Some((nqn, _)) = subsystems.find(|(_, subsystem)| subsystem.nsid(name).is_some()) {
        let message = format!("volume \"{name}\" is shown by subsystem {nqn}; detach it there first");
        return refuse(ControlErrorKind::InUse, message);
    }
    qos_sets::is_free(state, "volume", name)?;
    let vssd = state.vssds[&volume.vssd].number;
    plan.steps = vec![
        Step::CanDelete { vssd },
        Step::Persist,
        Step::CloseNamespace { vssd, namespace: volume.namespace },
        Step::DeleteVolume { vssd, index: volume.index },
    ];
    Ok(())
}
