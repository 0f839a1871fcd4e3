//! What heads of both versions record, in the same words: tags of 8 bytes, and notes of three words.
//!
//! A log writes one of them and reads both. Heads of version 2 have tags and notes as they are in memory. Those of version 3 have a longer
//! tag, whose form is the owner's, the checksum of each IU, and notes with kind and volume apart: the low byte of the first word, and what
//! stands above it.

use super::chunk::{ChunkKind, HeadRoom, NOTE_TRAILER_SIZE_BYTES, Record, note_at_end};
use super::flush_note::KIND_FLUSH;
use super::head::{self, SKIP};
use diecut_units::IU_SIZE_BYTES;

/// What a log writes: chunk heads, staging slots, anchors, and its owner leaves. A log reads both, and one that found the later one goes on
/// with that, whatever it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// Heads of version 2, whose records have 8 bytes; anchors of version 1.
    #[default]
    Two,
    /// Heads of version 3, whose records have 16 bytes, with checksums; anchors of version 2.
    Three,
}

/// How an owner's tags stand in heads of version 3.
#[derive(Clone, Copy, Debug)]
pub struct TagForm {
    /// The long form of a tag.
    pub long: fn(u64) -> [u8; 12],
    /// The tag of a long form; the flag says that it is one of a chunk of leaves. What was read from a medium can be anything: what no tag
    /// has for its long form becomes one that the owner does not know.
    pub short: fn([u8; 12], bool) -> u64,
}

impl Default for TagForm {
    /// The tag, and zeros.
    fn default() -> TagForm {
        TagForm {
            long: |tag| std::array::from_fn(|at| if at < 8 { tag.to_le_bytes()[at] } else { 0 }),
            short: |long, _| u64::from_le_bytes(std::array::from_fn(|at| long[at])),
        }
    }
}

/// Kinds of notes that owners have, and that of flushes; those above are not written yet, but for skips.
const NOTE_KIND_MAX: u8 = KIND_FLUSH;
const KIND_SKIP: u8 = 9;
/// Words of a note of version 3 that is none of the log's.
const NOTE_WORDS: usize = 2;
/// Most notes of a chunk: the word of a staging slot has 7 bits for them.
const NOTES_MAX: u32 = 127;

/// How much a head records, and in which form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeadShape {
    pub format: Format,
    /// Of a chunk of leaves.
    pub is_map: bool,
    pub data_count: u32,
    pub note_count: u32,
    /// Bytes of the notes.
    pub note_bytes: u32,
}

impl HeadShape {
    /// As the codec of version 3 has it.
    fn room(&self) -> HeadRoom {
        HeadRoom {
            head_ius: 1,
            kind: ChunkKind::User,
            parity_count: 0,
            data_count: self.data_count as u16,
            note_bytes: self.note_bytes as u16,
        }
    }

    fn record_size_bytes(&self) -> usize {
        match self.format {
            Format::Two => 8,
            Format::Three => ChunkKind::User.record_size_bytes(),
        }
    }

    /// Bytes of a note.
    pub fn note_size_bytes(&self, is_skip: bool) -> u32 {
        match self.format {
            Format::Two => head::NOTE_SIZE_BYTES as u32,
            Format::Three if is_skip => (NOTE_TRAILER_SIZE_BYTES + 8) as u32,
            Format::Three => (NOTE_TRAILER_SIZE_BYTES + 8 * NOTE_WORDS) as u32,
        }
    }

    /// Whether all of it, and so many more records and bytes of `more_notes` notes, have room in a head.
    pub fn fits(&self, more_records: u32, more_notes: u32, more_bytes: u32) -> bool {
        let records = (self.data_count + more_records) as usize * self.record_size_bytes();
        let notes = (self.note_bytes + more_bytes) as usize;
        self.note_count + more_notes <= NOTES_MAX && head::RECORDS_OFFSET + records + notes <= IU_SIZE_BYTES
    }

    /// Where the records lie that are told by numbers.
    pub fn records_at(&self, records: std::ops::Range<u32>) -> std::ops::Range<usize> {
        let at = |record: u32| head::RECORDS_OFFSET + record as usize * self.record_size_bytes();
        at(records.start)..at(records.end)
    }

    /// Where the note behind so many bytes of notes lies; it is there.
    pub fn note_at(&self, bytes: &[u8], before: u32) -> std::ops::Range<usize> {
        let end = IU_SIZE_BYTES - before as usize;
        let start = match self.format {
            Format::Two => end - head::NOTE_SIZE_BYTES,
            Format::Three => note_at_end(&bytes[..end]).map_or(end, |(_, rest)| rest.len()),
        };
        start..end
    }

    /// Puts a record behind the others.
    pub fn put_record(&mut self, bytes: &mut [u8], tag: u64, checksum: u32, tags: TagForm) {
        match self.format {
            Format::Two => head::put_record(bytes, self.data_count as usize, tag),
            Format::Three => {
                let record = Record { tag: (tags.long)(tag), checksum, death: [0; 4] };
                self.room().put_record(bytes, &record);
            }
        }
        self.data_count += 1;
    }

