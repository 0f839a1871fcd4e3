//! Slabs: values with small stable numbers, given again after they are free. No look-up searches, and nothing is allocated while the
//! number of values stays below what it was before.

use crate::token;
use std::ops::{Index, IndexMut};

/// Values with stable small indexes. The index that was freed last is given first, so that few lines of memory are in use.
///
/// Use it where the index stays in the room. A token that leaves it and comes back is better one of a [`StampedSlab`].
#[derive(Debug)]
pub struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab::new()
    }
}

impl<T> Slab<T> {
    /// An empty slab; it allocates nothing.
    pub const fn new() -> Slab<T> {
        Slab { entries: Vec::new(), free: Vec::new() }
    }

    /// Gives a value a free index.
    ///
    /// # Panics
    /// If there are four billion values.
    #[inline]
    pub fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                let entry = &mut self.entries[index as usize];
                assert!(entry.is_none(), "I-U1: a free index has no value");
                *entry = Some(value);
                index
            }
            None => {
                let index = u32::try_from(self.entries.len()).expect("I-U2: an index has 32 bits");
                self.entries.push(Some(value));
                index
            }
        }
    }

    /// The index that the next [`Slab::insert`] gives.
    pub fn next_index(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.entries.len() as u32)
    }

    /// One more than the largest index that was ever given: where a walk ends that changes the slab on its way.
    pub fn end_index(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Takes a value out; its index is free.
    ///
    /// # Panics
    /// If nothing has this index, or its value is lent.
    #[inline]
    pub fn remove(&mut self, index: u32) -> T {
        let value = self.entries[index as usize].take().expect("I-U1: a value is removed once");
        self.free.push(index);
        value
    }

    /// Lends a value out: its index stays taken until [`Slab::put_back`], and finds nothing until then.
    ///
    /// # Panics
    /// If nothing has this index, or its value is lent.
    #[inline]
    pub fn lend(&mut self, index: u32) -> T {
        self.entries[index as usize].take().expect("I-U1: a value is lent to one at a time")
    }

    /// Puts a value back that was lent.
    ///
    /// # Panics
    /// If the index has a value.
    #[inline]
    pub fn put_back(&mut self, index: u32, value: T) {
        let entry = &mut self.entries[index as usize];
        assert!(entry.is_none(), "I-U1: a value is put back where it was lent");
        *entry = Some(value);
    }

    /// The value of an index; nothing if it is free or lent.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)?.as_ref()
    }

    /// As [`Slab::get`], to change it.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    /// Indexes and values, in the order of indexes. Values that are lent are left out.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.entries).filter_map(|(index, entry)| Some((index, entry.as_ref()?)))
    }

    /// As [`Slab::iter`], to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        (0..).zip(&mut self.entries).filter_map(|(index, entry)| Some((index, entry.as_mut()?)))
    }

    /// Values that are there or lent.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    /// The value of an index.
    ///
    /// # Panics
    /// If nothing has it, or its value is lent.
    #[inline]
    fn index(&self, index: u32) -> &T {
        self.get(index).expect("I-U1: an index that is used has a value")
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.get_mut(index).expect("I-U1: an index that is used has a value")
    }
}

#[derive(Debug)]
struct Stamped<T> {
    stamp: u32,
    value: Option<T>,
}

/// Values whose tokens leave the room and come back. A token is an index below and the stamp of its use above
/// ([`token::stamped`]), so that one that comes twice, or was made up, is caught. Its highest four bits stay clear for owners.
#[derive(Debug)]
pub struct StampedSlab<T> {
    entries: Vec<Stamped<T>>,
    free: Vec<u32>,
}

impl<T> Default for StampedSlab<T> {
    fn default() -> StampedSlab<T> {
        StampedSlab::new()
    }
}

impl<T> StampedSlab<T> {
    /// An empty slab; it allocates nothing.
    pub const fn new() -> StampedSlab<T> {
        StampedSlab { entries: Vec::new(), free: Vec::new() }
    }

