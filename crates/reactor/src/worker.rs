//! The thread of one shard.

use crate::blocks::{self, BlockClients};
use crate::common::{Common, Ends};
use crate::connection::{Connection, Turn};
use crate::doors::{Chosen, Full, Why};
use crate::inbox::{Message, Respond, Unsent};
use crate::log::NoticeLog;
use diecut_shard::control::ControlToken;
use diecut_shard::drive::{Action, BlockEvent, ConnectionId, Drive, Event, ShardIndex};
use diecut_shard::notice::Cause;
use diecut_units::{BufferPool, Span, Time};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use socket2::{SockRef, TcpKeepalive};
use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

pub(crate) const WAKER: Token = Token(usize::MAX);
const BLOCKS_LISTENER: Token = Token(usize::MAX - 1);
const FIRST_LISTENER: usize = usize::MAX - 64;
const EVENTS_PER_ROUND: usize = 256;
/// Accepting a connection costs as much as a dozen commands, and the commands of a round wait for it. A backlog is taken one by
/// one in rounds that follow each other at once.
const ACCEPTS_PER_ROUND: usize = 1;
/// The same for messages of hosts that come up.
const NEWCOMER_TURNS_PER_ROUND: usize = 1;
/// Answers of a host whose commands go on are sent when there are so many bytes of them, or when there are no more: a round is
/// short, so that others need not wait, and a system call for the few answers of each would cost more than they do.
const TOGETHER_BELOW_BYTES: usize = 128 << 10;
const MESSAGES_PER_ROUND: usize = 256;
/// A host that does not take its last bytes is hung up on after this.
const CLOSE_PATIENCE: Span = Span::from_secs(5);
/// When a thread whose queue was full is tried again.
const RETRY_AFTER: Span = Span::from_millis(2);
/// The kernel asks whether a host is there that was silent for so long, and gives it up after some silent answers.
const PROBE_AFTER: Duration = Duration::from_secs(30);
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// A deadline this near is waited for without sleeping: the kernel's timer counts milliseconds.
const SPIN_BELOW: Span = Span::from_micros(1_500);
/// How often memory that is not needed is given up, how often while there is more of it, and how many buffers at once: a
/// round must stay short.
const SHRINK_EVERY: Span = Span::from_secs(1);
const SHRINK_AGAIN_AFTER: Span = Span::from_millis(2);
const SHRINK_SLABS_MAX: u32 = 256;
/// Looks after the last work: the first one only sees what the next one may give up.
const SHRINK_LOOKS: u32 = 3;
/// Rounds without work before the thread sleeps: the next request of a busy host is usually on its way.
const IDLE_ROUNDS: u32 = 32;

pub(crate) struct Worker<D: Drive> {
    shard: D,
    common: Arc<Common>,
    poll: Poll,
    inbox: Receiver<Message>,
    index: ShardIndex,
    listeners: Vec<TcpListener>,
    /// Hosts wait until they may come.
    is_closed: bool,
    /// Listeners that may have more connections.
    accepting: bool,
    /// The last round accepted.
    accepted: bool,
    accept_again_at: Time,
    next_shard: usize,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    by_id: BTreeMap<ConnectionId, usize>,
    /// Connections to read, and to write, in the order of their turns.
    to_read: Vec<usize>,
    to_write: Vec<usize>,
    closing: Vec<usize>,
    /// The other half of a double buffer for turns.
    spare: Vec<usize>,
    /// Messages for threads whose queue is full, by thread, in order.
    unsent: Vec<VecDeque<Message>>,
    answers: BTreeMap<ControlToken, Respond>,
    next_answer: u64,
    actions: Vec<Action>,
    pool: BufferPool,
    blocks: BlockClients,
    notices: NoticeLog,
    /// To the thread that syncs the device's file, where it has to be.
    syncs: Option<Sender<u64>>,
    /// When memory is looked at next, and how many looks there are until there is work again, or one of them gives something up.
    shrink_at: Time,
    looks_left: u32,
    memory_bytes: usize,
    stopping: bool,
    /// How long it looks for work after its last before it sleeps.
    busy_poll: Span,
}

