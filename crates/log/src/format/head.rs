//! Chunk head: the first IU of each chunk. Little endian. In protected memory the same bytes stand at the
//! start of a staging slot's body, growing record by record.
//!
//! | offset | size | field        | meaning                                                          |
//! |-------:|-----:|--------------|------------------------------------------------------------------|
//! |      0 |    4 | magic        | "dchk"                                                           |
//! |      4 |    4 | check        | CRC-32C of all other bytes of the head, this field as zero       |
//! |      8 |    2 | version      | 2; a store with another one opens read-only                      |
//! |     10 |    2 | stream       | 0 user, 1 cleaner, 2 map                                         |
//! |     12 |    4 | segment      | segment it was written to                                        |
//! |     16 |    4 | generation   | generation of the segment                                        |
//! |     20 |    4 | offset       | IU of the head within the segment                                |
//! |     24 |    2 | data_count   | data IUs that follow the head                                    |
//! |     26 |    2 | unit_count   | program units of the chunk; the next chunk starts after them     |
//! |     28 |    4 | note_count   | notes                                                            |
//! |     32 |    8 | sequence     | sequence number of the first entry                               |
//! |     40 |    4 | origin       | segment that all entries were copied from by the cleaner         |
//! |     44 |    4 | its generation | 0: not copied, or not all from one segment                     |
//! |     48 |    4 | its units    | program units of it that held chunks                             |
//! |     52 |   12 | reserved     | zero                                                             |
//! |     64 |  8*n | records      | owner tag of each data IU                                        |
//! |   4096 | -32*m| notes        | from the end of the head downwards: sequence, three words        |
//! |        |      | skips        | a note whose first word is FFFF_FFFF_FFFF_FFFF: the data record  |
//! |        |      |              | number in its second word starts at the note's sequence          |
//!
//! Entry order: data record `i` has the chunk's sequence plus `i`, or, after a skip, the skip's sequence plus
//! the records since. Sequences are global to the store: they are the order in which the map changed. A head
//! that does not check out, or names another place, ends its segment.

use crate::Stream;
use diecut_units::{IU_SIZE_BYTES, checksum, checksum_append};

const MAGIC: u32 = u32::from_le_bytes(*b"dchk");
const VERSION: u16 = 2;
/// Where records start.
pub const RECORDS_OFFSET: usize = 64;
/// Bytes of a note.
pub const NOTE_SIZE_BYTES: usize = 32;
/// First word of a skip.
pub const SKIP: u64 = u64::MAX;

/// Where the cleaner copied from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Segment.
    pub segment: u32,
    /// Its generation, at least 1.
    pub generation: u32,
    /// Program units of it that held chunks.
    pub units: u32,
}

/// The fixed fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Stream.
    pub stream: Stream,
    /// Segment.
    pub segment: u32,
    /// Generation.
    pub generation: u32,
    /// IU of the head within its segment.
    pub offset: u32,
    /// Data IUs.
    pub data_count: u16,
    /// Program units.
    pub unit_count: u16,
    /// Notes, skips included.
    pub note_count: u32,
    /// First sequence.
    pub sequence: u64,
    /// The segment that all entries were copied from, if it is one.
    pub origin: Option<Origin>,
}

/// Whether one more entry of `extra` bytes fits beside `records` and `notes`.
pub fn fits(records: usize, notes: usize, extra: usize) -> bool {
    RECORDS_OFFSET + records * 8 + notes * NOTE_SIZE_BYTES + extra <= IU_SIZE_BYTES
}

/// Puts a record in its place.
pub fn put_record(bytes: &mut [u8], index: usize, tag: u64) {
    let at = RECORDS_OFFSET + 8 * index;
    bytes[at..at + 8].copy_from_slice(&tag.to_le_bytes());
}

