//! Purges: erase blocks that a vSSD gave back, and that may still hold what it had there, are erased before anybody needs them.
//!
//! Each block knows whose content it may still hold though no holder has it any more (`blocks/left.rs`): of its last holder, of a block whose copy
//! it was or which moved away from it; after a restart of anybody. A purge takes down the blocks that concern its vSSD when it begins, so
//! it ends whatever is written meanwhile. Those that are free are erased, a few at a time, and are free again; so are those that are
//! retired, which stay so. Of the others the holders are waited for: they erase what they took, and what moves or is read comes to its
//! end. Erases wait behind everybody else at the dies, as copies for even wear do.
//!
//! What cannot be erased is counted, and the purge says so. With several pools only the dies of this one are looked at.

use crate::blocks::Use;
use crate::core::Core;
use crate::dies::{Kind, Op};
use crate::owners::purge::Purge;
use crate::states::BlockState;
use crate::{IoClass, SpaceCompletion, SpaceError, SpaceToken, VssdId};
use diecut_media::{Media, MediaError, Operation};
use diecut_units::{Time, mark, mutant};
use std::collections::VecDeque;

/// Erases of one purge that are under way at a time: a die that erases serves nobody else.
const AT_ONCE: usize = 2;
/// Free blocks of a die that a purge leaves to holders and copies.
const LEAVE_FREE: usize = 1;

/// What is to be done about a block of a purge.
enum Next {
    /// Nothing: it holds nothing of the vSSD any more, or is another pool's.
    Done,
    Erase {
        /// It is retired, and stays so.
        is_retired: bool,
    },
    /// It cannot be erased.
    Cannot,
    /// Its holder, a move or a read comes to its end first.
    Waits,
}

impl Core {
    /// Erases what a vSSD left: a completion with this token says that it is done.
    ///
    /// # Panics
    /// If a purge of it is under way.
    pub(crate) fn begin_purge<M: Media + ?Sized>(
        &mut self,
        at: usize,
        token: SpaceToken,
        media: &mut M,
        now: Time,
    ) {
        let id = self.vssds[at].id;
        let concerned = (0..).zip(self.blocks.iter()).filter(|(_, block)| block.left.concerns(id));
        let left: VecDeque<(u32, u32)> =
            concerned.map(|(number, block)| (number, block.erase_count)).collect();
        let left = if mutant!("vssd: a purge erases nothing") { VecDeque::new() } else { left };
        let purge =
            Purge { token, left, under_way: Vec::new(), not_erased: 0, is_stuck: self.states.is_lost() };
        let before = self.vssds[at].purge.replace(Box::new(purge));
        assert!(before.is_none(), "I-V23: a vSSD is purged once at a time");
        self.has_purges = true;
        self.go_on_with_purges(media, now);
    }