impl<D: Drive> Worker<D> {
    /// The thread's state, its listeners watched.
    ///
    /// # Errors
    /// What the system says when a listener cannot be watched.
    pub fn new(shard: D, common: Arc<Common>, ends: Ends) -> std::io::Result<Worker<D>> {
        let Ends { poll, inbox, index, mut listeners, is_closed, blocks, syncs, busy_poll } = ends;
        for (number, listener) in listeners.iter_mut().enumerate() {
            poll.registry().register(listener, Token(FIRST_LISTENER + number), Interest::READABLE)?;
        }
        let mut blocks = BlockClients::new(blocks, Arc::clone(&common.next_connection));
        blocks.watch(poll.registry(), BLOCKS_LISTENER)?;
        let unsent = common.addresses.iter().map(|_| VecDeque::new()).collect();
        Ok(Worker {
            unsent,
            shard,
            common,
            poll,
            inbox,
            index,
            listeners,
            is_closed,
            accepting: false,
            accepted: false,
            accept_again_at: Time::NEVER,
            next_shard: 0,
            connections: Vec::new(),
            free: Vec::new(),
            by_id: BTreeMap::new(),
            to_read: Vec::new(),
            to_write: Vec::new(),
            closing: Vec::new(),
            spare: Vec::new(),
            answers: BTreeMap::new(),
            next_answer: 0,
            actions: Vec::new(),
            pool: BufferPool::new(),
            blocks,
            notices: NoticeLog::default(),
            syncs,
            shrink_at: Time::ZERO,
            looks_left: 0,
            memory_bytes: 0,
            stopping: false,
            busy_poll,
        })
    }

