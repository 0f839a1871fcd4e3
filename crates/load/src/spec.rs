use serde::Serialize;
use thiserror::Error;

/// Which blocks come next.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// One after the other; each job begins at its own share of the region and goes round.
    Sequential,
    /// Uniform.
    Random,
    /// Few blocks often (fio's `zipf:theta`), spread over the region.
    Zipf(f64),
}

/// When commands are due.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrival {
    /// As soon as another one ended, but not more than this many per second and job (none: as fast as it goes).
    Closed(Option<f64>),
    /// At random moments, this many per second and job on average (Poisson), whatever is still under way. What finds no
    /// room waits, and its latency counts from its moment.
    Open(f64),
}

/// What to ask of a namespace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadSpec {
    /// Bytes of a command.
    pub block_bytes: u32,
    /// Commands under way per job.
    pub depth: u16,
    /// Commands a closed loop gathers before it issues them together, while others are under way (fio's
    /// `iodepth_batch_submit`); 1 issues each at once.
    pub batch: u16,
    /// Jobs, each with a queue of its own.
    pub jobs: u16,
    /// Reads of 100 commands; the others write.
    pub read_percent: u8,
    /// Which blocks.
    pub pattern: Pattern,
    /// When.
    pub arrival: Arrival,
    /// First byte of the region that is used.
    pub offset_bytes: u64,
    /// Its size; 0 for all that is left.
    pub size_bytes: u64,
    /// Time that is not counted, at the start.
    pub ramp_ns: u64,
    /// Time that is counted.
    pub runtime_ns: u64,
    /// Commands per job, after which it ends before its time; 0 for no such end (fio's `number_ios`).
    pub operations_max: u64,
    /// Of arrivals, blocks and directions.
    pub seed: u64,
}

impl Default for LoadSpec {
    /// Random 4 KiB reads, depth 32, one job, ten seconds after one of ramp.
    fn default() -> LoadSpec {
        LoadSpec {
            block_bytes: 4096,
            depth: 32,
            batch: 1,
            jobs: 1,
            read_percent: 100,
            pattern: Pattern::Random,
            arrival: Arrival::Closed(None),
            offset_bytes: 0,
            size_bytes: 0,
            ramp_ns: 1_000_000_000,
            runtime_ns: 10_000_000_000,
            operations_max: 0,
            seed: 1,
        }
    }
}

/// What of a load cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpecError {
    /// The block is no multiple of the namespace's.
    #[error(
        "blocks of {block_bytes} bytes are no multiple of the namespace's {lba_bytes}; choose one that is"
    )]
    Block {
        /// Asked for.
        block_bytes: u32,
        /// LBA size.
        lba_bytes: u32,
    },
    /// The block is larger than one command can carry.
    #[error("blocks of {block_bytes} bytes do not fit one command: the controller takes {max_bytes} at most")]
    TooLarge {
        /// Asked for.
        block_bytes: u32,
        /// MDTS.
        max_bytes: u32,
    },
    /// The region holds no block.
    #[error(
        "no block of {block_bytes} bytes lies between byte {offset_bytes} and the end at {end_bytes}; begin earlier or use smaller blocks"
    )]
    Region {
        /// Asked for.
        block_bytes: u32,
        /// Asked for.
        offset_bytes: u64,
        /// Of the region, or of the namespace.
        end_bytes: u64,
    },
    /// The region does not lie in the namespace: a load that is measured elsewhere than asked for misleads.
    #[error(
        "size {size_bytes} from offset {offset_bytes} ends beyond the namespace of {namespace_bytes} bytes; use less, or no size for all of it"
    )]
    Beyond {
        /// Asked for.
        offset_bytes: u64,
        /// Asked for.
        size_bytes: u64,
        /// Of the namespace.
        namespace_bytes: u64,
    },
    /// The region begins within a block of the namespace.
    #[error(
        "offset {offset_bytes} is no multiple of the namespace's blocks of {lba_bytes} bytes; choose one that is"
    )]
    Offset {
        /// Asked for.
        offset_bytes: u64,
        /// LBA size.
        lba_bytes: u32,
    },
    /// A number that makes no sense.
    #[error("{0}")]
    Value(&'static str),
}

