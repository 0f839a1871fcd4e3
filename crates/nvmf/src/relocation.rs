//! Subsystems that change their shard while hosts are connected to them.
//!
//! 1. [`Target::freeze`]: what hosts send is kept and not looked at, Connects wait, nobody's silence counts. What namespaces
//!    have comes back and is answered.
//! 2. [`Target::is_drained`]: no namespace has a command. The subsystem's figures are taken ([`Target::figures`]), and it is
//!    placed at its new home ([`Target::place`]).
//! 3. [`Target::release`]: connections go there, each with its queue, its unread bytes and its unsent answers; the
//!    controller goes with its admin queue, which is the first. Connects that waited follow.
//! 4. [`Target::arrived`] at the new home, behind them. Until then hosts are not listened to there either. A reset must find
//!    all queues that it ends, and Connects that come to the new home by themselves must find their controller, and the ids
//!    that are taken.
//!
//! A host sees nothing but the delay. A stream that ends on the way ends as it would have at home: without its admin queue
//! a controller never arrives, and its I/O queues are hung up on.

use crate::config::Health;
use crate::config::{Home, SubsystemConfig};
use crate::connection::{Connection, Held, Phase};
use crate::controller::Association;
use crate::discovery::is_allowed;
use crate::event::Action;
use crate::inbound::Current;
use crate::keeping::Keep;
use crate::moved::{Arriving, MovedQueue, SubsystemFigures};
use crate::ocp::PanicsTold;
use crate::pages;
use crate::placement::{self, PlacementLog};
use crate::reservation::Reservations;
use crate::sanitize::{self, Sanitizing};
use crate::subsystems::Passage;
use crate::target::Target;
use crate::tcp::Receiver;
use diecut_namespace::contract::{ChangedZones, ChunkNotice};
use diecut_nvme::QualifiedName;
use diecut_units::{Time, mark, mutant};

/// Notes something for each controller of a subsystem, and tells their hosts; nothing if there is no such subsystem.
pub(crate) fn tell_hosts_of(
    target: &mut Target,
    nqn: &QualifiedName,
    note: impl Fn(&mut Association),
    actions: &mut Vec<Action>,
) {
    let Some(index) = target.shared.subsystems.find(nqn) else { return };
    let mut told = Vec::new();
    for (number, association) in target.shared.associations.iter_mut() {
        if association.subsystem == Some(index) {
            note(association);
            told.push(number);
        }
    }
    for number in told {
        target.tell_events(number, actions);
    }
}

impl Target {
    /// Begins to take a subsystem away from here: until [`Target::release`] nothing of its hosts is looked at.
    ///
    /// # Panics
    /// If there is no such subsystem.
    pub fn freeze(&mut self, nqn: &QualifiedName) {
        let index = self.shared.subsystems.known(nqn);
        self.shared.subsystems.get_mut(index).pass(Passage::Leaves);
        for (_, association) in self.shared.associations.of(Some(index)) {
            for &number in &association.connections {
                self.connections.there(number).held.insert(Held::FROZEN);
            }
        }
    }

    /// Whether no command of a frozen subsystem is in a namespace, and no controller of it is about to end.
    ///
    /// # Panics
    /// If there is no such subsystem.
    pub fn is_drained(&self, nqn: &QualifiedName) -> bool {
        let index = self.shared.subsystems.known(nqn);
        let idle = |number: &u32| self.connections.get(*number).is_none_or(|one| one.submitted() == 0);
        let mut own = self.shared.associations.of(Some(index));
        let sanitizes = self.shared.subsystems.get(index).sanitizing.is_under_way();
        !sanitizes && own.all(|(_, one)| !one.is_ending() && one.connections.iter().all(idle))
    }

    /// Sets what the SMART log of a subsystem tells of its media. Hosts that want to know are told of warnings that begin.
    pub fn set_health(&mut self, nqn: &QualifiedName, health: Health, actions: &mut Vec<Action>) {
        for number in self.shared.set_health(nqn, health) {
            self.tell_events(number, actions);
        }
    }

    /// Zones of a namespace changed by themselves: hosts that want to know are told, and may read which. Does nothing if there is no such
    /// subsystem.
    pub fn zones_changed(
        &mut self,
        nqn: &QualifiedName,
        nsid: u32,
        zones: &ChangedZones,
        actions: &mut Vec<Action>,
    ) {
        tell_hosts_of(self, nqn, |association| association.zones_changed(nsid, zones), actions);
    }

    /// Something became known of chunks of a namespace: hosts are told, and may read what. Does nothing if there is no such subsystem.
    pub fn chunks_noticed(
        &mut self,
        nqn: &QualifiedName,
        nsid: u32,
        notices: &[ChunkNotice],
        actions: &mut Vec<Action>,
    ) {
        tell_hosts_of(self, nqn, |association| association.events.chunks.add_all(nsid, notices), actions);
    }

