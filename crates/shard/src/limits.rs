//! Rate limits and QoS sets of vSSDs that a job waits for: they do not count meanwhile. An end is never as slow as the limit.

use crate::job::Job;
use crate::owners::Owners;
use crate::registry::share_of;
use crate::step::Step;
use diecut_media::Divide;
use diecut_units::{Time, mutant};
use diecut_vssd::{Share, VssdId};
use std::collections::BTreeSet;

/// vSSDs of this shard whose rate limits do not count now, because something waits for their end.
#[derive(Default)]
pub(crate) struct Limits {
    lifted: BTreeSet<u32>,
}

/// vSSDs that the first step of a job waits for.
fn waited_for<M: Divide>(here: &Owners<M>, job: &Job) -> Vec<u32> {
    match job.steps.front() {
        Some(Step::RemoveSubsystem { vssds, .. }) => vssds.clone(),
        Some(Step::CloseNamespace { vssd, .. } | Step::DeleteVolume { vssd, .. }) => vec![*vssd],
        Some(Step::DeallocVssd { number }) => vec![*number],
        Some(Step::Leave(group)) => group.vssds.clone(),
        Some(Step::CreateVolume { name }) => vec![job.next.vssds[&job.next.volumes[name].vssd].number],
        Some(Step::RepairVssd { name, .. }) => vec![job.next.vssds[name].number],
        Some(Step::FlushStores) => here.plane.flash.devices.vssd_ids().map(|id| id.0).collect(),
        _ => Vec::new(),
    }
}

/// The share that a vSSD of this shard has, with or without its limit.
fn share_of_vssd<M: Divide>(here: &Owners<M>, number: u32, is_lifted: bool) -> Option<Share> {
    if !here.plane.flash.devices.vssd_ids().any(|id| id.0 == number) {
        return None;
    }
    let record = here.registry.state.vssds.values().find(|record| record.number == number);
    match record {
        Some(record) if is_lifted => Some(Share { weight: record.weight, ..Share::default() }),
        Some(record) => Some(share_of(record)),
        // It is being deleted.
        None => is_lifted.then(Share::default),
    }
}

impl Limits {
    /// Lifts the limits of vSSDs that something waits for, of all when the server `is_stopping`, and puts them back where nothing
    /// waits any more.
    pub fn lift<M: Divide>(&mut self, here: &mut Owners<M>, jobs: &[Job], is_stopping: bool, now: Time) {
        let mut wanted: BTreeSet<u32> = jobs.iter().flat_map(|job| waited_for(here, job)).collect();
        if is_stopping {
            wanted.extend(here.plane.flash.devices.vssd_ids().map(|id| id.0));
        }
        if wanted == self.lifted || mutant!("shard: an end waits for the rate limit") {
            return;
        }
        let changed: Vec<u32> = wanted.symmetric_difference(&self.lifted).copied().collect();
        for number in changed {
            if !wanted.contains(&number) && mutant!("shard: a limit stays lifted") {
                continue;
            }
            // Of vSSDs that were deleted nothing is left to be limited, nor here of those that moved away.
            let Some(share) = share_of_vssd(here, number, wanted.contains(&number)) else { continue };
            here.plane.flash.devices.set_share(VssdId(number), share, now);
            here.plane.admission.lift(VssdId(number), wanted.contains(&number));
        }
        self.lifted = wanted;
    }

    /// Checks that vSSDs that live here have the shares that their definitions say, but for limits that are lifted.
    ///
    /// # Panics
    /// If not.
    pub fn check<M: Divide>(&self, here: &Owners<M>) {
        for record in here.own_vssds() {
            let wanted = share_of_vssd(here, record.number, self.lifted.contains(&record.number));
            assert!(
                here.plane.flash.devices.has_share(VssdId(record.number), wanted),
                "I-S11: share of vSSD {} on shard {}",
                record.number,
                here.placement.index.0
            );
        }
    }
}
