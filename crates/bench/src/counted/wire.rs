//! A shard and its hosts in one thread, without sockets.
//!
//! A device in memory passes virtual time; one on a ring the real one, and then the thread sleeps while only the drive is at work.

use super::carrier::Carrier;
use diecut_initiator::{Admin, Command, Completion, LbaSpan, QueuePair, QueueParameters, Token};
use diecut_load::drive::QualifiedName;
use diecut_media::IntentDone;
use diecut_nvme::fdp::DIRECTIVE_DATA_PLACEMENT;
use diecut_nvme::io::LbaRange;
use diecut_nvme::zns::{self, ZoneAppend, ZoneManagementSend};
use diecut_nvme::{SubmissionEntry, opcode};
use diecut_shard::control::{ControlRequest, ControlResponse, ControlToken};
use diecut_shard::drive::{Action, ConnectionId, Drive, Event};
use diecut_shard::{DeviceIndex, Shard};
use diecut_units::{Buffer, BufferMut, BufferPool, Span, Time};
use std::time::{Duration, Instant};

/// Time between two rounds; the device is not paced, so it matters to timers only.
const ROUND: Span = Span::from_micros(10);
/// Rounds without progress after which something is wrong.
const PATIENCE_ROUNDS: u32 = 10_000;
/// Opening a pool takes no longer.
const OPENING_PATIENCE: Duration = Duration::from_secs(600);
/// Token of a write that is flushed when it is answered.
const TO_BE_FLUSHED: u64 = 1 << 63;
/// As in the reactor.
const RECEIVE_BUFFER_BYTES: usize = 64 << 10;

/// The server's side: functions of this module are what is counted. They never call each other and are never inlined, or
/// the count would be switched on and off at wrong places.
mod server_side {
    use super::*;

    #[inline(never)]
    pub fn handle<D: Drive>(shard: &mut D, event: Event, now: Time, actions: &mut Vec<Action>) {
        shard.handle(event, now, actions);
    }
    #[inline(never)]
    pub fn work<D: Drive>(shard: &mut D, now: Time, actions: &mut Vec<Action>) {
        if shard.deadline() <= now {
            shard.work(now, actions);
        }
    }
    #[inline(never)]
    pub fn buffer<D: Drive>(
        shard: &mut D,
        connection: ConnectionId,
        pool: &mut BufferPool,
    ) -> Option<BufferMut> {
        let window = shard.receive_window(connection).is_some();
        (!window).then(|| pool.take(RECEIVE_BUFFER_BYTES))
    }
    /// Goes over the slices as `writev` is given them.
    #[inline(never)]
    pub fn output_bytes<D: Drive>(shard: &D, connection: ConnectionId) -> usize {
        let outbox = shard.outbox(connection);
        outbox.map_or(0, |outbox| outbox.io_slices().map(|slice| slice.len()).sum())
    }
    #[inline(never)]
    pub fn sent<D: Drive>(shard: &mut D, connection: ConnectionId, bytes: usize, actions: &mut Vec<Action>) {
        shard.sent(connection, bytes, actions);
    }
}

/// What valgrind is told to count: the functions of [`server_side`].
pub(crate) const COUNTED_FUNCTIONS: &str = "*counted::wire::server_side::*";

/// A shard with what the reactor keeps for it.
pub(crate) struct Wire<D> {
    shard: D,
    pub(crate) now: Time,
    actions: Vec<Action>,
    pool: BufferPool,
    received: Vec<u8>,
    connections: u64,
    paused: Vec<ConnectionId>,
    answer: Option<ControlResponse>,
    carrier: Carrier,
    io_done: Vec<IntentDone>,
    began: Instant,
    /// Real time in which the server's side was at work.
    pub(crate) server_time: Duration,
}

/// A connection that is an I/O queue.
pub(crate) struct Line {
    id: ConnectionId,
    queue: QueuePair,
    done: Vec<Completion>,
    state: u64,
    /// The next block of those in order.
    in_order: u64,
}

impl<D: Drive> Wire<D> {
    /// Over a device that asks for nothing.
    pub(crate) fn new(shard: D) -> Wire<D> {
        Wire::on(shard, Carrier::Nobody)
    }

    /// Over a device that asks for I/O.
    pub(crate) fn on(shard: D, carrier: Carrier) -> Wire<D> {
        Wire {
            shard,
            now: Time::ZERO,
            actions: Vec::new(),
            pool: BufferPool::new(),
            received: Vec::new(),
            connections: 0,
            paused: Vec::new(),
            answer: None,
            carrier,
            io_done: Vec::new(),
            began: Instant::now(),
            server_time: Duration::ZERO,
        }
    }

