//! Four sequential writers beside random reads: zones against drives with a cleaner.

use super::plot::{Content, Plot};
use super::report::{Cell, Comparison, Table};
use super::stage::Ground;
use super::zns_drives::{DRIVES, Drive, Reads, Used};
use super::{Experiment, Findings, Progress, Published, Request};
use crate::isolation::summary::Estimate;
use diecut_units::Span;

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

fn ground(seed: u64, quick: bool) -> Ground {
    let (blocks, pages) = if quick { (96, 4) } else { (512, 16) };
    Ground::of(2, blocks, pages, seed)
}

const READS: Reads = Reads { depth: 1, lbas: 1, is_sequential: false };

/// A drive that was filled, then overwritten at random.
struct Steady {
    used: Used,
    quick: bool,
}

impl Steady {
    fn new(drive: Drive, seed: u64, quick: bool) -> Result<Steady, String> {
        let mut used = Used::filled(drive, &ground(seed, quick), 2, WRITERS, WRITE_LBAS)?;
        used.write(if quick { used.drive_lbas / 2 } else { 2 * used.drive_lbas });
        Ok(Steady { used, quick })
    }

    /// Throughput at most, MB/s, and write amplification.
    fn throughput(&mut self) -> (f64, f64) {
        let lbas = self.used.drive_lbas;
        self.used.throughput(if self.quick { lbas / 4 } else { lbas })
    }

    /// Reads beside so many MB/s of writes; what was written of that, and mean and p99.9 of reads.
    fn reads(&mut self, mb_per_s: f64) -> [f64; 3] {
        let writes_per_s = mb_per_s * 1e6 / f64::from(WRITE_LBAS * 4096);
        let part_ms = if self.quick { 20 } else { 1000 };
        // What came before is programmed and cleaned first; then the new rate becomes steady; then it is measured.
        for (writes_per_s, reads, parts) in
            [(0.0, None, 1), (writes_per_s, Some(READS), 1), (writes_per_s, Some(READS), 4)]
        {
            self.used.load.begin(Some(writes_per_s), reads, self.used.stage.now);
            self.used.run_for(Span::from_millis(parts * part_ms));
        }
        let Used { load, stage, .. } = &self.used;
        let (written, read) = (&load.written, &load.read);
        [written.mb_per_s(stage.now), read.mean_us(), read.quantile_us(0.999)]
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
        let mut steady = Steady::new(drive, seed, quick)?;
        progress(&format!("seed {seed}, {name}: filled and overwritten"));
        let (mb_per_s, waf) = steady.throughput();
        let over_provisioning =
            if drive == Drive::Zoned { 0.0 } else { steady.used.stage.over_provisioning(0) };
        let over_provisioning_percent = over_provisioning * 100.0;
        drives.push((steady, Outcome { mb_per_s, waf, over_provisioning_percent, reads: Vec::new() }));
        progress(&format!("seed {seed}, {name}: {mb_per_s:.0} MB/s"));
    }
    let zoned_mb_per_s = drives[2].1.mb_per_s;
    for ((steady, outcome), (_, name)) in drives.iter_mut().zip(DRIVES) {
        for rate in RATES {
            outcome.reads.push(steady.reads(rate * zoned_mb_per_s));
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
