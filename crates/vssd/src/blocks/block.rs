//! One erase block in the hands of a pool: who has it, what can be programmed on it, and whether it moves. Each of the three is a state,
//! and changes by the methods here, which assert where it changes from.

use super::Left;
use crate::{IoClass, LogicalBlock, Purpose, VssdId};
use std::collections::VecDeque;

/// Who has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Nobody: bad, retired, of the system area, or another pool's.
    Excluded,
    /// Nobody; the least worn one is taken next.
    Free,
    /// A holder.
    Held,
    /// Its holder gave it back, and operations of the holder are still under way.
    Returned,
    /// What it held lies on another block now; reads that were under way come back here.
    Departed,
    /// The copy of a block that moves; free, as far as its state on the medium goes.
    Copy,
    /// Nobody; it is erased for a purge. Free or retired, as far as its state on the medium goes.
    Purged { was_retired: bool },
}

/// What can be programmed on a block that is held, or was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// It is being erased: appends wait.
    Opening,
    /// It is erased, and its header is being programmed: appends wait.
    Bare,
    /// The next page.
    Open,
    /// Nothing more: it was open when the process or the power went, or the medium had no room. What a torn program left cannot be
    /// programmed over. It is as good as others once it is free.
    Sealed,
    /// Nothing more: its erase or a program of it failed. It is retired when it is given back.
    Failed,
    /// Nothing, and nothing is read: what it holds is not certain. It is retired when it is given back.
    Suspect,
}

/// Whether a block that is held moves to another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Motion {
    Still,
    /// Its copy is being made: so many appends wait for the end of that.
    Leaving {
        held_appends: u32,
    },
    /// It is the copy, but not durably so: so many appends wait for that.
    Arrived {
        held_appends: u32,
    },
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    use_of: Use,
    fill: Fill,
    motion: Motion,
    /// Some pages could not be read when it was moved here; their OOB records say which.
    pub lost_pages: bool,
    pub owner: VssdId,
    /// Whose content it may still hold besides.
    pub left: Left,
    pub logical: LogicalBlock,
    pub purpose: Purpose,
    pub erase_count: u32,
    pub next_page: u32,
    pub done_pages: u32,
    pub in_flight: u32,
    pub sequence: u64,
    /// Appends under way, and their class: they share one queue, so that they stay in order.
    pub appends: u32,
    pub append_class: IoClass,
    /// Operations that wait for the erase, for the end of a move, or for a program they read.
    pub waiting: VecDeque<u32>,
}

impl Block {
    pub fn new(use_of: Use) -> Block {
        Block {
            use_of,
            fill: Fill::Opening,
            motion: Motion::Still,
            lost_pages: false,
            owner: VssdId(0),
            left: Left::Nobody,
            logical: LogicalBlock::default(),
            purpose: Purpose(0),
            erase_count: 0,
            next_page: 0,
            done_pages: 0,
            in_flight: 0,
            sequence: 0,
            appends: 0,
            append_class: IoClass::HostWrite,
            waiting: VecDeque::new(),
        }
    }

    /// One that is held since before the process began, with so many pages programmed.
    pub fn held(fill: Fill, pages: u32, erase_count: u32) -> Block {
        Block { fill, erase_count, next_page: pages, done_pages: pages, ..Block::new(Use::Held) }
    }

