//! `diecut-sim`: the simulator as a program of its own, for builds with coverage marks and planted bugs
//! (`cargo run --release -p diecut-sim --features marks,mutants -- --mutants`). `diecut sim` is the same.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

use clap::Parser;
use diecut_sim::cli::SimArgs;

#[derive(Parser)]
#[command(name = "diecut-sim", about = "Runs the whole system in virtual time, from seeds")]
struct Program {
    #[command(flatten)]
    arguments: SimArgs,
}

fn main() -> std::process::ExitCode {
    diecut_sim::cli::main(&Program::parse().arguments)
}
