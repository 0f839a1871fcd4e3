//! What is put off: a connection that is handled is lent out, and what it begins for others is done when it is back.

use std::collections::VecDeque;

/// Lists of what is to be done, by index of connections or associations. Each may name somebody who is gone meanwhile, but for
/// `parked`.
#[derive(Debug, Default)]
pub(crate) struct Later {
    /// Connections whose round was over before their bytes were.
    pub(crate) runnable: VecDeque<u32>,
    /// The same of admin queues, which share a part of each round.
    pub(crate) runnable_admins: VecDeque<u32>,
    /// How many of the two have not had their turn in this round.
    turns_left: usize,
    admin_turns_left: usize,
    /// Connections whose Connect waits for quiet. They are taken out when they close.
    pub(crate) parked: Vec<u32>,
    /// Associations to end.
    pub(crate) doomed: Vec<u32>,
    /// Connections to close.
    pub(crate) closing: Vec<u32>,
    /// Connections that got output while another one was handled.
    pub(crate) told: Vec<u32>,
    /// Subsystems whose namespaces have something to do of a sanitize operation.
    pub(crate) sanitizing: Vec<u32>,
}

impl Later {
    /// A connection has its turn in the next round.
    #[inline]
    pub(crate) fn list_turn(&mut self, index: u32, is_admin: bool) {
        let list = if is_admin { &mut self.runnable_admins } else { &mut self.runnable };
        list.push_back(index);
    }

    /// Whether somebody waits for a turn.
    pub(crate) fn has_turns(&self) -> bool {
        !(self.runnable.is_empty() && self.runnable_admins.is_empty())
    }

    /// Who is listed now has a turn in this round, who comes later in the next.
    pub(crate) fn begin_round(&mut self) {
        self.turns_left = self.runnable.len();
        self.admin_turns_left = self.runnable_admins.len();
    }

    /// Whose turn it is, admin queues first if they have one.
    pub(crate) fn next_turn(&mut self, admins_have_one: bool) -> Option<u32> {
        let turn = if admins_have_one && self.admin_turns_left > 0 {
            self.admin_turns_left -= 1;
            self.runnable_admins.pop_front()
        } else {
            self.turns_left = self.turns_left.checked_sub(1)?;
            self.runnable.pop_front()
        };
        assert!(turn.is_some(), "I-T13: who has a turn left in a round is listed");
        turn
    }

    /// Whether something of it can be done as soon as no connection is lent.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        let lists = [&self.told, &self.doomed, &self.closing, &self.parked];
        lists.iter().any(|list| !list.is_empty())
    }

    /// Whether somebody ends, or waits for an end.
    pub(crate) fn has_ends(&self) -> bool {
        !(self.doomed.is_empty() && self.closing.is_empty() && self.parked.is_empty())
    }

    /// A subsystem has something to do of a sanitize operation.
    pub(crate) fn list_sanitizing(&mut self, subsystem: u32) {
        if !self.sanitizing.contains(&subsystem) {
            self.sanitizing.push(subsystem);
        }
    }

    /// A connection waits with its Connect.
    pub(crate) fn park(&mut self, index: u32) {
        assert!(!self.parked.contains(&index), "I-T2: a connection waits with one Connect");
        self.parked.push(index);
    }

    /// A connection waits no more with its Connect.
    pub(crate) fn unpark(&mut self, index: u32) {
        self.parked.retain(|&parked| parked != index);
    }
}
