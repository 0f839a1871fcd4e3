//! From a request of an administrator to steps: pure, so that every refusal is decided before anything is touched.

use crate::control::*;
use crate::step::Step;
use diecut_catalog::{State, VolumeRecord, VssdRecord};
use diecut_nvme::QualifiedName;
use diecut_spec::{Nguid, Serves};
use diecut_units::{IU_SIZE_BYTES, Shown};
use diecut_vssd::AllocError;
use uuid::Uuid;

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

/// What a request means.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// The state when all is done; steps fill in what only they know.
    pub next: State,
    pub steps: Vec<Step>,
}

fn refuse<T>(kind: ControlErrorKind, message: String) -> Result<T, ControlError> {
    Err(ControlError { kind, message })
}

/// What a specification says of itself.
fn sound(checked: Result<(), String>) -> Result<(), ControlError> {
    checked.or_else(|message| refuse(ControlErrorKind::Invalid, message))
}

/// What a request is about is not there.
fn missing<T>(kind: &str, name: &str) -> Result<T, ControlError> {
    let command = kind.to_lowercase();
    refuse(
        ControlErrorKind::NotFound,
        format!("there is no {kind} \"{}\"; `diecut {command} list` shows what there is", Shown(name)),
    )
}

/// What a new object needs is not there.
fn lacks<T>(kind: &str, name: &str) -> Result<T, ControlError> {
    let command = kind.to_lowercase();
    refuse(
        ControlErrorKind::NotFound,
        format!(
            "there is no {kind} \"{}\"; create it first, or name one that `diecut {command} list` shows",
            Shown(name)
        ),
    )
}

fn differs<T>(kind: &str, name: &str) -> Result<T, ControlError> {
    refuse(
        ControlErrorKind::Exists,
        format!("{kind} \"{name}\" exists with another definition; delete it first, or choose another name"),
    )
}

/// An identity that follows from the pool and a name, the same at each start (RFC 9562 version 5: SHA-1 of both).
fn derived_id(pool: &[u8; 16], kind: &str, name: &str, number: u32) -> [u8; 16] {
    let name = format!("{kind}/{number}/{name}");
    Uuid::new_v5(&Uuid::from_bytes(*pool), name.as_bytes()).into_bytes()
}

