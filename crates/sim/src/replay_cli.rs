//! `diecut sim --replay FILE`: plays a recorded run and says whether it came out the same.

use crate::replay::{Replay, ReplayError, replay};
use comfy_table::Table;
use diecut_emulator::Backing;
use diecut_recording::RecordingReader;
use diecut_units::{Span, Time};
use serde::Serialize;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

#[derive(Serialize)]
struct Report {
    program: String,
    entries: u64,
    comparisons: u64,
    has_end: bool,
    run_s: f64,
    erases: u64,
    is_exact: bool,
    differences: Vec<String>,
    vssds: Vec<VssdReport>,
}

#[derive(Serialize)]
struct VssdReport {
    name: String,
    recorded_erases: u64,
    replayed_erases: u64,
    recorded_waf: Option<f64>,
    replayed_waf: Option<f64>,
}

/// Plays the recording. `Ok(false)`: it came out otherwise.
///
/// # Errors
/// Why it cannot be played.
pub fn run(path: &Path, json: bool) -> Result<bool, String> {
    let describe = |error: ReplayError| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut recording = RecordingReader::new(BufReader::with_capacity(1 << 20, file))
        .map_err(|error| describe(error.into()))?;
    let outcome = replay(&mut recording, Backing::Memory).map_err(describe)?;
    let start = recording.start();
    let is_exact = outcome.differences.is_empty();
    let report = report(outcome, start.program.clone(), start.started());
    if json {
        println!("{}", serde_json::to_string_pretty(&report).expect("reports are plain data"));
    } else {
        print(&report, path);
    }
    Ok(is_exact)
}

fn report(outcome: Replay, program: String, started: Time) -> Report {
    let vssds = outcome.recorded.vssds.iter().zip(&outcome.replayed.vssds);
    Report {
        program,
        entries: outcome.entries,
        comparisons: outcome.comparisons,
        has_end: outcome.has_end,
        run_s: outcome.time.since(started).as_secs_f64(),
        erases: outcome.replayed.erases(),
        is_exact: outcome.differences.is_empty(),
        vssds: vssds
            .map(|(recorded, replayed)| VssdReport {
                name: recorded.name.clone(),
                recorded_erases: recorded.erases,
                replayed_erases: replayed.erases,
                recorded_waf: recorded.waf(),
                replayed_waf: replayed.waf(),
            })
            .collect(),
        differences: outcome.differences,
    }
}

fn print(report: &Report, path: &Path) {
    println!(
        "{}: recorded by {}, {} entries in {}, {} erases; compared at {} places",
        path.display(),
        report.program,
        report.entries,
        Span((report.run_s * 1e9) as u64),
        report.erases,
        report.comparisons
    );
    if !report.has_end && report.is_exact {
        println!("the recording has no end (the server was killed): compared up to its last check");
    }
    let ratio = |waf: Option<f64>| waf.map_or("-".to_owned(), |waf| format!("{waf:.4}"));
    let mut table = Table::new();
    table.set_header(["vSSD", "erases recorded", "replayed", "WAF recorded", "replayed"]);
    for vssd in &report.vssds {
        table.add_row([
            vssd.name.clone(),
            vssd.recorded_erases.to_string(),
            vssd.replayed_erases.to_string(),
            ratio(vssd.recorded_waf),
            ratio(vssd.replayed_waf),
        ]);
    }
    println!("{table}");
    if report.is_exact {
        println!(
            "exact: erase counts of all blocks, write amplification, operations and latencies are the same"
        );
    } else {
        println!("NOT THE SAME:");
        for difference in &report.differences {
            println!("  {difference}");
        }
    }
}
