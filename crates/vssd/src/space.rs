//! Waist 2: the erase-block space of one vSSD (FlashBlox section 3.1, table 3 of the paper).
//!
//! The holder sees numbered independent units and logical erase blocks on them, never where they lie. A later
//! migration changes nothing that can be seen here but a short delay.

pub use diecut_media::PayloadParts;
use diecut_units::{BufferMut, ContentMode, IU_SIZE_BYTES};

/// A vSSD of a pool, and the owner generation of its blocks: never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VssdId(pub u32);

/// An independent unit of a vSSD: a die of its own, or a soft-plane of a shared die. Units work in parallel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitIndex(pub u16);

/// A logical erase block: the `index`-th of its unit. Indices are dense from 0 and are used again after a free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogicalBlock {
    /// The unit the block lies on.
    pub unit: UnitIndex,
    /// Number of the block within its unit, below [`EraseBlockSpace::blocks_of_unit`].
    pub index: u32,
}

/// IUs of an erase block that lie one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// The erase block.
    pub block: LogicalBlock,
    /// The first of them.
    pub first_iu: u32,
    /// How many.
    pub iu_count: u32,
}

/// Pages of an erase block from one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPages {
    /// The erase block.
    pub block: LogicalBlock,
    /// The first of them, at the start of a program unit.
    pub first_page: u32,
}

/// What the holder keeps in a block; stored with the block and given back by [`EraseBlockSpace::held_blocks`],
/// so that the holder finds its own records after a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Purpose(pub u8);

/// Chosen by the holder, returned with the completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceToken(pub u64);

/// Who an operation is for. The die arbiter serves earlier classes first, within bounds that keep the later
/// ones moving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoClass {
    /// A host waits for this read.
    HostRead,
    /// A host's data on its way to flash.
    HostWrite,
    /// Copies of the cleaner.
    Cleaner,
    /// Map leaves, summaries, checkpoints.
    Metadata,
    /// Exchange of erase blocks for wear.
    Migration,
}

/// Shape of every erase block of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShape {
    /// Pages of a block.
    pub pages: u32,
    /// Data bytes of a page.
    pub page_size_bytes: u32,
    /// Pages of one program unit; appends are whole units.
    pub program_unit_pages: u32,
    /// How many trailing units of an open block a power cut can destroy (`Capabilities::unsafe_units`); all of them where
    /// [`BlockShape::volatile_cache`] holds, until a flush.
    pub unsafe_units: u32,
    /// How many units may be on flash behind one whose program failed, if the process died before it could be written down:
    /// those that the medium had already when it failed. Nobody was ever told that they are durable.
    pub pipelined_units: u32,
    /// OOB bytes of a page, as passed to append and read; 0 where pages have no OOB areas. What is appended must describe itself there.
    pub oob_size_bytes: u32,
    /// The holder's part of each page's OOB starts here; what lies before belongs to `vssd`.
    pub holder_oob_offset: u32,
    /// What stands for the content of user data.
    pub content_mode: ContentMode,
    /// Whether only [`EraseBlockSpace::flush`] makes appends survive a power cut: of what was appended since the last one that is complete,
    /// any subset of sectors of 512 bytes may be gone. Holds for all without OOB areas: those that keep what they take are flushed, too, because what was
    /// noted of a flush is all that tells a loss from the end of what was written.
    pub volatile_cache: bool,
}

impl BlockShape {
    /// Whether blocks of both may be in one segment. One may lie in a cache where the other does not: then all are treated as if they did.
    pub fn is_like(&self, other: &BlockShape) -> bool {
        let in_cache =
            |shape: &BlockShape| BlockShape { unsafe_units: shape.pages, volatile_cache: true, ..*shape };
        in_cache(self) == in_cache(other)
    }

    /// Whether a unit of a block with `written_units` units on flash is none of those that may be damaged without having
    /// been acknowledged: the last one, those that a power cut destroys with it, and those around a failed program.
    pub fn is_settled(&self, unit: u32, written_units: u32) -> bool {
        unit + 2 + self.unsafe_units.max(self.pipelined_units) <= written_units
    }

