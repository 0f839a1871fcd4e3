//! Format NVM (Base 2.0 section 5.14): all of a namespace reads as zeros, durably, before it is answered. What its erase blocks held stays
//! on flash until they are erased for other data, so an erase of user data is not promised.

use crate::asking;
use crate::connection::Connection;
use crate::queue::SlotIndex;
use crate::reservation;
use crate::session::Session;
use diecut_namespace::contract::{LbaRange, NamespaceOperation};
use diecut_nvme::admin::FormatNvm;
use diecut_nvme::{NSID_ALL, Status, SubmissionEntry};
use diecut_units::mark;

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
    // FNA bit 3: all namespaces at once are not formatted. One kind of erase, which is none; there are no keys to forget.
    if nsid == NSID_ALL || format.erase != FormatNvm::NO_ERASE {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    let namespace = subsystem.config.namespaces.get(&nsid);
    let namespace = namespace.ok_or(Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry())?;
    if format.lba_format != 0 || format.has_metadata || format.protection != 0 {
        return Err(Status::INVALID_FORMAT.do_not_retry());
    }
    if namespace.properties.chunks.is_some() {
        // Its chunks are reset one by one.
        return Err(Status::INVALID_OPCODE.do_not_retry());
    }
    if namespace.properties.read_only {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.do_not_retry());
    }
    reservation::check(&subsystem.reservations, &shared.associations.kept(number).host_id, entry)?;
    let lba_count = u32::try_from(namespace.properties.size_lbas);
    let lba_count = lba_count.map_err(|_| Status::INVALID_FIELD.do_not_retry())?;
    let range = LbaRange { first_lba: 0, lba_count };
    let operation = NamespaceOperation::WriteZeroes { range, may_deallocate: true, force_unit_access: true };
    let namespace = namespace.namespace;
    asking::ask(session, connection, slot_index, namespace, operation);
    mark!("nvmf: namespace formatted");
    Ok(())
}
