use crate::budget::{Account, Budget};
use crate::event::{Action, ConnectionId};
use crate::queue::{Queue, SlotIndex};
use crate::relocation::MovedQueue;
use crate::tcp::{Outbox, Receiver};
use diecut_nvme::fabrics::{ConnectCommand, ConnectData};
use diecut_nvme::tcp::{
    CapsuleResponse, DataToHost, Digests, InitializeResponse, PduError, TerminateRequest, flag,
};
use diecut_nvme::{CompletionEntry, Status};
use diecut_units::{Buffer, Time, mutant};
use std::collections::VecDeque;
use std::net::SocketAddr;
use zerocopy::IntoBytes;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// ICReq is expected.
    Initialize,
    /// Connect is expected.
    Connect,
    /// A queue.
    Live,
    /// Connect came and waits for associations of its host that are gone to be quiet.
    Parked,
    /// Nothing is read any more; what was submitted comes back, what is in the outbox may still go.
    Closing,
}

/// What the data of the current PDU are for.
#[derive(Debug)]
pub(crate) enum Current {
    Nothing,
    /// Data of Connect.
    Connect(Box<ConnectCommand>),
    /// In-capsule data of a command.
    Command(SlotIndex),
    /// A part of an R2T's data, and its length.
    Transfer(SlotIndex, u32),
    /// The command was refused; the answer goes out when its data are over.
    Refused(u16, Status),
}

impl Current {
    /// Whether no PDU is under way whose data are awaited.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Current::Nothing)
    }
}

/// A connection on its way to the home shard of its subsystem: Connect was read and nothing was decided, or the subsystem
/// changed its home while the connection was at work.
#[derive(Debug)]
pub struct MovedConnection {
    pub(crate) digests: Digests,
    pub(crate) host_alignment: usize,
    pub(crate) unread: VecDeque<Buffer>,
    pub(crate) unread_at: usize,
    pub(crate) unsent: Outbox,
    pub(crate) arriving: Arriving,
}