    /// Puts a note behind the others.
    pub fn put_note(&mut self, bytes: &mut [u8], sequence: u64, words: [u64; 3]) {
        let is_skip = words[0] == SKIP;
        match self.format {
            Format::Two => head::put_note(bytes, self.note_count as usize, sequence, words),
            Format::Three if is_skip => {
                self.room().put_note(&mut bytes[..IU_SIZE_BYTES], KIND_SKIP, 0, sequence, &words[1..2]);
            }
            Format::Three => {
                assert!(is_known(words), "I-L19: notes are those of the format");
                let (kind, volume) = (words[0] as u8, (words[0] >> 8) as u32);
                self.room().put_note(&mut bytes[..IU_SIZE_BYTES], kind, volume, sequence, &words[1..]);
            }
        }
        self.note_count += 1;
        self.note_bytes += self.note_size_bytes(is_skip);
    }

    /// The tag of a record.
    #[inline]
    pub fn tag(&self, bytes: &[u8], record: u32, tags: TagForm) -> u64 {
        match self.format {
            Format::Two => head::record(bytes, record as usize),
            Format::Three => (tags.short)(self.room().record(bytes, record as u16).tag, self.is_map),
        }
    }

    /// The checksum that a record tells.
    pub fn checksum(&self, bytes: &[u8], record: u32) -> Option<u32> {
        match self.format {
            Format::Two => None,
            Format::Three => Some(self.room().record(bytes, record as u16).checksum),
        }
    }

    /// Notes with their sequences.
    pub fn notes<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = (u64, [u64; 3])> + use<'a> {
        let (format, count) = (self.format, self.note_count as usize);
        let mut left = &bytes[..IU_SIZE_BYTES];
        (0..count).map_while(move |note| match format {
            Format::Two => Some(head::note(bytes, note)),
            Format::Three => {
                let (note, rest) = note_at_end(left)?;
                left = rest;
                note_words(&note).map(|words| (note.sequence, words))
            }
        })
    }

    /// Bytes of so many notes at the end of a head, if they are there.
    pub fn measure_notes(&self, bytes: &[u8]) -> Option<u32> {
        if self.format == Format::Two {
            return self.note_count.checked_mul(head::NOTE_SIZE_BYTES as u32);
        }
        let mut left = &bytes[..IU_SIZE_BYTES];
        for _ in 0..self.note_count {
            let (note, rest) = note_at_end(left)?;
            note_words(&note)?;
            left = rest;
        }
        Some((IU_SIZE_BYTES - left.len()) as u32)
    }
}

/// Whether both forms can say this note. Of version 2, what was read from a medium can be anything.
pub(crate) fn is_known(words: [u64; 3]) -> bool {
    (1..=NOTE_KIND_MAX).contains(&(words[0] as u8)) && u32::try_from(words[0] >> 8).is_ok()
}

/// What a note of version 3 says, if it is one that this program knows.
pub(super) fn note_words(note: &super::chunk::Note<'_>) -> Option<[u64; 3]> {
    let mut words = note.words();
    match note.kind {
        KIND_SKIP if words.len() == 1 => Some([SKIP, words.next()?, 0]),
        1..=NOTE_KIND_MAX if words.len() == NOTE_WORDS => {
            Some([u64::from(note.kind) | u64::from(note.volume) << 8, words.next()?, words.next()?])
        }
        _ => None,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: both forms record the same. Method: records, notes and skips in turn until no more fits, and all of them read again.
    #[test]
    fn what_is_recorded_is_told() {
        for (format, expected) in [(Format::Two, 100), (Format::Three, 89)] {
            let mut bytes = vec![0; IU_SIZE_BYTES];
            let mut shape = HeadShape { format, ..HeadShape::default() };
            let mut notes = Vec::new();
            let tag = |record: u32| u64::from(record) << 40 | 7;
            while shape.fits(1, 1, shape.note_size_bytes(false)) {
                let at = u64::from(shape.data_count);
                let words = if at.is_multiple_of(3) {
                    [SKIP, at, 0]
                } else {
                    [(1 + at % 5) | (9 << 8), at, u64::MAX]
                };
                shape.put_note(&mut bytes, 1000 + at, words);
                notes.push((1000 + at, words));
                shape.put_record(&mut bytes, tag(shape.data_count), 50 + at as u32, TagForm::default());
            }
            assert_eq!(shape.data_count, expected, "{format:?}");
            for record in 0..shape.data_count {
                assert_eq!(shape.tag(&bytes, record, TagForm::default()), tag(record));
                let checksum = (format == Format::Three).then_some(50 + record);
                assert_eq!(shape.checksum(&bytes, record), checksum);
            }
            assert_eq!(shape.notes(&bytes).collect::<Vec<_>>(), notes);
            assert_eq!(shape.measure_notes(&bytes), Some(shape.note_bytes));
        }
    }

    /// Goal: a chunk takes no more notes than the word of a slot can count.
    #[test]
    fn a_chunk_has_so_many_notes() {
        for (format, expected) in [(Format::Two, 126), (Format::Three, 127)] {
            let mut bytes = vec![0; IU_SIZE_BYTES];
            let mut shape = HeadShape { format, ..HeadShape::default() };
            while shape.fits(0, 1, shape.note_size_bytes(true)) {
                shape.put_note(&mut bytes, 1, [SKIP, 0, 0]);
            }
            assert_eq!(shape.note_count, expected, "{format:?}");
        }
    }
}
