//! Operations of holders on their way: started, waiting for what they need, completed.

use crate::core::Core;
use crate::dies::{Kind, Op};
use crate::states::BlockState;
use crate::token::POOL_TOKEN_BIT;
use crate::{IoClass, LogicalBlock, OobRecord, SpaceCompletion, SpaceError, VssdId};
use diecut_media::{Completion, Media, MediaError, Operation, StreamId};
use diecut_units::{IU_SIZE_BYTES, Time, mark, mutant};

/// Whether an append that the die copies failed for what it was to read: the block that it was to program is as good as before.
fn is_of_source(kind: Kind, error: &MediaError) -> bool {
    kind == Kind::AppendCopy && matches!(error, MediaError::Uncorrectable { .. } | MediaError::Erased { .. })
}

/// What of a vSSD is given up at about the same time: what hosts write, what the cleaner copies, maps.
fn stream_of(owner: VssdId, class: IoClass) -> StreamId {
    let class = match class {
        IoClass::HostRead | IoClass::HostWrite => 0,
        IoClass::Cleaner | IoClass::Migration => 1,
        IoClass::Metadata => 2,
    };
    StreamId(owner.0.wrapping_mul(3).wrapping_add(class))
}

impl Core {
    /// Stores an operation and gives it to its die's queue, or lets it wait for what it needs first: an erase, a program, the
    /// state log. `op.bytes` is filled in here.
    pub(crate) fn start<M: Media + ?Sized>(
        &mut self,
        mut op: Op,
        operation: Operation,
        media: &mut M,
        now: Time,
    ) {
        let Op { kind, class, block, first_iu, end_page, .. } = op;
        // What is copied may be freed meanwhile: copies hold nothing.
        self.blocks[block].in_flight += u32::from(!kind.is_of_copy());
        if kind == Kind::AppendCopy {
            // Not erased before it was read, whoever frees or moves it.
            self.blocks[op.source].in_flight += 1;
        }
        op.bytes = match &operation {
            Operation::Read { iu_count, .. } => u64::from(*iu_count) * IU_SIZE_BYTES as u64,
            // One IU for each page: what the die and the bus have of it.
            Operation::ReadOob { oob, .. } => {
                (oob.len() as u64 / u64::from(self.shape.oob_size_bytes)) * IU_SIZE_BYTES as u64
            }
            Operation::Program { .. } => {
                let first_page = first_iu / self.shape.ius_per_page();
                u64::from(end_page - first_page) * u64::from(self.shape.page_size_bytes)
            }
            Operation::Copy { page_count, .. } => {
                u64::from(*page_count) * u64::from(self.shape.page_size_bytes)
            }
            Operation::Erase { .. } => 0,
        };
        let owner = op.owner;
        if (kind.appends() || kind == Kind::Header) && self.header_pages > 0 {
            media.place(self.address(block), stream_of(owner, class));
        }
        op.queued = now;
        let at = self.queues.ops.add(op);
        let state = &mut self.blocks[block];
        let waits = match kind {
            Kind::Append | Kind::AppendCopy => state.hold_append() || !state.is_ready_for_appends(),
            Kind::Read => end_page > state.done_pages,
            _ => false,
        };
        if matches!(kind, Kind::Erase | Kind::CopyErase | Kind::PurgeErase)
            && !mutant!("vssd: erase before journal")
            && self.states.hold_erase(at)
        {
            self.queues.ops.store(at, operation);
            self.kick_state_log(media, now);
        } else if waits {
            let is_first = state.waiting.is_empty();
            state.waiting.push_back(at);
            self.queues.ops.store(at, operation);
            if is_first && kind.appends() {
                self.hasten_erase(block, class);
            }
        } else if kind.is_of_nobody() {
            self.queues.enqueue_copy(at, operation, media, now);
        } else {
            let flow = self.flow_of(owner, block);
            self.queues.enqueue(at, operation, flow, media, now);
        }
    }

