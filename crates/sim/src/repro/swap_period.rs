//! How often channels must be swapped so that wear stays even under the worst writer: the paper's formula, the exact one,
//! and a device of erase blocks on which the longest period that keeps the promise is searched for.
//!
//! The worst writer puts all erases of the device, as many as it can bear over its life, onto one channel. Round robin swaps
//! move it to the next channel after each period. The promise: `max / average` of the channels' erases is at most `1 + delta`
//! from `alpha` of the life on.

use super::plot::{Content, Plot};
use super::report::{Cell, Comparison, Table};
use super::{Experiment, Findings, Progress, Published, Request};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "swap-period",
    question: "How long may channels wait for a swap, by number of channels, delta and alpha?",
    source: "FlashBlox (FAST'17), section 3.1.4 and table 2",
    set_up: "Formulas; and a device of 32 erase blocks per channel and 3,000 cycles, all of whose erases over its life \
             go to one channel, round robin swaps between channels, each of which erases every block of both channels.",
    differs: &[
        "Table 2 (period by number of channels) could not be read; only the instance of 16 channels is compared.",
        "The published 12 days agree with the exact number of rounds and alpha = 1, not with the alpha = 0.9 that stands \
         beside them.",
        "The formula leaves out the erases of the swaps themselves; the simulated device has them, with every erase block \
         of a channel full: their upper bound.",
        "The searched period is the longest below which every tried one keeps the promise, in steps of 2.5 %.",
    ],
    published: &[
        Published { figure: "16 channels, 5 years, alpha 0.9, delta 0.1", value: "a swap every ~12 days" },
        Published { figure: "swaps that are enough until alpha of the life", value: "N / delta" },
    ],
    run,
};

const FIVE_YEARS_DAYS: f64 = 5.0 * 365.25;

/// One case.
#[derive(Clone, Copy, Debug)]
struct Case {
    channels: u32,
    life_days: f64,
    alpha: f64,
    delta: f64,
}

const STATED: Case = Case { channels: 16, life_days: FIVE_YEARS_DAYS, alpha: 0.9, delta: 0.1 };

impl Case {
    /// The paper's bound: N / delta swaps within alpha of the life.
    fn period_days(&self) -> f64 {
        self.alpha * self.life_days * self.delta / f64::from(self.channels)
    }

    /// With the rounds that are needed: `K = (N - 1 - delta) / (N delta)`.
    fn exact_period_days(&self) -> f64 {
        let channels = f64::from(self.channels);
        let rounds = (channels - 1.0 - self.delta) / (channels * self.delta);
        self.alpha * self.life_days / (channels * rounds)
    }
}

/// A device of erase blocks.
#[derive(Clone, Copy, Debug)]
struct Device {
    blocks_per_channel: u32,
    endurance_cycles: u32,
}

/// What a life showed.
#[derive(Clone, Copy, Debug)]
struct Life {
    /// Worst `max / average` of the channels' erases from alpha of the life on.
    imbalance: f64,
    /// Worst `max / average` of all erase blocks' erases at the end.
    block_imbalance: f64,
    /// Erases by swaps over all erases.
    migration_share: f64,
}

/// Lives one life with a swap after each period.
fn live(device: Device, case: &Case, period_days: f64) -> Life {
    let blocks = device.blocks_per_channel as usize;
    let mut wear = vec![vec![0u32; blocks]; case.channels as usize];
    // The next least-worn block of each channel: all of a channel's blocks take turns.
    let mut turns = vec![0usize; case.channels as usize];
    let host_erases =
        f64::from(case.channels) * f64::from(device.blocks_per_channel) * f64::from(device.endurance_cycles);
    let (mut hot, mut now_days, mut host, mut swaps) = (0usize, 0.0, 0u64, 0u64);
    let mut imbalance = 0.0f64;
    while now_days < case.life_days {
        now_days = (now_days + period_days).min(case.life_days);
        let due = (host_erases * now_days / case.life_days) as u64;
        for _ in host..due {
            wear[hot][turns[hot]] += 1;
            turns[hot] = (turns[hot] + 1) % blocks;
        }
        host = due;
        // The worst moment of a slice is its end.
        if now_days >= case.alpha * case.life_days {
            let totals =
                wear.iter().map(|channel| channel.iter().map(|erases| u64::from(*erases)).sum::<u64>());
            let (most, all) = totals.fold((0, 0), |(most, all), total| (total.max(most), all + total));
            imbalance = imbalance.max(most as f64 * f64::from(case.channels) / all as f64);
        }
        if now_days < case.life_days {
            let next = (hot + 1) % wear.len();
            for channel in [hot, next] {
                wear[channel].iter_mut().for_each(|erases| *erases += 1);
            }
            hot = next;
            swaps += 1;
        }
    }
    let all_blocks = wear.iter().flatten().map(|erases| u64::from(*erases));
    let (most, all) = all_blocks.fold((0, 0), |(most, all), erases| (erases.max(most), all + erases));
    let migration = swaps * 2 * blocks as u64;
    Life {
        imbalance,
        block_imbalance: most as f64 * blocks as f64 * f64::from(case.channels) / all as f64,
        migration_share: migration as f64 / all as f64,
    }
}

/// The longest period, up to 1.5 times the exact formula's, below which every tried one keeps the promise.
fn longest_period_days(device: Device, case: &Case) -> f64 {
    let exact = case.exact_period_days();
    let mut longest = 0.0;
    for step in 20..=60 {
        let period_days = exact * f64::from(step) / 40.0;
        if live(device, case, period_days).imbalance > 1.0 + case.delta {
            break;
        }
        longest = period_days;
    }
    longest
}

