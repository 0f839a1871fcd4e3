//! Sanitize operations of subsystems, which go on over restarts: how the catalog has them, and what administrators may not do meanwhile.

use crate::control::{ControlError, ControlErrorKind};
use crate::owners::Owners;
use crate::registry::qualified;
use diecut_catalog::{SanitizeRecord, State};
use diecut_media::Divide;
use diecut_nvmf as target;
use diecut_spec::{SanitizeState, SanitizeStatus};
use diecut_units::{Time, mutant};
use diecut_volume::contract::VolumeIndex;
use diecut_zoned::contract::ZoneSetIndex;

/// As the catalog has it.
pub(crate) fn record_of(record: target::SanitizeRecord) -> SanitizeRecord {
    SanitizeRecord { state: state_of(record.state), cdw10: record.cdw10, is_erased: record.is_erased }
}

fn state_of(state: target::SanitizeState) -> SanitizeState {
    match state {
        target::SanitizeState::InProgress => SanitizeState::InProgress,
        target::SanitizeState::Completed => SanitizeState::Completed,
        target::SanitizeState::Failed => SanitizeState::Failed,
        target::SanitizeState::FailureLeft => SanitizeState::FailureLeft,
    }
}

/// What administrators are told of a subsystem that lives here.
pub(crate) fn status<M: Divide>(here: &Owners<M>, nqn: &str) -> Option<SanitizeStatus> {
    let (state, progress) = target::sanitize_status(&here.plane.nvme.target, &qualified(nqn))?;
    let percent = |progress: u16| (u32::from(progress) * 100 / 65_536) as u8;
    Some(SanitizeStatus { state: state_of(state), progress_percent: progress.map(percent) })
}

fn of_record(record: SanitizeRecord) -> target::SanitizeRecord {
    let state = match record.state {
        SanitizeState::InProgress => target::SanitizeState::InProgress,
        SanitizeState::Completed => target::SanitizeState::Completed,
        SanitizeState::Failed => target::SanitizeState::Failed,
        SanitizeState::FailureLeft => target::SanitizeState::FailureLeft,
    };
    target::SanitizeRecord { state, cdw10: record.cdw10, is_erased: record.is_erased }
}

/// Tells the target what outlived a power loss, or a fence, of the sanitize operation of a subsystem: one that was not over goes on.
pub(crate) fn restore<M: Divide>(here: &mut Owners<M>, nqn: &str, now: Time) {
    let Some(record) = here.registry.state.sanitizes.get(nqn) else { return };
    if mutant!("shard: sanitize operations are not restored") {
        return;
    }
    // A write may have come to media right before the server went, and before the catalog said so.
    let is_erased = record.is_erased && holds_nothing(here, nqn);
    let record = SanitizeRecord { is_erased, ..*record };
    let nvme = &mut here.plane.nvme;
    target::restore_sanitize(&mut nvme.target, &qualified(nqn), of_record(record), now, &mut nvme.actions);
}

/// Whether all namespaces of a subsystem are known to hold no data.
fn holds_nothing<M: Divide>(here: &Owners<M>, nqn: &str) -> bool {
    let state = &here.registry.state;
    let Some(record) = state.subsystems.get(nqn) else { return false };
    record.namespaces.iter().all(|shown| {
        let Some(volume) = state.volumes.get(&shown.volume) else { return false };
        let Some(vssd) = state.vssds.get(&volume.vssd) else { return false };
        let Some(store) = here.plane.store_of(vssd.number) else { return false };
        let kept = here.plane.flash.kept(store);
        let used_ius = match (kept.volumes(), kept.zones(), kept.chunks()) {
            (Some(volumes), ..) => Some(volumes.volume_used_ius(VolumeIndex(volume.index))),
            (_, Some(zones), _) => Some(zones.used_ius(ZoneSetIndex(volume.index))),
            (.., Some(chunks)) => {
                let used_ius = chunks.used_ius();
                Some(if mutant!("shard: data of chunks are not seen") { 0 } else { used_ius })
            }
            _ => None,
        };
        kept.is_ready() && used_ius == Some(0)
    })
}

/// Refuses to change the namespaces of a subsystem, to take it away, or to move tenants, while it is sanitized: what would be taken away might
/// not be erased, and a move waits for what namespaces have.
pub(crate) fn is_over(state: &State, nqn: &str) -> Result<(), ControlError> {
    let goes_on = |record: &&SanitizeRecord| record.state == SanitizeState::InProgress;
    if state.sanitizes.get(nqn).filter(goes_on).is_none() || mutant!("shard: namespaces go while sanitized") {
        return Ok(());
    }
    let message = format!(
        "subsystem {nqn} is being sanitized: a host asked for all of its data to be erased; wait until that is over (`nvme sanitize-log` \
         on a host tells how far it is)"
    );
    Err(ControlError { kind: ControlErrorKind::InUse, message })
}
