//! One connection is handled: from the bytes that came to commands and their data.

use crate::connect::Connecting;
use crate::connection::{Connection, Phase};
use crate::connections::Connections;
use crate::event::Action;
use crate::inbound::Current;
use crate::shared::{ADMIN_COMMANDS_PER_TURN, Shared};
use crate::tcp::{Destination, Step};
use diecut_nvme::fabrics::{ConnectCommand, ConnectData, fctype};
use diecut_nvme::tcp::{
    ADMIN_IN_CAPSULE_BYTES, CapsuleCommand, Digests, InitializeRequest, PduError, pdu_type,
};
use diecut_nvme::{SglKind, Status};

/// What a connection is lent beside while it is handled. Commands are taken and executed in `command`, their data move in `transfer`.
pub(crate) struct Session<'a> {
    pub(crate) shared: &'a mut Shared,
    /// The other connections.
    pub(crate) connections: &'a mut Connections,
    pub(crate) actions: &'a mut Vec<Action>,
}

impl Session<'_> {
    /// Parses what a connection received, up to the end of its round.
    pub(crate) fn run(&mut self, connection: &mut Connection) {
        self.shared.hear(connection.association);
        let mut budget = self.shared.config.queue.commands_per_round;
        if connection.is_admin() {
            budget = budget.min(ADMIN_COMMANDS_PER_TURN).min(self.shared.admin_left);
        }
        if self.shared.memory.must_wait(connection) {
            budget = 0;
            self.shared.memory.wait(connection, self.shared.now);
        }
        let data_length_max = self
            .shared
            .config
            .queue
            .h2c_data_bytes_max
            .max(self.shared.config.queue.in_capsule_bytes)
            .max(ADMIN_IN_CAPSULE_BYTES);
        while budget > 0 && connection.can_run(self.shared.config.queue.output_bytes_max) {
            let bytes = connection.inbound.backlog.front().expect("I-T2: who can run has bytes").clone();
            while budget > 0
                && connection.is_open()
                && !connection.inbound.data_wait
                && !connection.is_output_full(self.shared.config.queue.output_bytes_max)
            {
                let digests = connection.wire.digests;
                let at = &mut connection.inbound.at;
                let step = connection.inbound.receiver.step(
                    &bytes,
                    at,
                    digests,
                    data_length_max,
                    &mut self.shared.memory.pool,
                );
                match step {
                    Step::More => break,
                    Step::Failed(error) => self.fail(connection, error),
                    Step::Header => {
                        budget -= 1;
                        if let Err(error) = self.on_header(connection) {
                            self.fail(connection, error);
                        }
                        if connection.is_admin() {
                            budget = budget.min(self.shared.admin_left);
                        }
                    }
                    Step::Data(data, true) if let Current::Command(slot) = connection.inbound.current => {
                        self.on_capsule(connection, slot, data);
                    }
                    data => {
                        if let Err(error) = self.on_data(connection, data) {
                            self.fail(connection, error);
                        }
                    }
                }
            }
            connection.inbound.advance(bytes.len());
        }
    }

    /// `bytes` of data came right into the window of a connection.
    pub(crate) fn received_in_window(&mut self, connection: &mut Connection, bytes: usize) {
        connection.inbound.heard += 1;
        self.shared.hear(connection.association);
        if let Some(step) = connection.inbound.receiver.advance_window(bytes)
            && let Err(error) = self.on_data(connection, step)
        {
            self.fail(connection, error);
        }
    }

    /// Ends a connection: the host is told why.
    fn fail(&mut self, connection: &mut Connection, error: PduError) {
        connection.terminate(&error);
        self.end(connection);
    }

    /// Ends a connection after what is in its outbox.
    fn end(&mut self, connection: &mut Connection) {
        connection.enter(Phase::Ending);
        connection.inbound.clear();
        self.shared.later.doomed.extend(connection.own_association());
        self.shared.later.closing.push(connection.index);
    }

    fn on_header(&mut self, connection: &mut Connection) -> Result<(), PduError> {
        match (connection.inbound.receiver.frame().pdu_type(), connection.phase()) {
            (pdu_type::CAPSULE_COMMAND, Phase::Live) => self.on_command(connection),
            (pdu_type::H2C_DATA, Phase::Live) => self.on_transfer(connection),
            (pdu_type::CAPSULE_COMMAND, Phase::Connect) => self.on_connect(connection),
            (pdu_type::IC_REQUEST, Phase::Initialize) => {
                let request: InitializeRequest = connection.inbound.receiver.header_as();
                request.validate()?;
                connection.inbound.receiver.finish_header();
                connection.wire.digests = Digests::decode(request.digests);
                connection.wire.host_alignment = request.host_alignment_bytes();
                connection.answer_initialize(self.shared.config.queue.h2c_data_bytes_max);
                connection.enter(Phase::Connect);
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
        let capsule: CapsuleCommand = connection.inbound.receiver.header_as();
        let entry = capsule.entry;
        let command_id = entry.command_id.get();
        let in_capsule = SglKind::InCapsule { offset: 0, length_bytes: ConnectData::SIZE_BYTES as u32 };
        let refusal = if entry.fabrics_type() != Some(fctype::CONNECT) {
            Some(Status::COMMAND_SEQUENCE_ERROR)
        } else if entry.sgl.kind() != in_capsule
            || connection.inbound.receiver.frame().data_length() != ConnectData::SIZE_BYTES
        {
            Some(Status::DATA_SGL_LENGTH_INVALID)
        } else {
            None
        };
        match refusal {
            None => {
                connection.inbound.current = Current::Connect(Box::new(ConnectCommand::of(&entry)));
                connection.inbound.receiver.take_data(Destination::Anywhere);
            }
            Some(status) => connection.refuse(command_id, status.do_not_retry()),
        }
        Ok(())
    }

    /// Another try of a connection that waited for memory.
    pub(crate) fn go_on(&mut self, connection: &mut Connection) {
        if connection.inbound.data_wait {
            let Current::Command(slot_index) = connection.inbound.current else {
                unreachable!("the data of a command wait")
            };
            let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
            let slot = &mut queue.slots[usize::from(slot_index)];
            if !self.shared.memory.charge(&mut connection.holding.account, slot) {
                return self.shared.memory.wait(connection, self.shared.now);
            }
            connection.inbound.data_wait = false;
            connection.inbound.receiver.take_data(Destination::Anywhere);
        }
        self.grant_space(connection);
        if self.shared.memory.must_wait(connection) {
            self.shared.memory.wait(connection, self.shared.now);
        }
    }

    fn on_data(&mut self, connection: &mut Connection, step: Step) -> Result<(), PduError> {
        let current = std::mem::replace(&mut connection.inbound.current, Current::Nothing);
        match (step, current) {
            (Step::Data(data, true), Current::Command(slot)) => {
                self.on_capsule(connection, slot, data);
            }
            (Step::Data(_, false), Current::Command(slot)) => self.digest_failed(connection, slot),
            (Step::Data(data, right), Current::Connect(command)) => {
                if right {
                    let data = ConnectData::decode(&data).expect("I-T12: data are as long as was checked");
                    let (shared, connections) = (&mut *self.shared, &*self.connections);
                    let actions = &mut *self.actions;
                    Connecting { shared, connections, actions, connection }.connect(*command, data);
                } else {
                    connection.answer(command.command_id.get(), Status::TRANSIENT_TRANSPORT_ERROR, 0);
                }
            }
            (Step::Filled(buffer, right), Current::Transfer(slot, length)) => {
                self.note_transfer(connection, slot, length, right);
                self.transferred(connection, slot, buffer);
            }
            (Step::Skipped, Current::Refused(command_id, status)) => connection.answer(command_id, status, 0),
            (step, current) => unreachable!("{step:?} for {current:?}"),
        }
        Ok(())
    }
}
