//! Commands: each is checked before its data move, and given to its namespace when they are there.

use crate::admin;
use crate::connection::Connection;
use crate::event::Action;
use crate::inbound::Current;
use crate::io::chunks::{is_read, list_of_read_bytes};
use crate::io::{self, Plan};
use crate::persisting;
use crate::placement;
use crate::queue::{Slot, SlotIndex, SlotState, TakeError};
use crate::reservation;
use crate::reserving;
use crate::sanitize;
use crate::session::Session;
use crate::subsystems::Subsystem;
use crate::tcp::Destination;
use crate::token::command_token;
use diecut_namespace::contract::{NamespaceCommand, SourceId};
use diecut_nvme::fabrics::fctype;
use diecut_nvme::opcode::{self, io as io_opcode};
use diecut_nvme::openchannel::opcode::{VECTOR_COPY, VECTOR_WRITE};
use diecut_nvme::tcp::{ADMIN_IN_CAPSULE_BYTES, CapsuleCommand, PduError};
use diecut_nvme::zns::opcode::ZONE_APPEND;
use diecut_nvme::{SglKind, Status, SubmissionEntry};
use diecut_units::{Buffer, Time, mutant};

impl Session<'_> {
    /// The header of a command capsule came.
    pub(crate) fn on_command(&mut self, connection: &mut Connection) -> Result<(), PduError> {
        let capsule: CapsuleCommand = connection.inbound.receiver.header_as();
        let entry = capsule.entry;
        let command_id = entry.command_id.get();
        let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
        let in_capsule_max =
            if queue.id == 0 { ADMIN_IN_CAPSULE_BYTES } else { self.shared.config.queue.in_capsule_bytes };
        let data_length = connection.inbound.receiver.frame().data_length();
        if data_length > in_capsule_max as usize {
            let length = connection.inbound.receiver.frame().length();
            return Err(PduError::header("PLEN", 4, length as u64));
        }
        let slot_index = match queue.take(&entry, self.shared.now) {
            Ok(slot_index) => slot_index,
            Err(TakeError::Full) => {
                return Err(PduError::sequence("SQ overrun by CID", u64::from(command_id)));
            }
            Err(TakeError::IdTaken) if admin::take_over_event_request(self, connection, command_id) => {
                let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
                queue
                    .take(&entry, self.shared.now)
                    .expect("I-T7: an id and a slot that were freed can be taken")
            }
            Err(TakeError::IdTaken) => {
                connection.refuse(command_id, Status::COMMAND_ID_CONFLICT.do_not_retry());
                return Ok(());
            }
        };
        let may_list = data_length > 0 && !connection.is_admin();
        let list_bytes = if may_list { list_of_read_bytes(&entry) } else { 0 };
        let planned = self
            .plan(connection, &entry)
            .and_then(|plan| check_sgl(&entry, plan, data_length, list_bytes).map(|()| plan));
        let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
        if queue.id == 0 {
            self.shared.charge_admin(planned.map_or(0, |plan| plan.to_host_bytes));
        }
        let plan = match planned {
            Ok(plan) => plan,
            Err(status) => {
                queue.release(slot_index);
                self.shared.record_error(connection, &entry, status);
                connection.refuse(command_id, status);
                return Ok(());
            }
        };
        let slot = &mut queue.slots[usize::from(slot_index)];
        slot.data_bytes = plan.from_host_bytes.max(plan.to_host_bytes);
        if plan.from_host_bytes == 0 && data_length == 0 {
            connection.inbound.receiver.finish_header();
            if plan.to_host_bytes == 0 || self.shared.memory.charge(&mut connection.holding.account, slot) {
                self.execute(connection, slot_index, None);
            } else {
                slot.enter(SlotState::WaitingForSpace);
                queue.waiting_reads.push_back(slot_index);
                self.shared.memory.wait(connection, self.shared.now);
            }
        } else if data_length > 0 {
            connection.inbound.current = Current::Command(slot_index);
            if self.shared.memory.charge(&mut connection.holding.account, slot) {
                connection.inbound.receiver.take_data(Destination::Anywhere);
            } else {
                // Its data are next in the stream, so the stream waits.
                connection.inbound.data_wait = true;
                self.shared.memory.wait(connection, self.shared.now);
            }
        } else {
            slot.enter(SlotState::WaitingForSpace);
            queue.waiting_for_space.push_back(slot_index);
            connection.inbound.receiver.finish_header();
            self.grant_space(connection);
        }
        Ok(())
    }

    /// Checks a command before its data move.
    #[inline]
    pub(crate) fn plan(&self, connection: &Connection, entry: &SubmissionEntry) -> Result<Plan, Status> {
        // Fabrics always use SGLs (Base 2.0 section 4.1: PSDT 01b), and no two commands of ours fuse.
        if entry.psdt() != 1 || entry.fuse() != 0 {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        let queue = connection.queue.as_ref().expect("I-T11: a live connection has a queue");
        let number = connection.association.expect("I-T11: a live connection has an association");
        let association = self.shared.associations.kept(number);
        if let Some(kind) = entry.fabrics_type() {
            return match kind {
                fctype::PROPERTY_GET | fctype::PROPERTY_SET if queue.id == 0 => Ok(Plan::default()),
                fctype::PROPERTY_GET | fctype::PROPERTY_SET => Err(Status::INVALID_QUEUE_TYPE.do_not_retry()),
                fctype::CONNECT => Err(Status::COMMAND_SEQUENCE_ERROR.do_not_retry()),
                _ => Err(Status::INVALID_OPCODE.do_not_retry()),
            };
        }
        if queue.id == 0 {
            let subsystem = connection.subsystem.map(|index| self.shared.subsystems.get(index));
            let refusal = subsystem.and_then(|one| one.sanitizing.refusal());
            let plan = association.plan(entry, &self.shared.config)?;
            return sanitize::lets_admin_through(refusal, entry).map(|()| plan);
        }
        if !association.configuration.enabled() || association.is_ending() {
            return Err(Status::ABORTED_SQ_DELETION);
        }
        association.path.serves()?;
        let subsystem = connection.subsystem.expect("I-T11: an I/O queue has a subsystem");
        let subsystem = self.shared.subsystems.get(subsystem);
        if let Some(status) = subsystem.sanitizing.refusal() {
            return Err(status);
        }
        reservation::check(&subsystem.reservations, &association.host_id, entry)?;
        io::plan(&subsystem.config, entry, self.shared.config.queue.transfer_bytes_max)
    }

    /// A command with all its data.
    #[inline]
    pub(crate) fn execute(
        &mut self,
        connection: &mut Connection,
        slot_index: SlotIndex,
        data: Option<Buffer>,
    ) {
        let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
        let slot = &mut queue.slots[usize::from(slot_index)];
        if queue.id == 0 || slot.entry.opcode == opcode::FABRICS {
            let entry = slot.entry;
            if persisting::is_ours(&entry) {
                return persisting::execute(self, connection, slot_index, &entry, data.as_deref());
            }
            if queue.id == 0 && entry.opcode == opcode::admin::SANITIZE {
                return sanitize::execute(self, connection, slot_index, &entry);
            }
            admin::execute(self, connection, slot_index, &entry, data);
            return;
        }
        let index = connection.subsystem.expect("I-T11: an I/O queue has a subsystem");
        let subsystem = self.shared.subsystems.get_mut(index);
        // One may have begun while data came in.
        if let Some(status) = subsystem.sanitizing.refusal()
            && !mutant!("nvmf: a write whose data come late overtakes a sanitize")
        {
            let entry = slot.entry;
            return reserving::refuse(self, connection, slot_index, &entry, status);
        }
        let namespace = subsystem.config.namespaces.get(&slot.entry.nsid.get());
        if reservation::is_ours(slot.entry.opcode) && namespace.is_some() {
            let entry = slot.entry;
            return reserving::execute(self, connection, slot_index, &entry, data);
        }
        if placement::is_ours(slot.entry.opcode) && namespace.is_some() {
            let entry = slot.entry;
            return placement::execute_io(self, connection, slot_index, &entry, data);
        }
        let number = connection.association.expect("I-T11: a live connection has an association");
        let host = &self.shared.associations.kept(number).host_id;
        // A namespace may have gone while data came in, or another host may have it for itself.
        let operation = match (namespace, reservation::check(&subsystem.reservations, host, &slot.entry)) {
            (None, _) => Err(Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry()),
            (_, Err(status)) => Err(status),
            (Some(namespace), Ok(())) => {
                io::operation(namespace, &slot.entry, data, &mut self.shared.memory.pool)
                    .map(|operation| operation.map(|operation| (namespace.namespace, operation)))
            }
        };
        match operation {
            Ok(Some((namespace, operation))) => {
                if is_read(slot.entry.opcode) {
                    slot.read_held = slot.data_bytes;
                    queue.read_bytes += slot.data_bytes as usize;
                }
                let is_noted = count(subsystem, slot, self.shared.now);
                slot.enter(SlotState::Submitted);
                slot.note_submitted(self.shared.now);
                queue.submitted += 1;
                subsystem.traffic.busy.begin(self.shared.now);
                if is_noted {
                    self.shared.note_write(index);
                }
                let command = NamespaceCommand {
                    token: command_token(connection.index, slot_index),
                    namespace,
                    source: SourceId(connection.index),
                    arrived: slot.arrived,
                    operation,
                };
                self.shared.watch(&command);
                self.actions.push(Action::Submit(command));
            }
            Ok(None) => {
                let entry = slot.entry;
                queue.release(slot_index);
                connection.answer(entry.command_id.get(), Status::SUCCESS, 0);
            }
            Err(status) => {
                let entry = slot.entry;
                queue.release(slot_index);
                self.shared.record_error(connection, &entry, status);
                connection.answer(entry.command_id.get(), status, 0);
            }
        }
    }
}