    /// The flow that a vSSD's operations on a block wait in.
    #[inline]
    fn flow_of(&mut self, owner: VssdId, block: u32) -> u16 {
        let unit = self.blocks[block].logical.unit;
        let die = self.die_of(block) as u32;
        self.vssds.of(owner).units[usize::from(unit.0)].flow_at(die)
    }

    /// Queues an operation that waited for something else at its die.
    pub(crate) fn enqueue_stored<M: Media + ?Sized>(&mut self, at: u32, media: &mut M, now: Time) {
        let op = self.queues.ops.get(at);
        let (kind, owner, block) = (op.kind, op.owner, op.block);
        if kind.is_of_nobody() {
            let operation = self.queues.ops.take(at);
            return self.queues.enqueue_copy(at, operation, media, now);
        }
        let flow = self.flow_of(owner, block);
        self.queues.enqueue_stored(at, flow, media, now);
    }

    /// A write waits for the erase of its block, which comes as early as the write itself would.
    fn hasten_erase(&mut self, block: u32, class: IoClass) {
        if mutant!("vssd: erases keep the cleaner's turn") {
            return;
        }
        let Core { queues, states, .. } = self;
        if !states.held_erases().any(|at| queues.hasten(at, block, class)) {
            queues.hasten_erase(block, class);
        }
    }

    /// The place of the operation that a completion ends, if that is a read that worked and nothing else follows from its end. A place has 32
    /// bits: the log of block states and the check set others.
    #[inline]
    pub(crate) fn plain_read_of(&self, completion: &Completion) -> Option<u32> {
        let at = u32::try_from(completion.token.0 & !POOL_TOKEN_BIT).ok()?;
        let op = self.queues.ops.get(at);
        let is_plain = op.kind == Kind::Read && !op.own_oob && self.blocks[op.block].ends_plainly();
        (is_plain && completion.result.is_ok()).then_some(at)
    }

    /// As [`Core::complete`], of a read that [`Core::plain_read_of`] found: its answer is among `completions` at once.
    #[inline]
    pub(crate) fn complete_plain_read<M: Media + ?Sized>(
        &mut self,
        at: u32,
        completion: Completion,
        now: Time,
        media: &mut M,
        completions: &mut Vec<(VssdId, SpaceCompletion)>,
    ) {
        let Completion { destination, oob, retries, .. } = completion;
        let op = self.queues.completed(at, now);
        self.blocks[op.block].in_flight -= 1;
        let vssd = self.vssds.of(op.owner);
        vssd.operations -= 1;
        vssd.read_bytes += op.bytes;
        // Answers come in their order.
        if !self.ready.is_empty() {
            completions.append(&mut self.ready);
        }
        let result = Ok(());
        completions.push((op.owner, SpaceCompletion { token: op.token, result, destination, oob, retries }));
        self.queues.go_on(op.block, media, now);
        self.kick_state_log(media, now);
        self.discard_freed(media, now);
        if !self.ready.is_empty() {
            completions.append(&mut self.ready);
        }
    }