    /// Runs until it is told to stop.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS_PER_ROUND);
        let mut idle_rounds = 0;
        let mut sleeps_from = Time::ZERO;
        while !self.stopping {
            let is_polling =
                idle_rounds < IDLE_ROUNDS || (self.busy_poll > Span::ZERO && self.common.now() < sleeps_from);
            let mut timeout = if is_polling { Some(Duration::ZERO) } else { self.patience() };
            let sleeps = timeout != Some(Duration::ZERO);
            if sleeps && self.blocks.announce(true) {
                timeout = Some(Duration::ZERO);
            }
            let mut system_calls = 1;
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => events.clear(),
                Err(error) => panic!("epoll cannot be waited for: {error}"),
            }
            if sleeps {
                self.blocks.announce(false);
            }
            let mut now = self.common.now();
            let mut worked = !events.is_empty();
            for event in &events {
                match event.token() {
                    WAKER => {}
                    BLOCKS_LISTENER => self.blocks.accept_soon(),
                    Token(number) if number >= FIRST_LISTENER => self.accepting = true,
                    Token(number) if number >= blocks::FIRST_TOKEN => self.blocks.ready(number),
                    Token(number) => {
                        let Some(connection) = self.connections.get_mut(number).and_then(Option::as_mut)
                        else {
                            continue;
                        };
                        if event.is_readable() || event.is_read_closed() || event.is_error() {
                            connection.readable = true;
                            connection.ended |= event.is_read_closed() || event.is_error();
                            list(connection, number, &mut self.to_read);
                        }
                        if event.is_writable() && connection.blocked {
                            connection.blocked = false;
                            self.to_write.push(number);
                        }
                    }
                }
            }
            worked |= self.read_inbox(now);
            // Connections may have been given away: nothing more is read of them here.
            self.act(now);
            self.send_again();
            worked |= self.read_connections(now, false, &mut system_calls);
            let registry = self.poll.registry();
            worked |= self.blocks.work(
                &mut self.shard,
                registry,
                &mut self.pool,
                now,
                &mut self.actions,
                &mut self.notices,
            );
            if self.shard.deadline() <= now {
                worked = true;
                // What arrived in this round has waited for the others of the round, and what is answered in it must not
                // look as if it took no time.
                now = self.common.now();
                self.shard.work(now, &mut self.actions);
            }
            self.act(now);
            self.write_connections(now, &mut system_calls);
            self.act(now);
            self.blocks.wake();
            system_calls += std::mem::take(&mut self.blocks.system_calls);
            // Hosts that come up have their turn when hosts at work were answered: what these send meanwhile waits for
            // the turn alone, not for the turn before it, too.
            if !self.accept_one(now) {
                self.read_connections(now, true, &mut system_calls);
            }
            self.close_late(now);
            if worked {
                self.looks_left = SHRINK_LOOKS;
            }
            if self.looks_left > 0 && self.shrink_at <= now {
                self.keep_memory(now);
            }
            if self.notices.deadline() <= now {
                self.notices.work(now);
            }
            self.common.system_calls.fetch_add(system_calls, Ordering::Relaxed);
            if worked {
                sleeps_from = now + self.busy_poll;
            }
            idle_rounds = if worked { 0 } else { idle_rounds.saturating_add(1) };
        }
    }

    fn patience(&self) -> Option<Duration> {
        if !self.to_read.is_empty() || !self.to_write.is_empty() || self.accepting {
            return Some(Duration::ZERO);
        }
        let closing = self.closing.iter().filter_map(|&at| self.connections[at].as_ref()?.closing).min();
        let next = self
            .shard
            .deadline()
            .min(closing.unwrap_or(Time::NEVER))
            .min(self.accept_again_at)
            .min(if self.looks_left > 0 { self.shrink_at } else { Time::NEVER })
            .min(self.blocks.deadline())
            .min(self.notices.deadline());
        if next == Time::NEVER {
            return None;
        }
        let left = next.since(self.common.now());
        if left < SPIN_BELOW { Some(Duration::ZERO) } else { Some(Duration::from_nanos(left.0)) }
    }

    /// Gives up what was not needed of late, and follows the memory that connections may hold.
    fn keep_memory(&mut self, now: Time) {
        let wanted = self.common.memory_bytes.load(Ordering::Relaxed);
        if wanted != 0 && wanted != self.memory_bytes {
            self.memory_bytes = wanted;
            self.shard.set_memory(wanted);
        }
        let given_up = self.shard.shrink(SHRINK_SLABS_MAX) + self.pool.shrink(SHRINK_SLABS_MAX);
        let used = self.shard.memory().used_bytes + self.pool.size_bytes();
        self.common.used_bytes[usize::from(self.index.0)].store(used, Ordering::Relaxed);
        self.common.given_up_bytes.fetch_add(given_up as u64, Ordering::Relaxed);
        self.looks_left = if given_up > 0 { SHRINK_LOOKS } else { self.looks_left.saturating_sub(1) };
        let is_much = given_up > 1 << 20;
        self.shrink_at = now + if is_much { SHRINK_AGAIN_AFTER } else { SHRINK_EVERY };
    }

    /// A host is hung up on at once: there are too many connections that have Connected.
    fn turn_away(&mut self, peer: std::net::IpAddr, full: Full, now: Time) {
        if !self.notices.admit(Cause::TurnedAway, now) {
            return;
        }
        match full {
            Full::All => tracing::warn!(
                "as many connections are open as descriptors allow; one from {peer} is turned away; a higher limit of open files \
                 (ulimit -n) lets more in"
            ),
            Full::Peer => tracing::warn!(
                "{peer} has as many connections as one address may have; another one is turned away"
            ),
        }
    }

    /// A connection without Connect goes in favour of a new one, on whichever thread it is.
    fn send_away(&mut self, chosen: Chosen, now: Time) {
        if self.notices.admit(Cause::Places, now) {
            let peer = chosen.peer;
            match chosen.why {
                Why::NoPlace => tracing::warn!(
                    "{peer} has the most connections that have not sent Connect; its oldest is closed in favour of a new one: \
                     descriptors (ulimit -n) or memory (server.memory_limit) allow no more"
                ),
                Why::Late => tracing::warn!(
                    "a connection from {peer} has not sent Connect and is closed early: many others wait for places, too"
                ),
            }
        }
        self.send(usize::from(chosen.shard.0), Message::SendAway(chosen.connection));
    }

    /// What was sent away from here is gone. One that has Connected meanwhile stays.
    fn go_away(&mut self, id: ConnectionId, now: Time) {
        // One that lingers is not known by its id any more.
        let lingers = || {
            let is_it = |at: &usize| self.connections[*at].as_ref().is_some_and(|one| one.id == id);
            self.closing.iter().copied().find(is_it)
        };
        let Some(number) = self.by_id.get(&id).copied().or_else(lingers) else { return };
        if self.connections[number].as_ref().is_some_and(|one| one.place.is_sent_away()) {
            self.lost(number, now);
        }
    }

    fn read_inbox(&mut self, now: Time) -> bool {
        let mut worked = false;
        for _ in 0..MESSAGES_PER_ROUND {
            let Ok(message) = self.inbox.try_recv() else { return worked };
            worked = true;
            match message {
                Message::SendAway(id) => self.go_away(id, now),
                Message::Accepted(id, stream, local, place) => {
                    if self.add(Connection::new(stream, id, place)) {
                        let event = Event::Accepted { connection: id, local };
                        self.shard.handle(event, now, &mut self.actions);
                    }
                }
                Message::Adopted(id, moving, state) => {
                    // It may have been sent away on its way.
                    if moving.arrives(self.index) && self.add(Connection::adopted(moving, id)) {
                        let event = Event::Adopted { connection: id, state };
                        self.shard.handle(event, now, &mut self.actions);
                    }
                }
                Message::Told(from, message) => {
                    self.shard.handle(Event::Told { from, message }, now, &mut self.actions);
                }
                Message::Control(request, respond) => {
                    self.next_answer += 1;
                    let token = ControlToken(self.next_answer);
                    self.answers.insert(token, respond);
                    self.shard.handle(Event::Control { token, request }, now, &mut self.actions);
                }
                Message::Blocks(moving) => {
                    let (shard, actions) = (&mut self.shard, &mut self.actions);
                    self.blocks.adopt(*moving, shard, self.poll.registry(), now, actions, &mut self.notices);
                }
                Message::Synced(number, worked) => {
                    self.shard.handle(Event::Synced { number, worked }, now, &mut self.actions);
                }
                Message::Open => (self.is_closed, self.accepting) = (false, true),
                Message::Stop => self.stopping = true,
            }
        }
        worked
    }

    fn has_unsent(&self) -> bool {
        self.unsent.iter().any(|waiting| !waiting.is_empty())
    }

    /// Sends a message, now or when the receiver has room; messages to one thread stay in order. Never blocks: two threads
    /// could wait for each other.
    fn send(&mut self, to: usize, message: Message) {
        if !self.unsent[to].is_empty() {
            return self.unsent[to].push_back(message);
        }
        if let Err(Unsent::Full(message)) = self.common.addresses[to].try_send(message) {
            self.unsent[to].push_back(message);
        }
    }

    fn send_again(&mut self) {
        for (to, waiting) in self.unsent.iter_mut().enumerate() {
            while let Some(message) = waiting.pop_front() {
                match self.common.addresses[to].try_send(message) {
                    Ok(()) => {}
                    Err(Unsent::Full(message)) => {
                        waiting.push_front(message);
                        break;
                    }
                    Err(Unsent::Gone) => waiting.clear(),
                }
            }
        }
    }

    fn accept(&mut self, now: Time) {
        self.accepting = false;
        self.accept_again_at = Time::NEVER;
        for listener in 0..self.listeners.len() {
            let mut drained = false;
            for _ in 0..ACCEPTS_PER_ROUND {
                if self.has_unsent() {
                    break;
                }
                if self.common.doors.is_busy() {
                    // Those that were sent away must be gone first: there is a descriptor for each place, and not many more.
                    self.accept_again_at = now + RETRY_AFTER;
                    break;
                }
                match self.listeners[listener].accept() {
                    Ok((stream, peer)) => {
                        let id = ConnectionId(self.common.next_connection.fetch_add(1, Ordering::Relaxed));
                        let shard = self.next_shard;
                        let peer = peer.ip().to_canonical();
                        let entered = self.common.doors.enter(peer, id, ShardIndex(shard as u16), now);
                        let (place, sent_away) = match entered {
                            Ok(entered) => entered,
                            Err(full) => {
                                self.turn_away(peer, full, now);
                                continue;
                            }
                        };
                        sent_away.into_iter().flatten().for_each(|chosen| self.send_away(chosen, now));
                        // A small answer must not wait for more of it.
                        if let Err(error) = stream.set_nodelay(true) {
                            tracing::debug!("TCP_NODELAY: {error}");
                        }
                        // A host may vanish without a word and without a keep-alive of NVMe; its association ends with
                        // the connection.
                        let keep_alive =
                            TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_EVERY);
                        if let Err(error) = SockRef::from(&stream).set_tcp_keepalive(&keep_alive) {
                            tracing::debug!("SO_KEEPALIVE: {error}");
                        }
                        self.next_shard = (shard + 1) % self.common.addresses.len();
                        let local = stream.local_addr().ok();
                        self.send(shard, Message::Accepted(id, stream, local, place));
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        drained = true;
                        break;
                    }
                    Err(error)
                        if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                    Err(error) => {
                        // Out of descriptors or memory: the connection waits in the kernel, and so do we.
                        if self.notices.admit(Cause::Descriptors, now) {
                            tracing::warn!(
                                "a connection cannot be accepted: {error}; trying again in a while"
                            );
                        }
                        self.accept_again_at = now + Span::from_millis(100);
                        return;
                    }
                }
            }
            // Edge-triggered readiness is not told again for what still waits: it has its turn in the next round.
            self.accepting |= !drained;
        }
    }

    fn add(&mut self, mut connection: Connection) -> bool {
        let number = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let id = connection.id;
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(&mut connection.stream, Token(number), interest) {
            if self.notices.admit(Cause::Descriptors, self.common.now()) {
                tracing::warn!("a connection cannot be watched and is closed: {error}");
            }
            self.free.push(number);
            return false;
        }
        list(&mut connection, number, &mut self.to_read);
        self.connections[number] = Some(connection);
        self.by_id.insert(id, number);
        true
    }

    fn forget(&mut self, number: usize) -> Option<Connection> {
        let mut connection = self.connections[number].take()?;
        if let Err(error) = self.poll.registry().deregister(&mut connection.stream) {
            tracing::debug!("a connection cannot be unwatched: {error}");
        }
        self.by_id.remove(&connection.id);
        self.free.push(number);
        self.to_read.retain(|&other| other != number);
        self.to_write.retain(|&other| other != number);
        self.closing.retain(|&other| other != number);
        Some(connection)
    }

    fn lost(&mut self, number: usize, now: Time) {
        if let Some(connection) = self.forget(number)
            && !connection.lingering
        {
            self.shard.handle(Event::Closed { connection: connection.id }, now, &mut self.actions);
        }
    }

    /// All was written and the shard wants no more: the stream ends as soon as the host ends it too.
    fn linger(&mut self, number: usize, now: Time) {
        let Some(connection) = self.connections[number].as_mut() else { return };
        connection.finish();
        let id = connection.id;
        list(connection, number, &mut self.to_read);
        self.by_id.remove(&id);
        self.shard.handle(Event::Closed { connection: id }, now, &mut self.actions);
    }

    /// Accepts, unless it did so in the last round. Whether it had its turn.
    fn accept_one(&mut self, now: Time) -> bool {
        let accepted_before = std::mem::replace(&mut self.accepted, false);
        if self.has_unsent() {
            // Whoever has too much takes no more, and neither do we.
            self.accept_again_at = now + RETRY_AFTER;
        } else if self.is_closed {
            // Looked at when they may come.
            (self.accepting, self.accept_again_at) = (false, Time::NEVER);
        } else if (self.accepting || self.accept_again_at <= now) && !accepted_before {
            self.accept(now);
            self.accepted = true;
        }
        self.accepted
    }

    /// Reads connections of hosts at work, or of one that comes up. Whether there was something to read.
    fn read_connections(&mut self, now: Time, newcomers: bool, system_calls: &mut u64) -> bool {
        let mut turns = std::mem::replace(&mut self.to_read, std::mem::take(&mut self.spare));
        let worked = !turns.is_empty();
        let mut turns_left = NEWCOMER_TURNS_PER_ROUND;
        for number in turns.drain(..) {
            let Some(connection) = self.connections[number].as_mut() else { continue };
            connection.listed = false;
            if connection.lingering {
                match connection.discard(system_calls) {
                    Turn::Drained => connection.readable = false,
                    Turn::More => list(connection, number, &mut self.to_read),
                    Turn::Gone => self.lost(number, now),
                }
                continue;
            }
            if connection.paused || !connection.readable || connection.closing.is_some() {
                continue;
            }
            // What a host sends while its commands wait for their turns would wait behind them, too: received later it comes in
            // fewer and larger pieces. Each costs a system call and an acknowledgement, and a round is short.
            let has_work = !newcomers && self.shard.goes_on(connection.id);
            if has_work || connection.is_newcomer() != newcomers || (newcomers && turns_left == 0) {
                list(connection, number, &mut self.to_read);
                continue;
            }
            turns_left -= usize::from(newcomers);
            let turn = connection.read(&mut self.shard, &mut self.pool, now, &mut self.actions, system_calls);
            match turn {
                Turn::Drained => connection.readable = false,
                Turn::More => list(connection, number, &mut self.to_read),
                Turn::Gone => self.lost(number, now),
            }
            // A pause or a hand-over of this connection must be known before its next turn.
            self.act(now);
        }
        self.spare = turns;
        worked
    }

    fn write_connections(&mut self, now: Time, system_calls: &mut u64) {
        let mut turns = std::mem::replace(&mut self.to_write, std::mem::take(&mut self.spare));
        if turns.len() > 1 {
            // Short answers first: they cost the long ones next to nothing, the other way round they would wait.
            let (connections, shard) = (&self.connections, &self.shard);
            let waiting = |number: &usize| {
                let id = connections[*number].as_ref().map(|one| one.id);
                id.and_then(|id| shard.outbox(id)).map_or(0, |outbox| outbox.len_bytes())
            };
            turns.sort_unstable_by_key(waiting);
        }
        for number in turns.drain(..) {
            let Some(connection) = self.connections[number].as_mut() else { continue };
            if connection.blocked || connection.lingering {
                continue;
            }
            let waiting = self.shard.outbox(connection.id).map_or(0, |outbox| outbox.len_bytes());
            if waiting < TOGETHER_BELOW_BYTES
                && connection.closing.is_none()
                && self.shard.goes_on(connection.id)
            {
                self.to_write.push(number);
                continue;
            }
            let turn = connection.write(&mut self.shard, &mut self.actions, system_calls);
            // That it has Connected is answered, and so it shows here.
            if !connection.is_connected && self.shard.is_connected(connection.id) {
                connection.is_connected = true;
                connection.place.connected();
            }
            match turn {
                Turn::Gone => self.lost(number, now),
                Turn::Drained if connection.closing.is_some() => self.linger(number, now),
                Turn::More if !connection.blocked => self.to_write.push(number),
                Turn::Drained | Turn::More => {}
            }
        }
        self.spare = turns;
    }

    fn close_late(&mut self, now: Time) {
        for at in (0..self.closing.len()).rev() {
            let number = self.closing[at];
            let late =
                self.connections[number].as_ref().and_then(|one| one.closing).is_none_or(|by| by <= now);
            if late {
                self.lost(number, now);
            }
        }
    }

    fn act(&mut self, now: Time) {
        let mut batch = std::mem::take(&mut self.actions);
        for action in batch.drain(..) {
            match action {
                Action::Transmit { connection } => {
                    if let Some(&number) = self.by_id.get(&connection) {
                        let one = self.connections[number].as_mut().expect("known by its id");
                        if !one.wants_write {
                            one.wants_write = true;
                            self.to_write.push(number);
                        }
                    }
                }
                Action::Close { connection } => {
                    if let Some(&number) = self.by_id.get(&connection) {
                        let one = self.connections[number].as_mut().expect("known by its id");
                        one.closing = Some(now + CLOSE_PATIENCE);
                        self.closing.push(number);
                        if !self.to_write.contains(&number) {
                            self.to_write.push(number);
                        }
                    }
                }
                Action::Pause { connection } => {
                    if let Some(&number) = self.by_id.get(&connection) {
                        self.connections[number].as_mut().expect("known by its id").paused = true;
                    }
                }
                Action::Resume { connection } => {
                    if let Some(&number) = self.by_id.get(&connection) {
                        let one = self.connections[number].as_mut().expect("known by its id");
                        one.paused = false;
                        if one.readable {
                            list(one, number, &mut self.to_read);
                        }
                    }
                }
                Action::HandOver { connection, to, state } => {
                    let Some(&number) = self.by_id.get(&connection) else { continue };
                    let Some(one) = self.forget(number) else { continue };
                    let message = Message::Adopted(connection, one.into_moving(), state);
                    self.send(usize::from(to.0), message);
                }
                Action::Tell { to, message } => {
                    self.send(usize::from(to.0), Message::Told(self.index, message));
                }
                Action::Blocks(action) => {
                    match self.blocks.act(action, self.poll.registry(), now, &mut self.notices) {
                        Ok(None) => {}
                        Ok(Some((to, moving))) => {
                            self.send(usize::from(to.0), Message::Blocks(Box::new(moving)));
                        }
                        Err(session) => {
                            let event = Event::Blocks(BlockEvent::Closed { session });
                            self.shard.handle(event, now, &mut self.actions);
                        }
                    }
                }
                Action::Sync { number } => {
                    let syncs = self.syncs.as_ref();
                    let syncs = syncs.expect("a device that has to be synced is started with its file");
                    syncs.send(number).expect("the thread that syncs lives as long as this one");
                }
                Action::Notice(notice) => self.notices.tell(&notice, self.index, now),
                Action::Answer { token, response } => {
                    if let Some(respond) = self.answers.remove(&token) {
                        respond(*response);
                    }
                }
            }
        }
        // Answers may have been given while the batch was done, and applications were hung up on; nothing else adds actions here.
        if self.actions.is_empty() {
            self.actions = batch;
        }
    }
}

fn list(connection: &mut Connection, number: usize, turns: &mut Vec<usize>) {
    if !connection.listed && !connection.paused {
        connection.listed = true;
        turns.push(number);
    }
}
