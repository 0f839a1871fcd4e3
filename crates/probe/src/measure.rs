//! The measurements, one after the other.

use crate::drive::{Drive, is_full_of_holes};
use crate::independence::{Verdict, judge};
use crate::report::{Curve, Disturbance, Point, Report};
use crate::ring::{Load, Ring};
use crate::{ProbeError, ProbeSpec};
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// Commands under way of the load beside which single reads are measured.
const LOAD_DEPTH: u16 = 32;
/// How often a point is measured again at which the drive answered nothing in time: it may be busy with somebody else.
const TRIES: u32 = 20;
/// Reads of 100 commands of a mixed load.
const MIXED_READ_PERCENT: u8 = 70;

/// Measures the drive at `path`, and says in `tell` what it is at.
///
/// # Errors
/// What stands in the way, see [`ProbeError`].
pub fn run(path: &Path, spec: &ProbeSpec, tell: &mut dyn FnMut(&str)) -> Result<Report, ProbeError> {
    spec.check()?;
    let drive = Drive::open(path, spec)?;
    let depth_max = spec.depths.iter().copied().max().unwrap_or(1).max(LOAD_DEPTH + 1);
    let ring = Ring::new(&drive.file, depth_max, spec.block_bytes, spec.seed)?;
    let mut bench = Bench { spec, size_bytes: drive.facts.size_bytes, file: &drive.file, ring, runs: 0 };
    let reads = [("read", 100)];
    let all = [("read", 100), ("write", 0), ("mixed", MIXED_READ_PERCENT)];
    let asked = if spec.overwrites { &all[..] } else { &reads[..] };
    let curves = asked.iter().map(|(what, percent)| bench.curve(what, *percent, tell));
    let curves = curves.collect::<Result<_, _>>()?;
    let disturbance = if spec.regions > 0 { Some(bench.disturbance(tell)?) } else { None };
    Ok(Report { drive: drive.facts.clone(), spec: spec.clone(), curves, disturbance })
}

struct Bench<'a> {
    spec: &'a ProbeSpec,
    size_bytes: u64,
    file: &'a File,
    ring: Ring<'a>,
    runs: u64,
}

impl Bench<'_> {
    /// Whole blocks of one of so many equal regions.
    fn region(&self, index: u16, count: u16) -> Range<u64> {
        let block = u64::from(self.spec.block_bytes);
        let bytes = self.size_bytes / u64::from(count) / block * block;
        let start = bytes * u64::from(index);
        start..start + bytes
    }

    fn load(&mut self, range: Range<u64>, depth: u16, read_percent: u8) -> Load {
        self.runs += 1;
        Load::new(range, depth, read_percent, self.spec.seed.wrapping_add(self.runs))
    }

    fn run(&mut self, loads: &mut [Load]) -> Result<(), ProbeError> {
        self.ring.run(loads, Duration::from_secs_f64(self.spec.seconds))
    }

    fn curve(
        &mut self,
        what: &str,
        read_percent: u8,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Curve, ProbeError> {
        let mut points = Vec::new();
        for depth in &self.spec.depths {
            tell(&format!("{what}, {depth} under way"));
            let mut loads = [self.load(self.region(0, 1), *depth, read_percent)];
            self.run(&mut loads)?;
            for _ in 0..TRIES {
                if !loads[0].latency.is_empty() {
                    break;
                }
                loads = [self.load(self.region(0, 1), *depth, read_percent)];
                self.run(&mut loads)?;
            }
            // The first tenth is not counted.
            points.push(Point::of(*depth, &loads[0].latency, self.spec.seconds * 0.9, self.spec.block_bytes));
        }
        Ok(Curve { what: what.to_owned(), read_percent, points })
    }

    fn disturbance(&mut self, tell: &mut dyn FnMut(&str)) -> Result<Disturbance, ProbeError> {
        let count = self.spec.regions;
        let load_read_percent = if self.spec.overwrites { 0 } else { 100 };
        let (mut alone_p99_us, mut beside_p99_us) = (Vec::new(), Vec::new());
        let p99_us = |load: &Load| load.latency.value_at_quantile(0.99) as f64 / 1e3;
        for own in 0..count {
            tell(&format!("region {own} of {count}, alone"));
            let mut loads = [self.load(self.region(own, count), 1, 100)];
            self.run(&mut loads)?;
            alone_p99_us.push(p99_us(&loads[0]));
        }
        for own in 0..count {
            let mut row = Vec::new();
            for loaded in 0..count {
                tell(&format!("region {own}, beside a load in region {loaded}"));
                let reads = self.load(self.region(own, count), 1, 100);
                let load = self.load(self.region(loaded, count), LOAD_DEPTH, load_read_percent);
                let mut loads = [reads, load];
                self.run(&mut loads)?;
                row.push(p99_us(&loads[0]));
            }
            beside_p99_us.push(row);
        }
        let verdict = match self.spec.overwrites {
            false if (0..count).any(|region| is_full_of_holes(self.file, self.region(region, count))) => {
                Verdict::Holes
            }
            _ => judge(&alone_p99_us, &beside_p99_us),
        };
        let region = self.region(0, count);
        Ok(Disturbance {
            region_bytes: region.end - region.start,
            load_depth: LOAD_DEPTH,
            load_read_percent,
            alone_p99_us,
            beside_p99_us,
            verdict,
        })
    }
}
