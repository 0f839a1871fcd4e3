//! What the log stripes over: members, each an independent unit with erase blocks.
//!
//! One erase-block space is a row of members, its units. Several spaces, of several devices, can stand below as more of them: who
//! implements [`Members`] then says which space a member belongs to. The log never asks.

use diecut_units::BufferMut;
use diecut_vssd::space::{
    BlockShape, EraseBlockSpace, HeldBlock, IoClass, LogicalBlock, PayloadParts, Purpose, SpaceError,
    SpaceToken, UnitIndex,
};

/// A member of what the log stripes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member(pub u16);

/// An erase block of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberBlock {
    /// The member it lies on.
    pub member: Member,
    /// Its number there.
    pub index: u32,
}

/// IUs of an erase block that lie one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// The erase block.
    pub block: MemberBlock,
    /// The first of them.
    pub first_iu: u32,
    /// How many.
    pub iu_count: u32,
}

/// An erase block that is held for the log, as seen after a restart: see [`HeldBlock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldMemberBlock {
    /// The block.
    pub block: MemberBlock,
    /// What it is for.
    pub purpose: Purpose,
    /// Pages that were programmed; after a cut the last ones may be torn.
    pub written_pages: u32,
    /// Rises with every allocation on a member.
    pub allocation_sequence: u64,
}

/// Erase blocks of all members, lent to the log for the length of a call. What the functions promise stands at those of
/// [`EraseBlockSpace`] that have the same names.
pub trait Members {
    /// Shape of every block.
    fn shape(&self) -> &BlockShape;
    /// Number of members.
    fn member_count(&self) -> u16;
    /// Erase blocks that a member can hold in all.
    fn blocks_of(&self, member: Member) -> u32;
    /// Whether nothing is given any more, whatever is freed.
    fn is_read_only(&self) -> bool;
    /// Erase blocks that a member can still give.
    fn free_blocks(&self, member: Member) -> u32;
    /// Whether the medium has room for the block that a member gives next.
    fn make_room(&mut self, member: Member) -> bool;
    /// Takes an erase block.
    ///
    /// # Errors
    /// As [`EraseBlockSpace::allocate`].
    fn allocate(&mut self, member: Member, purpose: Purpose) -> Result<MemberBlock, SpaceError>;
    /// Whether nothing is to be erased before the first append to a block.
    fn is_erased(&self, block: MemberBlock) -> bool;
    /// Programs the next program units of a block.
    fn append(
        &mut self,
        token: SpaceToken,
        block: MemberBlock,
        parts: PayloadParts,
        oob: BufferMut,
        class: IoClass,
    );
    /// Pages of a block from its start that were programmed or begun.
    fn begun_pages(&self, block: MemberBlock) -> u32;
    /// Takes back the appends to a block from a page on.
    fn withdraw(&mut self, block: MemberBlock, first_page: u32);
    /// Reads IUs, and the OOB of their pages.
    fn read(
        &mut self,
        token: SpaceToken,
        run: BlockRun,
        destination: BufferMut,
        oob: Option<BufferMut>,
        class: IoClass,
    );
    /// Reads only the OOB of pages.
    fn read_oob(
        &mut self,
        token: SpaceToken,
        block: MemberBlock,
        first_page: u32,
        oob: BufferMut,
        class: IoClass,
    );
    /// Gives a block back.
    ///
    /// # Errors
    /// [`SpaceError::NotAllocated`] on a double free.
    fn free(&mut self, block: MemberBlock) -> Result<(), SpaceError>;
    /// Completes when all allocations and frees before it are durable.
    fn sync(&mut self, token: SpaceToken);
    /// All blocks held.
    fn held_blocks(&self) -> Vec<HeldMemberBlock>;
}

impl From<LogicalBlock> for MemberBlock {
    #[inline]
    fn from(block: LogicalBlock) -> MemberBlock {
        MemberBlock { member: Member(block.unit.0), index: block.index }
    }
}

impl From<MemberBlock> for LogicalBlock {
    #[inline]
    fn from(block: MemberBlock) -> LogicalBlock {
        LogicalBlock { unit: UnitIndex(block.member.0), index: block.index }
    }
}

/// One space: its units are the members.
impl<S: EraseBlockSpace> Members for S {
    fn shape(&self) -> &BlockShape {
        EraseBlockSpace::shape(self)
    }
    fn member_count(&self) -> u16 {
        self.unit_count()
    }
    fn blocks_of(&self, member: Member) -> u32 {
        self.blocks_of_unit(UnitIndex(member.0))
    }
    fn is_read_only(&self) -> bool {
        EraseBlockSpace::is_read_only(self)
    }
    fn free_blocks(&self, member: Member) -> u32 {
        EraseBlockSpace::free_blocks(self, UnitIndex(member.0))
    }
    fn make_room(&mut self, member: Member) -> bool {
        EraseBlockSpace::make_room(self, UnitIndex(member.0))
    }
    fn allocate(&mut self, member: Member, purpose: Purpose) -> Result<MemberBlock, SpaceError> {
        EraseBlockSpace::allocate(self, UnitIndex(member.0), purpose).map(MemberBlock::from)
    }
    fn is_erased(&self, block: MemberBlock) -> bool {
        EraseBlockSpace::is_erased(self, block.into())
    }
    fn append(
        &mut self,
        token: SpaceToken,
        block: MemberBlock,
        parts: PayloadParts,
        oob: BufferMut,
        class: IoClass,
    ) {
        EraseBlockSpace::append(self, token, block.into(), parts, oob, class);
    }
    fn begun_pages(&self, block: MemberBlock) -> u32 {
        EraseBlockSpace::begun_pages(self, block.into())
    }
    fn withdraw(&mut self, block: MemberBlock, first_page: u32) {
        EraseBlockSpace::withdraw(self, block.into(), first_page);
    }
    fn read(
        &mut self,
        token: SpaceToken,
        run: BlockRun,
        destination: BufferMut,
        oob: Option<BufferMut>,
        class: IoClass,
    ) {
        let BlockRun { block, first_iu, iu_count } = run;
        EraseBlockSpace::read(self, token, block.into(), first_iu, iu_count, destination, oob, class);
    }
    fn read_oob(
        &mut self,
        token: SpaceToken,
        block: MemberBlock,
        first_page: u32,
        oob: BufferMut,
        class: IoClass,
    ) {
        EraseBlockSpace::read_oob(self, token, block.into(), first_page, oob, class);
    }
    fn free(&mut self, block: MemberBlock) -> Result<(), SpaceError> {
        EraseBlockSpace::free(self, block.into())
    }
    fn sync(&mut self, token: SpaceToken) {
        EraseBlockSpace::sync(self, token);
    }
    fn held_blocks(&self) -> Vec<HeldMemberBlock> {
        let held = EraseBlockSpace::held_blocks(self).into_iter();
        let of_member = |held: HeldBlock| HeldMemberBlock {
            block: held.block.into(),
            purpose: held.purpose,
            written_pages: held.written_pages,
            allocation_sequence: held.allocation_sequence,
        };
        held.map(of_member).collect()
    }
}
