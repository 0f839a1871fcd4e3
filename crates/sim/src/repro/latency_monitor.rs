//! A slow die, found through the debug log of the latency monitor alone.

use super::plot::{Content, Plot};
use super::report::{Cell, Comparison, Table};
use super::{Experiment, Findings, Progress, Published, Request};
use crate::isolation::summary::Estimate;
use crate::monitored::Monitored;
use diecut_nvme::ocp::{LatencyConfiguration, TriggerBits};
use diecut_units::Span;
use std::collections::BTreeMap;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "latency-monitor",
    question: "Does a host find a slow die, and tell it from a noisy neighbour, by what its drive captured of outliers alone?",
    source: "OCP Datacenter NVMe SSD 2.5, latency monitor (C3h, feature C5h); Micron, blog on it",
    set_up: "Two tenants share all 8 dies of a small device (4 channels of 2 dies) by software isolation. One host reads 4 KiB at random, 4 at \
             once, and has set its latency monitor: buckets from 5, 10, 20 and 40 ms, any read that is counted triggers the debug log. It \
             reads C3h and the debug log over NVMe/TCP, which discards that, and goes on. Array operations of one die, chosen by the seed, take \
             600 times as long, and the neighbour writes one block at once. In the second run no die is slow, and the neighbour writes 16 blocks of 4 KiB at once.",
    differs: &[
        "No figures were published for this: the specification says what is captured, the blog why. What is captured is ours.",
        "The host takes the die that most debug logs name. A slow die is slow for the neighbour, too, so many logs blame that: its slow \
         program on the die is what the read waited for.",
        "A thousandfold slow die is an illustration: a die that retries its reads is slower by tens of times, below 5 ms.",
    ],
    published: &[
        Published {
            figure: "what a host needs to find the cause of an outlier",
            value: "the drive's own capture, no host trace",
        },
        Published { figure: "counters, stamps and latencies of C3h", value: "as the host measures them" },
    ],
    run,
};

/// What one run found.
#[derive(Clone, Debug, Default)]
struct Outcome {
    /// Debug logs that were captured.
    captured: u64,
    /// Of these, those whose command lost most of its time to a slow medium.
    blame_medium: u64,
    /// And to another tenant.
    blame_neighbour: u64,
    /// Die that most of them name, and how many do.
    named: Option<(u16, u16)>,
    of_named: u64,
    planted: Option<(u16, u16)>,
    /// Debug logs until the die was named twice as often as any other one, three times at least.
    until_sure: Option<u64>,
}

/// What a debug log says of its last command: the cause that took most of its time, and its die.
fn read_log(log: &str) -> Option<(String, (u16, u16))> {
    let last = log.rfind("\ncommand ")?;
    let mut most = (0, String::new());
    let mut die = None;
    for line in log[last + 1..].lines().skip(1) {
        if let Some(rest) = line.strip_prefix("  die ") {
            let (channel, number) = rest.split(':').next()?.split_once('.')?;
            die = Some((channel.parse().ok()?, number.parse().ok()?));
        } else if let Some((us, cause)) = line.strip_prefix("  ").and_then(|rest| rest.split_once(" us "))
            && let Ok(us) = us.parse::<u64>()
            && us > most.0
        {
            most = (us, cause.to_owned());
        }
    }
    Some((most.1, die?))
}

fn measure(seed: u64, is_slow: bool, quick: bool) -> Result<Outcome, String> {
    let mut all = Monitored::new(seed)?;
    all.fill();
    let (channels, dies) = all.dies();
    let planted = is_slow.then(|| (all.below(channels.into()) as u16, all.below(dies.into()) as u16));
    if let Some((channel, die)) = planted {
        all.slow_down(channel, die, 600);
    }
    let reads = 0b001_001_001_001;
    all.configure(LatencyConfiguration {
        thresholds: [0, 1, 3, 7],
        debug_trigger: (TriggerBits::ALL.0 & reads).into(),
        ..LatencyConfiguration::default()
    });
    let mut outcome = Outcome { planted, ..Outcome::default() };
    let mut votes: BTreeMap<(u16, u16), u64> = BTreeMap::new();
    for _ in 0..if quick { 8 } else { 40 } {
        all.run(Span::from_millis(100), 4, false, if is_slow { 1 } else { 16 });
        // What the page says is compared with what the host saw.
        let page = all.latency_log()?;
        if page.debug_source.get() == 0 {
            continue;
        }
        let log = all.debug_log();
        let Some((cause, die)) = read_log(&log) else { continue };
        outcome.captured += 1;
        outcome.blame_neighbour += u64::from(cause == "die: neighbour");
        outcome.blame_medium += u64::from(cause == "slow medium" || cause == "die: own hosts");
        *votes.entry(die).or_default() += 1;
        let mut counts: Vec<u64> = votes.values().copied().collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let first = counts.first().copied().unwrap_or(0);
        let is_sure = first >= 3 && first >= 2 * counts.get(1).copied().unwrap_or(0);
        if is_sure && outcome.until_sure.is_none() {
            outcome.until_sure = Some(outcome.captured);
        }
    }
    let most = votes.into_iter().max_by_key(|(_, count)| *count);
    outcome.named = most.map(|(die, _)| die);
    outcome.of_named = most.map_or(0, |(_, count)| count);
    Ok(outcome)
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 * 100.0 / all as f64 }
}

