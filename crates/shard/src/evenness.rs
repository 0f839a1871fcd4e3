//! What the first shard of a server keeps of even wear over all of them; [`crate::leveling`] does what is due.

use crate::lanes::Lane;
use crate::peer::WearReport;
use diecut_vssd::WearNews;
use std::collections::BTreeSet;

/// A group that is on another shard for an exchange.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Visit {
    /// What lies on this lane goes home afterwards,
    pub lane: Lane,
    /// if it is tied to nothing outside of these.
    pub lanes: BTreeSet<Lane>,
    pub home: u16,
    pub host: u16,
    /// It could not go; it is asked again when something is erased.
    pub is_kept: bool,
}

/// What is being tried.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Attempt {
    Meet(Visit),
    GoHome(Visit),
}

/// Of the first shard; see the module.
#[derive(Default)]
pub(crate) struct Evenness {
    pub is_due: bool,
    /// Exchanges on other shards ended: they may have channels that nothing lies on any more.
    pub has_left_empty: bool,
    /// Exchanges that were ordered and did not end.
    pub under_way: Vec<[u32; 2]>,
    pub visits: Vec<Visit>,
    pub attempt: Option<Attempt>,
    pub reports: Vec<WearReport>,
    /// Those in force over the whole device, when something was looked at.
    pub thresholds_erases: Option<[u64; 2]>,
}

impl Evenness {
    /// Whether there is something to begin.
    pub fn has_work(&self) -> bool {
        self.is_due || self.are_channels_due() || self.next_home().is_some()
    }

    pub fn are_channels_due(&self) -> bool {
        self.has_left_empty && self.under_way.is_empty()
    }

    /// The visit that is over.
    pub fn next_home(&self) -> Option<usize> {
        let over = self.under_way.is_empty();
        self.visits.iter().position(|visit| over && !visit.is_kept)
    }

    pub fn heard_of(&mut self, news: WearNews) {
        match news {
            WearNews::Due => {
                self.is_due = true;
                self.visits.iter_mut().for_each(|visit| visit.is_kept = false);
            }
            WearNews::Begun(_) => {}
            WearNews::Finished(dies) | WearNews::Dropped(dies) => {
                self.under_way.retain(|other| *other != dies);
                self.is_due = true;
            }
        }
    }

    /// An administrator says where these lanes live.
    pub fn forget_visits(&mut self, lanes: &BTreeSet<Lane>) {
        self.visits.retain(|visit| !lanes.contains(&visit.lane));
    }
}
