//! Published experiments, run again in virtual time, each beside the published value and what differs in set-up.
//!
//! An [`Experiment`] is a name, a question, what was published, and a function from a [`Request`] to [`Findings`]. A run is
//! a function of the request alone: the same request writes the same bytes. [`files`](report::Report::write) are a table
//! (text), JSON and a plot (SVG).
//!
//! Latency questions are asked at page level, through the shard that ships (`stage`); wear over years at the level of
//! erase blocks.

mod fdp;
mod latency_monitor;
mod lifetime;
mod loads;
mod lsm;
mod migration;
mod motivation;
mod performashape;
pub mod plot;
pub mod report;
mod sharing;
mod stage;
mod swap_period;
mod waf;
mod write_latency;
mod ycsb;
mod zns_4zones;
mod zns_drives;
mod zns_rocksdb;
mod zns_sp4;
mod zone_files;

pub use write_latency::{SteadyWrites, steady_writes};

use report::{Report, Table};
use serde::Serialize;

/// A value that was published.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Published {
    /// What was measured.
    pub figure: &'static str,
    /// What was found.
    pub value: &'static str,
}

/// What hears of an experiment's steps.
pub type Progress<'a> = &'a mut dyn FnMut(&str);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Request {
    /// Seeds 1 to this one are run; experiments without chance run once.
    pub seeds: u64,
    /// Small and short: shows that the experiment runs, in seconds. Its figures say little.
    pub quick: bool,
}

/// What an experiment found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Rows.
    pub tables: Vec<Table>,
    /// Published values beside ours.
    pub comparisons: Vec<report::Comparison>,
    /// Pictures, drawn below each other.
    pub plots: Vec<plot::Plot>,
    /// What the figures say, in sentences, made from the figures.
    pub notes: Vec<String>,
}

/// One experiment.
pub struct Experiment {
    /// Its name on the command line and in file names.
    pub name: &'static str,
    /// What it asks.
    pub question: &'static str,
    /// Paper and section.
    pub source: &'static str,
    /// How it is run here.
    pub set_up: &'static str,
    /// What is not as it was published, or was not published.
    pub differs: &'static [&'static str],
    /// What was published.
    pub published: &'static [Published],
    run: fn(&Request, Progress) -> Result<Findings, String>,
}

/// All experiments, in the order in which they are listed.
pub const EXPERIMENTS: &[Experiment] = &[
    motivation::EXPERIMENT,
    swap_period::EXPERIMENT,
    lifetime::EXPERIMENT,
    migration::EXPERIMENT,
    sharing::EXPERIMENT,
    waf::EXPERIMENT,
    latency_monitor::EXPERIMENT,
    write_latency::EXPERIMENT,
    ycsb::EXPERIMENT,
    zns_4zones::EXPERIMENT,
    fdp::TENANTS,
    fdp::CACHELIB,
    fdp::ISOLATION,
    fdp::TAIL,
    performashape::EXPERIMENT,
    zns_rocksdb::EXPERIMENT,
    zns_sp4::EXPERIMENT,
];

/// Why nothing was run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no experiment is called {name:?}; there are: {}", names().join(", "))]
pub struct NoSuchExperiment {
    /// What was asked for.
    pub name: String,
}

fn names() -> Vec<&'static str> {
    EXPERIMENTS.iter().map(|experiment| experiment.name).collect()
}

/// The experiment of this name.
///
/// # Errors
/// If there is none; the error names all there are.
pub fn find(name: &str) -> Result<&'static Experiment, NoSuchExperiment> {
    let found = EXPERIMENTS.iter().find(|experiment| experiment.name == name);
    found.ok_or_else(|| NoSuchExperiment { name: name.to_owned() })
}

impl Experiment {
    /// Runs it.
    ///
    /// # Errors
    /// What could not be set up.
    pub fn run(&'static self, request: Request, progress: Progress) -> Result<Report, String> {
        let findings = (self.run)(&request, progress)?;
        Ok(Report { experiment: self, request, findings })
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_testing::depth::depth;

    #[test]
    fn an_unknown_name_is_answered_with_those_there_are() {
        let error = find("lifetme").err().expect("there is none").to_string();
        assert!(error.contains("\"lifetme\"") && error.contains("swap-period"), "{error}");
        assert!(find("swap-period").is_ok());
    }

    /// Every experiment, small: it runs, has rows and a plot, says everything about itself, and says the same twice.
    /// In a brief run every sixth one is asked twice.
    #[test]
    fn the_same_request_writes_the_same_bytes() {
        for (at, experiment) in EXPERIMENTS.iter().enumerate() {
            let request = Request { seeds: 1, quick: true };
            let mut steps = 0;
            let first = experiment.run(request, &mut |_| steps += 1).unwrap();
            let files = first.files().unwrap();
            if depth(at.is_multiple_of(6), true) {
                let second = experiment.run(request, &mut |_| {}).unwrap();
                assert_eq!(files, second.files().unwrap(), "{}", experiment.name);
            }
            assert!(steps > 0 && !experiment.differs.is_empty() && !experiment.published.is_empty());
            for table in &first.findings.tables {
                assert!(!table.rows.is_empty());
                assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.title);
            }
            assert!(!first.findings.comparisons.is_empty() && !first.findings.plots.is_empty());
            for (name, content) in files {
                assert!(content.is_ascii(), "{name}");
                assert!(!content.contains("NaN") && !content.contains("inf"), "{name}");
            }
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let experiment = find("swap-period").unwrap();
        let report = experiment.run(Request { seeds: 1, quick: true }, &mut |_| {}).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("a-file");
        std::fs::write(&file, "not a folder").unwrap();
        let error = report.write(&file.join("below")).unwrap_err();
        assert!(error.contains("a-file/below"), "{error}");
        let written = report.write(&scratch.path().join("new/folder")).unwrap();
        let names: Vec<_> = written.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["swap-period.txt", "swap-period.json", "swap-period.svg"]);
        assert!(written.iter().all(|path| path.metadata().unwrap().len() > 500));
    }
}
