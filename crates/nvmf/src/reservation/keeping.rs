//! Reservations of a subsystem's namespaces, and which changes of them are on their way to where they outlive a power loss.
//!
//! A change counts at once for who may do what. A command that made one is answered when it is durable. One change of a namespace is on
//! its way at a time; those that come meanwhile go together. If a change cannot be made durable, all since the last durable one are undone.

use super::Reservation;
use super::record::{KeepReservation, KeptReservation};
use diecut_namespace::contract::NamespaceId;
use diecut_units::mutant;
use std::collections::BTreeMap;

/// Changes of a namespace that are on their way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Keeping {
    nsid: u32,
    /// What is durable.
    safe: Reservation,
    /// What is on its way, and the number of the last change in it.
    written: Reservation,
    version: u64,
    /// The last change since.
    next: Option<u64>,
    /// The namespace is not shown any more.
    is_gone: bool,
}

/// What became of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Changes up to this number are over.
    pub(crate) version: u64,
    /// They are durable, else they were undone.
    pub(crate) is_kept: bool,
    /// What is to be made durable next.
    pub(crate) next: Option<KeepReservation>,
}

/// See the module. Namespaces that nobody ever registered with are not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reservations {
    all: BTreeMap<u32, Reservation>,
    keeping: BTreeMap<NamespaceId, Keeping>,
    /// The last change that had to be durable.
    version: u64,
}

impl Reservations {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn get(&self, nsid: u32) -> Option<&Reservation> {
        self.all.get(&nsid)
    }

    fn put(&mut self, nsid: u32, one: Reservation) {
        match one.is_empty() {
            true => drop(self.all.remove(&nsid)),
            false => drop(self.all.insert(nsid, one)),
        }
    }

    /// What a catalog had of a namespace. Nothing happens if something is known of it: that is newer.
    pub(crate) fn restore(&mut self, nsid: u32, namespace: NamespaceId, one: Reservation) {
        if !self.all.contains_key(&nsid) && !self.keeping.contains_key(&namespace) {
            self.put(nsid, one);
        }
    }

    /// Changes the reservation of a namespace. The number of the change, if it is to be durable before it is answered; and what is to be
    /// made durable now.
    pub(crate) fn change(
        &mut self,
        nsid: u32,
        namespace: NamespaceId,
        next: Reservation,
    ) -> (Option<u64>, Option<KeepReservation>) {
        let before = self.all.get(&nsid).cloned().unwrap_or_default();
        let is_change = before != next;
        let persists = before.persists || next.persists;
        self.put(nsid, next.clone());
        if let Some(keeping) = self.keeping.get_mut(&namespace) {
            keeping.is_gone = false;
            // What changes nothing relies on what others changed.
            let version = match (is_change, keeping.next) {
                (false, next) => next.unwrap_or(keeping.version),
                (true, _) => {
                    self.version += 1;
                    *keeping.next.insert(self.version)
                }
            };
            assert!(version >= keeping.version, "I-T21: a change comes after those before it");
            let is_first = mutant!("nvmf: changes that come meanwhile are answered with the first");
            return (Some(if is_first { keeping.version } else { version }), None);
        }
        if !persists || !is_change || mutant!("nvmf: reservations are answered before they are durable") {
            return (None, None);
        }
        self.version += 1;
        let version = self.version;
        let record = next.record();
        let keeping = Keeping { nsid, safe: before, written: next, version, next: None, is_gone: false };
        let before = self.keeping.insert(namespace, keeping);
        assert!(before.is_none(), "I-T21: one change of a namespace is on its way at a time");
        (Some(version), Some(KeepReservation { namespace, version, record }))
    }

    /// A change is durable, or could not be made so.
    pub(crate) fn kept(&mut self, kept: &KeptReservation) -> Option<Outcome> {
        let KeptReservation { namespace, version, is_kept } = *kept;
        let keeping = self.keeping.get_mut(&namespace).filter(|one| one.version == version)?;
        let last = keeping.next.unwrap_or(version);
        assert!(version <= last && last <= self.version, "I-T21: a change comes after those before it");
        if keeping.is_gone {
            self.keeping.remove(&namespace);
            return Some(Outcome { version: last, is_kept, next: None });
        }
        if !is_kept {
            let Keeping { nsid, safe, .. } = self.keeping.remove(&namespace).expect("just found");
            self.put(nsid, safe);
            return Some(Outcome { version: last, is_kept, next: None });
        }
        let Some(next) = keeping.next.take() else {
            self.keeping.remove(&namespace);
            return Some(Outcome { version, is_kept, next: None });
        };
        let current = self.all.get(&keeping.nsid).cloned().unwrap_or_default();
        let record = current.record();
        keeping.safe = std::mem::replace(&mut keeping.written, current);
        keeping.version = next;
        let next = KeepReservation { namespace, version: next, record };
        Some(Outcome { version, is_kept, next: Some(next) })
    }

    /// What is on its way is asked for again, with all that came since: its answers went to another shard.
    pub(crate) fn keep_again(&mut self) -> Vec<KeepReservation> {
        let all = &self.all;
        let again = self.keeping.iter_mut().map(|(namespace, keeping)| {
            keeping.version = keeping.next.take().unwrap_or(keeping.version);
            let shown = if keeping.is_gone { None } else { all.get(&keeping.nsid) };
            keeping.written = shown.cloned().unwrap_or_default();
            let record = keeping.written.record();
            assert!(keeping.version > 0, "I-T21: changes are numbered from 1");
            KeepReservation { namespace: *namespace, version: keeping.version, record }
        });
        again.collect()
    }

