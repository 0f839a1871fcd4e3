//! What a job counts; reports are made of it.

use diecut_nvme::Status;
use diecut_units::Span;
use hdrhistogram::Histogram;

/// Latencies beyond a minute are counted as a minute.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// What a job counts per direction.
pub(crate) struct DirectionCounts {
    pub(crate) latency: Histogram<u64>,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<Status>,
}

impl DirectionCounts {
    pub(crate) fn new() -> DirectionCounts {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("fixed bounds are sound");
        DirectionCounts { latency, errors: 0, first_error: None }
    }
    #[inline]
    pub(crate) fn record(&mut self, latency: Span) {
        self.latency.saturating_record(latency.0.max(1));
    }
    #[cfg(test)]
    pub(crate) fn operations(&self) -> u64 {
        self.latency.len()
    }
}
