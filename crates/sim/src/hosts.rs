//! Hosts that reach the shard over a faulty network: the shipped initiator at one end of each stream, the shipped target
//! at the other, and pipes between ([`crate::network`]).
//!
//! A host has one or two paths to its subsystem, each a controller of its own. It brings the controller up on an admin
//! stream, opens I/O queues on streams of their own, spreads commands over all of them, keeps itself alive, gives up what does
//! not answer, and connects again for ever.
//!
//! What it sent before it hung up still travels, and the target hears of the end later, or never. So a host that lost a path
//! goes on, over the other path or with a new Connect, when the target must know: its end of the streams is closed, too, or
//! the keep-alive has run out. Commands of the lost path may be in namespaces then: that they do not land after what the host
//! does next is the target's promise.

mod association;
mod carry;
mod commands;
mod hostile;

use crate::administration::{host_name, subsystem_name};
use crate::door::Door;
use crate::erasure::{Erase, Erasure};
use crate::network::Pipe;
use crate::plan::{Lane, Plan, Siege};
use crate::shards::{Carried, Shards};
use crate::system::{HostAnswer, HostCommand, HostError, HostToken, PlacementStatistics};
use crate::watch::Watch;
use commands::Asked;
use diecut_initiator::{
    Admin, Command, Completion, HostError as StreamError, LbaSpan, QueuePair, QueueParameters, Sink, Token,
};
use diecut_nvme::tcp::Digests;
use diecut_nvme::{QualifiedName, Status};
use diecut_shard::drive::{Action, ConnectionId, Event};
use diecut_shard::notice::{HostNotice, Notice};
use diecut_units::{Buffer, ContentMode, Span, Time, mark};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that a stream takes from the target before the host has read some: a socket's buffer.
const SOCKET_BUFFER_BYTES: usize = 256 << 10;
/// How long a host waits for anything at all before it gives a connection up.
const PATIENCE: Span = Span::from_secs(10);
/// After a refusal, or a bring-up that failed.
const RETRY: Span = Span::from_millis(20);
/// When the target hears that a host is gone that vanished, at the latest.
const VANISHED_UNTIL: Span = Span::from_secs(30);
const QUEUE_DEPTH: u16 = 32;
/// Commands of each queue that are to be aborted at once.
const ABORTS_PER_QUEUE: usize = 3;

#[derive(Debug)]
struct Stream {
    id: ConnectionId,
    path: usize,
    /// The shard that has it; none while it is handed over.
    shard: Option<u16>,
    to_target: Pipe,
    to_host: Pipe,
    /// The target does not read it now.
    paused: bool,
    /// The target closes it when its output has arrived.
    closing: bool,
    /// The target has output that did not fit.
    blocked: bool,
    /// Nothing gets through any more, and neither end is told.
    vanished: bool,
    /// The target hears of the end not before; for streams whose host is gone.
    told_at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Tries again then.
    Down(Time),
    /// The admin queue brings the controller up.
    Admin,
    /// I/O queues connect.
    Io,
    Ready,
    /// The controller shuts down; then the answer is due.
    Leaving(HostToken),
}

/// What a host does with its controller when it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Reset,
    ShutDown(HostToken),
}

/// One path of a host: a controller.
struct Path {
    lane: Lane,
    stage: Stage,
    admin: Option<(Stream, Admin)>,
    io: Vec<(Stream, QueuePair)>,
    watch: Watch,
    wish: Option<Wish>,
    /// Commands under way and what reads brought so far.
    under_way: BTreeMap<Token, Vec<u8>>,
    stalled_until: Time,
    silent_until: Time,
    /// When it last got something, or began to wait.
    heard_at: Time,
    io_queues: u16,
    digests: Digests,
    flow_control: bool,
    keep_alive_ms: u32,
    /// From host to target, and back.
    latency: Span,
    /// See [`Watch::late_by`].
    asks_for_events_after: Span,
    /// Refusals and failed bring-ups since it was last connected.
    refusals: u32,
}

impl Path {
    /// When it tries again: the more often it was refused, the later.
    fn retry(&mut self) -> Span {
        self.refusals += 1;
        Span(RETRY.0 << (self.refusals - 1).min(5))
    }
}