    #[inline]
    pub fn use_of(&self) -> Use {
        self.use_of
    }
    #[inline]
    pub fn fill(&self) -> Fill {
        self.fill
    }
    #[inline]
    pub fn is_moving(&self) -> bool {
        self.motion != Motion::Still
    }
    /// Whether a holder has it and did not give it back.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.use_of == Use::Held
    }
    /// Whether a unit's map names it: a holder has it, or has just given it back.
    pub fn is_mapped(&self) -> bool {
        matches!(self.use_of, Use::Held | Use::Returned)
    }
    pub fn is_suspect(&self) -> bool {
        self.fill == Fill::Suspect
    }
    /// Whether its holder can append, now or when it is erased.
    #[inline]
    pub fn takes_appends(&self) -> bool {
        matches!(self.fill, Fill::Opening | Fill::Bare | Fill::Open)
    }
    /// Whether nothing is programmed on it any more though a holder has it.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        matches!(self.fill, Fill::Sealed | Fill::Failed)
    }
    /// Whether an append can be programmed now.
    #[inline]
    pub fn is_ready_for_appends(&self) -> bool {
        self.fill == Fill::Open && self.motion == Motion::Still
    }
    /// Whether reads up to this page wait for nothing and find what was programmed: it is a holder's and certain, and no page is lost.
    /// Of a block that does not read plainly the reasons are looked at one by one.
    #[inline]
    pub fn reads_plainly(&self, end_page: u32) -> bool {
        end_page <= self.done_pages && self.ends_plainly() && self.fill != Fill::Suspect
    }
    /// Whether the end of a read changes nothing but counts: it is a holder's, nothing waits here, and no page is lost.
    #[inline]
    pub fn ends_plainly(&self) -> bool {
        self.use_of == Use::Held && !self.lost_pages && self.waiting.is_empty()
    }
    /// Whether it is retired when it is given back.
    pub fn is_bad(&self) -> bool {
        matches!(self.fill, Fill::Failed | Fill::Suspect)
    }
    /// Appends that wait because it moves.
    pub fn held_appends(&self) -> u32 {
        match self.motion {
            Motion::Still => 0,
            Motion::Leaving { held_appends } | Motion::Arrived { held_appends } => held_appends,
        }
    }

    /// A holder takes it; it is to be erased.
    pub fn open(&mut self, owner: VssdId, logical: LogicalBlock, purpose: Purpose, sequence: u64) {
        self.assert_free();
        (self.use_of, self.fill, self.motion, self.lost_pages) =
            (Use::Held, Fill::Opening, Motion::Still, false);
        // Counted when it is intended: no crash makes the count smaller than what the silicon saw.
        self.erase_count += 1;
        (self.owner, self.logical, self.purpose) = (owner, logical, purpose);
        (self.next_page, self.done_pages, self.sequence) = (0, 0, sequence);
    }
    /// A copy takes it.
    pub fn take_for_copy(&mut self) {
        self.assert_free();
        self.use_of = Use::Copy;
    }
    /// Free means that nobody can find another one's operation on it.
    fn assert_free(&self) {
        assert!(
            self.use_of == Use::Free && self.in_flight == 0 && self.motion == Motion::Still,
            "a block is taken when it is free (I-V8): {self:?}"
        );
    }
    /// A copy that was taken is to be erased, for what a vSSD holds.
    pub fn count_copy_erase(&mut self, of: VssdId) {
        assert_eq!(self.use_of, Use::Copy, "copies erase what they took (I-V8)");
        self.erase_count += 1;
        self.owner = VssdId(0);
        // Until it is erased it holds what it held, and then the content of the copy.
        self.left = self.left.and(of);
    }
    /// It is erased for a purge.
    pub fn take_for_purge(&mut self) {
        let may = matches!(self.use_of, Use::Free | Use::Excluded) && self.in_flight == 0;
        assert!(may, "what nobody has is erased for a purge (I-V8): {self:?}");
        self.use_of = Use::Purged { was_retired: self.use_of == Use::Excluded };
    }
    /// It was erased for a purge, and is retired as before.
    pub fn stay_retired(&mut self) {
        assert_eq!(self.use_of, Use::Purged { was_retired: true }, "a block is retired for good (I-V8)");
        self.use_of = Use::Excluded;
    }
    /// It was erased: it holds nothing.
    pub fn wiped(&mut self) {
        self.left = Left::Nobody;
    }
    /// Its holder has it no more, and did not erase it.
    pub fn leave_content(&mut self) {
        let is_empty = matches!(self.fill, Fill::Bare | Fill::Open) && self.next_page == 0;
        if !is_empty && self.owner != VssdId(0) {
            self.left = self.left.and(self.owner);
        }
    }
    /// Whether its erase is done, or was tried.
    pub fn is_erased(&self) -> bool {
        self.fill != Fill::Opening
    }

    /// Its erase is done. `has_header`: appends wait for a header, which is to be programmed; the medium has no flash to erase, so that what the
    /// block held is still there, though nobody can read it.
    pub fn erased(&mut self, has_header: bool) {
        assert_eq!(self.done_pages, 0, "nothing is programmed before the erase (I-V9)");
        assert_eq!(self.fill, Fill::Opening, "a block is erased once while it is held (I-V9)");
        self.fill = if has_header && self.use_of == Use::Held { Fill::Bare } else { Fill::Open };
        if !has_header {
            self.wiped();
        }
        if self.use_of == Use::Returned {
            // Appends that waited for the erase come yet.
            self.leave_content();
        }
    }
    /// Whether a header is programmed, or was before the process began, where blocks have headers.
    pub fn has_header(&self) -> bool {
        match self.fill {
            Fill::Opening | Fill::Bare | Fill::Suspect => false,
            Fill::Open => true,
            Fill::Sealed | Fill::Failed => self.next_page > 0,
        }
    }
    /// Whether it is erased, and its header is not programmed yet.
    pub fn is_bare(&self) -> bool {
        self.fill == Fill::Bare
    }
    /// Its header is programmed.
    pub fn headed(&mut self) {
        assert_eq!(self.done_pages, 0, "nothing is programmed before the header (I-V25)");
        if self.fill == Fill::Bare {
            self.fill = Fill::Open;
        }
    }
    /// Its erase or a program failed.
    pub fn fail(&mut self) {
        assert!(
            !matches!(self.use_of, Use::Free | Use::Excluded),
            "what fails was asked for (I-V9): {self:?}"
        );
        if self.fill != Fill::Suspect {
            self.fill = Fill::Failed;
        }
    }
    /// The medium had no room for a program.
    pub fn seal(&mut self) {
        if self.fill != Fill::Failed {
            assert!(
                matches!(self.fill, Fill::Bare | Fill::Open | Fill::Sealed),
                "only open blocks are sealed (I-V9)"
            );
            self.fill = Fill::Sealed;
        }
    }
    /// Flash contradicts its state.
    pub fn suspect(&mut self) {
        assert!(self.is_mapped(), "only what a holder has is doubted (I-V9)");
        self.fill = Fill::Suspect;
    }

    /// Its holder gives it back.
    pub fn give_back(&mut self) {
        assert_eq!(self.use_of, Use::Held, "a block is given back once (I-V8)");
        self.use_of = Use::Returned;
        // A purge that begins before its last operation ends waits for it.
        self.leave_content();
    }
    /// It belonged to a vSSD that was removed just before the process died.
    pub fn left_over(&mut self, is_bad: bool) {
        self.use_of = Use::Returned;
        self.fill = if is_bad { Fill::Failed } else { Fill::Sealed };
    }
    /// Nothing of it is under way any more: nobody has it.
    pub fn release(&mut self, use_of: Use) {
        // Whoever takes it next erases it: a read that is still under way would find nothing, or somebody else's bytes.
        assert_eq!(self.in_flight, 0, "nothing of a block is under way when it is given back (I-V8)");
        assert!(self.waiting.is_empty(), "nothing waits for a block that nobody has (I-V8)");
        assert!(!matches!(self.use_of, Use::Free | Use::Excluded), "a block is released once (I-V8)");
        assert!(matches!(use_of, Use::Free | Use::Excluded), "it is free or retired (I-V8)");
        (self.use_of, self.motion) = (use_of, Motion::Still);
    }

    /// An append waits for the end of a move; says whether there is one.
    #[inline]
    pub fn hold_append(&mut self) -> bool {
        match &mut self.motion {
            Motion::Still => false,
            Motion::Leaving { held_appends } | Motion::Arrived { held_appends } => {
                *held_appends += 1;
                true
            }
        }
    }
    /// An append that waited was answered without having been programmed.
    pub fn drop_append(&mut self) {
        if let Motion::Leaving { held_appends } | Motion::Arrived { held_appends } = &mut self.motion {
            assert!(*held_appends > 0, "an append that waited was counted (I-V10)");
            *held_appends -= 1;
        }
    }
    /// Its copy is begun.
    pub fn leave(&mut self) {
        assert!(self.is_held() && self.motion == Motion::Still, "what is held and still moves (I-V10)");
        assert!(
            !matches!(self.fill, Fill::Opening | Fill::Bare | Fill::Suspect),
            "it is certain what moves (I-V10)"
        );
        self.motion = Motion::Leaving { held_appends: 0 };
    }
    /// Its copy is given up; says whether one was being made.
    pub fn stay(&mut self) -> bool {
        let was_leaving = matches!(self.motion, Motion::Leaving { .. });
        if was_leaving {
            self.motion = Motion::Still;
        }
        was_leaving
    }
    /// That it is the copy is durable; says whether it was not before.
    pub fn settle_in(&mut self) -> bool {
        let had_arrived = matches!(self.motion, Motion::Arrived { .. });
        if had_arrived {
            self.motion = Motion::Still;
        }
        had_arrived
    }
    /// `copy` holds from now on what this one held, with all that waits for it; what this one has under way stays here. `late`: not durably so.
    pub fn depart_to(&mut self, copy: &mut Block, late: bool) {
        let Motion::Leaving { held_appends } = self.motion else {
            panic!("a block departs when its copy was begun (I-V10): {self:?}")
        };
        assert!(self.is_held() && copy.use_of == Use::Copy, "a copy takes the place of what is held (I-V10)");
        assert_eq!(self.appends, held_appends, "no append is under way when a block departs (I-V10)");
        assert!(copy.in_flight == 0 && copy.waiting.is_empty(), "a copy is nobody else's (I-V10)");
        // Its holder may give back the copy, and a purge begin, before its last read ends.
        self.leave_content();
        let waiting = std::mem::take(&mut self.waiting);
        assert!(self.in_flight as usize >= waiting.len(), "what waits is under way (I-V1)");
        self.in_flight -= waiting.len() as u32;
        self.appends = 0;
        (self.use_of, self.motion) = (Use::Departed, Motion::Still);
        *copy = Block {
            use_of: Use::Held,
            fill: if self.fill == Fill::Failed { Fill::Sealed } else { self.fill },
            motion: if late { Motion::Arrived { held_appends } } else { Motion::Still },
            erase_count: copy.erase_count,
            left: Left::Nobody,
            in_flight: waiting.len() as u32,
            appends: held_appends,
            waiting,
            ..self.clone()
        };
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn open_block() -> Block {
        let mut block = Block::new(Use::Free);
        block.open(VssdId(7), LogicalBlock::default(), Purpose(1), 9);
        block.erased(false);
        block
    }

    /// Goal: what waits goes along with a move and is counted at the new place alone. Method: two appends wait, one of them is answered.
    #[test]
    fn what_waits_goes_along() {
        let mut source = open_block();
        assert!(!source.hold_append(), "a block that is still keeps nobody waiting");
        source.leave();
        for at in [3, 4] {
            assert!(source.hold_append());
            (source.appends, source.in_flight) = (source.appends + 1, source.in_flight + 1);
            source.waiting.push_back(at);
        }
        source.waiting.pop_front();
        source.drop_append();
        (source.appends, source.in_flight) = (1, 2);
        let mut copy = Block::new(Use::Free);
        copy.take_for_copy();
        copy.count_copy_erase(VssdId(7));
        source.depart_to(&mut copy, true);
        assert_eq!((source.use_of(), source.in_flight, source.appends), (Use::Departed, 1, 0));
        assert_eq!((copy.in_flight, copy.appends, copy.held_appends()), (1, 1, 1));
        assert!(copy.is_held() && !copy.is_ready_for_appends() && copy.settle_in());
        assert!(copy.is_ready_for_appends() && !copy.settle_in());
        assert_eq!((copy.owner, copy.sequence, copy.erase_count), (VssdId(7), 9, 1));
    }

    /// A block that failed takes nothing at its new place either, but that place is good.
    #[test]
    fn a_failed_block_is_sealed_at_its_new_place() {
        let (mut source, mut copy) = (open_block(), Block::new(Use::Free));
        source.fail();
        source.seal();
        assert!(source.is_bad(), "a failure is not forgotten");
        source.leave();
        copy.take_for_copy();
        source.depart_to(&mut copy, false);
        assert!(source.is_bad() && copy.is_stopped() && !copy.is_bad());
    }

    #[test]
    #[should_panic(expected = "I-V8")]
    fn a_block_with_something_under_way_is_not_given_out() {
        let mut block = Block::new(Use::Free);
        block.in_flight = 1;
        block.take_for_copy();
    }

    #[test]
    #[should_panic(expected = "I-V10")]
    fn a_block_with_appends_under_way_does_not_depart() {
        let (mut source, mut copy) = (open_block(), Block::new(Use::Free));
        source.leave();
        source.appends = 1;
        copy.take_for_copy();
        source.depart_to(&mut copy, false);
    }
}
