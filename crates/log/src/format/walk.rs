//! Entries of chunk heads in the order of their sequences, for recovery.

use crate::head::{self, Head};

/// Consecutive data records with consecutive sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Sequence of the first record.
    pub sequence: u64,
    /// First record.
    pub first: u32,
    /// Number of records.
    pub count: u32,
}

/// Greatest sequence that a store can reach: what lies beyond was not written by one.
pub const SEQUENCE_MAX: u64 = 1 << 62;

/// Splits a head's records into runs, with what stands at its end, up to all of it; gives notes that are not skips, by their numbers, to `note`. `false` if the head contradicts itself:
/// skips go forward, in records and in sequence, and no record is told twice.
#[must_use]
pub fn runs(
    head: &Head,
    notes: &[u8],
    mut note: impl FnMut(u32, u64, [u64; 3]),
    mut run: impl FnMut(Run),
) -> bool {
    let (mut sequence, mut first) = (head.sequence, 0);
    let count = u32::from(head.data_count);
    let mut consistent = sequence < SEQUENCE_MAX;
    if !consistent {
        return false;
    }
    for index in 0..head.note_count as usize {
        let (at, words) = head::note_before_end(notes, index);
        if at >= SEQUENCE_MAX || at < head.sequence {
            consistent = false;
        } else if words[0] != head::SKIP {
            note(index as u32, at, words);
        } else if words[1] < u64::from(first)
            || words[1] >= u64::from(count)
            || at < sequence + (words[1] - u64::from(first))
        {
            consistent = false;
        } else {
            let record = words[1] as u32;
            if record > first {
                run(Run { sequence, first, count: record - first });
            }
            (sequence, first) = (at, record);
        }
    }
    if count > first {
        run(Run { sequence, first, count: count - first });
    }
    consistent
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_units::IU_SIZE_BYTES;

    fn told(skips: &[(u64, u64)]) -> (bool, Vec<Run>) {
        let mut bytes = vec![0; IU_SIZE_BYTES];
        for (index, (at, record)) in skips.iter().enumerate() {
            head::put_note(&mut bytes, index, *at, [head::SKIP, *record, 0]);
        }
        let head = Head { data_count: 10, note_count: skips.len() as u32, sequence: 100, ..Head::default() };
        let mut told = Vec::new();
        let consistent = runs(&head, &bytes, |_, _, _| {}, |run| told.push(run));
        (consistent, told)
    }

    /// Seen to fail while a skip could go back: the records behind it were told twice.
    #[test]
    fn no_record_is_told_twice() {
        let (consistent, told_once) = told(&[(200, 4), (300, 7)]);
        assert!(consistent);
        assert_eq!(
            told_once.iter().map(|run| (run.sequence, run.first, run.count)).collect::<Vec<_>>(),
            [(100, 0, 4), (200, 4, 3), (300, 7, 3)]
        );
        for bent in [&[(200, 7), (300, 4)][..], &[(u64::MAX, 4)], &[(101, 4)], &[(200, 1 << 32)]] {
            let (consistent, runs) = told(bent);
            assert!(!consistent, "{bent:?}");
            let records: u32 = runs.iter().map(|run| run.count).sum();
            assert_eq!(records, 10, "{bent:?}");
        }
    }
}
