use crate::budget::{Account, Budget, NEWCOMERS, NEWCOMERS_SHARE};
use crate::config::{Health, Home, SubsystemConfig, TargetConfig};
use crate::connection::{Arriving, Connection, Current, Held, MovedConnection, Phase};
use crate::controller::{Association, Traffic};
use crate::event::{Action, ConnectionId, Event};
use crate::notice::HostNotice;
use crate::queue::{Queue, SlotState};
use crate::status::status_of;
use crate::tcp::Outbox;
use crate::token::{connection_of, is_of_shutdown};
use crate::watch::CommandOutline;
use diecut_namespace::contract::{NamespaceCompletion, SourceId};
use diecut_nvme::opcode::io as opcode;
use diecut_nvme::{QualifiedName, Status};
use diecut_units::{BufferPool, Slab, Span, Time, mark, mutant};
use std::collections::{BTreeMap, VecDeque};

/// A subsystem and what is counted for it.
#[derive(Debug)]
pub(crate) struct Subsystem {
    pub(crate) config: SubsystemConfig,
    pub(crate) health: Health,
    pub(crate) traffic: Traffic,
    pub(crate) passage: Passage,
    /// Its account's tenant, where it lives here.
    pub(crate) tenant: Option<u32>,
}

/// Where a subsystem is on its way from one shard to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// It stays.
    None,
    /// It is about to leave: its hosts are not listened to, and Connects wait.
    Leaves,
    /// It lives here, and connections of it may still come. Hosts are listened to when the last one is here: a reset must
    /// find all queues that it ends, and a Connect its controller, or the ids that are taken.
    Arrives,
}

/// One connected controller, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssociationStatus {
    /// NQN of the subsystem.
    pub subsystem: String,
    /// NQN of the host; empty if it gave none.
    pub host: String,
    /// Controller id.
    pub controller_id: u16,
    /// I/O queues connected.
    pub io_queues: u16,
}

/// A receive buffer that a command may keep for its data; a copy of the data is smaller and costs more.
const PIN_BYTES: usize = 64 << 10;
/// Memory of a connection that is no queue yet: what it says, what it is answered, and its Connect.
const NEWCOMER_BYTES: usize = 8 << 10;
/// Memory of a queue besides its slots, and of a controller besides its queues.
const QUEUE_BYTES: usize = 16 << 10;
const CONTROLLER_BYTES: usize = 16 << 10;
/// While newcomers hold most of what they may, they have one in so many parts of the time until Connect.
const PRESSED_SHARE: u64 = 5;
/// Connections that wait for memory looked at in one round.
const SHORT_TURNS_PER_ROUND: usize = 32;
/// How long it is not told again that memory is short.
const SHORT_TOLD_FOR: Span = Span::from_secs(60);
/// What a driver should receive at once when memory is plenty, and when it is not.
const RECEIVE_BYTES: usize = 64 << 10;
const RECEIVE_SHORT_BYTES: usize = 8 << 10;

/// Of the memory of connections, the part that accounts share out; the rest is for receive buffers that commands keep.
fn budget_of(memory_bytes: usize) -> usize {
    memory_bytes / 8 * 7
}

/// Receive buffers that commands may keep in this much memory of connections: the part that accounts do not share out.
fn pins_max(memory_bytes: usize) -> usize {
    memory_bytes / 8 / PIN_BYTES
}

/// Newcomers for which this much memory of connections has room, while it is not in use for others.
pub(crate) fn newcomers_max(memory_bytes: usize) -> usize {
    budget_of(memory_bytes) / NEWCOMERS_SHARE / NEWCOMER_BYTES
}

/// Memory of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryFigures {
    /// What they may hold, in bytes.
    pub limit_bytes: usize,
    /// What they hold, with their reserves, in bytes.
    pub held_bytes: usize,
    /// What there is of it in fact: queues and other state of connections, and buffers in use and free, in bytes.
    pub used_bytes: usize,
    /// Connections that wait for memory.
    pub waiting: usize,
}

/// The target of one shard. See the crate's documentation.
pub struct Target {
    pub(crate) config: TargetConfig,
    pub(crate) subsystems: Vec<Option<Subsystem>>,
    pub(crate) by_nqn: BTreeMap<QualifiedName, u32>,
    pub(crate) associations: Slab<Association>,
    pub(crate) association_count: usize,
    pub(crate) connections: Slab<Box<Connection>>,
    pub(crate) by_id: BTreeMap<ConnectionId, u32>,
    pub(crate) pool: BufferPool,
    /// Connections in the order in which they came; those in front may have become queues, or be gone.
    newcomers: VecDeque<ConnectionId>,
    /// Connections whose round was over before their bytes were.
    pub(crate) runnable: VecDeque<u32>,
    /// Connections whose Connect waits for quiet.
    pub(crate) parked: Vec<u32>,
    /// Associations to end when no connection is lent out.
    pub(crate) doomed: Vec<u32>,
    /// I/O connections to close, for the same reason.
    pub(crate) closing: Vec<u32>,
    /// Connections that got output while another one was handled.
    pub(crate) told_later: Vec<u32>,
    /// What connections may hold.
    pub(crate) budget: Budget,
    /// Receive buffers that commands keep.
    pub(crate) pins: usize,
    pins_max: usize,
    /// Connections that wait for memory, in the order of their turns.
    pub(crate) short: VecDeque<u32>,
    /// How many of them have another try before something is given back again.
    tries_left: usize,
    /// When those that hold much and do nothing are looked for.
    stall_at: Time,
    /// That memory is short is not told again before this, and whether it is to be told now.
    short_told_until: Time,
    is_short_news: bool,
    /// GENCTR of the discovery log page.
    pub(crate) generation: u64,
    pub(crate) last_controller_id: u16,
    /// Time of the current event.
    pub(crate) now: Time,
    /// No patience ends before this. Traffic moves keep-alives on without touching it, so a tick may find nothing.
    tick_at: Time,
    /// Commands since they were last taken, if someone watches.
    pub(crate) watched: Option<Vec<CommandOutline>>,
}

