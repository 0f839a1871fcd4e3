//! A host over NVMe/TCP: the shipped initiator, streams that go to whichever shard has them, and one thing to do on each of two
//! queues: random reads and, if it is asked, random writes.

use super::SHARDS;
use crate::shards::{Carried, Shards};
use diecut_initiator::{Admin, Command, Completion, LbaSpan, QueuePair, QueueParameters, Token};
use diecut_nvme::QualifiedName;
use diecut_shard::drive::{Action, ConnectionId};
use diecut_units::{Buffer, Span, Time};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;

/// One way over the network.
const WIRE: Span = Span::from_micros(10);
/// Commands of each queue at most.
const QUEUE_DEPTH: u16 = 64;
/// A logical block as a tag.
const TAG_BYTES: u32 = 8;

/// Bytes on their way, with the time they arrive.
type Flight = VecDeque<(Time, Vec<u8>)>;

struct Stream {
    id: ConnectionId,
    /// The shard that has it; none while it is handed over.
    shard: Option<u16>,
    /// Its shard has heard of it.
    accepted: bool,
    paused: bool,
    to_shard: Flight,
    to_host: Flight,
}

impl Stream {
    /// Connections come to the shards in turn.
    fn new(host: u16, queue_id: u16) -> Stream {
        Stream {
            id: ConnectionId(u64::from(host) << 16 | u64::from(queue_id)),
            shard: Some((host + queue_id) % SHARDS),
            accepted: false,
            paused: false,
            to_shard: Flight::new(),
            to_host: Flight::new(),
        }
    }
    fn arrival_at_shard(&self, shards: &Shards) -> Time {
        match (self.to_shard.front(), self.shard) {
            (Some((at, _)), Some(shard)) if !self.paused => (*at).max(shards.core_free_at(shard)),
            _ => Time::NEVER,
        }
    }
    fn arrival_at_host(&self) -> Time {
        self.to_host.front().map_or(Time::NEVER, |(at, _)| *at)
    }
    fn send(&mut self, bytes: &[u8], now: Time) -> usize {
        if !bytes.is_empty() {
            self.to_shard.push_back((now + WIRE, bytes.to_vec()));
        }
        bytes.len()
    }
}

/// What a queue has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Nothing,
    /// Random reads of one block, so many at once.
    Read(u16),
    /// Random writes of one block, so many at once.
    Write(u16),
    /// Writes of so many blocks from the first one on, eight at once, until the end.
    Fill(u32),
}

struct Lane {
    stream: Stream,
    queue: QueuePair,
    task: Task,
    under_way: u16,
    /// Blocks of [`Task::Fill`] so far.
    filled: u64,
}

/// See the module.
pub(super) struct Host {
    number: u16,
    admin: (Stream, Admin),
    lanes: Vec<Lane>,
    io_queues: u16,
    lbas: u64,
    completions: Vec<Completion>,
    /// When commands of each queue ended.
    pub ended: Vec<Vec<Time>>,
}

impl Host {
    /// A host that is about to connect to `subsystem`, whose namespace 1 has so many blocks.
    pub fn new(number: u16, subsystem: &str, lbas: u64, io_queues: u16) -> Host {
        let name = |text: &str| QualifiedName::new(text).expect("a fixed form");
        let mut id = [0x5a; 16];
        id[..2].copy_from_slice(&number.to_le_bytes());
        let host = name(&format!("nqn.2014-08.org.nvmexpress:uuid:host-{number}"));
        let parameters = QueueParameters::admin(host, id, name(subsystem));
        Host {
            number,
            admin: (Stream::new(number, 0), Admin::new(parameters, io_queues)),
            lanes: Vec::new(),
            io_queues,
            lbas,
            completions: Vec::new(),
            ended: vec![Vec::new(); usize::from(io_queues)],
        }
    }