/// See the module.
pub struct Hosts {
    smooth: bool,
    random: Xoshiro256PlusPlus,
    /// First paths by lane, then second ones.
    paths: Vec<Path>,
    /// Streams that their host has given up.
    orphans: Vec<Stream>,
    /// Until when each host waits for keep-alives of lost paths to run out; zero if it does not.
    goes_on_at: Vec<Time>,
    answers: Vec<HostAnswer>,
    /// Hostile hosts.
    raids: Vec<hostile::Raid>,
    next_connection: u64,
    /// Closed before it was among the streams of anybody.
    turned_away: Option<ConnectionId>,
    /// Nobody can connect: there is no shard.
    is_down: bool,
}

/// What one delivery to a host brought.
struct Brought<'a> {
    under_way: &'a mut BTreeMap<Token, Vec<u8>>,
    completions: Vec<Completion>,
}

impl Sink for Brought<'_> {
    fn data(&mut self, token: Token, offset: u32, bytes: &[u8]) {
        let incoming = self.under_way.get_mut(&token).expect("data for a command under way");
        assert_eq!(incoming.len(), offset as usize, "data in order");
        incoming.extend_from_slice(bytes);
    }
    fn completed(&mut self, completion: Completion) {
        self.completions.push(completion);
    }
}

impl Stream {
    fn new(id: ConnectionId, path: usize, shard: u16, latency: Span) -> Stream {
        Stream {
            id,
            path,
            shard: Some(shard),
            to_target: Pipe::new(latency),
            to_host: Pipe::new(latency),
            paused: false,
            closing: false,
            blocked: false,
            vanished: false,
            told_at: Time::ZERO,
        }
    }
}

impl Stream {
    /// Whether its shard takes bytes of it now.
    fn is_read(&self, shards: &Shards, now: Time) -> bool {
        !self.paused && self.shard.is_some_and(|shard| shards.core_free_at(shard) <= now)
    }
}

impl Path {
    fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.admin.iter().map(|(stream, _)| stream).chain(self.io.iter().map(|(stream, _)| stream))
    }
    fn streams_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.admin.iter_mut().map(|(stream, _)| stream).chain(self.io.iter_mut().map(|(stream, _)| stream))
    }
    /// Whether nothing is under way on a live admin queue, and nothing is to be looked at.
    fn is_told(&self) -> bool {
        let Some((stream, _)) = self.admin.as_ref().filter(|(stream, _)| !stream.vanished) else {
            return true;
        };
        let quiet = stream.to_host.is_empty() && stream.to_target.is_empty();
        let told = self.watch.is_armed() && self.watch.known().is_some();
        self.stage != Stage::Ready || quiet && self.wish.is_none() && told
    }
    /// Whether it waits for something, so that its patience can end. A wish waits too: for the answer to a keep-alive, which
    /// never comes when the connection is half open.
    fn is_waiting(&self) -> bool {
        !matches!(self.stage, Stage::Down(_))
            && (self.stage != Stage::Ready
                || self.wish.is_some()
                || !self.under_way.is_empty()
                || !self.watch.is_quiet())
    }
}

fn qualified(name: &str) -> QualifiedName {
    QualifiedName::new(name).expect("a fixed form")
}

/// How a command's status reads to the runner.
fn error_of(status: Status) -> HostError {
    let known = [
        (Status::COMPARE_FAILURE, HostError::CompareFailure),
        (Status::UNRECOVERED_READ_ERROR, HostError::Unrecovered),
        (Status::CAPACITY_EXCEEDED, HostError::Full),
        (Status::ABORT_REQUESTED, HostError::Aborted),
        (Status::NAMESPACE_WRITE_PROTECTED, HostError::ReadOnly),
        (Status::INVALID_NAMESPACE_OR_FORMAT, HostError::NoNamespace),
        (Status::SANITIZE_IN_PROGRESS, HostError::Sanitizing),
        (Status::NAMESPACE_NOT_READY, HostError::NotReady),
    ];
    let found = known.into_iter().find(|(code, _)| status.same_code(*code));
    found.map_or_else(|| HostError::Other(status.to_string()), |(_, error)| error)
}

