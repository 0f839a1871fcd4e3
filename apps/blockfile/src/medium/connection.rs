//! Streams to a controller, each with a queue, that threads use one at a time.

use super::error::ZonesError;
use diecut_initiator::zoned::ZoneCommand;
use diecut_initiator::{
    Admin, Collect, Completion, ControllerFacts, HostError, QueuePair, QueueParameters, Sink, Token,
};
use diecut_nvme::tcp::Digests;
use diecut_nvme::{QualifiedName, Status};
use diecut_units::Time;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a connect, and a controller's silence, is borne.
const PATIENCE: Duration = Duration::from_secs(30);
/// Streams of a connection: as many threads ask at once.
const LANES: u16 = 4;
/// Size of a queue in entries.
const QUEUE_ENTRIES: u16 = 33;
/// Bytes that one system call receives.
const RECEIVED_MAX_BYTES: usize = 256 << 10;

/// Who connects to what.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub address: SocketAddr,
    pub subsystem: QualifiedName,
    pub host: QualifiedName,
    pub host_id: [u8; 16],
}

/// A command, and the bytes that it brings go there.
pub(super) struct Errand<'a> {
    pub command: ZoneCommand,
    /// Of those with the same number, one is under way at a time, in their order.
    pub in_turn: Option<u32>,
    pub destination: Option<&'a mut [u8]>,
}

impl<'a> Errand<'a> {
    pub fn of(command: ZoneCommand) -> Errand<'a> {
        Errand { command, in_turn: None, destination: None }
    }

    pub fn into(command: ZoneCommand, destination: &'a mut [u8]) -> Errand<'a> {
        Errand { destination: Some(destination), ..Errand::of(command) }
    }
}

/// A stream and its queue.
struct Lane {
    stream: TcpStream,
    queue: QueuePair,
    bytes: Vec<u8>,
}

/// A controller that was brought up, and streams to it.
pub(super) struct Connection {
    admin: Mutex<(TcpStream, Admin)>,
    facts: ControllerFacts,
    lanes: Mutex<Vec<Lane>>,
    returned: Condvar,
    /// Streams that are not lost.
    alive: Mutex<u16>,
    began: Instant,
}

/// The stream is of no use any more.
pub(super) struct Lost;

impl Connection {
    #[expect(clippy::disallowed_methods, reason = "a client on the real clock")]
    pub fn open(endpoint: &Endpoint) -> Result<Connection, ZonesError> {
        let began = Instant::now();
        let mut stream = connect(endpoint.address)?;
        let parameters =
            QueueParameters::admin(endpoint.host.clone(), endpoint.host_id, endpoint.subsystem.clone());
        let parameters = QueueParameters { digests: Digests::NONE, ..parameters };
        let mut admin = Admin::new(parameters, LANES);
        pump_admin(&mut stream, &mut admin, began, &mut Collect::default(), |admin, _| {
            admin.facts().is_some()
        })?;
        let facts = admin.facts().expect("it was brought up").clone();
        let mut lanes = Vec::new();
        for number in 0..facts.io_queues.min(LANES) {
            let entries = QUEUE_ENTRIES.min(facts.queue_entries_max).max(2);
            lanes.push(Lane::open(endpoint.address, admin.io_queue(number + 1, entries - 1))?);
        }
        Ok(Connection {
            alive: Mutex::new(lanes.len() as u16),
            lanes: Mutex::new(lanes),
            admin: Mutex::new((stream, admin)),
            facts,
            returned: Condvar::new(),
            began,
        })
    }

    pub fn facts(&self) -> &ControllerFacts {
        &self.facts
    }

    /// An admin command; what it brought.
    pub fn admin(&self, command: ZoneCommand) -> Result<Vec<u8>, ZonesError> {
        let mut admin = lock(&self.admin);
        let (stream, admin) = &mut *admin;
        admin.submit_entry(Token(1), command.entry, command.data, command.expected_bytes);
        let mut collect = Collect::default();
        pump_admin(stream, admin, self.began, &mut collect, |_, collect| !collect.completions.is_empty())?;
        let status = collect.completions[0].status;
        if status.is_success() {
            Ok(collect.data.remove(&Token(1)).unwrap_or_default())
        } else {
            Err(ZonesError::Command { what: "Identify", status })
        }
    }

    /// Runs commands on one stream, side by side but for those in turn. Says how each ended.
    pub fn run(&self, errands: Vec<Errand<'_>>) -> Result<Vec<Status>, Lost> {
        let mut lane = self.take()?;
        match lane.run(errands) {
            Ok(statuses) => {
                lock(&self.lanes).push(lane);
                self.returned.notify_one();
                Ok(statuses)
            }
            Err(_) => {
                // What is lost is not taken again, and whoever waits for a stream must not wait for this one.
                *lock(&self.alive) -= 1;
                self.returned.notify_all();
                Err(Lost)
            }
        }
    }

