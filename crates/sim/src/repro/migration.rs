//! What a migration costs those who read meanwhile: two channels change places under load, with the server's own exchange.

use super::loads::{Order, Pace, Plain};
use super::plot::{Content, Plot};
use super::report::{Cell, Comparison, Table};
use super::stage::{Ground, Kind, Part, Stage, Workload};
use super::ycsb::fill;
use super::{Experiment, Findings, Progress, Published, Request};
use crate::isolation::summary::Estimate;
use diecut_shard::CostModel;
use diecut_shard::control::WearSettings;
use diecut_spec::Isolation;
use diecut_units::{Span, Time};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "migration",
    question: "What do a tenant and its neighbour feel while the tenant's channel changes places with another one?",
    source: "FlashBlox (FAST'17), section 3.1.5 and figure 12",
    set_up: "cnex-1tb with three channels of 1 GiB (128 blocks per plane of 32 pages), each held by a tenant, all full. The first \
             one's content has erased most, so the server moves it to the third one's channel and back the other way, block by \
             block, at 78.9 MB/s or as fast as it goes. The first and the second tenant read 4 KiB at random, open loop, 12,000 \
             a second each (about 30 % of what a channel serves); in a second load the first one writes 10 MB/s besides. The \
             same seconds without and with the migration. The core is that of `diecut demo`: commands cost what was measured.",
    differs: &[
        "The channel is 1 GiB, all of which moves, instead of 1 GiB of 64: the time of a whole one is by the rate that was met.",
        "78.9 MB/s is what was read of both channels together: each of the two contents moves at half of it. The paper does not \
         say whether its 15 minutes for a channel are for one direction.",
        "The workload of figure 12 was not published in numbers; reads at 30 % are a choice. Writes are few: the channel \
         shall serve them and the copies beside its cleaner.",
        "Every place is read twice before it is copied, so that a silent read error is not made permanent; the copies cost \
         the core nothing here.",
        "Erase blocks are 32 pages long (256 on the board).",
    ],
    published: &[
        Published { figure: "rate of a migration, one thread", value: "78.9 MB/s" },
        Published { figure: "whole 64 GB channel", value: "about 15 minutes" },
        Published { figure: "others during a migration", value: "everything else keeps priority" },
    ],
    run,
};

const RATE_BYTES_PER_S: u64 = 78_900_000;
const READS_PER_S: f64 = 12_000.0;
const WRITTEN_BYTES_PER_S: f64 = 10e6;
const CHANNEL_BYTES: f64 = (64u64 << 30) as f64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moves {
    Nothing,
    AtRate,
    Unbounded,
}

const MOVES: [(Moves, &str); 3] =
    [(Moves::Nothing, "none"), (Moves::AtRate, "78.9 MB/s"), (Moves::Unbounded, "no limit")];
const LOADS: [(bool, &str); 2] = [(false, "reads"), (true, "reads and 10 MB/s of writes")];

/// What a reader met.
#[derive(Clone, Copy, Debug)]
struct Met {
    per_s: f64,
    us: [f64; 3],
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Of the tenant that moves, and of the one that does not.
    readers: [Met; 2],
    written_mb_per_s: f64,
    /// Time until both channels had changed places, and bytes that moved, both ways.
    seconds: f64,
    moved_bytes: f64,
}

impl Outcome {
    fn mb_per_s(&self) -> f64 {
        self.moved_bytes / self.seconds / 1e6
    }
}

fn geometry(quick: bool) -> (u32, u32) {
    if quick { (64, 8) } else { (128, 32) }
}