    /// Whether pages have OOB areas. Where they have none, erase blocks have headers and nonces, and what is appended describes itself.
    pub const fn has_oob(&self) -> bool {
        self.oob_size_bytes > 0
    }
    /// IUs of a page.
    pub const fn ius_per_page(&self) -> u32 {
        self.page_size_bytes / IU_SIZE_BYTES as u32
    }
    /// IUs of a block.
    pub const fn ius(&self) -> u32 {
        self.pages * self.ius_per_page()
    }
    /// IUs of a program unit.
    pub const fn program_unit_ius(&self) -> u32 {
        self.program_unit_pages * self.ius_per_page()
    }
    /// Program units of a block.
    pub const fn program_units(&self) -> u32 {
        self.pages / self.program_unit_pages
    }
    /// OOB bytes of a program unit.
    pub const fn program_unit_oob_size_bytes(&self) -> u32 {
        self.program_unit_pages * self.oob_size_bytes
    }
}

/// A block that the space holds for its holder, as seen after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBlock {
    /// The block.
    pub block: LogicalBlock,
    /// What the holder said it is for.
    pub purpose: Purpose,
    /// Pages that were programmed; after a cut the last ones may be torn (their reads fail).
    pub written_pages: u32,
    /// Rises with every allocation of the space; tells which of two blocks was opened later.
    pub allocation_sequence: u64,
}

/// Facts about a space that its holder must live with. Broken rules (append to a freed block, beyond the end,
/// not whole units) are the holder's bug and panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    /// No free erase block on this unit.
    #[error("unit {unit}: no free erase block")]
    NoFreeBlock {
        /// The unit.
        unit: u16,
    },
    /// The block is not held: freed before, or never allocated.
    #[error("unit {unit} block {index}: not allocated")]
    NotAllocated {
        /// Unit.
        unit: u16,
        /// Block within the unit.
        index: u32,
    },
    /// The data cannot be read back: more errors than the code corrects, or torn by a power cut.
    #[error("unit {unit} block {index} IU {iu}: uncorrectable")]
    Uncorrectable {
        /// Unit.
        unit: u16,
        /// Block within the unit.
        index: u32,
        /// First IU that failed.
        iu: u32,
    },
    /// Nothing was programmed there since the last erase.
    #[error("unit {unit} block {index} IU {iu}: not programmed")]
    Erased {
        /// Unit.
        unit: u16,
        /// Block within the unit.
        index: u32,
        /// First IU that is erased.
        iu: u32,
    },
    /// Content is stored as bytes where tags were asked for, or the other way round (tag mode only).
    #[error("unit {unit} block {index} IU {iu}: content is stored in the other mode")]
    WrongContentMode {
        /// Unit.
        unit: u16,
        /// Block within the unit.
        index: u32,
        /// First IU.
        iu: u32,
    },
    /// The program failed. What the block held before still reads; it takes no more appends and is retired
    /// when it is freed.
    #[error("unit {unit} block {index}: program failed, append to another block and free this one")]
    AppendFailed {
        /// Unit.
        unit: u16,
        /// Block within the unit.
        index: u32,
    },
    /// The die or channel under this unit no longer answers.
    #[error("unit {unit}: die does not answer")]
    UnitOffline {
        /// The unit.
        unit: u16,
    },
    /// The vSSD takes no more writes (its reserve of good blocks is used up).
    #[error("the vSSD is read-only: its reserve of good erase blocks is used up")]
    ReadOnly,
    /// The medium has no room at present ([`EraseBlockSpace::make_room`]). Nothing is wrong with its blocks; it may have some later.
    #[error("the medium has no room at present: the file system that its content lies on is full")]
    NoRoom,
    /// A flush failed. What was appended since the last one that worked may be lost, and the medium takes no more programs: asking again
    /// would succeed without it.
    #[error("the medium could not make durable what was written")]
    FlushFailed,
    /// Erase blocks that went bad, or that a holder may need at any moment, could not be erased, and keep what they held.
    #[error("{blocks} erase blocks could not be erased")]
    NotErased {
        /// How many.
        blocks: u32,
    },
    /// The power is gone.
    #[error("power is lost")]
    PowerLost,
}

impl SpaceError {
    /// The same, of a unit that is called otherwise.
    #[must_use]
    pub fn of_unit(self, name: impl FnOnce(u16) -> u16) -> SpaceError {
        let mut error = self;
        match &mut error {
            SpaceError::NoFreeBlock { unit }
            | SpaceError::NotAllocated { unit, .. }
            | SpaceError::Uncorrectable { unit, .. }
            | SpaceError::Erased { unit, .. }
            | SpaceError::WrongContentMode { unit, .. }
            | SpaceError::AppendFailed { unit, .. }
            | SpaceError::UnitOffline { unit } => *unit = name(*unit),
            SpaceError::ReadOnly
            | SpaceError::NoRoom
            | SpaceError::FlushFailed
            | SpaceError::NotErased { .. }
            | SpaceError::PowerLost => {}
        }
        error
    }
}

