//! The operations of a pool that are not over yet: each has a place, whose number is its token at the medium.

use crate::{IoClass, SpaceToken, VssdId};
use diecut_media::Operation;
use diecut_units::{Slab, Time};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Append,
    /// As [`Kind::Append`], of what another block of the die holds: the die copies it ([`Op::source`]).
    AppendCopy,
    Erase,
    /// The header of a block, behind its erase, where blocks have one.
    Header,
    /// Of the header of a block, for its holder.
    HeaderRead,
    /// Of a copy of a block that changes dies (see `moving.rs`); no holder waits for it.
    CopyErase,
    CopyRead,
    CopyProgram,
    /// Of a purge (see `purge.rs`).
    PurgeErase,
}

impl Kind {
    /// Whether it programs for a holder.
    #[inline]
    pub fn appends(self) -> bool {
        matches!(self, Kind::Append | Kind::AppendCopy)
    }
    pub fn is_of_copy(self) -> bool {
        matches!(self, Kind::CopyErase | Kind::CopyRead | Kind::CopyProgram)
    }
    /// Whether no holder waits for it.
    pub fn is_of_nobody(self) -> bool {
        self.is_of_copy() || self == Kind::PurgeErase
    }
    pub fn erases(self) -> bool {
        matches!(self, Kind::Erase | Kind::CopyErase | Kind::PurgeErase)
    }
    pub fn only_reads(self) -> bool {
        matches!(self, Kind::Read | Kind::CopyRead | Kind::HeaderRead)
    }
}

pub(crate) struct Op {
    pub kind: Kind,
    pub owner: VssdId,
    pub class: IoClass,
    pub block: u32,
    /// Of an append that the die copies: the block that it reads, which counts it as under way, too.
    pub source: u32,
    pub token: SpaceToken,
    pub first_iu: u32,
    pub end_page: u32,
    /// What it takes of its vSSD's rate.
    pub bytes: u64,
    /// The OOB that comes back is not for the holder.
    pub own_oob: bool,
    /// When it came, to wait for its die or for something before that.
    pub queued: Time,
    /// When the medium got it.
    pub begun: Time,
}

impl Op {
    /// An operation on a whole block that nobody waits for; the other fields say what differs.
    pub fn new(kind: Kind, owner: VssdId, class: IoClass, block: u32) -> Op {
        Op {
            kind,
            owner,
            class,
            block,
            source: block,
            token: SpaceToken(0),
            first_iu: 0,
            end_page: 0,
            bytes: 0,
            own_oob: false,
            queued: Time::ZERO,
            begun: Time::ZERO,
        }
    }
}

/// Operations that are not over. What waits keeps beside it what the medium will be asked; most never wait, so that is apart.
#[derive(Default)]
pub(crate) struct Ops {
    ops: Slab<Op>,
    /// By operation: one at most.
    asked: Vec<Option<Operation>>,
}

impl Ops {
    /// Gives an operation a place.
    #[inline(always)]
    pub fn add(&mut self, op: Op) -> u32 {
        let at = self.ops.insert(op);
        if at as usize == self.asked.len() {
            self.asked.push(None);
        }
        at
    }

    /// An operation that is not over.
    ///
    /// # Panics
    /// If nothing has this place.
    #[inline]
    pub fn get(&self, at: u32) -> &Op {
        &self.ops[at]
    }

    /// As [`Ops::get`], to change it.
    pub fn get_mut(&mut self, at: u32) -> &mut Op {
        &mut self.ops[at]
    }

    /// Ends an operation that the medium answered: its place may be given again.
    ///
    /// # Panics
    /// If nothing has this place: a completion comes once (I-V1).
    #[inline(always)]
    pub fn end(&mut self, at: u32) -> Op {
        debug_assert!(self.asked[at as usize].is_none(), "what waits was not answered (I-V1)");
        self.ops.remove(at)
    }

    /// Takes out an operation that waits: what it would have asked is dropped.
    ///
    /// # Panics
    /// If nothing has this place (I-V1).
    pub fn remove(&mut self, at: u32) -> Op {
        self.asked[at as usize] = None;
        self.ops.remove(at)
    }

    /// Keeps what the medium will be asked until the operation's turn comes.
    pub fn store(&mut self, at: u32, operation: Operation) {
        let asked = &mut self.asked[at as usize];
        assert!(asked.is_none(), "an operation waits in one place at a time (I-V1)");
        *asked = Some(operation);
    }

    /// Takes out what the medium is asked now.
    ///
    /// # Panics
    /// If it was taken out before.
    pub fn take(&mut self, at: u32) -> Operation {
        self.asked[at as usize].take().expect("an operation is submitted once (I-V1)")
    }

    /// What a waiting operation will ask, to change it.
    pub fn asked_mut(&mut self, at: u32) -> Option<&mut Operation> {
        self.asked[at as usize].as_mut()
    }
}
