//! Two tenants of a data centre: one answers searches, one moves data in bulk.

use super::loads::{Order, Pace, Plain};
use super::plot::{Content, Plot};
use super::report::{Cell, Comparison, Table};
use super::stage::{Ground, Io, Kind, Part, Stage, Workload};
use super::ycsb::fill;
use super::{Experiment, Findings, Progress, Published, Request};
use crate::isolation::summary::Estimate;
use diecut_spec::Isolation;
use diecut_units::{Span, Time};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "websearch-mapreduce",
    question: "What does a search tenant gain, and what does a bulk tenant lose, by isolation?",
    source: "FlashBlox (FAST'17), evaluation with data-centre traces",
    set_up: "cnex-1tb with 8 channels, 64 blocks per plane of 32 pages. WebSearch: 8 KiB random reads, open loop, 12,000 per second. \
             MapReduce: 1 MiB sequential, closed loop, 8 reads and 8 writes under way. Per tenant 4 channels, or a half of \
             every die: un-isolated, software work-conserving, software strict (each half of the budget below), channel. \
             The joint budget of strict software isolation: half of what 8 channels program, 664 MB/s per tenant.",
    differs: &[
        "Microsoft's traces are not public under these names; these shapes stand in: small random reads, and large \
         sequential reads and writes.",
        "The paper's limiter splits IOPS and bandwidth of the drive jointly, so that a neighbour with many small reads eats \
         the bulk tenant's budget; here budgets are bytes of each tenant.",
        "8 channels of a smaller device with erase blocks of 32 pages; MLC timing of FEMU's set.",
        "Commands cost no processor time.",
    ],
    published: &[
        Published { figure: "MapReduce bandwidth, channel against un-isolated", value: "-36 %" },
        Published { figure: "WebSearch tail, un-isolated over channel", value: "> 2x" },
        Published { figure: "WebSearch tail, software over channel", value: "same" },
        Published { figure: "MapReduce bandwidth, un-isolated over software", value: "> 4x" },
    ],
    run,
};

const CHANNELS: u16 = 8;
const SEARCHES_PER_S: f64 = 12_000.0;
const STRICT_BYTES_PER_S: u64 = 664_000_000;

const LEVELS: [(Isolation, bool, &str); 4] = [
    (Isolation::None, false, "un-isolated"),
    (Isolation::Software, false, "software"),
    (Isolation::Software, true, "software, strict"),
    (Isolation::Channel, false, "channel"),
];

/// Reads one half of its volume and writes the other.
struct Bulk {
    reads: Plain,
    writes: Plain,
    lbas: u64,
}

const WRITES: u64 = 1 << 32;