impl Hosts {
    /// The hosts of a plan, about to connect.
    pub fn new(plan: &Plan) -> Hosts {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x7463_7020);
        let first = (0..plan.tenants.len()).map(|lane| lane as u8);
        let second = first.clone().filter(|lane| plan.tenants[usize::from(*lane)].paths > 1);
        let paths = first
            .chain(second)
            .map(|lane| (lane, &plan.tenants[usize::from(lane)]))
            .map(|(lane, tenant)| Path {
                lane: Lane(lane),
                stage: Stage::Down(Time::ZERO),
                admin: None,
                io: Vec::new(),
                watch: Watch::late_by(Span(tenant.asks_for_events_after_ns)),
                asks_for_events_after: Span(tenant.asks_for_events_after_ns),
                wish: None,
                under_way: BTreeMap::new(),
                stalled_until: Time::ZERO,
                silent_until: Time::ZERO,
                heard_at: Time::ZERO,
                io_queues: tenant.io_queues,
                digests: Digests { header: random.random_ratio(1, 2), data: random.random_ratio(1, 2) },
                flow_control: random.random_ratio(1, 4),
                keep_alive_ms: [0, 2_000, 15_000][random.random_range(0..3)],
                refusals: 0,
                latency: match random.random_range(0..3) {
                    _ if plan.system.smooth_network => Span::from_micros(10),
                    0 => Span::from_micros(10),
                    1 => Span::from_micros(100),
                    _ => Span::from_millis(1),
                },
            })
            .collect();
        Hosts {
            smooth: plan.system.smooth_network,
            random,
            paths,
            orphans: Vec::new(),
            goes_on_at: vec![Time::ZERO; plan.tenants.len()],
            answers: Vec::new(),
            raids: Vec::new(),
            next_connection: 1,
            turned_away: None,
            is_down: false,
        }
    }

    fn find(&mut self, id: ConnectionId) -> Option<&mut Stream> {
        let of_hosts = self.paths.iter_mut().flat_map(Path::streams_mut);
        let hostile = self.raids.iter_mut().flat_map(hostile::Raid::streams_mut);
        of_hosts.chain(self.orphans.iter_mut()).chain(hostile).find(|stream| stream.id == id)
    }

    /// Paths of a lane's host.
    fn paths_of(&self, lane: Lane) -> impl Iterator<Item = usize> + use<'_> {
        (0..self.paths.len()).filter(move |path| self.paths[*path].lane == lane)
    }

    /// The one path of a host, or either of two.
    fn any_path(&mut self, lane: Lane) -> usize {
        let second = self.paths_of(lane).nth(1);
        second.filter(|_| self.random.random_ratio(1, 2)).unwrap_or(usize::from(lane.0))
    }

    /// Whether the host may take it that the target knows of the end of all paths that it lost.
    fn is_sure(&self, lane: Lane) -> bool {
        let knows =
            |one: &Stream| one.vanished || self.paths.get(one.path).is_none_or(|path| path.lane != lane);
        self.goes_on_at[usize::from(lane.0)] == Time::ZERO && self.orphans.iter().all(knows)
    }

    fn shard_of(&mut self, id: ConnectionId) -> Option<u16> {
        self.find(id).and_then(|stream| stream.shard)
    }

    fn tell(&mut self, shard: u16, event: Event, shards: &mut Shards, now: Time) {
        let mut actions = Vec::new();
        shards.handle(shard, event, now, &mut actions);
        self.act(shard, &mut actions, shards, now);
        assert!(actions.is_empty(), "administrators are answered by work only");
    }
}

impl Door for Hosts {
    fn is_connected(&self, lane: Lane) -> bool {
        let has_room = |path: &Path| path.io.iter().any(|(_, queue)| queue.room() > 0);
        let mut ready = self.paths_of(lane).map(|path| &self.paths[path]);
        !self.is_down && ready.any(|path| path.stage == Stage::Ready && has_room(path)) && self.is_sure(lane)
    }

