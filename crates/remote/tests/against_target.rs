//! Goal: a namespace of a target is a drive that keeps the flash contract, whatever happens to the connection and to the target's cache. Method: the
//! target that is shipped, over memory with a volatile cache, streams in pieces; connections end, and the target dies with what was not flushed, at
//! moments that a seed chooses. Over it the suite of the flash contract, with its oracle.

use diecut_drives::{DriveMedium, DriveShape};
use diecut_media::{Intent, IntentDone, IntentError, IntentToken, IntentWork, conformance};
use diecut_namespace::contract::{NamespaceCommand, NamespaceOperation};
use diecut_nvmf::{self as target, ConnectionId, NamespaceConfig, Target, TargetConfig};
use diecut_remote::{RemoteDrive, RemoteError, RemoteFacts, RemoteParameters, Stream};
use diecut_testing::Random;
use diecut_testing::depth::depth;
use diecut_testing::driven::{CarryOut, Driven};
use diecut_testing::planted::is_noticed;
use diecut_testing::target::{LBA_SIZE_BYTES as LBA, execute, name, namespace, subsystem};
use diecut_units::{Buffer, BufferMut, Span, Time};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const SIZE_BYTES: usize = 34 << 20;
const SUBSYSTEM: &str = "nqn.2026-11.example:drive";

fn host(server: u8) -> String {
    format!("nqn.2014-08.org.nvmexpress:uuid:server-{server}")
}

/// A target and its namespace. Content of the cache is beside what is durable.
struct Server {
    target: Target,
    memory: Vec<u8>,
    /// What LBAs held at the last flush, of those that were written since.
    before: BTreeMap<usize, Vec<u8>>,
    flushes: u32,
    next_connection: u64,
    now: Time,
}

fn config() -> NamespaceConfig {
    let mut namespace = namespace(7, (SIZE_BYTES / LBA) as u64);
    namespace.properties.volatile_cache = true;
    namespace
}

impl Server {
    fn new() -> Server {
        let memory = vec![0; SIZE_BYTES];
        let mut server = Server {
            target: Target::new(TargetConfig::default()),
            memory,
            before: BTreeMap::new(),
            flushes: 0,
            next_connection: 0,
            now: Time(1),
        };
        server.begin();
        server
    }

    fn begin(&mut self) {
        self.target = Target::new(TargetConfig::default());
        let subsystem = subsystem(SUBSYSTEM, &[], [(1, config())]);
        self.target.set_subsystem(subsystem, self.now, &mut Vec::new());
    }

    /// It dies, and of what was not flushed any LBAs are lost.
    fn crash(&mut self, random: &mut Random) {
        for (lba, content) in std::mem::take(&mut self.before) {
            if random.below(3) > 0 {
                self.memory[lba * LBA..][..LBA].copy_from_slice(&content);
            }
        }
        self.begin();
    }

    fn tell(&mut self, event: target::Event) {
        let mut actions = Vec::new();
        self.target.handle(event, self.now, &mut actions);
        while self.target.has_work() {
            self.target.handle(target::Event::Round, self.now, &mut actions);
        }
        for action in actions {
            match action {
                target::Action::Submit(command) => self.execute(command),
                target::Action::Keep(keep) => self.tell(target::Event::Kept(keep.kept())),
                target::Action::Ask(question) => {
                    self.tell(target::Event::Told(Box::new(question.unknown())));
                }
                _ => {}
            }
        }
    }

    fn execute(&mut self, command: NamespaceCommand) {
        match &command.operation {
            NamespaceOperation::Flush => {
                self.flushes += 1;
                self.before.clear();
            }
            NamespaceOperation::Write { range, .. } => {
                for lba in range.first_lba as usize..(range.first_lba + u64::from(range.lba_count)) as usize {
                    let content = || self.memory[lba * LBA..][..LBA].to_vec();
                    self.before.entry(lba).or_insert_with(content);
                }
            }
            NamespaceOperation::Deallocate { ranges } => {
                for range in ranges.iter() {
                    let end = range.first_lba + u64::from(range.lba_count);
                    (range.first_lba..end).for_each(|lba| drop(self.before.remove(&(lba as usize))));
                }
            }
            _ => {}
        }
        let completion = execute(&mut self.memory, command);
        self.tell(target::Event::Completed(completion));
    }

    fn accept(&mut self) -> ConnectionId {
        self.next_connection += 1;
        let connection = ConnectionId(self.next_connection);
        self.tell(target::Event::Accepted(connection, None));
        connection
    }
}