/// Blocks of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) first_lba: u64,
    pub(crate) blocks: u64,
    pub(crate) lbas_per_block: u32,
}

impl LoadSpec {
    /// The blocks it uses of a namespace of `size_lbas` blocks of `lba_bytes`.
    ///
    /// # Errors
    /// What cannot be, and what to choose instead.
    pub(crate) fn region(&self, size_lbas: u64, lba_bytes: u32) -> Result<Region, SpecError> {
        let block_bytes = self.block_bytes;
        if block_bytes == 0 || !block_bytes.is_multiple_of(lba_bytes) {
            return Err(SpecError::Block { block_bytes, lba_bytes });
        }
        let value = |wrong, what| if wrong { Err(SpecError::Value(what)) } else { Ok(()) };
        value(self.depth == 0 || self.jobs == 0, "depth and jobs are 1 at least")?;
        value(self.batch == 0 || self.batch > self.depth, "the batch is 1 at least and the depth at most")?;
        value(self.read_percent > 100, "the read share is 0 to 100 percent")?;
        value(self.runtime_ns == 0, "the time is more than zero")?;
        let rate = match self.arrival {
            Arrival::Closed(rate) => rate.unwrap_or(1.0),
            Arrival::Open(rate) => rate,
        };
        value(!rate.is_finite() || rate <= 0.0, "the rate is more than zero")?;
        if let Pattern::Zipf(theta) = self.pattern {
            value(!theta.is_finite() || theta <= 0.0 || theta > 10.0, "zipf theta is above 0, 10 at most")?;
        }
        let lba = u64::from(lba_bytes);
        let namespace_bytes = size_lbas * lba;
        let LoadSpec { offset_bytes, size_bytes, .. } = *self;
        if !offset_bytes.is_multiple_of(lba) {
            return Err(SpecError::Offset { offset_bytes, lba_bytes });
        }
        let end_bytes = match size_bytes {
            0 => namespace_bytes,
            size => offset_bytes.saturating_add(size),
        };
        if end_bytes > namespace_bytes {
            return Err(SpecError::Beyond { offset_bytes, size_bytes, namespace_bytes });
        }
        let blocks = end_bytes.saturating_sub(offset_bytes) / u64::from(block_bytes);
        if blocks == 0 {
            return Err(SpecError::Region { block_bytes, offset_bytes, end_bytes });
        }
        Ok(Region { first_lba: offset_bytes / lba, blocks, lbas_per_block: block_bytes / lba_bytes })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn regions_stay_within_the_namespace() {
        let spec = LoadSpec { block_bytes: 8192, offset_bytes: 4096, ..LoadSpec::default() };
        let region = spec.region(10, 4096).unwrap();
        assert_eq!(region, Region { first_lba: 1, blocks: 4, lbas_per_block: 2 });
        let small = LoadSpec { size_bytes: 16384, ..spec.clone() };
        assert_eq!(small.region(10, 4096).unwrap().blocks, 2);
        let long = LoadSpec { size_bytes: 36865, ..spec.clone() };
        assert!(matches!(long.region(10, 4096), Err(SpecError::Beyond { namespace_bytes: 40960, .. })));
        let within = LoadSpec { offset_bytes: 5, ..spec.clone() };
        assert!(within.region(10, 4096).unwrap_err().to_string().contains("offset 5"));
        let beyond = LoadSpec { offset_bytes: 40960, ..spec.clone() };
        assert!(beyond.region(10, 4096).unwrap_err().to_string().contains("begin earlier"));
        let odd = LoadSpec { block_bytes: 6000, ..spec.clone() };
        assert!(matches!(odd.region(10, 4096), Err(SpecError::Block { .. })));
        let never = LoadSpec { arrival: Arrival::Open(0.0), ..spec };
        assert!(matches!(never.region(10, 4096), Err(SpecError::Value(_))));
    }
}
