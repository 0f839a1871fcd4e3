//! Reads: from flash a program unit at a time, and checked.

use crate::chunk::Chunk;
use crate::contract::{ChunkError, ChunkRefusal, ErrorRate, LbaList, ListBits};
use crate::feedback::Feedback;
use crate::mark::{self, Mark, Place};
use crate::operations::Ended;
use crate::shape::{ChunkIndex, ChunkShape};
use crate::store::Facts;
use crate::token::Kind;
use diecut_units::{BufferMut, BufferPool, Slab, checksum, mutant};
use diecut_vssd::space::{BlockRun, EraseBlockSpace, IoClass, SpaceCompletion, SpaceError, UnitIndex};
use smallvec::SmallVec;

/// Logical blocks of a list that follow each other in a chunk, and can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// Place of the first one in the list.
    at: u32,
    lba: u64,
    chunk: ChunkIndex,
    /// In the chunk.
    first: u32,
    count: u32,
}

/// What of a list can be read, and why not the rest.
#[derive(Default)]
pub(crate) struct Readable {
    pieces: SmallVec<[Piece; 1]>,
    count: u32,
    pub failed: ListBits,
    /// Why the first one of those that cannot be read cannot.
    pub error: Option<ChunkError>,
}

impl Readable {
    /// What of a list can be read now.
    pub fn of(lbas: &LbaList, shape: &ChunkShape, chunks: &[Chunk]) -> Readable {
        let mut found = Readable::default();
        for run in &lbas.0 {
            let mut done = 0;
            while done < run.count {
                let lba = run.lba + u64::from(done);
                let Some((chunk, first)) = shape.split(lba) else {
                    found.leave_out(1, ChunkRefusal::NoSuchBlock);
                    done += 1;
                    continue;
                };
                let count = (run.count - done).min(shape.chunk_ius() - first);
                let readable_ius = chunks[chunk.0 as usize].readable_ius(shape);
                let readable = readable_ius.saturating_sub(first).min(count);
                if readable > 0 {
                    found.pieces.push(Piece { at: found.count, lba, chunk, first, count: readable });
                    found.count += readable;
                }
                if readable < count {
                    found.leave_out(count - readable, ChunkRefusal::Unwritten);
                }
                done += count;
            }
        }
        assert_eq!(found.count, lbas.count(), "I-K5: each of a list can be read or not");
        found
    }

    fn leave_out(&mut self, count: u32, refusal: ChunkRefusal) {
        self.failed.add(self.count, count);
        self.count += count;
        self.error.get_or_insert(ChunkError::Refused(refusal));
    }

    /// Logical blocks of the list.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// It, if something of it can be read.
    pub fn some(self) -> Result<Readable, ChunkError> {
        if self.pieces.is_empty() { self.all() } else { Ok(self) }
    }

    /// It, if all of it can be read.
    pub fn all(self) -> Result<Readable, ChunkError> {
        self.error.clone().map_or(Ok(self), Err)
    }
}

/// One read of a block.
struct Part {
    operation: u32,
    /// Place of its first logical block in the list.
    at: u32,
    lba: u64,
    count: u32,
    /// In the block.
    block_iu: u32,
    mark: Mark,
    unit: UnitIndex,
}

/// Reads that are under way.
#[derive(Default)]
pub(crate) struct Reads {
    parts: Slab<Part>,
    pub feedback: Feedback,
}

impl Reads {
    /// Whether none is under way.
    pub fn are_done(&self) -> bool {
        self.parts.is_empty()
    }

    /// Begins to read what can be read into `rest`; the rest of that is zeroes. Gives the number of parts.
    #[allow(clippy::too_many_arguments)]
    pub fn begin(
        &mut self,
        operation: u32,
        set: u32,
        readable: &Readable,
        mut rest: BufferMut,
        shape: &ChunkShape,
        chunks: &[Chunk],
        facts: &Facts,
        pool: &mut BufferPool,
        space: &mut dyn EraseBlockSpace,
    ) -> u32 {
        let iu_bytes = facts.mode.bytes_per_iu();
        let (mut parts, mut begun) = (0, 0);
        for piece in &readable.pieces {
            assert!(piece.at >= begun, "I-K5: pieces have the order of their list");
            rest.split_to((piece.at - begun) as usize * iu_bytes).fill(0);
            let chunk = &chunks[piece.chunk.0 as usize];
            let block = chunk.block.expect("I-K5: what can be read lies on a block");
            let mark = Mark { set, chunk: piece.chunk.0, generation: chunk.generation };
            let mut done = 0;
            while done < piece.count {
                let block_iu = piece.first + done;
                let count = (piece.count - done).min(shape.unit_ius - block_iu % shape.unit_ius);
                let page_ius = facts.block.ius_per_page();
                let pages = (block_iu + count).div_ceil(page_ius) - block_iu / page_ius;
                let oob = pool.take((pages * facts.block.oob_size_bytes) as usize);
                let buffer = rest.split_to(count as usize * iu_bytes);
                let (at, lba) = (piece.at + done, piece.lba + u64::from(done));
                let part = Part { operation, at, lba, count, block_iu, mark, unit: block.unit };
                let token = Kind::Read.token(self.parts.insert(part));
                let run = BlockRun { block, first_iu: block_iu, iu_count: count };
                space.read(token, run, buffer, Some(oob), IoClass::HostRead);
                (done, parts) = (done + count, parts + 1);
            }
            begun = piece.at + piece.count;
        }
        assert_eq!(
            rest.len(),
            (readable.count - begun) as usize * iu_bytes,
            "I-K5: a destination is as long as what is read"
        );
        rest.fill(0);
        parts
    }

