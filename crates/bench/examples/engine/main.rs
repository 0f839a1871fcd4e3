//! The volume engine alone over a space in tag mode that answers at once: random 4 KiB overwrites with cleaner and
//! checkpoint on, then restarts after cuts.
//!
//! `cargo run --release -p diecut-bench --example engine -- [GiB] [OP permille] [cuts] [pages of an erase block]
//! [measured writes]`
#![allow(clippy::disallowed_methods, reason = "measures processor time")]

mod metered;
mod space;

use diecut_units::{BufferMut, BufferPool, ContentMode, Payload, ProtectedMemory, Time};
use diecut_volume::contract::*;
use diecut_volume::{Store, StoreConfig};
use space::CompactSpace;
use std::time::Duration;

/// Larger ones compute page marks again instead of keeping them.
const MARKS_KEPT_MAX_GIB: u64 = 256;

/// Processor time of this process: its one thread does all the work, and a shared machine takes none of it away.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux tells the processor time");
    Duration::from_nanos(text.split(' ').next().and_then(|n| n.parse().ok()).expect("nanoseconds"))
}

/// The engine, and the writes it is given.
struct Engine {
    space: CompactSpace,
    memory: ProtectedMemory,
    store: Store,
    size_ius: u64,
    out: Vec<VolumeCompletion>,
    now: Time,
    state: u64,
    pool: BufferPool,
    /// Of the batch that is gathered.
    batch: Vec<u64>,
    written: u64,
}

/// Writes that are submitted before the engine works, as the shard does with what a round of its connections brought.
const BATCH: usize = 64;

fn open(space: &mut CompactSpace, memory: &ProtectedMemory) -> Store {
    Store::open(StoreConfig::default(), space, Some(memory.region(0..memory.size_bytes())))
}

impl Engine {
    fn new(gib: u64, permille: u64, pages: u32) -> Engine {
        let size_ius = gib << 18;
        let mut space = CompactSpace::new(size_ius, permille, pages, gib <= MARKS_KEPT_MAX_GIB);
        let memory = ProtectedMemory::in_memory(64 * 5248);
        let mut store = open(&mut space, &memory);
        let mut out = Vec::new();
        store.create_volume(VolumeToken(0), VolumeIndex(0), size_ius);
        store.work(Time::ZERO, &mut space, &mut out);
        out.clear();
        let state = 0x9e37_79b9_7f4a_7c15;
        Engine {
            space,
            memory,
            store,
            size_ius,
            out,
            now: Time::ZERO,
            state,
            pool: BufferPool::new(),
            batch: Vec::new(),
            written: 0,
        }
    }

    /// Writes one IU; the engine works when a batch is full.
    fn write(&mut self, first_iu: u64) {
        self.batch.push(first_iu);
        if self.batch.len() < BATCH {
            return;
        }
        // One receive buffer holds the content of many writes.
        let mut contents = self.pool.take(BATCH * 8);
        for (content, iu) in contents.chunks_exact_mut(8).zip(&self.batch) {
            self.written += 1;
            content.copy_from_slice(&tag_of(*iu, self.written));
        }
        let contents = contents.freeze();
        for (at, first_iu) in self.batch.drain(..).enumerate() {
            let payload = Payload::new(ContentMode::Tags, contents.slice(at * 8..at * 8 + 8));
            let operation = VolumeOperation::Write {
                first_iu,
                payload,
                force_unit_access: false,
                placement: PlacementTarget::default(),
            };
            let command = VolumeCommand { token: VolumeToken(0), volume: VolumeIndex(0), operation };
            self.store.submit(command, &mut self.space, &mut self.out);
        }
        let mut done = 0;
        while done < BATCH {
            self.store.work(self.now, &mut self.space, &mut self.out);
            while let Some(completion) = self.space.done.pop_front() {
                self.store.complete(completion, &mut self.space, &mut self.out);
            }
            done += self.out.len();
            self.out.clear();
            if done < BATCH && self.space.done.is_empty() && self.store.deadline() != Time::NEVER {
                // This medium takes no time: the pace of writers is all that is waited for.
                self.now = self.now.max(self.store.deadline());
            }
        }
    }

    fn overwrite(&mut self, count: u64) {
        for _ in 0..count {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            self.write(((u128::from(self.state) * u128::from(self.size_ius)) >> 64) as u64);
        }
    }

