//! The holder's view of one vSSD.

use crate::blocks::Fill;
use crate::core::Core;
use crate::dies::{Kind, Op};
use crate::joined::EraseBlockPart;
use crate::owners::Vssd;
use crate::pool::Pool;
use crate::space::*;
use crate::states::Synced;
use crate::{OobKind, OobRecord};
use diecut_media::{Media, Operation};
use diecut_units::{BlockIndex, BufferMut, IU_SIZE_BYTES, Time, mark, mutant};

/// Erase blocks of one vSSD, lent for a call; see [`Pool::space`].
pub struct Space<'a, M: Media + ?Sized> {
    pub(crate) pool: &'a mut Pool,
    pub(crate) media: &'a mut M,
    pub(crate) at: usize,
    pub(crate) now: Time,
}

/// What is read of a block, for whom.
struct ReadRange {
    token: SpaceToken,
    class: IoClass,
    first_iu: u32,
    end_page: u32,
    /// The OOB is read for the space, its holder did not ask for it.
    own_oob: bool,
}

impl<M: Media + ?Sized> Space<'_, M> {
    /// A read that has to wait, or finds something else than what was programmed: each reason is looked at.
    #[cold]
    #[inline(never)]
    fn read_with_care(
        &mut self,
        token: SpaceToken,
        run: BlockRun,
        destination: BufferMut,
        oob: Option<BufferMut>,
        class: IoClass,
    ) {
        let BlockRun { block, first_iu, iu_count } = run;
        let per_page = self.pool.core.shape.ius_per_page();
        let end_page = (first_iu + iu_count).div_ceil(per_page);
        let lost_pages = |number: u32| self.pool.core.blocks[number].lost_pages;
        let mut oob = oob;
        let mut own_oob = false;
        if oob.is_none() && self.physical(block).is_some_and(lost_pages) {
            // The records say which pages hold nothing.
            let pages = end_page - first_iu / per_page;
            oob =
                Some(BufferMut::copy_from(&vec![0; (pages * self.pool.core.shape.oob_size_bytes) as usize]));
            own_oob = true;
        }
        let range = ReadRange { token, class, first_iu, end_page, own_oob };
        let header_ius = self.pool.core.header_pages * per_page;
        self.start_read(block, range, |block| Operation::Read {
            block,
            first_iu: first_iu + header_ius,
            iu_count,
            destination,
            oob,
        });
    }
    fn physical(&self, block: LogicalBlock) -> Option<u32> {
        let unit = &self.pool.core.vssds[self.at].units[usize::from(block.unit.0)];
        let number = *unit.map.get(block.index as usize)?;
        (number != u32::MAX && self.pool.core.blocks[number].is_held()).then_some(number)
    }
    fn reply(&mut self, token: SpaceToken, result: Result<(), SpaceError>) {
        let id = self.pool.core.vssds[self.at].id;
        self.pool
            .core
            .ready
            .push((id, SpaceCompletion { token, result, destination: None, oob: None, retries: 0 }));
    }
    /// The OOB records of pages that are appended to a block, and the append itself as far as all appends are alike. `ius` of whole program
    /// units.
    fn begin_append(
        &mut self,
        block: LogicalBlock,
        number: u32,
        ius: u32,
        oob: &mut BufferMut,
        class: IoClass,
    ) -> Op {
        let shape = self.pool.core.shape;
        assert!(ius > 0 && ius.is_multiple_of(shape.program_unit_ius()), "{ius} IUs are not whole units");
        let pages = ius / shape.ius_per_page();
        assert_eq!(oob.len() as u32, pages * shape.oob_size_bytes, "OOB of every page");
        let id = self.pool.core.vssds[self.at].id;
        let state = &mut self.pool.core.blocks[number];
        let first_page = state.next_page;
        let end_page = first_page + pages;
        assert!(end_page <= shape.pages, "append beyond the end of the erase block");
        debug_assert!(state.done_pages <= first_page, "pages are programmed in order (I-V9)");
        state.next_page = end_page;
        if state.appends == 0 {
            state.append_class = class;
        }
        state.appends += 1;
        let class = state.append_class;
        for page in 0..pages {
            let record = OobRecord {
                kind: OobKind::Data,
                purpose: state.purpose,
                owner: id,
                block,
                page_or_length: first_page + page,
                sequence: state.sequence,
                erase_count: state.erase_count,
                is_lost: false,
            };
            if shape.oob_size_bytes > 0 {
                record.encode(&mut oob[(page * shape.oob_size_bytes) as usize..]);
            }
        }
        self.pool.core.vssds[self.at].operations += 1;
        self.pool.core.vssds[self.at].appended_ius += u64::from(ius);
        let first_iu = first_page * shape.ius_per_page();
        Op { first_iu, end_page, ..Op::new(Kind::Append, id, class, number) }
    }
    fn start_read(
        &mut self,
        block: LogicalBlock,
        range: ReadRange,
        operation: impl FnOnce(diecut_units::EraseBlockAddress) -> Operation,
    ) {
        let ReadRange { token, class, first_iu, end_page, own_oob } = range;
        let (unit, index) = (block.unit.0, block.index);
        assert!(end_page <= self.pool.core.shape.pages, "read beyond the erase block");
        let Some(number) = self.physical(block) else {
            return self.reply(token, Err(SpaceError::NotAllocated { unit, index }));
        };
        let state = &self.pool.core.blocks[number];
        if state.is_suspect() {
            return self.reply(token, Err(SpaceError::Uncorrectable { unit, index, iu: first_iu }));
        }
        if end_page > state.next_page {
            // Never ask the medium: what lies there may be another tenant's.
            let iu = first_iu.max(state.next_page * self.pool.core.shape.ius_per_page());
            return self.reply(token, Err(SpaceError::Erased { unit, index, iu }));
        }
        if state.is_stopped() && end_page > state.done_pages {
            let iu = first_iu.max(state.done_pages * self.pool.core.shape.ius_per_page());
            return self.reply(token, Err(SpaceError::Uncorrectable { unit, index, iu }));
        }
        let operation = operation(self.pool.core.address(number));
        let vssd = &mut self.pool.core.vssds[self.at];
        vssd.operations += 1;
        let id = vssd.id;
        let op = Op { token, first_iu, end_page, own_oob, ..Op::new(Kind::Read, id, class, number) };
        self.pool.core.start(op, operation, self.media, self.now);
    }
}

