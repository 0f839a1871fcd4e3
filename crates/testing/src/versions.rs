//! Blocks that a host wrote, as it knows them over cuts: each has the last version that is durable, or a later one.

use std::ops::Range;

/// See the module. Version 0 is what was there before.
pub struct Versions {
    /// Of each block, in the order in which they were written.
    allowed: Vec<Vec<u64>>,
}

impl Versions {
    /// Of so many blocks that nobody wrote.
    pub fn new(blocks: u64) -> Versions {
        Versions { allowed: vec![vec![0]; blocks as usize] }
    }

    fn of(&mut self, blocks: Range<u64>) -> &mut [Vec<u64>] {
        &mut self.allowed[blocks.start as usize..blocks.end as usize]
    }

    /// Blocks are written with a version of their own, or are to be: from now on they may have it.
    pub fn write(&mut self, blocks: Range<u64>, version: u64) {
        self.of(blocks).iter_mut().for_each(|allowed| allowed.push(version));
    }

    /// That version is durable: none before it is right any more.
    pub fn make_durable(&mut self, blocks: Range<u64>, version: u64) {
        for allowed in self.of(blocks) {
            if let Some(at) = allowed.iter().rposition(|known| *known == version) {
                allowed.drain(..at);
            }
        }
    }

    /// Versions that a block may have.
    pub fn allowed(&self, block: u64) -> &[u64] {
        &self.allowed[block as usize]
    }

    /// The version that was written last.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn newest(&self, block: u64) -> u64 {
        *self.allowed(block).last().expect("a block has a version")
    }

    /// A block was found with this version after a restart, and keeps it.
    ///
    /// # Panics
    /// If it may not have it; `when` says when that was.
    pub fn find(&mut self, block: u64, version: u64, when: &str) {
        let allowed = &mut self.allowed[block as usize];
        assert!(allowed.contains(&version), "{when}: block {block} is {version} of {allowed:?}");
        *allowed = vec![version];
    }
}
