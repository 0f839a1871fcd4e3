use clap::{Args, Subcommand};
use comfy_table::Table;
use diecut_sim::isolation::summary::{Estimate, Order, Summary, summarize};
use diecut_sim::isolation::{
    LEVELS, LevelOutcome, NEIGHBOURS, Neighbour, Outcome, Setting, WritersOutcome, run_level,
};
use diecut_sim::say;
use serde::Serialize;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Things to see without a server, in virtual time.
#[derive(Subcommand)]
pub enum Demo {
    /// A reader beside a flooding neighbour under all four isolation levels, and alone.
    NoisyNeighbour(NoisyNeighbour),
}

#[derive(Args)]
pub struct NoisyNeighbour {
    /// First seed of arrivals, addresses and bad blocks.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run so many seeds beside all neighbours and say means and 95 % confidence intervals.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// All neighbours (random writes, sequential writes, deallocates, reconnects), not only random writes.
    #[arg(long)]
    all: bool,
    /// Also measure two writers at once.
    #[arg(long)]
    writers: bool,
    /// Pages of an erase block; cnex-1tb has 256. Work, memory (2 GB per run with 256) and measured time grow with them.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(16..=256))]
    pages: u32,
    /// The same as --pages 256: cnex-1tb as it is, minutes of work.
    #[arg(long, conflicts_with = "pages")]
    full: bool,
    /// Also say where the time of reads around the p99 goes (first seed).
    #[arg(long)]
    explain: bool,
    /// Hosts of the neighbour that reconnects.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    reconnect_hosts: u16,
}

#[derive(Serialize)]
struct Report {
    outcomes: Vec<Vec<Outcome>>,
    writers: Vec<Vec<WritersOutcome>>,
    summary: Summary,
}

impl Demo {
    pub fn run(self, json: bool) -> ExitCode {
        let Demo::NoisyNeighbour(arguments) = self;
        match arguments.measure() {
            Ok(report) if json => {
                say!("{}", serde_json::to_string_pretty(&report).expect("a report is plain data"));
                ExitCode::SUCCESS
            }
            Ok(report) => {
                arguments.print(&report);
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        }
    }
}

impl NoisyNeighbour {
    fn neighbours(&self) -> &'static [Neighbour] {
        if self.all || self.seeds > 1 { &NEIGHBOURS } else { &[Neighbour::RandomWrites] }
    }

    fn measure(&self) -> Result<Report, String> {
        let neighbours = self.neighbours();
        let shape = Setting::with_pages_per_block(if self.full { 256 } else { self.pages });
        let setting = Setting {
            writers: self.writers || self.seeds > 1,
            reconnect_hosts: self.reconnect_hosts,
            ..shape
        };
        let seeds: Vec<u64> = (self.seed..self.seed + self.seeds).collect();
        // Levels and seeds do not know of each other: each has a device of its own.
        let jobs: Vec<_> = seeds.iter().flat_map(|seed| LEVELS.map(|level| (*seed, level))).collect();
        let results: Vec<Mutex<Option<Result<LevelOutcome, String>>>> =
            jobs.iter().map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let job = next.fetch_add(1, Ordering::Relaxed);
                        let Some(&(seed, level)) = jobs.get(job) else { return };
                        let outcome =
                            run_level(level, neighbours, seed, &setting, |what| eprintln!("{what}"));
                        *results[job].lock().expect("no run panics") = Some(outcome);
                    }
                });
            }
        });
        let mut levels = Vec::new();
        for result in results {
            levels.push(result.into_inner().expect("no run panics").expect("every job was done")?);
        }
        let by_seed = levels.chunks(LEVELS.len());
        let outcomes: Vec<Vec<Outcome>> =
            by_seed.clone().map(|runs| runs.iter().flat_map(|run| run.outcomes.clone()).collect()).collect();
        let writers: Vec<Vec<WritersOutcome>> = if setting.writers {
            by_seed.map(|runs| runs.iter().filter_map(|run| run.writers.clone()).collect()).collect()
        } else {
            Vec::new()
        };
        let summary = summarize(&seeds, &outcomes, neighbours, &writers);
        Ok(Report { outcomes, writers, summary })
    }

    fn print(&self, report: &Report) {
        if self.seeds > 1 {
            say!("{}", summary_table(&report.summary));
        } else {
            say!("{}", table(&report.outcomes[0]));
        }
        if self.explain {
            say!("{}", parts_table(&report.outcomes[0]));
            say!(
                "Parts of the reads around the p99 of seed {}, in microseconds: on the shard's core until they are begun, in the",
                self.seed
            );
            say!("device and on its host link, on the core until they are answered.");
        }
        say!(
            "Latency of 4 KiB random reads in microseconds, open loop at 30 % of what the reader reaches alone;"
        );
        say!(
            "virtual time, {} from {}. \"x alone\": p99 beside the neighbour over p99 alone.",
            if self.seeds > 1 { format!("{} seeds", self.seeds) } else { "seed".to_owned() },
            self.seed
        );
        if self.seeds > 1 {
            say!("Mean and 95 % confidence interval (Student's t) over the seeds.");
            for (isolation, ratio) in &report.summary.worst {
                say!("worst neighbour under {isolation} isolation: {} x alone", pair(ratio, 2));
            }
            print_order(&report.summary);
        }
        if let Some(ratio) = &report.summary.writers_ratio {
            for outcome in &report.writers[0] {
                let [first, second] = outcome.mb_per_s;
                say!(
                    "two writers, {} isolation, seed {}: {first:.1} + {second:.1} = {:.1} MB/s",
                    outcome.isolation,
                    self.seed,
                    outcome.combined_mb_per_s
                );
            }
            say!("two writers together, channel over software isolation: {}", pair(ratio, 3));
        }
    }
}

