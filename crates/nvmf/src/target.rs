use crate::admin;
use crate::associations::AssociationStatus;
use crate::config::{Home, SubsystemConfig, TargetConfig};
use crate::connect::Connecting;
use crate::connection::{Connection, Phase};
use crate::connections::Connections;
use crate::event::{Action, ConnectionId, Event};
use crate::io::chunks::{answer_failed, is_read};
use crate::io::zones::answer_zones;
use crate::keeping;
use crate::memory::MemoryFigures;
use crate::moved::{Arriving, MovedConnection};
use crate::notice::HostNotice;
use crate::pages;
use crate::placement;
use crate::queue::SlotState;
use crate::sanitize;
use crate::session::Session;
use crate::shared::Shared;
use crate::tcp::Outbox;
use crate::token::{connection_of, is_of_nobody, slot_of};
use crate::watch::CommandOutline;
use diecut_namespace::contract::{NamespaceCompletion, NamespaceError, SourceId, ZoneOutcome};
use diecut_nvme::{QualifiedName, Status};
use diecut_units::{Time, mark, mutant};

/// The target of one shard. See the crate's documentation.
pub struct Target {
    pub(crate) shared: Shared,
    pub(crate) connections: Connections,
}

impl Target {
    /// An empty target: no subsystem but discovery.
    ///
    /// # Panics
    /// If a limit of `config` cannot be kept.
    pub fn new(config: TargetConfig) -> Target {
        config.assert_sound();
        Target { shared: Shared::new(config), connections: Connections::default() }
    }

    /// Handles one event; what is to be done is appended to `actions`.
    ///
    /// # Panics
    /// If the driver breaks a promise (a completion nobody waits for, more bytes than the window).
    #[inline(always)]
    pub fn handle(&mut self, event: Event, now: Time, actions: &mut Vec<Action>) {
        self.shared.now = now;
        match event {
            // Inlined for the event that comes once for each command; others come once for many.
            Event::Completed(completion) => {
                let token = completion.token;
                self.complete(completion, actions);
                crate::reserving::came_back(&mut self.shared, &mut self.connections, token, actions);
            }
            event => self.handle_other(event, now, actions),
        }
        if self.shared.memory.waiting.take_news() {
            actions.push(Action::Notice(Box::new(HostNotice::WaitsForMemory)));
        }
        self.sweep(actions);
    }

    fn handle_other(&mut self, event: Event, now: Time, actions: &mut Vec<Action>) {
        match event {
            Event::Accepted(id, local) => {
                let whole = self.shared.config.controllers.connect_time;
                let connection = Connection::new(id, now + self.shared.memory.connect_patience(whole));
                match self.open_newcomer(actions) {
                    Some(account) => _ = self.add_connection(connection.with(account, local)),
                    None => {
                        mark!("nvmf: no memory for another connection");
                        self.shared.memory.waiting.notice(now);
                        actions.push(Action::Close(id));
                    }
                }
            }
            Event::Adopted(id, moved) => self.adopt(id, *moved, actions),
            Event::Received(id, bytes) => {
                if let Some(index) = self.connections.index_of(id)
                    && !bytes.is_empty()
                {
                    let connection = self.connections.there(index);
                    if connection.phase() != Phase::Closing {
                        connection.inbound.push(bytes);
                        self.run(index, actions);
                    }
                }
            }
            Event::ReceivedInWindow(id, bytes) => {
                if let Some(index) = self.connections.index_of(id)
                    && self.connections.there(index).phase() == Phase::Live
                {
                    let mut connection = self.connections.lend(index);
                    self.session(actions).received_in_window(&mut connection, bytes);
                    self.settle(index, connection, actions);
                }
            }
            Event::Closed(id) => {
                if let Some(index) = self.connections.index_of(id) {
                    self.connections.there(index).outbound.stream_gone = true;
                    self.lose_connection(index, actions);
                }
            }
            Event::Told(tidings) => self.told(&tidings, actions),
            Event::Kept(kept) => keeping::kept(self, &kept, actions),
            Event::Completed(_) => unreachable!("handled by itself"),
            Event::Round => {
                self.relieve(actions);
                self.shared.begin_round();
                while let Some(index) = self.shared.next_turn() {
                    if let Some(connection) = self.connections.get_mut(index) {
                        connection.inbound.runnable = false;
                        self.run(index, actions);
                    }
                }
            }
            Event::Tick => self.tick(actions),
        }
    }

