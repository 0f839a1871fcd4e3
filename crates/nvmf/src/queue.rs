use diecut_nvme::SubmissionEntry;
use diecut_units::{BufferMut, Span, Time};
use std::collections::VecDeque;

/// Index of a command slot in its queue; on the wire it is the transfer tag of R2Ts.
pub(crate) type SlotIndex = u16;

/// How far a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    Free,
    /// Its data come in the capsule.
    Receiving,
    /// It waits for memory: before its R2T, or before it is executed if its data go to the host.
    WaitingForSpace,
    /// R2T sent: data of `asked_end` bytes in all were asked for.
    Transferring,
    /// The namespace has it.
    Submitted,
    /// It waits for something that others do: an Asynchronous Event Request, or a preemption.
    Parked,
}

impl SlotState {
    /// Whether a command may go from here to `next`.
    #[inline]
    fn may_become(self, next: SlotState) -> bool {
        use SlotState::{Free, Parked, Receiving, Submitted, Transferring, WaitingForSpace};
        matches!(
            (self, next),
            (Free, Receiving)
                | (Receiving, WaitingForSpace | Submitted | Parked | Free)
                | (WaitingForSpace, Transferring | Submitted | Free)
                | (Transferring, Submitted | Parked | Free)
                | (Submitted | Parked, Free)
        )
    }
}

/// A command under way.
#[derive(Debug)]
pub(crate) struct Slot {
    state: SlotState,
    pub(crate) entry: SubmissionEntry,
    pub(crate) arrived: Time,
    /// Bytes of data, either way.
    pub(crate) data_bytes: u32,
    /// Gathers the data of an R2T; lent to the receiver while a data PDU comes in.
    pub(crate) gathered: Option<BufferMut>,
    pub(crate) received: u32,
    pub(crate) asked_end: u32,
    /// What it holds of the queue's `gather_bytes` and `read_bytes`.
    pub(crate) gather_held: u32,
    pub(crate) read_held: u32,
    /// What its connection's account holds for it.
    pub(crate) account_held: u32,
    /// How long after its arrival its namespace got it, in units of 1024 ns.
    pub(crate) submitted_after: u32,
    /// Its data keep a whole receive buffer.
    pub(crate) pins: bool,
    /// A data digest was wrong; the command fails when its data are over.
    pub(crate) digest_failed: bool,
    /// What its namespace has of it is the first part; the second one follows.
    pub(crate) has_second_part: bool,
}

impl Slot {
    /// Its namespace gets it now.
    #[inline]
    pub(crate) fn note_submitted(&mut self, now: Time) {
        self.submitted_after = (now.since(self.arrived).0 >> 10).min(u32::MAX.into()) as u32;
    }

    /// When its namespace got it, a microsecond early at most.
    pub(crate) fn submitted_at(&self) -> Time {
        self.arrived + Span(u64::from(self.submitted_after) << 10)
    }

    #[inline]
    pub(crate) fn state(&self) -> SlotState {
        self.state
    }

    /// The command goes on.
    ///
    /// # Panics
    /// If it cannot from where it is.
    #[inline]
    pub(crate) fn enter(&mut self, next: SlotState) {
        assert!(self.state.may_become(next), "I-T7: a command goes from {:?} to {next:?}", self.state);
        self.state = next;
    }
}

/// One queue pair: slots of commands and which command ids are taken.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) id: u16,
    pub(crate) entries: u16,
    pub(crate) flow_control: bool,
    pub(crate) sq_head: u16,
    pub(crate) slots: Vec<Slot>,
    free: Vec<SlotIndex>,
    /// One bit per command id: hosts may choose any 16 bits.
    taken_ids: Box<[u64; 1024]>,
    pub(crate) waiting_for_space: VecDeque<SlotIndex>,
    /// Commands whose data go to the host, before they are executed.
    pub(crate) waiting_reads: VecDeque<SlotIndex>,
    pub(crate) gather_bytes: usize,
    pub(crate) submitted: u32,
    pub(crate) read_bytes: usize,
    /// What commands that are over held of the account, and how many receive buffers, to be given back.
    pub(crate) released_bytes: usize,
    pub(crate) released_pins: usize,
}

/// Why a command cannot be taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TakeError {
    /// More commands than the queue has entries.
    Full,
    /// The command id is in use.
    IdTaken,
}

impl Queue {
    pub(crate) fn new(id: u16, entries: u16, flow_control: bool) -> Queue {
        let slots = (0..entries)
            .map(|_| Slot {
                state: SlotState::Free,
                entry: SubmissionEntry::default(),
                arrived: Time::ZERO,
                submitted_after: 0,
                data_bytes: 0,
                gathered: None,
                received: 0,
                asked_end: 0,
                gather_held: 0,
                read_held: 0,
                account_held: 0,
                pins: false,
                digest_failed: false,
                has_second_part: false,
            })
            .collect();
        Queue {
            id,
            entries,
            flow_control,
            sq_head: 0,
            slots,
            free: (0..entries).rev().collect(),
            taken_ids: Box::new([0; 1024]),
            waiting_for_space: VecDeque::new(),
            waiting_reads: VecDeque::new(),
            gather_bytes: 0,
            submitted: 0,
            read_bytes: 0,
            released_bytes: 0,
            released_pins: 0,
        }
    }

