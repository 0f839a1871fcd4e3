//! Requests for subsystems, their hosts and namespaces.

use super::{Fields, Plan, derived_id, differs, lacks, missing, refuse, sound};
use crate::control::{ControlError, ControlErrorKind, NamespaceSpec, PathSpec, SubsystemSpec};
use crate::sanitize;
use crate::step::Step;
use diecut_catalog::State;
use diecut_nvme::QualifiedName;
use diecut_units::Shown;

fn fields_of(spec: &SubsystemSpec) -> Fields {
    // Without `..`, so that a new field cannot be forgotten.
    let SubsystemSpec { nqn: _, tenant, serial, model, allow_any_host, allowed_hosts, namespaces, paths } =
        spec;
    let list = |words: Vec<String>| if words.is_empty() { "none".to_owned() } else { words.join(" ") };
    let shown = |NamespaceSpec { nsid, volume }: &NamespaceSpec| format!("{nsid}={volume}");
    let path = |PathSpec { address, state }: &PathSpec| format!("{address}={}", state.name());
    vec![
        ("tenant", tenant.clone()),
        ("serial", serial.clone().unwrap_or_default()),
        ("model", model.clone().unwrap_or_default()),
        ("allow_any_host", allow_any_host.to_string()),
        ("allowed_hosts", list(allowed_hosts.to_vec())),
        ("namespaces", list(namespaces.iter().map(shown).collect())),
        ("paths", list(paths.iter().map(path).collect())),
    ]
}

pub(super) fn create(state: &State, spec: &SubsystemSpec, plan: &mut Plan) -> Result<(), ControlError> {
    check_nqn("subsystem", &spec.nqn)?;
    sound(spec.check())?;
    let serial = spec.serial.clone().unwrap_or_else(|| {
        let id = derived_id(&state.pool.uuid, "serial", &spec.nqn, 0);
        id[..8].iter().map(|byte| format!("{byte:02X}")).collect()
    });
    let model = spec.model.clone().unwrap_or_else(|| "diecut vSSD".to_owned());
    for host in &spec.allowed_hosts {
        check_nqn("host", host)?;
    }
    let mut record = SubsystemSpec { serial: Some(serial), model: Some(model), ..spec.clone() };
    record.namespaces.sort_by_key(|one| one.nsid);
    record.settle_paths();
    if let Some(existing) = state.subsystems.get(&spec.nqn) {
        if *existing == record {
            return Ok(());
        }
        return differs("subsystem", &spec.nqn, fields_of(existing), fields_of(&record));
    }
    if !state.tenants.contains_key(&spec.tenant) {
        return lacks("tenant", &spec.tenant);
    }
    for NamespaceSpec { nsid, volume } in &spec.namespaces {
        check_namespace(state, &spec.nqn, Some(&spec.tenant), *nsid, volume)?;
    }
    has_one_group(state, &record)?;
    plan.next.subsystems.insert(spec.nqn.clone(), record);
    plan.steps = vec![Step::Persist, Step::ApplySubsystem { nqn: spec.nqn.clone() }];
    Ok(())
}

pub(super) fn delete(state: &State, nqn: &str, plan: &mut Plan) -> Result<(), ControlError> {
    if plan.next.subsystems.remove(nqn).is_none() {
        return missing("subsystem", nqn);
    }
    sanitize::is_over(state, nqn)?;
    plan.steps = vec![Step::Persist, remove(state, nqn)];
    Ok(())
}

/// What takes a subsystem from the target.
pub(super) fn remove(state: &State, nqn: &str) -> Step {
    let volumes = state.subsystems[nqn].volumes().map(|volume| &state.volumes[volume]);
    let vssds = volumes.map(|volume| state.vssds[&volume.vssd].number).collect();
    Step::RemoveSubsystem { nqn: nqn.to_owned(), vssds }
}

pub(super) fn allow(nqn: &str, host: &str, plan: &mut Plan) -> Result<(), ControlError> {
    check_nqn("host", host)?;
    edit(plan, nqn, |record| {
        if !record.allowed_hosts.iter().any(|allowed| allowed == host) {
            record.allowed_hosts.push(host.to_owned());
        }
        Ok(())
    })
}

pub(super) fn deny(nqn: &str, host: &str, plan: &mut Plan) -> Result<(), ControlError> {
    edit(plan, nqn, |record| {
        let before = record.allowed_hosts.len();
        record.allowed_hosts.retain(|allowed| allowed != host);
        if record.allowed_hosts.len() == before {
            let message = format!("host {host} is not among the allowed hosts of subsystem {nqn}");
            return refuse(ControlErrorKind::NotFound, message);
        }
        Ok(())
    })
}

pub(super) fn set_path(nqn: &str, path: PathSpec, plan: &mut Plan) -> Result<(), ControlError> {
    sound(path.check())?;
    edit(plan, nqn, |record| {
        record.set_path(path);
        Ok(())
    })
}

