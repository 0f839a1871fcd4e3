use clap::{Args, Subcommand};
use comfy_table::Table;
use diecut_sim::isolation::{LEVELS, Lengths, Neighbour, Outcome, run_level};
use std::process::ExitCode;

/// Things to see without a server, in virtual time.
#[derive(Subcommand)]
pub enum Demo {
    /// A reader beside a flooding neighbour under all four isolation levels, and alone.
    NoisyNeighbour(NoisyNeighbour),
}

#[derive(Args)]
pub struct NoisyNeighbour {
    /// Seed of arrivals, addresses and bad blocks.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// All neighbours (random writes, sequential writes, deallocates), not only random writes.
    #[arg(long)]
    all: bool,
}

impl Demo {
    pub fn run(self, json: bool) -> ExitCode {
        let Demo::NoisyNeighbour(arguments) = self;
        let neighbours: &[Neighbour] = if arguments.all {
            &[Neighbour::RandomWrites, Neighbour::SequentialWrites, Neighbour::Deallocates]
        } else {
            &[Neighbour::RandomWrites]
        };
        // The levels do not know of each other: each has a device of its own.
        let results: Vec<Result<Vec<Outcome>, String>> = std::thread::scope(|scope| {
            let run = |level| {
                move || {
                    run_level(level, neighbours, arguments.seed, Lengths::default(), |what| {
                        eprintln!("{what}")
                    })
                }
            };
            let threads: Vec<_> = LEVELS.map(|level| scope.spawn(run(level))).into_iter().collect();
            threads.into_iter().map(|thread| thread.join().expect("a level's run does not panic")).collect()
        });
        let mut outcomes = Vec::new();
        for result in results {
            match result {
                Ok(level) => outcomes.extend(level),
                Err(error) => {
                    eprintln!("error: {error}");
                    return ExitCode::FAILURE;
                }
            }
        }
        if json {
            println!("{}", serde_json::to_string_pretty(&outcomes).expect("outcomes are plain data"));
        } else {
            println!("{}", table(&outcomes));
            println!(
                "Latency of 4 KiB random reads in microseconds, open loop at 30 % of what the reader reaches alone;"
            );
            println!(
                "virtual time, seed {}. \"x alone\": p99 beside the neighbour over p99 alone.",
                arguments.seed
            );
        }
        ExitCode::SUCCESS
    }
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
    ]);
    let mut alone = 1.0;
    for outcome in outcomes {
        if outcome.neighbour == Neighbour::None {
            alone = outcome.latency_us[1];
        }
        let neighbour = match outcome.neighbour {
            Neighbour::None => "alone",
            Neighbour::RandomWrites => "random writes",
            Neighbour::SequentialWrites => "sequential writes",
            Neighbour::Deallocates => "deallocates",
        };
        let mut row =
            vec![outcome.isolation.clone(), neighbour.to_owned(), format!("{:.0}", outcome.reads_per_s)];
        row.extend(outcome.latency_us.map(|us| format!("{us:.0}")));
        row.push(format!("{:.2}", outcome.latency_us[1] / alone));
        row.push(format!("{:.0}", outcome.neighbour_mb_per_s));
        row.push(format!("{:.2}", outcome.neighbour_waf_cleaner));
        table.add_row(row);
    }
    table
}
