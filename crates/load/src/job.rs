//! When a job issues which command.

use crate::counts::DirectionCounts;
use crate::spec::{Arrival, LoadSpec, Pattern, Region, SpecError};
use crate::zipf::Zipf;
use diecut_nvme::Status;
use diecut_units::{Span, Time};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A command to issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Comes back with [`Job::completed`]; below the depth.
    pub slot: u16,
    /// A read, else a write.
    pub is_read: bool,
    /// First LBA.
    pub first_lba: u64,
    /// LBAs.
    pub lba_count: u32,
}

/// A job: pure state. See the crate's documentation.
pub struct Job {
    spec: LoadSpec,
    region: Region,
    random: Xoshiro256PlusPlus,
    zipf: Option<Zipf>,
    next_block: u64,
    /// When the next command is due.
    due: Time,
    /// Nanoseconds between two, exact: a rounded one would drift.
    due_exact_ns: f64,
    counted_from: Time,
    end: Time,
    /// Everything was issued; the next batch is awaited.
    gathering: bool,
    /// Commands that may still be issued.
    left: u64,
    /// When the last command ended.
    last_end: Time,
    /// By slot: when the command was due or issued, and whether it reads.
    started: Vec<(Time, bool)>,
    free: Vec<u16>,
    pub(crate) reads: DirectionCounts,
    pub(crate) writes: DirectionCounts,
}

impl Job {
    /// Job `number` of a load on a namespace of `size_lbas` blocks of `lba_bytes`, beginning at `start`.
    ///
    /// # Errors
    /// What of the load cannot be.
    pub fn new(
        spec: &LoadSpec,
        number: u16,
        size_lbas: u64,
        lba_bytes: u32,
        start: Time,
    ) -> Result<Job, SpecError> {
        let region = spec.region(size_lbas, lba_bytes)?;
        let counted_from = start + Span(spec.ramp_ns);
        let seed = spec.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(u64::from(number));
        let mut job = Job {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            zipf: match spec.pattern {
                Pattern::Zipf(theta) => Some(Zipf::new(region.blocks, theta)),
                Pattern::Sequential | Pattern::Random => None,
            },
            next_block: region.blocks / u64::from(spec.jobs.max(1)) * u64::from(number) % region.blocks,
            due: start,
            due_exact_ns: start.0 as f64,
            counted_from,
            end: counted_from + Span(spec.runtime_ns),
            gathering: false,
            left: if spec.operations_max == 0 { u64::MAX } else { spec.operations_max },
            last_end: start,
            started: vec![(Time::ZERO, false); usize::from(spec.depth)],
            free: (0..spec.depth).rev().collect(),
            reads: DirectionCounts::new(),
            writes: DirectionCounts::new(),
            spec: spec.clone(),
            region,
        };
        if let Arrival::Open(_) = spec.arrival {
            job.plan_next(start);
        }
        Ok(job)
    }

    /// The next command, if one is due and there is room for it.
    #[inline]
    pub fn next(&mut self, now: Time) -> Option<Operation> {
        if self.due > now || self.due >= self.end || now >= self.end || self.left == 0 {
            return None;
        }
        if self.gathering {
            let enough = self.free.len() >= usize::from(self.spec.batch) || self.under_way() == 0;
            if !enough {
                return None;
            }
        }
        let Some(slot) = self.free.pop() else {
            self.gathering = self.spec.batch > 1;
            return None;
        };
        self.gathering = false;
        self.left -= 1;
        let started = if let Arrival::Open(_) = self.spec.arrival { self.due } else { now };
        if self.spec.arrival != Arrival::Closed(None) {
            self.plan_next(now);
        }
        let is_read = match self.spec.read_percent {
            100 => true,
            0 => false,
            percent => self.random.random_range(0..100u8) < percent,
        };
        self.started[usize::from(slot)] = (started, is_read);
        let block = self.choose_block();
        let lbas = u64::from(self.region.lbas_per_block);
        Some(Operation {
            slot,
            is_read,
            first_lba: self.region.first_lba + block * lbas,
            lba_count: self.region.lbas_per_block,
        })
    }

    /// A command ended.
    ///
    /// # Panics
    /// If it is not under way.
    #[inline]
    pub fn completed(&mut self, slot: u16, now: Time, status: Status) {
        let (started, is_read) = self.started[usize::from(slot)];
        assert!(self.free.len() < self.started.len(), "a command ends once");
        self.free.push(slot);
        self.last_end = now;
        let counts = if is_read { &mut self.reads } else { &mut self.writes };
        if !status.is_success() {
            counts.errors += 1;
            counts.first_error.get_or_insert(status);
        } else if now >= self.counted_from && now < self.end {
            counts.record(now.since(started));
        }
    }

    /// Ends it at `now` if it would go on longer: nothing more is issued, and what completes later is not counted.
    pub fn end_at(&mut self, now: Time) {
        self.end = self.end.min(now);
    }

