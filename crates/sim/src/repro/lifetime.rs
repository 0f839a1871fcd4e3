//! How long a device lives under the worst writer, and how evenly it ages: the server's decision on dies of erase blocks.

use super::loads::{Order, Pace, Plain};
use super::plot::{Content, Plot};
use super::report::{Cell, Comparison, Table};
use super::stage::{Ground, Kind, Part, Stage, Workload};
use super::ycsb::fill;
use super::{Experiment, Findings, Progress, Published, Request};
use crate::wear_model::{Leveling, Lifetime, Load, Still, WearModel};
use diecut_spec::Isolation;
use diecut_units::Span;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "lifetime",
    question: "How long does a device live when one tenant writes everything, and how evenly does it age?",
    source: "FlashBlox (FAST'17), sections 3.1 and 5, figures 14 to 16",
    set_up: "cnex-1tb at erase-block level: 16 channels held by a tenant each, 4 dies per channel, 1,054 good erase blocks per die for \
             tenants, 11 of which may be lost. All writes go to one tenant; who moves where is the server's own decision \
             (choose_exchanges of diecut-vssd with its averages and settings). Death: a die has lost more blocks than its \
             reserve. Ideal: every good block at its endurance. Bound: 1 + threshold / average wear + share of swaps. The worst of a \
             sweep: the writer begins at eight points of a threshold, or goes on to the next tenant after 1/8 to 25 \
             thresholds, or to one that is drawn, or stops and all write alike; blocks bear 90 to 110 % of what the server was told. The cleaner's write amplification is measured at \
             page level on one channel (128 blocks per plane of 32 pages, random 4 KiB writes, 28 % over-provisioning).",
    differs: &[
        "Within a die wear is even, for the writer overwrites all it has, but in the table of data that lies still: there each erase \
         block is counted, on 4 channels, with 64 free blocks per die (a choice: reserve, spares, room of the cleaner), and \
         what is rewritten is rewritten in turn.",
        "A swap takes no time and erases every block of both channels: their upper bound.",
        "The paper's rule is taken by its words: most worn channel and lowest rate since the last swap, gamma = 270 cycles of a \
         channel at 3,000 (0.9 x 0.1 of the endurance); its simulator may have done otherwise.",
        "The paper sweeps the time between swaps; here swaps come when they are due. Its wear is from traces and page-level simulation.",
        "Blocks that differ: normal, standard deviation 10 % (a choice of the profile), in no relation to their place.",
        "TPC-C and TPC-E are two weights, 12 to 1; nothing else of them is here.",
    ],
    published: &[
        Published { figure: "lifetime under the adversarial writer, of ideal", value: "at least 95 %" },
        Published { figure: "wear of a channel with TPC-C over one with TPC-E", value: "12x" },
        Published {
            figure: "erases by all swaps of a life, of all",
            value: "0.7 % (160 swaps, by arithmetic)",
        },
    ],
    run,
};

const RULES: [&str; 5] = ["no leveling", "round robin", "the paper's rule", "ours, fixed threshold", "ours"];
const OURS: usize = 4;
const NOMINAL: u32 = 3000;

fn model(rule: usize, endurance_cycles: u32) -> WearModel {
    let model = WearModel::cnex(endurance_cycles);
    match rule {
        0 => WearModel { leveling: Leveling::Nothing, ..model.fixed() },
        1 => WearModel { leveling: Leveling::RoundRobin, ..model.fixed() },
        2 => model.literal(),
        3 => model.fixed(),
        _ => model,
    }
}

const ONE: Load = Load::One { offset_erases: 0 };

/// Loads of a sweep; thresholds are those of a new device.
fn one_writer(model: &WearModel, phases: u64) -> Vec<Load> {
    let threshold = model.first_threshold_erases();
    (0..phases).map(|at| Load::One { offset_erases: threshold * at / phases }).collect()
}

const TURNS: [(u64, &str); 14] = [
    (1, "1/8"),
    (2, "1/4"),
    (4, "1/2"),
    (5, "5/8"),
    (6, "3/4"),
    (7, "7/8"),
    (8, "1"),
    (10, "5/4"),
    (12, "3/2"),
    (14, "7/4"),
    (20, "5/2"),
    (28, "7/2"),
    (46, "23/4"),
    (200, "25"),
];
/// Turns that chose no constant of the rule, in eighths too.
const OTHER_TURNS: [u64; 6] = [3, 9, 11, 17, 26, 37];

