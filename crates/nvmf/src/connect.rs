//! Connect: who may have which queue (Base 2.0 section 6.3).

use crate::config::Home;
use crate::connection::{Arriving, Connection, Held, Phase};
use crate::controller::{Association, Notice, TemperatureRange};
use crate::discovery::is_allowed;
use crate::event::Action;
use crate::notice::{HostAt, HostNotice};
use crate::queue::Queue;
use crate::target::{Passage, Target};
use diecut_nvme::fabrics::{CONNECT_DISABLE_FLOW_CONTROL, ConnectCommand, ConnectData, invalid_parameter};
use diecut_nvme::property::Configuration;
use diecut_nvme::{CNTLID_DYNAMIC, DISCOVERY_SUBSYSTEM_NQN, QualifiedName, Status};
use diecut_units::{Time, mark, mutant};
use std::collections::VecDeque;
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

/// Largest controller id; higher ones are reserved (Base 2.0 section 3.1.2).
const CONTROLLER_ID_MAX: u16 = 0xFFEF;

impl Target {
    /// Associations of a host that must be quiet before its next Connect is answered: those whose connections are gone and
    /// those whose keep-alive ran out, as long as namespaces have commands of them. Live ones stay, for a host may have several
    /// paths to a subsystem. Discovery controllers hold no data.
    pub(crate) fn gone_associations<'a>(
        &'a self,
        subsystem: Option<u32>,
        host: Option<&'a QualifiedName>,
        host_id: &'a [u8; 16],
        now: Time,
    ) -> impl Iterator<Item = u32> + 'a {
        self.associations.iter().filter_map(move |(number, one)| {
            let own = subsystem.is_some() && one.subsystem == subsystem && one.is_of(host, host_id);
            (own && (one.dying || one.expires() <= now)).then_some(number)
        })
    }

    /// Decides on a Connect: answered, parked until associations that are gone are quiet, or moved to another shard.
    pub(crate) fn connect(
        &mut self,
        connection: &mut Connection,
        command: ConnectCommand,
        data: ConnectData,
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        let command_id = command.command_id.get();
        match self.decide(connection, &command, &data, now, actions) {
            Ok(Some(controller_id)) => {
                if command.queue_id.get() == 0
                    && let Some(at) = connection.association.and_then(|number| self.host_at(number))
                {
                    actions.push(Action::Notice(Box::new(HostNotice::Came(at))));
                }
                connection.answer(command_id, Status::SUCCESS, u64::from(controller_id));
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
                actions.push(Action::Notice(Box::new(refused)));
                // The connection stays for another try until its patience ends.
                connection.answer(command_id, status, u64::from(dword));
            }
        }
    }

    /// Who has an association, and where.
    pub(crate) fn host_at(&self, number: u32) -> Option<HostAt> {
        let association = self.associations.get(number)?;
        let subsystem = association.subsystem.map(|index| self.subsystem(index).config.nqn.clone());
        let (host, controller_id) = (association.host.clone(), association.controller_id);
        Some(HostAt { subsystem, host, controller_id })
    }

    /// The controller's id, or nothing if the answer comes later or elsewhere.
    fn decide(
        &mut self,
        connection: &mut Connection,
        command: &ConnectCommand,
        data: &ConnectData,
        now: Time,
        actions: &mut Vec<Action>,
    ) -> Result<Option<u16>, Refusal> {
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
            let index = *self
                .by_nqn
                .get(&nqn)
                .ok_or_else(|| wrong_data(ConnectData::SUBNQN_OFFSET, "there is no such subsystem"))?;
            let config = &self.subsystem(index).config;
            if !is_allowed(config, host.as_ref()) {
                let dword = invalid_parameter(ConnectData::HOSTNQN_OFFSET, true);
                let reason = "the subsystem does not allow this host";
                return Err(Refusal(Status::CONNECT_INVALID_HOST.do_not_retry(), dword, reason));
            }
            if let Home::Elsewhere(shard) = config.home {
                self.hand_over(connection, command, data, shard, actions);
                return Ok(None);
            }
            let passage = self.subsystem(index).passage;
            if passage == Passage::Leaves {
                mark!("nvmf: connect waits for its subsystem's new home");
            }
            if passage == Passage::Arrives {
                mark!("nvmf: connect waits for what comes from the old home");
            }
            let is_early = passage == Passage::Arrives && mutant!("nvmf: connect overtakes its controller");
            if passage != Passage::None && !is_early {
                connection.subsystem = Some(index);
                self.park(connection, command, data);
                return Ok(None);
            }
            Some(index)
        };
        connection.subsystem = subsystem;
        let entries = u32::from(command.queue_size.get()) + 1;
        if entries < 2 || entries > u32::from(self.config.queue_entries_max) {
            let reason = "its queue has fewer or more entries than a queue may have";
            return Err(wrong_command(offset_of!(ConnectCommand, queue_size), reason));
        }
        let flow_control = command.attributes & CONNECT_DISABLE_FLOW_CONTROL == 0;
        let queue = Queue::new(queue_id, entries as u16, flow_control);
        if queue_id == 0 {
            self.connect_admin(connection, queue, command, data, host, now)
        } else {
            self.connect_io(connection, queue, data, host.as_ref(), now).map(Some)
        }
    }

    fn park(&mut self, connection: &mut Connection, command: &ConnectCommand, data: &ConnectData) {
        connection.phase = Phase::Parked;
        connection.parked = Some(Box::new((*command, data.clone())));
        self.parked.push(connection.index);
    }

    fn connect_admin(
        &mut self,
        connection: &mut Connection,
        queue: Queue,
        command: &ConnectCommand,
        data: &ConnectData,
        host: Option<QualifiedName>,
        now: Time,
    ) -> Result<Option<u16>, Refusal> {
        if data.controller_id.get() != CNTLID_DYNAMIC {
            let reason = "it asks for a controller by number; controllers are dynamic";
            return Err(wrong_data(ConnectData::CNTLID_OFFSET, reason));
        }
        let gone: Vec<u32> =
            self.gone_associations(connection.subsystem, host.as_ref(), &data.host_id, now).collect();
        if !gone.is_empty() && !mutant!("nvmf: late write of an old association") {
            mark!("nvmf: connect waits for an association that is gone");
            self.doomed.extend(gone);
            self.park(connection, command, data);
            return Ok(None);
        }
        if let Some(full) = self.table_full(connection.subsystem, host.as_ref()) {
            return Err(busy(full));
        }
        let known = self.associations.iter().find(|(_, one)| {
            one.subsystem == connection.subsystem && one.host == host && !one.is_discovery()
        });
        let host_account = match known.map(|(_, one)| one.host_account) {
            Some(account) => {
                self.budget.join_host(account);
                account
            }
            None => self.budget.add_host(),
        };
        if !self.open_queue(connection, &queue, host_account) {
            self.budget.leave_host(host_account);
            return Err(busy("its subsystem has no memory left for another controller"));
        }
        let keep_alive_ms =
            self.config.keep_alive_ms(connection.subsystem.is_none(), command.keep_alive_ms.get());
        let controller_id = self.free_controller_id(connection.subsystem);
        let association = Association {
            subsystem: connection.subsystem,
            host,
            host_id: data.host_id,
            local: connection.local,
            controller_id,
            configuration: Configuration::default(),
            host_account,
            keep_alive_ms,
            last_traffic: now,
            enable_by: now + self.config.enable_time,
            connections: vec![connection.index],
            dying: false,
            flushes: 0,
            flush_failed: false,
            event_configuration: 0,
            parked_events: Vec::new(),
            namespace_notice: Notice::Quiet,
            discovery_notice: Notice::Quiet,
            changed_namespaces: Vec::new(),
            errors: VecDeque::new(),
            error_count: 0,
            timestamp: None,
            temperature: TemperatureRange::DEFAULT,
        };
        self.tick_by(association.expires());
        connection.association = Some(self.associations.insert(association));
        self.association_count += 1;
        connection.queue = Some(queue);
        connection.phase = Phase::Live;
        Ok(Some(controller_id))
    }

    /// Why there is no room for another controller, if so. Discovery has a table of its own; in the other each subsystem has a part
    /// that is kept for it.
    fn table_full(&self, subsystem: Option<u32>, host: Option<&QualifiedName>) -> Option<&'static str> {
        let config = &self.config;
        let own_host = |one: &Association| one.subsystem == subsystem && one.host.as_ref() == host;
        let of_host = self.associations.iter().filter(|(_, one)| own_host(one)).count();
        let discoveries = self.associations.iter().filter(|(_, one)| one.is_discovery()).count();
        if subsystem.is_none() {
            if discoveries >= config.discoveries_max {
                return Some("there are as many discovery controllers as may be");
            }
            return (of_host >= config.discoveries_per_host_max)
                .then_some("the host has as many discovery controllers as it may have");
        }
        if of_host >= config.associations_per_host_max {
            return Some("the host has as many controllers in this subsystem as it may have");
        }
        let mut counts = vec![0; self.subsystems.len()];
        for (_, one) in self.associations.iter() {
            if let Some(index) = one.subsystem {
                counts[index as usize] += 1;
            }
        }
        let here = |index: usize| self.subsystems[index].as_ref().is_some_and(|one| one.tenant.is_some());
        let present = (0..counts.len()).filter(|&index| here(index));
        let kept_each =
            config.associations_kept.min(config.associations_max / 2 / present.clone().count().max(1));
        let kept_each = if mutant!("nvmf: places of subsystems not kept") { 0 } else { kept_each };
        let others = present.filter(|&index| Some(index as u32) != subsystem);
        let kept: usize = others.map(|index| kept_each.saturating_sub(counts[index])).sum();
        (self.association_count - discoveries + kept >= config.associations_max)
            .then_some("there are as many controllers as may be, but for those kept for other subsystems")
    }

    fn connect_io(
        &mut self,
        connection: &mut Connection,
        queue: Queue,
        data: &ConnectData,
        host: Option<&QualifiedName>,
        now: Time,
    ) -> Result<u16, Refusal> {
        let controller_id = data.controller_id.get();
        let found = self.associations.iter().find(|(_, one)| {
            one.subsystem == connection.subsystem && one.controller_id == controller_id && !one.dying
        });
        let Some((number, association)) = found else {
            let reason = "its I/O queue is for a controller that is not there, or ends";
            return Err(wrong_data(ConnectData::CNTLID_OFFSET, reason));
        };
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
        if queue.id > self.config.io_queues_max || taken {
            let reason =
                if taken { "its controller has that queue" } else { "its queue's number is too high" };
            return Err(wrong_command(offset_of!(ConnectCommand, queue_id), reason));
        }
        let host_account = association.host_account;
        if !self.open_queue(connection, &queue, host_account) {
            return Err(busy("its subsystem has no memory left for another queue"));
        }
        let association = self.associations.get_mut(number).expect("just found");
        association.connections.push(connection.index);
        association.last_traffic = now;
        connection.association = Some(number);
        connection.queue = Some(queue);
        connection.phase = Phase::Live;
        if self.has_late_queue(number) {
            connection.held.insert(Held::FENCED);
        }
        Ok(controller_id)
    }

    /// An id that no controller of the subsystem has; ids go round, so that one just freed is not used at once.
    fn free_controller_id(&mut self, subsystem: Option<u32>) -> u16 {
        loop {
            self.last_controller_id =
                if self.last_controller_id >= CONTROLLER_ID_MAX { 1 } else { self.last_controller_id + 1 };
            let id = self.last_controller_id;
            if !self.associations.iter().any(|(_, one)| one.subsystem == subsystem && one.controller_id == id)
            {
                return id;
            }
        }
    }

    fn hand_over(
        &mut self,
        connection: &mut Connection,
        command: &ConnectCommand,
        data: &ConnectData,
        shard: u16,
        actions: &mut Vec<Action>,
    ) {
        let mut moved = connection.take_moved(Arriving::Connect(Box::new((*command, data.clone()))));
        if mutant!("nvmf: hand-over forgets digests") {
            moved.digests = diecut_nvme::tcp::Digests::default();
        }
        actions.push(Action::HandOver(connection.id, shard, Box::new(moved)));
        // Nothing is left of it here; the driver moves the stream.
        connection.phase = Phase::Closing;
        connection.stream_gone = true;
        self.closing.push(connection.index);
    }
}
