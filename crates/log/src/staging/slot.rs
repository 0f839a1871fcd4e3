//! One staging slot: where a chunk gathers before it is programmed, straight from here.
//!
//! Slot in protected memory (only those of host data), little endian:
//!
//! | offset | size | field      | meaning                                                                |
//! |-------:|-----:|------------|------------------------------------------------------------------------|
//! |      0 |    8 | word       | published last: D5C8h, data count (9 bits), note count (7), check (32) |
//! |      8 |    8 | sequence   | first sequence of the chunk                                            |
//! |     16 |    4 | segment    | where the chunk is to be programmed                                    |
//! |     20 |    4 | generation | generation of that segment                                             |
//! |     24 |    4 | offset     | IU of the head within it                                               |
//! |     28 |    2 | version    | 2                                                                      |
//! |     30 |    2 | reference  | reclaim unit handle and group that the chunk was written to            |
//! |     64 | 4096 | head       | records and notes as in a chunk head; the fixed fields are not valid   |
//! |   4160 |  ... | data       | IUs                                                                    |
//!
//! Version 3, with [records and notes of version 3](../../../../docs/format/chunk-head-3.md):
//!
//! | offset | size | field      | meaning                                                                |
//! |-------:|-----:|------------|------------------------------------------------------------------------|
//! |      0 |    8 | word       | published last: D5C9h, data count (9 bits), note count (7), check (32) |
//! |      8 |    8 | sequence   | first sequence of the chunk                                            |
//! |     16 |    4 | segment    | where the chunk is to be programmed                                    |
//! |     20 |    4 | generation | generation of that segment                                             |
//! |     24 |    4 | offset     | IU of the head within it                                               |
//! |     28 |    1 | head_ius   | 1; IUs of the head                                                     |
//! |     29 |    1 | kind       | 0; kind of the chunk                                                   |
//! |     30 |    2 | reference  | reclaim unit handle and group that the chunk was written to            |
//! |     32 |    8 | life       | from one opening of the store to the next                              |
//! |     40 |   24 | mirrors    | zero: there are none. A reader takes a slot with some for damaged      |
//! |     64 | 4096 | head       | records and notes as in a chunk head of version 3                      |
//! |   4160 |  ... | data       | IUs                                                                    |
//!
//! The word makes all entries up to its counts true at once; 0 says that the slot is empty. Its check is the CRC-32C of
//! the sequence and three CRC-32C: of the records, of the CRC-32C of the IUs, and of the notes, up to the counts. A slot whose
//! word is anything else is damaged: what it held is lost, and the store takes no more writes. The place is not covered:
//! it changes while the word stands, and only tells a chunk that was programmed from one that was not.

use super::chunk::Chunk;
use crate::Layout;
use crate::UnitReference;
use crate::chunk::Nonce;
use crate::format::{Format, HeadShape, TagForm, is_known};
use crate::head::{self, Head};
use crate::mark::{self, Mark};
use diecut_units::mutant;
use diecut_units::{
    Buffer, BufferLoan, BufferMut, ContentMode, IU_SIZE_BYTES, Payload, ProtectedRegion, checksum,
    checksum_append,
};
use diecut_vssd::space::PayloadParts;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What stands in front of a slot's head, in protected memory.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SlotHeader {
    word: U64,
    sequence: U64,
    segment: U32,
    generation: U32,
    offset: U32,
    /// Of version 3 the IUs of the head, and the kind of the chunk above.
    version: U16,
    reference: U16,
    /// In version 2 whatever was there.
    reserved: [u8; 32],
}

/// What the check of a slot's word is made of.
#[derive(Clone, Copy, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Checked {
    sequence: U64,
    records_check: U32,
    sums_check: U32,
    notes_check: U32,
}

/// Bytes before a slot's head.
pub const SLOT_HEADER_SIZE_BYTES: usize = size_of::<SlotHeader>();
const _: () = {
    assert!(SLOT_HEADER_SIZE_BYTES == 64 && offset_of!(SlotHeader, reserved) == 32);
    assert!(size_of::<Checked>() == 20);
};
const MAGIC: u64 = 0xd5c8;
const VERSION: u16 = 2;
const MAGIC_THREE: u64 = 0xd5c9;
/// A head of one IU, of a chunk of host data.
const HEAD_THREE: u16 = 1;