    /// An operation came back from the medium. What it means to a holder is put among the answers; of a copy it is given back, with what came
    /// of it.
    ///
    /// # Panics
    /// If the token is not of an operation under way (I-V1).
    pub(crate) fn complete<M: Media + ?Sized>(
        &mut self,
        completion: Completion,
        now: Time,
        media: &mut M,
    ) -> Option<(Op, Completion)> {
        let at = (completion.token.0 & !POOL_TOKEN_BIT) as usize;
        let op = self.queues.completed(at as u32, now);
        if op.kind.is_of_copy() {
            return Some((op, completion));
        }
        let number = self.die_of(op.block);
        match op.kind {
            Kind::Read => {
                let result = completion.result.map_err(|error| self.translate(&op, error));
                let result = result.and_then(|()| self.find_lost(&op, completion.oob.as_deref()));
                let oob = completion.oob.filter(|_| !op.own_oob);
                self.answer(&op, result, completion.destination, oob, completion.retries);
            }
            Kind::Append | Kind::AppendCopy => {
                let block = &mut self.blocks[op.block];
                // What follows a failed program in the pipeline is lost with it.
                let result = match completion.result {
                    Ok(()) if !block.is_stopped() => {
                        block.done_pages = block.done_pages.max(op.end_page);
                        // Where blocks have headers, holders know what is there: a full block may have lost some of it.
                        let is_settled = block.done_pages == self.shape.pages && self.header_pages == 0;
                        self.states.set_pages(op.block, block.done_pages, block.sequence, is_settled);
                        Ok(())
                    }
                    Ok(()) => Err(self.append_failed(&op)),
                    Err(error) => {
                        if matches!(error, MediaError::ProgramFailed { .. }) {
                            block.fail();
                            if block.is_held() {
                                self.record(op.block, BlockState::HeldFailed);
                            }
                        } else if matches!(error, MediaError::NoRoom { .. }) || is_of_source(op.kind, &error)
                        {
                            // As after a crash: it takes no more appends, and is as good as others once it is free.
                            block.seal();
                        }
                        if is_of_source(op.kind, &error) {
                            mark!("vssd: the source of a copy within a die cannot be read");
                            Err(self.append_failed(&op))
                        } else {
                            Err(self.translate(&op, error))
                        }
                    }
                };
                let failed = result.is_err();
                self.answer(&op, result, None, None, 0);
                let block = &self.blocks[op.block];
                if failed && block.is_stopped() && !mutant!("vssd: queued behind a failed program") {
                    self.fail_queued(op.block);
                }
            }
            Kind::PurgeErase => self.purge_erased(&op, &completion.result),
            Kind::Header => self.header_programmed(&op, completion.result),
            Kind::HeaderRead => self.header_read(&op, completion),
            _ => self.erase_completed(&op, completion.result, media, now),
        }
        self.release_waiting(op.block, media, now);
        self.settle(op.block);
        self.queues.dispatch(number, media, now);
        self.kick_state_log(media, now);
        self.discard_freed(media, now);
        None
    }

    fn erase_completed<M: Media + ?Sized>(
        &mut self,
        op: &Op,
        result: Result<(), MediaError>,
        media: &mut M,
        now: Time,
    ) {
        let die = self.blocks.die_of(op.block);
        let block = &mut self.blocks[op.block];
        assert!(block.in_flight > 0, "an erase ends once (I-V1)");
        block.in_flight -= 1;
        if matches!(result, Err(error) if !matches!(error, MediaError::EraseFailed { .. })) {
            // The power or the die went, not the block: nothing about it is written down.
            block.fail();
            return;
        }
        if result.is_err() && block.is_held() {
            self.record(op.block, BlockState::HeldFailed);
        }
        if mutant!("vssd: erase before free durable") {
            self.record(op.block, BlockState::Held);
        }
        let block = &mut self.blocks[op.block];
        match result {
            Ok(()) => {
                block.erased(self.header_pages > 0);
                self.blocks.die_mut(die).erases += 1;
                if let Some(at) = self.at_of(op.owner) {
                    self.vssds[at].erases += 1;
                }
            }
            // The holder learns of it at its first append and frees the block, which retires it.
            Err(_) => block.fail(),
        }
        self.begin_header(op.block, op.class, media, now);
    }

