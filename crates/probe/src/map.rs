//! The parts of a drive that work by themselves, as they were measured: kept in a file, and used when the drive is cut into lanes.

use crate::independence::Verdict;
use crate::report::Report;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// See the module. A file of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Map {
    /// Size of the drive that was measured.
    pub size_bytes: u64,
    /// Its serial number, if it has one.
    pub serial: Option<String>,
    /// Equal regions that it was divided into.
    pub regions: u16,
    /// Parts, each with its regions: a load in one is not felt in another one.
    pub parts: Vec<Vec<u16>>,
}

impl Map {
    /// What a report says; nothing where it says of no two regions that they are independent.
    pub fn of(report: &Report, serial: Option<String>) -> Option<Map> {
        let disturbance = report.disturbance.as_ref()?;
        let Verdict::Independent { pairs } = &disturbance.verdict else { return None };
        let regions = disturbance.alone_p99_us.len() as u16;
        let parts = parts(regions, pairs);
        (parts.len() > 1).then_some(Map { size_bytes: report.drive.size_bytes, serial, regions, parts })
    }

    /// How many lanes it gives: as many as there are parts, if these are equal runs of the drive.
    ///
    /// # Errors
    /// In words, if they are not, or it is no map.
    pub fn lanes(&self) -> Result<u16, String> {
        let all: Vec<u16> = self.parts.iter().flatten().copied().collect();
        let count = self.parts.len() as u16;
        if count < 2 || !all.iter().copied().eq(0..self.regions) {
            let parts: Vec<String> = self.parts.iter().map(|part| format!("{part:?}")).collect();
            return Err(format!(
                "its parts are the regions {} of {}; lanes are runs of regions, two or more, that make up the drive in their order",
                parts.join(", "),
                self.regions
            ));
        }
        let lengths: BTreeSet<usize> = self.parts.iter().map(Vec::len).collect();
        match lengths.len() {
            1 => Ok(count),
            _ => Err(format!("its parts have {lengths:?} regions, and lanes are of one size")),
        }
    }
}

/// Regions that disturb each other, directly or by way of others, are a part.
fn parts(regions: u16, independent: &[(u16, u16)]) -> Vec<Vec<u16>> {
    let are_regions = |(one, other): &(u16, u16)| one < other && *other < regions;
    assert!(independent.iter().all(are_regions), "pairs are of regions, the lower one first");
    let disturb = |one: u16, other: u16| !independent.contains(&(one.min(other), one.max(other)));
    let mut left: BTreeSet<u16> = (0..regions).collect();
    let mut parts = Vec::new();
    while let Some(first) = left.pop_first() {
        let (mut part, mut at) = (vec![first], 0);
        while at < part.len() {
            let next: Vec<u16> = left.iter().copied().filter(|other| disturb(part[at], *other)).collect();
            left.retain(|region| !next.contains(region));
            part.extend(next);
            at += 1;
        }
        part.sort_unstable();
        parts.push(part);
    }
    parts
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn regions_that_disturb_each_other_are_a_part() {
        assert_eq!(parts(4, &[(0, 2), (0, 3), (1, 2), (1, 3)]), [vec![0, 1], vec![2, 3]]);
        assert_eq!(parts(3, &[(0, 1), (0, 2), (1, 2)]), [[0], [1], [2]]);
        // By way of a third one.
        assert_eq!(parts(3, &[(0, 2)]), [[0, 1, 2]]);
    }

    #[test]
    fn lanes_are_equal_runs() {
        let map = |parts: &[&[u16]]| Map {
            size_bytes: 1 << 30,
            serial: None,
            regions: 4,
            parts: parts.iter().map(|part| part.to_vec()).collect(),
        };
        assert_eq!(map(&[&[0, 1], &[2, 3]]).lanes(), Ok(2));
        assert_eq!(map(&[&[0], &[1], &[2], &[3]]).lanes(), Ok(4));
        for wrong in
            [&[&[0u16, 2][..], &[1, 3]][..], &[&[0], &[1, 2, 3]], &[&[0, 1, 2, 3]], &[&[0], &[1]], &[]]
        {
            assert!(map(wrong).lanes().is_err(), "{wrong:?}");
        }
    }
}
