//! Chunk head, version 3: it has room for drives without OOB areas, parity, snapshots and frames (`docs/design/one-format.md`). A log
//! writes it where it is told to. Little endian. The head is the first IU of a chunk or the first few; how many is fixed for a segment.
//!
//! | offset | size | field        | meaning                                                          |
//! |-------:|-----:|--------------|------------------------------------------------------------------|
//! |      0 |    4 | magic        | "dchk"                                                           |
//! |      4 |    4 | check        | CRC-32C of the nonce, where there is one, and all bytes of the head, this field as zero |
//! |      8 |    2 | version      | 3                                                                |
//! |     10 |    1 | kind         | 0 user, 1 copies, 2 map, 3 index, 4 copies of versions, 5 frames |
//! |     11 |    1 | reference    | reclaim unit handle and group                                    |
//! |     12 |    4 | segment      | segment it was written to                                        |
//! |     16 |    4 | generation   | generation of the segment                                        |
//! |     20 |    4 | offset       | IU of the head within the segment                                |
//! |     24 |    2 | data_count   | data IUs                                                         |
//! |     26 |    2 | unit_count   | program units, parity included; the next chunk begins behind them |
//! |     28 |    1 | head_ius     | 1 to 4; that of its segment                                      |
//! |     29 |    1 | copy         | 0 the head; 1 and 2 its copies                                   |
//! |     30 |    2 | note_bytes   | bytes of notes                                                   |
//! |     32 |    8 | sequence     | of the first entry                                               |
//! |     40 |    8 | life         | from one opening of the store to the next                        |
//! |     48 |    4 | origin       | segment that all entries were copied from                        |
//! |     52 |    4 | its generation | 0: not copied, or not all from one segment                     |
//! |     56 |    4 | its units    | program units of it that held chunks                             |
//! |     60 |    4 | parity_count | parity IUs                                                       |
//! |     64 | 16 or 24 each | records | 24 in kind 4                                                  |
//! |    ... | 4 each | parity checksums | CRC-32C of the parity IUs                                  |
//! |    end |      | notes        | from the end downwards                                           |
//!
//! A record is the owner's tag (12 bytes: volume, IU, birth), and the CRC-32C of the content (4). In kind 4 four bytes of the owner follow
//! (the version that this is of), and four zeros.
//!
//! A note stands upside down: its words (8 each), then kind (1), number of words (1), zeros (2), a volume (4), and its sequence (8), which
//! ends where the note before it begins, or the head ends. So a reader that comes from the end finds each one.

use crate::head::Origin;
use diecut_units::{IU_SIZE_BYTES, checksum, checksum_append, mutant};
use diecut_vssd::space::{EraseBlockSpace, LogicalBlock};
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 4] = *b"dchk";
const VERSION: u16 = 3;
/// Most IUs of a head.
const HEAD_IUS_MAX: u8 = 4;
/// Copies of a head beside it.
const COPIES_MAX: u8 = 2;

/// Where records start.
const RECORDS_OFFSET: usize = size_of::<Fields>();
/// Bytes of a note beside its words.
pub(super) const NOTE_TRAILER_SIZE_BYTES: usize = size_of::<NoteTrailer>();

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Fields {
    magic: [u8; 4],
    check: U32,
    version: U16,
    kind: u8,
    reference: u8,
    segment: U32,
    generation: U32,
    offset: U32,
    data_count: U16,
    unit_count: U16,
    head_ius: u8,
    copy: u8,
    note_bytes: U16,
    sequence: U64,
    life: U64,
    origin_segment: U32,
    origin_generation: U32,
    origin_units: U32,
    parity_count: U32,
}

/// A record without what kind 4 adds.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredRecord {
    tag: [u8; 12],
    checksum: U32,
}

/// What kind 4 adds.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredDeath {
    death: [u8; 4],
    zeros: [u8; 4],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct NoteTrailer {
    kind: u8,
    words: u8,
    zeros: [u8; 2],
    volume: U32,
    sequence: U64,
}

const _: () = {
    assert!(RECORDS_OFFSET == 64 && NOTE_TRAILER_SIZE_BYTES == 16);
    assert!(size_of::<StoredRecord>() == 16 && size_of::<StoredDeath>() == 8);
    assert!(offset_of!(Fields, sequence) == 32 && offset_of!(Fields, parity_count) == 60);
};