pub(super) fn attach(
    state: &State,
    nqn: &str,
    nsid: u32,
    volume: &str,
    plan: &mut Plan,
) -> Result<(), ControlError> {
    check_namespace(state, nqn, None, nsid, volume)?;
    sanitize::is_over(state, nqn)?;
    edit(plan, nqn, |record| match record.volume(nsid) {
        Some(shown) if shown == volume => Ok(()),
        Some(shown) => refuse(
            ControlErrorKind::Exists,
            format!("namespace {nsid} of subsystem {nqn} shows volume \"{shown}\"; detach it first"),
        ),
        None => match record.nsid(volume) {
            Some(before) => twice_shown(nqn, volume, before, nsid),
            None => {
                record.namespaces.push(NamespaceSpec::new(nsid, volume));
                record.namespaces.sort_by_key(|one| one.nsid);
                has_one_group(state, record)
            }
        },
    })
}

/// Namespaces with placement handles are one endurance group, and so they lie on one vSSD.
fn has_one_group(state: &State, record: &SubsystemSpec) -> Result<(), ControlError> {
    let vssds = record.volumes().map(|volume| state.volumes[volume].vssd.as_str());
    let mut placed = vssds.filter(|vssd| state.vssds[*vssd].placement_handles > 0);
    let Some(first) = placed.next() else { return Ok(()) };
    let Some(other) = placed.find(|other| *other != first) else { return Ok(()) };
    let message = format!(
        "subsystem {}: vSSDs \"{first}\" and \"{other}\" both have placement handles, and a subsystem shows volumes of one such vSSD; use \
         another subsystem for the other",
        record.nqn
    );
    refuse(ControlErrorKind::Invalid, message)
}

pub(super) fn detach(state: &State, nqn: &str, nsid: u32, plan: &mut Plan) -> Result<(), ControlError> {
    sanitize::is_over(state, nqn)?;
    edit(plan, nqn, |record| {
        let before = record.namespaces.len();
        record.namespaces.retain(|one| one.nsid != nsid);
        if record.namespaces.len() == before {
            let message = format!("subsystem {nqn} has no namespace {nsid}");
            return refuse(ControlErrorKind::NotFound, message);
        }
        Ok(())
    })
}

fn edit(
    plan: &mut Plan,
    nqn: &str,
    change: impl FnOnce(&mut SubsystemSpec) -> Result<(), ControlError>,
) -> Result<(), ControlError> {
    let Some(record) = plan.next.subsystems.get_mut(nqn) else { return missing("subsystem", nqn) };
    let before = record.clone();
    change(record)?;
    if *record != before {
        plan.steps = vec![Step::Persist, Step::ApplySubsystem { nqn: nqn.to_owned() }];
    }
    Ok(())
}

fn twice_shown<T>(nqn: &str, volume: &str, before: u32, nsid: u32) -> Result<T, ControlError> {
    let message = format!(
        "subsystem {nqn}: volume \"{volume}\" would be namespaces {before} and {nsid}; a volume is one namespace of one subsystem: \
         detach it first, or leave one out"
    );
    refuse(ControlErrorKind::InUse, message)
}

fn check_nqn(kind: &str, nqn: &str) -> Result<(), ControlError> {
    match QualifiedName::new(nqn) {
        Ok(_) => Ok(()),
        Err(error) => refuse(ControlErrorKind::Invalid, format!("{kind} NQN \"{}\": {error}", Shown(nqn))),
    }
}

fn check_namespace(
    state: &State,
    nqn: &str,
    tenant: Option<&str>,
    nsid: u32,
    volume: &str,
) -> Result<(), ControlError> {
    if nsid == 0 || nsid > 1024 {
        let message = format!("subsystem {nqn}: NSID {nsid} cannot be used; choose 1 to 1024");
        return refuse(ControlErrorKind::Invalid, message);
    }
    let Some(record) = state.volumes.get(volume) else { return lacks("volume", volume) };
    let owner = &state.vssds[&record.vssd].tenant;
    let tenant = tenant.or(state.subsystems.get(nqn).map(|subsystem| subsystem.tenant.as_str()));
    if tenant.is_some_and(|tenant| tenant != owner) {
        let message = format!(
            "volume \"{volume}\" belongs to tenant \"{owner}\" but subsystem {nqn} serves another; use a volume of \
             its own tenant"
        );
        return refuse(ControlErrorKind::Invalid, message);
    }
    let shows = |other: &SubsystemSpec| other.nqn != nqn && other.nsid(volume).is_some();
    if let Some((other, _)) = state.subsystems.iter().find(|(_, subsystem)| shows(subsystem)) {
        let message =
            format!("volume \"{volume}\" is shown by subsystem {other} already; detach it there first");
        return refuse(ControlErrorKind::InUse, message);
    }
    Ok(())
}
