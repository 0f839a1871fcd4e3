//! `diecut sim --replay FILE`: plays a recorded run and says whether it came out the same.

use crate::replay::{Input, Replay, ReplayError, replay};
use crate::rerun::{Comparison, Rerun, compare, rerun};
use crate::say;
use comfy_table::Table;
use diecut_devices::Backing;
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
    commands: u64,
    comparisons: u64,
    has_end: bool,
    run_s: f64,
    erases: u64,
    is_exact: bool,
    differences: Vec<String>,
    vssds: Vec<VssdReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    free: Option<FreeReport>,
}

#[derive(Serialize)]
struct VssdReport {
    name: String,
    recorded_erases: u64,
    replayed_erases: u64,
    recorded_waf: Option<f64>,
    replayed_waf: Option<f64>,
}

#[derive(Serialize)]
struct FreeReport {
    commands: u64,
    answered: u64,
    errors: u64,
    is_close: bool,
    comparisons: Vec<Comparison>,
}

/// Plays the recording; `free` runs it once more on its own feet. `Ok(false)`: it came out otherwise.
///
/// # Errors
/// Why it cannot be played.
pub fn run(path: &Path, free: bool, json: bool) -> Result<bool, String> {
    let describe = |error: ReplayError| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut recording = RecordingReader::new(BufReader::with_capacity(1 << 20, file))
        .map_err(|error| describe(error.into()))?;
    let mut inputs = Vec::new();
    let outcome = replay(&mut recording, Backing::Memory, |input: Input| {
        if free {
            inputs.push(input);
        }
    })
    .map_err(describe)?;
    let start = recording.start().clone();
    let is_exact = outcome.differences.is_empty();
    let free = match free && is_exact {
        true => Some(free_report(
            &outcome,
            rerun(&start, inputs, outcome.time, Backing::Memory).map_err(describe)?,
        )),
        false => None,
    };
    let good = is_exact && free.as_ref().is_none_or(|free| free.is_close);
    let report = report(outcome, start.program.clone(), start.started(), free);
    if json {
        say!("{}", serde_json::to_string_pretty(&report).expect("reports are plain data"));
    } else {
        print(&report, path);
    }
    Ok(good)
}

fn free_report(recorded: &Replay, rerun: Rerun) -> FreeReport {
    let comparisons = compare(&recorded.recorded, &rerun.summary);
    FreeReport {
        commands: rerun.commands,
        answered: rerun.answered,
        errors: rerun.errors,
        is_close: comparisons.iter().all(|comparison| comparison.is_close),
        comparisons,
    }
}

fn report(outcome: Replay, program: String, started: Time, free: Option<FreeReport>) -> Report {
    let vssds = outcome.recorded.vssds.iter().zip(&outcome.replayed.vssds);
    Report {
        program,
        entries: outcome.entries,
        commands: outcome.commands,
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
        free,
    }
}

fn print(report: &Report, path: &Path) {
    say!(
        "{}: recorded by {}, {} entries, {} commands in {}, {} erases; compared at {} places",
        path.display(),
        report.program,
        report.entries,
        report.commands,
        Span((report.run_s * 1e9) as u64),
        report.erases,
        report.comparisons
    );
    if !report.has_end && report.is_exact {
        say!("the recording has no end (the server was killed): compared up to its last check");
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
    say!("{table}");
    if report.is_exact {
        say!("exact: erase counts of all blocks, write amplification, operations and latencies are the same");
    } else {
        say!("NOT THE SAME:");
        for difference in &report.differences {
            say!("  {difference}");
        }
    }
    if let Some(free) = &report.free {
        let mut table = Table::new();
        table.set_header(["free re-run", "recorded", "re-run", "within 1 %"]);
        for one in &free.comparisons {
            let digits = if one.figure.starts_with("WAF") { 4 } else { 0 };
            table.add_row([
                one.figure.clone(),
                format!("{:.digits$}", one.recorded),
                format!("{:.digits$}", one.rerun),
                if one.is_close { "yes" } else { "NO" }.to_owned(),
            ]);
        }
        say!("{table}");
        say!(
            "{} commands given at their times, {} answered, {} with an error",
            free.commands,
            free.answered,
            free.errors
        );
    }
}
