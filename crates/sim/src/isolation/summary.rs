//! What several seeds say together: means, 95 % confidence intervals, and whether the levels are in order.

use super::{LEVELS, Neighbour, Outcome, WritersOutcome};
use diecut_spec::Isolation;
use serde::Serialize;

/// Mean and 95 % confidence interval of a figure over seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// Mean.
    pub mean: f64,
    /// Half the width of the interval (Student's t); 0 for a single seed, which has none.
    pub half_width: f64,
}

/// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
const STUDENT_T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

impl Estimate {
    /// Of these values, one per seed.
    pub fn of(values: &[f64]) -> Estimate {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count.max(1.0);
        if values.len() < 2 {
            return Estimate { mean, half_width: 0.0 };
        }
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let t = STUDENT_T_95.get(values.len() - 2).copied().unwrap_or(1.96);
        Estimate { mean, half_width: t * (variance / count).sqrt() }
    }
}

/// One level beside one neighbour, over all seeds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Isolation level.
    pub isolation: String,
    /// The neighbour.
    pub neighbour: Neighbour,
    /// p99 in microseconds.
    pub p99_us: Estimate,
    /// p99 over the p99 of the same reader alone, same level and seed.
    pub p99_ratio: Estimate,
    /// p99.9 over p99.9 alone.
    pub p999_ratio: Estimate,
    /// What the neighbour wrote, in MB/s (10^6).
    pub neighbour_mb_per_s: Estimate,
    /// Write amplification of the neighbour's cleaner.
    pub neighbour_waf_cleaner: Estimate,
}

/// Whether one level is at least as good as the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The stronger level's ratio is lower, and the interval of the difference excludes none.
    Below,
    /// No difference beyond the interval.
    Equal,
    /// The stronger level's ratio is higher: the order is broken.
    Above,
}

/// A comparison of two levels that follow each other.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The neighbour; absent: the worst one of each level and seed.
    pub neighbour: Option<Neighbour>,
    /// The level that should isolate better.
    pub stronger: String,
    /// The other one.
    pub weaker: String,
    /// p99 ratio of the weaker level minus that of the stronger one, per seed.
    pub difference: Estimate,
    /// What that means.
    pub order: Order,
}

/// Everything that the seeds say.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Reads per second offered, by level: 30 % of what the reader reaches alone.
    pub rows: Vec<Row>,
    /// Worst p99 ratio over the neighbours, by level.
    pub worst: Vec<(String, Estimate)>,
    /// Levels that follow each other, for each neighbour and for the worst one.
    pub order: Vec<Comparison>,
    /// Whether no comparison is [`Order::Above`].
    pub order_holds: bool,
    /// Combined throughput of two closed-loop writers, channel isolation over software isolation, if it was measured.
    pub writers_ratio: Option<Estimate>,
}

/// Sums up the runs of several seeds, one list of outcomes each; every list has every level alone and beside the same
/// neighbours.
///
/// # Panics
/// If a list lacks a level or a neighbour: the runner's bug.
pub fn summarize(
    seeds: &[u64],
    outcomes: &[Vec<Outcome>],
    neighbours: &[Neighbour],
    writers: &[Vec<WritersOutcome>],
) -> Summary {
    let find = |of_seed: &[Outcome], level: &str, neighbour| -> Outcome {
        let found = of_seed.iter().find(|o| o.isolation == level && o.neighbour == neighbour);
        found.expect("every level is run beside every neighbour").clone()
    };
    let ratio = |of_seed: &[Outcome], level: &str, neighbour, quantile: usize| {
        let alone = find(of_seed, level, Neighbour::None).latency_us[quantile];
        find(of_seed, level, neighbour).latency_us[quantile] / alone
    };
    let over_seeds = |figure: &dyn Fn(&[Outcome]) -> f64| {
        Estimate::of(&outcomes.iter().map(|of_seed| figure(of_seed)).collect::<Vec<f64>>())
    };
    let mut rows = Vec::new();
    for level in LEVELS.map(Isolation::name) {
        for &neighbour in std::iter::once(&Neighbour::None).chain(neighbours) {
            rows.push(Row {
                isolation: level.to_owned(),
                neighbour,
                p99_us: over_seeds(&|o| find(o, level, neighbour).latency_us[1]),
                p99_ratio: over_seeds(&|o| ratio(o, level, neighbour, 1)),
                p999_ratio: over_seeds(&|o| ratio(o, level, neighbour, 2)),
                neighbour_mb_per_s: over_seeds(&|o| find(o, level, neighbour).neighbour_mb_per_s),
                neighbour_waf_cleaner: over_seeds(&|o| find(o, level, neighbour).neighbour_waf_cleaner),
            });
        }
    }
    let worst_of = |of_seed: &[Outcome], level: &str| {
        neighbours.iter().map(|&neighbour| ratio(of_seed, level, neighbour, 1)).fold(0.0, f64::max)
    };
    let worst = LEVELS
        .map(Isolation::name)
        .map(|level| (level.to_owned(), over_seeds(&|o| worst_of(o, level))))
        .to_vec();
    let mut order = Vec::new();
    for neighbour in neighbours.iter().copied().map(Some).chain([None]) {
        let figure = |of_seed: &[Outcome], level: &str| match neighbour {
            Some(neighbour) => ratio(of_seed, level, neighbour, 1),
            None => worst_of(of_seed, level),
        };
        for pair in LEVELS.map(Isolation::name).windows(2) {
            let difference = over_seeds(&|o| figure(o, pair[1]) - figure(o, pair[0]));
            order.push(Comparison {
                neighbour,
                stronger: pair[0].to_owned(),
                weaker: pair[1].to_owned(),
                difference,
                order: order_of(difference),
            });
        }
    }
    let writers_ratio = (!writers.is_empty()).then(|| {
        let combined = |of_seed: &[WritersOutcome], level: Isolation| {
            let found = of_seed.iter().find(|outcome| outcome.isolation == level.name());
            found.expect("both levels are run").combined_mb_per_s
        };
        let [channel, _, software, _] = LEVELS;
        let ratios: Vec<f64> =
            writers.iter().map(|of_seed| combined(of_seed, channel) / combined(of_seed, software)).collect();
        Estimate::of(&ratios)
    });
    let order_holds = order.iter().all(|comparison| comparison.order != Order::Above);
    Summary { seeds: seeds.to_vec(), rows, worst, order, order_holds, writers_ratio }
}

