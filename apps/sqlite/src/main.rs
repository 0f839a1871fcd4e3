//! `diecut-sqlite load|check`: a load like TPC-C on SQLite on erase blocks of a server, and whether the database is whole.
#![deny(clippy::unwrap_used)]
#![expect(clippy::disallowed_methods, reason = "a load is timed")]

use clap::{Parser, Subcommand};
use diecut_sqlite::{OpenError, Vfs, attach, tpcc};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Parser)]
#[command(name = "diecut-sqlite", about = "SQLite on erase blocks of a diecut server")]
struct Arguments {
    /// The server's socket, blocks.sock in its data folder; for a zoned namespace HOST:PORT.
    #[arg(long, default_value = "diecut-data/blocks.sock")]
    socket: String,
    /// Name of the vSSD; for a zoned namespace the NQN of its subsystem.
    #[arg(long)]
    vssd: String,
    /// A rollback journal instead of a WAL.
    #[arg(long)]
    rollback: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs transactions like those of TPC-C; makes the database if there is none.
    Load {
        /// Warehouses of a new database.
        #[arg(long, default_value_t = 1)]
        warehouses: i64,
        /// How long, in seconds.
        #[arg(long, default_value_t = 10)]
        runtime: u64,
        /// Of the order of transactions.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// SQLite's integrity check and rules of consistency of TPC-C.
    Check,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("diecut-sqlite: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode, OpenError> {
    let files = attach(&arguments.socket, &arguments.vssd)?;
    let mut connection = Vfs::new(files.clone()).open("tpcc.db", !arguments.rollback)?;
    match arguments.command {
        Command::Check => {
            let problems = tpcc::problems(&connection)?;
            problems.iter().for_each(|problem| println!("{problem}"));
            println!("{} transactions, {} problems", tpcc::committed(&connection)?, problems.len());
            Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Load { warehouses, runtime, seed } => {
            tpcc::prepare(&mut connection, warehouses)?;
            let before = files.statistics()?;
            let mut terminal = tpcc::Terminal::new(&connection, seed)?;
            let (started, mut counts) = (Instant::now(), BTreeMap::new());
            while started.elapsed() < Duration::from_secs(runtime) {
                *counts.entry(terminal.step(&mut connection)?).or_insert(0u64) += 1;
            }
            let (seconds, after) = (started.elapsed().as_secs_f64(), files.statistics()?);
            for (name, count) in &counts {
                println!("{name:<14} {count:>9} {:>9.1}/s", *count as f64 / seconds);
            }
            let (written, appended) =
                (after.written_bytes - before.written_bytes, after.appended_bytes - before.appended_bytes);
            println!(
                "SQLite wrote {:.1} MB, erase blocks took {:.1} MB: write amplification {:.2} \
                 (headers, filling, cleaner {:.1} MB, of which the device copied {:.1} MB by itself, {} checkpoints); \
                 {} erase blocks freed",
                written as f64 / 1e6,
                appended as f64 / 1e6,
                appended as f64 / written as f64,
                (after.cleaned_bytes - before.cleaned_bytes) as f64 / 1e6,
                (after.cleaned_inside_bytes - before.cleaned_inside_bytes) as f64 / 1e6,
                after.checkpoints - before.checkpoints,
                after.freed_blocks - before.freed_blocks,
            );
            Ok(ExitCode::SUCCESS)
        }
    }
}
