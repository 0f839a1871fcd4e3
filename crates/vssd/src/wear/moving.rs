//! Blocks on their way to another die: of each exchange one pair at a time, one block of each die, in both directions at once.
//! A block that moves within its die (`in_die.rs`) goes the same way, alone.
//!
//! 1. The least worn free block of the other die is erased: its count is durable before, its state stays free, so a crash
//!    leaves a free block.
//! 2. The pages are read and programmed there, a program unit at a time, with OOB records of kind `Copy`. Reads of the
//!    block go on. An open block moves last: appends to it wait, and go on behind the copy. What is read must be read twice
//!    alike: a holder sees by its checksums that a read was wrong and reads again, but what is programmed stays wrong.
//! 3. When both copies are complete, one durable change makes them the blocks. What the holder knows (logical address,
//!    allocation sequence, write pointer) stays. The old places are free when the last read of them came back.
//!
//! A page that cannot be read is programmed as lost: its OOB record says so, and a read of it fails as before. A copy whose
//! program or erase fails begins again on another block. A block that its holder frees meanwhile is not moved: its copy is
//! given up. All of it waits for everybody else at the dies ([`crate::dies`]), and for the rate, which
//! all exchanges share.

use crate::core::Core;
use crate::dies::{Kind, Op};
use crate::erases::EraseCause;
use crate::states::{BlockState, ExchangePhase, MoveEntry};
use crate::wear::Wear;
use crate::wear::copy::{Copy, Stage, Verdict, oob_buffer, turn_to};
use crate::wear::exchange::{CopyFlush, Exchange};
use crate::wear::migration::{CopyWork, NO_BLOCK};
use crate::wear::source::next_source;
use crate::wear::swap::heal;
use crate::{IoClass, LogicalBlock, OobKind, OobRecord, SpaceToken, VssdId};
use diecut_media::{Completion, Media, MediaError, Operation};
use diecut_units::{BufferMut, ContentMode, IU_SIZE_BYTES, Payload, Span, Time, mark, mutant};

/// Copies that begin again this often leave their block to a later try.
const TRIES_MAX: u32 = 4;

/// How long an exchange rests when nothing can move. A choice: short beside the copy of a block.
const LOOK_AGAIN: Span = Span::from_millis(1);

/// For how long copies may make up for what the rate allowed and they did not use. A choice: a few programs.
const CREDIT: Span = Span::from_millis(10);

/// What became of an exchange that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Something of it is under way, or it rests.
    Waits,
    Finished,
}

/// An operation of the copy that goes to die `goal`: no holder waits for it, and its token names the die.
fn copy_op(kind: Kind, block: u32, goal: u32) -> Op {
    Op { token: SpaceToken(goal.into()), ..Op::new(kind, VssdId(0), IoClass::Migration, block) }
}

impl Wear {
    /// When [`Wear::migrate`] has something to do that no completion will tell of.
    pub(crate) fn migration_deadline(&self, core: &Core) -> Time {
        let migration = &self.migration;
        if migration.has_void {
            return Time::ZERO;
        }
        if !migration.is_started {
            return Time::NEVER;
        }
        let goes_on = !self.is_held_up(core);
        // One that waits begins at once, or goes, if no other one is in its way.
        if goes_on && migration.waiting.iter().any(|dies| !self.will_be_free(*dies)) {
            return Time::ZERO;
        }
        let waits = |copy: &Copy| copy.stage == Stage::Read && !copy.under_way;
        let of = |one: &Exchange| {
            if one.pair.iter().flatten().any(waits) {
                migration.paid_until
            } else if goes_on && one.is_idle() {
                one.rests_until
            } else {
                Time::NEVER
            }
        };
        migration.exchanges.iter().map(of).min().unwrap_or(Time::NEVER)
    }

    /// See [`crate::Pool::begin_migration`].
    pub fn begin_migration(&mut self, core: &mut Core) {
        self.migration.is_started = true;
        self.migration.waiting.extend(heal(core));
        self.has_changed = true;
    }

    /// See [`crate::Pool::copy_work`].
    pub fn copy_work(&self) -> CopyWork {
        self.migration.work
    }

