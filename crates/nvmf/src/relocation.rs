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

use crate::config::{Health, Home, SubsystemConfig};
use crate::connection::{Arriving, Connection, Current, Held, MovedConnection, Phase};
use crate::controller::{Association, Traffic};
use crate::discovery::is_allowed;
use crate::event::Action;
use crate::queue::Queue;
use crate::target::{Passage, Subsystem, Target};
use crate::tcp::Receiver;
use diecut_nvme::QualifiedName;
use diecut_units::{Time, mark, mutant};

/// What is counted and told for a subsystem, on its way to another shard.
#[derive(Clone, Copy, Debug)]
pub struct SubsystemFigures {
    health: Health,
    traffic: Traffic,
}

/// A queue on its way to another shard; no namespace has a command of it.
#[derive(Debug)]
pub(crate) struct MovedQueue {
    subsystem: QualifiedName,
    controller_id: u16,
    queue: Queue,
    receiver: Receiver,
    current: Current,
    /// The data of the command it is at wait for memory.
    data_wait: bool,
    /// With the admin queue.
    association: Option<Association>,
}

impl Target {
    fn index_of(&self, nqn: &QualifiedName) -> u32 {
        *self.by_nqn.get(nqn).expect("a subsystem that moves is known")
    }
    fn known(&mut self, index: u32) -> &mut Subsystem {
        self.subsystems[index as usize].as_mut().expect("known by its name")
    }

    /// Begins to take a subsystem away from here: until [`Target::release`] nothing of its hosts is looked at.
    ///
    /// # Panics
    /// If there is no such subsystem.
    pub fn freeze(&mut self, nqn: &QualifiedName) {
        let index = self.index_of(nqn);
        self.known(index).passage = Passage::Leaves;
        for (_, association) in self.associations.iter().filter(|(_, one)| one.subsystem == Some(index)) {
            for &number in &association.connections {
                self.connections.get_mut(number).expect("of an association").held.insert(Held::FROZEN);
            }
        }
    }

    /// Whether no command of a frozen subsystem is in a namespace, and no controller of it is about to end.
    ///
    /// # Panics
    /// If there is no such subsystem.
    pub fn is_drained(&self, nqn: &QualifiedName) -> bool {
        let index = self.index_of(nqn);
        let idle = |number: &u32| self.connections.get(*number).is_none_or(|one| one.submitted() == 0);
        let mut own = self.associations.iter().filter(|(_, one)| one.subsystem == Some(index));
        own.all(|(_, one)| !one.dying && one.connections.iter().all(idle))
    }

    /// What was counted for a subsystem.
    ///
    /// # Panics
    /// If there is no such subsystem.
    pub fn figures(&self, nqn: &QualifiedName) -> SubsystemFigures {
        let subsystem = self.subsystem(self.index_of(nqn));
        SubsystemFigures { health: subsystem.health, traffic: subsystem.traffic }
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
        self.now = now;
        let index = self.index_of(&config.nqn);
        let subsystem = self.known(index);
        (subsystem.config, subsystem.passage) = (config, Passage::None);
        if let Some(SubsystemFigures { health, traffic }) = figures {
            subsystem.passage = Passage::Arrives;
            (subsystem.health, subsystem.traffic) = (health, traffic);
        }
        self.seat_tenant(index);
        self.sweep(now, actions);
    }

    /// The last connection from a subsystem's old home has come: hosts are listened to again.
    ///
    /// # Panics
    /// If there is no such subsystem.
    pub fn arrived(&mut self, nqn: &QualifiedName, now: Time, actions: &mut Vec<Action>) {
        self.now = now;
        let index = self.index_of(nqn);
        self.known(index).passage = Passage::None;
        let mut connections = Vec::new();
        let mut expires = Time::NEVER;
        for (_, association) in self.associations.iter_mut().filter(|(_, one)| one.subsystem == Some(index)) {
            // Its host was not listened to meanwhile.
            association.last_traffic = now;
            expires = expires.min(association.expires());
            connections.extend_from_slice(&association.connections);
        }
        self.tick_by(expires);
        self.connect_all_parked(index, now, actions);
        self.sweep(now, actions);
        for &number in &connections {
            // Some may have ended with what the Connects that waited found.
            if let Some(connection) = self.connections.get_mut(number) {
                connection.held.remove(Held::FROZEN);
            }
        }
        // What waited for memory there may find some here.
        self.budget.set_gave_back();
        for number in connections {
            if self.connections.get(number).is_some() {
                self.run(number, now, actions);
            }
            // What one of them asked for, as a reset, comes before what the next one has.
            self.sweep(now, actions);
        }
    }