/// Erases of a turn in eighths of the threshold of a quarter of the life (71 cycles of 3,000): much of the life is about there.
fn turn_erases(model: &WearModel, eighths: u64) -> u64 {
    let blocks = model.layout.blocks_per_die * model.layout.dies_per_channel as u64;
    u64::from(model.wear.endurance_cycles) * blocks / 42 * eighths / 8
}

fn turn(model: &WearModel, eighths: u64) -> Load {
    Load::Changing { turn_erases: turn_erases(model, eighths) }
}

const STOPS: &str = "one that stops, then all alike";
/// When it stops, in eighths of the first threshold of a channel: just before its content moves, just behind, and later.
const STOPS_AFTER: [u64; 8] = [4, 7, 8, 9, 15, 31, 120, 1000];

fn stops(model: &WearModel, eighths: u64) -> Load {
    Load::Stops { after_erases: model.first_threshold_erases() * eighths / 8 }
}

/// The largest part of the ideal life that thresholds can promise, at whatever phase and if blocks bear 90 to 110 % of what
/// was said, when they depend on the age of the device alone. A threshold of T cycles costs 2 / T of the wear, for a round of swaps
/// erases every block twice, and the places that are behind when the first one fails have up to T left. So with the wear `w`
/// and the cost `C` before, the loss `L` must be at least `(C(w) + T(w) (N - 1) / N) / w` at all w where the end may come, and
/// the least is where it is equal at all of them. `delta`: thresholds that keep max/avg within 1 + delta from a quarter on,
/// which bounds T by `delta w`, and by that of a quarter before; otherwise they cost nothing before the end may come.
fn limit_of_ideal(endurance_cycles: u32, channels: usize, delta: Option<f64>) -> f64 {
    let endurance = f64::from(endurance_cycles);
    let left = (channels as f64 - 1.0) / channels as f64;
    let cost = delta.map_or(0.0, |delta| 2.0 / delta * (1.0 + (0.9f64 / 0.25).ln()));
    let is_enough = |loss: f64| {
        const STEPS: u32 = 2000;
        let step = 0.2 * endurance / f64::from(STEPS);
        let mut threshold = (loss * 0.9 * endurance - cost) / left;
        (0..STEPS).all(|_| {
            threshold += step * (loss - 2.0 / threshold) / left;
            threshold > 0.0
        })
    };
    let (mut least, mut most) = (0.0, 1.0);
    for _ in 0..40 {
        let loss = (least + most) / 2.0;
        if (loss * 0.9 * endurance > cost) && is_enough(loss) {
            most = loss;
        } else {
            least = loss;
        }
    }
    1.0 - most
}

/// Thresholds that stay as they are, about the root of twice the endurance: what costs least if the end may come at any time.
fn fixed_cycles(endurance_cycles: u32) -> [u64; 5] {
    let root = f64::from(endurance_cycles * 2).sqrt();
    [0.5, 0.75, 1.0, 1.5, 2.0].map(|part| (root * part) as u64)
}

fn fixed_at(model: WearModel, cycles: u64) -> WearModel {
    let mut model = model.fixed();
    model.wear.die_threshold_erases = cycles * model.layout.blocks_per_die;
    model.wear.channel_threshold_erases =
        model.wear.die_threshold_erases * model.layout.dies_per_channel as u64;
    model
}

/// Where the parts of a life end, in percent of the ideal one.
const PARTS_PERCENT: [u32; 8] = [2, 5, 10, 25, 50, 75, 90, 110];

/// Largest over average wear of channels in each part of the life, the worst of a sweep; nothing where all had died.
fn over_life(lives: &[Lifetime]) -> [Option<f64>; PARTS_PERCENT.len()] {
    let mut worst: [Option<f64>; PARTS_PERCENT.len()] = [None; PARTS_PERCENT.len()];
    for (life, imbalance) in lives.iter().flat_map(|life| &life.over_time) {
        let part = PARTS_PERCENT.iter().position(|end| life * 100.0 < f64::from(*end));
        let worst = &mut worst[part.expect("nobody lives longer")];
        *worst = Some(worst.unwrap_or(1.0).max(*imbalance));
    }
    worst
}

