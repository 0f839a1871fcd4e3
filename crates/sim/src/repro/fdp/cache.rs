//! The two caches of CacheLib on one drive: small objects that are written all over, and large ones that are written from end to end.

use super::super::loads::{Order, Pace, Plain};
use super::super::plot::{Content, Plot};
use super::super::report::{Cell, Comparison, Table};
use super::super::stage::Kind;
use super::super::{Experiment, Findings, Progress, Published, Request};
use super::{Drive, Placing, least_exported_lbas, write};
use crate::isolation::summary::Estimate;
use diecut_spec::PlacementIsolation;

pub(in crate::repro) const CACHELIB: Experiment = Experiment {
    name: "fdp-cachelib",
    question: "What does a flash cache gain if its small and its large objects have a reclaim unit handle each?",
    source: "CacheLib on Flexible Data Placement (EuroSys'25)",
    set_up: "One device, 2 channels of tlc with 512 blocks per plane of 6 pages, as one vSSD with 7 % over-provisioning. A cache takes 50 % \
             or 100 % of what it exports: 4 % of that for small objects, 4 KiB writes at random, the rest for large ones, 64 KiB writes from end to \
             end, 12 MB/s each, open loop. Measured over as many bytes as an overwrite of what is exported, after three.",
    differs: &[
        "The published runs replay traces of caches on a drive of 1.88 TB. How many bytes go to small objects depends on the trace; here it is half.",
        "Small objects are written uniformly at random. In a trace some buckets are written more often than others.",
        "The two caches are namespaces here; CacheLib has both in one namespace with two placement handles. The log sees the same.",
        "There is no cache above: nothing is read, admitted or evicted.",
    ],
    published: &[Published {
        figure: "write amplification at 100 % utilization, without handles and with",
        value: "3.22 and 1.03",
    }],
    run: cachelib,
};

pub(in crate::repro) const ISOLATION: Experiment = Experiment {
    name: "fdp-isolation",
    question: "Should the cleaner keep data of reclaim unit handles apart, or may it mix them, by the room that a drive has to spare?",
    source: "WARP (FAST'26): initially against persistently isolated handles",
    set_up: "As fdp-cachelib with the whole drive in use and small objects on 10 % of it, with 3, 5, 7, 9, 14 and 28 % over-provisioning: handles \
             initially isolated (copies of the cleaner go to one reclaim unit) and persistently isolated (to one of each handle).",
    differs: &[
        "Which load the published figures are of is not known here; that of a cache comes near to them where room is plenty.",
        "The drive has 512 reclaim units of 3 MiB. Each persistently isolated handle takes three of them, initially isolated ones take one.",
        "Effective over-provisioning is what is left for the cleaner, and stands in the table.",
    ],
    published: &[
        Published {
            figure: "write amplification at 3 %, initially and persistently isolated",
            value: "2.92 and 3.81",
        },
        Published { figure: "write amplification at 14 %", value: "1.09 and 1.06" },
        Published { figure: "where persistent isolation becomes better", value: "7 to 9 %" },
    ],
    run: isolation,
};

const BYTES_PER_S: f64 = 12e6;
const LARGE_LBAS: u32 = 16;

const TOGETHER: (Placing, &str) = (Placing::Together, "without handles");
const INITIALLY: (Placing, &str) = (Placing::Handles(PlacementIsolation::Initial), "initially isolated");
const PERSISTENTLY: (Placing, &str) =
    (Placing::Handles(PlacementIsolation::Persistent), "persistently isolated");

/// A cache on a drive.
#[derive(Clone, Copy, Debug)]
struct Cache {
    over_provisioning_permille: u32,
    used_percent: u64,
    small_percent: u64,
}

/// Effective over-provisioning in percent, and write amplification.
type Outcome = [f64; 2];

impl Cache {
    fn drive(self, placing: Placing, request: &Request, seed: u64) -> Drive {
        Drive {
            placing,
            over_provisioning_permille: self.over_provisioning_permille,
            namespaces: 2,
            seed,
            quick: request.quick,
        }
    }

