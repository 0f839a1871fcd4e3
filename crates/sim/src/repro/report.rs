//! What a run of an experiment leaves: a table for people, JSON for programs, a plot.

use super::{Experiment, Findings, Published, Request, plot};
use crate::isolation::summary::Estimate;
use comfy_table::presets::ASCII_MARKDOWN;
use serde::{Serialize, Serializer};
use std::fmt::{self, Write};
use std::path::{Path, PathBuf};

/// One figure or word.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A word.
    Text(String),
    /// A number and the digits that people see.
    Number(f64, usize),
    /// Mean and 95 % confidence interval over the seeds, and the digits that people see.
    Estimate(Estimate, usize),
}

impl Cell {
    /// A word.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// Over seeds, one value each.
    pub fn over(values: &[f64], digits: usize) -> Cell {
        Cell::Estimate(Estimate::of(values), digits)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Text(text) => out.write_str(text),
            Cell::Number(number, digits) => write!(out, "{number:.digits$}"),
            // A single seed has no interval.
            Cell::Estimate(Estimate { mean, half_width: 0.0 }, digits) => write!(out, "{mean:.digits$}"),
            Cell::Estimate(Estimate { mean, half_width }, digits) => {
                write!(out, "{mean:.digits$} +- {half_width:.digits$}")
            }
        }
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Cell::Text(text) => text.serialize(serializer),
            Cell::Number(number, _) => number.serialize(serializer),
            Cell::Estimate(estimate, _) => estimate.serialize(serializer),
        }
    }
}

/// Rows under a header.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Names of the columns, units last.
    pub columns: Vec<String>,
    /// Rows, one cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Without rows.
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Table {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        Table { title: title.into(), columns, rows: Vec::new() }
    }
}

/// A published value beside ours.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// What was measured.
    pub figure: String,
    /// What was published, as it was written.
    pub published: String,
    /// What was measured here.
    pub measured: Cell,
}

impl Comparison {
    /// See the fields.
    pub fn new(figure: impl Into<String>, published: impl Into<String>, measured: Cell) -> Comparison {
        Comparison { figure: figure.into(), published: published.into(), measured }
    }
}

/// An experiment with what it found.
pub struct Report {
    /// The experiment.
    pub experiment: &'static Experiment,
    /// What was asked for.
    pub request: Request,
    /// What it found.
    pub findings: Findings,
}

#[derive(Serialize)]
struct Json<'a> {
    experiment: &'a str,
    question: &'a str,
    source: &'a str,
    command: String,
    seeds: u64,
    quick: bool,
    set_up: &'a str,
    differs: &'a [&'a str],
    published: &'a [Published],
    comparisons: &'a [Comparison],
    tables: &'a [Table],
    notes: &'a [String],
}

impl Report {
    /// What repeats it.
    pub fn command(&self) -> String {
        let quick = if self.request.quick { " --quick" } else { "" };
        format!("diecut repro run {} --seeds {}{quick}", self.experiment.name, self.request.seeds)
    }

    /// For programs.
    pub fn json(&self) -> String {
        let json = Json {
            experiment: self.experiment.name,
            question: self.experiment.question,
            source: self.experiment.source,
            command: self.command(),
            seeds: self.request.seeds,
            quick: self.request.quick,
            set_up: self.experiment.set_up,
            differs: self.experiment.differs,
            published: self.experiment.published,
            comparisons: &self.findings.comparisons,
            tables: &self.findings.tables,
            notes: &self.findings.notes,
        };
        serde_json::to_string_pretty(&json).expect("a report is plain data") + "\n"
    }

    /// For people.
    pub fn text(&self) -> String {
        let experiment = self.experiment;
        let mut text = format!("{}: {}\n", experiment.name, experiment.question);
        let mut line = |line: &str| writeln!(text, "{line}").expect("a string takes all");
        line(&format!("Published: {}", experiment.source));
        line(&format!("Here: {}", experiment.set_up));
        line(&format!("Command: {}", self.command()));
        if self.request.quick {
            line("Quick: small and short; the figures only show that it runs.");
        }
        if self.has_intervals() {
            line("Figures with +-: mean and 95 % confidence interval (Student's t) over the seeds.");
        }
        for table in &self.findings.tables {
            line(&format!("\n{}\n", table.title));
            let columns: Vec<&str> = table.columns.iter().map(String::as_str).collect();
            line(&markdown(&columns, table.rows.iter().map(|row| row.iter().map(Cell::to_string).collect())));
        }
        line("\nBeside what was published\n");
        let rows = self.findings.comparisons.iter();
        let rows = rows.map(|one| vec![one.figure.clone(), one.published.clone(), one.measured.to_string()]);
        line(&markdown(&["figure", "published", "here"], rows));
        for note in &self.findings.notes {
            line(&format!("\n{note}"));
        }
        line("\nWhat differs from the published set-up, or was not published:");
        for differs in experiment.differs {
            line(&format!("- {differs}"));
        }
        text
    }

    fn has_intervals(&self) -> bool {
        let tables = self.findings.tables.iter().flat_map(|table| table.rows.iter().flatten());
        let mut cells = tables.chain(self.findings.comparisons.iter().map(|one| &one.measured));
        cells.any(|cell| matches!(cell, Cell::Estimate(estimate, _) if estimate.half_width > 0.0))
    }

    /// Name and content of each file.
    ///
    /// # Errors
    /// If the plot cannot be drawn.
    pub fn files(&self) -> Result<[(String, String); 3], String> {
        let title = format!("{}: {}", self.experiment.name, self.experiment.question);
        let svg = plot::svg(&title, &self.command(), &self.findings.plots)?;
        let name = |suffix: &str| format!("{}.{suffix}", self.experiment.name);
        Ok([(name("txt"), self.text()), (name("json"), self.json()), (name("svg"), svg)])
    }

    /// Writes all files into a folder, which is made if it is not there, and gives their paths.
    ///
    /// # Errors
    /// What cannot be written, and why.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>, String> {
        writable(folder)?;
        let mut paths = Vec::new();
        for (name, content) in self.files()? {
            let path = folder.join(name);
            std::fs::write(&path, content)
                .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
            paths.push(path);
        }
        Ok(paths)
    }
}

/// Makes a folder, if it is not there, and sees whether files can be made in it: before minutes of work are lost.
///
/// # Errors
/// What cannot be made, and why.
pub fn writable(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder)
        .map_err(|error| format!("folder {} cannot be made: {error}", folder.display()))?;
    let probe = folder.join(".diecut-repro");
    std::fs::write(&probe, "")
        .and_then(|()| std::fs::remove_file(&probe))
        .map_err(|error| format!("folder {} cannot be written to: {error}", folder.display()))
}

fn markdown(columns: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header(columns.to_vec());
    for row in rows {
        table.add_row(row);
    }
    table.to_string()
}
