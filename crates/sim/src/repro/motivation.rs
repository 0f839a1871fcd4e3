//! Why pin tenants to hardware at all: four tenants on eight channels, behind software, and on channels of their own.

use super::loads::{Order, Pace, Plain};
use super::plot::{Content, Plot};
use super::report::{Cell, Comparison, Table};
use super::stage::{Ground, Kind, Part, Stage, Workload};
use super::{Experiment, Findings, Progress, Published, Request};
use crate::isolation::summary::Estimate;
use diecut_spec::Isolation;
use diecut_units::Span;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "motivation",
    question: "What do four tenants on eight channels gain from hardware isolation, and what wears?",
    source: "FlashBlox (FAST'17), figure 1",
    set_up: "cnex-1tb with 8 channels, 192 blocks per plane of 32 pages; W1 to W4 ask for 1/8, 1/4, 1/4 and 3/8; W1 and W3 \
             read, W2 and W4 write, 64 KiB at random, closed loop, 8 commands under way for each channel's worth. Software: a \
             share of every die by weight, work-conserving; each tenant cleans erase blocks of its own. Hardware: 1, 2, 2 and 3 \
             channels. Writers' cleaners are steady before anything is measured.",
    differs: &[
        "The paper's workloads are known by share, size and direction only; order and depth are choices.",
        "Erase blocks are 32 pages long (256 on the board) and the device is smaller, so that cleaners become steady in \
         seconds; erases come more often by as much.",
        "The board's flash timing was never published; MLC timing stands in (FEMU's set for the same family).",
        "Commands cost no processor time here, under both kinds of isolation: the paper's tenants have cores of their own.",
        "Wear is what the measured seconds erased; the paper's is from a longer run. No wear leveling between channels here.",
    ],
    published: &[
        Published { figure: "latency, software over hardware", value: "1.7x" },
        Published { figure: "throughput, hardware over software", value: "+10.8 %" },
        Published { figure: "wear of channels", value: "visibly uneven with hardware isolation" },
    ],
    run,
};

const SHARES: [u32; 4] = [1, 2, 2, 3];
const NAMES: [&str; 4] = ["W1 reads 1/8", "W2 writes 1/4", "W3 reads 1/4", "W4 writes 3/8"];
const KINDS: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Read, Kind::Write];
const CHANNELS: u16 = 8;
const BLOCKS: u32 = 16;
const DEPTH_PER_CHANNEL: usize = 8;

/// What one tenant met.
#[derive(Clone, Copy, Debug)]
struct Met {
    mb_per_s: f64,
    mean_us: f64,
    p99_us: f64,
}

struct Outcome {
    tenants: [Met; 4],
    waf: [f64; 4],
    erases: Vec<u64>,
}

impl Outcome {
    fn throughput(&self) -> f64 {
        self.tenants.iter().map(|met| met.mb_per_s).sum()
    }
    fn mean_us(&self) -> f64 {
        self.tenants.iter().map(|met| met.mean_us).sum::<f64>() / 4.0
    }
    fn imbalance(&self) -> f64 {
        let most = self.erases.iter().max().copied().unwrap_or(0);
        most as f64 * self.erases.len() as f64 / self.erases.iter().sum::<u64>().max(1) as f64
    }
}

fn parts(isolation: Isolation) -> [Part; 4] {
    SHARES.map(|share| Part { weight: 100 * share, ..Part::new(isolation, share) })
}

fn measure(
    isolation: Isolation,
    seed: u64,
    quick: bool,
    lbas: &[u64],
    progress: Progress,
) -> Result<Outcome, String> {
    let mut stage = Stage::new(&ground(seed, quick), &parts(isolation))?;
    for (part, lbas) in lbas.iter().enumerate() {
        stage.create_volume(part, *lbas)?;
    }
    let load = |tenant: usize, kind, blocks, order, depth| {
        Plain::new(kind, blocks, order, Pace::Depth(depth), lbas[tenant], seed * 16 + tenant as u64)
    };
    let mut fill: Vec<Plain> =
        (0..4).map(|tenant| load(tenant, Kind::Write, 256, Order::Sequential, 4)).collect();
    for tenant in 0..4 {
        let mut loads: Vec<Plain> = (0..4).map(|_| Plain::idle()).collect();
        std::mem::swap(&mut loads[tenant], &mut fill[tenant]);
        run_until_written(&mut stage, &mut loads, tenant, lbas[tenant]);
    }
    let overwrites = if quick { 0.25 } else { 1.5 };
    for tenant in [1, 3] {
        let mut loads: Vec<Plain> = (0..4).map(|_| Plain::idle()).collect();
        loads[tenant] = load(tenant, Kind::Write, BLOCKS, Order::Random, 64);
        run_until_written(&mut stage, &mut loads, tenant, (lbas[tenant] as f64 * overwrites) as u64);
    }
    progress("filled and overwritten");
    let mut loads: Vec<Plain> = (0..4)
        .map(|tenant| {
            load(tenant, KINDS[tenant], BLOCKS, Order::Random, DEPTH_PER_CHANNEL * SHARES[tenant] as usize)
        })
        .collect();
    // What cleaners freed while others were prepared is used up first.
    let (warm_up, length) = if quick { (20, 50) } else { (1_000, 3_000) };
    run_for(&mut stage, &mut loads, Span::from_millis(warm_up));
    let (start, before, erases) = (stage.now, stage.written(), stage.erases_by_channel());
    loads.iter_mut().for_each(|load| load.meter.restart(start));
    run_for(&mut stage, &mut loads, Span::from_millis(length));
    let (written, now) = (stage.written(), stage.now);
    let met = |tenant: usize| {
        let meter = &loads[tenant].meter;
        Met { mb_per_s: meter.mb_per_s(now), mean_us: meter.mean_us(), p99_us: meter.quantile_us(0.99) }
    };
    let after = stage.erases_by_channel();
    Ok(Outcome {
        tenants: std::array::from_fn(met),
        waf: std::array::from_fn(|tenant| written[tenant].waf_since(before[tenant])),
        erases: after.iter().zip(&erases).map(|(after, before)| after - before).collect(),
    })
}

