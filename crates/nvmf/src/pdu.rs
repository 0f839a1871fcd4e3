//! What a PDU does: the way from a received header to a command in a namespace.

use crate::budget::{Account, Budget};
use crate::connection::{Connection, Current, Phase};
use crate::controller::{Answer, EVENT_REQUESTS_MAX, Surroundings, Turn};
use crate::event::Action;
use crate::io::{self, Plan};
use crate::queue::{Slot, SlotIndex, SlotState, TakeError};
use crate::target::Target;
use crate::tcp::{Destination, Step};
use crate::token::{command_token, shutdown_token};
use crate::watch::CommandOutline;
use diecut_namespace::contract::{NamespaceCommand, NamespaceOperation, SourceId};
use diecut_nvme::admin::Abort;
use diecut_nvme::fabrics::{ConnectCommand, ConnectData, PropertyCommand, fctype};
use diecut_nvme::opcode::{self, io as io_opcode};
use diecut_nvme::property::offset;
use diecut_nvme::tcp::{
    ADMIN_IN_CAPSULE_BYTES, CapsuleCommand, DataToController, Digests, FatalError, InitializeRequest,
    PduError, ReadyToTransfer, pdu_type,
};
use diecut_nvme::{SglKind, Status, SubmissionEntry};
use diecut_units::{Buffer, BufferMut, BufferPool, Time, mark, mutant};
use zerocopy::IntoBytes;

impl Target {
    /// Parses what a connection received, up to the end of its round.
    pub(crate) fn run(&mut self, index: u32, now: Time, actions: &mut Vec<Action>) {
        let mut connection = self.connections.lend(index);
        if let Some(number) = connection.association
            && let Some(association) = self.associations.get_mut(number)
        {
            association.last_traffic = now;
        }
        let mut budget = self.config.commands_per_round;
        if !connection.backlog.is_empty()
            && !self.budget.may_go_on(&connection.account)
            && !connection.awaits_data()
        {
            budget = 0;
            self.wait_for_room(&mut connection);
        }
        let data_length_max =
            self.config.h2c_data_bytes_max.max(self.config.in_capsule_bytes).max(ADMIN_IN_CAPSULE_BYTES);
        while budget > 0 && connection.can_run(self.config.output_bytes_max) {
            let bytes = connection.backlog.front().expect("it can run").clone();
            while budget > 0
                && connection.is_open()
                && !connection.data_wait
                && !connection.is_output_full(self.config.output_bytes_max)
            {
                let digests = connection.digests;
                let at = &mut connection.backlog_at;
                let step = connection.receiver.step(&bytes, at, digests, data_length_max, &mut self.pool);
                match step {
                    Step::More => break,
                    Step::Failed(error) => self.fail(&mut connection, error),
                    Step::Header => {
                        budget -= 1;
                        if let Err(error) = self.on_header(&mut connection, now, actions) {
                            self.fail(&mut connection, error);
                        }
                    }
                    Step::Data(data, true) if let Current::Command(slot) = connection.current => {
                        self.on_capsule(&mut connection, slot, data, now, actions);
                    }
                    data => {
                        if let Err(error) = self.on_data(&mut connection, data, now, actions) {
                            self.fail(&mut connection, error);
                        }
                    }
                }
            }
            if connection.backlog_at == bytes.len() && !connection.backlog.is_empty() {
                connection.backlog.pop_front();
                connection.backlog_at = 0;
            }
        }
        self.settle(index, connection, actions);
    }

    pub(crate) fn received_in_window(
        &mut self,
        index: u32,
        bytes: usize,
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        let mut connection = self.connections.lend(index);
        connection.heard += 1;
        if let Some(association) = connection.association.and_then(|number| self.associations.get_mut(number))
        {
            association.last_traffic = now;
        }
        if let Some(step) = connection.receiver.advance_window(bytes)
            && let Err(error) = self.on_data(&mut connection, step, now, actions)
        {
            self.fail(&mut connection, error);
        }
        self.settle(index, connection, actions);
    }

    /// Ends a connection: the host is told why.
    fn fail(&mut self, connection: &mut Connection, error: PduError) {
        connection.terminate(&error);
        self.end(connection);
    }

