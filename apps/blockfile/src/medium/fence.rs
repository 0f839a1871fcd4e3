//! A reservation keeps others from writing: whoever attaches last holds the zones, and who held them before can write no more.

use super::connection::{Connection, Errand};
use super::error::ZonesError;
use diecut_initiator::zoned::ZoneCommand;
use diecut_nvme::reservation::{
    ACQUIRE, PREEMPT, REGISTER, RELEASE, RegisteredController, ReservationCommand, ReservationKeys,
    ReservationKind, ReservationReport, ReservationStatus, UNREGISTER,
};
use diecut_nvme::{Status, SubmissionEntry, opcode::io as opcode};
use diecut_units::Buffer;
use zerocopy::{FromBytes, IntoBytes};

const KIND: u8 = ReservationKind::WriteExclusive as u8;
/// Controllers that a report has room for: more than a namespace has registrants.
const CONTROLLERS_MAX: usize = 256;

/// A reservation that this process holds.
pub(super) struct Fence {
    nsid: u32,
    key: u64,
}

fn command(nsid: u32, code: u8, action: u8, keys: ReservationKeys) -> ZoneCommand {
    let mut entry = SubmissionEntry { opcode: code, nsid: nsid.into(), ..SubmissionEntry::default() };
    ReservationCommand { action, ignores_key: false, kind: KIND, persistence: 0 }.encode(&mut entry);
    let bytes = keys.as_bytes();
    // Release has one key.
    let bytes = if code == opcode::RESERVATION_RELEASE { &bytes[..8] } else { bytes };
    ZoneCommand { entry, data: Some(Buffer::copy_from(bytes)), expected_bytes: 0 }
}

fn one(connection: &Connection, errand: Errand<'_>) -> Result<Status, ZonesError> {
    let statuses = connection.run(vec![errand]).map_err(|_| ZonesError::Gone)?;
    Ok(statuses[0])
}

impl Fence {
    /// Takes the namespace from whoever has it. `None` where it has no reservations.
    pub fn put_up(connection: &Connection, nsid: u32, key: u64) -> Result<Option<Fence>, ZonesError> {
        let ask = |code, action, current: u64, other: u64| {
            let keys = ReservationKeys { current: current.into(), other: other.into() };
            one(connection, Errand::of(command(nsid, code, action, keys)))
        };
        let failed = |what, status| ZonesError::Command { what, status };
        let status = ask(opcode::RESERVATION_REGISTER, REGISTER, 0, key)?;
        if status.same_code(Status::INVALID_OPCODE) {
            return Ok(None);
        }
        if !status.is_success() {
            return Err(failed("Reservation Register", status));
        }
        let mut status = ask(opcode::RESERVATION_ACQUIRE, ACQUIRE, key, 0)?;
        // Between the report and the preemption another one may come.
        for _ in 0..16 {
            if !status.same_code(Status::RESERVATION_CONFLICT) {
                break;
            }
            status = match holder(connection, nsid)? {
                Some(holder) => ask(opcode::RESERVATION_ACQUIRE, PREEMPT, key, holder)?,
                None => ask(opcode::RESERVATION_ACQUIRE, ACQUIRE, key, 0)?,
            };
        }
        if !status.is_success() {
            return Err(failed("Reservation Acquire", status));
        }
        Ok(Some(Fence { nsid, key }))
    }

    /// Gives it back. Who took it over meanwhile keeps it.
    pub fn take_down(&self, connection: &Connection) {
        let keys = ReservationKeys { current: self.key.into(), other: 0.into() };
        let ends = [(opcode::RESERVATION_RELEASE, RELEASE), (opcode::RESERVATION_REGISTER, UNREGISTER)];
        for (code, action) in ends {
            // If it cannot be said, the next one takes it over.
            let _ = one(connection, Errand::of(command(self.nsid, code, action, keys)));
        }
    }
}

/// The key of who holds the reservation.
fn holder(connection: &Connection, nsid: u32) -> Result<Option<u64>, ZonesError> {
    let (head, each) = (size_of::<ReservationStatus>(), size_of::<RegisteredController>());
    let mut report = vec![0; head + each * CONTROLLERS_MAX];
    let mut entry = SubmissionEntry {
        opcode: opcode::RESERVATION_REPORT,
        nsid: nsid.into(),
        ..SubmissionEntry::default()
    };
    let length_bytes = report.len() as u64;
    ReservationReport { length_bytes, extended: true }.encode(&mut entry);
    let expected_bytes = report.len() as u32;
    let status =
        one(connection, Errand::into(ZoneCommand { entry, data: None, expected_bytes }, &mut report))?;
    if !status.is_success() {
        return Err(ZonesError::Command { what: "Reservation Report", status });
    }
    let controllers = report[head..].chunks_exact(each);
    let found = controllers.filter_map(|bytes| RegisteredController::read_from_bytes(bytes).ok());
    Ok(found.into_iter().find(|one| one.rcsts & 1 != 0).map(|one| one.rkey.get()))
}