    /// Gives a queue, from 0, something else to do; what is under way ends.
    pub fn set_task(&mut self, queue: usize, task: Task) {
        self.lanes[queue].task = task;
    }
    /// Whether all queues are connected.
    pub fn is_up(&self) -> bool {
        self.lanes.len() == usize::from(self.io_queues) && self.lanes.iter().all(|lane| lane.queue.is_ready())
    }
    /// Whether nothing is under way and nothing follows.
    pub fn is_idle(&self) -> bool {
        self.lanes.iter().all(|lane| lane.under_way == 0 && lane.is_through(self.lbas))
    }

    /// Connects the next I/O queue when the last one stands.
    fn come_up(&mut self) {
        let last_stands = self.lanes.last().is_none_or(|lane| lane.queue.is_ready());
        if self.admin.1.facts().is_none() || !last_stands || self.lanes.len() == usize::from(self.io_queues) {
            return;
        }
        let queue_id = self.lanes.len() as u16 + 1;
        let queue = QueuePair::new(self.admin.1.io_queue(queue_id, QUEUE_DEPTH));
        let stream = Stream::new(self.number, queue_id);
        self.lanes.push(Lane { stream, queue, task: Task::Nothing, under_way: 0, filled: 0 });
    }

    /// Whether a command of a queue, from 0, ended after then.
    pub fn has_ended_since(&self, queue: usize, then: Time) -> bool {
        self.ended[queue].last().is_some_and(|ended| *ended > then)
    }

    /// A connection that its shard is to be told of, with that shard.
    pub fn newcomer(&mut self) -> Option<(u16, ConnectionId)> {
        let stream = self.streams_mut().find(|stream| !stream.accepted)?;
        stream.accepted = true;
        Some((stream.shard.expect("where it came to"), stream.id))
    }

    /// Does what is due but bytes for the shards: takes what arrived, gives commands, sends. Whether there was anything.
    pub fn work(&mut self, now: Time, random: &mut Xoshiro256PlusPlus) -> bool {
        let (stream, admin) = &mut self.admin;
        let mut worked = false;
        while stream.arrival_at_host() <= now {
            let (_, bytes) = stream.to_host.pop_front().expect("it arrived");
            admin.receive(&bytes, now, &mut self.completions).expect("the target speaks the protocol");
            worked = true;
        }
        admin.tick(now);
        let sent = stream.send(admin.output(), now);
        admin.sent(sent);
        self.completions.clear();
        self.come_up();
        for (lane, ended) in self.lanes.iter_mut().zip(&mut self.ended) {
            while lane.stream.arrival_at_host() <= now {
                let (_, bytes) = lane.stream.to_host.pop_front().expect("it arrived");
                lane.queue.receive(&bytes, &mut self.completions).expect("the target speaks the protocol");
                worked = true;
            }
            for completion in self.completions.drain(..) {
                assert!(completion.status.is_success(), "a command failed: {}", completion.status);
                lane.under_way -= 1;
                ended.push(now);
            }
            lane.issue(self.lbas, random);
            let sent = lane.stream.send(lane.queue.output(), now);
            lane.queue.sent(sent);
            worked |= sent > 0;
        }
        worked
    }

    /// Bytes that have arrived at a shard whose core is free, with that shard; one message.
    pub fn arrived(&mut self, shards: &Shards, now: Time) -> Option<(u16, ConnectionId, Vec<u8>)> {
        let due = self.streams_mut().find(|stream| stream.arrival_at_shard(shards) <= now)?;
        let (_, bytes) = due.to_shard.pop_front().expect("it arrived");
        Some((due.shard.expect("a shard has it"), due.id, bytes))
    }

    /// Bytes that were not taken are the next to arrive.
    pub fn give_back(&mut self, id: ConnectionId, bytes: &[u8], now: Time) {
        let stream = self.find(id).expect("just asked");
        stream.to_shard.push_front((now, bytes.to_vec()));
    }