    /// See [`crate::Pool::is_moving`].
    pub fn is_moving(&self) -> bool {
        self.migration.exchanges.iter().any(Exchange::is_moving)
    }

    /// Takes the exchanges that are under way as far as they go now, and begins those that wait.
    pub(crate) fn migrate<M: Media + ?Sized>(&mut self, core: &mut Core, now: Time, media: &mut M) {
        if !self.migration.is_started {
            return;
        }
        self.drop_void(core, now, media);
        loop {
            let mut at = 0;
            while at < self.migration.exchanges.len() {
                match self.take_further(core, at, now, media) {
                    Step::Waits => at += 1,
                    Step::Finished => {
                        self.finish_exchange(core, at);
                        core.kick_state_log(media, now);
                    }
                }
            }
            if self.is_held_up(core) || !self.begin_next(core, now, media) {
                return;
            }
        }
    }

    /// Whether no pair of blocks is begun at all.
    fn is_held_up(&self, core: &Core) -> bool {
        self.migration.paused || self.migration.is_held || core.states.is_lost()
    }

    fn take_further<M: Media + ?Sized>(
        &mut self,
        core: &mut Core,
        at: usize,
        now: Time,
        media: &mut M,
    ) -> Step {
        if !self.settle_pair(core, at, now, media) {
            return Step::Waits;
        }
        loop {
            for side in 0..2 {
                self.go_on(core, at, side, now, media);
            }
            let one = &self.migration.exchanges[at];
            if one.pair.iter().flatten().any(|copy| copy.stage != Stage::Complete) {
                return Step::Waits;
            }
            if one.pair.iter().any(Option::is_some) {
                if !self.are_flushed(core, at, now, media) {
                    return Step::Waits;
                }
                self.commit(core, at, now, media);
                if self.migration.exchanges[at].settling.is_some() {
                    return Step::Waits;
                }
                continue;
            }
            if one.is_inside() {
                return Step::Finished;
            }
            if one.trouble.is_some() || one.rests_until > now || self.is_held_up(core) {
                return Step::Waits;
            }
            match self.next_pair(core, at, now, media) {
                Some(true) => return Step::Finished,
                Some(false) => {}
                None => {
                    // It waits for a free block, for an erase or for a read: there is no word of each.
                    self.migration.exchanges[at].rests_until = now + LOOK_AGAIN;
                    return Step::Waits;
                }
            }
        }
    }

    /// Lets what waits for a pair that changed places go on, once that is durable. Says whether nothing is left to wait for.
    fn settle_pair<M: Media + ?Sized>(
        &mut self,
        core: &mut Core,
        at: usize,
        now: Time,
        media: &mut M,
    ) -> bool {
        let Some((change, copies)) = self.migration.exchanges[at].settling else { return true };
        let durable = core.states.is_durable_at(change);
        let lost = core.states.is_lost();
        if !durable && !lost {
            return false;
        }
        self.migration.exchanges[at].settling = None;
        for copy in copies.into_iter().filter(|copy| *copy != NO_BLOCK) {
            let block = &mut core.blocks[copy];
            if block.settle_in() && lost {
                block.fail();
            }
            core.release_waiting(copy, media, now);
            core.settle(copy);
        }
        true
    }

    /// Begins the next pair of an exchange. Says whether nothing is left to move; `None` if something is, and cannot now.
    fn next_pair<M: Media + ?Sized>(
        &mut self,
        core: &mut Core,
        at: usize,
        now: Time,
        media: &mut M,
    ) -> Option<bool> {
        let dies = self.migration.exchanges[at].dies;
        let (mut left, mut found) = (0, [NO_BLOCK; 2]);
        for side in 0..2 {
            let (of_side, next) = next_source(core, dies[side]);
            left += of_side;
            found[side] = next;
        }
        // Old places that reads still use.
        let departing: u32 = dies.iter().map(|&die| core.blocks.die(die).departing).sum();
        if left == 0 && departing == 0 {
            return Some(true);
        }
        let mut begun = None;
        for side in 0..2 {
            if found[side] != NO_BLOCK
                && free_for_copy(core, dies[1 - side])
                && core.make_room(dies[1 - side], media, now)
            {
                self.begin_copy(core, at, side, found[side], dies[1 - side]);
                begun = Some(false);
            }
        }
        begun
    }

