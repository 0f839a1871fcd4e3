//! Starting and stopping the threads.

use crate::common::{Common, Ends};
use crate::doors::{ConnectionLimits, Doors};
use crate::helpers::{AbortOnPanic, Helpers, start_rooms};
use crate::inbox::{Address, Message, Respond, queue};
use crate::io::{IoFile, Ios};
use crate::revival::{Left, Make, Meeting, Revival, give_up, last_words, listen_to_panics, lock};
use crate::ring::RingFile;
use crate::worker::{WAKER, Worker};
use diecut_devices::RoomWorker;
use diecut_shard::DeviceIndex;
use diecut_shard::control::ControlRequest;
use diecut_shard::drive::{Drive, Newcomer};
use diecut_shard::panics::PanicRecord;
use diecut_units::Span;
use mio::net::{TcpListener, UnixListener};
use mio::{Poll, Waker};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a reactor is told at its start.
#[derive(Debug, Default)]
pub struct ReactorConfig {
    /// Addresses to listen on; port 0 takes any free one.
    pub listen: Vec<SocketAddr>,
    /// Hosts that connect wait until [`Reactor::open`]: nothing is accepted before what they ask for exists.
    pub is_closed: bool,
    /// Unix socket where applications attach to erase blocks, which does not block. Whoever may connect by its mode can ask; the
    /// shard says who may attach.
    pub blocks: Option<std::os::unix::net::UnixListener>,
    /// Connections of hosts that may be open at once.
    pub connections: ConnectionLimits,
    /// Where what devices ask for is carried out, for each shard apart: of those that do not do all their I/O by themselves.
    pub io: Vec<(DeviceIndex, IoFile)>,
    /// What takes room on the file system under a device's file and gives it back: a thread of its own does that.
    pub rooms: Option<RoomWorker>,
    /// Each shard's thread stays on a core of its own: the first on the first of [`cores`], and so on, round and round.
    pub pin_cores: bool,
    /// How long a thread looks for work after its last before it sleeps.
    pub busy_poll: Duration,
}

/// The cores that this process may use, in order.
///
/// # Errors
/// What the operating system says.
pub fn cores() -> std::io::Result<Vec<usize>> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect())
}

/// Keeps this thread on a core.
fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(core, "a shard's thread cannot be kept on its core: {error}");
    }
}

/// Memory of the connections of all shards, as far as they told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// What connections take in fact, with free buffers, in bytes.
    pub used_bytes: usize,
    /// Bytes that were given up since the threads started.
    pub given_up_bytes: u64,
}

/// Connections that the kernel keeps until they are accepted, if it allows so many. Where there is no place it drops what a host sends,
/// and hosts of all tenants wait a second or more before they try again; whom to turn away is for the reactor's doors to say.
const BACKLOG: i32 = 4096;

fn listen_at(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    // A restart takes the port of the last process at once.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// What to do about an address that cannot be listened on.
fn listen_advice(kind: std::io::ErrorKind) -> &'static str {
    match kind {
        std::io::ErrorKind::AddrInUse => "is another server running there?",
        std::io::ErrorKind::AddrNotAvailable => {
            "this machine does not have the address: name one that it has"
        }
        std::io::ErrorKind::PermissionDenied => "ports below 1024 need privileges: choose another port",
        _ => "name another address",
    }
}

/// Why a reactor cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ReactorError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; {}", listen_advice(source.kind()))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// Threads or epoll sets cannot be had.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

/// Running threads, one per shard.
pub struct Reactor {
    common: Arc<Common>,
    threads: Vec<JoinHandle<()>>,
    helpers: Helpers,
    addresses: Vec<SocketAddr>,
}

