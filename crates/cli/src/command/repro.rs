use crate::print;
use clap::{Args, Subcommand};
use diecut_sim::repro::report::writable;
use diecut_sim::repro::{EXPERIMENTS, Experiment, Request, find};
use std::path::PathBuf;
use std::process::ExitCode;

/// Published experiments, run again in virtual time, without a server.
#[derive(Subcommand)]
pub enum Repro {
    /// List them, with what was published.
    List,
    /// Run one, or all; print the table and write it with JSON and a plot.
    Run(Run),
}

#[derive(Args)]
pub struct Run {
    /// Names of experiments, or `all`.
    #[arg(required = true)]
    names: Vec<String>,
    /// Run the seeds 1 to this one and say means and 95 % confidence intervals.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Small and short: shows in seconds that it runs; the figures say little.
    #[arg(long)]
    quick: bool,
    /// Folder for NAME.txt, NAME.json and NAME.svg.
    #[arg(long, default_value = "diecut-repro")]
    out: PathBuf,
}

impl Repro {
    pub fn run(self, json: bool) -> ExitCode {
        match self {
            Repro::List => {
                list(json);
                ExitCode::SUCCESS
            }
            Repro::Run(run) => match run.run(json) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) if json => {
                    eprintln!("{}", serde_json::json!({ "error": error }));
                    ExitCode::FAILURE
                }
                Err(error) => {
                    eprintln!("error: {error}");
                    ExitCode::FAILURE
                }
            },
        }
    }
}

fn list(json: bool) {
    if json {
        let entry = |experiment: &Experiment| {
            serde_json::json!({
                "name": experiment.name,
                "question": experiment.question,
                "source": experiment.source,
                "set_up": experiment.set_up,
                "published": experiment.published,
                "differs": experiment.differs,
            })
        };
        return print::json(&EXPERIMENTS.iter().map(entry).collect::<Vec<_>>());
    }
    let rows = EXPERIMENTS.iter().map(|experiment| {
        let published = experiment.published.iter().map(|one| format!("{}: {}", one.figure, one.value));
        let published = published.collect::<Vec<_>>().join("\n");
        vec![experiment.name.to_owned(), experiment.question.to_owned(), published]
    });
    print::table(&["NAME", "QUESTION", "PUBLISHED"], rows.collect());
}

impl Run {
    fn run(self, json: bool) -> Result<(), String> {
        // All names are looked up before anything runs.
        let named = self.names.iter().filter(|name| *name != "all");
        let found = named.map(|name| find(name).map_err(|error| error.to_string()));
        let mut chosen = found.collect::<Result<Vec<&'static Experiment>, _>>()?;
        if self.names.iter().any(|name| name == "all") {
            chosen = EXPERIMENTS.iter().collect();
        }
        writable(&self.out)?;
        for experiment in chosen {
            let name = experiment.name;
            let request = Request { seeds: self.seeds, quick: self.quick };
            let report = experiment.run(request, &mut |what| eprintln!("{name}: {what}"))?;
            let paths = report.write(&self.out)?;
            let text = if json { report.json() } else { report.text() };
            diecut_sim::output::write(format_args!("{text}"));
            let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            eprintln!("{name}: written: {}", paths.join(", "));
        }
        Ok(())
    }
}