    fn submit(
        &mut self,
        lane: Lane,
        token: HostToken,
        command: HostCommand,
        mode: ContentMode,
        _shards: &mut Shards,
        now: Time,
    ) {
        let command = Asked::of(command, mode.bytes_per_iu() as u32);
        let ready = self.paths_of(lane).filter(|path| self.paths[*path].stage == Stage::Ready);
        let queues: Vec<(usize, usize)> =
            ready.flat_map(|path| (0..self.paths[path].io.len()).map(move |queue| (path, queue))).collect();
        let (path, queue) = (0..queues.len())
            // The number of a command chooses its connection.
            .map(|step| queues[(token.0 as usize + step) % queues.len()])
            .find(|(path, queue)| self.paths[*path].io[*queue].1.room() > 0)
            .expect("the runner asked whether there is room");
        let path = &mut self.paths[path];
        if path.under_way.is_empty() {
            path.heard_at = now;
        }
        path.under_way.insert(Token(token.0), Vec::new());
        command.submit(&mut path.io[queue].1, Token(token.0));
    }

    fn exchange(&mut self, shards: &mut Shards, now: Time) -> bool {
        let mut moved = false;
        for at in &mut self.goes_on_at {
            if *at != Time::ZERO && *at <= now {
                (*at, moved) = (Time::ZERO, true);
            }
        }
        for path in 0..self.paths.len() {
            let host = &mut self.paths[path];
            let reads = host.stalled_until <= now;
            let gets = host.silent_until <= now;
            if reads {
                if let Some((_, admin)) = &mut host.admin {
                    admin.tick(now);
                }
                self.send_output(path, now);
            }
            if gets {
                moved |= self.carry_to_target(path, shards, now);
            }
            if reads && gets {
                moved |= self.carry_to_host(path, shards, now);
            }
            if reads {
                moved |= self.go_on(path, shards, now);
                self.send_output(path, now);
            }
        }
        moved |= self.raid(shards, now);
        moved | self.carry_orphans(shards, now)
    }

    fn adopted(&mut self, connection: ConnectionId, shard: u16) {
        if let Some(stream) = self.find(connection) {
            stream.shard = Some(shard);
        }
    }

    fn act(&mut self, shard: u16, actions: &mut Vec<Action>, shards: &mut Shards, now: Time) {
        // Answers to administrators are not the hosts', nor is what their operator is told.
        let is_ours = |action: &mut Action| match action {
            Action::Answer { .. } | Action::BeginAnew => false,
            Action::Notice(notice) => matches!(**notice, Notice::Host(_)),
            _ => true,
        };
        for action in actions.extract_if(.., is_ours) {
            match action {
                Action::Transmit { connection } => self.transmit(connection, shards, now),
                Action::Close { connection } => {
                    self.transmit(connection, shards, now);
                    match self.find(connection) {
                        Some(stream) => stream.closing = true,
                        None => self.turned_away = Some(connection),
                    }
                }
                Action::Pause { connection } => {
                    mark!("hosts: target pauses a stream");
                    if let Some(stream) = self.find(connection) {
                        stream.paused = true;
                    }
                }
                Action::Resume { connection } => {
                    if let Some(stream) = self.find(connection) {
                        stream.paused = false;
                    }
                }
                Action::HandOver { connection, to, state } => {
                    let Some(stream) = self.find(connection) else { continue };
                    mark!("hosts: connection handed over");
                    assert_eq!(stream.shard, Some(shard), "only its shard gives a connection away");
                    (stream.shard, stream.paused, stream.blocked) = (None, false, false);
                    shards.carry(shard, to.0, Carried::Adopted(connection, state), now);
                }
                Action::Tell { to, message } => shards.carry(shard, to.0, Carried::Told(message), now),
                Action::Blocks(_) => unreachable!("the applications'"),
                Action::Notice(notice) => match *notice {
                    Notice::Host(HostNotice::Expired(_)) => mark!("hosts: told of a silent host"),
                    Notice::Host(HostNotice::Refused { .. }) => mark!("hosts: told of a refused host"),
                    _ => {}
                },
                Action::Answer { .. } | Action::BeginAnew => unreachable!("left where it was"),
                Action::Io(..) => unreachable!("the shards'"),
            }
        }
    }

    fn take_answers(&mut self, answers: &mut Vec<HostAnswer>) {
        answers.append(&mut self.answers);
    }

