//! Intents of a drive behind a network: the two streams of a [`RemoteDrive`] on sockets that never block.

use diecut_media::{Intent, IntentDone, IntentError, IntentToken, IntentWork, Zone};
use diecut_nvme::Status;
use diecut_remote::{HostError, RemoteDrive, RemoteError, RemoteFacts, RemoteParameters, Stream};
use diecut_units::{Buffer, BufferMut, Span, Time};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Registry, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A stream that is not open by then is none.
const CONNECT_PATIENCE: Span = Span::from_secs(5);
/// A connection that is lost and there again before that is nobody's business.
const WORTH_TELLING: Span = Span::from_secs(1);
/// Bytes that are read at once.
const READ_BYTES: usize = 128 << 10;
/// And in one round of each stream.
const READ_PER_ROUND_BYTES: usize = 1 << 20;

/// A namespace of a target, and where that is.
#[derive(Clone, Debug)]
pub struct RemoteTarget {
    /// Addresses of the target, tried in turn.
    pub addresses: Vec<SocketAddr>,
    /// Which namespace, and as whom.
    pub parameters: RemoteParameters,
    /// How long hosts wait when it does not answer.
    pub patience: Span,
}

struct Socket {
    stream: TcpStream,
    /// Nothing is known of it before then at the latest; gone when it is open.
    opens_until: Option<Time>,
    is_readable: bool,
    is_writable: bool,
}

/// How hosts fare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Well,
    /// It does not answer, and hosts wait.
    Waits,
    /// For so long that they wait no more.
    Away,
    /// It is gone for good.
    Gone,
}

/// See the module.
pub(crate) struct RemoteLine {
    target: RemoteTarget,
    drive: RemoteDrive,
    sockets: [Option<Socket>; 2],
    /// Of each stream: how it is called in the poll.
    tokens: [Token; 2],
    /// The address that is tried, or used.
    at: usize,
    reach: Reach,
    /// Why the last try failed, before the target said anything.
    failure: Option<io::Error>,
    intents: Vec<Intent>,
    bytes: Vec<u8>,
}

const STREAMS: [Stream; 2] = [Stream::Admin, Stream::Io];

impl RemoteLine {
    pub fn new(target: RemoteTarget, tokens: [Token; 2], now: Time) -> RemoteLine {
        RemoteLine {
            drive: RemoteDrive::new(target.parameters.clone(), now),
            target,
            sockets: [None, None],
            tokens,
            at: 0,
            reach: Reach::Well,
            failure: None,
            intents: Vec::new(),
            bytes: vec![0; READ_BYTES],
        }
    }

    /// Takes an intent; it goes out with the next [`RemoteLine::work`].
    pub fn push(&mut self, intent: Intent) {
        self.intents.push(intent);
    }

    /// Appends what is done.
    pub fn take_done(&mut self, done: &mut Vec<IntentDone>) {
        self.drive.end(done);
    }

    /// The poll told of one of the streams.
    pub fn is_ready(&mut self, event: &mio::event::Event) {
        let of = self.tokens.iter().position(|token| *token == event.token());
        if let Some(socket) = of.and_then(|of| self.sockets[of].as_mut()) {
            socket.is_readable |= event.is_readable() || event.is_read_closed() || event.is_error();
            socket.is_writable |= event.is_writable() || event.is_write_closed() || event.is_error();
        }
    }

    /// When [`RemoteLine::work`] has something to do though the poll told nothing; [`Time::ZERO`] for at once.
    pub fn deadline(&self) -> Time {
        let can_read = |socket: &&Socket| socket.opens_until.is_none() && socket.is_readable;
        if !self.intents.is_empty() || self.sockets.iter().flatten().any(|socket| can_read(&socket)) {
            return Time::ZERO;
        }
        let opens = self.sockets.iter().flatten().filter_map(|socket| socket.opens_until);
        let is_opening = self.sockets.iter().flatten().any(|socket| socket.opens_until.is_some());
        // While a stream is opened, that is what the drive waits for.
        let drive = if is_opening { Time::NEVER } else { self.drive.deadline() };
        let patience = match (self.reach, self.drive.away_since()) {
            (Reach::Well, Some(since)) => since + self.target.patience.min(WORTH_TELLING),
            (Reach::Waits, Some(since)) => since + self.target.patience,
            _ => Time::NEVER,
        };
        opens.min().unwrap_or(Time::NEVER).min(drive).min(patience)
    }

