//! fio on a file, with io_uring past the page cache.

use super::Outcome;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// fio, and the file that it works on.
pub(super) struct Fio {
    program: PathBuf,
    /// What it calls itself.
    pub(super) version: String,
    file: PathBuf,
    size_bytes: u64,
}

/// What it is asked for: its own words for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) rw: &'static str,
    pub(super) depth: usize,
    /// Processes.
    pub(super) jobs: usize,
    /// After each write.
    pub(super) syncs: Syncs,
}

/// What fio does after each write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Syncs {
    Nothing,
    /// Also makes durable when the file was changed, which takes the journal of the file system.
    Fsync,
    /// Only what is needed to read it again.
    Fdatasync,
}

/// What a job came to.
pub(super) struct Done {
    /// Operations a second.
    pub(super) rate: f64,
    /// Processor time of an operation in microseconds, where one job did all.
    pub(super) processor_us: Option<f64>,
}

impl Fio {
    /// The program under this name or path, with a file of so many bytes that is written through.
    pub(super) fn new(program: &Path, file: PathBuf, size_bytes: u64) -> Outcome<Fio> {
        let missing = |error| format!("{} cannot be started: {error}", program.display());
        let output = Command::new(program).arg("--version").output().map_err(missing)?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let fio = Fio { program: program.to_owned(), version, file, size_bytes };
        fio.call(&["--rw=write", "--bs=1m", "--iodepth=8", "--end_fsync=1"])?;
        Ok(fio)
    }

    /// Does a job.
    pub(super) fn run(&self, job: Job, duration: Duration) -> Outcome<Done> {
        let (rw, depth) = (format!("--rw={}", job.rw), format!("--iodepth={}", job.depth));
        let (jobs, runtime) =
            (format!("--numjobs={}", job.jobs), format!("--runtime={}ms", duration.as_millis()));
        let syncs = match job.syncs {
            Syncs::Nothing => "--fsync=0",
            Syncs::Fsync => "--fsync=1",
            Syncs::Fdatasync => "--fdatasync=1",
        };
        let random = ["--bs=4k", "--norandommap", "--randrepeat=0", "--time_based", "--group_reporting"];
        let report = self.call(&[&[&*rw, &depth, &jobs, &runtime, syncs], &random[..]].concat())?;
        let side = if job.rw == "randread" { "read" } else { "write" };
        let found = &report["jobs"][0];
        let rate = found[side]["iops"].as_f64().filter(|rate| *rate > 0.0);
        let rate = rate.ok_or_else(|| format!("fio did nothing: {report}"))?;
        let percent = found["usr_cpu"].as_f64().zip(found["sys_cpu"].as_f64()).filter(|_| job.jobs == 1);
        let processor_us = percent.map(|(user, system)| (user + system) / 100.0 * 1e6 / rate);
        Ok(Done { rate, processor_us })
    }

    fn call(&self, arguments: &[&str]) -> Outcome<serde_json::Value> {
        let mut command = Command::new(&self.program);
        command.args(["--name=drive", "--direct=1", "--ioengine=io_uring", "--output-format=json"]);
        command.arg(format!("--filename={}", self.file.display()));
        command.arg(format!("--size={}", self.size_bytes)).args(arguments);
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(format!("fio failed: {}{said}", String::from_utf8_lossy(&output.stderr)).into());
        }
        // Notes may come first.
        let report = said.find('{').map_or(&*said, |at| &said[at..]);
        Ok(serde_json::from_str(report)?)
    }
}