    fn begin_copy(&mut self, core: &mut Core, at: usize, side: usize, source: u32, die: u32) {
        let Some(copy) = core.blocks.take_for_copy(die) else { return };
        self.begin_copy_to(core, at, side, source, copy);
    }

    /// Begins to copy a block to one that was taken for it.
    pub(crate) fn begin_copy_to(&mut self, core: &mut Core, at: usize, side: usize, source: u32, copy: u32) {
        let dies = self.migration.exchanges[at].dies;
        assert_eq!(core.blocks.die_of(source), dies[side], "a block leaves its side's die (I-V15)");
        assert_eq!(core.blocks.die_of(copy), dies[1 - side], "a copy lies on the other die (I-V15)");
        core.blocks[source].leave();
        if mutant!("vssd: moving block freed before its copy holds") {
            core.record(source, BlockState::Free);
        }
        let one = &mut self.migration.exchanges[at];
        // One that is still under way covers nothing of this pair.
        one.flush =
            one.flush.filter(|_| mutant!("vssd: a flush of one pair of copies counts for the next one"));
        let place = &mut one.pair[side];
        assert!(place.is_none(), "an exchange copies one block of each die at a time (I-V15)");
        *place = Some(Copy::new(source, copy));
    }

    /// Whether copies that are complete are durable; has them flushed if not (I-V28).
    fn are_flushed<M: Media + ?Sized>(
        &mut self,
        core: &mut Core,
        at: usize,
        now: Time,
        media: &mut M,
    ) -> bool {
        let keeps_all = !media.capabilities().volatile_cache;
        if keeps_all || core.header_pages == 0 || mutant!("vssd: copies are not flushed") {
            return true;
        }
        let one = &mut self.migration.exchanges[at];
        if let Some(flush) = one.flush {
            return flush.is_over;
        }
        let number = self.migration.flushes;
        self.migration.flushes = number.wrapping_add(1);
        one.flush = Some(CopyFlush { number, is_over: false });
        let token = u64::from(number) << 32 | u64::from(one.dies[0]);
        core.flush_copies(SpaceToken(token), media, now);
        false
    }

    /// A flush came back, perhaps of copies.
    pub(crate) fn copies_flushed<M: Media + ?Sized>(
        &mut self,
        core: &mut Core,
        of_copies: Option<(SpaceToken, Result<(), MediaError>)>,
        now: Time,
        media: &mut M,
    ) {
        let Some((SpaceToken(token), result)) = of_copies else { return };
        let (die, number) = (token as u32, (token >> 32) as u32);
        let is_it =
            |one: &&mut Exchange| one.dies[0] == die && one.flush.is_some_and(|flush| flush.number == number);
        // A pair that was given up meanwhile waits for none.
        let Some(one) = self.migration.exchanges.iter_mut().find(is_it) else { return };
        match result {
            Ok(()) => one.flush = Some(CopyFlush { number, is_over: true }),
            Err(error) => self.in_trouble(core, die, error),
        }
        self.migrate(core, now, media);
    }

