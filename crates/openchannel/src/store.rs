use crate::chunk::Chunk;
use crate::clearing::Clearing;
use crate::contract::{
    ChunkAnswer, ChunkCommand, ChunkCompletion, ChunkError, ChunkNotice, ChunkOperation, ChunkRefusal,
    ChunkState, ChunkToken, ChunkView, LbaList,
};
use crate::opening::{FoundBlock, Opening};
use crate::operations::{Ended, Operations, Over, Then};
use crate::reads::{Readable, Reads, chunk_of};
use crate::shape::{ChunkIndex, ChunkShape};
use crate::token::Kind;
use crate::writer::{self, PURPOSE_CHUNK, WriteLent, Writer};
use diecut_units::{BufferMut, BufferPool, ContentMode, Payload, mutant};
use diecut_vssd::space::{BlockShape, EraseBlockSpace, LogicalBlock, SpaceCompletion, SpaceError};

/// The place of the sync that ends opening.
const SETTLE: u32 = u32::MAX;
/// The place of a sync that is for no command.
const SWEEP: u32 = u32::MAX - 1;

/// Chunks of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkDefinition {
    /// Number of the namespace: never used again.
    pub id: u32,
    /// What its chunks are like.
    pub shape: ChunkShape,
    /// Erases that an erase block is made for; 0: unknown.
    pub endurance_cycles: u32,
}

/// What a store counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkStatistics {
    /// IUs that hosts wrote.
    pub host_written_ius: u64,
    /// Chunks that were reset.
    pub resets: u64,
    /// Chunks whose write pointer is behind a row that did not check out at the last opening.
    pub cut_short: u64,
}

/// Facts of the space that do not change.
#[derive(Clone, Copy)]
pub(crate) struct Facts {
    pub block: BlockShape,
    pub mode: ContentMode,
}

/// The chunks of the one namespace on a vSSD.
pub struct ChunkStore {
    facts: Facts,
    definition: Option<ChunkDefinition>,
    chunks: Vec<Chunk>,
    writer: Writer,
    reads: Reads,
    operations: Operations,
    clearing: Clearing,
    pool: BufferPool,
    opening: Option<Box<Opening>>,
    early: Vec<ChunkCommand>,
    /// All chunks are to be given back.
    deletes: Option<ChunkToken>,
    /// What opening gave back is not durably so yet.
    is_settling: bool,
    is_gone: bool,
    syncs_under_way: u32,
    /// Whoever asked that what was freed be erased, and whoever asked for that after the space was.
    purges: [Vec<ChunkToken>; 2],
    statistics: ChunkStatistics,
}

impl ChunkStore {
    /// Opens a store: empty on an empty space, else it finds its chunks again; blocks of another namespace are given back. Commands are
    /// accepted at once and served when that is done.
    pub fn open(definition: Option<ChunkDefinition>, space: &mut dyn EraseBlockSpace) -> ChunkStore {
        let block = *space.shape();
        let facts = Facts { block, mode: block.content_mode };
        let opening = Opening::start(&facts, space);
        let mut store = ChunkStore {
            facts,
            definition: None,
            chunks: Vec::new(),
            writer: Writer { next_generation: 1, ..Writer::default() },
            reads: Reads::default(),
            operations: Operations::default(),
            clearing: Clearing::default(),
            pool: BufferPool::new(),
            opening: Some(Box::new(opening)),
            early: Vec::new(),
            deletes: None,
            is_settling: false,
            is_gone: false,
            syncs_under_way: 0,
            purges: Default::default(),
            statistics: ChunkStatistics::default(),
        };
        if let Some(definition) = definition {
            store.create(definition);
        }
        store.end_opening(space);
        store
    }

    /// Whether its chunks were found.
    pub fn is_ready(&self) -> bool {
        self.opening.is_none() && !self.is_settling
    }

    /// Makes the chunks of a namespace, all free.
    ///
    /// # Panics
    /// If there are chunks already.
    pub fn create(&mut self, definition: ChunkDefinition) {
        assert!(self.definition.is_none(), "I-K2: one namespace has chunks on a vSSD");
        self.definition = Some(definition);
        self.chunks = vec![Chunk::default(); definition.shape.all_chunks() as usize];
    }

    /// Gives the chunks back with all they hold, when nothing is under way: [`ChunkStore::work`] does it. The completion says that it is
    /// durable.
    ///
    /// # Panics
    /// If that was asked for before, and is not done.
    pub fn delete(&mut self, token: ChunkToken) {
        assert!(self.deletes.is_none(), "I-K2: chunks are deleted once");
        self.deletes = Some(token);
    }

