//! Tenants with committed rates beside a noisy one: no QoS sets, one stage with one state, two stages with two states.

use super::loads::{Order, Pace, Plain};
use super::plot::{Content, Plot};
use super::report::{Cell, Comparison, Table};
use super::stage::{Ground, Io, Kind, Part, Stage, Workload};
use super::ycsb::fill;
use super::{Experiment, Findings, Progress, Published, Request};
use crate::isolation::summary::Estimate;
use diecut_shard::{BucketSize, DeviceShaper, TokenUnit};
use diecut_spec::{Amount, Isolation, QosSetSpec, Size};
use diecut_units::{Span, Time};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "performashape",
    question: "What do tenants with a committed rate feel of a noisy one, and who gets what is idle?",
    source: "Silicon Motion, MonTitan SM8366: articles on PerformaShape, the demonstration with a noisy neighbour",
    set_up: "cnex-1tb with 4 channels, 128 blocks per plane of 16 pages; four tenants on un-isolated vSSDs that share all dies. Three quiet ones read \
             16 KiB at random, open loop, at 14 % of what the device reads at most. The noisy one reads 128 KiB at random, 64 under way. Four \
             phases of equal length: the quiet ones alone; the noisy one beside them; the noisy one with two of them, the third one rests; and \
             all together again. Ways: without QoS sets; one stage and one state (each tenant has a set of 20 % of the device, threshold 0); \
             two stages and two states (the same sets with a threshold of half a bucket, a second rate of all that is idle, and a \
             shaper of the device at 85 % of what it reads at most). Buckets hold 20 ms of their rate.",
    differs: &[
        "The figures, rates and loads of the published demonstration are not in any text that was found; its idea is run here, and nothing \
         can be compared with it.",
        "What happens below the threshold is published in words only (a second rate, lower priority, opportunistic); the rules are those of \
         docs/qos.md.",
        "Reads only, so that no cleaner takes part. The device is small, and commands cost no processor time.",
    ],
    published: &[Published {
        figure: "bandwidth of tenants beside a noisy neighbour, with and without the two stages",
        value: "shown as a demonstration; no numbers in text",
    }],
    run,
};

const CHANNELS: u16 = 4;
const QUIET: usize = 3;
const QUIET_BLOCKS: u32 = 4;
const NOISY_BLOCKS: u32 = 32;
const NOISY_DEPTH: usize = 64;
const SLOTS_PER_PHASE: u64 = 10;

const PHASES: [&str; 4] = ["quiet alone", "noisy beside", "one quiet rests", "noisy beside again"];
/// Phases in which the noisy one reads, and in which the last of the quiet ones does.
const NOISY_READS: [bool; 4] = [false, true, true, true];
const LAST_READS: [bool; 4] = [true, true, false, true];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    NoSets,
    OneStage,
    TwoStages,
}

const WAYS: [(Way, &str); 3] = [
    (Way::NoSets, "no sets"),
    (Way::OneStage, "one stage, one state"),
    (Way::TwoStages, "two stages, two states"),
];

/// A load that can rest.
struct Switched {
    load: Plain,
    is_on: bool,
}

impl Switched {
    fn new(load: Plain) -> Switched {
        Switched { load, is_on: false }
    }

    fn set(&mut self, is_on: bool, now: Time) {
        if is_on && !self.is_on {
            self.load.begin(now);
        }
        self.is_on = is_on;
    }
}

impl Workload for Switched {
    fn next(&mut self, now: Time) -> Option<Io> {
        if self.is_on { self.load.next(now) } else { None }
    }
    fn wakes_at(&self) -> Time {
        if self.is_on { self.load.wakes_at() } else { Time::NEVER }
    }
    fn answered(&mut self, tag: u64, now: Time) {
        self.load.answered(tag, now);
    }
}

/// What one way gave with one seed.
#[derive(Clone, Debug, Default)]
struct Outcome {
    /// By phase: MB/s of each tenant, and p99.9 of the quiet one that had it worst, in microseconds.
    mb_per_s: Vec<[f64; QUIET + 1]>,
    worst_us: Vec<f64>,
    /// By tenant, at the end of each slot: seconds, and MB/s in it.
    curves: Vec<Vec<(f64, f64)>>,
}

fn ground(seed: u64, quick: bool) -> Ground {
    if quick { Ground::of(CHANNELS, 128, 8, seed) } else { Ground::of(CHANNELS, 128, 16, seed) }
}

/// The tenants with full volumes.
fn stage(ground: &Ground) -> Result<(Stage, u64), String> {
    let part = Part::new(Isolation::None, 1);
    let mut stage = Stage::new(ground, &vec![part; QUIET + 1])?;
    let lbas = stage.exported_lbas().into_iter().min().expect("there are tenants");
    let lbas = lbas / 2 / u64::from(NOISY_BLOCKS) * u64::from(NOISY_BLOCKS);
    for part in 0..=QUIET {
        stage.create_volume(part, lbas)?;
    }
    fill(&mut stage, QUIET + 1, lbas);
    Ok((stage, lbas))
}

