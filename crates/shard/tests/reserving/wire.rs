//! Requests as commands, and what is answered to them.

use super::table::{Answer, Request, Table};
use diecut_nvme::feature::{SetFeatures, fid};
use diecut_nvme::io::LbaRange;
use diecut_nvme::reservation::*;
use diecut_nvme::{Status, SubmissionEntry, opcode};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of the largest report.
const REPORT_BYTES: u32 = 1024;

pub fn entry_of(request: Request) -> (SubmissionEntry, Option<Vec<u8>>, u32) {
    let mut command = ReservationCommand { action: 0, ignores_key: false, kind: 0, persistence: 0 };
    let io = |code: u8| SubmissionEntry { opcode: code, nsid: 1.into(), ..SubmissionEntry::default() };
    let (code, keys) = match request {
        Request::Register { key, cptpl } => {
            (command.action, command.persistence) = (REGISTER, cptpl);
            (opcode::io::RESERVATION_REGISTER, vec![0, key])
        }
        Request::Unregister { current, ignores_key } => {
            (command.action, command.ignores_key) = (UNREGISTER, ignores_key);
            (opcode::io::RESERVATION_REGISTER, vec![current, 0])
        }
        Request::Replace { current, key, ignores_key } => {
            (command.action, command.ignores_key) = (REPLACE, ignores_key);
            (opcode::io::RESERVATION_REGISTER, vec![current, key])
        }
        Request::Acquire { current, kind } => {
            (command.action, command.kind) = (ACQUIRE, kind);
            (opcode::io::RESERVATION_ACQUIRE, vec![current, 0])
        }
        Request::Preempt { action, current, key, kind } => {
            (command.action, command.kind) = (action, kind);
            (opcode::io::RESERVATION_ACQUIRE, vec![current, key])
        }
        Request::Release { current, kind } => {
            (command.action, command.kind) = (RELEASE, kind);
            (opcode::io::RESERVATION_RELEASE, vec![current])
        }
        Request::Clear { current } => {
            command.action = CLEAR;
            (opcode::io::RESERVATION_RELEASE, vec![current])
        }
        Request::SetPersistence(persists) => {
            let mut entry = io(opcode::admin::SET_FEATURES);
            let (feature, value) = (fid::RESERVATION_PERSISTENCE, persists.into());
            SetFeatures { feature, save: false, value }.encode(&mut entry);
            return (entry, None, 0);
        }
        Request::Read | Request::Write => {
            let is_write = request == Request::Write;
            let mut entry = io(if is_write { opcode::io::WRITE } else { opcode::io::READ });
            LbaRange::plain(5, 1).encode(&mut entry);
            return if is_write { (entry, Some(vec![7; 8]), 0) } else { (entry, None, 8) };
        }
        Request::Report => {
            let mut entry = io(opcode::io::RESERVATION_REPORT);
            let length_bytes = REPORT_BYTES.into();
            ReservationReport { length_bytes, extended: true }.encode(&mut entry);
            return (entry, None, REPORT_BYTES);
        }
    };
    let mut entry = io(code);
    command.encode(&mut entry);
    (entry, Some(keys.as_bytes().to_vec()), 0)
}

pub fn answer_of(request: Request, status: Status, data: &[u8]) -> Result<Answer, String> {
    let is = |code: Status| status.same_code(code);
    Ok(match request {
        Request::Report if status == Status::SUCCESS => Answer::Reported(table_of(data)?),
        // A command whose host was preempted was let in before.
        Request::Read | Request::Write if is(Status::ABORTED_BY_PREEMPTION) => Answer::Success,
        _ if status == Status::SUCCESS => Answer::Success,
        _ if is(Status::RESERVATION_CONFLICT) => Answer::Conflict,
        _ if is(Status::INVALID_FIELD) => Answer::Invalid,
        _ => return Err(format!("{request:?}: {status}")),
    })
}

fn table_of(page: &[u8]) -> Result<Table, String> {
    let (head, rest) = ReservationStatus::read_from_prefix(page).map_err(|error| error.to_string())?;
    let mut table = Table {
        kind: head.rtype,
        generation: head.generation.get(),
        persists: head.ptpls == 1,
        ..Table::default()
    };
    for bytes in rest.chunks_exact(64).take(head.regctl.get().into()) {
        let one = RegisteredController::read_from_bytes(bytes).map_err(|error| error.to_string())?;
        let number = one.hostid[0];
        if one.hostid != [number; 16] || table.keys.insert(number, one.rkey.get()).is_some() {
            return Err(format!("a report names a host that there is not, or one twice: {one:?}"));
        }
        if one.rcsts == 1 {
            table.holders.push(number);
        }
    }
    Ok(table)
}