    /// Ends a connection after what is in its outbox.
    fn end(&mut self, connection: &mut Connection) {
        connection.ending = true;
        connection.backlog.clear();
        connection.backlog_at = 0;
        let is_admin = connection.queue.as_ref().is_some_and(|queue| queue.id == 0);
        if let (true, Some(number)) = (is_admin, connection.association) {
            self.doomed.push(number);
        }
        self.closing.push(connection.index);
    }

    fn on_header(
        &mut self,
        connection: &mut Connection,
        now: Time,
        actions: &mut Vec<Action>,
    ) -> Result<(), PduError> {
        match (connection.receiver.frame().pdu_type(), connection.phase) {
            (pdu_type::CAPSULE_COMMAND, Phase::Live) => self.on_command(connection, now, actions),
            (pdu_type::H2C_DATA, Phase::Live) => self.on_transfer(connection),
            (pdu_type::CAPSULE_COMMAND, Phase::Connect) => self.on_connect(connection),
            (pdu_type::IC_REQUEST, Phase::Initialize) => {
                let request: InitializeRequest = connection.receiver.header_as();
                request.validate()?;
                connection.receiver.finish_header();
                connection.digests = Digests::decode(request.digests);
                connection.host_alignment = request.host_alignment_bytes();
                connection.answer_initialize(self.config.h2c_data_bytes_max);
                connection.phase = Phase::Connect;
                Ok(())
            }
            (pdu_type::H2C_TERMINATE, _) => {
                // The host said what we did wrong; nothing is answered.
                self.end(connection);
                Ok(())
            }
            (other, _) => Err(PduError::sequence("PDU-Type", u64::from(other))),
        }
    }

    /// The first command of a connection.
    fn on_connect(&mut self, connection: &mut Connection) -> Result<(), PduError> {
        let capsule: CapsuleCommand = connection.receiver.header_as();
        let entry = capsule.entry;
        let command_id = entry.command_id.get();
        let in_capsule = SglKind::InCapsule { offset: 0, length_bytes: ConnectData::SIZE_BYTES as u32 };
        let refusal = if entry.fabrics_type() != Some(fctype::CONNECT) {
            Some(Status::COMMAND_SEQUENCE_ERROR)
        } else if entry.sgl.kind() != in_capsule
            || connection.receiver.frame().data_length() != ConnectData::SIZE_BYTES
        {
            Some(Status::DATA_SGL_LENGTH_INVALID)
        } else {
            None
        };
        match refusal {
            None => {
                connection.current = Current::Connect(Box::new(ConnectCommand::of(&entry)));
                connection.receiver.take_data(Destination::Anywhere);
            }
            Some(status) => refuse(connection, command_id, status.do_not_retry())?,
        }
        Ok(())
    }

