//! Chunk head: the first IU of each chunk. Little endian. In protected memory the same bytes stand at the
//! start of a staging slot's body, growing record by record.
//!
//! | offset | size | field        | meaning                                                          |
//! |-------:|-----:|--------------|------------------------------------------------------------------|
//! |      0 |    4 | magic        | "dchk"                                                           |
//! |      4 |    4 | check        | CRC-32C of all other bytes of the head, this field as zero       |
//! |      8 |    2 | version      | 2; a store with another one opens read-only                      |
//! |     10 |    2 | stream       | low byte: 0 user, 1 cleaner, 2 map; above it the reference, below 64 |
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

use super::chunk::{ChunkHead, ChunkKind, HeadRoom, Nonce};
use super::form::{Format, HeadShape, note_words};
use crate::{Stream, StreamKind};
use diecut_units::{IU_SIZE_BYTES, checksum, checksum_append};
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 4] = *b"dchk";
const VERSION: u16 = 2;
/// Where records start.
pub const RECORDS_OFFSET: usize = size_of::<Fields>();
/// Bytes of a note.
pub const NOTE_SIZE_BYTES: usize = size_of::<Note>();
/// First word of a skip.
pub const SKIP: u64 = u64::MAX;

/// The fixed fields as they are stored.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Fields {
    magic: [u8; 4],
    check: U32,
    version: U16,
    stream: U16,
    segment: U32,
    generation: U32,
    offset: U32,
    data_count: U16,
    unit_count: U16,
    note_count: U32,
    sequence: U64,
    origin_segment: U32,
    origin_generation: U32,
    origin_units: U32,
    reserved: [u8; 12],
}

/// A note as it is stored.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Note {
    sequence: U64,
    words: [U64; 3],
}

const _: () = {
    assert!(RECORDS_OFFSET == 64 && NOTE_SIZE_BYTES == 32);
    assert!(offset_of!(Fields, check) == 4 && offset_of!(Fields, reserved) == 52);
};

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
    /// Its version.
    pub format: Format,
    /// Bytes of notes, in version 3.
    pub note_bytes: u32,
    /// Life of the store that wrote it; version 2 does not say.
    pub life: u64,
}

/// Whether one more entry of `extra` bytes fits beside `records` and `notes`.
pub fn fits(records: usize, notes: usize, extra: usize) -> bool {
    RECORDS_OFFSET + records * 8 + notes * NOTE_SIZE_BYTES + extra <= IU_SIZE_BYTES
}

/// Puts a record in its place.
pub fn put_record(bytes: &mut [u8], index: usize, tag: u64) {
    let at = RECORDS_OFFSET + 8 * index;
    *U64::mut_from_bytes(&mut bytes[at..at + 8]).expect("8 bytes") = tag.into();
}

/// A record.
#[inline]
pub fn record(bytes: &[u8], index: usize) -> u64 {
    let at = RECORDS_OFFSET + 8 * index;
    U64::ref_from_bytes(&bytes[at..at + 8]).expect("8 bytes").get()
}

/// A record of bytes that begin with the first one.
#[inline]
pub(crate) fn record_at(bytes: &[u8], index: usize) -> u64 {
    U64::ref_from_bytes(&bytes[8 * index..8 * index + 8]).expect("8 bytes").get()
}

/// The first records of a head.
///
/// # Panics
/// If the head has no room for so many.
pub fn records(bytes: &[u8], count: usize) -> impl ExactSizeIterator<Item = u64> {
    let records = &bytes[RECORDS_OFFSET..RECORDS_OFFSET + 8 * count];
    <[U64]>::ref_from_bytes(records).expect("whole records").iter().map(|record| record.get())
}

/// Puts a note in its place.
pub fn put_note(bytes: &mut [u8], index: usize, sequence: u64, words: [u64; 3]) {
    let at = IU_SIZE_BYTES - NOTE_SIZE_BYTES * (index + 1);
    let note = Note { sequence: sequence.into(), words: words.map(U64::from) };
    bytes[at..at + NOTE_SIZE_BYTES].copy_from_slice(note.as_bytes());
}

/// A note: its sequence and words.
pub fn note(bytes: &[u8], index: usize) -> (u64, [u64; 3]) {
    note_before_end(&bytes[..IU_SIZE_BYTES], index)
}

/// A note of bytes that end where the head ends.
pub(crate) fn note_before_end(bytes: &[u8], index: usize) -> (u64, [u64; 3]) {
    let end = bytes.len() - NOTE_SIZE_BYTES * index;
    let (_, note) = Note::ref_from_suffix(&bytes[..end]).expect("32 bytes");
    (note.sequence.get(), note.words.map(U64::get))
}

