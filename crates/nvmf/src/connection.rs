//! One connection of a host: its state, what it holds, and how it is answered.

use crate::budget::{Account, Budget};
use crate::event::{Action, ConnectionId};
use crate::inbound::{Current, Inbound};
use crate::moved::{Arriving, MovedConnection};
use crate::queue::Queue;
use crate::tcp::{Destination, Outbox};
use diecut_nvme::fabrics::{ConnectCommand, ConnectData};
use diecut_nvme::tcp::{
    CapsuleResponse, DataToHost, Digests, InitializeResponse, PduError, TerminateRequest, flag,
};
use diecut_nvme::{CompletionEntry, Status};
use diecut_units::{Buffer, Time, mutant};
use std::net::SocketAddr;
use zerocopy::IntoBytes;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// ICReq is expected.
    Initialize,
    /// Connect is expected.
    Connect,
    /// Connect came and waits for associations of its host that are gone to be quiet, or for its subsystem to be where it moves.
    Parked,
    /// A queue.
    Live,
    /// Nothing more is parsed; it closes when nobody has it lent.
    Ending,
    /// Nothing is read any more; what was submitted comes back, what is in the outbox may still go.
    Closing,
}

impl Phase {
    /// Whether a connection may go from here to `next`.
    fn may_become(self, next: Phase) -> bool {
        match (self, next) {
            (Phase::Initialize, Phase::Connect | Phase::Live) => true,
            (Phase::Connect, Phase::Parked | Phase::Live) | (Phase::Parked, Phase::Connect) => true,
            (Phase::Initialize | Phase::Connect | Phase::Live, Phase::Ending) => true,
            (Phase::Closing, _) => false,
            (_, next) => next == Phase::Closing,
        }
    }
}

/// What was agreed on for the PDUs of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    pub(crate) digests: Digests,
    pub(crate) host_alignment: usize,
}

/// The sending side of a connection.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    pub(crate) outbox: Outbox,
    /// The driver knows that there is output.
    pub(crate) is_told: bool,
    /// The driver said that the stream is gone, or nobody takes what is said.
    pub(crate) stream_gone: bool,
}

/// What a connection holds of the memory.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    pub(crate) account: Account,
    /// What of it is for unsent headers.
    pub(crate) scratch_held: usize,
    /// It holds something for unread bytes.
    pub(crate) has_unread: bool,
    /// It waits for memory: it is in the list of those that do.
    pub(crate) short: bool,
    /// What its host had taken, and how often it was heard, when it was last looked at for a stall.
    pub(crate) seen: (u64, u64),
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) index: u32,
    /// The address it came to, if that is known.
    pub(crate) local: Option<SocketAddr>,
    phase: Phase,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
    pub(crate) wire: Wire,
    pub(crate) queue: Option<Queue>,
    pub(crate) association: Option<u32>,
    pub(crate) subsystem: Option<u32>,
    /// Its Connect, while that waits.
    pub(crate) parked: Option<Box<(ConnectCommand, ConnectData)>>,
    /// When patience ends: for Connect to come, or for the last output to go.
    pub(crate) deadline: Time,
    /// Why what it sends is kept and not looked at, if it is.
    pub(crate) held: Held,
    /// It was closed while namespaces had commands of it, and its host's other queues wait until they are back.
    pub(crate) is_late: bool,
    pub(crate) holding: Holding,
}

/// Reasons for not looking at what a connection sends; several may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held(u8);

impl Held {
    /// Its subsystem is about to change its shard.
    pub(crate) const FROZEN: Held = Held(1);
    /// Another queue of its host was closed, and namespaces still have commands of that one.
    pub(crate) const FENCED: Held = Held(2);

    pub(crate) fn insert(&mut self, reason: Held) {
        self.0 |= reason.0;
    }
    pub(crate) fn remove(&mut self, reason: Held) {
        self.0 &= !reason.0;
    }
    /// Whether there is any reason.
    #[inline]
    pub(crate) fn is_any(self) -> bool {
        self.0 != 0
    }
}

fn adjust(budget: &mut Budget, account: &mut Account, held: &mut usize, wanted: usize) {
    match wanted > *held {
        true => budget.force(account, wanted - *held),
        false => budget.release(account, *held - wanted),
    }
    *held = wanted;
}

impl Connection {
    pub(crate) fn new(id: ConnectionId, deadline: Time) -> Connection {
        Connection {
            id,
            index: 0,
            local: None,
            phase: Phase::Initialize,
            inbound: Inbound::new(),
            outbound: Outbound::default(),
            wire: Wire { digests: Digests::NONE, host_alignment: 4 },
            queue: None,
            association: None,
            subsystem: None,
            parked: None,
            deadline,
            held: Held::default(),
            is_late: false,
            holding: Holding::default(),
        }
    }

