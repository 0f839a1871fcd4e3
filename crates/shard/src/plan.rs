//! From a request of an administrator to steps: pure, so that every refusal is decided before anything is touched. Each kind of object
//! has a file of its own.

mod qos_sets;
mod subsystems;
mod tenants;
mod volumes;
mod vssds;

use crate::admission::DeviceShaper;
use crate::control::*;
use crate::step::Step;
use diecut_catalog::State;
use diecut_units::Shown;
pub(crate) use qos_sets::shortage;
use uuid::Uuid;
pub(crate) use vssds::alloc_refused;

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

/// Fields as files call them, and their values for people.
type Fields = Vec<(&'static str, String)>;

/// An object exists whose fields are not all as `asked`, which has the same ones in the same order.
fn differs<T>(kind: &str, name: &str, exists: Fields, asked: Fields) -> Result<T, ControlError> {
    let fields = exists.into_iter().zip(asked).filter(|(exists, asked)| exists != asked);
    let differing: Vec<String> =
        fields.map(|((field, exists), (_, asked))| format!("{field} is {exists}, not {asked}")).collect();
    let message = format!(
        "{kind} \"{name}\" exists with another definition: {}; delete it first, or choose another name",
        differing.join(", ")
    );
    refuse(ControlErrorKind::Exists, message)
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
    device: Option<DeviceShaper>,
) -> Result<Plan, ControlError> {
    let mut plan = Plan { next: state.clone(), steps: Vec::new() };
    match request {
        ControlRequest::CreateTenant(spec) => tenants::create(spec, &mut plan)?,
        ControlRequest::DeleteTenant(name) => tenants::delete(state, name, &mut plan)?,
        ControlRequest::SetTenantWeight { tenant, weight } => {
            tenants::set_weight(tenant, *weight, &mut plan)?
        }
        ControlRequest::MoveTenant { tenant, shard } => tenants::move_to(tenant, *shard, &mut plan)?,
        ControlRequest::CreateVssd(spec) => {
            vssds::create(state, spec, rate_limit_min_bytes_per_second, &mut plan)?
        }
        ControlRequest::DeleteVssd(name) => vssds::delete(state, name, &mut plan)?,
        ControlRequest::RepairVssd { vssd, accepts_loss } => {
            vssds::repair(state, vssd, *accepts_loss, &mut plan)?
        }
        ControlRequest::UnfenceVssd(vssd) => vssds::unfence(state, vssd, &mut plan)?,
        ControlRequest::CreateVolume(spec) => volumes::create(state, spec, &mut plan)?,
        ControlRequest::DeleteVolume(name) => volumes::delete(state, name, &mut plan)?,
        ControlRequest::CreateSubsystem(spec) => subsystems::create(state, spec, &mut plan)?,
        ControlRequest::DeleteSubsystem(nqn) => subsystems::delete(state, nqn, &mut plan)?,
        ControlRequest::AllowHost { subsystem, host } => subsystems::allow(subsystem, host, &mut plan)?,
        ControlRequest::DenyHost { subsystem, host } => subsystems::deny(subsystem, host, &mut plan)?,
        ControlRequest::AttachNamespace { subsystem, nsid, volume } => {
            subsystems::attach(state, subsystem, *nsid, volume, &mut plan)?;
        }
        ControlRequest::DetachNamespace { subsystem, nsid } => {
            subsystems::detach(state, subsystem, *nsid, &mut plan)?
        }
        ControlRequest::SetPath { subsystem, path } => subsystems::set_path(subsystem, *path, &mut plan)?,
        ControlRequest::CreateQosSet(spec) => qos_sets::create(spec, device, &mut plan)?,
        ControlRequest::ChangeQosSet { set, change } => qos_sets::change(set, change, device, &mut plan)?,
        ControlRequest::DeleteQosSet(name) => qos_sets::delete(name, &mut plan)?,
        ControlRequest::SetWear(change) => set_wear(change, &mut plan)?,
        ControlRequest::MoveVssd(name) => vssds::move_away(state, name, &mut plan)?,
        ControlRequest::Device { device, turn } => plan.steps = turn_device(*device, *turn),
        ControlRequest::Shutdown => shut_down(state, &mut plan),
        ControlRequest::Status | ControlRequest::Latency => {}
        ControlRequest::Within { .. } => unreachable!("I-S14: its patience was taken off when it came"),
    }
    Ok(plan)
}

fn turn_device(device: Uuid, turn: DeviceTurn) -> Vec<Step> {
    match turn {
        DeviceTurn::Comes => vec![Step::TakeDevice(device)],
        DeviceTurn::Joined => vec![Step::JoinDevice(device), Step::Persist],
        DeviceTurn::Drains => vec![Step::DrainDevice(device)],
        DeviceTurn::Stays => vec![Step::StayDevice(device)],
        DeviceTurn::Leaves => vec![Step::LeaveDevice(device)],
        DeviceTurn::Went => vec![Step::ForgetDevice(device)],
    }
}

fn shut_down(state: &State, plan: &mut Plan) {
    plan.next.pool.closed = true;
    let subsystems = state.subsystems.keys().map(|nqn| subsystems::remove(state, nqn));
    plan.steps = subsystems.collect();
    // What other shards had to say last came before their stores were flushed.
    plan.steps.extend([Step::FlushStores, Step::KeepForHosts, Step::Persist]);
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
