//! Drives with zones and drives with a cleaner, written in ranges: what experiments about zones share.

use super::loads::{Arrivals, Meter};
use super::stage::{Ground, Io, Kind, Part, Stage, Workload};
use diecut_spec::{Isolation, Serves};
use diecut_units::{Span, Time};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drive {
    /// With so much over-provisioning, in thousandths.
    Conventional(u32),
    Zoned,
}

/// With little room for a cleaner, with much, and without one.
pub(super) const DRIVES: [(Drive, &str); 3] =
    [(Drive::Conventional(70), "7 %"), (Drive::Conventional(280), "28 %"), (Drive::Zoned, "zones")];

impl Drive {
    /// A vSSD of so many channels that is this drive.
    pub fn part(self, channels: u32) -> Part {
        let whole = Part::new(Isolation::Channel, channels);
        match self {
            Drive::Zoned => Part { serves: Serves::Zones, ..whole },
            Drive::Conventional(over_provisioning_permille) => Part { over_provisioning_permille, ..whole },
        }
    }
}

/// Where ranges lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranges {
    pub count: u64,
    pub lbas: u64,
    /// From the start of one to that of the next one.
    stride_lbas: u64,
    is_zoned: bool,
}

/// Which range a writer takes when it has filled one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextRange {
    /// Any that nobody writes.
    Random,
    /// The one behind the last that a writer took, from end to end again and again.
    InOrder,
}

struct Writer {
    range: u64,
    written_lbas: u64,
    is_under_way: bool,
    is_reset: bool,
    due: Time,
}

/// Reads that are always under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reads {
    pub depth: usize,
    pub lbas: u32,
    /// From the start of a range to its end, and so on with another one; else anywhere.
    pub is_sequential: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    due: Option<Time>,
    range: u64,
    at: u64,
}

/// Writers, each of which fills ranges with one command under way, and readers beside them, one load.
pub(super) struct Load {
    ranges: Ranges,
    next_range: NextRange,
    last_taken: u64,
    write_lbas: u32,
    writers: Vec<Writer>,
    /// The first of them, which write now.
    active: usize,
    /// Ranges to take before any is drawn: the first fill.
    first: VecDeque<u64>,
    /// Writes per second; `None`: each writer has one under way.
    writes_per_s: Option<f64>,
    arrivals: Arrivals,
    reads: Option<Reads>,
    readers: Vec<Reader>,
    random: Xoshiro256PlusPlus,
    pub written: Meter,
    pub read: Meter,
    pub lbas_written: u64,
}

/// Tags from here on are of readers.
const TAG_READ: u64 = 1 << 32;

impl Load {
    pub fn new(ranges: Ranges, writers: usize, write_lbas: u32, seed: u64) -> Load {
        let mut first: VecDeque<u64> = (0..ranges.count).collect();
        let active = writers;
        let writers = first.drain(..writers).map(|range| Writer {
            range,
            written_lbas: 0,
            is_under_way: false,
            is_reset: true,
            due: Time::ZERO,
        });
        Load {
            ranges,
            next_range: NextRange::Random,
            last_taken: ranges.count - 1,
            write_lbas,
            writers: writers.collect(),
            active,
            first,
            writes_per_s: None,
            arrivals: Arrivals::default(),
            reads: None,
            readers: Vec::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            written: Meter::new(),
            read: Meter::new(),
            lbas_written: 0,
        }
    }

    fn is_written(&self, range: u64) -> bool {
        self.writers.iter().any(|writer| writer.range == range)
    }

    /// A range that nobody writes.
    fn draw(&mut self) -> u64 {
        loop {
            let range = self.random.random_range(0..self.ranges.count);
            if !self.is_written(range) {
                return range;
            }
        }
    }

    fn take_range(&mut self) -> u64 {
        if let Some(range) = self.first.pop_front() {
            return range;
        }
        if self.next_range == NextRange::Random {
            return self.draw();
        }
        loop {
            self.last_taken = (self.last_taken + 1) % self.ranges.count;
            if !self.is_written(self.last_taken) {
                return self.last_taken;
            }
        }
    }

    fn next_of(&mut self, index: usize, due: Time) -> Io {
        if self.writers[index].written_lbas >= self.ranges.lbas {
            let range = self.take_range();
            let writer = &mut self.writers[index];
            (writer.range, writer.written_lbas, writer.is_reset) = (range, 0, !self.ranges.is_zoned);
        }
        let writer = &mut self.writers[index];
        let (start, tag) = (writer.range * self.ranges.stride_lbas, index as u64);
        (writer.is_under_way, writer.due) = (true, due);
        if !writer.is_reset {
            return Io { kind: Kind::ResetZone, first_lba: start, lba_count: 0, tag };
        }
        let left = self.ranges.lbas - writer.written_lbas;
        let lba_count = left.min(self.write_lbas.into()) as u32;
        Io { kind: Kind::Write, first_lba: start + writer.written_lbas, lba_count, tag }
    }

    fn next_read(&mut self, slot: usize, reads: Reads, now: Time) -> Io {
        let mut reader = self.readers[slot];
        let last = self.ranges.lbas - u64::from(reads.lbas);
        if !reads.is_sequential {
            (reader.range, reader.at) = (self.draw(), self.random.random_range(0..=last));
        } else if reader.at > last || self.is_written(reader.range) {
            (reader.range, reader.at) = (self.draw(), 0);
        }
        let first_lba = reader.range * self.ranges.stride_lbas + reader.at;
        if reads.is_sequential {
            reader.at += u64::from(reads.lbas);
        }
        reader.due = Some(now);
        self.readers[slot] = reader;
        Io { kind: Kind::Read, first_lba, lba_count: reads.lbas, tag: TAG_READ + slot as u64 }
    }

