//! What a namespace is asked before it is written to, after each claim: which placement handles it has, and how its zones or chunks are. Only the target knows
//! where write pointers are.

use crate::stream::Stream;
use diecut_initiator::openchannel::{ChunkFacts, ChunkedNamespace, Request};
use diecut_initiator::zoned::{ZoneCommand, ZoneFacts, ZonedNamespace};
use diecut_media::{Zone, ZoneCondition};
use diecut_nvme::fdp::{
    HandleStatus, IoManagementReceive, PlacementIds, STATUS_HEADER_SIZE_BYTES, parse_status,
};
use diecut_nvme::opcode::io as opcode;
use diecut_nvme::openchannel::chunk_state;
use diecut_nvme::zns::zone_state;
use diecut_nvme::{Status, SubmissionEntry};
use diecut_units::Buffer;

/// Placement identifiers that are asked for at most.
const PIDS_MAX: usize = 1024;

/// What there is to ask of a namespace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    /// What its zones are, if it is zoned.
    pub zoned: Option<ZonedNamespace>,
    /// What its chunks are, if it has some.
    pub chunked: Option<ChunkedNamespace>,
    /// Whether it may have placement handles.
    pub may_place: bool,
}

/// Questions that are under way, one after the other.
#[derive(Debug)]
pub(crate) struct Looking {
    look: Look,
    lba_bytes: u32,
    found: Found,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// What writes can name.
    pub pids: PlacementIds,
    /// All zones, or chunks, from the first one on.
    pub zones: Vec<Zone>,
}

/// A question, and which queue takes it.
pub(crate) struct Question {
    pub stream: Stream,
    pub entry: SubmissionEntry,
    /// What it carries.
    pub data: Option<Buffer>,
    /// Bytes that it brings at most.
    pub expected_bytes: u32,
}

impl Looking {
    /// Of a namespace with such LBAs.
    pub fn new(look: Look, lba_bytes: u32) -> Looking {
        Looking { look, lba_bytes, found: Found::default() }
    }

    /// The next command. `None` when all is told.
    pub fn ask(&self, nsid: u32, transfer_bytes_max: u32) -> Option<Question> {
        if self.look.may_place {
            let all = STATUS_HEADER_SIZE_BYTES + PIDS_MAX * HandleStatus::SIZE_BYTES;
            let length_bytes = (all as u32).min(transfer_bytes_max);
            let code = opcode::IO_MANAGEMENT_RECEIVE;
            let mut entry = SubmissionEntry { opcode: code, nsid: nsid.into(), ..SubmissionEntry::default() };
            let operation = IoManagementReceive::HANDLE_STATUS;
            let length = u64::from(length_bytes);
            IoManagementReceive { operation, specific: 0, length_bytes: length }.encode(&mut entry);
            return Some(Question { stream: Stream::Io, entry, data: None, expected_bytes: length_bytes });
        }
        let first = self.found.zones.len() as u32;
        if let Some(chunked) = self.look.chunked {
            let left = chunked.all_chunks().checked_sub(first).filter(|left| *left > 0)?;
            let count = chunked.chunks_per_report(transfer_bytes_max).clamp(1, left);
            let Request { entry, data, expected_bytes, .. } = chunked.report(first, count);
            return Some(Question { stream: Stream::Admin, entry, data, expected_bytes });
        }
        let zoned = self.look.zoned?;
        let left = zoned.zones.checked_sub(first).filter(|left| *left > 0)?;
        let command = zoned.report(first, zoned.zones_per_report(transfer_bytes_max).clamp(1, left));
        let ZoneCommand { entry, data, expected_bytes } = command;
        Some(Question { stream: Stream::Io, entry, data, expected_bytes })
    }

