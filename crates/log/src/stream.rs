//! Streams: what comes from one source and dies in its own way lies in segments of its own. What is particular to one is a row of
//! the table here, so that another one is another row.

use crate::reserve::{DISPLACED_LEAVE, RESERVE_SEGMENTS};
use diecut_vssd::space::IoClass;

/// Where entries come from. The numbers stand in chunk heads and page marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Stream {
    /// Host data.
    #[default]
    User = 0,
    /// Copies of the cleaner.
    Cleaner = 1,
    /// Map leaves.
    Map = 2,
}

/// What the log does with a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// Class of its programs at the dies.
    pub class: IoClass,
    /// Free segments that its own entries leave; `None` if it makes room, and may use the last ones.
    pub keep_free: Option<KeepFree>,
    /// A chunk is programmed only when all entries before it are durable.
    pub is_gated: bool,
    /// Its writers wait for the cleaner at the pace that it sets.
    pub is_paced: bool,
    /// Chunks say which segment all their entries were copied from.
    pub names_origin: bool,
    /// IUs are bytes, whatever stands for the content of user data.
    pub is_always_bytes: bool,
    /// The stream that the cleaner's copies of its IUs go to.
    pub copies_go_to: Stream,
    /// IUs of data that a copy of one of its IUs counts as, when a victim is chosen.
    pub copy_cost: u32,
    /// Streams whose erase blocks that were taken ahead are meant for this one, too.
    pub shares_blocks_with: &'static [Stream],
}

/// Free segments that a stream leaves to others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeepFree {
    /// As a rule.
    pub usually: u32,
    /// While only an anchor can make room.
    pub while_anchor_is_needed: u32,
}

/// One row for each stream, in the order of their numbers.
const POLICIES: &PerStream<Policy> = &PerStream([
    Policy {
        class: IoClass::HostWrite,
        keep_free: Some(KeepFree { usually: RESERVE_SEGMENTS, while_anchor_is_needed: RESERVE_SEGMENTS }),
        is_gated: false,
        is_paced: true,
        names_origin: false,
        is_always_bytes: false,
        copies_go_to: Stream::Cleaner,
        copy_cost: 1,
        shares_blocks_with: &[Stream::User, Stream::Cleaner],
    },
    Policy {
        class: IoClass::Cleaner,
        keep_free: None,
        is_gated: false,
        is_paced: false,
        names_origin: true,
        is_always_bytes: false,
        copies_go_to: Stream::Cleaner,
        copy_cost: 1,
        shares_blocks_with: &[Stream::User, Stream::Cleaner],
    },
    Policy {
        class: IoClass::Metadata,
        keep_free: Some(KeepFree {
            usually: RESERVE_SEGMENTS - 1,
            while_anchor_is_needed: 1 + DISPLACED_LEAVE,
        }),
        is_gated: true,
        is_paced: false,
        names_origin: true,
        is_always_bytes: true,
        copies_go_to: Stream::Map,
        copy_cost: 4,
        shares_blocks_with: &[Stream::Map],
    },
]);

impl Stream {
    /// How many there are.
    pub const COUNT: usize = 3;
    /// All of them, in the order of their numbers.
    pub const ALL: [Stream; Stream::COUNT] = [Stream::User, Stream::Cleaner, Stream::Map];
    /// Those that hold data: what lies in their segments dies by their entries, and leaves die by leaves.
    pub(crate) const DATA: [Stream; 2] = [Stream::User, Stream::Cleaner];

    /// The stream of a number read from the medium, if it is one.
    pub const fn from_number(number: u16) -> Option<Stream> {
        match number {
            0 => Some(Stream::User),
            1 => Some(Stream::Cleaner),
            2 => Some(Stream::Map),
            _ => None,
        }
    }

    /// The number that stands on the medium.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// What the log does with it.
    #[inline]
    pub(crate) fn policy(self) -> &'static Policy {
        &POLICIES[self]
    }
}

const _: () = assert!(Stream::ALL[Stream::Map as usize] as usize == Stream::Map as usize);
const _: () = assert!(Stream::Map as usize + 1 == Stream::COUNT);

/// A value for each stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerStream<T>(pub [T; Stream::COUNT]);

impl<T> std::ops::Index<Stream> for PerStream<T> {
    type Output = T;
    #[inline]
    fn index(&self, stream: Stream) -> &T {
        &self.0[stream as usize]
    }
}

impl<T> std::ops::IndexMut<Stream> for PerStream<T> {
    #[inline]
    fn index_mut(&mut self, stream: Stream) -> &mut T {
        &mut self.0[stream as usize]
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: numbers on the medium stay what they are, and each leads back to its stream. Method: all of them.
    #[test]
    fn numbers_are_those_of_the_format() {
        assert_eq!(Stream::ALL.map(Stream::number), [0, 1, 2]);
        for stream in Stream::ALL {
            assert_eq!(Stream::from_number(stream.number()), Some(stream));
        }
        assert_eq!(Stream::from_number(3), None);
    }
}
