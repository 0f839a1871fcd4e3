//! Write amplification: tenants that share erase blocks, as on a conventional drive, against vSSDs of each type.

use super::loads::{Order, Pace, Plain};
use super::plot::{Content, Plot};
use super::report::{Cell, Comparison, Table};
use super::stage::{Ground, Kind, Part, Stage, Workload};
use super::ycsb::fill;
use super::{Experiment, Findings, Progress, Published, Request};
use crate::isolation::summary::Estimate;
use diecut_spec::Isolation;
use diecut_units::Span;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "waf",
    question: "Do tenants that share no erase blocks cost fewer writes than tenants of one conventional drive?",
    source: "FlashBlox (FAST'17), micro-benchmarks",
    set_up: "Two tenants with volumes of one size, on two channels of cnex-1tb with 128 blocks per plane of 32 pages: one writes \
             4 KiB at random, one 64 KiB from end to end, 12 MB/s each, open loop. Conventional: both volumes on one un-isolated \
             vSSD over all dies, with 28 % over-provisioning. vSSDs: one for each, 28 % each. Measured over as many bytes as \
             an overwrite of all volumes, after two overwrites.",
    differs: &[
        "The workloads of the paper's comparison were not published; these two are far apart on purpose.",
        "The conventional drive is this log with one un-isolated vSSD; the paper's is an unmodified CNEX driver.",
        "Erase blocks are 32 pages long and the device is small, so that the cleaners become steady. A segment is an erase \
         block on each unit: 16 soft-planes give segments four times as large as 4 dies do, and here only 32 of them, of \
         which the cleaner keeps some free. With 1,069 blocks per plane there are eight times as many.",
    ],
    published: &[
        Published { figure: "WAF of vSSDs beside the conventional stack", value: "lower" },
        Published { figure: "WAF of vSSD types", value: "about equal" },
    ],
    run,
};

const BYTES_PER_S: f64 = 12e6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Conventional,
    Vssds(Isolation),
}

const TYPES: [(Type, &str); 5] = [
    (Type::Conventional, "conventional"),
    (Type::Vssds(Isolation::None), "vSSDs, none"),
    (Type::Vssds(Isolation::Software), "vSSDs, software"),
    (Type::Vssds(Isolation::Die), "vSSDs, die"),
    (Type::Vssds(Isolation::Channel), "vSSDs, channel"),
];

impl Type {
    fn parts(self) -> Vec<Part> {
        match self {
            Type::Conventional => vec![Part::new(Isolation::None, 2)],
            Type::Vssds(isolation) => vec![Part::new(isolation, 1); 2],
        }
    }
}

/// `waf_cleaner` of all, and of each tenant where they are apart.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    all: f64,
    random: Option<f64>,
    sequential: Option<f64>,
}

fn ground(seed: u64, quick: bool) -> Ground {
    let (blocks, pages) = if quick { (64, 8) } else { (128, 32) };
    Ground::of(2, blocks, pages, seed)
}

fn measure(kind: Type, seed: u64, quick: bool, lbas: u64, progress: Progress) -> Result<Outcome, String> {
    let parts = kind.parts();
    let mut stage = Stage::new(&ground(seed, quick), &parts)?;
    for volume in 0..2 {
        stage.create_volume(volume.min(parts.len() - 1), lbas)?;
    }
    fill(&mut stage, 2, lbas);
    let per_s = |blocks: u32| Pace::PerSecond(BYTES_PER_S / 4096.0 / f64::from(blocks));
    let mut loads = [
        Plain::new(Kind::Write, 1, Order::Random, per_s(1), lbas, seed * 2),
        Plain::new(Kind::Write, 16, Order::Sequential, per_s(16), lbas, seed * 2 + 1),
    ];
    loads.iter_mut().for_each(|load| load.begin(stage.now));
    let overwrite = Span::from_millis((lbas as f64 * 4096.0 / BYTES_PER_S * 1e3) as u64);
    let (before, measured) = if quick { (1, 1) } else { (2, 1) };
    let mut run_for = |stage: &mut Stage, overwrites: u64| {
        let until = stage.now + Span(overwrite.0 * overwrites);
        let mut loads: Vec<&mut dyn Workload> =
            loads.iter_mut().map(|load| load as &mut dyn Workload).collect();
        stage.run(&mut loads, until);
    };
    run_for(&mut stage, before);
    progress("overwritten");
    let start = stage.written();
    run_for(&mut stage, measured);
    let end = stage.written();
    let mut sum = [super::stage::Written::default(); 2];
    for (sum, all) in sum.iter_mut().zip([&start, &end]) {
        sum.host_bytes = all.iter().map(|written| written.host_bytes).sum();
        sum.programmed_bytes = all.iter().map(|written| written.programmed_bytes).sum();
    }
    let of = |part: usize| (parts.len() == 2).then(|| end[part].waf_since(start[part]));
    Ok(Outcome { all: sum[1].waf_since(sum[0]), random: of(0), sequential: of(1) })
}

