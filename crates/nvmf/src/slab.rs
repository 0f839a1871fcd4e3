/// Things with stable small indexes; freed indexes are used again, lowest pressure on memory first in, last out.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { entries: Vec::new(), free: Vec::new() }
    }
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = Some(value);
                index
            }
            None => {
                self.entries.push(Some(value));
                (self.entries.len() - 1) as u32
            }
        }
    }
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let value = self.entries[index as usize].take().expect("removed once");
        self.free.push(index);
        value
    }
    /// Lends an entry out; its index stays taken until [`Slab::put_back`].
    #[inline]
    pub(crate) fn lend(&mut self, index: u32) -> T {
        self.entries[index as usize].take().expect("there and not lent")
    }
    #[inline]
    pub(crate) fn put_back(&mut self, index: u32, value: T) {
        let entry = &mut self.entries[index as usize];
        assert!(entry.is_none(), "put back where it was lent");
        *entry = Some(value);
    }
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)?.as_ref()
    }
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)?.as_mut()
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| Some((index as u32, entry.as_ref()?)))
    }
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.entries.iter_mut().enumerate().filter_map(|(index, entry)| Some((index as u32, entry.as_mut()?)))
    }
}