fn print_order(summary: &Summary) {
    say!("order channel <= die <= software <= none of p99 x alone, by the difference per seed:");
    for comparison in &summary.order {
        let beside = comparison.neighbour.map_or("the worst neighbour", name_of);
        let (verdict, sign) = match comparison.order {
            Order::Below => ("holds", "<"),
            Order::Equal => ("holds: equal within the interval", "="),
            Order::Above => ("BROKEN", ">"),
        };
        say!(
            "  beside {beside}: {} {sign} {} ({}): {verdict}",
            comparison.stronger,
            comparison.weaker,
            pair(&comparison.difference, 2)
        );
    }
    say!("the order {}", if summary.order_holds { "holds" } else { "is BROKEN" });
}

fn pair(estimate: &Estimate, digits: usize) -> String {
    format!("{:.digits$} +- {:.digits$}", estimate.mean, estimate.half_width)
}

fn name_of(neighbour: Neighbour) -> &'static str {
    match neighbour {
        Neighbour::None => "alone",
        Neighbour::RandomWrites => "random writes",
        Neighbour::SequentialWrites => "sequential writes",
        Neighbour::Deallocates => "deallocates",
        Neighbour::Reconnects => "reconnects",
    }
}

fn parts_table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::UTF8_FULL_CONDENSED);
    table.set_header(["isolation", "neighbour", "p99", "core before", "device", "core after"]);
    for outcome in outcomes {
        let mut row = vec![
            outcome.isolation.clone(),
            name_of(outcome.neighbour).to_owned(),
            format!("{:.0}", outcome.latency_us[1]),
        ];
        row.extend(outcome.p99_parts_us.map(|us| format!("{us:.1}")));
        table.add_row(row);
    }
    table
}

fn summary_table(summary: &Summary) -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "isolation",
        "neighbour",
        "p99",
        "x alone",
        "p99.9 x alone",
        "neighbour MB/s",
        "waf_cleaner",
    ]);
    for row in &summary.rows {
        table.add_row([
            row.isolation.clone(),
            name_of(row.neighbour).to_owned(),
            pair(&row.p99_us, 0),
            pair(&row.p99_ratio, 3),
            pair(&row.p999_ratio, 2),
            pair(&row.neighbour_mb_per_s, 0),
            pair(&row.neighbour_waf_cleaner, 2),
        ]);
    }
    table
}

fn table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "isolation",
        "neighbour",
        "reads/s",
        "p50",
        "p99",
        "p99.9",
        "p99.99",
        "x alone",
        "neighbour MB/s",
        "waf_cleaner",
        "connects/s",
    ]);
    let mut alone = 1.0;
    for outcome in outcomes {
        if outcome.neighbour == Neighbour::None {
            alone = outcome.latency_us[1];
        }
        let mut row = vec![
            outcome.isolation.clone(),
            name_of(outcome.neighbour).to_owned(),
            format!("{:.0}", outcome.reads_per_s),
        ];
        row.extend(outcome.latency_us.map(|us| format!("{us:.0}")));
        row.push(format!("{:.2}", outcome.latency_us[1] / alone));
        row.push(format!("{:.0}", outcome.neighbour_mb_per_s));
        row.push(format!("{:.2}", outcome.neighbour_waf_cleaner));
        row.push(format!("{:.0}", outcome.neighbour_connects_per_s));
        table.add_row(row);
    }
    table
}