/// How heads are written, and what tags are in them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadForm {
    pub format: Format,
    pub tags: TagForm,
    /// Life of the store.
    pub life: u64,
}

enum Body {
    Open(BufferMut),
    /// Programs read it.
    Shared(BufferLoan, Buffer),
    /// Given back by the log, but someone below still holds a part.
    Returning(BufferLoan),
    Moving,
}

/// What the word of a slot covers, checked as far as it was published.
#[derive(Default)]
pub(crate) struct Published {
    data_count: u32,
    note_count: u32,
    note_bytes: u32,
    records_check: u32,
    sums_check: u32,
    notes_check: u32,
}

impl Published {
    /// Takes in all entries of a head.
    fn extend(&mut self, head: &[u8], sums: &[u32], shape: HeadShape) {
        let (data_count, note_count) = (shape.data_count, shape.note_count);
        let is_more = data_count >= self.data_count && note_count >= self.note_count;
        debug_assert!(is_more, "I-L35: what is published stays so");
        let records = &head[shape.records_at(self.data_count..data_count)];
        self.records_check = checksum_append(self.records_check, records);
        for sum in &sums[self.data_count as usize..data_count as usize] {
            self.sums_check = checksum_append(self.sums_check, U32::from(*sum).as_bytes());
        }
        for _ in self.note_count..note_count {
            let note = shape.note_at(head, self.note_bytes);
            self.note_bytes += note.len() as u32;
            self.notes_check = checksum_append(self.notes_check, &head[note]);
        }
        (self.data_count, self.note_count) = (data_count, note_count);
    }
    fn word(&self, sequence: u64, format: Format) -> u64 {
        let checked = Checked {
            sequence: sequence.into(),
            records_check: self.records_check.into(),
            sums_check: self.sums_check.into(),
            notes_check: self.notes_check.into(),
        };
        magic_of(format) << 48
            | u64::from(self.data_count) << 39
            | u64::from(self.note_count) << 32
            | u64::from(checksum(checked.as_bytes()))
    }
}

fn magic_of(format: Format) -> u64 {
    match format {
        Format::Two => MAGIC,
        Format::Three => MAGIC_THREE,
    }
}

fn version_of(format: Format) -> u16 {
    match format {
        Format::Two => VERSION,
        Format::Three => HEAD_THREE,
    }
}

/// Version 2 does not say a life.
fn life_in(header: &SlotHeader, format: Format) -> u64 {
    let (life, _) = U64::ref_from_prefix(&header.reserved).expect("8 bytes");
    if format == Format::Three { life.get() } else { 0 }
}

/// What a slot holds after a restart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundSlot {
    Empty,
    Damaged,
    Chunk {
        reference: UnitReference,
        sequence: u64,
        segment: u32,
        generation: u32,
        offset: u32,
        shape: HeadShape,
        life: u64,
    },
}

#[inline]
fn header_of(bytes: &mut BufferMut) -> &mut SlotHeader {
    SlotHeader::mut_from_bytes(bytes).expect("as long as a header")
}

pub(crate) struct Slot {
    published: Published,
    /// In protected memory only.
    header: Option<BufferMut>,
    body: Body,
    chunk: Option<Chunk>,
    /// Of what it holds.
    format: Format,
    form: HeadForm,
    iu_bytes: usize,
    spare_checksums: Vec<u32>,
    /// What it held before is to be cleared before it holds anything else.
    must_wipe: bool,
}

impl Slot {
    /// Bytes of a slot of user data.
    pub fn size_bytes(layout: &Layout) -> usize {
        let user_iu = layout.content_mode().bytes_per_iu();
        (SLOT_HEADER_SIZE_BYTES + IU_SIZE_BYTES + layout.chunk_ius() as usize * user_iu).next_multiple_of(64)
    }