/// Turns a request into a plan. A request whose result exists already gives a plan without steps.
///
/// # Errors
/// Names the object and what to do.
pub(crate) fn plan(
    state: &State,
    request: &ControlRequest,
    rate_limit_min_bytes_per_second: u64,
) -> Result<Plan, ControlError> {
    let mut plan = Plan { next: state.clone(), steps: Vec::new() };
    match request {
        ControlRequest::CreateTenant(spec) => create_tenant(spec, &mut plan)?,
        ControlRequest::DeleteTenant(name) => {
            if !state.tenants.contains_key(name) {
                return missing("tenant", name);
            }
            let vssd = state.vssds.iter().find(|(_, vssd)| vssd.tenant == *name);
            let subsystem = state.subsystems.iter().find(|(_, subsystem)| subsystem.tenant == *name);
            if let Some(owned) = vssd
                .map(|(vssd, _)| format!("vSSD \"{vssd}\""))
                .or(subsystem.map(|(nqn, _)| format!("subsystem {nqn}")))
            {
                let message = format!("tenant \"{name}\" still owns {owned}; delete that first");
                return refuse(ControlErrorKind::InUse, message);
            }
            plan.next.tenants.remove(name);
            plan.steps.push(Step::Persist);
        }
        ControlRequest::SetTenantWeight { tenant, weight } => set_weight(tenant, *weight, &mut plan)?,
        ControlRequest::MoveTenant { tenant, shard } => {
            if !state.tenants.contains_key(tenant) {
                return missing("tenant", tenant);
            }
            plan.steps.push(Step::MoveTenant { tenant: tenant.clone(), shard: *shard });
        }
        ControlRequest::CreateVssd(spec) => {
            create_vssd(state, spec, rate_limit_min_bytes_per_second, &mut plan)?
        }
        ControlRequest::DeleteVssd(name) => {
            let Some(vssd) = state.vssds.get(name) else { return missing("vSSD", name) };
            if let Some((volume, _)) = state.volumes.iter().find(|(_, volume)| volume.vssd == *name) {
                let message = format!("vSSD \"{name}\" still holds volume \"{volume}\"; delete that first");
                return refuse(ControlErrorKind::InUse, message);
            }
            plan.next.vssds.remove(name);
            plan.steps = vec![Step::Persist, Step::DeallocVssd { number: vssd.number }];
        }
        ControlRequest::CreateVolume(spec) => create_volume(state, spec, &mut plan)?,
        ControlRequest::DeleteVolume(name) => {
            let Some(volume) = state.volumes.get(name) else { return missing("volume", name) };
            let mut subsystems = state.subsystems.iter();
            if let Some((nqn, _)) = subsystems.find(|(_, subsystem)| subsystem.nsid(name).is_some()) {
                let message = format!("volume \"{name}\" is shown by subsystem {nqn}; detach it there first");
                return refuse(ControlErrorKind::InUse, message);
            }
            plan.next.volumes.remove(name);
            let vssd = state.vssds[&volume.vssd].number;
            plan.steps = vec![
                Step::CanDelete { vssd },
                Step::Persist,
                Step::CloseNamespace { vssd, namespace: volume.namespace },
                Step::DeleteVolume { vssd, index: volume.index },
            ];
        }
        ControlRequest::CreateSubsystem(spec) => create_subsystem(state, spec, &mut plan)?,
        ControlRequest::DeleteSubsystem(nqn) => {
            if plan.next.subsystems.remove(nqn).is_none() {
                return missing("subsystem", nqn);
            }
            plan.steps = vec![Step::Persist, remove_subsystem(state, nqn)];
        }
        ControlRequest::AllowHost { subsystem, host } => {
            check_nqn("host", host)?;
            edit(&mut plan, subsystem, |record| {
                if !record.allowed_hosts.contains(host) {
                    record.allowed_hosts.push(host.clone());
                }
                Ok(())
            })?;
        }
        ControlRequest::DenyHost { subsystem, host } => edit(&mut plan, subsystem, |record| {
            if !record.allowed_hosts.contains(host) {
                let message = format!("host {host} is not among the allowed hosts of subsystem {subsystem}");
                return refuse(ControlErrorKind::NotFound, message);
            }
            record.allowed_hosts.retain(|allowed| allowed != host);
            Ok(())
        })?,
        ControlRequest::AttachNamespace { subsystem, nsid, volume } => {
            check_namespace(state, subsystem, None, *nsid, volume)?;
            edit(&mut plan, subsystem, |record| match record.volume(*nsid) {
                Some(shown) if shown == volume => Ok(()),
                Some(shown) => refuse(
                    ControlErrorKind::Exists,
                    format!(
                        "namespace {nsid} of subsystem {subsystem} shows volume \"{shown}\"; detach it first"
                    ),
                ),
                None => match record.nsid(volume) {
                    Some(before) => twice_shown(subsystem, volume, before, *nsid),
                    None => {
                        record.namespaces.push(NamespaceSpec::new(*nsid, volume));
                        record.namespaces.sort_by_key(|one| one.nsid);
                        Ok(())
                    }
                },
            })?;
        }
        ControlRequest::DetachNamespace { subsystem, nsid } => edit(&mut plan, subsystem, |record| {
            let before = record.namespaces.len();
            record.namespaces.retain(|one| one.nsid != *nsid);
            if record.namespaces.len() == before {
                let message = format!("subsystem {subsystem} has no namespace {nsid}");
                return refuse(ControlErrorKind::NotFound, message);
            }
            Ok(())
        })?,
        ControlRequest::Shutdown => {
            plan.next.pool.closed = true;
            let subsystems = state.subsystems.keys().map(|nqn| remove_subsystem(state, nqn));
            plan.steps = subsystems.collect();
            plan.steps.extend([Step::FlushStores, Step::Persist]);
        }
        ControlRequest::RepairVssd { vssd: name, accepts_loss } => {
            let Some(vssd) = state.vssds.get(name) else { return missing("vSSD", name) };
            if vssd.serves != Serves::Volumes {
                let message = format!(
                    "vSSD \"{name}\" serves erase blocks: what lies on them is its application's, and nothing here can repair it"
                );
                return refuse(ControlErrorKind::Invalid, message);
            }
            plan.steps = vec![Step::RepairVssd { name: name.clone(), accepts_loss: *accepts_loss }];
        }
        ControlRequest::SetWear(change) => set_wear(change, &mut plan)?,
        ControlRequest::Status => {}
        ControlRequest::Within { .. } => unreachable!("taken off when it came"),
    }
    Ok(plan)
}

