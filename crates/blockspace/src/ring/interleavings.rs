//! Goal: no entry is lost or torn, and nobody sleeps for ever, whatever order the two sides take their steps in. Method: loom runs each test
//! under all of them, bounded by preemptions (`cargo xtask interleavings`); who sleeps for ever is a deadlock, which it reports. The
//! doorbell and the futex are models of what the system promises of them.
//!
//! Loom lets no load see a store that comes later. An entry that is written again before it was read is such a case, which the release order of
//! `SUBMISSION_HEAD` excludes: no test here fails without it.

use super::*;
use crate::wire::Status;
use diecut_vssd::LogicalBlock;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

const LAYOUT: Layout = Layout { entries: 1, slots: 1, slot_size_bytes: 4096 };

fn ends() -> (ServerEnd, ClientEnd) {
    let words = private_words(LAYOUT.size_bytes());
    (ServerEnd::new(std::sync::Arc::clone(&words), LAYOUT), ClientEnd::new(words, LAYOUT))
}

fn entry(token: u64) -> Submission {
    Submission { token, ..Submission::new(Opcode::Sync, LogicalBlock::default()) }
}

/// An eventfd: a ring stays until it is heard.
#[derive(Default)]
struct Doorbell(Mutex<bool>, Condvar);

impl Doorbell {
    fn ring(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
    fn wait(&self) {
        let mut rung = self.0.lock().unwrap();
        while !*rung {
            rung = self.1.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// A futex: the kernel looks at the word under a lock that a wake takes, too.
#[derive(Default)]
struct Futex(Mutex<()>, Condvar);

impl Futex {
    fn wait(&self, word: &AtomicU64, seen: u64) {
        let lock = self.0.lock().unwrap();
        if word.load(Ordering::Acquire) == seen {
            drop(self.1.wait(lock).unwrap());
        }
    }
    fn wake(&self) {
        drop(self.0.lock().unwrap());
        self.1.notify_all();
    }
}

/// The next submission, as a server thread takes it: it sleeps if there is none.
fn next(end: &mut ServerEnd, bell: &Doorbell) -> u64 {
    let mut buffers = BufferPool::new();
    loop {
        if let Some(command) = end.take(&mut buffers).unwrap() {
            return command.entry.unwrap().token;
        }
        end.announce_sleep();
        if !end.is_ready() {
            bell.wait();
        }
        end.announce_awake();
    }
}

/// A server that sleeps is woken by an entry, which is whole.
#[test]
fn a_server_that_sleeps_hears_of_an_entry() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (mut server, mut client) = ends();
        let bell = Arc::new(Doorbell::default());
        let serving = {
            let bell = Arc::clone(&bell);
            thread::spawn(move || next(&mut server, &bell))
        };
        if client.submit(&entry(0x5a)).unwrap() {
            bell.ring();
        }
        assert_eq!(serving.join().unwrap(), 0x5a);
    });
}

/// A client that waits is woken by an answer, which is whole; and the place of an entry that was taken is used again.
#[test]
fn a_client_that_waits_hears_of_each_answer() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let (mut server, mut client) = ends();
        let (bell, futex) = (Arc::new(Doorbell::default()), Arc::new(Futex::default()));
        let serving = {
            let (bell, futex) = (Arc::clone(&bell), Arc::clone(&futex));
            thread::spawn(move || {
                for _ in 0..2 {
                    let token = next(&mut server, &bell);
                    let completion = Completion::new(token, Status::Done);
                    server.put(&Answer { completion, data: None });
                    if server.is_waited_for() {
                        futex.wake();
                    }
                }
            })
        };
        for token in [1, 2] {
            if client.submit(&entry(token)).unwrap() {
                bell.ring();
            }
            let completion = loop {
                if let Some(completion) = client.take() {
                    break completion;
                }
                let waits = Bell::of(&client);
                waits.count(true);
                futex.wait(waits.futex(), client.seen());
                waits.count(false);
            };
            assert_eq!(completion, Some(Completion::new(token, Status::Done)));
            client.release();
            if client.is_stuck() {
                bell.ring();
            }
        }
        serving.join().unwrap();
    });
}

/// An entry waits while the one before it has an answer that nobody looked at: the server sleeps, and is woken by the look. The place of
/// an entry is written again as soon as it was taken, not before.
#[test]
fn a_server_without_room_for_answers_hears_of_it() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let (mut server, mut client) = ends();
        let bell = Arc::new(Doorbell::default());
        let serving = {
            let bell = Arc::clone(&bell);
            thread::spawn(move || {
                for expected in [1, 2] {
                    let token = next(&mut server, &bell);
                    assert_eq!(token, expected);
                    server.put(&Answer { completion: Completion::new(token, Status::Done), data: None });
                }
            })
        };
        for token in [1, 2] {
            let rings = loop {
                match client.submit(&entry(token)) {
                    Some(rings) => break rings,
                    None => thread::yield_now(),
                }
            };
            if rings {
                bell.ring();
            }
        }
        for token in [1, 2] {
            let completion = loop {
                match client.take() {
                    Some(completion) => break completion,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(completion, Some(Completion::new(token, Status::Done)));
            client.release();
            if client.is_stuck() {
                bell.ring();
            }
        }
        serving.join().unwrap();
    });
}