    /// Takes purges as far as they go now.
    pub(crate) fn go_on_with_purges<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        self.purges_are_due = false;
        if !self.has_purges {
            return;
        }
        self.has_purges = false;
        for at in 0..self.vssds.len() {
            let Some(mut purge) = self.vssds[at].purge.take() else { continue };
            let id = self.vssds[at].id;
            // Erases on dies that stayed with another pool end there.
            purge.under_way.retain(|number| self.owns_die(self.blocks.die_of(*number)));
            self.begin_erases(id, &mut purge, media, now);
            if !purge.under_way.is_empty() || !purge.left.is_empty() && !purge.is_stuck {
                self.vssds[at].purge = Some(purge);
                self.has_purges = true;
                continue;
            }
            let result = match purge.not_erased {
                _ if purge.is_stuck => Err(SpaceError::ReadOnly),
                0 => Ok(()),
                blocks => Err(SpaceError::NotErased { blocks }),
            };
            mark!("vssd: purge is over");
            let answer =
                SpaceCompletion { token: purge.token, result, destination: None, oob: None, retries: 0 };
            self.ready.push((id, answer));
        }
    }

    fn begin_erases<M: Media + ?Sized>(&mut self, id: VssdId, purge: &mut Purge, media: &mut M, now: Time) {
        for _ in 0..purge.left.len() {
            if purge.under_way.len() >= AT_ONCE || purge.is_stuck {
                return;
            }
            let Some((number, erases)) = purge.left.pop_front() else { return };
            match self.next_of(id, number, erases) {
                Next::Done => {}
                Next::Cannot => purge.not_erased += 1,
                Next::Waits => purge.left.push_back((number, erases)),
                Next::Erase { is_retired } => {
                    purge.under_way.push(number);
                    self.begin_erase(id, number, is_retired, media, now);
                }
            }
        }
    }

    fn next_of(&self, id: VssdId, number: u32, erases: u32) -> Next {
        let block = &self.blocks[number];
        let die = self.blocks.die_of(number);
        if !block.left.concerns(id) || !self.owns_die(die) {
            return Next::Done;
        }
        if self.header_pages > 0 {
            // No erase takes away what a drive keeps.
            return Next::Cannot;
        }
        let is_erased = !block.takes_appends() || block.is_erased();
        match block.use_of() {
            Use::Free if block.erase_count > erases => Next::Done,
            Use::Free if self.blocks.free_count(die) > LEAVE_FREE => Next::Erase { is_retired: false },
            // Others that are erased, or copied to, are free again soon.
            Use::Free if self.has_taken(die) => Next::Waits,
            // A holder may need it at any moment.
            Use::Free => Next::Cannot,
            Use::Excluded => Next::Erase { is_retired: true },
            // Since a restart nobody knows whether it was erased for its holder, who cannot write to it and may keep it for long. When that
            // gives it back, it is erased.
            Use::Held if !block.takes_appends() && !block.is_bad() && block.next_page == 0 => Next::Done,
            // Its erase failed: the holder learns of it at its first append, whenever that is.
            Use::Held if block.is_bad() && block.next_page == 0 => Next::Cannot,
            Use::Held if is_erased && block.erase_count > erases => Next::Done,
            Use::Held | Use::Returned | Use::Departed | Use::Copy | Use::Purged { .. } => Next::Waits,
        }
    }

    /// Whether blocks of a die are taken for purges or copies.
    fn has_taken(&self, die: u32) -> bool {
        let is_taken = |number| matches!(self.blocks[number].use_of(), Use::Purged { .. } | Use::Copy);
        self.blocks.of_die(die).any(is_taken)
    }

    fn begin_erase<M: Media + ?Sized>(
        &mut self,
        id: VssdId,
        number: u32,
        is_retired: bool,
        media: &mut M,
        now: Time,
    ) {
        self.blocks.take_for_purge(number);
        let die = self.blocks.die_of(number);
        // Counted when it is intended, as other erases are.
        self.blocks[number].erase_count += 1;
        self.blocks.die_mut(die).wear.host += u64::from(!mutant!("vssd: erases of a purge not counted"));
        self.record(number, if is_retired { BlockState::Retired } else { BlockState::Free });
        let operation = Operation::Erase { block: self.address(number) };
        let op = Op::new(Kind::PurgeErase, VssdId(0), IoClass::Migration, number);
        self.start(Op { token: SpaceToken(id.0.into()), ..op }, operation, media, now);
    }

    /// The erase of a block came back.
    pub(crate) fn purge_erased(&mut self, op: &Op, result: &Result<(), MediaError>) {
        let number = op.block;
        let die = self.blocks.die_of(number);
        self.blocks[number].in_flight -= 1;
        let worked = result.is_ok();
        let is_bad = matches!(result, Err(MediaError::EraseFailed { .. }));
        if worked {
            self.blocks.die_mut(die).erases += 1;
            self.blocks[number].wiped();
        }
        if is_bad {
            mark!("vssd: a purge retires a block");
            self.record(number, BlockState::Retired);
        }
        let change = self.states.change();
        self.blocks.end_of_purge(number, is_bad, change);
        // One more that holders may take.
        for vssd in self.vssds.iter_mut() {
            vssd.free_changes += u64::from(vssd.units.iter().any(|unit| unit.place.die == die));
        }
        let id = VssdId(op.token.0 as u32);
        let Some(at) = self.at_of(id) else { return };
        let vssd = &mut self.vssds[at];
        vssd.erases += u64::from(worked);
        if let Some(purge) = &mut vssd.purge {
            purge.under_way.retain(|other| *other != number);
            purge.not_erased += u32::from(!worked);
        }
        self.purges_are_due = true;
    }

    /// Nothing becomes durable any more: an erase that waited for that is not done.
    pub(crate) fn purge_erase_given_up(&mut self, op: &Op) {
        self.blocks[op.block].in_flight -= 1;
        let change = self.states.change();
        self.blocks.end_of_purge(op.block, false, change);
        if let Some(at) = self.at_of(VssdId(op.token.0 as u32))
            && let Some(purge) = &mut self.vssds[at].purge
        {
            purge.under_way.retain(|other| *other != op.block);
            purge.is_stuck = true;
        }
        self.purges_are_due = true;
    }
}