impl Target {
    /// An empty target: no subsystem but discovery.
    ///
    /// # Panics
    /// If a limit of `config` cannot be kept.
    pub fn new(config: TargetConfig) -> Target {
        config.assert_sound();
        let mut pool = BufferPool::new();
        pool.set_limit(config.memory_bytes);
        Target {
            budget: Budget::new(budget_of(config.memory_bytes)),
            pins: 0,
            pins_max: pins_max(config.memory_bytes),
            short: VecDeque::new(),
            tries_left: 0,
            stall_at: Time::NEVER,
            short_told_until: Time::ZERO,
            is_short_news: false,
            config,
            subsystems: Vec::new(),
            by_nqn: BTreeMap::new(),
            associations: Slab::new(),
            association_count: 0,
            connections: Slab::new(),
            by_id: BTreeMap::new(),
            pool,
            newcomers: VecDeque::new(),
            runnable: VecDeque::new(),
            parked: Vec::new(),
            doomed: Vec::new(),
            closing: Vec::new(),
            told_later: Vec::new(),
            generation: 0,
            last_controller_id: 0,
            now: Time::ZERO,
            tick_at: Time::NEVER,
            watched: None,
        }
    }

    /// Handles one event; what is to be done is appended to `actions`.
    ///
    /// # Panics
    /// If the driver breaks a promise (a completion nobody waits for, more bytes than the window).
    pub fn handle(&mut self, event: Event, now: Time, actions: &mut Vec<Action>) {
        self.now = now;
        match event {
            Event::Accepted(id, local) => {
                let connection = Connection::new(id, now + self.connect_patience());
                match self.open_newcomer(actions) {
                    Some(account) => {
                        self.add_connection(Connection { account, local, ..connection });
                    }
                    None => {
                        mark!("nvmf: no memory for another connection");
                        self.notice_short();
                        actions.push(Action::Close(id));
                    }
                }
            }
            Event::Adopted(id, moved) => self.adopt(id, *moved, now, actions),
            Event::Received(id, bytes) => {
                if let Some(&index) = self.by_id.get(&id)
                    && !bytes.is_empty()
                {
                    let connection = self.connections.get_mut(index).expect("known by its id");
                    if connection.phase != Phase::Closing {
                        connection.heard += 1;
                        connection.backlog.push_back(bytes);
                        self.run(index, now, actions);
                    }
                }
            }
            Event::ReceivedInWindow(id, bytes) => {
                if let Some(&index) = self.by_id.get(&id)
                    && self.connections.get(index).is_some_and(|one| one.phase == Phase::Live)
                {
                    self.received_in_window(index, bytes, now, actions);
                }
            }
            Event::Closed(id) => {
                if let Some(&index) = self.by_id.get(&id) {
                    self.connections.get_mut(index).expect("known by its id").stream_gone = true;
                    self.lose_connection(index, actions);
                }
            }
            Event::Completed(completion) => self.complete(completion, now, actions),
            Event::Round => {
                self.relieve(now, actions);
                for _ in 0..self.runnable.len() {
                    let Some(index) = self.runnable.pop_front() else { break };
                    if let Some(connection) = self.connections.get_mut(index) {
                        connection.runnable = false;
                        self.run(index, now, actions);
                    }
                }
            }
            Event::Tick => self.tick(now, actions),
        }
        if std::mem::take(&mut self.is_short_news) {
            actions.push(Action::Notice(Box::new(HostNotice::WaitsForMemory)));
        }
        self.sweep(now, actions);
    }

    /// Whether an [`Event::Round`] would do something.
    pub fn has_work(&self) -> bool {
        !self.runnable.is_empty()
            || self.tries_left > 0
            || (!self.short.is_empty() && self.budget.has_given_back())
    }

    /// Sets the memory for connections. What they hold beyond it stays until it is done with.
    ///
    /// # Panics
    /// If it is less than [`TargetConfig::memory_bytes_min`].
    pub fn set_memory(&mut self, memory_bytes: usize) {
        assert!(memory_bytes >= TargetConfig::memory_bytes_min(self.config.transfer_bytes_max));
        self.config.memory_bytes = memory_bytes;
        self.pins_max = pins_max(memory_bytes);
        self.budget.set_limit(budget_of(memory_bytes));
        self.pool.set_limit(memory_bytes);
    }

    /// Memory for connections, and what of it they hold, in bytes.
    pub fn memory(&self) -> MemoryFigures {
        MemoryFigures {
            limit_bytes: self.config.memory_bytes,
            held_bytes: self.budget.held_bytes() + self.pins * PIN_BYTES,
            used_bytes: self.pool.size_bytes() + self.budget.own_bytes(),
            waiting: self.short.len(),
        }
    }

    /// Checks that the budget is what connections take, their accounts what they hold, and that nobody is kept in it who is gone. For
    /// checkers.
    ///
    /// # Panics
    /// If not.
    pub fn check_budget(&self) {
        let (mut taken, mut pins) = (0, 0);
        for (_, one) in self.connections.iter() {
            let (commands, pinned) = one.queue.as_ref().map_or((0, 0), Queue::held);
            let held = commands + one.outbox.payload_held_bytes() + one.scratch_held;
            assert_eq!(held, one.account.held_bytes(), "held by {:?}, and its account", one.id);
            taken += one.account.taken_bytes();
            pins += pinned;
        }
        assert_eq!(
            (taken, pins),
            (self.budget.held_bytes(), self.pins),
            "taken by connections, and the budget"
        );
        let seats = self.subsystems.iter().flatten().filter_map(|one| one.tenant);
        self.budget.check_users(
            self.connections.iter().map(|(_, one)| &one.account),
            std::iter::once(NEWCOMERS).chain(seats),
            self.associations.iter().map(|(_, one)| one.host_account),
        );
    }