    fn on_command(
        &mut self,
        connection: &mut Connection,
        now: Time,
        actions: &mut Vec<Action>,
    ) -> Result<(), PduError> {
        let capsule: CapsuleCommand = connection.receiver.header_as();
        let entry = capsule.entry;
        let command_id = entry.command_id.get();
        let queue = connection.queue.as_mut().expect("live connections have a queue");
        let in_capsule_max =
            if queue.id == 0 { ADMIN_IN_CAPSULE_BYTES } else { self.config.in_capsule_bytes };
        let data_length = connection.receiver.frame().data_length();
        if data_length > in_capsule_max as usize {
            let length = connection.receiver.frame().length();
            return Err(PduError::header("PLEN", 4, length as u64));
        }
        let slot_index = match queue.take(&entry, now) {
            Ok(slot_index) => slot_index,
            Err(TakeError::Full) => {
                return Err(PduError::sequence("SQ overrun by CID", u64::from(command_id)));
            }
            Err(TakeError::IdTaken) if self.take_over_event_request(connection, command_id) => {
                let queue = connection.queue.as_mut().expect("still there");
                queue.take(&entry, now).expect("its id and its slot were just freed")
            }
            Err(TakeError::IdTaken) => {
                return refuse(connection, command_id, Status::COMMAND_ID_CONFLICT.do_not_retry());
            }
        };
        let planned = self
            .plan(connection, &entry)
            .and_then(|plan| check_sgl(&entry, plan, data_length).map(|()| plan));
        let queue = connection.queue.as_mut().expect("still there");
        let plan = match planned {
            Ok(plan) => plan,
            Err(status) => {
                queue.release(slot_index);
                self.record(connection, &entry, status);
                return refuse(connection, command_id, status);
            }
        };
        let slot = &mut queue.slots[usize::from(slot_index)];
        slot.data_bytes = plan.from_host_bytes.max(plan.to_host_bytes);
        if plan.from_host_bytes == 0 {
            connection.receiver.finish_header();
            if plan.to_host_bytes == 0 || charge_slot(&mut self.budget, &mut connection.account, slot) {
                self.execute(connection, slot_index, None, now, actions);
            } else {
                slot.state = SlotState::WaitingForSpace;
                queue.waiting_reads.push_back(slot_index);
                self.wait_for_room(connection);
            }
        } else if data_length > 0 {
            connection.current = Current::Command(slot_index);
            if charge_slot(&mut self.budget, &mut connection.account, slot) {
                connection.receiver.take_data(Destination::Anywhere);
            } else {
                // Its data are next in the stream, so the stream waits.
                connection.data_wait = true;
                self.wait_for_room(connection);
            }
        } else {
            slot.state = SlotState::WaitingForSpace;
            queue.waiting_for_space.push_back(slot_index);
            connection.receiver.finish_header();
            self.grant_space(connection, now, actions);
        }
        Ok(())
    }

    /// Another try of a connection that waited for memory.
    pub(crate) fn go_on(&mut self, connection: &mut Connection, now: Time, actions: &mut Vec<Action>) {
        if connection.data_wait {
            let Current::Command(slot_index) = connection.current else {
                unreachable!("the data of a command wait")
            };
            let queue = connection.queue.as_mut().expect("it has commands");
            let slot = &mut queue.slots[usize::from(slot_index)];
            if !charge_slot(&mut self.budget, &mut connection.account, slot) {
                return self.wait_for_room(connection);
            }
            connection.data_wait = false;
            connection.receiver.take_data(Destination::Anywhere);
        }
        self.grant_space(connection, now, actions);
        if !connection.backlog.is_empty()
            && !self.budget.may_go_on(&connection.account)
            && !connection.awaits_data()
        {
            self.wait_for_room(connection);
        }
    }

    /// Drops an event request that has this command id, without an answer. Hosts take them back in silence and use the id
    /// again (SPDK does, before it shuts a controller down); whether the namespace has a command of the id is another matter.
    fn take_over_event_request(&mut self, connection: &mut Connection, command_id: u16) -> bool {
        let queue = connection.queue.as_mut().expect("live connections have a queue");
        let Some(slot) = queue.find(command_id) else { return false };
        if queue.slots[usize::from(slot)].state != SlotState::Parked {
            return false;
        }
        let number = connection.association.expect("live connections have an association");
        let association = self.associations.get_mut(number).expect("connections keep their association");
        association.parked_events.retain(|&parked| parked != slot);
        queue.release(slot);
        mark!("nvmf: event request dropped for its command id");
        true
    }