    /// In ordinary memory, for IUs of so many bytes.
    pub fn plain(layout: &Layout, iu_bytes: usize, form: HeadForm) -> Slot {
        let bytes = vec![0; IU_SIZE_BYTES + layout.chunk_ius() as usize * iu_bytes];
        Slot::new(None, BufferMut::copy_from(&bytes), iu_bytes, form)
    }

    /// In protected memory; what it holds stays until it is named.
    pub fn protected(mut region: ProtectedRegion, iu_bytes: usize, form: HeadForm) -> Slot {
        let header = region.split_to(SLOT_HEADER_SIZE_BYTES).into_buffer();
        Slot::new(Some(header), region.into_buffer(), iu_bytes, form)
    }

    fn new(header: Option<BufferMut>, body: BufferMut, iu_bytes: usize, form: HeadForm) -> Slot {
        let body = Body::Open(body);
        Slot {
            published: Published::default(),
            header,
            body,
            chunk: None,
            format: form.format,
            form,
            iu_bytes,
            spare_checksums: Vec::new(),
            must_wipe: false,
        }
    }

    /// What is written from now on has this form.
    pub fn write_as(&mut self, form: HeadForm) {
        self.form = form;
    }

    /// Version of the head of what it holds.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The chunk it holds, if there is one.
    #[inline]
    pub fn held(&self) -> Option<&Chunk> {
        self.chunk.as_ref()
    }

    /// The chunk it holds.
    #[inline]
    pub fn chunk(&self) -> &Chunk {
        self.chunk.as_ref().expect("I-L13: the slot holds a chunk")
    }

    /// The chunk it holds.
    #[inline]
    pub fn chunk_mut(&mut self) -> &mut Chunk {
        self.chunk.as_mut().expect("I-L13: the slot holds a chunk")
    }

    /// Takes a chunk that begins at `offset` of a segment of this generation.
    pub fn start(&mut self, chunk: Chunk, generation: u32, offset: u32) {
        self.clear();
        self.wipe();
        self.format = self.form.format;
        self.name(chunk.stream.reference(), chunk.sequence, chunk.segment, generation, offset);
        self.open_bytes()[..IU_SIZE_BYTES].fill(0);
        self.hold(chunk);
    }

    /// It is cleared when what it holds now is gone.
    pub fn wipe_when_free(&mut self) {
        self.must_wipe = true;
    }

    /// Clears it if that is to be done and it is free. Whether nothing is to be done any more.
    pub fn wipe_if_free(&mut self) -> bool {
        if self.must_wipe && self.is_free() {
            self.wipe();
        }
        !self.must_wipe
    }

    fn wipe(&mut self) {
        if std::mem::take(&mut self.must_wipe) && !mutant!("log: slots are not cleared") {
            self.open_bytes().fill(0);
        }
    }

    /// Takes a chunk whose content is here already.
    fn hold(&mut self, chunk: Chunk) {
        assert!(self.chunk.is_none(), "I-L13: a slot holds one chunk");
        self.chunk = Some(chunk);
    }

    /// Takes a chunk that was found here, in the form that it has.
    pub fn hold_found(&mut self, chunk: Chunk, format: Format) {
        self.format = format;
        self.hold(chunk);
    }

    /// How much its head records.
    fn shape(&self) -> HeadShape {
        self.chunk().shape(self.format)
    }