    /// Sets what hosts of a subsystem are told of panics of the server; nothing if it is not known.
    ///
    /// # Panics
    /// If there is a record of a panic and none was counted.
    pub fn set_panics(&mut self, nqn: &QualifiedName, told: PanicsTold, actions: &mut Vec<Action>) {
        assert!(told.record.is_empty() || told.count > 0, "I-T15: a panic that is told of was counted");
        if pages::set_panics(&mut self.shared, nqn, told) {
            tell_hosts_of(self, nqn, Association::telemetry_captured, actions);
        }
    }

    /// Sets how many logical blocks of a namespace hold data (NUSE); no host is told.
    pub fn set_used_lbas(&mut self, nqn: &QualifiedName, nsid: u32, used_lbas: u64) {
        self.shared.subsystems.set_used_lbas(nqn, nsid, used_lbas);
    }

    /// What was counted for a subsystem that leaves. Its reservations and events go along, and what is on its way of them is asked for again at the new home:
    /// an answer that comes here is nobody's.
    ///
    /// # Panics
    /// If there is no such subsystem.
    pub fn figures(&mut self, nqn: &QualifiedName) -> SubsystemFigures {
        let index = self.shared.subsystems.known(nqn);
        let subsystem = self.shared.subsystems.get_mut(index);
        let (reservations, ocp) = (std::mem::take(&mut subsystem.reservations), subsystem.ocp.clone());
        let sanitizing = std::mem::take(&mut subsystem.sanitizing);
        let placement = std::mem::take(&mut subsystem.placement);
        SubsystemFigures {
            health: subsystem.health,
            traffic: subsystem.traffic,
            reservations,
            sanitizing,
            ocp,
            placement,
        }
    }

    /// Says where a subsystem lives from now on, and with which namespaces. Nobody is told: nothing changed for hosts.
    /// With figures it lives here, and its hosts are listened to from [`Target::arrived`] on.
    ///
    /// # Panics
    /// If there is no such subsystem.
    pub fn place(
        &mut self,
        config: SubsystemConfig,
        figures: Option<SubsystemFigures>,
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        self.shared.now = now;
        let index = self.shared.subsystems.known(&config.nqn);
        let subsystem = self.shared.subsystems.get_mut(index);
        subsystem.config = config;
        subsystem.pass(Passage::None);
        // What it knows of reservations, of a sanitize operation and of events goes with its hosts.
        (subsystem.reservations, subsystem.sanitizing) = (Reservations::default(), Sanitizing::default());
        subsystem.placement = PlacementLog::default();
        if let Some(figures) = figures {
            let SubsystemFigures { health, traffic, reservations, sanitizing, ocp, placement } = figures;
            subsystem.pass(Passage::Arrives);
            (subsystem.health, subsystem.traffic, subsystem.ocp) = (health, traffic, ocp);
            (subsystem.reservations, subsystem.placement) = (reservations, placement);
            subsystem.sanitizing = sanitizing;
            pages::find_threshold(&mut self.shared);
        }
        self.seat_tenant(index);
        self.sweep(actions);
    }

    /// The last connection from a subsystem's old home has come: hosts are listened to again.
    ///
    /// # Panics
    /// If there is no such subsystem.
    pub fn arrived(&mut self, nqn: &QualifiedName, now: Time, actions: &mut Vec<Action>) {
        self.shared.now = now;
        let index = self.shared.subsystems.known(nqn);
        let subsystem = self.shared.subsystems.get_mut(index);
        subsystem.pass(Passage::None);
        let again = subsystem.reservations.keep_again();
        actions.extend(again.into_iter().map(|keep| Action::Keep(Box::new(Keep::Reservation(keep)))));
        let again = subsystem.sanitizing.keep_again(nqn);
        actions.extend(again.map(|keep| Action::Keep(Box::new(Keep::Sanitize(keep)))));
        sanitize::look_at(self, index);
        placement::arrived(self, index, actions);
        let mut connections = Vec::new();
        let mut expires = Time::NEVER;
        let associations = self.shared.associations.iter_mut();
        for (_, association) in associations.filter(|(_, one)| one.subsystem == Some(index)) {
            // Its host was not listened to meanwhile.
            association.keep_alive.heard_at = now;
            expires = expires.min(association.expires());
            connections.extend_from_slice(&association.connections);
        }
        self.shared.tick_by(expires);
        self.connect_all_parked(index, actions);
        self.sweep(actions);
        for &number in &connections {
            // Some may have ended with what the Connects that waited found.
            if let Some(connection) = self.connections.get_mut(number) {
                connection.held.remove(Held::FROZEN);
            }
        }
        // What waited for memory there may find some here.
        self.shared.memory.budget.set_gave_back();
        for number in connections {
            if self.connections.get(number).is_some() {
                self.run(number, actions);
            }
            // What one of them asked for, as a reset, comes before what the next one has.
            self.sweep(actions);
        }
    }