    /// Gives a value a token that no value of late had: one comes again after 2^28 uses of its index.
    ///
    /// # Panics
    /// If there are four billion values.
    #[inline]
    pub fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Stamped { stamp: 0, value: None });
            u32::try_from(self.entries.len() - 1).expect("I-U2: an index has 32 bits")
        });
        let entry = &mut self.entries[index as usize];
        assert!(entry.value.is_none(), "I-U1: a free index has no value");
        entry.stamp = entry.stamp.wrapping_add(1) & token::STAMP_MAX;
        entry.value = Some(value);
        token::stamped(index, entry.stamp)
    }

    /// The value of a token.
    ///
    /// # Panics
    /// If it has none: the token came back twice, or was made up.
    #[inline]
    pub fn get_mut(&mut self, token: u64) -> &mut T {
        let entry = &mut self.entries[token::index_of(token) as usize];
        assert_eq!(u64::from(entry.stamp), token >> 32, "I-U3: {token:#x} comes back once");
        entry.value.as_mut().expect("I-U3: a token comes back once")
    }

    /// Takes the value of a token out.
    ///
    /// # Panics
    /// If it has none: the token came back twice, or was made up.
    #[inline]
    pub fn remove(&mut self, token: u64) -> T {
        self.remove_if(token, |_| true).expect("I-U3: a token comes back once")
    }

    /// Changes the value of a token, and takes it out if `is_over` says so: one look-up for an answer that is usually the last one.
    ///
    /// # Panics
    /// If it has none: the token came back twice, or was made up.
    #[inline]
    pub fn remove_if(&mut self, token: u64, is_over: impl FnOnce(&mut T) -> bool) -> Option<T> {
        let index = token::index_of(token);
        let entry = &mut self.entries[index as usize];
        assert_eq!(u64::from(entry.stamp), token >> 32, "I-U3: {token:#x} comes back once");
        let value = entry.value.as_mut().expect("I-U3: a token comes back once");
        if !is_over(value) {
            return None;
        }
        self.free.push(index);
        entry.value.take()
    }

    /// All values, in the order of their indexes.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|entry| entry.value.as_ref())
    }

    /// As [`StampedSlab::iter`], to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().filter_map(|entry| entry.value.as_mut())
    }

    /// Values that are there.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: indexes are dense, stable and given again. Method: values come and go, one is lent.
    #[test]
    fn an_index_is_given_again_after_its_value_is_gone() {
        let mut slab = Slab::new();
        assert_eq!([slab.insert('a'), slab.insert('b'), slab.insert('c')], [0, 1, 2]);
        assert_eq!((slab.remove(1), slab.len(), slab.next_index()), ('b', 2, 1));
        assert_eq!(slab.get(1), None);
        let lent = slab.lend(0);
        assert_eq!((slab.get(0), slab.len()), (None, 2), "lent, and its index is taken");
        assert_eq!(slab.insert('d'), 1);
        slab.put_back(0, lent);
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(0, &'a'), (1, &'d'), (2, &'c')]);
    }

    /// Goal: a token that comes back twice is caught. Method: its index has another value when it comes again.
    #[test]
    #[should_panic(expected = "comes back once")]
    fn a_token_that_comes_back_twice_is_caught() {
        let mut slab = StampedSlab::new();
        let first = slab.insert('a');
        slab.remove(first);
        slab.insert('b');
        slab.remove(first);
    }

    /// Goal: a value stays under its token until it is over. Method: a count goes down, one look-up at a time.
    #[test]
    fn a_value_is_taken_out_when_it_is_over() {
        let mut slab = StampedSlab::new();
        let token = slab.insert(2);
        let count_down = |left: &mut i32| {
            *left -= 1;
            *left == 0
        };
        assert_eq!((slab.remove_if(token, count_down), slab.len()), (None, 1));
        assert_eq!((slab.remove_if(token, count_down), slab.len()), (Some(0), 0));
        assert_ne!(slab.insert(7), token, "its index is given again, with another stamp");
    }

    /// Goal: however often an index is used, its tokens leave the bits of owners alone: an answer with one of them would go to
    /// somebody else. Method: an index whose stamp is about to run through the ends of each range.
    #[test]
    fn a_token_never_takes_the_bit_of_an_owner() {
        for stamp in [0, token::STAMP_MAX - 1, token::STAMP_MAX, (1 << 31) - 1, u32::MAX] {
            let mut slab = StampedSlab { entries: vec![Stamped { stamp, value: None }], free: vec![0] };
            let token = slab.insert('a');
            assert_eq!(token & token::OWNER_BITS, 0, "after {stamp} uses of an index");
            assert_eq!(slab.remove(token), 'a');
        }
    }
}