    /// Checks a command before its data move.
    #[inline]
    fn plan(&self, connection: &Connection, entry: &SubmissionEntry) -> Result<Plan, Status> {
        // Fabrics always use SGLs (Base 2.0 section 4.1: PSDT 01b), and no two commands of ours fuse.
        if entry.psdt() != 1 || entry.fuse() != 0 {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        let queue = connection.queue.as_ref().expect("live connections have a queue");
        let number = connection.association.expect("live connections have an association");
        let association = self.associations.get(number).expect("connections keep their association");
        if let Some(kind) = entry.fabrics_type() {
            return match kind {
                fctype::PROPERTY_GET | fctype::PROPERTY_SET if queue.id == 0 => Ok(Plan::default()),
                fctype::PROPERTY_GET | fctype::PROPERTY_SET => Err(Status::INVALID_QUEUE_TYPE.do_not_retry()),
                fctype::CONNECT => Err(Status::COMMAND_SEQUENCE_ERROR.do_not_retry()),
                _ => Err(Status::INVALID_OPCODE.do_not_retry()),
            };
        }
        if queue.id == 0 {
            return association.plan(entry, &self.config);
        }
        if !association.configuration.enabled() || association.dying {
            return Err(Status::ABORTED_SQ_DELETION);
        }
        let subsystem = connection.subsystem.expect("only subsystems have I/O queues");
        io::plan(&self.subsystem(subsystem).config, entry, self.config.transfer_bytes_max)
    }

    fn record(&mut self, connection: &Connection, entry: &SubmissionEntry, status: Status) {
        let queue_id = connection.queue.as_ref().map_or(0, |queue| queue.id);
        if let Some(association) = connection.association.and_then(|number| self.associations.get_mut(number))
        {
            association.record_error(queue_id, entry, status);
        }
    }

    /// Executes reads that waited for memory, and sends R2Ts while there is space for what they ask.
    pub(crate) fn grant_space(&mut self, connection: &mut Connection, now: Time, actions: &mut Vec<Action>) {
        while let Some(queue) = &mut connection.queue
            && let Some(&slot_index) = queue.waiting_reads.front()
        {
            let slot = &mut queue.slots[usize::from(slot_index)];
            if !charge_slot(&mut self.budget, &mut connection.account, slot) {
                self.wait_for_room(connection);
                break;
            }
            queue.waiting_reads.pop_front();
            self.execute(connection, slot_index, None, now, actions);
        }
        let queue = connection.queue.as_mut().expect("it has commands");
        while let Some(&slot_index) = queue.waiting_for_space.front() {
            let slot = &mut queue.slots[usize::from(slot_index)];
            let needed = slot.data_bytes as usize;
            if queue.gather_bytes + needed > self.config.gather_bytes_max {
                mark!("nvmf: write waits for buffer space");
                return;
            }
            if !charge_slot(&mut self.budget, &mut connection.account, slot) {
                return self.wait_for_room(connection);
            }
            queue.waiting_for_space.pop_front();
            queue.gather_bytes += needed;
            slot.gather_held = slot.data_bytes;
            slot.gathered = Some(self.pool.take(needed));
            slot.state = SlotState::Transferring;
            let asked = slot.data_bytes.min(self.config.h2c_data_bytes_max);
            slot.asked_end = asked;
            let request =
                ReadyToTransfer::new(slot.entry.command_id.get(), slot_index, 0, asked, connection.digests);
            connection.outbox.put_header(request.as_bytes(), connection.digests);
        }
    }

    /// H2CData: a part of what an R2T asked for.
    fn on_transfer(&mut self, connection: &mut Connection) -> Result<(), PduError> {
        let header: DataToController = connection.receiver.header_as();
        let queue = connection.queue.as_mut().expect("live connections have a queue");
        let tag = header.transfer_tag.get();
        let out_of_range = |field, value: u32| PduError {
            fatal: FatalError::DataOutOfRange,
            information: 0,
            field,
            value: u64::from(value),
        };
        let slot = queue
            .slots
            .get_mut(usize::from(tag))
            .filter(|slot| slot.state == SlotState::Transferring)
            .ok_or_else(|| PduError::header("TTAG", 10, u64::from(tag)))?;
        if slot.entry.command_id != header.command_id {
            return Err(PduError::header("CCCID", 8, u64::from(header.command_id.get())));
        }
        let (start, length) = (header.offset.get(), header.length.get());
        if length as usize != connection.receiver.frame().data_length() {
            return Err(PduError::header("DATAL", 16, u64::from(length)));
        }
        // Data come in order (TCP 1.0 section 3.3.2.1): the next byte is the only right start.
        if start != slot.received && !mutant!("nvmf: data out of order") {
            return Err(out_of_range("DATAO", start));
        }
        if length > self.config.h2c_data_bytes_max || length > slot.asked_end - slot.received {
            return Err(out_of_range("DATAL", length));
        }
        if header.is_last() != (start + length == slot.asked_end) {
            return Err(PduError::header("LAST_PDU", 1, u64::from(header.common.flags)));
        }
        let buffer = slot.gathered.take().expect("lent to one PDU at a time");
        connection.current = Current::Transfer(tag, length);
        connection.receiver.take_data(Destination::Into(buffer, start as usize));
        Ok(())
    }

    /// The data of a command came whole with its capsule.
    #[inline(always)]
    fn on_capsule(
        &mut self,
        connection: &mut Connection,
        slot: SlotIndex,
        mut data: Buffer,
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        connection.current = Current::Nothing;
        let queue = connection.queue.as_mut().expect("live connections have a queue");
        if queue.id > 0 && data.slab_bytes() > BufferPool::slab_bytes(data.len()) {
            match self.may_pin() {
                true => queue.slots[usize::from(slot)].pins = true,
                false => data = self.pool.copy_of(&data).freeze(),
            }
        }
        self.execute(connection, slot, Some(data), now, actions);
    }

    fn on_data(
        &mut self,
        connection: &mut Connection,
        step: Step,
        now: Time,
        actions: &mut Vec<Action>,
    ) -> Result<(), PduError> {
        let current = std::mem::replace(&mut connection.current, Current::Nothing);
        match (step, current) {
            (Step::Data(data, true), Current::Command(slot)) => {
                self.on_capsule(connection, slot, data, now, actions);
            }
            (Step::Data(_, false), Current::Command(slot)) => self.digest_failed(connection, slot),
            (Step::Data(data, right), Current::Connect(command)) => {
                if right {
                    let data = ConnectData::decode(&data).expect("its length was checked");
                    self.connect(connection, *command, data, now, actions);
                } else {
                    connection.answer(command.command_id.get(), Status::TRANSIENT_TRANSPORT_ERROR, 0);
                }
            }
            (Step::Filled(buffer, right), Current::Transfer(slot, length)) => {
                self.note_transfer(connection, slot, length, right);
                self.transferred(connection, slot, buffer, now, actions);
            }
            (Step::Skipped, Current::Refused(command_id, status)) => connection.answer(command_id, status, 0),
            (step, current) => unreachable!("{step:?} for {current:?}"),
        }
        Ok(())
    }

    /// A data digest was wrong: for this command only, and worth another try (TCP 1.0 section 3.3.1.1).
    fn digest_failed(&mut self, connection: &mut Connection, slot: SlotIndex) {
        mark!("nvmf: data digest wrong");
        let queue = connection.queue.as_mut().expect("live connections have a queue");
        let entry = queue.slots[usize::from(slot)].entry;
        queue.release(slot);
        self.record(connection, &entry, Status::TRANSIENT_TRANSPORT_ERROR);
        connection.answer(entry.command_id.get(), Status::TRANSIENT_TRANSPORT_ERROR, 0);
    }

    fn note_transfer(&mut self, connection: &mut Connection, slot: SlotIndex, length: u32, right: bool) {
        let queue = connection.queue.as_mut().expect("live connections have a queue");
        let slot = &mut queue.slots[usize::from(slot)];
        slot.received += length;
        slot.digest_failed |= !right && !mutant!("nvmf: data digest ignored");
    }

    /// The data of a command came a part further: wait, ask for more, or execute.
    fn transferred(
        &mut self,
        connection: &mut Connection,
        slot_index: SlotIndex,
        buffer: BufferMut,
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        let digests = connection.digests;
        let queue = connection.queue.as_mut().expect("live connections have a queue");
        let slot = &mut queue.slots[usize::from(slot_index)];
        if slot.received < slot.asked_end {
            slot.gathered = Some(buffer);
        } else if slot.received < slot.data_bytes {
            slot.gathered = Some(buffer);
            let asked = (slot.data_bytes - slot.received).min(self.config.h2c_data_bytes_max);
            let request =
                ReadyToTransfer::new(slot.entry.command_id.get(), slot_index, slot.received, asked, digests);
            mark!("nvmf: several R2Ts for one command");
            slot.asked_end = slot.received + asked;
            connection.outbox.put_header(request.as_bytes(), digests);
        } else {
            if slot.digest_failed {
                drop(buffer);
                self.digest_failed(connection, slot_index);
            } else {
                self.execute(connection, slot_index, Some(buffer.freeze()), now, actions);
            }
            // No answer of a namespace follows where the command failed, or where there was nothing to do.
            self.grant_space(connection, now, actions);
        }
    }

    /// A command with all its data.
    #[inline]
    fn execute(
        &mut self,
        connection: &mut Connection,
        slot_index: SlotIndex,
        data: Option<Buffer>,
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        let queue = connection.queue.as_mut().expect("live connections have a queue");
        let entry = queue.slots[usize::from(slot_index)].entry;
        if queue.id == 0 || entry.opcode == opcode::FABRICS {
            self.execute_admin(connection, slot_index, &entry, data, now, actions);
            return;
        }
        let index = connection.subsystem.expect("only subsystems have I/O queues");
        let subsystem = self.subsystems[index as usize].as_mut().expect("associations keep their subsystem");
        let slot = &mut queue.slots[usize::from(slot_index)];
        // A namespace may have gone while data came in.
        let operation = match subsystem.config.namespaces.get(&entry.nsid.get()) {
            None => Err(Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry()),
            Some(namespace) => io::operation(namespace, &entry, data, &mut self.pool)
                .map(|operation| operation.map(|operation| (namespace.namespace, operation))),
        };
        match operation {
            Ok(Some((namespace, operation))) => {
                let bytes = u64::from(slot.data_bytes);
                match entry.opcode {
                    io_opcode::READ => {
                        slot.read_held = slot.data_bytes;
                        queue.read_bytes += slot.data_bytes as usize;
                        subsystem.traffic.read_commands += 1;
                        subsystem.traffic.read_bytes += bytes;
                    }
                    io_opcode::COMPARE => subsystem.traffic.read_commands += 1,
                    io_opcode::WRITE => {
                        subsystem.traffic.write_commands += 1;
                        subsystem.traffic.written_bytes += bytes;
                    }
                    _ => {}
                }
                slot.state = SlotState::Submitted;
                queue.submitted += 1;
                let command = NamespaceCommand {
                    token: command_token(connection.index, slot_index),
                    namespace,
                    source: SourceId(connection.index),
                    arrived: slot.arrived,
                    operation,
                };
                if let Some(watched) = &mut self.watched {
                    watched.push(CommandOutline::of(&command));
                }
                actions.push(Action::Submit(command));
            }
            Ok(None) => {
                queue.release(slot_index);
                connection.answer(entry.command_id.get(), Status::SUCCESS, 0);
            }
            Err(status) => {
                queue.release(slot_index);
                self.record(connection, &entry, status);
                connection.answer(entry.command_id.get(), status, 0);
            }
        }
    }

    fn execute_admin(
        &mut self,
        connection: &mut Connection,
        slot_index: SlotIndex,
        entry: &SubmissionEntry,
        data: Option<Buffer>,
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        let number = connection.association.expect("live connections have an association");
        let command_id = entry.command_id.get();
        if entry.opcode == opcode::admin::ASYNCHRONOUS_EVENT_REQUEST {
            let association = self.associations.get_mut(number).expect("connections keep their association");
            if association.parked_events.len() >= EVENT_REQUESTS_MAX {
                connection.queue.as_mut().expect("the admin queue").release(slot_index);
                let status = Status::ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED.do_not_retry();
                connection.answer(command_id, status, 0);
                return;
            }
            let queue = connection.queue.as_mut().expect("the admin queue");
            queue.slots[usize::from(slot_index)].state = SlotState::Parked;
            association.parked_events.push(slot_index);
            Target::answer_events(association, connection);
            return;
        }
        let answer = if entry.opcode == opcode::FABRICS {
            self.property(connection, number, entry, actions)
        } else if entry.opcode == opcode::admin::ABORT {
            self.abort(connection, number, entry, actions)
        } else {
            self.execute_controller(number, entry, data.as_deref(), now)
        };
        let queue = connection.queue.as_mut().expect("the admin queue");
        let slot = &mut queue.slots[usize::from(slot_index)];
        let room = slot.data_bytes as usize;
        let is_page = matches!(&answer, Answer::Data(page) if !page.is_empty() && room > 0);
        // What was asked for with the command is held until the answer is sent.
        let held_bytes = if is_page { std::mem::take(&mut slot.account_held) } else { 0 };
        queue.release(slot_index);
        match answer {
            Answer::Result(result) => connection.answer(command_id, Status::SUCCESS, result),
            Answer::Data(mut page) => {
                page.truncate(room);
                if page.is_empty() {
                    connection.answer(command_id, Status::SUCCESS, 0);
                } else {
                    connection.answer_with_data(command_id, self.pool.copy_of(&page).freeze(), held_bytes);
                }
            }
            Answer::Fail(status) => {
                self.record(connection, entry, status);
                connection.answer(command_id, status, 0);
            }
        }
        let association = self.associations.get_mut(number).expect("connections keep their association");
        Target::answer_events(association, connection);
    }

    fn execute_controller(
        &mut self,
        number: u32,
        entry: &SubmissionEntry,
        data: Option<&[u8]>,
        now: Time,
    ) -> Answer {
        let subsystem = self.associations.get(number).expect("there").subsystem;
        let controllers = {
            let mut ids: Vec<u16> = self
                .associations
                .iter()
                .filter(|(_, one)| one.subsystem == subsystem)
                .map(|(_, one)| one.controller_id)
                .collect();
            ids.sort_unstable();
            ids
        };
        let own = subsystem.map(|index| self.subsystems[index as usize].as_ref().expect("there"));
        let around = Surroundings {
            config: &self.config,
            subsystem: own.map(|one| &one.config),
            health: own.map(|one| one.health).unwrap_or_default(),
            traffic: own.map(|one| one.traffic).unwrap_or_default(),
            all_subsystems: &self.subsystems,
            generation: self.generation,
            now,
            controllers,
        };
        let association = self.associations.get_mut(number).expect("there");
        let answer = association.execute(entry, data, around);
        let expires = association.expires(); // KATO can be set as a feature
        self.tick_by(expires);
        answer
    }

    fn property(
        &mut self,
        connection: &mut Connection,
        number: u32,
        entry: &SubmissionEntry,
        actions: &mut Vec<Action>,
    ) -> Answer {
        let property = PropertyCommand::of(entry);
        let association = self.associations.get_mut(number).expect("connections keep their association");
        let at = property.offset.get();
        // ATTRIB: 4 bytes or 8; other sizes are reserved (Base 2.0 figures 387 and 390).
        if property.size & 7 > 1 {
            return Answer::Fail(Status::INVALID_FIELD.do_not_retry());
        }
        if entry.fabrics_type() == Some(fctype::PROPERTY_GET) {
            // The admin connection itself is lent out; the others say what they still have in namespaces.
            let io_quiet = association
                .connections
                .iter()
                .filter(|&&index| index != connection.index)
                .all(|&index| self.connections.get(index).is_none_or(|one| one.submitted() == 0));
            return match association.property(at, property.size & 7 == 1, &self.config, io_quiet) {
                Ok(value) => Answer::Result(value),
                Err(status) => Answer::Fail(status),
            };
        }
        match at {
            offset::CC if property.size & 7 == 0 => {
                match association.set_configuration(property.value.get() as u32) {
                    Ok(Turn::GoOn) => Answer::Result(0),
                    Ok(turn) => {
                        // A reset or shutdown takes the I/O queues away; the admin queue stays, so that the host
                        // can read CSTS.
                        let io = association.connections.iter().filter(|&&index| index != connection.index);
                        self.closing.extend(io);
                        if turn == Turn::ShutDown && !mutant!("nvmf: shutdown flushes no cache") {
                            self.flush_caches(connection, number, actions);
                        }
                        Answer::Result(0)
                    }
                    Err(status) => Answer::Fail(status),
                }
            }
            _ => Answer::Fail(Status::INVALID_FIELD.do_not_retry()),
        }
    }

    /// A shutdown is over when what completed before is durable (Base 2.0 section 3.6.2): each namespace with a volatile
    /// cache is flushed on behalf of the admin queue, which stays until that is answered.
    fn flush_caches(&mut self, connection: &mut Connection, number: u32, actions: &mut Vec<Action>) {
        let association = self.associations.get_mut(number).expect("connections keep their association");
        let Some(index) = association.subsystem else { return };
        let subsystem = self.subsystems[index as usize].as_ref().expect("associations keep their subsystem");
        let cached = subsystem.config.namespaces.values().filter(|one| one.properties.volatile_cache);
        for (nth, namespace) in (0..).zip(cached) {
            mark!("nvmf: shutdown flushes a cache");
            association.flushes += 1;
            connection.queue.as_mut().expect("the admin queue").submitted += 1;
            let command = NamespaceCommand {
                token: shutdown_token(connection.index, nth),
                namespace: namespace.namespace,
                source: SourceId(connection.index),
                arrived: self.now,
                operation: NamespaceOperation::Flush,
            };
            if let Some(watched) = &mut self.watched {
                watched.push(CommandOutline::of(&command));
            }
            actions.push(Action::Submit(command));
        }
    }

    /// Abort (Base 2.0 section 5.1): takes back event requests and writes that still wait for buffer space. What a namespace has is
    /// answered as not aborted, and ends at once, or after the piece that it is at.
    fn abort(
        &mut self,
        connection: &mut Connection,
        number: u32,
        entry: &SubmissionEntry,
        actions: &mut Vec<Action>,
    ) -> Answer {
        let abort = Abort::decode(entry);
        let association = self.associations.get_mut(number).expect("connections keep their association");
        let not_aborted = Answer::Result(u64::from(Abort::NOT_ABORTED));
        if abort.queue_id == 0 {
            let queue = connection.queue.as_mut().expect("the admin queue");
            let Some(slot) = queue.find(abort.command_id) else { return not_aborted };
            let Some(position) = association.parked_events.iter().position(|&parked| parked == slot) else {
                return not_aborted;
            };
            association.parked_events.remove(position);
            queue.release(slot);
            connection.answer(abort.command_id, Status::ABORT_REQUESTED, 0);
            return Answer::Result(0);
        }
        for &index in &association.connections {
            let Some(other) = self.connections.get_mut(index) else { continue };
            let Some(queue) = other.queue.as_mut().filter(|queue| queue.id == abort.queue_id) else {
                continue;
            };
            let Some(slot) = queue.find(abort.command_id) else { return not_aborted };
            match queue.slots[usize::from(slot)].state {
                SlotState::WaitingForSpace => {}
                SlotState::Submitted => {
                    let token = command_token(index, slot);
                    actions.push(Action::GiveUp(SourceId(index), Some(token)));
                    return not_aborted;
                }
                _ => return not_aborted,
            }
            if !mutant!("nvmf: aborted command goes on") {
                queue.waiting_for_space.retain(|&waiting| waiting != slot);
                queue.waiting_reads.retain(|&waiting| waiting != slot);
                queue.release(slot);
            }
            mark!("nvmf: command aborted");
            other.answer(abort.command_id, Status::ABORT_REQUESTED, 0);
            self.told_later.push(index);
            return Answer::Result(0);
        }
        not_aborted
    }
}

/// Takes memory for the data of a command from its connection's account, if there is room.
#[inline]
fn charge_slot(budget: &mut Budget, account: &mut Account, slot: &mut Slot) -> bool {
    let bytes = BufferPool::slab_bytes(slot.data_bytes as usize);
    let has_room = budget.charge(account, bytes);
    if has_room {
        slot.account_held = bytes as u32;
    }
    has_room
}

/// Answers a command that is not taken; in-capsule data are skipped first.
fn refuse(connection: &mut Connection, command_id: u16, status: Status) -> Result<(), PduError> {
    if connection.receiver.frame().data_length() > 0 {
        connection.current = Current::Refused(command_id, status);
        connection.receiver.take_data(Destination::Nowhere);
    } else {
        connection.receiver.finish_header();
        connection.answer(command_id, status, 0);
    }
    Ok(())
}

/// Whether the descriptor and the capsule hold what the command needs.
#[inline]
fn check_sgl(entry: &SubmissionEntry, plan: Plan, data_length: usize) -> Result<(), Status> {
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
            if data_length > 0 {
                return Err(wrong_length);
            }
        }
        // Without data the descriptor says nothing.
        SglKind::Other(_) if plan == Plan::default() && data_length == 0 => {}
        SglKind::Other(_) => return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.do_not_retry()),
    }
    Ok(())
}