    /// The same, with an account, and the address that it came to.
    pub(crate) fn with(mut self, account: Account, local: Option<SocketAddr>) -> Connection {
        self.holding.account = account;
        self.local = local;
        self
    }

    /// One that another shard gave away; whether it is a queue already is decided next.
    pub(crate) fn adopted(
        id: ConnectionId,
        deadline: Time,
        account: Account,
        moved: MovedConnection,
    ) -> (Connection, Arriving) {
        let mut connection = Connection::new(id, deadline).with(account, None);
        connection.wire = Wire { digests: moved.digests, host_alignment: moved.host_alignment };
        connection.inbound.backlog = moved.unread;
        connection.inbound.at = moved.unread_at;
        connection.outbound.outbox = moved.unsent;
        (connection, moved.arriving)
    }

    /// What travels of a connection; nothing is left of it here.
    pub(crate) fn take_moved(&mut self, arriving: Arriving) -> MovedConnection {
        MovedConnection {
            digests: self.wire.digests,
            host_alignment: self.wire.host_alignment,
            unread: std::mem::take(&mut self.inbound.backlog),
            unread_at: self.inbound.at,
            unsent: std::mem::take(&mut self.outbound.outbox),
            arriving,
        }
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Goes on to another phase.
    ///
    /// # Panics
    /// If that cannot follow.
    pub(crate) fn enter(&mut self, next: Phase) {
        assert!(self.phase.may_become(next), "I-T2: {:?} goes from {:?} to {next:?}", self.id, self.phase);
        let waits = self.parked.is_some();
        assert!(
            waits == (next == Phase::Parked),
            "I-T2: {:?} has a Connect that waits only while it is parked",
            self.id
        );
        self.phase = next;
    }

    /// Whether it is an admin queue.
    pub(crate) fn is_admin(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.id == 0)
    }

    /// Of an admin queue, the association that ends with it.
    pub(crate) fn own_association(&self) -> Option<u32> {
        self.association.filter(|_| self.is_admin())
    }

    /// Commands that a namespace has.
    #[inline]
    pub(crate) fn submitted(&self) -> u32 {
        self.queue.as_ref().map_or(0, |queue| queue.submitted)
    }

    /// Whether it holds as many bytes towards the host as it may.
    #[inline]
    pub(crate) fn is_output_full(&self, output_bytes_max: usize) -> bool {
        let reading = self.queue.as_ref().map_or(0, |queue| queue.read_bytes);
        self.outbound.outbox.len_bytes() + reading >= output_bytes_max
    }

