//! Runs a load over sockets: the part of this crate that touches the operating system.
//!
//! Each thread drives its jobs in rounds: take what arrived, issue what is due, send all of it with one system call. A
//! thread with one connection asks its socket directly; one with several asks epoll first. Threads without work sleep,
//! unless they are told to poll.
#![allow(clippy::disallowed_methods, reason = "drives real sockets with the real clock")]

use crate::job::Job;
use crate::report::Report;
use crate::spec::{LoadSpec, SpecError};
use diecut_initiator::{
    Admin, Collect, Command, Completion, ControllerFacts, HostError, LbaSpan, NamespaceFacts, QueuePair,
    QueueParameters, Sink, Token,
};
/// What an endpoint is named with.
pub use diecut_nvme::{QualifiedName, tcp::Digests};
use diecut_units::{Buffer, Span, Time};
use mio::{Events, Interest, Poll};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Most bytes taken by one receive: as in the raw socket loop that rates are compared with.
const RECEIVE_BYTES: usize = 256 << 10;
/// Rounds without work before a thread sleeps.
const IDLE_ROUNDS: u32 = 64;
/// Pauses of the processor after a round without work. Asking an empty socket again at once takes its lock from the server, whose
/// sends are slowed by it.
const IDLE_PAUSES: u32 = 20;
/// A moment this near is waited for awake: the kernel's timer counts milliseconds.
const SPIN_BELOW: Span = Span::from_micros(1_500);
/// How long a server may take for anything before the load is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is loaded.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Where the server listens.
    pub address: SocketAddr,
    /// Subsystem.
    pub subsystem: QualifiedName,
    /// NQN of the host; the subsystem must allow it.
    pub host: QualifiedName,
    /// HOSTID. Two loads at once need two, or the second ends the first's association.
    pub host_id: [u8; 16],
    /// Namespace; the first one if none.
    pub nsid: Option<u32>,
    /// Digests asked for.
    pub digests: Digests,
}

/// How the load is driven.
#[derive(Clone, Copy)]
pub struct DriveSettings<'a> {
    /// Threads; jobs are dealt to them in turn.
    pub threads: u16,
    /// Never sleep.
    pub busy_poll: bool,
    /// Once it is set nothing more is issued, and the load ends with what was measured until then. Threads look at least once in
    /// a second.
    pub stop: Option<&'a AtomicBool>,
    /// Called on each thread before it begins, with its number: pins it, for example.
    pub on_thread: &'a (dyn Fn(usize) -> io::Result<()> + Sync),
}

impl Default for DriveSettings<'_> {
    /// One thread, which sleeps when it can.
    fn default() -> Self {
        DriveSettings { threads: 1, busy_poll: false, stop: None, on_thread: &|_| Ok(()) }
    }
}

