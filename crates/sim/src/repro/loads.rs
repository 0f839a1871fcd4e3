//! Workloads that do one thing: closed loops and paced arrivals of reads or writes, and what they met.

use super::stage::{Io, Kind, Workload};
use diecut_units::{Span, Time};
use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;

/// Counts answers and their latency.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    since: Time,
    bytes: u64,
    latency_ns: Histogram<u64>,
}

impl Meter {
    pub fn new() -> Meter {
        let latency_ns =
            Histogram::new_with_bounds(1, 1_000_000_000_000, 3).expect("constants are within bounds");
        Meter { since: Time::ZERO, bytes: 0, latency_ns }
    }
    /// Counts from here on.
    pub fn restart(&mut self, now: Time) {
        self.since = now;
        self.bytes = 0;
        self.latency_ns.reset();
    }
    /// What several loads met together, since the first of them was restarted.
    pub fn of_all(loads: &[Plain]) -> Meter {
        let mut all =
            Meter { since: loads.first().map_or(Time::ZERO, |load| load.meter.since), ..Meter::new() };
        for load in loads {
            all.bytes += load.meter.bytes;
            all.latency_ns.add(&load.meter.latency_ns).expect("histograms have the same bounds");
        }
        all
    }
    pub fn count(&mut self, latency: Span, bytes: u64) {
        self.bytes += bytes;
        self.latency_ns.saturating_record(latency.0);
    }
    pub fn per_s(&self, now: Time) -> f64 {
        self.latency_ns.len() as f64 / now.since(self.since).as_secs_f64()
    }
    /// 10^6 bytes.
    pub fn mb_per_s(&self, now: Time) -> f64 {
        self.bytes as f64 / now.since(self.since).as_secs_f64() / 1e6
    }
    pub fn mean_us(&self) -> f64 {
        self.latency_ns.mean() / 1e3
    }
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.latency_ns.value_at_quantile(quantile) as f64 / 1e3
    }
}

/// Where commands go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Uniformly random, aligned to the command's size.
    Random,
    /// From end to end, again and again.
    Sequential,
}

/// When commands come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// So many are always under way.
    Depth(usize),
    /// So many arrive per second, with exponential gaps, whatever is under way.
    PerSecond(f64),
}

/// Commands that come by themselves, as from many hosts that know nothing of each other.
#[derive(Default)]
pub(super) struct Arrivals {
    /// That were due and not given.
    arrived: VecDeque<Time>,
    pub next: Time,
}

impl Arrivals {
    /// They begin here; what came before is forgotten.
    pub fn begin(&mut self, now: Time) {
        self.arrived.clear();
        self.next = now;
    }

    /// Those of so many per second that are due by now: `take` gives them.
    pub fn come(&mut self, per_s: f64, now: Time, random: &mut Xoshiro256PlusPlus) {
        while self.next <= now {
            self.arrived.push_back(self.next);
            let gap = -(1.0 - random.random_range(0.0..1.0f64)).ln() / per_s * 1e9;
            self.next += Span(gap.max(1.0) as u64);
        }
    }

    /// When the oldest one that nobody has taken was due.
    pub fn take(&mut self) -> Option<Time> {
        self.arrived.pop_front()
    }
}

/// Commands of one kind and size.
pub(super) struct Plain {
    kind: Kind,
    blocks: u32,
    order: Order,
    pace: Pace,
    lbas: u64,
    random: Xoshiro256PlusPlus,
    cursor: u64,
    /// When each command under way was due; its tag is its place.
    due: Vec<Time>,
    free: Vec<u64>,
    arrivals: Arrivals,
    pub meter: Meter,
    /// Blocks answered since the beginning.
    pub blocks_done: u64,
}

impl Plain {
    pub fn new(kind: Kind, blocks: u32, order: Order, pace: Pace, lbas: u64, seed: u64) -> Plain {
        Plain {
            kind,
            blocks,
            order,
            pace,
            lbas,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            cursor: 0,
            due: Vec::new(),
            free: Vec::new(),
            arrivals: Arrivals::default(),
            meter: Meter::new(),
            blocks_done: 0,
        }
    }

    /// Nothing, ever.
    pub fn idle() -> Plain {
        Plain::new(Kind::Read, 1, Order::Random, Pace::Depth(0), 1, 0)
    }

    /// Paced arrivals begin here.
    pub fn begin(&mut self, now: Time) {
        self.arrivals.begin(now);
    }

    fn give(&mut self, due: Time) -> Io {
        let places = self.lbas / u64::from(self.blocks);
        let place = match self.order {
            Order::Random => self.random.random_range(0..places),
            Order::Sequential => {
                self.cursor += 1;
                (self.cursor - 1) % places
            }
        };
        let tag = self.free.pop().unwrap_or_else(|| {
            self.due.push(due);
            self.due.len() as u64 - 1
        });
        self.due[tag as usize] = due;
        Io { kind: self.kind, first_lba: place * u64::from(self.blocks), lba_count: self.blocks, tag }
    }
}

impl Workload for Plain {
    fn next(&mut self, now: Time) -> Option<Io> {
        match self.pace {
            Pace::Depth(depth) => (self.due.len() - self.free.len() < depth).then(|| self.give(now)),
            Pace::PerSecond(rate) => {
                self.arrivals.come(rate, now, &mut self.random);
                let due = self.arrivals.take()?;
                Some(self.give(due))
            }
        }
    }

    fn wakes_at(&self) -> Time {
        match self.pace {
            Pace::Depth(_) => Time::NEVER,
            Pace::PerSecond(_) => self.arrivals.next,
        }
    }

    fn answered(&mut self, tag: u64, now: Time) {
        self.free.push(tag);
        self.blocks_done += u64::from(self.blocks);
        self.meter.count(now.since(self.due[tag as usize]), u64::from(self.blocks) * 4096);
    }
}
