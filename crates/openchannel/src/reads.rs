//! Reads: from flash a program unit at a time, and checked.

use crate::chunk::Chunk;
use crate::contract::{ChunkError, ChunkRefusal, LbaList};
use crate::mark::{self, Mark, Place};
use crate::shape::{ChunkIndex, ChunkShape};
use crate::store::Facts;
use crate::token::Kind;
use diecut_units::{BufferMut, BufferPool, Slab, checksum, mutant};
use diecut_vssd::space::{BlockRun, EraseBlockSpace, IoClass, SpaceCompletion, SpaceError, UnitIndex};

/// One read of a block.
struct Part {
    operation: u32,
    lba: u64,
    /// In the block.
    block_iu: u32,
    mark: Mark,
    unit: UnitIndex,
}

/// Reads that are under way.
#[derive(Default)]
pub(crate) struct Reads {
    parts: Slab<Part>,
}

/// Whether all of it can be read.
pub(crate) fn check_readable(lbas: &LbaList, shape: &ChunkShape, chunks: &[Chunk]) -> Result<(), ChunkError> {
    for run in &lbas.0 {
        let no_such = ChunkError::Refused(ChunkRefusal::NoSuchBlock);
        let (chunk, first) = shape.split(run.lba).ok_or(no_such.clone())?;
        let end = first.checked_add(run.count).filter(|end| *end <= shape.chunk_ius()).ok_or(no_such)?;
        let chunk = &chunks[chunk.0 as usize];
        if end > chunk.readable_ius(shape) {
            return Err(ChunkError::Refused(ChunkRefusal::Unwritten));
        }
    }
    Ok(())
}

impl Reads {
    /// Whether none is under way.
    pub fn are_done(&self) -> bool {
        self.parts.is_empty()
    }

    /// Begins to read what [`check_readable`] let through into `rest`. Gives the number of parts.
    #[allow(clippy::too_many_arguments)]
    pub fn begin(
        &mut self,
        operation: u32,
        set: u32,
        lbas: &LbaList,
        mut rest: BufferMut,
        shape: &ChunkShape,
        chunks: &[Chunk],
        facts: &Facts,
        pool: &mut BufferPool,
        space: &mut dyn EraseBlockSpace,
    ) -> u32 {
        let iu_bytes = facts.mode.bytes_per_iu();
        let mut parts = 0;
        for run in &lbas.0 {
            let (index, first) = shape.split(run.lba).expect("I-K5: what is read was checked");
            let chunk = &chunks[index.0 as usize];
            let block = chunk.block.expect("I-K5: what can be read lies on a block");
            let mark = Mark { set, chunk: index.0, generation: chunk.generation };
            let mut done = 0;
            while done < run.count {
                let block_iu = first + done;
                let count = (run.count - done).min(shape.unit_ius - block_iu % shape.unit_ius);
                let page_ius = facts.block.ius_per_page();
                let pages = (block_iu + count).div_ceil(page_ius) - block_iu / page_ius;
                let oob = pool.take((pages * facts.block.oob_size_bytes) as usize);
                let buffer = rest.split_to(count as usize * iu_bytes);
                let lba = run.lba + u64::from(done);
                let part = Part { operation, lba, block_iu, mark, unit: block.unit };
                let token = Kind::Read.token(self.parts.insert(part));
                let run = BlockRun { block, first_iu: block_iu, iu_count: count };
                space.read(token, run, buffer, Some(oob), IoClass::HostRead);
                (done, parts) = (done + count, parts + 1);
            }
        }
        assert!(rest.is_empty(), "I-K5: a destination is as long as what is read");
        parts
    }

    /// A part was read, or cannot be. Gives its command, and how it is.
    pub fn arrived(
        &mut self,
        place: u32,
        completion: SpaceCompletion,
        facts: &Facts,
    ) -> (u32, Result<(), ChunkError>) {
        let part = self.parts.remove(place);
        let SpaceCompletion { result, destination, oob, .. } = completion;
        let lost = |at: u32| ChunkError::Unrecovered { lba: part.lba + u64::from(at) };
        let result = match (result, &destination, &oob) {
            (Ok(()), Some(data), Some(oob)) => check(&part, data, oob, facts).map_err(lost),
            (Err(SpaceError::PowerLost), ..) => Err(ChunkError::Gone),
            _ => Err(lost(0)),
        };
        (part.operation, result)
    }
}

/// Compares what was read with the marks of its pages. `Err` is the number of the first IU that is not what was written there.
fn check(part: &Part, data: &[u8], oob: &[u8], facts: &Facts) -> Result<(), u32> {
    let shape = &facts.block;
    let page_ius = shape.ius_per_page();
    let first_page = part.block_iu / page_ius;
    let mut checked = None;
    for (at, content) in (0..).zip(data.chunks_exact(facts.mode.bytes_per_iu())) {
        let (page, iu) = ((part.block_iu + at) / page_ius, (part.block_iu + at) % page_ius);
        let start = ((page - first_page) * shape.oob_size_bytes + shape.holder_oob_offset) as usize;
        let oob = &oob[start..];
        if checked != Some(page) {
            let found = mark::decode(oob, Place { unit: part.unit, page }, page_ius);
            if found != Some(part.mark) && !mutant!("openchannel: identity of a page not compared") {
                return Err(at);
            }
            checked = Some(page);
        }
        if mark::checksum_of(oob, iu) != checksum(content) {
            return Err(at);
        }
    }
    Ok(())
}

/// The chunk of a logical block.
pub(crate) fn chunk_of(shape: &ChunkShape, lba: u64) -> Result<(ChunkIndex, u32), ChunkError> {
    shape.split(lba).ok_or(ChunkError::Refused(ChunkRefusal::NoSuchBlock))
}
