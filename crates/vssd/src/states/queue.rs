//! Changes of block states that are not durable yet, and who waits until they are.

use super::change::Change;
use crate::{SpaceToken, VssdId};
use std::collections::VecDeque;

/// See the module. Changes are numbered from 1, in the order they were made.
#[derive(Default)]
pub(crate) struct ChangeQueue {
    /// Encoded, as far as nobody took them.
    pending: Vec<u8>,
    pushed: u64,
    durable: u64,
    /// Somebody who does not wait here asked for these.
    wanted: u64,
    /// Nothing becomes durable any more.
    is_lost: bool,
    /// Operations that wait.
    erases: VecDeque<(u64, u32)>,
    syncs: VecDeque<(u64, VssdId, SpaceToken)>,
}

impl ChangeQueue {
    /// Takes a change.
    pub fn push(&mut self, change: Change) {
        change.encode(&mut self.pending);
        self.pushed += 1;
    }
    /// Takes what another queue gave, as one change.
    pub fn push_encoded(&mut self, changes: &[u8]) {
        self.pending.extend_from_slice(changes);
        self.pushed += 1;
    }
    /// There is something to write, though nothing changed.
    pub fn push_nothing(&mut self) {
        self.pushed += 1;
    }

    /// Number of the last change.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }
    /// Whether every change so far is durable.
    pub fn is_durable(&self) -> bool {
        self.durable == self.pushed
    }
    pub fn is_durable_at(&self, change: u64) -> bool {
        self.durable >= change
    }
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }
    /// Bytes that nobody took.
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }
    /// Takes what nobody took.
    pub fn take_pending(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }
    /// What nobody took is elsewhere already.
    pub fn clear_pending(&mut self) {
        self.pending.clear();
    }

    /// Everything so far shall become durable though nobody waits for it here.
    pub fn want(&mut self) {
        self.wanted = self.pushed;
    }
    /// Whether somebody waits for something.
    pub fn is_awaited(&self) -> bool {
        !self.erases.is_empty() || !self.syncs.is_empty() || self.wanted > self.durable
    }

    /// Changes up to this one are durable.
    pub fn became_durable(&mut self, change: u64) {
        assert!(change >= self.durable, "what is durable stays durable (I-V17)");
        assert!(change <= self.pushed, "what is durable was changed before (I-V17)");
        self.durable = change;
    }
    /// Nothing more becomes durable.
    pub fn lose(&mut self) {
        self.is_lost = true;
    }

    /// Keeps an erase, which is an operation, until its allocation is durable.
    pub fn hold_erase(&mut self, at: u32) {
        let change = self.pushed;
        let last = self.erases.back();
        assert!(last.is_none_or(|(last, _)| *last <= change), "erases wait in the order of changes (I-V17)");
        self.erases.push_back((change, at));
    }
    /// Erases that wait.
    pub fn held_erases(&self) -> impl Iterator<Item = u32> + '_ {
        self.erases.iter().map(|(_, at)| *at)
    }
    /// An erase that waited long enough; each one when nothing becomes durable any more.
    pub fn take_erase(&mut self) -> Option<u32> {
        let (is_lost, durable) = (self.is_lost, self.durable);
        self.erases.pop_front_if(|(change, _)| is_lost || durable >= *change).map(|(_, at)| at)
    }

    /// Keeps a sync until all changes so far are durable.
    pub fn hold_sync(&mut self, id: VssdId, token: SpaceToken) {
        self.syncs.push_back((self.pushed, id, token));
    }
    /// A sync that waited long enough; each one when nothing becomes durable any more.
    pub fn take_sync(&mut self) -> Option<(VssdId, SpaceToken)> {
        let (is_lost, durable) = (self.is_lost, self.durable);
        let due = self.syncs.pop_front_if(|(change, ..)| is_lost || durable >= *change);
        due.map(|(_, id, token)| (id, token))
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: what waits goes on in its order, when its change is durable and not before; all of it when nothing becomes durable any more.
    #[test]
    fn what_waits_goes_on_with_its_change() {
        let mut queue = ChangeQueue::default();
        queue.push_encoded(&[1; 8]);
        queue.hold_erase(7);
        queue.push_encoded(&[2; 8]);
        queue.hold_erase(8);
        queue.hold_sync(VssdId(3), SpaceToken(1));
        assert!(queue.is_awaited() && !queue.is_durable());
        assert_eq!((queue.take_erase(), queue.take_sync()), (None, None));
        queue.became_durable(1);
        assert_eq!((queue.take_erase(), queue.take_erase(), queue.take_sync()), (Some(7), None, None));
        assert_eq!(queue.held_erases().collect::<Vec<_>>(), [8]);
        queue.lose();
        assert_eq!((queue.take_erase(), queue.take_sync()), (Some(8), Some((VssdId(3), SpaceToken(1)))));
        assert!(!queue.is_awaited());
        assert_eq!(queue.take_pending().len(), 16);
    }
}
