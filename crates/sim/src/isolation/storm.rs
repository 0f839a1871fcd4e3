//! The reconnect storm: hosts that connect, bring their controller up, connect an I/O queue, flush once, hang up and
//! start again at once. They go the whole way of a real host: bytes of the initiator through the shard's target.

use diecut_devices::Device;
use diecut_initiator::{Admin, Command, Completion, QueuePair, QueueParameters, Token};
use diecut_nvme::QualifiedName;
use diecut_shard::Shard;
use diecut_shard::drive::{Action, ConnectionId, Drive, Event};
use diecut_units::{Buffer, Span, Time};
use std::collections::{BTreeMap, VecDeque};

/// One way over the network.
const WIRE: Span = Span::from_micros(10);

/// Bytes on their way, with the time they arrive.
type Flight = VecDeque<(Time, Vec<u8>)>;

struct Link {
    connection: ConnectionId,
    to_shard: Flight,
    to_host: Flight,
    /// The shard has heard of it.
    accepted: bool,
    over: bool,
}

impl Link {
    fn new(connection: ConnectionId) -> Link {
        let (to_shard, to_host) = (VecDeque::new(), VecDeque::new());
        Link { connection, to_shard, to_host, accepted: false, over: false }
    }

    fn due(&self) -> Time {
        let to_shard = self.to_shard.front().filter(|_| self.accepted);
        let fronts = to_shard.into_iter().chain(self.to_host.front());
        fronts.map(|(at, _)| *at).min().unwrap_or(Time::NEVER)
    }

    /// Hands the shard a message that has arrived there, if the round has a turn left.
    fn deliver(&mut self, turns: &mut u32, shard: &mut Shard<Device>, now: Time, actions: &mut Vec<Action>) {
        if *turns > 0 && self.accepted && self.to_shard.front().is_some_and(|(at, _)| *at <= now) {
            *turns -= 1;
            let (_, bytes) = self.to_shard.pop_front().expect("there is one");
            let event = Event::Received { connection: self.connection, bytes: Buffer::copy_from(&bytes) };
            shard.handle(event, now, actions);
        }
    }

    /// Gives what has arrived at the host.
    fn arrive(&mut self, now: Time) -> Vec<u8> {
        let mut arrived = Vec::new();
        while self.to_host.front().is_some_and(|(at, _)| *at <= now) {
            arrived.extend(self.to_host.pop_front().expect("there is one").1);
        }
        arrived
    }

    fn send(&mut self, bytes: &[u8], now: Time) -> usize {
        if !bytes.is_empty() {
            self.to_shard.push_back((now + WIRE, bytes.to_vec()));
        }
        bytes.len()
    }
}

struct Host {
    parameters: QueueParameters,
    /// Down until then, if it has no link.
    next_try: Time,
    admin: Option<(Link, Admin)>,
    io: Option<(Link, QueuePair)>,
    flushing: bool,
}

fn host_id(number: u16) -> [u8; 16] {
    let mut id = [0x5a; 16];
    id[..2].copy_from_slice(&number.to_le_bytes());
    id
}

/// See the module.
pub(super) struct Storm {
    hosts: Vec<Host>,
    /// Host of each connection.
    by_connection: BTreeMap<ConnectionId, usize>,
    next_connection: u64,
    /// Connections that are to be accepted (true) or closed, in the order of their turns.
    changes: VecDeque<(ConnectionId, bool)>,
    /// The last round accepted or closed one.
    changed: bool,
    /// Whose message comes first in the next round.
    turn: usize,
    completions: Vec<Completion>,
    /// Hosts that came up, over all.
    pub connects: u64,
    /// Attempts that the target ended or refused.
    pub refused: u64,
}

impl Storm {
    /// Hosts of `subsystem` that are about to connect.
    pub fn new(hosts: u16, subsystem: &str) -> Storm {
        let name = |text: &str| QualifiedName::new(text).expect("a fixed form");
        let host = |number: u16| Host {
            parameters: QueueParameters::admin(
                name(&format!("nqn.2014-08.org.nvmexpress:uuid:storm-{number}")),
                host_id(number),
                name(subsystem),
            ),
            next_try: Time::NEVER,
            admin: None,
            io: None,
            flushing: false,
        };
        Storm {
            changed: false,
            hosts: (0..hosts).map(host).collect(),
            by_connection: BTreeMap::new(),
            next_connection: 1,
            changes: VecDeque::new(),
            turn: 0,
            completions: Vec::new(),
            connects: 0,
            refused: 0,
        }
    }

    /// The hosts begin.
    pub fn start(&mut self, now: Time) {
        for host in &mut self.hosts {
            host.next_try = now;
        }
    }

    /// When [`Storm::work`] has something to do.
    pub fn deadline(&self) -> Time {
        if !self.changes.is_empty() {
            return Time::ZERO;
        }
        let due = |host: &Host| {
            let links = host.admin.iter().map(|(link, _)| link).chain(host.io.iter().map(|(link, _)| link));
            links.map(Link::due).fold(host.next_try, Time::min)
        };
        self.hosts.iter().map(due).min().unwrap_or(Time::NEVER)
    }