fn run_for(stage: &mut Stage, loads: &mut [Plain], length: Span) {
    let until = stage.now + length;
    let mut loads: Vec<&mut dyn Workload> = loads.iter_mut().map(|load| load as &mut dyn Workload).collect();
    stage.run(&mut loads, until);
}

/// Runs until a workload's volume was written as much, then lets all come to rest.
fn run_until_written(stage: &mut Stage, loads: &mut [Plain], tenant: usize, lbas: u64) {
    while loads[tenant].blocks_done < lbas {
        run_for(stage, loads, Span::from_millis(10));
    }
    stage.settle();
}

fn ground(seed: u64, quick: bool) -> Ground {
    // Shares in eighths of every die: 1, 2, 2 and 3 soft-planes of each.
    let (blocks, pages) = if quick { (128, 8) } else { (192, 32) };
    Ground { soft_planes_per_die: CHANNELS, ..Ground::of(CHANNELS, blocks, pages, seed) }
}

fn run(request: &Request, progress: Progress) -> Result<Findings, String> {
    const LEVELS: [(Isolation, &str); 2] =
        [(Isolation::Software, "software"), (Isolation::Channel, "hardware")];
    let mut by_level: [Vec<Outcome>; 2] = [Vec::new(), Vec::new()];
    for seed in 1..=request.seeds {
        // Volumes of one size under both, so that cleaners have equal room.
        let mut lbas = vec![u64::MAX; 4];
        for (isolation, _) in LEVELS {
            let exported = Stage::new(&ground(seed, request.quick), &parts(isolation))?.exported_lbas();
            lbas = lbas.iter().zip(exported).map(|(one, other)| other.min(*one)).collect();
        }
        for ((isolation, name), outcomes) in LEVELS.into_iter().zip(&mut by_level) {
            let mut step = |what: &str| progress(&format!("seed {seed}, {name}: {what}"));
            outcomes.push(measure(isolation, seed, request.quick, &lbas, &mut step)?);
            progress(&format!("seed {seed}, {name}: measured"));
        }
    }
    let over = |level: usize, figure: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
        by_level[level].iter().map(figure).collect()
    };
    let mut findings = Findings::default();
    let columns = ["isolation", "tenant", "MB/s", "mean us", "p99 us", "waf_cleaner"];
    let mut table = Table::new("Tenants", &columns);
    let mut wear =
        Table::new("Erases of each channel over their mean", &["isolation", "channel", "erases x mean"]);
    for (level, (_, name)) in LEVELS.into_iter().enumerate() {
        for (tenant, of_tenant) in NAMES.into_iter().enumerate() {
            table.rows.push(vec![
                Cell::text(name),
                Cell::text(of_tenant),
                Cell::over(&over(level, &|o| o.tenants[tenant].mb_per_s), 1),
                Cell::over(&over(level, &|o| o.tenants[tenant].mean_us), 0),
                Cell::over(&over(level, &|o| o.tenants[tenant].p99_us), 0),
                Cell::over(&over(level, &|o| o.waf[tenant]), 2),
            ]);
        }
        for channel in 0..usize::from(CHANNELS) {
            let share = |o: &Outcome| {
                o.erases[channel] as f64 * f64::from(CHANNELS) / o.erases.iter().sum::<u64>().max(1) as f64
            };
            let row =
                vec![Cell::text(name), Cell::Number(channel as f64, 0), Cell::over(&over(level, &share), 2)];
            wear.rows.push(row);
        }
    }
    let bars = |figure: &dyn Fn(&Outcome, usize) -> f64| Content::Bars {
        groups: NAMES.map(str::to_owned).to_vec(),
        series: LEVELS
            .into_iter()
            .enumerate()
            .map(|(level, (_, name))| {
                let of = |tenant| Estimate::of(&over(level, &|o| figure(o, tenant)));
                (name.to_owned(), (0..4).map(of).collect())
            })
            .collect(),
    };
    let plot = |title: &str, y_label: &str, logarithmic, content| Plot {
        title: title.to_owned(),
        x_label: String::new(),
        y_label: y_label.to_owned(),
        logarithmic,
        content,
        references: Vec::new(),
    };
    findings.plots.push(plot("Throughput", "MB/s", false, bars(&|o, tenant| o.tenants[tenant].mb_per_s)));
    findings.plots.push(plot("Mean latency", "us", true, bars(&|o, tenant| o.tenants[tenant].mean_us)));
    let wear_bars = LEVELS.into_iter().enumerate().map(|(level, (_, name))| {
        let rows = wear.rows[level * usize::from(CHANNELS)..].iter().take(CHANNELS.into());
        let bars = rows.map(|row| match &row[2] {
            Cell::Estimate(estimate, _) => *estimate,
            _ => unreachable!("the third column holds estimates"),
        });
        (name.to_owned(), bars.collect())
    });
    let content = Content::Bars {
        groups: (0..CHANNELS).map(|channel| format!("channel {channel}")).collect(),
        series: wear_bars.collect(),
    };
    findings.plots.push(plot("Erases of each channel", "x mean", false, content));
    findings.tables.extend([table, wear]);
    let ratio = |figure: &dyn Fn(&Outcome) -> f64, over_level: usize, under_level: usize| -> Vec<f64> {
        let pairs = by_level[over_level].iter().zip(&by_level[under_level]);
        pairs.map(|(over, under)| figure(over) / figure(under)).collect()
    };
    let latency = ratio(&Outcome::mean_us, 0, 1);
    let readers = |o: &Outcome| (o.tenants[0].mean_us + o.tenants[2].mean_us) / 2.0;
    let writers = |o: &Outcome| (o.tenants[1].mean_us + o.tenants[3].mean_us) / 2.0;
    let throughput: Vec<f64> =
        ratio(&Outcome::throughput, 1, 0).iter().map(|ratio| (ratio - 1.0) * 100.0).collect();
    let imbalance = [0, 1].map(|level| over(level, &Outcome::imbalance));
    findings.comparisons = vec![
        Comparison::new(
            "mean latency of four tenants, software over hardware",
            "1.7x",
            Cell::over(&latency, 2),
        ),
        Comparison::new("- of the readers", "-", Cell::over(&ratio(&readers, 0, 1), 2)),
        Comparison::new("- of the writers", "-", Cell::over(&ratio(&writers, 0, 1), 2)),
        Comparison::new("throughput, hardware over software, %", "+10.8", Cell::over(&throughput, 1)),
        Comparison::new("max/avg erases of channels, software", "even", Cell::over(&imbalance[0], 2)),
        Comparison::new("max/avg erases of channels, hardware", "uneven", Cell::over(&imbalance[1], 2)),
    ];
    let mean = |level: usize, figure: &dyn Fn(&Outcome) -> f64| Estimate::of(&over(level, figure)).mean;
    let written = |o: &Outcome| o.tenants[1].mb_per_s + o.tenants[3].mb_per_s;
    let writers_waf = |o: &Outcome| (o.waf[1] + o.waf[3]) / 2.0;
    findings.notes.push(format!(
        "In a closed loop throughput and latency are two sides of one figure for each tenant. Readers wait {:.2} times as long \
         under software isolation as under hardware isolation: programs and erases of the writers are at work on the dies they \
         read from. Writers wait {:.2} times as long; together they write {:.0} MB/s under software and {:.0} MB/s under \
         hardware isolation, with a mean waf_cleaner of {:.2} and {:.2}. What cleaners write beside the host is most of the \
         writers' latency, and the paper does not say how much there was of it.",
        Estimate::of(&ratio(&readers, 0, 1)).mean,
        Estimate::of(&ratio(&writers, 0, 1)).mean,
        mean(0, &written),
        mean(1, &written),
        mean(0, &writers_waf),
        mean(1, &writers_waf),
    ));
    Ok(findings)
}

