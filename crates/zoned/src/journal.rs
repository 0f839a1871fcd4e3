//! Journal: what of a zone its erase blocks and staging cannot tell. It is short: zones that were finished before they were full, that have a
//! descriptor extension, that are read-only or offline. It is written as a whole each time, to two erase blocks by turns, so that a
//! power cut, which can destroy what lies behind in the block that is programmed, never destroys the newest that holds.
//!
//! Snapshot, little endian, from the start of a program unit, over as many as it takes:
//!
//! | offset | size | field    | meaning                                        |
//! |-------:|-----:|----------|------------------------------------------------|
//! |      0 |    8 | magic    | "DCZONEJ1"                                     |
//! |      8 |    8 | sequence | rises with each snapshot                       |
//! |     16 |    4 | length   | bytes of entries                               |
//! |     20 |    4 | check    | CRC-32C of bytes 8 to 20 and the entries       |
//! |     24 |  ... | entries  | one behind the other                           |
//!
//! Entry:
//!
//! | offset | size | field      | meaning                                                            |
//! |-------:|-----:|------------|--------------------------------------------------------------------|
//! |      0 |    4 | set        | number of the namespace                                            |
//! |      4 |    4 | zone       | the zone                                                           |
//! |      8 |    4 | generation | of the zone; 0: it had no erase block                              |
//! |     12 |    4 | written    | IUs before the write pointer when it was finished                  |
//! |     16 |    2 | flags      | 1 finished, 2 read-only, 4 offline, 8 has an extension             |
//! |     18 |    2 | extension  | its length in bytes                                                |
//! |     20 |  ... | extension  |                                                                    |

use crate::mark::{self, JOURNAL, Mark, Place};
use crate::token::Kind;
use diecut_units::{Buffer, BufferMut, ContentMode, IU_SIZE_BYTES, Payload, checksum, checksum_append, mark};
use diecut_vssd::space::{
    BlockShape, EraseBlockSpace, IoClass, LogicalBlock, PayloadParts, Purpose, SpaceError, UnitIndex,
};
use std::collections::BTreeMap;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `Purpose` of the erase blocks of the journal.
pub(crate) const PURPOSE_JOURNAL: Purpose = Purpose(2);
/// Erase blocks that the journal can hold at once on one unit.
pub(crate) const JOURNAL_BLOCKS: u32 = 3;

const MAGIC: [u8; 8] = *b"DCZONEJ1";
const FINISHED: u16 = 1;
const READ_ONLY: u16 = 2;
const OFFLINE: u16 = 4;
const EXTENDED: u16 = 8;
/// Blocks that may fail in a row before the journal is given up.
const TRIES_MAX: u32 = 4;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    sequence: U64,
    length: U32,
    check: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredEntry {
    set: U32,
    zone: U32,
    generation: U32,
    written: U32,
    flags: U16,
    extension_len: U16,
}

const HEAD_SIZE_BYTES: usize = size_of::<Head>();
const ENTRY_SIZE_BYTES: usize = size_of::<StoredEntry>();
const _: () = assert!(HEAD_SIZE_BYTES == 24 && ENTRY_SIZE_BYTES == 20);

/// What the journal says of a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Of the zone when it was written; 0: it had no erase block.
    pub generation: u32,
    /// It was finished with so many IUs before its write pointer.
    pub finished_ius: Option<u32>,
    pub is_read_only: bool,
    pub is_offline: bool,
    pub extension: Option<Vec<u8>>,
}

impl Entry {
    fn says_something(&self) -> bool {
        self.finished_ius.is_some() || self.is_read_only || self.is_offline || self.extension.is_some()
    }
}

/// Whose zone: number of the namespace, number of the zone.
pub(crate) type ZoneKey = (u32, u32);

struct Writing {
    change: u64,
    /// Which of the two blocks.
    turn: usize,
}

#[derive(Clone, Copy)]
struct JournalBlock {
    block: LogicalBlock,
    used_units: u32,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Journal {
    entries: BTreeMap<ZoneKey, Entry>,
    sequence: u64,
    change: u64,
    durable: u64,
    writing: Option<Writing>,
    blocks: [Option<JournalBlock>; 2],
    turn: usize,
    next_unit: u16,
    tries: u32,
    is_broken: bool,
}

/// Bytes that entries of so many zones take at most.
pub(crate) fn size_bytes_max(zones: u64, extension_size_bytes: u32) -> u64 {
    HEAD_SIZE_BYTES as u64 + zones * (ENTRY_SIZE_BYTES as u64 + u64::from(extension_size_bytes))
}

impl Journal {
    /// What it says of a zone.
    pub fn entry(&self, key: ZoneKey) -> Option<&Entry> {
        self.entries.get(&key)
    }