fn run(request: &Request, progress: Progress) -> Result<Findings, String> {
    let mut slow = Vec::new();
    let mut noisy = Vec::new();
    for seed in 1..=request.seeds {
        slow.push(measure(seed, true, request.quick)?);
        progress(&format!("seed {seed}: slow die"));
        noisy.push(measure(seed, false, request.quick)?);
        progress(&format!("seed {seed}: noisy neighbour"));
    }
    let columns = [
        "run",
        "debug logs",
        "name one die, %",
        "blame medium or own hosts, %",
        "blame the neighbour, %",
        "slow die found",
    ];
    let mut table = Table::new("What the debug logs say", &columns);
    let over =
        |all: &[Outcome], figure: fn(&Outcome) -> f64| -> Vec<f64> { all.iter().map(figure).collect() };
    let medium = |one: &Outcome| share(one.blame_medium, one.captured);
    let named = |one: &Outcome| share(one.of_named, one.captured);
    let neighbour = |one: &Outcome| share(one.blame_neighbour, one.captured);
    let is_right = |one: &Outcome| f64::from(one.planted.is_some() && one.named == one.planted);
    let found: f64 = over(&slow, is_right).iter().sum();
    for (name, all) in [("slow die", &slow), ("noisy neighbour", &noisy)] {
        let is_planted = all[0].planted.is_some();
        table.rows.push(vec![
            Cell::text(name),
            Cell::over(&over(all, |one| one.captured as f64), 1),
            Cell::over(&over(all, named), 0),
            Cell::over(&over(all, medium), 0),
            Cell::over(&over(all, neighbour), 0),
            Cell::text(if is_planted { format!("{found} of {}", all.len()) } else { "-".into() }),
        ]);
    }
    let sure: Vec<f64> = slow.iter().filter_map(|one| one.until_sure).map(|logs| logs as f64).collect();
    let mut findings = Findings::default();
    let figure = "slow dies that the debug logs name, of those planted";
    let measured = Cell::text(format!("{found} of {}", slow.len()));
    findings.comparisons.push(Comparison::new(figure, "the capture suffices", measured));
    let figure = "counters, stamps and latencies of C3h that differ from the host's";
    findings.comparisons.push(Comparison::new(figure, "none", Cell::Number(0.0, 0)));
    findings.notes.push(format!(
        "Each page of the latency monitor was compared with what its host had seen, by an account of its own, and agreed. {} of {} runs were \
         sure of the die (named three times, and twice as often as any other one), after {} debug logs in the mean.",
        sure.len(),
        slow.len(),
        if sure.is_empty() { "-".to_owned() } else { Cell::over(&sure, 1).to_string() },
    ));
    findings.tables.push(table);
    let bars = |figure: fn(&Outcome) -> f64| {
        vec![Estimate::of(&over(&slow, figure)), Estimate::of(&over(&noisy, figure))]
    };
    findings.plots.push(Plot {
        title: "What debug logs have in common".into(),
        x_label: String::new(),
        y_label: "debug logs, %".into(),
        logarithmic: false,
        content: Content::Bars {
            groups: vec!["slow die".into(), "noisy neighbour".into()],
            series: vec![
                ("most named die".into(), bars(|one| share(one.of_named, one.captured))),
                ("blame the neighbour".into(), bars(|one| share(one.blame_neighbour, one.captured))),
            ],
        },
        references: Vec::new(),
    });
    Ok(findings)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_last_command_of_a_log_counts() {
        let log = "diecut latency debug log, version 1\ncommand read nsid 1\n  900 us bus\n  die 0.0: own read for host_read\n\
                   command read nsid 1\n  100 us admission\n  7000 us slow medium\n  die 3.1: own read for host_read\n    waited 5 us, bus: x\n";
        assert_eq!(read_log(log), Some(("slow medium".to_owned(), (3, 1))));
        assert_eq!(read_log("diecut latency debug log, version 1\n"), None);
    }

    /// Goal: the slow die is found by the debug log alone.
    #[test]
    fn a_slow_die_is_named() {
        let outcome = measure(1, true, false).unwrap();
        assert!(outcome.captured > 3, "{outcome:?}");
        assert_eq!(outcome.named, outcome.planted, "{outcome:?}");
        assert!(outcome.of_named * 2 > outcome.captured && outcome.until_sure.is_some(), "{outcome:?}");
        let noisy = measure(1, false, false).unwrap();
        assert!(noisy.of_named * 2 < noisy.captured, "{noisy:?}");
    }
}
