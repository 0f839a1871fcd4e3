//! Places in the log, and what a map keeps of each IU.
//!
//! A map has one entry of 8 bytes for each IU: the [entry of a leaf](../../../docs/format/leaf-1.md), and two things that are
//! said in memory only. An entry of zeros says that nothing was written, so a table of any size begins as memory that nobody touched.

use zerocopy::FromZeros;

/// Bits of the number of a place.
const PLACE_BITS: u32 = 40;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
/// Place and state.
const ADDRESS_MASK: u64 = (1 << 43) - 1;
/// States, above the place.
const DATA: u64 = 1 << PLACE_BITS;
const LOST: u64 = 3 << PLACE_BITS;
/// In memory only.
const UNKNOWN: u64 = 7 << PLACE_BITS;
/// In memory only: the check is that of the content. Nobody knows it of what the format of before names.
const IS_CHECKED: u64 = 1 << 45;
const CHECK_SHIFT: u32 = 48;

/// Place of one IU in the log: segment and offset within it. `LogAddress::NONE` means "nowhere".
///
/// It is the lower part of a [`MapEntry`], so each becomes the other without a branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, FromZeros)]
#[repr(transparent)]
pub struct LogAddress(u64);

impl LogAddress {
    /// No place: never written, or deallocated.
    pub const NONE: LogAddress = LogAddress(0);
    /// There was something, but the medium lost where.
    pub const LOST: LogAddress = LogAddress(LOST);
    /// Where there is something, if there is, cannot be told yet: only while a restart replays records, one of which may say so.
    pub const UNKNOWN: LogAddress = LogAddress(UNKNOWN);

    /// The place of this number: IUs are counted through all segments, each of which has as many numbers.
    #[inline]
    pub fn at(number: u64) -> LogAddress {
        debug_assert!(number <= PLACE_MASK, "I-L42: places have 40 bits");
        LogAddress(DATA | number)
    }

    /// Whether it names a place.
    #[inline]
    pub fn is_place(self) -> bool {
        self.0 >> PLACE_BITS == DATA >> PLACE_BITS
    }

    /// The number of a place.
    #[inline]
    pub fn number(self) -> u64 {
        self.0 & PLACE_MASK
    }

    /// Bits in which two of them differ; what is no place differs above the number from what is one.
    #[inline]
    pub(crate) fn bits_differing(self, other: LogAddress) -> u64 {
        self.0 ^ other.0
    }

    /// The place that lies so many IUs behind it.
    #[inline]
    #[must_use]
    pub fn plus(self, ius: u32) -> LogAddress {
        LogAddress(self.0 + u64::from(ius))
    }

    /// How many IUs a place lies behind another one of its segment.
    #[inline]
    pub fn distance_from(self, before: LogAddress) -> u32 {
        debug_assert!(before <= self, "I-L42: places are counted forwards");
        (self.0 - before.0) as u32
    }
}

/// What is known of the content of an IU besides its place: its CRC-32C, the lower half of that, or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// What is known, and zeros.
    bits: u32,
    /// Bits that are known.
    known: u32,
}

impl Check {
    /// Nothing is.
    pub const UNKNOWN: Check = Check { bits: 0, known: 0 };

    /// What a map keeps of content with this checksum: the lower half.
    #[inline]
    pub fn of(checksum: u32) -> Check {
        let known = u32::from(u16::MAX);
        Check { bits: checksum & known, known }
    }

    /// All of the checksum, as heads of version 3 have it.
    #[inline]
    pub fn whole(checksum: u32) -> Check {
        Check { bits: checksum, known: u32::MAX }
    }

    /// As a leaf has it: zero if nothing is known.
    #[inline]
    pub fn bits(self) -> u16 {
        self.bits as u16
    }

    /// Whether content with this checksum may be what is meant.
    #[inline]
    pub fn fits(self, checksum: u32) -> bool {
        (checksum ^ self.bits) & self.known == 0
    }
}

/// What a map says of one IU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(transparent)]
pub struct MapEntry(u64);

impl MapEntry {
    /// Nothing was written.
    pub const NONE: MapEntry = MapEntry(0);

    /// Data with this check lies at a place.
    #[inline]
    pub fn data(place: LogAddress, check: Check) -> MapEntry {
        let is_checked = if check.known == 0 { 0 } else { IS_CHECKED };
        MapEntry(place.0 | u64::from(check.bits()) << CHECK_SHIFT | is_checked)
    }

    /// What a map has where a leaf has this word, and zero if it has: the word says that nothing was written, or names data without flags
    /// whose check counts, at a place that lies before `end`. Most words do. There is no branch and no comparison, so words of a leaf are
    /// looked at several at a time, also on processors that cannot compare words of 64 bits so.
    #[inline]
    pub fn of_plain_word(word: u64, end: LogAddress) -> (MapEntry, u64) {
        const ABOVE_DATA: u64 = 0xfe << PLACE_BITS;
        let is_data = word >> PLACE_BITS & 1;
        let other_state_or_flag = word & ABOVE_DATA;
        let nothing_with_something = word & is_data.wrapping_sub(1);
        let beyond_the_end = end.number().wrapping_sub(1).wrapping_sub(word & PLACE_MASK) >> 63;
        let is_checked = (word & DATA) << (IS_CHECKED.trailing_zeros() - DATA.trailing_zeros());
        (MapEntry(word | is_checked), other_state_or_flag | nothing_with_something | beyond_the_end)
    }

