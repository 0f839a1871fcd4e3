//! Databases beside each other on the same dies: YCSB under channel, die and software isolation.

use super::loads::{Order, Pace, Plain};
use super::lsm::{Database, LARGE_DEPTH, LEVEL_1_TABLES, MIXES, Mix, Shape};
use super::plot::{Content, Plot};
use super::report::{Cell, Comparison, Table};
use super::stage::{Ground, Kind, Part, Stage, Workload};
use super::{Experiment, Findings, Progress, Published, Request};
use crate::isolation::summary::Estimate;
use diecut_spec::Isolation;
use diecut_units::Span;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ycsb",
    question: "What do databases beside each other gain from stronger isolation?",
    source: "FlashBlox (FAST'17), evaluation with YCSB on LevelDB, two and four tenants",
    set_up: "Two (four) tenants with the same of YCSB's workloads A to F, 16 clients each in a closed loop, on a model of a \
             log-structured merge tree: a memtable of 4 MiB, tables of 2 MiB, level 1 of 10 MiB and levels by 10, writers slowed and stopped by LevelDB's rules, flushes and compactions in 256 KiB commands, the hottest \
             10 % of 1 KiB records in memory. cnex-1tb with one channel for each tenant, 128 blocks per plane of 32 pages; \
             per tenant one channel, or 4 dies over all channels, or 16 soft-planes over all dies: the same raw quantity on the \
             same dies. Software: work-conserving, or strict at what one channel programs (166 MB/s, read and programmed).",
    differs: &[
        "A model of the tree instead of LevelDB: tables are counted, not filled; one compaction at a time; a scan reads one \
         run of the lowest level and a block of each above it.",
        "About 0.4 GB per tenant instead of 32 GB, and seconds instead of 50 million operations; compactions go on all the \
         time where the workload writes, as there. Share of records in memory and number of clients are choices: the \
         paper's number (the smallest that reaches peak throughput) was not published.",
        "MLC timing of FEMU's set for the same family; the board's was never published. Erase blocks are 32 pages long.",
        "Commands cost no processor time but 10 us per operation in the database, with a core for each client.",
        "The paper's ratios are means over its workloads as they were read from its text; figures per workload were not.",
        "The paper does not say whether its software isolation was work-conserving; both are run.",
    ],
    published: &[
        Published { figure: "throughput, channel over die", value: "~1.3x" },
        Published { figure: "throughput, channel over software", value: "~1.6x" },
        Published { figure: "p99, die over channel", value: "~1.7x" },
        Published { figure: "p99, software over channel", value: "~2.6x" },
    ],
    run,
};

/// What one channel programs: 4 dies, 64 KiB in 1,575 us on average of lower and upper pages.
const STRICT_BYTES_PER_S: u64 = 166_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Channel,
    Die,
    Software,
    Strict,
}

const LEVELS: [(Level, &str); 4] = [
    (Level::Channel, "channel"),
    (Level::Die, "die"),
    (Level::Software, "software"),
    (Level::Strict, "software, strict"),
];

impl Level {
    fn part(self) -> Part {
        match self {
            Level::Channel => Part::new(Isolation::Channel, 1),
            Level::Die => Part::new(Isolation::Die, 1),
            Level::Software => Part::new(Isolation::Software, 1),
            Level::Strict => {
                Part { strict_bytes_per_s: STRICT_BYTES_PER_S, ..Part::new(Isolation::Software, 1) }
            }
        }
    }
}

/// One workload under one level: means over the tenants.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    operations_per_s: f64,
    p99_us: f64,
    p50_us: f64,
    write_amplification: f64,
    /// Part of the clients' time that they waited for room in the memtable, and that their writes were put off for level 0.
    stalled: f64,
    slowed: f64,
    /// Part of the time that a channel's bus was in use.
    bus: f64,
    waf: f64,
}

/// How large and how long.
#[derive(Clone, Copy, Debug)]
struct Size {
    blocks_per_plane: u32,
    pages_per_block: u32,
    table_blocks: u32,
    memtable_tables: usize,
    clients: usize,
    warm_up: Span,
    measured: Span,
}

fn size(quick: bool) -> Size {
    if quick {
        return Size {
            blocks_per_plane: 64,
            pages_per_block: 8,
            table_blocks: 64,
            memtable_tables: 2,
            clients: 8,
            warm_up: Span::from_millis(20),
            measured: Span::from_millis(40),
        };
    }
    Size {
        blocks_per_plane: 128,
        pages_per_block: 32,
        table_blocks: 512,
        memtable_tables: 2,
        clients: 16,
        warm_up: Span::from_millis(1_000),
        measured: Span::from_millis(3_000),
    }
}

