//! Writing a recording: the head, then chunks of entries.

use crate::entry::Entry;
use crate::start::Start;
use crate::{CHUNK_MAX_BYTES, ChunkHead, Head};
use std::io::{self, Write};
use zerocopy::IntoBytes;

/// A chunk is written when it has so many bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// A recording that is being written.
pub struct RecordingWriter<W: Write> {
    to: W,
    /// Entries of the chunk, behind room for its head.
    chunk: Vec<u8>,
    written_bytes: u64,
}

const CHUNK_HEAD_BYTES: usize = size_of::<ChunkHead>();

impl<W: Write> RecordingWriter<W> {
    /// Begins a recording.
    ///
    /// # Errors
    /// What the destination says.
    pub fn new(mut to: W, start: &Start) -> io::Result<RecordingWriter<W>> {
        let start = serde_json::to_vec(start).expect("a start is plain data");
        let head = [Head::new(&start).as_bytes(), &start].concat();
        to.write_all(&head)?;
        let chunk = vec![0; CHUNK_HEAD_BYTES];
        Ok(RecordingWriter { to, chunk, written_bytes: head.len() as u64 })
    }

    /// Bytes so far, those that wait for their chunk included.
    pub fn len_bytes(&self) -> u64 {
        self.written_bytes + self.chunk.len() as u64
    }

    /// Where the next entry's bytes go; [`RecordingWriter::entry_done`] follows.
    pub(crate) fn entry(&mut self) -> &mut Vec<u8> {
        &mut self.chunk
    }

    /// The entry is whole.
    ///
    /// # Errors
    /// What the destination says.
    pub(crate) fn entry_done(&mut self) -> io::Result<()> {
        if self.chunk.len() >= CHUNK_BYTES { self.flush() } else { Ok(()) }
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// What the destination says.
    pub fn append(&mut self, entry: &Entry) -> io::Result<()> {
        entry.encode(&mut self.chunk);
        self.entry_done()
    }

    /// Writes what waits for its chunk to be full.
    ///
    /// # Errors
    /// What the destination says.
    pub fn flush(&mut self) -> io::Result<()> {
        let length = self.chunk.len() - CHUNK_HEAD_BYTES;
        if length == 0 {
            return Ok(());
        }
        if length > CHUNK_MAX_BYTES as usize {
            return Err(io::Error::other(format!("an entry of {length} bytes is too long for a recording")));
        }
        let (head, content) = self.chunk.split_at_mut(CHUNK_HEAD_BYTES);
        head.copy_from_slice(ChunkHead::new(content).as_bytes());
        self.to.write_all(&self.chunk)?;
        self.written_bytes += self.chunk.len() as u64;
        self.chunk.truncate(CHUNK_HEAD_BYTES);
        self.to.flush()
    }

    /// Writes everything and gives the destination back.
    ///
    /// # Errors
    /// What the destination says.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        Ok(self.to)
    }
}
