//! Places in a device's file: where the content of an erase block lies.
//!
//! Whoever opens erase blocks takes the least worn ones, and comes back to the same one late. A place of the file costs: the file
//! system allocates it, the kernel maps each of its pages, and a disk is told when it is given back. So content has no fixed place. An erase
//! block has one from when it is opened until it is discarded, and gets one that another block just left, if there is any.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// [`crate::block::Block::place`] of a block that holds nothing.
pub(crate) const NO_PLACE: u32 = u32::MAX;

/// Places that no erase block has, shared by all parts of a device.
#[derive(Debug)]
pub(crate) struct FreePlaces(Mutex<Free>);

#[derive(Debug)]
struct Free {
    /// The file system keeps room for these; the one that was left last is at the end.
    with_room: VecDeque<u32>,
    /// One bit for each place that is a hole, or becomes one.
    holes: Vec<u64>,
    /// There are no holes in words before this one.
    first_word: usize,
}

impl FreePlaces {
    /// All places of a file, but for those that are used.
    pub(crate) fn new(count: u64, used: impl Iterator<Item = u32>) -> FreePlaces {
        let mut holes = vec![u64::MAX; count.div_ceil(64) as usize];
        if !count.is_multiple_of(64) {
            *holes.last_mut().expect("there is one") = (1 << (count % 64)) - 1;
        }
        for place in used {
            holes[place as usize / 64] &= !(1 << (place % 64));
        }
        FreePlaces(Mutex::new(Free { with_room: VecDeque::new(), holes, first_word: 0 }))
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, and whether it has room. Without one that has, the first hole: the file stays dense. `None` while all that are left become
    /// holes elsewhere.
    pub(crate) fn take(&self) -> Option<(u32, bool)> {
        let mut free = self.lock();
        if let Some(place) = free.with_room.pop_back() {
            return Some((place, true));
        }
        let from = free.first_word;
        let word = free.holes[from..].iter().position(|word| *word != 0).map(|at| from + at)?;
        let bit = free.holes[word].trailing_zeros();
        free.holes[word] &= !(1 << bit);
        free.first_word = word;
        Some((word as u32 * 64 + bit, false))
    }

    /// A block left a place that has room for all of a block.
    pub(crate) fn leave(&self, place: u32) {
        self.lock().with_room.push_back(place);
    }

    /// The place that was left first, if more than `most` have room. It is to become a hole.
    pub(crate) fn surplus(&self, most: usize) -> Option<u32> {
        let mut free = self.lock();
        if free.with_room.len() > most { free.with_room.pop_front() } else { None }
    }

    /// A place is a hole, or whoever takes it can keep it from becoming one.
    pub(crate) fn give_back(&self, place: u32) {
        let mut free = self.lock();
        let word = place as usize / 64;
        free.holes[word] |= 1 << (place % 64);
        free.first_word = free.first_word.min(word);
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_place_is_nobody_elses() {
        let places = FreePlaces::new(130, [0, 2, 129].into_iter());
        assert_eq!(places.take(), Some((1, false)));
        assert_eq!(places.take(), Some((3, false)));
        places.leave(1);
        places.leave(3);
        assert_eq!(places.take(), Some((3, true)), "the one that was left last");
        assert_eq!(places.surplus(1), None);
        assert_eq!(places.surplus(0), Some(1));
        places.give_back(1);
        assert_eq!(places.take(), Some((1, false)), "the first hole");
        let rest: Vec<_> = std::iter::from_fn(|| places.take()).collect();
        assert_eq!(rest, (4..129).map(|place| (place, false)).collect::<Vec<_>>());
        places.give_back(128);
        assert_eq!(places.take(), Some((128, false)));
    }
}
