//! The operations of a pool that are not over yet: each has a place, whose number is its token at the medium.

use crate::{IoClass, SpaceToken, VssdId};
use diecut_media::Operation;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Append,
    Erase,
    /// Of a copy of a block that changes dies (see `moving.rs`); no holder waits for it.
    CopyErase,
    CopyRead,
    CopyProgram,
}

impl Kind {
    pub fn is_of_copy(self) -> bool {
        matches!(self, Kind::CopyErase | Kind::CopyRead | Kind::CopyProgram)
    }
    pub fn only_reads(self) -> bool {
        matches!(self, Kind::Read | Kind::CopyRead)
    }
}

pub(crate) struct Op {
    pub kind: Kind,
    pub owner: VssdId,
    pub class: IoClass,
    pub block: u32,
    pub token: SpaceToken,
    pub first_iu: u32,
    pub end_page: u32,
    /// What it takes of its vSSD's rate.
    pub bytes: u64,
    /// The OOB that comes back is not for the holder.
    pub own_oob: bool,
}

impl Op {
    /// An operation on a whole block that nobody waits for; the other fields say what differs.
    pub fn new(kind: Kind, owner: VssdId, class: IoClass, block: u32) -> Op {
        let token = SpaceToken(0);
        Op { kind, owner, class, block, token, first_iu: 0, end_page: 0, bytes: 0, own_oob: false }
    }
}

/// A slab of operations. What waits keeps beside it what the medium will be asked; most never wait, so that is apart.
#[derive(Default)]
pub(crate) struct Ops {
    places: Vec<Option<Op>>,
    asked: Vec<Option<Operation>>,
    free: Vec<u32>,
}

impl Ops {
    /// Gives an operation a place.
    pub fn add(&mut self, op: Op) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.places[at as usize] = Some(op);
                at
            }
            None => {
                self.places.push(Some(op));
                self.asked.push(None);
                self.places.len() as u32 - 1
            }
        }
    }

    /// An operation that is not over.
    ///
    /// # Panics
    /// If nothing has this place.
    pub fn get(&self, at: u32) -> &Op {
        self.places[at as usize].as_ref().expect("the operation is not over")
    }

    /// As [`Ops::get`], to change it.
    pub fn get_mut(&mut self, at: u32) -> &mut Op {
        self.places[at as usize].as_mut().expect("the operation is not over")
    }

    /// Ends an operation: its place may be given again, what it would have asked is dropped.
    ///
    /// # Panics
    /// If nothing has this place: a completion comes once.
    pub fn remove(&mut self, at: u32) -> Op {
        let op = self.places[at as usize].take().expect("an operation ends once (I-V1)");
        self.asked[at as usize] = None;
        self.free.push(at);
        op
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