    fn act(&mut self) {
        for action in self.actions.drain(..) {
            match action {
                // Every connection's output is looked at in every round.
                Action::Transmit { .. } => {}
                Action::Pause { connection } => self.paused.push(connection),
                Action::Resume { connection } => self.paused.retain(|other| *other != connection),
                Action::Answer { response, .. } => self.answer = Some(*response),
                Action::Close { connection } => panic!("the server closes {connection:?}"),
                Action::HandOver { .. } | Action::Tell { .. } => panic!("there is one shard"),
                Action::Notice(_) => {}
                Action::BeginAnew => panic!("no shard fails"),
                Action::Io(_, intent) => self.carrier.begin(intent),
                Action::Blocks(_) => panic!("no application is attached"),
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let begun = Instant::now();
        server_side::handle(&mut self.shard, event, self.now, &mut self.actions);
        self.server_time += begun.elapsed();
        self.act();
    }

    /// The shard's turn, and its time passes.
    fn work(&mut self) {
        self.now = if self.carrier.takes_time() {
            Time(self.began.elapsed().as_nanos() as u64)
        } else {
            self.now + ROUND
        };
        let mut done = std::mem::take(&mut self.io_done);
        self.carrier.take_done(&mut done);
        done.drain(..).for_each(|done| self.handle(Event::IoDone(DeviceIndex(0), done)));
        self.io_done = done;
        let begun = Instant::now();
        server_side::work(&mut self.shard, self.now, &mut self.actions);
        self.server_time += begun.elapsed();
        self.act();
    }

    /// Nobody has anything to say: sleeps until the drive has, or the shard.
    fn wait(&mut self) {
        let deadline = self.shard.deadline();
        if deadline > self.now {
            self.carrier.wait(deadline.since(self.now));
        } else {
            self.carrier.submit();
        }
    }

    fn accept(&mut self) -> ConnectionId {
        self.connections += 1;
        let id = ConnectionId(self.connections);
        self.handle(Event::Accepted { connection: id, local: None });
        id
    }

    /// Asks as an administrator.
    pub(crate) fn ask(&mut self, request: ControlRequest) -> Result<(), String> {
        match self.response_to(request)? {
            ControlResponse::Done | ControlResponse::Unchanged => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    /// What an administrator is answered.
    pub(crate) fn response_to(&mut self, request: ControlRequest) -> Result<ControlResponse, String> {
        self.handle(Event::Control { token: ControlToken(1), request: Box::new(request) });
        for _ in 0..PATIENCE_ROUNDS {
            if let Some(response) = self.answer.take() {
                return Ok(response);
            }
            self.work();
            self.wait();
        }
        Err("the shard does not answer its administrator".to_owned())
    }

    /// Gives a connection bytes, as many as it takes. Says how many.
    fn give(&mut self, id: ConnectionId, bytes: &[u8]) -> usize {
        let mut given = 0;
        while given < bytes.len() && !self.paused.contains(&id) {
            let left = &bytes[given..];
            let event = match server_side::buffer(&mut self.shard, id, &mut self.pool) {
                Some(mut buffer) => {
                    let len = left.len().min(buffer.len());
                    buffer[..len].copy_from_slice(&left[..len]);
                    buffer.truncate(len);
                    given += len;
                    Event::Received { connection: id, bytes: buffer.freeze() }
                }
                None => {
                    let window = self.shard.receive_window(id).expect("it was there");
                    let len_bytes = left.len().min(window.len());
                    window[..len_bytes].copy_from_slice(&left[..len_bytes]);
                    given += len_bytes;
                    Event::ReceivedInWindow { connection: id, len_bytes }
                }
            };
            self.handle(event);
        }
        given
    }

    /// Takes all output of a connection into `self.received`.
    fn take(&mut self, id: ConnectionId) {
        self.received.clear();
        let begun = Instant::now();
        let bytes = server_side::output_bytes(&self.shard, id);
        self.server_time += begun.elapsed();
        if bytes == 0 {
            return;
        }
        let outbox = self.shard.outbox(id).expect("it has output");
        for slice in outbox.io_slices() {
            self.received.extend_from_slice(&slice);
        }
        let begun = Instant::now();
        server_side::sent(&mut self.shard, id, bytes, &mut self.actions);
        self.server_time += begun.elapsed();
        self.act();
    }

    /// Brings a controller of a subsystem up and connects `lines` I/O queues of `depth`.
    pub(crate) fn connect(
        &mut self,
        subsystem: &str,
        host: u8,
        lines: u16,
        depth: u16,
    ) -> Result<Vec<Line>, String> {
        let name = |text: &str| QualifiedName::new(text).expect("a fixed name");
        let host_name = name("nqn.2026-11.org.diecut:counted");
        let parameters = QueueParameters::admin(host_name, [host; 16], name(subsystem));
        let id = self.accept();
        let mut admin = Admin::new(parameters, lines);
        for _ in 0..PATIENCE_ROUNDS {
            if admin.facts().is_some() {
                break;
            }
            let given = self.give(id, admin.output());
            admin.sent(given);
            self.work();
            self.take(id);
            let mut nothing: Vec<Completion> = Vec::new();
            admin.receive(&self.received, self.now, &mut nothing).map_err(|error| error.to_string())?;
        }
        if admin.facts().is_none() {
            return Err("the controller does not come up".to_owned());
        }
        let mut connected = Vec::new();
        for number in 1..=lines {
            let queue = QueuePair::new(admin.io_queue(number, depth));
            let id = self.accept();
            let mut line =
                Line { id, queue, done: Vec::new(), state: 0x9e37_79b9 + u64::from(number), in_order: 0 };
            for _ in 0..PATIENCE_ROUNDS {
                if line.queue.is_ready() {
                    break;
                }
                self.exchange(std::slice::from_mut(&mut line))?;
            }
            if !line.queue.is_ready() {
                return Err(format!("queue {number} does not come up"));
            }
            connected.push(line);
        }
        Ok(connected)
    }

    /// One round: what hosts have to say goes in, the shard works, its answers come out. Where none do, it is waited for them.
    pub(crate) fn exchange(&mut self, lines: &mut [Line]) -> Result<(), String> {
        let mut is_silent = true;
        for line in &mut *lines {
            let given = self.give(line.id, line.queue.output());
            line.queue.sent(given);
        }
        self.work();
        for line in lines {
            self.take(line.id);
            is_silent &= self.received.is_empty();
            line.queue.receive(&self.received, &mut line.done).map_err(|error| error.to_string())?;
            for done in line.done.drain(..) {
                if !done.status.is_success() {
                    return Err(format!("a command failed: {:?}", done.status));
                }
                if done.token.0 & TO_BE_FLUSHED != 0 {
                    line.queue.submit(Token(0), Command::Flush { nsid: 1 });
                }
            }
        }
        if is_silent {
            self.wait();
        } else {
            self.carrier.submit();
        }
        Ok(())
    }
}

/// How content is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// To a block.
    Block,
    /// To a block, and a flush when that is answered: only then is it over.
    Flushed,
    /// To a block, past the volatile cache.
    Through,
    /// To a block, with a placement handle.
    Placed(u16),
    /// To the end of the zone that the block is in; a zone has so many blocks, a power of two.
    Append { zone_lbas: u64 },
}

/// What a line asks for.
#[derive(Clone)]
pub(crate) struct Ask {
    /// Commands that are submitted together; the next ones when all are answered.
    pub(crate) batch: usize,
    /// Blocks of 4 KiB to choose from.
    pub(crate) lbas: u64,
    /// Blocks of a command.
    pub(crate) blocks: u32,
    /// Content of writes; none for reads.
    pub(crate) content: Option<Buffer>,
    pub(crate) writes: Writes,
    /// One after the other, else at random.
    pub(crate) in_order: bool,
}

impl Line {
    /// Commands that were not answered yet.
    pub(crate) fn under_way(&self) -> usize {
        self.queue.under_way()
    }

    /// Submits a reset of all zones, and begins with the first one again.
    pub(crate) fn submit_reset(&mut self) {
        let mut entry = SubmissionEntry {
            opcode: zns::opcode::ZONE_MANAGEMENT_SEND,
            nsid: 1.into(),
            ..Default::default()
        };
        let action = zns::send_action::RESET;
        ZoneManagementSend { lba: 0, action, select_all: true, option: false }.encode(&mut entry);
        self.queue.submit_entry(Token(0), entry, None, 0);
        self.in_order = 0;
    }

    /// Submits a batch of commands.
    pub(crate) fn submit(&mut self, ask: &Ask) {
        let places = ask.lbas / u64::from(ask.blocks);
        for _ in 0..ask.batch {
            let place = if ask.in_order {
                self.in_order += 1;
                (self.in_order - 1) % places
            } else {
                self.state ^= self.state << 13;
                self.state ^= self.state >> 7;
                self.state ^= self.state << 17;
                ((u128::from(self.state) * u128::from(places)) >> 64) as u64
            };
            let first = place * u64::from(ask.blocks);
            let span = LbaSpan { nsid: 1, first, count: ask.blocks };
            let Some(content) = ask.content.clone() else {
                self.queue.submit(Token(first), Command::Read { span, length_bytes: ask.blocks * 4096 });
                continue;
            };
            let mut entry = SubmissionEntry { nsid: 1.into(), ..SubmissionEntry::default() };
            match ask.writes {
                Writes::Block | Writes::Flushed | Writes::Through => {
                    let force_unit_access = ask.writes == Writes::Through;
                    let token = if ask.writes == Writes::Flushed { TO_BE_FLUSHED } else { first };
                    self.queue
                        .submit(Token(token), Command::Write { span, data: content, force_unit_access });
                    continue;
                }
                Writes::Placed(handle) => {
                    entry.opcode = opcode::io::WRITE;
                    let range = LbaRange::plain(first, 1);
                    LbaRange {
                        directive_type: DIRECTIVE_DATA_PLACEMENT,
                        directive_specific: handle,
                        ..range
                    }
                    .encode(&mut entry);
                }
                Writes::Append { zone_lbas } => {
                    entry.opcode = zns::opcode::ZONE_APPEND;
                    let zone_lba = first - first % zone_lbas;
                    let (protection, storage_tag_check, directive_type) = (0, false, 0);
                    ZoneAppend { zone_lba, count: 1, protection, storage_tag_check, directive_type }
                        .encode(&mut entry);
                }
            }
            self.queue.submit_entry(Token(first), entry, Some(content), 0);
        }
    }
}

impl<D: Drive> Wire<D> {
    /// Each line does `operations` of what it is asked for, in step. Gives how many operations that were.
    pub(crate) fn run(&mut self, lines: &mut [Line], asks: &[Ask], rounds: u64) -> Result<u64, String> {
        let mut operations = 0;
        for _ in 0..rounds {
            for (line, ask) in lines.iter_mut().zip(asks) {
                line.submit(ask);
                operations += ask.batch as u64;
            }
            self.settle(lines)?;
        }
        Ok(operations)
    }

    /// Until all commands are answered.
    pub(crate) fn settle(&mut self, lines: &mut [Line]) -> Result<(), String> {
        for _ in 0..PATIENCE_ROUNDS {
            if lines.iter().all(|line| line.under_way() == 0) {
                return Ok(());
            }
            self.exchange(lines)?;
        }
        Err("commands are not answered".to_owned())
    }
}

impl<D: Drive> Wire<D> {
    /// Has a line keep a queue of `depth` commands busy for so long. Gives operations, and the seconds that they took.
    pub(crate) fn run_for(
        &mut self,
        line: &mut Line,
        ask: &Ask,
        depth: usize,
        duration: Duration,
    ) -> Result<(u64, f64), String> {
        let (begun, mut submitted) = (Instant::now(), 0);
        while begun.elapsed() < duration {
            let batch = depth - line.under_way();
            line.submit(&Ask { batch, ..ask.clone() });
            submitted += batch as u64;
            self.exchange(std::slice::from_mut(line))?;
        }
        let (operations, seconds) = (submitted - line.under_way() as u64, begun.elapsed().as_secs_f64());
        self.settle(std::slice::from_mut(line))?;
        Ok((operations, seconds))
    }
}

impl<M: diecut_media::Divide> Wire<Shard<M>> {
    pub(crate) fn carrier(&self) -> &Carrier {
        &self.carrier
    }

    /// The process is gone, and what carried out its I/O is left.
    pub(crate) fn die(self) -> Carrier {
        self.carrier
    }

    /// Until the pool is there.
    pub(crate) fn open(&mut self) -> Result<(), String> {
        while self.began.elapsed() < OPENING_PATIENCE {
            if self.shard.is_ready() {
                return Ok(());
            }
            if let Some(failure) = self.shard.failure() {
                return Err(failure.to_owned());
            }
            self.work();
            self.wait();
        }
        Err("the pool does not open".to_owned())
    }
}
