//! Goal: a namespace of a target is a drive that keeps the flash contract, whatever happens to the connection and to the target's cache. Method: the
//! target that is shipped, over memory with a volatile cache, streams in pieces; connections end, and the target dies with what was not flushed, at
//! moments that a seed chooses. Over it the suite of the flash contract, with its oracle.

use diecut_drives::{DriveMedium, DriveShape};
use diecut_media::{Intent, IntentDone, IntentError, IntentToken, IntentWork, conformance};
use diecut_namespace::contract::{NamespaceCommand, NamespaceOperation};
use diecut_nvmf::{self as target, ConnectionId, NamespaceConfig, Target, TargetConfig};
use diecut_remote::{ClaimKind, RemoteDrive, RemoteError, RemoteFacts, RemoteParameters, Stream};
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
    /// Writes of which one takes its time, and ends long after; 0: none.
    slow_one_in: u64,
    late: Vec<NamespaceCommand>,
    random: Random,
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
            slow_one_in: 0,
            late: Vec::new(),
            random: Random::of(1),
        };
        server.begin();
        server
    }

    fn begin(&mut self) {
        self.late.clear();
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
                target::Action::Submit(command) => {
                    let is_slow = matches!(command.operation, NamespaceOperation::Write { .. })
                        && self.slow_one_in > 0
                        && self.random.below(self.slow_one_in) == 0;
                    if is_slow { self.late.push(command) } else { self.execute(command) }
                }
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

    /// One of the commands that take their time may end, whoever asked for it and wherever that one is.
    fn end_late(&mut self) -> bool {
        if !self.late.is_empty() && self.random.below(3) == 0 {
            let at = self.random.below(self.late.len() as u64) as usize;
            let command = self.late.swap_remove(at);
            self.execute(command);
        }
        !self.late.is_empty()
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
            server: u32::from(number),
            life: seed,
            subsystem: name(SUBSYSTEM),
            nsid: 1,
            kind: ClaimKind::Own,
            known: None,
            depth: 16,
            keep_alive: Span::from_secs(5),
            patience: Some(Span::from_secs(60)),
            pause: Span::from_millis(200),
            pause_max: Span::from_secs(2),
        };
        Line::of(server, parameters, seed)
    }

    fn of(server: &Rc<RefCell<Server>>, parameters: RemoteParameters, seed: u64) -> Line {
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
        let is_late = self.server.borrow_mut().end_late();
        if let Some(stream) = self.remote.wants(self.now) {
            if self.is_unreachable {
                self.remote.closed(stream, self.now);
                return false;
            }
            let connection = self.server.borrow_mut().accept();
            self.streams.insert(stream as u8, connection);
            self.remote.opened(stream, self.now);
        }
        let mut carried = is_late;
        // Of a connection that the drive gave up by itself.
        for stream in STREAMS {
            if !self.remote.keeps(stream)
                && let Some(connection) = self.streams.remove(&(stream as u8))
            {
                self.server.borrow_mut().tell(target::Event::Closed(connection));
            }
        }
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
        !self.server.borrow().late.is_empty()
            || STREAMS.iter().any(has_output)
            || self.remote.wants(self.now).is_some()
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
        medium.io.0.server.borrow_mut().slow_one_in = seed % 3 * 10;
        conformance::random_work(&mut medium, seed);
        cuts += medium.io.0.cuts;
    }
    assert!(cuts > 20, "{cuts} cuts");
}

/// Goal: what was answered is there, although connections end and the target dies with its cache. Method: random work with an oracle.
#[test]
fn nothing_that_was_answered_is_lost_with_a_connection() {
    random_work_over_cuts(0..depth(20, 2_000));
}

#[test]
fn planted_bugs_are_noticed() {
    is_noticed("remote: what was not flushed is not kept", || random_work_over_cuts(0..12));
    is_noticed("remote: connections of before are not preempted", what_was_under_way_does_not_land_late);
}

