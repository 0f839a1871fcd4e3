//! The memory of connections: buffers, what each may hold of them, and who waits for some.

use crate::budget::{Account, Budget, NEWCOMERS, NEWCOMERS_SHARE};
use crate::config::TargetConfig;
use crate::connection::Connection;
use crate::queue::{Queue, Slot};
use diecut_units::{BufferPool, Span, Time, mark, mutant};
use std::collections::VecDeque;

/// A receive buffer that a command may keep for its data; a copy of the data is smaller and costs more.
const PIN_BYTES: usize = 64 << 10;
/// Memory of a connection that is no queue yet: what it says, what it is answered, and its Connect.
const NEWCOMER_BYTES: usize = 8 << 10;
/// Memory of a queue besides its slots, and of a controller besides its queues.
const QUEUE_BYTES: usize = 16 << 10;
const CONTROLLER_BYTES: usize = 16 << 10;
/// While newcomers hold most of what they may, they have one in so many parts of the time until Connect.
const PRESSED_SHARE: u64 = 5;
/// Connections that wait for memory looked at in one round.
const SHORT_TURNS_PER_ROUND: usize = 32;
/// How long it is not told again that memory is short.
const SHORT_TOLD_FOR: Span = Span::from_secs(60);
/// What a driver should receive at once when memory is plenty, and when it is not.
const RECEIVE_BYTES: usize = 64 << 10;
const RECEIVE_SHORT_BYTES: usize = 8 << 10;

/// Of the memory of connections, the part that accounts share out; the rest is for receive buffers that commands keep.
fn budget_of(memory_bytes: usize) -> usize {
    memory_bytes / 8 * 7
}

/// Receive buffers that commands may keep in this much memory of connections: the part that accounts do not share out.
fn pins_max(memory_bytes: usize) -> usize {
    memory_bytes / 8 / PIN_BYTES
}

/// Memory of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryFigures {
    /// What they may hold, in bytes.
    pub limit_bytes: usize,
    /// What they hold, with their reserves, in bytes.
    pub held_bytes: usize,
    /// What there is of it in fact: queues and other state of connections, and buffers in use and free, in bytes.
    pub used_bytes: usize,
    /// Connections that wait for memory.
    pub waiting: usize,
}

impl TargetConfig {
    /// Connections that have not sent Connect, for which the memory for connections has room.
    pub fn newcomers_max(&self) -> usize {
        budget_of(self.memory.limit_bytes) / NEWCOMERS_SHARE / NEWCOMER_BYTES
    }
}

/// See the module.
pub(crate) struct Memory {
    limit_bytes: usize,
    pub(crate) pool: BufferPool,
    /// What connections may hold.
    pub(crate) budget: Budget,
    /// Receive buffers that commands keep.
    pins: usize,
    pins_max: usize,
    pub(crate) waiting: Waiting,
}

/// Connections that wait for memory.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// In the order of their turns.
    turns: VecDeque<u32>,
    /// How many of them have another try before something is given back again.
    tries_left: usize,
    /// When those that hold much and do nothing are looked for.
    stall_at: Time,
    stall_time: Span,
    /// That memory is short is not told again before this, and whether it is to be told now.
    told_until: Time,
    is_news: bool,
}

impl Waiting {
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// When those that hold much and do nothing are looked for.
    pub(crate) fn stall_at(&self) -> Time {
        self.stall_at
    }

    /// They were looked for.
    pub(crate) fn looked_for_stalled(&mut self, now: Time) {
        self.stall_at = if self.turns.is_empty() { Time::NEVER } else { now + self.stall_time };
    }

    /// Somebody waits for memory, or does not get any.
    pub(crate) fn notice(&mut self, now: Time) {
        if self.told_until <= now {
            self.told_until = now + SHORT_TOLD_FOR;
            self.is_news = true;
        }
    }

    /// Whether an operator is to be told that memory is short.
    #[inline]
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.is_news)
    }

    /// Has a connection try in its turn whether there is memory for it. Answers whether it was not waiting for that already.
    pub(crate) fn add(&mut self, connection: &mut Connection, now: Time) -> bool {
        let is_new = !std::mem::replace(&mut connection.holding.short, true);
        if is_new {
            self.turns.push_back(connection.index);
            self.stall_at = self.stall_at.min(now + self.stall_time);
        }
        is_new
    }

    /// Whose turn it is; it waits no more by this list. The place may be somebody else's by now, who waits for nothing.
    pub(crate) fn next_turn(&mut self) -> u32 {
        self.turns.pop_front().expect("I-T4: turns are counted")
    }

    /// Its turn was no use to it: it keeps it.
    pub(crate) fn keep_turn(&mut self, connection: &mut Connection) {
        connection.holding.short = true;
        self.turns.push_back(connection.index);
    }
}