/// What the check of everything in an erase block of a plain medium begins with; `None` where OOB areas say whose content it is.
pub type Nonce = Option<[u8; 8]>;

/// The nonce with which the check of a head in this block begins.
pub fn nonce_of(block: LogicalBlock, space: &dyn EraseBlockSpace) -> Nonce {
    space.nonce(block).filter(|_| !mutant!("log: heads of earlier owners count"))
}

/// What a chunk holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChunkKind {
    /// What hosts wrote.
    #[default]
    User,
    /// What the cleaner copied.
    Copies,
    /// Leaves of maps.
    Map,
    /// Leaves of an index of versions.
    Index,
    /// Versions that the cleaner copied; its records are longer.
    VersionCopies,
    /// Compressed IUs.
    Frames,
}

const KINDS: [ChunkKind; 6] = [
    ChunkKind::User,
    ChunkKind::Copies,
    ChunkKind::Map,
    ChunkKind::Index,
    ChunkKind::VersionCopies,
    ChunkKind::Frames,
];

impl ChunkKind {
    /// Bytes of a record.
    pub const fn record_size_bytes(self) -> usize {
        match self {
            ChunkKind::VersionCopies => size_of::<StoredRecord>() + size_of::<StoredDeath>(),
            _ => size_of::<StoredRecord>(),
        }
    }
}

/// What a data IU is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The owner's.
    pub tag: [u8; 12],
    /// CRC-32C of the content.
    pub checksum: u32,
    /// The owner's, of copies of versions; zeros otherwise.
    pub death: [u8; 4],
}

/// Something that happened beside data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note<'a> {
    /// What it was.
    pub kind: u8,
    /// Volume that it happened to; 0 if none.
    pub volume: u32,
    /// Its place in the order of things.
    pub sequence: u64,
    words: &'a [U64],
}

impl Note<'_> {
    /// What it says.
    pub fn words(&self) -> impl ExactSizeIterator<Item = u64> {
        self.words.iter().map(|word| word.get())
    }
}

/// How much of a head is in use, and whether more fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadRoom {
    /// IUs of the head.
    pub head_ius: u8,
    /// Of the chunk.
    pub kind: ChunkKind,
    /// Parity IUs whose checksums are to find room.
    pub parity_count: u32,
    /// Records so far.
    pub data_count: u16,
    /// Bytes of notes so far.
    pub note_bytes: u16,
}

impl HeadRoom {
    fn size_bytes(&self) -> usize {
        usize::from(self.head_ius) * IU_SIZE_BYTES
    }

    /// Bytes in use; saturates far above what a head has.
    fn used_bytes(&self) -> usize {
        let parity = (self.parity_count as usize).saturating_mul(4);
        (RECORDS_OFFSET + usize::from(self.data_count) * self.kind.record_size_bytes())
            .saturating_add(parity)
            .saturating_add(self.note_bytes.into())
    }

    /// Whether a record fits.
    pub fn fits_record(&self) -> bool {
        self.data_count < u16::MAX && self.used_bytes() + self.kind.record_size_bytes() <= self.size_bytes()
    }

    /// Whether a note with so many words fits.
    pub fn fits_note(&self, words: usize) -> bool {
        self.used_bytes() + NOTE_TRAILER_SIZE_BYTES + 8 * words <= self.size_bytes()
    }

