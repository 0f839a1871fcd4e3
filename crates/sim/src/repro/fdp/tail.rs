//! The tail of reads beside writes whose data die at different paces, with and without reclaim unit handles.

use super::super::loads::{Meter, Order, Pace, Plain};
use super::super::plot::{Content, Plot};
use super::super::report::{Cell, Comparison, Table};
use super::super::stage::Kind;
use super::super::{Experiment, Findings, Progress, Published, Request};
use super::{Drive, Placing, least_exported_lbas, write};
use crate::isolation::summary::Estimate;
use diecut_spec::PlacementIsolation;

pub(in crate::repro) const EXPERIMENT: Experiment = Experiment {
    name: "fdp-tail",
    question: "How much shorter is the tail of reads beside writes if each namespace has a reclaim unit handle?",
    source: "Micron, 7500 with Flexible Data Placement (2024)",
    set_up: "The drive of fdp-8tenants. Eight namespaces, 70 % reads and 30 % writes of 4 KiB, open loop, 15,000 reads a second in all: two tenants \
             send 8 of 30 shares each, two 4, two 2, two 1. Reads go anywhere in the namespace, writes anywhere or from end to end, as a log does. \
             Measured over as many bytes as one overwrite of all namespaces, after two. As published, handles are also stood for by a drive of \
             which an eighth is in use.",
    differs: &[
        "The published figure is of a drive of 8 TB of which 1 TB is written, in the place of one whose host uses handles. Rows with \
         an eighth in use are that.",
        "Loads of the published runs are not known beyond 70 % reads, 4 KiB and random. With one pace for all tenants handles would tell nothing apart.",
        "Whether reads suspend programs and erases there was not published. Here they do.",
    ],
    published: &[Published { figure: "tail of reads, with handles over without", value: "0.7 at best" }],
    run,
};

/// Shares of the commands that tenants send.
const SHARES: [f64; 8] = [8.0, 8.0, 4.0, 4.0, 2.0, 2.0, 1.0, 1.0];
const READS_PER_S: f64 = 15_000.0;
const WRITES_PER_S: f64 = READS_PER_S * 3.0 / 7.0;
const OVER_PROVISIONING_PERMILLE: u32 = 70;
const QUANTILES: [(f64, &str); 4] = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99")];

/// How data are placed, which part of the drive is in use, and where writes go.
#[derive(Clone, Copy, Debug)]
struct Way {
    placing: Placing,
    part: u64,
    order: Order,
    name: &'static str,
}

const HANDLES: Placing = Placing::Handles(PlacementIsolation::Initial);

/// The first of each order is what others are compared with.
const WAYS: [Way; 5] = [
    Way { placing: Placing::Together, part: 1, order: Order::Random, name: "anywhere, without handles" },
    Way { placing: HANDLES, part: 1, order: Order::Random, name: "anywhere, a handle each" },
    Way { placing: Placing::Together, part: 8, order: Order::Random, name: "anywhere, an eighth in use" },
    Way { placing: Placing::Together, part: 1, order: Order::Sequential, name: "in order, without handles" },
    Way { placing: HANDLES, part: 1, order: Order::Sequential, name: "in order, a handle each" },
];

impl Way {
    /// The way without handles that has the same writes.
    fn beside(self) -> usize {
        WAYS.iter().position(|way| way.order == self.order).expect("it is one of them itself")
    }
}

#[derive(Clone, Copy, Debug)]
struct Outcome {
    waf: f64,
    read_us: [f64; QUANTILES.len()],
}

