//! Moves inside the medium: what the cleaner moves is copied by the device and does not come here.
//!
//! A run is a batch of kind filling, a program unit of it, and behind that what the device copied. No record says whose that is: the round
//! of the cleaner ends with a checkpoint, which does, and until then all of it counts where it was. So nobody ever looks at a run of which
//! an end left a part, whatever the medium says of where its block ends.

use crate::FileError;
use crate::blocks::Blocks;
use crate::format::{Header, Kind};
use crate::map::{Extent, Place};
use crate::medium::Span;
use crate::types::{COLD, IU};
use diecut_blockspace::{BlockError, wire::Status};
use diecut_units::{IU_SIZE_BYTES, mutant};
use std::collections::VecDeque;

/// A block holds so many program units at least, or the first units of runs, which hold nothing, would be too much of it.
const UNITS_PER_BLOCK_MIN: u32 = 8;

/// Part of a file that is to lie elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub file: u64,
    /// First IU in the file.
    pub first: u64,
    /// Where it lies.
    pub extent: Extent,
}

/// What a round of the cleaner has to move.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    moves: VecDeque<Move>,
    ius: u64,
}

impl Moves {
    pub fn add(&mut self, one: Move) {
        self.ius += u64::from(one.extent.count);
        self.moves.push_back(one);
    }

    pub fn next(&mut self) -> Option<Move> {
        let one = self.moves.pop_front()?;
        self.ius -= u64::from(one.extent.count);
        Some(one)
    }

    /// The first ones, of so many IUs at most; the last of them may be a part of one.
    fn take(&mut self, mut ius: u32) -> Vec<Move> {
        let mut taken = Vec::new();
        while let Some(one) = if ius > 0 { self.next() } else { None } {
            let count = one.extent.count.min(ius);
            if count < one.extent.count {
                self.put_back(one.skip(count));
            }
            taken.push(one.cut(count));
            ius -= count;
        }
        taken
    }

    fn put_back(&mut self, one: Move) {
        self.ius += u64::from(one.extent.count);
        self.moves.push_front(one);
    }
}

impl Move {
    fn cut(self, count: u32) -> Move {
        Move { extent: Extent { count, ..self.extent }, ..self }
    }

    fn skip(self, ius: u32) -> Move {
        Move { first: self.first + u64::from(ius), extent: self.extent.skip(ius.into()), ..self }
    }

    fn span(&self) -> Span {
        span(self.extent.place, self.extent.count)
    }
}

fn span(place: Place, ius: u32) -> Span {
    Span { block: place.block, offset_bytes: u64::from(place.iu) * IU, length_bytes: u64::from(ius) * IU }
}

/// What a run moved, and where it lies now.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    pub placed: Vec<(Move, Place)>,
    /// Whether another run may move more.
    pub goes_on: bool,
}

/// Copies what comes first into one block, as much as it takes. What could not be copied stays in `moves`.
pub(crate) fn run(blocks: &mut Blocks, moves: &mut Moves) -> Result<Moved, FileError> {
    let unit = blocks.unit_ius();
    if moves.ius == 0 || !blocks.medium.can_copy() || blocks.block_ius() / unit < UNITS_PER_BLOCK_MIN {
        return Ok(Moved::default());
    }
    let (begin, room) = blocks.room(COLD, 2 * unit)?;
    let data_ius = moves.ius.min(u64::from(room - unit)) as u32;
    let wanted_ius = data_ius.next_multiple_of(unit);
    if !begin_run(blocks, begin, data_ius)? {
        blocks.end(COLD)?;
        return Ok(Moved::default());
    }
    let some = moves.take(data_ius);
    let mut sources: Vec<Span> = some.iter().map(Move::span).collect();
    // The last unit is filled with the zeros behind the header.
    let filling_ius = wanted_ius - data_ius;
    sources.extend((filling_ius > 0).then(|| span(Place { iu: begin.iu + 1, ..begin }, filling_ius)));
    let copied_ius = (blocks.medium.copy(begin.block, &sources)? / IU) as u32;
    assert!(copied_ius <= wanted_ius, "I-F8: no more was copied than was asked for");
    blocks.wrote(COLD, copied_ius);
    let is_whole = copied_ius == wanted_ius;
    if !is_whole {
        blocks.end(COLD)?;
    }
    let moved_ius = if mutant!("blockfile: what was not copied is moved") { data_ius } else { copied_ius };
    let placed = place(some, Place { iu: begin.iu + unit, ..begin }, moved_ius, moves);
    Ok(Moved { placed, goes_on: is_whole })
}

