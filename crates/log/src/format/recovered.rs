use super::{Format, TagForm};
use crate::Check;
use crate::head::{self, Head, NOTE_SIZE_BYTES, RECORDS_OFFSET};
use crate::walk::{self, Run};
use diecut_units::IU_SIZE_BYTES;

/// A chunk found at recovery: its head and what that records. Only records and notes are kept, because recovery holds all
/// heads since the anchor at once.
#[derive(Clone, Debug)]
pub struct RecoveredChunk {
    /// Its head.
    pub head: Head,
    /// Records, then notes, as they stand in a head of version 2.
    bytes: Box<[u8]>,
    /// Of each data IU; none in a head of version 2.
    checksums: Box<[u32]>,
}

impl RecoveredChunk {
    /// Of the bytes of a head, and what may follow; they hold as many records and notes as it says.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn new(head: Head, page: &[u8], tags: TagForm) -> RecoveredChunk {
        if head.format == Format::Three {
            return RecoveredChunk::of_three(head, page, tags);
        }
        let notes = head.note_count as usize * NOTE_SIZE_BYTES;
        let records = RECORDS_OFFSET + usize::from(head.data_count) * 8;
        RecoveredChunk {
            head,
            bytes: [&page[RECORDS_OFFSET..records], &page[IU_SIZE_BYTES - notes..IU_SIZE_BYTES]]
                .concat()
                .into(),
            checksums: Box::default(),
        }
    }

    fn of_three(head: Head, page: &[u8], tags: TagForm) -> RecoveredChunk {
        let shape = head.shape();
        let mut bytes: Vec<u8> =
            (0..shape.data_count).flat_map(|record| shape.tag(page, record, tags).to_le_bytes()).collect();
        let notes: Vec<_> = shape.notes(page).collect();
        assert_eq!(notes.len(), head.note_count as usize, "I-L30: a head has the notes that it counts");
        for (sequence, words) in notes.into_iter().rev() {
            bytes.extend([sequence, words[0], words[1], words[2]].map(u64::to_le_bytes).concat());
        }
        let checksums = (0..shape.data_count).filter_map(|record| shape.checksum(page, record)).collect();
        RecoveredChunk { head, bytes: bytes.into(), checksums }
    }

    /// What is known of a data IU.
    pub fn check(&self, index: u32) -> Check {
        self.checksums.get(index as usize).map_or(Check::UNKNOWN, |checksum| Check::whole(*checksum))
    }

    /// Owner tag of a data IU.
    #[inline]
    pub fn record(&self, index: u32) -> u64 {
        head::record_at(&self.bytes, index as usize)
    }

    /// Runs of records, and notes that are not skips: see [`walk::runs`].
    #[must_use]
    pub fn runs(&self, note: impl FnMut(u32, u64, [u64; 3]), run: impl FnMut(Run)) -> bool {
        walk::runs(&self.head, self.notes(), note, run)
    }

    /// Words of the note of a number that [`RecoveredChunk::runs`] told.
    pub fn note(&self, number: u32) -> [u64; 3] {
        head::note_before_end(self.notes(), number as usize).1
    }

    fn notes(&self) -> &[u8] {
        &self.bytes[usize::from(self.head.data_count) * 8..]
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn tells_what_the_head_records() {
        // As in a staging slot, data follows.
        let mut page = vec![7; IU_SIZE_BYTES + 4 * 8];
        for record in 0..4 {
            head::put_record(&mut page, record, 70 + record as u64);
        }
        head::put_note(&mut page, 0, 12, [1, 2, 3]);
        head::put_note(&mut page, 1, 20, [head::SKIP, 3, 0]);
        let head = Head { data_count: 4, note_count: 2, sequence: 9, ..Head::default() };
        let chunk = RecoveredChunk::new(head, &page, TagForm::default());
        assert_eq!((0..4).map(|record| chunk.record(record)).collect::<Vec<_>>(), [70, 71, 72, 73]);
        let (mut notes, mut runs) = (Vec::new(), Vec::new());
        assert!(chunk.runs(|number, at, words| notes.push((number, at, words)), |run| runs.push(run)));
        assert_eq!(notes, [(0, 12, [1, 2, 3])]);
        assert_eq!(chunk.note(0), [1, 2, 3]);
        let run = |sequence, first, count| Run { sequence, first, count };
        assert_eq!(runs, [run(9, 0, 3), run(20, 3, 1)]);
    }
}