/// `seconds`: how long to look where nothing moves.
fn measure(moves: Moves, writes: bool, seed: u64, quick: bool, seconds: f64) -> Result<Outcome, String> {
    let (blocks, pages) = geometry(quick);
    let ground = Ground { cost_model: Some(CostModel::default()), ..Ground::of(3, blocks, pages, seed) };
    let mut stage = Stage::new(&ground, &vec![Part::new(Isolation::Channel, 1); 3])?;
    // Nothing moves before it shall.
    stage.set_wear(WearSettings { channel_threshold_erases: Some(0), ..WearSettings::default() })?;
    let lbas = stage.exported_lbas().into_iter().fold(u64::MAX, u64::min);
    for part in 0..3 {
        stage.create_volume(part, lbas)?;
    }
    fill(&mut stage, 3, lbas);
    // The first one erases twice as much again, the second one as much: the third one's channel is the least worn.
    for (volume, overwrites) in [(0, 2), (1, 1)] {
        let mut loads: Vec<Plain> = (0..3).map(|_| Plain::idle()).collect();
        loads[volume] =
            Plain::new(Kind::Write, 16, Order::Random, Pace::Depth(32), lbas, seed * 8 + volume as u64);
        while loads[volume].blocks_done < lbas * overwrites {
            let until = stage.now + Span::from_millis(10);
            run_until(&mut stage, &mut loads, until);
        }
        stage.settle();
    }
    // The fourth load writes to the tenant that moves.
    stage.create_alias(0);
    let reader = |seed| Plain::new(Kind::Read, 1, Order::Random, Pace::PerSecond(READS_PER_S), lbas, seed);
    let pace = Pace::PerSecond(WRITTEN_BYTES_PER_S / 4096.0 / 16.0);
    let writer = Plain::new(Kind::Write, 16, Order::Random, pace, lbas, seed * 8 + 4);
    let writer = if writes { writer } else { Plain::idle() };
    let mut loads = vec![reader(seed * 8 + 2), reader(seed * 8 + 3), Plain::idle(), writer];
    loads.iter_mut().for_each(|load| load.begin(stage.now));
    let warm_up = stage.now + Span::from_millis(if quick { 10 } else { 500 });
    run_until(&mut stage, &mut loads, warm_up);

    let (start, before) = (stage.now, stage.wear());
    loads.iter_mut().for_each(|load| load.meter.restart(start));
    let rate = match moves {
        Moves::Nothing => None,
        Moves::AtRate => Some(RATE_BYTES_PER_S),
        Moves::Unbounded => Some(0),
    };
    if let Some(rate) = rate {
        let change = WearSettings {
            channel_threshold_erases: Some(u64::from(blocks)),
            rate: Some(diecut_spec::Size(rate)),
            ..WearSettings::default()
        };
        stage.set_wear(change)?;
    }
    let step = Span::from_millis(if quick { 5 } else { 20 });
    let limit = start + Span::from_secs(if quick { 60 } else { 600 });
    let least = start + Span((seconds * 1e9) as u64);
    let mut done_at: Option<Time> = None;
    while stage.now < limit && if rate.is_some() { done_at.is_none() } else { stage.now < least } {
        let until = stage.now + step;
        run_until(&mut stage, &mut loads, until);
        if rate.is_some() && stage.wear().finished - before.finished >= 4 {
            done_at = Some(stage.now);
        }
    }
    if rate.is_some() && done_at.is_none() {
        return Err(format!(
            "the channels had not changed places after {} s",
            limit.since(start).as_secs_f64()
        ));
    }
    let now = stage.now;
    let met = |load: &Plain| Met {
        per_s: load.meter.per_s(now),
        us: [0.5, 0.99, 0.999].map(|quantile| load.meter.quantile_us(quantile)),
    };
    let block_bytes = f64::from(pages) * 4.0 * 16384.0;
    Ok(Outcome {
        readers: [met(&loads[0]), met(&loads[1])],
        written_mb_per_s: loads[3].meter.mb_per_s(now),
        seconds: now.since(start).as_secs_f64(),
        moved_bytes: (stage.wear().moved_blocks - before.moved_blocks) as f64 * block_bytes,
    })
}

fn run_until(stage: &mut Stage, loads: &mut [Plain], until: Time) {
    let mut loads: Vec<&mut dyn Workload> = loads.iter_mut().map(|load| load as &mut dyn Workload).collect();
    stage.run(&mut loads, until);
}