/// A record.
#[inline]
pub fn record(bytes: &[u8], index: usize) -> u64 {
    let at = RECORDS_OFFSET + 8 * index;
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// The first records of a head.
///
/// # Panics
/// If the head has no room for so many.
pub fn records(bytes: &[u8], count: usize) -> impl ExactSizeIterator<Item = u64> {
    let records = bytes[RECORDS_OFFSET..RECORDS_OFFSET + 8 * count].chunks_exact(8);
    records.map(|record| u64::from_le_bytes(record.try_into().expect("8 bytes")))
}

/// Puts a note in its place.
pub fn put_note(bytes: &mut [u8], index: usize, sequence: u64, words: [u64; 3]) {
    let at = IU_SIZE_BYTES - NOTE_SIZE_BYTES * (index + 1);
    bytes[at..at + 8].copy_from_slice(&sequence.to_le_bytes());
    for (i, word) in words.iter().enumerate() {
        bytes[at + 8 + 8 * i..at + 16 + 8 * i].copy_from_slice(&word.to_le_bytes());
    }
}

/// A note: its sequence and words.
pub fn note(bytes: &[u8], index: usize) -> (u64, [u64; 3]) {
    note_before_end(&bytes[..IU_SIZE_BYTES], index)
}

/// A note of bytes that end where the head ends.
pub(crate) fn note_before_end(bytes: &[u8], index: usize) -> (u64, [u64; 3]) {
    let at = bytes.len() - NOTE_SIZE_BYTES * (index + 1);
    let word = |i: usize| u64::from_le_bytes(bytes[at + 8 * i..at + 8 * i + 8].try_into().expect("8 bytes"));
    (word(0), [word(1), word(2), word(3)])
}

fn check(bytes: &[u8]) -> u32 {
    checksum_append(checksum_append(checksum(&bytes[..4]), &[0; 4]), &bytes[8..IU_SIZE_BYTES])
}

impl Head {
    /// Writes the fixed fields and the check over the whole head.
    ///
    /// # Panics
    /// If its records and notes have no room, or it has no units.
    pub fn encode(&self, bytes: &mut [u8]) {
        let fit = fits(self.data_count.into(), self.note_count as usize, 0);
        assert!(fit && self.unit_count > 0, "I-L30: a head has room for what it records");
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.stream.number().to_le_bytes());
        bytes[12..16].copy_from_slice(&self.segment.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.generation.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes[24..26].copy_from_slice(&self.data_count.to_le_bytes());
        bytes[26..28].copy_from_slice(&self.unit_count.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.note_count.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.sequence.to_le_bytes());
        let origin = self.origin.unwrap_or_default();
        bytes[40..44].copy_from_slice(&origin.segment.to_le_bytes());
        bytes[44..48].copy_from_slice(&origin.generation.to_le_bytes());
        bytes[48..52].copy_from_slice(&origin.units.to_le_bytes());
        let check = check(bytes);
        bytes[4..8].copy_from_slice(&check.to_le_bytes());
    }

    /// Whether these bytes are a head of another version, which says nothing to this one.
    pub fn is_other_version(bytes: &[u8]) -> bool {
        bytes.get(..IU_SIZE_BYTES).is_some_and(|bytes| {
            bytes[..4] == MAGIC.to_le_bytes()
                && bytes[4..8] == check(bytes).to_le_bytes()
                && bytes[8..10] != VERSION.to_le_bytes()
        })
    }

    /// Reads a head; `None` if it does not check out.
    pub fn decode(bytes: &[u8]) -> Option<Head> {
        let bytes = bytes.get(..IU_SIZE_BYTES)?;
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let half = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2 bytes"));
        if word(0) != MAGIC || half(8) != VERSION || word(4) != check(bytes) {
            return None;
        }
        let head = Head {
            stream: Stream::from_number(half(10))?,
            segment: word(12),
            generation: word(16),
            offset: word(20),
            data_count: half(24),
            unit_count: half(26),
            note_count: word(28),
            sequence: u64::from_le_bytes(bytes[32..40].try_into().expect("8 bytes")),
            origin: (word(44) > 0).then(|| Origin {
                segment: word(40),
                generation: word(44),
                units: word(48),
            }),
        };
        let fit = fits(head.data_count.into(), (head.note_count as usize).min(IU_SIZE_BYTES), 0);
        (fit && head.unit_count > 0).then_some(head)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_head_reads_back_and_a_damaged_one_does_not() {
        let mut bytes = vec![0; IU_SIZE_BYTES];
        put_record(&mut bytes, 0, 77);
        put_note(&mut bytes, 0, 5, [1, 2, 3]);
        let head =
            Head { segment: 4, data_count: 1, unit_count: 2, note_count: 1, sequence: 5, ..Head::default() };
        let origin = Some(Origin { segment: 7, generation: 8, units: 9 });
        for head in [head, Head { origin, ..head }] {
            head.encode(&mut bytes);
            assert_eq!(Head::decode(&bytes), Some(head));
        }
        assert!(!Head::is_other_version(&bytes));
        assert_eq!((record(&bytes, 0), note(&bytes, 0)), (77, (5, [1, 2, 3])));
        bytes[64] ^= 1;
        assert_eq!(Head::decode(&bytes), None);
        bytes[8] = 1;
        assert!(!Head::is_other_version(&bytes));
        let check = check(&bytes);
        bytes[4..8].copy_from_slice(&check.to_le_bytes());
        assert!(Head::is_other_version(&bytes));
    }
}
