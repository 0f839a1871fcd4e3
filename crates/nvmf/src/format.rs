//! Format NVM (Base 2.0 section 5.14): all of a namespace reads as zeros, durably, before it is answered; zones are reset. If an erase of
//! user data is asked for (SES 1), what the namespace held is then purged: nothing of it can be found on flash when the command is answered.
//! How far a format is, is not written down: one that a power cut ended was not answered, and its host sends it again.

use crate::asking;
use crate::connection::Connection;
use crate::queue::SlotIndex;
use crate::reservation;
use crate::session::Session;
use diecut_namespace::contract::{
    LbaRange, NamespaceOperation, NamespaceProperties, ZoneAction, ZoneRequest,
};
use diecut_nvme::admin::FormatNvm;
use diecut_nvme::{NSID_ALL, Status, SubmissionEntry};
use diecut_units::{mark, mutant};

/// Whether a namespace is formatted. Chunks are reset one by one.
pub(crate) fn takes(properties: &NamespaceProperties) -> bool {
    properties.chunks.is_none()
}

/// Gives the namespace what it has to do; the command is answered when that is done.
///
/// # Errors
/// Why it cannot be done.
pub(crate) fn begin(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    entry: &SubmissionEntry,
) -> Result<(), Status> {
    let shared = &*session.shared;
    let index = connection.subsystem.ok_or(Status::INVALID_OPCODE.do_not_retry())?;
    let number = connection.association.expect("I-T11: a live connection has an association");
    shared.associations.kept(number).path.serves()?;
    let subsystem = shared.subsystems.get(index);
    let format = FormatNvm::decode(entry);
    let nsid = entry.nsid.get();
    // FNA bit 3: all namespaces at once are not formatted. There are no keys to forget.
    let erases = format.erase == FormatNvm::USER_DATA_ERASE;
    if nsid == NSID_ALL || !erases && format.erase != FormatNvm::NO_ERASE {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    let namespace = subsystem.config.namespaces.get(&nsid);
    let namespace = namespace.ok_or(Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry())?;
    if format.lba_format != 0 || format.has_metadata || format.protection != 0 {
        return Err(Status::INVALID_FORMAT.do_not_retry());
    }
    if !takes(&namespace.properties) {
        return Err(Status::INVALID_OPCODE.do_not_retry());
    }
    if erases && !namespace.properties.purges {
        mark!("nvmf: erase of what cannot be erased refused");
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    if namespace.properties.read_only {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.do_not_retry());
    }
    reservation::check(&subsystem.reservations, &shared.associations.kept(number).host_id, entry)?;
    let operation = match &namespace.properties.zones {
        // Zones that were written are empty then, and read as zeros.
        Some(_) => NamespaceOperation::Zone(ZoneRequest::Act { zone_lba: None, action: ZoneAction::Reset }),
        None => {
            let lba_count = u32::try_from(namespace.properties.size_lbas);
            let lba_count = lba_count.map_err(|_| Status::INVALID_FIELD.do_not_retry())?;
            let range = LbaRange { first_lba: 0, lba_count };
            NamespaceOperation::WriteZeroes { range, may_deallocate: true, force_unit_access: true }
        }
    };
    let namespace = namespace.namespace;
    asking::ask(session, connection, slot_index, namespace, operation);
    let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
    queue.slots[usize::from(slot_index)].has_second_part =
        erases && !mutant!("nvmf: a format erases nothing");
    mark!("nvmf: namespace formatted");
    Ok(())
}

/// Goes on with a format that has a second part: all reads as zeros now.
///
/// # Errors
/// Why it cannot go on.
pub(crate) fn erase(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
) -> Result<(), Status> {
    let queue = connection.queue.as_ref().expect("I-T8: who has commands in namespaces has a queue");
    let nsid = queue.slots[usize::from(slot_index)].entry.nsid.get();
    let index = connection.subsystem.expect("I-T11: whose command names a namespace has a subsystem");
    let subsystem = session.shared.subsystems.get(index);
    // An administrator may have taken it away meanwhile.
    let namespace = subsystem.config.namespaces.get(&nsid).map(|one| one.namespace);
    let namespace = namespace.ok_or(Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry())?;
    asking::ask_again(session, connection, slot_index, namespace, NamespaceOperation::Purge);
    mark!("nvmf: format erases what the namespace held");
    Ok(())
}