fn run(request: &Request, progress: Progress) -> Result<Findings, String> {
    // By load, by kind of migration, by seed.
    let mut outcomes = vec![vec![Vec::new(); MOVES.len()]; LOADS.len()];
    for seed in 1..=request.seeds {
        for (load, (writes, what)) in LOADS.into_iter().enumerate() {
            // As long without as with it.
            for number in [1, 2, 0] {
                let (moves, name) = MOVES[number];
                let seconds = outcomes[load][1].last().map_or(0.0, |outcome: &Outcome| outcome.seconds);
                let outcome = measure(moves, writes, seed, request.quick, seconds)?;
                progress(&format!(
                    "seed {seed}, {what}, migration {name}: {:.1} s, {:.1} MB/s moved, neighbour's p99 {:.0} us",
                    outcome.seconds,
                    outcome.mb_per_s(),
                    outcome.readers[1].us[1]
                ));
                outcomes[load][number].push(outcome);
            }
        }
    }
    let mut findings = Findings::default();
    let columns = [
        "load",
        "migration",
        "reader",
        "reads/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "p99 x without",
        "p99.9 x without",
    ];
    let mut table = Table::new("Readers while two channels of 1 GiB change places", &columns);
    let over = |load: usize, moves: usize, figure: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
        outcomes[load][moves].iter().map(figure).collect()
    };
    let ratio = |load: usize, moves: usize, reader: usize, which: usize| -> Vec<f64> {
        let with = over(load, moves, &|one| one.readers[reader].us[which]);
        let without = over(load, 0, &|one| one.readers[reader].us[which]);
        with.iter().zip(without).map(|(with, without)| with / without).collect()
    };
    let readers = ["of the channel that moves", "neighbour"];
    for (load, (_, what)) in LOADS.iter().enumerate() {
        for (moves, (_, name)) in MOVES.iter().enumerate() {
            for (reader, who) in readers.iter().enumerate() {
                let mut row = vec![Cell::text(*what), Cell::text(*name), Cell::text(*who)];
                row.push(Cell::over(&over(load, moves, &|one| one.readers[reader].per_s), 0));
                row.extend(
                    (0..3)
                        .map(|which| Cell::over(&over(load, moves, &|one| one.readers[reader].us[which]), 0)),
                );
                row.extend([1, 2].map(|which| Cell::over(&ratio(load, moves, reader, which), 3)));
                table.rows.push(row);
            }
        }
    }
    findings.tables.push(table);
    let columns = [
        "load",
        "limit",
        "time s",
        "moved MB/s, both ways",
        "a 64 GiB channel out, minutes",
        "both channels of 64 GiB, minutes",
        "written meanwhile MB/s",
    ];
    let mut rates = Table::new("The migration", &columns);
    let minutes = |bytes: f64| move |one: &Outcome| bytes / (one.mb_per_s() * 1e6) / 60.0;
    for (load, (_, what)) in LOADS.iter().enumerate() {
        for (moves, (_, name)) in MOVES.iter().enumerate().skip(1) {
            rates.rows.push(vec![
                Cell::text(*what),
                Cell::text(*name),
                Cell::over(&over(load, moves, &|one| one.seconds), 1),
                Cell::over(&over(load, moves, &Outcome::mb_per_s), 1),
                Cell::over(&over(load, moves, &minutes(CHANNEL_BYTES)), 1),
                Cell::over(&over(load, moves, &minutes(2.0 * CHANNEL_BYTES)), 1),
                Cell::over(&over(load, moves, &|one| one.written_mb_per_s), 1),
            ]);
        }
    }
    findings.tables.push(rates);
    let mut beside = |figure: &str, published: &str, values: Vec<f64>, digits| {
        findings.comparisons.push(Comparison::new(figure, published, Cell::over(&values, digits)));
    };
    beside("rate with the limit of 78.9 MB/s, MB/s", "78.9", over(0, 1, &Outcome::mb_per_s), 1);
    beside("rate without limit, MB/s", "-", over(0, 2, &Outcome::mb_per_s), 1);
    let figure = "64 GiB at the rate that was met with the limit, minutes";
    beside(figure, "about 15", over(0, 1, &minutes(CHANNEL_BYTES)), 1);
    for (load, (_, what)) in LOADS.iter().enumerate() {
        let name = |who: &str| format!("p99 of the reader {who}, with over without, {what}");
        beside(&name("whose channels stay (goal: at most 1.1)"), "-", ratio(load, 1, 1, 1), 3);
        beside(&name("of the channel that moves"), "-", ratio(load, 1, 0, 1), 3);
    }
    let mean = |values: Vec<f64>| Estimate::of(&values).mean;
    findings.notes.push(format!(
        "The neighbour's p99 is {:.3} times that without a migration at 78.9 MB/s and {:.3} times without limit, beside a tenant that \
         reads; {:.3} and {:.3} beside one that writes, too. The tenant that moves has {:.2} and {:.2} times its p99 beside reads, \
         {:.2} and {:.2} with writes: its reads wait for the erase or the program of a copy that is under way on their die.",
        mean(ratio(0, 1, 1, 1)),
        mean(ratio(0, 2, 1, 1)),
        mean(ratio(1, 1, 1, 1)),
        mean(ratio(1, 2, 1, 1)),
        mean(ratio(0, 1, 0, 1)),
        mean(ratio(0, 2, 0, 1)),
        mean(ratio(1, 1, 0, 1)),
        mean(ratio(1, 2, 0, 1)),
    ));
    let groups = LOADS.iter().flat_map(|(_, what)| readers.iter().map(move |who| format!("{who}, {what}")));
    let bars = |moves: usize, which: usize| -> Vec<Estimate> {
        let of = |load: usize, reader: usize| {
            Estimate::of(&over(load, moves, &|one| one.readers[reader].us[which]))
        };
        (0..2).flat_map(|load| [of(load, 0), of(load, 1)]).collect()
    };
    findings.plots.push(Plot {
        title: "p99 of readers by limit of the migration".into(),
        x_label: String::new(),
        y_label: "us".into(),
        logarithmic: true,
        content: Content::Bars {
            groups: groups.collect(),
            series: MOVES
                .iter()
                .enumerate()
                .map(|(at, (_, name))| ((*name).to_owned(), bars(at, 1)))
                .collect(),
        },
        references: Vec::new(),
    });
    Ok(findings)
}