    /// With each of these placings, on volumes of the same sizes.
    fn measure(
        self,
        placings: &[(Placing, &str)],
        request: &Request,
        seed: u64,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Vec<Outcome>, String> {
        let drives = placings.iter().map(|(placing, _)| self.drive(*placing, request, seed));
        let exported_lbas = least_exported_lbas(drives)?;
        let used_lbas = exported_lbas * self.used_percent / 100;
        let small_lbas = used_lbas * self.small_percent / 100 / 32 * 32;
        let large_lbas = (used_lbas - small_lbas) / 32 * 32;
        let mut outcomes = Vec::new();
        for (placing, name) in placings {
            let mut stage = self.drive(*placing, request, seed).filled(&[small_lbas, large_lbas])?;
            let per_s = |lbas: u32| Pace::PerSecond(BYTES_PER_S / 4096.0 / f64::from(lbas));
            let mut loads = [
                Plain::new(Kind::Write, 1, Order::Random, per_s(1), small_lbas, seed * 2),
                Plain::new(
                    Kind::Write,
                    LARGE_LBAS,
                    Order::Sequential,
                    per_s(LARGE_LBAS),
                    large_lbas,
                    seed * 2 + 1,
                ),
            ];
            loads.iter_mut().for_each(|load| load.begin(stage.now));
            write(&mut stage, &mut loads, if request.quick { exported_lbas / 2 } else { 3 * exported_lbas });
            let waf = write(&mut stage, &mut loads, exported_lbas);
            progress(&format!("seed {seed}, {}, {name}: waf_cleaner {waf:.2}", self.name()));
            outcomes.push([stage.over_provisioning(0) * 100.0, waf]);
        }
        Ok(outcomes)
    }

    fn name(self) -> String {
        format!("{} % used, over-provisioning {} %", self.used_percent, self.over_provisioning_permille / 10)
    }
}

/// Outcomes by cache, placing and seed.
fn all(
    caches: &[Cache],
    placings: &[(Placing, &str)],
    request: &Request,
    progress: Progress,
) -> Result<Vec<Vec<Vec<Outcome>>>, String> {
    let mut all = vec![vec![Vec::new(); placings.len()]; caches.len()];
    for seed in 1..=request.seeds {
        for (cache, of_cache) in caches.iter().zip(&mut all) {
            let outcomes = cache.measure(placings, request, seed, progress)?;
            of_cache.iter_mut().zip(outcomes).for_each(|(of_placing, outcome)| of_placing.push(outcome));
        }
    }
    Ok(all)
}

fn wafs(outcomes: &[Outcome]) -> Vec<f64> {
    outcomes.iter().map(|outcome| outcome[1]).collect()
}

fn findings(
    caches: &[Cache],
    placings: &[(Placing, &str)],
    all: &[Vec<Vec<Outcome>>],
    title: &str,
) -> Findings {
    let mut columns = vec!["drive", "over-provisioning, effective_percent"];
    columns.extend(placings.iter().map(|(_, name)| *name));
    let mut table = Table::new(title, &columns);
    for (cache, outcomes) in caches.iter().zip(all) {
        let effective: Vec<f64> = outcomes[0].iter().map(|outcome| outcome[0]).collect();
        let mut row = vec![Cell::text(cache.name()), Cell::over(&effective, 1)];
        row.extend(outcomes.iter().map(|of_placing| Cell::over(&wafs(of_placing), 2)));
        table.rows.push(row);
    }
    let series = placings.iter().enumerate().map(|(at, (_, name))| {
        ((*name).to_owned(), all.iter().map(|outcomes| Estimate::of(&wafs(&outcomes[at]))).collect())
    });
    let plot = Plot {
        title: title.into(),
        x_label: String::new(),
        y_label: "waf_cleaner".into(),
        logarithmic: false,
        content: Content::Bars {
            groups: caches.iter().map(|cache| cache.name()).collect(),
            series: series.collect(),
        },
        references: Vec::new(),
    };
    Findings { tables: vec![table], plots: vec![plot], ..Findings::default() }
}

fn cachelib(request: &Request, progress: Progress) -> Result<Findings, String> {
    let cache = |used_percent| Cache { over_provisioning_permille: 70, used_percent, small_percent: 4 };
    let caches = [cache(50), cache(100)];
    let placings = [TOGETHER, INITIALLY, PERSISTENTLY];
    let all = all(&caches, &placings, request, progress)?;
    let mut findings = findings(&caches, &placings, &all, "Write amplification of a cache");
    for ((_, name), (outcomes, published)) in placings.iter().zip(all[1].iter().zip(["3.22", "1.03", "-"])) {
        let figure = format!("write amplification at 100 % utilization, {name}");
        findings.comparisons.push(Comparison::new(figure, published, Cell::over(&wafs(outcomes), 2)));
    }
    Ok(findings)
}

fn isolation(request: &Request, progress: Progress) -> Result<Findings, String> {
    let permilles: &[u32] = if request.quick { &[70, 280] } else { &[30, 50, 70, 90, 140, 280] };
    let cache = |permille: &u32| Cache {
        over_provisioning_permille: *permille,
        used_percent: 100,
        small_percent: 10,
    };
    let caches: Vec<Cache> = permilles.iter().map(cache).collect();
    let placings = [INITIALLY, PERSISTENTLY];
    let all = all(&caches, &placings, request, progress)?;
    let mut findings = findings(&caches, &placings, &all, "Write amplification by isolation of handles");
    for (cache, outcomes) in caches.iter().zip(&all) {
        let published = match cache.over_provisioning_permille {
            30 => ["2.92", "3.81"],
            140 => ["1.09", "1.06"],
            _ => ["-", "-"],
        };
        for ((_, name), (outcomes, published)) in placings.iter().zip(outcomes.iter().zip(published)) {
            let figure =
                format!("write amplification at {} %, {name}", cache.over_provisioning_permille / 10);
            findings.comparisons.push(Comparison::new(figure, published, Cell::over(&wafs(outcomes), 2)));
        }
    }
    Ok(findings)
}
