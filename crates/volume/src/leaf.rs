//! Leaf of a map, version 1: it says itself whose it is, and its entries have checks, flags and places of 40 bits
//! (`docs/design/one-format.md`). It is one IU, little endian.
//!
//! | offset | size   | field   | meaning                                                                 |
//! |-------:|-------:|---------|-------------------------------------------------------------------------|
//! |      0 |      4 | magic   | "dlef"                                                                  |
//! |      4 |      4 | check   | CRC-32C of all other bytes                                              |
//! |      8 |      2 | version | 1; a reader takes no other                                              |
//! |     10 |      2 | level   | 0 a leaf; entries of level `n` above it name what is of level `n` - 1   |
//! |     12 |      4 | volume  | number of the volume                                                    |
//! |     16 |      8 | number  | which one of its level, below 2^36                                      |
//! |     24 |      4 | stamp   | the newest snapshot of the volume that bit 43 of its entries knows of   |
//! |     28 |     36 | zeros   | zero                                                                    |
//! |     64 | 8*504  | entries | see below; 0 behind the end of the volume                               |
//!
//! Bits of an entry:
//!
//! | bits | field | meaning |
//! |---|---|---|
//! | 0 to 39 | place | number of the IU in the log: segment times the store's stride, plus IU within it |
//! | 40 to 42 | state | 0 nothing was written, 1 data, 2 deallocated, 3 lost, 4 made uncorrectable |
//! | 43 | versioned | a snapshot names what this entry names |
//! | 44 | framed | the place is that of a frame |
//! | 45 to 47 | - | zero |
//! | 48 to 63 | check | lower half of the CRC-32C of the content |
//!
//! Only data has a place, a check, or lies in a frame: elsewhere these are zero. Of what lies in a segment of the format of before nobody
//! knows the check: it is zero there, and means nothing.

use diecut_log::{Check, LogAddress, MapEntry};
use diecut_units::{IU_SIZE_BYTES, checksum, checksum_append};
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 4] = *b"dlef";
const VERSION: u16 = 1;
/// Entries of a leaf.
pub const LEAF_ENTRIES: usize = 504;
/// A tag has 4 bits for the level, and 36 for the number.
const LEVELS: u16 = 1 << 4;
const NUMBERS: u64 = 1 << 36;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Stored {
    magic: [u8; 4],
    check: U32,
    version: U16,
    level: U16,
    volume: U32,
    number: U64,
    stamp: U32,
    zeros: [u8; 36],
    entries: [U64; LEAF_ENTRIES],
}

const _: () = assert!(size_of::<Stored>() == IU_SIZE_BYTES && offset_of!(Stored, entries) == 64);

const PLACE_BITS: u32 = 40;
const VERSIONED: u64 = 1 << 43;
const FRAMED: u64 = 1 << 44;
const ZEROS: u64 = 7 << 45;
const CHECK_SHIFT: u32 = 48;

/// What there is of an IU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeafState {
    /// Nothing was written.
    #[default]
    Nothing,
    /// Data.
    Data,
    /// It was deallocated.
    Deallocated,
    /// It was lost, and that was accepted.
    Lost,
    /// Its host wants its reads to fail.
    Uncorrectable,
}

const STATES: [LeafState; 5] =
    [LeafState::Nothing, LeafState::Data, LeafState::Deallocated, LeafState::Lost, LeafState::Uncorrectable];

/// What a leaf says of an IU, or what stands above leaves of one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafEntry {
    /// What there is.
    pub state: LeafState,
    /// Number of the place of data.
    pub place: u64,
    /// A snapshot names it, too.
    pub is_versioned: bool,
    /// The place is that of a frame.
    pub is_framed: bool,
    /// Lower half of the CRC-32C of data.
    pub check: u16,
}

impl LeafEntry {
    fn is_possible(&self) -> bool {
        let is_bare = self.place == 0 && !self.is_framed && self.check == 0;
        self.place < 1 << PLACE_BITS && (self.state == LeafState::Data || is_bare)
    }

    /// Its bits.
    ///
    /// # Panics
    /// If it says what no entry says.
    pub fn word(&self) -> u64 {
        assert!(self.is_possible(), "I-M21: a leaf says what a reader takes");
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        self.place
            | (self.state as u64) << PLACE_BITS
            | flag(self.is_versioned, VERSIONED)
            | flag(self.is_framed, FRAMED)
            | u64::from(self.check) << CHECK_SHIFT
    }