impl<M: Media + ?Sized> EraseBlockPart for Space<'_, M> {
    fn next_allocation(&self) -> u64 {
        self.pool.core.blocks.sequence()
    }
    fn skip_allocations(&mut self, to: u64) {
        self.pool.core.blocks.skip_sequences(to);
    }
}

impl<M: Media + ?Sized> EraseBlockSpace for Space<'_, M> {
    fn shape(&self) -> &BlockShape {
        &self.pool.core.shape
    }
    fn unit_count(&self) -> u16 {
        self.pool.core.vssds[self.at].units.len() as u16
    }
    fn blocks_of_unit(&self, unit: UnitIndex) -> u32 {
        self.pool.core.vssds[self.at].units[usize::from(unit.0)].map.len() as u32
    }
    fn is_read_only(&self) -> bool {
        self.pool.core.vssds[self.at].read_only
    }
    fn free_blocks(&self, unit: UnitIndex) -> u32 {
        let vssd = &self.pool.core.vssds[self.at];
        if vssd.read_only { 0 } else { vssd.units[usize::from(unit.0)].free_indices.len() as u32 }
    }
    fn free_changes(&self) -> Option<u64> {
        Some(self.pool.core.vssds[self.at].free_changes)
    }
    fn make_room(&mut self, unit: UnitIndex) -> bool {
        let die = self.pool.wear.die_for(&self.pool.core, self.at, unit);
        self.pool.core.make_room(die, self.media, self.now)
    }
    fn work(&self) -> SpaceWork {
        let Vssd { appended_ius, erases, .. } = self.pool.core.vssds[self.at];
        SpaceWork { appended_ius, erases }
    }
    fn allocate_described(
        &mut self,
        unit: UnitIndex,
        purpose: Purpose,
        description: &[u8],
    ) -> Result<LogicalBlock, SpaceError> {
        let vssd = &mut self.pool.core.vssds[self.at];
        if vssd.read_only {
            return Err(SpaceError::ReadOnly);
        }
        let id = vssd.id;
        let none = SpaceError::NoFreeBlock { unit: unit.0 };
        let own = &mut vssd.units[usize::from(unit.0)];
        let index = *own.free_indices.last().ok_or(none)?;
        let block = LogicalBlock { unit, index };
        let die = self.pool.wear.die_for(&self.pool.core, self.at, unit);
        if !self.pool.core.make_room(die, self.media, self.now) {
            return Err(SpaceError::NoRoom);
        }
        let core = &mut self.pool.core;
        let number = core.open_block(id, block, purpose, die, self.media, self.now).ok_or(none)?;
        core.prepare_header(number, description);
        let vssd = &mut self.pool.core.vssds[self.at];
        vssd.free_changes += 1;
        let own = &mut vssd.units[usize::from(unit.0)];
        let taken = own.free_indices.pop();
        assert_eq!(taken, Some(index), "an index is given out once (I-V13)");
        let before = std::mem::replace(&mut own.map[index as usize], number);
        assert_eq!(before, u32::MAX, "an index that is free names no block (I-V13)");
        Ok(block)
    }
    fn append(
        &mut self,
        token: SpaceToken,
        block: LogicalBlock,
        parts: PayloadParts,
        mut oob: BufferMut,
        class: IoClass,
    ) {
        let number = self.physical(block).expect("I-V13: an append goes to a block that is held");
        if !self.pool.core.blocks[number].takes_appends() {
            let (unit, index) = (block.unit.0, block.index);
            return self.reply(token, Err(SpaceError::AppendFailed { unit, index }));
        }
        let ius = parts.iter().map(|part| part.iu_count()).sum();
        let first_page = self.pool.core.blocks[number].next_page + self.pool.core.header_pages;
        let op = self.begin_append(block, number, ius, &mut oob, class);
        let address = self.pool.core.address(number);
        let operation = Operation::Program { block: address, first_page, parts, oob: oob.freeze() };
        self.pool.core.start(Op { token, ..op }, operation, self.media, self.now);
    }
    fn copies_within_dies(&self) -> bool {
        self.media.capabilities().copy_within_die
    }
    fn append_copy(
        &mut self,
        token: SpaceToken,
        source: BlockPages,
        block: LogicalBlock,
        mut oob: BufferMut,
        class: IoClass,
    ) -> Result<(), BufferMut> {
        let number = self.physical(block).expect("I-V13: an append goes to a block that is held");
        assert_eq!(source.block.unit, block.unit, "a copy within a die stays on its unit (I-V24)");
        let Some(from) = self.physical(source.block).filter(|_| self.copies_within_dies()) else {
            return Err(oob);
        };
        let core = &self.pool.core;
        let pages = oob.len() as u32 / core.shape.oob_size_bytes;
        let (goal, read) = (&core.blocks[number], &core.blocks[from]);
        // An exchange of dies may have brought one of them to the other die, or be about to: what waits for its end may lie apart then. What
        // leaves while it is read stays where it is until it was.
        let is_apart = core.die_of(from) != core.die_of(number);
        if is_apart {
            mark!("vssd: a block and its copy lie on two dies of an exchange");
        }
        let is_near = !is_apart || mutant!("vssd: a copy within a die crosses to another");
        if !is_near
            || goal.is_moving()
            || !goal.takes_appends()
            || !read.reads_plainly(source.first_page + pages)
        {
            return Err(oob);
        }
        let destination_page = goal.next_page;
        let op =
            self.begin_append(block, number, pages * self.pool.core.shape.ius_per_page(), &mut oob, class);
        let core = &mut self.pool.core;
        let operation = Operation::Copy {
            source: core.address(from),
            source_page: source.first_page,
            destination: core.address(number),
            destination_page,
            page_count: pages,
            oob: Some(oob.freeze()),
        };
        mark!("vssd: a die copies for a holder");
        let source =
            if mutant!("vssd: a copy within a die does not hold its source") { number } else { from };
        core.start(Op { kind: Kind::AppendCopy, token, source, ..op }, operation, self.media, self.now);
        Ok(())
    }
    fn erases(&self, block: LogicalBlock) -> Option<u32> {
        self.physical(block).map(|number| self.pool.core.blocks[number].erase_count)
    }
    fn is_erased(&self, block: LogicalBlock) -> bool {
        let is_done = |number| self.pool.core.blocks[number].fill() != Fill::Opening;
        self.physical(block).is_none_or(is_done)
    }
    fn begun_pages(&self, block: LogicalBlock) -> u32 {
        self.physical(block).map_or(u32::MAX, |number| self.pool.core.begun_pages(number))
    }
    fn withdraw(&mut self, block: LogicalBlock, first_page: u32) {
        let number = self.physical(block).expect("I-V13: an append goes to a block that is held");
        self.pool.core.withdraw(number, first_page, self.media, self.now);
    }
    // In place: what a read names is large, and a call in between moves it once more.
    #[inline(always)]
    fn read(
        &mut self,
        token: SpaceToken,
        run: BlockRun,
        destination: BufferMut,
        oob: Option<BufferMut>,
        class: IoClass,
    ) {
        let BlockRun { block: logical, first_iu, iu_count } = run;
        let Core { geometry, shape, vssds, blocks, queues, header_pages, .. } = &mut self.pool.core;
        let vssd = &mut vssds[self.at];
        let unit = &vssd.units[usize::from(logical.unit.0)];
        let end_page = (first_iu + iu_count).div_ceil(shape.ius_per_page());
        if let Some(&number) = unit.map.get(logical.index as usize)
            && number != u32::MAX
            && blocks[number].reads_plainly(end_page)
        {
            let die = blocks.die_of(number);
            let flow = unit.flow_at(die);
            let block = geometry.die_at(die).erase_block(BlockIndex(blocks.index_in_die(number)));
            blocks[number].in_flight += 1;
            vssd.operations += 1;
            let bytes = u64::from(iu_count) * IU_SIZE_BYTES as u64;
            let op = Op { token, first_iu, end_page, bytes, ..Op::new(Kind::Read, vssd.id, class, number) };
            let first_iu = first_iu + *header_pages * shape.ius_per_page();
            let operation = Operation::Read { block, first_iu, iu_count, destination, oob };
            return queues.enqueue_new(op, operation, flow, self.media, self.now);
        }
        self.read_with_care(token, run, destination, oob, class);
    }
    fn read_oob(
        &mut self,
        token: SpaceToken,
        block: LogicalBlock,
        first_page: u32,
        oob: BufferMut,
        class: IoClass,
    ) {
        assert!(self.pool.core.shape.oob_size_bytes > 0, "there are no OOB areas to read");
        let end_page = first_page + oob.len() as u32 / self.pool.core.shape.oob_size_bytes;
        let first_iu = first_page * self.pool.core.shape.ius_per_page();
        let range = ReadRange { token, class, first_iu, end_page, own_oob: false };
        self.start_read(block, range, |block| Operation::ReadOob { block, first_page, oob });
    }
    fn free(&mut self, block: LogicalBlock) -> Result<(), SpaceError> {
        let error = SpaceError::NotAllocated { unit: block.unit.0, index: block.index };
        let number = self.physical(block).ok_or(error)?;
        self.pool.core.vssds[self.at].free_changes += 1;
        if self.pool.core.free_block(number) {
            self.pool.wear.void_copy(number);
        }
        self.pool.core.discard_freed(self.media, self.now);
        Ok(())
    }
    fn read_description(&mut self, token: SpaceToken, block: LogicalBlock, destination: BufferMut) {
        let (unit, index) = (block.unit.0, block.index);
        let error = match self.physical(block) {
            None => SpaceError::NotAllocated { unit, index },
            // Nothing was programmed, the header least of all.
            Some(number)
                if self.pool.core.header_pages == 0 || !self.pool.core.blocks[number].has_header() =>
            {
                SpaceError::Erased { unit, index, iu: 0 }
            }
            Some(number) => {
                let id = self.pool.core.vssds[self.at].id;
                let bytes = IU_SIZE_BYTES as u64;
                let op = Op { token, bytes, ..Op::new(Kind::HeaderRead, id, IoClass::Metadata, number) };
                return self.pool.core.read_header(op, destination, self.media, self.now);
            }
        };
        self.reply(token, Err(error));
    }
    fn nonce(&self, block: LogicalBlock) -> Option<[u8; 8]> {
        let number = self.physical(block)?;
        self.pool.core.nonces.as_ref().map(|nonces| nonces.of(self.pool.core.blocks[number].sequence))
    }
    fn flush(&mut self, token: SpaceToken) {
        let id = self.pool.core.vssds[self.at].id;
        self.pool.core.flush(id, token, self.media, self.now);
    }
    fn sync(&mut self, token: SpaceToken) {
        let id = self.pool.core.vssds[self.at].id;
        if mutant!("vssd: sync answered at once") {
            return self.reply(token, Ok(()));
        }
        match self.pool.core.states.sync(id, token) {
            Synced::Never => self.reply(token, Err(SpaceError::ReadOnly)),
            Synced::Waits => self.pool.core.kick_state_log(self.media, self.now),
            Synced::Done => self.reply(token, Ok(())),
        }
    }
    fn erase_freed(&mut self, token: SpaceToken) {
        self.pool.core.begin_purge(self.at, token, self.media, self.now);
    }
    fn held_blocks(&self) -> Vec<HeldBlock> {
        self.pool.core.held_blocks(self.at).map(|(held, _)| held).collect()
    }
}
