//! The stages of `make test`, one after another, also after a failure: each with a heading that says what runs, and at
//! the end a table of what each took.
#![expect(clippy::disallowed_methods, reason = "stages are timed")]

use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What a stage does.
enum Work {
    /// Everything that `cargo xtask check` checks.
    Check,
    /// A command line, words separated by blanks.
    Run(&'static str),
}

/// Name in the table, and what is done.
static STAGES: [(&str, Work); 7] = [
    ("check", Work::Check),
    ("unit and model tests", Work::Run("cargo test --workspace --no-fail-fast")),
    (
        "simulated hosts",
        Work::Run(
            "cargo run --quiet -p diecut-sim --features marks,mutants -- --system transport --seeds 0..500",
        ),
    ),
    (
        "planted bugs",
        Work::Run("cargo run --quiet -p diecut-sim --features marks,mutants -- --system transport --mutants"),
    ),
    (
        "storage stack",
        Work::Run(
            "cargo run --quiet -p diecut-sim --features marks,mutants -- --system stack --seeds 0..1000",
        ),
    ),
    (
        "planted bugs below",
        Work::Run(
            "cargo run --quiet -p diecut-sim --features marks,mutants -- --system stack --mutants --seeds 0..200",
        ),
    ),
    ("real hosts", Work::Run("tests/hosts/run.sh")),
];

/// Runs all stages and prints the table.
///
/// # Errors
/// Names the stages that failed.
pub fn all(root: &Path) -> Result<String, Vec<String>> {
    let mut rows = Vec::new();
    for (name, work) in &STAGES {
        let started = Instant::now();
        println!("\n== {name}");
        let outcome = match work {
            Work::Check => crate::check::all(root),
            Work::Run(line) => run(root, line),
        };
        if let Err(problems) = &outcome {
            for problem in problems {
                println!("{problem}");
            }
        }
        rows.push((*name, outcome.is_ok(), started.elapsed().as_secs_f64() / 60.0));
    }
    println!("\n{:<24} {:>8} {:>8}", "stage", "result", "minutes");
    for (name, passed, minutes) in &rows {
        println!("{name:<24} {:>8} {minutes:>8.1}", if *passed { "ok" } else { "FAILED" });
    }
    let failed: Vec<_> = rows.iter().filter(|(_, passed, _)| !passed).collect();
    // Alone on the last line, whichever way it went.
    let counts = format!("stages: {} passed, {} failed", rows.len() - failed.len(), failed.len());
    if failed.is_empty() {
        Ok(counts)
    } else {
        let names = failed.iter().map(|(name, _, _)| format!("ci: stage {name} failed"));
        Err(names.chain([counts]).collect())
    }
}

fn run(root: &Path, line: &str) -> Result<String, Vec<String>> {
    println!("{line}");
    let mut words = line.split(' ');
    let program = words.next().expect("a command line has a first word");
    let status = Command::new(program)
        .args(words)
        .current_dir(root)
        .status()
        .map_err(|error| vec![format!("{program} cannot run: {error}")])?;
    if status.success() { Ok(line.to_string()) } else { Err(vec![format!("{line}: {status}")]) }
}