    /// Gives memory back that was not needed since the last call, and says how many bytes that were. For drivers, once in a while.
    pub fn shrink(&mut self, slabs_max: u32) -> usize {
        self.pool.shrink(slabs_max)
    }

    /// How many bytes of a stream a driver should receive at once.
    #[inline]
    pub fn receive_bytes(&self) -> usize {
        if self.budget.is_short() { RECEIVE_SHORT_BYTES } else { RECEIVE_BYTES }
    }

    /// Whether a command may keep the buffer that its data were received in; it counts as kept then.
    #[inline]
    pub(crate) fn may_pin(&mut self) -> bool {
        let may = self.pins < self.pins_max;
        self.pins += usize::from(may);
        may
    }

    /// How long a new connection may take until Connect: less while many others have not come so far.
    fn connect_patience(&self) -> Span {
        let is_pressed =
            self.budget.has_many_newcomers() && !mutant!("nvmf: silent connections keep all places");
        if is_pressed { Span(self.config.connect_time.0 / PRESSED_SHARE) } else { self.config.connect_time }
    }

    /// The account of a new connection. Where newcomers have all they may, the oldest of those that have not sent Connect makes room:
    /// who only holds a place must not keep out who wants to work. Nothing if there is none, or it does not help.
    fn open_newcomer(&mut self, actions: &mut Vec<Action>) -> Option<Account> {
        let open = |budget: &mut Budget| budget.open(NEWCOMERS, None, NEWCOMER_BYTES, 0, 0);
        let account = open(&mut self.budget);
        if account.is_some() || mutant!("nvmf: silent connections keep all places") {
            return account;
        }
        let index = self.oldest_newcomer()?;
        mark!("nvmf: oldest connection without Connect makes room");
        actions.push(Action::Notice(Box::new(HostNotice::MadeRoom)));
        // Whoever holds a place without a word is told nothing: what is unsent holds memory, too.
        let connection = self.connections.get_mut(index).expect("known by its id");
        let id = connection.id;
        connection.stream_gone = true;
        self.close_connection(index, actions);
        actions.push(Action::Close(id));
        open(&mut self.budget)
    }

    /// The oldest connection that has not sent Connect.
    fn oldest_newcomer(&mut self) -> Option<u32> {
        while let Some(id) = self.newcomers.front() {
            match self.by_id.get(id) {
                Some(&index) if self.is_newcomer(index) => return Some(index),
                _ => self.newcomers.pop_front(),
            };
        }
        None
    }

    fn is_newcomer(&self, index: u32) -> bool {
        let connection = self.connections.get(index);
        connection.is_some_and(|one| matches!(one.phase, Phase::Initialize | Phase::Connect))
    }

    /// Whether a connection has become a queue of a controller.
    pub fn is_connected(&self, id: ConnectionId) -> bool {
        let connection = self.by_id.get(&id).and_then(|&index| self.connections.get(index));
        connection.is_some_and(|one| one.phase == Phase::Live)
    }

    /// Puts a connection among those that wait for memory, for which there was none.
    pub(crate) fn wait_for_room(&mut self, connection: &mut Connection) {
        if self.look_for_room(connection) {
            mark!("nvmf: connection waits for memory");
            self.notice_short();
        }
    }

    /// Has a connection try in its turn whether there is memory for it. Answers whether it was not waiting for that already.
    pub(crate) fn look_for_room(&mut self, connection: &mut Connection) -> bool {
        let is_new = !std::mem::replace(&mut connection.short, true);
        if is_new {
            self.short.push_back(connection.index);
            if self.stall_at == Time::NEVER {
                self.stall_at = self.now + self.config.stall_time;
                self.tick_by(self.stall_at);
            }
        }
        is_new
    }

    /// Somebody waits for memory, or does not get any.
    fn notice_short(&mut self) {
        if self.short_told_until <= self.now {
            self.short_told_until = self.now + SHORT_TOLD_FOR;
            self.is_short_news = true;
        }
    }

    /// Memory was given back: those that wait for some have another try, each in its turn.
    fn relieve(&mut self, now: Time, actions: &mut Vec<Action>) {
        if self.budget.take_gave_back() {
            self.tries_left = self.short.len();
        }
        let turns = self.tries_left.min(SHORT_TURNS_PER_ROUND);
        self.tries_left -= turns;
        for _ in 0..turns {
            let index = self.short.pop_front().expect("counted");
            // Its place may be somebody else's by now, who waits for nothing.
            let waits = self.connections.get_mut(index).is_some_and(|one| std::mem::take(&mut one.short));
            if !waits {
                continue;
            }
            let mut connection = self.connections.lend(index);
            if connection.held.is_any() {
                if !mutant!("nvmf: a queue that is held loses its turn for memory") {
                    connection.short = true;
                    self.short.push_back(index);
                }
            } else if connection.phase == Phase::Live && connection.is_open() {
                self.go_on(&mut connection, now, actions);
            }
            self.settle(index, connection, actions);
        }
        if self.short.is_empty() {
            self.stall_at = Time::NEVER;
        }
    }

    /// While others wait for memory: connections that hold some, and did nothing with it since this was last called.
    fn stalled(&mut self) -> Vec<u32> {
        let mut stalled = Vec::new();
        for (index, one) in self.connections.iter_mut() {
            let asked = one.queue.as_ref().is_some_and(|queue| queue.gather_bytes > 0);
            let deaf = !one.outbox.is_empty() && one.seen.0 == one.outbox.consumed_bytes();
            let mute =
                (asked || !one.receiver.is_between_pdus()) && one.seen.1 == one.heard && !one.data_wait;
            one.seen = (one.outbox.consumed_bytes(), one.heard);
            if one.phase == Phase::Live
                && !one.held.is_any()
                && !one.account.is_within_reserve()
                && (deaf || mute)
            {
                stalled.push(index);
            }
        }
        stalled
    }