impl Memory {
    /// Memory that nobody holds.
    pub(crate) fn new(config: &TargetConfig) -> Memory {
        let limit_bytes = config.memory.limit_bytes;
        let mut pool = BufferPool::new();
        pool.set_limit(limit_bytes);
        let waiting = Waiting {
            turns: VecDeque::new(),
            tries_left: 0,
            stall_at: Time::NEVER,
            stall_time: config.memory.stall_time,
            told_until: Time::ZERO,
            is_news: false,
        };
        let budget = Budget::new(budget_of(limit_bytes));
        Memory { limit_bytes, pool, budget, pins: 0, pins_max: pins_max(limit_bytes), waiting }
    }

    /// What connections hold beyond a new limit stays until it is done with.
    pub(crate) fn set_limit(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
        self.pins_max = pins_max(limit_bytes);
        self.budget.set_limit(budget_of(limit_bytes));
        self.pool.set_limit(limit_bytes);
    }

    pub(crate) fn figures(&self) -> MemoryFigures {
        MemoryFigures {
            limit_bytes: self.limit_bytes,
            held_bytes: self.budget.held_bytes() + self.pins * PIN_BYTES,
            used_bytes: self.pool.size_bytes() + self.budget.own_bytes(),
            waiting: self.waiting.turns.len(),
        }
    }

    /// Checks that the budget is what connections take, their accounts what they hold, and that nobody is kept in it who is gone.
    /// `tenants` and `hosts` are named once for each user that is no account.
    ///
    /// # Panics
    /// If not.
    pub(crate) fn check<'a, C: Iterator<Item = &'a Connection>>(
        &self,
        connections: impl Fn() -> C,
        tenants: impl Iterator<Item = u32>,
        hosts: impl Iterator<Item = u32>,
    ) {
        let (mut taken, mut pins) = (0, 0);
        for one in connections() {
            let (commands, pinned) = one.queue.as_ref().map_or((0, 0), Queue::held);
            let held = commands + one.outbound.outbox.payload_held_bytes() + one.holding.scratch_held;
            assert_eq!(held, one.holding.account.held_bytes(), "I-T4: held by {:?}, and its account", one.id);
            taken += one.holding.account.taken_bytes();
            pins += pinned;
        }
        assert_eq!(
            (taken, pins),
            (self.budget.held_bytes(), self.pins),
            "I-T4: taken by connections, and the budget"
        );
        let accounts = connections().map(|one| &one.holding.account);
        self.budget.check_users(accounts, std::iter::once(NEWCOMERS).chain(tenants), hosts);
    }

    /// How many bytes of a stream a driver should receive at once.
    #[inline]
    pub(crate) fn receive_bytes(&self) -> usize {
        if self.budget.is_short() { RECEIVE_SHORT_BYTES } else { RECEIVE_BYTES }
    }

    /// Whether a command may keep the buffer that its data were received in; it counts as kept then.
    #[inline]
    pub(crate) fn may_pin(&mut self) -> bool {
        let may = self.pins < self.pins_max;
        self.pins += usize::from(may);
        debug_assert!(
            !may || self.pins <= self.pins_max,
            "I-T4: receive buffers that commands keep are counted"
        );
        may
    }

    /// Brings the account of a connection to what it holds.
    #[inline]
    pub(crate) fn balance(&mut self, connection: &mut Connection) {
        connection.balance(&mut self.budget, &mut self.pins);
    }

    /// `bytes` of answers that a connection held are sent.
    pub(crate) fn sent(&mut self, connection: &mut Connection, bytes: usize) {
        self.budget.release(&mut connection.holding.account, bytes);
        if connection.holding.short {
            // It may go on with what was its own.
            self.budget.set_gave_back();
        }
    }

    /// Takes memory for the data of a command from its connection's account, if there is room.
    #[inline]
    pub(crate) fn charge(&mut self, account: &mut Account, slot: &mut Slot) -> bool {
        let bytes = BufferPool::slab_bytes(slot.data_bytes as usize);
        let has_room = self.budget.charge(account, bytes);
        if has_room {
            debug_assert_eq!(slot.account_held, 0, "I-T4: a command is charged once");
            slot.account_held = bytes as u32;
        }
        has_room
    }