    fn next_event(&self, shards: &Shards) -> Time {
        let core_free_at = |stream: &Stream| {
            // What is handed over goes on when it arrives.
            stream.shard.map_or(Time::NEVER, |shard| shards.core_free_at(shard))
        };
        let mut next = Time::NEVER;
        for at in self.goes_on_at.iter().filter(|at| **at != Time::ZERO) {
            next = next.min(*at);
        }
        for host in &self.paths {
            if let Stage::Down(at) = host.stage {
                // What it waits for otherwise has a time of its own.
                if self.is_sure(host.lane) {
                    next = next.min(at.max(host.stalled_until));
                }
                continue;
            }
            for stream in host.streams() {
                if !stream.paused {
                    let at = stream.to_target.next_arrival().max(core_free_at(stream));
                    next = next.min(at.max(host.silent_until));
                }
                if !stream.vanished {
                    let at = stream.to_host.next_arrival();
                    next = next.min(at.max(host.silent_until).max(host.stalled_until));
                }
            }
            let keep_alive = host.admin.as_ref().map_or(Time::NEVER, |(_, admin)| admin.deadline());
            let patience = if host.is_waiting() { host.heard_at + PATIENCE } else { Time::NEVER };
            let asks = host.stage == Stage::Ready && host.wish.is_none();
            let event = if asks { host.watch.deadline() } else { Time::NEVER };
            next = next.min(keep_alive.min(patience).min(event).max(host.stalled_until));
        }
        for raid in &self.raids {
            next = next.min(raid.next_event(core_free_at));
        }
        for orphan in &self.orphans {
            let at = if orphan.to_target.is_empty() || orphan.paused {
                orphan.told_at
            } else {
                orphan.to_target.next_arrival()
            };
            next = next.min(at.max(core_free_at(orphan)));
        }
        next
    }

    fn disconnect(&mut self, lane: Lane, now: Time) {
        let retry_at = now + Span::from_micros(self.random.random_range(1..3000));
        let path = self.any_path(lane);
        // What the host had handed to its operating system still goes out.
        self.send_output(path, now);
        self.drop_connection(path, retry_at, now);
    }

    fn reset(&mut self, lane: Lane) {
        // One at a time: a wish to shut down has somebody who waits for it.
        let path = self.any_path(lane);
        self.paths[path].wish.get_or_insert(Wish::Reset);
    }

    fn shut_down(&mut self, lane: Lane, token: HostToken) {
        let path = self.any_path(lane);
        let before = self.paths[path].wish.replace(Wish::ShutDown(token));
        if let Some(Wish::ShutDown(token)) = before {
            self.answers.push(HostAnswer { lane, token, result: Err(HostError::ConnectionLost) });
        }
    }

    fn abort(&mut self, lane: Lane) {
        for host in self.paths.iter_mut().filter(|path| path.lane == lane) {
            let Some((_, admin)) = &mut host.admin else { continue };
            if host.stage != Stage::Ready || !host.watch.is_quiet() || admin.facts().is_none() {
                continue;
            }
            for (_, queue) in &host.io {
                let ids: Vec<u16> = queue.command_ids().take(ABORTS_PER_QUEUE).collect();
                for id in ids {
                    host.watch.abort(admin, queue.parameters().queue_id, id);
                }
            }
        }
    }

    fn known_namespaces(&self, lane: Lane) -> Vec<BTreeSet<u32>> {
        let there = self.paths.iter().filter(|path| {
            path.lane == lane && path.stage == Stage::Ready && !path.streams().any(|stream| stream.vanished)
        });
        there.filter_map(|path| path.watch.known().cloned()).collect()
    }

    fn ask_placement_statistics(&mut self, lane: Lane) {
        let mut ready = self.paths.iter_mut().filter(|path| path.lane == lane && path.stage == Stage::Ready);
        if let Some(path) = ready.next() {
            path.watch.ask_statistics();
        }
    }

    fn placement_statistics(&self, lane: Lane) -> Option<PlacementStatistics> {
        self.paths.iter().filter(|path| path.lane == lane).find_map(|path| path.watch.statistics())
    }

