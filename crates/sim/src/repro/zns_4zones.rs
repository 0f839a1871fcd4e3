//! Four sequential writers beside random reads: zones against drives with a cleaner.

use super::loads::{Arrivals, Meter};
use super::plot::{Content, Plot};
use super::report::{Cell, Comparison, Table};
use super::stage::{Ground, Io, Kind, Part, Stage, Workload};
use super::{Experiment, Findings, Progress, Published, Request};
use crate::isolation::summary::Estimate;
use diecut_spec::{Isolation, Serves};
use diecut_units::{Span, Time};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "zns-4zones",
    question: "What do four sequential writers, and random reads beside them, gain if the drive has zones and no cleaner?",
    source: "ZNS: Avoiding the Block Interface Tax for Flash-based SSDs (USENIX ATC'21), measurements without a file system",
    set_up: "One device, 2 channels of cnex-1tb with 512 blocks per plane of 16 pages, as one vSSD: with 7 % over-provisioning, with 28 %, or \
             zoned. Four writers, 64 KiB each, one under way: each fills a range from its start to its end, then draws the next one among those \
             that nobody writes. A range is as large as a zone, and a zone is an erase block on each of the 8 units. A zone is reset before \
             it is written again; ranges of the others are overwritten. First the whole drive is filled, then overwritten twice. Reads: 4 KiB, \
             one under way, from ranges that nobody writes, while writes arrive at 0, 5, 15 and 30 % of what the zoned drive writes at most \
             (the paper's 50, 150 and 300 MiB/s of 1,010).",
    differs: &[
        "How the paper's writers choose their next range is not published; a random choice gives the cleaner work, an order that repeats gives \
         it none.",
        "The paper's drives share a hardware platform; here the same emulated device stands under this log and under zones.",
        "The device has 2 channels, and ranges are 8 MiB. The paper's are 2 GiB, and its drives write segments of up to 128 dies.",
        "Over-provisioning is what the set-up says; what of it is left for the cleaner is in the table. Commands cost no processor time.",
        "A reader's latency has no network and no host in it.",
    ],
    published: &[
        Published {
            figure: "steady throughput of writes, MiB/s: 7 %, 28 %, zones",
            value: "370, 590, 1,010",
        },
        Published { figure: "zones over 28 % and over 7 %", value: "1.7 and 2.7 times" },
        Published { figure: "mean of reads without writes", value: "85 us on all three" },
        Published {
            figure: "mean of reads with zones, below 28 % and 7 %",
            value: "5 and 19 % at 50 MiB/s, 16 and 45 % at 150, 27 and 64 % at 300",
        },
    ],
    run,
};

const WRITERS: usize = 4;
const WRITE_LBAS: u32 = 16;
/// Shares of the zoned drive's throughput.
const RATES: [f64; 4] = [0.0, 0.05, 0.15, 0.3];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drive {
    Conventional(u32),
    Zoned,
}

const DRIVES: [(Drive, &str); 3] =
    [(Drive::Conventional(70), "7 %"), (Drive::Conventional(280), "28 %"), (Drive::Zoned, "zones")];

/// Where ranges lie.
#[derive(Clone, Copy, Debug)]
struct Ranges {
    count: u64,
    lbas: u64,
    /// From the start of one to that of the next one.
    stride_lbas: u64,
    is_zoned: bool,
}

struct Writer {
    range: u64,
    written_lbas: u64,
    is_under_way: bool,
    is_reset: bool,
    due: Time,
}

/// The writers and the reader, one load.
struct Load {
    ranges: Ranges,
    writers: Vec<Writer>,
    /// Ranges to take before any is drawn: the first fill.
    first: VecDeque<u64>,
    /// Writes per second; `None`: each writer has one under way.
    writes_per_s: Option<f64>,
    arrivals: Arrivals,
    reads: bool,
    read_due: Option<Time>,
    random: Xoshiro256PlusPlus,
    written: Meter,
    read: Meter,
    lbas_written: u64,
}