    /// The command was answered.
    ///
    /// # Errors
    /// In words, if zones are not told.
    pub fn take(&mut self, status: Status, bytes: &[u8]) -> Result<(), String> {
        if std::mem::take(&mut self.look.may_place) {
            // A namespace without handles, or one whose group has them disabled, says an error.
            let told = if status.is_success() { parse_status(bytes).unwrap_or_default() } else { Vec::new() };
            self.found.pids = PlacementIds::of(&told);
            return Ok(());
        }
        if !status.is_success() {
            return Err(status.to_string());
        }
        if let Some(chunked) = self.look.chunked {
            let first = self.found.zones.len() as u32..chunked.all_chunks();
            let told = first.zip(ChunkedNamespace::chunks_of(bytes));
            let before = self.found.zones.len();
            self.found
                .zones
                .extend(told.map(|(number, chunk)| known_chunk(&chunked, self.lba_bytes, number, &chunk)));
            return if self.found.zones.len() > before { Ok(()) } else { Err("it tells of none".to_owned()) };
        }
        assert!(self.look.zoned.is_some(), "what is not zoned is not asked for zones");
        let zoned = self.look.zoned.expect("it was asked about");
        let told = zoned.zones_of(bytes);
        let numbers = self.found.zones.len() as u32..;
        if told.is_empty() || !told.iter().zip(numbers).all(|(zone, number)| zone.zone == number) {
            return Err("it tells of others".to_owned());
        }
        self.found.zones.extend(told.iter().map(|zone| known(&zoned, zone)));
        Ok(())
    }

    /// All that was told.
    pub fn into_found(self) -> Found {
        self.found
    }
}

fn known(namespace: &ZonedNamespace, zone: &ZoneFacts) -> Zone {
    let lba = u64::from(namespace.lba_bytes);
    let offset = u64::from(zone.zone) * namespace.zone_size_lbas * lba;
    Zone {
        offset,
        capacity_bytes: zone.capacity_lbas * lba,
        write_pointer: offset + zone.written_lbas * lba,
        condition: match zone.state {
            zone_state::EMPTY => ZoneCondition::Empty,
            zone_state::IMPLICITLY_OPEN | zone_state::EXPLICITLY_OPEN | zone_state::CLOSED => {
                ZoneCondition::Active
            }
            zone_state::FULL => ZoneCondition::Full,
            zone_state::READ_ONLY => ZoneCondition::ReadOnly,
            _ => ZoneCondition::Offline,
        },
    }
}

fn known_chunk(namespace: &ChunkedNamespace, lba_bytes: u32, number: u32, chunk: &ChunkFacts) -> Zone {
    let size_bytes = u64::from(namespace.chunk_lbas) * u64::from(lba_bytes);
    let offset = u64::from(number) * size_bytes;
    let written_bytes = (u64::from(chunk.written) * u64::from(lba_bytes)).min(size_bytes);
    Zone {
        offset,
        capacity_bytes: size_bytes,
        write_pointer: offset + written_bytes,
        condition: match chunk.state {
            chunk_state::FREE => ZoneCondition::Empty,
            chunk_state::OPEN => ZoneCondition::Active,
            chunk_state::CLOSED => ZoneCondition::Closed,
            _ => ZoneCondition::Offline,
        },
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: a namespace is asked for its handles, and one that has them disabled places nothing.
    #[test]
    fn handles_are_asked_for() {
        let mut looking = Looking::new(Look { may_place: true, ..Look::default() }, 4096);
        let Question { entry, expected_bytes, .. } = looking.ask(3, 1 << 20).unwrap();
        assert_eq!((entry.opcode, entry.nsid.get(), entry.cdw10.get()), (0x12, 3, 1));
        assert_eq!((expected_bytes, entry.cdw11.get()), (16 + 32 * 1024, (16 + 32 * 1024) / 4 - 1));
        assert_eq!(looking.take(Status::FDP_DISABLED, &[]), Ok(()), "it places nothing then");
        assert!(looking.ask(3, 1 << 20).is_none() && looking.into_found().pids.handles() == 0);
    }
}
