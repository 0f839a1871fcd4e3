//! Real sockets against a shard of null namespaces. Nothing here is timed: time-outs only end a test that hangs.

use diecut_namespace::NullReads;
use diecut_nvmf::TargetConfig;
use diecut_reactor::{Reactor, ReactorConfig};
use diecut_shard::control::{ControlRequest, ControlResponse};
use diecut_shard::drive::{Action, ConnectionId, Drive, Event, Outbox};
use diecut_shard::null::NullShard;
use diecut_testing::wait::wait_until;
use diecut_units::Time;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn start(address: &str, shards: usize) -> Reactor {
    let config = ReactorConfig { listen: vec![address.parse().unwrap()], ..ReactorConfig::default() };
    let make = |_now| {
        NullShard::new(
            TargetConfig::default(),
            &["nqn.2026-11.org.diecut:null"],
            1 << 20,
            NullReads::SharedZeros,
        )
    };
    Reactor::start(&config, (0..shards).map(|_| make).collect()).unwrap()
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// ICReq, 128 bytes: type 0, header 128, PFV 0, no digests.
fn icreq() -> [u8; 128] {
    let mut bytes = [0; 128];
    (bytes[2], bytes[4]) = (128, 128);
    bytes
}

fn handshake(stream: &mut TcpStream) {
    stream.write_all(&icreq()).unwrap();
    let mut answer = [0; 128];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!((answer[0], answer[2]), (1, 128), "an ICResp");
}

#[test]
fn many_connections_are_answered_whatever_their_pieces() {
    for shards in 1..3 {
        let reactor = start("127.0.0.1:0", shards);
        let address = reactor.addresses()[0];
        let mut streams: Vec<TcpStream> = (0..20).map(|_| connect(address)).collect();
        for stream in &mut streams {
            handshake(stream);
        }
        let mut slow = connect(address);
        for byte in icreq() {
            slow.write_all(&[byte]).unwrap();
        }
        let mut answer = [0; 128];
        slow.read_exact(&mut answer).unwrap();
        drop(streams);
        reactor.stop();
    }
}

/// Goal: hosts that come before the server is ready wait, and are answered then. Method: one that says what it has to say at once; it has
/// no answer while the thread answers requests, and its answer when the reactor opens.
#[test]
fn hosts_wait_until_the_reactor_opens() {
    let config = ReactorConfig {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        is_closed: true,
        ..ReactorConfig::default()
    };
    let make = |_now| NullShard::new(TargetConfig::default(), &[], 1, NullReads::SharedZeros);
    let reactor = Reactor::start(&config, vec![make]).unwrap();
    let mut early = connect(reactor.addresses()[0]);
    early.write_all(&icreq()).unwrap();
    for _ in 0..20 {
        drop(hold(&reactor));
    }
    early.set_nonblocking(true).unwrap();
    let mut answer = [0; 128];
    assert_eq!(early.read(&mut answer).unwrap_err().kind(), ErrorKind::WouldBlock);
    early.set_nonblocking(false).unwrap();
    reactor.open();
    early.read_exact(&mut answer).unwrap();
    assert_eq!(answer[0], 1, "an ICResp");
    reactor.stop();
}

#[test]
fn a_malformed_stream_is_told_and_closed_and_the_others_go_on() {
    let reactor = start("127.0.0.1:0", 1);
    let address = reactor.addresses()[0];
    let mut good = connect(address);
    handshake(&mut good);
    let mut bad = connect(address);
    handshake(&mut bad);
    bad.write_all(&[0xff; 64]).unwrap();
    let mut answer = Vec::new();
    bad.read_to_end(&mut answer).unwrap();
    assert_eq!(answer[0], 3, "a C2HTermReq, then the end of the stream");
    let mut another = connect(address);
    handshake(&mut another);
    drop(good);
    reactor.stop();
}

#[test]
fn a_port_is_free_at_once_after_a_stop() {
    let reactor = start("127.0.0.1:0", 1);
    let address = reactor.addresses()[0];
    let mut stream = connect(address);
    handshake(&mut stream);
    let second = ReactorConfig { listen: vec![address], ..ReactorConfig::default() };
    let make = |_now| NullShard::new(TargetConfig::default(), &[], 1, NullReads::SharedZeros);
    let refused = Reactor::start(&second, vec![make]).err().unwrap().to_string();
    assert!(refused.contains(&address.to_string()), "{refused}");
    reactor.stop();
    let reactor = start(&address.to_string(), 1);
    handshake(&mut connect(address));
    reactor.stop();
}

#[test]
fn requests_of_other_threads_are_answered() {
    let reactor = start("127.0.0.1:0", 1);
    let (sender, receiver) = std::sync::mpsc::channel();
    assert!(reactor.request(
        ControlRequest::DeleteTenant("x".to_owned()),
        Box::new(move |response| sender.send(response).unwrap())
    ));
    let response = receiver.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(matches!(response, ControlResponse::Refused(_)));
    reactor.stop();
}

/// Keeps the first shard's thread still until the sender is used, so that what happens meanwhile is seen in one round.
fn hold(reactor: &Reactor) -> std::sync::mpsc::Sender<()> {
    let (release, released) = std::sync::mpsc::channel();
    let (holding, held) = std::sync::mpsc::channel();
    assert!(reactor.request(
        ControlRequest::DeleteTenant("x".to_owned()),
        Box::new(move |_| {
            holding.send(()).unwrap();
            let _ = released.recv_timeout(Duration::from_secs(20));
        })
    ));
    held.recv_timeout(Duration::from_secs(20)).unwrap();
    release
}

/// Goal: connections that come faster than they are accepted are kept, and their hosts do not wait for the kernel to forget that it
/// dropped them. Method: more than a queue of the usual length holds come while the thread accepts none; each is established at once, and accepted later.
#[test]
fn a_burst_of_connections_is_accepted_to_the_last() {
    let reactor = start("127.0.0.1:0", 1);
    let address = reactor.addresses()[0];
    let release = hold(&reactor);
    let burst = |_| {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(10)).expect("it is kept");
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    };
    let mut streams: Vec<TcpStream> = (0..140).map(burst).collect();
    release.send(()).unwrap();
    for stream in &mut streams {
        handshake(stream);
    }
    reactor.stop();
}

