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

/// Splits a head's records into runs; gives notes that are not skips to `note`.
pub fn runs(head: &Head, bytes: &[u8], mut note: impl FnMut(u64, [u64; 3]), mut run: impl FnMut(Run)) {
    let (mut sequence, mut first) = (head.sequence, 0);
    for index in 0..head.note_count as usize {
        let (at, words) = head::note(bytes, index);
        if words[0] == head::SKIP {
            let record = (words[1] as u32).min(head.data_count.into());
            if record > first {
                run(Run { sequence, first, count: record - first });
            }
            (sequence, first) = (at, record);
        } else {
            note(at, words);
        }
    }
    if u32::from(head.data_count) > first {
        run(Run { sequence, first, count: u32::from(head.data_count) - first });
    }
}
