//! What a job waits for, in words for people.

use crate::job::{Job, Own};
use crate::step::Step;
use diecut_catalog::State;

/// For people: what a request waits for.
pub(crate) fn waits_for(state: &State, job: &Job) -> String {
    let Some(step) = job.steps.front() else { return "nothing".to_owned() };
    let elsewhere = match job.awaited().len() {
        0 => String::new(),
        shards => format!(" (answers of other shards: {shards})"),
    };
    let vssd = |number: u32| {
        let name = state.vssds.iter();
        let mut named = name.filter(|(_, record)| record.number == number);
        named.next().map_or(format!("vSSD number {number}"), |(name, _)| format!("vSSD \"{name}\""))
    };
    let what = match step {
        Step::AllocVssd { name } => format!("room for vSSD \"{name}\""),
        Step::SyncVssd { .. } => "the block states to be durable".to_owned(),
        Step::CreateVolume { name } => format!("volume \"{name}\" to be durable in its vSSD"),
        Step::Persist | Step::KeepForHosts => "the catalog to be written".to_owned(),
        Step::OpenNamespace { name } => format!("the namespace of volume \"{name}\""),
        Step::ApplyTenant { name } => format!("the weight of tenant \"{name}\" to be in force"),
        Step::ApplyQosSets => "QoS sets to be in force".to_owned(),
        Step::ApplySubsystem { nqn } => format!("subsystem {nqn} to be shown"),
        Step::RemoveSubsystem { nqn, .. } => format!("commands of hosts of subsystem {nqn}"),
        Step::CloseNamespace { vssd: number, .. } => {
            format!("commands under way in the volume, on {}", vssd(*number))
        }
        Step::CanDelete { vssd: number } => format!("{} to be read", vssd(*number)),
        Step::DeleteVolume { vssd: number, .. } => {
            format!("the deletion to be durable in {}", vssd(*number))
        }
        Step::DeallocVssd { .. } => "flash operations under way on its dies".to_owned(),
        Step::RepairVssd { name, .. } => format!("vSSD \"{name}\" to be read again"),
        Step::Unfence { name } => format!("the fence of vSSD \"{name}\" to be lifted everywhere"),
        Step::FlushStores => match job.own() {
            Own::Stores(tokens) => format!("{} vSSDs to write down what they staged", tokens.len()),
            _ => "applications at erase blocks to let go".to_owned(),
        },
        Step::ApplyWear | Step::LevelWear => "what shards say of wear".to_owned(),
        Step::Reopen(shard) | Step::Readmit(shard) => format!("shard {shard}, which failed, to recover"),
        Step::Exchange(_) => "an exchange for even wear to begin".to_owned(),
        Step::ReturnChannels => "channels to come back".to_owned(),
        Step::MakeCopies { name } => format!("volumes of vSSD \"{name}\" to be made elsewhere"),
        Step::CopyVssd { name } | Step::SwitchVssd { name } => format!("vSSD \"{name}\" to be copied"),
        Step::DrainDevice(_) | Step::StayDevice(_) => "the device".to_owned(),
        Step::TakeDevice(_) => "the new device to be written to".to_owned(),
        Step::JoinDevice(_) => "the new device".to_owned(),
        Step::LeaveDevice(_) => "the other devices to have all of the catalog".to_owned(),
        Step::ForgetDevice(_) => "what is under way on the device to end".to_owned(),
        Step::MoveTenant { tenant, .. } => format!("tenant \"{tenant}\" to be looked at"),
        Step::Leave(group) | Step::Arrive(group) | Step::Release(group, _) => {
            format!("the move of tenant \"{}\"", group.tenants.join("\", \""))
        }
    };
    what + &elsewhere
}
