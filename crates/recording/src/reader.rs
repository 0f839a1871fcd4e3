//! Reading a recording back, entry by entry.

use crate::entry::Entry;
use crate::start::Start;
use crate::{CHUNK_MAX_BYTES, ChunkHead, Head, MAGIC, VERSION};
use diecut_units::checksum;
use std::io::{self, ErrorKind, Read};
use zerocopy::{FromZeros, IntoBytes};

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The source.
    #[error("cannot be read: {0}")]
    Source(#[from] io::Error),
    /// It is no recording.
    #[error("is no recording of diecut (`diecut serve --record`)")]
    NoRecording,
    /// Another version's.
    #[error("has version {0} of the format, this program reads version {VERSION}")]
    Version(u32),
    /// Its bytes are wrong.
    #[error("is damaged: {0}")]
    Damaged(String),
}

/// A recording that is read.
pub struct RecordingReader<R: Read> {
    from: R,
    start: Start,
    chunk: Vec<u8>,
    /// Bytes of the chunk that were taken.
    taken: usize,
    torn: bool,
    ended: bool,
}

/// How much of a place could be filled.
fn fill(from: &mut impl Read, place: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < place.len() {
        match from.read(&mut place[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

impl<R: Read> RecordingReader<R> {
    /// Opens a recording.
    ///
    /// # Errors
    /// Why it is none.
    pub fn new(mut from: R) -> Result<RecordingReader<R>, ReadError> {
        let mut head = Head::new_zeroed();
        if fill(&mut from, head.as_mut_bytes())? < size_of::<Head>() || head.magic != MAGIC {
            return Err(ReadError::NoRecording);
        }
        if head.version != VERSION {
            return Err(ReadError::Version(head.version.get()));
        }
        let length = head.start_length.get();
        if length > CHUNK_MAX_BYTES {
            return Err(ReadError::Damaged(format!("its start has {length} bytes")));
        }
        let mut start = vec![0; length as usize];
        if fill(&mut from, &mut start)? < start.len() || head.start_check != checksum(&start) {
            return Err(ReadError::Damaged("its start fails its checksum".to_owned()));
        }
        let start = serde_json::from_slice(&start)
            .map_err(|error| ReadError::Damaged(format!("its start: {error}")))?;
        Ok(RecordingReader { from, start, chunk: Vec::new(), taken: 0, torn: false, ended: false })
    }

    /// What the run started on.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// Whether its end was read.
    pub fn has_end(&self) -> bool {
        self.ended
    }

    /// Whether it stopped at a chunk that is torn or fails its checksum, as after the death of the server.
    pub fn is_torn(&self) -> bool {
        self.torn
    }

    /// The next entry; none after the end, and where the rest is torn.
    ///
    /// # Errors
    /// What is wrong with the recording.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, ReadError> {
        if self.taken == self.chunk.len() && !self.next_chunk()? {
            return Ok(None);
        }
        if self.ended {
            return Err(ReadError::Damaged("something follows its end".to_owned()));
        }
        let mut rest = &self.chunk[self.taken..];
        let entry = Entry::decode(&mut rest).map_err(ReadError::Damaged)?;
        self.taken = self.chunk.len() - rest.len();
        self.ended = matches!(entry, Entry::End(_));
        Ok(Some(entry))
    }

    fn next_chunk(&mut self) -> Result<bool, ReadError> {
        let mut head = ChunkHead::new_zeroed();
        let filled = fill(&mut self.from, head.as_mut_bytes())?;
        if self.torn || filled < size_of::<ChunkHead>() {
            self.torn |= filled > 0;
            return Ok(false);
        }
        let length = head.length.get();
        self.taken = 0;
        self.chunk.clear();
        if length == 0 || length > CHUNK_MAX_BYTES {
            self.torn = true;
            return Ok(false);
        }
        // As long as there are bytes: a length that lies costs no memory.
        (&mut self.from).take(length.into()).read_to_end(&mut self.chunk)?;
        if self.chunk.len() < length as usize || head.check != checksum(&self.chunk) {
            self.chunk.clear();
            self.torn = true;
            return Ok(false);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::writer::RecordingWriter;
    use diecut_devices::{Options, Profile};
    use diecut_shard::ShardConfig;
    use diecut_units::{Span, Time};

    fn recording() -> Vec<u8> {
        let profile = Profile::named("tiny").unwrap();
        let start = Start::new(&profile, &Options::default(), &ShardConfig::default(), Time(5)).unwrap();
        let mut writer = RecordingWriter::new(Vec::new(), &start).unwrap();
        for chunk in 0..3 {
            for _ in 0..10 {
                writer.append(&Entry::Time(Span(chunk))).unwrap();
            }
            writer.flush().unwrap();
        }
        writer.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> (usize, bool) {
        let mut reader = RecordingReader::new(bytes).unwrap();
        let mut entries = 0;
        while reader.next_entry().unwrap().is_some() {
            entries += 1;
        }
        (entries, reader.is_torn())
    }

    #[test]
    fn a_torn_end_is_left_out_and_told() {
        let whole = recording();
        assert_eq!(read(&whole), (30, false));
        let chunk = 8 + 10 * 2;
        for cut in 1..chunk {
            assert_eq!(read(&whole[..whole.len() - cut]), (20, true), "{cut} bytes less");
        }
        assert_eq!(read(&whole[..whole.len() - chunk]), (20, false));
        let mut flipped = whole.clone();
        let at = whole.len() - chunk - 1;
        flipped[at] ^= 1;
        assert_eq!(read(&flipped), (10, true), "nothing behind a damaged chunk counts");
    }

    #[test]
    fn other_files_are_refused() {
        let whole = recording();
        let refused = |bytes: &[u8]| RecordingReader::new(bytes).err().unwrap().to_string();
        assert!(refused(b"something else, long enough").contains("no recording"));
        let mut other = whole.clone();
        other[8] = VERSION as u8 + 1;
        assert!(refused(&other).contains(&format!("version {}", VERSION + 1)));
        let mut damaged = whole;
        damaged[30] ^= 1;
        assert!(refused(&damaged).contains("checksum"));
    }
}