    /// One round: takes what came, opens what is wanted, and sends what there is.
    pub fn work(&mut self, registry: &Registry, now: Time, system_calls: &mut u64) {
        self.drive.begin(&mut self.intents);
        for stream in STREAMS {
            self.read(stream, registry, now, system_calls);
        }
        self.drive.tick(now);
        self.let_go(registry);
        if let Some(stream) = self.drive.wants(now)
            && self.sockets[stream as usize].is_none()
            && let Err(error) = self.open(stream, registry, now)
        {
            self.failed(stream, error, registry, now);
        }
        for stream in STREAMS {
            self.write(stream, registry, now, system_calls);
        }
        self.let_go(registry);
    }

    /// Whether hosts fare otherwise than before, and how they do now.
    pub fn news(&mut self, now: Time) -> Option<(Reach, Reach)> {
        let reach = match self.drive.away_since() {
            _ if self.drive.is_gone() => Reach::Gone,
            None => Reach::Well,
            Some(since) if now >= since + self.target.patience => Reach::Away,
            Some(since) if now >= since + WORTH_TELLING => Reach::Waits,
            Some(_) => self.reach,
        };
        let before = std::mem::replace(&mut self.reach, reach);
        (before != reach).then_some((before, reach))
    }

    /// Says how it goes on, for people. `before` is how it was.
    #[cold]
    pub fn tell(&self, before: Reach) {
        let (place, why) = (self.place(), self.why());
        match (before, self.reach) {
            (_, Reach::Waits) => {
                tracing::warn!(
                    "{place} does not answer ({why}); hosts wait, and it is tried again and again"
                );
            }
            (_, Reach::Away) => tracing::error!(
                "{place} is away ({why}): commands of hosts are answered as not ready, and nothing that was flushed is lost. The server goes on by \
                 itself when it is back"
            ),
            (_, Reach::Gone) => tracing::error!("{place} is not used any more: {why}"),
            (Reach::Away, Reach::Well) => tracing::info!("{place} is back: hosts are served again"),
            (_, Reach::Well) => tracing::info!("{place} answers again"),
        }
    }

    /// Where it is, for people.
    fn place(&self) -> String {
        let RemoteParameters { subsystem, nsid, .. } = &self.target.parameters;
        format!("namespace {nsid} of {subsystem} at {}", self.target.addresses[self.at])
    }

    /// Why the target is not reached, for people.
    fn why(&self) -> String {
        match (self.drive.error(), &self.failure) {
            (Some(RemoteError::Silent(_)) | None, Some(failure)) => {
                format!("{failure}; see whether the target runs, and whether its address can be reached")
            }
            (Some(error), _) => error.to_string(),
            (None, None) => "it does not answer".to_owned(),
        }
    }

    fn open(&mut self, stream: Stream, registry: &Registry, now: Time) -> io::Result<()> {
        let mut opened = TcpStream::connect(self.target.addresses[self.at])?;
        registry.register(
            &mut opened,
            self.tokens[stream as usize],
            Interest::READABLE | Interest::WRITABLE,
        )?;
        self.sockets[stream as usize] = Some(Socket {
            stream: opened,
            opens_until: Some(now + CONNECT_PATIENCE),
            is_readable: false,
            is_writable: false,
        });
        Ok(())
    }

    /// Whether a stream can be read and written. One that opens may have opened, or failed, by now.
    fn is_open(&mut self, stream: Stream, registry: &Registry, now: Time) -> bool {
        let Some(socket) = &mut self.sockets[stream as usize] else { return false };
        let Some(until) = socket.opens_until else { return true };
        let result = match (socket.is_writable, socket.stream.take_error()) {
            (_, Ok(Some(error)) | Err(error)) => Err(error),
            (true, _) => match socket.stream.peer_addr() {
                Ok(_) => socket.stream.set_nodelay(true).map(|()| true),
                Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
                Err(error) => Err(error),
            },
            (false, _) => Ok(false),
        };
        match result {
            Ok(true) => {
                socket.opens_until = None;
                self.failure = None;
                self.drive.opened(stream, now);
                true
            }
            Ok(false) if now < until => false,
            Ok(false) => {
                self.failed(stream, ErrorKind::TimedOut.into(), registry, now);
                false
            }
            Err(error) => {
                self.failed(stream, error, registry, now);
                false
            }
        }
    }