    /// The source of a connection's commands.
    pub fn source_of(&self, id: ConnectionId) -> Option<SourceId> {
        self.by_id.get(&id).map(|&index| SourceId(index))
    }

    /// The output of a connection.
    pub fn outbox(&self, id: ConnectionId) -> Option<&Outbox> {
        Some(&self.connections.get(*self.by_id.get(&id)?)?.outbox)
    }

    /// `bytes` of a connection's output were written to its stream.
    ///
    /// # Panics
    /// If that is more than there was.
    pub fn sent(&mut self, id: ConnectionId, bytes: usize, actions: &mut Vec<Action>) {
        let Some(&index) = self.by_id.get(&id) else { return };
        let connection = self.connections.get_mut(index).expect("known by its id");
        let released = connection.outbox.consume(bytes);
        if released > 0 {
            self.budget.release(&mut connection.account, released);
            if connection.short {
                // It may go on with what was its own.
                self.budget.set_gave_back();
            }
        }
        connection.balance(&mut self.budget, &mut self.pins);
        if connection.outbox.is_empty() {
            connection.transmit_told = false;
        }
        self.make_runnable(index);
        self.forget_if_done(index);
        let _ = actions;
    }

    /// From now on, commands to namespaces are kept for [`Target::take_watched`].
    pub fn watch(&mut self) {
        self.watched.get_or_insert_default();
    }

    /// Takes the commands since the last call, in order.
    pub fn take_watched(&mut self, commands: &mut Vec<CommandOutline>) {
        commands.append(self.watched.get_or_insert_default());
    }

    /// Where the next bytes of a connection's stream go, if they are data of a large write: the driver may receive
    /// right into it and say so with [`Event::ReceivedInWindow`]. Only while nothing received waits to be parsed.
    pub fn receive_window(&mut self, id: ConnectionId) -> Option<&mut [u8]> {
        let index = *self.by_id.get(&id)?;
        let connection = self.connections.get_mut(index)?;
        if connection.phase != Phase::Live || connection.held.is_any() || !connection.backlog.is_empty() {
            return None;
        }
        connection.receiver.window()
    }

    /// When [`Event::Tick`] is due: not after the next keep-alive or connect time runs out. Cheap to ask.
    pub fn deadline(&self) -> Time {
        self.tick_at
    }

    /// Sees to it that a tick comes by `at`.
    pub(crate) fn tick_by(&mut self, at: Time) {
        self.tick_at = self.tick_at.min(at);
    }

    /// Whether the hosts of a subsystem are not listened to, because it changes its shard.
    fn is_frozen(&self, subsystem: Option<u32>) -> bool {
        let of = |index: u32| self.subsystems.get(index as usize).and_then(Option::as_ref);
        subsystem.and_then(of).is_some_and(|one| one.passage != Passage::None)
    }

    /// The earliest end of anyone's patience.
    fn next_deadline(&self) -> Time {
        let patient =
            self.associations.iter().filter(|(_, one)| !one.dying && !self.is_frozen(one.subsystem));
        let expiries = patient.map(|(_, one)| one.expires());
        let patience = self
            .connections
            .iter()
            .filter(|(_, one)| !matches!(one.phase, Phase::Live | Phase::Parked))
            .map(|(_, one)| one.deadline);
        expiries.chain(patience).chain([self.stall_at]).min().unwrap_or(Time::NEVER)
    }

    /// Connected controllers.
    pub fn associations(&self) -> Vec<AssociationStatus> {
        self.associations
            .iter()
            .map(|(_, one)| AssociationStatus {
                subsystem: match one.subsystem {
                    Some(index) => self.subsystem(index).config.nqn.to_string(),
                    None => diecut_nvme::DISCOVERY_SUBSYSTEM_NQN.to_owned(),
                },
                host: one.host.as_ref().map_or_else(String::new, QualifiedName::to_string),
                controller_id: one.controller_id,
                io_queues: one.connections.len().saturating_sub(1) as u16,
            })
            .collect()
    }

    /// Defines a subsystem, or changes one that exists: hosts that lost their permission are disconnected, hosts that
    /// stay are told of namespaces that came, went or changed; discovery controllers are told.
    pub fn set_subsystem(&mut self, config: SubsystemConfig, now: Time, actions: &mut Vec<Action>) {
        self.now = now;
        let index = match self.by_nqn.get(&config.nqn) {
            Some(&index) => index,
            None => {
                let index = match self.subsystems.iter().position(Option::is_none) {
                    Some(free) => free,
                    None => {
                        self.subsystems.push(None);
                        self.subsystems.len() - 1
                    }
                } as u32;
                self.by_nqn.insert(config.nqn.clone(), index);
                index
            }
        };
        let slot = &mut self.subsystems[index as usize];
        let mut changed = Vec::new();
        if let Some(old) = slot.take() {
            let (before, after) = (&old.config.namespaces, &config.namespaces);
            for nsid in before.keys().chain(after.keys()) {
                let same = match (before.get(nsid), after.get(nsid)) {
                    (Some(one), Some(other)) => {
                        one.namespace == other.namespace
                            && one.uuid == other.uuid
                            && one.nguid == other.nguid
                            && one.properties.size_lbas == other.properties.size_lbas
                            && one.properties.read_only == other.properties.read_only
                    }
                    _ => false,
                };
                if !same {
                    changed.push(*nsid);
                }
            }
            *slot = Some(Subsystem { config, ..old });
        } else {
            *slot = Some(Subsystem {
                config,
                health: Health::default(),
                traffic: Traffic::default(),
                passage: Passage::None,
                tenant: None,
            });
        }
        self.seat_tenant(index);
        let subsystem = self.subsystems[index as usize].as_ref().expect("just set");
        let mut told = Vec::new();
        for (number, association) in self.associations.iter_mut() {
            if association.subsystem == Some(index) {
                if !crate::discovery::is_allowed(&subsystem.config, association.host.as_ref())
                    || subsystem.config.home != Home::Here
                {
                    self.doomed.push(number);
                    continue;
                }
                for &nsid in &changed {
                    association.namespace_changed(nsid);
                }
                told.push(number);
            }
        }
        for number in told {
            self.tell_events(number, actions);
        }
        self.discovery_changed(actions);
        self.sweep(now, actions);
    }

