//! Applications at erase blocks: the socket where they attach, and their rings.
//!
//! A client is polled in every round while the thread is awake; before it sleeps it says so in each ring, looks once
//! more, and is woken by the doorbells. A client that says nothing, too much, or breaks its rings is hung up on.

use crate::log::NoticeLog;
use diecut_blockspace::ring::{Layout, ServerEnd};
use diecut_blockspace::system;
use diecut_blockspace::wire::{HELLO_SIZE_BYTES, Hello, Shape, Status, VERSION, Welcome};
use diecut_shard::drive::{
    Action, BlockAction, BlockEvent, BlockSession, Drive, Event, MovedEntries, ShardIndex,
};
use diecut_shard::notice::Cause;
use diecut_units::{BufferPool, Slab, Span, Time};
use mio::net::{UnixListener, UnixStream};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Tokens from here on are of this module: two for each client, socket and doorbell.
pub(crate) const FIRST_TOKEN: usize = usize::MAX / 2;
/// Clients of one thread. Each has a socket, a doorbell and a data area.
const CLIENTS_MAX: usize = 64;
/// Of them, those of users other than root and the server's own: one such user, and all together. Whoever keeps the server can
/// always attach.
const CLIENTS_PER_USER_MAX: usize = 16;
const CLIENTS_OF_USERS_MAX: usize = 48;
/// Entries taken from one client in one round, and bytes of data with them; one entry always may be.
const ENTRIES_PER_ROUND: usize = 16;
const BYTES_PER_ROUND: usize = 256 << 10;
/// A client that has not said what it wants is hung up on after this.
const HELLO_PATIENCE: Span = Span::from_secs(5);

enum Stage {
    /// Bytes of its hello so far.
    Greets([u8; HELLO_SIZE_BYTES], usize),
    /// The shard was asked.
    Asks(Hello),
    Attached(ServerEnd, OwnedFd),
}

struct Client {
    socket: UnixStream,
    uid: u32,
    session: BlockSession,
    stage: Stage,
    readable: bool,
    hello_by: Time,
    /// Answers were written since the client was woken.
    answered: bool,
}

/// A client on its way to the thread of its vSSD.
pub(crate) struct Moving {
    socket: UnixStream,
    session: BlockSession,
    what: MovingStage,
}

enum MovingStage {
    /// It asks to be attached there.
    Asks(Hello),
    /// It is attached; its vSSD moved.
    Attached(ServerEnd, OwnedFd, Box<MovedEntries>),
}

/// See the module.
pub(crate) struct BlockClients {
    listener: Option<UnixListener>,
    /// The next number of a session, of all threads together.
    next_session: Arc<AtomicU64>,
    accepting: bool,
    clients: Slab<Client>,
    by_session: BTreeMap<BlockSession, u32>,
    pub system_calls: u64,
}

impl BlockClients {
    pub fn new(listener: Option<UnixListener>, next_session: Arc<AtomicU64>) -> BlockClients {
        BlockClients {
            listener,
            next_session,
            accepting: false,
            clients: Slab::new(),
            by_session: BTreeMap::new(),
            system_calls: 0,
        }
    }

    /// Watches the listener.
    pub fn watch(&mut self, registry: &Registry, token: Token) -> std::io::Result<()> {
        match &mut self.listener {
            Some(listener) => registry.register(listener, token, Interest::READABLE),
            None => Ok(()),
        }
    }

    /// Lets go of the listener; clients are hung up on.
    pub fn let_go(self, registry: &Registry) -> Option<UnixListener> {
        let mut listener = self.listener?;
        if let Err(error) = registry.deregister(&mut listener) {
            tracing::debug!("the listener of applications cannot be unwatched: {error}");
        }
        Some(listener)
    }

    /// The listener may have more.
    pub fn accept_soon(&mut self) {
        self.accepting = true;
    }

    /// Something happened at one of the tokens of this module.
    pub fn ready(&mut self, token: usize) {
        let number = (token - FIRST_TOKEN) as u32;
        let Some(client) = self.clients.get_mut(number / 2) else { return };
        if number.is_multiple_of(2) {
            client.readable = true;
        } else if let Stage::Attached(_, doorbell) = &client.stage {
            system::quiet(doorbell);
            self.system_calls += 1;
        }
    }

