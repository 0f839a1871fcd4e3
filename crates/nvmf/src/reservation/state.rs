//! Who registered with a namespace and who holds it, and what each command makes of that (Base 2.0 section 8.19). No queue, no
//! controller: hosts are told apart by their identifiers.

use diecut_nvme::Status;
use diecut_nvme::reservation::{ReservationKind, notification};
use diecut_units::mutant;
use std::collections::BTreeMap;

/// Identifier of a host.
pub(crate) type HostId = [u8; 16];

const CONFLICT: Status = Status::RESERVATION_CONFLICT.do_not_retry();
const INVALID: Status = Status::INVALID_FIELD.do_not_retry();

/// Hosts that may be registered with a namespace. A choice: an identifier costs a host nothing, so what is kept of it needs a bound;
/// clusters that share a namespace have tens of hosts.
pub(crate) const REGISTRANTS_MAX: usize = 128;
/// The specification has no status for one registrant too many: nothing that the host sent is wrong.
const NO_PLACE: Status = Status::INTERNAL_ERROR.do_not_retry();

/// Registrations with a namespace, and its reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// Keys of those that registered.
    pub(crate) registrants: BTreeMap<HostId, u64>,
    pub(super) held: Option<Held>,
    /// GEN. It outlives registrations, or a host could take one count for another.
    pub(crate) generation: u32,
    /// PTPL: all of this outlives a power loss.
    pub(crate) persists: bool,
}

/// A reservation. One of all registrants is held by each of them, whoever took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) kind: ReservationKind,
    pub(super) by: HostId,
}

/// What follows from a command, besides the state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    /// Hosts that are to be told, and of what.
    pub(crate) told: Vec<(HostId, u8)>,
    /// Hosts whose registrations were preempted.
    pub(crate) preempted: Vec<HostId>,
}

