//! One application at one vSSD: checks what it asks and calls the erase-block space. No I/O, no shared memory.

use crate::layout::Layout;
use crate::wire::{
    Completion, HELD_SIZE_BYTES, HeldRecord, NAME_SIZE_BYTES, Opcode, Shape, Status, Submission, decode_name,
};
use diecut_units::{BufferMut, BufferPool, ContentMode, IU_SIZE_BYTES, Payload, Slab, checksum, mutant};
use diecut_vssd::{
    BlockRun, BlockShape, EraseBlockSpace, HeldBlock, IoClass, LogicalBlock, PayloadParts, Purpose,
    SpaceCompletion, SpaceToken, UnitIndex,
};

const CHECKSUM_SIZE_BYTES: usize = 4;
/// Operations under way of one application.
const ENTRIES: u32 = 64;
/// Bytes of a slot at least.
const SLOT_LEAST_BYTES: u32 = 64 << 10;

/// A checked copy of an entry, with the data it carries in memory of the server.
#[derive(Debug)]
pub struct Command {
    /// The entry; the token alone if its bytes make no sense.
    pub entry: Result<Submission, u64>,
    /// Content of an append, names of blocks to keep. `None` too if the entry's range is not in the data area.
    pub data: Option<BufferMut>,
}

impl Command {
    /// IUs that it carries, or that it asks for.
    pub fn ius(&self) -> u32 {
        let carried = self.data.as_ref().map_or(0, |data| data.len().div_ceil(IU_SIZE_BYTES) as u32);
        match &self.entry {
            Ok(entry) if entry.opcode == Opcode::Read => entry.count.max(carried),
            _ => carried,
        }
    }
}

/// An answer, and what goes to the data area before it.
#[derive(Debug)]
pub struct Answer {
    /// The entry for the completion ring.
    pub completion: Completion,
    /// Where in the data area, and what.
    pub data: Option<(u32, BufferMut)>,
}

#[derive(Clone, Copy, Default)]
struct BlockState {
    held: bool,
    named: bool,
    /// Pages that were appended or are being appended; never below what the space knows.
    next_page: u32,
    appends: u32,
}

#[derive(Clone, Copy)]
enum Pending {
    Append { token: u64, block: LogicalBlock, first_iu: u32 },
    Read { token: u64, first_iu: u32, count: u32, data_offset: u32 },
    Sync { token: u64, value: u32 },
}

/// See the module.
pub struct Session {
    shape: BlockShape,
    /// Largest transfer of one entry.
    slot_size_bytes: u32,
    /// By unit and index.
    blocks: Vec<Vec<BlockState>>,
    /// Whether the application said what it keeps.
    is_named: bool,
    named: u32,
    pending: Slab<Pending>,
    list: Vec<HeldBlock>,
    buffers: BufferPool,
}

impl Session {
    /// Begins; nothing may be changed until the application named what it keeps.
    pub fn new(space: &dyn EraseBlockSpace, slot_size_bytes: u32) -> Session {
        let units = (0..space.unit_count()).map(UnitIndex);
        let mut blocks: Vec<_> =
            units.map(|unit| vec![BlockState::default(); space.blocks_of_unit(unit) as usize]).collect();
        for held in space.held_blocks() {
            blocks[usize::from(held.block.unit.0)][held.block.index as usize] =
                BlockState { held: true, next_page: held.written_pages, ..BlockState::default() };
            if mutant!("blockspace: written pages forgotten at an attach") {
                blocks[usize::from(held.block.unit.0)][held.block.index as usize].next_page = 0;
            }
        }
        Session {
            shape: *space.shape(),
            slot_size_bytes,
            blocks,
            is_named: false,
            named: 0,
            pending: Slab::new(),
            list: Vec::new(),
            buffers: BufferPool::new(),
        }
    }

    /// Whether a space can be served: it stores bytes.
    pub fn can_serve(shape: &BlockShape) -> bool {
        shape.content_mode == ContentMode::Bytes
    }

