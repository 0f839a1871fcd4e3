//! Requests for vSSDs.

use super::qos_sets;
use super::{Plan, differs, lacks, missing, refuse, sound};
use crate::control::{ControlError, ControlErrorKind, VssdSpec};
use crate::step::Step;
use diecut_catalog::{State, VssdRecord};
use diecut_spec::Serves;
use diecut_units::Shown;
use diecut_vssd::AllocError;

/// Why the pool gives no place to a vSSD, in words of administrators.
pub(crate) fn alloc_refused(name: &str, error: &AllocError) -> ControlError {
    let kind = match error {
        AllocError::UnknownLevel { .. } | AllocError::NoCapacity => ControlErrorKind::Invalid,
        AllocError::DoesNotFit { .. } | AllocError::NotFree { .. } | AllocError::NoNumber => {
            ControlErrorKind::Exhausted
        }
        AllocError::BeingExchanged { .. } => ControlErrorKind::Busy,
    };
    ControlError { kind, message: format!("vSSD \"{name}\": {error}") }
}

pub(super) fn create(
    state: &State,
    spec: &VssdSpec,
    rate_limit_min_bytes_per_second: u64,
    plan: &mut Plan,
) -> Result<(), ControlError> {
    sound(spec.check())?;
    if let Some(existing) = state.vssds.get(&spec.name) {
        // The server chose what was not said.
        let spec = &spec.or(&existing.spec);
        if existing.spec == *spec {
            return Ok(());
        }
        return differs("vSSD", &spec.name, existing.spec.fields(), spec.fields());
    }
    if !state.tenants.contains_key(&spec.tenant) {
        return lacks("tenant", &spec.tenant);
    }
    if (1..rate_limit_min_bytes_per_second).contains(&spec.rate_limit.bytes()) {
        let message = format!(
            "vSSD \"{}\": a rate limit of {} bytes per second would keep hosts waiting longer than they wait for a command; \
             use {rate_limit_min_bytes_per_second} or more, or 0 for no limit",
            spec.name,
            spec.rate_limit.bytes()
        );
        return refuse(ControlErrorKind::Invalid, message);
    }
    let record = VssdRecord {
        spec: spec.clone(),
        number: 0,
        staging_slot: None,
        staging_slot_count: 1,
        exported_ius: 0,
        parts: Vec::new(),
        zone_room: None,
    };
    plan.next.vssds.insert(spec.name.clone(), record);
    plan.steps = vec![
        Step::AllocVssd { name: spec.name.clone() },
        Step::SyncVssd { name: spec.name.clone() },
        Step::Persist,
    ];
    Ok(())
}

pub(super) fn delete(state: &State, name: &str, plan: &mut Plan) -> Result<(), ControlError> {
    let Some(vssd) = plan.next.vssds.remove(name) else { return missing("vSSD", name) };
    if let Some((volume, _)) = state.volumes.iter().find(|(_, volume)| volume.vssd == *name) {
        let message = format!("vSSD \"{name}\" still holds volume \"{volume}\"; delete that first");
        return refuse(ControlErrorKind::InUse, message);
    }
    qos_sets::is_free(state, "vSSD", name)?;
    plan.steps = vec![Step::Persist, Step::DeallocVssd { number: vssd.number }];
    Ok(())
}

/// What hosts see of it changes with it.
pub(super) fn unfence(state: &State, name: &str, plan: &mut Plan) -> Result<(), ControlError> {
    if !state.vssds.contains_key(name) {
        return missing("vSSD", name);
    }
    plan.steps = vec![Step::Unfence { name: name.to_owned() }];
    let shows = |volume: &String| state.volumes.get(volume).is_some_and(|volume| volume.vssd == name);
    for (nqn, subsystem) in &state.subsystems {
        if subsystem.namespaces.iter().any(|namespace| shows(&namespace.volume)) {
            plan.steps.push(Step::ApplySubsystem { nqn: nqn.clone() });
        }
    }
    Ok(())
}

pub(super) fn repair(
    state: &State,
    name: &str,
    accepts_loss: bool,
    plan: &mut Plan,
) -> Result<(), ControlError> {
    let Some(vssd) = state.vssds.get(name) else { return missing("vSSD", name) };
    if vssd.serves != Serves::Volumes {
        let why = match vssd.serves {
            Serves::Zones => {
                "has zones: one that the medium cannot write to any more is read-only by itself, and is reset or copied by its host"
            }
            Serves::OpenChannel => {
                "has chunks: one that the medium cannot write to any more is closed or offline by itself, and is reset or copied by its host"
            }
            _ => {
                "serves erase blocks: what lies on them is its application's, and nothing here can repair it"
            }
        };
        let message = format!("vSSD \"{name}\" {why}");
        return refuse(ControlErrorKind::Invalid, message);
    }
    plan.steps = vec![Step::RepairVssd { name: name.to_owned(), accepts_loss }];
    Ok(())
}

/// Moves a vSSD to devices that stay. It is made once more, and takes its own place.
pub(super) fn move_away(state: &State, name: &str, plan: &mut Plan) -> Result<(), ControlError> {
    let Some(record) = state.vssds.get(name) else { return missing("vSSD", name) };
    if record.serves != Serves::Volumes {
        let message =
            format!("vSSD \"{}\": what serves volumes moves to other devices, and nothing else", Shown(name));
        return refuse(ControlErrorKind::Invalid, message);
    }
    plan.next.vssds.insert(name.to_owned(), record.elsewhere());
    let named = || name.to_owned();
    plan.steps = vec![
        Step::AllocVssd { name: named() },
        Step::SyncVssd { name: named() },
        Step::MakeCopies { name: named() },
        Step::CopyVssd { name: named() },
        Step::Persist,
        Step::SwitchVssd { name: named() },
        Step::DeallocVssd { number: record.number },
    ];
    Ok(())
}
