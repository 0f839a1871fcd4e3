use diecut_units::Span;
use hdrhistogram::Histogram;

/// Longest latency the histograms tell apart: longer ones count as this. No host waits that long.
const LATENCY_MAX_NS: u64 = 200_000_000_000;
/// Two significant digits: a value is known to 1 %, and a histogram needs about 30 KiB.
const LATENCY_DIGITS: u8 = 2;

/// Commands of one kind since the namespace was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationStatistics {
    /// Commands completed without an error.
    pub completed: u64,
    /// Commands completed with an error.
    pub failed: u64,
    /// Logical blocks of the completed ones.
    pub lbas: u64,
}

/// Commands that hosts send seldom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherStatistics {
    /// Verifies.
    pub verifies: OperationStatistics,
    /// Copies.
    pub copies: OperationStatistics,
    /// Commands that make blocks unreadable.
    pub uncorrectables: OperationStatistics,
    /// Erases of what is no longer there.
    pub purges: OperationStatistics,
    /// What was asked of zones or chunks besides reads and writes.
    pub zone_commands: OperationStatistics,
}

/// Percentiles of one histogram, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencySummary {
    /// Values recorded.
    pub count: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99 %.
    pub p99_ns: u64,
    /// 99.9 %.
    pub p999_ns: u64,
    /// 99.99 %.
    pub p9999_ns: u64,
    /// Largest.
    pub max_ns: u64,
}

/// What a namespace did since it was opened. Latency runs from the arrival that the door stamped to completion.
#[derive(Debug)]
pub struct NamespaceStatistics {
    /// Reads.
    pub reads: OperationStatistics,
    /// Writes.
    pub writes: OperationStatistics,
    /// Flushes.
    pub flushes: OperationStatistics,
    /// Deallocations.
    pub deallocations: OperationStatistics,
    /// Write zeroes.
    pub write_zeroes: OperationStatistics,
    /// Compares (a failed comparison counts as failed).
    pub compares: OperationStatistics,
    /// What is asked seldom.
    pub others: OtherStatistics,
    /// Reads that failed because the medium lost data (media errors of the SMART log).
    pub media_errors: u64,
    read_latency: Histogram<u64>,
    write_latency: Histogram<u64>,
}

/// Kinds of commands, as counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Flush,
    Deallocate,
    WriteZeroes,
    Compare,
    Verify,
    Copy,
    WriteUncorrectable,
    Append,
    Purge,
    Zone,
}

impl NamespaceStatistics {
    pub(crate) fn new() -> NamespaceStatistics {
        let histogram = || {
            Histogram::new_with_bounds(1, LATENCY_MAX_NS, LATENCY_DIGITS)
                .expect("constants are within bounds")
        };
        NamespaceStatistics {
            reads: OperationStatistics::default(),
            writes: OperationStatistics::default(),
            flushes: OperationStatistics::default(),
            deallocations: OperationStatistics::default(),
            write_zeroes: OperationStatistics::default(),
            compares: OperationStatistics::default(),
            others: OtherStatistics::default(),
            media_errors: 0,
            read_latency: histogram(),
            write_latency: histogram(),
        }
    }

    pub(crate) fn record(&mut self, kind: Kind, lbas: u64, latency: Span, succeeded: bool) {
        let counts = match kind {
            Kind::Read => &mut self.reads,
            Kind::Write | Kind::Append => &mut self.writes,
            Kind::Flush => &mut self.flushes,
            Kind::Deallocate => &mut self.deallocations,
            Kind::WriteZeroes => &mut self.write_zeroes,
            Kind::Compare => &mut self.compares,
            Kind::Verify => &mut self.others.verifies,
            Kind::Copy => &mut self.others.copies,
            Kind::WriteUncorrectable => &mut self.others.uncorrectables,
            Kind::Purge => &mut self.others.purges,
            Kind::Zone => &mut self.others.zone_commands,
        };
        if !succeeded {
            counts.failed += 1;
            return;
        }
        counts.completed += 1;
        counts.lbas += lbas;
        match kind {
            Kind::Read => self.read_latency.saturating_record(latency.0.max(1)),
            Kind::Write | Kind::Append => self.write_latency.saturating_record(latency.0.max(1)),
            _ => {}
        }
    }

    /// Latencies of completed reads.
    pub fn read_latency(&self) -> LatencySummary {
        summary(&self.read_latency)
    }

    /// Latencies of completed writes.
    pub fn write_latency(&self) -> LatencySummary {
        summary(&self.write_latency)
    }
}

fn summary(histogram: &Histogram<u64>) -> LatencySummary {
    if histogram.is_empty() {
        return LatencySummary::default();
    }
    LatencySummary {
        count: histogram.len(),
        p50_ns: histogram.value_at_quantile(0.5),
        p99_ns: histogram.value_at_quantile(0.99),
        p999_ns: histogram.value_at_quantile(0.999),
        p9999_ns: histogram.value_at_quantile(0.9999),
        max_ns: histogram.max(),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut statistics = NamespaceStatistics::new();
        for latency_us in 1..=1000 {
            statistics.record(Kind::Read, 1, Span::from_micros(latency_us), true);
        }
        statistics.record(Kind::Read, 1, Span::from_secs(1), false);
        let latency = statistics.read_latency();
        assert_eq!(latency.count, 1000, "failures have no latency");
        assert!((495_000..=510_000).contains(&latency.p50_ns), "{latency:?}");
        assert!((980_000..=1_010_000).contains(&latency.p99_ns), "{latency:?}");
        assert_eq!(statistics.reads.failed, 1);
    }

    #[test]
    fn a_latency_beyond_the_range_counts_as_the_longest() {
        let mut statistics = NamespaceStatistics::new();
        statistics.record(Kind::Write, 1, Span(u64::MAX), true);
        statistics.record(Kind::Write, 1, Span::ZERO, true);
        assert_eq!(statistics.write_latency().count, 2);
    }
}