    fn go_on_deleting(&mut self, space: &mut dyn EraseBlockSpace) {
        if !self.is_still() {
            return;
        }
        let Some(token) = self.deletes.take() else { return };
        self.definition = None;
        let blocks = std::mem::take(&mut self.chunks).into_iter().filter_map(|mut chunk| chunk.clear());
        blocks.for_each(|block| free(block, space));
        let operation = self.operations.begin(token, 0, 1, Then::Answer);
        self.sync(operation, space);
    }

    /// Takes what became known of chunks since this was called last, the oldest first: [`crate::contract::NOTICES_MAX`] at most.
    pub fn take_notices(&mut self) -> Vec<ChunkNotice> {
        self.reads.feedback.take()
    }

    /// Whether there are chunks.
    pub fn has_chunks(&self) -> bool {
        self.definition.is_some()
    }

    /// What chunks are like, if there are any.
    pub fn definition(&self) -> Option<&ChunkDefinition> {
        self.definition.as_ref()
    }

    /// IUs that hold data.
    pub fn used_ius(&self) -> u64 {
        self.chunks.iter().map(|chunk| u64::from(chunk.done_rows)).sum::<u64>()
            * u64::from(self.facts.block.program_unit_ius())
    }

    /// Figures.
    pub fn statistics(&self) -> ChunkStatistics {
        self.statistics
    }

    /// Gives up free buffers that were not needed since the last call; see [`BufferPool::shrink`].
    pub fn shrink(&mut self, slabs_max: u32) -> usize {
        self.pool.shrink(slabs_max)
    }

    /// Whether nothing of it is under way at its space.
    pub fn is_still(&self) -> bool {
        self.is_ready()
            && self.reads.are_done()
            && self.writer.is_done()
            && self.operations.is_empty()
            && self.syncs_under_way == 0
    }

    /// How a chunk is, if it exists.
    pub fn chunk(&self, index: ChunkIndex, space: &dyn EraseBlockSpace) -> Option<ChunkView> {
        let (chunk, definition) = (self.chunks.get(index.0 as usize)?, self.definition.as_ref()?);
        let erases = chunk.block.and_then(|block| space.erases(block)).unwrap_or(0);
        let wear = match definition.endurance_cycles {
            0 => 0,
            cycles => (u64::from(erases) * 255 / u64::from(cycles)).min(255) as u8,
        };
        let written = if chunk.is_resetting { 0 } else { chunk.done_rows * definition.shape.unit_ius };
        Some(ChunkView { state: chunk.state, written, wear })
    }

    /// Takes a command.
    pub fn submit(
        &mut self,
        command: ChunkCommand,
        space: &mut dyn EraseBlockSpace,
        completions: &mut Vec<ChunkCompletion>,
    ) {
        let ChunkCommand { token, operation } = command;
        if !self.is_ready() && !self.is_gone {
            self.early.push(ChunkCommand { token, operation });
            return;
        }
        let count = operation.lba_count();
        let begun = match self.definition.filter(|_| !self.is_gone) {
            Some(definition) => self.begin(token, operation, &definition, space),
            None => Err(ChunkError::Gone),
        };
        if let Some(result) = begun.transpose() {
            completions.push(ChunkCompletion::whole(token, result, count));
        }
    }

