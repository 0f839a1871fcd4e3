//! Chunks that are to be free, whatever they are: who waits for one that is being written.

use crate::chunk::Chunk;

/// See the module. Nobody waits but beside a sanitize of another subsystem that shows the same chunks.
#[derive(Default)]
pub(crate) struct Clearing {
    /// Chunks, and the places of the commands that clear them.
    waiting: Vec<(u32, u32)>,
}

impl Clearing {
    /// A command waits until nothing is under way for a chunk.
    pub fn wait(&mut self, chunk: u32, operation: u32) {
        self.waiting.push((chunk, operation));
    }

    /// Takes a chunk for which nothing is under way any more, and a command that waited for it.
    pub fn next(&mut self, chunks: &[Chunk]) -> Option<(u32, u32)> {
        let is_over = |(chunk, _): &(u32, u32)| chunks[*chunk as usize].under_way == 0;
        let place = self.waiting.iter().position(is_over)?;
        Some(self.waiting.swap_remove(place))
    }
}
