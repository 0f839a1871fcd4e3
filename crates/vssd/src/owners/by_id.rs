//! Things that vSSDs have one of each, found by their ids.

use crate::VssdId;
use std::ops::{Index, IndexMut};

/// In the way from ids to places: nothing has this id.
const NOTHING: u16 = u16::MAX;

/// A list in order of ids. Ids are never used again, so the way from an id to its place is a table.
pub(crate) struct ById<T> {
    numbers: Vec<u16>,
    items: Vec<(VssdId, T)>,
}

impl<T> Default for ById<T> {
    fn default() -> ById<T> {
        ById { numbers: Vec::new(), items: Vec::new() }
    }
}

impl<T> ById<T> {
    /// Where what has this id stands.
    #[inline]
    pub fn at(&self, id: VssdId) -> Option<usize> {
        let at = *self.numbers.get(id.0 as usize)?;
        (at != NOTHING).then_some(usize::from(at))
    }

    /// What has this id.
    pub fn get(&self, id: VssdId) -> Option<&T> {
        self.at(id).map(|at| &self.items[at].1)
    }

    /// What has this id, which something has.
    ///
    /// # Panics
    /// If nothing has it.
    #[inline]
    pub fn of(&mut self, id: VssdId) -> &mut T {
        &mut self.items[usize::from(self.numbers[id.0 as usize])].1
    }

    /// Adds one at its place in the order.
    ///
    /// # Panics
    /// If something has this id.
    pub fn insert(&mut self, id: VssdId, item: T) {
        if self.numbers.len() <= id.0 as usize {
            self.numbers.resize(id.0 as usize + 1, NOTHING);
        }
        assert!(self.numbers[id.0 as usize] == NOTHING, "vSSD {} is there once (I-V5)", id.0);
        assert!(self.items.len() < usize::from(NOTHING), "there are fewer vSSDs than places (I-V5)");
        let at = self.items.partition_point(|(other, _)| *other < id);
        self.items.insert(at, (id, item));
        self.number_from(at);
    }

    /// Takes one out.
    ///
    /// # Panics
    /// If nothing has this id.
    pub fn remove(&mut self, id: VssdId) -> T {
        let at = self.at(id).expect("what is removed is there (I-V5)");
        self.numbers[id.0 as usize] = NOTHING;
        let (found, item) = self.items.remove(at);
        assert_eq!(found, id, "an id leads to its own vSSD (I-V5)");
        self.number_from(at);
        item
    }

    fn number_from(&mut self, first: usize) {
        for (at, (id, _)) in self.items.iter().enumerate().skip(first) {
            self.numbers[id.0 as usize] = at as u16;
        }
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().map(|(_, item)| item)
    }
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.iter_mut().map(|(_, item)| item)
    }
    pub fn ids(&self) -> impl Iterator<Item = VssdId> + '_ {
        self.items.iter().map(|(id, _)| *id)
    }
}

impl<T> Index<usize> for ById<T> {
    type Output = T;
    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.items[at].1
    }
}

impl<T> IndexMut<usize> for ById<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.items[at].1
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: an id leads to its own item whatever came and went. Method: items come out of order and leave from the middle.
    #[test]
    fn ids_lead_to_their_items() {
        let mut items = ById::default();
        for id in [1, 5, 3, 9] {
            items.insert(VssdId(id), id * 10);
        }
        assert_eq!(items.ids().map(|id| id.0).collect::<Vec<_>>(), [1, 3, 5, 9]);
        assert_eq!(items.remove(VssdId(3)), 30);
        for id in [1, 5, 9] {
            assert_eq!(*items.of(VssdId(id)), id * 10);
        }
        assert_eq!((items.at(VssdId(3)), items.get(VssdId(4)), items.at(VssdId(100))), (None, None, None));
        items.insert(VssdId(4), 40);
        assert_eq!(items.iter().copied().collect::<Vec<_>>(), [10, 40, 50, 90]);
    }
}
