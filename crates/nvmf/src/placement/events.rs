//! Events of placement: which of them are kept, and the last of them.
//!
//! What a host sets counts when it is durable. Events count at once; they are made durable a while later ([`super::keeping`]), all of them
//! together with what is set. One change is on its way at a time.

use super::record::{KeepPlacement, KeptPlacement, PlacementRecord};
use diecut_namespace::contract::{PLACEMENT_HANDLES_MAX, PlacementHandle};
use diecut_nvme::QualifiedName;
use diecut_nvme::fdp::{EVENTS_MAX, PlacementEvent, event_kind};
use diecut_units::{Time, mutant};
use std::collections::VecDeque;

/// Types of events that there can be here, in ascending order. Reclaim units are not changed for their age, resets leave handles alone, and
/// nothing tells a host where the cleaner moved its data.
pub(super) const KINDS: [u8; 2] =
    [event_kind::RECLAIM_UNIT_NOT_FULLY_WRITTEN, event_kind::INVALID_PLACEMENT_IDENTIFIER];

/// By handle: bit `n` stands for `KINDS[n]`.
type Enabled = [u8; PLACEMENT_HANDLES_MAX];

/// What came of an answer to [`KeepPlacement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Changes up to this number are over.
    pub version: u64,
    /// They are durable, else they were undone.
    pub is_kept: bool,
}

/// The events of an endurance group, all of them of hosts, and which types are kept for each reclaim unit handle: none, until a host
/// wants some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlacementLog {
    /// What counts.
    enabled: Enabled,
    /// What hosts want: it counts when it is durable.
    wanted: Enabled,
    /// What is on its way, and would count then.
    written: Option<Enabled>,
    /// The last change that was to be durable.
    version: u64,
    /// Oldest first.
    events: VecDeque<PlacementEvent>,
    /// Since when there are events that nobody was asked to make durable.
    unkept_since: Option<Time>,
    /// Something is known of it: what a catalog has is older.
    is_known: bool,
    /// What was told of media last.
    pub(crate) figures: super::PlacementFigures,
}

fn bit_of(kind: u8) -> Option<u8> {
    KINDS.iter().position(|one| *one == kind).map(|at| 1 << at)
}

impl PlacementLog {
    /// Whether events of a type are kept for a handle.
    pub(super) fn is_enabled(&self, handle: PlacementHandle, kind: u8) -> bool {
        let bits = self.enabled.get(usize::from(handle.0)).copied().unwrap_or(0);
        bit_of(kind).is_some_and(|bit| bits & bit != 0)
    }

    /// Events of these types are to be kept for a handle, or no more. The number of the change that makes it so; nothing if it is so. Nothing
    /// is changed if one of them cannot be.
    ///
    /// # Errors
    /// If there can be no event of a type, or the handle is none.
    pub(super) fn want(
        &mut self,
        handle: PlacementHandle,
        kinds: &[u8],
        enable: bool,
    ) -> Result<Option<u64>, ()> {
        let slot = self.wanted.get_mut(usize::from(handle.0)).ok_or(())?;
        let bits = kinds.iter().try_fold(0, |bits, kind| bit_of(*kind).map(|bit| bits | bit)).ok_or(())?;
        *slot = if enable { *slot | bits } else { *slot & !bits };
        self.is_known = true;
        if mutant!("nvmf: events are enabled before that is durable") {
            self.enabled = self.wanted;
        }
        Ok(match self.written {
            None if self.wanted == self.enabled => None,
            Some(written) if self.wanted == written => Some(self.version),
            _ => Some(self.version + 1),
        })
    }

    /// Keeps an event if its type is enabled for its handle; the oldest goes when there is no room. Whether it is the first one since somebody
    /// was asked to make them durable.
    pub(super) fn keep(&mut self, event: PlacementEvent, now: Time) -> bool {
        if !self.is_enabled(PlacementHandle(event.handle.get()), event.kind) {
            return false;
        }
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
        assert!(self.events.len() <= EVENTS_MAX, "I-T20: a log of events has as many as its page");
        let is_first = self.unkept_since.is_none();
        self.unkept_since.get_or_insert(now);
        is_first
    }