/// Why a load cannot run, or stopped.
#[derive(Debug, Error)]
pub enum LoadError {
    /// Nobody listens, or the network is down.
    #[error("cannot connect to {address}: {source}; is the server running there? (`diecut serve`)")]
    Connect {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The stream failed.
    #[error("the connection to {address} failed: {source}; see the server's log")]
    Stream {
        /// Where.
        address: SocketAddr,
        /// How.
        source: io::Error,
    },
    /// The server hung up.
    #[error("{0} closed the connection; see the server's log")]
    Closed(SocketAddr),
    /// No answer.
    #[error("{0} does not answer; is it an NVMe/TCP server, and alive?")]
    Silent(SocketAddr),
    /// The protocol.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The load.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The namespace is not there.
    #[error("subsystem {subsystem} has no namespace {wanted}; it has: {present}")]
    NoNamespace {
        /// Subsystem.
        subsystem: String,
        /// What was asked for.
        wanted: String,
        /// What there is.
        present: String,
    },
    /// More than the controller gives.
    #[error("the controller takes {what} of {limit} at most, {wanted} were asked for; use less")]
    Limit {
        /// Which.
        what: &'static str,
        /// Its limit.
        limit: u32,
        /// Asked for.
        wanted: u32,
    },
    /// Threads or epoll.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

struct Clock(Instant);
impl Clock {
    #[inline]
    fn now(&self) -> Time {
        Time(self.0.elapsed().as_nanos() as u64)
    }
}

/// Connects, runs the load and hangs up.
///
/// # Errors
/// What went wrong and what to do.
///
/// # Panics
/// If the settings name no thread.
pub fn run(endpoint: &Endpoint, spec: &LoadSpec, settings: DriveSettings<'_>) -> Result<Report, LoadError> {
    assert!(settings.threads >= 1, "a load has a thread");
    let clock = Clock(Instant::now());
    let (mut admin_stream, mut admin) = bring_up(endpoint, spec.jobs.max(1), &clock)?;
    let facts = admin.facts().expect("it was brought up").clone();
    let namespace = choose_namespace(endpoint, &facts)?;
    check_limits(spec, &facts)?;
    // What cannot be is told before queues are connected.
    Job::new(spec, 0, namespace.size_lbas, namespace.lba_bytes, Time::ZERO)?;
    let mut queues = Vec::new();
    for number in 0..spec.jobs {
        queues.push(connect_queue(endpoint, admin.io_queue(number + 1, spec.depth))?);
    }
    let start = clock.now();
    let mut shares: Vec<Vec<Lane>> = (0..settings.threads).map(|_| Vec::new()).collect();
    for (number, (stream, queue)) in queues.into_iter().enumerate() {
        let job = Job::new(spec, number as u16, namespace.size_lbas, namespace.lba_bytes, start)?;
        stream.set_nonblocking(true)?;
        let stream = mio::net::TcpStream::from_std(stream);
        let lane = Lane { stream, queue, job, readable: true, writable: true };
        shares[number % usize::from(settings.threads)].push(lane);
    }
    shares.retain(|share| !share.is_empty());
    let content = random_content(spec);
    let results: Vec<Result<Share, LoadError>> = std::thread::scope(|scope| {
        let (clock, content) = (&clock, &content);
        let threads: Vec<_> = shares
            .into_iter()
            .enumerate()
            .map(|(number, lanes)| {
                scope.spawn(move || {
                    (settings.on_thread)(number)?;
                    let mut share = Share { lanes, namespace, content, system_calls: 0, operations: 0 };
                    share.run(endpoint.address, clock, settings)?;
                    Ok(share)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a load's thread does not panic")).collect()
    });
    let (mut jobs, mut system_calls, mut operations) = (Vec::new(), 0, 0);
    for result in results {
        let share = result?;
        system_calls += share.system_calls;
        operations += share.operations;
        jobs.extend(share.lanes.into_iter().map(|lane| lane.job));
    }
    admin.shut_down();
    // The figures are there; a server that does not say goodbye takes nothing from them.
    let _ = exchange(endpoint.address, &mut admin_stream, &mut admin, &clock, |admin| admin.is_down());
    Ok(Report::of(spec, &jobs, system_calls, operations))
}

/// Asks a subsystem what it has.
///
/// # Errors
/// What went wrong and what to do.
pub fn probe(endpoint: &Endpoint) -> Result<ControllerFacts, LoadError> {
    let clock = Clock(Instant::now());
    let (mut stream, mut admin) = bring_up(endpoint, 1, &clock)?;
    let facts = admin.facts().expect("it was brought up").clone();
    admin.shut_down();
    let _ = exchange(endpoint.address, &mut stream, &mut admin, &clock, |admin| admin.is_down());
    Ok(facts)
}

fn open(address: SocketAddr) -> Result<TcpStream, LoadError> {
    let connect = |source| LoadError::Connect { address, source };
    let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(connect)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn stream_error(address: SocketAddr, source: io::Error) -> LoadError {
    match source.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => LoadError::Silent(address),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => LoadError::Closed(address),
        _ => LoadError::Stream { address, source },
    }
}

/// Reads some bytes, waiting for them.
fn read_some<'a>(
    address: SocketAddr,
    stream: &mut TcpStream,
    bytes: &'a mut [u8],
) -> Result<&'a [u8], LoadError> {
    match stream.read(bytes) {
        Ok(0) => Err(LoadError::Closed(address)),
        Ok(length) => Ok(&bytes[..length]),
        Err(error) => Err(stream_error(address, error)),
    }
}

fn bring_up(endpoint: &Endpoint, io_queues: u16, clock: &Clock) -> Result<(TcpStream, Admin), LoadError> {
    let mut stream = open(endpoint.address)?;
    let parameters = QueueParameters {
        digests: endpoint.digests,
        ..QueueParameters::admin(endpoint.host.clone(), endpoint.host_id, endpoint.subsystem.clone())
    };
    let mut admin = Admin::new(parameters, io_queues);
    exchange(endpoint.address, &mut stream, &mut admin, clock, |admin| admin.facts().is_some())?;
    Ok((stream, admin))
}

/// Sends and receives on the admin queue until `done`.
fn exchange(
    address: SocketAddr,
    stream: &mut TcpStream,
    admin: &mut Admin,
    clock: &Clock,
    done: impl Fn(&Admin) -> bool,
) -> Result<(), LoadError> {
    let mut bytes = vec![0; 16 << 10];
    while !done(admin) {
        stream.write_all(admin.output()).map_err(|error| stream_error(address, error))?;
        admin.sent(admin.output().len());
        let received = read_some(address, stream, &mut bytes)?;
        admin.receive(received, clock.now(), &mut Collect::default())?;
    }
    Ok(())
}

fn connect_queue(
    endpoint: &Endpoint,
    parameters: QueueParameters,
) -> Result<(TcpStream, QueuePair), LoadError> {
    let address = endpoint.address;
    let mut stream = open(address)?;
    let mut queue = QueuePair::new(parameters);
    let mut bytes = [0; 1024];
    while !queue.is_ready() {
        stream.write_all(queue.output()).map_err(|error| stream_error(address, error))?;
        queue.sent(queue.output().len());
        queue.receive(read_some(address, &mut stream, &mut bytes)?, &mut Collect::default())?;
    }
    Ok((stream, queue))
}

fn choose_namespace(endpoint: &Endpoint, facts: &ControllerFacts) -> Result<NamespaceFacts, LoadError> {
    let found = match endpoint.nsid {
        Some(wanted) => facts.namespaces.iter().find(|one| one.nsid == wanted),
        None => facts.namespaces.first(),
    };
    found.copied().ok_or_else(|| {
        let present: Vec<String> = facts.namespaces.iter().map(|one| one.nsid.to_string()).collect();
        LoadError::NoNamespace {
            subsystem: endpoint.subsystem.to_string(),
            wanted: endpoint.nsid.map_or("at all".to_owned(), |nsid| nsid.to_string()),
            present: if present.is_empty() { "none".to_owned() } else { present.join(", ") },
        }
    })
}

fn check_limits(spec: &LoadSpec, facts: &ControllerFacts) -> Result<(), LoadError> {
    let (block_bytes, max_bytes) = (spec.block_bytes, facts.transfer_bytes_max);
    if block_bytes > max_bytes {
        return Err(SpecError::TooLarge { block_bytes, max_bytes }.into());
    }
    let limit = |what, limit: u16, wanted: u16| {
        let (over, limit, wanted) = (wanted > limit, u32::from(limit), u32::from(wanted));
        if over { Err(LoadError::Limit { what, limit, wanted }) } else { Ok(()) }
    };
    limit("jobs", facts.io_queues, spec.jobs)?;
    limit("a depth", facts.queue_entries_max - 1, spec.depth)
}

/// What is written: random, so that no layer below can cheat.
fn random_content(spec: &LoadSpec) -> Buffer {
    let mut state = spec.seed | 1;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(spec.block_bytes as usize)
    .collect();
    Buffer::copy_from(&bytes)
}

/// A job and its stream.
struct Lane {
    stream: mio::net::TcpStream,
    queue: QueuePair,
    job: Job,
    readable: bool,
    writable: bool,
}

/// What one thread drives.
struct Share<'a> {
    lanes: Vec<Lane>,
    namespace: NamespaceFacts,
    content: &'a Buffer,
    system_calls: u64,
    operations: u64,
}

struct JobSink<'a> {
    job: &'a mut Job,
    now: Time,
    operations: u64,
}

impl Sink for JobSink<'_> {
    #[inline]
    fn data(&mut self, _token: Token, _offset: u32, _bytes: &[u8]) {}
    #[inline]
    fn completed(&mut self, completion: Completion) {
        self.operations += 1;
        self.job.completed(completion.token.0 as u16, self.now, completion.status);
    }
}

impl Share<'_> {
    fn run(
        &mut self,
        address: SocketAddr,
        clock: &Clock,
        settings: DriveSettings<'_>,
    ) -> Result<(), LoadError> {
        let DriveSettings { busy_poll, stop, .. } = settings;
        let mut poll = Poll::new()?;
        let mut events = Events::with_capacity(256);
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut lane.stream, mio::Token(number), interest)?;
        }
        let single = self.lanes.len() == 1;
        let mut receive = vec![0; RECEIVE_BYTES];
        let mut idle_rounds = 0u32;
        let mut alive_at = clock.now();
        loop {
            let sleeps = !busy_poll && idle_rounds > IDLE_ROUNDS;
            if !single || sleeps {
                let timeout = if sleeps { self.patience(clock.now()) } else { Duration::ZERO };
                self.system_calls += 1;
                match poll.poll(&mut events, Some(timeout)) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    other => other?,
                }
                for event in &events {
                    let lane = &mut self.lanes[event.token().0];
                    lane.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
                    lane.writable |= event.is_writable();
                }
            }
            if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                let now = clock.now();
                self.lanes.iter_mut().for_each(|lane| lane.job.end_at(now));
            }
            let mut worked = false;
            let mut over = true;
            for number in 0..self.lanes.len() {
                if single {
                    (self.lanes[number].readable, self.lanes[number].writable) = (true, true);
                }
                worked |= self.receive(number, address, clock, &mut receive)?;
                worked |= self.issue(number, address, clock.now())?;
                let lane = &self.lanes[number];
                over &= lane.job.is_done(clock.now());
            }
            let now = clock.now();
            if over {
                return Ok(());
            }
            idle_rounds = if worked { 0 } else { idle_rounds.saturating_add(1) };
            if !worked {
                for _ in 0..IDLE_PAUSES {
                    std::hint::spin_loop();
                }
            }
            let waiting = self.lanes.iter().any(|lane| lane.job.under_way() > 0);
            if worked || !waiting {
                alive_at = now;
            } else if now.since(alive_at) > Span(PATIENCE.as_nanos() as u64) {
                return Err(LoadError::Silent(address));
            }
        }
    }

    /// How long nothing is to be done unless something arrives.
    fn patience(&self, now: Time) -> Duration {
        let wake = self.lanes.iter().map(|lane| lane.job.wake_at()).min().unwrap_or(Time::NEVER);
        let left = if wake > now { wake.since(now) } else { Span(0) };
        if left < SPIN_BELOW { Duration::ZERO } else { Duration::from_nanos(left.0).min(PATIENCE / 10) }
    }

    #[inline]
    fn receive(
        &mut self,
        number: usize,
        address: SocketAddr,
        clock: &Clock,
        bytes: &mut [u8],
    ) -> Result<bool, LoadError> {
        let lane = &mut self.lanes[number];
        if !lane.readable {
            return Ok(false);
        }
        self.system_calls += 1;
        match lane.stream.read(bytes) {
            Ok(0) => Err(LoadError::Closed(address)),
            Ok(length) => {
                // Less than asked means that the socket is empty; a new edge follows with new bytes.
                lane.readable = length == bytes.len();
                let mut sink = JobSink { job: &mut lane.job, now: clock.now(), operations: 0 };
                lane.queue.receive(&bytes[..length], &mut sink)?;
                self.operations += sink.operations;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                lane.readable = false;
                Ok(false)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(stream_error(address, error)),
        }
    }

    #[inline]
    fn issue(&mut self, number: usize, address: SocketAddr, now: Time) -> Result<bool, LoadError> {
        let lane = &mut self.lanes[number];
        while let Some(operation) = lane.job.next(now) {
            let span =
                LbaSpan { nsid: self.namespace.nsid, first: operation.first_lba, count: operation.lba_count };
            let command = if operation.is_read {
                Command::Read { span, length_bytes: self.content.len() as u32 }
            } else {
                Command::Write { span, data: self.content.clone(), force_unit_access: false }
            };
            lane.queue.submit(Token(u64::from(operation.slot)), command);
        }
        let output = lane.queue.output();
        if output.is_empty() || !lane.writable {
            return Ok(false);
        }
        self.system_calls += 1;
        match lane.stream.write(output) {
            Ok(sent) => {
                lane.writable = sent == output.len();
                lane.queue.sent(sent);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                lane.writable = false;
                Ok(false)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(stream_error(address, error)),
        }
    }
}
