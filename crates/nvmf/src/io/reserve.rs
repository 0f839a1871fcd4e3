//! Commands of reservations: what data they have.

use super::Plan;
use diecut_nvme::opcode::io as opcode;
use diecut_nvme::reservation::{ReservationKeys, ReservationReport};
use diecut_nvme::{SglKind, Status, SubmissionEntry};

/// Data of Reservation Release: a key.
const RELEASE_SIZE_BYTES: usize = 8;

/// Checks a command of reservations before its data move.
pub(super) fn plan(entry: &SubmissionEntry, transfer_bytes_max: u32) -> Result<Plan, Status> {
    let from_host = |bytes: usize| Plan { from_host_bytes: bytes as u32, to_host_bytes: 0 };
    match entry.opcode {
        opcode::RESERVATION_RELEASE => {
            // Linux before 6.15 sends the structure of the other commands, which is twice as long.
            let sent = match entry.sgl.kind() {
                SglKind::InCapsule { length_bytes, .. } | SglKind::Transport { length_bytes } => length_bytes,
                SglKind::Other(_) => 0,
            };
            let is_longer = sent as usize == ReservationKeys::SIZE_BYTES;
            Ok(from_host(if is_longer { ReservationKeys::SIZE_BYTES } else { RELEASE_SIZE_BYTES }))
        }
        opcode::RESERVATION_REPORT => {
            let report = ReservationReport::decode(entry);
            // Hosts of fabrics have identifiers of 128 bits, which the short form has no place for.
            if !report.extended {
                return Err(Status::HOST_IDENTIFIER_INCONSISTENT.do_not_retry());
            }
            if report.length_bytes > u64::from(transfer_bytes_max) {
                return Err(Status::INVALID_FIELD.do_not_retry());
            }
            Ok(Plan { from_host_bytes: 0, to_host_bytes: report.length_bytes as u32 })
        }
        _ => Ok(from_host(ReservationKeys::SIZE_BYTES)),
    }
}
