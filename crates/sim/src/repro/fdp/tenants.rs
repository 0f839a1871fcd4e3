//! Eight tenants on one drive, one reclaim unit handle for each namespace, hosts unchanged.

use super::super::loads::{Meter, Order, Pace, Plain};
use super::super::plot::{Content, Plot};
use super::super::report::{Cell, Comparison, Table};
use super::super::stage::Kind;
use super::super::{Experiment, Findings, Progress, Published, Request};
use super::{Drive, Placing, least_exported_lbas, write};
use crate::isolation::summary::Estimate;
use diecut_spec::PlacementIsolation;

pub(in crate::repro) const EXPERIMENT: Experiment = Experiment {
    name: "fdp-8tenants",
    question: "What do eight tenants of one drive gain if each namespace has a reclaim unit handle, and hosts know nothing of it?",
    source: "FADU, eight virtual machines on one drive with Flexible Data Placement; load by jmhands/scripts",
    set_up: "One device, 2 channels of tlc with 512 blocks per plane of 6 pages, as one vSSD with 7 % over-provisioning; eight namespaces of \
             one size, 98 % of what it exports. First each is written from end to end, 128 KiB. Then each host writes from end to end, again \
             and again, 4 KiB on two namespaces, 16 KiB on two, 64 and 128 KiB on two each, 16 under way, and reads 4 KiB at random, 16 under \
             way. Measured over as many bytes as one overwrite of all namespaces, after two.",
    differs: &[
        "The drive is 7.68 TB with namespaces of 940 GB; here all of it is 1.5 GiB, and a reclaim unit 3 MiB.",
        "256 commands of each job are under way there, 16 here: dies are busy with either. Published runs take six hours.",
        "Hosts there are virtual machines over LVM. Here there is no host, and commands cost no processor time.",
        "Over-provisioning of the drive, and how its handles are isolated, were not published. Here they are initially isolated.",
        "The published gain in endurance is said to be 170 %; a write amplification of 1.74 that becomes 1.0 gives 74 %.",
    ],
    published: &[
        Published { figure: "write amplification without handles and with", value: "1.74 and 1.0" },
        Published { figure: "write bandwidth, with handles over without", value: "2.5 times" },
        Published { figure: "background 4 KiB reads, with handles over without", value: "2.82 times" },
        Published { figure: "endurance, with handles over without", value: "1.74 times" },
    ],
    run,
};

const TENANTS: usize = 8;
/// IUs of the writes of each tenant.
const WRITE_LBAS: [u32; TENANTS] = [1, 1, 4, 4, 16, 16, 32, 32];
const WRITES_UNDER_WAY: usize = 16;
const READS_UNDER_WAY: usize = 16;
const OVER_PROVISIONING_PERMILLE: u32 = 70;

const PLACINGS: [(Placing, &str); 2] = [
    (Placing::Together, "without handles"),
    (Placing::Handles(PlacementIsolation::Initial), "a handle each"),
];

#[derive(Clone, Copy, Debug)]
struct Outcome {
    over_provisioning_percent: f64,
    waf: f64,
    written_mb_per_s: f64,
    reads_per_s: f64,
    read_mean_us: f64,
    read_p99_us: f64,
}

fn measure(drive: Drive, lbas: u64) -> Result<Outcome, String> {
    let mut stage = drive.filled(&[lbas; TENANTS])?;
    let over_provisioning_percent = stage.over_provisioning(0) * 100.0;
    let seed = drive.seed * 100;
    let writer = |at: usize| {
        let pace = Pace::Depth(WRITES_UNDER_WAY);
        Plain::new(Kind::Write, WRITE_LBAS[at], Order::Sequential, pace, lbas, seed + at as u64)
    };
    let reader = |at: usize| {
        let pace = Pace::Depth(READS_UNDER_WAY);
        Plain::new(Kind::Read, 1, Order::Random, pace, lbas, seed + 50 + at as u64)
    };
    (0..TENANTS).for_each(|volume| stage.create_alias(volume));
    let mut loads: Vec<Plain> = (0..TENANTS).map(writer).chain((0..TENANTS).map(reader)).collect();
    let all_lbas = lbas * TENANTS as u64;
    write(&mut stage, &mut loads, if drive.quick { all_lbas / 2 } else { 2 * all_lbas });
    loads.iter_mut().for_each(|load| load.meter.restart(stage.now));
    let waf = write(&mut stage, &mut loads, all_lbas);
    let (writers, readers) = loads.split_at(TENANTS);
    let sum =
        |loads: &[Plain], of: &dyn Fn(&Meter) -> f64| loads.iter().map(|load| of(&load.meter)).sum::<f64>();
    let mean = |of: &dyn Fn(&Meter) -> f64| sum(readers, of) / TENANTS as f64;
    Ok(Outcome {
        over_provisioning_percent,
        waf,
        written_mb_per_s: sum(writers, &|meter| meter.mb_per_s(stage.now)),
        reads_per_s: sum(readers, &|meter| meter.per_s(stage.now)),
        read_mean_us: mean(&Meter::mean_us),
        read_p99_us: mean(&|meter| meter.quantile_us(0.99)),
    })
}