    /// Memory that a queue of so many entries takes.
    pub(crate) fn size_bytes(entries: u16) -> usize {
        size_of::<[u64; 1024]>()
            + usize::from(entries) * (size_of::<Slot>() + 2 * size_of::<SlotIndex>())
            + size_of::<Queue>()
    }

    /// What commands under way hold of the account, and of receive buffers.
    pub(crate) fn held(&self) -> (usize, usize) {
        let bytes: usize = self.slots.iter().map(|slot| slot.account_held as usize).sum();
        let pins = self.slots.iter().filter(|slot| slot.pins).count();
        (bytes + self.released_bytes, pins + self.released_pins)
    }

    #[inline]
    pub(crate) fn take(&mut self, entry: &SubmissionEntry, arrived: Time) -> Result<SlotIndex, TakeError> {
        let id = entry.command_id.get();
        let word = &mut self.taken_ids[usize::from(id / 64)];
        if *word & (1 << (id % 64)) != 0 {
            return Err(TakeError::IdTaken);
        }
        let index = self.free.pop().ok_or(TakeError::Full)?;
        *word |= 1 << (id % 64);
        let slot = &mut self.slots[usize::from(index)];
        debug_assert!(slot.gathered.is_none() && !slot.pins, "I-T7: a free slot has no data");
        debug_assert_eq!(
            (slot.gather_held, slot.read_held, slot.account_held),
            (0, 0, 0),
            "I-T7: a free slot holds nothing"
        );
        slot.enter(SlotState::Receiving);
        slot.entry = *entry;
        slot.arrived = arrived;
        slot.data_bytes = 0;
        slot.received = 0;
        slot.asked_end = 0;
        slot.digest_failed = false;
        slot.has_second_part = false;
        Ok(index)
    }

    /// A command that waits is not carried out.
    pub(crate) fn give_up(&mut self, index: SlotIndex) {
        self.waiting_for_space.retain(|&waiting| waiting != index);
        self.waiting_reads.retain(|&waiting| waiting != index);
        self.release(index);
    }

    /// Frees a slot; answers go out right after.
    #[inline]
    pub(crate) fn release(&mut self, index: SlotIndex) {
        let slot = &mut self.slots[usize::from(index)];
        slot.enter(SlotState::Free);
        slot.gathered = None;
        assert!(self.gather_bytes >= slot.gather_held as usize, "I-T4: a queue holds what its commands do");
        assert!(self.read_bytes >= slot.read_held as usize, "I-T4: a queue holds what its commands do");
        self.gather_bytes -= std::mem::take(&mut slot.gather_held) as usize;
        self.read_bytes -= std::mem::take(&mut slot.read_held) as usize;
        self.released_bytes += std::mem::take(&mut slot.account_held) as usize;
        self.released_pins += usize::from(std::mem::take(&mut slot.pins));
        let id = slot.entry.command_id.get();
        let word = &mut self.taken_ids[usize::from(id / 64)];
        assert!(*word & 1 << (id % 64) != 0, "I-T7: the id of a command is taken while it is under way");
        *word &= !(1 << (id % 64));
        debug_assert!(self.free.len() < self.slots.len(), "I-T7: a slot is free once");
        self.free.push(index);
    }

    /// A command came back from its namespace.
    #[inline]
    pub(crate) fn came_back(&mut self) {
        assert!(self.submitted > 0, "I-T8: a queue counts what namespaces have of it");
        self.submitted -= 1;
    }

    /// SQHD of the next answer: with flow control the head moves by one for each, else it is reserved.
    #[inline]
    pub(crate) fn next_head(&mut self) -> u16 {
        if !self.flow_control {
            return 0xFFFF;
        }
        self.sq_head += 1;
        if self.sq_head >= self.entries {
            self.sq_head = 0;
        }
        self.sq_head
    }

    pub(crate) fn find(&self, command_id: u16) -> Option<SlotIndex> {
        self.slots
            .iter()
            .position(|slot| slot.state != SlotState::Free && slot.entry.command_id.get() == command_id)
            .map(|index| index as SlotIndex)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn ids_and_slots_are_taken_once() {
        let entry = |id: u16| SubmissionEntry { command_id: id.into(), ..SubmissionEntry::default() };
        let mut queue = Queue::new(1, 2, true);
        let first = queue.take(&entry(0xFFFF), Time::ZERO).unwrap();
        assert_eq!(queue.take(&entry(0xFFFF), Time::ZERO), Err(TakeError::IdTaken));
        queue.take(&entry(3), Time::ZERO).unwrap();
        assert_eq!(queue.take(&entry(4), Time::ZERO), Err(TakeError::Full));
        assert_eq!(queue.find(0xFFFF), Some(first));
        queue.release(first);
        queue.take(&entry(0xFFFF), Time::ZERO).unwrap();
        assert_eq!([queue.next_head(), queue.next_head(), queue.next_head()], [1, 0, 1]);
    }
}