fn order_of(difference: Estimate) -> Order {
    if difference.mean - difference.half_width > 0.0 {
        Order::Below
    } else if difference.mean + difference.half_width < 0.0 {
        Order::Above
    } else {
        Order::Equal
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        // Mean 3, standard deviation sqrt(2.5), t(4) = 2.776.
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((estimate.mean - 3.0).abs() < 1e-12);
        assert!((estimate.half_width - 2.776 * (2.5f64 / 5.0).sqrt()).abs() < 1e-9);
        assert_eq!(Estimate::of(&[7.0]), Estimate { mean: 7.0, half_width: 0.0 });
    }

    fn outcome(isolation: &str, neighbour: Neighbour, p99_us: f64) -> Outcome {
        Outcome {
            isolation: isolation.to_owned(),
            neighbour,
            offered_reads_per_s: 1.0,
            reads_per_s: 1.0,
            latency_us: [p99_us; 4],
            p99_parts_us: [0.0, p99_us, 0.0],
            neighbour_mb_per_s: 0.0,
            neighbour_waf_cleaner: 1.0,
            neighbour_connects_per_s: 0.0,
        }
    }

    fn seed(factors: [f64; 4], noise: f64) -> Vec<Outcome> {
        let levels = LEVELS.map(Isolation::name).into_iter().zip(factors);
        levels
            .flat_map(|(level, factor)| {
                [
                    outcome(level, Neighbour::None, 100.0),
                    outcome(level, Neighbour::RandomWrites, 100.0 * (factor + noise)),
                    outcome(level, Neighbour::Reconnects, 100.0),
                ]
            })
            .collect()
    }

    const NEIGHBOURS: [Neighbour; 2] = [Neighbour::RandomWrites, Neighbour::Reconnects];

    #[test]
    fn levels_in_order_are_said_to_be() {
        let runs: Vec<_> = [0.0, 0.01, -0.01].map(|noise| seed([1.0, 2.0, 3.0, 4.0], noise)).to_vec();
        let summary = summarize(&[1, 2, 3], &runs, &NEIGHBOURS, &[]);
        assert!(summary.order_holds);
        let orders: Vec<Order> = summary.order.iter().map(|comparison| comparison.order).collect();
        assert_eq!(orders[..3], [Order::Below; 3], "random writes");
        assert_eq!(orders[3..6], [Order::Equal; 3], "reconnects: nobody feels them");
        assert_eq!(orders[6..], [Order::Below; 3], "the worst");
        assert!((summary.worst[2].1.mean - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_broken_order_is_seen() {
        let runs: Vec<_> = [0.0, 0.01, -0.01].map(|noise| seed([1.0, 3.0, 2.0, 4.0], noise)).to_vec();
        let summary = summarize(&[1, 2, 3], &runs, &NEIGHBOURS, &[]);
        assert!(!summary.order_holds);
        assert_eq!(summary.order[1].order, Order::Above, "die against software");
    }
}