    /// Adds a record to the bytes of the head.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn put_record(&mut self, bytes: &mut [u8], record: &Record) {
        assert!(self.fits_record(), "I-L30: a head has room for what it records");
        let at = RECORDS_OFFSET + usize::from(self.data_count) * self.kind.record_size_bytes();
        let stored = StoredRecord { tag: record.tag, checksum: record.checksum.into() };
        bytes[at..at + size_of::<StoredRecord>()].copy_from_slice(stored.as_bytes());
        if self.kind == ChunkKind::VersionCopies {
            let at = at + size_of::<StoredRecord>();
            let stored = StoredDeath { death: record.death, zeros: [0; 4] };
            bytes[at..at + size_of::<StoredDeath>()].copy_from_slice(stored.as_bytes());
        }
        self.data_count += 1;
    }

    /// Adds a note to the bytes of the head.
    ///
    /// # Panics
    /// If it does not fit, or has more than 255 words.
    pub fn put_note(&mut self, bytes: &mut [u8], kind: u8, volume: u32, sequence: u64, words: &[u64]) {
        assert!(self.fits_note(words.len()), "I-L30: a head has room for what it notes");
        let count = u8::try_from(words.len()).expect("a note has 255 words at most");
        let trailer = NoteTrailer {
            kind,
            words: count,
            zeros: [0; 2],
            volume: volume.into(),
            sequence: sequence.into(),
        };
        let end = self.size_bytes() - usize::from(self.note_bytes);
        let at = end - NOTE_TRAILER_SIZE_BYTES;
        bytes[at..end].copy_from_slice(trailer.as_bytes());
        let first = at - 8 * words.len();
        for (place, word) in bytes[first..at].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.note_bytes += (NOTE_TRAILER_SIZE_BYTES + 8 * words.len()) as u16;
    }

    /// A record.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn record(&self, bytes: &[u8], index: u16) -> Record {
        assert!(index < self.data_count, "a record for each data IU");
        let at = RECORDS_OFFSET + usize::from(index) * self.kind.record_size_bytes();
        let (stored, rest) = StoredRecord::ref_from_prefix(&bytes[at..]).expect("checked when it was read");
        let death = match self.kind {
            ChunkKind::VersionCopies => {
                StoredDeath::ref_from_prefix(rest).expect("checked when it was read").0.death
            }
            _ => [0; 4],
        };
        Record { tag: stored.tag, checksum: stored.checksum.get(), death }
    }

    /// Where the checksum of a parity IU stands.
    fn parity_at(&self, index: u32) -> usize {
        assert!(index < self.parity_count, "a checksum of each parity IU");
        RECORDS_OFFSET + usize::from(self.data_count) * self.kind.record_size_bytes() + 4 * index as usize
    }

    /// Puts the checksum of a parity IU in its place, when all records are there.
    pub fn put_parity_checksum(&self, bytes: &mut [u8], index: u32, checksum: u32) {
        let at = self.parity_at(index);
        bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// The fixed fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHead {
    /// IUs, kind, and how many of everything there are.
    pub room: HeadRoom,
    /// Reclaim unit handle and group.
    pub reference: u8,
    /// Segment.
    pub segment: u32,
    /// Its generation.
    pub generation: u32,
    /// IU of the head within the segment.
    pub offset: u32,
    /// Program units of the chunk, at least 1.
    pub unit_count: u16,
    /// 0 the head; 1 and 2 its copies.
    pub copy: u8,
    /// Of the first entry.
    pub sequence: u64,
    /// Life of the store that wrote it.
    pub life: u64,
    /// The segment that all entries were copied from, if it is one.
    pub origin: Option<Origin>,
}

fn check(nonce: Nonce, bytes: &[u8]) -> u32 {
    let at = offset_of!(Fields, check);
    let begun = nonce.map_or(0, |nonce| checksum(&nonce));
    // As in version 2, whose readers are to find that this is a head, and one of another version.
    checksum_append(checksum_append(checksum_append(begun, &bytes[..at]), &[0; 4]), &bytes[at + 4..])
}

impl ChunkHead {
    /// Writes the fixed fields, and the check over the whole head.
    ///
    /// # Panics
    /// If the bytes are not those of a head, or a field is out of range.
    pub fn encode(&self, nonce: Nonce, bytes: &mut [u8]) {
        let HeadRoom { head_ius, kind, parity_count, data_count, note_bytes } = self.room;
        assert_eq!(bytes.len(), self.room.size_bytes(), "I-L30: the bytes of a head");
        assert!(self.room.used_bytes() <= bytes.len() && self.unit_count > 0, "I-L30: a head has room");
        let in_range = (1..=HEAD_IUS_MAX).contains(&head_ius) && self.copy <= COPIES_MAX;
        assert!(in_range, "I-L30: a head says what a reader takes");
        let origin = self.origin.unwrap_or_default();
        let fields = Fields {
            magic: MAGIC,
            check: 0.into(),
            version: VERSION.into(),
            kind: kind as u8,
            reference: self.reference,
            segment: self.segment.into(),
            generation: self.generation.into(),
            offset: self.offset.into(),
            data_count: data_count.into(),
            unit_count: self.unit_count.into(),
            head_ius,
            copy: self.copy,
            note_bytes: note_bytes.into(),
            sequence: self.sequence.into(),
            life: self.life.into(),
            origin_segment: origin.segment.into(),
            origin_generation: origin.generation.into(),
            origin_units: origin.units.into(),
            parity_count: parity_count.into(),
        };
        bytes[..RECORDS_OFFSET].copy_from_slice(fields.as_bytes());
        let check = check(nonce, bytes);
        bytes[offset_of!(Fields, check)..][..4].copy_from_slice(&check.to_le_bytes());
    }

