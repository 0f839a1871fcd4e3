//! What is put off: a connection that is handled is lent out, and what it begins for others is done when it is back.

use std::collections::VecDeque;

/// Lists of what is to be done, by index of connections or associations. Each may name somebody who is gone meanwhile, but for
/// `parked`.
#[derive(Debug, Default)]
pub(crate) struct Later {
    /// Connections whose round was over before their bytes were.
    pub(crate) runnable: VecDeque<u32>,
    /// Connections whose Connect waits for quiet. They are taken out when they close.
    pub(crate) parked: Vec<u32>,
    /// Associations to end.
    pub(crate) doomed: Vec<u32>,
    /// Connections to close.
    pub(crate) closing: Vec<u32>,
    /// Connections that got output while another one was handled.
    pub(crate) told: Vec<u32>,
}

impl Later {
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

    /// A connection waits no more with its Connect.
    pub(crate) fn unpark(&mut self, index: u32) {
        self.parked.retain(|&parked| parked != index);
    }
}