    /// What a leaf says where a map has this entry.
    ///
    /// # Panics
    /// If the map does not know yet what it has.
    pub fn of(entry: MapEntry) -> LeafEntry {
        let state = |state| LeafEntry { state, ..LeafEntry::default() };
        match entry.get() {
            LogAddress::NONE => state(LeafState::Nothing),
            LogAddress::LOST => state(LeafState::Lost),
            place => {
                assert!(place.is_place(), "I-M20: what a leaf says is known");
                let (place, check) = (place.number(), entry.check().bits());
                LeafEntry { place, check, ..state(LeafState::Data) }
            }
        }
    }

    /// What a map has where a leaf says this; places end before `end`, and `is_checked` says where checks mean something. What a host made
    /// uncorrectable is lost to a map. A place that is none is that of a chunk that was in staging when the leaf was written, and its
    /// records tell more.
    pub fn in_map(&self, end: LogAddress, is_checked: impl FnOnce(LogAddress) -> bool) -> MapEntry {
        match self.state {
            LeafState::Nothing | LeafState::Deallocated => MapEntry::NONE,
            LeafState::Lost | LeafState::Uncorrectable => LogAddress::LOST.into(),
            LeafState::Data if self.place >= end.number() => LogAddress::UNKNOWN.into(),
            LeafState::Data => {
                let place = LogAddress::at(self.place);
                let check = if is_checked(place) { Check::of(self.check.into()) } else { Check::UNKNOWN };
                MapEntry::data(place, check)
            }
        }
    }

    /// Reads its bits; `None` if no entry has them.
    pub fn of_word(word: u64) -> Option<LeafEntry> {
        let entry = LeafEntry {
            state: *STATES.get((word >> PLACE_BITS & 7) as usize)?,
            place: word & ((1 << PLACE_BITS) - 1),
            is_versioned: word & VERSIONED != 0,
            is_framed: word & FRAMED != 0,
            check: (word >> CHECK_SHIFT) as u16,
        };
        (word & ZEROS == 0 && entry.is_possible()).then_some(entry)
    }
}

/// Which leaf it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafName {
    /// 0 a leaf; more above.
    pub level: u16,
    /// Number of the volume.
    pub volume: u32,
    /// Which one of its level.
    pub number: u64,
    /// The newest snapshot that its entries know of.
    pub stamp: u32,
}

impl LeafName {
    fn is_possible(&self) -> bool {
        self.level < LEVELS && self.number < NUMBERS
    }

    /// Writes a leaf with these entries; nothing was written of what follows them.
    ///
    /// # Panics
    /// If there are more than a leaf has, or something is out of range.
    pub fn encode(&self, entries: impl IntoIterator<Item = LeafEntry>, iu: &mut [u8]) {
        assert!(self.is_possible(), "I-M21: a leaf says what a reader takes");
        let mut stored = Stored::new_zeroed();
        stored.magic = MAGIC;
        stored.version = VERSION.into();
        stored.level = self.level.into();
        stored.volume = self.volume.into();
        stored.number = self.number.into();
        stored.stamp = self.stamp.into();
        for (at, entry) in entries.into_iter().enumerate() {
            stored.entries[at] = entry.word().into();
        }
        iu.copy_from_slice(stored.as_bytes());
        let check = check_of(iu);
        iu[offset_of!(Stored, check)..][..4].copy_from_slice(&check.to_le_bytes());
    }
}

fn check_of(iu: &[u8]) -> u32 {
    let at = offset_of!(Stored, check);
    checksum_append(checksum(&iu[..at]), &iu[at + 4..])
}

/// A leaf that was read.
#[derive(Clone, Copy)]
pub struct Leaf<'a> {
    /// Which one it is.
    pub name: LeafName,
    entries: &'a [U64; LEAF_ENTRIES],
}

