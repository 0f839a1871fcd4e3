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

impl Slot {
    /// A command of which only the first words are known.
    fn new(token: MediaToken, kind: Kind, die: u32, block: u64) -> Slot {
        Slot {
            token,
            kind,
            die,
            block,
            first_page: 0,
            page_count: 0,
            first_iu: 0,
            iu_count: 0,
            source: 0,
            source_page: 0,
            steps_done: 0,
            steps: 1,
            steps_transferred: 0,
            retries: 0,
            error: None,
            flip_bit: None,
            destination: None,
            oob: None,
            parts: PayloadParts::new(),
            program_oob: None,
        }
    }
}

/// All commands under way; slots are used again, so that a warm device allocates nothing.
#[derive(Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    /// A place for a command, to be filled in. It is written where it stays: moving it costs more than simulating it.
    #[inline]
    pub(crate) fn add(&mut self, token: MediaToken, kind: Kind, die: u32, block: u64) -> u32 {
        let Some(index) = self.free.pop() else {
            self.slots.push(Slot::new(token, kind, die, block));
            return self.slots.len() as u32 - 1;
        };
        // `release` left no buffers behind.
        let slot = &mut self.slots[index as usize];
        (slot.token, slot.kind, slot.die, slot.block) = (token, kind, die, block);
        (slot.first_page, slot.page_count, slot.first_iu, slot.iu_count) = (0, 0, 0, 0);
        (slot.source, slot.source_page) = (0, 0);
        (slot.steps_done, slot.steps, slot.steps_transferred, slot.retries) = (0, 1, 0, 0);
        (slot.error, slot.flip_bit) = (None, None);
        index
    }
    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }
    /// Frees a slot whose buffers were taken out, without moving it.
    #[inline]
    pub(crate) fn release(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.parts.clear();
        slot.program_oob = None;
        self.free.push(index);
    }
    /// Takes a command out.
    pub(crate) fn remove(&mut self, index: u32) -> Slot {
        self.free.push(index);
        let nothing = Slot::new(MediaToken(0), Kind::Erase, NONE, 0);
        std::mem::replace(&mut self.slots[index as usize], nothing)
    }
    /// Commands under way, in no order. Slow.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Slot> {
        let slots = self.slots.iter().enumerate();
        slots.filter(|(index, _)| !self.free.contains(&(*index as u32))).map(|(_, slot)| slot)
    }
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.free.clear();
    }
}
