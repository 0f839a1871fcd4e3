//! Reservations: which hosts of a subsystem may use a namespace that several of them reach. `state` has the rules; `reserving`
//! carries commands out.

mod keeping;
mod record;
mod state;

pub(crate) use keeping::Reservations;
pub use record::{KeepReservation, KeptReservation, ReservationRecord};
pub(crate) use state::{Access, Effects, HostId, Reservation};

use diecut_nvme::opcode::io as opcode;
use diecut_nvme::{Status, SubmissionEntry};
use diecut_units::mark;

/// Whether it is a command of reservations.
#[inline]
pub(crate) fn is_ours(code: u8) -> bool {
    matches!(
        code,
        opcode::RESERVATION_REGISTER
            | opcode::RESERVATION_REPORT
            | opcode::RESERVATION_ACQUIRE
            | opcode::RESERVATION_RELEASE
    )
}

/// What a command of a namespace does to it. Those that are not known go by the direction of their data.
fn access_of(code: u8) -> Access {
    match code {
        opcode::READ | opcode::COMPARE | opcode::VERIFY => Access::Read,
        code if code & 3 == 2 => Access::Read,
        _ => Access::Write,
    }
}

/// Refuses what a reservation does not let its host do.
#[inline]
pub(crate) fn check(all: &Reservations, host: &HostId, entry: &SubmissionEntry) -> Result<(), Status> {
    if all.is_empty() {
        return Ok(());
    }
    check_one(all, host, entry)
}

#[cold]
fn check_one(all: &Reservations, host: &HostId, entry: &SubmissionEntry) -> Result<(), Status> {
    let Some(one) = all.get(entry.nsid.get()) else { return Ok(()) };
    if is_ours(entry.opcode) || one.allows(host, access_of(entry.opcode)) {
        return Ok(());
    }
    mark!("nvmf: reservation conflict");
    Err(Status::RESERVATION_CONFLICT.do_not_retry())
}