    /// Puts a connection among those that wait for memory, for which there was none.
    pub(crate) fn wait(&mut self, connection: &mut Connection, now: Time) {
        if self.waiting.add(connection, now) {
            mark!("nvmf: connection waits for memory");
            self.waiting.notice(now);
        }
    }

    /// Whether a connection that has bytes to be parsed has to wait for memory first.
    #[inline]
    pub(crate) fn must_wait(&self, connection: &Connection) -> bool {
        !connection.inbound.backlog.is_empty()
            && !self.budget.may_go_on(&connection.holding.account)
            && !connection.awaits_data()
    }

    /// How many of those that wait have their turn in this round: when memory was given back, each has another try.
    pub(crate) fn begin_turns(&mut self) -> usize {
        let waiting = &mut self.waiting;
        if self.budget.take_gave_back() {
            waiting.tries_left = waiting.turns.len();
        }
        let turns = waiting.tries_left.min(SHORT_TURNS_PER_ROUND);
        waiting.tries_left -= turns;
        assert!(turns <= waiting.turns.len(), "I-T4: who has another try waits");
        turns
    }

    /// The turns of this round are over.
    pub(crate) fn end_turns(&mut self) {
        if self.waiting.turns.is_empty() {
            self.waiting.stall_at = Time::NEVER;
        }
    }

    /// Whether a round would give somebody a turn.
    pub(crate) fn has_turns(&self) -> bool {
        self.waiting.tries_left > 0 || (!self.waiting.turns.is_empty() && self.budget.has_given_back())
    }

    /// The account of a connection that has not said whose it is; nothing where they have all they may.
    pub(crate) fn open_newcomer(&mut self) -> Option<Account> {
        self.budget.open(NEWCOMERS, None, NEWCOMER_BYTES, 0, 0)
    }

    /// The same for one that was let in on another shard.
    pub(crate) fn open_newcomer_anyway(&mut self) -> Account {
        self.budget.open_anyway(NEWCOMERS, None, NEWCOMER_BYTES, 0)
    }

    /// Makes the account of a newcomer that of a queue of `tenant`, if there is room for one and for its largest command.
    pub(crate) fn open_queue(
        &mut self,
        connection: &mut Connection,
        queue: &Queue,
        tenant: Option<u32>,
        host: u32,
        config: &TargetConfig,
    ) -> bool {
        let (own, reserve) = (own_bytes(queue), config.memory.queue_reserve_bytes);
        let (tenant, spare) = (tenant.unwrap_or(NEWCOMERS), config.queue.transfer_bytes_max as usize);
        let Some(account) = self.budget.open(tenant, Some(host), own, reserve, spare) else { return false };
        self.change_account(connection, account);
        true
    }

    /// The same for one that was a queue on another shard.
    pub(crate) fn reopen_queue(
        &mut self,
        connection: &mut Connection,
        tenant: Option<u32>,
        host: u32,
        config: &TargetConfig,
    ) {
        let queue = connection.queue.as_ref().expect("I-T2: what is live is a queue");
        let (own, reserve) = (own_bytes(queue), config.memory.queue_reserve_bytes);
        let (held, pins) = queue.held();
        self.pins += pins;
        let tenant = tenant.unwrap_or(NEWCOMERS);
        let mut account = self.budget.open_anyway(tenant, Some(host), own, reserve);
        self.budget.force(&mut account, held + connection.outbound.outbox.payload_held_bytes());
        self.change_account(connection, account);
    }

    fn change_account(&mut self, connection: &mut Connection, account: Account) {
        let old = std::mem::replace(&mut connection.holding.account, account);
        self.budget.force(&mut connection.holding.account, old.held_bytes());
        self.budget.close(old);
        connection.holding.has_unread = true; // they are counted anew
    }

    /// How long a new connection may take until Connect, of this `whole` time: less while newcomers hold most of what they may.
    pub(crate) fn connect_patience(&self, whole: Span) -> Span {
        let is_pressed =
            self.budget.has_many_newcomers() && !mutant!("nvmf: silent connections keep all places");
        if is_pressed { Span(whole.0 / PRESSED_SHARE) } else { whole }
    }
}

/// What a queue takes before it has a command: itself, and with the admin queue its controller.
fn own_bytes(queue: &Queue) -> usize {
    QUEUE_BYTES + Queue::size_bytes(queue.entries) + usize::from(queue.id == 0) * CONTROLLER_BYTES
}