    /// Takes a client of the socket, or one of another thread.
    fn add(&mut self, registry: &Registry, mut client: Client, now: Time, log: &mut NoticeLog) -> bool {
        if let Some(why) = self.full_for(client.uid) {
            if log.admit(Cause::Applications, now) {
                tracing::warn!("an application of user {} is turned away: {why}", client.uid);
            }
            return false;
        }
        if self.clients.len() >= CLIENTS_MAX {
            if log.admit(Cause::Applications, now) {
                tracing::warn!("{CLIENTS_MAX} applications are attached; another is turned away");
            }
            return false;
        }
        let token = Token(FIRST_TOKEN + 2 * self.clients.next_index() as usize);
        if let Err(error) = registry.register(&mut client.socket, token, Interest::READABLE) {
            if log.admit(Cause::Applications, now) {
                tracing::warn!("an application cannot be watched and is turned away: {error}");
            }
            return false;
        }
        let session = client.session;
        let number = self.clients.insert(client);
        self.by_session.insert(session, number);
        true
    }

    /// Why no more applications of a user are taken, if so.
    fn full_for(&self, uid: u32) -> Option<&'static str> {
        if is_privileged(uid) {
            return None;
        }
        let others = self.clients.iter().map(|(_, one)| one).filter(|one| !is_privileged(one.uid));
        let others: Vec<u32> = others.map(|one| one.uid).collect();
        if others.iter().filter(|one| **one == uid).count() >= CLIENTS_PER_USER_MAX {
            return Some("it has as many as one user may have");
        }
        (others.len() >= CLIENTS_OF_USERS_MAX).then_some("users have as many as they may have together")
    }

    /// Takes a client of another thread and tells the shard.
    pub fn adopt<D: Drive>(
        &mut self,
        moving: Moving,
        shard: &mut D,
        registry: &Registry,
        now: Time,
        actions: &mut Vec<Action>,
        log: &mut NoticeLog,
    ) {
        let Moving { socket, session, what } = moving;
        let (event, stage) = match what {
            MovingStage::Asks(hello) => (attach_event(&socket, session, &hello), Stage::Asks(hello)),
            MovingStage::Attached(end, doorbell, state) => {
                (Event::Blocks(BlockEvent::Adopted { session, state }), Stage::Attached(end, doorbell))
            }
        };
        // Its last answers may have come when it was on its way.
        let (uid, hello_by) = (uid_of(&socket), Time::NEVER);
        let client = Client { socket, uid, session, stage, readable: true, hello_by, answered: true };
        if !self.add(registry, client, now, log) {
            return;
        }
        let number = self.by_session[&session];
        if let Stage::Attached(_, doorbell) = &self.clients[number].stage
            && let Err(error) = watch_doorbell(registry, number, doorbell)
        {
            // The shard takes one that does not come for one that is gone.
            if log.admit(Cause::Applications, now) {
                tracing::warn!("an application cannot be watched and is turned away: {error}");
            }
            self.hang_up(number, registry);
            return;
        }
        shard.handle(event, now, actions);
    }

    fn hang_up(&mut self, number: u32, registry: &Registry) -> Client {
        let mut client = self.clients.remove(number);
        self.by_session.remove(&client.session);
        if let Err(error) = registry.deregister(&mut client.socket) {
            tracing::debug!("an application cannot be unwatched: {error}");
        }
        if let Stage::Attached(_, doorbell) = &client.stage {
            // The client has a copy of the descriptor: it stays in the epoll set unless it is taken out.
            let _ = registry.deregister(&mut SourceFd(&doorbell.as_raw_fd()));
        }
        client
    }

    /// A round: new clients, what they say, what they ask for. Says whether there was anything.
    pub fn work<D: Drive>(
        &mut self,
        shard: &mut D,
        registry: &Registry,
        buffers: &mut BufferPool,
        now: Time,
        actions: &mut Vec<Action>,
        log: &mut NoticeLog,
    ) -> bool {
        let mut worked = false;
        if self.accepting {
            worked = true;
            self.accept(registry, now, log);
        }
        for number in 0..self.clients.end_index() {
            let Some(client) = self.clients.get_mut(number) else { continue };
            let (mut gone, mut event) = (false, None);
            if client.readable {
                worked = true;
                (gone, event) = client.read(&mut self.system_calls);
            }
            gone |= client.hello_by <= now;
            if let Stage::Attached(end, _) = &mut client.stage {
                let mut bytes = 0;
                for _ in 0..ENTRIES_PER_ROUND {
                    if gone || bytes >= BYTES_PER_ROUND {
                        break;
                    }
                    match end.take(buffers) {
                        Ok(Some(command)) => {
                            worked = true;
                            bytes += command.data.as_ref().map_or(0, |data| data.len());
                            let event = BlockEvent::Submitted { session: client.session, command };
                            shard.handle(Event::Blocks(event), now, actions);
                        }
                        Ok(None) => break,
                        Err(error) => {
                            if log.admit(Cause::Applications, now) {
                                tracing::warn!("an application is hung up on: {error}");
                            }
                            gone = true;
                        }
                    }
                }
            }
            if let Some(event) = event {
                shard.handle(event, now, actions);
            }
            if gone {
                worked = true;
                let Client { session, stage, .. } = self.hang_up(number, registry);
                if !matches!(stage, Stage::Greets(..)) {
                    shard.handle(Event::Blocks(BlockEvent::Closed { session }), now, actions);
                }
            }
        }
        worked
    }

    fn accept(&mut self, registry: &Registry, now: Time, log: &mut NoticeLog) {
        let Some(listener) = &self.listener else { return };
        self.system_calls += 1;
        match listener.accept() {
            Ok((socket, _)) => {
                let session = BlockSession(self.next_session.fetch_add(1, Ordering::Relaxed));
                let stage = Stage::Greets([0; HELLO_SIZE_BYTES], 0);
                let (uid, hello_by) = (uid_of(&socket), now + HELLO_PATIENCE);
                let client =
                    Client { socket, uid, session, stage, readable: true, hello_by, answered: false };
                self.add(registry, client, now, log);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.accepting = false,
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
            Err(error) => {
                // The next one who connects is the next try.
                if log.admit(Cause::Descriptors, now) {
                    tracing::warn!("an application cannot be accepted: {error}");
                }
                self.accepting = false;
            }
        }
    }

    /// Does what the shard asks. A client that belongs to another thread is given back with that thread's number.
    pub fn act(
        &mut self,
        action: BlockAction,
        registry: &Registry,
        now: Time,
        log: &mut NoticeLog,
    ) -> Result<Option<(ShardIndex, Moving)>, BlockSession> {
        match action {
            BlockAction::Answered { session, answer } => {
                let client = self.by_session.get(&session).map(|&number| &mut self.clients[number]);
                if let Some(client) = client
                    && let Stage::Attached(end, _) = &mut client.stage
                {
                    end.put(&answer);
                    client.answered = true;
                }
            }
            BlockAction::Attached { session, shape, layout } => {
                let Some(&number) = self.by_session.get(&session) else { return Ok(None) };
                if let Err(error) = self.attach(number, registry, shape, layout) {
                    if log.admit(Cause::Applications, now) {
                        tracing::warn!("an application cannot be attached: {error}");
                    }
                    self.hang_up(number, registry);
                    return Err(session);
                }
            }
            BlockAction::Refused { session, status, message } => {
                let Some(&number) = self.by_session.get(&session) else { return Ok(None) };
                let client = self.hang_up(number, registry);
                refuse(&client.socket, status, message);
            }
            BlockAction::Evicted { session } => {
                if let Some(&number) = self.by_session.get(&session) {
                    self.hang_up(number, registry);
                }
            }
            BlockAction::Elsewhere { session, to } => {
                let Some(&number) = self.by_session.get(&session) else { return Ok(None) };
                let Client { socket, session, stage: Stage::Asks(hello), .. } =
                    self.hang_up(number, registry)
                else {
                    return Ok(None);
                };
                return Ok(Some((to, Moving { socket, session, what: MovingStage::Asks(hello) })));
            }
            BlockAction::HandOver { session, to, state } => {
                let Some(&number) = self.by_session.get(&session) else { return Ok(None) };
                let Client { socket, session, stage: Stage::Attached(end, doorbell), .. } =
                    self.hang_up(number, registry)
                else {
                    return Ok(None);
                };
                let what = MovingStage::Attached(end, doorbell, state);
                return Ok(Some((to, Moving { socket, session, what })));
            }
        }
        Ok(None)
    }

    fn attach(
        &mut self,
        number: u32,
        registry: &Registry,
        shape: Shape,
        layout: Layout,
    ) -> std::io::Result<()> {
        let client = &mut self.clients[number];
        let memory = system::create_memory(layout.size_bytes())?;
        let doorbell = system::create_doorbell()?;
        let end = ServerEnd::new(system::map_memory(&memory, layout.size_bytes())?, layout);
        watch_doorbell(registry, number, &doorbell)?;
        let welcome = Welcome {
            status: Status::Done,
            shape,
            entries: layout.entries,
            slots: layout.slots,
            slot_size_bytes: layout.slot_size_bytes,
            message: String::new(),
        };
        let sent = system::send_with(&client.socket, &welcome.encode(), &[&memory, &doorbell]);
        client.stage = Stage::Attached(end, doorbell);
        sent
    }

    /// Wakes clients that wait, after a round's answers.
    pub fn wake(&mut self) {
        for (_, client) in self.clients.iter_mut() {
            if !std::mem::take(&mut client.answered) {
                continue;
            }
            if let Stage::Attached(end, _) = &client.stage
                && end.is_waited_for()
            {
                system::futex_wake(end.futex());
                self.system_calls += 1;
            }
        }
    }

    /// Says in every ring whether the thread sleeps. With `true`: whether it must not, because something came.
    pub fn announce(&self, sleeps: bool) -> bool {
        let mut ready = self.accepting;
        for (_, client) in self.clients.iter() {
            if let Stage::Attached(end, _) = &client.stage {
                if sleeps {
                    end.announce_sleep();
                    ready |= end.is_ready();
                } else {
                    end.announce_awake();
                }
            }
        }
        ready
    }

    /// When the next client has been silent for too long.
    pub fn deadline(&self) -> Time {
        self.clients.iter().map(|(_, client)| client.hello_by).fold(Time::NEVER, Time::min)
    }
}