    /// The first so many writers go on, and the others do not.
    pub fn let_write(&mut self, writers: usize) {
        self.active = writers;
    }

    /// Another rate of writes, and other reads; figures begin here. `None`: each writer has one write under way; nobody reads.
    pub fn begin(&mut self, writes_per_s: Option<f64>, reads: Option<Reads>, now: Time) {
        self.writes_per_s = writes_per_s;
        if self.reads != reads {
            self.reads = reads;
            // Those under way keep their places, and are counted when they end.
            let depth = reads.map_or(0, |reads| reads.depth).max(self.readers.len());
            self.readers.resize(depth, Reader { at: u64::MAX, ..Reader::default() });
        }
        self.arrivals.begin(now);
        self.written.restart(now);
        self.read.restart(now);
    }
}

impl Workload for Load {
    fn next(&mut self, now: Time) -> Option<Io> {
        if let Some(reads) = self.reads {
            let idle = self.readers[..reads.depth].iter().position(|reader| reader.due.is_none());
            if let Some(slot) = idle {
                return Some(self.next_read(slot, reads, now));
            }
        }
        if let Some(rate) = self.writes_per_s.filter(|rate| *rate > 0.0) {
            self.arrivals.come(rate, now, &mut self.random);
        }
        let mut due = now;
        // A reset is a step of a write that has arrived, so its writer goes on first.
        let resumed = self.writers.iter().position(|writer| !writer.is_under_way && writer.due > Time::ZERO);
        if let Some(index) = resumed {
            due = std::mem::replace(&mut self.writers[index].due, Time::ZERO);
            return Some(self.next_of(index, due));
        }
        let idle = self.writers[..self.active].iter().position(|writer| !writer.is_under_way)?;
        if self.writes_per_s.is_some() {
            due = self.arrivals.take()?;
        }
        Some(self.next_of(idle, due))
    }

    fn wakes_at(&self) -> Time {
        let is_paced = self.writes_per_s.is_some_and(|rate| rate > 0.0);
        if is_paced { self.arrivals.next } else { Time::NEVER }
    }

    fn answered(&mut self, tag: u64, now: Time) {
        if tag >= TAG_READ {
            let due = self.readers[(tag - TAG_READ) as usize].due.take().expect("it was given");
            let lbas = self.reads.map_or(0, |reads| reads.lbas);
            self.read.count(now.since(due), u64::from(lbas) * 4096);
            return;
        }
        let writer = &mut self.writers[tag as usize];
        writer.is_under_way = false;
        if !writer.is_reset {
            // The write that needed it goes on, with its time.
            writer.is_reset = true;
            return;
        }
        let lbas = (self.ranges.lbas - writer.written_lbas).min(self.write_lbas.into());
        writer.written_lbas += lbas;
        self.lbas_written += lbas;
        self.written.count(now.since(writer.due), lbas * 4096);
        writer.due = Time::ZERO;
    }
}

/// A drive with its writers and readers.
pub(super) struct Used {
    pub stage: Stage,
    pub load: Load,
    /// Of all ranges.
    pub drive_lbas: u64,
}

impl Used {
    /// The drive as one vSSD of so many channels, filled once from its start to its end. A range is as large as a zone: an erase block on each
    /// unit.
    pub fn filled(
        drive: Drive,
        ground: &Ground,
        channels: u32,
        writers: usize,
        write_lbas: u32,
    ) -> Result<Used, String> {
        let mut stage = Stage::new(ground, &[drive.part(channels)])?;
        let ranges = if drive == Drive::Zoned {
            let (count, lbas) = stage.create_zones(0)?;
            Ranges { count, lbas, stride_lbas: lbas.next_power_of_two(), is_zoned: true }
        } else {
            let lbas = stage.segment_lbas(0);
            let count = stage.exported_lbas()[0] / lbas;
            stage.create_volume(0, count * lbas)?;
            Ranges { count, lbas, stride_lbas: lbas, is_zoned: false }
        };
        let drive_lbas = ranges.count * ranges.lbas;
        let load = Load::new(ranges, writers, write_lbas, ground.seed);
        let mut used = Used { stage, load, drive_lbas };
        used.write(drive_lbas);
        Ok(used)
    }

    /// How writers go on.
    pub fn take_ranges(&mut self, next_range: NextRange) {
        self.load.next_range = next_range;
    }

    /// Until so many more logical blocks are written.
    pub fn write(&mut self, lbas: u64) {
        let end = self.load.lbas_written + lbas;
        while self.load.lbas_written < end {
            self.run_for(Span::from_millis(1));
        }
    }

    pub fn run_for(&mut self, length: Span) {
        let until = self.stage.now + length;
        self.stage.run(&mut [&mut self.load], until);
    }

    /// Writes as fast as writers can, so many logical blocks: MB/s, and write amplification.
    pub fn throughput(&mut self, lbas: u64) -> (f64, f64) {
        let before = self.stage.written()[0];
        let start = self.load.lbas_written;
        self.load.begin(None, None, self.stage.now);
        self.write(lbas);
        let after = self.stage.written()[0];
        let host_bytes = (self.load.lbas_written - start) as f64 * 4096.0;
        let programmed_bytes = (after.programmed_bytes - before.programmed_bytes) as f64;
        (self.load.written.mb_per_s(self.stage.now), programmed_bytes / host_bytes)
    }
}
