//! The very end of a run: stores lose all their records while the server is down. What the catalog knows of them is lost then and
//! not new: reads fail, nothing is written, status and repair say so, and no other vSSD notices. When an administrator has accepted
//! the loss, the volumes take writes again, and what was not written since still fails to read.

use super::{Action, Range, Runner};
use crate::administration::{Change, tenant_name, volume_name};
use crate::oracle::Finding;
use crate::plan::Lane;
use crate::run::administrator::Sight;
use crate::tag::VolumeNumber;
use diecut_shard::control::{ControlRequest, LostBytes, RepairOutcome, RepairReport};
use diecut_units::mark;

/// IUs of each write and read; a divisor of those of the reads after a crash, so that none of them reaches into both what was
/// written and what was not.
const STEP_IUS: u64 = 16;
/// IUs that are written again, a multiple of those that a read after a crash has.
const WRITTEN_IUS: u64 = 256;

impl Runner<'_> {
    /// All of it, as far as the plan has it.
    pub(super) fn lose_stores(&mut self) {
        let Some(loss) = self.plan.loss.clone() else { return };
        let lanes: Vec<Lane> =
            loss.lanes.iter().copied().filter(|lane| !self.volumes_of(*lane).is_empty()).collect();
        if lanes.is_empty() {
            return;
        }
        mark!("run: stores lost");
        self.to_lose.clone_from(&lanes);
        self.kept = lanes.iter().copied().collect();
        self.crash(loss.crash);
        self.drive();
        self.try_writes(&lanes);
        for lane in (0..self.plan.tenants.len() as u8).map(Lane) {
            if !self.volumes_of(lane).is_empty() {
                self.ask_repair(lane, false);
            }
        }
        self.settle();
        self.restart_in_a_row(&loss.restarts, false);
        if self.stop {
            return;
        }
        for &lane in &lanes {
            self.ask_repair(lane, true);
        }
        self.drive();
        if let Some(crash) = loss.crash_after_acceptance
            && !self.stop
        {
            self.crash(crash);
        }
        self.settle();
        self.write_again(&lanes);
        self.restart_in_a_row(&loss.restarts_of_written, false);
        if self.stop {
            return;
        }
        for &lane in &lanes {
            self.ask_repair(lane, false);
        }
        self.settle();
    }

    /// Volumes on the vSSD of a lane, as far as an administrator knows.
    fn volumes_of(&self, lane: Lane) -> Vec<VolumeNumber> {
        self.administrator.as_ref().map_or_else(Vec::new, |one| one.volumes_of(self.plan, lane))
    }

    /// Those of them that the lane's host sees.
    fn seen_volumes_of(&self, lane: Lane) -> Vec<VolumeNumber> {
        self.volumes_of(lane).into_iter().filter(|volume| self.sight(lane, *volume) == Sight::Yes).collect()
    }

    fn ask_repair(&mut self, lane: Lane, accepts_loss: bool) {
        let administrator = self.administrator.as_mut().expect("somebody made the volumes");
        administrator.ask(Change::Repair { lane, accepts_loss });
    }

    /// The medium loses what was to be lost; the server is down.
    pub(super) fn lose_records(&mut self) {
        for lane in std::mem::take(&mut self.to_lose) {
            for volume in self.volumes_of(lane) {
                self.oracle.lose(volume);
            }
            self.system.lose_store(&tenant_name(lane));
        }
    }

    /// Hosts of vSSDs that lost their stores write all the same.
    fn try_writes(&mut self, lanes: &[Lane]) {
        for &lane in lanes {
            for volume in self.seen_volumes_of(lane) {
                let range = Range { volume, first: 3, count: 2 };
                let refused = [Action::Write { range, fua: false }, Action::Deallocate { range }];
                self.lanes[usize::from(lane.0)].steps.extend(refused.into_iter().chain([Action::Drain]));
            }
        }
    }

    /// The front of each volume is written and read, a piece behind it deallocated.
    fn write_again(&mut self, lanes: &[Lane]) {
        for &lane in lanes {
            for volume in self.seen_volumes_of(lane) {
                let iu_count = self.plan.volume(volume).iu_count;
                let pieces: Vec<Range> = (0..WRITTEN_IUS.min(iu_count / 64 * 32))
                    .step_by(STEP_IUS as usize)
                    .map(|first| Range { volume, first, count: STEP_IUS as u32 })
                    .collect();
                let rest = Range { volume, first: iu_count - STEP_IUS, count: STEP_IUS as u32 };
                let steps = &mut self.lanes[usize::from(lane.0)].steps;
                steps.extend(pieces.iter().map(|range| Action::Write { range: *range, fua: false }));
                steps.extend([Action::Deallocate { range: rest }, Action::Drain]);
                steps.extend(pieces.iter().chain([&rest]).map(|range| Action::Read { range: *range }));
            }
        }
        self.settle();
    }

    /// What an administrator is told of a repair is what was lost.
    pub(super) fn hear_repair(&mut self, request: &ControlRequest, report: &RepairReport) {
        let ControlRequest::RepairVssd { vssd, accepts_loss } = request else {
            return self.found(Finding::Administration, format!("{request:?} is answered with a repair"));
        };
        let mut lanes = (0..self.plan.tenants.len() as u8).map(Lane);
        let lane = lanes.find(|lane| tenant_name(*lane) == *vssd).expect("a vSSD of the plan");
        let is_kept = self.kept.contains(&lane);
        let outcome = match (is_kept, accepts_loss) {
            (false, _) => RepairOutcome::Good,
            (true, false) => RepairOutcome::ReadOnly,
            (true, true) => RepairOutcome::Accepted,
        };
        let volumes = self.volumes_of(lane);
        let whole = |volume: &VolumeNumber| LostBytes {
            volume: volume_name(*volume),
            offset_bytes: 0,
            size_bytes: self.plan.volume(*volume).iu_count * 4096,
        };
        let lost_bytes = volumes.iter().map(|volume| self.oracle.lost_ius(*volume) * 4096).sum::<u64>();
        let names = |volume: &VolumeNumber| {
            let name = format!("\"{}\"", volume_name(*volume));
            report.missing.iter().any(|missing| missing.contains(&name))
                && report.lost.contains(&whole(volume))
        };
        let is_right = report.outcome == outcome
            && report.lost_bytes == lost_bytes
            && report.reason.is_some() == (outcome == RepairOutcome::ReadOnly)
            && (!is_kept || volumes.iter().all(names));
        if !is_right {
            let detail =
                format!("{request:?} is answered with {report:?}, not {outcome:?}, {lost_bytes} B lost");
            self.found(Finding::Administration, detail);
        }
        if *accepts_loss && is_kept {
            mark!("run: loss accepted");
            self.kept.remove(&lane);
        }
    }
}
