//! Set Features of what persists: whether reservations outlive a power loss (feature 83h), and which events of placement are kept (1Eh). It is
//! answered when that is durable.

use crate::connection::Connection;
use crate::keeping::Change;
use crate::placement;
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
    let feature = SetFeatures::decode(entry).feature;
    let persists = matches!(feature, fid::RESERVATION_PERSISTENCE | fid::DATA_PLACEMENT_EVENTS);
    entry.opcode == opcode::SET_FEATURES && persists
}

/// Carries the command out.
///
/// # Panics
/// If it came over an I/O queue.
pub(crate) fn execute(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    entry: &SubmissionEntry,
    data: Option<&[u8]>,
) {
    assert!(connection.is_admin(), "I-T11: an admin command came over an admin queue");
    let changes = match SetFeatures::decode(entry).feature {
        fid::DATA_PLACEMENT_EVENTS => placement::set_events(session, connection, entry, data),
        _ => set_persistence(session, connection, entry),
    };
    match changes {
        Ok(changes) => reserving::answer_when_over(session, connection, slot_index, Vec::new(), changes),
        Err(status) => reserving::refuse(session, connection, slot_index, entry, status),
    }
}

/// Feature 83h, for one namespace or for all.
fn set_persistence(
    session: &mut Session<'_>,
    connection: &Connection,
    entry: &SubmissionEntry,
) -> Result<Vec<Change>, Status> {
    let index = connection.subsystem.ok_or(INVALID)?;
    let persists = SetFeatures::decode(entry).value == 1;
    let mut changes = Vec::new();
    for nsid in chosen(session, index, entry)? {
        let reservations = &session.shared.subsystems.get(index).reservations;
        let mut next = reservations.get(nsid).cloned().unwrap_or_default();
        next.persists = persists;
        changes.extend(reserving::change(session, index, nsid, next));
    }
    Ok(changes)
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