    /// All that it says.
    pub fn entries(&self) -> impl Iterator<Item = (ZoneKey, Entry)> {
        self.entries.iter().map(|(key, entry)| (*key, entry.clone()))
    }

    /// Changes what it says of a zone. Gives the change, to wait for.
    pub fn change(&mut self, key: ZoneKey, change: impl FnOnce(&mut Entry)) -> u64 {
        let entry = self.entries.entry(key).or_default();
        change(entry);
        if !entry.says_something() {
            self.entries.remove(&key);
        }
        self.change += 1;
        self.change
    }

    /// Forgets all zones of a namespace.
    pub fn forget(&mut self, set: u32) -> u64 {
        self.entries.retain(|(of, _), _| *of != set);
        self.change += 1;
        self.change
    }

    /// Whether a change survives a power cut.
    pub fn is_durable(&self, change: u64) -> bool {
        self.durable >= change
    }

    /// Whether it takes no more changes: the medium has no block for it.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Whether something of it is being written.
    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Takes over what was found after a restart: the newest snapshot, its sequence, and the block it lies in.
    pub fn adopt(&mut self, entries: BTreeMap<ZoneKey, Entry>, sequence: u64, block: LogicalBlock) {
        (self.entries, self.sequence) = (entries, sequence);
        // Nothing is programmed behind it any more: the next one goes to the other block.
        self.blocks[0] = Some(JournalBlock { block, used_units: u32::MAX });
        self.turn = 1;
    }

    /// Writes what has changed, unless that is under way.
    pub fn write_due(&mut self, space: &mut dyn EraseBlockSpace) {
        if self.writing.is_some() || self.durable == self.change || self.is_broken {
            return;
        }
        let shape = *space.shape();
        let bytes = encode(&self.entries, self.sequence + 1);
        let unit_bytes = shape.program_unit_ius() as usize * IU_SIZE_BYTES;
        let units = bytes.len().div_ceil(unit_bytes) as u32;
        let turn = self.turn;
        let fits = |block: &JournalBlock| block.used_units.saturating_add(units) <= shape.program_units();
        if !self.blocks[turn].as_ref().is_some_and(fits) {
            if let Some(old) = self.blocks[turn].take() {
                // The other block has what is newest.
                space.free(old.block).expect("I-Z7: the journal holds its blocks");
            }
            let Some(block) = self.allocate(space) else {
                self.is_broken = true;
                return;
            };
            self.blocks[turn] = Some(JournalBlock { block, used_units: 0 });
        }
        self.sequence += 1;
        let place = self.blocks[turn].as_mut().expect("just seen to");
        append(place, bytes, units, self.sequence, &shape, space);
        self.writing = Some(Writing { change: self.change, turn });
    }

    fn allocate(&mut self, space: &mut dyn EraseBlockSpace) -> Option<LogicalBlock> {
        let count = space.unit_count();
        let first = self.next_unit;
        let found = (0..count).find_map(|step| {
            let unit = UnitIndex((first + step) % count);
            space.allocate(unit, PURPOSE_JOURNAL).ok()
        });
        if let Some(block) = found {
            self.next_unit = (block.unit.0 + 1) % count;
        }
        found
    }