    /// Takes a subsystem away; its controllers are disconnected. Its namespaces may be deleted when
    /// [`Target::is_quiet`] says so.
    pub fn remove_subsystem(&mut self, nqn: &QualifiedName, now: Time, actions: &mut Vec<Action>) {
        self.now = now;
        let Some(index) = self.by_nqn.remove(nqn) else { return };
        let ended = self.associations.iter().filter(|(_, one)| one.subsystem == Some(index));
        self.doomed.extend(ended.map(|(number, _)| number));
        if let Some(subsystem) = &mut self.subsystems[index as usize] {
            subsystem.config.namespaces.clear();
        }
        self.discovery_changed(actions);
        self.sweep(now, actions);
        self.free_subsystem_if_quiet(index);
    }

    /// Whether no controller of the subsystem is left and no command of it is in a namespace.
    pub fn is_quiet(&self, nqn: &QualifiedName) -> bool {
        !self
            .associations
            .iter()
            .any(|(_, one)| one.subsystem.is_some_and(|index| self.subsystem(index).config.nqn == *nqn))
    }

    fn free_subsystem_if_quiet(&mut self, index: u32) {
        let Some(subsystem) = &self.subsystems[index as usize] else { return };
        let nqn = &subsystem.config.nqn;
        if self.by_nqn.get(nqn) != Some(&index)
            && !self.associations.iter().any(|(_, one)| one.subsystem == Some(index))
        {
            let removed = self.subsystems[index as usize].take();
            if let Some(tenant) = removed.and_then(|one| one.tenant) {
                self.budget.leave_tenant(tenant);
            }
        }
    }

    /// A subsystem has its part of the memory where it lives.
    pub(crate) fn seat_tenant(&mut self, index: u32) {
        let subsystem = self.subsystems[index as usize].as_mut().expect("known");
        match (subsystem.config.home, subsystem.tenant) {
            (Home::Here, None) => subsystem.tenant = Some(self.budget.add_tenant()),
            (Home::Elsewhere(_), Some(tenant)) => {
                self.budget.leave_tenant(tenant);
                subsystem.tenant = None;
            }
            _ => {}
        }
    }

    /// What a queue takes before it has a command: itself, and with the admin queue its controller.
    fn own_bytes(queue: &Queue) -> usize {
        QUEUE_BYTES + Queue::size_bytes(queue.entries) + usize::from(queue.id == 0) * CONTROLLER_BYTES
    }

    /// Makes the account of a newcomer that of a queue, if there is room for one and for its largest command.
    pub(crate) fn open_queue(&mut self, connection: &mut Connection, queue: &Queue, host: u32) -> bool {
        let tenant = self.tenant_of(connection.subsystem);
        let (own, reserve) = (Target::own_bytes(queue), self.config.queue_reserve_bytes);
        let spare = self.config.transfer_bytes_max as usize;
        let Some(account) = self.budget.open(tenant, Some(host), own, reserve, spare) else { return false };
        self.change_account(connection, account);
        true
    }

    /// The same for one that was a queue on another shard.
    pub(crate) fn reopen_queue(&mut self, connection: &mut Connection, host: u32) {
        let tenant = self.tenant_of(connection.subsystem);
        let queue = connection.queue.as_ref().expect("it is a queue");
        let (own, reserve) = (Target::own_bytes(queue), self.config.queue_reserve_bytes);
        let (held, pins) = queue.held();
        self.pins += pins;
        let mut account = self.budget.open_anyway(tenant, Some(host), own, reserve);
        self.budget.force(&mut account, held + connection.outbox.payload_held_bytes());
        self.change_account(connection, account);
    }

    fn tenant_of(&self, subsystem: Option<u32>) -> u32 {
        subsystem.and_then(|index| self.subsystem(index).tenant).unwrap_or(NEWCOMERS)
    }

    fn change_account(&mut self, connection: &mut Connection, account: Account) {
        let old = std::mem::replace(&mut connection.account, account);
        self.budget.force(&mut connection.account, old.held_bytes());
        self.budget.close(old);
        connection.has_unread = true; // they are counted anew
    }

    /// Sets what the SMART log of a subsystem tells of its media.
    pub fn set_health(&mut self, nqn: &QualifiedName, health: Health) {
        if let Some(&index) = self.by_nqn.get(nqn)
            && let Some(subsystem) = &mut self.subsystems[index as usize]
        {
            subsystem.health = health;
        }
    }

    /// Sets how many logical blocks of a namespace hold data (NUSE); no host is told.
    pub fn set_used_lbas(&mut self, nqn: &QualifiedName, nsid: u32, used_lbas: u64) {
        if let Some(&index) = self.by_nqn.get(nqn)
            && let Some(subsystem) = &mut self.subsystems[index as usize]
            && let Some(namespace) = subsystem.config.namespaces.get_mut(&nsid)
        {
            namespace.properties.used_lbas = used_lbas;
        }
    }

