//! What outlives a power loss of a namespace's reservation, and who is asked to keep it.

use super::Reservation;
use super::state::Held;
use diecut_namespace::contract::NamespaceId;
use diecut_nvme::reservation::ReservationKind;

/// A reservation that persists through power loss, with all registrations (Base 2.0 section 8.19).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservationRecord {
    /// GEN.
    pub generation: u32,
    /// Host identifiers and keys, in the order of identifiers.
    pub registrants: Vec<([u8; 16], u64)>,
    /// The reservation's type, and who acquired it.
    pub held: Option<(ReservationKind, [u8; 16])>,
}

/// What the target asks to be made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepReservation {
    /// Whose reservation it is.
    pub namespace: NamespaceId,
    /// Which change of it; numbers of a namespace rise.
    pub version: u64,
    /// What is to outlive a power loss; nothing, if the reservation does not persist any more.
    pub record: Option<ReservationRecord>,
}

/// The answer to [`KeepReservation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptReservation {
    /// Whose reservation it is.
    pub namespace: NamespaceId,
    /// Which change of it.
    pub version: u64,
    /// It is durable. Else nothing of it will be found after a power loss.
    pub is_kept: bool,
}

impl KeepReservation {
    /// The answer of whoever keeps it.
    pub fn kept(&self) -> KeptReservation {
        KeptReservation { namespace: self.namespace, version: self.version, is_kept: true }
    }
}

impl Reservation {
    /// What is to outlive a power loss.
    pub(crate) fn record(&self) -> Option<ReservationRecord> {
        self.persists.then(|| ReservationRecord {
            generation: self.generation,
            registrants: self.registrants.iter().map(|(host, key)| (*host, *key)).collect(),
            held: self.held.map(|held| (held.kind, held.by)),
        })
    }

    /// What outlived one.
    ///
    /// # Panics
    /// If who holds it is not registered.
    pub(crate) fn of_record(record: &ReservationRecord) -> Reservation {
        let one = Reservation {
            registrants: record.registrants.iter().copied().collect(),
            held: record.held.map(|(kind, by)| Held { kind, by }),
            generation: record.generation,
            persists: true,
        };
        one.check();
        one
    }
}
