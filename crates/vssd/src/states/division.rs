//! A log of block states whose device several pools divide: one pool, the first, keeps log and table of the whole device; the others keep a
//! table of what is theirs, and send it their changes.

use super::queue::ChangeQueue;
use crate::owners::resources::UnitPlace;
use diecut_units::mutant;
use std::collections::{BTreeSet, VecDeque};

/// Changes of block states on their way to the pool that keeps the log.
pub struct StateChanges {
    /// Encoded: they take place together.
    pub(crate) logged: Vec<u8>,
    pub(crate) unlogged: Vec<Unlogged>,
    /// Number of the last one, where they were made.
    pub(crate) last: u64,
    /// Somebody waits until they are durable.
    pub(crate) is_awaited: bool,
}

/// What only the table has: the log has it with each generation. How much of open blocks is programmed is not among it: their headers and their
/// holders say so.
pub(crate) enum Unlogged {
    Heat(UnitPlace, [u64; 2]),
    DieWear(u32, [u64; 3]),
}

/// What became of changes that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatesDurable {
    /// Those up to this one are durable.
    UpTo(u64),
    /// Nothing becomes durable any more.
    Lost,
}

/// Of a pool that sends its changes: what waits here, and what was sent.
#[derive(Default)]
pub(crate) struct Sending {
    pub queue: ChangeQueue,
    pub unlogged: Vec<Unlogged>,
    sent: u64,
}

/// Changes that nobody waits for are sent when they are so many bytes.
const UNAWAITED_BYTES_MAX: usize = 2048;

impl Sending {
    /// Whether everything that is written down was sent.
    pub fn is_all_sent(&self) -> bool {
        self.queue.pushed() == self.sent && self.unlogged.is_empty()
    }

    /// What is to be sent now.
    pub fn take(&mut self) -> Option<StateChanges> {
        let is_awaited = self.queue.is_awaited() && self.queue.pushed() > self.sent;
        if !is_awaited && self.queue.pending_bytes() < UNAWAITED_BYTES_MAX {
            return None;
        }
        self.take_all(is_awaited)
    }

    /// Everything that was not sent.
    pub fn take_all(&mut self, is_awaited: bool) -> Option<StateChanges> {
        if self.is_all_sent() {
            return None;
        }
        self.sent = self.queue.pushed();
        if mutant!("vssd: changes that were sent count as durable") {
            self.queue.became_durable(self.sent);
        }
        Some(StateChanges {
            logged: self.queue.take_pending(),
            unlogged: std::mem::take(&mut self.unlogged),
            last: self.sent,
            is_awaited,
        })
    }
}

/// Changes of another pool in the log.
struct Received {
    /// Their number there.
    here: u64,
    from: u16,
    /// Their number where they were made.
    there: u64,
}

/// Of the pool that keeps the log: what other pools have, and what they sent.
#[derive(Default)]
pub(crate) struct Division {
    /// Channels of others.
    pub channels: BTreeSet<u16>,
    /// Entries of vSSDs that others have: each number is one pool's.
    pub slots: BTreeSet<usize>,
    received: VecDeque<Received>,
}

impl Division {
    /// Changes of another pool have this number in the log now.
    pub fn received(&mut self, here: u64, from: u16, there: u64) {
        self.received.push_back(Received { here, from, there });
    }

    /// What became of changes of other pools since the last call: the pool, and the last of its changes.
    pub fn take_durable(&mut self, queue: &ChangeQueue) -> Vec<(u16, StatesDurable)> {
        let mut answers = Vec::new();
        while let Some(one) =
            self.received.pop_front_if(|one| queue.is_lost() || queue.is_durable_at(one.here))
        {
            let what = if queue.is_durable_at(one.here) {
                StatesDurable::UpTo(one.there)
            } else {
                StatesDurable::Lost
            };
            answers.push((one.from, what));
        }
        answers
    }

    /// A number of an entry that no other pool has.
    pub fn unused_slot(&self, slots_len: usize) -> usize {
        let unused = (0..slots_len).find(|slot| !self.slots.contains(slot));
        unused.expect("I-V3: there are as many entries as units")
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::{SpaceToken, VssdId};

    /// Goal: changes go out when somebody waits for them, once, and each pool hears of its own in their order.
    #[test]
    fn changes_are_sent_once_and_answered_in_order() {
        let mut sending = Sending::default();
        sending.queue.push_encoded(&[1; 8]);
        assert!(sending.take().is_none(), "nobody waits for it");
        sending.queue.hold_sync(VssdId(1), SpaceToken(1));
        let sent = sending.take().unwrap();
        assert_eq!((sent.logged.len(), sent.last, sent.is_awaited), (8, 1, true));
        assert!(sending.take().is_none(), "sent before");
        let (mut division, mut log) = (Division::default(), ChangeQueue::default());
        log.push_encoded(&sent.logged);
        division.received(log.pushed(), 3, sent.last);
        log.push_encoded(&[2; 8]);
        division.received(log.pushed(), 2, 9);
        assert_eq!(division.take_durable(&log), []);
        log.became_durable(1);
        assert_eq!(division.take_durable(&log), [(3, StatesDurable::UpTo(1))]);
        log.lose();
        assert_eq!(division.take_durable(&log), [(2, StatesDurable::Lost)]);
    }
}
