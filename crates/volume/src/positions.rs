//! Positions: places as leaves and anchors of [today's format](../../../docs/format/leaves.md) name them, by 4 bytes each. This is where they
//! become entries of 8 bytes and places, and where these become positions again. What is known of content besides its place is not in a
//! position, so it is lost with the server, and learned again as data is written or moves.

use diecut_log::{LogAddress, MapEntry};

/// Nothing was written, or it was deallocated.
pub(crate) const NONE: u32 = u32::MAX;
/// It was lost, and that was accepted.
const LOST: u32 = u32::MAX - 1;

/// The position of a place.
///
/// # Panics
/// If it has none: the log numbers its segments so that each place has one.
#[inline]
pub(crate) fn of(address: LogAddress) -> u32 {
    match address {
        LogAddress::NONE => NONE,
        LogAddress::LOST => LOST,
        place => {
            assert!(place.is_place(), "I-M20: what a leaf says is known");
            u32::try_from(place.number()).expect("I-M20: each place has a position")
        }
    }
}

/// The place of a leaf that an anchor names; whether there is such a place is not looked at.
pub(crate) fn leaf_at(position: u32) -> LogAddress {
    if position == NONE { LogAddress::NONE } else { LogAddress::at(position.into()) }
}

/// The entry that a leaf has for an IU; places end before `end`. What a host made uncorrectable, or was lost and accepted as that, says so.
/// Anything else that is no place is that of a chunk that was in staging when the leaf was written, and its records tell more.
#[inline]
pub(crate) fn entry_at(position: u32, end: LogAddress) -> MapEntry {
    match position {
        NONE => MapEntry::NONE,
        LOST => LogAddress::LOST.into(),
        _ if u64::from(position) >= end.number() => LogAddress::UNKNOWN.into(),
        _ => LogAddress::at(position.into()).into(),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_log::Check;

    /// Goal: positions are those of the format of before, and say the same when they are read again, but for checks. Method: positions
    /// at the ends of what there is.
    #[test]
    fn a_position_says_what_it_said() {
        let end = LogAddress::at(100);
        let place = |number| MapEntry::from(LogAddress::at(number));
        let known = MapEntry::data(LogAddress::at(99), Check::of(7));
        for (position, entry) in
            [(NONE, MapEntry::NONE), (0xffff_fffe, LogAddress::LOST.into()), (0, place(0)), (99, place(99))]
        {
            assert_eq!(entry_at(position, end), entry);
            assert_eq!(of(entry.get()), position);
        }
        assert_eq!(entry_at(of(known.get()), end), place(99), "no check");
        for position in [100, 0xffff_fffd] {
            assert_eq!(entry_at(position, end), LogAddress::UNKNOWN.into());
        }
        assert_eq!((leaf_at(NONE), leaf_at(5)), (LogAddress::NONE, LogAddress::at(5)));
    }
}