    /// Whether an [`Event::Round`] would do something.
    pub fn has_work(&self) -> bool {
        self.shared.later.has_turns() || self.shared.memory.has_turns()
    }

    /// Sets the memory for connections. What they hold beyond it stays until it is done with.
    ///
    /// # Panics
    /// If it is less than [`TargetConfig::memory_bytes_min`].
    pub fn set_memory(&mut self, memory_bytes: usize) {
        let config = &mut self.shared.config;
        assert!(memory_bytes >= TargetConfig::memory_bytes_min(config.queue.transfer_bytes_max));
        config.memory.limit_bytes = memory_bytes;
        self.shared.memory.set_limit(memory_bytes);
    }

    /// Memory for connections, and what of it they hold, in bytes.
    pub fn memory(&self) -> MemoryFigures {
        self.shared.memory.figures()
    }

    /// Checks that the budget is what connections take, their accounts what they hold, and that nobody is kept in it who is gone. For
    /// checkers.
    ///
    /// # Panics
    /// If not.
    pub fn check_budget(&self) {
        let Shared { memory, subsystems, associations, .. } = &self.shared;
        let tenants = subsystems.iter().filter_map(|(_, one)| one.tenant);
        let hosts = associations.iter().map(|(_, one)| one.host_account);
        memory.check(|| self.connections.iter().map(|(_, one)| one), tenants, hosts);
    }

    /// Gives memory back that was not needed since the last call, and says how many bytes that were. For drivers, once in a while.
    pub fn shrink(&mut self, slabs_max: u32) -> usize {
        self.shared.memory.pool.shrink(slabs_max)
    }

    /// How many bytes of a stream a driver should receive at once.
    #[inline]
    pub fn receive_bytes(&self) -> usize {
        self.shared.memory.receive_bytes()
    }

    /// The subsystem of a connection that has become a queue of a controller; a queue of discovery has none.
    pub fn queue_of(&self, id: ConnectionId) -> Option<Option<&QualifiedName>> {
        let queue = self.connections.by_id(id).filter(|one| one.phase() == Phase::Live)?;
        Some(queue.subsystem.map(|index| &self.shared.subsystems.get(index).config.nqn))
    }

    /// The source of a connection's commands.
    pub fn source_of(&self, id: ConnectionId) -> Option<SourceId> {
        self.connections.index_of(id).map(SourceId)
    }

    /// The output of a connection.
    pub fn outbox(&self, id: ConnectionId) -> Option<&Outbox> {
        Some(&self.connections.by_id(id)?.outbound.outbox)
    }

    /// `bytes` of a connection's output were written to its stream.
    ///
    /// # Panics
    /// If that is more than there was.
    pub fn sent(&mut self, id: ConnectionId, bytes: usize) {
        let Some(index) = self.connections.index_of(id) else { return };
        let connection = self.connections.there(index);
        let released = connection.outbound.outbox.consume(bytes);
        if released > 0 {
            self.shared.memory.sent(connection, released);
        }
        self.shared.memory.balance(connection);
        if connection.outbound.outbox.is_empty() {
            connection.outbound.is_told = false;
        }
        self.make_runnable(index);
        self.forget_if_done(index);
    }

    /// From now on, commands to namespaces are kept for [`Target::take_watched`].
    pub fn watch(&mut self) {
        self.shared.watched.get_or_insert_default();
    }

    /// Takes the commands since the last call, in order.
    pub fn take_watched(&mut self, commands: &mut Vec<CommandOutline>) {
        commands.append(self.shared.watched.get_or_insert_default());
    }

