//! Values at numbered places that are used again: the lowest free one is not looked for, the last one that became free is taken.

use std::ops::{Index, IndexMut};

/// See the module.
pub(crate) struct Slab<T> {
    places: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { places: Vec::new(), free: Vec::new() }
    }
}

impl<T: Default> Slab<T> {
    /// A place: with what [`Slab::set_free`] left there, or a new value.
    pub fn add(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.places.push(T::default());
            self.places.len() as u32 - 1
        })
    }

    /// Gives a place back, and its value with it.
    pub fn remove(&mut self, at: u32) {
        self[at] = T::default();
        self.free.push(at);
    }

    /// Gives a place back; its value stays, with the memory that it has.
    pub fn set_free(&mut self, at: u32) {
        self.free.push(at);
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, at: u32) -> &T {
        &self.places[at as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.places[at as usize]
    }
}