/// A drive, its streams, and how often they end.
struct Line {
    remote: RemoteDrive,
    server: Rc<RefCell<Server>>,
    streams: BTreeMap<u8, ConnectionId>,
    random: Random,
    now: Time,
    /// Steps of which one ends the connection, and of these how many in ten end the target; 0: none.
    cut_one_in: u64,
    crashes_in_ten: u64,
    cuts: u32,
    /// Nobody can be reached.
    is_unreachable: bool,
    /// Intents of a medium that are not answered.
    under_way: usize,
}

/// A drive under a medium. Keep-alives go on for ever, and are nothing that a medium waits for.
struct Under(Line);

impl CarryOut for Under {
    fn begin(&mut self, intents: &mut Vec<Intent>, now: Time) {
        self.0.under_way += intents.len();
        self.0.begin(intents, now);
    }
    fn end(&mut self, now: Time, done: &mut Vec<IntentDone>) {
        let before = done.len();
        self.0.end(now, done);
        self.0.under_way -= done.len() - before;
    }
    fn next_event(&self) -> Time {
        if self.0.under_way == 0 { Time::NEVER } else { self.0.next_event() }
    }
}

const STREAMS: [Stream; 2] = [Stream::Admin, Stream::Io];

impl Line {
    fn new(server: &Rc<RefCell<Server>>, number: u8, seed: u64) -> Line {
        let parameters = RemoteParameters {
            host: name(&host(number)),
            host_id: [number; 16],
            subsystem: name(SUBSYSTEM),
            nsid: 1,
            depth: 16,
            key: 0x1000 + u64::from(number),
            keep_alive: Span::from_secs(5),
            patience: Span::from_secs(60),
            pause: Span::from_millis(200),
        };
        let now = server.borrow().now;
        Line {
            remote: RemoteDrive::new(parameters, now),
            server: Rc::clone(server),
            streams: BTreeMap::new(),
            random: Random::of(seed),
            now,
            cut_one_in: 0,
            crashes_in_ten: 0,
            cuts: 0,
            is_unreachable: false,
            under_way: 0,
        }
    }

    fn close(&mut self) {
        for stream in STREAMS {
            if let Some(connection) = self.streams.remove(&(stream as u8)) {
                self.server.borrow_mut().tell(target::Event::Closed(connection));
                self.remote.closed(stream, self.now);
            }
        }
    }

    fn cut(&mut self) {
        self.cuts += 1;
        self.close();
        if self.random.below(10) < self.crashes_in_ten {
            self.server.borrow_mut().crash(&mut self.random);
        }
    }

    /// Carries some bytes; says whether there were any.
    fn carry(&mut self) -> bool {
        if self.cut_one_in > 0 && self.random.below(self.cut_one_in) == 0 {
            self.cut();
        }
        self.server.borrow_mut().now = self.now;
        if let Some(stream) = self.remote.wants(self.now) {
            if self.is_unreachable {
                self.remote.closed(stream, self.now);
                return false;
            }
            let connection = self.server.borrow_mut().accept();
            self.streams.insert(stream as u8, connection);
            self.remote.opened(stream, self.now);
        }
        let mut carried = false;
        for stream in STREAMS {
            let Some(&connection) = self.streams.get(&(stream as u8)) else { continue };
            let output = self.remote.output(stream);
            let len = output.len().min(1 + self.random.below(40_000) as usize);
            let bytes = Buffer::copy_from(&output[..len]);
            if len > 0 {
                self.remote.sent(stream, len);
                self.server.borrow_mut().tell(target::Event::Received(connection, bytes));
                carried = true;
            }
            let mut bytes = Vec::new();
            if let Some(outbox) =
                self.server.borrow().target.outbox(connection).filter(|outbox| !outbox.is_empty())
            {
                bytes.resize(outbox.len_bytes(), 0);
                outbox.copy_to(&mut bytes);
            }
            let len = bytes.len().min(1 + self.random.below(40_000) as usize);
            if len > 0 {
                self.server.borrow_mut().target.sent(connection, len);
                self.remote.received(stream, &bytes[..len], self.now);
                carried = true;
            }
        }
        carried
    }

    fn is_busy(&self) -> bool {
        let has_output = |stream: &Stream| {
            let Some(&connection) = self.streams.get(&(*stream as u8)) else { return false };
            !self.remote.output(*stream).is_empty()
                || self.server.borrow().target.outbox(connection).is_some_and(|outbox| !outbox.is_empty())
        };
        STREAMS.iter().any(has_output) || self.remote.wants(self.now).is_some()
    }

