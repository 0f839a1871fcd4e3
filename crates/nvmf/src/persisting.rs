//! Set Features of feature 83h: whether reservations outlive a power loss. It is answered when that is durable.

use crate::connection::Connection;
use crate::queue::SlotIndex;
use crate::reserving;
use crate::session::Session;
use diecut_nvme::feature::{SetFeatures, fid};
use diecut_nvme::opcode::admin as opcode;
use diecut_nvme::{NSID_ALL, Status, SubmissionEntry};

const INVALID: Status = Status::INVALID_FIELD.do_not_retry();
const NO_NAMESPACE: Status = Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry();

/// Whether an admin command is one.
pub(crate) fn is_ours(entry: &SubmissionEntry) -> bool {
    entry.opcode == opcode::SET_FEATURES && SetFeatures::decode(entry).feature == fid::RESERVATION_PERSISTENCE
}

/// Carries the command out, for one namespace or for all.
///
/// # Panics
/// If it came over an I/O queue.
pub(crate) fn execute(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    entry: &SubmissionEntry,
) {
    assert!(connection.is_admin(), "I-T11: an admin command came over an admin queue");
    let chosen = match connection.subsystem {
        Some(index) => chosen(session, index, entry).map(|nsids| (index, nsids)),
        None => Err(INVALID),
    };
    let (index, nsids) = match chosen {
        Ok(chosen) => chosen,
        Err(status) => return reserving::refuse(session, connection, slot_index, entry, status),
    };
    let persists = SetFeatures::decode(entry).value == 1;
    let mut changes = Vec::new();
    for nsid in nsids {
        let reservations = &session.shared.subsystems.get(index).reservations;
        let mut next = reservations.get(nsid).cloned().unwrap_or_default();
        next.persists = persists;
        changes.extend(reserving::change(session, index, nsid, next));
    }
    reserving::answer_when_over(session, connection, slot_index, Vec::new(), changes);
}

/// The namespaces that it is about.
fn chosen(session: &Session<'_>, index: u32, entry: &SubmissionEntry) -> Result<Vec<u32>, Status> {
    let set = SetFeatures::decode(entry);
    if set.save {
        return Err(Status::FEATURE_NOT_SAVEABLE.do_not_retry());
    }
    let namespaces = &session.shared.subsystems.get(index).config.namespaces;
    let nsids = match entry.nsid.get() {
        NSID_ALL => namespaces.keys().copied().collect(),
        nsid if namespaces.contains_key(&nsid) => vec![nsid],
        _ => return Err(NO_NAMESPACE),
    };
    if set.value > 1 {
        return Err(INVALID);
    }
    Ok(nsids)
}