    /// Commands under way.
    pub fn under_way(&self) -> usize {
        self.started.len() - self.free.len()
    }

    /// Whether everything is over.
    pub fn is_done(&self, now: Time) -> bool {
        (now >= self.end || self.left == 0) && self.under_way() == 0
    }

    /// The counted time: all of it, or up to the last command of a job that issued all it may.
    pub(crate) fn counted(&self) -> Span {
        let until = if self.left == 0 { self.last_end.min(self.end) } else { self.end };
        until.max(self.counted_from).since(self.counted_from)
    }

    /// When the job wants to be asked again although nothing ended; [`Time::NEVER`] if it waits for completions.
    pub fn wake_at(&self) -> Time {
        if self.due >= self.end {
            self.end
        } else if self.free.is_empty() || self.left == 0 {
            Time::NEVER
        } else {
            self.due
        }
    }

    fn plan_next(&mut self, now: Time) {
        match self.spec.arrival {
            Arrival::Closed(None) => {}
            Arrival::Closed(Some(rate)) => {
                // What could not be issued in time is not made up for: the loop is closed.
                self.due_exact_ns = self.due_exact_ns.max(now.0 as f64 - 1e9 / rate) + 1e9 / rate;
            }
            Arrival::Open(rate) => {
                let uniform: f64 = self.random.random();
                self.due_exact_ns += -(1.0 - uniform).ln() * 1e9 / rate;
            }
        }
        self.due = Time(self.due_exact_ns as u64);
    }

    fn choose_block(&mut self) -> u64 {
        let blocks = self.region.blocks;
        match self.zipf {
            // Ranks are spread by a hash, or the hot ones would be neighbours.
            Some(zipf) => spread(zipf.sample(&mut self.random)) % blocks,
            None if self.spec.pattern == Pattern::Random => self.random.random_range(0..blocks),
            None => {
                let block = self.next_block;
                self.next_block = if block + 1 == blocks { 0 } else { block + 1 };
                block
            }
        }
    }
}

