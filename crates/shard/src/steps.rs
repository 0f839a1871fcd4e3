//! A shard's own part of each step of a job.

pub(crate) mod catalog;
pub(crate) mod devices;
pub(crate) mod fences;
pub(crate) mod moving;
pub(crate) mod repair;
pub(crate) mod shortage;
pub(crate) mod stores;
pub(crate) mod subsystems;
pub(crate) mod volumes;
pub(crate) mod vssds;
pub(crate) mod wear;

use crate::job::{Job, Progress};
use crate::leveling;
use crate::owners::Owners;
use crate::qos;
use crate::relocation;
use crate::reservations;
use crate::step::Step;
use diecut_media::Divide;
use diecut_namespace::contract::NamespaceId;
use diecut_units::Time;
use diecut_volume::contract::VolumeIndex;
use diecut_vssd::VssdId;

/// Carries out a step that the first shard ordered, as far as it can be now.
pub(crate) fn step_of_order<M: Divide>(
    here: &mut Owners<M>,
    step: &Step,
    job: &mut Job,
    now: Time,
) -> Progress {
    if !job.is_begun() {
        job.begin(true, Vec::new());
    }
    let progress = step_here(here, step, job, now);
    if matches!(progress, Progress::Done) {
        job.own_is_done();
    }
    progress
}

/// Carries out this shard's part of a step, as far as it can be now. A step that waits is asked again.
pub(crate) fn step_here<M: Divide>(here: &mut Owners<M>, step: &Step, job: &mut Job, now: Time) -> Progress {
    match step {
        Step::AllocVssd { .. }
        | Step::MoveTenant { .. }
        | Step::Arrive(_)
        | Step::LevelWear
        | Step::Reopen(_)
        | Step::Readmit(_) => {
            unreachable!("I-S5: the first shard chooses what lives where")
        }
        Step::Exchange(pairs) => leveling::exchange(here, pairs, job),
        // With the answer.
        Step::ReturnChannels => Progress::Done,
        Step::Leave(group) => relocation::leave(here, group),
        Step::Release(group, passed) => relocation::release(here, group, *passed, now),
        Step::SyncVssd { name } => catalog::sync_vssd(here, name, job, now),
        Step::Persist => catalog::persist(here, job, now),
        Step::CreateVolume { name } => volumes::create(here, name, job),
        Step::OpenNamespace { name } => volumes::open(here, name, job),
        Step::ApplyTenant { name } => {
            here.plane.admission.set_weight(&here.registry.state.tenants[name]);
            Progress::Done
        }
        Step::ApplyQosSets => {
            qos::apply(&mut here.plane, &here.registry, now);
            shortage::tell(here);
            Progress::Done
        }
        Step::ApplySubsystem { nqn } => subsystems::apply(here, nqn, now),
        Step::RemoveSubsystem { nqn, .. } => subsystems::remove(here, nqn, now),
        Step::CloseNamespace { namespace, .. } => volumes::close(here, NamespaceId(*namespace)),
        Step::CanDelete { vssd } => stores::can_delete(here, *vssd, now),
        Step::DeleteVolume { vssd, index } => volumes::delete(here, *vssd, VolumeIndex(*index), job),
        Step::DeallocVssd { number } => vssds::dealloc(here, VssdId(*number)),
        Step::RepairVssd { name, accepts_loss } => repair::repair(here, name, *accepts_loss, job, now),
        Step::Unfence { name } => fences::lift(here, name),
        Step::ApplyWear => wear::apply(here),
        Step::FlushStores => stores::flush(here, job, now),
        Step::KeepForHosts => reservations::hurry(here),
        Step::MakeCopies { name } => moving::make_copies(here, name, job),
        Step::CopyVssd { name } => moving::copy(here, name, job, now),
        Step::SwitchVssd { name } => moving::switch(here, name, now),
        Step::DrainDevice(device) => devices::drain(here, *device),
        Step::StayDevice(device) => devices::stay(here, *device),
        Step::TakeDevice(device) => devices::take(here, *device, now),
        Step::JoinDevice(device) => devices::join(here, *device, job),
        Step::LeaveDevice(device) => devices::leave(here, *device),
        Step::ForgetDevice(device) => devices::forget(here, *device),
    }
}