    pub(crate) fn release_waiting<M: Media + ?Sized>(&mut self, number: u32, media: &mut M, now: Time) {
        for _ in 0..self.blocks[number].waiting.len() {
            let block = &mut self.blocks[number];
            let at = block.waiting.pop_front().expect("I-V1: who waits is counted");
            let op = self.queues.ops.get(at);
            let ready = match op.kind {
                Kind::Read => op.end_page <= block.done_pages,
                _ => block.is_ready_for_appends(),
            };
            if ready {
                self.enqueue_stored(at, media, now);
            } else if block.is_stopped() {
                if op.kind.appends() {
                    block.drop_append();
                }
                let op = self.queues.ops.remove(at);
                let error = if op.kind == Kind::Read {
                    let LogicalBlock { unit, index } = self.blocks[number].logical;
                    SpaceError::Uncorrectable { unit: unit.0, index, iu: op.first_iu }
                } else {
                    self.append_failed(&op)
                };
                self.answer(&op, Err(error), None, None, 0);
            } else {
                block.waiting.push_back(at);
            }
        }
    }

    /// Answers the appends to a block that wait at its die, after a program failed there. On flash behind the failed one
    /// nobody could tell them, after the death of the process, from what was acknowledged.
    fn fail_queued(&mut self, number: u32) {
        let mut queued = Vec::new();
        self.queues.take_queued_appends(number, 0, &mut queued);
        for at in queued {
            mark!("vssd: append queued behind a failed program");
            let op = self.queues.ops.remove(at);
            let error = self.append_failed(&op);
            self.answer(&op, Err(error), None, None, 0);
        }
    }

    /// Pages of a block from its start that are programmed, or that somebody programs or reads by now; [`u32::MAX`] if it
    /// takes no appends at present. Cold.
    pub(crate) fn begun_pages(&self, number: u32) -> u32 {
        let block = &self.blocks[number];
        if !block.is_held() || !block.takes_appends() || block.is_moving() {
            return u32::MAX;
        }
        let first_page = |op: &Op| op.first_iu / self.shape.ius_per_page();
        let mut begun = self.queues.queued_appends(number).map(first_page).fold(block.next_page, u32::min);
        let waiting = || block.waiting.iter().map(|at| self.queues.ops.get(*at));
        let appends = waiting().filter(|op| op.kind.appends());
        begun = appends.map(first_page).fold(begun, u32::min);
        waiting().filter(|op| op.kind == Kind::Read).map(|op| op.end_page).fold(begun, u32::max)
    }

    /// Takes back the appends to a block from a page on.
    ///
    /// # Panics
    /// If one of them has begun, or holds pages before that one.
    pub(crate) fn withdraw<M: Media + ?Sized>(
        &mut self,
        number: u32,
        first_page: u32,
        media: &mut M,
        now: Time,
    ) {
        let block = &self.blocks[number];
        let next_page = block.next_page;
        if next_page <= first_page {
            return;
        }
        assert_eq!(block.held_appends(), 0, "nobody can say what of a block that moves has begun (I-V4)");
        let first_iu = first_page * self.shape.ius_per_page();
        let mut taken = Vec::new();
        self.queues.take_queued_appends(number, first_iu, &mut taken);
        let ops = &self.queues.ops;
        self.blocks[number].waiting.retain(|at| {
            let op = ops.get(*at);
            let goes = op.kind.appends() && op.first_iu >= first_iu;
            if goes {
                taken.push(*at);
            }
            !goes
        });
        let mut pages = 0;
        for at in taken {
            mark!("vssd: append taken back");
            let op = self.queues.ops.remove(at);
            let of_op = op.end_page - op.first_iu / self.shape.ius_per_page();
            pages += of_op;
            let block = &mut self.blocks[number];
            assert!(
                block.in_flight > 0 && block.appends > 0,
                "an append that is taken back is counted (I-V1)"
            );
            block.in_flight -= 1;
            block.appends -= 1;
            let at = self.at_of(op.owner).expect("I-V6: a vSSD with operations stays");
            assert!(self.vssds[at].operations > 0, "a vSSD counts what it has under way (I-V1)");
            self.vssds[at].operations -= 1;
            self.vssds[at].appended_ius -= u64::from(of_op * self.shape.ius_per_page());
            self.let_go_of_source(&op);
        }
        assert_eq!(pages, next_page - first_page, "all appends from that page on wait (I-V4)");
        self.blocks[number].next_page = first_page;
        self.queues.dispatch(self.die_of(number), media, now);
    }