/// What one round of the reactor takes from hosts that come up.
struct Watched {
    inner: NullShard,
    /// Accepted, heard, and both.
    this_round: [usize; 3],
    most: Arc<[AtomicUsize; 3]>,
}

impl Drive for Watched {
    fn handle(&mut self, event: Event, now: Time, actions: &mut Vec<Action>) {
        let kind = match &event {
            Event::Accepted { .. } => Some(0),
            Event::Received { .. } | Event::ReceivedInWindow { .. } => Some(1),
            _ => None,
        };
        if let Some(kind) = kind {
            for kind in [kind, 2] {
                self.this_round[kind] += 1;
                self.most[kind].fetch_max(self.this_round[kind], Ordering::Relaxed);
            }
        }
        self.inner.handle(event, now, actions);
    }
    fn work(&mut self, now: Time, actions: &mut Vec<Action>) {
        self.this_round = [0; 3];
        self.inner.work(now, actions);
    }
    fn deadline(&self) -> Time {
        Time::ZERO
    }
    fn is_connected(&self, connection: ConnectionId) -> bool {
        self.inner.is_connected(connection)
    }
    fn outbox(&self, connection: ConnectionId) -> Option<&Outbox> {
        self.inner.outbox(connection)
    }
    fn sent(&mut self, connection: ConnectionId, len_bytes: usize, actions: &mut Vec<Action>) {
        self.inner.sent(connection, len_bytes, actions);
    }
    fn receive_window(&mut self, connection: ConnectionId) -> Option<&mut [u8]> {
        self.inner.receive_window(connection)
    }
}

/// However many hosts come up at once, a round accepts one or hears one, and all of them are answered in the end.
#[test]
fn a_storm_of_newcomers_takes_turns() {
    let most: Arc<[AtomicUsize; 3]> = Arc::default();
    let seen = Arc::clone(&most);
    let config = ReactorConfig { listen: vec!["127.0.0.1:0".parse().unwrap()], ..ReactorConfig::default() };
    let make = move |_now| Watched {
        inner: NullShard::new(
            TargetConfig::default(),
            &["nqn.2026-11.org.diecut:null"],
            1 << 20,
            NullReads::SharedZeros,
        ),
        this_round: [0; 3],
        most: seen,
    };
    let reactor = Reactor::start(&config, vec![make]).unwrap();
    let release = hold(&reactor);
    let mut streams: Vec<TcpStream> = (0..50).map(|_| connect(reactor.addresses()[0])).collect();
    for stream in &mut streams {
        stream.write_all(&icreq()).unwrap();
    }
    release.send(()).unwrap();
    for stream in &mut streams {
        let mut answer = [0; 128];
        stream.read_exact(&mut answer).unwrap();
    }
    // They are connected now, and speak all at once.
    let release = hold(&reactor);
    for stream in &mut streams {
        stream.write_all(&[4, 0]).unwrap();
    }
    release.send(()).unwrap();
    let mut last = connect(reactor.addresses()[0]);
    handshake(&mut last);
    reactor.stop();
    assert_eq!(most.each_ref().map(|one| one.load(Ordering::Relaxed)), [1, 1, 1]);
}