fn new_stage(level: Level, tenants: u16, seed: u64, size: &Size) -> Result<Stage, String> {
    let ground = Ground::of(tenants, size.blocks_per_plane, size.pages_per_block, seed);
    Stage::new(&ground, &vec![level.part(); tenants.into()])
}

/// One cell of the experiment.
#[derive(Clone, Copy, Debug)]
struct Setting {
    level: Level,
    tenants: u16,
    /// Only the first tenant's clients are there.
    alone: bool,
    seed: u64,
    /// Size of each tenant's volume.
    lbas: u64,
}

/// All mixes, one after the other, in one setting.
fn measure(setting: Setting, size: &Size, mixes: &[Mix], progress: Progress) -> Result<Vec<Outcome>, String> {
    let Setting { level, tenants, alone, seed, lbas } = setting;
    let mut stage = new_stage(level, tenants, seed, size)?;
    for part in 0..tenants.into() {
        stage.create_volume(part, lbas)?;
    }
    fill(&mut stage, tenants.into(), lbas);
    let shape = Shape {
        lbas,
        table_blocks: size.table_blocks,
        memtable_tables: size.memtable_tables,
        clients: size.clients,
        large_depth: LARGE_DEPTH,
        level_1_tables: LEVEL_1_TABLES,
        data_tables: None,
        writers: 0,
    };
    let mut outcomes = Vec::new();
    for mix in mixes {
        let new = |tenant: u64| Database::new(*mix, shape, seed * 1000 + tenant);
        let active = if alone { 1 } else { tenants };
        let mut databases: Vec<Database> = (0..u64::from(active)).map(new).collect();
        databases.iter_mut().for_each(|database| database.begin(stage.now));
        run_for(&mut stage, &mut databases, tenants, size.warm_up);
        let start = stage.now;
        let (written, bus) = (stage.written(), stage.bus_busy_ns());
        let waited = |database: &Database| (database.stalled_ns, database.slowed_ns);
        let (stalled, slowed): (Vec<u64>, Vec<u64>) = databases.iter().map(waited).unzip();
        databases.iter_mut().for_each(|database| database.meter.restart(start));
        run_for(&mut stage, &mut databases, tenants, size.measured);
        let now = stage.now;
        let seconds = now.since(start).as_secs_f64();
        let mean = |figure: &dyn Fn(usize) -> f64| {
            (0..usize::from(active)).map(figure).sum::<f64>() / f64::from(active)
        };
        let clients_ns = size.clients as f64 * seconds * 1e9;
        let (after, bus_after) = (stage.written(), stage.bus_busy_ns());
        outcomes.push(Outcome {
            operations_per_s: mean(&|tenant| databases[tenant].meter.per_s(now)),
            p99_us: mean(&|tenant| databases[tenant].meter.quantile_us(0.99)),
            p50_us: mean(&|tenant| databases[tenant].meter.quantile_us(0.5)),
            write_amplification: mean(&|tenant| databases[tenant].write_amplification()),
            stalled: mean(&|tenant| (databases[tenant].stalled_ns - stalled[tenant]) as f64 / clients_ns),
            slowed: mean(&|tenant| (databases[tenant].slowed_ns - slowed[tenant]) as f64 / clients_ns),
            bus: mean(&|channel| (bus_after[channel] - bus[channel]) as f64 / 1e9 / seconds),
            waf: mean(&|tenant| after[tenant].waf_since(written[tenant])),
        });
        stage.settle();
        let Outcome { operations_per_s, p99_us, .. } = outcomes[outcomes.len() - 1];
        progress(&format!("{}: {operations_per_s:.0} operations/s, p99 {p99_us:.0} us", mix.name));
    }
    Ok(outcomes)
}

fn run_for(stage: &mut Stage, databases: &mut [Database], volumes: u16, length: Span) {
    let until = stage.now + length;
    let mut idle: Vec<Plain> = (databases.len()..volumes.into()).map(|_| Plain::idle()).collect();
    let active = databases.iter_mut().map(|database| database as &mut dyn Workload);
    let mut loads: Vec<&mut dyn Workload> = active.collect();
    loads.extend(idle.iter_mut().map(|load| load as &mut dyn Workload));
    stage.run(&mut loads, until);
}

