//! Vector commands of Open-Channel 2.0, and what is left of the NVM command set on chunks. Lists of addresses are the first bytes of a
//! command's data, because a fabric has no memory of the host to look them up in; that of a read comes in its capsule
//! (`docs/doors/open-channel.md`).

mod answer;

use super::Plan;
use crate::config::NamespaceConfig;
use diecut_namespace::contract::{ChunkRequest, ChunkShape, LbaList, NamespaceOperation};
use diecut_nvme::opcode::io;
use diecut_nvme::openchannel::{AddressFormat, Geometry, VectorCommand, opcode};
use diecut_nvme::openchannel::{MCCAP_EARLY_RESET, MCCAP_MULTIPLE_RESETS, MCCAP_VECTOR_COPY};
use diecut_nvme::{Status, SubmissionEntry};
use diecut_units::{Buffer, BufferPool};

pub(crate) use answer::{answer, answer_failed, answer_strained};

const INVALID_OPCODE: Status = Status::INVALID_OPCODE.do_not_retry();

/// Whether an opcode is one of chunks alone.
pub(crate) const fn is_of_chunks(code: u8) -> bool {
    matches!(code, opcode::VECTOR_RESET..=opcode::VECTOR_COPY)
}

/// Whether a command reads.
#[inline]
pub(crate) const fn is_read(code: u8) -> bool {
    matches!(code, io::READ | opcode::VECTOR_READ)
}

/// Bytes of the list that the capsule of a command may have besides the data that the command brings: only a vector read has one.
#[cold]
pub(crate) fn list_of_read_bytes(entry: &SubmissionEntry) -> usize {
    match entry.opcode {
        opcode::VECTOR_READ => VectorCommand::decode(entry).list_bytes() as usize,
        _ => 0,
    }
}

/// Whether a command of the NVM command set can be asked of chunks.
pub(super) const fn takes(code: u8) -> bool {
    matches!(code, io::FLUSH | io::READ | io::WRITE) || is_of_chunks(code)
}

/// Checks a vector command before its data move.
pub(super) fn plan(
    namespace: &NamespaceConfig,
    entry: &SubmissionEntry,
    transfer_bytes_max: u32,
) -> Result<Plan, Status> {
    let properties = &namespace.properties;
    if properties.chunks.is_none() {
        return Err(INVALID_OPCODE);
    }
    let command = VectorCommand::decode(entry);
    if properties.read_only && entry.opcode != opcode::VECTOR_READ {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.do_not_retry());
    }
    let size = (u64::from(command.count) << properties.lba_size_log2) + u64::from(command.list_bytes());
    if size > u64::from(transfer_bytes_max) || command.count > properties.transfer_max_lbas {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    let (list, data) = (command.list_bytes(), namespace.transfer_bytes(command.count) as u32);
    let (from_host_bytes, to_host_bytes) = match entry.opcode {
        opcode::VECTOR_READ => (0, data),
        opcode::VECTOR_WRITE => (list + data, 0),
        opcode::VECTOR_COPY => (2 * list, 0),
        _ => (list, 0),
    };
    Ok(Plan { from_host_bytes, to_host_bytes })
}

/// A list of so many addresses from `at` on; a single one is `lba`.
fn list(data: Option<&Buffer>, at: u32, count: u32, lba: u64) -> LbaList {
    let Some(data) = data.filter(|_| count > 1) else { return LbaList::run(lba, 1) };
    let mut lbas = LbaList::default();
    let addresses = data[at as usize..].chunks_exact(8).take(count as usize);
    assert!(addresses.len() == count as usize, "I-T7: a list is as long as planned");
    addresses.for_each(|bytes| lbas.push(u64::from_le_bytes(bytes.try_into().expect("8 bytes"))));
    lbas
}

/// The namespace's operation of a vector command that [`plan`] let through.
pub(super) fn operation(
    namespace: &NamespaceConfig,
    entry: &SubmissionEntry,
    data: Option<Buffer>,
    pool: &mut BufferPool,
) -> Result<NamespaceOperation, Status> {
    // The namespace may have been exchanged for another one while data came in.
    if namespace.properties.chunks.is_none() {
        return Err(INVALID_OPCODE);
    }
    let command = VectorCommand::decode(entry);
    let VectorCommand { lba, count, destination } = command;
    let bytes = command.list_bytes();
    let planned = plan(namespace, entry, u32::MAX)?.from_host_bytes;
    // A read may have its list with it.
    let is_listed = data.is_some() && entry.opcode == opcode::VECTOR_READ;
    if data.as_ref().map_or(0, |data| data.len() as u32) != if is_listed { bytes } else { planned } {
        return Err(Status::DATA_SGL_LENGTH_INVALID.do_not_retry());
    }
    let lbas = || list(data.as_ref(), 0, count, lba);
    let request = match entry.opcode {
        opcode::VECTOR_READ => {
            let destination = pool.take(namespace.transfer_bytes(count) as usize);
            let lbas = if is_listed { lbas() } else { LbaList::run(lba, count) };
            ChunkRequest::Read { lbas, destination }
        }
        opcode::VECTOR_WRITE => {
            let content = data.as_ref().expect("I-T7: data that were planned are there");
            ChunkRequest::Write { lbas: lbas(), data: content.slice(bytes as usize..) }
        }
        opcode::VECTOR_COPY => {
            ChunkRequest::Copy { from: lbas(), to: list(data.as_ref(), bytes, count, destination) }
        }
        _ => ChunkRequest::Reset { lbas: lbas() },
    };
    Ok(NamespaceOperation::Chunk(request))
}

/// The geometry of a namespace.
pub(crate) fn geometry_of(namespace: &NamespaceConfig) -> Option<Geometry> {
    let chunks = namespace.properties.chunks.as_ref()?;
    let ChunkShape { groups, units, chunks: of_unit, unit_ius, .. } = chunks.shape;
    let [group_bits, unit_bits, chunk_bits, block_bits] = chunks.shape.bits();
    Some(Geometry {
        major: 2,
        format: AddressFormat { group_bits, unit_bits, chunk_bits, block_bits },
        capabilities: (MCCAP_VECTOR_COPY | MCCAP_MULTIPLE_RESETS | MCCAP_EARLY_RESET).into(),
        groups: groups.into(),
        units: units.into(),
        chunks: of_unit.into(),
        chunk_blocks: chunks.shape.chunk_ius().into(),
        write_min: unit_ius.into(),
        write_optimal: unit_ius.into(),
        cached_units: chunks.shape.cached_ius().into(),
        // Each chunk has an erase block of its own and nothing else, so none of them waits for another: there is no limit.
        open_max: 0.into(),
        open_of_unit_max: 0.into(),
        read_typical_ns: chunks.read_ns.into(),
        read_max_ns: chunks.read_ns.into(),
        write_typical_ns: chunks.write_ns.into(),
        write_max_ns: chunks.write_ns.into(),
        reset_typical_ns: chunks.reset_ns.into(),
        reset_max_ns: chunks.reset_ns.into(),
        ..Geometry::default()
    })
}