const TAG_READ: u64 = WRITERS as u64;

impl Load {
    fn new(ranges: Ranges, seed: u64) -> Load {
        let mut first: VecDeque<u64> = (0..ranges.count).collect();
        let writers = first.drain(..WRITERS).map(|range| Writer {
            range,
            written_lbas: 0,
            is_under_way: false,
            is_reset: true,
            due: Time::ZERO,
        });
        Load {
            ranges,
            writers: writers.collect(),
            first,
            writes_per_s: None,
            arrivals: Arrivals::default(),
            reads: false,
            read_due: None,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            written: Meter::new(),
            read: Meter::new(),
            lbas_written: 0,
        }
    }

    /// A range that nobody writes.
    fn draw(&mut self) -> u64 {
        loop {
            let range = self.random.random_range(0..self.ranges.count);
            if self.writers.iter().all(|writer| writer.range != range) {
                return range;
            }
        }
    }

    fn next_of(&mut self, index: usize, due: Time) -> Io {
        if self.writers[index].written_lbas >= self.ranges.lbas {
            let range = match self.first.pop_front() {
                Some(range) => range,
                None => self.draw(),
            };
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
        let lba_count = left.min(WRITE_LBAS.into()) as u32;
        Io { kind: Kind::Write, first_lba: start + writer.written_lbas, lba_count, tag }
    }

    fn next_read(&mut self, now: Time) -> Io {
        self.read_due = Some(now);
        let first_lba = self.draw() * self.ranges.stride_lbas + self.random.random_range(0..self.ranges.lbas);
        Io { kind: Kind::Read, first_lba, lba_count: 1, tag: TAG_READ }
    }

    fn begin(&mut self, writes_per_s: Option<f64>, reads: bool, now: Time) {
        (self.writes_per_s, self.reads) = (writes_per_s, reads);
        self.arrivals.begin(now);
        self.written.restart(now);
        self.read.restart(now);
    }
}

impl Workload for Load {
    fn next(&mut self, now: Time) -> Option<Io> {
        if self.reads && self.read_due.is_none() {
            return Some(self.next_read(now));
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
        let idle = self.writers.iter().position(|writer| !writer.is_under_way)?;
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
        if tag == TAG_READ {
            let due = self.read_due.take().expect("it was given");
            self.read.count(now.since(due), 4096);
            return;
        }
        let writer = &mut self.writers[tag as usize];
        writer.is_under_way = false;
        if !writer.is_reset {
            // The write that needed it goes on, with its time.
            writer.is_reset = true;
            return;
        }
        let lbas = (self.ranges.lbas - writer.written_lbas).min(WRITE_LBAS.into());
        writer.written_lbas += lbas;
        self.lbas_written += lbas;
        self.written.count(now.since(writer.due), lbas * 4096);
        writer.due = Time::ZERO;
    }
}

fn ground(seed: u64, quick: bool) -> Ground {
    let (blocks, pages) = if quick { (96, 4) } else { (512, 16) };
    Ground::of(2, blocks, pages, seed)
}

/// A drive that was filled, then overwritten at random.
struct Used {
    stage: Stage,
    load: Load,
    drive_lbas: u64,
    quick: bool,
}

impl Used {
    fn new(drive: Drive, seed: u64, quick: bool) -> Result<Used, String> {
        let whole = Part::new(Isolation::Channel, 2);
        let part = match drive {
            Drive::Zoned => Part { serves: Serves::Zones, ..whole },
            Drive::Conventional(over_provisioning_permille) => Part { over_provisioning_permille, ..whole },
        };
        let mut stage = Stage::new(&ground(seed, quick), &[part])?;
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
        let mut used = Used { stage, load: Load::new(ranges, seed), drive_lbas, quick };
        used.write(drive_lbas);
        used.write(if quick { drive_lbas / 2 } else { 2 * drive_lbas });
        Ok(used)
    }

