//! Commands under way.

use diecut_media::{MediaError, MediaToken, PayloadParts};
use diecut_units::{Buffer, BufferMut};

pub(crate) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    ReadOob,
    Program,
    Erase,
    Copy,
}

impl Kind {
    /// Whether it takes data to the host.
    pub(crate) fn is_read(self) -> bool {
        matches!(self, Kind::Read | Kind::ReadOob)
    }
}

/// One command. Works in steps: a row of pages for a read, a program unit for a program or copy.
pub(crate) struct Slot {
    pub(crate) token: MediaToken,
    pub(crate) kind: Kind,
    pub(crate) die: u32,
    pub(crate) block: u64,
    /// First page of the command (of the destination, for a copy).
    pub(crate) first_page: u32,
    pub(crate) page_count: u32,
    /// Reads of content: IUs within the block.
    pub(crate) first_iu: u32,
    pub(crate) iu_count: u32,
    /// Copies: where from.
    pub(crate) source: u64,
    pub(crate) source_page: u32,
    /// Steps whose array work is done.
    pub(crate) steps_done: u32,
    pub(crate) steps: u32,
    /// Steps whose data crossed the bus (reads).
    pub(crate) steps_transferred: u32,
    /// Array time that a retried read still needs, in nanoseconds, and fault decided for the command.
    pub(crate) retries: u32,
    pub(crate) error: Option<MediaError>,
    pub(crate) flip_bit: Option<u32>,
    pub(crate) destination: Option<BufferMut>,
    pub(crate) oob: Option<BufferMut>,
    pub(crate) parts: PayloadParts,
    pub(crate) program_oob: Option<Buffer>,
}

/// All commands under way; slots are used again, so that a warm device allocates nothing.
#[derive(Default)]
pub(crate) struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
}

impl Slots {
    #[inline]
    pub(crate) fn insert(&mut self, slot: Slot) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = Some(slot);
                index
            }
            None => {
                self.slots.push(Some(slot));
                self.slots.len() as u32 - 1
            }
        }
    }
    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Slot {
        self.slots[index as usize].as_ref().expect("the command is under way")
    }
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Slot {
        self.slots[index as usize].as_mut().expect("the command is under way")
    }
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) -> Slot {
        self.free.push(index);
        self.slots[index as usize].take().expect("the command is under way")
    }
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.free.clear();
    }
}
