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

/// Steps of a command.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    pub(crate) total: u32,
    /// Those whose array work is done.
    pub(crate) done: u32,
    /// Those whose data crossed the bus (reads).
    pub(crate) transferred: u32,
}

/// How a command will end, as far as that is decided.
pub(crate) struct Outcome {
    /// What was decided to go wrong, or went wrong.
    pub(crate) error: Option<MediaError>,
    pub(crate) flip_bit: Option<u32>,
    /// Times that the array reads again.
    pub(crate) retries: u8,
}

/// One command: what every event of it looks at, in two cache lines. Works in steps: a row of pages for a read, a
/// program unit for a program or copy.
#[repr(align(64))]
pub(crate) struct CommandState {
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
    pub(crate) steps: Steps,
    /// Reads of one row: bytes that cross the bus.
    pub(crate) row_bytes: u32,
    /// Next command in the queue of its die.
    pub(crate) next: u32,
    pub(crate) outcome: Outcome,
    pub(crate) destination: Option<BufferMut>,
    pub(crate) oob: Option<BufferMut>,
}

const _: () = assert!(size_of::<CommandState>() == 128);

/// What only programs and copies have; reads never look at it.
#[derive(Default)]
pub(crate) struct CommandPayload {
    pub(crate) parts: PayloadParts,
    pub(crate) oob: Option<Buffer>,
    /// Copies: where from.
    pub(crate) source: u64,
    pub(crate) source_page: u32,
}

impl CommandState {
    fn new() -> CommandState {
        CommandState {
            token: MediaToken(0),
            kind: Kind::Erase,
            die: NONE,
            block: 0,
            first_page: 0,
            page_count: 0,
            first_row: 0,
            first_iu: 0,
            iu_count: 0,
            steps: Steps { total: 1, done: 0, transferred: 0 },
            row_bytes: 0,
            next: NONE,
            outcome: Outcome { error: None, flip_bit: None, retries: 0 },
            destination: None,
            oob: None,
        }
    }
}

/// All commands under way; commands are used again, so that a warm device allocates nothing.
#[derive(Default)]
pub(crate) struct Commands {
    commands: Vec<CommandState>,
    /// By command.
    payloads: Vec<CommandPayload>,
    free: Vec<u32>,
}

impl Commands {
    /// A place for a command, to be filled in. It is written where it stays: moving it costs more than simulating it.
    #[inline(always)]
    pub(crate) fn add(
        &mut self,
        token: MediaToken,
        kind: Kind,
        die: u32,
        block: u64,
    ) -> (u32, &mut CommandState) {
        let index = self.free.pop().unwrap_or_else(|| self.grow());
        // `release` left no buffers behind.
        let command = &mut self.commands[index as usize];
        (command.token, command.kind, command.die, command.block) = (token, kind, die, block);
        (command.first_page, command.page_count, command.first_iu, command.iu_count) = (0, 0, 0, 0);
        command.steps = Steps { total: 1, done: 0, transferred: 0 };
        command.outcome = Outcome { error: None, flip_bit: None, retries: 0 };
        command.next = NONE;
        (index, command)
    }

    #[inline(never)]
    fn grow(&mut self) -> u32 {
        self.commands.push(CommandState::new());
        self.payloads.push(CommandPayload::default());
        self.commands.len() as u32 - 1
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &CommandState {
        &self.commands[index as usize]
    }
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut CommandState {
        &mut self.commands[index as usize]
    }
    #[inline]
    pub(crate) fn payload(&self, index: u32) -> &CommandPayload {
        &self.payloads[index as usize]
    }
    /// A command with its payload.
    #[inline]
    pub(crate) fn loaded(&mut self, index: u32) -> (&mut CommandState, &mut CommandPayload) {
        (&mut self.commands[index as usize], &mut self.payloads[index as usize])
    }
    /// Frees a command whose read buffers were taken out, without moving it.
    #[inline(always)]
    pub(crate) fn release(&mut self, index: u32) {
        self.free.push(index);
    }
    /// Frees the command of a program, erase or copy.
    #[inline(never)]
    pub(crate) fn unload(&mut self, index: u32) {
        let payload = &mut self.payloads[index as usize];
        payload.parts.clear();
        payload.oob = None;
        self.free.push(index);
    }
    /// Commands under way, in no order. Slow.
    pub(crate) fn live(&self) -> impl Iterator<Item = &CommandState> {
        let commands = self.commands.iter().enumerate();
        commands.filter(|(index, _)| !self.free.contains(&(*index as u32))).map(|(_, command)| command)
    }
    pub(crate) fn clear(&mut self) {
        self.commands.clear();
        self.payloads.clear();
        self.free.clear();
    }
}
