//! Latency of steady random writes: what a host waits for while the cleaner never rests.

use super::loads::{Order, Pace, Plain};
use super::plot::{Content, Plot};
use super::report::{Cell, Comparison, Table};
use super::stage::{Ground, Kind, Part, Stage, Workload};
use super::ycsb::fill;
use super::{Experiment, Findings, Progress, Published, Request};
use crate::isolation::summary::Estimate;
use diecut_devices::Profile;
use diecut_spec::Isolation;
use diecut_units::Span;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "write-latency",
    question: "Do writers wait evenly while the cleaner works, or in bursts with gaps between?",
    source: "Little's law: with a fixed number of commands under way, their number over their rate is the mean latency",
    set_up: "One channel-isolated vSSD over a whole device, 28 % over-provisioning, one volume of all that it exports. The volume is \
             written from end to end, then at random, 4 KiB each, 64 under way, as often as the table of sizes says, before \
             anything is measured: 64 writes under way, one, and 64 beside one reader.",
    differs: &[
        "Erase blocks are shorter than those of the profiles and there are fewer of them, so that the cleaner becomes steady in \
         seconds. With longer ones a cleaner without pace pauses for longer, in proportion.",
        "Commands cost no processor time.",
        "A die is at work while it has a command: its array is, or what it read or is to program is on the bus, or waits for it. On the \
         channel of cnex-1tb the bus is what arrays wait for.",
    ],
    published: &[
        Published {
            figure: "p99.9 of writes over the mean by Little's law, 64 under way",
            value: "3 at most (our goal)",
        },
        Published {
            figure: "share of time that dies are at work, 64 under way",
            value: "90 % at least (our goal)",
        },
    ],
    run,
};

/// What is measured on.
struct Device {
    profile: &'static str,
    channels: u16,
    blocks_per_plane: u32,
    pages_per_block: u32,
}

const DEVICES: [Device; 4] = [
    Device { profile: "tlc", channels: 1, blocks_per_plane: 64, pages_per_block: 48 },
    Device { profile: "tlc", channels: 8, blocks_per_plane: 64, pages_per_block: 48 },
    Device { profile: "cnex-1tb", channels: 1, blocks_per_plane: 64, pages_per_block: 64 },
    Device { profile: "cnex-1tb", channels: 8, blocks_per_plane: 64, pages_per_block: 64 },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Deep,
    Single,
    BesideReads,
}

const LOADS: [(Load, &str); 3] =
    [(Load::Deep, "64 writes"), (Load::Single, "1 write"), (Load::BesideReads, "64 writes, 1 read")];

#[derive(Clone, Copy, Debug, Default)]
struct Met {
    /// p50, p99, p99.9, mean.
    latency_us: [f64; 4],
    little_us: f64,
    reader_p99_us: f64,
    /// Share of time that dies have a command, and that their arrays are at work.
    busy: [f64; 2],
    waf: f64,
    per_s: f64,
}

fn ground(device: &Device, seed: u64, quick: bool) -> Result<Ground, String> {
    let mut profile = Profile::named(device.profile).map_err(|error| error.to_string())?;
    profile.geometry.channels = if quick { 1 } else { device.channels };
    profile.geometry.blocks_per_plane = if quick { 48 } else { device.blocks_per_plane };
    profile.geometry.pages_per_block = if quick { 12 } else { device.pages_per_block };
    profile.protected_memory_bytes = 64 << 20;
    Ok(Ground { profile, soft_planes_per_die: 4, cost_model: None, device_shaper: None, seed })
}

fn run_for(stage: &mut Stage, loads: &mut [Plain], length: Span) {
    let until = stage.now + length;
    let mut loads: Vec<&mut dyn Workload> = loads.iter_mut().map(|load| load as &mut dyn Workload).collect();
    stage.run(&mut loads, until);
}

/// Writes of `loads` until those of the first are so many more.
fn overwrite(stage: &mut Stage, loads: &mut [Plain; 2], lbas: u64) {
    let before = loads[0].blocks_done;
    while loads[0].blocks_done - before < lbas {
        run_for(stage, loads, Span::from_millis(1));
    }
}

/// A device in use for long: its LBAs, and what comes after this.
struct Used {
    stage: Stage,
    lbas: u64,
    dies: u64,
    seed: u64,
    quick: bool,
}

impl Used {
    fn new(device: &Device, seed: u64, quick: bool) -> Result<Used, String> {
        let ground = ground(device, seed, quick)?;
        let geometry = ground.profile.geometry;
        let mut stage = Stage::new(&ground, &[Part::new(Isolation::Channel, geometry.channels.into())])?;
        let lbas = stage.exported_lbas()[0];
        stage.create_volume(0, lbas)?;
        fill(&mut stage, 1, lbas);
        stage.create_alias(0);
        let dies = u64::from(geometry.channels) * u64::from(geometry.dies_per_channel);
        let mut used = Used { stage, lbas, dies, seed, quick };
        let mut loads = [used.writer(64, seed), Plain::idle()];
        overwrite(&mut used.stage, &mut loads, if quick { lbas / 2 } else { 2 * lbas });
        Ok(used)
    }

    fn writer(&self, depth: usize, seed: u64) -> Plain {
        Plain::new(Kind::Write, 1, Order::Random, Pace::Depth(depth), self.lbas, seed)
    }