impl<'a> Leaf<'a> {
    /// Reads a leaf; `None` if it does not check out, or says what no leaf says.
    pub fn decode(iu: &'a [u8]) -> Option<Leaf<'a>> {
        Leaf::open(iu).filter(Leaf::is_possible)
    }

    /// As [`Leaf::decode`], where nothing is known of its entries yet: who has [`Leaf::put_plain`] take them looks at them once.
    pub(crate) fn open(iu: &'a [u8]) -> Option<Leaf<'a>> {
        let stored = Stored::ref_from_bytes(iu).ok()?;
        let is_ours = stored.magic == MAGIC && stored.version == VERSION && stored.zeros == [0; 36];
        if !is_ours || stored.check != check_of(iu) {
            return None;
        }
        let name = LeafName {
            level: stored.level.get(),
            volume: stored.volume.get(),
            number: stored.number.get(),
            stamp: stored.stamp.get(),
        };
        name.is_possible().then_some(Leaf { name, entries: &stored.entries })
    }

    /// Whether each entry is one.
    pub(crate) fn is_possible(&self) -> bool {
        self.entries.iter().all(|word| LeafEntry::of_word(word.get()).is_some())
    }

    /// Has a map say what the leaf does, if all of its words are plain ([`MapEntry::of_plain_word`]). Else what the map says then is nothing to go by.
    pub(crate) fn put_plain(&self, entries: &mut [MapEntry], end: LogAddress) -> bool {
        let mut odd = 0;
        // What lies behind the end of the volume is looked at, too.
        let (within, behind) = self.entries.split_at(entries.len().min(LEAF_ENTRIES));
        for (entry, word) in entries.iter_mut().zip(within) {
            let word_odd;
            (*entry, word_odd) = MapEntry::of_plain_word(word.get(), end);
            odd |= word_odd;
        }
        behind.iter().fold(odd, |odd, word| odd | MapEntry::of_plain_word(word.get(), end).1) == 0
    }

    /// Whether these bytes are a leaf of a version that this program does not know. It may be right, so nothing of it is taken, and nothing
    /// changed.
    pub fn is_other_version(iu: &[u8]) -> bool {
        let stored = Stored::ref_from_bytes(iu).ok().filter(|stored| stored.magic == MAGIC);
        stored.is_some_and(|stored| stored.version != VERSION && stored.check == check_of(iu))
    }

    /// Its entries.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = LeafEntry> + use<'a> {
        let entry = |word: &U64| LeafEntry::of_word(word.get()).expect("looked at when it was read");
        self.entries.iter().map(entry)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn name() -> LeafName {
        LeafName { level: 0, volume: 0x1413_1211, number: 0x7_2423_2221, stamp: 0x3433_3231 }
    }

    fn data(place: u64, check: u16) -> LeafEntry {
        LeafEntry { state: LeafState::Data, place, check, ..LeafEntry::default() }
    }

    fn encoded(name: &LeafName, entries: &[LeafEntry]) -> Vec<u8> {
        let mut iu = vec![0xee; IU_SIZE_BYTES];
        name.encode(entries.iter().copied(), &mut iu);
        iu
    }

    fn sealed(mut iu: Vec<u8>) -> Vec<u8> {
        let check = check_of(&iu).to_le_bytes();
        iu[4..8].copy_from_slice(&check);
        iu
    }

    /// Goal: the layout is pinned. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_a_leaf() {
        let entries = [
            LeafEntry::default(),
            data(0x05_0403_0201, 0xbeef),
            LeafEntry { state: LeafState::Deallocated, is_versioned: true, ..LeafEntry::default() },
            LeafEntry { state: LeafState::Lost, ..LeafEntry::default() },
            LeafEntry { state: LeafState::Uncorrectable, ..LeafEntry::default() },
            LeafEntry { is_versioned: true, is_framed: true, ..data(0xff_ffff_ffff, 1) },
        ];
        let iu = encoded(&name(), &entries);
        let mut golden = vec![0; IU_SIZE_BYTES];
        golden[..4].copy_from_slice(b"dlef");
        golden[8..28].copy_from_slice(&[
            1, 0, 0, 0, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 7, 0, 0, 0, 0x31, 0x32, 0x33, 0x34,
        ]);
        golden[72..112].copy_from_slice(&[
            1, 2, 3, 4, 5, 0x01, 0xef, 0xbe, 0, 0, 0, 0, 0, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0x03, 0, 0, 0, 0, 0,
            0, 0, 0x04, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0x19, 1, 0,
        ]);
        let golden = sealed(golden);
        let differ: Vec<usize> = (0..IU_SIZE_BYTES).filter(|at| iu[*at] != golden[*at]).collect();
        assert!(differ.is_empty(), "{differ:?}");
        let leaf = Leaf::decode(&golden).expect("a leaf");
        assert_eq!(leaf.name, name());
        let read: Vec<_> = leaf.entries().collect();
        assert_eq!((read.len(), &read[..6]), (LEAF_ENTRIES, &entries[..]));
        assert!(read[6..].iter().all(|entry| *entry == LeafEntry::default()));
    }

    /// Goal: a map has the same of a leaf whose words are plain, whichever way it takes them, and other leaves have only one. Method: a leaf of
    /// plain entries, and with one of another kind at each place.
    #[test]
    fn plain_leaves_are_taken_at_once() {
        let end = LogAddress::at(1000);
        let mut entries = vec![data(7, 8); LEAF_ENTRIES];
        entries[3] = LeafEntry::default();
        let taken = |entries: &[LeafEntry]| {
            let iu = encoded(&name(), entries);
            let leaf = Leaf::decode(&iu).expect("a leaf");
            let mut map = vec![MapEntry::from(LogAddress::UNKNOWN); LEAF_ENTRIES];
            let is_plain = leaf.put_plain(&mut map, end);
            let told: Vec<MapEntry> = leaf.entries().map(|entry| entry.in_map(end, |_| true)).collect();
            assert!(!is_plain || map == told);
            is_plain
        };
        assert!(taken(&entries) && taken(&entries[..5]));
        for at in [0, 250, LEAF_ENTRIES - 1] {
            for other in [
                data(1000, 8),
                LeafEntry { is_versioned: true, ..data(7, 8) },
                LeafEntry { state: LeafState::Deallocated, ..LeafEntry::default() },
                LeafEntry { state: LeafState::Lost, ..LeafEntry::default() },
            ] {
                let mut entries = entries.clone();
                entries[at] = other;
                assert!(!taken(&entries), "{other:?} at {at}");
            }
        }
    }

    /// Goal: no flipped bit passes, and a part of a leaf is none.
    #[test]
    fn a_damaged_leaf_is_refused() {
        let iu = encoded(&name(), &[data(7, 8); LEAF_ENTRIES]);
        for at in 0..iu.len() {
            let mut bad = iu.clone();
            bad[at] ^= 0x20;
            assert!(Leaf::decode(&bad).is_none(), "byte {at}");
        }
        assert!(Leaf::decode(&iu[..4088]).is_none() && Leaf::decode(&[]).is_none());
    }

    /// Goal: what no leaf says is refused, with a right checksum; another version is told from damage.
    #[test]
    fn what_makes_no_sense_is_refused() {
        let good = encoded(&name(), &[data(7, 8)]);
        for (what, at, value) in [
            ("magic", 0, b'x'),
            ("version", 8, 2),
            ("level", 10, 16),
            ("number", 20, 0x10),
            ("zeros", 63, 1),
            ("a place of nothing", 72, 1),
            ("a check of nothing", 78, 1),
            ("a frame of nothing", 77, 0x10),
            ("state 5", 69, 5),
            ("state 7", 69, 7),
            ("bit 45", 69, 0x21),
            ("bit 47", 69, 0x81),
        ] {
            let mut bad = good.clone();
            bad[at] = value;
            let bad = sealed(bad);
            assert!(Leaf::decode(&bad).is_none(), "{what}");
            assert_eq!(Leaf::is_other_version(&bad), what == "version", "{what}");
            assert!(!Leaf::is_other_version(&[&bad[..4095], &[1]].concat()), "{what}, and damaged");
        }
        assert!(Leaf::decode(&good).is_some() && !Leaf::is_other_version(&good));
    }

    /// Goal: an entry of a map is the same one in a leaf, and back. Method: each kind of entry that a map has.
    #[test]
    fn an_entry_of_a_map_in_a_leaf() {
        let end = LogAddress::at(1 << 39);
        let place = LogAddress::at((1 << 39) - 1);
        let known = MapEntry::data(place, Check::of(0x0001_8002));
        for (entry, state, check) in [
            (MapEntry::NONE, LeafState::Nothing, 0),
            (known, LeafState::Data, 0x8002),
            (MapEntry::from(place), LeafState::Data, 0),
            (LogAddress::LOST.into(), LeafState::Lost, 0),
        ] {
            let written = LeafEntry::of(entry);
            assert_eq!((written.state, written.check), (state, check), "{entry:?}");
            let has_check = entry.check() != Check::UNKNOWN;
            assert_eq!(written.in_map(end, |_| has_check), entry, "{entry:?}");
        }
        assert_eq!(
            LeafEntry::of(known).in_map(place, |_| true),
            LogAddress::UNKNOWN.into(),
            "beyond the end"
        );
        let state = |state| LeafEntry { state, ..LeafEntry::default() }.in_map(end, |_| true);
        assert_eq!(state(LeafState::Deallocated), MapEntry::NONE);
        assert_eq!(state(LeafState::Uncorrectable), LogAddress::LOST.into());
    }
}