    #[inline]
    pub(crate) fn subsystem(&self, index: u32) -> &Subsystem {
        self.subsystems[index as usize].as_ref().expect("associations keep their subsystem")
    }

    pub(crate) fn add_connection(&mut self, connection: Connection) -> u32 {
        let id = connection.id;
        self.tick_by(connection.deadline);
        let index = self.connections.insert(Box::new(connection));
        self.connections.get_mut(index).expect("just put there").index = index;
        assert!(self.by_id.insert(id, index).is_none(), "connection {id:?} is new");
        self.newcomers.push_back(id);
        // Those in front that are none any more are taken out.
        self.oldest_newcomer();
        index
    }

    fn adopt(&mut self, id: ConnectionId, moved: MovedConnection, now: Time, actions: &mut Vec<Action>) {
        let mut connection = Connection::new(id, now + self.config.connect_time);
        // It was let in where it came from.
        connection.account = self.budget.open_anyway(NEWCOMERS, None, NEWCOMER_BYTES, 0);
        connection.digests = moved.digests;
        connection.host_alignment = moved.host_alignment;
        connection.backlog = moved.unread;
        connection.backlog_at = moved.unread_at;
        connection.outbox = moved.unsent;
        let (command, data) = match moved.arriving {
            Arriving::Connect(connect) => *connect,
            Arriving::Live(queue) => return self.adopt_live(connection, *queue, actions),
        };
        connection.phase = Phase::Connect;
        let index = self.add_connection(connection);
        let mut connection = self.connections.lend(index);
        self.connect(&mut connection, command, data, now, actions);
        self.settle(index, connection, actions);
        self.run(index, now, actions);
    }