/// Loads beside those that chose the rule's constants (16 channels, other turns and seeds); tenants are drawn by so many seeds.
fn other_loads(model: &WearModel, seeds: u64, quick: bool) -> [(&'static str, Vec<Load>); 7] {
    let drawn = |many: &[u64]| {
        let mut loads = Vec::new();
        for seed in 1..=seeds {
            let of = |eighths: &u64| Load::Drawn { turn_erases: turn_erases(model, *eighths), seed };
            loads.extend(many.iter().map(of));
        }
        loads
    };
    let falling = (1..=model.channels as u64).map(|rank| 1000 / rank).collect();
    [
        ("one writer", one_writer(model, if quick { 1 } else { 3 })),
        (STOPS, STOPS_AFTER.iter().map(|eighths| stops(model, *eighths)).collect()),
        ("turns of 3/8 to 37/8", OTHER_TURNS.iter().map(|eighths| turn(model, *eighths)).collect()),
        ("drawn tenants, turns of 1 to 23/4", drawn(&[8, 20, 46])),
        ("drawn tenants, turns of 1/8", drawn(&[1])),
        ("half of them 3 to 2", vec![Load::Mix([3, 2].repeat(model.channels / 2))]),
        ("1, 1/2, 1/3 ...", vec![Load::Mix(falling)]),
    ]
}

/// The worst of a sweep, figure by figure.
struct Worst {
    of_ideal: f64,
    mean_of_ideal: f64,
    of_even_wear: f64,
    imbalance_max: f64,
    above_bound: [f64; 2],
    migration_share: f64,
    swaps: u64,
}

fn worst(lives: &[Lifetime]) -> Worst {
    let least = |figure: &dyn Fn(&Lifetime) -> f64| lives.iter().map(figure).fold(f64::MAX, f64::min);
    let most = |figure: &dyn Fn(&Lifetime) -> f64| lives.iter().map(figure).fold(f64::MIN, f64::max);
    Worst {
        of_ideal: least(&|life| life.of_ideal),
        mean_of_ideal: lives.iter().map(|life| life.of_ideal).sum::<f64>() / lives.len() as f64,
        of_even_wear: least(&|life| life.of_even_wear),
        imbalance_max: most(&|life| life.imbalance_max),
        above_bound: [most(&|life| life.above_bound[0]), most(&|life| life.above_bound[1])],
        migration_share: most(&|life| life.migration_share),
        swaps: lives.iter().map(|life| life.swaps).max().unwrap_or(0),
    }
}

fn sweep(model: &WearModel, loads: &[Load], bearing_permille: &[u64]) -> Vec<Lifetime> {
    let runs = bearing_permille.iter().flat_map(|permille| loads.iter().map(move |load| (*permille, load)));
    runs.map(|(permille, load)| model.clone().bearing_permille(permille).live(load)).collect()
}

const COLUMNS: [&str; 10] = [
    "endurance",
    "blocks",
    "leveling",
    "of ideal, least %",
    "mean %",
    "of even wear, least %",
    "max/avg from 25 % on",
    "within the bound before / after",
    "erases by swaps, most %",
    "swaps, most",
];

fn row(endurance: u32, blocks: &str, name: &str, lives: &[Lifetime]) -> Vec<Cell> {
    let worst = worst(lives);
    let within = |above: f64| if above > 0.0 { format!("no, {above:.3} above") } else { "yes".to_owned() };
    vec![
        Cell::Number(endurance.into(), 0),
        Cell::text(blocks),
        Cell::text(name),
        Cell::Number(worst.of_ideal * 100.0, 2),
        Cell::Number(worst.mean_of_ideal * 100.0, 2),
        Cell::Number(worst.of_even_wear * 100.0, 2),
        Cell::Number(worst.imbalance_max, 3),
        Cell::text(format!("{} / {}", within(worst.above_bound[0]), within(worst.above_bound[1]))),
        Cell::Number(worst.migration_share * 100.0, 2),
        Cell::Number(worst.swaps as f64, 0),
    ]
}

/// A device part of whose content lies still.
fn still(percent: usize, is_moved: bool, spread_percent: f64, seed: u64, quick: bool) -> WearModel {
    let still = Some(Still { percent, free_blocks_per_die: 64, is_moved });
    let model = WearModel {
        channels: 4,
        endurance_spread_percent: spread_percent,
        seed,
        still,
        ..WearModel::cnex(if quick { 100 } else { NOMINAL })
    };
    let window_erases = model.window_erases / 4;
    WearModel { window_erases, ..model }
}

/// Data that nobody writes again, and what moving it inside its die is worth.
fn still_table(quick: bool, progress: Progress) -> (Table, Vec<String>) {
    let columns = [
        "load",
        "lies still, %",
        "blocks",
        "moves inside dies",
        "of ideal %",
        "of even wear %",
        "max/avg of channels from 25 % on",
        "erases for hosts %",
        "by swaps %",
        "by moves inside %",
    ];
    let mut table = Table::new("Data that is never written again, on 4 channels", &columns);
    let mut notes = Vec::new();
    let all: &[(&str, Load)] = &[("one writer", ONE), ("all alike", Load::Mix(vec![1; 4]))];
    for (name, load) in if quick { &all[1..] } else { all } {
        for percent in if quick { &[50][..] } else { &[0, 50, 90] } {
            for (blocks, spread_percent) in [("alike", 0.0), ("differ", 10.0)] {
                progress(&format!("{name}, {percent} % lie still, blocks {blocks}"));
                let lives =
                    [false, true].map(|moves| still(*percent, moves, spread_percent, 1, quick).live(load));
                for (moves, life) in ["no", "yes"].into_iter().zip(&lives) {
                    let percent_of = |share: f64| Cell::Number(share * 100.0, 2);
                    table.rows.push(vec![
                        Cell::text(*name),
                        Cell::Number(*percent as f64, 0),
                        Cell::text(blocks),
                        Cell::text(moves),
                        percent_of(life.of_ideal),
                        percent_of(life.of_even_wear),
                        Cell::Number(life.imbalance_max, 3),
                        percent_of(1.0 - life.migration_share - life.inside_share),
                        percent_of(life.migration_share),
                        percent_of(life.inside_share),
                    ]);
                }
                if *percent == 50 {
                    notes.push(format!(
                        "Half of the data lies still, {name}, blocks {blocks}: {:.1} % of ideal if it moves inside its die, {:.1} % \
                         if not.",
                        lives[1].of_ideal * 100.0,
                        lives[0].of_ideal * 100.0
                    ));
                }
            }
        }
    }
    (table, notes)
}

/// Write amplification of the cleaner under random 4 KiB writes on one channel.
fn measured_waf(seed: u64, quick: bool) -> Result<f64, String> {
    let (blocks, pages) = if quick { (64, 8) } else { (128, 32) };
    let mut stage = Stage::new(&Ground::of(1, blocks, pages, seed), &[Part::new(Isolation::Channel, 1)])?;
    let lbas = stage.exported_lbas()[0];
    stage.create_volume(0, lbas)?;
    fill(&mut stage, 1, lbas);
    let mut writer = Plain::new(Kind::Write, 1, Order::Random, Pace::Depth(64), lbas, seed);
    let mut overwrite = |stage: &mut Stage, times: u64| {
        let goal = writer.blocks_done + lbas * times;
        while writer.blocks_done < goal {
            let until = stage.now + Span::from_millis(10);
            stage.run(&mut [&mut writer as &mut dyn Workload], until);
        }
    };
    overwrite(&mut stage, if quick { 1 } else { 2 });
    let before = stage.written()[0];
    overwrite(&mut stage, 1);
    Ok(stage.written()[0].waf_since(before))
}

fn run(request: &Request, progress: Progress) -> Result<Findings, String> {
    let quick = request.quick;
    let bearing: Vec<u64> = if quick { vec![900, 1000] } else { (0..=10).map(|at| 900 + 20 * at).collect() };
    let phases = if quick { 2 } else { 8 };
    let endurances: &[u32] = if quick { &[1000] } else { &[NOMINAL, 1000, 10_000] };
    let mut findings = Findings::default();

    let seeds = if quick { 1 } else { request.seeds };
    let waf = (1..=seeds).map(|seed| {
        progress(&format!("write amplification at page level, seed {seed}"));
        measured_waf(seed, quick)
    });
    let waf = waf.collect::<Result<Vec<f64>, String>>()?;
    let waf = waf.iter().sum::<f64>() / waf.len() as f64;

    let mut table = Table::new("All writes to one tenant: the worst of every sweep", &COLUMNS);
    let (mut least, mut ages) = (Vec::new(), Vec::new());
    for &endurance in endurances {
        for (rule, name) in RULES.iter().enumerate() {
            progress(&format!("endurance {endurance}, {name}: one writer"));
            let model = model(rule, endurance);
            let lives = sweep(&model, &one_writer(&model, phases), &bearing);
            table.rows.push(row(endurance, "alike", name, &lives));
            let worst = worst(&lives);
            if endurance == endurances[0] {
                least.push(worst);
                ages.push(over_life(&lives));
            }
            if rule >= 2 {
                // Another set of blocks for each seed.
                let lives = (1..=request.seeds).flat_map(|seed| {
                    let differ = WearModel { endurance_spread_percent: 10.0, seed, ..model.clone() };
                    sweep(&differ, &[ONE], &bearing)
                });
                table.rows.push(row(endurance, "differ", name, &lives.collect::<Vec<_>>()));
            }
        }
    }
    findings.tables.push(table);

    let mut over = Table::new(
        format!(
            "Most worn channel over the average as life goes on, worst of the sweep, endurance {}",
            endurances[0]
        ),
        &[&["part of the ideal life, %"], &RULES[..]].concat(),
    );
    let mut from = 0;
    for (part, to) in PARTS_PERCENT.into_iter().enumerate() {
        let worst =
            ages.iter().map(|worst| worst[part].map_or(Cell::text("dead"), |one| Cell::Number(one, 3)));
        over.rows
            .push(std::iter::once(Cell::text(format!("{from} to {}", to.min(100)))).chain(worst).collect());
        from = to;
    }
    findings.tables.push(over);

    let mut columns = COLUMNS;
    columns[1] = "threshold, cycles";
    let mut bounds = Table::new("What thresholds can reach, one writer: worst of fewer phases", &columns);
    let mut limits = Vec::new();
    for &endurance in endurances {
        progress(&format!("endurance {endurance}: fixed thresholds"));
        let some: &[u64] = if quick { &[900, 1000] } else { &[900, 950, 1000, 1050, 1100] };
        let ours = model(OURS, endurance);
        for cycles in fixed_cycles(endurance) {
            let model = fixed_at(ours.clone(), cycles);
            let lives = sweep(&model, &one_writer(&model, phases / 2), some);
            bounds.rows.push(row(endurance, &cycles.to_string(), "fixed", &lives));
        }
        let lives = sweep(&ours, &one_writer(&ours, phases / 2), some);
        bounds.rows.push(row(endurance, "by age", RULES[OURS], &lives));
        limits.push([None, Some(0.1)].map(|delta| limit_of_ideal(endurance, ours.channels, delta) * 100.0));
    }
    findings.tables.push(bounds);
    for (endurance, [free, even]) in endurances.iter().zip(&limits) {
        findings.notes.push(format!(
            "Endurance {endurance}, known to a tenth: thresholds that follow the age alone can promise {free:.1} % of ideal, and \
             {even:.1} % if max/avg is to be at most 1.1 from 25 % of the life on, whoever writes: a round of swaps costs two cycles \
             of every block, and what a threshold lets channels lie apart is lost at the end. (Without what is rounded; phases in \
             between those of a sweep may be worse by a small part of a threshold.)"
        ));
    }

    let mut columns = COLUMNS;
    columns[1] = "a turn, thresholds";
    let mut turns = Table::new("The writer goes on to the next tenant: the worst over endurance", &columns);
    let mut worst_turns = [1.0f64; 3];
    for &endurance in &endurances[..1] {
        for (eighths, name) in if quick { &TURNS[..1] } else { &TURNS[..] } {
            for rule in [2, OURS] {
                progress(&format!("endurance {endurance}, {}: turns of {name}", RULES[rule]));
                let model = model(rule, endurance);
                let lives = sweep(&model, &[turn(&model, *eighths)], &bearing);
                turns.rows.push(row(endurance, name, RULES[rule], &lives));
                worst_turns[rule - 2] = worst_turns[rule - 2].min(worst(&lives).of_ideal);
            }
        }
        let lives = [model(OURS, endurance).live(&Load::Informed)];
        turns.rows.push(row(endurance, "always the most worn channel", RULES[OURS], &lives));
    }
    for &endurance in &endurances[1..] {
        progress(&format!("endurance {endurance}: turns"));
        let model = model(OURS, endurance);
        let loads: Vec<Load> = TURNS.iter().map(|(eighths, _)| turn(&model, *eighths)).collect();
        turns.rows.push(row(
            endurance,
            "1/8 to 25, the worst",
            RULES[OURS],
            &sweep(&model, &loads, &[900, 1000, 1100]),
        ));
    }
    findings.tables.push(turns);

    columns[1] = "channels: load";
    let mut others = Table::new(
        "Ours on 4 to 32 channels (constants were chosen on 16, with other turns and seeds)",
        &columns,
    );
    let mut worst_others = Vec::new();
    for channels in if quick { &[4][..] } else { &[4, 8, 16, 32] } {
        let model = WearModel { channels: *channels, ..model(OURS, endurances[0]) };
        for (name, loads) in other_loads(&model, request.seeds, quick) {
            progress(&format!("{channels} channels: {name}"));
            let lives = sweep(&model, &loads, if quick { &[1000] } else { &[910, 1000, 1070] });
            others.rows.push(row(endurances[0], &format!("{channels}: {name}"), RULES[OURS], &lives));
            worst_others.push((name, worst(&lives).of_ideal));
        }
    }
    findings.tables.push(others);

    columns[1] = "reserve %, the server was told";
    let mut reserves = Table::new(
        "Blocks that differ (standard deviation 10 %): what the reserve bears, one writer from the start, ours",
        &columns,
    );
    for (reserve_permille, told_percent) in [(10, 100), (10, 77), (30, 100), (30, 81), (70, 100), (70, 85)] {
        let base = model(OURS, endurances[0]);
        let told = endurances[0] * told_percent / 100;
        let lives = (1..=request.seeds).map(|seed| {
            let mut model = WearModel {
                endurance_spread_percent: 10.0,
                reserve_blocks_per_die: base.good_blocks_per_die * reserve_permille / 1000 + 1,
                seed,
                ..base.clone()
            };
            model.wear.endurance_cycles = told;
            model.live(&ONE)
        });
        let what = format!("{}, {told}", reserve_permille / 10);
        reserves.rows.push(row(endurances[0], &what, RULES[OURS], &lives.collect::<Vec<_>>()));
    }
    findings.tables.push(reserves);

    columns[1] = "12 : 1";
    let mut mixes = Table::new(
        "Tenants like TPC-C beside tenants like TPC-E, 12 to 1: the worst over endurance",
        &columns,
    );
    for &endurance in endurances {
        for busy in if quick { &[4][..] } else { &[1, 4, 8] } {
            for rule in if endurance == endurances[0] { &[0, 2, OURS][..] } else { &[OURS] } {
                let model = model(*rule, endurance);
                let mut weights = vec![1; model.channels];
                weights[..*busy].fill(12);
                progress(&format!("endurance {endurance}, {busy} busy tenants, {}", RULES[*rule]));
                let lives = sweep(&model, &[Load::Mix(weights)], &bearing);
                mixes.rows.push(row(endurance, &format!("{busy} of 16"), RULES[*rule], &lives));
            }
        }
    }
    findings.tables.push(mixes);

    let (table, notes) = still_table(quick, progress);
    findings.tables.push(table);
    findings.notes.extend(notes);

    let example: Vec<Lifetime> = (0..RULES.len()).map(|rule| model(rule, endurances[0]).live(&ONE)).collect();
    let mut causes = Table::new(
        format!(
            "Erases of each channel at the end in thousands, by cause; cleaner's part at waf_cleaner {waf:.2}"
        ),
        &["leveling", "channel", "host", "cleaner", "migration", "of endurance %"],
    );
    for rule in [2, OURS] {
        for (number, channel) in example[rule].channels.iter().enumerate() {
            let model = model(rule, endurances[0]);
            let all = model.ideal_erases() as f64 / model.channels as f64;
            let host = channel.host as f64 / waf;
            causes.rows.push(vec![
                Cell::text(RULES[rule]),
                Cell::Number(number as f64, 0),
                Cell::Number(host / 1e3, 0),
                Cell::Number((channel.host as f64 - host) / 1e3, 0),
                Cell::Number(channel.migration as f64 / 1e3, 0),
                Cell::Number((channel.host + channel.migration) as f64 / all * 100.0, 1),
            ]);
        }
    }
    findings.tables.push(causes);

    let ours = &least[OURS];
    let what = format!("endurance {}, least of the sweep: of ideal %", endurances[0]);
    let mut beside = |figure: String, published: &str, value: f64, digits| {
        findings.comparisons.push(Comparison::new(figure, published, Cell::Number(value, digits)));
    };
    beside(format!("{what}, ours"), "at least 95", ours.of_ideal * 100.0, 2);
    beside(format!("{what}, the paper's rule by its words"), "at least 95", least[2].of_ideal * 100.0, 2);
    beside(format!("{what}, round robin"), "-", least[1].of_ideal * 100.0, 2);
    let figure = format!("endurance {}, writers that take turns, least: of ideal %, ours", endurances[0]);
    beside(figure, "-", worst_turns[2] * 100.0, 2);
    for name in ["one writer", STOPS, "turns of 3/8 to 37/8"] {
        let least = worst_others.iter().filter(|(load, _)| *load == name).map(|(_, least)| *least);
        let figure = format!("{name}, 4 to 32 channels, least: of ideal %, ours");
        beside(figure, "-", least.fold(1.0, f64::min) * 100.0, 2);
    }
    beside("erases by swaps, most of the sweep, ours, %".to_owned(), "0.7", ours.migration_share * 100.0, 2);
    beside("max/avg of channels from 25 % of the life on, ours".to_owned(), "-", ours.imbalance_max, 3);

    // An erase block is a row of four planes: 16 MiB.
    let terabytes = |erases: u64| erases as f64 * 16.0 * 1.048_576 / waf / 1e6;
    let model = model(OURS, endurances[0]);
    findings.notes.push(format!(
        "At a measured waf_cleaner of {waf:.2} ideal is {:.0} TB of host writes at endurance {}; one writer reaches {:.0} TB with \
         ours, {:.0} TB with the paper's rule and {:.0} TB without leveling.",
        terabytes(model.ideal_erases()),
        endurances[0],
        terabytes(example[OURS].host_erases),
        terabytes(example[2].host_erases),
        terabytes(example[0].host_erases),
    ));
    findings.notes.push(format!(
        "Goal: at least 96 % of ideal, max/avg at most 1.1 from 25 % on, within the bound before. One writer, blocks alike, endurance {}: \
         {:.2} %, {:.3}, {}. A writer that takes turns: at least {:.2} % (the paper's rule {:.2} %). A writer that always hit the \
         most worn channel, which tenants cannot see, would end the device early under any rule of this kind.",
        endurances[0],
        ours.of_ideal * 100.0,
        ours.imbalance_max,
        if ours.above_bound[0] > 0.0 { "not within" } else { "within" },
        worst_turns[2] * 100.0,
        worst_turns[0] * 100.0,
    ));
    findings.notes.push(
        "The bound asks for more than the goal where thresholds come down towards the end: what is 1.04 times the average then may \
             be above it."
            .to_owned(),
    );
    findings.notes.push(
        "Where blocks differ, the weakest of each die use up the reserve long before the others: that ends the life, whatever moves \
             between channels. \"Of even wear\" is beside a device whose dies all lose their reserve at once. Within a die the least \
             worn block is taken next, which wears all alike: what a block bears is not known before it fails. Telling the server \
             the endurance that all blocks but the reserve have, not the mean, makes little difference."
            .to_owned(),
    );
    let curve = |rule: usize| (RULES[rule].to_owned(), example[rule].over_time.clone());
    let curves = [1, 2, 3, 4].map(curve).to_vec();
    findings.plots.push(Plot {
        title: format!("Most worn channel over the average, one writer, endurance {}", endurances[0]),
        x_label: "part of the ideal life".into(),
        y_label: "max / average".into(),
        logarithmic: true,
        content: Content::Curves(curves),
        references: vec![("goal from 25 % on".into(), 1.1)],
    });
    findings.plots.push(Plot {
        title: "Least part of the ideal life, one writer, blocks alike".into(),
        x_label: String::new(),
        y_label: "% of ideal".into(),
        logarithmic: false,
        content: Content::Bars {
            groups: RULES.iter().map(|name| (*name).to_owned()).collect(),
            series: vec![(
                format!("endurance {}", endurances[0]),
                least
                    .iter()
                    .map(|worst| crate::isolation::summary::Estimate::of(&[worst.of_ideal * 100.0]))
                    .collect(),
            )],
        },
        references: vec![("ideal".into(), 100.0), ("published".into(), 95.0)],
    });
    Ok(findings)
}

#[cfg(test)]
mod test {
    use super::*;

    /// The limit by hand, without one on imbalance: a threshold of the root of 0.4 E costs as much until 1.1 E as it leaves, so it
    /// loses 1.15 / root E; none that begins with the loss and only falls loses less than 0.61 / root E. No run is above the
    /// limit by more than what its few phases leave out.
    #[test]
    fn no_threshold_is_better_than_the_limit() {
        for endurance in [1000, 3000, 10_000] {
            let [free, even] = [None, Some(0.1)].map(|delta| limit_of_ideal(endurance, 16, delta));
            let lost = |times: f64| 1.0 - times / f64::from(endurance).sqrt();
            assert!(free > even && (lost(1.15)..lost(0.61)).contains(&free), "{free} {even}");
            let model = fixed_at(WearModel::cnex(endurance), fixed_cycles(endurance)[2]);
            let lives = sweep(&model, &one_writer(&model, 2), &[900, 1100]);
            assert!(worst(&lives).of_ideal < free, "{endurance}: {free}");
        }
    }
    use diecut_shard::control::WearSettings;
    use diecut_vssd::{DieLayout, WearConfig};

    const CHANNELS: usize = 4;
    const BLOCKS_PER_PLANE: u32 = 24;
    const THRESHOLD_CYCLES: u64 = 24;
    const ENDURANCE_CYCLES: u64 = 160;

    /// The stage: one tenant overwrites all it has until a channel was erased as often as its blocks bear. Gives erases of
    /// each channel, those by swaps, and swaps.
    fn on_pages(blocks_per_die: &mut u64) -> (Vec<u64>, u64, u64) {
        let mut ground = Ground::of(CHANNELS as u16, BLOCKS_PER_PLANE, 4, 1);
        ground.profile.bad_blocks.factory_percent = 0.0;
        let mut stage = Stage::new(&ground, &vec![Part::new(Isolation::Channel, 1); CHANNELS]).unwrap();
        let blocks = stage.erase_blocks();
        *blocks_per_die = blocks[0] / 4;
        let change = WearSettings {
            channel_threshold_erases: Some(THRESHOLD_CYCLES * 4 * u64::from(BLOCKS_PER_PLANE)),
            follow_age: Some(false),
            rate: Some(diecut_spec::Size(0)),
            ..WearSettings::default()
        };
        stage.set_wear(change).unwrap();
        let lbas = stage.exported_lbas().into_iter().fold(u64::MAX, u64::min);
        (0..CHANNELS).for_each(|part| stage.create_volume(part, lbas).unwrap());
        fill(&mut stage, CHANNELS, lbas);
        let mut loads: Vec<Plain> = (0..CHANNELS).map(|_| Plain::idle()).collect();
        // Slow beside a swap, as a life is.
        loads[0] = Plain::new(Kind::Write, 16, Order::Random, Pace::PerSecond(400.0), lbas, 1);
        loads[0].begin(stage.now);
        let dead_at = ENDURANCE_CYCLES * *blocks_per_die * 4;
        loop {
            let until = stage.now + Span::from_millis(5);
            let mut given: Vec<&mut dyn Workload> =
                loads.iter_mut().map(|load| load as &mut dyn Workload).collect();
            stage.run(&mut given, until);
            let wear = stage.wear();
            let channels: Vec<u64> = wear.channels.iter().map(|channel| channel.erases()).collect();
            if channels.iter().any(|&erases| erases >= dead_at) {
                let migrated = wear.channels.iter().map(|channel| channel.migration_erases).sum();
                return (channels, migrated, wear.finished / 4);
            }
        }
    }

    /// Goal: what the lifetime model leaves out (that a swap takes time, that a channel is not full, the cleaner's own
    /// pace) changes little. Method: the same writer, thresholds and endurance on pages, through the shard that ships, and in
    /// the model.
    #[test]
    fn pages_and_the_model_agree() {
        let mut blocks_per_die = 0;
        let (channels, migrated, swaps) = on_pages(&mut blocks_per_die);
        let mut model = WearModel {
            channels: CHANNELS,
            layout: DieLayout { dies_per_channel: 4, blocks_per_die: BLOCKS_PER_PLANE.into() },
            good_blocks_per_die: blocks_per_die as usize,
            reserve_blocks_per_die: 1,
            endurance_cycles: ENDURANCE_CYCLES,
            // Days, beside which the stage's seconds are one window.
            window_erases: u64::MAX,
            ..WearModel::cnex(3000)
        };
        model.wear = WearConfig {
            channel_threshold_erases: THRESHOLD_CYCLES * 4 * u64::from(BLOCKS_PER_PLANE),
            die_threshold_erases: 0,
            follow_age: false,
            ..model.wear
        };
        let life = model.live(&ONE);
        let of_model: Vec<u64> = life.channels.iter().map(|one| one.host + one.migration).collect();
        let migrated_in_model: u64 = life.channels.iter().map(|one| one.migration).sum();
        let (all, all_in_model) = (channels.iter().sum::<u64>(), of_model.iter().sum::<u64>());
        println!(
            "pages: {channels:?}, {migrated} of them by {swaps} swaps; model: {of_model:?}, {migrated_in_model} by {}",
            life.swaps
        );
        let within = |one: u64, other: u64, percent: u64| one.abs_diff(other) * 100 <= other * percent;
        assert!(swaps >= 10 && within(swaps, life.swaps, 10), "{swaps} swaps and {}", life.swaps);
        assert!(within(all, all_in_model, 3), "{all} erases and {all_in_model}");
        // The model erases every block of both channels, which is more than they hold.
        assert!(migrated <= migrated_in_model && migrated * 4 >= migrated_in_model);
        let sorted = |mut channels: Vec<u64>| {
            channels.sort_unstable();
            channels
        };
        let dead_at = ENDURANCE_CYCLES * blocks_per_die * 4;
        for (one, other) in sorted(channels).into_iter().zip(sorted(of_model)) {
            assert!(
                one.abs_diff(other) * 100 <= dead_at * 5,
                "a twentieth of the endurance: {one} and {other}"
            );
        }
    }
}
