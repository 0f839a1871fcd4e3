//! The end of a run: stores lose all their volumes, the server goes several times in a row with no write between, and new
//! volumes come to the same stores.

use super::{Range, Runner};
use crate::administration::Change;
use crate::plan::{Action, Lane, Restart};
use crate::run::administrator::Sight;
use crate::tag::VolumeNumber;
use diecut_units::{Span, mark};

/// IUs of each write to a new volume.
const WRITE_IUS: u64 = 16;

impl Runner<'_> {
    /// All of it, as far as the plan has it.
    pub(super) fn empty_and_restart(&mut self) {
        let Some(aftermath) = self.plan.aftermath.clone() else { return };
        for &lane in &aftermath.emptied {
            self.delete_volumes(lane);
        }
        self.settle();
        let emptied: Vec<Lane> = aftermath.emptied.into_iter().filter(|lane| self.is_empty(*lane)).collect();
        self.restart_in_a_row(&aftermath.restarts, !emptied.is_empty());
        for &volume in &aftermath.refilled {
            if emptied.contains(&self.plan.owner(volume)) {
                self.create_and_write(volume);
            }
        }
        self.settle();
        self.restart_in_a_row(&aftermath.restarts_of_refilled, false);
    }

    fn delete_volumes(&mut self, lane: Lane) {
        for volume in &self.plan.tenants[usize::from(lane.0)].volumes {
            if self.sight(lane, volume.number) == Sight::Yes
                && let Some(administrator) = &mut self.administrator
            {
                administrator.ask(Change::Detach(volume.number));
                administrator.ask(Change::DeleteVolume(volume.number));
            }
        }
    }

    /// Whether the vSSD of a lane has no volume.
    fn is_empty(&self, lane: Lane) -> bool {
        self.administrator.as_ref().is_some_and(|one| one.has_no_volume(lane))
    }

    /// The server goes and comes, again and again; at last everything is read.
    pub(super) fn restart_in_a_row(&mut self, restarts: &[Restart], is_empty: bool) {
        for (number, restart) in restarts.iter().enumerate() {
            self.until = Some(self.now + Span(restart.after_ns));
            self.drive();
            self.until = None;
            if self.stop {
                return;
            }
            if is_empty && number > 0 {
                mark!("run: empty store restarted");
            }
            self.crash(restart.crash);
        }
        self.settle();
    }

    fn create_and_write(&mut self, volume: VolumeNumber) {
        let Some(administrator) = &mut self.administrator else { return };
        administrator.ask(Change::CreateVolume(volume));
        administrator.ask(Change::Attach(volume));
        let iu_count = self.plan.volume(volume).iu_count;
        let steps = &mut self.lanes[usize::from(self.plan.owner(volume).0)].steps;
        let mut first = 0;
        while first < iu_count {
            let range = Range { volume, first, count: WRITE_IUS.min(iu_count - first) as u32 };
            steps.push_back(Action::Write { range, fua: false });
            first += u64::from(range.count);
        }
        steps.push_back(Action::Drain);
        steps.push_back(Action::Flush { volume });
    }

    /// Plays until everything is answered and at rest, and hosts know what there is.
    pub(super) fn settle(&mut self) {
        self.drive();
        self.come_to_rest();
        if !self.stop {
            self.system.check_invariants();
            self.check_known_namespaces();
        }
    }
}