impl Workload for Bulk {
    fn next(&mut self, now: Time) -> Option<Io> {
        if let Some(io) = self.reads.next(now) {
            return Some(io);
        }
        let io = self.writes.next(now)?;
        Some(Io { first_lba: io.first_lba + self.lbas / 2, tag: io.tag | WRITES, ..io })
    }
    fn answered(&mut self, tag: u64, now: Time) {
        if tag & WRITES == 0 {
            self.reads.answered(tag, now)
        } else {
            self.writes.answered(tag & !WRITES, now)
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Outcome {
    search_p50_us: f64,
    search_p99_us: f64,
    search_p999_us: f64,
    bulk_mb_per_s: f64,
    bulk_read_mb_per_s: f64,
}

fn stage(level: usize, seed: u64, quick: bool) -> Result<Stage, String> {
    let (blocks, pages) = if quick { (32, 8) } else { (64, 32) };
    let (isolation, strict, _) = LEVELS[level];
    let part = Part {
        strict_bytes_per_s: if strict { STRICT_BYTES_PER_S } else { 0 },
        ..Part::new(isolation, u32::from(CHANNELS) / 2)
    };
    Stage::new(&Ground::of(CHANNELS, blocks, pages, seed), &[part.clone(), part])
}

fn measure(level: usize, seed: u64, quick: bool, lbas: u64) -> Result<Outcome, String> {
    let mut stage = stage(level, seed, quick)?;
    for part in 0..2 {
        stage.create_volume(part, lbas)?;
    }
    fill(&mut stage, 2, lbas);
    let bulk = |kind, seed| Plain::new(kind, 256, Order::Sequential, Pace::Depth(8), lbas / 2, seed);
    let pace = Pace::PerSecond(SEARCHES_PER_S);
    let mut search = Plain::new(Kind::Read, 2, Order::Random, pace, lbas, seed);
    search.begin(stage.now);
    let mut bulk = Bulk { reads: bulk(Kind::Read, seed), writes: bulk(Kind::Write, seed), lbas };
    let (warm_up, measured) = if quick { (20, 40) } else { (2_000, 3_000) };
    let until = stage.now + Span::from_millis(warm_up);
    stage.run(&mut [&mut search, &mut bulk], until);
    for meter in [&mut search.meter, &mut bulk.reads.meter, &mut bulk.writes.meter] {
        meter.restart(stage.now);
    }
    let until = stage.now + Span::from_millis(measured);
    stage.run(&mut [&mut search, &mut bulk], until);
    let now = stage.now;
    let read = bulk.reads.meter.mb_per_s(now);
    Ok(Outcome {
        search_p50_us: search.meter.quantile_us(0.5),
        search_p99_us: search.meter.quantile_us(0.99),
        search_p999_us: search.meter.quantile_us(0.999),
        bulk_mb_per_s: read + bulk.writes.meter.mb_per_s(now),
        bulk_read_mb_per_s: read,
    })
}

fn run(request: &Request, progress: Progress) -> Result<Findings, String> {
    let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); LEVELS.len()];
    for seed in 1..=request.seeds {
        let mut lbas = u64::MAX;
        for level in 0..LEVELS.len() {
            lbas = stage(level, seed, request.quick)?.exported_lbas().into_iter().fold(lbas, u64::min);
        }
        for (level, of_level) in outcomes.iter_mut().enumerate() {
            let outcome = measure(level, seed, request.quick, lbas / 512 * 512)?;
            progress(&format!("seed {seed}, {}: bulk {:.0} MB/s", LEVELS[level].2, outcome.bulk_mb_per_s));
            of_level.push(outcome);
        }
    }
    let over = |level: usize, figure: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
        outcomes[level].iter().map(figure).collect()
    };
    let columns = ["isolation", "WebSearch p50 us", "p99 us", "p99.9 us", "MapReduce MB/s", "of it read"];
    let mut table = Table::new("Both tenants", &columns);
    for (level, (_, _, name)) in LEVELS.iter().enumerate() {
        table.rows.push(vec![
            Cell::text(*name),
            Cell::over(&over(level, &|o| o.search_p50_us), 0),
            Cell::over(&over(level, &|o| o.search_p99_us), 0),
            Cell::over(&over(level, &|o| o.search_p999_us), 0),
            Cell::over(&over(level, &|o| o.bulk_mb_per_s), 0),
            Cell::over(&over(level, &|o| o.bulk_read_mb_per_s), 0),
        ]);
    }
    let ratio = |figure: &dyn Fn(&Outcome) -> f64, one: usize, other: usize| -> Vec<f64> {
        let pairs = outcomes[one].iter().zip(&outcomes[other]);
        pairs.map(|(one, other)| figure(one) / figure(other)).collect()
    };
    let (bulk, tail) = (|o: &Outcome| o.bulk_mb_per_s, |o: &Outcome| o.search_p99_us);
    let lost: Vec<f64> = ratio(&bulk, 3, 0).iter().map(|ratio| (ratio - 1.0) * 100.0).collect();
    let compare = |figure: &str, published: &str, values: &[f64], digits| {
        Comparison::new(figure, published, Cell::over(values, digits))
    };
    let mut findings = Findings { tables: vec![table], ..Findings::default() };
    findings.comparisons = vec![
        compare("MapReduce bandwidth, channel against un-isolated, %", "-36", &lost, 1),
        compare("WebSearch p99, un-isolated over channel", "> 2", &ratio(&tail, 0, 3), 2),
        compare("WebSearch p99, software over channel", "1", &ratio(&tail, 1, 3), 2),
        compare("WebSearch p99, strict software over channel", "1", &ratio(&tail, 2, 3), 2),
        compare("MapReduce bandwidth, un-isolated over software", "> 4", &ratio(&bulk, 0, 1), 2),
        compare("MapReduce bandwidth, un-isolated over strict software", "> 4", &ratio(&bulk, 0, 2), 2),
    ];
    let plot = |title: &str, y_label: &str, logarithmic, figure: &dyn Fn(&Outcome) -> f64| Plot {
        title: title.to_owned(),
        x_label: String::new(),
        y_label: y_label.to_owned(),
        logarithmic,
        content: Content::Bars {
            groups: LEVELS.iter().map(|(_, _, name)| (*name).to_owned()).collect(),
            series: vec![(
                title.to_owned(),
                (0..LEVELS.len()).map(|level| Estimate::of(&over(level, figure))).collect(),
            )],
        },
        references: Vec::new(),
    };
    findings.plots =
        vec![plot("WebSearch p99", "us", true, &tail), plot("MapReduce bandwidth", "MB/s", false, &bulk)];
    Ok(findings)
}