    /// Submits the next operation of a copy, if nothing of it is under way and the rate allows it.
    fn go_on<M: Media + ?Sized>(
        &mut self,
        core: &mut Core,
        at: usize,
        side: usize,
        now: Time,
        media: &mut M,
    ) {
        let goal = self.migration.exchanges[at].dies[1 - side];
        let Some(copy) = &mut self.migration.exchanges[at].pair[side] else { return };
        if copy.under_way {
            return;
        }
        let unit_ius = core.shape.program_unit_ius();
        let unit_pages = core.shape.program_unit_pages;
        if copy.stage == Stage::Appends {
            let block = &core.blocks[copy.source];
            if block.appends > block.held_appends() {
                return;
            }
            // A header goes along, where blocks have them.
            let has_content = core.header_pages == 0 || block.has_header();
            copy.pages = if has_content { core.header_pages + block.done_pages } else { 0 };
            copy.stage = Stage::Erase;
            self.count_and_erase(core, goal, now, media);
            return;
        }
        let (source, target) = (copy.source, copy.copy);
        let first_page = copy.done_pages;
        let buffer =
            |ius: u32, mode: ContentMode| BufferMut::copy_from(&vec![0; ius as usize * mode.bytes_per_iu()]);
        let (kind, block, operation) = match copy.stage {
            Stage::Appends | Stage::Erase | Stage::Complete => return,
            Stage::Read => {
                if self.migration.paid_until > now {
                    return;
                }
                let rate = self.migration.rate_bytes_per_second;
                if rate > 0 && copy.look.is_none() {
                    let bytes = u64::from(unit_ius) * IU_SIZE_BYTES as u64;
                    let cost_ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(rate)) as u64;
                    // What nobody used is not lost at once: dies are busy now and then.
                    let from = self.migration.paid_until.0.max(now.0.saturating_sub(CREDIT.0));
                    self.migration.paid_until = Time(from.saturating_add(cost_ns));
                }
                let operation = Operation::Read {
                    block: core.address(source),
                    first_iu: first_page * core.shape.ius_per_page(),
                    iu_count: unit_ius,
                    destination: buffer(unit_ius, core.shape.content_mode),
                    oob: oob_buffer(core.shape.program_unit_oob_size_bytes()),
                };
                (Kind::CopyRead, source, operation)
            }
            Stage::Piece { iu, mode, .. } => {
                let operation = Operation::Read {
                    block: core.address(source),
                    first_iu: first_page * core.shape.ius_per_page() + iu,
                    iu_count: 1,
                    destination: buffer(1, mode),
                    oob: oob_buffer(core.shape.oob_size_bytes),
                };
                (Kind::CopyRead, source, operation)
            }
            Stage::Program => {
                let oob = BufferMut::copy_from(&copy.oob).freeze();
                let parts = std::mem::take(&mut copy.parts);
                let operation = Operation::Program { block: core.address(target), first_page, parts, oob };
                (Kind::CopyProgram, target, operation)
            }
        };
        self.copy_to(goal).under_way = true;
        let op = Op { end_page: first_page + unit_pages, ..copy_op(kind, block, goal) };
        core.start(op, operation, media, now);
    }

    fn count_and_erase<M: Media + ?Sized>(&mut self, core: &mut Core, goal: u32, now: Time, media: &mut M) {
        let copy = self.copy_to(goal);
        (copy.under_way, copy.stage, copy.done_pages) = (true, Stage::Erase, 0);
        let number = copy.copy;
        let of = core.blocks[self.copy_to(goal).source].owner;
        core.blocks[number].count_copy_erase(of);
        let is_inside = self.migration.exchanges.iter().any(|one| one.dies == [goal; 2]);
        let work = &mut self.migration.work;
        *(if is_inside { &mut work.intended_inside_erases } else { &mut work.intended_erases }) += 1;
        let cause = match is_inside != mutant!("vssd: erase of a copy counted as another's") {
            true => EraseCause::Inside,
            false => EraseCause::Migration,
        };
        core.count_erase(number, cause, now);
        core.record(number, BlockState::Free);
        let operation = Operation::Erase { block: core.address(number) };
        core.start(copy_op(Kind::CopyErase, number, goal), operation, media, now);
    }

    /// An operation of a copy came back.
    pub(crate) fn copy_completed(
        &mut self,
        core: &mut Core,
        kind: Kind,
        token: SpaceToken,
        completion: Completion,
    ) {
        let pages = core.shape.program_unit_pages;
        let goal = token.0 as u32;
        let was_under_way = std::mem::take(&mut self.copy_to(goal).under_way);
        assert!(was_under_way, "an operation of a copy ends once (I-V15)");
        if completion.result.is_ok() {
            match kind {
                Kind::CopyErase => self.migration.work.erases += 1,
                Kind::CopyProgram => {
                    self.migration.work.programmed_ius += u64::from(core.shape.program_unit_ius());
                }
                _ => {}
            }
        }
        let copy = self.copy_to(goal);
        if copy.is_void {
            self.migration.has_void = true;
            return;
        }
        match completion.result {
            Err(MediaError::PowerLost) => {
                // Nothing goes on.
                copy.under_way = true;
                return;
            }
            Err(error @ MediaError::DieOffline { .. }) => return self.in_trouble(core, goal, error),
            _ => {}
        }
        match (kind, completion.result) {
            (Kind::CopyErase, Ok(())) => {
                copy.stage = if copy.pages == 0 { Stage::Complete } else { Stage::Read };
                let (of, number) = (core.blocks[copy.source].owner, copy.copy);
                core.blocks[number].wiped();
                core.blocks[number].left = core.blocks[number].left.and(of);
                core.blocks.die_mut(goal).erases += 1;
            }
            (Kind::CopyErase | Kind::CopyProgram, Err(_)) => {
                mark!("vssd: a copy begins again");
                let (failed, tries) = (copy.copy, copy.tries + 1);
                copy.tries = tries;
                // Without room no other block takes it either; it is tried again when there may be some.
                let no_room = matches!(completion.result, Err(MediaError::NoRoom { .. }));
                give_back(core, failed, !no_room);
                let other =
                    if tries < TRIES_MAX && !no_room { core.blocks.take_for_copy(goal) } else { None };
                match other {
                    Some(other) => {
                        let copy = self.copy_to(goal);
                        (copy.copy, copy.done_pages, copy.lost_pages) = (other, 0, false);
                        copy.stage = Stage::Appends;
                    }
                    None => {
                        let copy = self.copy_to(goal);
                        (copy.copy, copy.is_void) = (NO_BLOCK, true);
                        self.migration.has_void = true;
                    }
                }
            }
            (Kind::CopyProgram, Ok(())) => {
                copy.done_pages += pages;
                let early = mutant!("vssd: copy committed half done") && copy.done_pages < copy.pages;
                copy.stage =
                    if copy.done_pages >= copy.pages || early { Stage::Complete } else { Stage::Read };
            }
            (_, result) => self.copy_read(core, goal, result, completion.destination, completion.oob),
        }
    }

    /// The copy that is made on a die.
    ///
    /// # Panics
    /// If there is none: an operation of a copy keeps it.
    fn copy_to(&mut self, goal: u32) -> &mut Copy {
        self.migration.copy(SpaceToken(goal.into())).expect("I-V10: it waits for what it asked for")
    }

    fn copy_read(
        &mut self,
        core: &mut Core,
        goal: u32,
        result: Result<(), MediaError>,
        destination: Option<BufferMut>,
        oob: Option<BufferMut>,
    ) {
        let shape = core.shape;
        let source = self.copy_to(goal).source;
        let place = core.address(source);
        let copy = self.copy_to(goal);
        let mut result = result;
        if result.is_ok() {
            let content = destination.as_deref().expect("I-V1: a read ends with its content");
            match copy.judge(content, oob.as_deref().unwrap_or_default()) {
                Verdict::Same => {}
                Verdict::LookAgain => return,
                Verdict::Unreadable => {
                    mark!("vssd: looks of a copy never agree");
                    result = Err(MediaError::Uncorrectable { block: place, page: copy.done_pages });
                }
            }
        } else {
            (copy.look, copy.looks) = (None, 0);
        }
        match (copy.stage, result) {
            (Stage::Read, Ok(())) => {
                copy.parts.clear();
                let content = destination.expect("I-V1: a read ends with its content").freeze();
                copy.parts.push(Payload::new(shape.content_mode, content));
                copy.oob = oob.as_deref().unwrap_or_default().to_vec();
                self.copy_gathered(core, goal);
            }
            // Where blocks have headers nobody knows how far one is programmed: to here.
            (Stage::Read, Err(MediaError::Erased { page, .. }))
                if core.header_pages > 0 && page == copy.done_pages =>
            {
                (copy.pages, copy.stage) = (copy.done_pages, Stage::Complete);
            }
            (Stage::Read, Err(_)) => {
                mark!("vssd: a copy reads piece by piece");
                copy.parts.clear();
                copy.oob = vec![0; shape.program_unit_oob_size_bytes() as usize];
                copy.stage = Stage::Piece { iu: 0, mode: shape.content_mode, again: false };
                copy.lost_page = None;
            }
            (Stage::Piece { .. }, result) => {
                if copy.take_piece(&shape, result, destination, oob) {
                    self.copy_gathered(core, goal);
                }
            }
            (stage, _) => unreachable!("I-V10: no read in stage {stage:?}"),
        }
    }

    /// A program unit is there: its OOB records become those of a copy.
    fn copy_gathered(&mut self, core: &mut Core, goal: u32) {
        let oob_size = core.shape.oob_size_bytes as usize;
        let mut lost_pages = 0;
        let copy =
            self.migration.copy(SpaceToken(goal.into())).expect("I-V10: it waits for what it asked for");
        let (source, target) = (&core.blocks[copy.source], &core.blocks[copy.copy]);
        if oob_size == 0 {
            // A page that cannot be read is zeros there, and fails the checksums of its holder.
            self.migration.lost_pages += u64::from(copy.lost_page.is_some());
            let copy = self.copy_to(goal);
            if copy.done_pages == 0 {
                let mut unit: Vec<u8> = copy.parts.iter().flat_map(|part| part.bytes().to_vec()).collect();
                core.renew_header(&mut unit, copy.source, copy.copy);
                let content = BufferMut::copy_from(&unit).freeze();
                copy.parts = [Payload::new(ContentMode::Bytes, content)].into_iter().collect();
            }
            copy.stage = Stage::Program;
            return;
        }
        for page in copy.oob.chunks_exact_mut(oob_size) {
            let own = OobRecord::decode(page).filter(|record| {
                record.owner == source.owner
                    && record.block == source.logical
                    && record.sequence == source.sequence
            });
            // A page that does not say that it is the block's is as good as lost.
            let is_lost = own.is_none_or(|record| record.is_lost);
            if is_lost && !mutant!("vssd: lost page copied as good") {
                copy.lost_pages = true;
                lost_pages += 1;
            }
            let record = OobRecord {
                kind: OobKind::Copy,
                purpose: source.purpose,
                owner: source.owner,
                block: source.logical,
                page_or_length: copy.pages,
                sequence: source.sequence,
                erase_count: target.erase_count,
                is_lost,
            };
            record.encode(page);
        }
        copy.stage = Stage::Program;
        self.migration.lost_pages += lost_pages;
    }

    /// A die went: its exchange stays as it is, with what it moved so far.
    fn in_trouble(&mut self, core: &mut Core, goal: u32, error: MediaError) {
        mark!("vssd: a die went during an exchange");
        core.blocks.die_mut(goal).is_offline |= matches!(error, MediaError::DieOffline { .. });
        let one = self.migration.exchanges.iter_mut().find(|one| one.dies.contains(&goal));
        let one = one.expect("I-V16: a copy belongs to an exchange or a move");
        one.trouble = Some(error);
        one.pair.iter_mut().flatten().for_each(|copy| copy.is_void = true);
        self.migration.has_void = true;
    }

    /// The holder freed a block, or its vSSD is removed: its copy is given up.
    pub(crate) fn void_copy(&mut self, number: u32) {
        let pairs = self.migration.exchanges.iter_mut().flat_map(|one| one.pair.iter_mut().flatten());
        if let Some(copy) = pairs.into_iter().find(|copy| copy.source == number) {
            mark!("vssd: a block is freed while it moves");
            copy.is_void = true;
            self.migration.has_void = true;
        }
    }

    /// Lets go of copies that were given up and have nothing under way.
    fn drop_void<M: Media + ?Sized>(&mut self, core: &mut Core, now: Time, media: &mut M) {
        if !std::mem::take(&mut self.migration.has_void) {
            return;
        }
        let all = (0..self.migration.exchanges.len()).flat_map(|at| [(at, 0), (at, 1)]);
        for (at, side) in all {
            let idle = |copy: &mut Copy| copy.is_void && !copy.under_way;
            let Some(copy) = self.migration.exchanges[at].pair[side].take_if(idle) else { continue };
            if copy.copy != NO_BLOCK {
                give_back(core, copy.copy, false);
            }
            if core.blocks[copy.source].stay() {
                core.release_waiting(copy.source, media, now);
                core.settle(copy.source);
            }
        }
    }

    /// Both copies are complete: one durable change makes them the blocks.
    fn commit<M: Media + ?Sized>(&mut self, core: &mut Core, at: usize, now: Time, media: &mut M) {
        let one = &mut self.migration.exchanges[at];
        let (pair, dies) = (std::mem::take(&mut one.pair), one.dies);
        assert!(one.settling.is_none(), "the pair before is settled (I-V15)");
        let is_ready = |copy: &Copy| !copy.under_way && !copy.is_void && copy.copy != NO_BLOCK;
        assert!(pair.iter().flatten().all(is_ready), "copies are whole when they take their places (I-V15)");
        let entry = |copy: &Option<Copy>| {
            copy.as_ref().map(|copy| MoveEntry {
                source: copy.source,
                copy: copy.copy,
                lost_pages: copy.lost_pages,
            })
        };
        let mut moves = [entry(&pair[0]), entry(&pair[1])];
        if mutant!("vssd: blocks of an exchange crossed")
            && let [Some(one), Some(other)] = &mut moves
        {
            std::mem::swap(&mut one.copy, &mut other.copy);
        }
        for one in moves.into_iter().flatten() {
            let source = &core.blocks[one.source];
            let (pages, sequence) = (source.done_pages, source.sequence);
            core.states.set_pages(one.copy, pages, sequence, true);
        }
        if !mutant!("vssd: pair changed without a record") {
            core.states.set_exchange(dies, Some(ExchangePhase::Pair(moves)));
        }
        let is_late = core.states.is_late();
        for one in moves.into_iter().flatten() {
            self.change_places(core, one, is_late);
        }
        let is_inside = self.migration.exchanges[at].is_inside();
        core.states.set_exchange(dies, (!is_inside).then_some(ExchangePhase::UnderWay));
        let copies = moves.map(|one| one.map_or(NO_BLOCK, |one| one.copy));
        let sources = moves.map(|one| one.map_or(NO_BLOCK, |one| one.source));
        if is_late {
            core.states.want();
            self.migration.exchanges[at].settling = Some((core.states.change(), copies));
        }
        for source in sources.into_iter().filter(|source| *source != NO_BLOCK) {
            core.settle(source);
        }
        if !is_late {
            for copy in copies.into_iter().filter(|copy| *copy != NO_BLOCK) {
                core.release_waiting(copy, media, now);
            }
        }
        core.kick_state_log(media, now);
    }

    /// The copy is the block from now on, for its holder and in the table.
    fn change_places(&mut self, core: &mut Core, one: MoveEntry, is_late: bool) {
        let address = core.address(one.copy);
        core.blocks.depart(one.source, one.copy, is_late);
        let copy = &mut core.blocks[one.copy];
        copy.lost_pages |= one.lost_pages;
        let (owner, logical, erase_count) = (copy.owner, copy.logical, copy.erase_count);
        for &at in &copy.waiting {
            core.queues.ops.get_mut(at).block = one.copy;
            if let Some(operation) = core.queues.ops.asked_mut(at)
                && !mutant!("vssd: append that waited goes to the old place")
            {
                turn_to(operation, address, erase_count, core.shape.oob_size_bytes as usize);
            }
        }
        let at = core.at_of(owner).expect("I-V8: the user of a block is there");
        let LogicalBlock { unit, index } = logical;
        let named = &mut core.vssds[at].units[usize::from(unit.0)].map[index as usize];
        assert_eq!(*named, one.source, "a block that moves is named by its unit's map (I-V13)");
        *named = one.copy;
        self.migration.moved_blocks += 1;
        core.record(one.copy, BlockState::Held);
        let bad = core.blocks[one.source].is_bad();
        core.record(one.source, if bad { BlockState::Retired } else { BlockState::Free });
    }

    /// The log of block states took its last block: what waited for it is given up.
    pub(crate) fn erases_failed(&mut self, copies: Vec<SpaceToken>) {
        copies.into_iter().for_each(|token| self.migration.erase_failed(token));
    }
}

fn free_for_copy(core: &Core, die: u32) -> bool {
    core.blocks.next_free(die).is_some()
}

/// The block that a copy took is free again, or, if it is bad, retired.
fn give_back(core: &mut Core, number: u32, is_bad: bool) {
    if is_bad {
        core.record(number, BlockState::Retired);
    }
    core.blocks.release(number, is_bad, core.states.change());
}