/// Writes all volumes from end to end.
pub(super) fn fill(stage: &mut Stage, volumes: usize, lbas: u64) {
    for volume in 0..volumes {
        let mut plains: Vec<Plain> = (0..volumes).map(|_| Plain::idle()).collect();
        plains[volume] = Plain::new(Kind::Write, 64, Order::Sequential, Pace::Depth(32), lbas, 0);
        while plains[volume].blocks_done < lbas / 64 * 64 {
            let until = stage.now + Span::from_millis(10);
            let mut loads: Vec<&mut dyn Workload> =
                plains.iter_mut().map(|load| load as &mut dyn Workload).collect();
            stage.run(&mut loads, until);
        }
        stage.settle();
    }
}

fn run(request: &Request, progress: Progress) -> Result<Findings, String> {
    let size = size(request.quick);
    let mixes = if request.quick { &MIXES[..1] } else { &MIXES[..] };
    let mut findings = Findings::default();
    for tenants in if request.quick { &[2][..] } else { &[2, 4][..] } {
        compare(*tenants, request.seeds, &size, mixes, &mut findings, progress)?;
    }
    Ok(findings)
}

/// What neighbours cost: each tenant beside the others over the first one alone on the same places.
fn against_alone(
    tenants: u16,
    mixes: &[Mix],
    outcomes: &[Vec<Vec<Outcome>>],
    alone: &[Vec<Vec<Outcome>>],
) -> Table {
    let columns = [
        "workload",
        "isolation",
        "alone: operations/s",
        "alone: p99 us",
        "throughput, with neighbours over alone",
        "p99, with neighbours over alone",
    ];
    let mut table =
        Table::new(format!("{tenants} tenants: what the others cost one that has the same places"), &columns);
    for (number, mix) in mixes.iter().enumerate() {
        for (level, (_, name)) in LEVELS.iter().enumerate() {
            let over = |figure: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
                alone[level].iter().map(|of_seed| figure(&of_seed[number])).collect()
            };
            let ratio = |figure: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
                let pairs = outcomes[level].iter().zip(&alone[level]);
                pairs.map(|(with, alone)| figure(&with[number]) / figure(&alone[number])).collect()
            };
            table.rows.push(vec![
                Cell::text(mix.name),
                Cell::text(*name),
                Cell::over(&over(&|o| o.operations_per_s), 0),
                Cell::over(&over(&|o| o.p99_us), 0),
                Cell::over(&ratio(&|o| o.operations_per_s), 2),
                Cell::over(&ratio(&|o| o.p99_us), 2),
            ]);
        }
    }
    table
}

