//! Writes: each program unit goes to flash as it comes.

use crate::chunk::Chunk;
use crate::contract::{ChunkError, ChunkRefusal, ChunkState, LbaList};
use crate::mark::{self, Mark, Place};
use crate::operations::Ended;
use crate::reads::chunk_of;
use crate::shape::{ChunkIndex, ChunkShape};
use crate::store::Facts;
use crate::token::Kind;
use diecut_units::{BufferPool, Payload, Slab, checksum, mark, mutant};
use diecut_vssd::space::{EraseBlockSpace, IoClass, PayloadParts, Purpose, SpaceError};
use smallvec::SmallVec;

/// `Purpose` of the erase blocks of chunks.
pub(crate) const PURPOSE_CHUNK: Purpose = Purpose(1);
/// Erase blocks of a chunk that may fail before it holds anything. A choice: more in a row are a die that fails.
const TRIES_MAX: u8 = 4;

/// A program unit on its way.
pub(crate) struct Program {
    operation: u32,
    chunk: u32,
    row: u32,
    /// Place of its first logical block in the list of its command.
    at: u32,
    data: Payload,
}

/// Where program units of a command go: chunk, first row, number of rows.
pub(crate) type Pieces = SmallVec<[(u32, u32, u32); 4]>;

/// Programs that are under way.
#[derive(Default)]
pub(crate) struct Writer {
    pub programs: Slab<Program>,
    pub next_generation: u32,
}

/// What a write is lent.
pub(crate) struct WriteLent<'a> {
    pub set: u32,
    pub shape: &'a ChunkShape,
    pub facts: &'a Facts,
    pub chunks: &'a mut [Chunk],
    pub pool: &'a mut BufferPool,
    /// Erase blocks are on their way back: one that is lacking comes.
    pub blocks_return: bool,
    /// An erase block was given back: a sync follows.
    pub has_freed: bool,
    pub space: &'a mut dyn EraseBlockSpace,
}

/// Cuts a write into pieces of chunks, if all of it can be written.
///
/// # Errors
/// Why it cannot: nothing changed.
pub(crate) fn pieces_of(lbas: &LbaList, shape: &ChunkShape, chunks: &[Chunk]) -> Result<Pieces, ChunkError> {
    let mut pieces = Pieces::new();
    for run in &lbas.0 {
        let mut done = 0;
        while done < run.count {
            let (chunk, block) = chunk_of(shape, run.lba + u64::from(done))?;
            let count = (run.count - done).min(shape.chunk_ius() - block);
            if !count.is_multiple_of(shape.unit_ius) {
                return Err(ChunkError::Refused(ChunkRefusal::ListLength));
            }
            if !block.is_multiple_of(shape.unit_ius) {
                return Err(ChunkError::Refused(ChunkRefusal::OutOfOrder));
            }
            let row = block / shape.unit_ius;
            // A command may go on in a chunk that it has written to before.
            let before: u32 = pieces.iter().filter(|(of, ..)| *of == chunk.0).map(|(.., rows)| rows).sum();
            let row_of_chunk = row.checked_sub(before);
            let row_of_chunk = row_of_chunk.ok_or(ChunkError::Refused(ChunkRefusal::OutOfOrder))?;
            chunks[chunk.0 as usize].check_write(row_of_chunk)?;
            pieces.push((chunk.0, row, count / shape.unit_ius));
            done += count;
        }
    }
    Ok(pieces)
}

/// Gives a block to each chunk of a write that has none.
///
/// # Errors
/// Why one gets none: those that got one keep it.
pub(crate) fn allocate(pieces: &Pieces, lent: &mut WriteLent<'_>) -> Result<(), ChunkError> {
    for (chunk, ..) in pieces {
        if lent.chunks[*chunk as usize].block.is_none() {
            allocate_one(*chunk, lent)?;
        }
    }
    Ok(())
}

fn allocate_one(index: u32, lent: &mut WriteLent<'_>) -> Result<(), ChunkError> {
    let unit = lent.shape.unit_of(ChunkIndex(index));
    let no_room = ChunkError::NoRoom { reason: "the file system below is full" };
    if !lent.space.make_room(unit) {
        return Err(no_room);
    }
    let chunk = &mut lent.chunks[index as usize];
    match lent.space.allocate(unit, PURPOSE_CHUNK) {
        Ok(block) => {
            chunk.block = Some(block);
            Ok(())
        }
        Err(SpaceError::NoRoom) => Err(no_room),
        Err(SpaceError::PowerLost) => Err(ChunkError::Gone),
        Err(SpaceError::ReadOnly) => {
            Err(ChunkError::ReadOnly { reason: "the reserve of good erase blocks is used up" })
        }
        Err(SpaceError::NoFreeBlock { .. }) if lent.blocks_return => {
            Err(ChunkError::NoRoom { reason: "erase blocks are on their way back" })
        }
        Err(_) => {
            chunk.state = ChunkState::Offline;
            Err(ChunkError::Refused(ChunkRefusal::Offline))
        }
    }
}

impl Writer {
    /// Whether none is under way.
    pub fn is_done(&self) -> bool {
        self.programs.is_empty()
    }