    fn ask_erase(&mut self, lane: Lane, what: Erase) -> bool {
        let mut ready = self.paths.iter_mut().filter(|path| path.lane == lane && path.stage == Stage::Ready);
        let Some(path) = ready.next() else { return false };
        path.watch.ask_erase(what);
        true
    }

    fn erasure(&self, lane: Lane) -> Option<&Erasure> {
        self.paths.iter().filter(|path| path.lane == lane).find_map(|path| path.watch.erasure())
    }

    fn vanish(&mut self, lane: Lane, _now: Time) {
        mark!("hosts: connection half open");
        let late = Span::from_millis(self.random.random_range(0..15_000));
        let path = self.any_path(lane);
        for stream in self.paths[path].streams_mut() {
            stream.vanished = true;
            // What was on its way is held up somewhere, long enough for the host to be back before it.
            stream.to_target.delay(late);
        }
    }

    fn stall(&mut self, lane: Lane, until: Time) {
        for path in self.paths.iter_mut().filter(|path| path.lane == lane) {
            path.stalled_until = until;
        }
    }

    fn silence(&mut self, lane: Lane, until: Time) {
        for path in self.paths.iter_mut().filter(|path| path.lane == lane) {
            path.silent_until = until;
        }
    }

    fn begin_siege(&mut self, siege: &Siege, mode: ContentMode, now: Time) {
        self.raids = hostile::raids(siege, mode, now);
    }

    fn siege_is_fair(&self) -> bool {
        self.raids.iter().all(hostile::Raid::is_content)
    }

    fn lift_siege(&mut self, now: Time) {
        for mut raid in std::mem::take(&mut self.raids) {
            self.orphans.extend(raid.hang_up(now));
        }
    }

    fn hang_up(&mut self, shard: u16) {
        self.orphans.retain(|orphan| orphan.shard != Some(shard));
        let streams = self.paths.iter_mut().flat_map(Path::streams_mut);
        let hostile = self.raids.iter_mut().flat_map(hostile::Raid::streams_mut);
        for stream in streams.chain(hostile).filter(|stream| stream.shard == Some(shard)) {
            mark!("hosts: shard hung up");
            (stream.shard, stream.closing) = (None, true);
        }
    }

    fn crash(&mut self) {
        self.raids.clear();
        self.answers.clear();
        self.orphans.clear();
        self.goes_on_at.fill(Time::ZERO);
        self.is_down = true;
        for host in &mut self.paths {
            host.admin = None;
            host.io.clear();
            host.under_way.clear();
            (host.watch, host.wish) = (Watch::late_by(host.asks_for_events_after), None);
            (host.stalled_until, host.silent_until) = (Time::ZERO, Time::ZERO);
            host.stage = Stage::Down(Time::NEVER);
        }
    }

    fn restarted(&mut self, now: Time) {
        self.is_down = false;
        for host in &mut self.paths {
            host.stage = Stage::Down(now + Span::from_millis(1));
        }
    }

    fn nudge(&mut self, now: Time) {
        for host in &mut self.paths {
            if let Stage::Down(at) = &mut host.stage {
                *at = (*at).min(now + Span::from_micros(100));
                host.refusals = 0;
            }
        }
    }

    fn is_at_rest(&self) -> bool {
        self.orphans.iter().all(|orphan| orphan.to_target.is_empty() || orphan.vanished)
            && self.paths.iter().all(|host| host.under_way.is_empty() && host.is_told())
    }

    fn describe(&self) -> String {
        let hosts = self.paths.iter().map(|host| {
            let streams: Vec<String> = host
                .streams()
                .map(|one| {
                    format!(
                        "{} at {:?}: {} B to target, {} B to host, paused {}, vanished {}",
                        one.id.0,
                        one.shard,
                        one.to_target.len_bytes(),
                        one.to_host.len_bytes(),
                        one.paused,
                        one.vanished
                    )
                })
                .collect();
            format!(
                "host {}: {:?}, refused {} times, goes on at {:?}, {} under way, {}\n",
                host.lane.0,
                host.stage,
                host.refusals,
                self.goes_on_at[usize::from(host.lane.0)],
                host.under_way.len(),
                streams.join("; ")
            )
        });
        let raids = self.raids.iter().map(hostile::Raid::describe);
        hosts.chain(raids).collect()
    }
}
