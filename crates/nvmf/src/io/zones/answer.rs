//! Answers to commands of zones that give more than success.

use super::bytes_of_report;
use crate::connection::Connection;
use crate::io::chunks::{answer as answer_chunks, answer_strained};
use crate::shared::Shared;
use diecut_namespace::contract::ZoneOutcome;
use diecut_nvme::{Status, SubmissionEntry};
use diecut_units::Buffer;

/// Answers a command to zones or chunks that gives more than success. The account holds `held_bytes` for a report, or for what was read.
#[cold]
pub(crate) fn answer_zones(
    connection: &mut Connection,
    shared: &mut Shared,
    entry: &SubmissionEntry,
    outcome: Option<ZoneOutcome>,
    data: Option<Buffer>,
    held_bytes: u32,
) {
    let command_id = entry.command_id.get();
    match outcome {
        Some(ZoneOutcome::Appended(lba)) => connection.answer(command_id, Status::SUCCESS, lba),
        Some(ZoneOutcome::Report(report)) => {
            let subsystem = connection.subsystem.expect("I-T11: an I/O queue has a subsystem");
            let config = &shared.subsystems.get(subsystem).config;
            let namespace = config.namespaces.get(&entry.nsid.get());
            match namespace.and_then(|namespace| namespace.properties.zones) {
                Some(zones) => {
                    let page = bytes_of_report(entry, &zones, &report, &mut shared.memory.pool);
                    connection.answer_with_data(command_id, page, held_bytes);
                }
                // It was detached meanwhile.
                None => {
                    connection.answer(command_id, Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry(), 0);
                }
            }
        }
        Some(ZoneOutcome::Chunks(chunks)) => {
            answer_chunks(connection, shared, entry, &chunks, held_bytes);
        }
        Some(ZoneOutcome::Strained(strained)) => {
            answer_strained(connection, shared, entry, strained, data, held_bytes);
        }
        Some(ZoneOutcome::Failed(_)) | None => connection.answer(command_id, Status::SUCCESS, 0),
    }
}