/// Goal: what a flush covered survives the death of this machine, and of the target.
#[test]
fn flushed_content_survives() {
    for seed in 0..depth(8, 500) {
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

/// Goal: what a connection that was lost still has at the target does not land behind what comes over the next one. Method: a write that takes its time, its
/// connection ends, it is repeated, and what was written is read until nothing is under way at the target any more.
fn what_was_under_way_does_not_land_late() {
    for seed in 0..20 {
        let server = Rc::new(RefCell::new(Server::new()));
        let mut line = Line::new(&server, 1, seed);
        line.run(RemoteDrive::is_up);
        server.borrow_mut().slow_one_in = 1;
        let parts = [Buffer::copy_from(&[1; 8192])].into_iter().collect();
        let intent = Intent { token: IntentToken(4), work: IntentWork::Write { offset: 1 << 20, parts } };
        line.remote.begin(&mut vec![intent]);
        while server.borrow().late.is_empty() {
            line.carry();
        }
        line.close();
        server.borrow_mut().slow_one_in = 0;
        let mut done = Vec::new();
        while done.is_empty() {
            line.now = line.now.max(CarryOut::next_event(&line));
            let now = line.now;
            CarryOut::end(&mut line, now, &mut done);
        }
        assert_eq!(write(&mut line, 2), Ok(()));
        while server.borrow_mut().end_late() {}
        assert_eq!(read(&mut line), [2; 8192], "seed {seed}");
    }
}

#[test]
fn late_commands_are_fenced() {
    what_was_under_way_does_not_land_late();
}

/// Goal: a namespace is one server's. Method: a second one comes and is refused, by name; when the first one gives the namespace up it has it. One that is
/// to take over does, and the first one knows.
#[test]
fn a_namespace_is_one_servers() {
    let server = Rc::new(RefCell::new(Server::new()));
    let gone = |remote: &RemoteDrive| remote.is_gone();
    let mut first = Line::new(&server, 1, 1);
    first.run(RemoteDrive::is_up);
    assert_eq!(write(&mut first, 1), Ok(()));
    let mut second = Line::new(&server, 2, 2);
    second.run(gone);
    let held = RemoteError::Held { nsid: 1, key: 1 << 32 | 2 };
    assert_eq!(second.remote.error(), Some(&held));
    assert!(held.to_string().contains("in use") && held.to_string().contains("device release"), "{held}");
    // Its server is killed, and another process of it comes.
    first.close();
    Line::new(&server, 2, 3).run(gone);
    let mut first = Line::new(&server, 1, 4);
    first.run(RemoteDrive::is_up);
    assert_eq!(read(&mut first), [1; 8192]);
    // Who only looks says who has it, and claims nothing.
    let look = RemoteParameters { kind: ClaimKind::Look, ..second.remote.parameters().clone() };
    let mut looking = Line::of(&server, look, 5);
    looking.run(RemoteDrive::is_up);
    assert_eq!(looking.remote.held_by(), Some(1 << 32 | 5));
    assert_eq!(read(&mut looking), [1; 8192]);
    assert_eq!(write(&mut first, 2), Ok(()));
    first.remote.release();
    first.run(gone);
    assert_eq!((first.remote.error(), first.remote.is_released()), (None, true));
    let mut second = Line::new(&server, 2, 6);
    second.run(RemoteDrive::is_up);
    assert_eq!(write(&mut second, 3), Ok(()));
    let over = RemoteParameters { kind: ClaimKind::TakeOver, ..first.remote.parameters().clone() };
    let mut third = Line::of(&server, over, 7);
    third.run(RemoteDrive::is_up);
    assert_eq!(write(&mut third, 4), Ok(()));
    assert_eq!(write(&mut second, 5), Err(IntentError::Gone));
    assert_eq!(second.remote.error(), Some(&RemoteError::TakenOver(1)));
    assert_eq!(read(&mut third), [4; 8192]);
}

/// Goal: a namespace that is another one after a connection was lost is refused, by name. Method: its target comes back with a smaller one.
#[test]
fn another_namespace_in_its_place_is_refused() {
    let server = Rc::new(RefCell::new(Server::new()));
    let mut line = Line::new(&server, 1, 1);
    line.run(RemoteDrive::is_up);
    line.close();
    {
        let mut server = server.borrow_mut();
        server.begin();
        let mut other = config();
        other.properties.size_lbas -= 8;
        let now = server.now;
        server.target.set_subsystem(subsystem(SUBSYSTEM, &[], [(1, other)]), now, &mut Vec::new());
    }
    line.run(RemoteDrive::is_gone);
    let said = line.remote.error().unwrap().to_string();
    assert!(said.contains("is another one than it was (size 35618816, and was 35651584)"), "{said}");
    // A process that knows what it opened.
    let known = RemoteParameters { life: 9, ..line.remote.parameters().clone() };
    let known = RemoteParameters { known: line.remote.facts().cloned(), ..known };
    let mut next = Line::of(&server, known, 2);
    next.run(RemoteDrive::is_gone);
    assert!(matches!(next.remote.error(), Some(RemoteError::OtherNamespace { .. })));
}

/// Goal: a namespace that takes no writes is refused by name, and can be looked at.
#[test]
fn a_write_protected_namespace_is_refused() {
    let server = Rc::new(RefCell::new(Server::new()));
    {
        let mut server = server.borrow_mut();
        let mut protected = config();
        protected.properties.read_only = true;
        let now = server.now;
        server.target.set_subsystem(subsystem(SUBSYSTEM, &[], [(1, protected)]), now, &mut Vec::new());
    }
    let mut line = Line::new(&server, 1, 1);
    line.run(RemoteDrive::is_gone);
    assert_eq!(line.remote.error(), Some(&RemoteError::WriteProtected(1)));
    let look = RemoteParameters { kind: ClaimKind::Look, ..line.remote.parameters().clone() };
    Line::of(&server, look, 2).run(RemoteDrive::is_up);
}

/// Goal: whenever the connection ends, what was asked for is answered once and right, and the target is not asked without pause. Method: a connection that
/// ends after each number of steps that a bring-up, a claim and some work take.
#[test]
fn a_cut_at_every_step_is_survived() {
    for steps in 0..120 {
        let server = Rc::new(RefCell::new(Server::new()));
        let mut line = Line::new(&server, 1, steps);
        let parts = [Buffer::copy_from(&[7; 8192])].into_iter().collect();
        let write = IntentWork::Write { offset: 1 << 20, parts };
        let intents = [write, IntentWork::Sync].into_iter().zip([IntentToken(1), IntentToken(2)]);
        line.remote.begin(&mut intents.map(|(work, token)| Intent { token, work }).collect());
        let mut done = Vec::new();
        for step in 0..100_000 {
            if step == steps {
                line.close();
            }
            line.now = line.now.max(CarryOut::next_event(&line));
            let now = line.now;
            CarryOut::end(&mut line, now, &mut done);
            if done.len() == 2 && step > steps {
                break;
            }
        }
        let mut answered: Vec<_> = done.iter().map(|done| (done.token, done.result)).collect();
        answered.sort_unstable_by_key(|one| one.0);
        assert_eq!(answered, [(IntentToken(1), Ok(())), (IntentToken(2), Ok(()))], "after {steps} steps");
        assert_eq!(read(&mut line), [7; 8192], "after {steps} steps");
    }
}

/// Goal: a target that cannot be reached is tried less and less often, within bounds, and without patience for ever.
#[test]
fn tries_become_rare() {
    let server = Rc::new(RefCell::new(Server::new()));
    let for_ever =
        RemoteParameters { patience: None, ..Line::new(&server, 1, 1).remote.parameters().clone() };
    let mut line = Line::of(&server, for_ever, 1);
    line.is_unreachable = true;
    let (mut tries, mut done) = (Vec::new(), Vec::new());
    while line.now < Time(1) + Span::from_secs(600) {
        line.now = line.now.max(CarryOut::next_event(&line));
        if line.remote.wants(line.now).is_some() {
            tries.push(line.now);
        }
        let now = line.now;
        CarryOut::end(&mut line, now, &mut done);
    }
    let pauses: Vec<u64> = tries.windows(2).map(|two| two[1].since(two[0]).0 / 1_000_000).collect();
    assert_eq!(pauses[..6], [200, 400, 800, 1600, 2000, 2000]);
    assert!(!line.remote.is_gone() && line.remote.away_since() == Some(Time(1)));
    line.is_unreachable = false;
    assert_eq!(write(&mut line, 6), Ok(()));
    assert_eq!(line.remote.away_since(), None);
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
        eui64: [0; 8],
        takes_reservations: true,
        is_write_protected: false,
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

/// Goal: a target that says nothing is left, and asked again. Method: its bytes are not carried any more.
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
    assert_eq!(line.now, silent_from + Span::from_millis(5_200), "5 s until it is noticed, and a pause");
    line.run(RemoteDrive::is_up);
    assert_eq!(read(&mut line), [8; 8192]);
}