/// Counts what a command reads or writes of a subsystem. Whether something is to be made durable for it: that it is the first write since all
/// was erased, or an event of placement.
#[inline]
fn count(subsystem: &mut Subsystem, slot: &Slot, now: Time) -> bool {
    let bytes = u64::from(slot.data_bytes);
    match slot.entry.opcode {
        code if is_read(code) => {
            subsystem.traffic.read_commands += 1;
            subsystem.traffic.read_bytes += bytes;
        }
        io_opcode::COMPARE => subsystem.traffic.read_commands += 1,
        io_opcode::WRITE | VECTOR_WRITE => {
            subsystem.traffic.write_commands += 1;
            subsystem.traffic.written_bytes += bytes;
            let is_event = placement::note_write(subsystem, &slot.entry, now);
            return subsystem.sanitizing.note_write() | is_event;
        }
        io_opcode::COPY => {
            let is_event = placement::note_write(subsystem, &slot.entry, now);
            return subsystem.sanitizing.note_write() | is_event;
        }
        ZONE_APPEND | VECTOR_COPY => return subsystem.sanitizing.note_write(),
        _ => {}
    }
    false
}

/// Whether the descriptor and the capsule hold what the command needs. A capsule may have a list of `list_bytes` besides what the descriptor
/// describes.
#[inline]
fn check_sgl(
    entry: &SubmissionEntry,
    plan: Plan,
    data_length: usize,
    list_bytes: usize,
) -> Result<(), Status> {
    let wrong_length = Status::DATA_SGL_LENGTH_INVALID.do_not_retry();
    match entry.sgl.kind() {
        SglKind::InCapsule { offset, length_bytes } => {
            if offset != 0 {
                return Err(Status::SGL_OFFSET_INVALID.do_not_retry());
            }
            if plan.to_host_bytes > 0 {
                return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.do_not_retry());
            }
            if length_bytes != plan.from_host_bytes || data_length != length_bytes as usize {
                return Err(wrong_length);
            }
        }
        SglKind::Transport { length_bytes } => {
            let needed = plan.from_host_bytes.max(plan.to_host_bytes);
            if length_bytes < needed || (plan.from_host_bytes > 0 && length_bytes != needed) {
                return Err(wrong_length);
            }
            if data_length > 0 && data_length != list_bytes {
                return Err(wrong_length);
            }
        }
        // Without data the descriptor says nothing.
        SglKind::Other(_) if plan == Plan::default() && data_length == 0 => {}
        SglKind::Other(_) => return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.do_not_retry()),
    }
    Ok(())
}