fn create_tenant(spec: &TenantSpec, plan: &mut Plan) -> Result<(), ControlError> {
    sound(spec.check())?;
    match plan.next.tenants.get(&spec.name) {
        Some(existing) if existing == spec => Ok(()),
        Some(_) => differs("tenant", &spec.name),
        None => {
            plan.next.tenants.insert(spec.name.clone(), spec.clone());
            plan.steps = vec![Step::Persist];
            Ok(())
        }
    }
}

fn set_weight(name: &str, weight: u32, plan: &mut Plan) -> Result<(), ControlError> {
    let Some(spec) = plan.next.tenants.get_mut(name) else { return missing("tenant", name) };
    if spec.weight != weight {
        spec.weight = weight;
        sound(spec.check_slips())?;
        plan.steps = vec![Step::Persist, Step::ApplyTenant { name: name.to_owned() }];
    }
    Ok(())
}

fn remove_subsystem(state: &State, nqn: &str) -> Step {
    let volumes = state.subsystems[nqn].volumes().map(|volume| &state.volumes[volume]);
    let vssds = volumes.map(|volume| state.vssds[&volume.vssd].number).collect();
    Step::RemoveSubsystem { nqn: nqn.to_owned(), vssds }
}

fn set_wear(change: &WearSettings, plan: &mut Plan) -> Result<(), ControlError> {
    let before = plan.next.pool.wear;
    let next = change.over(before);
    if let Err(error) = next.check() {
        return refuse(ControlErrorKind::Invalid, format!("even wear: {error}"));
    }
    let thresholds = [change.channel_threshold_erases, change.die_threshold_erases];
    if next.follow_age == Some(true) && thresholds.into_iter().flatten().any(|erases| erases > 0) {
        let message = "even wear: a threshold that follows the device's age cannot be set; let it follow no longer, or leave it out";
        return refuse(ControlErrorKind::Invalid, message.to_owned());
    }
    plan.next.pool.wear = next;
    if next != before {
        plan.steps = vec![Step::Persist, Step::ApplyWear];
    }
    Ok(())
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

fn create_vssd(
    state: &State,
    spec: &VssdSpec,
    rate_limit_min_bytes_per_second: u64,
    plan: &mut Plan,
) -> Result<(), ControlError> {
    sound(spec.check())?;
    if let Some(existing) = state.vssds.get(&spec.name) {
        return if existing.spec == *spec { Ok(()) } else { differs("vSSD", &spec.name) };
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
    };
    plan.next.vssds.insert(spec.name.clone(), record);
    plan.steps = vec![Step::AllocVssd { name: spec.name.clone() }, Step::SyncPool, Step::Persist];
    Ok(())
}

/// How much larger than what a vSSD can store its volumes may be: their maps are in memory, and a store has no room for
/// more (`Log::map_ius_max`).
const THIN_FACTOR: u64 = 64;
const THIN_LEAST_BYTES: u64 = 4 << 30;

fn create_volume(state: &State, spec: &VolumeSpec, plan: &mut Plan) -> Result<(), ControlError> {
    sound(spec.check_name())?;
    if let Some(existing) = state.volumes.get(&spec.name) {
        let same = existing.vssd == spec.vssd
            && existing.size == spec.size
            && (spec.uuid.is_none() || spec.uuid == existing.uuid)
            && (spec.nguid.is_none() || spec.nguid == existing.nguid);
        return if same { Ok(()) } else { differs("volume", &spec.name) };
    }
    if !state.vssds.contains_key(&spec.vssd) {
        return lacks("vSSD", &spec.vssd);
    }
    if state.vssds[&spec.vssd].serves != Serves::Volumes {
        let message = format!(
            "volume \"{}\": vSSD \"{}\" serves erase blocks to applications and holds no volumes; make another vSSD for them",
            spec.name, spec.vssd
        );
        return refuse(ControlErrorKind::Invalid, message);
    }
    let exported_ius = state.vssds[&spec.vssd].exported_ius;
    let promised = state.volumes.values().filter(|volume| volume.vssd == spec.vssd);
    let promised_bytes: u64 = promised.map(|volume| volume.size.bytes()).sum();
    let largest_bytes = (exported_ius * THIN_FACTOR * IU_SIZE_BYTES as u64).max(THIN_LEAST_BYTES);
    if exported_ius > 0 && promised_bytes.saturating_add(spec.size.bytes()) > largest_bytes {
        let left_bytes = largest_bytes.saturating_sub(promised_bytes);
        let message = format!(
            "volume \"{}\": all volumes of vSSD \"{}\" together may have at most {largest_bytes} bytes, {THIN_FACTOR} times what it \
             can store; {left_bytes} are left",
            spec.name, spec.vssd
        );
        return Err(ControlError { kind: ControlErrorKind::Invalid, message });
    }
    sound(spec.check())?;
    let taken: Vec<u16> =
        state.volumes.values().filter(|volume| volume.vssd == spec.vssd).map(|volume| volume.index).collect();
    let Some(index) = (0..1024).find(|index| !taken.contains(index)) else {
        let message = format!("vSSD \"{}\" has 1024 volumes; delete one first", spec.vssd);
        return refuse(ControlErrorKind::Exhausted, message);
    };
    let chosen = [spec.uuid.map(Uuid::into_bytes), spec.nguid.map(|nguid| nguid.0)];
    for (kind, id) in ["UUID", "NGUID"].into_iter().zip(chosen) {
        let same = |volume: &VolumeRecord| id.is_some_and(|id| volume.identities().contains(&id));
        if let Some((other, _)) = state.volumes.iter().find(|(_, volume)| same(volume)) {
            let message =
                format!("volume \"{}\": its {kind} is that of volume \"{other}\"; choose another", spec.name);
            return refuse(ControlErrorKind::Invalid, message);
        }
    }
    let Some(number) = plan.next.pool.namespaces_given.checked_add(1) else {
        let message = "no namespace can be given any more: all numbers were used".to_owned();
        return refuse(ControlErrorKind::Exhausted, message);
    };
    plan.next.pool.namespaces_given = number;
    let derived = |kind| derived_id(&state.pool.uuid, kind, &spec.name, number);
    let uuid = spec.uuid.unwrap_or_else(|| Uuid::from_bytes(derived("uuid")));
    let nguid = spec.nguid.unwrap_or_else(|| Nguid(derived("nguid")));
    let filled = VolumeSpec { uuid: Some(uuid), nguid: Some(nguid), ..spec.clone() };
    let record = VolumeRecord { spec: filled, index, namespace: number };
    plan.next.volumes.insert(spec.name.clone(), record);
    let name = || spec.name.clone();
    plan.steps =
        vec![Step::CreateVolume { name: name() }, Step::Persist, Step::OpenNamespace { name: name() }];
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

fn create_subsystem(state: &State, spec: &SubsystemSpec, plan: &mut Plan) -> Result<(), ControlError> {
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
    if let Some(existing) = state.subsystems.get(&spec.nqn) {
        return if *existing == record { Ok(()) } else { differs("subsystem", &spec.nqn) };
    }
    if !state.tenants.contains_key(&spec.tenant) {
        return lacks("tenant", &spec.tenant);
    }
    for NamespaceSpec { nsid, volume } in &spec.namespaces {
        check_namespace(state, &spec.nqn, Some(&spec.tenant), *nsid, volume)?;
    }
    plan.next.subsystems.insert(spec.nqn.clone(), record);
    plan.steps = vec![Step::Persist, Step::ApplySubsystem { nqn: spec.nqn.clone() }];
    Ok(())
}