/// Says of all commands that they go on, as long as it is told to.
struct GoingOn {
    inner: NullShard,
    goes_on: Arc<AtomicBool>,
    received_bytes: Arc<AtomicUsize>,
    /// How often it was asked and said so.
    put_off: Arc<AtomicUsize>,
}

impl Drive for GoingOn {
    fn handle(&mut self, event: Event, now: Time, actions: &mut Vec<Action>) {
        if let Event::Received { bytes, .. } = &event {
            self.received_bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        }
        self.inner.handle(event, now, actions);
    }
    fn work(&mut self, now: Time, actions: &mut Vec<Action>) {
        self.inner.work(now, actions);
    }
    fn deadline(&self) -> Time {
        Time::ZERO
    }
    fn goes_on(&self, _connection: ConnectionId) -> bool {
        let goes_on = self.goes_on.load(Ordering::Relaxed);
        self.put_off.fetch_add(usize::from(goes_on), Ordering::Relaxed);
        goes_on
    }
    fn is_connected(&self, connection: ConnectionId) -> bool {
        self.inner.is_connected(connection)
    }
    fn outbox(&self, connection: ConnectionId) -> Option<&Outbox> {
        self.inner.outbox(connection)
    }
    fn sent(&mut self, connection: ConnectionId, len_bytes: usize, actions: &mut Vec<Action>) {
        self.inner.sent(connection, len_bytes, actions);
    }
    fn receive_window(&mut self, connection: ConnectionId) -> Option<&mut [u8]> {
        self.inner.receive_window(connection)
    }
}

/// Rounds in which something could have been done and was not: what is put off for so many is put off.
const ROUNDS: usize = 100;

/// A reactor whose shard says that all goes on until it is told otherwise; what it received, and how often it said so.
fn start_going_on() -> (Reactor, Arc<AtomicBool>, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let goes_on = Arc::new(AtomicBool::new(true));
    let received_bytes = Arc::new(AtomicUsize::new(0));
    let put_off = Arc::new(AtomicUsize::new(0));
    let (told, counted, asked) = (Arc::clone(&goes_on), Arc::clone(&received_bytes), Arc::clone(&put_off));
    let config = ReactorConfig { listen: vec!["127.0.0.1:0".parse().unwrap()], ..ReactorConfig::default() };
    let subsystems = ["nqn.2026-11.org.diecut:null"];
    let make = move |_now| GoingOn {
        inner: NullShard::new(TargetConfig::default(), &subsystems, 1 << 20, NullReads::SharedZeros),
        goes_on: told,
        received_bytes: counted,
        put_off: asked,
    };
    (Reactor::start(&config, vec![make]).unwrap(), goes_on, received_bytes, put_off)
}

/// Goal: answers of a host whose commands go on wait for those of them, and are sent when there are no more. Method: the shard is asked
/// in many rounds whether more is to come, and says so; nothing was sent by then.
#[test]
fn answers_of_commands_that_go_on_go_together() {
    let (reactor, goes_on, _, put_off) = start_going_on();
    let mut stream = connect(reactor.addresses()[0]);
    stream.write_all(&icreq()).unwrap();
    wait_until(|| "there is no answer to be sent", || put_off.load(Ordering::Relaxed) >= ROUNDS);
    stream.set_nonblocking(true).unwrap();
    let mut answer = [0; 128];
    let early = stream.read(&mut answer).expect_err("more is to come");
    assert_eq!(early.kind(), ErrorKind::WouldBlock, "{early}");
    stream.set_nonblocking(false).unwrap();
    goes_on.store(false, Ordering::Relaxed);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.read_exact(&mut answer).unwrap();
    reactor.stop();
}

