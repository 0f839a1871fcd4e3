//! Connect: who may have which queue (Base 2.0 section 6.3).

use crate::config::Home;
use crate::connection::{Connection, Held, Phase};
use crate::connections::Connections;
use crate::controller::{Association, KeepAlive, PathAccess};
use crate::discovery::is_allowed;
use crate::event::Action;
use crate::moved::Arriving;
use crate::notice::HostNotice;
use crate::queue::Queue;
use crate::shared::Shared;
use crate::subsystems::Passage;
use diecut_nvme::fabrics::{CONNECT_DISABLE_FLOW_CONTROL, ConnectCommand, ConnectData, invalid_parameter};
use diecut_nvme::{CNTLID_DYNAMIC, DISCOVERY_SUBSYSTEM_NQN, QualifiedName, Status};
use diecut_units::{mark, mutant};
use std::mem::offset_of;

/// A refusal: status and dword 0 for the host, and why for the operator.
struct Refusal(Status, u32, &'static str);

fn wrong_command(offset: usize, reason: &'static str) -> Refusal {
    Refusal(Status::CONNECT_INVALID_PARAMETERS.do_not_retry(), invalid_parameter(offset, false), reason)
}
fn wrong_data(offset: usize, reason: &'static str) -> Refusal {
    Refusal(Status::CONNECT_INVALID_PARAMETERS.do_not_retry(), invalid_parameter(offset, true), reason)
}
/// The host may try again.
fn busy(reason: &'static str) -> Refusal {
    mark!("nvmf: host told that the controller is busy");
    Refusal(Status::CONNECT_CONTROLLER_BUSY, 0, reason)
}

/// What a connection is lent beside while its Connect is decided on.
pub(crate) struct Connecting<'a> {
    pub(crate) shared: &'a mut Shared,
    /// The other connections.
    pub(crate) connections: &'a Connections,
    pub(crate) actions: &'a mut Vec<Action>,
    pub(crate) connection: &'a mut Connection,
}