    /// Takes what the shard asked for its connections: its output takes off.
    pub fn take_actions(&mut self, actions: &mut Vec<Action>, shard: &mut Shard<Device>, now: Time) {
        let mut batch = std::mem::take(actions);
        for action in batch.drain(..) {
            let (Action::Transmit { connection } | Action::Close { connection }) = action else {
                actions.push(action);
                continue;
            };
            let Some(&host) = self.by_connection.get(&connection) else { continue };
            let host = &mut self.hosts[host];
            let links =
                host.admin.iter_mut().map(|(link, _)| link).chain(host.io.iter_mut().map(|(link, _)| link));
            let Some(link) = links.into_iter().find(|link| link.connection == connection) else { continue };
            if matches!(action, Action::Close { .. }) {
                link.over = true;
                link.to_host.push_back((now + WIRE, Vec::new()));
                continue;
            }
            let Some(outbox) = shard.outbox(connection) else { continue };
            let mut bytes = vec![0; outbox.len_bytes()];
            let len_bytes = outbox.copy_to(&mut bytes);
            shard.sent(connection, len_bytes, actions);
            link.to_host.push_back((now + WIRE, bytes));
        }
    }

    /// Lets hosts do what is due. Of the shard's core a round gets what the reactor gives hosts that come up: one connection
    /// that is accepted or closed, or one message.
    pub fn work(&mut self, shard: &mut Shard<Device>, now: Time, actions: &mut Vec<Action>) {
        // Accepting and closing, and messages, take turns.
        self.changed = !self.changed && !self.changes.is_empty();
        let mut turns = u32::from(!self.changed);
        if self.changed {
            self.change_one(shard, now, actions);
        }
        self.turn += 1;
        for step in 0..self.hosts.len() {
            let index = (self.turn + step) % self.hosts.len();
            let mut connection = || {
                self.next_connection += 1;
                let connection = ConnectionId(self.next_connection);
                self.by_connection.insert(connection, index);
                self.changes.push_back((connection, true));
                connection
            };
            let host = &mut self.hosts[index];
            if host.next_try <= now {
                host.next_try = Time::NEVER;
                let admin = Admin::new(host.parameters.clone(), 1);
                host.admin = Some((Link::new(connection()), admin));
            }
            let mut over = false;
            if let Some((link, admin)) = &mut host.admin {
                link.deliver(&mut turns, shard, now, actions);
                let bytes = link.arrive(now);
                over |= admin.receive(&bytes, now, &mut self.completions).is_err() || link.over;
                let len_bytes = link.send(admin.output(), now);
                admin.sent(len_bytes);
                if !over && host.io.is_none() && admin.facts().is_some() {
                    let queue = QueuePair::new(admin.io_queue(1, 4));
                    host.io = Some((Link::new(connection()), queue));
                }
            }
            if let Some((link, queue)) = &mut host.io {
                link.deliver(&mut turns, shard, now, actions);
                let bytes = link.arrive(now);
                over |= queue.receive(&bytes, &mut self.completions).is_err() || link.over;
                if !over && queue.is_ready() && !host.flushing {
                    queue.submit(Token(1), Command::Flush { nsid: 1 });
                    host.flushing = true;
                }
                let len_bytes = link.send(queue.output(), now);
                queue.sent(len_bytes);
            }
            let up = host.flushing && self.completions.iter().any(|completion| completion.token == Token(1));
            self.completions.clear();
            self.connects += u64::from(up);
            self.refused += u64::from(over);
            if up || over {
                self.hang_up(index);
                self.hosts[index].next_try = now + WIRE;
            }
        }
    }

    /// The shard accepts or closes the connection whose turn it is.
    fn change_one(&mut self, shard: &mut Shard<Device>, now: Time, actions: &mut Vec<Action>) {
        let Some((connection, accept)) = self.changes.pop_front() else { return };
        if !accept {
            return shard.handle(Event::Closed { connection }, now, actions);
        }
        shard.handle(Event::Accepted { connection, local: None }, now, actions);
        let Some(host) = self.by_connection.get(&connection) else { return };
        let host = &mut self.hosts[*host];
        let links =
            host.admin.iter_mut().map(|(link, _)| link).chain(host.io.iter_mut().map(|(link, _)| link));
        for link in links.filter(|link| link.connection == connection) {
            link.accepted = true;
        }
    }

    fn hang_up(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        host.flushing = false;
        let links =
            host.io.take().map(|(link, _)| link).into_iter().chain(host.admin.take().map(|(link, _)| link));
        for link in links {
            self.by_connection.remove(&link.connection);
            self.changes.push_back((link.connection, false));
        }
    }

    /// All hosts hang up and stay away.
    pub fn stop(&mut self, shard: &mut Shard<Device>, now: Time, actions: &mut Vec<Action>) {
        for index in 0..self.hosts.len() {
            self.hang_up(index);
            self.hosts[index].next_try = Time::NEVER;
        }
        while !self.changes.is_empty() {
            self.change_one(shard, now, actions);
        }
    }
}