fn measure(drive: Drive, order: Order, lbas: u64) -> Result<Outcome, String> {
    let tenants = SHARES.len();
    let mut stage = drive.filled(&vec![lbas; tenants])?;
    (0..tenants).for_each(|volume| stage.create_alias(volume));
    let all: f64 = SHARES.iter().sum();
    let load = |kind, order, per_s: f64, at: usize| {
        let seed = drive.seed * 100 + at as u64 + if kind == Kind::Read { 50 } else { 0 };
        Plain::new(kind, 1, order, Pace::PerSecond(per_s * SHARES[at] / all), lbas, seed)
    };
    let mut loads: Vec<Plain> = (0..tenants).map(|at| load(Kind::Write, order, WRITES_PER_S, at)).collect();
    loads.extend((0..tenants).map(|at| load(Kind::Read, Order::Random, READS_PER_S, at)));
    loads.iter_mut().for_each(|load| load.begin(stage.now));
    let all_lbas = lbas * tenants as u64;
    write(&mut stage, &mut loads, if drive.quick { all_lbas / 4 } else { 2 * all_lbas });
    loads.iter_mut().for_each(|load| load.meter.restart(stage.now));
    let waf = write(&mut stage, &mut loads, if drive.quick { all_lbas / 4 } else { all_lbas });
    let read = Meter::of_all(&loads[tenants..]);
    let read_us = QUANTILES.map(|(quantile, _)| read.quantile_us(quantile));
    Ok(Outcome { waf, read_us })
}

fn run(request: &Request, progress: Progress) -> Result<Findings, String> {
    let mut outcomes: [Vec<Outcome>; WAYS.len()] = Default::default();
    for seed in 1..=request.seeds {
        let drive = |placing| Drive {
            placing,
            over_provisioning_permille: OVER_PROVISIONING_PERMILLE,
            namespaces: SHARES.len() as u16,
            seed,
            quick: request.quick,
        };
        let exported_lbas = least_exported_lbas(WAYS.into_iter().map(|way| drive(way.placing)))?;
        for (way, of_way) in WAYS.into_iter().zip(&mut outcomes) {
            let name = way.name;
            let lbas = exported_lbas / way.part * 98 / 100 / SHARES.len() as u64 / 32 * 32;
            let outcome = measure(drive(way.placing), way.order, lbas)?;
            progress(&format!(
                "seed {seed}, {name}: waf_cleaner {:.2}, p99.9 of reads {:.0} us",
                outcome.waf, outcome.read_us[2]
            ));
            of_way.push(outcome);
        }
    }
    Ok(findings(&outcomes))
}

fn findings(outcomes: &[Vec<Outcome>; WAYS.len()]) -> Findings {
    let values =
        |at: usize, of: &dyn Fn(&Outcome) -> f64| -> Vec<f64> { outcomes[at].iter().map(of).collect() };
    let mut columns = vec!["drive".to_owned(), "waf_cleaner".to_owned()];
    columns.extend(QUANTILES.map(|(_, name)| format!("{name} of reads_us")));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new("70 % reads, 30 % writes of eight tenants", &columns);
    let mut findings = Findings::default();
    for (at, Way { name, .. }) in WAYS.iter().enumerate() {
        let over = |of: &dyn Fn(&Outcome) -> f64, digits| Cell::over(&values(at, of), digits);
        let mut row = vec![Cell::text(*name), over(&|one| one.waf, 2)];
        row.extend((0..QUANTILES.len()).map(|quantile| over(&|one| one.read_us[quantile], 0)));
        table.rows.push(row);
    }
    for (at, way) in WAYS.iter().enumerate().filter(|(at, way)| way.beside() != *at) {
        for (quantile, (_, quantile_name)) in QUANTILES.iter().enumerate().skip(1) {
            // Within a seed, so that what differs between devices falls out.
            let pairs = outcomes[at].iter().zip(&outcomes[way.beside()]);
            let gain: Vec<f64> =
                pairs.map(|(with, without)| with.read_us[quantile] / without.read_us[quantile]).collect();
            let figure = format!("{quantile_name} of reads, {}, over without handles", way.name);
            findings.comparisons.push(Comparison::new(figure, "0.7 at best", Cell::over(&gain, 2)));
        }
    }
    let series = WAYS.iter().enumerate().map(|(at, Way { name, .. })| {
        let of = |quantile: usize| Estimate::of(&values(at, &|one| one.read_us[quantile]));
        ((*name).to_owned(), (0..QUANTILES.len()).map(of).collect())
    });
    findings.plots.push(Plot {
        title: "Reads of all tenants".into(),
        x_label: String::new(),
        y_label: "us".into(),
        logarithmic: true,
        content: Content::Bars {
            groups: QUANTILES.iter().map(|(_, name)| (*name).to_owned()).collect(),
            series: series.collect(),
        },
        references: Vec::new(),
    });
    findings.tables.push(table);
    findings
}