fn check(bytes: &[u8]) -> u32 {
    checksum_append(checksum_append(checksum(&bytes[..4]), &[0; 4]), &bytes[8..IU_SIZE_BYTES])
}

impl Head {
    /// Writes the fixed fields and the check over the whole head, which begins with the nonce of its erase block on media without OOB areas.
    ///
    /// # Panics
    /// If its records and notes have no room, or it has no units, or one of version 2 is to have a nonce.
    pub fn encode(&self, nonce: Nonce, bytes: &mut [u8]) {
        if self.format == Format::Three {
            return self.encode_three(nonce, bytes);
        }
        assert!(nonce.is_none(), "I-L44: media without OOB areas have heads of version 3");
        let fit = fits(self.data_count.into(), self.note_count as usize, 0);
        assert!(fit && self.unit_count > 0, "I-L30: a head has room for what it records");
        let origin = self.origin.unwrap_or_default();
        let fields = Fields {
            magic: MAGIC,
            check: 0.into(),
            version: VERSION.into(),
            stream: self.stream.number().into(),
            segment: self.segment.into(),
            generation: self.generation.into(),
            offset: self.offset.into(),
            data_count: self.data_count.into(),
            unit_count: self.unit_count.into(),
            note_count: self.note_count.into(),
            sequence: self.sequence.into(),
            origin_segment: origin.segment.into(),
            origin_generation: origin.generation.into(),
            origin_units: origin.units.into(),
            reserved: [0; 12],
        };
        bytes[..RECORDS_OFFSET].copy_from_slice(fields.as_bytes());
        let check = check(bytes);
        bytes[4..8].copy_from_slice(U32::from(check).as_bytes());
    }

    /// As version 3 has it, without parity.
    fn encode_three(&self, nonce: Nonce, bytes: &mut [u8]) {
        let kind = match self.stream.kind() {
            StreamKind::User => ChunkKind::User,
            StreamKind::Cleaner => ChunkKind::Copies,
            StreamKind::Map => ChunkKind::Map,
        };
        let room = HeadRoom {
            head_ius: 1,
            kind,
            parity_count: 0,
            data_count: self.data_count,
            note_bytes: self.note_bytes as u16,
        };
        let head = ChunkHead {
            room,
            reference: self.stream.reference().0 as u8,
            segment: self.segment,
            generation: self.generation,
            offset: self.offset,
            unit_count: self.unit_count,
            copy: 0,
            sequence: self.sequence,
            life: self.life,
            origin: self.origin,
        };
        head.encode(nonce, &mut bytes[..IU_SIZE_BYTES]);
    }

    /// Whether these bytes are a head of another version, or one of version 3 with something that this program does not know: it says
    /// nothing to this one.
    pub fn is_other_version(nonce: Nonce, bytes: &[u8]) -> bool {
        let is_other = match nonce {
            None => checked(bytes).is_some_and(|fields| fields.version != VERSION),
            Some(_) => bytes.len() >= IU_SIZE_BYTES && ChunkHead::checks_out(nonce, &bytes[..IU_SIZE_BYTES]),
        };
        is_other && Head::decode(nonce, bytes).is_none()
    }

    /// Reads a head of either version; `None` if it does not check out. With a nonce it is one of version 3.
    pub fn decode(nonce: Nonce, bytes: &[u8]) -> Option<Head> {
        if nonce.is_some() {
            return Head::decode_three(nonce, bytes.get(..IU_SIZE_BYTES)?);
        }
        let fields = checked(bytes)?;
        if fields.version != VERSION {
            return Head::decode_three(nonce, &bytes[..IU_SIZE_BYTES]);
        }
        let generation = fields.origin_generation.get();
        let origin =
            Origin { segment: fields.origin_segment.get(), generation, units: fields.origin_units.get() };
        let head = Head {
            stream: Stream::from_number(fields.stream.get())?,
            segment: fields.segment.get(),
            generation: fields.generation.get(),
            offset: fields.offset.get(),
            data_count: fields.data_count.get(),
            unit_count: fields.unit_count.get(),
            note_count: fields.note_count.get(),
            sequence: fields.sequence.get(),
            origin: (generation > 0).then_some(origin),
            format: Format::Two,
            note_bytes: 0,
            life: 0,
        };
        let fit = fits(head.data_count.into(), (head.note_count as usize).min(IU_SIZE_BYTES), 0);
        (fit && head.unit_count > 0).then_some(head)
    }

