//! Commands of reservations, Sanitize, and Set Features of what persists, that are not over when their data are here.
//!
//! Preempt and Abort is answered when nothing of those that it preempted is in the namespace any more, so that nothing of theirs lands
//! behind what the preempting host does next. What changes a reservation that persists through power loss, begins a sanitize operation, or sets which
//! events of placement are kept, is answered when the change is durable.

use crate::event::ConnectionId;
use crate::keeping::{Change, Whose};
use crate::moved::MovedWait;
use crate::queue::SlotIndex;
use diecut_namespace::contract::CommandToken;

/// A command that waits.
#[derive(Debug)]
pub(crate) struct Awaiting {
    pub(crate) id: ConnectionId,
    pub(crate) index: u32,
    pub(crate) slot_index: SlotIndex,
    pub(crate) command_id: u16,
    /// Commands of hosts that it preempted.
    pub(crate) commands: Vec<CommandToken>,
    /// Changes of its own.
    pub(crate) changes: Vec<Change>,
    /// One of its changes could not be made durable, and was undone.
    pub(crate) is_undone: bool,
}

impl Awaiting {
    fn is_over(&self) -> bool {
        self.commands.is_empty() && self.changes.is_empty()
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct AllAwaiting(Vec<Awaiting>);

impl AllAwaiting {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, one: Awaiting) {
        assert!(!one.is_over(), "I-T17: a command that waits waits for something");
        self.0.push(one);
    }

    /// Whether somebody waits for a command because its host was preempted.
    #[cold]
    pub(crate) fn is_awaited(&self, token: CommandToken) -> bool {
        self.0.iter().any(|one| one.commands.contains(&token))
    }

    /// A command came back. Those that waited for it last.
    #[cold]
    pub(crate) fn came_back(&mut self, token: CommandToken) -> Vec<Awaiting> {
        for one in &mut self.0 {
            one.commands.retain(|awaited| *awaited != token);
        }
        self.take_over()
    }

    /// Changes of something up to `version` are durable, or were undone. Those that waited for them last.
    pub(crate) fn kept(&mut self, whose: &Whose, version: u64, is_kept: bool) -> Vec<Awaiting> {
        for one in &mut self.0 {
            let before = one.changes.len();
            one.changes.retain(|(of, change)| of != whose || *change > version);
            one.is_undone |= one.changes.len() < before && !is_kept;
        }
        self.take_over()
    }

    fn take_over(&mut self) -> Vec<Awaiting> {
        let over: Vec<Awaiting> = self.0.extract_if(.., |one| one.is_over()).collect();
        let mut all = self.0.iter().map(|one| (one.id, one.slot_index));
        let is_there = |one: &Awaiting| all.any(|other| other == (one.id, one.slot_index));
        assert!(!over.iter().any(is_there), "I-T17: a command waits once");
        over
    }

    /// Takes out those of a connection that goes to another shard.
    pub(crate) fn take_of(&mut self, index: u32, id: ConnectionId) -> Vec<MovedWait> {
        let own = self.0.extract_if(.., |one| (one.index, one.id) == (index, id));
        let moved = own.map(|Awaiting { slot_index, command_id, commands, changes, is_undone, .. }| {
            assert!(commands.is_empty(), "I-T6: a queue is handed over without commands in namespaces");
            MovedWait { slot_index, command_id, changes, is_undone }
        });
        moved.collect()
    }

    /// One came with its connection.
    pub(crate) fn arrive(&mut self, index: u32, id: ConnectionId, moved: MovedWait) {
        let MovedWait { slot_index, command_id, changes, is_undone } = moved;
        self.push(Awaiting { id, index, slot_index, command_id, commands: Vec::new(), changes, is_undone });
    }
}
