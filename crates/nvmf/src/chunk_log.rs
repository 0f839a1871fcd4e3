//! Admin commands of Open-Channel 2.0: geometry, and the chunk information log. That page has the number of one of OCP. Whoever names the
//! UUID of OCP gets OCP's; without a UUID a namespace with chunks gives its chunks.

use crate::asking;
use crate::connection::Connection;
use crate::controller::Answer;
use crate::io::chunks::geometry_of;
use crate::queue::SlotIndex;
use crate::session::Session;
use crate::shared::Shared;
use diecut_namespace::contract::{ChunkRequest, NamespaceOperation};
use diecut_nvme::admin::GetLogPage;
use diecut_nvme::feature::{CAPABILITY_CHANGEABLE, CAPABILITY_NAMESPACE, GetFeatures, Select, SetFeatures};
use diecut_nvme::identify::IDENTIFY_SIZE_BYTES;
use diecut_nvme::opcode::admin;
use diecut_nvme::openchannel::fid::{self, FEEDBACK_HIGH_ECC};
use diecut_nvme::openchannel::{ChunkDescriptor, Geometry, lid};
use diecut_nvme::{Status, SubmissionEntry};
use diecut_units::mark;
use zerocopy::IntoBytes;

const DESCRIPTOR_BYTES: u64 = ChunkDescriptor::SIZE_BYTES as u64;
// What is planned of both commands.
const _: () = assert!(Geometry::SIZE_BYTES == IDENTIFY_SIZE_BYTES);
const INVALID_FIELD: Status = Status::INVALID_FIELD.do_not_retry();

/// The geometry of the namespace that a command names.
///
/// # Errors
/// There is none, or it has no chunks.
pub(crate) fn geometry(shared: &Shared, connection: &Connection, entry: &SubmissionEntry) -> Answer {
    let subsystem = connection.subsystem.map(|index| shared.subsystems.get(index));
    let namespace = subsystem.and_then(|subsystem| subsystem.config.namespaces.get(&entry.nsid.get()));
    match namespace.map(geometry_of) {
        Some(Some(geometry)) => Answer::Data(geometry.as_bytes().to_vec()),
        Some(None) => Answer::Fail(INVALID_FIELD),
        None => Answer::Fail(Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry()),
    }
}

/// Media feedback of a namespace with chunks, for one controller until its reset: whether vector reads of data that is hard to read say so.
/// `None` if the command is another one.
pub(crate) fn feedback(
    shared: &mut Shared,
    connection: &Connection,
    entry: &SubmissionEntry,
) -> Option<Answer> {
    let is_ours = matches!(entry.opcode, admin::SET_FEATURES | admin::GET_FEATURES)
        && entry.cdw10.get() as u8 == fid::MEDIA_FEEDBACK;
    let subsystem = shared.subsystems.get(connection.subsystem.filter(|_| is_ours)?);
    let nsid = entry.nsid.get();
    let namespace = subsystem.config.namespaces.get(&nsid);
    if namespace.is_none_or(|namespace| namespace.properties.chunks.is_none()) {
        return Some(Answer::Fail(INVALID_FIELD));
    }
    let number = connection.association.expect("I-T11: a live connection has an association");
    let log = &mut shared.associations.kept_mut(number).events.chunks;
    if entry.opcode == admin::GET_FEATURES {
        return Some(match GetFeatures::decode(entry).select {
            Select::Current => Answer::Result(u64::from(log.tells_high_ecc(nsid))),
            Select::Default | Select::Saved => Answer::Result(0),
            Select::Capabilities => Answer::Result((CAPABILITY_CHANGEABLE | CAPABILITY_NAMESPACE).into()),
            Select::Reserved(_) => Answer::Fail(INVALID_FIELD),
        });
    }
    let SetFeatures { save, value, .. } = SetFeatures::decode(entry);
    Some(match (save, value) {
        (true, _) => Answer::Fail(Status::FEATURE_NOT_SAVEABLE.do_not_retry()),
        (_, 0 | FEEDBACK_HIGH_ECC) => {
            log.tell_high_ecc(nsid, value == FEEDBACK_HIGH_ECC);
            Answer::Result(0)
        }
        // Very high ECC: there is one level.
        _ => Answer::Fail(INVALID_FIELD),
    })
}

/// Puts a command off that asks how chunks are: its namespace is asked. Says whether it did, or why it cannot.
pub(crate) fn put_off(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    entry: &SubmissionEntry,
) -> Result<bool, Status> {
    let log = GetLogPage::decode(entry);
    let is_asked = entry.opcode == admin::GET_LOG_PAGE && log.page == lid::CHUNK_INFORMATION;
    // With a UUID index the page is OCP's.
    let Some(index) = connection.subsystem.filter(|_| is_asked && entry.cdw14.get() & 0x7F == 0) else {
        return Ok(false);
    };
    let shared = &*session.shared;
    let subsystem = shared.subsystems.get(index);
    let Some(namespace) = subsystem.config.namespaces.get(&entry.nsid.get()) else { return Ok(false) };
    let Some(chunks) = &namespace.properties.chunks else { return Ok(false) };
    let size_bytes = u64::from(chunks.shape.all_chunks()) * DESCRIPTOR_BYTES;
    if log.offset_is_index || !log.offset.is_multiple_of(4) || log.offset > size_bytes {
        return Err(INVALID_FIELD);
    }
    let first = log.offset / DESCRIPTOR_BYTES;
    assert!(first <= u64::from(u32::MAX), "I-T15: chunks are counted in 32 bits");
    let count_max = (log.offset + log.length_bytes).div_ceil(DESCRIPTOR_BYTES) - first;
    let operation = NamespaceOperation::Chunk(ChunkRequest::Report {
        first: first as u32,
        count_max: count_max.min(u32::MAX.into()) as u32,
    });
    let namespace = namespace.namespace;
    asking::ask(session, connection, slot_index, namespace, operation);
    mark!("nvmf: chunks are asked how they are");
    Ok(true)
}
