//! Writing down what exists: in the pool's block states and in the catalog.

use crate::catalog::refusal;
use crate::claims::merged;
use crate::control::{ControlError, ControlErrorKind};
use crate::job::{Job, Own, Progress};
use crate::ledger::HeldPart;
use crate::owners::Owners;
use crate::reach::Reaches;
use diecut_catalog::State;
use diecut_media::Divide;
use diecut_units::{Time, mutant};

/// Waits until the block states of the devices that a new vSSD lies on are durable. Others do not matter to it: they may hang.
pub(crate) fn sync_vssd<M: Divide>(here: &mut Owners<M>, name: &str, job: &Job, now: Time) -> Progress {
    let mut all_durable = true;
    let held = here.placement.ledger.vssds.get(&job.next.vssds[name].number);
    let held = held.expect("I-S20: a vSSD that was made lies somewhere");
    for HeldPart { device, .. } in &held.parts {
        let own = here.plane.flash.devices.get_mut(*device);
        if own.pool.is_state_log_lost() {
            let message = "the journal of block states takes no writes: its erase blocks failed".to_owned();
            return Progress::Refused(ControlError { kind: ControlErrorKind::Media, message });
        }
        own.pool.make_durable(&mut own.media, now);
        all_durable &= own.pool.is_durable();
    }
    if all_durable { Progress::Done } else { Progress::Waits }
}

/// Writes what the job changes to the catalog and waits until it is durable.
pub(crate) fn persist<M: Divide>(here: &mut Owners<M>, job: &mut Job, now: Time) -> Progress {
    if let Some(error) = here.registry.catalog.error() {
        return Progress::Refused(refusal(error));
    }
    if !job.is_persisting() {
        // One state after the other; and a command of the catalog would meet channels that are on their way.
        if here.registry.is_taken {
            return Progress::Waits;
        }
        let state = if mutant!("shard: changes of others are forgotten") {
            job.next.clone()
        } else {
            merged(&here.registry.state, &job.base, &job.next)
        };
        let changes = here.registry.state.changes_to(&state);
        if changes.is_empty() {
            return Progress::Done;
        }
        let Owners { plane, placement, registry, .. } = &mut *here;
        let mut reaches = Reaches {
            devices: &mut plane.flash.devices,
            owners: &placement.ledger.owners,
            outgoing: &mut placement.outgoing,
            elsewhere: &mut placement.attendance.media,
        };
        let number = match registry.catalog.put(&changes, &mut reaches, now) {
            Ok(number) => number,
            Err(error) => return Progress::Refused(refusal(&error)),
        };
        job.own_goes(Own::Catalog(number, Box::new(state)));
    }
    let Own::Catalog(number, state) = job.own() else { unreachable!("I-S9: a step has its own state") };
    if here.registry.catalog.durable() < *number {
        return Progress::Waits;
    }
    here.registry.state = State::clone(state);
    job.base.clone_from(&job.next);
    Progress::Done
}
