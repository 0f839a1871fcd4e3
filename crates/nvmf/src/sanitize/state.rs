//! How far the sanitize operation of a subsystem is: what is durable of it, and what goes on.

use super::record::{KeepSanitize, KeptSanitize, SanitizeRecord, SanitizeState};
use super::work::{Went, Work};
use crate::config::SubsystemConfig;
use diecut_namespace::contract::{NamespaceError, NamespaceId, NamespaceOperation, ZoneOutcome};
use diecut_nvme::sanitize::{Sanitize, SanitizeLog, SanitizeOutcome};
use diecut_nvme::{QualifiedName, Status};
use diecut_units::mutant;

/// What goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Rests,
    /// This is being made durable, and counts when it is.
    Keeps(SanitizeRecord),
    /// Namespaces are cleared and purged.
    Works(Work),
}

/// What came of an answer to [`KeepSanitize`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Namespaces have something to do.
    Begins,
    /// It is over, well or not: hosts are told.
    Ends,
    /// Nothing that hosts are told of.
    Rests,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sanitizing {
    /// What counts of the most recent one.
    last: Option<SanitizeRecord>,
    stage: Stage,
    /// Changes that were to be durable.
    version: u64,
    /// Nothing was written since one was completed.
    is_erased: bool,
    /// A host wrote since then, and that is to be durable.
    is_to_be_marked: bool,
    /// What commands that are not let through are told.
    refusal: Option<Status>,
}

impl Sanitizing {
    /// What commands are told that are not let through; nothing while all are.
    #[inline]
    pub(crate) fn refusal(&self) -> Option<Status> {
        self.refusal
    }

    /// A host writes. Whether that is to be made durable: it is the first one since all was erased.
    #[inline]
    pub(crate) fn note_write(&mut self) -> bool {
        let is_first = std::mem::replace(&mut self.is_erased, false);
        self.is_to_be_marked |= is_first;
        self.is_to_be_marked
    }

    /// What is to be durable because a host wrote; nothing while something else is being made so.
    pub(super) fn mark_of_write(&mut self) -> Option<SanitizeRecord> {
        if self.is_keeping() || !std::mem::take(&mut self.is_to_be_marked) {
            return None;
        }
        let last = self.last.expect("I-T22: what was erased was sanitized");
        Some(SanitizeRecord { is_erased: false, ..last })
    }

    /// Whether a write is to be made durable as such.
    pub(super) fn is_to_be_marked(&self) -> bool {
        self.is_to_be_marked
    }

    /// Whether there ever was one.
    pub(crate) fn is_known(&self) -> bool {
        self.last.is_some()
    }

    /// Whether one goes on, with its end not durable.
    pub(crate) fn goes_on(&self) -> bool {
        use SanitizeState::{Completed, Failed, InProgress};
        match &self.stage {
            Stage::Rests => false,
            Stage::Keeps(_) if self.is_marking() => false,
            Stage::Keeps(next) => matches!(next.state, InProgress | Completed | Failed),
            Stage::Works(_) => true,
        }
    }

    /// Whether it is being made durable that a host wrote: for all but the catalog that is over, and another change may overtake it.
    pub(super) fn is_marking(&self) -> bool {
        matches!(self.stage, Stage::Keeps(next) if next.state == SanitizeState::Completed && !next.is_erased)
    }

    /// Whether a change is being made durable.
    pub(super) fn is_keeping(&self) -> bool {
        matches!(self.stage, Stage::Keeps(_))
    }

    /// The failure that was not left, by the command that began what failed.
    pub(super) fn failure(&self) -> Option<Sanitize> {
        let last = self.last.filter(|last| last.state == SanitizeState::Failed)?;
        Some(Sanitize::of_dword(last.cdw10))
    }

    /// Whether a namespace has a command of it.
    pub(crate) fn is_under_way(&self) -> bool {
        matches!(&self.stage, Stage::Works(work) if work.is_under_way())
    }

    /// Whether namespaces have something to do, and have none of it.
    pub(super) fn has_work(&self) -> bool {
        matches!(&self.stage, Stage::Works(work) if !work.is_under_way())
    }

    fn settle(&mut self) {
        let failed = Status::SANITIZE_FAILED.do_not_retry();
        self.refusal = match (self.goes_on(), self.failure()) {
            (true, _) => Some(Status::SANITIZE_IN_PROGRESS),
            (false, Some(_)) => Some(failed),
            (false, None) => None,
        };
    }

    /// This is to be durable.
    ///
    /// # Panics
    /// If something else is being made durable.
    pub(super) fn keep(&mut self, subsystem: &QualifiedName, record: SanitizeRecord) -> KeepSanitize {
        assert!(
            !self.is_keeping() || self.is_marking(),
            "I-T23: one change of a sanitize operation becomes durable at a time"
        );
        assert!(!self.is_under_way(), "I-T22: what ends has nothing in a namespace");
        self.version += 1;
        self.stage = Stage::Keeps(record);
        self.settle();
        KeepSanitize { subsystem: subsystem.clone(), version: self.version, record }
    }

    /// What is on its way is asked for again: its answer went to another shard.
    pub(crate) fn keep_again(&self, subsystem: &QualifiedName) -> Option<KeepSanitize> {
        let Stage::Keeps(record) = self.stage else { return None };
        Some(KeepSanitize { subsystem: subsystem.clone(), version: self.version, record })
    }

