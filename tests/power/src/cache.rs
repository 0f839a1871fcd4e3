//! The volatile cache of a disk: writes in the order in which they were answered.

use std::collections::VecDeque;
use std::ops::Range;

/// Bytes of a write, or of a discard.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Bytes(Vec<u8>),
    /// What a discard leaves.
    Zeros,
}

/// A write that no flush covers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// Its bytes on the disk; never empty.
    pub at: Range<u64>,
    pub content: Content,
}

#[derive(Debug, Default)]
pub(crate) struct Cache {
    writes: VecDeque<Write>,
    held_bytes: u64,
}

impl Cache {
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    pub fn push(&mut self, write: Write) {
        assert!(write.at.start < write.at.end, "a write has bytes");
        self.held_bytes += write.memory_bytes();
        self.writes.push_back(write);
    }

    /// The oldest write, which the cache gives away.
    pub fn pop(&mut self) -> Option<Write> {
        let write = self.writes.pop_front()?;
        self.held_bytes -= write.memory_bytes();
        Some(write)
    }

    /// The disk ends here from now on.
    pub fn cut_off(&mut self, end: u64) {
        self.writes.retain_mut(|write| {
            let new_end = write.at.end.min(end);
            if write.at.start >= new_end {
                return false;
            }
            if let Content::Bytes(bytes) = &mut write.content {
                bytes.truncate((new_end - write.at.start) as usize);
            }
            write.at.end = new_end;
            true
        });
        self.held_bytes = self.writes.iter().map(Write::memory_bytes).sum();
    }
}

impl Write {
    fn memory_bytes(&self) -> u64 {
        match &self.content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Zeros => 0,
        }
    }
}
