//! The thread of one shard.

use crate::acceptor::{Acceptor, Came};
use crate::blocks::{self, BlockClients};
use crate::common::{Common, Ends};
use crate::connection::{Connection, Turn};
use crate::doors::{Chosen, Why};
use crate::inbox::{Answers, Message, Outgoing, Untold};
use crate::io::{FIRST_REMOTE, Ios};
use crate::lines::Lines;
use crate::log::NoticeLog;
use crate::shares::{Shares, Way};
use crate::upkeep::Upkeep;
use diecut_media::IntentDone;
use diecut_shard::drive::{Action, BlockEvent, ConnectionId, Drive, Event, ShardIndex};
use diecut_shard::notice::{Cause, Notice};
use diecut_shard::panics::PanicRecord;
use diecut_units::{Span, Time};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

pub(crate) const WAKER: Token = Token(usize::MAX);
const BLOCKS_LISTENER: Token = Token(usize::MAX - 1);
/// Something is done on the ring. It is looked at in each round anyway.
const RING: Token = Token(usize::MAX - 2);
const FIRST_LISTENER: usize = FIRST_REMOTE - 128;
const EVENTS_PER_ROUND: usize = 256;
/// Hosts that come up are heard one by one, as they are accepted: see `acceptor`.
const NEWCOMER_TURNS_PER_ROUND: usize = 1;
/// Answers of a host whose commands go on are sent when there are so many bytes of them, or when there are no more: a round is
/// short, so that others need not wait, and a system call for the few answers of each would cost more than they do.
const TOGETHER_BELOW_BYTES: usize = 128 << 10;
const MESSAGES_PER_ROUND: usize = 256;
/// A host that does not take its last bytes is hung up on after this.
const CLOSE_PATIENCE: Span = Span::from_secs(5);
/// A deadline this near is waited for without sleeping: the kernel's timer counts milliseconds.
const SPIN_BELOW: Span = Span::from_micros(1_500);
/// Notices that the record of a panic has.
const NOTICES_KEPT: usize = 16;
/// Rounds without work before the thread sleeps: the next request of a busy host is usually on its way.
const IDLE_ROUNDS: u32 = 32;