impl Client {
    /// Reads what is there. Says whether to hang up, and what to tell the shard.
    fn read(&mut self, system_calls: &mut u64) -> (bool, Option<Event>) {
        loop {
            *system_calls += 1;
            let Stage::Greets(bytes, len) = &mut self.stage else {
                // After its hello a client has nothing to say: what comes is its end.
                return match self.socket.read(&mut [0; 1]) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        self.readable = false;
                        (false, None)
                    }
                    _ => (true, None),
                };
            };
            match self.socket.read(&mut bytes[*len..]) {
                Ok(0) => return (true, None),
                Ok(more) => *len += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    return (false, None);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return (true, None),
            }
            if *len < HELLO_SIZE_BYTES {
                continue;
            }
            let Some(hello) = Hello::decode(bytes) else { return (true, None) };
            if hello.version != VERSION {
                let message = format!("the server speaks version {VERSION} of the protocol for erase blocks");
                refuse(&self.socket, Status::Version, message);
                return (true, None);
            }
            self.hello_by = Time::NEVER;
            let event = attach_event(&self.socket, self.session, &hello);
            self.stage = Stage::Asks(hello);
            return (false, Some(event));
        }
    }
}

/// Watches the doorbell of a client by its number.
fn watch_doorbell(registry: &Registry, number: u32, doorbell: &OwnedFd) -> std::io::Result<()> {
    let token = Token(FIRST_TOKEN + 2 * number as usize + 1);
    registry.register(&mut SourceFd(&doorbell.as_raw_fd()), token, Interest::READABLE)
}