fn run(request: &Request, progress: Progress) -> Result<Findings, String> {
    let device = if request.quick {
        Device { blocks_per_channel: 2, endurance_cycles: 300 }
    } else {
        Device { blocks_per_channel: 32, endurance_cycles: 3000 }
    };
    let mut findings = Findings::default();
    let mut sweep = |title: &str, x_label: &str, cases: &[(f64, Case)]| {
        let columns = [
            x_label,
            "formula, days",
            "exact rounds, days",
            "simulated, days",
            "max/avg of channels then",
            "max/avg of erase blocks",
            "erases by swaps, %",
        ];
        let mut table = Table::new(title, &columns);
        let mut curves = [Vec::new(), Vec::new(), Vec::new()];
        for (x, case) in cases {
            progress(&format!("{x_label} = {x}"));
            let periods = [case.period_days(), case.exact_period_days(), longest_period_days(device, case)];
            let life = live(device, case, periods[2]);
            for (curve, period) in curves.iter_mut().zip(periods) {
                curve.push((*x, period));
            }
            let mut row = vec![Cell::Number(*x, if *x < 1.0 { 2 } else { 0 })];
            row.extend(periods.map(|period| Cell::Number(period, 1)));
            row.push(Cell::Number(life.imbalance, 3));
            row.push(Cell::Number(life.block_imbalance, 3));
            row.push(Cell::Number(life.migration_share * 100.0, 2));
            table.rows.push(row);
        }
        findings.tables.push(table);
        let [formula, exact, simulated] = curves;
        findings.plots.push(Plot {
            title: title.to_owned(),
            x_label: x_label.to_owned(),
            y_label: "days between swaps".to_owned(),
            logarithmic: false,
            content: Content::Curves(vec![
                ("formula".into(), formula),
                ("exact rounds".into(), exact),
                ("simulated".into(), simulated),
            ]),
            references: vec![("published, 16 channels".into(), 12.0)],
        });
    };
    let by_channels = [8, 16, 32, 64].map(|channels| (f64::from(channels), Case { channels, ..STATED }));
    sweep("By channels: 5 years, alpha 0.9, delta 0.1", "channels", &by_channels);
    let by_delta = [0.05, 0.1, 0.2, 0.5].map(|delta| (delta, Case { delta, ..STATED }));
    sweep("By delta: 16 channels, 5 years, alpha 0.9", "delta", &by_delta);
    let by_alpha = [0.25, 0.5, 0.75, 0.9, 1.0].map(|alpha| (alpha, Case { alpha, ..STATED }));
    sweep("By alpha: 16 channels, 5 years, delta 0.1", "alpha", &by_alpha);

    let simulated = longest_period_days(device, &STATED);
    let whole_life = Case { alpha: 1.0, ..STATED };
    let stated = "16 channels, 5 years, delta 0.1: days between swaps";
    let mut compare = |what: &str, days: f64| {
        let figure = format!("{stated}, {what}");
        findings.comparisons.push(Comparison::new(figure, "~12 (alpha 0.9)", Cell::Number(days, 1)));
    };
    compare("formula, alpha 0.9", STATED.period_days());
    compare("exact rounds, alpha 0.9", STATED.exact_period_days());
    compare("exact rounds, alpha 1", whole_life.exact_period_days());
    compare("simulated, alpha 0.9", simulated);
    let twelve = live(device, &STATED, 12.0);
    findings.comparisons.push(Comparison::new(
        "max/avg of channels from 0.9 of the life on with a swap every 12 days, simulated",
        "at most 1.1",
        Cell::Number(twelve.imbalance, 3),
    ));
    findings.notes.push(format!(
        "Swaps every {:.1} days, the formula's period, keep the promise with {:.3}; every 12 days gives {:.3}. The swaps \
         themselves are {:.2} % of all erases at 12 days, if every block of both channels is full.",
        STATED.period_days(),
        live(device, &STATED, STATED.period_days()).imbalance,
        twelve.imbalance,
        twelve.migration_share * 100.0,
    ));
    Ok(findings)
}

#[cfg(test)]
mod test {
    use super::*;

    const SMALL: Device = Device { blocks_per_channel: 4, endurance_cycles: 1000 };

    /// The instance that the paper states, by its formulas.
    #[test]
    fn periods_are_those_of_the_formulas() {
        let days =
            |case: &Case| [case.period_days(), case.exact_period_days()].map(|d| (d * 10.0).round() / 10.0);
        assert_eq!(days(&STATED), [10.3, 11.0]);
        assert_eq!(days(&Case { alpha: 1.0, ..STATED })[1], 12.3);
        assert_eq!(days(&Case { life_days: 250.0 * 7.0, channels: 8, ..STATED })[0], 19.7);
        assert_eq!(days(&Case { channels: 64, ..STATED }), [2.6, 2.6]);
    }

    /// The formula's period keeps the promise on every device; without swaps one channel has all the wear.
    #[test]
    fn the_formulas_period_keeps_the_promise() {
        for channels in [8, 16, 32] {
            for delta in [0.1, 0.2] {
                let case = Case { channels, delta, ..STATED };
                let life = live(SMALL, &case, case.period_days());
                assert!(life.imbalance <= 1.0 + delta, "{case:?}: {life:?}");
            }
        }
        let never = live(SMALL, &STATED, f64::INFINITY);
        assert!((never.imbalance - 16.0).abs() < 1e-9, "{never:?}");
        assert_eq!(never.migration_share, 0.0);
    }

    /// No erase is lost: the share of swaps follows from their number.
    #[test]
    fn erases_are_counted_by_cause() {
        let life = live(SMALL, &STATED, FIVE_YEARS_DAYS / 160.0);
        let (host, swaps) = (16.0 * 4.0 * 1000.0, 159.0 * 8.0);
        assert!((life.migration_share - swaps / (host + swaps)).abs() < 1e-9, "{life:?}");
    }
}