impl Connecting<'_> {
    /// Decides on a Connect: answered, parked until associations that are gone are quiet, or moved to another shard.
    pub(crate) fn connect(&mut self, command: ConnectCommand, data: ConnectData) {
        let command_id = command.command_id.get();
        match self.decide(&command, &data) {
            Ok(Some(controller_id)) => {
                if command.queue_id.get() == 0
                    && let Some(at) =
                        self.connection.association.and_then(|number| self.shared.host_at(number))
                {
                    self.actions.push(Action::Notice(Box::new(HostNotice::Came(at))));
                }
                self.connection.answer(command_id, Status::SUCCESS, u64::from(controller_id));
            }
            Ok(None) => {}
            Err(Refusal(status, dword, reason)) => {
                let refused = HostNotice::Refused {
                    subsystem: data.subsystem().ok(),
                    host: data.host().ok().flatten(),
                    queue_id: command.queue_id.get(),
                    status,
                    reason,
                };
                self.actions.push(Action::Notice(Box::new(refused)));
                // The connection stays for another try until its patience ends.
                self.connection.answer(command_id, status, u64::from(dword));
            }
        }
    }

    /// The controller's id, or nothing if the answer comes later or elsewhere.
    fn decide(&mut self, command: &ConnectCommand, data: &ConnectData) -> Result<Option<u16>, Refusal> {
        if command.record_format.get() != 0 {
            return Err(Refusal(
                Status::CONNECT_INCOMPATIBLE_FORMAT.do_not_retry(),
                invalid_parameter(offset_of!(ConnectCommand, record_format), false),
                "its Connect has a format that is not known",
            ));
        }
        let nqn = data.subsystem().map_err(|_| {
            wrong_data(ConnectData::SUBNQN_OFFSET, "what it calls the subsystem is no NVMe qualified name")
        })?;
        let host = data.host().map_err(|_| {
            wrong_data(ConnectData::HOSTNQN_OFFSET, "what it calls itself is no NVMe qualified name")
        })?;
        let queue_id = command.queue_id.get();
        let subsystem = if nqn.as_str() == DISCOVERY_SUBSYSTEM_NQN {
            if queue_id != 0 {
                let reason = "a discovery controller has no I/O queues";
                return Err(wrong_command(offset_of!(ConnectCommand, queue_id), reason));
            }
            None
        } else {
            let index = self
                .shared
                .subsystems
                .find(&nqn)
                .ok_or_else(|| wrong_data(ConnectData::SUBNQN_OFFSET, "there is no such subsystem"))?;
            let config = &self.shared.subsystems.get(index).config;
            if !is_allowed(config, host.as_ref()) {
                let dword = invalid_parameter(ConnectData::HOSTNQN_OFFSET, true);
                let reason = "the subsystem does not allow this host";
                return Err(Refusal(Status::CONNECT_INVALID_HOST.do_not_retry(), dword, reason));
            }
            if let Home::Elsewhere(shard) = config.home {
                self.hand_over(command, data, shard);
                return Ok(None);
            }
            let passage = self.shared.subsystems.get(index).passage();
            if passage == Passage::Leaves {
                mark!("nvmf: connect waits for its subsystem's new home");
            }
            if passage == Passage::Arrives {
                mark!("nvmf: connect waits for what comes from the old home");
            }
            let is_early = passage == Passage::Arrives && mutant!("nvmf: connect overtakes its controller");
            if passage != Passage::None && !is_early {
                self.connection.subsystem = Some(index);
                self.park(command, data);
                return Ok(None);
            }
            Some(index)
        };
        self.connection.subsystem = subsystem;
        let entries = u32::from(command.queue_size.get()) + 1;
        if entries < 2 || entries > u32::from(self.shared.config.queue.queue_entries_max) {
            let reason = "its queue has fewer or more entries than a queue may have";
            return Err(wrong_command(offset_of!(ConnectCommand, queue_size), reason));
        }
        let flow_control = command.attributes & CONNECT_DISABLE_FLOW_CONTROL == 0;
        let queue = Queue::new(queue_id, entries as u16, flow_control);
        if queue_id == 0 {
            self.connect_admin(queue, command, data, host)
        } else {
            self.connect_io(queue, data, host.as_ref()).map(Some)
        }
    }

    fn park(&mut self, command: &ConnectCommand, data: &ConnectData) {
        self.connection.parked = Some(Box::new((*command, data.clone())));
        self.connection.enter(Phase::Parked);
        self.shared.later.park(self.connection.index);
    }

    fn connect_admin(
        &mut self,
        queue: Queue,
        command: &ConnectCommand,
        data: &ConnectData,
        host: Option<QualifiedName>,
    ) -> Result<Option<u16>, Refusal> {
        if data.controller_id.get() != CNTLID_DYNAMIC {
            let reason = "it asks for a controller by number; controllers are dynamic";
            return Err(wrong_data(ConnectData::CNTLID_OFFSET, reason));
        }
        let (subsystem, now) = (self.connection.subsystem, self.shared.now);
        let gone: Vec<u32> =
            self.shared.associations.gone(subsystem, host.as_ref(), &data.host_id, now).collect();
        if !gone.is_empty() && !mutant!("nvmf: late write of an old association") {
            mark!("nvmf: connect waits for an association that is gone");
            self.shared.later.doomed.extend(gone);
            self.park(command, data);
            return Ok(None);
        }
        let shared = &mut *self.shared;
        let full =
            shared.associations.table_full(&shared.config, &shared.subsystems, subsystem, host.as_ref());
        if let Some(full) = full {
            return Err(busy(full));
        }
        let controllers_max = shared.config.discovery.controllers_max;
        let displaced = shared.associations.displaced_by_discovery(controllers_max);
        if let Some(displaced) = displaced.filter(|_| subsystem.is_none()) {
            mark!("nvmf: a discovery controller makes room");
            shared.later.doomed.push(displaced);
            self.park(command, data);
            return Ok(None);
        }
        let known =
            shared.associations.of(subsystem).find(|(_, one)| one.host == host && !one.is_discovery());
        let host_account = match known.map(|(_, one)| one.host_account) {
            Some(account) => {
                shared.memory.budget.join_host(account);
                account
            }
            None => shared.memory.budget.add_host(),
        };
        if !self.open_queue(&queue, host_account) {
            self.shared.memory.budget.leave_host(host_account);
            return Err(busy("its subsystem has no memory left for another controller"));
        }
        let keep_alive_ms =
            self.shared.config.keep_alive_ms(subsystem.is_none(), command.keep_alive_ms.get());
        let controller_id = self.shared.associations.free_controller_id(subsystem);
        let keep_alive = KeepAlive { timeout_ms: keep_alive_ms, heard_at: now };
        let enable_by = now + self.shared.config.controllers.enable_time;
        let mut association =
            Association::new(subsystem, data.host_id, host_account, controller_id, keep_alive, enable_by);
        let (local, subsystems) = (self.connection.local, &self.shared.subsystems);
        let path = subsystem.map(|index| PathAccess::new(&subsystems.get(index).config, local));
        association.path = path.unwrap_or(PathAccess::of_discovery(local));
        association.host = host;
        association.connections.push(self.connection.index);
        self.shared.tick_by(association.expires());
        self.connection.association = Some(self.shared.associations.add(association));
        self.connection.queue = Some(queue);
        self.connection.enter(Phase::Live);
        Ok(Some(controller_id))
    }

    fn connect_io(
        &mut self,
        queue: Queue,
        data: &ConnectData,
        host: Option<&QualifiedName>,
    ) -> Result<u16, Refusal> {
        let controller_id = data.controller_id.get();
        let Some(number) = self.shared.associations.find(self.connection.subsystem, controller_id) else {
            let reason = "its I/O queue is for a controller that is not there, or ends";
            return Err(wrong_data(ConnectData::CNTLID_OFFSET, reason));
        };
        let association = self.shared.associations.kept(number);
        if association.host.as_ref() != host {
            let reason = "its I/O queue is for the controller of a host with another name";
            return Err(wrong_data(ConnectData::HOSTNQN_OFFSET, reason));
        }
        if association.host_id != data.host_id {
            return Err(wrong_data(
                0,
                "its I/O queue is for the controller of a host with another host identifier",
            ));
        }
        if !association.configuration.enabled() {
            let reason = "its I/O queue is for a controller that is not enabled";
            return Err(Refusal(Status::COMMAND_SEQUENCE_ERROR.do_not_retry(), 0, reason));
        }
        // A queue that is being torn down still has its id until its commands are back.
        let taken = association.connections.iter().any(|&other| {
            let other = self.connections.get(other).and_then(|one| one.queue.as_ref());
            other.is_some_and(|other| other.id == queue.id)
        });
        if queue.id > self.shared.config.controllers.io_queues_max || taken {
            let reason =
                if taken { "its controller has that queue" } else { "its queue's number is too high" };
            return Err(wrong_command(offset_of!(ConnectCommand, queue_id), reason));
        }
        let host_account = association.host_account;
        if !self.open_queue(&queue, host_account) {
            return Err(busy("its subsystem has no memory left for another queue"));
        }
        let association = self.shared.associations.kept_mut(number);
        assert!(!association.is_ending(), "I-T3: an association that ends takes no queue");
        association.connections.push(self.connection.index);
        association.keep_alive.heard_at = self.shared.now;
        self.connection.association = Some(number);
        self.connection.queue = Some(queue);
        self.connection.enter(Phase::Live);
        if self.connections.has_late(&self.shared.associations.queues_of_host(number)) {
            self.connection.held.insert(Held::FENCED);
        }
        Ok(controller_id)
    }

    /// Makes the account of a newcomer that of a queue, if there is room for one.
    fn open_queue(&mut self, queue: &Queue, host: u32) -> bool {
        let tenant = self.shared.tenant_of(self.connection.subsystem);
        self.shared.memory.open_queue(self.connection, queue, tenant, host, &self.shared.config)
    }

    fn hand_over(&mut self, command: &ConnectCommand, data: &ConnectData, shard: u16) {
        let mut moved = self.connection.take_moved(Arriving::Connect(Box::new((*command, data.clone()))));
        if mutant!("nvmf: hand-over forgets digests") {
            moved.digests = diecut_nvme::tcp::Digests::default();
        }
        self.actions.push(Action::HandOver(self.connection.id, shard, Box::new(moved)));
        // Nothing is left of it here; the driver moves the stream.
        self.connection.enter(Phase::Closing);
        self.connection.outbound.stream_gone = true;
        self.shared.later.closing.push(self.connection.index);
    }
}
