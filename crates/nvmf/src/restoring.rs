//! What outlived a power loss is told to a target that begins.

use crate::event::Action;
use crate::placement::{self, PlacementRecord};
use crate::reservation::{Reservation, ReservationRecord};
use crate::sanitize::{self, SanitizeRecord};
use crate::target::Target;
use diecut_nvme::QualifiedName;
use diecut_units::{Time, mark};

/// Restores the reservation of a namespace. Nothing happens if there is no such namespace, or if something is known of its reservation: that
/// is newer.
///
/// # Panics
/// If who holds it is not registered.
pub fn restore_reservation(target: &mut Target, nqn: &QualifiedName, nsid: u32, record: &ReservationRecord) {
    let subsystems = &mut target.shared.subsystems;
    let Some(index) = subsystems.find(nqn) else { return };
    let subsystem = subsystems.get_mut(index);
    let Some(shown) = subsystem.config.namespaces.get(&nsid) else { return };
    subsystem.reservations.restore(nsid, shown.namespace, Reservation::of_record(record));
    mark!("nvmf: reservation restored");
}

/// Restores the most recent sanitize operation of a subsystem: one that was not over goes on. Nothing happens if there is no such subsystem, or
/// if something is known of it: that is newer.
pub fn restore_sanitize(
    target: &mut Target,
    nqn: &QualifiedName,
    record: SanitizeRecord,
    now: Time,
    actions: &mut Vec<Action>,
) {
    sanitize::restore(target, nqn, record, now, actions);
}

/// Restores events of placement of a subsystem, and which of them are kept. Nothing happens if there is no such subsystem, if none of its
/// namespaces has handles, or if something is known of its events: that is newer.
///
/// # Panics
/// If a handle cannot be, or there are more events than a log page holds.
pub fn restore_placement(target: &mut Target, nqn: &QualifiedName, record: &PlacementRecord) {
    placement::restore(target, nqn, record);
}
