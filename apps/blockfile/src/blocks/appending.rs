//! Appends of batches, side by side where they can be; what failed goes elsewhere.

use super::Blocks;
use crate::FileError;
use crate::map::Place;
use crate::medium::Append;
use crate::types::STREAMS;
use diecut_blockspace::wire::Status;
use diecut_blockspace::{BlockError, LogicalBlock};
use diecut_units::IU_SIZE_BYTES;

/// Bytes to append, and the places they got.
pub(crate) struct Batch {
    pub stream: usize,
    pub bytes: Vec<u8>,
    pub place: Option<Place>,
    /// The block that did not take it.
    refused_by: Option<LogicalBlock>,
}

impl Batch {
    pub fn new(stream: usize, bytes: Vec<u8>) -> Batch {
        Batch { stream, bytes, place: None, refused_by: None }
    }
}

impl Blocks {
    /// Appends all, at work side by side; fills in places.
    pub fn append_all(&mut self, batches: &mut [Batch]) -> Result<(), FileError> {
        batches.iter_mut().for_each(|batch| batch.stream = self.stream_of(batch.stream));
        let mut rest = &mut *batches;
        while !rest.is_empty() {
            let count = self.count_that_fits(rest);
            let (some, later) = rest.split_at_mut(count);
            self.append_some(some)?;
            rest = later;
        }
        for batch in batches.iter_mut().filter(|batch| batch.place.is_none()) {
            self.append_again(batch)?;
        }
        Ok(())
    }

    /// How many batches, one at least, can go side by side: a block is closed when all that is in it was answered.
    fn count_that_fits(&self, batches: &[Batch]) -> usize {
        let mut left = [None; STREAMS];
        let mut fits = |batch: &Batch| {
            let ius = (batch.bytes.len() / IU_SIZE_BYTES) as u32;
            let of_stream = &mut left[batch.stream];
            // The first batch of a stream may close the block of before.
            let room = match (*of_stream, self.open[batch.stream]) {
                (Some(room), _) => room,
                (None, Some(open)) if open.written_ius + ius <= self.block_ius() => {
                    self.block_ius() - open.written_ius
                }
                (None, _) => self.block_ius(),
            };
            *of_stream = room.checked_sub(ius);
            of_stream.is_some()
        };
        let count = batches.iter().take(self.medium.side_by_side()).take_while(|batch| fits(batch)).count();
        count.max(1)
    }

    /// Appends batches that fit, see above. What failed has no place after it.
    fn append_some(&mut self, batches: &mut [Batch]) -> Result<(), FileError> {
        for batch in batches.iter_mut() {
            let ius = (batch.bytes.len() / IU_SIZE_BYTES) as u32;
            let mut open = self.open(batch.stream, ius)?;
            batch.place = Some(Place { block: open.block, iu: open.written_ius });
            open.written_ius += ius;
            open.at_risk = true;
            self.open[batch.stream] = Some(open);
            self.appended_ius += u64::from(ius);
        }
        let appends = batches.iter().map(|batch| {
            let block = batch.place.expect("given above").block;
            Append { block, bytes: &batch.bytes }
        });
        let ended = self.medium.append_all(&appends.collect::<Vec<_>>())?;
        for (batch, outcome) in batches.iter_mut().zip(ended) {
            match outcome {
                Ok(offset) => {
                    let place = batch.place.expect("given above");
                    assert_eq!(offset, u64::from(place.iu) * IU_SIZE_BYTES as u64, "blocks are ours alone");
                }
                Err(BlockError::Status(Status::AppendFailed | Status::UnitOffline)) => {
                    batch.refused_by = batch.place.take().map(|place| place.block);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// After a program that failed: the same batch into other blocks, until one takes it.
    fn append_again(&mut self, batch: &mut Batch) -> Result<(), FileError> {
        for _ in 0..16 {
            // What failed takes no more appends, not even filling: what it holds before is what it is. It is closed at once, because open
            // ones are few; a batch that it has a part of is told by its check. Another batch may have opened the next one already.
            if self.open[batch.stream].is_some_and(|open| batch.refused_by == Some(open.block)) {
                self.end(batch.stream)?;
            }
            let ius = (batch.bytes.len() / IU_SIZE_BYTES) as u32;
            let mut open = self.open(batch.stream, ius)?;
            let place = Place { block: open.block, iu: open.written_ius };
            open.written_ius += ius;
            open.at_risk = true;
            self.open[batch.stream] = Some(open);
            match self.append(open.block, &batch.bytes) {
                Ok(()) => {
                    batch.place = Some(place);
                    return Ok(());
                }
                Err(BlockError::Status(Status::AppendFailed | Status::UnitOffline)) => {
                    batch.refused_by = Some(open.block);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(FileError::Failed)
    }
}