    /// Puts a connection back and tells the driver what changed.
    pub(crate) fn settle(&mut self, index: u32, mut connection: Box<Connection>, actions: &mut Vec<Action>) {
        connection.tell_output(actions);
        connection.balance(&mut self.budget, &mut self.pins);
        if connection.phase != Phase::Closing {
            let wants_pause = !connection.backlog.is_empty() || connection.data_wait;
            if wants_pause != connection.paused {
                mark!("nvmf: stream paused or resumed");
                connection.paused = wants_pause;
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
        let output_bytes_max = self.config.output_bytes_max;
        let Some(connection) = self.connections.get_mut(index) else { return };
        let waits = connection.short && !connection.awaits_data();
        if !connection.runnable && !waits && connection.can_run(output_bytes_max) {
            connection.runnable = true;
            self.runnable.push_back(index);
        }
    }

    /// A flush that a shutdown waits for is answered.
    fn complete_shutdown_flush(&mut self, completion: &NamespaceCompletion) {
        let index = connection_of(completion.token);
        let connection =
            self.connections.get_mut(index).expect("a connection stays until its commands are back");
        connection.queue.as_mut().expect("the admin queue").submitted -= 1;
        let number = connection.association.expect("an association stays until its connections are quiet");
        let association = self.associations.get_mut(number).expect("connections keep their association");
        association.flushes -= 1;
        association.flush_failed |= completion.result.is_err();
        self.quiet_if_done(index);
        self.forget_if_done(index);
    }

    fn complete(&mut self, completion: NamespaceCompletion, now: Time, actions: &mut Vec<Action>) {
        if is_of_shutdown(completion.token) {
            return self.complete_shutdown_flush(&completion);
        }
        let (index, slot_index) = (connection_of(completion.token), completion.token.0 as u16);
        let connection =
            self.connections.get_mut(index).expect("a connection stays until its commands are back");
        let queue = connection.queue.as_mut().expect("it had submitted");
        let slot = &mut queue.slots[usize::from(slot_index)];
        assert!(slot.state == SlotState::Submitted, "{:?} was submitted", completion.token);
        queue.submitted -= 1;
        let is_answer = completion.result.is_ok() && completion.data.is_some();
        // The data of a read are held until they are sent.
        let held_bytes =
            if is_answer && connection.phase != Phase::Closing && slot.entry.opcode == opcode::READ {
                std::mem::take(&mut slot.account_held)
            } else {
                0
            };
        let (command_id, is_read) = (slot.entry.command_id.get(), slot.entry.opcode == opcode::READ);
        queue.release(slot_index);
        if connection.phase == Phase::Closing {
            mark!("nvmf: completion after its connection");
            connection.balance(&mut self.budget, &mut self.pins);
            self.quiet_if_done(index);
            self.forget_if_done(index);
            return;
        }
        match (&completion.result, completion.data) {
            (Ok(()), Some(data)) if is_read => {
                connection.answer_with_data(command_id, data, held_bytes);
            }
            (Ok(()), _) => connection.answer(command_id, Status::SUCCESS, 0),
            (Err(error), _) => {
                let status = status_of(error);
                connection.answer(command_id, status, 0);
                let queue = connection.queue.as_ref().expect("it had submitted");
                let (queue_id, entry) = (queue.id, queue.slots[usize::from(slot_index)].entry);
                if let Some(number) = connection.association
                    && let Some(association) = self.associations.get_mut(number)
                {
                    association.record_error(queue_id, &entry, status);
                }
            }
        }
        let connection = self.connections.get_mut(index).expect("still there");
        connection.tell_output(actions);
        connection.balance(&mut self.budget, &mut self.pins);
        if connection.queue.as_ref().is_some_and(|queue| !queue.waiting_for_space.is_empty()) {
            let mut connection = self.connections.lend(index);
            self.grant_space(&mut connection, now, actions);
            connection.balance(&mut self.budget, &mut self.pins);
            connection.tell_output(actions);
            self.connections.put_back(index, connection);
        }
        let connection = self.connections.get_mut(index).expect("still there");
        if !connection.backlog.is_empty() {
            self.make_runnable(index);
        }
    }

    fn tick(&mut self, now: Time, actions: &mut Vec<Action>) {
        let silent = self.associations.iter().filter(|(_, one)| one.expires() <= now && !one.dying);
        let expired: Vec<u32> =
            silent.filter(|(_, one)| !self.is_frozen(one.subsystem)).map(|(number, _)| number).collect();
        if !expired.is_empty() {
            mark!("nvmf: keep-alive expired");
        }
        let named = expired.iter().filter_map(|&number| self.host_at(number));
        actions.extend(named.map(|at| Action::Notice(Box::new(HostNotice::Expired(at)))));
        self.doomed.extend(expired);
        if self.stall_at <= now {
            let stalled = if self.short.is_empty() { Vec::new() } else { self.stalled() };
            for index in stalled {
                mark!("nvmf: host that holds memory and does nothing is hung up on");
                let at = self.connections.get(index).and_then(|one| self.host_at(one.association?));
                actions.extend(at.map(|at| Action::Notice(Box::new(HostNotice::Stalled(at)))));
                self.lose_connection(index, actions);
            }
            self.stall_at = if self.short.is_empty() { Time::NEVER } else { now + self.config.stall_time };
        }
        let impatient: Vec<u32> = self
            .connections
            .iter()
            .filter(|(_, one)| !matches!(one.phase, Phase::Live | Phase::Parked) && one.deadline <= now)
            .map(|(index, _)| index)
            .collect();
        for index in impatient {
            let connection = self.connections.get_mut(index).expect("just found");
            if connection.phase == Phase::Closing {
                connection.stream_gone = true;
                connection.deadline = Time::NEVER;
                self.forget_if_done(index);
            } else {
                self.close_connection(index, actions);
            }
        }
        self.sweep(now, actions);
        self.tick_at = self.next_deadline();
    }

    /// The stream is gone, or the host ended it.
    pub(crate) fn lose_connection(&mut self, index: u32, actions: &mut Vec<Action>) {
        let connection = self.connections.get(index).expect("known");
        let is_admin = connection.queue.as_ref().is_some_and(|queue| queue.id == 0);
        if let (true, Some(number)) = (is_admin, connection.association) {
            self.doomed.push(number);
        }
        self.close_connection(index, actions);
    }

    /// Stops reading a connection. What it has in namespaces comes back before it is forgotten.
    pub(crate) fn close_connection(&mut self, index: u32, actions: &mut Vec<Action>) {
        let deadline = self.now + self.config.connect_time;
        self.tick_by(deadline);
        let connection = self.connections.get_mut(index).expect("known");
        if connection.phase != Phase::Closing {
            connection.phase = Phase::Closing;
            connection.deadline = deadline;
            connection.backlog.clear();
            connection.backlog_at = 0;
            connection.parked = None;
            connection.current = Current::Nothing;
            self.parked.retain(|&parked| parked != index);
            if !connection.stream_gone {
                connection.tell_output(actions);
                actions.push(Action::Close(connection.id));
            }
            if connection.submitted() > 0 {
                actions.push(Action::GiveUp(SourceId(index), None));
            }
        }
        self.fence(index);
        let connection = self.connections.get_mut(index).expect("known");
        connection.balance(&mut self.budget, &mut self.pins);
        self.quiet_if_done(index);
        self.forget_if_done(index);
    }

    /// While a closed queue has commands in namespaces, the other queues of its host on that subsystem wait: a host that goes
    /// on over another path must not be overtaken by what the lost one had begun. Admin queues go on, so that keep-alives
    /// and resets are answered.
    fn fence(&mut self, index: u32) {
        let connection = self.connections.get_mut(index).expect("known");
        if connection.is_late || connection.submitted() == 0 {
            return;
        }
        let Some(number) = connection.association else { return };
        connection.is_late = true;
        if mutant!("nvmf: other paths overtake a lost one") {
            return;
        }
        for other in self.queues_of_host(number) {
            let other = self.connections.get_mut(other).expect("of an association");
            if other.phase == Phase::Live && other.queue.as_ref().is_some_and(|queue| queue.id != 0) {
                mark!("nvmf: other queues wait for those of a lost path");
                other.held.insert(Held::FENCED);
            }
        }
    }

    /// The commands of a closed queue are back: its host's other queues go on, if it was the last such one. `number` is the
    /// association it belonged to.
    fn lift_fence(&mut self, number: u32) {
        if self.has_late_queue(number) {
            return;
        }
        for other in self.queues_of_host(number) {
            self.connections.get_mut(other).expect("of an association").held.remove(Held::FENCED);
            self.make_runnable(other);
        }
    }

    /// Whether a closed queue of the association's host still has commands in namespaces of its subsystem.
    pub(crate) fn has_late_queue(&self, number: u32) -> bool {
        let is_late = |other: &u32| self.connections.get(*other).is_some_and(|other| other.is_late);
        self.queues_of_host(number).iter().any(is_late)
    }

    /// Connections of all associations that the host of one has with its subsystem.
    fn queues_of_host(&self, number: u32) -> Vec<u32> {
        let own = self.associations.get(number).expect("known");
        let same = self.associations.iter().filter(|(_, one)| {
            one.subsystem == own.subsystem
                && one.is_of(own.host.as_ref(), &own.host_id)
                && !own.is_discovery()
        });
        same.flat_map(|(_, one)| one.connections.iter().copied()).collect()
    }

    /// Takes a closing connection without commands in namespaces from its association; the last one ends that.
    fn quiet_if_done(&mut self, index: u32) {
        let connection = self.connections.get_mut(index).expect("known");
        if connection.phase != Phase::Closing || connection.submitted() > 0 {
            return;
        }
        let Some(number) = connection.association.take() else { return };
        let was_late = std::mem::take(&mut connection.is_late);
        let association = self.associations.get_mut(number).expect("connections keep their association");
        association.connections.retain(|&other| other != index);
        if was_late {
            self.lift_fence(number);
        }
        self.end_if_quiet(number);
    }

    /// Forgets an association that ends and has no connection left.
    fn end_if_quiet(&mut self, number: u32) {
        let association = self.associations.get(number).expect("known");
        if association.dying && association.connections.is_empty() {
            let association = self.associations.remove(number);
            self.association_count -= 1;
            self.budget.leave_host(association.host_account);
            if let Some(subsystem) = association.subsystem {
                self.free_subsystem_if_quiet(subsystem);
            }
        }
    }

    /// Forgets a closing connection when nothing is left of it.
    fn forget_if_done(&mut self, index: u32) {
        let Some(connection) = self.connections.get(index) else { return };
        let done = connection.phase == Phase::Closing
            && connection.association.is_none()
            && connection.submitted() == 0
            && (connection.stream_gone || connection.outbox.is_empty());
        if done {
            let mut connection = self.connections.remove(index);
            self.by_id.remove(&connection.id);
            connection.balance(&mut self.budget, &mut self.pins);
            if connection.stream_gone && mutant!("nvmf: budget of a lost connection not given back") {
                return;
            }
            self.budget.close(connection.account);
        }
    }

    /// Ends what was doomed while a connection was lent out, and lets parked Connects go on that now can.
    #[inline]
    pub(crate) fn sweep(&mut self, now: Time, actions: &mut Vec<Action>) {
        let lists = [&self.told_later, &self.doomed, &self.closing, &self.parked];
        if lists.iter().any(|list| !list.is_empty()) {
            self.sweep_lists(now, actions);
        }
    }

    #[cold]
    fn sweep_lists(&mut self, now: Time, actions: &mut Vec<Action>) {
        while let Some(index) = self.told_later.pop() {
            if let Some(connection) = self.connections.get_mut(index) {
                connection.tell_output(actions);
            }
        }
        if self.doomed.is_empty() && self.closing.is_empty() && self.parked.is_empty() {
            return;
        }
        loop {
            while let Some(index) = self.closing.pop() {
                if self.connections.get(index).is_some() {
                    self.close_connection(index, actions);
                }
            }
            while let Some(number) = self.doomed.pop() {
                let Some(association) = self.associations.get_mut(number) else { continue };
                if !std::mem::replace(&mut association.dying, true) {
                    if let Some(at) = self.host_at(number) {
                        actions.push(Action::Notice(Box::new(HostNotice::Went(at))));
                    }
                    let association = self.associations.get(number).expect("just found");
                    let connections = association.connections.clone();
                    if connections.is_empty() {
                        self.end_if_quiet(number);
                    }
                    for index in connections {
                        self.close_connection(index, actions);
                    }
                }
            }
            let ready = self.parked.iter().copied().find(|&index| {
                let connection = self.connections.get(index).expect("parked ones are closed by name");
                let (_, data) = connection.parked.as_deref().expect("parked with its Connect");
                if self.is_frozen(connection.subsystem) {
                    return false;
                }
                let Ok(host) = data.host() else { return true };
                self.gone_associations(connection.subsystem, host.as_ref(), &data.host_id, now)
                    .next()
                    .is_none()
            });
            let Some(index) = ready else { return };
            self.connect_parked(index, now, actions);
        }
    }

    /// Decides on the Connect of a connection that waited with it.
    fn connect_parked(&mut self, index: u32, now: Time, actions: &mut Vec<Action>) {
        self.parked.retain(|&parked| parked != index);
        let mut connection = self.connections.lend(index);
        let (command, data) = *connection.parked.take().expect("parked with its Connect");
        connection.phase = Phase::Connect;
        self.connect(&mut connection, command, data, now, actions);
        self.settle(index, connection, actions);
    }

    /// Decides on all Connects that waited while a subsystem changed its shard.
    pub(crate) fn connect_all_parked(&mut self, subsystem: u32, now: Time, actions: &mut Vec<Action>) {
        let own = |index: &u32| {
            let connection = self.connections.get(*index).expect("parked ones are closed by name");
            connection.subsystem == Some(subsystem)
        };
        let own: Vec<u32> = self.parked.iter().copied().filter(own).collect();
        for index in own {
            self.connect_parked(index, now, actions);
        }
    }

    /// Tells all discovery controllers that the log page changed.
    fn discovery_changed(&mut self, actions: &mut Vec<Action>) {
        self.generation += 1;
        let numbers: Vec<u32> = self
            .associations
            .iter_mut()
            .filter(|(_, one)| one.is_discovery())
            .map(|(number, one)| {
                one.discovery_changed();
                number
            })
            .collect();
        for number in numbers {
            self.tell_events(number, actions);
        }
    }

    /// Answers Asynchronous Event Requests with events that wait.
    fn tell_events(&mut self, number: u32, actions: &mut Vec<Action>) {
        let Some(association) = self.associations.get_mut(number) else { return };
        let Some(&index) = association.connections.first() else { return };
        let Some(connection) = self.connections.get_mut(index) else { return };
        Target::answer_events(association, connection);
        connection.tell_output(actions);
    }

    pub(crate) fn answer_events(association: &mut Association, connection: &mut Connection) {
        let is_admin = connection.queue.as_ref().is_some_and(|queue| queue.id == 0);
        while is_admin && connection.phase == Phase::Live && !association.parked_events.is_empty() {
            let Some(event) = association.next_event() else { return };
            let slot = association.parked_events.remove(0);
            let queue = connection.queue.as_mut().expect("the admin queue");
            let command_id = queue.slots[usize::from(slot)].entry.command_id.get();
            queue.release(slot);
            connection.answer(command_id, Status::SUCCESS, u64::from(event.encode()));
        }
    }
}