    /// Gives all connections of a drained subsystem to the shard `to`; `config` is what is left to know of it here.
    ///
    /// # Panics
    /// If there is no such subsystem, or it is not drained.
    pub fn release(&mut self, config: SubsystemConfig, to: u16, now: Time, actions: &mut Vec<Action>) {
        self.shared.now = now;
        assert!(self.is_drained(&config.nqn), "I-T6: {} is handed over without commands", config.nqn);
        let index = self.shared.subsystems.known(&config.nqn);
        let own = self.shared.associations.of(Some(index));
        let own: Vec<u32> = own.map(|(number, _)| number).collect();
        for number in own {
            let mut association = self.shared.associations.remove(number);
            let host_account = association.host_account;
            let controller_id = association.controller_id;
            let connections = std::mem::take(&mut association.connections);
            let mut association = Some(association);
            for number in connections {
                let mut connection = self.connections.remove(number);
                self.shared.memory.balance(&mut connection);
                self.shared.memory.budget.close(std::mem::take(&mut connection.holding.account));
                let queue = connection.queue.take().expect("I-T3: connections of an association are queues");
                assert_eq!(queue.submitted, 0, "I-T6: a queue is handed over without commands in namespaces");
                let is_admin = queue.id == 0;
                let awaiting = self.shared.awaiting.take_of(connection.index, connection.id);
                let moved = MovedQueue {
                    awaiting,
                    subsystem: config.nqn.clone(),
                    controller_id,
                    queue,
                    receiver: std::mem::replace(&mut connection.inbound.receiver, Receiver::new()),
                    current: std::mem::replace(&mut connection.inbound.current, Current::Nothing),
                    data_wait: connection.inbound.data_wait,
                    association: if is_admin { association.take() } else { None },
                };
                mark!("nvmf: connection at work handed over");
                if !moved.current.is_nothing() {
                    mark!("nvmf: connection handed over in the midst of a command");
                }
                let mut moved = connection.take_moved(Arriving::Live(Box::new(moved)));
                if mutant!("nvmf: unread bytes stay behind") {
                    moved.unread_at = moved.unread.len();
                }
                actions.push(Action::HandOver(connection.id, to, Box::new(moved)));
            }
            self.shared.memory.budget.leave_host(host_account);
            assert!(association.is_none(), "I-T6: a controller that does not end has its admin queue");
        }
        self.place(config, None, now, actions);
    }

    /// Takes over a connection at work.
    pub(crate) fn adopt_live(
        &mut self,
        mut connection: Connection,
        moved: MovedQueue,
        actions: &mut Vec<Action>,
    ) {
        let MovedQueue {
            subsystem,
            controller_id,
            queue,
            receiver,
            current,
            data_wait,
            awaiting,
            association,
        } = moved;
        let id = connection.id;
        let config = |index: u32| &self.shared.subsystems.get(index).config;
        // It may have been removed since.
        let home = self.shared.subsystems.find(&subsystem).filter(|&index| config(index).home == Home::Here);
        connection.enter(Phase::Live);
        (connection.inbound.receiver, connection.inbound.current) = (receiver, current);
        (connection.queue, connection.subsystem) = (Some(queue), home);
        let number = match (home, association) {
            (None, _) => None,
            (Some(index), Some(association)) => {
                is_allowed(config(index), association.host.as_ref()).then(|| {
                    let mut association = association;
                    association.subsystem = Some(index);
                    association.host_account = self.shared.memory.budget.add_host();
                    assert!(association.connections.is_empty(), "I-T6: connections follow their controller");
                    self.shared.associations.add(association)
                })
            }
            (Some(index), None) => self.shared.associations.find(Some(index), controller_id),
        };
        connection.association = number;
        if home.is_some() {
            connection.held.insert(Held::FROZEN);
        }
        connection.inbound.data_wait = data_wait;
        if let Some(number) = number {
            let host_account = self.shared.associations.kept(number).host_account;
            let tenant = self.shared.tenant_of(connection.subsystem);
            self.shared.memory.reopen_queue(&mut connection, tenant, host_account, &self.shared.config);
        } else {
            // What it has begun, and what it still has to say, is held until it is gone, too.
            let begun_bytes = connection.queue.as_ref().map_or(0, |queue| queue.held().0);
            let unsent_bytes = connection.outbound.outbox.payload_held_bytes();
            self.shared.memory.budget.force(&mut connection.holding.account, begun_bytes + unsent_bytes);
        }
        let index = self.add_connection(connection);
        awaiting.into_iter().for_each(|one| self.shared.awaiting.arrive(index, id, one));
        let Some(number) = number else {
            mark!("nvmf: connection arrived without its controller");
            return self.close_connection(index, actions);
        };
        let siblings = &mut self.shared.associations.kept_mut(number).connections;
        assert!(!siblings.contains(&index), "I-T3: an association names each of its connections once");
        siblings.push(index);
        let mut connection = self.connections.lend(index);
        // It may have waited for memory at its old home. That says nothing of this one.
        self.shared.memory.waiting.add(&mut connection, self.shared.now);
        self.settle(index, connection, actions);
    }
}
