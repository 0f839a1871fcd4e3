//! What a host asked, for those who explain why it took long.

use crate::queue::SlotState;
use crate::target::Target;
use crate::token::{connection_of, is_of_nobody, slot_of};
use diecut_namespace::contract::CommandToken;
use diecut_nvme::io::LbaRange;
use diecut_units::Time;

/// A command that a namespace has, as its host sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandFacts {
    /// Its opcode.
    pub opcode: u8,
    /// Its namespace, as the host calls it.
    pub nsid: u32,
    /// First logical block, of commands that name one.
    pub first_lba: u64,
    /// How many logical blocks; 0 where none are named.
    pub lba_count: u32,
    /// The controller that got it.
    pub controller_id: u16,
    /// Its queue.
    pub queue_id: u16,
    /// Its command identifier.
    pub command_id: u16,
    /// When the capsule came.
    pub arrived: Time,
    /// When all its data were here.
    pub submitted: Time,
}

impl CommandFacts {
    /// Those of a command under way, if it is one of a host.
    pub fn of(target: &Target, token: CommandToken) -> Option<CommandFacts> {
        if is_of_nobody(token) {
            return None;
        }
        let connection = target.connections.get(connection_of(token))?;
        let queue = connection.queue.as_ref()?;
        let slot = queue.slots.get(usize::from(slot_of(token)))?;
        if slot.state() != SlotState::Submitted {
            return None;
        }
        let submitted = slot.submitted_at();
        assert!(submitted <= target.shared.now, "I-T7: a namespace has what came before");
        let entry = &slot.entry;
        let has_range = slot.entry.opcode != diecut_nvme::opcode::io::FLUSH
            && slot.entry.opcode != diecut_nvme::opcode::io::DATASET_MANAGEMENT
            && slot.entry.opcode != diecut_nvme::opcode::io::COPY;
        let range = LbaRange::decode(entry);
        let association = connection.association.and_then(|number| target.shared.associations.get(number));
        Some(CommandFacts {
            opcode: entry.opcode,
            nsid: entry.nsid.get(),
            first_lba: if has_range { range.start } else { 0 },
            lba_count: if has_range { range.count } else { 0 },
            controller_id: association.map_or(0, |one| one.controller_id),
            queue_id: queue.id,
            command_id: entry.command_id.get(),
            arrived: slot.arrived,
            submitted,
        })
    }
}