    /// What was kept, oldest first.
    pub(super) fn events(&self) -> impl Iterator<Item = &PlacementEvent> {
        self.events.iter()
    }

    /// Whether what hosts want is to be made durable, and nothing is on its way.
    pub(super) fn is_wanting(&self) -> bool {
        self.written.is_none() && self.wanted != self.enabled
    }

    /// Since when there is an event that is to be made durable, if nothing is on its way.
    pub(super) fn waits_since(&self) -> Option<Time> {
        self.unkept_since.filter(|_| self.written.is_none())
    }

    /// All of it is to be durable.
    ///
    /// # Panics
    /// If something is on its way.
    pub(super) fn write(&mut self, subsystem: &QualifiedName) -> KeepPlacement {
        assert!(self.written.is_none(), "I-T24: one change of a log of events becomes durable at a time");
        self.version += 1;
        self.ask(subsystem)
    }

    /// What is on its way is asked for again, with all that came since: its answer went to another shard.
    pub(crate) fn write_again(&mut self, subsystem: &QualifiedName) -> Option<KeepPlacement> {
        self.written.is_some().then(|| self.ask(subsystem))
    }

    fn ask(&mut self, subsystem: &QualifiedName) -> KeepPlacement {
        assert!(self.version > 0, "I-T24: changes are numbered from 1");
        self.written = Some(self.wanted);
        self.unkept_since = None;
        assert!(
            !self.is_wanting() && self.waits_since().is_none(),
            "I-T24: what is asked for waits for its answer"
        );
        KeepPlacement { subsystem: subsystem.clone(), version: self.version, record: self.record() }
    }

    /// The subsystem is taken away, or the server stops: what was not asked for yet.
    pub(crate) fn last_words(&mut self, subsystem: &QualifiedName) -> Option<KeepPlacement> {
        self.unkept_since.take()?;
        self.version += 1;
        let record = self.record();
        Some(KeepPlacement { subsystem: subsystem.clone(), version: self.version, record })
    }

    /// A change is durable, or could not be made so: then what hosts set since the last durable one is undone, and events stay, to be
    /// asked for with the next one. Nothing if the answer is to an older change.
    pub(super) fn kept(&mut self, kept: &KeptPlacement) -> Option<Outcome> {
        let written = self.written.filter(|_| kept.version == self.version)?;
        self.written = None;
        match kept.is_kept {
            true => self.enabled = written,
            false => self.wanted = self.enabled,
        }
        let is_all = self.wanted == self.enabled;
        assert!(is_all || kept.is_kept, "I-T24: what is undone leaves nothing to be written");
        Some(Outcome { version: self.version + u64::from(is_all), is_kept: kept.is_kept })
    }

    fn record(&self) -> PlacementRecord {
        let kinds_of = |bits: u8| -> Vec<u8> {
            KINDS.into_iter().filter(|kind| bit_of(*kind).is_some_and(|bit| bits & bit != 0)).collect()
        };
        let enabled = (0..).zip(self.wanted.map(kinds_of)).filter(|(_, kinds)| !kinds.is_empty());
        PlacementRecord { enabled: enabled.collect(), events: self.events.iter().copied().collect() }
    }

    /// What a catalog had. Nothing happens if something is known: that is newer. Says whether something was restored.
    ///
    /// # Panics
    /// If it has more events, or others, than there can be.
    pub(super) fn restore(&mut self, record: &PlacementRecord) -> bool {
        if self.is_known {
            return false;
        }
        self.is_known = true;
        assert!(self.written.is_none() && self.version == 0, "I-T24: who knows nothing asked for nothing");
        for (handle, kinds) in &record.enabled {
            let bits = kinds.iter().filter_map(|kind| bit_of(*kind)).fold(0, |bits, bit| bits | bit);
            self.enabled[usize::from(*handle)] = bits;
        }
        self.wanted = self.enabled;
        assert!(self.record().enabled == record.enabled, "I-T24: what was kept is what there can be");
        self.events = record.events.iter().copied().collect();
        assert!(self.events.len() <= EVENTS_MAX, "I-T20: a log of events has as many as its page");
        true
    }

