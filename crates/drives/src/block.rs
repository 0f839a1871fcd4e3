//! What a drive knows of one erase block, and the order of commands to it.

use diecut_media::{Command, MediaError, MediaToken};
use diecut_units::{EraseBlockAddress, mutant};
use std::collections::VecDeque;
use std::ops::Range;

/// Where an erase block stands. What was programmed before the drive was opened is not known: it can be read, and is erased before it
/// is programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// Not erased since the drive was opened.
    Unknown,
    /// The next page once everything submitted is done.
    Next(u32),
    /// Discarded: it holds nothing, and is erased before it is programmed.
    Discarded,
}

/// An erase block in a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub position: Position,
    /// Pages that may hold something: those of programs that were answered. Where the position is unknown, all, or those before the write pointer
    /// that was found.
    pub answered_pages: u32,
    /// Its place among the busy ones, or [`Block::IDLE`].
    pub busy: u32,
    /// The placement handle that it is written with.
    pub handle: u16,
}

impl Block {
    pub const IDLE: u32 = u32::MAX;
    pub const UNKNOWN: Block =
        Block { position: Position::Unknown, answered_pages: u32::MAX, busy: Block::IDLE, handle: 0 };
}

/// Commands to an erase block that are under way or wait.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    /// In the order of submission; the first one waits for what is under way.
    pub waiting: VecDeque<Command>,
    /// Programs under way, in the order of their pages. They are answered in this order.
    pub programs: VecDeque<Program>,
    /// Reads under way.
    pub reads: u32,
    /// Whether the drive works at it as a whole: its bytes are discarded, or its zone is reset or finished.
    pub is_held: bool,
}

/// A program under way.
#[derive(Debug)]
pub(crate) struct Program {
    pub token: MediaToken,
    pub pages: Range<u32>,
    /// Its answer, once the drive gave one.
    pub result: Option<Result<(), MediaError>>,
}

impl Busy {
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.programs.is_empty() && self.reads == 0 && !self.is_held
    }

    /// The drive works at it as a whole from now on.
    pub fn hold(&mut self) {
        assert!(!self.is_held, "I-D9: one change of an erase block as a whole is under way");
        self.is_held = true;
    }

    /// Whether an erase may take effect.
    pub fn is_still(&self) -> bool {
        let is_held = self.is_held && !mutant!("drives: a block is written while it is discarded");
        self.programs.is_empty() && self.reads == 0 && !is_held
    }

    /// The drive answered the program that begins at a page.
    pub fn programmed(&mut self, first_page: u32, result: Result<(), MediaError>) {
        // I-D1.
        let program = self.programs.iter_mut().find(|program| program.pages.start == first_page);
        program.expect("the drive answers what is under way").result = Some(result);
    }

    /// The drive answered all programs that are under way: they went to it as one.
    pub fn all_programmed(&mut self, result: impl Fn(u32) -> Result<(), MediaError>) {
        self.programs.iter_mut().for_each(|program| program.result = Some(result(program.pages.start)));
    }

    /// The first program, if the drive answered it.
    pub fn take_programmed(&mut self) -> Option<(Program, Result<(), MediaError>)> {
        let result = self.programs.front()?.result?;
        Some((self.programs.pop_front().expect("looked at"), result))
    }
}

/// The error of a read that touches pages which hold nothing, or what a failed program left.
pub(crate) fn refusal(
    address: EraseBlockAddress,
    block: &Block,
    failed: Option<&Vec<Range<u32>>>,
    mut pages: Range<u32>,
) -> Option<MediaError> {
    let is_erased = |page: u32| page >= block.answered_pages;
    let is_failed = |page: u32| failed.is_some_and(|failed| failed.iter().any(|some| some.contains(&page)));
    pages.find_map(|page| match page {
        page if is_erased(page) => Some(MediaError::Erased { block: address, page }),
        page if is_failed(page) => Some(MediaError::Uncorrectable { block: address, page }),
        _ => None,
    })
}