pub(crate) struct Worker<D: Drive> {
    shard: D,
    common: Arc<Common>,
    poll: Poll,
    inbox: Receiver<Message>,
    index: ShardIndex,
    acceptor: Acceptor,
    lines: Lines,
    shares: Shares,
    outgoing: Outgoing,
    answers: Answers,
    actions: Vec<Action>,
    blocks: BlockClients,
    notices: NoticeLog,
    /// The last ones, for the record of a panic.
    last_notices: VecDeque<Box<Notice>>,
    /// Carries out what devices ask for, where they do.
    io: Ios,
    /// What was carried out on a ring.
    io_done: Vec<IntentDone>,
    upkeep: Upkeep,
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
        let Ends { poll, inbox, index, listeners, is_closed, blocks, io, busy_poll } = ends;
        let acceptor = Acceptor::new(listeners, is_closed, poll.registry(), FIRST_LISTENER)?;
        let mut blocks = BlockClients::new(blocks, Arc::clone(&common.next_connection));
        blocks.watch(poll.registry(), BLOCKS_LISTENER)?;
        for ring in io.rings() {
            poll.registry().register(&mut SourceFd(&ring.as_raw_fd()), RING, Interest::READABLE)?;
        }
        Ok(Worker {
            outgoing: Outgoing::new(common.addresses.len()),
            shard,
            common,
            poll,
            inbox,
            index,
            acceptor,
            lines: Lines::default(),
            shares: Shares::default(),
            answers: Answers::default(),
            actions: Vec::new(),
            blocks,
            notices: NoticeLog::default(),
            last_notices: VecDeque::with_capacity(NOTICES_KEPT),
            io,
            io_done: Vec::new(),
            upkeep: Upkeep::default(),
            stopping: false,
            busy_poll,
        })
    }

    /// Runs until it is told to stop, or to let go.
    pub fn run(&mut self) {
        let mut events = Events::with_capacity(EVENTS_PER_ROUND);
        let mut idle_rounds = 0;
        let mut sleeps_from = Time::ZERO;
        while !self.stopping && !self.common.is_called.load(Ordering::Acquire) {
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
            self.shares.begin_round();
            let mut worked = !events.is_empty();
            events.iter().for_each(|event| self.is_ready(event));
            worked |= self.read_inbox(now);
            worked |= self.take_io(now, &mut system_calls);
            // Connections may have been given away: nothing more is read of them here.
            self.act(now);
            self.outgoing.send_again(&self.common.addresses);
            worked |= self.read_connections(now, false, &mut system_calls);
            let registry = self.poll.registry();
            worked |= self.blocks.work(
                &mut self.shard,
                registry,
                &mut self.upkeep.pool,
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
            self.begin_io(now, &mut system_calls);
            self.blocks.wake();
            system_calls += std::mem::take(&mut self.blocks.system_calls);
            // Hosts that come up have their turn when hosts at work were answered: what these send meanwhile waits for
            // the turn alone, not for the turn before it, too.
            if !self.accept_one(now) {
                self.read_connections(now, true, &mut system_calls);
            }
            self.close_late(now);
            if worked {
                self.upkeep.worked();
            }
            if self.upkeep.deadline() <= now {
                self.upkeep.keep(&mut self.shard, self.index, &self.common, now);
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

    /// Whether it ended because it was told to stop.
    pub fn has_stopped(&self) -> bool {
        self.stopping
    }

    /// What is known of a panic of its shard.
    pub fn record(&self, (message, location): (String, String)) -> PanicRecord {
        let outline = self.shard.at_work();
        let (vssd, vssd_name) = outline.vssd.unzip();
        let notices = self.last_notices.iter().map(|notice| format!("{notice:?}")).collect();
        let shard = self.index.0;
        PanicRecord {
            shard,
            message,
            location,
            vssd,
            vssd_name,
            commands: outline.commands,
            notices,
            ..PanicRecord::default()
        }
    }

    /// Lets go of its shard, and hangs up on hosts and applications. What is left: the ends, requests for the next one, what was untold.
    pub fn let_go(self) -> (D, Ends, Vec<Message>, Untold) {
        drop((self.lines, self.io));
        let mut told = self.outgoing.abandon();
        told.extend(self.actions.into_iter().filter_map(|action| match action {
            Action::Tell { to, message } => Some((to, message)),
            _ => None,
        }));
        let (listeners, is_closed) = self.acceptor.let_go(self.poll.registry());
        let blocks = self.blocks.let_go(self.poll.registry());
        let ends = Ends {
            poll: self.poll,
            inbox: self.inbox,
            index: self.index,
            listeners,
            is_closed,
            blocks,
            io: Ios::default(),
            busy_poll: self.busy_poll,
        };
        (self.shard, ends, self.answers.abandon(), told)
    }

    /// The poll told of something.
    #[inline]
    fn is_ready(&mut self, event: &mio::event::Event) {
        match event.token() {
            WAKER | RING => {}
            BLOCKS_LISTENER => self.blocks.accept_soon(),
            Token(number) if number >= FIRST_REMOTE => self.io.is_ready(event),
            Token(number) if number >= FIRST_LISTENER => self.acceptor.is_ready(),
            Token(number) if number >= blocks::FIRST_TOKEN => self.blocks.ready(number),
            Token(number) => self.lines.is_ready(number as u32, event),
        }
    }

    fn patience(&self) -> Option<Duration> {
        if self.lines.has_turns() || self.acceptor.is_due() {
            return Some(Duration::ZERO);
        }
        let next = self
            .shard
            .deadline()
            .min(self.lines.deadline())
            .min(self.acceptor.deadline())
            .min(self.upkeep.deadline())
            .min(self.blocks.deadline())
            .min(self.notices.deadline())
            .min(self.io.deadline());
        if next == Time::NEVER {
            return None;
        }
        let left = next.since(self.common.now());
        if left < SPIN_BELOW { Some(Duration::ZERO) } else { Some(Duration::from_nanos(left.0)) }
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
        let (to, message) = (usize::from(chosen.shard.0), Message::SendAway(chosen.connection));
        self.outgoing.send(&self.common.addresses, to, message);
    }

    /// What was sent away from here is gone. One that has Connected meanwhile stays.
    fn go_away(&mut self, id: ConnectionId, now: Time) {
        // One that lingers is not known by its id any more.
        let Some(number) = self.lines.number_of_any(id) else { return };
        if self.lines.get(number).is_some_and(|one| one.place.is_sent_away()) {
            self.lost(number, now);
        }
    }

    /// Tells the shard of what was carried out on rings, or by targets. Whether anything was.
    fn take_io(&mut self, now: Time, system_calls: &mut u64) -> bool {
        let Worker { io, io_done, shard, actions, poll, .. } = self;
        let mut worked = false;
        io.work(poll.registry(), now, system_calls);
        io.take_done(io_done, |device, done| {
            worked = true;
            shard.handle(Event::IoDone(device, done), now, actions);
        });
        io.tell_of_targets(now, |device, is_away| {
            shard.handle(Event::DeviceAway(device, is_away), now, actions);
        });
        worked
    }

    /// Gives the kernel what the device asked for in this round, and it does not have yet.
    fn begin_io(&mut self, now: Time, system_calls: &mut u64) {
        *system_calls += self.io.submit();
        self.io.work(self.poll.registry(), now, system_calls);
    }

    fn read_inbox(&mut self, now: Time) -> bool {
        let mut worked = false;
        for _ in 0..MESSAGES_PER_ROUND {
            let Ok(message) = self.inbox.try_recv() else { return worked };
            worked = true;
            self.take(message, now);
        }
        worked
    }

    /// Takes a message.
    pub fn take(&mut self, message: Message, now: Time) {
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
                    if let Some((_, one)) = self.lines.known(id)
                        && one.is_connected
                    {
                        one.tenant = self.shares.enter(self.shard.tenant_of(id));
                    }
                }
            }
            Message::Told(from, message) => {
                self.shard.handle(Event::Told { from, message }, now, &mut self.actions);
            }
            Message::Control(request, respond) => {
                let again = request.may_be_asked_again().then(|| request.clone());
                let token = self.answers.expect(respond, again);
                self.shard.handle(Event::Control { token, request }, now, &mut self.actions);
            }
            Message::AskedAgain(request, respond) => {
                let token = self.answers.expect(respond, None);
                self.shard.handle(Event::Control { token, request }, now, &mut self.actions);
            }
            Message::Blocks(moving) => {
                let (shard, actions) = (&mut self.shard, &mut self.actions);
                self.blocks.adopt(*moving, shard, self.poll.registry(), now, actions, &mut self.notices);
            }
            Message::IoDone(device, done) => {
                self.shard.handle(Event::IoDone(device, done), now, &mut self.actions);
            }
            Message::DeviceCame(ring, newcomer) => {
                let watched =
                    self.poll.registry().register(&mut SourceFd(&ring.as_raw_fd()), RING, Interest::READABLE);
                // It is looked at in each round, and the next one comes when something else happens.
                if let Err(error) = watched {
                    tracing::error!("the ring of a new device cannot be watched: {error}");
                }
                self.io.put(newcomer.device, ring);
                self.shard.handle(Event::DeviceCame(newcomer), now, &mut self.actions);
            }
            Message::DeviceWent(device, done) => {
                self.shard.handle(Event::DeviceWent(device), now, &mut self.actions);
                self.actions.retain(|action| !matches!(action, Action::Io(of, _) if *of == device));
                self.io.remove(device);
                // Whoever asked may have gone away meanwhile.
                let _ = done.send(());
            }
            Message::Open => self.acceptor.open(),
            Message::Stop => self.stopping = true,
        }
    }

    /// Accepts, if it is time for that. Whether it was.
    fn accept_one(&mut self, now: Time) -> bool {
        if !self.acceptor.begin_turn(self.outgoing.has_any(), now) {
            return false;
        }
        for listener in self.acceptor.listeners() {
            let is_full = self.outgoing.has_any();
            match self.acceptor.accept(listener, &self.common, is_full, now) {
                None => {}
                Some(Came::Turned(peer, full)) => self.notices.turned_away(peer, full, now),
                Some(Came::In(guest)) => {
                    guest.away.into_iter().flatten().for_each(|chosen| self.send_away(chosen, now));
                    let message = Message::Accepted(guest.id, guest.stream, guest.local, guest.place);
                    self.outgoing.send(&self.common.addresses, guest.shard, message);
                }
                Some(Came::Waits(error)) => {
                    if self.notices.admit(Cause::Descriptors, now) {
                        tracing::warn!("a connection cannot be accepted: {error}; trying again in a while");
                    }
                    break;
                }
            }
        }
        true
    }

    fn add(&mut self, connection: Connection) -> bool {
        let added = self.lines.add(connection, self.poll.registry());
        if let Err(error) = &added
            && self.notices.admit(Cause::Descriptors, self.common.now())
        {
            tracing::warn!("a connection cannot be watched and is closed: {error}");
        }
        added.is_ok()
    }

    fn remove(&mut self, number: u32) -> Option<Connection> {
        let connection = self.lines.remove(number, self.poll.registry())?;
        self.shares.leave(connection.tenant);
        Some(connection)
    }

    fn lost(&mut self, number: u32, now: Time) {
        if let Some(connection) = self.remove(number)
            && !connection.lingering
        {
            self.shard.handle(Event::Closed { connection: connection.id }, now, &mut self.actions);
        }
    }

    /// All was written and the shard wants no more: the stream ends as soon as the host ends it too.
    fn linger(&mut self, number: u32, now: Time) {
        if let Some(connection) = self.lines.linger(number) {
            self.shard.handle(Event::Closed { connection }, now, &mut self.actions);
        }
    }

    /// Reads connections of hosts at work, or of one that comes up. Whether there was something to read.
    fn read_connections(&mut self, now: Time, newcomers: bool, system_calls: &mut u64) -> bool {
        let mut turns = self.lines.begin_turns(|lines| &mut lines.to_read);
        let worked = !turns.is_empty();
        let mut turns_left = NEWCOMER_TURNS_PER_ROUND;
        for number in turns.drain(..) {
            let Some(connection) = self.lines.get_mut(number) else { continue };
            let tenant = connection.tenant;
            if !newcomers && !self.shares.may_go(tenant, Way::In, |name| self.shard.weight_of(name)) {
                self.lines.late.push(number);
                continue;
            }
            connection.listed = false;
            let (turn, bytes) = if connection.lingering {
                (connection.discard(system_calls), 0)
            } else {
                if connection.paused || !connection.readable || connection.closing.is_some() {
                    continue;
                }
                // What a host sends while its commands wait for their turns would wait behind them, too: received later it comes
                // in fewer and larger pieces. Each costs a system call and an acknowledgement, and a round is short.
                let has_work = !newcomers && self.shard.goes_on(connection.id);
                if has_work || connection.is_newcomer() != newcomers || (newcomers && turns_left == 0) {
                    self.lines.list(number);
                    continue;
                }
                turns_left -= usize::from(newcomers);
                connection.read(&mut self.shard, &mut self.upkeep.pool, now, &mut self.actions, system_calls)
            };
            connection.readable &= turn != Turn::Drained;
            self.shares.took(tenant, Way::In, bytes);
            match turn {
                Turn::Drained => {}
                Turn::More => self.lines.list(number),
                Turn::Gone => self.lost(number, now),
            }
            // A pause or a hand-over of this connection must be known before its next turn.
            self.act(now);
        }
        self.lines.end_turns(|lines| &mut lines.to_read, turns);
        worked
    }

    fn write_connections(&mut self, now: Time, system_calls: &mut u64) {
        let mut turns = self.lines.begin_turns(|lines| &mut lines.to_write);
        if turns.len() > 1 {
            // Short answers first: they cost the long ones next to nothing, the other way round they would wait.
            let (lines, shard) = (&self.lines, &self.shard);
            let waiting = |number: &u32| {
                let Some(one) = lines.get(*number) else { return 0 };
                let waiting = shard.outbox(one.id).map_or(0, |outbox| outbox.len_bytes());
                // Long ones, too, are first in the end.
                waiting.unbounded_shr(2 * u32::from(one.put_off))
            };
            turns.sort_unstable_by_key(waiting);
        }
        for number in turns.drain(..) {
            let Some(connection) = self.lines.get_mut(number) else { continue };
            if connection.blocked || connection.lingering {
                continue;
            }
            let waiting = self.shard.outbox(connection.id).map_or(0, |outbox| outbox.len_bytes());
            if waiting < TOGETHER_BELOW_BYTES
                && connection.closing.is_none()
                && self.shard.goes_on(connection.id)
            {
                self.lines.to_write.push(number);
                continue;
            }
            let tenant = connection.tenant;
            if !self.shares.may_go(tenant, Way::Out, |name| self.shard.weight_of(name)) {
                connection.put_off = connection.put_off.saturating_add(1);
                self.lines.late.push(number);
                continue;
            }
            connection.put_off = 0;
            let (mut turn, bytes) = connection.write(&mut self.shard, &mut self.actions, system_calls);
            self.shares.took(tenant, Way::Out, bytes);
            // That it has Connected is answered, and so it shows here.
            if !connection.is_connected && self.shard.is_connected(connection.id) {
                connection.is_connected = true;
                let tenant = self.shard.tenant_of(connection.id);
                if let Err(full) = connection.place.connected(tenant) {
                    self.notices.turned_away(connection.place.peer(), full, now);
                    turn = Turn::Gone;
                }
                connection.tenant = self.shares.enter(tenant);
            }
            match turn {
                Turn::Gone => self.lost(number, now),
                Turn::Drained if connection.closing.is_some() => self.linger(number, now),
                Turn::More if !connection.blocked => self.lines.to_write.push(number),
                Turn::Drained | Turn::More => {}
            }
        }
        self.lines.end_turns(|lines| &mut lines.to_write, turns);
    }

    fn close_late(&mut self, now: Time) {
        if self.lines.deadline() <= now {
            self.lines.late(now).into_iter().for_each(|number| self.lost(number, now));
        }
    }

    fn act(&mut self, now: Time) {
        let mut batch = std::mem::take(&mut self.actions);
        for action in batch.drain(..) {
            match action {
                Action::Transmit { connection } => self.lines.transmit(connection),
                Action::Close { connection } => self.lines.close(connection, now + CLOSE_PATIENCE),
                Action::Pause { connection } => self.lines.pause(connection, true),
                Action::Resume { connection } => self.lines.pause(connection, false),
                Action::HandOver { connection, to, state } => {
                    let Some(number) = self.lines.number_of(connection) else { continue };
                    let Some(one) = self.remove(number) else { continue };
                    let message = Message::Adopted(connection, one.into_moving(), state);
                    self.outgoing.send(&self.common.addresses, usize::from(to.0), message);
                }
                Action::Tell { to, message } => {
                    self.outgoing.send(
                        &self.common.addresses,
                        usize::from(to.0),
                        Message::Told(self.index, message),
                    );
                }
                Action::Blocks(action) => {
                    match self.blocks.act(action, self.poll.registry(), now, &mut self.notices) {
                        Ok(None) => {}
                        Ok(Some((to, moving))) => {
                            self.outgoing.send(
                                &self.common.addresses,
                                usize::from(to.0),
                                Message::Blocks(Box::new(moving)),
                            );
                        }
                        Err(session) => {
                            let event = Event::Blocks(BlockEvent::Closed { session });
                            self.shard.handle(event, now, &mut self.actions);
                        }
                    }
                }
                Action::BeginAnew => self.common.call(),
                Action::Io(device, intent) => self.io.begin(device, intent),
                Action::Notice(notice) => {
                    self.notices.tell(&notice, self.index, now);
                    if self.last_notices.len() == NOTICES_KEPT {
                        self.last_notices.pop_front();
                    }
                    self.last_notices.push_back(notice);
                }
                Action::Answer { token, response } => {
                    self.answers.give(token, *response);
                }
            }
        }
        // Answers may have been given while the batch was done, and applications were hung up on; nothing else adds actions here.
        if self.actions.is_empty() {
            self.actions = batch;
        }
    }
}
