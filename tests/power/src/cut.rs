//! What a cut leaves of the writes that no flush covered.

use crate::SECTOR_SIZE_BYTES;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fmt;
use std::ops::Range;

/// What became of unflushed writes in a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutReport {
    /// Which cut of these disks it is, from 1 on.
    pub cut: u64,
    /// The seed that it was drawn from: with the same writes it leaves the same.
    pub seed: u64,
    /// Writes and discards that nothing covered.
    pub writes: u64,
    /// Of these, the ones that are there as a whole.
    pub kept: u64,
    /// The ones of which some sectors are there.
    pub torn: u64,
}

impl fmt::Display for CutReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CutReport { cut, seed, writes, kept, torn } = self;
        write!(
            f,
            "cut={cut} seed={seed} writes={writes} kept={kept} torn={torn} lost={}",
            writes - kept - torn
        )
    }
}

/// How a disk that loses its power treats its cache. Drives differ, and the worst one for a program is not always the same.
enum Mood {
    /// Nothing came to where it belongs.
    LosesAll,
    /// All did, before the flush that nobody asked for.
    KeepsAll,
    /// Writes went out in their order: the first so many, and a part of the next one.
    InOrder(usize),
    /// Any subset; each is kept with this chance, else torn or lost.
    Any(f64),
}

/// Draws what becomes of one write after the other.
pub(crate) struct Fates {
    random: Xoshiro256PlusPlus,
    mood: Mood,
    next: usize,
}

/// What is left of a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Kept,
    Lost,
    /// These of its bytes, whole sectors of the disk but for its ends.
    Torn(Vec<Range<u64>>),
}

impl Fates {
    /// For so many writes of one disk.
    pub fn new(seed: u64, disk: u64, writes: usize) -> Fates {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ disk.rotate_left(40));
        let mood = match random.random_range(0..8) {
            0 => Mood::LosesAll,
            1 => Mood::KeepsAll,
            2..4 => Mood::InOrder(random.random_range(0..=writes)),
            _ => Mood::Any(random.random_range(0.1..0.9)),
        };
        Fates { random, mood, next: 0 }
    }

    /// What becomes of the next write.
    pub fn next(&mut self, bytes: &Range<u64>) -> Fate {
        self.next += 1;
        match self.mood {
            Mood::LosesAll => Fate::Lost,
            Mood::KeepsAll => Fate::Kept,
            Mood::InOrder(whole) if self.next <= whole => Fate::Kept,
            Mood::InOrder(whole) if self.next > whole + 1 => Fate::Lost,
            Mood::InOrder(_) => self.torn(bytes),
            Mood::Any(chance) if self.random.random_bool(chance) => Fate::Kept,
            Mood::Any(_) if self.random.random_bool(0.5) => Fate::Lost,
            Mood::Any(_) => self.torn(bytes),
        }
    }

    /// Any of its sectors. Neighbours with the same fate are one range.
    fn torn(&mut self, bytes: &Range<u64>) -> Fate {
        let mut left: Vec<Range<u64>> = Vec::new();
        let mut at = bytes.start;
        while at < bytes.end {
            let end = (at - at % SECTOR_SIZE_BYTES + SECTOR_SIZE_BYTES).min(bytes.end);
            if self.random.random_bool(0.5) {
                match left.last_mut().filter(|last| last.end == at) {
                    Some(last) => last.end = end,
                    None => left.push(at..end),
                }
            }
            at = end;
        }
        Fate::of(left, bytes)
    }
}

impl Fate {
    fn of(left: Vec<Range<u64>>, bytes: &Range<u64>) -> Fate {
        match &left[..] {
            [] => Fate::Lost,
            [all] if all == bytes => Fate::Kept,
            _ => Fate::Torn(left),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: any subset can be left, in sectors. Method: many cuts of three writes, and the fates that came.
    #[test]
    fn every_subset_comes_and_sectors_are_whole() {
        let (mut seen, mut torn) = (std::collections::BTreeSet::new(), 0);
        for seed in 0..2000 {
            let mut fates = Fates::new(seed, 1, 3);
            let subset: Vec<u8> = (0..3u64)
                .map(|number| {
                    let bytes = number * 4096 + 100..number * 4096 + 4000;
                    match fates.next(&bytes) {
                        Fate::Lost => 0,
                        Fate::Kept => 1,
                        Fate::Torn(left) => {
                            torn += 1;
                            for part in left {
                                assert!(part.start == bytes.start || part.start % SECTOR_SIZE_BYTES == 0);
                                assert!(part.end == bytes.end || part.end % SECTOR_SIZE_BYTES == 0);
                            }
                            2
                        }
                    }
                })
                .collect();
            seen.insert(subset);
        }
        assert_eq!(seen.len(), 27, "{seen:?}");
        assert!(torn > 500, "{torn}");
    }

    #[test]
    fn a_seed_repeats() {
        let of = |seed| {
            let mut fates = Fates::new(seed, 7, 40);
            (0..40u64).map(|at| fates.next(&(at * 4096..at * 4096 + 8192))).collect::<Vec<Fate>>()
        };
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
    }
}