    fn read(&mut self, stream: Stream, registry: &Registry, now: Time, system_calls: &mut u64) {
        let mut budget = READ_PER_ROUND_BYTES;
        while self.is_open(stream, registry, now) && budget > 0 {
            let Some(socket) = self.sockets[stream as usize].as_mut().filter(|socket| socket.is_readable)
            else {
                break;
            };
            *system_calls += 1;
            match socket.stream.read(&mut self.bytes) {
                Ok(0) => {
                    return self.failed(stream, ErrorKind::UnexpectedEof.into(), registry, now);
                }
                Ok(len) => {
                    budget = budget.saturating_sub(len);
                    self.drive.received(stream, &self.bytes[..len], now);
                    self.let_go(registry);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => socket.is_readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.failed(stream, error, registry, now),
            }
        }
    }

    fn write(&mut self, stream: Stream, registry: &Registry, now: Time, system_calls: &mut u64) {
        while self.is_open(stream, registry, now) {
            let output = self.drive.output(stream);
            let Some(socket) = self.sockets[stream as usize].as_mut().filter(|socket| socket.is_writable)
            else {
                return;
            };
            if output.is_empty() {
                return;
            }
            *system_calls += 1;
            match socket.stream.write(output) {
                Ok(len) => self.drive.sent(stream, len),
                Err(error) if error.kind() == ErrorKind::WouldBlock => socket.is_writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.failed(stream, error, registry, now),
            }
        }
    }

    /// A stream is closed, or could not be opened.
    fn failed(&mut self, stream: Stream, error: io::Error, registry: &Registry, now: Time) {
        let was_open = self.sockets[stream as usize].take().is_some_and(|mut socket| {
            let _ = registry.deregister(&mut socket.stream);
            socket.opens_until.is_none()
        });
        if !was_open {
            // Perhaps another one is better.
            self.at = (self.at + 1) % self.target.addresses.len();
        }
        self.failure = Some(error);
        // I-R6.
        self.drive.closed(stream, now);
        self.let_go(registry);
    }

    /// Closes what the drive has given up.
    fn let_go(&mut self, registry: &Registry) {
        for stream in STREAMS {
            let is_of_use = |socket: &Socket| socket.opens_until.is_some() || self.drive.keeps(stream);
            let socket = &mut self.sockets[stream as usize];
            let is_gone = self.drive.is_gone() || (stream == Stream::Io && !self.drive.keeps(Stream::Admin));
            if socket.as_ref().is_some_and(|socket| is_gone || !is_of_use(socket))
                && let Some(mut socket) = socket.take()
            {
                let _ = registry.deregister(&mut socket.stream);
            }
        }
    }
}

/// A target that is waited for, for those who have nothing else to do: who opens a drive, looks at it, or formats it.
pub struct RemoteClient {
    line: RemoteLine,
    poll: Poll,
    events: Events,
    start: Instant,
}

/// What reads, writes and flushes of a [`RemoteClient`] are called.
const OWN: IntentToken = IntentToken(u64::MAX);

impl RemoteClient {
    /// Waits until the namespace is there, and claimed as was wished.
    ///
    /// # Errors
    /// Why it is not, and what to do.
    pub fn connect(target: RemoteTarget) -> io::Result<RemoteClient> {
        #[allow(clippy::disallowed_methods, reason = "the reactor is where the clock is read")]
        let start = Instant::now();
        let line = RemoteLine::new(target, [Token(0), Token(1)], Time::ZERO);
        let mut client = RemoteClient { line, poll: Poll::new()?, events: Events::with_capacity(16), start };
        loop {
            client.wait()?;
            let drive = &client.line.drive;
            if drive.is_up() {
                return Ok(client);
            }
            // What another try would find again.
            let is_final = match drive.error() {
                Some(RemoteError::NoNamespace(_)) => true,
                Some(RemoteError::Host(HostError::ConnectRefused { status, .. })) => {
                    !status.same_code(Status::CONNECT_CONTROLLER_BUSY)
                }
                _ => drive.is_gone(),
            };
            if is_final {
                return Err(io::Error::other(client.line.why()));
            }
        }
    }

