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
    #[inline]
    pub(crate) fn is_read(self) -> bool {
        matches!(self, Kind::Read | Kind::ReadOob)
    }
}

/// One command: what every event of it looks at, in two cache lines. Works in steps: a row of pages for a read, a
/// program unit for a program or copy.
#[repr(align(64))]
pub(crate) struct Slot {
    pub(crate) token: MediaToken,
    pub(crate) kind: Kind,
    pub(crate) die: u32,
    pub(crate) block: u64,
    /// First page of the command (of the destination, for a copy).
    pub(crate) first_page: u32,
    pub(crate) page_count: u32,
    /// Reads: row of the first page.
    pub(crate) first_row: u32,
    /// Reads of content: IUs within the block.
    pub(crate) first_iu: u32,
    pub(crate) iu_count: u32,
    /// Steps whose array work is done.
    pub(crate) steps_done: u32,
    pub(crate) steps: u32,
    /// Steps whose data crossed the bus (reads).
    pub(crate) steps_transferred: u32,
    /// Reads of one row: bytes that cross the bus.
    pub(crate) row_bytes: u32,
    /// Times that the array reads again.
    pub(crate) retries: u32,
    /// Next command in the queue of its die.
    pub(crate) next: u32,
    pub(crate) flip_bit: Option<u32>,
    /// What was decided to go wrong, or went wrong.
    pub(crate) error: Option<MediaError>,
    pub(crate) destination: Option<BufferMut>,
    pub(crate) oob: Option<BufferMut>,
}

const _: () = assert!(size_of::<Slot>() == 128);

/// What only programs and copies have; reads never look at it.
#[derive(Default)]
pub(crate) struct Freight {
    pub(crate) parts: PayloadParts,
    pub(crate) oob: Option<Buffer>,
    /// Copies: where from.
    pub(crate) source: u64,
    pub(crate) source_page: u32,
}

impl Slot {
    fn new() -> Slot {
        Slot {
            token: MediaToken(0),
            kind: Kind::Erase,
            die: NONE,
            block: 0,
            first_page: 0,
            page_count: 0,
            first_row: 0,
            first_iu: 0,
            iu_count: 0,
            steps_done: 0,
            steps: 1,
            steps_transferred: 0,
            row_bytes: 0,
            retries: 0,
            next: NONE,
            flip_bit: None,
            error: None,
            destination: None,
            oob: None,
        }
    }
}

/// All commands under way; slots are used again, so that a warm device allocates nothing.
#[derive(Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    /// By slot.
    freights: Vec<Freight>,
    free: Vec<u32>,
}

impl Slots {
    /// A place for a command, to be filled in. It is written where it stays: moving it costs more than simulating it.
    #[inline(always)]
    pub(crate) fn add(&mut self, token: MediaToken, kind: Kind, die: u32, block: u64) -> (u32, &mut Slot) {
        let index = self.free.pop().unwrap_or_else(|| self.grow());
        // `release` left no buffers behind.
        let slot = &mut self.slots[index as usize];
        (slot.token, slot.kind, slot.die, slot.block) = (token, kind, die, block);
        (slot.first_page, slot.page_count, slot.first_iu, slot.iu_count) = (0, 0, 0, 0);
        (slot.steps_done, slot.steps, slot.steps_transferred, slot.retries) = (0, 1, 0, 0);
        (slot.error, slot.flip_bit, slot.next) = (None, None, NONE);
        (index, slot)
    }

    #[inline(never)]
    fn grow(&mut self) -> u32 {
        self.slots.push(Slot::new());
        self.freights.push(Freight::default());
        self.slots.len() as u32 - 1
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }
    #[inline]
    pub(crate) fn freight(&self, index: u32) -> &Freight {
        &self.freights[index as usize]
    }
    /// A command with its freight.
    #[inline]
    pub(crate) fn loaded(&mut self, index: u32) -> (&mut Slot, &mut Freight) {
        (&mut self.slots[index as usize], &mut self.freights[index as usize])
    }
    /// Frees a slot whose read buffers were taken out, without moving it.
    #[inline(always)]
    pub(crate) fn release(&mut self, index: u32) {
        self.free.push(index);
    }
    /// Frees the slot of a program, erase or copy.
    #[inline(never)]
    pub(crate) fn unload(&mut self, index: u32) {
        let freight = &mut self.freights[index as usize];
        freight.parts.clear();
        freight.oob = None;
        self.free.push(index);
    }
    /// Commands under way, in no order. Slow.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Slot> {
        let slots = self.slots.iter().enumerate();
        slots.filter(|(index, _)| !self.free.contains(&(*index as u32))).map(|(_, slot)| slot)
    }
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.freights.clear();
        self.free.clear();
    }
}
