//! What the frames of one block come to.

use crate::State;
use crate::document::read_document;
use crate::frame::{Frame, FrameError, Part, Place, decode_frame};
use crate::record::RecordError;
use diecut_units::mutant;

/// Numbers from here on leave none for what comes.
pub(crate) const SEQUENCE_END: u64 = u64::MAX / 2;

/// Makes states of the frames of one block, taken in order.
#[derive(Default)]
pub(crate) struct Replay {
    /// The newest state there is so far.
    newest: Option<(u64, State)>,
    /// The newest document of version 1; each is a whole state.
    document: Option<(u64, Vec<u8>)>,
    /// A batch of which parts are missing: what it makes and changes, its parts, those that came, their records.
    batch: Option<(u64, u64, u32, u32, Vec<u8>)>,
}

impl Replay {
    /// Takes the next frame of the block, and gives its number.
    pub fn frame(&mut self, bytes: &[u8], place: Option<Place>) -> Result<u64, ReplayError> {
        match decode_frame(bytes, place)? {
            Frame::Document { sequence, text } => {
                if self.document.as_ref().is_none_or(|(newest, _)| sequence > *newest) {
                    self.document = Some((sequence, text.to_vec()));
                }
                Ok(sequence)
            }
            Frame::Part(part) => self.part(&part).map(|()| part.sequence),
        }
    }

    /// A frame cannot be read: its batch is not complete, and what follows changes a state that is not there.
    pub fn gap(&mut self) {
        self.batch = None;
    }

    fn part(&mut self, part: &Part<'_>) -> Result<(), ReplayError> {
        let Part { sequence, follows, part, parts, records } = *part;
        if part == 0 {
            self.batch = Some((sequence, follows, parts, 0, Vec::new()));
        }
        let Some((of, to, count, next, all)) = &mut self.batch else { return Ok(()) };
        if (*of, *to, *count, *next) != (sequence, follows, parts, part) {
            self.batch = None;
            return Ok(());
        }
        all.extend_from_slice(records);
        *next += 1;
        if *next < parts {
            return Ok(());
        }
        let (.., all) = self.batch.take().expect("just filled");
        self.complete(sequence, follows, &all)
    }

    fn complete(&mut self, sequence: u64, follows: u64, records: &[u8]) -> Result<(), ReplayError> {
        if mutant!("catalog: oldest frame wins") && self.newest.is_some() {
            return Ok(());
        }
        if sequence >= SEQUENCE_END {
            return Err(ReplayError::End(sequence));
        }
        if self.newest.as_ref().is_some_and(|(newest, _)| *newest >= sequence) {
            return Ok(());
        }
        let state = match &mut self.newest {
            _ if follows == 0 => &mut self.newest.insert((sequence, State::default())).1,
            Some((newest, state)) if *newest == follows => {
                *newest = sequence;
                state
            }
            // I-C2: something that it builds on is missing.
            _ => return Ok(()),
        };
        Ok(state.apply_all(records)?)
    }

    /// The newest state of the block.
    pub fn finish(self) -> Result<Option<(u64, State)>, ReplayError> {
        let of_document = match self.document {
            Some((sequence, _)) if sequence >= SEQUENCE_END => return Err(ReplayError::End(sequence)),
            Some((sequence, text)) => Some((sequence, read_document(&text)?)),
            None => None,
        };
        Ok(self.newest.into_iter().chain(of_document).max_by_key(|(sequence, _)| *sequence))
    }
}

/// Why what lies in a block is not what exists.
pub(crate) enum ReplayError {
    Frame(FrameError),
    Record(RecordError),
    End(u64),
}

impl From<FrameError> for ReplayError {
    fn from(error: FrameError) -> ReplayError {
        ReplayError::Frame(error)
    }
}

impl From<RecordError> for ReplayError {
    fn from(error: RecordError) -> ReplayError {
        ReplayError::Record(error)
    }
}