    /// These NSIDs show other namespaces than before, or none: what is another namespace is nobody's.
    pub(crate) fn forget(&mut self, nsids: &[u32]) {
        self.all.retain(|nsid, _| !nsids.contains(nsid));
        for keeping in self.keeping.values_mut().filter(|one| nsids.contains(&one.nsid)) {
            keeping.is_gone = true;
            (keeping.safe, keeping.written) = Default::default();
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const NSID: u32 = 1;
    const HERE: NamespaceId = NamespaceId(7);

    /// What the catalog would have after these changes, by number.
    #[derive(Default)]
    struct World {
        reservations: Reservations,
        asked: Option<KeepReservation>,
    }

    impl World {
        fn change(&mut self, change: impl FnOnce(&mut Reservation)) -> Option<u64> {
            let mut one = self.reservations.get(NSID).cloned().unwrap_or_default();
            change(&mut one);
            let (version, keep) = self.reservations.change(NSID, HERE, one);
            if let Some(keep) = keep {
                assert!(self.asked.replace(keep).is_none(), "one change is on its way at a time");
            }
            version
        }
        fn answer(&mut self, is_kept: bool) -> Option<Outcome> {
            let KeepReservation { namespace, version, .. } = self.asked.take().expect("asked");
            let outcome = self.reservations.kept(&KeptReservation { namespace, version, is_kept })?;
            self.asked.clone_from(&outcome.next);
            Some(outcome)
        }
        fn key(&self) -> Option<u64> {
            self.reservations.get(NSID)?.registrants.get(&[1; 16]).copied()
        }
    }

    fn registers(key: u64) -> impl FnOnce(&mut Reservation) {
        move |one| {
            one.registrants.insert([1; 16], key);
            one.persists = true;
        }
    }

    #[test]
    fn changes_that_come_meanwhile_go_together() {
        let mut world = World::default();
        assert_eq!(world.change(|one| one.generation = 5), None, "volatile");
        assert_eq!(world.change(registers(6)), Some(1));
        assert_eq!(world.change(registers(7)), Some(2));
        assert_eq!(world.change(registers(8)), Some(3));
        assert_eq!(world.change(|_| {}), Some(3), "who changes nothing relies on the last change");
        assert_eq!(world.asked.as_ref().unwrap().record.as_ref().unwrap().registrants, [([1; 16], 6)]);
        let outcome = world.answer(true).unwrap();
        assert_eq!((outcome.version, outcome.is_kept), (1, true));
        assert_eq!(world.asked.as_ref().unwrap().record.as_ref().unwrap().registrants, [([1; 16], 8)]);
        let outcome = world.answer(true).unwrap();
        assert_eq!(outcome, Outcome { version: 3, is_kept: true, next: None });
        assert_eq!(world.change(|_| {}), None);
        assert_eq!(
            world.change(|one| one.persists = false),
            Some(4),
            "that it does not persist is durable, too"
        );
        assert_eq!(world.asked.as_ref().unwrap().record, None);
        world.answer(true).unwrap();
        assert_eq!(world.change(|one| one.registrants.clear()), None);
    }

    #[test]
    fn what_cannot_be_kept_is_undone() {
        let mut world = World::default();
        world.change(registers(6));
        world.answer(true).unwrap();
        assert_eq!(world.change(registers(7)), Some(2));
        assert_eq!(world.change(registers(8)), Some(3));
        let outcome = world.answer(false).unwrap();
        assert_eq!(outcome, Outcome { version: 3, is_kept: false, next: None });
        assert_eq!(world.key(), Some(6));
        // The second of two fails: the first one stays.
        world.change(registers(7));
        world.change(registers(8));
        assert!(world.answer(true).unwrap().is_kept);
        assert!(!world.answer(false).unwrap().is_kept);
        assert_eq!(world.key(), Some(7));
    }

    #[test]
    fn what_is_not_shown_any_more_is_nobodys() {
        let mut world = World::default();
        world.change(registers(6));
        world.change(registers(7));
        world.reservations.forget(&[NSID]);
        let outcome = world.answer(true).unwrap();
        assert_eq!((outcome.version, outcome.next, world.key()), (2, None, None));
        // It is shown again before the answer comes.
        world.change(registers(6));
        world.reservations.forget(&[NSID]);
        assert_eq!(world.change(registers(9)), Some(4));
        let outcome = world.answer(true).unwrap();
        assert_eq!(outcome.next.unwrap().record.unwrap().registrants, [([1; 16], 9)]);
    }

    #[test]
    fn another_shard_asks_again_for_all_that_came() {
        let mut world = World::default();
        world.change(registers(6));
        world.change(registers(7));
        let mut elsewhere = World { reservations: world.reservations.clone(), asked: None };
        let again = elsewhere.reservations.keep_again();
        assert_eq!((again.len(), again[0].version), (1, 2));
        assert_eq!(again[0].record.as_ref().unwrap().registrants, [([1; 16], 7)]);
        let stale = KeptReservation { namespace: HERE, version: 1, is_kept: true };
        assert_eq!(elsewhere.reservations.kept(&stale), None);
        elsewhere.asked = again.into_iter().next();
        assert_eq!(elsewhere.answer(true).unwrap().version, 2);
    }

    #[test]
    fn what_was_kept_comes_back_and_nothing_newer_is_lost() {
        let mut world = World::default();
        world.change(registers(6));
        let record = world.asked.clone().unwrap().record.unwrap();
        let mut later = Reservations::default();
        later.restore(NSID, HERE, Reservation::of_record(&record));
        assert_eq!(later.get(NSID), world.reservations.get(NSID));
        world.change(registers(7));
        world.reservations.restore(NSID, HERE, Reservation::of_record(&record));
        assert_eq!(world.key(), Some(7));
    }
}
