//! Erase blocks for applications: round trips through the rings of a server, against a ring in shared memory that does nothing else.
//!
//! The raw ring waits as the server's does: its server sleeps on an eventfd, its client on a futex, and both look at the
//! other's counter before. It copies an entry of 64 bytes there, and one of 32 bytes and the data of a read back.

use super::cases::SuiteSettings;
use super::row::Row;
use super::servers::{Server, stack_shard};
use crate::affinity::pin_this_thread;
use diecut_blockspace::{Attach, Client, Purpose, UnitIndex, system};
use diecut_shard::control::{ControlRequest, TenantSpec, VssdSpec};
use diecut_spec::{Isolation, Serves};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const ENTRY_WORDS: usize = 8;
const ANSWER_WORDS: usize = 4;
/// Words of a page, the data of a read.
const PAGE_WORDS: usize = 512;
const NAME: &str = "bench";

/// Counters on cache lines of their own, then entry, answer and data.
struct RawRing {
    words: Vec<AtomicU64>,
    doorbell: std::os::fd::OwnedFd,
    ends: AtomicBool,
}

const SUBMITTED: usize = 0;
const SLEEPS: usize = 8;
const ANSWERED: usize = 16;
const WAITS: usize = 24;
const ENTRY: usize = 32;
const ANSWER: usize = 64;
const DATA: usize = 128;

impl RawRing {
    fn new() -> Outcome<RawRing> {
        let words = (0..DATA + PAGE_WORDS).map(|_| AtomicU64::new(0)).collect();
        Ok(RawRing { words, doorbell: system::create_doorbell()?, ends: AtomicBool::new(false) })
    }

    fn fill(&self, at: usize, words: usize, value: u64) {
        self.words[at..at + words].iter().for_each(|word| word.store(value, Ordering::Relaxed));
    }

    fn sum(&self, at: usize, words: usize) -> u64 {
        self.words[at..at + words].iter().fold(0, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)))
    }

    fn serve(&self, data_words: usize) {
        let mut answered = 0;
        let (_, silent) = std::os::unix::net::UnixStream::pair().expect("the system has sockets");
        while !self.ends.load(Ordering::Relaxed) {
            if self.words[SUBMITTED].load(Ordering::Acquire) == answered {
                self.words[SLEEPS].store(1, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                if self.words[SUBMITTED].load(Ordering::Acquire) == answered {
                    let patience = Duration::from_millis(100);
                    system::wait_for(&self.doorbell, &silent, patience);
                    system::quiet(&self.doorbell);
                }
                self.words[SLEEPS].store(0, Ordering::Relaxed);
                continue;
            }
            let entry = self.sum(ENTRY, ENTRY_WORDS);
            self.fill(DATA, data_words, entry);
            self.fill(ANSWER, ANSWER_WORDS, entry);
            answered += 1;
            self.words[ANSWERED].store(answered, Ordering::Release);
            fence(Ordering::SeqCst);
            if self.words[WAITS].load(Ordering::Relaxed) != 0 {
                system::futex_wake(&self.words[ANSWERED]);
            }
        }
    }

    fn ask(&self, number: u64, data: &mut [u64]) {
        self.fill(ENTRY, ENTRY_WORDS, number);
        self.words[SUBMITTED].store(number, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.words[SLEEPS].load(Ordering::Relaxed) != 0 {
            system::ring(&self.doorbell);
        }
        while self.words[ANSWERED].load(Ordering::Acquire) != number {
            self.words[WAITS].fetch_add(1, Ordering::SeqCst);
            system::futex_wait(&self.words[ANSWERED], number - 1, Duration::from_millis(50));
            self.words[WAITS].fetch_sub(1, Ordering::SeqCst);
        }
        assert_eq!(self.sum(ANSWER, ANSWER_WORDS), number.wrapping_mul((ENTRY_WORDS * ANSWER_WORDS) as u64));
        for (word, from) in data.iter_mut().zip(&self.words[DATA..]) {
            *word = from.load(Ordering::Relaxed);
        }
    }
}

/// Mean microseconds of one after another, over the time of a repetition; a tenth of it before is not counted.
fn mean_us(settings: &SuiteSettings, mut one: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    for (counts, time_ms) in [(false, settings.duration_ms / 10), (true, settings.duration_ms)] {
        let (started, mut operations) = (Instant::now(), 0u64);
        while started.elapsed() < Duration::from_millis(time_ms) {
            for _ in 0..16 {
                one()?;
            }
            operations += 16;
        }
        if counts {
            return Ok(started.elapsed().as_secs_f64() * 1e6 / operations as f64);
        }
    }
    unreachable!("the second turn counts")
}

fn raw_us(settings: &SuiteSettings, data_words: usize) -> Outcome<f64> {
    let ring = RawRing::new()?;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let pinned = pin_this_thread(settings.server_core);
            ring.serve(data_words);
            pinned
        });
        let (mut number, mut data) = (0, vec![0; data_words]);
        let mean = mean_us(settings, || {
            number += 1;
            ring.ask(number, &mut data);
            Ok(())
        });
        ring.ends.store(true, Ordering::Relaxed);
        system::ring(&ring.doorbell);
        server.join().expect("it does not panic")?;
        mean
    })
}

/// The rows.
///
/// # Errors
/// What could not be measured, and why.
pub(super) fn rows(settings: &SuiteSettings) -> Outcome<Vec<Row>> {
    let folder = std::env::temp_dir().join(format!("diecut-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let socket = folder.join("blocks.sock");
    let shard = stack_shard(1).map_err(|error| error.to_string())?;
    let server =
        Server::start_at(Some(settings.server_core), Some(socket.clone()), move |(_, now)| shard(now))?;
    let name = || NAME.to_owned();
    server.ask(ControlRequest::CreateTenant(TenantSpec::new(&name())))?;
    server.ask(ControlRequest::CreateVssd(VssdSpec {
        serves: Serves::Blocks,
        ..VssdSpec::new(NAME, NAME, Isolation::Channel, 70)
    }))?;
    pin_this_thread(settings.load_core)?;
    let client = Client::attach(Attach { socket: &socket, vssd: NAME })?;
    client.keep(&[])?;
    let block = client.allocate(UnitIndex(0), Purpose(0))?;
    client.append(block, &vec![7; client.shape().unit_of_append_bytes() as usize])?;
    let (mut asks, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..settings.repetitions {
        let ask = mean_us(settings, || Ok(client.blocks_of_unit(UnitIndex(0)).map(drop)?))?;
        asks.push((raw_us(settings, 0)?, ask));
        let mut page = [0; PAGE_WORDS * 8];
        let read = mean_us(settings, || Ok(client.read(block, 0, &mut page)?))?;
        reads.push((raw_us(settings, PAGE_WORDS)?, read));
    }
    drop(client);
    server.reactor.stop();
    std::fs::remove_dir_all(&folder)?;
    Ok(vec![
        Row::of("h", "erase blocks for applications: round trip of a question, mean", "us", &asks),
        Row::of("h read", "the same: 4 KiB read of an erase block, memory, no pacing", "us", &reads),
    ])
}
