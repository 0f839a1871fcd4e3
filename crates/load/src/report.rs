use crate::counts::DirectionCounts;
use crate::job::Job;
use crate::spec::LoadSpec;
use serde::Serialize;
use std::fmt;

/// What was measured of reads or of writes. Latencies in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct DirectionReport {
    pub operations: u64,
    pub errors: u64,
    /// Status of the first one.
    pub first_error: Option<String>,
    pub operations_per_second: f64,
    pub bytes_per_second: f64,
    pub mean_us: f64,
    pub min_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p99_9_us: f64,
    pub p99_99_us: f64,
    pub max_us: f64,
}

/// What a load came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What was asked.
    pub load: LoadSpec,
    /// Reads, if there were any.
    pub read: Option<DirectionReport>,
    /// Writes, if there were any.
    pub write: Option<DirectionReport>,
    /// Commands that ended, counted or not.
    pub operations: u64,
    /// System calls of the generator per operation, over the whole run.
    pub system_calls_per_operation: f64,
}

impl Report {
    /// Of the jobs of one load; `system_calls` were made for all `operations`, counted or not.
    pub fn of(spec: &LoadSpec, jobs: &[Job], system_calls: u64, operations: u64) -> Report {
        let seconds = jobs.iter().map(|job| job.counted().as_secs_f64()).fold(0.0, f64::max);
        let (mut reads, mut writes) = (DirectionCounts::new(), DirectionCounts::new());
        for job in jobs {
            for (sum, one) in [(&mut reads, &job.reads), (&mut writes, &job.writes)] {
                sum.latency.add(&one.latency).expect("the bounds are the same");
                sum.errors += one.errors;
                sum.first_error = sum.first_error.or(one.first_error);
            }
        }
        Report {
            read: direction(spec, &reads, seconds),
            write: direction(spec, &writes, seconds),
            operations,
            system_calls_per_operation: system_calls as f64 / operations.max(1) as f64,
            load: spec.clone(),
        }
    }

    /// Reads and writes per second.
    pub fn operations_per_second(&self) -> f64 {
        self.read.iter().chain(&self.write).map(|one| one.operations_per_second).sum()
    }

    /// How the first command failed that did.
    pub fn first_error(&self) -> Option<&str> {
        self.read.iter().chain(&self.write).find_map(|one| one.first_error.as_deref())
    }

    /// Commands that failed.
    pub fn errors(&self) -> u64 {
        self.read.iter().chain(&self.write).map(|one| one.errors).sum()
    }
}

fn direction(spec: &LoadSpec, counts: &DirectionCounts, seconds: f64) -> Option<DirectionReport> {
    let latency = &counts.latency;
    if latency.is_empty() && counts.errors == 0 {
        return None;
    }
    let us = |nanos: u64| nanos as f64 / 1e3;
    let at = |quantile| us(latency.value_at_quantile(quantile));
    let operations_per_second = if seconds > 0.0 { latency.len() as f64 / seconds } else { 0.0 };
    Some(DirectionReport {
        operations: latency.len(),
        errors: counts.errors,
        first_error: counts.first_error.map(|status| status.to_string()),
        operations_per_second,
        bytes_per_second: operations_per_second * f64::from(spec.block_bytes),
        mean_us: latency.mean() / 1e3,
        min_us: us(latency.min()),
        p50_us: at(0.5),
        p90_us: at(0.9),
        p99_us: at(0.99),
        p99_9_us: at(0.999),
        p99_99_us: at(0.9999),
        max_us: us(latency.max()),
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, one) in [("read", &self.read), ("write", &self.write)] {
            let Some(one) = one else { continue };
            writeln!(
                f,
                "{name:5}  {:.1} kIOPS  {:.1} MB/s  {} operations",
                one.operations_per_second / 1e3,
                one.bytes_per_second / 1e6,
                one.operations
            )?;
            writeln!(
                f,
                "       latency us  min {:.1}  mean {:.1}  p50 {:.1}  p90 {:.1}  p99 {:.1}  p99.9 {:.1}  p99.99 {:.1}  max {:.1}",
                one.min_us,
                one.mean_us,
                one.p50_us,
                one.p90_us,
                one.p99_us,
                one.p99_9_us,
                one.p99_99_us,
                one.max_us
            )?;
            if one.errors > 0 {
                let first = one.first_error.as_deref().unwrap_or("unknown");
                writeln!(f, "       {} FAILED, the first with {first}", one.errors)?;
            }
        }
        write!(f, "       {:.3} system calls per operation", self.system_calls_per_operation)
    }
}