    /// A vector for checksums that was used before.
    pub fn take_checksums(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.spare_checksums)
    }

    /// An empty chunk takes its sequence with its first entry.
    #[inline]
    pub fn begin_entry(&mut self, sequence: u64) {
        let chunk = self.chunk.as_mut().expect("I-L13: the slot holds a chunk");
        if chunk.data_count == 0 && chunk.note_count == 0 {
            (chunk.sequence, chunk.expected) = (sequence, sequence);
            if let Some(header) = &mut self.header {
                header_of(header).sequence = sequence.into();
            }
        }
    }

    /// Puts a data IU behind the others. Its number in the chunk; `None` if the head has no room for it.
    #[inline]
    pub fn put_data(
        &mut self,
        sequence: u64,
        tag: u64,
        content: &[u8],
        content_checksum: u32,
    ) -> Option<u32> {
        self.begin_entry(sequence);
        let iu_bytes = self.iu_bytes;
        let mut shape = self.shape();
        let chunk = self.chunk.as_mut().expect("I-L13: the slot holds a chunk");
        debug_assert!(sequence >= chunk.expected, "I-L36: sequences rise within a chunk");
        let skip = chunk.expected != sequence;
        let has_room = if skip { shape.fits(1, 1, shape.note_size_bytes(true)) } else { shape.fits(1, 0, 0) };
        if !has_room {
            return None;
        }
        let data = chunk.data_count;
        chunk.checksums.push(content_checksum);
        chunk.expected = sequence + 1;
        chunk.last_sequence = sequence;
        let at = IU_SIZE_BYTES + data as usize * iu_bytes;
        let tags = self.form.tags;
        let bytes = self.open_bytes();
        if skip {
            shape.put_note(bytes, sequence, [head::SKIP, data.into(), 0]);
        }
        shape.put_record(bytes, tag, content_checksum, tags);
        match (<&mut [u8; 8]>::try_from(&mut bytes[at..at + iu_bytes]), <&[u8; 8]>::try_from(content)) {
            // A tag is a word: no call for it.
            (Ok(place), Ok(tag)) => *place = *tag,
            _ => bytes[at..at + iu_bytes].copy_from_slice(content),
        }
        self.chunk_mut().take_shape(shape);
        Some(data)
    }

    /// Puts a note behind the others. `false` if the head has no room for it.
    pub fn put_note(&mut self, sequence: u64, words: [u64; 3]) -> bool {
        self.begin_entry(sequence);
        self.add_note(sequence, words)
    }

    /// As [`Slot::put_note`], in a chunk that has its first sequence.
    pub fn add_note(&mut self, sequence: u64, words: [u64; 3]) -> bool {
        let mut shape = self.shape();
        if !shape.fits(0, 1, shape.note_size_bytes(false)) {
            return false;
        }
        shape.put_note(self.open_bytes(), sequence, words);
        let chunk = self.chunk_mut();
        chunk.take_shape(shape);
        chunk.last_sequence = chunk.last_sequence.max(sequence);
        true
    }

    /// Owner tag of a data IU.
    pub fn record(&self, data: u32) -> u64 {
        self.shape().tag(self.bytes(), data, self.form.tags)
    }

    /// Notes of its chunk that are not skips, with their sequences. What was found here can have others, which nobody knows.
    pub fn notes(&self) -> Vec<(u64, [u64; 3])> {
        self.shape().notes(self.bytes()).filter(|(_, words)| is_known(*words)).collect()
    }

    /// Writes the head, and lends the body to programs. The head's checksum. Behind the last IU come zeros: what the slot held before does
    /// not go to flash again.
    pub fn write_head(&mut self, nonce: Nonce, head: &Head, unit_ius: u32) -> u32 {
        let chunk = self.chunk();
        let (used, end) = (chunk.data_count as usize, (chunk.units * unit_ius) as usize - 1);
        let (format, note_bytes) = (self.format, chunk.note_bytes);
        let at = |iu: usize| IU_SIZE_BYTES + iu * self.iu_bytes;
        let rest = at(used)..at(end);
        let life = self.form.life;
        let bytes = self.open_bytes();
        if !mutant!("log: filler is what a slot held before") {
            bytes[rest].fill(0);
        }
        Head { format, note_bytes, life, ..*head }.encode(nonce, &mut bytes[..IU_SIZE_BYTES]);
        let head_sum = checksum(&bytes[..IU_SIZE_BYTES]);
        self.share();
        head_sum
    }

    /// The content of program units of the chunk.
    pub fn payload(&self, units: Range<u32>, layout: &Layout) -> PayloadParts {
        let Body::Shared(_, shared) = &self.body else {
            panic!("I-L14: a body is lent while it is programmed")
        };
        let mode = if self.iu_bytes == IU_SIZE_BYTES { ContentMode::Bytes } else { ContentMode::Tags };
        let (first, end) = (units.start * layout.unit_ius, units.end * layout.unit_ius);
        let at = |iu: u32| IU_SIZE_BYTES + (iu as usize - 1) * self.iu_bytes;
        let mut parts = PayloadParts::new();
        if mode == ContentMode::Bytes {
            let start = if first == 0 { 0 } else { at(first) };
            parts.push(Payload::new(mode, shared.slice(start..at(end))));
            return parts;
        }
        if first == 0 {
            parts.push(Payload::new(ContentMode::Bytes, shared.slice(0..IU_SIZE_BYTES)));
        }
        if first.max(1) < end {
            parts.push(Payload::new(mode, shared.slice(at(first.max(1))..at(end))));
        }
        parts
    }

    /// Fills the log's part of the OOB of program units of the chunk that lie in one strip: `mark` with the checksums of their IUs. Nothing where
    /// pages have no OOB areas.
    pub fn put_marks(&self, units: Range<u32>, mark: Mark, head_sum: u32, layout: &Layout, oob: &mut [u8]) {
        let chunk = self.chunk();
        assert!(units.end <= chunk.units, "I-L5: a unit belongs to its chunk");
        let shape = &layout.shape;
        if !shape.has_oob() {
            return;
        }
        let (pages, page_ius) = (units.len() as u32 * shape.program_unit_pages, shape.ius_per_page());
        let (_, first_unit) = layout.unit_place(chunk.first_unit + units.start);
        let first_page = first_unit * shape.program_unit_pages;
        let mut sums: smallvec::SmallVec<[u32; 32]> = smallvec::SmallVec::new();
        for (page, oob) in (0..pages).zip(oob.chunks_exact_mut(shape.oob_size_bytes as usize)) {
            let first = units.start * layout.unit_ius + page * page_ius;
            sums.clear();
            sums.extend((first..first + page_ius).map(|iu| match iu {
                0 => head_sum,
                iu => chunk.checksums.get(iu as usize - 1).copied().unwrap_or(0),
            }));
            let mark = Mark { place: mark::place_of(first_page + page), ..mark };
            mark::encode(&mark, &sums, &mut oob[shape.holder_oob_offset as usize..]);
        }
    }

    /// The chunk can be programmed again, elsewhere: nobody below reads the body any more.
    pub fn reclaim(&mut self) {
        self.body = match std::mem::replace(&mut self.body, Body::Moving) {
            Body::Shared(loan, buffer) => {
                drop(buffer);
                Body::Open(loan.reclaim())
            }
            body => body,
        };
    }

    /// Head and data.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.body {
            Body::Open(buffer) => buffer,
            Body::Shared(_, buffer) => buffer,
            _ => panic!("an empty slot has no content"),
        }
    }
    fn open_bytes(&mut self) -> &mut [u8] {
        match &mut self.body {
            Body::Open(buffer) => buffer,
            _ => panic!("a sealed chunk does not change"),
        }
    }
    /// A data IU.
    #[inline]
    pub fn iu(&self, data: u32) -> &[u8] {
        let at = IU_SIZE_BYTES + data as usize * self.iu_bytes;
        &self.bytes()[at..at + self.iu_bytes]
    }
    fn word(&mut self, word: u64) {
        if let Some(header) = &mut self.header {
            compiler_fence(Ordering::SeqCst);
            header_of(header).word = word.into();
            compiler_fence(Ordering::SeqCst);
        }
    }
    /// Names the chunk of a protected slot; it is empty until published.
    pub fn name(
        &mut self,
        reference: UnitReference,
        sequence: u64,
        segment: u32,
        generation: u32,
        offset: u32,
    ) {
        let (format, life) = (self.format, self.form.life);
        if let Some(header) = &mut self.header {
            let header = header_of(header);
            header.sequence = sequence.into();
            header.segment = segment.into();
            header.generation = generation.into();
            header.offset = offset.into();
            header.version = version_of(format).into();
            header.reference = reference.0.into();
            if format == Format::Three {
                header.reserved = [0; 32];
                header.reserved[..8].copy_from_slice(&life.to_le_bytes());
            }
        }
    }
    /// Makes all entries so far survive the process, in protected memory.
    pub fn publish(&mut self) {
        if self.header.is_none() {
            return;
        }
        let chunk = self.chunk.as_ref().expect("a chunk is open");
        let counts = (chunk.data_count, chunk.note_count);
        if counts == (self.published.data_count, self.published.note_count) {
            return;
        }
        let mut published = std::mem::take(&mut self.published);
        published.extend(self.bytes(), &chunk.checksums, chunk.shape(self.format));
        let word = published.word(chunk.sequence, self.format);
        self.published = published;
        self.word(word);
    }
    /// Says that nothing in it counts.
    pub fn clear(&mut self) {
        self.published = Published::default();
        self.word(0);
    }
    /// What a slot holds after a restart.
    pub fn found(&self) -> FoundSlot {
        let Some(header) = self.header.as_ref() else { return FoundSlot::Empty };
        let header = SlotHeader::ref_from_bytes(header).expect("as long as a header");
        let publish = header.word.get();
        if publish == 0 {
            return FoundSlot::Empty;
        }
        let Some(format) =
            [Format::Two, Format::Three].into_iter().find(|format| magic_of(*format) == publish >> 48)
        else {
            return FoundSlot::Damaged;
        };
        let (data_count, note_count) = ((publish >> 39) as u32 & 0x1ff, (publish >> 32) as u32 & 0x7f);
        let mut shape = HeadShape { format, is_map: false, data_count, note_count, note_bytes: 0 };
        let Some(note_bytes) = shape.measure_notes(self.bytes()) else { return FoundSlot::Damaged };
        shape.note_bytes = note_bytes;
        let room = (self.bytes().len() - IU_SIZE_BYTES) / self.iu_bytes;
        let sequence = header.sequence.get();
        let reference = UnitReference(header.reference.get());
        let is_mirrored = format == Format::Three && header.reserved[8..] != [0; 24];
        if header.version != version_of(format)
            || is_mirrored
            || reference.0 >= UnitReference::COUNT_MAX
            || data_count as usize > room
            || !shape.fits(0, 0, 0)
        {
            return FoundSlot::Damaged;
        }
        let sums: Vec<u32> = (0..data_count).map(|data| checksum(self.iu(data))).collect();
        let mut published = Published::default();
        published.extend(self.bytes(), &sums, shape);
        let told =
            |(data, sum): (u32, &u32)| shape.checksum(self.bytes(), data).is_none_or(|told| told == *sum);
        if published.word(sequence, format) != publish || !(0..).zip(&sums).all(told) {
            return FoundSlot::Damaged;
        }
        FoundSlot::Chunk {
            reference,
            sequence,
            segment: header.segment.get(),
            generation: header.generation.get(),
            offset: header.offset.get(),
            shape,
            life: life_in(header, format),
        }
    }
    fn share(&mut self) {
        self.body = match std::mem::replace(&mut self.body, Body::Moving) {
            Body::Open(buffer) => {
                let (loan, whole) = buffer.lend();
                Body::Shared(loan, whole.freeze())
            }
            other => other,
        };
    }
    /// Makes the slot empty.
    pub fn release(&mut self) {
        self.clear();
        if let Some(chunk) = self.chunk.take() {
            self.spare_checksums = chunk.checksums;
            self.spare_checksums.clear();
        }
        self.body = match std::mem::replace(&mut self.body, Body::Moving) {
            Body::Shared(loan, buffer) => {
                drop(buffer);
                Body::Returning(loan)
            }
            other => other,
        };
    }
    /// Whether a chunk can be opened here.
    pub fn is_free(&mut self) -> bool {
        if self.chunk.is_some() {
            return false;
        }
        if matches!(self.body, Body::Returning(_)) {
            let Body::Returning(loan) = std::mem::replace(&mut self.body, Body::Moving) else {
                unreachable!()
            };
            self.body = match loan.try_reclaim() {
                Ok(buffer) => Body::Open(buffer),
                Err(loan) => Body::Returning(loan),
            };
        }
        matches!(self.body, Body::Open(_))
    }
}