/// The life of a shard's thread: a shard, and the next one if shards begin anew.
fn live<D: Drive>(make: Make<D>, ends: Ends, common: Arc<Common>, meeting: Option<Arc<Meeting<D>>>) {
    let _abort = AbortOnPanic;
    let number = usize::from(ends.index.0);
    let (mut make, mut ends, mut kept) = (make, ends, Vec::new());
    loop {
        let shard = make(common.now());
        let mut worker = Worker::new(shard, Arc::clone(&common), ends).expect("sockets can be watched");
        let Some(meeting) = &meeting else { return worker.run() };
        // What the shard holds is looked at no more, but for its part of the device, which is opened as after a kill.
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let now = common.now();
            // One by one: what is left is for the next shard, if this one fails at one of them.
            while !kept.is_empty() {
                worker.take(kept.remove(0), now);
            }
            worker.run();
        }));
        let mut failed = None;
        if let Err(payload) = ran {
            let words = last_words(&*payload);
            tracing::error!(shard = number, at = words.1, "a shard failed an inner check: {}", words.0);
            let told = words.clone();
            let record = catch_unwind(AssertUnwindSafe(|| worker.record(told)));
            let bare = |_| PanicRecord {
                shard: number as u16,
                message: words.0,
                location: words.1,
                ..Default::default()
            };
            failed = Some(record.unwrap_or_else(bare));
        } else if worker.has_stopped() {
            return;
        }
        let (mut shard, back, mut again, mut untold) = worker.let_go();
        again.append(&mut kept);
        if let Some(record) = failed {
            if number > 0 && !common.is_called.load(Ordering::Acquire) {
                let alone = catch_unwind(AssertUnwindSafe(|| meeting.alone(&record, shard, untold)));
                match alone.unwrap_or_else(|_| give_up("a shard that failed cannot be taken apart")) {
                    Ok(next) => {
                        (make, ends, kept) = (next, back, again);
                        continue;
                    }
                    Err(as_it_was) => (shard, untold) = as_it_was,
                }
            }
            meeting.call(record, &common);
        }
        let part = catch_unwind(AssertUnwindSafe(|| meeting.part_of(shard)));
        let part =
            part.unwrap_or_else(|_| give_up("what a shard had of the device cannot be taken out of it"));
        let untold = untold.into_iter().map(|(_, message)| message).collect();
        let left = Left { number, part, kept: again, told: untold };
        let Some(next) = meeting.meet(left, &back.inbox, &common) else { return };
        (make, ends, kept) = (next.make, Ends { io: next.io, ..back }, next.kept);
    }
}

impl Reactor {
    /// Starts a thread for each shard, which is made there. A panic of one of them ends the process.
    ///
    /// # Errors
    /// Names the address that cannot be listened on.
    ///
    /// # Panics
    /// If there is no shard.
    pub fn start<D, F>(config: &ReactorConfig, shards: Vec<F>) -> Result<Reactor, ReactorError>
    where
        D: Drive + 'static,
        F: FnOnce(diecut_units::Time) -> D + Send + 'static,
    {
        let shards = shards.into_iter().map(|make| Box::new(make) as Make<D>);
        Reactor::start_with(config, shards.collect(), None)
    }

    /// As [`Reactor::start`]. After a panic of one of the shards all begin anew, if it is said how.
    ///
    /// # Errors
    /// Names the address that cannot be listened on.
    ///
    /// # Panics
    /// If there is no shard.
    pub fn start_with<D: Drive + 'static>(
        config: &ReactorConfig,
        shards: Vec<Make<D>>,
        revival: Option<Revival<D>>,
    ) -> Result<Reactor, ReactorError> {
        assert!(!shards.is_empty(), "a server has at least one shard");
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for &address in &config.listen {
            let listen = |source| ReactorError::Listen { address, source };
            let listener = listen_at(address).map_err(listen)?;
            addresses.push(listener.local_addr().map_err(listen)?);
            listeners.push(listener);
        }
        let blocks = config.blocks.as_ref().map(|listener| listener.try_clone()).transpose()?;
        let mut blocks = blocks.map(UnixListener::from_std);
        let mut polls = Vec::new();
        let (mut senders, mut receivers): (Vec<Address>, Vec<_>) = (Vec::new(), Vec::new());
        for _ in &shards {
            let poll = Poll::new()?;
            let (sender, receiver) = queue(Arc::new(Waker::new(poll.registry(), WAKER)?));
            polls.push(poll);
            senders.push(sender);
            receivers.push(receiver);
        }
        #[allow(clippy::disallowed_methods, reason = "the reactor is where the clock is read")]
        let start = std::time::Instant::now();
        let common = Arc::new(Common {
            start,
            next_connection: Arc::new(AtomicU64::new(1)),
            addresses: senders,
            system_calls: AtomicU64::new(0),
            doors: Arc::new(Doors::new(config.connections)),
            memory_bytes: AtomicUsize::new(0),
            used_bytes: shards.iter().map(|_| AtomicUsize::new(0)).collect(),
            given_up_bytes: AtomicU64::new(0),
            is_called: AtomicBool::new(false),
        });
        let is_closed = config.is_closed;
        let cores = if config.pin_cores { cores()? } else { Vec::new() };
        let busy_poll = Span(u64::try_from(config.busy_poll.as_nanos()).unwrap_or(u64::MAX));
        let (mut threads, mut helping) = (Vec::new(), Vec::new());
        if let Some(rooms) = config.rooms.clone() {
            helping.push(start_rooms(rooms)?);
        }
        let helpers = Helpers::default();
        let count = shards.len();
        let meeting = revival.map(|revival| {
            listen_to_panics();
            Arc::new(Meeting::new(revival, count, Arc::clone(&helpers)))
        });
        for (number, ((make, poll), inbox)) in shards.into_iter().zip(polls).zip(receivers).enumerate() {
            let common = Arc::clone(&common);
            let listeners = std::mem::take(&mut listeners);
            let blocks = blocks.take();
            let io = Ios::start(&config.io, &common, number, &mut helping)?;
            let core = (!cores.is_empty()).then(|| cores[number % cores.len()]);
            let meeting = meeting.clone();
            let thread = std::thread::Builder::new().name(format!("shard-{number}")).spawn(move || {
                core.into_iter().for_each(pin);
                let index = diecut_shard::drive::ShardIndex(number as u16);
                let ends = Ends { poll, inbox, index, listeners, is_closed, blocks, io, busy_poll };
                live(make, ends, common, meeting);
            })?;
            threads.push(thread);
        }
        lock(&helpers).append(&mut helping);
        Ok(Reactor { common, threads, helpers, addresses })
    }

    /// Takes connections of hosts from now on, where they were told to wait ([`ReactorConfig::is_closed`]).
    pub fn open(&self) {
        self.common.addresses[0].send(Message::Open);
    }

    /// Addresses that are listened on.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// System calls of all threads on sockets and epoll so far, for those who measure; a round late at most.
    pub fn system_calls(&self) -> u64 {
        self.common.system_calls.load(Ordering::Relaxed)
    }

    /// Gives a request to the first shard; `respond` is called on its thread. `false` if the threads are gone.
    pub fn request(&self, request: ControlRequest, respond: Respond) -> bool {
        self.handle().request(request, respond)
    }

    /// A handle for other threads.
    pub fn handle(&self) -> ReactorHandle {
        ReactorHandle { common: Arc::clone(&self.common) }
    }

    /// Ends the threads and waits for them.
    pub fn stop(self) {
        for address in &self.common.addresses {
            address.send(Message::Stop);
        }
        for thread in self.threads {
            // A thread that panicked aborted the process.
            let _ = thread.join();
        }
        for helper in std::mem::take(&mut *lock(&self.helpers)) {
            let _ = helper.join();
        }
    }
}

