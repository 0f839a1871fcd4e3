//! A drive on a target, and the connection between them.

use crate::server::{SUBSYSTEM, Server};
use diecut_media::{Intent, IntentDone, IntentToken, IntentWork};
use diecut_nvmf::{self as target, ConnectionId};
use diecut_remote::{ClaimKind, RemoteDrive, RemoteParameters, Stream};
use diecut_testing::Random;
use diecut_testing::driven::CarryOut;
use diecut_testing::target::name;
use diecut_units::{Buffer, Span, Time};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

fn host(server: u8) -> String {
    format!("nqn.2014-08.org.nvmexpress:uuid:server-{server}")
}

/// A drive, its streams, and how often they end.
pub struct Line {
    pub remote: RemoteDrive,
    pub server: Rc<RefCell<Server>>,
    pub streams: BTreeMap<u8, ConnectionId>,
    random: Random,
    pub now: Time,
    /// Steps of which one ends the connection, and of these how many in ten end the target; 0: none.
    pub cut_one_in: u64,
    pub crashes_in_ten: u64,
    pub cuts: u32,
    /// Nobody can be reached.
    pub is_unreachable: bool,
    /// Intents of a medium that are not answered.
    under_way: usize,
}

/// A drive under a medium. Keep-alives go on for ever, and are nothing that a medium waits for.
pub struct Under(pub Line);

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

pub const STREAMS: [Stream; 2] = [Stream::Admin, Stream::Io];

impl Line {
    pub fn new(server: &Rc<RefCell<Server>>, number: u8, seed: u64) -> Line {
        let parameters = RemoteParameters {
            host: name(&host(number)),
            server: u32::from(number),
            life: seed,
            part: 0,
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

    pub fn of(server: &Rc<RefCell<Server>>, parameters: RemoteParameters, seed: u64) -> Line {
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

    pub fn close(&mut self) {
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
    pub fn carry(&mut self) -> bool {
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
        self.server.borrow().has_late()
            || STREAMS.iter().any(has_output)
            || self.remote.wants(self.now).is_some()
    }

    /// Goes on until something holds.
    pub fn run(&mut self, until: impl Fn(&RemoteDrive) -> bool) {
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

    /// Goes on for so many steps.
    pub fn carry_steps(&mut self, steps: u64) {
        for _ in 0..steps {
            self.now = self.now.max(CarryOut::next_event(self));
            CarryOut::end(self, self.now, &mut Vec::new());
        }
    }

    /// Does one thing.
    pub fn execute(&mut self, work: IntentWork) -> IntentDone {
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