    /// No namespace has handles any more: placement is off, and so all is forgotten. What is on its way may still be written, so that is
    /// to be written over.
    pub(crate) fn forget(&mut self, now: Time) {
        if !self.is_known {
            return;
        }
        (self.enabled, self.wanted) = Default::default();
        self.events.clear();
        self.unkept_since = self.written.as_mut().map(|written| {
            *written = Enabled::default();
            now
        });
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const NOW: Time = Time(5);

    fn event(handle: u16, kind: u8, nsid: u32) -> PlacementEvent {
        PlacementEvent { kind, handle: handle.into(), nsid: nsid.into(), ..PlacementEvent::default() }
    }

    fn nqn() -> QualifiedName {
        QualifiedName::new("nqn.2026-11.example:x").unwrap()
    }

    /// A log and what the catalog would have of it.
    #[derive(Default)]
    struct World {
        log: PlacementLog,
        asked: Option<KeepPlacement>,
    }

    impl World {
        /// Handle 1.
        fn want(&mut self, kind: u8, enable: bool) -> Option<u64> {
            let version = self.log.want(PlacementHandle(1), &[kind], enable).unwrap();
            self.ask();
            version
        }

        fn ask(&mut self) {
            if self.log.is_wanting() {
                assert!(self.asked.replace(self.log.write(&nqn())).is_none(), "one is on its way at a time");
            }
        }

        fn answer(&mut self, is_kept: bool) -> Outcome {
            let kept = self.asked.take().expect("asked").kept();
            let outcome = self.log.kept(&KeptPlacement { is_kept, ..kept }).expect("awaited");
            self.ask();
            outcome
        }

        fn is_enabled(&self, kind: u8) -> bool {
            self.log.is_enabled(PlacementHandle(1), kind)
        }
    }

    #[test]
    fn what_is_wanted_is_kept_and_the_oldest_goes() {
        let [partly, invalid] = KINDS;
        let mut world = World::default();
        assert!(!world.log.keep(event(1, invalid, 1), NOW));
        assert_eq!(world.log.events().count(), 0, "nobody wanted it");
        assert_eq!(world.log.want(PlacementHandle(1), &[invalid, 0x80], true), Err(()));
        assert!(!world.log.is_wanting(), "nothing of a refused list is wanted");
        assert_eq!(world.log.want(PlacementHandle(16), &[invalid], true), Err(()));
        world.want(invalid, true);
        assert!(!world.log.keep(event(1, invalid, 1), NOW), "that is not durable");
        world.answer(true);
        world.log.keep(event(1, partly, 1), NOW);
        world.log.keep(event(0, invalid, 1), NOW);
        assert_eq!(world.log.waits_since(), None);
        assert!(world.log.keep(event(1, invalid, 0), NOW));
        for nsid in 1..70 {
            assert!(!world.log.keep(event(1, invalid, nsid), Time(9)), "it is not the first");
        }
        assert_eq!(world.log.waits_since(), Some(NOW));
        let kept: Vec<u32> = world.log.events().map(|event| event.nsid.get()).collect();
        assert_eq!(kept, (7..70).collect::<Vec<_>>());
    }

    #[test]
    fn changes_that_come_meanwhile_go_together() {
        let [partly, invalid] = KINDS;
        let mut world = World::default();
        assert_eq!(world.want(invalid, false), None, "it is so");
        assert_eq!(world.want(invalid, true), Some(1));
        assert_eq!(world.want(partly, true), Some(2));
        assert_eq!(world.want(invalid, false), Some(2));
        assert_eq!(world.answer(true), Outcome { version: 1, is_kept: true });
        assert!(world.is_enabled(invalid) && !world.is_enabled(partly));
        assert_eq!(world.asked.as_ref().unwrap().record.enabled, [(1, vec![partly])].into());
        assert_eq!(world.answer(true).version, 3, "nobody waits for a later one");
        assert!(!world.is_enabled(invalid) && world.is_enabled(partly));
        // There and back again while the first is on its way: nothing is left to do, and nobody waits.
        assert_eq!(world.want(invalid, true), Some(3));
        assert_eq!(world.want(partly, false), Some(4));
        assert_eq!(world.want(partly, true), Some(3));
        assert_eq!(world.answer(true), Outcome { version: 4, is_kept: true });
        assert!(world.asked.is_none());
    }

    #[test]
    fn what_cannot_be_kept_is_undone() {
        let [partly, invalid] = KINDS;
        let mut world = World::default();
        world.want(invalid, true);
        world.answer(true);
        assert!(world.log.keep(event(1, invalid, 7), NOW));
        assert_eq!((world.want(partly, true), world.want(invalid, false)), (Some(2), Some(3)));
        assert_eq!(world.asked.as_ref().unwrap().record.events.len(), 1, "events go along");
        assert_eq!(world.answer(false), Outcome { version: 3, is_kept: false });
        assert!(world.asked.is_none() && world.is_enabled(invalid) && !world.is_enabled(partly));
        assert_eq!(world.log.events().count(), 1, "they stay");
        assert_eq!(world.log.waits_since(), None, "and are asked for with the next one");
        assert!(world.log.keep(event(1, invalid, 8), NOW));
        assert_eq!(world.log.write(&nqn()).record.events.len(), 2);
    }

    #[test]
    fn what_was_kept_comes_back_and_nothing_newer_is_lost() {
        let [_, invalid] = KINDS;
        let mut world = World::default();
        world.want(invalid, true);
        world.answer(true);
        world.log.keep(event(1, invalid, 7), NOW);
        let last = world.log.last_words(&nqn()).unwrap();
        assert_eq!(world.log.last_words(&nqn()), None, "they are said once");
        let mut later = World::default();
        assert!(later.log.restore(&last.record));
        assert!(later.is_enabled(invalid));
        assert_eq!(later.log.events().count(), 1);
        assert_eq!(later.log.waits_since(), None, "it is durable");
        later.want(invalid, false);
        later.answer(true);
        assert!(!later.log.restore(&last.record) && !later.is_enabled(invalid));
    }

    #[test]
    fn another_shard_asks_again_for_all_that_came() {
        let [partly, invalid] = KINDS;
        let mut world = World::default();
        assert_eq!((world.want(invalid, true), world.want(partly, true)), (Some(1), Some(2)));
        let stale = world.asked.take().unwrap();
        let again = world.log.write_again(&nqn()).unwrap();
        assert_eq!((again.version, again.record.enabled), (1, [(1, vec![partly, invalid])].into()));
        assert_eq!(world.log.kept(&stale.kept()), Some(Outcome { version: 2, is_kept: true }));
        assert_eq!(world.log.write_again(&nqn()), None);
        assert_eq!(PlacementLog::default().kept(&stale.kept()), None, "it was not asked here");
    }

    #[test]
    fn where_placement_ends_all_is_forgotten() {
        let [partly, invalid] = KINDS;
        let mut world = World::default();
        world.want(invalid, true);
        world.answer(true);
        world.log.keep(event(1, invalid, 7), NOW);
        let mut quiet = world.log.clone();
        quiet.forget(NOW);
        assert!(quiet.record().is_empty() && quiet.waits_since().is_none());
        let record = world.log.record();
        assert!(!quiet.restore(&record), "what a catalog has is of before");
        // What is on its way does not count any more, and is written over.
        world.want(partly, true);
        world.log.forget(Time(9));
        assert_eq!(world.answer(true).version, 3);
        assert!(world.log.record().is_empty() && !world.is_enabled(invalid));
        assert_eq!(world.log.waits_since(), Some(Time(9)));
    }
}
