//! Hostile hosts beside those of the tenants, in the calm: the server starts with little memory for connections and few controllers,
//! hosts that keep to nothing take what they can, and honest hosts lose their connections, come again, and work. Their work is done
//! in time, what they read is right, and what the hostile ones held is given back.

use super::{Action, Range, Runner};
use crate::administration::Change;
use crate::oracle::Crash;
use crate::plan::{Lane, SiegeEnd};
use crate::run::administrator::Sight;
use diecut_units::{Span, mark};

/// The hostile hosts take what they can in this time.
const TAKING: Span = Span::from_millis(30);
/// Honest hosts connect again and do their work in this time, whatever others do: far less than their patience, and than the target's with
/// hosts that take nothing. Segments of a network that loses some are sent again after up to 800 ms, a few times in a row.
const WORK_TIME_MAX: Span = Span::from_secs(8);
/// Writes of each honest host, and their length: more than what a queue always has for itself.
const WRITES: u64 = 12;
const WRITE_IUS: u64 = 24;

impl Runner<'_> {
    /// All of it, if the plan has it.
    pub(super) fn besiege(&mut self) {
        let Some(siege) = self.plan.siege.clone() else { return };
        self.system.prepare_siege();
        self.crash(Crash::ProcessDeath);
        self.drive();
        let made = [
            Change::OpenToAll(siege.lane),
            Change::CreateVolume(siege.volume),
            Change::ShowToAll(siege.volume),
        ];
        if !self.ask_all(&made) {
            return;
        }
        mark!("run: siege");
        self.system.begin_siege(&siege, self.now);
        self.until = Some(self.now + TAKING);
        self.drive();
        self.until = None;
        if self.stop {
            return;
        }
        let end = self.now + WORK_TIME_MAX;
        self.must_end = Some(end);
        self.work_under_siege();
        self.drive();
        while !self.stop && !self.system.siege_is_fair() {
            self.until = Some(self.now + TAKING);
            self.drive();
        }
        (self.must_end, self.until) = (None, None);
        if self.stop {
            return;
        }
        self.system.check_invariants();
        match siege.end {
            SiegeEnd::HangUp => self.system.lift_siege(self.now),
            SiegeEnd::ThrownOut => {
                if !self.ask_all(&[Change::CloseToAll(siege.lane)]) {
                    return;
                }
                self.system.lift_siege(self.now);
            }
            SiegeEnd::Crash(crash) => self.crash(crash),
        }
        self.drive();
        if siege.end != SiegeEnd::ThrownOut && !self.ask_all(&[Change::CloseToAll(siege.lane)]) {
            return;
        }
        // Nothing of what the hostile hosts sent is there.
        self.ask_all(&[Change::Attach(siege.volume)]);
        self.read_everything();
        self.settle();
    }

    /// Has an administrator ask for all of it; whether the run goes on.
    fn ask_all(&mut self, changes: &[Change]) -> bool {
        let administrator = self.administrator.as_mut().expect("plans with a siege have administrators");
        changes.iter().for_each(|change| administrator.ask(*change));
        self.drive();
        !self.stop
    }

    /// Every honest host loses a connection, writes, and reads it again.
    fn work_under_siege(&mut self) {
        for (index, tenant) in self.plan.tenants.iter().enumerate() {
            let lane = Lane(index as u8);
            let Some(volume) = tenant.volumes.iter().find(|one| self.sight(lane, one.number) == Sight::Yes)
            else {
                continue;
            };
            let count = WRITE_IUS.min(volume.iu_count);
            let reach = volume.iu_count - count + 1;
            let range = |number: u64| Range {
                volume: volume.number,
                first: number * 37 % reach,
                count: count as u32,
            };
            let steps = &mut self.lanes[index].steps;
            steps.extend((0..WRITES).map(|number| Action::Write { range: range(number), fua: false }));
            steps.push_back(Action::Drain);
            steps.extend((0..WRITES).map(|number| Action::Read { range: range(number) }));
            self.lose_connection(lane);
        }
    }
}