    /// Gives all connections of a drained subsystem to the shard `to`; `config` is what is left to know of it here.
    ///
    /// # Panics
    /// If there is no such subsystem, or it is not drained.
    pub fn release(&mut self, config: SubsystemConfig, to: u16, now: Time, actions: &mut Vec<Action>) {
        self.now = now;
        assert!(self.is_drained(&config.nqn), "{} is handed over without commands", config.nqn);
        let index = self.index_of(&config.nqn);
        let own = self.associations.iter().filter(|(_, one)| one.subsystem == Some(index));
        let own: Vec<u32> = own.map(|(number, _)| number).collect();
        for number in own {
            let mut association = self.associations.remove(number);
            self.association_count -= 1;
            let host_account = association.host_account;
            let controller_id = association.controller_id;
            let connections = std::mem::take(&mut association.connections);
            let mut association = Some(association);
            for number in connections {
                let mut connection = self.connections.remove(number);
                self.by_id.remove(&connection.id);
                connection.balance(&mut self.budget, &mut self.pins);
                self.budget.close(std::mem::take(&mut connection.account));
                let queue = connection.queue.take().expect("of an association");
                let is_admin = queue.id == 0;
                let moved = MovedQueue {
                    subsystem: config.nqn.clone(),
                    controller_id,
                    queue,
                    receiver: std::mem::replace(&mut connection.receiver, Receiver::new()),
                    current: std::mem::replace(&mut connection.current, Current::Nothing),
                    data_wait: connection.data_wait,
                    association: if is_admin { association.take() } else { None },
                };
                mark!("nvmf: connection at work handed over");
                if !moved.current.is_nothing() {
                    mark!("nvmf: connection handed over in the midst of a command");
                }
                let mut moved = connection.take_moved(Arriving::Live(Box::new(moved)));
                if mutant!("nvmf: unread bytes stay behind") {
                    moved.unread.clear();
                    moved.unread_at = 0;
                }
                actions.push(Action::HandOver(connection.id, to, Box::new(moved)));
            }
            self.budget.leave_host(host_account);
            assert!(association.is_none(), "a controller that does not end has its admin queue");
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
        let MovedQueue { subsystem, controller_id, queue, receiver, current, data_wait, association } = moved;
        let config = |index: u32| &self.subsystem(index).config;
        // It may have been removed since.
        let home = self.by_nqn.get(&subsystem).copied().filter(|&index| config(index).home == Home::Here);
        connection.phase = Phase::Live;
        (connection.receiver, connection.current) = (receiver, current);
        (connection.queue, connection.subsystem) = (Some(queue), home);
        let number = match (home, association) {
            (None, _) => None,
            (Some(index), Some(association)) => {
                is_allowed(config(index), association.host.as_ref()).then(|| {
                    let host_account = self.budget.add_host();
                    let connections = Vec::new();
                    let association =
                        Association { subsystem: Some(index), host_account, connections, ..association };
                    // Ids go round: one that was just freed is not used at once.
                    self.last_controller_id = self.last_controller_id.max(association.controller_id);
                    self.association_count += 1;
                    self.associations.insert(association)
                })
            }
            (Some(index), None) => self
                .associations
                .iter()
                .find(|(_, one)| {
                    one.subsystem == Some(index) && one.controller_id == controller_id && !one.dying
                })
                .map(|(number, _)| number),
        };
        connection.association = number;
        if home.is_some() {
            connection.held.insert(Held::FROZEN);
        }
        connection.data_wait = data_wait;
        if let Some(number) = number {
            let host_account = self.associations.get(number).expect("just found").host_account;
            self.reopen_queue(&mut connection, host_account);
        } else {
            // What it has begun, and what it still has to say, is held until it is gone, too.
            let begun_bytes = connection.queue.as_ref().map_or(0, |queue| queue.held().0);
            let unsent_bytes = connection.outbox.payload_held_bytes();
            self.budget.force(&mut connection.account, begun_bytes + unsent_bytes);
        }
        let index = self.add_connection(connection);
        let Some(number) = number else {
            mark!("nvmf: connection arrived without its controller");
            return self.close_connection(index, actions);
        };
        self.associations.get_mut(number).expect("just found").connections.push(index);
        let mut connection = self.connections.lend(index);
        // It may have waited for memory at its old home. That says nothing of this one.
        self.look_for_room(&mut connection);
        self.settle(index, connection, actions);
    }
}

impl Connection {
    /// What travels of a connection; nothing is left of it here.
    pub(crate) fn take_moved(&mut self, arriving: Arriving) -> MovedConnection {
        MovedConnection {
            digests: self.digests,
            host_alignment: self.host_alignment,
            unread: std::mem::take(&mut self.backlog),
            unread_at: self.backlog_at,
            unsent: std::mem::take(&mut self.outbox),
            arriving,
        }
    }
}