    /// The place.
    #[inline]
    pub fn get(self) -> LogAddress {
        LogAddress(self.0 & ADDRESS_MASK)
    }

    /// What is known of the content.
    #[inline]
    pub fn check(self) -> Check {
        let known = if self.0 & IS_CHECKED == 0 { 0 } else { u16::MAX };
        Check { bits: (self.0 >> CHECK_SHIFT) as u32, known: known.into() }
    }

    /// The same content at another place, where it was read with this checksum. What was known of it before stays: it says more than a
    /// medium that may have lost a write.
    #[inline]
    #[must_use]
    pub fn moved_to(self, place: LogAddress, checksum: u32) -> MapEntry {
        let check = if self.check() == Check::UNKNOWN { Check::of(checksum) } else { self.check() };
        MapEntry::data(place, check)
    }
}

impl From<LogAddress> for MapEntry {
    /// Nothing is known of the content.
    #[inline]
    fn from(address: LogAddress) -> MapEntry {
        MapEntry(address.0)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: bits of an entry are those of the format. Method: entries written by hand.
    #[test]
    fn the_bits_of_an_entry() {
        let place = LogAddress::at(0x12_3456_789a);
        assert_eq!(MapEntry::from(place), MapEntry(0x0112_3456_789a));
        let entry = MapEntry::data(place, Check::of(0xdead_beef));
        assert_eq!(entry, MapEntry(0xbeef_2112_3456_789a));
        assert_eq!((entry.get(), entry.get().number()), (place, 0x12_3456_789a));
        assert_eq!(MapEntry::NONE, MapEntry(0));
        assert_eq!(MapEntry::from(LogAddress::NONE), MapEntry::NONE);
        assert_eq!(MapEntry::from(LogAddress::LOST), MapEntry(0x0300_0000_0000));
        for none in [LogAddress::NONE, LogAddress::LOST, LogAddress::UNKNOWN] {
            assert!(!none.is_place(), "{none:?}");
            assert_eq!(MapEntry::from(none).get(), none);
        }
        assert!(place.is_place() && LogAddress::at(0).is_place());
        assert_eq!(place.plus(7).distance_from(place), 7);
    }

    /// Goal: a word is plain if a map has it as it is, but for the check that counts. Method: plain ones, and one thing changed in each way.
    #[test]
    fn plain_words_are_entries() {
        let end = LogAddress::at(100);
        let plain = |place: u64| DATA | place | 0xbeef << CHECK_SHIFT;
        for place in [0, 1, 99] {
            let data = MapEntry::data(LogAddress::at(place), Check::of(0xbeef));
            assert_eq!(MapEntry::of_plain_word(plain(place), end), (data, 0));
        }
        assert_eq!(MapEntry::of_plain_word(0, end), (MapEntry::NONE, 0));
        assert_ne!(MapEntry::of_plain_word(plain(100), end).1, 0, "beyond the end");
        for bit in 40..48 {
            assert_ne!(MapEntry::of_plain_word(plain(5) ^ 1 << bit, end).1, 0, "bit {bit}");
        }
        for nothing in [1, 1 << CHECK_SHIFT] {
            assert_ne!(MapEntry::of_plain_word(nothing, end).1, 0, "{nothing:#x}");
        }
    }

    /// Goal: a check that is known refuses other content, one that is not refuses none, and a move keeps or learns it. Method:
    /// checksums whose lower halves differ, or do not.
    #[test]
    fn a_check_is_kept_or_learned() {
        let (from, to) = (LogAddress::at(3), LogAddress::at(4));
        let unknown = MapEntry::from(from);
        assert!(unknown.check().fits(0) && unknown.check().fits(0x1234_5678));
        let learned = unknown.moved_to(to, 0xaaaa_5678);
        assert_eq!(learned, MapEntry::data(to, Check::of(0x5678)));
        assert!(learned.check().fits(0x5678) && !learned.check().fits(0x5679));
        let zero = MapEntry::data(from, Check::of(0));
        assert!(zero.check().fits(0x1_0000) && !zero.check().fits(1), "a check of zero is one, too");
        assert_eq!(learned.moved_to(from, 1).check(), Check::of(0x5678), "what was known stays");
        let whole = Check::whole(0xaaaa_5678);
        assert!(whole.fits(0xaaaa_5678) && !whole.fits(0xaaab_5678) && !whole.fits(0x5678));
        assert_eq!(MapEntry::data(to, whole), learned, "a map keeps the lower half");
    }
}