/// Where what was copied lies; the rest is to be moved still.
fn place(some: Vec<Move>, mut at: Place, mut copied_ius: u32, moves: &mut Moves) -> Vec<(Move, Place)> {
    let (mut placed, mut rest) = (Vec::with_capacity(some.len()), Vec::new());
    for one in some {
        let count = one.extent.count.min(copied_ius);
        if count > 0 {
            placed.push((one.cut(count), at));
        }
        if count < one.extent.count {
            rest.push(one.skip(count));
        }
        at.iu += count;
        copied_ius -= count;
    }
    rest.into_iter().rev().for_each(|one| moves.put_back(one));
    placed
}

/// Says to whoever reads the block's batches that they go on behind the run. Says whether the block took it.
fn begin_run(blocks: &mut Blocks, begin: Place, data_ius: u32) -> Result<bool, FileError> {
    let unit = blocks.unit_ius();
    let data_ius =
        if mutant!("blockfile: a header of a run says that nothing follows") { 0 } else { data_ius };
    let header = Header {
        kind: Kind::Filling,
        sequence: 0,
        ius: unit + data_ius.next_multiple_of(unit),
        data_ius,
        length_bytes: 0,
        part: 0,
        parts: 0,
        data_check: 0,
    };
    let mut bytes = header.encode(&[]).to_vec();
    bytes.resize(unit as usize * IU_SIZE_BYTES, 0);
    blocks.wrote(COLD, unit);
    match blocks.append(begin.block, &bytes) {
        Ok(()) => Ok(true),
        Err(BlockError::Status(Status::AppendFailed | Status::UnitOffline)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_blockspace::{LogicalBlock, UnitIndex};

    fn place_of(index: u32, iu: u32) -> Place {
        Place { block: LogicalBlock { unit: UnitIndex(0), index }, iu }
    }

    /// Goal: what was copied is placed IU by IU, and what was not is still to be moved, in its order. Method: every border between both.
    #[test]
    fn what_was_not_copied_is_still_to_be_moved() {
        let extents = [(7, 0, 1, 5), (7, 10, 2, 1), (8, 3, 1, 4)];
        for taken_ius in 0..=10 {
            for copied_ius in 0..=taken_ius {
                let mut moves = Moves::default();
                for (file, first, index, count) in extents {
                    let extent = Extent { count, place: place_of(index, 20) };
                    moves.add(Move { file, first, extent });
                }
                let each = |one: &Move| -> Vec<(u64, u64, u32, u32)> {
                    let of = |at| {
                        let extent = one.extent.skip(at);
                        (one.file, one.first + at, extent.place.block.index, extent.place.iu)
                    };
                    (0..u64::from(one.extent.count)).map(of).collect()
                };
                let all: Vec<_> = moves.moves.iter().flat_map(each).collect();
                let some = moves.take(taken_ius);
                assert_eq!(moves.ius, u64::from(10 - taken_ius));
                let placed = place(some, place_of(9, 40), copied_ius, &mut moves);
                let mut found: Vec<_> = placed.iter().flat_map(|(one, _)| each(one)).collect();
                assert_eq!(found.len(), copied_ius as usize);
                let places: Vec<u32> =
                    placed.iter().flat_map(|(one, at)| at.iu..at.iu + one.extent.count).collect();
                assert_eq!(places, (40..40 + copied_ius).collect::<Vec<_>>());
                assert_eq!(moves.ius, u64::from(10 - copied_ius));
                found.extend(std::iter::from_fn(|| moves.next()).flat_map(|one| each(&one)));
                assert_eq!(found, all, "{taken_ius} taken, {copied_ius} copied");
            }
        }
    }
}
