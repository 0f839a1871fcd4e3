//! Collects what the guests said and prints it as a table.

use std::time::Duration;

/// One check of a scenario.
pub struct Check {
    /// Name the scenario gave it.
    pub name: String,
    /// Empty when it passed.
    pub problem: Option<String>,
}

/// One scenario on one kernel.
pub struct Run {
    /// Kernel folder name.
    pub kernel: String,
    /// Scenario name.
    pub scenario: &'static str,
    /// All checks, in the order the guest made them.
    pub checks: Vec<Check>,
    /// From the start of the server to the guest's power-off.
    pub time_taken: Duration,
}

impl Run {
    /// Records a check and echoes it.
    pub fn record(&mut self, name: &str, problem: Option<String>) {
        match &problem {
            None => self.say(&format!("  ok    {name}")),
            Some(problem) => self.say(&format!("  FAIL  {name}: {problem}")),
        }
        self.checks.push(Check { name: name.to_string(), problem });
    }

    /// A line for the reader, who sees those of other runs between them.
    pub fn say(&self, line: &str) {
        println!("{line}  ({} {})", self.kernel, self.scenario);
    }

    fn failed_count(&self) -> usize {
        self.checks.iter().filter(|check| check.problem.is_some()).count()
    }
}

/// All runs.
#[derive(Default)]
pub struct Report {
    runs: Vec<Run>,
    /// What was not run because the time for it was over.
    pub left_out: Vec<String>,
}

impl Report {
    /// Adds a finished run.
    pub fn add(&mut self, run: Run) {
        self.runs.push(run);
    }

    /// Whether there was at least one check, and none failed.
    pub fn all_passed(&self) -> bool {
        !self.runs.is_empty() && self.runs.iter().all(|run| !run.checks.is_empty() && run.failed_count() == 0)
    }

    /// Prints one row per run, the failures in words, and the counts alone on the last line.
    pub fn print(&self) {
        println!("\n{:<8} {:<12} {:>7} {:>7} {:>9}", "kernel", "scenario", "passed", "failed", "seconds");
        for run in &self.runs {
            let failed = run.failed_count();
            let passed = run.checks.len() - failed;
            let seconds = run.time_taken.as_secs_f64();
            println!("{:<8} {:<12} {passed:>7} {failed:>7} {seconds:>9.1}", run.kernel, run.scenario);
        }
        for run in &self.runs {
            for check in &run.checks {
                if let Some(problem) = &check.problem {
                    println!("FAIL Linux {} {} {}: {problem}", run.kernel, run.scenario, check.name);
                }
            }
        }
        let failed: usize = self.runs.iter().map(Run::failed_count).sum();
        let all: usize = self.runs.iter().map(|run| run.checks.len()).sum();
        if !self.left_out.is_empty() {
            println!("hosts: NOT RUN, no time left: {}", self.left_out.join(", "));
        }
        println!("{} passed, {failed} failed, {} scenarios left out", all - failed, self.left_out.len());
    }
}