    /// The shard that has a connection of this host; none while it is handed over, or if it is none of this host's.
    pub fn shard_of(&mut self, id: ConnectionId) -> Option<u16> {
        self.find(id).and_then(|stream| stream.shard)
    }

    /// A connection that was handed over reached a shard.
    pub fn adopted(&mut self, id: ConnectionId, shard: u16) {
        if let Some(stream) = self.find(id) {
            stream.shard = Some(shard);
        }
    }

    /// Does what a shard wants of a connection of this host. Gives back what is not for it.
    pub fn act(&mut self, shard: u16, action: Action, shards: &mut Shards, now: Time) -> Option<Action> {
        let (Action::Transmit { connection }
        | Action::Pause { connection }
        | Action::Resume { connection }
        | Action::HandOver { connection, .. }) = action
        else {
            return Some(action);
        };
        let Some(stream) = self.find(connection) else { return Some(action) };
        match action {
            Action::Transmit { .. } => {
                // Without one it has nothing to say any more.
                let outbox = shards.outbox(shard, connection)?;
                let mut bytes = vec![0; outbox.len_bytes()];
                let copied = outbox.copy_to(&mut bytes);
                stream.to_host.push_back((now + WIRE, bytes));
                let mut more = Vec::new();
                shards.sent(shard, connection, copied, now, &mut more);
                for action in more {
                    assert!(self.act(shard, action, shards, now).is_none(), "of this connection");
                }
            }
            Action::Pause { .. } => stream.paused = true,
            Action::Resume { .. } => stream.paused = false,
            Action::HandOver { to, state, .. } => {
                (stream.shard, stream.paused) = (None, false);
                shards.carry(shard, to.0, Carried::Adopted(connection, state), now);
            }
            _ => unreachable!("sorted out above"),
        }
        None
    }

    /// When something arrives or is due.
    pub fn deadline(&self, shards: &Shards) -> Time {
        let streams = std::iter::once(&self.admin.0).chain(self.lanes.iter().map(|lane| &lane.stream));
        let next = streams.map(|stream| stream.arrival_at_shard(shards).min(stream.arrival_at_host()));
        next.fold(self.admin.1.deadline(), Time::min)
    }

    fn streams_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        std::iter::once(&mut self.admin.0).chain(self.lanes.iter_mut().map(|lane| &mut lane.stream))
    }
    fn find(&mut self, id: ConnectionId) -> Option<&mut Stream> {
        self.streams_mut().find(|stream| stream.id == id)
    }
}

impl Lane {
    fn is_through(&self, lbas: u64) -> bool {
        match self.task {
            Task::Nothing => true,
            Task::Read(_) | Task::Write(_) => false,
            Task::Fill(_) => self.filled == lbas,
        }
    }

    fn issue(&mut self, lbas: u64, random: &mut Xoshiro256PlusPlus) {
        let depth = match self.task {
            Task::Nothing => 0,
            Task::Read(depth) | Task::Write(depth) => depth,
            Task::Fill(_) => 8,
        };
        while self.under_way < depth && self.queue.is_ready() && !self.is_through(lbas) {
            let tags = |count: u32| Buffer::copy_from(&vec![7; (count * TAG_BYTES) as usize]);
            let mut span = LbaSpan { nsid: 1, first: random.random_range(0..lbas), count: 1 };
            let command = match self.task {
                Task::Nothing => unreachable!("a depth of 0"),
                Task::Read(_) => Command::Read { span, length_bytes: TAG_BYTES },
                Task::Write(_) => Command::Write { span, data: tags(1), force_unit_access: false },
                Task::Fill(blocks) => {
                    (span.first, span.count) =
                        (self.filled, u64::from(blocks).min(lbas - self.filled) as u32);
                    self.filled += u64::from(span.count);
                    Command::Write { span, data: tags(span.count), force_unit_access: false }
                }
            };
            self.queue.submit(Token(0), command);
            self.under_way += 1;
        }
    }
}
