use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What is read and kept at once.
const BLOCK_BYTES: u64 = 4096;
/// What is looked at in one place of the search for anything that is not zero.
const SAMPLE_BYTES: u64 = 64 << 10;
/// Places between both ends.
const SAMPLES: u64 = 64;
/// What is looked at as a whole at each end.
const END_BYTES: u64 = 1 << 20;
/// Places that cannot be read and are told of.
const UNREADABLE_MAX: usize = 8;

/// A place that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// Where.
    pub offset: u64,
    /// Why.
    pub error: String,
}

/// Bytes that can be looked at.
pub trait Source {
    /// How many there are.
    fn size_bytes(&self) -> u64;

    /// Fills `into` from an offset on.
    ///
    /// # Errors
    /// What the drive says.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}

/// An open file, and how long it is.
impl Source for (&File, u64) {
    fn size_bytes(&self) -> u64 {
        self.1
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, offset)
    }
}

/// Looks at pieces of a source; each block is read once.
pub(super) struct Reader<'a> {
    source: &'a dyn Source,
    blocks: BTreeMap<u64, Option<Vec<u8>>>,
    unreadable: Vec<Unreadable>,
}

impl<'a> Reader<'a> {
    pub fn new(source: &'a dyn Source) -> Reader<'a> {
        Reader { source, blocks: BTreeMap::new(), unreadable: Vec::new() }
    }

    pub fn size_bytes(&self) -> u64 {
        self.source.size_bytes()
    }

    pub fn unreadable(self) -> Vec<Unreadable> {
        self.unreadable
    }

    /// Bytes from an offset on; `None` if they are not all there, or cannot be read.
    pub fn bytes(&mut self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let end = offset.checked_add(len as u64)?;
        if end > self.size_bytes() {
            return None;
        }
        let mut bytes = Vec::with_capacity(len);
        let mut at = offset;
        while at < end {
            let begin = at / BLOCK_BYTES * BLOCK_BYTES;
            let block = self.block(begin)?;
            let to = (end - begin).min(BLOCK_BYTES) as usize;
            bytes.extend_from_slice(&block[(at - begin) as usize..to]);
            at = begin + BLOCK_BYTES;
        }
        Some(bytes)
    }

    fn block(&mut self, begin: u64) -> Option<&[u8]> {
        if !self.blocks.contains_key(&begin) {
            let len = (self.size_bytes() - begin).min(BLOCK_BYTES) as usize;
            let mut block = vec![0; len];
            let read = self.read(begin, &mut block).then_some(block);
            self.blocks.insert(begin, read);
        }
        self.blocks.get(&begin).and_then(Option::as_deref)
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> bool {
        let Err(error) = self.source.read_at(offset, into) else { return true };
        if self.unreadable.len() < UNREADABLE_MAX {
            self.unreadable.push(Unreadable { offset, error: error.to_string() });
        }
        false
    }

    /// The first byte that is not zero, of both ends and of places between them.
    pub fn first_not_zero(&mut self) -> Option<u64> {
        let size = self.size_bytes();
        let between = size.saturating_sub(2 * END_BYTES) / SAMPLES;
        let samples = (0..SAMPLES).map(|sample| (END_BYTES + sample * between, SAMPLE_BYTES));
        let places = std::iter::once((0, END_BYTES))
            .chain(samples)
            .chain(std::iter::once((size.saturating_sub(END_BYTES), END_BYTES)));
        let mut piece = Vec::new();
        for (begin, len) in places {
            let end = (begin + len).min(size);
            let mut at = begin;
            while at < end {
                piece.resize((end - at).min(SAMPLE_BYTES) as usize, 0);
                if self.read(at, &mut piece)
                    && let Some(byte) = piece.iter().position(|byte| *byte != 0)
                {
                    return Some(at + byte as u64);
                }
                at += SAMPLE_BYTES;
            }
        }
        None
    }
}