    /// Whether it takes bytes.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        !self.held.is_any() && matches!(self.phase, Phase::Initialize | Phase::Connect | Phase::Live)
    }

    /// Whether parsing could go on, but for memory.
    #[inline]
    pub(crate) fn can_run(&self, output_bytes_max: usize) -> bool {
        !self.inbound.backlog.is_empty()
            && self.is_open()
            && !self.inbound.data_wait
            && !self.is_output_full(output_bytes_max)
    }

    /// Whether data are still to come for which there is memory. They are read also while the connection waits for more: what it
    /// holds is given back only when they are there.
    #[inline]
    pub(crate) fn awaits_data(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.gather_bytes > 0)
            && !mutant!("nvmf: no data are read while a queue waits for memory")
    }

    /// Brings the account to what is held: what commands gave back, unread bytes, unsent headers. `pins` are receive buffers that
    /// commands keep.
    #[inline(always)]
    pub(crate) fn balance(&mut self, budget: &mut Budget, pins: &mut usize) {
        let has_released = self.queue.as_ref().is_some_and(|queue| queue.released_bytes > 0);
        let holds_other = self.holding.has_unread
            || !self.inbound.backlog.is_empty()
            || self.outbound.outbox.scratch_bytes() != self.holding.scratch_held;
        if holds_other || (has_released && self.holding.short) {
            self.balance_all(budget, pins);
        } else if has_released {
            self.balance_released(budget, pins);
        }
    }

    /// What commands gave back.
    #[inline]
    fn balance_released(&mut self, budget: &mut Budget, pins: &mut usize) {
        if let Some(queue) = &mut self.queue
            && queue.released_bytes > 0
        {
            budget.release(&mut self.holding.account, std::mem::take(&mut queue.released_bytes));
            let released = std::mem::take(&mut queue.released_pins);
            assert!(*pins >= released, "I-T4: receive buffers that commands keep are counted");
            *pins -= released;
        }
    }

    #[inline(never)]
    fn balance_all(&mut self, budget: &mut Budget, pins: &mut usize) {
        let before = self.holding.account.held_bytes();
        self.balance_released(budget, pins);
        let scratch = self.outbound.outbox.scratch_bytes();
        if scratch != self.holding.scratch_held {
            adjust(budget, &mut self.holding.account, &mut self.holding.scratch_held, scratch);
        }
        if self.holding.has_unread || !self.inbound.backlog.is_empty() {
            let unread = self.inbound.backlog.iter().map(Buffer::slab_bytes).sum();
            budget.hold_unread(&mut self.holding.account, unread);
            self.holding.has_unread = unread > 0;
        }
        if self.holding.short && self.holding.account.held_bytes() < before {
            // It may go on with what was its own.
            budget.set_gave_back();
        }
    }

    /// Tells the driver of output, once.
    #[inline]
    pub(crate) fn tell_output(&mut self, actions: &mut Vec<Action>) {
        if !self.outbound.outbox.is_empty() && !self.outbound.is_told && !self.outbound.stream_gone {
            self.outbound.is_told = true;
            actions.push(Action::Transmit(self.id));
        }
    }

    pub(crate) fn answer_initialize(&mut self, h2c_data_bytes_max: u32) {
        let response = InitializeResponse::new(self.wire.digests, h2c_data_bytes_max);
        self.outbound.outbox.put_bytes(response.as_bytes());
    }

    /// Answers without data. `sq_head` is from the queue, or FFFFh before there is one.
    #[inline]
    pub(crate) fn answer(&mut self, command_id: u16, status: Status, result: u64) {
        let sq_head = self.queue.as_mut().map_or(0xFFFF, Queue::next_head);
        let entry = CompletionEntry::with_result(command_id, sq_head, status, result);
        let response = CapsuleResponse::new(entry, self.wire.digests);
        self.outbound.outbox.put_header(response.as_bytes(), self.wire.digests);
    }

    /// Answers with data and success. The account holds `held_bytes` for the data.
    #[inline]
    pub(crate) fn answer_with_data(&mut self, command_id: u16, data: Buffer, held_bytes: u32) {
        self.answer_with_data_and(command_id, data, held_bytes, 0);
    }

    /// As [`Connection::answer_with_data`], with a result in dword 0.
    #[inline]
    pub(crate) fn answer_with_data_and(
        &mut self,
        command_id: u16,
        data: Buffer,
        held_bytes: u32,
        result: u64,
    ) {
        // Without flow control nobody needs SQHD, so the last data PDU can carry success (TCP 1.0 section 3.6.2.8).
        let with_success = result == 0 && self.queue.as_ref().is_some_and(|queue| !queue.flow_control);
        let flags = if with_success { flag::LAST | flag::SUCCESS } else { flag::LAST };
        self.put_data(command_id, data, held_bytes, flags);
        if !with_success {
            self.answer(command_id, Status::SUCCESS, result);
        }
    }

    /// Sends the data of a command. The account holds `held_bytes` for them.
    #[inline]
    pub(crate) fn put_data(&mut self, command_id: u16, data: Buffer, held_bytes: u32, flags: u8) {
        let header = DataToHost::new(
            command_id,
            0,
            data.len() as u32,
            flags,
            self.wire.digests,
            self.wire.host_alignment,
        );
        self.outbound.outbox.put_header(header.as_bytes(), self.wire.digests);
        if self.wire.host_alignment > 4 {
            let padding = DataToHost::padding_bytes(self.wire.digests, self.wire.host_alignment);
            self.outbound.outbox.put_bytes(&[0; 128][..padding]);
        }
        self.outbound.outbox.put_payload(data, held_bytes, self.wire.digests);
    }

    /// Answers a command that is not taken; in-capsule data are skipped first.
    pub(crate) fn refuse(&mut self, command_id: u16, status: Status) {
        if self.inbound.receiver.frame().data_length() > 0 {
            self.inbound.current = Current::Refused(command_id, status);
            self.inbound.receiver.take_data(Destination::Nowhere);
        } else {
            self.inbound.receiver.finish_header();
            self.answer(command_id, status, 0);
        }
    }

    /// Tells the host why the connection ends.
    pub(crate) fn terminate(&mut self, error: &PduError) {
        let offending = self.inbound.receiver.header().to_vec();
        let (request, sent) = TerminateRequest::to_host(error, &offending);
        self.outbound.outbox.put_bytes(request.as_bytes());
        self.outbound.outbox.put_bytes(&offending[..sent]);
    }
}