    fn measure(&mut self, load: Load) -> Met {
        let (lbas, seed) = (self.lbas, self.seed);
        self.stage.settle();
        let depth = if load == Load::Single { 1 } else { 64 };
        let mut loads = [self.writer(depth, seed + 1), Plain::idle()];
        if load == Load::BesideReads {
            loads[1] = Plain::new(Kind::Read, 1, Order::Random, Pace::Depth(1), lbas, seed + 2);
        }
        let stage = &mut self.stage;
        overwrite(stage, &mut loads, if self.quick { lbas / 8 } else { lbas });
        let (start, before, busy) = (stage.now, stage.written()[0], stage.die_busy_ns());
        loads.iter_mut().for_each(|load| load.meter.restart(start));
        overwrite(stage, &mut loads, if self.quick { lbas / 8 } else { lbas / 2 });
        let meter = &loads[0].meter;
        let per_s = meter.per_s(stage.now);
        let at = |quantile| meter.quantile_us(quantile);
        let die_ns = stage.now.since(start).0 * self.dies;
        Met {
            latency_us: [at(0.5), at(0.99), at(0.999), meter.mean_us()],
            little_us: depth as f64 / per_s * 1e6,
            reader_p99_us: loads[1].meter.quantile_us(0.99),
            busy: [0, 1].map(|of| (stage.die_busy_ns()[of] - busy[of]) as f64 / die_ns as f64),
            waf: stage.written()[0].waf_since(before),
            per_s,
        }
    }
}

/// What steady random writes of 4 KiB wait for on a full volume, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct SteadyWrites {
    /// Median.
    pub p50_us: f64,
    /// 99 % wait at most this long.
    pub p99_us: f64,
    /// 99.9 % do.
    pub p999_us: f64,
    /// Mean by Little's law: those under way over their rate.
    pub little_us: f64,
}

/// With one write under way, or with 64, on the first device of the experiment (TLC, one channel), in virtual time: the same figures in
/// each run.
///
/// # Errors
/// What could not be set up.
pub fn steady_writes(seed: u64, is_deep: bool) -> Result<SteadyWrites, String> {
    let met = Used::new(&DEVICES[0], seed, false)?.measure(if is_deep { Load::Deep } else { Load::Single });
    let [p50_us, p99_us, p999_us, _] = met.latency_us;
    Ok(SteadyWrites { p50_us, p99_us, p999_us, little_us: met.little_us })
}

/// Over-provisioning of what the vSSD has in all, and what was met under each load.
fn measure(device: &Device, seed: u64, quick: bool, progress: Progress) -> Result<(f64, Vec<Met>), String> {
    let mut used = Used::new(device, seed, quick)?;
    progress("overwritten");
    let met = LOADS.iter().map(|(load, _)| used.measure(*load)).collect();
    Ok((used.stage.over_provisioning(0), met))
}

fn run(request: &Request, progress: Progress) -> Result<Findings, String> {
    let mut findings = Findings::default();
    let columns = [
        "device",
        "under way",
        "writes_per_s",
        "p50_us",
        "p99_us",
        "p99.9_us",
        "mean_us",
        "mean by Little_us",
        "p99.9 over it",
        "dies at work_percent",
        "their arrays_percent",
        "waf_cleaner",
        "p99 of reads_us",
    ];
    let mut table = Table::new("Random writes of 4 KiB on a full volume", &columns);
    let mut sizes = Table::new("Devices", &["device", "over-provisioning of the vSSD, effective_percent"]);
    let (mut ratios, mut names) = (Vec::new(), Vec::new());
    for device in if request.quick { &DEVICES[..1] } else { &DEVICES[..] } {
        let name = format!("{}, {} channels", device.profile, device.channels);
        let mut seeds: Vec<Vec<Met>> = Vec::new();
        let mut effective = Vec::new();
        for seed in 1..=request.seeds {
            let mut step = |what: &str| progress(&format!("seed {seed}, {name}: {what}"));
            let (over_provisioning, met) = measure(device, seed, request.quick, &mut step)?;
            effective.push(over_provisioning * 100.0);
            seeds.push(met);
        }
        sizes.rows.push(vec![Cell::text(&name), Cell::over(&effective, 1)]);
        for (at, (load, what)) in LOADS.iter().enumerate() {
            let values = |figure: &dyn Fn(&Met) -> f64| -> Vec<f64> {
                seeds.iter().map(|met| figure(&met[at])).collect()
            };
            let over = |figure: &dyn Fn(&Met) -> f64, digits| Cell::over(&values(figure), digits);
            let ratio = |met: &Met| met.latency_us[2] / met.little_us;
            let mut row = vec![Cell::text(&name), Cell::text(*what), over(&|met| met.per_s, 0)];
            row.extend((0..4).map(|part| over(&|met| met.latency_us[part], 0)));
            row.extend([
                over(&|met| met.little_us, 0),
                over(&ratio, 2),
                over(&|met| met.busy[0] * 100.0, 1),
                over(&|met| met.busy[1] * 100.0, 1),
                over(&|met| met.waf, 2),
                over(&|met| met.reader_p99_us, 0),
            ]);
            table.rows.push(row);
            if *load == Load::Deep {
                let figure = format!("{name}: p99.9 over the mean by Little's law");
                findings.comparisons.push(Comparison::new(figure, "3 at most", over(&ratio, 2)));
                let figure = format!("{name}: dies at work");
                let busy = over(&|met| met.busy[0] * 100.0, 1);
                findings.comparisons.push(Comparison::new(figure, "90 % at least", busy));
                ratios.push(Estimate::of(&values(&ratio)));
                names.push(name.clone());
            }
        }
    }
    findings.tables.extend([table, sizes]);
    findings.plots.push(Plot {
        title: "p99.9 of writes over their mean, 64 under way".into(),
        x_label: String::new(),
        y_label: "times".into(),
        logarithmic: false,
        content: Content::Bars { groups: names, series: vec![("p99.9".into(), ratios)] },
        references: Vec::new(),
    });
    Ok(findings)
}