/// The way of other threads to a reactor's shards.
#[derive(Clone)]
pub struct ReactorHandle {
    common: Arc<Common>,
}

impl ReactorHandle {
    /// Gives a request to the first shard; `respond` is called on its thread. `false` if the threads are gone.
    pub fn request(&self, request: ControlRequest, respond: Respond) -> bool {
        self.common.addresses[0].send(Message::Control(Box::new(request), respond))
    }

    /// Brings a device on a file or block device: to each shard its part, in their order. Requests that come later find it there.
    ///
    /// # Errors
    /// What the kernel says of a ring; nothing was brought then.
    ///
    /// # Panics
    /// If there is not one part for each shard.
    pub fn bring(&self, file: &RingFile, parts: Vec<Newcomer>) -> std::io::Result<()> {
        assert_eq!(parts.len(), self.common.addresses.len(), "each shard has its part");
        let rings = parts.iter().map(|_| Ok(Box::new(file.ring()?)));
        let rings = rings.collect::<std::io::Result<Vec<_>>>()?;
        // The first shard is the last one to have it: what it says of it the others understand.
        let all = self.common.addresses.iter().zip(rings.into_iter().zip(parts)).rev();
        all.for_each(|(shard, (ring, part))| _ = shard.send(Message::DeviceCame(ring, Box::new(part))));
        Ok(())
    }

    /// Takes a device away that is none of the shards' any more, and waits until nothing is under way on it.
    pub fn take_away(&self, device: DeviceIndex) {
        let (done, all_done) = std::sync::mpsc::channel();
        for shard in &self.common.addresses {
            shard.send(Message::DeviceWent(device, done.clone()));
        }
        drop(done);
        // A thread that ended has let go of it, too.
        all_done.iter().for_each(drop);
    }

    /// Sets the memory for the connections of each shard; they follow within a second of their next work.
    pub fn set_memory(&self, memory_bytes: usize) {
        self.common.memory_bytes.store(memory_bytes, Ordering::Relaxed);
    }

    /// What connections take, a second late at most.
    pub fn memory(&self) -> MemoryUse {
        let used_bytes = self.common.used_bytes.iter().map(|one| one.load(Ordering::Relaxed)).sum();
        MemoryUse { used_bytes, given_up_bytes: self.common.given_up_bytes.load(Ordering::Relaxed) }
    }
}