    /// Until so many more logical blocks are written.
    fn write(&mut self, lbas: u64) {
        let end = self.load.lbas_written + lbas;
        while self.load.lbas_written < end {
            let until = self.stage.now + Span::from_millis(1);
            self.stage.run(&mut [&mut self.load], until);
        }
    }

    /// Throughput at most, MB/s, and write amplification.
    fn throughput(&mut self) -> (f64, f64) {
        let before = self.stage.written()[0];
        let start = self.load.lbas_written;
        self.load.begin(None, false, self.stage.now);
        self.write(if self.quick { self.drive_lbas / 4 } else { self.drive_lbas });
        let after = self.stage.written()[0];
        let host_bytes = (self.load.lbas_written - start) as f64 * 4096.0;
        let programmed_bytes = (after.programmed_bytes - before.programmed_bytes) as f64;
        (self.load.written.mb_per_s(self.stage.now), programmed_bytes / host_bytes)
    }

    /// Reads beside so many MB/s of writes; what was written of that, and mean and p99.9 of reads.
    fn reads(&mut self, mb_per_s: f64) -> [f64; 3] {
        let writes_per_s = mb_per_s * 1e6 / f64::from(WRITE_LBAS * 4096);
        let part_ms = if self.quick { 20 } else { 1000 };
        // What came before is programmed and cleaned first; then the new rate becomes steady; then it is measured.
        for (writes_per_s, reads, parts) in
            [(0.0, false, 1), (writes_per_s, true, 1), (writes_per_s, true, 4)]
        {
            self.load.begin(Some(writes_per_s), reads, self.stage.now);
            let until = self.stage.now + Span::from_millis(parts * part_ms);
            self.stage.run(&mut [&mut self.load], until);
        }
        let (written, read) = (&self.load.written, &self.load.read);
        [written.mb_per_s(self.stage.now), read.mean_us(), read.quantile_us(0.999)]
    }
}

/// What one drive did with one seed.
#[derive(Clone, Debug, Default)]
struct Outcome {
    mb_per_s: f64,
    waf: f64,
    over_provisioning_percent: f64,
    /// For each of [`RATES`]: MB/s written, mean and p99.9 of reads.
    reads: Vec<[f64; 3]>,
}

fn measure(seed: u64, quick: bool, progress: Progress) -> Result<Vec<Outcome>, String> {
    let mut drives = Vec::new();
    for (drive, name) in DRIVES {
        let mut used = Used::new(drive, seed, quick)?;
        progress(&format!("seed {seed}, {name}: filled and overwritten"));
        let (mb_per_s, waf) = used.throughput();
        let over_provisioning = if drive == Drive::Zoned { 0.0 } else { used.stage.over_provisioning(0) };
        let over_provisioning_percent = over_provisioning * 100.0;
        drives.push((used, Outcome { mb_per_s, waf, over_provisioning_percent, reads: Vec::new() }));
        progress(&format!("seed {seed}, {name}: {mb_per_s:.0} MB/s"));
    }
    let zoned_mb_per_s = drives[2].1.mb_per_s;
    for ((used, outcome), (_, name)) in drives.iter_mut().zip(DRIVES) {
        for rate in RATES {
            outcome.reads.push(used.reads(rate * zoned_mb_per_s));
        }
        progress(&format!("seed {seed}, {name}: read"));
    }
    Ok(drives.into_iter().map(|(_, outcome)| outcome).collect())
}

fn run(request: &Request, progress: Progress) -> Result<Findings, String> {
    let seeds: Result<Vec<Vec<Outcome>>, String> =
        (1..=request.seeds).map(|seed| measure(seed, request.quick, progress)).collect();
    let seeds = seeds?;
    let values = |drive: usize, figure: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
        seeds.iter().map(|drives| figure(&drives[drive])).collect()
    };
    // Within a seed, so that what differs between devices falls out.
    let ratio = |one: usize, other: usize, figure: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
        seeds.iter().map(|drives| figure(&drives[one]) / figure(&drives[other])).collect()
    };
    let columns = ["drive", "over-provisioning, effective_percent", "throughput_mb_per_s", "waf"];
    let mut writes = Table::new("Four writers, nothing else", &columns);
    let columns = [
        "drive",
        "writes asked for, share of zones' most_percent",
        "written_mb_per_s",
        "mean of reads_us",
        "p99.9 of reads_us",
    ];
    let mut reads = Table::new("Reads beside four writers", &columns);
    for (at, (_, name)) in DRIVES.iter().enumerate() {
        writes.rows.push(vec![
            Cell::text(*name),
            Cell::over(&values(at, &|one| one.over_provisioning_percent), 1),
            Cell::over(&values(at, &|one| one.mb_per_s), 0),
            Cell::over(&values(at, &|one| one.waf), 2),
        ]);
        for (step, rate) in RATES.iter().enumerate() {
            let of = |part: usize| Cell::over(&values(at, &|one| one.reads[step][part]), 0);
            reads.rows.push(vec![Cell::text(*name), Cell::Number(rate * 100.0, 0), of(0), of(1), of(2)]);
        }
    }
    let mut findings = Findings::default();
    let mut compare = |figure: String, published: &str, measured: Cell| {
        findings.comparisons.push(Comparison::new(figure, published, measured));
    };
    for (other, published) in [(1, "1.7"), (0, "2.7")] {
        let figure = format!("throughput of writes, zones over {}", DRIVES[other].1);
        compare(figure, published, Cell::over(&ratio(2, other, &|one| one.mb_per_s), 2));
    }
    let published = [["0", "0"], ["5 %", "19 %"], ["16 %", "45 %"], ["27 %", "64 %"]];
    for (step, rate) in RATES.iter().enumerate() {
        for other in [1, 0] {
            let less = ratio(2, other, &|one| one.reads[step][1]);
            // In whole percent: a hundredth less than nothing is not "-0".
            let less: Vec<f64> =
                less.into_iter().map(|ratio| ((1.0 - ratio) * 100.0).round() + 0.0).collect();
            let figure = format!(
                "mean of reads with zones, below {}, writes at {:.0} %",
                DRIVES[other].1,
                rate * 100.0
            );
            compare(figure, published[step][1 - other], Cell::text(format!("{} %", Cell::over(&less, 0))));
        }
    }
    findings.notes.push(
        "What a drive with a cleaner writes is the zoned drive's throughput over its write amplification, if nothing else limits it. Four \
         ranges share a segment, and the cleaner copies what is left of it when one of them is written anew."
            .into(),
    );
    findings.tables.extend([writes, reads]);
    findings.plots.push(Plot {
        title: "Throughput of four writers".into(),
        x_label: String::new(),
        y_label: "MB/s".into(),
        logarithmic: false,
        content: Content::Bars {
            groups: DRIVES.iter().map(|(_, name)| (*name).to_owned()).collect(),
            series: vec![(
                "64 KiB writes".into(),
                (0..DRIVES.len()).map(|at| Estimate::of(&values(at, &|one| one.mb_per_s))).collect(),
            )],
        },
        references: Vec::new(),
    });
    let bars = |at: usize| {
        let step = |step: usize| Estimate::of(&values(at, &|one| one.reads[step][1]));
        (DRIVES[at].1.to_owned(), (0..RATES.len()).map(step).collect())
    };
    findings.plots.push(Plot {
        title: "Mean of 4 KiB reads".into(),
        x_label: "writes, share of what zones take at most".into(),
        y_label: "us".into(),
        logarithmic: false,
        content: Content::Bars {
            groups: RATES.iter().map(|rate| format!("{:.0} %", rate * 100.0)).collect(),
            series: (0..DRIVES.len()).map(bars).collect(),
        },
        references: Vec::new(),
    });
    Ok(findings)
}