#[cfg(test)]
mod test {
    use super::*;

    /// The claim in small: readers' latency falls with channels of their own, and only the writers' channels wear.
    #[test]
    fn channels_of_their_own_help_readers_and_wear_unevenly() {
        let exported = |isolation| Stage::new(&ground(1, true), &parts(isolation)).unwrap().exported_lbas();
        let (one, other) = (exported(Isolation::Channel), exported(Isolation::Software));
        let lbas: Vec<u64> = one.iter().zip(other).map(|(one, other)| other.min(*one)).collect();
        let run = |isolation| measure(isolation, 1, true, &lbas, &mut |_| {}).unwrap();
        let (software, hardware) = (run(Isolation::Software), run(Isolation::Channel));
        assert!(software.tenants[0].mean_us > 1.5 * hardware.tenants[0].mean_us);
        assert!(hardware.imbalance() > 1.3, "{:?}", hardware.erases);
        // Some 70 erases in all: blocks that stores have prepared and not begun are a part of them.
        assert!(software.imbalance() < 1.6, "{:?}", software.erases);
        assert!(software.imbalance() < hardware.imbalance(), "{:?} {:?}", software.erases, hardware.erases);
        let idle = hardware.erases.iter().filter(|erases| **erases == 0).count();
        assert_eq!(idle, 3, "the readers' channels: {:?}", hardware.erases);
    }
}
