//! A die: the state of its array and registers, and the queue in front of it.

use crate::command::{CommandState, Commands, NONE};

/// No page is in the registers.
pub(crate) const NOTHING_SENSED: (u64, u32, u32) = (u64::MAX, 0, 0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Array {
    Idle,
    /// A row is read.
    Reading(u32),
    /// A unit is programmed or copied, or the block erased.
    Writing(u32),
    /// A row waits for the register that leads to the bus.
    RowReady(u32),
    /// A program, erase or copy is about to stand still.
    Suspending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Empty,
    /// A unit waits for the bus or crosses it.
    Arriving(u32),
    /// A unit waits for the array.
    Ready(u32),
}

/// One direction of a die's way to its bus.
#[derive(Default)]
pub(crate) struct Port {
    /// Bytes of the step at hand that did not cross the bus yet.
    pub(crate) bytes: u32,
    /// A step's command cycles are charged with its first burst.
    pub(crate) is_fresh: bool,
}

/// A die: its array, its registers, and the commands that wait for them.
pub(crate) struct Die {
    pub(crate) array: Array,
    pub(crate) array_since: u64,
    /// Commands that it has: those that wait, and those that the array or the bus is at work on.
    pub(crate) commands: u32,
    /// Since when it has some.
    pub(crate) busy_since: u64,
    /// Commands that wait, linked by [`CommandState::next`].
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// Steps of the first command in the queue that were begun.
    pub(crate) issued: u32,
    pub(crate) channel: u32,
    /// The command whose row leaves over the bus.
    pub(crate) output: u32,
    pub(crate) input: Input,
    /// What is on its way in and out.
    pub(crate) inward: Port,
    pub(crate) outward: Port,
    pub(crate) suspensions: u32,
    /// What stands still, and how much of its time is left.
    pub(crate) suspended: Option<(u32, u64)>,
    /// Pages that the registers hold: block, first page, end.
    pub(crate) sensed: (u64, u32, u32),
}

impl Die {
    pub(crate) fn new(channel: u32) -> Die {
        Die {
            array: Array::Idle,
            array_since: 0,
            commands: 0,
            busy_since: 0,
            first: NONE,
            last: NONE,
            issued: 0,
            channel,
            output: NONE,
            input: Input::Empty,
            inward: Port::default(),
            outward: Port::default(),
            suspensions: 0,
            suspended: None,
            sensed: NOTHING_SENSED,
        }
    }

    /// Whether commands wait.
    pub(crate) fn has_queue(&self) -> bool {
        self.first != NONE
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, commands: &mut Commands, index: u32) {
        let last = std::mem::replace(&mut self.last, index);
        if self.first == NONE {
            self.first = index;
        } else {
            commands.get_mut(last).next = index;
        }
    }

    /// All steps of the first command were begun.
    #[inline(always)]
    pub(crate) fn pop(&mut self, first: &CommandState) {
        self.issued = 0;
        self.first = first.next;
    }

    /// The array has work until `time` after `now`.
    #[inline(always)]
    pub(crate) fn occupy(&mut self, array: Array, sensed: (u64, u32, u32), now: u64) {
        self.array = array;
        self.array_since = now;
        // Reads in between are why it was suspended; they do not start its count anew.
        if self.suspended.is_none() {
            self.suspensions = 0;
        }
        self.sensed = sensed;
    }
}