/// How far a connection is that arrives from another shard.
#[derive(Debug)]
pub(crate) enum Arriving {
    /// Its Connect is to be decided on.
    Connect(Box<(ConnectCommand, ConnectData)>),
    /// It is a queue of a controller.
    Live(Box<MovedQueue>),
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<MovedConnection>()
};

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) index: u32,
    /// The address it came to, if that is known.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) phase: Phase,
    pub(crate) receiver: Receiver,
    pub(crate) current: Current,
    /// Bytes received and not parsed; parsing goes on at `backlog_at` of the first.
    pub(crate) backlog: VecDeque<Buffer>,
    pub(crate) backlog_at: usize,
    pub(crate) outbox: Outbox,
    /// The driver knows that there is output.
    pub(crate) transmit_told: bool,
    pub(crate) paused: bool,
    pub(crate) runnable: bool,
    pub(crate) digests: Digests,
    pub(crate) host_alignment: usize,
    pub(crate) queue: Option<Queue>,
    pub(crate) association: Option<u32>,
    pub(crate) subsystem: Option<u32>,
    pub(crate) parked: Option<Box<(ConnectCommand, ConnectData)>>,
    /// When patience ends: for Connect to come, or for the last output to go.
    pub(crate) deadline: Time,
    /// It ends when nobody has it lent out; nothing more of it is parsed.
    pub(crate) ending: bool,
    /// The driver said that the stream is gone.
    pub(crate) stream_gone: bool,
    /// Why what it sends is kept and not looked at, if it is.
    pub(crate) held: Held,
    /// It was closed while namespaces had commands of it, and its host's other queues wait until they are back.
    pub(crate) is_late: bool,
    pub(crate) account: Account,
    /// What of it is for unsent headers.
    pub(crate) scratch_held: usize,
    /// It holds something for unread bytes.
    pub(crate) has_unread: bool,
    /// It waits for memory: in the target's list of those that do.
    pub(crate) short: bool,
    /// The header of a command whose data are next was read, and there is no room for these.
    pub(crate) data_wait: bool,
    /// Times that bytes came from its host.
    pub(crate) heard: u64,
    /// What its host had taken, and how often it was heard, when it was last looked at for a stall.
    pub(crate) seen: (u64, u64),
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
            receiver: Receiver::new(),
            current: Current::Nothing,
            backlog: VecDeque::new(),
            backlog_at: 0,
            outbox: Outbox::default(),
            transmit_told: false,
            paused: false,
            runnable: false,
            digests: Digests::NONE,
            host_alignment: 4,
            queue: None,
            association: None,
            subsystem: None,
            parked: None,
            deadline,
            ending: false,
            stream_gone: false,
            held: Held::default(),
            is_late: false,
            account: Account::default(),
            has_unread: false,
            scratch_held: 0,
            short: false,
            data_wait: false,
            heard: 0,
            seen: (0, 0),
        }
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
        self.outbox.len_bytes() + reading >= output_bytes_max
    }

    /// Whether it takes bytes.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        !self.ending && !self.held.is_any() && !matches!(self.phase, Phase::Parked | Phase::Closing)
    }

    /// Whether parsing could go on, but for memory.
    #[inline]
    pub(crate) fn can_run(&self, output_bytes_max: usize) -> bool {
        !self.backlog.is_empty()
            && self.is_open()
            && !self.data_wait
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
    #[inline]
    pub(crate) fn balance(&mut self, budget: &mut Budget, pins: &mut usize) {
        let has_released = self.queue.as_ref().is_some_and(|queue| queue.released_bytes > 0);
        let holds_other =
            self.has_unread || !self.backlog.is_empty() || self.outbox.scratch_bytes() != self.scratch_held;
        if holds_other || (has_released && self.short) {
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
            budget.release(&mut self.account, std::mem::take(&mut queue.released_bytes));
            *pins -= std::mem::take(&mut queue.released_pins);
        }
    }

    fn balance_all(&mut self, budget: &mut Budget, pins: &mut usize) {
        let before = self.account.held_bytes();
        self.balance_released(budget, pins);
        let scratch = self.outbox.scratch_bytes();
        if scratch != self.scratch_held {
            adjust(budget, &mut self.account, &mut self.scratch_held, scratch);
        }
        if self.has_unread || !self.backlog.is_empty() {
            let unread = self.backlog.iter().map(Buffer::slab_bytes).sum();
            budget.hold_unread(&mut self.account, unread);
            self.has_unread = unread > 0;
        }
        if self.short && self.account.held_bytes() < before {
            // It may go on with what was its own.
            budget.set_gave_back();
        }
    }

    /// Tells the driver of output, once.
    #[inline]
    pub(crate) fn tell_output(&mut self, actions: &mut Vec<Action>) {
        if !self.outbox.is_empty() && !self.transmit_told && !self.stream_gone {
            self.transmit_told = true;
            actions.push(Action::Transmit(self.id));
        }
    }

    pub(crate) fn answer_initialize(&mut self, h2c_data_bytes_max: u32) {
        let response = InitializeResponse::new(self.digests, h2c_data_bytes_max);
        self.outbox.put_bytes(response.as_bytes());
    }

    /// Answers without data. `sq_head` is from the queue, or FFFFh before there is one.
    #[inline]
    pub(crate) fn answer(&mut self, command_id: u16, status: Status, result: u64) {
        let sq_head = self.queue.as_mut().map_or(0xFFFF, Queue::next_head);
        let entry = CompletionEntry::with_result(command_id, sq_head, status, result);
        let response = CapsuleResponse::new(entry, self.digests);
        self.outbox.put_header(response.as_bytes(), self.digests);
    }

    /// Answers with data and success. The account holds `held_bytes` for the data.
    #[inline]
    pub(crate) fn answer_with_data(&mut self, command_id: u16, data: Buffer, held_bytes: u32) {
        // Without flow control nobody needs SQHD, so the last data PDU can carry success (TCP 1.0 section 3.6.2.8).
        let with_success = self.queue.as_ref().is_some_and(|queue| !queue.flow_control);
        let flags = if with_success { flag::LAST | flag::SUCCESS } else { flag::LAST };
        let header =
            DataToHost::new(command_id, 0, data.len() as u32, flags, self.digests, self.host_alignment);
        self.outbox.put_header(header.as_bytes(), self.digests);
        if self.host_alignment > 4 {
            let padding = DataToHost::padding_bytes(self.digests, self.host_alignment);
            self.outbox.put_bytes(&[0; 128][..padding]);
        }
        self.outbox.put_payload(data, held_bytes, self.digests);
        if !with_success {
            self.answer(command_id, Status::SUCCESS, 0);
        }
    }

    /// Tells the host why the connection ends.
    pub(crate) fn terminate(&mut self, error: &PduError) {
        let offending = self.receiver.header().to_vec();
        let (request, sent) = TerminateRequest::to_host(error, &offending);
        self.outbox.put_bytes(request.as_bytes());
        self.outbox.put_bytes(&offending[..sent]);
    }
}
