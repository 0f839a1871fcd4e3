//! How chunks are, in the bytes of the chunk information log; and what failed of a vector command.

use super::is_of_chunks;
use crate::connection::Connection;
use crate::shared::Shared;
use diecut_namespace::contract::{ChunkIndex, ChunkShape, ChunkState, ChunkView, ListBits, ZoneOutcome};
use diecut_nvme::admin::GetLogPage;
use diecut_nvme::openchannel::{ChunkDescriptor, chunk_state};
use diecut_nvme::tcp::flag;
use diecut_nvme::{Status, SubmissionEntry};
use diecut_units::{Buffer, mark, mutant};
use zerocopy::IntoBytes;

const DESCRIPTOR_BYTES: u64 = ChunkDescriptor::SIZE_BYTES as u64;

/// Chunks from the `first` on, in the bytes of the specification.
fn descriptors(shape: &ChunkShape, first: u32, chunks: &[ChunkView]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(chunks.len() * ChunkDescriptor::SIZE_BYTES);
    for (index, chunk) in (first..).zip(chunks) {
        assert!(chunk.written <= shape.chunk_ius(), "I-T15: a write pointer is within its chunk");
        let state = match chunk.state {
            ChunkState::Free => chunk_state::FREE,
            ChunkState::Open => chunk_state::OPEN,
            ChunkState::Closed => chunk_state::CLOSED,
            ChunkState::Offline => chunk_state::OFFLINE,
        };
        let (start, size) = (shape.lba(ChunkIndex(index), 0), u64::from(shape.chunk_ius()));
        let descriptor = ChunkDescriptor::new(state, chunk.wear, start, size, chunk.written.into());
        bytes.extend_from_slice(descriptor.as_bytes());
    }
    bytes
}

/// Answers a command that failed. Of a vector command dwords 0 and 1 have a bit for each logical block that failed, in the order of its
/// list, and a read brings the others. The account holds `held_bytes` for the data.
#[cold]
pub(crate) fn answer_failed(
    connection: &mut Connection,
    entry: &SubmissionEntry,
    status: Status,
    outcome: Option<&ZoneOutcome>,
    partial: Option<Buffer>,
    held_bytes: u32,
) {
    let command_id = entry.command_id.get();
    let failed = match outcome {
        Some(ZoneOutcome::Failed(failed)) if is_of_chunks(entry.opcode) => failed.0,
        _ => 0,
    };
    if let Some(content) = partial {
        mark!("nvmf: a read that failed brings what could be read");
        connection.put_data(command_id, content, held_bytes, flag::LAST);
    }
    connection.answer(command_id, status, failed);
}

/// Answers a read of data that is hard to read, of which `strained` are. A vector read says so where its host wants to know: its status is High
/// ECC then, and dwords 0 and 1 have the bits. The account holds `held_bytes` for the data.
#[cold]
pub(crate) fn answer_strained(
    connection: &mut Connection,
    shared: &Shared,
    entry: &SubmissionEntry,
    strained: ListBits,
    data: Option<Buffer>,
    held_bytes: u32,
) {
    let command_id = entry.command_id.get();
    let data = data.expect("I-T7: a read that succeeded has data");
    let number = connection.association.expect("I-T11: a live connection has an association");
    let log = &shared.associations.kept(number).events.chunks;
    let is_asked = log.tells_high_ecc(entry.nsid.get()) || mutant!("nvmf: high ECC is told to all");
    if !is_of_chunks(entry.opcode) || !is_asked {
        return connection.answer_with_data(command_id, data, held_bytes);
    }
    mark!("nvmf: a vector read says that data is hard to read");
    connection.put_data(command_id, data, held_bytes, flag::LAST);
    connection.answer(command_id, Status::HIGH_ECC, strained.0);
}

/// Answers a command that asked how chunks are. The account holds `held_bytes` for the page.
#[cold]
pub(crate) fn answer(
    connection: &mut Connection,
    shared: &mut Shared,
    entry: &SubmissionEntry,
    chunks: &[ChunkView],
    held_bytes: u32,
) {
    let command_id = entry.command_id.get();
    let subsystem = connection.subsystem.expect("I-T11: a queue with namespaces has a subsystem");
    let namespace = shared.subsystems.get(subsystem).config.namespaces.get(&entry.nsid.get());
    let Some(properties) = namespace.and_then(|namespace| namespace.properties.chunks) else {
        // It was detached meanwhile.
        return connection.answer(command_id, Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry(), 0);
    };
    let log = GetLogPage::decode(entry);
    let bytes = descriptors(&properties.shape, (log.offset / DESCRIPTOR_BYTES) as u32, chunks);
    let start = (log.offset % DESCRIPTOR_BYTES) as usize;
    let mut page = shared.memory.pool.take_zeroed(log.length_bytes as usize);
    let part = bytes.get(start..).unwrap_or_default();
    let len = part.len().min(page.len());
    page[..len].copy_from_slice(&part[..len]);
    connection.answer_with_data(command_id, page.freeze(), held_bytes);
}