    /// Whether the bytes are a head of this version, whatever it says.
    pub(super) fn checks_out(nonce: Nonce, bytes: &[u8]) -> bool {
        let Ok((fields, _)) = Fields::ref_from_prefix(bytes) else { return false };
        fields.magic == MAGIC && fields.version == VERSION && fields.check == check(nonce, bytes)
    }

    /// Reads a head; `None` if it does not check out, or says what no head says.
    pub fn decode(nonce: Nonce, bytes: &[u8]) -> Option<ChunkHead> {
        if !ChunkHead::checks_out(nonce, bytes) {
            return None;
        }
        let (fields, _) = Fields::ref_from_prefix(bytes).ok()?;
        let room = HeadRoom {
            head_ius: fields.head_ius,
            kind: *KINDS.get(usize::from(fields.kind))?,
            parity_count: fields.parity_count.get(),
            data_count: fields.data_count.get(),
            note_bytes: fields.note_bytes.get(),
        };
        let is_sound = (1..=HEAD_IUS_MAX).contains(&room.head_ius)
            && room.size_bytes() == bytes.len()
            && room.used_bytes() <= bytes.len()
            && fields.copy <= COPIES_MAX
            && fields.unit_count > 0;
        let generation = fields.origin_generation.get();
        let origin =
            Origin { segment: fields.origin_segment.get(), generation, units: fields.origin_units.get() };
        let head = ChunkHead {
            room,
            reference: fields.reference,
            segment: fields.segment.get(),
            generation: fields.generation.get(),
            offset: fields.offset.get(),
            unit_count: fields.unit_count.get(),
            copy: fields.copy,
            sequence: fields.sequence.get(),
            life: fields.life.get(),
            origin: (generation > 0).then_some(origin),
        };
        // Notes are found one after the other: they are whole only if the last one begins where all of them do.
        (is_sound && head.notes(bytes).all(|note| note.is_some())).then_some(head)
    }

    /// A record.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn record(&self, bytes: &[u8], index: u16) -> Record {
        self.room.record(bytes, index)
    }

    /// The checksum of a parity IU.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn parity_checksum(&self, bytes: &[u8], index: u32) -> u32 {
        let at = self.room.parity_at(index);
        U32::ref_from_bytes(&bytes[at..at + 4]).expect("4 bytes").get()
    }

    /// Notes in the order in which they were put; `None` where they are not whole, which ends them. A head that was read has no such.
    pub fn notes<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = Option<Note<'a>>> {
        let mut left = &bytes[bytes.len() - usize::from(self.room.note_bytes)..];
        std::iter::from_fn(move || {
            if left.is_empty() {
                return None;
            }
            let note = note_at_end(left);
            left = note.as_ref().map_or(&[], |(_, rest)| rest);
            Some(note.map(|(note, _)| note))
        })
    }
}

/// The note at the end of some bytes, and what is before it.
pub(super) fn note_at_end(bytes: &[u8]) -> Option<(Note<'_>, &[u8])> {
    let (rest, trailer) = NoteTrailer::ref_from_suffix(bytes).ok()?;
    if trailer.zeros != [0; 2] {
        return None;
    }
    let (rest, words) = <[U64]>::ref_from_suffix_with_elems(rest, trailer.words.into()).ok()?;
    let (kind, volume, sequence) = (trailer.kind, trailer.volume.get(), trailer.sequence.get());
    Some((Note { kind, volume, sequence, words }, rest))
}

