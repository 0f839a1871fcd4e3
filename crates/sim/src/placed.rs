//! What hosts of namespaces with placement handles send: writes with the data placement directive, the status of handles and updates of them.

use crate::plan::Range;
use crate::tag::VolumeNumber;
use diecut_initiator::Token;
use diecut_nvme::fdp::{
    DIRECTIVE_DATA_PLACEMENT, HandleStatus, IoManagementReceive, IoManagementSend, STATUS_HEADER_SIZE_BYTES,
};
use diecut_nvme::io::LbaRange;
use diecut_nvme::{SubmissionEntry, opcode};
use diecut_units::Buffer;

/// A command about placement.
#[derive(Clone, Debug)]
pub enum Placed {
    /// Writes; durable at completion with the flag.
    Write {
        /// Where.
        range: Range,
        /// Content.
        data: Vec<u8>,
        /// Force unit access.
        fua: bool,
        /// Placement identifier.
        pid: u16,
    },
    /// Asks for the status of the handles; the answer is the page.
    Status {
        /// Of which volume.
        volume: VolumeNumber,
        /// How many descriptors there are: one for each of its handles in each reclaim group.
        descriptors: u16,
    },
    /// Asks for fresh reclaim units.
    Update {
        /// Of which volume.
        volume: VolumeNumber,
        /// Placement identifiers.
        pids: Vec<u16>,
    },
}

/// A command as it goes to a queue: entry, data, and bytes that it brings.
pub struct Sent {
    /// Without id and descriptor.
    pub entry: SubmissionEntry,
    /// Data of the host.
    pub data: Option<Buffer>,
    /// What comes back.
    pub expected_bytes: u32,
}

impl Placed {
    /// The command of the specification.
    pub fn sent(self) -> Sent {
        let of = |opcode: u8, volume: VolumeNumber| SubmissionEntry {
            opcode,
            nsid: u32::from(volume.0).into(),
            ..SubmissionEntry::default()
        };
        match self {
            Placed::Write { range, data, fua, pid } => {
                let mut entry = of(opcode::io::WRITE, range.volume);
                LbaRange {
                    force_unit_access: fua,
                    directive_type: DIRECTIVE_DATA_PLACEMENT,
                    directive_specific: pid,
                    ..LbaRange::plain(range.first, range.count)
                }
                .encode(&mut entry);
                Sent { entry, data: Some(Buffer::copy_from(&data)), expected_bytes: 0 }
            }
            Placed::Status { volume, descriptors } => {
                let mut entry = of(opcode::io::IO_MANAGEMENT_RECEIVE, volume);
                let length_bytes =
                    STATUS_HEADER_SIZE_BYTES + usize::from(descriptors) * HandleStatus::SIZE_BYTES;
                let receive = IoManagementReceive {
                    operation: IoManagementReceive::HANDLE_STATUS,
                    specific: 0,
                    length_bytes: length_bytes as u64,
                };
                receive.encode(&mut entry);
                Sent { entry, data: None, expected_bytes: length_bytes as u32 }
            }
            Placed::Update { volume, pids } => {
                let mut entry = of(opcode::io::IO_MANAGEMENT_SEND, volume);
                let specific = pids.len() as u16 - 1;
                IoManagementSend { operation: IoManagementSend::UPDATE_HANDLES, specific }.encode(&mut entry);
                let list: Vec<u8> = pids.iter().flat_map(|pid| pid.to_le_bytes()).collect();
                Sent { entry, data: Some(Buffer::copy_from(&list)), expected_bytes: 0 }
            }
        }
    }
}

/// Sends a command on a queue that has room.
pub fn submit(queue: &mut diecut_initiator::QueuePair, token: Token, command: Placed) {
    let Sent { entry, data, expected_bytes } = command.sent();
    queue.submit_entry(token, entry, data, expected_bytes);
}