    /// Goes on until something holds.
    fn run(&mut self, until: impl Fn(&RemoteDrive) -> bool) {
        let mut done = Vec::new();
        for _ in 0..1_000_000 {
            if until(&self.remote) {
                return;
            }
            let next = CarryOut::next_event(self);
            self.now = self.now.max(next.min(Time(u64::MAX / 2)));
            CarryOut::end(self, self.now, &mut done);
        }
        panic!("it never comes: {:?}", self.remote.error());
    }

    /// Does one thing.
    fn execute(&mut self, work: IntentWork) -> IntentDone {
        let mut done = Vec::new();
        self.remote.begin(&mut vec![Intent { token: IntentToken(5), work }]);
        for _ in 0..1_000_000 {
            let next = CarryOut::next_event(self);
            self.now = self.now.max(next.min(Time(u64::MAX / 2)));
            CarryOut::end(self, self.now, &mut done);
            if let Some(done) = done.pop() {
                assert_eq!(done.token, IntentToken(5));
                return done;
            }
        }
        panic!("it is not answered: {:?}", self.remote.error());
    }
}

impl CarryOut for Line {
    fn begin(&mut self, intents: &mut Vec<Intent>, now: Time) {
        self.now = self.now.max(now);
        self.remote.begin(intents);
    }
    fn end(&mut self, now: Time, done: &mut Vec<IntentDone>) {
        self.now = self.now.max(now);
        self.remote.tick(self.now);
        self.carry();
        self.remote.end(done);
    }
    fn next_event(&self) -> Time {
        if self.is_busy() { self.now + Span::from_micros(10) } else { self.remote.deadline() }
    }
}

type OnTarget = Driven<DriveMedium, Under>;

fn on(line: Line) -> OnTarget {
    let shape = DriveShape::plan(SIZE_BYTES as u64, 4, Some(1 << 20)).unwrap();
    Driven::new(DriveMedium::new(shape, true, true), Under(line))
}

fn fresh(seed: u64) -> OnTarget {
    on(Line::new(&Rc::new(RefCell::new(Server::new())), 1, seed))
}

/// Goal: a namespace keeps the contract. Method: the suite.
#[test]
fn the_contract_holds() {
    let mut seed = 0;
    conformance::all(&mut || {
        seed += 1;
        fresh(seed)
    });
}

fn random_work_over_cuts(seeds: std::ops::Range<u64>) {
    let mut cuts = 0;
    for seed in seeds {
        let mut medium = fresh(seed);
        (medium.io.0.cut_one_in, medium.io.0.crashes_in_ten) = (150, 5);
        conformance::random_work(&mut medium, seed);
        cuts += medium.io.0.cuts;
    }
    assert!(cuts > 20, "{cuts} cuts");
}

/// Goal: what was answered is there, although connections end and the target dies with its cache. Method: random work with an oracle.
#[test]
fn nothing_that_was_answered_is_lost_with_a_connection() {
    random_work_over_cuts(0..depth(40, 2_000));
}

#[test]
fn planted_bugs_are_noticed() {
    is_noticed("remote: what was not flushed is not kept", || random_work_over_cuts(0..12));
    is_noticed("remote: a lost claim is taken back", who_comes_later_has_it);
}

/// Goal: what a flush covered survives the death of this machine, and of the target.
#[test]
fn flushed_content_survives() {
    for seed in 0..depth(12, 500) {
        let mut lives = 0;
        conformance::flushed_content_survives_cuts(fresh(seed), seed, &mut |mut medium: OnTarget| {
            lives += 1;
            medium.io.0.close();
            medium.io.0.server.borrow_mut().crash(&mut Random::of(seed * 100 + lives));
            on(Line::new(&medium.io.0.server, 1, seed + lives))
        });
    }
}

fn write(line: &mut Line, byte: u8) -> Result<(), IntentError> {
    let parts = [Buffer::copy_from(&[byte; 8192])].into_iter().collect();
    line.execute(IntentWork::Write { offset: 1 << 20, parts }).result
}

fn read(line: &mut Line) -> Vec<u8> {
    let buffer = BufferMut::copy_from(&[0xee; 8192]);
    let done = line.execute(IntentWork::Read { offset: 1 << 20, buffer });
    assert_eq!(done.result, Ok(()));
    done.buffer.unwrap().to_vec()
}