fn run(request: &Request, progress: Progress) -> Result<Findings, String> {
    let mut outcomes: [Vec<Outcome>; PLACINGS.len()] = Default::default();
    for seed in 1..=request.seeds {
        let drive = |placing| Drive {
            placing,
            over_provisioning_permille: OVER_PROVISIONING_PERMILLE,
            namespaces: TENANTS as u16,
            seed,
            quick: request.quick,
        };
        let exported_lbas = least_exported_lbas(PLACINGS.into_iter().map(|(placing, _)| drive(placing)))?;
        let lbas = exported_lbas * 98 / 100 / TENANTS as u64 / 32 * 32;
        for ((placing, name), of_placing) in PLACINGS.into_iter().zip(&mut outcomes) {
            let outcome = measure(drive(placing), lbas)?;
            progress(&format!(
                "seed {seed}, {name}: waf_cleaner {:.2}, {:.0} MB/s",
                outcome.waf, outcome.written_mb_per_s
            ));
            of_placing.push(outcome);
        }
    }
    Ok(findings(&outcomes))
}

fn findings(outcomes: &[Vec<Outcome>; PLACINGS.len()]) -> Findings {
    type Figure = fn(&Outcome) -> f64;
    let values = |at: usize, of: Figure| -> Vec<f64> { outcomes[at].iter().map(of).collect() };
    // Within a seed, so that what differs between devices falls out.
    let gain = |of: Figure| -> Vec<f64> {
        outcomes[1].iter().zip(&outcomes[0]).map(|(with, without)| of(with) / of(without)).collect()
    };
    let columns = [
        "drive",
        "over-provisioning, effective_percent",
        "waf_cleaner",
        "written_mb_per_s",
        "reads_per_s",
        "mean of reads_us",
        "p99 of reads_us",
    ];
    let mut table = Table::new("Eight tenants", &columns);
    for (at, (_, name)) in PLACINGS.iter().enumerate() {
        let over = |of: Figure, digits| Cell::over(&values(at, of), digits);
        table.rows.push(vec![
            Cell::text(*name),
            over(|one| one.over_provisioning_percent, 1),
            over(|one| one.waf, 2),
            over(|one| one.written_mb_per_s, 0),
            over(|one| one.reads_per_s, 0),
            over(|one| one.read_mean_us, 0),
            over(|one| one.read_p99_us, 0),
        ]);
    }
    let mut findings = Findings::default();
    let mut compare = |figure: &str, published: &str, measured: Cell| {
        findings.comparisons.push(Comparison::new(figure.to_owned(), published, measured));
    };
    compare("write amplification without handles", "1.74", Cell::over(&values(0, |one| one.waf), 2));
    compare("write amplification with a handle each", "1.0", Cell::over(&values(1, |one| one.waf), 2));
    compare("write bandwidth, with over without", "2.5", Cell::over(&gain(|one| one.written_mb_per_s), 2));
    compare("4 KiB reads, with over without", "2.82", Cell::over(&gain(|one| one.reads_per_s), 2));
    compare("endurance, with over without", "1.74", Cell::over(&gain(|one| 1.0 / one.waf), 2));
    findings.notes.push(
        "Endurance is one over write amplification. Writers and readers have so many commands under way whatever the drive does, so what writing \
         saves is divided among both by the arbiter of the dies."
            .into(),
    );
    let bars = |title: &str, y_label: &str, of: Figure| Plot {
        title: title.into(),
        x_label: String::new(),
        y_label: y_label.into(),
        logarithmic: false,
        content: Content::Bars {
            groups: PLACINGS.iter().map(|(_, name)| (*name).to_owned()).collect(),
            series: vec![(
                "eight tenants".into(),
                (0..PLACINGS.len()).map(|at| Estimate::of(&values(at, of))).collect(),
            )],
        },
        references: Vec::new(),
    };
    findings.plots.push(bars("Write amplification of the cleaner", "waf_cleaner", |one| one.waf));
    findings.plots.push(bars("Writes of all tenants", "MB/s", |one| one.written_mb_per_s));
    findings.plots.push(bars("4 KiB reads of all tenants", "reads/s", |one| one.reads_per_s));
    findings.tables.push(table);
    findings
}