    /// Begins a command. Gives its answer, or nothing if that comes later.
    fn begin(
        &mut self,
        token: ChunkToken,
        operation: ChunkOperation,
        definition: &ChunkDefinition,
        space: &mut dyn EraseBlockSpace,
    ) -> Result<Option<ChunkAnswer>, ChunkError> {
        let shape = &definition.shape;
        match operation {
            ChunkOperation::Flush => return Ok(Some(ChunkAnswer::Done)),
            ChunkOperation::Purge => {
                self.purges[1].push(token);
                self.begin_purge(space);
            }
            ChunkOperation::Report { first, count_max } => {
                let end = first.saturating_add(count_max).min(shape.all_chunks());
                let chunks = (first..end).filter_map(|index| self.chunk(ChunkIndex(index), space));
                return Ok(Some(ChunkAnswer::Report(chunks.collect())));
            }
            ChunkOperation::Read { lbas, destination } => {
                let readable = Readable::of(&lbas, shape, &self.chunks).some()?;
                self.read(token, &readable, destination, definition, space, Then::Content);
            }
            ChunkOperation::Copy { from, to } => {
                if from.count() != to.count() {
                    return Err(ChunkError::Refused(ChunkRefusal::ListLength));
                }
                let readable = Readable::of(&from, shape, &self.chunks).all()?;
                writer::pieces_of(&to, shape, &self.chunks)?;
                let destination = self.pool.take(from.count() as usize * self.facts.mode.bytes_per_iu());
                self.read(token, &readable, destination, definition, space, |loan| Then::Write(loan, to));
            }
            ChunkOperation::Clear { first, count } => {
                let all = shape.all_chunks();
                self.clear(token, first.min(all)..first.saturating_add(count).min(all), space);
            }
            ChunkOperation::Write { lbas, data } => self.write(token, &lbas, &data, definition, space)?,
            ChunkOperation::Reset { lbas } => {
                let mut indices = Vec::new();
                for lba in lbas.each() {
                    let (index, _) = chunk_of(shape, lba)?;
                    self.chunks[index.0 as usize].check_reset()?;
                    indices.push(index.0);
                }
                indices.sort_unstable();
                indices.dedup();
                return Ok(self.reset(token, lbas.count(), indices, space));
            }
        }
        Ok(None)
    }

    fn read(
        &mut self,
        token: ChunkToken,
        readable: &Readable,
        destination: BufferMut,
        definition: &ChunkDefinition,
        space: &mut dyn EraseBlockSpace,
        then: impl FnOnce(diecut_units::BufferLoan) -> Then,
    ) {
        let ChunkStore { facts, chunks, reads, operations, pool, .. } = self;
        let (loan, rest) = destination.lend();
        let index = operations.next_index();
        let shape = &definition.shape;
        let parts = reads.begin(index, definition.id, readable, rest, shape, chunks, facts, pool, space);
        let begun = operations.begin(token, readable.count(), parts, then(loan));
        assert_eq!(begun, index, "I-K4: parts name their command");
        operations.leave_out(index, readable.failed, readable.error.clone());
    }

