//! Preempt and Abort: it is answered when nothing of those that it preempted is in the namespace any more, so that nothing of theirs lands
//! behind what the preempting host does next.

use crate::event::ConnectionId;
use crate::queue::SlotIndex;
use diecut_namespace::contract::CommandToken;

/// A command that waits for those of hosts that it preempted.
#[derive(Debug)]
pub(crate) struct Preemption {
    pub(crate) id: ConnectionId,
    pub(crate) index: u32,
    pub(crate) slot_index: SlotIndex,
    pub(crate) command_id: u16,
    pub(crate) awaited: Vec<CommandToken>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Preemptions(Vec<Preemption>);

impl Preemptions {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, one: Preemption) {
        assert!(!one.awaited.is_empty(), "I-T17: a preemption waits for something");
        self.0.push(one);
    }

    /// Whether somebody waits for a command because its host was preempted.
    #[cold]
    pub(crate) fn is_awaited(&self, token: CommandToken) -> bool {
        self.0.iter().any(|one| one.awaited.contains(&token))
    }

    /// A command came back. Those that waited for it last.
    #[cold]
    pub(crate) fn came_back(&mut self, token: CommandToken) -> Vec<Preemption> {
        for one in &mut self.0 {
            one.awaited.retain(|awaited| *awaited != token);
        }
        self.0.extract_if(.., |one| one.awaited.is_empty()).collect()
    }
}