/// Goal: a host at work is not heard while its commands go on: what it sends would wait behind them. Method: its bytes are there for many
/// rounds, in each of which the shard says that its commands go on.
#[test]
fn a_host_whose_commands_go_on_is_heard_later() {
    let (reactor, goes_on, received_bytes, put_off) = start_going_on();
    goes_on.store(false, Ordering::Relaxed);
    let mut stream = connect(reactor.addresses()[0]);
    stream.set_nodelay(true).unwrap();
    handshake(&mut stream);
    let wait_for = |bytes: usize| {
        let received = || received_bytes.load(Ordering::Relaxed);
        wait_until(|| format!("{bytes} bytes were sent, {} received", received()), || received() >= bytes);
    };
    // The beginning of a command, byte by byte, until the host is no newcomer.
    let mut sent = 128;
    for byte in [4, 0, 72, 0, 72].into_iter().chain([0; 35]) {
        stream.write_all(&[byte]).unwrap();
        sent += 1;
        wait_for(sent);
    }
    goes_on.store(true, Ordering::Relaxed);
    stream.write_all(&[0; 8]).unwrap();
    // It is asked of a connection that can be read, and of no other here.
    let before = put_off.load(Ordering::Relaxed);
    wait_until(|| "nothing came to be read", || put_off.load(Ordering::Relaxed) >= before + ROUNDS);
    assert_eq!(received_bytes.load(Ordering::Relaxed), sent, "its commands go on");
    goes_on.store(false, Ordering::Relaxed);
    wait_for(sent + 8);
    reactor.stop();
}

/// Says of all connections that they are queues: the last one belongs to one tenant, the others to another. Notes in which round each is
/// heard and answered.
struct TwoTenants {
    inner: NullShard,
    goes_on: Arc<AtomicBool>,
    log: Arc<Mutex<Log>>,
    round: usize,
    connections: usize,
}

#[derive(Default)]
struct Log {
    /// Rounds in which bytes were received, and in which bytes were sent, each with whose connection it was.
    received: Vec<(usize, bool)>,
    sent: Vec<(usize, bool)>,
}

impl TwoTenants {
    fn is_the_one(&self, connection: ConnectionId) -> bool {
        connection.0 as usize == self.connections
    }
}

impl Drive for TwoTenants {
    fn handle(&mut self, event: Event, now: Time, actions: &mut Vec<Action>) {
        if let Event::Received { connection, .. } = &event {
            self.log.lock().unwrap().received.push((self.round, self.is_the_one(*connection)));
        }
        self.inner.handle(event, now, actions);
    }
    fn work(&mut self, now: Time, actions: &mut Vec<Action>) {
        self.round += 1;
        self.inner.work(now, actions);
    }
    fn deadline(&self) -> Time {
        Time::ZERO
    }
    fn goes_on(&self, _connection: ConnectionId) -> bool {
        self.goes_on.load(Ordering::Relaxed)
    }
    fn is_connected(&self, _connection: ConnectionId) -> bool {
        true
    }
    fn tenant_of(&self, connection: ConnectionId) -> Option<&str> {
        Some(if self.is_the_one(connection) { "one" } else { "many" })
    }
    fn outbox(&self, connection: ConnectionId) -> Option<&Outbox> {
        self.inner.outbox(connection)
    }
    fn sent(&mut self, connection: ConnectionId, len_bytes: usize, actions: &mut Vec<Action>) {
        self.log.lock().unwrap().sent.push((self.round, self.is_the_one(connection)));
        self.inner.sent(connection, len_bytes, actions);
    }
    fn receive_window(&mut self, connection: ConnectionId) -> Option<&mut [u8]> {
        self.inner.receive_window(connection)
    }
}

/// Whether all that was written to a stream is at the other end, whoever reads there.
fn has_arrived(stream: &TcpStream) -> bool {
    let mut left: libc::c_int = 0;
    // SAFETY: of a socket that is open, and with room for the answer.
    let asked = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &mut left) };
    asked == 0 && left == 0
}

/// Turns of a connection that has little to say, in a tenant's share of a round.
const TURNS_PER_SHARE: usize = 32;