#[cfg(test)]
mod test {
    use super::*;

    fn room(kind: ChunkKind, head_ius: u8, parity_count: u32) -> HeadRoom {
        HeadRoom { head_ius, kind, parity_count, data_count: 0, note_bytes: 0 }
    }

    fn head(room: HeadRoom) -> ChunkHead {
        ChunkHead {
            room,
            reference: 0x21,
            segment: 0x0403_0201,
            generation: 0x0807_0605,
            offset: 0x0c0b_0a09,
            unit_count: 0x0304,
            copy: 1,
            sequence: 0x1817_1615_1413_1211,
            life: 0x2827_2625_2423_2221,
            origin: Some(Origin { segment: 0x51, generation: 0x52, units: 0x53 }),
        }
    }

    /// Goal: the layout is pinned. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_a_head() {
        let mut bytes = vec![0; IU_SIZE_BYTES];
        let mut room = room(ChunkKind::VersionCopies, 1, 2);
        let tag = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        room.put_record(&mut bytes, &Record { tag, checksum: 0x6463_6261, death: [0x71, 0x72, 0x73, 0] });
        room.put_note(&mut bytes, 6, 0x84_83_82_81, 0x91, &[0xa1, 0xb1]);
        room.put_note(&mut bytes, 3, 0xc1, 0xd1, &[]);
        room.put_parity_checksum(&mut bytes, 0, 0xe1);
        room.put_parity_checksum(&mut bytes, 1, 0xe2);
        let nonce = [0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38];
        head(room).encode(Some(nonce), &mut bytes);
        let mut golden = vec![0u8; IU_SIZE_BYTES];
        golden[..4].copy_from_slice(b"dchk");
        golden[8..32].copy_from_slice(&[
            3, 0, 4, 0x21, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 0, 4, 3, 1, 1, 48, 0,
        ]);
        golden[32..48].copy_from_slice(&[
            0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28,
        ]);
        (golden[48], golden[52], golden[56], golden[60]) = (0x51, 0x52, 0x53, 2);
        golden[64..76].copy_from_slice(&tag);
        golden[76..84].copy_from_slice(&[0x61, 0x62, 0x63, 0x64, 0x71, 0x72, 0x73, 0]);
        (golden[88], golden[92]) = (0xe1, 0xe2);
        (golden[4048], golden[4056]) = (0xa1, 0xb1);
        golden[4064..4080].copy_from_slice(&[6, 2, 0, 0, 0x81, 0x82, 0x83, 0x84, 0x91, 0, 0, 0, 0, 0, 0, 0]);
        golden[4080..4096].copy_from_slice(&[3, 0, 0, 0, 0xc1, 0, 0, 0, 0xd1, 0, 0, 0, 0, 0, 0, 0]);
        // The first note stands at the end.
        golden.copy_within(4080..4096, 4032);
        golden.copy_within(4048..4080, 4064);
        golden.copy_within(4032..4048, 4048);
        golden[4032..4048].fill(0);
        let check = checksum(&[&nonce, &golden[..]].concat());
        golden[4..8].copy_from_slice(&check.to_le_bytes());
        let differ: Vec<usize> = (0..4096).filter(|at| bytes[*at] != golden[*at]).collect();
        assert!(differ.is_empty(), "{differ:?}");
    }

    /// Goal: what is written is read, under its nonce only, and no flipped bit passes.
    #[test]
    fn a_head_reads_back_and_a_damaged_one_does_not() {
        for (kind, head_ius, nonce) in [
            (ChunkKind::User, 1, None),
            (ChunkKind::VersionCopies, 2, Some([1; 8])),
            (ChunkKind::Frames, 4, Some([2; 8])),
        ] {
            let mut bytes = vec![0; usize::from(head_ius) * IU_SIZE_BYTES];
            let mut room = room(kind, head_ius, 3);
            let death = if kind == ChunkKind::VersionCopies { [7; 4] } else { [0; 4] };
            let record = |index: u8| Record { tag: [index; 12], checksum: u32::from(index), death };
            (0..100).for_each(|index| room.put_record(&mut bytes, &record(index)));
            (0..3).for_each(|index| room.put_parity_checksum(&mut bytes, index, 90 + index));
            for note in 0..9u64 {
                let words: Vec<u64> = (0..note).map(|word| note * 100 + word).collect();
                room.put_note(&mut bytes, note as u8, 5, 1000 + note, &words);
            }
            let head = head(room);
            head.encode(nonce, &mut bytes);
            assert_eq!(ChunkHead::decode(nonce, &bytes), Some(head));
            assert_eq!(head.record(&bytes, 99), record(99));
            assert_eq!(head.parity_checksum(&bytes, 2), 92);
            for (number, note) in head.notes(&bytes).enumerate() {
                let note = note.unwrap();
                assert_eq!(
                    (note.kind as usize, note.volume, note.sequence),
                    (number, 5, 1000 + number as u64)
                );
                assert_eq!(
                    note.words().collect::<Vec<u64>>(),
                    (0..number).map(|word| (number * 100 + word) as u64).collect::<Vec<u64>>()
                );
            }
            assert_eq!(head.notes(&bytes).count(), 9);
            for other in [None, Some([1; 8]), Some([2; 8]), Some([3; 8])] {
                assert_eq!(ChunkHead::decode(other, &bytes).is_some(), other == nonce, "{other:?}");
            }
            let is_other = crate::head::Head::is_other_version(None, &bytes);
            assert_eq!(is_other, head_ius == 1 && nonce.is_none(), "a reader of version 2 opens read-only");
            for at in (0..bytes.len()).step_by(7) {
                let mut bad = bytes.clone();
                bad[at] ^= 4;
                assert_eq!(ChunkHead::decode(nonce, &bad), None, "byte {at}");
            }
        }
    }

    /// Goal: a head takes exactly what it has room for.
    #[test]
    fn a_head_has_room_for_so_much() {
        let filled = |kind, head_ius, parity| {
            let mut bytes = vec![0; usize::from(head_ius) * IU_SIZE_BYTES];
            let mut room = room(kind, head_ius, parity);
            while room.fits_record() {
                room.put_record(&mut bytes, &Record::default());
            }
            assert!(!room.fits_note(2));
            head(room).encode(None, &mut bytes);
            room.data_count
        };
        assert_eq!(filled(ChunkKind::User, 1, 0), 252);
        assert_eq!(filled(ChunkKind::User, 1, 4), 251);
        assert_eq!(filled(ChunkKind::VersionCopies, 1, 0), 168);
        assert_eq!(filled(ChunkKind::User, 4, 0), 1020);
        let mut bytes = vec![0; IU_SIZE_BYTES];
        let mut full = room(ChunkKind::User, 1, 0);
        while full.fits_note(2) {
            full.put_note(&mut bytes, 1, 2, 3, &[4, 5]);
        }
        assert_eq!(full.note_bytes, 126 * 32);
    }

    /// Goal: what no head says is refused, with a right checksum.
    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut good = vec![0; IU_SIZE_BYTES];
        let mut room = room(ChunkKind::User, 1, 1);
        room.put_record(&mut good, &Record::default());
        room.put_note(&mut good, 1, 2, 3, &[4, 5]);
        head(room).encode(None, &mut good);
        let changes: [(&str, usize, u8); 10] = [
            ("version", 8, 2),
            ("kind", 10, 6),
            ("more records than fit", 25, 1),
            ("no units", 26, 0),
            ("two IUs", 28, 2),
            ("a third copy", 29, 3),
            ("part of a note", 30, 24),
            ("more notes than there are", 30, 40),
            ("parity without end", 63, 0x80),
            ("a note with bytes that are zero", 4082, 1),
        ];
        for (what, at, value) in changes {
            let mut bytes = good.clone();
            bytes[at] = value;
            // 772 units without their upper byte are none.
            bytes[27] = if what == "no units" { 0 } else { bytes[27] };
            let check = check(None, &bytes);
            bytes[4..8].copy_from_slice(&check.to_le_bytes());
            assert_eq!(ChunkHead::decode(None, &bytes), None, "{what}");
        }
        assert!(ChunkHead::decode(None, &good).is_some());
        assert_eq!(ChunkHead::decode(None, &good[..100]), None);
        assert_eq!(ChunkHead::decode(None, &[]), None);
    }
}
