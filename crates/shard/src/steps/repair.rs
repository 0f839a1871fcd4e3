//! Repairs: a vSSD that takes no writes says why, and takes them again where that can be.
//!
//! Its store is opened a second time on the same erase blocks, with the same staging, while its hosts' commands wait. A store that
//! missed something changed nothing since ([`diecut_volume::Store::findings`]), so the second look meets all there was at the
//! first one. What it finds decides: nothing missing, and the vSSD takes writes; something missing, and it stays as it is unless
//! loss is accepted. Then ranges that are lost fail to read until they are written or deallocated.
//!
//! 1. The store begins nothing more; reads under way end.
//! 2. It is opened anew. Volumes that the catalog knows and the store does not are lost; commands wait until it was told which.
//! 3. Where something changed, an anchor is written that no longer names what is missing. A crash before that costs nothing: the
//!    next start meets what this one met.

use crate::control::*;
use crate::job::{Job, Own, Progress, Repair};
use crate::notice::Notice;
use crate::owners::Owners;
use crate::steps::stores;
use diecut_catalog::VssdRecord;
use diecut_media::Divide;
use diecut_namespace::StoreIndex;
use diecut_units::{IU_SIZE_BYTES, Time, mark};
use diecut_volume::Recovery;
use diecut_volume::contract::VolumeIndex;
use diecut_vssd::VssdId;

/// Ranges that a report lists.
const RANGES_MAX: usize = 256;

/// Lets a repair go on; its report is the answer.
pub(crate) fn repair<M: Divide>(
    here: &mut Owners<M>,
    name: &str,
    accepts_loss: bool,
    job: &mut Job,
    now: Time,
) -> Progress {
    let record = here.registry.state.vssds[name].clone();
    let Some(index) = here.plane.store_of(record.number) else { return Progress::Waits };
    let store = here.plane.flash.kept(index).expect_volumes();
    let Own::Repairs(at, reason_before) = *job.own() else {
        if !store.is_ready() {
            return Progress::Waits;
        }
        match store.read_only_reason() {
            Some(reason) if store.is_kept() && !store.findings().is_of_other_version() => {
                here.plane.flash.kept_mut(index).volumes_mut().wind_down();
                job.own_goes(Own::Repairs(Repair::WindsDown, reason));
                return Progress::Waits;
            }
            reason_before => {
                let looked = Looked { accepts_loss, was_opened: false, reason_before };
                job.report = Some(Box::new(report(here, name, index, &looked)));
                return Progress::Done;
            }
        }
    };
    match at {
        Repair::WindsDown => {
            if !store.has_wound_down() {
                return Progress::Waits;
            }
            // What an erase block held whose owner nobody knows is not proven to be unneeded.
            let is_account_whole = {
                let mut on = here.plane.flash.devices.of(VssdId(record.number));
                on.all(|own| own.pool.quarantined().iter().all(|one| one.holder.is_some()))
            };
            let recovery = match (accepts_loss, is_account_whole) {
                (true, _) => Recovery::Accept,
                (false, true) => Recovery::Mend,
                (false, false) => Recovery::Strict,
            };
            reopen_store(here, &record, index, recovery, now);
            job.own_goes(Own::Repairs(Repair::Opens, reason_before));
            Progress::Waits
        }
        Repair::Opens => {
            if !store.is_ready() {
                return Progress::Waits;
            }
            stores::find_lost_volumes(here, name, index);
            here.plane.flash.let_commands_in(index, now);
            job.own_goes(Own::Repairs(Repair::IsWritten, reason_before));
            Progress::Waits
        }
        Repair::IsWritten => {
            if store.is_mending() {
                return Progress::Waits;
            }
            let looked = Looked { accepts_loss, was_opened: true, reason_before: Some(reason_before) };
            let report = report(here, name, index, &looked);
            if report.reason.is_none() {
                mark!("shard: vSSD repaired");
                let lost = (report.outcome == RepairOutcome::Accepted).then_some(report.lost_bytes);
                here.notices.push(Notice::Repaired { vssd: name.to_owned(), lost_bytes: lost });
            }
            job.report = Some(Box::new(report));
            Progress::Done
        }
    }
}

fn reopen_store<M: Divide>(
    here: &mut Owners<M>,
    record: &VssdRecord,
    index: StoreIndex,
    recovery: Recovery,
    now: Time,
) {
    let config = stores::store_config(here, record, recovery);
    let commands = here.plane.flash.end_store(index);
    // The store's part of protected memory is free only now.
    let staging = here.plane.flash.devices.first_of(VssdId(record.number)).staging.region(record);
    here.plane.flash.begin_store(index, record.number, config, staging, commands, now);
}

/// How a store was looked at.
struct Looked {
    accepts_loss: bool,
    was_opened: bool,
    /// Why it took no writes before.
    reason_before: Option<&'static str>,
}

fn report<M: Divide>(here: &Owners<M>, name: &str, index: StoreIndex, looked: &Looked) -> RepairReport {
    let Looked { accepts_loss, was_opened, reason_before } = *looked;
    let store = here.plane.flash.kept(index).expect_volumes();
    let findings = store.findings();
    let accepted = store.accepted_loss();
    let reason = store.read_only_reason();
    let outcome = match (reason_before, reason) {
        (None, _) => RepairOutcome::Good,
        (_, Some(_)) if store.is_kept() && !findings.is_of_other_version() => RepairOutcome::ReadOnly,
        (_, Some(_)) => RepairOutcome::NotToBeRepaired,
        (_, None) if was_opened && !findings.is_empty() && accepts_loss => RepairOutcome::Accepted,
        (_, None) => RepairOutcome::Mended,
    };
    let volume_name = |index: VolumeIndex| {
        let of = |(_, volume): &(&String, &diecut_catalog::VolumeRecord)| {
            volume.vssd == name && volume.index == index.0
        };
        let named = here.registry.state.volumes.iter().find(of);
        named.map_or_else(|| format!("number {}", index.0), |(name, _)| name.clone())
    };
    // The whole map is looked at only where something may be found.
    let may_have_lost = accepted.ius > 0 || store.is_kept() || outcome == RepairOutcome::Accepted;
    let (ranges, lost_ius) =
        if may_have_lost { store.lost_ranges(None, RANGES_MAX) } else { (Vec::new(), 0) };
    let bytes = |ius: u64| ius * IU_SIZE_BYTES as u64;
    let lost: Vec<LostBytes> = ranges
        .iter()
        .map(|range| LostBytes {
            volume: volume_name(range.volume),
            offset_bytes: bytes(range.first_iu),
            size_bytes: bytes(range.iu_count),
        })
        .collect();
    // Of a store that was not opened for this, what it found when it was opened last is over.
    let is_told = was_opened || reason.is_some();
    let missing = findings.missing.iter().filter(|_| is_told);
    RepairReport {
        vssd: name.to_owned(),
        outcome,
        reason_before: reason_before.map(str::to_owned),
        reason: reason.map(str::to_owned),
        missing: missing
            .map(|missing| missing.describe(|index| format!("\"{}\"", volume_name(index))))
            .collect(),
        missing_more: if is_told { findings.more } else { 0 },
        lost_records: if is_told { findings.records } else { 0 },
        emptied_leaves: if is_told { findings.emptied_leaves } else { 0 },
        lost,
        lost_bytes: bytes(lost_ius),
        accepted_records: accepted.records,
    }
}