    pub(crate) fn answer(
        &mut self,
        op: &Op,
        result: Result<(), SpaceError>,
        destination: Option<diecut_units::BufferMut>,
        oob: Option<diecut_units::BufferMut>,
        retries: u8,
    ) {
        let block = &mut self.blocks[op.block];
        debug_assert!(block.in_flight > 0, "what is answered was under way (I-V1)");
        block.in_flight -= 1;
        debug_assert!(!op.kind.appends() || block.appends > 0, "an append is counted (I-V1)");
        block.appends -= u32::from(op.kind.appends());
        self.let_go_of_source(op);
        let at = self.at_of(op.owner).expect("I-V6: a vSSD with operations stays");
        debug_assert!(self.vssds[at].operations > 0, "a vSSD counts what it has under way (I-V1)");
        self.vssds[at].operations -= 1;
        self.vssds[at].read_bytes += if op.kind == Kind::Read { op.bytes } else { 0 };
        self.ready.push((op.owner, SpaceCompletion { token: op.token, result, destination, oob, retries }));
    }

    /// An append that the die copies is over: its source may be erased as far as that goes.
    #[inline]
    fn let_go_of_source(&mut self, op: &Op) {
        if op.kind == Kind::AppendCopy {
            let source = &mut self.blocks[op.source];
            assert!(source.in_flight > 0, "what a die copies is under way until it was read (I-V24)");
            source.in_flight -= 1;
            self.settle(op.source);
        }
    }

    /// Whether pages that were read are among those that were lost before their block moved.
    fn find_lost(&self, op: &Op, oob: Option<&[u8]>) -> Result<(), SpaceError> {
        let block = &self.blocks[op.block];
        if !block.lost_pages || mutant!("vssd: lost pages read as good") {
            return Ok(());
        }
        let LogicalBlock { unit, index } = block.logical;
        let per_page = self.shape.ius_per_page();
        let pages = oob
            .expect("I-V1: a read ends with what was asked for")
            .chunks_exact(self.shape.oob_size_bytes as usize);
        for (page, bytes) in (op.first_iu / per_page..).zip(pages) {
            if OobRecord::decode(bytes).is_none_or(|record| record.is_lost) {
                let iu = op.first_iu.max(page * per_page);
                return Err(SpaceError::Uncorrectable { unit: unit.0, index, iu });
            }
        }
        Ok(())
    }

    fn append_failed(&self, op: &Op) -> SpaceError {
        let LogicalBlock { unit, index } = self.blocks[op.block].logical;
        SpaceError::AppendFailed { unit: unit.0, index }
    }

    pub(crate) fn translate(&self, op: &Op, error: MediaError) -> SpaceError {
        let LogicalBlock { unit, index } = self.blocks[op.block].logical;
        let unit = unit.0;
        let page_of_holder = |page: u32| page.saturating_sub(self.header_pages);
        let iu = |page: u32| op.first_iu.max(page_of_holder(page) * self.shape.ius_per_page());
        match error {
            MediaError::Uncorrectable { page, .. } => SpaceError::Uncorrectable { unit, index, iu: iu(page) },
            MediaError::Erased { page, .. } => SpaceError::Erased { unit, index, iu: iu(page) },
            MediaError::WrongContentMode { page, .. } => {
                SpaceError::WrongContentMode { unit, index, iu: iu(page) }
            }
            MediaError::ProgramFailed { .. } | MediaError::EraseFailed { .. } | MediaError::NoRoom { .. } => {
                SpaceError::AppendFailed { unit, index }
            }
            MediaError::DieOffline { .. } => SpaceError::UnitOffline { unit },
            MediaError::PowerLost => SpaceError::PowerLost,
            MediaError::FlushFailed => unreachable!("a flush is no operation of an erase block"),
        }
    }
}