    /// What applications are told of a space.
    pub fn shape_of(space: &dyn EraseBlockSpace) -> Shape {
        let shape = space.shape();
        Shape {
            pages: shape.pages,
            page_size_bytes: shape.page_size_bytes,
            program_unit_pages: shape.program_unit_pages,
            unsafe_units: shape.unsafe_units,
            units: space.unit_count(),
        }
    }

    /// Rings and a data area for a space: a slot holds a program unit, or `SLOT_LEAST_BYTES`.
    pub fn layout_for(space: &dyn EraseBlockSpace) -> Layout {
        let unit_bytes = space.shape().program_unit_ius() * IU_SIZE_BYTES as u32;
        Layout { entries: ENTRIES, slots: ENTRIES, slot_size_bytes: unit_bytes.max(SLOT_LEAST_BYTES) }
    }

    /// Whether no operation is under way.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    fn begin(&mut self, pending: Pending) -> SpaceToken {
        SpaceToken(self.pending.insert(pending).into())
    }

    fn block(&mut self, block: LogicalBlock) -> Option<&mut BlockState> {
        self.blocks.get_mut(usize::from(block.unit.0))?.get_mut(block.index as usize)
    }

    fn held(&mut self, block: LogicalBlock) -> Result<&mut BlockState, Status> {
        let state = self.block(block).ok_or(Status::Invalid)?;
        if state.held { Ok(state) } else { Err(Status::NotAllocated) }
    }

    /// Takes a command. What it answers at once, and what [`Session::complete`] answers later, is one answer in all.
    pub fn submit(&mut self, command: Command, space: &mut dyn EraseBlockSpace, answers: &mut Vec<Answer>) {
        let Command { entry, data } = command;
        let token = match &entry {
            Ok(entry) => entry.token,
            Err(token) => *token,
        };
        let mut completion = Completion::new(token, Status::Done);
        let mut output = None;
        let outcome = match entry {
            Err(_) => Err(Status::Invalid),
            Ok(entry) => self.start(&entry, data, space, &mut completion, &mut output),
        };
        match outcome {
            // Answered by `complete`.
            Ok(true) => return,
            Ok(false) => {}
            Err(status) => completion.status = status,
        }
        answers.push(Answer { completion, data: output });
    }

    /// Does what can be done at once. Says whether the answer comes later.
    fn start(
        &mut self,
        entry: &Submission,
        data: Option<BufferMut>,
        space: &mut dyn EraseBlockSpace,
        completion: &mut Completion,
        output: &mut Option<(u32, BufferMut)>,
    ) -> Result<bool, Status> {
        let changes = matches!(entry.opcode, Opcode::Allocate | Opcode::Append | Opcode::Free);
        if changes && !self.is_named {
            return Err(Status::NotNamed);
        }
        match entry.opcode {
            Opcode::Held => {
                let room = entry.count as usize * HELD_SIZE_BYTES;
                if entry.count == 0 || room > self.slot_size_bytes as usize {
                    return Err(Status::Invalid);
                }
                if entry.first == 0 {
                    self.list = space.held_blocks();
                }
                let records = self.list.iter().skip(entry.first as usize).take(entry.count as usize);
                let mut bytes = self.buffers.take(room);
                let mut len = 0;
                for held in records {
                    let record = HeldRecord {
                        block: held.block,
                        purpose: held.purpose.0,
                        written_pages: held.written_pages,
                        allocation_sequence: held.allocation_sequence,
                    };
                    bytes[len..len + HELD_SIZE_BYTES].copy_from_slice(&record.encode());
                    len += HELD_SIZE_BYTES;
                }
                bytes.truncate(len);
                completion.value = (len / HELD_SIZE_BYTES) as u32;
                completion.total = self.list.len() as u32;
                *output = (len > 0).then_some((entry.data_offset, bytes));
                Ok(false)
            }
            Opcode::Keep => self.keep(entry, data, space, completion),
            Opcode::Allocate => {
                if usize::from(entry.block.unit.0) >= self.blocks.len() {
                    return Err(Status::Invalid);
                }
                let allocated = space.allocate(entry.block.unit, Purpose(entry.flag));
                completion.block = allocated.map_err(|error| Status::from(&error))?;
                let state = self.block(completion.block).expect("the space gives blocks of its units");
                *state = BlockState { held: true, ..BlockState::default() };
                Ok(false)
            }
            Opcode::Append => self.append(entry, data, space, completion),
            Opcode::Read => {
                let bytes = u64::from(entry.count) * IU_SIZE_BYTES as u64;
                let end = u64::from(entry.first) + u64::from(entry.count);
                if entry.count == 0
                    || bytes > u64::from(self.slot_size_bytes)
                    || end > u64::from(self.shape.ius())
                {
                    return Err(Status::Invalid);
                }
                self.held(entry.block)?;
                let per_page = self.shape.ius_per_page();
                let pages = (entry.first + entry.count).div_ceil(per_page) - entry.first / per_page;
                let destination = self.buffers.take(bytes as usize);
                let oob = self.buffers.take((pages * self.shape.oob_size_bytes) as usize);
                let (token, data_offset) = (entry.token, entry.data_offset);
                let token = self.begin(Pending::Read {
                    token,
                    first_iu: entry.first,
                    count: entry.count,
                    data_offset,
                });
                let run = BlockRun { block: entry.block, first_iu: entry.first, iu_count: entry.count };
                space.read(token, run, destination, Some(oob), IoClass::HostRead);
                Ok(true)
            }
            Opcode::Free => {
                let state = self.held(entry.block)?;
                if state.appends > 0 {
                    return Err(Status::BlockBusy);
                }
                state.held = false;
                space.free(entry.block).map_err(|error| Status::from(&error))?;
                Ok(false)
            }
            Opcode::Sync => {
                let token = self.begin(Pending::Sync { token: entry.token, value: 0 });
                space.sync(token);
                Ok(true)
            }
            Opcode::Unit => {
                if usize::from(entry.block.unit.0) >= self.blocks.len() {
                    return Err(Status::Invalid);
                }
                completion.value = space.free_blocks(entry.block.unit);
                completion.total = space.blocks_of_unit(entry.block.unit);
                Ok(false)
            }
        }
    }

    fn keep(
        &mut self,
        entry: &Submission,
        data: Option<BufferMut>,
        space: &mut dyn EraseBlockSpace,
        completion: &mut Completion,
    ) -> Result<bool, Status> {
        let data = data.ok_or(Status::Invalid)?;
        let (names, rest) = data.as_chunks::<NAME_SIZE_BYTES>();
        if self.is_named || entry.flag > 1 || names.len() != entry.count as usize || !rest.is_empty() {
            return Err(Status::Invalid);
        }
        for name in names {
            let block = decode_name(name).ok_or(Status::Invalid)?;
            completion.block = block;
            let state = self.held(block)?;
            if !std::mem::replace(&mut state.named, true) {
                self.named += 1;
            }
        }
        completion.block = LogicalBlock::default();
        if entry.flag == 0 {
            completion.value = self.named;
            return Ok(false);
        }
        let mut freed = 0;
        for (unit, blocks) in self.blocks.iter_mut().enumerate() {
            for (index, state) in blocks.iter_mut().enumerate() {
                if state.held && !state.named {
                    freed += 1;
                    if mutant!("blockspace: block that was not named stays") {
                        continue;
                    }
                    state.held = false;
                    let block = LogicalBlock { unit: UnitIndex(unit as u16), index: index as u32 };
                    space.free(block).expect("the session and the space hold the same blocks");
                }
            }
        }
        self.is_named = true;
        let token = self.begin(Pending::Sync { token: entry.token, value: freed });
        space.sync(token);
        Ok(true)
    }

    fn append(
        &mut self,
        entry: &Submission,
        data: Option<BufferMut>,
        space: &mut dyn EraseBlockSpace,
        completion: &mut Completion,
    ) -> Result<bool, Status> {
        let data = data.ok_or(Status::Invalid)?;
        let unit_ius = self.shape.program_unit_ius();
        if entry.count == 0
            || !entry.count.is_multiple_of(unit_ius)
            || data.len() != entry.count as usize * IU_SIZE_BYTES
        {
            return Err(Status::Invalid);
        }
        let shape = self.shape;
        let per_page = shape.ius_per_page();
        let pages = entry.count / per_page;
        let state = self.held(entry.block)?;
        if pages > shape.pages - state.next_page {
            return Err(Status::BlockFull);
        }
        let first_iu = state.next_page * per_page;
        state.next_page += pages;
        state.appends += u32::from(!mutant!("blockspace: append answered before its programs"));
        let oob_size = shape.oob_size_bytes as usize;
        let mut oob = self.buffers.take_zeroed(pages as usize * oob_size);
        if has_checksums(&shape) {
            for (at, iu) in data.chunks_exact(IU_SIZE_BYTES).enumerate() {
                let place = checksum_place(&shape, at);
                oob[place..place + CHECKSUM_SIZE_BYTES].copy_from_slice(&checksum(iu).to_le_bytes());
            }
        }
        if mutant!("blockspace: append answered before its programs") {
            (completion.block, completion.value) = (entry.block, first_iu);
        }
        let token = self.begin(Pending::Append { token: entry.token, block: entry.block, first_iu });
        let mut parts = PayloadParts::new();
        parts.push(Payload::new(ContentMode::Bytes, data.freeze()));
        space.append(token, entry.block, parts, oob, IoClass::HostWrite);
        Ok(!mutant!("blockspace: append answered before its programs"))
    }

    /// Takes an answer of the space.
    ///
    /// # Panics
    /// If nothing of its token is under way.
    pub fn complete(&mut self, completed: SpaceCompletion, answers: &mut Vec<Answer>) {
        // The space answers what is under way, once.
        let pending = self.pending.remove(completed.token.0 as u32);
        let status = completed.result.as_ref().err().map_or(Status::Done, Status::from);
        let answer = match pending {
            Pending::Sync { token, value } => {
                Answer { completion: Completion { value, ..Completion::new(token, status) }, data: None }
            }
            Pending::Append { token, block, first_iu } => {
                if mutant!("blockspace: append answered before its programs") {
                    return;
                }
                let state = self.block(block).expect("checked when it began");
                state.appends -= 1;
                let completion = Completion { block, value: first_iu, ..Completion::new(token, status) };
                Answer { completion, data: None }
            }
            Pending::Read { token, first_iu, count, data_offset } => {
                let mut completion = Completion::new(token, status);
                let mut data = None;
                if status == Status::Done {
                    let bytes = completed.destination.expect("a read that worked has data");
                    let oob = completed.oob.expect("and OOB");
                    assert_eq!(bytes.len(), count as usize * IU_SIZE_BYTES, "all of it");
                    if self.is_sound(first_iu, &bytes, &oob) {
                        data = Some((data_offset, bytes));
                    } else {
                        completion.status = Status::Uncorrectable;
                    }
                }
                Answer { completion, data }
            }
        };
        answers.push(answer);
    }

    fn is_sound(&self, first_iu: u32, bytes: &[u8], oob: &[u8]) -> bool {
        let skipped = (first_iu % self.shape.ius_per_page()) as usize;
        !has_checksums(&self.shape)
            || bytes.chunks_exact(IU_SIZE_BYTES).enumerate().all(|(at, iu)| {
                let place = checksum_place(&self.shape, skipped + at);
                oob[place..place + CHECKSUM_SIZE_BYTES] == checksum(iu).to_le_bytes()
            })
    }
}

fn has_checksums(shape: &BlockShape) -> bool {
    shape.holder_oob_offset + shape.ius_per_page() * CHECKSUM_SIZE_BYTES as u32 <= shape.oob_size_bytes
}

/// Where the checksum of an IU is, in the OOB of consecutive pages; the IU is counted from the first page's start.
fn checksum_place(shape: &BlockShape, iu: usize) -> usize {
    let (page, within) = (iu / shape.ius_per_page() as usize, iu % shape.ius_per_page() as usize);
    page * shape.oob_size_bytes as usize + shape.holder_oob_offset as usize + within * CHECKSUM_SIZE_BYTES
}