fn compare(
    tenants: u16,
    seeds: u64,
    size: &Size,
    mixes: &[Mix],
    findings: &mut Findings,
    progress: Progress,
) -> Result<(), String> {
    // By level, by seed, by mix.
    let mut outcomes: Vec<Vec<Vec<Outcome>>> = vec![Vec::new(); LEVELS.len()];
    let mut alone = outcomes.clone();
    for seed in 1..=seeds {
        let mut lbas = u64::MAX;
        for (level, _) in LEVELS {
            let exported = new_stage(level, tenants, seed, size)?.exported_lbas();
            lbas = exported.into_iter().fold(lbas, u64::min);
        }
        for (at, (level, name)) in LEVELS.into_iter().enumerate() {
            let mut step = |what: &str| progress(&format!("{tenants} tenants, seed {seed}, {name}: {what}"));
            let setting = Setting { level, tenants, alone: false, seed, lbas };
            outcomes[at].push(measure(setting, size, mixes, &mut step)?);
            let mut step =
                |what: &str| progress(&format!("{tenants} tenants, seed {seed}, {name}, alone: {what}"));
            alone[at].push(measure(Setting { alone: true, ..setting }, size, mixes, &mut step)?);
        }
    }
    let over = |level: usize, mix: usize, figure: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
        outcomes[level].iter().map(|of_seed| figure(&of_seed[mix])).collect()
    };
    let columns = [
        "workload",
        "isolation",
        "operations/s per tenant",
        "p50 us",
        "p99 us",
        "clients stalled %",
        "slowed %",
        "bus in use %",
        "writes of the tree x",
        "waf_cleaner",
    ];
    let mut table = Table::new(format!("{tenants} tenants"), &columns);
    for (number, mix) in mixes.iter().enumerate() {
        for (level, (_, name)) in LEVELS.iter().enumerate() {
            table.rows.push(vec![
                Cell::text(mix.name),
                Cell::text(*name),
                Cell::over(&over(level, number, &|o| o.operations_per_s), 0),
                Cell::over(&over(level, number, &|o| o.p50_us), 0),
                Cell::over(&over(level, number, &|o| o.p99_us), 0),
                Cell::over(&over(level, number, &|o| o.stalled * 100.0), 1),
                Cell::over(&over(level, number, &|o| o.slowed * 100.0), 1),
                Cell::over(&over(level, number, &|o| o.bus * 100.0), 0),
                Cell::over(&over(level, number, &|o| o.write_amplification), 1),
                Cell::over(&over(level, number, &|o| o.waf), 2),
            ]);
        }
    }
    findings.tables.push(table);
    findings.tables.push(against_alone(tenants, mixes, &outcomes, &alone));
    let columns = [
        "workload",
        "throughput: channel/die",
        "channel/software",
        "channel/strict",
        "p99: die/channel",
        "software/channel",
        "strict/channel",
    ];
    let mut ratios = Table::new(format!("{tenants} tenants: ratios, by seed"), &columns);
    let throughput = |level: usize, mix: usize| -> Vec<f64> {
        let pairs = outcomes[0].iter().zip(&outcomes[level]);
        pairs.map(|(one, other)| one[mix].operations_per_s / other[mix].operations_per_s).collect()
    };
    let p99 = |level: usize, mix: usize| -> Vec<f64> {
        let pairs = outcomes[0].iter().zip(&outcomes[level]);
        pairs.map(|(one, other)| other[mix].p99_us / one[mix].p99_us).collect()
    };
    for (number, mix) in mixes.iter().enumerate() {
        let mut row = vec![Cell::text(mix.name)];
        row.extend((1..4).map(|level| Cell::over(&throughput(level, number), 2)));
        row.extend((1..4).map(|level| Cell::over(&p99(level, number), 2)));
        ratios.rows.push(row);
    }
    // Geometric mean over the workloads, by seed.
    type ByMix<'a> = &'a dyn Fn(usize, usize) -> Vec<f64>;
    let mean = |of: ByMix, level: usize| -> Vec<f64> {
        let by_mix: Vec<Vec<f64>> = (0..mixes.len()).map(|mix| of(level, mix)).collect();
        let of_seed = |seed: usize| {
            let logarithms = by_mix.iter().map(|ratios| ratios[seed].ln());
            (logarithms.sum::<f64>() / mixes.len() as f64).exp()
        };
        (0..seeds as usize).map(of_seed).collect()
    };
    let mut row = vec![Cell::text("geometric mean")];
    row.extend((1..4).map(|level| Cell::over(&mean(&throughput, level), 2)));
    row.extend((1..4).map(|level| Cell::over(&mean(&p99, level), 2)));
    ratios.rows.push(row);
    findings.tables.push(ratios);
    let mut beside = |figure: &str, published: &str, values: Vec<f64>| {
        let figure = format!("{tenants} tenants: {figure}, geometric mean of workloads");
        findings.comparisons.push(Comparison::new(figure, published, Cell::over(&values, 2)));
    };
    beside("throughput, channel over die", "~1.3", mean(&throughput, 1));
    beside("throughput, channel over software", "~1.6", mean(&throughput, 2));
    beside("throughput, channel over strict software", "~1.6", mean(&throughput, 3));
    beside("p99, die over channel", "~1.7", mean(&p99, 1));
    beside("p99, software over channel", "~2.6", mean(&p99, 2));
    beside("p99, strict software over channel", "~2.6", mean(&p99, 3));
    let bars = |figure: &dyn Fn(usize, usize) -> Vec<f64>, levels: std::ops::Range<usize>| Content::Bars {
        groups: mixes.iter().map(|mix| mix.name.to_owned()).collect(),
        series: levels
            .map(|level| {
                let bars = (0..mixes.len()).map(|mix| Estimate::of(&figure(level, mix)));
                (LEVELS[level].1.to_owned(), bars.collect())
            })
            .collect(),
    };
    let references = |die: f64, software: f64| {
        vec![("published, die".to_owned(), die), ("published, software".to_owned(), software)]
    };
    findings.plots.push(Plot {
        title: format!("{tenants} tenants: throughput under channel isolation over throughput under"),
        x_label: "YCSB workload".into(),
        y_label: "ratio".into(),
        logarithmic: false,
        content: bars(&throughput, 1..4),
        references: references(1.3, 1.6),
    });
    findings.plots.push(Plot {
        title: format!("{tenants} tenants: p99 over p99 under channel isolation"),
        x_label: "YCSB workload".into(),
        y_label: "ratio".into(),
        logarithmic: true,
        content: bars(&p99, 1..4),
        references: references(1.7, 2.6),
    });
    Ok(())
}