    /// Where the next bytes of a connection's stream go, if they are data of a large write: the driver may receive
    /// right into it and say so with [`Event::ReceivedInWindow`]. Only while nothing received waits to be parsed.
    pub fn receive_window(&mut self, id: ConnectionId) -> Option<&mut [u8]> {
        let index = self.connections.index_of(id)?;
        let connection = self.connections.get_mut(index)?;
        let is_heard = connection.phase() == Phase::Live && !connection.held.is_any();
        if !is_heard || !connection.inbound.backlog.is_empty() {
            return None;
        }
        connection.inbound.receiver.window()
    }

    /// When [`Event::Tick`] is due: not after the next keep-alive or connect time runs out. Cheap to ask.
    pub fn deadline(&self) -> Time {
        self.shared.tick_at.min(self.shared.memory.waiting.stall_at())
    }

    /// Connected controllers.
    pub fn associations(&self) -> Vec<AssociationStatus> {
        self.shared.associations.report(&self.shared.subsystems)
    }

    /// Defines a subsystem, or changes one that exists: hosts that lost their permission are disconnected, hosts that
    /// stay are told of namespaces that came, went or changed; discovery controllers are told.
    pub fn set_subsystem(&mut self, config: SubsystemConfig, now: Time, actions: &mut Vec<Action>) {
        self.shared.now = now;
        let (index, changed) = self.shared.subsystems.define(config);
        pages::find_threshold(&mut self.shared);
        self.seat_tenant(index);
        sanitize::look_at(self, index);
        placement::defined(&mut self.shared, index);
        let Shared { subsystems, associations, later, .. } = &mut self.shared;
        let config = &subsystems.get(index).config;
        let mut told = Vec::new();
        for (number, association) in associations.iter_mut() {
            if association.subsystem != Some(index) {
                continue;
            }
            let is_allowed = crate::discovery::is_allowed(config, association.host.as_ref());
            if !is_allowed || config.home != Home::Here {
                later.doomed.push(number);
                continue;
            }
            for &nsid in &changed {
                association.namespace_changed(nsid);
            }
            association.look_at_path(config);
            told.push(number);
        }
        for number in told {
            self.tell_events(number, actions);
        }
        self.discovery_changed(actions);
        self.sweep(actions);
    }

    /// Takes a subsystem away; its controllers are disconnected. Its namespaces may be deleted when
    /// [`Target::is_quiet`] says so.
    pub fn remove_subsystem(&mut self, nqn: &QualifiedName, now: Time, actions: &mut Vec<Action>) {
        self.shared.now = now;
        let Some(index) = self.shared.subsystems.retire(nqn) else { return };
        sanitize::give_up(self, index, actions);
        placement::give_up(self, index, actions);
        let Shared { associations, later, .. } = &mut self.shared;
        later.doomed.extend(associations.of(Some(index)).map(|(number, _)| number));
        self.discovery_changed(actions);
        self.sweep(actions);
        self.free_subsystem_if_quiet(index);
    }

    /// A subsystem has its part of the memory where it lives.
    pub(crate) fn seat_tenant(&mut self, index: u32) {
        let (subsystem, budget) = (self.shared.subsystems.get_mut(index), &mut self.shared.memory.budget);
        match (subsystem.config.home, subsystem.tenant) {
            (Home::Here, None) => subsystem.tenant = Some(budget.add_tenant()),
            (Home::Elsewhere(_), Some(tenant)) => {
                budget.leave_tenant(tenant);
                subsystem.tenant = None;
            }
            _ => {}
        }
    }

    pub(crate) fn add_connection(&mut self, connection: Connection) -> u32 {
        self.shared.tick_by(connection.deadline);
        self.connections.add(connection)
    }

    fn adopt(&mut self, id: ConnectionId, moved: MovedConnection, actions: &mut Vec<Action>) {
        let deadline = self.shared.now + self.shared.config.controllers.connect_time;
        // It was let in where it came from.
        let account = self.shared.memory.open_newcomer_anyway();
        let (mut connection, arriving) = Connection::adopted(id, deadline, account, moved);
        let (command, data) = match arriving {
            Arriving::Connect(connect) => *connect,
            Arriving::Live(queue) => return self.adopt_live(connection, *queue, actions),
        };
        connection.enter(Phase::Connect);
        let index = self.add_connection(connection);
        let mut connection = self.connections.lend(index);
        self.connecting(&mut connection, actions).connect(command, data);
        self.settle(index, connection, actions);
        self.run(index, actions);
    }