/// Goal: a namespace is one server's. Method: a second one comes; the first one's writes are refused from then on, also when it connects again.
fn who_comes_later_has_it() {
    let server = Rc::new(RefCell::new(Server::new()));
    let (mut first, mut second) = (Line::new(&server, 1, 1), Line::new(&server, 2, 2));
    first.run(RemoteDrive::is_up);
    assert_eq!(write(&mut first, 1), Ok(()));
    second.run(RemoteDrive::is_up);
    assert_eq!(write(&mut second, 2), Ok(()));
    let mut third = Line::new(&server, 1, 3);
    if server.borrow().now.0.is_multiple_of(2) {
        // Whether it notices by a write, or when it connects again.
        first.close();
        first.run(|remote| remote.is_gone() || remote.is_up());
    }
    first.close();
    first.run(|remote| remote.is_gone() || remote.is_up());
    assert_eq!(first.remote.error(), Some(&RemoteError::Claimed(1)));
    assert_eq!(write(&mut first, 3), Err(IntentError::Gone));
    assert_eq!(read(&mut second), [2; 8192]);
    // A server that is started again is to have it.
    third.run(RemoteDrive::is_up);
    assert_eq!(write(&mut third, 4), Ok(()));
    assert_eq!(write(&mut second, 5), Err(IntentError::Gone));
    assert_eq!(second.remote.error(), Some(&RemoteError::Claimed(1)));
    assert_eq!(read(&mut third), [4; 8192]);
}

#[test]
fn a_namespace_is_one_servers() {
    who_comes_later_has_it();
}

/// Goal: a target that is not there is waited for, and then the drive is gone. Method: it cannot be reached before, for a while, and for good.
#[test]
fn a_target_that_is_not_there_is_waited_for() {
    let server = Rc::new(RefCell::new(Server::new()));
    let mut line = Line::new(&server, 1, 1);
    line.is_unreachable = true;
    line.remote.begin(&mut vec![Intent { token: IntentToken(5), work: IntentWork::Sync }]);
    let begun = line.now;
    let mut done = Vec::new();
    while line.now < begun + Span::from_secs(20) {
        let now = CarryOut::next_event(&line);
        CarryOut::end(&mut line, now, &mut done);
    }
    assert!(done.is_empty() && !line.remote.is_gone());
    line.is_unreachable = false;
    line.run(RemoteDrive::is_up);
    assert_eq!(write(&mut line, 6), Ok(()));
    let facts = RemoteFacts {
        size_bytes: SIZE_BYTES as u64,
        lba_bytes: 4096,
        has_volatile_cache: true,
        takes_discard: true,
        model: "diecut".to_owned(),
        serial: "A1".to_owned(),
        nguid: [0xcd; 16],
    };
    assert_eq!(line.remote.facts(), Some(&facts));
    line.is_unreachable = true;
    line.close();
    let lost = line.now;
    assert_eq!(write(&mut line, 7), Err(IntentError::Gone));
    assert!(line.now >= lost + Span::from_secs(60));
    assert_eq!(line.remote.error(), Some(&RemoteError::Silent(60)));
    assert_eq!(CarryOut::next_event(&line), Time::NEVER);
}

/// Goal: what is kept stays within bounds, also of a host that never flushes.
#[test]
fn what_is_kept_is_flushed_in_time() {
    let server = Rc::new(RefCell::new(Server::new()));
    let mut line = Line::new(&server, 1, 1);
    line.run(RemoteDrive::is_up);
    for turn in 0..140u64 {
        let parts = [Buffer::copy_from(&vec![turn as u8; 1 << 20])].into_iter().collect();
        let work = IntentWork::Write { offset: (1 + turn % 20) << 20, parts };
        assert_eq!(line.execute(work).result, Ok(()));
    }
    assert_eq!(server.borrow().flushes, 2, "one for each 64 MiB");
}

/// Goal: a target that says nothing is left, and not asked again before it has left, too. Method: its bytes are not carried any more.
#[test]
fn a_silent_target_is_left() {
    let server = Rc::new(RefCell::new(Server::new()));
    let mut line = Line::new(&server, 1, 1);
    line.run(RemoteDrive::is_up);
    assert_eq!(write(&mut line, 8), Ok(()));
    let silent_from = line.now;
    line.streams.clear();
    while line.remote.wants(line.now).is_none() {
        line.now = line.remote.deadline();
        line.remote.tick(line.now);
        for stream in STREAMS {
            let len = line.remote.output(stream).len();
            if len > 0 {
                line.remote.sent(stream, len);
            }
        }
    }
    assert_eq!(
        line.now,
        silent_from + Span::from_secs(10),
        "5 s until it is noticed, and 5 s for the target"
    );
    line.run(RemoteDrive::is_up);
    assert_eq!(read(&mut line), [8; 8192]);
}