    /// A change is durable, or could not be made so. Nothing if the answer is to an older one.
    pub(super) fn kept(&mut self, kept: &KeptSanitize, subsystem: &SubsystemConfig) -> Option<Turn> {
        let Stage::Keeps(next) = self.stage else { return None };
        assert!(kept.version <= self.version, "I-T23: what is durable was asked for");
        if kept.version != self.version {
            return None;
        }
        self.stage = Stage::Rests;
        let turn = match (next.state, kept.is_kept) {
            (SanitizeState::InProgress, true) => {
                self.last = Some(next);
                (self.is_erased, self.is_to_be_marked) = (false, false);
                self.stage = Stage::Works(Work::new(subsystem));
                Turn::Begins
            }
            (SanitizeState::Completed, is_kept) if !next.is_erased => {
                // What could not be made durable is tried again with the next write.
                self.is_to_be_marked |= !is_kept;
                self.last = Some(next);
                Turn::Rests
            }
            (SanitizeState::Completed, true) => {
                self.last = Some(next);
                self.is_erased = true;
                Turn::Ends
            }
            // It would begin anew after a restart, so no host may write before that.
            (SanitizeState::Completed, false) | (SanitizeState::Failed, _) => {
                self.last = Some(SanitizeRecord { state: SanitizeState::Failed, is_erased: false, ..next });
                Turn::Ends
            }
            (SanitizeState::FailureLeft, true) => {
                self.last = Some(next);
                Turn::Rests
            }
            (SanitizeState::InProgress | SanitizeState::FailureLeft, false) => Turn::Rests,
        };
        self.settle();
        Some(turn)
    }

    /// What a catalog had. Nothing happens if something is known: that is newer. Says whether namespaces have something to do.
    pub(super) fn restore(&mut self, record: SanitizeRecord, subsystem: &SubsystemConfig) -> bool {
        if self.last.is_some() || self.stage != Stage::Rests {
            return false;
        }
        self.last = Some(record);
        self.is_erased = record.state == SanitizeState::Completed && record.is_erased;
        let goes_on = record.state == SanitizeState::InProgress;
        if goes_on && !mutant!("nvmf: a sanitize is not gone on with after a restart") {
            self.stage = Stage::Works(Work::new(subsystem));
        }
        self.settle();
        goes_on
    }

    /// Namespaces came, went or changed.
    pub(crate) fn namespaces_changed(&mut self, subsystem: &SubsystemConfig) {
        if let Stage::Works(work) = &mut self.stage
            && work.namespaces_changed()
        {
            *work = Work::new(subsystem);
        }
    }

    /// What a namespace is asked next; nothing, if all is done. Then that is to be made durable.
    ///
    /// # Panics
    /// If nothing goes on, or a command is under way.
    pub(super) fn next(&mut self) -> Option<(NamespaceId, NamespaceOperation)> {
        match &mut self.stage {
            Stage::Works(work) => work.next(),
            Stage::Rests | Stage::Keeps(_) => unreachable!("I-T22: namespaces are asked while it goes on"),
        }
    }

    /// A namespace answers. Says whether it goes on.
    ///
    /// # Panics
    /// If none was asked.
    pub(super) fn answered(
        &mut self,
        result: &Result<(), NamespaceError>,
        zones: Option<&ZoneOutcome>,
        subsystem: &SubsystemConfig,
    ) -> bool {
        let Stage::Works(work) = &mut self.stage else {
            unreachable!("I-T22: a namespace answers while it goes on")
        };
        match work.answered(result, zones) {
            Went::On => true,
            Went::Wrong => false,
            Went::Outdated => {
                *work = Work::new(subsystem);
                true
            }
        }
    }

    /// The most recent one, with this end.
    ///
    /// # Panics
    /// If there was none.
    pub(super) fn ended(&self, state: SanitizeState) -> SanitizeRecord {
        let last = self.last.expect("I-T22: what ends began");
        SanitizeRecord { state, is_erased: state == SanitizeState::Completed, ..last }
    }

    /// How far it is, and how much is done while it goes on.
    pub(super) fn status(&self) -> Option<(SanitizeState, Option<u16>)> {
        let goes_on = self.goes_on().then(|| (SanitizeState::InProgress, Some(self.page().sprog.get())));
        goes_on.or(self.last.map(|last| (last.state, None)))
    }

    /// What hosts read.
    pub(crate) fn page(&self) -> SanitizeLog {
        let cdw10 = match (&self.stage, self.last) {
            (Stage::Keeps(next), _) => next.cdw10,
            (_, last) => last.map_or(0, |last| last.cdw10),
        };
        let progress = match &self.stage {
            Stage::Works(work) => work.progress(),
            Stage::Keeps(SanitizeRecord { state: SanitizeState::InProgress, .. }) => 0,
            // All is done but the last word.
            _ => u16::MAX - 1,
        };
        if self.goes_on() {
            return SanitizeLog::new(SanitizeOutcome::InProgress, Some(progress), false, cdw10);
        }
        let outcome = match self.last.map(|last| last.state) {
            None => SanitizeOutcome::Never,
            Some(SanitizeState::Completed) => SanitizeOutcome::Completed,
            // A restored one that goes on has its work.
            Some(SanitizeState::InProgress | SanitizeState::Failed | SanitizeState::FailureLeft) => {
                SanitizeOutcome::Failed
            }
        };
        SanitizeLog::new(outcome, None, self.is_erased, cdw10)
    }
}
