//! `diecut latency`: where the time of slow commands went.

use crate::client::{Client, ClientError, get};
use crate::print;
use clap::Args;
use diecut_api::route;
use diecut_spec::latency::{
    CauseFigures, HISTOGRAM_MS, LatencyReport, Neighbour, SlowCommand, TimePart, WaitedFor,
};
use std::time::Duration;

#[derive(Args)]
pub struct Latency {
    /// Show so many of the slowest commands.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Show what the die of each of them did around it, and for whom.
    #[arg(long)]
    around: bool,
    /// Show it again every so many seconds until Ctrl-C; with --json one object per line.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
          value_parser = clap::value_parser!(u64).range(1..))]
    live: Option<u64>,
}

impl Latency {
    pub async fn run(self, client: &Client, json: bool) -> Result<(), ClientError> {
        let Some(seconds) = self.live else {
            let report: LatencyReport = get(client, route::LATENCY).await?;
            match json {
                true => print::json(&report),
                false => print::line(&self.text(&report)),
            }
            return Ok(());
        };
        loop {
            let report: LatencyReport = get(client, route::LATENCY).await?;
            match json {
                true => print::json_line(&report),
                false => print::again(&format!("every {seconds} s; Ctrl-C ends\n{}\n", self.text(&report))),
            }
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
    }

    fn text(&self, report: &LatencyReport) -> String {
        let mut text = format!(
            "commands of {} and more: {}, of which {} were looked into",
            micros(report.threshold_us),
            report.slow,
            report.explained
        );
        if report.explained == 0 {
            return text;
        }
        text += "\n\nwhere their time went\n";
        let mut header = vec!["cause", "commands", "most of", "in all"];
        let ends: Vec<String> = HISTOGRAM_MS.iter().map(|end| format!("<{end}")).collect();
        // Those that say something.
        let used = |at: usize| report.causes.iter().any(|one| one.histogram[at] > 0);
        let buckets: Vec<usize> = (0..=HISTOGRAM_MS.len()).filter(|at| used(*at)).collect();
        header.extend(buckets.iter().map(|at| ends.get(*at).map_or("more ms", String::as_str)));
        text += &print::table_text(&header, report.causes.iter().map(|one| cause(one, &buckets)).collect());
        if !report.matrix.is_empty() {
            text += "\n\nwho waited for whose work\n";
            let header =
                ["waited", "for", "in all", "reads", "programs", "erases", "cleaner", "even wear", "bus"];
            text += &print::table_text(&header, report.matrix.iter().map(waited).collect());
        }
        text += "\n\nthe slowest of the latest\n";
        let header = ["took", "ago", "volume", "command", "die", "where its time went"];
        let shown = || report.commands.iter().take(self.top);
        text += &print::table_text(&header, shown().map(|one| command(one, report.now_us)).collect());
        if self.around {
            for one in shown().filter(|one| !one.neighbours.is_empty()) {
                text += &format!("\n\naround {} of {} (0 is its arrival)\n", name(one), one.place.volume);
                let header = ["from", "until", "operations", "what", "for whom"];
                text += &print::table_text(&header, one.neighbours.iter().map(neighbour).collect());
            }
        }
        text
    }
}

fn micros(us: u64) -> String {
    print::latency(us * 1000)
}

fn cause(one: &CauseFigures, buckets: &[usize]) -> Vec<String> {
    let mut row = vec![
        one.cause.text().to_owned(),
        one.commands.to_string(),
        one.dominant.to_string(),
        micros(one.total_us),
    ];
    row.extend(buckets.iter().map(|at| one.histogram[*at].to_string()));
    row
}

fn waited(one: &WaitedFor) -> Vec<String> {
    let of = |us: u64| if us == 0 { "-".to_owned() } else { micros(us) };
    let mut row =
        vec![format!("{}/{}", one.tenant, one.vssd), format!("{}/{}", one.for_tenant, one.for_vssd)];
    let parts = [one.reads_us, one.programs_us, one.erases_us, one.cleaner_us, one.migration_us, one.bus_us];
    row.push(of(one.total_us()));
    row.extend(parts.map(of));
    row
}

fn name(one: &SlowCommand) -> String {
    let asked = &one.asked;
    let blocks = if asked.lba_count > 0 {
        format!(" {} +{}", asked.first_lba, asked.lba_count)
    } else {
        String::new()
    };
    format!("{}{blocks}", asked.operation)
}

fn part(one: &TimePart) -> String {
    match &one.work {
        None => format!("{} {}", micros(one.us), one.cause.text()),
        Some(work) => format!(
            "{} {}: {}/{} {} x{} ({})",
            micros(one.us),
            one.cause.text(),
            work.tenant,
            work.vssd,
            work.kind,
            work.operations,
            work.class
        ),
    }
}

/// Its volume, with the QoS set of it.
fn volume(one: &SlowCommand) -> String {
    match &one.place.qos_set {
        Some(set) => format!("{} (QoS set {set})", one.place.volume),
        None => one.place.volume.clone(),
    }
}

fn command(one: &SlowCommand, now_us: u64) -> Vec<String> {
    let die = one.place.die.map_or("-".to_owned(), |(channel, die)| format!("{channel}.{die}"));
    vec![
        micros(one.took_us),
        micros(now_us.saturating_sub(one.at_us)),
        volume(one),
        name(one),
        die,
        one.parts.iter().take(4).map(part).collect::<Vec<_>>().join("\n"),
    ]
}

fn neighbour(one: &Neighbour) -> Vec<String> {
    let at = |us: i64| format!("{}{}", if us < 0 { "-" } else { "" }, micros(us.unsigned_abs()));
    vec![
        at(one.from_us),
        at(one.until_us),
        one.work.operations.to_string(),
        format!("{} ({})", one.work.kind, one.work.class),
        format!("{}/{}", one.work.tenant, one.work.vssd),
    ]
}