    fn take(&self) -> Result<Lane, Lost> {
        let mut lanes = lock(&self.lanes);
        loop {
            if let Some(lane) = lanes.pop() {
                return Ok(lane);
            }
            if *lock(&self.alive) == 0 {
                return Err(Lost);
            }
            lanes = self.returned.wait(lanes).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let (stream, admin) = self.admin.get_mut().unwrap_or_else(PoisonError::into_inner);
        if admin.shut_down() {
            // A controller that does not say goodbye is gone all the same.
            let _ =
                pump_admin(stream, admin, self.began, &mut Collect::default(), |admin, _| admin.is_down());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect(address: SocketAddr) -> Result<TcpStream, ZonesError> {
    let failed = |source| ZonesError::Connect { address, source };
    let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    Ok(stream)
}

fn pump_admin(
    stream: &mut TcpStream,
    admin: &mut Admin,
    began: Instant,
    sink: &mut Collect,
    done: impl Fn(&Admin, &Collect) -> bool,
) -> Result<(), ZonesError> {
    let mut bytes = vec![0; 16 << 10];
    while !done(admin, sink) {
        stream.write_all(admin.output()).map_err(ZonesError::Stream)?;
        admin.sent(admin.output().len());
        let received = receive(stream, &mut bytes)?;
        let now = Time::ZERO + diecut_units::Span::from_nanos(began.elapsed().as_nanos() as u64);
        admin.receive(&bytes[..received], now, sink)?;
    }
    Ok(())
}

fn receive(stream: &mut TcpStream, bytes: &mut [u8]) -> Result<usize, ZonesError> {
    match stream.read(bytes) {
        Ok(0) => Err(ZonesError::Stream(std::io::ErrorKind::ConnectionAborted.into())),
        other => other.map_err(ZonesError::Stream),
    }
}

impl Lane {
    fn open(address: SocketAddr, parameters: QueueParameters) -> Result<Lane, ZonesError> {
        let stream = connect(address)?;
        let queue = QueuePair::new(parameters);
        let mut lane = Lane { stream, queue, bytes: vec![0; RECEIVED_MAX_BYTES] };
        while !lane.queue.is_ready() {
            lane.exchange(&mut Landing::default())?;
        }
        Ok(lane)
    }

    /// Sends what waits, and receives something.
    fn exchange(&mut self, landing: &mut Landing<'_>) -> Result<(), ZonesError> {
        self.stream.write_all(self.queue.output()).map_err(ZonesError::Stream)?;
        self.queue.sent(self.queue.output().len());
        let received = receive(&mut self.stream, &mut self.bytes)?;
        self.queue.receive(&self.bytes[..received], landing).map_err(HostError::into)
    }

    fn run(&mut self, errands: Vec<Errand<'_>>) -> Result<Vec<Status>, ZonesError> {
        let mut landing = Landing { statuses: vec![None; errands.len()], ..Landing::default() };
        let mut waiting = VecDeque::new();
        let mut turns = Vec::new();
        for (number, errand) in errands.into_iter().enumerate() {
            landing.destinations.push(errand.destination);
            turns.push(errand.in_turn);
            waiting.push_back((number, errand.command));
        }
        let mut under_way: Vec<usize> = Vec::new();
        loop {
            under_way.retain(|number| landing.statuses[*number].is_none());
            // Whose turn is taken keeps those behind it with the same turn waiting, too.
            let mut taken: Vec<u32> = under_way.iter().filter_map(|number| turns[*number]).collect();
            let mut still = VecDeque::new();
            for (number, command) in waiting.drain(..) {
                let is_free = turns[number].is_none_or(|turn| !taken.contains(&turn));
                taken.extend(turns[number]);
                if is_free && self.queue.room() > 0 {
                    let ZoneCommand { entry, data, expected_bytes } = command;
                    self.queue.submit_entry(Token(number as u64), entry, data, expected_bytes);
                    under_way.push(number);
                } else {
                    still.push_back((number, command));
                }
            }
            waiting = still;
            if under_way.is_empty() {
                break;
            }
            self.exchange(&mut landing)?;
        }
        Ok(landing.statuses.into_iter().map(|status| status.expect("all ended")).collect())
    }
}

/// Where data goes, and how commands ended.
#[derive(Default)]
struct Landing<'a> {
    destinations: Vec<Option<&'a mut [u8]>>,
    statuses: Vec<Option<Status>>,
}

impl Sink for Landing<'_> {
    fn data(&mut self, token: Token, offset: u32, bytes: &[u8]) {
        let destination = self.destinations.get_mut(token.0 as usize).and_then(Option::as_mut);
        let Some(destination) = destination else { return };
        let start = offset as usize;
        // The queue checks that no more comes than was asked for.
        if let Some(place) = destination.get_mut(start..start + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn completed(&mut self, completion: Completion) {
        if let Some(place) = self.statuses.get_mut(completion.token.0 as usize) {
            *place = Some(completion.status);
        }
    }
}
