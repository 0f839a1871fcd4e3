//! Writes that no complete flush covers. A target that dies may lose what lies in its cache, and answers flushes after its next start as if nothing
//! had been there; so what was answered is written again to a target that comes back.

use diecut_units::Buffer;
use std::collections::VecDeque;

/// A write, as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct KeptWrite {
    pub offset: u64,
    pub data: Buffer,
}

/// See the module. In the order in which they were answered.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    writes: VecDeque<(u64, KeptWrite)>,
    bytes: usize,
    /// Number of the last one.
    last: u64,
}

impl Kept {
    pub fn push(&mut self, write: KeptWrite) {
        self.last += 1;
        self.bytes += write.data.len();
        self.writes.push_back((self.last, write));
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What a flush that begins now covers.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// A flush that began at this number is complete.
    pub fn flushed(&mut self, covers: u64) {
        while let Some((_, write)) = self.writes.pop_front_if(|(number, _)| *number <= covers) {
            self.bytes -= write.data.len();
        }
    }

    /// All of them, oldest first.
    pub fn all(&self) -> impl Iterator<Item = &KeptWrite> {
        self.writes.iter().map(|(_, write)| write)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_flush_covers_what_was_there_when_it_began() {
        let mut kept = Kept::default();
        let write = |offset| KeptWrite { offset, data: Buffer::copy_from(&[0; 10]) };
        kept.push(write(1));
        let covers = kept.last();
        kept.push(write(2));
        kept.flushed(covers);
        assert_eq!((kept.bytes(), kept.all().next().unwrap().offset), (10, 2));
        kept.flushed(kept.last());
        assert_eq!((kept.bytes(), kept.all().count()), (0, 0));
    }
}