    /// Reads one of version 3, as far as this program knows what such heads say.
    fn decode_three(nonce: Nonce, bytes: &[u8]) -> Option<Head> {
        let found = ChunkHead::decode(nonce, bytes)?;
        let is_known = found.room.head_ius == 1 && found.room.parity_count == 0 && found.copy == 0;
        let mut note_count = 0;
        for note in found.notes(bytes) {
            note_words(&note?)?;
            note_count += 1;
        }
        let head = Head {
            stream: Stream::from_number(found.room.kind as u16 | u16::from(found.reference) << 8)?,
            segment: found.segment,
            generation: found.generation,
            offset: found.offset,
            data_count: found.room.data_count,
            unit_count: found.unit_count,
            note_count,
            sequence: found.sequence,
            origin: found.origin,
            format: Format::Three,
            note_bytes: found.room.note_bytes.into(),
            life: found.life,
        };
        is_known.then_some(head)
    }

    /// How much it records.
    pub(crate) fn shape(&self) -> HeadShape {
        HeadShape {
            format: self.format,
            is_map: self.stream.kind() == StreamKind::Map,
            data_count: self.data_count.into(),
            note_count: self.note_count,
            note_bytes: match self.format {
                Format::Two => self.note_count * NOTE_SIZE_BYTES as u32,
                Format::Three => self.note_bytes,
            },
        }
    }
}

/// The fields of a head of any version whose bytes check out.
fn checked(bytes: &[u8]) -> Option<&Fields> {
    let bytes = bytes.get(..IU_SIZE_BYTES)?;
    let (fields, _) = Fields::ref_from_prefix(bytes).ok()?;
    (fields.magic == MAGIC && fields.check == check(bytes)).then_some(fields)
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::UnitReference;

    /// Goal: the layout is pinned. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_a_head() {
        let origin = Some(Origin { segment: 0x51, generation: 0x52, units: 0x53 });
        let head = Head {
            stream: Stream::Cleaner(UnitReference(7)),
            segment: 0x0403_0201,
            generation: 0x0807_0605,
            offset: 0x0c0b_0a09,
            data_count: 0x0102,
            unit_count: 0x0304,
            note_count: 3,
            sequence: 0x1817_1615_1413_1211,
            origin,
            ..Head::default()
        };
        let mut bytes = vec![0; IU_SIZE_BYTES];
        put_record(&mut bytes, 1, 0x2827_2625_2423_2221);
        put_note(&mut bytes, 1, 0x31, [0x32, SKIP, 0x34]);
        head.encode(None, &mut bytes);
        let mut golden = vec![0; IU_SIZE_BYTES];
        golden[..4].copy_from_slice(b"dchk");
        golden[8..64].copy_from_slice(&[
            2, 0, 1, 7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 2, 1, 4, 3, 3, 0, 0, 0, 0x11, 0x12, 0x13,
            0x14, 0x15, 0x16, 0x17, 0x18, 0x51, 0, 0, 0, 0x52, 0, 0, 0, 0x53, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            0, 0, 0, 0, 0,
        ]);
        golden[72..80].copy_from_slice(&[0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28]);
        (golden[4032], golden[4040], golden[4056]) = (0x31, 0x32, 0x34);
        golden[4048..4056].fill(0xff);
        let check = checksum(&golden).to_le_bytes();
        golden[4..8].copy_from_slice(&check);
        assert!(bytes == golden, "{:?}", &bytes[..80]);
    }

    #[test]
    fn a_head_reads_back_and_a_damaged_one_does_not() {
        let mut bytes = vec![0; IU_SIZE_BYTES];
        put_record(&mut bytes, 0, 77);
        put_note(&mut bytes, 0, 5, [1, 2, 3]);
        let head =
            Head { segment: 4, data_count: 1, unit_count: 2, note_count: 1, sequence: 5, ..Head::default() };
        let origin = Some(Origin { segment: 7, generation: 8, units: 9 });
        for head in [head, Head { origin, ..head }] {
            head.encode(None, &mut bytes);
            assert_eq!(Head::decode(None, &bytes), Some(head));
        }
        assert!(!Head::is_other_version(None, &bytes));
        assert_eq!((record(&bytes, 0), note(&bytes, 0)), (77, (5, [1, 2, 3])));
        bytes[64] ^= 1;
        assert_eq!(Head::decode(None, &bytes), None);
        bytes[8] = 1;
        assert!(!Head::is_other_version(None, &bytes));
        let check = check(&bytes);
        bytes[4..8].copy_from_slice(&check.to_le_bytes());
        assert!(Head::is_other_version(None, &bytes));
    }
}