    /// What it is.
    ///
    /// # Panics
    /// Never: it was connected to.
    pub fn facts(&self) -> &RemoteFacts {
        self.line.drive.facts().expect("it was connected to")
    }

    /// Zones of a zoned namespace, as they are now.
    ///
    /// # Errors
    /// What the target says.
    ///
    /// # Panics
    /// If something is under way.
    pub fn zones(&mut self) -> io::Result<Vec<Zone>> {
        assert!(self.is_idle(), "zones are looked at while nobody writes");
        if self.line.drive.is_up() {
            self.line.drive.look_at_zones();
        }
        while !self.line.drive.is_up() {
            if self.line.drive.is_gone() {
                return Err(io::Error::other(self.line.why()));
            }
            self.wait()?;
        }
        Ok(self.facts().zones.as_ref().map_or(Vec::new(), |zones| zones.zones.clone()))
    }

    /// Key of somebody else that holds it, where it is only looked at.
    pub fn held_by(&self) -> Option<u64> {
        self.line.drive.held_by()
    }

    /// Takes an intent.
    pub fn push(&mut self, intent: Intent) {
        self.line.push(intent);
    }

    /// Whether nothing is under way or waits.
    pub fn is_idle(&self) -> bool {
        self.line.intents.is_empty() && self.line.drive.is_idle()
    }

    /// Appends what is done.
    pub fn take_done(&mut self, done: &mut Vec<IntentDone>) {
        self.line.take_done(done);
    }

    /// Waits until something happens.
    ///
    /// # Errors
    /// What the system says.
    pub fn wait(&mut self) -> io::Result<()> {
        let now = |start: Instant| Time(start.elapsed().as_nanos() as u64);
        self.line.work(self.poll.registry(), now(self.start), &mut 0);
        let left = self.line.deadline().since(now(self.start));
        // Something may have come of the work at once.
        let left = Duration::from_nanos(left.0).min(Duration::from_millis(20));
        match self.poll.poll(&mut self.events, Some(left)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        self.events.iter().for_each(|event| self.line.is_ready(event));
        self.line.work(self.poll.registry(), now(self.start), &mut 0);
        Ok(())
    }

    /// Does one thing. What is read comes back.
    ///
    /// # Errors
    /// What the target says.
    pub fn execute(&mut self, work: IntentWork) -> io::Result<Option<BufferMut>> {
        self.push(Intent { token: OWN, work });
        let mut done = Vec::new();
        loop {
            self.take_done(&mut done);
            if let Some(IntentDone { buffer, result, .. }) = done.pop() {
                return match result {
                    Ok(()) => Ok(buffer),
                    Err(IntentError::Gone) => Err(io::Error::other(self.line.why())),
                    Err(IntentError::Full) => Err(ErrorKind::StorageFull.into()),
                    Err(IntentError::Failed) => {
                        let status = self.line.drive.last_failure();
                        let status = status.map_or("failed".to_owned(), |status| status.to_string());
                        Err(io::Error::other(format!("the target says: {status}")))
                    }
                };
            }
            self.wait()?;
        }
    }

    /// Reads whole blocks.
    ///
    /// # Errors
    /// What the target says.
    pub fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let buffer = self.execute(IntentWork::Read { offset, buffer: BufferMut::copy_from(into) })?;
        into.copy_from_slice(&buffer.ok_or(ErrorKind::InvalidData)?);
        Ok(())
    }

    /// Writes whole blocks.
    ///
    /// # Errors
    /// What the target says.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let parts = [Buffer::copy_from(bytes)].into_iter().collect();
        self.execute(IntentWork::Write { offset, parts, handle: 0 }).map(drop)
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// What the target says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.execute(IntentWork::Sync).map(drop)
    }

    /// Gives the namespace up, so that others may have it.
    ///
    /// # Errors
    /// If the target did not hear of it.
    pub fn release(&mut self) -> io::Result<()> {
        while !self.line.drive.is_gone() {
            // Once more, if the connection was lost and is there again.
            if self.line.drive.is_up() {
                self.line.drive.release();
            }
            self.wait()?;
        }
        if self.line.drive.is_released() { Ok(()) } else { Err(io::Error::other(self.line.why())) }
    }
}