fn noisy(lbas: u64, seed: u64) -> Plain {
    Plain::new(Kind::Read, NOISY_BLOCKS, Order::Random, Pace::Depth(NOISY_DEPTH), lbas, seed)
}

/// Bytes that the device reads each second for the noisy one alone.
fn most_bytes_per_s(seed: u64, quick: bool, phase: Span) -> Result<f64, String> {
    let (mut stage, lbas) = stage(&ground(seed, quick))?;
    let mut idle: Vec<Plain> = (0..QUIET).map(|_| Plain::idle()).collect();
    let mut load = noisy(lbas, seed);
    let mut loads: Vec<&mut dyn Workload> = idle.iter_mut().map(|one| one as &mut dyn Workload).collect();
    loads.push(&mut load);
    let (from, until) = (stage.now, stage.now + phase);
    stage.run(&mut loads, until);
    Ok(load.blocks_done as f64 * 4096.0 / stage.now.since(from).as_secs_f64())
}

fn measure(way: Way, most: f64, seed: u64, quick: bool, phase: Span) -> Result<Outcome, String> {
    let mut ground = ground(seed, quick);
    let bucket_of = |rate: f64| ((rate / 50.0) as u64).max(u64::from(NOISY_BLOCKS) * 4096 * 2);
    if way == Way::TwoStages {
        let rate = most * 0.85;
        let bucket = BucketSize { rate_per_second: rate as u64, size: bucket_of(rate / 4.0) };
        ground.device_shaper = Some(DeviceShaper { unit: TokenUnit::Bytes(4096), bucket });
    }
    let (mut stage, lbas) = stage(&ground)?;
    let committed = most * 0.2;
    if way != Way::NoSets {
        for tenant in 0..=QUIET {
            let amount = |bytes: u64| Amount::Bytes(Size(bytes));
            let spec = QosSetSpec::new(&format!("set-{tenant}"), amount(committed as u64));
            let threshold = (way == Way::OneStage).then(|| amount(0));
            let bucket = Some(amount(bucket_of(committed)));
            stage.create_set(QosSetSpec { bucket, threshold, ..spec }, &[tenant])?;
        }
    }
    let per_s = most * 0.14 / f64::from(QUIET_BLOCKS) / 4096.0;
    let quiet = |tenant: u64| {
        let pace = Pace::PerSecond(per_s);
        Plain::new(Kind::Read, QUIET_BLOCKS, Order::Random, pace, lbas, seed * 100 + tenant)
    };
    let mut tenants: Vec<Switched> = (0..QUIET as u64).map(|tenant| Switched::new(quiet(tenant))).collect();
    tenants.push(Switched::new(noisy(lbas, seed)));
    let mut outcome = Outcome { curves: vec![Vec::new(); QUIET + 1], ..Outcome::default() };
    let started = stage.now;
    for phase_at in 0..PHASES.len() {
        let now = stage.now;
        for (tenant, one) in tenants.iter_mut().enumerate() {
            let is_on = match tenant {
                QUIET => NOISY_READS[phase_at],
                _ if tenant + 1 == QUIET => LAST_READS[phase_at],
                _ => true,
            };
            one.set(is_on, now);
            one.load.meter.restart(now);
        }
        for _ in 0..SLOTS_PER_PHASE {
            let before: Vec<u64> = tenants.iter().map(|one| one.load.blocks_done).collect();
            let (from, until) = (stage.now, stage.now + Span(phase.0 / SLOTS_PER_PHASE));
            let mut loads: Vec<&mut dyn Workload> =
                tenants.iter_mut().map(|one| one as &mut dyn Workload).collect();
            stage.run(&mut loads, until);
            let took = stage.now.since(from).as_secs_f64();
            for (tenant, one) in tenants.iter().enumerate() {
                let bytes = (one.load.blocks_done - before[tenant]) as f64 * 4096.0;
                outcome.curves[tenant]
                    .push((stage.now.since(started).as_secs_f64() * 1e3, bytes / took / 1e6));
            }
        }
        outcome.mb_per_s.push(std::array::from_fn(|tenant| tenants[tenant].load.meter.mb_per_s(stage.now)));
        let worst = tenants[..QUIET].iter().filter(|one| one.is_on);
        let worst = worst.map(|one| one.load.meter.quantile_us(0.999)).fold(0.0, f64::max);
        outcome.worst_us.push(worst);
    }
    Ok(outcome)
}