    /// A program of it came back.
    pub fn written(&mut self, result: Result<(), SpaceError>, space: &mut dyn EraseBlockSpace) {
        let Writing { change, turn } = self.writing.take().expect("I-Z7: one snapshot is written at a time");
        match result {
            Ok(()) => {
                self.durable = change;
                self.turn = 1 - turn;
                self.tries = 0;
            }
            Err(SpaceError::PowerLost) => {}
            Err(_) => {
                mark!("zoned: program of the journal failed");
                let failed = self.blocks[turn].take().expect("it was being written");
                space.free(failed.block).expect("I-Z7: the journal holds its blocks");
                self.tries += 1;
                self.is_broken = self.tries >= TRIES_MAX;
            }
        }
    }
}

fn append(
    place: &mut JournalBlock,
    mut bytes: Vec<u8>,
    units: u32,
    sequence: u64,
    shape: &BlockShape,
    space: &mut dyn EraseBlockSpace,
) {
    bytes.resize((units * shape.program_unit_ius()) as usize * IU_SIZE_BYTES, 0);
    let mut oob = vec![0; (units * shape.program_unit_oob_size_bytes()) as usize];
    let pages = shape.program_unit_pages;
    let first_page = place.used_units * pages;
    for (at, oob) in (0..).zip(oob.chunks_exact_mut(shape.oob_size_bytes as usize)) {
        let mark =
            Mark { set: JOURNAL, zone: at / pages, generation: sequence as u32, edition: 0, copied_rows: 0 };
        let sums = (0..shape.ius_per_page()).map(|iu| {
            let at = (at * shape.ius_per_page() + iu) as usize * IU_SIZE_BYTES;
            checksum(&bytes[at..at + IU_SIZE_BYTES])
        });
        let sums: smallvec::SmallVec<[u32; 16]> = sums.collect();
        let page = Place { unit: place.block.unit, page: first_page + at };
        mark::encode(mark, page, sums.into_iter(), &mut oob[shape.holder_oob_offset as usize..]);
    }
    place.used_units += units;
    let mut parts = PayloadParts::new();
    parts.push(Payload::new(ContentMode::Bytes, Buffer::copy_from(&bytes)));
    space.append(Kind::Journal.token(0), place.block, parts, BufferMut::copy_from(&oob), IoClass::Metadata);
}

fn check_of(head: &Head, entries: &[u8]) -> u32 {
    checksum_append(checksum(&head.as_bytes()[8..20]), entries)
}

fn encode(entries: &BTreeMap<ZoneKey, Entry>, sequence: u64) -> Vec<u8> {
    let mut bytes = vec![0; HEAD_SIZE_BYTES];
    for ((set, zone), entry) in entries {
        let extension = entry.extension.as_deref().unwrap_or_default();
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        let flags = flag(entry.finished_ius.is_some(), FINISHED)
            | flag(entry.is_read_only, READ_ONLY)
            | flag(entry.is_offline, OFFLINE)
            | flag(entry.extension.is_some(), EXTENDED);
        let stored = StoredEntry {
            set: (*set).into(),
            zone: (*zone).into(),
            generation: entry.generation.into(),
            written: entry.finished_ius.unwrap_or(0).into(),
            flags: flags.into(),
            extension_len: (extension.len() as u16).into(),
        };
        bytes.extend_from_slice(stored.as_bytes());
        bytes.extend_from_slice(extension);
    }
    let length = (bytes.len() - HEAD_SIZE_BYTES) as u32;
    let mut head = Head { magic: MAGIC, sequence: sequence.into(), length: length.into(), check: 0.into() };
    head.check = check_of(&head, &bytes[HEAD_SIZE_BYTES..]).into();
    bytes[..HEAD_SIZE_BYTES].copy_from_slice(head.as_bytes());
    bytes
}

/// Reads a snapshot: its sequence and entries; `None` if it does not check out.
pub(crate) fn decode(bytes: &[u8]) -> Option<(u64, BTreeMap<ZoneKey, Entry>)> {
    let (head, rest) = Head::ref_from_prefix(bytes).ok()?;
    let mut rest = rest.get(..head.length.get() as usize)?;
    if head.magic != MAGIC || head.check.get() != check_of(head, rest) {
        return None;
    }
    let mut entries = BTreeMap::new();
    while !rest.is_empty() {
        let (stored, behind) = StoredEntry::ref_from_prefix(rest).ok()?;
        let (extension, behind) = behind.split_at_checked(stored.extension_len.get().into())?;
        rest = behind;
        let flags = stored.flags.get();
        let entry = Entry {
            generation: stored.generation.get(),
            finished_ius: (flags & FINISHED != 0).then_some(stored.written.get()),
            is_read_only: flags & READ_ONLY != 0,
            is_offline: flags & OFFLINE != 0,
            extension: (flags & EXTENDED != 0).then(|| extension.to_vec()),
        };
        entries.insert((stored.set.get(), stored.zone.get()), entry);
    }
    Some((head.sequence.get(), entries))
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: the layout is pinned, and rot is found. Method: bytes written by hand; every bit is flipped once.
    #[test]
    fn the_bytes_of_a_snapshot() {
        let finished = Entry { generation: 9, finished_ius: Some(0x0102), ..Entry::default() };
        let extended = Entry { extension: Some(vec![0xaa; 3]), is_offline: true, ..Entry::default() };
        let entries = BTreeMap::from([((1, 2), finished), ((1, 3), extended)]);
        let bytes = encode(&entries, 7);
        let behind: Vec<u8> = [
            &[1, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 2, 1, 0, 0, 1, 0, 0, 0][..],
            &[1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 0, 3, 0, 0xaa, 0xaa, 0xaa],
        ]
        .concat();
        let head = [&b"DCZONEJ1"[..], &[7, 0, 0, 0, 0, 0, 0, 0, 43, 0, 0, 0]].concat();
        let check = checksum(&[&head[8..], &behind].concat()).to_le_bytes();
        assert_eq!(bytes, [&head[..], &check, &behind].concat());
        assert_eq!(decode(&bytes), Some((7, entries)));
        for bit in 0..bytes.len() * 8 {
            let mut rotten = bytes.clone();
            rotten[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&rotten), None, "bit {bit}");
        }
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
    }
}
