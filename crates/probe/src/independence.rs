//! Which regions of a drive work independently of each other, as far as latencies tell.

use serde::Serialize;

/// A load in the same region makes p99 this much longer at least, or nothing can be told.
const DISTURBED_MIN: f64 = 1.5;
/// Of what a load in the same region adds, one in an independent region adds no more than this.
const ADDED_MAX: f64 = 0.25;

/// What the latencies of regions beside each other say.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Verdict {
    /// It is a file with holes, and only reads were measured: reads of holes ask no drive.
    Holes,
    /// A load disturbs reads in its own region too little for anything to be told.
    TooQuiet,
    /// Every region disturbs every other one: the drive hides what it is made of, or has one part.
    Shared,
    /// These pairs of regions do not disturb each other; the others do.
    Independent {
        /// Regions, the lower one first.
        pairs: Vec<(u16, u16)>,
    },
}

/// `alone` has a latency for each region, `beside` one for each region (row) and loaded region (column).
///
/// # Panics
/// If the table is not square.
pub(crate) fn judge(alone: &[f64], beside: &[Vec<f64>]) -> Verdict {
    assert!(
        beside.len() == alone.len() && beside.iter().all(|row| row.len() == alone.len()),
        "a row for each"
    );
    let ratio = |own: usize, loaded: usize| beside[own][loaded] / alone[own].max(f64::MIN_POSITIVE);
    let count = alone.len();
    let own = (0..count).map(|region| ratio(region, region)).sum::<f64>() / count.max(1) as f64;
    if count < 2 || own < DISTURBED_MIN {
        return Verdict::TooQuiet;
    }
    let bound = 1.0 + (own - 1.0) * ADDED_MAX;
    let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| (one, other)));
    let independent = pairs.filter(|(one, other)| ratio(*one, *other).max(ratio(*other, *one)) <= bound);
    let pairs: Vec<(u16, u16)> = independent.map(|(one, other)| (one as u16, other as u16)).collect();
    if pairs.is_empty() { Verdict::Shared } else { Verdict::Independent { pairs } }
}

#[cfg(test)]
mod test {
    use super::*;

    /// A drive of so many parts, region by region: a load on the same part makes reads five times as long.
    fn drive(parts: &[u16]) -> (Vec<f64>, Vec<Vec<f64>>) {
        let alone: Vec<f64> = (0..parts.len()).map(|at| 80.0 + at as f64).collect();
        let of = |own: usize, loaded: usize| alone[own] * if parts[own] == parts[loaded] { 5.0 } else { 1.1 };
        let beside = (0..parts.len()).map(|own| (0..parts.len()).map(|loaded| of(own, loaded)).collect());
        let beside = beside.collect();
        (alone, beside)
    }

    #[test]
    fn parts_of_a_drive_are_found() {
        let (alone, beside) = drive(&[0, 0, 1, 1]);
        let pairs = vec![(0, 2), (0, 3), (1, 2), (1, 3)];
        assert_eq!(judge(&alone, &beside), Verdict::Independent { pairs });
        let (alone, beside) = drive(&[3, 3, 3]);
        assert_eq!(judge(&alone, &beside), Verdict::Shared);
    }

    /// Goal: a pair is independent only if neither disturbs the other.
    #[test]
    fn who_disturbs_one_way_is_not_independent() {
        let (alone, mut beside) = drive(&[0, 1]);
        assert_eq!(judge(&alone, &beside), Verdict::Independent { pairs: vec![(0, 1)] });
        beside[1][0] = alone[1] * 4.0;
        assert_eq!(judge(&alone, &beside), Verdict::Shared);
    }

    #[test]
    fn a_drive_that_no_load_disturbs_says_nothing() {
        let alone = vec![80.0, 82.0];
        assert_eq!(judge(&alone, &[vec![90.0, 81.0], vec![80.0, 95.0]]), Verdict::TooQuiet);
        assert_eq!(judge(&[80.0], &[vec![800.0]]), Verdict::TooQuiet);
    }
}