/// Finalizer of SplitMix64: equal ranks give equal blocks.
fn spread(rank: u64) -> u64 {
    let mut x = rank.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod test {
    use super::*;

    const SPEC: fn() -> LoadSpec =
        || LoadSpec { depth: 4, ramp_ns: 1000, runtime_ns: 1_000_000_000, ..LoadSpec::default() };

    fn job(spec: &LoadSpec) -> Job {
        Job::new(spec, 0, 1000, 4096, Time::ZERO).unwrap()
    }

    #[test]
    fn a_closed_loop_keeps_its_depth() {
        let mut job = job(&SPEC());
        let issued: Vec<u16> = std::iter::from_fn(|| job.next(Time(5))).map(|one| one.slot).collect();
        assert_eq!(issued, [0, 1, 2, 3]);
        assert_eq!(job.wake_at(), Time::NEVER);
        job.completed(2, Time(500), Status::SUCCESS);
        assert_eq!(job.reads.operations(), 0, "the ramp is not counted");
        assert_eq!(job.next(Time(2000)).map(|one| one.slot), Some(2));
        assert_eq!(job.next(Time(2000)), None);
        job.completed(2, Time(5000), Status::SUCCESS);
        job.completed(0, Time(6000), Status::WRITE_FAULT);
        assert_eq!((job.reads.operations(), job.reads.errors), (1, 1));
        assert!((2997..=3003).contains(&job.reads.latency.max()), "three digits");
        assert!(!job.is_done(Time(1_000_001_000)), "two are under way");
        assert_eq!(job.next(Time(1_000_001_000)), None, "nothing is issued after the end");
        job.completed(1, Time(1_000_001_000), Status::SUCCESS);
        job.completed(3, Time(1_000_001_000), Status::SUCCESS);
        assert_eq!(job.reads.operations(), 1, "what ends late is not counted");
        assert!(job.is_done(Time(1_000_001_000)));
    }

    /// One command is never answered for half a second: an open loop's later ones count the time they had to wait.
    #[test]
    fn an_open_loop_is_not_slowed_by_a_server_that_stands_still() {
        let spec = LoadSpec { depth: 1, arrival: Arrival::Open(1000.0), ramp_ns: 0, ..SPEC() };
        let mut job = job(&spec);
        let mut now = job.wake_at();
        let first = job.next(now).unwrap();
        now += Span::from_millis(500);
        job.completed(first.slot, now, Status::SUCCESS);
        let mut waited = 0;
        while job.wake_at() <= now {
            let one = job.next(now).unwrap();
            job.completed(one.slot, now, Status::SUCCESS);
            waited += 1;
        }
        assert!((350..650).contains(&waited), "{waited} were due meanwhile");
        assert!(job.reads.latency.value_at_quantile(0.5) > 150_000_000);
        // The same with a closed loop: what was not issued is not made up for.
        let spec = LoadSpec { arrival: Arrival::Closed(Some(1000.0)), ..spec };
        let mut job = Job::new(&spec, 0, 1000, 4096, Time::ZERO).unwrap();
        let first = job.next(Time(0)).unwrap();
        job.completed(first.slot, now, Status::SUCCESS);
        let mut made_up = 0;
        while let Some(one) = job.next(now) {
            job.completed(one.slot, now, Status::SUCCESS);
            made_up += 1;
        }
        assert!(made_up <= 2, "{made_up}");
    }

    #[test]
    fn a_rate_is_kept() {
        let spec = LoadSpec { arrival: Arrival::Closed(Some(30_000.0)), runtime_ns: 1_000_000_000, ..SPEC() };
        let mut job = job(&spec);
        let (mut now, mut issued) = (Time::ZERO, 0);
        while now < Time(1_000_000_000) {
            while let Some(one) = job.next(now) {
                job.completed(one.slot, now, Status::SUCCESS);
                issued += 1;
            }
            now = job.wake_at().max(Time(now.0 + 1));
        }
        assert!((29_990..=30_010).contains(&issued), "{issued}");
    }

    #[test]
    fn blocks_follow_the_pattern_and_stay_in_the_region() {
        let base = LoadSpec { block_bytes: 8192, offset_bytes: 40960, size_bytes: 81920, ..SPEC() };
        let blocks = |spec: &LoadSpec, number| {
            let mut job = Job::new(spec, number, 1000, 4096, Time::ZERO).unwrap();
            (0..200)
                .map(|_| {
                    let one = job.next(Time(1)).unwrap();
                    assert_eq!(one.lba_count, 2);
                    assert!((10..30).contains(&one.first_lba) && one.first_lba.is_multiple_of(2));
                    job.completed(one.slot, Time(1), Status::SUCCESS);
                    one.first_lba
                })
                .collect::<Vec<_>>()
        };
        let sequential = LoadSpec { pattern: Pattern::Sequential, jobs: 2, ..base.clone() };
        assert_eq!(blocks(&sequential, 0)[8..12], [26, 28, 10, 12]);
        assert_eq!(blocks(&sequential, 1)[..2], [20, 22], "the second job begins in the middle");
        let random = blocks(&base, 0);
        assert_eq!(random, blocks(&base, 0), "one seed, one run");
        assert_ne!(random, blocks(&base, 1));
        let zipf = blocks(&LoadSpec { pattern: Pattern::Zipf(1.5), ..base }, 0);
        let most = (10..30).map(|lba| zipf.iter().filter(|&&one| one == lba).count()).max().unwrap();
        assert!(most > 60, "the hottest block has {most} of 200");
    }

    #[test]
    fn a_batch_is_gathered_while_others_are_under_way() {
        let mut job = job(&LoadSpec { depth: 8, batch: 3, ..SPEC() });
        let issue = |job: &mut Job| std::iter::from_fn(|| job.next(Time(1))).count();
        assert_eq!(issue(&mut job), 8);
        for slot in 0..2 {
            job.completed(slot, Time(2), Status::SUCCESS);
            assert_eq!(issue(&mut job), 0, "fewer than a batch");
        }
        job.completed(2, Time(2), Status::SUCCESS);
        assert_eq!(issue(&mut job), 3);
        (0..8).for_each(|slot| job.completed(slot, Time(3), Status::SUCCESS));
        assert_eq!(issue(&mut job), 8);
        // With a batch of the whole depth everything must have come back.
        let mut job = Job::new(&LoadSpec { depth: 2, batch: 2, ..SPEC() }, 0, 10, 4096, Time::ZERO).unwrap();
        assert_eq!(issue(&mut job), 2);
        job.completed(0, Time(2), Status::SUCCESS);
        assert_eq!(issue(&mut job), 0);
        job.completed(1, Time(2), Status::SUCCESS);
        assert_eq!(issue(&mut job), 2);
    }

    #[test]
    fn a_job_ends_after_its_commands() {
        let mut job = job(&LoadSpec { operations_max: 3, ramp_ns: 0, ..SPEC() });
        for at in 1..=3 {
            let one = job.next(Time(at * 100)).unwrap();
            assert!(!job.is_done(Time(at * 100)));
            job.completed(one.slot, Time(at * 100 + 50), Status::SUCCESS);
        }
        assert_eq!(job.next(Time(400)), None);
        assert!(job.is_done(Time(400)));
        assert_eq!((job.counted(), job.wake_at()), (Span(350), Time::NEVER));
    }

    #[test]
    fn a_mix_is_a_mix() {
        let mut job = job(&LoadSpec { read_percent: 70, ..SPEC() });
        let mut reads = 0;
        for _ in 0..10_000 {
            let one = job.next(Time(2000)).unwrap();
            reads += u32::from(one.is_read);
            job.completed(one.slot, Time(2001), Status::SUCCESS);
        }
        assert!((6800..7200).contains(&reads), "{reads}");
        assert_eq!(u64::from(reads), job.reads.operations());
    }
}