    /// Keeps what a part says of its chunk, `lost` is what of it cannot be read. Gives what of the list was hard to read.
    fn note(
        &mut self,
        part: &Part,
        result: &Result<(), ChunkError>,
        retries: u8,
        lost: (u64, u32),
        chunks: &mut [Chunk],
    ) -> ListBits {
        let error_rate = match result {
            Ok(()) => ErrorRate::of(retries),
            Err(ChunkError::Unrecovered { .. }) => ErrorRate::Unrecoverable,
            // It says nothing of the medium.
            Err(_) => ErrorRate::None,
        };
        let mut strained = ListBits::default();
        if error_rate == ErrorRate::High {
            strained.add(part.at, part.count);
        }
        if error_rate > ErrorRate::None {
            let chunk = &mut chunks[part.mark.chunk as usize];
            self.feedback.read(chunk, &part.mark, part.lba - u64::from(part.block_iu), lost, error_rate);
        }
        strained
    }

    /// A part was read, or cannot be. What that says of its chunk is kept.
    pub fn arrived(
        &mut self,
        place: u32,
        completion: SpaceCompletion,
        facts: &Facts,
        chunks: &mut [Chunk],
    ) -> Ended {
        let part = self.parts.remove(place);
        let SpaceCompletion { result, mut destination, oob, retries, .. } = completion;
        let mut failed = ListBits::default();
        let (mut first_lost, mut lost_count) = (None, 0);
        let mut is_blank = true;
        match (&result, &mut destination, &oob) {
            (Ok(()), Some(data), Some(oob)) => check(&part, data, oob, facts, |at| {
                failed.add(part.at + at, 1);
                first_lost.get_or_insert(at);
                lost_count += 1;
            }),
            // What a read that failed left there is not the host's.
            (_, destination, _) => {
                failed.add(part.at, part.count);
                (first_lost, lost_count) = (Some(0), part.count);
                is_blank = destination.is_some();
                if let Some(data) = destination {
                    data.fill(0);
                }
            }
        }
        let result = match (result, first_lost) {
            (Err(SpaceError::PowerLost), _) => Err(ChunkError::Gone),
            (_, Some(at)) => Err(ChunkError::Unrecovered { lba: part.lba + u64::from(at) }),
            _ => Ok(()),
        };
        let lost = (part.lba + u64::from(first_lost.unwrap_or(0)), lost_count);
        let strained = self.note(&part, &result, retries, lost, chunks);
        Ended { operation: part.operation, failed, strained, result, is_blank }
    }
}

/// Compares what was read with the marks of its pages. IUs that are not what was written there become zeroes; their number goes to `lost`.
fn check(part: &Part, data: &mut [u8], oob: &[u8], facts: &Facts, mut lost: impl FnMut(u32)) {
    let shape = &facts.block;
    let iu_bytes = facts.mode.bytes_per_iu();
    assert_eq!(data.len(), part.count as usize * iu_bytes, "I-K5: what comes is as long as what was read");
    let page_ius = shape.ius_per_page();
    let first_page = part.block_iu / page_ius;
    let mut checked = None;
    let mut is_ours = false;
    for (at, content) in (0..).zip(data.chunks_exact_mut(iu_bytes)) {
        let (page, iu) = ((part.block_iu + at) / page_ius, (part.block_iu + at) % page_ius);
        let start = ((page - first_page) * shape.oob_size_bytes + shape.holder_oob_offset) as usize;
        let oob = &oob[start..];
        if checked != Some(page) {
            let found = mark::decode(oob, Place { unit: part.unit, page }, page_ius);
            is_ours = found == Some(part.mark) || mutant!("openchannel: identity of a page not compared");
            checked = Some(page);
        }
        if !is_ours || mark::checksum_of(oob, iu) != checksum(content) {
            content.fill(0);
            lost(at);
        }
    }
}

/// The chunk of a logical block.
pub(crate) fn chunk_of(shape: &ChunkShape, lba: u64) -> Result<(ChunkIndex, u32), ChunkError> {
    shape.split(lba).ok_or(ChunkError::Refused(ChunkRefusal::NoSuchBlock))
}