fn run(request: &Request, progress: Progress) -> Result<Findings, String> {
    let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); TYPES.len()];
    for seed in 1..=request.seeds {
        // Volumes of one size everywhere: what fits where least fits.
        let mut lbas = u64::MAX;
        for (kind, _) in TYPES {
            let exported = Stage::new(&ground(seed, request.quick), &kind.parts())?.exported_lbas();
            let for_each = exported.iter().sum::<u64>() / 2;
            lbas = exported.into_iter().fold(lbas.min(for_each), |least, one| least.min(one));
        }
        for ((kind, name), of_type) in TYPES.into_iter().zip(&mut outcomes) {
            let mut step = |what: &str| progress(&format!("seed {seed}, {name}: {what}"));
            let outcome = measure(kind, seed, request.quick, lbas, &mut step)?;
            progress(&format!("seed {seed}, {name}: waf_cleaner {:.2}", outcome.all));
            of_type.push(outcome);
        }
    }
    let columns = ["drive", "waf_cleaner", "of the random writer", "of the sequential writer"];
    let mut table = Table::new("Write amplification of the cleaner", &columns);
    let all = |of_type: usize| -> Vec<f64> { outcomes[of_type].iter().map(|outcome| outcome.all).collect() };
    for (number, (_, name)) in TYPES.iter().enumerate() {
        let of = |figure: &dyn Fn(&Outcome) -> Option<f64>| {
            let values: Vec<f64> = outcomes[number].iter().filter_map(figure).collect();
            if values.is_empty() { Cell::text("-") } else { Cell::over(&values, 2) }
        };
        let parts = [of(&|outcome| outcome.random), of(&|outcome| outcome.sequential)];
        let [random, sequential] = parts;
        table.rows.push(vec![Cell::text(*name), Cell::over(&all(number), 2), random, sequential]);
    }
    let over_conventional = |of_type: usize| -> Vec<f64> {
        all(of_type).iter().zip(all(0)).map(|(one, conventional)| one / conventional).collect()
    };
    let types: Vec<Vec<f64>> = (1..TYPES.len()).map(all).collect();
    let spread: Vec<f64> = (0..request.seeds as usize)
        .map(|seed| {
            let of_seed = types.iter().map(|of_type| of_type[seed]);
            of_seed.clone().fold(0.0, f64::max) / of_seed.fold(f64::INFINITY, f64::min)
        })
        .collect();
    let mut findings = Findings::default();
    for (number, (_, name)) in TYPES.iter().enumerate().skip(1) {
        let figure = format!("WAF, {name}, over conventional");
        let measured = Cell::over(&over_conventional(number), 2);
        findings.comparisons.push(Comparison::new(figure, "below 1", measured));
    }
    let figure = "WAF of vSSD types, highest over lowest";
    findings.comparisons.push(Comparison::new(figure, "about 1", Cell::over(&spread, 2)));
    let mean = |of_type: usize| Estimate::of(&all(of_type)).mean;
    findings.notes.push(format!(
        "Raw quantity and volumes are equal everywhere. The conventional drive has {:.2}: what the sequential writer overwrites \
         frees whole segments, and the room it leaves spare serves the random writer, too; a vSSD has only its own. vSSDs on \
         dies or channels of their own have {:.2} and {:.2}; on shares of all dies {:.2}, with fewer and larger segments.",
        mean(0),
        mean(3),
        mean(4),
        mean(2),
    ));
    findings.tables.push(table);
    findings.plots.push(Plot {
        title: "Write amplification of the cleaner".into(),
        x_label: String::new(),
        y_label: "waf_cleaner".into(),
        logarithmic: false,
        content: Content::Bars {
            groups: TYPES.iter().map(|(_, name)| (*name).to_owned()).collect(),
            series: vec![(
                "both tenants".into(),
                (0..TYPES.len()).map(|number| Estimate::of(&all(number))).collect(),
            )],
        },
        references: Vec::new(),
    });
    Ok(findings)
}
