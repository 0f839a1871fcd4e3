//! What was measured.

use crate::independence::Verdict;
use crate::{DriveFacts, ProbeSpec};
use hdrhistogram::Histogram;
use serde::Serialize;

/// One measurement at one depth. Latencies in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Commands under way.
    pub depth: u16,
    /// Commands that were counted.
    pub operations: u64,
    /// In a second.
    pub operations_per_second: f64,
    /// In a second.
    pub bytes_per_second: f64,
    /// Mean latency.
    pub mean_us: f64,
    /// Half of the commands took no longer.
    pub p50_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1,000.
    pub p99_9_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Point {
    /// Of commands that were counted in so many seconds.
    pub(crate) fn of(depth: u16, latency: &Histogram<u64>, seconds: f64, block_bytes: u32) -> Point {
        let at = |quantile| latency.value_at_quantile(quantile) as f64 / 1e3;
        let operations_per_second = latency.len() as f64 / seconds;
        Point {
            depth,
            operations: latency.len(),
            operations_per_second,
            bytes_per_second: operations_per_second * f64::from(block_bytes),
            mean_us: latency.mean() / 1e3,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            max_us: latency.max() as f64 / 1e3,
        }
    }
}

/// What was asked, at several depths.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// `read`, `write` or `mixed`.
    pub what: String,
    /// Reads of 100 commands.
    pub read_percent: u8,
    /// By depth.
    pub points: Vec<Point>,
}

/// Regions beside each other: single reads in one, while another one is loaded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Disturbance {
    /// Size of a region.
    pub region_bytes: u64,
    /// Commands under way of the load.
    pub load_depth: u16,
    /// Reads of 100 commands of the load.
    pub load_read_percent: u8,
    /// p99 of reads in each region without a load, in microseconds.
    pub alone_p99_us: Vec<f64>,
    /// The same for each region (row) while each region (column) is loaded.
    pub beside_p99_us: Vec<Vec<f64>>,
    /// What that says.
    pub verdict: Verdict,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What the kernel says of the drive.
    pub drive: DriveFacts,
    /// What was asked.
    pub spec: ProbeSpec,
    /// By what was asked of it.
    pub curves: Vec<Curve>,
    /// Of regions, if they were measured.
    pub disturbance: Option<Disturbance>,
}