fn run(request: &Request, progress: Progress) -> Result<Findings, String> {
    let phase = Span::from_millis(if request.quick { 20 } else { 1_000 });
    let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); WAYS.len()];
    let mut most_mb_per_s = Vec::new();
    for seed in 1..=request.seeds {
        let most = most_bytes_per_s(seed, request.quick, phase)?;
        most_mb_per_s.push(most / 1e6);
        for (at, (way, name)) in WAYS.into_iter().enumerate() {
            let outcome = measure(way, most, seed, request.quick, phase)?;
            progress(&format!(
                "seed {seed}, {name}: p99.9 of the quiet ones {:.0} us beside the noisy one",
                outcome.worst_us[1]
            ));
            outcomes[at].push(outcome);
        }
    }
    let over = |way: usize, figure: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
        outcomes[way].iter().map(figure).collect()
    };
    // Within a seed, so that what differs between devices falls out.
    let used = |way: usize, phase: usize| -> Vec<f64> {
        let pairs = outcomes[way].iter().zip(&most_mb_per_s);
        pairs.map(|(one, most)| one.mb_per_s[phase].iter().sum::<f64>() / most * 100.0).collect()
    };
    let columns = [
        "way",
        "phase",
        "quiet 1_mb_per_s",
        "quiet 2_mb_per_s",
        "quiet 3_mb_per_s",
        "noisy_mb_per_s",
        "device in use_percent",
        "p99.9 of the quiet one that has it worst_us",
    ];
    let mut table = Table::new("Bandwidth and tail by phase", &columns);
    for (way, (_, name)) in WAYS.iter().enumerate() {
        for (at, phase) in PHASES.iter().enumerate() {
            let mut row = vec![Cell::text(*name), Cell::text(*phase)];
            row.extend((0..=QUIET).map(|tenant| Cell::over(&over(way, &|one| one.mb_per_s[at][tenant]), 0)));
            row.push(Cell::over(&used(way, at), 0));
            row.push(Cell::over(&over(way, &|one| one.worst_us[at]), 0));
            table.rows.push(row);
        }
    }
    let ratio = |one: usize, other: usize, figure: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
        outcomes[one].iter().zip(&outcomes[other]).map(|(one, other)| figure(one) / figure(other)).collect()
    };
    let mut findings = Findings { tables: vec![table], ..Findings::default() };
    let tail = |one: &Outcome| one.worst_us[1];
    let spare = |one: &Outcome| one.mb_per_s[2][QUIET];
    let unpublished = "not in text";
    findings.comparisons = vec![
        Comparison::new(
            "p99.9 of the quiet ones beside the noisy one, no sets over two stages",
            unpublished,
            Cell::over(&ratio(0, 2, &tail), 1),
        ),
        Comparison::new(
            "the same, one stage over two stages",
            unpublished,
            Cell::over(&ratio(1, 2, &tail), 2),
        ),
        Comparison::new(
            "bandwidth of the noisy one while a quiet one rests, two stages over one stage",
            unpublished,
            Cell::over(&ratio(2, 1, &spare), 2),
        ),
    ];
    findings.notes.push(format!(
        "The device reads {} MB/s at most for the noisy one alone; 20 % of that is committed to each tenant.",
        Cell::over(&most_mb_per_s, 0)
    ));
    for (way, (_, name)) in WAYS.iter().enumerate() {
        let curves = &outcomes[way][0].curves;
        let named = |tenant: usize| {
            if tenant == QUIET { "noisy".to_owned() } else { format!("quiet {}", tenant + 1) }
        };
        findings.plots.push(Plot {
            title: format!("Bandwidth over time, {name} (seed 1)"),
            x_label: "ms".into(),
            y_label: "MB/s".into(),
            logarithmic: false,
            content: Content::Curves(
                curves.iter().enumerate().map(|(tenant, curve)| (named(tenant), curve.clone())).collect(),
            ),
            references: Vec::new(),
        });
    }
    findings.plots.push(Plot {
        title: "p99.9 of the quiet one that has it worst".into(),
        x_label: String::new(),
        y_label: "us".into(),
        logarithmic: true,
        content: Content::Bars {
            groups: PHASES.iter().map(|phase| (*phase).to_owned()).collect(),
            series: (0..WAYS.len())
                .map(|way| {
                    let bars = (0..PHASES.len()).map(|at| Estimate::of(&over(way, &|one| one.worst_us[at])));
                    (WAYS[way].1.to_owned(), bars.collect())
                })
                .collect(),
        },
        references: Vec::new(),
    });
    Ok(findings)
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: sets do what the experiment is about: the quiet ones keep their bandwidth in every way, one stage holds the noisy one to its
    /// rate, and two stages give it what is idle. Method: a short run; the noisy one wants all there is.
    #[test]
    fn sets_hold_the_noisy_one_and_two_states_use_what_is_idle() {
        let phase = Span::from_millis(40);
        let most = most_bytes_per_s(1, true, phase).unwrap();
        let outcomes = WAYS.map(|(way, _)| measure(way, most, 1, true, phase).unwrap());
        let share =
            |way: usize, phase: usize, tenant: usize| outcomes[way].mb_per_s[phase][tenant] * 1e6 / most;
        for way in 1..WAYS.len() {
            for tenant in 0..QUIET {
                assert!((0.11..0.17).contains(&share(way, 1, tenant)), "{}", share(way, 1, tenant));
            }
        }
        // A bucket of 20 ms is much of a phase of 40 ms.
        let [free, held, two] = [share(0, 1, QUIET), share(1, 3, QUIET), share(2, 3, QUIET)];
        assert!(free > 0.45 && held < 0.3 && two > held + 0.08, "{free}, {held}, {two}");
        assert!(outcomes[2].worst_us[1] < outcomes[0].worst_us[1], "{outcomes:?}");
    }
}