/// Goal: a tenant with many connections takes its share of a round and no more, so that its neighbour is heard, and everybody is answered
/// in few rounds. Method: far more connections of one tenant than its share allows have something to say, or to be told, when the thread
/// looks, and one of another tenant that came last.
#[test]
fn many_connections_of_a_tenant_have_one_share_of_a_round() {
    const CONNECTIONS: usize = 2 * TURNS_PER_SHARE + 1;
    let goes_on = Arc::new(AtomicBool::new(true));
    let log = Arc::new(Mutex::new(Log::default()));
    let (told, noted) = (Arc::clone(&goes_on), Arc::clone(&log));
    let config = ReactorConfig { listen: vec!["127.0.0.1:0".parse().unwrap()], ..ReactorConfig::default() };
    let subsystems = ["nqn.2026-11.org.diecut:null"];
    let make = move |_now| TwoTenants {
        inner: NullShard::new(TargetConfig::default(), &subsystems, 1 << 20, NullReads::SharedZeros),
        goes_on: told,
        log: noted,
        round: 0,
        connections: CONNECTIONS,
    };
    let reactor = Reactor::start(&config, vec![make]).unwrap();
    let heard = || log.lock().unwrap().received.len();
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(reactor.addresses()[0])).collect();
    // All answers wait, as commands go on; then they are due at once.
    for (number, stream) in streams.iter_mut().enumerate() {
        stream.set_nodelay(true).unwrap();
        stream.write_all(&icreq()).unwrap();
        wait_until(|| "a host is not heard", || heard() > number);
    }
    assert!(log.lock().unwrap().sent.is_empty(), "commands go on");
    let most_of_a_round = |turns: &[(usize, bool)]| {
        let (first, last) = (turns[0].0, turns[turns.len() - 1].0);
        (first..=last).map(|round| turns.iter().filter(|turn| turn.0 == round).count()).max().unwrap()
    };
    goes_on.store(false, Ordering::Relaxed);
    for stream in &mut streams {
        stream.read_exact(&mut [0; 128]).unwrap();
    }
    // A host may have its answer before the thread says that it was sent.
    let is_told = || log.lock().unwrap().sent.len() >= CONNECTIONS;
    wait_until(|| "the thread does not say what it sent", is_told);
    let sent = std::mem::take(&mut log.lock().unwrap().sent);
    assert_eq!(
        (sent.len(), most_of_a_round(&sent)),
        (CONNECTIONS, TURNS_PER_SHARE),
        "nobody's share: {sent:?}"
    );
    // Hosts at work, not newcomers any more: the beginning of a command, byte by byte.
    for (round, byte) in [4, 0, 72, 0, 72].into_iter().chain([0; 35]).enumerate() {
        streams.iter_mut().for_each(|stream| stream.write_all(&[byte]).unwrap());
        wait_until(|| "a host is not heard", || heard() >= (round + 2) * CONNECTIONS);
    }
    let release = hold(&reactor);
    log.lock().unwrap().received.clear();
    streams.iter_mut().for_each(|stream| stream.write_all(&[0]).unwrap());
    wait_until(|| "bytes do not arrive", || streams.iter().all(has_arrived));
    release.send(()).unwrap();
    wait_until(|| "a host is not heard", || heard() >= CONNECTIONS);
    let received = std::mem::take(&mut log.lock().unwrap().received);
    let first = received[0].0;
    assert!(received.contains(&(first, true)), "the other tenant is heard in the first round: {received:?}");
    assert_eq!(most_of_a_round(&received), TURNS_PER_SHARE + 1, "{received:?}");
    assert_eq!(received[CONNECTIONS - 1].0, first + 1, "two shares: {received:?}");
    reactor.stop();
}

#[test]
fn an_end_that_comes_together_with_bytes_is_seen() {
    let reactor = start("127.0.0.1:0", 1);
    let mut stream = connect(reactor.addresses()[0]);
    // Less than the target's own patience with a stream that sends no Connect: that must not be what ends it.
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    handshake(&mut stream);
    let release = hold(&reactor);
    // The start of a PDU that never goes on, and the end of the stream, before the server looks.
    stream.write_all(&[4, 0]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    release.send(()).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "the server hangs up too");
    reactor.stop();
}

/// The last words of the server arrive, though the host was still sending: a socket that is closed with unread bytes resets
/// the stream and takes them along.
#[test]
fn last_words_are_not_lost_in_a_reset() {
    let reactor = start("127.0.0.1:0", 1);
    let mut stream = connect(reactor.addresses()[0]);
    handshake(&mut stream);
    let release = hold(&reactor);
    stream.write_all(&[0xff; 600 << 10]).unwrap();
    release.send(()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the end of the stream, not a reset");
    assert_eq!(answer[0], 3, "a C2HTermReq");
    drop(stream);
    handshake(&mut connect(reactor.addresses()[0]));
    reactor.stop();
}

/// More connections at once than a queue between threads holds: all are served in the end.
#[test]
fn a_full_queue_between_threads_loses_nothing() {
    let reactor = start("127.0.0.1:0", 2);
    let address = reactor.addresses()[0];
    let mut streams: Vec<TcpStream> = (0..300).map(|_| connect(address)).collect();
    for stream in &mut streams {
        stream.write_all(&icreq()).unwrap();
    }
    for stream in &mut streams {
        let mut answer = [0; 128];
        stream.read_exact(&mut answer).unwrap();
    }
    reactor.stop();
}