    /// Hands all program units of a write over to flash. Gives how many.
    pub fn begin(
        &mut self,
        operation: u32,
        pieces: &Pieces,
        data: &Payload,
        lent: &mut WriteLent<'_>,
    ) -> u32 {
        let unit_ius = lent.shape.unit_ius;
        let mut units = 0;
        for &(index, first_row, rows) in pieces {
            let chunk = &mut lent.chunks[index as usize];
            if chunk.taken_rows == 0 {
                chunk.generation = self.next_generation;
                self.next_generation = self.next_generation.wrapping_add(1);
                chunk.state = ChunkState::Open;
            }
            assert_eq!(chunk.taken_rows, first_row, "I-K6: a chunk is written in order");
            chunk.taken_rows += rows;
            chunk.under_way += rows;
            for row in first_row..first_row + rows {
                let at = units * unit_ius;
                let data = data.slice(at, unit_ius);
                let place = self.programs.insert(Program { operation, chunk: index, row, at, data });
                self.append(place, lent);
                units += 1;
            }
        }
        assert_eq!(units * unit_ius, data.iu_count(), "I-K6: data are as long as where they go");
        units
    }

    fn append(&self, place: u32, lent: &mut WriteLent<'_>) {
        let Program { chunk, row, data, .. } = self.programs.get(place).expect("I-K6: a program is there");
        let of = &lent.chunks[*chunk as usize];
        let block = of.block.expect("I-K6: a chunk that is written has a block");
        let mark = Mark { set: lent.set, chunk: *chunk, generation: of.generation };
        let shape = &lent.facts.block;
        let (pages, page_ius) = (shape.program_unit_pages, shape.ius_per_page());
        let mut oob = lent.pool.take_zeroed(shape.program_unit_oob_size_bytes() as usize);
        for (page, oob) in (0..pages).zip(oob.chunks_exact_mut(shape.oob_size_bytes as usize)) {
            let sums: SmallVec<[u32; 16]> =
                (0..page_ius).map(|iu| checksum(data.iu(page * page_ius + iu))).collect();
            let at = Place { unit: block.unit, page: row * pages + page };
            mark::encode(mark, at, sums.into_iter(), &mut oob[shape.holder_oob_offset as usize..]);
        }
        let mut parts = PayloadParts::new();
        parts.push(data.clone());
        lent.space.append(Kind::Program.token(place), block, parts, oob, IoClass::HostWrite);
    }

    /// A program came back. Calls `ended` for each part of a command that is over.
    pub fn programmed(
        &mut self,
        place: u32,
        result: Result<(), SpaceError>,
        lent: &mut WriteLent<'_>,
        mut ended: impl FnMut(Ended),
    ) {
        let Program { operation, chunk: index, row, at, .. } =
            *self.programs.get(place).expect("I-K6: a program is there");
        let chunk = &mut lent.chunks[index as usize];
        let refused = |refusal| Err(ChunkError::Refused(refusal));
        let answer = match result {
            Ok(()) => {
                assert_eq!(chunk.done_rows, row, "I-K6: rows are programmed in order");
                chunk.done_rows += 1;
                if chunk.done_rows == lent.shape.rows && chunk.state == ChunkState::Open {
                    chunk.state = ChunkState::Closed;
                }
                Ok(())
            }
            Err(SpaceError::PowerLost) => Err(ChunkError::Gone),
            Err(SpaceError::UnitOffline { .. }) => {
                chunk.state = ChunkState::Offline;
                refused(ChunkRefusal::Offline)
            }
            Err(_) if chunk.done_rows == 0 && chunk.state == ChunkState::Open => {
                // Nothing lies there: it gets another block, and nobody is told.
                chunk.failed.push(place);
                if chunk.failed.len() as u32 == chunk.under_way {
                    self.begin_again(index, lent, ended);
                }
                return;
            }
            Err(_) => {
                if chunk.state == ChunkState::Open {
                    mark!("openchannel: program failed, and its chunk is closed");
                    if !mutant!("openchannel: a chunk stays open after a failed program") {
                        chunk.state = ChunkState::Closed;
                    }
                }
                chunk.taken_rows = chunk.done_rows;
                refused(ChunkRefusal::EarlyClose)
            }
        };
        self.programs.remove(place);
        chunk.under_way -= 1;
        ended(Ended::of(operation, answer, at, lent.shape.unit_ius));
        // Those that failed before and were to go to another block have none to go to now.
        for place in std::mem::take(&mut chunk.failed) {
            chunk.under_way -= 1;
            let Program { operation, at, .. } = self.programs.remove(place);
            ended(Ended::of(operation, refused(ChunkRefusal::Offline), at, lent.shape.unit_ius));
        }
    }

    /// All programs of a chunk that holds nothing failed: its block goes, and another one takes them.
    fn begin_again(&mut self, index: u32, lent: &mut WriteLent<'_>, mut ended: impl FnMut(Ended)) {
        mark!("openchannel: a chunk begins again on another block");
        let chunk = &mut lent.chunks[index as usize];
        chunk.tries += 1;
        let is_over = chunk.tries >= TRIES_MAX;
        let mut failed = std::mem::take(&mut chunk.failed);
        let old = chunk.block.take().expect("I-K6: a chunk that is written has a block");
        lent.space.free(old).expect("I-K3: a chunk holds its block");
        (lent.has_freed, lent.blocks_return) = (true, true);
        let allocated =
            if is_over { Err(ChunkError::Refused(ChunkRefusal::Offline)) } else { allocate_one(index, lent) };
        let row_of = |place: &u32| self.programs.get(*place).expect("I-K6: a program is there").row;
        failed.sort_by_key(row_of);
        let Err(error) = allocated else {
            failed.into_iter().for_each(|place| self.append(place, lent));
            return;
        };
        let chunk = &mut lent.chunks[index as usize];
        chunk.under_way = 0;
        chunk.taken_rows = 0;
        chunk.state = if is_over || chunk.state == ChunkState::Offline {
            ChunkState::Offline
        } else {
            ChunkState::Free
        };
        for place in failed {
            let program = self.programs.remove(place);
            let Program { operation, at, .. } = program;
            ended(Ended::of(operation, Err(error.clone()), at, lent.shape.unit_ius));
        }
    }
}