#[cfg(test)]
mod test {
    use super::super::chunk::Place;
    use super::*;
    use crate::Stream;
    use diecut_units::ProtectedMemory;

    /// Goal: the layout is pinned. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_a_slot() {
        let memory = ProtectedMemory::in_memory(SLOT_HEADER_SIZE_BYTES + 2 * IU_SIZE_BYTES);
        let mut slot = Slot::protected(memory.region(0..memory.size_bytes()), 8, HeadForm::default());
        let reference = UnitReference(3);
        slot.name(reference, 0x0807_0605_0403_0201, 0x0403_0201, 0x0807_0605, 0x0c0b_0a09);
        slot.open_bytes()[64] = 7;
        let iu = checksum(&[0; 8]);
        let body = slot.bytes().to_vec();
        let shape = HeadShape { data_count: 1, note_count: 1, note_bytes: 32, ..HeadShape::default() };
        slot.published.extend(&body, &[iu], shape);
        let word = slot.published.word(0x0807_0605_0403_0201, Format::Two);
        slot.word(word);
        let sequence = [1, 2, 3, 4, 5, 6, 7, 8];
        let tags = checksum(&[7, 0, 0, 0, 0, 0, 0, 0]).to_le_bytes();
        let sums = checksum(&iu.to_le_bytes()).to_le_bytes();
        let notes = checksum(&[0; 32]).to_le_bytes();
        let check = checksum(&[&sequence[..], &tags, &sums, &notes].concat()).to_le_bytes();
        // D5C8h, 1 in 9 bits, 1 in 7 bits.
        let golden = [
            &check[..],
            &[0x81, 0x00, 0xc8, 0xd5],
            &sequence,
            &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 2, 0, 3, 0],
            &[0; 32],
        ];
        assert_eq!(slot.header.as_deref(), Some(&golden.concat()[..]));
        let place = (0x0403_0201, 0x0807_0605, 0x0c0b_0a09);
        let (sequence, (segment, generation, offset)) = (0x0807_0605_0403_0201, place);
        let found = FoundSlot::Chunk { reference, sequence, segment, generation, offset, shape, life: 0 };
        assert_eq!(slot.found(), found);
    }

    /// Goal: a note that was found and that no form has is not written again. Method: a slot of version 2 with skips and notes of any kind.
    #[test]
    fn notes_that_nobody_knows_are_left() {
        let memory = ProtectedMemory::in_memory(SLOT_HEADER_SIZE_BYTES + 2 * IU_SIZE_BYTES);
        let mut slot = Slot::protected(memory.region(0..memory.size_bytes()), 8, HeadForm::default());
        let place = Place { segment: 1, first_unit: 0, room_units: 9 };
        slot.start(Chunk::new(Stream::USER, place, 0, Vec::new()), 1, 0);
        for first in [1, 0, 7, head::SKIP, 1 | 1 << 40, 5 | 0xffff_ffff << 8] {
            assert!(slot.put_note(first, [first, 2, 3]));
        }
        let kept = [1, 5 | 0xffff_ffff << 8].map(|first| (first, [first, 2, 3]));
        assert_eq!(slot.notes(), kept);
        let mut three = HeadShape { format: Format::Three, ..HeadShape::default() };
        let mut bytes = vec![0; IU_SIZE_BYTES];
        slot.notes().into_iter().for_each(|(sequence, words)| three.put_note(&mut bytes, sequence, words));
        assert_eq!(three.notes(&bytes).collect::<Vec<_>>(), kept);
    }

    /// Goal: the layout of version 3 is pinned, and what was published is found. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_a_slot_of_version_3() {
        let memory = ProtectedMemory::in_memory(SLOT_HEADER_SIZE_BYTES + 3 * IU_SIZE_BYTES);
        let region = || memory.region(0..memory.size_bytes());
        let life = 0x2827_2625_2423_2221;
        let form = HeadForm { format: Format::Three, life, ..HeadForm::default() };
        let mut slot = Slot::protected(region(), 8, form);
        let place = Place { segment: 0x0403_0201, first_unit: 0, room_units: 9 };
        let stream = Stream::User(UnitReference(3));
        slot.start(Chunk::new(stream, place, 0, Vec::new()), 0x0807_0605, 0x0c0b_0a09);
        let content = [[1; 8], [2; 8]];
        assert_eq!(
            slot.put_data(0x0807_0605_0403_0201, 0x1817_1615_1413_1211, &content[0], 0x24_2322),
            Some(0)
        );
        assert!(slot.put_note(0x31, [0x4105, 0x42, 0x43]));
        // What was told of the content is what it is: else the slot is damaged.
        let sums = content.map(|iu| checksum(&iu));
        slot.chunk_mut().checksums[0] = sums[0];
        slot.open_bytes()[64 + 12..64 + 16].copy_from_slice(&sums[0].to_le_bytes());
        assert_eq!(slot.put_data(0x0807_0605_0403_0301, 0x51, &content[1], sums[1]), Some(1));
        slot.publish();
        let mut records = [0; 32];
        records[..8].copy_from_slice(&[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
        records[12..16].copy_from_slice(&sums[0].to_le_bytes());
        records[16] = 0x51;
        records[28..].copy_from_slice(&sums[1].to_le_bytes());
        let mut first_note = [0; 32];
        (first_note[0], first_note[8], first_note[16], first_note[17]) = (0x42, 0x43, 5, 2);
        (first_note[20], first_note[24]) = (0x41, 0x31);
        let skip = [1, 0, 0, 0, 0, 0, 0, 0, 9, 1, 0, 0, 0, 0, 0, 0, 1, 3, 3, 4, 5, 6, 7, 8];
        let notes = checksum(&[&first_note[..], &skip].concat()).to_le_bytes();
        let of_sums = checksum(&sums.map(u32::to_le_bytes).concat()).to_le_bytes();
        let sequence = [1, 2, 3, 4, 5, 6, 7, 8];
        let check = checksum(&[&sequence[..], &checksum(&records).to_le_bytes(), &of_sums, &notes].concat());
        // D5C9h, 2 in 9 bits, 2 in 7 bits.
        let golden = [
            &check.to_le_bytes()[..],
            &[0x02, 0x01, 0xc9, 0xd5],
            &sequence,
            &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 0, 3, 0],
            &[0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28],
            &[0; 24],
        ]
        .concat();
        assert_eq!(slot.header.as_deref(), Some(&golden[..]));
        assert_eq!(slot.bytes()[64..96], records);
        assert_eq!(slot.bytes()[IU_SIZE_BYTES - 56..IU_SIZE_BYTES], [&skip[..], &first_note].concat());
        drop(slot);
        let shape =
            HeadShape { format: Format::Three, is_map: false, data_count: 2, note_count: 2, note_bytes: 56 };
        let found = |region| Slot::protected(region, 8, HeadForm::default()).found();
        let chunk = FoundSlot::Chunk {
            reference: UnitReference(3),
            sequence: 0x0807_0605_0403_0201,
            segment: 0x0403_0201,
            generation: 0x0807_0605,
            offset: 0x0c0b_0a09,
            shape,
            life: 0x2827_2625_2423_2221,
        };
        assert_eq!(found(region()), chunk);
        let (records, notes, data) = (64 + 64, 64 + 4096 - 1, 64 + 4096);
        for at in [0, 4, 6, 8, 28, 29, 40, 63, records, records + 12, notes, data, data + 8] {
            let mut region = memory.region(0..memory.size_bytes());
            region[at] ^= 1;
            assert_eq!(found(region), FoundSlot::Damaged, "byte {at}");
            let mut region = memory.region(0..memory.size_bytes());
            region[at] ^= 1;
        }
        assert_eq!(found(region()), chunk);
    }
}