    /// What a connection that is lent needs besides itself.
    #[inline]
    pub(crate) fn session<'a>(&'a mut self, actions: &'a mut Vec<Action>) -> Session<'a> {
        Session { shared: &mut self.shared, connections: &mut self.connections, actions }
    }

    fn connecting<'a>(
        &'a mut self,
        connection: &'a mut Connection,
        actions: &'a mut Vec<Action>,
    ) -> Connecting<'a> {
        Connecting { shared: &mut self.shared, connections: &self.connections, actions, connection }
    }

    /// Parses what a connection received, up to the end of its round.
    pub(crate) fn run(&mut self, index: u32, actions: &mut Vec<Action>) {
        let mut connection = self.connections.lend(index);
        self.session(actions).run(&mut connection);
        self.settle(index, connection, actions);
    }

    /// Memory was given back: those that wait for some have another try, each in its turn.
    fn relieve(&mut self, actions: &mut Vec<Action>) {
        for _ in 0..self.shared.memory.begin_turns() {
            let index = self.shared.memory.waiting.next_turn();
            let waits = |one: &mut Connection| std::mem::take(&mut one.holding.short);
            if !self.connections.get_mut(index).is_some_and(waits) {
                continue;
            }
            let mut connection = self.connections.lend(index);
            if connection.held.is_any() {
                if !mutant!("nvmf: a queue that is held loses its turn for memory") {
                    self.shared.memory.waiting.keep_turn(&mut connection);
                }
            } else if connection.phase() == Phase::Live {
                self.session(actions).go_on(&mut connection);
            }
            self.settle(index, connection, actions);
        }
        self.shared.memory.end_turns();
    }

    /// Puts a connection back and tells the driver what changed.
    pub(crate) fn settle(&mut self, index: u32, mut connection: Box<Connection>, actions: &mut Vec<Action>) {
        connection.tell_output(actions);
        self.shared.memory.balance(&mut connection);
        if connection.phase() != Phase::Closing {
            let wants_pause = !connection.inbound.backlog.is_empty() || connection.inbound.data_wait;
            if wants_pause != connection.inbound.paused {
                mark!("nvmf: stream paused or resumed");
                connection.inbound.paused = wants_pause;
                let id = connection.id;
                actions.push(if wants_pause { Action::Pause(id) } else { Action::Resume(id) });
            }
        }
        self.connections.put_back(index, connection);
        self.make_runnable(index);
    }

    /// Queues a connection for the next round if it could go on.
    #[inline]
    pub(crate) fn make_runnable(&mut self, index: u32) {
        let output_bytes_max = self.shared.config.queue.output_bytes_max;
        let Some(connection) = self.connections.get_mut(index) else { return };
        let waits = connection.holding.short && !connection.awaits_data();
        if !connection.inbound.runnable && !waits && connection.can_run(output_bytes_max) {
            connection.inbound.runnable = true;
            self.shared.later.list_turn(index, connection.is_admin());
        }
    }

    fn complete(&mut self, completion: NamespaceCompletion, actions: &mut Vec<Action>) {
        if is_of_nobody(completion.token) {
            return self.complete_for_nobody(&completion, actions);
        }
        let (index, slot_index) = (connection_of(completion.token), slot_of(completion.token));
        let connection = self.connections.there(index);
        let is_closing = connection.phase() == Phase::Closing;
        let queue = connection.queue.as_mut().expect("I-T8: who has commands in namespaces has a queue");
        let slot = &mut queue.slots[usize::from(slot_index)];
        assert!(slot.state() == SlotState::Submitted, "I-T8: {:?} is answered once", completion.token);
        if std::mem::take(&mut slot.has_second_part) && completion.result.is_ok() && !is_closing {
            return self.go_on_with_second_part(completion, actions);
        }
        let is_report = matches!(completion.zones, Some(ZoneOutcome::Report(_) | ZoneOutcome::Chunks(_)));
        let (command_id, code) = (slot.entry.command_id.get(), slot.entry.opcode);
        let is_answer = completion.data.is_some() || is_report;
        // An admin command has the number of Read.
        let is_admin = queue.id == 0;
        let (is_read, took) = (is_read(code) && !is_admin, self.shared.now.since(slot.arrived));
        // The data of a read are held until they are sent.
        let held_bytes = if is_answer && !is_closing && (is_read || is_report) {
            std::mem::take(&mut slot.account_held)
        } else {
            0
        };
        queue.came_back();
        queue.release(slot_index);
        self.shared.came_back(connection.subsystem);
        if is_closing {
            mark!("nvmf: completion after its connection");
            self.shared.memory.balance(connection);
            self.quiet_if_done(index);
            self.forget_if_done(index);
            return;
        }
        if took >= self.shared.monitored_from && !is_admin {
            pages::record(&mut self.shared, connection.subsystem, code, took, actions);
        }
        match (&completion.result, completion.data) {
            (Ok(()), Some(data)) if is_read && completion.zones.is_none() => {
                connection.answer_with_data(command_id, data, held_bytes);
            }
            (Ok(()), data) if completion.zones.is_some() => {
                let entry = queue.slots[usize::from(slot_index)].entry;
                answer_zones(connection, &mut self.shared, &entry, completion.zones, data, held_bytes);
            }
            (Ok(()), _) => connection.answer(command_id, Status::SUCCESS, 0),
            (Err(error), partial) => {
                let status = self.shared.status_of(error, completion.token);
                // The slot keeps the entry until it is taken again.
                let entry = queue.slots[usize::from(slot_index)].entry;
                answer_failed(connection, &entry, status, completion.zones.as_ref(), partial, held_bytes);
                self.shared.record_error(connection, &entry, status);
            }
        }
        connection.tell_output(actions);
        self.shared.memory.balance(connection);
        if connection.queue.as_ref().is_some_and(|queue| !queue.waiting_for_space.is_empty()) {
            let mut connection = self.connections.lend(index);
            self.session(actions).grant_space(&mut connection);
            self.shared.memory.balance(&mut connection);
            connection.tell_output(actions);
            self.connections.put_back(index, connection);
        }
        if !self.connections.there(index).inbound.backlog.is_empty() {
            self.make_runnable(index);
        }
    }

    /// The namespace did the first part of a command.
    #[cold]
    fn go_on_with_second_part(&mut self, mut completion: NamespaceCompletion, actions: &mut Vec<Action>) {
        let (index, slot_index) = (connection_of(completion.token), slot_of(completion.token));
        let mut connection = self.connections.lend(index);
        let begun = crate::format::erase(&mut self.session(actions), &mut connection, slot_index);
        self.connections.put_back(index, connection);
        if begun.is_err() {
            completion.result = Err(NamespaceError::NoSuchNamespace);
            self.complete(completion, actions);
        }
    }

    /// Decides on the Connect of a connection that waited with it.
    pub(crate) fn connect_parked(&mut self, index: u32, actions: &mut Vec<Action>) {
        self.shared.later.unpark(index);
        let mut connection = self.connections.lend(index);
        let (command, data) = *connection.parked.take().expect("I-T2: parked with its Connect");
        connection.enter(Phase::Connect);
        self.connecting(&mut connection, actions).connect(command, data);
        self.settle(index, connection, actions);
    }

    /// Tells all discovery controllers that the log page changed.
    fn discovery_changed(&mut self, actions: &mut Vec<Action>) {
        self.shared.subsystems.generation += 1;
        let mut numbers = Vec::new();
        for (number, association) in self.shared.associations.iter_mut() {
            if association.is_discovery() {
                association.discovery_changed();
                numbers.push(number);
            }
        }
        for number in numbers {
            self.tell_events(number, actions);
        }
    }

    /// Answers Asynchronous Event Requests with events that wait.
    pub(crate) fn tell_events(&mut self, number: u32, actions: &mut Vec<Action>) {
        let Some(association) = self.shared.associations.get_mut(number) else { return };
        let first = association.connections.first();
        let Some(connection) = first.and_then(|&index| self.connections.get_mut(index)) else { return };
        admin::answer_events(association, connection);
        connection.tell_output(actions);
    }
}