    fn phase(&mut self, name: &str, count: u64) {
        let (before, start) = (self.store.statistics(), processor_time());
        let looks = metered::looks();
        self.overwrite(count);
        let (seconds, after) = ((processor_time() - start).as_secs_f64(), self.store.statistics());
        let [looks, inside] = [0, 1].map(|at| (metered::looks()[at] - looks[at]) as f64);
        let stand_in = inside / looks.max(1.0);
        let host = (after.host_written_ius - before.host_written_ius) as f64;
        let part = |a: u64, b: u64| (a - b) as f64 / host;
        let (after, before) = (after.log, before.log);
        let (user, cleaner) =
            (part(after.user_ius(), before.user_ius()), part(after.cleaner_ius(), before.cleaner_ius()));
        let summary = part(after.summary_ius, before.summary_ius);
        let map = part(after.map_ius() + after.anchor_ius, before.map_ius() + before.anchor_ius);
        let padding = part(after.padding_ius, before.padding_ius);
        println!(
            "{name}: {:.2} M writes/s of processor time without the stand-in for flash ({:.2} with it, {:.1} % of the time), waf_total {:.3} (user {user:.3}, cleaner {cleaner:.3}, summaries {summary:.3}, checkpoint {map:.3}, padding {padding:.3})",
            host / seconds / (1.0 - stand_in) / 1e6,
            host / seconds / 1e6,
            stand_in * 100.0,
            user + cleaner + summary + map + padding
        );
    }

    /// IUs programmed for anchors until now.
    fn anchor_ius(&self) -> u64 {
        self.store.statistics().log.anchor_ius
    }

    /// Overwrites until the next anchor was written. Gives the number of writes.
    fn until_anchor(&mut self) -> u64 {
        let (before, mut writes) = (self.anchor_ius(), 0);
        while self.anchor_ius() == before && writes < 16 * self.size_ius {
            self.overwrite(BATCH as u64);
            writes += BATCH as u64;
        }
        writes
    }

    /// Power is cut, and comes back. Gives the processor time until a read and a write were served.
    #[inline(never)]
    fn cut(&mut self) -> Duration {
        let last = self.state;
        self.space.done.clear();
        self.out = Vec::new();
        self.batch.clear();
        // The old store is gone before the clock starts, as its process would be.
        self.store =
            Store::open(StoreConfig::default(), &mut CompactSpace::new(1 << 12, 280, 64, true), None);
        let start = processor_time();
        self.store = open(&mut self.space, &self.memory);
        let first_iu = ((u128::from(last) * u128::from(self.size_ius)) >> 64) as u64;
        let destination = self.pool.take(8);
        let read = VolumeOperation::Read { first_iu, iu_count: 1, destination };
        let content = Payload::new(ContentMode::Tags, BufferMut::copy_from(&tag_of(0, 0)).freeze());
        let write = VolumeOperation::Write {
            first_iu: 0,
            payload: content,
            force_unit_access: false,
            placement: PlacementTarget::default(),
        };
        for (token, operation) in [(1, read), (2, write)] {
            let command = VolumeCommand { token: VolumeToken(token), volume: VolumeIndex(0), operation };
            self.store.submit(command, &mut self.space, &mut self.out);
        }
        while self.out.len() < 2 {
            while let Some(completion) = self.space.done.pop_front() {
                self.store.complete(completion, &mut self.space, &mut self.out);
            }
            self.store.work(self.now, &mut self.space, &mut self.out);
            self.now = if self.store.deadline() == Time::NEVER {
                self.now
            } else {
                self.now.max(self.store.deadline())
            };
        }
        let took = processor_time() - start;
        for completion in self.out.drain(..) {
            assert_eq!(completion.result, Ok(()), "served after the restart");
            if let Some(content) = completion.destination {
                // The last write before the cut was acknowledged, or was one of the batch that was not.
                assert!(content[..5] == tag_of(first_iu, 0)[..5], "the content is that of this IU");
            }
        }
        took
    }
}

/// What is written: the IU, and the low bits of the number of the write.
fn tag_of(iu: u64, number: u64) -> [u8; 8] {
    (iu | 1 << 39 | number << 40).to_le_bytes()
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|a| a.parse::<u64>().ok());
    let gib = arguments.next().unwrap_or(256);
    let permille = arguments.next().unwrap_or(280);
    let cuts = arguments.next().unwrap_or(1);
    // Erase blocks of 16 MiB (4 planes, 256 pages of 16 KiB) on 16 units, as in the published geometry.
    let pages = arguments.next().unwrap_or(1024) as u32;
    metered::begin();
    let mut engine = Engine::new(gib, permille, pages);
    for iu in 0..engine.size_ius {
        engine.write(iu);
    }
    engine.phase("conditioning, two overwrites", 2 * engine.size_ius);
    engine.phase("measured", arguments.next().unwrap_or(engine.size_ius / 2));
    if cuts == 0 {
        return;
    }
    // Just before an anchor is written, most is to be replayed.
    engine.until_anchor();
    let apart = engine.until_anchor();
    let mut took = Vec::new();
    for cut in 0..cuts {
        engine.until_anchor();
        engine.overwrite((apart * (cut + 1) / cuts).saturating_sub(128));
        took.push(engine.cut().as_secs_f64());
        println!("restart {cut}: {:.3} s", took[cut as usize]);
    }
    took.sort_by(f64::total_cmp);
    println!(
        "restart after {cuts} cuts until a read and a write are served: worst {:.2} s, median {:.2} s of processor time; {apart} writes from anchor to anchor",
        took.last().copied().unwrap_or(0.0),
        took.get(took.len() / 2).copied().unwrap_or(0.0),
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().filter(|l| l.starts_with("VmHWM")).for_each(|l| println!("peak memory {l}"));
}