    /// The writer, and what it works on.
    fn lend<'a>(
        &'a mut self,
        definition: &'a ChunkDefinition,
        space: &'a mut dyn EraseBlockSpace,
    ) -> (&'a mut Writer, WriteLent<'a>) {
        let lent = WriteLent {
            set: definition.id,
            shape: &definition.shape,
            facts: &self.facts,
            chunks: &mut self.chunks,
            pool: &mut self.pool,
            blocks_return: self.syncs_under_way > 0,
            has_freed: false,
            space,
        };
        (&mut self.writer, lent)
    }

    fn write(
        &mut self,
        token: ChunkToken,
        lbas: &LbaList,
        data: &Payload,
        definition: &ChunkDefinition,
        space: &mut dyn EraseBlockSpace,
    ) -> Result<(), ChunkError> {
        let pieces = writer::pieces_of(lbas, &definition.shape, &self.chunks)?;
        let index = self.operations.next_index();
        let (writer, mut lent) = self.lend(definition, space);
        writer::allocate(&pieces, &mut lent)?;
        let parts = writer.begin(index, &pieces, data, &mut lent);
        self.statistics.host_written_ius += u64::from(data.iu_count());
        let begun = self.operations.begin(token, data.iu_count(), parts, Then::Answer);
        assert_eq!(begun, index, "I-K4: parts name their command");
        Ok(())
    }

    fn reset(
        &mut self,
        token: ChunkToken,
        count: u32,
        indices: Vec<u32>,
        space: &mut dyn EraseBlockSpace,
    ) -> Option<ChunkAnswer> {
        let mut freed = Vec::new();
        for index in indices {
            let chunk = &mut self.chunks[index as usize];
            if let Some(block) = chunk.clear() {
                free(block, space);
                chunk.is_resetting = true;
                freed.push(index);
                self.statistics.resets += 1;
            }
        }
        if freed.is_empty() || mutant!("openchannel: a reset is answered before it is durable") {
            freed.into_iter().for_each(|index| self.chunks[index as usize].is_resetting = false);
            return Some(ChunkAnswer::Done);
        }
        let operation = self.operations.begin(token, count, 1, Then::Free(freed));
        self.sync(operation, space);
        None
    }

    /// As a reset, of chunks that may be anything. It is answered behind resets that began before.
    fn clear(&mut self, token: ChunkToken, indices: std::ops::Range<u32>, space: &mut dyn EraseBlockSpace) {
        let (mut freed, mut waited) = (Vec::new(), Vec::new());
        for index in indices {
            let chunk = &mut self.chunks[index as usize];
            let was_resetting = std::mem::replace(&mut chunk.is_resetting, true);
            if !was_resetting {
                freed.push(index);
            }
            if chunk.under_way > 0 {
                if !mutant!("openchannel: what is written is not cleared") {
                    waited.push(index);
                }
            } else if !was_resetting {
                self.empty(index, space);
            }
        }
        let parts = 1 + waited.len() as u32;
        let operation = self.operations.begin(token, 0, parts, Then::Free(freed));
        waited.into_iter().for_each(|chunk| self.clearing.wait(chunk, operation));
        self.sync(operation, space);
    }

    /// What a chunk holds is given back; a sync follows.
    fn empty(&mut self, index: u32, space: &mut dyn EraseBlockSpace) {
        let chunk = &mut self.chunks[index as usize];
        if chunk.state == ChunkState::Offline && mutant!("openchannel: what is offline is not cleared") {
            return;
        }
        if let Some(block) = chunk.clear() {
            free(block, space);
            self.statistics.resets += 1;
        }
        self.chunks[index as usize].is_resetting = true;
    }

    /// Nothing is under way any more for some chunk, perhaps, which is to be cleared.
    fn go_on_clearing(&mut self, space: &mut dyn EraseBlockSpace, completions: &mut Vec<ChunkCompletion>) {
        while let Some((index, operation)) = self.clearing.next(&self.chunks) {
            if self.is_gone {
                self.part_ended(Ended::of(operation, Err(ChunkError::Gone), 0, 0), space, completions);
                continue;
            }
            self.empty(index, space);
            self.sync(operation, space);
        }
    }

    /// Resets are answered when their blocks are given back, so the space has all that is to be erased.
    fn begin_purge(&mut self, space: &mut dyn EraseBlockSpace) {
        let [under_way, asked] = &mut self.purges;
        if under_way.is_empty() && !asked.is_empty() {
            std::mem::swap(under_way, asked);
            space.erase_freed(Kind::Purge.token(0));
        }
    }

    fn purged(
        &mut self,
        result: Result<(), SpaceError>,
        space: &mut dyn EraseBlockSpace,
        completions: &mut Vec<ChunkCompletion>,
    ) {
        for token in self.purges[0].drain(..) {
            let result = match result {
                Ok(()) => Ok(ChunkAnswer::Done),
                Err(SpaceError::NotErased { .. }) => {
                    Err(ChunkError::NotErased { reason: "erase blocks that went bad could not be erased" })
                }
                Err(SpaceError::PowerLost) => Err(ChunkError::Gone),
                Err(_) => Err(ChunkError::ReadOnly { reason: "what is erased cannot be written down" }),
            };
            completions.push(ChunkCompletion::whole(token, result, 0));
        }
        self.begin_purge(space);
    }

    fn sync(&mut self, operation: u32, space: &mut dyn EraseBlockSpace) {
        self.syncs_under_way += 1;
        space.sync(Kind::Sync.token(operation));
    }

    /// Takes a completion of the space.
    pub fn complete(
        &mut self,
        completion: SpaceCompletion,
        space: &mut dyn EraseBlockSpace,
        completions: &mut Vec<ChunkCompletion>,
    ) {
        let (kind, place) = Kind::of(completion.token);
        self.is_gone |= completion.result == Err(SpaceError::PowerLost);
        match kind {
            Kind::Read => {
                let ended = self.reads.arrived(place, completion, &self.facts, &mut self.chunks);
                self.part_ended(ended, space, completions);
            }
            Kind::Program => self.programmed(place, completion.result, space, completions),
            Kind::Sync if place == SETTLE => {
                self.is_settling = false;
                self.take_early(space, completions);
            }
            Kind::Purge => self.purged(completion.result, space, completions),
            Kind::Sync => {
                self.syncs_under_way -= 1;
                if place == SWEEP {
                    return;
                }
                let result = completion.result.map_err(|error| match error {
                    SpaceError::PowerLost => ChunkError::Gone,
                    _ => ChunkError::ReadOnly { reason: "what is freed cannot be written down" },
                });
                self.part_ended(Ended::of(place, result, 0, u32::MAX), space, completions);
            }
            Kind::Opening => {
                if let Some(opening) = &mut self.opening {
                    opening.step(place, completion, &self.facts, space);
                    self.is_gone |= opening.is_gone;
                    self.end_opening(space);
                    self.take_early(space, completions);
                }
            }
        }
    }

    fn programmed(
        &mut self,
        place: u32,
        result: Result<(), SpaceError>,
        space: &mut dyn EraseBlockSpace,
        completions: &mut Vec<ChunkCompletion>,
    ) {
        let definition = self.definition.expect("I-K3: chunks with a program under way are there");
        let (writer, mut lent) = self.lend(&definition, space);
        let mut ended = smallvec::SmallVec::<[Ended; 2]>::new();
        writer.programmed(place, result, &mut lent, |part| ended.push(part));
        if lent.has_freed {
            self.sync(SWEEP, space);
        }
        for part in ended {
            self.part_ended(part, space, completions);
        }
        self.go_on_clearing(space, completions);
    }

    fn part_ended(
        &mut self,
        ended: Ended,
        space: &mut dyn EraseBlockSpace,
        completions: &mut Vec<ChunkCompletion>,
    ) {
        match self.operations.part_ended(ended, &mut self.chunks) {
            None => {}
            Some(Over::Answer(completion)) => completions.push(completion),
            Some(Over::Write(token, loan, to)) => {
                let data = Payload::new(self.facts.mode, loan.reclaim().freeze());
                let definition = self.definition.expect("I-K3: chunks with a copy under way are there");
                if let Err(error) = self.write(token, &to, &data, &definition, space) {
                    completions.push(ChunkCompletion::whole(token, Err(error), to.count()));
                }
            }
        }
    }

    /// Lets the store go on. Call after batches of commands and completions.
    pub fn work(&mut self, space: &mut dyn EraseBlockSpace, completions: &mut Vec<ChunkCompletion>) {
        if !self.is_gone {
            self.go_on_deleting(space);
        } else {
            let deletes = self.deletes.take().into_iter();
            let purges = self.purges.iter_mut().flat_map(|purge| purge.drain(..));
            let gone = |token, count| ChunkCompletion::whole(token, Err(ChunkError::Gone), count);
            completions.extend(deletes.chain(purges).map(|token| gone(token, 0)));
            let early = self.early.drain(..);
            completions.extend(early.map(|command| gone(command.token, command.operation.lba_count())));
        }
    }

    fn take_early(&mut self, space: &mut dyn EraseBlockSpace, completions: &mut Vec<ChunkCompletion>) {
        if self.is_ready() {
            for command in std::mem::take(&mut self.early) {
                self.submit(command, space, completions);
            }
        }
    }

    /// All was looked at: chunks are what their blocks say.
    fn end_opening(&mut self, space: &mut dyn EraseBlockSpace) {
        let is_over = self.opening.as_ref().is_some_and(|opening| opening.is_over());
        if self.is_gone || !is_over {
            return;
        }
        let opening = self.opening.take().expect("just looked at");
        let mut blocks = opening.into_blocks();
        // Of two blocks of a chunk, which a medium that lost something can leave, the newer one counts.
        blocks.sort_by_key(|found| std::cmp::Reverse(found.held.allocation_sequence));
        for found in blocks {
            if !self.seat(&found) {
                free(found.held.block, space);
            }
        }
        // What was freed before the process died may be on its way back, too.
        self.is_settling = true;
        space.sync(Kind::Sync.token(SETTLE));
    }

    /// A chunk is found on its block. Says whether it is.
    fn seat(&mut self, found: &FoundBlock) -> bool {
        let (Some(mark), Some(definition)) = (found.mark, &self.definition) else { return false };
        self.writer.next_generation = self.writer.next_generation.max(mark.generation.wrapping_add(1));
        let is_ours = found.held.purpose == PURPOSE_CHUNK
            && mark.set == definition.id
            && mark.chunk < definition.shape.all_chunks()
            && definition.shape.unit_of(ChunkIndex(mark.chunk)) == found.held.block.unit;
        if !is_ours || found.sound_rows == 0 {
            return false;
        }
        let chunk = &mut self.chunks[mark.chunk as usize];
        if chunk.block.is_some() {
            return false;
        }
        let rows = found.held.written_pages / self.facts.block.program_unit_pages;
        self.statistics.cut_short += u64::from(found.sound_rows < rows);
        *chunk = Chunk {
            block: Some(found.held.block),
            state: ChunkState::Closed,
            generation: mark.generation,
            taken_rows: found.sound_rows,
            done_rows: found.sound_rows,
            ..Chunk::default()
        };
        true
    }
}

fn free(block: LogicalBlock, space: &mut dyn EraseBlockSpace) {
    space.free(block).expect("I-K3: a chunk holds its block");
}