/// What a command does to the namespace, as far as a reservation cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Reservation {
    /// Whether nothing is left to remember.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Reservation::default()
    }

    pub(crate) fn kind(&self) -> Option<ReservationKind> {
        self.held.map(|held| held.kind)
    }

    /// Whether a host holds the reservation.
    pub(crate) fn is_holder(&self, host: &HostId) -> bool {
        self.held.is_some_and(|held| match held.kind.is_of_all() {
            true => self.registrants.contains_key(host),
            false => held.by == *host,
        })
    }

    /// Whether a host may do this (NVM 1.0 figure 24, Base 2.0 figure 619).
    pub(crate) fn allows(&self, host: &HostId, access: Access) -> bool {
        let Some(held) = self.held else { return true };
        let has_rights = match held.kind.is_shared() {
            true => self.registrants.contains_key(host),
            false => held.by == *host,
        };
        has_rights
            || access == Access::Read && !held.kind.excludes_readers()
            || mutant!("nvmf: reservations let everyone in")
    }

    fn key_of(&self, host: &HostId) -> Result<u64, Status> {
        self.registrants.get(host).copied().ok_or(CONFLICT)
    }

    fn check_key(&self, host: &HostId, key: u64, ignores_key: bool) -> Result<(), Status> {
        let own = self.key_of(host)?;
        if own == key || ignores_key { Ok(()) } else { Err(CONFLICT) }
    }

    fn others(&self, host: &HostId, kind: u8) -> Vec<(HostId, u8)> {
        self.registrants.keys().filter(|other| *other != host).map(|other| (*other, kind)).collect()
    }

    fn count(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Registers a key.
    pub(crate) fn register(&mut self, host: HostId, key: u64) -> Result<Effects, Status> {
        if key == 0 {
            return Err(INVALID);
        }
        if self.registrants.get(&host).is_some_and(|own| *own != key) {
            return Err(CONFLICT);
        }
        if self.registrants.len() >= REGISTRANTS_MAX && !self.registrants.contains_key(&host) {
            return Err(NO_PLACE);
        }
        self.registrants.insert(host, key);
        self.count();
        Ok(Effects::default())
    }

    /// Replaces a key. Where the old one does not matter (IEKEY), whether there is one does not matter either (Base 2.1 section 8.1.22.3).
    pub(crate) fn replace(
        &mut self,
        host: HostId,
        current: u64,
        key: u64,
        ignores_key: bool,
    ) -> Result<Effects, Status> {
        if key == 0 {
            return Err(INVALID);
        }
        if !ignores_key {
            self.check_key(&host, current, false)?;
        }
        if self.registrants.len() >= REGISTRANTS_MAX && !self.registrants.contains_key(&host) {
            return Err(NO_PLACE);
        }
        self.registrants.insert(host, key);
        self.count();
        Ok(Effects::default())
    }

    /// Takes a registration back, and the reservation with it where its holder goes.
    pub(crate) fn unregister(
        &mut self,
        host: HostId,
        current: u64,
        ignores_key: bool,
    ) -> Result<Effects, Status> {
        self.check_key(&host, current, ignores_key)?;
        self.registrants.remove(&host);
        self.count();
        let released = self.release_without_holder();
        let told = match released {
            Some(kind) if kind.is_shared() => self.others(&host, notification::RESERVATION_RELEASED),
            _ => Vec::new(),
        };
        Ok(Effects { told, preempted: Vec::new() })
    }

    /// Ends a reservation that nobody holds any more.
    fn release_without_holder(&mut self) -> Option<ReservationKind> {
        let held = self.held?;
        let is_held = match held.kind.is_of_all() {
            true => !self.registrants.is_empty(),
            false => self.registrants.contains_key(&held.by),
        };
        if is_held {
            return None;
        }
        assert!(!self.registrants.contains_key(&held.by), "I-T16: who holds a reservation is registered");
        self.held = None;
        Some(held.kind)
    }

    /// Acquires the reservation.
    pub(crate) fn acquire(
        &mut self,
        host: HostId,
        current: u64,
        kind: ReservationKind,
    ) -> Result<Effects, Status> {
        self.check_key(&host, current, false)?;
        match self.held {
            None => self.held = Some(Held { kind, by: host }),
            Some(held) if held.kind == kind && self.is_holder(&host) => {}
            Some(_) => return Err(CONFLICT),
        }
        Ok(Effects::default())
    }

    /// Takes registrations of a key away, and the reservation where it was that key's.
    pub(crate) fn preempt(
        &mut self,
        host: HostId,
        current: u64,
        key: u64,
        kind: ReservationKind,
    ) -> Result<Effects, Status> {
        self.check_key(&host, current, false)?;
        let all = self.held.is_some_and(|held| held.kind.is_of_all()) && key == 0;
        if key == 0 && !all {
            return Err(INVALID);
        }
        let is_meant = |own: u64| all || own == key;
        // A host can preempt itself: it changes the kind and stays registered.
        let takes_over = self.held.is_some_and(|held| match held.kind.is_of_all() {
            true => key == 0,
            false => self.registrants.get(&held.by) == Some(&key),
        });
        if !self.registrants.values().any(|own| is_meant(*own)) {
            return Err(CONFLICT);
        }
        let meant = self.registrants.iter().filter(|(other, own)| **other != host && is_meant(**own));
        let preempted: Vec<HostId> = meant.map(|(other, _)| *other).collect();
        let before = self.held;
        for other in &preempted {
            self.registrants.remove(other);
        }
        if takes_over {
            self.held = Some(Held { kind, by: host });
        }
        self.count();
        let mut told: Vec<_> =
            preempted.iter().map(|other| (*other, notification::REGISTRATION_PREEMPTED)).collect();
        if let Some(held) = before
            && takes_over
            && held.kind != kind
            && held.kind.is_shared()
        {
            told.extend(self.others(&host, notification::RESERVATION_RELEASED));
        }
        self.check();
        Ok(Effects { told, preempted })
    }

    /// # Panics
    /// If who holds the reservation is not registered.
    pub(super) fn check(&self) {
        let is_registered = |held: Held| match held.kind.is_of_all() {
            true => !self.registrants.is_empty(),
            false => self.registrants.contains_key(&held.by),
        };
        assert!(self.held.is_none_or(is_registered), "I-T16: who holds a reservation is registered");
    }

    /// Gives the reservation back.
    pub(crate) fn release(
        &mut self,
        host: HostId,
        current: u64,
        kind: ReservationKind,
    ) -> Result<Effects, Status> {
        self.check_key(&host, current, false)?;
        let Some(held) = self.held.filter(|_| self.is_holder(&host)) else { return Ok(Effects::default()) };
        if held.kind != kind {
            return Err(INVALID);
        }
        self.held = None;
        let told = match held.kind.is_shared() {
            true => self.others(&host, notification::RESERVATION_RELEASED),
            false => Vec::new(),
        };
        Ok(Effects { told, preempted: Vec::new() })
    }

    /// Ends the reservation and all registrations.
    pub(crate) fn clear(&mut self, host: HostId, current: u64) -> Result<Effects, Status> {
        self.check_key(&host, current, false)?;
        let told = self.others(&host, notification::RESERVATION_PREEMPTED);
        assert!(!told.iter().any(|(other, _)| *other == host), "I-T16: nobody is told of what it did itself");
        self.registrants.clear();
        self.held = None;
        self.count();
        Ok(Effects { told, preempted: Vec::new() })
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use ReservationKind::*;

    /// Goal: what is kept of registrants is bounded, and a place that becomes free is one.
    #[test]
    fn registrants_have_so_many_places() {
        let mut one = Reservation::default();
        for host in 0..REGISTRANTS_MAX as u64 {
            one.register(u128::from(host).to_le_bytes(), 1 + host).unwrap();
        }
        let late: HostId = [0xFF; 16];
        let before = one.clone();
        assert_eq!(one.register(late, 7), Err(NO_PLACE));
        assert_eq!(one.replace(late, 0, 7, true), Err(NO_PLACE));
        assert_eq!(one, before, "a refusal changes nothing");
        one.register([0; 16], 1).expect("who is registered may say so again");
        one.replace([0; 16], 1, 9, false).expect("a key can be replaced");
        one.unregister([0; 16], 9, false).unwrap();
        one.register(late, 7).expect("a place is free");
        assert_eq!(one.registrants.len(), REGISTRANTS_MAX);
    }

    const A: HostId = [1; 16];
    const B: HostId = [2; 16];
    const C: HostId = [3; 16];

    /// A and B are registered with keys 10 and 20, and A holds a reservation of this kind.
    fn held(kind: ReservationKind) -> Reservation {
        let mut reservation = Reservation::default();
        reservation.register(A, 10).unwrap();
        reservation.register(B, 20).unwrap();
        reservation.acquire(A, 10, kind).unwrap();
        reservation
    }

    /// The table of the specification: holder, registrant, other; each reading and writing.
    #[test]
    fn access_is_what_the_table_says() {
        let (r, w) = (Access::Read, Access::Write);
        for kind in ReservationKind::ALL {
            let reservation = held(kind);
            let rights = [A, B, C].map(|host| [r, w].map(|access| reservation.allows(&host, access)));
            let (all, reads, none) = ([true, true], [true, false], [false, false]);
            let expected = match kind {
                WriteExclusive => [all, reads, reads],
                ExclusiveAccess => [all, none, none],
                WriteExclusiveRegistrantsOnly | WriteExclusiveAllRegistrants => [all, all, reads],
                ExclusiveAccessRegistrantsOnly | ExclusiveAccessAllRegistrants => [all, all, none],
            };
            assert_eq!(rights, expected, "{kind:?}");
            let holders = [A, B, C].map(|host| reservation.is_holder(&host));
            assert_eq!(holders, [true, kind.is_of_all(), false], "{kind:?}");
        }
        let nobody = Reservation::default();
        assert!(nobody.allows(&C, Access::Write) && nobody.is_empty());
    }

    #[test]
    fn registrations_go_by_their_keys() {
        let mut one = Reservation::default();
        assert_eq!(one.register(A, 0), Err(INVALID));
        one.register(A, 10).unwrap();
        one.register(A, 10).unwrap();
        assert_eq!(one.register(A, 11), Err(CONFLICT));
        assert_eq!(one.replace(B, 10, 11, false), Err(CONFLICT), "not registered");
        one.replace(B, 0, 20, true).expect("that does not matter where the old key does not");
        one.unregister(B, 20, false).unwrap();
        assert_eq!(one.replace(A, 9, 11, false), Err(CONFLICT));
        one.replace(A, 9, 11, true).unwrap();
        one.replace(A, 11, 12, false).unwrap();
        assert_eq!(one.unregister(A, 11, false), Err(CONFLICT));
        assert_eq!(one.acquire(A, 11, WriteExclusive), Err(CONFLICT));
        assert_eq!(one.acquire(B, 0, WriteExclusive), Err(CONFLICT));
        one.unregister(A, 12, false).unwrap();
        assert!(one.registrants.is_empty());
        assert_eq!(one.generation, 7, "two registrations, three replacements, two that were taken back");
    }

    #[test]
    fn a_reservation_ends_with_its_holder() {
        for kind in ReservationKind::ALL {
            let mut one = held(kind);
            assert_eq!(one.acquire(A, 10, kind), Ok(Effects::default()), "{kind:?}: once more");
            let other = if kind == WriteExclusive { ExclusiveAccess } else { WriteExclusive };
            assert_eq!(one.acquire(A, 10, other), Err(CONFLICT), "{kind:?}");
            assert_eq!(one.acquire(B, 20, kind).is_ok(), kind.is_of_all(), "{kind:?}");
            let told = one.unregister(A, 10, false).unwrap().told;
            assert_eq!(one.kind(), kind.is_of_all().then_some(kind), "{kind:?}: B holds it, too");
            let expected = match kind.is_shared() && !kind.is_of_all() {
                true => vec![(B, notification::RESERVATION_RELEASED)],
                false => Vec::new(),
            };
            assert_eq!(told, expected, "{kind:?}");
            one.unregister(B, 20, false).unwrap();
            assert!(one.registrants.is_empty() && one.kind().is_none(), "{kind:?}");
        }
    }

    #[test]
    fn releases_are_the_holders() {
        for kind in ReservationKind::ALL {
            let mut one = held(kind);
            let other = if kind == WriteExclusive { ExclusiveAccess } else { WriteExclusive };
            assert_eq!(one.release(A, 10, other), Err(INVALID), "{kind:?}");
            assert_eq!(one.release(A, 11, kind), Err(CONFLICT), "{kind:?}");
            if !kind.is_of_all() {
                assert_eq!(one.release(B, 20, kind), Ok(Effects::default()), "{kind:?}: without effect");
                assert_eq!(one.kind(), Some(kind));
            }
            let told = one.release(A, 10, kind).unwrap().told;
            let expected = match kind.is_shared() {
                true => vec![(B, notification::RESERVATION_RELEASED)],
                false => Vec::new(),
            };
            assert_eq!((told, one.kind(), one.registrants.len()), (expected, None, 2), "{kind:?}");
            let mut one = held(kind);
            assert_eq!(one.clear(C, 10), Err(CONFLICT));
            let told = one.clear(B, 20).unwrap().told;
            assert_eq!(told, [(A, notification::RESERVATION_PREEMPTED)], "{kind:?}");
            assert!(one.registrants.is_empty() && one.kind().is_none());
        }
    }

    #[test]
    fn preempting_takes_what_the_key_had() {
        for kind in ReservationKind::ALL {
            for next in ReservationKind::ALL {
                let mut one = held(kind);
                one.register(C, 30).unwrap();
                assert_eq!(one.preempt(B, 21, 10, next), Err(CONFLICT), "wrong key");
                assert_eq!(one.preempt(B, 20, 99, next), Err(CONFLICT), "nobody has this key");
                let key = if kind.is_of_all() { 0 } else { 10 };
                assert_eq!(one.preempt(B, 20, 0, next).is_err(), !kind.is_of_all(), "{kind:?}");
                let mut one = held(kind);
                one.register(C, 30).unwrap();
                let effects = one.preempt(B, 20, key, next).unwrap();
                let preempted = if kind.is_of_all() { vec![A, C] } else { vec![A] };
                assert_eq!(effects.preempted, preempted, "{kind:?} {next:?}");
                assert!(one.is_holder(&B) && one.kind() == Some(next));
                let hears = kind.is_shared() && !kind.is_of_all() && kind != next;
                let is_told = effects.told.contains(&(C, notification::RESERVATION_RELEASED));
                assert_eq!(is_told, hears, "{kind:?} {next:?}");
                // Itself: another kind, and everybody stays.
                let mut one = held(kind);
                if !kind.is_of_all() {
                    assert!(one.preempt(A, 10, 10, next).unwrap().preempted.is_empty());
                    assert!(one.is_holder(&A) && one.kind() == Some(next) && one.registrants.len() == 2);
                }
            }
            // Another registrant than the holder: its registration goes, the reservation stays.
            let mut one = held(kind);
            one.register(C, 30).unwrap();
            let effects = one.preempt(B, 20, 30, ExclusiveAccess).unwrap();
            assert_eq!((effects.preempted, one.kind()), (vec![C], Some(kind)), "{kind:?}");
        }
        let mut one = Reservation::default();
        one.register(A, 10).unwrap();
        one.register(B, 20).unwrap();
        let effects = one.preempt(A, 10, 20, WriteExclusive).unwrap();
        assert_eq!(effects.told, [(B, notification::REGISTRATION_PREEMPTED)]);
        assert_eq!(one.kind(), None, "nothing was reserved, and nothing is");
    }

    #[test]
    #[should_panic = "table"]
    fn a_reservation_that_lets_everyone_in_is_noticed() {
        diecut_units::marks::plant_mutant(Some("nvmf: reservations let everyone in"));
        let outcome = std::panic::catch_unwind(access_is_what_the_table_says);
        diecut_units::marks::plant_mutant(None);
        assert!(outcome.is_ok(), "table");
    }
}