/// Whoever the kernel does not know is nobody.
fn uid_of(socket: &UnixStream) -> u32 {
    system::peer_uid(socket).unwrap_or(u32::MAX)
}

/// Root, and the user whose server this is.
fn is_privileged(uid: u32) -> bool {
    uid == 0 || uid == system::own_uid()
}

fn attach_event(socket: &UnixStream, session: BlockSession, hello: &Hello) -> Event {
    let uid = uid_of(socket);
    let is_privileged = is_privileged(uid);
    Event::Blocks(BlockEvent::Attach { session, vssd: hello.vssd.clone(), uid, is_privileged })
}

fn refuse(socket: &UnixStream, status: Status, message: String) {
    let welcome =
        Welcome { status, shape: Shape::default(), entries: 0, slots: 0, slot_size_bytes: 0, message };
    // Whoever is gone does not need to know why.
    let _ = system::send_with(socket, &welcome.encode(), &[]);
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: users who fill the table with connections that say nothing lock neither each other nor root out. Method: silent clients of
    /// one user, of several, then root's.
    #[test]
    fn users_cannot_take_all_places() {
        let poll = mio::Poll::new().unwrap();
        let mut clients = BlockClients::new(None, Arc::default());
        let mut next = 0;
        let mut peers = Vec::new();
        let mut come = |clients: &mut BlockClients, uid| {
            next += 1;
            let (socket, peer) = UnixStream::pair().unwrap();
            peers.push(peer);
            let stage = Stage::Greets([0; HELLO_SIZE_BYTES], 0);
            let (session, hello_by) = (BlockSession(next), Time::NEVER);
            let client = Client { socket, uid, session, stage, readable: false, hello_by, answered: false };
            clients.add(poll.registry(), client, Time::ZERO, &mut NoticeLog::default())
        };
        let stranger = |number: u32| system::own_uid() + 1000 + number;
        let taken = |clients: &mut BlockClients,
                     come: &mut dyn FnMut(&mut BlockClients, u32) -> bool,
                     uid| { (0..CLIENTS_MAX).filter(|_| come(clients, uid)).count() };
        assert_eq!(taken(&mut clients, &mut come, stranger(0)), CLIENTS_PER_USER_MAX);
        let others: usize = (1..9).map(|number| taken(&mut clients, &mut come, stranger(number))).sum();
        assert_eq!(others, CLIENTS_OF_USERS_MAX - CLIENTS_PER_USER_MAX);
        assert_eq!(taken(&mut clients, &mut come, 0), CLIENTS_MAX - CLIENTS_OF_USERS_MAX);
    }
}