/// What was done for the holder of a space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceWork {
    /// IUs that were handed over for appends, without those that were withdrawn.
    pub appended_ius: u64,
    /// Erase blocks that were erased.
    pub erases: u64,
}

/// The answer to an append, a read, a flush or a sync.
#[derive(Debug)]
pub struct SpaceCompletion {
    /// The operation's token.
    pub token: SpaceToken,
    /// Whether it worked.
    pub result: Result<(), SpaceError>,
    /// The destination of a read, filled on success.
    pub destination: Option<BufferMut>,
    /// The OOB destination of a read, filled on success.
    pub oob: Option<BufferMut>,
    /// How often cells were read again before a read could be corrected; 0 of what is no read.
    pub retries: u8,
}

/// Erase blocks of one vSSD, lent to its holder for the length of a call. Completions of the asynchronous
/// operations reach the holder through whoever drives it.
///
/// A vSSD with parts on several devices is one space over several ([`crate::JoinedSpace`]): their units are its units. Holders never ask
/// which of them a unit belongs to.
///
/// Durability: an append is durable, as far as [`BlockShape::unsafe_units`] allows, when it completes; where
/// [`BlockShape::volatile_cache`] holds, when a [`EraseBlockSpace::flush`] that was asked for after that completes. An
/// allocation is durable when the first append to it completes, or at the next [`EraseBlockSpace::sync`]. A
/// free is never undone by a crash once a sync that followed it completed; before that the block may come
/// back, held and with all its content. A freed block is not erased before its free is durable.
pub trait EraseBlockSpace {
    /// Shape of every block.
    fn shape(&self) -> &BlockShape;
    /// Number of independent units.
    fn unit_count(&self) -> u16;
    /// Erase blocks the unit can hold in all: fixed when the vSSD is made. Blocks that go bad are the reserve's loss; when
    /// that is used up, the vSSD is read-only.
    fn blocks_of_unit(&self, unit: UnitIndex) -> u32;
    /// Whether [`EraseBlockSpace::allocate`] gives nothing any more, whatever is freed.
    fn is_read_only(&self) -> bool;
    /// Erase blocks that [`EraseBlockSpace::allocate`] can still give on this unit.
    fn free_blocks(&self, unit: UnitIndex) -> u32;
    /// A number that rises with each allocation and each free, and whenever [`EraseBlockSpace::free_blocks`] of a unit changed: with the same
    /// number nobody needs to count again. Nothing if that is not known.
    fn free_changes(&self) -> Option<u64> {
        None
    }
    /// Whether the medium has room for the erase block that [`EraseBlockSpace::allocate`] gives next on this unit. Some keep their
    /// content on a file system that others fill, too. Asking keeps the room.
    fn make_room(&mut self, _unit: UnitIndex) -> bool {
        true
    }
    /// What was done for the holder since some moment before it was opened. After a restart it begins anew.
    fn work(&self) -> SpaceWork;
    /// Takes an erase block that is or will be erased before its first append.
    ///
    /// # Errors
    /// [`SpaceError::NoFreeBlock`], [`SpaceError::ReadOnly`], [`SpaceError::UnitOffline`], [`SpaceError::NoRoom`].
    fn allocate(&mut self, unit: UnitIndex, purpose: Purpose) -> Result<LogicalBlock, SpaceError> {
        self.allocate_described(unit, purpose, &[])
    }
    /// As [`EraseBlockSpace::allocate`]. Where blocks have headers, `description` stands in that of this one, and is durable with the first flush that
    /// covers an append to it; [`EraseBlockSpace::read_description`] finds it again. Others drop it.
    ///
    /// # Errors
    /// As [`EraseBlockSpace::allocate`].
    ///
    /// # Panics
    /// If the description is longer than [`crate::HEADER_HOLDER_SIZE_BYTES`].
    fn allocate_described(
        &mut self,
        unit: UnitIndex,
        purpose: Purpose,
        description: &[u8],
    ) -> Result<LogicalBlock, SpaceError>;
    /// Reads the header of a block that is held into `destination`, one IU: the description begins at byte
    /// [`crate::HEADER_HOLDER_AT_BYTES`] there. [`SpaceError::Erased`] if the header never came to the medium, so that nothing behind it counts, and
    /// where blocks have none; [`SpaceError::Uncorrectable`] if it cannot be read.
    fn read_description(&mut self, token: SpaceToken, block: LogicalBlock, destination: BufferMut);
    /// 8 bytes of the allocation of a block that is held, which nobody can guess, where pages have no OOB areas: what the holder appends names them,
    /// so that it is told from what an earlier owner, or a host in its data, left in the block.
    fn nonce(&self, _block: LogicalBlock) -> Option<[u8; 8]> {
        None
    }
    /// Erases that the silicon under a block has had, those for its first append included; nothing if that is not known.
    fn erases(&self, _block: LogicalBlock) -> Option<u32> {
        None
    }
    /// Whether nothing is to be erased, or was tried to be, before the first append to this block is programmed.
    fn is_erased(&self, _block: LogicalBlock) -> bool {
        true
    }
    /// Programs the next program units of a block. `oob` has `oob_size_bytes` for each page, with the holder's
    /// part filled; `vssd` fills its own. Appends to one block take effect in order.
    fn append(
        &mut self,
        token: SpaceToken,
        block: LogicalBlock,
        parts: PayloadParts,
        oob: BufferMut,
        class: IoClass,
    );
    /// Whether [`EraseBlockSpace::append_copy`] is worth a try: the medium copies within its dies.
    fn copies_within_dies(&self) -> bool {
        false
    }
    /// As [`EraseBlockSpace::append`], of what pages of `source` hold, as many as `oob` is for: the die copies them, and nothing crosses its
    /// channel. `source` is a block of the same unit. Nobody sees what is copied, so its checksums are to stand in `oob` as they stand in the
    /// source.
    ///
    /// A source that cannot be read, or is freed, does not keep the call from being taken: the block fails then as with an append.
    ///
    /// # Errors
    /// `oob`, and nothing happened, if it cannot be at present: the medium does not do it, the blocks lie on several dies or move to another
    /// one, pages of the source are not programmed yet or were lost, or the block takes no appends.
    fn append_copy(
        &mut self,
        _token: SpaceToken,
        _source: BlockPages,
        _block: LogicalBlock,
        oob: BufferMut,
        _class: IoClass,
    ) -> Result<(), BufferMut> {
        Err(oob)
    }
    /// Pages of a block from its start that appends have programmed or begun to program; [`u32::MAX`] if that cannot be said.
    /// Appends behind them wait, and can be taken back. Looks through the queue of a die: cold path.
    fn begun_pages(&self, block: LogicalBlock) -> u32;
    /// Takes back the appends to a block from a page on, as if they had never been made: they are not answered.
    ///
    /// # Panics
    /// If [`EraseBlockSpace::begun_pages`] are more, or an append holds pages before and behind that one.
    fn withdraw(&mut self, block: LogicalBlock, first_page: u32);
    /// Reads IUs into `destination` (see `Operation::Read` of the media contract for its length)
    /// and the OOB of the pages touched into `oob`.
    fn read(
        &mut self,
        token: SpaceToken,
        run: BlockRun,
        destination: BufferMut,
        oob: Option<BufferMut>,
        class: IoClass,
    );
    /// Reads only the OOB of consecutive pages.
    fn read_oob(
        &mut self,
        token: SpaceToken,
        block: LogicalBlock,
        first_page: u32,
        oob: BufferMut,
        class: IoClass,
    );
    /// Gives a block back. Reads of it that are under way still complete. Until a [`EraseBlockSpace::sync`] after it
    /// completes, a cut may bring the block back, with all it held: no block is erased before its free is durable. A
    /// holder could else not tell a free that came back from data that the medium lost.
    ///
    /// # Errors
    /// [`SpaceError::NotAllocated`] on a double free.
    fn free(&mut self, block: LogicalBlock) -> Result<(), SpaceError>;
    /// Completes when every append that completed before it, with the allocation of its block, survives a power cut; at once where
    /// [`BlockShape::volatile_cache`] does not hold. Fails with [`SpaceError::FlushFailed`] once, and then always.
    fn flush(&mut self, token: SpaceToken);
    /// Completes when all allocations and frees before it are durable.
    fn sync(&mut self, token: SpaceToken);
    /// Erases what blocks still hold that were given back before, wherever that lies; what is held stays. Completes when none of it can be
    /// found on flash any more, or with [`SpaceError::NotErased`] or [`SpaceError::ReadOnly`]. Everybody else comes first at the dies.
    ///
    /// # Panics
    /// If one is under way.
    fn erase_freed(&mut self, token: SpaceToken);
    /// All blocks held, for the holder to find its own after a restart; cold path.
    fn held_blocks(&self) -> Vec<HeldBlock>;
}
